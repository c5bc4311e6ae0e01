//! A sum of any finite doubles, or of their squares, without rounding.
//!
//! Two's complement limbs that start at a multiple of 64 bits and grow on both sides as values need it:
//! values of like size take two or three limbs, 1e308 with 1e-308 takes 33, squares at most twice that.
//!
//! Invariants
//! * The lowest limb is not zero and the highest is not mere sign; zero has no limbs.

use super::Scaled;
use crate::image::{Malformed, Reader, put, put_signed};

/// A signed integer times `2^(64·base)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::agg) struct Wide {
    base: i32,
    limbs: Vec<u64>,
}

impl Wide {
    pub(in crate::agg) fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    /// Heap bytes.
    pub(in crate::agg) fn bytes(&self) -> usize {
        self.limbs.capacity() * 8
    }

    /// Adds `±magnitude · 2^exponent`.
    pub(in crate::agg) fn add(&mut self, negative: bool, magnitude: &[u64], exponent: i32) {
        let used = magnitude.len() - magnitude.iter().rev().take_while(|limb| **limb == 0).count();
        let magnitude = &magnitude[..used];
        if magnitude.is_empty() {
            return;
        }
        let (low, bit) = (exponent.div_euclid(64), exponent.rem_euclid(64) as u32);
        self.cover(low, low + used as i32 + 1);
        let shifted = |index: usize| {
            let here = magnitude.get(index).map_or(0, |limb| limb << bit);
            // The double shift makes `bit == 0` bring nothing in from below.
            let below = if index == 0 {
                0
            } else {
                magnitude.get(index - 1).map_or(0, |limb| limb >> 1 >> (63 - bit))
            };
            here | below
        };
        let start = (low - self.base) as usize;
        let mut carry = false;
        for (index, limb) in self.limbs[start..].iter_mut().enumerate() {
            if index > used && !carry {
                break;
            }
            (*limb, carry) = if negative {
                limb.borrowing_sub(shifted(index), carry)
            } else {
                limb.carrying_add(shifted(index), carry)
            };
        }
        self.trim();
    }

    /// Appends the limbs after their number and their place.
    pub(in crate::agg) fn save(&self, out: &mut Vec<u8>) {
        put(out, self.limbs.len() as u64);
        if !self.is_zero() {
            put_signed(out, i64::from(self.base));
        }
        for limb in &self.limbs {
            out.extend_from_slice(&limb.to_le_bytes());
        }
    }

    pub(in crate::agg) fn load(image: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = image.count("limbs of a sum")?;
        if count == 0 {
            return Ok(Self::default());
        }
        let base = image.signed("place of a sum")?;
        // Squares of doubles, and sums of 2^64 of them, are between 2^-2148 and 2^2112.
        if !(-40..40).contains(&base) || count > 80 {
            return Err(image.malformed("place of a sum", "that of doubles", base));
        }
        let limbs: Vec<u64> = (0..count)
            .map(|_| image.array("limb of a sum").map(u64::from_le_bytes))
            .collect::<Result<_, Malformed>>()?;
        let mut wide = Self { base: base as i32, limbs };
        wide.trim();
        Ok(wide)
    }

    /// Its sign, and its absolute value rounded to 53 bits.
    pub(in crate::agg) fn round(&self) -> (bool, Scaled) {
        let (negative, magnitude, exponent) = self.magnitude();
        (negative, Scaled::round(&magnitude, exponent))
    }

    /// `±magnitude · 2^exponent`.
    pub(in crate::agg) fn magnitude(&self) -> (bool, Vec<u64>, i32) {
        let negative = self.limbs.last().is_some_and(|limb| limb >> 63 == 1);
        let mut magnitude = self.limbs.clone();
        if negative {
            let mut carry = true;
            for limb in &mut magnitude {
                (*limb, carry) = (!*limb).overflowing_add(u64::from(carry));
            }
        }
        (negative, magnitude, self.base * 64)
    }

    /// Makes room for limbs `low..high` and for the sign above.
    fn cover(&mut self, low: i32, high: i32) {
        if self.limbs.is_empty() {
            self.base = low;
        }
        if low < self.base {
            let missing = (self.base - low) as usize;
            self.limbs.splice(0..0, std::iter::repeat_n(0, missing));
            self.base = low;
        }
        let sign = self.limbs.last().map_or(0, |limb| (*limb as i64 >> 63) as u64);
        let needed = ((high - self.base) as usize).max(self.limbs.len()) + 1;
        self.limbs.resize(needed, sign);
    }

    fn trim(&mut self) {
        while let [rest @ .., below, top] = self.limbs.as_slice()
            && *top == (*below as i64 >> 63) as u64
        {
            let length = rest.len() + 1;
            self.limbs.truncate(length);
        }
        let zeros = self.limbs.iter().take_while(|limb| **limb == 0).count();
        self.limbs.drain(..zeros);
        self.base += zeros as i32;
    }
}

#[cfg(test)]
mod tests {
    use num_bigint::{BigInt, Sign};
    use proptest::prelude::*;

    use super::super::parts;
    use super::*;
    use crate::agg::reference;

    fn exact(wide: &Wide) -> BigInt {
        let (negative, magnitude, exponent) = wide.magnitude();
        let digits = magnitude.iter().flat_map(|limb| [*limb as u32, (*limb >> 32) as u32]).collect();
        let value = BigInt::new(if negative { Sign::Minus } else { Sign::Plus }, digits);
        // In units of 2^-2176, a multiple of 64 below every exponent.
        value << (exponent + 2176) as usize
    }

    proptest! {
        #[test]
        fn sums_of_any_doubles_are_exact(values in proptest::collection::vec(reference::doubles(), 1..40)) {
            let mut wide = Wide::default();
            let mut expected = BigInt::ZERO;
            for value in &values {
                let p = parts(*value);
                wide.add(p.negative, &[p.mantissa], p.exponent);
                expected += reference::exact(*value) << (2176 - 1074);
                prop_assert_eq!(exact(&wide), expected.clone());
                prop_assert!(wide.limbs.first() != Some(&0));
            }
            let (negative, rounded) = wide.round();
            let sum = if negative { -rounded.to_float() } else { rounded.to_float() };
            prop_assert_eq!(sum, reference::nearest_signed(&(expected >> (2176 - 1074)), -1074));
            for value in &values {
                let p = parts(*value);
                wide.add(!p.negative, &[p.mantissa], p.exponent);
            }
            prop_assert!(wide.is_zero());
        }
    }
}
