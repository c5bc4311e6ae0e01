//! What a number type needs to be summed, and the arithmetic of doubles and integers.
//!
//! Not here: decimals.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int64Type, UInt64Type};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_buffer::NullBuffer;

use super::super::exact::{Limbs, Scaled, Unit, integer_to_float, power_of_two, ratio, spread_ratio};
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
    spread_ratio(&spread, count, divisor, unit)
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
