//! Where rows are in a sender's input, and which of them a receiver counts.
//!
//! A sender makes rows for a destination from its input, in order. [`Mark`] names a place between two of these rows:
//! the input position of the row before it, and how many rows for this destination that position has made so far. It
//! is a function of the input alone, so every sender of the same input has the same marks, however it cuts frames.
//!
//! A receiver remembers for each origin the mark up to which it has rows ([`Through`]):
//! * rows at or before it are dropped, so doubled frames and those of a second sender do no harm;
//! * a frame that begins after it is a *gap*: rows between were lost. It is dropped whole and nothing of it counts;
//!   the receiver goes on with the next frame, and the sender has to send from an earlier mark.
//!
//! Invariant: the marks of an origin never move back.
//!
//! Not here: what is done about a gap, and how many doors are remembered.

use std::collections::BTreeMap;
use std::fmt;

use thalweg_types::Offset;

/// Where a row is in a partition of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The message.
    pub offset: Offset,
    /// The row in its frame; rows that are dropped count, too.
    pub row: u32,
}

/// A place between the rows that a sender makes for one destination: after the row with number `made − 1` of those
/// that `position` makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    pub position: Position,
    /// Rows for this destination that the position has made up to here.
    pub made: u32,
}

impl Mark {
    /// Before the first row of an origin.
    pub const START: Mark = Mark { position: Position { offset: 0, row: 0 }, made: 0 };

    /// The mark after one more row, which is made from `position`; `None` if that position has made 2^32 − 1 already.
    ///
    /// A position before this one gives a mark that is not greater: the caller has to compare.
    #[inline]
    pub fn next(self, position: Position) -> Option<Self> {
        let before = if position == self.position { self.made } else { 0 };
        Some(Self { position, made: before.checked_add(1)? })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.offset, self.row)
    }
}

impl fmt::Display for Mark {
    /// `12.3+1`: after the first row that row 3 of message 12 makes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.position, self.made)
    }
}

/// The sender of a frame, as far as its rows are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A stage's work on one of its partitions, on whatever node.
    Unit { stage: u32, partition: u32 },
    /// A place where records enter, from one start or failed send to the next.
    Door { incarnation: u64 },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Unit { stage, partition } => write!(f, "unit {stage}/{partition}"),
            Origin::Door { incarnation } => write!(f, "door {incarnation:016x}"),
        }
    }
}

/// How much of a frame counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Rows from this one on; the number of rows if all of them were there before.
    From(usize),
    /// Nothing: rows between this mark, up to which all are there, and the frame are missing.
    Gap(Mark),
}

/// Up to which mark a receiver has the rows of each origin. Part of its checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Through(BTreeMap<Origin, Mark>);

impl Through {
    /// The mark of an origin; that of an unknown one is [`Mark::START`].
    pub fn of(&self, origin: Origin) -> Mark {
        self.0.get(&origin).copied().unwrap_or(Mark::START)
    }

    /// Takes a frame that begins at `after`; `marks` are the marks after each of its rows, in ascending order.
    pub fn take(&mut self, origin: Origin, after: Mark, marks: &[Mark]) -> Verdict {
        let through = self.of(origin);
        if after > through {
            return Verdict::Gap(through);
        }
        if let Some(last) = marks.last().filter(|last| **last > through) {
            self.0.insert(origin, *last);
        }
        Verdict::From(marks.partition_point(|mark| *mark <= through))
    }

    /// Origins and their marks, in the order of origins.
    pub fn iter(&self) -> impl Iterator<Item = (Origin, Mark)> + '_ {
        self.0.iter().map(|(origin, mark)| (*origin, *mark))
    }
}

impl FromIterator<(Origin, Mark)> for Through {
    fn from_iter<T: IntoIterator<Item = (Origin, Mark)>>(marks: T) -> Self {
        Self(marks.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Origin = Origin::Unit { stage: 1, partition: 7 };
    const DOOR: Origin = Origin::Door { incarnation: 9 };

    fn mark(offset: u64, row: u32, made: u32) -> Mark {
        Mark { position: Position { offset, row }, made }
    }

    #[test]
    fn rows_of_one_position_are_counted_and_another_position_begins_anew() {
        let first = Mark::START.next(Position { offset: 0, row: 0 }).unwrap();
        assert_eq!(first, mark(0, 0, 1));
        assert_eq!(first.next(first.position).unwrap(), mark(0, 0, 2));
        assert_eq!(first.next(Position { offset: 0, row: 4 }).unwrap(), mark(0, 4, 1));
        assert_eq!(mark(3, 0, u32::MAX).next(Position { offset: 3, row: 0 }), None);
    }

    #[test]
    fn rows_that_are_there_are_dropped_and_a_frame_after_them_is_a_gap() {
        let mut through = Through::default();
        let rows = [mark(0, 0, 1), mark(0, 0, 2), mark(2, 1, 1)];
        for (case, after, marks, expected, then) in [
            ("a lost beginning", mark(0, 0, 1), &rows[1..], Verdict::Gap(Mark::START), Mark::START),
            ("the beginning", Mark::START, &rows[..1], Verdict::From(0), rows[0]),
            ("the same again", Mark::START, &rows[..1], Verdict::From(1), rows[0]),
            ("cut otherwise", Mark::START, &rows[..2], Verdict::From(1), rows[1]),
            ("no rows, and none missing", rows[1], &[], Verdict::From(0), rows[1]),
            ("no rows, and some missing", rows[2], &[], Verdict::Gap(rows[1]), rows[1]),
            ("all", Mark::START, &rows, Verdict::From(2), rows[2]),
            ("an older one", rows[0], &rows[1..2], Verdict::From(1), rows[2]),
        ] {
            assert_eq!(through.take(UNIT, after, marks), expected, "{case}");
            assert_eq!(through.of(UNIT), then, "{case}");
        }
    }

    #[test]
    fn origins_are_counted_each_by_itself() {
        let mut through = Through::default();
        through.take(UNIT, Mark::START, &[mark(5, 0, 1)]);
        assert_eq!(through.take(DOOR, mark(5, 0, 1), &[mark(6, 0, 1)]), Verdict::Gap(Mark::START));
        assert_eq!(through.take(DOOR, Mark::START, &[mark(0, 0, 1)]), Verdict::From(0));
        let kept: Through = through.iter().collect();
        assert_eq!(kept, through);
        assert_eq!(kept.iter().map(|(origin, _)| origin).collect::<Vec<_>>(), [UNIT, DOOR]);
    }
}
