//! Jobs that run to the end of their sources.

use super::{PAYMENTS, Place, job, place};

const TO_STDOUT: &str = "sinks:\n  out: { type: stdout, input: payments }\n";

/// The rejects of the job that is run.
fn rejects_of(place: &Place, args: &[&str]) -> Vec<serde_json::Value> {
    place.thalweg(&[&["run", "job.yaml", "--data-dir", "D", "--quiet"][..], args].concat()).ends_with(0);
    let text = place.read("D/jobs/demo/rejects/rejects-0.ndjson");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rejects_of_late_and_skipped_records_have_the_bytes_and_the_line_that_came() {
    const METRICS: &str = "type: metrics, partition_by: [k], queries: { c: SELECT count(*) AS n FROM s GROUP BY k OVER SLIDING 1 HOUR }";
    const COUNT: &str = "type: count, key: [k]";
    const MAP: &str = "  m: { type: map, input: s, select: { k: 'k', x: 'x * 2' } }\n";
    let ndjson = "{\"ts\":\"2024-01-01T00:01:00Z\",\"k\":\"a\",\"x\":1}\n\n\
                  {\"k\":\"a\",\"ts\":\"2024-01-01T00:00:00.000Z\",\"x\":1.50,\"note\":\"keep me\",\"loc\":{\"lat\":1}}\r\n";
    let csv = "note,ts,k,x\n,2024-01-01T00:01:00Z,a,1\n\"keep,\nme\",2024-01-01 00:00:00,a,1.50\n";
    let late = [
        ("ndjson", ndjson, ndjson.lines().nth(2).unwrap(), 3),
        ("csv", csv, "\"keep,\nme\",2024-01-01 00:00:00,a,1.50", 3),
    ];
    for (format, input, raw, line) in late {
        for (between, reads, operator) in [("", "s", METRICS), (MAP, "m", METRICS), ("", "s", COUNT)] {
            let job = format!(
                "name: demo\nsources:\n  s: {{ type: file, path: in, format: {format}, \
                 schema: {{ ts: timestamp(ms), k: string, x: float64 }}, time: ts }}\n\
                 operators:\n{between}  f: {{ input: {reads}, {operator} }}\nsinks:\n  out: {{ type: 'null', input: f }}\n"
            );
            let place = Place::with(&[("job.yaml", &job), ("in", input)]);
            for (args, code) in [(&[][..], "late"), (&["--skip", "s@1"], "skipped")] {
                let _ = std::fs::remove_dir_all(place.path().join("D"));
                let rejects = rejects_of(&place, args);
                let what = format!("{format} {between:?} {operator} {code}: {rejects:?}");
                assert_eq!(rejects.len(), 1, "{what}");
                assert_eq!(rejects[0]["code"], code, "{what}");
                assert_eq!((&rejects[0]["offset"], &rejects[0]["line"]), (&1.into(), &line.into()), "{what}");
                assert_eq!(rejects[0]["raw"], raw, "{what}");
            }
        }
    }
}

/// A record of which much is made has its bytes in one line, and not in each.
#[test]
fn what_is_made_of_a_late_record_has_its_bytes_once() {
    let job = "\
name: demo
sources:
  s: { type: file, path: in, format: ndjson, schema: { ts: timestamp(s), text: string }, time: ts }
operators:
  words: { type: split, input: s, field: text, into: word }
  c: { type: metrics, input: words, partition_by: [word], queries: { n: SELECT count(*) AS n FROM words OVER INFINITE } }
sinks:
  out: { type: 'null', input: c }
";
    let input = "{\"ts\":100,\"text\":\"a\"}\n{\"ts\":1,\"text\":\"b c d\",\"note\":1}\n";
    let place = Place::with(&[("job.yaml", job), ("in", input)]);
    let rejects = rejects_of(&place, &[]);
    let raws: Vec<&str> = rejects.iter().map(|reject| reject["raw"].as_str().unwrap()).collect();
    assert_eq!(raws.len(), 3, "{rejects:?}");
    assert_eq!(raws[0], input.lines().nth(1).unwrap());
    assert!(raws[1..].iter().all(|raw| !raw.contains("note")), "{raws:?}");
}

#[test]
fn records_go_through_in_order() {
    let ended = place(TO_STDOUT).thalweg(&["run", "job.yaml"]).ends_with(0);
    assert_eq!(
        ended.stdout,
        r#"{"ts":1000,"card":"c1","merchant":"m1","amount":10.0}
{"ts":2000,"card":"c2","merchant":"m1","amount":0.5}
{"ts":3000,"card":"c1","merchant":"m2","amount":2.25}
{"ts":4000,"card":"c3","merchant":"m9","amount":100.0}
"#
    );
    assert_eq!(ended.counts(), (4, 4, 0));
}

#[test]
fn filter_map_union_and_relay_do_what_they_say() {
    let place = place(
        "\
operators:
  big: { type: filter, input: payments, where: amount >= 2.25 }
  cents: { type: map, input: big, keep: [card, amount], select: { cents: CAST(amount * 100 AS int64), amount: -amount } }
  again: { type: union, input: [big.rest, big] }
  copy: { type: relay, input: again, parallelism: 3 }
sinks:
  cents: { type: file, input: cents, path: cents.csv, format: csv }
  all: { type: file, input: copy, path: all.csv, format: csv }
  both: { type: file, input: [payments, copy], path: both.csv, format: csv }
",
    );
    let ended = place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(0);
    assert_eq!(place.read("cents.csv"), "card,amount,cents\nc1,-10.0,1000\nc1,-2.25,225\nc3,-100.0,10000\n");
    assert_eq!(place.read("all.csv").lines().count(), 5);
    assert_eq!(place.read("all.csv").lines().nth(2), Some("2000,c2,m1,0.5"), "order is kept");
    let doubled: Vec<String> = place.read("both.csv").lines().skip(1).map(str::to_owned).collect();
    assert_eq!(doubled.len(), 8);
    assert!(doubled.chunks(2).all(|pair| pair[0] == pair[1]), "{doubled:?}");
    assert_eq!(ended.counts(), (4, 3 + 4 + 8, 0));
}

#[test]
fn what_is_no_record_goes_to_rejects() {
    let payments = format!("{PAYMENTS}yesterday,c1,m1,1\n5000,c1,m1,2\n");
    let place = Place::with(&[("payments.csv", &payments), ("job.yaml", &job(TO_STDOUT))]);
    let ended = place.thalweg(&["run", "job.yaml", "--data-dir", "D"]).ends_with(0);
    assert_eq!(ended.counts(), (6, 5, 1));
    assert!(ended.stderr.contains("rejects of source payments: parse: 1"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("; the first: line 6: field \"ts\": expected timestamp(ms)"),
        "{}",
        ended.stderr
    );
    let rejects = place.read("D/jobs/demo/rejects/rejects-0.ndjson");
    assert!(rejects.contains(r#""source":"payments","offset":4,"line":6,"code":"parse""#), "{rejects}");
    assert!(rejects.contains(r#""raw":"yesterday,c1,m1,1""#), "{rejects}");

    let ended = place.thalweg(&["run", "job.yaml", "--set", "sources.payments.reject_limit=0"]).ends_with(1);
    assert!(ended.stderr.contains("reject_limit"), "{}", ended.stderr);
    ended.counts();
}

#[test]
fn a_record_can_be_skipped() {
    let place = place(TO_STDOUT);
    let ended = place.thalweg(&[
        "run",
        "job.yaml",
        "--data-dir",
        "D",
        "--skip",
        "payments@1",
        "--skip",
        "payments@99",
    ]);
    let ended = ended.ends_with(0);
    assert!(!ended.stdout.contains("c2") && ended.stdout.lines().count() == 3, "{}", ended.stdout);
    assert_eq!(ended.counts(), (4, 3, 1));
    let rejects = place.read("D/jobs/demo/rejects/rejects-0.ndjson");
    assert!(rejects.contains(r#""offset":1"#) && rejects.contains("skipped"), "{rejects}");
    assert!(rejects.contains(r#""line":3"#) && rejects.contains(r#""raw":"2000,c2,m1,0.5""#), "{rejects}");

    place.thalweg(&["run", "job.yaml", "--skip", "other@1"]).ends_with(2);
    place.thalweg(&["run", "job.yaml", "--skip", "payments"]).ends_with(2);
}

#[test]
fn answers_are_counted_where_they_leave_the_job() {
    let metrics = |name: &str, input: &str| {
        format!(
            "  {name}: {{ type: metrics, input: {input}, partition_by: card, queries: {{ n: SELECT count(*) AS n \
             FROM payments GROUP BY card OVER INFINITE }} }}\n"
        )
    };
    let counts = |operators: &str, sinks: &str| {
        let operators = if operators.is_empty() { String::new() } else { format!("operators:\n{operators}") };
        place(&format!("{operators}sinks:\n{sinks}"))
            .thalweg(&["run", "job.yaml", "--quiet"])
            .ends_with(0)
            .counts()
    };
    let chain = metrics("first", "payments")
        + "  between: { type: map, input: first, keep: [ts, card, amount], select: { seen: n.n } }\n"
        + &metrics("last", "between")
        + "  large: { type: filter, input: last, where: amount > 5 }\n";
    let one = "  one: { type: 'null', input: last }\n";
    assert_eq!(counts(&chain, one), (4, 4, 0), "the first metrics only feed the last");
    let same = format!("{one}  two: {{ type: 'null', input: last }}\n");
    assert_eq!(counts(&chain, &same), (4, 4, 0), "two sinks take the same answers");
    let both = format!("{one}  two: {{ type: 'null', input: between }}\n");
    assert_eq!(counts(&chain, &both), (4, 8, 0), "answers of both leave");
    assert_eq!(counts(&chain, "  one: { type: 'null', input: large }\n"), (4, 4, 0), "filtered after it");
    assert_eq!(
        counts(&chain, "  one: { type: 'null', input: last.rejects }\n"),
        (4, 0, 0),
        "rejects are not answers"
    );

    let plain = "  one: { type: 'null', input: payments }\n  two: { type: 'null', input: payments }\n";
    assert_eq!(counts("", plain), (4, 4, 0), "sinks that read the same");
    let split = "  big: { type: filter, input: payments, where: amount > 5 }\n";
    let parts = "  one: { type: 'null', input: big }\n  two: { type: 'null', input: big.rest }\n";
    assert_eq!(counts(split, parts), (4, 4, 0), "each record goes to one of them");
}

#[test]
fn keys_can_be_set_for_a_run() {
    let place = place(TO_STDOUT);
    std::fs::write(place.path().join("other.csv"), "ts,card,merchant,amount\n1,x,y,3\n").unwrap();
    let set =
        ["run", "job.yaml", "--set", "sources.payments.path=other.csv", "--set", "sinks.out.format=csv"];
    let ended = place.thalweg(&set).ends_with(0);
    assert_eq!(ended.stdout, "ts,card,merchant,amount\n1,x,y,3.0\n");
}

#[test]
fn the_job_is_kept_in_the_data_directory() {
    let place = place(TO_STDOUT);
    place.thalweg(&["run", "job.yaml", "--data-dir", "D", "--set", "cycle.every=5s"]).ends_with(0);
    let kept: serde_json::Value = serde_json::from_str(&place.read("D/jobs/demo/job.json")).unwrap();
    assert_eq!(kept["sources"]["payments"]["path"], "payments.csv");
    assert_eq!(kept["cycle"]["every"], "5s");
    let ended = place.thalweg(&["run", "D/jobs/demo/job.json"]).ends_with(0);
    assert_eq!(ended.counts().0, 4, "the kept file is a job file");
}

#[test]
fn without_a_data_directory_the_summary_says_so() {
    let place = place(TO_STDOUT);
    let ended = place.thalweg(&["run", "job.yaml"]).ends_with(0);
    assert!(ended.stderr.contains("temporary"), "{}", ended.stderr);
    let ended = place.thalweg(&["run", "job.yaml", "--data-dir", "D"]).ends_with(0);
    let commits = "commits of job demo: last=";
    assert!(ended.stderr.starts_with(commits) && ended.stderr.lines().count() == 2, "{}", ended.stderr);
}

#[test]
fn several_jobs_run_in_one_process() {
    let place = place(TO_STDOUT);
    std::fs::write(place.path().join("second.yaml"), job(TO_STDOUT).replace("demo", "second")).unwrap();
    let ended = place.thalweg(&["run", "job.yaml", "second.yaml"]).ends_with(0);
    assert_eq!(ended.counts(), (8, 8, 0));
    assert!(ended.stderr.contains("job second: records=4"), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().count(), 8);

    let ended = place.thalweg(&["run", "job.yaml", "job.yaml"]).ends_with(2);
    assert!(ended.stderr.contains("two jobs are called"), "{}", ended.stderr);
}

#[test]
fn results_do_not_depend_on_workers() {
    let place = place(
        "\
operators:
  spread: { type: relay, input: { from: payments, partition: key(card), buffer: 1KiB }, partitions: 7 }
  kept: { type: filter, input: { from: spread, partition: shuffle }, where: amount > 20, parallelism: 3 }
sinks:
  out: { type: stdout, input: kept, format: csv }
",
    );
    let generated = place.thalweg(&["gen", "payments", "--count", "20000", "--seed", "7"]).ends_with(0);
    std::fs::write(place.path().join("payments.csv"), &generated.stdout).unwrap();
    let expected: Vec<&str> = generated
        .stdout
        .lines()
        .skip(1)
        .filter(|line| line.rsplit(',').next().unwrap().parse::<f64>().unwrap() > 20.0)
        .collect();
    for workers in ["1", "2", "5"] {
        let ended = place.thalweg(&["run", "job.yaml", "--workers", workers]).ends_with(0);
        let cards = |line: &str| line.split(',').nth(1).map(str::to_owned);
        let got: Vec<_> = ended.stdout.lines().skip(1).map(cards).collect();
        assert_eq!(got, expected.iter().map(|line| cards(line)).collect::<Vec<_>>(), "{workers} workers");
    }
}

const TWO_SIDES: &str = "\
name: sides
sources:
  a: { type: file, path: sides.csv, format: csv, time: ts, lateness: 0s, schema: { ts: timestamp(s), side: string, k: string } }
operators:
  l: { type: filter, input: a, where: \"side = 'l'\" }
  r: { type: filter, input: a, where: \"side = 'r'\" }
  j: { type: join, input: [l, r], key: k, within: 10s, left: true, partitions: 4 }
";

#[test]
fn records_that_found_no_other_are_told_at_the_end() {
    let sides = "ts,side,k\n10,l,a\n11,l,b\n12,l,c\n12,r,d\n";
    let sink = "sinks: { out: { type: stdout, input: j } }\n";
    let place = Place::with(&[("sides.csv", sides), ("job.yaml", &format!("{TWO_SIDES}{sink}"))]);
    for partitions in ["1", "4"] {
        let set = format!("operators.j.partitions={partitions}");
        let ended = place.thalweg(&["run", "job.yaml", "--quiet", "--set", &set]).ends_with(0);
        let mut keys: Vec<&str> = ended.stdout.lines().collect();
        keys.sort_unstable();
        assert_eq!(keys.len(), 3, "{partitions} partitions: {}", ended.stdout);
    }
    // Where the job goes on, they wait.
    let ended = place.thalweg(&["run", "job.yaml", "--quiet", "--data-dir", "D"]).ends_with(0);
    assert_eq!(ended.stdout, "");
}

#[test]
fn records_that_found_no_other_are_not_late_for_metrics_of_their_key() {
    let mut sides = "ts,side,k\n".to_owned();
    for second in 0..400 {
        sides += &format!("{second},l,a\n{second},r,a\n");
        // Time does not advance in tasks that have none of the first key until the next of these comes.
        if second % 10 == 0 {
            sides += &format!("{second},l,z{second}\n");
        }
    }
    let metrics = |name: &str, rest: &str| {
        format!("  {name}: {{ type: metrics, input: j, {rest} OVER INFINITE\" }} }}\n")
    };
    let job = format!(
        "{TWO_SIDES}{}{}sinks:\n  kept: {{ type: file, input: keyed, path: keyed.ndjson }}\n  \
         late: {{ type: file, input: all, path: all.ndjson }}\n",
        metrics("keyed", "partition_by: k, queries: { n: \"SELECT count(*) AS n FROM j GROUP BY k"),
        metrics("all", "queries: { n: \"SELECT count(*) AS n FROM j"),
    );
    let place = Place::with(&[("sides.csv", &sides), ("job.yaml", &job)]);
    for (partitions, all_are_kept) in [("1", true), ("4", false)] {
        let set = format!("operators.j.partitions={partitions}");
        let allowed = "sources.a.reject_limit=100";
        let ended = place.thalweg(&["run", "job.yaml", "--set", &set, "--set", allowed]).ends_with(0);
        assert!(!place.read("keyed.ndjson").contains("\"late\":["), "{partitions} partitions");
        assert_eq!(!place.read("all.ndjson").contains("\"late\":["), all_are_kept, "{partitions} partitions");
        let warning = "operator \"all\" is split by no key";
        assert_eq!(!ended.stderr.contains(warning), all_are_kept, "{}", ended.stderr);
        // Of those that the end of the input has let go of, no source knows.
        assert_eq!(!ended.stderr.contains("rejects of operator j: late:"), all_are_kept, "{}", ended.stderr);
        assert!(!ended.stderr.contains("rejects of source :"), "{}", ended.stderr);
    }
}

#[test]
fn elements_without_a_key_are_one_per_partition() {
    let records: String = (0..10_000).map(|n| format!("k{}\n", n % 5)).collect();
    let job = "\
name: parts
sources:
  a: { type: file, path: a.csv, format: csv, schema: { k: string } }
operators:
  even: { type: count, input: a, partitions: 3 }
  split: { type: count, input: { from: a, partition: key(k) }, partitions: 3, parallelism: 2 }
sinks:
  even: { type: file, input: even, path: even.ndjson }
  split: { type: file, input: split, path: split.ndjson }
";
    let place = Place::with(&[("a.csv", &format!("k\n{records}")), ("job.yaml", job)]);
    let mut told: Option<[String; 2]> = None;
    for args in [&["--workers", "1"][..], &["--workers", "3"], &["--workers", "2", "--data-dir", "D"]] {
        place.thalweg(&[&["run", "job.yaml", "--quiet"], args].concat()).ends_with(0);
        let now = [place.read("even.ndjson"), place.read("split.ndjson")];
        for (name, counts) in ["even", "split"].iter().zip(&now) {
            let ones = counts.lines().filter(|line| *line == "{\"count\":1}").count();
            assert!((2..=3).contains(&ones), "{name}: {ones} elements");
            assert_eq!(counts.lines().count(), 10_000);
        }
        let before = told.get_or_insert_with(|| now.clone());
        assert_eq!(*before, now, "{args:?}");
    }
}

/// Texts with ids, the second of which comes twice, and the last of which is late.
const TEXTS: &str = "ts,id,line\n100,x1,a b a\n101,x2,a a\n102,x2,a a\n103,x3,b\n10,x4,a\n";

const WORDS: &str = "\
name: words
sources:
  texts: { type: file, path: texts.csv, format: csv, time: ts, id: id, dedup: 10m, schema: { ts: timestamp(s), id: string, line: string } }
operators:
  words: { type: split, input: texts, field: line, into: word }
  counts: { type: count, input: words, key: word }
  totals: { type: metrics, input: words, partition_by: word, queries: { w: \"SELECT count(*) AS n FROM words GROUP BY word OVER INFINITE\" } }
  answered: { type: count, input: totals, key: word }
sinks:
  counts_out: { type: file, input: counts, path: counts.csv, format: csv }
  totals_out: { type: file, input: totals, path: totals.ndjson }
  answered_out: { type: file, input: answered, path: answered.csv, format: csv }
";

#[test]
fn records_made_of_one_are_no_duplicates_and_late_ones_are_told_once() {
    let place = Place::with(&[("texts.csv", TEXTS), ("job.yaml", WORDS)]);
    let ended = place.thalweg(&["run", "job.yaml", "--data-dir", "data"]).ends_with(0);
    for name in ["counts.csv", "answered.csv"] {
        let text = place.read(name);
        let mut counts: Vec<&str> = text.lines().skip(1).collect();
        counts.sort_unstable();
        assert_eq!(counts, ["a,1", "a,2", "a,3", "a,4", "b,1", "b,2"], "{name}");
    }
    let totals = place.read("totals.ndjson");
    assert_eq!(totals.matches("\"duplicate\":[\"word\"]").count(), 2, "{totals}");
    assert!(totals.contains(r#""word":"a","w":{"n":4}"#), "{totals}");
    // By `counts` and by `totals`; `answered` reads of the latter's answer that it has its line.
    assert_eq!(ended.counts().2, 2, "{}", ended.stderr);
    let folder = place.path().join("data/jobs/words/rejects");
    let rejects: String = std::fs::read_dir(folder)
        .expect("a rejects folder")
        .map(|file| std::fs::read_to_string(file.expect("an entry").path()).expect("text"))
        .collect();
    for part in ["refused by counts", "refused by word"] {
        assert_eq!(rejects.matches(part).count(), 1, "{part} in {rejects}");
    }
}

#[test]
fn pairs_are_no_duplicates_though_their_key_is_an_id() {
    let sides = "ts,side,id\n1,l,k\n3,l,k\n5,l,k\n6,r,k\n";
    let job = "\
name: sides
sources:
  a: { type: file, path: sides.csv, format: csv, time: ts, id: id, dedup: 1s, schema: { ts: timestamp(s), side: string, id: string } }
operators:
  l: { type: filter, input: a, where: \"side = 'l'\" }
  r: { type: filter, input: a, where: \"side = 'r'\" }
  j: { type: join, input: [l, r], key: id, within: 1h }
  c: { type: count, input: j, key: id }
  m: { type: metrics, input: j, queries: { p: \"SELECT count(*) AS n FROM j OVER INFINITE\" } }
sinks:
  counts: { type: file, input: c, path: counts.csv, format: csv }
  answers: { type: file, input: m, path: answers.ndjson }
";
    let place = Place::with(&[("sides.csv", sides), ("job.yaml", job)]);
    place.thalweg(&["run", "job.yaml"]).ends_with(0);
    assert_eq!(place.read("counts.csv"), "id,count\nk,1\nk,2\nk,3\n");
    assert!(place.read("answers.ndjson").contains("\"n\":3"), "{}", place.read("answers.ndjson"));
}

/// `split` gives each piece the other fields: the pieces of a record are bounded by its size.
#[test]
fn a_record_that_would_be_too_many_goes_to_rejects() {
    const JOB: &str = "\
name: pieces
sources:
  texts: { type: file, path: texts.ndjson, format: ndjson, schema: { id: string, line: string, about: string } }
operators:
  words: { type: split, input: texts, field: line, into: word }
  kept: { type: map, input: words, select: { id: id, word: word } }
sinks:
  out: { type: file, input: kept, path: out.ndjson }
";
    let line = |id: &str, pieces: usize, about: usize| {
        format!(
            "{{\"id\":\"{id}\",\"line\":\"{}\",\"about\":\"{}\"}}\n",
            "a ".repeat(pieces),
            "x".repeat(about)
        )
    };
    // 100 GB, a million pieces and one more, 256 MiB and a little more; and others.
    let texts = [
        line("first", 2, 10),
        line("wide", 100_000, 1_000_000),
        line("many", (1 << 20) + 1, 0),
        line("few", 1, 1_000_000),
        line("both", 17 << 10, 16 << 10),
        line("last", 3, 0),
    ];
    let place = Place::with(&[("texts.ndjson", &texts.concat()), ("job.yaml", JOB)]);
    let ended = place.thalweg(&["run", "job.yaml", "--data-dir", "data"]).ends_with(0);
    let out = place.read("out.ndjson");
    let ids: Vec<&str> = out.lines().filter_map(|line| line.split('"').nth(3)).collect();
    assert_eq!(ids, ["first", "first", "few", "last", "last", "last"]);
    assert_eq!(ended.counts().2, 3, "{}", ended.stderr);
    let folder = place.path().join("data/jobs/pieces/rejects");
    let rejects: String = std::fs::read_dir(folder)
        .expect("a rejects folder")
        .map(|file| std::fs::read_to_string(file.expect("an entry").path()).expect("text"))
        .collect();
    assert_eq!(rejects.matches("\"code\":\"too_many_pieces\"").count(), 3);
    assert!(rejects.contains("got 100000 with 1000004 bytes each"));
}

#[test]
fn a_job_that_takes_records_over_http_is_not_run_without_it() {
    let job = "name: j\nsources: { s: { type: http, schema: { a: int64 } } }\nsinks: { out: { type: 'null', input: s } }\n";
    let place = Place::with(&[("job.yaml", job)]);
    let said = place.thalweg(&["run", "job.yaml"]).ends_with(2).stderr;
    assert_eq!(
        said,
        "error: source \"s\" of job \"j\" takes records over HTTP, and this run does not serve it\n \
         = hint: add --listen 8080, or another port or address\n"
    );
    place.thalweg(&["check", "job.yaml"]).ends_with(0);
}
