//! Numbers for texts, so that keys are of one width.
//!
//! A reader of Parquet gives the same view for the same entry of a dictionary, row by row. What number a view had is kept as
//! long as views point into the same buffer: so most rows do not look at their text.

use std::hash::BuildHasher as _;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::builder::{ArrayBuilder as _, StringViewBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef, StringViewArray, UInt32Array};
use arrow_buffer::Buffer;
use arrow_schema::ArrowError;
use arrow_select::concat::concat;
use arrow_select::take::take;
use foldhash::quality::RandomState;

use super::TOGETHER;
use super::work::lock;

/// Places of an empty table.
const LEAST: usize = 1 << 8;

/// Texts by number.
struct Texts {
    all: StringViewBuilder,
    /// By hash, with open addressing and linear probing; a power of two.
    places: Vec<Place>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    hash: u64,
    /// One more than the text's number; 0: nothing stands here.
    above: u32,
}

impl Default for Texts {
    fn default() -> Self {
        let places = vec![Place::default(); LEAST];
        Self { all: StringViewBuilder::new(), places }
    }
}

impl Texts {
    fn bytes(&self) -> usize {
        self.all.allocated_size() + size_of_val(self.places.as_slice())
    }

    /// Calls with the number of each of these, at most [`TOGETHER`], given with their hashes; one that is new gets the next.
    fn number<'a>(
        &mut self,
        texts: impl Iterator<Item = (&'a str, u64)> + Clone,
        mut call: impl FnMut(usize, u32),
    ) {
        self.grow();
        // Loads that do not wait for each other, of the places and then of their texts.
        let mut seen = [0; TOGETHER];
        for (seen, (_, hash)) in seen.iter_mut().zip(texts.clone()) {
            let place = &self.places[self.first(hash)];
            *seen = if place.hash == hash { place.above } else { 0 };
        }
        let text = |above: &u32| self.all.get_value(*above as usize - 1);
        let first = |text: &[u8]| text.first().copied().unwrap_or_default();
        black_box(seen.iter().filter(|above| **above > 0).fold(0, |sum, above| sum ^ first(text(above))));
        for (row, (text, hash)) in texts.enumerate() {
            call(row, self.one(text, hash));
        }
    }

