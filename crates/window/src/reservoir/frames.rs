//! Open rows in a checkpoint: *frames* of rows that came since the marker before.
//!
//! A frame is written once, for the cycle in which its rows came, with those that are still in open chunks at its
//! marker; it is dropped once all of them are sealed. So frames hold all open rows, and some that have been sealed
//! since.
//!
//! Rows of the reservoir are ordered by (time, arrival). Sealed ones are the first in that order, since no later
//! row belongs before them. Frames are numbered in order of arrival, and rows of equal time are in a frame in order
//! of arrival. So all rows of all frames, sorted by time and then by frame without disturbing others, are in the
//! reservoir's order, and the open ones are the last: a checkpoint says how many they are, frame by frame.
//!
//! Layout of a frame: number of columns, for each its name as length and text, then a chunk (`thalweg_storage::chunk`).
//!
//! Not here: which chunks are sealed and named by a checkpoint (`super`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;
use thalweg_storage::ChunkId;
use thalweg_storage::chunk::{self, ChunkInfo, ChunkReader};
use thalweg_types::{Error, Micros};

use super::{OpenChunk, Reservoir};
use crate::columns::times_of;
use crate::image::{Malformed, Reader, put, put_bytes};

/// A frame has as many rows, but for a cycle's last. Encoding them takes less than half a millisecond.
const FRAME_ROWS: usize = 4096;

/// Which frames there are.
#[derive(Default)]
pub(super) struct Frames {
    /// Rows of each frame that are still open, where there are some.
    open: BTreeMap<u64, u64>,
    next: u64,
    /// Frames of the marker before that are still to be written.
    frozen: VecDeque<Frozen>,
    /// Frames whose rows have all been sealed since the marker before.
    gone: Vec<u64>,
}

struct Frozen {
    number: u64,
    schema: SchemaRef,
    rows: usize,
    pieces: Vec<(Arc<OpenChunk>, Vec<Range<usize>>)>,
}

impl Frames {
    pub(super) fn sealed(&mut self, chunk: &OpenChunk) {
        for run in chunk.runs() {
            let Some(frame) = run.frame else { continue };
            let Some(open) = self.open.get_mut(&frame) else { continue };
            *open -= run.rows as u64;
            if *open == 0 {
                self.open.remove(&frame);
                self.gone.push(frame);
            }
        }
    }
}

/// What a checkpoint says about open rows.
pub(crate) struct FrozenRows {
    /// Frames that are not needed any more.
    pub(crate) gone: Vec<u64>,
    /// All frames, with how many of their rows are open.
    pub(crate) frames: Vec<(u64, u64)>,
    /// Number of the next frame.
    pub(crate) next: u64,
}

impl Reservoir {
    /// A marker: open rows that are in no frame get into new ones, to be written by [`Reservoir::save_frame`].
    ///
    /// Costs a look at every open chunk; rows are copied only where one comes into their chunk before they are written.
    pub(crate) fn freeze(&mut self) -> FrozenRows {
        let frames = &mut self.frames;
        for chunk in self.open.iter_mut().filter(|chunk| chunk.is_fresh()) {
            let first = frames.frozen.len().saturating_sub(1);
            let mut parts = Vec::new();
            // All of a chunk before a frame has a share in it, which makes any further change a copy.
            let rows_of = Arc::make_mut(chunk);
            while rows_of.is_fresh() {
                if frames.frozen.back().is_none_or(|frame| frame.rows >= FRAME_ROWS) {
                    let (number, schema) = (frames.next, Arc::clone(&self.layout.schema));
                    frames.frozen.push_back(Frozen { number, schema, rows: 0, pieces: Vec::new() });
                    frames.next += 1;
                }
                let Some(frame) = frames.frozen.back_mut() else { break };
                let ranges = rows_of.freeze(frame.number, FRAME_ROWS - frame.rows);
                let rows: usize = ranges.iter().map(Range::len).sum();
                frame.rows += rows;
                debug_assert!(rows > 0 && frame.rows <= FRAME_ROWS, "{rows} of {}", frame.rows);
                *frames.open.entry(frame.number).or_default() += rows as u64;
                parts.push((frame.number, ranges));
            }
            for frame in frames.frozen.iter_mut().skip(first) {
                if let Some(at) = parts.iter().position(|(number, _)| *number == frame.number) {
                    frame.pieces.push((Arc::clone(chunk), parts.swap_remove(at).1));
                }
            }
        }
        FrozenRows {
            gone: std::mem::take(&mut frames.gone),
            frames: frames.open.iter().map(|(number, rows)| (*number, *rows)).collect(),
            next: frames.next,
        }
    }

