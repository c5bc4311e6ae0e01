//! `min`, `max` and `first` of windows that no value leaves by itself (`TUMBLING`, `INFINITE`): of each group the answer.

use std::marker::PhantomData;

use thalweg_types::DataType;

use super::front::Rule;
use super::kind::{Item, Kind, Values};
use super::output::repeat;
use super::queue::{read_best, save_best};
use super::walk::{Walk, walk};
use super::{Aggregate, Column, NO_GROUP, Steps, Stream};
use crate::image::{Malformed, Reader};
use crate::long::Key;
use crate::slots::{cut, grow};
use crate::warm::warm;

pub(super) struct Best<K: Kind, R: Rule<K>> {
    calls: Vec<usize>,
    arg: usize,
    data_type: DataType,
    cells: Vec<Option<(Key, K::Item)>>,
    /// Heap bytes that values own.
    owned: usize,
    rule: PhantomData<R>,
}

impl<K: Kind, R: Rule<K>> Best<K, R> {
    pub(super) fn new(calls: Vec<usize>, arg: usize, data_type: DataType) -> Self {
        Self { calls, arg, data_type, cells: Vec::new(), owned: 0, rule: PhantomData }
    }

    /// A value came, which may be the answer from now on.
    #[inline(always)]
    fn offer(&mut self, group: u32, key: Key, value: K::Item) {
        let cell = &mut self.cells[group as usize];
        if cell.as_ref().is_some_and(|(other, best)| !R::precedes((key, &value), (*other, best))) {
            return;
        }
        self.owned += value.heap();
        self.owned -= cell.replace((key, value)).map_or(0, |(_, value)| value.heap());
    }

    fn best(&self, group: u32) -> Option<K::Ref<'_>> {
        if group == NO_GROUP {
            return None;
        }
        self.cells[group as usize].as_ref().map(|(_, value)| K::view(value))
    }
}

struct Tour<'a, K: Kind, R: Rule<K>> {
    state: &'a mut Best<K, R>,
    added: Stream<'a>,
    values: Values<'a, K>,
    out: K::Builder,
}

impl<K: Kind, R: Rule<K>> Walk for Tour<'_, K, R> {
    #[inline(always)]
    fn touch(&mut self, groups: &[u32]) {
        let time =
            |group: &u32| self.state.cells[*group as usize].as_ref().map_or(0, |(key, _)| key.0 as u64);
        warm(groups.iter().map(time));
    }

    fn reset(&mut self, group: u32) {
        self.state.reset(group);
    }

    #[inline(always)]
    fn add(&mut self, element: usize) {
        let Some(value) = self.values.get(element) else { return };
        let key = (self.added.times[element], self.added.seqs[element]);
        self.state.offer(self.added.groups[element], key, R::own(value));
    }

    fn remove(&mut self, _: usize) {
        unreachable!("no value leaves these windows by itself");
    }

    #[inline(always)]
    fn read(&mut self, _: usize, group: u32) {
        K::push(&mut self.out, self.state.best(group));
    }
}

impl<K: Kind, R: Rule<K>> Aggregate for Best<K, R> {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn arg(&self) -> Option<usize> {
        Some(self.arg)
    }

    fn grow(&mut self, groups: usize) {
        grow(&mut self.cells, groups, || None);
    }

    fn cut(&mut self, groups: usize) {
        cut(&mut self.cells, groups);
    }

    fn reset(&mut self, group: u32) {
        self.owned -= self.cells[group as usize].take().map_or(0, |(_, value)| value.heap());
    }

    fn run(&mut self, steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>) -> Vec<Column> {
        let calls = self.calls.len();
        let data_type = self.data_type.clone();
        let out = K::builder(steps.groups.len());
        let mut tour = Tour { state: self, added: *added, values: Values::of(added), out };
        walk(steps, added, removed, &mut tour);
        repeat(&Column { values: K::finish(tour.out, &data_type), errors: Vec::new() }, calls)
    }

    fn read(&self, group: u32) -> Vec<Column> {
        let mut out = K::builder(1);
        K::push(&mut out, self.best(group));
        let column = Column { values: K::finish(out, &self.data_type), errors: Vec::new() };
        repeat(&column, self.calls.len())
    }

    fn save(&self, group: u32, out: &mut Vec<u8>) {
        save_best::<K>(self.cells[group as usize].as_ref(), out);
    }

    fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        read_best::<K>(image, |key, value| self.offer(group, key, value))
    }

    fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<Option<(Key, K::Item)>>() + self.owned
    }

    fn bytes_per_group(&self) -> usize {
        size_of::<Option<(Key, K::Item)>>()
    }

    fn worst_case(&self) -> Option<String> {
        None
    }
}
