//! The rule of late records, which windows and elements share.
//!
//! *Task time* is the largest event time of all records that a task has taken, so a late record never moves it.

use std::collections::HashSet;
use std::hash::Hash;

use crate::{Micros, Seq};

/// The treatment of late records: those whose event time is further below task time than the stream's `lateness`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePolicy {
    /// Not added; one line in rejects.
    #[default]
    Reject,
    /// Counted at the bound: the oldest time that is not late.
    Clamp,
}

/// Which records of a stream are late, and their treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// How far an event time may be below task time, microseconds.
    allowed: Micros,
    policy: LatePolicy,
    /// What is below it is late whatever `allowed` is: time moved on while that was smaller. As long as `allowed` is the
    /// same, `task time − allowed` is never below it.
    floor: Micros,
}

/// A record as [`Lateness`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeliness {
    InTime,
    Late {
        /// The time at which it is taken; `None` where it is refused.
        taken_at: Option<Micros>,
        /// It is within `lateness`, and below what a smaller one, before a restart, has closed.
        is_closed: bool,
    },
}

impl Lateness {
    pub fn new(allowed: Micros, policy: LatePolicy) -> Self {
        Self { allowed, policy, floor: Micros::MIN }
    }

    /// With the time below which records were late for good at the last commit.
    #[must_use]
    pub fn with_floor(self, floor: Micros) -> Self {
        Self { floor, ..self }
    }

    pub fn allowed(&self) -> Micros {
        self.allowed
    }

    pub fn floor(&self) -> Micros {
        self.floor
    }

    /// Whether late records are refused.
    pub fn refuses(&self) -> bool {
        self.policy == LatePolicy::Reject
    }

    /// At task time `now`, the oldest time that is not late; records below it are late after a restart with any other
    /// `lateness`, too.
    pub fn bound(&self, now: Micros) -> Micros {
        now.saturating_sub(self.allowed).max(self.floor)
    }

    /// A record of this time, when task time is `now` with the record itself.
    pub fn judge(&self, time: Micros, now: Micros) -> Timeliness {
        let bound = self.bound(now);
        if time >= bound {
            return Timeliness::InTime;
        }
        Timeliness::Late {
            taken_at: (!self.refuses()).then_some(bound),
            is_closed: time >= now.saturating_sub(self.allowed),
        }
    }
}

/// The ids that were taken under the order number at hand. There are several where one record became several, and those are
/// no duplicates of each other.
#[derive(Debug)]
pub struct TakenIds<K> {
    seq: Option<Seq>,
    last: Option<K>,
    /// Those before the last one, where they differ.
    others: HashSet<K>,
}

impl<K> Default for TakenIds<K> {
    fn default() -> Self {
        Self { seq: None, last: None, others: HashSet::new() }
    }
}

impl<K: Clone + Eq + Hash> TakenIds<K> {
    pub fn has(&self, seq: Seq, key: &K) -> bool {
        self.seq == Some(seq) && (self.last.as_ref() == Some(key) || self.others.contains(key))
    }

    /// Takes an id that it has not; numbers ascend.
    pub fn add(&mut self, seq: Seq, key: &K) {
        if self.seq == Some(seq) {
            self.others.extend(self.last.take());
        } else if !self.others.is_empty() {
            self.others.clear();
        }
        self.seq = Some(seq);
        match &mut self.last {
            // Most records are one each: the bytes of the id before make room for it.
            Some(last) => last.clone_from(key),
            None => self.last = Some(key.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn late(taken_at: Option<Micros>, is_closed: bool) -> Timeliness {
        Timeliness::Late { taken_at, is_closed }
    }

    #[test]
    fn what_is_below_the_bound_is_refused_or_taken_at_it() {
        let rule = Lateness::new(5, LatePolicy::Reject);
        assert_eq!(rule.judge(5, 10), Timeliness::InTime, "the bound itself is not late");
        assert_eq!(rule.judge(4, 10), late(None, false));
        let rule = Lateness::new(5, LatePolicy::Clamp);
        assert_eq!(rule.judge(4, 10), late(Some(5), false));
    }

    #[test]
    fn what_a_smaller_lateness_has_closed_stays_late() {
        let rule = Lateness::new(50, LatePolicy::Clamp).with_floor(95);
        assert_eq!(rule.judge(94, 100), late(Some(95), true));
        assert_eq!(rule.judge(95, 100), Timeliness::InTime);
        assert_eq!(rule.judge(96, 150), late(Some(100), false), "the larger lateness has reached it");
    }

    #[test]
    fn a_bound_below_all_times_is_the_least_time() {
        let rule = Lateness::new(Micros::MAX, LatePolicy::Reject);
        assert_eq!(rule.judge(Micros::MIN, -1), Timeliness::InTime);
        assert_eq!(rule.bound(Micros::MIN + 1), Micros::MIN);
    }

    #[test]
    fn ids_are_those_of_one_order_number() {
        let mut taken = TakenIds::default();
        for key in ["a", "b", "c"] {
            assert!(!taken.has(7, &key));
            taken.add(7, &key);
        }
        assert!(["a", "b", "c"].iter().all(|key| taken.has(7, key)));
        assert!(!taken.has(8, &"c"), "another record has the id");
        taken.add(8, &"d");
        assert!(taken.has(8, &"d") && !taken.has(8, &"a") && !taken.has(7, &"a"));
    }

    proptest! {
        /// Task time and bound only grow, a record that is taken counts at or above the bound, and a record that is
        /// late once stays late.
        #[test]
        fn bounds_only_grow(allowed in 0..40_i64, floor in -50..50_i64, times in prop::collection::vec(-60..60_i64, 1..50)) {
            let rule = Lateness::new(allowed, LatePolicy::Clamp).with_floor(floor);
            let mut now = floor;
            for time in times {
                let before = rule.bound(now);
                let next = now.max(time);
                let at = match rule.judge(time, next) {
                    Timeliness::InTime => time,
                    Timeliness::Late { taken_at, .. } => taken_at.unwrap(),
                };
                prop_assert!(rule.bound(next) >= before && at >= rule.bound(next) && at <= next);
                prop_assert_eq!(at == time, time >= rule.bound(next));
                now = next;
            }
        }
    }
}
