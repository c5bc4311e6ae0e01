//! A job's own clock: what time it is for ticks and arrival stamps, made of both faces of a [`Clock`].
//!
//! It never goes back, and it goes on at the pace of the steady face whatever is done to the wall:
//!
//! | the wall, compared with the job's clock | the job's clock |
//! |---|---|
//! | at most [`NEAR`] apart | follows it, at half the steady pace at least and at twice at most |
//! | further ahead, since less than [`PATIENCE`] or moving | steady pace |
//! | further ahead, and there since [`PATIENCE`] | is set to the wall, once |
//! | further back | steady pace less one part in [`SLEW`], until the wall has caught up |
//!
//! So a wall that is wrong for less than a minute changes nothing. One that stays ahead is believed: a machine that booted
//! with a wrong clock gets it right when the network says so. A start believes a wall that is ahead at once, as nobody
//! waits for the job's clock then; no start goes back before the order log's last tick.
//!
//! Only what the sequencer writes into the order log of all this counts: a replay follows the log
//! ([`JobClock::follow`]) and looks at no clock.

use std::sync::{Arc, Mutex, PoisonError};

use thalweg_types::Micros;

use crate::clock::{Clock, Reading, SystemClock};

/// Steps of the wall up to this are followed, as NTP makes them; larger ones are jumps. Microseconds.
const NEAR: Micros = 1_000_000;

/// How long the wall has to stay ahead until it is believed, by the steady face. Microseconds.
const PATIENCE: Micros = 60_000_000;

/// A clock that is ahead loses one part in this number: no window notices, and a minute is worked off in 17 hours.
const SLEW: Micros = 1_000;

pub(crate) struct JobClock {
    clock: Arc<dyn Clock>,
    now: Micros,
    /// The last look of this run; `None` before the first, and while a log is followed.
    looked: Option<Reading>,
    /// The wall is ahead by more than [`NEAR`].
    away: Option<Away>,
    /// What a slew has not taken off yet, in parts of [`SLEW`].
    owed: Micros,
    jumps: u64,
    /// How long the wall has to stay ahead until it is believed, by the steady face.
    patience: Micros,
}

/// Where the wall is while it is too far ahead to be followed.
#[derive(Clone, Copy)]
struct Away {
    /// By the steady face.
    since: Micros,
    /// The wall less the steady face.
    skew: Micros,
}

/// Events that have to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The wall was set, by so much.
    Jumped { by: Micros },
    /// The wall has stayed where it was, and the job's clock has been set forward to it.
    Followed { by: Micros },
    /// At the start: the job has been at a time that the wall has not reached.
    StartsAhead { by: Micros },
}

impl JobClock {
    /// A clock that begins with the wall, or goes on from where a job was.
    pub(crate) fn new(clock: Arc<dyn Clock>, resumed_at: Option<Micros>) -> Self {
        let now = resumed_at.unwrap_or_else(|| clock.read().wall);
        Self { clock, now, looked: None, away: None, owed: 0, jumps: 0, patience: PATIENCE }
    }

    /// The time at the last look.
    pub(crate) fn now(&self) -> Micros {
        self.now
    }

    /// The steady face at the last look, or, where a log is followed, now.
    pub(crate) fn steady(&self) -> Micros {
        self.looked.unwrap_or_else(|| self.clock.read()).steady
    }

    /// The wall was set so often, as far as looks have shown.
    pub(crate) fn jumps(&self) -> u64 {
        self.jumps
    }

    /// How far this clock is ahead of the wall, negative where it is earlier, and of the steady face.
    pub(crate) fn ahead(&self) -> (Micros, Micros) {
        let seen = self.looked.unwrap_or_else(|| self.clock.read());
        (self.now.saturating_sub(seen.wall), self.now.saturating_sub(seen.steady))
    }

    /// Goes to a time that a log names, if that is later.
    pub(crate) fn follow(&mut self, time: Micros) {
        self.now = self.now.max(time);
        self.looked = None;
    }

    pub(crate) fn look(&mut self) -> Option<Notice> {
        let seen = self.clock.read();
        self.see(seen)
    }

