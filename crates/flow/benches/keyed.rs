//! How many records per second go through two keyed stages of four tasks each, merged in order after each:
//! the shape of a job with two keys, without its work.
//!
//! `cargo bench -p thalweg-flow --bench keyed`
//!
//! One item is a record; the argument is the number of workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow_buffer::ScalarBuffer;
use divan::Bencher;
use divan::counter::ItemsCount;
use expect_test::expect;
use thalweg_flow::{
    Decoded, Decoder, Graph, Input, InputId, JobOptions, JobState, NodeId, Operator, OperatorNode, Output,
    Partitioning, Payload, Poll, RawBlock, Runtime, Schedule, Source, SourceNode, SystemClock,
};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs};

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("ts", DataType::Int64),
        Field::new("card", DataType::String),
        Field::new("merchant", DataType::String),
        Field::new("amount", DataType::Float64),
    ])
}

struct Offsets {
    next: u64,
    total: u64,
}

impl Source for Offsets {
    fn poll(&mut self, max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        let count = (self.total - self.next).min(max_bytes as u64 / 32) as u32;
        if count == 0 {
            return Ok(Poll::End);
        }
        let block = RawBlock { partition: 0, first: self.next, count, payload: Payload::Offsets };
        self.next += u64::from(count);
        Ok(Poll::Block(block))
    }

    fn drain(&mut self) {
        self.total = self.next;
    }
}

/// A short text, as the inline form of an Arrow view.
fn name(letter: u8, number: u64) -> u128 {
    let mut view = [0_u8; 16];
    view[0] = 8;
    view[4] = letter;
    let mut rest = number;
    for digit in view[5..12].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    u128::from_le_bytes(view)
}

struct Make;

impl Decoder for Make {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, _arrival: Micros) -> Result<Decoded, Error> {
        let offsets = block.first..block.first + u64::from(block.count);
        let mix = |offset: u64| offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let views = |letter: u8, count: u64, shift: u32| {
            let views: Vec<u128> =
                offsets.clone().map(|offset| name(letter, (mix(offset) >> shift) % count)).collect();
            StringViewArray::try_new(views.into(), [], None)
                .map_err(|cause| Error::internal("short texts").with_source(cause))
        };
        let times: ScalarBuffer<Micros> = offsets.clone().map(|offset| offset as i64).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::new(times.clone(), None)),
            Arc::new(views(b'c', 100_000, 0)?),
            Arc::new(views(b'm', 1_000, 17)?),
            Arc::new(
                offsets.clone().map(|offset| (mix(offset) % 10_000) as f64 / 100.0).collect::<Float64Array>(),
            ),
        ];
        let records = RecordBatch::try_new(Arc::clone(schema().arrow()), columns)
            .map_err(|cause| Error::internal("a batch").with_source(cause))?;
        Ok(Decoded::new(Batch::new(range, records, times, Seqs::Dense(range.start))))
    }
}

struct Pass;

impl Operator for Pass {
    fn process(&mut self, _input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        out.emit(0, batch);
        Ok(())
    }
}

#[derive(Default)]
struct Total {
    records: AtomicU64,
    out_of_order: AtomicU64,
    /// Of all names, in order.
    digest: AtomicU64,
}

struct Count {
    total: Arc<Total>,
    next: i64,
}

impl Operator for Count {
    fn process(&mut self, _input: InputId, batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
        let names = batch.records().column(1).as_string_view();
        let mut digest = self.total.digest.load(Ordering::Relaxed);
        for row in batch.row_numbers() {
            digest = digest.rotate_left(1) ^ names.views()[row as usize] as u64;
            if batch.times()[row as usize] != self.next {
                self.total.out_of_order.fetch_add(1, Ordering::Relaxed);
            }
            self.next += 1;
        }
        self.total.records.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.total.digest.store(digest, Ordering::Relaxed);
        Ok(())
    }
}

fn graph(records: u64, total: &Arc<Total>) -> Graph {
    let operator = |name: &str, from: NodeId, partitioning, tasks, outputs, factory| OperatorNode {
        name: name.into(),
        inputs: vec![Input::new(from, 0, partitioning)],
        outputs,
        factory,
        tasks,
        parallelism: None,
        schedule: Schedule::default(),
        publishes: false,
        apart: false,
    };
    let total = Arc::clone(total);
    let stage = |name: &str, from: NodeId, column: usize| {
        let pass = Box::new(|_: &_| Ok(Box::new(Pass) as Box<dyn Operator>));
        operator(name, from, Partitioning::Key(vec![column]), 4, vec![schema()], pass)
    };
    Graph {
        job: "keyed".into(),
        sources: vec![SourceNode {
            name: "records".into(),
            source: Box::new(Offsets { next: 0, total: records }),
            by_time: false,
            decoder: Box::new(|_| Ok(Box::new(Make))),
            parallelism: 1,
            schema: schema(),
            others: Vec::new(),
        }],
        operators: vec![
            stage("card", NodeId::Source(0), 1),
            stage("merchant", NodeId::Operator(0), 2),
            operator(
                "count",
                NodeId::Operator(1),
                Partitioning::Global,
                1,
                Vec::new(),
                Box::new(move |_| Ok(Box::new(Count { total: Arc::clone(&total), next: 0 }))),
            ),
        ],
    }
}

/// Sends records through the job on `workers` workers.
fn run(records: u64, workers: usize) -> Arc<Total> {
    let total = Arc::new(Total::default());
    let runtime = Runtime::new(workers, Arc::new(SystemClock));
    let job =
        runtime.start(graph(records, &total), JobOptions::default()).expect("a graph without a mistake");
    assert_eq!(job.wait(), JobState::Done);
    assert_eq!(total.records.load(Ordering::Relaxed), records);
    assert_eq!(total.out_of_order.load(Ordering::Relaxed), 0);
    total
}

#[divan::bench(args = [1, 2], sample_count = 5, sample_size = 1)]
fn keyed(bencher: Bencher<'_, '_>, workers: usize) {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let records: u64 = if is_measured { 10_000_000 } else { 100_000 };
    bencher.counter(ItemsCount::new(records as usize)).bench(|| run(records, workers));
}

/// The sink sees the same names in the same order on any number of workers.
fn check() {
    let mut table = String::new();
    for workers in [1, 2] {
        let total = run(100_000, workers);
        let (records, digest) = (total.records.load(Ordering::Relaxed), total.digest.load(Ordering::Relaxed));
        table += &format!("{workers} workers: {records} records, digest {digest:016x}\n");
    }
    expect![[r#"
        1 workers: 100000 records, digest 663af0e533ec312a
        2 workers: 100000 records, digest 663af0e533ec312a
    "#]]
    .assert_eq(&table);
}

fn main() {
    check();
    divan::main();
}
