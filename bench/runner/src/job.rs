//! Runs of a job from its start to its end, with a data directory of their own and without.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{median, pinned, process};

/// Cores of a run, and as many workers.
const CORES: &str = "0,1";

/// What the program's last lines and the kernel say of a run.
pub(super) struct Run {
    pub(super) seconds: f64,
    pub(super) rate: f64,
    pub(super) answers: f64,
    pub(super) rejects: f64,
    pub(super) cpu: Duration,
    pub(super) peak_bytes: u64,
    /// Of a sink that digests.
    pub(super) digest: Option<String>,
}

impl Run {
    /// Each figure's median; runs of one job have one digest.
    pub(super) fn median(runs: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(figure).collect());
        Self {
            seconds: of(|run| run.seconds),
            rate: of(|run| run.rate),
            answers: of(|run| run.answers),
            rejects: of(|run| run.rejects),
            cpu: Duration::from_secs_f64(of(|run| run.cpu.as_secs_f64())),
            peak_bytes: of(|run| run.peak_bytes as f64) as u64,
            digest: runs.first().and_then(|run| run.digest.clone()),
        }
    }
}

/// Runs a job file that is written into `folder`.
pub(super) fn run(binary: &Path, job: &Value, folder: &Path, has_data_dir: bool) -> Result<Run> {
    let path = tempfile::Builder::new().suffix(".json").tempfile_in(folder)?.into_temp_path();
    std::fs::write(&path, format!("{job:#}\n")).context("write the job file")?;
    let mut command = pinned(Some(CORES), binary);
    command.arg("run").arg(&path).args(["--quiet", "--workers", "2"]);
    finish(command, folder, has_data_dir)
}

/// Runs a command `thalweg run`; if so, in a fresh data directory in `folder`.
pub(super) fn finish(mut command: Command, folder: &Path, has_data_dir: bool) -> Result<Run> {
    let data_dir = tempfile::tempdir_in(folder).context("make a data directory")?;
    if has_data_dir {
        command.arg("--data-dir").arg(data_dir.path().join("data"));
    }
    let finished = process::run(command)?;
    let figures = finished.figures("rate")?;
    let digest = finished.figures("digest").and_then(|figures| figures.text("digest").map(str::to_owned));
    Ok(Run {
        seconds: figures.number("seconds")?,
        rate: figures.number("rate")?,
        answers: figures.number("answers")?,
        rejects: figures.number("rejects")?,
        cpu: finished.usage.cpu,
        peak_bytes: finished.usage.peak_bytes,
        digest: digest.ok(),
    })
}

/// Medians of runs with a data directory and without, which took turns.
pub(super) struct Turns {
    pub(super) with: Run,
    pub(super) without: Run,
    /// Of their rates, the median over turns.
    pub(super) ratio: f64,
}

impl Turns {
    /// `run` is told whether there is a data directory; all runs have one digest.
    pub(super) fn take(repeat: usize, mut run: impl FnMut(bool) -> Result<Run>) -> Result<Self> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..repeat.max(1) {
            with.push(run(true)?);
            without.push(run(false)?);
        }
        let same = with.iter().chain(&without).all(|run| run.digest == with[0].digest);
        ensure!(same, "the digest differs between runs");
        let ratios = with.iter().zip(&without).map(|(with, without)| with.rate / without.rate).collect();
        Ok(Self { with: Run::median(&with), without: Run::median(&without), ratio: median(ratios) })
    }
}
