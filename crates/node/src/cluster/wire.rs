//! The columns of a stage's input as frames have them: those of the stream, and the event time of each row.
//!
//! The time is a column of its own: what a record's time was at its door need not be among its fields any more.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_buffer::ScalarBuffer;
use arrow_schema::SchemaRef;
use thalweg_types::{DataType, Error, Field, Micros, Schema};

/// The column of event times, microseconds since 1970. No field of a job has brackets in its name.
const TIME: &str = "(time)";

/// The columns of frames for a stream with this schema.
pub fn wire_schema(stream: &Schema) -> Schema {
    let time = Field::new(TIME, DataType::Int64);
    Schema::new(stream.fields().iter().cloned().chain([time]).collect::<Vec<_>>())
}

/// Adds the event times to columns of a stream; `wire` is their [`wire_schema`].
///
/// # Errors
/// Of class internal where the columns are not those of the stream.
pub(super) fn to_wire(
    records: &RecordBatch,
    times: &ScalarBuffer<Micros>,
    wire: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let times: ArrayRef = Arc::new(Int64Array::new(times.clone(), None));
    let columns = records.columns().iter().cloned().chain([times]).collect();
    RecordBatch::try_new(Arc::clone(wire), columns).map_err(|error| {
        Error::internal("rows for a stage have other columns than its input").with_source(error)
    })
}

/// Takes the event times off again; `stream` is the schema without them.
///
/// # Errors
/// Of class internal where there are none.
pub(super) fn from_wire(
    records: &RecordBatch,
    stream: &SchemaRef,
) -> Result<(RecordBatch, ScalarBuffer<Micros>), Error> {
    let strange = || Error::internal("rows of a frame have other columns than the stage's input");
    let (times, columns) = records.columns().split_last().ok_or_else(strange)?;
    let times = times.as_primitive_opt::<Int64Type>().filter(|times| times.null_count() == 0);
    let times = times.ok_or_else(strange)?.values().clone();
    let options = RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
    let records = RecordBatch::try_new_with_options(Arc::clone(stream), columns.to_vec(), &options)
        .map_err(|error| strange().with_source(error))?;
    Ok((records, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_travel_with_their_rows_even_where_there_is_no_other_column() {
        for fields in [vec![Field::new("n", DataType::Int64)], Vec::new()] {
            let stream = Schema::new(fields);
            let wire = wire_schema(&stream);
            let columns: Vec<ArrayRef> =
                stream.fields().iter().map(|_| Arc::new(Int64Array::from(vec![7, 8])) as ArrayRef).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(2));
            let records =
                RecordBatch::try_new_with_options(Arc::clone(stream.arrow()), columns, &options).unwrap();
            let times = ScalarBuffer::from(vec![5, -6]);
            let sent = to_wire(&records, &times, wire.arrow()).unwrap();
            assert_eq!(from_wire(&sent, stream.arrow()).unwrap(), (records, times));
            assert!(from_wire(&sent, wire.arrow()).is_err());
        }
    }
}
