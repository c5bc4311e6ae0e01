//! The engine against the oracle over random streams: late, equal-time, duplicate, null, NaN, infinite and extreme
//! values, records that share an order number, random batch and chunk sizes. And the engine against itself: whatever the batches and chunks, the same bits.

use proptest::prelude::*;
use thalweg_types::LatePolicy;

use super::naive::{GROUP_BYS, Naive, NaiveQuery, is_close};
use super::*;
use crate::query::Window;

fn numbers() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        2 => Just(None),
        8 => (-1000_i32..1000).prop_map(|cents| Some(f64::from(cents) / 100.0)),
        2 => prop::sample::select(vec![
            1e40, -1e40, 1.0, 1e-40, 0.1, 1e300, -1e300, 5e-324, -0.0, 0.0, f64::MAX, f64::MIN_POSITIVE,
        ]).prop_map(Some),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]).prop_map(Some),
    ]
}

/// (step of time, of which a part goes back) and the rest of a record.
pub(super) fn records() -> impl Strategy<Value = Vec<Record>> {
    let record = (
        prop_oneof![4 => 0_i64..8, 3 => Just(0_i64), 2 => -12_i64..0, 1 => 20_i64..60],
        prop::option::weighted(0.9, prop::sample::select(vec!["c1", "c2", "a card longer than twelve"])),
        prop::option::weighted(0.8, prop::sample::select(vec!["m1", "m2", "a shop longer than twelve"])),
        numbers(),
        prop::option::weighted(0.8, prop_oneof![-5_i64..5, Just(i64::MAX), Just(i64::MIN)]),
        prop::option::weighted(0.5, 0_u8..12),
        prop_oneof![3 => Just(1_u64), 3 => Just(0), 1 => 2_u64..5],
    );
    prop::collection::vec(record, 1..80).prop_map(|steps| {
        let (mut now, mut seq) = (0, 0);
        steps
            .into_iter()
            .map(|(step, card, shop, x, k, id, further)| {
                let time = now + step;
                now = now.max(time);
                seq += further;
                Record {
                    time,
                    seq: Some(seq),
                    card: card.map(str::to_owned),
                    shop: shop.map(str::to_owned),
                    x,
                    k,
                    id: id.map(|id| format!("tx{id}")),
                }
            })
            .collect()
    })
}

pub(super) fn queries() -> impl Strategy<Value = Vec<NaiveQuery>> {
    let window = prop_oneof![
        4 => (1_i64..40).prop_map(Window::Sliding),
        2 => (1_i64..40).prop_map(Window::Tumbling),
        1 => Just(Window::Infinite),
        2 => (1_u64..6).prop_map(Window::Rows),
    ];
    let query = (
        window,
        prop_oneof![2 => Just(0_i64), 1 => 1_i64..20],
        prop::option::weighted(0.3, prop::sample::select(vec![0.0, 2.5, -1e39])),
        0..GROUP_BYS.len(),
    )
        .prop_map(|(window, delay, filter, keys)| NaiveQuery { window, delay, filter, keys });
    prop::collection::vec(query, 1..5)
}

pub(super) fn options() -> impl Strategy<Value = StageOptions> {
    (0_i64..15, any::<bool>(), prop::option::of(1_i64..40), 2_usize..9, 0_usize..3, 1_usize..5).prop_map(
        |(lateness, clamp, dedup, chunk_rows, turn, piece)| StageOptions {
            lateness,
            late: if clamp { LatePolicy::Clamp } else { LatePolicy::Reject },
            dedup: dedup.map(|span| (ID, span)),
            chunk_rows,
            turn,
            piece,
            retention: None,
            ..StageOptions::default()
        },
    )
}

pub(super) fn named(queries: &[NaiveQuery]) -> Vec<(String, String)> {
    queries.iter().enumerate().map(|(index, query)| (format!("q{index}"), query.text())).collect()
}

fn build(queries: &[(String, String)], options: &StageOptions) -> Stage {
    let borrowed: Vec<(&str, &str)> =
        queries.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    stage(&borrowed, options.clone())
}

/// Bits of a value, so that two runs can be compared exactly.
pub(super) fn bits(values: &[Vec<Value>]) -> Vec<String> {
    values
        .iter()
        .flatten()
        .map(|value| match value {
            Value::Float64(number) => format!("{:016x}", number.to_bits()),
            other => format!("{other:?}"),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 2048 }))]

    #[test]
    fn every_answer_equals_a_recount_of_all_records(
        records in records(),
        queries in queries(),
        options in options(),
        sizes in prop::collection::vec(1_usize..20, 1..6),
    ) {
        let texts = named(&queries);
        let answered = run(&mut build(&texts, &options), &records, &sizes);
        let mut naive = Naive::default();
        for (row, (record, engine)) in records.iter().zip(&answered).enumerate() {
            let expected: Vec<Value> = naive.answer(record, &queries, &options).into_iter().flatten().collect();
            let per_query = expected.len() / queries.len();
            for (output, (engine, expected)) in engine.iter().zip(&expected).enumerate() {
                prop_assert!(
                    is_close(output % per_query, engine, expected),
                    "record {row} {record:?}, query {:?}, output {}: engine {engine:?}, recount {expected:?}",
                    texts[output / per_query].1, output % per_query,
                );
            }
            for (query, outputs) in engine.chunks(per_query).enumerate() {
                let (least, greatest, middle) = (&outputs[8], &outputs[9], &outputs[14]);
                prop_assert!(
                    least <= middle && middle <= greatest,
                    "record {row}, query {:?}: a quantile of {middle:?} between {least:?} and {greatest:?}",
                    texts[query].1,
                );
            }
        }
    }

    #[test]
    fn batch_and_chunk_sizes_change_no_bit(
        records in records(),
        queries in queries(),
        options in options(),
        sizes in prop::collection::vec(1_usize..20, 1..6),
        chunk_rows in 2_usize..200,
    ) {
        let texts = named(&queries);
        let one_by_one = run(&mut build(&texts, &options), &records, &[1]);
        let other = StageOptions { chunk_rows, ..options };
        let in_batches = run(&mut build(&texts, &other), &records, &sizes);
        prop_assert_eq!(bits(&one_by_one), bits(&in_batches));
    }
}
