//! Objects, one a row: a line each, or in an array.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use thalweg_types::Error;

use super::{Encode, cell};

pub(super) struct Json {
    /// `{"name":`, `,"name":` and so on.
    keys: Vec<String>,
    array: bool,
    first: bool,
    line: String,
}

impl Json {
    pub(super) fn lines(schema: &SchemaRef) -> Self {
        let keys = schema.fields().iter().enumerate().map(|(place, field)| {
            let mut key = String::from(if place == 0 { "" } else { "," });
            cell::quote(field.name(), &mut key);
            key.push(':');
            key
        });
        Self { keys: keys.collect(), array: false, first: true, line: String::new() }
    }

    pub(super) fn array(schema: &SchemaRef) -> Self {
        Self { array: true, ..Self::lines(schema) }
    }
}

impl Encode for Json {
    fn head(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.array {
            out.push(b'[');
        }
        Ok(())
    }

    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), Error> {
        for row in 0..batch.num_rows() {
            self.line.clear();
            if self.array {
                self.line.push_str(if self.first { "\n" } else { ",\n" });
                self.first = false;
            }
            self.line.push('{');
            for (key, column) in self.keys.iter().zip(batch.columns()) {
                self.line.push_str(key);
                cell::json(column, row, &mut self.line)?;
            }
            self.line.push('}');
            if !self.array {
                self.line.push('\n');
            }
            out.extend_from_slice(self.line.as_bytes());
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.array {
            out.extend_from_slice(b"\n]\n");
        }
        Ok(())
    }
}
