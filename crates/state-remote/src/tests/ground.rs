//! A task's state in a store, for the suite of all back ends.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use thalweg_state::registry::Place;
use thalweg_state::testing::{Ground, State, Step, assert_values, changes_of};
use thalweg_state::{Backend, Changes, StateError, Version};
use thalweg_storage::{Fs, MemFs};

use crate::Remote;
use crate::memory::MemoryServer;

const TASK: &str = "job/op/3";

pub(super) fn changes(slice: &[(u8, Option<u16>)]) -> Changes {
    changes_of(slice)
}

pub(super) fn place(fs: &Arc<dyn Fs>) -> Place {
    Place { fs: Arc::clone(fs), dir: "/job/tasks/op/3/state".into(), identity: 0x1234 }
}

/// Instances over one store and one folder.
#[derive(Debug)]
pub(super) struct Remotes {
    pub(super) remote: Remote,
    pub(super) task: String,
    pub(super) place: Place,
    pub(super) fs: MemFs,
}

impl Remotes {
    pub(super) fn new(remote: Remote) -> Self {
        let fs = MemFs::new();
        let place = place(&(Arc::new(fs.clone()) as Arc<dyn Fs>));
        Self { remote, task: TASK.to_owned(), place, fs }
    }

    /// A task that no other test has, for servers that are shared.
    pub(super) fn of_its_own(remote: Remote) -> Self {
        let mut one = Self::new(remote);
        one.place.identity = RandomState::new().hash_one(std::process::id());
        one.task = format!("job/op/{}", one.place.identity);
        one
    }

    pub(super) fn open(&self, version: Option<&Version>) -> Result<Box<dyn Backend>, StateError> {
        self.remote.open(&self.place, &self.task, version)
    }
}

impl Ground for Remotes {
    fn open(&self, version: Option<&Version>) -> Result<Box<dyn Backend>, StateError> {
        Remotes::open(self, version)
    }

    /// Of the machine with the job: the store is another.
    fn power_cut(&self, torn: Option<u64>) {
        match torn {
            None => self.fs.crash(),
            Some(seed) => self.fs.crash_torn(seed),
        }
    }

    fn check(&self, backend: &dyn Backend, expected: &State, keys: &[Vec<u8>]) {
        assert_values(backend, expected, keys);
    }
}

/// Whether a step ends an instance and opens another.
pub(super) fn opens(step: &Step) -> bool {
    matches!(step, Step::Stop(_))
}

/// As above, over a server that begins to fail once an instance is open.
pub(super) struct Failing {
    pub(super) ground: Remotes,
    pub(super) server: MemoryServer,
    pub(super) seed: u64,
}

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failing").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl Ground for Failing {
    fn open(&self, version: Option<&Version>) -> Result<Box<dyn Backend>, StateError> {
        self.server.fail(0);
        let backend = self.ground.open(version);
        self.server.fail(self.seed);
        backend
    }

    fn power_cut(&self, torn: Option<u64>) {
        Ground::power_cut(&self.ground, torn);
    }

    fn check(&self, backend: &dyn Backend, expected: &State, keys: &[Vec<u8>]) {
        assert_values(backend, expected, keys);
    }
}
