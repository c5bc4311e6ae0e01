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

/// How much less than task time the time may be by which records are judged, where others hold it ([`Lateness::hold`]).
pub const CATCH_UP: Micros = 600_000_000;

/// Which records of a stream are late, and their treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// How far an event time may be below task time, microseconds.
    allowed: Micros,
    policy: LatePolicy,
    /// What is below it is late whatever `allowed` is: time moved on while that was smaller. As long as `allowed` is the
    /// same, `task time − allowed` is never below it.
    floor: Micros,
    /// Records are judged by this time where it is less than task time.
    held: Option<Micros>,
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
        Self { allowed, policy, floor: Micros::MIN, held: None }
    }

    /// With the time below which records were late for good at the last commit.
    #[must_use]
    pub fn with_floor(self, floor: Micros) -> Self {
        Self { floor, ..self }
    }

    /// Judges by `time` where that is less than task time, by at most [`CATCH_UP`]: records come from several places, and some
    /// of these are not as far as others.
    pub fn hold(&mut self, time: Micros) {
        self.held = self.held.max(Some(time));
    }

    /// The time by which records are judged at task time `now`: that, where others do not hold it. It never goes back, and
    /// whatever waits for a time waits for this one.
    pub fn reached(&self, now: Micros) -> Micros {
        self.held.map_or(now, |held| held.max(now.saturating_sub(CATCH_UP)).min(now))
    }

    /// The same less what is allowed.
    pub fn closed(&self, now: Micros) -> Micros {
        self.reached(now).saturating_sub(self.allowed)
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
        self.closed(now).max(self.floor)
    }

    /// A record of this time, when task time is `now` with the record itself.
    pub fn judge(&self, time: Micros, now: Micros) -> Timeliness {
        let bound = self.bound(now);
        if time >= bound {
            return Timeliness::InTime;
        }
        Timeliness::Late { taken_at: (!self.refuses()).then_some(bound), is_closed: time >= self.closed(now) }
    }
}

/// The record that a row comes from, as its sender counts: all rows that were made of one record have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub sender: u64,
    /// Where the record is in the sender's input: offset, and place in what has this offset.
    pub position: (u64, u32),
}

/// How rows that were made of one record are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// They follow each other under one order number, and no marker comes between them.
    Number(Seq),
    /// They may come at any time, in the order of their sender, before and after a restart.
    Origin(Origin),
}

/// The ids that were taken from the record at hand: of the last order number, and of the last record of each sender. There
/// are several where one record became several, and those are no duplicates of each other.
#[derive(Debug)]
pub struct TakenIds<K> {
    number: Taken<Seq, K>,
    /// The sender of whom a row came last is the last.
    senders: Vec<(u64, TakenOfSender<K>)>,
}

/// Ids of the record at a sender's position.
type TakenOfSender<K> = Taken<(u64, u32), K>;

/// Ids of the record at one place.
#[derive(Clone, Debug)]
struct Taken<P, K> {
    place: Option<P>,
    last: Option<K>,
    /// Those before the last one, where they differ.
    others: HashSet<K>,
}

impl<P, K> Default for Taken<P, K> {
    fn default() -> Self {
        Self { place: None, last: None, others: HashSet::new() }
    }
}

impl<P: PartialEq, K: Clone + Eq + Hash> Taken<P, K> {
    fn has(&self, place: P, key: &K) -> bool {
        self.place == Some(place) && (self.last.as_ref() == Some(key) || self.others.contains(key))
    }

    fn add(&mut self, place: P, key: &K) {
        if self.place.as_ref() == Some(&place) {
            self.others.extend(self.last.take());
        } else if !self.others.is_empty() {
            self.others.clear();
        }
        self.place = Some(place);
        match &mut self.last {
            // Most records are one each: the bytes of the id before make room for it.
            Some(last) => last.clone_from(key),
            None => self.last = Some(key.clone()),
        }
    }

    fn len(&self) -> usize {
        self.others.len() + usize::from(self.last.is_some())
    }
}

