//! Back ends for keyed state on other machines: Redis, and HBase through its REST gateway.
//!
//! * [`Settings`]: where a store is, checked without speaking to it.
//! * [`Remote`]: a connection for all tasks of a job; each opens its state there as a [`thalweg_state::Backend`].
//!
//! Both stores are used alike (`backend`): a log of parts before rows, in a space of its own for each task. The
//! operations that a store has to have are a small trait (`store`); the rest is tested without a server.
//!
//! An outage is waited for, without end, by writes and reads (`wait`); only the start fails. [`Interrupt`] ends the waits
//! when the job ends.
//!
//! The feature `testing` shows the decoders of foreign bytes to fuzz targets.
//!
//! Not here: which keys are worth memory, when a cycle ends, TLS (run a proxy on the same machine), clusters of Redis.

#![deny(unsafe_code)]

mod backend;
mod claim;
mod hbase;
mod head;
#[cfg(test)]
mod memory;
mod open;
mod pack;
mod redis;
mod settings;
mod space;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
mod version;
mod wait;

use std::sync::Arc;

use thalweg_state::registry::Place;
use thalweg_state::{Backend, Interrupt, StateError, Version};

use crate::store::Server;
use crate::wait::Patience;

pub use settings::{Kind, Settings, TABLE, TIMEOUT, check_table, check_url};
pub use version::describe_in;

/// A store that the tasks of a job share.
#[derive(Clone, Debug)]
pub struct Remote {
    server: Arc<dyn Server>,
    patience: Arc<Patience>,
    begins_anew: bool,
}

impl Remote {
    /// Looks whether the store is there and fit for state, once; says what of its settings weakens the promise.
    ///
    /// # Errors
    /// `Store`: it cannot be reached, does not let us in, or is set up so that state would be lost.
    pub fn connect(settings: &Settings, interrupt: Interrupt) -> Result<Self, StateError> {
        let patience = Arc::new(Patience::new(settings.place().into(), interrupt));
        let server: Arc<dyn Server> = match settings.kind {
            Kind::Redis => Arc::new(redis::Redis::connect(settings, &patience)?),
            Kind::Hbase => Arc::new(hbase::Hbase::connect(settings, &patience)?),
        };
        Ok(Self { server, patience, begins_anew: false })
    }

    /// With `true`, [`Remote::open`] without a version removes state of the task that another folder wrote, which it
    /// refuses otherwise.
    #[must_use]
    pub fn begin_anew(self, begins_anew: bool) -> Self {
        Self { begins_anew, ..self }
    }

    /// Opens the state of a task, `JOB/OPERATOR/TASK` by name, with the version that the last commit record names;
    /// what that does not name goes.
    ///
    /// # Errors
    /// `Store`, also if the store has state of this task that belongs to another folder than `place`; `Version`, `NewerFormat`, and errors of the file that names the task's space.
    pub fn open(
        &self,
        place: &Place,
        task: &str,
        version: Option<&Version>,
    ) -> Result<Box<dyn Backend>, StateError> {
        Ok(Box::new(open::open(self, place, task, version)?))
    }
}
