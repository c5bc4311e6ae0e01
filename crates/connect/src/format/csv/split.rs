//! Where CSV records begin and end.

use std::sync::Arc;

use thalweg_types::{Error, Schema, format_size};

use super::super::{Preamble, Split, Splitter, mark_len, scan};
use super::decode::header_names;
use super::{CsvFormat, Layout, blank_line, record_end, trim_line_end};

/// Bytes of a header at most: a journal keeps it with each block, however few records are in it.
const MOST_HEADER: usize = 256 << 10;

pub(super) struct CsvSplitter {
    schema: Schema,
    delimiter: u8,
    max_record: usize,
    /// The byte order mark may still come.
    at_start: bool,
    /// The header must still come.
    wants_header: bool,
    layout: Option<Arc<Layout>>,
}

impl CsvSplitter {
    pub(super) fn new(format: &CsvFormat) -> Self {
        Self {
            schema: format.schema.clone(),
            delimiter: format.delimiter,
            max_record: format.max_record,
            at_start: true,
            wants_header: format.header,
            layout: None,
        }
    }

    fn most_header(&self) -> usize {
        self.max_record.min(MOST_HEADER)
    }

    /// The header's place, or `None` if it is not all there.
    fn header(&mut self, data: &[u8], at: usize, at_end: bool) -> Result<Option<usize>, Error> {
        let mut at = at;
        loop {
            match blank_line(data, at) {
                0 => break,
                len => at += len,
            }
        }
        let end = match record_end(data, at, self.delimiter) {
            Some(end) => end,
            None if at_end && at < data.len() => data.len(),
            // More than it may have with its line end: the rest is not waited for.
            None if data.len() - at > self.most_header() + 2 => data.len(),
            None => return Ok(None),
        };
        if trim_line_end(&data[at..end]).len() > self.most_header() {
            let limit = format_size(self.most_header() as u64);
            return Err(Error::user(format!("the first line is no header: it does not end within {limit}")));
        }
        let names = header_names(trim_line_end(&data[at..end]), self.delimiter)?;
        self.layout = Some(Arc::new(Layout::by_name(&self.schema, &names)?));
        self.wants_header = false;
        Ok(Some(end))
    }
}

impl Splitter for CsvSplitter {
    fn split(&mut self, data: &[u8], at_end: bool) -> Result<Split, Error> {
        let mut skip = 0;
        if self.at_start {
            let Some(mark) = mark_len(data, at_end) else { return Ok(Split::default()) };
            skip = mark;
        }
        if self.wants_header {
            match self.header(data, skip, at_end)? {
                Some(end) => skip = end,
                None => return Ok(Split::default()),
            }
        }
        self.at_start = false;
        let rest = &data[skip..];
        let found = records(rest, self.delimiter, self.max_record, at_end);
        Ok(Split {
            skip,
            skip_lines: scan::lines(&data[..skip]),
            bytes: found.end,
            records: u32::try_from(found.records).expect("a buffer holds fewer than 2^32 records"),
            lines: scan::lines(&rest[..found.end]),
            is_too_long: found.is_too_long,
            is_in_comment: false,
        })
    }

    fn preamble(&self) -> Option<Preamble> {
        self.layout.clone().map(|layout| layout as Preamble)
    }
}

/// Whole records at the front of some data.
struct Found {
    end: usize,
    records: usize,
    is_too_long: bool,
}

fn records(data: &[u8], delimiter: u8, max_record: usize, at_end: bool) -> Found {
    let mut found = match memchr::memrchr(b'\n', data) {
        Some(last) if memchr::memchr(b'"', &data[..last]).is_none() => {
            let (lines, blank) = scan::count_line_ends(&data[..=last], b'\n');
            Found { end: last + 1, records: lines - blank, is_too_long: false }
        }
        _ => careful_records(data, delimiter, max_record),
    };
    if at_end && found.end < data.len() && !found.is_too_long {
        let rest = &data[found.end..];
        if rest == b"\r" {
            found.end = data.len();
        } else if is_closed(rest, delimiter) {
            if is_too_long(rest, max_record) {
                found.is_too_long = true;
            } else {
                found.end = data.len();
                found.records += 1;
            }
        }
    }
    found
}

fn careful_records(data: &[u8], delimiter: u8, max_record: usize) -> Found {
    let (mut at, mut records) = (0, 0);
    loop {
        match blank_line(data, at) {
            0 => {}
            len => {
                at += len;
                continue;
            }
        }
        match record_end(data, at, delimiter) {
            Some(end) if is_too_long(&data[at..end], max_record) => {
                return Found { end: at, records, is_too_long: true };
            }
            Some(end) => (at, records) = (end, records + 1),
            None => return Found { end: at, records, is_too_long: false },
        }
    }
}

/// Whether a record over several lines is too long; those of one line are left to the decoder.
fn is_too_long(record: &[u8], max_record: usize) -> bool {
    record.len() > max_record && {
        let record = trim_line_end(record);
        record.len() > max_record && memchr::memchr(b'\n', record).is_some()
    }
}

/// Whether a line end after `rest` would end its record, i.e. no quote is open.
fn is_closed(rest: &[u8], delimiter: u8) -> bool {
    memchr::memchr(b'"', rest).is_none() || {
        let mut line = rest.to_vec();
        line.push(b'\n');
        record_end(&line, 0, delimiter).is_some()
    }
}
