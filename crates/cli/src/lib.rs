//! The `thalweg` command as a library: a program with plug-ins of its own is the whole command, every verb of it.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     // `.source(…)`, `.format(…)`, `.operator(…)`, `.sink(…)` add plug-ins.
//!     thalweg::main_with(thalweg::NodeOptions::default())
//! }
//! ```
//!
//! Features, all of them in the default build: `http` (`--listen`), `tables` (the sink `table`), `sql` (`thalweg sql` and
//! `POST /v1/sql`), `postgres` and `influxdb` (sinks), `remote-state` (the back ends `redis` and `hbase`). A build that
//! leaves one out says so by name where it is asked for.

#![deny(unsafe_code)]

mod args;
mod check;
#[cfg(any(feature = "cluster", feature = "sql"))]
mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod generate;
mod help;
mod inspect;
#[cfg_attr(not(feature = "http"), path = "no_http.rs")]
mod listen;
#[cfg(feature = "cluster")]
mod nodes;
mod output;
mod progress;
mod run;
mod signals;
#[cfg_attr(not(feature = "sql"), path = "no_sql.rs")]
mod sql;
mod table;

use std::process::ExitCode;

use clap::Parser;

pub use thalweg_node::NodeOptions;

#[cfg(feature = "cluster")]
use args::Cluster;
use args::{Args, Verb};
use output::Failure;

/// Parses the arguments of the process and runs their command. `options` are the plug-ins that job files may name, and
/// the defaults of a node.
///
/// Returns the exit code: 0 done, 1 failed while running, 2 wrong usage or job file, 3 data damaged.
pub fn main_with(options: NodeOptions) -> ExitCode {
    // clap prints usage mistakes itself, and ends with 2; `--help` and `--version` end with 0.
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    start_log();
    if let Err(error) = options.check_plugins() {
        return Failure::at_start(&error).tell();
    }
    let outcome = match args.verb {
        Verb::Run(run) => run::run(run, options),
        Verb::Check(job) => check::check(&job, &options),
        Verb::Explain(explain) => check::explain(&explain, &options),
        Verb::Schema => check::schema(&options),
        Verb::Gen(generate) => generate::generate(&generate, &options),
        Verb::Inspect(args) => inspect::inspect(&args),
        Verb::Verify(args) => inspect::verify(&args),
        Verb::Sql(args) => sql::sql(&args),
        Verb::Table(args) => table::table(&args),
        #[cfg(feature = "cluster")]
        Verb::Nodes(args) => nodes::list(&args),
        #[cfg(feature = "cluster")]
        Verb::Cluster(Cluster::Explain(args)) => nodes::explain(&args),
        #[cfg(feature = "cluster")]
        Verb::Drain(args) => nodes::drain(&args),
        Verb::Help(args) => help::help(&args, &options),
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
