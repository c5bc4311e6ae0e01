//! The reservoir against a plain list of rows: whatever the chunk size and the disorder, each cursor passes each row
//! once, at the step at which its bound reaches it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, Int64Array, UInt64Array};
use arrow_schema::DataType;
use proptest::prelude::*;
use thalweg_types::Micros;

use super::{CursorId, Layout, Passed, Reservoir};
use crate::test_store;

fn reservoir(chunk_rows: usize) -> Reservoir {
    let layout = Layout::new(&[("time".to_owned(), DataType::Int64), ("seq".to_owned(), DataType::UInt64)]);
    Reservoir::new(layout, test_store(), chunk_rows, None)
}

fn columns(rows: &[(Micros, u64)]) -> Arc<[ArrayRef]> {
    let times: Vec<Micros> = rows.iter().map(|row| row.0).collect();
    let seqs: Vec<u64> = rows.iter().map(|row| row.1).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(times)), Arc::new(UInt64Array::from(seqs))];
    columns.into()
}

/// Arrival numbers of the rows passed, in order.
fn seqs(passed: &Passed) -> Vec<u64> {
    let mut seqs = Vec::new();
    for piece in &passed.pieces {
        let column = piece.columns[1].as_primitive::<UInt64Type>();
        seqs.extend(piece.rows.clone().map(|row| column.value(row)));
    }
    seqs
}

fn advance(reservoir: &mut Reservoir, cursor: CursorId, now: Micros) -> Vec<u64> {
    let mut passed = Passed { pieces: smallvec::smallvec![], counts: vec![0] };
    reservoir.advance(cursor, &[now], &mut passed, 0).unwrap();
    let seqs = seqs(&passed);
    assert_eq!(passed.counts, [seqs.len() as u32]);
    seqs
}

#[test]
fn a_late_row_behind_a_cursor_is_not_passed_again_and_one_ahead_is_passed_in_its_place() {
    let mut reservoir = reservoir(4);
    let cursor = reservoir.add_cursor(0, Micros::MIN).unwrap();
    reservoir.append(&columns(&[(10, 0), (20, 1), (30, 2), (40, 3)]), 0..4);
    assert_eq!(advance(&mut reservoir, cursor, 20), [0, 1]);
    reservoir.insert(&columns(&[(15, 4)]), 0);
    reservoir.insert(&columns(&[(20, 5)]), 0);
    reservoir.insert(&columns(&[(25, 6)]), 0);
    assert_eq!(advance(&mut reservoir, cursor, 30), [6, 2]);
}

#[test]
fn rows_of_equal_time_stand_in_order_of_arrival() {
    let mut reservoir = reservoir(2);
    let cursor = reservoir.add_cursor(0, Micros::MIN).unwrap();
    reservoir.append(&columns(&[(10, 0), (10, 1), (10, 2), (20, 3)]), 0..4);
    reservoir.insert(&columns(&[(10, 4)]), 0);
    assert_eq!(advance(&mut reservoir, cursor, 10), [0, 1, 2, 4]);
}

#[test]
fn steps_get_the_rows_that_their_own_bound_reaches() {
    let mut reservoir = reservoir(3);
    let cursor = reservoir.add_cursor(0, Micros::MIN).unwrap();
    let rows: Vec<(Micros, u64)> = (0..10).map(|row| (row * 10, row as u64)).collect();
    reservoir.append(&columns(&rows), 0..10);
    let mut passed = Passed { pieces: smallvec::smallvec![], counts: vec![0; 4] };
    reservoir.advance(cursor, &[5, 5, 64], &mut passed, 1).unwrap();
    assert_eq!(passed.counts, [0, 1, 0, 6]);
    assert_eq!(seqs(&passed), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_cursor_added_later_passes_only_what_is_above_its_bound() {
    let mut reservoir = reservoir(2);
    let rows: Vec<(Micros, u64)> = (0..9).map(|row| (row * 10, row as u64)).collect();
    reservoir.append(&columns(&rows), 0..9);
    reservoir.settle(80, 80).unwrap();
    let cursor = reservoir.add_cursor(30, 45).unwrap();
    assert_eq!(advance(&mut reservoir, cursor, 100), [5, 6, 7]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn each_cursor_passes_each_row_once_in_order(
        steps in prop::collection::vec((0_i64..6, 0_i64..12, 1_usize..5), 1..60),
        offsets in prop::collection::vec(1_i64..40, 1..4),
        chunk_rows in 2_usize..7,
        lateness in 0_i64..12,
    ) {
        let mut reservoir = reservoir(chunk_rows);
        let cursors: Vec<CursorId> =
            offsets.iter().map(|offset| reservoir.add_cursor(*offset, Micros::MIN).unwrap()).collect();
        // The model: all rows, and for each cursor the bound it has reached.
        let mut model: Vec<(Micros, u64)> = Vec::new();
        let (mut now, mut next) = (0, 0);
        for (forward, back, count) in steps {
            if back > 6 && back - 6 <= lateness && next > 0 {
                let time = now - (back - 6);
                model.push((time, next));
                reservoir.insert(&columns(&[(time, next)]), 0);
                next += 1;
            } else {
                let rows: Vec<(Micros, u64)> =
                    (0..count as i64).map(|row| (now + forward + row / 2, next + row as u64)).collect();
                let before = now;
                now = rows[rows.len() - 1].0;
                next += count as u64;
                reservoir.append(&columns(&rows), 0..count);
                model.extend(&rows);
                for (cursor, offset) in cursors.iter().zip(&offsets) {
                    let mut expected: Vec<(Micros, u64)> = model
                        .iter()
                        .copied()
                        .filter(|(time, _)| *time <= now - offset && (model.len() == count || *time > before - offset))
                        .collect();
                    expected.sort_unstable();
                    let expected: Vec<u64> = expected.into_iter().map(|row| row.1).collect();
                    prop_assert_eq!(advance(&mut reservoir, *cursor, now), expected);
                }
            }
            reservoir.settle(now, now - lateness).unwrap();
        }
    }
}
