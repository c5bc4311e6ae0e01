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
//! Doors come and go, one with each start of a node, so the receiver remembers the [`MAX_DOORS`] whose last frames are
//! youngest in its log (cluster rules, 4). All copies of a receiver read the same log, and forget alike. A frame of a door
//! that is not remembered counts only if nothing came before it: so the frames of a forgotten one are gaps.
//!
//! Invariant: the marks of an origin never move back, as long as it is remembered.
//!
//! Not here: what is done about a gap.

use std::collections::BTreeMap;
use std::fmt;

use thalweg_types::Offset;

use crate::rules::{Rule, holds};

/// Doors that a receiver remembers.
pub const MAX_DOORS: usize = 1_024;

/// Where a row is in a partition of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The message.
    pub offset: Offset,
    /// The row in its frame; rows that are dropped count, too.
    pub row: u32,
}

/// [`Position::number`] leaves room for so many rows in a frame.
const ROWS: u64 = crate::frame::MAX_ROWS as u64;

impl Position {
    /// The position as one number, which ascends as positions do, for systems that know no others. Below 2^63 up to message
    /// 2^48.
    pub fn number(self) -> u64 {
        self.offset.saturating_mul(ROWS).saturating_add(u64::from(self.row))
    }

    /// Where rows are that were made of no message, as time went on before that at `offset`: after all rows of the one before it.
    ///
    /// # Panics
    /// If it is the first message: there was no time before it.
    pub fn before(offset: Offset) -> Self {
        let offset = offset.checked_sub(1).expect("a message has come");
        // No frame has so many rows ([`crate::frame::MAX_GROWTH`]).
        Self { offset, row: (ROWS - 1) as u32 }
    }

    /// The position that has a number.
    pub fn of_number(number: u64) -> Self {
        Self { offset: number / ROWS, row: (number % ROWS) as u32 }
    }
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
#[derive(Clone, Debug, Default)]
pub struct Through {
    units: BTreeMap<Origin, Mark>,
    /// By incarnation, with the turn of the last frame.
    doors: BTreeMap<u64, (Mark, u64)>,
    /// The same doors by their turns.
    turns: BTreeMap<u64, u64>,
    /// Above those of all doors.
    next_turn: u64,
}

impl Through {
    /// The mark of an origin; that of an unknown one is [`Mark::START`].
    pub fn of(&self, origin: Origin) -> Mark {
        let known = match origin {
            Origin::Unit { .. } => self.units.get(&origin).copied(),
            Origin::Door { incarnation } => self.doors.get(&incarnation).map(|(mark, _)| *mark),
        };
        known.unwrap_or(Mark::START)
    }

    /// Takes the next frame of the log, which begins at `after`; `marks` are the marks after each of its rows, in ascending
    /// order.
    pub fn take(&mut self, origin: Origin, after: Mark, marks: &[Mark]) -> Verdict {
        let through = self.of(origin);
        let last = marks.last().copied().unwrap_or(Mark::START).max(through);
        let verdict = match after > through && (holds(Rule::UnknownBeginAtZero) || self.knows(origin)) {
            true => Verdict::Gap(through),
            false => Verdict::From(marks.partition_point(|mark| *mark <= through)),
        };
        let counts = matches!(verdict, Verdict::From(_));
        match origin {
            Origin::Unit { .. } if counts && last > through => {
                self.units.insert(origin, last);
            }
            Origin::Unit { .. } => {}
            // A gap of one that is known is a sign of life, too.
            Origin::Door { incarnation } if counts || self.knows(origin) => {
                self.heard(incarnation, if counts { last } else { through });
            }
            Origin::Door { .. } => {}
        }
        verdict
    }

    fn knows(&self, origin: Origin) -> bool {
        match origin {
            Origin::Unit { .. } => self.units.contains_key(&origin),
            Origin::Door { incarnation } => self.doors.contains_key(&incarnation),
        }
    }

    /// Makes a door the youngest, and forgets the oldest one if there are too many.
    fn heard(&mut self, incarnation: u64, mark: Mark) {
        let turn = self.next_turn;
        self.next_turn += 1;
        if let Some((_, before)) = self.doors.insert(incarnation, (mark, turn))
            && holds(Rule::YoungestDoorsStay)
        {
            self.turns.remove(&before);
        }
        self.turns.insert(turn, incarnation);
        while self.doors.len() > MAX_DOORS && holds(Rule::DoorsAreFew) {
            let Some((_, oldest)) = self.turns.pop_first() else { break };
            self.doors.remove(&oldest);
        }
    }

    /// Origins and their marks: units in ascending order, then doors from the one whose last frame is oldest.
    pub fn iter(&self) -> impl Iterator<Item = (Origin, Mark)> + '_ {
        let units = self.units.iter().map(|(origin, mark)| (*origin, *mark));
        let doors = self.turns.values().filter_map(|incarnation| {
            let (mark, _) = self.doors.get(incarnation)?;
            Some((Origin::Door { incarnation: *incarnation }, *mark))
        });
        units.chain(doors)
    }
}

