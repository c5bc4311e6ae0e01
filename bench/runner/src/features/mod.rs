//! Twenty features of a payment, as a user would have them: sums, counts, averages, deviations, extremes, the last and the
//! one before, distinct counts and medians, over a minute to thirty days, by card, device and merchant, with ids that
//! are remembered; with a data directory and without, and the same in DuckDB, Flink and dbsp.

mod list;
mod payments;
mod peers;
mod recount;
mod totals;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use self::peers::{PEERS, Speed};
use self::totals::Totals;
use super::job::{self, Run, Turns};
use super::report::{Report, Table, count, cpu_per_record, mebibytes, times};
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A thousandth of the records, no peers: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Payments, spread over 35 days
    #[arg(long, default_value_t = 10_000_000)]
    records: u64,
    /// Payments of these, from the first, that other systems get
    #[arg(long, default_value_t = 100_000)]
    peer_records: u64,
    /// Runs with a data directory and without, in turns; the median counts
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Leave the other systems out
    #[arg(long)]
    no_peers: bool,
}

/// Of the other systems; ours has as many.
const CORES: &str = "0,1";

struct Ours {
    binary: PathBuf,
    folder: PathBuf,
}

impl Ours {
    /// Runs the job over a file; in a data directory of its own if so.
    fn run(&self, input: &Path, answers: Option<&Path>, has_data_dir: bool) -> Result<Run> {
        let run = job::run(&self.binary, &list::job(input, answers), &self.folder, has_data_dir)?;
        ensure!(run.rejects == 0.0, "{} records were rejected", run.rejects);
        Ok(run)
    }

    /// Totals of all answers.
    fn totals(&self, input: &Path) -> Result<Totals> {
        let answers = self.folder.join("answers.csv");
        self.run(input, Some(&answers), true)?;
        let totals = Totals::of_answers(&answers);
        std::fs::remove_file(&answers)?;
        totals
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let records = if options.quick { options.records / 1_000 } else { options.records };
    let ours =
        Ours { binary: project::thalweg(Profile::Release)?, folder: project::scratch("bench-features")? };
    let mut report = Report::new("features", "Twenty features of a payment");
    report.say(&format!(
        "{} payments over 35 days from CSV, 100 k cards (zipf 0.5), 100 k devices, 10 k merchants; twenty features in eleven queries over 1 minute, 1 hour, 24 hours and 30 days, by card, device and merchant; `id: tx`, `dedup: 10m`; every answer digested; two cores.",
        count(records as f64)
    ));
    report.say(&format!(
        "The features: {}.",
        list::names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    ));
    with_and_without(options, &ours, records, &mut report)?;
    if !options.no_peers && !options.quick {
        compare(options, &ours, records, &mut report)?;
    }
    report.finish(options.quick)
}

fn with_and_without(options: &Options, ours: &Ours, records: u64, report: &mut Report) -> Result<()> {
    report.heading("With a data directory and without");
    let input = payments::file(&ours.binary, &ours.folder, records, records)?;
    let turns = Turns::take(options.repeat, |has_data_dir| ours.run(&input, None, has_data_dir))?;
    let mut table = Table::new(["", "seconds", "records/s", "features/s", "CPU a record", "peak memory"]);
    for (name, run) in [("with, a commit a second", &turns.with), ("without", &turns.without)] {
        table.row([
            name.to_owned(),
            format!("{:.1}", run.seconds),
            count(run.rate),
            count(run.rate * list::names().count() as f64),
            cpu_per_record(run.cpu, records as f64),
            mebibytes(run.peak_bytes),
        ]);
    }
    report.table(&table);
    let mut table = Table::new(["with to without", "rate"]);
    table.row(["times".to_owned(), times(turns.ratio)]);
    report.table(&table);
    std::fs::remove_file(input)?;
    Ok(())
}

fn compare(options: &Options, ours: &Ours, records: u64, report: &mut Report) -> Result<()> {
    report.heading("Beside other systems");
    let number = options.peer_records.min(records);
    report.say(&format!(
        "The first {} of these payments, the same file for all, two cores. Ours has a data directory, a commit every second and `dedup`; the others have no checkpoints and no `dedup`. DuckDB has the whole file at hand. Flink has one `OVER` for each window, in queries within queries, and aggregates of our own for medians. dbsp has a rolling aggregate for each window, fed with 10,000 records a step. `bench/peers/README.md` says more.",
        count(number as f64)
    ));
    let input = payments::file(&ours.binary, &ours.folder, number, records)?;
    let run = ours.run(&input, None, true)?;
    let totals = ours.totals(&input)?;
    let mut table =
        Table::new(["system", "seconds", "records/s", "CPU a record", "peak memory", "ours, times"]);
    let mut row = |name: &str, seconds: f64, rate: f64, cpu, peak_bytes| {
        table.row([
            name.to_owned(),
            format!("{seconds:.2}"),
            count(rate),
            cpu_per_record(cpu, number as f64),
            mebibytes(peak_bytes),
            times(run.rate / rate),
        ]);
    };
    row("Thalweg", run.seconds, run.rate, run.cpu, run.peak_bytes);
    let mut notes = Vec::new();
    for peer in &PEERS {
        let outcome = (peer.run)(&input, CORES);
        match outcome {
            Ok(Speed { seconds, rate, cpu, peak_bytes, totals: theirs }) => {
                row(peer.name, seconds, rate, cpu, peak_bytes);
                totals.must_equal(&theirs).with_context(|| format!("{} answers otherwise", peer.name))?;
                notes.push(match theirs.missing() {
                    missing if missing.is_empty() => {
                        format!("{} gives the same totals of all twenty features.", peer.name)
                    }
                    missing => format!(
                        "{} does not compute {}; it gives the same totals of all others.",
                        peer.name,
                        missing.join(", ")
                    ),
                });
            }
            Err(reason) => notes.push(format!("Skipped: {}: {reason:#}.", peer.name)),
        }
    }
    report.table(&table);
    notes.iter().for_each(|note| report.say(note));
    report.say("Totals are sums of a feature over all answers; those of medians may differ by 1 %, as `quantile` is a sketch.");
    Ok(())
}

/// Few payments: every feature adds up to what a recount from scratch gives.
pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let ours = Ours { binary: project::thalweg(Profile::Dev)?, folder: folder.path().to_owned() };
    let input = payments::file(&ours.binary, &ours.folder, 3_000, 3_000)?;
    let outcome = ours.totals(&input).and_then(|totals| totals.must_equal(&recount::totals(&input)?));
    tally.check("features: all twenty are those of a recount", outcome);
    let digest = |has_data_dir| Ok::<_, anyhow::Error>(ours.run(&input, None, has_data_dir)?.digest);
    let outcome = digest(true).and_then(|with| {
        ensure!(with.is_some() && with == digest(false)?, "the digests differ");
        Ok(())
    });
    tally.check("features: answers do not depend on a data directory", outcome);
    Ok(())
}
