//! Groups and their sums, one after the other in one array of words.
//!
//! A group is whole in one place: a head, the words of its key, a word for each sum. So a row costs one miss of the
//! cache, and those of many rows overlap, as their places are known before they are looked at. Places are found by open
//! addressing with linear probing.
//!
//! The head: bit 0 is set, bits 1 to 8 say which columns of the key are null, bits 9 to 15 which sums have met a value,
//! and the other 48 are of the hash.
//!
//! A row looks as a group of its own: a *record*. So rows and groups of other tables are added in the same way.

use std::hash::{BuildHasher as _, Hasher as _};
use std::hint::black_box;
use std::iter::repeat_n;
use std::sync::Arc;

use arrow_array::{Array as _, Int64Array, UInt64Array};
use arrow_buffer::NullBuffer;
use datafusion::arrow::compute::{max, min};
use foldhash::quality::RandomState;

use super::TOGETHER;
use super::spare::Spare;

/// Columns of a key, the words that a column may have, and sums.
pub(super) const MAX_KEYS: usize = 8;
pub(super) const MAX_COLUMN_WORDS: usize = 2;
pub(super) const MAX_SUMS: usize = 7;

pub(super) const TAKEN: u64 = 1;
const FIRST_SUM: u32 = 9;
/// The bits that distinguish groups: all but those of sums that have met a value.
pub(super) const IDENTITY: u64 = (!0 << 16) | ((1 << FIRST_SUM) - 1);

/// Places of a table that has its first group.
const LEAST: usize = 1 << 7;

/// What a sum adds for each row.
pub(super) enum Addend {
    One,
    /// Numbers; [`Addend::most`] says whether sums of them may wrap around.
    Signed(Int64Array),
    Unsigned(UInt64Array),
    /// One for each row that has a value.
    Present(NullBuffer),
}

impl Addend {
    /// What no sum of rows of this batch is beyond, above or below zero; without a bound where that is certain anyway.
    pub(super) fn most(&self) -> u128 {
        match self {
            Self::One | Self::Present(_) => 0,
            Self::Signed(numbers) => {
                let ends = [min(numbers), max(numbers)].into_iter().flatten();
                let largest = ends.map(i64::unsigned_abs).max().unwrap_or(0);
                u128::from(largest) * numbers.len() as u128
            }
            Self::Unsigned(numbers) => u128::from(max(numbers).unwrap_or(0)) * numbers.len() as u128,
        }
    }
}

/// Words that a record may have. Code is made for each, so that records are moved and compared without loops.
const STRIDES: [usize; 8] = [2, 3, 4, 5, 6, 8, 12, 24];
const _: () = assert!(1 + MAX_KEYS * MAX_COLUMN_WORDS + MAX_SUMS <= STRIDES[STRIDES.len() - 1]);

/// Calls a method that is made for each of [`STRIDES`] with records as arrays.
macro_rules! by_stride {
    ($stride:expr, $self:ident.$call:ident($records:ident $(, $more:expr)*)) => {
        by_stride!($stride, $self.$call($records.as_chunks() $(, $more)*))
    };
    ($stride:expr, $self:ident.$call:ident($records:ident.$chunks:ident() $(, $more:expr)*)) => {
        match $stride {
            2 => $self.$call($records.$chunks::<2>().0 $(, $more)*),
            3 => $self.$call($records.$chunks::<3>().0 $(, $more)*),
            4 => $self.$call($records.$chunks::<4>().0 $(, $more)*),
            5 => $self.$call($records.$chunks::<5>().0 $(, $more)*),
            6 => $self.$call($records.$chunks::<6>().0 $(, $more)*),
            8 => $self.$call($records.$chunks::<8>().0 $(, $more)*),
            12 => $self.$call($records.$chunks::<12>().0 $(, $more)*),
            _ => $self.$call($records.$chunks::<24>().0 $(, $more)*),
        }
    };
}
pub(super) use by_stride;

/// The words of a record, and how they are hashed. Records of one layout can be added to all of its tables.
pub(super) struct Layout {
    keys: usize,
    stride: usize,
    hashes: RandomState,
}

