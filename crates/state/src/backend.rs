//! The contract of a back end.
//!
//! The life of a cycle: [`write`](Backend::write) once or several times, [`prepare`](Backend::prepare), the commit
//! record of the job, [`committed`](Backend::committed). The next cycle may be written before `committed` has come.
//! On a start the back end is opened with the version that the last commit record names, or with none; what the
//! version does not name is dropped, and the cycles after it are replayed with the same numbers and content.
//!
//! What every back end keeps
//! * A committed value stays readable after a crash until a newer one is committed, not merely written.
//! * A crash at any point leaves the state of the last commit record, whole.
//! * What was taken away does not come back.
//! * A cycle that is written again has the same result.
//! * A failed sync ends the instance: every later call fails, and the way on is to open again.
//!
//! Values are versioned by the cycle, and `prepare` need not name files: that is how a remote store fits
//! (`state-remote`). Its calls take as long as an outage lasts, until the job ends.

use std::fmt;
use std::ops::ControlFlow;

use crate::{Changes, StateError};

/// Names a durable state of a back end; bytes that only the back end reads, some dozens of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Version(Vec<u8>);

impl Version {
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Version(")?;
        for byte in &self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// Takes a key and its value, and says whether there should be more.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Keeps the state of one task. One thread writes; any may read at the same time.
///
/// In addition to the errors that are named, one on another machine has `Store`.
pub trait Backend: Send + Sync + fmt::Debug {
    /// The newest value of a key, committed or not.
    ///
    /// # Errors
    /// `Io`, `Corrupt`, `Poisoned`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError>;

    /// The newest values of several keys, in the order of the keys; read in the order that suits the back end.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StateError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// Adds changes of a cycle, which is not older than the last one written and newer than the last one prepared.
    /// On return readers see them; they are not durable. After an error readers see none of them, or every later call
    /// fails; where they see none, as on a full disk of a back end that goes on, the same call may be made
    /// again.
    ///
    /// # Errors
    /// `Io`, `Full`, `TooLarge`, `Order`, `Poisoned`; `Corrupt` where old data that is tidied up is damaged.
    fn write(&self, cycle: u64, changes: &Changes) -> Result<(), StateError>;

    /// Makes all that was written durable, the newest of it in `cycle`, and names it for the commit record.
    ///
    /// # Errors
    /// `Io`, `Full`, `Order`, `Poisoned`.
    fn prepare(&self, cycle: u64) -> Result<Version, StateError>;

    /// The commit record that names the version of `cycle` is durable: what only older ones need may go.
    ///
    /// # Errors
    /// `Io`, `Full`, `Order`, `Poisoned`.
    fn committed(&self, cycle: u64) -> Result<(), StateError>;

    /// Hands over every live key with its value once, in the order that is cheapest, until it is asked to stop.
    ///
    /// It may run while the writer works: a key that is written meanwhile comes with the old value, the new one, or not
    /// at all, so a filler of a cache keeps the values that the cache has.
    ///
    /// # Errors
    /// `Io`, `Corrupt`, `Poisoned`.
    fn scan(&self, visit: &mut Visit<'_>) -> Result<(), StateError>;

    /// An orderly end: leaves files that make the next start quick. Nothing depends on it.
    ///
    /// # Errors
    /// `Io`, `Full`, `Poisoned`.
    fn close(&self) -> Result<(), StateError> {
        Ok(())
    }

    fn stats(&self) -> BackendStats;
}

/// Bytes of changes that a back end is given with one call, but for the one that goes beyond.
const SLICE: usize = 32 << 20;

/// Writes all changes of a cycle, however many, with as many calls of [`Backend::write`] as that takes.
///
/// # Errors
/// Of [`Backend::write`]; what came before it may be written then, so the instance cannot go on.
pub fn write_changes(backend: &dyn Backend, cycle: u64, changes: &Changes) -> Result<(), StateError> {
    write_slices(backend, cycle, changes, SLICE)
}

fn write_slices(backend: &dyn Backend, cycle: u64, changes: &Changes, most: usize) -> Result<(), StateError> {
    if changes.byte_len() <= most {
        return backend.write(cycle, changes);
    }
    let mut slice = Changes::new();
    for change in changes {
        match change.value {
            Some(value) => slice.push(change.key, value),
            None => slice.remove(change.key),
        }
        if slice.byte_len() >= most {
            backend.write(cycle, &slice)?;
            slice.clear();
        }
    }
    if slice.is_empty() { Ok(()) } else { backend.write(cycle, &slice) }
}

/// What a back end holds and has done since it was opened. A remote one knows only what it has done, and whether there
/// are keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendStats {
    /// Live keys; where a back end cannot count them an estimate, 0 only if there are none.
    pub keys: u64,
    /// Bytes of live keys and values as stored, within two percent.
    pub live_bytes: u64,
    /// Bytes in files, or of keys and values if there are no files.
    pub disk_bytes: u64,
    /// Bytes in memory for finding keys.
    pub index_bytes: u64,
    /// Files that hold values.
    pub segments: u64,
    /// Segments that were compacted.
    pub compactions: u64,
    /// Bytes that compaction copied.
    pub copied_bytes: u64,
    /// Values that were read by key.
    pub reads: u64,
    /// Changes that were written.
    pub writes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, MemoryDisk};

    #[test]
    fn a_cycle_of_any_size_is_written_in_slices_and_the_last_value_of_a_key_counts() {
        let backend = Memory::open(&MemoryDisk::new(), None).unwrap();
        let mut changes = Changes::new();
        for n in 0..100_u32 {
            changes.push(&(n % 30).to_le_bytes(), &n.to_le_bytes());
        }
        changes.remove(&[7, 0, 0, 0]);
        for most in [1, 40, 399, 1 << 20] {
            write_slices(&backend, 1, &changes, most).unwrap();
            assert_eq!(backend.get(&[7, 0, 0, 0]).unwrap(), None, "in slices of {most}");
            assert_eq!(backend.get(&[8, 0, 0, 0]).unwrap(), Some(98_u32.to_le_bytes().to_vec()));
            assert_eq!(backend.get(&[20, 0, 0, 0]).unwrap(), Some(80_u32.to_le_bytes().to_vec()));
        }
    }
}
