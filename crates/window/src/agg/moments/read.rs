//! From cells to the values of one call.

use super::Number;
use super::cell::{Noted, Second};
use super::outlier::Totals;
use crate::agg::Column;
use crate::agg::exact::Scaled;
use crate::agg::output::Writer;

/// What a call reads from a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::agg) enum Moment {
    /// Records, nulls and all.
    Rows,
    /// Values that are not null.
    Count,
    Sum,
    Mean,
    Variance {
        sample: bool,
    },
    Deviation {
        sample: bool,
    },
}

impl Moment {
    pub(in crate::agg) fn needs_squares(self) -> bool {
        matches!(self, Moment::Variance { .. } | Moment::Deviation { .. })
    }
}

/// The column of a call under construction.
pub(super) enum Sink<N: Number> {
    Rows(Writer<i64>),
    Count(Writer<i64>),
    Sum(Writer<N::Out>),
    Mean(Writer<f64>),
    Spread(Spread, Writer<f64>),
}

/// Variance or standard deviation, of a sample or of all.
#[derive(Clone, Copy)]
pub(super) struct Spread {
    sample: bool,
    root: bool,
}

impl Spread {
    /// The divisor in addition to the count, `None` where the value is null.
    fn divisor(self, count: u64) -> Option<u64> {
        count.checked_sub(u64::from(self.sample)).filter(|divisor| *divisor > 0)
    }

    fn value(self, variance: Scaled) -> f64 {
        if self.root { variance.sqrt().to_float() } else { variance.to_float() }
    }
}

impl<N: Number> Sink<N> {
    pub(super) fn new(moment: Moment, rows: usize) -> Self {
        match moment {
            Moment::Rows => Sink::Rows(Writer::new(rows)),
            Moment::Count => Sink::Count(Writer::new(rows)),
            Moment::Sum => Sink::Sum(Writer::new(rows)),
            Moment::Mean => Sink::Mean(Writer::new(rows)),
            Moment::Variance { sample } => Sink::Spread(Spread { sample, root: false }, Writer::new(rows)),
            Moment::Deviation { sample } => Sink::Spread(Spread { sample, root: true }, Writer::new(rows)),
        }
    }

    /// Writes the values of `noted` from row `start` on.
    pub(super) fn write<Q: Second<N>>(&mut self, number: &N, start: usize, noted: &[Noted<N, Q>]) {
        match self {
            Sink::Rows(out) => {
                for (row, noted) in (start..).zip(noted) {
                    out.set(row, noted.rows as i64, true);
                }
            }
            Sink::Count(out) => {
                for (row, noted) in (start..).zip(noted) {
                    out.set(row, noted.tag.count() as i64, true);
                }
            }
            Sink::Sum(out) => {
                for (row, noted) in (start..).zip(noted) {
                    let total = number.total(&noted.sum);
                    out.set(row, total.unwrap_or_default(), total.is_some() && noted.tag.count() > 0);
                    if total.is_none() {
                        out.errors.push(row as u32);
                    }
                }
            }
            Sink::Mean(out) => {
                for (row, noted) in (start..).zip(noted) {
                    let count = noted.tag.count();
                    out.set(row, number.mean(&noted.sum, count.max(1)), count > 0);
                }
            }
            Sink::Spread(spread, out) => {
                for (row, noted) in (start..).zip(noted) {
                    let Some(divisor) = spread.divisor(noted.tag.count()) else { continue };
                    let value = if noted.tag.has_outlier() {
                        0.0
                    } else {
                        let (unit, count) = (noted.tag.unit(), noted.tag.count());
                        spread.value(Q::variance(number, &noted.second, unit, count, divisor))
                    };
                    out.set(row, value, true);
                }
            }
        }
    }

    /// Replaces the value of a row whose group has an outlier; whether it is null is known already.
    pub(super) fn write_unusual(&mut self, row: usize, totals: &Totals, count: u64) {
        match self {
            Sink::Rows(_) | Sink::Count(_) => {}
            Sink::Sum(out) => out.values[row] = N::out(totals.sum()),
            Sink::Mean(out) => out.values[row] = totals.mean(count.max(1)),
            Sink::Spread(spread, out) => {
                if let Some(divisor) = spread.divisor(count) {
                    let variance = totals.variance(count, divisor);
                    out.values[row] = variance.map_or(f64::NAN, |variance| spread.value(variance));
                }
            }
        }
    }

    pub(super) fn finish(self, number: &N) -> Column {
        match self {
            Sink::Rows(out) | Sink::Count(out) => out.into_int64(),
            Sink::Mean(out) | Sink::Spread(_, out) => out.into_float64(),
            Sink::Sum(out) => {
                Column { values: number.finish(out.values, out.valid.into_nulls()), errors: out.errors }
            }
        }
    }
}
