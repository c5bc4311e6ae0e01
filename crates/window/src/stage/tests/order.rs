//! Order numbers are a process's own: what comes out depends on which record is before which, and on nothing else of them.

use proptest::prelude::*;
use thalweg_testing::semantics::Random;

use super::crash::{actions, bound, told, uninterrupted};
use super::oracle::{named, options, queries, records};
use super::world::World;
use super::*;

/// The same records with the numbers of another process: from another one on, and with gaps, as markers, ticks and
/// records of others make them. Those that shared a number share one.
fn renumbered(records: &[Record], seed: u64) -> Vec<Record> {
    let mut random = Random::new(seed);
    let mut next = random.one(&[0, 1, 40, 1 << 40]);
    let mut before = None;
    let number = |record: &Record| {
        if before.is_some() && before != Some(record.seq) {
            next += random.one(&[1, 1, 1, 2, 9, 1 << 33]);
        }
        before = Some(record.seq);
        Record { seq: Some(next), ..record.clone() }
    };
    records.iter().map(number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 2048 }))]

    #[test]
    fn order_numbers_cuts_of_batches_and_places_of_commits_change_no_bit(
        records in records(),
        queries in queries(),
        options in options(),
        lives in prop::collection::vec((actions(), 2_usize..9, any::<u64>()), 1..5),
        rest in (1_usize..20, any::<u64>()),
        bound in bound(),
    ) {
        let queries = named(&queries);
        let expected = uninterrupted(&queries, &options, &records);
        let mut world = World::new(&queries, &options).bounded(bound);
        for (actions, chunk_rows, seed) in lives {
            let records = renumbered(&records, seed);
            for (size, action) in actions {
                let from = world.position;
                let (count, answers) = world.answer(&records, size);
                prop_assert_eq!(&told(&answers, count)[..], &expected[from..from + count]);
                action.of(&mut world);
            }
            world.options.chunk_rows = chunk_rows;
            world.crash().unwrap();
        }
        let records = renumbered(&records, rest.1);
        while world.position < records.len() {
            let from = world.position;
            let (count, answers) = world.answer(&records, rest.0);
            prop_assert_eq!(&told(&answers, count)[..], &expected[from..from + count]);
        }
    }
}
