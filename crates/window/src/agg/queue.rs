//! One queue of values per group, ordered by (time, arrival), for windows that forget their oldest first.
//!
//! All queues share one slab: a queue is a doubly linked list of slots, so that a group costs 8 bytes and a value
//! its slot, whatever the mix of groups; freed slots are used again, the latest first, while they are in cache.
//!
//! A value may *bar* older ones (a larger one does for `max`): they are dropped, as they can never be the answer.
//!
//! A late value is put in its place by walking back from the newest. One that would walk far goes to a tree
//! next to the list, so that disorder costs at most a logarithm; then the oldest, and the best, is the better of
//! the two heads.
//!
//! Invariants
//! * Keys ascend within a list and within a tree; within each, no value bars an older one.
//! * A group never gets two values with one key. (What builds before stages numbered arrivals left in a list may have
//!   equal ones, in order of arrival.)

use std::collections::BTreeMap;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::kind::Item;
use crate::image::{Malformed, Reader, put, put_signed};
use crate::slots::{cut, grow};
use crate::warm::warm;

/// Event time and arrival.
pub(super) type Key = (i64, u64);

const NONE: u32 = u32::MAX;
/// Longest walk: about the cost of a look-up in a tree.
const WALK: usize = 16;

pub(super) struct Queues<V> {
    ends: Vec<Ends>,
    slots: Vec<Slot<V>>,
    /// First of the free slots, which are linked by `newer`.
    free: u32,
    used: usize,
    /// Heap bytes that values own.
    owned: usize,
    trees: HashMap<u32, BTreeMap<Key, V>, RandomState>,
}

#[derive(Clone, Copy)]
struct Ends {
    oldest: u32,
    newest: u32,
}

struct Slot<V> {
    key: Key,
    value: V,
    older: u32,
    newer: u32,
}

const EMPTY: Ends = Ends { oldest: NONE, newest: NONE };

impl<V: Item> Queues<V> {
    pub(super) fn new() -> Self {
        Self { ends: Vec::new(), slots: Vec::new(), free: NONE, used: 0, owned: 0, trees: HashMap::default() }
    }

    pub(super) fn grow(&mut self, groups: usize) {
        grow(&mut self.ends, groups, || EMPTY);
    }

    pub(super) fn cut(&mut self, groups: usize) {
        cut(&mut self.ends, groups);
    }

    /// Brings both ends of queues into the cache.
    #[inline(always)]
    pub(super) fn warm(&self, groups: &[u32]) {
        let ends = |group: &u32| self.ends[*group as usize];
        let time = |slot: u32| self.slots.get(slot as usize).map_or(0, |slot| slot.key.0 as u64);
        warm(groups.iter().map(|group| u64::from(ends(group).newest)));
        warm(groups.iter().map(|group| time(ends(group).newest) ^ time(ends(group).oldest)));
    }

    /// Puts a value in its place, unless a newer one bars it, and drops the older ones that it bars.
    #[inline(always)]
    pub(super) fn insert(&mut self, group: u32, key: Key, value: V, bars: impl Fn(&V, &V) -> bool) {
        let mut older = self.ends[group as usize].newest;
        let mut newer = NONE;
        let mut walked = 0;
        while older != NONE && self.slots[older as usize].key > key {
            // The oldest of the newer ones bars it if any does.
            if bars(&self.slots[older as usize].value, &value) {
                return;
            }
            if walked == WALK {
                return self.insert_in_tree(group, key, value, bars);
            }
            walked += 1;
            newer = older;
            older = self.slots[older as usize].older;
        }
        while older != NONE && bars(&value, &self.slots[older as usize].value) {
            let next = self.slots[older as usize].older;
            self.release(older);
            older = next;
        }
        if !self.trees.is_empty() {
            self.prune_tree(group, key, &value, &bars);
        }
        let slot = self.allocate(Slot { key, value, older, newer });
        let ends = &mut self.ends[group as usize];
        match older {
            NONE => ends.oldest = slot,
            _ => self.slots[older as usize].newer = slot,
        }
        match newer {
            NONE => ends.newest = slot,
            _ => self.slots[newer as usize].older = slot,
        }
    }

