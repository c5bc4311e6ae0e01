//! Lines that an operator writes to rejects about single records.

use std::sync::Arc;

use thalweg_connect::format::Encoder;
use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin, Options};
use thalweg_flow::{Emit, Row, Set};
use thalweg_types::{Batch, Error, Schema, Seq, SeqRange, Seqs, reason_in_file, rejects_schema};

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
    line: Set<Option<u64>>,
    /// The record of the last line that has the original bytes: lines about records made of it need no second copy.
    told: Option<Seq>,
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
            line: Set::of(&schema, "line")?,
            told: None,
            from,
            output,
            inputs,
        })
    }

    /// A line about a record: `code` is the kind of failure, `reason` describes it to a person.
    pub(super) fn write(
        &mut self,
        record: Row<'_>,
        code: &str,
        reason: &str,
        emit: &mut Emit<'_>,
    ) -> Result<(), Error> {
        let seq = record.seq();
        let (source, offset) = emit.place_of(seq).unwrap_or_else(|| (Arc::clone(&self.from), 0));
        let received = emit.received(seq);
        let place = received.as_ref().and_then(|received| received.line);
        let file = received.as_ref().and_then(|received| received.file.clone());
        let reason = reason_in_file(reason, file.as_deref());
        let raw = match received.filter(|_| self.told.replace(seq) != Some(seq)) {
            Some(received) => received.bytes.to_vec(),
            None => self.as_json(record)?,
        };
        let line = emit.record(self.output).set(self.source, &source).set(self.offset, offset);
        let line = line.set(self.line, place).set(self.code, code).set(self.reason, &reason);
        line.set(self.raw, raw.as_slice()).send()
    }

    /// A record whose original bytes are unknown.
    fn as_json(&mut self, record: Row<'_>) -> Result<Vec<u8>, Error> {
        let (port, seq) = (record.port(), record.seq());
        let alone = record.alone(&self.inputs[port])?;
        let alone =
            Batch::new(SeqRange::new(seq, seq + 1), alone, vec![record.time()].into(), Seqs::Dense(seq));
        let mut raw = Vec::new();
        self.encoders[port].encode_row(&alone, 0, &mut raw);
        raw.truncate(raw.trim_ascii_end().len());
        Ok(raw)
    }
}
