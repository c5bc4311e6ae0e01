//! What a run of one job is measured by; shared by its source and its sinks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

/// Packets that share a time of making, where there is no schedule.
const SLOT: u64 = 64;

/// Slots that are kept: many more than can be on their way at once.
const SLOTS: usize = 1 << 18;

// `Relaxed` throughout: figures; a time of making reaches the sink with the packet, through the rings.
pub(crate) struct Meter {
    started: Instant,
    /// Packets per second, where there is a schedule.
    rate: Option<f64>,
    /// By slot, the time since the start at which its first packet was made, in nanoseconds.
    made_at: Vec<AtomicU64>,
    made: AtomicU64,
    taken: AtomicU64,
    digest: AtomicU64,
    sleep_micros: AtomicU64,
    latencies: Mutex<Histogram<u64>>,
}

impl Meter {
    pub(crate) fn new(rate: Option<f64>) -> Self {
        Self {
            started: Instant::now(),
            rate,
            made_at: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            made: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            digest: AtomicU64::new(0),
            sleep_micros: AtomicU64::new(0),
            latencies: Mutex::new(histogram()),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How many packets the schedule has had made by now; no bound without one.
    pub(crate) fn due(&self) -> u64 {
        self.rate.map_or(u64::MAX, |rate| (self.elapsed().as_secs_f64() * rate) as u64)
    }

    /// Says that packets were made.
    pub(crate) fn add_made(&self, first: u64, count: u64) {
        if self.rate.is_none() {
            let now = self.elapsed().as_nanos() as u64;
            for slot in first.div_ceil(SLOT)..(first + count).div_ceil(SLOT) {
                self.made_at[slot as usize % SLOTS].store(now, Ordering::Relaxed);
            }
        }
        self.made.store(first + count, Ordering::Relaxed);
    }

    /// Since the start, in nanoseconds: when a packet was meant to be made, or was.
    #[inline]
    pub(crate) fn made_at(&self, number: u64) -> u64 {
        match self.rate {
            Some(rate) => (number as f64 / rate * 1e9) as u64,
            None => self.made_at[(number / SLOT) as usize % SLOTS].load(Ordering::Relaxed),
        }
    }

    pub(crate) fn add_taken(&self, count: u64, digest: u64) {
        self.taken.fetch_add(count, Ordering::Relaxed);
        self.digest.fetch_add(digest, Ordering::Relaxed);
    }

    pub(crate) fn add_latencies(&self, latencies: &Histogram<u64>) {
        let mut all = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        all.add(latencies).expect("histograms that grow by themselves add up");
    }

    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.load(Ordering::Relaxed)
    }

    pub(crate) fn sleep(&self) -> Duration {
        Duration::from_micros(self.sleep_micros.load(Ordering::Relaxed))
    }

    pub(crate) fn set_sleep(&self, time: Duration) {
        self.sleep_micros.store(time.as_micros() as u64, Ordering::Relaxed);
    }
}

/// Of nanoseconds, to three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .expect("a minute in nanoseconds to three digits is within what a histogram holds")
}

/// Latencies of all jobs.
pub(crate) fn latencies(meters: &[Arc<Meter>]) -> Result<Histogram<u64>> {
    let mut all = histogram();
    for meter in meters {
        all.add(&*meter.latencies.lock().unwrap_or_else(PoisonError::into_inner)).context("add latencies")?;
    }
    Ok(all)
}

/// Memory of this process that is resident now.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
