//! Where the rows of a frame belong: input, position, arrival, and who waits for an answer.
//!
//! Layout at the start of the body, all numbers varints:
//! * input of all rows; or, if runs are flagged, their number, and of each run input and rows;
//! * of each row but the first its position (see [`put_position`]);
//! * if arrivals are flagged, of each row but the first its arrival less that of the row before;
//! * if replies are flagged: the number of doors; of each twice the length of its node's name, plus 1 if the door is the
//!   frame's origin, the name, and the incarnation 8 of every other door; of each row 0 or the number of its door,
//!   from 1; then of each row with a door the request less that of the one before; then, alike, the line.
//!
//! The first row's position is in the head, and its arrival is the frame's. Field by field, rather than row by row,
//! equal numbers are next to each other, and LZ4 finds them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use thalweg_types::Micros;

use super::cursor::Cursor;
use super::head::{ARRIVALS, Head, REPLIES, RUNS};
use super::{FrameError, varint};
use crate::positions::{Mark, Origin, Position};

/// Bytes that the name of a node may have.
pub(super) const MAX_NAME: usize = 255;

/// Rows of one input that follow each other in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of the input in its stage.
    pub input: u32,
    pub rows: u32,
}

/// A door that waits for answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    pub node: Box<str>,
    pub incarnation: u64,
}

/// Where the answer to a row goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub door: Arc<Door>,
    /// The door's number of the request.
    pub request: u64,
    /// The record in the body of the request.
    pub line: u32,
}

/// Where the rows of a frame belong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// In the order of the rows; neighbours are of different inputs.
    pub runs: Vec<Run>,
    /// The mark after each row.
    pub marks: Vec<Mark>,
    /// When each row arrived at the door that took it in.
    pub arrivals: Vec<Micros>,
    /// Who waits for an answer to each row; empty where nobody does.
    pub replies: Vec<Option<Reply>>,
}

impl Places {
    /// Adds a row.
    pub(super) fn push(&mut self, input: u32, mark: Mark, arrival: Micros, reply: Option<Reply>) {
        self.add_run(Run { input, rows: 1 });
        if reply.is_some() || !self.replies.is_empty() {
            self.replies.resize(self.marks.len(), None);
            self.replies.push(reply);
        }
        self.marks.push(mark);
        self.arrivals.push(arrival);
    }

    /// Adds some rows of others, which are of one input.
    pub(super) fn extend(&mut self, input: u32, others: &Places, rows: Range<usize>) {
        self.add_run(Run { input, rows: rows.len() as u32 });
        let replies = others.replies.get(rows.clone()).unwrap_or_default();
        if replies.iter().any(Option::is_some) || !self.replies.is_empty() {
            self.replies.resize(self.marks.len(), None);
            self.replies.extend_from_slice(replies);
            self.replies.resize(self.marks.len() + rows.len(), None);
        }
        self.marks.extend_from_slice(&others.marks[rows.clone()]);
        self.arrivals.extend_from_slice(&others.arrivals[rows]);
    }

    fn add_run(&mut self, run: Run) {
        match self.runs.last_mut().filter(|last| last.input == run.input) {
            Some(last) => last.rows += run.rows,
            None => self.runs.push(run),
        }
    }

    /// Inputs in the order of their first rows, and the rows of each.
    pub(super) fn inputs(&self) -> Vec<Run> {
        let mut inputs: Vec<Run> = Vec::with_capacity(1);
        // Foreign bytes may name thousands.
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        for run in &self.runs {
            match places.entry(run.input) {
                Entry::Occupied(place) => inputs[*place.get()].rows += run.rows,
                Entry::Vacant(place) => {
                    place.insert(inputs.len());
                    inputs.push(*run);
                }
            }
        }
        inputs
    }

    /// Flags that say which fields there are.
    pub(super) fn flags(&self) -> u8 {
        let runs = if self.runs.len() > 1 { RUNS } else { 0 };
        let arrivals = if self.arrivals.windows(2).any(|pair| pair[0] != pair[1]) { ARRIVALS } else { 0 };
        let replies = if self.replies.is_empty() { 0 } else { REPLIES };
        runs | arrivals | replies
    }

    /// Appends the fields that `flags` say.
    pub(super) fn put(&self, flags: u8, origin: Origin, out: &mut Vec<u8>) {
        if flags & RUNS != 0 {
            varint::put(self.runs.len() as u64, out);
        }
        for run in &self.runs {
            varint::put(run.input.into(), out);
            if flags & RUNS != 0 {
                varint::put(run.rows.into(), out);
            }
        }
        for pair in self.marks.windows(2) {
            put_position(pair[0].position, pair[1].position, out);
        }
        if flags & ARRIVALS != 0 {
            for pair in self.arrivals.windows(2) {
                varint::put_signed(pair[1].wrapping_sub(pair[0]), out);
            }
        }
        if flags & REPLIES != 0 {
            self.put_replies(origin, out);
        }
    }

