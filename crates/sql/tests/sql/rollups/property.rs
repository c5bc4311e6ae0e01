//! Random rows and random queries, with rollups and without.

use proptest::prelude::*;

use super::{of_rows, sorted_or_error, tables};
use crate::fake::{DAY, Flow, HOUR, MINUTE, START};

const ADDRESSES: [Option<&str>; 4] = [Some("10.1.2.3"), Some("10.1.9.9"), Some("2001:db8::7"), None];
const NAMES: [Option<&str>; 3] = [Some("a"), Some("b"), None];

fn any_time() -> impl Strategy<Value = i64> {
    let span = 3 * DAY;
    prop_oneof![
        (0..span).prop_map(|at| START - DAY + at),
        (0..span / HOUR).prop_map(|at| START - DAY + at * HOUR),
        (0..span / (10 * MINUTE), -1..2_i64).prop_map(|(at, off)| START - DAY + at * 10 * MINUTE + off),
    ]
}

fn any_flow() -> impl Strategy<Value = Flow> {
    let bytes = prop_oneof![Just(None), (0..2_000_u64).prop_map(Some), Just(Some(u64::MAX - 7))];
    let packets =
        prop_oneof![Just(None), (-9..9_i64).prop_map(Some), Just(Some(i64::MAX)), Just(Some(i64::MIN))];
    (
        any_time(),
        0..4_usize,
        0..3_usize,
        prop::option::of(0..4_u64),
        prop::option::of(0..3_u64),
        bytes,
        packets,
    )
        .prop_map(|(time, address, name, src_as, dst_as, bytes, packets)| Flow {
            time,
            src_addr: ADDRESSES[address],
            src_name: NAMES[name],
            src_as,
            dst_as,
            bytes,
            packets,
            load: None,
        })
}

const GROUPS: [&str; 13] = [
    "src_as",
    "dst_as",
    "src_as + 1",
    "coalesce(dst_as, 9)",
    "prefix(src_addr, 16)",
    "src_name",
    "date_bin(INTERVAL '1 hour', time)",
    "date_bin(INTERVAL '20 minutes', time)",
    "date_bin(INTERVAL '1 day', time)",
    "date_bin(INTERVAL '7 minutes', time)",
    "date_bin(INTERVAL '2 hours', time, TIMESTAMP '2026-01-03T01:00:00')",
    "date_trunc('day', time)",
    "date_trunc('month', time)",
];

const VALUES: [&str; 7] = [
    "sum(bytes)",
    "sum(packets)",
    "count(*)",
    "count(time)",
    "count(*) FILTER (WHERE src_as = 1)",
    "sum(bytes) FILTER (WHERE date_part('hour', time) > 12)",
    "sum(bytes) + count(*)",
];

const CONDITIONS: [&str; 8] = [
    "src_as = 1",
    "src_as IS NULL",
    "dst_as IN (0, 2)",
    "NOT (src_as > 1 AND dst_as < 2)",
    "src_name = 'a'",
    "src_addr = '10.1.2.3'",
    "date_trunc('hour', time) <> '2026-01-05T07:00:00'",
    "in_network(src_addr, '10.1.0.0/16')",
];

fn any_sql() -> impl Strategy<Value = String> {
    let bound = (prop::sample::select(vec![">=", ">", "<", "<=", "="]), any_time(), any::<bool>());
    let groups = prop::sample::subsequence(GROUPS.to_vec(), 0..=2);
    let values = prop::sample::subsequence(VALUES.to_vec(), 1..=3);
    let conditions = prop::sample::subsequence(CONDITIONS.to_vec(), 0..=1);
    let bounds = prop::collection::vec(bound, 0..=2);
    (groups, values, conditions, bounds).prop_map(|(groups, values, conditions, bounds)| {
        let mut conditions: Vec<String> = conditions.into_iter().map(str::to_owned).collect();
        for (op, time, cast) in bounds {
            // As `now() - interval` comes: in nanoseconds.
            let kind = if cast { "Nanosecond" } else { "Microsecond" };
            let value = if cast { time * 1_000 + 1 } else { time };
            conditions.push(format!("time {op} arrow_cast({value}, 'Timestamp({kind}, None)')"));
        }
        let filter = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        };
        let columns: Vec<&str> = groups.iter().chain(&values).copied().collect();
        let places: Vec<String> = (1..=groups.len()).map(|place| place.to_string()).collect();
        let grouped =
            if groups.is_empty() { String::new() } else { format!(" GROUP BY {}", places.join(", ")) };
        format!("SELECT {} FROM flows{filter}{grouped}", columns.join(", "))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rollups_and_rows_agree_to_the_bit(
        rows in prop::collection::vec((any_flow(), 0..4_usize), 0..120),
        queries in prop::collection::vec(any_sql(), 12),
    ) {
        let of = |place: usize| -> Vec<Flow> {
            rows.iter().filter(|(_, other)| *other == place).map(|(row, _)| row.clone()).collect()
        };
        let (one, two, three, fresh) = (of(0), of(1), of(2), of(3));
        let world = tables(&[], &[&one, &two, &three], &fresh);
        let without = of_rows(&world);
        for sql in &queries {
            // Which of several sums out of range is reported may differ.
            let outcome = |engine| {
                sorted_or_error(engine, sql).map_err(|error| {
                    assert!(error.contains("is out of the range of"), "{sql}: {error}");
                })
            };
            prop_assert_eq!(outcome(&world.engine), outcome(&without), "{}", sql);
        }
    }
}
