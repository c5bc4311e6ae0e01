//! The jobs of this folder, end to end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use thalweg_prelude::{Diagnostics, JobFile, Summary};

use super::*;

fn job(name: &str) -> PathBuf {
    // Tests run in the folder of their package.
    PathBuf::from(name)
}

fn run(path: &Path, overrides: &[String], options: NodeOptions) -> Result<Summary> {
    let job = JobFile::read(path, overrides).and_then(|file| file.check(&options.check_options()));
    let job = job.with_context(|| format!("check {path:?}"))?;
    let node = options.open()?;
    let end = node.start(job, &[])?.wait();
    end.failure().map_or(Ok(end.summary), |failure| bail!("{failure}"))
}

/// Runs `job.yaml` with its files in a folder of its own.
fn run_here(workers: usize, overrides: &[&str]) -> (TempDir, Summary) {
    let folder = tempfile::tempdir().unwrap();
    let mut sets: Vec<String> =
        [("passed", "passed.txt"), ("table", "summary.txt"), ("quiet", "suppressed.txt")]
            .map(|(sink, file)| format!("sinks.{sink}.path={}", folder.path().join(file).display()))
            .to_vec();
    sets.extend(overrides.iter().map(|set| (*set).to_owned()));
    let summary = run(&job("job.yaml"), &sets, plugins().workers(workers)).unwrap();
    (folder, summary)
}

fn text(folder: &TempDir, file: &str) -> String {
    fs::read_to_string(folder.path().join(file)).unwrap()
}

/// Device and value of a line of `pairs`, read without the format.
fn device_and_value(line: &str) -> (&str, f64) {
    let mut pairs = line.split(' ').map(|pair| pair.split_once('=').unwrap());
    let ("ts", _) = pairs.next().unwrap() else { panic!("{line}") };
    let ("device", device) = pairs.next().unwrap() else { panic!("{line}") };
    let ("value", value) = pairs.next().unwrap() else { panic!("{line}") };
    (device, value.parse().unwrap())
}

/// Lines of the summary that these readings should give.
fn table(lines: &[&str]) -> String {
    let mut devices: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for line in lines {
        let (device, value) = device_and_value(line);
        devices.entry(device).or_default().push(value);
    }
    let mut text = "device        readings       min       max\n".to_owned();
    for (device, mut values) in devices {
        values.sort_by(f64::total_cmp);
        let (min, max) = (values[0], values[values.len() - 1]);
        text += &format!("{device:<12}{:>10}{min:>10.2}{max:>10.2}\n", values.len());
    }
    text
}

#[test]
fn readings_pass_when_they_leave_the_band_and_the_rest_is_summed_up() {
    let all = tempfile::NamedTempFile::new().unwrap();
    let path = all.path().display();
    let (folder, summary) =
        run_here(2, &[&format!("sinks.all={{ type: file, input: devices, format: pairs, path: {path} }}")]);
    assert_eq!((summary.records, summary.rejects), (60_000, 60), "every thousandth frame is damaged");

    let all = fs::read_to_string(all.path()).unwrap();
    assert_eq!(all.lines().count(), 59_940);
    let mut last: BTreeMap<&str, f64> = BTreeMap::new();
    let (passed, held): (Vec<&str>, Vec<&str>) = all.lines().partition(|line| {
        let (device, value) = device_and_value(line);
        let passes = last.get(device).is_none_or(|last| (value - last).abs() > 0.5);
        if passes {
            last.insert(device, value);
        }
        passes
    });
    assert_eq!(last.len(), 12);
    assert!(passed.len() > 1_000 && held.len() > 10_000, "{} and {}", passed.len(), held.len());
    assert_eq!(text(&folder, "passed.txt").lines().collect::<Vec<_>>(), passed);
    assert_eq!(text(&folder, "summary.txt"), table(&passed));
    assert_eq!(text(&folder, "suppressed.txt"), table(&held));
}

#[test]
fn workers_tasks_and_partitionings_change_no_result() {
    let files = ["passed.txt", "summary.txt", "suppressed.txt"];
    let (one, _) = run_here(1, &["operators.changes.parallelism=1", "sources.devices.parallelism=1"]);
    let expected = files.map(|file| text(&one, file));
    for (workers, overrides) in [
        (1, &[][..]),
        (2, &[]),
        (2, &["operators.changes.parallelism=3", "sources.devices.parallelism=4"]),
        (2, &["operators.changes.input.partition=key(device)"]),
        (2, &["operators.changes.input.partition=key(device)", "operators.changes.partitions=7"]),
    ] {
        let (folder, summary) = run_here(workers, overrides);
        assert_eq!(summary.rejects, 60);
        assert!(files.map(|file| text(&folder, file)) == expected, "{workers} workers, {overrides:?}");
    }
}

#[test]
fn the_format_reads_back_what_it_has_written() {
    let (folder, _) = run_here(2, &[]);
    let input = folder.path().join("passed.txt");
    let set = |threshold: &str, output: &Path| {
        let sets = [
            format!("sources.passed.path={}", input.display()),
            format!("sinks.answers.path={}", output.display()),
            format!("operators.changes.threshold={threshold}"),
        ];
        run(&job("replay.yaml"), &sets, plugins().workers(2)).unwrap()
    };
    let output = folder.path().join("replayed.ndjson");
    let count = text(&folder, "passed.txt").lines().count() as u64;
    // What has passed once differs enough to pass again.
    let summary = set("0.5", &output);
    assert_eq!((summary.records, summary.answers, summary.rejects), (count, count, 0));
    let first = fs::read_to_string(&output).unwrap();
    assert!(first.starts_with("{\"ts\":1767225600000,\"device\":\"mill-00\",\"value\":"), "{}", &first[..80]);
    assert!(set("2", &output).answers < count);
}