    fn put_replies(&self, origin: Origin, out: &mut Vec<u8>) {
        let mut doors: Vec<&Arc<Door>> = Vec::new();
        let mut numbers = Vec::with_capacity(self.replies.len());
        for reply in &self.replies {
            let number = reply.as_ref().map_or(0, |reply| {
                let known = doors.iter().position(|door| **door == reply.door);
                known.unwrap_or_else(|| {
                    doors.push(&reply.door);
                    doors.len() - 1
                }) + 1
            });
            numbers.push(number as u64);
        }
        varint::put(doors.len() as u64, out);
        for door in doors {
            let is_origin = origin == Origin::Door { incarnation: door.incarnation };
            varint::put(2 * door.node.len() as u64 + u64::from(is_origin), out);
            out.extend_from_slice(door.node.as_bytes());
            if !is_origin {
                out.extend_from_slice(&door.incarnation.to_le_bytes());
            }
        }
        numbers.into_iter().for_each(|number| varint::put(number, out));
        let replies = || self.replies.iter().flatten();
        let mut before = 0;
        for reply in replies() {
            varint::put_signed(reply.request.wrapping_sub(before) as i64, out);
            before = reply.request;
        }
        let mut before = 0;
        for reply in replies() {
            varint::put_signed(i64::from(reply.line) - before, out);
            before = reply.line.into();
        }
    }

    /// Reads the places of `rows` rows, the first of which is at `first`.
    pub(super) fn read(
        head: &Head,
        flags: u8,
        first: Mark,
        rows: usize,
        cursor: &mut Cursor<'_>,
    ) -> Result<Self, FrameError> {
        let runs = read_runs(flags, rows, cursor)?;
        let mut marks = Vec::with_capacity(rows);
        marks.push(first);
        let mut last = first;
        for _ in 1..rows {
            let pos = cursor.pos();
            let position = read_position(last.position, cursor)?;
            last = last.next(position).ok_or_else(|| {
                cursor.damaged(pos, "rows of one position", format_args!("at most {}", u32::MAX), "more")
            })?;
            marks.push(last);
        }
        let mut arrivals = vec![head.arrival; rows];
        if flags & ARRIVALS != 0 {
            let mut last = head.arrival;
            for arrival in &mut arrivals[1..] {
                last = last.wrapping_add(cursor.signed("arrival")?);
                *arrival = last;
            }
        }
        let replies =
            if flags & REPLIES == 0 { Vec::new() } else { read_replies(head.origin, rows, cursor)? };
        Ok(Self { runs, marks, arrivals, replies })
    }
}

fn read_runs(flags: u8, rows: usize, cursor: &mut Cursor<'_>) -> Result<Vec<Run>, FrameError> {
    if flags & RUNS == 0 {
        return Ok(vec![Run { input: cursor.short("input")?, rows: rows as u32 }]);
    }
    let count = cursor.count("runs", 1, rows)?;
    let mut runs = Vec::with_capacity(count);
    let mut left = rows;
    for _ in 0..count {
        let pos = cursor.pos();
        let input = cursor.short("input")?;
        if runs.last().is_some_and(|last: &Run| last.input == input) {
            return Err(cursor.damaged(pos, "input of a run", "another than that of the run before", input));
        }
        let rows = cursor.count("rows of a run", 1, left)?;
        left -= rows;
        runs.push(Run { input, rows: rows as u32 });
    }
    if left > 0 {
        return Err(cursor.damaged(cursor.pos(), "rows of runs", rows, rows - left));
    }
    Ok(runs)
}

fn read_replies(
    origin: Origin,
    rows: usize,
    cursor: &mut Cursor<'_>,
) -> Result<Vec<Option<Reply>>, FrameError> {
    let count = cursor.count("doors", 1, rows)?;
    let mut doors = Vec::with_capacity(count);
    for _ in 0..count {
        let pos = cursor.pos();
        let len = cursor.count("length of a node's name", 0, 2 * MAX_NAME + 1)?;
        let name = cursor.take(len / 2, "name of a node")?;
        let node = std::str::from_utf8(name)
            .map_err(|error| cursor.damaged(pos, "name of a node", "UTF-8", error))?;
        let incarnation = match origin {
            Origin::Door { incarnation } if len % 2 == 1 => incarnation,
            _ => cursor.u64("incarnation of a door")?,
        };
        doors.push(Arc::new(Door { node: node.into(), incarnation }));
    }
    let pos = cursor.pos();
    let mut replies = Vec::with_capacity(rows);
    for _ in 0..rows {
        let door = cursor.count("door of a row", 0, count)?.checked_sub(1);
        replies.push(door.map(|door| Reply { door: Arc::clone(&doors[door]), request: 0, line: 0 }));
    }
    if replies.iter().all(Option::is_none) {
        return Err(cursor.damaged(pos, "doors of rows", "at least one", 0));
    }
    let mut last = 0_u64;
    for reply in replies.iter_mut().flatten() {
        last = last.wrapping_add(cursor.signed("request")? as u64);
        reply.request = last;
    }
    let mut last = 0_u32;
    for reply in replies.iter_mut().flatten() {
        let pos = cursor.pos();
        let more = cursor.signed("line")?;
        last =
            i64::from(last).checked_add(more).and_then(|line| u32::try_from(line).ok()).ok_or_else(|| {
                cursor.damaged(pos, "line", "a number of 32 bits", format_args!("{last} and {more}"))
            })?;
        reply.line = last;
    }
    Ok(replies)
}

