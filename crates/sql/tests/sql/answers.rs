//! What tables answer: names, snapshots, files and fresh rows together.

use std::fs;
use std::sync::atomic::Ordering;

use thalweg_sql::{Format, Limits};
use thalweg_types::Class;

use crate::fake::{DAY, Flow, HOUR, START, World, name, world};

fn flow(time: i64, bytes: u64) -> Flow {
    Flow { time, bytes: Some(bytes), packets: Some(1), src_as: Some(bytes % 3), ..Flow::default() }
}

fn two_days() -> World {
    let world = world(Limits::default());
    let first: Vec<Flow> = (0..24).map(|hour| flow(START + hour * HOUR, hour as u64)).collect();
    let second: Vec<Flow> = (24..48).map(|hour| flow(START + hour * HOUR, hour as u64)).collect();
    world.add("net", "flows", &[&first, &second], &[flow(START + 2 * DAY, 1_000)]);
    world
}

#[test]
fn files_and_fresh_rows_are_one_table() {
    let world = two_days();
    assert_eq!(
        world.rows("SELECT count(*), sum(bytes), max(time) FROM flows"),
        ["49,2128,2026-01-07T00:00:00Z"]
    );
    assert_eq!(world.rows("SELECT count(*) FROM net.flows WHERE bytes >= 47"), ["2"]);
    assert_eq!(
        world.rows("SELECT src_as, count(*) FROM flows GROUP BY 1 ORDER BY 1"),
        ["0,16", "1,17", "2,16"]
    );
    assert_eq!(world.rows("SELECT bytes FROM flows ORDER BY time LIMIT 2"), ["0", "1"]);
    assert_eq!(world.rows("SELECT bytes FROM flows LIMIT 3").len(), 3);
}

/// Their row groups are read by different threads.
#[test]
fn rows_of_large_files_count_once() {
    let world = world(Limits { threads: 3, ..Limits::default() });
    let rows = |of: std::ops::Range<u64>| of.map(|at| flow(START + at as i64, at)).collect::<Vec<_>>();
    world.add("net", "flows", &[&rows(0..300_000), &rows(300_000..310_000)], &rows(310_000..310_005));
    let sum = |of: std::ops::Range<u64>| of.sum::<u64>();
    let all = format!("310005,{}", sum(0..310_005));
    assert_eq!(world.rows("SELECT count(bytes), sum(bytes) FROM flows"), [all]);
    let (first, last) = (130_000, 132_000);
    let bounds = format!("time >= '2026-01-05T00:00:00.130' AND bytes < {last}");
    let part = format!("2000,{}", sum(first..last));
    assert_eq!(world.rows(&format!("SELECT count(bytes), sum(bytes) FROM flows WHERE {bounds}")), [part]);
    assert_eq!(
        world.rows("SELECT src_as, count(*) FROM flows GROUP BY 1 ORDER BY 1"),
        ["0,103335", "1,103335", "2,103335"]
    );
}

#[test]
fn rows_are_counted_without_a_file_being_opened() {
    let world = two_days();
    for file in &world.fake.tables.lock().unwrap()[&name("net", "flows")].files {
        fs::write(&file.path, "no Parquet").unwrap();
    }
    assert_eq!(world.rows("SELECT count(*) FROM flows"), ["49"]);
    let error = world.error("SELECT sum(bytes) FROM flows");
    assert_eq!(error.class(), Class::Corrupt, "{error}");
}

