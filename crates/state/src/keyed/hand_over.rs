//! What a cycle changed, on its way to the back end; another thread carries it there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Backend, Changes, StateError, Version, write_changes};

/// The changes of one cycle.
#[must_use = "a cycle is lost if its changes are not written"]
pub struct HandOver {
    cycle: u64,
    changes: Changes,
    backend: Arc<dyn Backend>,
    written: Arc<AtomicU64>,
}

impl HandOver {
    pub(super) fn new(
        cycle: u64,
        changes: Changes,
        backend: Arc<dyn Backend>,
        written: Arc<AtomicU64>,
    ) -> Self {
        Self { cycle, changes, backend, written }
    }

    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Writes the changes and makes them durable; the version is for the commit record.
    ///
    /// # Errors
    /// Of [`Backend::write`] and [`Backend::prepare`].
    pub fn prepare(&mut self) -> Result<Version, StateError> {
        if !self.changes.is_empty() {
            write_changes(self.backend.as_ref(), self.cycle, &self.changes)?;
        }
        self.written.store(self.cycle, Ordering::Release);
        self.changes = Changes::new();
        self.backend.prepare(self.cycle)
    }

    /// The commit record that names the version is durable.
    ///
    /// # Errors
    /// Of [`Backend::committed`].
    pub fn committed(self) -> Result<(), StateError> {
        self.backend.committed(self.cycle)
    }
}
