//! What readers and the writer share: the index, and what each segment still holds of it.
//!
//! Invariants
//! * A segment's live entries are exactly the slots of the index that name it.
//! * An entry is in the index only after its bytes are written.

use std::collections::BTreeMap;

use super::index::{Address, Index};
use super::location::{Location, MAX_SEGMENTS};
use crate::StateError;

/// A segment at hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) len: u64,
    /// Slots of the index that name it, tombstones among them.
    pub(super) live_count: u64,
}

/// The index and the table of segments that its locations point into.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) index: Index,
    live: Live,
    by_number: BTreeMap<u64, u16>,
}

/// What the index names in each segment, and in all of them.
#[derive(Debug, Default)]
struct Live {
    slots: Vec<Option<Segment>>,
    tombstones: u64,
    /// Bytes of entries with values.
    bytes: u64,
}

impl Live {
    /// The index names `location` in place of `before`.
    #[inline]
    fn replace(&mut self, location: Location, before: Option<Location>) {
        self.count(location, 1);
        if let Some(before) = before {
            self.count(before, -1);
        }
    }

    #[inline]
    fn count(&mut self, location: Location, by: i64) {
        if let Some(Some(segment)) = self.slots.get_mut(usize::from(location.slot())) {
            segment.live_count = segment.live_count.wrapping_add_signed(by);
        }
        if location.is_tombstone() {
            self.tombstones = self.tombstones.wrapping_add_signed(by);
        } else {
            self.bytes = self.bytes.wrapping_add_signed(location.len() as i64 * by);
        }
    }
}

impl Places {
    pub(super) fn new() -> Self {
        Self { index: Index::new(), live: Live::default(), by_number: BTreeMap::new() }
    }

    /// Gives a segment a slot.
    pub(super) fn add_segment(&mut self, number: u64, len: u64) -> Result<u16, StateError> {
        let free = self.live.slots.iter().position(Option::is_none).unwrap_or(self.live.slots.len());
        if free >= MAX_SEGMENTS {
            let (bytes, max) = (free as u64 + 1, MAX_SEGMENTS as u64);
            return Err(StateError::TooLarge { what: "the list of segments of one task", bytes, max });
        }
        if free == self.live.slots.len() {
            self.live.slots.push(None);
        }
        self.live.slots[free] = Some(Segment { number, len, live_count: 0 });
        self.by_number.insert(number, free as u16);
        Ok(free as u16)
    }

    pub(super) fn remove_segment(&mut self, number: u64) {
        if let Some(slot) = self.by_number.remove(&number) {
            self.live.slots[usize::from(slot)] = None;
        }
    }

    pub(super) fn slot_of(&self, number: u64) -> Option<u16> {
        self.by_number.get(&number).copied()
    }

    pub(super) fn segment(&self, slot: u16) -> Option<&Segment> {
        self.live.slots.get(usize::from(slot))?.as_ref()
    }

    pub(super) fn set_len(&mut self, slot: u16, len: u64) {
        if let Some(Some(segment)) = self.live.slots.get_mut(usize::from(slot)) {
            segment.len = len;
        }
    }

    pub(super) fn live_count(&self, number: u64) -> u64 {
        self.slot_of(number).and_then(|slot| self.segment(slot)).map_or(0, |segment| segment.live_count)
    }

    /// Segments with their slots, oldest first.
    pub(super) fn segments(&self) -> impl Iterator<Item = (u16, &Segment)> {
        self.by_number.values().filter_map(|slot| Some((*slot, self.segment(*slot)?)))
    }

    #[inline]
    pub(super) fn put(&mut self, address: Address, location: Location) {
        let before = self.index.put(address, location);
        self.live.replace(location, before);
    }

    pub(super) fn put_all(&mut self, placed: &[(Address, Location)]) {
        let Self { index, live, .. } = self;
        index.put_all(placed, |location, before| live.replace(location, before));
    }

    pub(super) fn remove(&mut self, address: Address) {
        if let Some(before) = self.index.get(address) {
            self.index.remove(address);
            self.live.count(before, -1);
        }
    }

    /// Replaces the index, whose locations all point to segments at hand.
    pub(super) fn set_index(&mut self, index: Index) {
        self.live.bytes = 0;
        self.live.tombstones = 0;
        for segment in self.live.slots.iter_mut().flatten() {
            segment.live_count = 0;
        }
        for location in index.locations() {
            self.live.count(location, 1);
        }
        self.index = index;
    }

    pub(super) fn keys(&self) -> u64 {
        self.index.len() as u64 - self.live.tombstones
    }

    /// Bytes of entries with values.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live.bytes
    }
}
