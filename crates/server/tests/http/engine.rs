//! The server before a real node: job files in, records in, answers out.

use std::net::UdpSocket;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use thalweg_connect::{BuiltSource, OptionSpec, Options, Reach, SourceContext, SourcePlugin};
use thalweg_node::Node;
use thalweg_server::{NodeControl, Readiness, Server};
use thalweg_types::Error;

use crate::client::Site;
use crate::schema::check;

const FILE: &str = "\
name: payments
sources:
  payments:
    type: http
    schema: { ts: timestamp(ms), card: string, amount: float64 }
    time: ts
    max_ahead: 100000d
operators:
  features:
    type: metrics
    input: payments
    partition_by: card
    queries:
      card_1h: SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR
sinks:
  answers: { type: 'null', input: features }
";
const RECORDS: &str = "/v1/jobs/payments/sources/payments";
const QUERIES: &str = "/v1/jobs/payments/operators/features/queries";

fn site() -> Site {
    site_of(&Arc::new(Node::builder().workers(1).open().unwrap()))
}

fn site_of(node: &Arc<Node>) -> Site {
    site_with(NodeControl::new(Arc::clone(node)))
}

fn site_with(control: NodeControl) -> Site {
    control.set_readiness(Readiness::Ready);
    let server = Server::bind("127.0.0.1:0", Arc::new(control), crate::client::options()).unwrap();
    Site::of(server)
}

fn payment(ts: i64, card: &str, amount: f64) -> String {
    format!("{}\n", json!({ "ts": ts, "card": card, "amount": amount }))
}

#[test]
fn records_posted_to_a_job_are_answered_in_order() {
    let site = site();
    let started = site.post("/v1/jobs/payments", FILE);
    assert_eq!(started.status, 201, "{started:?}");
    check("Job", &started.json());
    assert_eq!(started.json()["sources"][0]["door"], RECORDS);
    assert_eq!(started.json()["links"][0]["partitioning"], "key(card)");

    let body = payment(1_000, "c1", 2.5) + "{\"ts\":\"soon\"}\n" + &payment(2_000, "c1", 4.0);
    let reply = site.post(RECORDS, &body);
    assert_eq!(reply.status, 200, "{reply:?}");
    let lines = reply.lines();
    assert_eq!(lines[0]["card_1h"], json!({"spent": 2.5, "n": 1}));
    check("ErrorLine", &lines[1]);
    assert_eq!(lines[2]["card_1h"], json!({"spent": 6.5, "n": 2}));

    let reply = site.post(RECORDS, "{\"ts\":\"soon\"}");
    assert_eq!(reply.status, 400, "{reply:?}");

    let present = site.get(&format!("{QUERIES}/card_1h?card=c1")).json();
    check("Present", &present);
    assert_eq!(present["key"], json!({"card": "c1"}));
    assert_eq!(present["values"], json!({"spent": 6.5, "n": 2}));
    site.get(&format!("{QUERIES}/card_1h?kard=c1")).expect_error(400, "invalid_request");

    let job = site.get("/v1/jobs/payments").json();
    check("Job", &job);
    assert_eq!(job["records"], 4);
    assert_eq!(job["answers"], 2);
    assert_eq!(job["rejects"], 2);
    let kinds: Vec<&Value> =
        job["operators"].as_array().unwrap().iter().map(|operator| &operator["type"]).collect();
    assert_eq!(kinds, ["metrics/part", "metrics", "null", "reply", "rejects"]);
    let metrics = site.get("/metrics").body;
    assert!(metrics.contains("thalweg_records_total{job=\"payments\",source=\"payments\"} 4\n"), "{metrics}");

    let summary = site.delete("/v1/jobs/payments").json();
    check("Summary", &summary);
    assert_eq!(summary["records"], 4);
    assert_eq!(summary["state"], "done");
    site.post(RECORDS, &body).expect_error(404, "not_found");
    assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201, "a stopped job may start again");
}

