//! `/v1/cluster` and the metrics of a cluster: by script, and of two nodes over the bus in memory.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use thalweg_cluster::control::{Name, Text};
use thalweg_flow::CycleSettings;
use thalweg_kafka::TopicPartition;
use thalweg_kafka::memory::{Faults, MemoryBus, Stored};
use thalweg_node::cluster::{Cluster, ClusterOptions, DoorEvent, DoorOptions, MemberOptions, UnitOptions};
use thalweg_node::{JobFile, Node, RunningJob};
use thalweg_server::{NodeControl, Readiness, Server};

use crate::client::Site;
use crate::schema::check;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_node_in_no_cluster_says_so() {
    let site = Site::new();
    let replies = [
        site.get("/v1/cluster"),
        site.post("/v1/cluster/nodes/a/drain", ""),
        site.delete("/v1/cluster/nodes/a/drain"),
    ];
    for reply in replies {
        let error = reply.expect_error(404, "not_found");
        assert_eq!(error["message"], "this node is in no cluster");
        assert!(error["hint"].as_str().unwrap().contains("--cluster"), "{error}");
    }
    assert!(!site.get("/metrics").body.contains("thalweg_cluster"));
}

#[test]
fn the_cluster_is_as_documented() {
    let site = Site::new();
    site.node.join_cluster();
    for path in ["/v1/cluster", "/v1/cluster?job=pay"] {
        let cluster = site.get(path).json();
        check("Cluster", &cluster);
        assert_eq!(cluster["plan"], json!({"offset": 7, "author": "a"}));
        assert_eq!(cluster["members"][0]["beat_age_seconds"], 0.125);
        assert_eq!(cluster["members"][1]["beat_age_seconds"], Value::Null);
        let unit = &cluster["units"][0];
        assert_eq!(
            (&unit["active"], &unit["since"], &unit["why"]),
            (&json!("a"), &json!(7), &json!("new: most budget"))
        );
        assert_eq!(
            unit["followers"][0],
            json!({"node": "b", "takes_over": true, "position": 90, "ready": false})
        );
        assert_eq!(
            unit["report"],
            json!({"rows_per_second": 5, "bytes": 600, "position": 100, "ready": true})
        );
        assert_eq!(cluster["units"][1]["active"], Value::Null);
    }
    let error = site.get("/v1/cluster?job=x").expect_error(404, "not_found");
    assert_eq!((&error["message"], &error["detail"]), (&json!("no job \"x\""), &json!({"known": ["pay"]})));
    for query in ["job=", "job", "jobs=pay"] {
        site.get(&format!("/v1/cluster?{query}")).expect_error(400, "invalid_request");
    }
}

#[test]
fn who_may_change_something_drains_a_node_and_takes_it_back() {
    const DRAIN: &str = "/v1/cluster/nodes/b/drain";
    let site = Site::new();
    site.node.join_cluster();
    for method in ["POST", "DELETE"] {
        site.call_as_anyone(method, DRAIN, "", b"").expect_error(401, "unauthorized");
    }
    let member = site.post(DRAIN, "").json();
    check("ClusterMember", &member);
    assert_eq!((&member["name"], &member["drains"]), (&json!("b"), &json!(true)));
    assert_eq!(site.get("/v1/cluster").json()["members"][1]["drains"], true);
    assert_eq!(site.delete(DRAIN).json()["drains"], false);
    let error = site.post("/v1/cluster/nodes/x/drain", "").expect_error(404, "not_found");
    assert_eq!(error["hint"], "the nodes are \"a\", \"b\"");
    let error = site.post("/v1/cluster/nodes/slow/drain", "").expect_error(504, "timeout");
    assert_eq!(error["retry"], "unknown");
}

