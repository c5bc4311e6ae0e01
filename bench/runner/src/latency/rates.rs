//! Records of 103 fields at fixed rates, among a million groups.
//!
//! The job has three windows of an hour and a history before them: records of the last hour, dense where the
//! windows' tails pass during the run, so that as much leaves as enters.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::Options;
use crate::load::{Load, Outcome, WARM_UP, door, milliseconds, now, post_all};
use crate::markers::{Markers, WITHIN};
use crate::report::{Report, Table, count, cpu_per_record, mebibytes};
use crate::server::Server;
use crate::stalls::{Meter, Stalls};
use crate::{fio, machine, process};
use thalweg_harness::Tally;
use thalweg_harness::http::Connection;
use thalweg_harness::project;

/// Time that posting the history may take; the dense part is longer by so much.
const POSTING: Duration = Duration::from_secs(60);

const HOUR: Duration = Duration::from_secs(3600);

/// Made-up records to choose from.
const TEMPLATES: usize = 10_000;

/// Records in one request of the history.
const BATCH: usize = 200;

const JOB: &str = "latency";

pub(super) fn table(options: &Options, binary: &Path, report: &mut Report) -> Result<()> {
    let seconds = options.seconds();
    let history = if options.quick {
        History { spread: 5_000, groups: 20_000 }
    } else {
        History { spread: options.history, groups: options.groups }
    };
    report.heading("By rate");
    report.say(&format!(
        "Open-loop load on {} connections, records of 103 fields, three queries over one hour, {} cards with a record in \
         it, `ack: {}`, a commit every second.",
        options.connections,
        count(history.groups as f64),
        options.ack
    ));
    let records = Records::generate(binary, TEMPLATES)?;
    let folders = match options.dir.as_slice() {
        [] => vec![project::scratch("bench-server")?],
        folders => folders.iter().map(|folder| folder.canonicalize()).collect::<Result<_, _>>()?,
    };
    let has_fio = project::has("fio");
    if has_fio {
        report.say("Before each run `fio` syncs writes of 4 KiB on the same disk, as many a second as there are requests: what the disk takes by itself.");
    } else {
        report.say("Skipped: fio: there is no such program here, so the disks' own syncs are not known.");
    }
    report.say("A core stood still where a thread that goes before all others did not get it for 2 ms and more; most likely its host had it. Replies wait for that, too.");
    let mut table = Table::new([
        "disk",
        "requests/s",
        "sent",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "errors",
        "CPU a record",
        "the disk's own sync, p50",
        "p99.9",
        "max",
        "a core stood still, at most",
        "in all",
    ]);
    let mut runs = Vec::new();
    for (folder, rate) in
        folders.iter().flat_map(|folder| options.rates.iter().map(move |rate| (folder, rate)))
    {
        let disk = machine::disk(folder);
        // What builds and earlier runs have written is on the disk before, not meanwhile.
        rustix::fs::sync();
        let syncs = has_fio.then(|| fio::syncs(folder, *rate, seconds.div_ceil(3))).transpose()?;
        let run = measure(binary, &records, &history, options, folder, *rate, seconds)?;
        let time = |time: Option<Duration>| {
            time.map_or("–".to_owned(), |time| milliseconds(time.as_nanos() as u64))
        };
        let own = |of: fn(&fio::Syncs) -> Duration| time(syncs.as_ref().map(of));
        let stood_still = |of: fn(&Stalls) -> Duration| time(run.stalls.as_ref().map(of));
        let latencies = &run.outcome.latencies;
        table.row([
            disk.clone(),
            rate.to_string(),
            count(latencies.len() as f64),
            run.outcome.quantile(0.5),
            run.outcome.quantile(0.9),
            run.outcome.quantile(0.99),
            run.outcome.quantile(0.999),
            run.outcome.quantile(1.0),
            run.outcome.errors.to_string(),
            cpu_per_record(run.outcome.used.cpu, run.outcome.requests as f64),
            own(|syncs| syncs.p50),
            own(|syncs| syncs.p999),
            own(|syncs| syncs.max),
            stood_still(|stalls| stalls.longest),
            stood_still(|stalls| stalls.sum),
        ]);
        runs.push((format!("{rate} requests a second, {disk}"), run));
    }
    report.table(&table);
    for (title, run) in &runs {
        report.heading(title);
        run.tell(report);
    }
    Ok(())
}

