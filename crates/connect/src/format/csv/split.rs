//! Where CSV records begin and end.

use std::sync::Arc;

use thalweg_types::{Error, Schema};

use super::super::{BOM, Preamble, Split, Splitter, scan};
use super::decode::header_names;
use super::{CsvFormat, Layout, blank_line, record_end, trim_line_end};

pub(super) struct CsvSplitter {
    schema: Schema,
    delimiter: u8,
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
            at_start: true,
            wants_header: format.header,
            layout: None,
        }
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
            None => return Ok(None),
        };
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
            if data.len() < BOM.len() && BOM.starts_with(data) && !at_end {
                return Ok(Split::default());
            }
            if data.starts_with(BOM) {
                skip = BOM.len();
            }
        }
        if self.wants_header {
            match self.header(data, skip, at_end)? {
                Some(end) => skip = end,
                None => return Ok(Split::default()),
            }
        }
        self.at_start = false;
        let rest = &data[skip..];
        let (bytes, records) = records(rest, self.delimiter, at_end);
        Ok(Split {
            skip,
            skip_lines: scan::lines(&data[..skip]),
            bytes,
            records,
            lines: scan::lines(&rest[..bytes]),
        })
    }

    fn preamble(&self) -> Option<Preamble> {
        self.layout.clone().map(|layout| layout as Preamble)
    }
}

/// Bytes and number of the whole records at the front of `data`.
fn records(data: &[u8], delimiter: u8, at_end: bool) -> (usize, u32) {
    let (mut end, mut records) = match memchr::memrchr(b'\n', data) {
        Some(last) if memchr::memchr(b'"', &data[..last]).is_none() => {
            let (lines, blank) = scan::count_line_ends(&data[..=last], b'\n');
            (last + 1, lines - blank)
        }
        _ => careful_records(data, delimiter),
    };
    if at_end && end < data.len() {
        let rest = &data[end..];
        if rest == b"\r" {
            end = data.len();
        } else if is_closed(rest, delimiter) {
            (end, records) = (data.len(), records + 1);
        }
    }
    (end, u32::try_from(records).expect("a buffer holds fewer than 2^32 records"))
}

fn careful_records(data: &[u8], delimiter: u8) -> (usize, usize) {
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
            Some(end) => (at, records) = (end, records + 1),
            None => return (at, records),
        }
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
