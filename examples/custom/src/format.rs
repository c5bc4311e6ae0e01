//! `pairs`: a format of its own. Lines of `key=value`, split by blanks: `ts=1767225600000 device=mill-00 value=19.5`.
//!
//! * Fields are matched by name, in any order; other keys are ignored. Where a key is there twice the last one counts.
//! * A key that is missing, or stands without `=`, is null where the field is nullable, and a reject otherwise. Null is
//!   written as a key without `=`, so that a record of nothing but nulls is no blank line.
//! * In keys and texts, blanks, control characters, `=` and `%` stand as `%20` and so on, so a pair holds no blank.
//! * Lines end in `\n` or `\r\n`; lines of nothing but blanks are no records.
//!
//! Types: `string`, `int64`, `float64` and timestamps, the last as a whole number of their unit. The rest is refused
//! when the job file is checked.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, StringViewArray};
use bytes::Bytes;
use thalweg_connect::format::{
    BadRecord, Columns, DEFAULT_MAX_RECORD, Encoder, Preamble, RecordDecoder, RecordFormat, Split, Splitter,
};
use thalweg_connect::{FormatPlugin, OptionSpec, Options};
use thalweg_types::{Batch, DataType, Error, Field, Schema, Value};

/// The plug-in.
pub(crate) struct Pairs;

impl FormatPlugin for Pairs {
    fn name(&self) -> &'static str {
        "pairs"
    }

    fn doc(&self) -> &'static str {
        "lines of key=value"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn reader(&self, schema: &Schema, _: &Options) -> Result<Arc<dyn RecordFormat>, Error> {
        check(schema)?;
        Ok(Arc::new(PairsFormat { schema: schema.clone() }))
    }

    fn encoder(&self, schema: &Schema, _: &Options) -> Result<Box<dyn Encoder>, Error> {
        check(schema)?;
        let keys = schema.names().map(|name| {
            let mut key = String::new();
            escape(name, &mut key);
            key
        });
        Ok(Box::new(PairsEncoder { keys: keys.collect() }))
    }
}

fn check(schema: &Schema) -> Result<(), Error> {
    let odd = schema.fields().iter().find(|field| {
        use DataType::{Float64, Int64, String, Timestamp};
        !matches!(field.data_type, String | Int64 | Float64 | Timestamp(_))
    });
    odd.map_or(Ok(()), |Field { name, data_type, .. }| {
        let message = format!("pairs cannot hold field {name:?} of type {data_type}");
        Err(Error::user(message).with_hint("it holds string, int64, float64 and timestamps"))
    })
}

struct PairsFormat {
    schema: Schema,
}

impl RecordFormat for PairsFormat {
    fn splitter(&self) -> Box<dyn Splitter> {
        Box::new(LineSplitter)
    }

    fn decoder(&self) -> Box<dyn RecordDecoder> {
        Box::new(PairsDecoder { schema: self.schema.clone() })
    }
}

/// Places of the records in a block: lines that are not blank, without their ends. Splitter and decoder both count
/// with it, so that they agree.
fn records(data: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    data.split_inclusive(|byte| *byte == b'\n').filter_map(move |line| {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let range = start..start + text.len();
        start += line.len();
        (!text.trim_ascii().is_empty()).then_some(range)
    })
}

struct LineSplitter;

impl Splitter for LineSplitter {
    fn split(&mut self, data: &[u8], at_end: bool) -> Result<Split, Error> {
        let last = data.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let bytes = if at_end { data.len() } else { last };
        let whole = &data[..bytes];
        let lines = whole.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(Split { bytes, records: records(whole).count() as u32, lines, ..Split::default() })
    }
}

struct PairsDecoder {
    schema: Schema,
}

/// One value of a record, before its column is made.
enum Cell {
    Null,
    Text(String),
    Int(i64),
    Float(f64),
}

