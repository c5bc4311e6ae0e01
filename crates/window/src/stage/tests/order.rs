//! Order numbers are a process's own: what comes out depends on which record is before which, and on nothing else of them.

use proptest::prelude::*;
use thalweg_testing::semantics::Random;

use thalweg_types::Origin;

use super::crash::{actions, bound, told, uninterrupted};
use super::naive::{Naive, is_close};
use super::oracle::{named, options, queries, records};
use super::world::World;
use super::*;
use crate::stage::Manifest;

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

/// Rows of a few senders, each of which counts its records by itself: several rows have one origin, and those of others come
/// between them. Their numbers are as another process may give them.
fn from_senders(records: &[Record], seed: u64) -> (Vec<Record>, Vec<Origin>) {
    let mut random = Random::new(seed);
    let mut offsets = [0, 7, 7];
    let row = |(place, record): (usize, &Record)| {
        let sender = random.below(3);
        let offset = &mut offsets[sender as usize];
        *offset += random.below(2);
        let origin = Origin { sender, position: (*offset / 2, (*offset % 2) as u32) };
        (Record { seq: Some(place as u64), ..record.clone() }, origin)
    };
    records.iter().enumerate().map(row).unzip()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 2048 }))]

    /// A marker, and a restart, may come between rows of one record: what was taken of its ids is in the checkpoint.
    #[test]
    fn rows_of_one_origin_are_no_duplicates_wherever_commits_are(
        records in records(),
        queries in queries(),
        options in options(),
        span in 1_i64..60,
        lives in prop::collection::vec((actions(), any::<u64>()), 1..5),
        rest in 1_usize..20,
        bound in bound(),
        seed in any::<u64>(),
    ) {
        let options = StageOptions { dedup: Some((ID, span)), ..options };
        let texts = named(&queries);
        let (records, origins) = from_senders(&records, seed);
        let mut straight = World::new(&texts, &options);
        let (count, answers) = straight.answer_of(&records, &origins, records.len());
        let expected = told(&answers, count);

        // Those of one origin have one number here.
        let mut naive = Naive::default();
        for ((record, origin), got) in records.iter().zip(&origins).zip(values(&answers, count)) {
            let (offset, place) = origin.position;
            let record = Record { seq: Some(offset << 8 | u64::from(place) << 4 | origin.sender), ..record.clone() };
            let values: Vec<Value> = naive.answer(&record, &queries, &options).into_iter().flatten().collect();
            let per_query = values.len() / queries.len();
            for (output, (got, value)) in got.iter().zip(&values).enumerate() {
                prop_assert!(is_close(output % per_query, got, value), "{record:?}: {got:?}, recount {value:?}");
            }
        }

        let mut world = World::new(&texts, &options).bounded(bound);
        for (actions, seed) in lives {
            let records = renumbered(&records, seed);
            for (size, action) in actions {
                let from = world.position;
                let (count, answers) = world.answer_of(&records, &origins, size);
                prop_assert_eq!(&told(&answers, count)[..], &expected[from..from + count]);
                action.of(&mut world);
            }
            world.crash().unwrap();
        }
        while world.position < records.len() {
            let from = world.position;
            let (count, answers) = world.answer_of(&records, &origins, rest);
            prop_assert_eq!(&told(&answers, count)[..], &expected[from..from + count]);
        }
    }
}

#[test]
fn a_marker_between_two_rows_of_one_record_makes_none_a_duplicate() {
    let query = ("n".to_owned(), "SELECT count(*) AS n FROM s OVER INFINITE".to_owned());
    let options = StageOptions { dedup: Some((ID, 100)), ..StageOptions::default() };
    let row = |id: &str| Record { id: Some(id.to_owned()), ..Record::default() };
    let records = [row("a"), row("b"), row("a"), row("b"), row("c"), row("a")];
    let origin = |offset| Origin { sender: 5, position: (offset, 0) };
    let origins = [origin(3), origin(3), origin(3), origin(3), origin(3), origin(4)];
    let mut world = World::new(&[query], &options);
    for expected in [&[][..], &[], &[], &[], &[], &[0]] {
        let (_, answers) = world.answer_of(&records, &origins, 1);
        assert_eq!(answers.duplicate, expected, "row {}", world.position);
        world.begin();
        world.hand_over(usize::MAX);
        assert!(world.commit());
        world.crash().unwrap();
    }

    // A checkpoint of an earlier build does not say what was taken.
    let mut world = World::new(&world.queries, &options);
    world.answer_of(&records, &origins, 2);
    world.begin();
    world.hand_over(usize::MAX);
    assert!(world.commit());
    let commit = world.commit.as_mut().unwrap();
    commit.manifest = Manifest::parse(&commit.manifest).unwrap().to_bytes_of_version(7);
    world.crash().unwrap();
    assert_eq!(world.answer_of(&records, &origins, 2).1.duplicate, [0, 1]);
}
