//! The program without features: its work, and its messages about missing parts.
//!
//! `cargo test --package thalweg-cli --no-default-features --test small` runs it; `cargo xtask test` does.

#![cfg(not(any(
    feature = "http",
    feature = "influxdb",
    feature = "kafka",
    feature = "postgres",
    feature = "remote-state",
    feature = "sql",
    feature = "tables"
)))]

use std::path::Path;
use std::process::Command;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the program in `folder`.
fn thalweg(folder: &Path, args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg")).args(args).current_dir(folder).output();
    let output = output.expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A job with this sink and this further section.
fn job(sink: &str, more: &str) -> String {
    format!(
        "name: demo\n\
         sources: {{ s: {{ type: file, path: in.csv, schema: {{ ts: timestamp(ms), k: string }}, time: ts }} }}\n\
         sinks: {{ out: {sink} }}\n{more}"
    )
}

/// The program refuses to check this job, and names the feature that it lacks.
fn refused(job: &str, expected: &str, feature: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("job.yaml"), job).expect("written");
    std::fs::write(folder.path().join("in.csv"), "ts,k\n1,a\n").expect("written");
    let ran = thalweg(folder.path(), &["check", "job.yaml"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("--features {feature}")), "{}", ran.stderr);
}

#[test]
fn the_first_job_of_the_readme_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ran = thalweg(&root, &["run", "examples/first/payments.yaml"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let last = ran.stdout.lines().last();
    let expected =
        r#"{"ts":1700003600000,"card":"c1","merchant":"m9","amount":1.25,"card_1h":{"spent":4.75,"n":2}}"#;
    assert_eq!(last, Some(expected));
}

#[test]
fn sinks_that_are_left_out_are_named_with_their_feature() {
    let sink = |kind: &str, rest: &str| job(&format!("{{ type: {kind}, input: s{rest} }}"), "");
    let postgres = sink("postgres", ", url: 'postgres://me@127.0.0.1/shop', table: t");
    refused(&postgres, "of type \"postgres\", which this build does not have", "postgres");
    let influx = sink("influx", ", url: 'http://127.0.0.1:8086', database: d, measurement: m");
    refused(&influx, "of type \"influx\", which this build does not have", "influxdb");
    refused(&sink("table", ""), "of type \"table\", which this build does not have", "tables");
    let kafka = sink("kafka", ", brokers: '127.0.0.1:9092', topic: t");
    refused(&kafka, "of type \"kafka\", which this build does not have", "kafka");
}

#[test]
fn sources_that_are_left_out_are_named_with_their_feature() {
    let job = job("{ type: 'null', input: s }", "");
    let job = job.replace("type: file, path: in.csv", "type: kafka, brokers: '127.0.0.1:9092', topics: t");
    refused(&job, "of type \"kafka\", which this build does not have", "kafka");
}

#[test]
fn back_ends_that_are_left_out_are_named_with_their_feature() {
    for backend in
        ["{ backend: redis, url: 'redis://127.0.0.1' }", "{ backend: hbase, url: 'http://h:8080' }"]
    {
        let job = job("{ type: 'null', input: s }", &format!("state: {backend}\n"));
        refused(&job, "is not in this build", "remote-state");
    }
}

#[test]
fn verbs_that_are_left_out_are_named_with_their_feature() {
    let folder = tempfile::tempdir().expect("a folder");
    for (args, feature) in [
        (&["sql", "SELECT 1", "--data-dir", "d", "--format=csv"][..], "sql"),
        (&["sql"], "sql"),
        (&["run", "--listen", "0"], "http"),
    ] {
        let ran = thalweg(folder.path(), args);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("--features {feature}")), "{}", ran.stderr);
    }
}
