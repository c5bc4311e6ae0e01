//! Groups and their sums, one after the other in one array of words.
//!
//! A group stands whole in one place: a head, the words of its key, a word for each sum. So a row costs one miss of the
//! cache, and those of many rows overlap, as their places are known before they are looked at. Places are found by open
//! addressing with linear probing.
//!
//! The head: bit 0 is set, bits 1 to 8 say which columns of the key are null, bits 9 to 15 which sums have met a value,
//! and the other 48 are of the hash.

use std::hash::{BuildHasher as _, Hasher as _};
use std::hint::black_box;

use arrow_buffer::NullBuffer;
use foldhash::quality::RandomState;

/// Columns of a key, and sums.
pub(super) const MAX_KEYS: usize = 8;
pub(super) const MAX_SUMS: usize = 7;

const TAKEN: u64 = 1;
const FIRST_SUM: u32 = 9;
/// What tells groups apart: all but which sums have met a value.
const IDENTITY: u64 = (!0 << 16) | ((1 << FIRST_SUM) - 1);

/// Rows whose places are looked at together.
const TOGETHER: usize = 64;

/// Places of an empty table.
const LEAST: usize = 1 << 10;

/// What a sum adds for each row.
pub(super) enum Addend<'a> {
    One,
    /// Numbers, which wrap around; which of them are there.
    Signed(&'a [i64], Option<&'a NullBuffer>),
    Unsigned(&'a [u64], Option<&'a NullBuffer>),
    /// One for each row that has a value.
    Present(&'a NullBuffer),
}

pub(super) struct Groups {
    words: Vec<u64>,
    keys: usize,
    sums: usize,
    /// Places, a power of two.
    places: usize,
    len: usize,
    hashes: RandomState,
    /// Where the groups of the last rows stand.
    found: Vec<usize>,
}

impl Groups {
    /// Keys of so many words.
    pub(super) fn new(keys: usize, sums: usize) -> Self {
        let mut groups = Self {
            words: Vec::new(),
            keys,
            sums,
            places: LEAST,
            len: 0,
            hashes: RandomState::default(),
            found: Vec::new(),
        };
        groups.clear();
        groups
    }

    fn stride(&self) -> usize {
        1 + self.keys + self.sums
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that it may have after this many more rows.
    pub(super) fn bytes_with(&self, rows: usize) -> usize {
        places_for(self.len + rows).max(self.places) * self.stride() * size_of::<u64>()
    }

    /// Forgets all groups.
    pub(super) fn clear(&mut self) {
        self.places = LEAST;
        self.len = 0;
        self.words = zeros(self.places * self.stride());
    }

    /// Adds rows. `keys` has the words of the key of each row, one row after the other, and `nulls` a bit for each of its
    /// columns that is null.
    pub(super) fn add(&mut self, keys: &[u64], nulls: &[u8], sums: &[Addend<'_>]) {
        self.grow(places_for(self.len + nulls.len()));
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        for (keys, nulls) in keys.chunks(TOGETHER * self.keys).zip(nulls.chunks(TOGETHER)) {
            self.find(keys, nulls, &mut found);
        }
        for (sum, addend) in sums.iter().enumerate() {
            self.sum(sum, addend, &found);
        }
        self.found = found;
    }

    /// Finds the groups of some rows, or makes them.
    fn find(&mut self, keys: &[u64], nulls: &[u8], found: &mut Vec<usize>) {
        let (stride, shift) = (self.stride(), self.shift());
        let (mut heads, mut seen) = ([0; TOGETHER], [0; TOGETHER]);
        for ((head, key), nulls) in heads.iter_mut().zip(keys.chunks_exact(self.keys)).zip(nulls) {
            let mut hasher = self.hashes.build_hasher();
            key.iter().for_each(|word| hasher.write_u64(*word));
            hasher.write_u8(*nulls);
            *head = (hasher.finish() & (!0 << 16)) | (u64::from(*nulls) << 1) | TAKEN;
        }
        // Loads that do not wait for each other.
        for (seen, head) in seen.iter_mut().zip(&heads).take(nulls.len()) {
            *seen = self.words[(*head >> shift) as usize * stride];
        }
        for (row, key) in keys.chunks_exact(self.keys).enumerate() {
            let head = heads[row];
            let mut place = (head >> shift) as usize;
            // An earlier one of these rows may have taken it since.
            let mut there = if seen[row] == 0 { self.words[place * stride] } else { seen[row] };
            let at = loop {
                let at = place * stride;
                if there == 0 {
                    self.words[at] = head;
                    self.words[at + 1..][..self.keys].copy_from_slice(key);
                    self.len += 1;
                    break at;
                }
                // Word by word: keys are too short for a call that compares memory.
                let words = &self.words[at + 1..][..key.len()];
                if there & IDENTITY == head && words.iter().zip(key).all(|(a, b)| a == b) {
                    break at;
                }
                place = (place + 1) & (self.places - 1);
                there = self.words[place * stride];
            };
            found.push(at);
        }
    }

    fn sum(&mut self, sum: usize, addend: &Addend<'_>, found: &[usize]) {
        let (word, met) = (1 + self.keys + sum, 1 << (FIRST_SUM + sum as u32));
        let words = &mut self.words;
        let mut add = |at: usize, value: u64| {
            words[at] |= met;
            words[at + word] = words[at + word].wrapping_add(value);
        };
        match addend {
            Addend::One => found.iter().for_each(|at| add(*at, 1)),
            Addend::Signed(values, present) => {
                each(*present, found.len(), |row| add(found[row], values[row].cast_unsigned()));
            }
            Addend::Unsigned(values, present) => {
                each(*present, found.len(), |row| add(found[row], values[row]))
            }
            Addend::Present(present) => each(Some(present), found.len(), |row| add(found[row], 1)),
        }
    }

    /// By how much a head is shifted for its place: the highest bits.
    fn shift(&self) -> u32 {
        u64::BITS - self.places.trailing_zeros()
    }

    fn grow(&mut self, places: usize) {
        if places <= self.places {
            return;
        }
        let stride = self.stride();
        let before = std::mem::replace(&mut self.words, zeros(places * stride));
        self.places = places;
        let shift = self.shift();
        for group in before.chunks_exact(stride).filter(|group| group[0] != 0) {
            let mut place = (group[0] >> shift) as usize;
            while self.words[place * stride] != 0 {
                place = (place + 1) & (places - 1);
            }
            self.words[place * stride..][..stride].copy_from_slice(group);
        }
    }

    /// The next groups from a place on, at most this many, and the place behind them.
    pub(super) fn from(&self, place: usize, most: usize) -> (Vec<Group<'_>>, usize) {
        let mut groups = Vec::with_capacity(most.min(self.len));
        let mut next = place;
        for group in self.words.chunks_exact(self.stride()).skip(place) {
            if groups.len() == most {
                break;
            }
            next += 1;
            if group[0] != 0 {
                let (head, words) = (group[0], &group[1..]);
                let (key, sums) = words.split_at(self.keys);
                groups.push(Group { head, key, sums });
            }
        }
        (groups, next)
    }
}

/// One of [`Groups`].
pub(super) struct Group<'a> {
    head: u64,
    pub(super) key: &'a [u64],
    sums: &'a [u64],
}

impl Group<'_> {
    /// Whether a column of the key is null.
    pub(super) fn is_null(&self, column: usize) -> bool {
        (self.head >> (1 + column)) & 1 == 1
    }

