//! Benchmarks: each runs what it compares in one go and writes what it found, with machine, commit and command.
//!
//! * [`windows`]: exact windows over a file, compared with Flink and DuckDB.
//! * [`latency`]: one record by HTTP, all answers back, under open-loop load.
//! * [`recovery`]: more groups than memory, a kill, and the first answer after it.
//! * [`relay`]: small packets through three stages.
//! * [`journal`]: the journal compared with `fio`, the stages of a record's way, and a disk that is too slow.
//! * [`checkpoint`]: back ends of keyed state, compared with RocksDB and fjall.
//! * [`sflow`]: packet samples in memory, over UDP compared with goflow2, and with joins.
//! * [`joins`]: the tables that flows are joined with.
//! * [`topn`]: pairs of hosts and networks by SQL, compared with DuckDB on the same files.
//! * [`freshness`]: from a datagram to its rows in an answer of SQL.
//! * [`memory`]: peak resident memory, compared with the ceilings of a job.

mod checkpoint;
mod duckdb;
mod figures;
mod fio;
mod freshness;
mod joins;
mod journal;
mod latency;
mod machine;
mod memory;
mod plot;
mod process;
mod recovery;
mod relay;
mod report;
mod server;
mod sflow;
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
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Exact windows over a file, compared with Flink SQL and DuckDB
    Windows(windows::Options),
    /// Open-loop HTTP load, corrected for coordinated omission
    Latency(latency::Options),
    /// More groups than memory, a kill, and the first answer after it
    Recovery(recovery::Options),
    /// Small packets through source, relay and sink
    Relay(relay::Options),
    /// The journal compared with fio, the stages of a record's way, and a slow disk
    Journal(journal::Options),
    /// Back ends of keyed state, compared with RocksDB and fjall
    Checkpoint(checkpoint::Options),
    /// Packet samples in memory, over UDP compared with goflow2, and with joins
    Sflow(sflow::Options),
    /// The tables that flows are joined with
    Joins(joins::Options),
    /// Pairs of hosts and networks by SQL, compared with DuckDB on the same files
    Topn(topn::Options),
    /// From a datagram that is sent to its rows in an answer of SQL
    Freshness(freshness::Options),
    /// Peak resident memory, compared with the ceilings of a job
    Memory(memory::Options),
}

/// Runs a benchmark and writes its results.
///
/// # Errors
/// What kept it from being measured, and answers that are not those that were expected.
pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.bench {
        Bench::Windows(options) => windows::run(options)?,
        Bench::Latency(options) => latency::run(options)?,
        Bench::Recovery(options) => recovery::run(options)?,
        Bench::Relay(options) => relay::run(options)?,
        Bench::Journal(options) => journal::run(options)?,
        Bench::Checkpoint(options) => checkpoint::run(options)?,
        Bench::Sflow(options) => sflow::run(options)?,
        Bench::Joins(options) => joins::run(options)?,
        Bench::Topn(options) => topn::run(options)?,
        Bench::Freshness(options) => freshness::run(options)?,
        Bench::Memory(options) => memory::run(options)?,
    }
    Ok(ExitCode::SUCCESS)
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