impl Layout {
    /// Keys of `keys` words, within the limits above.
    pub(super) fn new(keys: usize, sums: usize) -> Self {
        let stride = STRIDES[STRIDES.partition_point(|stride| *stride <= keys + sums)];
        Self { keys, stride, hashes: RandomState::default() }
    }

    /// Words of a record: its head, its key, its sums, and padding up to one of [`STRIDES`].
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Words of a key.
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// Makes records of rows whose keys are written already; what else there was in them was zeros or another record.
    /// `nulls` has for each row a bit for each column that is null.
    pub(super) fn complete(&self, records: &mut [u64], nulls: &[u8], sums: &[Addend]) {
        by_stride!(self.stride, self.complete_all(records.as_chunks_mut(), nulls, sums));
    }

    fn complete_all<const STRIDE: usize>(
        &self,
        records: &mut [[u64; STRIDE]],
        nulls: &[u8],
        sums: &[Addend],
    ) {
        // Most rows have all values.
        let met = ((1 << sums.len()) - 1) << FIRST_SUM;
        for (record, nulls) in records.iter_mut().zip(nulls) {
            let mut hasher = self.hashes.build_hasher();
            record[1..][..self.keys].iter().for_each(|word| hasher.write_u64(*word));
            hasher.write_u8(*nulls);
            record[0] = (hasher.finish() & (!0 << 16)) | met | (u64::from(*nulls) << 1) | TAKEN;
        }
        for (sum, addend) in sums.iter().enumerate() {
            let (word, met) = (1 + self.keys + sum, 1 << (FIRST_SUM + sum as u32));
            let write = |record: &mut [u64; STRIDE], value: Option<u64>| match value {
                Some(value) => record[word] = value,
                None => {
                    record[0] &= !met;
                    record[word] = 0;
                }
            };
            let one = repeat_n(1, records.len());
            match addend {
                Addend::One => each(None, one, records, write),
                Addend::Signed(numbers) => {
                    let values = numbers.values().iter().map(|value| value.cast_unsigned());
                    each(numbers.nulls(), values, records, write);
                }
                Addend::Unsigned(numbers) => {
                    each(numbers.nulls(), numbers.values().iter().copied(), records, write);
                }
                Addend::Present(present) => each(Some(present), one, records, write),
            }
        }
    }
}

/// Which of `parts` parts a record belongs to.
pub(super) fn part_of(head: u64, parts: usize) -> usize {
    // Not by the highest bits, which are the place: parts would fill one end of their tables.
    (((head >> 16) as usize & 0xffff) * parts) >> 16
}

/// A table; it takes no memory before its first group.
pub(super) struct Groups {
    words: Vec<u64>,
    layout: Arc<Layout>,
    /// Fewer than 2^32.
    places: usize,
    len: usize,
    /// It begins with room for this number of times the records that it is given first.
    room: usize,
    spare: Arc<Spare>,
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.spare.give(std::mem::take(&mut self.words));
    }
}

impl Groups {
    pub(super) fn new(layout: Arc<Layout>, spare: Arc<Spare>, room: usize) -> Self {
        Self { words: Vec::new(), layout, places: 0, len: 0, room, spare }
    }

    /// Bytes that it may have after this many more records.
    pub(super) fn bytes_with(&self, records: usize) -> usize {
        self.places_with(records) * self.layout.stride() * size_of::<u64>()
    }

    /// Adds records.
    pub(super) fn add(&mut self, records: &[u64]) {
        by_stride!(self.layout.stride, self.add_all(records));
    }

