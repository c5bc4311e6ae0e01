//! One group whose aggregate keeps millions of values, compared with the same values over many groups.
//!
//! A changed value should cost its own bytes, however many others its group has.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::load::{Load, Outcome, door, now, post_all, settle};
use super::markers::Longest;
use super::report::{Report, Table, count, cpu_per_record, mebibytes, times};
use super::server::Server;
use thalweg_harness::Tally;
use thalweg_harness::http::Connection;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A hundredth of the values, a few seconds: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Different values in the window
    #[arg(long, default_value_t = 3_000_000)]
    values: u64,
    /// Groups of the comparison
    #[arg(long, default_value_t = 100_000)]
    groups: u64,
    /// `state.memory` of the job, in MiB
    #[arg(long, default_value_t = 64)]
    memory: u64,
    /// Requests per second
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Seconds that are measured
    #[arg(long, default_value_t = 20)]
    seconds: u32,
}

const JOB: &str = "distinct";

/// Records in one request of the history.
const BATCH: u64 = 10_000;

/// Of history, before now.
const DAY: Duration = Duration::from_secs(86_400);

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = project::thalweg(Profile::Release)?;
    let (values, groups) = if options.quick {
        (options.values / 100, options.groups / 100)
    } else {
        (options.values, options.groups)
    };
    let seconds = if options.quick { 2 } else { options.seconds };
    let mut report = Report::new("large-group", "A group with many values");
    report.say(&format!(
        "`count(DISTINCT amount)` per card over 30 days; {} different amounts of the last day, all of one card, or over {} cards. Then {} requests a second by HTTP, each with one more different amount; latency counts from the intended time of sending. `state: {{ memory: {}MiB }}`, `ack: synced`, a data directory and a commit every second; server and load generator share the machine.",
        count(values as f64),
        count(groups as f64),
        options.rate,
        options.memory,
    ));
    let measure = |groups| {
        Case { values, groups, memory: options.memory, rate: options.rate, seconds }.measure(&binary)
    };
    let (many, one) = (measure(groups)?, measure(1)?);
    let mut table = Table::new([
        "groups",
        "history, records/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "errors",
        "CPU a record",
        "written a changed value",
        "longest marker",
        "its processor time, at most",
        "resident",
        "at most",
    ]);
    for (name, run) in [(count(groups as f64), &many), ("1".to_owned(), &one)] {
        let used = run.outcome.used;
        table.row([
            name,
            count(values as f64 / run.posting.as_secs_f64()),
            run.outcome.quantile(0.5),
            run.outcome.quantile(0.99),
            run.outcome.quantile(0.999),
            run.outcome.quantile(1.0),
            run.outcome.errors.to_string(),
            cpu_per_record(used.cpu, run.outcome.requests as f64),
            format!("{} B", count(used.written as f64 / run.outcome.requests as f64)),
            format!("{:.2} ms", run.longest.clock.as_secs_f64() * 1e3),
            format!("{:.2} ms", run.longest.cpu.as_secs_f64() * 1e3),
            mebibytes(run.resident),
            mebibytes(run.peak),
        ]);
        if let Some(error) = &run.outcome.first_error {
            report.say(&format!("First error: {error}."));
        }
    }
    report.table(&table);
    let ratio = |quantile| times(one.outcome.quantile_ms(quantile) / many.outcome.quantile_ms(quantile));
    let mut ratios =
        Table::new(["one group to many", "p50", "p99", "p99.9", "bytes written", "processor time"]);
    let of = |figure: fn(&Outcome) -> f64| times(figure(&one.outcome) / figure(&many.outcome));
    ratios.row([
        "times".to_owned(),
        ratio(0.5),
        ratio(0.99),
        ratio(0.999),
        of(|outcome| outcome.used.written as f64),
        of(|outcome| outcome.used.cpu.as_secs_f64()),
    ]);
    report.table(&ratios);
    report.say("Bytes written are all that the process sent to disks meanwhile: the journal and the order log with their frames, and the state. The longest marker is since the start, the history included.");
    report.finish(options.quick)
}

struct Case {
    values: u64,
    groups: u64,
    memory: u64,
    rate: u32,
    seconds: u32,
}

