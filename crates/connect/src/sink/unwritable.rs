//! Records that a sink's format has no way to write: they leave the sink on its only output, to rejects.

use thalweg_flow::Output;
use thalweg_types::{Batch, Reject, RejectsBuilder, Schema};

use crate::format::ndjson::NdjsonEncoder;
use crate::format::{Encoder, Unwritable};

/// The only output of a sink.
const REJECTS: usize = 0;

/// Passes on the records that an encoder has refused.
pub(super) struct Refusals {
    /// Raw bytes are the record as JSON: the received bytes are not known here.
    raw: NdjsonEncoder,
}

impl Refusals {
    pub(super) fn new(schema: &Schema) -> Self {
        Self { raw: NdjsonEncoder::new(schema) }
    }

    /// Encodes a batch, and says how many of its records were written.
    pub(super) fn encode(
        &mut self,
        batch: &Batch,
        encoder: &mut dyn Encoder,
        text: &mut Vec<u8>,
        out: &mut Output<'_>,
    ) -> u64 {
        encoder.encode(batch, text);
        let refused = encoder.take_refused();
        let written = (batch.len() - refused.len()) as u64;
        self.pass_on(batch, refused, out);
        written
    }

    /// Emits records of a batch that were refused.
    pub(super) fn pass_on(&mut self, batch: &Batch, refused: Vec<Unwritable>, out: &mut Output<'_>) {
        if !refused.is_empty() {
            out.emit(REJECTS, self.rejects(batch, refused, out));
        }
    }

    fn rejects(&mut self, batch: &Batch, refused: Vec<Unwritable>, out: &Output<'_>) -> Batch {
        let mut rejects = RejectsBuilder::default();
        let mut raw = Vec::new();
        for Unwritable { row, reason } in refused {
            let seq = batch.seq(row);
            let (source, offset) = out.place_of(seq).unwrap_or_else(|| ("".into(), 0));
            raw.clear();
            self.raw.encode_row(batch, row, &mut raw);
            let reject = Reject {
                source: &source,
                offset,
                line: None,
                code: "unwritable",
                reason: &reason,
                raw: &raw,
            };
            rejects.push(seq, batch.times()[row as usize], reject);
        }
        rejects.finish(batch.range())
    }
}
