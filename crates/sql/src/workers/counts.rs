//! What has become of queries and workers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Why a process was killed, or ended, over a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It computed for longer than it may.
    Time,
    /// The system refused it memory.
    Memory,
    /// Its stack was too short for what the query nests.
    Depth,
    /// Its client went away, or did not read, and it did not stop at once.
    Reader,
    /// It did not stop at once when its short try was over, or after its last row.
    Slow,
    /// It ended in another way.
    Other,
}

impl Stopped {
    /// All of them, with names for metrics.
    pub const ALL: [(Stopped, &'static str); 6] = [
        (Stopped::Time, "time"),
        (Stopped::Memory, "memory"),
        (Stopped::Depth, "depth"),
        (Stopped::Reader, "reader"),
        (Stopped::Slow, "slow"),
        (Stopped::Other, "other"),
    ];
}

/// The counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Processes that there are.
    pub workers: u64,
    /// Processes that were started.
    pub started: u64,
    /// Processes that ended over a query, in the order of [`Stopped::ALL`].
    pub stopped: [u64; Stopped::ALL.len()],
}

/// The counters.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub(super) workers: AtomicUsize,
    pub(super) started: AtomicU64,
    stopped: [AtomicU64; Stopped::ALL.len()],
}

impl Tallies {
    pub(super) fn stopped(&self, why: Stopped) {
        // It conveys nothing else, so no order is needed; the same below.
        if let Some(place) = Stopped::ALL.iter().position(|(other, _)| *other == why) {
            self.stopped[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self) -> Counts {
        Counts {
            workers: self.workers.load(Ordering::Relaxed) as u64,
            started: self.started.load(Ordering::Relaxed),
            stopped: self.stopped.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }
}
