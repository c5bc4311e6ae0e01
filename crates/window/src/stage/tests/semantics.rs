//! All windows and aggregates over made-up streams: the bits of this semantic version.

use thalweg_testing::semantics::{Corpus, Digest, Random};
use thalweg_types::LatePolicy;

use super::naive::{GROUP_BYS, NaiveQuery};
use super::*;
use crate::query::Window;

/// Late, equal and extreme times; nulls, NaN, infinities and the largest numbers; ids that come again, and records of which
/// several are made.
fn records(seed: u64, count: usize) -> Vec<Record> {
    let mut random = Random::new(seed);
    let (mut now, mut seq) = (0, 0);
    let text =
        |random: &mut Random, of: &[&'static str]| (random.below(8) > 0).then(|| random.one(of).to_owned());
    (0..count)
        .map(|_| {
            let step = match random.below(10) {
                0..4 => random.below(8) as i64,
                4..7 => 0,
                7..9 => -(random.below(14) as i64),
                _ => 20 + random.below(40) as i64,
            };
            let time = now + step;
            now = now.max(time);
            seq += random.one(&[0, 1, 1, 4]);
            let extreme = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 5e-324, f64::MAX, 1e40, 0.1];
            Record {
                time,
                seq: Some(seq),
                card: text(&mut random, &["c1", "c2", "a card longer than twelve"]),
                shop: text(&mut random, &["m1", "m2", "a shop longer than twelve"]),
                x: match random.below(8) {
                    0 => None,
                    1 => Some(random.one(&extreme)),
                    2..4 => Some(random.float()),
                    _ => Some((random.below(2_001) as f64 - 1_000.0) / 100.0),
                },
                k: match random.below(12) {
                    0 => None,
                    1 => Some(random.one(&[i64::MAX, i64::MIN])),
                    _ => Some(random.below(11) as i64 - 5),
                },
                id: (random.below(2) == 0).then(|| format!("tx{}", random.below(40))),
            }
        })
        .collect()
}

/// The same window over numbers and times of the other types.
fn of_other_types(text: &str) -> String {
    let (_, from) = text.split_once(" FROM ").expect("a query");
    let aggregates = [
        ("CAST(x AS decimal(20, 3))", &["sum", "avg", "var", "stddev", "min", "max", "count"][..]),
        ("CAST(x AS decimal(60, 30))", &["sum", "avg", "var_pop", "min", "first"]),
        ("CAST(k AS uint64)", &["sum", "avg", "var", "stddev_pop", "max", "last"]),
        ("CAST(k AS timestamp(us))", &["min", "max", "first", "prev"]),
        ("k > 0", &["min", "max", "last"]),
        ("CAST(shop AS bytes)", &["min", "max", "first"]),
    ];
    let each = aggregates
        .iter()
        .flat_map(|(of, functions)| functions.iter().map(move |name| format!("{name}({of})")));
    let ranks = ["0", "0.01", "0.5", "0.999", "1"]
        .map(|rank| format!("quantile(CAST(x AS decimal(60, 30)), {rank})"));
    let distinct = ["CAST(x AS decimal(20, 3))", "k > 0", "id"].map(|of| format!("count(DISTINCT {of})"));
    let more = [
        "quantile(k, 0.25)",
        "quantile(CAST(k AS uint64), 0.75)",
        "sum(ln(x)) / count(x)",
        "avg(power(x, 0.5))",
    ];
    let all = each.chain(ranks).chain(distinct).chain(more.map(str::to_owned));
    let named: Vec<String> = all.enumerate().map(|(place, text)| format!("{text} AS o{place}")).collect();
    format!("SELECT {} FROM {from}", named.join(", "))
}

#[test]
fn every_window_and_aggregate_has_the_bits_of_the_semantic_version() {
    let mut corpus = Corpus::new("window");
    let windows = [
        Window::Sliding(1),
        Window::Sliding(30),
        Window::Tumbling(20),
        Window::Infinite,
        Window::Rows(1),
        Window::Rows(5),
    ];
    let rules = [
        ("late: reject", 0, LatePolicy::Reject, None),
        ("late: clamp, lateness 9", 9, LatePolicy::Clamp, None),
        ("late: reject, lateness 5, dedup 40", 5, LatePolicy::Reject, Some((ID, 40))),
    ];
    for (place, (rule, lateness, late, dedup)) in rules.into_iter().enumerate() {
        let records = records(place as u64, 600);
        for window in windows {
            for (delay, filter) in [(0, None), (7, Some(2.5))] {
                let mut digest = Digest::default();
                let texts =
                    (0..GROUP_BYS.len()).map(|keys| NaiveQuery { window, delay, filter, keys }.text());
                let last = NaiveQuery { window, delay, filter, keys: 1 }.text();
                for text in texts.chain([of_other_types(&last)]) {
                    let options = StageOptions { lateness, late, dedup, ..StageOptions::default() };
                    let mut stage = stage(&[("q", &text)], options);
                    // Whatever the batches are.
                    for piece in records.chunks(37) {
                        let answers = stage.answer(&batch(piece, 0)).unwrap();
                        values(&answers, piece.len()).iter().flatten().for_each(|value| digest.value(value));
                        for rows in [&answers.late, &answers.closed, &answers.duplicate] {
                            digest.number(rows.len() as u64);
                            rows.iter().for_each(|row| digest.number(u64::from(*row)));
                        }
                        for (row, query, output) in &answers.misfits {
                            [row, query, output]
                                .into_iter()
                                .for_each(|number| digest.number(u64::from(*number)));
                        }
                    }
                }
                corpus.add(format!("{window:?}, delay {delay}, filter {filter:?}, {rule}"), &digest);
            }
        }
    }
    corpus.check();
}
