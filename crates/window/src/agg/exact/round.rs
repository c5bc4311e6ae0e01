//! The one rounding from an exact integer, or a ratio of two, to 53 bits: to nearest, ties to even.
//!
//! Magnitudes are slices of 64-bit limbs, least significant first; leading zero limbs are allowed.

use super::power_of_two;

/// A non-negative number rounded to 53 bits, with an exponent that a double may not have.
///
/// Invariant: the mantissa is 0 or in [1, 2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::agg) struct Scaled {
    mantissa: f64,
    exponent: i32,
}

impl Scaled {
    pub(in crate::agg) const ZERO: Scaled = Scaled { mantissa: 0.0, exponent: 0 };

    /// Rounds `magnitude · 2^exponent`.
    pub(in crate::agg) fn round(magnitude: &[u64], exponent: i32) -> Self {
        let length = bit_length(magnitude);
        if length == 0 {
            return Self::ZERO;
        }
        let from = length as i64 - 64;
        Self::from_top(word_at(magnitude, from), any_below(magnitude, from), exponent + from as i32)
    }

    /// Rounds `top · 2^exponent`, plus a little where `more`; the highest bit of `top` is set.
    fn from_top(top: u64, more: bool, exponent: i32) -> Self {
        debug_assert!(top >> 63 == 1, "the top word is normal");
        let head = (top >> 1) | (top & 1) | u64::from(more);
        Self::normal(head as i64 as f64, exponent + 1)
    }

    /// `value · 2^exponent` for a positive normal value.
    fn normal(value: f64, exponent: i32) -> Self {
        let bits = value.to_bits();
        let own = (bits >> 52) as i32 - 1023;
        let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
        Self { mantissa, exponent: exponent + own }
    }

    /// Divides by a count; one more rounding.
    pub(in crate::agg) fn divide(self, count: u64) -> Self {
        if self.mantissa == 0.0 { self } else { Self::normal(self.mantissa / count as f64, self.exponent) }
    }

    /// The square root; one more rounding.
    pub(in crate::agg) fn sqrt(self) -> Self {
        let odd = self.exponent & 1;
        let mantissa = if odd == 1 { 2.0 * self.mantissa } else { self.mantissa };
        Self { mantissa: mantissa.sqrt(), exponent: (self.exponent - odd) / 2 }
    }

