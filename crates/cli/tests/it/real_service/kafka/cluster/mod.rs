//! Nodes of a cluster, each a process, that meet at a real broker.
//!
//! * `alike`: one client, whose answers are those of one node without a cluster, byte for byte.
//! * `leaving`: one client, whose every answer is exact, while nodes are killed and leave.
//! * `pushed`: records by TCP and UDP to each node.
//! * `writing`: one client, while a job writes to topics.
//! * `copies`: one client, while a job writes to topics, and each of three brokers goes away.
//! * `paying`: the client of those two.
//! * `reading`: a job that reads a topic of others, or a file at a node, while nodes are killed and leave.
//! * `disturbed`: many clients while nodes and the broker are killed, paused and cut off, and lose their data; recounted in the end.

#[cfg(target_os = "linux")]
mod alike;
#[cfg(target_os = "linux")]
mod copies;
#[cfg(target_os = "linux")]
mod disturbed;
mod leaving;
mod paying;
mod pushed;
mod reading;
mod writing;

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::super::Run;
use super::Place;

/// A job that counts payments by HTTP per card and per shop. `source` are the source's options and schema, and each query
/// is a name and its SQL.
fn job_file(name: &str, source: &str, queries: &[&str]) -> String {
    job_reading(name, &format!("type: http, {source}"), queries)
}

/// The same by a source of any type.
fn job_reading(name: &str, source: &str, queries: &[&str]) -> String {
    let queries: String = queries.iter().map(|query| format!("      {query}\n")).collect();
    format!(
        "name: {name}
sources: {{ payments: {{ time: ts, max_ahead: none, {source} }} }}
operators:
  features:
    type: metrics
    input: payments
    partition_by: [card, shop]
    partitions: 8
    queries:
{queries}{NOTHING}"
    )
}

const NOTHING: &str = "sinks: { out: { type: 'null', input: features } }\n";

/// Such a job with other sinks.
fn writing_to(job: &str, sinks: &str) -> String {
    let (job, _) = job.split_once(NOTHING).expect("a job without outputs");
    format!("{job}sinks:\n{sinks}")
}

/// A sink of such a job; `brokers` is one or some, with commas between them.
fn sink(brokers: &str, name: &str, topic: &str, delivery: &str) -> String {
    let brokers: Vec<&str> = brokers.split(',').collect();
    format!(
        "  {name}: {{ type: kafka, input: features, brokers: {brokers:?}, topic: {topic}, key: tx, delivery: {delivery} }}\n"
    )
}

/// Rows of a sink, whose name is `JOB/SINK`, by what the headers say: each position once, and always with the same row.
fn by_position(rows: Vec<(String, Value)>, sink: &str) -> Vec<Value> {
    let mut kept: BTreeMap<String, Value> = BTreeMap::new();
    for (headers, row) in rows {
        assert!(headers.contains(&format!("thalweg-sink:{sink}/")), "{headers}");
        let first = kept.entry(headers).or_insert_with(|| row.clone());
        assert_eq!(*first, row, "rows of one position are one row");
    }
    kept.into_values().collect()
}

/// The JSON object in a reply.
fn object_in(text: &str) -> Option<Value> {
    serde_json::from_str(text.get(text.find('{')?..=text.rfind('}')?)?).ok()
}

/// A node in a process, whose data directory has its name.
struct Node {
    run: Run,
    port: u16,
    /// The file of all that its processes say.
    log: String,
}

impl Node {
    /// Of a cluster that has as many copies as brokers are named, with commas between them.
    fn start(place: &Place, brokers: &str, prefix: &str, name: &str, port: u16) -> Self {
        Self::of(place.command(&[]), place, (brokers, prefix), name, port)
    }

    /// The same, of a program that has no arguments yet; brokers come with the prefix.
    fn of(program: Command, place: &Place, cluster: (&str, &str), name: &str, port: u16) -> Self {
        let (brokers, prefix) = cluster;
        let copies = brokers.split(',').count();
        let address = format!("kafka://{brokers}?replication={copies}&prefix={prefix}");
        Self::with(program, place, &["--cluster", &address, "--node", name, "--host-id", name], name, port)
    }

    /// The job on one node, without a cluster.
    fn alone(place: &Place, name: &str, port: u16) -> Self {
        Self::with(place.command(&[]), place, &[], name, port)
    }

    fn with(mut command: Command, place: &Place, args: &[&str], name: &str, port: u16) -> Self {
        command.args(["run", "job.yaml"]).args(args).args([
            "--listen",
            &port.to_string(),
            "--data-dir",
            name,
        ]);
        let log = format!("{name}.log");
        let file = std::fs::File::options().create(true).append(true).open(place.path().join(&log));
        command.stderr(file.expect("a log")).stdout(Stdio::null());
        #[cfg(target_os = "linux")]
        thalweg_harness::process::tie(&mut command);
        Self { run: Run(Some(command.spawn().expect("the binary runs"))), port, log }
    }
}

/// The status of a reply and its body. Each part of it has to come within `patience`.
fn call(method: &str, port: u16, path: &str, body: &str, patience: Duration) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), patience)?;
    stream.set_read_timeout(Some(patience))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    let no_reply = || io::Error::new(io::ErrorKind::UnexpectedEof, format!("expected a reply, got {said:?}"));
    let (head, body) = said.split_once("\r\n\r\n").ok_or_else(no_reply)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(no_reply)?;
    Ok((status, body.to_owned()))
}

/// Sends a record and waits for its answer.
fn post(port: u16, job: &str, record: &str, patience: Duration) -> io::Result<(u16, String)> {
    call("POST", port, &format!("/v1/jobs/{job}/sources/payments"), record, patience)
}