impl PairsDecoder {
    /// One cell per field, or code and reason.
    fn read(&self, line: &[u8]) -> Result<Vec<Cell>, (&'static str, String)> {
        if line.len() > DEFAULT_MAX_RECORD {
            return Err((
                "too_long",
                format!("expected at most {DEFAULT_MAX_RECORD} bytes, got {}", line.len()),
            ));
        }
        let parse = |reason: String| ("parse", reason);
        let line = std::str::from_utf8(line).map_err(|_| parse("expected UTF-8".to_owned()))?;
        let mut texts: Vec<Option<String>> = vec![None; self.schema.fields().len()];
        for pair in line.split_ascii_whitespace() {
            let (key, value) = pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value)));
            let plain =
                |text| unescape(text).ok_or_else(|| parse(format!("expected %XX after %, got {pair:?}")));
            if let Some((place, _)) = self.schema.field(&plain(key)?) {
                texts[place] = value.map(plain).transpose()?;
            }
        }
        let cells =
            self.schema.fields().iter().zip(texts).map(|(field, text)| cell(field, text).map_err(parse));
        cells.collect()
    }
}

fn cell(field: &Field, text: Option<String>) -> Result<Cell, String> {
    let Field { name, data_type, nullable, .. } = field;
    let Some(text) = text else {
        return if *nullable {
            Ok(Cell::Null)
        } else {
            Err(format!("field {name:?}: expected {data_type}, got nothing"))
        };
    };
    let cell = match data_type {
        DataType::String => return Ok(Cell::Text(text)),
        DataType::Float64 => text.parse().map(Cell::Float).ok(),
        _ => text.parse().map(Cell::Int).ok(),
    };
    cell.ok_or_else(|| format!("field {name:?}: expected {data_type}, got {text:?}"))
}

impl RecordDecoder for PairsDecoder {
    fn decode(&mut self, data: &Bytes, count: usize, _: Option<&Preamble>) -> Result<Columns, Error> {
        let mut cells: Vec<Vec<Cell>> =
            self.schema.fields().iter().map(|_| Vec::with_capacity(count)).collect();
        let (mut rows, mut bad) = (0, Vec::new());
        for (index, raw) in records(data).enumerate() {
            match self.read(&data[raw.clone()]) {
                Ok(record) => {
                    rows += 1;
                    cells.iter_mut().zip(record).for_each(|(column, cell)| column.push(cell));
                }
                Err((code, reason)) => {
                    bad.push(BadRecord { index: index as u32, raw, code, reason: Cow::Owned(reason) });
                }
            }
        }
        if rows + bad.len() != count {
            return Err(Error::internal(format!("a block of {count} lines has {}", rows + bad.len())));
        }
        let fields = self.schema.fields().iter().zip(&cells);
        let columns =
            fields.map(|(field, cells)| column(&field.data_type, cells)).collect::<Result<_, _>>()?;
        Ok(Columns { columns, rows, bad })
    }

    fn locate(&self, data: &[u8], indexes: &[u32]) -> Vec<Range<usize>> {
        let all: Vec<Range<usize>> = records(data).collect();
        indexes.iter().map(|index| all[*index as usize].clone()).collect()
    }
}

fn column(data_type: &DataType, cells: &[Cell]) -> Result<ArrayRef, Error> {
    Ok(match data_type {
        DataType::String => Arc::new(StringViewArray::from_iter(cells.iter().map(|cell| match cell {
            Cell::Text(text) => Some(text),
            _ => None,
        }))),
        DataType::Float64 => Arc::new(Float64Array::from_iter(cells.iter().map(|cell| match cell {
            Cell::Float(number) => Some(*number),
            _ => None,
        }))),
        // A timestamp column is its integers under another type.
        _ => {
            let numbers = Int64Array::from_iter(cells.iter().map(|cell| match cell {
                Cell::Int(number) => Some(*number),
                _ => None,
            }));
            arrow_cast::cast(&numbers, &data_type.to_arrow())
                .map_err(|error| Error::internal("make timestamps of integers").with_source(error))?
        }
    })
}

struct PairsEncoder {
    /// One per field, escaped.
    keys: Vec<String>,
}

