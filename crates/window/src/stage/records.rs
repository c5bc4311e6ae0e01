//! Records as a stage takes them in: which it accepts, and what time it is then; their ids and arrival numbers; the rows
//! that are kept in the reservoir, and the cursors that pass them.
//!
//! Not here: what queries make of them (`queries`), which ids are in memory (`ids`), the cycles of a checkpoint
//! (`checkpoint`).

use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::ScalarBuffer;
use thalweg_state::Changes;
use thalweg_storage::{ChunkStore, SyncTicket};
use thalweg_types::{Batch, Error, Identity, LatePolicy, Micros, Origin, RecordPlace, Schema};

use super::changes::{Key, Sealed};
use super::input::dense;
use super::queries::{Since, UNTOLD};
use super::{Manifest, Missed, StageOptions, Window, arrival};
use crate::judge::{Judge, Verdicts, id_keys};
use crate::key;
use crate::plan::{self, PlannedQuery};
use crate::query::Window as WindowKind;
use crate::reservoir::{CursorId, FrozenRows, Layout, Passed, Piece, Reservoir};

/// Rows or ids of a frame that cost about as much to write as a group.
const ROWS_PER_GROUP: usize = 4;

pub(super) struct Records {
    pub(super) lateness: Micros,
    pub(super) late: LatePolicy,
    pub(super) id_column: Option<IdColumn>,
    pub(super) judge: Judge,
    /// The record that moved task time to where it is, if the giver of the records has said so.
    pub(super) newest: Option<RecordPlace>,
    pub(super) reservoir: Reservoir,
    /// Whether anything reads the reservoir.
    pub(super) is_stored: bool,
    pub(super) count: u64,
    /// No record has had this arrival number or a larger one. `None` where a checkpoint does not say it.
    pub(super) next_arrival: Option<u64>,
    /// From when records count where some were missed; [`UNTOLD`] until the first has come.
    pub(super) begins: Option<Micros>,
}

/// The column of a batch that holds the id.
pub(super) struct IdColumn {
    place: usize,
    /// Name and type.
    pub(super) field: (String, String),
}

/// What a checkpoint says about records, as of a marker.
pub(super) struct FrozenRecords {
    pub(super) rows: FrozenRows,
    /// Frames of ids, where ids are looked for.
    pub(super) ids: Option<Range<u64>>,
    /// Frames that are not needed any more.
    pub(super) gone: Vec<Key>,
}

impl Records {
    /// Over an empty store, with rows of this layout.
    pub(super) fn new(schema: &Schema, options: &StageOptions, layout: Layout, store: ChunkStore) -> Self {
        let id_column = options.dedup.map(|(place, _)| {
            let field = &schema.fields()[place];
            IdColumn { place, field: (field.name.clone(), field.data_type.to_string()) }
        });
        let mut judge = Judge::new(options.lateness, options.late, options.dedup.map(|(_, span)| span));
        if options.is_held {
            judge.hold(Micros::MIN);
        }
        Self {
            lateness: options.lateness,
            late: options.late,
            id_column,
            judge,
            newest: None,
            reservoir: Reservoir::new(layout, store, options.chunk_rows, options.retention),
            is_stored: options.retention.is_some(),
            count: 0,
            next_arrival: Some(0),
            begins: match options.missed {
                Missed::Nothing => None,
                Missed::UpTo(time) => Some(time),
                Missed::Some => Some(UNTOLD),
            },
        }
    }

    /// Goes on from a checkpoint, before its rows and ids are loaded.
    pub(super) fn restore(&mut self, manifest: &Manifest) {
        // A manifest without a bound does not know the `lateness` of its time: sealed rows were closed by it.
        let last_sealed = self.reservoir.last_sealed();
        self.judge.restore(manifest.task_time, manifest.bound.or(last_sealed));
        self.newest = manifest.newest.clone();
        if self.has_ids_of(manifest) {
            for (origin, ids) in &manifest.taken {
                ids.iter().for_each(|id| self.judge.restore_taken(*origin, id));
            }
        }
        self.count = manifest.records;
        let is_known = manifest.next_arrival > 0 || manifest.records == 0;
        self.next_arrival = is_known.then_some(manifest.next_arrival);
        self.begins = manifest.begins;
    }

