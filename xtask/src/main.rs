//! What a developer runs: `cargo xtask test` for every suite, `cargo xtask bench NAME` for a benchmark.

#![deny(unsafe_code)]

mod bench;
mod project;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the suites; the last line printed is `N passed, N failed, N skipped`
    Test(test::Options),
    /// Run a benchmark and write its results to docs/benchmarks/results
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Bench(bench) => bench::run(&bench),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
