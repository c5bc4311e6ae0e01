//! What a store's owner and its background jobs share, and the jobs.
//!
//! The owner calls from one thread. Each store has at most one write job in the pool at a time; it carries out one
//! operation and goes after the other stores' jobs, so operations of a store happen in order, one after the other,
//! without a thread of its own. Read jobs of a store run at the same time as it and as each other.
//!
//! Locks: `writer` is taken by the write job alone and held over I/O; `state` is held for moments and never over
//! I/O. The write job takes `state` while it does not hold `writer`.
//!
//! A failed operation poisons the store: the error is kept for the owner's next call, later operations are dropped,
//! batches that did not reach the disk stay readable from memory.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;

use super::cache::Cache;
use super::file::Place;
use super::project::{self, Projection, Source};
use super::writer::Writer;
use super::{ChunkBudget, ChunkStats};
use crate::chunk::ChunkInfo;
use crate::io_pool::Lanes;
use crate::{ChunkError, ChunkId, Fs};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) dir: PathBuf,
    pub(super) budget: Arc<ChunkBudget>,
    pub(super) writer: Mutex<Writer>,
    state: Mutex<State>,
    /// Signalled after every change of `state` that a thread may wait for.
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Chunk of `slots[0]`.
    pub(super) first: ChunkId,
    pub(super) slots: VecDeque<Slot>,
    pub(super) pending: usize,
    operations: VecDeque<Operation>,
    /// A write job is in the pool or at work.
    writing: bool,
    /// Read jobs at work.
    pub(super) reading: usize,
    pub(super) cache: Cache,
    /// An error that the owner has not seen.
    failure: Option<ChunkError>,
    /// Why nothing is written any more.
    poison: Option<String>,
    closed: bool,
    /// Chunks written since the owner last looked, with their bytes.
    pub(super) written: Vec<(ChunkId, u64)>,
    pub(super) stats: ChunkStats,
}

/// Where a chunk is.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    Pending(Arc<RecordBatch>),
    Written(Place),
}

/// What the write job does for the store.
#[derive(Debug)]
pub(super) enum Operation {
    Schema(Vec<u8>),
    Chunk { info: ChunkInfo, batch: Arc<RecordBatch>, bytes: u64, keep: bool },
    Sync(Arc<SyncState>),
    Unlink(Vec<ChunkId>),
}

/// Outcome of a sync.
#[derive(Debug)]
pub(super) struct SyncState {
    pub(super) next: ChunkId,
    pub(super) outcome: Mutex<Option<Result<(), ChunkError>>>,
    pub(super) done: Condvar,
}

impl SyncState {
    fn set(&self, outcome: Result<(), ChunkError>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.done.notify_all();
    }
}

impl State {
    pub(super) fn slot(&self, id: ChunkId) -> Option<&Slot> {
        self.slots.get(usize::try_from(id.0.checked_sub(self.first.0)?).ok()?)
    }

    fn slot_mut(&mut self, id: ChunkId) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(id.0.checked_sub(self.first.0)?).ok()?)
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }
}

impl Shared {
    pub(super) fn new(
        writer: Writer,
        budget: Arc<ChunkBudget>,
        first: ChunkId,
        slots: VecDeque<Slot>,
    ) -> Self {
        Self {
            fs: Arc::clone(&writer.fs),
            dir: writer.dir.clone(),
            budget,
            writer: Mutex::new(writer),
            state: Mutex::new(State { first, slots, ..State::default() }),
            changed: Condvar::new(),
        }
    }

    /// A panicking job is caught and poisons the store by itself, so a poisoned lock adds nothing.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes that came into memory.
    pub(super) fn take(&self, state: &mut State, bytes: u64) {
        state.stats.memory_bytes += bytes;
        self.budget.add(bytes);
    }

    /// Counts bytes that left memory.
    pub(super) fn give(&self, state: &mut State, bytes: u64) {
        state.stats.memory_bytes -= bytes;
        self.budget.sub(bytes);
    }

    /// Evicts until `bytes` more fit, or nothing of this store can go.
    pub(super) fn make_room(&self, state: &mut State, bytes: u64) {
        while self.budget.is_short_of(bytes) {
            let Some(freed) = state.cache.evict() else { return };
            self.give(state, freed);
        }
    }

    /// The error that the owner has not seen yet, or why the store stopped.
    pub(super) fn check(&self, state: &mut State) -> Result<(), ChunkError> {
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        match &state.poison {
            None => Ok(()),
            Some(reason) => Err(ChunkError::Poisoned { dir: self.dir.clone(), reason: reason.clone() }),
        }
    }

    /// Queues an operation after the others and sees to it that a job is on its way.
    pub(super) fn submit(
        self: &Arc<Self>,
        lanes: &Lanes,
        mut state: MutexGuard<'_, State>,
        operation: Operation,
    ) {
        state.operations.push_back(operation);
        if !std::mem::replace(&mut state.writing, true) {
            drop(state);
            self.schedule(lanes);
        }
    }