    /// Takes over the rows of all frames that a checkpoint names.
    pub(super) fn load_rows(
        &mut self,
        rows: &[(u64, Vec<ArrayRef>)],
        manifest: &Manifest,
    ) -> Result<(), Error> {
        self.reservoir.load_rows(rows, &manifest.frames, manifest.next_frame, manifest.rows)?;
        self.is_stored |= !manifest.frames.is_empty();
        Ok(())
    }

    /// Largest event time accepted so far.
    pub(super) fn task_time(&self) -> Option<Micros> {
        self.judge.task_time()
    }

    /// Heap bytes of ids and open chunks.
    pub(super) fn bytes(&self) -> usize {
        self.judge.bytes() + self.reservoir.open_bytes()
    }

    /// Ids of a batch's records, where ids are looked for.
    pub(super) fn ids_of(&self, batch: &Batch) -> Option<Vec<Option<key::Key>>> {
        self.id_column.as_ref().map(|column| id_keys(&dense(batch, column.place)))
    }

    /// Judges and counts the records of a batch; `ids` are theirs, and `origins`, where they may come in parts.
    pub(super) fn judge(
        &mut self,
        batch: &Batch,
        ids: Option<&[Option<key::Key>]>,
        origins: Option<&[Origin]>,
    ) -> Verdicts {
        let count = batch.len();
        let times: ScalarBuffer<Micros> = match batch.selection() {
            None if batch.is_empty() => ScalarBuffer::from(Vec::new()),
            None => batch.times().slice(batch.row(0) as usize, count),
            Some(rows) => rows.iter().map(|row| batch.times()[*row as usize]).collect(),
        };
        let verdicts = self.judge.judge(&times, ids, |row| match origins {
            Some(origins) => Identity::Origin(origins[row]),
            None => Identity::Number(batch.seq(batch.row(row))),
        });
        self.count += count as u64;
        verdicts
    }

    /// Arrival numbers of a batch's records.
    pub(super) fn arrivals(&mut self, batch: &Batch) -> Range<u64> {
        arrival::number(&mut self.next_arrival, batch.len(), || batch.seq(batch.row(0)))
    }

    /// Takes the time of the first record, as the judge has it, for that from which everything counts, if nothing else
    /// has set that; then it is returned.
    pub(super) fn tell_begin(&mut self, verdicts: &Verdicts) -> Option<Micros> {
        if self.begins != Some(UNTOLD) {
            return None;
        }
        let accepted = verdicts.accepted.as_ref();
        let first = (0..verdicts.times.len()).find(|row| accepted.is_none_or(|accepted| accepted[*row]));
        let first = first.map(|row| verdicts.task_times[row])?;
        self.begins = Some(first);
        self.begins
    }

    /// From when a query counts that is added now.
    pub(super) fn since_now(&self, query: &PlannedQuery) -> Option<Since> {
        let now = self.task_time().filter(|_| self.count > 0);
        let fill = match query.window {
            WindowKind::Sliding(span) | WindowKind::Tumbling(span) => Some(span.saturating_add(query.delay)),
            WindowKind::Infinite | WindowKind::Rows(_) => None,
        };
        now.max(self.begins).map(|since| (since, fill))
    }

    /// A window whose cursors are where they are at this task time.
    pub(super) fn with_cursors(
        &mut self,
        kind: WindowKind,
        delay: Micros,
        now: Option<Micros>,
    ) -> Result<Window, Error> {
        let head = if delay > 0 { Some(self.cursor(delay, now)?) } else { None };
        let tail = plan::tail(kind).map(|span| self.cursor(span.saturating_add(delay), now)).transpose()?;
        Ok(Window { kind, delay, head, tail })
    }

    fn cursor(&mut self, offset: Micros, now: Option<Micros>) -> Result<CursorId, Error> {
        if let Some((id, _)) = self.reservoir.cursors().into_iter().find(|(_, other)| *other == offset) {
            return Ok(id);
        }
        self.is_stored = true;
        let bound = now.map_or(Micros::MIN, |now| now.saturating_sub(offset));
        self.reservoir.add_cursor(offset, bound).map_err(store_failed)
    }

