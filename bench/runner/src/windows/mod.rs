//! Exact windows over a file: ours compared with Flink SQL and DuckDB, then the cost of window length, queries, cursors
//! and a hot card.
//!
//! Every run is a job file that `thalweg run` reads, with a data directory and a commit every second, unless the table says
//! otherwise. All inputs are generated and kept in the build folder. A figure is the median of several runs of a whole
//! process, by its own summary line, which has the last commit in it; peak memory and processor time are the kernel's.

mod answers;
mod job;
mod ours;
mod peers;
mod smoke;

use std::path::Path;

use anyhow::{Result, ensure};

use self::job::{Job, hourly};
use self::ours::{Markers, Speed};
use super::report::{Report, Table, count, mebibytes, micros, times};
use super::{median, spread};
use thalweg_harness::project::{self, Profile};

pub(crate) use answers::digest;
pub(crate) use ours::Ours;
pub(crate) use smoke::smoke;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A hundredth of the records, one run of each: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Records of the comparison
    #[arg(long, default_value_t = 2_000_000)]
    count: u64,
    /// Runs of each configuration of ours; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Leave the other systems out
    #[arg(long)]
    no_peers: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = ["peers", "verify", "length", "queries", "cursors", "hot", "data-dir"])]
    only: Vec<String>,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    fn repeat(&self) -> usize {
        if self.quick { 1 } else { self.repeat.max(1) }
    }

    fn scaled(&self, count: u64) -> u64 {
        if self.quick { count / 100 } else { count }
    }
}

/// Event time from one generated record to the next.
const GAP_MS: u64 = 4;

/// Cores for one thread's worth of work and for two.
const ONE: &str = "0";
const TWO: &str = "0,1";

pub(crate) fn run(options: &Options) -> Result<()> {
    let ours = Ours::new(project::thalweg(Profile::Release)?, project::scratch("bench-windows")?);
    let mut report = Report::new("windows", "Exact windows").of_parts(&options.only);
    let payments = ours.payments(options.scaled(options.count), &[])?;
    if options.wants("peers") {
        compare(options, &ours, &payments, &mut report)?;
    }
    if options.wants("verify") {
        verify(&ours, &payments, &mut report)?;
    }
    if options.wants("length") {
        lengths(options, &ours, &mut report)?;
    }
    if options.wants("queries") {
        queries(options, &ours, &mut report)?;
    }
    if options.wants("cursors") {
        cursors(options, &ours, &mut report)?;
    }
    if options.wants("hot") {
        hot(options, &ours, &payments, &mut report)?;
    }
    if options.wants("data-dir") {
        data_dir(options, &ours, &mut report)?;
    }
    report.finish(options.quick)
}

fn speed_row(table: &mut Table, name: &str, speed: &Speed, base: f64) {
    table.row([
        name.to_owned(),
        format!("{:.2}", speed.seconds),
        count(speed.rate),
        micros(speed.cpu),
        mebibytes(speed.peak_bytes),
        times(speed.rate / base),
    ]);
}

/// The same work in all systems.
fn compare(options: &Options, ours: &Ours, payments: &Path, report: &mut Report) -> Result<()> {
    report.heading("Beside other systems");
    report.say(&format!(
        "{} payments of 100 k cards (zipf 0.5) from CSV, `sum` and `count` per card over 60 minutes, every answer digested; ours with a data directory and a commit every second, the peers without checkpoints.",
        count(options.scaled(options.count) as f64)
    ));
    report.say("`bench/peers/README.md` says what is set in the peers and why it is fair.");
    let job = Job::new(payments, hourly());
    let one = ours.measure(&job, Some(ONE), 1, options.repeat())?;
    let two = ours.measure(&job, Some(TWO), 2, options.repeat())?;
    ensure!(one.digest == two.digest, "the digest differs between one worker and two");
    let peers = if options.no_peers { Vec::new() } else { peers::all(payments, options.repeat().min(3)) };
    let mut table =
        Table::new(["system", "seconds", "records/s", "CPU a record", "peak memory", "of ours, one core"]);
    speed_row(&mut table, "Thalweg, one core", &one, one.rate);
    speed_row(&mut table, "Thalweg, two cores", &two, one.rate);
    for peer in &peers {
        if let Ok(speed) = &peer.speed {
            speed_row(&mut table, peer.name, speed, one.rate);
        }
    }
    report.table(&table);
    let mut ratios = Table::new(["ours beside", "times", "asked for"]);
    for peer in &peers {
        match &peer.speed {
            Ok(speed) => {
                let mine = if peer.two_cores { &two } else { &one };
                ratios.row([peer.name.to_owned(), times(mine.rate / speed.rate), peer.asked.to_owned()]);
            }
            Err(reason) => report.say(&format!("Skipped: {}: {reason:#}.", peer.name)),
        }
    }
    if peers.iter().any(|peer| peer.speed.is_ok()) {
        report.table(&ratios);
    }
    let digests: Vec<String> = peers
        .iter()
        .filter_map(|peer| Some(format!("{} `{}`", peer.name, peer.speed.as_ref().ok()?.digest.as_deref()?)))
        .collect();
    report.say(&format!(
        "Our null sink's digest (of whole answers) is `{}` on one core and on two.",
        one.digest.as_deref().unwrap_or("not printed")
    ));
    if !digests.is_empty() {
        report
            .say(&format!("The peers' digests: {}; ours by the same rule stands below.", digests.join(", ")));
    }
    Ok(())
}

