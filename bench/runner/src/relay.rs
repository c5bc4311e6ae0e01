//! Small packets through source, relay and sink, with NEPTUNE's figures drawn again (Buddhika, Pallickara, *NEPTUNE*, IPDPS 2016).
//!
//! The packets are moved by `bench/relay`, which runs one configuration and prints one line of `key=value` pairs;
//! this module chooses the configurations and draws the results.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use super::plot::{Chart, Series};
use super::process::{self, Finished};
use super::report::{Report, Table, count, mebibytes};
use super::{median, pinned};
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A fraction of a second of each: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Seconds of each run
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Runs of each configuration; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
}

/// Cores of all runs.
const CORES: &str = "0,1";

const SIZES: [u64; 5] = [50, 100, 200, 400, 10_000];

struct Relay {
    binary: PathBuf,
    seconds: f64,
    repeat: usize,
}

/// One run of the example.
struct Run {
    finished: Finished,
    rate: f64,
}

impl Run {
    fn figure(&self, key: &str) -> Result<f64> {
        self.finished.figures("rate")?.number(key)
    }
}

fn build(profile: Profile) -> Result<PathBuf> {
    project::build("thalweg-bench-relay", "relay", profile)
}

impl Relay {
    fn run(&self, arguments: &[(&str, String)]) -> Result<Run> {
        let mut command: Command = pinned(Some(CORES), &self.binary);
        command.args(["--seconds", &self.seconds.to_string()]);
        for (name, value) in arguments {
            command.args([*name, value.as_str()]);
        }
        let finished = process::run(command)?;
        let figures = finished.figures("rate")?;
        let rate = figures.number("rate")?;
        ensure!(
            figures.text("digest")? == figures.text("expected_digest")?,
            "the sink's digest is not the source's: {figures:?}"
        );
        Ok(Run { finished, rate })
    }

