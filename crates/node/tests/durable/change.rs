//! Changed jobs: a job goes on after a change that its state survives; every other change is refused before state is
//! misread.

use expect_test::expect;

use thalweg_node::continuing::foretell;

use super::*;

#[track_caller]
fn assert_refused(folder: &Folder, text: &str, said: &str) {
    let error = folder.try_run(text).err().unwrap_or_else(|| panic!("it is not refused: {said}"));
    assert!(error.message().contains(said), "{error}");
    assert_eq!(error.class(), Class::User, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("change it back")), "{error:?}");
}

/// The old text in a job, the new one, and the message about the change.
type Change = (&'static str, &'static str, &'static str);

/// Operators, and changes that their elements do not survive.
const ELEMENTS: [(&str, &[Change]); 6] = [
    (
        "type: count, input: a, key: card, partitions: 2",
        &[
            (
                "key: card",
                "key: shop",
                "kept its state by key \"[card string]\", by key \"[shop string]\" now",
            ),
            ("key: card", "key: [card, shop]", "by key \"[card string, shop string]\" now"),
            ("card: string", "card: int64", "by key \"[card int64]\" now"),
            (", key: card, partitions: 2", "", "by key \"[]\" now"),
            ("partitions: 2", "partitions: 3", "operator \"o\" had 2 partitions, it has 3 now"),
            ("type: count", "type: changes, value: n", "operator \"o\" was of type \"count\""),
            ("indexed", "files", "it is kept in back end \"indexed\", and state.backend is \"files\" now"),
        ],
    ),
    (
        "type: changes, input: a, key: card, value: shop",
        &[(
            "value: shop",
            "value: n",
            "kept its state by value \"[shop string]\", by value \"[n int64]\" now",
        )],
    ),
    (
        "type: aggregate, input: a, key: card, fields: [n], every: 1h",
        &[
            ("every: 1h", "every: 1m", "kept its state by every \"1h\", by every \"1m\" now"),
            ("fields: [n]", "fields: [m]", "kept its state by fields \"[n]\", by fields \"[m]\" now"),
        ],
    ),
    (
        "type: join, input: [a, b], key: card, within: 1h",
        &[
            ("key: card", "key: shop", "kept its state by key \"[card string]\""),
            ("key: card", "key: card, other_key: shop", "kept its state by key of input 2"),
            ("m: int64", "m: float64", "kept its state by schema of input 1"),
        ],
    ),
    (
        "type: count, input: a, partitions: 2",
        &[
            ("partitions: 2", "partitions: 3", "operator \"o\" had 2 partitions, it has 3 now"),
            (", partitions: 2", "", "kept its state by partition \"shuffle\", by partition null now"),
            ("input: a", "input: { from: a, partition: key(card) }", "by partition \"key(card)\" now"),
        ],
    ),
    (
        "type: count, input: a",
        &[("input: a", "input: a, partitions: 2", "operator \"o\" had 1 partitions, it has 2 now")],
    ),
];

const ELEMENT: &str = "
name: elements
state: { backend: indexed }
sources:
  a: { type: file, path: DIR/a.csv, format: csv, schema: { card: string, shop: string, n: int64, m: int64 } }
  b: { type: file, path: DIR/b.csv, format: csv, schema: { card: string, shop: string, x: int64 } }
operators:
  o: { OPERATOR }
sinks:
  out: { type: file, input: o, path: DIR/out.ndjson, format: ndjson }
  others: { type: file, input: b, path: DIR/others.ndjson, format: ndjson }
";

#[test]
fn elements_are_not_taken_for_those_of_other_keys_partitions_or_values() {
    for (operator, changes) in ELEMENTS {
        let folder = Folder::new();
        fs::write(folder.path("a.csv"), "card,shop,n,m\n7,s,1,2\n").unwrap();
        fs::write(folder.path("b.csv"), "card,shop,x\n7,s,1\n").unwrap();
        let text = ELEMENT.replace("OPERATOR", operator);
        folder.run(&text);
        let kept = folder.read("out.ndjson");
        for (from, to, said) in changes {
            let changed = text.replace(from, to);
            assert_ne!(changed, text);
            assert_refused(&folder, &changed, said);
            assert_eq!(folder.read("out.ndjson"), kept);
        }
        // The refusals have left it as it was.
        folder.run(&text);
        // Under another name it begins anew, and its old state is not touched.
        let other = text.replace("  o: {", "  p: {").replace("input: o", "input: p");
        folder.run(&other);
    }
}

#[test]
fn elements_that_are_not_checkpointed_may_have_other_keys_and_partitions() {
    let folder = Folder::new();
    let text = "type: count, input: a, key: card, checkpoint: none, partitions: 2";
    let text = ELEMENT.replace("OPERATOR", text);
    fs::write(folder.path("b.csv"), "card,shop,x\n7,s,1\n").unwrap();
    for (lines, changed) in [
        (1, text.clone()),
        (2, text.replace("partitions: 2", "partitions: 3")),
        (3, text.replace("key: card", "key: shop")),
    ] {
        fs::write(folder.path("a.csv"), format!("card,shop,n,m\n{}", "7,s,1,2\n".repeat(lines))).unwrap();
        folder.run(&changed);
    }
    let counts = "{\"card\":\"7\",\"count\":1}\n".repeat(2) + "{\"shop\":\"s\",\"count\":1}\n";
    assert_eq!(folder.read("out.ndjson"), counts);
}

const QUERIES: &str = "
name: queries
cycle: { every: 5ms }
sources:
  a: { type: file, path: DIR/a.csv, follow: true, poll: 1ms, format: csv, schema: { n: int64, card: string } }
operators:
  m:
    type: metrics
    input: a
    partition_by: [card]
    queries:
      mine: SELECT count(*) AS n FROM a GROUP BY card OVER INFINITE
      all: SELECT count(*) AS n FROM a OVER INFINITE
sinks:
  out: { type: file, input: m, path: DIR/out.ndjson, format: ndjson }
";

/// A job over a file that grows.
struct Growing {
    folder: Folder,
    lines: usize,
}

impl Growing {
    fn new() -> Self {
        let folder = Folder::new();
        fs::write(folder.path("a.csv"), "n,card\n").unwrap();
        Self { folder, lines: 0 }
    }

    /// Runs the job over one more record, lets it be changed, and ends it after a commit; the record's answer.
    fn run(&mut self, text: &str, change: impl FnOnce(&RunningJob)) -> serde_json::Value {
        let node = self.folder.node(2);
        let job = self.folder.start(&node, text).unwrap_or_else(|error| panic!("{}", error.chain()));
        append_text(&self.folder.path("a.csv"), &format!("{},c\n", self.lines));
        self.lines += 1;
        eventually("the answer", || self.folder.read("out.ndjson").lines().count() == self.lines);
        change(&job);
        job.drain();
        assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
        let answers = self.folder.read("out.ndjson");
        serde_json::from_str(answers.lines().last().expect("an answer")).unwrap()
    }
}

const ALL: &str = "\n      all: SELECT count(*) AS n FROM a OVER INFINITE";

#[test]
fn the_last_query_without_a_key_may_go_and_come_again() {
    let mut job = Growing::new();
    job.run(QUERIES, |_| ());
    let answer = job.run(&QUERIES.replace(ALL, ""), |_| ());
    assert_eq!((&answer["mine"]["n"], answer.get("all")), (&2.into(), None));
    let answer = job.run(QUERIES, |_| ());
    assert_eq!((&answer["mine"]["n"], &answer["all"]["n"]), (&3.into(), &1.into()), "it begins anew");
}

/// A job of queries over times of its own.
const SINCE: &str = "
name: since
cycle: { every: 5ms }
sources:
  a: { type: file, path: DIR/a.csv, format: csv, schema: { ts: timestamp(s), card: string, shop: string, x: float64, at: timestamp(s) }, time: ts }
  b: { type: file, path: DIR/b.csv, format: csv, schema: { ts: timestamp(s), card: string }, time: ts }
operators:
  m:
    type: metrics
    input: a
    partition_by: [card]
    queries:
      mine: SELECT count(*) AS n FROM a GROUP BY card OVER SLIDING 1 HOUR
      spent: SELECT sum(x) AS s FROM a GROUP BY card OVER SLIDING 1 HOUR
sinks:
  out: { type: file, input: m, path: DIR/out.ndjson, format: ndjson }
  others: { type: file, input: b, path: DIR/others.ndjson, format: ndjson }
";

/// Runs the job over three records, then as `changed` over a fourth: its answer, the changes that were foretold, and
/// the answer to a fifth.
fn changed(changed: &str) -> (serde_json::Value, Vec<String>, serde_json::Value) {
    let folder = Folder::new();
    fs::write(folder.path("a.csv"), "ts,card,shop,x,at\n10,c,s,1,10\n20,c,s,1,20\n30,c,s,1,30\n").unwrap();
    fs::write(folder.path("b.csv"), "ts,card\n").unwrap();
    folder.run(SINCE);
    let foretold = || {
        let news = foretell(folder.check(changed), &folder.path("data")).unwrap().expect("there is state");
        news.iter().map(ToString::to_string).collect()
    };
    let news = foretold();
    let answers = ["25,c,s,1,25\n", "35,c,s,1,35\n"].map(|line| {
        append_text(&folder.path("a.csv"), line);
        folder.run(changed);
        let answers = folder.read("out.ndjson");
        serde_json::from_str(answers.lines().last().expect("an answer")).unwrap()
    });
    assert_eq!(foretold(), Vec::<String>::new(), "it goes on as it is");
    let [first, second] = answers;
    (first, news, second)
}

const BEGINS: &str = "begins empty: answers carry `since` until its window has filled";

#[test]
fn whatever_makes_a_query_begin_without_its_history_it_says_since_when_and_the_start_says_so() {
    let spent = "spent: SELECT sum(x) AS s FROM a GROUP BY card";
    // Old and new texts, the query that begins, and the other messages.
    type Pairs = [(&'static str, &'static str)];
    let cases: [(&str, &Pairs, &str, &[&str]); 6] = [
        (
            "a query",
            &[(
                "      spent:",
                "      new: SELECT max(x) AS n FROM a GROUP BY card OVER INFINITE\n      spent:",
            )],
            "new",
            &[],
        ),
        (
            "a key",
            &[
                ("[card]", "[card, shop]"),
                (
                    "      spent:",
                    "      new: SELECT count(*) AS n FROM a GROUP BY shop OVER SLIDING 1 HOUR\n      spent:",
                ),
            ],
            "new",
            &[],
        ),
        (
            "no key",
            &[("      spent:", "      new: SELECT count(*) AS n FROM a OVER SLIDING 1 HOUR\n      spent:")],
            "new",
            &[],
        ),
        ("a type", &[("x: float64", "x: decimal(9,2)")], "spent", &["spent: its state goes"]),
        (
            "a window",
            &[("s FROM a GROUP BY card OVER SLIDING 1 HOUR", "s FROM a GROUP BY card OVER SLIDING 2 HOURS")],
            "spent",
            &["spent: its state goes"],
        ),
        (
            "a name",
            &[("  m:\n", "  f:\n"), ("input: m,", "input: f,")],
            "spent",
            &["mine: its state goes", "spent: its state goes"],
        ),
    ];
    assert!(SINCE.contains(spent));
    for (what, replaced, query, said) in cases {
        let mut text = SINCE.to_owned();
        for (from, to) in replaced {
            assert!(text.contains(from), "{what}: {from}");
            text = text.replace(from, to);
        }
        let (first, news, second) = changed(&text);
        for answer in [&first, &second] {
            assert_eq!(answer[query]["since"], 30_000_000, "{what}: {answer}");
        }
        if what != "a name" {
            assert_eq!(
                (&first["mine"]["n"], &first["mine"]["since"]),
                (&4.into(), &serde_json::Value::Null),
                "{first}"
            );
        }
        let is_said = |what: &str| news.iter().any(|line| line.replace('"', "").contains(what));
        assert!(is_said(&format!("query {query}: {BEGINS}")), "{what}: {news:?}");
        assert!(said.iter().all(|said| is_said(said)), "{what}: {news:?}");
        let count = 1 + said.len() + usize::from(what == "a name");
        assert_eq!(news.len(), count, "{what}: {news:?}");
    }
}

#[test]
fn an_output_more_goes_with_those_that_were_there() {
    let text =
        SINCE.replace("count(*) AS n", "avg(x) AS mean, count(*) AS n").replace("sum(x) AS s", "max(x) AS s");
    let (first, news, second) = changed(&text);
    let mine = serde_json::json!({ "mean": 1.0, "n": 4, "since": 30_000_000, "since_of": ["mean"] });
    assert_eq!(first["mine"], mine);
    assert_eq!((&second["mine"]["n"], &second["mine"]["since_of"]), (&5.into(), &mine["since_of"]));
    assert_eq!(first["spent"], serde_json::json!({ "s": 1.0, "since": 30_000_000 }));
    assert_eq!(
        news,
        [
            "operator \"m\", query \"mine\": goes on, except for outputs that begin empty (mean): answers carry `since` until its window has filled".to_owned(),
            format!("operator \"m\", query \"spent\": {BEGINS}"),
            "operator \"m\", query \"spent\": its state goes: no query of the job file has the same outputs".to_owned(),
        ]
    );
}

#[test]
fn a_stage_over_a_source_that_has_given_nothing_has_missed_nothing() {
    let text = SINCE.replace(
        "sinks:\n",
        "  k: { type: metrics, input: b, partition_by: card, queries: { n: SELECT count(*) AS n FROM b GROUP BY card OVER INFINITE } }\n\
         sinks:\n  ks: { type: file, input: k, path: DIR/ks.ndjson, format: ndjson }\n",
    );
    let folder = Folder::new();
    fs::write(folder.path("a.csv"), "ts,card,shop,x,at\n10,c,s,1,10\n").unwrap();
    fs::write(folder.path("b.csv"), "ts,card\n").unwrap();
    folder.run(SINCE);
    assert_eq!(foretell(folder.check(&text), &folder.path("data")).unwrap(), Some(Vec::new()));
    append_text(&folder.path("b.csv"), "9,c\n");
    folder.run(&text);
    assert_eq!(folder.read("ks.ndjson"), "{\"ts\":9,\"card\":\"c\",\"n\":{\"n\":1}}\n");
    // By now there is a record that a third one would have missed, of a stream whose times nobody has kept.
    let third = text.replace("  k: {", "  l: {").replace("input: k,", "input: l,");
    append_text(&folder.path("b.csv"), "7,c\n");
    folder.run(&third);
    let answers = folder.read("ks.ndjson");
    let last: serde_json::Value = serde_json::from_str(answers.lines().last().unwrap()).unwrap();
    assert_eq!(last["n"], serde_json::json!({ "n": 1, "since": 9_000_000 }), "{answers}");
}

#[test]
fn a_stream_that_had_no_windows_is_counted_from_its_first_record() {
    let before = SINCE.split("operators:").next().unwrap().to_owned()
        + "sinks:\n  raw: { type: file, input: a, path: DIR/raw.ndjson, format: ndjson }\n  \
           others: { type: file, input: b, path: DIR/others.ndjson, format: ndjson }\n";
    let folder = Folder::new();
    fs::write(folder.path("a.csv"), "ts,card,shop,x,at\n10,c,s,1,10\n").unwrap();
    fs::write(folder.path("b.csv"), "ts,card\n").unwrap();
    folder.run(&before);
    for line in ["20,c,s,1,10\n", "30,c,s,1,10\n"] {
        append_text(&folder.path("a.csv"), line);
        folder.run(SINCE);
        let answers = folder.read("out.ndjson");
        assert!(answers.lines().last().unwrap().contains("\"since\":20000000"), "{answers}");
    }
}

#[test]
fn windows_are_not_taken_for_those_of_another_time() {
    let folder = Folder::new();
    fs::write(folder.path("a.csv"), "ts,card,shop,x,at\n10,c,s,1,10\n").unwrap();
    fs::write(folder.path("b.csv"), "ts,card\n").unwrap();
    folder.run(SINCE);
    for (to, is) in [("time: at", "field \"at\""), ("lateness: 1s", "arrival")] {
        let text = SINCE.replacen("time: ts", to, 1);
        let said = format!(
            "operator \"m\" kept its state by the event time of source \"a\", which was field \"ts\", it is {is} now"
        );
        assert_refused(&folder, &text, &said);
        let error = foretell(folder.check(&text), &folder.path("data")).unwrap_err();
        assert!(error.message().contains(&said), "{error}");
    }
    // No state hangs on the other one's, and an operator begins anew under another name.
    folder.run(&SINCE.replace(
        "schema: { ts: timestamp(s), card: string }, time: ts",
        "schema: { ts: timestamp(s), card: string }",
    ));
    folder.run(
        &SINCE
            .replacen("time: ts", "time: at", 1)
            .replace("  m:\n", "  f:\n")
            .replace("input: m,", "input: f,"),
    );
}

#[test]
fn windows_are_not_taken_for_those_of_a_key_of_another_type() {
    let mut job = Growing::new();
    job.run(QUERIES, |_| ());
    let said =
        "operator \"m\" kept its state by key card \"[card string]\", by key card \"[card bytes]\" now";
    assert_refused(&job.folder, &QUERIES.replace("card: string", "card: bytes"), said);
    assert_eq!(job.run(QUERIES, |_| ())["mine"]["n"], 2, "the refusal has left it as it was");
}

#[test]
fn a_query_that_was_dropped_while_the_job_ran_stays_away_until_the_name_has_another() {
    let mut job = Growing::new();
    job.run(QUERIES, |job| job.queries("m").unwrap().drop(job.job(), "all").unwrap());
    for text in [QUERIES.to_owned(), QUERIES.replace("FROM a OVER INFINITE", "from a over infinite")] {
        let answer = job.run(&text, |_| ());
        assert!(answer["mine"]["n"].is_u64() && answer.get("all").is_none(), "{answer}");
    }
    // The stage is there for one that is added again.
    let sql = "SELECT sum(n) AS sum FROM a OVER INFINITE";
    job.run(QUERIES, |job| job.queries("m").unwrap().add(job.job(), "total", sql).unwrap());
    let answer = job.run(QUERIES, |_| ());
    assert_eq!((&answer["total"]["sum"], answer.get("all")), (&4.into(), None), "{answer}");
    let other = QUERIES.replace("all: SELECT count(*) AS n", "all: SELECT max(n) AS n");
    let answer = job.run(&other, |_| ());
    assert_eq!((&answer["all"]["n"], &answer["mine"]["n"]), (&5.into(), &6.into()), "{answer}");
}

#[test]
fn a_query_that_got_another_text_while_the_job_ran_keeps_that_until_the_file_has_a_third() {
    let mut job = Growing::new();
    let sum = "SELECT sum(n) AS sum FROM a OVER INFINITE";
    job.run(QUERIES, |job| {
        let queries = job.queries("m").unwrap();
        queries.drop(job.job(), "all").unwrap();
        queries.add(job.job(), "all", sum).unwrap();
    });
    assert_eq!(job.run(QUERIES, |_| ())["all"]["sum"], 1);
    // The file says the same: nothing was changed any more.
    let updated = QUERIES.replace("SELECT count(*) AS n FROM a OVER INFINITE", sum);
    assert_eq!(job.run(&updated, |_| ())["all"]["sum"], 3);
    assert_eq!(job.run(QUERIES, |_| ())["all"]["n"], 1, "as the file says");
    let third = QUERIES.replace("all: SELECT count(*) AS n", "all: SELECT max(n) AS n");
    let drop_it = |job: &RunningJob| job.queries("m").unwrap().drop(job.job(), "all").unwrap();
    assert_eq!(job.run(&third, drop_it)["all"]["n"], 4);
    assert_eq!(job.run(&third, |_| ()).get("all"), None);
    assert_eq!(job.run(QUERIES, |_| ())["all"]["n"], 1);
}

#[test]
fn the_only_query_may_be_dropped_and_another_one_added_after_a_restart() {
    let text = QUERIES.replace(ALL, "");
    let mut job = Growing::new();
    job.run(&text, |job| job.queries("m").unwrap().drop(job.job(), "mine").unwrap());
    let sql = "SELECT count(*) AS n FROM a GROUP BY card OVER INFINITE";
    let answer = job.run(&text, |job| job.queries("m").unwrap().add(job.job(), "again", sql).unwrap());
    assert_eq!(answer, serde_json::json!({ "n": 1, "card": "c" }));
    let answer = job.run(&text, |_| ());
    assert_eq!(answer["again"]["n"], 1, "{answer}");
}

/// Whatever can read answers.
const READERS: &str = "
name: readers
sources:
  a: { type: file, path: DIR/a.csv, follow: true, poll: 1ms, format: csv, time: ts, schema: { ts: timestamp(s), card: string } }
operators:
  m:
    type: metrics
    input: a
    partition_by: [card]
    queries:
      one: SELECT count(*) AS n FROM a GROUP BY card OVER INFINITE
      two: SELECT max(ts) AS last, count(*) AS n FROM a GROUP BY card OVER INFINITE
  kept: { type: filter, input: m, where: two.n > 0 }
  named: { type: map, input: m, select: { ts: ts, n: two.n, duplicate: duplicate } }
sinks:
  out: { type: file, input: m, path: DIR/out.ndjson, format: ndjson }
  csv: { type: file, input: m, path: DIR/out.csv, format: csv }
  kept: { type: file, input: kept, path: DIR/kept.ndjson, format: ndjson }
  named: { type: file, input: named, path: DIR/named.ndjson, format: ndjson }
  rows: { type: table, input: m }
";

#[test]
fn what_reads_answers_gets_what_it_was_made_for_while_queries_come_and_go() {
    let folder = Folder::new();
    fs::write(folder.path("a.csv"), "ts,card\n").unwrap();
    let files = ["out.ndjson", "out.csv", "kept.ndjson", "named.ndjson"];
    let mut count = 0;
    let mut answer = |line: &str| {
        append_text(&folder.path("a.csv"), line);
        count += 1;
        for file in files {
            let wanted = count + usize::from(file == "out.csv");
            eventually(file, || folder.read(file).lines().count() == wanted);
        }
    };
    let node = folder.node(2);
    let job = folder.start(&node, READERS).unwrap_or_else(|error| panic!("{}", error.chain()));
    answer("1,x\n");
    let queries = job.queries("m").unwrap();
    let three = "SELECT count(*) AS n FROM a GROUP BY card OVER SLIDING 1 HOUR";
    queries.add(job.job(), "three", three).unwrap();
    answer("2,x\n");
    // A partition that had no record when the query came lacks nothing, and says no `since`.
    for card in ["y", "z", "v", "w"] {
        answer(&format!("3,{card}\n"));
    }
    queries.drop(job.job(), "one").unwrap();
    answer("4,x\n");
    // Order and commands are followed again, from before the first commit or after it.
    job.abort();
    assert_eq!(job.wait().state, JobState::Aborted);
    drop((job, node));
    let before: Vec<String> = files.iter().map(|file| folder.read(file)).collect();
    for line in ["5,x\n", "6,x\n"] {
        let node = folder.node(1);
        let job = folder.start(&node, READERS).unwrap_or_else(|error| panic!("{}", error.chain()));
        answer(line);
        job.drain();
        assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
    }
    for (file, before) in files.iter().zip(before) {
        assert!(folder.read(file).starts_with(&before), "{file}: {before} is another after a restart");
    }
    expect![[r#"
        {"ts":1,"card":"x","one":{"n":1},"two":{"last":1,"n":1}}
        {"ts":2,"card":"x","one":{"n":2},"two":{"last":2,"n":2},"three":{"n":1,"since":1000000}}
        {"ts":3,"card":"y","one":{"n":1},"two":{"last":3,"n":1},"three":{"n":1}}
        {"ts":3,"card":"z","one":{"n":1},"two":{"last":3,"n":1},"three":{"n":1}}
        {"ts":3,"card":"v","one":{"n":1},"two":{"last":3,"n":1},"three":{"n":1}}
        {"ts":3,"card":"w","one":{"n":1},"two":{"last":3,"n":1},"three":{"n":1}}
        {"ts":4,"card":"x","two":{"last":4,"n":3},"three":{"n":2,"since":1000000}}
        {"ts":5,"card":"x","two":{"last":5,"n":4},"three":{"n":3,"since":1000000}}
        {"ts":6,"card":"x","two":{"last":6,"n":5},"three":{"n":4,"since":1000000}}

        ts,card,one.n,two.last,two.n
        1,x,1,1,1
        2,x,2,2,2
        3,y,1,3,1
        3,z,1,3,1
        3,v,1,3,1
        3,w,1,3,1
        4,x,,4,3
        5,x,,5,4
        6,x,,6,5

        {"ts":1,"card":"x","one":{"n":1},"two":{"last":1,"n":1}}
        {"ts":2,"card":"x","one":{"n":2},"two":{"last":2,"n":2}}
        {"ts":3,"card":"y","one":{"n":1},"two":{"last":3,"n":1}}
        {"ts":3,"card":"z","one":{"n":1},"two":{"last":3,"n":1}}
        {"ts":3,"card":"v","one":{"n":1},"two":{"last":3,"n":1}}
        {"ts":3,"card":"w","one":{"n":1},"two":{"last":3,"n":1}}
        {"ts":4,"card":"x","one":null,"two":{"last":4,"n":3}}
        {"ts":5,"card":"x","one":null,"two":{"last":5,"n":4}}
        {"ts":6,"card":"x","one":null,"two":{"last":6,"n":5}}

        {"ts":1,"n":1,"duplicate":null}
        {"ts":2,"n":2,"duplicate":null}
        {"ts":3,"n":1,"duplicate":null}
        {"ts":3,"n":1,"duplicate":null}
        {"ts":3,"n":1,"duplicate":null}
        {"ts":3,"n":1,"duplicate":null}
        {"ts":4,"n":3,"duplicate":null}
        {"ts":5,"n":4,"duplicate":null}
        {"ts":6,"n":5,"duplicate":null}
    "#]]
    .assert_eq(&files.map(|file| folder.read(file)).join("\n"));
}

#[test]
fn a_query_that_no_job_file_would_take_is_not_added() {
    let mut job = Growing::new();
    job.run(QUERIES, |job| {
        let queries = job.queries("m").unwrap();
        let good = "SELECT count(*) AS n FROM a GROUP BY card OVER INFINITE";
        for (name, sql, said) in [
            ("24h", good, "\"24h\" is no name for a query"),
            ("late", good, "query \"late\" has the name of a field"),
            (
                "x",
                "SELECT count(*) AS n FROM b GROUP BY card OVER INFINITE",
                "operator \"m\" does not read \"b\"",
            ),
        ] {
            let error = queries.add(job.job(), name, sql).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        assert_eq!(queries.list().len(), 2);
    });
    assert_eq!(job.run(QUERIES, |_| ())["mine"]["n"], 2);
}

#[test]
fn the_changes_of_an_operator_that_is_gone_go_with_it() {
    let with = |operator: &str| {
        let sink = "  ks: { type: file, input: k, path: DIR/ks.ndjson, format: ndjson }";
        QUERIES.replace("sinks:\n", &format!("  k: {{ {operator} }}\nsinks:\n{sink}\n"))
    };
    let both = with("type: metrics, input: a, queries: { all: SELECT count(*) AS n FROM a OVER INFINITE }");
    let mut job = Growing::new();
    let sum = "SELECT sum(n) AS sum FROM a OVER INFINITE";
    job.run(&both, |job| {
        for operator in ["m", "k"] {
            job.queries(operator).unwrap().add(job.job(), "sum", sum).unwrap();
        }
    });
    for text in [QUERIES.to_owned(), with("type: count, input: a")] {
        // A sink that comes back is a new one, and empties no file.
        let _ = fs::remove_file(job.folder.path("ks.ndjson"));
        assert!(job.run(&text, |_| ())["sum"].is_object());
    }
}

/// A job of one operator over times of `a.csv`.
const TIMED: &str = "
name: timed
sources:
  a: { type: file, path: DIR/a.csv, follow: true, poll: 1ms, format: csv, schema: { ts: timestamp(s), n: int64 }, time: ts, lateness: 0s }
  b: { type: file, path: DIR/b.csv, format: csv, schema: { ts: timestamp(s), m: int64 }, time: ts }
operators:
  o: { OPERATOR }
sinks:
  out: { type: file, input: o, path: DIR/out.ndjson, format: ndjson }
  others: { type: file, input: b, path: DIR/others.ndjson, format: ndjson }
";

#[test]
fn what_waits_for_a_time_comes_out_where_that_has_become_later() {
    for (operator, from, to, first) in [
        (
            "type: aggregate, input: a, fields: [n], every: 1m",
            "lateness: 0s",
            "lateness: 30s",
            "\"n_count\":1",
        ),
        ("type: join, input: [a, b], within: 10s, left: true", "within: 10s", "within: 45s", "\"n\":1"),
    ] {
        let folder = Folder::new();
        fs::write(folder.path("a.csv"), "ts,n\n30,1\n").unwrap();
        fs::write(folder.path("b.csv"), "ts,m\n").unwrap();
        let text = TIMED.replace("OPERATOR", operator);
        let run = |text: &str, lines: &str, records: u64, until: &str| {
            let node = folder.node(2);
            let job = folder.start(&node, text).unwrap();
            append_text(&folder.path("a.csv"), lines);
            eventually("the records", || job.stats().records >= records);
            eventually(until, || folder.read("out.ndjson").contains(until));
            let committed = job.cycles().unwrap().committed;
            eventually("a commit", || job.cycles().unwrap().committed > committed + 1);
            job.abort();
            job.wait();
        };
        run(&text, "", 1, "");
        assert_eq!(folder.read("out.ndjson"), "", "{operator}: nothing is due");
        // At 70 s it would have been by the earlier setting.
        run(&text.replace(from, to), "70,2\n", 1, "");
        assert_eq!(folder.read("out.ndjson"), "", "{operator}: nothing is due");
        run(&text.replace(from, to), "100,3\n", 1, first);
    }
}

#[test]
fn a_larger_lateness_does_not_open_what_was_closed_before_it() {
    let folder = Folder::new();
    let text = TIMED.replace(", follow: true, poll: 1ms", "").replace(
        "OPERATOR",
        "type: metrics, input: a, queries: { near: SELECT sum(n) AS s FROM a OVER SLIDING 9000 SECONDS, \
             far: SELECT sum(n) AS s FROM a OVER SLIDING 100 SECONDS DELAYED BY 6000 SECONDS }",
    );
    let seconds = |of: std::ops::Range<i64>| of.map(|second| format!("{second},1\n")).collect::<String>();
    // More than fit an open chunk.
    fs::write(folder.path("a.csv"), format!("ts,n\n{}", seconds(0..10_000))).unwrap();
    fs::write(folder.path("b.csv"), "ts,m\n").unwrap();
    folder.run(&text);
    append_text(&folder.path("a.csv"), &format!("5000,1000000\n{}", seconds(10_000..11_500)));
    folder.run(&text.replace("lateness: 0s", "lateness: 2h"));
    // Here is a restart more, at which nothing has changed.
    append_text(&folder.path("a.csv"), &format!("9998,1000000\n9999,1000000\n{}", seconds(11_500..11_600)));
    folder.run(&text.replace("lateness: 0s", "lateness: 2h"));
    let answers = folder.read("out.ndjson");
    let answers: Vec<serde_json::Value> =
        answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let late: Vec<i64> = answers
        .iter()
        .filter(|answer| answer["late"].is_array())
        .map(|answer| answer["ts"].as_i64().unwrap())
        .collect();
    assert_eq!(late, [5000, 9998]);
    let rejects = folder.read("data/jobs/timed/rejects/rejects-0.ndjson");
    assert_eq!(rejects.matches("not late before `lateness` was raised, got ").count(), 2, "{rejects}");
    let mut task_time = 0;
    let mut extra = 0;
    for (row, answer) in answers.iter().enumerate() {
        let second = answer["ts"].as_i64().unwrap();
        task_time = task_time.max(second);
        extra += i64::from(second == 9999 && row > 10_000) * 1_000_000;
        let near = 9000.min(task_time + 1) + extra;
        let far = (task_time >= 6000).then(|| 100.min(task_time - 6000 + 1));
        let got = [answer["near"]["s"].as_i64(), answer["far"]["s"].as_i64()];
        assert_eq!(got, [Some(near), far], "{answer}");
    }
}

#[test]
fn a_start_that_fails_has_not_made_the_job_what_it_is() {
    let folder = Folder::new();
    let text = ELEMENT.replace("OPERATOR", "type: count, input: a, key: card, partitions: 2");
    fs::write(folder.path("b.csv"), "card,shop,x\n7,s,1\n").unwrap();
    let error = folder.try_run(&text).expect_err("a.csv is missing");
    assert!(error.chain().contains("a.csv"), "{}", error.chain());
    fs::write(folder.path("a.csv"), "card,shop,n,m\n7,s,1,2\n").unwrap();
    let changed = text.replace("partitions: 2", "partitions: 3").replace("indexed", "files");
    // Nothing was kept by its earlier setting.
    folder.run(&changed);
    assert_refused(&folder, &text, "back end");
}

#[test]
fn sinks_go_on_whatever_else_has_their_names() {
    let rejects = "  rejects: { type: file, input: a.rejects, path: DIR/rejects.ndjson, format: ndjson }\n";
    let base = "
name: names
sources:
  a: { type: file, path: DIR/a.csv, format: csv, schema: { n: int64 } }
operators:
  features: { type: map, input: a, select: { n: n } }
sinks:
  features: { type: file, input: features, path: DIR/out.ndjson, format: ndjson }
";
    let folder = Folder::new();
    let run = |count: u32, text: &str| {
        let lines: Vec<String> = (0..count).flat_map(|n| [n.to_string(), "bad".to_owned()]).collect();
        fs::write(folder.path("a.csv"), format!("n\n{}\n", lines.join("\n"))).unwrap();
        folder.run(text);
        assert_eq!(folder.read("out.ndjson").lines().count(), count as usize, "{text}");
    };
    run(1, base);
    // The sink's name in the graph changes with the operator's.
    let renamed = base
        .replace("  features: { type: map", "  feat: { type: map")
        .replace("input: features", "input: feat");
    run(2, &renamed);
    run(3, base);
    // The writer of rejects has this name unless a sink has it.
    run(4, &format!("{base}{rejects}"));
    assert_eq!(folder.read("rejects.ndjson").lines().count(), 1, "a new sink begins with new records");
    run(5, &format!("{base}{rejects}"));
    assert_eq!(folder.read("rejects.ndjson").lines().count(), 2);
    assert_eq!(folder.read("data/jobs/names/rejects/rejects-0.ndjson").lines().count(), 5);
    run(6, base);
    assert_eq!(folder.read("data/jobs/names/rejects/rejects-0.ndjson").lines().count(), 6);
    // So may an operator, and then it has no part yet.
    let operator = base.replace("operators:\n", "operators:\n  rejects: { type: count, input: a }\n");
    run(7, &operator);
    run(8, &operator);
}

#[test]
fn a_sink_that_is_new_to_a_job_empties_no_file() {
    let text = "
name: renamed
sources:
  a: { type: file, path: DIR/a.csv, format: csv, schema: { n: int64 } }
sinks:
  out: { type: file, input: a, path: DIR/out.ndjson, format: ndjson }
";
    let folder = Folder::new();
    fs::write(folder.path("a.csv"), "n\n1\n").unwrap();
    folder.run(text);
    let renamed = text.replace("  out:", "  other:");
    let error = folder.try_run(&renamed).err().unwrap();
    assert!(error.message().contains("has 8 bytes already, and not from a sink of this name"), "{error}");
    assert_eq!(error.class(), Class::User);
    assert!(
        error.hint().is_some_and(|hint| hint.contains("the name under which the job wrote")),
        "{error:?}"
    );
    assert_eq!(folder.read("out.ndjson"), "{\"n\":1}\n");

    // It was refused before anything came of it. Another one begins with new records.
    let two = format!("{text}  more: {{ type: file, input: a, path: DIR/more.ndjson, format: ndjson }}\n");
    fs::write(folder.path("a.csv"), "n\n1\nbad\n2\n").unwrap();
    let failing = two.replace("format: csv,", "format: csv, reject_limit: 0,");
    let node = folder.node(2);
    let end = folder.start(&node, &failing).unwrap().wait_timeout(LIMIT).expect("the job ends");
    assert!(matches!(end.state, JobState::Failed(_)), "{end:?}");
    drop(node);
    // The remains of a killed process are its own.
    fs::write(folder.path("more.ndjson"), "{\"n\":2}\n{\"n\"").unwrap();
    folder.run(&two);
    assert_eq!(folder.read("out.ndjson"), "{\"n\":1}\n{\"n\":2}\n");
    assert_eq!(folder.read("more.ndjson"), "{\"n\":2}\n");

    // A sink that was dropped is new when it comes back.
    folder.run(text);
    let error = folder.try_run(&two).err().unwrap();
    assert!(error.message().contains("has 8 bytes already"), "{error}");
    assert_eq!(folder.read("more.ndjson"), "{\"n\":2}\n");
}
