//! The node's report on a job: counts since the job's start.
//!
//! Rates are not part of it; the server makes them out of two snapshots (`rates`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thalweg_connect::source::connections::ConnectionCounts;
use thalweg_connect::{DeliveryCounts, Expired};
use thalweg_flow::{
    CacheCounts, ClockStats, DatagramStats, JobState, JobStats, JudgedCounts, LatencyCounts, PartitionStats,
    TableCounts, TaskStats,
};
use thalweg_types::Micros;

pub use crate::figures::groups::Commits;

/// A look at a job.
#[derive(Clone, Debug)]
pub struct JobSnapshot {
    pub name: String,
    pub state: State,
    /// The failure that stopped it, if it failed.
    pub failure: Option<Failure>,
    /// Since its start; fixed when the job has ended.
    pub uptime: Duration,
    pub records: u64,
    pub answers: u64,
    pub rejects: u64,
    /// Bytes of rejects that made room for newer ones.
    pub rejects_removed: u64,
    /// 0 before the first.
    pub last_cycle: u64,
    /// `None` where nothing is committed, because the job does not outlive its process.
    pub commits: Option<Commits>,
    /// The last tick.
    pub tick: Option<Micros>,
    /// How the job's clock and the machine's agree.
    pub clock: ClockStats,
    pub sources: Vec<SourceSnapshot>,
    /// Operators and sinks, in the order of the graph.
    pub operators: Vec<OperatorSnapshot>,
    pub links: Vec<LinkSnapshot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Starting,
    Running,
    Draining,
    Done,
    Failed,
    Aborted,
}

