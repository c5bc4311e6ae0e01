//! `lines`: each line of a text is one record, as it is.
//!
//! For logs and prose, in which quotes and commas mean nothing. The schema has one field, of any type that is written
//! as text but bytes, which would have to be base64. Lines of nothing but blanks are no records, and a byte order mark
//! is no part of one. Only read: a text may hold line ends, so a written text could not always be read back.

use std::sync::Arc;

use thalweg_types::{DataType, Error, Schema};

use super::lines::{BadLine, Cells, LineFormat, LineReader};
use super::{Encoder, RecordFormat};
use crate::{FormatPlugin, OptionSpec, Options};

pub struct Lines;

impl FormatPlugin for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn doc(&self) -> &'static str {
        "plain text, one record for each line that is not blank"
    }

    fn page(&self) -> &'static str {
        include_str!("plain.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[super::MAX_RECORD]
    }

    fn reader(&self, schema: &Schema, options: &Options) -> Result<Arc<dyn RecordFormat>, Error> {
        if let [field] = schema.fields()
            && field.data_type == DataType::Bytes
        {
            return Err(Error::user(format!(
                "format \"lines\" reads text, and field {:?} is of type bytes",
                field.name
            ))
            .with_hint("write `string`"));
        }
        if schema.fields().len() != 1 {
            let names = schema.names().collect::<Vec<_>>().join(", ");
            return Err(Error::user(format!(
                "format \"lines\" expects a schema of one field, got {}: {names}",
                schema.fields().len()
            ))
            .with_hint("write `schema: { line: string }`; a `map` after the source takes lines apart"));
        }
        let format = LineFormat::new(schema, || WholeLine)?;
        Ok(Arc::new(format.max_record(super::max_record(options))))
    }

    fn encoder(&self, _: &Schema, _: &Options) -> Result<Box<dyn Encoder>, Error> {
        Err(Error::user("format \"lines\" is only read").with_hint("write `format: csv` or `format: ndjson`"))
    }
}

struct WholeLine;

impl LineReader for WholeLine {
    fn read(&mut self, line: &str, record: &mut Cells<'_>) -> Result<(), BadLine> {
        record.set(0, line.strip_prefix('\u{feff}').unwrap_or(line))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use thalweg_types::{Field, Value};

    use super::*;

    fn one(data_type: DataType) -> Schema {
        Schema::new(vec![Field::new("line", data_type)])
    }

    #[test]
    fn quotes_commas_and_blanks_stay_as_they_are() {
        let format = Lines.reader(&one(DataType::String), &Options::default()).unwrap();
        let text = Bytes::from_static(b"\xEF\xBB\xBFHe said, \"it's\n\n  5\" wide\r\n\ttwo\t\nlast");
        let split = format.splitter().split(0, &text, true).unwrap();
        assert_eq!(split.records, 4, "a blank line is not a record");
        let read = format.decoder().decode(&text, 4, None).unwrap();
        let lines: Vec<Value> = (0..4).map(|row| Value::at(&read.columns[0], row)).collect();
        let expected = ["He said, \"it's", "  5\" wide", "\ttwo\t", "last"];
        assert_eq!(lines, expected.map(|line| Value::String(line.to_owned())));
        assert!(read.bad.is_empty());
    }

    #[test]
    fn what_does_not_fit_the_field_is_a_reject() {
        let format = Lines.reader(&one(DataType::Int64), &Options::default()).unwrap();
        let read = format.decoder().decode(&Bytes::from_static(b"7\nseven\n"), 2, None).unwrap();
        assert_eq!((read.columns[0].len(), read.bad.len()), (1, 1));
        assert_eq!(read.bad[0].code, "parse");
    }

    #[test]
    fn a_schema_of_several_fields_or_bytes_and_a_sink_are_refused() {
        let two = Schema::new(vec![Field::new("a", DataType::String), Field::new("b", DataType::String)]);
        let error = Lines.reader(&two, &Options::default()).err().unwrap();
        assert_eq!(error.chain(), "format \"lines\" expects a schema of one field, got 2: a, b");
        let error = Lines.reader(&one(DataType::Bytes), &Options::default()).err().unwrap();
        assert_eq!(error.chain(), "format \"lines\" reads text, and field \"line\" is of type bytes");
        assert!(Lines.encoder(&one(DataType::String), &Options::default()).is_err());
    }
}
