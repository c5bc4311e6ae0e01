//! Groups of figures that a node makes of what it sees of a job; the others are counted further down, and declared there.

use std::time::Duration;

use thalweg_connect::source::connections::ConnectionCounts;
use thalweg_flow::figures;
use thalweg_types::Micros;

use crate::snapshot::{JobSnapshot, LinkSnapshot, OperatorSnapshot, SourceSnapshot, TaskSnapshot};

figures! {
    /// Counts of a job.
    pub(crate) struct JobFigures as "JobFigures" {
        /// Seconds since the start of the job.
        uptime as "uptime_seconds": Duration, most, Gauge, Seconds, "thalweg_job_uptime_seconds",
        "A fall: somebody has started the job again";
        /// Records that its sources gave.
        records: u64, sum, Counter, Count, "", "";
        /// Answers that left the job.
        answers: u64, sum, Counter, Count, "thalweg_answers_total", "";
        /// Rejects of its sources and operators.
        rejects: u64, sum, Counter, Count, "", "";
        /// Bytes of rejects that made room for newer ones.
        rejects_removed as "": u64, sum, Counter, Bytes, "thalweg_rejects_removed_bytes_total",
        "Raise `rejects: { max_bytes }`, or mend the input";
        /// Number of the last cycle.
        last_cycle: u64, most, Counter, Count, "thalweg_cycles_total", "";
    }
}

impl JobFigures {
    pub(crate) fn of(job: &JobSnapshot) -> Self {
        let JobSnapshot { uptime, records, answers, rejects, rejects_removed, last_cycle, .. } = *job;
        Self { uptime, records, answers, rejects, rejects_removed, last_cycle }
    }
}

figures! {
    /// How a job's cycles are committed.
    pub struct Commits as "Commits" {
        /// The last cycle that was committed; 0 without a data directory.
        cycle: u64, most, Gauge, Count, "thalweg_committed_cycle",
        "It does not move while records come: look at the disk or the store for state";
        /// Seconds from the marker of that cycle to its commit record.
        took as "seconds": Duration, most, Gauge, Seconds, "thalweg_commit_seconds",
        "The disk, or the store for state, is slow";
        /// Cycles that grew because the disk or store was slow.
        held_back: u64, sum, Counter, Count, "thalweg_cycles_held_back_total", "As above";
        /// Seconds by which they grew, in all.
        held_back_for as "held_back_seconds": Duration, sum, Counter, Seconds, "", "";
    }
}

figures! {
    /// Counts of a source.
    pub(crate) struct SourceFigures as "SourceFigures" {
        /// Records that the source gave.
        records: u64, sum, Counter, Count, "thalweg_records_total", "";
        /// Records that could not be used.
        rejects: u64, sum, Counter, Count, "thalweg_rejects_total",
        "The files of [rejects](operations.md#rejects) have the reasons";
        /// Bytes that the source gave.
        bytes: u64, sum, Counter, Bytes, "thalweg_source_bytes_total", "";
        /// Bytes that wait to be decoded.
        queued_bytes: u64, sum, Gauge, Bytes, "thalweg_source_queued_bytes",
        "Decoding is too slow: raise `parallelism` of the source";
        /// Seconds that its decode tasks ran.
        busy as "": Duration, sum, Counter, Seconds, "thalweg_source_busy_seconds_total",
        "A second a second per task: raise `parallelism`";
        /// 1 while back-pressure holds the source up.
        blocked: bool, most, Gauge, Flag, "thalweg_source_blocked_info",
        "At 1 for long: a later operator is too slow; `thalweg_operator_busy_seconds_total` says which";
        /// Seconds of the job's clock minus the newest event time that it gave, at least 0; none once the job has ended.
        lag as "lag_seconds": Option<Duration>, most, Gauge, Seconds, "thalweg_source_lag_seconds",
        "It grows although records come: they are old, or the job is too slow";
    }
}

impl SourceFigures {
    pub(crate) fn of(source: &SourceSnapshot) -> Self {
        let SourceSnapshot { records, rejects, bytes, blocked, lag, .. } = *source;
        let (queued_bytes, busy) = (queued_bytes(&source.tasks), busy(&source.tasks));
        Self { records, rejects, bytes, queued_bytes, busy, blocked, lag }
    }
}

