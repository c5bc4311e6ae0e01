//! `check`, `explain`, `schema`, and the errors of wrong job files and wrong calls.

use super::{Place, job, place};

const METRICS: &str = "\
operators:
  features:
    type: metrics
    input: payments
    partition_by: [card, merchant]
    queries:
      card_1h: SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR
      shop_5m: SELECT avg(amount) AS mean FROM payments WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES DELAYED BY 1 MINUTE
      every: SELECT count(*) FROM payments OVER INFINITE
sinks:
  answers: { type: file, input: features, path: answers.ndjson, format: ndjson }
";

#[test]
fn check_prints_graph_and_plans() {
    let ended = place(METRICS).thalweg(&["check", "job.yaml"]).ends_with(0);
    for expected in [
        "job demo",
        "source payments (file, csv)",
        "operator features (metrics) <- payments",
        "stage card: 4 partitions",
        "stage global: one task",
        "query card_1h: window SLIDING 1h -> group by card -> sum(amount) AS spent, count(*) AS n",
        "-> filter (\"amount\" > 1) -> group by merchant -> avg(amount) AS mean",
        "query every: window INFINITE -> count(*) AS count",
        "sink answers (file, ndjson",
    ] {
        assert!(ended.stdout.contains(expected), "{expected:?} is not in\n{}", ended.stdout);
    }
    assert_eq!(ended.stderr, "");
}

#[test]
fn check_says_before_a_start_what_it_makes_of_the_state_that_is_there() {
    let place = place(METRICS);
    let check = || place.thalweg(&["check", "job.yaml", "--data-dir", "D"]);
    let run = || place.thalweg(&["run", "job.yaml", "--data-dir", "D"]);
    let state = |stdout: &str| stdout.split_once("state in D\n").expect("a part on state").1.to_owned();
    assert_eq!(state(&check().ends_with(0).stdout), "  none: the job begins anew\n");
    assert!(!place.path().join("D").exists(), "nothing is made");
    assert!(!run().ends_with(0).stderr.contains("begins"));
    assert_eq!(state(&check().ends_with(0).stdout), "  all queries go on with theirs\n");

    let changed =
        METRICS.replace("count(*) AS n FROM", "max(amount) AS hi FROM").replace("SLIDING 5 M", "SLIDING 6 M");
    place.write("job.yaml", job(&changed).as_bytes());
    let said = [
        (
            "card_1h",
            "goes on, except for outputs that begin empty (hi): answers carry `since` until its window has filled",
        ),
        ("card_1h", "goes on, but for state that no output takes (count(*))"),
        ("shop_5m", "begins empty: answers carry `since` until its window has filled"),
        ("shop_5m", "its state goes: no query of the job file has the same outputs"),
    ];
    let lines = said.map(|(query, what)| format!("  operator \"features\", query {query:?}: {what}\n"));
    assert_eq!(state(&check().ends_with(0).stdout), lines.concat());
    assert_eq!(state(&check().ends_with(0).stdout), lines.concat(), "nothing has come of it");
    let started = run().ends_with(0).stderr;
    for (query, what) in said {
        let line = started.lines().find(|line| line.contains(what) && line.contains(query));
        assert!(line.is_some_and(|line| line.contains("WARN")), "{query}: {what} is not in\n{started}");
    }
    let by_another = changed.replace("[card, merchant]", "merchant").replace("card, ", "");
    let refused = job(&by_another.replace("GROUP BY card ", "GROUP BY merchant "));
    place.write("job.yaml", refused.as_bytes());
    assert!(check().ends_with(2).stderr.contains("operator \"features\" was split by \"card\""));
}

#[test]
fn explain_takes_one_query() {
    let place = place(METRICS);
    let all = place.thalweg(&["explain", "job.yaml"]).ends_with(0);
    assert!(all.stdout.contains("card_1h") && all.stdout.contains("shop_5m"), "{}", all.stdout);
    let one = place.thalweg(&["explain", "job.yaml", "card_1h"]).ends_with(0);
    assert!(one.stdout.contains("card_1h") && !one.stdout.contains("shop_5m"), "{}", one.stdout);
    let none = place.thalweg(&["explain", "job.yaml", "card_1"]).ends_with(2);
    assert!(none.stderr.contains("did you mean \"card_1h\"?"), "{}", none.stderr);
}

