//! Records through source, relay and sink: what a job costs that computes nothing.
//!
//! NEPTUNE (Buddhika, Pallickara, IPDPS 2016) measured such a graph with packets of 50 bytes to 10 KiB. Here each run is a job
//! file: the generator's payments with few fields and with many, spread over the tasks of a relay, and a CSV file that is
//! copied to another.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::job::{self, Run, Turns};
use super::report::{Report, Table, count, cpu_per_record, mebibytes, times};
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

/// Fields of a record, bytes of it as CSV (about), and the part of the records that are sent.
const WIDTHS: [(u64, u64, u64); 3] = [(4, 36, 1), (16, 150, 4), (103, 800, 20)];

struct Bench {
    binary: PathBuf,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(profile: Profile) -> Result<Self> {
        let folder = tempfile::tempdir_in(project::scratch("bench-relay")?)?;
        Ok(Self { binary: project::thalweg(profile)?, folder })
    }

    fn run(&self, job: &Value, records: u64, has_data_dir: bool) -> Result<Run> {
        let run = job::run(&self.binary, job, self.folder.path(), has_data_dir)?;
        ensure!(run.answers == records as f64, "{} of {records} records came out", run.answers);
        Ok(run)
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
fn relayed(source: &Value, sink: Value) -> Value {
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
    relayed(&source, json!({"type": "file", "path": to, "format": "csv"}))
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let bench = Bench::new(Profile::Release)?;
    let records = if options.quick { options.records / 100 } else { options.records };
    let repeat = if options.quick { 1 } else { options.repeat };
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
        let turns = Turns::take(repeat, |has_data_dir| bench.run(job, records, has_data_dir))?;
        table.row([
            name,
            count(turns.with.rate),
            format!("{:.0}", turns.with.rate * bytes as f64 / 1e6),
            cpu_per_record(turns.with.cpu, records as f64),
            mebibytes(turns.with.peak_bytes),
            count(turns.without.rate),
            times(turns.ratio),
        ]);
        Ok(())
    };
    for (fields, bytes, part) in WIDTHS {
        let records = records / part;
        let job = relayed(&generator(fields, records), json!({"type": "null"}));
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
        let job = relayed(&generator(fields, 2_000), json!({"type": "null"}));
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
