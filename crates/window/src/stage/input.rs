//! The columns of a stage's input that its plan reads, each at a place of its own: expressions are bound to these places.
//!
//! Not here: what the plan makes of them (`queries`, `guard`).

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow_schema::{Field as ArrowField, Schema as ArrowSchema};
use arrow_select::take::take;
use thalweg_expr::{Bound, SqlError};
use thalweg_types::{Batch, Schema};

use super::Grouping;
use super::nodes::name_of_key;
use crate::plan::PlannedQuery;
use crate::query::Query;

pub(super) struct Input {
    schema: Schema,
    /// Columns of the schema, by place.
    pub(super) columns: Vec<usize>,
}

impl Input {
    pub(super) fn new(schema: &Schema) -> Self {
        Self { schema: schema.clone(), columns: Vec::new() }
    }

    /// The columns that queries read. Bind queries to this.
    fn schema_read(&self) -> Schema {
        let fields = self.columns.iter().map(|column| self.schema.fields()[*column].clone());
        Schema::new(fields.collect::<Vec<_>>())
    }

    /// Binds a query to the columns that are read, of which those are from now on that it needs.
    pub(super) fn bind(&mut self, name: &str, query: &Query) -> Result<PlannedQuery, SqlError> {
        let planned = PlannedQuery::bind(name, query, &self.schema)?;
        let args = planned.calls.iter().filter_map(|call| call.arg.as_ref());
        let read = args.chain(&planned.filter).chain(&planned.group_by).flat_map(Bound::fields);
        for column in read {
            // Columns keep their place, so queries that are bound stay bound.
            if !self.columns.contains(column) {
                self.columns.push(*column);
            }
        }
        PlannedQuery::bind(name, query, &self.schema_read())
    }

    /// Name and type of a field that queries read.
    pub(super) fn field(&self, place: usize) -> (String, String) {
        let field = &self.schema.fields()[self.columns[place]];
        (field.name.clone(), field.data_type.to_string())
    }

    /// Names of fields and texts of expressions.
    pub(super) fn key_names(&self, keys: &[Bound]) -> Vec<String> {
        keys.iter().map(|key| name_of_key(key, |place| self.field(place)).0).collect()
    }

    /// Name of the reservoir's column of group numbers by these keys.
    pub(super) fn group_column(&self, keys: &[Bound]) -> String {
        format!("group by {}", self.key_names(keys).join(", "))
    }

    /// The columns that the plan reads, dense: one row per record.
    pub(super) fn project(&self, batch: &Batch) -> RecordBatch {
        let columns = self.columns.iter().map(|column| dense(batch, *column)).collect();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.len()));
        RecordBatch::try_new_with_options(Arc::clone(self.schema_read().arrow()), columns, &options)
            .expect("the input has the columns that the plan was bound to")
    }

    /// The key of a record, given by the columns that the keys read.
    pub(super) fn key_of(&self, grouping: &Grouping, fields: &[ArrayRef]) -> Vec<ArrayRef> {
        let given = grouping.columns();
        let column = |place: usize| match given.iter().position(|column| *column == place) {
            Some(found) => Arc::clone(&fields[found]),
            None => new_null_array(&self.schema.fields()[self.columns[place]].data_type.to_arrow(), 1),
        };
        let columns: Vec<ArrayRef> = (0..self.columns.len()).map(column).collect();
        // Fields that the keys do not read are null here, whether they can be or not.
        let field = |(place, column): (usize, &ArrayRef)| {
            ArrowField::new(place.to_string(), column.data_type().clone(), true)
        };
        let schema = ArrowSchema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>());
        let record = RecordBatch::try_new(Arc::new(schema), columns).expect("each column has one row");
        // As of records, a key that cannot be computed is null.
        grouping.keys.iter().map(|key| key.values_or_nulls(&record).array).collect()
    }
}

/// One column of a batch, one row per record.
pub(super) fn dense(batch: &Batch, column: usize) -> ArrayRef {
    let column = batch.column(column);
    match batch.selection() {
        None if batch.is_empty() => column.slice(0, 0),
        None => column.slice(batch.row(0) as usize, batch.len()),
        Some(rows) => {
            let rows = UInt32Array::from(rows.to_vec());
            take(column, &rows, None).expect("selected rows are in the columns")
        }
    }
}
