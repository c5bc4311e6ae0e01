//! Hand-over and crashes change no bit of any answer.

use proptest::prelude::*;

use super::naive::{Naive, is_close};
use super::oracle::{bits, named, options, queries, records};
use super::world::{Bound, World, reference, whole};
use super::*;

/// What happens after a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Nothing,
    Begin,
    HandOver(usize),
    Write,
    Commit,
    /// A marker, with all that follows up to its commit.
    Cycle,
    Fill(usize),
}

impl Action {
    pub(super) fn of(self, world: &mut World) {
        match self {
            Action::Nothing => {}
            Action::Begin => world.begin(),
            Action::HandOver(budget) => world.hand_over(budget),
            Action::Write => world.write(),
            Action::Commit => drop(world.commit()),
            Action::Cycle => {
                world.begin();
                world.hand_over(usize::MAX);
                while world.commit() {}
            }
            Action::Fill(count) => drop(world.fill(count)),
        }
    }
}

/// From no bound to none of memory.
pub(super) fn bound() -> impl Strategy<Value = Option<Bound>> {
    let memory = prop_oneof![2 => Just(0), 2 => 500_usize..20_000, 1 => Just(usize::MAX)];
    let bound = (memory, any::<bool>()).prop_map(|(memory, is_lazy)| Bound { memory, is_lazy });
    prop::option::weighted(0.8, bound)
}

pub(super) fn actions() -> impl Strategy<Value = Vec<(usize, Action)>> {
    let action = prop_oneof![
        1 => Just(Action::Nothing),
        2 => Just(Action::Begin),
        3 => (0_usize..6).prop_map(Action::HandOver),
        2 => Just(Action::HandOver(usize::MAX)),
        1 => Just(Action::Write),
        2 => Just(Action::Commit),
        4 => Just(Action::Cycle),
        1 => (1_usize..4).prop_map(Action::Fill),
    ];
    prop::collection::vec((1_usize..12, action), 0..14)
}

/// Everything that an answer says of each record.
pub(super) fn told(answers: &Answers, count: usize) -> Vec<String> {
    let values = values(answers, count);
    (0..count as u32)
        .map(|row| {
            let misfits: Vec<(u32, u32)> =
                answers.misfits.iter().filter(|(at, ..)| *at == row).map(|(_, q, o)| (*q, *o)).collect();
            let (late, duplicate) = (answers.late.contains(&row), answers.duplicate.contains(&row));
            format!("{:?} {late} {duplicate} {misfits:?}", bits(&values[row as usize..row as usize + 1]))
        })
        .collect()
}

