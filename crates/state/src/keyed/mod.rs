//! The state of one task by key: values in memory, a bounded cache over a [`Backend`].
//!
//! A value is *clean* if the back end has its bytes, and then may leave memory; a miss reads it back. Changed values
//! stay until their bytes have been written. Whether a value is in memory shows in no result: a [`Codec`] gives back
//! what it saved, bit for bit.
//!
//! A cycle: [`begin_cycle`](Keyed::begin_cycle) freezes the values that were changed by then, without looking at them.
//! [`save_some`](Keyed::save_some) saves frozen values in slices, and a value that is about to change is saved before.
//! When all are saved there is a [`HandOver`], which another thread writes. It says so through a counter, and from
//! then on its values are clean.
//!
//! After a restart values come on their first use, or ahead of it from a scan that runs in the background, until memory
//! is full: between [`begin_fill`](Keyed::begin_fill) and [`end_fill`](Keyed::end_fill).
//!
//! Memory: recently used values stay, roughly by order of use, up to `memory` bytes. Values that may not leave can make it
//! more; the owner of the cache looks at [`dirty_bytes`](Keyed::dirty_bytes) and has the cycle end early. Without a
//! back end nothing leaves, and `memory` bounds nothing.
//!
//! Invariants
//! * A slot is in the list of the cycle at hand or of the frozen one as long as its epoch says so, and is not freed.
//! * An image in a hand-over is the value as it was at its marker.
//! * A key whose hand-over is not written is in memory, so no miss reads an older value.
//! * A key that was changed since a scan began is in memory, or among those that left it: the scan may have an old value,
//!   and is not asked.
//!
//! Not here: when a cycle ends, what keys and values mean, where the bytes are.

mod hand_over;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use thalweg_types::Error;

use crate::{Backend, BackendStats, Changes};
use slots::{NONE, Slots};

pub use hand_over::HandOver;

/// Makes bytes of values and values of bytes.
pub trait Codec {
    type Value;

    /// Appends all that [`load`](Self::load) needs to make an equal value.
    fn save(&self, value: &Self::Value, into: &mut Vec<u8>);

    /// # Errors
    /// If `save` did not make the bytes.
    fn load(&self, bytes: &[u8]) -> Result<Self::Value, Error>;

    /// Reads of a value what a change is going to read, for the sake of the processor's cache; what it returns counts
    /// for nothing.
    fn warm(&self, value: &Self::Value) -> u64 {
        let _ = value;
        0
    }

    /// Bytes that a value holds on the heap, in addition to itself.
    fn heap_bytes(&self, value: &Self::Value) -> usize {
        let _ = value;
        0
    }
}

/// What a cache holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyedStats {
    /// Keys in memory, those among them that are known to have no value.
    pub keys: u64,
    /// Bytes in memory of keys, values, and their index.
    pub bytes: u64,
    /// Keys that were in memory when they were asked for.
    pub hits: u64,
    /// Keys that were read from the back end.
    pub misses: u64,
    /// Keys that a scan of the back end brought.
    pub filled: u64,
    /// Clean values that made room for others.
    pub evictions: u64,
    /// Clean values that left because nothing had touched them for long.
    pub unloaded: u64,
}

/// How much [`Keyed::save_some`] saves in one call; both bounds hold, give or take one value.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub keys: usize,
    pub bytes: usize,
}

/// Where a key may be in memory; a hint, which a later change makes wrong and not harmful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    pub const NONE: Self = Self(NONE);
}

/// Slots that one search for room looks at.
const SEARCH: usize = 64;
/// Keys that are read at once.
const READ_AT_ONCE: usize = 1024;

