//! When a cycle is to end because of its rows, which are kept until it is committed.
//!
//! From a quarter of the limit on, the sink asks for the end of the cycle. It comes once the cycle before is committed;
//! if that takes until half is reached, sources wait. The other half is for rows that are on their way to the sink by
//! then.

/// A request to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    EndOfCycle,
    /// That, and that sources wait for it.
    Hold,
}

pub(super) struct Pace {
    /// Bytes that may be kept of one cycle.
    limit: usize,
    /// Bytes since the last marker.
    bytes: usize,
    asked: Option<Ask>,
}

impl Pace {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, bytes: 0, asked: None }
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// A marker has come.
    pub(super) fn begin_cycle(&mut self) {
        (self.bytes, self.asked) = (0, None);
    }

    /// The request to make now. Each is asked for once in a cycle: a cycle that is asked for between a marker and its
    /// arrival would hold for the next cycle, which may have nothing.
    pub(super) fn ask(&mut self) -> Option<Ask> {
        let ask = match self.bytes {
            bytes if bytes > self.limit / 2 => Some(Ask::Hold),
            bytes if bytes > self.limit / 4 => Some(Ask::EndOfCycle),
            _ => None,
        };
        if ask <= self.asked {
            return None;
        }
        self.asked = ask;
        ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_cycle_is_asked_for_once_and_then_sources_are_held_once() {
        let mut pace = Pace::new(1_000);
        let mut asks = Vec::new();
        for cycle in 0..2 {
            for step in 0..8 {
                pace.add(100);
                asks.extend(pace.ask().map(|ask| (cycle, step, ask)));
            }
            pace.begin_cycle();
        }
        let of = |cycle| [(cycle, 2, Ask::EndOfCycle), (cycle, 5, Ask::Hold)];
        assert_eq!(asks, [of(0), of(1)].concat());
        pace.add(usize::MAX);
        pace.add(usize::MAX);
        assert_eq!((pace.ask(), pace.ask()), (Some(Ask::Hold), None));
    }
}
