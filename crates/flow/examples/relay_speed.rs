//! How many small packets per second go through a relay of three stages, each in tasks of its own: a source
//! makes packets of 50 bytes, a relay copies every one into new buffers, a sink digests every one.
//! Between them are shuffles, so nothing is chained.
//!
//! CPU time is the figure to compare on a machine that others use, too.
//!
//! `cargo run --release -p thalweg-flow --example relay_speed -- [PACKETS] [RUNS]`
//!
//! The digest is the sum of the packets' digests: it changes only if a packet is lost, doubled or damaged.

#[path = "support/cpu.rs"]
mod cpu;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch};
use thalweg_flow::{
    BufferPool, Decoded, Decoder, Graph, Input, InputId, JobOptions, JobState, NodeId, Operator,
    OperatorNode, Output, Partitioning, Payload, Poll, RawBlock, Runtime, Schedule, Source, SourceNode,
    SystemClock,
};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs};
use xxhash_rust::xxh3::xxh3_64;

const PACKET: usize = 50;

fn schema() -> Schema {
    Schema::new(vec![Field::new("packet", DataType::Bytes)])
}

/// Hands out offsets; the decoder makes the packets.
struct Offsets {
    next: u64,
    total: u64,
}

impl Source for Offsets {
    fn poll(&mut self, max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        let count = (self.total - self.next).min((max_bytes / PACKET) as u64) as u32;
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

/// Columns of packets, whose buffers come back when the last reader is done with them.
#[derive(Default)]
struct Packets {
    data: BufferPool<u8>,
    views: BufferPool<u128>,
    times: BufferPool<Micros>,
}

impl Packets {
    /// `count` packets that lie one after the other in `data`.
    fn batch(&mut self, data: Vec<u8>, count: usize, range: SeqRange, seqs: Seqs) -> Result<Batch, Error> {
        let mut views = self.views.take(count);
        views.extend(data.as_chunks::<PACKET>().0.iter().enumerate().map(|(index, packet)| {
            let prefix = u32::from_le_bytes([packet[0], packet[1], packet[2], packet[3]]);
            PACKET as u128 | u128::from(prefix) << 32 | ((index * PACKET) as u128) << 96
        }));
        let mut times = self.times.take(count);
        times.resize(count, 0);
        let (views, times) = (self.views.lend(views), self.times.lend(times));
        let packets = BinaryViewArray::try_new(views.into(), [self.data.lend(data)], None)
            .map_err(|cause| Error::internal("packets do not fit their views").with_source(cause))?;
        let records = RecordBatch::try_new(Arc::clone(schema().arrow()), vec![Arc::new(packets) as ArrayRef])
            .map_err(|cause| Error::internal("a batch of packets").with_source(cause))?;
        Ok(Batch::new(range, records, times.into(), seqs))
    }
}

struct MakePackets(Packets);

impl Decoder for MakePackets {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, _arrival: Micros) -> Result<Decoded, Error> {
        let count = block.count as usize;
        let mut data = self.0.data.take(count * PACKET);
        data.resize(count * PACKET, 0);
        for (offset, packet) in (block.first..).zip(data.as_chunks_mut::<PACKET>().0) {
            let mut word = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for bytes in packet.as_chunks_mut::<8>().0 {
                *bytes = word.to_le_bytes();
                word = word.rotate_left(23) ^ offset;
            }
        }
        let records = self.0.batch(data, count, range, Seqs::Dense(range.start))?;
        Ok(Decoded { records, rejects: None })
    }
}

/// Copies every packet by itself, wherever it lies.
struct Relay(Packets);

impl Operator for Relay {
    fn process(&mut self, _input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let packets = batch.column(0).as_binary_view();
        let mut data = self.0.data.take(batch.len() * PACKET);
        for row in batch.row_numbers() {
            data.extend_from_slice(packets.value(row as usize));
        }
        let seqs = match batch.selection() {
            None => Seqs::Dense(batch.seq(batch.row(0))),
            Some(_) => Seqs::Each(batch.row_numbers().map(|row| batch.seq(row)).collect()),
        };
        out.emit(0, self.0.batch(data, batch.len(), batch.range(), seqs)?);
        Ok(())
    }
}

#[derive(Default)]
struct Total {
    packets: AtomicU64,
    digest: AtomicU64,
}

struct Digest(Arc<Total>);

impl Operator for Digest {
    fn process(&mut self, _input: InputId, batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
        let packets = batch.column(0).as_binary_view();
        let digest = batch
            .row_numbers()
            .fold(0_u64, |sum, row| sum.wrapping_add(xxh3_64(packets.value(row as usize))));
        self.0.packets.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.0.digest.fetch_add(digest, Ordering::Relaxed);
        Ok(())
    }
}

/// Each stage has as many tasks as there are workers.
fn graph(packets: u64, tasks: u32, total: &Arc<Total>) -> Graph {
    let operator = |name: &str, from: NodeId, outputs: Vec<Schema>, factory| OperatorNode {
        name: name.into(),
        inputs: vec![Input::new(from, 0, Partitioning::Shuffle)],
        outputs,
        factory,
        tasks,
        parallelism: None,
        schedule: Schedule::default(),
    };
    let total = Arc::clone(total);
    Graph {
        job: "relay".into(),
        sources: vec![SourceNode {
            name: "packets".into(),
            source: Box::new(Offsets { next: 0, total: packets }),
            decoder: Box::new(|_| Ok(Box::new(MakePackets(Packets::default())))),
            parallelism: tasks,
            schema: schema(),
        }],
        operators: vec![
            operator(
                "relay",
                NodeId::Source(0),
                vec![schema()],
                Box::new(|_| Ok(Box::new(Relay(Packets::default())))),
            ),
            operator(
                "digest",
                NodeId::Operator(0),
                Vec::new(),
                Box::new(move |_| Ok(Box::new(Digest(Arc::clone(&total))))),
            ),
        ],
    }
}

fn main() -> Result<(), Error> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let packets = numbers.next().unwrap_or(40_000_000);
    let runs = numbers.next().unwrap_or(3);
    for (workers, tasks) in [(1, 1), (2, 1), (2, 2)] {
        for _ in 0..runs {
            let total = Arc::new(Total::default());
            let runtime = Runtime::new(workers, Arc::new(SystemClock));
            let (start, cpu_before) = (Instant::now(), cpu::used());
            let job = runtime.start(graph(packets, tasks, &total), JobOptions::default())?;
            let state = job.wait();
            let seconds = start.elapsed().as_secs_f64();
            let cpu = (cpu::used() - cpu_before).as_nanos() as f64 / packets as f64;
            if state != JobState::Done {
                return Err(Error::internal(format!("the job ended as {state:?}")));
            }
            let stats = job.stats();
            let busy = |tasks: &[thalweg_flow::TaskStats]| {
                tasks.iter().map(|task| task.busy_nanos).sum::<u64>() as f64 / packets as f64
            };
            println!(
                "workers={workers} tasks={tasks} packets={} seconds={seconds:.3} rate={:.1}M/s cpu={cpu:.1}ns/packet digest={:016x} calls: make {:.1} relay {:.1} digest {:.1}",
                total.packets.load(Ordering::Relaxed),
                packets as f64 / seconds / 1e6,
                total.digest.load(Ordering::Relaxed),
                busy(&stats.sources[0].tasks),
                busy(&stats.operators[0].tasks),
                busy(&stats.operators[1].tasks),
            );
        }
    }
    Ok(())
}
