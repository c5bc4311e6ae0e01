//! Numbers for texts, so that keys are of one width.
//!
//! A reader of Parquet gives the same view for the same entry of a dictionary, row by row. The number of a view is kept
//! as long as views point into the same buffer: so most rows do not look at their text.

use std::hash::BuildHasher as _;
use std::hint::black_box;
use std::iter::repeat;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use arrow_array::{Array as _, StringViewArray};
use arrow_buffer::Buffer;
use datafusion::common::{DataFusionError, resources_err};
use foldhash::quality::RandomState;

use super::TOGETHER;
use super::key::Half;
use super::work::lock;

/// Places of an empty table.
const LEAST: usize = 1 << 8;

/// Texts by number.
struct Texts {
    /// All, one after the other.
    all: String,
    /// Where each begins, and where the last one ends.
    starts: Vec<u32>,
    /// By hash, with open addressing and linear probing; a power of two.
    places: Vec<Place>,
}

/// All that has to be known of a text before it is looked at, so that it is one load away.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The upper half of its hash.
    hash: u32,
    /// One more than its number; 0: the slot is empty.
    above: u32,
    start: u32,
    length: u32,
}

impl Place {
    fn of<'a>(&self, all: &'a str) -> &'a [u8] {
        &all.as_bytes()[self.start as usize..][..self.length as usize]
    }
}

impl Default for Texts {
    fn default() -> Self {
        Self { all: String::new(), starts: vec![0], places: vec![Place::default(); LEAST] }
    }
}

