//! Records that share an order number, as one record became several: they are distinguished, before and after a
//! restart.

use std::collections::BTreeMap;

use super::*;

const QUERIES: &str = "
    partition_by: [k]
    queries:
      rows: SELECT first(x) AS f, last(x) AS l, prev(x) AS p FROM FIRST GROUP BY k OVER ROWS 3
      hour: SELECT first(x) AS f, last(x) AS l, prev(x) AS p, count(*) AS n FROM FIRST GROUP BY k OVER SLIDING 1 HOUR
      ever: SELECT first(x) AS f, last(x) AS l, prev(x) AS p FROM FIRST OVER INFINITE
sinks:
  out: { type: file, input: m, path: DIR/out.ndjson, format: ndjson }
";

/// Each record comes by two ways.
const BRANCHES: &str = "
name: branches
cycle: { records: 7 }
sources:
  s: { type: file, path: DIR/s.csv, format: csv, schema: { ts: timestamp(ms), k: string, x: int64 }, time: ts }
operators:
  a: { type: map, input: s, select: { ts: ts, k: k, x: x } }
  b: { type: map, input: s, select: { ts: ts, k: k, x: 0 - x } }
  m:
    type: metrics
    input: [a, b]";

/// A record meets all those of the last second.
const PAIRS: &str = "
name: pairs
cycle: { records: 7 }
sources:
  s: { type: file, path: DIR/s.csv, format: csv, schema: { ts: timestamp(ms), k: string, x: int64 }, time: ts }
operators:
  a: { type: map, input: s, select: { ts: ts, k: k, x: x } }
  fifth: { type: filter, input: s, where: x % 5 = 4 }
  b: { type: map, input: fifth, select: { k: k, y: x } }
  j: { type: join, input: [a, b], key: k, within: 1s }
  m:
    type: metrics
    input: j";

/// Runs the job over a file that grows, and holds each answer against the ones before it: they leave in the order in which the windows have their records.
fn check(text: &str, input: &str) {
    let text = format!("{text}{}", QUERIES.replace("FIRST", input));
    let folder = Folder::new();
    fs::write(folder.path("s.csv"), "ts,k,x\n").unwrap();
    for part in 0..4 {
        let lines = (part * 25..(part + 1) * 25).map(|x| format!("{},k{},{x}\n", x / 10 * 10, x % 2));
        append_text(&folder.path("s.csv"), &lines.collect::<String>());
        folder.run(&text);
    }
    let (mut ever, mut groups): (Vec<i64>, BTreeMap<String, Vec<i64>>) = (Vec::new(), BTreeMap::new());
    for line in folder.read("out.ndjson").lines() {
        let answer: serde_json::Value = serde_json::from_str(line).unwrap();
        let (k, x) = (answer["k"].as_str().unwrap(), answer["x"].as_i64().unwrap());
        let group = groups.entry(k.to_owned()).or_default();
        group.push(x);
        ever.push(x);
        let is = |query: &str, held: &[i64]| {
            let last = held.len() - 1;
            let got = ["f", "l", "p"].map(|output| answer[query][output].as_i64());
            let expected = [held.first(), held.last(), last.checked_sub(1).map(|prev| &held[prev])];
            assert_eq!(got, expected.map(Option::<&i64>::copied), "{query}: {line}");
        };
        is("rows", &group[group.len().saturating_sub(3)..]);
        is("hour", group);
        is("ever", &ever);
        assert_eq!(answer["hour"]["n"].as_u64(), Some(group.len() as u64), "{line}");
    }
    assert!(ever.len() >= 100, "{} answers", ever.len());
}

#[test]
fn branches_of_a_source_meet_again_in_the_order_in_which_they_came() {
    check(BRANCHES, "a");
}

#[test]
fn pairs_of_one_record_stand_in_the_order_in_which_they_came() {
    check(PAIRS, "j");
}
