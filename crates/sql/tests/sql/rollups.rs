//! Rollups answer as rows do, to the bit, and only where they can.
//!
//! Rollups are made here by a map over rows; the engine has no part in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray, UInt64Array};
use arrow_schema::{Field, Schema};
use proptest::prelude::*;
use thalweg_sql::{Engine, Format, Limits};
use thalweg_table::{Rollup, RollupSpec, Snapshot};

use crate::fake::{self, DAY, Flow, HOUR, MINUTE, SECOND, START, World, world};

/// Keys of the rollups of these tests, the finer ones first.
const SPECS: [(&str, i64, &[&str], &[&str]); 3] = [
    ("ten_minutes", 10 * MINUTE, &["src_as", "dst_as", "src_addr"], &["bytes", "packets"]),
    ("hour", HOUR, &["src_as", "dst_as"], &["bytes", "packets"]),
    ("day", DAY, &["src_as"], &["bytes"]),
];

type Keys = (i64, Option<u64>, Option<u64>, Option<&'static str>);
type Sums = (Option<u64>, Option<i64>, i64);

fn sums(rows: &[Flow], every: i64, by: &[&str]) -> BTreeMap<Keys, Sums> {
    let mut sums: BTreeMap<Keys, Sums> = BTreeMap::new();
    for row in rows {
        let keys = (
            row.time.div_euclid(every) * every,
            row.src_as.filter(|_| by.contains(&"src_as")),
            row.dst_as.filter(|_| by.contains(&"dst_as")),
            row.src_addr.filter(|_| by.contains(&"src_addr")),
        );
        let (bytes, packets, count) = sums.entry(keys).or_default();
        if let Some(more) = row.bytes {
            *bytes = Some(bytes.unwrap_or(0).wrapping_add(more));
        }
        if let Some(more) = row.packets {
            *packets = Some(packets.unwrap_or(0).wrapping_add(more));
        }
        *count += 1;
    }
    sums
}

fn rollup_batch(rows: &[(Keys, Sums)], by: &[&str], sum: &[&str]) -> RecordBatch {
    let mut addresses = FixedSizeBinaryBuilder::new(16);
    for ((_, _, _, address), _) in rows {
        match address {
            Some(text) => addresses.append_value(fake::address(text)).unwrap(),
            None => addresses.append_null(),
        }
    }
    let all: Vec<(&str, ArrayRef)> = vec![
        ("time", Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|(keys, _)| keys.0)))),
        ("src_as", Arc::new(UInt64Array::from_iter(rows.iter().map(|(keys, _)| keys.1)))),
        ("dst_as", Arc::new(UInt64Array::from_iter(rows.iter().map(|(keys, _)| keys.2)))),
        ("src_addr", Arc::new(addresses.finish())),
        ("bytes", Arc::new(UInt64Array::from_iter(rows.iter().map(|(_, sums)| sums.0)))),
        ("packets", Arc::new(Int64Array::from_iter(rows.iter().map(|(_, sums)| sums.1)))),
        (Rollup::COUNT, Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, sums)| sums.2)))),
    ];
    let kept =
        |name: &str| name == "time" || name == Rollup::COUNT || by.contains(&name) || sum.contains(&name);
    let columns: Vec<(&str, ArrayRef)> = all.into_iter().filter(|(name, _)| kept(name)).collect();
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| {
            Field::new(*name, column.data_type().clone(), *name != "time" && *name != Rollup::COUNT)
        })
        .collect();
    RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns.into_iter().map(|(_, column)| column).collect(),
    )
    .unwrap()
}

/// The rollups of some rows; each file of rows has files of its own, so that keys come several times.
fn rollups(folder: &Path, parts: &[&[Flow]]) -> Vec<Rollup> {
    let mut rollups = Vec::new();
    for (name, every, by, sum) in SPECS {
        let mut files = Vec::new();
        let mut schema = rollup_batch(&[], by, sum).schema();
        for (place, rows) in parts.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let rows: Vec<(Keys, Sums)> = sums(rows, every, by).into_iter().collect();
            let batch = rollup_batch(&rows, by, sum);
            schema = batch.schema();
            files.push(fake::file(&folder.join(format!("{name} {place}.parquet")), &batch));
        }
        let spec = RollupSpec {
            name: name.to_owned(),
            every,
            by: by.iter().map(|name| (*name).to_owned()).collect(),
            sum: sum.iter().map(|name| (*name).to_owned()).collect(),
            retention: None,
        };
        rollups.push(Rollup { spec, schema, files });
    }
    rollups
}

