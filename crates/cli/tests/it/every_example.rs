//! Every folder of `examples/` has a page, and runs from the root of the repository as it is.
//!
//! `examples/custom` is a crate with tests of its own.

use std::collections::BTreeSet;
use std::path::Path;

use reqwest::blocking::Client;

use super::documented::{blocks, document};
use super::faults::Served;
use super::{Ended, Place};

/// A run of an example, and its output, expected file, and whether lines may come in another order, as
/// those of several tasks.
struct Run {
    job: &'static str,
    args: &'static [&'static str],
    outputs: &'static [(&'static str, &'static str, bool)],
}

const RUNS: &[Run] = &[
    Run { job: "first/payments.yaml", args: &[], outputs: &[("stdout", "first/expected.ndjson", false)] },
    Run {
        job: "payments/job.yaml",
        args: &[],
        outputs: &[("answers.ndjson", "payments/expected.ndjson", false)],
    },
    Run { job: "power/job.yaml", args: &[], outputs: &[("power.csv", "power/expected.csv", false)] },
    Run { job: "manufacturing/job.yaml", args: &[], outputs: &[] },
    Run {
        job: "wordcount/job.yaml",
        args: &[],
        outputs: &[("wordcount.csv", "wordcount/expected.csv", true)],
    },
    Run {
        job: "orders/job.yaml",
        args: &[],
        outputs: &[
            ("paid.csv", "orders/expected-paid.csv", true),
            ("priced.csv", "orders/expected-priced.csv", true),
        ],
    },
    Run {
        job: "ixp.yaml",
        args: &["--data-dir", "ixp", "--set", "sources.switches.count=2000"],
        outputs: &[],
    },
];

/// Run by tests below; `iot` and `kafka` need a server, so their jobs are only checked.
const OTHERS: &[&str] = &["cluster", "custom", "fraud", "iot", "kafka"];

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A folder with the examples in it, like the repository's root.
fn root() -> Place {
    let place = Place::with(&[]);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    copy(&examples, &place.path().join("examples"));
    place
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("a copy");
        }
    }
}

#[test]
fn every_folder_has_a_page_and_is_run() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut folders = BTreeSet::new();
    for entry in std::fs::read_dir(&examples).expect("examples") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_dir() {
            assert!(entry.path().join("README.md").exists(), "{} has no page", entry.path().display());
            folders.insert(entry.file_name().into_string().expect("a name"));
        }
    }
    let runs = RUNS.iter().map(|run| run.job.split(['/', '.']).next().expect("a folder"));
    let run: BTreeSet<String> = runs.chain(OTHERS.iter().copied()).map(str::to_owned).collect();
    assert_eq!(folders, run);
}

#[test]
fn every_example_runs_as_it_is_and_writes_what_is_expected() {
    let place = root();
    for Run { job, args, outputs } in RUNS {
        let job = format!("examples/{job}");
        let ended = place.thalweg(&[&["run", job.as_str()][..], args].concat()).ends_with(0);
        let (records, answers, rejects) = ended.counts();
        assert!(records > 0 && answers > 0 && rejects == 0, "{job}: {}", ended.stderr);
        for (output, expected, may_alternate) in *outputs {
            let text = if *output == "stdout" { ended.stdout.clone() } else { place.read(output) };
            let expected = place.read(&format!("examples/{expected}"));
            match may_alternate {
                true => assert_eq!(sorted(&text), sorted(&expected), "{job}"),
                false => assert_eq!(text, expected, "{job}"),
            }
        }
    }
    // From real switches: it runs until it is stopped.
    place.thalweg(&["check", "examples/ixp-live.yaml"]).ends_with(0);
    // Of a longer output the page shows the beginning.
    let page = document("examples/manufacturing/README.md");
    let (_, shown) = blocks(&page).into_iter().find(|(language, _)| language == "csv").expect("an output");
    assert!(place.read("delays.csv").starts_with(&shown), "{shown}");
    let top = place.thalweg(&["sql", "SELECT * FROM top_as_pairs LIMIT 3", "--data-dir", "ixp"]).ends_with(0);
    assert_eq!(top.stdout.lines().count(), 5, "{}", top.stdout);
}

