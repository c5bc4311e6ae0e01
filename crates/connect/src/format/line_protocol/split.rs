//! Where points begin and end in a stream.

use std::sync::Arc;

use thalweg_types::Error;

use super::super::quotes::{Judge, Piece, Verdict, first_lines};
use super::super::{RecordFormat as _, RefusedLine, Split, Splitter, mark_len, scan};
use super::LineProtocolFormat;
use super::grammar::{Next, broken_quote, is_alone, next_record_within};

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
        self.judge.get_or_insert_with(|| Judge {
            decoder: format.decoder(),
            max_lines: format.max_lines,
            texts_tell: true,
        })
    }

    /// Whether the record over several lines that `record` begins with is all there; `Err` where its first line is refused.
    /// Those of one line that are too long are left to the decoder.
    fn look_at(&mut self, record: &[u8], is_ended: bool) -> Result<Result<bool, RefusedLine>, Error> {
        let max_record = self.format.max_record;
        // More than it may have with its line end: the rest is not looked at, as it would not be waited for.
        let text = &record[..record.len().min(max_record.saturating_add(2))];
        let text = first_lines(text, self.format.max_lines);
        let is_ended = is_ended && text.len() == record.len();
        let piece = Piece { text, is_ended, broken: broken_quote(text) };
        let verdict = self.judge().judge(piece, None, is_alone)?;
        let len =
            text.strip_suffix(b"\n").map_or(text, |text| text.strip_suffix(b"\r").unwrap_or(text)).len();
        let is_too_long = if is_ended { len > max_record } else { text.len() > max_record + 1 };
        Ok(match verdict {
            Verdict::Stray(reason) => Err(RefusedLine::Quote(reason)),
            _ if is_too_long => Err(RefusedLine::TooLong),
            Verdict::Record => Ok(true),
            Verdict::Open => Ok(false),
        })
    }
}

impl Splitter for LineProtocolSplitter {
    fn split(&mut self, data: &[u8], at_end: bool) -> Result<Split, Error> {
        let mut skip = 0;
        if !self.is_past_start {
            let Some(mark) = mark_len(data, at_end) else { return Ok(Split::default()) };
            self.is_past_start = true;
            skip = mark;
        }
        let rest = &data[skip..];
        let (mut end, mut records, mut refused, mut is_in_comment) = (0, 0_usize, None, false);
        loop {
            // A place between records, a record that is all there with its line end, or the data's end.
            let (start, next) = match next_record_within(rest, end, self.format.max_lines) {
                Next::Record { place, next } if at_end || (next > place.end && rest[next - 1] == b'\n') => {
                    (place.start, Some(next))
                }
                // Blanks before a record belong to nothing, and are taken so that nobody waits with them.
                Next::Record { place, .. } => (place.start, None),
                Next::Open { start } => (start, None),
                Next::End { in_comment } => {
                    (end, is_in_comment) = (rest.len(), in_comment);
                    break;
                }
            };
            let record = &rest[start..next.unwrap_or(rest.len())];
            let line_end = memchr::memchr(b'\n', record);
            let is_one_line = line_end.is_none_or(|line_end| line_end + 1 == record.len());
            let is_there =
                if is_one_line { Ok(next.is_some()) } else { self.look_at(record, next.is_some())? };
            match (is_there, next) {
                (Ok(true), Some(next)) => (end, records) = (next, records + 1),
                (is_there, _) => {
                    (end, refused) = (start, is_there.err());
                    break;
                }
            }
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

    fn is_stray(&mut self, data: &[u8]) -> Result<bool, Error> {
        self.judge().has_record_behind(data, None, is_alone)
    }
}
