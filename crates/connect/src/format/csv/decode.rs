//! CSV fields into typed columns: one pass over the block, each field read by the code of its type.
//!
//! Plain fields are read in place, eight bytes at a time; quotes, escapes and odd numbers take the slow
//! path, which finds the field's end first and reads its text as `text.rs` says. A row that fails is taken back
//! from the columns already filled and becomes a bad record.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::new_null_array;
use bytes::{Bytes, BytesMut};
use thalweg_types::{Error, Schema};

use super::super::column::{Column, INLINE, Values};
use super::super::scan::{digits15, float, load8, matches, splat};
use super::super::text::{Problem, ipv4_octets};
use super::super::{BadRecord, Columns, Preamble, RecordDecoder, too_long};
use super::odd::Odd;
use super::{CsvFormat, Layout, other_line, quoted_end, record_end, trim_line_end};

pub(super) struct CsvDecoder {
    schema: Schema,
    delimiter: u8,
    odd: Option<Arc<Odd>>,
    comment: Arc<[u8]>,
    max_record: usize,
    by_place: Arc<Layout>,
    columns: Vec<Column>,
}

/// Why a row is bad: the field, the problem, and the text that was there.
enum RowError {
    Field { field: usize, problem: Problem, got: Range<usize> },
    AfterQuote { at: usize },
    TooMany { wanted: usize },
}

impl CsvDecoder {
    pub(super) fn new(format: &CsvFormat) -> Result<Self, Error> {
        let columns = format.schema.fields().iter();
        Ok(Self {
            schema: format.schema.clone(),
            delimiter: format.delimiter,
            odd: format.odd.clone(),
            comment: Arc::clone(&format.comment),
            max_record: format.max_record,
            by_place: Arc::new(Layout::by_place(&format.schema)),
            columns: columns.map(|field| Column::reading(field, &format.times)).collect::<Result<_, _>>()?,
        })
    }

    fn describe(&self, error: RowError, data: &[u8]) -> Cow<'static, str> {
        match error {
            RowError::Field { field, problem, got } => self.columns[field].describe(problem, &data[got]),
            RowError::AfterQuote { at } => Cow::Owned(format!(
                "expected a delimiter or the line's end after a closing quote, got {:?}",
                data[at] as char
            )),
            RowError::TooMany { wanted } => {
                Cow::Owned(format!("expected {wanted} fields as the header has, got more"))
            }
        }
    }
}

