//! The same features in DuckDB, Flink and dbsp (`bench/peers`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::totals::Totals;
use crate::{duckdb, flink, pinned, process};
use thalweg_harness::project;

/// What a system came to on a file.
pub(super) struct Speed {
    pub(super) seconds: f64,
    pub(super) rate: f64,
    pub(super) cpu: Duration,
    pub(super) peak_bytes: u64,
    pub(super) totals: Totals,
}

/// A system, and how it is run on a file.
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) run: fn(&Path, &str) -> Result<Speed>,
}

pub(super) const PEERS: [Peer; 3] = [
    Peer { name: "DuckDB, batch", run: duckdb },
    Peer { name: "Flink SQL on the heap", run: flink },
    Peer { name: "dbsp", run: dbsp },
];

fn peers() -> PathBuf {
    project::root().join("bench/peers")
}

fn duckdb(input: &Path, cores: &str) -> Result<Speed> {
    let mut command = pinned(Some(cores), &duckdb::python()?);
    command.arg(duckdb::scripts().join("features.py")).arg("--input").arg(input).args(["--threads", "2"]);
    speed(command)
}

fn flink(input: &Path, cores: &str) -> Result<Speed> {
    let mut command = flink::script(cores)?;
    command.arg("features").arg("--input").arg(input).args(["--parallelism", "2"]);
    speed(command)
}

/// A project of its own, built where it is not there yet.
fn dbsp(input: &Path, cores: &str) -> Result<Speed> {
    let target = project::scratch("peers/dbsp")?;
    let mut build = project::cargo();
    build.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]);
    build.arg(peers().join("dbsp/Cargo.toml")).arg("--target-dir").arg(&target);
    process::run(build).context("build bench/peers/dbsp")?;
    let mut command = pinned(Some(cores), &target.join("release/dbsp-features"));
    command.arg(input);
    speed(command)
}

fn speed(command: Command) -> Result<Speed> {
    let finished = process::run(command)?;
    let figures = finished.figures("peer")?;
    Ok(Speed {
        seconds: figures.number("seconds")?,
        rate: figures.number("rate")?,
        cpu: finished.usage.cpu,
        peak_bytes: finished.usage.peak_bytes,
        totals: Totals::of_figures(&figures)?,
    })
}
