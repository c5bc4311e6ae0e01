//! Where lines of JSON begin and end.

use thalweg_types::Error;

use super::super::{Split, Splitter, mark_len, scan};
use super::is_blank;

#[derive(Default)]
pub(super) struct NdjsonSplitter {
    is_past_start: bool,
}

impl Splitter for NdjsonSplitter {
    fn split(&mut self, _: u64, data: &[u8], at_end: bool) -> Result<Split, Error> {
        let mut skip = 0;
        if !self.is_past_start {
            let Some(mark) = mark_len(data, at_end) else { return Ok(Split::default()) };
            self.is_past_start = true;
            skip = mark;
        }
        let rest = &data[skip..];
        let mut end = memchr::memrchr(b'\n', rest).map_or(0, |last| last + 1);
        let (lines, closed) = scan::count_line_ends(&rest[..end], b'}');
        let mut records = lines;
        if closed < lines {
            // Not every line ends as an object does: some may be blank.
            records =
                rest[..end].split_inclusive(|byte| *byte == b'\n').filter(|line| !is_blank(line)).count();
        }
        if at_end && end < rest.len() {
            records += usize::from(!is_blank(&rest[end..]));
            end = rest.len();
        }
        let records = u32::try_from(records).expect("a buffer holds fewer than 2^32 records");
        Ok(Split { skip, bytes: end, records, lines: lines as u64, ..Split::default() })
    }
}
