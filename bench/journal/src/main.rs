//! Logs as the engine writes them, and the stages of a record's way: one configuration per run, one line of figures.
//!
//! * [`append`]: blocks through a [`thalweg_storage::log::LogHandle`], as the node's journal appends them.
//! * [`stage`]: messages through one stage of the engine, or through its links.
//! * [`messages`]: what the messages are.
//!
//! `cargo xtask bench journal` chooses the configurations, runs `fio` beside them and writes what comes out.

#![deny(unsafe_code)]

mod append;
mod counting;
mod links;
mod messages;
mod stage;

use std::io::{BufWriter, Write as _};

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
    /// Send messages through one stage
    Stage(stage::Options),
    /// Write messages to standard output
    Messages {
        #[arg(long)]
        count: u64,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Append(options) => append::run(&options),
        Command::Stage(options) => stage::run(&options),
        Command::Messages { count } => {
            let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
            let mut line = Vec::new();
            for number in 0..count {
                line.clear();
                messages::write(number, &mut line);
                out.write_all(&line)?;
            }
            Ok(out.flush()?)
        }
    }
}
