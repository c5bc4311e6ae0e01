//! Units as a State record has them: by stage, lists of partitions and of numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thalweg_types::{Micros, Offset};

use super::{Holder, MAX_UNITS, UnitState};
use crate::control::{Groups, Lineage, MAX_PARTITIONS, Name, Unit, Why, grouped, ungrouped};
use crate::positions::Position;
use crate::rules::{Rule, holds};

/// All units of a stage, which are those with partitions below a number.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StageForm {
    job: Name,
    stage: Name,
    partitions: u32,
    active: Groups<Name>,
    target: Groups<Name>,
    replicas: Groups<Name>,
    since: Groups<Offset>,
    why: Groups<Why>,
    from: Groups<Name>,
    /// Load and bytes of each partition.
    load: Vec<(u64, u64)>,
    /// Partition, position, and 1 if it is ready.
    holders: BTreeMap<Name, Vec<(u32, Offset, u8)>>,
    /// Partition, and the log time up to which the node may not have it.
    bans: BTreeMap<Name, Vec<(u32, Micros)>>,
    /// Partition, and log time.
    troubled: Vec<(u32, Micros)>,
    /// Partition, offset and row, lineage.
    handed: Vec<(u32, Offset, u32, Lineage)>,
}

pub(super) fn serialize<S: Serializer>(
    units: &BTreeMap<Unit, UnitState>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut stages: BTreeMap<(&Name, &Name), Vec<(u32, &UnitState)>> = BTreeMap::new();
    for (unit, state) in units {
        stages.entry((&unit.job, &unit.stage)).or_default().push((unit.partition, state));
    }
    let forms = stages.into_iter().map(|((job, stage), units)| StageForm::of(job, stage, &units));
    serializer.collect_seq(forms)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Unit, UnitState>, D::Error> {
    let mut units = BTreeMap::new();
    for form in Vec::<StageForm>::deserialize(deserializer)? {
        let (job, stage) = (form.job.clone(), form.stage.clone());
        for (partition, state) in (0..).zip(form.units().map_err(de::Error::custom)?) {
            let unit = Unit { job: job.clone(), stage: stage.clone(), partition };
            if units.insert(unit, state).is_some() {
                return Err(de::Error::custom(format!("expected stage {job}/{stage} once, got it twice")));
            }
        }
        if units.len() > MAX_UNITS {
            return Err(de::Error::custom(format!("expected at most {MAX_UNITS} units, got more")));
        }
    }
    Ok(units)
}

impl StageForm {
    fn of(job: &Name, stage: &Name, units: &[(u32, &UnitState)]) -> Self {
        fn some<'a, V: Ord>(
            units: &[(u32, &'a UnitState)],
            value: impl Fn(&'a UnitState) -> Option<V>,
        ) -> Groups<V> {
            grouped(units.iter().filter_map(|(partition, unit)| Some((*partition, value(unit)?))))
        }
        let mut replicas = Groups::new();
        let mut holders: BTreeMap<Name, Vec<_>> = BTreeMap::new();
        let mut bans: BTreeMap<Name, Vec<_>> = BTreeMap::new();
        for (partition, unit) in units {
            for name in &unit.replicas {
                replicas.entry(name.clone()).or_insert_with(Vec::new).push(*partition);
            }
            for (name, holder) in &unit.holders {
                let holder = (*partition, holder.position, holder.ready.into());
                holders.entry(name.clone()).or_default().push(holder);
            }
            for (name, until) in &unit.bans {
                bans.entry(name.clone()).or_default().push((*partition, *until));
            }
        }
        if !holds(Rule::StateIsWhole) {
            bans.clear();
        }
        let of = |unit: &UnitState| unit.troubled;
        Self {
            job: job.clone(),
            stage: stage.clone(),
            partitions: units.last().map_or(0, |(partition, _)| partition + 1),
            active: some(units, |unit| unit.planned.clone()),
            target: some(units, |unit| unit.target.clone()),
            replicas,
            since: some(units, |unit| unit.since),
            why: some(units, |unit| unit.why),
            from: some(units, |unit| unit.from.clone()),
            load: units.iter().map(|(_, unit)| (unit.load, unit.bytes)).collect(),
            holders,
            bans,
            troubled: units.iter().filter_map(|(partition, unit)| Some((*partition, of(unit)?))).collect(),
            handed: units
                .iter()
                .filter_map(|(partition, unit)| {
                    let (position, lineage) = unit.handed?;
                    Some((*partition, position.offset, position.row, lineage))
                })
                .collect(),
        }
    }

    fn units(self) -> Result<Vec<UnitState>, String> {
        let count = self.partitions;
        if count > MAX_PARTITIONS || self.load.len() != count as usize {
            let got = self.load.len();
            return Err(format!("load: expected {count} pairs, at most {MAX_PARTITIONS}, got {got}"));
        }
        let mut units: Vec<UnitState> = self
            .load
            .into_iter()
            .map(|(load, bytes)| UnitState { load, bytes, ..UnitState::default() })
            .collect();
        fn put<V: Clone>(
            units: &mut [UnitState],
            groups: Groups<V>,
            field: &str,
            set: impl Fn(&mut UnitState, V),
        ) -> Result<(), String> {
            for (partition, value) in ungrouped(groups, field)? {
                set(at(units, partition)?, value);
            }
            Ok(())
        }
        put(&mut units, self.active, "active", |unit, name| unit.planned = Some(name))?;
        put(&mut units, self.target, "target", |unit, name| unit.target = Some(name))?;
        put(&mut units, self.since, "since", |unit, offset| unit.since = Some(offset))?;
        put(&mut units, self.why, "why", |unit, why| unit.why = Some(why))?;
        put(&mut units, self.from, "from", |unit, name| unit.from = Some(name))?;
        for (name, partitions) in self.replicas {
            for partition in partitions {
                at(&mut units, partition)?.replicas.insert(name.clone());
            }
        }
        for (name, holders) in self.holders {
            for (partition, position, ready) in holders {
                let holder = Holder { position, ready: ready == 1 };
                at(&mut units, partition)?.holders.insert(name.clone(), holder);
            }
        }
        for (name, bans) in self.bans {
            for (partition, until) in bans {
                at(&mut units, partition)?.bans.insert(name.clone(), until);
            }
        }
        for (partition, age) in self.troubled {
            at(&mut units, partition)?.troubled = Some(age);
        }
        for (partition, offset, row, lineage) in self.handed {
            at(&mut units, partition)?.handed = Some((Position { offset, row }, lineage));
        }
        Ok(units)
    }
}

fn at(units: &mut [UnitState], partition: u32) -> Result<&mut UnitState, String> {
    let count = units.len();
    let unit = units.get_mut(partition as usize);
    unit.ok_or_else(|| format!("partition: expected one below {count}, got {partition}"))
}