    /// Takes the value with this key, if it is still there; it is the oldest of its group.
    #[inline(always)]
    pub(super) fn remove(&mut self, group: u32, key: Key) {
        let ends = &mut self.ends[group as usize];
        let oldest = ends.oldest;
        if oldest != NONE && self.slots[oldest as usize].key == key {
            let newer = self.slots[oldest as usize].newer;
            ends.oldest = newer;
            match newer {
                NONE => ends.newest = NONE,
                _ => self.slots[newer as usize].older = NONE,
            }
            self.release(oldest);
        } else if !self.trees.is_empty() {
            self.remove_from_tree(group, key);
        }
    }

    pub(super) fn reset(&mut self, group: u32) {
        let mut slot = std::mem::replace(&mut self.ends[group as usize], EMPTY).oldest;
        while slot != NONE {
            let newer = self.slots[slot as usize].newer;
            self.release(slot);
            slot = newer;
        }
        if let Some(tree) = self.trees.remove(&group) {
            self.owned -= tree.values().map(Item::heap).sum::<usize>();
        }
    }

    /// The oldest of the list and the oldest of the tree.
    #[inline(always)]
    pub(super) fn heads(&self, group: u32) -> [Option<(Key, &V)>; 2] {
        let oldest = self.ends[group as usize].oldest;
        let in_list = (oldest != NONE).then(|| {
            let slot = &self.slots[oldest as usize];
            (slot.key, &slot.value)
        });
        [in_list, if self.trees.is_empty() { None } else { self.oldest_in_tree(group) }]
    }

    /// Appends a group's list and its tree, values by `save`.
    pub(super) fn save(&self, group: u32, out: &mut Vec<u8>, save: impl Fn(&V, &mut Vec<u8>)) {
        let put_value = |out: &mut Vec<u8>, (time, seq): Key, value: &V| {
            put_signed(out, time);
            put(out, seq);
            save(value, out);
        };
        put(out, self.list(group).count() as u64);
        self.list(group).for_each(|slot| put_value(out, slot.key, &slot.value));
        let tree = self.trees.get(&group);
        put(out, tree.map_or(0, BTreeMap::len) as u64);
        tree.into_iter().flatten().for_each(|(key, value)| put_value(out, *key, value));
    }

    /// The list of a group, from the oldest.
    fn list(&self, group: u32) -> impl Iterator<Item = &Slot<V>> {
        let at = |slot: u32| self.slots.get(slot as usize);
        std::iter::successors(at(self.ends[group as usize].oldest), move |slot| at(slot.newer))
    }

    /// Takes over what [`Queues::save`] wrote; the group's queue is empty before.
    pub(super) fn load(
        &mut self,
        group: u32,
        image: &mut Reader<'_>,
        load: impl Fn(&mut Reader<'_>) -> Result<V, Malformed>,
    ) -> Result<(), Malformed> {
        for in_tree in [false, true] {
            let mut before = None;
            for _ in 0..image.count("values of a queue")? {
                let key = (image.signed("time in a queue")?, image.number("arrival in a queue")?);
                if before.is_some_and(|before| before > key || in_tree && before == key) {
                    let expected = format!("behind {before:?}");
                    return Err(image.malformed("order of a queue", expected, format_args!("{key:?}")));
                }
                before = Some(key);
                let value = load(image)?;
                if in_tree {
                    self.owned += value.heap();
                    self.trees.entry(group).or_default().insert(key, value);
                } else {
                    self.insert(group, key, value, |_, _| false);
                }
            }
        }
        Ok(())
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        let in_trees: usize = self.trees.values().map(BTreeMap::len).sum();
        self.ends.capacity() * size_of::<Ends>()
            + self.slots.capacity() * size_of::<Slot<V>>()
            + self.trees.allocation_size()
            + in_trees * (size_of::<Key>() + size_of::<V>()) * 2
            + self.owned
    }

    pub(super) const fn bytes_per_group() -> usize {
        size_of::<Ends>()
    }

    pub(super) const fn bytes_per_value() -> usize {
        size_of::<Slot<V>>()
    }

    #[inline(always)]
    fn allocate(&mut self, slot: Slot<V>) -> u32 {
        self.used += 1;
        self.owned += slot.value.heap();
        let index = self.free;
        if index == NONE {
            let index = u32::try_from(self.slots.len()).expect("a task keeps fewer than 2^32 values");
            assert!(index != NONE, "a task keeps fewer than 2^32 values");
            self.slots.push(slot);
            return index;
        }
        self.free = self.slots[index as usize].newer;
        self.slots[index as usize] = slot;
        index
    }

    #[inline(always)]
    fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        self.owned -= std::mem::take(&mut slot.value).heap();
        slot.newer = self.free;
        self.free = index;
        self.used -= 1;
    }

