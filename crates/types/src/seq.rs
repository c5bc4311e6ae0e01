//! Positions, named by their promises.

use std::fmt;
use std::sync::Arc;

/// Logical number of a record in a source partition: dense, from 0.
pub type Offset = u64;

/// Number of a source partition or of a keyed task, from 0.
pub type PartitionId = u32;

/// Place of a record in a job's order: dense, from 0, given by the sequencer and never reused.
pub type Seq = u64;

/// A record by its source and its offset there; written `payments@12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    pub source: Arc<str>,
    pub offset: Offset,
}

impl From<(Arc<str>, Offset)> for RecordPlace {
    fn from((source, offset): (Arc<str>, Offset)) -> Self {
        Self { source, offset }
    }
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.source, self.offset)
    }
}

/// A half-open range of the order, `start <= seq < end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqRange {
    pub start: Seq,
    pub end: Seq,
}

impl SeqRange {
    /// The range from `start` (included) to `end` (excluded).
    ///
    /// # Panics
    /// If `end < start`: a range that runs backwards is a broken invariant of the sequencer.
    pub fn new(start: Seq, end: Seq) -> Self {
        assert!(start <= end, "order range runs backwards: {start}..{end}");
        Self { start, end }
    }

    /// How many order numbers the range holds.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub fn contains(&self, seq: Seq) -> bool {
        self.start <= seq && seq < self.end
    }
}

impl fmt::Display for SeqRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}
