//! The interface of the node that the server controls.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use thalweg_connect::Ingress;
use thalweg_node::cluster_view::{ClusterView, NotDone};
use thalweg_node::queries::QueryError;
use thalweg_types::{Error, Micros, Offset};

use crate::snapshot::{JobSnapshot, State};

/// The node, as HTTP sees it.
///
/// [`Control::readiness`], [`Control::failed`], [`Control::unopened`] and [`Control::ingress`] are called on the threads
/// that serve sockets, the last for every body of records: none may block. All others run on threads where blocking is fine. A request that
/// is given up, by its client or because it took too long, does not cancel its call.
pub trait Control: Send + Sync + 'static {
    fn readiness(&self) -> Readiness;

    /// Jobs that have failed and were neither stopped nor started again since: requests that send to them are refused.
    fn failed(&self) -> Vec<FailedJob>;

    /// Jobs that are to run on this node and take no records yet. Those of a node in no cluster are there once it is ready.
    fn unopened(&self) -> Vec<String>;

    /// The door of an HTTP source.
    ///
    /// # Errors
    /// [`ControlError::NotFound`] for the job or the source (a source of another type is not found: only those with
    /// a door are known here), [`ControlError::Conflict`] where the job has ended, [`ControlError::ReadOnly`].
    fn ingress(&self, job: &str, source: &str) -> Result<Arc<dyn Ingress>, ControlError>;

    /// All jobs, in the order of their names.
    fn jobs(&self) -> Vec<JobSnapshot>;

    /// # Errors
    /// [`ControlError::NotFound`].
    fn job(&self, job: &str) -> Result<JobSnapshot, ControlError>;

    /// Starts a job. The file's own name must be the one given here.
    ///
    /// # Errors
    /// [`ControlError::Mistakes`] with all mistakes in the file, [`ControlError::Exists`].
    fn start(&self, job: &str, file: &str, format: FileFormat) -> Result<JobSnapshot, ControlError>;

    /// Starts a job in the place of one of its name, which is drained first; returns whether there was one. If the new
    /// one is wrong, or does not fit the old one's state, the old one runs on; if it does not start, the old one is
    /// started again.
    ///
    /// # Errors
    /// As for [`Control::start`].
    fn replace(&self, job: &str, file: &str, format: FileFormat)
    -> Result<(JobSnapshot, bool), ControlError>;

    /// Ends a job and waits for its end; one that is draining already can still be aborted.
    ///
    /// # Errors
    /// [`ControlError::NotFound`]. A job that failed has a summary that says so.
    fn stop(&self, job: &str, how: Stop) -> Result<StopSummary, ControlError>;

    /// The present values of a query for one group; also of a job that is read-only. `plan` is the one by which another node
    /// of the cluster has sent the question here.
    ///
    /// # Errors
    /// [`ControlError::NotFound`]; a user's [`Error`] that says which fields make the key where those given do not;
    /// [`ControlError::NotNow`].
    fn present(
        &self,
        query: &QueryPath,
        key: &[KeyField],
        plan: Option<Offset>,
    ) -> Result<Found, ControlError>;

    /// Adds a query to a running operator.
    ///
    /// # Errors
    /// [`ControlError::Mistakes`], [`ControlError::NotFound`] for job or operator, [`ControlError::Exists`],
    /// [`ControlError::Conflict`] where the job has ended, [`ControlError::ReadOnly`].
    fn add_query(&self, query: &QueryPath, sql: &str) -> Result<(), ControlError>;

    /// # Errors
    /// [`ControlError::NotFound`] for job, operator or query; [`ControlError::Conflict`], [`ControlError::ReadOnly`].
    fn drop_query(&self, query: &QueryPath) -> Result<(), ControlError>;

    /// The cluster that the node is in, if it is in one.
    fn cluster(&self) -> Option<Arc<dyn ClusterView>>;
}

/// Whether the node takes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Jobs are being built or recovered.
    Starting,
    Ready,
    /// Records in flight go to their end; nothing new is taken.
    Draining,
}

/// A job that takes no records as it has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedJob {
    pub name: String,
    /// A disk is full: the job's state can still be read.
    pub is_read_only: bool,
    pub why: String,
}

/// How a job is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing new is taken, records in flight go to their sinks.
    Drain,
    /// At once; records in flight are dropped.
    Abort,
}

/// Where a query is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryPath {
    pub job: String,
    pub operator: String,
    pub query: String,
}

/// One field of a group's key, as text; `None` is null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyField {
    pub name: String,
    pub value: Option<String>,
}

/// How a job file is written. YAML takes in JSON; the distinction is for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    Yaml,
    Json,
}

/// Where present values are.
#[derive(Clone, Debug)]
pub enum Found {
    Here(Present),
    /// At another node of the cluster, by this plan.
    Elsewhere {
        node: String,
        address: String,
        plan: Offset,
    },
}

/// The present values of a query for a group.
#[derive(Clone, Debug)]
pub struct Present {
    /// The GROUP BY fields as their types print, in the order of the query; empty for a query without.
    pub key: Map<String, Value>,
    /// The query's object, as in an answer, `since` included while its window has not filled.
    pub values: Value,
    /// Task time; `None` where no record has come.
    pub as_of: Option<Micros>,
}