#[test]
fn schema_is_json() {
    let place = Place::with(&[]);
    let ended = place.thalweg(&["schema"]).ends_with(0);
    let schema: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let sources = schema["$defs"]["source"]["oneOf"].as_array().unwrap();
    assert!(sources.iter().any(|source| source["properties"]["type"]["const"] == "file"));
}

#[test]
fn mistakes_are_told_and_nothing_is_run() {
    let place = place("sinks:\n  out: { type: file, input: paymens, path: out.csv, formt: csv }\n");
    for verb in ["check", "run"] {
        let ended = place.thalweg(&[verb, "job.yaml"]).ends_with(2);
        assert_eq!(ended.stdout, "");
        assert!(ended.stderr.contains("--> job.yaml:10:29"), "{}", ended.stderr);
        assert!(ended.stderr.contains("did you mean \"payments\"?"), "{}", ended.stderr);
        assert!(ended.stderr.contains("did you mean \"format\"?"), "{}", ended.stderr);
    }
    assert!(!place.path().join("out.csv").exists());
}

#[test]
fn addresses_are_looked_at_before_anything_listens() {
    let job = "\
name: wrong
sources:
  u: { type: udp, listen: nowhere, allow: [10.0.0.0/8, 10.0.0.300, ::/129], format: csv, schema: { k: string } }
  t: { type: tcp, listen: 127.0.0.1:70000, format: csv, schema: { k: string } }
sinks:
  out: { type: stdout, input: [u, t] }
";
    let ended = Place::with(&[("job.yaml", job)]).thalweg(&["check", "job.yaml"]).ends_with(2);
    for expected in [
        "\"listen\" of source \"u\": expected address and port, got \"nowhere\"\n --> job.yaml:3:27",
        "\"allow\" of source \"u\": expected an address or a network such as 10.0.0.0/8, got \"10.0.0.300\"",
        "got \"::/129\"",
        "\"format\" of source \"u\": a datagram has no header\n --> job.yaml:3",
        "\"listen\" of source \"t\": expected address and port, got \"127.0.0.1:70000\"",
        "5 mistakes",
    ] {
        assert!(ended.stderr.contains(expected), "{expected} is not in\n{}", ended.stderr);
    }
}

/// What a job of this file says before its first record, if it may write no file.
#[track_caller]
fn check_says_what_run_says(place: &Place, expected: &str, code: i32) {
    let files = || {
        let mut files: Vec<_> =
            std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };
    let before = files();
    let checked = place.thalweg(&["check", "job.yaml"]).ends_with(code);
    assert_eq!(files(), before, "a check makes nothing");
    let ran = place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(code);
    assert!(checked.stderr.contains(expected), "{expected:?} is not in\n{}", checked.stderr);
    assert_eq!(checked.stderr, ran.stderr);
    assert_eq!(checked.stdout, "");
}

#[test]
fn check_refuses_what_run_refuses_before_its_first_record() {
    const STDOUT: &str = "sinks:\n  out: { type: stdout, input: payments }\n";
    const SCHEMA: &str = "schema: { ts: timestamp(ms), x: float64 }";
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (udp, tcp) = (taken.local_addr().unwrap(), listener.local_addr().unwrap());
    let source = |source: &str| format!("name: demo\nsources:\n  payments: {{ {source} }}\n{STDOUT}");
    let join = |join: &str| {
        job(&format!(
            "operators:\n  j: {{ input: payments, {join} }}\nsinks:\n  out: {{ type: stdout, input: j }}\n"
        ))
    };
    for (text, expected, code) in [
        (
            source(&format!("type: udp, listen: '127.0.0.1:0', format: csv, {SCHEMA}")),
            "a datagram has no header",
            2,
        ),
        (
            source(&format!("type: udp, listen: '{udp}', {SCHEMA}")),
            "open source \"payments\": listen on udp",
            1,
        ),
        (source(&format!("type: tcp, listen: '{tcp}', {SCHEMA}")), "listen on tcp", 1),
        (source(&format!("type: sflow, listen: '{udp}'")), "listen on udp", 1),
        (
            source(&format!("type: file, path: missing.csv, format: csv, {SCHEMA}")),
            "open \"missing.csv\": ",
            2,
        ),
        (
            source(&format!("type: file, path: 'none/*.csv', format: csv, {SCHEMA}")),
            "no file is or matches \"none/*.csv\"",
            2,
        ),
        (
            source(&format!("type: file, path: payments.csv, format: csv, {SCHEMA}")),
            "the CSV header lacks field \"x\"",
            2,
        ),
        (
            source("type: generator, kind: flows, count: 1, tables: payments.csv/made"),
            "make folder \"payments.csv/made\"",
            1,
        ),
        (source("type: pcap, path: missing.pcap"), "open capture \"missing.pcap\"", 2),
        (source("type: pcap, path: payments.csv"), "is no capture", 2),
        (
            job("sinks:\n  out: { type: file, input: payments, path: none/out.csv }\n"),
            "open sink \"out\": sink \"out\": create \"none/out.csv\"",
            2,
        ),
        (
            job("sinks:\n  out: { type: file, input: payments, path: payments.csv/out.csv }\n"),
            "create \"payments.csv/out.csv\"",
            1,
        ),
        (
            job(
                "sinks:\n  out: { type: postgres, input: payments, url: 'postgres://me@127.0.0.1:1/x', table: t, password: 'env:NO_SUCH_VARIABLE' }\n",
            ),
            "password: expected text in the environment variable \"NO_SUCH_VARIABLE\", got none",
            2,
        ),
        (
            job(
                "sinks:\n  out: { type: influx, input: payments, url: 'http://127.0.0.1:1', database: d, measurement: m, token: 'file:missing.token' }\n",
            ),
            "token: read \"missing.token\"",
            2,
        ),
        (
            join(
                "type: member_join, table: missing.csv, schema: { card: string, owner: string }, keys: [card], on: { c: card }",
            ),
            "start operator \"j\": ",
            2,
        ),
    ] {
        let place = Place::with(&[("payments.csv", super::PAYMENTS), ("job.yaml", &text)]);
        check_says_what_run_says(&place, expected, code);
    }
}

