//! `sum`, `avg`, `var`, `stddev` and the counts that go with them: one cell per group, one loop per type.
//!
//! A pass over the schedule changes cells and notes, for each step, the cell that is read; then each call turns a block
//! of notes into values in a loop of its own. A cell holds exact sums; values that it cannot hold (doubles of
//! very different size, NaN, infinities) are in `outliers`, and a bit of the cell says so.
//!
//! Invariants
//! * A group's exact sum is that of its cell plus that of its outlier, if it has one; so for squares.
//! * A group without values has a zero cell and no outlier.
//!
//! Not here: arithmetic by type (`number`, `decimal`), exact sums (`super::exact`).

mod cell;
mod decimal;
mod number;
mod outlier;
mod read;

use arrow_buffer::NullBuffer;

pub(super) use cell::{Accumulator, Kept, Second};
pub(super) use decimal::{Decimal, Narrow, Wide256};
pub(super) use number::{Float, Int, Number, UInt};
pub(super) use read::Moment;

use self::cell::{Cell, Noted};
use self::outlier::Outliers;
use self::read::Sink;
use super::walk::{BLOCK, Walk, walk};
use super::{Aggregate, Column, NO_GROUP, Steps, Stream};
use crate::image::{Malformed, Reader};
use crate::slots::{cut, grow};
use crate::warm::warm;

/// Sums (and, where `Q` keeps them, sums of squares) of one argument.
pub(super) struct Moments<N: Number, Q: Second<N>> {
    number: N,
    arg: usize,
    calls: Vec<usize>,
    moments: Vec<Moment>,
    cells: Vec<Cell<N::Sum, Q>>,
    outliers: Outliers,
}

impl<N: Number, Q: Second<N>> Moments<N, Q> {
    pub(super) fn new(number: N, arg: usize, calls: Vec<usize>, moments: Vec<Moment>) -> Self {
        assert_eq!(calls.len(), moments.len(), "one moment per call");
        Self { number, arg, calls, moments, cells: Vec::new(), outliers: Outliers::default() }
    }

    fn run_with<const NULLS: bool>(
        &mut self,
        steps: &Steps<'_>,
        added: &Stream<'_>,
        removed: &Stream<'_>,
    ) -> Vec<Column> {
        let rows = steps.groups.len();
        let mut tour = Tour::<N, Q, NULLS> {
            number: &self.number,
            cells: &mut self.cells,
            outliers: &mut self.outliers,
            added: Side::of::<N>(added),
            removed: Side::of::<N>(removed),
            sinks: self.moments.iter().map(|moment| Sink::new(*moment, rows)).collect(),
            noted: std::iter::repeat_with(Noted::empty).take(rows.min(BLOCK)).collect(),
            unusual: Vec::new(),
        };
        walk(steps, added, removed, &mut tour);
        tour.sinks.into_iter().map(|sink| sink.finish(&self.number)).collect()
    }
}

/// Elements of one stream with their values.
struct Side<'a, T> {
    groups: &'a [u32],
    values: &'a [T],
    nulls: Option<&'a NullBuffer>,
}

impl<'a, T> Side<'a, T> {
    fn of<N: Number<Native = T>>(stream: &Stream<'a>) -> Self {
        Self {
            groups: stream.groups,
            values: stream.argument().map_or(&[], N::slice),
            nulls: stream.argument_nulls(),
        }
    }

    #[inline(always)]
    fn is_null(&self, element: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(element))
    }
}

struct Tour<'a, N: Number, Q: Second<N>, const NULLS: bool> {
    number: &'a N,
    cells: &'a mut [Cell<N::Sum, Q>],
    outliers: &'a mut Outliers,
    added: Side<'a, N::Native>,
    removed: Side<'a, N::Native>,
    sinks: Vec<Sink<N>>,
    /// What each step of the block reads.
    noted: Vec<Noted<N, Q>>,
    /// Steps that read a group with an outlier, and the outlier's part of the answer.
    unusual: Vec<(usize, outlier::Totals)>,
}

