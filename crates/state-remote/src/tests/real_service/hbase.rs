//! State in a real HBase, through its gateway.

use serde_json::json;

use super::proxy::Proxy;
use super::*;
use crate::{Kind, Settings};

/// `host:port` of the gateway.
fn server() -> String {
    told("THALWEG_HBASE")
}

/// A server that has just started is slow.
fn settings() -> Settings {
    let settings = Settings::new(Kind::Hbase, &format!("http://{}", server())).unwrap();
    Settings { timeout: std::time::Duration::from_secs(60), ..settings }
}

fn request(method: reqwest::Method, path: &str, body: &str) -> (u16, String) {
    let http = reqwest::blocking::Client::builder().no_proxy().build().unwrap();
    let request = http.request(method, format!("http://{}/{path}", server()));
    let request = request.header("Accept", "application/json").header("Content-Type", "application/json");
    let answer = request.body(body.to_owned()).send().unwrap();
    (answer.status().as_u16(), answer.text().unwrap())
}

/// A table of this run's own.
fn table(name: &str) -> String {
    format!("{name}_{}", std::process::id())
}

#[test]
#[ignore = "needs HBase"]
fn a_store_is_a_map() {
    is_a_map(&settings(), 20);
}

#[test]
#[ignore = "needs HBase"]
fn cycles_larger_than_a_request_are_whole() {
    super::cycles_larger_than_a_request_are_whole(&settings(), 1_200);
}

#[test]
#[ignore = "needs HBase"]
fn state_of_a_lost_folder_is_refused_until_it_may_go() {
    super::state_of_a_lost_folder_is_refused_until_it_may_go(&settings());
}

#[test]
#[ignore = "needs HBase"]
fn an_outage_is_waited_for() {
    super::an_outage_is_waited_for(settings(), &Proxy::start(&server()));
}

#[test]
#[ignore = "needs HBase"]
fn a_start_fails_at_once_and_an_end_ends_the_wait() {
    super::a_start_fails_at_once_and_an_end_ends_the_wait(settings(), &Proxy::start(&server()));
}

#[test]
#[ignore = "needs HBase"]
fn a_table_is_made_and_one_that_would_lose_state_is_refused() {
    let mut settings = settings();
    settings.table = table("made_here");
    commit(ground(&settings).open(None).unwrap().as_ref(), 1, &changes(1, 5));
    let (status, schema) = request(reqwest::Method::GET, &format!("{}/schema", settings.table), "");
    assert_eq!(status, 200);
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let family = &schema["ColumnSchema"][0];
    assert_eq!(
        (&family["name"], &family["VERSIONS"], &family["BLOOMFILTER"]),
        (&json!("s"), &json!("1"), &json!("ROW"))
    );
    for (table, family, said) in [
        ("other_family", json!({ "name": "cf" }), "expected a column family \"s\", got cf"),
        ("mortal", json!({ "name": "s", "TTL": "86400" }), "expected cells to stay for ever, got TTL 86400"),
    ] {
        let table = self::table(table);
        let schema = json!({ "name": table, "ColumnSchema": [family] });
        assert_eq!(request(reqwest::Method::POST, &format!("{table}/schema"), &schema.to_string()).0, 201);
        settings.table = table;
        let error = refusal(&settings);
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
#[ignore = "needs HBase"]
fn a_late_request_does_not_bring_an_older_value_back() {
    let ground = ground(&settings());
    let backend = ground.open(None).unwrap();
    commit(backend.as_ref(), 1, &changes(1, 10));
    commit(backend.as_ref(), 7, &changes(7, 10));
    let number = crate::space::read(&ground.place).unwrap().unwrap();
    let space =
        crate::store::Space { task: ground.task.as_str().into(), identity: ground.place.identity, number };
    let late = ground.remote.server.space(space);
    let (older, gone) = (crate::pack::stored(&key(4), b"older"), key(6));
    assert!(late.apply(b"", 3, &[(&key(4), Some(older)), (&gone, None)]).unwrap());
    let mut state = State::new();
    for cycle in [1, 7] {
        apply(&mut state, &changes(cycle, 10));
    }
    assert_values(backend.as_ref(), &state, &keys(10));
}

#[test]
#[ignore = "needs HBase"]
fn a_start_without_a_version_leaves_no_rows_behind() {
    let mut settings = settings();
    settings.table = table("tidied");
    let ground = ground(&settings);
    commit(ground.open(None).unwrap().as_ref(), 1, &changes(1, 50));
    let rows = || {
        let (status, said) = request(reqwest::Method::GET, &format!("{}/*", settings.table), "");
        if status == 404 {
            return 0;
        }
        let set: serde_json::Value = serde_json::from_str(&said).unwrap();
        set["Row"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(rows(), 42, "claim, head and values");
    ground.open(None).unwrap();
    assert_eq!(rows(), 2, "the claim, and the head of the new space");
}
