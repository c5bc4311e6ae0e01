//! The default back end: append-only segments under an index in memory.
//!
//! Changes are appended to the *active* segment in frames of many entries; the index maps each key,
//! by a fingerprint or by its number, to the place of its newest entry, so that a read is one look-up and one call to the disk. A full segment is
//! *sealed* and never changed. A segment in which nothing is live any more leaves the list of segments; the oldest
//! one is compacted when more than its share is dead. Every version names the sealed segments, or a list of them, and how
//! much of the active one counts. From time to time the index itself is put into a file, so that a start reads that and
//! the entries that were appended since.
//!
//! Order of things
//! * The sync of a segment has begun before its successor is made, and all of them have ended before a version is
//!   given out.
//! * A list is published before a version names it, and what left it is unlinked after that version is committed.
//! * The newest entry of a key is the last one: compaction appends only entries that are live at that moment, so
//!   reading segments in order, from the beginning or from an index file on, gives the same index.
//! * A tombstone goes only while the oldest segment is compacted: whatever it hides is gone by then.
//!
//! Threads: one writes, under `writer`, and may have another sync much of it meanwhile; readers take `places` for the
//! length of a look-up and read from files without a lock. The writer takes `places` for some hundred changes at once.
//! Lock order: `writer`, `places`.
//!
//! On disk: `docs/formats/state-indexed.md`.
//!
//! Not here: when a cycle ends, which keys are worth caching.

mod compact;
mod dump;
mod entry;
mod handles;
mod health;
mod index;
mod list;
mod location;
mod look;
mod numbers;
mod open;
mod place;
mod read;
mod segment;
mod table;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thalweg_storage::{File, Fs};
use thalweg_types::HashKey;

pub use self::look::{
    SegmentSummary, StateSummary, StateTail, describe, inspect, is_empty, is_state_folder, version_in,
};

use self::handles::Handles;
use self::health::Health;
use self::place::Places;
use self::writer::Writer;
use crate::wire::{self, Fields};
use crate::{Backend, BackendStats, Changes, StateError, Version, Visit};

/// Sizes of an [`Indexed`] back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedOptions {
    /// Bytes after which a segment is sealed; at most 256 MiB. Of little state it is sealed earlier, at a sixteenth of
    /// the live bytes, but not below 256 KiB. One write stays in one segment.
    pub segment_bytes: u64,
    /// Segments that are open for reading at once.
    pub open_segments: usize,
    /// Sealed segments that a version names itself, twenty bytes each; more are named by a list in a file. States of up
    /// to some gigabytes have no more than the default; at most 65,535.
    pub named_segments: u16,
}

impl Default for IndexedOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, open_segments: 64, named_segments: 32 }
    }
}

/// Append-only segments under an index in memory.
#[derive(Debug)]
pub struct Indexed {
    shared: Shared,
    /// Held by the one thread that writes, for the length of a call; a scan takes it to see where it begins.
    writer: Mutex<Writer>,
}

/// What readers and the writer share.
#[derive(Debug)]
struct Shared {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    identity: u64,
    /// That of the index: addresses are made without a lock.
    hash_key: HashKey,
    options: IndexedOptions,
    places: RwLock<Places>,
    handles: Handles,
    health: Health,
    counters: Counters,
}