impl PartialEq for Through {
    /// Turns are compared by their order: one that goes on from a checkpoint has others.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Through {}

impl FromIterator<(Origin, Mark)> for Through {
    /// Takes what [`Through::iter`] gives.
    fn from_iter<T: IntoIterator<Item = (Origin, Mark)>>(marks: T) -> Self {
        let mut through = Self::default();
        for (origin, mark) in marks {
            match origin {
                Origin::Unit { .. } => {
                    through.units.insert(origin, mark);
                }
                Origin::Door { incarnation } => through.heard(incarnation, mark),
            }
        }
        through
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn numbers_ascend_with_positions_and_name_them() {
        let last = u32::try_from(crate::frame::MAX_ROWS - 1).unwrap();
        let of = |offset, row| Position { offset, row };
        let positions = [of(0, 0), of(0, last), of(1, 0), of(1, 1), of((1 << 48) - 1, last)];
        assert!(positions.windows(2).all(|two| two[0].number() < two[1].number()));
        assert!(positions.iter().all(|position| Position::of_number(position.number()) == *position));
        assert!(i64::try_from(positions[4].number()).is_ok());
    }

    #[test]
    fn what_time_makes_is_after_all_rows_of_a_message_and_before_the_next_one() {
        let most = u32::try_from(crate::frame::MAX_GROWTH / 16).unwrap();
        let [last, next] = [Position { offset: 6, row: most - 1 }, Position { offset: 7, row: 0 }];
        let made = Position::before(7);
        assert!(last < made && made < next);
        assert!(last.number() < made.number() && made.number() < next.number());
        assert_eq!(Position::of_number(made.number()), made);
    }
    use crate::rules::without;

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

    /// What a receiver that remembers everything keeps of doors, the slow way: oldest first.
    #[derive(Default)]
    struct Remembered(Vec<(u64, Mark)>);

    impl Remembered {
        fn take(&mut self, incarnation: u64, after: Mark, marks: &[Mark]) -> Verdict {
            let at = self.0.iter().position(|(known, _)| *known == incarnation);
            let through = at.map_or(Mark::START, |at| self.0[at].1);
            if after > through {
                if let Some(at) = at {
                    self.0[at..].rotate_left(1);
                }
                return Verdict::Gap(through);
            }
            at.map(|at| self.0.remove(at));
            self.0.push((incarnation, marks.last().copied().unwrap_or(through).max(through)));
            if self.0.len() > MAX_DOORS {
                self.0.remove(0);
            }
            Verdict::From(marks.iter().filter(|mark| **mark <= through).count())
        }
    }

    /// Frames of more doors than are remembered, some of them doubled and some lost, to a receiver that goes on from its
    /// checkpoint now and then. What differs from the slow way first.
    fn doors(seed: u64) -> Result<(), String> {
        let mut rng = Rng::with_seed(seed);
        let (mut through, mut slow) = (Through::default(), Remembered::default());
        let mut sent: Vec<Mark> = vec![Mark::START; MAX_DOORS + 40];
        for step in 0..12_000_u64 {
            // Some are heard often.
            let most = if rng.bool() { 300 } else { sent.len() };
            let door = rng.usize(..most);
            let before = sent[door];
            let first = if rng.u8(..) < 20 { Mark::START } else { before };
            let marks: Vec<Mark> =
                (1..=rng.u64(0..3)).map(|row| mark(before.position.offset + row, 0, 1)).collect();
            sent[door] = marks.last().copied().unwrap_or(before);
            if rng.u8(..) < 10 {
                continue;
            }
            let got = through.take(Origin::Door { incarnation: door as u64 }, first, &marks);
            let expected = slow.take(door as u64, first, &marks);
            if got != expected {
                return Err(format!("frame {step} of door {door}: {got:?}, expected {expected:?}"));
            }
            if rng.u16(..1_000) == 0 {
                through = through.iter().collect();
            }
            if through.doors.len() > MAX_DOORS {
                return Err(format!("{} doors are remembered", through.doors.len()));
            }
        }
        let kept: Vec<_> = through.iter().collect();
        let expected: Vec<_> = slow
            .0
            .iter()
            .map(|(incarnation, mark)| (Origin::Door { incarnation: *incarnation }, *mark))
            .collect();
        if kept == expected { Ok(()) } else { Err("other doors are remembered".to_owned()) }
    }

    #[test]
    fn the_doors_that_were_heard_last_are_remembered() {
        for seed in 0..20 {
            doors(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }

    #[test]
    fn each_rule_of_doors_that_is_taken_away_is_missed() {
        for (rule, text) in [
            (Rule::DoorsAreFew, "doors are remembered"),
            (Rule::YoungestDoorsStay, "expected"),
            (Rule::UnknownBeginAtZero, "expected Gap"),
        ] {
            let found = without(Some(rule), || doors(0)).expect_err("nothing goes wrong");
            assert!(found.contains(text), "{rule:?}: {found}");
        }
    }
}
