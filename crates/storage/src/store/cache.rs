//! Which chunks of a store are in memory, and which one goes next.
//!
//! An entry is one chunk in one projection, or the whole batch as it was sealed. Plain data under the store's lock:
//! no I/O, no waiting, no budget; callers get back the bytes that an operation set free.
//!
//! A read ahead is `Queued` until a thread takes it up, then `Loading`. Who needs a queued one at once takes it over
//! by removing it; a loading one is waited for. The thread that loads owns the reserved bytes if its entry is gone
//! when it is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::Projection;
use crate::ChunkId;

#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: BTreeMap<ChunkId, Vec<Entry>>,
    /// Counts uses; the entry with the smallest one was used longest ago.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    /// `None`: the batch as it was sealed.
    projection: Option<Projection>,
    state: EntryState,
    bytes: u64,
    /// Time of the last use; names a read ahead until it is done.
    used: u64,
}

#[derive(Debug)]
enum EntryState {
    Queued,
    Loading,
    Ready(Arc<RecordBatch>),
}

/// What the cache has for a read.
#[derive(Debug)]
pub(super) enum Lookup {
    Ready(Arc<RecordBatch>),
    /// The batch as it was sealed: its columns are to be picked.
    Whole(Arc<RecordBatch>),
    Loading,
    Queued,
    Absent,
}

impl Cache {
    /// Looks a chunk up and, where it is ready, notes the use.
    pub(super) fn get(&mut self, id: ChunkId, projection: &Projection) -> Lookup {
        let Some(entries) = self.entries.get_mut(&id) else { return Lookup::Absent };
        let exact = entries.iter().position(|entry| entry.projection.as_ref() == Some(projection));
        let Some(place) = exact.or_else(|| entries.iter().position(|entry| entry.projection.is_none()))
        else {
            return Lookup::Absent;
        };
        let entry = &mut entries[place];
        match &entry.state {
            EntryState::Queued => Lookup::Queued,
            EntryState::Loading => Lookup::Loading,
            EntryState::Ready(batch) => {
                self.clock += 1;
                entry.used = self.clock;
                let batch = Arc::clone(batch);
                if exact.is_some() { Lookup::Ready(batch) } else { Lookup::Whole(batch) }
            }
        }
    }

    /// Adds a batch that is in memory.
    pub(super) fn insert(
        &mut self,
        id: ChunkId,
        projection: Option<Projection>,
        batch: Arc<RecordBatch>,
        bytes: u64,
    ) {
        self.push(id, projection, EntryState::Ready(batch), bytes);
    }

    /// Adds a read ahead, for which `bytes` are reserved, and returns its ticket.
    pub(super) fn queue(&mut self, id: ChunkId, projection: Projection, bytes: u64) -> u64 {
        self.push(id, Some(projection), EntryState::Queued, bytes)
    }

    fn push(&mut self, id: ChunkId, projection: Option<Projection>, state: EntryState, bytes: u64) -> u64 {
        self.clock += 1;
        self.entries.entry(id).or_default().push(Entry { projection, state, bytes, used: self.clock });
        self.clock
    }

    /// Takes a queued read up; `false` if another thread took it over or it is not needed any more.
    pub(super) fn start(&mut self, id: ChunkId, ticket: u64) -> bool {
        let entry = self.find(id, ticket);
        let queued = entry.filter(|entry| matches!(entry.state, EntryState::Queued));
        queued.map(|entry| entry.state = EntryState::Loading).is_some()
    }

    /// Puts a loaded batch in its place; `false` if it is not needed any more.
    pub(super) fn finish(&mut self, id: ChunkId, ticket: u64, batch: Arc<RecordBatch>, bytes: u64) -> bool {
        let Some(entry) = self.find(id, ticket) else { return false };
        entry.state = EntryState::Ready(batch);
        entry.bytes = bytes;
        true
    }

    /// Drops a read that failed or that its reader takes over.
    pub(super) fn abandon(&mut self, id: ChunkId, projection: &Projection) -> u64 {
        self.remove_if(id, |entry| {
            entry.projection.as_ref() == Some(projection) && matches!(entry.state, EntryState::Queued)
        })
    }

    /// Drops the entry of a read that did not succeed.
    pub(super) fn fail(&mut self, id: ChunkId, ticket: u64) {
        self.remove_if(id, |entry| entry.used == ticket);
    }

    /// Drops a chunk and returns the bytes that this sets free.
    pub(super) fn remove(&mut self, id: ChunkId) -> u64 {
        self.remove_if(id, |_| true)
    }

    /// Drops the batch that was used longest ago and that no caller holds; returns its bytes.
    pub(super) fn evict(&mut self) -> Option<u64> {
        let idle = |entry: &Entry| match &entry.state {
            EntryState::Ready(batch) => Arc::strong_count(batch) == 1,
            _ => false,
        };
        let (used, id) = self
            .entries
            .iter()
            .flat_map(|(id, entries)| entries.iter().map(move |entry| (entry, id)))
            .filter(|(entry, _)| idle(entry))
            .map(|(entry, id)| (entry.used, *id))
            .min()?;
        Some(self.remove_if(id, |entry| entry.used == used))
    }

    fn find(&mut self, id: ChunkId, ticket: u64) -> Option<&mut Entry> {
        self.entries.get_mut(&id)?.iter_mut().find(|entry| entry.used == ticket)
    }

    fn remove_if(&mut self, id: ChunkId, matches: impl Fn(&Entry) -> bool) -> u64 {
        let Some(entries) = self.entries.get_mut(&id) else { return 0 };
        let mut freed = 0;
        entries.retain(|entry| {
            let goes = matches(entry);
            if goes && !matches!(entry.state, EntryState::Loading) {
                freed += entry.bytes;
            }
            !goes
        });
        if entries.is_empty() {
            self.entries.remove(&id);
        }
        freed
    }
}
