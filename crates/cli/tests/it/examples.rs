//! The jobs under `examples/`, each against an oracle of its own.

use std::path::{Path, PathBuf};

use super::Place;

/// Folder of real data: where `THALWEG_DATA` says, or next to the project.
pub(super) fn data() -> PathBuf {
    let named = std::env::var_os("THALWEG_DATA").map(PathBuf::from);
    named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"))
}

pub(super) fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
}

/// Mean and sample standard deviation of integers, from sums that no rounding has touched.
fn mean_and_deviation(n: i128, sum: i128, squares: i128) -> (f64, Option<f64>) {
    let spread = n * squares - sum * sum;
    (sum as f64 / n as f64, (n > 1).then(|| (spread as f64 / (n * (n - 1)) as f64).sqrt()))
}

fn is_near(text: &str, expected: Option<f64>) -> bool {
    match (text, expected) {
        ("", None) => true,
        (text, Some(expected)) => {
            let got: f64 = text.parse().expect("a number");
            // Two units in the last place each for engine and oracle.
            (got - expected).abs() <= 4.0 * f64::EPSILON * expected.abs()
        }
        _ => false,
    }
}

#[test]
#[ignore = "reads real data that is no part of the project: cargo xtask test runs it where it is there"]
fn real_data_power_of_a_machine_over_ten_seconds_a_minute_and_a_day() {
    let data = data().join("debs2012/DEBS2012-manufacturing-small.tsv");
    let place = Place::with(&[]);
    let path = format!("sources.readings.path={}", data.display());
    let ended = place.thalweg(&["run", &example("power/job.yaml"), "--set", &path]).ends_with(0);
    assert_eq!(ended.counts(), (17_000, 17_000, 0));

    // Time in microseconds and the three readings, as the file has them.
    let text = std::fs::read_to_string(&data).expect("the data");
    let rows: Vec<(i64, [i128; 3])> = text
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            (micros(fields[0]), [2, 3, 4].map(|field| fields[field].parse().expect("an integer")))
        })
        .collect();
    let answers = place.read("power.csv");
    let answers: Vec<Vec<&str>> = answers.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(answers.len(), rows.len());
    assert!(rows.is_sorted_by_key(|row| row.0), "the oracle takes records in order of time");

    for (window, span) in [10_000_000, 60_000_000, 86_400_000_000].into_iter().enumerate() {
        let (mut from, mut sums, mut squares) = (0, [0_i128; 3], [0_i128; 3]);
        for (row, (time, readings)) in rows.iter().enumerate() {
            for field in 0..3 {
                sums[field] += readings[field];
                squares[field] += readings[field] * readings[field];
            }
            while rows[from].0 <= time - span {
                for field in 0..3 {
                    sums[field] -= rows[from].1[field];
                    squares[field] -= rows[from].1[field] * rows[from].1[field];
                }
                from += 1;
            }
            for field in 0..3 {
                let (mean, deviation) =
                    mean_and_deviation((row + 1 - from) as i128, sums[field], squares[field]);
                let column = 5 + window * 6 + field * 2;
                let answer = &answers[row];
                assert!(is_near(answer[column], Some(mean)), "row {row}: {} for {mean}", answer[column]);
                assert!(
                    is_near(answer[column + 1], deviation),
                    "row {row}: {} for {deviation:?}",
                    answer[column + 1]
                );
            }
        }
    }
}

/// `2012-02-22T16:46:28.9670320+00:00` within its day, which is all that the file spans.
fn micros(text: &str) -> i64 {
    let number = |range: std::ops::Range<usize>| text[range].parse::<i64>().expect("digits");
    assert!(text.starts_with("2012-02-22T") && text.ends_with("+00:00"), "{text}");
    ((number(11..13) * 60 + number(14..16)) * 60 + number(17..19)) * 1_000_000 + number(20..26)
}

