//! Groups and their sums, one after the other in one array of words.
//!
//! A group stands whole in one place: a head, the words of its key, a word for each sum. So a row costs one miss of the
//! cache, and those of many rows overlap, as their places are known before they are looked at. Places are found by open
//! addressing with linear probing.
//!
//! The head: bit 0 is set, bits 1 to 8 say which columns of the key are null, bits 9 to 15 which sums have met a value,
//! and the other 48 are of the hash.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use arrow_array::{Array as _, Int64Array, UInt64Array};
use arrow_buffer::NullBuffer;
use foldhash::quality::RandomState;

use super::TOGETHER;
use super::spare::Spare;

/// Columns of a key, the words that a column may have, and sums.
pub(super) const MAX_KEYS: usize = 8;
pub(super) const MAX_COLUMN_WORDS: usize = 2;
pub(super) const MAX_SUMS: usize = 7;

const TAKEN: u64 = 1;
const FIRST_SUM: u32 = 9;
/// What tells groups apart: all but which sums have met a value.
const IDENTITY: u64 = (!0 << 16) | ((1 << FIRST_SUM) - 1);

/// Places of an empty table.
const LEAST: usize = 1 << 10;

/// What a sum adds for each row.
pub(super) enum Addend {
    One,
    /// Numbers, which wrap around.
    Signed(Int64Array),
    Unsigned(UInt64Array),
    /// One for each row that has a value.
    Present(NullBuffer),
}

pub(super) struct Groups {
    words: Vec<u64>,
    keys: usize,
    sums: usize,
    /// Fewer than 2^32.
    places: usize,
    len: usize,
    hashes: RandomState,
    /// Where the groups of the last rows stand.
    found: Vec<usize>,
    spare: Arc<Spare>,
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.spare.give(std::mem::take(&mut self.words));
    }
}

impl Groups {
    /// Keys of so many words. Groups of one table can be [merged](Self::merge) into another of the same hashes.
    pub(super) fn new(keys: usize, sums: usize, hashes: RandomState, spare: Arc<Spare>) -> Self {
        let mut groups =
            Self { words: Vec::new(), keys, sums, places: LEAST, len: 0, hashes, found: Vec::new(), spare };
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
        self.places_with(rows) * self.stride() * size_of::<u64>()
    }

    /// Forgets all groups.
    pub(super) fn clear(&mut self) {
        self.places = LEAST;
        self.len = 0;
        self.spare.give(std::mem::take(&mut self.words));
        self.words = self.spare.take(self.places * self.stride());
    }

    /// Adds rows. `keys` has the words of the key of each row, one row after the other, and `nulls` a bit for each of its
    /// columns that is null.
    pub(super) fn add(&mut self, keys: &[u64], nulls: &[u8], sums: &[Addend]) {
        self.reserve(nulls.len());
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let mut heads = [0; TOGETHER];
        for (keys, nulls) in keys.chunks(TOGETHER * self.keys).zip(nulls.chunks(TOGETHER)) {
            for ((head, key), nulls) in heads.iter_mut().zip(keys.chunks_exact(self.keys)).zip(nulls) {
                *head = self.head(key, *nulls);
            }
            self.find(keys, &heads[..nulls.len()], &mut found);
        }
        for (sum, addend) in sums.iter().enumerate() {
            self.sum(sum, addend, &found);
        }
        self.found = found;
    }

    /// Gives texts in keys other numbers. `columns` are those that have texts, each with its word of the key.
    ///
    /// After that groups do not stand where they would be looked for: they can be merged into another table, and cleared.
    pub(super) fn rename(&mut self, columns: &[(usize, usize)], numbers: &[u32]) {
        let mut words = std::mem::take(&mut self.words);
        for group in words.chunks_exact_mut(self.stride()).filter(|group| group[0] != 0) {
            let nulls = (group[0] >> 1) as u8;
            for (column, word) in columns {
                if nulls >> column & 1 == 0 {
                    let number = &mut group[1 + word];
                    *number = numbers[*number as usize].into();
                }
            }
            group[0] = self.head(&group[1..][..self.keys], nulls) | (group[0] & !IDENTITY);
        }
        self.words = words;
    }

