//! Numbers for texts, so that keys are of one width.
//!
//! A reader of Parquet gives the same view for the same entry of a dictionary, row by row. What number a view had is kept as
//! long as views point into the same buffer: so most rows do not look at their text.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::{Array as _, ArrayRef, StringViewArray};
use arrow_buffer::Buffer;
use foldhash::quality::RandomState;
use hashbrown::HashTable;

/// Texts by number.
#[derive(Default)]
pub(super) struct Texts {
    /// All of them, one after the other; where each ends.
    all: String,
    ends: Vec<usize>,
    /// Hash and number of each.
    numbers: HashTable<(u64, u32)>,
    hashes: RandomState,
}

impl Texts {
    pub(super) fn bytes(&self) -> usize {
        self.all.capacity() + self.ends.capacity() * size_of::<usize>() + self.numbers.allocation_size()
    }

    /// Forgets all texts and their numbers.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn number(&mut self, text: &str) -> u32 {
        let Self { all, ends, numbers, hashes } = self;
        let hash = hashes.hash_one(text);
        let is_it = |(other, number): &(u64, u32)| *other == hash && at(all, ends, *number) == text;
        if let Some((_, number)) = numbers.find(hash, is_it) {
            return *number;
        }
        let number = ends.len() as u32;
        all.push_str(text);
        ends.push(all.len());
        numbers.insert_unique(hash, (hash, number), |(hash, _)| *hash);
        number
    }

    /// The texts of numbers that were given out.
    pub(super) fn texts(&self, numbers: impl Iterator<Item = Option<u32>>) -> ArrayRef {
        let mut texts = StringViewBuilder::new();
        for number in numbers {
            texts.append_option(number.map(|number| at(&self.all, &self.ends, number)));
        }
        Arc::new(texts.finish())
    }
}

fn at<'a>(all: &'a str, ends: &[usize], number: u32) -> &'a str {
    let number = number as usize;
    let start = number.checked_sub(1).map_or(0, |before| ends[before]);
    &all[start..ends[number]]
}

/// Numbers of a column's views into one buffer, by the place where they begin.
#[derive(Default)]
pub(super) struct Seen {
    /// Held, so that no other buffer comes to be at the same place.
    buffer: Option<Buffer>,
    /// Of a view that begins within [`STEP`] bytes: where, its length, and its number; 0 where none was seen.
    slots: Vec<u64>,
}

/// Texts that a view does not hold itself are longer than this, and entries of a dictionary do not overlap.
const STEP: usize = 12;

/// Slots; what begins behind them is looked up by its text.
const MOST_SLOTS: usize = 1 << 17;

/// Buffers of a batch that are turned to. Beyond that its views are mixed, and are looked up by their text.
const MOST_TURNS: usize = 4;

/// Numbers and lengths that a slot can hold, beside where the last one may begin.
const NUMBER_BITS: u32 = 24;
const LENGTH_BITS: u32 = 10;
const _: () = assert!((MOST_SLOTS * STEP) >> (u64::BITS - NUMBER_BITS - LENGTH_BITS) == 0);

