//! Cursors: places in the reservoir that move on with task time, and the rows that they pass.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use smallvec::SmallVec;
use thalweg_storage::{ChunkError, ChunkId};
use thalweg_types::Micros;

use super::Reservoir;
use crate::columns::times_of;
use crate::slots::put;

/// A cursor, by its place in the reservoir's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CursorId(pub(crate) usize);

pub(super) struct Cursor {
    pub(super) offset: Micros,
    /// Every row with a time at or below it has been passed.
    bound: Micros,
    /// The chunk in which the next row is looked for, and the rows passed there.
    pub(super) ordinal: u64,
    row: usize,
    /// The sealed chunk that it is in, decoded.
    pub(super) loaded: Option<Loaded>,
}

/// A sealed chunk, decoded.
#[derive(Clone)]
pub(super) struct Loaded {
    /// Held, as the store counts who has it.
    _batch: Arc<RecordBatch>,
    columns: Arc<[ArrayRef]>,
}

impl Loaded {
    pub(super) fn new(batch: Arc<RecordBatch>) -> Self {
        let columns = batch.columns().into();
        Self { _batch: batch, columns }
    }
}

impl Cursor {
    /// Keeps the cursor after the rows that it has passed when a row is put into an open chunk.
    pub(super) fn row_inserted(&mut self, ordinal: u64, at: usize, time: Micros) {
        if time > self.bound {
            return;
        }
        if self.ordinal < ordinal {
            (self.ordinal, self.row, self.loaded) = (ordinal, at + 1, None);
        } else if self.ordinal == ordinal {
            self.row += 1;
        }
    }

    pub(super) fn chunk_split(&mut self, ordinal: u64, at: usize) {
        if self.ordinal > ordinal {
            self.ordinal += 1;
        } else if self.ordinal == ordinal && self.row > at {
            self.ordinal += 1;
            self.row -= at;
        }
    }
}

/// Rows that a cursor passed during a batch: pieces of columns in the layout's order, in order.
#[derive(Default)]
pub(crate) struct Passed {
    pub(crate) pieces: SmallVec<[Piece; 1]>,
    /// How many rows were passed at each step of the batch.
    pub(crate) counts: Vec<u32>,
}

/// Some consecutive rows of some columns.
pub(crate) struct Piece {
    pub(crate) columns: Arc<[ArrayRef]>,
    pub(crate) rows: std::ops::Range<usize>,
}

impl Reservoir {
    /// A cursor at the end of the rows; it passes rows from now on as `task time − offset` reaches them.
    ///
    /// `bound` is where it is now: rows at or below it count as passed.
    pub(crate) fn add_cursor(&mut self, offset: Micros, bound: Micros) -> Result<CursorId, ChunkError> {
        let mut cursor = Cursor { offset, bound, ordinal: self.store.first().0, row: 0, loaded: None };
        // Start at the first chunk that ends above the bound; within it rows are skipped one by one.
        if let Some(id) = self.store.find(bound) {
            cursor.ordinal = id.0;
        } else if self.store.first().0 < self.first_open() {
            cursor.ordinal = self.first_open() - 1;
        }
        let id = CursorId(put(&mut self.cursors, cursor));
        if self.rows > 0 {
            let now = bound.saturating_add(offset);
            self.advance(id, &[now], &mut Passed { counts: vec![0], ..Passed::default() }, 0)?;
        }
        Ok(id)
    }

    /// All cursors with their offsets.
    pub(crate) fn cursors(&self) -> Vec<(CursorId, Micros)> {
        let cursors = self.cursors.iter().enumerate();
        cursors.filter_map(|(id, cursor)| Some((CursorId(id), cursor.as_ref()?.offset))).collect()
    }

    pub(crate) fn drop_cursor(&mut self, id: CursorId) {
        self.cursors[id.0] = None;
    }

    /// Moves a cursor on: at step `first + i` it passes every row with a time at or below `task_times[i]` less its
    /// offset.
    ///
    /// `task_times` ascend. Passed rows are added to `passed`.
    ///
    /// # Errors
    /// Where a chunk cannot be read back.
    pub(crate) fn advance(
        &mut self,
        id: CursorId,
        task_times: &[Micros],
        passed: &mut Passed,
        first: usize,
    ) -> Result<(), ChunkError> {
        let Some(now) = task_times.last() else { return Ok(()) };
        let mut cursor = self.cursors[id.0].take().expect("cursor ids come from add_cursor");
        let outcome = self.walk(&mut cursor, task_times, passed, first);
        cursor.bound = cursor.bound.max(now.saturating_sub(cursor.offset));
        self.cursors[id.0] = Some(cursor);
        outcome
    }

