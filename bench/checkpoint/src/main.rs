//! Our back ends under the checkpoint workload: one configuration per run, one line of figures.

#![deny(unsafe_code)]

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use thalweg_bench_checkpoint::{backend, rebuild, run};

#[derive(Parser)]
#[command(name = "checkpoint", about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes and recovery reads on one store
    Run(run::Options),
    /// Leave a state of the `indexed` back end
    Leave(rebuild::Options),
    /// Open what was left
    Open {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Run(options) => run::run(&options, backend::KINDS),
        Command::Leave(options) => rebuild::leave(&options),
        Command::Open { dir, keys } => rebuild::open(&dir, keys),
    }
}
