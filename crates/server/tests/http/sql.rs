//! `POST /v1/sql`

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::{
    ArrayRef, FixedSizeBinaryArray, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray,
};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use serde_json::json;
use thalweg_sql::{Engine, Limits};
use thalweg_table::{Catalog, Snapshot, TableName};
use thalweg_types::Error;

use crate::client::Site;

const PATH: &str = "/v1/sql";
const SQL: &str = "SELECT time, bytes FROM flows ORDER BY bytes";
/// Fails after some thousand rows.
const FAILS_LATE: &str = "SELECT 1 / (400000 - value) AS x FROM generate_series(1, 1000000)";
const ENDLESS: &str =
    "SELECT count(x + y) FROM generate_series(1, 1000000) a(x), generate_series(1, 1000000) b(y)";

const ROWS: &str = "SELECT x FROM generate_series(1, 1000000) a(x), generate_series(1, 1000000) b(y)";

/// A table of two rows; and one of a hundred, which are a part of 20,000.
struct Tables;

impl Catalog for Tables {
    fn tables(&self) -> Result<Vec<TableName>, Error> {
        let name = |table: &str| TableName { job: "net".to_owned(), table: table.to_owned() };
        Ok(vec![name("flows"), name("names")])
    }

    fn snapshot(&self, name: &TableName) -> Result<Option<Snapshot>, Error> {
        if name.table == "names" {
            return Ok(Some(snapshot(name, names())));
        }
        let schema = Arc::new(Schema::new(vec![
            Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, None), false),
            Field::new("bytes", DataType::Int64, true),
        ]));
        let times = TimestampMicrosecondArray::from(vec![1_700_000_000_000_000, 1_700_000_000_500_000]);
        let bytes = Int64Array::from(vec![Some(7), None]);
        let rows = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(times), Arc::new(bytes)]);
        Ok(Some(snapshot(name, rows.expect("two columns"))))
    }
}

fn snapshot(name: &TableName, rows: RecordBatch) -> Snapshot {
    Snapshot {
        name: name.clone(),
        schema: rows.schema(),
        time: 0,
        files: vec![],
        complete_from: None,
        fresh: vec![rows],
        rollups: vec![],
        elsewhere: vec![],
    }
}

fn names() -> RecordBatch {
    let address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_700_000_000_000_000; 20_000]));
    let addresses: ArrayRef = Arc::new(
        FixedSizeBinaryArray::try_from_iter(std::iter::repeat_n(address, 20_000)).expect("addresses"),
    );
    let names: ArrayRef =
        Arc::new(StringViewArray::from_iter_values((0..20_000).map(|n| format!("a-long-name-{n:028}"))));
    let rows = RecordBatch::try_from_iter([("time", times), ("addr", addresses), ("name", names)]);
    rows.expect("three columns").slice(1_000, 100)
}

fn site(limits: Limits) -> Site {
    let engine = Engine::new(Arc::new(Tables), limits).expect("an engine");
    Site::with(|options| options.sql = Some(Arc::new(engine.into())))
}

#[test]
fn rows_come_in_the_format_that_is_asked_for() {
    let site = site(Limits::default());
    let reply = site.post(PATH, SQL);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(
        reply.json(),
        json!([
            {"time": "2023-11-14T22:13:20Z", "bytes": 7},
            {"time": "2023-11-14T22:13:20.5Z", "bytes": null},
        ])
    );
    let csv = "time,bytes\n2023-11-14T22:13:20Z,7\n2023-11-14T22:13:20.5Z,\n";
    for (accept, query, content_type, begin) in [
        ("text/csv", "", "text/csv; charset=utf-8", csv),
        ("application/json", "?format=csv", "text/csv; charset=utf-8", csv),
        (
            "application/x-ndjson",
            "",
            "application/x-ndjson",
            "{\"time\":\"2023-11-14T22:13:20Z\",\"bytes\":7}\n{",
        ),
        ("text/plain", "", "text/plain; charset=utf-8", "time                    bytes\n---"),
        (
            "application/vnd.apache.arrow.stream",
            "",
            "application/vnd.apache.arrow.stream",
            "\u{fffd}\u{fffd}",
        ),
        ("*/*", "?format=json", "application/json", "[\n{"),
    ] {
        let reply =
            site.call("POST", &format!("{PATH}{query}"), &format!("Accept: {accept}\r\n"), SQL.as_bytes());
        assert_eq!((reply.status, reply.header("content-type")), (200, Some(content_type)));
        assert!(reply.is_whole && reply.body.starts_with(begin), "{reply:?}");
    }
    assert_eq!(site.post(PATH, "SELECT 1 WHERE false").json(), json!([]));
}