    /// A sum; `None`: it has met no value.
    pub(super) fn sum(&self, sum: usize) -> Option<u64> {
        ((self.head >> (FIRST_SUM + sum as u32)) & 1 == 1).then(|| self.sums[sum])
    }
}

/// Calls with each row that has a value.
pub(super) fn each(present: Option<&NullBuffer>, rows: usize, call: impl FnMut(usize)) {
    match present {
        Some(present) => present.valid_indices().for_each(call),
        None => (0..rows).for_each(call),
    }
}

/// Words that are there. Memory that the system only promises to be zero is shared until it is written to; as it is read first
/// here, each page would be mapped twice, and the other threads interrupted for it.
fn zeros(words: usize) -> Vec<u64> {
    const PAGE: usize = 4096 / size_of::<u64>();
    let mut zeros = vec![0; words];
    zeros.chunks_mut(PAGE).for_each(|page| page[0] = black_box(0));
    zeros
}

/// Places for so many groups: a third of them or more stays free.
fn places_for(groups: usize) -> usize {
    (groups * 3 / 2).next_power_of_two().max(LEAST)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Row = (u8, bool, u16, Option<u64>);
    type Key = (u64, u64, bool);
    type Sums = (u64, Option<u64>, Option<u64>);

    proptest! {
        #[test]
        fn groups_are_those_of_a_map(batches in prop::collection::vec(prop::collection::vec(any::<Row>(), 0..400), 1..12)) {
            let mut groups = Groups::new(2, 3);
            let mut expected: BTreeMap<Key, Sums> = BTreeMap::new();
            for rows in &batches {
                let keys: Vec<u64> = rows.iter().flat_map(|row| [u64::from(row.0), u64::from(row.2 % 32)]).collect();
                let nulls: Vec<u8> = rows.iter().map(|row| u8::from(row.1) << 1).collect();
                let values: Vec<u64> = rows.iter().map(|row| row.3.unwrap_or(7)).collect();
                let present: NullBuffer = rows.iter().map(|row| row.3.is_some()).collect();
                let sums = [Addend::One, Addend::Unsigned(&values, Some(&present)), Addend::Present(&present)];
                groups.add(&keys, &nulls, &sums);
                for row in rows {
                    let group = expected.entry((row.0.into(), (row.2 % 32).into(), row.1)).or_default();
                    group.0 += 1;
                    if let Some(value) = row.3 {
                        group.1 = Some(group.1.unwrap_or(0).wrapping_add(value));
                        group.2 = Some(group.2.unwrap_or(0) + 1);
                    }
                }
            }
            prop_assert_eq!(groups.len(), expected.len());
            let mut found = BTreeMap::new();
            let mut place = 0;
            loop {
                let (some, next) = groups.from(place, 100);
                if some.is_empty() {
                    break;
                }
                for group in some {
                    prop_assert!(!group.is_null(0));
                    let key = (group.key[0], group.key[1], group.is_null(1));
                    let sums = (group.sum(0).unwrap(), group.sum(1), group.sum(2));
                    prop_assert!(found.insert(key, sums).is_none(), "{:?} stands twice", key);
                }
                place = next;
            }
            prop_assert_eq!(found, expected);
        }
    }
}