#[test]
fn valves_follow_their_sensors() {
    let place = Place::with(&[]);
    let count = 60_000;
    let set = format!("sources.readings.count={count}");
    place.thalweg(&["run", &example("manufacturing/job.yaml"), "--set", &set]).ends_with(0);
    let generated = place.thalweg(&[
        "gen",
        "readings",
        "--seed",
        "1",
        "--count",
        &count.to_string(),
        "--fields",
        "66",
        "--format",
        "csv",
    ]);

    // The oracle: scan for edges, keep when each sensor last changed, average all delays so far (600 s of readings are
    // within the day).
    let mut expected = String::from("ts,delay1,delay2,delay3,day.mean1,day.mean2,day.mean3\n");
    let mut before: Option<Vec<String>> = None;
    let (mut changed_at, mut sums, mut counts) = ([None::<i64>; 3], [0_i64; 3], [0_i64; 3]);
    for line in generated.stdout.lines().skip(1) {
        let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        let ts: i64 = fields[0].parse().expect("a time");
        if let Some(before) = &before {
            let mut delays = [None; 3];
            for pair in 0..3 {
                if fields[12 + pair] != before[12 + pair] {
                    changed_at[pair] = Some(ts);
                }
                if fields[15 + pair] != before[15 + pair] {
                    delays[pair] = changed_at[pair].map(|at| ts - at);
                }
            }
            if delays.iter().any(Option::is_some) {
                for pair in 0..3 {
                    sums[pair] += delays[pair].unwrap_or(0);
                    counts[pair] += i64::from(delays[pair].is_some());
                }
                let texts = delays.map(|delay| delay.map_or(String::new(), |delay| delay.to_string()));
                let means = [0, 1, 2].map(|pair| match counts[pair] {
                    0 => String::new(),
                    count => format!("{:?}", sums[pair] as f64 / count as f64),
                });
                expected.push_str(&format!("{ts},{},{}\n", texts.join(","), means.join(",")));
            }
        }
        before = Some(fields);
    }
    let answers = place.read("delays.csv");
    assert!(answers.lines().count() > 500, "600 s hold some hundred changes of each valve");
    assert_eq!(answers, expected);
}

/// The text between a line that opens a block of this language and the one that closes it.
fn block(text: &str, language: &str) -> String {
    let start = format!("```{language}\n");
    let from = text.find(&start).expect("the block is in the text") + start.len();
    text[from..from + text[from..].find("```").expect("the block ends")].to_owned()
}

#[test]
fn the_readme_shows_the_first_job_and_what_it_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("the README");
    let file =
        |name: &str| std::fs::read_to_string(root.join("examples/first").join(name)).expect("an example");
    assert_eq!(block(&readme, "csv"), file("payments.csv"));
    assert!(file("payments.yaml").contains(block(&readme, "sql").trim()));
    let mut command = Place::with(&[]).command(&["run", "examples/first/payments.yaml"]);
    let ended = super::Ended::of(command.current_dir(root).output().expect("the binary runs")).ends_with(0);
    assert_eq!(ended.stdout, block(&readme, "json"));
}

#[test]
fn every_word_comes_with_its_count_so_far() {
    let text = std::fs::read_to_string(example("wordcount/text.txt")).expect("the text");
    let path = format!("sources.lines.path={}", example("wordcount/text.txt"));
    let place = Place::with(&[]);
    place.thalweg(&["run", &example("wordcount/job.yaml"), "--set", &path]).ends_with(0);
    let mut counts = std::collections::BTreeMap::new();
    let expected: Vec<String> = text
        .split_whitespace()
        .map(|word| {
            let word = word.to_lowercase();
            let count = counts.entry(word.clone()).or_insert(0);
            *count += 1;
            match word.contains(['"', ',']) {
                true => format!("\"{}\",{count}", word.replace('"', "\"\"")),
                false => format!("{word},{count}"),
            }
        })
        .collect();
    assert!(counts["the"] > 5 && counts.len() > 20, "{counts:?}");
    let out = place.read("wordcount.csv");
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("word,count"));
    // All words of a line have its number, so the tasks' words of one line may be in another order.
    let (mut found, mut expected): (Vec<&str>, Vec<&str>) =
        (lines.collect(), expected.iter().map(String::as_str).collect());
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}
