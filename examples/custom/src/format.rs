//! `pairs`: a format of its own. Lines of `key=value`, split by blanks: `ts=1767225600000 device=mill-00 value=19.5`.
//!
//! * Fields are matched by name, in any order; other keys are ignored. Where a key is there twice the last one counts.
//! * A key that is missing, or stands without `=`, is null where the field is nullable, and a reject otherwise. Null is
//!   written as a key without `=`, so that a record of nothing but nulls is no blank line.
//! * In keys and texts, blanks, control characters, `=` and `%` stand as `%20` and so on, so a pair holds no blank.
//!
//! What a line is, how values stand in text and what becomes of records that are no good is the engine's: `LineFormat`
//! does all of it. Types: `string`, `int64`, `float64` and timestamps, the last written as a whole number of their
//! unit. The rest is refused when the job file is checked.

use std::sync::Arc;

use thalweg_prelude::*;

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
        let own = schema.clone();
        Ok(Arc::new(LineFormat::new(schema, move || PairsReader { schema: own.clone() })?))
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

struct PairsReader {
    schema: Schema,
}

impl LineReader for PairsReader {
    fn read(&mut self, line: &str, record: &mut Cells<'_>) -> Result<(), BadLine> {
        for pair in line.split_ascii_whitespace() {
            let (key, value) = pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value)));
            let plain = |text| {
                unescape(text).ok_or_else(|| BadLine::parse(format!("expected %XX after %, got {pair:?}")))
            };
            if let Some((place, _)) = self.schema.field(&plain(key)?) {
                match value {
                    Some(value) => record.set(place, &plain(value)?)?,
                    None => record.clear(place),
                }
            }
        }
        Ok(())
    }
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
    use thalweg_prelude::arrow_array::{
        ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray, TimestampMillisecondArray,
    };
    use thalweg_prelude::bytes::Bytes;

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
        let split = format.splitter().split(0, &data, true).unwrap();
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
}
