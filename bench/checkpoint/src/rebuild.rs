//! How long the `indexed` back end takes to have its index again: one process leaves a state, others open it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use thalweg_state::indexed::{Indexed, IndexedOptions};
use thalweg_state::{Backend, Changes, Version};
use thalweg_storage::RealFs;

use crate::backend::IDENTITY;
use crate::run::PER_CYCLE;
use crate::{Operation, Workload};

/// How a state is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum End {
    /// In order.
    Close,
    /// In the middle of a cycle, without another word.
    Crash,
    /// In order, but the index files are lost.
    NoIndex,
}

/// What is left behind.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// A folder on the disk that is to be measured; it is not there yet
    #[arg(long)]
    pub dir: PathBuf,
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes of a value; with its key S4's entries of some 70 bytes
    #[arg(long, default_value_t = 54)]
    pub value_bytes: usize,
    /// Writes for each key behind the first
    #[arg(long, default_value_t = 2)]
    pub overwrites: u64,
    #[arg(long, value_enum)]
    pub end: End,
}

/// Writes a state, ends as asked, and leaves the version beside it for [`open`].
///
/// # Errors
/// What the back end says.
pub fn leave(options: &Options) -> Result<()> {
    let backend =
        Indexed::open(Arc::new(RealFs), &state(&options.dir), IDENTITY, IndexedOptions::default(), None)?;
    let mut workload = Workload::new(1, options.keys, options.value_bytes);
    let (mut changes, mut value, mut cycle) = (Changes::new(), Vec::new(), 0);
    let total = options.keys * (1 + options.overwrites);
    for write in 0..total {
        let key = if write < options.keys { write } else { next_key(&mut workload) };
        workload.value(write, &mut value);
        changes.push(&Workload::key(key), &value);
        if changes.len() as u64 == PER_CYCLE || write + 1 == total {
            cycle += 1;
            backend.write(cycle, &changes)?;
            let version = backend.prepare(cycle)?;
            std::fs::write(version_file(&options.dir), version.as_bytes())?;
            backend.committed(cycle)?;
            changes.clear();
        }
    }
    match options.end {
        End::Close => backend.close()?,
        End::Crash => {
            // A cycle that no version names.
            for _ in 0..PER_CYCLE / 2 {
                changes.push(&Workload::key(next_key(&mut workload)), &value);
            }
            backend.write(cycle + 1, &changes)?;
        }
        End::NoIndex => {
            backend.close()?;
            for entry in std::fs::read_dir(state(&options.dir))? {
                let path = entry?.path();
                if path.extension().is_some_and(|extension| extension == "thx") {
                    std::fs::remove_file(path)?;
                }
            }
        }
    }
    println!("left={} writes={total} cycles={cycle}", options.keys);
    // Nothing else is written, not even by what a drop would do.
    std::process::exit(0)
}

/// Opens what [`leave`] has left, prints `open_ms=… keys=… index_bytes=…` and changes nothing beyond what opening does.
///
/// # Errors
/// What the back end says; where keys are missing.
pub fn open(dir: &Path, keys: u64) -> Result<()> {
    let version = std::fs::read(version_file(dir)).context("read the version")?;
    let version = Version::from_bytes(version);
    let started = Instant::now();
    let backend =
        Indexed::open(Arc::new(RealFs), &state(dir), IDENTITY, IndexedOptions::default(), Some(&version))?;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let stats = backend.stats();
    ensure!(stats.keys == keys, "{} keys are there, expected {keys}", stats.keys);
    println!(
        "open_ms={milliseconds:.2} keys={} index_bytes={} disk_bytes={}",
        stats.keys, stats.index_bytes, stats.disk_bytes
    );
    Ok(())
}

fn next_key(workload: &mut Workload) -> u64 {
    match workload.operation() {
        Operation::Write(key) | Operation::Read(key) => key,
    }
}

fn state(dir: &Path) -> PathBuf {
    dir.join("state")
}

fn version_file(dir: &Path) -> PathBuf {
    dir.join("version")
}