#[test]
fn metrics_have_a_series_for_each_unit_and_door() {
    let site = Site::new();
    site.node.join_cluster();
    let metrics = site.get("/metrics").body;
    let unit = "job=\"pay\",stage=\"features\",partition=\"0\"";
    for series in [
        "thalweg_cluster_members 2".to_owned(),
        "thalweg_cluster_plan 7".to_owned(),
        "thalweg_cluster_active_units 1".to_owned(),
        "thalweg_cluster_followed_units 1".to_owned(),
        "thalweg_cluster_beat_age_seconds 0.125".to_owned(),
        format!("thalweg_unit_lag{{{unit}}} 12"),
        format!("thalweg_unit_lag_seconds{{{unit}}} 1.5"),
        format!("thalweg_unit_position{{{unit}}} 100"),
        format!("thalweg_unit_rows_total{{{unit}}} 300"),
        format!("thalweg_unit_duplicates_total{{{unit}}} 4"),
        format!("thalweg_unit_gaps_total{{{unit}}} 2"),
        format!("thalweg_unit_commit_age_seconds{{{unit}}} 3"),
        "thalweg_door_rows_total{job=\"pay\"} 310".to_owned(),
        "thalweg_door_unknown_total{job=\"pay\"} 6".to_owned(),
        "thalweg_post_dropped_total{job=\"pay\"} 1".to_owned(),
    ] {
        assert!(metrics.contains(&format!("\n{series}\n")), "{series} is not in\n{metrics}");
    }
    assert!(
        !metrics.contains("thalweg_unit_lag{job=\"pay\",stage=\"features\",partition=\"1\"}"),
        "it is not known"
    );
}

const JOB: &str = "
name: pay
sources:
  records: { type: http, time: t, max_ahead: none, lateness: 1h, schema: { t: timestamp(ms), card: string } }
operators:
  features:
    type: metrics
    input: records
    partition_by: [card]
    partitions: 8
    queries: { q: SELECT count(*) AS c FROM records GROUP BY card OVER SLIDING 1 HOUR }
sinks: { out: { type: 'null', input: features } }
";

/// A node of a cluster with its server. Fields are dropped in this order.
struct Peer {
    site: Site,
    _cluster: Cluster,
}

fn join(bus: &MemoryBus, folder: &Path, name: &str, patience: Duration) -> Peer {
    join_with(bus, folder, name, patience, JOB)
}

fn join_with(bus: &MemoryBus, folder: &Path, name: &str, patience: Duration, job: &str) -> Peer {
    join_at(bus, folder, name, patience, job, |address| address.to_string())
}

/// `advertise` makes the address that others hear of from that of the server.
fn join_at(
    bus: &MemoryBus,
    folder: &Path,
    name: &str,
    patience: Duration,
    job: &str,
    advertise: impl FnOnce(SocketAddr) -> String,
) -> Peer {
    let node = Arc::new(Node::builder().data_dir(folder.join(name)).workers(1).open().unwrap());
    let control = Arc::new(NodeControl::new(Arc::clone(&node)));
    let mut options = crate::client::options();
    #[cfg(feature = "sql")]
    {
        let engine = || {
            let engine = thalweg_sql::Engine::new(node.tables().unwrap(), thalweg_sql::Limits::default());
            Some(Arc::new(engine.unwrap().into()))
        };
        (options.sql, options.shares) = (engine(), engine());
    }
    let server = Server::bind("127.0.0.1:0", Arc::clone(&control) as Arc<_>, options).unwrap();
    let site = Site::of(server);
    let cycle = CycleSettings { every: Some(Duration::from_millis(50)), bytes: None, records: None };
    let options = ClusterOptions {
        member: MemberOptions {
            prefix: "t".to_owned(),
            name: Name::new(name).unwrap(),
            host: Text::new(name).unwrap(),
            capacity: 1,
            address: Text::new(&advertise(site.address)).unwrap(),
            replication: 1,
        },
        partitions: None,
        units: UnitOptions { cycle, ..UnitOptions::default() },
        door: DoorOptions { patience, ..DoorOptions::default() },
        carrier: thalweg_node::cluster::CarrierOptions::default(),
    };
    let doors = Arc::clone(&control);
    let on_door = Box::new(move |job: &Arc<RunningJob>, event| match event {
        DoorEvent::Opened => doors.add(Arc::clone(job)),
        DoorEvent::Closed => doors.remove(job),
    });
    let cluster = Cluster::join(Arc::clone(&node), Arc::new(bus.clone()), options, on_door).unwrap();
    let job = JobFile::parse("pay.yaml", job, &[]).and_then(|file| file.check(node.check_options()));
    let job = job.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    control.show_cluster(cluster.view(), [&*job.name]);
    cluster.submit(&job).unwrap();
    control.set_readiness(Readiness::Ready);
    Peer { site, _cluster: cluster }
}

