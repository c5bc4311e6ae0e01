//! Where the tasks of a job keep their state: back ends by the names that job files use, opened in one place.
//!
//! Embedded ones ([`thalweg_state::registry`]) are folders of the task. Those on another machine
//! ([`thalweg_state_remote`]) share one connection for all tasks of a job, made before any task.

use std::sync::Arc;
use std::time::Duration;

use thalweg_connect::secret::Secret;
use thalweg_state::registry::{self, Place};
use thalweg_state::{Backend, StateError, Version};
use thalweg_state_remote::{Interrupt, Kind, Remote, Settings, TABLE, TIMEOUT, check_table, check_url};
use thalweg_types::{Error, hash_bytes};

use crate::durable::of_run;

use crate::job_file::{RemoteSettings, StateSettings};
use crate::operator::TaskContext;

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

    /// For a job that outlives its process. `interrupt` ends whatever waits for the store.
    ///
    /// # Errors
    /// A back end that keeps nothing, a secret that is not there, and a store that cannot be reached or is not fit.
    pub fn connect(settings: &StateSettings, interrupt: Interrupt) -> Result<Self, Error> {
        let name = settings.backend.clone();
        if name == "memory" {
            return Err(Error::user(
                "state.backend is memory, which keeps nothing, and the job has a data directory",
            )
            .with_hint(
                "leave out --data-dir, or name a back end that keeps state: indexed, files, redis or hbase",
            ));
        }
        let remote = match &settings.remote {
            None => None,
            Some(remote) => Some(Remote::connect(&settings_of(remote)?, interrupt)?),
        };
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

/// With the password looked up.
fn settings_of(remote: &RemoteSettings) -> Result<Settings, Error> {
    let named = |error: Error| error.context("state.url");
    let mut settings = Settings::new(remote.kind, &remote.url).map_err(named)?;
    settings.user.clone_from(&remote.user);
    let password = remote.password.as_ref().map(|reference| Secret::look_up("state.password", reference));
    settings.password = password.transpose()?.map(|password| password.reveal().to_owned());
    settings.table = remote.table.clone().unwrap_or_else(|| TABLE.to_owned());
    settings.timeout = remote.timeout.unwrap_or(TIMEOUT);
    Ok(settings)
}

/// What is wrong with the settings of a store, by key; nothing is looked up, and nobody spoken to.
pub(crate) fn mistakes(remote: &RemoteSettings) -> Vec<(&'static str, Error)> {
    let mut mistakes = Vec::new();
    mistakes.extend(check_url(remote.kind, &remote.url).err().map(|error| ("url", error)));
    if remote.password.is_some() && remote.kind == Kind::Hbase && remote.user.is_none() {
        mistakes.push(("password", Error::user("expected a user for the password, got none")));
    }
    if let Some(table) = &remote.table {
        mistakes.extend(check_table(table).err().map(|error| ("table", error)));
    }
    if remote.timeout == Some(Duration::ZERO) {
        mistakes.push(("timeout", Error::user("expected a duration above zero, got 0s")));
    }
    mistakes
}
