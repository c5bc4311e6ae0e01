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
//! Where there are checkpoints, the list of a *long* queue is only its newest end: its oldest values are at its front,
//! and what is between is in pieces ([`crate::long`]).
//!
//! Invariants
//! * Keys ascend within a list and within a tree; within each, no value bars an older one. Front, pieces and list are one
//!   list in this.
//! * A queue with pieces has a front, and one with a front has a list.
//! * A group never gets two values with one key. (What builds before stages numbered arrivals left in a list may have
//!   equal ones, in order of arrival.)

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::kind::{Item, Kind};
use crate::image::{Malformed, Reader, put};
use crate::long::{Key, LongList, LongLists, put_key, put_length, read_key, read_length};
use crate::pieces::{End, PieceSink, Pieced, Shelf};
use crate::slots::{cut, grow};
use crate::warm::warm;

const NONE: u32 = u32::MAX;
/// Longest walk: about the cost of a look-up in a tree.
const WALK: usize = 16;

pub(super) struct Queues<K: Kind> {
    ends: Vec<Ends>,
    slots: Vec<Slot<K::Item>>,
    /// First of the free slots, which are linked by `newer`.
    free: u32,
    used: usize,
    /// Heap bytes that values own.
    owned: usize,
    trees: HashMap<u32, BTreeMap<Key, K::Item>, RandomState>,
    /// What is older than the lists of long queues.
    long: LongLists<(Key, K::Item)>,
    /// Slots in use at which it is looked whether a list is so long that it is cut.
    look_at: usize,
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

/// Appends values, each with its key less the one before.
fn save_values<'a, K: Kind>(values: impl Iterator<Item = (Key, &'a K::Item)>, out: &mut Vec<u8>) {
    let mut before: Key = (0, 0);
    for (key, value) in values {
        put_key(out, key, before);
        K::save(value, out);
        before = key;
    }
}

/// As [`save_values`], those of a front or a piece.
fn save_list<K: Kind>(values: &VecDeque<(Key, K::Item)>, out: &mut Vec<u8>) {
    save_values::<K>(values.iter().map(|(key, value)| (*key, value)), out);
}

/// Reads as many values, whose keys ascend.
fn load_values<K: Kind>(
    image: &mut Reader<'_>,
    count: usize,
    mut take: impl FnMut(Key, K::Item),
) -> Result<(), Malformed> {
    let mut before = None;
    for _ in 0..count {
        let key = read_key(image, before)?;
        take(key, K::load(image)?);
        before = Some(key);
    }
    Ok(())
}

/// The values of a front or a piece.
fn load_list<K: Kind>(image: &mut Reader<'_>, count: usize) -> Result<VecDeque<(Key, K::Item)>, Malformed> {
    let mut values = VecDeque::new();
    load_values::<K>(image, count, |key, value| values.push_back((key, value)))?;
    Ok(values)
}

/// Heap bytes that values own.
fn heap_of<V: Item>(values: &VecDeque<(Key, V)>) -> usize {
    values.iter().map(|(_, value)| value.heap()).sum()
}

/// Appends what [`Queues::save`] does of a queue with one value, or none.
pub(super) fn save_best<K: Kind>(best: Option<&(Key, K::Item)>, out: &mut Vec<u8>) {
    put_length(out, best.iter().len());
    save_values::<K>(best.iter().map(|(key, value)| (*key, value)), out);
    put(out, 0);
}

/// Reads all values of a queue that is not in pieces.
///
/// # Errors
/// [`Malformed`].
pub(super) fn read_best<K: Kind>(
    image: &mut Reader<'_>,
    mut take: impl FnMut(Key, K::Item),
) -> Result<(), Malformed> {
    let listed = read_length(image)?;
    load_values::<K>(image, listed, &mut take)?;
    let late = image.count("values of a queue")?;
    load_values::<K>(image, late, &mut take)
}

impl<K: Kind> Queues<K> {
    pub(super) fn new() -> Self {
        Self {
            ends: Vec::new(),
            slots: Vec::new(),
            free: NONE,
            used: 0,
            owned: 0,
            trees: HashMap::default(),
            long: LongLists::new(None),
            look_at: usize::MAX,
        }
    }

