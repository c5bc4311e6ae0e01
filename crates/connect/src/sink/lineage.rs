//! How far a sink's file has been committed, in a note next to the file.
//!
//! A job that goes on cuts bytes that its last commit does not name, as a crash may have left them. An older copy of a
//! data directory names less than that by any number of cycles, and nothing in it tells that it is old. So the sink
//! leaves next to its file, in `.NAME.thalweg`, the number of the last cycle that was committed and had made the file
//! longer. It is written after the commit record, so it is never ahead of that: a job whose last commit is of an
//! earlier cycle has lost commits, and nothing may be cut.
//!
//! The note is never synced. A crash in the moment between the record and the note leaves the one of the cycle before,
//! a power cut an older one or none; then as many cycles may be cut unseen, but nothing is refused wrongly. A
//! note that is missing, damaged or of another sink says nothing: then all is cut, with a warning.
//!
//! Layout (little-endian): magic 8, format version 2, zeros 2, identity of job and sink 8, cycle 8, checksum of these
//! 4.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_types::hash_bytes;

/// Persisted.
const MAGIC: &[u8; 8] = b"thlgout\n";
const VERSION: u16 = 1;
const LEN: usize = 32;

/// The note of one file, by its only writer.
#[derive(Debug)]
pub(super) struct Lineage {
    path: PathBuf,
    identity: u64,
    /// That it cannot be written has been said. Relaxed: it orders nothing.
    is_said: AtomicBool,
}

impl Lineage {
    pub(super) fn new(file: &Path, job: &str, sink: &str) -> Self {
        let identity = hash_bytes(format!("sink/{job}/{sink}").as_bytes());
        Self { path: path_of(file), identity, is_said: AtomicBool::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The last cycle that was committed; `None` where nothing is said of this sink.
    pub(super) fn committed(&self) -> Option<u64> {
        let mut bytes = [0; LEN];
        File::open(&self.path).and_then(|file| file.read_exact_at(&mut bytes, 0)).ok()?;
        let cycle = u64::from_le_bytes(bytes[20..28].try_into().ok()?);
        (bytes == encoded(self.identity, cycle)).then_some(cycle)
    }

    /// The sink goes on after this cycle, whatever was committed before in another life of the file.
    pub(super) fn begin(&self, cycle: u64) {
        if self.committed().is_some_and(|committed| committed > cycle) {
            self.note(cycle);
        }
    }

    /// The commit record of a cycle is on the disk. Where this cannot be noted a warning says so, once.
    pub(super) fn note(&self, cycle: u64) {
        let file = File::options().create(true).write(true).truncate(false).open(&self.path);
        let outcome = file.and_then(|file| file.write_all_at(&encoded(self.identity, cycle), 0));
        if let Err(error) = outcome
            && !self.is_said.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                path = %self.path.display(),
                %error,
                "the sink's place in its file cannot be noted: an older copy of the data directory would cut the file"
            );
        }
    }
}

/// Where the note of a file is.
fn path_of(file: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(".thalweg");
    file.with_file_name(name)
}

fn encoded(identity: u64, cycle: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..20].copy_from_slice(&identity.to_le_bytes());
    bytes[20..28].copy_from_slice(&cycle.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_sink_believes_a_note_that_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.ndjson");
        let note = |sink| Lineage::new(&file, "j", sink);
        let own = note("answers");
        assert_eq!(
            (own.committed(), own.path().file_name().unwrap().to_str()),
            (None, Some(".out.ndjson.thalweg"))
        );
        own.begin(7);
        assert_eq!(own.committed(), None, "nothing was committed");
        own.note(8);
        assert_eq!((note("answers").committed(), note("other").committed()), (Some(8), None));
        own.begin(9);
        assert_eq!(own.committed(), Some(8));
        own.begin(3);
        assert_eq!(own.committed(), Some(3), "of another life");
        let whole = std::fs::read(own.path()).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(own.path(), &bytes).unwrap();
            assert_eq!(note("answers").committed(), None, "bit {bit}");
        }
    }

    #[test]
    fn a_note_that_cannot_be_written_is_missed_once_and_stops_nothing() {
        let note = Lineage::new(Path::new("/proc/nowhere/out"), "j", "answers");
        let said = thalweg_testing::logs::said_here(|| {
            note.note(1);
            note.note(2);
        });
        assert_eq!(said.matches("cannot be noted").count(), 1, "{said}");
    }
}
