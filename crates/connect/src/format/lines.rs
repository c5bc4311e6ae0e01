//! Formats whose records are lines: each of them says how a line is read, the rest is here.
//!
//! A [`LineReader`] takes one line apart and gives the text of each field to [`Cells`]; [`LineFormat`] makes a
//! [`RecordFormat`] of it. Lines end in `\n` or `\r\n`, the last one may lack its end, and lines of nothing but blanks
//! are no records. Texts are read as in every text format, so all field types work.
//!
//! Splitter and decoder both find their records with [`record_lines`], so they agree whatever the bytes.
//! Formats with records over several lines, or of bytes, implement [`RecordFormat`] themselves.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use thalweg_types::{Error, Schema};

use super::column::Column;
use super::text::Problem;
use super::{BadRecord, Columns, DEFAULT_MAX_RECORD, Preamble, RecordDecoder, RecordFormat, Split, Splitter};
use super::{scan, too_long};

/// Why a line is not a record: a code for rejects (`parse`, mostly), the expected form and the text that was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    pub code: &'static str,
    pub reason: Cow<'static, str>,
}

impl BadLine {
    /// With the code `parse`.
    pub fn parse(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: "parse", reason: reason.into() }
    }
}

/// Reads lines of one format, in one decode task. It must not remember anything from one line to the next.
pub trait LineReader: Send {
    /// Takes a line apart, without its end, and sets the fields that it has.
    ///
    /// # Errors
    /// Where the line is no record; it becomes a reject.
    fn read(&mut self, line: &str, record: &mut Cells<'_>) -> Result<(), BadLine>;
}

/// The fields of the record that is being read. Those that are not set are null, and a reject where they may not be.
pub struct Cells<'a> {
    columns: &'a mut [Column],
    rows: usize,
}

impl Cells<'_> {
    /// Sets a field, by its place in the schema, to the value of a text; the last one counts.
    ///
    /// # Errors
    /// Where the text is no value of the field's type.
    ///
    /// # Panics
    /// If the schema has no such place.
    pub fn set(&mut self, place: usize, text: &str) -> Result<(), BadLine> {
        let column = &mut self.columns[place];
        column.truncate(self.rows);
        column
            .push_text(text.as_bytes(), None)
            .map_err(|problem| BadLine::parse(column.describe(problem, text.as_bytes())))
    }

    /// Makes a field null again.
    ///
    /// # Panics
    /// If the schema has no such place.
    pub fn clear(&mut self, place: usize) {
        self.columns[place].truncate(self.rows);
    }

    fn finish(&mut self) -> Result<(), BadLine> {
        for column in self.columns.iter_mut() {
            if column.len() == self.rows {
                column.push_null().map_err(|_| BadLine::parse(column.describe(Problem::Missing, b"")))?;
            }
        }
        Ok(())
    }
}

/// A format of lines, bound to a schema. `make` makes the reader of each decode task.
pub struct LineFormat<F> {
    schema: Schema,
    max_record: usize,
    make: F,
}

impl<F, R> LineFormat<F>
where
    F: Fn() -> R + Send + Sync,
    R: LineReader + 'static,
{
    /// # Errors
    /// Where a field has a type that only answers have.
    pub fn new(schema: &Schema, make: F) -> Result<Self, Error> {
        columns_of(schema)?;
        Ok(Self { schema: schema.clone(), max_record: DEFAULT_MAX_RECORD, make })
    }

    /// Longest line accepted; a longer one goes to rejects.
    #[must_use]
    pub fn max_record(mut self, bytes: usize) -> Self {
        self.max_record = bytes.clamp(1, 1 << 30);
        self
    }
}

fn columns_of(schema: &Schema) -> Result<Vec<Column>, Error> {
    schema.fields().iter().map(Column::new).collect()
}

impl<F, R> RecordFormat for LineFormat<F>
where
    F: Fn() -> R + Send + Sync,
    R: LineReader + 'static,
{
    fn splitter(&self) -> Box<dyn Splitter> {
        Box::new(LineSplitter)
    }

    fn decoder(&self) -> Box<dyn RecordDecoder> {
        Box::new(LineDecoder {
            columns: columns_of(&self.schema).expect("the schema was checked when the format was made"),
            max_record: self.max_record,
            reader: (self.make)(),
        })
    }

    fn max_record(&self) -> usize {
        self.max_record
    }

    fn block_records(&self) -> u32 {
        super::block_records(&self.schema)
    }
}

/// Places of the records in a block of lines, without their ends.
pub fn record_lines(data: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    let lines = std::iter::from_fn(move || {
        let rest = data.get(start..).filter(|rest| !rest.is_empty())?;
        let line = start..start + memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        start = line.end + 1;
        Some(line)
    });
    lines.filter_map(|line| {
        let text = &data[line.clone()];
        let end = line.end - usize::from(text.ends_with(b"\r"));
        (!text.trim_ascii().is_empty()).then_some(line.start..end)
    })
}

/// Finds the records of [`record_lines`] in a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineSplitter;

impl Splitter for LineSplitter {
    fn split(&mut self, _: u64, data: &[u8], at_end: bool) -> Result<Split, Error> {
        let last = memchr::memrchr(b'\n', data).map_or(0, |last| last + 1);
        let bytes = if at_end { data.len() } else { last };
        let whole = &data[..bytes];
        let records = u32::try_from(record_lines(whole).count())
            .map_err(|_| Error::internal("a buffer holds more than 2^32 records"))?;
        Ok(Split { bytes, records, lines: scan::lines(whole), ..Split::default() })
    }
}