    fn rate(&self, arguments: &[(&str, String)]) -> Result<f64> {
        let rates = (0..self.repeat).map(|_| Ok(self.run(arguments)?.rate)).collect::<Result<Vec<f64>>>()?;
        Ok(median(rates))
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let relay = Relay {
        binary: build(Profile::Release)?,
        seconds: if options.quick { 0.3 } else { options.seconds },
        repeat: if options.quick { 1 } else { options.repeat.max(1) },
    };
    let mut report = Report::new("relay", "Relay of small packets");
    report.say(
        "Source, relay and sink on two cores; each packet is copied at every stage and digested at the sink.",
    );
    sizes(&relay, &mut report)?;
    buffers(&relay, &mut report, options.quick)?;
    switches(&relay, &mut report)?;
    jobs(&relay, &mut report, options.quick)?;
    sleeping_sink(&relay, &mut report, options.quick)?;
    report.finish(options.quick)
}

/// Packets per second by size, and the latency at half that load.
fn sizes(relay: &Relay, report: &mut Report) -> Result<()> {
    report.heading("Size of packets");
    let mut table = Table::new([
        "bytes",
        "packets/s",
        "payload/s",
        "p99 at half load",
        "allocations/packet",
        "peak memory",
    ]);
    for size in SIZES {
        let packet = ("--packet", size.to_string());
        let full = relay.run(std::slice::from_ref(&packet))?;
        let rate = relay.rate(std::slice::from_ref(&packet))?;
        let half = relay.run(&[packet, ("--rate", format!("{:.0}", rate / 2.0))])?;
        table.row([
            size.to_string(),
            count(rate),
            format!("{:.2} GB", rate * size as f64 / 1e9),
            format!("{:.3} ms", half.figure("p99_us")? / 1e3),
            format!("{:.5}", full.figure("allocations_per_packet")?),
            mebibytes(full.finished.usage.peak_bytes),
        ]);
    }
    report.table(&table);
    Ok(())
}

/// NEPTUNE, figure 2: throughput and latency by size of the buffers.
fn buffers(relay: &Relay, report: &mut Report, quick: bool) -> Result<()> {
    report.heading("Size of buffers");
    report.say("NEPTUNE's figure 2: packets of 50 bytes, buffers from 1 KiB to 1 MiB.");
    let mut table = Table::new(["buffer", "packets/s", "p99 at full load"]);
    let (mut rates, mut latencies) = (Vec::new(), Vec::new());
    for power in 10..=20 {
        let bytes = 1_u64 << power;
        let arguments = [("--packet", "50".to_owned()), ("--buffer", bytes.to_string())];
        let run = relay.run(&arguments)?;
        let latency = run.figure("p99_us")? / 1e3;
        table.row([format!("{} KiB", bytes >> 10), count(run.rate), format!("{latency:.3} ms")]);
        rates.push((bytes as f64, run.rate));
        latencies.push((bytes as f64, latency));
    }
    report.table(&table);
    let chart = |title: &str, y: &str, name: &str, points| Chart {
        title: title.to_owned(),
        x: "bytes of a buffer".to_owned(),
        y: y.to_owned(),
        log_x: true,
        series: vec![Series { name: name.to_owned(), points }],
    };
    draw(
        report,
        quick,
        "relay-buffer-rate.svg",
        &chart("Throughput by buffer", "packets/s", "50 bytes", rates),
    )?;
    draw(
        report,
        quick,
        "relay-buffer-latency.svg",
        &chart("Latency by buffer", "p99, ms", "50 bytes", latencies),
    )
}

/// NEPTUNE, table I: context switches with and without batches.
fn switches(relay: &Relay, report: &mut Report) -> Result<()> {
    report.heading("Context switches");
    report
        .say("NEPTUNE's table I: packets of 50 bytes; `one at a time` has blocks and buffers of one packet.");
    let mut table = Table::new(["", "packets/s", "switches/s", "switches per 1,000 packets"]);
    for (name, single) in [("in batches", false), ("one at a time", true)] {
        let mut arguments = vec![("--packet", "50".to_owned())];
        if single {
            arguments.extend([("--buffer", "50".to_owned()), ("--block", "1".to_owned())]);
        }
        let run = relay.run(&arguments)?;
        let switches = run.finished.usage.switches as f64;
        let packets = run.figure("packets")?;
        table.row([
            name.to_owned(),
            count(run.rate),
            count(switches / run.finished.wall.as_secs_f64()),
            format!("{:.4}", switches / packets * 1e3),
        ]);
    }
    report.table(&table);
    Ok(())
}

/// NEPTUNE, figure 5: many jobs at once.
fn jobs(relay: &Relay, report: &mut Report, quick: bool) -> Result<()> {
    report.heading("Jobs at once");
    report.say("NEPTUNE's figure 5: 1 to 64 jobs of three stages in one process, packets of 50 bytes.");
    let mut table = Table::new(["jobs", "packets/s, all", "peak memory"]);
    let mut points = Vec::new();
    for number in [1_u32, 2, 4, 8, 16, 32, 64] {
        let run = relay.run(&[("--packet", "50".to_owned()), ("--jobs", number.to_string())])?;
        table.row([number.to_string(), count(run.rate), mebibytes(run.finished.usage.peak_bytes)]);
        points.push((f64::from(number), run.rate));
    }
    report.table(&table);
    let chart = Chart {
        title: "Throughput of all jobs".to_owned(),
        x: "jobs at once".to_owned(),
        y: "packets/s".to_owned(),
        log_x: true,
        series: vec![Series { name: "50 bytes".to_owned(), points }],
    };
    draw(report, quick, "relay-jobs.svg", &chart)
}

/// NEPTUNE, figure 4: the sink sleeps 0 to 3 ms in turn, the source follows, memory stays flat.
fn sleeping_sink(relay: &Relay, report: &mut Report, quick: bool) -> Result<()> {
    report.heading("A sink that sleeps");
    report.say("NEPTUNE's figure 4: the sink sleeps 0, 1, 2, 3, 2, 1 and 0 ms per batch in turn.");
    report
        .say("Each stage is one task on a worker of its own, so a sleeping sink takes nobody else's thread.");
    let long = Relay { binary: relay.binary.clone(), seconds: 7.0 * relay.seconds, repeat: 1 };
    let run = long.run(&[
        ("--packet", "50".to_owned()),
        ("--sink-sleep", "0,1,2,3,2,1,0".to_owned()),
        ("--workers", "3".to_owned()),
        ("--tasks", "1".to_owned()),
    ])?;
    // One line per interval: `at=SECONDS sleep_ms=… source_rate=… sink_rate=… resident=BYTES`.
    let mut lines = [("source, packets/s", Vec::new()), ("sink, packets/s", Vec::new())];
    let mut memory = Vec::new();
    let mut table = Table::new(["seconds", "sleep", "source, packets/s", "sink, packets/s", "resident"]);
    for figures in run.finished.stdout.lines().filter_map(super::figures::Figures::parse) {
        let Ok(at) = figures.number("at") else { continue };
        let (source, sink) = (figures.number("source_rate")?, figures.number("sink_rate")?);
        let resident = figures.number("resident")?;
        table.row([
            format!("{at:.1}"),
            format!("{} ms", figures.text("sleep_ms")?),
            count(source),
            count(sink),
            mebibytes(resident as u64),
        ]);
        lines[0].1.push((at, source));
        lines[1].1.push((at, sink));
        memory.push((at, resident / f64::from(1 << 20)));
    }
    ensure!(!memory.is_empty(), "the example printed no intervals");
    report.table(&table);
    let chart = |title: &str, y: &str, series| Chart {
        title: title.to_owned(),
        x: "seconds".to_owned(),
        y: y.to_owned(),
        log_x: false,
        series,
    };
    let rates = lines.into_iter().map(|(name, points)| Series { name: name.to_owned(), points }).collect();
    draw(report, quick, "relay-sleep-rate.svg", &chart("A sink that sleeps", "packets/s", rates))?;
    let memory = vec![Series { name: "resident".to_owned(), points: memory }];
    draw(report, quick, "relay-sleep-memory.svg", &chart("Memory meanwhile", "MiB", memory))
}

fn draw(report: &mut Report, quick: bool, file: &str, chart: &Chart) -> Result<()> {
    if quick { Ok(()) } else { report.picture(file, &chart.title, &chart.svg()) }
}

/// A fraction of a second, with the digest of source and sink compared.
pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let relay = Relay { binary: build(Profile::Dev)?, seconds: 0.2, repeat: 1 };
    for size in SIZES {
        let outcome = relay.run(&[("--packet", size.to_string())]).and_then(|run| {
            ensure!(run.figure("packets")? > 0.0, "no packet arrived");
            Ok(())
        });
        tally.check(&format!("relay: packets of {size} bytes arrive as they were sent"), outcome);
    }
    Ok(())
}
