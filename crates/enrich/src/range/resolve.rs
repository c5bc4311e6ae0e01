//! From ranges that may overlap to the pieces of the address space that have one answer each.
//!
//! The narrowest range that holds an address answers for it; of equally narrow ones, the one that came last.
//! That holds whether ranges are nested, equal or only partly over each other.
//!
//! A sweep over the ranges in order of their first address, with those that hold the present one in a heap:
//! O(n log n).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::bits::Bits;
use super::span::Bounds;

/// The row of a piece that is in no range.
pub(super) const NO_ROW: u32 = u32::MAX;

/// A range as a file gave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<A> {
    pub(super) bounds: Bounds<A>,
    pub(super) row: u32,
    /// Ascending in the order of lines and files.
    pub(super) order: u32,
}

/// From `start` on, up to the next piece, `row` is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<A> {
    pub(super) start: A,
    pub(super) row: u32,
}

/// A range that holds the present address; the greatest is the one that answers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Active<A> {
    distance: Reverse<A>,
    order: u32,
    last: A,
    row: u32,
}

/// The pieces of the whole address space in order, the first one at its beginning.
///
/// Neighbours have different rows.
pub(super) fn resolve<A: Bits>(mut given: Vec<Given<A>>) -> Vec<Piece<A>> {
    given.sort_unstable_by_key(|range| (range.bounds.first, range.order));
    let mut coming = given.iter().peekable();
    let mut active: BinaryHeap<Active<A>> = BinaryHeap::new();
    let mut pieces: Vec<Piece<A>> = Vec::new();
    let mut at = A::MIN;
    loop {
        while let Some(range) = coming.next_if(|range| range.bounds.first == at) {
            let Bounds { first, last } = range.bounds;
            let distance = Reverse(A::distance(first, last));
            active.push(Active { distance, order: range.order, last, row: range.row });
        }
        // Those below the top may have ended too; they are found out when they get there.
        while active.peek().is_some_and(|top| top.last < at) {
            active.pop();
        }
        let row = active.peek().map_or(NO_ROW, |top| top.row);
        if pieces.last().is_none_or(|piece| piece.row != row) {
            pieces.push(Piece { start: at, row });
        }
        let ending = active.peek().and_then(|top| top.last.successor());
        let beginning = coming.peek().map(|range| range.bounds.first);
        match (ending, beginning) {
            (Some(ending), Some(beginning)) => at = ending.min(beginning),
            (Some(place), None) | (None, Some(place)) => at = place,
            (None, None) => return pieces,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rule itself: of all ranges that hold the address, the narrowest, then the last.
    fn linear<A: Bits>(given: &[Given<A>], address: A) -> u32 {
        given
            .iter()
            .filter(|range| range.bounds.first <= address && address <= range.bounds.last)
            .min_by_key(|range| (A::distance(range.bounds.first, range.bounds.last), Reverse(range.order)))
            .map_or(NO_ROW, |range| range.row)
    }

    fn at<A: Bits>(pieces: &[Piece<A>], address: A) -> u32 {
        pieces[pieces.partition_point(|piece| piece.start <= address) - 1].row
    }

    /// Ranges that are often near the edges, nested, equal or adjacent.
    fn bounds<A: Bits + Arbitrary + 'static>(edge: A) -> impl Strategy<Value = Vec<(A, A)>> {
        let near = prop_oneof![4 => any::<A>(), 1 => Just(A::MIN), 1 => Just(edge)];
        let pools = prop::collection::vec(near, 1..8);
        pools.prop_flat_map(|pool| {
            let end = prop::sample::select(pool);
            prop::collection::vec((end.clone(), end), 0..24)
        })
    }

    fn check<A: Bits>(ends: &[(A, A)], more: &[A]) {
        let given: Vec<Given<A>> = ends
            .iter()
            .enumerate()
            .map(|(order, (a, b))| Given {
                bounds: Bounds { first: *a.min(b), last: *a.max(b) },
                row: order as u32 % 5,
                order: order as u32,
            })
            .collect();
        let pieces = resolve(given.clone());
        assert_eq!(pieces[0].start, A::MIN);
        assert!(pieces.windows(2).all(|pair| pair[0].start < pair[1].start && pair[0].row != pair[1].row));
        let ends = given.iter().flat_map(|range| {
            [Some(range.bounds.first), Some(range.bounds.last), range.bounds.last.successor()]
        });
        for address in ends.flatten().chain(more.iter().copied()) {
            assert_eq!(at(&pieces, address), linear(&given, address), "{address:?} of {given:?}");
        }
    }

    proptest! {
        #[test]
        fn every_ipv4_address_gets_its_narrowest_range(
            ends in bounds(u32::MAX), more in prop::collection::vec(any::<u32>(), 16)
        ) {
            check(&ends, &more);
        }

        #[test]
        fn every_ipv6_address_gets_its_narrowest_range(
            ends in bounds(u128::MAX), more in prop::collection::vec(any::<u128>(), 16)
        ) {
            check(&ends, &more);
        }
    }

    #[test]
    fn no_ranges_are_one_piece_without_a_row() {
        assert_eq!(resolve::<u32>(Vec::new()), [Piece { start: 0, row: NO_ROW }]);
    }
}
