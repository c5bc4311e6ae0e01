//! Columns without a value take no room: they are left out of files, and made again for readers.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use arrow_select::concat::concat;

/// Null columns by type, each as long as the longest that was asked for.
#[derive(Default)]
pub(crate) struct Nulls(HashMap<DataType, ArrayRef>);

impl Nulls {
    fn column(&mut self, data_type: &DataType, rows: usize) -> ArrayRef {
        match self.0.get(data_type) {
            Some(column) if column.len() >= rows => column.slice(0, rows),
            _ => {
                let column = new_null_array(data_type, rows);
                self.0.insert(data_type.clone(), Arc::clone(&column));
                column
            }
        }
    }

    /// The rows with exactly the columns of `schema`, by name; those of another type or of no value are null.
    pub(crate) fn widen(&mut self, rows: &RecordBatch, schema: &SchemaRef) -> RecordBatch {
        if rows.schema_ref() == schema {
            return rows.clone();
        }
        let columns = schema.fields().iter().map(|field| match rows.column_by_name(field.name()) {
            Some(column) if column.data_type() == field.data_type() => Arc::clone(column),
            _ => self.column(field.data_type(), rows.num_rows()),
        });
        let columns = columns.collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
            .expect("columns are made in the order of the schema")
    }
}

/// Which columns of batches of one schema have a value.
pub(crate) fn columns_with_values(schema: &Schema, batches: &[RecordBatch]) -> Vec<usize> {
    let has_value = |place: &usize| {
        batches.iter().any(|rows| {
            let column = rows.column(*place);
            column.null_count() < column.len()
        })
    };
    (0..schema.fields().len()).filter(has_value).collect()
}

/// Batches of one schema as one, without the columns that are null throughout. Texts hold no bytes that are not theirs.
///
/// # Errors
/// Where texts together are longer than a column can be.
pub(crate) fn united(schema: &Schema, batches: &[RecordBatch]) -> Result<RecordBatch, ArrowError> {
    let places = columns_with_values(schema, batches);
    let fields: Vec<_> = places.iter().map(|place| Arc::clone(&schema.fields()[*place])).collect();
    let columns = places.iter().map(|place| {
        let parts: Vec<&dyn Array> = batches.iter().map(|rows| rows.column(*place).as_ref()).collect();
        let column = concat(&parts)?;
        Ok(match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => column,
        })
    });
    let columns: Vec<ArrayRef> = columns.collect::<Result<_, ArrowError>>()?;
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}
