//! The index of keys that are not numbered: fingerprint of a key to the place of its newest entry, 16 bytes a slot.
//!
//! A key has a fingerprint of 128 bits, by a hash whose own key is secret ([`HashKey`]). Six choose a shard, 64
//! (the *tag*) the home in it, eight more are compared: 78 bits distinguish keys. Among 10 M keys two agree with a
//! chance of 2e-10, less than for the checksums, and nobody can choose two that do; a read compares the key on disk and
//! says so, it never answers with another key's value. Keys in memory would cost several times the index, and reading
//! the old entry at each write would cost the sequence.
//!
//! A shard is an array in order of tags, with gaps: the home of a tag is its share of the array (tag × homes / 2^64),
//! and slots are pushed right until there is room (linear probing in the manner of Robin Hood). So growing and
//! dumping go through memory once and in order, and no key is needed for either. Slots after the last home take
//! the keys that are pushed there, so nothing wraps.
//!
//! Shards grow one at a time, by a fifth when seven eighths are full: 18 to 22 bytes a key, and little more while
//! growing.

use thalweg_types::HashKey;

use super::location::{LOCATION_BITS, Location};

const SHARD_BITS: u32 = 6;
pub(super) const SHARDS: usize = 1 << SHARD_BITS;

/// Slots after the last home.
const SLACK: usize = 16;

/// The hash that represents a key. Persisted in index files with the key of the hash, do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) shard: u8,
    extra: u8,
    tag: u64,
}

impl Fingerprint {
    #[inline]
    pub(super) fn of(hash_key: &HashKey, key: &[u8]) -> Self {
        let hash = hash_key.hash128(key);
        let high = (hash >> 64) as u64;
        Self { shard: (high >> (64 - SHARD_BITS)) as u8, extra: high as u8, tag: hash as u64 }
    }
}

/// A tag, eight more bits of the fingerprint and a location.
#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u64,
    rest: u64,
}

/// No entry is here: the location has a slot that no segment gets.
const EMPTY: Slot = Slot { tag: 0, rest: u64::MAX };

impl Slot {
    #[inline]
    fn new(fingerprint: Fingerprint, location: Location) -> Self {
        let rest = (u64::from(fingerprint.extra) << LOCATION_BITS) | location.bits();
        Self { tag: fingerprint.tag, rest }
    }

    #[inline]
    fn is_empty(self) -> bool {
        self.rest == u64::MAX
    }

    #[inline]
    fn is_of(self, fingerprint: Fingerprint) -> bool {
        self.tag == fingerprint.tag && (self.rest >> LOCATION_BITS) as u8 == fingerprint.extra
    }

    #[inline]
    fn location(self) -> Location {
        Location::from_bits(self.rest)
    }
}

#[derive(Debug, Default)]
struct Shard {
    slots: Vec<Slot>,
    homes: usize,
    used: usize,
}

/// The place of every key's newest entry.
#[derive(Debug)]
pub(super) struct Table {
    shards: Vec<Shard>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    /// Makes room in an empty table, so that about this number of keys come without its growing; more and fewer may
    /// come.
    pub(super) fn reserve(&mut self, keys: usize) {
        let homes = homes_for(keys / SHARDS);
        self.shards
            .iter_mut()
            .filter(|shard| shard.used == 0)
            .for_each(|shard| *shard = Shard::with_homes(homes));
    }

    /// Gives back room that was made for more keys than came.
    pub(super) fn fit(&mut self) {
        let wide = |shard: &&mut Shard| shard.homes > homes_for(shard.used) * 9 / 8;
        self.shards.iter_mut().filter(wide).for_each(|shard| shard.spread(homes_for(shard.used), None));
    }

    #[inline]
    pub(super) fn get(&self, fingerprint: Fingerprint) -> Option<Location> {
        let shard = &self.shards[usize::from(fingerprint.shard)];
        shard.find(fingerprint).ok().map(|at| shard.slots[at].location())
    }

    /// Sets the place of a key's newest entry; the place before.
    #[inline]
    pub(super) fn put(&mut self, fingerprint: Fingerprint, location: Location) -> Option<Location> {
        let shard = &mut self.shards[usize::from(fingerprint.shard)];
        let slot = Slot::new(fingerprint, location);
        match shard.find(fingerprint) {
            Ok(at) => Some(std::mem::replace(&mut shard.slots[at], slot).location()),
            Err(at) => {
                shard.insert(at, slot);
                None
            }
        }
    }

    /// Reads the place of a key, without a look at it: work of several keys that begins with this waits for
    /// memory once and not once a key.
    #[inline]
    pub(super) fn touch(&self, fingerprint: Fingerprint) -> u64 {
        let shard = &self.shards[usize::from(fingerprint.shard)];
        shard.slots.get(shard.home(fingerprint.tag)).map_or(0, |slot| slot.tag)
    }