    /// The double; infinite where it is too large, and rounded once more where it is subnormal.
    pub(in crate::agg) fn to_float(self) -> f64 {
        match self.exponent {
            1024.. => {
                if self.mantissa == 0.0 {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
            -1022..=1023 => self.mantissa * power_of_two(self.exponent),
            // Two steps, and only the second rounds.
            -1080..=-1023 => self.mantissa * power_of_two(self.exponent + 500) * power_of_two(-500),
            _ => 0.0,
        }
    }
}

/// Rounds `numerator / denominator · 2^exponent`, once.
///
/// # Panics
/// If the denominator is zero.
pub(in crate::agg) fn ratio(numerator: &[u64], denominator: &[u64], exponent: i32) -> Scaled {
    let length = bit_length(numerator);
    if length == 0 {
        return Scaled::ZERO;
    }
    if let [divisor, rest @ ..] = denominator
        && rest.iter().all(|limb| *limb == 0)
    {
        // The highest 128 bits over 64 bits leave at least 64 bits of quotient.
        let from = length as i64 - 128;
        let top = u128::from(word_at(numerator, from + 64)) << 64 | u128::from(word_at(numerator, from));
        let divisor = u128::from(*divisor);
        let (quotient, rest) = (top / divisor, top % divisor);
        return round_quotient(quotient, rest != 0 || any_below(numerator, from), exponent + from as i32);
    }
    long_division(numerator, denominator, exponent)
}

/// `numerator / (count · divisor) · 2^exponent`: where the product is a whole double, two roundings, which are much
/// faster than a division of 128 bits; else one.
pub(in crate::agg) fn spread_ratio(numerator: &[u64], count: u64, divisor: u64, exponent: i32) -> Scaled {
    let (low, high) = count.carrying_mul(divisor, 0);
    if high == 0 && low < 1 << 53 {
        Scaled::round(numerator, exponent).divide(low)
    } else {
        ratio(numerator, &[low, high], exponent)
    }
}

fn round_quotient(quotient: u128, more: bool, exponent: i32) -> Scaled {
    let zeros = quotient.leading_zeros();
    let normal = quotient << zeros;
    let below = normal as u64 != 0;
    Scaled::from_top((normal >> 64) as u64, more || below, exponent + 64 - zeros as i32)
}

/// Bit by bit: only for denominators above 64 bits, which take more than four billion values in a window or
/// a decimal with many places.
fn long_division(numerator: &[u64], denominator: &[u64], exponent: i32) -> Scaled {
    const QUOTIENT_BITS: i64 = 66;
    let (n, d) = (bit_length(numerator) as i64, bit_length(denominator) as i64);
    assert!(d > 0, "a ratio has a denominator");
    // Shifted so that the quotient has 66 or 67 bits.
    let shift = QUOTIENT_BITS - (n - d);
    let mut rest = shifted(numerator, shift.max(0));
    let mut part = shifted(denominator, (-shift).max(0) + QUOTIENT_BITS);
    let limbs = rest.len().max(part.len());
    rest.resize(limbs, 0);
    part.resize(limbs, 0);
    let mut quotient = 0_u128;
    for _ in 0..=QUOTIENT_BITS {
        quotient <<= 1;
        if rest.iter().rev().cmp(part.iter().rev()).is_ge() {
            let mut borrow = false;
            for (limb, other) in rest.iter_mut().zip(&part) {
                (*limb, borrow) = limb.borrowing_sub(*other, borrow);
            }
            quotient |= 1;
        }
        let mut carry = 0;
        for limb in part.iter_mut().rev() {
            (*limb, carry) = (*limb >> 1 | carry << 63, *limb & 1);
        }
    }
    round_quotient(quotient, rest.iter().any(|limb| *limb != 0), exponent - shift as i32)
}

fn shifted(magnitude: &[u64], left: i64) -> Vec<u64> {
    let limbs = (bit_length(magnitude) as i64 + left) / 64 + 1;
    (0..limbs).map(|index| word_at(magnitude, index * 64 - left)).collect()
}

/// Number of bits up to the highest one that is set.
fn bit_length(magnitude: &[u64]) -> usize {
    magnitude
        .iter()
        .rposition(|limb| *limb != 0)
        .map_or(0, |top| (top + 1) * 64 - magnitude[top].leading_zeros() as usize)
}

/// 64 bits from bit `from` on, which may be below or above the stored bits.
fn word_at(magnitude: &[u64], from: i64) -> u64 {
    let (index, bit) = (from.div_euclid(64), from.rem_euclid(64) as u32);
    let limb =
        |index: i64| usize::try_from(index).ok().and_then(|at| magnitude.get(at)).copied().unwrap_or(0);
    let low = limb(index) >> bit;
    if bit == 0 { low } else { low | limb(index + 1) << (64 - bit) }
}

/// Whether a bit below `from` is set.
fn any_below(magnitude: &[u64], from: i64) -> bool {
    let Ok(from) = usize::try_from(from) else { return false };
    let (whole, bit) = (from / 64, from % 64);
    magnitude[..whole].iter().any(|limb| *limb != 0) || magnitude[whole] & ((1 << bit) - 1) != 0
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::super::multiply;
    use super::*;
    use crate::agg::reference;

    fn limbs() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), any::<u64>()], 1..7)
    }

    fn big(limbs: &[u64]) -> BigUint {
        BigUint::new(limbs.iter().flat_map(|limb| [*limb as u32, (*limb >> 32) as u32]).collect())
    }

    proptest! {
        #[test]
        fn integers_round_to_nearest(magnitude in limbs(), exponent in -1500_i32..1100) {
            let expected = reference::nearest(&big(&magnitude), &BigUint::from(1_u8), exponent);
            let got = Scaled::round(&magnitude, exponent).to_float();
            if expected >= f64::MIN_POSITIVE {
                prop_assert_eq!(got, expected);
            } else {
                prop_assert!(got.to_bits().abs_diff(expected.to_bits()) <= 1, "{got:e} {expected:e}");
            }
        }

        #[test]
        fn ratios_round_to_nearest(numerator in limbs(), denominator in limbs(), exponent in -400_i32..400) {
            prop_assume!(denominator.iter().any(|limb| *limb != 0));
            prop_assert_eq!(
                ratio(&numerator, &denominator, exponent).to_float(),
                reference::nearest(&big(&numerator), &big(&denominator), exponent)
            );
        }

        #[test]
        fn a_ratio_without_rest_is_exact(a in 1_u64..1 << 53, b in limbs()) {
            prop_assume!(b.iter().any(|limb| *limb != 0));
            prop_assert_eq!(ratio(&multiply(&[a], &b), &b, 0).to_float(), a as f64);
        }
    }

    #[test]
    fn roots_and_quotients_reach_beyond_the_exponents_of_a_double() {
        let tiny = Scaled::round(&[9], -2148);
        assert_eq!(tiny.to_float(), 0.0);
        assert_eq!(tiny.sqrt().to_float(), 3.0 * 5e-324);
        let huge = Scaled::round(&[1], 1025);
        assert_eq!(huge.to_float(), f64::INFINITY);
        assert_eq!(huge.divide(4).to_float(), 2.0_f64.powi(1023));
        assert_eq!(Scaled::ZERO.sqrt().divide(7).to_float(), 0.0);
    }
}
