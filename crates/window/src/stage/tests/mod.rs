//! The windows of a stage: readable cases through one `check` helper, and a naive oracle that recomputes every window
//! from all records.

mod bounded;
mod cases;
mod crash;
mod guard;
mod hashes;
mod live;
mod naive;
mod oracle;
mod order;
mod restored;
mod semantics;
mod world;

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs, Value};

use super::{Answers, Stage, StageOptions};
use crate::query::Query;
use crate::test_store;

/// A record of the test stream.
#[derive(Clone, Debug, Default, PartialEq)]
struct Record {
    time: Micros,
    /// Its order number, which others may have too; `None` where records are numbered one by one.
    seq: Option<u64>,
    card: Option<String>,
    shop: Option<String>,
    x: Option<f64>,
    k: Option<i64>,
    id: Option<String>,
}

const ID: usize = 4;

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("card", DataType::String).nullable(),
        Field::new("shop", DataType::String).nullable(),
        Field::new("x", DataType::Float64).nullable(),
        Field::new("k", DataType::Int64).nullable(),
        Field::new("id", DataType::String).nullable(),
    ])
}

/// Records as a batch with order numbers from `first`, or with their own.
fn batch(records: &[Record], first: u64) -> Batch {
    let texts = |text: fn(&Record) -> Option<&str>| -> ArrayRef {
        Arc::new(StringViewArray::from_iter(records.iter().map(text)))
    };
    let columns: Vec<ArrayRef> = vec![
        texts(|record| record.card.as_deref()),
        texts(|record| record.shop.as_deref()),
        Arc::new(Float64Array::from_iter(records.iter().map(|record| record.x))),
        Arc::new(Int64Array::from_iter(records.iter().map(|record| record.k))),
        texts(|record| record.id.as_deref()),
    ];
    let times: Vec<Micros> = records.iter().map(|record| record.time).collect();
    let batch = RecordBatch::try_new(Arc::clone(schema().arrow()), columns).unwrap();
    let own: Option<Vec<u64>> = records.iter().map(|record| record.seq).collect();
    let (range, seqs) = match own.filter(|own| !own.is_empty()) {
        Some(own) => (SeqRange::new(own[0], own[own.len() - 1] + 1), Seqs::Each(own.into())),
        None => (SeqRange::new(first, first + records.len() as u64), Seqs::Dense(first)),
    };
    Batch::new(range, batch, times.into(), seqs)
}

fn stage(queries: &[(&str, &str)], options: StageOptions) -> Stage {
    let mut stage = Stage::new(&schema(), options, test_store());
    let planned: Vec<_> = queries
        .iter()
        .map(|(name, text)| {
            let query = Query::parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)));
            stage.plan(name, &query).unwrap_or_else(|error| panic!("{}", error.render(text)))
        })
        .collect();
    stage.add_queries(&planned).unwrap();
    stage
}

/// Values of every query's outputs for each record of a batch.
fn values(answers: &Answers, records: usize) -> Vec<Vec<Value>> {
    (0..records)
        .map(|row| {
            answers
                .values
                .iter()
                .flat_map(|query| match Value::at(query, row) {
                    Value::Struct(outputs) => outputs.into_iter().map(|(_, value)| value).collect(),
                    other => vec![other],
                })
                .collect()
        })
        .collect()
}

/// Runs records through a stage in batches of the given sizes, the last one repeated.
fn run(stage: &mut Stage, records: &[Record], sizes: &[usize]) -> Vec<Vec<Value>> {
    let mut answered = Vec::new();
    let mut sizes = sizes.iter().copied().chain(std::iter::repeat(*sizes.last().unwrap_or(&1)));
    let mut from = 0;
    while from < records.len() {
        let to = records.len().min(from + sizes.next().unwrap().max(1));
        let answers = stage.answer(&batch(&records[from..to], from as u64)).unwrap();
        answered.extend(values(&answers, to - from));
        from = to;
    }
    answered
}