impl Seen {
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<u64>()
    }

    /// Calls with each row that has a text, and the number of that.
    pub(super) fn number(
        &mut self,
        texts: &mut Texts,
        views: &StringViewArray,
        mut call: impl FnMut(usize, u32),
    ) {
        let buffers = views.data_buffers();
        let mut at = buffers.iter().position(|buffer| self.is_of(buffer));
        let mut turns = 0;
        for (row, view) in views.views().iter().enumerate() {
            if views.is_null(row) {
                continue;
            }
            let (length, buffer) = (*view as u32 as usize, (*view >> 64) as u32 as usize);
            if length <= STEP {
                call(row, texts.number(views.value(row)));
                continue;
            }
            if at != Some(buffer) && turns < MOST_TURNS {
                self.turn_to(&buffers[buffer]);
                at = Some(buffer);
                turns += 1;
            }
            let offset = (*view >> 96) as u32;
            let slot = match at == Some(buffer) && length >> LENGTH_BITS == 0 {
                true => self.slots.get_mut(offset as usize / STEP),
                false => None,
            };
            let known = u64::from(offset) << LENGTH_BITS | length as u64;
            let number = match slot {
                Some(slot) if *slot >> NUMBER_BITS == known => (*slot & ((1 << NUMBER_BITS) - 1)) as u32,
                slot => {
                    let number = texts.number(views.value(row));
                    if let Some(slot) = slot
                        && number >> NUMBER_BITS == 0
                    {
                        *slot = known << NUMBER_BITS | u64::from(number);
                    }
                    number
                }
            };
            call(row, number);
        }
    }

    fn is_of(&self, buffer: &Buffer) -> bool {
        self.buffer.as_ref().is_some_and(|own| own.as_ptr() == buffer.as_ptr() && own.len() == buffer.len())
    }

    fn turn_to(&mut self, buffer: &Buffer) {
        self.slots.clear();
        self.slots.resize((buffer.len() / STEP + 1).min(MOST_SLOTS), 0);
        self.buffer = Some(buffer.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equal_texts_have_equal_numbers(batches in prop::collection::vec(prop::collection::vec(prop::option::of("[ab]{0,18}"), 0..50), 1..8)) {
            let (mut texts, mut seen) = (Texts::default(), Seen::default());
            let mut known: HashMap<String, u32> = HashMap::new();
            for batch in &batches {
                let array = StringViewArray::from_iter(batch.iter().map(Option::as_deref));
                // The same buffers twice, as of two batches of one row group.
                for array in [array.clone(), array] {
                    let mut rows = Vec::new();
                    seen.number(&mut texts, &array, |row, number| rows.push((row, number)));
                    prop_assert_eq!(rows.len(), batch.iter().flatten().count());
                    for (row, number) in rows {
                        let text = batch[row].clone().unwrap();
                        prop_assert_eq!(*known.entry(text).or_insert(number), number);
                    }
                }
            }
            let numbers: Vec<(String, u32)> = known.into_iter().collect();
            let back = texts.texts(numbers.iter().map(|(_, number)| Some(*number)).chain([None]));
            let back = back.as_any().downcast_ref::<StringViewArray>().unwrap();
            prop_assert!(back.is_null(numbers.len()));
            for (row, (text, _)) in numbers.iter().enumerate() {
                prop_assert_eq!(back.value(row), text);
            }
        }
    }

    /// Views that begin at the same place and differ in their length, and views of many buffers in turn.
    #[test]
    fn views_are_told_apart_by_place_length_and_buffer() {
        let mut views = StringViewBuilder::new();
        let mut expected = Vec::new();
        for block in 0..6_u8 {
            let text: String =
                (0..1100_u32).map(|at| char::from(b'a' + ((u32::from(block) + at) % 26) as u8)).collect();
            views.append_block(Buffer::from(text.as_bytes()));
            expected.push(text);
        }
        let mut asked = Vec::new();
        for (offset, length) in
            [(0, 20), (0, 21), (1, 20), (13, 20), (0, 20), (1, 20), (12, 13), (1, 20), (0, 1044)]
        {
            for (block, text) in expected.iter().enumerate() {
                views.try_append_view(block as u32, offset, length).unwrap();
                asked.push(&text[offset as usize..][..length as usize]);
            }
        }
        let (mut texts, mut seen, mut known) = (Texts::default(), Seen::default(), HashMap::new());
        seen.number(&mut texts, &views.finish(), |row, number| {
            assert_eq!(*known.entry(asked[row]).or_insert(number), number);
        });
        let numbers: std::collections::HashSet<u32> = known.values().copied().collect();
        assert_eq!(numbers.len(), known.len(), "different texts have different numbers");
    }
}
