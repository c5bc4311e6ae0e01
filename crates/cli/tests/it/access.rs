//! Who may do what on one machine, and what messages show of files and secrets.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value, json};

use super::faults::Served;
use super::{Ended, Place};

/// In files that only the node's user may read, and in records.
const CONTENT: &str = "canary-of-content-4b1d";
/// In secrets that job files refer to.
const SECRET: &str = "canary-of-secret-9e07";
const VARIABLE: &str = "THALWEG_TEST_SECRET";

/// A node without jobs.
struct Node {
    served: Served,
    url: String,
    token: Option<String>,
    http: Client,
    /// Everything that was answered.
    told: String,
}

impl Node {
    fn start(place: &Place, options: &[&str]) -> Self {
        let mut arguments = vec!["run", "--listen", "127.0.0.1:0"];
        arguments.extend(options);
        let mut command = place.command(&arguments);
        command.env("THALWEG_LOG", "info").env(VARIABLE, SECRET);
        let mut served = Served::of(command);
        let url = format!("http://{}", served.address());
        let token = std::fs::read_to_string(place.path().join("D/admin.token")).ok();
        let token = token.map(|token| token.trim().to_owned());
        Self { served, url, token, http: Client::new(), told: String::new() }
    }

    fn send(&mut self, request: RequestBuilder) -> (u16, String) {
        let reply = request.send().expect("it answers");
        let status = reply.status().as_u16();
        self.told += &format!("{:?}", reply.headers());
        let body = reply.text().expect("a body");
        self.told += &body;
        (status, body)
    }

    fn get(&mut self, path: &str) -> (u16, String) {
        self.send(self.http.get(format!("{}{path}", self.url)))
    }

    fn start_job(&mut self, name: &str, job: &Value) -> (u16, String) {
        let request = self.http.post(format!("{}/v1/jobs/{name}", self.url)).body(job.to_string());
        let token = self.token.clone();
        self.send(request.bearer_auth(token.expect("a token")))
    }