#[test]
fn a_job_is_replaced_and_goes_on_with_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let site = site_of(&Arc::new(Node::builder().workers(1).data_dir(folder.path()).open().unwrap()));
    let put = |file: &str| site.call("PUT", "/v1/jobs/payments", "", file.as_bytes());
    let first = put(FILE);
    assert_eq!(first.status, 201, "there was none: {first:?}");
    assert_eq!(site.post(RECORDS, &payment(1_000, "c1", 2.5)).status, 200);

    let more = "      most: SELECT max(amount) AS most FROM payments GROUP BY card OVER INFINITE\nsinks:";
    let replaced = put(&FILE.replace("sinks:", more));
    assert_eq!(replaced.status, 200, "{replaced:?}");
    check("Job", &replaced.json());
    let line = site.post(RECORDS, &payment(2_000, "c1", 1.5)).lines().remove(0);
    assert_eq!(line["card_1h"], json!({"spent": 4.0, "n": 2}), "it goes on");
    assert_eq!(line["most"]["most"], 1.5, "and the new one begins");

    // A file that would be refused stops nothing: mistakes, other names, and queries that do not fit the state.
    put(&FILE.replace("input: payments", "input: paymnts")).expect_error(400, "invalid_job_file");
    put(&FILE.replace("name: payments", "name: other")).expect_error(400, "invalid_request");
    put(&FILE.replace("time: ts", "")).expect_error(400, "invalid_request");
    // A file that cannot be opened is found out when the old one has ended; that runs again.
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let source = format!(
        "  u: {{ type: udp, listen: '127.0.0.1:{port}', format: ndjson, schema: {{ a: int64 }} }}\noperators:\n"
    );
    let listening = FILE.replace("operators:\n", &source) + "  all: { type: 'null', input: u }\n";
    let error = put(&listening);
    assert!(error.status >= 400 && error.body.contains("which was to be replaced, runs on"), "{error:?}");
    let line = site.post(RECORDS, &payment(3_000, "c1", 1.0)).lines().remove(0);
    assert_eq!(line["card_1h"], json!({"spent": 5.0, "n": 3}), "it runs on: {line}");
}

#[test]
fn a_key_is_added_to_a_job_while_its_node_runs() {
    let folder = tempfile::tempdir().unwrap();
    let site = site_of(&Arc::new(Node::builder().workers(1).data_dir(folder.path()).open().unwrap()));
    let file = FILE.replace("amount: float64 }", "amount: float64, shop: string? }");
    assert_eq!(site.post("/v1/jobs/payments", &file).status, 201);
    let paid =
        |ts: i64, card: &str| format!("{}\n", json!({"ts": ts, "card": card, "shop": "s1", "amount": 1}));
    assert_eq!(site.post(RECORDS, &paid(1_000, "c1")).status, 200);
    assert_eq!(site.post(RECORDS, &paid(2_000, "other")).status, 200);

    let by_shop = "SELECT count(*) AS n FROM payments GROUP BY shop OVER SLIDING 1 HOUR";
    let error = site.post(&format!("{QUERIES}/by_shop"), by_shop).expect_error(400, "invalid_request");
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.contains("add the key to partition_by") && hint.contains("PUT /v1/jobs/"), "{hint}");

    let more = file
        .replace("partition_by: card", "partition_by: [card, shop]")
        .replace("sinks:", &format!("      by_shop: {by_shop}\nsinks:"));
    std::thread::scope(|scope| {
        let put = scope.spawn(|| site.call("PUT", "/v1/jobs/payments", "", more.as_bytes()));
        // Who sends meanwhile is answered, or told to come again.
        for number in 0.. {
            let reply = site.post(RECORDS, &paid(2_000, &format!("other{number}")));
            assert!([200, 503].contains(&reply.status), "{reply:?}");
            if reply.status == 503 {
                assert_eq!(reply.json()["error"]["retry"], "with_backoff", "{reply:?}");
            }
            if put.is_finished() {
                break;
            }
        }
        assert_eq!(put.join().unwrap().status, 200);
    });
    let line = site.post(RECORDS, &paid(3_000, "c1")).lines().remove(0);
    assert_eq!(line["card_1h"], json!({"spent": 2.0, "n": 2}), "the old key goes on");
    assert_eq!(line["by_shop"]["since"], 2_000_000, "the new one says from when on it counts: {line}");
}

