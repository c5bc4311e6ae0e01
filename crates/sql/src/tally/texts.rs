//! Numbers for texts, so that keys are of one width.
//!
//! A reader of Parquet gives the same view for the same entry of a dictionary, row by row. What number a view had is kept as
//! long as views point into the same buffer: so most rows do not look at their text.

use std::hash::BuildHasher as _;
use std::hint::black_box;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::{Array as _, ArrayRef, StringViewArray};
use arrow_buffer::Buffer;
use foldhash::quality::RandomState;

/// Texts whose places are looked at together.
const TOGETHER: usize = 64;

/// Places of an empty table.
const LEAST: usize = 1 << 8;

/// Texts by number.
pub(super) struct Texts {
    /// All of them, one after the other.
    all: String,
    /// By number: where it begins and ends.
    spans: Vec<(usize, usize)>,
    /// By hash, with open addressing and linear probing; a power of two.
    places: Vec<Place>,
    hashes: RandomState,
}

#[derive(Clone, Copy, Default)]
struct Place {
    hash: u64,
    begin: usize,
    length: u32,
    /// One more than the text's number; 0: nothing stands here.
    above: u32,
}

impl Default for Texts {
    fn default() -> Self {
        let places = vec![Place::default(); LEAST];
        Self { all: String::new(), spans: Vec::new(), places, hashes: RandomState::default() }
    }
}

impl Texts {
    pub(super) fn bytes(&self) -> usize {
        self.all.capacity()
            + size_of_val(self.places.as_slice())
            + self.spans.capacity() * size_of::<(usize, usize)>()
    }

    /// Forgets all texts and their numbers.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Calls with the number of each of these, at most [`TOGETHER`]; one that is new gets the next.
    fn number<'a>(&mut self, texts: impl Iterator<Item = &'a str> + Clone, mut call: impl FnMut(usize, u32)) {
        self.grow();
        let mut hashes = [0; TOGETHER];
        for (hash, text) in hashes.iter_mut().zip(texts.clone()) {
            *hash = self.hashes.hash_one(text);
        }
        // Loads that do not wait for each other, of the places and then of their texts.
        let mut begins = [0; TOGETHER];
        for (begin, hash) in begins.iter_mut().zip(&hashes) {
            let place = &self.places[self.first(*hash)];
            *begin = if place.hash == *hash { place.begin } else { 0 };
        }
        let all = self.all.as_bytes();
        black_box(begins.iter().fold(0, |sum: u8, begin| sum ^ all.get(*begin).copied().unwrap_or_default()));
        for (row, (text, hash)) in texts.zip(hashes).enumerate() {
            call(row, self.one(text, hash));
        }
    }

    fn one(&mut self, text: &str, hash: u64) -> u32 {
        let mut at = self.first(hash);
        loop {
            let Place { hash: other, begin, length, above } = self.places[at];
            if above == 0 {
                break;
            }
            if other == hash
                && length as usize == text.len()
                && self.all.as_bytes()[begin..][..text.len()] == *text.as_bytes()
            {
                return above - 1;
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        let (begin, number) = (self.all.len(), self.spans.len() as u32);
        self.all.push_str(text);
        self.spans.push((begin, self.all.len()));
        self.places[at] = Place { hash, begin, length: text.len() as u32, above: number + 1 };
        number
    }

    fn first(&self, hash: u64) -> usize {
        (hash >> (u64::BITS - self.places.len().trailing_zeros())) as usize
    }

    /// Makes room for the next texts: a third of the places or more stays free.
    fn grow(&mut self) {
        let places = ((self.spans.len() + TOGETHER) * 3 / 2).next_power_of_two();
        if places <= self.places.len() {
            return;
        }
        let before = std::mem::replace(&mut self.places, vec![Place::default(); places]);
        for place in before.into_iter().filter(|place| place.above > 0) {
            let mut at = self.first(place.hash);
            while self.places[at].above > 0 {
                at = (at + 1) & (places - 1);
            }
            self.places[at] = place;
        }
    }

    /// The texts of numbers that were given out.
    pub(super) fn texts(&self, numbers: impl Iterator<Item = Option<u32>>) -> ArrayRef {
        let mut texts = StringViewBuilder::new();
        for number in numbers {
            texts.append_option(number.map(|number| {
                let (begin, end) = self.spans[number as usize];
                &self.all[begin..end]
            }));
        }
        Arc::new(texts.finish())
    }
}

/// Numbers of a column's views into one buffer, by the place where they begin.
#[derive(Default)]
pub(super) struct Seen {
    /// Held, so that no other buffer comes to be at the same place.
    buffer: Option<Buffer>,
    /// Of a view that begins within [`STEP`] bytes: where, its length, and its number; 0 where none was seen.
    slots: Vec<u64>,
    /// Room for rows that have to be looked up.
    misses: Vec<Miss>,
}

/// A row whose text has to be looked up; the slot that is to have its number, if any, and what tells it there.
#[derive(Clone, Copy)]
struct Miss {
    row: usize,
    slot: usize,
    known: u64,
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

    /// Calls with each row that has a text, and the number of that; in no order.
    pub(super) fn number(
        &mut self,
        texts: &mut Texts,
        views: &StringViewArray,
        mut call: impl FnMut(usize, u32),
    ) {
        let buffers = views.data_buffers();
        let mut at = buffers.iter().position(|buffer| self.is_of(buffer));
        let mut turns = 0;
        let mut misses = std::mem::take(&mut self.misses);
        for (row, view) in views.views().iter().enumerate() {
            if views.is_null(row) {
                continue;
            }
            let (length, buffer) = (*view as u32 as usize, (*view >> 64) as u32 as usize);
            let (mut slot, mut known) = (usize::MAX, 0);
            if length > STEP && length >> LENGTH_BITS == 0 {
                if at != Some(buffer) && turns < MOST_TURNS {
                    // What slots were found for is of the buffer before.
                    self.look_up(texts, views, &mut misses, &mut call);
                    self.turn_to(&buffers[buffer]);
                    at = Some(buffer);
                    turns += 1;
                }
                if at == Some(buffer) {
                    let offset = (*view >> 96) as u32;
                    slot = offset as usize / STEP;
                    known = (u64::from(offset) << LENGTH_BITS) | length as u64;
                }
            }
            match self.slots.get(slot) {
                Some(there) if *there >> NUMBER_BITS == known => {
                    call(row, (*there & ((1 << NUMBER_BITS) - 1)) as u32);
                }
                _ => misses.push(Miss { row, slot, known }),
            }
        }
        self.look_up(texts, views, &mut misses, &mut call);
        self.misses = misses;
    }

    /// Looks texts up, and keeps their numbers.
    fn look_up(
        &mut self,
        texts: &mut Texts,
        views: &StringViewArray,
        misses: &mut Vec<Miss>,
        call: &mut impl FnMut(usize, u32),
    ) {
        for misses in misses.chunks(TOGETHER) {
            texts.number(misses.iter().map(|miss| views.value(miss.row)), |at, number| {
                let Miss { row, slot, known } = misses[at];
                if let Some(slot) = self.slots.get_mut(slot)
                    && number >> NUMBER_BITS == 0
                {
                    *slot = (known << NUMBER_BITS) | u64::from(number);
                }
                call(row, number);
            });
        }
        misses.clear();
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
