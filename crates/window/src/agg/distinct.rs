//! `count(distinct x)`: how often each value is in the window, for all groups in one table.
//!
//! Entries are in one slab and are found through a table of their numbers, by the hash of group and value;
//! the entries of a group are linked, so that a group is forgotten without looking at others.

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::kind::{Item, Kind, Values};
use super::output::{Writer, repeat};
use super::walk::{Walk, walk};
use super::{Aggregate, Column, NO_GROUP, Steps, Stream};
use crate::image::{Malformed, Reader, put};
use crate::slots::{cut, grow};
use crate::warm::warm;

const NONE: u32 = u32::MAX;

pub(super) struct Distinct<K: Kind> {
    calls: Vec<usize>,
    arg: usize,
    table: Table<K>,
}

struct Table<K: Kind> {
    groups: Vec<Group>,
    entries: Vec<Entry<K::Item>>,
    /// First of the free entries, which are linked by `next`.
    free: u32,
    index: HashTable<u32>,
    hasher: RandomState,
    /// Heap bytes that values own.
    owned: usize,
}

#[derive(Clone, Copy)]
struct Group {
    distinct: u32,
    first: u32,
}

struct Entry<V> {
    value: V,
    /// Occurrences in the window; 0 where the entry is free.
    count: u64,
    group: u32,
    previous: u32,
    next: u32,
}

impl<K: Kind> Distinct<K> {
    pub(super) fn new(calls: Vec<usize>, arg: usize) -> Self {
        let table = Table {
            groups: Vec::new(),
            entries: Vec::new(),
            free: NONE,
            index: HashTable::new(),
            hasher: RandomState::default(),
            owned: 0,
        };
        Self { calls, arg, table }
    }
}

impl<K: Kind> Table<K> {
    fn add(&mut self, group: u32, value: K::Ref<'_>) {
        let hash = K::hash(&self.hasher, group, value);
        if let Some(index) =
            self.index.find(hash, |index| is::<K>(&self.entries[*index as usize], group, value))
        {
            self.entries[*index as usize].count += 1;
            return;
        }
        self.insert(hash, group, value, 1);
    }

    /// Adds a value that the group does not have.
    fn insert(&mut self, hash: u64, group: u32, value: K::Ref<'_>, count: u64) {
        let owner = &mut self.groups[group as usize];
        let entry = Entry { value: K::own(value), count, group, previous: NONE, next: owner.first };
        self.owned += entry.value.heap();
        let index = if self.free == NONE {
            let index = u32::try_from(self.entries.len()).expect("a task keeps fewer than 2^32 values");
            assert!(index != NONE, "a task keeps fewer than 2^32 values");
            self.entries.push(entry);
            index
        } else {
            let index = self.free;
            self.free = self.entries[index as usize].next;
            self.entries[index as usize] = entry;
            index
        };
        if owner.first != NONE {
            self.entries[owner.first as usize].previous = index;
        }
        owner.first = index;
        owner.distinct += 1;
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.index.insert_unique(hash, index, |index| hash_of::<K>(hasher, &entries[*index as usize]));
    }

    fn remove(&mut self, group: u32, value: K::Ref<'_>) {
        let hash = K::hash(&self.hasher, group, value);
        let entries = &mut self.entries;
        let found = self
            .index
            .find_entry(hash, |index| is::<K>(&entries[*index as usize], group, value))
            .expect("a value that leaves a window has entered it");
        let index = *found.get();
        entries[index as usize].count -= 1;
        if entries[index as usize].count > 0 {
            return;
        }
        found.remove();
        let (previous, next) = (entries[index as usize].previous, entries[index as usize].next);
        let owner = &mut self.groups[group as usize];
        owner.distinct -= 1;
        match previous {
            NONE => owner.first = next,
            _ => entries[previous as usize].next = next,
        }
        if next != NONE {
            entries[next as usize].previous = previous;
        }
        self.release(index);
    }

    fn reset(&mut self, group: u32) {
        let owner = std::mem::replace(&mut self.groups[group as usize], Group { distinct: 0, first: NONE });
        let mut index = owner.first;
        while index != NONE {
            let entry = &self.entries[index as usize];
            let next = entry.next;
            let hash = hash_of::<K>(&self.hasher, entry);
            self.index
                .find_entry(hash, |other| *other == index)
                .expect("the table holds every entry in use")
                .remove();
            self.release(index);
            index = next;
        }
    }