    /// Puts accepted rows into the reservoir and moves every cursor on, record by record where they are out of order.
    pub(super) fn store(
        &mut self,
        columns: &Arc<[ArrayRef]>,
        verdicts: &Verdicts,
    ) -> Result<Vec<(CursorId, Passed)>, Error> {
        if !self.is_stored {
            return Ok(Vec::new());
        }
        let count = verdicts.times.len();
        let cursors: Vec<(CursorId, Micros)> = self.reservoir.cursors();
        let mut passed: Vec<(CursorId, Passed)> = cursors
            .iter()
            .map(|(id, _)| (*id, Passed { counts: vec![0; count], ..Passed::default() }))
            .collect();
        let mut row = 0;
        while row < count {
            let is_accepted = |row: usize| verdicts.accepted.as_ref().is_none_or(|accepted| accepted[row]);
            let is_late = |row: usize| verdicts.out_of_order.as_ref().is_some_and(|late| late[row]);
            if !is_accepted(row) {
                row += 1;
            } else if is_late(row) {
                self.reservoir.insert(columns, row);
                let time = verdicts.times[row];
                for ((_, offset), (_, passed)) in cursors.iter().zip(&mut passed) {
                    if time <= verdicts.task_times[row].saturating_sub(*offset) {
                        passed.counts[row] += 1;
                        passed.pieces.push(Piece { columns: Arc::clone(columns), rows: row..row + 1 });
                    }
                }
                row += 1;
            } else {
                let end = (row..count).find(|next| !is_accepted(*next) || is_late(*next)).unwrap_or(count);
                self.reservoir.append(columns, row..end);
                let task_times = &verdicts.task_times[row..end];
                for ((id, _), (_, passed)) in cursors.iter().zip(&mut passed) {
                    self.reservoir.advance(*id, task_times, passed, row).map_err(store_failed)?;
                }
                row = end;
            }
        }
        if let (Some(now), Some(closed)) = (self.judge.task_time(), self.judge.closed()) {
            self.reservoir.settle(now, closed).map_err(store_failed)?;
        }
        Ok(passed)
    }

    /// Rows that cursors pass on their way to a task time, as one step.
    pub(super) fn advance(&mut self, time: Micros) -> Result<Vec<(CursorId, Passed)>, Error> {
        let mut passed = Vec::new();
        for (id, _) in self.reservoir.cursors() {
            let mut rows = Passed { counts: vec![0], ..Passed::default() };
            self.reservoir.advance(id, &[time], &mut rows, 0).map_err(store_failed)?;
            passed.push((id, rows));
        }
        Ok(passed)
    }

    /// A sync of the chunks that are sealed.
    pub(super) fn draw_sync(&mut self) -> Result<SyncTicket, Error> {
        self.reservoir.draw_sync().map_err(store_failed)
    }

    /// A marker: open rows and ids that are in no frame get into new ones, to be written by [`Records::save_frames`].
    pub(super) fn freeze(&mut self) -> FrozenRecords {
        let now = self.judge.task_time();
        let rows = self.reservoir.freeze();
        let mut gone: Vec<Key> = rows.gone.iter().copied().map(Key::Rows).collect();
        let ids = self.judge.ids().map(|ids| {
            gone.extend(ids.freeze(now).into_iter().map(Key::Ids));
            ids.frozen_frames()
        });
        FrozenRecords { rows, ids, gone }
    }

    /// Writes frozen frames into the changes of a cycle; whether all are written.
    pub(super) fn save_frames(
        &mut self,
        (cycle, changes): (u64, &mut Changes),
        spent: &mut usize,
        budget: usize,
    ) -> Result<bool, Error> {
        while let Some((number, rows)) = self.reservoir.frozen_frame() {
            if *spent >= budget {
                return Ok(false);
            }
            *spent += rows.div_ceil(ROWS_PER_GROUP);
            changes.put(Key::Rows(number), |out| self.reservoir.save_frame(out))?;
        }
        let Some(all) = self.judge.ids() else { return Ok(true) };
        while let Some((number, ids)) = all.frozen_frame() {
            if *spent >= budget {
                return Ok(false);
            }
            *spent += ids.div_ceil(ROWS_PER_GROUP);
            changes.put(Key::Ids(number), |out| {
                all.save_frame(cycle, out);
                Ok::<(), Error>(())
            })?;
        }
        Ok(true)
    }

    /// The cycle's changes can be read back.
    pub(super) fn written(&mut self, cycle: u64) {
        if let Some(ids) = self.judge.ids() {
            ids.written(cycle);
        }
    }

    /// Whether ids are looked for as in a checkpoint: in the same column.
    pub(super) fn has_ids_of(&self, manifest: &Manifest) -> bool {
        let Some(saved) = &manifest.ids else { return false };
        self.id_column.as_ref().is_some_and(|column| column.field == saved.column)
    }
}

fn store_failed(error: thalweg_storage::ChunkError) -> Error {
    Error::from(error).context("keep records in the reservoir")
}