impl State {
    pub(crate) const ALL: [State; 6] =
        [State::Starting, State::Running, State::Draining, State::Done, State::Failed, State::Aborted];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Draining => "draining",
            State::Done => "done",
            State::Failed => "failed",
            State::Aborted => "aborted",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub operator: String,
    pub task: u32,
    /// `SOURCE@OFFSET`.
    pub record: Option<String>,
    pub message: String,
    pub panic: bool,
    pub hint: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct SourceSnapshot {
    pub name: String,
    /// As `type:` names it.
    pub kind: String,
    pub records: u64,
    pub bytes: u64,
    pub rejects: u64,
    /// How much of how much, in the source's own unit.
    pub progress: Option<(u64, Option<u64>)>,
    pub ended: bool,
    /// Held up because a later queue is full.
    pub blocked: bool,
    /// Takes records by HTTP.
    pub has_door: bool,
    /// Where a listening source can be reached.
    pub address: Option<SocketAddr>,
    /// How far the newest event time that it has given is behind the job's clock; `None` before the first record
    /// and after the end of the job.
    pub lag: Option<Duration>,
    /// Counts of received and lost datagrams, if it receives any.
    pub datagrams: Option<DatagramStats>,
    /// Its place in each partition, if it reads any.
    pub partitions: Option<PartitionStats>,
    /// Counts of its connections, if it takes any.
    pub connections: Option<Arc<ConnectionCounts>>,
    /// Its decoders.
    pub tasks: Vec<TaskSnapshot>,
}

#[derive(Clone, Debug, Default)]
pub struct OperatorSnapshot {
    pub name: String,
    /// As `type:` names it.
    pub kind: String,
    pub is_sink: bool,
    pub queries: Vec<QuerySnapshot>,
    /// Queries that failed and were dropped for that, the latest last.
    pub dropped: Vec<DroppedSnapshot>,
    /// Largest of its tasks; `None` if it has none.
    pub task_time: Option<Micros>,
    /// How far the newest event time that it has taken is behind the job's clock; `None` before the first record
    /// and after the end of the job.
    pub lag: Option<Duration>,
    /// From the numbering of records to the end of the operator's work on them; of all tasks, since the job's start.
    pub latency: LatencyCounts,
    /// For how long each cycle marker stopped a task; of all tasks, since the job's start.
    pub markers: LatencyCounts,
    /// Processor time of the same.
    pub marker_cpu: LatencyCounts,
    /// Records deleted for their age since the job's start; `None` for sinks that keep all.
    pub expired: Option<Expired>,
    /// What has become of its rows, for a sink that writes to topics.
    pub delivery: Option<DeliveryCounts>,
    pub tasks: Vec<TaskSnapshot>,
}

/// A query that was added while the job ran, failed, and was dropped for that.
#[derive(Clone, Debug)]
pub struct DroppedSnapshot {
    pub name: String,
    pub text: String,
    /// The failure.
    pub said: String,
}

#[derive(Clone, Debug, Default)]
pub struct QuerySnapshot {
    pub name: String,
    /// As it was written.
    pub text: String,
}

#[derive(Clone, Debug, Default)]
pub struct TaskSnapshot {
    pub records_in: u64,
    pub records_out: u64,
    pub batches_in: u64,
    pub busy: Duration,
    pub queued_bytes: u64,
    pub state_bytes: u64,
    /// `None` where all state is in memory.
    pub cache: Option<CacheCounts>,
    /// `None` for a task that takes its records as they come.
    pub judged: Option<JudgedCounts>,
    /// `None` for a task that asks no table.
    pub table: Option<TableCounts>,
    pub blocked: bool,
    pub worker: usize,
}

#[derive(Clone, Debug, Default)]
pub struct LinkSnapshot {
    pub from: String,
    pub output: usize,
    pub to: String,
    pub partitioning: String,
    pub bytes: u64,
    pub queued_bytes: u64,
    pub high_watermark_hits: u64,
    pub chained: bool,
}

impl JobSnapshot {
    /// The runtime's own view of a job. Types, queries, answers and uptime are for the caller to fill in.
    pub fn from_flow(name: &str, state: &JobState, stats: &JobStats) -> Self {
        let lag = |tasks: &[TaskStats]| {
            let newest = tasks.iter().filter_map(|task| task.newest).max()?;
            // An event time ahead of the clock is not behind it; a job that has ended falls behind no more.
            let behind = Duration::from_micros(u64::try_from(stats.now.saturating_sub(newest)).unwrap_or(0));
            (!state.is_final()).then_some(behind)
        };
        let sources = stats.sources.iter().map(|source| SourceSnapshot {
            name: source.name.to_string(),
            records: source.records,
            bytes: source.bytes,
            rejects: source.rejects,
            progress: source.progress.map(|progress| (progress.done, progress.total)),
            ended: source.ended,
            blocked: source.blocked,
            lag: lag(&source.tasks),
            datagrams: source.datagrams.clone(),
            partitions: source.partitions.clone(),
            connections: None,
            tasks: source.tasks.iter().map(TaskSnapshot::from).collect(),
            ..SourceSnapshot::default()
        });
        let operators = stats.operators.iter().map(|operator| OperatorSnapshot {
            name: operator.name.to_string(),
            task_time: operator.tasks.iter().filter_map(|task| task.task_time).max(),
            lag: lag(&operator.tasks),
            latency: operator.tasks.iter().map(|task| &task.latency).sum(),
            markers: operator.tasks.iter().map(|task| &task.markers).sum(),
            marker_cpu: operator.tasks.iter().map(|task| &task.marker_cpu).sum(),
            tasks: operator.tasks.iter().map(TaskSnapshot::from).collect(),
            ..OperatorSnapshot::default()
        });
        let links = stats.links.iter().map(|link| LinkSnapshot {
            from: link.from.to_string(),
            output: link.output,
            to: link.to.to_string(),
            partitioning: link.partitioning.clone(),
            bytes: link.bytes,
            queued_bytes: link.queued_bytes,
            high_watermark_hits: link.high_watermark_hits,
            chained: link.chained,
        });
        Self {
            name: name.to_owned(),
            state: State::from(state),
            failure: match state {
                JobState::Failed(failure) => Some(Failure::from(failure)),
                _ => None,
            },
            uptime: Duration::ZERO,
            records: stats.records,
            answers: 0,
            rejects: stats.rejects,
            rejects_removed: 0,
            last_cycle: stats.cycles,
            commits: None,
            tick: (stats.tick != 0).then_some(stats.tick),
            clock: stats.clock,
            sources: sources.collect(),
            operators: operators.collect(),
            links: links.collect(),
        }
    }
}

impl From<&JobState> for State {
    fn from(state: &JobState) -> Self {
        match state {
            JobState::Running => State::Running,
            JobState::Draining => State::Draining,
            JobState::Done => State::Done,
            JobState::Failed(_) => State::Failed,
            JobState::Aborted => State::Aborted,
        }
    }
}

impl From<&thalweg_flow::JobFailure> for Failure {
    fn from(failure: &thalweg_flow::JobFailure) -> Self {
        Self {
            operator: failure.operator.to_string(),
            task: failure.task,
            record: failure.record.clone(),
            message: failure.public.clone(),
            panic: failure.panic,
            hint: failure.error.as_ref().and_then(|error| error.hint.clone()),
        }
    }
}

impl From<&TaskStats> for TaskSnapshot {
    fn from(task: &TaskStats) -> Self {
        Self {
            records_in: task.records_in,
            records_out: task.records_out,
            batches_in: task.batches_in,
            busy: Duration::from_nanos(task.busy_nanos),
            queued_bytes: task.queued_bytes,
            state_bytes: task.state_bytes,
            cache: task.cache,
            judged: task.judged,
            table: task.table,
            blocked: task.blocked,
            worker: task.worker,
        }
    }
}