    fn schedule(self: &Arc<Self>, lanes: &Lanes) {
        let shared = Arc::clone(self);
        lanes.write(Box::new(move |lanes| shared.write(lanes)));
    }

    /// The write job: one operation.
    fn write(self: &Arc<Self>, lanes: &Lanes) {
        let operation = {
            let mut state = self.lock();
            if state.closed || state.is_poisoned() {
                let reason = state.poison.clone().unwrap_or_else(|| CLOSED.to_owned());
                drop_waiting(&mut state, &self.poisoned(&reason));
            }
            match state.operations.pop_front() {
                Some(operation) => operation,
                None => {
                    state.writing = false;
                    self.changed.notify_all();
                    return;
                }
            }
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| self.carry_out(&operation)))
            .unwrap_or_else(|_| Err(self.poisoned("a background task panicked")));
        let mut state = self.lock();
        let more = match outcome {
            Ok(place) => {
                self.settle(&mut state, operation, place);
                !state.operations.is_empty()
            }
            Err(error) => {
                self.poison(&mut state, operation, error);
                false
            }
        };
        state.writing = more;
        drop(state);
        self.changed.notify_all();
        if more {
            self.schedule(lanes);
        }
    }

    /// The I/O of an operation; the place of a chunk.
    fn carry_out(&self, operation: &Operation) -> Result<Option<Place>, ChunkError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match operation {
            Operation::Schema(payload) => writer.add_schema(payload)?,
            Operation::Chunk { info, batch, .. } => return writer.append(*info, batch).map(Some),
            Operation::Sync(_) => writer.sync()?,
            Operation::Unlink(files) => writer.unlink(files)?,
        }
        Ok(None)
    }

    /// Notes that an operation succeeded.
    fn settle(&self, state: &mut State, operation: Operation, place: Option<Place>) {
        match operation {
            Operation::Schema(_) | Operation::Unlink(_) => {}
            Operation::Sync(sync) => sync.set(Ok(())),
            Operation::Chunk { info, batch, bytes, keep } => {
                let place = place.expect("an appended chunk has a place");
                let id = ChunkId(info.number);
                state.pending -= 1;
                state.written.push((id, place.len));
                state.stats.written_bytes += place.len;
                if let Some(slot) = state.slot_mut(id) {
                    *slot = Slot::Written(place);
                }
                if keep {
                    state.cache.insert(id, None, batch, bytes);
                    self.make_room(state, 0);
                } else {
                    self.give(state, bytes);
                }
            }
        }
    }

    fn poison(&self, state: &mut State, operation: Operation, error: ChunkError) {
        state.poison = Some(error.to_string());
        if let Operation::Sync(sync) = operation {
            sync.set(Err(error.clone()));
        }
        drop_waiting(state, &error);
        state.failure = Some(error);
    }

    fn poisoned(&self, reason: &str) -> ChunkError {
        ChunkError::Poisoned { dir: self.dir.clone(), reason: reason.to_owned() }
    }

    /// The read job: brings a queued chunk into the cache. A failure is left to the reader, which meets it again.
    pub(super) fn load(&self, source: &Source, projection: &Projection, ticket: u64, reserved: u64) {
        {
            let mut state = self.lock();
            if state.closed || !state.cache.start(source.id, ticket) {
                return;
            }
            state.reading += 1;
        }
        let read = || project::from_disk(self.fs.as_ref(), &self.dir, source, projection);
        let loaded = catch_unwind(AssertUnwindSafe(read)).ok().and_then(Result::ok);
        let mut state = self.lock();
        state.reading -= 1;
        self.give(&mut state, reserved);
        match loaded {
            Some(batch) => {
                let bytes = project::memory(&batch);
                if state.cache.finish(source.id, ticket, batch, bytes) {
                    self.take(&mut state, bytes);
                    self.make_room(&mut state, 0);
                }
            }
            None => state.cache.fail(source.id, ticket),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Drops waiting operations, waits for those under way, returns the store's bytes to the budget.
    pub(super) fn shut(&self) {
        let mut state = self.lock();
        state.closed = true;
        drop_waiting(&mut state, &self.poisoned(CLOSED));
        while state.reading > 0 || state.writing {
            state = self.wait(state);
        }
        let bytes = state.stats.memory_bytes;
        self.give(&mut state, bytes);
    }
}

const CLOSED: &str = "the store was closed";

/// Drops the operations that wait and notifies their waiters.
fn drop_waiting(state: &mut State, error: &ChunkError) {
    for operation in std::mem::take(&mut state.operations) {
        if let Operation::Sync(sync) = operation {
            sync.set(Err(error.clone()));
        }
    }
}
