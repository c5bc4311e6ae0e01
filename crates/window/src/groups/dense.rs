//! Every group in memory, in the slot that is its number.
//!
//! The table's hash has a seed of its own: a client that knows the code cannot send keys for one place of it. Which
//! number a group gets is a matter of the order of keys alone.
//!
//! Not here: groups that are out of memory (`cached`).

use arrow_array::ArrayRef;
use arrow_buffer::ScalarBuffer;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use thalweg_types::{HashKey, Micros, spread_tag};

use super::{Entry, FREE, NO_GROUP, note_look};
use crate::image::{Malformed, Reader};
use crate::key::{BLOCK, Key, KeyRef, for_each_block};
use crate::slots::grow;
use crate::warm::warm;

pub(crate) struct Dense {
    /// Of the tags that a checkpoint has; those of this table are others.
    hash_key: HashKey,
    hasher: RandomState,
    table: HashTable<Slot>,
    groups: Vec<Group>,
    free: Vec<u32>,
    hand: usize,
    key_heap: usize,
}

/// What a look-up reads of a group, in half a cache line.
#[repr(align(32))]
struct Group {
    key: Key,
    /// Largest event time of a record of the group; [`FREE`] for a free number.
    newest: Micros,
}

/// A group in the table. The tag is next to the number, so that a look-up meets keys of other groups next to never,
/// and a table that grows reads no keys at all.
#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    group: u32,
}

#[inline]
fn tag(hasher: &RandomState, key: KeyRef<'_>) -> u32 {
    use std::hash::BuildHasher;
    let hash = match key {
        KeyRef::Null => 0x5bd1_e995,
        KeyRef::Short(word) => hasher.hash_one(word),
        KeyRef::Long(bytes) => hasher.hash_one(bytes),
    };
    (hash ^ hash >> 32) as u32
}

impl Dense {
    /// Bytes that a group takes here, a short key included.
    pub(crate) const BYTES_PER_GROUP: usize = size_of::<Group>() + size_of::<Slot>() + 1;

    pub(crate) fn new(hash_key: HashKey) -> Self {
        Self {
            hash_key,
            hasher: RandomState::default(),
            table: HashTable::new(),
            groups: Vec::new(),
            free: Vec::new(),
            hand: 0,
            key_heap: 0,
        }
    }

    pub(crate) fn hash_key(&self) -> HashKey {
        self.hash_key
    }

    /// One past the largest number ever given.
    pub(crate) fn slots(&self) -> usize {
        self.groups.len()
    }

    /// Groups that have a number now.
    pub(crate) fn live(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>()
            + self.table.capacity() * (size_of::<Slot>() + 1)
            + self.key_heap
    }

    /// Group number of every row: rows with `accepted` get one where they have none, the others [`NO_GROUP`] then.
    ///
    /// `times` are the times at which accepted rows count.
    ///
    /// `before` is called before a group's entry changes, with its number and its newest time; `None` where the number
    /// was free.
    ///
    /// Works on blocks of keys: the loads that a look-up needs depend on each other, those of different keys do not,
    /// so the memory's latency is paid once per block and not once per row.
    pub(crate) fn number(
        &mut self,
        columns: &[ArrayRef],
        times: &[Micros],
        accepted: Option<&[bool]>,
        mut before: impl FnMut(u32, Option<Micros>),
    ) -> ScalarBuffer<u32> {
        let mut numbers = Vec::with_capacity(times.len());
        for_each_block(columns, times.len(), |first, keys| {
            let mut slots = [Slot { tag: 0, group: NO_GROUP }; BLOCK];
            for (slot, key) in slots.iter_mut().zip(keys) {
                slot.tag = tag(&self.hasher, *key);
            }
            let slots = &mut slots[..keys.len()];
            for slot in slots.iter_mut() {
                let found = self.table.find(spread_tag(slot.tag), |other| {
                    note_look();
                    other.tag == slot.tag
                });
                slot.group = found.map_or(NO_GROUP, |found| found.group);
            }
            warm(slots.iter().filter(|slot| slot.group != NO_GROUP).map(|slot| {
                let group = &self.groups[slot.group as usize];
                group.key.first_word() ^ group.newest as u64
            }));
            for (index, (slot, key)) in slots.iter().zip(keys).enumerate() {
                let row = first + index;
                let is_accepted = accepted.is_none_or(|accepted| accepted[row]);
                let group = match slot.group {
                    group if group != NO_GROUP && self.groups[group as usize].key.as_ref() == *key => group,
                    // New, or another key with the same tag, or inserted by a row before it in this block.
                    _ => match self.look_up(slot.tag, *key) {
                        Some(group) => group,
                        None if is_accepted => {
                            let group = self.insert(slot.tag, *key);
                            before(group, None);
                            group
                        }
                        None => NO_GROUP,
                    },
                };
                if is_accepted {
                    let newest = &mut self.groups[group as usize].newest;
                    before(group, Some(*newest));
                    *newest = (*newest).max(times[row]);
                }
                numbers.push(group);
            }
        });
        numbers.into()
    }

