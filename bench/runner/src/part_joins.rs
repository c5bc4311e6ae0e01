//! Parts by themselves, not a job: tables that flows are joined with, ranges in memory, and names by address in a file.
//!
//! The examples `range_speed` and `lookup_speed` of `thalweg-enrich` do the work and check their results; here their
//! figures are compared with the goals.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::exchange::Exchange;
use super::figures::Figures;
use super::pinned;
use super::process::{self, Finished};
use super::report::{Report, Table, count, times};
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Small tables: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Rows of the lookup table
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,
    /// A folder on the disk that the lookup table is read from; the build folder if there is none
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = ["range", "lookup"])]
    only: Vec<String>,
}

/// What is asked, per second: addresses of a range table, and keys of a lookup table in memory and not.
const ASKED_RANGE: f64 = 20e6;
const ASKED_WARM: f64 = 1e6;
const ASKED_COLD: f64 = 40e3;

/// The core of all runs.
const CORE: &str = "0";

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut report = Report::new("part-joins", "Tables of joins by themselves").of_parts(&options.only);
    if options.wants("range") {
        range(options, &mut report)?;
    }
    if options.wants("lookup") {
        lookup(options, &mut report)?;
    }
    report.finish(options.quick)
}

/// The lines for programs that an example printed.
fn cases(finished: &Finished) -> Vec<Figures> {
    let figures = finished.stdout.lines().filter_map(Figures::parse);
    figures.filter(|figures| figures.text("case").is_ok()).collect()
}

/// The case of which all these pairs are true.
fn case<'a>(cases: &'a [Figures], wanted: &[(&str, &str)]) -> Result<&'a Figures> {
    let is_it = |figures: &&Figures| {
        wanted.iter().all(|(key, value)| figures.text(key).is_ok_and(|found| found == *value))
    };
    cases.iter().find(is_it).with_context(|| format!("no case of {wanted:?}"))
}

fn range(options: &Options, report: &mut Report) -> Result<()> {
    report.heading("Ranges");
    let files =
        ["ip2asn-v4-2015.tsv.gz", "ip2asn-v6-2015.tsv.gz"].map(|name| project::data().join("asn").join(name));
    if let Some(missing) = files.iter().find(|path| !path.is_file()) {
        report.say(&format!("Skipped: there is no {}.", missing.display()));
        return Ok(());
    }
    report.say("AS of 2015: 230,984 ranges of IPv4 and 18,111 of IPv6, with AS number, country and name. Addresses in batches of 8,192, on one core; medians of seven rounds.");
    let example = project::example("thalweg-enrich", "range_speed", Profile::Release)?;
    let mut command: Command = pinned(Some(CORE), &example);
    if options.quick {
        command.arg("--quick");
    }
    command.args(&files);
    let cases = cases(&process::run(command)?);
    let mut table = Table::new(["addresses", "addresses/s", "found", "asked", "of that"]);
    for (name, what, asked) in [
        ("IPv4uniformlyrandom", "IPv4, uniformly random", Some(ASKED_RANGE)),
        ("IPv4withinrandomranges", "IPv4, within random ranges", Some(ASKED_RANGE)),
        ("IPv6withinrandomranges", "IPv6, within random ranges", None),
    ] {
        let figures = case(&cases, &[("case", name)])?;
        let rate = figures.number("rate")?;
        let share = figures.number("found")? / figures.number("addresses")?;
        table.row([
            what.to_owned(),
            count(rate),
            format!("{:.1} %", 100.0 * share),
            asked.map_or("–".to_owned(), count),
            asked.map_or("–".to_owned(), |asked| times(rate / asked)),
        ]);
    }
    report.table(&table);
    Ok(())
}

fn lookup(options: &Options, report: &mut Report) -> Result<()> {
    report.heading("Names by address");
    let rows = if options.quick { 1_000_000 } else { options.rows };
    let folder = options.dir.clone().map_or_else(|| project::scratch("bench-part-joins"), Ok)?;
    let scratch = tempfile::Builder::new().prefix("lookup").tempdir_in(&folder)?;
    let example = project::example("thalweg-enrich", "lookup_speed", Profile::Release)?;
    let mut command: Command = pinned(Some(CORE), &example);
    command.arg(rows.to_string()).arg(scratch.path());
    let cases = cases(&process::run(command)?);
    let (build, size) = (case(&cases, &[("case", "build")])?, case(&cases, &[("case", "size")])?);
    report.say(&format!(
        "{} made-up rows of reverse DNS, which come scattered: built at {} rows a second, {:.3} bytes a row; the 1.2 billion rows of Touloupas (2015) would take {:.2} GB. Keys are uniform over the rows.",
        count(size.number("rows")?),
        count(build.number("rate")?),
        size.number("bytes_per_row")?,
        size.number("full_gb")?,
    ));
    let mut table = Table::new(["keys", "keys/s", "asked", "of that"]);
    for (what, wanted, asked) in [
        ("warm, hits, in batches of 65,536", vec![("case", "warmhitsbatches")], Some(ASKED_WARM)),
        ("warm, all of IPv4, in batches", vec![("case", "warmrandombatches")], None),
        ("warm, hits, one by one", vec![("case", "warmhitsonebyone")], None),
        (
            "cold, hits, in batches of 65,536",
            vec![("case", "cold"), ("batch", "65536"), ("filter", "cold")],
            Some(ASKED_COLD),
        ),
        ("cold but for the filter", vec![("case", "cold"), ("batch", "65536"), ("filter", "warm")], None),
        (
            "cold, hits, in batches of 4,096",
            vec![("case", "cold"), ("batch", "4096"), ("filter", "cold")],
            None,
        ),
    ] {
        let rate = case(&cases, &wanted)?.number("rate")?;
        table.row([
            what.to_owned(),
            count(rate),
            asked.map_or("–".to_owned(), count),
            asked.map_or("–".to_owned(), |asked| times(rate / asked)),
        ]);
    }
    report.table(&table);
    report.say("Cold: before each batch the file leaves the page cache, which `mincore` confirms.");
    Ok(())
}

/// Both in tiny: every key is found.
pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let exchange = Exchange::make(&project::thalweg(Profile::Dev)?, folder.path())?;
    let example = project::example("thalweg-enrich", "range_speed", Profile::Dev)?;
    let mut command = Command::new(example);
    command.arg("--quick").arg(exchange.networks());
    let outcome = process::run(command).and_then(|finished| {
        let cases = cases(&finished);
        for name in ["IPv4withinrandomranges", "IPv6withinrandomranges"] {
            let figures = case(&cases, &[("case", name)])?;
            ensure!(
                figures.text("found")? == figures.text("addresses")?,
                "{name}: not all addresses of ranges are found: {figures:?}"
            );
        }
        Ok(())
    });
    tally.check("part-joins: every address within a range finds it", outcome);
    let example = project::example("thalweg-enrich", "lookup_speed", Profile::Dev)?;
    let mut command = Command::new(example);
    command.arg("20000").arg(folder.path()).args(["64", "2000"]);
    let outcome = process::run(command).and_then(|finished| {
        let cases = cases(&finished);
        let hits = case(&cases, &[("case", "warmhitsbatches")])?;
        ensure!(hits.text("found")? == "2000", "not all keys are found: {hits:?}");
        ensure!(case(&cases, &[("case", "cold")])?.number("rate")? > 0.0, "no cold keys were asked for");
        Ok(())
    });
    tally.check("part-joins: every key of a lookup table finds its name", outcome);
    Ok(())
}
