//! Where CSV records begin and end.

use std::sync::Arc;

use thalweg_types::{Error, format_size};

use super::super::quotes::{Judge, Piece, Verdict, first_lines};
use super::super::{Preamble, RecordFormat as _, RefusedLine, Split, Splitter, mark_len, scan};
use super::decode::header_names;
use super::{CsvFormat, Layout, blank_line, broken_quote, field_count, record_end, trim_line_end};

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
        let found = self.records(rest, at_end)?;
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

    fn is_stray(&mut self, data: &[u8]) -> Result<bool, Error> {
        self.judge_of(|judge, layout, has_form| judge.has_record_behind(data, layout, has_form))
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
    fn records(&mut self, data: &[u8], at_end: bool) -> Result<Found, Error> {
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
            let line = first_lines(rest, 1);
            let (end, seen) = match record_end(line, 0, self.format.delimiter) {
                Some(end) => (Some(end), rest),
                None => {
                    let lines = first_lines(rest, self.format.max_lines);
                    (record_end(lines, 0, self.format.delimiter), lines)
                }
            };
            let is_all = seen.len() == rest.len();
            let is_last = || at_end && is_all && !rest.is_empty() && self.is_closed(rest);
            let end = end.or_else(|| is_last().then_some(rest.len()));
            let record = &rest[..end.unwrap_or(seen.len())];
            let is_one_line =
                memchr::memchr(b'\n', record).is_none_or(|line_end| line_end + 1 == record.len());
            match (end, is_one_line) {
                (None, true) => return Ok(found),
                (Some(_), true) => {}
                (_, false) => match self.judge(record, end.is_some())? {
                    Ok(true) => {}
                    Ok(false) => return Ok(found),
                    Err(refused) => return Ok(Found { refused: Some(refused), ..found }),
                },
            }
            (found.end, found.records) = (found.end + record.len(), found.records + 1);
        }
    }

    /// Whether the record over several lines that `record` begins with is all there; `Err` where its first line is refused.
    /// Those of one line that are too long are left to the decoder.
    fn judge(&mut self, record: &[u8], is_ended: bool) -> Result<Result<bool, RefusedLine>, Error> {
        let max_record = self.format.max_record;
        // More than it may have with its line end: the rest is not looked at, as it would not be waited for.
        let text = &record[..record.len().min(max_record.saturating_add(2))];
        let is_ended = is_ended && text.len() == record.len();
        let piece = Piece { text, is_ended, broken: broken_quote(text, self.format.delimiter) };
        let verdict = self.judge_of(|judge, layout, has_form| judge.judge(piece, layout, has_form))?;
        let is_too_long =
            if is_ended { trim_line_end(text).len() > max_record } else { text.len() > max_record + 1 };
        Ok(match verdict {
            Verdict::Stray(reason) => Err(RefusedLine::Quote(reason)),
            _ if is_too_long => Err(RefusedLine::TooLong),
            Verdict::Record => Ok(true),
            Verdict::Open => Ok(false),
        })
    }

    /// The judge, which is made when it is wanted first, the layout, and whether a line has as many fields as a record.
    fn judge_of<T>(
        &mut self,
        call: impl FnOnce(&mut Judge, Option<&Preamble>, &dyn Fn(&[u8]) -> bool) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let format = &self.format;
        let judge = self.judge.get_or_insert_with(|| Judge {
            decoder: format.decoder(),
            max_lines: format.max_lines,
            texts_tell: false,
        });
        let columns = self.layout.as_ref().map(|layout| layout.fields.len());
        let fields = format.schema.fields().len();
        let has_form = |line: &[u8]| match (field_count(line, format.delimiter), columns) {
            (Some(count), Some(columns)) => count == columns,
            (Some(count), None) => count >= fields,
            (None, _) => false,
        };
        let layout = self.layout.clone().map(|layout| layout as Preamble);
        call(judge, layout.as_ref(), &has_form)
    }

    /// Whether a line end after `rest` would end its record, i.e. no quote is open.
    fn is_closed(&self, rest: &[u8]) -> bool {
        memchr::memchr(b'"', rest).is_none() || {
            let mut line = rest.to_vec();
            line.push(b'\n');
            record_end(&line, 0, self.format.delimiter).is_some()
        }
    }
}
