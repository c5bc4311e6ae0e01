//! What the rest of a node asks of membership, whatever decides it.

use std::collections::BTreeSet;

use thalweg_types::Offset;

use super::State;
use crate::control::{Incarnation, Name, Process, Unit};

/// Who is there, and who has which unit.
///
/// Answers are hints about who *should* work: two nodes may have read the log to different places. What counts is decided
/// by positions.
pub trait Membership {
    /// How a process is seen that began when the log ended at an offset: a later Join of its name by another process ends
    /// it, whether or not it has joined itself.
    fn standing(&self, process: &Process, began: Offset) -> Standing;

    /// The plan by which questions are answered, for answers that name it.
    fn plan(&self) -> Option<Offset>;

    /// The node that has a unit, if one has.
    fn active(&self, unit: &Unit) -> Option<&Name>;

    /// Units that a node is to work on and send for.
    fn active_units(&self, name: &Name) -> BTreeSet<Unit>;

    /// Units that a node is to follow without sending.
    fn followed_units(&self, name: &Name) -> BTreeSet<Unit>;
}

/// How the log sees a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Member,
    /// It has not joined, or was silent since, or has left: it may join, with the same incarnation.
    Outside,
    /// A younger process has its name: it exits with code 2.
    Ended {
        by: Incarnation,
    },
}

impl Membership for State {
    fn standing(&self, process: &Process, began: Offset) -> Standing {
        match self.member(&process.name) {
            Some(member) if member.incarnation == process.incarnation => Standing::Member,
            Some(member) if began <= member.joined => Standing::Ended { by: member.incarnation },
            _ => Standing::Outside,
        }
    }

    fn plan(&self) -> Option<Offset> {
        State::plan(self)
    }

    fn active(&self, unit: &Unit) -> Option<&Name> {
        State::active(self, unit)
    }

    fn active_units(&self, name: &Name) -> BTreeSet<Unit> {
        let units = self.units().filter(|(unit, _)| self.active(unit) == Some(name));
        units.map(|(unit, _)| unit.clone()).collect()
    }

    fn followed_units(&self, name: &Name) -> BTreeSet<Unit> {
        let follows =
            |state: &super::UnitState| state.target.as_ref() == Some(name) || state.replicas.contains(name);
        self.units().filter(|(_, state)| follows(state)).map(|(unit, _)| unit.clone()).collect()
    }
}

/// One process without others and without a log: it has all units.
#[derive(Clone, Debug)]
pub struct Alone {
    process: Process,
    units: BTreeSet<Unit>,
}

impl Alone {
    pub fn new(process: Process, units: BTreeSet<Unit>) -> Self {
        Self { process, units }
    }
}

impl Membership for Alone {
    fn standing(&self, process: &Process, _: Offset) -> Standing {
        if *process == self.process { Standing::Member } else { Standing::Outside }
    }

    fn plan(&self) -> Option<Offset> {
        None
    }

    fn active(&self, unit: &Unit) -> Option<&Name> {
        self.units.contains(unit).then_some(&self.process.name)
    }

    fn active_units(&self, name: &Name) -> BTreeSet<Unit> {
        if *name == self.process.name { self.units.clone() } else { BTreeSet::new() }
    }

    fn followed_units(&self, _: &Name) -> BTreeSet<Unit> {
        BTreeSet::new()
    }
}
