//! What can go wrong with a log, with the place where it did and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_types::{Class, DiskError, Error, Retry};

use super::{LogPosition, MAX_RECORD};

/// An error of a log. Cheap to clone: every waiter gets the same failure.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    #[error(transparent)]
    Io(DiskError),
    /// None of the bytes can be seen; they are kept, and a later call tries again.
    #[error("disk full at {path:?}: {wanted} bytes more are needed")]
    Full { path: PathBuf, wanted: u64 },
    #[error("damage in {path:?} at byte {pos}: {what}: expected {expected}, got {got}")]
    Damaged { path: PathBuf, pos: u64, what: &'static str, expected: String, got: String },
    #[error("segment {path:?} has format version {got}, this program reads versions up to {known}")]
    NewerFormat { path: PathBuf, known: u16, got: u16 },
    #[error("{wanted} is not in log {dir:?}, which holds {first} up to before {next}")]
    Missing { dir: PathBuf, wanted: LogPosition, first: LogPosition, next: LogPosition },
    #[error("a record of a log has at most {MAX_RECORD} bytes, got {bytes}")]
    TooLarge { bytes: usize },
    #[error("a log's name is made of a to z, 0 to 9, '-' and '_', got {name:?}")]
    Name { name: String },
    /// An earlier write or sync failed and has been reported; nothing that came after it can be trusted to reach
    /// the disk, and repeating the call would prove nothing.
    #[error("log {dir:?} stopped after an earlier failure: {reason}")]
    Poisoned { dir: PathBuf, reason: String },
    #[error("log {dir:?} is closed")]
    Closed { dir: PathBuf },
}

impl LogError {
    /// What the disk said of `path`, for `map_err`. `action` as in [`DiskError`].
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| LogError::Io(DiskError::of(action, path)(error))
    }

    /// Whose turn it is.
    pub fn class(&self) -> Class {
        match self {
            LogError::Io(_) | LogError::Full { .. } | LogError::Poisoned { .. } => Class::External,
            LogError::Damaged { .. } => Class::Corrupt,
            LogError::NewerFormat { .. } | LogError::TooLarge { .. } => Class::User,
            LogError::Missing { .. } | LogError::Name { .. } | LogError::Closed { .. } => Class::Internal,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            LogError::Io(disk) => disk.hint(),
            LogError::Poisoned { .. } => {
                "look for the cause (disk, mount, permissions), then restart: opening the log finds what is durable"
            }
            LogError::Full { .. } => "free space on this disk or lower the retention, then go on or restart",
            LogError::Damaged { .. } => {
                "these bytes changed after they were written: check the disk and restore the folder from a copy"
            }
            LogError::NewerFormat { .. } => "run the version that wrote it, or a newer one",
            LogError::Missing { .. } => "retention has removed it, or it was never written",
            LogError::TooLarge { .. } => "send smaller records or blocks",
            LogError::Name { .. } => "choose another name",
            LogError::Closed { .. } => "open the log again",
        }
    }
}

impl From<LogError> for Error {
    /// A failed write or sync is not to be repeated on the same log: whether its bytes arrived is open.
    fn from(error: LogError) -> Self {
        let retry = match error {
            LogError::Io(_) | LogError::Poisoned { .. } => Retry::OutcomeUnknown,
            LogError::Full { .. } => Retry::WithBackoff,
            _ => Retry::Never,
        };
        let (class, hint, message) = (error.class(), error.hint(), error.to_string());
        let converted = match error {
            LogError::Io(disk) => disk.into(),
            LogError::Full { .. } => {
                Error::new(class, message).with_source(io::Error::from(io::ErrorKind::StorageFull))
            }
            _ => Error::new(class, message),
        };
        converted.with_retry(retry).with_hint(hint)
    }
}