impl RecordDecoder for CsvDecoder {
    fn decode(&mut self, data: &Bytes, count: usize, preamble: Option<&Preamble>) -> Result<Columns, Error> {
        let layout = match preamble {
            None => Arc::clone(&self.by_place),
            Some(preamble) => Arc::clone(preamble)
                .downcast::<Layout>()
                .map_err(|_| Error::internal("a CSV block carries a preamble of another format"))?,
        };
        // Every record ends in a line end from here on, so the scanners need no other stop.
        let closed;
        let data = if data.last() == Some(&b'\n') || data.is_empty() {
            data
        } else {
            let mut copy = BytesMut::with_capacity(data.len() + 1);
            copy.extend_from_slice(data);
            copy.extend_from_slice(b"\n");
            closed = copy.freeze();
            &closed
        };
        let is_text = simdutf8::basic::from_utf8(data).is_ok();
        for column in &mut self.columns {
            column.reserve(count);
        }
        let delimiter = Delimiter { byte: self.delimiter, splat: splat(self.delimiter) };
        let (plain, comment) = (Odd::default(), Arc::clone(&self.comment));
        let odd = self.odd.clone();
        let mut bad = Vec::new();
        let mut rows = 0;
        let mut at = 0;
        for index in 0..count {
            loop {
                match other_line(data, at, &comment) {
                    0 => break,
                    len => at += len,
                }
            }
            if at >= data.len() {
                return Err(Error::internal(format!(
                    "a CSV block of {count} records has only {index}: splitter and decoder disagree"
                )));
            }
            if !is_text {
                let end = record_end(data, at, self.delimiter).unwrap_or(data.len());
                if std::str::from_utf8(&data[at..end]).is_err() {
                    let len = trim_line_end(&data[at..end]).len();
                    let (code, keep, reason) = if len > self.max_record {
                        too_long(self.max_record)
                    } else {
                        ("parse", len, Cow::Borrowed("expected UTF-8, got other bytes"))
                    };
                    bad.push(BadRecord { index: index as u32, raw: at..at + len.min(keep), code, reason });
                    at = end;
                    continue;
                }
            }
            let start = at;
            let columns = &mut self.columns;
            let decoded = match &odd {
                None => decode_row::<false>(columns, &layout, data, start, delimiter, &plain),
                Some(odd) => decode_row::<true>(columns, &layout, data, start, delimiter, odd),
            };
            let (code, keep, reason) = match decoded {
                Ok(end) if end - start <= self.max_record => {
                    (at, rows) = (end, rows + 1);
                    continue;
                }
                Ok(end) if trim_line_end(&data[start..end]).len() <= self.max_record => {
                    (at, rows) = (end, rows + 1);
                    continue;
                }
                Ok(_) => too_long(self.max_record),
                Err(error) => ("parse", usize::MAX, self.describe(error, data)),
            };
            for column in &mut self.columns {
                column.truncate(rows);
            }
            at = record_end(data, start, self.delimiter).unwrap_or(data.len());
            let len = trim_line_end(&data[start..at]).len();
            // A record that is both wrong and too long is too long: that may be all that is known of it.
            let (code, keep, reason) =
                if len > self.max_record { too_long(self.max_record) } else { (code, keep, reason) };
            bad.push(BadRecord { index: index as u32, raw: start..start + len.min(keep), code, reason });
        }
        let columns = self
            .columns
            .iter_mut()
            .zip(self.schema.fields())
            .enumerate()
            .map(|(index, (column, field))| {
                if layout.absent.contains(&index) {
                    new_null_array(&field.data_type.to_arrow(), rows)
                } else {
                    column.finish(data)
                }
            })
            .collect();
        Ok(Columns { columns, rows, bad })
    }

    fn locate(&self, data: &[u8], indexes: &[u32]) -> Vec<Range<usize>> {
        let mut places = Vec::with_capacity(indexes.len());
        let (mut at, mut index) = (0, 0);
        for wanted in indexes {
            loop {
                match other_line(data, at, &self.comment) {
                    0 => {}
                    len => {
                        at += len;
                        continue;
                    }
                }
                let end = record_end(data, at, self.delimiter).unwrap_or(data.len());
                let place = at..at + trim_line_end(&data[at..end]).len();
                (at, index) = (end, index + 1);
                if index > *wanted || at >= data.len() {
                    places.push(place);
                    break;
                }
            }
        }
        places
    }
}

#[derive(Clone, Copy)]
struct Delimiter {
    byte: u8,
    splat: u64,
}

impl Delimiter {
    /// Whether the byte at `at` ends a field. A `\r` does only before the line end.
    #[inline(always)]
    fn ends(self, data: &[u8], at: usize) -> bool {
        match data.get(at) {
            Some(byte) if *byte == self.byte || *byte == b'\n' => true,
            Some(b'\r') => data.get(at + 1) == Some(&b'\n'),
            Some(_) => false,
            None => true,
        }
    }

    /// Where the unquoted field at `at` ends: its end, and the place of the delimiter or line end (`\n`).
    #[inline(always)]
    fn find(self, data: &[u8], at: usize) -> (usize, usize) {
        let mut word_at = at;
        let stop = loop {
            let word = load8(data, word_at);
            let found = matches(word, self.splat) | matches(word, splat(b'\n'));
            if found != 0 {
                break word_at + (found.trailing_zeros() / 8) as usize;
            }
            word_at += 8;
            if word_at >= data.len() {
                break data.len();
            }
        };
        (end_of_text(data, at, stop), stop)
    }
}

/// `stop`, or the place before it if a `\r` belongs to the line end there.
#[inline(always)]
fn end_of_text(data: &[u8], start: usize, stop: usize) -> usize {
    let crlf = stop > start && data[stop - 1] == b'\r' && data.get(stop) == Some(&b'\n');
    stop - usize::from(crlf)
}

