//! What a cell can't hold: doubles that are not whole multiples of its unit or too many of them, NaN, infinities, and
//! sums that outgrew the cell.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::super::exact::{Scaled, Unit, Wide, multiply, parts, spread_ratio};
use super::cell::{Accumulator, Cell};
use super::{Number, Second};
use crate::image::{Malformed, Reader, put};

/// The outliers of a state, by group.
#[derive(Default)]
pub(super) struct Outliers {
    groups: HashMap<u32, Box<Outlier>, RandomState>,
}

/// One group's.
#[derive(Clone, Debug, Default)]
struct Outlier {
    sum: Wide,
    squares: Wide,
    nan: u64,
    positive: u64,
    negative: u64,
}

/// The exact sums of a group with an outlier, cell and all.
pub(super) struct Totals {
    /// The value of sums in which NaN or infinities take part.
    special: Option<f64>,
    sum: Wide,
    squares: Wide,
}

impl Outliers {
    /// A value without a term enters. A sum that is zero takes the value's unit, so that a group whose values are all
    /// tiny, or all huge, has no outlier.
    #[cold]
    pub(super) fn add<N: Number, Q: Second<N>>(
        &mut self,
        group: u32,
        cell: &mut Cell<N::Sum, Q>,
        value: N::Native,
    ) {
        if cell.sum == N::Sum::default()
            && cell.squares == Q::default()
            && let Some(unit) = Unit::around(N::outlier(value))
            && let Some(term) = N::term(value, unit)
        {
            cell.set_unit(unit);
            cell.sum = term;
            cell.squares = Q::of(value, unit);
            return;
        }
        let outlier = self.groups.entry(group).or_default();
        outlier.change(N::outlier(value), false, Q::KEPT);
        cell.set_outlier(true);
    }

    /// A value without a term leaves.
    #[cold]
    pub(super) fn remove<N: Number, Q: Second<N>>(
        &mut self,
        group: u32,
        cell: &mut Cell<N::Sum, Q>,
        value: N::Native,
    ) {
        let outlier = self.groups.entry(group).or_default();
        outlier.change(N::outlier(value), true, Q::KEPT);
        let empty = outlier.is_empty();
        if empty {
            self.groups.remove(&group);
        }
        cell.set_outlier(!empty);
    }

    /// Adding `term` has wrapped the cell's sum: moves what it held before to the outlier.
    #[cold]
    pub(super) fn spill_sum<N: Number, Q: Second<N>>(
        &mut self,
        group: u32,
        cell: &mut Cell<N::Sum, Q>,
        term: &N::Sum,
    ) {
        cell.sum.sub(term);
        self.take_sum::<N, Q>(group, cell);
        cell.sum.add(term);
    }

    /// Subtracting `term` has wrapped the cell's sum.
    #[cold]
    pub(super) fn spill_sum_back<N: Number, Q: Second<N>>(
        &mut self,
        group: u32,
        cell: &mut Cell<N::Sum, Q>,
        term: &N::Sum,
    ) {
        cell.sum.add(term);
        self.take_sum::<N, Q>(group, cell);
        cell.sum.sub(term);
    }

    fn take_sum<N: Number, Q: Second<N>>(&mut self, group: u32, cell: &mut Cell<N::Sum, Q>) {
        let units = N::units(&std::mem::take(&mut cell.sum));
        add_units(&mut self.groups.entry(group).or_default().sum, units, cell.tag().unit());
        cell.set_outlier(true);
    }

    /// Adding `term` has wrapped the cell's sum of squares.
    #[cold]
    pub(super) fn spill_squares<N: Number, Q: Second<N>>(
        &mut self,
        group: u32,
        cell: &mut Cell<N::Sum, Q>,
        term: &Q,
    ) {
        cell.squares.sub(term);
        self.take_squares::<N, Q>(group, cell);
        cell.squares.add(term);
    }

    /// Subtracting `term` has wrapped the cell's sum of squares.
    #[cold]
    pub(super) fn spill_squares_back<N: Number, Q: Second<N>>(
        &mut self,
        group: u32,
        cell: &mut Cell<N::Sum, Q>,
        term: &Q,
    ) {
        cell.squares.add(term);
        self.take_squares::<N, Q>(group, cell);
        cell.squares.sub(term);
    }

    fn take_squares<N: Number, Q: Second<N>>(&mut self, group: u32, cell: &mut Cell<N::Sum, Q>) {
        let (negative, units) = N::square_units(&std::mem::take(&mut cell.squares).get()).magnitude();
        let exponent = 2 * cell.tag().unit().exponent();
        self.groups.entry(group).or_default().squares.add(negative, &units, exponent);
        cell.set_outlier(true);
    }