    fn add_all<const STRIDE: usize>(&mut self, records: &[[u64; STRIDE]]) {
        self.reserve(records.len());
        let homes = Homes { places: self.places };
        let keys = self.layout.keys;
        let groups = self.words.as_chunks_mut::<STRIDE>().0;
        for records in records.chunks(TOGETHER) {
            let mut seen = [0; TOGETHER];
            // Loads that do not wait for each other. A group may end in another line of the cache than it begins in.
            let mut ends = 0;
            for (seen, record) in seen.iter_mut().zip(records) {
                let group = &groups[homes.of(record[0])];
                *seen = group[0];
                ends ^= group[STRIDE - 1];
            }
            black_box(ends);
            for (seen, record) in seen.into_iter().zip(records) {
                let mut place = homes.of(record[0]);
                // An earlier one of these records may have taken it since.
                let mut there = if seen == 0 { groups[place][0] } else { seen };
                loop {
                    let group = &mut groups[place];
                    if there == 0 {
                        *group = *record;
                        self.len += 1;
                        break;
                    }
                    // Without a branch for each word.
                    let other = (1..STRIDE).fold((there ^ record[0]) & IDENTITY, |other, word| {
                        other | if word <= keys { group[word] ^ record[word] } else { 0 }
                    });
                    if other == 0 {
                        group[0] |= record[0];
                        // A sum that has met no value is 0.
                        for word in 1..STRIDE {
                            let more = if word <= keys { 0 } else { record[word] };
                            group[word] = group[word].wrapping_add(more);
                        }
                        break;
                    }
                    place = homes.behind(place);
                    there = groups[place][0];
                }
            }
        }
    }

    /// Makes room for `more` more.
    fn reserve(&mut self, more: usize) {
        let places = self.places_with(more);
        if places == self.places {
            return;
        }
        let before = std::mem::replace(&mut self.words, self.spare.take(places * self.layout.stride));
        self.places = places;
        by_stride!(self.layout.stride, self.place_all(before));
        self.spare.give(before);
    }

    /// Places groups that are not there.
    fn place_all<const STRIDE: usize>(&mut self, before: &[[u64; STRIDE]]) {
        let homes = Homes { places: self.places };
        let groups = self.words.as_chunks_mut::<STRIDE>().0;
        for group in before.iter().filter(|group| group[0] != 0) {
            let mut place = homes.of(group[0]);
            while groups[place][0] != 0 {
                place = homes.behind(place);
            }
            groups[place] = *group;
        }
    }

    /// Places that it has with `more` more. A third of them or more is free before these come, and a fifth after them,
    /// if all are new, which they seldom are. A table that grows does so by half.
    fn places_with(&self, more: usize) -> usize {
        let least = (self.len * 3 / 2).max((self.len + more) * 5 / 4);
        match self.places {
            0 => (least * self.room).max(LEAST),
            places if least <= places => places,
            places => least.max(places * 3 / 2),
        }
    }

    /// Appends the groups from a place on that are wanted until there are this many, and returns the place after them.
    pub(super) fn read<'a>(
        &'a self,
        place: usize,
        most: usize,
        is_wanted: impl Fn(&Group<'a>) -> bool,
        groups: &mut Vec<Group<'a>>,
    ) -> usize {
        let mut next = place;
        for group in self.words.chunks_exact(self.layout.stride()).skip(place) {
            if groups.len() == most {
                break;
            }
            next += 1;
            if group[0] != 0 {
                groups.extend(Some(self.group(group)).filter(&is_wanted));
            }
        }
        next
    }

    /// Calls with the place and the rank of each group that has none or that does not come after `least`, which may
    /// rise.
    pub(super) fn find(&self, ranking: Ranking, least: u64, call: impl FnMut(usize, Option<u64>) -> u64) {
        let words = self.words.as_slice();
        by_stride!(self.layout.stride, self.find_all(words, ranking, least, call));
    }

    fn find_all<const STRIDE: usize>(
        &self,
        groups: &[[u64; STRIDE]],
        ranking: Ranking,
        mut least: u64,
        mut call: impl FnMut(usize, Option<u64>) -> u64,
    ) {
        let word = 1 + self.layout.keys + ranking.sum;
        let met = 1 << (FIRST_SUM + ranking.sum as u32);
        for (place, group) in groups.iter().enumerate() {
            // A sum that has met no value is 0.
            let rank = group[word] ^ ranking.flip;
            let is_null = ranking.is_nullable & (group[0] & met == 0);
            // One branch, which few groups take: whether a place is taken is a toss of a coin.
            if (group[0] != 0) & (is_null | (rank >= least)) {
                least = call(place, (!is_null).then_some(rank));
            }
        }
    }

