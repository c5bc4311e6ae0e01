//! Operators, links, the sequencer and the workers that run them.
//!
//! A job is a [`Graph`] of sources and operators. [`Runtime`] runs the tasks of many jobs on a fixed set of
//! worker threads. One *sequencer* per job takes raw blocks from the sources as they come and numbers every
//! record; from there on everything is a function of that order.
//!
//! # Order
//! Every item on every link covers a range of the order, and the items of a link cover it without a gap:
//! where a task has nothing to say about a range it sends an empty batch. A task with several inputs takes
//! them in step, so what it sees does not depend on batch sizes, workers or timing.
//! Ticks, cycle markers, commands and the end of input are numbered like records and reach every task.
//!
//! # Limits
//! * A task that is in an operator's call is not interrupted: a call that never returns holds its worker, and
//!   [`Job::wait`] with it.
//! * Rings bound the batches in flight between tasks; the output of one call is held until there is room.
//! * The order is remembered only as far as failures need it, unless a [`Durability`] is given.

mod clock;
mod durable;
mod element;
pub mod figure;
mod graph;
mod job;
mod job_clock;
mod latency;
mod operator;
mod order;
mod partition;
mod pool;
mod received;
mod record;
mod runtime;
mod source;
mod stats;

mod build;
mod gauge;
mod link;
mod merge;
mod ready;
mod ring;
mod sequencer;
mod shell;
mod stage;
mod task;
mod worker;

/// What `gauge` and `ready` are built from, so that loom can put its own in their place.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
}

pub use clock::{Clock, ManualClock, Reading, SystemClock};
pub use durable::{
    CommandMaker, CyclePart, CycleStart, Cycles, Durability, DurableOrder, Followed, LastCommit,
    SourcePosition,
};
pub use element::{
    CheckpointPace, Element, ElementSettings, ElementState, Elements, Expiry, InputRules, LateAt,
    LateRecords, OnExpiry, OutputPolicy, Turn,
};
pub use graph::{
    CycleSettings, Graph, Input, JobOptions, NodeId, OperatorNode, Schedule, SourceNode, TaskFactory,
};
pub use job::{FailureError, Job, JobFailure, JobHold, JobState};
pub use job_clock::PatientClock;
pub use latency::LatencyCounts;
pub use merge::merge as merge_batches;
pub use operator::{
    CacheCounts, Command, Held, InputId, InputOrder, JudgedCounts, Operator, Output, Parts, TableCounts,
    TaskInfo, collect, collect_with_parts,
};
pub use order::{NoOrderLog, OrderEntry, OrderEvent, OrderLog};
pub use partition::{Partitioner, Partitioning};
pub use pool::{BufferPool, PooledVec};
pub use received::{FindReceived, Received, ReceivedPlace};
pub use record::{
    Decimal, Emit, FieldType, Get, NewRecord, Packed, Packer, PerRecord, RecordOperator, Row, Set, Timestamp,
};
pub use runtime::{Runtime, WiredJob};
pub use source::{
    AgentCounts, AgentStats, CommitView, DatagramCounts, DatagramStats, DatagramView, Decoded, Decoder,
    LeftBlock, PartitionCounts, PartitionStats, PartitionView, Payload, Poll, RawBlock, ReplayRun,
    ScoutReader, Source, SourceProgress, Told, Waker, Wanted,
};
pub use stats::{ClockStats, JobStats, LinkStats, OperatorStats, SourceStats, TaskStats};
