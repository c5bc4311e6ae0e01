//! Records that could not be used: each keeps its reason, its place and its raw bytes.
//!
//! They travel as batches of one schema: [`RejectsBuilder`] makes these, [`Rejects`] reads them.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, StringViewBuilder, UInt64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch, StringViewArray, UInt64Array};

use crate::{Batch, DataType, Field, Micros, Offset, Schema, Seq, SeqRange, Seqs};

/// A record that could not be used. Never dropped silently: each becomes one line in rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject<'a> {
    pub source: &'a str,
    pub offset: Offset,
    /// Line in the file, from 1, where the source has lines.
    pub line: Option<u64>,
    /// Short code for counting; ours and what to do about each are in [`reject_hint`].
    pub code: &'a str,
    /// The expected and the found value.
    pub reason: &'a str,
    pub raw: &'a [u8],
}

/// A reason with the file of its record, where the source has several.
pub fn reason_in_file<'a>(reason: &'a str, file: Option<&str>) -> Cow<'a, str> {
    match file {
        None => Cow::Borrowed(reason),
        Some(file) => Cow::Owned(format!("{reason}, in {file:?}")),
    }
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

/// Makes a batch of rejects.
#[derive(Debug, Default)]
pub struct RejectsBuilder {
    source: StringViewBuilder,
    offset: UInt64Builder,
    line: UInt64Builder,
    code: StringViewBuilder,
    reason: StringViewBuilder,
    raw: BinaryViewBuilder,
    seqs: Vec<Seq>,
    times: Vec<Micros>,
}

impl RejectsBuilder {
    /// The record has this order number and this event time; numbers ascend.
    pub fn push(&mut self, seq: Seq, time: Micros, reject: Reject<'_>) {
        let Reject { source, offset, line, code, reason, raw } = reject;
        self.source.append_value(source);
        self.offset.append_value(offset);
        self.line.append_option(line);
        self.code.append_value(code);
        self.reason.append_value(reason);
        self.raw.append_value(raw);
        self.seqs.push(seq);
        self.times.push(time);
    }

    pub fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    /// The batch, for records of this range.
    pub fn finish(mut self, range: SeqRange) -> Batch {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.source.finish()),
            Arc::new(self.offset.finish()),
            Arc::new(self.line.finish()),
            Arc::new(self.code.finish()),
            Arc::new(self.reason.finish()),
            Arc::new(self.raw.finish()),
        ];
        let records = RecordBatch::try_new(Arc::clone(rejects_schema().arrow()), columns)
            .expect("rejects have the columns of their schema");
        Batch::new(range, records, self.times.into(), Seqs::Each(self.seqs.into()))
    }
}

/// Rows of a batch of rejects.
#[derive(Clone, Copy, Debug)]
pub struct Rejects<'a> {
    source: &'a StringViewArray,
    offset: &'a UInt64Array,
    line: &'a UInt64Array,
    code: &'a StringViewArray,
    reason: &'a StringViewArray,
    raw: &'a BinaryViewArray,
}

impl<'a> Rejects<'a> {
    /// # Panics
    /// If the batch has another schema than [`rejects_schema`].
    pub fn of(batch: &'a Batch) -> Self {
        Self {
            source: batch.column(0).as_string_view(),
            offset: batch.column(1).as_primitive::<UInt64Type>(),
            line: batch.column(2).as_primitive::<UInt64Type>(),
            code: batch.column(3).as_string_view(),
            reason: batch.column(4).as_string_view(),
            raw: batch.column(5).as_binary_view(),
        }
    }

    /// A row, by its number in the columns ([`Batch::row_numbers`]).
    pub fn get(&self, row: u32) -> Reject<'a> {
        let row = row as usize;
        Reject {
            source: self.source.value(row),
            offset: self.offset.value(row),
            line: self.line.is_valid(row).then(|| self.line.value(row)),
            code: self.code.value(row),
            reason: self.reason.value(row),
            raw: self.raw.value(row),
        }
    }
}

/// A hint for the sender of a rejected record, by the reject's code. `None` for codes of sources that are
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
    fn what_is_built_is_read_again() {
        let first = Reject {
            source: "payments",
            offset: 12,
            line: Some(3),
            code: "late",
            reason: "too late",
            raw: b"\xff",
        };
        let second =
            Reject { source: "s", offset: u64::MAX, line: None, code: "parse", reason: "", raw: b"" };
        let mut builder = RejectsBuilder::default();
        assert!(builder.is_empty());
        builder.push(7, -5, first);
        builder.push(9, 10, second);
        assert!(!builder.is_empty());
        let batch = builder.finish(SeqRange::new(7, 10));
        assert_eq!((batch.seq(0), batch.seq(1), &**batch.times()), (7, 9, &[-5, 10][..]));
        assert_eq!(batch.records().schema_ref(), rejects_schema().arrow());
        let rejects = Rejects::of(&batch);
        assert_eq!([rejects.get(0), rejects.get(1)], [first, second]);
    }

    #[test]
    fn a_reason_names_the_file_of_a_source_of_several() {
        assert_eq!(reason_in_file("too late", None), "too late");
        assert_eq!(reason_in_file("too late", Some("a b.csv")), "too late, in \"a b.csv\"");
    }

    #[test]
    fn each_code_of_ours_has_one_hint() {
        for (place, (code, hint)) in HINTS.iter().enumerate() {
            assert_eq!(reject_hint(code), Some(*hint));
            assert!(HINTS[..place].iter().all(|(other, _)| other != code), "{code} twice");
        }
        assert!(reject_hint("late").is_some_and(|hint| hint.contains("lateness")));
        assert_eq!(reject_hint("checksum"), None, "a code of another source");
    }
}
