//! The numbers that agents give their datagrams, followed to see which never came.
//!
//! Agent and sub-agent do not identify the counter: line cards number by themselves under one address, and after a
//! restart numbers begin anew. So there are several *runs* of numbers, and a datagram belongs to the nearest run that
//! it can be of: its uptime has gone on about as long as the clock of the receiver, and no more numbers lie between
//! than an agent can send in that time. One that is of no run begins a run, and nothing before it was lost.
//!
//! Numbers that are passed over count as lost at once. Where they are many, the run is left where it is and another one
//! begins after the gap, which counts when that one goes on. If the first one goes on nevertheless, the second one was
//! another engine, or a number with a flipped bit, and the gap is taken back. After a run of a single datagram, which
//! may be such a number itself, a long gap counts nothing.
//!
//! Runs are bounded, for one agent and for all: the one that has been silent for longest makes room.

use std::collections::BTreeMap;

use thalweg_types::Micros;

use super::datagram::Head;
use super::xdr::Address;

/// Runs that are followed, of all agents.
const MAX_RUNS: usize = 262_144;

/// Runs of one agent and sub-agent.
const MAX_RUNS_OF_ONE: usize = 32;

/// A datagram that is fewer than this many numbers before the newest is late; one further back begins a run.
const REORDERED: u32 = 1_000;

/// Numbers before the newest of which it is known whether they came. As many that are missing at once begin another
/// run.
const KNOWN: u32 = 64;

/// Uptime and the receiver's clock may differ by so much, in milliseconds.
const LATE_BY: i64 = 60_000;

/// Datagrams that an engine can send in a millisecond: more than a gigabit a second of them.
const MOST_A_MILLISECOND: i64 = 100;

/// Numbers that may be missing whatever the clocks say: there are agents whose uptime does not advance.
const MISSING_AT_ONCE: i64 = 1_000;

/// The runs of all agents.
#[derive(Debug, Default)]
pub(super) struct Engines {
    /// By agent and sub-agent, those that were heard last first.
    runs: BTreeMap<(Address, u32), Vec<Run>>,
    count: usize,
    /// Of the run that begins next.
    next_name: u64,
}

/// Numbers that one engine gave.
#[derive(Clone, Copy, Debug)]
struct Run {
    name: u64,
    /// Of its newest datagram.
    sequence: u32,
    uptime: u32,
    time: Micros,
    /// Which of the numbers before it have come: bit 0 is the number itself.
    came: u64,
    /// Nothing has gone on with it yet: its number may be a wrong one.
    is_alone: bool,
    /// The run that this one seemed to go on with, and how many numbers were missing between them.
    after: Option<(u64, u32)>,
}

impl Run {
    /// How far a datagram is ahead of the newest, negative if it is older; `None` where it cannot be of this run.
    fn distance(&self, head: &Head, time: Micros) -> Option<i64> {
        // Both go round.
        let ahead = i64::from(head.sequence.wrapping_sub(self.sequence).cast_signed());
        let uptime = i64::from(head.uptime.wrapping_sub(self.uptime).cast_signed());
        let clock = (time.saturating_sub(self.time) / 1_000).max(0);
        let fits = (-LATE_BY..=clock.saturating_add(LATE_BY)).contains(&uptime);
        let could_send = uptime.clamp(0, clock.max(0)) * MOST_A_MILLISECOND + MISSING_AT_ONCE;
        (fits && ahead > -i64::from(REORDERED) && ahead <= could_send).then_some(ahead)
    }

    /// Numbers between the run that this one seems to go on with and its beginning.
    fn missing(&self) -> i64 {
        self.after.map_or(0, |(_, missing)| i64::from(missing))
    }
}

