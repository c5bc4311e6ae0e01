//! Samples of packets: decoded in memory, received over UDP compared with goflow2, and joined with both tables.
//!
//! `bench/sflow` sends the datagrams. A rate counts as held where all but one in a thousand samples have come out of the
//! collector two seconds after the last one was sent.

mod collector;
mod jobs;
mod search;
mod smoke;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::collector::{Collector, Kind};
use self::jobs::Output;
use self::search::{Highest, Trial};
use super::report::{Report, Table, count, times};
use super::{median, pinned, process};
use thalweg_harness::project::{self, Profile};

pub(super) use jobs::{Tables, joins as joined_flows};
pub(crate) use smoke::smoke;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// One short run of each: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Searches for each collector, and runs with joins; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Seconds of each attempt at a rate
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = ["memory", "udp", "joins"])]
    only: Vec<String>,
}

/// What is asked: samples per second on one core, times goflow2's rate, and samples per second with joins on two cores.
const ASKED_MEMORY: f64 = 3e6;
const ASKED_TIMES: f64 = 20.0;
const ASKED_JOINS: f64 = 300e3;

/// Collector and sender share both.
const CORES: &str = "0,1";

/// What has not come out by then is lost.
const GRACE: Duration = Duration::from_secs(2);

/// The first rate of a search.
const FIRST_RATE: f64 = 2_500.0;

/// Records of a run with joins.
const JOINED: u64 = 3_000_000;

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
    if options.wants("memory") {
        memory(&mut report)?;
    }
    if options.wants("udp") {
        udp(options, &mut report)?;
    }
    if options.wants("joins") {
        joins(options, &mut report)?;
    }
    report.finish(options.quick)
}

/// The real capture of a switch.
fn capture() -> Result<PathBuf> {
    let path = project::data().join("sflow/overflowd-sflow.pcap");
    ensure!(path.is_file(), "there is no {}", path.display());
    Ok(path)
}

fn memory(report: &mut Report) -> Result<()> {
    report.heading("Decoded in memory");
    report.say("Datagrams of a real switch, 5,855 flow samples and 502 counter samples, decoded to batches again and again on one core: the median of seven rounds of a second.");
    let capture = match capture() {
        Ok(capture) => capture,
        Err(error) => {
            report.say(&format!("Skipped: {error}."));
            return Ok(());
        }
    };
    let example = project::example("thalweg-connect", "sflow_speed", Profile::Release)?;
    let mut command = pinned(Some("0"), &example);
    command.arg(capture);
    let rate = process::run(command)?.figures("rate")?.number("rate")?;
    let mut table = Table::new(["", "samples/s", "asked", "of that"]);
    table.row(["one core".to_owned(), count(rate), count(ASKED_MEMORY), times(rate / ASKED_MEMORY)]);
    report.table(&table);
    Ok(())
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
        let came_out = collector.samples_after(samples, GRACE)?;
        Ok(Trial { sent_rate: sent.number("rate")?, lost: 1.0 - came_out / samples })
    }

    /// The median of several searches.
    fn highest(&self, kind: &Kind<'_>, repeat: usize) -> Result<(Highest, Vec<f64>)> {
        let search = |_| search::highest(FIRST_RATE, |rate| self.trial(kind, rate));
        let found = (0..repeat).map(search).collect::<Result<Vec<Highest>>>()?;
        let rates: Vec<f64> = found.iter().map(|found| found.rate).collect();
        let is_senders_limit = found.iter().any(|found| found.is_senders_limit);
        Ok((Highest { rate: median(rates.clone()), is_senders_limit }, rates))
    }
}

fn udp(options: &Options, report: &mut Report) -> Result<()> {
    let sender = Sender {
        binary: project::build("thalweg-bench-sflow", "sflow", Profile::Release)?,
        capture: capture().ok(),
        seconds: if options.quick { 0.5 } else { options.seconds },
    };
    let ours = project::thalweg(Profile::Release)?;
    report.heading("Over UDP");
    report.say(&format!(
        "The highest rate at which at most one sample in a thousand is lost, over the loopback, from {}. Sender and collector share two cores; ours has 64 MiB for a socket's buffer and for its queue, of which the kernel gives what `net.core.rmem_max` ({}) lets it, and goflow2 takes the kernel's default ({}), as it has no option for that.",
        if sender.capture.is_some() { "the datagrams of the real switch" } else { "made-up datagrams of seven samples" },
        kernel("rmem_max"),
        kernel("rmem_default"),
    ));
    report.say(&format!(
        "Attempts take {} s and begin with a new process; each figure is the median of {} searches.",
        sender.seconds,
        options.repeat()
    ));
    let mut table = Table::new(["collector", "samples/s before loss", "from … to", "of goflow2's"]);
    let print = |highest: &Highest| {
        let mark = if highest.is_senders_limit { " (the sender's limit)" } else { "" };
        format!("{}{mark}", count(highest.rate))
    };
    let theirs =
        goflow2().and_then(|binary| sender.highest(&Kind::Goflow2 { binary: &binary }, options.repeat()));
    let beside = match &theirs {
        Ok((highest, rates)) => {
            let name = format!("goflow2 {}, JSON to /dev/null", GOFLOW2.trim());
            table.row([name, print(highest), super::spread(rates, count), "1 ×".to_owned()]);
            Some(highest.rate)
        }
        Err(_) => None,
    };
    let folder = tempfile::tempdir_in(project::scratch("bench-sflow")?)?;
    for output in [Output::Table, Output::Lines] {
        let kind = Kind::Ours { binary: &ours, job: jobs::collector(output, folder.path()) };
        let (highest, rates) = sender.highest(&kind, options.repeat())?;
        let ratio = beside.map_or("–".to_owned(), |beside| times(highest.rate / beside));
        table.row([output.describe(), print(&highest), super::spread(&rates, count), ratio]);
    }
    report.table(&table);
    report.say(&format!("Asked are {} goflow2's rate.", times(ASKED_TIMES)));
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

fn joins(options: &Options, report: &mut Report) -> Result<()> {
    report.heading("With both joins");
    report.say("Made-up flows through `range_join` for the networks and `lookup_join` for the names of both addresses, with the tables of `thalweg gen flows --tables`; two workers on two cores, which also make the flows. Rates are of the whole run, opening of the tables and all.");
    let binary = project::thalweg(Profile::Release)?;
    let folder = tempfile::tempdir_in(project::scratch("bench-sflow")?)?;
    let tables = Tables::make(&binary, folder.path())?;
    let records = if options.quick { 50_000 } else { JOINED };
    let rate = |job: &serde_json::Value| -> Result<f64> {
        let run = |_| {
            let (answers, rate) = jobs::run(pinned(Some(CORES), &binary), job, folder.path())?;
            ensure!(answers == records as f64, "{answers} of {records} flows came out");
            Ok(rate)
        };
        Ok(median((0..options.repeat()).map(run).collect::<Result<Vec<f64>>>()?))
    };
    let (alone, joined) = (rate(&jobs::flows(records))?, rate(&jobs::joins(&tables, records))?);
    let mut table = Table::new(["", "flows/s", "asked", "of that"]);
    table.row(["without joins".to_owned(), count(alone), "–".to_owned(), "–".to_owned()]);
    table.row(["with both joins".to_owned(), count(joined), count(ASKED_JOINS), times(joined / ASKED_JOINS)]);
    report.table(&table);
    Ok(())
}
