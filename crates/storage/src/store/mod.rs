//! A task's chunks: sealed batches in append-only files, written in the background, read ahead, cached within a budget.
//!
//! A folder holds `chunks-<first chunk>.thc` ([`mod@file`]), rolled by size and unchanged from then on, and
//! `schemas.ths` ([`crate::schemas`]). One owner calls [`ChunkStore`]; encoding, writing and read-ahead happen on the
//! [`IoPool`] ([`shared`]).
//!
//! Life of a chunk: *pending* (sealed, in memory, readable) -> *written* (in a file; out of memory unless kept or
//! read) -> *synced* (by a [`SyncTicket`], or because its file was rolled) -> *deleted* with its whole file.
//!
//! Invariants
//! * Chunks are numbered without gaps; numbers are never reused, as the last file is never unlinked.
//! * A sealed chunk can be read at every moment until it is deleted, whether written or not, also from a store whose
//!   disk has failed.
//! * Nothing stays in memory for being in the store: cached batches were asked for and give way to the budget.
//! * After a failed write or sync nothing is written any more; the store is to be reopened.
//!
//! Not here: which chunk a window needs next, when to commit, what a commit names.

mod budget;
mod cache;
pub(crate) mod file;
mod project;
pub(crate) mod recover;
mod shared;
mod survey;
mod writer;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use arrow_array::RecordBatch;
use thalweg_types::Micros;

use crate::chunk::{ChunkInfo, MAX_ROWS};
use crate::{ChunkError, Fs, IoPool, SchemaId, SchemaRegistry};

pub use budget::ChunkBudget;
pub use project::Projection;
pub use survey::{ChunkFileSummary, ChunkSummary, ChunkTail, inspect_chunks, is_chunk_folder, verify_chunks};

use cache::Lookup;
use project::Source;
use shared::{Operation, Shared, Slot, SyncState};

/// Number of a chunk in its store: dense, ascending, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u64);

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}", self.0)
    }
}

/// What the index knows of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkMeta {
    pub id: ChunkId,
    pub rows: u32,
    pub first_time: Micros,
    pub last_time: Micros,
    /// Bytes on disk; 0 until it is written and the store was called again.
    pub bytes: u64,
    pub schema_id: SchemaId,
}

/// Facts about a batch for [`ChunkStore::seal`].
#[derive(Clone, Copy, Debug)]
pub struct Seal {
    /// Smallest event time of the batch.
    pub first_time: Micros,
    /// Largest event time of the batch.
    pub last_time: Micros,
    /// Keep the batch in the cache after it is written (until `release`, or eviction over budget), because a
    /// cursor is about to read it.
    pub keep: bool,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct ChunkStoreOptions {
    /// Identity of the task, written into every file: another task's file is refused.
    pub task: u64,
    /// A file that has reached this size is synced and followed by a new one.
    pub file_bytes: u64,
    /// Sealed chunks that may wait to be written before `seal` blocks.
    pub max_pending: usize,
    /// The chunks that the last commit names. `Some(first..next)`: each of these chunks must be there, and those after
    /// them do not count and are cut. `None`: all whole chunks survive.
    pub committed: Option<Range<ChunkId>>,
}

impl ChunkStoreOptions {
    pub fn new(task: u64) -> Self {
        Self { task, file_bytes: 64 << 20, max_pending: 4, committed: None }
    }
}

/// Counts since the opening, but for `memory_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkStats {
    pub written_bytes: u64,
    pub sealed_chunks: u64,
    /// Reads answered from memory: pending, kept or cached batches and finished read-aheads.
    pub cache_hits: u64,
    /// Reads that waited for the disk, or for a read-ahead under way.
    pub cache_misses: u64,
    pub skipped_prefetches: u64,
    /// Bytes of this store's batches in memory now: pending, cached, reserved for reads under way.
    pub memory_bytes: u64,
}

/// A task's chunks. One owner; see the module's header.
///
/// Dropping it gives up chunks that still wait to be written, unless a caller holds a [`SyncTicket`]: end with
/// [`ChunkStore::close`].
#[derive(Debug)]
#[must_use]
pub struct ChunkStore {
    shared: Arc<Shared>,
    keeper: Arc<Keeper>,
    pool: Arc<IoPool>,
    task: u64,
    max_pending: usize,
    schemas: SchemaRegistry,
    index: Vec<ChunkMeta>,
    /// Largest last time of `index[..=i]`: ascending whatever order the chunks have.
    latest: Vec<Micros>,
    next: ChunkId,
}

/// Keeps the background at work: the store holds it, and every ticket.
#[derive(Debug)]
struct Keeper(Arc<Shared>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.shut();
    }
}