    fn one(&mut self, text: &str, hash: u64) -> u32 {
        let mut at = self.first(hash);
        loop {
            let Place { hash: other, above } = self.places[at];
            if above == 0 {
                break;
            }
            if other == hash && self.all.get_value(above as usize - 1) == text.as_bytes() {
                return above - 1;
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        let number = self.all.len() as u32;
        self.all.append_value(text);
        self.places[at] = Place { hash, above: number + 1 };
        number
    }

    fn first(&self, hash: u64) -> usize {
        (hash >> (u64::BITS - self.places.len().trailing_zeros())) as usize
    }

    /// Makes room for the next texts: a third of the places or more stays free.
    fn grow(&mut self) {
        let places = ((self.all.len() + TOGETHER) * 3 / 2).next_power_of_two();
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
}

/// Shares of texts, by their hashes.
const SHARES: usize = 16;

/// The texts that all workers share, each share behind a lock. The number of a text has the number of its share in the lowest
/// bits.
#[derive(Default)]
pub(super) struct SharedTexts {
    shares: [Mutex<Texts>; SHARES],
    hashes: RandomState,
    bytes: AtomicUsize,
}

impl SharedTexts {
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// All texts.
    ///
    /// # Errors
    /// Arrow's.
    pub(super) fn finish(&self) -> Result<NumberedTexts, ArrowError> {
        let shares: Vec<StringViewArray> = self.shares.iter().map(|share| lock(share).all.finish()).collect();
        let ends =
            shares.iter().scan(0, |end, share| Some(std::mem::replace(end, *end + share.len() as u32)));
        let starts = ends.collect();
        let shares: Vec<&dyn Array> = shares.iter().map(|share| share as &dyn Array).collect();
        Ok(NumberedTexts { texts: concat(&shares)?.as_string_view().clone(), starts })
    }

    /// Calls with the number of the text of each of these misses, which are of one share.
    fn number(
        &self,
        share: usize,
        misses: &[Miss],
        views: &StringViewArray,
        mut call: impl FnMut(&Miss, u32),
    ) {
        if misses.is_empty() {
            return;
        }
        let mut texts = lock(&self.shares[share]);
        let before = texts.bytes();
        for misses in misses.chunks(TOGETHER) {
            let these = misses.iter().map(|miss| (views.value(miss.row), miss.hash));
            texts.number(these, |at, number| call(&misses[at], number * SHARES as u32 + share as u32));
        }
        // Wraps around, as the sum does, where that is less.
        self.bytes.fetch_add(texts.bytes().wrapping_sub(before), Ordering::Relaxed);
    }
}

/// Texts that can be found by their numbers.
pub(super) struct NumberedTexts {
    texts: StringViewArray,
    /// Where each share begins.
    starts: Vec<u32>,
}

impl NumberedTexts {
    /// The texts of these numbers.
    ///
    /// # Errors
    /// Arrow's.
    pub(super) fn of(&self, numbers: impl Iterator<Item = Option<u32>>) -> Result<ArrayRef, ArrowError> {
        let places: UInt32Array = numbers
            .map(|number| number.map(|number| self.starts[number as usize % SHARES] + number / SHARES as u32))
            .collect();
        take(&self.texts, &places, None)
    }
}

/// Numbers of a column's views into one buffer, by the place where they begin.
#[derive(Default)]
pub(super) struct Seen {
    /// Held, so that no other buffer comes to be at the same place.
    buffer: Option<Buffer>,
    /// Of a view that begins within [`STEP`] bytes: where, its length, and its number; 0 where none was seen.
    slots: Vec<u64>,
    /// Room for rows that have to be looked up, by the shares of their texts.
    misses: [Vec<Miss>; SHARES],
    /// Rows of a batch that the slots do not know, and the numbers of all.
    left: Vec<u32>,
    numbers: Vec<u32>,
}

/// A row whose text has to be looked up, the hash of that, the slot that is to have its number, if any, and what tells it
/// there.
#[derive(Clone, Copy)]
struct Miss {
    row: usize,
    hash: u64,
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

/// Length, buffer and offset of a view; nothing of a short one but its length means anything.
fn parts(view: u128) -> (u32, u32, u32) {
    (view as u32, (view >> 64) as u32, (view >> 96) as u32)
}

/// Whether slots tell texts of this length apart.
fn is_told_apart(length: u32) -> bool {
    length as usize > STEP && length >> LENGTH_BITS == 0
}

/// The slot of a view, and what tells it there.
fn slot_of(length: u32, offset: u32) -> (usize, u64) {
    (offset as usize / STEP, (u64::from(offset) << LENGTH_BITS) | u64::from(length))
}

fn number_in(slot: u64) -> u32 {
    (slot & ((1 << NUMBER_BITS) - 1)) as u32
}

impl Seen {
    pub(super) fn bytes(&self) -> usize {
        let misses = self.misses.iter().map(Vec::capacity).sum::<usize>();
        let rows = (self.left.capacity() + self.numbers.capacity()) * size_of::<u32>();
        self.slots.len() * size_of::<u64>() + misses * size_of::<Miss>() + rows
    }

    /// The number of each row's text; of a row without one any.
    pub(super) fn number(&mut self, texts: &SharedTexts, views: &StringViewArray) -> &[u32] {
        let buffers = views.data_buffers();
        let mut at = buffers.iter().position(|buffer| self.is_of(buffer));
        let mut numbers = std::mem::take(&mut self.numbers);
        let mut left = std::mem::take(&mut self.left);
        self.first(views, at, &mut numbers, &mut left);
        let mut misses = std::mem::take(&mut self.misses);
        let mut turns = 0;
        for row in left.iter().map(|row| *row as usize).filter(|row| !views.is_null(*row)) {
            let (length, buffer, offset) = parts(views.views()[row]);
            let (mut slot, mut known) = (usize::MAX, 0);
            if is_told_apart(length) {
                let buffer = buffer as usize;
                if at != Some(buffer) && turns < MOST_TURNS {
                    // What slots were found for is of the buffer before.
                    self.look_up(texts, views, &mut misses, &mut numbers);
                    self.turn_to(&buffers[buffer]);
                    at = Some(buffer);
                    turns += 1;
                }
                if at == Some(buffer) {
                    (slot, known) = slot_of(length, offset);
                }
            }
            match self.slots.get(slot) {
                Some(there) if *there >> NUMBER_BITS == known => numbers[row] = number_in(*there),
                _ => {
                    let hash = texts.hashes.hash_one(views.value(row));
                    misses[hash as usize % SHARES].push(Miss { row, hash, slot, known });
                }
            }
        }
        self.look_up(texts, views, &mut misses, &mut numbers);
        (self.misses, self.left, self.numbers) = (misses, left, numbers);
        &self.numbers
    }

    /// Numbers the rows whose views the slots know, of buffer `at`, and lists the others: without a branch for each row, which
    /// would often be taken for the wrong one.
    fn first(&self, views: &StringViewArray, at: Option<usize>, numbers: &mut Vec<u32>, left: &mut Vec<u32>) {
        numbers.clear();
        numbers.resize(views.len(), 0);
        left.clear();
        left.resize(views.len(), 0);
        let at = at.map_or(u32::MAX, |at| at as u32);
        let mut count = 0;
        for (row, (view, number)) in views.views().iter().zip(numbers).enumerate() {
            let (length, buffer, offset) = parts(*view);
            let (slot, known) = slot_of(length, offset);
            let there = self.slots.get(slot).copied().unwrap_or_default();
            let is_known = (there >> NUMBER_BITS == known) & (buffer == at) & is_told_apart(length);
            *number = number_in(there);
            left[count] = row as u32;
            count += usize::from(!is_known);
        }
        left.truncate(count);
    }

    /// Looks texts up, and keeps their numbers.
    fn look_up(
        &mut self,
        texts: &SharedTexts,
        views: &StringViewArray,
        misses: &mut [Vec<Miss>],
        numbers: &mut [u32],
    ) {
        for (share, misses) in misses.iter_mut().enumerate() {
            texts.number(share, misses, views, |miss, number| {
                if let Some(slot) = self.slots.get_mut(miss.slot)
                    && number >> NUMBER_BITS == 0
                {
                    *slot = (miss.known << NUMBER_BITS) | u64::from(number);
                }
                numbers[miss.row] = number;
            });
            misses.clear();
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
            let all = SharedTexts::default();
            let mut workers = [(); 2].map(|()| Seen::default());
            let mut known: HashMap<String, u32> = HashMap::new();
            for (turn, batch) in batches.iter().enumerate() {
                let seen = &mut workers[turn % 2];
                let array = StringViewArray::from_iter(batch.iter().map(Option::as_deref));
                // The same buffers twice, as of two batches of one row group.
                for array in [array.clone(), array] {
                    let numbers = seen.number(&all, &array);
                    prop_assert_eq!(numbers.len(), batch.len());
                    for (text, number) in batch.iter().zip(numbers) {
                        let Some(text) = text.clone() else { continue };
                        prop_assert_eq!(known.entry(text).or_insert(*number), number);
                    }
                }
            }
            let back = all.finish().unwrap();
            prop_assert_eq!(back.texts.len(), known.len());
            for (text, number) in known {
                let one = back.of(std::iter::once(Some(number))).unwrap();
                prop_assert_eq!(one.as_string_view().value(0), text);
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
        let (texts, mut seen, mut known) = (SharedTexts::default(), Seen::default(), HashMap::new());
        for (text, number) in asked.iter().zip(seen.number(&texts, &views.finish())) {
            assert_eq!(known.entry(*text).or_insert(*number), number);
        }
        let numbers: std::collections::HashSet<u32> = known.values().copied().collect();
        assert_eq!(numbers.len(), known.len(), "different texts have different numbers");
    }
}
