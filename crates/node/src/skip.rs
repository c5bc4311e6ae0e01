//! `--skip SOURCE@OFFSET`: the record that stops a job goes to rejects instead of through the job.
//!
//! The record is taken out where its block is decoded, so no later stage sees it; its reject carries it as it
//! came, or as a line of JSON where its source has no bytes of its records. A record that never was one (the decoder
//! refused it) stays the reject that it is.
//!
//! Not here: a record that the decoder itself panics at, which is passed to the decoder (`SourceContext::skip`).

use std::sync::Arc;

use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin, Options};
use thalweg_flow::{Decoded, Decoder, FindReceived, Payload, RawBlock, TaskFactory};
use thalweg_types::{
    Batch, Error, Micros, Offset, Reject, RejectsBuilder, Schema, Seq, SeqRange, reason_in_file,
    rejects_schema,
};

/// One record to leave out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    pub source: String,
    pub offset: Offset,
}

impl std::str::FromStr for Skip {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('@').and_then(|(source, offset)| Some((source, offset.parse().ok()?)));
        match parts {
            Some((source, offset)) if !source.is_empty() => Ok(Self { source: source.to_owned(), offset }),
            _ => Err(format!("expected SOURCE@OFFSET, such as payments@1234, got {text:?}")),
        }
    }
}

/// Decoders that leave these records out.
pub(crate) fn skipping(
    inner: TaskFactory<dyn Decoder>,
    source: Arc<str>,
    offsets: Vec<Offset>,
    schemas: Vec<Schema>,
) -> TaskFactory<dyn Decoder> {
    let offsets: Arc<[Offset]> = offsets.into();
    let schemas: Arc<[Schema]> = schemas.into();
    Box::new(move |info| {
        Ok(Box::new(SkippingDecoder {
            inner: inner(info)?,
            source: Arc::clone(&source),
            offsets: Arc::clone(&offsets),
            schemas: Arc::clone(&schemas),
        }))
    })
}

struct SkippingDecoder {
    inner: Box<dyn Decoder>,
    source: Arc<str>,
    offsets: Arc<[Offset]>,
    /// Of each kind of records.
    schemas: Arc<[Schema]>,
}

impl Decoder for SkippingDecoder {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, arrival: Micros) -> Result<Decoded, Error> {
        let decoded = self.inner.decode(block, range, arrival)?;
        let end = block.first + u64::from(block.count);
        let seqs: Vec<Seq> = self
            .offsets
            .iter()
            .filter(|offset| (block.first..end).contains(offset))
            .map(|offset| range.start + (offset - block.first))
            .collect();
        if seqs.is_empty() {
            return Ok(decoded);
        }
        let find = self.inner.find_received();
        let received = find.as_ref().map(|find| (find.places(block), find.first_line(block)));
        let mut lines: Vec<Left> = Vec::new();
        let mut without = |records: Batch, schema: &Schema| {
            let (skipped, kept): (Vec<u32>, Vec<u32>) =
                records.row_numbers().partition(|row| seqs.contains(&records.seq(*row)));
            if skipped.is_empty() {
                return records;
            }
            lines.extend(skipped.iter().map(|row| {
                let seq = records.seq(*row);
                let index = seq - range.start;
                let place = received.as_ref().and_then(|(places, first)| {
                    let place = usize::try_from(index).ok().and_then(|index| places.get(index))?;
                    let Payload::Bytes { data, .. } = &block.payload else { return None };
                    let raw = data.get(place.start..place.end)?;
                    Some((first.map(|first| first + place.lines), raw.to_vec()))
                });
                let (line, raw) = place.unwrap_or_else(|| (None, as_json(&records, *row, schema)));
                let file = find.as_ref().and_then(|find| find.file(block, u32::try_from(index).ok()?));
                Left { seq, offset: block.first + index, line, file, raw }
            }));
            records.with_rows(kept.into())
        };
        let records = without(decoded.records, &self.schemas[0]);
        let others = decoded.others.into_iter().zip(&self.schemas[1..]);
        let others = others.map(|(records, schema)| without(records, schema)).collect();
        if lines.is_empty() {
            return Ok(Decoded { records, rejects: decoded.rejects, others });
        }
        lines.sort_by_key(|left| left.seq);
        let rejects = merge(&self.source, range, arrival, decoded.rejects.as_ref(), lines)?;
        Ok(Decoded { records, rejects: Some(rejects), others })
    }

    fn working_on(&self) -> Option<Seq> {
        self.inner.working_on()
    }

    fn find_received(&self) -> Option<Arc<dyn FindReceived>> {
        self.inner.find_received()
    }
}

/// A record that is left out.
struct Left {
    seq: Seq,
    offset: Offset,
    line: Option<u64>,
    /// The file, where the source has several.
    file: Option<Arc<str>>,
    raw: Vec<u8>,
}

fn as_json(batch: &Batch, row: u32, schema: &Schema) -> Vec<u8> {
    let mut line = Vec::new();
    if let Ok(mut encoder) = Ndjson.encoder(schema, &Options::default()) {
        encoder.encode_row(batch, row, &mut line);
    }
    line
}

/// The rejects of the block with the skipped records among them, in order.
fn merge(
    source: &str,
    range: SeqRange,
    arrival: Micros,
    rejects: Option<&Batch>,
    skipped: Vec<Left>,
) -> Result<Batch, Error> {
    let mut built = RejectsBuilder::default();
    for Left { seq, offset, line, file, raw } in &skipped {
        let reason = format!("left out by --skip {source}@{offset}");
        let reason = reason_in_file(&reason, file.as_deref());
        let reject = Reject { source, offset: *offset, line: *line, code: "skipped", reason: &reason, raw };
        built.push(*seq, arrival, reject);
    }
    let skipped = built.finish(range);
    match rejects {
        Some(rejects) => crate::operator::union::merge(range, &[rejects.clone(), skipped], &rejects_schema()),
        None => Ok(skipped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_source_and_an_offset() {
        assert_eq!("payments@17".parse(), Ok(Skip { source: "payments".to_owned(), offset: 17 }));
        for text in ["payments", "payments@", "@17", "payments@-1", "payments@x"] {
            assert!(text.parse::<Skip>().is_err(), "{text}");
        }
    }
}
