//! `/v1/jobs` and `/v1/jobs/{job}`

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Site;

const FILE: &str = "version: 1\nname: readings\nsources: {}\n";

#[test]
fn a_job_shows_its_live_graph() {
    let site = Site::new();
    let job = site.get("/v1/jobs/payments").json();
    assert_eq!(job["name"], "payments");
    assert_eq!(job["state"], "running");
    assert_eq!(job["last_cycle"], 9);
    assert_eq!(job["commits"]["cycle"], 8);
    assert_eq!(job["commits"]["seconds"], 0.012);
    let source = &job["sources"][0];
    assert_eq!(source["door"], "/v1/jobs/payments/sources/payments");
    assert_eq!(source["lag_seconds"], 1.5);
    let operator = &job["operators"][0];
    assert_eq!((operator["records_in"].as_u64(), operator["records_out"].as_u64()), (Some(1_000), Some(980)));
    assert_eq!(operator["queued_bytes"], 128);
    assert_eq!(operator["state_bytes"], 8_192);
    let cache = json!({ "keys": 80, "stored": 400, "key_bytes": 6_000, "hits": 1_800, "misses": 60, "filled": 40, "evictions": 20 });
    assert_eq!(operator["cache"], cache);
    assert_eq!(operator["blocked"], true);
    assert_eq!(operator["lag_seconds"], 2.5);
    assert_eq!(operator["task_time"], "2023-11-14T22:13:20Z");
    // To the end of the bucket that each is in.
    let latency = json!({ "p50_seconds": 0.00032, "p99_seconds": 0.002048, "max_seconds": 0.009216 });
    assert_eq!(operator["latency"], latency);
    let markers = json!({ "p50_seconds": 0.000072, "p99_seconds": 0.000072, "max_seconds": 0.000072 });
    assert_eq!(operator["markers"], markers);
    let marker_cpu = json!({ "p50_seconds": 0.000052, "p99_seconds": 0.000052, "max_seconds": 0.000052 });
    assert_eq!(operator["marker_cpu"], marker_cpu);
    let lost = json!({ "received": 100, "dropped": 7, "dropped_records": 70, "refused": 3 });
    let mut sender = lost.clone();
    sender["address"] = json!("10.0.0.7");
    let mut datagrams = lost;
    datagrams["kernel_drops"] = json!(11);
    datagrams["senders"] = json!(2);
    datagrams["worst_senders"] = json!([sender]);
    let counts =
        json!({ "received": 90, "samples": 800, "lost": 6, "malformed": 5, "unknown": 4, "netflow": 2 });
    let mut agent = counts.clone();
    agent["address"] = json!("10.0.0.8");
    let mut agents = counts;
    agents["count"] = json!(1);
    agents["missing"] = json!(5);
    agents["worst"] = json!([agent]);
    datagrams["agents"] = agents;
    datagrams["left_out"] = json!({ "cut": 2 });
    assert_eq!(source["datagrams"], datagrams);
    let table =
        json!({ "lookups": 1_400, "misses": 120, "age_seconds": 50, "reloads": 4, "failed_reloads": 3 });
    assert_eq!(operator["table"], table);
    assert_eq!(operator["judged"], json!({ "late": 12, "duplicates": 14 }));
    assert_eq!(operator["tasks"].as_array().unwrap().len(), 2);
    assert_eq!(job["links"][0]["partitioning"], "key(card)");

    let jobs = site.get("/v1/jobs").json();
    assert_eq!(jobs["jobs"][0]["name"], "payments");
    site.get("/v1/jobs/pay").expect_error(404, "not_found");
}

