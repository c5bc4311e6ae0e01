//! How a file is recognized: by its beginning, and by the bytes before a place in it.
//!
//! A file that grew has both; one that was written anew begins otherwise, and one that was edited has other bytes
//! before the place, because they have moved or differ. Nothing is known of a change further in that moves nothing.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

use thalweg_types::hash_bytes;

use super::input::Contents;

/// Bytes at the beginning of a file by which it is recognized, after its preamble (a CSV header).
pub(super) const BEGIN: u64 = 4 << 10;

/// Bytes before a place by which the file is recognized.
pub(in crate::source) const BEFORE: usize = 4 << 10;

/// How a file compares with one that was read up to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The one that was read, which may have grown.
    Same,
    /// It begins as that one, which is so long that no other does, and is shorter than the place: it may be on the way
    /// of being written once more.
    Shorter,
    /// It begins as that one, which is so long that no other does, and has other bytes before the place.
    Edited,
    /// Another one, or the same that was emptied and written anew.
    Another,
}

/// Tells a file from others of its file system, for as long as it is there.
pub(super) fn inode(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Metadata that changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Some bytes of a file: where they are, how many, and a hash of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print {
    pub(super) len: u64,
    pub(super) hash: u64,
}

impl Print {
    pub(super) const NONE: Self = Self { len: 0, hash: 0 };

    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { len: bytes.len() as u64, hash: hash_bytes(bytes) }
    }
}

/// A place in a file, and how the file is recognized there.
pub(super) struct KnownAt {
    pub(super) place: u64,
    pub(super) begin: Print,
    /// The beginning is as long as it gets: nobody writes that by chance.
    pub(super) is_full: bool,
    pub(super) before: Print,
}

impl KnownAt {
    /// # Errors
    /// Where the file cannot be read.
    pub(super) fn look(&self, file: &Contents) -> std::io::Result<Look> {
        if !is_at(file, 0, self.begin)? {
            return Ok(Look::Another);
        }
        let told = |look| if self.is_full { look } else { Look::Another };
        if !file.reaches(self.place)? {
            return Ok(told(Look::Shorter));
        }
        let is_same = is_at(file, self.place - self.before.len, self.before)?;
        Ok(if is_same { Look::Same } else { told(Look::Edited) })
    }
}

/// Whether a file has these bytes at a place; not where it is shorter.
fn is_at(file: &Contents, at: u64, print: Print) -> std::io::Result<bool> {
    Ok(print.len == 0 || Print::of(&file.bytes_at(at, print.len)?) == print)
}
