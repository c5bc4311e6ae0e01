//! An operator that takes few records at once is given them in pieces, and nothing else is different.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_flow::{InputId, JobState, Operator, Output, Partitioning};
use thalweg_types::{Batch, Error};

use crate::harness::*;

/// Emits every record several times, and remembers how many it was given at once.
struct Many {
    wanted: usize,
    most: Arc<AtomicUsize>,
}

const COPIES: usize = 5;

impl Operator for Many {
    fn process(&mut self, _input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        self.most.fetch_max(batch.len(), Ordering::Relaxed);
        let made: Vec<Row> =
            rows(&batch).into_iter().flat_map(|row| std::iter::repeat_n(row, COPIES)).collect();
        out.emit(0, batch_of(&made, batch.range()));
        Ok(())
    }

    fn rows_at_once(&mut self, batch: &Batch) -> usize {
        self.wanted.min(batch.len())
    }
}

/// The output of a job whose operator takes this many records at once, and how many it was given.
fn run(wanted: usize, upstream: u32) -> (Vec<(i64, i64, i64)>, usize) {
    let most = Arc::new(AtomicUsize::new(0));
    let mut build = Build::new("pieces");
    let source = build.numbers("numbers", Numbers::up_to(2_000).in_blocks_of(300), 1);
    let input = build.input(source, Partitioning::Shuffle);
    let middle = build.each("middle", vec![input], upstream, |_, row| Some(row));
    // From one ring or several, with another branch of the same records.
    let (first, second) =
        (build.input(middle, Partitioning::Global), build.input(source, Partitioning::Global));
    let shared = Arc::clone(&most);
    let many = build.operator("many", vec![first], 1, move |_| Many { wanted, most: Arc::clone(&shared) });
    let last = build.input(many, Partitioning::Global);
    let records = build.record("end", vec![last, second], 1);
    let (runtime, _clock) = runtime(2);
    let mut options = quiet();
    options.ring_bytes = 4 << 10;
    let job = runtime.start(build.graph, options).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    (records.rows(0), most.load(Ordering::Relaxed))
}

#[test]
fn records_come_in_pieces_and_what_is_emitted_is_the_same() {
    for upstream in [1, 3] {
        let (expected, whole) = run(usize::MAX, upstream);
        assert!(whole > 20, "{whole} at once, where nobody asked for fewer");
        for wanted in [1, 7] {
            let (rows, most) = run(wanted, upstream);
            assert!(most <= wanted * upstream as usize, "{most} at once, {wanted} were wanted");
            let sorted = |mut rows: Vec<_>| {
                rows.sort_unstable();
                rows
            };
            assert_eq!(sorted(rows), sorted(expected.clone()), "{wanted} at once from {upstream} tasks");
        }
    }
}
