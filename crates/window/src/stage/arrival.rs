//! Arrival numbers: in which order records of equal event times came, and which record of a window is which.
//!
//! A record's is its order number, unless one before it had that or a larger one: then it is the next. One record may
//! become several on its way, as the pairs of a join do, and these share its order number; with their event times
//! equal too, nothing else would distinguish them.
//!
//! Numbers are a function of the order numbers that the stage has seen and of nothing else. A checkpoint says which is
//! the next, so that they go on as they would have.
//!
//! Not here: order numbers themselves, by which answers find their records (the node).

use thalweg_types::{Batch, Seq};

/// Arrival numbers of a batch's records; `next` is above all numbers before, and then above these.
pub(super) fn number(batch: &Batch, next: &mut u64) -> Vec<u64> {
    let mut numbers: Vec<Seq> = batch.row_numbers().map(|row| batch.seq(row)).collect();
    *next = ascend(&mut numbers, *next);
    numbers
}

/// Raises each number to `next`, or to one above the number before it, where it is smaller; returns the next number.
fn ascend(numbers: &mut [u64], mut next: u64) -> u64 {
    for number in numbers {
        *number = next.max(*number);
        next = number.saturating_add(1);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_order_until_records_share_one() {
        for (numbers, next, expected, after) in [
            (vec![], 7, vec![], 7),
            (vec![0, 1, 5], 0, vec![0, 1, 5], 6),
            (vec![3, 3, 3, 4, 9], 0, vec![3, 4, 5, 6, 9], 10),
            (vec![3, 20], 7, vec![7, 20], 21),
        ] {
            let mut given = numbers;
            assert_eq!((ascend(&mut given, next), given), (after, expected));
        }
    }
}