#[test]
fn mistakes_in_keys_of_our_own_are_told_with_line_and_hint() {
    let text = fs::read_to_string(job("job.yaml")).unwrap();
    for (right, wrong, message, hint) in [
        ("threshold: 0.5", "threshold: -1", "\"threshold\" is below 0", "0 passes every change"),
        (
            "threshold: 0.5",
            "treshold: 0.5",
            "operator \"changes\" has no key \"treshold\"",
            "did you mean \"threshold\"?",
        ),
        ("    value: value", "    value: valve", "names no field: \"valve\"", "did you mean \"value\"?"),
        (
            "partition: by_kind",
            "partition: key(value)",
            "keeps state by device, but reads \"devices\" by another key",
            "write `input: { from: devices, partition: key(device) }`",
        ),
        (
            "input: { from: devices, partition: by_kind }",
            "input: devices",
            "keeps state by device, but reads \"devices\" without a partition",
            "write `input: { from: devices, partition: key(device) }`",
        ),
        (
            "path: summary.txt",
            "value: device, path: summary.txt",
            "\"value\" of sink \"table\": field \"device\" is of type string",
            "name a field of type float64",
        ),
        (
            "    value: value",
            "    value: ts",
            "\"value\": field \"ts\" is of type timestamp(ms)",
            "name a field of type float64",
        ),
        (
            "damage: 1000",
            "damge: 1000",
            "source \"devices\" has no key \"damge\"",
            "did you mean \"damage\"?",
        ),
        ("partition: by_kind", "partition: by_kin", "is \"by_kin\"", "did you mean \"by_kind\"?"),
        ("format: pairs", "format: pair", "has unknown format \"pair\"", "did you mean \"pairs\"?"),
        ("type: deadband", "type: deadbend", "is of type \"deadbend\"", "did you mean \"deadband\"?"),
    ] {
        let broken = text.replacen(right, wrong, 1);
        let line = broken.lines().position(|line| line.contains(wrong)).unwrap() + 1;
        let Diagnostics(told) = JobFile::parse("job.yaml", &broken, &[])
            .and_then(|file| file.check(&plugins().check_options()))
            .err()
            .unwrap_or_else(|| panic!("{wrong} was taken"));
        let found = told.iter().any(|mistake| {
            mistake.line == line
                && mistake.message.contains(message)
                && mistake.hint.as_deref().is_some_and(|told| told.starts_with(hint))
        });
        assert!(found, "{wrong}: {told:#?}");
    }
}

#[test]
fn a_partitioning_refuses_records_that_it_cannot_place() {
    let sets = [
        "sources.passed.schema={ ts: timestamp(ms), name: string, value: float64 }",
        "operators.changes.input.partition=by_kind",
        "operators.changes.device=name",
    ]
    .map(str::to_owned);
    let checked = JobFile::read(&job("replay.yaml"), &sets)
        .and_then(|file| file.check(&plugins().check_options()).map(drop));
    let Err(Diagnostics(told)) = checked else { panic!("it was taken") };
    let message = "operator \"changes\" is partitioned by_kind, which does not suit \"passed\": \
                   there is no field \"device\"";
    assert_eq!(told.iter().map(|mistake| &*mistake.message).collect::<Vec<_>>(), [message]);
    assert_eq!(told[0].file, "--set operators.changes.input.partition");
}

#[test]
fn a_name_that_is_taken_is_refused() {
    assert!(plugins().check_plugins().is_ok());
    let by_device = || Arc::new(partitioner::ByPrefix::of("device", '-'));
    let cases = [
        (plugins().sink(sink::Summary), "a sink, got \"summary\""),
        (plugins().operator(operator::Deadband), "an operator, got \"deadband\""),
        (plugins().format(format::Pairs), "a format, got \"pairs\""),
        (plugins().source(source::Sensor), "a source, got \"sensor\""),
        (plugins().partitioner("by_kind", by_device()), "a partitioner, got \"by_kind\""),
        (plugins().partitioner("shuffle", by_device()), "a partitioner, got \"shuffle\""),
    ];
    for (options, expected) in cases {
        let error = options.open().err().expect("a mistake").to_string();
        assert!(error.contains(expected) && error.contains("which is taken"), "{error}");
    }
}

/// The folder alone, and where the engine is: nothing of this workspace is needed.
#[test]
fn the_folder_works_when_it_is_copied_elsewhere() {
    let elsewhere = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let engine = here.join("../..").canonicalize().unwrap();
    fs::create_dir(elsewhere.path().join("src")).unwrap();
    for file in fs::read_dir(here.join("src")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), elsewhere.path().join("src").join(file.file_name())).unwrap();
    }
    let mut manifest = fs::read_to_string(here.join("Cargo.toml")).unwrap();
    manifest += "\n[patch.crates-io]\n";
    for package in ["cli", "prelude"] {
        let path = engine.join("crates").join(package);
        manifest += &format!("thalweg-{package} = {{ path = {path:?} }}\n");
    }
    fs::write(elsewhere.path().join("Cargo.toml"), manifest).unwrap();
    // The versions that are on this machine.
    fs::copy(engine.join("Cargo.lock"), elsewhere.path().join("Cargo.lock")).unwrap();
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--offline", "--edges", "normal", "--depth", "1"]).current_dir(elsewhere.path());
    let output = cargo.output().unwrap();
    let (tree, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert!(tree.contains("thalweg-cli v0.1.0") && tree.contains("thalweg-prelude v0.1.0"), "{tree}");
}
