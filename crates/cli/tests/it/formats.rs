//! Data directories as earlier programs wrote them: a job goes on from each as if this program had run from the first
//! record, to the bit, and its counts are checked.
//!
//! `fixtures/` has a folder for each change of a format, made by `cargo xtask fixture`: the job was killed between two
//! commits, so that journals and the order log hold what no commit names.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use reqwest::blocking::Client;
use serde_json::Value;

use super::Place;
use super::faults::Served;

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let entries = std::fs::read_dir(&folder).expect("the folder of fixtures");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> = paths.filter(|path| path.join("requests.json").exists()).collect();
    found.sort();
    assert!(!found.is_empty(), "no fixture in {}", folder.display());
    found
}

/// One fixture with one back end.
struct Fixture {
    job: String,
    archive: PathBuf,
    /// All requests, in order: a source, and records as they were sent. (To parse and print a number may change it.)
    requests: Vec<(String, String)>,
    /// Number of requests that the job had got when it was killed.
    before: usize,
    /// A query was added in front of this one.
    query_added: usize,
}

impl Fixture {
    fn read(folder: &Path, back_end: &str) -> Self {
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file of the fixture");
        let counts: Value = serde_json::from_str(&text("requests.json")).expect("JSON");
        let count = |name: &str| counts[back_end][name].as_u64().expect("a count") as usize;
        let packed = std::fs::File::open(folder.join("requests.txt.gz")).expect("the requests");
        let mut lines = String::new();
        GzDecoder::new(packed).read_to_string(&mut lines).expect("the requests unpacked");
        let requests = lines.split("# ").skip(1).take(count("all")).map(|request| {
            let (source, records) = request.split_once('\n').expect("a source, and records");
            (source.to_owned(), records.to_owned())
        });
        Self {
            job: text("job.yaml").replace("state: {", &format!("state: {{ backend: {back_end},")),
            archive: folder.join(format!("{back_end}.tar.gz")),
            requests: requests.collect(),
            before: count("before"),
            query_added: count("query_added"),
        }
    }

    fn unpacked(&self) -> Place {
        let place = Place::with(&[]);
        let packed = std::fs::File::open(&self.archive).expect("the archive");
        tar::Archive::new(GzDecoder::new(packed)).unpack(place.path()).expect("the archive unpacked");
        place
    }

    /// Sends the requests from this one on; returns the answers to those that the fixture has not seen.
    fn run(&self, place: &Place, from: usize) -> Vec<String> {
        let mut served = Served::start(place, &self.job);
        let node = format!("http://{}/v1/jobs/all", served.address());
        let client = Client::new();
        let mut answers = Vec::new();
        for (number, (source, records)) in self.requests.iter().enumerate().skip(from) {
            if number == self.query_added {
                let query = client.post(format!("{node}/operators/features/queries/added"));
                let token = std::fs::read_to_string(place.path().join("D/admin.token")).unwrap_or_default();
                let query = query.bearer_auth(token.trim()).header("content-type", "text/plain");
                let reply = query.body(ADDED).send().expect("a reply");
                assert!(reply.status().is_success(), "{}", reply.text().unwrap_or_default());
            }
            let reply = client
                .post(format!("{node}/sources/{source}"))
                .body(records.clone())
                .send()
                .expect("a reply");
            assert_eq!(reply.status(), 200);
            let reply = reply.text().expect("a body");
            if number >= self.before {
                answers.extend(reply.lines().map(str::to_owned));
            }
        }
        served.ends("-TERM").ends_with(0);
        answers
    }
}

/// As `cargo xtask fixture` adds it.
const ADDED: &str =
    "SELECT count(*) AS n, max(cents) AS most FROM payments GROUP BY card OVER SLIDING 30 MINUTES";

const SINKS: [&str; 5] = ["answers.ndjson", "seen.csv", "sums.ndjson", "pairs.ndjson", "moves.ndjson"];

/// Payments that are neither late, nor known, nor of another type; and those that can be stored, with their cents.
fn recount(requests: &[(String, String)]) -> (u64, u64, i64) {
    let (mut accepted, mut stored, mut cents) = (0, 0, 0);
    let (mut latest, mut ids) = (i64::MIN, HashSet::new());
    let payments = requests.iter().filter(|(source, _)| source == "payments");
    for payment in payments.flat_map(|(_, records)| records.lines()) {
        let payment: Value = serde_json::from_str(payment).expect("a record");
        let Some(value) = payment["cents"].as_i64() else { continue };
        stored += 1;
        cents += value;
        let time = payment["ts"].as_i64().expect("a time");
        let is_late = time < latest.saturating_sub(60_000);
        // What comes twice comes within seconds.
        if !is_late && ids.insert(payment["tx"].to_string()) {
            latest = latest.max(time);
            accepted += 1;
        }
    }
    (accepted, stored, cents)
}

