//! Records in short, and a log that grows under one fold.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_types::{Micros, Offset};

use crate::control::{
    Beat, Drain, Gap, Handed, Incarnation, Join, Leave, Lineage, Name, Placement, Plan, Process, Record,
    Report, Spec, Stage, StateRecord, Stop, Text, Unit, Version, Why,
};
use crate::fold::{Applied, Fold, State, begin};
use crate::positions::{Mark, Position};

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// `alpha` is its first incarnation, `alpha2` its second.
pub(crate) fn process(text: &str) -> Process {
    let plain = text.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let incarnation = text[plain.len()..].parse().unwrap_or(1);
    Process { name: name(plain), incarnation: Incarnation(incarnation) }
}

pub(crate) fn unit(partition: u32) -> Unit {
    Unit { job: name("fraud"), stage: name("card"), partition }
}

pub(crate) fn join(who: &str, read: Offset) -> Join {
    let process = process(who);
    let host = Text::new(&format!("host of {}", process.name)).unwrap();
    let address = Text::new("10.0.0.1:8080").unwrap();
    Join { process, read, host, capacity: 1, address, semantics: BTreeSet::from([1]), newest: 1 }
}

pub(crate) fn beat(who: &str, read: Offset) -> Beat {
    let (trouble, dropped) = (BTreeSet::new(), BTreeSet::new());
    Beat { process: process(who), read, trouble, reports: Vec::new(), dropped, gaps: Vec::new() }
}

pub(crate) fn report(partition: u32, position: Offset, ready: bool) -> Report {
    Report { unit: unit(partition), load: 0, bytes: 0, position, ready }
}

/// A unit that waits for rows of another one.
pub(crate) fn gap(partition: u32, origin: u32) -> Gap {
    let position = Position { offset: 12, row: 3 };
    Gap { unit: unit(partition), origin: unit(origin), through: Mark { position, made: 1 }, read: 99 }
}

pub(crate) fn leave(who: &str) -> Record {
    Record::Leave(Leave { process: process(who) })
}

pub(crate) fn drain(who: &str, on: bool) -> Record {
    Record::Drain(Drain { name: name(who), on })
}

pub(crate) fn spec(number: u64, partitions: u32, replicas: u32) -> Spec {
    let stages = BTreeMap::from([(name("card"), Stage::new(partitions, replicas))]);
    Spec { job: name("fraud"), number, semantics: 1, stages, text: "name: fraud".to_owned() }
}

pub(crate) fn stop(number: u64) -> Record {
    Record::Stop(Stop { job: name("fraud"), number })
}

pub(crate) fn version(who: &str, to: u32) -> Record {
    Record::Version(Version { process: process(who), to })
}

/// `placed("alpha")` is a unit with an active.
pub(crate) fn placed(active: &str) -> Placement {
    Placement { active: Some(name(active)), ..Placement::default() }
}

pub(crate) fn to(active: &str, target: &str) -> Placement {
    Placement { target: Some(name(target)), ..placed(active) }
}

pub(crate) fn because(active: &str, why: Why) -> Placement {
    Placement { why: Some(why), ..placed(active) }
}

pub(crate) fn plan(who: &str, replaces: Option<Offset>, read: Offset, units: &[Placement]) -> Plan {
    let units = (0..).zip(units).map(|(partition, placement)| (unit(partition), placement.clone()));
    Plan { process: process(who), replaces, read, more: false, units: units.collect() }
}

pub(crate) fn handed(who: &str, partition: u32, plan: Offset, offset: Offset) -> Record {
    Record::Handed(Handed {
        process: process(who),
        unit: unit(partition),
        plan,
        position: Position { offset, row: 0 },
        lineage: Lineage(7),
    })
}

pub(crate) fn state(who: &str, state: &State) -> Record {
    Record::State(Box::new(StateRecord { process: process(who), state: state.clone() }))
}

/// A log with a fold that has read all of it.
pub(crate) struct Log {
    pub(crate) fold: Fold,
    pub(crate) records: Vec<(Micros, Record)>,
    pub(crate) now: Micros,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { fold: begin(0, []).unwrap(), records: Vec::new(), now: 1_764_316_800_000_000 }
    }

    /// With members, each of which has beaten once.
    pub(crate) fn with(members: &[&str]) -> Self {
        let mut log = Self::new();
        for who in members {
            log.counts(Record::Join(join(who, log.end())));
            log.beats(who, 1);
        }
        log
    }

    pub(crate) fn end(&self) -> Offset {
        self.records.len() as Offset
    }

    pub(crate) fn state(&self) -> &State {
        self.fold.state()
    }

    /// Appends a record, 10 ms after the one before.
    pub(crate) fn add(&mut self, record: Record) -> Applied {
        self.now += 10_000;
        let applied = self.fold.apply(self.end(), self.now, &record).unwrap();
        self.records.push((self.now, record));
        applied
    }

    /// Appends a record that counts; returns its offset.
    #[track_caller]
    pub(crate) fn counts(&mut self, record: Record) -> Offset {
        let applied = self.add(record);
        assert_eq!(applied.void, None);
        self.end() - 1
    }

    /// A beat that counts, of a node that has read all.
    #[track_caller]
    pub(crate) fn beat(&mut self, who: &str) -> Applied {
        let beat = beat(who, self.end());
        let applied = self.add(Record::Beat(beat));
        assert_eq!(applied.void, None);
        applied
    }

    pub(crate) fn beats(&mut self, who: &str, count: usize) {
        for _ in 0..count {
            let _ = self.beat(who);
        }
    }

    pub(crate) fn members(&self) -> Vec<String> {
        self.state().members().map(|(name, _)| name.to_string()).collect()
    }

    /// A fold that has read the same records.
    pub(crate) fn again(&self) -> Fold {
        let mut fold = begin(0, []).unwrap();
        for (offset, (appended, record)) in (0..).zip(&self.records) {
            let _ = fold.apply(offset, *appended, record).unwrap();
        }
        fold
    }
}