    /// The job once it has failed.
    fn failed(&mut self, name: &str) -> Value {
        let begun = Instant::now();
        loop {
            let (status, body) = self.get(&format!("/v1/jobs/{name}"));
            assert_eq!(status, 200, "{body}");
            let job: Value = serde_json::from_str(&body).unwrap();
            if job["state"] == "failed" {
                return job;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{name} does not fail: {body}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ends(self) -> (Ended, String) {
        (self.served.ends("-TERM"), self.told)
    }
}

fn reading(name: &str, source: &Value, more: Value) -> Value {
    let mut job = json!({ "name": name, "sources": { "p": source } });
    for (key, value) in more.as_object().unwrap() {
        job[key] = value.clone();
    }
    if job["sinks"].is_null() {
        job["sinks"] = json!({ "o": { "type": "null", "input": "p" } });
    }
    job
}

#[test]
fn jobs_are_started_with_the_token_alone_and_name_only_what_is_allowed() {
    let place = Place::with(&[("secret", CONTENT), ("victim", "important=1\n")]);
    std::fs::create_dir(place.path().join("may")).unwrap();
    std::fs::write(place.path().join("may/own"), format!("{CONTENT}\n1\n")).unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    let mut node = Node::start(&place, &["--data-dir", "D", "--allow-path", "may"]);
    let token_file = std::fs::canonicalize(path("D/admin.token")).unwrap();
    let token = node.token.clone().unwrap();
    assert_eq!(token_file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);

    let read = |name: &str, from: &str| {
        reading(
            name,
            &json!({ "type": "file", "path": from, "format": "csv", "schema": { "k": "string" } }),
            json!({}),
        )
    };
    let write = |name: &str, to: &str| {
        let sink = json!({ "o": { "type": "file", "input": "p", "path": to, "format": "csv" } });
        reading(
            name,
            &json!({ "type": "generator", "kind": "payments", "count": 1 }),
            json!({ "sinks": sink }),
        )
    };
    for job in [read("a", &path("secret")), write("a", &path("victim")), read("a", &path("may/own"))] {
        let url = format!("{}/v1/jobs/a", node.url);
        let request = || node.http.post(&url).body(job.to_string());
        let (without, wrong) = (request(), request().bearer_auth("0".repeat(64)));
        for (request, expected) in [(without, 401), (wrong, 403)] {
            let (status, body) = node.send(request);
            assert_eq!(status, expected, "{body}");
            assert!(body.contains("admin.token") && !body.contains(&token), "{body}");
        }
        let (status, body) = node.send(node.http.delete(&url));
        assert_eq!(status, 401, "{body}");
    }
    for (job, named) in [
        (read("a", &path("secret")), "secret"),
        (read("a", "secret"), "secret"),
        (read("a", "may/../secret"), "secret"),
        (read("a", &path("D/admin.token")), "admin.token"),
        (read("a", "/proc/self/environ"), "environ"),
        (write("a", &path("victim")), "victim"),
        (write("a", "may/../victim"), "victim"),
        (write("a", &path("D/jobs/a/commit.log")), "commit.log"),
    ] {
        let (status, body) = node.start_job("a", &job);
        assert_eq!(status, 400, "{body}");
        for part in ["--allow-path", "\\\"path\\\" of ", named] {
            assert!(body.contains(part), "{part} is not in {body}");
        }
    }
    // A file that may be read, and is no such CSV: its content is for the log.
    let (status, body) = node.start_job("a", &read("a", "may/own"));
    assert!(status == 400 && body.contains("lacks field \\\"k\\\""), "{status} {body}");
    let (status, body) = node.start_job("b", &write("b", "may/out.csv"));
    assert_eq!(status, 201, "{body}");
    assert_eq!(place.read("victim"), "important=1\n");
    assert_eq!(node.get("/v1/jobs").0, 200);
    // A job that is stopped at once need not have made its record.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !node.get("/v1/jobs/b").1.contains("\"records\":1") {
        assert!(std::time::Instant::now() < deadline, "{}", node.get("/v1/jobs/b").1);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let url = format!("{}/v1/jobs/b", node.url);
    let (status, body) = node.send(node.http.delete(url).bearer_auth(&token));
    assert_eq!(status, 200, "{body}");
    let (ended, told) = node.ends();
    assert!(!told.contains(CONTENT) && !told.contains(&token), "{told}");
    assert!(ended.stderr.contains(CONTENT), "the log reports the findings: {}", ended.stderr);
    assert!(!ended.stderr.contains(&token), "{}", ended.stderr);
    assert!(place.read("may/out.csv").lines().count() == 2);

    // The token stays from start to start; one that others can read ends the start.
    let node = Node::start(&place, &["--data-dir", "D"]);
    assert_eq!(node.token.as_deref(), Some(token.as_str()));
    node.ends().0.ends_with(0);
    std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let ended = place.thalweg(&["run", "--listen", "127.0.0.1:0", "--data-dir", "D"]).ends_with(2);
    assert!(ended.stderr.contains("admin.token") && ended.stderr.contains("0644"), "{}", ended.stderr);
}

#[test]
fn without_a_data_directory_the_start_says_where_the_token_is() {
    let place = Place::with(&[]);
    let mut node = Node::start(&place, &[]);
    let path = node.served.until("admin token: ");
    let token = std::fs::read_to_string(&path).unwrap();
    node.token = Some(token.trim().to_owned());
    let source = json!({ "type": "generator", "count": 3 });
    assert_eq!(node.start_job("a", &reading("a", &source, json!({}))).0, 201);
    let (ended, told) = node.ends();
    assert!(!told.contains(token.trim()) && !ended.stderr.contains(token.trim()));
    assert!(!std::path::Path::new(&path).exists());
}

/// Takes requests and refuses each with the request's text, and more.
fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head);
            let said = format!("cannot parse {CONTENT}");
            let _ = write!(
                stream,
                "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{said}",
                said.len()
            );
        }
    });
    format!("http://{address}")
}