    /// From now on long queues may be cut into pieces.
    pub(super) fn set_shelf(&mut self, shelf: &Arc<Shelf>) {
        self.long = LongLists::new(Some(Arc::clone(shelf)));
        self.look_at = self.long.most();
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
    pub(super) fn insert(
        &mut self,
        group: u32,
        key: Key,
        value: K::Item,
        bars: impl Fn(&K::Item, &K::Item) -> bool,
    ) {
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
        let reached = older;
        while older != NONE && bars(&value, &self.slots[older as usize].value) {
            let next = self.slots[older as usize].older;
            self.release(older);
            older = next;
        }
        if older == NONE && self.long.front(group).is_some() {
            if reached == NONE {
                // Its place may be anywhere before the list.
                return self.insert_in_tree(group, key, value, bars);
            }
            older = self.drop_before_list(group, &value, &bars);
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
        if self.used >= self.look_at {
            self.cut_early(group);
        }
    }

    /// Takes the value with this key, if it is still there; it is the oldest of its group.
    #[inline(always)]
    pub(super) fn remove(&mut self, group: u32, key: Key) {
        let oldest = self.ends[group as usize].oldest;
        if oldest != NONE && self.slots[oldest as usize].key == key {
            self.pop_list(group);
        } else if (self.long.is_empty() || !self.remove_from_front(group, key)) && !self.trees.is_empty() {
            self.remove_from_tree(group, key);
        }
    }

    /// Empties the queue of a group; the next cycle is told of its pieces.
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
        self.owned -= self.long.clear(group).map_or(0, |front| heap_of(&front));
    }

    /// Forgets a group that is out of memory from now on, or no more.
    pub(super) fn forget(&mut self, group: u32) {
        self.reset(group);
        self.long.forget(group);
    }

    /// The oldest of the list, pieces included, and the oldest of the tree.
    #[inline(always)]
    pub(super) fn heads(&self, group: u32) -> [Option<(Key, &K::Item)>; 2] {
        let oldest = self.ends[group as usize].oldest;
        let mut in_list = (oldest != NONE).then(|| {
            let slot = &self.slots[oldest as usize];
            (slot.key, &slot.value)
        });
        if !self.long.is_empty() {
            in_list = self.oldest_in_front(group).or(in_list);
        }
        [in_list, if self.trees.is_empty() { None } else { self.oldest_in_tree(group) }]
    }

    /// Appends the queue of a group: of a long one the front, the numbers of its pieces and the list, else the list; then
    /// the tree.
    pub(super) fn save(&self, group: u32, out: &mut Vec<u8>) {
        self.long.save(group, self.list(group).count(), out, save_list::<K>);
        save_values::<K>(self.list(group).map(|slot| (slot.key, &slot.value)), out);
        let tree = self.trees.get(&group);
        put(out, tree.map_or(0, BTreeMap::len) as u64);
        save_values::<K>(tree.into_iter().flatten().map(|(key, value)| (*key, value)), out);
    }

    /// The list of a group, from the oldest.
    fn list(&self, group: u32) -> impl Iterator<Item = &Slot<K::Item>> {
        let at = |slot: u32| self.slots.get(slot as usize);
        std::iter::successors(at(self.ends[group as usize].oldest), move |slot| at(slot.newer))
    }

    /// Takes over what [`Queues::save`] wrote; the group's queue is empty before.
    pub(super) fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let listed = self.long.load(group, image, load_list::<K>)?;
        self.owned += self.long.front(group).map_or(0, heap_of);
        load_values::<K>(image, listed, |key, value| self.push(group, key, value))?;
        let late = image.count("values of a queue")?;
        if late > 0 {
            let tree = self.trees.entry(group).or_default();
            load_values::<K>(image, late, |key, value| {
                self.owned += value.heap();
                tree.insert(key, value);
            })?;
            if tree.len() < late {
                return Err(image.malformed("values of a queue", format_args!("{late} keys"), tree.len()));
            }
        }
        Ok(())
    }

