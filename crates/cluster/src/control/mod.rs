//! The control log: one partition in which the nodes of a cluster say who they are, what runs and where.
//!
//! A record is one JSON object, so that an operator reads the log with any consumer:
//! `{"v":1,"kind":"leave","body":{"name":"alpha","incarnation":"00000000000004d2"}}`. `docs/formats/control.md` has each
//! kind with its fields.
//!
//! * [`encode`] writes a record, [`decode`] reads one.
//! * [`Record`] has the kinds; [`Name`], [`Unit`], [`Incarnation`] and [`Lineage`] are the words in them.
//!
//! A record is read strictly: a field that is missing, unknown or of another type is an error with kind and column. That
//! needs no tolerance for a rolling upgrade, because a version is raised by a record of its own ([`Version`]): until then
//! records of a newer version are void for each node alike, so it does no harm that an older one cannot read them.
//!
//! Invariants
//! * Reading any bytes ends with a record or an error, never a panic, and allocates in proportion to the bytes.
//! * A record that is written reads back equal.
//!
//! Not here: which records count (`crate::fold`), when a node appends one.

mod error;
mod form;
mod name;
mod record;

pub use error::ControlError;
pub(crate) use form::{Groups, grouped, ungrouped, units as units_form};
pub use name::{Incarnation, Lineage, Name, Process, Text, Unit};
pub use record::{
    Beat, Cause, Choice, Drain, Gap, Handed, Join, Leave, Placement, Plan, Record, Report, Spec, Stage,
    StateRecord, Stop, Version, Why,
};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

/// The newest version of the control log that this build reads and writes.
pub const NEWEST: u32 = 1;

/// Bytes that a record has at most. The topic has to take messages of this size (`max.message.bytes`), or of what they
/// are when the producer has compressed them.
pub const MAX_RECORD_BYTES: usize = 8 << 20;

/// Bytes that the text of a job has at most, as in a frame.
pub const MAX_JOB_BYTES: usize = 1 << 20;

/// Units that a beat reports on, at most; a node with more of them reports in turn.
pub const MAX_REPORTS: usize = 256;

/// Units that a beat names as in trouble, at most. A node with more names the first; the rest follow once those are
/// taken away.
pub const MAX_TROUBLE: usize = 1_024;

/// Gaps that a beat names, at most. A node with more names the first; the rest follow once those are closed.
pub const MAX_GAPS: usize = 64;

/// Partitions that a stage has at most.
pub const MAX_PARTITIONS: u32 = 4_096;

/// Copies that a unit has at most, apart from the one that sends.
pub const MAX_REPLICAS: u32 = 3;

/// A message of the log, as far as this build can read it.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    Record(Record),
    /// Of a version above [`NEWEST`].
    Newer {
        version: u32,
        kind: String,
    },
}

/// Writes a record.
///
/// # Errors
/// [`ControlError::TooLarge`] for one above [`MAX_RECORD_BYTES`], [`ControlError::Damaged`] for one that [`decode`] would
/// refuse: a text, a list or a number above its bound.
pub fn encode(record: &Record) -> Result<Vec<u8>, ControlError> {
    record.check().map_err(|problem| ControlError::damaged(record.kind(), None, problem))?;
    let bytes = match record {
        Record::Join(body) => with_head("join", body),
        Record::Leave(body) => with_head("leave", body),
        Record::Drain(body) => with_head("drain", body),
        Record::Beat(body) => with_head("beat", body),
        Record::Plan(body) => with_head("plan", body),
        Record::Handed(body) => with_head("handed", body),
        Record::Spec(body) => with_head("spec", body),
        Record::Stop(body) => with_head("stop", body),
        Record::Version(body) => with_head("version", body),
        Record::State(body) => with_head("state", body),
    };
    if bytes.len() > MAX_RECORD_BYTES {
        return Err(ControlError::TooLarge { bytes: bytes.len(), most: MAX_RECORD_BYTES });
    }
    Ok(bytes)
}

/// Reads a message of the log.
///
/// # Errors
/// [`ControlError::TooLarge`] before anything is read, [`ControlError::Damaged`] with the first mistake.
pub fn decode(bytes: &[u8]) -> Result<Decoded, ControlError> {
    if bytes.len() > MAX_RECORD_BYTES {
        return Err(ControlError::TooLarge { bytes: bytes.len(), most: MAX_RECORD_BYTES });
    }
    let Head { v, kind } =
        serde_json::from_slice(bytes).map_err(|error| ControlError::syntax("any", &error))?;
    if v > NEWEST {
        return Ok(Decoded::Newer { version: v, kind });
    }
    if v == 0 {
        return Err(ControlError::damaged(&kind, None, "version: expected 1 or more, got 0".to_owned()));
    }
    let record = match kind.as_str() {
        "join" => Record::Join(body("join", bytes)?),
        "leave" => Record::Leave(body("leave", bytes)?),
        "drain" => Record::Drain(body("drain", bytes)?),
        "beat" => Record::Beat(body("beat", bytes)?),
        "plan" => Record::Plan(body("plan", bytes)?),
        "handed" => Record::Handed(body("handed", bytes)?),
        "spec" => Record::Spec(body("spec", bytes)?),
        "stop" => Record::Stop(body("stop", bytes)?),
        "version" => Record::Version(body("version", bytes)?),
        "state" => Record::State(body("state", bytes)?),
        _ => {
            let problem = format!("kind: expected one of version {v}, got {kind:?}");
            return Err(ControlError::damaged("unknown", None, problem));
        }
    };
    record.check().map_err(|problem| ControlError::damaged(record.kind(), None, problem))?;
    Ok(Decoded::Record(record))
}

/// The part that every version keeps.
#[derive(Deserialize)]
struct Head {
    v: u32,
    kind: String,
}

#[derive(Serialize)]
struct Written<'a, T> {
    v: u32,
    kind: &'static str,
    body: &'a T,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read<T> {
    #[serde(rename = "v")]
    _v: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    body: T,
}

fn with_head<T: Serialize>(kind: &'static str, body: &T) -> Vec<u8> {
    serde_json::to_vec(&Written { v: 1, kind, body }).expect("keys are texts, and memory does not fail")
}

fn body<T: DeserializeOwned>(kind: &'static str, bytes: &[u8]) -> Result<T, ControlError> {
    let read: Read<T> = serde_json::from_slice(bytes).map_err(|error| ControlError::syntax(kind, &error))?;
    Ok(read.body)
}

#[cfg(test)]
mod tests;