/// How a job ended.
#[derive(Clone, Debug)]
pub struct StopSummary {
    pub state: State,
    pub records: u64,
    pub answers: u64,
    pub rejects: u64,
    pub elapsed: Duration,
}

/// Why the node does not do it.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("no {kind} {name:?}")]
    NotFound {
        kind: Kind,
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    #[error("{kind} {name:?} exists already")]
    Exists { kind: Kind, name: String },
    /// It is there, but in no state for this: a job that has ended, for instance.
    #[error("{message}")]
    Conflict { message: String, hint: Option<String> },
    /// The cluster moves what was asked for: soon it is there.
    #[error("{message}")]
    NotNow { message: String },
    /// The job is being replaced by a changed one, which takes moments.
    #[error("job {job:?} is being replaced by a changed one")]
    Replaced { job: String },
    /// The job has failed as a disk is full, and is only read.
    #[error("job {job:?} takes nothing any more, and is only read: {failure}")]
    ReadOnly { job: String, failure: String, hint: Option<String> },
    /// A job file or a query is wrong: all mistakes, in the order of the text.
    #[error("{} in the {of}", count(.mistakes.len(), "mistake"))]
    Mistakes { of: TextKind, mistakes: Vec<Mistake> },
    #[error(transparent)]
    Failed(#[from] Error),
}

impl ControlError {
    /// What is wrong with a query, or with its text `sql`.
    pub(crate) fn of_query(error: QueryError, sql: &str) -> Self {
        match error {
            QueryError::Missing { name, known } => ControlError::NotFound { kind: Kind::Query, name, known },
            QueryError::Exists { name } => ControlError::Exists { kind: Kind::Query, name },
            QueryError::Sql(errors) => {
                let mistakes = errors.into_iter().map(|error| {
                    let mut mistake = Mistake::at(sql, error.span, error.message);
                    mistake.expected = error.expected;
                    mistake.hint = error.hint;
                    mistake
                });
                ControlError::Mistakes { of: TextKind::Query, mistakes: mistakes.collect() }
            }
            QueryError::Failed(error) => error.into(),
        }
    }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The kind of thing that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Job,
    Source,
    Operator,
    Query,
    /// A node of the cluster.
    Node,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Job => "job",
            Kind::Source => "HTTP source",
            Kind::Operator => "operator",
            Kind::Query => "query",
            Kind::Node => "node",
        })
    }
}

impl From<NotDone> for ControlError {
    fn from(error: NotDone) -> Self {
        match error {
            NotDone::NoJob { name, known } => ControlError::NotFound { kind: Kind::Job, name, known },
            NotDone::NoNode { name, known } => ControlError::NotFound { kind: Kind::Node, name, known },
            NotDone::NoOperator { name, known } => {
                ControlError::NotFound { kind: Kind::Operator, name, known }
            }
            NotDone::Exists { name } => ControlError::Exists { kind: Kind::Job, name },
            NotDone::Conflict { what, hint } => ControlError::Conflict { message: what, hint: Some(hint) },
            NotDone::NotNow { what } => ControlError::NotNow { message: what },
            NotDone::Query(error) => ControlError::of_query(error, ""),
            NotDone::Failed(error) => error.into(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    JobFile,
    Query,
}

impl fmt::Display for TextKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TextKind::JobFile => "job file",
            TextKind::Query => "query",
        })
    }
}

/// One mistake in a text that a client sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Mistake {
    /// From 1; 0 for a mistake that has no place.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The text that it is about.
    pub text: String,
    pub message: String,
    pub expected: Option<String>,
    pub hint: Option<String>,
}

impl Mistake {
    /// A mistake at these bytes of a text; without them, at no place.
    pub fn at(text: &str, span: Option<Range<usize>>, message: impl Into<String>) -> Self {
        let mut mistake = Self { message: message.into(), ..Self::default() };
        let Some(span) = span else { return mistake };
        let start = text.floor_char_boundary(span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let end = text.floor_char_boundary(span.end).clamp(start, line_end);
        mistake.line = text[..start].matches('\n').count() + 1;
        mistake.column = text[line_start..start].chars().count() + 1;
        text[start..end].trim_end().clone_into(&mut mistake.text);
        mistake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_points_in_lines_and_characters() {
        let text = "SELECT sum(é)\nFROM pöyments\nOVER";
        let at = text.find("pöyments").unwrap();
        let mistake = Mistake::at(text, Some(at..at + "pöyments".len()), "no stream");
        assert_eq!((mistake.line, mistake.column, mistake.text.as_str()), (2, 6, "pöyments"));

        let end = Mistake::at(text, Some(text.len()..text.len() + 5), "expected more");
        assert_eq!((end.line, end.column, end.text.as_str()), (3, 5, ""));

        let nowhere = Mistake::at(text, None, "too long");
        assert_eq!((nowhere.line, nowhere.column), (0, 0));
    }
}
