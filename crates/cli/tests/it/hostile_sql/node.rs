//! The same from outside: a node with a job, and `thalweg sql`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{children_of, eventually};
use crate::Place;
use crate::faults::{Served, post};

const JOB: &str = "\
name: served
cycle: { every: 50ms }
sources:
  lines: { type: http, format: ndjson, schema: { a: int64 } }
sinks:
  t: { type: table, input: lines }
";

/// Status and body of a reply to a query.
fn sql(address: &str, text: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the node listens");
    let head = format!(
        "POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes())).expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, reply.split_once("\r\n\r\n").expect("a body").1.to_owned())
}

#[test]
fn a_node_and_its_job_go_on_beside_hostile_queries() {
    let place = Place::with(&[]);
    let mut served = Served::start(&place, JOB);
    let address = served.address();
    let mut sent = 0;
    let mut record = || {
        let body = format!("{{\"a\":{sent}}}\n");
        sent += 1;
        let mut answer = [0; 12];
        post(&address, body.len(), &body).read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200");
        sent
    };
    record();
    for (text, status, said) in [
        (
            "SELECT approx_percentile_cont(a, 0.5, 99999999999999) FROM t",
            400,
            "query stopped: queries may take 256MiB",
        ),
        ("SELECT length(repeat('a', 2000000000))", 400, "query stopped: queries may take 256MiB"),
        (
            &("SELECT 1".to_owned() + &" UNION ALL SELECT 1".repeat(20_000)),
            400,
            "query stopped: it is nested too deep",
        ),
        ("SELECT nothing", 400, "no column"),
    ] {
        let (got, body) = sql(&address, text);
        assert_eq!(got, status, "{body}");
        assert!(body.contains(said), "{body}");
        let rows = record();
        let (status, body) = sql(&address, "SELECT count(*) AS n FROM t");
        assert_eq!((status, body.contains(&format!("{{\"n\":{rows}}}"))), (200, true), "{body}");
    }
    let mut stream = TcpStream::connect(&address).expect("the node listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    for line in
        ["thalweg_sql_stopped_total{reason=\"depth\"} 1", "thalweg_sql_stopped_total{reason=\"other\"} 0"]
    {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    let ended = served.ends("-TERM").ends_with(0);
    assert_eq!(ended.counts().0, sent);
}

#[test]
fn a_node_that_is_killed_takes_its_processes_along() {
    let place = Place::with(&[]);
    let mut served = Served::start(&place, JOB);
    let address = served.address();
    let mut slow = TcpStream::connect(&address).expect("the node listens");
    let head =
        format!("POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", super::HOG.len());
    slow.write_all((head + super::HOG).as_bytes()).unwrap();
    // One for each place that is taken, one more, and one for tries.
    let node = served.id();
    eventually("a query at work", || children_of(node).len() == 3);
    let children = children_of(node);
    served.killed();
    // Whoever takes them over may not have waited for them yet.
    eventually("their end", || {
        children.iter().all(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_or(true, |stat| stat.contains("(thalweg-sql) Z") || !stat.contains("(thalweg-sql)"))
        })
    });
}

#[test]
fn a_command_ends_with_a_message_and_never_by_a_signal() {
    let place = Place::with(&[(
        "job.yaml",
        "\
name: j
sources:
  p: { type: generator, kind: payments, count: 100 }
sinks:
  t: { type: table, input: p }
",
    )]);
    place.thalweg(&["run", "job.yaml", "--data-dir", "D"]).ends_with(0);
    let ask =
        |more: &[&str]| place.thalweg(&[&["sql"], more, &["--data-dir", "D", "--format", "csv"]].concat());
    let counted = ask(&["SELECT count(*) AS n FROM t"]).ends_with(0);
    assert_eq!((counted.stdout.as_str(), counted.stderr.as_str()), ("n\n100\n", ""));
    let chain = "SELECT 1".to_owned() + &" UNION ALL SELECT 1".repeat(5_000);
    for (arguments, said) in [
        (vec!["SELECT repeat('a', 2000000000) AS x"], "query stopped: queries may take 1GiB of memory"),
        (
            vec!["SELECT approx_percentile_cont(amount, 0.5, 99999999999999) FROM t", "--memory", "64MiB"],
            "queries may take 64MiB",
        ),
        (vec![&chain], "query stopped: it is nested too deep"),
        (vec![super::HOG, "--timeout", "300ms"], "query stopped: it took longer than 300ms"),
    ] {
        let ended = ask(&arguments).ends_with(2);
        assert!(ended.stderr.contains(said) && ended.stderr.contains("hint: "), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 2, "{}", ended.stderr);
    }
}

#[test]
fn a_worker_that_nobody_started_says_so() {
    let ended = Place::with(&[]).thalweg(&["sql-worker"]).ends_with(2);
    assert!(ended.stderr.contains("no node started this process"), "{}", ended.stderr);
    let help = Place::with(&[]).thalweg(&["--help"]).ends_with(0);
    assert!(!help.stdout.contains("sql-worker"), "{}", help.stdout);
}