    /// Appends a value that is newer than all of the list.
    fn push(&mut self, group: u32, key: Key, value: K::Item) {
        let older = self.ends[group as usize].newest;
        let slot = self.allocate(Slot { key, value, older, newer: NONE });
        let ends = &mut self.ends[group as usize];
        ends.newest = slot;
        match older {
            NONE => ends.oldest = slot,
            _ => self.slots[older as usize].newer = slot,
        }
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        let in_trees: usize = self.trees.values().map(BTreeMap::len).sum();
        self.ends.capacity() * size_of::<Ends>()
            + self.slots.capacity() * size_of::<Slot<K::Item>>()
            + self.trees.allocation_size()
            + in_trees * (size_of::<Key>() + size_of::<K::Item>()) * 2
            + self.long.bytes()
            + self.owned
    }

    pub(super) const fn bytes_per_group() -> usize {
        size_of::<Ends>()
    }

    pub(super) const fn bytes_per_value() -> usize {
        size_of::<Slot<K::Item>>()
    }

    #[inline(always)]
    fn allocate(&mut self, slot: Slot<K::Item>) -> u32 {
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
    fn release(&mut self, index: u32) -> K::Item {
        let slot = &mut self.slots[index as usize];
        let value = std::mem::take(&mut slot.value);
        self.owned -= value.heap();
        slot.newer = self.free;
        self.free = index;
        self.used -= 1;
        value
    }

    #[cold]
    fn oldest_in_front(&self, group: u32) -> Option<(Key, &K::Item)> {
        let (key, value) = self.long.front(group)?.front()?;
        Some((*key, value))
    }

    /// Drops what a value bars of front and pieces, as all of the list that is older was dropped; the newest piece that is
    /// left then becomes the list's oldest part, so that another value does not find it so soon. The slot of the newest value
    /// of that part.
    #[cold]
    fn drop_before_list(
        &mut self,
        group: u32,
        value: &K::Item,
        bars: &impl Fn(&K::Item, &K::Item) -> bool,
    ) -> u32 {
        let Some(LongList { front, pieces, shelf }) = self.long.get(group) else { return NONE };
        pieces.drop_newest(shelf, |image| {
            let mut is_barred = false;
            load_values::<K>(image, 1, |_, first| is_barred = bars(value, &first))?;
            Ok(is_barred)
        });
        let mut values = pieces.take(End::Newest, shelf, load_list::<K>).unwrap_or_default();
        values.truncate(values.iter().rposition(|(_, older)| !bars(value, older)).map_or(0, |last| last + 1));
        if values.is_empty() {
            while let Some((_, barred)) = front.pop_back_if(|(_, older)| bars(value, older)) {
                self.owned -= barred.heap();
            }
        }
        let Ends { newest, .. } = std::mem::replace(&mut self.ends[group as usize], EMPTY);
        for (key, value) in values {
            self.push(group, key, value);
        }
        std::mem::replace(&mut self.ends[group as usize].newest, newest)
    }

    /// Takes the oldest value of a long queue, if it has this key.
    #[cold]
    fn remove_from_front(&mut self, group: u32, key: Key) -> bool {
        let oldest = self.long.front(group).and_then(VecDeque::front);
        if oldest.is_none_or(|(oldest, _)| *oldest != key) {
            return false;
        }
        let (oldest, is_new) = self.long.pop_oldest(group, load_list::<K>);
        self.owned -= oldest.map_or(0, |(_, value)| value.heap());
        if is_new {
            self.owned += self.long.front(group).map_or(0, heap_of);
        }
        true
    }

    #[cold]
    fn insert_in_tree(
        &mut self,
        group: u32,
        key: Key,
        value: K::Item,
        bars: impl Fn(&K::Item, &K::Item) -> bool,
    ) {
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
    fn prune_tree(
        &mut self,
        group: u32,
        key: Key,
        value: &K::Item,
        bars: &impl Fn(&K::Item, &K::Item) -> bool,
    ) {
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
    fn oldest_in_tree(&self, group: u32) -> Option<(Key, &K::Item)> {
        self.trees.get(&group)?.first_key_value().map(|(key, value)| (*key, value))
    }

    /// Many values came, the last one to this group: cuts its list if it is most of them.
    #[cold]
    fn cut_early(&mut self, group: u32) {
        let many = self.long.most();
        if self.list(group).take(many / 2).count() == many / 2 {
            self.cut_list(group);
        }
        self.look_at = self.used.saturating_add(many);
    }

    /// Cuts the oldest values of a list that is too long.
    fn cut_list(&mut self, group: u32) {
        let mut length = self.list(group).count();
        while let Some(size) = self.long.cuts(length) {
            length -= size;
            let values: VecDeque<_> = (0..size).filter_map(|_| self.pop_list(group)).collect();
            let heap = heap_of(&values);
            if self.long.cut(group, values, save_list::<K>).is_none() {
                self.owned += heap;
            }
        }
    }

    /// Takes the oldest value of a list.
    #[inline(always)]
    fn pop_list(&mut self, group: u32) -> Option<(Key, K::Item)> {
        let oldest = self.ends[group as usize].oldest;
        let Slot { key, newer, .. } = *self.slots.get(oldest as usize)?;
        self.ends[group as usize].oldest = newer;
        match newer {
            NONE => self.ends[group as usize].newest = NONE,
            _ => self.slots[newer as usize].older = NONE,
        }
        Some((key, self.release(oldest)))
    }
}

impl<K: Kind> Pieced for Queues<K> {
    fn hand_over(&mut self, group: u32, cycle: u64, to: &mut dyn PieceSink) {
        // No more of it is looked at than says whether it is too long.
        let most = self.long.size().map_or(0, |size| 2 * size + 1);
        if self.long.cuts(self.list(group).take(most).count()).is_some() {
            self.cut_list(group);
        }
        self.long.hand_over(group, cycle, to);
    }

    fn written(&mut self, cycle: u64) {
        self.long.written(cycle);
    }

    fn bury(&mut self, group: u32, numbers: &mut Vec<u32>) {
        self.owned -= self.long.bury(group, numbers).map_or(0, |front| heap_of(&front));
    }

    fn most_numbers(&self) -> usize {
        self.long.most_numbers(self.used)
    }

    fn has_all(&self) -> bool {
        self.long.has_all()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::sync::Mutex;

    use thalweg_types::Error;

    use super::super::kind::UInt;
    use super::*;
    use crate::image::put_signed;
    use crate::pieces::{PieceReader, PieceStore};

    #[test]
    fn freed_slots_are_used_again() {
        let mut queues = Queues::<UInt>::new();
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
        let (mut old, mut queues) = (Queues::<UInt>::new(), Queues::<UInt>::new());
        let keys = [(3, 1), (3, 1), (3, 1), (4, 2)];
        old.grow(1);
        queues.grow(1);
        for (value, key) in keys.into_iter().enumerate() {
            old.insert(0, key, value as u64, |_: &u64, _: &u64| false);
        }
        let mut image = Vec::new();
        old.save(0, &mut image);
        queues.load(0, &mut Reader::new(&image)).unwrap();
        for (value, key) in keys.into_iter().enumerate() {
            assert_eq!(queues.heads(0)[0], Some((key, &(value as u64))));
            queues.remove(0, key);
        }
    }

    /// A back end of the pieces of one leaf.
    #[derive(Clone, Default)]
    struct BackEnd(Arc<Mutex<BTreeMap<u32, Vec<u8>>>>);

    impl PieceReader for BackEnd {
        fn read(&self, _: u32, number: u32) -> Result<Vec<u8>, Error> {
            self.0.lock().unwrap().get(&number).cloned().ok_or_else(|| Error::corrupt("no such piece"))
        }
    }

    impl PieceSink for BackEnd {
        fn put(&mut self, number: u32, bytes: &[u8]) {
            assert!(self.0.lock().unwrap().insert(number, bytes.to_vec()).is_none());
        }

        fn remove(&mut self, number: u32) {
            assert!(self.0.lock().unwrap().remove(&number).is_some());
        }
    }

    /// Versions 1 and 2 of groups had all values in the image, each with its whole key.
    #[test]
    fn an_image_of_an_earlier_layout_is_read() {
        let mut image = vec![];
        put(&mut image, 2);
        for key in [5_u64, 9] {
            put_signed(&mut image, key as i64);
            put(&mut image, key);
            put(&mut image, 100 + key);
        }
        put(&mut image, 1);
        put_signed(&mut image, -3);
        put(&mut image, 1);
        put(&mut image, 7);
        let mut queues = Queues::<UInt>::new();
        queues.grow(1);
        let mut reader = Reader::of_version(&image, 2);
        queues.load(0, &mut reader).unwrap();
        reader.finish("image").unwrap();
        assert_eq!(queues.heads(0), [Some(((5, 5), &105)), Some(((-3, 1), &7))]);
        let mut values = Vec::new();
        read_best::<UInt>(&mut Reader::of_version(&image, 2), |key, value| values.push((key, value)))
            .unwrap();
        assert_eq!(values, [((5, 5), 105), ((9, 9), 109), ((-3, 1), 7)]);
    }

    proptest! {
        /// Queues that are cut, leave memory and come back, beside those that stay whole.
        #[test]
        fn pieces_change_no_head(
            size in 1_usize..6,
            // Time since the newest, value, how many leave, and what happens then.
            script in proptest::collection::vec((-40_i64..20, 0_u64..30, 0_usize..4, 0_u8..5), 1..300)
        ) {
            let mut back_end = BackEnd::default();
            let store = Arc::new(PieceStore::new(size));
            store.read_by(Arc::new(back_end.clone()));
            let shelf = Arc::new(Shelf::new(1, 0, store.clone()));
            let anew = || {
                let mut queues = Queues::<UInt>::new();
                queues.set_shelf(&shelf);
                queues.grow(1);
                queues
            };
            let (mut all, mut largest) = (anew(), anew());
            let mut live: BTreeMap<Key, u64> = BTreeMap::new();
            let mut newest = 0;
            for (arrival, (later, value, removes, what)) in script.into_iter().enumerate() {
                newest = newest.max(newest + later);
                let key = (if later < -30 { newest + later } else { newest - i64::from(later < 0) }, arrival as u64);
                live.insert(key, value);
                all.insert(0, key, value, |_, _| false);
                largest.insert(0, key, value, |newer, older| newer >= older);
                for _ in 0..removes.saturating_sub(1) {
                    if let Some((key, _)) = live.pop_first() {
                        all.remove(0, key);
                        largest.remove(0, key);
                    }
                }
                if what > 0 {
                    for queues in [&mut all, &mut largest] {
                        queues.hand_over(0, arrival as u64, &mut back_end);
                        if what > 1 {
                            queues.written(arrival as u64);
                        }
                        if what > 2 {
                            let mut image = Vec::new();
                            queues.save(0, &mut image);
                            *queues = anew();
                            let mut reader = Reader::new(&image);
                            queues.load(0, &mut reader).unwrap();
                            reader.finish("image").unwrap();
                        }
                    }
                }
                store.check().unwrap();
                let first = all.heads(0).into_iter().flatten().min_by_key(|(key, _)| *key);
                prop_assert_eq!(first.map(|(_, value)| *value), live.values().next().copied());
                let best = largest.heads(0).into_iter().flatten().map(|(_, value)| *value).max();
                prop_assert_eq!(best, live.values().max().copied());
            }
            while let Some((key, _)) = live.pop_first() {
                all.remove(0, key);
                largest.remove(0, key);
            }
            for queues in [&mut all, &mut largest] {
                queues.hand_over(0, u64::MAX, &mut back_end);
                prop_assert_eq!((queues.heads(0), queues.owned, queues.long.is_empty()), ([None, None], 0, true));
            }
            prop_assert!(back_end.0.lock().unwrap().is_empty(), "pieces that nobody has");
        }

        /// Heavy disorder in one group, so that both the list and the tree are used.
        #[test]
        fn heads_are_the_oldest_and_the_largest(
            script in proptest::collection::vec((0_i64..200, 0_u64..50, 0_usize..3), 1..300)
        ) {
            let mut all = Queues::<UInt>::new();
            let mut largest = Queues::<UInt>::new();
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
