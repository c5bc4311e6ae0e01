//! Counts of the connections of a source, for metrics and reports.

use std::sync::atomic::{AtomicU64, Ordering};

/// Connections of a source that takes them, since its start. Counters are relaxed: each is read at a slightly different
/// moment.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    open: AtomicU64,
    accepted: AtomicU64,
    unfinished: AtomicU64,
    closed: [AtomicU64; ConnectionCounts::REASONS.len()],
}

impl ConnectionCounts {
    /// Why a source closes a connection by itself: it was silent for too long; it was silent and others waited for a
    /// place; its unfinished record was the largest of too many.
    pub const REASONS: [&'static str; 3] = ["idle", "room", "unfinished"];

    /// Open ones.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Bytes of records that are not finished yet.
    pub fn unfinished_bytes(&self) -> u64 {
        self.unfinished.load(Ordering::Relaxed)
    }

    /// How many were closed, by [`ConnectionCounts::REASONS`].
    pub fn closed(&self) -> [u64; Self::REASONS.len()] {
        self.closed.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    pub(super) fn set_open(&self, open: usize) {
        self.open.store(open as u64, Ordering::Relaxed);
    }

    pub(super) fn add_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_unfinished(&self, bytes: usize) {
        self.unfinished.store(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn add_closed(&self, reason: usize) {
        self.closed[reason].fetch_add(1, Ordering::Relaxed);
    }
}