impl<K> Default for TakenIds<K> {
    fn default() -> Self {
        Self { number: Taken::default(), senders: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash> TakenIds<K> {
    /// Senders whose last record is remembered: as many as there are doors whose frames count.
    pub const MOST_SENDERS: usize = 1_024;

    /// Ids of one record of a sender that are remembered, the first ones. Another row with one of those after them is a
    /// duplicate.
    pub const MOST_IDS: usize = 4_096;

    pub fn has(&self, identity: Identity, key: &K) -> bool {
        match identity {
            Identity::Number(seq) => self.number.has(seq, key),
            Identity::Origin(Origin { sender, position }) => {
                let taken = self.senders.iter().rev().find(|(other, _)| *other == sender);
                taken.is_some_and(|(_, taken)| taken.has(position, key))
            }
        }
    }

    /// Takes an id that it has not. Numbers ascend, and positions of each sender.
    pub fn add(&mut self, identity: Identity, key: &K) {
        let Origin { sender, position } = match identity {
            Identity::Number(seq) => return self.number.add(seq, key),
            Identity::Origin(origin) => origin,
        };
        let taken = match self.senders.iter().rposition(|(other, _)| *other == sender) {
            Some(place) if place + 1 == self.senders.len() => None,
            Some(place) => Some(self.senders.remove(place)),
            None => {
                if self.senders.len() == Self::MOST_SENDERS {
                    self.senders.remove(0);
                }
                Some((sender, Taken::default()))
            }
        };
        self.senders.extend(taken);
        if let Some((_, taken)) = self.senders.last_mut()
            && (taken.place != Some(position) || taken.len() < Self::MOST_IDS)
        {
            taken.add(position, key);
        }
    }

    /// The last record of each sender and the ids that were taken from it, in no order: what a checkpoint keeps. The sender of
    /// whom a row came last is the last.
    pub fn of_senders(&self) -> impl Iterator<Item = (Origin, Vec<&K>)> {
        self.senders.iter().filter_map(|(sender, taken)| {
            let origin = Origin { sender: *sender, position: taken.place? };
            Some((origin, taken.others.iter().chain(&taken.last).collect()))
        })
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
            assert!(!taken.has(Identity::Number(7), &key));
            taken.add(Identity::Number(7), &key);
        }
        let has = |taken: &TakenIds<&str>, seq, key| taken.has(Identity::Number(seq), &key);
        assert!(["a", "b", "c"].iter().all(|key| has(&taken, 7, *key)));
        assert!(!has(&taken, 8, "c"), "another record has the id");
        taken.add(Identity::Number(8), &"d");
        assert!(has(&taken, 8, "d") && !has(&taken, 8, "a") && !has(&taken, 7, "a"));
        assert_eq!(taken.of_senders().count(), 0, "a marker comes between numbers");
    }

    fn from(sender: u64, offset: u64, place: u32) -> Identity {
        Identity::Origin(Origin { sender, position: (offset, place) })
    }

    #[test]
    fn ids_of_senders_are_those_of_the_last_record_of_each() {
        let mut taken = TakenIds::default();
        taken.add(from(1, 4, 0), &"a");
        taken.add(from(2, 4, 0), &"b");
        taken.add(from(1, 4, 0), &"c");
        assert!(
            taken.has(from(1, 4, 0), &"a")
                && taken.has(from(1, 4, 0), &"c")
                && taken.has(from(2, 4, 0), &"b")
        );
        assert!(!taken.has(from(2, 4, 0), &"a") && !taken.has(from(1, 4, 1), &"a"));
        assert!(!taken.has(Identity::Number(4), &"a"));
        taken.add(from(1, 4, 1), &"a");
        assert!(!taken.has(from(1, 4, 0), &"a") && taken.has(from(1, 4, 1), &"a"));
        let senders: Vec<u64> = taken.of_senders().map(|(origin, _)| origin.sender).collect();
        assert_eq!(senders, [2, 1], "the last one is the last");
    }

    #[test]
    fn what_is_remembered_of_senders_is_bounded() {
        let mut taken = TakenIds::default();
        for id in 0..TakenIds::<usize>::MOST_IDS + 5 {
            taken.add(from(0, 9, 0), &id);
        }
        assert!(taken.has(from(0, 9, 0), &(TakenIds::<usize>::MOST_IDS - 1)));
        assert!(!taken.has(from(0, 9, 0), &TakenIds::<usize>::MOST_IDS));
        for sender in 1..=TakenIds::<usize>::MOST_SENDERS as u64 {
            taken.add(from(sender, 1, 0), &0);
        }
        assert!(!taken.has(from(0, 9, 0), &0), "the one that was silent for longest is forgotten");
        assert_eq!(taken.of_senders().count(), TakenIds::<usize>::MOST_SENDERS);
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
