//! Formats: how bytes become records, and records bytes.
//!
//! A format has three parts, so that order can be decided before anything is understood:
//! * a [`Splitter`] in the source finds where records begin and end, and counts them;
//! * a [`RecordDecoder`] in the decode tasks makes typed columns of them, and rejects;
//! * an [`Encoder`] in the sinks makes bytes of batches.
//!
//! Invariants
//! * Splitter and decoder agree on what a record is: a block that was split as `count` records decodes to
//!   exactly `count` rows and rejects, whatever its bytes.
//! * No input makes a decoder panic; a record that it cannot use becomes a reject with its place and reason.
//! * A format's decoder reads back the same values that its encoder has written (fields that it leaves out
//!   where they are null are read back as null). Records that a format has no way to write are handed back with
//!   their reason ([`Encoder::take_refused`]).
//!
//! `text.rs` says how a value of each type is written as text, the same in every text format.

pub(crate) mod base64;
pub(crate) mod cells;
mod column;
pub mod csv;
pub(crate) mod flat;
pub mod line_protocol;
pub mod lines;
pub mod ndjson;
pub mod plain;
mod quotes;
mod scan;
mod text;
pub(crate) mod times;

use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use bytes::Bytes;
use thalweg_types::{Batch, DataType, Error, Micros, Schema, format_size};

pub(crate) use self::column::{parse_hint, shorten};
pub(crate) use self::quotes::OPEN_AT_END;

use crate::{OptionKind, OptionSpec, Options};

/// The byte order mark that some programs put before UTF-8.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Bytes of the mark at the beginning of a text; `None` where more is needed to know.
fn mark_len(data: &[u8], at_end: bool) -> Option<usize> {
    match data.starts_with(BOM) {
        true => Some(BOM.len()),
        false if data.len() < BOM.len() && BOM.starts_with(data) && !at_end => None,
        false => Some(0),
    }
}

/// The option that all text formats take.
const MAX_RECORD: OptionSpec = OptionSpec {
    key: "max_record",
    kind: OptionKind::Size,
    required: false,
    default: Some("16MiB"),
    doc: "size of the largest record; a larger one is written to rejects",
};

fn max_record(options: &Options) -> usize {
    options
        .size("max_record")
        .map_or(DEFAULT_MAX_RECORD, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX).clamp(1, 1 << 30))
}

/// Longest record that a splitter waits for by default.
pub const DEFAULT_MAX_RECORD: usize = 16 << 20;

/// Raw bytes kept of a record that is too long.
const KEPT_OF_TOO_LONG: usize = 64 << 10;

/// The reject of a record that is too long: code, bytes kept, reason. The same wherever it is found out.
pub(crate) fn too_long(max_record: usize) -> (&'static str, usize, Cow<'static, str>) {
    let limit = format_size(max_record as u64);
    let reason = format!("expected a record of at most {limit}, got a longer one");
    ("too_long", max_record.min(KEPT_OF_TOO_LONG), Cow::Owned(reason))
}

/// What a stream says about itself before its records (the CSV header). Splitter and decoder of one format know
/// the type.
pub type Preamble = Arc<dyn Any + Send + Sync>;

/// A format bound to a schema and to its options.
pub trait RecordFormat: Send + Sync {
    /// A splitter for one stream: one per file, per connection, per request.
    fn splitter(&self) -> Box<dyn Splitter>;

    /// A splitter for a stream that a writer began after another one, whose preamble holds where the new one has none:
    /// a file that was emptied may have no header.
    fn splitter_after(&self, preamble: &Preamble) -> Box<dyn Splitter> {
        let _ = preamble;
        self.splitter()
    }

    /// A decoder for one task.
    fn decoder(&self) -> Box<dyn RecordDecoder>;

    /// Whether each stream opens with something that its records need (a CSV header).
    fn has_preamble(&self) -> bool {
        false
    }

    /// Longest record accepted, in bytes.
    fn max_record(&self) -> usize {
        DEFAULT_MAX_RECORD
    }

    /// How many records a block may have, by the memory that they take once they are decoded ([`block_records`]).
    fn block_records(&self) -> u32 {
        (BLOCK_DECODED / LEAST_DECODED) as u32
    }
}

/// Bytes that the records of one block may take once they are decoded, their text aside.
const BLOCK_DECODED: usize = 8 << 20;

/// Bytes that a record takes at least, as a row or, with its reason and place, as a reject.
const LEAST_DECODED: usize = 256;

/// Bytes that a row takes in addition to its columns: event time, order number, row number.
const ROW: usize = 24;

/// How many records of a schema a block may have: a record of two bytes may be a row of a hundred columns.
pub(crate) fn block_records(schema: &Schema) -> u32 {
    let row = ROW + schema.fields().iter().map(|field| width(&field.data_type)).sum::<usize>();
    u32::try_from(BLOCK_DECODED / row.max(LEAST_DECODED)).unwrap_or(u32::MAX).max(16)
}