#[test]
fn files_outside_of_the_bounds_are_not_opened() {
    let world = two_days();
    let first = world.fake.tables.lock().unwrap()[&name("net", "flows")].files[0].path.clone();
    fs::write(first, "no Parquet").unwrap();
    for (bounds, rows) in [
        ("time >= '2026-01-06T00:00:00'", "25"),
        ("time >= TIMESTAMP '2026-01-06T00:00:00Z'", "25"),
        ("time > '2026-01-05T23:00:00' AND bytes > 30", "18"),
        ("time BETWEEN '2026-01-06T00:00:00' AND '2026-01-06T01:00:00'", "2"),
        ("'2026-01-06T12:00:00' <= time", "13"),
        ("time = '2026-01-06T12:00:00'", "1"),
        ("time = '2026-01-06T12:00:00' OR time > '2026-01-06T20:00:00'", "5"),
        ("time > now() + interval '100 years'", "0"),
        ("time >= DATE '2026-01-06'", "25"),
    ] {
        assert_eq!(world.rows(&format!("SELECT count(*) FROM flows WHERE {bounds}")), [rows], "{bounds}");
    }
    for bounds in ["time >= '2026-01-05T23:00:00'", "time <= '2026-01-05T00:00:00'", "bytes = 1"] {
        let error = world.error(&format!("SELECT count(*) FROM flows WHERE {bounds}"));
        assert_eq!(error.class(), Class::Corrupt, "{bounds}");
    }
}

