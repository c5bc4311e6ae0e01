//! A part by itself, not a job: the journal compared with `fio` on one disk.
//!
//! `bench/journal` drives the log, one configuration per run; this module chooses the configurations and writes the results.

mod append;
mod smoke;

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
    #[arg(long, default_value_t = 2)]
    repeat: usize,
    /// A folder on the disk that is to be measured; the build folder if there is none
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Options {
    fn repeat(&self) -> usize {
        if self.quick { 1 } else { self.repeat.max(1) }
    }

    fn folder(&self) -> Result<PathBuf> {
        self.dir.clone().map_or_else(|| project::scratch("bench-journal"), Ok)
    }
}

/// Cores of all runs.
const CORES: &str = "0,1";

/// The program that drives the log.
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
    let mut report = Report::new("part-journal", "The journal by itself");
    report.say("Blocks handed to the log as a source hands them over, in a program of its own: no records are decoded, and no job runs.");
    append::beside_fio(options, &driver, &mut report)?;
    report.finish(options.quick)
}