    /// The group at a place where one is.
    pub(super) fn at(&self, place: usize) -> Group<'_> {
        let stride = self.layout.stride();
        self.group(&self.words[place * stride..][..stride])
    }

    fn group<'a>(&self, words: &'a [u64]) -> Group<'a> {
        let (key, sums) = words[1..].split_at(self.layout.keys);
        Group { head: words[0], key, sums }
    }
}

/// How groups come one after the other.
#[derive(Clone, Copy)]
pub(super) struct Ranking {
    /// By this sum.
    pub(super) sum: usize,
    /// It is null where it has met no value, or else 0.
    pub(super) is_nullable: bool,
    /// What makes it a number that is the larger the earlier a group comes.
    pub(super) flip: u64,
}

impl Ranking {
    /// `None` where nulls decide.
    pub(super) fn of(self, group: &Group<'_>) -> Option<u64> {
        let sum = group.sum(self.sum);
        Some(if self.is_nullable { sum? } else { sum.unwrap_or(0) } ^ self.flip)
    }
}

/// Where groups are looked for.
#[derive(Clone, Copy)]
struct Homes {
    places: usize,
}

impl Homes {
    /// The place of a group if nothing is there: by the highest bits of its hash.
    fn of(self, head: u64) -> usize {
        // The product is below 2^64 as there are fewer than 2^32 places.
        (((head >> 32) * self.places as u64) >> 32) as usize
    }

