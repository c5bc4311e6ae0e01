//! Benchmarks: each runs what it compares in one go and writes what it found, with machine, commit and command.
//!
//! A benchmark runs `thalweg` on a job file that a user could write, with a data directory, unless its name begins with
//! `part-`: these measure a part of the program by itself.
//!
//! * [`windows`]: exact windows over a file, compared with Flink and DuckDB.
//! * [`features`]: twenty features of a payment, compared with DuckDB, Flink and dbsp.
//! * [`latency`]: one record by HTTP, all answers back, under open-loop load; by length and by number of windows.
//! * [`large_group`]: a group with millions of values.
//! * [`recovery`]: more groups than memory, a kill, and the first answer after it.
//! * [`kafka`]: exact windows from topic to topic, compared with Kafka Streams and Flink.
//! * [`cluster`]: one job on several nodes, and what clients see of their faults.
//! * [`relay`]: a job that computes nothing.
//! * [`sflow`]: packet samples over UDP compared with goflow2, and a day of an exchange.
//! * [`freshness`]: from a datagram to its rows in an answer of SQL.
//! * [`topn`]: pairs of networks and of names by SQL over HTTP, compared with DuckDB on the same files.
//! * [`memory`]: peak resident memory, compared with the ceilings of a job.
//! * [`slow_disk`]: a disk that is too slow for its job.
//! * [`part_journal`]: the journal, compared with `fio`.
//! * [`part_state`]: back ends of keyed state, compared with RocksDB and fjall.
//! * [`part_joins`]: the tables that flows are joined with.
//! * [`all`]: all of them.

mod all;
mod cluster;
mod counters;
mod duckdb;
mod exchange;
mod features;
mod figures;
mod fio;
mod flink;
mod freshness;
mod job;
mod kafka;
mod large_group;
mod latency;
mod load;
mod machine;
mod markers;
mod memory;
mod part_joins;
mod part_journal;
mod part_state;
mod plot;
mod process;
mod recovery;
mod relay;
mod report;
mod server;
mod sflow;
mod slow_disk;
mod stalls;
mod suite;
mod topn;
mod usage;
mod windows;

use std::process::{Command, ExitCode};

use anyhow::Result;

use thalweg_harness::project;

pub use self::suite::suite;

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Every benchmark, with all result files made anew
    All(all::Options),
    #[command(flatten)]
    One(Bench),
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Exact windows over a file, compared with Flink SQL and DuckDB
    Windows(windows::Options),
    /// Twenty features of a payment, with a data directory and without, compared with DuckDB, Flink and dbsp
    Features(features::Options),
    /// Open-loop HTTP load, corrected for coordinated omission: by rate, by length and by number of windows
    Latency(latency::Options),
    /// One group with millions of values, compared with the same values over many groups
    LargeGroup(large_group::Options),
    /// More groups than memory, a kill, and the first answer after it
    Recovery(recovery::Options),
    /// Exact windows from a topic of Kafka to another, compared with Kafka Streams and Flink SQL; latency by rate
    Kafka(kafka::Options),
    /// One job on several nodes: records a second, latency of a stage more, faults, a node without its data
    Cluster(cluster::Options),
    /// Records through source, relay and sink
    Relay(relay::Options),
    /// Packet samples over UDP compared with goflow2, and a day of an exchange
    Sflow(sflow::Options),
    /// From a datagram that is sent to its rows in an answer of SQL
    Freshness(freshness::Options),
    /// Pairs of networks and of names by SQL over HTTP, compared with DuckDB on the same files
    Topn(topn::Options),
    /// Peak resident memory, compared with the ceilings of a job
    Memory(memory::Options),
    /// A job on a disk that is too slow for its source
    SlowDisk(slow_disk::Options),
    /// The journal by itself, compared with fio
    PartJournal(part_journal::Options),
    /// Back ends of keyed state by themselves, compared with RocksDB and fjall
    PartState(part_state::Options),
    /// The tables that flows are joined with, by themselves
    PartJoins(part_joins::Options),
}

/// Runs benchmarks and writes their results.
///
/// # Errors
/// What kept it from being measured, and answers that are not those that were expected.
pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::All(options) => all::run(options),
        What::One(bench) => run_one(bench).map(|()| ExitCode::SUCCESS),
    }
}

fn run_one(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Windows(options) => windows::run(options),
        Bench::Features(options) => features::run(options),
        Bench::Latency(options) => latency::run(options),
        Bench::LargeGroup(options) => large_group::run(options),
        Bench::Recovery(options) => recovery::run(options),
        Bench::Kafka(options) => kafka::run(options),
        Bench::Cluster(options) => cluster::run(options),
        Bench::Relay(options) => relay::run(options),
        Bench::Sflow(options) => sflow::run(options),
        Bench::Freshness(options) => freshness::run(options),
        Bench::Topn(options) => topn::run(options),
        Bench::Memory(options) => memory::run(options),
        Bench::SlowDisk(options) => slow_disk::run(options),
        Bench::PartJournal(options) => part_journal::run(options),
        Bench::PartState(options) => part_state::run(options),
        Bench::PartJoins(options) => part_joins::run(options),
    }
}

/// A command bound to some cores, such as `0` or `0,1`, where the machine can.
fn pinned(cores: Option<&str>, program: &std::path::Path) -> Command {
    match cores {
        Some(cores) if project::has("taskset") => {
            let mut command = Command::new("taskset");
            command.args(["-c", cores]).arg(program);
            command
        }
        _ => Command::new(program),
    }
}

/// The least and the largest of some measurements, as `1.9 to 2.4`.
fn spread(values: &[f64], print: impl Fn(f64) -> String) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} to {}", print(least), print(most))
}

/// The middle one of some measurements; the upper of two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
