//! Everything that a plug-in of your own needs, and that runs it: `use thalweg_prelude::*;` and no other crate of the
//! engine.
//!
//! Arrow and `bytes` are here too, in the versions that the engine's traits speak.
//!
//! * A source: [`SourcePlugin`], [`Source`], and for its decode tasks [`SourceDecoder`] around a [`RecordDecoder`].
//! * A format: [`FormatPlugin`]; [`LineFormat`] where records are lines, else [`RecordFormat`]; an [`Encoder`].
//! * An operator: [`OperatorPlugin`]; [`RecordOperator`] record by record, or [`Operator`] over batches.
//! * An operator of several parts, with answers, or with a share of memory: the fields of [`Prepared`]. One whose queries come
//!   and go while the job runs: [`Queries`].
//! * An operator with state by key: an [`Element`], which [`Prepared::elements`] runs and keeps through a crash.
//! * A sink: [`SinkPlugin`] and an operator that emits nothing.
//! * A partitioner: [`Partitioner`].
//! * To run them: [`Node::builder`] takes them, a [`JobFile`] names them.
//!
//! Nothing is defined here. Items that few plug-ins need stay in their own crates.

pub use arrow_array;
pub use bytes;

pub use thalweg_connect::format::lines::{
    BadLine, Cells, LineFormat, LineReader, LineSplitter, record_lines,
};
pub use thalweg_connect::format::{
    BadRecord, Columns, DEFAULT_MAX_RECORD, Encoder, Preamble, RecordDecoder, RecordFormat, RefusedLine,
    Split, Splitter,
};
pub use thalweg_connect::source::{BlockCodec, BlockContext, SourceDecoder};
pub use thalweg_connect::{
    BuiltSource, ComputeTime, FormatPlugin, FormatSpec, JobPath, Mistake, OptionKind, OptionSpec,
    OptionValue, Options, Replay, SinkContext, SinkPlugin, SinkReport, SinkResume, SourceContext,
    SourceOutput, SourcePlugin, SourceTime,
};
pub use thalweg_flow::{
    CheckpointPace, Element, ElementSettings, Expiry, OnExpiry, OutputPolicy, Packed, Packer, Turn,
};
pub use thalweg_flow::{
    Command, CyclePart, DatagramCounts, DatagramStats, DatagramView, Decimal, Decoder, Emit, FieldType, Get,
    InputId, InputOrder, LeftBlock, NewRecord, Operator, Output, Partitioner, Partitioning, Payload,
    PerRecord, Poll, RawBlock, RecordOperator, ReplayRun, Row, Set, Source, SourcePosition, SourceProgress,
    TaskFactory, TaskInfo, Timestamp, Waker, collect,
};
pub use thalweg_node::job_file::keys::{KeySpec, Shape};
pub use thalweg_node::operator::element;
pub use thalweg_node::operator::{
    AnswerCount, Answers, ElementPlan, Inputs, KeptBy, Later, Memory, NamedOutput, OperatorCheck,
    OperatorPlugin, Part, PartInput, PartName, Prepared, Stream, TaskContext, Tasks,
};
pub use thalweg_node::queries::{
    Present, Queries, QueryCommand, QueryError, QueryPlan, QueryText, Requeried,
};
pub use thalweg_node::{Diagnostic, Diagnostics, JobEnd, JobFile, Node, NodeOptions, RunningJob, Summary};
pub use thalweg_types::{
    Batch, Class, DataType, Error, Field, Micros, Offset, Rows, Schema, Seq, SeqRange, Seqs, TimeUnit, Value,
    format_timestamp, hash_bytes, parse_timestamp, partition_of,
};
