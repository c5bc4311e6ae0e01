//! Newline-delimited JSON: one object a line.
//!
//! * Fields are matched by name, in any order; keys that the schema does not name are checked and ignored. Where
//!   a key is there twice the last one counts.
//! * A field named `user.id` reads the key `"user.id"` if there is one, else `{"user":{"id":…}}`.
//! * A key that is missing or null is null where the field is nullable, and a reject otherwise.
//! * Numbers for `int64`, `uint64`, `float64`, `decimal`, `timestamp` and `ipv4_int`, read from the digits as they are,
//!   decimals never through a float; `true` and `false` for `bool`; strings for every type, with the same texts as in
//!   CSV (`text.rs`). A number for a `string` is its digits as they are. Nothing else is taken for a value: no number
//!   for a `bool`, and no empty string for other types than `string`, not even where it may be null.
//! * Lines of nothing but blanks are no records. Lines end in `\n` or `\r\n`.
//! * Written compactly, one object a line, in the order of the schema: struct columns as objects, lists as
//!   arrays, timestamps as numbers of their unit, decimals, NaN and the infinities as strings.

mod array;
mod decode;
mod json;
mod split;

use std::sync::Arc;

use thalweg_types::{Batch, Error, Schema};

use self::decode::NdjsonDecoder;
use arrow_array::RecordBatch;

use self::split::NdjsonSplitter;
use super::cells::{Key, KeysOfBatch, StructCell, record_cells, write_record};
use super::times::{self, Times};
use super::{Encoder, RecordDecoder, RecordFormat, Splitter};
use crate::{FormatPlugin, OptionSpec, Options};

pub(crate) use self::array::{Array, Element};
pub(crate) use self::json::for_each_object;

/// Records as lines of JSON, one by one, whatever fields a batch has.
#[derive(Default)]
pub struct RecordLines {
    keys: KeysOfBatch,
    line: Vec<u8>,
}

impl RecordLines {
    /// Calls `each` with the line of each of these rows, without its end.
    ///
    /// # Panics
    /// On an Arrow type that no field type maps to.
    pub fn for_each(
        &mut self,
        records: &RecordBatch,
        rows: impl Iterator<Item = u32>,
        mut each: impl FnMut(u32, &[u8]),
    ) {
        let fields = record_cells(records, self.keys.of(records));
        for row in rows {
            self.line.clear();
            write_record(&fields, row as usize, &mut self.line);
            each(row, &self.line);
        }
    }
}

/// The plug-in.
pub struct Ndjson;

impl FormatPlugin for Ndjson {
    fn name(&self) -> &'static str {
        "ndjson"
    }

    fn doc(&self) -> &'static str {
        "newline-delimited JSON, one object on each line"
    }

    fn page(&self) -> &'static str {
        include_str!("page.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[times::TIME_FORMAT, times::TIME_ZONE, super::MAX_RECORD]
    }

    fn reader(&self, schema: &Schema, options: &Options) -> Result<Arc<dyn RecordFormat>, Error> {
        // Made once here, so that a schema which cannot be read is reported before the start.
        let times = Times::of(options, schema)?.into();
        let format = NdjsonFormat { schema: schema.clone(), times, max_record: super::max_record(options) };
        NdjsonDecoder::new(schema, &format.times, format.max_record)?;
        Ok(Arc::new(format))
    }

    fn encoder(&self, schema: &Schema, options: &Options) -> Result<Box<dyn Encoder>, Error> {
        if let Some(key) = times::READ_ONLY.iter().find(|key| options.get(key).is_some()) {
            return Err(Error::user(format!("format \"ndjson\" takes {key:?} only where it is read"))
                .with_hint("leave it out of the sink"));
        }
        Ok(Box::new(NdjsonEncoder::new(schema)))
    }

    fn following(&self, _: &Options) -> Option<Box<dyn Encoder>> {
        Some(Box::new(FollowingEncoder::default()))
    }
}

struct NdjsonFormat {
    schema: Schema,
    times: Arc<Times>,
    max_record: usize,
}

impl RecordFormat for NdjsonFormat {
    fn splitter(&self) -> Box<dyn Splitter> {
        Box::new(NdjsonSplitter::default())
    }

    fn decoder(&self) -> Box<dyn RecordDecoder> {
        let decoder = NdjsonDecoder::new(&self.schema, &self.times, self.max_record);
        Box::new(decoder.expect("the schema was checked when the format was made"))
    }

    fn max_record(&self) -> usize {
        self.max_record
    }

    fn block_records(&self) -> u32 {
        super::block_records(&self.schema)
    }
}

/// Batches as lines of JSON.
pub(crate) struct NdjsonEncoder {
    keys: Vec<Key>,
}

impl NdjsonEncoder {
    pub(crate) fn new(schema: &Schema) -> Self {
        Self { keys: Key::of(schema.fields()) }
    }
}

impl Encoder for NdjsonEncoder {
    fn encode(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        let fields = record_cells(batch.records(), &self.keys);
        for row in batch.row_numbers() {
            write_record(&fields, row as usize, out);
            out.push(b'\n');
        }
    }

    fn encode_row(&mut self, batch: &Batch, row: u32, out: &mut Vec<u8>) {
        write_record(&record_cells(batch.records(), &self.keys), row as usize, out);
    }

    fn encode_each(&mut self, batch: &Batch, out: &mut Vec<u8>, ends: &mut Vec<usize>) {
        write_each(&record_cells(batch.records(), &self.keys), batch, out, ends);
    }
}

/// The same where fields come and go between batches.
#[derive(Default)]
struct FollowingEncoder(KeysOfBatch);

impl Encoder for FollowingEncoder {
    fn encode(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        let fields = record_cells(batch.records(), self.0.of(batch.records()));
        for row in batch.row_numbers() {
            write_record(&fields, row as usize, out);
            out.push(b'\n');
        }
    }

    fn encode_row(&mut self, batch: &Batch, row: u32, out: &mut Vec<u8>) {
        write_record(&record_cells(batch.records(), self.0.of(batch.records())), row as usize, out);
    }

    fn encode_each(&mut self, batch: &Batch, out: &mut Vec<u8>, ends: &mut Vec<usize>) {
        write_each(&record_cells(batch.records(), self.0.of(batch.records())), batch, out, ends);
    }
}

fn write_each(fields: &[StructCell<'_>], batch: &Batch, out: &mut Vec<u8>, ends: &mut Vec<usize>) {
    for row in batch.row_numbers() {
        write_record(fields, row as usize, out);
        ends.push(out.len());
    }
}

/// Whether a line is no record.
fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}
