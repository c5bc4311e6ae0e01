//! What time it is for a table's retention. No clock is believed alone: a row is old where both the newest rows and the wall
//! say so.
//!
//! * The *wall* is believed at the pace of the steady face of the clock (`thalweg_flow::Clock`). One that is suddenly ahead,
//!   or was set while nothing ran, is believed after it has stayed there for [`patience`]; one that is earlier is
//!   believed at once, as nothing is deleted by that.
//! * The *newest time* is the largest event time that enough rows bear out. Rows that are further ahead of the wall than
//!   [`patience`] say nothing. Where fewer than one row in [`FEW`] of the sealed rows is newer than a hole, these wait
//!   until there are more: a sender with a wrong clock moves nothing.
//!
//! * While no rows come, the newest time goes on as the believed wall does, so that a table without new rows lets its old ones
//!   go, too.
//!
//! [`TableClock::now`] is the earlier of the two. It may go back, and then less is deleted.
//!
//! Here are decisions only; the keeper reads clocks and rows, and the manifest keeps the decisions.

use serde::{Deserialize, Serialize};
use thalweg_flow::Reading;
use thalweg_types::Micros;

const SECOND: Micros = 1_000_000;

/// Steps of the wall that are followed while the table is open, and from one run to the next.
const STEP: Micros = 10 * SECOND;
const PAUSE: Micros = 3_600 * SECOND;

/// Fewer than one row in this number, beyond a hole, do not move the clock.
const FEW: u64 = 4;

/// A hole is longer than this part of the retention, and than this number of times the holes before it, such as nights.
const HOLE: Micros = 16;
const USUAL: Micros = 2;

/// How long the wall has to stay ahead until it is believed, and how far ahead of it rows may be. Shorter for short
/// retentions, as all rows are kept meanwhile.
fn patience(retention: Micros) -> Micros {
    retention.clamp(60 * SECOND, 86_400 * SECOND)
}

/// The state of the clock. Persisted in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableClock {
    /// The wall as far as it is believed; `None` before the first look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wall: Option<Micros>,
    /// What the wall said when it was first seen ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ahead_since: Option<Micros>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newest: Option<Newest>,
    /// Rows beyond a hole after the newest time that were too few up to now.
    #[serde(default)]
    doubted: u64,
    /// The steady face at the last look of this run.
    #[serde(skip)]
    steady: Option<Micros>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Newest {
    time: Micros,
    /// How many rows bore it out.
    rows: u64,
    /// The wall, as far as it was believed, when they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<Micros>,
}

impl TableClock {
    /// Looks at the wall. `retention` is the shortest one of the table.
    pub(crate) fn look(&mut self, seen: Reading, retention: Micros) {
        let before = self.wall.unwrap_or(seen.wall);
        let passed = self.steady.map_or(0, |steady| seen.steady.saturating_sub(steady).max(0));
        let step = if self.steady.is_some() { STEP } else { PAUSE };
        self.steady = Some(seen.steady);
        let goes_on = before.saturating_add(passed);
        let since = self.ahead_since.filter(|since| *since <= seen.wall).unwrap_or(seen.wall);
        let is_believed =
            seen.wall <= goes_on.saturating_add(step) || seen.wall - since >= patience(retention);
        (self.wall, self.ahead_since) =
            if is_believed { (Some(seen.wall), None) } else { (Some(goes_on), Some(since)) };
        // It was believed by a wall that was wrong.
        if self.newest.is_some_and(|newest| newest.time > self.bound(retention)) {
            (self.newest, self.doubted) = (None, 0);
        }
    }

