//! Our back ends as stores: what is put gathers into the changes of one cycle, and a sync is the end of the cycle.
//!
//! The commit record of a job names the versions of all its tasks at once, so it is no part of a back end's work; the
//! store `indexed+commit` writes one for each cycle all the same, to show what it adds to one task alone.

use std::sync::Arc;

use anyhow::{Context, Result};
use thalweg_state::memory::{Memory, MemoryDisk};
use thalweg_state::{Backend, Changes, Interrupt, registry};
use thalweg_state_remote::{Remote, Settings};
use thalweg_storage::{CommitLog, RealFs};

use crate::{Kind, Place, Store};

/// All of them.
pub const KINDS: &[Kind] = &[
    Kind { name: "indexed", open: |place| Ok(Box::new(Checkpoints::new(embedded("indexed", place)?))) },
    Kind { name: "indexed+commit", open: indexed_with_commits },
    Kind { name: "files", open: |place| Ok(Box::new(Checkpoints::new(embedded("files", place)?))) },
    Kind { name: "redis", open: |place| remote(thalweg_state_remote::Kind::Redis, place) },
    Kind { name: "hbase", open: |place| remote(thalweg_state_remote::Kind::Hbase, place) },
    Kind { name: "memory", open: |_| Ok(Box::new(Checkpoints::in_memory()?)) },
];

/// Tells the files of this task from those of others.
pub const IDENTITY: u64 = 1;

fn embedded(name: &str, place: &Place) -> Result<Box<dyn Backend>> {
    let place = registry::Place { fs: Arc::new(RealFs), dir: place.dir.clone(), identity: IDENTITY };
    Ok(registry::open(name, place, None)?)
}

/// A back end that has a server, which is told by its URL.
fn remote(kind: thalweg_state_remote::Kind, place: &Place) -> Result<Box<dyn Store>> {
    let url = place.url.as_deref().with_context(|| format!("{} needs --url", kind.name()))?;
    let settings = Settings::new(kind, url).map_err(|error| anyhow::anyhow!("{error}"))?;
    let place = registry::Place { fs: Arc::new(RealFs), dir: place.dir.clone(), identity: IDENTITY };
    let remote = Remote::connect(&settings, Interrupt::default())?;
    Ok(Box::new(Checkpoints::new(remote.open(&place, "bench/checkpoint/0", None)?)))
}

fn indexed_with_commits(place: &Place) -> Result<Box<dyn Store>> {
    let within = |name: &str| Place { dir: place.dir.join(name), url: None };
    let mut store = Checkpoints::new(embedded("indexed", &within("state"))?);
    store.commits = Some(CommitLog::open(Arc::new(RealFs), place.dir.join("commit.log"), IDENTITY)?.log);
    Ok(Box::new(store))
}

/// A back end and the cycle that gathers.
#[derive(Debug)]
struct Checkpoints {
    backend: Box<dyn Backend>,
    commits: Option<CommitLog>,
    is_in_memory: bool,
    cycle: u64,
    changes: Changes,
}

impl Checkpoints {
    fn new(backend: Box<dyn Backend>) -> Self {
        Self { backend, commits: None, is_in_memory: false, cycle: 1, changes: Changes::new() }
    }

    fn in_memory() -> Result<Self> {
        let memory = Memory::open(&MemoryDisk::new(), None)?;
        Ok(Self { is_in_memory: true, ..Self::new(Box::new(memory)) })
    }
}

impl Store for Checkpoints {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.changes.push(key, value);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.backend.write(self.cycle, &self.changes)?;
        let version = self.backend.prepare(self.cycle)?;
        if let Some(commits) = &mut self.commits {
            commits.append(version.as_bytes())?;
        }
        self.backend.committed(self.cycle)?;
        self.changes.clear();
        self.cycle += 1;
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.backend.get(key)?;
        let is_there = found.is_some();
        *value = found.unwrap_or_default();
        Ok(is_there)
    }

    fn index_bytes(&self) -> Option<u64> {
        Some(self.backend.stats().index_bytes)
    }

    fn bytes_elsewhere(&self) -> Option<u64> {
        self.is_in_memory.then(|| self.backend.stats().disk_bytes)
    }
}
