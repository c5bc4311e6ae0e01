//! Outputs of queries: the value of one aggregate as it is, or what an expression makes of several.
//!
//! Aggregates alone have state; expressions over them are computed for each answer.
//!
//! Not here: where the values of aggregates come from (`leaf`), since when they count (`queries`).

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, RecordBatchOptions};
use arrow_buffer::ScalarBuffer;
use arrow_schema::SchemaRef;
use thalweg_expr::{Bound, SqlError, Values};
use thalweg_types::{DataType, Micros};

use super::queries::QueryState;
use crate::agg::floats;
use crate::plan::{Clamp, PlannedOutput, PlannedQuery};
use crate::query::schema_of;

/// How an output comes of the aggregates of its query.
pub(super) struct OutputState {
    /// Which of these.
    pub(super) calls: Range<usize>,
    /// The expression, and what it takes their values for.
    value: Option<(Bound, SchemaRef)>,
}

impl OutputState {
    pub(super) fn new(query: &PlannedQuery, output: &PlannedOutput) -> Self {
        let calls = &query.calls[output.calls.clone()];
        let value = output.value.as_ref().map(|value| {
            let types: Vec<DataType> = calls.iter().map(|call| call.data_type.clone()).collect();
            (value.clone(), Arc::clone(schema_of(&types).arrow()))
        });
        Self { calls: output.calls.clone(), value }
    }

    /// Its values for a batch of `count` answers; `calls` are those of all aggregates of the query.
    ///
    /// # Errors
    /// Where the expression fails as a whole, unless the query is guarded.
    pub(super) fn values(
        &self,
        calls: &[ArrayRef],
        count: usize,
        is_guarded: bool,
    ) -> Result<Values, SqlError> {
        let calls = &calls[self.calls.clone()];
        let Some((value, schema)) = &self.value else {
            return Ok(Values { array: Arc::clone(&calls[0]), misfits: Vec::new(), failure: None });
        };
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(Arc::clone(schema), calls.to_vec(), &options)
            .expect("aggregates give the types that the query was bound with");
        if is_guarded { Ok(value.values_or_nulls(&batch)) } else { value.values(&batch) }
    }
}

impl QueryState {
    /// Keeps the values of quantiles within those that their windows hold. `calls` are those of all aggregates of the query,
    /// as of these task times.
    pub(super) fn clamp(&self, calls: &mut [ArrayRef], task_times: &[Micros]) {
        for Clamp { of, rank, least, greatest } in &self.clamps {
            // A state of an earlier build has a quantile without the others, which then begin later.
            let is_known = |row: usize| {
                [least, greatest].into_iter().all(|bound| {
                    self.calls[*bound].since == self.calls[*of].since
                        || self.calls[*bound].filling(task_times[row]).is_none()
                })
            };
            let (low, high) = (floats(&calls[*least]), floats(&calls[*greatest]));
            let values = calls[*of].as_primitive::<Float64Type>();
            // NaN is above every number: no value is above it, and it is the least only of nothing else.
            let within = |row: usize, value: f64| match (
                *rank == 0.0 || value < low[row],
                *rank == 1.0 || value > high[row],
            ) {
                (true, _) => low[row],
                (_, true) => high[row],
                _ => value,
            };
            let clamped: ScalarBuffer<f64> = values
                .values()
                .iter()
                .enumerate()
                .map(
                    |(row, value)| {
                        if values.is_valid(row) && is_known(row) { within(row, *value) } else { *value }
                    },
                )
                .collect();
            calls[*of] = Arc::new(Float64Array::new(clamped, values.nulls().cloned()));
        }
    }
}
