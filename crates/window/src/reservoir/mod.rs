//! A task's ordered store of records, on disk but for its ends (Gomes et al., *Railgun*, VLDB 2021, section 4.1.1).
//!
//! Rows are in order of (event time, arrival). The front is sealed chunks in a [`ChunkStore`]; the back is open
//! chunks, which take late rows in the middle. A row is kept with the columns that the plan reads: its time, its
//! arrival number where an aggregate needs it, one group number per GROUP BY, one bit per filter, one value per
//! argument.
//!
//! A *cursor* is after the last row whose time is at or below its bound, `task time − offset`. Windows share
//! cursors: the head of a window delayed by a minute and the tail of a window of a minute are the same one.
//!
//! Invariants
//! * A chunk is sealed only when its last time is at or below `task time − lateness`, so no row that is still to come
//!   belongs before its end: rows below that bound are late for good, though `lateness` be raised later.
//! * A cursor moves into the next chunk only to pass a row there, so that a late row appended to the chunk which it
//!   has read to the end is still in front of it.
//! * Ordinals number chunks from the first ever; those below `first_open` are sealed and equal their `ChunkId`.
//!
//! Not here: which rows are accepted (`judge`), what the columns mean (`plan`), how chunks are encoded (`storage`).

mod cursor;
mod frames;
mod open;

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use thalweg_storage::{ChunkError, ChunkId, ChunkStore, Projection, Seal, SyncTicket};
use thalweg_types::Micros;

use cursor::{Cursor, Loaded};
pub(crate) use cursor::{CursorId, Passed, Piece};
use frames::Frames;
pub(crate) use frames::FrozenRows;
use open::OpenChunk;

use crate::columns::times_of;

/// Rows of a chunk unless a test or a job says otherwise. A chunk has a fixed cost (requests to the I/O threads, a file
/// opened, a header), which is 4 % of `bench windows` at this size; two decoded chunks per cursor are what a long
/// window takes in memory beyond a short one, and at twice the size that passes a tenth of a small job's memory.
pub(crate) const CHUNK_ROWS: usize = 4096;

/// Columns of a row, by name and Arrow type; the first is the time.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) schema: SchemaRef,
}

impl Layout {
    pub(crate) fn new(columns: &[(String, DataType)]) -> Self {
        let fields: Vec<Field> =
            columns.iter().map(|(name, data_type)| Field::new(name, data_type.clone(), true)).collect();
        Self { schema: Arc::new(Schema::new(fields)) }
    }
}

pub(crate) struct Reservoir {
    layout: Layout,
    projection: Projection,
    store: ChunkStore,
    /// Shared with frames that are still to be written; copied where rows come in before they are.
    open: VecDeque<Arc<OpenChunk>>,
    frames: Frames,
    /// Chunks from here on may be needed by a recovery, whatever cursors need.
    held: Option<ChunkId>,
    cursors: Vec<Option<Cursor>>,
    chunk_rows: usize,
    retention: Option<Micros>,
    rows: u64,
}

impl Reservoir {
    /// An empty reservoir over an empty store.
    pub(crate) fn new(
        layout: Layout,
        store: ChunkStore,
        chunk_rows: usize,
        retention: Option<Micros>,
    ) -> Self {
        let projection = Projection::new(Arc::clone(&layout.schema));
        Self {
            layout,
            projection,
            store,
            open: VecDeque::new(),
            frames: Frames::default(),
            held: None,
            cursors: Vec::new(),
            chunk_rows: chunk_rows.max(2),
            retention,
            rows: 0,
        }
    }