impl Peer {
    fn cluster(&self) -> Value {
        let cluster = self.site.get("/v1/cluster?job=pay");
        if cluster.status == 404 { Value::Null } else { cluster.json() }
    }

    /// How many units a node has, as this one sees it.
    fn units_of(&self, node: &str) -> usize {
        let cluster = self.cluster();
        let units = cluster["units"].as_array().map_or(&[][..], Vec::as_slice);
        units.iter().filter(|unit| unit["active"] == node).count()
    }

    /// The sum of a family of metrics.
    fn sum(&self, family: &str) -> f64 {
        let metrics = self.site.get("/metrics").body;
        let series = metrics.lines().filter_map(|line| line.strip_prefix(family)?.split_once("} "));
        series
            .filter(|(labels, _)| labels.starts_with('{'))
            .map(|(_, value)| value.parse::<f64>().unwrap())
            .sum()
    }

    fn put(&self, job: &str) -> crate::client::Reply {
        self.site.call("PUT", "/v1/jobs/pay", "content-type: application/yaml\r\n", job.as_bytes())
    }

    fn send(&self, cards: std::ops::Range<u32>) -> crate::client::Reply {
        let records = cards.map(|card| format!("{{\"t\":1700000000000,\"card\":\"card {card}\"}}\n"));
        self.site.post("/v1/jobs/pay/sources/records", &records.collect::<String>())
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn bus() -> MemoryBus {
    let bus = MemoryBus::new(1, Faults::default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    bus.set_time(now.as_millis() as i64);
    bus
}

#[test]
fn every_node_shows_members_units_and_lag_and_drains_any() {
    let (bus, folder) = (bus(), tempfile::tempdir().unwrap());
    let patience = Duration::from_secs(30);
    let a = join(&bus, folder.path(), "a", patience);
    eventually("a has all", || a.units_of("a") == 8);
    eventually("a has a door", || a.send(0..40).status == 200);
    eventually("the rows are counted", || a.sum("thalweg_unit_rows_total") == 40.0);
    assert_eq!(a.sum("thalweg_unit_lag"), 0.0);
    assert_eq!(a.sum("thalweg_unit_lag_seconds"), 0.0);
    assert_eq!(a.sum("thalweg_unit_active_info"), 8.0);
    assert_eq!((a.sum("thalweg_door_rows_total"), a.sum("thalweg_door_answers_total")), (40.0, 40.0));
    assert_eq!(a.sum("thalweg_post_sent_total"), 40.0);
    eventually("a commit", || a.site.get("/metrics").body.contains("\nthalweg_unit_commit_age_seconds{"));
    eventually("reports", || {
        a.cluster()["units"].as_array().unwrap().iter().all(|unit| unit["report"]["ready"] == true)
    });
    let messages: u64 = a.cluster()["units"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|unit| unit["report"]["position"].as_u64())
        .sum();
    assert_eq!(messages as f64, a.sum("thalweg_unit_position"));

    let b = join(&bus, folder.path(), "b", patience);
    eventually("units on both", || b.units_of("a") == 4 && b.units_of("b") == 4);
    let cluster = b.cluster();
    check("Cluster", &cluster);
    assert_eq!(
        (&cluster["node"], &cluster["plan"]["author"]),
        (&json!("b"), &json!("a")),
        "the oldest one plans"
    );
    let members = cluster["members"].as_array().unwrap();
    assert_eq!(members.iter().map(|member| &member["name"]).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(members.iter().map(|member| &member["plans"]).collect::<Vec<_>>(), [true, false]);
    for member in members {
        assert!(member["beat_age_seconds"].as_f64().unwrap() < 30.0, "{member}");
        assert_eq!(member["units_active"], 4, "{member}");
    }
    assert_eq!(cluster["jobs"][0]["stages"][0], json!({"name": "features", "partitions": 8, "replicas": 0}));
    for unit in cluster["units"].as_array().unwrap().iter().filter(|unit| unit["active"] == "b") {
        assert_eq!(unit["from"], "a", "{unit}");
        assert!(unit["explanation"].as_str().unwrap().contains("is at b"), "{unit}");
    }
    eventually("b runs its own alone", || b.sum("thalweg_unit_active_info") == 4.0);

    // Any node takes it, also that which is to have none.
    let drained = b.site.post("/v1/cluster/nodes/b/drain", "").json();
    check("ClusterMember", &drained);
    assert_eq!((&drained["name"], &drained["drains"]), (&json!("b"), &json!(true)));
    eventually("b has none", || a.units_of("b") == 0 && a.units_of("a") == 8);
    assert_eq!(a.cluster()["members"][1]["drains"], true);
    let again = a.site.delete("/v1/cluster/nodes/b/drain").json();
    assert_eq!(again["drains"], false);
    eventually("b has some again", || a.units_of("b") == 4);
    let error = a.site.post("/v1/cluster/nodes/c/drain", "").expect_error(404, "not_found");
    assert_eq!(error["detail"], json!({"known": ["a", "b"]}));
    a.site.get("/v1/cluster?job=x").expect_error(404, "not_found");
}

/// Passes connections on to a node, and counts them.
fn forward(to: SocketAddr, count: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            count.fetch_add(1, Ordering::Relaxed);
            let (mut near, mut far) = (near.unwrap(), TcpStream::connect(to).unwrap());
            let (mut asked, mut answered) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || io::copy(&mut asked, &mut answered));
            std::thread::spawn(move || io::copy(&mut far, &mut near));
        }
    });
    format!("localhost:{port}")
}

