//! Membership as a fold over the control log: who is a member, which plan is in force, which node has which unit.
//!
//! [`State`] is a pure function of the records that it was given, with their offsets and append times: nodes that have
//! read equally far have equal states. So no node asks another who is a member, and nobody needs to agree on anything but
//! the order of one partition. Being wrong costs work and never a record: what a frame is worth is decided by positions.
//!
//! * [`State::apply`] takes a record and says what changed, or why the record is void (`apply`).
//! * [`Fold`] begins at the newest State record, reads messages, and compares State records with its own (`log`).
//! * [`Membership`] is the view of those who only ask (`membership`).
//!
//! Time is *log time*: the sum of the differences between append times, each at most [`LONGEST_STEP`] and none below
//! zero. So a broker whose clock is wrong by an hour moves it by seconds, and no node's clock is read.
//!
//! Invariants
//! * A void record changes nothing but the count of records, log time, and `next`.
//! * At most one incarnation of a name is a member; the last member is never silent.
//! * A unit has at most one active, and that is a member.
//! * `cut`, the place of the next State record, is a function of the log.
//! * Every collection has a bound, and a record that would exceed it is void, or replaces the entry that is worth least.
//!
//! Not here: what a plan has in it (`crate::assign`), when a node appends.

mod apply;
mod form;
mod log;
mod membership;
mod silence;

pub use apply::{Applied, Change, Void};
pub use log::{Fold, Stop, begin};
pub use membership::{Alone, Membership, Standing};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use thalweg_types::{Micros, Offset};

use crate::control::{Gap, Incarnation, Lineage, MAX_GAPS, Name, Process, Stage, Text, Unit, Why};
use crate::positions::Position;
use crate::rules::{Rule, holds};

/// Beats of the median after which a member is silent, and after which the next oldest may plan: 3 s at four a second.
pub const SILENT_BEATS: usize = 12;

/// Records after which the state is recorded.
pub const RECORDS_PER_STATE: u32 = 10_000;

/// Log time after which the state is recorded, and a plan is looked at again.
pub const STATE_EVERY: Micros = 600_000_000;

/// Log time for which a unit is not given back to a node that named it as in trouble.
pub const TROUBLE_LASTS: Micros = 60_000_000;

/// How far one record moves log time at most.
pub const LONGEST_STEP: Micros = 10_000_000;

/// The greatest offset and log time of a state that is read.
const FAR: i64 = 1 << 60;

/// Members at most; further Joins are void. As many names of former members are remembered, the youngest ones.
pub const MAX_MEMBERS: usize = 1_024;

/// Jobs at most, with those that were stopped: a Spec takes the place of the job that was stopped first, or is void.
pub const MAX_JOBS: usize = 1_024;

/// Units at most; a Spec that would exceed it is void.
pub const MAX_UNITS: usize = 16_384;

/// Bytes of the texts of all jobs at most; a Spec that would exceed it is void.
pub const MAX_TEXTS: usize = 2 << 20;

/// Nodes of which a unit remembers that they have its data; that with the oldest data is forgotten first.
pub const MAX_HOLDERS: usize = 8;

/// Nodes of which a unit remembers trouble; the oldest is forgotten first.
pub const MAX_BANS: usize = 64;

/// Events that no plan has answered yet, at most: of further ones only the newest is kept.
pub const MAX_EVENTS: usize = 64;

/// All that the log says up to an offset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The offset of the next record.
    pub(crate) next: Offset,
    /// Records of the log are of this version at most.
    pub(crate) version: u32,
    /// When the last record was appended.
    appended: Option<Micros>,
    /// Log time.
    pub(crate) age: Micros,
    /// Records since the last cut, and the log time of it.
    records: u32,
    cut_age: Micros,
    /// The offset as of which the state is recorded next, or was recorded last.
    cut: Option<Offset>,
    /// Offsets as of which the state was recorded: the newest, and the one before.
    recorded: Option<Offset>,
    recorded_before: Option<Offset>,
    /// The plan in force.
    plan: Option<Offset>,
    planned_age: Micros,
    /// Events that no plan has answered yet, oldest first.
    events: Vec<Event>,
    plan_turn: Turn,
    record_turn: Turn,
    pub(crate) members: BTreeMap<Name, Member>,
    /// Offsets at which names ceased to be members.
    gone: BTreeMap<Name, Offset>,
    pub(crate) jobs: BTreeMap<Name, Job>,
    #[serde(with = "form", rename = "stages")]
    pub(crate) units: BTreeMap<Unit, UnitState>,
}

/// Something that the next plan has to answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub at: Offset,
    pub cause: EventCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventCause {
    /// A new member has beaten.
    Member,
    /// A member has gone.
    Gone,
    /// A node is to be drained, or no longer.
    Drain,
    /// A unit is in trouble.
    Trouble,
    /// A target or a replica has caught up.
    Ready,
    /// A job has changed or stopped.
    Job,
    /// The last plan left moves for the next one, or a target had caught up before it became one.
    More,
    /// The plan is old.
    Review,
}

