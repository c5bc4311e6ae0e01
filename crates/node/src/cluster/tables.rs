//! Tables whose rows are kept by units: what this node has of them, and which other nodes have the rest.
//!
//! The rows of a table that a stage fills are in the folders of its units, and go where these go. A query fixes one plan: by
//! that each unit has one active node. Rows of units that are active here are read here, and each other node is asked for
//! those of its units, by name ([`thalweg_table::Share`]). It answers if it has exactly these by the same plan; else the
//! query begins again with the newest one. So each row comes once, also while units move (cluster rules, 4: *Reads*).
//!
//! A unit has all rows in its table that the brokers had when it was asked: the inbox says which order number they have at
//! most, and the table, which ones have passed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use thalweg_cluster::control::{Name, Unit as UnitName};
use thalweg_cluster::fold::State;
use thalweg_table::{Catalog, Share, Snapshot, TableName, Tables, empty};
use thalweg_types::{Error, Offset, Retry};

use super::asked::{Asked, GLANCE, SHORT, WAIT};
use super::cut::{Cut, StageCut};
use super::host::spec_of;
use super::units::Unit;

/// What another node asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    plan: Offset,
    stage: String,
    partitions: BTreeSet<u32>,
}

impl Part {
    /// Reads `STAGE:PARTITION,PARTITION,…`.
    ///
    /// # Errors
    /// Of class user: it is something else.
    pub(super) fn parse(plan: Offset, text: &str) -> Result<Self, Error> {
        let read = || {
            let (stage, partitions) = text.split_once(':')?;
            let partitions =
                partitions.split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
            Some(Self { plan, stage: stage.to_owned(), partitions })
        };
        read().ok_or_else(|| {
            Error::user(format!("expected STAGE:PARTITION,PARTITION,…, got {text:?}"))
                .with_hint("nodes of a cluster ask each other so: clients ask without it")
        })
    }
}

/// Tables of the jobs of a cluster, as this node finds them.
pub(super) struct Gathered {
    asked: Arc<Asked>,
    /// Of units here, among others.
    running: Arc<Tables>,
    /// Where another node asks: for these rows alone.
    part: Option<Part>,
}

/// Why there is no snapshot at the moment.
enum Wanting {
    /// It may be there in a moment.
    Yet(String),
    Failed(Error),
}

impl From<Error> for Wanting {
    fn from(error: Error) -> Self {
        Wanting::Failed(error)
    }
}

impl Gathered {
    pub(super) fn new(asked: Arc<Asked>, running: Arc<Tables>, part: Option<Part>) -> Self {
        Self { asked, running, part }
    }

    /// How a job that runs is cut.
    fn cut(&self, state: &State, job: &str) -> Result<Option<(Name, Arc<Cut>)>, Error> {
        let Some((name, known)) = state.jobs().find(|(name, _)| name.as_str() == job) else {
            return Ok(None);
        };
        let cut = self.asked.texts(name, state).cut(&spec_of(known))?;
        Ok(Some((name.clone(), cut)))
    }

    /// The partitions of a stage by the nodes where they are active.
    fn places(
        &self,
        state: &State,
        job: &Name,
        stage: &StageCut,
    ) -> Result<BTreeMap<Name, BTreeSet<u32>>, Wanting> {
        let name = stage.name_in_cluster()?;
        let mut places: BTreeMap<Name, BTreeSet<u32>> = BTreeMap::new();
        for partition in 0..stage.partitions {
            let unit = UnitName { job: job.clone(), stage: name.clone(), partition };
            let Some(active) = state.active(&unit) else {
                return Err(Wanting::Yet(format!("no node has unit {unit}")));
            };
            places.entry(active.clone()).or_default().insert(partition);
        }
        Ok(places)
    }

