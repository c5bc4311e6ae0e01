//! Memory of tables that are no more, for those to come.
//!
//! A grouping fills tens of megabytes and is done after some tens of milliseconds. A fifth of that time went to the system,
//! which takes pages back and clears them anew for the next query.
//!
//! Policy when full: memory that comes goes back to the system.

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that are kept.
pub(crate) const KEPT: usize = 64 << 20;

/// Less than that is neither kept nor taken of kept memory.
const LEAST: usize = 64 << 10;

/// Memory of an engine's queries.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<u64>>>);

impl Spare {
    /// Zeros.
    pub(super) fn take(&self, words: usize) -> Vec<u64> {
        if words * size_of::<u64>() < LEAST {
            return zeros(words);
        }
        let mut kept = self.lock();
        let fits = kept.iter().enumerate().filter(|(_, one)| one.capacity() >= words);
        let Some(at) = fits.min_by_key(|(_, one)| one.capacity()).map(|(at, _)| at) else {
            drop(kept);
            return zeros(words);
        };
        let mut one = kept.swap_remove(at);
        drop(kept);
        one.clear();
        one.resize(words, 0);
        one
    }

    /// Takes memory that is no longer needed.
    pub(super) fn give(&self, words: Vec<u64>) {
        let bytes = |words: &Vec<u64>| words.capacity() * size_of::<u64>();
        let mut kept = self.lock();
        let has: usize = kept.iter().map(bytes).sum();
        if bytes(&words) >= LEAST && has + bytes(&words) <= KEPT {
            kept.push(words);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Words that are there. Memory that the system only promises to be zero is shared until it is written to; as it is read first
/// by a search for a place, each page would be mapped twice, and the other threads interrupted for it.
fn zeros(words: usize) -> Vec<u64> {
    const PAGE: usize = 4096 / size_of::<u64>();
    let mut zeros = vec![0; words];
    zeros.chunks_mut(PAGE).for_each(|page| page[0] = black_box(0));
    zeros
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_taken_again_as_zeros() {
        let spare = Spare::default();
        let large = vec![7_u64; 100_000];
        let place = large.as_ptr();
        spare.give(vec![7; 200_000]);
        spare.give(large);
        spare.give(vec![7; 10]);
        let taken = spare.take(90_000);
        assert_eq!(taken.as_ptr(), place, "the smallest that fits");
        assert_eq!(taken, vec![0; 90_000]);
        assert_eq!(spare.take(300_000), vec![0; 300_000]);
        assert_eq!(spare.take(10).capacity(), 10, "a small request takes no kept memory");
        assert_eq!(spare.take(10_000).capacity(), 200_000, "small memory was not kept");
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let spare = Spare::default();
        let quarter = KEPT / size_of::<u64>() / 4;
        (0..6).for_each(|_| spare.give(Vec::with_capacity(quarter)));
        assert_eq!(spare.lock().len(), 4);
    }
}