#[test]
fn arrow_has_only_its_rows_and_is_as_asked_for() {
    const NAMES: &str = "SELECT addr, name FROM names";
    let site = site(Limits::default());
    let batches = |bytes: Vec<u8>| -> Vec<RecordBatch> {
        StreamReader::try_new(Cursor::new(bytes), None).unwrap().map(Result::unwrap).collect()
    };
    let plain = site.post(&format!("{PATH}?format=arrow"), NAMES).bytes;
    // An address, a view and a name of 40 bytes.
    assert!(plain.len() < 100 * (16 + 16 + 40) + 2_048, "{} bytes", plain.len());
    let expected = names().project(&[1, 2]).unwrap();
    assert_eq!(batches(plain.clone())[0].columns(), expected.columns());

    let packed = site.post(&format!("{PATH}?format=arrow&compression=lz4&addresses=binary"), NAMES).bytes;
    assert!(packed.len() < plain.len() / 2, "{} bytes", packed.len());
    assert_eq!(batches(packed)[0].columns(), expected.columns());

    let accept = "Accept: application/vnd.apache.arrow.stream\r\n";
    let reply =
        site.call("POST", &format!("{PATH}?compression=none&addresses=text"), accept, NAMES.as_bytes());
    let texts = batches(reply.bytes).remove(0);
    assert_eq!(texts.column(0).as_string::<i32>().value(99), "10.1.2.3");
    assert_eq!(texts.column(1), expected.column(1));

    for query in [
        "format=arrow&compression=zip",
        "format=arrow&compression",
        "format=arrow&addresses=TEXT",
        "format=csv&compression=lz4",
        "format=json&addresses=text",
        "addresses=binary",
    ] {
        site.post(&format!("{PATH}?{query}"), NAMES).expect_error(400, "invalid_request");
    }
}

#[test]
fn a_statement_may_come_as_json() {
    let site = site(Limits::default());
    let body = json!({ "sql": "SELECT 1 AS one" }).to_string();
    for kind in ["application/json", "application/x-www-form-urlencoded", "text/plain"] {
        assert_eq!(site.post_as(PATH, kind, &body).json(), json!([{"one": 1}]));
    }
    for body in ["{\"query\":\"x\"}", "\"x\"", "{"] {
        site.post_as(PATH, "application/json", body).expect_error(400, "invalid_request");
    }
    site.post_as(PATH, "image/png", "SELECT 1").expect_error(415, "unsupported_media_type");
}

#[test]
fn what_is_wrong_with_a_statement_is_told() {
    let site = site(Limits::default());
    for (sql, message) in [
        ("SELEC 1", "Line: 1, Column: 1"),
        ("SELECT * FROM flow", "no table flow"),
        ("DROP TABLE flows", "DROP is no statement that only reads"),
    ] {
        let error = site.post(PATH, sql).expect_error(400, "invalid_query");
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
        assert_eq!(error["retry"], "never");
    }
    let error = site.post(PATH, "SELECT byte FROM flows").expect_error(400, "invalid_query");
    assert_eq!(error["hint"], "did you mean \"bytes\"?");
    site.post(&format!("{PATH}?format=xml"), SQL).expect_error(400, "invalid_request");
    site.post(&format!("{PATH}?limit=1"), SQL).expect_error(400, "invalid_request");
}

#[test]
fn an_answer_that_fails_late_is_cut() {
    let site = site(Limits::default());
    let reply = site.post(&format!("{PATH}?format=csv"), FAILS_LATE);
    assert_eq!(reply.status, 200);
    assert!(reply.body.lines().count() > 1_000 && !reply.is_whole);
}

#[test]
fn limits_have_statuses_of_their_own() {
    let slow = site(Limits { time: Duration::from_millis(200), ..Limits::default() });
    let error = slow.post(PATH, ENDLESS).expect_error(504, "query_timeout");
    assert_eq!(error["retry"], "never");

    let busy = site(Limits { queries: 1, waiting: 0, ..Limits::default() });
    let mut first = busy.connect();
    first.send("POST", PATH, "", ROWS.as_bytes());
    assert_eq!(first.line().as_deref(), Some("HTTP/1.1 200 OK"));
    let reply = busy.post(PATH, "SELECT 1");
    reply.expect_error(429, "too_many_queries");
    assert!(reply.header("retry-after").is_some());
    // A client that goes away takes its query along.
    drop(first);
    while busy.post(PATH, "SELECT 1").status != 200 {}

    let small = site(Limits { memory: 1 << 16, ..Limits::default() });
    let sorted = "SELECT value FROM generate_series(1, 1000000) ORDER BY value DESC";
    small.post(PATH, sorted).expect_error(400, "invalid_query");
}

#[test]
fn a_node_without_tables_says_so() {
    let site = Site::new();
    let error = site.post(PATH, SQL).expect_error(404, "not_found");
    assert!(error["hint"].as_str().unwrap().contains("table"));
}