    pub(super) fn remove(&mut self, fingerprint: Fingerprint) {
        let shard = &mut self.shards[usize::from(fingerprint.shard)];
        if let Ok(at) = shard.find(fingerprint) {
            shard.remove(at);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.used).sum()
    }

    pub(super) fn locations(&self) -> impl Iterator<Item = Location> {
        self.shards
            .iter()
            .flat_map(|shard| &shard.slots)
            .filter(|slot| !slot.is_empty())
            .map(|slot| slot.location())
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        let slots: usize = self.shards.iter().map(|shard| shard.slots.capacity()).sum();
        (slots * size_of::<Slot>() + self.shards.capacity() * size_of::<Shard>()) as u64
    }

    /// Appends per shard the number of slots in use and these slots, in order of tags: tag 8, rest 8.
    pub(super) fn dump(&self, out: &mut Vec<u8>) {
        out.reserve(self.len() * size_of::<Slot>() + SHARDS * 8);
        for shard in &self.shards {
            out.extend_from_slice(&(shard.used as u64).to_le_bytes());
            for slot in shard.slots.iter().filter(|slot| !slot.is_empty()) {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&slot.tag.to_le_bytes());
                bytes[8..].copy_from_slice(&slot.rest.to_le_bytes());
                out.extend_from_slice(&bytes);
            }
        }
    }

    /// Reads what [`dump`](Self::dump) wrote; the table and the bytes after it. `place` says where a location is now;
    /// one that is gone is left out. `None` where the bytes are no dump.
    pub(super) fn load(
        mut bytes: &[u8],
        place: impl Fn(Location) -> Option<Location>,
    ) -> Option<(Self, &[u8])> {
        let mut table = Self::new();
        for shard in &mut table.shards {
            let (count, rest) = bytes.split_first_chunk::<8>()?;
            let len = usize::try_from(u64::from_le_bytes(*count)).ok()?.checked_mul(16)?;
            let (dumped, rest) = rest.split_at_checked(len)?;
            bytes = rest;
            shard.load(dumped.as_chunks::<16>().0, &place)?;
        }
        Some((table, bytes))
    }
}

/// Homes of a shard that holds `used` slots and is to take a fifth more.
fn homes_for(used: usize) -> usize {
    (used + used * 3 / 8).max(8)
}

impl Shard {
    #[inline]
    fn home(&self, tag: u64) -> usize {
        ((u128::from(tag) * self.homes as u128) >> 64) as usize
    }

    /// Where the key is, or where it would be inserted.
    #[inline]
    fn find(&self, fingerprint: Fingerprint) -> Result<usize, usize> {
        let from = self.home(fingerprint.tag);
        for (step, slot) in self.slots[from.min(self.slots.len())..].iter().enumerate() {
            if slot.is_empty() || slot.tag > fingerprint.tag {
                return Err(from + step);
            }
            if slot.is_of(fingerprint) {
                return Ok(from + step);
            }
        }
        Err(self.slots.len())
    }

    fn insert(&mut self, at: usize, slot: Slot) {
        if (self.used + 1) * 8 > self.homes * 7 {
            return self.spread(homes_for(self.used + 1), Some(slot));
        }
        let behind = &self.slots[at..];
        let gap = behind.iter().position(|slot| slot.is_empty()).unwrap_or(behind.len());
        if at + gap == self.slots.len() {
            self.extend();
        }
        self.slots.copy_within(at..at + gap, at + 1);
        self.slots[at] = slot;
        self.used += 1;
    }

    /// More slots after the last home: many tags are near the end.
    fn extend(&mut self) {
        self.slots.reserve_exact(SLACK);
        self.slots.resize(self.slots.len() + SLACK, EMPTY);
    }

    /// Spreads all slots, and one more, over an array of another size.
    fn spread(&mut self, homes: usize, mut more: Option<Slot>) {
        let old = std::mem::take(&mut self.slots);
        *self = Self::with_homes(homes);
        let mut next = 0;
        for slot in old.iter().filter(|slot| !slot.is_empty()) {
            if let Some(earlier) = more.take_if(|more| more.tag < slot.tag) {
                next = self.push(earlier, next);
            }
            next = self.push(*slot, next);
        }
        if let Some(last) = more {
            self.push(last, next);
        }
    }

    /// An empty array.
    fn with_homes(homes: usize) -> Self {
        Self { slots: vec![EMPTY; homes + SLACK], homes, used: 0 }
    }

    /// Adds a slot whose tag is at least that of all before it, the last of which is before `next`: at its home
    /// or, where that is taken, at `next`. Answers with the `next` of the following one.
    #[inline]
    fn push(&mut self, slot: Slot, next: usize) -> usize {
        let at = self.home(slot.tag).max(next);
        if at == self.slots.len() {
            self.extend();
        }
        self.slots[at] = slot;
        self.used += 1;
        at + 1
    }

