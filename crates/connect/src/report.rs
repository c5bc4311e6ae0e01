//! Counters of a sink, readable from outside while it works and after it has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Counters of one sink, shared by its tasks, metrics and reports. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SinkReport(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    records: AtomicU64,
    bytes: AtomicU64,
    repeated: AtomicU64,
    expired_rows: AtomicU64,
    expired_files: AtomicU64,
    expired_bytes: AtomicU64,
    digest: AtomicU64,
    has_digest: AtomicBool,
    is_output_closed: AtomicBool,
    #[cfg(feature = "kafka")]
    delivery: std::sync::OnceLock<Arc<crate::sink::kafka::figures::SinkFigures>>,
}

thalweg_flow::figures! {
    /// Counts of records that a sink has deleted for their age.
    pub struct Expired as "Expired" {
        /// Rows that a `table` sink deleted for their age.
        rows: u64, sum, Counter, Count, "thalweg_expired_rows_total",
        "A leap: look for `before` and `now` in the log, and at the clocks";
        /// Files that it deleted for their age.
        files: u64, sum, Counter, Count, "thalweg_expired_files_total", "As above";
        /// Bytes that it deleted for their age.
        bytes: u64, sum, Counter, Bytes, "thalweg_expired_bytes_total", "As above";
    }
}

thalweg_flow::figures! {
    /// What has become of the rows of a sink that writes to topics, since its start.
    pub struct DeliveryCounts as "DeliveryCounts" {
        /// Rows that brokers have acknowledged.
        acknowledged: u64, sum, Counter, Count, "thalweg_sink_acknowledged_total", "";
        /// Rows that were sent again.
        retried: u64, sum, Counter, Count, "thalweg_sink_retried_total",
        "Look at the brokers, and in the log for what they say";
        /// Bytes of rows that were sent and are not acknowledged.
        in_flight: u64, sum, Gauge, Bytes, "thalweg_sink_in_flight_bytes", "The brokers are slower than the job";
        /// Rows left out that name no topic, or one that does not exist.
        unaddressed: u64, sum, Counter, Count, "thalweg_sink_unaddressed_total",
        "Clients ask for answers on topics that do not exist; the log names one";
        /// Transactions committed.
        transactions: u64, sum, Counter, Count, "thalweg_sink_transactions_total", "";
        /// Time that their commits took.
        transaction_time as "transaction_seconds": Duration, sum, Counter, Seconds,
        "thalweg_sink_transaction_seconds_total", "Divide by the number of transactions; look at the brokers";
        /// The longest of them.
        longest_transaction as "longest_transaction_seconds": Duration, most, Gauge, Seconds,
        "thalweg_sink_longest_transaction_seconds", "As above";
    }
}

// `Relaxed` throughout: each counter is independent, and readers that want the final values read them after the
// job has ended, which orders them.
impl SinkReport {
    /// Records taken.
    pub fn records(&self) -> u64 {
        self.0.records.load(Ordering::Relaxed)
    }

    /// Bytes written; 0 for sinks that write none.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Records that were sent again because nobody knows whether they had arrived: at most this many are there twice.
    pub fn repeated(&self) -> u64 {
        self.0.repeated.load(Ordering::Relaxed)
    }

    /// Records deleted for their age since the start; of sinks that keep records for a time.
    pub fn expired(&self) -> Expired {
        Expired {
            rows: self.0.expired_rows.load(Ordering::Relaxed),
            files: self.0.expired_files.load(Ordering::Relaxed),
            bytes: self.0.expired_bytes.load(Ordering::Relaxed),
        }
    }

    /// What has become of its rows; of sinks that write to topics.
    pub fn delivery(&self) -> Option<DeliveryCounts> {
        #[cfg(feature = "kafka")]
        return self.0.delivery.get().map(|figures| figures.counts());
        #[cfg(not(feature = "kafka"))]
        None
    }

    #[cfg(feature = "kafka")]
    pub(crate) fn show_delivery(&self, figures: Arc<crate::sink::kafka::figures::SinkFigures>) {
        let _ = self.0.delivery.set(figures);
    }

    pub fn add_expired(&self, expired: Expired) {
        self.0.expired_rows.fetch_add(expired.rows, Ordering::Relaxed);
        self.0.expired_files.fetch_add(expired.files, Ordering::Relaxed);
        self.0.expired_bytes.fetch_add(expired.bytes, Ordering::Relaxed);
    }

    /// Digest of all rows, whatever their order; `None` for sinks that make none.
    pub fn digest(&self) -> Option<u64> {
        self.0.has_digest.load(Ordering::Relaxed).then(|| self.0.digest.load(Ordering::Relaxed))
    }

    /// Whether nobody reads the output any more (`| head`): the job can end, and has not failed.
    pub fn is_output_closed(&self) -> bool {
        self.0.is_output_closed.load(Ordering::Relaxed)
    }

    pub fn set_output_closed(&self) {
        self.0.is_output_closed.store(true, Ordering::Relaxed);
    }

    pub fn add_records(&self, count: u64) {
        self.0.records.fetch_add(count, Ordering::Relaxed);
    }

    pub fn add_bytes(&self, count: u64) {
        self.0.bytes.fetch_add(count, Ordering::Relaxed);
    }

    pub fn add_repeated(&self, count: u64) {
        self.0.repeated.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds a batch's digest (a wrapping sum over its rows, so that tasks and batches add up in any order).
    pub fn add_digest(&self, digest: u64) {
        self.0.has_digest.store(true, Ordering::Relaxed);
        self.0.digest.fetch_add(digest, Ordering::Relaxed);
    }
}
