//! `min` and `max`: of each group, the values that no newer and better one bars; the best is at the head.

use std::cmp::Ordering;

use thalweg_types::DataType;

use super::kind::{Kind, Values};
use super::output::repeat;
use super::queue::Queues;
use super::walk::{Walk, walk};
use super::{Aggregate, Column, NO_GROUP, Steps, Stream};

pub(super) struct Extreme<K: Kind, const MAX: bool> {
    calls: Vec<usize>,
    arg: usize,
    data_type: DataType,
    queues: Queues<K::Item>,
}

impl<K: Kind, const MAX: bool> Extreme<K, MAX> {
    pub(super) fn new(calls: Vec<usize>, arg: usize, data_type: DataType) -> Self {
        Self { calls, arg, data_type, queues: Queues::new() }
    }
}

/// Whether `a` is at least as good as `b`.
#[inline(always)]
fn beats<K: Kind, const MAX: bool>(a: &K::Item, b: &K::Item) -> bool {
    let order = K::compare(K::view(a), K::view(b));
    order != if MAX { Ordering::Less } else { Ordering::Greater }
}

#[inline(always)]
fn best<K: Kind, const MAX: bool>(queues: &Queues<K::Item>, group: u32) -> Option<&K::Item> {
    if group == NO_GROUP {
        return None;
    }
    match queues.heads(group) {
        [Some((_, a)), Some((_, b))] => Some(if beats::<K, MAX>(a, b) { a } else { b }),
        [a, b] => a.or(b).map(|(_, value)| value),
    }
}

struct Tour<'a, K: Kind, const MAX: bool> {
    queues: &'a mut Queues<K::Item>,
    added: Stream<'a>,
    removed: Stream<'a>,
    added_values: Values<'a, K>,
    removed_values: Values<'a, K>,
    out: K::Builder,
}

impl<K: Kind, const MAX: bool> Walk for Tour<'_, K, MAX> {
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
        let value = K::own(K::canonical(value));
        self.queues.insert(self.added.groups[element], key, value, beats::<K, MAX>);
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
        K::push(&mut self.out, best::<K, MAX>(self.queues, group).map(K::view));
    }
}

impl<K: Kind, const MAX: bool> Aggregate for Extreme<K, MAX> {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn arg(&self) -> Option<usize> {
        Some(self.arg)
    }

    fn grow(&mut self, groups: usize) {
        self.queues.grow(groups);
    }

    fn reset(&mut self, group: u32) {
        self.queues.reset(group);
    }

    fn run(&mut self, steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>) -> Vec<Column> {
        let mut tour = Tour::<K, MAX> {
            queues: &mut self.queues,
            added: *added,
            removed: *removed,
            added_values: Values::of(added),
            removed_values: Values::of(removed),
            out: K::builder(steps.groups.len()),
        };
        walk(steps, added, removed, &mut tour);
        let column = Column { values: K::finish(tour.out, &self.data_type), errors: Vec::new() };
        repeat(&column, self.calls.len())
    }

    fn read(&self, group: u32) -> Vec<Column> {
        let mut out = K::builder(1);
        K::push(&mut out, best::<K, MAX>(&self.queues, group).map(K::view));
        let column = Column { values: K::finish(out, &self.data_type), errors: Vec::new() };
        repeat(&column, self.calls.len())
    }

    fn bytes(&self) -> usize {
        self.queues.bytes()
    }

    fn bytes_per_group(&self) -> usize {
        Queues::<K::Item>::bytes_per_group()
    }

    fn worst_case(&self) -> Option<String> {
        let (name, direction) = if MAX { ("max", "fall") } else { ("min", "rise") };
        Some(format!(
            "{name} keeps {} bytes per value in the window where values only {direction}",
            Queues::<K::Item>::bytes_per_value()
        ))
    }
}
