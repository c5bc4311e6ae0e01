//! Keys and values in memory: a slab, a table that finds slots by key, and a list of them in order of use.
//!
//! The slab grows by pieces, so that no key has to wait for all others to be moved.
//!
//! The table's hash has a seed of its own, so that nobody can send keys that share one. Whole keys are compared, and
//! which entry comes first is a question of use alone: no seed shows in anything.

use std::hash::BuildHasher;
use std::ops::{Index, IndexMut};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Slots of one piece, as a power of two.
const PIECE: u32 = 10;

#[cfg(test)]
thread_local! {
    /// Slots that look-ups have looked at, as tests count them.
    pub(super) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A look-up looks at a slot.
#[inline(always)]
fn note_look() {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
}

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

pub(super) struct Slot<V> {
    pub(super) key: Box<[u8]>,
    /// `None`: the key has no value, and perhaps a tombstone to be saved.
    pub(super) value: Option<V>,
    /// In which epoch it was changed; 0: what it holds has been handed over.
    pub(super) epoch: u64,
    /// The cycle with which it was handed over last; 0: never.
    pub(super) handed: u64,
    /// When it was used last, as the owner counts.
    pub(super) stamp: i64,
    /// All that it holds.
    pub(super) bytes: usize,
    /// Neighbours in order of use.
    pub(super) newer: u32,
    older: u32,
    pub(super) hash: u64,
}

pub(super) struct Slots<V> {
    hasher: RandomState,
    table: HashTable<u32>,
    slots: Slab<V>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    bytes: usize,
}

impl<V> Slots<V> {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            table: HashTable::new(),
            slots: Slab(Vec::new()),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            bytes: 0,
        }
    }

    /// The hash of a key in this table.
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn oldest(&self) -> u32 {
        self.oldest
    }

    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.table
            .find(hash, |slot| {
                note_look();
                *self.slots[*slot].key == *key
            })
            .copied()
    }

    /// Adds a key that is not there, without a value, as the newest.
    pub(super) fn add(&mut self, hash: u64, key: &[u8], stamp: i64) -> u32 {
        let place = self.put(hash, key, stamp);
        self.link(place);
        place
    }

    /// As [`add`](Self::add), but as the oldest.
    pub(super) fn add_oldest(&mut self, hash: u64, key: &[u8], stamp: i64) -> u32 {
        let place = self.put(hash, key, stamp);
        self.link_oldest(place);
        place
    }

    fn put(&mut self, hash: u64, key: &[u8], stamp: i64) -> u32 {
        // Of the table: a number and a control byte per slot, seven eighths full at most and half of that at least.
        let bytes = size_of::<Slot<V>>() + key.len() + 8;
        let slot = Slot {
            key: key.into(),
            value: None,
            epoch: 0,
            handed: 0,
            stamp,
            bytes,
            newer: NONE,
            older: NONE,
            hash,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place] = slot;
                place
            }
            None => self.slots.push(slot),
        };
        let slots = &self.slots;
        self.table.insert_unique(hash, place, |slot| slots[*slot].hash);
        self.bytes += bytes;
        place
    }

    /// Forgets a key; its slot is used again.
    pub(super) fn remove(&mut self, place: u32) {
        self.unlink(place);
        let slot = &mut self.slots[place];
        if let Ok(entry) = self.table.find_entry(slot.hash, |other| *other == place) {
            entry.remove();
        }
        self.bytes -= slot.bytes;
        slot.value = None;
        slot.key = Box::default();
        self.free.push(place);
    }

    /// Says how many bytes the value holds in addition to itself.
    pub(super) fn set_heap(&mut self, place: u32, heap: usize) {
        let slot = &mut self.slots[place];
        let bytes = size_of::<Slot<V>>() + slot.key.len() + 8 + heap;
        self.bytes = self.bytes + bytes - slot.bytes;
        slot.bytes = bytes;
    }

    pub(super) fn use_now(&mut self, place: u32, stamp: i64) {
        self.slots[place].stamp = stamp;
        if self.newest != place {
            self.unlink(place);
            self.link(place);
        }
    }

    fn link(&mut self, place: u32) {
        let older = self.newest;
        let slot = &mut self.slots[place];
        (slot.older, slot.newer) = (older, NONE);
        self.newest = place;
        match older {
            NONE => self.oldest = place,
            older => self.slots[older].newer = place,
        }
    }

    fn link_oldest(&mut self, place: u32) {
        let newer = self.oldest;
        let slot = &mut self.slots[place];
        (slot.older, slot.newer) = (NONE, newer);
        self.oldest = place;
        match newer {
            NONE => self.newest = place,
            newer => self.slots[newer].older = place,
        }
    }

    fn unlink(&mut self, place: u32) {
        let Slot { newer, older, .. } = self.slots[place];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older].newer = newer,
        }
    }
}

struct Slab<V>(Vec<Vec<Slot<V>>>);

impl<V> Slab<V> {
    fn push(&mut self, slot: Slot<V>) -> u32 {
        if self.0.last().is_none_or(|piece| piece.len() == 1 << PIECE) {
            self.0.push(Vec::with_capacity(1 << PIECE));
        }
        let last = self.0.len() - 1;
        self.0[last].push(slot);
        // Slots take more than 64 bytes: memory ends long before the numbers do.
        ((last << PIECE) + self.0[last].len() - 1) as u32
    }
}

impl<V> Index<u32> for Slab<V> {
    type Output = Slot<V>;

    #[inline]
    fn index(&self, place: u32) -> &Slot<V> {
        &self.0[(place >> PIECE) as usize][(place & ((1 << PIECE) - 1)) as usize]
    }
}

impl<V> IndexMut<u32> for Slab<V> {
    #[inline]
    fn index_mut(&mut self, place: u32) -> &mut Slot<V> {
        &mut self.0[(place >> PIECE) as usize][(place & ((1 << PIECE) - 1)) as usize]
    }
}

impl<V> Index<u32> for Slots<V> {
    type Output = Slot<V>;

    fn index(&self, place: u32) -> &Slot<V> {
        &self.slots[place]
    }
}

impl<V> IndexMut<u32> for Slots<V> {
    fn index_mut(&mut self, place: u32) -> &mut Slot<V> {
        &mut self.slots[place]
    }
}