/// Appends the row at `start` to the columns. Returns the place after its line end.
#[inline]
fn decode_row<const IS_ODD: bool>(
    columns: &mut [Column],
    layout: &Layout,
    data: &[u8],
    start: usize,
    delimiter: Delimiter,
    odd: &Odd,
) -> Result<usize, RowError> {
    let mut at = start;
    for (place, field) in layout.fields.iter().enumerate() {
        let stop = match field {
            Some(field) => match decode_field::<IS_ODD>(&mut columns[*field], data, at, delimiter, odd) {
                Ok(stop) => stop,
                Err(FieldError::Problem(problem, got)) => {
                    return Err(RowError::Field { field: *field, problem, got });
                }
                Err(FieldError::AfterQuote(at)) => return Err(RowError::AfterQuote { at }),
            },
            None => skip_field(data, at, delimiter)?,
        };
        if data.get(stop) == Some(&delimiter.byte) {
            at = stop + 1;
            continue;
        }
        let end = stop + if data.get(stop) == Some(&b'\r') { 2 } else { 1 };
        for field in layout.fields[place + 1..].iter().flatten() {
            columns[*field].push_null().map_err(|problem| RowError::Field {
                field: *field,
                problem,
                got: stop..stop,
            })?;
        }
        return Ok(end.min(data.len()));
    }
    // A delimiter after the last column, or no column at all.
    if layout.exact {
        return Err(RowError::TooMany { wanted: layout.fields.len() });
    }
    Ok(record_end(data, start, delimiter.byte).unwrap_or(data.len()))
}

fn skip_field(data: &[u8], at: usize, delimiter: Delimiter) -> Result<usize, RowError> {
    if data.get(at) != Some(&b'"') {
        return Ok(delimiter.find(data, at).1);
    }
    let end = quoted_end(data, at).unwrap_or(data.len());
    if delimiter.ends(data, end) { Ok(end) } else { Err(RowError::AfterQuote { at: end }) }
}

enum FieldError {
    Problem(Problem, Range<usize>),
    AfterQuote(usize),
}

/// Appends the field at `at`. Returns the place of the delimiter or line end after it.
#[inline(always)]
fn decode_field<const IS_ODD: bool>(
    column: &mut Column,
    data: &[u8],
    at: usize,
    delimiter: Delimiter,
    odd: &Odd,
) -> Result<usize, FieldError> {
    if IS_ODD && odd.may_be_null(data[at]) {
        return decode_odd_field(column, data, at, delimiter, odd);
    }
    match &mut column.values {
        Values::String(views) => {
            let (low, high) = (load8(data, at), load8(data, at + 8));
            let first = low as u8;
            if first != b'"' && first != delimiter.byte && first != b'\n' && first != b'\r' {
                let stops = |word| matches(word, delimiter.splat) | matches(word, splat(b'\n'));
                let (in_low, in_high) = (stops(low), stops(high));
                let len =
                    if in_low != 0 { in_low.trailing_zeros() / 8 } else { 8 + in_high.trailing_zeros() / 8 }
                        as usize;
                if len <= INLINE {
                    let stop = at + len;
                    let end = end_of_text(data, at, stop);
                    let len = (end - at) as u32;
                    let bytes = u128::from(low) | u128::from(high) << 64;
                    let text = bytes & ((1_u128 << (8 * len)) - 1);
                    views.views.push(u128::from(len) | text << 32);
                    return Ok(stop);
                }
                let (end, stop) = delimiter.find(data, at + 8);
                views.push_block(data, at, end - at);
                return Ok(stop);
            }
        }
        Values::Int64(values) | Values::Time { values, .. } => {
            let negative = data[at] == b'-';
            if let Some((digits, end)) = digits15(data, at + usize::from(negative))
                && delimiter.ends(data, end)
            {
                values.push(if negative { -(digits as i64) } else { digits as i64 });
                return Ok(end);
            }
        }
        Values::UInt64(values) => {
            if let Some((digits, end)) = digits15(data, at)
                && delimiter.ends(data, end)
            {
                values.push(digits);
                return Ok(end);
            }
        }
        Values::Ipv4Int(octets) => {
            if let Some((digits, end)) = digits15(data, at)
                && delimiter.ends(data, end)
                && let Ok(number) = u32::try_from(digits)
            {
                octets.extend_from_slice(&ipv4_octets(number));
                return Ok(end);
            }
        }
        Values::Float64(values) => {
            let read = if !IS_ODD { float(data, at, b'.') } else { odd.float(data, at) };
            if let Some((value, end)) = read
                && delimiter.ends(data, end)
            {
                values.push(value);
                return Ok(end);
            }
        }
        _ => {}
    }
    decode_odd_field(column, data, at, delimiter, odd)
}

