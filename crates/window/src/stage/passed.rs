//! Groups that only edges of windows have changed since the back end got them.
//!
//! A record changes its own group. Each of its windows changes it again when an edge passes the record, which is once
//! a window and mostly hours later: with many windows edges change a hundred groups for each record. What an edge does
//! is a function of the reservoir and of task time, so such a group need not be written again: a restart lets the edges
//! pass once more the rows that they passed since the group's image (`replay`).
//!
//! So that a restart is short, groups that were passed are written in turn, some at each marker: a *hand* goes round
//! over the numbers of groups. A round that is complete has written every group that was passed before it began, so
//! what is still to be replayed came after it ([`Passed::since`]).
//!
//! Not here: which groups a marker writes for their own records (`dirty`).

use std::collections::VecDeque;

use thalweg_types::Micros;

use super::dirty::{count, place};

/// Passes that a restart may have to do again, about: some hundred milliseconds.
const REPLAYED: u64 = 1 << 21;

/// [`StageOptions::turn`](super::StageOptions::turn) unless a test says otherwise. A turn has as many groups, and one for each
/// that is written for its own records, so that turns cost no more than those do.
pub(super) const TURN: usize = 64;

/// Markers that are remembered; beyond it every second one is forgotten, and a restart goes back a little further.
const MARKERS: usize = 512;

const BITS: usize = u64::BITS as usize;

/// By the numbers of groups, one bit each, as in `dirty`.
#[derive(Default)]
pub(super) struct Passed {
    groups: Vec<u64>,
    /// The group that the hand looks at next.
    hand: usize,
    /// Groups that it has ever looked at.
    looked: u64,
    /// Rows that edges have ever passed.
    passes: u64,
    /// Passes of groups are in their images up to the first of these; oldest first.
    markers: VecDeque<Marker>,
}

#[derive(Clone, Copy)]
struct Marker {
    /// Task time.
    time: Micros,
    /// [`Passed::looked`] before the hand moved on at it.
    looked: u64,
    passes: u64,
}

impl Passed {
    /// Of a stage that goes on from images in which passes after `since` may be missing.
    pub(super) fn restored(since: Micros) -> Self {
        let markers = VecDeque::from([Marker { time: since, looked: 0, passes: 0 }]);
        Self { markers, ..Self::default() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<u64>() + self.markers.capacity() * size_of::<Marker>()
    }

    /// Groups below 64 times `words` may be passed.
    pub(super) fn grow(&mut self, words: usize) {
        if words > self.groups.len() {
            self.groups.resize(words, 0);
        }
    }

    /// Edges have passed rows of groups. Unused numbers do not count.
    #[inline(always)]
    pub(super) fn pass(&mut self, groups: &[u32]) {
        self.passes += groups.len() as u64;
        let words = self.groups.as_mut_slice();
        for group in groups {
            let (word, bit) = place(*group);
            if let Some(word) = words.get_mut(word) {
                *word |= bit;
            }
        }
    }

    pub(super) fn contains(&self, group: u32) -> bool {
        let (word, bit) = place(group);
        self.groups.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.groups
    }

    /// The task time up to which all passes are in the images of their groups; `None` before the first marker.
    pub(super) fn since(&self) -> Option<Micros> {
        self.markers.front().map(|marker| marker.time)
    }

    /// A marker at a task time: `written` are the groups that it writes for their own records. Adds those whose turn it
    /// is, about `turn`, or all where that is `None`.
    pub(super) fn freeze(&mut self, written: &mut [u64], now: Micros, turn: Option<usize>) {
        let own = count(written);
        for (passed, written) in self.groups.iter_mut().zip(written.iter()) {
            *passed &= !written;
        }
        let left = count(&self.groups);
        let before = self.markers.back().map_or(0, |marker| marker.passes);
        let share = left as u128 * u128::from(self.passes - before) / u128::from(REPLAYED);
        let quota = match turn {
            None => left,
            Some(turn) => left.min((turn + own * turn / TURN).max(usize::try_from(share).unwrap_or(left))),
        };
        let marker = Marker { time: now, looked: self.looked, passes: self.passes };
        self.take(quota, written);
        if quota == left {
            self.markers.clear();
        }
        self.markers.push_back(marker);
        let round = (self.groups.len() * BITS) as u64;
        while self.markers.len() > 1 && self.markers[1].looked + round <= self.looked {
            self.markers.pop_front();
        }
        if self.markers.len() > MARKERS {
            let mut is_kept = false;
            self.markers.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    /// Moves the hand on until it has taken `quota` groups; there are as many.
    fn take(&mut self, mut quota: usize, taken: &mut [u64]) {
        while quota > 0 {
            if self.hand >= self.groups.len() * BITS {
                self.hand = 0;
            }
            let (word, first) = (self.hand / BITS, self.hand % BITS);
            let mut bits = self.groups[word] & (u64::MAX << first);
            let mut end = BITS;
            if bits.count_ones() as usize > quota {
                // Those below the bit at which the quota is reached.
                let mut rest = bits;
                (0..quota).for_each(|_| rest &= rest - 1);
                end = rest.trailing_zeros() as usize;
                bits &= !(u64::MAX << end);
            }
            quota -= bits.count_ones() as usize;
            self.groups[word] &= !bits;
            taken[word] |= bits;
            self.looked += (end - first) as u64;
            self.hand = word * BITS + end;
        }
    }
}