    fn walk(
        &mut self,
        cursor: &mut Cursor,
        task_times: &[Micros],
        passed: &mut Passed,
        first: usize,
    ) -> Result<(), ChunkError> {
        let bounds = Bounds { task_times, offset: cursor.offset };
        let last_bound = bounds.at(task_times.len() - 1);
        let mut step = 0;
        loop {
            let first_open = self.first_open();
            let start = cursor.row;
            if cursor.ordinal < first_open {
                let Loaded { columns, .. } = self.load(cursor)?;
                let times = times_of(&columns[0]);
                cursor.row = count_steps(times, start, &bounds, &mut step, &mut passed.counts[first..]);
                let is_in_it = cursor.row < times.len();
                if cursor.row > start {
                    passed.pieces.push(Piece { columns, rows: start..cursor.row });
                }
                if is_in_it {
                    return Ok(());
                }
            } else {
                let Some(chunk) = self.open.get((cursor.ordinal - first_open) as usize) else {
                    return Ok(());
                };
                cursor.row =
                    count_steps(chunk.times(), start, &bounds, &mut step, &mut passed.counts[first..]);
                if cursor.row > start {
                    let columns: Arc<[ArrayRef]> = chunk.slice(start..cursor.row).into();
                    passed.pieces.push(Piece { columns, rows: 0..cursor.row - start });
                }
                if cursor.row < chunk.len() {
                    return Ok(());
                }
            }
            if self.first_time(cursor.ordinal + 1).is_none_or(|time| time > last_bound) {
                return Ok(());
            }
            // The last cursor to leave a chunk takes it out of memory; for the others it stays within the budget.
            let is_last = self.cursors.iter().flatten().all(|other| other.ordinal > cursor.ordinal);
            if cursor.ordinal < first_open && is_last {
                self.store.release(ChunkId(cursor.ordinal));
            }
            cursor.ordinal += 1;
            cursor.row = 0;
            cursor.loaded = None;
        }
    }

    /// Time of the first row of a chunk, if there is such a chunk.
    fn first_time(&self, ordinal: u64) -> Option<Micros> {
        let first_open = self.first_open();
        if ordinal < first_open {
            self.store.meta(ChunkId(ordinal)).map(|meta| meta.first_time)
        } else {
            self.open.get((ordinal - first_open) as usize).map(|chunk| chunk.first_time())
        }
    }

    /// The sealed chunk that a cursor is in, decoded; asks for the next one to be read ahead.
    fn load(&mut self, cursor: &mut Cursor) -> Result<Loaded, ChunkError> {
        if let Some(chunk) = &cursor.loaded {
            return Ok(chunk.clone());
        }
        let chunk = Loaded::new(self.store.read(ChunkId(cursor.ordinal), &self.projection)?);
        cursor.loaded = Some(chunk.clone());
        let next = ChunkId(cursor.ordinal + 1);
        if next.0 < self.first_open() {
            self.store.prefetch(next, &self.projection)?;
        }
        Ok(chunk)
    }
}

/// Up to where a cursor passes rows at each step.
struct Bounds<'a> {
    task_times: &'a [Micros],
    offset: Micros,
}

impl Bounds<'_> {
    #[inline(always)]
    fn at(&self, step: usize) -> Micros {
        self.task_times[step].saturating_sub(self.offset)
    }
}

/// Walks along `times` from `row`, counting for each step the rows at or below its bound; returns the row reached.
///
/// `step` is where the walk starts and is set to where it stops: at the last step, or at the step whose rows may go
/// on in the next chunk.
fn count_steps(
    times: &[Micros],
    mut row: usize,
    bounds: &Bounds<'_>,
    step: &mut usize,
    counts: &mut [u32],
) -> usize {
    loop {
        let bound = bounds.at(*step);
        let from = row;
        while row < times.len() && times[row] <= bound {
            row += 1;
        }
        counts[*step] += (row - from) as u32;
        if row == times.len() || *step + 1 == bounds.task_times.len() {
            return row;
        }
        *step += 1;
    }
}
