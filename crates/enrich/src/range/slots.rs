//! The pieces of one family, laid out for the search.
//!
//! The first 16 bits of an address choose a slot, which is a stretch of the starts of pieces.
//! Only 16 bits of an IPv4 address are left to compare, so that a start takes two bytes, and the 231,000
//! ranges of all autonomous systems fit in the second-level cache.
//!
//! Where no start of the slot is at or below the address, its piece is the last one of the slots before.
//! There always is one, as the first piece starts with the first address.

use super::bits::Bits;
use super::resolve::{NO_ROW, Piece};

const SLOT_COUNT: usize = 1 << 16;

/// Pieces by their start.
pub(super) struct Slots<A: Bits> {
    /// For each slot the number of pieces in the slots before it, and at the end the number of all.
    begins: Vec<u32>,
    starts: Vec<A::Low>,
    rows: Vec<u32>,
}

impl<A: Bits> Slots<A> {
    /// Takes what [`super::resolve::resolve`] gives.
    ///
    /// `None` where no piece has a row.
    ///
    /// # Panics
    /// If there are 2^32 pieces or more, which is more than a builder's ranges can become.
    pub(super) fn new(pieces: &[Piece<A>]) -> Option<Self> {
        if pieces.iter().all(|piece| piece.row == NO_ROW) {
            return None;
        }
        let mut begins = vec![0_u32; SLOT_COUNT + 1];
        for piece in pieces {
            begins[piece.start.slot() + 1] += 1;
        }
        for slot in 0..SLOT_COUNT {
            begins[slot + 1] =
                begins[slot + 1].checked_add(begins[slot]).expect("a builder takes fewer than 2^31 ranges");
        }
        Some(Self {
            begins,
            starts: pieces.iter().map(|piece| piece.start.low()).collect(),
            rows: pieces.iter().map(|piece| piece.row).collect(),
        })
    }

    /// The row of an address, or [`NO_ROW`].
    #[inline(always)]
    pub(super) fn row(&self, address: A) -> u32 {
        let slot = address.slot();
        let (begin, end) = (self.begins[slot] as usize, self.begins[slot + 1] as usize);
        let low = address.low();
        let below = self.starts[begin..end].partition_point(|start| *start <= low);
        self.rows[begin + below - 1]
    }

    /// Pieces that have a row.
    pub(super) fn range_count(&self) -> u64 {
        self.rows.iter().filter(|row| **row != NO_ROW).count() as u64
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.begins) + size_of_val(&*self.starts) + size_of_val(&*self.rows)) as u64
    }
}
