//! Where CSV records begin and end.

use std::sync::Arc;

use thalweg_types::{Error, format_size};

use super::super::quotes::{After, Ahead, Grammar, Judge, Verdict};
use super::super::{Preamble, RecordFormat as _, RefusedLine, Split, Splitter, mark_len, scan};
use super::decode::header_names;
use super::{CsvFormat, Layout, after, blank_line, field_count, record_end, trim_line_end};

/// Bytes of a header at most: a journal keeps it with each block, however few records are in it.
const MOST_HEADER: usize = 256 << 10;

pub(super) struct CsvSplitter {
    format: CsvFormat,
    /// The byte order mark may still come.
    at_start: bool,
    /// The header must still come.
    wants_header: bool,
    layout: Option<Arc<Layout>>,
    /// What holds where the first line is no header.
    former: Option<Arc<Layout>>,
    judge: Option<Judge>,
}

impl CsvSplitter {
    pub(super) fn new(format: &CsvFormat) -> Self {
        Self {
            format: format.clone(),
            at_start: true,
            wants_header: format.header,
            layout: None,
            former: None,
            judge: None,
        }
    }

    /// A splitter for a stream that may have no header: `former` holds then.
    pub(super) fn after(format: &CsvFormat, former: Option<Arc<Layout>>) -> Self {
        Self { former, ..Self::new(format) }
    }

    fn most_header(&self) -> usize {
        self.format.max_record.min(MOST_HEADER)
    }

    /// The end of the header that begins at `at`, `at` itself where there is none and another one holds, or `None` if it is
    /// not all there.
    fn header(&mut self, data: &[u8], start: usize, at_end: bool) -> Result<Option<usize>, Error> {
        let mut at = start;
        loop {
            match blank_line(data, at) {
                0 => break,
                len => at += len,
            }
        }
        let line_end = || memchr::memchr(b'\n', data.get(at..)?).map(|end| at + end + 1);
        let end = match record_end(data, at, self.format.delimiter) {
            Some(end) => end,
            // A header that another one may stand for has one line: a quote that is open is one of a record.
            None if self.former.is_some() && line_end().is_some() => line_end().unwrap_or(data.len()),
            None if at_end && at < data.len() => data.len(),
            // More than it may have with its line end: the rest is not waited for.
            None if data.len() - at > self.most_header() + 2 => data.len(),
            None => return Ok(None),
        };
        if let Some(former) = self.former.clone() {
            let own =
                self.layout_of(trim_line_end(&data[at..end])).ok().filter(|layout| layout.names_a_field());
            let skip = if own.is_some() { end } else { start };
            (self.layout, self.wants_header) = (Some(own.map_or(former, Arc::new)), false);
            return Ok(Some(skip));
        }
        if trim_line_end(&data[at..end]).len() > self.most_header() {
            let limit = format_size(self.most_header() as u64);
            return Err(Error::user(format!("the first line is no header: it does not end within {limit}")));
        }
        self.layout = Some(Arc::new(self.layout_of(trim_line_end(&data[at..end]))?));
        self.wants_header = false;
        Ok(Some(end))
    }

    fn layout_of(&self, header: &[u8]) -> Result<Layout, Error> {
        let names = header_names(header, self.format.delimiter)?;
        Layout::by_name(&self.format.schema, &names)
    }
}

impl Splitter for CsvSplitter {
    fn split(&mut self, place: u64, data: &[u8], at_end: bool) -> Result<Split, Error> {
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
        let found = self.records(place + skip as u64, rest, at_end)?;
        Ok(Split {
            skip,
            skip_lines: scan::lines(&data[..skip]),
            bytes: found.end,
            records: u32::try_from(found.records).expect("a buffer holds fewer than 2^32 records"),
            lines: scan::lines(&rest[..found.end]),
            refused: found.refused,
            is_in_comment: false,
        })
    }

    fn preamble(&self) -> Option<Preamble> {
        self.layout.clone().map(|layout| layout as Preamble)
    }

    fn is_stray(&mut self, place: u64, data: &[u8]) -> Result<bool, Error> {
        self.judge_of(|judge, lines, preamble| {
            judge.has_record_behind(Ahead { place, data, at_end: false, preamble }, lines)
        })
    }
}

/// Whole records at the front of some data.
#[derive(Default)]
struct Found {
    end: usize,
    records: usize,
    refused: Option<RefusedLine>,
}

impl CsvSplitter {
    fn records(&mut self, place: u64, data: &[u8], at_end: bool) -> Result<Found, Error> {
        let last = memchr::memrchr(b'\n', data);
        if let Some(last) = last
            && memchr::memchr(b'"', if at_end { data } else { &data[..last] }).is_none()
        {
            let (lines, blank) = scan::count_line_ends(&data[..=last], b'\n');
            let rest = &data[last + 1..];
            let is_taken = at_end && !rest.is_empty();
            let records = lines - blank + usize::from(is_taken && rest != b"\r");
            let end = if is_taken { data.len() } else { last + 1 };
            return Ok(Found { end, records, refused: None });
        }
        let mut found = Found::default();
        loop {
            let rest = &data[found.end..];
            match blank_line(rest, 0) {
                0 if at_end && rest == b"\r" => found.end = data.len(),
                0 => {}
                len => {
                    found.end += len;
                    continue;
                }
            }
            let rest = &data[found.end..];
            let first = memchr::memchr(b'\n', rest).map(|end| end + 1);
            let line = &rest[..first.unwrap_or(rest.len())];
            let is_closed = after(line, false, self.format.delimiter) == After::Ends;
            let record = match first {
                Some(first) if !is_closed => {
                    let at = place + found.end as u64;
                    match self.judge(at, rest, first, at_end)? {
                        Verdict::Record(bytes) => bytes,
                        Verdict::Open => return Ok(found),
                        Verdict::Refused(refused) => return Ok(Found { refused: Some(refused), ..found }),
                    }
                }
                Some(first) => first,
                None if at_end && is_closed && !rest.is_empty() => rest.len(),
                None => return Ok(found),
            };
            (found.end, found.records) = (found.end + record, found.records + 1);
        }
    }

    fn judge(&mut self, place: u64, data: &[u8], first: usize, at_end: bool) -> Result<Verdict, Error> {
        self.judge_of(|judge, lines, preamble| {
            judge.judge(Ahead { place, data, at_end, preamble }, first, lines)
        })
    }

    /// The judge, which is made when it is wanted first, what lines are, and the layout.
    fn judge_of<T>(
        &mut self,
        call: impl FnOnce(&mut Judge, &Lines, Option<&Preamble>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let format = &self.format;
        let judge = self
            .judge
            .get_or_insert_with(|| Judge::new(format.decoder(), format.max_record, format.max_lines, false));
        let lines = Lines {
            delimiter: format.delimiter,
            columns: self.layout.as_ref().map(|layout| layout.fields.len()),
            fields: format.schema.fields().len(),
        };
        let layout = self.layout.clone().map(|layout| layout as Preamble);
        call(judge, &lines, layout.as_ref())
    }
}

struct Lines {
    delimiter: u8,
    /// Columns that a header names.
    columns: Option<usize>,
    /// Fields of the schema.
    fields: usize,
}

impl Grammar for Lines {
    fn after(&self, line: &[u8], is_open: bool) -> After {
        after(line, is_open, self.delimiter)
    }

    /// Whether it has as many fields as a record.
    fn has_form(&self, line: &[u8]) -> bool {
        match (field_count(line, self.delimiter), self.columns) {
            (Some(count), Some(columns)) => count == columns,
            (Some(count), None) => count >= self.fields,
            (None, _) => false,
        }
    }
}
