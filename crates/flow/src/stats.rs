//! Statistics of a running job, and their counters.
//!
//! Each counter has one writer, the task that it belongs to; readers see a recent value.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use thalweg_types::{Batch, Micros};

use crate::operator::{CacheCounts, JudgedCounts, TableCounts};

use crate::latency::Latencies;
use crate::{DatagramStats, LatencyCounts, PartitionStats, SourceProgress};

/// A look at a job while it runs; all counts are since its start, so rates are differences.
#[derive(Clone, Debug, Default)]
pub struct JobStats {
    /// Records that the sources gave.
    pub records: u64,
    /// Rows on the sources' output 1.
    pub rejects: u64,
    /// Number of the last cycle marker, 0 before the first.
    pub cycles: u64,
    /// The last tick.
    pub tick: Micros,
    /// The job's clock when this look was taken; lags are up to here.
    pub now: Micros,
    pub clock: ClockStats,
    pub sources: Vec<SourceStats>,
    pub operators: Vec<OperatorStats>,
    pub links: Vec<LinkStats>,
}

crate::figures! {
    /// How a job's clock and the machine's agree.
    pub struct ClockStats as "Clock" {
        /// Seconds of the job's clock minus the machine's, at the last tick.
        ahead as "offset_seconds": Micros, most, Gauge, Seconds, "thalweg_job_clock_offset_seconds",
        "Away from 0 for more than a minute: see [clocks](operations.md#clocks)";
        /// Times that the machine's clock was set by more than a second.
        jumps: u64, sum, Counter, Count, "thalweg_job_clock_jumps_total",
        "The log says when and how far: look at NTP";
    }
}

#[derive(Clone, Debug)]
pub struct SourceStats {
    pub name: Arc<str>,
    pub records: u64,
    pub bytes: u64,
    pub rejects: u64,
    pub progress: Option<SourceProgress>,
    /// For a source that receives datagrams.
    pub datagrams: Option<DatagramStats>,
    /// For a source that reads partitions of a log.
    pub partitions: Option<PartitionStats>,
    pub ended: bool,
    /// Held up because its decoders' rings are full.
    pub blocked: bool,
    /// Its decoders.
    pub tasks: Vec<TaskStats>,
}

#[derive(Clone, Debug)]
pub struct OperatorStats {
    pub name: Arc<str>,
    pub tasks: Vec<TaskStats>,
}

#[derive(Clone, Debug, Default)]
pub struct TaskStats {
    pub records_in: u64,
    pub records_out: u64,
    pub batches_in: u64,
    /// Time spent in the operator's own calls.
    pub busy_nanos: u64,
    /// What waits in the rings that lead to the task, and what it has in hand.
    pub queued_bytes: u64,
    /// As of the last tick or marker.
    pub state_bytes: u64,
    /// As of the last tick or marker; `None` where all state is in memory.
    pub cache: Option<CacheCounts>,
    /// As of the last tick or marker; `None` for a task that takes its records as they come.
    pub judged: Option<JudgedCounts>,
    /// As of the last tick or marker; `None` for a task that asks no table.
    pub table: Option<TableCounts>,
    /// Held up because a ring that it writes to is full.
    pub blocked: bool,
    pub worker: usize,
    /// Newest event time that the task has been given (decoders: have made). Looked at once per batch, at its last
    /// record, so a newer one in the middle of a batch does not show.
    pub newest: Option<Micros>,
    /// What [`Operator::waits_for_tick`](crate::Operator::waits_for_tick) said last.
    pub waits_for_tick: bool,
    /// What [`Operator::task_time`](crate::Operator::task_time) said last.
    pub task_time: Option<Micros>,
    /// From the numbering of records to the end of the call that they were given to. All records of a batch count
    /// as its oldest; rows that an operator held back count from what set them off.
    pub latency: LatencyCounts,
    /// For how long each cycle marker stopped the task; counted by marker. Not the last one, after which no record
    /// comes.
    pub markers: LatencyCounts,
    /// Processor time of the same. For the rest the task's thread did not run: it waited for a core, a lock or the disk.
    pub marker_cpu: LatencyCounts,
}

#[derive(Clone, Debug)]
pub struct LinkStats {
    pub from: Arc<str>,
    pub output: usize,
    pub to: Arc<str>,
    /// As the job file writes it, with columns by number.
    pub partitioning: String,
    /// Sent over the link so far.
    pub bytes: u64,
    pub queued_bytes: u64,
    /// How often a ring of the link became full.
    pub high_watermark_hits: u64,
    /// Both ends run as one task, so nothing is queued.
    pub chained: bool,
}

/// A counter with one writer: no locked instruction is needed.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A point in time with one writer.
pub(crate) struct Mark(AtomicI64);

impl Default for Mark {
    fn default() -> Self {
        Self(AtomicI64::new(Self::NONE))
    }
}

impl Mark {
    /// No event time: 292,000 years ago.
    const NONE: Micros = Micros::MIN;

    #[inline]
    pub(crate) fn raise(&self, to: Micros) {
        if to > self.0.load(Ordering::Relaxed) {
            self.0.store(to, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Option<Micros> {
        Some(self.0.load(Ordering::Relaxed)).filter(|time| *time != Self::NONE)
    }
}

/// Counters of one task of one operator or decoder.
#[derive(Default)]
pub(crate) struct TaskCounters {
    pub records_in: Counter,
    pub records_out: Counter,
    pub batches_in: Counter,
    pub busy_nanos: Counter,
    pub state_bytes: Counter,
    pub cache: Mutex<Option<CacheCounts>>,
    pub judged: Mutex<Option<JudgedCounts>>,
    pub table: Mutex<Option<TableCounts>>,
    pub blocked: AtomicBool,
    pub waits_for_tick: AtomicBool,
    /// Rows on output 1, for decoders.
    pub rejects: Counter,
    pub newest: Mark,
    pub task_time: Mark,
    pub latency: Latencies,
    pub markers: Latencies,
    pub marker_cpu: Latencies,
}

impl TaskCounters {
    /// One look per batch, whatever its size.
    #[inline]
    pub(crate) fn note_newest(&self, batch: &Batch) {
        if let Some(last) = batch.len().checked_sub(1) {
            self.newest.raise(batch.times()[batch.row(last) as usize]);
        }
    }
}

/// Counters of one source, written by the sequencer.
#[derive(Default)]
pub(crate) struct SourceCounters {
    pub records: Counter,
    pub bytes: Counter,
    pub ended: AtomicBool,
    pub blocked: AtomicBool,
}