impl Engines {
    /// How many datagrams are missing before this one, which came at `time`; below zero where some that were counted
    /// are not.
    pub(super) fn gap(&mut self, agent: Address, head: &Head, time: Micros) -> i64 {
        let runs = self.runs.entry((agent, head.sub_agent)).or_default();
        let nearest = runs
            .iter()
            .enumerate()
            .filter_map(|(place, run)| Some((run.distance(head, time)?, place)))
            .min_by_key(|(distance, place)| (distance.abs(), *place));
        let mut begin = |runs: &mut Vec<Run>, after: Option<(u64, u32)>| {
            if runs.len() == MAX_RUNS_OF_ONE || self.count == MAX_RUNS {
                // Where this one has none to leave, it is not followed until another agent leaves some.
                if runs.pop().is_none() {
                    return;
                }
                self.count -= 1;
            }
            let Head { sequence, uptime, .. } = *head;
            let came = if after.is_some() { 1 } else { u64::MAX };
            runs.insert(0, Run { name: self.next_name, sequence, uptime, time, came, is_alone: true, after });
            self.next_name += 1;
            self.count += 1;
        };
        let Some((distance, place)) = nearest else {
            begin(runs, None);
            if runs.is_empty() {
                self.runs.remove(&(agent, head.sub_agent));
            }
            return 0;
        };
        if distance > i64::from(KNOWN) {
            let Run { name, is_alone, .. } = runs[place];
            // Less than half the circle.
            begin(runs, (!is_alone).then_some((name, (distance - 1) as u32)));
            return 0;
        }
        runs[..=place].rotate_right(1);
        let run = &mut runs[0];
        if distance <= 0 {
            // One that was missing was counted as lost; of those long past nobody knows.
            let bit = 1_u64.checked_shl(distance.unsigned_abs() as u32).unwrap_or(0);
            let was_missing = bit != 0 && run.came & bit == 0;
            run.came |= bit;
            return -i64::from(was_missing);
        }
        let was_alone = run.is_alone;
        let came = run.came.checked_shl(distance as u32).unwrap_or(0) | 1;
        *run = Run { sequence: head.sequence, uptime: head.uptime, time, came, is_alone: false, ..*run };
        let (name, before) = (run.name, if was_alone { run.missing() } else { 0 });
        let mut taken_back = 0;
        for run in runs.iter_mut().filter(|run| run.after.is_some_and(|(before, _)| before == name)) {
            taken_back += if run.is_alone { 0 } else { run.missing() };
            run.after = None;
        }
        distance - 1 + before - taken_back
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lost_after(engines: &mut Engines, sequence: u32, uptime: u32, time: Micros) -> i64 {
        let head = Head { agent: None, sub_agent: 7, sequence, uptime, samples: 1 };
        engines.gap([1; 16], &head, time)
    }

    /// The lost datagrams after each of these: sequence number, uptime and the receiver's clock in milliseconds.
    fn lost_at(datagrams: &[(u32, u32, i64)]) -> Vec<i64> {
        let (mut engines, mut lost) = (Engines::default(), 0);
        let mut after = |(sequence, uptime, time): &(u32, u32, i64)| {
            lost += lost_after(&mut engines, *sequence, *uptime, time * 1_000);
            lost
        };
        datagrams.iter().map(&mut after).collect()
    }

    fn lost(sequences: &[u32]) -> Vec<i64> {
        lost_at(&sequences.iter().map(|sequence| (*sequence, 0, 0)).collect::<Vec<_>>())
    }

    #[test]
    fn gaps_are_losses_and_what_comes_late_is_not() {
        assert_eq!(lost(&[5, 6, 7, 8]), [0, 0, 0, 0]);
        assert_eq!(lost(&[5, 8, 9]), [0, 2, 2]);
        assert_eq!(lost(&[5, 8, 7, 6, 9]), [0, 2, 1, 0, 0]);
        assert_eq!(lost(&[u32::MAX - 1, 1, 2]), [0, 2, 2], "numbers go round");
        assert_eq!(lost(&[50_000, 1, 2, 4]), [0, 0, 0, 1], "an agent that began anew lost nothing");
        assert_eq!(lost(&[5, 5, 6]), [0, 0, 0], "the same one twice");
        assert_eq!(lost(&[5, 8, 7, 7, 9]), [0, 2, 1, 1, 1], "the same late one twice");
        assert_eq!(lost(&[5, 8, 4, 3]), [0, 2, 2, 2], "what came before the first was never missed");
        assert_eq!(lost(&[1, 2, 200, 201]), [0, 0, 0, 197]);
        let anew = [(500, 3_600_000, 0), (1, 10, 9), (2, 20, 19), (4, 40, 39)];
        assert_eq!(lost_at(&anew), [0, 0, 0, 1], "a little older, but its uptime says that it began anew");
        let silent = [
            (499, 990, -10),
            (500, 1_000, 0),
            (90_500, 3_601_000, 3_600_000),
            (90_501, 3_601_010, 3_600_010),
        ];
        assert_eq!(lost_at(&silent), [0, 0, 0, 89_999], "an hour of which nothing came");
        let at_once = [(499, 990, -10), (500, 1_000, 0), (90_500, 3_601_000, 10)];
        assert_eq!(lost_at(&at_once), [0, 0, 0], "too many for 10 ms");
    }

    #[test]
    fn engines_that_number_by_themselves_lose_nothing() {
        let engines = [99, 100, 300, 900, 101, 301, 901, 102, 902, 303];
        assert_eq!(lost(&engines), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(lost(&[999, 1_000, 1_512, 1_001, 1_002]), [0; 5], "a flipped bit");
        assert_eq!(lost(&[1, 2, 200, 201, 3]), [0, 0, 0, 197, 0], "the first one goes on nevertheless");
        assert_eq!(lost(&[1_000, 1 << 31, 1_001]), [0, 0, 0], "another one");
        let late: Vec<u32> = (0..2).chain(101..300).chain(2..101).collect();
        assert_eq!(lost(&late).last(), Some(&0), "a hundred that took another way");
    }

    #[test]
    fn runs_are_bounded_for_one_agent() {
        let mut engines = Engines::default();
        for number in 0..1_000_u32 {
            assert_eq!(lost_after(&mut engines, number.wrapping_mul(0x9e37_79b9), 0, 0), 0);
        }
        assert_eq!((engines.count, engines.runs[&([1; 16], 7)].len()), (MAX_RUNS_OF_ONE, MAX_RUNS_OF_ONE));
    }

    /// Datagrams on their way from an engine.
    #[derive(Clone, Debug)]
    enum Fate {
        Arrives,
        Dropped,
        Twice,
        /// How many others come before it.
        Late(usize),
        /// With a flipped bit in its number, or its uptime.
        Flipped(u32),
    }

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![
            34 => Just(Fate::Arrives),
            1 => Just(Fate::Dropped),
            1 => Just(Fate::Twice),
            1 => (1_usize..40).prop_map(Fate::Late),
            1 => (0_u32..64).prop_map(Fate::Flipped),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Line cards with numbers and uptimes of their own, some of which start anew in the middle.
        #[test]
        fn no_more_is_lost_than_was_sent(
            starts in proptest::collection::vec((any::<u32>(), any::<u32>(), 0_u32..400), 1..6),
            fates in proptest::collection::vec((any::<prop::sample::Index>(), fate()), 1..600),
        ) {
            let mut cards: Vec<(u32, u32)> =
                starts.iter().map(|(sequence, uptime, _)| (*sequence, *uptime)).collect();
            let mut arriving = Vec::new();
            let mut missing = 0;
            for (place, (card, fate)) in fates.iter().enumerate() {
                let number = card.index(cards.len());
                let restarts_at = starts[number].2 as usize;
                if place == restarts_at {
                    cards[number] = (1, 0);
                }
                let card = &mut cards[number];
                *card = (card.0.wrapping_add(1), card.1.wrapping_add(10));
                let (sequence, uptime) = *card;
                match fate {
                    Fate::Arrives => arriving.push((place, sequence, uptime)),
                    Fate::Dropped => missing += 1,
                    Fate::Twice => arriving.extend([(place, sequence, uptime), (place + 3, sequence, uptime)]),
                    Fate::Late(by) => arriving.push((place + by, sequence, uptime)),
                    // Its own number never comes.
                    Fate::Flipped(bit @ 0..32) => {
                        missing += 1;
                        arriving.push((place, sequence ^ 1 << bit, uptime));
                    }
                    Fate::Flipped(bit) => arriving.push((place, sequence, uptime ^ 1 << (bit - 32))),
                }
            }
            for (sequence, uptime) in cards {
                arriving.push((fates.len() + 100, sequence.wrapping_add(1), uptime.wrapping_add(1_000)));
            }
            arriving.sort_by_key(|(place, ..)| *place);
            let (mut engines, mut lost) = (Engines::default(), 0);
            for (place, sequence, uptime) in arriving {
                lost += lost_after(&mut engines, sequence, uptime, place as i64 * 10_000);
            }
            // A number with the same bit flipped as another one seems to go on with it.
            prop_assert!((0..=missing + 2 * 1_000).contains(&lost), "{lost} of {missing} that are missing");
            let is_flipped = fates.iter().any(|(_, fate)| matches!(fate, Fate::Flipped(_)));
            prop_assert!(is_flipped || lost <= missing, "{lost} of {missing} that are missing");
        }
    }
}
