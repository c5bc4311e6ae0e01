//! Small packets through source, relay and sink: one configuration per run, one line of figures.
//!
//! The source makes packets from their numbers, the relay copies each one into a buffer of its own, the sink
//! digests each one. Between them are shuffles, so nothing is chained. At the end all packets are made once more
//! and digested without any engine: `digest` and `expected_digest` differ if one was lost, doubled or damaged.
//!
//! `cargo xtask bench relay` chooses the configurations and draws what comes out.

mod allocations;
mod meter;
mod packets;
mod stages;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Parser;
use thalweg_flow::{Job, JobOptions, JobState, Runtime, SystemClock};

use crate::meter::Meter;

#[derive(Parser)]
#[command(name = "relay", about)]
pub(crate) struct Arguments {
    /// Bytes of a packet: 50, 100, 200, 400 or 10000
    #[arg(long, default_value_t = 50)]
    packet: usize,
    /// Seconds for which the source makes packets
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Packets per second of each job; as many as possible where not given
    #[arg(long)]
    rate: Option<f64>,
    /// Bytes of a buffer, and of a block from the source
    #[arg(long)]
    buffer: Option<usize>,
    /// At most so many packets in a block from the source
    #[arg(long)]
    block: Option<u64>,
    /// How many jobs run at once
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Tasks of each stage; as many as workers where not given
    #[arg(long)]
    tasks: Option<u32>,
    /// Milliseconds for which the sink sleeps at each batch, one figure after the other over the run
    #[arg(long, value_delimiter = ',')]
    sink_sleep: Vec<u64>,
}

/// How often figures are printed while a sink sleeps.
const LOOK: Duration = Duration::from_millis(250);

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.packet {
        50 => run::<50>(&arguments),
        100 => run::<100>(&arguments),
        200 => run::<200>(&arguments),
        400 => run::<400>(&arguments),
        10_000 => run::<10_000>(&arguments),
        other => bail!("--packet takes 50, 100, 200, 400 or 10000, got {other}"),
    }
}

fn run<const P: usize>(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.seconds > 0.0 && arguments.jobs > 0, "--seconds and --jobs are above 0");
    let meters: Vec<Arc<Meter>> = (0..arguments.jobs).map(|_| Arc::new(Meter::new(arguments.rate))).collect();
    let runtime = Runtime::new(arguments.workers, Arc::new(SystemClock));
    let mut options = JobOptions::default();
    options.block_bytes = arguments.buffer.unwrap_or(options.block_bytes).max(P);
    let started = Instant::now();
    let jobs = meters
        .iter()
        .enumerate()
        .map(|(number, meter)| {
            let graph = stages::graph::<P>(&format!("relay-{number}"), arguments, meter);
            Ok(runtime.start(graph, options.clone())?)
        })
        .collect::<Result<Vec<Job>>>()?;
    let steady = watch(arguments, &meters, started);
    for job in &jobs {
        let state = job.wait();
        ensure!(state == JobState::Done, "a job ended as {state:?}");
    }
    let seconds = started.elapsed().as_secs_f64();
    let packets: u64 = meters.iter().map(|meter| meter.taken()).sum();
    let latencies = meter::latencies(&meters)?;
    let microseconds = |quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1e3;
    let digest = meters.iter().fold(0_u64, |sum, meter| sum.wrapping_add(meter.digest()));
    let expected =
        meters.iter().fold(0_u64, |sum, meter| sum.wrapping_add(packets::digest_of_all::<P>(meter.made())));
    println!(
        "packets={packets} seconds={seconds:.3} rate={:.0} p50_us={:.1} p99_us={:.1} p999_us={:.1} max_us={:.1} allocations_per_packet={steady:.6} digest={digest:016x} expected_digest={expected:016x}",
        packets as f64 / seconds,
        microseconds(0.5),
        microseconds(0.99),
        microseconds(0.999),
        latencies.max() as f64 / 1e3,
    );
    Ok(())
}

/// Follows a run: sets the sinks' sleep, prints a line per interval where they sleep, and gives the allocations
/// per packet in the second half, when all buffers have been round once.
fn watch(arguments: &Arguments, meters: &[Arc<Meter>], started: Instant) -> f64 {
    let half = Duration::from_secs_f64(arguments.seconds / 2.0);
    let taken = || meters.iter().map(|meter| meter.taken()).sum::<u64>();
    let mut at_half = None;
    let (mut made_before, mut taken_before, mut before) = (0, 0, started);
    loop {
        let elapsed = started.elapsed();
        if elapsed.as_secs_f64() >= arguments.seconds {
            break;
        }
        if elapsed >= half {
            at_half.get_or_insert_with(|| (allocations::count(), taken()));
        }
        if arguments.sink_sleep.is_empty() {
            thread::sleep(Duration::from_millis(10));
            continue;
        }
        let step = (elapsed.as_secs_f64() / arguments.seconds * arguments.sink_sleep.len() as f64) as usize;
        let sleep = arguments.sink_sleep[step.min(arguments.sink_sleep.len() - 1)];
        meters.iter().for_each(|meter| meter.set_sleep(Duration::from_millis(sleep)));
        thread::sleep(LOOK);
        let (made, taken, now) =
            (meters.iter().map(|meter| meter.made()).sum::<u64>(), taken(), Instant::now());
        let span = (now - before).as_secs_f64();
        println!(
            "at={:.2} sleep_ms={sleep} source_rate={:.0} sink_rate={:.0} resident={}",
            started.elapsed().as_secs_f64(),
            (made - made_before) as f64 / span,
            (taken - taken_before) as f64 / span,
            meter::resident_bytes(),
        );
        (made_before, taken_before, before) = (made, taken, now);
    }
    meters.iter().for_each(|meter| meter.set_sleep(Duration::ZERO));
    let (allocations, packets) = at_half.unwrap_or_default();
    let packets = taken().saturating_sub(packets).max(1);
    (allocations::count() - allocations) as f64 / packets as f64
}
