//! The writing end: appends changes, seals segments, gives out versions, unlinks what no version needs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_storage::{File, OpenMode, Writeback, publish};

use super::compact::Compaction;
use super::dump::{self, Reach};
use super::entry::{Entry, EntrySeed, MAX_ENTRY};
use super::index::Address;
use super::list::{self, ListId, Named, Sealed};
use super::location::Location;
use super::segment::{self, Extent, HEADER};
use super::{Counters, Shared};
use crate::cycles::Cycles;
use crate::{Changes, StateError, Version};
use thalweg_storage::frame::FRAME_HEADER;

/// Bytes of entries in a frame, but for the one that goes beyond: what a compaction holds in memory.
const FRAME_BYTES: usize = 256 << 10;

/// Changes of one write: with a segment's size, entries begin where locations can say it.
const MAX_WRITE: u64 = 512 << 20;

/// Changes that go into the index under one lock, some ten microseconds.
const INDEX_BATCH: usize = 256;

/// An index file is written when this many times its own bytes, and half a segment, were appended since the last
/// one: reading so much again takes about as long as reading the index file.
const DUMP_RATIO: u64 = 2;

/// Segments have this share of the live bytes: while one fills, its share of them can be dead without being
/// compacted.
const SEGMENT_SHARE: u64 = 16;

/// Segments of little state have this number of bytes: smaller ones would cost more syncs than they save space.
const MIN_SEGMENT_BYTES: u64 = 256 << 10;

/// Zeros that a sync of little data lays out ahead of it, so that those which follow change neither length nor extents
/// of the file: see `docs/decisions/2026-11-20-journal-writes.md`. Fewer than a log lays out, as each task has its own,
/// and no more than a quarter of a segment, as they count for twice the live bytes.
const AHEAD_BYTES: u64 = 256 << 10;

/// Bytes from which on a sync is not of little data: zeros would cost more than they save.
const LITTLE_BYTES: u64 = AHEAD_BYTES / 16;

/// Unsynced bytes of a full segment that a sync in the background is worth: fewer are on the disk sooner than another
/// thread has begun.
const MUCH_BYTES: u64 = 1 << 20;

/// Unsynced bytes of a segment that is being filled after which the disk begins with them, in the background.
const BEGIN_BYTES: u64 = 4 << 20;

/// The segment that is appended to.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) file: Arc<dyn File>,
    pub(super) slot: u16,
    pub(super) seed: EntrySeed,
    pub(super) extent: Extent,
    /// Bytes that no sync has covered.
    pub(super) is_dirty: bool,
    /// Where the extent ended at the last sync that was waited for.
    pub(super) synced: u64,
    /// Up to where the disk has begun with it; after the extent's end after an append that failed.
    pub(super) begun: u64,
    /// The file may have zeros up to here.
    pub(super) laid: u64,
}

impl Active {
    /// Lays zeros ahead where little has been appended and none are left. A disk without room for them has room for
    /// the written bytes.
    fn lay_ahead(&mut self, segment_bytes: u64) -> std::io::Result<()> {
        let until = (self.extent.len + AHEAD_BYTES.min(segment_bytes / 4)).min(segment_bytes);
        let is_little = self.extent.len - self.synced <= LITTLE_BYTES;
        if self.extent.len < self.laid || !is_little || until <= self.extent.len {
            return Ok(());
        }
        self.laid = until;
        match self.file.preallocate(until) {
            Err(error) if thalweg_storage::is_full(&error) => Ok(()),
            outcome => outcome,
        }
    }
}

/// The sync under way in the background, of a segment with many unsynced bytes. No version is given out before it has
/// ended: it may be the only one of a sealed segment.
#[derive(Debug, Default)]
struct Beside {
    syncs: Writeback,
    /// The segment that was synced last.
    segment: u64,
}

impl Beside {
    /// [`Writeback::begin`].
    fn begin(&mut self, active: &Active) -> bool {
        let has_begun = self.syncs.begin(&active.file, active.extent.len);
        if has_begun {
            self.segment = active.extent.number;
        }
        has_begun
    }

    /// Hears of a sync that has ended.
    fn poll(&mut self, shared: &Shared) -> Result<(), StateError> {
        let outcome = self.syncs.poll();
        self.check(shared, outcome)
    }

    /// Waits for the sync under way.
    fn settle(&mut self, shared: &Shared) -> Result<(), StateError> {
        let outcome = self.syncs.wait();
        self.check(shared, outcome)
    }

    fn check(&self, shared: &Shared, outcome: io::Result<Option<u64>>) -> Result<(), StateError> {
        outcome.map(drop).map_err(|error| {
            let path = segment::path(&shared.dir, self.segment);
            StateError::io("sync", &path)(error)
        })
    }
}

