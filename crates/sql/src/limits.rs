//! What queries may take, and how a query that took too much is reported.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thalweg_types::{Error, format_duration, format_size};

/// What queries may take: those of an engine together, or each one where it has a process of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes for sorting, grouping and joining. Nothing is spilled to disk.
    pub memory: u64,
    /// Bytes of Parquet metadata that are kept between queries; the least recently used go first.
    pub metadata: u64,
    /// How long a query may compute, and as long again for a place to do it or for a reader of its next rows.
    pub time: Duration,
    /// Queries that run at once.
    pub queries: usize,
    /// Queries that wait for a place; further ones are refused.
    pub waiting: usize,
    /// Threads that compute; a quarter as many again, and at least two, read files.
    pub threads: usize,
    /// Whether rollups may answer in place of rows.
    pub use_rollups: bool,
}

impl Default for Limits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            memory: 256 << 20,
            metadata: 32 << 20,
            time: Duration::from_secs(30),
            queries: 4,
            waiting: 64,
            threads: (cores / 2).max(1),
            use_rollups: true,
        }
    }
}

/// The limit that ended a query; the source of its [`Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Exceeded {
    #[error("{running} queries run and {waiting} wait, the most that may")]
    Waiting { running: usize, waiting: usize },
    #[error("it took longer than {}", text(*limit))]
    Time { limit: Duration },
    #[error("no place to run was free for {}", text(*limit))]
    Place { limit: Duration },
    #[error("nobody took its rows for {}", text(*limit))]
    Reader { limit: Duration },
    #[error("queries may take {} of memory, and it wanted more ({what})", format_size(*limit))]
    Memory { limit: u64, what: String },
}

impl Exceeded {
    /// The limit that an error is about, if it is about one.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Exceeded> {
        std::error::Error::source(error)?.downcast_ref()
    }

    pub(crate) fn into_error(self) -> Error {
        let (error, hint) = match &self {
            Exceeded::Waiting { .. } | Exceeded::Place { .. } => {
                (Error::external("query refused"), "send it again later")
            }
            Exceeded::Time { .. } => (
                Error::user("query stopped"),
                "ask for a shorter time or fewer groups, or raise the limit on the time of queries",
            ),
            Exceeded::Reader { .. } => (Error::user("query stopped"), "read its rows as they come"),
            Exceeded::Memory { .. } => (
                Error::user("query stopped"),
                "ask for a shorter time, fewer groups or a LIMIT, or raise the limit on the memory of queries",
            ),
        };
        error.with_source(self).with_hint(hint)
    }
}

fn text(limit: Duration) -> String {
    format_duration(i64::try_from(limit.as_micros()).unwrap_or(i64::MAX))
}
