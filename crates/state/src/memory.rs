//! State in memory, for tests of the crates above: an instance dies in a crash, its [`MemoryDisk`] does not.
//!
//! Per key the disk holds the values of several cycles, the newest committed one and those after it; opening with
//! a version drops newer values.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cycles::Cycles;
use crate::{Backend, BackendStats, Changes, StateError, Version, Visit};

/// What outlives an instance; clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<Image>>);

/// A value with its cycle, of several oldest first; `None` is a tombstone.
type Item = (u64, Option<Vec<u8>>);

#[derive(Debug, Default)]
struct Image {
    keys: HashMap<Vec<u8>, Vec<Item>>,
    /// Opened so far: an instance of before is dead.
    generation: u64,
}

/// A back end in memory.
#[derive(Debug)]
pub struct Memory {
    disk: MemoryDisk,
    generation: u64,
    /// Locked for the length of one call, always before the image.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cycles: Cycles,
    reads: u64,
    writes: u64,
}

impl MemoryDisk {
    pub fn new() -> Self {
        Self::default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Opens what `version` names and drops the rest.
    ///
    /// # Errors
    /// `Version` where the version is of another back end.
    pub fn open(disk: &MemoryDisk, version: Option<&Version>) -> Result<Self, StateError> {
        let cycle = match version.map(|version| <[u8; 8]>::try_from(version.as_bytes())) {
            None => None,
            Some(Ok(bytes)) => Some(u64::from_le_bytes(bytes)),
            Some(Err(_)) => {
                return Err(StateError::Version {
                    dir: "memory".into(),
                    what: "length",
                    expected: "8 bytes".to_owned(),
                    got: format!("{version:?}"),
                });
            }
        };
        let mut image = lock(&disk.0);
        image.generation += 1;
        image.keys.retain(|_, values| {
            values.retain(|(written, _)| Some(*written) <= cycle);
            !values.is_empty()
        });
        let generation = image.generation;
        drop(image);
        let state = Mutex::new(State { cycles: Cycles::at(cycle), ..State::default() });
        Ok(Self { disk: disk.clone(), generation, state })
    }

    fn image(&self) -> Result<MutexGuard<'_, Image>, StateError> {
        let image = lock(&self.disk.0);
        if image.generation != self.generation {
            let reason = "it was opened again".to_owned();
            return Err(StateError::Poisoned { dir: Path::new("memory").to_owned(), reason });
        }
        Ok(image)
    }
}

impl Backend for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        lock(&self.state).reads += 1;
        Ok(self.image()?.keys.get(key).and_then(|values| values.last()?.1.clone()))
    }

    fn write(&self, cycle: u64, changes: &Changes) -> Result<(), StateError> {
        let mut state = lock(&self.state);
        state.cycles.check_write(cycle)?;
        let mut image = self.image()?;
        for change in changes {
            let values = image.keys.entry(change.key.to_vec()).or_default();
            values.pop_if(|(written, _)| *written == cycle);
            values.push((cycle, change.value.map(<[u8]>::to_vec)));
        }
        state.cycles.wrote(cycle);
        state.writes += changes.len() as u64;
        Ok(())
    }

    fn prepare(&self, cycle: u64) -> Result<Version, StateError> {
        let mut state = lock(&self.state);
        state.cycles.check_prepare(cycle)?;
        drop(self.image()?);
        state.cycles.did_prepare(cycle);
        Ok(Version::from_bytes(cycle.to_le_bytes()))
    }

    fn committed(&self, cycle: u64) -> Result<(), StateError> {
        let mut state = lock(&self.state);
        state.cycles.check_committed(cycle)?;
        self.image()?.keys.retain(|_, values| {
            let newest = values.iter().rposition(|(written, _)| *written <= cycle);
            values.drain(..newest.unwrap_or(0));
            !(values.len() == 1 && values[0].0 <= cycle && values[0].1.is_none())
        });
        state.cycles.did_commit(cycle);
        Ok(())
    }

    fn scan(&self, visit: &mut Visit<'_>) -> Result<(), StateError> {
        let live: Vec<_> = {
            let image = self.image()?;
            let newest = |values: &Vec<Item>| values.last()?.1.clone();
            image.keys.iter().filter_map(|(key, values)| Some((key.clone(), newest(values)?))).collect()
        };
        let _ = live.iter().try_for_each(|(key, value)| visit(key, value));
        Ok(())
    }

    fn stats(&self) -> BackendStats {
        let state = lock(&self.state);
        let image = lock(&self.disk.0);
        let mut stats = BackendStats { reads: state.reads, writes: state.writes, ..BackendStats::default() };
        for (key, values) in &image.keys {
            let bytes = |value: &Option<Vec<u8>>| (key.len() + value.as_ref().map_or(0, Vec::len)) as u64;
            stats.disk_bytes += values.iter().map(|(_, value)| bytes(value)).sum::<u64>();
            if let Some((_, value @ Some(_))) = values.last() {
                stats.keys += 1;
                stats.live_bytes += bytes(value);
            }
        }
        stats.index_bytes = stats.disk_bytes;
        stats
    }
}