/// A version that was given out and not yet committed.
#[derive(Debug)]
struct Prepared {
    cycle: u64,
    /// Lists below this number are not needed by it, nor by any version to come.
    lists_from: u64,
    reach: Reach,
    /// Segments that the version does without.
    doomed: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) cycles: Cycles,
    pub(super) active: Option<Active>,
    /// Sealed segments of the next version.
    pub(super) sealed: BTreeMap<u64, Extent>,
    /// The list that names `sealed`, if one does.
    pub(super) list: Option<ListId>,
    pub(super) next_list: u64,
    /// Names of new segments are not synced.
    pub(super) is_dir_dirty: bool,
    pub(super) next_segment: u64,
    /// Lists and index files in the folder.
    pub(super) lists: BTreeSet<u64>,
    pub(super) dumps: BTreeMap<Reach, u64>,
    /// Bytes appended since the last index file.
    pub(super) tail_bytes: u64,
    prepared: VecDeque<Prepared>,
    pub(super) compaction: Compaction,
    beside: Beside,
    buffers: Buffers,
}

/// Memory that is used again.
#[derive(Debug, Default)]
struct Buffers {
    payload: Vec<u8>,
    frame: Vec<u8>,
    placed: Vec<(Address, Location)>,
}

/// Memory that is kept from one write to the next: entries in a frame and their frame.
const KEPT_BYTES: usize = 1 << 20;

impl Writer {
    pub(super) fn new(cycle: Option<u64>) -> Self {
        Self {
            cycles: Cycles::at(cycle),
            active: None,
            sealed: BTreeMap::new(),
            list: None,
            next_list: 1,
            is_dir_dirty: false,
            next_segment: 1,
            lists: BTreeSet::new(),
            dumps: BTreeMap::new(),
            tail_bytes: 0,
            prepared: VecDeque::new(),
            compaction: Compaction::default(),
            beside: Beside::default(),
            buffers: Buffers::default(),
        }
    }

    /// All segments, oldest first, as far as they are written.
    pub(super) fn extents(&self) -> Vec<Extent> {
        self.sealed.values().copied().chain(self.active.as_ref().map(|active| active.extent)).collect()
    }

    pub(super) fn write(&mut self, shared: &Shared, cycle: u64, changes: &Changes) -> Result<(), StateError> {
        self.cycles.check_write(cycle)?;
        check_sizes(changes)?;
        if !changes.is_empty() {
            let entries = changes.iter().map(|change| Entry { cycle, key: change.key, value: change.value });
            let bytes = self.append(shared, entries)?;
            Counters::add(&shared.counters.writes, changes.len() as u64);
            self.cycles.wrote(cycle);
            self.compact(shared, bytes)?;
        }
        self.cycles.wrote(cycle);
        Ok(())
    }

