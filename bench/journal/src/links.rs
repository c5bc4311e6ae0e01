//! Messages over the engine's rings: a source on one worker, a receiver on the others, and nothing else to do.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use arrow_array::cast::AsArray as _;
use thalweg_flow::{
    Decoded, Decoder, Graph, Input, InputId, JobOptions, JobState, NodeId, Operator, OperatorNode, Output,
    Partitioning, Payload, Poll, RawBlock, Runtime, Schedule, Source, SourceNode, SystemClock,
};
use thalweg_types::{Batch, Error, Micros, SeqRange, Seqs};

use crate::messages;

/// Sends batches that are there for as long as it takes; the messages that arrived, and the seconds.
pub(crate) fn run(batches: Vec<Batch>, by_key: bool, workers: usize, time: Duration) -> Result<(u64, f64)> {
    let batches: Arc<[Batch]> = batches.into();
    let arrived = Arc::new(AtomicU64::new(0));
    let sent = Arc::new(AtomicU64::new(0));
    let runtime = Runtime::new(workers, Arc::new(SystemClock));
    let partitioning = if by_key { Partitioning::Key(vec![messages::HOST]) } else { Partitioning::Shuffle };
    let tasks = workers as u32;
    let graph = Graph {
        job: "links".into(),
        sources: vec![SourceNode {
            name: "messages".into(),
            source: Box::new(Numbers {
                batches: Arc::clone(&batches),
                next: 0,
                turn: 0,
                until: Instant::now() + time,
                sent: Arc::clone(&sent),
            }),
            by_time: false,
            decoder: Box::new(move |_| Ok(Box::new(Ready(Arc::clone(&batches))))),
            parallelism: tasks,
            schema: messages::schema(),
            others: Vec::new(),
        }],
        operators: vec![OperatorNode {
            name: "receiver".into(),
            inputs: vec![Input::new(NodeId::Source(0), 0, partitioning)],
            outputs: Vec::new(),
            factory: Box::new({
                let arrived = Arc::clone(&arrived);
                move |_| {
                    Ok(Box::new(Receive { arrived: Arc::clone(&arrived), copies: by_key, copy: Vec::new() }))
                }
            }),
            tasks,
            parallelism: None,
            schedule: Schedule::default(),
            publishes: false,
            apart: false,
        }],
    };
    let started = Instant::now();
    let job = runtime.start(graph, JobOptions::default())?;
    let state = job.wait();
    let seconds = started.elapsed().as_secs_f64();
    ensure!(state == JobState::Done, "the job ended as {state:?}");
    let (sent, arrived) = (sent.load(Ordering::Relaxed), arrived.load(Ordering::Relaxed));
    ensure!(sent == arrived, "{sent} messages were sent and {arrived} arrived");
    Ok((arrived, seconds))
}

/// Hands out the numbers of the batches, round and round.
struct Numbers {
    batches: Arc<[Batch]>,
    next: u64,
    turn: usize,
    until: Instant,
    sent: Arc<AtomicU64>,
}

impl Source for Numbers {
    fn poll(&mut self, _max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        if Instant::now() >= self.until {
            return Ok(Poll::End);
        }
        let turn = self.turn % self.batches.len();
        let count = self.batches[turn].len() as u32;
        let payload = Payload::Other { data: Arc::new(turn), bytes: count as usize * messages::BYTES };
        let block = RawBlock { partition: 0, first: self.next, count, payload };
        self.next += u64::from(count);
        self.turn = turn + 1;
        self.sent.fetch_add(u64::from(count), Ordering::Relaxed);
        Ok(Poll::Block(block))
    }

    fn drain(&mut self) {
        self.until = Instant::now();
    }
}

/// A decoder for which everything is decoded already.
struct Ready(Arc<[Batch]>);

impl Decoder for Ready {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, _arrival: Micros) -> Result<Decoded, Error> {
        let Payload::Other { data, .. } = &block.payload else {
            return Err(Error::internal("a block of this source has the number of a batch"));
        };
        let turn = data.downcast_ref::<usize>().copied().unwrap_or_default();
        let batch = &self.0[turn];
        let times = batch.times().clone();
        let records = Batch::new(range, batch.records().clone(), times, Seqs::Dense(range.start));
        Ok(Decoded::new(records))
    }
}

/// Counts what arrives, and copies the texts and numbers of each message where that is asked for.
struct Receive {
    arrived: Arc<AtomicU64>,
    copies: bool,
    copy: Vec<u8>,
}

impl Operator for Receive {
    fn process(&mut self, _: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        if self.copies {
            self.copy.clear();
            for row in batch.row_numbers() {
                for column in batch.records().columns() {
                    if let Some(texts) = column.as_string_view_opt() {
                        self.copy.extend_from_slice(texts.value(row as usize).as_bytes());
                    } else if let Some(numbers) = column.as_primitive_opt::<arrow_array::types::Float64Type>()
                    {
                        self.copy.extend_from_slice(&numbers.value(row as usize).to_le_bytes());
                    }
                }
            }
            black_box(&self.copy);
        }
        self.arrived.fetch_add(batch.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}