/// A table with rollups of `gone` and of `files`.
fn tables(gone: &[Flow], files: &[&[Flow]], fresh: &[Flow]) -> World {
    let world = world(Limits::default());
    let files: Vec<&[Flow]> = files.iter().copied().filter(|rows| !rows.is_empty()).collect();
    world.add("net", "flows", &files, fresh);
    let mut parts = vec![gone];
    parts.extend(&files);
    let made = rollups(world.folder.path(), &parts);
    world.rollups("net", "flows", made);
    world
}

fn flow(time: i64) -> Flow {
    Flow {
        time,
        src_as: Some(time.unsigned_abs() % 5),
        dst_as: Some(time.unsigned_abs() % 3),
        src_addr: Some(["10.1.2.3", "10.9.0.1", "2001:db8::1"][(time % 3) as usize]),
        src_name: Some(["a", "b"][(time % 2) as usize]),
        bytes: Some(time.unsigned_abs() / 1_000 % 1_500),
        packets: Some(1),
        ..Flow::default()
    }
}

/// Three days with a row every 7 minutes, in a file a day; the last two hours are in no file.
fn three_days() -> World {
    let rows: Vec<Flow> =
        (0..3 * DAY / (7 * MINUTE)).map(|n| flow(START + n * 7 * MINUTE + 13 * SECOND)).collect();
    let day = |n: i64| rows.partition_point(|row| row.time < START + n * DAY);
    let fresh = rows.partition_point(|row| row.time < START + 3 * DAY - 2 * HOUR);
    tables(&[], &[&rows[..day(1)], &rows[day(1)..day(2)], &rows[day(2)..fresh]], &rows[fresh..])
}

/// The parts of the table that a plan reads.
fn parts(world: &World, sql: &str) -> BTreeSet<String> {
    let plan = world.in_format(&format!("EXPLAIN {sql}"), Format::Table);
    plan.lines()
        .filter_map(|line| line.split_once("TableScan: ")?.1.split([' ', '\n']).next())
        .map(|name| name.trim_start_matches("flows").trim_matches(['[', ']']).to_owned())
        .collect()
}

fn of_rows(world: &World) -> Engine {
    let catalog = world.fake.clone();
    Engine::new(catalog, Limits { use_rollups: false, ..Limits::default() }).unwrap()
}

fn sorted(engine: &Engine, sql: &str) -> Vec<String> {
    let reply = engine.query_blocking(sql).unwrap_or_else(|error| panic!("{sql}: {}", error.chain()));
    let mut out = Vec::new();
    thalweg_sql::write(reply, Format::Csv, &mut out)
        .unwrap_or_else(|error| panic!("{sql}: {}", error.chain()));
    let mut lines: Vec<String> = String::from_utf8(out).unwrap().lines().map(str::to_owned).collect();
    lines[1..].sort();
    lines
}

