//! Records that could not be used: each keeps its reason, its place and its raw bytes.

use crate::{DataType, Field, Offset, Schema};

/// Where in its source a rejected record stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectPlace {
    pub source: String,
    pub offset: Offset,
    /// Line in the file, from 1, where the source has lines.
    pub line: Option<u64>,
}

/// A record that could not be used. Never dropped silently: each becomes one line in rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    pub place: RejectPlace,
    /// Short code for counting; ours and what to do about each are in [`reject_hint`].
    pub code: &'static str,
    /// What was expected and what was there.
    pub reason: String,
    pub raw: Vec<u8>,
}

/// The stream that rejects travel in: `source, offset, line, code, reason, raw`.
pub fn rejects_schema() -> Schema {
    Schema::new(vec![
        Field::new("source", DataType::String),
        Field::new("offset", DataType::UInt64),
        Field::new("line", DataType::UInt64).nullable(),
        Field::new("code", DataType::String),
        Field::new("reason", DataType::String),
        Field::new("raw", DataType::Bytes),
    ])
}

/// What whoever sent a rejected record can do about it, by the reject's code. `None` for codes of sources that are
/// not ours.
pub fn reject_hint(code: &str) -> Option<&'static str> {
    HINTS.iter().find(|(known, _)| *known == code).map(|(_, hint)| *hint)
}

/// Every code that is ours.
const HINTS: [(&str, &str); 11] = [
    (
        "parse",
        "mend the record; where it is right, change the source's `schema`: a trailing `?` makes a field nullable",
    ),
    ("netflow", "let the device export sFlow version 5 to this port, and NetFlow to a collector of its own"),
    ("sflow_version", "let the agent export version 5"),
    (
        "malformed",
        "look at the datagram with tshark; where an agent sends many of these, its software is to be updated",
    ),
    ("too_long", "send smaller records, or raise `max_record` of the source"),
    (
        "unfinished",
        "end each record soon after its beginning; `idle` of the source says how long a sender may pause, and `queue` what \
         all unfinished records may take together",
    ),
    (
        "time",
        "give each record an event time in the unit that `schema` says; a source without `time` takes the arrival",
    ),
    (
        "ahead",
        "check the sender's clock and the unit of its times; `max_ahead` of the source allows for more",
    ),
    (
        "late",
        "send records nearer to their order in time, raise `lateness` of the source, or take late ones as of now with \
         `late: clamp`",
    ),
    ("skipped", "run the job without `--skip` for this record to have it taken again"),
    (
        "no_answer",
        "an operator left the record out, as a filter does: `reply` of the source names who answers",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_of_ours_has_one_hint() {
        for (place, (code, hint)) in HINTS.iter().enumerate() {
            assert_eq!(reject_hint(code), Some(*hint));
            assert!(HINTS[..place].iter().all(|(other, _)| other != code), "{code} twice");
        }
        assert!(reject_hint("late").is_some_and(|hint| hint.contains("lateness")));
        assert_eq!(reject_hint("checksum"), None, "a code of somebody else's");
    }
}
