//! Whether an instance may still be used.
//!
//! After a failed sync, or a write of which an unknown part arrived, every call fails: the kernel may call
//! pages clean that never reached the disk. After a publication that found the disk full only reading goes on.
//! A write that found it full has changed nothing and may be repeated.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::StateError;

const WELL: u8 = 0;
const READS_GO_ON: u8 = 1;
const STOPPED: u8 = 2;

#[derive(Debug)]
pub(super) struct Health {
    dir: PathBuf,
    /// Relaxed: a reader that misses a failure by a moment reads what it would have read before it.
    state: AtomicU8,
    reason: Mutex<String>,
}

impl Health {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), state: AtomicU8::new(WELL), reason: Mutex::default() }
    }

    pub(super) fn check_read(&self) -> Result<(), StateError> {
        self.check(STOPPED)
    }

    fn check(&self, stops_at: u8) -> Result<(), StateError> {
        if self.state.load(Ordering::Relaxed) < stops_at {
            return Ok(());
        }
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Err(StateError::Poisoned { dir: self.dir.clone(), reason })
    }

    /// Runs an action that changes the disk, and remembers how it failed.
    pub(super) fn guard<T>(&self, act: impl FnOnce() -> Result<T, StateError>) -> Result<T, StateError> {
        self.check(READS_GO_ON)?;
        let result = act();
        if let Err(error) = &result {
            let state = match error {
                StateError::Io(disk) if disk.is_full() && disk.action == "publish" => READS_GO_ON,
                error if error.leaves_doubt() => STOPPED,
                _ => WELL,
            };
            if state > WELL {
                let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
                *self.reason.lock().unwrap_or_else(PoisonError::into_inner) =
                    format!("{error}{}", cause.unwrap_or_default());
                self.state.fetch_max(state, Ordering::Relaxed);
            }
        }
        result
    }
}
