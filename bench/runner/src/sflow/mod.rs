//! Samples of packets: received over UDP compared with goflow2, and a day of an exchange through `examples/ixp.yaml`.
//!
//! `bench/sflow` sends the datagrams. A rate counts as held where all but one in a thousand samples have come out of the
//! collector two seconds after the last one was sent. Every job of ours has a data directory and commits every second.

mod collector;
mod search;
mod smoke;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use self::collector::{Collector, Kind};
use self::search::{Highest, Trial};
use super::exchange::{self, CORES, Exchange};
use super::job::{self, Run, Turns};
use super::report::{Report, Table, count, cpu_per_record, mebibytes, micros, times};
use super::{median, pinned, process};
use thalweg_harness::project::{self, Profile};

pub(crate) use smoke::smoke;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// One short run of each: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Searches for each collector, and runs of the example; the median counts
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Seconds of each attempt at a rate
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Flows of the example, a day of an exchange
    #[arg(long, default_value_t = 2_000_000)]
    flows: u64,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = ["udp", "exchange"])]
    only: Vec<String>,
}

/// What has not come out by then is lost.
const GRACE: Duration = Duration::from_secs(2);

/// The first rate of a search.
const FIRST_RATE: f64 = 10_000.0;

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    fn repeat(&self) -> usize {
        if self.quick { 1 } else { self.repeat.max(1) }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut report = Report::new("sflow", "Packet samples").of_parts(&options.only);
    let binary = project::thalweg(Profile::Release)?;
    let exchange = Exchange::make(&binary, &project::scratch("bench-sflow")?)?;
    if options.wants("exchange") {
        a_day(options, &exchange, &mut report)?;
    }
    if options.wants("udp") {
        udp(options, &binary, &exchange, &mut report)?;
    }
    report.finish(options.quick)
}

/// The real capture of a switch.
fn capture() -> Result<PathBuf> {
    let path = project::data().join("sflow/overflowd-sflow.pcap");
    ensure!(path.is_file(), "there is no {}", path.display());
    Ok(path)
}

/// What becomes of samples that come by UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// `examples/ixp.yaml`: joined with networks, names and members, into a table with three rollups.
    Exchange,
    /// `examples/ixp-live.yaml`: into a table with two rollups.
    Live,
    /// To a file of JSON lines.
    Lines,
}

impl Output {
    const ALL: [Self; 3] = [Output::Exchange, Output::Live, Output::Lines];

    fn describe(self) -> &'static str {
        match self {
            Output::Exchange => "examples/ixp.yaml: three joins, a table, three rollups",
            Output::Live => "examples/ixp-live.yaml: a table, two rollups",
            Output::Lines => "JSON lines to a file",
        }
    }

    /// The command that runs it, without a data directory.
    fn command(self, binary: &Path, exchange: &Exchange, udp: SocketAddr) -> Result<Command> {
        match self {
            Output::Exchange => Ok(exchange.command("ixp.yaml", &[exchange::source(udp)])),
            Output::Live => Ok(exchange.command("ixp-live.yaml", &[exchange::source(udp)])),
            Output::Lines => {
                let (job, flows) =
                    (exchange.folder().join("lines.json"), exchange.folder().join("flows.ndjson"));
                let text = json!({
                    "name": "lines",
                    "sources": { "switches": {
                        "type": "sflow", "listen": udp.to_string(), "receive_buffer": "64MiB", "queue": "64MiB",
                    } },
                    "sinks": {
                        "flows": { "type": "file", "input": "switches.flows", "path": flows, "format": "ndjson" },
                        "counters": { "type": "null", "input": "switches.counters" },
                    },
                });
                let _ = std::fs::remove_file(&flows);
                std::fs::write(&job, format!("{text:#}\n")).context("write the job file")?;
                let mut command = pinned(Some(CORES), binary);
                command.arg("run").arg(job).args(["--quiet", "--workers", "2"]);
                Ok(command)
            }
        }
    }
}

/// Sends datagrams and counts the output.
struct Sender {
    binary: PathBuf,
    capture: Option<PathBuf>,
    seconds: f64,
}

impl Sender {
    fn trial(&self, kind: &Kind<'_>, rate: f64) -> Result<Trial> {
        let collector = Collector::start(kind, CORES)?;
        let mut command: Command = pinned(Some(CORES), &self.binary);
        command.args(["--to", &collector.udp.to_string(), "--rate", &rate.to_string()]);
        command.args(["--seconds", &self.seconds.to_string()]);
        if let Some(capture) = &self.capture {
            command.arg("--capture").arg(capture);
        }
        let sent = process::run(command)?.figures("rate")?;
        let samples = sent.number("samples")?;
        let collected = collector.samples_after(samples, GRACE)?;
        Ok(Trial {
            sent_rate: sent.number("rate")?,
            lost: 1.0 - collected.samples / samples,
            cpu: collected.cpu.as_secs_f64() * 1e6 / collected.samples.max(1.0),
        })
    }

    /// The median of several searches.
    fn highest(&self, kind: &Kind<'_>, repeat: usize) -> Result<(Highest, Vec<f64>)> {
        let search = |_| search::highest(FIRST_RATE, |rate| self.trial(kind, rate));
        let found = (0..repeat).map(search).collect::<Result<Vec<Highest>>>()?;
        let rates: Vec<f64> = found.iter().map(|found| found.rate).collect();
        let is_senders_limit = found.iter().any(|found| found.is_senders_limit);
        let cpu = median(found.iter().map(|found| found.cpu).collect());
        Ok((Highest { rate: median(rates.clone()), is_senders_limit, cpu }, rates))
    }
}

