//! Group numbers: each value of a GROUP BY gets a dense number, and loses it when no window holds a record of it.
//!
//! A group is *dead* when its newest record is outside every window that reads this GROUP BY. Dead groups are found by
//! a sweep that moves on by a few slots per record, so that no record pays for all.
//!
//! Invariants
//! * A live group keeps its number; numbers are reused only after a sweep has freed them, between batches.
//! * Which number a group has changes no answer.

use arrow_array::ArrayRef;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use thalweg_types::{Micros, hash_bytes};

use crate::key::{Key, KeyRef, for_each_key};

/// The number that stands for "no such group".
pub(crate) const NO_GROUP: u32 = u32::MAX;

pub(crate) struct GroupTable {
    table: HashTable<u32>,
    keys: Vec<Key>,
    /// Largest event time of a record of the group; `Micros::MAX` marks a free slot.
    newest: Vec<Micros>,
    free: Vec<u32>,
    hand: usize,
    key_heap: usize,
}

fn hash(key: KeyRef<'_>) -> u64 {
    use std::hash::BuildHasher;
    match key {
        KeyRef::Null => 0x5bd1_e995,
        KeyRef::Short(word) => FixedState::with_seed(0).hash_one(word),
        KeyRef::Long(bytes) => hash_bytes(bytes),
    }
}

impl GroupTable {
    pub(crate) fn new() -> Self {
        Self {
            table: HashTable::new(),
            keys: Vec::new(),
            newest: Vec::new(),
            free: Vec::new(),
            hand: 0,
            key_heap: 0,
        }
    }

    /// One past the largest number ever given.
    pub(crate) fn slots(&self) -> usize {
        self.keys.len()
    }

    /// Groups that have a number now.
    pub(crate) fn live(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.keys.capacity() * (size_of::<Key>() + size_of::<Micros>())
            + self.table.capacity() * 5
            + self.key_heap
    }

    /// Group number of every row: rows with `accepted` get one where they have none, the others [`NO_GROUP`] then.
    ///
    /// `times` are the times at which accepted rows count.
    pub(crate) fn number(
        &mut self,
        columns: &[ArrayRef],
        times: &[Micros],
        accepted: Option<&[bool]>,
    ) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(times.len());
        for_each_key(columns, times.len(), |row, key| {
            let is_accepted = accepted.is_none_or(|accepted| accepted[row]);
            let hash = hash(key);
            let found = self.table.find(hash, |group| self.keys[*group as usize].as_ref() == key).copied();
            let group = match found {
                Some(group) => group,
                None if is_accepted => self.insert(hash, key),
                None => NO_GROUP,
            };
            if is_accepted {
                let newest = &mut self.newest[group as usize];
                *newest = (*newest).max(times[row]);
            }
            numbers.push(group);
        });
        numbers
    }

    /// The number of one key, if it has one.
    pub(crate) fn find(&self, columns: &[ArrayRef]) -> Option<u32> {
        let mut found = None;
        for_each_key(columns, 1, |_, key| {
            found = self.table.find(hash(key), |group| self.keys[*group as usize].as_ref() == key).copied();
        });
        found
    }

    fn insert(&mut self, hash: u64, key: KeyRef<'_>) -> u32 {
        let key = key.to_key();
        self.key_heap += key.heap_bytes();
        let group = match self.free.pop() {
            Some(group) => {
                self.keys[group as usize] = key;
                self.newest[group as usize] = Micros::MIN;
                group
            }
            None => {
                let group = u32::try_from(self.keys.len()).expect("a task holds fewer than 2^32 - 1 groups");
                assert!(group < NO_GROUP, "a task holds fewer than 2^32 - 1 groups");
                self.keys.push(key);
                self.newest.push(Micros::MIN);
                group
            }
        };
        let keys = &self.keys;
        self.table.insert_unique(hash, group, |group| crate::groups::hash(keys[*group as usize].as_ref()));
        group
    }

    /// Looks at up to `slots` groups and frees those whose newest record is at or below `bound`; calls `freed` with
    /// each of them.
    pub(crate) fn sweep(&mut self, slots: usize, bound: Micros, mut freed: impl FnMut(u32)) {
        for _ in 0..slots.min(self.keys.len()) {
            self.hand = if self.hand + 1 >= self.keys.len() { 0 } else { self.hand + 1 };
            let group = self.hand;
            if self.newest[group] > bound {
                continue;
            }
            let key = std::mem::replace(&mut self.keys[group], Key::Null);
            self.newest[group] = Micros::MAX;
            self.key_heap -= key.heap_bytes();
            let number = group as u32;
            if let Ok(entry) = self.table.find_entry(hash(key.as_ref()), |other| *other == number) {
                entry.remove();
            }
            self.free.push(number);
            freed(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::StringViewArray;

    use super::*;

    fn texts(texts: &[&str]) -> Vec<ArrayRef> {
        vec![Arc::new(StringViewArray::from_iter_values(texts))]
    }

    #[test]
    fn equal_keys_share_a_number_and_refused_rows_make_none() {
        let mut groups = GroupTable::new();
        let long = "a key longer than twelve bytes";
        let numbers = groups.number(&texts(&["a", long, "a", long, "b"]), &[1, 2, 3, 4, 5], None);
        assert_eq!(numbers, [0, 1, 0, 1, 2]);
        let numbers = groups.number(&texts(&["a", "c"]), &[9, 9], Some(&[false, false]));
        assert_eq!(numbers, [0, NO_GROUP]);
        assert_eq!(groups.live(), 3);
    }

    #[test]
    fn a_sweep_frees_what_no_window_holds_and_reuses_the_number() {
        let mut groups = GroupTable::new();
        groups.number(&texts(&["a", "b", "a"]), &[10, 20, 30], None);
        let mut freed = Vec::new();
        groups.sweep(10, 20, |group| freed.push(group));
        assert_eq!(freed, [1], "b is outside every window, a has a newer record");
        assert_eq!(groups.number(&texts(&["c", "a", "b"]), &[40, 40, 40], None), [1, 0, 2]);
    }
}
