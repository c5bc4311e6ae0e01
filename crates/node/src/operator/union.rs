//! `union`: the records of several streams of the same fields as one stream, in the job's order.
//!
//! The runtime hands over a range input by input; the union puts rows back in order by their numbers. Records with
//! equal numbers (a stream that was split and is merged again) are in the order of the inputs.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_select::interleave::interleave;
use thalweg_flow::{InputId, Operator, Output};
use thalweg_types::{Batch, Error, Micros, Schema, Seq, SeqRange, Seqs};

use crate::job_file::keys::KeySpec;

use super::{Inputs, NamedOutput, OperatorCheck, OperatorPlugin, Prepared, Tasks};

pub struct Union;

impl OperatorPlugin for Union {
    fn name(&self) -> &'static str {
        "union"
    }

    fn doc(&self) -> &'static str {
        "merges streams with the same fields, in order"
    }

    fn page(&self) -> &'static str {
        include_str!("union.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        &[]
    }

    fn inputs(&self) -> Inputs {
        Inputs::Many
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let schema = check.input().schema.clone();
        for (stream, name) in check.inputs().iter().zip(check.input_names).skip(1) {
            if let Some(difference) = difference(&schema, &stream.schema) {
                let message = format!("{:?} and {name:?} differ: {difference}", check.input_names[0]);
                let hint = "bring them to the same fields with a `map` before".to_owned();
                check.error("input", message, Some(hint));
                return None;
            }
        }
        Some(prepare(check.inputs().len(), schema))
    }
}

/// A union of `inputs` streams with these fields.
pub(crate) fn prepare(inputs: usize, schema: Schema) -> Prepared {
    let outputs = vec![NamedOutput { name: "records".to_owned(), schema: schema.clone() }];
    Prepared::one(inputs, outputs, Tasks::One, move |_| {
        Ok(Box::new(UnionOperator { schema: schema.clone(), waiting: Vec::new() }))
    })
}

/// The difference of two schemas, by field name, type and place.
pub(crate) fn difference(a: &Schema, b: &Schema) -> Option<String> {
    for (place, field) in a.fields().iter().enumerate() {
        match b.fields().get(place) {
            None => return Some(format!("only the first has a field {:?}", field.name)),
            Some(other) if other.name != field.name => {
                return Some(format!("field {} is {:?} and {:?}", place + 1, field.name, other.name));
            }
            Some(other) if other.data_type != field.data_type => {
                return Some(format!(
                    "field {:?} is of type {} and {}",
                    field.name, field.data_type, other.data_type
                ));
            }
            Some(_) => {}
        }
    }
    b.fields().get(a.fields().len()).map(|field| format!("only the second has a field {:?}", field.name))
}

struct UnionOperator {
    schema: Schema,
    /// Batches of the range at hand, in the order of the inputs.
    waiting: Vec<Batch>,
}

impl Operator for UnionOperator {
    fn process(&mut self, _: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        if !batch.is_empty() {
            self.waiting.push(batch);
        }
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        let batches = std::mem::take(&mut self.waiting);
        let mut places: Vec<usize> = (0..batches.len()).collect();
        places.sort_by_key(|place| first(&batches[*place]));
        // Sources take turns by whole blocks, so batches of different inputs rarely overlap.
        if places.windows(2).all(|pair| last(&batches[pair[0]]) < first(&batches[pair[1]])) {
            for place in places {
                out.emit(0, batches[place].clone());
            }
        } else {
            out.emit(0, merge(range, &batches, &self.schema)?);
        }
        Ok(())
    }
}

fn first(batch: &Batch) -> Seq {
    batch.seq(batch.row(0))
}

fn last(batch: &Batch) -> Seq {
    batch.seq(batch.row(batch.len() - 1))
}

pub(crate) fn merge(range: SeqRange, batches: &[Batch], schema: &Schema) -> Result<Batch, Error> {
    let batches: Vec<Batch> = batches.iter().map(Batch::compact).collect();
    let mut order: Vec<(Seq, usize, usize)> = Vec::with_capacity(batches.iter().map(Batch::len).sum());
    for (number, batch) in batches.iter().enumerate() {
        order.extend((0..batch.len()).map(|row| (batch.seq(row as u32), number, row)));
    }
    order.sort_by_key(|(seq, ..)| *seq);
    let places: Vec<(usize, usize)> = order.iter().map(|(_, batch, row)| (*batch, *row)).collect();
    let seqs: Arc<[Seq]> = order.iter().map(|(seq, ..)| *seq).collect();
    let times: Vec<Micros> = places.iter().map(|(batch, row)| batches[*batch].times()[*row]).collect();
    let columns = (0..schema.fields().len())
        .map(|place| {
            let parts: Vec<&dyn arrow_array::Array> =
                batches.iter().map(|batch| batch.column(place).as_ref()).collect();
            interleave(&parts, &places)
        })
        .collect::<Result<Vec<ArrayRef>, _>>()
        .map_err(|error| Error::internal("merge the inputs of a union").with_source(error))?;
    let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
    let records = RecordBatch::try_new_with_options(Arc::clone(schema.arrow()), columns, &options)
        .map_err(|error| Error::internal("merge the inputs of a union").with_source(error))?;
    Ok(Batch::new(range, records, times.into(), Seqs::Each(seqs)))
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use thalweg_flow::collect;
    use thalweg_types::{DataType, Field};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![Field::new("n", DataType::Int64)])
    }

    fn batch(rows: &[(Seq, i64)]) -> Batch {
        let values: Vec<i64> = rows.iter().map(|(_, value)| *value).collect();
        let seqs: Arc<[Seq]> = rows.iter().map(|(seq, _)| *seq).collect();
        let records =
            RecordBatch::try_new(Arc::clone(schema().arrow()), vec![Arc::new(Int64Array::from(values))])
                .unwrap();
        Batch::new(SeqRange::new(0, 10), records, vec![0; rows.len()].into(), Seqs::Each(seqs))
    }

    fn check(inputs: &[&[(Seq, i64)]], expected: &[(Seq, i64)]) {
        let mut operator = UnionOperator { schema: schema(), waiting: Vec::new() };
        let emitted = collect(|out| {
            for (port, rows) in inputs.iter().enumerate() {
                operator.process(InputId { port, task: 0 }, batch(rows), out)?;
            }
            operator.complete(SeqRange::new(0, 10), out)
        })
        .unwrap();
        let rows: Vec<(Seq, i64)> = emitted
            .iter()
            .flat_map(|(_, batch)| {
                let column = batch.column(0).as_primitive::<Int64Type>().clone();
                batch
                    .row_numbers()
                    .map(|row| (batch.seq(row), column.value(row as usize)))
                    .collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn rows_of_all_inputs_come_out_in_order() {
        check(&[&[(0, 1), (3, 2)], &[(1, 3), (4, 4)]], &[(0, 1), (1, 3), (3, 2), (4, 4)]);
        check(&[&[(5, 1), (6, 2)], &[(1, 3), (4, 4)]], &[(1, 3), (4, 4), (5, 1), (6, 2)]);
        check(&[&[], &[(1, 3)]], &[(1, 3)]);
    }

    #[test]
    fn equal_numbers_stand_in_the_order_of_the_inputs() {
        check(&[&[(1, 1), (2, 2)], &[(1, 3), (2, 4)]], &[(1, 1), (1, 3), (2, 2), (2, 4)]);
        check(&[&[(1, 1), (2, 2)], &[(0, 3), (2, 4)]], &[(0, 3), (1, 1), (2, 2), (2, 4)]);
    }
}