#[test]
fn queries_come_and_go_while_a_job_runs() {
    let site = site();
    assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201);
    assert_eq!(site.post(RECORDS, &payment(1_000, "c1", 2.5)).status, 200);

    let path = format!("{QUERIES}/largest");
    let error = site.post(&path, "SELECT max(amuont) AS most FROM payments GROUP BY card OVER INFINITE");
    assert_eq!(error.expect_error(400, "invalid_query")["detail"][0]["column"], 12);
    let error = site.post(&path, "SELECT summ(amuont) AS a FROM payments GROUP BY kard OVER SLIDING 1 HUOR");
    let error = error.expect_error(400, "invalid_query");
    let marked: Vec<_> = error["detail"].as_array().unwrap().iter().map(|one| one["text"].clone()).collect();
    assert_eq!(marked, ["summ", "amuont", "kard", "HUOR"]);
    for told in ["4 mistakes", "no aggregate summ (line 1, column 8)", "\"amuont\"", "\"kard\"", "HUOR"] {
        assert!(error["message"].as_str().unwrap().contains(told), "{error}");
    }
    assert_eq!(error["hint"], "did you mean sum?");
    let added = site.post(&path, "SELECT max(amount) AS most FROM payments GROUP BY card OVER INFINITE");
    assert_eq!(added.status, 201, "{added:?}");
    site.post(&path, "SELECT max(amount) AS most FROM payments GROUP BY card OVER INFINITE")
        .expect_error(409, "already_exists");
    let lines = site.post(RECORDS, &payment(2_000, "c1", 1.5)).lines();
    assert_eq!(lines[0]["largest"]["most"], 1.5);
    let operators = site.get("/v1/jobs/payments").json()["operators"].clone();
    assert_eq!(operators[1]["queries"][1]["name"], "largest");

    assert_eq!(site.delete(&path).status, 204);
    site.get(&format!("{path}?card=c1")).expect_error(404, "not_found");
    assert_eq!(site.post(RECORDS, &payment(3_000, "c1", 1.0)).lines()[0].get("largest"), None);
}

#[test]
fn unknown_parameters_are_refused_and_change_nothing() {
    let site = site();
    site.post("/v1/jobs/payments?replace=true", FILE).expect_error(400, "invalid_request");
    assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201);
    let path = format!("{QUERIES}/total");
    let count = "SELECT count(*) AS n FROM payments GROUP BY card OVER INFINITE";
    site.post(&format!("{path}?backfill=true"), count).expect_error(400, "invalid_request");
    assert_eq!(site.post(&path, count).status, 201);
    let error = site.delete(&format!("{path}?force")).expect_error(400, "invalid_request");
    assert!(error["message"].as_str().unwrap().contains("force"), "{error}");
    for path in
        ["/v1/jobs?state=failed", "/v1/jobs/payments?verbose=1", &format!("{path}?card=c1&nonsense=1")]
    {
        site.get(path).expect_error(400, "invalid_request");
    }
    site.post(&format!("{RECORDS}?nonsense=1"), &payment(1, "c1", 1.0)).expect_error(400, "invalid_request");
    site.delete("/v1/jobs/payments?wait=1").expect_error(400, "invalid_request");
    assert_eq!(site.get("/v1/jobs/payments").json()["operators"][1]["queries"].as_array().unwrap().len(), 2);
    assert_eq!(site.get("/healthz?from=monitor").status, 200);
}

