//! CSV (RFC 4180): one record a line, fields between delimiters, `"` around fields that need it.
//!
//! * With a header (the default) columns are matched by name, in any order; columns that the schema does not
//!   name are ignored. A field that the header lacks is an error, unless it is nullable. A record with more
//!   fields than the header is a reject, because its values may have moved.
//! * Without one fields are matched by place and columns past the schema's last are ignored.
//! * A record that ends early has its missing fields null where they are nullable, and is a reject otherwise.
//! * An empty field, quoted or not, is null where the field is nullable, the empty string for a `string`, and a
//!   reject otherwise. Blanks around a value that is no string or bytes are free.
//! * A quote opens a quoted field only at the field's start; elsewhere it is a character like any other.
//!   Text after a closing quote is a reject. Blank lines are no records. Lines end in `\n` or `\r\n`.
//! * Times are read as `times.rs` says.
//! * `null` names more texts that are null where the field is nullable (`odd.rs`), `decimal_comma` makes the comma the
//!   decimal sign. A line that begins with the text of `comment` is no record, before the header too; within quotes it
//!   is part of the text. `skip_lines` leaves out lines at the beginning of each stream, whatever is in them.
//! * A quoted field may hold line ends. Where a quote turns out to be none, its own line is a reject (`quotes.rs`).
//! * Written are a header, then the fields of struct columns as columns of their own (`card_1h.spent`), lists
//!   as JSON. Null is the empty field. Fields that are left out where they are null are never columns.

mod decode;
mod encode;
mod odd;
mod split;

use std::sync::Arc;

use thalweg_types::{Error, Schema};

use self::decode::CsvDecoder;
use self::encode::CsvEncoder;
use self::odd::Odd;
use self::split::CsvSplitter;
use super::quotes::After;
use super::times::{self, Times};
use super::{DEFAULT_MAX_RECORD, Encoder, Preamble, RecordDecoder, RecordFormat, Splitter, quotes};
use crate::{FormatPlugin, OptionKind, OptionSpec, Options};

/// The plug-in.
pub struct Csv;

impl FormatPlugin for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn doc(&self) -> &'static str {
        "comma-separated values (RFC 4180)"
    }

    fn page(&self) -> &'static str {
        include_str!("page.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[
            OptionSpec {
                key: "header",
                kind: OptionKind::Bool,
                required: false,
                default: Some("true"),
                doc: "whether the first line has the names of the columns; if not, fields are matched by position",
            },
            OptionSpec {
                key: "delimiter",
                kind: OptionKind::Text,
                required: false,
                default: Some(","),
                doc: "character between fields; `\\t` for a tab",
            },
            OptionSpec {
                key: "null",
                kind: OptionKind::TextList,
                required: false,
                default: None,
                doc: "reading only: texts, quoted or not, that mean null in a nullable field, in addition to the empty field",
            },
            OptionSpec {
                key: "decimal_comma",
                kind: OptionKind::Bool,
                required: false,
                default: Some("false"),
                doc: "reading only: whether numbers have a decimal comma (`12,5`); thousands separators are not read",
            },
            OptionSpec {
                key: "comment",
                kind: OptionKind::Text,
                required: false,
                default: None,
                doc: "reading only: a line that begins with this text is skipped, also before the header",
            },
            OptionSpec {
                key: "skip_lines",
                kind: OptionKind::Integer { min: 0, max: 1 << 16 },
                required: false,
                default: Some("0"),
                doc: "reading only: number of lines to skip at the beginning of each file, connection or body, before the header",
            },
            times::TIME_FORMAT,
            times::TIME_ZONE,
            super::MAX_RECORD,
            quotes::MAX_LINES,
        ]
    }

    fn reader(&self, schema: &Schema, options: &Options) -> Result<Arc<dyn RecordFormat>, Error> {
        let delimiter = delimiter(options)?;
        let times = Times::of(options, schema)?;
        let times = if options.flag("decimal_comma") == Some(true) { times.with_comma() } else { times };
        let format = CsvFormat {
            schema: schema.clone(),
            header: options.flag("header").unwrap_or(true),
            delimiter,
            odd: Odd::of(options, delimiter)?.map(Arc::new),
            times: times.into(),
            comment: comment(options, delimiter)?,
            skip_lines: options.integer("skip_lines").map_or(0, i64::unsigned_abs),
            max_record: super::max_record(options),
            max_lines: quotes::max_lines(options),
        };
        // Made once here, so that a schema which cannot be read is reported before the start.
        CsvDecoder::new(&format)?;
        Ok(Arc::new(format))
    }

    fn encoder(&self, schema: &Schema, options: &Options) -> Result<Box<dyn Encoder>, Error> {
        if let Some(key) = READ_ONLY.iter().chain(&times::READ_ONLY).find(|key| options.get(key).is_some()) {
            return Err(Error::user(format!("format \"csv\" takes {key:?} only where it is read"))
                .with_hint("leave it out of the sink"));
        }
        let header = options.flag("header").unwrap_or(true);
        Ok(Box::new(CsvEncoder::new(schema, delimiter(options)?, header)))
    }
}

