//! Formats, sources and sinks: where data enters and leaves.
//!
//! Each plug-in is one file and one line in [`registry`]. A job file names a plug-in by `type:` or `format:`;
//! its [`OptionSpec`]s say which keys it takes, and the job file's checks, its hints and its JSON Schema are
//! made from them.

pub mod absent;
pub mod format;
pub mod generate;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod paths;
pub mod plugin;
pub mod reach;
pub mod registry;
mod report;
mod schema;
pub mod secret;
pub mod sflow;
pub mod sink;
pub mod source;
#[cfg(test)]
mod tests;

pub use plugin::{
    BuiltSource, ComputeTime, FormatPlugin, FormatSpec, Ingress, InputSpan, Mistake, OptionKind, OptionSpec,
    OptionValue, Options, Replay, SinkContext, SinkPlugin, SinkResume, SinkUnit, SourceContext, SourceOutput,
    SourcePlugin, SourceTime, SubmitError, Submitted, UnitRows,
};
pub use reach::{JobPath, Reach};
pub use registry::Registry;
pub use report::{DeliveryCounts, Expired, SinkReport};
pub use secret::SecretRef;
pub use source::http::{Answering, Answers, Begun, Fate, Late, Replies, Unanswered, write_error};