fn udp(options: &Options, binary: &Path, exchange: &Exchange, report: &mut Report) -> Result<()> {
    let made_up = Sender {
        binary: project::build("thalweg-bench-sflow", "sflow", Profile::Release)?,
        capture: None,
        seconds: if options.quick { 0.5 } else { options.seconds },
    };
    let real = Sender { binary: made_up.binary.clone(), capture: capture().ok(), seconds: made_up.seconds };
    report.heading("Over UDP");
    report.say(&format!(
        "The highest rate at which at most one sample in a thousand is lost, over the loopback, from {}; for `examples/ixp.yaml` from made-up datagrams, whose addresses are in its tables. Sender and collector share two cores; ours has 64 MiB for a socket's buffer and for its queue, of which the kernel gives what `net.core.rmem_max` ({}) lets it, and goflow2 takes the kernel's default ({}), as it has no option for that. Ours has a data directory and commits every second; goflow2 writes to `/dev/null`.",
        if real.capture.is_some() { "the datagrams of a real switch" } else { "made-up datagrams of seven samples" },
        kernel("rmem_max"),
        kernel("rmem_default"),
    ));
    report.say(&format!(
        "Attempts take {} s and begin with a new process; each figure is the median of {} searches.",
        made_up.seconds,
        options.repeat()
    ));
    let mut table =
        Table::new(["collector", "samples/s before loss", "from … to", "CPU a sample", "of goflow2's"]);
    let print = |highest: &Highest| {
        let mark = if highest.is_senders_limit { " (the sender's limit)" } else { "" };
        format!("{}{mark}", count(highest.rate))
    };
    let theirs =
        goflow2().and_then(|binary| real.highest(&Kind::Goflow2 { binary: &binary }, options.repeat()));
    let beside = match &theirs {
        Ok((highest, rates)) => {
            let name = format!("goflow2 {}, JSON to /dev/null", GOFLOW2.trim());
            let cpu = micros(highest.cpu);
            table.row([name, print(highest), super::spread(rates, count), cpu, "1 ×".to_owned()]);
            Some(highest.rate)
        }
        Err(_) => None,
    };
    for output in Output::ALL {
        // Fails where a file cannot be written, and then for the first address, too.
        output.command(binary, exchange, SocketAddr::from(([127, 0, 0, 1], 1)))?;
        let command = |udp| output.command(binary, exchange, udp).expect("it was possible just before");
        let sender = if output == Output::Exchange { &made_up } else { &real };
        let (highest, rates) = sender.highest(&Kind::Ours { command: &command }, options.repeat())?;
        let ratio = beside.map_or("–".to_owned(), |beside| times(highest.rate / beside));
        table.row([
            output.describe().to_owned(),
            print(&highest),
            super::spread(&rates, count),
            micros(highest.cpu),
            ratio,
        ]);
    }
    report.table(&table);
    if let Err(error) = theirs {
        report.say(&format!("Skipped: goflow2: {error:#}."));
    }
    Ok(())
}

fn kernel(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default();
    let bytes: Option<f64> = text.trim().parse().ok();
    bytes.map_or("?".to_owned(), |bytes| format!("{:.0} KiB", bytes / 1024.0))
}

/// The version that is built.
const GOFLOW2: &str = include_str!("../../../peers/goflow2/version");

/// goflow2's program, which is built with Go where it is not there yet.
fn goflow2() -> Result<PathBuf> {
    let folder = project::scratch("peers/goflow2")?;
    let binary = folder.join(format!("goflow2-{}", GOFLOW2.trim()));
    if binary.is_file() {
        return Ok(binary);
    }
    if !project::has("go") {
        bail!("no go");
    }
    let mut install = Command::new("go");
    install.args(["install", &format!("github.com/netsampler/goflow2/v2/cmd/goflow2@{}", GOFLOW2.trim())]);
    install.env("GOBIN", &folder);
    process::run(install).context("build it")?;
    std::fs::rename(folder.join("goflow2"), &binary).context("name it by its version")?;
    Ok(binary)
}

/// Runs the example over its own made-up flows; in a fresh data directory if so.
fn example(exchange: &Exchange, flows: u64, has_data_dir: bool) -> Result<Run> {
    let command = exchange.command("ixp.yaml", &[format!("sources.switches.count={flows}")]);
    let run = job::finish(command, exchange.folder(), has_data_dir)?;
    ensure!(run.answers == flows as f64, "{} of {flows} flows came out", run.answers);
    Ok(run)
}

fn a_day(options: &Options, exchange: &Exchange, report: &mut Report) -> Result<()> {
    report.heading("A day of an exchange");
    let flows = if options.quick { options.flows / 100 } else { options.flows };
    report.say(&format!(
        "`thalweg run examples/ixp.yaml`: {} made-up samples through joins with networks, names and members into a table with three rollups; two workers on two cores, which also make the samples. Rates are of the whole run, opening of the tables and the last commit in it; runs with a data directory and without take turns.",
        count(flows as f64)
    ));
    let turns = Turns::take(options.repeat(), |has_data_dir| example(exchange, flows, has_data_dir))?;
    let mut table = Table::new(["", "samples/s", "CPU a sample", "peak memory"]);
    for (name, run) in [("with a data directory", &turns.with), ("without", &turns.without)] {
        table.row([
            name.to_owned(),
            count(run.rate),
            cpu_per_record(run.cpu, flows as f64),
            mebibytes(run.peak_bytes),
        ]);
    }
    report.table(&table);
    Ok(())
}