#[test]
fn rates_are_of_the_last_second() {
    let site = Site::new();
    // Before there is anything to compare with: since the start.
    let first = site.get("/v1/jobs/payments").json();
    assert_eq!(first["records_per_second"], 100.0);
    assert_eq!(first["operators"][0]["busy_share"], 0.25);

    // The server looks once a second. Once it has something to compare with, nothing has come since.
    let until = Instant::now() + Duration::from_secs(20);
    while site.get("/v1/jobs/payments").json()["records_per_second"] != 0.0 {
        assert!(Instant::now() < until, "rates stay those since the start");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(site.get("/v1/jobs/payments").json()["operators"][0]["latency"], json!(null));
    site.node.set_snapshot(|job| {
        job.operators[0].latency.add(Duration::from_secs(1), 1);
        job.records += 10_000;
        job.operators[0].tasks[0].busy += Duration::from_secs(60);
    });
    let job = site.get("/v1/jobs/payments").json();
    let rate = job["records_per_second"].as_f64().unwrap();
    assert!((1_000.0..=25_000.0).contains(&rate), "{rate} records a second");
    assert_eq!(job["operators"][0]["tasks"][0]["busy_share"], 1.0, "never above 1");
    assert_eq!(job["operators"][0]["tasks"][1]["busy_share"], 0.0);
    let median = job["operators"][0]["latency"]["p50_seconds"].as_f64().unwrap();
    assert!((1.0..1.13).contains(&median), "{median}: earlier ones count no more");

    // A job that was started again has nothing to do with its last run.
    site.node.set_snapshot(|job| {
        job.records = 50;
        job.uptime = Duration::from_secs(1);
    });
    assert_eq!(site.get("/v1/jobs/payments").json()["records_per_second"], 50.0);
}

#[test]
fn a_job_starts_and_stops() {
    let site = Site::new();
    let reply = site.post_as("/v1/jobs/readings", "application/yaml", FILE);
    assert_eq!(reply.status, 201);
    assert_eq!(reply.header("location"), Some("/v1/jobs/readings"));
    assert_eq!(reply.json()["name"], "readings");
    site.post("/v1/jobs/readings", FILE).expect_error(409, "already_exists");

    let reply = site.delete("/v1/jobs/readings");
    assert_eq!(reply.status, 200);
    let summary = json!({
        "job": "readings", "state": "done", "records": 1000, "answers": 990, "rejects": 10,
        "seconds": 4.0, "rate": 250.0,
    });
    assert_eq!(reply.json(), summary);
    site.delete("/v1/jobs/readings").expect_error(404, "not_found");
}

#[test]
fn a_job_may_be_stopped_at_once() {
    let site = Site::new();
    for wrong in ["?drain=no", "?drain", "?dran=false", "?drain=false&drain=true"] {
        site.delete(&format!("/v1/jobs/payments{wrong}")).expect_error(400, "invalid_request");
    }
    assert_eq!(site.delete("/v1/jobs/payments?drain=false").json()["state"], "aborted");
    assert_eq!(site.post("/v1/jobs/readings", FILE).status, 201);
    assert_eq!(site.delete("/v1/jobs/readings?drain=true").json()["state"], "done");
}

#[test]
fn a_job_file_may_be_json() {
    let site = Site::new();
    let file = json!({"name": "readings", "sources": {}}).to_string();
    assert_eq!(site.post_as("/v1/jobs/readings", "application/json", &file).status, 201);
    assert_eq!(site.post("/v1/jobs/others", &file).status, 201);
}

#[test]
fn all_mistakes_of_a_job_file_are_told() {
    let site = Site::new();
    let file = "name: readings\nsources:\n  a: { tpye: file }\n";
    let error = site.post("/v1/jobs/readings", file).expect_error(400, "invalid_job_file");
    assert_eq!(
        error["message"],
        "2 mistakes in the job file: no key \"tpye\" (line 3, column 8); no sinks (line 1, column 1)"
    );
    let mistakes = error["detail"].as_array().unwrap();
    assert_eq!(mistakes.len(), 2);
    assert_eq!((mistakes[0]["line"].as_u64(), mistakes[0]["column"].as_u64()), (Some(3), Some(8)));
    assert_eq!(mistakes[0]["hint"], "did you mean \"type\"?");
    site.post("/v1/jobs/readings", "").expect_error(400, "invalid_request");
    site.call("POST", "/v1/jobs/readings", "", b"name: \xff").expect_error(400, "invalid_request");
}

#[test]
fn what_fails_outside_can_be_tried_again() {
    let reply = Site::new().post("/v1/jobs/readings", "port: 80");
    let error = reply.expect_error(503, "unavailable");
    assert_eq!(error["retry"], "with_backoff");
    assert!(reply.header("retry-after").is_some());
}