/// A sync of the chunks that were sealed before it was drawn. It works also after the store is dropped.
#[derive(Debug)]
#[must_use]
pub struct SyncTicket {
    state: Arc<SyncState>,
    has_begun: bool,
    pool: Arc<IoPool>,
    keeper: Arc<Keeper>,
}

impl SyncTicket {
    /// Starts the sync, after the writes that wait, on whatever thread: the store's owner draws the ticket at a moment
    /// at which it should not wake another thread.
    pub fn begin(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let shared = &self.keeper.0;
            shared.submit(self.pool.lanes(), shared.lock(), Operation::Sync(Arc::clone(&self.state)));
        }
    }

    /// Waits until every chunk sealed before the ticket was drawn survives power loss; the first id after them.
    ///
    /// # Errors
    /// The failed write or sync. The store is poisoned by it.
    pub fn wait(mut self) -> Result<ChunkId, ChunkError> {
        self.begin();
        let mut outcome = self.state.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*outcome {
                Some(Ok(())) => return Ok(self.state.next),
                Some(Err(error)) => return Err(error.clone()),
                None => outcome = self.state.done.wait(outcome).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl ChunkStore {
    /// Opens or creates the store in `dir`: reads the heads of its files and cuts what a crash has left of the last
    /// write, with one warning.
    ///
    /// # Errors
    /// [`ChunkError::Io`]; [`ChunkError::Damaged`] for anything but a torn tail, with file and byte.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: impl Into<PathBuf>,
        pool: Arc<IoPool>,
        budget: Arc<ChunkBudget>,
        options: ChunkStoreOptions,
    ) -> Result<Self, ChunkError> {
        let recovered = recover::open(fs, dir.into(), &options)?;
        let slots: VecDeque<Slot> = recovered.places.into_iter().map(Slot::Written).collect();
        let first = recovered.index.first().map_or(recovered.next, |meta| meta.id);
        let shared = Arc::new(Shared::new(recovered.writer, budget, first, slots));
        let mut store = Self {
            keeper: Arc::new(Keeper(Arc::clone(&shared))),
            shared,
            pool,
            task: options.task,
            max_pending: options.max_pending.max(1),
            schemas: recovered.schemas,
            index: recovered.index,
            latest: Vec::new(),
            next: recovered.next,
        };
        store.index_times();
        Ok(store)
    }

    /// Removes a store that no process has open, with its directory. One that does not exist is fine.
    ///
    /// # Errors
    /// [`ChunkError::Io`]: the rest can be discarded again.
    pub fn discard(fs: &dyn Fs, dir: &Path) -> Result<(), ChunkError> {
        recover::discard(fs, dir)
    }

    /// Hands a batch over to be encoded and written in the background, and returns its number.
    ///
    /// Blocks while `max_pending` chunks of this store wait to be written, or one does and memory is short.
    ///
    /// # Errors
    /// [`ChunkError::RowCount`] and [`ChunkError::Unsupported`]; an earlier failure of the background writer.
    pub fn seal(&mut self, seal: Seal, batch: RecordBatch) -> Result<ChunkId, ChunkError> {
        let rows = batch.num_rows();
        if rows == 0 || rows > MAX_ROWS {
            return Err(ChunkError::RowCount { rows, max: MAX_ROWS });
        }
        self.check()?;
        let (schema_id, new_schema) = self.schemas.id_of(&batch.schema())?;
        if let Some(payload) = new_schema {
            self.shared.submit(self.pool.lanes(), self.shared.lock(), Operation::Schema(payload));
        }
        let id = self.next;
        let bytes = project::memory(&batch);
        let batch = Arc::new(batch);

        let shared = &self.shared;
        let mut state = shared.lock();
        loop {
            shared.check(&mut state)?;
            shared.make_room(&mut state, bytes);
            let full = state.pending >= self.max_pending;
            let short = state.pending > 0 && shared.budget.is_short_of(bytes);
            if !full && !short {
                break;
            }
            state = shared.wait(state);
        }
        shared.take(&mut state, bytes);
        state.pending += 1;
        state.stats.sealed_chunks += 1;
        state.slots.push_back(Slot::Pending(Arc::clone(&batch)));
        let Seal { first_time, last_time, keep } = seal;
        let info = ChunkInfo { task: self.task, number: id.0, previous: 0, schema_id, first_time, last_time };
        shared.submit(self.pool.lanes(), state, Operation::Chunk { info, batch, bytes, keep });

        let rows = rows as u32;
        self.index.push(ChunkMeta { id, rows, first_time, last_time, bytes: 0, schema_id });
        self.latest.push(self.latest.last().map_or(last_time, |latest| last_time.max(*latest)));
        self.next = ChunkId(id.0 + 1);
        self.note_written();
        Ok(id)
    }

    /// The chunks in order.
    pub fn index(&self) -> &[ChunkMeta] {
        &self.index
    }

    pub fn meta(&self, id: ChunkId) -> Option<&ChunkMeta> {
        self.index.get(usize::try_from(id.0.checked_sub(self.first().0)?).ok()?)
    }

    /// The oldest chunk; equals [`ChunkStore::next`] if there is no chunk.
    pub fn first(&self) -> ChunkId {
        self.index.first().map_or(self.next, |meta| meta.id)
    }

    /// The id that the next sealed chunk gets.
    pub fn next(&self) -> ChunkId {
        self.next
    }

    /// The schemas that chunks were sealed with.
    pub fn schemas(&self) -> &SchemaRegistry {
        &self.schemas
    }

    /// The first chunk that may hold a record at or after `time`: the first whose last time is not before it.
    pub fn find(&self, time: Micros) -> Option<ChunkId> {
        let place = self.latest.partition_point(|latest| *latest < time);
        self.index.get(place).map(|meta| meta.id)
    }

    /// The wanted columns of a chunk.
    ///
    /// Blocks only where the chunk is neither in memory nor read ahead. The batch then stays in the cache until it
    /// is released, or until it gives way to others when memory is short and no caller holds it.
    ///
    /// # Errors
    /// [`ChunkError::Missing`]; [`ChunkError::Type`] for a column that cannot be widened as wanted; the disk's
    /// errors and [`ChunkError::Damaged`]. A failed read does not poison the store.
    pub fn read(&mut self, id: ChunkId, projection: &Projection) -> Result<Arc<RecordBatch>, ChunkError> {
        self.note_written();
        let shared = &self.shared;
        let mut state = shared.lock();
        let mut waited = false;
        loop {
            match state.cache.get(id, projection) {
                Lookup::Ready(batch) => {
                    *(if waited { &mut state.stats.cache_misses } else { &mut state.stats.cache_hits }) += 1;
                    shared.make_room(&mut state, 0);
                    return Ok(batch);
                }
                Lookup::Whole(batch) => {
                    state.stats.cache_hits += 1;
                    drop(state);
                    return project::from_batch(&batch, projection, id);
                }
                Lookup::Loading => {
                    waited = true;
                    state = shared.wait(state);
                }
                Lookup::Queued => {
                    let freed = state.cache.abandon(id, projection);
                    shared.give(&mut state, freed);
                    break;
                }
                Lookup::Absent => break,
            }
        }
        let place = match state.slot(id) {
            None => return Err(self.missing(id)),
            Some(Slot::Pending(batch)) => {
                let batch = Arc::clone(batch);
                state.stats.cache_hits += 1;
                drop(state);
                return project::from_batch(&batch, projection, id);
            }
            Some(Slot::Written(place)) => *place,
        };
        state.stats.cache_misses += 1;
        drop(state);
        let source = self.source(id, place)?;
        let batch = project::from_disk(shared.fs.as_ref(), &shared.dir, &source, projection)?;
        let bytes = project::memory(&batch);
        let mut state = shared.lock();
        shared.take(&mut state, bytes);
        state.cache.insert(id, Some(projection.clone()), Arc::clone(&batch), bytes);
        shared.make_room(&mut state, 0);
        Ok(batch)
    }

    /// Starts to read a chunk in the background, so that a later [`ChunkStore::read`] with the same projection
    /// finds it in memory.
    ///
    /// Does nothing where it is in memory or on its way. Skipped, and counted, if it would pass the budget (batches
    /// in the cache are not evicted for it) or if too many reads wait already. A failure shows in the later read.
    ///
    /// # Errors
    /// [`ChunkError::Missing`].
    pub fn prefetch(&mut self, id: ChunkId, projection: &Projection) -> Result<(), ChunkError> {
        self.note_written();
        let Some(meta) = self.meta(id) else { return Err(self.missing(id)) };
        let reserved = projection.estimate(meta.rows);
        let shared = &self.shared;
        let mut state = shared.lock();
        if !matches!(state.cache.get(id, projection), Lookup::Absent) {
            return Ok(());
        }
        let Some(Slot::Written(place)) = state.slot(id) else { return Ok(()) };
        let source = self.source(id, *place)?;
        if shared.budget.is_short_of(reserved) {
            state.stats.skipped_prefetches += 1;
            return Ok(());
        }
        shared.take(&mut state, reserved);
        let ticket = state.cache.queue(id, projection.clone(), reserved);
        drop(state);
        let (job_shared, job_projection) = (Arc::clone(shared), projection.clone());
        let job =
            move |_: &crate::io_pool::Lanes| job_shared.load(&source, &job_projection, ticket, reserved);
        if !self.pool.lanes().read(Box::new(job)) {
            let mut state = shared.lock();
            let freed = state.cache.abandon(id, projection);
            shared.give(&mut state, freed);
            state.stats.skipped_prefetches += 1;
        }
        Ok(())
    }

    /// Says that no cursor needs the chunk any more: it leaves the cache.
    pub fn release(&mut self, id: ChunkId) {
        let mut state = self.shared.lock();
        let freed = state.cache.remove(id);
        self.shared.give(&mut state, freed);
    }

    /// Unlinks, in the background, the files all of whose chunks are older than `id`, and returns how many chunks
    /// went with them. The last file stays, so that numbers are never reused.
    ///
    /// What the last commit names must not be deleted before a newer commit: a recovery would miss it.
    ///
    /// # Errors
    /// An earlier failure of the background writer.
    pub fn delete_before(&mut self, id: ChunkId) -> Result<u64, ChunkError> {
        self.check()?;
        let shared = &self.shared;
        let mut state = shared.lock();
        let mut files = Vec::new();
        let mut count = 0;
        // A file may go once a chunk of the next one is written and it holds nothing from `id` on.
        let mut current = None;
        for (index, slot) in state.slots.iter().enumerate() {
            let Slot::Written(place) = slot else { break };
            if let Some(file) = current
                && file != place.file
            {
                files.push(file);
                count = index;
            }
            if state.first.0 + index as u64 >= id.0 {
                break;
            }
            current = Some(place.file);
        }
        if count == 0 {
            return Ok(0);
        }
        state.slots.drain(..count);
        state.first = ChunkId(state.first.0 + count as u64);
        for meta in self.index.drain(..count) {
            let freed = state.cache.remove(meta.id);
            shared.give(&mut state, freed);
        }
        shared.submit(self.pool.lanes(), state, Operation::Unlink(files));
        self.index_times();
        Ok(count as u64)
    }

    /// Draws a ticket for a sync of everything sealed so far. Nothing is done before [`SyncTicket::begin`].
    ///
    /// # Errors
    /// An earlier failure of the background writer.
    pub fn draw_sync(&mut self) -> Result<SyncTicket, ChunkError> {
        self.check()?;
        let state = Arc::new(SyncState { next: self.next, outcome: Mutex::new(None), done: Condvar::new() });
        let (pool, keeper) = (Arc::clone(&self.pool), Arc::clone(&self.keeper));
        Ok(SyncTicket { state, has_begun: false, pool, keeper })
    }

    /// Waits until everything sealed so far survives power loss; the first id after it.
    ///
    /// # Errors
    /// The failed write or sync, now or earlier. The store is poisoned by it.
    pub fn sync(&mut self) -> Result<ChunkId, ChunkError> {
        let outcome = self.draw_sync()?.wait();
        if outcome.is_err() {
            // The owner hears of it here; the same error again on the next call would look like another.
            let _ = self.check();
        }
        self.note_written();
        outcome
    }

    /// A failure of the background writer that no call has returned yet; afterwards, that the store stopped.
    ///
    /// # Errors
    /// [`ChunkError::Io`] once, then [`ChunkError::Poisoned`].
    pub fn check(&mut self) -> Result<(), ChunkError> {
        self.shared.check(&mut self.shared.lock())
    }

    pub fn stats(&self) -> ChunkStats {
        self.shared.lock().stats
    }

    /// Syncs and closes.
    ///
    /// # Errors
    /// As [`ChunkStore::sync`].
    pub fn close(mut self) -> Result<(), ChunkError> {
        self.sync().map(drop)
    }

    fn source(&self, id: ChunkId, place: file::Place) -> Result<Source, ChunkError> {
        let fields = self
            .meta(id)
            .and_then(|meta| self.schemas.get(meta.schema_id))
            .ok_or_else(|| self.missing(id))?;
        Ok(Source { id, task: self.task, place, fields: Arc::clone(fields) })
    }

    fn missing(&self, id: ChunkId) -> ChunkError {
        let (first, next) = (self.first(), self.next);
        ChunkError::Missing { dir: self.shared.dir.clone(), id, first, next }
    }

    /// Takes over into the index what the background has written.
    fn note_written(&mut self) {
        let written = std::mem::take(&mut self.shared.lock().written);
        let first = self.first().0;
        for (id, bytes) in written {
            // A chunk may be deleted before its length is noted.
            if let Some(meta) = id.0.checked_sub(first).and_then(|place| self.index.get_mut(place as usize)) {
                meta.bytes = bytes;
            }
        }
    }

    fn index_times(&mut self) {
        let mut latest = Micros::MIN;
        self.latest.clear();
        self.latest.extend(self.index.iter().map(|meta| {
            latest = latest.max(meta.last_time);
            latest
        }));
    }
}

#[cfg(test)]
mod tests;