#[test]
fn a_name_is_looked_for_in_all_jobs() {
    let world = two_days();
    world.add("lab", "flows", &[], &[flow(START, 7)]);
    world.add("lab-2", "Odd Name", &[], &[flow(START, 8)]);
    assert_eq!(world.rows("SELECT bytes FROM lab.flows"), ["7"]);
    assert_eq!(world.rows(r#"SELECT bytes FROM "Odd Name""#), ["8"]);
    assert_eq!(world.rows(r#"SELECT o.bytes FROM "lab-2"."Odd Name" o"#), ["8"]);
    let error = world.error("SELECT * FROM flows");
    assert_eq!(error.class(), Class::User);
    assert_eq!(error.hint(), Some("name the job: lab.flows, net.flows"));
    assert_eq!(world.rows("WITH flows AS (SELECT 5 AS x) SELECT x FROM flows"), ["5"]);
}

#[test]
fn a_name_that_is_not_there_is_told_with_those_that_are() {
    let world = two_days();
    for (sql, message, hint) in [
        ("SELECT * FROM flow", "no table flow", "did you mean net.flows?"),
        ("SELECT * FROM nett.flows", "no table nett.flows", "did you mean net.flows?"),
        ("SELECT * FROM xyz", "no table xyz", "there are net.flows"),
        ("SELECT byts FROM flows", r#"no column "byts" at line 1, column 8"#, r#"did you mean "bytes"?"#),
    ] {
        let error = world.error(sql);
        assert_eq!(error.class(), Class::User, "{sql}");
        assert_eq!(error.message(), message, "{sql}");
        assert!(error.hint().is_some_and(|text| text.starts_with(hint)), "{sql}: {:?}", error.hint());
    }
    let error = world.error("SELECT bytes FROM flows a, flows b");
    assert_eq!(error.message(), "ambiguous reference to unqualified field bytes at line 1, column 8");
    let empty = crate::fake::world(Limits::default());
    assert!(empty.error("SELECT * FROM flows").hint().is_some_and(|hint| hint.contains("no tables")));
}

#[test]
fn wrong_statements_are_errors_of_the_user() {
    let world = two_days();
    for sql in [
        "SELEC",
        "INSERT INTO flows SELECT * FROM flows",
        "CREATE TABLE x AS SELECT 1",
        "COPY flows TO '/tmp/x.parquet'",
        "SET a = 1",
        "SELECT nofunction(1)",
        "SELECT sum(src_name) FROM flows",
        "SELECT 1 / 0",
        "SELECT CAST('x' AS INT)",
        "SELECT * FROM flows WHERE bytes",
        "SELECT * FROM flows WHERE time > 'yesterday'",
        "SELECT * FROM '/etc/passwd'",
    ] {
        let error = world.error(sql);
        assert_eq!(error.class(), Class::User, "{sql}: {}", error.chain());
        assert!(!error.message().is_empty() && !error.message().contains('\n'), "{sql}: {error}");
    }
}

#[test]
fn tables_and_columns_are_listed() {
    let world = two_days();
    world.add("lab", "samples", &[], &[]);
    let shown = world.in_format("SHOW TABLES", Format::Csv);
    assert!(shown.contains("thalweg,lab,samples,BASE TABLE"), "{shown}");
    assert!(shown.contains("thalweg,net,flows,BASE TABLE"), "{shown}");
    assert!(!shown.contains("public"), "{shown}");
    assert!(world.in_format("SHOW COLUMNS FROM flows", Format::Csv).contains("src_as,UInt64"));
    assert!(world.in_format("DESCRIBE flows", Format::Csv).contains("src_name,Utf8View,YES"));
    assert!(world.in_format("EXPLAIN SELECT count(*) FROM flows", Format::Table).contains("logical_plan"));
    for sql in [
        "SHOW FUNCTIONS",
        "SELECT * FROM information_schema.columns",
        "VALUES (1), (2)",
        "EXPLAIN ANALYZE SELECT * FROM flows ORDER BY bytes",
        "EXPLAIN VERBOSE SELECT sum(bytes) FROM flows",
        "SELECT x FROM generate_series(1, 3) a(x)",
    ] {
        assert!(!world.rows(sql).is_empty(), "{sql}");
    }
    assert_eq!(world.rows("SELECT * FROM lab.samples"), Vec::<String>::new());
    assert_eq!(world.rows("SELECT sum(bytes), count(*) FROM lab.samples"), [",0"]);
}

#[test]
fn a_query_sees_one_snapshot_of_a_table() {
    let world = two_days();
    let before = world.fake.taken.load(Ordering::SeqCst);
    let sql = "SELECT (SELECT count(*) FROM flows) + (SELECT count(*) FROM net.flows a JOIN flows b ON a.time = b.time)";
    assert_eq!(world.rows(sql), ["98"]);
    assert_eq!(world.fake.taken.load(Ordering::SeqCst) - before, 1);
}

#[test]
fn a_query_begins_again_when_a_file_vanishes() {
    let world = two_days();
    let merged = world.fake.tables.lock().unwrap().clone();
    let path = world.folder.path().join("merged.parquet");
    let mut later = merged.clone();
    let snapshot = later.get_mut(&name("net", "flows")).unwrap();
    let rows: Vec<Flow> = (0..48).map(|hour| flow(START + hour * HOUR, hour as u64)).collect();
    snapshot.files = vec![crate::fake::file(&path, &crate::fake::batch(&rows))];
    for file in &merged[&name("net", "flows")].files {
        fs::remove_file(&file.path).unwrap();
    }
    // The first snapshot still names the files that are gone.
    let taken = world.fake.taken.load(Ordering::SeqCst);
    world.fake.later.lock().unwrap().push((taken + 1, later));
    assert_eq!(world.rows("SELECT sum(bytes) FROM flows"), ["2128"]);

    fs::remove_file(path).unwrap();
    let error = world.error("SELECT sum(bytes) FROM flows");
    assert_eq!(error.class(), Class::Corrupt, "{}", error.chain());
    assert!(error.message().contains("merged.parquet\", and there is no such file"), "{error}");
}

#[test]
fn rollups_are_tables_too() {
    let world = two_days();
    let spec = thalweg_table::RollupSpec {
        name: "day".to_owned(),
        every: DAY,
        by: vec![],
        sum: vec!["bytes".to_owned()],
        retention: None,
    };
    let schema = crate::fake::schema();
    world.rollups(
        "net",
        "flows",
        vec![thalweg_table::Rollup { spec, schema, files: vec![], complete_from: None }],
    );
    assert_eq!(world.rows("SELECT count(*) FROM flows__day"), ["0"]);
    assert!(world.in_format("SHOW TABLES", Format::Csv).contains("net,flows__day"));
    assert!(
        world.error("SELECT * FROM flows__hour").hint().is_some_and(|hint| hint.starts_with("did you mean"))
    );
}
