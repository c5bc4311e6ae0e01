//! Where the tasks of a job keep their state: back ends by the names that job files use, opened in one place.
//!
//! Embedded ones ([`thalweg_state::registry`]) are folders of the task. Those on another machine ([`crate::remote`])
//! share one connection for all tasks of a job, made before any task.

use std::sync::Arc;

use thalweg_state::registry::{self, Place};
use thalweg_state::{Backend, Interrupt, StateError, Version};
use thalweg_types::{Error, hash_bytes};

use crate::durable::of_run;

use crate::job_file::StateSettings;
use crate::operator::TaskContext;
use crate::remote::{self, Remote};

/// Opens the state of tasks.
#[derive(Clone, Debug)]
pub struct Backends {
    name: String,
    remote: Option<Remote>,
    run: u64,
}

impl Backends {
    /// For a job that keeps nothing: nothing is connected, and no state is opened.
    pub fn unused(settings: &StateSettings) -> Self {
        if settings.remote.is_some() {
            tracing::warn!(
                backend = settings.backend,
                "the back end is not used: without a data directory nothing outlives the process"
            );
        }
        Self { name: settings.backend.clone(), remote: None, run: 0 }
    }

    /// For a job that outlives its process. `interrupt` ends whatever waits for the store. With `begins_anew`, state in
    /// a store that is not of this data directory is deleted; without it the start is refused.
    ///
    /// # Errors
    /// A back end that keeps nothing, a secret that is not there, and a store that cannot be reached or is not fit.
    pub fn connect(settings: &StateSettings, interrupt: Interrupt, begins_anew: bool) -> Result<Self, Error> {
        let name = settings.backend.clone();
        if name == "memory" {
            return Err(Error::user(
                "state.backend is memory, which keeps nothing, and the job has a data directory",
            )
            .with_hint(
                "leave out --data-dir, or name a back end that keeps state: indexed, files, redis or hbase",
            ));
        }
        let connect = |settings| remote::connect(settings, interrupt, begins_anew);
        let remote = settings.remote.as_ref().map(connect).transpose()?;
        Ok(Self { name, remote, run: 0 })
    }

    /// State on this machine is of the job's life with this number, and of no other.
    #[must_use]
    pub(crate) fn of_run(self, run: u64) -> Self {
        Self { run, ..self }
    }

    /// The state of a task, as the version of the last commit record names it, or empty.
    ///
    /// # Errors
    /// What opening says.
    pub fn open(
        &self,
        context: &TaskContext<'_>,
        version: Option<&Version>,
    ) -> Result<Box<dyn Backend>, StateError> {
        let info = context.info;
        let task = format!("{}/{}/{}", info.job, info.operator, info.index);
        let place = Place {
            fs: Arc::clone(&context.services.fs),
            dir: context.folder.join("state"),
            identity: hash_bytes(task.as_bytes()),
        };
        match &self.remote {
            Some(remote) => remote.open(&place, &task, version),
            None => {
                let place = Place { identity: of_run(place.identity, self.run), ..place };
                registry::open(&self.name, place, version)
            }
        }
    }
}
