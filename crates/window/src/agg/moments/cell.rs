//! What a group holds: exact sums and counts, small enough for one cache line.

use super::super::exact::{Limbs, Scaled, Unit};
use super::Number;

/// An exact sum in fixed width.
pub(in crate::agg) trait Accumulator: Copy + Default + PartialEq + Send + 'static {
    /// Adds; true where the result did not fit (it has wrapped, and subtracting undoes it).
    fn add(&mut self, term: &Self) -> bool;
    /// Subtracts; true where the result did not fit (it has wrapped, and adding undoes it).
    fn sub(&mut self, term: &Self) -> bool;
}

impl Accumulator for i128 {
    #[inline(always)]
    fn add(&mut self, term: &Self) -> bool {
        let wrapped;
        (*self, wrapped) = self.overflowing_add(*term);
        wrapped
    }

    #[inline(always)]
    fn sub(&mut self, term: &Self) -> bool {
        let wrapped;
        (*self, wrapped) = self.overflowing_sub(*term);
        wrapped
    }
}

impl<const N: usize> Accumulator for Limbs<N> {
    #[inline(always)]
    fn add(&mut self, term: &Self) -> bool {
        Limbs::add(self, term)
    }

    #[inline(always)]
    fn sub(&mut self, term: &Self) -> bool {
        Limbs::sub(self, term)
    }
}

/// No sum at all.
impl Accumulator for () {
    #[inline(always)]
    fn add(&mut self, (): &Self) -> bool {
        false
    }

    #[inline(always)]
    fn sub(&mut self, (): &Self) -> bool {
        false
    }
}

/// The sum of squares of a cell: kept, or not asked for.
pub(in crate::agg) trait Second<N: Number>: Accumulator {
    const KEPT: bool;
    fn of(value: N::Native, unit: Unit) -> Self;
    fn get(&self) -> N::Square;
    /// As much of the sums as a variance needs.
    type Note: Copy + Default;
    fn note(sum: &N::Sum, squares: &Self) -> Self::Note;
    /// See [`Number::variance`].
    fn variance(number: &N, note: &Self::Note, unit: Unit, count: u64, divisor: u64) -> Scaled;
}

impl<N: Number> Second<N> for () {
    const KEPT: bool = false;

    #[inline(always)]
    fn of(_: N::Native, _: Unit) -> Self {}

    fn get(&self) -> N::Square {
        N::Square::default()
    }

    type Note = ();

    #[inline(always)]
    fn note(_: &N::Sum, (): &()) {}

    fn variance(_: &N, (): &(), _: Unit, _: u64, _: u64) -> Scaled {
        unreachable!("a variance keeps squares")
    }
}

/// A sum of squares that is kept.
#[derive(Clone, Copy, Default, PartialEq)]
pub(in crate::agg) struct Kept<S>(S);

impl<S: Accumulator> Accumulator for Kept<S> {
    #[inline(always)]
    fn add(&mut self, term: &Self) -> bool {
        self.0.add(&term.0)
    }

    #[inline(always)]
    fn sub(&mut self, term: &Self) -> bool {
        self.0.sub(&term.0)
    }
}

impl<N: Number> Second<N> for Kept<N::Square> {
    const KEPT: bool = true;

    #[inline(always)]
    fn of(value: N::Native, unit: Unit) -> Self {
        Kept(N::square(value, unit))
    }

    #[inline(always)]
    fn get(&self) -> N::Square {
        self.0
    }

    type Note = (N::Sum, N::Square);

    #[inline(always)]
    fn note(sum: &N::Sum, squares: &Self) -> Self::Note {
        (*sum, squares.0)
    }

    fn variance(number: &N, (sum, squares): &Self::Note, unit: Unit, count: u64, divisor: u64) -> Scaled {
        number.variance((sum, squares), unit, count, divisor)
    }
}

/// One group. 32 bytes without squares, 64 with them (for doubles and integers), aligned not to straddle lines.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(in crate::agg) struct Cell<S, Q> {
    pub(in crate::agg) sum: S,
    pub(in crate::agg) squares: Q,
    /// See [`Tag`].
    tag: u64,
    /// Number of records, nulls and all.
    pub(in crate::agg) rows: u64,
}

const COUNT: u32 = 1 + Unit::BITS;

impl<S: Default, Q: Default> Default for Cell<S, Q> {
    fn default() -> Self {
        Self { sum: S::default(), squares: Q::default(), tag: Tag::default().0, rows: 0 }
    }
}

impl<S: Default, Q: Default> Cell<S, Q> {
    /// Forgets all but the number of records.
    pub(in crate::agg) fn clear_values(&mut self) {
        *self = Self { rows: self.rows, ..Self::default() };
    }
}

impl<S, Q> Cell<S, Q> {
    #[inline(always)]
    pub(in crate::agg) fn tag(&self) -> Tag {
        Tag(self.tag)
    }

    #[inline(always)]
    pub(in crate::agg) fn enter(&mut self) {
        self.tag += 1 << COUNT;
    }

    #[inline(always)]
    pub(in crate::agg) fn leave(&mut self) {
        self.tag -= 1 << COUNT;
    }

    /// Changes the unit; only while the sums are zero.
    pub(in crate::agg) fn set_unit(&mut self, unit: Unit) {
        self.tag = self.tag >> COUNT << COUNT | unit.to_bits() << 1 | self.tag & 1;
    }

    pub(in crate::agg) fn set_outlier(&mut self, present: bool) {
        self.tag = self.tag & !1 | u64::from(present);
    }
}

/// From the lowest bit: whether the group has an outlier, the unit of the sum, the number of values.
#[derive(Clone, Copy)]
pub(in crate::agg) struct Tag(u64);

impl Default for Tag {
    fn default() -> Self {
        Self(Unit::USUAL.to_bits() << 1)
    }
}

impl Tag {
    /// Number of values: 52 bits, a million a second for 142 years.
    #[inline(always)]
    pub(in crate::agg) fn count(self) -> u64 {
        self.0 >> COUNT
    }

    #[inline(always)]
    pub(in crate::agg) fn unit(self) -> Unit {
        Unit::from_bits(self.0 >> 1)
    }

    #[inline(always)]
    pub(in crate::agg) fn has_outlier(self) -> bool {
        self.0 & 1 == 1
    }
}

/// What a step remembers of the cell that it reads.
///
/// Not the cell itself: to copy what has just been written word by word in larger pieces stalls the processor.
pub(in crate::agg) struct Noted<N: Number, Q: Second<N>> {
    pub(in crate::agg) sum: N::Note,
    pub(in crate::agg) second: Q::Note,
    pub(in crate::agg) tag: Tag,
    pub(in crate::agg) rows: u64,
}

impl<N: Number, Q: Second<N>> Noted<N, Q> {
    pub(in crate::agg) fn empty() -> Self {
        Self { sum: N::Note::default(), second: Q::Note::default(), tag: Tag::default(), rows: 0 }
    }

    #[inline(always)]
    pub(in crate::agg) fn of(cell: &Cell<N::Sum, Q>) -> Self {
        let tag = cell.tag();
        Self {
            sum: N::note(&cell.sum, tag.unit()),
            second: Q::note(&cell.sum, &cell.squares),
            tag,
            rows: cell.rows,
        }
    }
}
