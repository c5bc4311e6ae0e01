//! What can go wrong with chunks on disk, with the place where it did.

use std::io;
use std::path::PathBuf;

use arrow_schema::DataType;
use thalweg_types::{Class, Error, Retry};

use crate::ChunkId;

/// An error of the chunk store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// `action` is a present-tense verb: `write`, `sync`, `open`.
    #[error("{action} {path:?}")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("damage in {path:?} at byte {pos}: {what}: expected {expected}, got {got}")]
    Damaged { path: PathBuf, pos: u64, what: &'static str, expected: String, got: String },
    #[error("{id} is not in chunk store {dir:?}, which holds {first} up to before {next}")]
    Missing { dir: PathBuf, id: ChunkId, first: ChunkId, next: ChunkId },
    #[error("column {name:?} is stored as {stored} and cannot be read as {wanted}")]
    Type { name: String, stored: DataType, wanted: DataType },
    #[error("column {name:?} of type {data_type} has no stored form")]
    Unsupported { name: String, data_type: DataType },
    #[error("a chunk holds 1 to {max} rows, got {rows}")]
    RowCount { rows: usize, max: usize },
    /// An earlier write or sync failed (or a background task panicked) and has been reported; nothing that came
    /// after it can be trusted to reach the disk.
    #[error("chunk store {dir:?} stopped after an earlier failure: {reason}")]
    Poisoned { dir: PathBuf, reason: String },
}

impl ChunkError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| ChunkError::Io { action, path, source }
    }

    /// Whose turn it is.
    pub fn class(&self) -> Class {
        match self {
            ChunkError::Io { .. } | ChunkError::Poisoned { .. } => Class::External,
            ChunkError::Damaged { .. } => Class::Corrupt,
            ChunkError::Type { .. } => Class::User,
            ChunkError::Missing { .. } | ChunkError::Unsupported { .. } | ChunkError::RowCount { .. } => {
                Class::Internal
            }
        }
    }
}

impl From<ChunkError> for Error {
    /// A failed write or sync is not to be repeated on the same store: whether its bytes arrived is open.
    fn from(error: ChunkError) -> Self {
        let retry = match error.class() {
            Class::External => Retry::OutcomeUnknown,
            _ => Retry::Never,
        };
        Error::new(error.class(), error.to_string()).with_retry(retry).with_source_of(error)
    }
}

/// Keeps only the cause: the message of the error itself is already in front.
trait WithSourceOf {
    fn with_source_of(self, error: ChunkError) -> Self;
}

impl WithSourceOf for Error {
    fn with_source_of(self, error: ChunkError) -> Self {
        match error {
            ChunkError::Io { source, .. } => self.with_source(source),
            _ => self,
        }
    }
}
