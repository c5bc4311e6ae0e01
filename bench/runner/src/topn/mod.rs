//! The three queries of the network-analytics paper (Touloupas, 2015, section 5.6): how many rows, pairs by AS, and by
//! name; over tables of made-up flows, raw and from rollups, compared with DuckDB on the same Parquet files.
//!
//! Both systems run in a process of their own on the same cores, with as many threads, and are asked again and again; the
//! median counts. Answers have to be equal.

mod ask;
mod processes;
mod smoke;
mod stored;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use self::ask::{Answer, How, Query, System, ask, milliseconds};
use self::stored::{Rows, Stored, middle_hour};
use super::report::{Report, Table, count, times};
use super::sflow::Tables;
use thalweg_harness::project::{self, Profile};

pub(crate) use smoke::smoke;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Small tables, asked twice: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Rows of the tables
    #[arg(long, value_delimiter = ',', default_values_t = [1_000_000, 10_000_000, 50_000_000])]
    rows: Vec<u64>,
    /// Times that a query is asked; the median counts
    #[arg(long, default_value_t = 9)]
    repeat: usize,
    /// A folder on the disk that tables are read from; the build folder if there is none
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = ["sizes", "day", "codecs", "clients", "processes"])]
    only: Vec<String>,
}

/// What is asked: times DuckDB's latency, and milliseconds of a day's pairs from a rollup.
const ASKED_RAW: f64 = 1.0;
const ASKED_ROLLUP_MS: f64 = 50.0;

/// A query is asked again for so long.
const SECONDS: f64 = 1.0;

/// Rows of the tables that codecs and clients are compared on: a day.
const DAY: u64 = 10_000_000;

/// Pairs of hosts of a day whose AS pairs are at most 200,000.
const FEW_PAIRS: u64 = 200_000;

/// Packets of the paper.
const SEED_ROWS: f64 = 1.9e9;

const CORES: &str = "0,1";
const THREADS: &str = "2";

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    fn scaled(&self, rows: u64) -> u64 {
        if self.quick { rows / 100 } else { rows }
    }

    fn how(&self) -> How {
        let (repeat, seconds) = if self.quick { (2, 0.0) } else { (self.repeat.max(1), SECONDS) };
        How { clients: 1, repeat, seconds, cold: false }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut report = Report::new("topn", "Who talks to whom, by SQL").of_parts(&options.only);
    let folder = options.dir.clone().map_or_else(|| project::scratch("bench-topn"), Ok)?;
    let bench = Bench::new(Profile::Release, &folder)?;
    let rollups = "hours and days of AS pairs and of name pairs, with packets and bytes";
    report.say(&format!(
        "Made-up flows with the networks and names of both addresses, a day for ten million rows; rollups are {rollups}. Latency is that of the whole query inside a process that is there, from its text to its last row: medians of {} or of all in a second, on two cores with two threads. DuckDB 2.0.0 reads the Parquet files of ours, with its cache for their metadata on.",
        options.how().repeat,
    ));
    if options.wants("sizes") {
        bench.sizes(options, &mut report)?;
    }
    if options.wants("day") {
        bench.day(options, &mut report)?;
    }
    if options.wants("codecs") {
        bench.codecs(options, &mut report)?;
    }
    if options.wants("clients") {
        bench.clients(options, &mut report)?;
    }
    if options.wants("processes") {
        bench.processes(options, &mut report)?;
    }
    report.finish(options.quick)
}

/// The paper's queries over rows that meet a condition.
fn queries(condition: &str) -> Vec<Query> {
    let pairs = |a: &str, b: &str| {
        format!(
            "SELECT {a}, {b}, sum(packets) AS packets FROM flows {condition} GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10"
        )
    };
    vec![
        Query { name: "count", sql: format!("SELECT count(*) FROM flows {condition}") },
        Query { name: "as", sql: pairs("src_asn", "dst_asn") },
        Query { name: "names", sql: pairs("src_name", "dst_name") },
    ]
}

/// The top 10 AS pairs of all rows.
fn as_pairs(system: System<'_>, stored: &Stored, how: How) -> Result<Answer> {
    ask(system, stored, &queries("")[1..2], how)?.pop().context("one query has one answer")
}

const TITLES: [&str; 3] = ["count", "top 10 AS pairs", "top 10 name pairs"];

