//! The `thalweg` command: stdout is data, stderr is talk.

mod args;
mod check;
mod generate;
mod help;
mod inspect;
mod listen;
mod output;
mod progress;
mod run;
mod signals;
mod sql;
mod table;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Verb};
use output::Failure;

fn main() -> ExitCode {
    // clap prints usage mistakes itself, and ends with 2; `--help` and `--version` end with 0.
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    start_log();
    let outcome = match args.verb {
        Verb::Run(run) => run::run(run),
        Verb::Check(job) => check::check(&job),
        Verb::Explain(explain) => check::explain(&explain),
        Verb::Schema => check::schema(),
        Verb::Gen(generate) => generate::generate(&generate),
        Verb::Inspect(args) => inspect::inspect(&args),
        Verb::Verify(args) => inspect::verify(&args),
        Verb::Sql(args) => sql::sql(&args),
        Verb::Table(args) => table::table(&args),
        Verb::Help(args) => help::help(&args),
        Verb::SqlWorker => sql::work(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}

/// Warnings and errors to stderr; `THALWEG_LOG` or `RUST_LOG` say otherwise (`info`, `thalweg_flow=debug`).
fn start_log() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("THALWEG_LOG")
        .or_else(|_| EnvFilter::try_from_default_env())
        .unwrap_or_else(|_| EnvFilter::new("warn"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(output::log_writer)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .try_init();
}

type Outcome = Result<(), Failure>;
