//! The order that a job's sequencer decides, entry by entry, and where it is written down.
//!
//! Every entry takes the order numbers that follow those of the entry before it. Here entries are only kept
//! as long as a failure may have to name a record; a durable log is another [`OrderLog`].

use std::collections::VecDeque;

use bytes::Bytes;
use thalweg_types::{Error, Micros, Offset, PartitionId, Seq, SeqRange};

/// One decision of the sequencer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderEntry {
    /// The numbers that it takes: as many as there are records in a run, one for everything else.
    pub range: SeqRange,
    pub event: OrderEvent,
}

/// What was numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderEvent {
    /// Consecutive records of one partition of the job's `source`-th source, from `offset`.
    Run {
        source: usize,
        partition: PartitionId,
        offset: Offset,
        arrival: Micros,
    },
    Tick {
        now: Micros,
    },
    Cycle {
        number: u64,
    },
    /// What [`crate::Command::record`] said: what a replay has to repeat, if anything.
    Command {
        record: Option<Bytes>,
    },
    End,
}

/// Where a job's order is written down. Called by the sequencer, in order, before the entry goes anywhere.
pub trait OrderLog: Send {
    /// # Errors
    /// What keeps the entry from being written; the job stops.
    fn append(&mut self, entry: OrderEntry) -> Result<(), Error>;

    /// The same for a run that its source gives again after a crash ([`crate::Source::tells_order`]): it need not be
    /// more durable than written, once everything before it is.
    ///
    /// # Errors
    /// As there.
    fn append_told(&mut self, entry: OrderEntry) -> Result<(), Error> {
        self.append(entry)
    }
}

/// Keeps nothing: for jobs whose order need not outlive them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOrderLog;

impl OrderLog for NoOrderLog {
    fn append(&mut self, _entry: OrderEntry) -> Result<(), Error> {
        Ok(())
    }
}

/// A record by its place in its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub source: usize,
    pub partition: PartitionId,
    pub offset: Offset,
}

/// The latest runs, so that a reject and a failure can name their record. Runs that follow each other in order and source
/// are one.
///
/// A run is kept until every task has passed it, and then as long as there is room: the name of a record that a task works
/// on does not depend on how far others are. Runs that some task has not passed are in the rings between it and the
/// sequencer, which bound how many there are.
#[derive(Default)]
pub(crate) struct RecentRuns {
    runs: VecDeque<(SeqRange, Place)>,
    /// How many there are when it is looked again for some that may go.
    full: usize,
}

impl RecentRuns {
    /// More than are on their way in a job of usual size: a run is a block or, from a slow source, a record.
    const KEPT: usize = 1 << 16;

    /// `passed` gives the number up to which every task is done.
    pub(crate) fn push(&mut self, range: SeqRange, place: Place, passed: impl FnOnce() -> Seq) {
        if let Some((last, from)) = self.runs.back_mut()
            && last.end == range.start
            && (from.source, from.partition) == (place.source, place.partition)
            && from.offset + last.len() == place.offset
        {
            last.end = range.end;
            return;
        }
        if self.runs.len() >= self.full.max(Self::KEPT) {
            let passed = passed();
            while self.runs.len() >= Self::KEPT && self.runs.front().is_some_and(|(run, _)| run.end <= passed)
            {
                self.runs.pop_front();
            }
            // Not with each run, where many are on their way.
            self.full = self.runs.len() + self.runs.len() / 64;
        }
        self.runs.push_back((range, place));
    }

    pub(crate) fn find(&self, seq: Seq) -> Option<Place> {
        let after = self.runs.partition_point(|(range, _)| range.start <= seq);
        let (range, place) = self.runs.get(after.checked_sub(1)?)?;
        range.contains(seq).then(|| Place { offset: place.offset + (seq - range.start), ..*place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_by_its_order_number() {
        let mut runs = RecentRuns::default();
        let place = |source, offset| Place { source, partition: 0, offset };
        let nobody = || unreachable!("there is room");
        runs.push(SeqRange::new(1, 11), place(0, 100), nobody);
        runs.push(SeqRange::new(11, 21), place(0, 110), nobody);
        runs.push(SeqRange::new(22, 30), place(1, 0), nobody);
        runs.push(SeqRange::new(30, 31), place(0, 120), nobody);
        assert_eq!(runs.runs.len(), 3, "runs that follow each other are one");
        assert_eq!(runs.find(0), None);
        assert_eq!(runs.find(1), Some(place(0, 100)));
        assert_eq!(runs.find(20), Some(place(0, 119)));
        assert_eq!(runs.find(21), None, "a tick is no record");
        assert_eq!(runs.find(29), Some(place(1, 7)));
        assert_eq!(runs.find(30), Some(place(0, 120)));
        assert_eq!(runs.find(31), None);
    }

    #[test]
    fn a_run_is_not_forgotten_while_a_task_may_ask_for_it() {
        let mut runs = RecentRuns::default();
        let most = RecentRuns::KEPT as u64;
        // Of two sources in turn, so that none is one with the run before it.
        let mut push = |number: u64, passed: Seq| {
            let place = Place { source: (number % 2) as usize, partition: 0, offset: number };
            runs.push(SeqRange::new(number, number + 1), place, || passed);
            runs.runs.len() as u64
        };
        let slowest = (0..=3 * most).map(|number| push(number, 5)).last();
        assert_eq!(slowest, Some(3 * most + 1 - 5), "no more than the slowest task has passed");
        let kept = (3 * most + 1..5 * most).map(|number| push(number, number)).last();
        assert!(kept.is_some_and(|kept| kept <= most + most / 32), "{kept:?}");
        let last = 5 * most - 1;
        assert_eq!(runs.find(last).map(|place| place.offset), Some(last));
        assert_eq!(runs.find(5 * most), None);
    }
}