    #[cold]
    fn insert_in_tree(&mut self, group: u32, key: Key, value: V, bars: impl Fn(&V, &V) -> bool) {
        self.prune_tree(group, key, &value, &bars);
        let tree = self.trees.entry(group).or_default();
        if tree.range(key..).next().is_none_or(|(_, newer)| !bars(newer, &value)) {
            self.owned += value.heap();
            let same = tree.insert(key, value);
            debug_assert!(same.is_none(), "{key:?} is one value's alone");
        } else if tree.is_empty() {
            self.trees.remove(&group);
        }
    }

    #[cold]
    fn prune_tree(&mut self, group: u32, key: Key, value: &V, bars: &impl Fn(&V, &V) -> bool) {
        let Some(tree) = self.trees.get_mut(&group) else { return };
        while let Some((older, barred)) = tree.range(..key).next_back()
            && bars(value, barred)
        {
            let older = *older;
            self.owned -= tree.remove(&older).map_or(0, |value| value.heap());
        }
        if tree.is_empty() {
            self.trees.remove(&group);
        }
    }

    #[cold]
    fn remove_from_tree(&mut self, group: u32, key: Key) {
        let Some(tree) = self.trees.get_mut(&group) else { return };
        if tree.first_key_value().is_some_and(|(oldest, _)| *oldest == key) {
            self.owned -= tree.pop_first().map_or(0, |(_, value)| value.heap());
        }
        if tree.is_empty() {
            self.trees.remove(&group);
        }
    }

    #[cold]
    fn oldest_in_tree(&self, group: u32) -> Option<(Key, &V)> {
        self.trees.get(&group)?.first_key_value().map(|(key, value)| (*key, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn freed_slots_are_used_again() {
        let mut queues = Queues::new();
        queues.grow(2);
        for round in 0..100_u64 {
            queues.insert((round % 2) as u32, (round as i64, round), round, |_: &u64, _: &u64| false);
            if round >= 3 {
                queues.remove(((round - 3) % 2) as u32, (round as i64 - 3, round - 3));
            }
        }
        assert_eq!((queues.slots.len(), queues.used), (4, 3));
        queues.reset(0);
        queues.reset(1);
        assert_eq!(queues.used, 0);
    }

    #[test]
    fn values_of_one_key_in_an_old_image_keep_their_order() {
        let (mut old, mut queues) = (Queues::new(), Queues::new());
        let keys = [(3, 1), (3, 1), (3, 1), (4, 2)];
        old.grow(1);
        queues.grow(1);
        for (value, key) in keys.into_iter().enumerate() {
            old.insert(0, key, value as u64, |_: &u64, _: &u64| false);
        }
        let mut image = Vec::new();
        old.save(0, &mut image, |value, out| put(out, *value));
        queues.load(0, &mut Reader::new(&image), |image| image.number("value")).unwrap();
        for (value, key) in keys.into_iter().enumerate() {
            assert_eq!(queues.heads(0)[0], Some((key, &(value as u64))));
            queues.remove(0, key);
        }
    }

    proptest! {
        /// Heavy disorder in one group, so that both the list and the tree are used.
        #[test]
        fn heads_are_the_oldest_and_the_largest(
            script in proptest::collection::vec((0_i64..200, 0_u64..50, 0_usize..3), 1..300)
        ) {
            let mut all = Queues::new();
            let mut largest = Queues::new();
            all.grow(1);
            largest.grow(1);
            let mut live: BTreeMap<Key, u64> = BTreeMap::new();
            for (arrival, (time, value, removes)) in script.into_iter().enumerate() {
                let key = (time, arrival as u64);
                live.insert(key, value);
                all.insert(0, key, value, |_, _| false);
                largest.insert(0, key, value, |newer, older| newer >= older);
                for _ in 0..removes / 2 {
                    if let Some((key, _)) = live.pop_first() {
                        all.remove(0, key);
                        largest.remove(0, key);
                    }
                }
                let first = all.heads(0).into_iter().flatten().min_by_key(|(key, _)| *key);
                prop_assert_eq!(first.map(|(_, value)| *value), live.values().next().copied());
                let best = largest.heads(0).into_iter().flatten().map(|(_, value)| *value).max();
                prop_assert_eq!(best, live.values().max().copied());
            }
        }
    }
}
