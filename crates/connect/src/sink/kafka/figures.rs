//! What is counted of rows on their way to topics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::report::DeliveryCounts;

// Relaxed throughout: each is shown by itself, and nothing is decided by it.
#[derive(Debug, Default)]
pub(crate) struct SinkFigures {
    pub(super) acknowledged: AtomicU64,
    pub(super) retried: AtomicU64,
    /// Bytes.
    pub(super) in_flight: AtomicU64,
    /// Rows whose topic or partition does not exist.
    pub(super) unaddressed: AtomicU64,
    without_topic: AtomicU64,
    transactions: AtomicU64,
    /// Microseconds in all, and of the longest.
    took: AtomicU64,
    longest: AtomicU64,
}

impl SinkFigures {
    /// A transaction was committed; its commit took this long.
    pub(super) fn note_transaction(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.took.fetch_add(micros, Ordering::Relaxed);
        self.longest.fetch_max(micros, Ordering::Relaxed);
    }

    /// How many rows have named no topic so far.
    pub(super) fn note_without_topic(&self, rows: u64) {
        self.without_topic.store(rows, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> DeliveryCounts {
        let number = |value: &AtomicU64| value.load(Ordering::Relaxed);
        DeliveryCounts {
            acknowledged: number(&self.acknowledged),
            retried: number(&self.retried),
            in_flight: number(&self.in_flight),
            unaddressed: number(&self.unaddressed) + number(&self.without_topic),
            transactions: number(&self.transactions),
            transaction_time: Duration::from_micros(number(&self.took)),
            longest_transaction: Duration::from_micros(number(&self.longest)),
        }
    }
}
