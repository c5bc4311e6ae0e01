//! Comma-separated values with a head, as RFC 4180 has them but for line ends, which are `\n`.

use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use thalweg_types::Error;

use super::{Encode, cell};

pub(super) struct Csv {
    schema: SchemaRef,
    cell: String,
}

impl Csv {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        Self { schema: schema.clone(), cell: String::new() }
    }
}

impl Encode for Csv {
    fn head(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        for (place, field) in self.schema.fields().iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            put(field.name(), out);
        }
        out.push(b'\n');
        Ok(())
    }

    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), Error> {
        for row in 0..batch.num_rows() {
            for (place, column) in batch.columns().iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                if column.is_null(row) || *column.data_type() == DataType::Null {
                    continue;
                }
                self.cell.clear();
                cell::text(column, row, &mut self.cell)?;
                put(&self.cell, out);
            }
            out.push(b'\n');
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<u8>) -> Result<(), Error> {
        Ok(())
    }
}

/// Writes a cell, in quotes where it needs them; an empty text needs them, as empty is null.
fn put(text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() && !text.contains(['"', ',', '\n', '\r']) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}
