//! Two's complement integers of a fixed number of 64-bit limbs, least significant first.
//!
//! Not here: rounding (`super::round`), integers that grow (`super::wide`).

use arrow_buffer::i256;

/// A signed integer of `64 · N` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agg) struct Limbs<const N: usize>(pub(in crate::agg) [u64; N]);

impl<const N: usize> Default for Limbs<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Limbs<N> {
    pub(in crate::agg) fn from_i256(value: i256) -> Self {
        let (low, high) = value.to_parts();
        let mut limbs = [(high >> 127) as u64; N];
        limbs[0] = low as u64;
        limbs[1] = (low >> 64) as u64;
        limbs[2] = high as u64;
        limbs[3] = (high >> 64) as u64;
        Self(limbs)
    }

    /// The value as 256 bits; `None` where it does not fit.
    pub(in crate::agg) fn to_i256(self) -> Option<i256> {
        let word = |index: usize| u128::from(self.0[index]);
        let sign = (self.0[3] as i64 >> 63) as u64;
        self.0[4..]
            .iter()
            .all(|limb| *limb == sign)
            .then(|| i256::from_parts(word(0) | word(1) << 64, (word(2) | word(3) << 64) as i128))
    }

    /// Adds, modulo 2^(64·N); true where the signed sum did not fit.
    #[inline(always)]
    pub(in crate::agg) fn add(&mut self, other: &Self) -> bool {
        let before = self.0[N - 1];
        let mut carry = false;
        for (limb, other) in self.0.iter_mut().zip(other.0) {
            (*limb, carry) = limb.carrying_add(other, carry);
        }
        ((before ^ self.0[N - 1]) & (other.0[N - 1] ^ self.0[N - 1])) >> 63 == 1
    }

    /// Subtracts, modulo 2^(64·N); true where the signed difference did not fit.
    #[inline(always)]
    pub(in crate::agg) fn sub(&mut self, other: &Self) -> bool {
        let before = self.0[N - 1];
        let mut borrow = false;
        for (limb, other) in self.0.iter_mut().zip(other.0) {
            (*limb, borrow) = limb.borrowing_sub(other, borrow);
        }
        ((before ^ other.0[N - 1]) & (before ^ self.0[N - 1])) >> 63 == 1
    }

    /// Whether it is below zero, and its absolute value.
    pub(in crate::agg) fn magnitude(&self) -> (bool, [u64; N]) {
        let negative = self.0[N - 1] >> 63 == 1;
        if !negative {
            return (false, self.0);
        }
        let mut positive = Self::default();
        positive.sub(self);
        (true, positive.0)
    }
}

/// The product of two magnitudes.
pub(in crate::agg) fn multiply(a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut product = vec![0; a.len() + b.len()];
    for (at, x) in a.iter().enumerate() {
        let mut carry = 0;
        for (limb, y) in product[at..].iter_mut().zip(b) {
            (*limb, carry) = x.carrying_mul_add(*y, carry, *limb);
        }
        product[at + b.len()] = carry;
    }
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_and_differences_are_those_of_256_bits(a: [u64; 4], b: [u64; 4]) {
            let wide = |limbs: [u64; 4]| Limbs(limbs).to_i256().unwrap();
            let (mut sum, mut difference) = (Limbs(a), Limbs(a));
            let (sum_wrapped, difference_wrapped) = (sum.add(&Limbs(b)), difference.sub(&Limbs(b)));
            prop_assert_eq!(sum.to_i256().unwrap(), wide(a).wrapping_add(wide(b)));
            prop_assert_eq!(sum_wrapped, wide(a).checked_add(wide(b)).is_none());
            prop_assert_eq!(difference.to_i256().unwrap(), wide(a).wrapping_sub(wide(b)));
            prop_assert_eq!(difference_wrapped, wide(a).checked_sub(wide(b)).is_none());
        }

        #[test]
        fn a_wider_integer_reads_back_where_it_fits(low: u128, high: i128, small: i128) {
            let value = i256::from_parts(low, high);
            prop_assert_eq!(Limbs::<5>::from_i256(value).to_i256(), Some(value));
            let (negative, magnitude) = Limbs::<5>::from_i256(i256::from_i128(small)).magnitude();
            prop_assert_eq!((negative, magnitude[0]), (small < 0, small.unsigned_abs() as u64));
        }

        #[test]
        fn products_are_exact(a: u64, b: u128) {
            let product = multiply(&[a], &[b as u64, (b >> 64) as u64]);
            let (low, high) = a.carrying_mul(b as u64, 0);
            let upper = u128::from(a) * (b >> 64) + u128::from(high);
            prop_assert_eq!(product, vec![low, upper as u64, (upper >> 64) as u64]);
        }
    }

    #[test]
    fn what_needs_more_than_256_bits_does_not_fit() {
        let mut sum = Limbs::<5>::from_i256(i256::MAX);
        assert!(!sum.add(&Limbs::from_i256(i256::ONE)), "320 bits hold it");
        assert_eq!(sum.to_i256(), None);
        sum.sub(&Limbs::from_i256(i256::ONE));
        assert_eq!(sum.to_i256(), Some(i256::MAX), "it comes back");
    }
}
