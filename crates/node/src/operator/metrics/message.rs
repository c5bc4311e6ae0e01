//! The batches that a stage sends to the merge: a column for each of its queries, and what it says of each record.
//!
//! Columns are found by name. Names of queries are words, so those in brackets are free.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, RecordBatch, StringViewArray};
use arrow_schema::{Field as ArrowField, Schema as ArrowSchema, SchemaRef};
use thalweg_types::{Batch, DataType, Field};

/// Why the stage refused a record as late ([`late_reason`](crate::operator::late::late_reason)).
const LATE: &str = "(late)";
/// True for a record that was refused because the stage knows its id.
const DUPLICATE: &str = "(duplicate)";
/// Names of values that did not fit.
const MISFITS: &str = "(misfits)";

/// What a stage says of the records of a batch, a column each; null where it says nothing.
pub(super) struct Said {
    pub(super) late: ArrayRef,
    pub(super) duplicate: ArrayRef,
    pub(super) misfits: ArrayRef,
}

/// The same as the merge reads it; `None` where nothing is said of any record.
pub(super) struct Heard<'a> {
    pub(super) late: Option<&'a StringViewArray>,
    pub(super) duplicate: Option<&'a BooleanArray>,
    pub(super) misfits: Option<&'a ListArray>,
}

/// The columns after those of the queries.
pub(super) fn fields() -> [Field; 3] {
    [
        Field::new(LATE, DataType::String).nullable(),
        Field::new(DUPLICATE, DataType::Bool).nullable(),
        Field::new(MISFITS, misfits()).nullable(),
    ]
}

/// The type of the column of values that did not fit.
pub(super) fn misfits() -> DataType {
    DataType::List(Box::new(DataType::String))
}

/// The schema of the batches of a stage with these queries.
pub(super) fn schema(mut queries: Vec<ArrowField>) -> SchemaRef {
    queries.extend(fields().iter().map(Field::to_arrow));
    Arc::new(ArrowSchema::new(queries))
}

/// A batch of this schema.
pub(super) fn batch(schema: SchemaRef, mut queries: Vec<ArrayRef>, said: Said) -> RecordBatch {
    let Said { late, duplicate, misfits } = said;
    queries.extend([late, duplicate, misfits]);
    RecordBatch::try_new(schema, queries).expect("a stage's columns have its schema")
}

/// The columns of queries in such a schema, with their places.
pub(super) fn queries(schema: &ArrowSchema) -> impl Iterator<Item = (usize, &Arc<ArrowField>)> {
    let is_query = |field: &ArrowField| ![LATE, DUPLICATE, MISFITS].contains(&field.name().as_str());
    schema.fields().iter().enumerate().filter(move |(_, field)| is_query(field))
}

impl<'a> Heard<'a> {
    pub(super) fn of(batch: &'a Batch) -> Self {
        let records = batch.records();
        let column = |name| records.column_by_name(name).filter(|column| column.null_count() < column.len());
        Self {
            late: column(LATE).map(|column| column.as_string_view()),
            duplicate: column(DUPLICATE).map(|column| column.as_boolean()),
            misfits: column(MISFITS).map(|column| column.as_list()),
        }
    }
}
