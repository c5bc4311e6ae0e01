//! Which rollup answers, and which may not.

use std::collections::BTreeSet;

use thalweg_sql::Format;
use thalweg_table::Snapshot;

use super::{SPECS, of_rows, sorted, tables};
use crate::fake::{self, DAY, Flow, HOUR, MINUTE, SECOND, START, World};

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
fn before_the_first_row_nothing_is_counted() {
    let world = tables(&[], &[&[flow(START + 19 * MINUTE)]], &[]);
    for (condition, count) in [
        ("time < '2026-01-05T00:15:00'", "0"),
        ("time = '2026-01-05T00:10:00'", "0"),
        ("time < '2026-01-05T00:19:00'", "0"),
        ("time < '2026-01-05T00:20:00'", "1"),
    ] {
        assert_eq!(
            world.rows(&format!("SELECT count(*) FROM flows WHERE {condition}")),
            [count],
            "{condition}"
        );
    }
}

#[test]
fn rows_that_are_gone_are_still_in_their_rollups() {
    let gone: Vec<Flow> = (0..24 * 6).map(|n| flow(START - DAY + n * 10 * MINUTE + SECOND)).collect();
    let kept: Vec<Flow> = (0..24 * 6).map(|n| flow(START + n * 10 * MINUTE + SECOND)).collect();
    let world = tables(&gone, &[&kept], &[]);
    assert_eq!(world.rows("SELECT count(*) FROM flows"), ["288"]);
    // Both ends are in intervals of the finest that there is, which are at their start.
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
    let last = made[2].files.remove(0).last;
    made[2].complete_from = Some(last + 1);
    let last = made[1].files.drain(..2).map(|file| file.last).max();
    made[1].complete_from = last.map(|last| last + 1);
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
