//! Records that a sink's format has no way to write: they leave the sink on its only output, to rejects.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch, StringViewArray, UInt64Array, new_null_array};
use arrow_schema::DataType as ArrowType;
use thalweg_flow::Output;
use thalweg_types::{Batch, Schema, Seq, Seqs, rejects_schema};

use crate::format::ndjson::NdjsonEncoder;
use crate::format::{Encoder, Unwritable};

/// The only output of a sink.
const REJECTS: usize = 0;

/// Passes on what an encoder has refused.
pub(super) struct Refusals {
    /// Raw bytes are the record as JSON: what was received is not known here.
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
        if !refused.is_empty() {
            out.emit(REJECTS, self.rejects(batch, refused, out));
        }
        written
    }

    fn rejects(&mut self, batch: &Batch, refused: Vec<Unwritable>, out: &Output<'_>) -> Batch {
        let count = refused.len();
        let rows = || refused.iter().map(|record| record.row);
        let seqs: Arc<[Seq]> = rows().map(|row| batch.seq(row)).collect();
        let times: Vec<i64> = rows().map(|row| batch.times()[row as usize]).collect();
        let (mut sources, mut offsets, mut raws) = (Vec::new(), Vec::new(), Vec::new());
        for (row, seq) in rows().zip(&*seqs) {
            let (source, offset) = out.place_of(*seq).unwrap_or_else(|| ("".into(), *seq));
            sources.push(source);
            offsets.push(offset);
            let mut raw = Vec::new();
            self.raw.encode_row(batch, row, &mut raw);
            raws.push(raw);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringViewArray::from_iter_values(sources)),
            Arc::new(UInt64Array::from(offsets)),
            new_null_array(&ArrowType::UInt64, count),
            Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n("unwritable", count))),
            Arc::new(StringViewArray::from_iter_values(refused.into_iter().map(|record| record.reason))),
            Arc::new(BinaryViewArray::from_iter_values(raws)),
        ];
        let schema = Arc::clone(rejects_schema().arrow());
        let records =
            RecordBatch::try_new(schema, columns).expect("rejects have the columns of their schema");
        Batch::new(batch.range(), records, times.into(), Seqs::Each(seqs))
    }
}
