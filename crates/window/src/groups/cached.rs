//! Some groups in memory, all others in a back end: of these memory has a tag, and the number by which they are found.
//!
//! A group that is out of memory is *cold*. By key it is found through its tag, which another key may have too: so
//! every cold group with a tag that a batch asks for is brought in ([`Cached::wanted`], [`Cached::load`]) before its
//! keys are compared. A tag without a group is a new group, and nothing is read.
//!
//! A *clock* decides which groups go: a hand goes round over the slots and takes what was not used since it came by
//! the last time. Slots are given back from the end of the list, as lists shrink nowhere else: no group goes into one of
//! the last slots any more, those that are there leave, and then the list is cut ([`Cached::retreat`]).
//!
//! Memory of a cold group: four bytes of tag, five of the table (at a load of 44 to 87 percent), one bit.
//!
//! Not here: reading groups back, which of them are clean, when to evict (`stage::cache`).

use arrow_array::ArrayRef;
use arrow_buffer::ScalarBuffer;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use thalweg_types::{HashKey, Micros, spread_tag};

use super::{Dense, Entry, FREE, NO_GROUP, TAG_BLOCK, note_look, stable_tag};
use crate::image::{Malformed, Reader};
use crate::key::{Key, KeyRef, for_each_block, for_each_key};
use crate::slots::{cut, grow};

pub(crate) struct Cached {
    /// Of the tags.
    hash_key: HashKey,
    /// Numbers of all live groups, by their tags.
    index: HashTable<u32>,
    /// By number; those of free numbers mean nothing.
    tags: Vec<u32>,
    /// A bit for each number that a group has.
    live: Vec<u64>,
    free: Vec<u32>,
    /// Slots of groups in memory, by number.
    slots: HashMap<u32, u32, RandomState>,
    held: Vec<Held>,
    /// Free slots below `limit`.
    free_slots: Vec<u32>,
    /// Slots from it on are to be given back.
    limit: u32,
    /// The retreat has looked at slots before it, and met this number of groups that it could not evict.
    retreat_hand: usize,
    stayed: usize,
    /// A bit for each slot that was used since the clock's hand was there.
    recent: Vec<u64>,
    clock: usize,
    /// Hand of the sweep over slots, and that over numbers of cold groups.
    hand: usize,
    cold_hand: usize,
    key_heap: usize,
    /// While the table is filled from a scan: a bit for each number whose group was in memory since it began.
    seen: Option<Vec<u64>>,
}

/// A group in a slot.
struct Held {
    key: Key,
    /// [`FREE`] where no group is in the slot.
    newest: Micros,
    number: u32,
}

impl Cached {
    pub(crate) fn new(hash_key: HashKey) -> Self {
        Self {
            hash_key,
            index: HashTable::new(),
            tags: Vec::new(),
            live: Vec::new(),
            free: Vec::new(),
            slots: HashMap::default(),
            held: Vec::new(),
            free_slots: Vec::new(),
            limit: u32::MAX,
            retreat_hand: 0,
            stayed: 0,
            recent: Vec::new(),
            clock: 0,
            hand: 0,
            cold_hand: 0,
            key_heap: 0,
            seen: None,
        }
    }

    /// Takes over all groups; each stays in the slot that is its number.
    pub(super) fn of_dense(table: Dense) -> Self {
        let mut cached = Self::new(table.hash_key());
        let (groups, free) = table.into_parts();
        for (number, (key, newest)) in groups.into_iter().enumerate() {
            let number = number as u32;
            if newest == FREE {
                cached.free_slots.push(number);
            } else {
                cached.add(number, cached.tag_of(key.as_ref()));
                cached.slots.insert(number, number);
                cached.key_heap += key.heap_bytes();
            }
            cached.held.push(Held { key, newest, number });
        }
        let count = cached.held.len();
        cached.widen(count);
        cached.recent.resize(count.div_ceil(64), 0);
        cached.free = free;
        cached
    }

    pub(crate) fn hash_key(&self) -> HashKey {
        self.hash_key
    }

