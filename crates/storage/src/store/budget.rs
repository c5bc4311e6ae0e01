//! Bytes that the stores of a job may hold in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory ceiling of a job's chunks (`chunk_memory`), shared by its stores.
///
/// It counts the batches of stores: batches that wait to be written, cached ones, and reads under way by estimate. A
/// batch that a caller still holds after it left the cache is the caller's. Cached batches give way; batches that wait
/// to be written and those that a caller holds can not, so `used` may pass the limit by those: a store blocks its owner
/// before it lets a second batch wait over the limit.
#[derive(Debug)]
pub struct ChunkBudget {
    limit: u64,
    /// Relaxed: a sum that guides decisions, not a hand-over of memory.
    used: AtomicU64,
}

impl ChunkBudget {
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether `bytes` more would pass the limit.
    pub(super) fn is_short_of(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) > self.limit
    }

    pub(super) fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "a store returns what it took");
    }
}
