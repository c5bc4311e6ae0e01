//! What the tables of both families ask of an address: `u32` is IPv4, `u128` is IPv6.

use std::fmt::Debug;

/// An address as a number.
pub(super) trait Bits: Copy + Ord + Debug {
    /// The bits that distinguish addresses with the same first 16 bits.
    type Low: Copy + Ord + Debug;

    const MIN: Self;

    /// The first 16 bits.
    fn slot(self) -> usize;

    fn low(self) -> Self::Low;

    /// `None` after the last address.
    fn successor(self) -> Option<Self>;

    /// How far `last` lies after `first`.
    fn distance(first: Self, last: Self) -> Self;
}

impl Bits for u32 {
    type Low = u16;

    const MIN: Self = 0;

    #[inline(always)]
    fn slot(self) -> usize {
        (self >> 16) as usize
    }

    #[inline(always)]
    fn low(self) -> u16 {
        self as u16
    }

    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn distance(first: Self, last: Self) -> Self {
        last - first
    }
}

impl Bits for u128 {
    /// The whole address: the bits after the first 16 fit no smaller type.
    type Low = u128;

    const MIN: Self = 0;

    #[inline(always)]
    fn slot(self) -> usize {
        (self >> 112) as usize
    }

    #[inline(always)]
    fn low(self) -> u128 {
        self
    }

    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn distance(first: Self, last: Self) -> Self {
        last - first
    }
}
