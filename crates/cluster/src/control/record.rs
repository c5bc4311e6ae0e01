//! The kinds of records, with their bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thalweg_types::Offset;

use super::name::{Lineage, Name, Process, Text, Unit};
use super::{MAX_GAPS, MAX_JOB_BYTES, MAX_PARTITIONS, MAX_REPLICAS, MAX_REPORTS, MAX_TROUBLE, form};
use crate::fold::State;
use crate::positions::{Mark, Position};

/// A record of the control log.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Join(Join),
    Leave(Leave),
    Drain(Drain),
    Beat(Beat),
    Plan(Plan),
    Handed(Handed),
    Spec(Spec),
    Stop(Stop),
    Version(Version),
    State(Box<StateRecord>),
}

/// A process wants to be a member, and ends earlier incarnations of its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    pub process: Process,
    /// The offset up to which the process has read the log, exclusive: it knows each Join of its name below it.
    pub read: Offset,
    /// The machine: copies of a unit are on different ones.
    pub host: Text,
    /// How much work the node takes, compared with others.
    pub capacity: u32,
    /// Where other nodes reach its HTTP interface.
    pub address: Text,
    /// Semantic versions that the binary computes.
    pub semantics: BTreeSet<u32>,
    /// The newest version of this log that the binary knows.
    pub newest: u32,
}

/// A process that has nothing left to do goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leave {
    pub process: Process,
}

/// An operator wants a node to have no units, or to have some again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    pub name: Name,
    pub on: bool,
}

/// A process lives, and says how its units are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beat {
    pub process: Process,
    /// The offset up to which the process has read the log, exclusive: it has read its last beat.
    pub read: Offset,
    /// Units whose fetch or produce has failed for 5 s, or whose position does not move while there is lag.
    #[serde(with = "form::units")]
    pub trouble: BTreeSet<Unit>,
    /// Units of which the process has data, some in each beat.
    pub reports: Vec<Report>,
    /// Units whose data the process has deleted.
    #[serde(with = "form::units")]
    pub dropped: BTreeSet<Unit>,
    /// Gaps in the inputs of units for which the process answers, at most [`MAX_GAPS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// Rows that a unit has not got from another one, while later ones came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// The unit that waits for them.
    pub unit: Unit,
    /// The unit that sent them.
    pub origin: Unit,
    /// The mark up to which all are there.
    #[serde(with = "MarkForm")]
    pub through: Mark,
    /// Where the unit is in its log: it has judged all messages below, and none of them has mended it.
    pub read: Offset,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Mark", deny_unknown_fields)]
struct MarkForm {
    #[serde(with = "PositionForm")]
    position: Position,
    made: u32,
}

/// A unit on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub unit: Unit,
    /// Rows a second, lately.
    pub load: u64,
    /// Bytes of state and chunks.
    pub bytes: u64,
    /// The message up to which its newest snapshot or its running state has come.
    pub position: Offset,
    /// Whether the node could go on as the active at once: it follows the log without lag.
    pub ready: bool,
}

/// Who has which unit, from here on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub process: Process,
    /// The offset of the plan that it replaces: it is void unless that one is in force.
    pub replaces: Option<Offset>,
    /// The offset up to which its author had read the log, exclusive: it answers all events below.
    pub read: Offset,
    /// It could have moved more units at once: another plan is to follow.
    pub more: bool,
    #[serde(with = "form::placements", rename = "stages")]
    pub units: BTreeMap<Unit, Placement>,
}

/// Where a unit is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The node that sends what the unit emits.
    pub active: Option<Name>,
    /// The node that becomes the active once it has caught up.
    pub target: Option<Name>,
    /// Nodes that follow without sending.
    pub replicas: BTreeSet<Name>,
    /// If the plan makes another node the active: why that one.
    pub why: Option<Why>,
}

/// Why a node was made the active of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Why {
    pub cause: Cause,
    pub choice: Choice,
}

/// Why the unit needed another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It had none.
    New,
    /// Its node was no member any more, or could not compute its semantic version.
    Gone,
    /// Its node had named it as in trouble.
    Trouble,
    /// Its node was to be drained.
    Drain,
    /// Its node had more than its share.
    Balance,
}

/// Why this node and no other (Gomes et al., *Railgun*, 2021, section 4.2 and figure 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// It had caught up.
    CaughtUp,
    /// It followed as a replica or a target, and had not caught up.
    Replica,
    /// It had data of an earlier time.
    Stale,
    /// It had the most budget left.
    Budget,
}

const CAUSES: [(Cause, &str); 5] = [
    (Cause::New, "new"),
    (Cause::Gone, "gone"),
    (Cause::Trouble, "trouble"),
    (Cause::Drain, "drain"),
    (Cause::Balance, "balance"),
];

const CHOICES: [(Choice, &str); 4] = [
    (Choice::CaughtUp, "caught up"),
    (Choice::Replica, "replica"),
    (Choice::Stale, "stale data"),
    (Choice::Budget, "most budget"),
];

impl fmt::Display for Why {
    /// `drain: caught up`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = CAUSES.iter().find(|(cause, _)| *cause == self.cause).map_or("", |(_, text)| text);
        let choice = CHOICES.iter().find(|(choice, _)| *choice == self.choice).map_or("", |(_, text)| text);
        write!(f, "{cause}: {choice}")
    }
}