    /// Heap bytes of the open chunks.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open.iter().map(|chunk| chunk.bytes()).sum()
    }

    pub(crate) fn store(&self) -> &ChunkStore {
        &self.store
    }

    /// Rows that have ever come.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Time of the last sealed row, where a chunk is left.
    pub(crate) fn last_sealed(&self) -> Option<Micros> {
        self.store.index().last().map(|meta| meta.last_time)
    }

    fn first_open(&self) -> u64 {
        self.store.next().0
    }

    /// Changes the layout: rows that are there keep the columns of the same name at the same place, and get nulls in
    /// the others. The first column stays, and there are never fewer.
    pub(crate) fn set_layout(&mut self, layout: Layout) {
        for (place, field) in layout.schema.fields().iter().enumerate() {
            if self.layout.schema.fields().get(place) != Some(field) {
                for chunk in &mut self.open {
                    Arc::make_mut(chunk).set_column(place, field.data_type());
                }
            }
        }
        self.projection = Projection::new(Arc::clone(&layout.schema));
        self.layout = layout;
        for cursor in self.cursors.iter_mut().flatten() {
            cursor.loaded = None;
        }
    }

    /// Appends rows whose times ascend and are not below any time in the reservoir.
    pub(crate) fn append(&mut self, columns: &[ArrayRef], rows: std::ops::Range<usize>) {
        self.rows += rows.len() as u64;
        self.append_of(columns, rows, None);
    }

    /// Appends rows that are in a frame of the checkpoint, or in none yet.
    fn append_of(&mut self, columns: &[ArrayRef], rows: std::ops::Range<usize>, frame: Option<u64>) {
        let mut from = rows.start;
        while from < rows.end {
            if self.open.back().is_none_or(|chunk| chunk.len() >= self.chunk_rows) {
                self.open.push_back(Arc::new(OpenChunk::new(&self.layout.schema)));
            }
            let chunk = self.open.back_mut().expect("pushed above where there was none");
            let to = rows.end.min(from + self.chunk_rows - chunk.len());
            Arc::make_mut(chunk).extend(columns, from..to, frame);
            from = to;
        }
    }

    /// Puts a late row into its place: after every row of the same or an earlier time.
    pub(crate) fn insert(&mut self, columns: &[ArrayRef], row: usize) {
        let time = times_of(&columns[0])[row];
        debug_assert!(
            self.last_sealed().is_none_or(|last| last <= time),
            "the place of a row at {time} is open"
        );
        self.rows += 1;
        if self.open.is_empty() {
            self.open.push_back(Arc::new(OpenChunk::new(&self.layout.schema)));
        }
        let chunk_index = self.open.partition_point(|chunk| chunk.first_time() <= time).saturating_sub(1);
        let chunk = Arc::make_mut(&mut self.open[chunk_index]);
        let at = chunk.times().partition_point(|other| *other <= time);
        chunk.insert(at, columns, row);
        let ordinal = self.first_open() + chunk_index as u64;
        for cursor in self.cursors.iter_mut().flatten() {
            cursor.row_inserted(ordinal, at, time);
        }
        if self.open[chunk_index].len() > 2 * self.chunk_rows {
            self.split_chunk(chunk_index);
        }
    }

    fn split_chunk(&mut self, index: usize) {
        let at = self.open[index].len() / 2;
        let upper = Arc::make_mut(&mut self.open[index]).split_off(at);
        self.open.insert(index + 1, Arc::new(upper));
        let ordinal = self.first_open() + index as u64;
        for cursor in self.cursors.iter_mut().flatten() {
            cursor.chunk_split(ordinal, at);
        }
    }

    /// Seals chunks that no row to come can belong to, as those below `closed` are late, and deletes files that no cursor and no
    /// retention needs.
    ///
    /// # Errors
    /// What the store says of an earlier write.
    pub(crate) fn settle(&mut self, task_time: Micros, closed: Micros) -> Result<(), ChunkError> {
        let mut sealed = false;
        while self.open.len() >= 2 && self.open[0].last_time() <= closed {
            let chunk = self.open.pop_front().expect("two chunks are there");
            self.frames.sealed(&chunk);
            let seal = Seal { first_time: chunk.first_time(), last_time: chunk.last_time(), keep: false };
            let batch =
                RecordBatch::try_new(Arc::clone(&self.layout.schema), Arc::unwrap_or_clone(chunk).finish())
                    .expect("an open chunk has the layout's columns");
            let id = self.store.seal(seal, batch.clone())?;
            let batch = Arc::new(batch);
            for cursor in self.cursors.iter_mut().flatten().filter(|cursor| cursor.ordinal == id.0) {
                cursor.loaded = Some(Loaded::new(Arc::clone(&batch)));
            }
            sealed = true;
        }
        if sealed {
            self.delete_unneeded(task_time)?;
        }
        Ok(())
    }

    fn delete_unneeded(&mut self, task_time: Micros) -> Result<(), ChunkError> {
        let keep = self.needed(task_time, task_time).start;
        self.store.delete_before(self.held.map_or(keep, |held| keep.min(held)))?;
        Ok(())
    }

    /// Chunks from `id` on stay, whatever cursors need, until it is called again.
    pub(crate) fn hold(&mut self, id: ChunkId) {
        self.held = Some(id);
    }

    /// A ticket for a sync of everything sealed so far.
    ///
    /// # Errors
    /// What the store says of an earlier write.
    pub(crate) fn draw_sync(&mut self) -> Result<SyncTicket, ChunkError> {
        self.store.draw_sync()
    }
}

#[cfg(test)]
mod tests;
