//! What a killed engine has left on disk, read by its documented formats and not by its code.

mod commits;
mod order;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(super) use commits::Commit;
pub(super) use order::{Entry, Event};

/// All of it that the oracles look at.
pub(super) struct Found {
    /// The last commit; `None` before the first cycle.
    pub(super) commit: Option<Commit>,
    /// Entries of the order log, by their number in it.
    pub(super) order: BTreeMap<u64, Entry>,
    /// What is in each sink's file.
    pub(super) sinks: BTreeMap<String, Vec<u8>>,
}

impl Found {
    pub(super) fn read(job: &Path, sinks: &[(String, PathBuf)]) -> Result<Self> {
        let commit = commits::last(&job.join("commit.log"))?;
        let order = order::read(&job.join("order"))?;
        let content = |(name, path): &(String, PathBuf)| Ok((name.clone(), bytes(path)?));
        Ok(Self { commit, order, sinks: sinks.iter().map(content).collect::<Result<_>>()? })
    }

    /// Records of the order log after the last commit, which the next start has to follow.
    pub(super) fn to_follow(&self) -> u64 {
        let from = self.commit.as_ref().map_or(0, |commit| commit.order);
        let runs = self.order.range(from..).map(|(_, entry)| match entry.event {
            Event::Run { .. } => entry.count,
            Event::Tick(_) | Event::Other => 0,
        });
        runs.sum()
    }
}

/// A file's content; nothing where it is not there yet.
fn bytes(path: &Path) -> Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.with_context(|| format!("read {}", path.display())),
    }
}
