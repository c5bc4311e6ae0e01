//! Lines that an operator writes to rejects about single records.

use std::sync::Arc;

use thalweg_connect::format::Encoder;
use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin, Options};
use thalweg_flow::{Emit, Row, Set};
use thalweg_types::{Batch, Error, Schema, SeqRange, Seqs, rejects_schema};

pub(super) struct RejectLines {
    /// The operators among the inputs: whom a record comes from that no source has.
    from: Arc<str>,
    /// The output for rejects.
    output: usize,
    inputs: Vec<Schema>,
    /// Of the raw text, by input.
    encoders: Vec<Box<dyn Encoder>>,
    source: Set<String>,
    offset: Set<u64>,
    code: Set<String>,
    reason: Set<String>,
    raw: Set<Vec<u8>>,
}

impl RejectLines {
    /// # Errors
    /// If an input has no form as JSON.
    pub(super) fn new(from: Arc<str>, output: usize, inputs: Vec<Schema>) -> Result<Self, Error> {
        let encoders = inputs.iter().map(|input| Ndjson.encoder(input, &Options::default()));
        let schema = rejects_schema();
        Ok(Self {
            encoders: encoders.collect::<Result<_, _>>()?,
            source: Set::of(&schema, "source")?,
            offset: Set::of(&schema, "offset")?,
            code: Set::of(&schema, "code")?,
            reason: Set::of(&schema, "reason")?,
            raw: Set::of(&schema, "raw")?,
            from,
            output,
            inputs,
        })
    }

    /// A line about a record: `code` is the kind of what is wrong with it, `reason` says it to a person.
    pub(super) fn write(
        &mut self,
        record: Row<'_>,
        code: &str,
        reason: &str,
        emit: &mut Emit<'_>,
    ) -> Result<(), Error> {
        let (port, seq) = (record.port(), record.seq());
        let alone = record.alone(&self.inputs[port])?;
        let (source, offset) = emit.place_of(seq).unwrap_or_else(|| (Arc::clone(&self.from), seq));
        let alone =
            Batch::new(SeqRange::new(seq, seq + 1), alone, vec![record.time()].into(), Seqs::Dense(seq));
        let mut raw = Vec::new();
        self.encoders[port].encode_row(&alone, 0, &mut raw);
        let line = emit.record(self.output).set(self.source, &source).set(self.offset, offset);
        line.set(self.code, code).set(self.reason, reason).set(self.raw, raw.trim_ascii_end()).send()
    }
}