    fn see(&mut self, seen: Reading) -> Option<Notice> {
        let Some(last) = self.looked.replace(seen) else {
            let by = self.now.saturating_sub(seen.wall);
            (self.now, self.away, self.owed) = (self.now.max(seen.wall), None, 0);
            return (by > NEAR).then_some(Notice::StartsAhead { by });
        };
        let passed = seen.steady.saturating_sub(last.steady).max(0);
        let step = seen.wall.saturating_sub(last.wall).saturating_sub(passed);
        let jumped = (step.saturating_abs() > NEAR).then_some(Notice::Jumped { by: step });
        self.jumps += u64::from(jumped.is_some());

        let goes_on = self.now.saturating_add(passed);
        let ahead = goes_on.saturating_sub(seen.wall);
        if ahead < -NEAR {
            let skew = seen.wall.saturating_sub(seen.steady);
            let away = self.away.filter(|away| skew.saturating_sub(away.skew).saturating_abs() <= NEAR);
            let away = away.unwrap_or(Away { since: seen.steady, skew });
            if seen.steady - away.since >= self.patience {
                (self.now, self.away) = (seen.wall, None);
                return Some(Notice::Followed { by: -ahead });
            }
            (self.now, self.away) = (goes_on, Some(away));
            return jumped;
        }
        self.away = None;
        self.now = if ahead > NEAR {
            self.owed += passed;
            let off = self.owed / SLEW;
            self.owed %= SLEW;
            goes_on - off
        } else {
            seen.wall.clamp(goes_on - passed / 2, goes_on.saturating_add(passed))
        };
        jumped
    }
}

/// The machine's wall for data that lives as long as the process, such as the age of a journal's blocks: taken for
/// wrong where a job's clock takes it so.
#[derive(Clone)]
pub struct PatientClock(Arc<Mutex<JobClock>>);

impl Default for PatientClock {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(JobClock::new(Arc::new(SystemClock), None))))
    }
}

impl PatientClock {
    /// A clock by which something is deleted: it goes on from where an earlier run was, if the wall is not before that,
    /// and believes a wall that is ahead after `patience`, at the start as later on.
    pub fn going_on_at(at: Option<Micros>, patience: Micros) -> Self {
        Self::over(Arc::new(SystemClock), at, patience)
    }

    fn over(clock: Arc<dyn Clock>, at: Option<Micros>, patience: Micros) -> Self {
        let seen = clock.read();
        let at = at.map_or(seen.wall, |at| at.min(seen.wall));
        let mut clock = JobClock::new(clock, Some(at));
        clock.patience = patience.max(PATIENCE);
        clock.looked = Some(Reading { wall: at, steady: seen.steady });
        Self(Arc::new(Mutex::new(clock)))
    }