/// See the module.
pub struct Keyed<C: Codec> {
    codec: C,
    store: Option<Store>,
    memory: usize,
    slots: Slots<C::Value>,
    /// Number of the cycle at hand in this run, from 1; a slot that was changed in it bears it.
    epoch: u64,
    dirty: Vec<u32>,
    dirty_bytes: usize,
    /// Slots that were changed at their places and have not been measured since.
    unmeasured: Vec<u32>,
    frozen: Option<Frozen>,
    /// Nothing that the back end has is missing in memory, so a missing key does not exist.
    is_whole: bool,
    /// While a scan brings values.
    fill: Option<Fill>,
    /// Written on slots that are used.
    stamp: i64,
    /// Where the search for room goes on; [`NONE`]: at the oldest.
    hand: u32,
    /// For one value's bytes.
    image: Vec<u8>,
    stats: KeyedStats,
}

struct Store {
    backend: Arc<dyn Backend>,
    /// The last cycle whose hand-over was written: release there, acquire here. Reads use the back end's own lock;
    /// this says from when on they find it.
    written: Arc<AtomicU64>,
}

/// What is known while a scan brings values.
struct Fill {
    /// Written on them: as if they were used last when the scan began.
    stamp: i64,
    /// Hashes of keys that were changed and have left memory since.
    left: HashTable<u64>,
}

/// What was changed up to a marker and is being saved.
struct Frozen {
    cycle: u64,
    epoch: u64,
    slots: Vec<u32>,
    next: usize,
    changes: Changes,
}

impl<C: Codec> Keyed<C> {
    /// A cache over a back end that is at the committed cycle `cycle`, 0 for an empty one.
    pub fn over(backend: Arc<dyn Backend>, cycle: u64, memory: usize, codec: C) -> Self {
        let is_whole = backend.stats().keys == 0;
        let written = Arc::new(AtomicU64::new(cycle));
        Self { store: Some(Store { backend, written }), memory, is_whole, ..Self::in_memory(codec) }
    }

    /// Values that live as long as this does.
    pub fn in_memory(codec: C) -> Self {
        Self {
            codec,
            store: None,
            memory: usize::MAX,
            slots: Slots::new(),
            epoch: 1,
            dirty: Vec::new(),
            dirty_bytes: 0,
            unmeasured: Vec::new(),
            frozen: None,
            is_whole: true,
            fill: None,
            stamp: i64::MIN,
            hand: NONE,
            image: Vec::new(),
            stats: KeyedStats::default(),
        }
    }

    pub fn is_durable(&self) -> bool {
        self.store.is_some()
    }

    /// Whether memory has all that the back end has, so that there is nothing to read ahead.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Sets the time that is written on values that are used from here on, for [`unload`](Self::unload). Never goes
    /// back.
    pub fn set_stamp(&mut self, stamp: i64) {
        self.stamp = self.stamp.max(stamp);
    }

