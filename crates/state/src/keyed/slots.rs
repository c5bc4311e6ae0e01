//! Keys and values in memory: a slab, a table that finds slots by key, and a list of them, roughly in order of use.
//!
//! A use only marks the slot. Who looks for slots to let go of begins at the old end of the list, and gives those that
//! were used since they got their places new ones at the other end.
//!
//! The slab grows by pieces, so that no key has to wait for all others to be moved.
//!
//! The table's hash has a seed of its own, so that nobody can send keys that share one. Whole keys are compared, and
//! which entry comes first is a question of use alone: no seed shows in anything.
//!
//! A look-up waits for memory: for the table, then for the slot, then for a key that is elsewhere. So short keys are in
//! their slots, and part of the hash is in the table, where it says of nearly every other key that it is another one.
//! Many keys are looked up at once with [`Slots::guess`], which reads the table alone, and [`Slots::warm`], which reads
//! slots that are used next: the loads of one key wait for each other, those of different keys do not.

use std::hash::BuildHasher;
use std::ops::{Index, IndexMut};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use thalweg_types::spread_tag;

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

/// Bytes of a slot in the table: tag, number and a control byte, seven eighths full at most and half of that at least.
const IN_TABLE: usize = 14;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// A slot in the table.
#[derive(Clone, Copy)]
struct Mark {
    tag: u32,
    place: u32,
}

/// Part of a hash.
fn tag_of(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

/// Bytes of a key that its slot has room for.
const SHORT: usize = 22;

/// The key of a slot.
pub(super) enum Key {
    /// The slot is free.
    None,
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl Key {
    fn of(bytes: &[u8]) -> Self {
        match u8::try_from(bytes.len()) {
            Ok(length) if bytes.len() <= SHORT => {
                let mut short = [0; SHORT];
                short[..bytes.len()].copy_from_slice(bytes);
                Self::Short(length, short)
            }
            _ => Self::Long(bytes.into()),
        }
    }

    #[inline]
    fn get(&self) -> Option<&[u8]> {
        match self {
            Self::None => None,
            Self::Short(length, bytes) => bytes.get(..usize::from(*length)),
            Self::Long(bytes) => Some(bytes),
        }
    }

    /// Of a slot that is in use.
    pub(super) fn bytes(&self) -> &[u8] {
        self.get().unwrap_or_default()
    }

    fn heap_bytes(&self) -> usize {
        if let Self::Long(bytes) = self { bytes.len() } else { 0 }
    }
}

/// What each use of a value touches comes first and together.
#[repr(C)]
pub(super) struct Slot<V> {
    pub(super) key: Key,
    /// When it was used last, as the owner counts.
    pub(super) stamp: i64,
    /// In which epoch it was changed; 0: what it holds has been handed over.
    pub(super) epoch: u64,
    /// It was used since it got its place in the list.
    pub(super) is_used: bool,
    /// It was changed since it was measured.
    pub(super) is_unmeasured: bool,
    /// `None`: the key has no value, and perhaps a tombstone to be saved.
    pub(super) value: Option<V>,
    /// The cycle with which it was handed over last; 0: never.
    pub(super) handed: u64,
    /// The stamp when it got its place in the list.
    pub(super) linked: i64,
    /// All that it holds, as it was measured last.
    pub(super) bytes: usize,
    /// Neighbours in the list.
    pub(super) newer: u32,
    older: u32,
    pub(super) hash: u64,
}

pub(super) struct Slots<V> {
    hasher: RandomState,
    table: HashTable<Mark>,
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
        let tag = tag_of(hash);
        let found = self.table.find(spread_tag(tag), |mark| {
            note_look();
            mark.tag == tag && self.has(mark.place, key)
        });
        found.map(|mark| mark.place)
    }

    /// The slot in which a key is, if it is there: another key may have the same tag. [`NONE`]: there is none with it.
    #[inline]
    pub(super) fn guess(&self, key: &[u8]) -> u32 {
        let tag = tag_of(self.hash(key));
        let found = self.table.find(spread_tag(tag), |mark| {
            note_look();
            mark.tag == tag
        });
        found.map_or(NONE, |mark| mark.place)
    }

    /// Whether a key is in this slot.
    #[inline]
    pub(super) fn has(&self, place: u32, key: &[u8]) -> bool {
        place != NONE && self.slots[place].key.get() == Some(key)
    }

    /// Reads slots for the sake of the cache; `value` reads of a value what its user is going to.
    pub(super) fn warm(&self, places: impl Iterator<Item = u32>, value: impl Fn(&V) -> u64) {
        let read = |place: u32| {
            let slot = &self.slots[place];
            slot.epoch ^ slot.value.as_ref().map_or(0, &value)
        };
        let mixed = places.filter(|place| *place != NONE).fold(0, |mixed, place| mixed ^ read(place));
        std::hint::black_box(mixed);
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
        let key = Key::of(key);
        let bytes = size_of::<Slot<V>>() + key.heap_bytes() + IN_TABLE;
        let slot = Slot {
            key,
            stamp,
            epoch: 0,
            is_used: false,
            is_unmeasured: false,
            value: None,
            handed: 0,
            linked: stamp,
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
        let tag = tag_of(hash);
        self.table.insert_unique(spread_tag(tag), Mark { tag, place }, |mark| spread_tag(mark.tag));
        self.bytes += bytes;
        place
    }

    /// Forgets a key; its slot is used again.
    pub(super) fn remove(&mut self, place: u32) {
        self.unlink(place);
        let slot = &mut self.slots[place];
        if let Ok(entry) = self.table.find_entry(spread_tag(tag_of(slot.hash)), |other| other.place == place)
        {
            entry.remove();
        }
        self.bytes -= slot.bytes;
        slot.is_unmeasured = false;
        slot.value = None;
        slot.key = Key::None;
        self.free.push(place);
    }

    /// Says how many bytes the value holds in addition to itself.
    pub(super) fn set_heap(&mut self, place: u32, heap: usize) {
        let slot = &mut self.slots[place];
        let bytes = size_of::<Slot<V>>() + slot.key.heap_bytes() + IN_TABLE + heap;
        slot.is_unmeasured = false;
        self.bytes = self.bytes + bytes - slot.bytes;
        slot.bytes = bytes;
    }

    #[inline]
    pub(super) fn use_now(&mut self, place: u32, stamp: i64) {
        let slot = &mut self.slots[place];
        (slot.stamp, slot.is_used) = (stamp, true);
    }

    /// Gives a slot a new place in the list, as the newest.
    pub(super) fn renew(&mut self, place: u32, stamp: i64) {
        let slot = &mut self.slots[place];
        (slot.linked, slot.is_used) = (stamp, false);
        self.unlink(place);
        self.link(place);
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
