//! The graph of a job as the runtime takes it: checked, with every name resolved.

use std::sync::Arc;
use std::time::Duration;

use thalweg_types::{Error, Schema};

use crate::{Decoder, Operator, Partitioning, Source, TaskInfo};

/// A source or an operator of the graph, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeId {
    Source(usize),
    Operator(usize),
}

/// Makes one task's instance. Instances of several tasks may be made at once, on threads of their own.
pub type TaskFactory<T> = Box<dyn Fn(&TaskInfo) -> Result<Box<T>, Error> + Send + Sync>;

pub struct SourceNode {
    pub name: Arc<str>,
    pub source: Box<dyn Source>,
    /// It is read by event time, with the others that are: its scouts look ahead ([`Source::scouts`]), and it gives the
    /// records that are next ([`Source::take`]).
    pub by_time: bool,
    pub decoder: TaskFactory<dyn Decoder>,
    /// How many tasks decode.
    pub parallelism: u32,
    /// Schema of output 0, the records; output 1 carries [`thalweg_types::rejects_schema`].
    pub schema: Schema,
    /// Schemas of the outputs from 2 on, for records of other kinds.
    pub others: Vec<Schema>,
}

/// One link into an operator.
#[derive(Clone, Debug)]
pub struct Input {
    pub from: NodeId,
    /// Output of the upstream node: for sources 0 = records, 1 = rejects, then [`SourceNode::others`].
    pub output: usize,
    pub partitioning: Partitioning,
    /// A buffer leaves when it holds this many bytes …
    pub buffer: usize,
    /// … or when its oldest record is this old; zero: as soon as the task has nothing else to do.
    pub flush: Duration,
}

impl Input {
    pub const DEFAULT_BUFFER: usize = 256 << 10;

    pub fn new(from: NodeId, output: usize, partitioning: Partitioning) -> Self {
        Self { from, output, partitioning, buffer: Self::DEFAULT_BUFFER, flush: Duration::ZERO }
    }
}

/// When a task runs, in addition to "when it has input and room for output".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Only this often …
    pub every: Option<Duration>,
    /// … or when this many records wait.
    pub records: Option<u64>,
}

pub struct OperatorNode {
    pub name: Arc<str>,
    pub inputs: Vec<Input>,
    /// Schema of each output; empty for a sink.
    pub outputs: Vec<Schema>,
    pub factory: TaskFactory<dyn Operator>,
    /// Number of tasks; for a keyed operator its partitions.
    pub tasks: u32,
    /// Over how many workers the tasks are spread at most; `None`: all.
    pub parallelism: Option<u32>,
    pub schedule: Schedule,
    /// Its effects are seen outside: it is given nothing whose order is not durable, if that is asked for.
    pub publishes: bool,
    /// It has tasks of its own, whatever comes before it: they are given as many records at once as it asks for
    /// ([`Operator::rows_at_once`]).
    pub apart: bool,
}

/// When a cycle ends: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleSettings {
    pub every: Option<Duration>,
    pub bytes: Option<u64>,
    pub records: Option<u64>,
}

impl Default for CycleSettings {
    fn default() -> Self {
        Self { every: Some(Duration::from_secs(1)), bytes: None, records: None }
    }
}

/// How a job is run; nothing here changes an answer.
#[derive(Clone, Debug)]
pub struct JobOptions {
    pub cycle: CycleSettings,
    /// Ticks come at least this often while the job runs.
    pub tick: Duration,
    /// A source is asked for blocks of about this size.
    pub block_bytes: usize,
    /// A ring stops its producer at this many bytes in flight and lets it go on at a quarter of it.
    pub ring_bytes: usize,
    /// Blocks are kept for [`crate::Output::received`] until [`crate::Output::forget_received`], which an operator has
    /// to call. Not for a job in which a task or a link waits for a time or for a number of records: sources are held
    /// when too many blocks are kept.
    pub keep_received: bool,
    /// The order comes from elsewhere: the job has one source, which says [`crate::Poll::Told`]. Nothing is mixed in but
    /// cycle markers, and commands that change nothing; the job looks at no clock but to pace its cycles, and one that
    /// is given nothing does nothing. Answers are a function of what is told.
    pub is_told: bool,
    /// A job that fails because a disk is full stays to be read: [`crate::Job::is_read_only`]. Else it ends.
    pub read_only_when_full: bool,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            cycle: CycleSettings::default(),
            tick: Duration::from_millis(100),
            block_bytes: 256 << 10,
            ring_bytes: 2 << 20,
            keep_received: false,
            is_told: false,
            read_only_when_full: false,
        }
    }
}

/// A checked graph: every input names an existing output of a node, there are no loops.
pub struct Graph {
    pub job: Arc<str>,
    pub sources: Vec<SourceNode>,
    /// In an order in which every operator comes after those that it reads.
    pub operators: Vec<OperatorNode>,
}
