//! A back end whose scan ends when a test says so.

use std::ops::ControlFlow;
use std::sync::{Mutex, mpsc};

use thalweg_state::memory::{Memory, MemoryDisk};
use thalweg_state::{Backend, BackendStats, Changes, StateError, Version, Visit};

use crate::element::ElementState;

/// A back end whose scan waits until it is let go and finds the keys that were there when it was opened, the oldest
/// that it may.
#[derive(Debug)]
struct Late {
    inner: Memory,
    gate: Mutex<mpsc::Receiver<()>>,
    found: Vec<(Vec<u8>, Vec<u8>)>,
    is_damaged: bool,
}

impl Backend for Late {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        self.inner.get(key)
    }

    fn write(&self, cycle: u64, changes: &Changes) -> Result<(), StateError> {
        self.inner.write(cycle, changes)
    }

    fn prepare(&self, cycle: u64) -> Result<Version, StateError> {
        self.inner.prepare(cycle)
    }

    fn committed(&self, cycle: u64) -> Result<(), StateError> {
        self.inner.committed(cycle)
    }

    fn scan(&self, visit: &mut Visit<'_>) -> Result<(), StateError> {
        if self.gate.lock().unwrap().recv().is_ok() {
            let _ = self.found.iter().try_for_each(|(key, value)| visit(key, value));
            if self.is_damaged {
                return Err(StateError::TooLarge { what: "a test", bytes: 1, max: 0 });
            }
        }
        Ok(())
    }

    fn stats(&self) -> BackendStats {
        self.inner.stats()
    }
}

/// As [`state`](super::state), with a scan that begins once something is sent, or its end is dropped.
pub(super) fn eager(
    disk: &MemoryDisk,
    cycle: u64,
    position: Option<&[u8]>,
    memory: usize,
    is_damaged: bool,
) -> (mpsc::Sender<()>, ElementState) {
    let (gate, waits) = mpsc::channel();
    let open = |version: Option<&Version>| {
        let inner = Memory::open(disk, version)?;
        let mut found = Vec::new();
        inner.scan(&mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(Box::new(Late { inner, gate: Mutex::new(waits), found, is_damaged }) as Box<dyn Backend>)
    };
    (gate, ElementState::open(cycle, position, memory, open).unwrap().eager())
}
