//! Where points begin and end in a stream.

use thalweg_types::Error;

use super::super::{Split, Splitter, mark_len, scan};
use super::grammar::{Next, next_record};

pub(super) struct LineProtocolSplitter {
    max_record: usize,
    is_past_start: bool,
}

impl LineProtocolSplitter {
    pub(super) fn new(max_record: usize) -> Self {
        Self { max_record, is_past_start: false }
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
        let (mut end, mut records, mut is_too_long, mut is_in_comment) = (0, 0_usize, false, false);
        loop {
            match next_record(rest, end) {
                Next::Record { place, next } if at_end || (next > place.end && rest[next - 1] == b'\n') => {
                    // Records of one line that are too long are left to the decoder.
                    if place.len() > self.max_record && memchr::memchr(b'\n', &rest[place.clone()]).is_some()
                    {
                        (end, is_too_long) = (place.start, true);
                        break;
                    }
                    (end, records) = (next, records + 1);
                }
                // Blanks before a record belong to nothing, and are taken so that nobody waits with them.
                Next::Record { place, .. } => {
                    end = place.start;
                    break;
                }
                Next::Open { start } => {
                    end = start;
                    break;
                }
                Next::End { in_comment } => {
                    (end, is_in_comment) = (rest.len(), in_comment);
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
            is_too_long,
            is_in_comment,
        })
    }
}
