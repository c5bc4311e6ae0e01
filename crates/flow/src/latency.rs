//! How long records took to a task, as counts that anybody may read while the task goes on counting.
//!
//! A histogram whose buckets are an eighth of a power of two wide: single microseconds up to 16, then never wider
//! than an eighth of their values, up to an hour and more. Written once per batch by the task that it belongs
//! to, without a locked instruction, an allocation or a look at any record.
//!
//! Counts only grow. Recent counts are the difference of two looks ([`LatencyCounts::since`]).

use std::time::Duration;

use crate::stats::Counter;

/// log2 of the buckets to a power of two.
const FINE: u32 = 3;
const PER_POWER: usize = 1 << FINE;
/// Latencies are counted as at most 2^32 - 1 microseconds, 71 minutes.
const MOST: u64 = u32::MAX as u64;
const BUCKETS: usize = (32 - FINE as usize + 1) * PER_POWER;

fn bucket_of(micros: u64) -> usize {
    let micros = micros.min(MOST);
    if micros < PER_POWER as u64 {
        return micros as usize;
    }
    let power = micros.ilog2() - FINE;
    (power as usize + 1) * PER_POWER + (micros >> power) as usize - PER_POWER
}

/// The least number of microseconds that is above a bucket.
fn end_of(bucket: usize) -> u64 {
    let (power, place) = (bucket / PER_POWER, bucket % PER_POWER);
    match power.checked_sub(1) {
        None => place as u64 + 1,
        Some(power) => ((PER_POWER + place) as u64 + 1) << power,
    }
}

/// What a task counts. Has one writer.
pub(crate) struct Latencies {
    buckets: [Counter; BUCKETS],
    /// Of all records together.
    micros: Counter,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Counter::default()), micros: Counter::default() }
    }
}

impl Latencies {
    pub(crate) fn add(&self, took: Duration, records: u64) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(MOST).min(MOST);
        self.buckets[bucket_of(micros)].add(records);
        self.micros.add(micros.saturating_mul(records));
    }

    pub(crate) fn look(&self) -> LatencyCounts {
        LatencyCounts { buckets: self.buckets.iter().map(Counter::get).collect(), micros: self.micros.get() }
    }
}

/// Records counted by how long they took, in microseconds, to an eighth of the value.
///
/// The default has counted nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyCounts {
    /// Empty where nothing was counted.
    buckets: Box<[u64]>,
    micros: u64,
}

/// What several have counted together.
impl<'a> std::iter::Sum<&'a LatencyCounts> for LatencyCounts {
    fn sum<I: Iterator<Item = &'a LatencyCounts>>(counts: I) -> Self {
        counts.fold(Self::default(), |mut all, more| {
            all.merge(more);
            all
        })
    }
}

impl LatencyCounts {
    /// Counts `records` that took this long; longer than 71 minutes counts as that.
    pub fn add(&mut self, took: Duration, records: u64) {
        let one = Latencies::default();
        one.add(took, records);
        self.merge(&one.look());
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else {
            for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
                *count += more;
            }
        }
        self.micros = self.micros.wrapping_add(other.micros);
    }

    /// What was counted after `earlier`, a look at the same counts before this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut later = self.clone();
        for (count, before) in later.buckets.iter_mut().zip(&earlier.buckets) {
            *count = count.saturating_sub(*before);
        }
        later.micros = self.micros.saturating_sub(earlier.micros);
        later
    }

    /// Records counted.
    pub fn records(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// What all records took together.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// How long at most the quickest `share` (0 to 1) of the records took: the upper end of a bucket, so up to an
    /// eighth above the true value and never below it. `None` where nothing was counted.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let all = self.records();
        let wanted = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_micros(end_of(bucket)))
    }

    /// Records that took less than `bound`, which is exact where the bound is a power of two of microseconds.
    pub fn below(&self, bound: Duration) -> u64 {
        let bound = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
        self.buckets
            .iter()
            .enumerate()
            .take_while(|(bucket, _)| end_of(*bucket) <= bound)
            .map(|(_, n)| n)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut last = 0;
        for bucket in 0..BUCKETS {
            let end = end_of(bucket);
            assert!(end > last, "bucket {bucket}");
            assert_eq!((bucket_of(last), bucket_of(end - 1)), (bucket, bucket), "{last} to {end}");
            assert!((end - last) * 8 <= last.max(8), "{last} to {end} is too wide");
            last = end;
        }
        assert_eq!(last, 1 << 32);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn shares_are_of_records_and_never_below_the_truth() {
        let mut counts = LatencyCounts::default();
        assert_eq!(counts.quantile(0.5), None);
        counts.add(Duration::from_micros(100), 98);
        counts.add(Duration::from_millis(5), 1);
        counts.add(Duration::from_secs(2), 1);
        for (share, took) in [(0.0, 100), (0.5, 100), (0.98, 100), (0.99, 5_000), (1.0, 2_000_000)] {
            let shown = counts.quantile(share).unwrap().as_micros();
            assert!((took..=took + took / 8 + 1).contains(&shown), "{share}: {shown}, not {took}");
        }
        assert_eq!(counts.records(), 100);
        assert_eq!(counts.sum(), Duration::from_micros(98 * 100 + 5_000 + 2_000_000));
        assert_eq!(counts.below(Duration::from_micros(64)), 0);
        assert_eq!(counts.below(Duration::from_micros(128)), 98);
        assert_eq!(counts.below(Duration::from_micros(1 << 22)), 100);
    }

    #[test]
    fn what_came_since_a_look_stands_alone() {
        let mut before = LatencyCounts::default();
        before.add(Duration::from_secs(9), 1_000);
        let mut now = before.clone();
        assert_eq!(now.since(&before).quantile(0.5), None);
        now.add(Duration::from_micros(3), 1);
        assert_eq!(now.since(&before).quantile(0.5), Some(Duration::from_micros(4)));
        assert_eq!(now.since(&LatencyCounts::default()), now);
        assert_eq!(now.since(&before).sum(), Duration::from_micros(3));
    }
}
