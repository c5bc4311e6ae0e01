//! What can go wrong with a lookup table, with the place where it did and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_types::{Class, DiskError, Error, Retry};

/// An error of a lookup table or of building one.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    #[error(transparent)]
    Io(DiskError),
    #[error("damage in {path:?} at byte {pos}: {what}: expected {expected}, got {got}")]
    Damaged { path: PathBuf, pos: u64, what: &'static str, expected: String, got: String },
    /// Written by a newer build.
    #[error("{path:?} has format {found} of lookup tables, and this build reads up to {newest}")]
    NewerFormat { path: PathBuf, found: u16, newest: u16 },
    /// More lines than allowed are no rows; `line` is the last of them.
    #[error("{line}, and {bad} such lines are more than the {allowed} that are allowed")]
    TooManyBad { line: BadLine, bad: u64, allowed: u64 },
    /// A row that was handed over is invalid.
    #[error("a row of a lookup table: {reason}")]
    Row { reason: String },
    #[error("building {path:?} was stopped")]
    Stopped { path: PathBuf },
    /// The column of addresses has another type.
    #[error("a lookup table is asked by addresses of 16 bytes, got {width}")]
    Width { width: i32 },
    /// A block that was just encoded does not read back as what it was made of: our mistake.
    #[error("block of {key} does not read back as it was written")]
    Encoding { key: String },
}

/// A line of a source that is no row, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    pub path: PathBuf,
    pub line: u64,
    pub reason: String,
    /// The value there, where that can be shown.
    pub found: Option<String>,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} line {}: {}", self.path, self.line, self.reason)?;
        self.found.as_ref().map_or(Ok(()), |found| write!(f, ", got {found:?}"))
    }
}

impl LookupError {
    /// What the disk said of `path`, for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| LookupError::Io(DiskError::of(action, path)(error))
    }

    /// Whose turn it is.
    pub fn class(&self) -> Class {
        match self {
            LookupError::Io(_) => Class::External,
            LookupError::Damaged { .. } => Class::Corrupt,
            LookupError::NewerFormat { .. }
            | LookupError::TooManyBad { .. }
            | LookupError::Row { .. }
            | LookupError::Stopped { .. }
            | LookupError::Width { .. } => Class::User,
            LookupError::Encoding { .. } => Class::Internal,
        }
    }

    /// A remedy, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            LookupError::Io(disk) if disk.is_full() => Some(
                "make room and build again: a table and its sorted parts take a third of the source's size",
            ),
            LookupError::Io(_) => Some("look for the cause: path, disk, mount, permissions"),
            LookupError::Damaged { .. } => {
                Some("these bytes changed after they were written: check the disk and build the table again")
            }
            LookupError::NewerFormat { .. } => Some("run the build that wrote it, or build the table again"),
            LookupError::TooManyBad { .. } => Some("look at the line, or allow more of them"),
            _ => None,
        }
    }
}

impl From<LookupError> for Error {
    fn from(error: LookupError) -> Self {
        let (message, private) = match &error {
            LookupError::TooManyBad { line, bad, allowed } => {
                let found = line.found.as_ref().map(|found| format!("; the line has {found:?}"));
                let line = BadLine { found: None, ..line.clone() };
                (LookupError::TooManyBad { line, bad: *bad, allowed: *allowed }.to_string(), found)
            }
            other => (other.to_string(), None),
        };
        let mut converted = Error::new(error.class(), message).with_retry(Retry::Never);
        if let Some(private) = private {
            converted = converted.with_private(private);
        }
        if let Some(hint) = error.hint() {
            converted = converted.with_hint(hint);
        }
        match error {
            LookupError::Io(disk) => converted.with_source(disk.source),
            _ => converted,
        }
    }
}