    /// The value of a key.
    ///
    /// # Errors
    /// What reading it back says.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&C::Value>, Error> {
        let slot = self.find_or_read(key)?;
        self.make_room(slot);
        if self.store.is_none() && self.slots[slot].value.is_none() {
            self.free(slot);
            return Ok(None);
        }
        Ok(self.slots[slot].value.as_ref())
    }

    /// Changes the value of a key: gives it one, changes or takes away the one that it has.
    ///
    /// # Errors
    /// What reading it back says.
    pub fn change<R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Option<C::Value>) -> R,
    ) -> Result<R, Error> {
        let slot = self.find_or_read(key)?;
        self.slots[slot].is_unmeasured = true;
        let result = self.change_slot(slot, change);
        self.measure_changed(slot);
        Ok(result)
    }

    /// As [`change`](Self::change), where a look at many keys has said that this one may be; whatever it said, the value
    /// that is changed is that of the key. [`settle`](Self::settle) has to follow soon.
    ///
    /// # Errors
    /// What reading it back says.
    #[inline]
    pub fn change_at<R>(
        &mut self,
        place: Place,
        key: &[u8],
        change: impl FnOnce(&mut Option<C::Value>) -> R,
    ) -> Result<R, Error> {
        let slot = match self.slots.has(place.0, key) {
            true => {
                self.stats.hits += 1;
                self.slots.use_now(place.0, self.stamp);
                place.0
            }
            false => self.find_or_read(key)?,
        };
        if !std::mem::replace(&mut self.slots[slot].is_unmeasured, true) {
            self.unmeasured.push(slot);
        }
        Ok(self.change_slot(slot, change))
    }

    #[inline]
    fn change_slot<R>(&mut self, slot: u32, change: impl FnOnce(&mut Option<C::Value>) -> R) -> R {
        self.save_before_change(slot);
        let value = &mut self.slots[slot].value;
        let was_there = value.is_some();
        let result = change(value);
        let is_there = value.is_some();
        if self.store.is_some() {
            if was_there || is_there {
                self.mark(slot);
            }
        } else if !is_there {
            self.free(slot);
        }
        result
    }

    /// Measures what was changed at places, and makes room: once for many changes.
    pub fn settle(&mut self) {
        let mut slots = std::mem::take(&mut self.unmeasured);
        for slot in slots.drain(..) {
            self.measure_changed(slot);
        }
        self.unmeasured = slots;
    }

    /// Measures a slot that was changed, if it has not been freed since, and makes room.
    fn measure_changed(&mut self, slot: u32) {
        if self.slots[slot].is_unmeasured {
            self.measure(slot);
            self.make_room(slot);
        }
    }

    /// Says of each key where it may be in memory, as far as the index alone knows: for
    /// [`change_at`](Self::change_at).
    pub fn guess<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>, places: &mut Vec<Place>) {
        places.extend(keys.into_iter().map(|key| Place(self.slots.guess(key))));
    }

    /// Reads what is at these places for the sake of the processor's cache: some dozens that are changed next.
    pub fn warm(&self, places: &[Place]) {
        self.slots.warm(places.iter().map(|place| place.0), |value| self.codec.warm(value));
    }

    /// Reads back at once those of some keys that are not in memory, each once.
    ///
    /// # Errors
    /// What reading them back says.
    pub fn prefetch<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<(), Error> {
        if self.is_whole {
            return Ok(());
        }
        let mut missing: Vec<u32> = Vec::new();
        for key in keys {
            let hash = self.slots.hash(key);
            if self.slots.find(hash, key).is_none() {
                missing.push(self.slots.add(hash, key, self.stamp));
            }
        }
        let done = missing.chunks(READ_AT_ONCE).try_for_each(|slots| self.read(slots));
        if done.is_err() {
            // What was not read must not pass for having no value.
            missing.into_iter().for_each(|slot| self.slots.remove(slot));
        }
        done
    }

    /// Freezes the changed values, as the changes of cycle `cycle`. If an earlier cycle has not been saved to its end,
    /// that is done first.
    #[must_use = "an earlier cycle is lost if it is not handed over"]
    pub fn begin_cycle(&mut self, cycle: u64) -> Option<HandOver> {
        let earlier = self.save_some(Slice { keys: usize::MAX, bytes: usize::MAX });
        if self.store.is_some() {
            self.frozen = Some(Frozen {
                cycle,
                epoch: self.epoch,
                slots: std::mem::take(&mut self.dirty),
                next: 0,
                changes: Changes::new(),
            });
        }
        self.epoch += 1;
        self.dirty_bytes = 0;
        earlier
    }

    /// Saves some of the frozen values; returns the hand-over if they were the last.
    pub fn save_some(&mut self, slice: Slice) -> Option<HandOver> {
        let mut frozen = self.frozen.take()?;
        let bytes = frozen.changes.byte_len().saturating_add(slice.bytes);
        let mut keys = 0;
        while let Some(slot) = frozen.slots.get(frozen.next).copied() {
            if keys >= slice.keys || frozen.changes.byte_len() >= bytes {
                self.frozen = Some(frozen);
                return None;
            }
            frozen.next += 1;
            keys += 1;
            if self.slots[slot].epoch == frozen.epoch {
                self.save(slot, &mut frozen);
            }
        }
        let store = self.store.as_ref()?;
        Some(HandOver::new(
            frozen.cycle,
            frozen.changes,
            Arc::clone(&store.backend),
            Arc::clone(&store.written),
        ))
    }

    /// Whether frozen values wait to be saved.
    pub fn is_saving(&self) -> bool {
        self.frozen.is_some()
    }

    /// Lets go of clean values whose stamp is `until` or older, at most `limit` of them; how many.
    pub fn unload(&mut self, until: i64, limit: usize) -> usize {
        let mut count = 0;
        let mut slot = self.slots.oldest();
        // Those that may not leave yet are among those that may: twice as many are looked at.
        for _ in 0..limit.saturating_mul(2) {
            // Stamps ascend in the list, as they were when slots got their places.
            if slot == NONE || count == limit || self.slots[slot].linked > until {
                break;
            }
            let next = self.slots[slot].newer;
            if self.slots[slot].stamp > until {
                self.renew(slot);
            } else if self.may_leave(slot) {
                self.leave(slot);
                count += 1;
            }
            slot = next;
        }
        self.stats.unloaded += count as u64;
        count
    }

    /// A scan of the back end begins now, which [`fill`](Self::fill) is to take values from.
    pub fn begin_fill(&mut self) {
        self.fill = Some(Fill { stamp: self.stamp, left: HashTable::new() });
    }

    /// Takes in what the scan found, where memory has nothing of the key, the key was not changed since the scan began,
    /// and there is room; whether there was.
    ///
    /// What it brings makes room for others before all that was used.
    ///
    /// # Errors
    /// If the bytes are no value.
    pub fn fill(&mut self, key: &[u8], bytes: &[u8]) -> Result<bool, Error> {
        let Some(fill) = &self.fill else { return Ok(false) };
        let hash = self.slots.hash(key);
        if fill.left.find(hash, |left| *left == hash).is_some() || self.slots.find(hash, key).is_some() {
            return Ok(true);
        }
        let stamp = fill.stamp;
        let value = self.codec.load(bytes)?;
        let slot = self.slots.add_oldest(hash, key, stamp);
        self.slots[slot].value = Some(value);
        self.measure(slot);
        if self.bytes() > self.memory {
            self.slots.remove(slot);
            self.end_fill();
            return Ok(false);
        }
        self.stats.filled += 1;
        Ok(true)
    }

    /// No more of a scan is taken.
    pub fn end_fill(&mut self) {
        self.fill = None;
    }

    /// Bytes of the values that were changed since the last marker.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes
    }

    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.fill.as_ref().map_or(0, |fill| fill.left.allocation_size())
    }

    /// The contents of its back end; `None` if it has no back end.
    pub fn backend_stats(&self) -> Option<BackendStats> {
        self.store.as_ref().map(|store| store.backend.stats())
    }

    pub fn stats(&self) -> KeyedStats {
        KeyedStats { keys: self.slots.len() as u64, bytes: self.bytes() as u64, ..self.stats }
    }

    /// The slot of a key, from the back end if need be, as the one that was used last.
    fn find_or_read(&mut self, key: &[u8]) -> Result<u32, Error> {
        let hash = self.slots.hash(key);
        if let Some(slot) = self.slots.find(hash, key) {
            self.stats.hits += 1;
            self.slots.use_now(slot, self.stamp);
            return Ok(slot);
        }
        let slot = self.slots.add(hash, key, self.stamp);
        if !self.is_whole
            && let Err(error) = self.read(&[slot])
        {
            self.slots.remove(slot);
            return Err(error);
        }
        Ok(slot)
    }

    /// Fills slots that were just added.
    fn read(&mut self, slots: &[u32]) -> Result<(), Error> {
        let Some(store) = &self.store else { return Ok(()) };
        let found = {
            let keys: Vec<&[u8]> = slots.iter().map(|slot| self.slots[*slot].key.bytes()).collect();
            store.backend.get_many(&keys)?
        };
        self.stats.misses += slots.len() as u64;
        for (slot, bytes) in slots.iter().zip(found) {
            if let Some(bytes) = bytes {
                self.slots[*slot].value = Some(self.codec.load(&bytes)?);
                self.measure(*slot);
            }
        }
        Ok(())
    }

    fn measure(&mut self, slot: u32) {
        let heap = self.slots[slot].value.as_ref().map_or(0, |value| self.codec.heap_bytes(value));
        let before = self.slots[slot].bytes;
        self.slots.set_heap(slot, heap);
        if self.slots[slot].epoch == self.epoch {
            self.dirty_bytes = self.dirty_bytes + self.slots[slot].bytes - before;
        }
    }

    /// Notes that a slot was changed in the cycle at hand.
    fn mark(&mut self, slot: u32) {
        if self.slots[slot].epoch != self.epoch {
            self.slots[slot].epoch = self.epoch;
            self.dirty.push(slot);
            self.dirty_bytes += self.slots[slot].bytes;
        }
    }

    fn save_before_change(&mut self, slot: u32) {
        if let Some(mut frozen) = self.frozen.take_if(|frozen| self.slots[slot].epoch == frozen.epoch) {
            self.save(slot, &mut frozen);
            self.frozen = Some(frozen);
        }
    }

    /// Saves a frozen slot as it is.
    fn save(&mut self, slot: u32, frozen: &mut Frozen) {
        let slot = &mut self.slots[slot];
        match &slot.value {
            Some(value) => {
                self.image.clear();
                self.codec.save(value, &mut self.image);
                frozen.changes.push(slot.key.bytes(), &self.image);
            }
            None => frozen.changes.remove(slot.key.bytes()),
        }
        slot.epoch = 0;
        slot.handed = frozen.cycle;
    }

    /// Whether the back end has the value of a slot.
    fn may_leave(&self, slot: u32) -> bool {
        let slot = &self.slots[slot];
        let written = self.store.as_ref().map(|store| store.written.load(Ordering::Acquire));
        slot.epoch == 0 && Some(slot.handed) <= written
    }

    /// Takes a slot out of memory.
    fn leave(&mut self, slot: u32) {
        // A slot without a value means that the key has none, in the back end too.
        self.is_whole &= self.slots[slot].value.is_none();
        // What was never handed over is as it was read.
        if let Some(fill) = &mut self.fill
            && self.slots[slot].handed > 0
        {
            let hash = self.slots[slot].hash;
            if fill.left.find(hash, |left| *left == hash).is_none() {
                fill.left.insert_unique(hash, hash, |left| *left);
            }
        }
        self.free(slot);
    }

    /// Gives a slot that was used a new place in the list.
    fn renew(&mut self, slot: u32) {
        if self.hand == slot {
            self.hand = self.slots[slot].newer;
        }
        self.slots.renew(slot, self.stamp);
    }

    fn free(&mut self, slot: u32) {
        if self.hand == slot {
            self.hand = self.slots[slot].newer;
        }
        self.slots.remove(slot);
    }

    /// Lets go of clean values, the oldest first, until the rest fits; not of `kept`. Gives up after a few looks: the
    /// next call goes on from there.
    fn make_room(&mut self, kept: u32) {
        if self.bytes() <= self.memory || self.store.is_none() {
            return;
        }
        // From here on a scan would take room from values in use.
        self.end_fill();
        for _ in 0..SEARCH {
            if self.slots.bytes() <= self.memory {
                break;
            }
            let slot = if self.hand == NONE { self.slots.oldest() } else { self.hand };
            if slot == NONE {
                break;
            }
            self.hand = self.slots[slot].newer;
            if slot != kept && self.slots[slot].is_used {
                self.renew(slot);
            } else if slot != kept && self.may_leave(slot) {
                self.leave(slot);
                self.stats.evictions += 1;
            }
        }
    }
}
