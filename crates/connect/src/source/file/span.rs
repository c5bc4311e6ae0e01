//! From when to when the records of a file are, as far as its beginning and its end say: for `thalweg check`.
//!
//! Of a file [`LOOK`] bytes are read at each end. A packed file would have to be unpacked to its end, so only its
//! beginning is known.

use std::sync::Arc;

use thalweg_flow::{Decoder, RawBlock};
use thalweg_types::{Error, Micros, SeqRange};

use super::super::cut::{CutPlace, Cutter};
use super::one;
use crate::format::RecordFormat;
use crate::{InputSpan, JobPath};

/// Bytes that are looked at.
const LOOK: u64 = 64 << 10;

/// How the files of one source are read.
pub(super) struct Looker<'a> {
    pub(super) format: &'a Arc<dyn RecordFormat>,
    pub(super) decoder: Box<dyn Decoder>,
    /// Counts as the arrival of all records.
    pub(super) now: Micros,
}

impl Looker<'_> {
    /// `None` where no record is found.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub(super) fn look(&mut self, path: &JobPath) -> Result<Option<InputSpan>, Error> {
        let (input, metadata) = one::open(path)?;
        let reading = |error| Error::external(format!("read {path:?}")).with_source(error);
        let contents = input.contents();
        let begin = contents.bytes_at(0, LOOK).map_err(reading)?;
        let is_all = (begin.len() as u64) < LOOK;
        let mut cutter = Cutter::new(&**self.format);
        cutter.buffer().extend_from_slice(&begin);
        let Some((first, last)) = self.times(&mut cutter, is_all)? else { return Ok(None) };
        let mut span = InputSpan { name: path.display().to_string(), first, last: Some(last) };
        if is_all {
            return Ok(Some(span));
        }
        if input.is_packed() {
            return Ok(Some(InputSpan { last: None, ..span }));
        }
        let byte = metadata.len().saturating_sub(LOOK);
        let end = contents.bytes_at(byte, LOOK).map_err(reading)?;
        let mut cutter = Cutter::new(&**self.format);
        // The line in which it begins is no record.
        cutter.resume(CutPlace { byte, lines: 0, is_skipping: true }, &begin)?;
        cutter.buffer().extend_from_slice(&end);
        if let Some((_, newest)) = self.times(&mut cutter, true)? {
            span.last = Some(last.max(newest));
        }
        Ok(Some(span))
    }

    /// The least and the greatest event time of the records in the buffer.
    fn times(&mut self, cutter: &mut Cutter, is_end: bool) -> Result<Option<(Micros, Micros)>, Error> {
        let mut span: Option<(Micros, Micros)> = None;
        while let Some(cut) = cutter.next(is_end)? {
            let count = cut.count;
            let block = RawBlock { partition: 0, first: 0, count, payload: cut.into_payload() };
            let decoded = self.decoder.decode(&block, SeqRange::new(0, u64::from(count)), self.now)?;
            for time in decoded.records.times().iter().copied() {
                let (first, last) = span.unwrap_or((time, time));
                span = Some((first.min(time), last.max(time)));
            }
        }
        Ok(span)
    }
}
