//! Which node has which unit: the plan that answers a state.
//!
//! [`propose`] is a pure function, so any node that may plan would propose the same. It keeps what is there, and takes
//! each unit through these steps, as the strategy of *Railgun* does (Gomes et al., 2021, section 4.2 and figure 7):
//!
//! 1. Its node keeps it, unless that is no member, names it as in trouble, or cannot compute it. A target that has caught up
//!    takes over.
//! 2. A unit without a node goes at once to a node that has caught up, then to one that follows it, then to the one with
//!    the newest stale data, each if its budget allows it, and else to the node with the most budget left.
//! 3. Units of nodes to be drained, and of nodes with much more than their share, get a *target*: it follows, and takes over
//!    in a later plan once it has caught up. Few do so at once.
//! 4. Replicas are kept and filled up in the same order of preference.
//!
//! What is ours and not that strategy's: budgets count load, bytes of state and capacity rather than tasks alone; a node
//! above its budget keeps its units until another one has caught up; moves are few at once.
//!
//! Invariants
//! * A unit has at most one active; it and its replicas are on different hosts. (A target may share the host with the
//!   active that it replaces: they are one copy that moves.)
//! * A unit that is bound to a node is there or nowhere.
//! * A node to be drained, or that has not beaten since it joined, receives nothing; the latter keeps its own. Where all
//!   are to be drained, none is.
//! * When nodes join, units move to them alone; when a node leaves, its units alone move, and others only as far as
//!   shares are uneven.
//! * In the end, but for units that are bound, no node has more above its budget than any other one by more than a unit and [`Settings::tolerance`].
//!
//! Not here: when a plan is made (`crate::fold`), how a unit moves.

mod explain;
mod problem;
mod solve;

pub use explain::{Explanation, Mover, explain};

use std::collections::BTreeMap;

use crate::control::{Placement, Plan, Process, Unit};
use crate::fold::State;

/// How careful a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Units that move at once, in the whole cluster.
    pub at_once: usize,
    /// Units that one node catches up with at once.
    pub into: usize,
    /// Units that one node gives away at once.
    pub out_of: usize,
    /// Shares may differ by this part of the mean budget, 1/16 for 16, and by a unit.
    pub tolerance: u32,
}

impl Default for Settings {
    /// At two at once a node that joins is not busy with copying alone, and an eighth of 256 units on the move is few.
    fn default() -> Self {
        Self { at_once: 32, into: 2, out_of: 4, tolerance: 16 }
    }
}

/// The plan by which a process answers all events of a state ([`State::events`]); it replaces the one in force there.
///
/// A plan that changes nothing is worth its record: it says that the events were looked at.
pub fn propose(state: &State, process: &Process, settings: &Settings) -> Plan {
    let problem = problem::Problem::of(state);
    let (choices, more) = solve::solve(&problem, settings);
    let name = |node: usize| problem.nodes[node].name.clone();
    let placements = state.units.keys().zip(choices).map(|(unit, choice)| {
        let placement = Placement {
            active: choice.active.map(name),
            target: choice.target.map(name),
            replicas: choice.replicas.into_iter().map(name).collect(),
            why: choice.why,
        };
        (unit.clone(), placement)
    });
    let units: BTreeMap<Unit, Placement> = placements.collect();
    Plan { process: process.clone(), replaces: state.plan(), read: state.next(), more, units }
}

#[cfg(test)]
mod tests;
