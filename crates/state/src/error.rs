//! What can go wrong with a back end, with the place where it did and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_types::{Class, DiskError, Error, Retry};

/// An error of a back end.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    #[error(transparent)]
    Io(DiskError),
    #[error("damage in {path:?} at byte {pos}: {what}: expected {expected}, got {got}")]
    Corrupt { path: PathBuf, pos: u64, what: &'static str, expected: String, got: String },
    /// Written by a newer build.
    #[error("{path:?} has format {found} of {what}, and this build reads up to {newest}")]
    NewerFormat { path: PathBuf, what: &'static str, found: u16, newest: u16 },
    /// The commit record names a version that does not belong here.
    #[error("version of the state in {dir:?}: {what}: expected {expected}, got {got}")]
    Version { dir: PathBuf, what: &'static str, expected: String, got: String },
    #[error("{what} takes {bytes} bytes, and at most {max} fit")]
    TooLarge { what: &'static str, bytes: u64, max: u64 },
    /// The caller broke the order of cycles.
    #[error("{call} of cycle {cycle} after {after}")]
    Order { call: &'static str, cycle: u64, after: String },
    /// An earlier write or sync failed and has been reported; the state of the disk is unknown.
    #[error("the state in {dir:?} stopped after an earlier failure: {reason}")]
    Poisoned { dir: PathBuf, reason: String },
    #[error("there is no back end {name:?}; there are {known}")]
    UnknownBackend { name: String, known: String },
    /// A store on another machine.
    #[error("{store}: {message}")]
    Store { store: String, fault: StoreFault, message: String, hint: Option<String> },
}

/// What is wrong with a store on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// It cannot be reached, or cannot do its work now.
    Down,
    /// It will never serve the request: the caller or the configuration is wrong.
    Refused,
    /// It has not what it acknowledged, or what another has written.
    Damaged,
    /// Another process has taken the state over.
    TakenOver,
    /// The job ended while it was waited for.
    Ended,
}

impl StateError {
    /// What the disk said of `path`, for `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| StateError::Io(DiskError::of(action, path)(error))
    }

    pub(crate) fn corrupt(
        path: &Path,
        pos: u64,
        what: &'static str,
        expected: impl ToString,
        got: impl ToString,
    ) -> Self {
        let (expected, got) = (expected.to_string(), got.to_string());
        StateError::Corrupt { path: path.to_owned(), pos, what, expected, got }
    }

    /// As [`StateError::io`], of a file that the commit record names: without it there is damage.
    pub(crate) fn io_of_named(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => {
                Self::corrupt(path, 0, "a file that the commit record names", "one", "none")
            }
            _ => Self::io(action, path)(source),
        }
    }

    /// Whether the disk was full and nothing has changed by that: the same may be tried again.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, StateError::Io(disk) if disk.is_full()) && !self.leaves_doubt()
    }

    /// Whether the state of the disk is unknown: after a failed sync, whatever its reason, and after a write of
    /// which a part may be there.
    pub(crate) fn leaves_doubt(&self) -> bool {
        matches!(self, StateError::Io(disk) if !disk.is_full() || disk.action == "sync")
    }

    /// Whether a file was not there: it may have been unlinked between looking up its name and opening it.
    pub(crate) fn is_missing_file(&self) -> bool {
        matches!(self, StateError::Io(disk) if disk.kind() == io::ErrorKind::NotFound)
    }

    /// Whose turn it is.
    pub fn class(&self) -> Class {
        match self {
            StateError::Io(_) | StateError::Poisoned { .. } => Class::External,
            StateError::Corrupt { .. } | StateError::Version { .. } => Class::Corrupt,
            StateError::NewerFormat { .. }
            | StateError::TooLarge { .. }
            | StateError::UnknownBackend { .. } => Class::User,
            StateError::Order { .. } => Class::Internal,
            StateError::Store { fault, .. } => match fault {
                StoreFault::Down | StoreFault::TakenOver | StoreFault::Ended => Class::External,
                StoreFault::Refused => Class::User,
                StoreFault::Damaged => Class::Corrupt,
            },
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            StateError::Store { hint, .. } => hint.as_deref(),
            StateError::Io(disk) => Some(disk.hint()),
            StateError::NewerFormat { .. } => Some("run the build that wrote it, or a newer one"),
            StateError::TooLarge { .. } => {
                Some("split the value over several keys, or the changes over several slices")
            }
            StateError::Poisoned { .. } => {
                Some("start the job again: it goes on at the last committed cycle")
            }
            StateError::Corrupt { .. } | StateError::Version { .. } => {
                Some("restore the data directory from a copy, or remove the job's folder to start over")
            }
            _ => None,
        }
    }
}

impl From<StateError> for Error {
    /// A failed write or sync is not to be repeated on the same instance: whether its bytes arrived is open.
    fn from(error: StateError) -> Self {
        let retry = match &error {
            StateError::Io(disk) if disk.is_full() && matches!(disk.action, "create" | "write") => {
                Retry::WithBackoff
            }
            _ if error.class() == Class::External => Retry::OutcomeUnknown,
            _ => Retry::Never,
        };
        let (class, hint, message) = (error.class(), error.hint().map(str::to_owned), error.to_string());
        let converted = match error {
            StateError::Io(disk) => disk.into(),
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
    fn a_full_disk_is_told_apart_and_says_what_to_do() {
        let path = Path::new("/d/segment");
        let full = StateError::io("write", path)(io::ErrorKind::StorageFull.into());
        assert!(full.is_full() && full.hint().unwrap().contains("make room"));
        let converted = Error::from(full);
        assert_eq!((converted.class(), converted.retry()), (Class::External, Retry::WithBackoff));
        let other = StateError::io("sync", path)(io::Error::from_raw_os_error(5));
        assert!(!other.is_full() && other.hint().unwrap().contains("look for the cause"));
        assert_eq!(Error::from(other).retry(), Retry::OutcomeUnknown);
        let lost = StateError::io("sync", path)(io::ErrorKind::StorageFull.into());
        assert!(lost.leaves_doubt() && !lost.is_full() && lost.hint().unwrap().contains("make room"));
    }
}