/// What one rate on one disk came to.
struct Run {
    /// Records of history.
    posted: u64,
    /// Bytes of resident memory before the history and after the load.
    idle: u64,
    resident: u64,
    markers: Markers,
    /// `None` where the machine did not let them be measured.
    stalls: Option<Stalls>,
    outcome: Outcome,
}

impl Run {
    fn tell(&self, report: &mut Report) {
        report.say(&format!(
            "{} records of history; resident memory {} when idle and {} after the load.",
            count(self.posted as f64),
            mebibytes(self.idle),
            mebibytes(self.resident)
        ));
        report.say(&format!(
            "Of {} times that a cycle marker stopped a task, {} were shorter than {:.3} ms by the clock, and {} took less processor time than that.",
            self.markers.all,
            self.markers.short,
            WITHIN * 1e3,
            self.markers.short_by_cpu
        ));
        if let Some(error) = &self.outcome.first_error {
            report.say(&format!("First error: {error}."));
        }
        report.verbatim(&distribution(&self.outcome.latencies));
    }
}

/// Starts a server in `folder`, posts the history and then `rate` requests a second.
fn measure(
    binary: &Path,
    records: &Records,
    history: &History,
    options: &Options,
    folder: &Path,
    rate: u32,
    seconds: u32,
) -> Result<Run> {
    let server = start(binary, records, &options.ack, folder)?;
    let idle = server.resident_bytes();
    let posted = fill(&server, records, rate, seconds, history)?;
    let before = Markers::of(&server)?;
    let meter = Meter::start();
    let outcome = load(&server, records, rate, seconds, options.connections)?;
    let stalls = meter.stop();
    let markers = Markers::of(&server)?.since(&before);
    let resident = server.resident_bytes();
    server.stop()?;
    Ok(Run { posted, idle, resident, markers, stalls, outcome })
}

/// A short open-loop run whose answers are looked at.
pub(super) fn smoke(binary: &Path, tally: &mut Tally) -> Result<()> {
    let records = Records::generate(binary, 200)?;
    let server = start(binary, &records, "synced", &project::scratch("bench-server")?)?;
    fill(&server, &records, 50, 1, &History { spread: 200, groups: 500 })?;
    let outcome = load(&server, &records, 50, 2, 4)?;
    server.stop()?;
    tally.check(
        "latency: every request of an open-loop run is answered with all queries",
        outcome.must_have_no_errors(),
    );
    Ok(())
}

/// Sends records at a rate.
fn load(server: &Server, records: &Records, rate: u32, seconds: u32, connections: usize) -> Result<Outcome> {
    let path = door(JOB, "payments", true);
    let record = |number, time: u64| {
        let (before, after) = records.parts(number);
        [before, time.to_string().as_bytes(), after].concat()
    };
    Load { path: &path, rate, seconds, connections }.run(server, record, lacks)
}

/// The queries; each name has to be in every answer.
const QUERIES: [(&str, &str); 3] = [
    ("card_1h", "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR"),
    (
        "shop_1h",
        "SELECT avg(amount) AS mean, max(amount) AS top FROM payments GROUP BY merchant OVER SLIDING 1 HOUR",
    ),
    (
        "pair_1h",
        "SELECT count(*) AS n, stddev(amount) AS spread FROM payments WHERE amount > 1 GROUP BY card, merchant OVER SLIDING 1 HOUR",
    ),
];

