//! What the sender does about rows of a unit that the next stage waits for (cluster rules, 2).
//!
//! A gap that the control log names counts here only where this unit has been told that the rows were written, and the
//! receiver has read further than that without finding them: then they are lost, whoever has the receiver and whatever
//! else it has read. Anything less may be an old view, a receiver that lags, or a copy that is still sending.
//!
//! The unit then goes back to its last commit and sends again what came after it; of what was there the doubles fall by
//! position. Where the commit is after the gap, that cannot mend it. The unit goes back all the same, once: if the gap
//! is open after that, too, the unit stops, as each further record would be lost for the receiver.
//!
//! No clock is read: what is waited for are beats of the receiver's node.

use std::collections::BTreeMap;

use thalweg_cluster::positions::Mark;
use thalweg_types::Offset;

use super::outlet::SentTo;

/// Beats that name a gap until the unit goes back: a second. Twice as many each time after that, up to [`DOUBLINGS`] times.
const GO_BACK_AFTER: u32 = 4;
const DOUBLINGS: u32 = 8;

/// Beats that name it until the unit stops: three seconds.
const STOP_AFTER: u32 = 12;

/// A gap between a unit of a stage and one of the next, as the control log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedGap {
    /// The partition of the unit that sends.
    pub from: u32,
    /// That of the unit that waits.
    pub to: u32,
    /// The mark up to which that has all rows.
    pub through: Mark,
    /// All messages below this offset were read by it.
    pub read: Offset,
    /// The offset of the beat that says so.
    pub beat: Offset,
}

/// What is to be done about a gap now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait,
    /// Open the unit again from its last commit.
    GoBack,
    /// Stop it.
    Stop,
}

/// The gaps of the units of a stage on a node, as far as they have been looked at.
#[derive(Debug, Default)]
pub(super) struct Watch(BTreeMap<(u32, u32), Seen>);

#[derive(Debug)]
struct Seen {
    through: Mark,
    /// The end of the receiver's log when all rows that count here were in it.
    end: Option<Offset>,
    /// The last beat that has named the gap, and how many did so after the receiver had read up to `end`.
    beat: Offset,
    beats: u32,
    /// How often the unit has gone back for it.
    returns: u32,
}

impl Seen {
    fn new(through: Mark) -> Self {
        Self { through, end: None, beat: 0, beats: 0, returns: 0 }
    }

    fn wait_anew(&mut self) -> Step {
        (self.end, self.beats) = (None, 0);
        Step::Wait
    }
}

impl Watch {
    /// Forgets gaps that are named no more.
    pub(super) fn keep(&mut self, named: &[NamedGap]) {
        self.0.retain(|(from, to), _| named.iter().any(|gap| (gap.from, gap.to) == (*from, *to)));
    }

    /// Looks at a gap of a unit that runs here and answers, and has sent so far; `end` asks for the end of the receiver's log.
    pub(super) fn look(
        &mut self,
        gap: &NamedGap,
        sent: SentTo,
        end: impl FnOnce() -> Option<Offset>,
    ) -> Step {
        let seen = self.0.entry((gap.from, gap.to)).or_insert_with(|| Seen::new(gap.through));
        if seen.through != gap.through {
            *seen = Seen::new(gap.through);
        }
        // What it waits for has not been written by this unit yet.
        if sent.written <= gap.through {
            return seen.wait_anew();
        }
        // All that is written is below the end of the log by now.
        if seen.end.is_none() {
            seen.end = end();
        }
        if seen.end.is_none_or(|end| gap.read < end) || gap.beat <= seen.beat {
            return Step::Wait;
        }
        seen.beat = gap.beat;
        seen.beats += 1;
        let is_after_commit = sent.opened <= gap.through;
        let (needed, step) = match seen.returns {
            0 => (GO_BACK_AFTER, Step::GoBack),
            // They were lost once more.
            returns if is_after_commit => (GO_BACK_AFTER << returns.min(DOUBLINGS), Step::GoBack),
            _ => (STOP_AFTER, Step::Stop),
        };
        if seen.beats < needed {
            return Step::Wait;
        }
        seen.wait_anew();
        seen.returns = seen.returns.saturating_add(1);
        step
    }
}

#[cfg(test)]
#[path = "mend_tests.rs"]
mod tests;
