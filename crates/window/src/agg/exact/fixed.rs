//! Doubles as whole multiples of a unit, and back.
//!
//! Of a unit 2^u, values with 2^(u+52) <= |x| < 2^(u+126) are whole multiples below 2^126, and so is zero: sums of
//! such values are additions of 128-bit integers. 74 binary orders are 22 decimal ones.
//! The unit belongs to the sum, which may choose another whenever it is zero.

use super::Limbs;

/// The unit of a sum, `2^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agg) struct Unit {
    /// Biased exponent of the doubles whose lowest mantissa bit is one unit.
    lowest: u32,
}

/// Largest left shift of a mantissa of 53 bits that leaves it below 2^126.
const LARGEST_SHIFT: u32 = 73;

impl Unit {
    /// Bits of [`Unit::to_bits`].
    pub(in crate::agg) const BITS: u32 = 11;

    /// 2^-74: from 2^-22, a quarter of a millionth, to 2^52, 4.5e15.
    pub(in crate::agg) const USUAL: Unit = Unit { lowest: 1023 - 22 };

    /// The unit that has `x` in the middle of its values; `None` where `x` is so small or so large that a sum in
    /// that unit might not be a normal double.
    pub(in crate::agg) fn around(x: f64) -> Option<Unit> {
        let lowest = biased_exponent(x).checked_sub(LARGEST_SHIFT / 2)?;
        Some(Unit { lowest }).filter(|unit| unit.is_chosen())
    }

    /// Whether a sum may have this unit.
    pub(in crate::agg) fn is_chosen(self) -> bool {
        (300..=1700).contains(&self.lowest)
    }

    #[inline(always)]
    pub(in crate::agg) fn exponent(self) -> i32 {
        self.lowest as i32 - 1075
    }

    #[inline(always)]
    pub(in crate::agg) fn to_bits(self) -> u64 {
        u64::from(self.lowest)
    }

    #[inline(always)]
    pub(in crate::agg) fn from_bits(bits: u64) -> Self {
        Self { lowest: bits as u32 & ((1 << Self::BITS) - 1) }
    }

    /// `x` in units, where it is zero or a whole multiple below 2^126.
    #[inline(always)]
    pub(in crate::agg) fn count(self, x: f64) -> Option<i128> {
        let bits = x.to_bits();
        let shift = biased_exponent(x).wrapping_sub(self.lowest);
        if shift > LARGEST_SHIFT {
            return (bits << 1 == 0).then_some(0);
        }
        // A product, and a move by whole words: shorter than a shift of 128 bits by a variable amount.
        let product = u128::from(bits & FRACTION | HIDDEN) * u128::from(1_u64 << (shift & 63));
        let magnitude = if shift < 64 { product } else { product << 64 } as i128;
        let sign = i128::from(bits as i64 >> 63);
        Some((magnitude ^ sign) - sign)
    }

    /// `x²` in squares of the unit, for an `x` that [`Unit::count`] takes.
    #[inline(always)]
    pub(in crate::agg) fn count_square(self, x: f64) -> Limbs<4> {
        let shift = biased_exponent(x).wrapping_sub(self.lowest);
        if shift > LARGEST_SHIFT {
            return Limbs::default();
        }
        let mantissa = u128::from(x.to_bits() & FRACTION | HIDDEN);
        let square = mantissa * mantissa;
        let (word, bit) = ((shift / 32) as usize, shift * 2 % 64);
        let low = square << bit;
        // What a shift by `bit` pushes out above 128 bits; the double shift makes `bit == 0` push out nothing.
        let high = ((square >> 64) as u64 >> 1) >> (63 - bit);
        let mut limbs = [0; 5];
        limbs[word] = low as u64;
        limbs[word + 1] = (low >> 64) as u64;
        limbs[word + 2] = high;
        // Below 2^126 units, the square is below 2^252: the fifth limb is zero.
        Limbs([limbs[0], limbs[1], limbs[2], limbs[3]])
    }
}

#[inline(always)]
fn biased_exponent(x: f64) -> u32 {
    (x.to_bits() >> 52) as u32 & 0x7ff
}

