//! Which groups have changed since the last marker, and which of the marker's are still to be written.
//!
//! Where groups may leave memory, it is kept too which of earlier markers a back end may not have yet: a group is
//! *clean* when the back end has all that ever changed in it.
//!
//! One bit per group and set. A marker swaps the sets and counts the one that is frozen, word by word, so the set of the
//! cycle before must be empty by then.
//!
//! Not here: groups that only edges have changed (`passed`), their images (`checkpoint`).

use std::collections::VecDeque;

use thalweg_types::Micros;

use super::passed::Passed;

/// Groups of one GROUP BY, by their numbers.
///
/// Blocks of groups are kept in the same way; no edge passes them.
#[derive(Default)]
pub(super) struct Dirty {
    /// Groups that may be marked.
    slots: usize,
    changed: Vec<u64>,
    /// At least as many as there are bits in `changed`.
    marks: usize,
    frozen: Vec<u64>,
    /// Bits of `frozen`.
    left: usize,
    /// Words of `frozen` before it are empty.
    hand: usize,
    /// Slots frozen at markers whose changes the back end may not have; one set per cycle, oldest first.
    unwritten: VecDeque<(u64, Vec<u64>)>,
    /// Groups that only edges have changed since they were last frozen.
    passed: Passed,
}

#[inline(always)]
pub(super) fn place(group: u32) -> (usize, u64) {
    (group as usize / 64, 1 << (group % 64))
}