    /// Takes in the event times of the rows of one sealed file; how many of them are too far ahead of the wall.
    pub(crate) fn seal(&mut self, mut times: Vec<Micros>, retention: Micros) -> usize {
        let (all, bound) = (times.len(), self.bound(retention));
        times.retain(|time| *time <= bound);
        let ahead = all - times.len();
        times.sort_unstable();
        times.truncate(borne_out(&times, retention));
        let after = times.partition_point(|time| self.newest.is_some_and(|newest| *time <= newest.time));
        let (Some(first), Some(last)) = (times.get(after), times.last()) else { return ahead };
        let rows = (times.len() - after) as u64 + self.doubted;
        if let Some(newest) = self.newest
            && first.saturating_sub(newest.time) > retention / HOLE
            && rows.saturating_mul(FEW) < newest.rows
        {
            self.doubted = rows;
            return ahead;
        }
        let newest = Newest { time: *last, rows: times.len() as u64, seen: self.wall };
        (self.newest, self.doubted) = (Some(newest), 0);
        ahead
    }

    /// Begins with a table whose clock was not kept: the last times of its files, and their rows. Half of the rows
    /// have to be older than the newest time then.
    pub(crate) fn begin(&mut self, mut files: Vec<(Micros, u64)>, retention: Micros) {
        if self.newest.is_some() {
            return;
        }
        let bound = self.bound(retention);
        files.retain(|(last, _)| *last <= bound);
        files.sort_unstable();
        let all: u64 = files.iter().map(|(_, rows)| rows).sum();
        let (mut older, seen) = (0, self.wall);
        self.newest = files.into_iter().find_map(|(time, rows)| {
            older += rows;
            (2 * older >= all).then_some(Newest { time, rows: all, seen })
        });
    }

    /// The time from which ages are counted back; `None` where nothing says what time it is.
    pub(crate) fn now(&self) -> Option<Micros> {
        let (newest, wall) = (self.newest?, self.wall?);
        let quiet = newest.seen.map_or(0, |seen| wall.saturating_sub(seen).max(0));
        Some(newest.time.saturating_add(quiet).min(wall))
    }

    /// Rows that are newer than this are wrong.
    fn bound(&self, retention: Micros) -> Micros {
        self.wall.map_or(Micros::MIN, |wall| wall.saturating_add(patience(retention)))
    }
}