#[test]
fn answers_with_and_without_since_leave_together() {
    let control = NodeControl::new(Arc::new(Node::builder().workers(1).open().unwrap()));
    let site = site_with(control.with_reach(Reach::anything()));
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("answers.ndjson");
    let answers = format!(
        "answers: {{ type: file, path: {}, format: ndjson, input: {{ from: features, flush: 50ms }} }}",
        json!(written)
    );
    let file = FILE
        .replace("    partition_by: card\n", "    partition_by: card\n    partitions: 2\n")
        .replace("answers: { type: 'null', input: features }", &answers);
    assert_eq!(site.post("/v1/jobs/payments", &file).status, 201);
    // One partition has a record, so that its answers say from when a later query counts; the other's need not.
    assert_eq!(site.post(RECORDS, &payment(1_000, "c1", 2.5)).status, 200);
    let count = "SELECT count(*) AS n FROM payments GROUP BY card OVER INFINITE";
    assert_eq!(site.post(&format!("{QUERIES}/n"), count).status, 201);
    const ROUNDS: usize = 20;
    for round in 1..=ROUNDS {
        for card in ["d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"] {
            let reply = site.post(RECORDS, &payment(2_000, card, 1.0));
            assert_eq!(reply.lines()[0]["n"]["n"], round, "{reply:?}");
        }
    }
    assert_eq!(site.delete("/v1/jobs/payments").json()["state"], "done");
    let lines = std::fs::read_to_string(written).unwrap();
    let (with, without): (Vec<&str>, Vec<&str>) =
        lines.lines().skip(1).partition(|line| line.contains("\"since\""));
    assert!(!with.is_empty() && !without.is_empty(), "{lines}");
    assert_eq!(with.len() + without.len(), 8 * ROUNDS, "{lines}");
}

const TOTAL: &str = "SELECT count(*) AS n FROM payments OVER INFINITE";

#[test]
fn a_query_without_group_by_needs_a_stage_without_a_key() {
    let site = site();
    assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201);
    let path = format!("{QUERIES}/total");
    let error = site.post(&path, TOTAL);
    assert!((400..500).contains(&error.status), "{error:?}");
    assert!(error.json()["error"]["hint"].as_str().unwrap().contains("[]"), "{error:?}");
}

#[test]
fn a_stage_without_a_key_can_wait_for_its_first_query() {
    let site = site();
    let file = FILE.replace("partition_by: card", "partition_by: [card, []]");
    assert_eq!(site.post("/v1/jobs/payments", &file).status, 201);
    let path = format!("{QUERIES}/total");
    let reply = site.post(RECORDS, &(payment(1_000, "c1", 2.5) + &payment(1_000, "c2", 2.5)));
    assert_eq!(reply.lines()[1]["card_1h"], json!({"spent": 2.5, "n": 1}), "{reply:?}");
    assert_eq!(site.post(&path, TOTAL).status, 201);
    let reply = site.post(RECORDS, &(payment(2_000, "c1", 1.0) + &payment(2_000, "c2", 1.0)));
    let lines = reply.lines();
    assert_eq!((&lines[0]["total"]["n"], &lines[1]["total"]["n"]), (&json!(1), &json!(2)), "{lines:?}");
    assert_eq!(lines[1]["card_1h"]["n"], 2);
    assert_eq!(site.get(&path).json()["values"]["n"], 2);
    assert_eq!(site.delete(&path).status, 204);
    assert_eq!(site.post(RECORDS, &payment(3_000, "c1", 1.0)).lines()[0].get("total"), None);
}

#[test]
fn the_server_and_its_node_have_one_list_of_queries() {
    const LARGEST: &str = "SELECT max(amount) AS most FROM payments GROUP BY card OVER INFINITE";
    let node = Arc::new(Node::builder().workers(1).open().unwrap());
    let site = site_of(&node);
    assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201);
    assert_eq!(site.post(&format!("{QUERIES}/largest"), LARGEST).status, 201);
    let job = node.job("payments").unwrap();
    let queries = job.queries("features").unwrap();
    let names = || queries.list().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(), ["card_1h", "largest"]);
    assert_eq!(queries.list()[1].1, LARGEST);
    queries.drop(job.job(), "largest").unwrap();
    assert_eq!(names(), ["card_1h"]);
    let shown = site.get("/v1/jobs/payments").json()["operators"].clone();
    let shown: Vec<_> = shown.as_array().unwrap().iter().filter(|one| one["name"] == "features").collect();
    assert_eq!(shown[0]["queries"].as_array().unwrap().len(), 1, "{shown:?}");
    site.delete(&format!("{QUERIES}/largest")).expect_error(404, "not_found");
}

