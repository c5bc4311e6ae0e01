//! The index of *numbered* keys: arrays of places, found by number, eight bytes a key.
//!
//! A numbered key is nine bytes: the kind [`KIND`], a space and a number in it, big-endian. Window groups have such
//! keys: their numbers are dense, so a number is its own place in an array, no hash is kept and nothing is compared.
//!
//! Numbers are in pages of 1,024. A page with few keys is a sorted list, a fuller one an array, so that numbers which are
//! not dense cost memory per key and not per page of nothing.

use std::collections::BTreeMap;

use super::location::{LOCATION_BITS, Location};

/// First byte of numbered keys. Persisted, do not change.
const KIND: u8 = 1;

/// Numbers of a page. Persisted in index files, do not change.
const PAGE: usize = 1024;

/// Keys up to which a page is a list: its 16 bytes a key are then a quarter of the array.
const FEW: usize = 128;

/// No entry is here: no location is so large.
const EMPTY: u64 = u64::MAX;

/// A numbered key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    space: u32,
    number: u32,
}

impl Number {
    /// What a key represents, if it is a numbered one.
    #[inline]
    pub(super) fn of(key: &[u8]) -> Option<Self> {
        let [KIND, a, b, c, d, rest @ ..] = key else { return None };
        let number = u32::from_be_bytes(rest.try_into().ok()?);
        Some(Self { space: u32::from_be_bytes([*a, *b, *c, *d]), number })
    }

    fn page(self) -> (u32, u32) {
        (self.space, self.number / PAGE as u32)
    }

    fn place(self) -> u16 {
        (self.number % PAGE as u32) as u16
    }
}

#[derive(Debug)]
enum Page {
    /// Places and locations, ascending.
    Few(Vec<(u16, u64)>),
    Many {
        locations: Box<[u64]>,
        used: usize,
    },
}

impl Page {
    /// The page with these places and locations, ascending.
    fn of(list: Vec<(u16, u64)>) -> Self {
        if list.len() <= FEW {
            return Self::Few(list);
        }
        let mut locations = vec![EMPTY; PAGE].into_boxed_slice();
        list.iter().for_each(|(place, bits)| locations[usize::from(*place)] = *bits);
        Self::Many { used: list.len(), locations }
    }

    fn get(&self, place: u16) -> Option<u64> {
        match self {
            Self::Few(list) => {
                list.binary_search_by_key(&place, |(other, _)| *other).ok().map(|at| list[at].1)
            }
            Self::Many { locations, .. } => Some(locations[usize::from(place)]).filter(|bits| *bits != EMPTY),
        }
    }

    fn put(&mut self, place: u16, bits: u64) -> Option<u64> {
        match self {
            Self::Few(list) => match list.binary_search_by_key(&place, |(other, _)| *other) {
                Ok(at) => Some(std::mem::replace(&mut list[at].1, bits)),
                Err(at) => {
                    list.insert(at, (place, bits));
                    if list.len() > FEW {
                        *self = Self::of(std::mem::take(list));
                    }
                    None
                }
            },
            Self::Many { locations, used } => {
                let before = std::mem::replace(&mut locations[usize::from(place)], bits);
                *used += usize::from(before == EMPTY);
                Some(before).filter(|bits| *bits != EMPTY)
            }
        }
    }

    /// Whether the page has keys left.
    fn remove(&mut self, place: u16) -> bool {
        match self {
            Self::Few(list) => {
                list.retain(|(other, _)| *other != place);
                !list.is_empty()
            }
            Self::Many { locations, used } => {
                let before = std::mem::replace(&mut locations[usize::from(place)], EMPTY);
                *used -= usize::from(before != EMPTY);
                if *used <= FEW / 2 {
                    *self = Self::Few(self.entries().collect());
                }
                true
            }
        }
    }

    fn entries(&self) -> Box<dyn Iterator<Item = (u16, u64)> + '_> {
        match self {
            Self::Few(list) => Box::new(list.iter().copied()),
            Self::Many { locations, .. } => {
                let all = locations.iter().enumerate().map(|(place, bits)| (place as u16, *bits));
                Box::new(all.filter(|(_, bits)| *bits != EMPTY))
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Few(list) => list.capacity() * size_of::<(u16, u64)>(),
            Self::Many { locations, .. } => size_of_val(&locations[..]),
        }
    }
}

/// The place of every numbered key's newest entry.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pages: BTreeMap<(u32, u32), Page>,
    count: usize,
}

impl Numbers {
    #[inline]
    pub(super) fn get(&self, number: Number) -> Option<Location> {
        self.pages.get(&number.page())?.get(number.place()).map(Location::from_bits)
    }

    /// Sets the place of a key's newest entry; the place before.
    pub(super) fn put(&mut self, number: Number, location: Location) -> Option<Location> {
        let page = self.pages.entry(number.page()).or_insert_with(|| Page::Few(Vec::new()));
        let before = page.put(number.place(), location.bits());
        self.count += usize::from(before.is_none());
        before.map(Location::from_bits)
    }