    /// The tag of a key.
    #[inline]
    pub(crate) fn tag_of(&self, key: KeyRef<'_>) -> u32 {
        stable_tag(&self.hash_key, key)
    }

    pub(crate) fn numbers(&self) -> usize {
        self.tags.len()
    }

    pub(crate) fn slots(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn resident(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn live(&self) -> usize {
        self.index.len()
    }

    /// Bytes that go with numbers, whether their groups are in memory or not.
    pub(crate) fn key_bytes(&self) -> usize {
        self.index.allocation_size()
            + (self.tags.capacity() + self.free.capacity()) * size_of::<u32>()
            + (self.live.capacity() + self.seen.as_ref().map_or(0, Vec::capacity)) * size_of::<u64>()
    }

    /// Bytes that go with slots.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.held.capacity() * size_of::<Held>()
            + self.slots.allocation_size()
            + self.free_slots.capacity() * size_of::<u32>()
            + self.recent.capacity() * size_of::<u64>()
            + self.key_heap
    }

    /// Numbers below `count` may be used.
    pub(crate) fn widen(&mut self, count: usize) {
        grow(&mut self.tags, count, || 0);
        grow(&mut self.live, count.div_ceil(64), || 0);
    }

    pub(crate) fn is_live(&self, number: u32) -> bool {
        self.live.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub(crate) fn tag(&self, number: u32) -> Option<u32> {
        self.is_live(number).then(|| self.tags[number as usize])
    }

    #[inline]
    pub(crate) fn slot(&self, number: u32) -> Option<u32> {
        self.slots.get(&number).copied()
    }

    pub(crate) fn is_cold(&self, number: u32) -> bool {
        self.is_live(number) && !self.slots.contains_key(&number)
    }

    pub(crate) fn entry(&self, number: u32) -> Entry<'_> {
        let held = &self.held[self.slot(number)? as usize];
        Some((&held.key, held.newest))
    }

    /// The slot was used.
    #[inline]
    pub(crate) fn touch(&mut self, slot: u32) {
        self.recent[slot as usize / 64] |= 1 << (slot % 64);
    }

    /// Adds cold groups with the tags of the rows' keys to `wanted`.
    pub(crate) fn wanted(&self, columns: &[ArrayRef], rows: usize, wanted: &mut Vec<u32>) {
        for_each_key(columns, rows, |_, key| {
            let tag = self.tag_of(key);
            let same = self.index.iter_hash(spread_tag(tag)).filter(|number| {
                note_look();
                self.tags[**number as usize] == tag
            });
            wanted.extend(same.copied().filter(|number| !self.slots.contains_key(number)));
        });
    }

    pub(super) fn number(
        &mut self,
        columns: &[ArrayRef],
        times: &[Micros],
        accepted: Option<&[bool]>,
        mut before: impl FnMut(u32, Option<Micros>),
    ) -> ScalarBuffer<u32> {
        let mut numbers = Vec::with_capacity(times.len());
        for_each_key(columns, times.len(), |row, key| {
            let is_accepted = accepted.is_none_or(|accepted| accepted[row]);
            let tag = self.tag_of(key);
            let number = match self.look_up(tag, key) {
                Some(number) => number,
                None if is_accepted => {
                    let number = self.insert(tag, key);
                    before(number, None);
                    number
                }
                None => NO_GROUP,
            };
            if is_accepted && let Some(slot) = self.slot(number) {
                let newest = &mut self.held[slot as usize].newest;
                before(number, Some(*newest));
                *newest = (*newest).max(times[row]);
            }
            numbers.push(number);
        });
        numbers.into()
    }

    pub(super) fn find(&self, columns: &[ArrayRef]) -> Option<u32> {
        let mut found = None;
        for_each_block(columns, 1, |_, keys| found = self.look_up(self.tag_of(keys[0]), keys[0]));
        found
    }

    fn look_up(&self, tag: u32, key: KeyRef<'_>) -> Option<u32> {
        let is_it = |number: &u32| {
            note_look();
            self.tags[*number as usize] == tag
                && self.entry(*number).is_some_and(|(other, _)| other.as_ref() == key)
        };
        self.index.find(spread_tag(tag), is_it).copied()
    }

    fn insert(&mut self, tag: u32, key: KeyRef<'_>) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            let number = u32::try_from(self.tags.len()).expect("a task holds fewer than 2^32 - 1 groups");
            assert!(number < NO_GROUP, "a task holds fewer than 2^32 - 1 groups");
            number
        });
        self.add(number, tag);
        self.hold(Held { key: key.to_key(), newest: Micros::MIN, number });
        number
    }

    /// Gives a number to a group, which is cold.
    pub(crate) fn add(&mut self, number: u32, tag: u32) {
        self.give(number, tag);
        let tags = &self.tags;
        self.index.insert_unique(spread_tag(tag), number, |other| spread_tag(tags[*other as usize]));
    }

    fn give(&mut self, number: u32, tag: u32) {
        self.widen(number as usize + 1);
        self.tags[number as usize] = tag;
        set(&mut self.live, number);
    }

    /// A scan of the back end begins, which is to fill the table.
    pub(crate) fn begin_fill(&mut self) {
        let mut seen = vec![0; self.tags.len().div_ceil(64)];
        self.held.iter().filter(|held| held.newest != FREE).for_each(|held| set(&mut seen, held.number));
        self.seen = Some(seen);
    }

    pub(crate) fn end_fill(&mut self) {
        self.seen = None;
    }

    /// Whether the scan's value of a group is the present one: it is cold, and was when the scan began and ever since.
    pub(crate) fn may_fill(&self, number: u32) -> bool {
        let Some(seen) = &self.seen else { return false };
        let is_new = seen.get(number as usize / 64).is_none_or(|word| word >> (number % 64) & 1 == 1);
        !is_new && self.is_cold(number)
    }

    /// Gives numbers to groups, all of which are cold; none of them is found before [`Cached::index_cold`].
    pub(crate) fn add_unindexed(&mut self, tags: &[(u32, u32)]) {
        for (number, tag) in tags {
            self.give(*number, *tag);
        }
    }

    /// Lets all groups be found, of a table in which none was.
    ///
    /// They go into the table in about the order of their places in it, some at a time: so memory is gone through from
    /// one end to the other, instead of a miss per group.
    pub(crate) fn index_cold(&mut self) {
        let count = self.live.iter().map(|word| word.count_ones() as usize).sum();
        let tags = &self.tags;
        self.index.reserve(count, |number| spread_tag(tags[*number as usize]));
        // The table uses the low bits of a hash; the upper ones of these, as many as there are parts.
        let shift = (count.next_power_of_two() * 2).ilog2().saturating_sub(PARTS.ilog2());
        let part = |tag: u32| (spread_tag(tag) >> shift) as usize % PARTS;
        let mut ordered: Vec<u32> = Vec::with_capacity(TOGETHER.min(count));
        for first in (0..self.tags.len()).step_by(TOGETHER) {
            let numbers = first as u32..(first + TOGETHER).min(self.tags.len()) as u32;
            let live = || numbers.clone().filter(|number| self.is_live(*number));
            let mut ends = [0_usize; PARTS];
            live().for_each(|number| ends[part(self.tags[number as usize])] += 1);
            let mut end = 0;
            for place in &mut ends {
                end += std::mem::replace(place, end);
            }
            ordered.clear();
            ordered.resize(end, 0);
            for number in live() {
                let place = &mut ends[part(self.tags[number as usize])];
                ordered[*place] = number;
                *place += 1;
            }
            let tags = &self.tags;
            for number in &ordered {
                let hash = spread_tag(tags[*number as usize]);
                self.index.insert_unique(hash, *number, |other| spread_tag(tags[*other as usize]));
            }
        }
    }

    fn hold(&mut self, held: Held) -> u32 {
        if let Some(seen) = &mut self.seen {
            set(seen, held.number);
        }
        self.key_heap += held.key.heap_bytes();
        let number = held.number;
        if self.free_slots.is_empty() {
            self.stay();
        }
        let slot = match self.free_slots.pop() {
            Some(slot) => {
                self.held[slot as usize] = held;
                slot
            }
            None => {
                let slot = self.held.len();
                let mut held = Some(held);
                grow(&mut self.held, slot + 1, || held.take().unwrap_or(EMPTY));
                grow(&mut self.recent, self.held.len().div_ceil(64), || 0);
                slot as u32
            }
        };
        self.slots.insert(number, slot);
        self.touch(slot);
        slot
    }

    /// Brings a cold group in; its slot.
    pub(crate) fn load(&mut self, number: u32, key: Key, newest: Micros) -> u32 {
        self.hold(Held { key, newest, number })
    }

    pub(crate) fn loaded(&mut self) {
        self.free = (0..self.tags.len() as u32).rev().filter(|number| !self.is_live(*number)).collect();
    }

    /// Takes a group out of its slot.
    fn leave(&mut self, slot: u32) -> Held {
        let held = std::mem::replace(&mut self.held[slot as usize], EMPTY);
        self.key_heap -= held.key.heap_bytes();
        self.slots.remove(&held.number);
        if slot < self.limit {
            self.free_slots.push(slot);
        }
        held
    }

    /// Evicts up to `count` groups that are clean and were not used lately; calls `evicted` with the slot of each.
    /// How many went: fewer where too few may go, or where they are not found among some slots per group.
    pub(crate) fn evict(
        &mut self,
        count: usize,
        is_clean: impl Fn(u32) -> bool,
        mut evicted: impl FnMut(u32),
    ) -> usize {
        let mut gone = 0;
        for _ in 0..LOOKS_PER_GROUP * count + LOOKS {
            if gone == count {
                break;
            }
            self.clock = if self.clock + 1 >= self.held.len() { 0 } else { self.clock + 1 };
            let Some(held) = self.held.get(self.clock) else { break };
            let (word, bit) = (self.clock / 64, 1 << (self.clock % 64));
            if held.newest == FREE {
                continue;
            }
            if self.recent[word] & bit != 0 {
                self.recent[word] &= !bit;
            } else if is_clean(held.number) {
                self.leave(self.clock as u32);
                evicted(self.clock as u32);
                gone += 1;
            }
        }
        gone
    }

    /// Slots from `slots` on are to be given back, unless groups need them first.
    pub(crate) fn begin_retreat(&mut self, slots: usize) {
        if !self.is_retreating() && slots < self.held.len() {
            self.limit = slots as u32;
            self.free_slots.retain(|slot| *slot < self.limit);
            (self.retreat_hand, self.stayed) = (slots, 0);
        }
    }

    pub(crate) fn is_retreating(&self) -> bool {
        self.limit != u32::MAX
    }

    /// No slots are given back.
    fn stay(&mut self) {
        let end = self.held.len() as u32;
        if self.limit < end {
            let held = &self.held;
            let is_free = |slot: &u32| held[*slot as usize].newest == FREE;
            self.free_slots.extend((self.limit..end).filter(is_free));
        }
        self.limit = u32::MAX;
    }

    /// Looks at up to `count` of the slots that are to be given back and evicts the clean groups in them; calls
    /// `evicted` with the slot of each. How many slots are left where they were given back.
    pub(crate) fn retreat(
        &mut self,
        count: usize,
        is_clean: impl Fn(u32) -> bool,
        mut evicted: impl FnMut(u32),
    ) -> Option<usize> {
        if !self.is_retreating() {
            return None;
        }
        let end = self.held.len().min(self.retreat_hand + count);
        for slot in self.retreat_hand..end {
            let held = &self.held[slot];
            if held.newest == FREE {
                continue;
            }
            if is_clean(held.number) {
                self.leave(slot as u32);
                evicted(slot as u32);
            } else {
                self.stayed += 1;
            }
        }
        self.retreat_hand = end;
        if end < self.held.len() {
            return None;
        }
        let left = self.limit as usize;
        if std::mem::take(&mut self.stayed) > 0 {
            self.retreat_hand = left;
            return None;
        }
        cut(&mut self.held, left);
        cut(&mut self.recent, left.div_ceil(64));
        self.slots.shrink_to(left);
        self.free_slots.shrink_to_fit();
        self.limit = u32::MAX;
        Some(left)
    }

    pub(super) fn sweep(
        &mut self,
        slots: usize,
        bound: Micros,
        mut freed: impl FnMut(u32, u32, (&Key, Micros)),
    ) {
        for _ in 0..slots.min(self.held.len()) {
            self.hand = if self.hand + 1 >= self.held.len() { 0 } else { self.hand + 1 };
            if self.held[self.hand].newest <= bound {
                let slot = self.hand as u32;
                let held = self.leave(slot);
                self.free_number(held.number);
                freed(held.number, slot, (&held.key, held.newest));
            }
        }
    }

    /// Frees the number of a group that is in no slot.
    pub(crate) fn free_number(&mut self, number: u32) {
        let hash = spread_tag(self.tags[number as usize]);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        self.live[number as usize / 64] &= !(1 << (number % 64));
        self.free.push(number);
    }

    /// Up to `count` cold groups, from where the last call ended; at most as many numbers as there are are looked at.
    pub(crate) fn next_cold(&mut self, count: usize) -> Vec<u32> {
        let mut found = Vec::new();
        for _ in 0..self.tags.len() {
            if found.len() == count {
                break;
            }
            self.cold_hand = if self.cold_hand + 1 >= self.tags.len() { 0 } else { self.cold_hand + 1 };
            if self.is_cold(self.cold_hand as u32) {
                found.push(self.cold_hand as u32);
            }
        }
        found
    }
}