#[test]
fn the_coarsest_rollup_that_can_answers() {
    let world = three_days();
    let rows = of_rows(&world);
    for (sql, expected) in [
        ("SELECT src_as, sum(bytes) FROM flows GROUP BY 1", "day fresh"),
        ("SELECT sum(bytes) AS b, count(*) AS n FROM flows", "day fresh"),
        ("SELECT src_as, sum(packets) FROM flows GROUP BY 1", "fresh hour"),
        ("SELECT src_as, dst_as, sum(bytes) FROM net.flows f GROUP BY src_as, dst_as", "fresh hour"),
        ("SELECT prefix(src_addr, 16), count(*) FROM flows GROUP BY 1", "fresh ten_minutes"),
        ("SELECT date_bin(INTERVAL '1 hour', time) t, sum(bytes) FROM flows GROUP BY t", "fresh hour"),
        (
            "SELECT date_bin(INTERVAL '30 minutes', time) t, sum(bytes) FROM flows GROUP BY t",
            "fresh ten_minutes",
        ),
        ("SELECT date_trunc('week', time) t, count(1) FROM flows GROUP BY t", "day fresh"),
        ("SELECT date_trunc('hour', time) t, count(*) FROM flows GROUP BY t", "fresh hour"),
        ("SELECT CAST(time AS DATE) t, count(*) FROM flows GROUP BY t", "day fresh"),
        ("SELECT date_part('hour', time) t, sum(packets) FROM flows GROUP BY t", "fresh hour"),
        ("SELECT DISTINCT src_as FROM flows", "day fresh"),
        ("SELECT count(DISTINCT src_as) FROM flows", "day fresh"),
        ("SELECT sum(bytes) FROM flows WHERE src_as = 3", "day fresh"),
        ("SELECT sum(bytes) FROM flows WHERE src_as = 3 OR dst_as IN (1, 2)", "fresh hour"),
        ("SELECT sum(bytes) FROM flows WHERE src_addr = '10.1.2.3'", "fresh ten_minutes"),
        (
            "SELECT sum(bytes) FILTER (WHERE dst_as = 1), count(*) FILTER (WHERE dst_as > 7) FROM flows",
            "fresh hour",
        ),
        ("SELECT sum(bytes) FROM flows WHERE time >= '2026-01-06T00:00:00'", "day fresh"),
        ("SELECT sum(bytes) FROM flows WHERE time >= '2026-01-06T05:00:00'", "day fresh hour"),
        ("SELECT sum(bytes) FROM flows WHERE time >= '2026-01-06T05:20:00'", "day fresh hour ten_minutes"),
        (
            "SELECT sum(bytes) FROM flows WHERE time > '2026-01-06T05:20:00'",
            "day files fresh hour ten_minutes",
        ),
        (
            "SELECT sum(bytes) FROM flows WHERE time BETWEEN '2026-01-05T23:00:00' AND '2026-01-07T00:00:00'",
            "day fresh hour",
        ),
        (
            "SELECT sum(bytes) FROM flows WHERE time < now() AND time >= now() - INTERVAL '200 years'",
            "day fresh",
        ),
        ("SELECT sum(b) FROM (SELECT bytes AS b, src_as AS a FROM flows) x WHERE a = 1", "day fresh"),
        (
            "WITH f AS (SELECT src_as AS bytes, bytes AS src_as FROM flows) SELECT bytes, sum(src_as) FROM f GROUP BY bytes",
            "day fresh",
        ),
        ("SELECT src_as, bytes FROM top_as_pairs ORDER BY 1, 2", "fresh hour"),
        ("SELECT * FROM top('flows', 'src_as', 'sum(bytes)', 2)", "day fresh"),
        ("SELECT * FROM top('flows', 'src_as', 'sum(bytes)', 2, '', '1 hour')", "day fresh hour"),
        (
            "SELECT a.src_as, a.n, b.n FROM (SELECT src_as, count(*) n FROM flows GROUP BY 1) a \
          JOIN (SELECT src_as, sum(packets) n FROM flows GROUP BY 1) b ON a.src_as = b.src_as",
            "day fresh hour",
        ),
    ] {
        let used: Vec<String> = parts(&world, sql).into_iter().collect();
        assert_eq!(used.join(" "), expected, "{sql}");
        assert_eq!(sorted(&world.engine, sql), sorted(&rows, sql), "{sql}");
    }
}

#[test]
fn what_a_rollup_does_not_know_rows_answer() {
    let world = three_days();
    let rows = of_rows(&world);
    for sql in [
        "SELECT src_name, sum(bytes) FROM flows GROUP BY 1",
        "SELECT src_as, sum(bytes) FROM flows WHERE src_name = 'a' GROUP BY 1",
        "SELECT max(bytes) FROM flows",
        "SELECT avg(bytes) FROM flows",
        "SELECT sum(DISTINCT bytes) FROM flows",
        "SELECT sum(bytes + 1) FROM flows",
        "SELECT sum(load) FROM flows",
        "SELECT sum(src_as) FROM flows",
        "SELECT count(bytes) FROM flows",
        "SELECT count(NULL) FROM flows",
        "SELECT date_bin(INTERVAL '15 minutes', time) t, count(*) FROM flows GROUP BY t",
        "SELECT date_bin(INTERVAL '1 hour', time, TIMESTAMP '2026-01-01T00:05:00') t, count(*) FROM flows GROUP BY t",
        "SELECT date_trunc('minute', time) t, count(*) FROM flows GROUP BY t",
        "SELECT time, count(*) FROM flows GROUP BY time",
        "SELECT sum(bytes) FROM flows WHERE time >= '2026-01-06T00:00:00' OR src_as = 1",
        "SELECT sum(bytes) FROM flows WHERE date_part('minute', time) = 7",
        "SELECT sum(bytes) FILTER (WHERE src_name = 'a') FROM flows",
        "SELECT sum(bytes) FROM (SELECT bytes FROM flows ORDER BY time LIMIT 10)",
        "SELECT src_as, dst_as, count(*) FROM flows GROUP BY ROLLUP (src_as, dst_as)",
        "SELECT sum(bytes) FROM flows WHERE time >= '2026-01-05T00:01:00' AND time < '2026-01-05T00:09:00'",
        "SELECT sum(a.bytes) FROM flows a JOIN flows b ON a.time = b.time",
    ] {
        let used: Vec<String> = parts(&world, sql).into_iter().collect();
        assert!(!used.iter().any(|part| SPECS.iter().any(|spec| spec.0 == part)), "{sql}: {used:?}");
        assert_eq!(sorted(&world.engine, sql), sorted(&rows, sql), "{sql}");
    }
}

