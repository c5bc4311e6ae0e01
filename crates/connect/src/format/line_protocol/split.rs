//! Where points begin and end in a stream.

use std::sync::Arc;

use thalweg_types::Error;

use super::super::quotes::{After, Ahead, Grammar, Judge, Verdict};
use super::super::{RecordFormat as _, Split, Splitter, mark_len, scan};
use super::LineProtocolFormat;
use super::grammar::{Start, after, is_alone, next_start};

pub(super) struct LineProtocolSplitter {
    format: Arc<LineProtocolFormat>,
    is_past_start: bool,
    judge: Option<Judge>,
}

impl LineProtocolSplitter {
    pub(super) fn new(format: Arc<LineProtocolFormat>) -> Self {
        Self { format, is_past_start: false, judge: None }
    }

    /// The judge, which is made when it is wanted first. A text hardly has a line that reads as a point.
    fn judge(&mut self) -> &mut Judge {
        let format = &self.format;
        self.judge
            .get_or_insert_with(|| Judge::new(format.decoder(), format.max_record, format.max_lines, true))
    }
}

struct Lines;

impl Grammar for Lines {
    fn after(&self, line: &[u8], is_open: bool) -> After {
        after(line, is_open)
    }

    fn has_form(&self, line: &[u8]) -> bool {
        is_alone(line)
    }
}

impl Splitter for LineProtocolSplitter {
    fn split(&mut self, place: u64, data: &[u8], at_end: bool) -> Result<Split, Error> {
        let mut skip = 0;
        if !self.is_past_start {
            let Some(mark) = mark_len(data, at_end) else { return Ok(Split::default()) };
            self.is_past_start = true;
            skip = mark;
        }
        let rest = &data[skip..];
        let (mut end, mut records, mut refused, mut is_in_comment) = (0, 0_usize, None, false);
        loop {
            let start = match next_start(rest, end) {
                Start::Record(start) => start,
                Start::End { in_comment } => {
                    (end, is_in_comment) = (rest.len(), in_comment);
                    break;
                }
            };
            // Blanks before a record belong to nothing, and are taken so that nobody waits with them.
            end = start;
            let ahead = &rest[start..];
            let first = memchr::memchr(b'\n', ahead).map(|end| end + 1);
            let is_closed = after(&ahead[..first.unwrap_or(ahead.len())], false) == After::Ends;
            let record = match first {
                Some(first) if !is_closed => {
                    let place = place + (skip + start) as u64;
                    let ahead = Ahead { place, data: ahead, at_end, preamble: None };
                    match self.judge().judge(ahead, first, &Lines)? {
                        Verdict::Record(bytes) => bytes,
                        Verdict::Open => break,
                        Verdict::Refused(line) => {
                            refused = Some(line);
                            break;
                        }
                    }
                }
                Some(first) => first,
                None if at_end && is_closed => ahead.len(),
                None => break,
            };
            (end, records) = (start + record, records + 1);
        }
        Ok(Split {
            skip,
            skip_lines: scan::lines(&data[..skip]),
            bytes: end,
            records: u32::try_from(records)
                .map_err(|_| Error::internal("a buffer holds more than 2^32 records"))?,
            lines: scan::lines(&rest[..end]),
            refused,
            is_in_comment,
        })
    }

    fn is_stray(&mut self, place: u64, data: &[u8]) -> Result<bool, Error> {
        self.judge().has_record_behind(Ahead { place, data, at_end: false, preamble: None }, &Lines)
    }
}