impl<N: Number, Q: Second<N>, const NULLS: bool> Walk for Tour<'_, N, Q, NULLS> {
    #[inline(always)]
    fn touch(&mut self, groups: &[u32]) {
        warm(groups.iter().map(|group| self.cells[*group as usize].rows));
    }

    fn reset(&mut self, group: u32) {
        reset(self.cells, self.outliers, group);
    }

    #[inline(always)]
    fn add(&mut self, element: usize) {
        let group = self.added.groups[element];
        let cell = &mut self.cells[group as usize];
        cell.rows += 1;
        if NULLS && self.added.is_null(element) {
            return;
        }
        cell.enter();
        let value = self.added.values[element];
        let unit = cell.tag().unit();
        match N::term(value, unit) {
            Some(term) => {
                if cell.sum.add(&term) {
                    self.outliers.spill_sum::<N, Q>(group, cell, &term);
                }
                if Q::KEPT && cell.squares.add(&Q::of(value, unit)) {
                    self.outliers.spill_squares::<N, Q>(group, cell, &Q::of(value, unit));
                }
            }
            None => self.outliers.add::<N, Q>(group, cell, value),
        }
    }

    #[inline(always)]
    fn remove(&mut self, element: usize) {
        let group = self.removed.groups[element];
        let cell = &mut self.cells[group as usize];
        cell.rows -= 1;
        if NULLS && self.removed.is_null(element) {
            return;
        }
        cell.leave();
        let value = self.removed.values[element];
        let unit = cell.tag().unit();
        match N::term(value, unit) {
            Some(term) => {
                if cell.sum.sub(&term) {
                    self.outliers.spill_sum_back::<N, Q>(group, cell, &term);
                }
                if Q::KEPT && cell.squares.sub(&Q::of(value, unit)) {
                    self.outliers.spill_squares_back::<N, Q>(group, cell, &Q::of(value, unit));
                }
            }
            None => self.outliers.remove::<N, Q>(group, cell, value),
        }
        if N::OUTLIERS && cell.tag().has_outlier() && cell.tag().count() == 0 {
            self.outliers.forget(group);
            cell.clear_values();
        }
    }

    #[inline(always)]
    fn read(&mut self, step: usize, group: u32) {
        let noted = &mut self.noted[step % BLOCK];
        if group == NO_GROUP {
            *noted = Noted::empty();
            return;
        }
        let cell = &self.cells[group as usize];
        *noted = Noted::of(cell);
        if N::OUTLIERS && noted.tag.has_outlier() {
            self.unusual.push((step, self.outliers.totals::<N, Q>(group, cell)));
        }
    }

    fn block(&mut self, steps: std::ops::Range<usize>) {
        for sink in &mut self.sinks {
            sink.write(self.number, steps.start, &self.noted[..steps.len()]);
            for (step, totals) in &self.unusual {
                let count = self.noted[step % BLOCK].tag.count();
                sink.write_unusual(*step, totals, count);
            }
        }
        self.unusual.clear();
    }
}

fn reset<S: Accumulator, Q: Accumulator>(cells: &mut [Cell<S, Q>], outliers: &mut Outliers, group: u32) {
    let cell = &mut cells[group as usize];
    if cell.tag().has_outlier() {
        outliers.forget(group);
    }
    *cell = Cell::default();
}

impl<N: Number, Q: Second<N>> Aggregate for Moments<N, Q> {
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
        reset(&mut self.cells, &mut self.outliers, group);
    }

    fn run(&mut self, steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>) -> Vec<Column> {
        if added.argument_nulls().or(removed.argument_nulls()).is_some() {
            self.run_with::<true>(steps, added, removed)
        } else {
            self.run_with::<false>(steps, added, removed)
        }
    }

    fn read(&self, group: u32) -> Vec<Column> {
        let cell = if group == NO_GROUP { Cell::default() } else { self.cells[group as usize] };
        let totals = cell.tag().has_outlier().then(|| self.outliers.totals::<N, Q>(group, &cell));
        self.moments
            .iter()
            .map(|moment| {
                let mut sink = Sink::<N>::new(*moment, 1);
                sink.write(&self.number, 0, &[Noted::<N, Q>::of(&cell)]);
                if let Some(totals) = &totals {
                    sink.write_unusual(0, totals, cell.tag().count());
                }
                sink.finish(&self.number)
            })
            .collect()
    }

    fn touch(&self, groups: &[u32]) {
        warm(groups.iter().map(|group| self.cells[*group as usize].rows));
    }

    fn save(&self, group: u32, out: &mut Vec<u8>) {
        let cell = &self.cells[group as usize];
        cell.save(out);
        if cell.tag().has_outlier() {
            self.outliers.save(group, out);
        }
    }

    fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let cell = Cell::load(image, N::OUTLIERS)?;
        if cell.tag().has_outlier() {
            self.outliers.load(group, image)?;
        }
        self.cells[group as usize] = cell;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<Cell<N::Sum, Q>>() + self.outliers.bytes()
    }

    fn bytes_per_group(&self) -> usize {
        size_of::<Cell<N::Sum, Q>>()
    }

    fn worst_case(&self) -> Option<String> {
        None
    }
}