#[test]
fn job_files_are_checked_whole() {
    let site = site();
    let file = FILE.replace("type: 'null'", "type: nul").replace("partition_by: card", "partition_by: kard");
    let error = site.post("/v1/jobs/payments", &file).expect_error(400, "invalid_job_file");
    let mistakes = error["detail"].as_array().unwrap();
    assert!(mistakes.len() >= 2, "{mistakes:#?}");
    for mistake in mistakes {
        check("Mistake", mistake);
        assert!(mistake["line"].as_u64() > Some(0));
    }
    site.post("/v1/jobs/others", FILE).expect_error(400, "invalid_request");
    assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201);
    site.post("/v1/jobs/payments", FILE).expect_error(409, "already_exists");
}

#[test]
fn a_job_that_has_failed_says_why() {
    let site = site();
    let file = FILE.replace("time: ts\n", "time: ts\n    reject_limit: 0\n");
    assert_eq!(site.post("/v1/jobs/payments", &file).status, 201);
    // The reply and the end of the job race: either the record was refused, or nobody knows.
    let reply = site.post(RECORDS, "nonsense");
    assert!([400, 504].contains(&reply.status), "{}", reply.status);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let job = loop {
        let job = site.get("/v1/jobs/payments").json();
        if job["state"] != "running" {
            break job;
        }
        assert!(std::time::Instant::now() < until, "the job goes on");
    };
    check("Job", &job);
    assert_eq!(job["state"], "failed");
    let why = job["failure"]["message"].as_str().unwrap();
    if reply.status == 504 {
        let error = reply.expect_error(504, "job_stopped");
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    }
    let error = site.post(RECORDS, &payment(1_000, "c1", 2.5)).expect_error(409, "conflict");
    assert!(error["message"].as_str().unwrap().contains("has failed"), "{error}");
    assert_eq!(site.delete("/v1/jobs/payments").json()["state"], "failed");
}

#[test]
fn every_reject_says_what_to_do() {
    let site = site();
    let file = FILE
        .replace("time: ts", "time: ts\n    max_record: 100\n    lateness: 1s")
        .replace("ts: timestamp(ms)", "ts: timestamp(ms)?");
    let started = site.post("/v1/jobs/payments", &file);
    assert_eq!(started.status, 201, "{started:?}");
    let body = [
        payment(60_000, "c1", 1.0),
        "{\"ts\":\"soon\"}\n".to_owned(),
        payment(60_000, &"x".repeat(100), 1.0),
        "{\"ts\":null,\"card\":\"c1\",\"amount\":1.0}\n".to_owned(),
        payment(9_000_000_000_000_000, "c1", 1.0),
        payment(1_000, "c1", 1.0),
    ];
    let lines = site.post(RECORDS, &body.concat()).lines();
    assert_eq!(lines[5]["late"], json!(["card"]), "a late record has an answer, which says so");
    let refused = &lines[1..5];
    let codes: Vec<&Value> = refused.iter().map(|line| &line["error"]["code"]).collect();
    assert_eq!(codes, ["parse", "too_long", "time", "ahead"]);
    for line in refused {
        check("ErrorLine", line);
        assert!(line["error"]["hint"].as_str().is_some_and(|hint| hint.len() > 20), "{line}");
    }
}

