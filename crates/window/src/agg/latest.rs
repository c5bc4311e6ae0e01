//! `last` and `prev`: the newest values of each group, in constant space.
//!
//! A window forgets its oldest first, so the newest `DEPTH` values are the last to go: a count says how many of
//! them are still there.

use thalweg_types::DataType;

use super::kind::{Item, Kind, Values};
use super::walk::{Walk, walk};
use super::{Aggregate, Column, NO_GROUP, Steps, Stream};
use crate::image::{Malformed, Reader, put, put_signed};
use crate::long::Key;
use crate::slots::{cut, grow};
use crate::warm::warm;

/// The newest `DEPTH` values; 1 for `last`, 2 where `prev` is asked for.
pub(super) struct Latest<K: Kind, const DEPTH: usize> {
    calls: Vec<usize>,
    /// Of each call, how many values before the newest its value is.
    behind: Vec<usize>,
    arg: usize,
    data_type: DataType,
    cells: Vec<Cell<K::Item, DEPTH>>,
    /// Heap bytes that values own.
    owned: usize,
}

#[derive(Clone)]
struct Cell<V, const DEPTH: usize> {
    /// Values in the window.
    count: u64,
    /// Newest first; only the first `count` mean anything.
    newest: [(Key, V); DEPTH],
}

impl<V: Default, const DEPTH: usize> Default for Cell<V, DEPTH> {
    fn default() -> Self {
        Self { count: 0, newest: std::array::from_fn(|_| ((0, 0), V::default())) }
    }
}

impl<V: Item, const DEPTH: usize> Cell<V, DEPTH> {
    /// The value that it forgets instead may be one that has left already.
    #[inline(always)]
    fn add(&mut self, key: Key, value: V, owned: &mut usize) {
        let present = self.present();
        self.count += 1;
        let place = self.newest[..present].iter().position(|(other, _)| *other < key).unwrap_or(present);
        if place < DEPTH {
            self.newest[place..].rotate_right(1);
            *owned += value.heap();
            *owned -= std::mem::replace(&mut self.newest[place], (key, value)).1.heap();
        }
    }

    /// How many of `newest` mean something.
    #[inline(always)]
    fn present(&self) -> usize {
        DEPTH.min(usize::try_from(self.count).unwrap_or(DEPTH))
    }

    #[inline(always)]
    fn get(&self, behind: usize) -> Option<&V> {
        (self.count > behind as u64).then(|| &self.newest[behind].1)
    }

    fn heap(&self) -> usize {
        self.newest.iter().map(|(_, value)| value.heap()).sum()
    }
}

impl<K: Kind, const DEPTH: usize> Latest<K, DEPTH> {
    pub(super) fn new(calls: Vec<usize>, behind: Vec<usize>, arg: usize, data_type: DataType) -> Self {
        assert_eq!(calls.len(), behind.len(), "one place per call");
        assert!(behind.iter().all(|place| *place < DEPTH), "every place is kept");
        Self { calls, behind, arg, data_type, cells: Vec::new(), owned: 0 }
    }
}

struct Tour<'a, K: Kind, const DEPTH: usize> {
    cells: &'a mut [Cell<K::Item, DEPTH>],
    owned: &'a mut usize,
    behind: &'a [usize],
    added: Stream<'a>,
    removed: &'a [u32],
    added_values: Values<'a, K>,
    removed_values: Values<'a, K>,
    out: Vec<K::Builder>,
}

impl<K: Kind, const DEPTH: usize> Walk for Tour<'_, K, DEPTH> {
    #[inline(always)]
    fn touch(&mut self, groups: &[u32]) {
        warm(groups.iter().map(|group| self.cells[*group as usize].count));
    }

    fn reset(&mut self, group: u32) {
        *self.owned -= std::mem::take(&mut self.cells[group as usize]).heap();
    }

    #[inline(always)]
    fn add(&mut self, element: usize) {
        let Some(value) = self.added_values.get(element) else { return };
        let key = (self.added.times[element], self.added.seqs[element]);
        self.cells[self.added.groups[element] as usize].add(key, K::own(value), self.owned);
    }

    #[inline(always)]
    fn remove(&mut self, element: usize) {
        if !self.removed_values.is_null(element) {
            self.cells[self.removed[element] as usize].count -= 1;
        }
    }

    #[inline(always)]
    fn read(&mut self, _: usize, group: u32) {
        read::<K, DEPTH>(self.cells, self.behind, group, &mut self.out);
    }
}

#[inline(always)]
fn read<K: Kind, const DEPTH: usize>(
    cells: &[Cell<K::Item, DEPTH>],
    behind: &[usize],
    group: u32,
    out: &mut [K::Builder],
) {
    for (out, behind) in out.iter_mut().zip(behind) {
        let value = if group == NO_GROUP { None } else { cells[group as usize].get(*behind) };
        K::push(out, value.map(K::view));
    }
}

impl<K: Kind, const DEPTH: usize> Aggregate for Latest<K, DEPTH> {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn arg(&self) -> Option<usize> {
        Some(self.arg)
    }

    fn grow(&mut self, groups: usize) {
        grow(&mut self.cells, groups, Cell::default);
    }

    fn cut(&mut self, groups: usize) {
        cut(&mut self.cells, groups);
    }

    fn reset(&mut self, group: u32) {
        self.owned -= std::mem::take(&mut self.cells[group as usize]).heap();
    }

    fn run(&mut self, steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>) -> Vec<Column> {
        let mut tour = Tour::<K, DEPTH> {
            cells: &mut self.cells,
            owned: &mut self.owned,
            behind: &self.behind,
            added: *added,
            removed: removed.groups,
            added_values: Values::of(added),
            removed_values: Values::of(removed),
            out: self.behind.iter().map(|_| K::builder(steps.groups.len())).collect(),
        };
        walk(steps, added, removed, &mut tour);
        finish::<K>(tour.out, &self.data_type)
    }

    fn read(&self, group: u32) -> Vec<Column> {
        let mut out: Vec<K::Builder> = self.behind.iter().map(|_| K::builder(1)).collect();
        read::<K, DEPTH>(&self.cells, &self.behind, group, &mut out);
        finish::<K>(out, &self.data_type)
    }

    fn save(&self, group: u32, out: &mut Vec<u8>) {
        let cell = &self.cells[group as usize];
        put(out, cell.count);
        for ((time, seq), value) in &cell.newest[..cell.present()] {
            put_signed(out, *time);
            put(out, *seq);
            K::save(value, out);
        }
    }

    fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let cell = &mut self.cells[group as usize];
        cell.count = image.number("count of values")?;
        for place in 0..cell.present() {
            let key = (image.signed("time of a value")?, image.number("arrival of a value")?);
            cell.newest[place] = (key, K::load(image)?);
        }
        self.owned += cell.heap();
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<Cell<K::Item, DEPTH>>() + self.owned
    }

    fn bytes_per_group(&self) -> usize {
        size_of::<Cell<K::Item, DEPTH>>()
    }

    fn worst_case(&self) -> Option<String> {
        None
    }
}

fn finish<K: Kind>(builders: Vec<K::Builder>, data_type: &DataType) -> Vec<Column> {
    builders
        .into_iter()
        .map(|builder| Column { values: K::finish(builder, data_type), errors: Vec::new() })
        .collect()
}