    /// Appends the outlier of a group that has one.
    pub(super) fn save(&self, group: u32, out: &mut Vec<u8>) {
        let outlier = self.groups.get(&group).expect("the cell says that the group has an outlier");
        for count in [outlier.nan, outlier.positive, outlier.negative] {
            put(out, count);
        }
        outlier.sum.save(out);
        outlier.squares.save(out);
    }

    pub(super) fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let outlier = Outlier {
            nan: image.number("count of NaN")?,
            positive: image.number("count of infinities")?,
            negative: image.number("count of infinities")?,
            sum: Wide::load(image)?,
            squares: Wide::load(image)?,
        };
        self.groups.insert(group, Box::new(outlier));
        Ok(())
    }

    pub(super) fn forget(&mut self, group: u32) {
        self.groups.remove(&group);
    }

    /// The exact sums of a group that has an outlier.
    #[cold]
    pub(super) fn totals<N: Number, Q: Second<N>>(&self, group: u32, cell: &Cell<N::Sum, Q>) -> Totals {
        let outlier = self.groups.get(&group).expect("the cell says that the group has an outlier");
        let mut totals =
            Totals { special: outlier.special(), sum: outlier.sum.clone(), squares: outlier.squares.clone() };
        add_units(&mut totals.sum, N::units(&cell.sum), cell.tag().unit());
        if Q::KEPT {
            let (negative, units) = N::square_units(&cell.squares.get()).magnitude();
            totals.squares.add(negative, &units, 2 * cell.tag().unit().exponent());
        }
        totals
    }

    pub(super) fn bytes(&self) -> usize {
        let limbs: usize =
            self.groups.values().map(|outlier| outlier.sum.bytes() + outlier.squares.bytes()).sum();
        limbs + self.groups.len() * size_of::<Outlier>() + self.groups.allocation_size()
    }
}

fn add_units(sum: &mut Wide, units: i128, unit: Unit) {
    let magnitude = units.unsigned_abs();
    sum.add(units < 0, &[magnitude as u64, (magnitude >> 64) as u64], unit.exponent());
}

impl Outlier {
    fn change(&mut self, value: f64, leaves: bool, squares: bool) {
        let count = if value.is_nan() {
            &mut self.nan
        } else if value == f64::INFINITY {
            &mut self.positive
        } else if value == f64::NEG_INFINITY {
            &mut self.negative
        } else {
            let p = parts(value);
            self.sum.add(p.negative != leaves, &[p.mantissa], p.exponent);
            if squares {
                let square = u128::from(p.mantissa) * u128::from(p.mantissa);
                self.squares.add(leaves, &[square as u64, (square >> 64) as u64], 2 * p.exponent);
            }
            return;
        };
        *count = if leaves { *count - 1 } else { *count + 1 };
    }

    fn is_empty(&self) -> bool {
        self.nan + self.positive + self.negative == 0 && self.sum.is_zero() && self.squares.is_zero()
    }

    fn special(&self) -> Option<f64> {
        match (self.nan, self.positive, self.negative) {
            (0, 0, 0) => None,
            (0, _, 0) => Some(f64::INFINITY),
            (0, 0, _) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        }
    }
}

impl Totals {
    pub(super) fn sum(&self) -> f64 {
        self.special.unwrap_or_else(|| signed(self.sum.round()))
    }

    pub(super) fn mean(&self, count: u64) -> f64 {
        self.special.unwrap_or_else(|| {
            let (negative, sum) = self.sum.round();
            signed((negative, sum.divide(count)))
        })
    }

    /// `(count · Σx² − (Σx)²) / (count · divisor)`; `None` is NaN.
    pub(super) fn variance(&self, count: u64, divisor: u64) -> Option<Scaled> {
        if self.special.is_some() {
            return None;
        }
        let (_, sum, sum_exponent) = self.sum.magnitude();
        let (_, squares, squares_exponent) = self.squares.magnitude();
        let mut spread = Wide::default();
        spread.add(false, &multiply(&squares, &[count]), squares_exponent);
        spread.add(true, &multiply(&sum, &sum), 2 * sum_exponent);
        let (negative, spread, exponent) = spread.magnitude();
        assert!(!negative, "no variance is negative");
        Some(spread_ratio(&spread, count, divisor, exponent))
    }
}

fn signed((negative, value): (bool, Scaled)) -> f64 {
    // A zero sum is +0, whatever the signs of its terms.
    if negative { -value.to_float() } else { value.to_float() }
}