/// Place and code of each rejected record.
fn rejects(place: &Place) -> Vec<(String, u64, String)> {
    let folder = place.path().join("D/jobs/all/rejects");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("rejects").map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "ndjson"));
    let lines = files.iter().flat_map(|path| {
        let text = std::fs::read_to_string(path).expect("a file of rejects");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let mut found: Vec<_> = lines
        .map(|line| {
            let line: Value = serde_json::from_str(&line).expect("a line of rejects");
            (line["source"].to_string(), line["offset"].as_u64().unwrap_or(0), line["code"].to_string())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn a_job_goes_on_from_what_an_earlier_program_left() {
    for folder in fixtures() {
        for back_end in ["indexed", "files"] {
            let what = format!("{} {back_end}", folder.display());
            let fixture = Fixture::read(&folder, back_end);
            let left = fixture.unpacked();
            let is_same: fn(&str, &str) -> bool =
                match EARLIER_ANSWERS.iter().any(|name| folder.ends_with(name)) {
                    true => is_same_but_for_changes,
                    false => |got, expected| got == expected,
                };
            let answers = fixture.run(&left, fixture.before);
            let anew = Place::with(&[]);
            std::fs::create_dir(anew.path().join("out")).expect("a folder");
            let expected = fixture.run(&anew, 0);
            assert_same(&answers, &expected, is_same, &what);

            for sink in SINKS {
                let [got, expected] = [&left, &anew].map(|place| place.read(&format!("out/{sink}")));
                let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
                assert_same(&lines(&got), &lines(&expected), is_same, &format!("{what}: {sink}"));
            }
            assert_eq!(rejects(&left), rejects(&anew), "{what}");

            let (accepted, stored, cents) = recount(&fixture.requests);
            let answer = answers.iter().rev().find(|answer| answer.contains("\"all\":")).expect("an answer");
            let answer: Value = serde_json::from_str(answer).expect("JSON");
            assert_eq!(answer["all"]["n"], accepted, "{what}");
            let query = "SELECT count(*) AS n, sum(cents) AS s FROM stored";
            let told = left.thalweg(&["sql", query, "--data-dir", "D", "--format", "csv"]).ends_with(0);
            assert_eq!(told.stdout, format!("n,s\n{stored},{cents}\n"), "{what}");
            left.thalweg(&["verify", "D"]).ends_with(0);
        }
    }
}

/// Directories of builds that answered `duplicate: true`, and whose quantiles could be beyond the values in their windows.
const EARLIER_ANSWERS: [&str; 2] = ["2026-11-25", "2026-11-26"];

/// Whether two lines differ in nothing that the changelog does not name.
fn is_same_but_for_changes(got: &str, expected: &str) -> bool {
    let (Ok(mut got), Ok(mut expected)) =
        (serde_json::from_str::<Value>(got), serde_json::from_str::<Value>(expected))
    else {
        return got == expected;
    };
    let quantile =
        |line: &mut Value| line.pointer_mut("/ever/q").map(Value::take).unwrap_or_default().as_f64();
    let is_close = match (quantile(&mut got), quantile(&mut expected)) {
        (Some(got), Some(expected)) => (got - expected).abs() <= 0.01 * expected.abs() * 1.000_001,
        (got, expected) => got == expected,
    };
    for line in [&mut got, &mut expected] {
        if let Some(duplicate) = line.get_mut("duplicate") {
            *duplicate = Value::Bool(!duplicate.is_null());
        }
    }
    is_close && got == expected
}

fn assert_same(got: &[String], expected: &[String], is_same: fn(&str, &str) -> bool, what: &str) {
    let differ = |at: &usize| match (got.get(*at), expected.get(*at)) {
        (Some(got), Some(expected)) => !is_same(got, expected),
        _ => true,
    };
    if let Some(at) = (0..got.len().max(expected.len())).find(differ) {
        panic!(
            "{what}: {} lines, expected {}; line {at} is {:?}, expected {:?}",
            got.len(),
            expected.len(),
            got.get(at),
            expected.get(at)
        );
    }
}