/// Generated records without their time, and the schema that they have.
struct Records {
    /// Text before and after the digits of `ts`.
    templates: Vec<(Vec<u8>, Vec<u8>)>,
    schema: Map<String, Value>,
}

impl Records {
    fn generate(binary: &Path, number: usize) -> Result<Self> {
        let mut command = Command::new(binary);
        command.args(["gen", "payments", "--seed", "1", "--fields", "103", "--format", "ndjson"]);
        command.args(["--count", &number.to_string()]);
        let text = process::run(command)?.stdout;
        let mut schema: Map<String, Value> = Map::new();
        let mut templates = Vec::new();
        for line in text.lines() {
            let record: Map<String, Value> = serde_json::from_str(line).context("read a generated record")?;
            for (name, value) in &record {
                refine(schema.entry(name).or_insert(Value::Null), name, value);
            }
            let at = line.find("\"ts\":").context("a record without ts")? + "\"ts\":".len();
            let digits = line[at..].bytes().take_while(u8::is_ascii_digit).count();
            templates.push((line.as_bytes()[..at].to_vec(), line.as_bytes()[at + digits..].to_vec()));
        }
        ensure!(templates.len() == number, "{} records were generated instead of {number}", templates.len());
        for (_, kind) in &mut schema {
            if kind.is_null() {
                *kind = json!("string?");
            }
        }
        Ok(Self { templates, schema })
    }

    /// A record's parts, to be sent one after the other: before the time, the time, after it.
    fn parts(&self, number: u64) -> (&[u8], &[u8]) {
        let template = &self.templates[usize::try_from(number).unwrap_or(0) % self.templates.len()];
        (&template.0, &template.1)
    }
}

/// Makes a field's type fit one more value: the widest that was seen, nullable where a value is missing.
fn refine(kind: &mut Value, name: &str, value: &Value) {
    let seen = match value {
        _ if name == "ts" => "timestamp(ms)",
        Value::Bool(_) => "bool?",
        Value::Number(number) if number.is_f64() => "float64?",
        Value::Number(_) => "int64?",
        Value::Null => return,
        _ => "string?",
    };
    if !(kind == "float64?" && seen == "int64?") {
        *kind = json!(seen);
    }
}

fn start(binary: &Path, records: &Records, ack: &str, folder: &Path) -> Result<Server> {
    let queries: Map<String, Value> =
        QUERIES.iter().map(|(name, query)| ((*name).to_owned(), json!(query))).collect();
    Server::start_in(
        folder,
        binary,
        &json!({
            "name": JOB,
            "sources": {"payments": {
                "type": "http",
                "format": "ndjson",
                "schema": records.schema,
                "time": "ts",
                "ack": ack,
            }},
            "operators": {"features": {
                "type": "metrics",
                "input": "payments",
                "partition_by": ["card", "merchant"],
                "queries": queries,
            }},
            "sinks": {"answers": {"type": "null", "input": "features"}},
        }),
    )
}

/// The records before the load, besides those where the windows' tails pass.
struct History {
    /// Records like those of the load.
    spread: u64,
    /// Records of a card each, with few fields.
    groups: u64,
}

