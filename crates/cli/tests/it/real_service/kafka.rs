//! Jobs over topics of Apache Kafka: what a reader that is no part of the engine has in the end, and how a job ends that
//! cannot go on.
//!
//! Topics are made, filled and read by Kafka's own tools.

#[cfg(feature = "cluster")]
mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::super::{Ended, Place};
use super::{eventually, told};

const PARTITIONS: u64 = 3;

fn broker() -> String {
    told("THALWEG_KAFKA")
}

fn tool(class: &str, arguments: &[&str]) -> Command {
    tool_at(&broker(), class, arguments)
}

/// One for another broker.
fn tool_at(broker: &str, class: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(told("THALWEG_KAFKA_TOOL"));
    command.arg(class).args(["--bootstrap-server", broker]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn run(mut command: Command) -> String {
    let output = command.output().expect("the tool runs");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";

fn topic(what: &str, more: &[&str]) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    make(&name, more);
    name
}

fn make(name: &str, more: &[&str]) {
    let partitions = PARTITIONS.to_string();
    run(tool(TOPICS, &[&["--create", "--topic", name, "--partitions", &partitions], more].concat()));
}

/// Appends messages, one line each: key, tab, value.
fn fill(topic: &str, lines: &str) {
    let class = "org.apache.kafka.tools.ConsoleProducer";
    let mut command = tool(class, &["--topic", topic, "--reader-property", "parse.key=true"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the tool runs");
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success());
}

/// The values of a topic and the headers before them, as a reader with `read_committed` has them once there are so many.
fn read(topic: &str, count: usize) -> Vec<(String, Value)> {
    rows_in(&run(consumer(&broker(), topic, 20, &["--max-messages", &count.to_string()])))
}

/// All that such a reader has, where nothing more comes.
fn read_all(broker: &str, topic: &str) -> Vec<(String, Value)> {
    // It says that nothing came for so long, and ends with an error.
    let output = consumer(broker, topic, 5, &[]).output().expect("the tool runs");
    rows_in(&String::from_utf8(output.stdout).expect("UTF-8"))
}

/// One that ends where nothing has come for so many seconds.
fn consumer(broker: &str, topic: &str, patience: u32, more: &[&str]) -> Command {
    let patience = (1_000 * patience).to_string();
    let arguments = ["--topic", topic, "--from-beginning", "--isolation-level", "read_committed"];
    let ends = ["--timeout-ms", &patience, "--formatter-property", "print.headers=true"];
    let class = "org.apache.kafka.tools.consumer.ConsoleConsumer";
    tool_at(broker, class, &[&arguments[..], &ends, more].concat())
}

fn rows_in(said: &str) -> Vec<(String, Value)> {
    let line = |line: &str| {
        let (headers, value) = line.split_once('\t').expect("headers and a value");
        (headers.to_owned(), serde_json::from_str(value).expect("JSON"))
    };
    said.lines().map(line).collect()
}

/// What is there beyond `count` messages.
fn beyond(topic: &str, count: usize) -> String {
    let said = run(tool("org.apache.kafka.tools.GetOffsetShell", &["--topic", topic]));
    let ends: u64 = said.lines().filter_map(|line| line.rsplit(':').next()?.parse::<u64>().ok()).sum();
    format!("{ends} offsets for {count} messages")
}

/// Payments `from..to` of seven cards, a message each.
fn payments(from: u64, to: u64) -> String {
    (from..to)
        .map(|n| format!("c{0}\t{{\"ts\":{1},\"card\":\"c{0}\",\"amount\":{n}}}\n", n % 7, 1_000_000 + n))
        .collect()
}

fn job(name: &str, from: &str, more: &str, sinks: &str) -> String {
    let broker = broker();
    format!(
        "name: {name}
cycle: {{ every: 50ms }}
sources:
  payments:
    type: kafka
    brokers: {broker}
    topics: {from}
    schema: {{ ts: timestamp(ms), card: string, amount: int64, _partition: int64, _offset: int64 }}
    time: ts
    lateness: 1h
    {more}
operators:
  features:
    type: metrics
    input: payments
    partition_by: card
    queries:
      all: SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER INFINITE
sinks:
{sinks}
"
    )
}

fn sink(to: &str, delivery: &str) -> String {
    let broker = broker();
    format!(
        "  out: {{ type: kafka, input: features, brokers: \"{broker}\", topic: {to}, key: card, delivery: {delivery} }}"
    )
}

/// Each payment has one answer, which counts the payments of its card up to it: the messages of a card are in order, in
/// one partition.
fn assert_answers(answers: &[Value], count: u64) {
    let mut seen: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    let places: BTreeSet<(u64, u64)> = answers
        .iter()
        .map(|answer| (answer["_partition"].as_u64().unwrap(), answer["_offset"].as_u64().unwrap()))
        .collect();
    assert_eq!((places.len() as u64, answers.len() as u64), (count, count), "each record once");
    for answer in answers {
        let (card, amount) = (answer["card"].as_str().unwrap(), answer["amount"].as_u64().unwrap());
        let before = seen.entry(card).or_default();
        before.insert(amount);
        let (spent, n) = (before.iter().sum::<u64>(), before.len() as u64);
        assert_eq!(answer["all"], serde_json::json!({ "spent": spent, "n": n }), "{answer}");
    }
}

/// Drops what was sent twice, by the headers.
fn once(rows: Vec<(String, Value)>, job: &str) -> Vec<Value> {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut kept = Vec::new();
    for (headers, value) in rows {
        let header = |name: &str| {
            let found = headers.split(',').find_map(|header| header.strip_prefix(name)?.strip_prefix(':'));
            found.unwrap_or_else(|| panic!("{name} in {headers}")).to_owned()
        };
        assert_eq!(header("thalweg-sink"), format!("{job}/out"));
        let position: u64 = header("thalweg-position").parse().expect("one row of each record");
        // The rows of a card are in one partition; the tool does not say which.
        let card = value["card"].as_str().unwrap().to_owned();
        if last.get(&card).is_none_or(|last| position > *last) {
            last.insert(card, position);
            kept.push(value);
        }
    }
    kept
}

#[test]
#[ignore = "needs Kafka"]
fn a_topic_goes_to_a_topic_a_file_and_a_table() {
    let (from, to) = (topic("in", &[]), topic("out", &[]));
    fill(&from, &payments(0, 1_000));
    let sinks = format!(
        "{}
  file: {{ type: file, input: features, path: answers.ndjson, format: ndjson }}
  rows: {{ type: table, input: payments, time: ts }}",
        sink(&to, "positions")
    );
    let place = Place::with(&[("job.yaml", &job("whole", &from, "until: latest", &sinks))]);
    let ended = place.thalweg(&["run", "job.yaml", "--data-dir", "d"]).ends_with(0);
    assert_eq!(ended.counts(), (1_000, 1_000, 0));
    let file: Vec<Value> =
        place.read("answers.ndjson").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_answers(&file, 1_000);
    let rows: Vec<Value> = read(&to, 1_000).into_iter().map(|(_, value)| value).collect();
    assert_answers(&rows, 1_000);
    let counted = place
        .thalweg(&[
            "sql",
            "SELECT count(*) AS n, sum(amount) AS total FROM rows",
            "--data-dir",
            "d",
            "--format",
            "ndjson",
        ])
        .ends_with(0);
    assert_eq!(counted.stdout.trim(), "{\"n\":1000,\"total\":499500}");
}

fn spawn(place: &Place) -> Child {
    let mut command = place.command(&["run", "job.yaml", "--data-dir", "d"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the binary runs")
}

/// Killed again and again while the topic fills, then ended in order.
fn killed(delivery: &str) {
    let (from, to) = (topic("in", &[]), topic("out", &[]));
    let name = format!("killed-{delivery}-{}", std::process::id());
    let place = Place::with(&[("job.yaml", &job(&name, &from, "", &sink(&to, delivery)))]);
    for life in 0..5 {
        fill(&from, &payments(life * 300, (life + 1) * 300));
        let mut child = spawn(&place);
        std::thread::sleep(Duration::from_millis(300 + 150 * life));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
    place.write("job.yaml", job(&name, &from, "until: latest", &sink(&to, delivery)).as_bytes());
    place.thalweg(&["run", "job.yaml", "--data-dir", "d"]).ends_with(0);
    let told = beyond(&to, 1_500);
    let rows = match delivery {
        "transactions" => read(&to, 1_501).into_iter().map(|(_, value)| value).collect(),
        _ => once(read(&to, 100_000), &name),
    };
    eprintln!("{delivery}: {told}");
    assert_answers(&rows, 1_500);
}

#[test]
#[ignore = "needs Kafka"]
fn a_job_that_is_killed_writes_each_row_once_by_transactions() {
    killed("transactions");
}

#[test]
#[ignore = "needs Kafka"]
fn a_job_that_is_killed_writes_rows_that_say_their_positions() {
    killed("positions");
}

#[test]
#[ignore = "needs Kafka"]
fn lag_is_shown_by_kafkas_own_tool() {
    let from = topic("in", &[]);
    fill(&from, &payments(0, 700));
    let name = format!("lag-{}", std::process::id());
    let sinks = "  out: { type: null, input: features }";
    let place = Place::with(&[("job.yaml", &job(&name, &from, "", sinks))]);
    let mut child = spawn(&place);
    let group = format!("thalweg.{name}.payments");
    let lag = || -> Option<(u64, u64)> {
        let class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
        let said = run(tool(class, &["--describe", "--group", &group]));
        let rows = said.lines().filter(|line| line.contains(&from));
        let rows: Vec<Vec<&str>> = rows.map(|line| line.split_whitespace().collect()).collect();
        let sum = |at: usize| rows.iter().map(|row| row[at].parse::<u64>().unwrap_or(0)).sum();
        (rows.len() as u64 == PARTITIONS).then(|| (sum(3), sum(5)))
    };
    eventually("the group has all", || (lag() == Some((700, 0))).then_some(()));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    fill(&from, &payments(700, 800));
    assert_eq!(lag(), Some((700, 100)), "what came while the job was away");
}

/// A job that has read a topic to its end, and what it says when it is to go on.
fn goes_on_after(change: impl FnOnce(&str), more: &[&str]) -> Ended {
    let from = topic("in", &[]);
    fill(&from, &payments(0, 300));
    let sinks = "  out: { type: null, input: features }";
    let place = Place::with(&[("job.yaml", &job("changed", &from, "until: latest", sinks))]);
    let run = ["run", "job.yaml", "--data-dir", "d"];
    assert_eq!(place.thalweg(&run).ends_with(0).counts().0, 300);
    change(&from);
    place.thalweg(&[&run[..], more].concat())
}

#[test]
#[ignore = "needs Kafka"]
fn a_topic_that_was_made_anew_while_the_job_was_down_is_refused() {
    let ended = goes_on_after(
        |from| {
            run(tool(TOPICS, &["--delete", "--topic", from]));
            eventually("it is gone", || (!run(tool(TOPICS, &["--list"])).contains(from)).then_some(()));
            make(from, &[]);
            fill(from, &payments(0, 400));
        },
        &[],
    )
    .ends_with(3);
    assert!(ended.stderr.contains("was deleted and made anew"), "{}", ended.stderr);
}

fn delete_all_but_ten(from: &str) {
    // What comes later, and is deleted before the job has read it.
    fill(from, &payments(300, 600));
    let folder = tempfile::tempdir().expect("a folder");
    let said = run(tool("org.apache.kafka.tools.GetOffsetShell", &["--topic", from]));
    let partitions: Vec<Value> = said
        .lines()
        .filter_map(|line| {
            let (partition, end) = line.strip_prefix(&format!("{from}:"))?.split_once(':')?;
            let end: u64 = end.parse().ok()?;
            let partition: u64 = partition.parse().ok()?;
            Some(serde_json::json!({ "topic": from, "partition": partition, "offset": end.saturating_sub(10) }))
        })
        .collect();
    let file = folder.path().join("offsets.json");
    let json = serde_json::json!({ "version": 1, "partitions": partitions });
    std::fs::write(&file, json.to_string()).expect("a file");
    let class = "org.apache.kafka.tools.DeleteRecordsCommand";
    run(tool(class, &["--offset-json-file", file.to_str().expect("UTF-8")]));
}

#[test]
#[ignore = "needs Kafka"]
fn records_that_were_deleted_before_they_were_read_are_refused_or_left_out() {
    let ended = goes_on_after(delete_all_but_ten, &[]).ends_with(3);
    let said = "messages were deleted before they were read";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert!(ended.stderr.contains("--set sources.payments.missing=skip"), "{}", ended.stderr);
    let ended = goes_on_after(delete_all_but_ten, &["--set", "sources.payments.missing=skip"]).ends_with(0);
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    let (records, ..) = ended.counts();
    assert!((10..=30).contains(&records), "{}", ended.stderr);
}

#[test]
#[ignore = "needs Kafka"]
fn a_topic_that_does_not_exist_is_named_at_the_start() {
    let sinks = "  out: { type: null, input: features }";
    let place = Place::with(&[("job.yaml", &job("none", "no-such-topic", "", sinks))]);
    let ended = place.thalweg(&["run", "job.yaml"]).ends_with(1);
    assert!(ended.stderr.contains("look up topic \"no-such-topic\""), "{}", ended.stderr);
    assert!(ended.stderr.contains("make the topic first"), "{}", ended.stderr);
}
