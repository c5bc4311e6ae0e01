//! What a group holds: exact sums and counts, small enough for one cache line.

use super::super::exact::{Limbs, Scaled, Unit};
use super::Number;
use crate::image::{Malformed, Reader, put, put_wide};

/// An exact sum in fixed width.
pub(in crate::agg) trait Accumulator: Copy + Default + PartialEq + Send + 'static {
    /// Adds; true where the result did not fit (it has wrapped, and subtracting undoes it).
    fn add(&mut self, term: &Self) -> bool;
    /// Subtracts; true where the result did not fit (it has wrapped, and adding undoes it).
    fn sub(&mut self, term: &Self) -> bool;
    fn save(&self, out: &mut Vec<u8>);
    fn load(image: &mut Reader<'_>) -> Result<Self, Malformed>;
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

    fn save(&self, out: &mut Vec<u8>) {
        put_wide(out, &self.to_le_bytes());
    }

    fn load(image: &mut Reader<'_>) -> Result<Self, Malformed> {
        image.wide("sum").map(i128::from_le_bytes)
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

    fn save(&self, out: &mut Vec<u8>) {
        // The widest sums have nine limbs.
        let mut bytes = [0; 72];
        for (bytes, limb) in bytes.chunks_exact_mut(8).zip(self.0) {
            bytes.copy_from_slice(&limb.to_le_bytes());
        }
        put_wide(out, &bytes[..8 * N]);
    }

    fn load(image: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bytes = image.wide::<72>("sum")?;
        let (used, sign) = bytes.split_at(8 * N);
        let top = if used[8 * N - 1] >> 7 == 1 { 0xff } else { 0 };
        if sign.iter().any(|byte| *byte != top) {
            return Err(image.malformed("sum", format_args!("at most {} bytes", 8 * N), "more"));
        }
        let mut limbs = Self::default();
        for (limb, bytes) in limbs.0.iter_mut().zip(used.chunks_exact(8)) {
            *limb = bytes.iter().rev().fold(0, |limb, byte| limb << 8 | u64::from(*byte));
        }
        Ok(limbs)
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

    fn save(&self, _: &mut Vec<u8>) {}

    fn load(_: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(())
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

    fn save(&self, out: &mut Vec<u8>) {
        self.0.save(out);
    }

    fn load(image: &mut Reader<'_>) -> Result<Self, Malformed> {
        S::load(image).map(Kept)
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

impl<S: Accumulator, Q: Accumulator> Cell<S, Q> {
    pub(in crate::agg) fn save(&self, out: &mut Vec<u8>) {
        let tag = self.tag();
        put(out, self.rows);
        put(out, tag.count());
        // The usual unit, which most groups have, is 0.
        put(out, tag.unit().to_bits() ^ Unit::USUAL.to_bits());
        out.push(u8::from(tag.has_outlier()));
        self.sum.save(out);
        self.squares.save(out);
    }

    /// `outliers`: whether the cell's numbers may have a unit of their own, and an outlier.
    pub(in crate::agg) fn load(image: &mut Reader<'_>, outliers: bool) -> Result<Self, Malformed> {
        let rows = image.number("records of a sum")?;
        let count = image.number("values of a sum")?;
        if count > rows || count >> (64 - COUNT) != 0 {
            return Err(image.malformed("values of a sum", format_args!("at most {rows}"), count));
        }
        let bits = image.number("unit of a sum")? ^ Unit::USUAL.to_bits();
        let unit = Unit::from_bits(bits);
        if unit.to_bits() != bits || !unit.is_chosen() || !outliers && unit != Unit::USUAL {
            return Err(image.malformed("unit of a sum", "one that its values may have", bits));
        }
        let has_outlier = image.flag("outlier of a sum")?;
        if has_outlier && !outliers {
            return Err(image.malformed("outlier of a sum", "none", "one"));
        }
        let mut cell = Self { sum: S::load(image)?, squares: Q::load(image)?, tag: count << COUNT, rows };
        cell.set_unit(unit);
        cell.set_outlier(has_outlier);
        Ok(cell)
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
/// Not the cell itself: to copy words that have just been written one by one in larger pieces stalls the processor.
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