struct Bench {
    thalweg: PathBuf,
    topn: PathBuf,
    joined: Tables,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(profile: Profile, folder: &Path) -> Result<Self> {
        let thalweg = project::thalweg(profile)?;
        let topn = project::build("thalweg-bench-topn", "topn", profile)?;
        let folder = tempfile::Builder::new().prefix("topn").tempdir_in(folder)?;
        let joined = Tables::make(&thalweg, folder.path()).context("make the tables to join with")?;
        Ok(Self { thalweg, topn, joined, folder })
    }

    fn fill(&self, count: u64, codec: &str) -> Result<Stored> {
        self.fill_with(Rows { count, codec, pairs: None })
    }

    fn fill_with(&self, rows: Rows<'_>) -> Result<Stored> {
        Stored::fill(&self.thalweg, &self.topn, &self.joined, self.folder.path(), rows)
    }

    fn ours(&self, rollups: bool) -> System<'_> {
        System::Ours { topn: &self.topn, rollups }
    }

    fn sizes(&self, options: &Options, report: &mut Report) -> Result<()> {
        report.heading("By size of the table");
        let mut whole = Table::new([
            "query",
            "rows",
            "ours, raw",
            "DuckDB, raw",
            "ours of DuckDB's",
            "asked",
            "ours, rollups",
        ]);
        let mut window =
            Table::new(["query of one hour", "rows", "ours, raw", "DuckDB, raw", "ours, rollups"]);
        let mut space = Table::new([
            "rows",
            "bytes a row",
            "AS pairs an hour, rows",
            "a day",
            "name pairs an hour",
            "a day",
            "filled at",
        ]);
        let mut growth: Vec<(f64, Vec<[f64; 3]>)> = Vec::new();
        let smallest = options.scaled(options.rows.iter().copied().min().unwrap_or(DAY));
        for rows in &options.rows {
            let rows = options.scaled(*rows);
            let stored = self.fill(rows, "zstd")?;
            let (of_all, of_hour) = (queries(""), queries(&middle_hour(smallest)));
            let three = |queries: &[Query]| -> Result<Vec<[Answer; 3]>> {
                let ours = ask(self.ours(false), &stored, queries, options.how())?;
                let theirs = ask(System::DuckDb, &stored, queries, options.how())?;
                let rollups = ask(self.ours(true), &stored, queries, options.how())?;
                let answers: Vec<[Answer; 3]> = ours
                    .into_iter()
                    .zip(theirs)
                    .zip(rollups)
                    .map(|((ours, theirs), rollups)| [ours, theirs, rollups])
                    .collect();
                for [ours, theirs, rollups] in &answers {
                    ours.must_equal(theirs)?;
                    ours.must_equal(rollups)?;
                }
                Ok(answers)
            };
            let (all, hour) = (three(&of_all)?, three(&of_hour)?);
            for (title, [ours, theirs, rollups]) in TITLES.iter().zip(&all) {
                whole.row([
                    (*title).to_owned(),
                    count(rows as f64),
                    ours.print(),
                    theirs.print(),
                    times(ours.ms / theirs.ms),
                    format!("≤ {}", times(ASKED_RAW)),
                    rollups.print(),
                ]);
            }
            for (title, [ours, theirs, rollups]) in TITLES.iter().zip(&hour) {
                window.row([
                    (*title).to_owned(),
                    count(rows as f64),
                    ours.print(),
                    theirs.print(),
                    rollups.print(),
                ]);
            }
            let part = |name: &str| -> Result<String> { Ok(count(stored.part(name)?.0 as f64)) };
            space.row([
                count(rows as f64),
                format!("{:.1}", stored.part("rows")?.1 as f64 / rows as f64),
                part("as_hour")?,
                part("as_day")?,
                part("name_hour")?,
                part("name_day")?,
                format!("{}/s", count(stored.rate)),
            ]);
            growth.push((rows as f64, all.iter().map(|answers| answers.each_ref().map(|a| a.ms)).collect()));
        }
        report.table(&whole);
        report.table(&window);
        report.say("The hour is the same in all tables, which grow around it.");
        report.table(&space);
        if let [.., (fewer, before), (more, after)] = growth.as_slice() {
            let mut table =
                Table::new(["1.9 billion rows, extrapolated", "ours, raw", "DuckDB, raw", "ours, rollups"]);
            for (title, (before, after)) in TITLES.iter().zip(before.iter().zip(after)) {
                let at = |system: usize| {
                    let slope = (after[system] - before[system]) / (more - fewer);
                    format!("{:.2} s", (after[system] + slope * (SEED_ROWS - more)).max(0.0) / 1e3)
                };
                table.row([(*title).to_owned(), at(0), at(1), at(2)]);
            }
            report.table(&table);
            report.say("Along the line through the two largest tables; a table of that size was not made.");
        }
        Ok(())
    }

    fn day(&self, options: &Options, report: &mut Report) -> Result<()> {
        report.heading("A day from a rollup");
        let count_rows = options.scaled(DAY);
        let mut table =
            Table::new(["pairs of hosts", "AS pairs", "top 10 AS pairs", "asked, to 200 k pairs", "of that"]);
        for pairs in [Some(FEW_PAIRS), None] {
            let stored = self.fill_with(Rows { count: count_rows, codec: "zstd", pairs })?;
            let one = |rollups| as_pairs(self.ours(rollups), &stored, options.how());
            let (raw, rollup) = (one(false)?, one(true)?);
            raw.must_equal(&rollup)?;
            table.row([
                pairs.map_or("as they come".to_owned(), |pairs| count(pairs as f64)),
                count(stored.part("as_day")?.0 as f64),
                rollup.print(),
                format!("≤ {}", milliseconds(ASKED_ROLLUP_MS)),
                times(rollup.ms / ASKED_ROLLUP_MS),
            ]);
        }
        report.table(&table);
        report.say(&format!("Of {} rows, which are a day.", count(count_rows as f64)));
        Ok(())
    }

    fn codecs(&self, options: &Options, report: &mut Report) -> Result<()> {
        let rows = options.scaled(DAY);
        report.heading("By codec");
        report.say(&format!("{} rows, raw. Cold: files leave the page cache before each query, and it is the first of its process or engine.", count(rows as f64)));
        let mut table = Table::new([
            "codec and query",
            "bytes a row",
            "ours",
            "DuckDB",
            "ours, cold",
            "DuckDB, cold",
            "filled at",
        ]);
        let queries = &queries("")[1..];
        for codec in ["zstd", "lz4", "snappy", "none"] {
            let stored = self.fill(rows, codec)?;
            let cold = How { cold: true, ..options.how() };
            let mut answers = Vec::new();
            for (system, how) in [
                (self.ours(false), options.how()),
                (System::DuckDb, options.how()),
                (self.ours(false), cold),
                (System::DuckDb, cold),
            ] {
                answers.push(ask(system, &stored, queries, how)?);
            }
            for (place, title) in TITLES[1..].iter().enumerate() {
                answers.windows(2).try_for_each(|pair| pair[0][place].must_equal(&pair[1][place]))?;
                table.row([
                    format!("{codec}, {title}"),
                    format!("{:.1}", stored.part("rows")?.1 as f64 / rows as f64),
                    answers[0][place].print(),
                    answers[1][place].print(),
                    answers[2][place].print(),
                    answers[3][place].print(),
                    format!("{}/s", count(stored.rate)),
                ]);
            }
        }
        report.table(&table);
        Ok(())
    }

    fn clients(&self, options: &Options, report: &mut Report) -> Result<()> {
        let rows = options.scaled(DAY);
        report.heading("Several at once");
        report.say(&format!("The top 10 AS pairs of {} rows, asked by each client again as soon as it has its answer. Ours lets four queries run at once, the others wait.", count(rows as f64)));
        let stored = self.fill(rows, "zstd")?;
        let mut table = Table::new([
            "clients",
            "ours, raw",
            "slowest",
            "DuckDB, raw",
            "slowest",
            "ours of DuckDB's",
            "ours, rollup",
            "slowest",
        ]);
        for clients in [1, 4, 16] {
            let how = How { clients, seconds: 0.0, ..options.how() };
            let one = |system| as_pairs(system, &stored, how);
            let (ours, theirs, rollup) =
                (one(self.ours(false))?, one(System::DuckDb)?, one(self.ours(true))?);
            ours.must_equal(&theirs)?;
            ours.must_equal(&rollup)?;
            table.row([
                clients.to_string(),
                ours.print(),
                milliseconds(ours.span.1),
                theirs.print(),
                milliseconds(theirs.span.1),
                times(ours.ms / theirs.ms),
                rollup.print(),
                milliseconds(rollup.span.1),
            ]);
        }
        report.table(&table);
        Ok(())
    }
}
