//! What the system lets a worker take.
//!
//! DataFusion counts the memory of sorting, grouping and joining, and refuses too much with an error. Functions and
//! readers count nothing; after the pool there is a wall: the data of the process (`RLIMIT_DATA`: heap, private maps
//! and stacks of threads, not files that are mapped) stays under what it had when it was ready, and
//!
//! * the limit on memory, and half of it, for memory that is counted after it was taken, as when a table grows;
//! * [`SLACK`] for all that is not counted: files that are read and decoded, batches on their way, the reply;
//! * caches: Parquet metadata, memory of groupings that are done (`tally::spare`), rows that are in no file yet;
//! * stacks of threads that come and go.
//!
//! An allocation beyond it fails, and the process ends by that (`workers::ending`).

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thalweg_types::Error;

use crate::engine::{STACK, threads_for_files};
use crate::tally::KEPT;
use crate::wire::message::Configure;

/// Bytes that a query may take uncounted.
pub(crate) const SLACK: u64 = 64 << 20;

/// Idle, a worker may have grown by this beyond its caches: allocators do not give back all of the memory that a large
/// query took.
const GROWN: u64 = 128 << 20;

/// The wall of this process.
#[derive(Clone, Debug)]
pub(crate) struct Wall {
    /// Data when it was ready.
    base: u64,
    /// Data beyond that, without rows that are kept.
    room: u64,
    /// The same of an idle worker.
    idle: u64,
}

impl Wall {
    /// Measures this process. To be called when its threads run.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn measure(configure: &Configure) -> Result<Self, Error> {
        let caches = configure.metadata + KEPT as u64;
        let stacks = (threads_for_files(configure.threads) + 1) * STACK;
        let memory = configure.memory.saturating_add(configure.memory / 2);
        let room = memory.saturating_add(SLACK + caches + stacks as u64);
        Ok(Self { base: data()?, room, idle: caches + stacks as u64 + GROWN })
    }

    /// Puts it up, with room for this number of bytes of rows.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn put_up(&self, rows: u64) -> Result<(), Error> {
        let wanted = self.base.saturating_add(self.room).saturating_add(rows);
        let Rlimit { maximum, .. } = getrlimit(Resource::Data);
        let current = maximum.map_or(wanted, |maximum| maximum.min(wanted));
        limit(Resource::Data, Rlimit { current: Some(current), maximum })
    }

    /// Whether an idle process is larger than one should be.
    pub(crate) fn is_outgrown(&self, rows: u64) -> bool {
        data().is_ok_and(|data| data > self.base.saturating_add(self.idle).saturating_add(rows))
    }
}

/// Takes from this process what it does not need: files that are written, an image of its memory, the mercy of a system
/// that is out of memory.
///
/// # Errors
/// What the system says.
pub(crate) fn give_up_rights() -> Result<(), Error> {
    for resource in [Resource::Core, Resource::Fsize] {
        limit(resource, Rlimit { current: Some(0), maximum: Some(0) })?;
    }
    // Where it is not allowed the node is no worse off than before.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
    let _ = fs::write("/proc/self/comm", "thalweg-sql");
    Ok(())
}

fn limit(resource: Resource, to: Rlimit) -> Result<(), Error> {
    setrlimit(resource, to).map_err(|error| {
        Error::external(format!("limit {resource:?} of a worker for SQL")).with_source(error)
    })
}

/// Bytes of data of this process, as the system counts them.
fn data() -> Result<u64, Error> {
    let path = "/proc/self/status";
    let status = fs::read_to_string(path)
        .map_err(|error| Error::external(format!("read {path}")).with_source(error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kilobytes.ok_or_else(|| Error::external(format!("find VmData in {path}")))? << 10)
}
