//! Files of one time, read by it.

use std::fmt::Write as _;

use super::Place;

const JOB: &str = r"
name: two
sources:
  a: { type: file, path: a.csv, schema: { ts: timestamp(ms), k: string }, time: ts }
  b: { type: file, path: b.csv, schema: { ts: timestamp(ms), k: string }, time: ts }
operators:
  f:
    type: metrics
    input: [a, b]
    partition_by: [k]
    partitions: 1
    queries: { n: SELECT count(*) AS n FROM a GROUP BY k OVER SLIDING 1 HOUR }
sinks: { out: { type: file, input: f, path: out.ndjson, format: ndjson } }
";

/// A record every 400 s of one key, `name`.
fn hours(name: &str, from: u64, count: u64) -> String {
    let mut text = "ts,k\n".to_owned();
    for n in 0..count {
        writeln!(text, "{},{name}", 1_700_000_000_000 + (from + n) * 400_000).expect("a text takes all");
    }
    text
}

fn place(job: &str) -> Place {
    let (a, b) = (hours("a", 0, 2_000), hours("b", 0, 2_000));
    Place::with(&[("a.csv", &a), ("b.csv", &b), ("job.yaml", job)])
}

/// Counts of each answer, in the order of the answers; late ones are `None`.
fn counts(place: &Place) -> Vec<Option<u64>> {
    let text = std::fs::read_to_string(place.path().join("out.ndjson")).expect("answers");
    let answers = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    answers.map(|answer| answer["n"]["n"].as_u64().filter(|_| answer.get("late").is_none())).collect()
}

/// Nine records of an hour, at most, whichever file is ahead in it.
fn right(counts: &[Option<u64>]) -> bool {
    counts.len() == 4_000
        && counts.chunks(2).enumerate().all(|(n, both)| {
            let count = Some((n as u64 + 1).min(9));
            both == [count, count]
        })
}

#[test]
fn two_files_of_one_time_are_read_side_by_side() {
    let place = place(JOB);
    place.thalweg(&["run", "job.yaml"]).ends_with(0);
    let counts = counts(&place);
    assert!(right(&counts), "{:?}", &counts[..40]);
}

#[test]
fn a_job_may_take_records_as_they_come() {
    for job in [
        JOB.replace("sources:", "order: arrival\nsources:"),
        JOB.replace("time: ts }", "time: ts, order: arrival }"),
    ] {
        let place = place(&job);
        let ended = place.thalweg(&["run", "job.yaml"]).ends_with(1);
        let said = "error=\"1999 of 2000 records of source b are rejects; `reject_limit` of a source says how many are all right\"";
        assert!(ended.stderr.ends_with(&format!("{said}\n")), "{}", ended.stderr);
        let allowed = ["run", "job.yaml", "--set", "sources.b.reject_limit=1999"];
        let ended = place.thalweg(&allowed).ends_with(0);
        assert!(!ended.stderr.contains("error"), "{}", ended.stderr);
        let counts = counts(&place);
        assert!(
            counts.iter().filter(|count| count.is_none()).count() > 1_000,
            "one file is far ahead of the other"
        );
    }
}

/// What was read by time goes on by time.
#[test]
fn files_that_were_read_in_part_go_on_side_by_side() {
    let place = place(JOB);
    let run = ["run", "job.yaml", "--data-dir", "D"];
    place.write("a.csv", hours("a", 0, 1_000).as_bytes());
    place.write("b.csv", hours("b", 0, 1_000).as_bytes());
    place.thalweg(&run).ends_with(0);
    place.write("a.csv", hours("a", 0, 2_000).as_bytes());
    place.write("b.csv", hours("b", 0, 2_000).as_bytes());
    place.thalweg(&run).ends_with(0);
    let counts = counts(&place);
    assert!(right(&counts), "{:?}", &counts[1_990..2_040]);
}

/// Files of one source, of which more come; one of them packed.
#[test]
fn files_of_one_source_are_read_side_by_side_and_the_next_days_go_on() {
    let path = "path: 'day-*/?.csv*'";
    let job = JOB.replace("path: a.csv", path).replace(
        "  b: { type: file, path: b.csv, schema: { ts: timestamp(ms), k: string }, time: ts }\n",
        "",
    );
    let job = job.replace("[a, b]", "a");
    let place = place(&job);
    let day = |number: u64| {
        std::fs::create_dir(place.path().join(format!("day-{number}"))).expect("a folder");
        for name in ["a", "b"] {
            let text = hours(name, 1_000 * number, 1_000);
            place.write(&format!("day-{number}/{name}.csv"), text.as_bytes());
        }
    };
    let run = ["run", "job.yaml", "--data-dir", "D"];
    day(0);
    let packed = std::process::Command::new("gzip").arg(place.path().join("day-0/b.csv")).status();
    assert!(packed.expect("gzip").success());
    place.thalweg(&run).ends_with(0);
    day(1);
    place.thalweg(&run).ends_with(0);
    let counts = counts(&place);
    assert!(right(&counts), "{:?}", &counts[1_990..2_040]);
}

#[test]
fn only_what_has_an_end_and_a_time_is_read_by_time() {
    for (job, said) in [
        (JOB.replacen("time: ts }", "time: ts, order: time, follow: true }", 1), "cannot be"),
        (JOB.replacen("time: ts }", "order: time }", 1), "has no event time"),
        (JOB.replacen("time: ts }", "time: ts, order: key }", 1), "\"key\""),
    ] {
        let place = place(&job);
        let ended = place.thalweg(&["check", "job.yaml"]).ends_with(2);
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
}

/// Files of more than is looked at of each: the end of one counts as well as its beginning.
#[test]
fn check_warns_of_files_of_one_time_that_are_read_as_they_come() {
    let arrival = JOB.replace("sources:", "order: arrival\nsources:");
    let both = "warning: sources \"a\" and \"b\" are read as they come, and their records overlap in time from \
                2023-11-14T22:13:20Z to 2023-12-08T01:40:00Z";
    let one =
        JOB.replace("path: a.csv", "path: [a.csv, b.csv], order: arrival").replace("[a, b]", "a").replace(
            "  b: { type: file, path: b.csv, schema: { ts: timestamp(ms), k: string }, time: ts }\n",
            "",
        );
    let within = "warning: source \"a\" reads its inputs one after the other, and they overlap in time (1 of \
                  2): \"b.csv\" begins at ";
    // Where the second file begins, in records.
    for (job, second, expected) in [
        (JOB, 0, None),
        (&arrival, 0, Some(both)),
        (&arrival, 5_000, None),
        (&arrival, 4_999, None),
        (&JOB.replacen("time: ts }", "time: ts, order: arrival }", 1), 0, Some(both)),
        (&one, 4_000, Some(within)),
        (&one, 0, Some(within)),
        (&one, 5_000, None),
        (&one.replace("order: arrival", "order: time"), 0, None),
        (&arrival.replace("time: ts }", "}"), 0, None),
        // No operator has both.
        (&arrival.replace("input: [a, b]", "input: a"), 0, None),
    ] {
        let (a, b) = (hours("a", 0, 5_000), hours("b", second, 5_000));
        let place = Place::with(&[("a.csv", &a), ("b.csv", &b), ("job.yaml", job)]);
        let said = place.thalweg(&["check", "job.yaml"]).ends_with(0).stderr;
        match expected {
            Some(expected) => {
                assert!(said.contains(expected) && said.contains("= hint: `order: time`"), "{second}: {said}")
            }
            None => assert!(!said.contains("overlap"), "{second} {job}: {said}"),
        }
    }
}
