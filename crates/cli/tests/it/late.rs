//! Late records in rejects: against which record they are late, and which file they are from.

use serde_json::Value;

use super::Place;

const JOB: &str = r"
name: demo
sources:
  s:
    type: file
    path: 'day-*.csv'
    order: arrival
    schema: { ts: timestamp(ms), k: string }
    time: ts
    lateness: 10s
    reject_limit: 100
operators:
  w:
    type: metrics
    input: s
    partition_by: [k, []]
    partitions: 1
    queries:
      key: SELECT count(*) AS n FROM s GROUP BY k OVER SLIDING 1 HOUR
      all: SELECT count(*) AS n FROM s OVER SLIDING 1 HOUR
  e: { type: count, input: s, key: [k], partitions: 1 }
sinks:
  w: { type: file, path: w.ndjson, input: w }
  e: { type: file, path: e.ndjson, input: e }
";

/// Records 0 to 4: the newest is record 2.
const FIRST: &str = "ts,k\n1000000,a\n1123000,b\n1200250,a\n1200250,b\n1150000,b\n";

/// Records 5 to 8: the first is late by a time that only the file before it has.
const SECOND: &str = "ts,k\n1077000,a\n1195000,a\n1300000,c\n1289000,c\n";

/// The rejects of the job, those of each operator in their order; the files of each run come before it.
///
/// How the lines of two operators alternate depends on the batches of a run.
fn rejects(runs: &[&[(&str, &str)]], args: &[&str]) -> Vec<Value> {
    let place = Place::with(&[("job.yaml", JOB)]);
    for files in runs {
        for (name, text) in *files {
            place.write(name, text.as_bytes());
        }
        place.thalweg(&[&["run", "job.yaml", "--data-dir", "D", "--quiet"][..], args].concat()).ends_with(0);
    }
    let text = place.read("D/jobs/demo/rejects/rejects-0.ndjson");
    let folder = std::fs::canonicalize(place.path()).expect("a folder");
    let text = text.replace(&format!("{}/", folder.display()), "");
    let mut rejects: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    rejects
        .sort_by_key(|reject| reject["reason"].as_str().is_some_and(|text| text.contains("(refused by e)")));
    rejects
}

/// Reasons of one operator's rejects, with the offset of the record.
fn reasons(rejects: &[Value], by: &str) -> Vec<String> {
    let of = rejects.iter().filter(|reject| reject["reason"].as_str().is_some_and(|text| text.contains(by)));
    of.map(|reject| format!("{}: {}", reject["offset"], reject["reason"].as_str().expect("a text"))).collect()
}

#[test]
fn a_late_record_says_against_which_record_before_and_after_a_restart() {
    let (first, second) = (("day-1.csv", FIRST), ("day-2.csv", SECOND));
    let straight = rejects(&[&[first, second]], &[]);
    let restarted = rejects(&[&[first], &[second]], &[]);
    assert_eq!(restarted.len(), 6, "{restarted:#?}");
    for by in ["(refused by k, global)", "(refused by e)"] {
        let expected = [
            (4, "20:00.25Z, s@2", "19:10Z, 50.25s", 1),
            (5, "20:00.25Z, s@2", "17:57Z, 2m 3.25s", 2),
            (8, "21:40Z, s@7", "21:29Z, 11s", 2),
        ];
        let expected = expected.map(|(offset, newest, got, day)| {
            format!(
                "{offset}: expected an event time at most 10s before the newest record's (1970-01-01T00:{newest}), \
                 got 1970-01-01T00:{got} before it {by}, in \"day-{day}.csv\""
            )
        });
        assert_eq!(reasons(&straight, by), expected);
        assert_eq!(reasons(&restarted, by), expected);
    }
    assert_eq!(straight, restarted);
}

#[test]
fn rejects_of_one_file_do_not_name_it() {
    let late = rejects(&[&[("day-1.csv", FIRST)]], &["--set", "sources.s.path=day-1.csv"]);
    let ends = late.iter().map(|reject| reject["reason"].as_str().expect("a text"));
    assert!(late.len() == 2 && { ends }.all(|reason| reason.ends_with(')')), "{late:#?}");
}

#[test]
fn a_skipped_record_of_several_files_names_its_own() {
    let files = [("day-1.csv", FIRST), ("day-2.csv", SECOND)];
    let skipped = rejects(&[&files], &["--skip", "s@7"]);
    let reasons = reasons(&skipped, "--skip");
    assert_eq!(reasons, ["7: left out by --skip s@7, in \"day-2.csv\""]);
}
