//! `nodes`, `cluster explain` and `drain`: what they ask a node, and what they make of its answers.
#![cfg(feature = "cluster")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::faults::Served;
use super::{Ended, Place};

/// Answers one request; gives its head back.
fn node(status: u32, body: &Value) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let body = body.to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        let mut head = String::new();
        let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("a line") > 0, "{head}");
        }
        let length = body.len();
        let reply =
            format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(reply.as_bytes()).expect("it is taken");
        let _ = stream.read(&mut [0; 16]);
        head
    });
    (url, answering)
}

fn member(name: &str, drains: bool) -> Value {
    json!({
        "name": name, "host": "h", "capacity": 2, "address": "127.0.0.1:9", "semantics": [1], "plans": name == "a",
        "drains": drains, "beat_age_seconds": 0.125, "units_active": 3, "units_followed": 1,
    })
}

fn cluster() -> Value {
    let unit = |partition: u32, report: Value| {
        json!({
            "job": "pay", "stage": "features", "partition": partition, "active": "a", "since": 7, "why": "new: most budget",
            "from": null, "followers": [], "report": report, "trouble": [], "gaps": [], "failure": null,
            "explanation": format!("unit pay/features/{partition} is at a by the plan at offset 7\nnext: a keeps it\n"),
        })
    };
    let report = json!({ "rows_per_second": 5, "bytes": 2048, "position": 100, "ready": false });
    json!({
        "node": "a", "prefix": "thalweg", "read": 9, "plan": { "offset": 7, "author": "a" }, "unplanned": 0,
        "members": [member("a", false), member("b", true)],
        "jobs": [{ "name": "pay", "spec": 1, "semantics": 1,
                   "stages": [{ "name": "features", "partitions": 2, "replicas": 0 }] }],
        "units": [unit(0, report), unit(1, Value::Null)], "units_left_out": 0,
    })
}

/// Runs a command against a node that answers so; what it asked, and how it ended.
fn ask(arguments: &[&str], status: u32, body: &Value) -> (String, Ended) {
    let place = Place::with(&[("token", "t0ken\n")]);
    let (url, answering) = node(status, body);
    let ended = place.thalweg(&[arguments, &["--server", &url]].concat());
    (answering.join().expect("one request"), ended)
}

#[test]
fn nodes_are_listed() {
    let (head, ended) = ask(&["nodes"], 200, &cluster());
    assert!(head.starts_with("GET /v1/cluster HTTP/1.1\r\n"), "{head}");
    let text = ended.ends_with(0).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "cluster thalweg as node a sees it: plan 7 by a");
    assert!(lines[2].starts_with("a ") && lines[2].ends_with("0.1 s ago  plans"), "{text}");
    assert!(lines[3].starts_with("b ") && lines[3].ends_with("drains"), "{text}");
    let (_, ended) = ask(&["nodes", "--format", "json"], 200, &cluster());
    let members: Value = serde_json::from_str(&ended.ends_with(0).stdout).expect("JSON");
    assert_eq!(members, cluster()["members"]);
}

#[test]
fn a_unit_is_explained() {
    let (head, ended) = ask(&["cluster", "explain", "pay", "features/0"], 200, &cluster());
    assert!(head.starts_with("GET /v1/cluster?job=pay HTTP/1.1\r\n"), "{head}");
    let expected = "unit pay/features/0 is at a by the plan at offset 7\nnext: a keeps it\n\
                    last report: at offset 100, with lag; 5 rows/s, 2KiB of state\n";
    assert_eq!(ended.ends_with(0).stdout, expected);
    let (_, ended) = ask(&["cluster", "explain", "pay", "1"], 200, &cluster());
    assert!(ended.ends_with(0).stdout.ends_with("last report: none\n"));
    let (_, ended) = ask(&["cluster", "explain", "pay"], 200, &cluster());
    assert_eq!(ended.ends_with(0).stdout.matches("\n\nunit pay/features/1").count(), 1);
    let (_, ended) = ask(&["cluster", "explain", "pay", "1", "--format", "json"], 200, &cluster());
    let units: Value = serde_json::from_str(&ended.ends_with(0).stdout).expect("JSON");
    assert_eq!(units, json!([cluster()["units"][1]]));
    for unit in ["2", "other/0"] {
        let (_, ended) = ask(&["cluster", "explain", "pay", unit], 200, &cluster());
        assert!(ended.ends_with(2).stderr.contains("features/0 to features/1"), "{unit}");
    }
}

#[test]
fn a_node_is_drained_with_the_token_of_the_one_that_is_asked() {
    let arguments = ["drain", "b", "--token-file", "token"];
    let (head, ended) = ask(&arguments, 200, &member("b", true));
    assert!(head.starts_with("POST /v1/cluster/nodes/b/drain HTTP/1.1\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("authorization: bearer t0ken\r\n"), "{head}");
    assert_eq!(ended.ends_with(0).stderr, "node \"b\" is to have no units; it has 3 now\n");
    let (head, ended) = ask(&[&arguments[..], &["--undo"]].concat(), 200, &member("b", false));
    assert!(head.starts_with("DELETE /v1/cluster/nodes/b/drain HTTP/1.1\r\n"), "{head}");
    assert_eq!(ended.ends_with(0).stderr, "node \"b\" may have units again; it has 3 now\n");
    let place = Place::with(&[]);
    let ended = place.thalweg(&["drain", "b", "--token-file", "none"]).ends_with(2);
    assert!(ended.stderr.contains("--token-file: read \"none\""), "{}", ended.stderr);
}

#[test]
fn refusals_say_what_the_node_says() {
    let error = |message: &str| json!({ "error": { "code": "x", "message": message, "hint": "do so" } });
    for (status, code) in [(404, 2), (401, 2), (504, 1), (503, 1)] {
        let (_, ended) = ask(&["nodes"], status, &error("no"));
        assert_eq!(ended.ends_with(code).stderr, "error: no\n = hint: do so\n");
    }
    let (_, ended) = ask(&["nodes"], 200, &json!({ "jobs": [] }));
    assert!(ended.ends_with(1).stderr.contains("not that of a node of a cluster"));
    let place = Place::with(&[]);
    let ended = place.thalweg(&["nodes", "--server", "http://127.0.0.1:1"]).ends_with(1);
    assert!(ended.stderr.contains("--listen"), "{}", ended.stderr);
    assert!(place.thalweg(&["nodes", "--server", "http://"]).ends_with(2).stderr.contains("--server"));
}

#[test]
fn a_node_that_is_in_no_cluster_says_so() {
    let place = Place::with(&[]);
    let command = place.command(&["run", "--listen", "127.0.0.1:0", "--data-dir", "D"]);
    let mut served = Served::listening(command);
    let url = served.address();
    for arguments in
        [&["nodes"][..], &["cluster", "explain", "pay"], &["drain", "b", "--token-file", "D/admin.token"]]
    {
        let ended = place.thalweg(&[arguments, &["--server", &url]].concat()).ends_with(2);
        assert!(ended.stderr.contains("this node is in no cluster"), "{}", ended.stderr);
    }
    served.ends("-TERM").ends_with(0);
}