impl Texts {
    fn bytes(&self) -> usize {
        self.all.capacity() + self.starts.capacity() * size_of::<u32>() + size_of_val(self.places.as_slice())
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Calls with the number of each of these, at most [`TOGETHER`], given with their hashes; one that is new gets the next.
    ///
    /// # Errors
    /// All together take more than 4 GiB.
    fn number<'a>(
        &mut self,
        texts: impl Iterator<Item = (&'a str, u64)> + Clone,
        mut call: impl FnMut(usize, u32),
    ) -> Result<(), DataFusionError> {
        self.grow();
        // Loads that do not wait for each other, of places and of both ends of their texts; without a branch that a load
        // decides, as its other side would wait for that.
        let touched = texts.clone().fold(0, |touched, (_, hash)| {
            let place = &self.places[self.first(upper(hash))];
            let byte = |at: u32| self.all.as_bytes().get(at as usize).copied().unwrap_or_default();
            touched ^ byte(place.start) ^ byte(place.start.wrapping_add(place.length))
        });
        black_box(touched);
        for (row, (text, hash)) in texts.enumerate() {
            call(row, self.one(text, upper(hash))?);
        }
        Ok(())
    }

    fn one(&mut self, text: &str, hash: u32) -> Result<u32, DataFusionError> {
        let mut at = self.first(hash);
        loop {
            let place = self.places[at];
            if place.above == 0 {
                break;
            }
            if place.hash == hash && place.of(&self.all) == text.as_bytes() {
                return Ok(place.above - 1);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        let Ok(end) = u32::try_from(self.all.len() + text.len()) else {
            return resources_err!("the different texts of a grouping take more than {SHARES} times 4 GiB");
        };
        let place = Place {
            hash,
            above: self.starts.len() as u32,
            start: self.all.len() as u32,
            length: text.len() as u32,
        };
        self.all.push_str(text);
        self.starts.push(end);
        self.places[at] = place;
        Ok(place.above - 1)
    }

    fn first(&self, hash: u32) -> usize {
        (hash >> (u32::BITS - self.places.len().trailing_zeros())) as usize
    }

    /// Makes room for the next texts: half of the places stay free.
    fn grow(&mut self) {
        let places = ((self.len() + TOGETHER) * 2).next_power_of_two();
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

    fn get(&self, number: usize) -> &str {
        &self.all[self.starts[number] as usize..self.starts[number + 1] as usize]
    }
}

fn upper(hash: u64) -> u32 {
    (hash >> u32::BITS) as u32
}

/// Shares of texts, by their hashes.
const SHARES: usize = 16;

/// The texts that all workers share, each share with a lock. The number of a text has the number of its share in the
/// lowest bits.
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
    pub(super) fn finish(self) -> NumberedTexts {
        let own = |share: Mutex<Texts>| share.into_inner().unwrap_or_else(PoisonError::into_inner);
        NumberedTexts(self.shares.map(|share| {
            // Nothing is looked up any more.
            Texts { places: Vec::new(), ..own(share) }
        }))
    }

    /// A share, for a caller that waits for it or if no other thread has it.
    fn share(&self, share: usize, waits: bool) -> Option<MutexGuard<'_, Texts>> {
        match self.shares[share].try_lock() {
            Err(TryLockError::WouldBlock) => waits.then(|| lock(&self.shares[share])),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Ok(texts) => Some(texts),
        }
    }

    /// Calls with the number of the text of each of these misses, by share, and leaves none.
    ///
    /// # Errors
    /// The texts take too much.
    fn number(
        &self,
        misses: &mut [Vec<Miss>],
        views: &StringViewArray,
        mut call: impl FnMut(&Miss, u32),
    ) -> Result<(), DataFusionError> {
        // Shares that others have come last, so that workers do not go from share to share one after the other.
        for waits in [false, true] {
            for (share, misses) in misses.iter_mut().enumerate().filter(|(_, misses)| !misses.is_empty()) {
                let Some(mut texts) = self.share(share, waits) else { continue };
                let before = texts.bytes();
                for misses in misses.chunks(TOGETHER) {
                    let these = misses.iter().map(|miss| (views.value(miss.row), miss.hash));
                    texts.number(these, |at, number| {
                        call(&misses[at], number * SHARES as u32 + share as u32)
                    })?;
                }
                // Wraps around, as the sum does, where that is less.
                self.bytes.fetch_add(texts.bytes().wrapping_sub(before), Ordering::Relaxed);
                misses.clear();
            }
        }
        Ok(())
    }
}

/// Texts that can be found by their numbers.
pub(super) struct NumberedTexts([Texts; SHARES]);

impl NumberedTexts {
    /// The texts of these numbers.
    pub(super) fn of(&self, numbers: impl Iterator<Item = Option<u32>>) -> StringViewArray {
        let text = |number: usize| self.0[number % SHARES].get(number / SHARES);
        numbers.map(|number| number.map(|number| text(number as usize))).collect()
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
    /// Room for the rows of a batch that the slots do not know.
    left: Vec<u32>,
}

/// A row whose text has to be looked up, the hash of that, the slot that is to have its number, if any, and the text
/// that distinguishes it there.
#[derive(Clone, Copy)]
struct Miss {
    row: usize,
    hash: u64,
    slot: usize,
    known: u64,
}

/// Texts that a view does not hold itself are longer than this.
const INLINE: u32 = 12;

/// So far apart at least two entries of a dictionary begin in a page of Parquet, which has the length before each.
const STEP: usize = 16;
const _: () = assert!(STEP <= INLINE as usize + 1 + size_of::<u32>());

/// Slots; texts that begin after them are looked up as texts.
const MOST_SLOTS: usize = 1 << 17;

/// Buffers of a batch that are turned to. Beyond that its views are mixed, and are looked up by their text.
const MOST_TURNS: usize = 4;

/// Numbers and lengths that a slot can hold, next to the place where the last one may begin.
const NUMBER_BITS: u32 = 24;
const LENGTH_BITS: u32 = 10;
const _: () = assert!((MOST_SLOTS * STEP) >> (u64::BITS - NUMBER_BITS - LENGTH_BITS) == 0);

/// Length, buffer and offset of a view; nothing of a short one but its length means anything.
fn parts(view: u128) -> (u32, u32, u32) {
    (view as u32, (view >> 64) as u32, (view >> 96) as u32)
}

/// Whether slots distinguish texts of this length.
fn is_told_apart(length: u32) -> bool {
    length > INLINE && length >> LENGTH_BITS == 0
}

/// The slot of a view, and its mark there.
fn slot_of(length: u32, offset: u32) -> (usize, u64) {
    (offset as usize / STEP, (u64::from(offset) << LENGTH_BITS) | u64::from(length))
}

fn number_in(slot: u64) -> u32 {
    slot as u32 & ((1 << NUMBER_BITS) - 1)
}

/// Where the numbers of rows are written: half of a word that comes every `stride` words.
pub(super) struct Numbers<'a> {
    pub(super) words: &'a mut [u64],
    pub(super) stride: usize,
    pub(super) half: Half,
}

impl Numbers<'_> {
    fn put(&mut self, row: usize, number: u32) {
        self.half.write(&mut self.words[row * self.stride], number);
    }
}

impl Seen {
    pub(super) fn bytes(&self) -> usize {
        let misses = self.misses.iter().map(Vec::capacity).sum::<usize>();
        let rows = self.left.capacity() * size_of::<u32>();
        self.slots.len() * size_of::<u64>() + misses * size_of::<Miss>() + rows
    }