pub(super) fn count(words: &[u64]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

impl Dirty {
    /// Of a stage that goes on from images in which passes after `since` may be missing.
    pub(super) fn restored(since: Option<Micros>) -> Self {
        Self { passed: since.map(Passed::restored).unwrap_or_default(), ..Self::default() }
    }

    pub(super) fn bytes(&self) -> usize {
        let unwritten: usize = self.unwritten.iter().map(|(_, words)| words.capacity()).sum();
        (self.changed.capacity() + self.frozen.capacity() + unwritten) * size_of::<u64>()
            + self.passed.bytes()
    }

    /// Groups below `slots` may be marked.
    pub(super) fn grow(&mut self, slots: usize) {
        if slots > self.slots {
            self.slots = slots;
            self.changed.resize(slots.div_ceil(64), 0);
            self.passed.grow(self.changed.len());
        }
    }

    /// All groups below `slots` have changed.
    pub(super) fn mark_all(&mut self, slots: usize) {
        self.grow(slots);
        for (word, marks) in self.changed.iter_mut().enumerate() {
            let here = slots.saturating_sub(word * 64).min(64) as u32;
            *marks |= u64::MAX.checked_shr(64 - here).unwrap_or(0);
        }
        self.marks = self.marks.saturating_add(slots);
    }

    /// Groups have changed. Unused numbers do not count.
    ///
    /// Each record comes by here for each window's edge, so bits are not counted.
    #[inline(always)]
    pub(super) fn mark(&mut self, groups: &[u32]) {
        self.marks = self.marks.saturating_add(groups.len());
        // Of their own: writes through the slice are known not to change them.
        let (slots, changed) = (self.slots, self.changed.as_mut_slice());
        for group in groups.iter().filter(|group| (**group as usize) < slots) {
            let (word, bit) = place(*group);
            if let Some(word) = changed.get_mut(word) {
                *word |= bit;
            }
        }
    }

    /// Edges have passed rows of groups: they are to be written, but not soon.
    #[inline(always)]
    pub(super) fn pass(&mut self, groups: &[u32]) {
        self.marks = self.marks.saturating_add(groups.len());
        self.passed.pass(groups);
    }

    /// The task time up to which all passes are in the images of their groups; `None` before the first marker.
    pub(super) fn passed_since(&self) -> Option<Micros> {
        self.passed.since()
    }

    /// A marker: the slots changed so far are to be written, and nothing has changed since.
    pub(super) fn freeze(&mut self) {
        debug_assert_eq!(self.left, 0, "the groups of the marker before are written");
        self.frozen.resize(self.changed.len(), 0);
        std::mem::swap(&mut self.changed, &mut self.frozen);
        self.left = count(&self.frozen);
        self.marks = 0;
        self.hand = 0;
    }

    /// As [`Dirty::freeze`], at a task time, and with those of the groups that edges have passed whose turn it is
    /// ([`Passed::freeze`]). Where groups may leave memory, frozen ones are not clean before [`Dirty::written`] says so.
    pub(super) fn freeze_groups(&mut self, cycle: u64, now: Micros, turn: Option<usize>, is_bounded: bool) {
        self.freeze();
        self.passed.freeze(&mut self.frozen, now, turn);
        self.left = count(&self.frozen);
        self.marks = count(self.passed.words());
        if self.left > 0 && is_bounded {
            self.unwritten.push_back((cycle, self.frozen.clone()));
        }
    }

    /// The back end has the slots frozen at the marker of this cycle, and of those before.
    pub(super) fn written(&mut self, cycle: u64) {
        while self.unwritten.pop_front_if(|(other, _)| *other <= cycle).is_some() {}
    }

    /// Whether the back end has a group as it is.
    pub(super) fn is_clean(&self, group: u32) -> bool {
        let (word, bit) = place(group);
        let is_in = |words: &[u64]| words.get(word).is_some_and(|word| word & bit != 0);
        (group as usize) < self.slots
            && !is_in(&self.changed)
            && !self.passed.contains(group)
            && !self.unwritten.iter().any(|(_, words)| is_in(words))
    }

    /// How many groups have changed since they were last frozen: takes time for each word of 64 groups.
    pub(super) fn changed(&self) -> usize {
        let passed = self.passed.words().iter().chain(std::iter::repeat(&0));
        self.changed
            .iter()
            .zip(passed)
            .map(|(changed, passed)| (changed | passed).count_ones() as usize)
            .sum()
    }

    /// Not fewer than [`Dirty::changed`], without a count.
    pub(super) fn changed_at_most(&self) -> usize {
        self.marks.min(self.slots)
    }

    /// How many groups of the marker are still to be written.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Whether a group of the marker was still to be written; it is not any more.
    #[inline(always)]
    pub(super) fn claim(&mut self, group: u32) -> bool {
        let (word, bit) = place(group);
        match self.frozen.get_mut(word) {
            Some(word) if *word & bit != 0 => {
                *word &= !bit;
                self.left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Any group of the marker that was still to be written.
    pub(super) fn claim_next(&mut self) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        while self.frozen.get(self.hand).is_some_and(|word| *word == 0) {
            self.hand += 1;
        }
        let group = self.hand as u32 * 64 + self.frozen.get(self.hand)?.trailing_zeros();
        self.claim(group);
        Some(group)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_group_of_a_marker_is_claimed_once_and_later_changes_wait_for_the_next() {
        let mut dirty = Dirty::default();
        dirty.grow(200);
        dirty.mark(&[3, 64, 199, 3, u32::MAX]);
        dirty.freeze();
        dirty.mark(&[64, 5]);
        assert_eq!(dirty.left(), 3);
        assert!(dirty.claim(64) && !dirty.claim(64) && !dirty.claim(5) && !dirty.claim(u32::MAX));
        assert_eq!([dirty.claim_next(), dirty.claim_next(), dirty.claim_next()], [Some(3), Some(199), None]);
        dirty.freeze();
        assert_eq!([dirty.claim_next(), dirty.claim_next(), dirty.claim_next()], [Some(5), Some(64), None]);
    }

    proptest! {
        /// Few groups, so that all of them are marked at times, and numbers beyond.
        #[test]
        fn what_was_marked_is_frozen_whether_or_not_all_were(
            rounds in proptest::collection::vec((1_usize..100, proptest::collection::vec(0_u32..140, 0..300), any::<bool>()), 1..6),
        ) {
            let (mut dirty, mut slots) = (Dirty::default(), 0);
            for (more, groups, is_all) in rounds {
                slots = more.max(slots);
                dirty.grow(slots);
                let mut model: BTreeSet<u32> =
                    groups.iter().copied().filter(|group| (*group as usize) < slots).collect();
                groups.chunks(7).for_each(|groups| dirty.mark(groups));
                if is_all {
                    dirty.mark_all(slots);
                    model.extend(0..slots as u32);
                }
                prop_assert_eq!(dirty.changed(), model.len());
                prop_assert!((model.len()..=slots).contains(&dirty.changed_at_most()));
                dirty.freeze();
                prop_assert_eq!(
                    (dirty.left(), dirty.changed(), dirty.changed_at_most()),
                    (model.len(), 0, 0)
                );
                let frozen: Vec<u32> = std::iter::from_fn(|| dirty.claim_next()).collect();
                prop_assert_eq!(frozen, model.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