/// Posts the history, oldest first; how many records that were.
fn fill(server: &Server, records: &Records, rate: u32, seconds: u32, history: &History) -> Result<u64> {
    let end = now();
    let start = end - HOUR;
    let dense = Duration::from_secs(u64::from(seconds + WARM_UP)) + POSTING;
    let mut times: Vec<u64> = Vec::new();
    let mut ramp = |from: Duration, length: Duration, number: u64| {
        let step = length.as_secs_f64() * 1e3 / number.max(1) as f64;
        times.extend((0..number).map(|index| from.as_millis() as u64 + (index as f64 * step) as u64));
    };
    let at_tails = (dense.as_secs_f64() * f64::from(rate)) as u64;
    ramp(start, dense, at_tails);
    let (after, fulls) = (history.spread + history.groups, history.spread);
    ramp(start + dense, HOUR - dense, after);
    // Evenly among each other, after those at the tails.
    let is_full = |number: u64| match number.checked_sub(at_tails) {
        None => true,
        Some(index) => index * fulls / after != (index + 1) * fulls / after,
    };
    let body = |(batch, times): (usize, &[u64])| {
        let mut body = Vec::new();
        for (index, time) in times.iter().enumerate() {
            let number = (batch * BATCH + index) as u64;
            if is_full(number) {
                let (before, after) = records.parts(number);
                body.extend_from_slice(before);
                body.extend_from_slice(time.to_string().as_bytes());
                body.extend_from_slice(after);
                body.push(b'\n');
            } else {
                let card =
                    format!("{{\"ts\":{time},\"card\":\"g{number}\",\"merchant\":\"m\",\"amount\":2.5}}\n");
                body.extend_from_slice(card.as_bytes());
            }
        }
        body
    };
    post_all(server, &door(JOB, "payments", false), times.chunks(BATCH).enumerate().map(body))?;
    // One record with a reply comes after all of these, so they are in the windows then.
    let (before, after) = records.parts(0);
    let time = now().as_millis().to_string();
    let mut connection = Connection::open(server.address())?;
    let (status, body) = connection.post(&door(JOB, "payments", true), &[before, time.as_bytes(), after])?;
    ensure!(status == 200, "a record was answered {status}: {}", String::from_utf8_lossy(body));
    ensure!(
        now() < end + POSTING,
        "posting the history took longer than {POSTING:?}; give a smaller --history"
    );
    Ok(times.len() as u64 + 1)
}

/// What an answer lacks.
fn lacks(answer: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(answer);
    let missing = QUERIES.iter().find(|(name, _)| !text.contains(&format!("\"{name}\":{{")));
    missing.map(|(name, _)| format!("an answer without {name}: {}", text.trim_end()))
}

/// The histogram as a percentile distribution, with a bar for each step.
#[expect(clippy::disallowed_methods, reason = "lengths of bars")]
fn distribution(latencies: &Histogram<u64>) -> String {
    let mut text = String::from("      latency   percentile      count\n");
    let quantiles =
        [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.999_5, 0.999_9, 0.999_99, 1.0];
    let max = latencies.max().max(1) as f64;
    for quantile in quantiles {
        let value = latencies.value_at_quantile(quantile);
        // Logarithmic from 10 µs on, so that the median and the maximum are both seen.
        let share = (value as f64 / 1e4).max(1.0).ln() / (max / 1e4).max(1.1).ln();
        let _ = writeln!(
            text,
            "{:>13} {:>11.3}% {:>10}  {}",
            milliseconds(value),
            quantile * 100.0,
            latencies.count_between(0, value),
            "▇".repeat((share * 40.0).round() as usize)
        );
    }
    let _ = writeln!(
        text,
        "mean {}, standard deviation {}, {} requests",
        milliseconds(latencies.mean() as u64),
        milliseconds(latencies.stdev() as u64),
        latencies.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_widen_to_what_was_seen() {
        let kind = |values: &[Value]| {
            let mut kind = Value::Null;
            values.iter().for_each(|value| refine(&mut kind, "x", value));
            kind
        };
        assert_eq!(kind(&[json!(1), json!(null), json!(2)]), json!("int64?"));
        assert_eq!(kind(&[json!(1), json!(2.5), json!(3)]), json!("float64?"));
        assert_eq!(kind(&[json!("a"), json!(null)]), json!("string?"));
    }

    #[test]
    fn an_answer_needs_every_query() {
        let answer = br#"{"ts":1,"card_1h":{"n":1},"shop_1h":{"mean":1},"pair_1h":{"n":1}}"#;
        assert_eq!(lacks(answer), None);
        assert!(lacks(br#"{"error":{"code":"late"}}"#).is_some());
    }
}