    pub(super) fn remove(&mut self, number: Number) {
        if self.get(number).is_none() {
            return;
        }
        self.count -= 1;
        if let Some(page) = self.pages.get_mut(&number.page())
            && !page.remove(number.place())
        {
            self.pages.remove(&number.page());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn locations(&self) -> impl Iterator<Item = Location> {
        self.pages.values().flat_map(Page::entries).map(|(_, bits)| Location::from_bits(bits))
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        // A B-tree is at least half full.
        let directory = self.pages.len() * (size_of::<((u32, u32), Page)>() * 2);
        (directory + self.pages.values().map(Page::bytes).sum::<usize>()) as u64
    }

    /// Appends the number of pages and per page, ascending: space 4, page 4, count 2, then per key place 2, location 8.
    pub(super) fn dump(&self, out: &mut Vec<u8>) {
        out.reserve(8 + self.pages.len() * 10 + self.count * 10);
        out.extend_from_slice(&(self.pages.len() as u64).to_le_bytes());
        for ((space, number), page) in &self.pages {
            out.extend_from_slice(&space.to_le_bytes());
            out.extend_from_slice(&number.to_le_bytes());
            let start = out.len();
            out.extend_from_slice(&[0; 2]);
            let mut count = 0_u16;
            for (place, bits) in page.entries() {
                out.extend_from_slice(&place.to_le_bytes());
                out.extend_from_slice(&bits.to_le_bytes());
                count += 1;
            }
            out[start..start + 2].copy_from_slice(&count.to_le_bytes());
        }
    }

    /// Reads what [`dump`](Self::dump) wrote, which is all of `bytes`. `place` says where a location is now; one that is
    /// gone is left out. `None` where the bytes are no dump.
    pub(super) fn load(bytes: &[u8], place: impl Fn(Location) -> Option<Location>) -> Option<Self> {
        let (pages, mut bytes) = bytes.split_first_chunk::<8>()?;
        let mut numbers = Self::default();
        for _ in 0..u64::from_le_bytes(*pages) {
            let (head, rest) = bytes.split_first_chunk::<10>()?;
            let space = u32::from_le_bytes(head[..4].try_into().ok()?);
            let page = u32::from_le_bytes(head[4..8].try_into().ok()?);
            let len = usize::from(u16::from_le_bytes([head[8], head[9]])) * 10;
            let (entries, rest) = rest.split_at_checked(len)?;
            bytes = rest;
            let mut list = Vec::with_capacity(entries.len() / 10);
            for entry in entries.as_chunks::<10>().0 {
                let [low, high, bits @ ..] = entry;
                let at = u16::from_le_bytes([*low, *high]);
                let bits = u64::from_le_bytes(*bits);
                let is_behind = list.last().is_none_or(|(before, _)| *before < at);
                if usize::from(at) >= PAGE || !is_behind || bits >> LOCATION_BITS != 0 {
                    return None;
                }
                if let Some(location) = place(Location::from_bits(bits)) {
                    list.push((at, location.bits()));
                }
            }
            numbers.count += list.len();
            // Pages without keys do not exist.
            if !list.is_empty() && numbers.pages.insert((space, page), Page::of(list)).is_some() {
                return None;
            }
        }
        bytes.is_empty().then_some(numbers)
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

    fn check(numbers: &Numbers, model: &HashMap<(u32, u32), Location>) {
        assert_eq!(numbers.len(), model.len());
        assert_eq!(numbers.locations().count(), model.len());
        for ((space, number), location) in model {
            assert_eq!(numbers.get(Number { space: *space, number: *number }), Some(*location));
        }
    }

    #[test]
    fn only_keys_of_the_kind_and_length_are_numbered() {
        assert_eq!(Number::of(&[1, 0, 0, 0, 2, 0, 0, 1, 3]), Some(Number { space: 2, number: 259 }));
        assert_eq!(Number::of(&[2, 0, 0, 0, 2, 0, 0, 1, 3]), None);
        assert_eq!(Number::of(&[1, 0, 0, 0, 2, 0, 0, 1]), None);
        assert_eq!(Number::of(&[1, 0, 0, 0, 2, 0, 0, 1, 3, 0]), None);
        assert_eq!(Number::of(&[]), None);
    }

    proptest! {
        /// Ranges of numbers are put and removed, so that pages fill and empty again.
        #[test]
        fn it_is_a_map_and_its_dump_is_the_same_one(
            steps in proptest::collection::vec((0_u32..2, 0_u32..2_500, 1_u32..400, any::<bool>()), 0..40),
        ) {
            let (mut numbers, mut model) = (Numbers::default(), HashMap::new());
            for (step, (space, from, count, is_put)) in steps.into_iter().enumerate() {
                // Some at the end of all numbers.
                let from = if from < 300 { u32::MAX - from } else { from };
                for number in (0..count).filter_map(|place| from.checked_add(place)) {
                    let key = Number { space, number };
                    if is_put {
                        let location = location(step as u64 * 1000 + u64::from(number % 1000));
                        prop_assert_eq!(numbers.put(key, location), model.insert((space, number), location));
                    } else {
                        numbers.remove(key);
                        model.remove(&(space, number));
                    }
                }
            }
            check(&numbers, &model);
            let mut dump = Vec::new();
            numbers.dump(&mut dump);
            check(&Numbers::load(&dump, Some).unwrap(), &model);
            model.retain(|_, location| location.slot() != 3);
            let some = Numbers::load(&dump, |location| (location.slot() != 3).then_some(location)).unwrap();
            check(&some, &model);
            prop_assert!(Numbers::load(&dump[..dump.len() - 1], Some).is_none());
        }
    }

    #[test]
    fn a_dense_key_costs_little_more_than_eight_bytes() {
        let mut numbers = Numbers::default();
        for number in 0..300_000 {
            numbers.put(Number { space: 5, number }, location(u64::from(number)));
        }
        let each = numbers.bytes() as f64 / 300_000.0;
        assert!(each <= 8.2, "{each}");
    }
}