#[test]
fn no_reply_tells_what_is_in_files_and_nothing_tells_secrets() {
    let place = Place::with(&[]);
    std::fs::create_dir(place.path().join("may")).unwrap();
    for (name, text) in [
        ("header.csv", format!("{CONTENT},x\n1,2\n")),
        ("quote.csv", format!("\"{CONTENT}\n1\n")),
        ("cell.csv", format!("n\n{CONTENT}\n")),
        ("line.ndjson", format!("{{\"n\":\"{CONTENT}\"}}\n{{\"{CONTENT}\"\n{CONTENT}\n")),
        ("line.lp", format!("m n=\"{CONTENT}\" x\n{CONTENT}\n")),
        ("good.csv", format!("n,k\n1,{CONTENT}\n")),
        ("range.csv", format!("{CONTENT},10.0.0.9,x\n")),
        ("range_cell.csv", format!("10.0.0.1,10.0.0.9,{CONTENT}\n")),
        ("range_header.csv", format!("first,last,{CONTENT}\n")),
        ("member.csv", format!("{CONTENT},v\n1,2\n")),
        ("member_cell.csv", format!("k,v\nx,{CONTENT}\n")),
        ("member_twice.csv", format!("k,v\n{CONTENT},1\n{CONTENT},2\n")),
        ("names.csv", format!("{CONTENT},name\n")),
        ("table.mmdb", CONTENT.repeat(100)),
        ("capture.pcap", CONTENT.repeat(100)),
        ("table.lookup", CONTENT.repeat(100)),
        ("token", format!("{SECRET}\n")),
        ("odd_token", format!("{SECRET}\u{1}\n")),
    ] {
        std::fs::write(place.path().join("may").join(name), text).unwrap();
    }
    let mut node = Node::start(&place, &["--data-dir", "D", "--allow-path", "may", "--allow-env", VARIABLE]);
    let file = |path: &str, format: &str, schema: Value| json!({ "type": "file", "path": format!("may/{path}"), "format": format, "schema": schema, "reject_limit": 0 });
    let good = || file("good.csv", "csv", json!({ "n": "int64", "k": "string" }));
    let join = |options: Value| {
        let mut operator = json!({ "input": "p" });
        for (key, value) in options.as_object().unwrap() {
            operator[key] = value.clone();
        }
        let sinks = json!({ "o": { "type": "null", "input": "j" } });
        reading(
            "t",
            &json!({ "type": "generator", "kind": "flows", "count": 1 }),
            json!({ "operators": { "j": operator }, "sinks": sinks }),
        )
    };
    let range = |table: &str, header: bool| {
        join(
            json!({ "type": "range_join", "table": format!("may/{table}"), "header": header, "on": { "a": "src_addr" },
            "schema": { "first": "ip", "last": "ip", "asn": "uint64" } }),
        )
    };
    let member = |table: &str, value: &str| {
        join(json!({ "type": "member_join", "table": format!("may/{table}"), "on": { "m": ["src_mac"] },
            "keys": ["k"], "schema": { "k": "string", "v": value }, "bad_lines": "refuse" }))
    };
    let sink = |options: Value| {
        let mut sink = json!({ "type": "influx", "input": "p", "measurement": "m", "retry_for": "0s" });
        for (key, value) in options.as_object().unwrap() {
            sink[key] = value.clone();
        }
        reading("t", &good(), json!({ "sinks": { "o": sink } }))
    };
    let refusing = refusing();
    let at_start = [
        ("CSV header", reading("t", &file("header.csv", "csv", json!({ "n": "int64" })), json!({}))),
        ("capture", reading("t", &json!({ "type": "pcap", "path": "may/capture.pcap" }), json!({}))),
        ("range", range("range.csv", false)),
        ("range cell", range("range_cell.csv", false)),
        ("range header", range("range_header.csv", true)),
        ("mmdb", range("table.mmdb", false)),
        ("member header", member("member.csv", "int64")),
        ("member cell", member("member_cell.csv", "int64")),
        ("member twice", member("member_twice.csv", "int64")),
        (
            "lookup table",
            join(json!({ "type": "lookup_join", "table": "may/table.lookup", "on": { "l": "src_addr" } })),
        ),
        (
            "lookup names",
            join(
                json!({ "type": "lookup_join", "table": "may/new.lookup", "csv": "may/names.csv", "on": { "l": "src_addr" } }),
            ),
        ),
        ("literal password", sink(json!({ "url": refusing, "token": SECRET }))),
        ("password in the URL", sink(json!({ "url": format!("http://me:{SECRET}@127.0.0.1:1") }))),
        ("variable that is not allowed", sink(json!({ "url": refusing, "token": "env:HOME" }))),
        (
            "password of the state",
            reading(
                "t",
                &good(),
                json!({ "state": { "backend": "redis", "url": format!("redis://:{SECRET}@127.0.0.1:1") } }),
            ),
        ),
        (
            "store that is not there",
            reading(
                "t",
                &good(),
                json!({ "state": { "backend": "redis", "url": "redis://127.0.0.1:1", "password": "file:may/token" } }),
            ),
        ),
    ];
    for (what, job) in &at_start {
        let (status, body) = node.start_job("t", job);
        assert!((400..=504).contains(&status), "{what}: {status} {body}");
        assert!(!body.contains(CONTENT) && !body.contains(SECRET), "{what}: {body}");
    }
    let while_running = [
        ("CSV quote", reading("t", &file("quote.csv", "csv", json!({ "n": "int64" })), json!({}))),
        ("CSV cell", reading("t", &file("cell.csv", "csv", json!({ "n": "int64" })), json!({}))),
        ("NDJSON line", reading("t", &file("line.ndjson", "ndjson", json!({ "n": "int64" })), json!({}))),
        (
            "line protocol",
            reading("t", &file("line.lp", "line_protocol", json!({ "n": "int64" })), json!({})),
        ),
        (
            "points that are refused",
            sink(json!({ "url": refusing, "token": format!("env:{VARIABLE}"), "tags": ["k"] })),
        ),
        ("token from a file", sink(json!({ "url": refusing, "token": "file:may/token", "tags": ["k"] }))),
        ("token that no header carries", sink(json!({ "url": refusing, "token": "file:may/odd_token" }))),
    ];
    for (number, (what, job)) in while_running.iter().enumerate() {
        let name = format!("r{number}");
        let mut job = job.clone();
        job["name"] = name.as_str().into();
        let (status, body) = node.start_job(&name, &job);
        // It may have failed by then.
        assert_eq!(status, 201, "{what}: {body}");
        let failed = node.failed(&name);
        assert!(
            failed["failure"]["message"].as_str().is_some_and(|said| !said.is_empty()),
            "{what}: {failed}"
        );
        let told = failed.to_string();
        assert!(!told.contains(CONTENT) && !told.contains(SECRET), "{what}: {told}");
    }
    for path in ["/v1/jobs", "/metrics", "/openapi.json", "/healthz", "/readyz"] {
        node.get(path);
    }
    let (ended, told) = node.ends();
    assert!(!told.contains(CONTENT), "{told}");
    assert!(ended.stderr.contains(CONTENT), "the log has it: {}", ended.stderr);
    let mut shown = told + &ended.stderr + &ended.stdout;
    for arguments in [vec!["inspect", "D"], vec!["inspect", "D", "--json"], vec!["verify", "D"]] {
        let ended = place.thalweg(&arguments);
        shown += &(ended.stdout + &ended.stderr);
    }
    for (number, (_, job)) in while_running.iter().enumerate() {
        let file = format!("job{number}.json");
        place.write(&file, job.to_string().as_bytes());
        for verb in ["check", "explain"] {
            let ended = Ended::of(place.command(&[verb, &file]).env(VARIABLE, SECRET).output().unwrap());
            shown += &(ended.stdout + &ended.stderr);
        }
        shown += &place.read(&format!("D/jobs/r{number}/job.json"));
    }
    assert!(shown.contains(VARIABLE) && shown.contains("may/token"), "references are shown");
    assert!(!shown.contains(SECRET), "{shown}");
}

#[test]
fn a_node_stays_when_its_last_job_is_stopped_and_takes_it_again() {
    let job = json!({
        "name": "a",
        "sources": { "p": { "type": "http", "schema": { "k": "string" } } },
        "sinks": { "o": { "type": "null", "input": "p" } },
    });
    let place = Place::with(&[("job.json", &job.to_string())]);
    let mut node = Node::start(&place, &["job.json", "--data-dir", "D"]);
    let url = format!("{}/v1/jobs/a", node.url);
    for _ in 0..2 {
        let token = node.token.clone().unwrap();
        let (status, body) = node.send(node.http.delete(&url).bearer_auth(&token));
        assert_eq!(status, 200, "{body}");
        // Longer than it takes to see that no job is left.
        std::thread::sleep(std::time::Duration::from_millis(400));
        let (status, body) = node.start_job("a", &job);
        assert_eq!(status, 201, "{body}");
    }
    node.ends().0.ends_with(0);
}