#[test]
fn check_tells_all_that_stands_in_the_way() {
    let place = Place::with(&[(
        "job.yaml",
        &job("sinks:\n  out: { type: file, input: payments, path: none/out.csv }\n"),
    )]);
    let ended = place.thalweg(&["check", "job.yaml"]).ends_with(2);
    for expected in [
        "job \"demo\": open source \"payments\"",
        "job \"demo\": open sink \"out\"",
        " = hint: the folder of the file must exist",
    ] {
        assert!(ended.stderr.contains(expected), "{expected:?} is not in\n{}", ended.stderr);
    }
}

/// Tables that a source writes when it is opened are there when they are loaded.
#[test]
fn check_takes_tables_that_the_job_makes() {
    let text = "\
name: made
sources:
  flows: { type: generator, kind: flows, count: 10, tables: tables }
operators:
  j: { type: range_join, input: flows, table: tables/asn.tsv, schema: { first: ip, last: ip, asn: uint64, country: string, as_name: string }, on: { src: src_addr }, take: [asn] }
sinks:
  out: { type: 'null', input: j }
";
    let place = Place::with(&[("job.yaml", text)]);
    place.thalweg(&["check", "job.yaml"]).ends_with(0);
    assert!(!place.path().join("tables").exists());
    place.thalweg(&["run", "job.yaml"]).ends_with(0);
    place.thalweg(&["check", "job.yaml"]).ends_with(0);
}

#[test]
fn wrong_calls_end_with_2() {
    let place = place("sinks:\n  out: { type: stdout, input: payments }\n");
    for args in [
        &["fly"][..],
        &["run"],
        &["run", "missing.yaml"],
        &["run", "job.yaml", "--workers", "0"],
        &["run", "job.yaml", "--listen", "nowhere"],
        &["run", "job.yaml", "--set", "x"],
        &["run", "job.yaml", "--set", "sources.payments.lateness=5"],
        &["gen", "nothing"],
        &["gen", "payments", "--format", "xml"],
        &[],
    ] {
        let ended = place.thalweg(args).ends_with(2);
        assert!(!ended.stderr.is_empty(), "{args:?}");
        assert_eq!(ended.stdout, "", "{args:?}");
    }
    let help = place.thalweg(&["--help"]).ends_with(0);
    assert!(help.stdout.contains("run"), "{}", help.stdout);
}

#[test]
fn a_data_directory_has_one_user_at_a_time() {
    let place = Place::with(&[("job.yaml", &job("sinks:\n  out: { type: stdout, input: payments }\n"))]);
    std::fs::create_dir(place.path().join("D")).unwrap();
    let lock = std::fs::File::create(place.path().join("D/lock")).unwrap();
    lock.lock().unwrap();
    let ended = place.thalweg(&["run", "job.yaml", "--data-dir", "D"]).ends_with(2);
    assert!(ended.stderr.contains("in use by another process"), "{}", ended.stderr);
}