/// The slow path: fields that are empty, quoted, of rarer types, or written in an odd way.
#[inline(never)]
fn decode_odd_field(
    column: &mut Column,
    data: &[u8],
    at: usize,
    delimiter: Delimiter,
    odd: &Odd,
) -> Result<usize, FieldError> {
    let mut unescaped = None;
    let (range, stop) = if data.get(at) == Some(&b'"') {
        let end = quoted_end(data, at).unwrap_or(data.len());
        if !delimiter.ends(data, end) {
            return Err(FieldError::AfterQuote(end));
        }
        let inner = at + 1..end.saturating_sub(1).max(at + 1);
        if memchr::memchr(b'"', &data[inner.clone()]).is_some() {
            unescaped = Some(unescape(&data[inner.clone()]));
        }
        (inner, end)
    } else {
        let (end, stop) = delimiter.find(data, at);
        (at..end, stop)
    };
    let problem = |problem| FieldError::Problem(problem, range.clone());
    if range.is_empty() {
        if column.nullable {
            column.push_null().map_err(problem)?;
        } else if let Values::String(views) = &mut column.values {
            views.push_copy(b"");
        } else {
            return Err(problem(Problem::Missing));
        }
        return Ok(stop);
    }
    let (text, place) = match &unescaped {
        Some(text) => (text.as_slice(), None),
        None => (&data[range.clone()], Some(range.start)),
    };
    let text =
        if matches!(column.values, Values::String(_) | Values::Bytes(_)) { text } else { text.trim_ascii() };
    odd.push(column, text, place).map_err(problem)?;
    Ok(stop)
}

/// Halves the doubled quotes of a quoted field's inside.
fn unescape(inner: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(quote) = memchr::memchr(b'"', rest) {
        text.extend_from_slice(&rest[..=quote]);
        rest = rest.get(quote + 2..).unwrap_or_default();
    }
    text.extend_from_slice(rest);
    text
}

/// Columns that a header may name: a million empty names would take far more than their bytes.
const MOST_COLUMNS: usize = 1 << 16;

/// The names in a header line.
///
/// # Errors
/// Where it is no text, or its quotes are wrong.
pub(super) fn header_names(line: &[u8], delimiter: u8) -> Result<Vec<String>, Error> {
    let wrong = |what: &str| {
        Error::user(format!("read the CSV header: {what}"))
            .with_private(format!(", got {:?}", super::super::column::shorten(line)))
    };
    let delimiter = Delimiter { byte: delimiter, splat: splat(delimiter) };
    let mut names = Vec::new();
    let mut at = 0;
    loop {
        let (name, stop) = if line.get(at) == Some(&b'"') {
            let end = quoted_end(line, at).ok_or_else(|| wrong("a quote is not closed"))?;
            if !delimiter.ends(line, end) {
                return Err(wrong("text follows a closing quote"));
            }
            (unescape(&line[at + 1..end - 1]), end)
        } else {
            // A quoted name before may hold line ends, this one cannot.
            let stop = memchr::memchr(delimiter.byte, &line[at..]).map_or(line.len(), |found| at + found);
            (line[at..stop].to_vec(), stop)
        };
        if names.len() == MOST_COLUMNS {
            return Err(wrong("it has more than 65536 columns"));
        }
        names.push(String::from_utf8(name).map_err(|_| wrong("it is not UTF-8"))?.trim().to_owned());
        if stop >= line.len() {
            return Ok(names);
        }
        at = stop + 1;
    }
}