/// Relaxed everywhere: counts, not hand-overs; but for `scans`, which changes under the writer's lock.
#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    compactions: AtomicU64,
    copied_bytes: AtomicU64,
    /// Bytes of index files.
    dump_bytes: AtomicU64,
    /// Scans under way: nothing is compacted meanwhile.
    scans: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl Shared {
    fn places(&self) -> RwLockReadGuard<'_, Places> {
        self.places.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn places_mut(&self) -> RwLockWriteGuard<'_, Places> {
        self.places.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Indexed {
    /// Opens the files that `version` names in `dir`, which is made if it is missing, and drops the rest. `identity`
    /// distinguishes the task's files from those of others.
    ///
    /// # Errors
    /// `Corrupt` where committed bytes that are read have changed, `Version`, `NewerFormat`, `Io`,
    /// `Full`.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        identity: u64,
        options: IndexedOptions,
        version: Option<&Version>,
    ) -> Result<Self, StateError> {
        let options = IndexedOptions { segment_bytes: options.segment_bytes.clamp(1, 256 << 20), ..options };
        let places = Places::new();
        let mut shared = Shared {
            handles: Handles::new(Arc::clone(&fs), dir.to_owned(), options.open_segments),
            fs,
            dir: dir.to_owned(),
            identity,
            options,
            hash_key: places.index.hash_key(),
            places: RwLock::new(places),
            health: Health::new(dir),
            counters: Counters::default(),
        };
        let writer = open::open(&shared, version)?;
        let hash_key = shared.places().index.hash_key();
        shared.hash_key = hash_key;
        Ok(Self { shared, writer: Mutex::new(writer) })
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Indexed {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        self.shared.health.check_read()?;
        read::get(&self.shared, key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StateError> {
        self.shared.health.check_read()?;
        read::get_many(&self.shared, keys)
    }

    fn write(&self, cycle: u64, changes: &Changes) -> Result<(), StateError> {
        self.shared.health.guard(|| self.writer().write(&self.shared, cycle, changes))
    }

    fn prepare(&self, cycle: u64) -> Result<Version, StateError> {
        self.shared.health.guard(|| self.writer().prepare(&self.shared, cycle))
    }

    fn committed(&self, cycle: u64) -> Result<(), StateError> {
        self.shared.health.guard(|| self.writer().committed(&self.shared, cycle))
    }

    fn scan(&self, visit: &mut Visit<'_>) -> Result<(), StateError> {
        self.shared.health.check_read()?;
        // The count is released however the scan ends, by a panic of the caller's too.
        struct Under<'a>(&'a AtomicU64);
        impl Drop for Under<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let (extents, _under) = {
            let writer = self.writer();
            Counters::add(&self.shared.counters.scans, 1);
            (writer.extents(), Under(&self.shared.counters.scans))
        };
        read::scan(&self.shared, &extents, visit)
    }

    fn close(&self) -> Result<(), StateError> {
        self.shared.health.guard(|| self.writer().close(&self.shared))
    }

    fn stats(&self) -> BackendStats {
        let (places, counters) = (self.shared.places(), &self.shared.counters);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let segments = places.segments().count() as u64;
        let in_segments: u64 = places.segments().map(|(_, segment)| segment.len).sum();
        BackendStats {
            keys: places.keys(),
            live_bytes: places.live_bytes(),
            disk_bytes: in_segments + count(&counters.dump_bytes),
            index_bytes: places.index.bytes(),
            segments,
            compactions: count(&counters.compactions),
            copied_bytes: count(&counters.copied_bytes),
            reads: count(&counters.reads),
            writes: count(&counters.writes),
        }
    }
}

/// Twenty digits, as names of files have them.
fn parse_digits(text: &str) -> Option<u64> {
    let plain = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

fn parse_name(name: &str, prefix: &str, suffix: &str) -> Option<u64> {
    parse_digits(name.strip_prefix(prefix)?.strip_suffix(suffix)?)
}

fn read_all(file: &dyn File, path: &Path) -> Result<Vec<u8>, StateError> {
    let len = file.len().map_err(StateError::io("measure", path))?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0).map_err(StateError::io("read", path))?;
    Ok(bytes)
}

/// What a file may be that begins with magic and format, and ends with a checksum, in every version.
#[derive(Clone, Copy, Debug)]
struct Kind {
    magic: [u8; 8],
    /// In an error: `a segment`.
    what: &'static str,
    /// The same of the checksum.
    checksum: &'static str,
    oldest: u16,
    newest: u16,
}

/// Checks magic, checksum and format of a file or its head, in this order, as a format that changed is not a newer one;
/// gives back the bytes before the checksum.
fn check_head<'a>(path: &Path, bytes: &'a [u8], kind: Kind) -> Result<&'a [u8], StateError> {
    let Kind { magic, what, checksum, oldest, newest } = kind;
    let mut fields = Fields::new(bytes);
    let found = fields.bytes(8);
    if found != Some(&magic) {
        let (expected, got) = (format!("{magic:02x?}"), format!("{:02x?}", found.unwrap_or_default()));
        return Err(StateError::corrupt(path, 0, "magic", expected, got));
    }
    let content = wire::checked(bytes).map_err(|(expected, got)| {
        StateError::corrupt(path, 0, checksum, format!("{expected:#010x}"), format!("{got:#010x}"))
    })?;
    match fields.u16() {
        Some(format) if format > newest => {
            Err(StateError::NewerFormat { path: path.to_owned(), what, found: format, newest })
        }
        Some(format) if (oldest..=newest).contains(&format) => Ok(content),
        other => Err(StateError::corrupt(path, 8, "format", newest, other.unwrap_or_default())),
    }
}