fn delimiter(options: &Options) -> Result<u8, Error> {
    match options.text("delimiter").map(str::as_bytes) {
        None => Ok(b','),
        Some(b"\\t" | b"tab") => Ok(b'\t'),
        Some([byte]) if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r' | 0) => Ok(*byte),
        Some(other) => Err(Error::user(format!(
            "delimiter: expected one ASCII character other than a quote or a line end, got {:?}",
            String::from_utf8_lossy(other)
        ))
        .with_hint("write delimiter: \"\\t\" for tab-separated values")),
    }
}

/// Options that do not affect writing.
const READ_ONLY: [&str; 4] = ["null", "decimal_comma", "comment", "skip_lines"];

/// The prefix of a comment; empty if there are no comments.
fn comment(options: &Options, delimiter: u8) -> Result<Arc<[u8]>, Error> {
    let Some(text) = options.text("comment") else { return Ok(Arc::default()) };
    let is_fine = text.bytes().next().is_some_and(|first| first != b'"' && first != delimiter)
        && !text.starts_with(char::is_whitespace)
        && !text.contains(char::is_control)
        && text.len() <= MOST_COMMENT;
    if is_fine {
        return Ok(text.as_bytes().into());
    }
    Err(Error::user(format!(
        "comment: expected 1 to {MOST_COMMENT} bytes that begin with no quote, delimiter or blank, got {text:?}"
    ))
    .with_hint("write comment: \"#\""))
}

/// Bytes of the prefix of a comment, at most.
const MOST_COMMENT: usize = 16;

#[derive(Clone)]
struct CsvFormat {
    schema: Schema,
    header: bool,
    delimiter: u8,
    /// Forms of a field beyond plain CSV.
    odd: Option<Arc<Odd>>,
    times: Arc<Times>,
    /// The prefix of lines that are comments; empty if there are none.
    comment: Arc<[u8]>,
    /// Lines at the beginning of a stream that are left out.
    skip_lines: u64,
    max_record: usize,
    max_lines: usize,
}

impl RecordFormat for CsvFormat {
    fn splitter(&self) -> Box<dyn Splitter> {
        Box::new(CsvSplitter::new(self))
    }

    fn splitter_after(&self, preamble: &Preamble) -> Box<dyn Splitter> {
        let former = Arc::clone(preamble).downcast::<Layout>().ok();
        Box::new(CsvSplitter::after(self, former))
    }

    fn decoder(&self) -> Box<dyn RecordDecoder> {
        Box::new(CsvDecoder::new(self).expect("the schema was checked when the format was made"))
    }

    /// With `skip_lines` the preamble says that they were left out, also where there is no header.
    fn has_preamble(&self) -> bool {
        self.header || self.skip_lines > 0
    }

    fn max_record(&self) -> usize {
        self.max_record
    }

    fn block_records(&self) -> u32 {
        super::block_records(&self.schema)
    }
}

impl Default for CsvFormat {
    fn default() -> Self {
        Self {
            schema: Schema::empty(),
            header: true,
            delimiter: b',',
            odd: None,
            times: times::plain(),
            comment: Arc::default(),
            skip_lines: 0,
            max_record: DEFAULT_MAX_RECORD,
            max_lines: quotes::DEFAULT_MAX_LINES,
        }
    }
}

/// Which field each column of the stream is: by a header, or in the schema's own order.
#[derive(Debug)]
struct Layout {
    /// By column of the stream, the field that it fills.
    fields: Vec<Option<usize>>,
    /// Fields that the stream lacks; all nullable.
    absent: Vec<usize>,
    /// Whether more columns than these are a mistake.
    exact: bool,
}

impl Layout {
    fn by_place(schema: &Schema) -> Self {
        Self { fields: (0..schema.fields().len()).map(Some).collect(), absent: Vec::new(), exact: false }
    }

    /// # Errors
    /// Where the header lacks a field that is not nullable, or names one twice.
    fn by_name(schema: &Schema, names: &[String]) -> Result<Self, Error> {
        let mut fields = Vec::with_capacity(names.len());
        for (place, name) in names.iter().enumerate() {
            let field = schema.field(name).map(|(index, _)| index);
            if field.is_some() && names[..place].contains(name) {
                // The name is a field's, so it is no news.
                return Err(Error::user(format!("the CSV header names column {name:?} twice")));
            }
            fields.push(field);
        }
        let absent: Vec<usize> =
            (0..schema.fields().len()).filter(|field| !fields.contains(&Some(*field))).collect();
        let missing: Vec<String> = absent
            .iter()
            .map(|field| &schema.fields()[*field])
            .filter(|field| !field.nullable)
            .map(|field| format!("{:?}", field.name))
            .collect();
        if !missing.is_empty() {
            return Err(Error::user(format!(
                "the CSV header lacks {} {}",
                if missing.len() == 1 { "field" } else { "fields" },
                missing.join(", ")
            ))
            .with_private(format!(
                ": it has {}",
                listed(names)
            ))
            .with_hint("name the fields as the header does, mark them nullable with `?`, or set header: false if the file has none"));
        }
        Ok(Self { fields, absent, exact: true })
    }

