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
    /// Different values in the window; of `max`, a third as many
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
        "An aggregate over 30 days per card; {} amounts of the last day, all of one card, or over {} cards: `count(DISTINCT amount)` of amounts that are all different, and of a third as many `max(amount)`, where each amount is smaller than the one before, so that all of them are kept. Then {} requests a second by HTTP, each with one more such amount; latency counts from the intended time of sending. `state: {{ memory: {}MiB }}`, `ack: synced`, a data directory and a commit every second; server and load generator share the machine.",
        count(values as f64),
        count(groups as f64),
        options.rate,
        options.memory,
    ));
    let mut table = Table::new([
        "aggregate",
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
    let mut ratios =
        Table::new(["one group to many", "p50", "p99", "p99.9", "bytes written", "processor time"]);
    for (of, values) in [(Of::Distinct, values), (Of::Greatest, values / 3)] {
        let measure = |groups| {
            Case { of, values, groups, memory: options.memory, rate: options.rate, seconds }.measure(&binary)
        };
        let (many, one) = (measure(groups)?, measure(1)?);
        for (groups, run) in [(groups, &many), (1, &one)] {
            let used = run.outcome.used;
            table.row([
                of.name().to_owned(),
                count(groups as f64),
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
        let ratio = |quantile| times(one.outcome.quantile_ms(quantile) / many.outcome.quantile_ms(quantile));
        let figures = |figure: fn(&Outcome) -> f64| times(figure(&one.outcome) / figure(&many.outcome));
        ratios.row([
            of.name().to_owned(),
            ratio(0.5),
            ratio(0.99),
            ratio(0.999),
            figures(|outcome| outcome.used.written as f64),
            figures(|outcome| outcome.used.cpu.as_secs_f64()),
        ]);
    }
    report.table(&table);
    report.table(&ratios);
    report.say("Bytes written are all that the process sent to disks meanwhile: the journal and the order log with their frames, and the state. The longest marker is since the start, the history included.");
    report.finish(options.quick)
}

/// The aggregate, which keeps all values.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    /// `count(DISTINCT amount)` of amounts that differ.
    Distinct,
    /// `max(amount)` of amounts that fall.
    Greatest,
}

impl Of {
    fn name(self) -> &'static str {
        match self {
            Of::Distinct => "count(DISTINCT amount)",
            Of::Greatest => "max(amount)",
        }
    }
}

struct Case {
    of: Of,
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
    /// The present value of the card that came last.
    last: f64,
}

impl Case {
    fn measure(&self, binary: &Path) -> Result<Run> {
        let server = Server::start(binary, &job(self.of, self.memory))?;
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
        settle(&server, &path, &self.record(self.values, now().as_millis() as u64))?;
        let posting = begun.elapsed();
        let load = Load { path: &path, rate: self.rate, seconds: self.seconds, connections: 16 };
        let outcome = load.run(
            &server,
            |number, time| self.record(self.values + 1 + number, time),
            |answer| {
                let text = String::from_utf8_lossy(answer);
                (!text.contains("\"q\":{\"d\":")).then(|| format!("an answer without q: {}", text.trim_end()))
            },
        )?;
        let longest = Longest::of(&server, JOB)?;
        let (resident, peak) = (server.resident_bytes(), server.peak_bytes());
        let last = present(&server, self.card(self.values))?;
        server.stop()?;
        Ok(Run { posting, outcome, longest, resident, peak, last })
    }

    fn card(&self, number: u64) -> u64 {
        number % self.groups
    }

    fn record(&self, number: u64, time: u64) -> Vec<u8> {
        let sign = if self.of == Of::Greatest { "-" } else { "" };
        let card = self.card(number);
        format!("{{\"ts\":{time},\"card\":\"c{card}\",\"amount\":{sign}{number}.5}}\n").into_bytes()
    }

    /// The present value of the card that came last after the history and all requests.
    fn expected(&self, requests: u64) -> f64 {
        let card = self.card(self.values);
        let mut of_card = (0..=self.values + requests).filter(|number| self.card(*number) == card);
        match self.of {
            Of::Distinct => of_card.count() as f64,
            Of::Greatest => of_card.next().map_or(f64::NAN, |number| -(number as f64 + 0.5)),
        }
    }
}

/// The present value of a card.
fn present(server: &Server, card: u64) -> Result<f64> {
    let path = format!("/v1/jobs/{JOB}/operators/m/queries/q?card=c{card}");
    let mut connection = Connection::open(server.address())?;
    let (status, body) = connection.get(&path)?;
    let text = String::from_utf8_lossy(body).into_owned();
    ensure!(status == 200, "{path} was answered {status}: {text}");
    let answer: Value = serde_json::from_str(&text).context("read a present value")?;
    answer["values"]["d"].as_f64().with_context(|| format!("no value in {text}"))
}

fn job(of: Of, memory: u64) -> Value {
    let query = format!("SELECT {} AS d FROM payments GROUP BY card OVER SLIDING 30 DAYS", of.name());
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
            "queries": {"q": query},
        }},
        "sinks": {"out": {"type": "null", "input": "m"}},
    })
}

/// Few values: all of them are counted, and the first of them is the greatest, of one group and of many.
pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let binary = project::thalweg(Profile::Dev)?;
    for of in [Of::Distinct, Of::Greatest] {
        for (name, groups) in [("one group", 1), ("many groups", 50)] {
            let case = Case { of, values: 5_000, groups, memory: 64, rate: 50, seconds: 1 };
            let outcome = case.measure(&binary).and_then(|run| {
                run.outcome.must_have_no_errors()?;
                let expected = case.expected(run.outcome.requests);
                ensure!(run.last == expected, "{} instead of {expected}", run.last);
                Ok(())
            });
            tally.check(&format!("large-group: {} of {name} is that of all values", of.name()), outcome);
        }
    }
    Ok(())
}
