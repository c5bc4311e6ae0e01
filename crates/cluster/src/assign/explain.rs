//! Why a unit is where it is, for an operator who asks.

use std::fmt;

use thalweg_types::{Micros, Offset};

use super::problem;
use crate::control::{Gap, Name, Unit, Why};
use crate::fold::{SILENT_BEATS, State};

/// Who has a unit, since when, why, and what would move it. `Display` says it in a few lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub unit: Unit,
    /// The node that has it, if it is a member.
    pub active: Option<Name>,
    /// The plan in force.
    pub plan: Option<Offset>,
    /// The plan since which the node has it.
    pub since: Option<Offset>,
    /// Why that plan chose the node.
    pub why: Option<Why>,
    /// The node from which it came.
    pub from: Option<Name>,
    pub replicas: Vec<Name>,
    /// Rows that it waits for, and those of its own that others wait for.
    pub gaps: Vec<Gap>,
    /// Things that would move it, soonest first.
    pub movers: Vec<Mover>,
}

/// Something that would give a unit to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mover {
    /// It is nobody's: `planned` is no member. The next plan gives it to a node, if one receives.
    NextPlan { planned: Option<Name>, planner: Option<Name> },
    /// The target takes over in the plan after it has caught up.
    CaughtUp { target: Name, position: Option<Offset>, is_ready: bool },
    /// Its node names it as in trouble; where more than half of the nodes do, nothing is moved for it.
    Trouble { name: Name, is_everywhere: bool },
    /// Its node is to be drained; it waits until few enough others move.
    Drain { name: Name },
    /// Its node does not compute the semantic version of the job.
    Semantics { name: Name, semantics: u32 },
    /// The job names the only node that may have it.
    Bound { name: Name },
    /// Nothing for now: its node keeps it until it is silent, leaves, is drained or names it as in trouble, or has more
    /// than its share.
    Keeps { name: Name },
    /// A node that may not have it before this log time, in microseconds from now.
    Banned { name: Name, left: Micros },
}

/// Explains where a unit is. `None` if no job that runs has it.
pub fn explain(state: &State, unit: &Unit) -> Option<Explanation> {
    let known = state.unit(unit)?;
    let active = state.active(unit).cloned();
    let mut movers = Vec::new();
    match (&active, state.bound_to(unit)) {
        (_, Some(name)) => movers.push(Mover::Bound { name: name.clone() }),
        (None, None) => {
            let planner = state.by_age().first().map(|name| (*name).clone());
            movers.push(Mover::NextPlan { planned: known.planned.clone(), planner });
        }
        (Some(name), None) => {
            let semantics = state.jobs.get(&unit.job).map_or(0, |job| job.semantics);
            let member = state.member(name)?;
            if !member.semantics.contains(&semantics) {
                movers.push(Mover::Semantics { name: name.clone(), semantics });
            }
            if known.bans.get(name).is_some_and(|until| *until > state.log_time()) {
                movers.push(Mover::Trouble {
                    name: name.clone(),
                    is_everywhere: problem::is_everywhere(state),
                });
            }
            if let Some(target) = &known.target {
                let holder = known.holders.get(target);
                movers.push(Mover::CaughtUp {
                    target: target.clone(),
                    position: holder.map(|holder| holder.position),
                    is_ready: holder.is_some_and(|holder| holder.ready),
                });
            } else if member.drains {
                movers.push(Mover::Drain { name: name.clone() });
            }
            if movers.is_empty() {
                movers.push(Mover::Keeps { name: name.clone() });
            }
        }
    }
    let bans = known
        .bans
        .iter()
        .filter(|(name, until)| **until > state.log_time() && Some(*name) != active.as_ref());
    movers.extend(
        bans.map(|(name, until)| Mover::Banned { name: name.clone(), left: until - state.log_time() }),
    );
    Some(Explanation {
        unit: unit.clone(),
        active,
        plan: state.plan(),
        since: known.since,
        why: known.why,
        from: known.from.clone(),
        replicas: known.replicas.iter().cloned().collect(),
        gaps: state
            .gaps()
            .map(|(gap, _)| gap)
            .filter(|gap| [&gap.unit, &gap.origin].contains(&unit))
            .cloned()
            .collect(),
        movers,
    })
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.active {
            Some(name) => write!(f, "unit {} is at {name}", self.unit)?,
            None => write!(f, "unit {} is nobody's", self.unit)?,
        }
        match (self.since, self.plan) {
            (Some(since), Some(plan)) if since != plan => {
                write!(f, " since the plan at offset {since}; the one at {plan} is in force")?;
            }
            (_, Some(plan)) => write!(f, " by the plan at offset {plan}")?,
            (_, None) => f.write_str("; there is no plan yet")?,
        }
        writeln!(f)?;
        if let Some(why) = self.why {
            write!(f, "why: {why}")?;
            if let Some(from) = &self.from {
                write!(f, "; it was at {from}")?;
            }
            writeln!(f)?;
        }
        if !self.replicas.is_empty() {
            let names: Vec<&str> = self.replicas.iter().map(Name::as_str).collect();
            writeln!(f, "replicas: {}", names.join(", "))?;
        }
        for Gap { unit, origin, through, read } in &self.gaps {
            if *unit == self.unit {
                writeln!(f, "gap: rows of {origin} after mark {through} have not come by offset {read}")?;
            } else {
                writeln!(f, "gap: {unit} has not got its rows after mark {through} by offset {read}")?;
            }
        }
        for mover in &self.movers {
            writeln!(f, "next: {mover}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mover::NextPlan { planned, planner } => {
                match planned {
                    Some(name) => write!(f, "{name} is no member; ")?,
                    None => f.write_str("no node was chosen; ")?,
                }
                match planner {
                    Some(planner) => {
                        write!(f, "the next plan, by {planner}, gives it to a node that receives units")
                    }
                    None => f.write_str("a member has to join and beat"),
                }
            }
            Mover::CaughtUp { target, is_ready: true, .. } => {
                write!(f, "{target} has caught up, and takes over with the next plan")
            }
            Mover::CaughtUp { target, position: Some(position), .. } => {
                write!(f, "{target} takes over once it has caught up; it is at offset {position}")
            }
            Mover::CaughtUp { target, position: None, .. } => {
                write!(f, "{target} takes over once it has caught up; it has reported no data yet")
            }
            Mover::Trouble { name, is_everywhere: false } => {
                write!(
                    f,
                    "{name} names it as in trouble: the next plan takes it away if another node may have it"
                )
            }
            Mover::Trouble { name, is_everywhere: true } => {
                write!(
                    f,
                    "{name} names it as in trouble, but so does more than half of the nodes: nothing is moved"
                )
            }
            Mover::Drain { name } => write!(f, "{name} is to be drained: it moves once few enough others do"),
            Mover::Semantics { name, semantics } => {
                write!(f, "{name} does not compute semantic version {semantics}: the next plan takes it away")
            }
            Mover::Bound { name } => {
                write!(f, "the job binds it to node {name}: no other one may have it")
            }
            Mover::Keeps { name } => write!(
                f,
                "{name} keeps it until {SILENT_BEATS} beats of the others come without one of it, it leaves or is drained, \
                 names the unit as in trouble, or has more than its share"
            ),
            Mover::Banned { name, left } => {
                write!(
                    f,
                    "{name} named it as in trouble and may not have it for {} s more",
                    left.div_euclid(1_000_000)
                )
            }
        }
    }
}