    /// Whether it is of a line that is no record but by chance.
    fn names_a_field(&self) -> bool {
        self.fields.iter().any(Option::is_some)
    }
}

/// The first names of a header, for messages.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown = names.iter().take(SHOWN).map(|name| format!("{:?}", super::shorten(name.as_bytes())));
    let more = if names.len() > SHOWN { ", …" } else { "" };
    shown.collect::<Vec<_>>().join(", ") + more
}

/// End of the record that begins at `at`: the place after its line end. `None` if the data ends first.
///
/// This is the grammar by which splitter and decoder agree.
fn record_end(data: &[u8], at: usize, delimiter: u8) -> Option<usize> {
    let mut at = at;
    // Without a quote before the line end there is nothing to be careful about.
    match memchr::memchr2(b'\n', b'"', data.get(at..)?) {
        Some(found) if data[at + found] == b'\n' => return Some(at + found + 1),
        Some(_) => {}
        None => return None,
    }
    loop {
        if data.get(at) == Some(&b'"') {
            at = quoted_end(data, at)?;
        }
        let found = at + memchr::memchr2(b'\n', delimiter, data.get(at..)?)?;
        at = found + 1;
        if data[found] == b'\n' {
            return Some(at);
        }
    }
}

/// The place after the closing quote of the field whose opening quote is at `at`.
fn quoted_end(data: &[u8], at: usize) -> Option<usize> {
    closing_end(data, at + 1)
}

/// The place after the quote that closes the field which `at` is within.
fn closing_end(data: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    loop {
        let quote = at + memchr::memchr(b'"', data.get(at..)?)?;
        if data.get(quote + 1) != Some(&b'"') {
            return Some(quote + 1);
        }
        at = quote + 2;
    }
}

/// The state after a line: [`record_end`], a line at a time.
fn after(line: &[u8], is_open: bool, delimiter: u8) -> After {
    let mut at = 0;
    if memchr::memchr(b'"', line).is_none() {
        return if is_open { After::Open } else { After::Ends };
    }
    if is_open {
        let Some(end) = closing_end(line, 0) else { return After::Open };
        let ends_field = match &line[end..] {
            [] | [b'\r'] | [b'\n', ..] | [b'\r', b'\n', ..] => true,
            [byte, ..] => *byte == delimiter,
        };
        if !ends_field {
            return After::Broken;
        }
        at = end;
    }
    loop {
        // After a quote that closed, none opens.
        if line.get(at) == Some(&b'"') {
            match quoted_end(line, at) {
                Some(end) => at = end,
                None => return After::Open,
            }
        }
        match memchr::memchr2(b'\n', delimiter, &line[at..]) {
            Some(found) if line[at + found] == delimiter => at += found + 1,
            _ => return After::Ends,
        }
    }
}

/// How many fields a line by itself has; `None` where a quote is open at its end.
fn field_count(line: &[u8], delimiter: u8) -> Option<usize> {
    let (mut at, mut count) = (0, 1);
    loop {
        if line.get(at) == Some(&b'"') {
            at = quoted_end(line, at)?;
        }
        match memchr::memchr2(b'\n', delimiter, line.get(at..)?) {
            Some(found) if line[at + found] == delimiter => (at, count) = (at + found + 1, count + 1),
            _ => return Some(count),
        }
    }
}

/// Length of a blank line at `at`, with its line end; 0 if there is none.
#[inline(always)]
fn blank_line(data: &[u8], at: usize) -> usize {
    match data.get(at) {
        Some(b'\n') => 1,
        Some(b'\r') if data.get(at + 1) == Some(&b'\n') => 2,
        _ => 0,
    }
}

/// Whether the line at `at` is a comment.
#[inline(always)]
fn is_comment(data: &[u8], at: usize, comment: &[u8]) -> bool {
    !comment.is_empty() && data.get(at..).is_some_and(|line| line.starts_with(comment))
}

/// Length of a line at `at` that is no record, blank or a comment, with its line end; 0 where it is a record, or begins
/// one.
#[inline(always)]
fn other_line(data: &[u8], at: usize, comment: &[u8]) -> usize {
    match blank_line(data, at) {
        0 if is_comment(data, at, comment) => comment_line(&data[at..]),
        len => len,
    }
}

/// Length of the comment that `data` begins with, with its line end if that is there.
#[cold]
fn comment_line(data: &[u8]) -> usize {
    memchr::memchr(b'\n', data).map_or(data.len(), |end| end + 1)
}

/// How many lines of `data`, which begins with one, are comments.
fn comment_lines(data: &[u8], comment: &[u8]) -> usize {
    if comment.is_empty() {
        return 0;
    }
    let next = [b"\n", comment].concat();
    usize::from(data.starts_with(comment)) + memchr::memmem::find_iter(data, &next).count()
}

/// Bytes of a record without its line end.
fn trim_line_end(record: &[u8]) -> &[u8] {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record)
}
