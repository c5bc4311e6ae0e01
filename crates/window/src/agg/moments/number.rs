//! The arithmetic of each number type: how values are summed and what sums, means and variances come out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type,
};
use arrow_array::{ArrayRef, Decimal128Array, Decimal256Array, PrimitiveArray};
use arrow_buffer::{NullBuffer, i256};

use super::super::exact::{Limbs, Scaled, Unit, integer_to_float, multiply, power_of_two, ratio};
use super::Accumulator;

/// A number type.
pub(in crate::agg) trait Number: Send + 'static {
    type Native: Copy;
    type Sum: Accumulator;
    type Square: Accumulator;
    /// As much of a sum as its total and its mean need.
    type Note: Copy + Default;
    /// A value of the output of `sum`.
    type Out: Copy + Default;
    /// Whether there are values without a [`Number::term`], and sums that don't fit [`Number::Sum`].
    const OUTLIERS: bool = false;

    fn slice(values: &ArrayRef) -> &[Self::Native];
    /// The value as a term of the sum; `None` for one that goes to the outliers. Only doubles have a unit.
    fn term(value: Self::Native, unit: Unit) -> Option<Self::Sum>;
    fn square(value: Self::Native, unit: Unit) -> Self::Square;
    /// What a step remembers of a sum.
    fn note(sum: &Self::Sum, unit: Unit) -> Self::Note;
    /// The output of `sum`; `None` where it does not fit.
    fn total(&self, sum: &Self::Note) -> Option<Self::Out>;
    /// `sum / count`.
    fn mean(&self, sum: &Self::Note, count: u64) -> f64;
    /// `(count · Σx² − (Σx)²) / (count · divisor)`.
    fn variance(&self, moments: (&Self::Sum, &Self::Square), unit: Unit, count: u64, divisor: u64) -> Scaled;
    fn finish(&self, values: Vec<Self::Out>, nulls: Option<NullBuffer>) -> ArrayRef;

    /// A value without a term, as a double.
    fn outlier(value: Self::Native) -> f64 {
        let _ = value;
        unreachable!("only doubles have outliers")
    }
    /// A sum in its unit.
    fn units(sum: &Self::Sum) -> i128 {
        let _ = sum;
        unreachable!("only sums of doubles overflow")
    }
    /// A sum of squares in squares of its unit.
    fn square_units(square: &Self::Square) -> Limbs<4> {
        let _ = square;
        unreachable!("only sums of doubles overflow")
    }
    fn out(sum: f64) -> Self::Out {
        let _ = sum;
        unreachable!("only doubles have outliers")
    }
}

fn primitive<P: ArrowPrimitiveType>(values: Vec<P::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<P>::new(values.into(), nulls))
}

/// `(count · squares − sum²) / (count · divisor) · 2^unit` for a cell of 128 and 256 bits.
fn variance_of_cell(sum: i128, squares: &Limbs<4>, count: u64, divisor: u64, unit: i32) -> Scaled {
    let magnitude = sum.unsigned_abs();
    let mut spread = [0; 5];
    let mut carry = 0;
    for (limb, square) in spread.iter_mut().zip(squares.0) {
        (*limb, carry) = square.carrying_mul(count, carry);
    }
    spread[4] = carry;
    let mut borrow = false;
    for (limb, other) in spread.iter_mut().zip(square_of(magnitude)) {
        (*limb, borrow) = limb.borrowing_sub(other, borrow);
    }
    ratio(&spread, &count_product(count, divisor), unit)
}

fn square_of(x: u128) -> [u64; 5] {
    let (low, high) = (x as u64, (x >> 64) as u64);
    let (r0, carry) = low.carrying_mul(low, 0);
    let (middle, middle_high) = low.carrying_mul(high, 0);
    let (r1, c1) = middle.carrying_mul_add(2, carry, 0);
    let (r2, c2) = high.carrying_mul_add(high, c1, 0);
    let (r2, c3) = middle_high.carrying_mul_add(2, r2, 0);
    [r0, r1, r2, c2 + c3, 0]
}

fn count_product(count: u64, divisor: u64) -> [u64; 2] {
    let (low, high) = count.carrying_mul(divisor, 0);
    [low, high]
}

