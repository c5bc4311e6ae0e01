//! Where CSV records begin and end.

use std::sync::Arc;

use thalweg_types::{Error, format_size};

use super::super::quotes::{After, Ahead, Grammar, Judge, Verdict};
use super::super::{Preamble, RecordFormat as _, RefusedLine, Split, Splitter, mark_len, scan};
use super::decode::header_names;
use super::{
    CsvFormat, Layout, after, blank_line, comment_line, comment_lines, field_count, is_comment, other_line,
    record_end, trim_line_end,
};

/// Bytes of a header and of the lines before it at most: a journal keeps them with each block, however few records are
/// in it.
const MOST_HEADER: usize = 256 << 10;

pub(super) struct CsvSplitter {
    format: CsvFormat,
    /// The byte order mark may still come.
    at_start: bool,
    /// The header must still come, or the lines that are left out.
    wants_header: bool,
    layout: Option<Arc<Layout>>,
    /// The layout that holds if the first line is not a header.
    former: Option<Arc<Layout>>,
    judge: Option<Judge>,
}

impl CsvSplitter {
    pub(super) fn new(format: &CsvFormat) -> Self {
        Self {
            format: format.clone(),
            at_start: true,
            wants_header: format.has_preamble(),
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

    /// Where the header begins, after the lines that are left out, blank lines and comments. Without a header,
    /// the end of the lines that are left out. `None` if not all of it is there.
    fn lead_end(&self, data: &[u8], start: usize, at_end: bool) -> Option<usize> {
        let mut at = start;
        let lines = if self.at_start { self.format.skip_lines } else { 0 };
        for _ in 0..lines {
            match memchr::memchr(b'\n', &data[at..]) {
                Some(end) => at += end + 1,
                None => return at_end.then_some(data.len()),
            }
        }
        if !self.format.header {
            return Some(at);
        }
        loop {
            let rest = &data[at..];
            match other_line(data, at, &self.format.comment) {
                // Blank, or a comment whose end is there.
                len if len > 0 && data[at + len - 1] == b'\n' => at += len,
                len if len > 0 => return at_end.then_some(at + len),
                _ if rest.is_empty() || self.format.comment.starts_with(rest) && !at_end => {
                    return at_end.then_some(at);
                }
                _ => return Some(at),
            }
        }
    }

    /// The end of the header that begins after `start`, `start` itself if there is none and another one holds, or
    /// `None` if it is not all there.
    fn header(&mut self, data: &[u8], start: usize, at_end: bool) -> Result<Option<usize>, Error> {
        let lead = self.lead_end(data, start, at_end);
        if lead.is_none() && data.len() - start <= MOST_HEADER {
            return Ok(None);
        }
        let lead = lead.filter(|at| at - start <= MOST_HEADER);
        if let Some(former) = &self.former
            && (!self.format.header || lead.is_none_or(|at| at == data.len()))
        {
            // Lines are left out where a header that follows them says that they are there.
            (self.layout, self.wants_header) = (Some(Arc::clone(former)), false);
            return Ok(Some(start));
        }
        let Some(at) = lead else {
            let limit = format_size(MOST_HEADER as u64);
            return Err(Error::user(match self.format.header {
                true => format!("the CSV header does not begin within {limit}"),
                false => format!("the lines that `skip_lines` leaves out do not end within {limit}"),
            }));
        };
        if !self.format.header {
            (self.layout, self.wants_header) = (Some(Arc::new(Layout::by_place(&self.format.schema))), false);
            return Ok(Some(at));
        }
        if at == data.len() {
            // The stream ends, and has neither header nor record.
            return Ok(at_end.then_some(at));
        }
        let most = self.most_header().min(MOST_HEADER - (at - start));
        let line_end = || memchr::memchr(b'\n', data.get(at..)?).map(|end| at + end + 1);
        let end = match record_end(data, at, self.format.delimiter) {
            Some(end) => end,
            // A header that another one may replace has one line: a quote that is open is in a record.
            None if self.former.is_some() && line_end().is_some() => line_end().unwrap_or(data.len()),
            None if at_end && at < data.len() => data.len(),
            // More than it may have with its line end: the rest is not waited for.
            None if data.len() - at > most + 2 => data.len(),
            None => return Ok(None),
        };
        if let Some(former) = self.former.clone() {
            let own =
                self.layout_of(trim_line_end(&data[at..end])).ok().filter(|layout| layout.names_a_field());
            let skip = if own.is_some() { end } else { start };
            (self.layout, self.wants_header) = (Some(own.map_or(former, Arc::new)), false);
            return Ok(Some(skip));
        }
        if trim_line_end(&data[at..end]).len() > most {
            let limit = format_size(most as u64);
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
            is_in_comment: found.is_in_comment,
        })
    }

    fn preamble(&self) -> Option<Preamble> {
        self.layout.clone().map(|layout| layout as Preamble)
    }

    fn is_stray(&mut self, place: u64, data: &[u8]) -> Result<bool, Error> {
        let lead = match self.wants_header {
            true => self.lead_end(data, 0, false),
            false => Some(0),
        };
        // The lines before the header may have any form.
        let Some(data) = lead.and_then(|lead| data.get(lead..)).filter(|data| !data.is_empty()) else {
            return Ok(false);
        };
        let place = place + lead.unwrap_or(0) as u64;
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
    /// It ends within a comment.
    is_in_comment: bool,
}

impl CsvSplitter {
    fn records(&mut self, place: u64, data: &[u8], at_end: bool) -> Result<Found, Error> {
        let format = &self.format;
        let last = memchr::memrchr(b'\n', data);
        if let Some(last) = last
            && memchr::memchr(b'"', if at_end { data } else { &data[..last] }).is_none()
        {
            let (lines, blank) = scan::count_line_ends(&data[..=last], b'\n');
            let rest = &data[last + 1..];
            let in_comment = is_comment(rest, 0, &format.comment);
            let is_taken = at_end && !rest.is_empty();
            let records = lines - blank - comment_lines(&data[..=last], &format.comment)
                + usize::from(is_taken && rest != b"\r" && !in_comment);
            let end = if is_taken || in_comment { data.len() } else { last + 1 };
            return Ok(Found { end, records, refused: None, is_in_comment: in_comment && !at_end });
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
            if is_comment(rest, 0, &self.format.comment) {
                let len = comment_line(rest);
                found.end += len;
                if rest[len - 1] == b'\n' {
                    continue;
                }
                found.is_in_comment = !at_end;
                return Ok(found);
            }
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

    /// The judge, which is made on first use, the grammar of lines, and the layout.
    fn judge_of<T>(
        &mut self,
        call: impl FnOnce(&mut Judge, &Lines<'_>, Option<&Preamble>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let format = &self.format;
        let judge = self
            .judge
            .get_or_insert_with(|| Judge::new(format.decoder(), format.max_record, format.max_lines, false));
        let lines = Lines {
            delimiter: format.delimiter,
            comment: &format.comment,
            columns: self.layout.as_ref().filter(|layout| layout.exact).map(|layout| layout.fields.len()),
            fields: format.schema.fields().len(),
        };
        let layout = self.layout.clone().map(|layout| layout as Preamble);
        call(judge, &lines, layout.as_ref())
    }
}

struct Lines<'a> {
    delimiter: u8,
    comment: &'a [u8],
    /// Columns that a header names.
    columns: Option<usize>,
    /// Fields of the schema.
    fields: usize,
}

impl Grammar for Lines<'_> {
    fn after(&self, line: &[u8], is_open: bool) -> After {
        after(line, is_open, self.delimiter)
    }

    /// Whether it has as many fields as a record.
    fn has_form(&self, line: &[u8]) -> bool {
        if is_comment(line, 0, self.comment) {
            return false;
        }
        match (field_count(line, self.delimiter), self.columns) {
            (Some(count), Some(columns)) => count == columns,
            (Some(count), None) => count >= self.fields,
            (None, _) => false,
        }
    }
}
