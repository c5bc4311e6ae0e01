//! The journal compared with `fio` on one disk, Chimera's table II stage by stage, and its figure 8: a disk that is too
//! slow (Lau, Maresca, *Chimera*, 2017, section V).
//!
//! Logs and stages are driven by `bench/journal`, one configuration per run; the whole engine by our binary. This
//! module chooses the configurations and writes the results.

mod append;
mod slow_disk;
mod smoke;
mod stages;
mod throttled;

use std::path::PathBuf;

use anyhow::Result;

use super::figures::Figures;
use super::report::Report;
use super::{pinned, process};
use thalweg_harness::project::{self, Profile};

pub(crate) use smoke::smoke;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// One short run of each: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Runs of each configuration, ours and fio's in turn; the median counts
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = ["append", "stages", "throttled"])]
    only: Vec<String>,
    /// A folder on the disk that is to be measured; the build folder if there is none
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    fn repeat(&self) -> usize {
        if self.quick { 1 } else { self.repeat.max(1) }
    }

    fn folder(&self) -> Result<PathBuf> {
        self.dir.clone().map_or_else(|| project::scratch("bench-journal"), Ok)
    }
}

/// Cores of all runs.
const CORES: &str = "0,1";

/// Bytes of a message with its line end, in `bench/journal`.
const MESSAGE: f64 = 500.0;

/// The program that drives logs and stages.
struct Driver {
    binary: PathBuf,
}

impl Driver {
    fn build(profile: Profile) -> Result<Self> {
        Ok(Self { binary: project::build("thalweg-bench-journal", "journal", profile)? })
    }

    fn run(&self, arguments: &[&str]) -> Result<Figures> {
        let mut command = pinned(Some(CORES), &self.binary);
        command.args(arguments);
        process::run(command)?.figures("rate")
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let driver = Driver::build(Profile::Release)?;
    let binary = if options.wants("stages") || options.wants("throttled") {
        Some(project::thalweg(Profile::Release)?)
    } else {
        None
    };
    let mut report = Report::new("journal", "The journal").of_parts(&options.only);
    if options.wants("append") {
        append::beside_fio(options, &driver, &mut report)?;
    }
    if options.wants("stages") {
        stages::table(options, &driver, binary.as_deref(), &mut report)?;
    }
    if let Some(binary) = binary.filter(|_| options.wants("throttled")) {
        throttled::figure(options, &driver, &binary, &mut report)?;
    }
    report.finish(options.quick)
}
