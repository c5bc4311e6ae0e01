//! The arithmetic of decimals: exact sums of digits, scaled once when they are read.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal128Type, Decimal256Type};
use arrow_array::{ArrayRef, Decimal128Array, Decimal256Array};
use arrow_buffer::{NullBuffer, i256};

use super::super::exact::{Limbs, Scaled, Unit, multiply, ratio};
use super::{Accumulator, Number};

/// The width of a decimal's digits.
pub(in crate::agg) trait Width: Send + 'static {
    type Native: Copy;
    type Sum: Accumulator;
    type Square: Accumulator;
    fn slice(values: &ArrayRef) -> &[Self::Native];
    fn widen(value: Self::Native) -> i256;
    fn term(value: i256) -> Self::Sum;
    fn square(magnitude: [u64; 4]) -> Self::Square;
    fn sum(sum: &Self::Sum) -> Option<i256>;
    fn magnitude(sum: &Self::Sum) -> (bool, Vec<u64>);
    fn square_limbs(square: &Self::Square) -> &[u64];
}

/// Up to 38 digits, in 128 bits.
pub(in crate::agg) struct Narrow;

/// Up to 76 digits, in 256 bits.
pub(in crate::agg) struct Wide256;

/// Widths leave 64 bits above any value or square: 2^63 values never overflow.
macro_rules! width {
    ($name:ident, $arrow:ty, $sum:literal, $square:literal, $widen:expr) => {
        impl Width for $name {
            type Native = <$arrow as ArrowPrimitiveType>::Native;
            type Sum = Limbs<$sum>;
            type Square = Limbs<$square>;

            fn slice(values: &ArrayRef) -> &[Self::Native] {
                values.as_primitive::<$arrow>().values()
            }

            #[inline(always)]
            fn widen(value: Self::Native) -> i256 {
                $widen(value)
            }

            #[inline(always)]
            fn term(value: i256) -> Limbs<$sum> {
                Limbs::from_i256(value)
            }

            fn square(magnitude: [u64; 4]) -> Limbs<$square> {
                let used = ($square - 1) / 2;
                let mut square = Limbs::default();
                square.0[..2 * used].copy_from_slice(&multiply(&magnitude[..used], &magnitude[..used]));
                square
            }

            fn sum(sum: &Limbs<$sum>) -> Option<i256> {
                sum.to_i256()
            }

            fn magnitude(sum: &Limbs<$sum>) -> (bool, Vec<u64>) {
                let (negative, magnitude) = sum.magnitude();
                (negative, magnitude.to_vec())
            }

            fn square_limbs(square: &Limbs<$square>) -> &[u64] {
                &square.0
            }
        }
    };
}

width!(Narrow, Decimal128Type, 4, 5, i256::from_i128);
width!(Wide256, Decimal256Type, 5, 9, std::convert::identity);

/// decimal(p,s)
pub(in crate::agg) struct Decimal<W> {
    /// Of the output.
    precision: u8,
    scale: i8,
    /// 10^precision: sums fit below it.
    limit: i256,
    /// 10^scale and its square.
    unit: Vec<u64>,
    unit_square: Vec<u64>,
    width: std::marker::PhantomData<W>,
}

impl<W> Decimal<W> {
    /// For sums that are given as `decimal(precision, scale)`.
    pub(in crate::agg) fn new(precision: u8, scale: i8) -> Self {
        let ten = i256::from_i128(10);
        let limit = ten.checked_pow(u32::from(precision)).expect("10^76 fits 256 bits");
        let power = ten.checked_pow(u32::from(scale.unsigned_abs())).expect("10^76 fits 256 bits");
        let unit = trimmed(Limbs::<4>::from_i256(power).0.to_vec());
        let unit_square = trimmed(multiply(&unit, &unit));
        Self { precision, scale, limit, unit, unit_square, width: std::marker::PhantomData }
    }
}

fn trimmed(mut limbs: Vec<u64>) -> Vec<u64> {
    while limbs.last() == Some(&0) {
        limbs.pop();
    }
    limbs
}

impl<W: Width> Number for Decimal<W> {
    type Native = W::Native;
    type Sum = W::Sum;
    type Square = W::Square;
    type Note = W::Sum;
    type Out = i256;

    fn slice(values: &ArrayRef) -> &[W::Native] {
        W::slice(values)
    }

    #[inline(always)]
    fn term(value: W::Native, _: Unit) -> Option<W::Sum> {
        Some(W::term(W::widen(value)))
    }

    fn square(value: W::Native, _: Unit) -> W::Square {
        W::square(Limbs::<4>::from_i256(W::widen(value)).magnitude().1)
    }

    #[inline(always)]
    fn note(sum: &W::Sum, _: Unit) -> W::Sum {
        *sum
    }

    fn total(&self, sum: &W::Sum) -> Option<i256> {
        W::sum(sum).filter(|sum| -self.limit < *sum && *sum < self.limit)
    }

    fn mean(&self, sum: &W::Sum, count: u64) -> f64 {
        let (negative, magnitude) = W::magnitude(sum);
        let mean = ratio(&magnitude, &trimmed(multiply(&self.unit, &[count])), 0).to_float();
        if negative { -mean } else { mean }
    }

    fn variance(&self, (sum, squares): (&W::Sum, &W::Square), _: Unit, count: u64, divisor: u64) -> Scaled {
        let (_, magnitude) = W::magnitude(sum);
        let mut spread = multiply(W::square_limbs(squares), &[count]);
        let square = trimmed(multiply(&magnitude, &magnitude));
        let mut borrow = false;
        for (index, limb) in spread.iter_mut().enumerate() {
            (*limb, borrow) = limb.borrowing_sub(square.get(index).copied().unwrap_or(0), borrow);
        }
        debug_assert!(!borrow, "no variance is negative");
        let (low, high) = count.carrying_mul(divisor, 0);
        ratio(&spread, &trimmed(multiply(&self.unit_square, &[low, high])), 0)
    }

    fn finish(&self, values: Vec<i256>, nulls: Option<NullBuffer>) -> ArrayRef {
        let typed = "a decimal type's precision and scale are in range";
        if self.precision > 38 {
            let array = Decimal256Array::new(values.into(), nulls);
            return Arc::new(array.with_precision_and_scale(self.precision, self.scale).expect(typed));
        }
        let values: Vec<i128> =
            values.iter().map(|value| value.to_i128().expect("38 digits fit 128 bits")).collect();
        let array = Decimal128Array::new(values.into(), nulls);
        Arc::new(array.with_precision_and_scale(self.precision, self.scale).expect(typed))
    }
}