    /// Number and rows of the frame that is to be written next.
    pub(crate) fn frozen_frame(&self) -> Option<(u64, usize)> {
        self.frames.frozen.front().map(|frame| (frame.number, frame.rows))
    }

    /// Appends the frame that is to be written next to `out`.
    ///
    /// # Errors
    /// Where the rows have no stored form.
    pub(crate) fn save_frame(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let Some(frame) = self.frames.frozen.pop_front() else { return Ok(()) };
        let failed = |error: &dyn std::fmt::Display| Error::internal(format!("encode open rows: {error}"));
        let mut slices: Vec<Vec<ArrayRef>> = vec![Vec::new(); frame.schema.fields().len()];
        for (chunk, ranges) in &frame.pieces {
            for range in ranges {
                for (slices, slice) in slices.iter_mut().zip(chunk.slice(range.clone())) {
                    slices.push(slice);
                }
            }
        }
        let columns = slices
            .iter()
            .map(|slices| concat(&slices.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| failed(&error))?;
        let times = times_of(&columns[0]);
        let info = ChunkInfo {
            task: 0,
            number: frame.number,
            previous: 0,
            schema_id: 0,
            first_time: times.iter().copied().min().unwrap_or_default(),
            last_time: times.iter().copied().max().unwrap_or_default(),
        };
        let batch = RecordBatch::try_new(frame.schema, columns).map_err(|error| failed(&error))?;
        let bytes = chunk::encode(&info, &batch).map_err(|error| failed(&error))?;
        put(out, batch.num_columns() as u64);
        for field in batch.schema().fields() {
            put_bytes(out, field.name().as_bytes());
        }
        out.extend_from_slice(&bytes);
        Ok(())
    }

    /// Columns of the layout as [`Reservoir::save_frame`] wrote them; those that it does not have are null.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn load_frame(&self, image: &mut Reader<'_>) -> Result<Vec<ArrayRef>, Malformed> {
        let names = (0..image.count("columns of a frame")?)
            .map(|_| image.text("name of a column"))
            .collect::<Result<Vec<_>, _>>()?;
        let failed = |error: &dyn std::fmt::Display| image.malformed("rows of a frame", "a chunk", error);
        let mut body = image.clone();
        let bytes = body.rest();
        let chunk = ChunkReader::open(bytes).map_err(|error| failed(&error))?;
        let stored = &chunk.head().columns;
        if stored.len() != names.len() {
            return Err(failed(&format_args!("{} names for {} columns", names.len(), stored.len())));
        }
        let fields = self.layout.schema.fields();
        let columns = fields
            .iter()
            .map(|field| {
                let is_it = |place: &usize| {
                    names[*place] == field.name() && stored[*place].data_type == *field.data_type()
                };
                match (0..names.len()).find(is_it) {
                    Some(place) => chunk.column(place, field.data_type()).map_err(|error| failed(&error)),
                    None => Ok(new_null_array(field.data_type(), chunk.head().rows as usize)),
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        if *columns[0].data_type() != DataType::Int64 || columns[0].null_count() > 0 {
            return Err(failed(&"rows without a time"));
        }
        Ok(columns)
    }

    /// Makes the rows of a checkpoint's frames, given in order of their numbers, those of the open chunks; `open` says
    /// how many of each are, `all_rows` how many rows there have ever been. The reservoir has none before, and its store has
    /// the sealed ones.
    ///
    /// # Errors
    /// Where frames and `open` do not fit each other or the store.
    pub(crate) fn load_rows(
        &mut self,
        frames: &[(u64, Vec<ArrayRef>)],
        open: &[(u64, u64)],
        next: u64,
        all_rows: u64,
    ) -> Result<(), Error> {
        let differ =
            |what: &str| Error::corrupt(format!("damage in a checkpoint: frames of open rows: {what}"));
        if !frames.iter().map(|(number, _)| number).eq(open.iter().map(|(number, _)| number)) {
            let got: Vec<u64> = frames.iter().map(|(number, _)| *number).collect();
            return Err(differ(&format!("expected those of {open:?}, got {got:?}")));
        }
        self.frames.next = next;
        let mut order: Vec<(Micros, usize, usize)> = Vec::new();
        for (place, (_, columns)) in frames.iter().enumerate() {
            order.extend(times_of(&columns[0]).iter().enumerate().map(|(row, time)| (*time, place, row)));
        }
        // Within a frame, rows of equal time are in order: the row's number keeps it.
        order.sort_unstable();
        let rows = open.iter().map(|(_, rows)| *rows).sum::<u64>();
        let sealed = usize::try_from(rows).ok().and_then(|rows| order.len().checked_sub(rows));
        let sealed = sealed.ok_or_else(|| differ(&format!("expected {rows} rows, got {}", order.len())))?;
        let order = &order[sealed..];
        if let (Some(last), Some((first, ..))) = (self.last_sealed(), order.first())
            && first < &last
        {
            return Err(differ(&format!("expected times from {last} on, got {first}")));
        }
        for (_, place, _) in order {
            *self.frames.open.entry(frames[*place].0).or_default() += 1;
        }
        if !self.frames.open.iter().map(|(number, rows)| (*number, *rows)).eq(open.iter().copied()) {
            return Err(differ(&format!("expected (frame, open rows) {open:?}, got {:?}", self.frames.open)));
        }
        self.rows = all_rows;
        if order.is_empty() {
            return Ok(());
        }
        let places: Vec<(usize, usize)> = order.iter().map(|(_, place, row)| (*place, *row)).collect();
        let columns = (0..self.layout.schema.fields().len())
            .map(|column| {
                let parts: Vec<&dyn Array> =
                    frames.iter().map(|(_, columns)| columns[column].as_ref()).collect();
                interleave(&parts, &places)
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| differ(&error.to_string()))?;
        let mut start = 0;
        for same in order.chunk_by(|a, b| a.1 == b.1) {
            self.append_of(&columns, start..start + same.len(), Some(frames[same[0].1].0));
            start += same.len();
        }
        Ok(())
    }

    /// Sealed chunks that cursors and retention need at `task_time`, and that cursors which pass once more the rows
    /// that they have passed since task time `from`, up to the next that will be sealed.
    pub(crate) fn needed(&self, task_time: Micros, from: Micros) -> Range<ChunkId> {
        let first_open = self.first_open();
        let mut keep = self.cursors.iter().flatten().map(|cursor| cursor.ordinal).min().unwrap_or(first_open);
        if from < task_time
            && let Some(offset) = self.cursors.iter().flatten().map(|cursor| cursor.offset).max()
            && let Some(id) = self.store.find(from.saturating_sub(offset))
        {
            keep = keep.min(id.0);
        }
        if let Some(retention) = self.retention {
            let bound = task_time.saturating_sub(retention);
            let index = self.store.index();
            let retained =
                index.iter().find(|meta| meta.last_time > bound).map_or(first_open, |meta| meta.id.0);
            keep = keep.min(retained);
        }
        ChunkId(keep.min(first_open))..ChunkId(first_open)
    }
}