/// All answers as a file, checked row by row against DuckDB.
fn verify(ours: &Ours, payments: &Path, report: &mut Report) -> Result<()> {
    report.heading("The same answers");
    let file = ours.folder().join("answers.csv");
    let job = Job::new(payments, hourly()).answers_to(&file);
    ours.measure(&job, Some(TWO), 2, 1)?;
    report.say(&format!("Digest of our answers by the peers' rule: `{:016x}`.", answers::digest(&file)?));
    match peers::verify(payments, &file) {
        Ok(line) => report.verbatim(&line),
        Err(reason) => report.say(&format!("Skipped: row by row against DuckDB: {reason:#}.")),
    }
    std::fs::remove_file(&file)?;
    Ok(())
}

/// Windows that hold 3·10^3 to 3·10^6 records: the same file, so the same rate, and two windowfuls expire in each.
///
/// Once with so few cards that all of them are in every window, which leaves the length as the only difference; once
/// with the cards of the comparison, of which a short window holds few.
fn lengths(options: &Options, ours: &Ours, report: &mut Report) -> Result<()> {
    report.heading("Length of the window");
    report.say(&format!(
        "{} records each, `sum` and `count` per card, one core; the longest window has expired twice at the end.",
        count(3.0 * options.scaled(LONGEST) as f64)
    ));
    report.say("With 1,000 cards all are live in every window, so that only its length differs:");
    lengths_of(options, ours, &["--cards", "1000"], report)?;
    report.say("With 100 k cards a longer window has more live groups, and these take memory and cache:");
    lengths_of(options, ours, &[], report)
}

/// Records in the longest window of the series.
const LONGEST: u64 = 3_000_000;

fn lengths_of(options: &Options, ours: &Ours, cards: &[&str], report: &mut Report) -> Result<()> {
    let file = ours.payments(3 * options.scaled(LONGEST), cards)?;
    let mut table =
        Table::new(["records in the window", "records/s", "CPU a record", "peak memory", "rate", "memory"]);
    let mut base: Option<Speed> = None;
    for size in [LONGEST / 1_000, LONGEST / 100, LONGEST / 10, LONGEST].map(|size| options.scaled(size)) {
        let query = format!(
            "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING {} MILLISECONDS",
            size * GAP_MS
        );
        let job = Job::new(&file, vec![("w".to_owned(), query)]);
        let speed = ours.measure(&job, Some(ONE), 1, 1)?;
        let first = base.get_or_insert_with(|| speed.clone());
        table.row([
            count(size as f64),
            count(speed.rate),
            micros(speed.cpu),
            mebibytes(speed.peak_bytes),
            times(speed.rate / first.rate),
            times(speed.peak_bytes as f64 / first.peak_bytes as f64),
        ]);
    }
    report.table(&table);
    std::fs::remove_file(file)?;
    Ok(())
}

/// Queries whose windows share no edge but their heads.
fn misaligned(number: usize) -> Vec<(String, String)> {
    (0..number)
        .map(|index| {
            let query = format!(
                "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING {} SECONDS",
                3_600 - 31 * index
            );
            (format!("q{index}"), query)
        })
        .collect()
}

/// Records of the jobs with many windows.
fn fewer(options: &Options) -> u64 {
    options.scaled(options.count) / 4
}

fn queries(options: &Options, ours: &Ours, report: &mut Report) -> Result<()> {
    report.heading("Number of queries");
    let records = fewer(options);
    report.say(&format!("{} payments from a file, windows of different lengths, 31 s apart from 60 minutes down, so that no two tails are shared; one core. A file brings whole batches; with a request for each record a window costs more (`cargo xtask bench latency`).", count(records as f64)));
    let payments = ours.payments(records, &[])?;
    let mut table = Table::new(["queries", "records/s", "values/s", "CPU a record", "peak memory", "rate"]);
    let mut base = None;
    for number in [1, 10, 100] {
        let speed = ours.measure(&Job::new(&payments, misaligned(number)), Some(ONE), 1, 1)?;
        let first = *base.get_or_insert(speed.rate);
        table.row([
            number.to_string(),
            count(speed.rate),
            count(speed.rate * number as f64),
            micros(speed.cpu),
            mebibytes(speed.peak_bytes),
            times(speed.rate / first),
        ]);
    }
    report.table(&table);
    Ok(())
}