/// How many of the oldest members may act by now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    /// The rank of the youngest that may.
    rank: u32,
    /// Beats after this offset count for the next one.
    since: Offset,
}

/// A node, as its process said when it joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub incarnation: Incarnation,
    /// The offset of its Join.
    pub joined: Offset,
    pub host: Text,
    pub capacity: u32,
    pub address: Text,
    pub semantics: BTreeSet<u32>,
    /// The newest version of the log that it knows.
    pub newest: u32,
    /// Whether it is to have no units.
    pub drains: bool,
    /// How far it had read when it last said so.
    pub read: Offset,
    /// Whether the incarnation that it ended had beaten, or one that that one had ended.
    trusted: bool,
    /// Its last sign of life: a beat, its Join, or the last beat of the incarnation that it ended.
    heard: Offset,
    /// Its last beats, at most [`SILENT_BEATS`].
    beats: VecDeque<Offset>,
    /// Units that it named as in trouble in its last beat, of those that it has.
    #[serde(with = "crate::control::units_form")]
    trouble: BTreeSet<Unit>,
    /// Gaps that it named in its last beat, between units that there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<Gap>,
}

impl Member {
    /// Whether it has beaten since it joined.
    pub fn has_beaten(&self) -> bool {
        !self.beats.is_empty()
    }

    /// Whether it has the units that the plan in force gives to its name. One that was no member when it joined has to beat
    /// first, so that a process that fails at each start does not keep them; a quick restart does.
    pub fn keeps_units(&self) -> bool {
        self.has_beaten() || self.trusted || !holds(Rule::BeatsBeforeUnits)
    }

    /// The offset of its last beat.
    pub fn last_beat(&self) -> Option<Offset> {
        self.beats.back().copied()
    }

    /// Whether it named a unit as in trouble in its last beat.
    pub(crate) fn names_trouble(&self) -> bool {
        !self.trouble.is_empty()
    }

    /// The offset of the last record that is its own, so that a beat with a greater `read` follows it.
    fn own(&self) -> Offset {
        self.last_beat().unwrap_or(self.joined)
    }
}

/// A job, or that there was one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub number: u64,
    pub semantics: u32,
    /// The offset of its Spec or its Stop.
    pub at: Offset,
    /// Whether it was stopped: it has no stages and no text then.
    pub stopped: bool,
    pub stages: BTreeMap<Name, Stage>,
    pub text: String,
}

/// What the log says of a unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitState {
    /// The node that the plan names as its active; it may be no member any more ([`State::active`]).
    pub planned: Option<Name>,
    pub target: Option<Name>,
    pub replicas: BTreeSet<Name>,
    /// The plan that made this node the active, and why.
    pub since: Option<Offset>,
    pub why: Option<Why>,
    /// The active before, and what it has handed over.
    pub from: Option<Name>,
    pub handed: Option<(Position, Lineage)>,
    /// Rows a second and bytes of state, as its active said.
    pub load: u64,
    pub bytes: u64,
    /// Nodes that have data of it.
    pub holders: BTreeMap<Name, Holder>,
    /// Nodes that may not have it, up to this log time.
    pub bans: BTreeMap<Name, Micros>,
    /// Log time of the last event of trouble.
    troubled: Option<Micros>,
}

/// The data that a node has of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub position: Offset,
    /// It follows the log without lag.
    pub ready: bool,
}

impl State {
    /// The state before the first record.
    pub fn new() -> Self {
        Self { version: 1, ..Self::default() }
    }