/// Bytes that a value of a type takes in a column, with its place in the mask of nulls; text that is long has more.
fn width(data_type: &DataType) -> usize {
    match data_type {
        DataType::Bool => 1,
        DataType::Int64 | DataType::UInt64 | DataType::Float64 | DataType::Timestamp(_) => 9,
        _ => 17,
    }
}

/// The records that a splitter has found at the front of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Bytes to drop first: a byte order mark, a header.
    pub skip: usize,
    /// Line ends in the skipped bytes.
    pub skip_lines: u64,
    /// Bytes of whole records after the skipped ones, with their line ends and the blank lines among them.
    pub bytes: usize,
    /// Records in those bytes.
    pub records: u32,
    /// Line ends in those bytes.
    pub lines: u64,
    /// After those bytes comes a line that no record begins with: it must be refused.
    pub refused: Option<RefusedLine>,
    /// Those bytes end within a comment: the bytes up to the next line end belong to it and are not split again.
    pub is_in_comment: bool,
}

/// Why the first line of a record over several lines is refused, so that reading goes on after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedLine {
    /// The record is longer than it may be.
    TooLong,
    /// A quote in the line is not meant as one: the expected form and the text that was there.
    Quote(&'static str),
}

/// Finds records in the bytes of one stream.
///
/// Between two splits it remembers how the stream began, and nothing else that matters: one which was shown the
/// beginning goes on wherever another has stopped. A record ends with a line end, or with the stream.
pub trait Splitter: Send {
    /// Looks at `data`, which begins where the last split ended, after `place` bytes of the stream.
    ///
    /// With `at_end` nothing follows, and a last record needs no line end. A split of nothing means that more
    /// bytes are needed; with `at_end`, that the rest is not a whole record and never will be.
    ///
    /// # Errors
    /// Where the stream as a whole cannot be read, such as a header that lacks a field.
    fn split(&mut self, place: u64, data: &[u8], at_end: bool) -> Result<Split, Error>;

    /// The preamble, once `split` has gone past it.
    fn preamble(&self) -> Option<Preamble> {
        None
    }

    /// Whether a record that is not whole at the front of `data`, where a stream may end or go on, is not a record:
    /// lines after its first one are records.
    ///
    /// # Errors
    /// Where splitter and decoder disagree.
    fn is_stray(&mut self, place: u64, data: &[u8]) -> Result<bool, Error> {
        let _ = (place, data);
        Ok(false)
    }
}

/// A record that is no good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Number of the record in its block, from 0.
    pub index: u32,
    /// Its bytes in the block, without the line end.
    pub raw: Range<usize>,
    pub code: &'static str,
    /// The expected form and the value that was there.
    pub reason: Cow<'static, str>,
}

/// A decoded block: columns of the good records in order, and the bad ones.
#[derive(Debug)]
pub struct Columns {
    /// One per field of the schema, each with one element per good record.
    pub columns: Vec<ArrayRef>,
    pub rows: usize,
    /// Ascending by index; together with the rows there is one per record.
    pub bad: Vec<BadRecord>,
}

/// Makes columns of records.
pub trait RecordDecoder: Send {
    /// Says when the block arrived that is decoded next, for formats whose records may leave out their time.
    fn arrived(&mut self, arrival: Micros) {
        let _ = arrival;
    }

    /// Decodes a block of exactly `count` records, as a splitter cut it.
    ///
    /// # Errors
    /// Only where splitter and decoder disagree about the count: a broken invariant.
    fn decode(&mut self, data: &Bytes, count: usize, preamble: Option<&Preamble>) -> Result<Columns, Error>;

    /// The places of the records with these ascending numbers in a block, without their line ends.
    fn locate(&self, data: &[u8], indexes: &[u32]) -> Vec<Range<usize>>;
}

/// Makes bytes of batches.
pub trait Encoder: Send {
    /// The bytes before the first record, such as a header line.
    fn start(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Appends the records of a batch, each as one line.
    fn encode(&mut self, batch: &Batch, out: &mut Vec<u8>);

    /// Appends one record of a batch, by physical row, without a line end.
    fn encode_row(&mut self, batch: &Batch, row: u32, out: &mut Vec<u8>);

    /// Appends the records of a batch, each by itself without a line end, and to `ends` for each where it ends in `out`:
    /// one that is not written ends where it begins.
    fn encode_each(&mut self, batch: &Batch, out: &mut Vec<u8>, ends: &mut Vec<usize>) {
        for row in batch.row_numbers() {
            self.encode_row(batch, row, out);
            ends.push(out.len());
        }
    }

    /// The records that it has not written since this was last asked, because the format has no way to say them, in
    /// order. The format says that there may be some ([`crate::FormatPlugin::refuses`]).
    fn take_refused(&mut self) -> Vec<Unwritable> {
        Vec::new()
    }
}

/// A record that an encoder did not write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritable {
    /// Physical row of its batch.
    pub row: u32,
    /// The expected form and the value that was there.
    pub reason: String,
}

/// Line ends in a piece of text.
pub(crate) fn line_ends(data: &[u8]) -> u64 {
    scan::lines(data)
}