    fn release(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        self.owned -= std::mem::take(&mut entry.value).heap();
        entry.count = 0;
        entry.next = self.free;
        self.free = index;
    }

    /// Appends the values of a group with their occurrences.
    fn save(&self, group: u32, out: &mut Vec<u8>) {
        let owner = self.groups[group as usize];
        put(out, u64::from(owner.distinct));
        let mut index = owner.first;
        while index != NONE {
            let entry = &self.entries[index as usize];
            put(out, entry.count);
            K::save(&entry.value, out);
            index = entry.next;
        }
    }

    fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        for _ in 0..image.count("distinct values")? {
            let count = image.number("occurrences of a value")?;
            let value = K::load(image)?;
            let value = K::view(&value);
            let hash = K::hash(&self.hasher, group, value);
            let known = self.index.find(hash, |index| is::<K>(&self.entries[*index as usize], group, value));
            if count == 0 || known.is_some() {
                return Err(image.malformed("distinct values", "each once and more than none", "another"));
            }
            self.insert(hash, group, value, count);
        }
        Ok(())
    }

    fn count(&self, group: u32) -> i64 {
        if group == NO_GROUP { 0 } else { i64::from(self.groups[group as usize].distinct) }
    }
}

fn is<K: Kind>(entry: &Entry<K::Item>, group: u32, value: K::Ref<'_>) -> bool {
    entry.group == group && K::compare(K::view(&entry.value), value).is_eq()
}

fn hash_of<K: Kind>(hasher: &RandomState, entry: &Entry<K::Item>) -> u64 {
    K::hash(hasher, entry.group, K::view(&entry.value))
}

struct Tour<'a, K: Kind> {
    table: &'a mut Table<K>,
    added: &'a [u32],
    removed: &'a [u32],
    added_values: Values<'a, K>,
    removed_values: Values<'a, K>,
    out: Writer<i64>,
}

impl<K: Kind> Walk for Tour<'_, K> {
    #[inline(always)]
    fn touch(&mut self, groups: &[u32]) {
        warm(groups.iter().map(|group| u64::from(self.table.groups[*group as usize].distinct)));
    }

    fn reset(&mut self, group: u32) {
        self.table.reset(group);
    }

    #[inline(always)]
    fn add(&mut self, element: usize) {
        if let Some(value) = self.added_values.get(element) {
            self.table.add(self.added[element], K::canonical(value));
        }
    }

    #[inline(always)]
    fn remove(&mut self, element: usize) {
        if let Some(value) = self.removed_values.get(element) {
            self.table.remove(self.removed[element], K::canonical(value));
        }
    }

    #[inline(always)]
    fn read(&mut self, step: usize, group: u32) {
        self.out.set(step, self.table.count(group), true);
    }
}

impl<K: Kind> Aggregate for Distinct<K> {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn arg(&self) -> Option<usize> {
        Some(self.arg)
    }

    fn grow(&mut self, groups: usize) {
        grow(&mut self.table.groups, groups, || Group { distinct: 0, first: NONE });
    }

    fn cut(&mut self, groups: usize) {
        cut(&mut self.table.groups, groups);
    }

    fn reset(&mut self, group: u32) {
        self.table.reset(group);
    }

    fn run(&mut self, steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>) -> Vec<Column> {
        let mut tour = Tour::<K> {
            table: &mut self.table,
            added: added.groups,
            removed: removed.groups,
            added_values: Values::of(added),
            removed_values: Values::of(removed),
            out: Writer::new(steps.groups.len()),
        };
        walk(steps, added, removed, &mut tour);
        repeat(&tour.out.into_int64(), self.calls.len())
    }

    fn read(&self, group: u32) -> Vec<Column> {
        let mut out = Writer::new(1);
        out.set(0, self.table.count(group), true);
        repeat(&out.into_int64(), self.calls.len())
    }

    fn save(&self, group: u32, out: &mut Vec<u8>) {
        self.table.save(group, out);
    }

    fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        self.table.load(group, image)
    }

    fn bytes(&self) -> usize {
        let table = &self.table;
        table.groups.capacity() * size_of::<Group>()
            + table.entries.capacity() * size_of::<Entry<K::Item>>()
            + table.index.allocation_size()
            + table.owned
    }

    fn bytes_per_group(&self) -> usize {
        size_of::<Group>()
    }

    fn worst_case(&self) -> Option<String> {
        Some(format!(
            "count(distinct) keeps about {} bytes per distinct value in the window, per group",
            size_of::<Entry<K::Item>>() + 8
        ))
    }
}
