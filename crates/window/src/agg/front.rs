//! `min`, `max` and `first`: of each group a queue of the values that may still be the answer, which is at the front.
//!
//! What makes a value the answer, and which values never will be, is the [`Rule`]; all else is the same.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::Arc;

use thalweg_types::DataType;

use super::kind::{Kind, Values};
use super::output::repeat;
use super::queue::Queues;
use super::walk::{Walk, walk};
use super::{Aggregate, Column, NO_GROUP, Steps, Stream};
use crate::image::{Malformed, Reader};
use crate::long::Key;
use crate::pieces::{Pieced, Shelf};

/// Which value of a window is the answer.
pub(super) trait Rule<K: Kind>: Send {
    const NAME: &'static str;
    /// When values pile up in the queue: "in the window", and what else has to hold.
    const PILES_UP: &'static str;

    /// The value as it is kept.
    #[inline(always)]
    fn own(value: K::Ref<'_>) -> K::Item {
        K::own(value)
    }

    /// Whether the older value is never the answer while the newer one is there.
    fn bars(newer: &K::Item, older: &K::Item) -> bool;

    /// Whether `a` is the answer rather than `b`.
    fn precedes(a: (Key, &K::Item), b: (Key, &K::Item)) -> bool;
}

/// The smallest value.
pub(super) struct Smallest;
/// The largest value.
pub(super) struct Largest;
/// The value that came first.
pub(super) struct Oldest;

#[inline(always)]
fn compare<K: Kind>(a: &K::Item, b: &K::Item) -> Ordering {
    K::compare(K::view(a), K::view(b))
}

impl<K: Kind> Rule<K> for Smallest {
    const NAME: &'static str = "min";
    const PILES_UP: &'static str = "in the window where values only rise";

    #[inline(always)]
    fn own(value: K::Ref<'_>) -> K::Item {
        K::own(K::canonical(value))
    }

    #[inline(always)]
    fn bars(newer: &K::Item, older: &K::Item) -> bool {
        compare::<K>(newer, older).is_le()
    }

    #[inline(always)]
    fn precedes(a: (Key, &K::Item), b: (Key, &K::Item)) -> bool {
        compare::<K>(a.1, b.1).is_le()
    }
}

impl<K: Kind> Rule<K> for Largest {
    const NAME: &'static str = "max";
    const PILES_UP: &'static str = "in the window where values only fall";

    #[inline(always)]
    fn own(value: K::Ref<'_>) -> K::Item {
        K::own(K::canonical(value))
    }

    #[inline(always)]
    fn bars(newer: &K::Item, older: &K::Item) -> bool {
        compare::<K>(newer, older).is_ge()
    }

    #[inline(always)]
    fn precedes(a: (Key, &K::Item), b: (Key, &K::Item)) -> bool {
        compare::<K>(a.1, b.1).is_ge()
    }
}

impl<K: Kind> Rule<K> for Oldest {
    const NAME: &'static str = "first";
    const PILES_UP: &'static str = "in the window";

    #[inline(always)]
    fn bars(_: &K::Item, _: &K::Item) -> bool {
        false
    }

    #[inline(always)]
    fn precedes(a: (Key, &K::Item), b: (Key, &K::Item)) -> bool {
        a.0 < b.0
    }
}

pub(super) struct Front<K: Kind, R: Rule<K>> {
    calls: Vec<usize>,
    arg: usize,
    data_type: DataType,
    queues: Queues<K>,
    rule: PhantomData<R>,
}

impl<K: Kind, R: Rule<K>> Front<K, R> {
    pub(super) fn new(calls: Vec<usize>, arg: usize, data_type: DataType) -> Self {
        Self { calls, arg, data_type, queues: Queues::new(), rule: PhantomData }
    }
}

#[inline(always)]
fn front<K: Kind, R: Rule<K>>(queues: &Queues<K>, group: u32) -> Option<&K::Item> {
    if group == NO_GROUP {
        return None;
    }
    match queues.heads(group) {
        [Some(a), Some(b)] => Some(if R::precedes(a, b) { a.1 } else { b.1 }),
        [a, b] => a.or(b).map(|(_, value)| value),
    }
}

struct Tour<'a, K: Kind, R> {
    queues: &'a mut Queues<K>,
    added: Stream<'a>,
    removed: Stream<'a>,
    added_values: Values<'a, K>,
    removed_values: Values<'a, K>,
    out: K::Builder,
    rule: PhantomData<R>,
}

impl<K: Kind, R: Rule<K>> Walk for Tour<'_, K, R> {
    #[inline(always)]
    fn touch(&mut self, groups: &[u32]) {
        self.queues.warm(groups);
    }

    fn reset(&mut self, group: u32) {
        self.queues.reset(group);
    }

    #[inline(always)]
    fn add(&mut self, element: usize) {
        let Some(value) = self.added_values.get(element) else { return };
        let key = (self.added.times[element], self.added.seqs[element]);
        self.queues.insert(self.added.groups[element], key, R::own(value), R::bars);
    }

    #[inline(always)]
    fn remove(&mut self, element: usize) {
        if self.removed_values.is_null(element) {
            return;
        }
        let key = (self.removed.times[element], self.removed.seqs[element]);
        self.queues.remove(self.removed.groups[element], key);
    }

    #[inline(always)]
    fn read(&mut self, _: usize, group: u32) {
        K::push(&mut self.out, front::<K, R>(self.queues, group).map(K::view));
    }
}

impl<K: Kind, R: Rule<K>> Aggregate for Front<K, R> {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn arg(&self) -> Option<usize> {
        Some(self.arg)
    }

    fn grow(&mut self, groups: usize) {
        self.queues.grow(groups);
    }

    fn cut(&mut self, groups: usize) {
        self.queues.cut(groups);
    }

    fn reset(&mut self, group: u32) {
        self.queues.reset(group);
    }

    fn forget(&mut self, group: u32) {
        self.queues.forget(group);
    }

    fn set_shelf(&mut self, shelf: &Arc<Shelf>) {
        self.queues.set_shelf(shelf);
    }

    fn pieced(&self) -> Option<&dyn Pieced> {
        Some(&self.queues)
    }

    fn pieced_mut(&mut self) -> Option<&mut dyn Pieced> {
        Some(&mut self.queues)
    }

    fn run(&mut self, steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>) -> Vec<Column> {
        let mut tour = Tour::<K, R> {
            queues: &mut self.queues,
            added: *added,
            removed: *removed,
            added_values: Values::of(added),
            removed_values: Values::of(removed),
            out: K::builder(steps.groups.len()),
            rule: PhantomData,
        };
        walk(steps, added, removed, &mut tour);
        let column = Column { values: K::finish(tour.out, &self.data_type), errors: Vec::new() };
        repeat(&column, self.calls.len())
    }

    fn read(&self, group: u32) -> Vec<Column> {
        let mut out = K::builder(1);
        K::push(&mut out, front::<K, R>(&self.queues, group).map(K::view));
        let column = Column { values: K::finish(out, &self.data_type), errors: Vec::new() };
        repeat(&column, self.calls.len())
    }

    fn save(&self, group: u32, out: &mut Vec<u8>) {
        self.queues.save(group, out);
    }

    fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        self.queues.load(group, image)
    }

    fn bytes(&self) -> usize {
        self.queues.bytes()
    }

    fn bytes_per_group(&self) -> usize {
        Queues::<K>::bytes_per_group()
    }

    fn worst_case(&self) -> Option<String> {
        let bytes = Queues::<K>::bytes_per_value();
        Some(format!("{} keeps {bytes} bytes per value {}", R::NAME, R::PILES_UP))
    }
}