const FRACTION: u64 = (1 << 52) - 1;
const HIDDEN: u64 = 1 << 52;

/// A finite double, `±mantissa · 2^exponent`.
pub(in crate::agg) struct Parts {
    pub(in crate::agg) negative: bool,
    pub(in crate::agg) mantissa: u64,
    pub(in crate::agg) exponent: i32,
}

/// Takes a finite double apart.
pub(in crate::agg) fn parts(x: f64) -> Parts {
    assert!(x.is_finite(), "only finite values have parts");
    let bits = x.to_bits();
    let biased = (bits >> 52) as i32 & 0x7ff;
    let fraction = bits & FRACTION;
    let (mantissa, exponent) =
        if biased == 0 { (fraction, -1074) } else { (fraction | HIDDEN, biased - 1075) };
    Parts { negative: x.is_sign_negative(), mantissa, exponent }
}

/// 2^exponent for a normal result (-1022 to 1023).
#[inline(always)]
pub(in crate::agg) fn power_of_two(exponent: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent), "2^{exponent} is no normal double");
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The double nearest to an integer, ties to even; without branches, unlike `as`.
#[inline(always)]
pub(in crate::agg) fn integer_to_float(value: i128) -> f64 {
    let magnitude = value.unsigned_abs();
    let zeros = magnitude.leading_zeros() & 127;
    let normal = magnitude << zeros;
    let top = (normal >> 64) as u64;
    // 63 bits, the last of which says that something non-zero follows: enough to round 53 bits correctly.
    let head = (top >> 1) | (top & 1) | u64::from(normal as u64 != 0);
    let rounded = head as i64 as f64 * power_of_two(65 - zeros as i32);
    f64::from_bits(rounded.to_bits() | (value as u128 >> 127 << 63) as u64)
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ordinary_values_are_whole_multiples_of_the_usual_unit() {
        for (x, units) in [
            (0.0, Some(0)),
            (-0.0, Some(0)),
            (1.0, Some(1_i128 << 74)),
            (-1.5, Some(-(3_i128 << 73))),
            (2.0_f64.powi(-22), Some(1 << 52)),
            (2.0_f64.powi(52), None),
            (1e-7, None),
            (f64::INFINITY, None),
            (f64::NAN, None),
            (5e-324, None),
        ] {
            assert_eq!(Unit::USUAL.count(x), units, "{x}");
        }
        for x in [0.0, 5e-324, 1e-300, 1e300, f64::INFINITY, f64::NAN] {
            assert_eq!(Unit::around(x), None, "{x}");
        }
    }

    proptest! {
        #[test]
        fn units_around_a_value_take_ten_orders_on_either_side(exponent in -150_i32..150, x in 1.0_f64..10.0) {
            let value = x * 10_f64.powi(exponent);
            let unit = Unit::around(value).unwrap();
            prop_assert_eq!(Unit::from_bits(unit.to_bits() | 1 << Unit::BITS), unit);
            for near in [value, -value, value * 5e10, value / 3e10] {
                let count = unit.count(near).unwrap();
                prop_assert_eq!(integer_to_float(count) * power_of_two(unit.exponent()), near);
            }
            prop_assert_eq!(unit.count(value * 1e12), None);
            prop_assert_eq!(unit.count(value / 1e12), None);
        }

        #[test]
        fn squares_are_exact(mantissa in HIDDEN..2 * HIDDEN, exponent in -22_i32..52) {
            let x = mantissa as f64 * 2.0_f64.powi(exponent - 52);
            let units = BigUint::from(Unit::USUAL.count(x).unwrap().unsigned_abs());
            let limbs = Unit::USUAL.count_square(x).0;
            let square = limbs.iter().flat_map(|limb| [*limb as u32, (*limb >> 32) as u32]).collect();
            prop_assert_eq!(BigUint::new(square), &units * &units);
        }

        #[test]
        fn integers_round_as_the_language_rounds(value: i128, shift in 0_u32..128) {
            let value = value >> shift;
            prop_assert_eq!(integer_to_float(value).to_bits(), (value as f64).to_bits());
        }
    }
}
