//! What the runtime adds to a record's latency at low load: single records, a millisecond apart, through a
//! source, a decoder, three operators and a sink, each in a task of its own. And what an idle job costs.
//!
//! `cargo run --release -p thalweg-flow --example hop_latency -- [RECORDS]`
//!
//! The clock starts when the source is woken and stops in the sink's `process`.

#[path = "support/cpu.rs"]
mod cpu;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use hdrhistogram::Histogram;
use thalweg_flow::{
    Decoded, Decoder, Graph, Input, InputId, JobOptions, JobState, NodeId, Operator, OperatorNode, Output,
    Partitioning, Payload, Poll, RawBlock, Runtime, Schedule, Source, SourceNode, SystemClock, Waker,
};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs};

fn schema() -> Schema {
    Schema::new(vec![Field::new("n", DataType::Int64)])
}

/// What the measuring thread, the source and the sink share.
struct Probe {
    start: Instant,
    allowed: AtomicU64,
    /// When the latest record was let go, in nanoseconds since the start.
    let_go: AtomicU64,
    seen: Mutex<Histogram<u64>>,
    waker: Mutex<Option<Waker>>,
}

impl Probe {
    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

struct OneByOne {
    probe: Arc<Probe>,
    next: u64,
    draining: bool,
}

impl Source for OneByOne {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        *self.probe.waker.lock().expect("nobody panics") = Some(waker);
        Ok(())
    }

    fn poll(&mut self, _max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        if self.next < self.probe.allowed.load(Ordering::Acquire) {
            let block = RawBlock { partition: 0, first: self.next, count: 1, payload: Payload::Offsets };
            self.next += 1;
            return Ok(Poll::Block(block));
        }
        Ok(if self.draining { Poll::End } else { Poll::Pending })
    }

    fn drain(&mut self) {
        self.draining = true;
    }
}

struct Make;

impl Decoder for Make {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, _arrival: Micros) -> Result<Decoded, Error> {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![block.first as i64]));
        let records = RecordBatch::try_new(Arc::clone(schema().arrow()), vec![column])
            .map_err(|cause| Error::internal("one number").with_source(cause))?;
        Ok(Decoded::new(Batch::new(range, records, vec![0].into(), Seqs::Dense(range.start))))
    }
}

struct Pass;

impl Operator for Pass {
    fn process(&mut self, _input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        out.emit(0, batch);
        Ok(())
    }
}

struct Stop(Arc<Probe>);

impl Operator for Stop {
    fn process(&mut self, _input: InputId, _batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
        let nanos = self.0.nanos() - self.0.let_go.load(Ordering::Acquire);
        let recorded = self.0.seen.lock().expect("nobody panics").record(nanos);
        recorded.map_err(|cause| Error::internal("record a latency").with_source(cause))
    }
}

fn graph(probe: &Arc<Probe>) -> Graph {
    let source = OneByOne { probe: Arc::clone(probe), next: 0, draining: false };
    let mut operators = Vec::new();
    for hop in 0..4 {
        let from = if hop == 0 { NodeId::Source(0) } else { NodeId::Operator(hop - 1) };
        let sink = (hop == 3).then(|| Arc::clone(probe));
        operators.push(OperatorNode {
            name: format!("hop {hop}").into(),
            inputs: vec![Input::new(from, 0, Partitioning::Key(vec![0]))],
            outputs: vec![schema()],
            factory: Box::new(move |_| {
                Ok(match &sink {
                    Some(probe) => Box::new(Stop(Arc::clone(probe))) as Box<dyn Operator>,
                    None => Box::new(Pass),
                })
            }),
            tasks: 1,
            parallelism: None,
            schedule: Schedule::default(),
            publishes: false,
            apart: false,
        });
    }
    Graph {
        job: "hops".into(),
        sources: vec![SourceNode {
            name: "one by one".into(),
            source: Box::new(source),
            by_time: false,
            decoder: Box::new(|_| Ok(Box::new(Make))),
            parallelism: 1,
            schema: schema(),
            others: Vec::new(),
        }],
        operators,
    }
}

fn main() -> Result<(), Error> {
    let records: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3_000);
    for workers in [1, 2] {
        let probe = Arc::new(Probe {
            start: Instant::now(),
            allowed: AtomicU64::new(0),
            let_go: AtomicU64::new(0),
            seen: Mutex::new(Histogram::new(3).expect("three digits are allowed")),
            waker: Mutex::default(),
        });
        let runtime = Runtime::new(workers, Arc::new(SystemClock));
        let job = runtime.start(graph(&probe), JobOptions::default())?;
        for record in 1..=records {
            std::thread::sleep(Duration::from_millis(1));
            probe.let_go.store(probe.nanos(), Ordering::Release);
            probe.allowed.store(record, Ordering::Release);
            if let Some(waker) = &*probe.waker.lock().expect("nobody panics") {
                waker.wake();
            }
            while probe.seen.lock().expect("nobody panics").len() < record && !job.state().is_final() {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let before = cpu::used();
        let idle = Duration::from_secs(2);
        std::thread::sleep(idle);
        let cost = cpu::used().saturating_sub(before);
        job.drain();
        let state = job.wait();
        if state != JobState::Done {
            return Err(Error::internal(format!("the job ended as {state:?}")));
        }
        let seen = probe.seen.lock().expect("nobody panics");
        println!(
            "workers={workers} records={records} p50={:.1}us p99={:.1}us p99.9={:.1}us idle={:.3}% of a core",
            seen.value_at_quantile(0.5) as f64 / 1e3,
            seen.value_at_quantile(0.99) as f64 / 1e3,
            seen.value_at_quantile(0.999) as f64 / 1e3,
            cost.as_secs_f64() / idle.as_secs_f64() * 100.0,
        );
    }
    Ok(())
}