figures! {
    /// Connections of a source.
    pub(crate) struct Connections as "Connections" {
        /// Open connections of a `tcp` source.
        open: u64, sum, Gauge, Count, "thalweg_source_connections", "Near `connections`: raise it";
        /// Connections accepted by the source.
        accepted: u64, sum, Counter, Count, "thalweg_source_connections_accepted_total", "";
        /// Connections that the source closed; `reason` is `idle`, `room` or `unfinished`.
        idle: u64, sum, Counter, Count, "thalweg_source_connections_closed_total{reason=\"idle\"}",
        "`room`: raise `connections` or the limit of open files. `unfinished`: raise `queue`, or look for a sender of endless records";
        /// Those that others waited for.
        room: u64, sum, Counter, Count, "thalweg_source_connections_closed_total{reason=\"room\"}", "";
        /// Those with the largest of too many unfinished records.
        unfinished: u64, sum, Counter, Count, "thalweg_source_connections_closed_total{reason=\"unfinished\"}", "";
        /// Bytes of records that have begun and not ended.
        unfinished_bytes: u64, sum, Gauge, Bytes, "thalweg_source_unfinished_bytes",
        "Near `queue` for long: senders begin records and do not end them";
    }
}

impl Connections {
    pub(crate) fn of(counts: &ConnectionCounts) -> Self {
        let [idle, room, unfinished] = counts.closed();
        let (open, accepted) = (counts.open(), counts.accepted());
        Self { open, accepted, idle, room, unfinished, unfinished_bytes: counts.unfinished_bytes() }
    }
}

figures! {
    /// What the kernel lost.
    pub(crate) struct Kernel as "Kernel" {
        /// Datagrams that the kernel dropped before the node read them, where it says so.
        kernel_drops: Option<u64>, sum, Counter, Count, "thalweg_source_kernel_drops_total",
        "Raise `receive_buffer` or `sockets`";
    }
}

figures! {
    /// Counts of an operator or a sink.
    pub(crate) struct OperatorFigures as "OperatorFigures" {
        /// Records that came in.
        records_in: u64, sum, Counter, Count, "thalweg_operator_records_in_total", "";
        /// Records that left.
        records_out: u64, sum, Counter, Count, "thalweg_operator_records_out_total", "";
        /// Seconds that its tasks ran.
        busy as "": Duration, sum, Counter, Seconds, "thalweg_operator_busy_seconds_total",
        "A second a second per task: this operator is the bottleneck; give it more `partitions`, or the node more workers";
        /// Tasks that wait for room in their output.
        blocked_tasks as "": u64, sum, Gauge, Count, "thalweg_operator_blocked_tasks",
        "The next operator or sink is too slow";
        /// Bytes that wait for its tasks.
        queued_bytes: u64, sum, Gauge, Bytes, "thalweg_operator_queued_bytes", "This operator is too slow";
        /// Bytes of state in memory.
        state_bytes: u64, sum, Gauge, Bytes, "thalweg_operator_state_bytes",
        "Without end: `thalweg explain` says which query can";
        /// Task time, seconds since 1970: the largest event time that has moved its windows.
        task_time as "": Option<Micros>, most, Gauge, Seconds, "thalweg_operator_task_time_seconds",
        "It does not move: nothing is accepted. It leaps: a record was ahead of all others; see `max_ahead`";
        /// Seconds of the job's clock minus the newest event time that the operator has taken, at least 0; none once the job has ended.
        lag as "lag_seconds": Option<Duration>, most, Gauge, Seconds, "thalweg_operator_lag_seconds",
        "As `thalweg_source_lag_seconds`";
    }
}

impl OperatorFigures {
    pub(crate) fn of(operator: &OperatorSnapshot) -> Self {
        let tasks = &operator.tasks;
        Self {
            records_in: operator.records_in(),
            records_out: operator.records_out(),
            busy: busy(tasks),
            blocked_tasks: tasks.iter().filter(|task| task.blocked).count() as u64,
            queued_bytes: queued_bytes(tasks),
            state_bytes: tasks.iter().map(|task| task.state_bytes).sum(),
            task_time: operator.task_time,
            lag: operator.lag,
        }
    }
}

figures! {
    /// Counts of a link.
    pub(crate) struct LinkFigures as "LinkFigures" {
        /// Bytes sent over the link.
        bytes: u64, sum, Counter, Bytes, "thalweg_link_bytes_total", "";
        /// Bytes in its rings.
        queued_bytes: u64, sum, Gauge, Bytes, "thalweg_link_queued_bytes",
        "Back-pressure: the operator in `to` is too slow";
        /// Times that a ring of the link became full.
        high_watermark_hits: u64, sum, Counter, Count, "thalweg_link_full_total", "As above";
    }
}

impl LinkFigures {
    pub(crate) fn of(link: &LinkSnapshot) -> Self {
        let LinkSnapshot { bytes, queued_bytes, high_watermark_hits, .. } = *link;
        Self { bytes, queued_bytes, high_watermark_hits }
    }
}

fn queued_bytes(tasks: &[TaskSnapshot]) -> u64 {
    tasks.iter().map(|task| task.queued_bytes).sum()
}

fn busy(tasks: &[TaskSnapshot]) -> Duration {
    tasks.iter().map(|task| task.busy).sum()
}