/// Sets the bit of a number where there is room for it.
fn set(words: &mut [u64], number: u32) {
    if let Some(word) = words.get_mut(number as usize / 64) {
        *word |= 1 << (number % 64);
    }
}

/// Slots that are looked at for each group that is to be evicted, and beyond.
const LOOKS_PER_GROUP: usize = 8;
const LOOKS: usize = 64;

/// Parts of a table that are filled one after the other, and groups that are put into it together.
const PARTS: usize = 1 << 12;
const TOGETHER: usize = 1 << 20;

const EMPTY: Held = Held { key: Key::Null, newest: FREE, number: NO_GROUP };

/// Appends a block of tags: a bit for each number that a group has, then their tags; whether there are any.
pub(crate) fn save_tags(block: u32, tag: impl Fn(u32) -> Option<u32>, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.resize(start + TAG_BLOCK as usize / 8, 0);
    let mut is_any = false;
    for place in 0..TAG_BLOCK {
        if let Some(tag) = tag(block * TAG_BLOCK + place) {
            out[start + place as usize / 8] |= 1 << (place % 8);
            out.extend_from_slice(&tag.to_le_bytes());
            is_any = true;
        }
    }
    is_any
}

/// Reads what [`save_tags`] wrote: numbers, which are below `numbers`, and their tags.
pub(crate) fn read_tags(
    block: u32,
    numbers: usize,
    image: &mut Reader<'_>,
) -> Result<Vec<(u32, u32)>, Malformed> {
    let bits = image.array::<{ TAG_BLOCK as usize / 8 }>("groups of a block")?;
    let mut tags = Vec::new();
    for place in (0..TAG_BLOCK).filter(|place| bits[*place as usize / 8] >> (place % 8) & 1 == 1) {
        let number = block.checked_mul(TAG_BLOCK).and_then(|first| first.checked_add(place));
        let Some(number) = number.filter(|number| (*number as usize) < numbers) else {
            return Err(image.malformed("number of a group", format_args!("below {numbers}"), "another"));
        };
        tags.push((number, u32::from_le_bytes(image.array("tag of a group")?)));
    }
    image.finish("block of tags")?;
    Ok(tags)
}
