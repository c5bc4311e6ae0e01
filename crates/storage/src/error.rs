//! What can go wrong with chunks on disk, with the place where it did.

use std::io;
use std::path::{Path, PathBuf};

use arrow_schema::DataType;
use thalweg_types::{Class, DiskError, Error, Retry};

use crate::ChunkId;
use crate::chunk::CodecError;

/// An error of the chunk store. Cheap to clone: its store and all that wait for a sync get the same failure.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    #[error(transparent)]
    Io(DiskError),
    #[error("damage in {path:?} at byte {pos}: {what}: expected {expected}, got {got}")]
    Damaged { path: PathBuf, pos: u64, what: &'static str, expected: String, got: String },
    /// Written by a newer build; `pos` is the place of its format.
    #[error("{path:?} has format {found} of {what} at byte {pos}, and this build reads up to {newest}")]
    NewerFormat { path: PathBuf, pos: u64, what: &'static str, found: u16, newest: u16 },
    #[error("{id} is not in chunk store {dir:?}, which holds {first} up to before {next}")]
    Missing { dir: PathBuf, id: ChunkId, first: ChunkId, next: ChunkId },
    #[error("column {name:?} is stored as {stored} and cannot be read as {wanted}")]
    Type { name: String, stored: DataType, wanted: DataType },
    /// A stored value, widened as asked, does not fit.
    #[error("value {value} of column {name:?} at row {row}, stored as {stored}, does not fit {wanted}")]
    Overflow { name: String, row: usize, value: i64, stored: DataType, wanted: DataType },
    #[error("column {name:?} of type {data_type} has no stored form")]
    Unsupported { name: String, data_type: DataType },
    #[error("a chunk holds 1 to {max} rows, got {rows}")]
    RowCount { rows: usize, max: usize },
    #[error("a column of a chunk holds at most 2 GiB, got {bytes} bytes in {id}")]
    TooLarge { id: ChunkId, bytes: usize },
    /// An earlier write or sync failed (or a background task panicked) and has been reported; nothing that came
    /// after it can be trusted to reach the disk.
    #[error("chunk store {dir:?} stopped after an earlier failure: {reason}")]
    Poisoned { dir: PathBuf, reason: String },
}

impl ChunkError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let failed = DiskError::of(action, path);
        move |error| ChunkError::Io(failed(error))
    }

    /// An error of the codec in a file, where the chunk begins at `start`; `name` is the column that it concerns.
    pub(crate) fn codec(error: CodecError, path: &Path, start: u64, id: ChunkId, name: &str) -> Self {
        let name = name.to_owned();
        match error {
            CodecError::Damaged { pos, what, expected, got } => {
                ChunkError::Damaged { path: path.to_owned(), pos: start + pos, what, expected, got }
            }
            CodecError::NewerFormat { pos, found, newest } => {
                let (path, pos, what) = (path.to_owned(), start + pos, "a chunk");
                ChunkError::NewerFormat { path, pos, what, found, newest }
            }
            CodecError::Type { stored, wanted } => ChunkError::Type { name, stored, wanted },
            CodecError::Overflow { row, value, stored, wanted } => {
                ChunkError::Overflow { name, row, value, stored, wanted }
            }
            CodecError::Unsupported { data_type } => ChunkError::Unsupported { name, data_type },
            CodecError::RowCount { rows } => ChunkError::RowCount { rows, max: crate::chunk::MAX_ROWS },
            CodecError::TooLarge { bytes } => ChunkError::TooLarge { id, bytes },
        }
    }

    /// Whose turn it is.
    pub fn class(&self) -> Class {
        match self {
            ChunkError::Io(_) | ChunkError::Poisoned { .. } => Class::External,
            ChunkError::Damaged { .. } => Class::Corrupt,
            ChunkError::NewerFormat { .. }
            | ChunkError::Type { .. }
            | ChunkError::Overflow { .. }
            | ChunkError::TooLarge { .. } => Class::User,
            ChunkError::Missing { .. } | ChunkError::Unsupported { .. } | ChunkError::RowCount { .. } => {
                Class::Internal
            }
        }
    }

    /// A remedy, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ChunkError::Io(disk) => Some(disk.hint()),
            ChunkError::Damaged { .. } => Some(
                "these bytes changed after they were written: check the disk and restore the folder from a copy",
            ),
            ChunkError::NewerFormat { .. } => Some("run the build that wrote it, or a newer one"),
            ChunkError::Poisoned { .. } => Some("see to the earlier failure, then start again"),
            _ => None,
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
        let (class, hint, message) = (error.class(), error.hint(), error.to_string());
        let converted = match error {
            ChunkError::Io(disk) => disk.into(),
            _ => Error::new(class, message),
        };
        match hint {
            Some(hint) => converted.with_retry(retry).with_hint(hint),
            None => converted.with_retry(retry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_said_is_passed_on_and_not_tried_again() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::PermissionDenied] {
            let error = Error::from(ChunkError::io("write", "chunks")(kind.into()));
            assert!(error.hint().is_some() && error.chain().starts_with("write \"chunks\": "), "{error}");
            assert_eq!((error.class(), error.retry()), (Class::External, Retry::OutcomeUnknown));
        }
    }
}
