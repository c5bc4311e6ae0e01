//! What is shown of the partitions of a source.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thalweg_flow::{PartitionCounts, PartitionStats, SystemClock};
use thalweg_kafka::TopicPartition;

/// No time is known.
const NONE: i64 = i64::MIN;

// Relaxed throughout: each is shown by itself, and nothing is decided by it.
pub(super) struct PartitionFigures {
    pub(super) records: AtomicU64,
    pub(super) position: AtomicI64,
    pub(super) end: AtomicI64,
    /// Time of the newest message that was read, in milliseconds since 1970.
    pub(super) newest: AtomicI64,
    pub(super) committed: AtomicI64,
    pub(super) missing: AtomicU64,
    pub(super) tombstones: AtomicU64,
    pub(super) empty: AtomicU64,
}

impl PartitionFigures {
    fn counts(&self) -> PartitionCounts {
        let number = |value: &AtomicI64| value.load(Ordering::Relaxed);
        let (position, committed) = (number(&self.position), number(&self.committed));
        // The end is told with messages, and may be older than what was read.
        let end = number(&self.end).max(position);
        let newest = number(&self.newest);
        let age = (SystemClock::now() / 1_000).saturating_sub(newest);
        let lag = if end > position && newest != NONE { age.max(0) } else { 0 };
        let whole = |value: i64| u64::try_from(value).unwrap_or(0);
        PartitionCounts {
            records: self.records.load(Ordering::Relaxed),
            position: whole(position),
            end: whole(end),
            lag: whole(end - position),
            lag_seconds: Duration::from_millis(whole(lag)),
            in_flight: if committed == NONE { 0 } else { whole(position - committed) },
            missing: self.missing.load(Ordering::Relaxed),
            tombstones: self.tombstones.load(Ordering::Relaxed),
            empty: self.empty.load(Ordering::Relaxed),
        }
    }
}

/// The figures of all partitions of a source, by their numbers.
#[derive(Default)]
pub(super) struct Figures {
    /// Held for moments.
    all: Mutex<Vec<(Arc<str>, Arc<PartitionFigures>)>>,
}

impl Figures {
    pub(super) fn add(&self, of: &TopicPartition, start: i64) -> Arc<PartitionFigures> {
        let figures = Arc::new(PartitionFigures {
            records: AtomicU64::new(0),
            position: AtomicI64::new(start),
            end: AtomicI64::new(start),
            newest: AtomicI64::new(NONE),
            committed: AtomicI64::new(NONE),
            missing: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            empty: AtomicU64::new(0),
        });
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((of.to_string().into(), Arc::clone(&figures)));
        figures
    }

    pub(super) fn clear(&self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn stats(&self) -> PartitionStats {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, figures)| (Arc::clone(name), figures.counts())).collect()
    }
}
