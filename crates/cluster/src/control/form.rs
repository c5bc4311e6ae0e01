//! Units by stage: the form in which long lists of units are written.
//!
//! Ten thousand units have few stages and few nodes. So each list is by stage, and in it by value with the partitions that
//! have it: `"active":{"alpha":[0,1,5],"beta":[2,3,4]}` takes some four bytes a unit and is read by eye.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::name::{Name, Unit};
use super::record::{Placement, Why};

/// Partitions by a value that they have.
pub(crate) type Groups<V> = BTreeMap<V, Vec<u32>>;

/// Adds pairs of partition and value, in the order of partitions.
pub(crate) fn grouped<V: Ord>(pairs: impl IntoIterator<Item = (u32, V)>) -> Groups<V> {
    let mut groups = Groups::new();
    for (partition, value) in pairs {
        groups.entry(value).or_default().push(partition);
    }
    groups
}

/// The value of each partition; an error if a partition has two.
pub(crate) fn ungrouped<V: Clone>(groups: Groups<V>, field: &str) -> Result<BTreeMap<u32, V>, String> {
    let mut values = BTreeMap::new();
    for (value, partitions) in groups {
        for partition in partitions {
            if values.insert(partition, value.clone()).is_some() {
                return Err(format!("{field}: expected partition {partition} once, got it twice"));
            }
        }
    }
    Ok(values)
}

/// Units of one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Partitions {
    job: Name,
    stage: Name,
    partitions: Vec<u32>,
}

/// Sets of units, by stage.
pub(crate) mod units {
    use serde::{Deserializer, Serializer, de};

    use super::*;

    pub(crate) fn serialize<S: Serializer>(units: &BTreeSet<Unit>, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list: Vec<Partitions> = Vec::new();
        for Unit { job, stage, partition } in units {
            match list.last_mut().filter(|last| (&last.job, &last.stage) == (job, stage)) {
                Some(last) => last.partitions.push(*partition),
                None => list.push(Partitions {
                    job: job.clone(),
                    stage: stage.clone(),
                    partitions: vec![*partition],
                }),
            }
        }
        list.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeSet<Unit>, D::Error> {
        let mut units = BTreeSet::new();
        for Partitions { job, stage, partitions } in Vec::<Partitions>::deserialize(deserializer)? {
            for partition in partitions {
                let unit = Unit { job: job.clone(), stage: stage.clone(), partition };
                if let Some(unit) = units.replace(unit) {
                    return Err(de::Error::custom(format!("expected unit {unit} once, got it twice")));
                }
            }
        }
        Ok(units)
    }
}

/// Placements of one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StagePlacements {
    job: Name,
    stage: Name,
    active: Groups<Name>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    target: Groups<Name>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    replicas: Groups<Name>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    why: Groups<Why>,
}

/// Placements of all units, by stage. A unit without anybody is left out.
pub(super) mod placements {
    use serde::{Deserializer, Serializer, de};

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        units: &BTreeMap<Unit, Placement>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut list: Vec<StagePlacements> = Vec::new();
        for (Unit { job, stage, partition }, placement) in units {
            if list.last().is_none_or(|last| (&last.job, &last.stage) != (job, stage)) {
                list.push(StagePlacements {
                    job: job.clone(),
                    stage: stage.clone(),
                    active: Groups::new(),
                    target: Groups::new(),
                    replicas: Groups::new(),
                    why: Groups::new(),
                });
            }
            let last = list.last_mut().expect("one was just added");
            for (groups, name) in
                [(&mut last.active, &placement.active), (&mut last.target, &placement.target)]
            {
                if let Some(name) = name {
                    groups.entry(name.clone()).or_default().push(*partition);
                }
            }
            for name in &placement.replicas {
                last.replicas.entry(name.clone()).or_default().push(*partition);
            }
            if let Some(why) = placement.why {
                last.why.entry(why).or_default().push(*partition);
            }
        }
        list.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Unit, Placement>, D::Error> {
        let mut units = BTreeMap::new();
        let mut stages = BTreeSet::new();
        for form in Vec::<StagePlacements>::deserialize(deserializer)? {
            let (job, stage) = (form.job.clone(), form.stage.clone());
            if !stages.insert((job.clone(), stage.clone())) {
                return Err(de::Error::custom(format!("expected stage {job}/{stage} once, got it twice")));
            }
            for (partition, placement) in by_partition(form).map_err(de::Error::custom)? {
                units.insert(Unit { job: job.clone(), stage: stage.clone(), partition }, placement);
            }
        }
        Ok(units)
    }
}

fn by_partition(form: StagePlacements) -> Result<BTreeMap<u32, Placement>, String> {
    let mut placements: BTreeMap<u32, Placement> = BTreeMap::new();
    for (partition, name) in ungrouped(form.active, "active")? {
        placements.entry(partition).or_default().active = Some(name);
    }
    for (partition, name) in ungrouped(form.target, "target")? {
        placements.entry(partition).or_default().target = Some(name);
    }
    for (partition, why) in ungrouped(form.why, "why")? {
        placements.entry(partition).or_default().why = Some(why);
    }
    for (name, partitions) in form.replicas {
        for partition in partitions {
            if !placements.entry(partition).or_default().replicas.insert(name.clone()) {
                return Err(format!("replicas: expected partition {partition} once at {name}, got it twice"));
            }
        }
    }
    Ok(placements)
}