struct LineDecoder<R> {
    columns: Vec<Column>,
    max_record: usize,
    reader: R,
}

impl<R: LineReader> LineDecoder<R> {
    fn read(&mut self, line: &[u8], rows: usize) -> Result<(), BadLine> {
        let line = std::str::from_utf8(line).map_err(|error| {
            BadLine::parse(format!("expected UTF-8, got another byte at {}", error.valid_up_to()))
        })?;
        let mut record = Cells { columns: &mut self.columns, rows };
        self.reader.read(line, &mut record)?;
        record.finish()
    }
}

impl<R: LineReader> RecordDecoder for LineDecoder<R> {
    fn decode(&mut self, data: &Bytes, count: usize, _: Option<&Preamble>) -> Result<Columns, Error> {
        let (mut rows, mut bad) = (0, Vec::new());
        for (index, mut raw) in record_lines(data).enumerate() {
            let read = if raw.len() > self.max_record {
                let (code, kept, reason) = too_long(self.max_record);
                raw.end = raw.start + kept;
                Err(BadLine { code, reason })
            } else {
                self.read(&data[raw.clone()], rows)
            };
            match read {
                Ok(()) => rows += 1,
                Err(BadLine { code, reason }) => {
                    self.columns.iter_mut().for_each(|column| column.truncate(rows));
                    bad.push(BadRecord { index: index as u32, raw, code, reason });
                }
            }
        }
        if rows + bad.len() != count {
            let found = rows + bad.len();
            return Err(Error::internal(format!("a block of {count} lines was found to have {found}")));
        }
        let columns = self.columns.iter_mut().map(|column| column.finish(data)).collect();
        Ok(Columns { columns, rows, bad })
    }

    fn locate(&self, data: &[u8], indexes: &[u32]) -> Vec<Range<usize>> {
        let mut lines = record_lines(data).enumerate();
        let mut place =
            |wanted: &u32| lines.find(|(index, _)| *index == *wanted as usize).map(|(_, raw)| raw);
        indexes.iter().map(|index| place(index).unwrap_or_default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use proptest::prelude::*;
    use thalweg_types::{DataType, Field};

    use super::*;

    /// Fields by place, split at commas; `-` is not there.
    struct Commas;

    impl LineReader for Commas {
        fn read(&mut self, line: &str, record: &mut Cells<'_>) -> Result<(), BadLine> {
            for (place, text) in line.split(',').enumerate() {
                match (place, text) {
                    (2.., _) => return Err(BadLine::parse("expected two fields")),
                    (_, "-") => record.clear(place),
                    _ => record.set(place, text)?,
                }
            }
            Ok(())
        }
    }

    fn format() -> LineFormat<impl Fn() -> Commas + Send + Sync> {
        let fields = vec![Field::new("n", DataType::Int64), Field::new("s", DataType::String).nullable()];
        LineFormat::new(&Schema::new(fields), || Commas).unwrap().max_record(40)
    }

    fn read(text: &str) -> Columns {
        let data = Bytes::copy_from_slice(text.as_bytes());
        let split = format().splitter().split(0, &data, true).unwrap();
        assert_eq!(split.bytes, data.len());
        format().decoder().decode(&data, split.records as usize, None).unwrap()
    }

    #[test]
    fn lines_become_rows_or_rejects_with_what_was_expected() {
        let long = "x".repeat(60);
        let text = format!("1,a\r\n\n \r\n-,b\n2\nx,c\n3,{long}\n4,d,e\n5,a text longer than a view");
        let columns = read(&text);
        assert_eq!(columns.rows, 3);
        let numbers = columns.columns[0].as_primitive::<Int64Type>();
        assert_eq!(numbers.values().as_ref(), [1, 2, 5], "bad rows leave no values");
        let texts: Vec<Option<&str>> = columns.columns[1].as_string_view().iter().collect();
        assert_eq!(texts, [Some("a"), None, Some("a text longer than a view")]);
        let told: Vec<(u32, &str, &str, &str)> = columns
            .bad
            .iter()
            .map(|bad| (bad.index, bad.code, &*bad.reason, &text[bad.raw.clone()]))
            .collect();
        assert_eq!(
            told,
            [
                (1, "parse", "field \"n\": expected int64, got nothing", "-,b"),
                (3, "parse", "field \"n\": expected int64, got \"x\"", "x,c"),
                (
                    4,
                    "too_long",
                    "expected a record of at most 40B, got a longer one",
                    &format!("3,{long}")[..40]
                ),
                (5, "parse", "expected two fields", "4,d,e"),
            ]
        );
    }

    #[test]
    fn a_line_without_an_end_waits_for_more() {
        let split = LineSplitter.split(0, b"1,a\n\n2,b\n3,", false).unwrap();
        assert_eq!((split.bytes, split.records, split.lines), (9, 2, 3));
    }

    proptest! {
        #[test]
        fn splitter_and_decoder_agree_whatever_the_bytes(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b' '), any::<u8>()], 0..80),
        ) {
            let data = Bytes::from(bytes);
            let count = LineSplitter.split(0, &data, true).unwrap().records as usize;
            let columns = format().decoder().decode(&data, count, None).unwrap();
            prop_assert_eq!(columns.rows + columns.bad.len(), count);
            let indexes: Vec<u32> = columns.bad.iter().map(|bad| bad.index).collect();
            let places = format().decoder().locate(&data, &indexes);
            for (bad, place) in columns.bad.iter().zip(places) {
                prop_assert_eq!(bad.raw.start, place.start);
                prop_assert!(!data[place].contains(&b'\n'));
            }
        }
    }
}
