//! Records through source, relay and sink: what a job costs that computes nothing.
//!
//! NEPTUNE (Buddhika, Pallickara, IPDPS 2016) measured such a graph with packets of 50 bytes to 10 KiB. Here each run is a job
//! file: the generator's payments with few fields and with many, spread over the tasks of a relay, and a CSV file that is
//! copied to another.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::report::{Report, Table, count, cpu_per_record, mebibytes, times};
use super::{median, pinned, process};
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A hundredth of the records: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Records of four fields; fewer of more fields
    #[arg(long, default_value_t = 5_000_000)]
    records: u64,
    /// Runs of each, with a data directory and without in turns; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
}

const CORES: &str = "0,1";

/// Fields of a record, bytes of it as CSV (about), and the part of the records that are sent.
const WIDTHS: [(u64, u64, u64); 3] = [(4, 36, 1), (16, 150, 4), (103, 800, 20)];

struct Bench {
    binary: PathBuf,
    folder: tempfile::TempDir,
}

struct Run {
    rate: f64,
    cpu: f64,
    peak_bytes: u64,
    digest: Option<String>,
}

impl Bench {
    fn new(profile: Profile) -> Result<Self> {
        let folder = tempfile::tempdir_in(project::scratch("bench-relay")?)?;
        Ok(Self { binary: project::thalweg(profile)?, folder })
    }

    fn run(&self, job: &Value, records: u64, has_data_dir: bool) -> Result<Run> {
        let folder = tempfile::tempdir_in(self.folder.path())?;
        let path = folder.path().join("job.json");
        std::fs::write(&path, format!("{job:#}\n")).context("write the job file")?;
        let mut command = pinned(Some(CORES), &self.binary);
        command.arg("run").arg(&path).args(["--quiet", "--workers", "2"]);
        if has_data_dir {
            command.arg("--data-dir").arg(folder.path().join("data"));
        }
        let finished = process::run(command)?;
        let figures = finished.figures("rate")?;
        let answers = figures.number("answers")?;
        ensure!(answers == records as f64, "{answers} of {records} records came out");
        let digest = finished.figures("digest").and_then(|figures| figures.text("digest").map(str::to_owned));
        Ok(Run {
            rate: figures.number("rate")?,
            cpu: finished.usage.cpu.as_secs_f64(),
            peak_bytes: finished.usage.peak_bytes,
            digest: digest.ok(),
        })
    }

    /// A file of generated payments of four fields.
    fn file(&self, records: u64) -> Result<PathBuf> {
        let path = self.folder.path().join("payments.csv");
        self.run(
            &json!({
                "name": "payments",
                "sources": {"payments": generator(4, records)},
                "sinks": {"out": {"type": "file", "input": "payments", "path": path, "format": "csv"}},
            }),
            records,
            false,
        )?;
        Ok(path)
    }
}

fn generator(fields: u64, records: u64) -> Value {
    json!({"type": "generator", "kind": "payments", "fields": fields, "count": records, "time": "ts"})
}

/// Source, relay and sink.
fn job(source: &Value, sink: Value) -> Value {
    let mut sink = sink;
    sink["input"] = json!("relayed");
    json!({
        "name": "relay",
        "cycle": {"every": "1s"},
        "sources": {"payments": source},
        "operators": {"relayed": {"type": "relay", "input": {"from": "payments", "partition": "shuffle"}}},
        "sinks": {"out": sink},
    })
}

/// One CSV file copied to another.
fn copy(from: &Path, to: &Path) -> Value {
    let source = json!({
        "type": "file",
        "path": from,
        "format": "csv",
        "schema": {"ts": "timestamp(ms)", "card": "string", "merchant": "string", "amount": "float64"},
        "time": "ts",
    });
    job(&source, json!({"type": "file", "path": to, "format": "csv"}))
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let bench = Bench::new(Profile::Release)?;
    let records = if options.quick { options.records / 100 } else { options.records };
    let repeat = if options.quick { 1 } else { options.repeat.max(1) };
    let mut report = Report::new("relay", "Relay");
    report.say("Job files on two cores with two workers: a source, a relay over whose tasks records are spread, and a sink. With a data directory there is a commit every second; runs with and without take turns, and ratios are medians over turns.");
    let mut table = Table::new([
        "source and sink",
        "records/s",
        "MB/s",
        "CPU a record",
        "peak memory",
        "without data directory",
        "with to without",
    ]);
    let mut row = |name: String, job: &Value, records: u64, bytes: u64| -> Result<()> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..repeat {
            with.push(bench.run(job, records, true)?);
            without.push(bench.run(job, records, false)?);
        }
        let same = with.iter().chain(&without).all(|run| run.digest == with[0].digest);
        ensure!(same, "the digest differs between runs");
        let of = |runs: &[Run], figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
        let rate = of(&with, |run| run.rate);
        let ratios = with.iter().zip(&without).map(|(with, without)| with.rate / without.rate).collect();
        table.row([
            name,
            count(rate),
            format!("{:.0}", rate * bytes as f64 / 1e6),
            cpu_per_record(std::time::Duration::from_secs_f64(of(&with, |run| run.cpu)), records as f64),
            mebibytes(of(&with, |run| run.peak_bytes as f64) as u64),
            count(of(&without, |run| run.rate)),
            times(median(ratios)),
        ]);
        Ok(())
    };
    for (fields, bytes, part) in WIDTHS {
        let records = records / part;
        let job = job(&generator(fields, records), json!({"type": "null"}));
        row(format!("generator of {fields} fields, digest"), &job, records, bytes)?;
    }
    let records = records / 2;
    let (from, to) = (bench.file(records)?, bench.folder.path().join("copy.csv"));
    let bytes = std::fs::metadata(&from)?.len() / records.max(1);
    row("CSV file of 4 fields, CSV file".to_owned(), &copy(&from, &to), records, bytes)?;
    report.table(&table);
    report.say("MB/s are of records as CSV, estimated where they come from the generator.");
    report.finish(options.quick)
}

/// Few records: all come out, and a copied file is the same.
pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let bench = Bench::new(Profile::Dev)?;
    for (fields, ..) in WIDTHS {
        let job = job(&generator(fields, 2_000), json!({"type": "null"}));
        let outcome = bench.run(&job, 2_000, true).and_then(|with| {
            let without = bench.run(&job, 2_000, false)?;
            ensure!(with.digest.is_some() && with.digest == without.digest, "the digests differ");
            Ok(())
        });
        tally.check(&format!("relay: records of {fields} fields arrive as they were made"), outcome);
    }
    let outcome = bench.file(2_000).and_then(|from| {
        let to = bench.folder.path().join("copy.csv");
        bench.run(&copy(&from, &to), 2_000, true)?;
        let lines = |path: &Path| -> Result<Vec<String>> {
            let mut lines: Vec<String> = std::fs::read_to_string(path)?.lines().map(str::to_owned).collect();
            lines.sort();
            Ok(lines)
        };
        ensure!(lines(&from)? == lines(&to)?, "the copy has other lines");
        Ok(())
    });
    tally.check("relay: a file is copied", outcome);
    Ok(())
}
