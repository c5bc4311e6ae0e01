//! What both of Railgun's figures share: a job of windows per card, a history, requests at Railgun's rate, and a row.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Options;
use crate::load::{Load, Outcome, door, mixed, now, post_all, settle};
use crate::markers::Longest;
use crate::plot::{Chart, Series};
use crate::report::{Report, Table, count, cpu_per_record, mebibytes};
use crate::server::Server;

/// Requests a second in Railgun's experiment.
pub(super) const RATE: u32 = 500;

const JOB: &str = "windows";

/// Records in one request of the history.
const BATCH: usize = 2_000;

/// How long after the history began to be posted the last request may leave.
pub(super) const POSTING: Duration = Duration::from_secs(60);

/// Figures that are drawn, and quantiles of them.
const DRAWN: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// One point of a figure.
pub(super) struct Case<'a> {
    pub(super) binary: &'a Path,
    pub(super) ack: &'a str,
    /// By name.
    pub(super) queries: Vec<(String, String)>,
    /// Event times of the history, in milliseconds, in order.
    pub(super) history: Vec<u64>,
    pub(super) cards: u64,
    pub(super) rate: u32,
    pub(super) seconds: u32,
    pub(super) connections: usize,
}

/// What it came to.
pub(super) struct Point {
    /// The value on the horizontal axis.
    pub(super) x: f64,
    pub(super) name: String,
    outcome: Outcome,
    posted: usize,
    /// How long the history took.
    posting: Duration,
    longest: Longest,
    resident: u64,
}

impl Case<'_> {
    pub(super) fn measure(&self, name: String, x: f64) -> Result<Point> {
        let server = Server::start(self.binary, &self.job())?;
        let begun = Instant::now();
        let bodies = self.history.chunks(BATCH).enumerate().map(|(batch, times)| {
            let record = |(index, time): (usize, &u64)| self.record((batch * BATCH + index) as u64, *time);
            times.iter().enumerate().flat_map(record).collect::<Vec<u8>>()
        });
        post_all(&server, &door(JOB, "payments", false), bodies)?;
        // One record with a reply comes after all of these, so they are in the windows then.
        let first = self.record(0, now().as_millis() as u64);
        let path = door(JOB, "payments", true);
        settle(&server, &path, &first)?;
        let posting = begun.elapsed();
        let load =
            Load { path: &path, rate: self.rate, seconds: self.seconds, connections: self.connections };
        let lacks = |answer: &[u8]| {
            let text = String::from_utf8_lossy(answer);
            let missing = self.queries.iter().find(|(name, _)| !text.contains(&format!("\"{name}\":{{")));
            missing.map(|(name, _)| format!("an answer without {name}: {}", text.trim_end()))
        };
        let number = self.history.len() as u64;
        let outcome = load.run(&server, |request, time| self.record(number + request, time), lacks)?;
        let longest = Longest::of(&server, JOB)?;
        let resident = server.resident_bytes();
        server.stop()?;
        Ok(Point { x, name, outcome, posted: self.history.len(), posting, longest, resident })
    }

    fn job(&self) -> Value {
        let queries: Map<String, Value> =
            self.queries.iter().map(|(name, query)| (name.clone(), json!(query))).collect();
        json!({
            "name": JOB,
            "cycle": {"every": "1s"},
            "sources": {"payments": {
                "type": "http",
                "format": "ndjson",
                "schema": {"ts": "timestamp(ms)", "card": "string", "merchant": "string", "amount": "float64"},
                "time": "ts",
                "ack": self.ack,
            }},
            "operators": {"features": {
                "type": "metrics",
                "input": "payments",
                "partition_by": ["card"],
                "queries": queries,
            }},
            "sinks": {"answers": {"type": "null", "input": "features"}},
        })
    }

    fn record(&self, number: u64, time: u64) -> Vec<u8> {
        let random = mixed(number);
        let (card, merchant, cents) = (random % self.cards, (random >> 32) % 500, (random >> 16) % 10_000);
        let (whole, part) = (cents / 100, cents % 100);
        format!("{{\"ts\":{time},\"card\":\"c{card}\",\"merchant\":\"m{merchant}\",\"amount\":{whole}.{part:02}}}\n")
            .into_bytes()
    }
}

impl Point {
    pub(super) fn must_have_no_errors(&self) -> Result<()> {
        self.outcome.must_have_no_errors()
    }
}

/// Event times from `from` on, `number` of them spread evenly over `length`; in milliseconds.
pub(super) fn spread(from: Duration, length: Duration, number: u64) -> impl Iterator<Item = u64> {
    let step = length.as_secs_f64() * 1e3 / number.max(1) as f64;
    (0..number).map(move |index| from.as_millis() as u64 + (index as f64 * step) as u64)
}

/// Tells the points, and draws them.
pub(super) fn tell(
    options: &Options,
    report: &mut Report,
    points: &[Point],
    first: &str,
    chart: Chart,
    file: &str,
) -> Result<()> {
    let mut table = Table::new([
        first,
        "sent",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "errors",
        "CPU a record",
        "written a record",
        "longest marker",
        "its processor time, at most",
        "resident",
        "history, records/s",
    ]);
    for point in points {
        let Outcome { latencies, errors, used, requests, .. } = &point.outcome;
        table.row([
            point.name.clone(),
            count(latencies.len() as f64),
            point.outcome.quantile(0.5),
            point.outcome.quantile(0.9),
            point.outcome.quantile(0.99),
            point.outcome.quantile(0.999),
            point.outcome.quantile(1.0),
            errors.to_string(),
            cpu_per_record(used.cpu, *requests as f64),
            format!("{} B", count(used.written as f64 / *requests as f64)),
            format!("{:.2} ms", point.longest.clock.as_secs_f64() * 1e3),
            format!("{:.2} ms", point.longest.cpu.as_secs_f64() * 1e3),
            mebibytes(point.resident),
            count(point.posted as f64 / point.posting.as_secs_f64()),
        ]);
        if let Some(error) = &point.outcome.first_error {
            report.say(&format!("First error of {}: {error}.", point.name));
        }
    }
    report.table(&table);
    if options.quick {
        return Ok(());
    }
    let line = |(name, quantile): (&str, f64)| Series {
        name: name.to_owned(),
        points: points.iter().map(|point| (point.x, point.outcome.quantile_ms(quantile))).collect(),
    };
    let chart = Chart { y: "ms".to_owned(), series: DRAWN.map(line).into(), ..chart };
    report.picture(file, &chart.title, &chart.svg())
}
