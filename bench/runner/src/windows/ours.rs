//! Runs our own binary on jobs, and generates the files for them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::job::Job;
use crate::process::Finished;
use crate::{median, pinned, process};

/// What a configuration came to: medians of several runs, unless it says otherwise.
#[derive(Clone, Debug)]
pub(super) struct Speed {
    pub(super) seconds: f64,
    pub(super) rate: f64,
    pub(super) peak_bytes: u64,
    /// Processor time of a record, in microseconds; the start of the process is in it.
    pub(super) cpu: f64,
    /// None where nothing is committed.
    pub(super) markers: Option<Markers>,
    /// The same in all runs.
    pub(super) digest: Option<String>,
}

/// For how long a marker stopped a task, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Markers {
    /// Of 100, 99 were no longer.
    pub(super) p99: f64,
    pub(super) most: f64,
    /// The most processor time of one.
    pub(super) most_cpu: f64,
}

impl Markers {
    /// Of the last words of a run with a data directory.
    fn of(finished: &Finished) -> Result<Self> {
        let figures = finished.figures("marker_max_ms")?;
        Ok(Self {
            p99: figures.number("marker_p99_ms")?,
            most: figures.number("marker_max_ms")?,
            most_cpu: figures.number("marker_cpu_max_ms")?,
        })
    }

    /// Of several runs: the median, and the longest in any of them.
    fn among(runs: &[Self]) -> Option<Self> {
        let most = |figure: fn(&Self) -> f64| runs.iter().map(figure).reduce(f64::max);
        Some(Self {
            most: most(|run| run.most)?,
            most_cpu: most(|run| run.most_cpu)?,
            p99: median(runs.iter().map(|run| run.p99).collect()),
        })
    }
}

impl Speed {
    /// # Errors
    /// If there are no runs, or digests differ.
    pub(super) fn of(runs: &[Speed]) -> Result<Self> {
        let first = runs.first().context("at least one run")?;
        ensure!(runs.iter().all(|run| run.digest == first.digest), "the digest differs between equal runs");
        let markers: Vec<Markers> = runs.iter().filter_map(|run| run.markers).collect();
        Ok(Self {
            markers: Markers::among(&markers),
            seconds: median(runs.iter().map(|run| run.seconds).collect()),
            rate: median(runs.iter().map(|run| run.rate).collect()),
            peak_bytes: median(runs.iter().map(|run| run.peak_bytes as f64).collect()) as u64,
            cpu: median(runs.iter().map(|run| run.cpu).collect()),
            digest: first.digest.clone(),
        })
    }
}

/// Our binary and a folder for its files.
pub(crate) struct Ours {
    binary: PathBuf,
    folder: PathBuf,
}

impl Ours {
    pub(crate) fn new(binary: PathBuf, folder: PathBuf) -> Self {
        Self { binary, folder }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A CSV file of generated payments, made once.
    pub(crate) fn payments(&self, count: u64, more: &[&str]) -> Result<PathBuf> {
        let name = format!("payments-{count}{}.csv", more.concat().replace("--", "-"));
        let path = self.folder.join(name);
        if path.is_file() {
            return Ok(path);
        }
        let part = path.with_extension("part");
        let mut command = Command::new(&self.binary);
        command.args(["gen", "payments", "--seed", "1", "--fields", "4", "--format", "csv"]);
        command.args(["--count", &count.to_string()]).args(more);
        let file = File::create(&part).with_context(|| format!("create {}", part.display()))?;
        let described = process::describe(&command);
        let output = file.try_clone().with_context(|| format!("open {} again", part.display()))?;
        let status = command.stdin(Stdio::null()).stdout(output).status().context("start thalweg gen")?;
        ensure!(status.success(), "{described} ended with {status}");
        // The kernel's pending writes of the input must not disturb the measurement.
        file.sync_all().with_context(|| format!("sync {}", part.display()))?;
        fs::rename(&part, &path).with_context(|| format!("rename {}", part.display()))?;
        Ok(path)
    }

    /// Runs a job several times, each in a data directory of its own on the disk of the build folder.
    pub(super) fn measure(
        &self,
        job: &Job,
        cores: Option<&str>,
        workers: usize,
        repeat: usize,
    ) -> Result<Speed> {
        let runs = (0..repeat).map(|_| {
            let folder = tempfile::tempdir_in(&self.folder).context("make a data directory")?;
            self.run(job, cores, workers, Some(folder.path()))
        });
        Speed::of(&runs.collect::<Result<Vec<_>>>()?)
    }

    /// Runs a job once, without a data directory: nothing outlives the process.
    pub(super) fn measure_without_data_dir(
        &self,
        job: &Job,
        cores: Option<&str>,
        workers: usize,
    ) -> Result<Speed> {
        self.run(job, cores, workers, None)
    }

    fn run(&self, job: &Job, cores: Option<&str>, workers: usize, data_dir: Option<&Path>) -> Result<Speed> {
        let path = self.folder.join("job.json");
        fs::write(&path, job.text()).with_context(|| format!("write {}", path.display()))?;
        let mut command = pinned(cores, &self.binary);
        command.arg("run").arg(&path).args(["--workers", &workers.to_string()]);
        if let Some(data_dir) = data_dir {
            command.arg("--data-dir").arg(data_dir);
        }
        let finished = process::run(command)?;
        let figures = finished.figures("rate")?;
        let (records, rejects) = (figures.number("records")?, figures.number("rejects")?);
        ensure!(rejects == 0.0, "{rejects} records were rejected");
        Ok(Speed {
            seconds: figures.number("seconds")?,
            rate: figures.number("rate")?,
            peak_bytes: finished.usage.peak_bytes,
            cpu: finished.usage.cpu.as_secs_f64() * 1e6 / records.max(1.0),
            markers: data_dir.map(|_| Markers::of(&finished)).transpose()?,
            digest: finished
                .figures("digest")
                .and_then(|figures| figures.text("digest").map(str::to_owned))
                .ok(),
        })
    }
}
