//! Groups that a worker has met lately.
//!
//! A group has one place, which the next group of that place takes from it. Where a few groups have most of the rows, as
//! pairs of networks do, these stay, and only the others go on. There is no branch on whether a group is there: guessing
//! that wrong costs as much as is saved. Where they have few of the rows, the places are of no use, which
//! [`Recent::judge`] says.

use std::hint::black_box;
use std::sync::Arc;

use super::Sizes;
use super::groups::{IDENTITY, Layout, TAKEN, by_stride};
use super::spare::Spare;

/// If fewer than one row in this number was of a group that was there, the places are of no use.
const ROWS_FOR_ONE: usize = 4;

/// A group for each place, or none; it takes no memory before its first group.
pub(super) struct Recent {
    words: Vec<u64>,
    layout: Arc<Layout>,
    /// A power of two.
    places: usize,
    len: usize,
    /// Rows that were added since it was last judged.
    rows: usize,
    /// Of these, rows of groups that it had.
    known_rows: usize,
    /// It is judged at this number of rows.
    judged_at: usize,
    spare: Arc<Spare>,
}

impl Drop for Recent {
    fn drop(&mut self) {
        self.spare.give(std::mem::take(&mut self.words));
    }
}

impl Recent {
    pub(super) fn new(sizes: &Sizes, layout: Arc<Layout>, spare: Arc<Spare>) -> Self {
        Self {
            words: Vec::new(),
            layout,
            places: sizes.recent.next_power_of_two().max(2),
            len: 0,
            rows: 0,
            known_rows: 0,
            judged_at: sizes.judged,
            spare,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that it has as long as there is a group in it.
    pub(super) fn bytes(&self) -> usize {
        self.places * self.layout.stride() * size_of::<u64>()
    }

    /// Its groups, as records. Between them are places without one, which are zeros.
    pub(super) fn places(&self) -> &[u64] {
        &self.words
    }

    /// Forgets all groups and gives its memory back.
    pub(super) fn free(&mut self) {
        self.len = 0;
        self.spare.give(std::mem::take(&mut self.words));
    }

    /// Adds records, writes the groups whose places others took over the first of them, and returns how many words these
    /// are. After them stay records or groups, each whole, that mean nothing.
    pub(super) fn add(&mut self, records: &mut [u64]) -> usize {
        let stride = self.layout.stride();
        if self.words.is_empty() {
            self.words = self.spare.take(self.places * stride);
        }
        let before = self.len;
        let gone = by_stride!(stride, self.add_all(records.as_chunks_mut()));
        let rows = records.len() / stride;
        self.rows += rows;
        self.known_rows += rows - gone - (self.len - before);
        gone * stride
    }

    /// Whether it is of use. True until there were enough rows; then whether many of them were of groups that it had, and
    /// counting begins anew.
    pub(super) fn judge(&mut self) -> bool {
        if self.rows < self.judged_at {
            return true;
        }
        let (rows, known) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.known_rows));
        known * ROWS_FOR_ONE >= rows
    }

    fn add_all<const STRIDE: usize>(&mut self, records: &mut [[u64; STRIDE]]) -> usize {
        let keys = self.layout.keys();
        // The key words of a group, and the values to be summed up.
        let mut identity = [0; STRIDE];
        identity[1..=keys].fill(!0);
        let sums = identity.map(|word: u64| !word);
        identity[0] = IDENTITY;
        let shift = u64::BITS - self.places.trailing_zeros();
        let groups = self.words.as_chunks_mut::<STRIDE>().0;
        let mut gone = 0;
        for at in 0..records.len() {
            let record = records[at];
            let group = &mut groups[(record[0] >> shift) as usize];
            let before = *group;
            let mut other = 0;
            for word in 0..STRIDE {
                other |= (before[word] ^ record[word]) & identity[word];
            }
            // 1 or 0, which the compiler makes no branch of.
            let is_known = black_box(u64::from(other == 0));
            let kept = is_known.wrapping_neg();
            let is_taken = before[0] & TAKEN;
            self.len += 1 - is_taken as usize;
            records[gone] = before;
            gone += (!is_known & is_taken) as usize;
            let mut after = [0; STRIDE];
            for word in 0..STRIDE {
                // A sum that has met no value is 0.
                after[word] = record[word].wrapping_add(before[word] & sums[word] & kept);
            }
            after[0] = record[0] | before[0] & kept;
            *group = after;
        }
        gone
    }
}
