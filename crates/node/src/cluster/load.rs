//! How much work a unit is: rows a second that its log brings.
//!
//! Not those that the unit takes: one that catches up takes an hour of them in a second, and would look like the heaviest of
//! all just when it has moved. So rows count over the time that lies between their messages in the log.

use std::time::Duration;

use thalweg_types::Micros;

/// Seconds: what is older counts little.
const MEMORY: f64 = 60.0;

/// Rows are counted together until they cover so many seconds.
const LEAST: f64 = 0.25;

/// The rate of one log, as a mean in which the last [`MEMORY`] seconds have most of the weight.
#[derive(Debug)]
pub(super) struct Load {
    rate: f64,
    rows: u64,
    appended: Micros,
    /// Seconds since `rows` were counted.
    passed: f64,
}

impl Load {
    /// Begins with the rate that is known, in rows a second, and what the unit has read: rows, and the time of its last message
    /// (0 for none).
    pub(super) fn new(known: u64, rows: u64, appended: Micros) -> Self {
        Self { rate: known as f64, rows, appended, passed: 0.0 }
    }

    /// Rows a second, by what the unit has read now, `passed` after the last look; `at_end` where nothing waits for it.
    pub(super) fn look(&mut self, rows: u64, appended: Micros, passed: Duration, at_end: bool) -> u64 {
        if self.appended == 0 {
            // Nobody knows when the messages before the first one would have come.
            (self.rows, self.appended, self.passed) = (rows, appended, 0.0);
            return self.rate as u64;
        }
        self.passed += passed.as_secs_f64();
        let between = appended.saturating_sub(self.appended).max(0) as f64 / 1e6;
        // At the end of a log it is known that no more has come.
        let covered = if at_end { between.max(self.passed) } else { between };
        if covered >= LEAST {
            let rate = rows.saturating_sub(self.rows) as f64 / covered;
            self.rate += (rate - self.rate) * covered / (covered + MEMORY);
            (self.rows, self.appended, self.passed) = (rows, appended, 0.0);
        }
        self.rate as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    fn looks(load: &mut Load, count: u64, rows: u64) -> u64 {
        let (first, from) = (load.rows, load.appended);
        (1..=count)
            .map(|n| {
                let appended = from + n as Micros * SECOND / 2;
                load.look(first + n * rows / 2, appended, Duration::from_millis(500), true)
            })
            .last()
            .expect("some looks")
    }

    #[test]
    fn an_even_rate_is_told_after_some_minutes() {
        let mut load = Load::new(0, 0, SECOND);
        let told = looks(&mut load, 600, 1_000);
        assert!((985..=1_000).contains(&told), "{told}");
        assert_eq!(looks(&mut load, 1_200, 0), 0, "nothing comes any more");
    }

    #[test]
    fn a_unit_that_catches_up_has_the_rate_of_its_log() {
        // An hour of a log with 100 rows a second, read within seconds; the rate was known from the node before.
        let mut load = Load::new(100, 0, SECOND);
        for n in 1..=36_u64 {
            let appended = SECOND + n as Micros * 100 * SECOND;
            let told = load.look(n * 100 * 100, appended, Duration::from_millis(500), false);
            assert!((99..=101).contains(&told), "{told}");
        }
    }

    #[test]
    fn what_a_start_reads_at_once_is_no_rate() {
        let mut load = Load::new(100, 0, 0);
        assert_eq!(load.look(360_000, SECOND, Duration::from_millis(500), true), 100);
        assert_eq!(load.look(360_050, SECOND * 3 / 2, Duration::from_millis(500), true), 100);
    }

    #[test]
    fn one_that_does_not_get_on_keeps_the_rate_that_is_known() {
        let mut load = Load::new(100, 500, SECOND);
        for _ in 0..100 {
            assert_eq!(load.look(500, SECOND, Duration::from_millis(500), false), 100);
        }
    }

    #[test]
    fn a_burst_is_a_part_of_a_minute() {
        let mut load = Load::new(100, 0, SECOND);
        let told = load.look(1_000, 2 * SECOND, Duration::from_secs(1), true);
        assert!((110..=120).contains(&told), "{told}");
    }
}