    /// The number of one key, if it has one.
    pub(crate) fn find(&self, columns: &[ArrayRef]) -> Option<u32> {
        let mut found = None;
        for_each_block(columns, 1, |_, keys| found = self.look_up(tag(&self.hasher, keys[0]), keys[0]));
        found
    }

    fn look_up(&self, tag: u32, key: KeyRef<'_>) -> Option<u32> {
        let is_it = |slot: &Slot| {
            note_look();
            slot.tag == tag && self.groups[slot.group as usize].key.as_ref() == key
        };
        self.table.find(spread_tag(tag), is_it).map(|slot| slot.group)
    }

    fn insert(&mut self, tag: u32, key: KeyRef<'_>) -> u32 {
        let key = key.to_key();
        self.key_heap += key.heap_bytes();
        let new = Group { key, newest: Micros::MIN };
        let group = match self.free.pop() {
            Some(group) => {
                self.groups[group as usize] = new;
                group
            }
            None => {
                let group =
                    u32::try_from(self.groups.len()).expect("a task holds fewer than 2^32 - 1 groups");
                assert!(group < NO_GROUP, "a task holds fewer than 2^32 - 1 groups");
                let mut new = Some(new);
                let free = || Group { key: Key::Null, newest: FREE };
                grow(&mut self.groups, group as usize + 1, || new.take().unwrap_or_else(free));
                group
            }
        };
        self.table.insert_unique(spread_tag(tag), Slot { tag, group }, |slot| spread_tag(slot.tag));
        group
    }