/// How many of the times, which ascend, are not beyond a hole with few of them.
fn borne_out(times: &[Micros], retention: Micros) -> usize {
    let all = times.len();
    // Fewer than one in `FEW` come after it.
    let few = (all - all.div_ceil(FEW as usize).saturating_sub(1).min(all)).max(1);
    let distance = |at: usize| times[at].saturating_sub(times[at - 1]);
    // Rows far in the past say nothing of how far apart rows are, so the later half is looked at.
    let mut usual = (few / 2 + 1..few).map(distance).max().unwrap_or(0);
    for at in few..all {
        let hole = distance(at);
        if hole > retention / HOLE && hole > usual.saturating_mul(USUAL) {
            return at;
        }
        usual = usual.max(hole);
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Micros = 60 * SECOND;
    const HOUR: Micros = 60 * MINUTE;
    const DAY: Micros = 24 * HOUR;
    const YEAR: Micros = 365 * DAY;
    const MONTH: Micros = 30 * DAY;
    /// 2023-11-14.
    const THEN: Micros = 1_700_000_000 * SECOND;
    const NOW: Micros = THEN + 3 * YEAR;

    fn clock(wall: Micros) -> TableClock {
        let mut clock = TableClock::default();
        clock.look(Reading { wall, steady: 0 }, MONTH);
        clock
    }

    fn sealed(seals: &[&[Micros]]) -> Option<Micros> {
        let mut clock = clock(NOW);
        for times in seals {
            clock.seal(times.to_vec(), MONTH);
        }
        clock.now()
    }

    #[test]
    fn rows_say_what_time_it_is_and_few_that_leap_do_not() {
        let seconds: Vec<Micros> = (0..40).map(|n| THEN + n * SECOND).collect();
        let last = THEN + 39 * SECOND;
        let with = |more: &[Micros]| [&seconds[..], more].concat();
        for (what, seals, expected) in [
            ("what there is", vec![seconds.clone()], Some(last)),
            ("one that is ahead of the wall", vec![with(&[THEN + 77 * YEAR])], Some(last)),
            ("one that is not", vec![with(&[THEN + 2 * YEAR])], Some(last)),
            (
                "several, each its own",
                vec![with(&[THEN + YEAR, THEN + 2 * YEAR, THEN + 20 * DAY])],
                Some(last),
            ),
            ("one in a file of its own", vec![seconds.clone(), vec![THEN + YEAR]], Some(last)),
            (
                "one ahead of the wall in a file of its own",
                vec![seconds.clone(), vec![THEN + 77 * YEAR]],
                Some(last),
            ),
            ("nothing but what is ahead of the wall", vec![vec![THEN + 77 * YEAR]], None),
            ("one that comes first", vec![vec![THEN + 77 * YEAR], seconds.clone()], Some(last)),
            ("old ones", vec![with(&[0, THEN - YEAR])], Some(last)),
            (
                "hours of business",
                vec![(0..480).map(|n| THEN + n / 8 * DAY + n % 8 * HOUR).collect()],
                Some(THEN + 59 * DAY + 7 * HOUR),
            ),
            ("a week apart", vec![(0..10).map(|n| THEN + n * 7 * DAY).collect()], Some(THEN + 63 * DAY)),
            ("a day apart", vec![(0..10).map(|n| THEN + n * DAY).collect()], Some(THEN + 9 * DAY)),
            (
                "bursts that are years apart",
                vec![seconds.clone(), seconds.iter().map(|time| time + YEAR).collect()],
                Some(last + YEAR),
            ),
            (
                "a hole, and more and more after it",
                vec![seconds.clone(), vec![THEN + YEAR; 5], vec![THEN + YEAR + DAY; 5]],
                Some(THEN + YEAR + DAY),
            ),
            ("a little ahead of the wall", vec![vec![NOW + HOUR]], Some(NOW)),
        ] {
            let seals: Vec<&[Micros]> = seals.iter().map(Vec::as_slice).collect();
            assert_eq!(sealed(&seals), expected, "{what}");
        }
    }

    #[test]
    fn a_wall_that_leaps_is_believed_when_it_has_stayed_there() {
        let mut clock = clock(NOW);
        clock.seal(vec![NOW - SECOND; 100], MONTH);
        let mut steady = 0;
        let mut look = |clock: &mut TableClock, wall, passed| {
            steady += passed;
            clock.look(Reading { wall, steady }, MONTH);
            clock.wall.unwrap()
        };
        let ahead = NOW + 74 * YEAR;
        assert_eq!(look(&mut clock, ahead, SECOND), NOW + SECOND);
        // What is written by the wrong clock.
        clock.seal(vec![ahead; 100_000], MONTH);
        assert_eq!(clock.now(), Some(NOW), "the time that has passed");
        let back = NOW + 3 * SECOND;
        assert_eq!(look(&mut clock, back, SECOND), back, "back again");
        assert_eq!(look(&mut clock, ahead, 0), back);
        assert_eq!(look(&mut clock, ahead + DAY - 1, DAY - 1), back + DAY - 1, "anew");
        assert_eq!(look(&mut clock, ahead + DAY, 1), ahead + DAY);
        clock.seal(vec![ahead + DAY; 100], MONTH);
        assert_eq!(clock.now(), Some(ahead + DAY));
        assert_eq!(look(&mut clock, NOW + DAY, SECOND), NOW + DAY, "an earlier one is believed at once");
        assert_eq!(clock.now(), None, "rows said what only a wrong wall bore out");
    }

    #[test]
    fn time_goes_on_while_no_rows_come() {
        for (newest, expected) in [(NOW - SECOND, NOW + 40 * DAY - SECOND), (THEN, THEN + 40 * DAY)] {
            let mut clock = clock(NOW);
            clock.seal(vec![newest; 10], MONTH);
            for day in 1..=40 {
                clock.look(Reading { wall: NOW + day * DAY, steady: day * DAY }, MONTH);
            }
            assert_eq!(clock.now(), Some(expected));
            let kept = serde_json::to_string(&clock).unwrap();
            let clock: TableClock = serde_json::from_str(&kept).unwrap();
            assert_eq!(clock.now(), Some(expected), "after a restart");
            let of_an_older_build = kept.replace(&format!(",\"seen\":{NOW}"), "");
            assert_ne!(of_an_older_build, kept);
            let clock: TableClock = serde_json::from_str(&of_an_older_build).unwrap();
            assert_eq!(clock.now(), Some(newest));
        }
    }

    #[test]
    fn a_pause_of_hours_is_believed_after_a_day_and_a_short_one_at_once() {
        for (pause, believed) in [(HOUR, NOW + HOUR), (2 * HOUR, NOW), (YEAR, NOW)] {
            let kept = serde_json::to_string(&clock(NOW)).unwrap();
            let mut clock: TableClock = serde_json::from_str(&kept).unwrap();
            clock.look(Reading { wall: NOW + pause, steady: 7 }, MONTH);
            assert_eq!(clock.wall, Some(believed));
            // From one short run to the next.
            let kept = serde_json::to_string(&clock).unwrap();
            let mut clock: TableClock = serde_json::from_str(&kept).unwrap();
            clock.look(Reading { wall: NOW + pause + DAY, steady: 5 }, MONTH);
            assert_eq!(clock.wall, Some(if pause == HOUR { NOW + HOUR } else { NOW + pause + DAY }));
        }
    }

    #[test]
    fn a_table_of_an_older_build_begins_with_what_half_of_its_rows_say() {
        let mut clock = clock(NOW);
        clock.begin(vec![(THEN + 77 * YEAR, 3), (THEN + 2 * YEAR, 3), (THEN, 60), (THEN + DAY, 60)], MONTH);
        assert_eq!(clock.now(), Some(THEN + DAY));
        clock.begin(vec![(NOW, 1)], MONTH);
        assert_eq!(clock.now(), Some(THEN + DAY), "once");
    }

    proptest! {
        /// Whatever a minority of stamps says, in whatever files, rows are as old as the others make them.
        #[test]
        fn few_wrong_stamps_change_nothing(
            files in prop::collection::vec((20_usize..200, prop::collection::vec(DAY * 2..80 * YEAR, 0..4)), 1..8),
        ) {
            let mut clock = clock(NOW);
            let mut time = THEN;
            for (rows, wrong) in files {
                let mut times: Vec<Micros> = (0..rows).map(|_| { time += SECOND; time }).collect();
                times.extend(wrong.iter().map(|ahead| time + ahead));
                clock.seal(times, MONTH);
                prop_assert_eq!(clock.now(), Some(time));
            }
        }

        /// Nothing that walls and rows say lets the clock be ahead of both.
        #[test]
        fn it_is_never_ahead_of_the_wall_or_of_what_has_passed_since_the_newest_rows(
            steps in prop::collection::vec((0..YEAR, 0..2 * DAY, prop::collection::vec(0..2 * YEAR, 0..5)), 1..20),
        ) {
            let mut clock = TableClock::default();
            let (mut steady, mut newest, mut lowest) = (0, Micros::MIN, Micros::MAX);
            for (wall, passed, times) in steps {
                steady += passed;
                clock.look(Reading { wall, steady }, MONTH);
                newest = times.iter().copied().fold(newest, Micros::max);
                clock.seal(times, MONTH);
                prop_assert!(clock.wall <= Some(wall));
                // A wall that is set back and goes on again has passed time since its lowest.
                lowest = lowest.min(wall);
                let passed = (wall - lowest).max(steady);
                prop_assert!(clock.now().is_none_or(|now| now <= wall && now <= newest.saturating_add(passed)));
            }
        }
    }
}
