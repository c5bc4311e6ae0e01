//! Windows from outside: job files as users write them, answers as files hold them.

use std::sync::LazyLock;

use expect_test::{Expect, expect};

use super::Place;

/// The example, with its input in the folder of the test.
static EXAMPLE: LazyLock<String> = LazyLock::new(|| {
    let job = include_str!("../../../../examples/payments/job.yaml");
    job.replace("examples/payments/payments.csv", "payments.csv")
});

fn check_answers(place: &Place, job: &str, expected: Expect) {
    let ended = place.thalweg(&["run", job]).ends_with(0);
    expected.assert_eq(&place.read("answers.ndjson"));
    let lines = place.read("answers.ndjson").lines().count() as u64;
    assert_eq!(ended.counts().1, lines, "one answer a record");
}

const PAYMENTS: &str = "\
ts,card,merchant,amount
0,c1,m9,1.5
30000,c1,m9,7.25
90000,c2,m9,0.5
100000,c1,m9,3.5
96000,c2,m1,2
3630000,c1,m9,4
80000,c1,m9,1
";

#[test]
fn the_example_of_the_design_answers_every_payment() {
    let place = Place::with(&[("payments.csv", PAYMENTS), ("job.yaml", &EXAMPLE)]);
    check_answers(
        &place,
        "job.yaml",
        expect![[r#"
            {"ts":0,"card":"c1","merchant":"m9","amount":1.5,"card_1h":{"spent":1.5,"n":1},"shop_5m":{"mean":null}}
            {"ts":30000,"card":"c1","merchant":"m9","amount":7.25,"card_1h":{"spent":8.75,"n":2},"shop_5m":{"mean":null}}
            {"ts":90000,"card":"c2","merchant":"m9","amount":0.5,"card_1h":{"spent":0.5,"n":1},"shop_5m":{"mean":4.375}}
            {"ts":100000,"card":"c1","merchant":"m9","amount":3.5,"card_1h":{"spent":12.25,"n":3},"shop_5m":{"mean":4.375}}
            {"ts":96000,"card":"c2","merchant":"m1","amount":2.0,"card_1h":{"spent":2.5,"n":2},"shop_5m":{"mean":null}}
            {"ts":3630000,"card":"c1","merchant":"m9","amount":4.0,"card_1h":{"spent":7.5,"n":2},"shop_5m":{"mean":null}}
            {"ts":80000,"card":"c1","merchant":"m9","amount":1.0,"card_1h":{"spent":7.5,"n":2},"shop_5m":{"mean":null},"late":["card","merchant"]}
        "#]],
    );
}

#[test]
fn a_late_record_is_one_line_in_rejects() {
    let place = Place::with(&[("payments.csv", PAYMENTS), ("job.yaml", &EXAMPLE)]);
    let ended = place.thalweg(&["run", "job.yaml", "--data-dir", "data"]).ends_with(0);
    assert_eq!(ended.counts(), (7, 7, 1));
    let folder = place.path().join("data/jobs/payments/rejects");
    let rejects: String = std::fs::read_dir(folder)
        .expect("a rejects folder")
        .map(|file| std::fs::read_to_string(file.expect("an entry").path()).expect("text"))
        .collect();
    assert_eq!(rejects.lines().count(), 1, "{rejects}");
    for part in [r#""source":"payments""#, r#""offset":6"#, r#""code":"late""#, "card, merchant", "80000"] {
        assert!(rejects.contains(part), "{part} in {rejects}");
    }
}

/// The same job with one line of settings changed.
fn with(replace: &str, by: &str) -> String {
    assert!(EXAMPLE.contains(replace), "{replace} is in the example");
    EXAMPLE.replace(replace, by)
}

fn answers(job: &str, args: &[&str]) -> String {
    let place = Place::with(&[("payments.csv", PAYMENTS), ("job.yaml", job)]);
    let mut all = vec!["run", "job.yaml"];
    all.extend(args);
    place.thalweg(&all).ends_with(0);
    place.read("answers.ndjson")
}

#[test]
fn workers_partitions_and_buffers_change_no_byte() {
    let usual = answers(&EXAMPLE, &[]);
    for workers in ["1", "2", "3"] {
        assert_eq!(answers(&EXAMPLE, &["--workers", workers]), usual, "{workers} workers");
    }
    for partitions in [1, 2, 7] {
        let job =
            with("    input: payments\n", &format!("    input: payments\n    partitions: {partitions}\n"));
        assert_eq!(answers(&job, &[]), usual, "{partitions} partitions");
    }
    let job = with("    input: payments\n", "    input: { from: payments, buffer: 64B, flush: 1ms }\n");
    assert_eq!(answers(&job, &[]), usual);
}

#[test]
fn csv_answers_have_a_column_per_output() {
    let job = with("path: answers.ndjson, format: ndjson", "path: answers.csv, format: csv");
    let place = Place::with(&[("payments.csv", PAYMENTS), ("job.yaml", &job)]);
    place.thalweg(&["run", "job.yaml"]).ends_with(0);
    let answers = place.read("answers.csv");
    let mut lines = answers.lines();
    assert_eq!(lines.next(), Some("ts,card,merchant,amount,card_1h.spent,card_1h.n,shop_5m.mean"));
    assert_eq!(lines.next(), Some("0,c1,m9,1.5,1.5,1,"));
}

#[test]
fn a_sum_that_does_not_fit_is_null_and_named() {
    let job = "\
name: big
sources:
  rows: { type: file, path: rows.csv, format: csv, schema: { ts: timestamp(s), k: int64 }, time: ts }
operators:
  sums: { type: metrics, input: rows, queries: { all: SELECT sum(k) AS total FROM rows OVER SLIDING 10 SECONDS } }
sinks:
  answers: { type: file, input: sums, path: answers.ndjson }
";
    let rows = "ts,k\n1,9223372036854775807\n2,1\n12,5\n";
    let place = Place::with(&[("rows.csv", rows), ("job.yaml", job)]);
    check_answers(
        &place,
        "job.yaml",
        expect![[r#"
            {"ts":1,"k":9223372036854775807,"all":{"total":9223372036854775807}}
            {"ts":2,"k":1,"all":{"total":null},"errors":["all.total"]}
            {"ts":12,"k":5,"all":{"total":5}}
        "#]],
    );
}

#[test]
fn a_duplicate_is_answered_as_such() {
    let job = "\
name: dup
sources:
  rows:
    type: file
    path: rows.ndjson
    format: ndjson
    schema: { ts: timestamp(ms), tx: string, card: string }
    time: ts
    id: tx
    dedup: 10m
operators:
  f: { type: metrics, input: rows, partition_by: card, queries: { c: SELECT count(*) AS n FROM rows GROUP BY card OVER INFINITE } }
sinks:
  answers: { type: file, input: f, path: answers.ndjson }
";
    let rows = r#"{"ts":0,"tx":"a","card":"c1"}
{"ts":1000,"tx":"a","card":"c1"}
{"ts":600000,"tx":"a","card":"c1"}
"#;
    let place = Place::with(&[("rows.ndjson", rows), ("job.yaml", job)]);
    check_answers(
        &place,
        "job.yaml",
        expect![[r#"
            {"ts":0,"tx":"a","card":"c1","c":{"n":1}}
            {"ts":1000,"tx":"a","card":"c1","c":{"n":1},"duplicate":["card"]}
            {"ts":600000,"tx":"a","card":"c1","c":{"n":2}}
        "#]],
    );
}

/// Every kind of window and aggregate over made-up payments, digested.
const MIXED: &str = "\
name: mixed
sources:
  payments: { type: generator, kind: payments, fields: 6, seed: 7, count: 60000, cards: 300, hot: 0.1, time: ts, lateness: 1s }
operators:
  features:
    type: metrics
    input: payments
    partition_by: [card, merchant]
    queries:
      a: SELECT sum(amount) AS s, avg(amount) AS m, stddev(amount) AS d, count(*) AS n FROM payments GROUP BY card OVER SLIDING 20 SECONDS
      b: SELECT min(amount) AS lo, max(amount) AS hi, first(merchant) AS f, prev(merchant) AS p FROM payments GROUP BY card OVER SLIDING 7 SECONDS DELAYED BY 3 SECONDS
      c: SELECT count(distinct card) AS cards, quantile(amount, 0.9) AS q FROM payments WHERE amount > 10 GROUP BY merchant OVER SLIDING 60 SECONDS
      d: SELECT sum(amount) AS s, last(tx) AS tx FROM payments GROUP BY card, country OVER TUMBLING 10 SECONDS
      e: SELECT avg(amount * 2 + 1) AS m FROM payments GROUP BY card OVER ROWS 5
      f: SELECT count(*) AS n, var_pop(amount) AS v FROM payments OVER SLIDING 5 SECONDS
sinks:
  answers: { type: 'null', input: features }
";

#[test]
fn any_configuration_gives_the_same_bits() {
    let digest = |sets: &[&str], workers: &str| {
        let place = Place::with(&[("job.yaml", MIXED)]);
        let mut args = vec!["run", "job.yaml", "--workers", workers];
        args.extend(sets.iter().flat_map(|set| ["--set", set]));
        let ended = place.thalweg(&args).ends_with(0);
        assert_eq!(ended.counts(), (60_000, 60_000, 0));
        ended.stderr.lines().find(|line| line.contains("digest=")).expect("a digest").to_owned()
    };
    let usual = digest(&[], "1");
    for (sets, workers) in [
        (&[][..], "2"),
        (&["operators.features.partitions=1"][..], "2"),
        (&["operators.features.partitions=9"][..], "3"),
        (&["sources.payments.parallelism=3", "cycle.every=20ms"][..], "2"),
        (&["state.chunk_memory=64KiB", "state.retention=1m"][..], "2"),
        (&["sources.payments.rate=200000"][..], "2"),
    ] {
        assert_eq!(digest(sets, workers), usual, "{sets:?} on {workers} workers");
    }
    assert_ne!(digest(&["sources.payments.seed=8"], "2"), usual, "the digest depends on the records");
}

#[test]
fn aggregates_have_filters_and_outputs_are_made_of_several() {
    let queries = "    queries:
      card_1h: >
        SELECT count(*) FILTER (WHERE amount > 2) AS big, sum(amount) / count(*) AS mean,
        max(amount) - min(amount) AS range, 100.0 * count(*) FILTER (WHERE merchant = 'm1') / count(*) AS percent,
        last(merchant) <> prev(merchant) AS moved
        FROM payments GROUP BY card OVER SLIDING 1 HOUR
";
    let (before, _) = EXAMPLE.split_once("    queries:\n").expect("queries");
    let (_, sinks) = EXAMPLE.split_once("sinks:\n").expect("sinks");
    let job = format!("{before}{queries}sinks:\n{sinks}");
    let place = Place::with(&[("payments.csv", PAYMENTS), ("job.yaml", &job)]);
    check_answers(
        &place,
        "job.yaml",
        expect![[r#"
        {"ts":0,"card":"c1","merchant":"m9","amount":1.5,"card_1h":{"big":0,"mean":1.5,"range":0.0,"percent":0.0,"moved":null}}
        {"ts":30000,"card":"c1","merchant":"m9","amount":7.25,"card_1h":{"big":1,"mean":4.375,"range":5.75,"percent":0.0,"moved":false}}
        {"ts":90000,"card":"c2","merchant":"m9","amount":0.5,"card_1h":{"big":0,"mean":0.5,"range":0.0,"percent":0.0,"moved":null}}
        {"ts":100000,"card":"c1","merchant":"m9","amount":3.5,"card_1h":{"big":2,"mean":4.083333333333333,"range":5.75,"percent":0.0,"moved":false}}
        {"ts":96000,"card":"c2","merchant":"m1","amount":2.0,"card_1h":{"big":0,"mean":1.25,"range":1.5,"percent":50.0,"moved":true}}
        {"ts":3630000,"card":"c1","merchant":"m9","amount":4.0,"card_1h":{"big":2,"mean":3.75,"range":0.5,"percent":0.0,"moved":false}}
        {"ts":80000,"card":"c1","merchant":"m9","amount":1.0,"card_1h":{"big":2,"mean":3.75,"range":0.5,"percent":0.0,"moved":false},"late":["card","merchant"]}
    "#]],
    );
}

#[test]
fn answers_are_filtered_and_answered_again() {
    let job = "
name: chain
sources:
  s: { type: file, path: s.csv, format: csv, time: ts, id: tx, dedup: 1h, lateness: 10s,
       schema: { ts: timestamp(s), tx: string, card: string, country: string } }
operators:
  first:
    type: metrics
    input: s
    partition_by: [card, []]
    queries:
      c: SELECT count(*) AS n FROM s GROUP BY card, upper(country) OVER SLIDING 1 HOUR
      all: SELECT count(*) AS n FROM s GROUP BY upper(country) OVER INFINITE
  often: { type: filter, input: first, where: all.n > 1 }
  second:
    type: metrics
    input: often
    partition_by: card
    queries:
      top: SELECT max(c.n) AS n, count(*) AS of FROM often WHERE all.n > 2 GROUP BY card OVER INFINITE
      by: SELECT count(*) AS n FROM often GROUP BY card, c.n OVER INFINITE
sinks:
  answers: { type: file, input: second, path: answers.ndjson }
";
    let rows = "ts,tx,card,country\n100,1,a,DE\n101,2,a,de\n102,3,b,De\n103,3,b,DE\n104,4,a,FR\n105,5,a,de\n80,6,a,DE\n";
    let place = Place::with(&[("s.csv", rows), ("job.yaml", job)]);
    check_answers(
        &place,
        "job.yaml",
        expect![[r#"
        {"ts":101,"tx":"2","card":"a","country":"de","c":{"n":2},"all":{"n":2},"top":{"n":null,"of":0},"by":{"n":1}}
        {"ts":102,"tx":"3","card":"b","country":"De","c":{"n":1},"all":{"n":3},"top":{"n":1,"of":1},"by":{"n":1}}
        {"ts":103,"tx":"3","card":"b","country":"DE","c":{"n":1},"all":{"n":3},"top":{"n":1,"of":1},"by":{"n":1},"duplicate":["card","global","second.card"]}
        {"ts":105,"tx":"5","card":"a","country":"de","c":{"n":3},"all":{"n":4},"top":{"n":3,"of":1},"by":{"n":1}}
        {"ts":80,"tx":"6","card":"a","country":"DE","c":{"n":3},"all":{"n":4},"top":{"n":3,"of":1},"by":{"n":1},"late":["card","global","second.card"]}
    "#]],
    );
    let ended = place.thalweg(&["run", "job.yaml", "--data-dir", "data"]).ends_with(0);
    assert_eq!(ended.counts().2, 1, "the late record has one line in rejects: {}", ended.stderr);
}
