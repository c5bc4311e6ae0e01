//! The types that queries see.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_cast::cast;
use arrow_schema::{DataType, Schema, SchemaRef};
use datafusion::common::DataFusionError;

/// The columns as queries see them: texts as views, which are compared and grouped without a copy.
pub(crate) fn shown(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => field.as_ref().clone().with_data_type(DataType::Utf8View),
        _ => field.as_ref().clone(),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows in these columns.
pub(crate) fn as_shown(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DataFusionError> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        if column.data_type() == field.data_type() {
            Ok(Arc::clone(column))
        } else {
            cast(column, field.data_type())
        }
    });
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<Vec<_>, _>>()?)?)
}