    /// What a number represents.
    pub(crate) fn entry(&self, group: u32) -> Entry<'_> {
        let group = self.groups.get(group as usize)?;
        (group.newest != FREE).then_some((&group.key, group.newest))
    }

    /// Takes over a group of this number. Numbers that no group has taken by the end stay unused until
    /// [`Dense::loaded`]. `image`: where it was read, for messages about damage.
    pub(crate) fn load(
        &mut self,
        group: u32,
        (key, newest): (Key, Micros),
        image: &Reader<'_>,
    ) -> Result<(), Malformed> {
        if group == NO_GROUP || self.entry(group).is_some() {
            return Err(image.malformed("number of a group", "one that is free", group));
        }
        let tag = tag(&self.hasher, key.as_ref());
        if let Some(other) = self.look_up(tag, key.as_ref()) {
            return Err(image.malformed(
                "key of a group",
                "one of no other",
                format_args!("that of {other}"),
            ));
        }
        grow(&mut self.groups, group as usize + 1, || Group { key: Key::Null, newest: FREE });
        self.key_heap += key.heap_bytes();
        self.groups[group as usize] = Group { key, newest };
        self.table.insert_unique(spread_tag(tag), Slot { tag, group }, |slot| spread_tag(slot.tag));
        Ok(())
    }

    /// Tags of some groups, by number.
    #[cfg(test)]
    pub(super) fn first_tags(&self) -> Vec<u32> {
        self.groups.iter().take(8).map(|group| tag(&self.hasher, group.key.as_ref())).collect()
    }

    /// All groups are loaded: the remaining numbers are free.
    pub(crate) fn loaded(&mut self) {
        let numbers = 0..self.groups.len() as u32;
        self.free = numbers.rev().filter(|group| self.entry(*group).is_none()).collect();
    }

    /// Keys and newest times by number, and the free numbers.
    pub(super) fn into_parts(self) -> (impl IntoIterator<Item = (Key, Micros)>, Vec<u32>) {
        (self.groups.into_iter().map(|group| (group.key, group.newest)), self.free)
    }

    /// Looks at up to `slots` groups and frees those whose newest record is at or below `bound`; calls `freed` with
    /// each of them before its number may be given again.
    pub(crate) fn sweep(&mut self, slots: usize, bound: Micros, mut freed: impl FnMut(u32, (&Key, Micros))) {
        for _ in 0..slots.min(self.groups.len()) {
            self.hand = if self.hand + 1 >= self.groups.len() { 0 } else { self.hand + 1 };
            let group = &mut self.groups[self.hand];
            if group.newest > bound {
                continue;
            }
            let key = std::mem::replace(&mut group.key, Key::Null);
            let newest = std::mem::replace(&mut group.newest, FREE);
            self.key_heap -= key.heap_bytes();
            let number = self.hand as u32;
            let tag = tag(&self.hasher, key.as_ref());
            let is_it = |slot: &Slot| {
                note_look();
                slot.group == number
            };
            if let Ok(entry) = self.table.find_entry(spread_tag(tag), is_it) {
                entry.remove();
            }
            self.free.push(number);
            freed(number, (&key, newest));
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
        let mut groups = Dense::new(HashKey::draw());
        let long = "a key longer than twelve bytes";
        let numbers = groups.number(&texts(&["a", long, "a", long, "b"]), &[1, 2, 3, 4, 5], None, |_, _| {});
        assert_eq!(*numbers, [0, 1, 0, 1, 2]);
        let numbers = groups.number(&texts(&["a", "c"]), &[9, 9], Some(&[false, false]), |_, _| {});
        assert_eq!(*numbers, [0, NO_GROUP]);
        assert_eq!(groups.live(), 3);
    }

    /// 400,000 keys have some twenty pairs with the same tag; numbers must distinguish them.
    #[test]
    fn keys_with_the_same_tag_are_different_groups() {
        let keys: Vec<String> = (0..400_000).map(|n| format!("k{n}")).collect();
        let column: Vec<ArrayRef> = vec![Arc::new(StringViewArray::from_iter_values(&keys))];
        let mut groups = Dense::new(HashKey::draw());
        let mut tags = Vec::new();
        for_each_block(&column, keys.len(), |_, keys| {
            tags.extend(keys.iter().map(|key| tag(&groups.hasher, *key)));
        });
        tags.sort_unstable();
        assert!(tags.windows(2).any(|pair| pair[0] == pair[1]), "without a collision this shows nothing");
        let first = groups.number(&column, &vec![1; keys.len()], None, |_, _| {});
        assert!(first.iter().enumerate().all(|(row, group)| row == *group as usize));
        assert_eq!(groups.number(&column, &vec![2; keys.len()], None, |_, _| {}), first);
        let mut freed = 0;
        groups.sweep(keys.len(), 2, |_, _| freed += 1);
        assert_eq!((freed, groups.live()), (keys.len(), 0));
    }

    #[test]
    fn a_sweep_frees_what_no_window_holds_and_reuses_the_number() {
        let mut groups = Dense::new(HashKey::draw());
        groups.number(&texts(&["a", "b", "a"]), &[10, 20, 30], None, |_, _| {});
        let mut freed = Vec::new();
        groups.sweep(10, 20, |group, _| freed.push(group));
        assert_eq!(freed, [1], "b is outside every window, a has a newer record");
        assert_eq!(*groups.number(&texts(&["c", "a", "b"]), &[40, 40, 40], None, |_, _| {}), [1, 0, 2]);
    }
}