/// Appends a position, which is not before `before`.
///
/// The two lowest bits of the first number say what is in the others: 0 further rows of the same message; 1 further
/// messages, less 1, of which the row is 0; 2 the same, and the row follows; 3 nothing, and message and row follow.
pub(super) fn put_position(before: Position, position: Position, out: &mut Vec<u8>) {
    let messages = position.offset - before.offset;
    if messages == 0 {
        varint::put(u64::from(position.row - before.row) << 2, out);
    } else if messages > 1 << 61 {
        varint::put(3, out);
        varint::put(position.offset, out);
        varint::put(position.row.into(), out);
    } else if position.row == 0 {
        varint::put((messages - 1) << 2 | 1, out);
    } else {
        varint::put((messages - 1) << 2 | 2, out);
        varint::put(position.row.into(), out);
    }
}

pub(super) fn read_position(before: Position, cursor: &mut Cursor<'_>) -> Result<Position, FrameError> {
    let pos = cursor.pos();
    let code = cursor.varint("position")?;
    let more = code >> 2;
    let messages = || before.offset.checked_add(more)?.checked_add(1);
    let position = match code & 3 {
        0 => u32::try_from(more)
            .ok()
            .and_then(|rows| before.row.checked_add(rows))
            .map(|row| Position { offset: before.offset, row }),
        1 => messages().map(|offset| Position { offset, row: 0 }),
        2 => {
            let row = cursor.short("row")?;
            messages().map(|offset| Position { offset, row })
        }
        _ => {
            let position = Position { offset: cursor.varint("offset")?, row: cursor.short("row")? };
            (position > before && more == 0).then_some(position)
        }
    };
    position.ok_or_else(|| {
        cursor.damaged(pos, "position", format_args!("one from {before} on"), format_args!("code {code}"))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Part;
    use super::*;

    fn position(offset: u64, row: u32) -> Position {
        Position { offset, row }
    }

    #[test]
    fn the_next_position_takes_a_byte() {
        for (before, next, bytes) in [
            ((5, 3), (5, 3), 1),
            ((5, 3), (5, 34), 1),
            ((5, 3), (5, 35), 2),
            ((5, 3), (6, 0), 1),
            ((5, 3), (37, 0), 1),
            ((5, 3), (6, 1), 2),
            ((0, 0), (u64::MAX, u32::MAX), 16),
        ] {
            let mut out = Vec::new();
            put_position(position(before.0, before.1), position(next.0, next.1), &mut out);
            assert_eq!(out.len(), bytes, "{before:?} {next:?}");
        }
    }

    #[test]
    fn positions_that_run_back_or_over_are_refused() {
        let before = position(u64::MAX - 1, 7);
        for code in [&[0x80 | 4, 0xff, 0xff, 0xff, 0x7f][..], &[9], &[6, 0], &[3, 0, 0], &[7, 0, 0]] {
            let read = read_position(before, &mut Cursor::new(code, Part::Body, 0));
            assert!(
                matches!(read, Err(FrameError::Damaged { what: "position", .. })),
                "{code:02x?} {read:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn positions_read_back(pairs in proptest::collection::vec(
            (0_u32..64, any::<u64>(), 0_u32..32, any::<u32>()), 2..20,
        )) {
            let mut positions: Vec<Position> =
                pairs.iter().map(|(by, offset, less, row)| position(offset >> by, row >> less)).collect();
            positions.sort();
            let mut out = Vec::new();
            for pair in positions.windows(2) {
                put_position(pair[0], pair[1], &mut out);
            }
            let mut cursor = Cursor::new(&out, Part::Body, 0);
            for pair in positions.windows(2) {
                prop_assert_eq!(read_position(pair[0], &mut cursor), Ok(pair[1]));
            }
        }
    }
}