impl Serialize for Why {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Why {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = text.split_once(": ").and_then(|(cause, choice)| {
            let (cause, _) = CAUSES.iter().find(|(_, text)| *text == cause)?;
            let (choice, _) = CHOICES.iter().find(|(_, text)| *text == choice)?;
            Some(Why { cause: *cause, choice: *choice })
        });
        known.ok_or_else(|| {
            de::Error::invalid_value(
                de::Unexpected::Str(&text),
                &"a cause and a choice, as in \"new: most budget\"",
            )
        })
    }
}

/// The former active of a unit has sent all that it will.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handed {
    pub process: Process,
    pub unit: Unit,
    /// The plan that took the unit from its author.
    pub plan: Offset,
    /// Below this position all that the unit emitted is acknowledged; the next one sends from here.
    #[serde(with = "PositionForm")]
    pub position: Position,
    pub lineage: Lineage,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Position", deny_unknown_fields)]
struct PositionForm {
    offset: Offset,
    row: u32,
}

/// A job as of a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub job: Name,
    /// Void unless it is above the number that the job has.
    pub number: u64,
    /// Version of what the engine computes.
    pub semantics: u32,
    /// Stages with the number of their partitions: a power of two, but for one that reads a topic of others.
    pub stages: BTreeMap<Name, Stage>,
    /// The text of the job, with its queries.
    pub text: String,
}

/// A keyed stage of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    pub partitions: u32,
    /// Copies of each unit that follow without sending.
    pub replicas: u32,
    /// The only node that may have its units, as what they read is there; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
}

impl Stage {
    /// A stage whose units any node may have.
    pub fn new(partitions: u32, replicas: u32) -> Self {
        Self { partitions, replicas, node: None }
    }
}

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    pub job: Name,
    /// Void unless the job has this number.
    pub number: u64,
}

/// From here on records may be of this version. Void unless all members know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    pub process: Process,
    pub to: u32,
}

/// The whole state of the fold as of an offset, so that a reader may begin there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateRecord {
    pub process: Process,
    pub state: State,
}

impl Record {
    /// The word that the record has as its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Record::Join(_) => "join",
            Record::Leave(_) => "leave",
            Record::Drain(_) => "drain",
            Record::Beat(_) => "beat",
            Record::Plan(_) => "plan",
            Record::Handed(_) => "handed",
            Record::Spec(_) => "spec",
            Record::Stop(_) => "stop",
            Record::Version(_) => "version",
            Record::State(_) => "state",
        }
    }

    /// Bounds that types do not say. Numbers are of the form `expected …, got …`.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Record::Join(join) => {
                within("capacity", join.capacity.into(), 1, 1 << 20)?;
                within("semantics", join.semantics.len() as u64, 1, 64)?;
                within("newest", join.newest.into(), 1, u32::MAX.into())
            }
            Record::Beat(beat) => {
                within("trouble", beat.trouble.len() as u64, 0, MAX_TROUBLE as u64)?;
                within("reports", beat.reports.len() as u64, 0, MAX_REPORTS as u64)?;
                within("dropped", beat.dropped.len() as u64, 0, MAX_REPORTS as u64)?;
                within("gaps", beat.gaps.len() as u64, 0, MAX_GAPS as u64)?;
                let mut seen = BTreeSet::new();
                match beat.gaps.iter().find(|gap| !seen.insert((&gap.unit, &gap.origin))) {
                    None => Ok(()),
                    Some(Gap { unit, origin, .. }) => {
                        Err(format!("gaps: expected that of {unit} with {origin} once, got it twice"))
                    }
                }
            }
            Record::Plan(plan) => plan.units.iter().try_for_each(|(unit, placement)| {
                let Placement { active, target, replicas, .. } = placement;
                within("replicas", replicas.len() as u64, 0, MAX_REPLICAS.into())?;
                let all = active.iter().chain(target).chain(replicas);
                let names: BTreeSet<&Name> = all.clone().collect();
                if names.len() < all.count() {
                    return Err(format!("unit {unit}: expected each node once, got one twice"));
                }
                Ok(())
            }),
            Record::Spec(spec) => {
                within("text", spec.text.len() as u64, 0, MAX_JOB_BYTES as u64)?;
                within("stages", spec.stages.len() as u64, 0, 64)?;
                spec.stages.values().try_for_each(|stage| {
                    within("partitions", stage.partitions.into(), 1, MAX_PARTITIONS.into())?;
                    within("replicas", stage.replicas.into(), 0, MAX_REPLICAS.into())
                })
            }
            Record::Version(version) => within("to", version.to.into(), 2, u32::MAX.into()),
            Record::State(record) => record.state.check(),
            Record::Leave(_) | Record::Drain(_) | Record::Handed(_) | Record::Stop(_) => Ok(()),
        }
    }
}

fn within(field: &str, got: u64, least: u64, most: u64) -> Result<(), String> {
    if (least..=most).contains(&got) {
        return Ok(());
    }
    Err(format!("{field}: expected {least} to {most}, got {got}"))
}