    pub fn now(&self) -> Micros {
        let mut clock = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Jobs say what has happened to the wall.
        let _ = clock.look();
        clock.now()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ManualClock;

    const SECOND: Micros = 1_000_000;
    const MINUTE: Micros = 60 * SECOND;
    const YEAR: Micros = 365 * 86_400 * SECOND;
    const START: Micros = 1_700_000_000 * SECOND;

    fn at(wall: Micros) -> (Arc<ManualClock>, JobClock) {
        let clock = Arc::new(ManualClock::new(wall));
        let job = JobClock::new(Arc::clone(&clock) as Arc<dyn Clock>, None);
        (clock, job)
    }

    /// Lets time pass in steps of 100 ms, with a look after each; returns the notices.
    fn pass(clock: &ManualClock, job: &mut JobClock, time: Micros) -> Vec<Notice> {
        let mut said = Vec::new();
        for _ in 0..time / 100_000 {
            clock.advance(100_000);
            said.extend(job.look());
        }
        said
    }

    #[test]
    fn a_clock_that_deletes_doubts_a_wall_that_is_ahead_at_the_start() {
        const DAY: Micros = 24 * 60 * MINUTE;
        let wall = Arc::new(ManualClock::new(START + YEAR));
        let over = |at| PatientClock::over(Arc::clone(&wall) as Arc<dyn Clock>, at, DAY);
        assert_eq!(over(None).now(), START + YEAR);
        assert_eq!(
            over(Some(START + 2 * YEAR)).now(),
            START + YEAR,
            "what an earlier run believed was wrong"
        );
        let clock = over(Some(START));
        for _ in 0..23 {
            assert!(clock.now() < START + DAY);
            wall.advance(DAY / 24);
        }
        assert!(clock.now() < START + DAY);
        wall.advance(DAY / 12);
        assert!(clock.now() > START + YEAR, "it has stayed there");
    }

    #[test]
    fn it_is_the_wall_where_nobody_sets_that() {
        let (clock, mut job) = at(START);
        assert_eq!(job.look(), None);
        for step in [1, 3, 7, 99, 1_000, 10 * MINUTE, 86_400 * SECOND] {
            clock.advance(step);
            assert_eq!(job.look(), None);
            assert_eq!(job.now(), clock.read().wall);
        }
        assert_eq!((job.jumps(), job.ahead().0), (0, 0));
    }

    #[test]
    fn a_wall_that_is_a_year_ahead_for_one_second_changes_nothing() {
        let (clock, mut job) = at(START);
        job.look();
        assert_eq!(pass(&clock, &mut job, 10 * SECOND), []);
        clock.set_wall(START + 10 * SECOND + YEAR);
        assert_eq!(job.look(), Some(Notice::Jumped { by: YEAR }));
        assert_eq!(pass(&clock, &mut job, SECOND), []);
        assert_eq!(job.ahead().0, -YEAR);
        clock.set_wall(START + 11 * SECOND);
        assert_eq!(job.look(), Some(Notice::Jumped { by: -YEAR }));
        assert_eq!(pass(&clock, &mut job, 10 * SECOND), []);
        assert_eq!((job.now(), job.jumps(), job.ahead().0), (START + 21 * SECOND, 2, 0));
    }

    #[test]
    fn a_wall_that_stays_ahead_for_a_minute_is_followed() {
        let (clock, mut job) = at(0);
        job.look();
        clock.set_wall(START);
        assert_eq!(job.look(), Some(Notice::Jumped { by: START }));
        assert_eq!(pass(&clock, &mut job, MINUTE - 100_000), []);
        assert_eq!(job.now(), MINUTE - 100_000);
        assert_eq!(pass(&clock, &mut job, SECOND), [Notice::Followed { by: START }]);
        assert_eq!(job.now(), clock.read().wall);
    }

    #[test]
    fn a_minute_begins_anew_where_the_wall_is_set_again() {
        let (clock, mut job) = at(START);
        job.look();
        for _ in 0..10 {
            clock.set_wall(clock.read().wall + YEAR);
            assert_eq!(job.look(), Some(Notice::Jumped { by: YEAR }));
            assert_eq!(pass(&clock, &mut job, MINUTE - SECOND), []);
        }
        assert_eq!(job.now(), START + 10 * (MINUTE - SECOND));
    }

    #[test]
    fn a_wall_that_is_set_back_is_waited_for_at_hardly_less_than_the_steady_pace() {
        let (clock, mut job) = at(START);
        job.look();
        clock.set_wall(START - MINUTE);
        assert_eq!(job.look(), Some(Notice::Jumped { by: -MINUTE }));
        assert_eq!(pass(&clock, &mut job, 1_000 * SECOND), []);
        assert_eq!(job.now(), START + 999 * SECOND);
        assert_eq!(job.ahead().0, MINUTE - SECOND);
        let mut passed = 0;
        while job.ahead().0 > 0 {
            assert_eq!(pass(&clock, &mut job, 100 * SECOND), []);
            passed += 100;
            assert!(passed < 60_000, "it is still {} ahead", job.ahead().0);
        }
        assert_eq!(job.now(), clock.read().wall);
    }

    #[test]
    fn small_steps_are_worked_off_within_seconds() {
        for step in [SECOND, -SECOND, 1_000, -1_000] {
            let (clock, mut job) = at(START);
            job.look();
            clock.set_wall(START + step);
            assert_eq!((job.look(), job.now()), (None, START));
            assert_eq!(pass(&clock, &mut job, 2 * SECOND), []);
            assert_eq!((job.now(), job.jumps()), (START + step + 2 * SECOND, 0));
        }
    }

    #[test]
    fn a_start_goes_on_from_the_last_tick_and_says_how_far_ahead_that_is() {
        let clock = Arc::new(ManualClock::new(START));
        let mut job = JobClock::new(Arc::clone(&clock) as Arc<dyn Clock>, Some(START + YEAR));
        job.follow(START + YEAR + 5);
        assert_eq!(job.look(), Some(Notice::StartsAhead { by: YEAR + 5 }));
        pass(&clock, &mut job, MINUTE);
        assert_eq!(job.now(), START + YEAR + 5 + MINUTE / 1_000 * 999);
        // A wall that is ahead at a start is believed at once.
        let mut job = JobClock::new(Arc::clone(&clock) as Arc<dyn Clock>, Some(START - YEAR));
        assert_eq!(job.look(), None);
        assert_eq!(job.now(), clock.read().wall);
    }

    #[derive(Clone, Debug)]
    enum Event {
        /// Time passes, microseconds.
        Pass(Micros),
        /// The wall is set, by so much.
        Set(Micros),
    }

    fn event() -> impl Strategy<Value = Event> {
        let steps = prop_oneof![
            Just(YEAR),
            Just(-YEAR),
            -10 * SECOND..10 * SECOND,
            -SECOND..=SECOND,
            -YEAR..YEAR,
            Just(i64::MAX / 4),
        ];
        let pauses = prop_oneof![0..10_i64, 1_000..200_000_i64, Just(SECOND), Just(MINUTE), 0..2 * MINUTE];
        prop_oneof![3 => pauses.prop_map(Event::Pass), 1 => steps.prop_map(Event::Set)]
    }

    proptest! {
        /// Whatever is done to the wall: time never goes back, goes at half the steady pace at least and at twice at most,
        /// but for steps to a wall that was stable for a minute.
        #[test]
        fn it_keeps_pace(events in proptest::collection::vec(event(), 1..200), resumed in proptest::option::of(-YEAR..YEAR)) {
            let clock = Arc::new(ManualClock::new(START));
            let resumed = resumed.map(|by| START + by);
            let mut job = JobClock::new(Arc::clone(&clock) as Arc<dyn Clock>, resumed);
            job.look();
            let (mut set_at, mut wall_ahead_since) = (0, 0);
            for event in events {
                let (before, wall_before) = (job.now(), clock.read().wall);
                let passed = match event {
                    Event::Pass(by) => {
                        clock.advance(by);
                        by
                    }
                    Event::Set(by) => {
                        clock.set_wall((wall_before + by).clamp(0, i64::MAX / 2));
                        if (clock.read().wall - wall_before).abs() > NEAR {
                            set_at = clock.read().steady;
                        }
                        0
                    }
                };
                let notice = job.look();
                let took = job.now() - before;
                prop_assert!(took >= 0, "went back by {}", -took);
                if let Some(Notice::Followed { by }) = notice {
                    prop_assert!(clock.read().steady - set_at >= PATIENCE, "believed too soon");
                    prop_assert_eq!(job.now(), clock.read().wall);
                    prop_assert!(by > NEAR);
                } else {
                    // What a slew takes off is whole microseconds, of earlier time too.
                    prop_assert!(took + 1 >= passed - passed / 2, "{took} in {passed}");
                    prop_assert!(took <= 2 * passed, "{took} in {passed}");
                }
                // A wall that stays ahead is reached in the end.
                if clock.read().wall - job.now() <= NEAR || clock.read().steady <= set_at {
                    wall_ahead_since = clock.read().steady;
                }
                let waited = clock.read().steady - wall_ahead_since;
                prop_assert!(waited < 3 * PATIENCE + 4 * MINUTE, "the wall is ahead since {waited}");
            }
        }

        /// Records that come at a steady pace are in windows over arrival time as many as the pace says, whatever is done to
        /// the wall for less than a minute at a time.
        #[test]
        fn windows_over_arrival_hold_what_the_steady_pace_says(
            sets in proptest::collection::vec((0..600_usize, -YEAR..YEAR), 0..20),
        ) {
            let (clock, mut job) = at(START);
            job.look();
            let mut arrivals: Vec<Micros> = Vec::new();
            // Ten records a second for a minute; a window of 5 s, which ends between two of them.
            for tick in 0..600 {
                for (_, by) in sets.iter().filter(|(when, _)| *when == tick) {
                    clock.set_wall((clock.read().wall + by).max(0));
                    // Small steps are worked off at half or twice the pace, and this is not about them.
                    let off = clock.read().wall - job.now();
                    if off != 0 && off.abs() <= NEAR {
                        clock.set_wall(job.now());
                    }
                }
                clock.advance(100_000);
                job.look();
                arrivals.push(job.now());
                let from = job.now() - 5 * SECOND - 50_000;
                let count = arrivals.iter().filter(|time| **time > from).count();
                prop_assert_eq!(count, arrivals.len().min(51), "at {}", tick);
            }
        }
    }
}
