//! Rejects of elements: a line for each late record that is not taken.

use std::sync::Arc;

use arrow_array::Array;
use thalweg_connect::format::Encoder;
use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin, Options};
use thalweg_flow::{Emit, InputRules, LateRecords, Row, Set};
use thalweg_types::{Batch, Error, Schema, SeqRange, Seqs, rejects_schema};

use crate::metrics::late_reason;

/// What the lines of an operator's tasks have in common.
pub(super) struct LateLines {
    pub(super) operator: Arc<str>,
    /// The operators among the inputs: whom a record comes from that no source has.
    pub(super) from: Arc<str>,
    /// The output for rejects, the last one.
    pub(super) output: usize,
    pub(super) inputs: Vec<Schema>,
    pub(super) rules: Vec<InputRules>,
    /// By input, the field that says of a record that it was late further up, and has a line.
    pub(super) told: Vec<Option<usize>>,
}

impl LateLines {
    pub(super) fn writer(self: &Arc<Self>) -> Result<Box<dyn LateRecords>, Error> {
        let encoders = self.inputs.iter().map(|input| Ndjson.encoder(input, &Options::default()));
        let schema = rejects_schema();
        Ok(Box::new(Writer {
            encoders: encoders.collect::<Result<_, _>>()?,
            source: Set::of(&schema, "source")?,
            offset: Set::of(&schema, "offset")?,
            code: Set::of(&schema, "code")?,
            reason: Set::of(&schema, "reason")?,
            raw: Set::of(&schema, "raw")?,
            lines: Arc::clone(self),
        }))
    }
}

struct Writer {
    lines: Arc<LateLines>,
    /// Of the raw text, by input.
    encoders: Vec<Box<dyn Encoder>>,
    source: Set<String>,
    offset: Set<u64>,
    code: Set<String>,
    reason: Set<String>,
    raw: Set<Vec<u8>>,
}

impl LateRecords for Writer {
    fn refuse(&mut self, record: Row<'_>, is_closed: bool, emit: &mut Emit<'_>) -> Result<(), Error> {
        let (lines, port) = (&self.lines, record.port());
        let alone = record.alone(&lines.inputs[port])?;
        if lines.told[port].is_some_and(|place| alone.column(place).is_valid(0)) {
            return Ok(());
        }
        let seq = record.seq();
        let (source, offset) = emit.place_of(seq).unwrap_or_else(|| (Arc::clone(&lines.from), seq));
        let reason = late_reason(lines.rules[port].lateness, is_closed, record.time(), &lines.operator);
        let alone =
            Batch::new(SeqRange::new(seq, seq + 1), alone, vec![record.time()].into(), Seqs::Dense(seq));
        let mut raw = Vec::new();
        self.encoders[port].encode_row(&alone, 0, &mut raw);
        let line = emit.record(lines.output).set(self.source, &source).set(self.offset, offset);
        let line = line.set(self.code, "late").set(self.reason, &reason);
        line.set(self.raw, raw.trim_ascii_end()).send()
    }
}