    fn look(&self, name: &TableName, ends: &mut BTreeMap<u32, u64>) -> Result<Option<Snapshot>, Wanting> {
        let member = self.asked.member();
        let state = member.state();
        let Some((job, cut)) = self.cut(&state, &name.job)? else { return Ok(None) };
        let fills = |stage| StageCut::tables(stage).find(|(table, ..)| *table == name.table);
        let filled = cut.stages.iter().find_map(|stage| fills(stage).map(|table| (stage, table)));
        let Some((stage, (_, schema, options))) = filled else { return Ok(None) };
        let Some(plan) = state.plan() else { return Err(Wanting::Yet("no node has a plan".to_owned())) };
        if !self.asked.hears_itself() {
            return Err(Wanting::Yet("this node has not heard of itself for some seconds".to_owned()));
        }
        let mut places = self.places(&state, &job, stage)?;
        let me = &member.process().name;
        let mine = places.remove(me).unwrap_or_default();
        if let Some(part) = &self.part {
            if plan < part.plan {
                return Err(Wanting::Yet(format!("this node does not know plan {}", part.plan)));
            }
            if (plan, &*stage.name, &mine) != (part.plan, &part.stage, &part.partitions) {
                return Err(Wanting::Failed(moving(&format!(
                    "node {:?} was asked by plan {} for {} partitions of stage {:?}, and has {} of {:?} by plan {plan}",
                    me.as_str(),
                    part.plan,
                    part.partitions.len(),
                    part.stage,
                    mine.len(),
                    stage.name
                ))));
            }
        }
        let mut parts = Vec::with_capacity(mine.len());
        for partition in mine {
            parts.push(self.rows_of(&job, stage, partition, name, ends)?);
        }
        let mut whole = empty(name.clone(), schema, options)?;
        whole.unite(parts)?;
        if self.part.is_none() {
            let share = |(node, partitions): (Name, BTreeSet<u32>)| {
                let address = state.member(&node).map(|member| member.address.to_string());
                Share {
                    node: node.to_string(),
                    address: address.unwrap_or_default(),
                    plan,
                    stage: stage.name.to_string(),
                    partitions: partitions.into_iter().collect(),
                }
            };
            whole.elsewhere = places.into_iter().map(share).collect();
        }
        Ok(Some(whole))
    }

    /// What a unit here holds. `ends` are those of logs when they were first asked for.
    fn rows_of(
        &self,
        job: &Name,
        stage: &StageCut,
        partition: u32,
        name: &TableName,
        ends: &mut BTreeMap<u32, u64>,
    ) -> Result<Snapshot, Wanting> {
        let of = UnitName { job: job.clone(), stage: stage.name_in_cluster()?, partition };
        let yet = |why: &str| Wanting::Yet(format!("unit {of} {why}"));
        let unit = self.asked.unit(&of).ok_or_else(|| yet("does not run yet"))?;
        let end = match ends.get(&partition) {
            Some(end) => *end,
            None => {
                let end = self
                    .asked
                    .end_of(&of)
                    .map_err(|error| yet(&format!("has a log without an end: {error}")))?;
                ends.insert(partition, end);
                end
            }
        };
        let own = TableName { job: stage.unit_name(partition).to_string(), table: name.table.clone() };
        if !self.has_rows(&unit, end, &own) {
            return Err(yet("has not read all of its log"));
        }
        let rows = self.running.snapshot(&own)?.ok_or_else(|| yet("has not opened the table"))?;
        // Numbers of another life of it would say nothing.
        if unit.job.state().is_final() { Err(yet("has ended")) } else { Ok(rows) }
    }

    /// Whether the table of a unit has all rows of its log up to there, within a moment.
    fn has_rows(&self, unit: &Unit, end: u64, table: &TableName) -> bool {
        let has = || {
            unit.counts.told.load(Ordering::Acquire) >= end
                && self.running.reached(table) >= Some(unit.counts.sequenced.load(Ordering::Acquire))
        };
        let since = Instant::now();
        while !has() {
            if since.elapsed() > GLANCE || unit.job.state().is_final() {
                return false;
            }
            std::thread::sleep(SHORT);
        }
        true
    }
}

/// The error for rows that are on their way from one node to another.
fn moving(what: &str) -> Error {
    Error::external(what.to_owned())
        .with_retry(Retry::WithBackoff)
        .with_hint("ask again: units move from one node to another")
}

impl Catalog for Gathered {
    fn tables(&self) -> Result<Vec<TableName>, Error> {
        let state = self.asked.member().state();
        let mut tables = Vec::new();
        for (name, known) in state.jobs() {
            let cut = self.asked.texts(name, &state).cut(&spec_of(known))?;
            let of_stage = |stage: &StageCut| {
                let names = stage.tables().map(|(table, ..)| table.to_owned());
                names.map(|table| TableName { job: name.to_string(), table }).collect::<Vec<_>>()
            };
            tables.extend(cut.stages.iter().flat_map(of_stage));
        }
        tables.sort();
        Ok(tables)
    }

    fn snapshot(&self, name: &TableName) -> Result<Option<Snapshot>, Error> {
        let since = Instant::now();
        let mut ends = BTreeMap::new();
        loop {
            match self.look(name, &mut ends) {
                Ok(found) => return Ok(found),
                Err(Wanting::Failed(error)) => return Err(error),
                Err(Wanting::Yet(why)) if since.elapsed() > WAIT => {
                    return Err(moving(&format!("table {name} cannot be read at the moment: {why}")));
                }
                Err(Wanting::Yet(_)) => std::thread::sleep(GLANCE),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_names_its_stage_and_partitions() {
        let part = Part::parse(7, "features-2:0,5,63").unwrap();
        assert_eq!((part.plan, &*part.stage), (7, "features-2"));
        assert_eq!(part.partitions, BTreeSet::from([0, 5, 63]));
        for text in ["", "features", "features:", "features:1,", "features:-1", "features:x"] {
            let error = Part::parse(7, text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