#[test]
fn a_node_is_asked_at_the_address_that_it_advertises() {
    let (bus, folder) = (bus(), tempfile::tempdir().unwrap());
    let (patience, count) = (Duration::from_secs(30), Arc::new(AtomicUsize::new(0)));
    let a = join(&bus, folder.path(), "a", patience);
    let b = join_at(&bus, folder.path(), "b", patience, JOB, |address| forward(address, Arc::clone(&count)));
    eventually("units on both", || b.units_of("a") == 4 && a.units_of("b") == 4);
    let cluster = a.cluster();
    let address = cluster["members"][1]["address"].as_str().unwrap();
    assert!(address.starts_with("localhost:"), "{address}");
    eventually("a has a door", || a.send(0..20).status == 200);
    assert_eq!(count.load(Ordering::Relaxed), 0, "records go through the brokers");
    for card in 0..20 {
        let path = format!("/v1/jobs/pay/operators/features/queries/q?card=card+{card}");
        assert_eq!(a.site.get(&path).status, 200);
    }
    assert!(count.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_node_is_ready_once_records_of_all_its_jobs_enter() {
    let (bus, folder) = (bus(), tempfile::tempdir().unwrap());
    for name in ["a", "b"] {
        let node = join(&bus, folder.path(), name, Duration::from_secs(30));
        let mut early = 0;
        eventually("it is ready", || {
            let status = node.site.get("/readyz").status;
            early += usize::from(status == 503);
            assert!(status == 200 || status == 503, "{status}");
            status == 200
        });
        assert!(early > 0, "{name} has to read the log first");
        let reply = node.send(0..20);
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
}

#[test]
fn a_node_whose_address_is_taken_is_not_ready_and_says_for_which_job() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let lines = format!(
        "  lines: {{ type: tcp, listen: '{address}', time: t, schema: {{ t: timestamp(ms), card: string }} }}\n"
    );
    let job = JOB.replace("operators:\n", &format!("{lines}operators:\n"));
    let job = job.replace("input: records\n", "input: [records, lines]\n");
    let (bus, folder) = (bus(), tempfile::tempdir().unwrap());
    let node = join_with(&bus, folder.path(), "a", Duration::from_secs(30), &job);
    eventually("it computes", || node.units_of("a") == 8);
    let error = node.site.get("/readyz").expect_error(503, "not_ready");
    assert_eq!(error["detail"], json!({"jobs": [{"job": "pay", "state": "opening"}]}));
    let error = node.send(0..1).expect_error(503, "unavailable");
    assert_eq!(error["message"], "job \"pay\" takes no records on this node yet");
    drop(taken);
    eventually("it has the address", || node.site.get("/readyz").status == 200);
    assert_eq!(node.send(0..1).status, 200);
}

#[test]
fn an_overdue_request_names_stage_partition_node_and_lag() {
    let (bus, folder) = (bus(), tempfile::tempdir().unwrap());
    let a = join(&bus, folder.path(), "a", Duration::from_millis(500));
    eventually("a has all", || a.units_of("a") == 8);
    eventually("a has a door", || a.send(0..40).status == 200);
    // Something that is no frame stops each unit.
    for partition in 0..8 {
        let (key, value, headers) = (None, Some(b"no frame".to_vec()), Vec::new());
        let message = Stored { offset: 0, timestamp: 0, key, value, headers };
        bus.append(&TopicPartition::new("t.pay.features", partition), message);
    }
    eventually("all have stopped", || a.sum("thalweg_unit_failed_info") == 8.0);
    // A slow machine may have had some before.
    let before = a.sum("thalweg_door_unknown_total");
    let error = a.send(0..1).expect_error(504, "timeout");
    assert_eq!(error["retry"], "unknown");
    let message = error["message"].as_str().unwrap();
    let parts = [
        "no answer within 500ms",
        "may count or not",
        "a record waits for its answer from stage \"features\" partition ",
    ];
    for part in parts.into_iter().chain([", which is at node \"a\" and lags by 1 messages, at offset "]) {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
    assert!(error["hint"].as_str().unwrap().contains("`id`"), "{error}");
    // The client may hear of it before it is counted.
    eventually("it is counted", || a.sum("thalweg_door_unknown_total") == before + 1.0);
    let cluster = a.cluster();
    check("Cluster", &cluster);
    let failures = cluster["units"].as_array().unwrap().iter().filter_map(|unit| unit["failure"].as_str());
    let failures: Vec<&str> = failures.collect();
    assert!(failures.iter().any(|failure| failure.contains("of t.pay.features")), "{failures:?}");
    eventually("it is in trouble", || a.cluster()["units"][0]["trouble"] == json!(["a"]));
}

#[test]
fn a_request_for_no_reply_waits_for_the_brokers() {
    let (bus, folder) = (bus(), tempfile::tempdir().unwrap());
    let a = join(&bus, folder.path(), "a", Duration::from_millis(500));
    eventually("a has all", || a.units_of("a") == 8);
    let quiet = || a.site.post("/v1/jobs/pay/sources/records?reply=none", "{\"t\":1,\"card\":\"c\"}\n");
    eventually("a has a door", || quiet().status == 202);
    assert_eq!(quiet().json(), json!({"accepted": 1}));
    eventually("all is counted", || a.sum("thalweg_unit_rows_total") == a.sum("thalweg_door_rows_total"));
    let before = a.sum("thalweg_unit_rows_total");
    bus.set_faults(Faults { delays: 1_000, ..Faults::default() });
    let error = quiet().expect_error(504, "timeout");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("the brokers have not acknowledged"), "{message}");
    assert_eq!(a.sum("thalweg_unit_rows_total"), before);
    bus.set_faults(Faults::default());
    eventually("brokers acknowledge again", || quiet().status == 202);
    eventually("what was unknown counts, too", || a.sum("thalweg_unit_rows_total") >= before + 2.0);
}

#[test]
fn a_door_gives_up_before_the_server_which_knows_less() {
    let patience = DoorOptions::default().patience;
    assert!(patience < thalweg_server::Options::default().answer_timeout);
}

#[test]
fn jobs_queries_and_present_values_are_asked_of_any_node() {
    let (bus, folder) = (bus(), tempfile::tempdir().unwrap());
    let patience = Duration::from_secs(30);
    let (a, b) = (join(&bus, folder.path(), "a", patience), join(&bus, folder.path(), "b", patience));
    eventually("units on both", || b.units_of("a") == 4 && a.units_of("b") == 4);
    eventually("b has a door", || b.send(0..20).status == 200);
    let before = a.send(0..20).status;
    assert_eq!(before, 200);
    let present = |peer: &Peer, query: &str, card: u32| {
        peer.site.get(&format!("/v1/jobs/pay/operators/features/queries/{query}?card=card+{card}"))
    };
    // Each card is at one of both, and both say the same of it.
    for card in 0..20 {
        let (one, other) = (present(&a, "q", card), present(&b, "q", card));
        assert_eq!(one.status, 200, "{}", one.body);
        check("Present", &one.json());
        assert_eq!(one.json(), other.json());
        assert_eq!(one.json()["key"], json!({"card": format!("card {card}")}));
        assert!(one.json()["values"]["c"].as_u64() >= Some(1), "{}", one.body);
    }
    a.site.get("/v1/jobs/pay/operators/features/queries/q?shop=1").expect_error(400, "invalid_request");
    a.site.get("/v1/jobs/pay/operators/features/queries/x?card=1").expect_error(404, "not_found");
    a.site.get("/v1/jobs/pay/operators/some/queries/q?card=1").expect_error(404, "not_found");
    // Whoever is sent on by a plan that is not known yet is not sent on again.
    let path = "/v1/jobs/pay/operators/features/queries/q?card=1";
    a.site.call("GET", path, "thalweg-plan: 999999999\r\n", b"").expect_error(503, "unavailable");
    a.site.call("GET", path, "thalweg-plan: x\r\n", b"").expect_error(400, "invalid_request");

    // A query comes and goes; the other node has it as soon as records by the new text are there.
    let sum = "SELECT count(*) AS c FROM records GROUP BY card OVER INFINITE";
    let queries = "/v1/jobs/pay/operators/features/queries";
    let wrong = a
        .site
        .post(&format!("{queries}/more"), "SELECT count(*) AS c FROM records GROUP BY crd OVER INFINITE");
    wrong.expect_error(400, "invalid_query");
    let added = a.site.post(&format!("{queries}/more"), sum);
    assert_eq!(added.status, 201, "{}", added.body);
    a.site.post(&format!("{queries}/more"), sum).expect_error(409, "already_exists");
    let answer = a.send(0..20);
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("\"more\":{"), "{}", answer.body);
    for card in 0..20 {
        let value = present(&b, "more", card).json();
        assert_eq!(value["values"]["c"], 1, "{value}");
    }
    assert_eq!(b.site.delete(&format!("{queries}/more")).status, 204);
    b.site.delete(&format!("{queries}/more")).expect_error(404, "not_found");
    let answer = b.send(0..20);
    assert!(answer.status == 200 && !answer.body.contains("more"), "{}", answer.body);

    // Jobs end and begin everywhere, and go on from what they had.
    let counted = present(&a, "q", 3).json()["values"]["c"].as_u64().unwrap();
    a.site.delete("/v1/jobs/pay?drain=false").expect_error(409, "conflict");
    let stopped = b.site.delete("/v1/jobs/pay");
    assert_eq!(stopped.status, 200, "{}", stopped.body);
    b.site.delete("/v1/jobs/pay").expect_error(404, "not_found");
    eventually("it has ended at a, too", || a.site.get("/v1/jobs/pay").status == 404);
    a.site.post_as("/v1/jobs/other", "application/yaml", JOB).expect_error(400, "invalid_request");
    let started = a.site.post_as("/v1/jobs/pay", "application/yaml", JOB);
    assert_eq!(started.status, 201, "{}", started.body);
    a.site.post_as("/v1/jobs/pay", "application/yaml", JOB).expect_error(409, "already_exists");
    eventually("it runs at b", || b.send(3..4).status == 200);
    eventually("it goes on", || present(&b, "q", 3).json()["values"]["c"].as_u64() > Some(counted));

    // A changed text takes the place of the one before; one that does not fit is refused.
    let more = "'SELECT count(*) AS c, count(card) AS m FROM records GROUP BY card OVER SLIDING 1 HOUR' }";
    let changed = JOB.replace("SELECT count(*) AS c FROM records GROUP BY card OVER SLIDING 1 HOUR }", more);
    assert_ne!(changed, JOB);
    let replaced = b.put(&changed);
    assert_eq!(replaced.status, 200, "{}", replaced.body);
    let answer = b.send(3..4);
    assert!(answer.status == 200 && answer.body.contains("\"m\":"), "{}", answer.body);
    let other_key =
        JOB.replace("partition_by: [card]", "partition_by: [t]").replace("GROUP BY card", "GROUP BY t");
    b.put(&other_key).expect_error(400, "invalid_request");
    assert_eq!(b.send(3..4).status, 200);
}

/// The first value that a query gives.
#[cfg(feature = "sql")]
fn asked(peer: &Peer, sql: &str) -> Result<i64, String> {
    let reply = peer.site.post_as("/v1/sql?format=csv", "text/plain", sql);
    if reply.status != 200 {
        return Err(format!("{}: {}", reply.status, reply.body));
    }
    let row = reply.body.lines().nth(1).ok_or_else(|| reply.body.clone())?;
    row.split(',').next().and_then(|cell| cell.parse().ok()).ok_or_else(|| reply.body.clone())
}

/// A query that rollups answer for what is sealed here.
#[cfg(feature = "sql")]
const IN_ROLLUPS: &str =
    "SELECT count(*) FROM rows WHERE t >= '2023-11-14T22:00:00' AND t < '2023-11-14T23:00:00'";

#[cfg(feature = "sql")]
#[test]
fn tables_are_read_whole_on_any_node_whatever_moves() {
    let rollups = "rollups: { hours: { every: 1h, by: [card] } }";
    let tables = format!(
        "sinks:
  out: {{ type: 'null', input: features }}
  rows: {{ type: table, input: features, time: t, seal_every: 200ms, {rollups} }}
"
    );
    let job = JOB.replace("sinks: { out: { type: 'null', input: features } }\n", &tables);
    assert_ne!(job, JOB);
    let (bus, folder) = (bus(), tempfile::tempdir().unwrap());
    let patience = Duration::from_secs(30);
    let join = |name: &str| join_with(&bus, folder.path(), name, patience, &job);
    let (a, b) = (join("a"), join("b"));
    eventually("units on both", || b.units_of("a") == 4 && a.units_of("b") == 4);
    eventually("b has a door", || b.send(0..40).status == 200);
    let first = asked(&a, "SELECT count(*) FROM rows").unwrap();
    assert_eq!(first % 40, 0);
    let mut sent = first;
    let mut send = |peer: &Peer| {
        assert_eq!(peer.send(0..40).status, 200);
        sent += 40;
        sent
    };
    // A reply may come before its row is in the table, by moments.
    let holds = |sql: &str, expected: i64| {
        let start = Instant::now();
        while [&a, &b].into_iter().any(|peer| asked(peer, sql) != Ok(expected)) {
            let said = (asked(&a, sql), asked(&b, sql));
            assert!(start.elapsed() < LIMIT, "{sql}: expected {expected}, got {said:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    for peer in [&a, &b] {
        let sent = send(peer);
        holds("SELECT count(*) FROM rows", sent);
        holds("SELECT count(*) FROM pay.rows WHERE card = 'card 7'", sent / 40);
        holds("SELECT max(\"q.c\") FROM rows", sent / 40);
        holds("SELECT count(DISTINCT card) FROM rows", 40);
        holds("SELECT count(*) FROM rows WHERE t >= '2023-11-14T22:00:00' AND t < '2023-11-15'", sent);
        holds("SELECT count(*) FROM rows WHERE t >= '2023-11-14T23:00:00'", 0);
        holds("SELECT sum(n) FROM (SELECT card, count(*) AS n FROM rows GROUP BY card)", sent);
    }
    // Rows that came before are sealed once others come.
    let sealed = send(&a);
    holds("SELECT count(*) FROM rows", sealed);
    std::thread::sleep(Duration::from_millis(300));
    let sent = send(&b);
    holds("SELECT count(*) FROM rows", sent);
    let rolled = "SELECT sum(_rows) FROM rows__hours";
    eventually("rollups have all that was sealed", || {
        let [one, other] = [&a, &b].map(|peer| asked(peer, rolled));
        one == other && one.is_ok_and(|rows| (sealed..=sent).contains(&rows))
    });
    let explained = a.site.post_as("/v1/sql?format=csv", "text/plain", &format!("EXPLAIN {IN_ROLLUPS}"));
    for part in ["rows[hours]", "rows[groups elsewhere]"] {
        assert!(explained.body.contains(part), "{part}: {}", explained.body);
    }
    holds(IN_ROLLUPS, sent);
    // What has no text for other nodes is computed here, of their rows.
    let each = "SELECT sum(n) FROM (SELECT length(card) AS l, count(*) AS n FROM rows GROUP BY 1)";
    holds(each, sent);
    let by_hour = "SELECT sum(n) FROM (SELECT date_trunc('hour', t) AS h, card, count(*) AS n, \
        count(*) FILTER (WHERE card LIKE 'card 1%') AS m FROM rows WHERE card <> 'card 0' GROUP BY 1, 2)";
    holds(by_hour, sent / 40 * 39);
    // Nothing is written any more: each answer is the whole, while units go to b and back.
    let node = |what: &str| match what {
        "drain" => a.site.post("/v1/cluster/nodes/a/drain", "").status,
        _ => a.site.delete("/v1/cluster/nodes/a/drain").status,
    };
    let mut answers = 0;
    for (what, units) in [("drain", 8), ("undo", 4)] {
        assert_eq!(node(what), 200);
        let (mut is_settled, start) = (false, Instant::now());
        eventually(what, || {
            assert!(
                start.elapsed() < LIMIT / 2,
                "{what}: units are not where they should be: {:#}",
                a.cluster()
            );
            for peer in [&a, &b] {
                match asked(peer, "SELECT count(*) FROM rows") {
                    Ok(count) => {
                        assert_eq!(count, sent);
                        answers += 1;
                    }
                    Err(error) => assert!(error.starts_with("503"), "{error}"),
                }
            }
            let was_settled = std::mem::replace(&mut is_settled, a.units_of("b") == units);
            is_settled && was_settled
        });
        holds("SELECT count(*) FROM rows", sent);
    }
    assert!(answers > 0);
    let c = join("c");
    eventually("c has units", || c.units_of("c") >= 2);
    eventually("c has all rows", || asked(&c, "SELECT count(*) FROM rows") == Ok(sent));
    // Whoever asks for a part by a plan that is another one by now is refused.
    let part = |header: &str| {
        let headers = format!("content-type: text/plain\r\n{header}");
        a.site.call("POST", "/v1/sql", &headers, b"SELECT count(*) FROM rows")
    };
    part("thalweg-plan: 1\r\nthalweg-partitions: features:0\r\n").expect_error(503, "unavailable");
    part("thalweg-plan: 1\r\nthalweg-partitions: features\r\n").expect_error(400, "invalid_request");
    part("thalweg-partitions: features:0\r\n").expect_error(400, "invalid_request");
}
