//! Arrival numbers: in which order records of equal event times came, and which record of a window is which.
//!
//! They count the records that the stage was given, refused ones too, so they are a function of its input alone: order
//! numbers are a process's own, and records that were made of one share theirs. A checkpoint says which is the next.
//!
//! A checkpoint of an earlier build may not say it, and have order numbers instead: the records that follow go on from
//! theirs, which are above all of those.
//!
//! Not here: order numbers themselves, by which answers find their records (the node).

use std::ops::Range;

use thalweg_types::Seq;

/// Arrival numbers of the next `count` records; `next` is above all numbers before, and then above these. `first` is the
/// order number of the first of them.
pub(super) fn number(next: &mut Option<u64>, count: usize, first: impl FnOnce() -> Seq) -> Range<u64> {
    if count == 0 {
        return 0..0;
    }
    let start = next.unwrap_or_else(first);
    let end = start.saturating_add(count as u64);
    *next = Some(end);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_records_from_zero_or_from_where_a_checkpoint_was() {
        let mut next = Some(0);
        assert_eq!(number(&mut next, 3, || 40), 0..3);
        assert_eq!(number(&mut next, 0, || unreachable!()), 0..0);
        assert_eq!(number(&mut next, 1, || 2), 3..4);
        // Order numbers were arrival numbers then.
        let mut next = None;
        assert_eq!(number(&mut next, 0, || unreachable!()), 0..0);
        assert_eq!((number(&mut next, 2, || 17), next), (17..19, Some(19)));
    }
}