    /// Appends entries and puts them into the index; the bytes that were written. After an error nothing has
    /// changed but bytes after the active segment's end, which the next append writes over.
    pub(super) fn append<'a>(
        &mut self,
        shared: &Shared,
        entries: impl Iterator<Item = Entry<'a>>,
    ) -> Result<u64, StateError> {
        self.make_room(shared)?;
        let Some(active) = &mut self.active else { return Ok(0) };
        let Buffers { payload, frame, placed } = &mut self.buffers;
        placed.clear();
        // Of an append that failed more may have been begun with than counts.
        active.begun = active.begun.min(active.extent.len);
        let mut chain = segment::chain(shared.identity, active.extent);
        let mut len = active.extent.len;
        let mut entries = entries.peekable();
        while entries.peek().is_some() {
            payload.clear();
            let base = len + FRAME_HEADER as u64;
            while payload.len() < FRAME_BYTES
                && let Some(entry) = entries.next()
            {
                let start = base + payload.len() as u64;
                let location = Location::new(active.slot, start, entry.stored_len(), entry.value.is_none());
                placed.push((Address::of(&shared.hash_key, entry.key), location));
                entry.encode(active.seed, start, payload);
            }
            frame.clear();
            chain.push(payload, frame);
            active.file.write_all_at(frame, len).map_err(|error| {
                let path = segment::path(&shared.dir, active.extent.number);
                StateError::io("write", &path)(error)
            })?;
            len += frame.len() as u64;
            if len - active.begun >= BEGIN_BYTES {
                self.beside.poll(shared)?;
                if self.beside.begin(active) {
                    active.begun = len;
                }
            }
        }
        let bytes = len - active.extent.len;
        active.extent = Extent { len, chain: chain.previous(), ..active.extent };
        active.is_dirty = true;
        self.tail_bytes += bytes;
        for batch in placed.chunks(INDEX_BATCH) {
            shared.places_mut().put_all(batch);
        }
        shared.places_mut().set_len(active.slot, len);
        payload.shrink_to(KEPT_BYTES);
        frame.shrink_to(KEPT_BYTES);
        placed.shrink_to(KEPT_BYTES / size_of::<(Address, Location)>());
        Ok(bytes)
    }

    /// Makes the active segment, or seals it and makes its successor.
    fn make_room(&mut self, shared: &Shared) -> Result<(), StateError> {
        if self.active.as_ref().is_some_and(|active| active.extent.len < segment_bytes(shared)) {
            return Ok(());
        }
        self.sync_full(shared)?;
        let number = self.next_segment;
        let path = segment::path(&shared.dir, number);
        // Emptied where an earlier attempt found the disk full.
        let file = shared.fs.open(&path, OpenMode::Create).map_err(StateError::io("create", &path))?;
        file.write_all_at(&segment::header(shared.identity, number), 0)
            .map_err(StateError::io("write", &path))?;
        let slot = shared.places_mut().add_segment(number, HEADER)?;
        self.next_segment += 1;
        self.is_dir_dirty = true;
        let extent = segment::empty(shared.identity, number);
        let seed = segment::seed(shared.identity, number);
        let active =
            Active { file, slot, seed, extent, is_dirty: true, synced: HEADER, begun: HEADER, laid: HEADER };
        if let Some(full) = self.active.replace(active) {
            self.sealed.insert(full.extent.number, full.extent);
            self.list = None;
        }
        Ok(())
    }

    /// Syncs the active segment, which is full; in the background if that is much.
    fn sync_full(&mut self, shared: &Shared) -> Result<(), StateError> {
        if let Some(active) = &self.active
            && active.extent.len - active.synced >= MUCH_BYTES
        {
            self.beside.settle(shared)?;
            if self.beside.begin(active) {
                return Ok(());
            }
        }
        self.sync_active(shared)
    }

    fn sync_active(&mut self, shared: &Shared) -> Result<(), StateError> {
        if let Some(active) = &mut self.active
            && active.is_dirty
        {
            let path = segment::path(&shared.dir, active.extent.number);
            active.lay_ahead(segment_bytes(shared)).map_err(StateError::io("extend", &path))?;
            active.file.sync_data().map_err(StateError::io("sync", &path))?;
            active.synced = active.extent.len;
            active.begun = active.extent.len;
            active.is_dirty = false;
        }
        Ok(())
    }

    pub(super) fn prepare(&mut self, shared: &Shared, cycle: u64) -> Result<Version, StateError> {
        self.cycles.check_prepare(cycle)?;
        self.beside.settle(shared)?;
        self.sync_active(shared)?;
        if self.is_dir_dirty {
            shared.fs.sync_dir(&shared.dir).map_err(StateError::io("sync", &shared.dir))?;
            self.is_dir_dirty = false;
        }
        let doomed: Vec<u64> = {
            let places = shared.places();
            self.sealed.keys().copied().filter(|number| places.live_count(*number) == 0).collect()
        };
        let sealed = self.name_sealed(shared, &doomed)?;
        let lists_from = sealed.list().map_or(self.next_list, |list| list.number);
        let active = self.active.as_ref().map(|active| active.extent);
        let version = Named { cycle, sealed, active }.encode();
        let reach = active.map_or((0, 0), |extent| (extent.number, extent.len));
        self.prepared.push_back(Prepared { cycle, lists_from, reach, doomed });
        self.cycles.did_prepare(cycle);
        Ok(version)
    }

    /// The sealed segments but for the doomed, as a version has them: named by it, or by a list if they are many.
    fn name_sealed(&mut self, shared: &Shared, doomed: &[u64]) -> Result<Sealed, StateError> {
        let list = self.list.filter(|_| doomed.is_empty());
        let kept = self.sealed.values().filter(|extent| !doomed.contains(&extent.number));
        let kept: Vec<_> = kept.copied().collect();
        let sealed = if kept.len() <= usize::from(shared.options.named_segments) {
            Sealed::Here(kept)
        } else if let Some(list) = list {
            Sealed::Listed(list)
        } else {
            Sealed::Listed(self.publish_list(shared, &kept)?)
        };
        self.list = sealed.list();
        for number in doomed {
            self.sealed.remove(number);
            self.compaction.forget(*number);
        }
        Ok(sealed)
    }

    fn publish_list(&mut self, shared: &Shared, sealed: &[Extent]) -> Result<ListId, StateError> {
        let (bytes, id) = list::encode(shared.identity, self.next_list, sealed);
        let path = list::path(&shared.dir, id.number);
        publish(shared.fs.as_ref(), &path, &bytes).map_err(StateError::io("publish", &path))?;
        self.lists.insert(id.number);
        self.next_list += 1;
        Ok(id)
    }

    pub(super) fn committed(&mut self, shared: &Shared, cycle: u64) -> Result<(), StateError> {
        self.cycles.check_committed(cycle)?;
        let mut newest = None;
        while let Some(prepared) = self.prepared.pop_front_if(|prepared| prepared.cycle <= cycle) {
            for number in &prepared.doomed {
                // In this order, so that no reader opens it again in between and keeps its bytes on the disk.
                remove(shared, &segment::path(&shared.dir, *number))?;
                shared.handles.close(*number);
                shared.places_mut().remove_segment(*number);
            }
            newest = Some(prepared);
        }
        self.cycles.did_commit(cycle);
        let Some(newest) = newest else { return Ok(()) };
        while let Some(number) = self.lists.first().copied().filter(|number| *number < newest.lists_from) {
            remove(shared, &list::path(&shared.dir, number))?;
            self.lists.remove(&number);
        }
        let index_bytes = shared.places().index.len() as u64 * 16;
        if self.tail_bytes >= (index_bytes * DUMP_RATIO).max(shared.options.segment_bytes / 2) {
            self.dump(shared)?;
        }
        // The newest index file that a start at this commit can use, and those after it.
        let usable = self.dumps.range(..=newest.reach).next_back().map(|(reach, _)| *reach);
        while let Some((reach, _)) = self.dumps.first_key_value()
            && usable.is_some_and(|usable| *reach < usable)
        {
            remove(shared, &dump::path(&shared.dir, *reach))?;
            self.dumps.pop_first();
        }
        self.count_dumps(shared);
        Ok(())
    }

    /// Puts the index into a file. A disk that is full costs the next start some time, and nothing else.
    fn dump(&mut self, shared: &Shared) -> Result<(), StateError> {
        let Some(active) = &self.active else { return Ok(()) };
        let (fs, dir) = (shared.fs.as_ref(), &shared.dir);
        match dump::write(fs, dir, shared.identity, &shared.places(), active.extent) {
            Ok(bytes) => {
                self.dumps.insert((active.extent.number, active.extent.len), bytes);
                self.tail_bytes = 0;
                Ok(())
            }
            Err(error) if error.is_full() => {
                tracing::warn!(dir = %dir.display(), "no space for an index file, the next start takes longer");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn count_dumps(&self, shared: &Shared) {
        shared.counters.dump_bytes.store(self.dumps.values().sum(), Ordering::Relaxed);
    }

    pub(super) fn close(&mut self, shared: &Shared) -> Result<(), StateError> {
        if self.cycles.is_quiet() && self.tail_bytes > 0 {
            self.dump(shared)?;
            self.count_dumps(shared);
        }
        self.trim(shared)
    }

    /// Cuts zeros that were laid ahead. Nothing depends on it, so it is not synced.
    fn trim(&mut self, shared: &Shared) -> Result<(), StateError> {
        if let Some(active) = self.active.as_mut().filter(|active| active.laid > active.extent.len) {
            let path = segment::path(&shared.dir, active.extent.number);
            active.file.truncate(active.extent.len).map_err(StateError::io("cut", &path))?;
            active.laid = active.extent.len;
        }
        Ok(())
    }
}

/// Bytes after which a segment is sealed: a share of the live bytes, at most what the options say.
fn segment_bytes(shared: &Shared) -> u64 {
    let wanted = (shared.places().live_bytes() / SEGMENT_SHARE).max(MIN_SEGMENT_BYTES);
    wanted.min(shared.options.segment_bytes)
}

/// Unlinks a file that no version needs; one that is gone is as good.
pub(super) fn remove(shared: &Shared, path: &Path) -> Result<(), StateError> {
    match shared.fs.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StateError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

fn check_sizes(changes: &Changes) -> Result<(), StateError> {
    let bytes = changes.byte_len() as u64 + changes.len() as u64 * super::entry::ENTRY_HEADER as u64;
    if bytes < MAX_ENTRY {
        return Ok(());
    }
    if bytes > MAX_WRITE {
        return Err(StateError::TooLarge { what: "one slice of changes", bytes, max: MAX_WRITE });
    }
    let len =
        |change: crate::Change<'_>| Entry { cycle: 0, key: change.key, value: change.value }.stored_len();
    match changes.iter().map(len).find(|len| *len > MAX_ENTRY) {
        Some(bytes) => Err(StateError::TooLarge { what: "a value with its key", bytes, max: MAX_ENTRY }),
        None => Ok(()),
    }
}