    /// Where groups stand, divided into parts by their hashes. Tables of the same hashes have a group in the same part.
    pub(super) fn parts(&self, parts: usize) -> Vec<Vec<u32>> {
        let mut divided: Vec<Vec<u32>> = vec![Vec::with_capacity(self.len / parts * 9 / 8); parts];
        for (place, group) in self.words.chunks_exact(self.stride()).enumerate() {
            if group[0] != 0 {
                // Not by the highest bits, which are the place: parts would fill one end of their tables.
                let bits = (group[0] >> 16) as usize & 0xffff;
                divided[(bits * parts) >> 16].push(place as u32);
            }
        }
        divided
    }

    /// Makes room for so many more.
    pub(super) fn reserve(&mut self, more: usize) {
        let places = self.places_with(more);
        if places == self.places {
            return;
        }
        let stride = self.stride();
        let before = std::mem::replace(&mut self.words, self.spare.take(places * stride));
        self.places = places;
        for group in before.chunks_exact(stride).filter(|group| group[0] != 0) {
            let mut place = self.home(group[0]);
            while self.words[place * stride] != 0 {
                place = self.behind(place);
            }
            self.words[place * stride..][..stride].copy_from_slice(group);
        }
        self.spare.give(before);
    }

    /// Places that it has with so many more: a third of them or more stays free, and a table that grows does so by half.
    fn places_with(&self, more: usize) -> usize {
        let least = (self.len + more) * 3 / 2;
        if least <= self.places { self.places } else { least.max(self.places * 3 / 2) }
    }

    /// The place of a group if nothing stands there: by the highest bits of its hash.
    fn home(&self, head: u64) -> usize {
        // The product is below 2^64 as there are fewer than 2^32 places.
        (((head >> 32) * self.places as u64) >> 32) as usize
    }

    fn behind(&self, place: usize) -> usize {
        if place + 1 == self.places { 0 } else { place + 1 }
    }

    /// Adds what another table has at these places.
    ///
    /// Where that is much, room has to be [reserved](Self::reserve) for all of it: groups come in the order of their
    /// hashes, and would fill one end of a table that is too small for them.
    pub(super) fn merge(&mut self, other: &Self, places: &[u32]) {
        let stride = self.stride();
        self.reserve(places.len());
        let mut keys = [0; TOGETHER * MAX_KEYS * MAX_COLUMN_WORDS];
        let (mut heads, mut found) = ([0; TOGETHER], std::mem::take(&mut self.found));
        for places in places.chunks(TOGETHER) {
            let groups = places.iter().map(|place| &other.words[*place as usize * stride..][..stride]);
            for ((head, key), group) in
                heads.iter_mut().zip(keys.chunks_exact_mut(self.keys)).zip(groups.clone())
            {
                *head = group[0] & IDENTITY;
                key.copy_from_slice(&group[1..][..self.keys]);
            }
            found.clear();
            self.find(&keys[..places.len() * self.keys], &heads[..places.len()], &mut found);
            for (at, group) in found.iter().zip(groups) {
                let own = &mut self.words[*at..][..stride];
                own[0] |= group[0];
                // A sum that has met no value is 0.
                for (own, other) in own.iter_mut().zip(group).skip(1 + self.keys) {
                    *own = own.wrapping_add(*other);
                }
            }
        }
        self.found = found;
    }