#[test]
fn the_live_graph_says_how_far_and_how_quick_each_operator_is() {
    let site = site();
    assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201);
    let idle = site.get("/v1/jobs/payments").json();
    for operator in idle["operators"].as_array().unwrap() {
        for field in ["task_time", "lag_seconds", "latency"] {
            assert_eq!(operator[field], Value::Null, "{field} before the first record");
        }
    }

    let hour_ago = now_ms() - 3_600_000;
    let until = Instant::now() + Duration::from_secs(20);
    // Latencies are those of the last second or two: records keep coming until they show.
    let job = loop {
        assert_eq!(site.post(RECORDS, &payment(hour_ago, "c1", 2.5)).status, 200);
        let job = site.get("/v1/jobs/payments").json();
        let operators = job["operators"].as_array().unwrap();
        if operators.iter().take(4).all(|operator| !operator["latency"].is_null()) {
            break job;
        }
        assert!(Instant::now() < until, "{job:#}");
    };
    check("Job", &job);
    let of = |name: &str| {
        let operators = job["operators"].as_array().unwrap();
        operators
            .iter()
            .find(|operator| operator["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {job:#}"))
    };
    for name in ["features", "features/card"] {
        let shown = of(name)["task_time"].as_str().unwrap();
        assert_eq!(shown, thalweg_types::format_timestamp(hour_ago * 1_000), "{name}");
    }
    assert_eq!(of("answers")["task_time"], Value::Null, "a sink has no time of its own");
    for shown in [
        &of("features/card")["lag_seconds"],
        &of("answers")["lag_seconds"],
        &job["sources"][0]["lag_seconds"],
    ] {
        let lag = shown.as_f64().unwrap();
        assert!((3_600.0..3_600.0 + 60.0).contains(&lag), "{lag}");
    }
    let metrics = site.get("/metrics").body;
    for family in ["latency_seconds_count", "lag_seconds", "task_time_seconds"] {
        let series = format!("thalweg_operator_{family}{{job=\"payments\",operator=\"features\"}} ");
        assert!(metrics.contains(&series), "{series}");
    }
    assert!(
        metrics.contains("thalweg_source_lag_seconds{job=\"payments\",source=\"payments\"} 36"),
        "{metrics}"
    );
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[test]
fn datagrams_that_are_lost_are_shown_with_their_sender() {
    let site = site();
    let file = FILE.replace("type: http", "type: udp\n    listen: 127.0.0.1:0\n    allow: [10.0.0.0/8]");
    let started = site.post("/v1/jobs/payments", &file);
    assert_eq!(started.status, 201, "{started:?}");
    let job = started.json();
    check("Job", &job);
    let nothing = json!({"received": 0, "dropped": 0, "dropped_records": 0, "refused": 0, "kernel_drops": 0, "senders": 0, "worst_senders": [], "agents": null, "left_out": {}});
    assert_eq!(job["sources"][0]["datagrams"], nothing);

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .send_to(payment(1_000, "c1", 2.5).as_bytes(), job["sources"][0]["address"].as_str().unwrap())
        .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let shown = loop {
        let job = site.get("/v1/jobs/payments").json();
        check("Job", &job);
        if job["sources"][0]["datagrams"]["received"] != 0 {
            break job["sources"][0]["datagrams"].clone();
        }
        assert!(Instant::now() < until, "{job:#}");
    };
    let mut sender = json!({"received": 1, "dropped": 0, "dropped_records": 0, "refused": 1});
    let mut expected = sender.clone();
    sender["address"] = json!("127.0.0.1");
    expected["kernel_drops"] = json!(0);
    expected["left_out"] = json!({});
    expected["senders"] = json!(1);
    expected["worst_senders"] = json!([sender]);
    expected["agents"] = json!(null);
    assert_eq!(shown, expected);
    let metrics = site.get("/metrics").body;
    for line in [
        "thalweg_source_datagrams_total{job=\"payments\",source=\"payments\"} 1\n",
        "thalweg_source_lost_datagrams_total{job=\"payments\",source=\"payments\",reason=\"not_allowed\"} 1\n",
        "thalweg_source_lost_datagrams_total{job=\"payments\",source=\"payments\",reason=\"queue_full\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
}

#[test]
fn a_job_that_is_not_drained_is_aborted() {
    let site = site();
    assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201);
    assert_eq!(site.post(RECORDS, &payment(1_000, "c1", 2.5)).status, 200);
    let summary = site.delete("/v1/jobs/payments?drain=false").json();
    check("Summary", &summary);
    assert_eq!((&summary["state"], &summary["records"]), (&json!("aborted"), &json!(1)));
    assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201, "and may start again");
}

/// A source that cannot be opened before the test allows it.
struct Stuck(Arc<(Mutex<bool>, Condvar)>);

impl SourcePlugin for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }

    fn doc(&self) -> &'static str {
        "for tests"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn is_live(&self, _: &Options) -> bool {
        false
    }

    fn build(&self, _: SourceContext) -> Result<BuiltSource, Error> {
        let (is_open, changed) = &*self.0;
        drop(changed.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        Err(Error::external("it came too late"))
    }
}

