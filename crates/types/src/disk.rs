//! What a disk said while something was done to a file, and what to do about it: one form for all crates.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Error;

/// A call to the file system that failed. Cheap to clone: every waiter gets the same failure.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{action} {path:?}")]
pub struct DiskError {
    /// A present-tense verb: `write`, `sync`, `open`.
    pub action: &'static str,
    pub path: PathBuf,
    #[source]
    pub source: Arc<io::Error>,
}

impl DiskError {
    /// For `map_err`.
    pub fn of(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { action, path, source: Arc::new(source) }
    }

    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// As [`is_disk_full`].
    pub fn is_full(&self) -> bool {
        is_disk_full(&self.source)
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        hint(&self.source)
    }
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        let (message, hint) = (error.to_string(), error.hint());
        Error::external(message).with_hint(hint).with_source(error.source)
    }
}

impl Error {
    /// What a disk said while something was done that `action` names with its file: `write "a/b"`.
    pub fn disk(action: impl Into<String>, source: io::Error) -> Self {
        Self::external(action).with_hint(hint(&source)).with_source(source)
    }
}

/// Whether there is no room: the disk is full, or its owner's quota of it.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn hint(error: &io::Error) -> &'static str {
    match is_disk_full(error) {
        true => "make room on the disk and start again: nothing is lost",
        false => {
            "look for the cause (disk, mount, permissions), then start again: what was committed is kept"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    #[test]
    fn an_error_of_a_disk_says_what_to_do() {
        // EIO, ENOSPC, EDQUOT, EACCES, EROFS.
        for (code, word) in
            [(5, "disk"), (28, "make room"), (122, "make room"), (13, "permissions"), (30, "mount")]
        {
            let said = || io::Error::from_raw_os_error(code);
            let disk = DiskError::of("write", "a/b")(said());
            assert_eq!(disk.is_full(), word == "make room");
            for error in [Error::from(disk), Error::disk("write \"a/b\"", said())] {
                assert!(error.hint().is_some_and(|hint| hint.contains(word)), "{error}");
                assert_eq!((error.class(), error.is_disk_full()), (Class::External, word == "make room"));
                let said = format!("write \"a/b\": {}", said());
                assert_eq!(error.chain(), said);
            }
        }
    }
}