    /// The offset from which on records are to be applied.
    pub fn next(&self) -> Offset {
        self.next
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    /// Log time in microseconds, from the first record on.
    pub fn log_time(&self) -> Micros {
        self.age
    }

    pub fn member(&self, name: &Name) -> Option<&Member> {
        self.members.get(name)
    }

    /// Members by name.
    pub fn members(&self) -> impl Iterator<Item = (&Name, &Member)> {
        self.members.iter()
    }

    /// Jobs that run.
    pub fn jobs(&self) -> impl Iterator<Item = (&Name, &Job)> {
        self.jobs.iter().filter(|(_, job)| !job.stopped)
    }

    /// A job, also one that was stopped.
    pub fn job(&self, name: &Name) -> Option<&Job> {
        self.jobs.get(name)
    }

    pub fn unit(&self, unit: &Unit) -> Option<&UnitState> {
        self.units.get(unit)
    }

    pub fn units(&self) -> impl Iterator<Item = (&Unit, &UnitState)> {
        self.units.iter()
    }

    /// Gaps in the inputs of units, as the nodes that have these said in their last beats, with the offsets of the beats.
    pub fn gaps(&self) -> impl Iterator<Item = (&Gap, Offset)> {
        self.members.iter().flat_map(move |(name, member)| {
            let gaps = member.gaps.iter().filter(move |gap| self.active(&gap.unit) == Some(name));
            gaps.filter_map(|gap| Some((gap, member.last_beat()?)))
        })
    }

    /// The offset of the plan in force.
    pub fn plan(&self) -> Option<Offset> {
        self.plan
    }

    /// Events that the plan in force has not answered, oldest first.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The node that has a unit: the plan names it and it is a member. Units of a node that is no member are nobody's until
    /// the next plan; if it joins again before that, it has them again from its first beat on.
    pub fn active(&self, unit: &Unit) -> Option<&Name> {
        let planned = self.units.get(unit)?.planned.as_ref()?;
        let keeps = self.members.get(planned).is_some_and(Member::keeps_units);
        (keeps || !holds(Rule::NobodysUntilPlanned)).then_some(planned)
    }

    /// The only node that may have a unit, if there is only one.
    pub fn bound_to(&self, unit: &Unit) -> Option<&Name> {
        self.jobs.get(&unit.job)?.stages.get(&unit.stage)?.node.as_ref()
    }

    /// Whether every member computes a semantic version, so that a Spec with it counts.
    pub fn all_compute(&self, semantics: u32) -> bool {
        self.members.values().all(|member| member.semantics.contains(&semantics))
    }

    /// Members that have beaten, oldest first. The first is the *leader*: it plans and records the state.
    pub fn by_age(&self) -> Vec<&Name> {
        let mut names: Vec<_> = self.members.iter().filter(|(_, member)| member.has_beaten()).collect();
        names.sort_by_key(|(_, member)| member.joined);
        names.into_iter().map(|(name, _)| name).collect()
    }

    /// Whether a process may append a plan: an event is not answered or a ban has ended, and it is the oldest member, or
    /// each older one had twelve beats of the median to do so, for this plan or for the one in force. One attempt for
    /// each plan in force is enough; a second one would be void.
    pub fn may_plan(&self, process: &Process) -> bool {
        self.is_among(&self.plan_turn, process) && (!self.events.is_empty() || self.has_ended_ban())
    }

    /// Whether a node may have a unit that it could not have when the plan in force was made. That is no event: it would
    /// be one more in the state, and nodes of an older version would have another state.
    fn has_ended_ban(&self) -> bool {
        let is_over = |unit: &UnitState| unit.bans.values().any(|until| *until <= self.age);
        self.plan.is_some() && self.units.values().any(is_over)
    }

    /// Whether a process may append the State record of the last cut.
    pub fn may_record(&self, process: &Process) -> bool {
        self.cut.is_some() && self.cut != self.recorded && self.is_among(&self.record_turn, process)
    }

    fn is_among(&self, turn: &Turn, process: &Process) -> bool {
        let me = self.members.get(&process.name);
        let is_member = me.is_some_and(|me| me.incarnation == process.incarnation && me.has_beaten());
        is_member && self.rank(&process.name) <= turn.rank
    }

    /// How many members are older, of those that have beaten.
    fn rank(&self, name: &Name) -> u32 {
        let joined = self.members.get(name).map_or(0, |member| member.joined);
        let older = self.members.values().filter(|member| member.has_beaten() && member.joined < joined);
        u32::try_from(older.count()).unwrap_or(u32::MAX)
    }

    /// Bounds that a state which was read has to keep, so that a fold that goes on from it overflows nowhere.
    pub(crate) fn check(&self) -> Result<(), String> {
        let within = |field: &str, got: u64, most: u64| {
            if got <= most { Ok(()) } else { Err(format!("{field}: expected at most {most}, got {got}")) }
        };
        let time = |field: &str, got: Micros| {
            if (0..=FAR).contains(&got) {
                Ok(())
            } else {
                Err(format!("{field}: expected 0 to {FAR}, got {got}"))
            }
        };
        within("next", self.next, FAR as u64)?;
        within("records", self.records.into(), RECORDS_PER_STATE.into())?;
        within("events", self.events.len() as u64, MAX_EVENTS as u64)?;
        within("members", self.members.len() as u64, MAX_MEMBERS as u64)?;
        within("gone", self.gone.len() as u64, MAX_MEMBERS as u64)?;
        within("jobs", self.jobs.len() as u64, MAX_JOBS as u64)?;
        for (field, got) in [("age", self.age), ("cut_age", self.cut_age), ("planned_age", self.planned_age)]
        {
            time(field, got)?;
        }
        self.members.values().try_for_each(|member| {
            within("capacity", member.capacity.into(), 1 << 20)?;
            within("gaps", member.gaps.len() as u64, MAX_GAPS as u64)?;
            within("beats", member.beats.len() as u64, SILENT_BEATS as u64)
        })?;
        self.units.values().try_for_each(|unit| {
            within("holders", unit.holders.len() as u64, MAX_HOLDERS as u64)?;
            within("bans", unit.bans.len() as u64, MAX_BANS as u64)?;
            unit.bans.values().chain(&unit.troubled).try_for_each(|age| time("bans", *age))
        })
    }

    /// The offset below which no record is needed: two State records, and all that follows them, are kept.
    pub fn keep_from(&self) -> Offset {
        self.recorded_before.unwrap_or(0)
    }
}

#[cfg(test)]
pub(crate) mod tests;