    fn behind(self, place: usize) -> usize {
        if place + 1 == self.places { 0 } else { place + 1 }
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

/// Calls with the record and the value of each row, and then once more for each row without a value, as these are few.
pub(super) fn each<T, const STRIDE: usize>(
    present: Option<&NullBuffer>,
    values: impl Iterator<Item = T>,
    records: &mut [[u64; STRIDE]],
    call: impl Fn(&mut [u64; STRIDE], Option<T>),
) {
    records.iter_mut().zip(values).for_each(|(record, value)| call(record, Some(value)));
    absent(present, |row| call(&mut records[row], None));
}

/// Calls with each row without a value.
pub(super) fn absent(present: Option<&NullBuffer>, mut call: impl FnMut(usize)) {
    let Some(present) = present.filter(|present| present.null_count() > 0) else { return };
    for (chunk, bits) in present.inner().bit_chunks().iter_padded().enumerate() {
        let first = chunk * u64::BITS as usize;
        let mut left = !bits;
        while left != 0 {
            let row = first + left.trailing_zeros() as usize;
            if row == present.len() {
                // Bits after the last row are zeros.
                return;
            }
            call(row);
            left &= left - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::Sizes;
    use super::super::recent::Recent;
    use super::*;

    type Row = (u8, Option<u8>, Option<u64>);
    type Key = (u64, Option<u64>);
    type Sums = (u64, Option<u64>, Option<u64>);

    fn layout() -> Arc<Layout> {
        Arc::new(Layout::new(2, 3))
    }

    fn records(layout: &Layout, rows: &[Row]) -> Vec<u64> {
        let number = |of: u8| u64::from(of % 16);
        let keys = rows.iter().flat_map(|row| [0, number(row.0), row.1.map_or(0, number), 0, 0, 0]);
        assert_eq!(layout.stride(), 6);
        let nulls: Vec<u8> = rows.iter().map(|row| u8::from(row.1.is_none()) << 1).collect();
        let values: UInt64Array = rows.iter().map(|row| row.2).collect();
        let present = rows.iter().map(|row| row.2.is_some()).collect();
        let mut records: Vec<u64> = keys.collect();
        let sums = [Addend::One, Addend::Unsigned(values), Addend::Present(present)];
        layout.complete(&mut records, &nulls, &sums);
        records
    }

    fn found(groups: &Groups) -> BTreeMap<Key, Sums> {
        let mut found = BTreeMap::new();
        let mut place = 0;
        loop {
            let mut some = Vec::new();
            place = groups.read(place, 100, |_| true, &mut some);
            if some.is_empty() {
                return found;
            }
            for group in some {
                assert!(!group.is_null(0));
                let key = (group.key[0], (!group.is_null(1)).then_some(group.key[1]));
                let sums = (group.sum(0).unwrap(), group.sum(1), group.sum(2));
                assert!(found.insert(key, sums).is_none(), "{key:?} is there twice");
            }
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
            let layout = layout();
            let mut groups = Groups::new(Arc::clone(&layout), Arc::default(), 2);
            prop_assert_eq!(found(&groups), BTreeMap::new());
            batches.iter().for_each(|rows| groups.add(&records(&layout, rows)));
            let expected = expected(batches.iter().flatten());
            prop_assert_eq!(groups.len, expected.len());
            prop_assert_eq!(found(&groups), expected);
        }

        #[test]
        fn what_was_met_lately_comes_together_by_parts(
            batches in batches(), parts in 1..4_usize, places in 1..300_usize,
        ) {
            let (layout, spare) = (layout(), Arc::new(Spare::default()));
            let table = || Groups::new(Arc::clone(&layout), Arc::clone(&spare), 1);
            let mut together: Vec<Groups> = (0..parts).map(|_| table()).collect();
            let mut bring = |records: &[u64]| {
                for record in records.chunks(layout.stride()).filter(|record| record[0] != 0) {
                    together[part_of(record[0], parts)].add(record);
                }
            };
            let sizes = Sizes { recent: places, ..Sizes::default() };
            let mut recent = Recent::new(&sizes, Arc::clone(&layout), Arc::clone(&spare));
            for (turn, rows) in batches.iter().enumerate() {
                let mut records = records(&layout, rows);
                let gone = recent.add(&mut records);
                bring(&records[..gone]);
                let taken = recent.places().chunks(layout.stride()).filter(|record| record[0] != 0);
                prop_assert_eq!(recent.len(), taken.count());
                if turn % 4 == 3 {
                    bring(recent.places());
                    recent.free();
                }
            }
            bring(recent.places());
            let mut all = BTreeMap::new();
            for groups in together.iter().map(found) {
                let before = all.len() + groups.len();
                all.extend(groups);
                prop_assert_eq!(all.len(), before, "a group is in two parts");
            }
            prop_assert_eq!(all, expected(batches.iter().flatten()));
        }
    }

    #[test]
    fn a_group_that_was_met_lately_takes_its_rows() {
        let layout = layout();
        let mut recent = Recent::new(&Sizes::default(), Arc::clone(&layout), Arc::default());
        let mut records = records(&layout, &[(3, None, Some(1)); 100]);
        assert_eq!(recent.add(&mut records), 0);
        let taken: Vec<&[u64]> =
            recent.places().chunks(layout.stride()).filter(|group| group[0] != 0).collect();
        assert_eq!((recent.len(), taken.len()), (1, 1));
        assert_eq!(taken[0][1..], [3, 0, 100, 100, 100]);
    }
    #[test]
    fn places_are_of_use_where_one_row_in_four_is_of_a_group_that_is_there() {
        let layout = layout();
        let sizes = Sizes { judged: 8, ..Sizes::default() };
        let mut recent = Recent::new(&sizes, Arc::clone(&layout), Arc::default());
        let mut verdict = |keys: &[u8]| {
            let rows: Vec<Row> = keys.iter().map(|key| (key % 16, Some(key / 16), Some(1))).collect();
            recent.add(&mut records(&layout, &rows));
            recent.judge()
        };
        assert!(verdict(&[1, 2, 3, 4, 5, 6, 7]), "too few rows to say");
        assert!(!verdict(&[8]), "all were new");
        // A group that has just come is there, wherever others were put.
        assert!(verdict(&[11, 11, 12, 12, 13, 14, 15]), "counting began anew");
        assert!(verdict(&[16]), "two of eight were there");
        assert!(!verdict(&[21, 21, 22, 23, 24, 25, 26, 27]), "one of eight was there");
    }
}
