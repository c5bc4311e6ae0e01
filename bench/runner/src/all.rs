//! All benchmarks, one after the other: every result file anew, of one commit on one machine in one session.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;

use super::{Bench, report};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A small version of everything: nothing is removed or written
    #[arg(long)]
    quick: bool,
    /// Leave the other systems out
    #[arg(long)]
    no_peers: bool,
}

/// In the order in which they run. On two cores all of them take less than half an hour, once everything is built.
const COMMANDS: [&str; 16] = [
    "windows",
    "features",
    "latency",
    "large-group",
    "recovery",
    "kafka",
    "cluster",
    "relay",
    "sflow",
    "freshness",
    "topn",
    "memory",
    "slow-disk",
    "part-journal",
    "part-state --keys 10000 --stores indexed,files,rocksdb,fjall --only speed",
    "part-joins",
];

/// Of these, the commands that leave other systems out where they are asked to.
const WITH_PEERS: [&str; 4] = ["windows", "features", "kafka", "part-state"];

#[derive(clap::Parser)]
struct Line {
    #[command(subcommand)]
    bench: Bench,
}

/// Old result files go first. One that fails is named in the end, and the others run all the same.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !options.quick {
        report::remove_all()?;
    }
    let begun = Instant::now();
    let mut failed = Vec::new();
    let mut took = Vec::new();
    for command in COMMANDS {
        let mut words: Vec<&str> = std::iter::once("bench").chain(command.split(' ')).collect();
        if options.quick {
            words.push("--quick");
        }
        if options.no_peers && WITH_PEERS.contains(&words[1]) {
            words.push("--no-peers");
        }
        let started = Instant::now();
        let line = Line::try_parse_from(&words).with_context(|| format!("read {command:?}"))?;
        if let Err(error) = super::run_one(&line.bench) {
            println!("{command}: {error:#}\n");
            failed.push(words[1].to_owned());
        }
        took.push(format!("{} {:.0} s", words[1], started.elapsed().as_secs_f64()));
    }
    println!("{}; {:.1} minutes in all", took.join(", "), begun.elapsed().as_secs_f64() / 60.0);
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("failed: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

#[test]
fn every_command_is_one() {
    for command in COMMANDS {
        let mut words: Vec<&str> = std::iter::once("bench").chain(command.split(' ')).collect();
        words.push("--quick");
        if WITH_PEERS.contains(&words[1]) {
            words.push("--no-peers");
        }
        if let Err(error) = Line::try_parse_from(&words) {
            panic!("{command}: {error}");
        }
    }
}
