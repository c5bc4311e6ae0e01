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
    /// Short code for counting, such as `parse`, `late`, `ahead`.
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