#[test]
fn rows_that_are_gone_are_still_in_their_rollups() {
    let gone: Vec<Flow> = (0..24 * 6).map(|n| flow(START - DAY + n * 10 * MINUTE + SECOND)).collect();
    let kept: Vec<Flow> = (0..24 * 6).map(|n| flow(START + n * 10 * MINUTE + SECOND)).collect();
    let world = tables(&gone, &[&kept], &[]);
    assert_eq!(world.rows("SELECT count(*) FROM flows"), ["288"]);
    // Both ends lie in intervals of the finest that there is, which stand at their start.
    let within = "time >= '2026-01-04T10:05:00' AND time < '2026-01-04T12:05:00'";
    assert_eq!(world.rows(&format!("SELECT count(*) FROM flows WHERE {within}")), ["12"]);
    assert_eq!(world.rows(&format!("SELECT count(*) FROM flows__ten_minutes WHERE {within}")).len(), 1);
    assert_eq!(world.rows("SELECT count(*) FROM flows WHERE src_name IS NOT NULL"), ["144"]);
}

#[test]
fn a_rollup_that_forgot_leaves_older_rows_to_finer_ones() {
    let world = three_days();
    let rows = of_rows(&world);
    let mut made = world.fake.tables.lock().unwrap()[&fake::name("net", "flows")].rollups.clone();
    // The day forgot the first day, the hour the first two.
    made[2].spec.retention = Some(2 * DAY);
    made[2].files.remove(0);
    made[1].spec.retention = Some(DAY);
    made[1].files.drain(..2);
    world.rollups("net", "flows", made);
    let sql = "SELECT src_as, sum(bytes), count(*) FROM flows GROUP BY 1";
    let used: Vec<String> = parts(&world, sql).into_iter().collect();
    assert_eq!(used.join(" "), "day fresh ten_minutes");
    assert_eq!(sorted(&world.engine, sql), sorted(&rows, sql));
    let sql = "SELECT dst_as, sum(bytes), count(*) FROM flows GROUP BY 1";
    let used: Vec<String> = parts(&world, sql).into_iter().collect();
    assert_eq!(used.join(" "), "fresh hour ten_minutes");
    assert_eq!(sorted(&world.engine, sql), sorted(&rows, sql));
}

#[test]
fn a_rollup_of_other_columns_is_not_taken_for_one() {
    let world = three_days();
    let good = world.fake.tables.lock().unwrap()[&fake::name("net", "flows")].clone();
    let sql = "SELECT src_as, sum(bytes) FROM flows GROUP BY 1";
    let spoil: [fn(&mut Snapshot); 4] = [
        // Its column is of another type.
        |table| table.rollups[2].schema = fake::schema(),
        |table| table.rollups[2].spec.every = 0,
        |table| table.rollups[2].spec.sum.clear(),
        |table| table.rollups[2].spec.by.clear(),
    ];
    for spoil in spoil {
        let mut table = good.clone();
        spoil(&mut table);
        world.put(table);
        let used: Vec<String> = parts(&world, sql).into_iter().collect();
        assert_eq!(used.join(" "), "fresh hour");
    }
}

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
            prop_assert_eq!(sorted(&world.engine, sql), sorted(&without, sql), "{}", sql);
        }
    }
}
