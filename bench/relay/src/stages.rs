//! Source, relay and sink, and the graph of them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use hdrhistogram::Histogram;
use thalweg_flow::{
    Decoded, Decoder, Graph, Input, InputId, NodeId, Operator, OperatorNode, Output, Partitioning, Payload,
    Poll, RawBlock, Schedule, Source, SourceNode,
};
use thalweg_types::{Batch, Error, Micros, SeqRange, Seqs};
use xxhash_rust::xxh3::xxh3_64;

use crate::Arguments;
use crate::meter::{Meter, histogram};
use crate::packets::{self, Columns};

/// One packet of so many is looked at for its latency: packets of a batch arrive together.
const SAMPLE: usize = 16;

/// How long a source waits that is ahead of its schedule.
const AHEAD: Duration = Duration::from_micros(50);

/// Each stage has as many tasks.
pub(crate) fn graph<const P: usize>(name: &str, arguments: &Arguments, meter: &Arc<Meter>) -> Graph {
    let tasks = arguments.tasks.unwrap_or(arguments.workers as u32).max(1);
    let input = |from| {
        let mut input = Input::new(from, 0, Partitioning::Shuffle);
        input.buffer = arguments.buffer.unwrap_or(input.buffer);
        input
    };
    let operator = |name: &str, from, outputs, factory| OperatorNode {
        name: name.into(),
        inputs: vec![input(from)],
        outputs,
        factory,
        tasks,
        parallelism: None,
        schedule: Schedule::default(),
        publishes: false,
        apart: false,
    };
    let numbers = Numbers {
        next: 0,
        packet: P,
        block: arguments.block.unwrap_or(u64::MAX).max(1),
        until: Duration::from_secs_f64(arguments.seconds),
        meter: Arc::clone(meter),
    };
    let meter = Arc::clone(meter);
    Graph {
        job: name.into(),
        sources: vec![SourceNode {
            name: "packets".into(),
            source: Box::new(numbers),
            by_time: false,
            decoder: Box::new(|_| Ok(Box::new(Make::<P>(Columns::new())))),
            parallelism: tasks,
            schema: packets::schema(),
            others: Vec::new(),
        }],
        operators: vec![
            operator(
                "relay",
                NodeId::Source(0),
                vec![packets::schema()],
                Box::new(|_| Ok(Box::new(Relay::<P>(Columns::new())))),
            ),
            operator(
                "digest",
                NodeId::Operator(0),
                Vec::new(),
                Box::new(move |_| Ok(Box::new(Digest { meter: Arc::clone(&meter), latencies: histogram() }))),
            ),
        ],
    }
}

/// Hands out numbers; the decoder makes the packets.
struct Numbers {
    next: u64,
    packet: usize,
    block: u64,
    until: Duration,
    meter: Arc<Meter>,
}

impl Source for Numbers {
    fn poll(&mut self, max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        if self.meter.elapsed() >= self.until {
            return Ok(Poll::End);
        }
        let due = self.meter.due().saturating_sub(self.next);
        if due == 0 {
            return Ok(Poll::PendingUntil(Instant::now() + AHEAD));
        }
        let room = ((max_bytes / self.packet) as u64).max(1);
        let count = due.min(room).min(self.block).min(1 << 20);
        let block =
            RawBlock { partition: 0, first: self.next, count: count as u32, payload: Payload::Offsets };
        self.meter.add_made(self.next, count);
        self.next += count;
        Ok(Poll::Block(block))
    }

    fn drain(&mut self) {
        self.until = Duration::ZERO;
    }
}

struct Make<const P: usize>(Columns);

impl<const P: usize> Decoder for Make<P> {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, _arrival: Micros) -> Result<Decoded, Error> {
        let count = block.count as usize;
        let mut data = self.0.data.take(count * P);
        data.resize(count * P, 0);
        for (number, packet) in (block.first..).zip(data.as_chunks_mut::<P>().0) {
            packets::write(number, packet);
        }
        let records = self.0.batch::<P>(data, count, range, Seqs::Dense(range.start))?;
        Ok(Decoded::new(records))
    }
}

/// Copies every packet by itself, wherever it lies.
struct Relay<const P: usize>(Columns);

impl<const P: usize> Operator for Relay<P> {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let packets = batch.column(0).as_binary_view();
        let mut data = self.0.data.take(batch.len() * P);
        for row in batch.row_numbers() {
            data.extend_from_slice(packets.value(row as usize));
        }
        let seqs = match batch.selection() {
            None => Seqs::Dense(batch.seq(batch.row(0))),
            Some(_) => Seqs::Each(batch.row_numbers().map(|row| batch.seq(row)).collect()),
        };
        out.emit(0, self.0.batch::<P>(data, batch.len(), batch.range(), seqs)?);
        Ok(())
    }
}

struct Digest {
    meter: Arc<Meter>,
    latencies: Histogram<u64>,
}

impl Operator for Digest {
    fn process(&mut self, _: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        let packets = batch.column(0).as_binary_view();
        let digest = batch
            .row_numbers()
            .fold(0_u64, |sum, row| sum.wrapping_add(xxh3_64(packets.value(row as usize))));
        self.meter.add_taken(batch.len() as u64, digest);
        let now = self.meter.elapsed().as_nanos() as u64;
        for row in batch.row_numbers().step_by(SAMPLE) {
            let made_at = self.meter.made_at(packets::number(packets.value(row as usize)));
            self.latencies.saturating_record(now.saturating_sub(made_at));
        }
        let sleep = self.meter.sleep();
        if !sleep.is_zero() {
            thread::sleep(sleep);
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        self.meter.add_latencies(&self.latencies);
        Ok(())
    }
}