/// A hundred tails in different chunks, and less and less memory for chunks.
fn cursors(options: &Options, ours: &Ours, report: &mut Report) -> Result<()> {
    report.heading("More cursors than cached chunks");
    report.say("100 queries as above; `state.chunk_memory` bounds the chunks that stay in memory; one core.");
    let payments = ours.payments(fewer(options), &[])?;
    let mut table = Table::new(["chunk memory", "records/s", "CPU a record", "peak memory", "rate"]);
    let mut base = None;
    for memory in ["512MiB", "16MiB", "1MiB"] {
        let job = Job::new(&payments, misaligned(100)).chunk_memory(memory);
        let speed = ours.measure(&job, Some(ONE), 1, 1)?;
        let first = *base.get_or_insert(speed.rate);
        table.row([
            memory.to_owned(),
            count(speed.rate),
            micros(speed.cpu),
            mebibytes(speed.peak_bytes),
            times(speed.rate / first),
        ]);
    }
    report.table(&table);
    Ok(())
}

/// One card with a tenth of all records.
fn hot(options: &Options, ours: &Ours, flat: &Path, report: &mut Report) -> Result<()> {
    report.heading("One hot card");
    report.say("One card has 10 % of all records; the flat file is the one above; one core.");
    let skewed = ours.payments(options.scaled(options.count), &["--hot", "0.1"])?;
    let measure = |file: &Path| ours.measure(&Job::new(file, hourly()), Some(ONE), 1, options.repeat());
    let (even, uneven) = (measure(flat)?, measure(&skewed)?);
    let mut table = Table::new(["system", "flat, records/s", "hot, records/s", "hot to flat"]);
    let mut row = |name: &str, flat: f64, hot: f64| {
        table.row([name.to_owned(), count(flat), count(hot), times(hot / flat)]);
    };
    row("Thalweg, one core", even.rate, uneven.rate);
    let mut skipped = None;
    if !options.no_peers {
        // On every answer Flink walks over all times of the card in the window: a tenth of the file must do.
        let part = options.scaled(options.count) / 10;
        let slow = |hot: &[&str]| peers::flink_heap(&ours.payments(part, hot)?);
        let both = slow(&[]).and_then(|flat| Ok((flat, slow(&["--hot", "0.1"])?)));
        match both {
            Ok((flat, hot)) => row("Flink heap, one core, a tenth of the file", flat.rate, hot.rate),
            Err(reason) => skipped = Some(format!("Skipped: Flink: {reason:#}.")),
        }
    }
    report.table(&table);
    skipped.iter().for_each(|text| report.say(text));
    std::fs::remove_file(skewed)?;
    Ok(())
}

/// What it costs that the job outlives its process: order log, a commit every second, chunks and groups on the disk.
fn data_dir(options: &Options, ours: &Ours, report: &mut Report) -> Result<()> {
    // Long enough that opening a data directory and the last commit are a small part.
    let records = options.scaled(options.count * 4);
    report.heading("With a data directory and without");
    report.say(&format!(
        "{} payments, the query of the comparison, without `--data-dir` and with it and a commit every second, in turns, in alternating order; the end, with its last commit, is part of the time. Ratios are medians over turns: what was measured in the same minute.",
        count(records as f64)
    ));
    let input = ours.payments(records, &[])?;
    let job = Job::new(&input, hourly());
    let mut table = Table::new([
        "cores",
        "without, records/s",
        "with, records/s",
        "with to without",
        "from … to",
        "CPU a record, without",
        "with",
        "a marker stops a task, 99 %",
        "at most, in all runs",
        "its processor time, at most",
        "peak memory",
    ]);
    for (name, cores, workers) in [("one", ONE, 1), ("two", TWO, 2)] {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for turn in 0..options.repeat() {
            if turn % 2 == 1 {
                with.push(ours.measure(&job, Some(cores), workers, 1)?);
            }
            without.push(ours.measure_without_data_dir(&job, Some(cores), workers)?);
            if turn % 2 == 0 {
                with.push(ours.measure(&job, Some(cores), workers, 1)?);
            }
        }
        let ratios: Vec<f64> =
            with.iter().zip(&without).map(|(with, without)| with.rate / without.rate).collect();
        let (without, with) = (Speed::of(&without)?, Speed::of(&with)?);
        ensure!(without.digest == with.digest, "the digest differs with a data directory");
        let marker = |figure: fn(&Markers) -> f64| {
            let milliseconds = |markers| format!("{:.2} ms", figure(markers));
            with.markers.as_ref().map_or_else(|| "–".to_owned(), milliseconds)
        };
        table.row([
            name.to_owned(),
            count(without.rate),
            count(with.rate),
            times(median(ratios.clone())),
            spread(&ratios, times),
            micros(without.cpu),
            micros(with.cpu),
            marker(|markers| markers.p99),
            marker(|markers| markers.most),
            marker(|markers| markers.most_cpu),
            mebibytes(with.peak_bytes),
        ]);
    }
    report.table(&table);
    std::fs::remove_file(input)?;
    Ok(())
}
