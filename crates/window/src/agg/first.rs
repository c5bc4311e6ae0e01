//! `first`: the oldest value of each group, and in their order the ones that will be oldest after it.

use thalweg_types::DataType;

use super::kind::{Item, Kind, Values};
use super::output::repeat;
use super::queue::Queues;
use super::walk::{Walk, walk};
use super::{Aggregate, Column, NO_GROUP, Steps, Stream};

pub(super) struct First<K: Kind> {
    calls: Vec<usize>,
    arg: usize,
    data_type: DataType,
    queues: Queues<K::Item>,
}

impl<K: Kind> First<K> {
    pub(super) fn new(calls: Vec<usize>, arg: usize, data_type: DataType) -> Self {
        Self { calls, arg, data_type, queues: Queues::new() }
    }
}

#[inline(always)]
fn oldest<V: Item>(queues: &Queues<V>, group: u32) -> Option<&V> {
    if group == NO_GROUP {
        return None;
    }
    match queues.heads(group) {
        [Some((at, a)), Some((other, b))] => Some(if at < other { a } else { b }),
        [a, b] => a.or(b).map(|(_, value)| value),
    }
}

struct Tour<'a, K: Kind> {
    queues: &'a mut Queues<K::Item>,
    added: Stream<'a>,
    removed: Stream<'a>,
    added_values: Values<'a, K>,
    removed_values: Values<'a, K>,
    out: K::Builder,
}

impl<K: Kind> Walk for Tour<'_, K> {
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
        self.queues.insert(self.added.groups[element], key, K::own(value), |_, _| false);
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
        K::push(&mut self.out, oldest(self.queues, group).map(K::view));
    }
}

impl<K: Kind> Aggregate for First<K> {
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
        let mut tour = Tour::<K> {
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
        K::push(&mut out, oldest(&self.queues, group).map(K::view));
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
        Some(format!("first keeps {} bytes per value in the window", Queues::<K::Item>::bytes_per_value()))
    }
}
