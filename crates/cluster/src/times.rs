//! What time it is for a stage that others send to.
//!
//! Its own task time is that of the newest row, from whichever unit. A unit that was away for a while sends what it has
//! missed later than others send theirs, so rows of it would be late by the stage's own time. So the stage judges by the
//! *least* of the task times that the units which send to it have told (cluster rules, 7). One of which nothing has come
//! yet holds it as far back as it goes, and one that has been silent for [`CATCH_UP`] does not hold it any more. Doors have
//! no such time: each record comes from one when it comes.
//!
//! The time that is held moves in steps of [`STEP`], so that receivers need not be told of each row.
//!
//! Invariants
//! * What is held is a function of the frames in their order, and never goes back.
//!
//! Not here: by how much it may be less than a stage's own time ([`thalweg_types::Lateness::hold`]).

use std::collections::BTreeMap;

use thalweg_types::{CATCH_UP, Micros};

use crate::positions::Origin;
use crate::rules::{Rule, holds};

/// Steps of what is held.
pub const STEP: Micros = 100_000;

/// What a unit that sends has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The greatest task time.
    pub time: Micros,
    /// When the last frame with one was appended.
    pub heard: Micros,
}

/// The task times of the units that send to a stage. Part of its checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    units: BTreeMap<Origin, Told>,
    held: Option<Micros>,
}

impl Times {
    /// The time by which rows are judged: not above the task time of a unit that sends; `None` before the first frame of one.
    pub fn held(&self) -> Option<Micros> {
        self.held
    }

    /// The same after a frame that counts, of one of so many `senders`, which was appended at `appended`; nothing is changed.
    pub fn after(
        &self,
        senders: u32,
        origin: Origin,
        time: Option<Micros>,
        appended: Micros,
    ) -> Option<Micros> {
        let (Origin::Unit { .. }, Some(time)) = (origin, time) else { return self.held };
        let told = self.told(origin, time, appended);
        let unheard = Told { time: Micros::MIN, heard: appended };
        let unheard = (self.units.is_empty() && senders > 1 && holds(Rule::UnheardHold)).then_some(unheard);
        let others = self.units.iter().filter(|(other, _)| **other != origin).map(|(_, told)| *told);
        let others = others.chain(unheard);
        let is_heard =
            |told: &Told| !holds(Rule::SilentDoNotHold) || appended.saturating_sub(told.heard) < CATCH_UP;
        let times = others.filter(is_heard).chain([told]).map(|told| told.time);
        let least = if holds(Rule::LeastTimeHolds) { times.min() } else { times.max() };
        let step = least.map(|least| least.div_euclid(STEP).saturating_mul(STEP));
        if holds(Rule::HeldNeverGoesBack) { step.max(self.held) } else { step }
    }

    /// Takes a frame that counts, of one of so many `senders`: the partitions of the stage that sends.
    pub fn take(&mut self, senders: u32, origin: Origin, time: Option<Micros>, appended: Micros) {
        self.held = self.after(senders, origin, time, appended);
        if let (Origin::Unit { stage, .. }, Some(time)) = (origin, time) {
            if self.units.is_empty() && holds(Rule::UnheardHold) {
                let unheard = Told { time: Micros::MIN, heard: appended };
                let all = (0..senders).map(|partition| (Origin::Unit { stage, partition }, unheard));
                self.units.extend(all);
            }
            self.units.insert(origin, self.told(origin, time, appended));
        }
    }

    fn told(&self, origin: Origin, time: Micros, appended: Micros) -> Told {
        let before = self.units.get(&origin);
        Told {
            time: before.map_or(time, |told| told.time.max(time)),
            heard: before.map_or(appended, |told| told.heard.max(appended)),
        }
    }

    /// What units have told, in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Origin, Told)> + '_ {
        self.units.iter().map(|(origin, told)| (*origin, *told))
    }

    /// Goes on from what [`Times::iter`] and [`Times::held`] gave.
    pub fn restored(units: impl IntoIterator<Item = (Origin, Told)>, held: Option<Micros>) -> Self {
        Self { units: units.into_iter().collect(), held }
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::rules::without;

    const SECOND: Micros = 1_000_000;

    fn unit(partition: u32) -> Origin {
        Origin::Unit { stage: 0, partition }
    }

    #[test]
    fn the_unit_that_is_least_far_holds_until_it_has_been_silent_for_long() {
        let mut times = Times::default();
        let door = Origin::Door { incarnation: 1 };
        times.take(2, door, Some(SECOND), 0);
        assert_eq!(times.held(), None, "doors hold nothing");
        times.take(2, unit(0), Some(60 * SECOND + 7), 0);
        assert!(times.held() < Some(0), "nothing has come of the other one");
        times.take(2, unit(1), Some(60 * SECOND), 0);
        assert_eq!(times.held(), Some(60 * SECOND));
        times.take(2, unit(0), Some(90 * SECOND), SECOND);
        assert_eq!(times.held(), Some(60 * SECOND));
        times.take(2, unit(1), Some(70 * SECOND), SECOND);
        assert_eq!(times.held(), Some(70 * SECOND));
        times.take(2, unit(0), Some(100 * SECOND), SECOND + CATCH_UP);
        assert_eq!(times.held(), Some(100 * SECOND), "nothing was heard of the other one for too long");
    }

    /// Four units, of which one begins later, is away for a while now and then, and sends what it has missed then; of the
    /// last one nothing ever comes. The former one is away for very long once. Says what is wrong.
    fn away(seed: u64) -> Result<(), String> {
        let mut rng = Rng::with_seed(seed);
        let (mut times, mut sent) = (Times::default(), [0; 3]);
        let mut back = 0;
        for second in 0..2_000_i64 {
            for (partition, sent) in (0..).zip(&mut sent) {
                // The last one is away now and then; once for good.
                let is_away =
                    partition == 2 && (second < 20 || second % 100 > 70 || (1_000..1_800).contains(&second));
                if is_away || rng.u8(..) < 10 {
                    continue;
                }
                while *sent < second {
                    *sent += rng.i64(1..=(second - *sent).max(1));
                    let before = times.held();
                    times.take(4, unit(partition), Some(*sent * SECOND), second * SECOND);
                    // After so long its rows may be late.
                    if partition == 2
                        && second < 1_000
                        && times.held().is_some_and(|held| held > *sent * SECOND)
                    {
                        back += 1;
                    }
                    if times.held() < before {
                        return Err(format!("{second}: what is held went back"));
                    }
                    let kept: Vec<_> = times.iter().collect();
                    if Times::restored(kept, times.held()) != times {
                        return Err("it does not go on as it was".to_owned());
                    }
                }
            }
        }
        if back > 0 {
            return Err(format!("{back} rows of the one that was away are late"));
        }
        match times.held() {
            Some(held) if held > 1_900 * SECOND => Ok(()),
            held => Err(format!("one that is away for good holds all: {held:?}")),
        }
    }

    #[test]
    fn nobody_makes_another_one_late() {
        for seed in 0..50 {
            away(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }

    #[test]
    fn each_rule_of_time_that_is_taken_away_is_missed() {
        for (rule, text) in [
            (Rule::LeastTimeHolds, "are late"),
            (Rule::UnheardHold, "are late"),
            (Rule::SilentDoNotHold, "for good holds all"),
            (Rule::HeldNeverGoesBack, "went back"),
        ] {
            let found = (0..50).find_map(|seed| without(Some(rule), || away(seed)).err());
            let found = found.unwrap_or_else(|| panic!("{rule:?}: nothing goes wrong"));
            assert!(found.contains(text), "{rule:?}: {found}");
        }
    }
}
