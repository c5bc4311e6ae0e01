//! Which pieces of a section were read and are worth their memory.
//!
//! A piece is *touched* when it was read and its checksum compared, and *used* when it was requested again since
//! the hand passed. When the touched pieces of a section are more than its budget, a hand goes round: used
//! pieces lose that mark, the others go back to the kernel. So pages of hot names stay, and a stream of
//! random ones costs no more memory than the budget, however long it lasts.
//!
//! The kernel may take pages back on its own when memory is short. There is no notice of it, but a batch that waits for
//! many pages that it had not asked for is a sign of it, and then all marks are forgotten
//! ([`Residency::forget`]).
//!
//! The marks are hints that several threads set without a lock: a lost one costs a read or a checksum, and
//! never an answer.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::map::Map;

/// Bits that threads share. Relaxed everywhere: they have no meaning for other data.
#[derive(Debug)]
pub(crate) struct Bits(Box<[AtomicU64]>);

impl Bits {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    pub(crate) fn get(&self, place: usize) -> bool {
        self.0[place / 64].load(Ordering::Relaxed) >> (place % 64) & 1 == 1
    }

    /// Sets a bit and says whether it was set.
    pub(crate) fn set(&self, place: usize) -> bool {
        let bit = 1 << (place % 64);
        self.0[place / 64].fetch_or(bit, Ordering::Relaxed) & bit != 0
    }

    /// Clears a bit and says whether it was set.
    fn clear(&self, place: usize) -> bool {
        let bit = 1 << (place % 64);
        self.0[place / 64].fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.len() * 8
    }
}

/// The pieces of one section.
#[derive(Debug)]
pub(crate) struct Residency {
    touched: Bits,
    used: Bits,
    count: usize,
    bytes: AtomicU64,
    budget: u64,
    /// The position of the hand; a thread that does not get it leaves the round to the one that has it.
    hand: Mutex<usize>,
}

impl Residency {
    pub(crate) fn new(count: usize, budget: u64) -> Self {
        let (touched, used) = (Bits::new(count), Bits::new(count));
        Self { touched, used, count, bytes: AtomicU64::new(0), budget, hand: Mutex::new(0) }
    }

    #[inline]
    pub(crate) fn is_touched(&self, piece: usize) -> bool {
        self.touched.get(piece)
    }

    /// Marks a touched piece as requested again.
    #[inline]
    pub(crate) fn mark_used(&self, piece: usize) {
        if !self.used.get(piece) {
            self.used.set(piece);
        }
    }

    /// Marks a piece as touched and says whether the section is above its budget.
    pub(crate) fn touch(&self, piece: usize, bytes: u64) -> bool {
        if self.touched.set(piece) {
            return false;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.budget
    }

    /// Gives pieces back until an eighth of the budget is free, and returns how many bytes that were.
    /// `range_of` says where a piece is in the file; pieces are in the order of their numbers.
    pub(crate) fn sweep(&self, map: &Map, range_of: impl Fn(usize) -> Range<u64>) -> u64 {
        let Ok(mut hand) = self.hand.try_lock() else { return 0 };
        let target = self.budget - self.budget / 8;
        let mut freed = 0;
        // Pieces one after the other go back in one call.
        let mut run: Option<Range<u64>> = None;
        // The second round finds no used piece but those that came meanwhile.
        for _ in 0..self.count * 2 {
            if self.bytes.load(Ordering::Relaxed) <= target {
                break;
            }
            let piece = *hand;
            *hand = (piece + 1) % self.count;
            if *hand == 0 || (self.touched.get(piece) && self.used.clear(piece)) {
                run.take().into_iter().for_each(|run| map.give_back(run));
                if *hand != 0 {
                    continue;
                }
            }
            if self.touched.clear(piece) {
                let range = range_of(piece);
                let bytes = range.end - range.start;
                let sub = |have: u64| Some(have.saturating_sub(bytes));
                // The closure always has a value.
                let _ = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sub);
                freed += bytes;
                run = Some(run.map_or(range.clone(), |run| run.start..range.end));
            }
        }
        run.into_iter().for_each(|run| map.give_back(run));
        freed
    }

    /// Takes it that no piece is in memory any more.
    pub(crate) fn forget(&self) {
        self.touched.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Bytes of touched pieces.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.touched.heap_bytes() + self.used.heap_bytes()
    }
}