pub(super) fn uninterrupted(
    queries: &[(String, String)],
    options: &StageOptions,
    records: &[Record],
) -> Vec<String> {
    let mut world = World::new(queries, options);
    let (count, answers) = world.answer(records, records.len());
    told(&answers, count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 2048 }))]

    #[test]
    fn a_crash_at_any_point_changes_no_bit_of_what_follows(
        records in records(),
        queries in queries(),
        options in options(),
        runs in prop::collection::vec((actions(), 2_usize..9), 1..5),
        rest in 1_usize..20,
        bound in bound(),
    ) {
        let queries = named(&queries);
        let expected = uninterrupted(&queries, &options, &records);
        let mut world = World::new(&queries, &options).bounded(bound);
        for (actions, chunk_rows) in runs {
            for (size, action) in actions {
                let from = world.position;
                let (count, answers) = world.answer(&records, size);
                prop_assert_eq!(&told(&answers, count)[..], &expected[from..from + count]);
                action.of(&mut world);
            }
            world.options.chunk_rows = chunk_rows;
            world.crash().unwrap();
            let bound = world.stage.task_time().map(|now| now - options.lateness);
            prop_assert_eq!(world.stage.records.judge.bound(), bound, "the lateness is the same, and so are late records");
        }
        while world.position < records.len() {
            let from = world.position;
            let (count, answers) = world.answer(&records, rest);
            prop_assert_eq!(&told(&answers, count)[..], &expected[from..from + count]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 2048 }))]

    /// What was late at the last commit before a restart is late for good; all else is as the new lateness has it.
    #[test]
    fn answers_after_another_lateness_equal_a_recount_of_what_was_ever_accepted(
        records in records(),
        queries in queries(),
        options in options(),
        runs in prop::collection::vec((1_usize..30, 0_usize..9, 0_i64..40, 2_usize..9), 1..5),
        size in 1_usize..12,
        bound in bound(),
    ) {
        let texts = named(&queries);
        let mut world = World::new(&texts, &options).bounded(bound);
        let mut naive = Naive::default();
        for (kept, lost, lateness, chunk_rows) in runs.into_iter().chain([(80, 0, 0, 2)]) {
            let until = world.position + kept;
            while world.position < until.min(records.len()) {
                let from = world.position;
                let (count, answers) = world.answer(&records, size.min(until - from));
                for (record, engine) in records[from..].iter().zip(values(&answers, count)) {
                    let expected = naive.answer(record, &queries, &world.options);
                    let recount = expected.iter().flat_map(|outputs| outputs.iter().enumerate());
                    for ((output, expected), engine) in recount.zip(&engine) {
                        prop_assert!(
                            is_close(output, engine, expected),
                            "{record:?}, output {output}: engine {engine:?}, recount {expected:?}"
                        );
                    }
                }
            }
            world.begin();
            world.hand_over(usize::MAX);
            while world.commit() {}
            naive.restart(&world.options);
            world.answer(&records, lost);
            (world.options.lateness, world.options.chunk_rows) = (lateness, chunk_rows);
            world.crash().unwrap();
        }
    }
}

/// Values of each record by query, whatever the order of queries.
fn by_query(stage: &Stage, answers: &Answers, count: usize) -> Vec<Vec<(String, String)>> {
    let names: Vec<String> = stage.queries().map(|(name, _)| name.to_owned()).collect();
    (0..count)
        .map(|row| {
            let values = names.iter().zip(&answers.values);
            let mut shown: Vec<(String, String)> = values
                .map(|(name, query)| (name.clone(), format!("{:?}", bits(&[vec![Value::at(query, row)]]))))
                .collect();
            shown.sort();
            shown
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 2048 }))]

    /// The set of queries changes while records flow and between runs; a bit of `sets` says which of them is there
    /// when.
    #[test]
    fn queries_that_come_and_go_between_runs_find_their_state_or_begin_empty(
        records in records(),
        queries in queries(),
        options in options(),
        runs in prop::collection::vec((actions(), any::<u8>(), prop::collection::vec(any::<u8>(), 14)), 1..4),
        bound in bound(),
    ) {
        let mut all = named(&queries);
        all.dedup_by(|a, b| a.1 == b.1);
        all.sort_by(|a, b| a.1.cmp(&b.1));
        all.dedup_by(|a, b| a.1 == b.1);
        let chosen = |set: u8| -> Vec<(String, String)> {
            let wanted = all.iter().enumerate().filter(|(place, _)| set >> place & 1 == 1);
            wanted.map(|(_, query)| query.clone()).collect()
        };
        let mut world = World::new(&chosen(runs[0].1), &options).bounded(bound);
        for (actions, set, sets) in runs {
            for ((size, action), other) in actions.into_iter().chain([(80, Action::Nothing)]).zip(sets) {
                let (mut straight, position) = reference(&world.history, &options, &records);
                let to = whole(&records, records.len().min(world.position + size));
                let expected = straight.answer(&batch(&records[position..to], position as u64)).unwrap();
                let skipped = world.position - position;
                let (count, answers) = world.answer(&records, to - world.position);
                let got = by_query(&world.stage, &answers, count);
                let expected = by_query(&straight, &expected, skipped + count);
                prop_assert_eq!(&got[..], &expected[skipped..], "{:?}", world.history);
                action.of(&mut world);
                if other % 5 == 0 {
                    world.change(&chosen(other / 5));
                }
            }
            world.queries = chosen(set.rotate_left(3));
            world.crash().unwrap();
        }
    }
}