    fn head(&self, key: &[u64], nulls: u8) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        key.iter().for_each(|word| hasher.write_u64(*word));
        hasher.write_u8(nulls);
        (hasher.finish() & (!0 << 16)) | (u64::from(nulls) << 1) | TAKEN
    }

    /// Finds the groups of at most [`TOGETHER`] keys, or makes them.
    fn find(&mut self, keys: &[u64], heads: &[u64], found: &mut Vec<usize>) {
        let stride = self.stride();
        let mut seen = [0; TOGETHER];
        // Loads that do not wait for each other.
        for (seen, head) in seen.iter_mut().zip(heads) {
            *seen = self.words[self.home(*head) * stride];
        }
        for (row, key) in keys.chunks_exact(self.keys).enumerate() {
            let head = heads[row];
            let mut place = self.home(head);
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
                place = self.behind(place);
                there = self.words[place * stride];
            };
            found.push(at);
        }
    }

    fn sum(&mut self, sum: usize, addend: &Addend, found: &[usize]) {
        let (word, met) = (1 + self.keys + sum, 1 << (FIRST_SUM + sum as u32));
        let words = &mut self.words;
        let mut add = |at: usize, value: u64| {
            words[at] |= met;
            words[at + word] = words[at + word].wrapping_add(value);
        };
        match addend {
            Addend::One => found.iter().for_each(|at| add(*at, 1)),
            Addend::Signed(numbers) => {
                let values = numbers.values();
                each(numbers.nulls(), found.len(), |row| add(found[row], values[row].cast_unsigned()));
            }
            Addend::Unsigned(numbers) => {
                let values = numbers.values();
                each(numbers.nulls(), found.len(), |row| add(found[row], values[row]));
            }
            Addend::Present(present) => each(Some(present), found.len(), |row| add(found[row], 1)),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Row = (u8, Option<u8>, Option<u64>);
    type Key = (u64, Option<u64>);
    type Sums = (u64, Option<u64>, Option<u64>);

    /// Numbers that a table may have for those of another.
    const OTHERS: [u32; 16] = [9, 14, 2, 0, 15, 3, 8, 1, 13, 7, 10, 4, 11, 6, 12, 5];

    /// Adds rows whose keys have these numbers.
    fn add(groups: &mut Groups, rows: &[Row], number: impl Fn(u8) -> u64) {
        let number = |of: u8| number(of % 16);
        let keys: Vec<u64> = rows.iter().flat_map(|row| [number(row.0), row.1.map_or(0, &number)]).collect();
        let nulls: Vec<u8> = rows.iter().map(|row| u8::from(row.1.is_none()) << 1).collect();
        let values: UInt64Array = rows.iter().map(|row| row.2).collect();
        let present = rows.iter().map(|row| row.2.is_some()).collect();
        groups.add(&keys, &nulls, &[Addend::One, Addend::Unsigned(values), Addend::Present(present)]);
    }

    fn found(groups: &Groups) -> BTreeMap<Key, Sums> {
        let mut found = BTreeMap::new();
        let mut place = 0;
        loop {
            let (some, next) = groups.from(place, 100);
            if some.is_empty() {
                return found;
            }
            for group in some {
                assert!(!group.is_null(0));
                let key = (group.key[0], (!group.is_null(1)).then_some(group.key[1]));
                let sums = (group.sum(0).unwrap(), group.sum(1), group.sum(2));
                assert!(found.insert(key, sums).is_none(), "{key:?} stands twice");
            }
            place = next;
        }
    }

    fn expected<'a>(rows: impl IntoIterator<Item = &'a Row>) -> BTreeMap<Key, Sums> {
        let mut expected: BTreeMap<Key, Sums> = BTreeMap::new();
        for row in rows {
            let group = expected.entry(((row.0 % 16).into(), row.1.map(|n| (n % 16).into()))).or_default();
            group.0 += 1;
            if let Some(value) = row.2 {
                group.1 = Some(group.1.unwrap_or(0).wrapping_add(value));
                group.2 = Some(group.2.unwrap_or(0) + 1);
            }
        }
        expected
    }

    fn batches() -> impl Strategy<Value = Vec<Vec<Row>>> {
        prop::collection::vec(prop::collection::vec(any::<Row>(), 0..400), 1..12)
    }

    proptest! {
        #[test]
        fn groups_are_those_of_a_map(batches in batches()) {
            let mut groups = Groups::new(2, 3, RandomState::default(), Arc::default());
            batches.iter().for_each(|rows| add(&mut groups, rows, u64::from));
            let expected = expected(batches.iter().flatten());
            prop_assert_eq!(groups.len(), expected.len());
            prop_assert_eq!(found(&groups), expected);
        }

        #[test]
        fn groups_of_several_tables_come_together(batches in batches(), parts in 1..4_usize) {
            let (hashes, spare) = (RandomState::default(), Arc::new(Spare::default()));
            let table = || Groups::new(2, 3, hashes.clone(), Arc::clone(&spare));
            let mut together: Vec<Groups> = (0..parts).map(|_| table()).collect();
            for (number, rows) in batches.iter().enumerate() {
                let mut groups = table();
                if number % 2 == 0 {
                    add(&mut groups, rows, u64::from);
                } else {
                    let other = |of: u8| OTHERS.iter().position(|own| *own == u32::from(of)).unwrap() as u64;
                    add(&mut groups, rows, other);
                    groups.rename(&[(0, 0), (1, 1)], &OTHERS);
                }
                for (part, places) in together.iter_mut().zip(groups.parts(parts)) {
                    part.merge(&groups, &places);
                }
            }
            let mut all = BTreeMap::new();
            for groups in together.iter().map(found) {
                let before = all.len() + groups.len();
                all.extend(groups);
                prop_assert_eq!(all.len(), before, "a group is in two parts");
            }
            prop_assert_eq!(all, expected(batches.iter().flatten()));
        }
    }
}