    /// Writes the number of each row's text, 0 if it has none.
    ///
    /// # Errors
    /// The texts take too much.
    pub(super) fn number(
        &mut self,
        texts: &SharedTexts,
        views: &StringViewArray,
        mut numbers: Numbers<'_>,
    ) -> Result<(), DataFusionError> {
        let buffers = views.data_buffers();
        let mut at = buffers.iter().position(|buffer| self.is_of(buffer));
        let mut left = std::mem::take(&mut self.left);
        left.resize(left.len().max(views.len()), 0);
        let count = match views.nulls().filter(|present| present.null_count() > 0) {
            Some(present) => self.first(views, at, present.iter(), &mut numbers, &mut left),
            None => self.first(views, at, repeat(true), &mut numbers, &mut left),
        };
        let mut misses = std::mem::take(&mut self.misses);
        let mut turns = 0;
        for row in left[..count].iter().map(|row| *row as usize) {
            let (length, buffer, offset) = parts(views.views()[row]);
            let (mut slot, mut known) = (usize::MAX, 0);
            if is_told_apart(length) {
                let buffer = buffer as usize;
                if at != Some(buffer) && turns < MOST_TURNS {
                    // What slots were found for is of the buffer before.
                    self.look_up(texts, views, &mut misses, &mut numbers)?;
                    self.turn_to(&buffers[buffer]);
                    at = Some(buffer);
                    turns += 1;
                }
                if at == Some(buffer) {
                    (slot, known) = slot_of(length, offset);
                }
            }
            match self.slots.get(slot) {
                Some(there) if *there >> NUMBER_BITS == known => numbers.put(row, number_in(*there)),
                _ => {
                    let hash = texts.hashes.hash_one(views.value(row));
                    misses[hash as usize % SHARES].push(Miss { row, hash, slot, known });
                }
            }
        }
        self.look_up(texts, views, &mut misses, &mut numbers)?;
        (self.misses, self.left) = (misses, left);
        Ok(())
    }

    /// Numbers the rows whose views the slots know, of buffer `at`, lists the others that have a text, and returns how many
    /// those are: without a branch for each row, which would often be taken for the wrong one.
    fn first(
        &self,
        views: &StringViewArray,
        at: Option<usize>,
        present: impl Iterator<Item = bool>,
        numbers: &mut Numbers<'_>,
        left: &mut [u32],
    ) -> usize {
        let at = at.map_or(u32::MAX, |at| at as u32);
        let mut count = 0;
        let half = numbers.half;
        let rows = numbers.words.chunks_mut(numbers.stride).zip(views.views()).zip(present);
        for (row, ((words, view), is_present)) in rows.enumerate() {
            let (length, buffer, offset) = parts(*view);
            let (slot, known) = slot_of(length, offset);
            let there = self.slots.get(slot).copied().unwrap_or_default();
            let is_known = (there >> NUMBER_BITS == known) & (buffer == at) & is_told_apart(length);
            half.write(&mut words[0], number_in(there) * u32::from(is_present));
            left[count] = row as u32;
            count += usize::from(!is_known & is_present);
        }
        count
    }

    /// Looks texts up, and keeps their numbers.
    fn look_up(
        &mut self,
        texts: &SharedTexts,
        views: &StringViewArray,
        misses: &mut [Vec<Miss>],
        numbers: &mut Numbers<'_>,
    ) -> Result<(), DataFusionError> {
        texts.number(misses, views, |miss, number| {
            if let Some(slot) = self.slots.get_mut(miss.slot)
                && number >> NUMBER_BITS == 0
            {
                *slot = (miss.known << NUMBER_BITS) | u64::from(number);
            }
            numbers.put(miss.row, number);
        })
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

    use arrow_array::builder::StringViewBuilder;
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
                    // What was there before means nothing; the rest stays.
                    let (half, shift) = if turn % 3 == 0 { (Half::Upper, 32) } else { (Half::Lower, 0) };
                    let before = 9 << 32 | 9;
                    let mut words = vec![before; batch.len() * 2];
                    seen.number(&all, &array, Numbers { words: &mut words, stride: 2, half }).unwrap();
                    for (text, words) in batch.iter().zip(words.chunks(2)) {
                        let number = (words[0] >> shift) as u32;
                        let expected = text.clone().map_or(0, |text| *known.entry(text).or_insert(number));
                        let beside = 9 << (32 - shift);
                        prop_assert_eq!(words, [u64::from(expected) << shift | beside, before]);
                    }
                }
            }
            let back = all.finish();
            prop_assert_eq!(back.0.iter().map(Texts::len).sum::<usize>(), known.len());
            for (text, number) in known {
                let one = back.of(std::iter::once(Some(number)));
                prop_assert_eq!(one.value(0), text);
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
        let mut numbers = vec![0; asked.len()];
        let views = views.finish();
        seen.number(&texts, &views, Numbers { words: &mut numbers, stride: 1, half: Half::Lower }).unwrap();
        for (text, number) in asked.iter().zip(&numbers) {
            assert_eq!(known.entry(*text).or_insert(*number), number);
        }
        let numbers: std::collections::HashSet<u64> = known.values().copied().collect();
        assert_eq!(numbers.len(), known.len(), "different texts have different numbers");
    }
}