#[test]
fn jobs_that_are_not_opened_hold_up_no_other_and_can_be_given_up() {
    const MANY: usize = 24;
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let node = Node::builder().workers(1).source(Stuck(Arc::clone(&gate))).open().unwrap();
    let node = Arc::new(node);
    let site = site_of(&node);
    let file = |name: &str| {
        format!(
            "name: {name}\nsources: {{ s: {{ type: stuck, schema: {{ n: int64 }} }} }}\nsinks: {{ o: {{ type: 'null', input: s }} }}\n"
        )
    };
    std::thread::scope(|scope| {
        let names: Vec<String> = (0..MANY).map(|number| format!("stuck{number}")).collect();
        let starts: Vec<_> = names
            .iter()
            .map(|name| {
                let (site, path, file) = (&site, format!("/v1/jobs/{name}"), file(name));
                scope.spawn(move || site.post(&path, &file))
            })
            .collect();
        let until = Instant::now() + Duration::from_secs(20);
        for name in &names {
            while site.get(&format!("/v1/jobs/{name}")).status != 409 {
                assert!(Instant::now() < until, "{name} is not being started");
            }
        }
        site.post("/v1/jobs/stuck0", &file("stuck0")).expect_error(400, "invalid_request");
        // Others start, work and stop meanwhile.
        assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201);
        assert_eq!(site.post(RECORDS, &payment(1_000, "c1", 2.5)).status, 200);
        assert_eq!(site.get("/readyz").status, 200);
        assert_eq!(site.delete("/v1/jobs/payments").status, 200);
        for name in &names {
            assert_eq!(site.delete(&format!("/v1/jobs/{name}")).json()["state"], "aborted");
        }
        for start in starts {
            let error = start.join().unwrap().expect_error(400, "invalid_request");
            assert!(error["message"].as_str().unwrap().contains("given up"), "{error}");
        }
        site.delete("/v1/jobs/stuck0").expect_error(404, "not_found");
    });
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

#[test]
fn a_large_body_is_answered_line_by_line_and_one_of_mistakes_is_not_taken() {
    let site = site();
    assert_eq!(site.post("/v1/jobs/payments", FILE).status, 201);
    // More than any buffer between here and there holds.
    const COUNT: usize = 40_000;
    let body = payment(1_000, "c1", 2.5).repeat(COUNT - 1) + "nonsense\n";
    let reply = site.post(RECORDS, &body);
    assert_eq!((reply.status, reply.is_whole), (200, true));
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    let lines = reply.lines();
    assert_eq!(lines.len(), COUNT);
    let counts = lines[..COUNT - 1].iter().map(|line| line["card_1h"]["n"].as_u64().unwrap());
    assert!(counts.eq(1..COUNT as u64));
    assert_eq!(lines[COUNT - 1]["error"]["code"], "parse");

    let reply = site.post(RECORDS, &"0\n".repeat(1 << 20));
    assert_eq!(reply.status, 400);
    assert!(reply.body.len() < 1 << 20, "{} bytes", reply.body.len());
    assert_eq!(reply.lines().last().unwrap()["error"]["code"], "none_accepted");
    let job = site.get("/v1/jobs/payments").json();
    assert_eq!((&job["records"], &job["rejects"]), (&json!(COUNT + 4_096), &json!(4_097)));
    let silent = site.post(&format!("{RECORDS}?reply=none"), &"0\n".repeat(1 << 20));
    assert_eq!((silent.status, silent.json()["accepted"].as_u64()), (202, Some(1 << 20)));
}

#[test]
fn a_node_with_a_failed_job_is_not_ready_until_the_job_is_gone() {
    let site = site();
    let file = FILE.replace("time: ts\n", "time: ts\n    reject_limit: 0\n");
    assert_eq!(site.post("/v1/jobs/payments", &file).status, 201);
    assert_eq!(site.get("/readyz").status, 200);
    site.post(RECORDS, "nonsense");
    let until = Instant::now() + Duration::from_secs(20);
    let error = loop {
        let reply = site.get("/readyz");
        if reply.status == 503 {
            break reply.expect_error(503, "not_ready");
        }
        assert!(Instant::now() < until, "it stays ready");
    };
    assert_eq!(error["detail"]["jobs"][0]["job"], "payments");
    assert!(error["message"].as_str().unwrap().contains("reject_limit"), "{error}");
    assert_eq!(site.delete("/v1/jobs/payments").status, 200);
    assert_eq!(site.get("/readyz").status, 200);
}
