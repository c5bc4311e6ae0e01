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

/// The latest runs, so that a failure can name its record. Runs that follow each other in order and source are
/// one; the oldest go when there are too many.
#[derive(Default)]
pub(crate) struct RecentRuns {
    runs: VecDeque<(SeqRange, Place)>,
}

impl RecentRuns {
    /// More than can be in flight in the rings of a job of usual size: a run is a block or, from a slow
    /// source, a record.
    const KEPT: usize = 1 << 16;

    pub(crate) fn push(&mut self, range: SeqRange, place: Place) {
        if let Some((last, from)) = self.runs.back_mut()
            && last.end == range.start
            && (from.source, from.partition) == (place.source, place.partition)
            && from.offset + last.len() == place.offset
        {
            last.end = range.end;
            return;
        }
        if self.runs.len() == Self::KEPT {
            self.runs.pop_front();
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
        runs.push(SeqRange::new(1, 11), place(0, 100));
        runs.push(SeqRange::new(11, 21), place(0, 110));
        runs.push(SeqRange::new(22, 30), place(1, 0));
        runs.push(SeqRange::new(30, 31), place(0, 120));
        assert_eq!(runs.runs.len(), 3, "runs that follow each other are one");
        assert_eq!(runs.find(0), None);
        assert_eq!(runs.find(1), Some(place(0, 100)));
        assert_eq!(runs.find(20), Some(place(0, 119)));
        assert_eq!(runs.find(21), None, "a tick is no record");
        assert_eq!(runs.find(29), Some(place(1, 7)));
        assert_eq!(runs.find(30), Some(place(0, 120)));
        assert_eq!(runs.find(31), None);
    }
}
