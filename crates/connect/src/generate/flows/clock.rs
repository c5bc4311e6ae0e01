//! Event times of made-up flows: the load follows the hours of the day, and still each time follows from the offset
//! alone.
//!
//! Records are evenly spaced on a clock of *work*, of which each day has as much as it has time. Within a day a slot of
//! five minutes takes work by its load, so work leads to time by a table of 289 bounds and a rule of three, and time to
//! work the other way round. All of it is in whole numbers, so that no platform makes other times.

use thalweg_types::{Micros, Offset};

use crate::generate::{below, random};

const DAY: Micros = 86_400_000_000;
const SLOTS: usize = 288;
const SLOT: Micros = DAY / SLOTS as Micros;
/// Slots of an hour.
const HOUR: u64 = 12;

/// Load at each hour (UTC), in percent of nothing in particular: quiet at four, busy at eight in the evening.
const LOAD: [u64; 24] = [
    74, 58, 46, 38, 34, 36, 44, 58, 76, 92, 102, 108, 112, 114, 116, 120, 126, 134, 144, 154, 160, 150, 126,
    98,
];

#[derive(Debug)]
pub(super) struct Clock {
    seed: u64,
    /// Mean time from one record to the next.
    gap: Micros,
    /// Work at the first record.
    start: Micros,
    /// Work of a day at the beginning of each slot, and at the day's end.
    bounds: [Micros; SLOTS + 1],
}

impl Clock {
    pub(super) fn new(seed: u64, gap: Micros, start: Micros) -> Self {
        let mut sums = [0_u64; SLOTS + 1];
        for slot in 0..SLOTS {
            let (hour, part) = (slot / HOUR as usize, slot as u64 % HOUR);
            let load = LOAD[hour] * (HOUR - part) + LOAD[(hour + 1) % 24] * part;
            sums[slot + 1] = sums[slot] + load;
        }
        let bounds = sums.map(|sum| (DAY as u64 * sum / sums[SLOTS]) as Micros);
        let mut clock = Self { seed, gap, start: 0, bounds };
        clock.start = clock.work(start);
        clock
    }

    /// When a record was sampled. Ascends with the offset; the place within its gap is by chance.
    pub(super) fn time(&self, offset: Offset) -> Micros {
        let jitter = below(random(self.seed, 0, offset), self.gap as u64);
        let since = offset.saturating_mul(self.gap as u64).saturating_add(jitter);
        // Half of the range is some 146,000 years.
        let work = self.start + (since.min(i64::MAX as u64 / 2)) as Micros;
        let (day, rest) = (work.div_euclid(DAY), work.rem_euclid(DAY));
        let slot = self.bounds.partition_point(|bound| *bound <= rest) - 1;
        let size = self.bounds[slot + 1] - self.bounds[slot];
        day * DAY + slot as Micros * SLOT + (rest - self.bounds[slot]) * SLOT / size
    }

    /// The least work whose time is not before `time`.
    fn work(&self, time: Micros) -> Micros {
        let (day, rest) = (time.div_euclid(DAY), time.rem_euclid(DAY));
        let slot = (rest / SLOT) as usize;
        let size = self.bounds[slot + 1] - self.bounds[slot];
        let part = (rest % SLOT * size + SLOT - 1) / SLOT;
        day * DAY + self.bounds[slot] + part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::BASE;

    #[test]
    fn a_day_of_work_takes_a_day() {
        for start in [BASE, BASE + 12_345_678_901, -1, 1] {
            let clock = Clock::new(1, 1_000_000, start);
            let (first, later) = (clock.time(0), clock.time(86_400));
            assert!((start..start + 4_000_000).contains(&first), "{first} for {start}");
            assert!((later - first - DAY).abs() < 4_000_000, "{later} for {start}");
        }
    }

    #[test]
    fn the_load_follows_the_hours_and_no_time_goes_back() {
        let clock = Clock::new(7, 50_000, BASE);
        let mut hours = [0_u32; 24];
        let mut before = i64::MIN;
        for offset in 0..1_728_000 {
            let time = clock.time(offset);
            assert!(time > before, "record {offset}");
            before = time;
            hours[((time - BASE) / 3_600_000_000 % 24) as usize] += 1;
        }
        let (low, high) = (hours.iter().min().unwrap(), hours.iter().max().unwrap());
        assert!(high / low >= 4, "{hours:?}");
        let place = |count| hours.iter().position(|hour| hour == count);
        assert_eq!((place(low), place(high)), (Some(4), Some(19)), "{hours:?}");
    }

    #[test]
    fn the_largest_offset_has_a_time() {
        assert!(Clock::new(1, 60_000_000, BASE).time(u64::MAX) > BASE);
    }
}
