//! What a developer runs: `cargo xtask test` for every suite, `cargo xtask bench NAME` for a benchmark,
//! `cargo xtask crash` for kills and power cuts, `cargo xtask faults` for disks that fail, `cargo xtask hostile`
//! for a node under attack; `cargo xtask dist` for the files of a release.
//!
//! Only the list of suites and the packages are here. `testing/crash`, `testing/hostile` and `bench/runner` have what
//! they run, and `testing/harness` has what these share.

#![deny(unsafe_code)]

mod dist;
mod fixture;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use thalweg_bench as bench;
use thalweg_crash::{self as crash, faults};
use thalweg_hostile as hostile;

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
    Bench(bench::Options),
    /// Kill the program again and again, and recount what came out
    Crash(crash::Options),
    /// Make the files of a release: archive, Debian package, wheel and container, of a static program
    Dist(dist::Options),
    /// Run the program into full, broken and forbidden disks
    Faults(faults::Options),
    /// Write a data directory as today's formats have it, for the tests of later ones
    Fixture(fixture::Options),
    /// Attack a node from all sides, during a live job
    Hostile(hostile::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Crash(options) => crash::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Faults(options) => faults::run(&options),
        Command::Fixture(options) => fixture::run(&options),
        Command::Hostile(options) => hostile::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