/// Lines that a page shows are lines of the expected output.
#[test]
fn pages_show_lines_of_the_outputs() {
    for (page, expected) in [
        ("first/README.md", &["first/expected.ndjson"][..]),
        ("payments/README.md", &["payments/expected.ndjson"]),
        ("orders/README.md", &["orders/expected-paid.csv", "orders/expected-priced.csv"]),
        ("fraud/README.md", &["fraud/expected.ndjson"]),
    ] {
        let expected: String = expected.iter().map(|name| document(&format!("examples/{name}"))).collect();
        let mut count = 0;
        for (language, shown) in blocks(&document(&format!("examples/{page}"))) {
            if language == "json" || language == "csv" {
                for line in shown.lines() {
                    assert!(expected.lines().any(|known| known == line), "{page} shows {line}");
                    count += 1;
                }
            }
        }
        assert!(count > 0, "{page} shows no output");
    }
}

#[test]
fn features_come_back_by_http_and_count_each_payment_once() {
    let place = root();
    let arguments = ["run", "examples/fraud/job.yaml", "--data-dir", "D", "--listen", "127.0.0.1:0"];
    let post = |served: &mut Served| {
        let url = format!("http://{}/v1/jobs/fraud/sources/payments", served.address());
        let body = place.read("examples/fraud/payments.ndjson");
        Client::new().post(url).body(body).send().expect("an answer").text().expect("a text")
    };
    let mut served = Served::of(place.command(&arguments));
    assert_eq!(post(&mut served).trim(), place.read("examples/fraud/expected.ndjson").trim());
    served.killed();

    // Sent again after a crash: what counted is known.
    let mut served = Served::of(place.command(&arguments));
    let again = post(&mut served);
    let duplicates = again.lines().filter(|line| line.contains("\"duplicate\":[\"card\",\"merchant\"]"));
    assert_eq!(duplicates.count(), 6, "{again}");
    served.ends("-TERM").ends_with(0);
    assert_eq!(place.read("alarms.ndjson"), place.read("examples/fraud/expected-alarms.ndjson"));
}

#[test]
fn the_devices_job_is_a_job() {
    let place = root();
    let mut command = place.command(&["check", "examples/iot/job.yaml"]);
    let ended = Ended::of(command.env("THALWEG_PG_PASSWORD", "secret").output().expect("it runs"));
    let ended = ended.ends_with(0);
    assert!(ended.stdout.contains("sink readings (postgres, "), "{}", ended.stdout);
    // The table has a column for each field that is written.
    let table = place.read("examples/iot/readings.sql");
    let fields = ended.stdout.lines().find_map(|line| line.strip_prefix("  output records: "));
    for field in fields.expect("the fields of the rows").split(", ") {
        let has = table.lines().any(|line| line.trim_start().starts_with(&format!("{field} ")));
        assert!(has, "readings.sql has no column {field}");
    }
}

/// Its topics are there only with a broker.
#[test]
fn the_job_between_topics_is_a_job() {
    let ended = root().thalweg(&["check", "examples/kafka/job.yaml"]).ends_with(0);
    assert!(ended.stdout.contains("sink answers (kafka, "), "{}", ended.stdout);
}

/// Its page is the same three payments, with an answer each and one for the third that is sent again.
#[test]
fn the_job_of_several_nodes_is_cut_into_a_stage_for_each_key() {
    let cluster = "kafka://127.0.0.1:9092?replication=1";
    let ended = root().thalweg(&["check", "examples/cluster/job.yaml", "--cluster", cluster]).ends_with(0);
    for stage in [
        "features-1 by card: 8 partitions",
        "features-2 by merchant: 8 partitions",
        "features-3: 1 partition",
    ] {
        assert!(ended.stdout.contains(&format!("stage {stage}")), "{}", ended.stdout);
    }
}