/// `sum / count`, correctly rounded.
fn mean_of_integer(sum: i128, count: u64) -> f64 {
    let magnitude = sum.unsigned_abs();
    let mean = if magnitude < 1 << 53 && count < 1 << 53 {
        magnitude as u64 as f64 / count as f64
    } else {
        ratio(&[magnitude as u64, (magnitude >> 64) as u64], &[count], 0).to_float()
    };
    if sum < 0 { -mean } else { mean }
}

/// float64
pub(in crate::agg) struct Float;

impl Number for Float {
    type Native = f64;
    type Sum = i128;
    type Square = Limbs<4>;
    type Note = f64;
    type Out = f64;
    const OUTLIERS: bool = true;

    fn slice(values: &ArrayRef) -> &[f64] {
        values.as_primitive::<Float64Type>().values()
    }

    #[inline(always)]
    fn term(value: f64, unit: Unit) -> Option<i128> {
        unit.count(value)
    }

    #[inline(always)]
    fn square(value: f64, unit: Unit) -> Limbs<4> {
        unit.count_square(value)
    }

    #[inline(always)]
    fn note(sum: &i128, unit: Unit) -> f64 {
        integer_to_float(*sum) * power_of_two(unit.exponent())
    }

    #[inline(always)]
    fn total(&self, sum: &f64) -> Option<f64> {
        Some(*sum)
    }

    #[inline(always)]
    fn mean(&self, sum: &f64, count: u64) -> f64 {
        *sum / count as f64
    }

    fn variance(&self, (sum, squares): (&i128, &Limbs<4>), unit: Unit, count: u64, divisor: u64) -> Scaled {
        variance_of_cell(*sum, squares, count, divisor, 2 * unit.exponent())
    }

    fn finish(&self, values: Vec<f64>, nulls: Option<NullBuffer>) -> ArrayRef {
        primitive::<Float64Type>(values, nulls)
    }

    fn outlier(value: f64) -> f64 {
        value
    }

    fn units(sum: &i128) -> i128 {
        *sum
    }

    fn square_units(square: &Limbs<4>) -> Limbs<4> {
        *square
    }

    fn out(sum: f64) -> f64 {
        sum
    }
}

/// int64
pub(in crate::agg) struct Int;

/// uint64
pub(in crate::agg) struct UInt;

/// `i128` holds 2^63 values of any 64-bit integer, and 256 bits their squares.
macro_rules! integer {
    ($name:ident, $native:ty, $arrow:ty) => {
        impl Number for $name {
            type Native = $native;
            type Sum = i128;
            type Square = Limbs<4>;
            type Note = i128;
            type Out = $native;

            fn slice(values: &ArrayRef) -> &[$native] {
                values.as_primitive::<$arrow>().values()
            }

            #[inline(always)]
            fn term(value: $native, _: Unit) -> Option<i128> {
                Some(i128::from(value))
            }

            #[inline(always)]
            fn square(value: $native, _: Unit) -> Limbs<4> {
                let magnitude = i128::from(value).unsigned_abs();
                let square = magnitude * magnitude;
                Limbs([square as u64, (square >> 64) as u64, 0, 0])
            }

            #[inline(always)]
            fn note(sum: &i128, _: Unit) -> i128 {
                *sum
            }

            #[inline(always)]
            fn total(&self, sum: &i128) -> Option<$native> {
                <$native>::try_from(*sum).ok()
            }

            #[inline(always)]
            fn mean(&self, sum: &i128, count: u64) -> f64 {
                mean_of_integer(*sum, count)
            }

            fn variance(
                &self,
                (sum, squares): (&i128, &Limbs<4>),
                _: Unit,
                count: u64,
                divisor: u64,
            ) -> Scaled {
                variance_of_cell(*sum, squares, count, divisor, 0)
            }

            fn finish(&self, values: Vec<$native>, nulls: Option<NullBuffer>) -> ArrayRef {
                primitive::<$arrow>(values, nulls)
            }
        }
    };
}

integer!(Int, i64, Int64Type);
integer!(UInt, u64, UInt64Type);

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
        let denominator = multiply(&self.unit_square, &count_product(count, divisor));
        ratio(&spread, &trimmed(denominator), 0)
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

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn squares_of_128_bits_are_exact(x: u128) {
            let digits = square_of(x).iter().flat_map(|limb| [*limb as u32, (*limb >> 32) as u32]).collect();
            prop_assert_eq!(BigUint::new(digits), BigUint::from(x) * BigUint::from(x));
        }
    }
}