struct Run {
    posting: Duration,
    outcome: Outcome,
    longest: Longest,
    resident: u64,
    peak: u64,
    /// Distinct values of the card that came last.
    last: u64,
}

impl Case {
    fn measure(&self, binary: &Path) -> Result<Run> {
        let server = Server::start(binary, &job(self.memory))?;
        let begun = Instant::now();
        let from = (now() - DAY).as_millis() as u64;
        let step = (DAY.as_millis() as f64 * 0.99) / self.values as f64;
        let body = |first: u64| {
            let last = self.values.min(first + BATCH);
            let time = |number: u64| from + (number as f64 * step) as u64;
            (first..last).flat_map(|number| self.record(number, time(number))).collect::<Vec<u8>>()
        };
        post_all(&server, &door(JOB, "payments", false), (0..self.values).step_by(BATCH as usize).map(body))?;
        let path = door(JOB, "payments", true);
        settle(&server, &path, &self.record(0, now().as_millis() as u64))?;
        let posting = begun.elapsed();
        let load = Load { path: &path, rate: self.rate, seconds: self.seconds, connections: 16 };
        let outcome = load.run(
            &server,
            |number, time| self.record(self.values + number, time),
            |answer| {
                let text = String::from_utf8_lossy(answer);
                (!text.contains("\"q\":{\"d\":")).then(|| format!("an answer without q: {}", text.trim_end()))
            },
        )?;
        let longest = Longest::of(&server, JOB)?;
        let (resident, peak) = (server.resident_bytes(), server.peak_bytes());
        let last = distinct(&server, self.card(self.values))?;
        server.stop()?;
        Ok(Run { posting, outcome, longest, resident, peak, last })
    }

    fn card(&self, number: u64) -> u64 {
        number % self.groups
    }

    /// Amounts are all different.
    fn record(&self, number: u64, time: u64) -> Vec<u8> {
        format!("{{\"ts\":{time},\"card\":\"c{}\",\"amount\":{number}.5}}\n", self.card(number)).into_bytes()
    }

    /// Different amounts of a card after all requests.
    fn expected(&self, requests: u64) -> u64 {
        let card = self.card(self.values);
        (0..self.values + requests).filter(|number| self.card(*number) == card).count() as u64
    }
}

/// The present count of a card.
fn distinct(server: &Server, card: u64) -> Result<u64> {
    let path = format!("/v1/jobs/{JOB}/operators/m/queries/q?card=c{card}");
    let mut connection = Connection::open(server.address())?;
    let (status, body) = connection.get(&path)?;
    let text = String::from_utf8_lossy(body).into_owned();
    ensure!(status == 200, "{path} was answered {status}: {text}");
    let answer: Value = serde_json::from_str(&text).context("read a present value")?;
    answer["values"]["d"].as_u64().with_context(|| format!("no count in {text}"))
}

fn job(memory: u64) -> Value {
    json!({
        "name": JOB,
        "cycle": {"every": "1s"},
        "state": {"memory": format!("{memory}MiB"), "chunk_memory": "16MiB"},
        "sources": {"payments": {
            "type": "http",
            "format": "ndjson",
            "schema": {"ts": "timestamp(ms)", "card": "string", "amount": "float64"},
            "time": "ts",
            "ack": "synced",
        }},
        "operators": {"m": {
            "type": "metrics",
            "input": "payments",
            "partition_by": ["card"],
            "queries": {
                "q": "SELECT count(DISTINCT amount) AS d FROM payments GROUP BY card OVER SLIDING 30 DAYS",
            },
        }},
        "sinks": {"out": {"type": "null", "input": "m"}},
    })
}

/// Few values: all of them are counted, of one group and of many.
pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let binary = project::thalweg(Profile::Dev)?;
    for (name, groups) in [("one group", 1), ("many groups", 50)] {
        let case = Case { values: 5_000, groups, memory: 64, rate: 50, seconds: 1 };
        let outcome = case.measure(&binary).and_then(|run| {
            run.outcome.must_have_no_errors()?;
            let expected = case.expected(run.outcome.requests);
            ensure!(run.last == expected, "{} different values instead of {expected}", run.last);
            Ok(())
        });
        tally.check(&format!("large-group: every different value of {name} is counted"), outcome);
    }
    Ok(())
}
