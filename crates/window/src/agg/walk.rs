//! The one loop over a schedule; each aggregate fills in what adding, removing and reading mean.
//!
//! It is generic, so that every aggregate gets a loop of its own without calls in it.

use std::ops::Range;

use super::{NO_GROUP, Steps, Stream};

/// Steps between two calls of [`Walk::block`]: what they read stays in the first cache.
pub(super) const BLOCK: usize = 256;

pub(super) trait Walk {
    /// These groups are about to be changed: brings their state into the cache, see [`crate::warm`].
    #[inline(always)]
    fn touch(&mut self, groups: &[u32]) {
        let _ = groups;
    }
    /// Forgets everything of a group.
    fn reset(&mut self, group: u32);
    /// Element `element` of the add stream enters.
    fn add(&mut self, element: usize);
    /// Element `element` of the remove stream leaves.
    fn remove(&mut self, element: usize);
    /// Whether [`Walk::remove_if`] is free of branches.
    const CAN_MASK: bool = false;
    /// The element leaves if `really`, and nothing happens otherwise.
    #[inline(always)]
    fn remove_if(&mut self, element: usize, really: bool) {
        if really {
            self.remove(element);
        }
    }
    /// The answer of `step` is the present value of `group`, which may be [`NO_GROUP`].
    fn read(&mut self, step: usize, group: u32);
    /// The steps of a block (at most [`BLOCK`], starting at a multiple of it) have been read.
    #[inline(always)]
    fn block(&mut self, steps: Range<usize>) {
        let _ = steps;
    }
}

/// Applies a schedule.
///
/// # Panics
/// If the counts of the steps don't add up to the lengths of the streams.
#[inline(always)]
pub(super) fn walk<W: Walk>(steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>, to: &mut W) {
    let count = steps.groups.len();
    let (adds, removes) = (&steps.adds[..count], &steps.removes[..count]);
    assert_eq!(steps.adds.len(), count, "one add count per step");
    assert_eq!(steps.removes.len(), count, "one remove count per step");
    let (mut entered, mut left) = (0, 0);
    let last = removed.groups.len().saturating_sub(1);
    let mut start = 0;
    while start < count {
        let end = count.min(start + BLOCK);
        let masked = W::CAN_MASK && left < last && is_uneven(&removes[start..end]);
        let entering: u32 = adds[start..end].iter().sum();
        let leaving: u32 = removes[start..end].iter().sum();
        to.touch(&added.groups[entered..entered + entering as usize]);
        to.touch(&removed.groups[left..left + leaving as usize]);
        for step in start..end {
            let group = steps.groups[step];
            if let Some(resets) = steps.resets
                && resets[step]
                && group != NO_GROUP
            {
                to.reset(group);
            }
            for _ in 0..adds[step] {
                to.add(entered);
                entered += 1;
            }
            let mut leaving = removes[step];
            if masked {
                for _ in 0..2 {
                    to.remove_if(left.min(last), leaving > 0);
                    left += usize::from(leaving > 0);
                    leaving = leaving.saturating_sub(1);
                }
            }
            for _ in 0..leaving {
                to.remove(left);
                left += 1;
            }
            to.read(step, group);
        }
        to.block(start..end);
        start = end;
    }
    assert_eq!(entered, added.groups.len(), "every element of the add stream enters at some step");
    assert_eq!(left, removed.groups.len(), "every element of the remove stream leaves at some step");
}

/// Whether counts change so often that a processor mispredicts them: then two removals under a mask are cheaper than
/// a loop of unforeseeable length.
fn is_uneven(counts: &[u32]) -> bool {
    let changes: usize = counts.windows(2).map(|pair| usize::from(pair[0] != pair[1])).sum();
    changes * 5 > counts.len()
}
