//! Logs as the engine writes them: one configuration per run, one line of figures.
//!
//! * [`append`]: blocks through a [`thalweg_storage::log::LogHandle`], as the node's journal appends them.
//!
//! `cargo xtask bench part-journal` chooses the configurations, runs `fio` beside them and writes what comes out.

#![deny(unsafe_code)]

mod append;
mod counting;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "journal", about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Append to a journal
    Append(append::Options),
}

fn main() -> Result<()> {
    let Command::Append(options) = Arguments::parse().command;
    append::run(&options)
}