    /// Closes the gap with the slots after it, up to one that is at home.
    fn remove(&mut self, at: usize) {
        let behind = &self.slots[at + 1..];
        let count = behind
            .iter()
            .enumerate()
            .position(|(step, slot)| slot.is_empty() || self.home(slot.tag) == at + 1 + step)
            .unwrap_or(behind.len());
        self.slots.copy_within(at + 1..at + 1 + count, at);
        self.slots[at + count] = EMPTY;
        self.used -= 1;
    }

    fn load(&mut self, dumped: &[[u8; 16]], place: &impl Fn(Location) -> Option<Location>) -> Option<()> {
        if dumped.is_empty() {
            return Some(());
        }
        *self = Self::with_homes(homes_for(dumped.len()));
        let (mut last, mut next) = (0, 0);
        for bytes in dumped {
            let (tag, rest) = bytes.split_at(8);
            let tag = u64::from_le_bytes(tag.try_into().ok()?);
            let rest = u64::from_le_bytes(rest.try_into().ok()?);
            if tag < last || rest == u64::MAX {
                return None;
            }
            last = tag;
            if let Some(location) = place(Location::from_bits(rest)) {
                let rest = (rest >> LOCATION_BITS << LOCATION_BITS) | location.bits();
                next = self.push(Slot { tag, rest }, next);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn location(number: u64) -> Location {
        Location::new((number % 7) as u16, number, 40, false)
    }

    /// Few shards and clustered tags, among them the ends of the range.
    fn fingerprint(seed: u16) -> Fingerprint {
        let tag = match seed % 4 {
            0 => u64::from(seed),
            1 => u64::MAX - u64::from(seed >> 8),
            2 => u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            _ => 1 << 63,
        };
        Fingerprint { shard: (seed % 3) as u8, extra: (seed >> 4) as u8, tag }
    }

    fn check(table: &Table, model: &HashMap<(u8, u8, u64), Location>) {
        assert_eq!(table.len(), model.len());
        assert_eq!(table.locations().count(), model.len());
        for ((shard, extra, tag), location) in model {
            let fingerprint = Fingerprint { shard: *shard, extra: *extra, tag: *tag };
            assert_eq!(table.get(fingerprint), Some(*location));
        }
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_its_dump_is_the_same_one(steps in proptest::collection::vec((any::<u16>(), 0_u8..4), 0..600)) {
            let (mut table, mut model) = (Table::new(), HashMap::new());
            for (number, (seed, what)) in steps.into_iter().enumerate() {
                let fingerprint = fingerprint(seed);
                let id = (fingerprint.shard, fingerprint.extra, fingerprint.tag);
                if what == 0 {
                    table.remove(fingerprint);
                    model.remove(&id);
                } else {
                    let location = location(number as u64);
                    prop_assert_eq!(table.put(fingerprint, location), model.insert(id, location));
                }
                prop_assert_eq!(table.get(fingerprint), model.get(&id).copied());
            }
            check(&table, &model);
            let mut dump = Vec::new();
            table.dump(&mut dump);
            check(&Table::load(&dump, Some).unwrap().0, &model);
            model.retain(|_, location| location.slot() != 3);
            let some = Table::load(&dump, |location| (location.slot() != 3).then_some(location)).unwrap();
            check(&some.0, &model);
            prop_assert!(Table::load(&dump[..dump.len() - 1], Some).is_none());
        }
    }

    #[test]
    fn a_key_costs_at_most_twenty_four_bytes_at_any_size() {
        let (mut table, hash_key) = (Table::new(), HashKey::draw());
        let (mut most, mut sum, mut samples) = (0.0_f64, 0.0, 0);
        for key in 0..300_000_u64 {
            table.put(Fingerprint::of(&hash_key, &key.to_le_bytes()), location(key));
            if key > 50_000 && key.is_multiple_of(1000) {
                let each = table.bytes() as f64 / (key + 1) as f64;
                most = most.max(each);
                sum += each;
                samples += 1;
            }
        }
        let mean = sum / f64::from(samples);
        assert!(most <= 24.0 && mean <= 21.0, "{most} at most, {mean} on average");
    }

    #[test]
    fn fingerprints_never_change() {
        let fingerprint = Fingerprint::of(&HashKey::from_bytes(*b"sixteen bytes .."), b"a key");
        assert_eq!((fingerprint.shard, fingerprint.extra, fingerprint.tag), GOLDEN, "they are on disk");
    }

    const GOLDEN: (u8, u8, u64) = (51, 183, 1_628_292_036_507_661_490);
}
