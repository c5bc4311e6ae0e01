//! The same work in Flink SQL and DuckDB (`bench/peers`).

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::ours::Speed;
use super::{ONE, TWO};
use crate::{duckdb, flink, pinned, process};

/// One system and what it came to, or why it could not be had.
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// Whether it is compared with ours on two cores.
    pub(super) two_cores: bool,
    /// How much faster we have to be.
    pub(super) asked: &'static str,
    pub(super) speed: Result<Speed>,
}

/// All of them on one file. Flink runs once: it takes minutes, and the distance is large.
pub(super) fn all(input: &Path, repeat: usize) -> Vec<Peer> {
    let peer = |name, two_cores, asked, speed| Peer { name, two_cores, asked, speed };
    vec![
        peer("Flink heap, one core", false, "≥ 50 ×", flink_heap(input)),
        peer("Flink heap, two cores", true, "–", sql(input, "heap", TWO, 2)),
        peer("Flink RocksDB, two cores", true, "≥ 100 ×", sql(input, "rocksdb", TWO, 2)),
        peer("DuckDB, two cores", true, "≥ 1 ×", duckdb(input, repeat)),
    ]
}

pub(super) fn flink_heap(input: &Path) -> Result<Speed> {
    sql(input, "heap", ONE, 1)
}

fn sql(input: &Path, backend: &str, cores: &str, parallelism: usize) -> Result<Speed> {
    let mut command = flink::script(cores)?;
    command.arg("--input").arg(input);
    command.args(["--backend", backend, "--parallelism", &parallelism.to_string()]);
    speed(command)
}

fn duckdb(input: &Path, repeat: usize) -> Result<Speed> {
    let python = duckdb::python()?;
    let run = || {
        let mut command = pinned(Some(TWO), &python);
        command.arg(duckdb::scripts().join("windows.py")).arg("--input").arg(input);
        command.args(["--threads", "2"]);
        speed(command)
    };
    Speed::of(&(0..repeat).map(|_| run()).collect::<Result<Vec<_>>>()?)
}

/// Compares a file of our answers with DuckDB's, row by row; the line that says so.
pub(super) fn verify(input: &Path, answers: &Path) -> Result<String> {
    let mut command = Command::new(duckdb::python()?);
    command.arg(duckdb::scripts().join("windows.py")).arg("--input").arg(input);
    command.arg("--verify-answers").arg(answers);
    Ok(process::run(command)?.stdout)
}

fn speed(command: Command) -> Result<Speed> {
    let finished = process::run(command)?;
    let figures = finished.figures("peer")?;
    Ok(Speed {
        seconds: figures.number("seconds")?,
        rate: figures.number("rate")?,
        peak_bytes: finished.usage.peak_bytes,
        cpu: finished.usage.cpu.as_secs_f64() * 1e6 / figures.number("records")?.max(1.0),
        markers: None,
        digest: figures.text("digest").map(str::to_owned).ok(),
    })
}