impl Encoder for PairsEncoder {
    fn encode(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        for row in batch.row_numbers() {
            self.encode_row(batch, row, out);
            out.push(b'\n');
        }
    }

    fn encode_row(&mut self, batch: &Batch, row: u32, out: &mut Vec<u8>) {
        let mut line = String::new();
        for (key, column) in self.keys.iter().zip(batch.records().columns()) {
            line.extend([if line.is_empty() { "" } else { " " }, key]);
            match Value::at(column, row as usize) {
                Value::String(value) => {
                    line.push('=');
                    escape(&value, &mut line);
                }
                Value::Int64(value) | Value::Timestamp(value, _) => line.extend(["=", &value.to_string()]),
                Value::Float64(value) => line.extend(["=", &value.to_string()]),
                _ => {}
            }
        }
        out.extend_from_slice(line.as_bytes());
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        if c <= ' ' || matches!(c, '=' | '%' | '\u{7f}') {
            out.push_str(&format!("%{:02X}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut plain = pieces.next()?.to_owned();
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        let code = u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii)?;
        plain.push(char::from(code));
        plain.push_str(&piece[2..]);
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use arrow_array::{RecordBatch, TimestampMillisecondArray};
    use thalweg_types::{SeqRange, Seqs, TimeUnit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("ts", DataType::Timestamp(TimeUnit::Milli)),
            Field::new("a b", DataType::String).nullable(),
            Field::new("n", DataType::Int64).nullable(),
            Field::new("value", DataType::Float64),
        ])
    }

    fn read(text: &str) -> Columns {
        let data = Bytes::copy_from_slice(text.as_bytes());
        let format = Pairs.reader(&schema(), &Options::default()).unwrap();
        let split = format.splitter().split(&data, true).unwrap();
        assert_eq!(split.bytes, data.len(), "{text:?}");
        format.decoder().decode(&data, split.records as usize, None).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMillisecondArray::from(vec![0, -1, i64::MAX, 4])),
            Arc::new(StringViewArray::from_iter([
                Some("x = 5%\r\n"),
                Some(""),
                None,
                Some("é\u{1}\u{7f}%41"),
            ])),
            Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(0), None])),
            Arc::new(Float64Array::from(vec![-0.0, f64::MIN_POSITIVE, f64::NEG_INFINITY, 0.1])),
        ];
        let records = RecordBatch::try_new(Arc::clone(schema().arrow()), columns.clone()).unwrap();
        let batch = Batch::new(SeqRange::new(0, 4), records, vec![0; 4].into(), Seqs::Dense(0));
        let mut text = Vec::new();
        Pairs.encoder(&schema(), &Options::default()).unwrap().encode(&batch, &mut text);
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.starts_with("ts=0 a%20b=x%20%3D%205%25%0D%0A n=-9223372036854775808 value=-0\n"),
            "{text}"
        );
        assert_eq!(read(&text).columns, columns);
    }

    #[test]
    fn records_without_use_say_what_was_expected() {
        let decoded =
            read("ts=1 value=2\n\n  \r\nts=x value=2\r\nts=1\nvalue\nts=1 n=%G0 value=1\nts=3 value=4 z=5");
        assert_eq!(decoded.rows, 2);
        let told: Vec<(u32, &str)> = decoded.bad.iter().map(|bad| (bad.index, &*bad.reason)).collect();
        assert_eq!(
            told,
            [
                (1, "field \"ts\": expected timestamp(ms), got \"x\""),
                (2, "field \"value\": expected float64, got nothing"),
                (3, "field \"ts\": expected timestamp(ms), got nothing"),
                (4, "expected %XX after %, got \"n=%G0\""),
            ]
        );
        assert_eq!(decoded.bad[0].raw, 18..30);
    }

    #[test]
    fn a_line_without_an_end_waits_for_more() {
        let split = LineSplitter.split(b"a=1\n\nb=2\nc=", false).unwrap();
        assert_eq!((split.bytes, split.records, split.lines), (9, 2, 3));
    }
}
