//! One keyed task's windows: records in, the values of every query out, one per record.
//!
//! A batch goes through in steps that each work on whole columns:
//! 1. the *judge* says which records are accepted, at what time, and what task time is after each;
//! 2. filters and arguments are evaluated, group numbers looked up;
//! 3. accepted rows go into the reservoir, and every cursor passes the rows that task time has left behind;
//! 4. each leaf of the plan (window, filter, GROUP BY) turns that into a schedule and runs its aggregates.
//!
//! A record is added, then windows expire, then values are read: step i of a schedule does the three for record i.
//!
//! Queries share whatever their plans have in common: cursors by their distance from task time, filters and arguments by
//! their text, group numbers by their fields, aggregates by all of it.
//!
//! Changes are noted group by group and handed over at cycle markers (`checkpoint`), so that a stage goes on after a
//! crash as if nothing had happened (`restore`). Groups that were handed over may leave memory and are read back
//! (`cache`).
//!
//! Not here: SQL (`query`), aggregates (`agg`), how answers of several stages are merged (the node).

mod arrival;
mod cache;
mod changes;
mod checkpoint;
mod dirty;
mod explain;
mod group;
mod guard;
mod ids;
mod layout;
mod leaf;
mod manifest;
mod matching;
mod nodes;
mod outputs;
mod passed;
mod queries;
mod read;
mod records;
mod replay;
mod restore;
mod rows;
mod stream;
mod sweep;
mod tags;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StructArray, UInt32Array, UInt64Array,
};
use arrow_buffer::ScalarBuffer;
use arrow_select::take::take;
use smallvec::SmallVec;
use thalweg_storage::{ChunkStats, ChunkStore};
use thalweg_types::{Batch, Error, HashKey, LatePolicy, Micros, RecordPlace, Schema};

use crate::judge::Verdicts;
use crate::reservoir::{CHUNK_ROWS, Layout};
use cache::Cache;
use checkpoint::{Checkpoint, save_group};
use dirty::Dirty;
use guard::Evaluated;
use leaf::Turn;
use nodes::{Arg, Face, Filter, Grouping, LeafNode, ValuesOf, Window};
use queries::QueryState;
use records::Records;
use stream::{Columns, Elements, Selection, StreamId, Streams};

#[cfg(test)]
mod tests;

pub use crate::judge::TaskTimes;
pub use cache::{CacheStats, GroupReader};
pub use changes::is_group;
pub use checkpoint::StageHandover;
pub use explain::Explanation;
pub use manifest::Manifest;
pub use matching::{Continued, Gone};
pub use read::Present;
pub use restore::Restoring;

/// How a stage judges and keeps records.
#[derive(Clone, Debug)]
pub struct StageOptions {
    pub lateness: Micros,
    pub late: LatePolicy,
    /// Column of the batch that holds the id, and the span within which a second one is a duplicate.
    pub dedup: Option<(usize, Micros)>,
    /// Rows of a chunk; changes no answer.
    pub chunk_rows: usize,
    /// Groups that only edges have changed which a marker writes at least: more of them make cycles larger and a restart
    /// shorter. Changes no answer.
    pub turn: usize,
    /// Keep records in the reservoir for at least this long, though no cursor needs them.
    pub retention: Option<Micros>,
    /// Hashes keys of groups for checkpoints; changes no answer. A stage that is restored goes on with the key of its
    /// checkpoint.
    pub tag_key: HashKey,
    /// What the stage has not been given. A stage that is restored goes on with that of its checkpoint.
    pub missed: Missed,
}

/// Records that came before a stage was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// The stage is given all records of its stream.
    #[default]
    Nothing,
    /// None of them is later than this: answers carry it as `since`, as those of queries do that come later.
    UpTo(Micros),
    /// Nobody knows how late the last of them is: answers carry the time of the first record that does come.
    Some,
}

impl Default for StageOptions {
    fn default() -> Self {
        Self {
            lateness: 10_000_000,
            late: LatePolicy::Reject,
            dedup: None,
            chunk_rows: CHUNK_ROWS,
            turn: passed::TURN,
            retention: None,
            tag_key: HashKey::draw(),
            missed: Missed::Nothing,
        }
    }
}

/// Values of a stage's queries for a batch, one row per record.
#[derive(Clone, Debug)]
pub struct Answers {
    /// One struct column per query, in the order of [`Stage::queries`].
    pub values: Vec<ArrayRef>,
    /// Records refused as late, or clamped; ascending record numbers of the batch.
    pub late: Vec<u32>,
    /// Those of them that `lateness` would have taken, had it not been smaller before a restart.
    pub closed: Vec<u32>,
    /// Whether late records were refused.
    pub late_refused: bool,
    pub task_times: TaskTimes,
    /// Records refused as duplicates.
    pub duplicate: Vec<u32>,
    /// (record, query, output) whose value did not fit its type, or that needed something that went beyond a bound of
    /// expressions.
    pub misfits: Vec<(u32, u32, u32)>,
    /// Guarded queries ([`Stage::guard_query`]) with an expression that failed at some record, and the error.
    pub failed: Vec<(String, String)>,
}

/// Windows of one keyed task.
pub struct Stage {
    options: StageOptions,
    /// Columns of the input that the plan reads; expressions are bound to these.
    input: Vec<usize>,
    schema: Schema,
    records: Records,
    /// Groupings, filters, windows and leaves keep their places; those of dropped queries are free for others.
    groupings: Vec<Option<Grouping>>,
    filters: Vec<Option<Filter>>,
    args: Vec<Arg>,
    windows: Vec<Option<Window>>,
    leaves: Vec<Option<LeafNode>>,
    queries: Vec<QueryState>,
    layout: Vec<(String, arrow_schema::DataType)>,
    /// Places in the layout that no query reads.
    unused: Vec<usize>,
    /// Place of the arrival number in the layout, once an aggregate depends on the order of elements.
    seq: Option<usize>,
    /// The id that the next grouping or leaf gets: ids are in checkpoints and are never used again.
    next_id: u32,
    /// Whether the one group of queries without GROUP BY has changed.
    whole: Dirty,
    /// From the first marker on.
    checkpoint: Option<Checkpoint>,
    /// Where groups may leave memory.
    cache: Option<Cache>,
}

impl Stage {
    /// A stage over an empty store.
    ///
    /// `schema` is the input's; queries are bound to it by [`Stage::plan`] and added by [`Stage::add_queries`].
    pub fn new(schema: &Schema, options: StageOptions, store: ChunkStore) -> Self {
        let layout = vec![("time".to_owned(), arrow_schema::DataType::Int64)];
        Self {
            records: Records::new(schema, &options, Layout::new(&layout), store),
            input: Vec::new(),
            schema: schema.clone(),
            groupings: Vec::new(),
            filters: Vec::new(),
            args: Vec::new(),
            windows: Vec::new(),
            leaves: Vec::new(),
            queries: Vec::new(),
            layout,
            unused: Vec::new(),
            seq: None,
            next_id: 1,
            whole: Dirty::default(),
            checkpoint: None,
            cache: None,
            options,
        }
    }

    /// Largest event time accepted so far.
    pub fn task_time(&self) -> Option<Micros> {
        self.records.task_time()
    }

    /// The record that moved task time to where it is; `None` if it is unknown.
    pub fn newest(&self) -> Option<&RecordPlace> {
        self.records.newest.as_ref()
    }

    /// To be called after a batch in which a record moved task time ([`TaskTimes::mover`]), before the next marker.
    pub fn set_newest(&mut self, place: Option<RecordPlace>) {
        self.records.newest = place;
    }

    /// How far an event time may be below task time.
    pub fn lateness(&self) -> Micros {
        self.records.lateness
    }

    /// Heap bytes of groups, aggregates, ids and open chunks, and of pending hand-overs.
    pub fn state_bytes(&self) -> usize {
        let leaves: usize = self.leaves.iter().flatten().map(|node| node.leaf.bytes()).sum();
        let groups: usize = self.groupings.iter().flatten().map(Grouping::bytes).sum();
        let handed_over = self.checkpoint.as_ref().map_or(0, Checkpoint::bytes);
        leaves + groups + self.records.bytes() + handed_over
    }

    pub fn chunk_stats(&self) -> ChunkStats {
        self.records.reservoir.store().stats()
    }

    /// Live groups over all GROUP BYs, in memory or not.
    pub fn groups(&self) -> usize {
        let own = self.groupings.iter().flatten().filter(|grouping| grouping.values_of.is_none());
        own.map(|grouping| grouping.table.live()).sum()
    }

    /// Answers every record of a batch, in order.
    ///
    /// # Errors
    /// Where the reservoir cannot be written or read back, a group cannot be read back, or an expression fails as a
    /// whole.
    pub fn answer(&mut self, batch: &Batch) -> Result<Answers, Error> {
        let count = batch.len();
        let input = self.project(batch);
        let evaluated = self.evaluate(&input)?;
        let ids = self.records.ids_of(batch);
        self.recall_ids(ids.as_deref())?;
        let verdicts = self.records.judge(batch, ids.as_deref());
        let accepted = verdicts.accepted.as_deref();
        if let Some(begins) = self.records.tell_begin(&verdicts) {
            self.tell_begin(begins);
        }

        let groups = self.number_groups(&evaluated, &verdicts)?;
        let columns = self.layout_columns(batch, &evaluated, &verdicts, &groups);

        let passed = self.records.store(&columns, &verdicts)?;
        let width = columns.len();
        let mut streams = Streams::new(Elements::of_batch(&columns, count, accepted), passed, width);

        self.bring_in_passed(&streams, |_, _, _| {})?;
        self.note_changes(&streams, &groups, count);
        let slots = self.translate(&mut streams, groups);
        let values = self.run_leaves(&streams, &verdicts, &slots, count);
        let answers = self.assemble(&values, &evaluated, &verdicts, count)?;
        self.sweep(count);
        self.visit_cold(count)?;
        self.keep_within_memory(count);
        Ok(answers)
    }

    /// Group numbers of every record, by grouping.
    fn number_groups(
        &mut self,
        evaluated: &Evaluated,
        verdicts: &Verdicts,
    ) -> Result<Vec<ScalarBuffer<u32>>, Error> {
        let mut numbers = Vec::with_capacity(self.groupings.len());
        let mut claimed: Vec<(u32, Option<Micros>)> = Vec::new();
        let mut came: Vec<u32> = Vec::new();
        for place in 0..self.groupings.len() {
            let keys = &evaluated.keys[place];
            let values = self.groupings[place].as_ref().and_then(|grouping| grouping.values_of);
            let with_values = values.map(|values| self.with_values(values, evaluated, verdicts));
            let accepted = with_values.as_deref().or(verdicts.accepted.as_deref());
            self.bring_in_keys(place, keys, verdicts.times.len())?;
            let Some(Grouping { id, table, dirty, tags, .. }) = &mut self.groupings[place] else {
                numbers.push(ScalarBuffer::from(Vec::new()));
                continue;
            };
            let is_frozen = dirty.left() > 0;
            let before = |group: u32, newest: Option<Micros>| {
                if newest.is_none() {
                    came.push(group);
                }
                if is_frozen && dirty.claim(group) {
                    claimed.push((group, newest));
                }
            };
            numbers.push(table.number(keys, &verdicts.times, accepted, before));
            for (group, newest) in claimed.drain(..) {
                let entry = newest.and_then(|newest| {
                    let (slot, key, _) = table.entry(group)?;
                    Some((slot, key, newest))
                });
                save_group(&mut self.checkpoint, (*id, group), entry, Some(place), &self.leaves);
            }
            if self.checkpoint.is_some() {
                tags.came(&came);
            }
            if let Some(cache) = &mut self.cache {
                cache.came(came.len());
            }
            came.clear();
        }
        Ok(numbers)
    }

    /// Which records are accepted and have a value that is counted.
    fn with_values(&self, values: ValuesOf, evaluated: &Evaluated, verdicts: &Verdicts) -> Vec<bool> {
        let accepted = verdicts.accepted.as_ref();
        let filter = values.filter.and_then(|filter| self.filters[filter].as_ref());
        let bits = filter.and_then(|filter| evaluated.filters.get(&filter.layout));
        let column = evaluated.columns.get(&values.arg);
        (0..verdicts.times.len())
            .map(|row| {
                accepted.is_none_or(|accepted| accepted[row])
                    && bits.is_none_or(|bits| bits.value(row))
                    && column.is_some_and(|column| column.is_valid(row))
            })
            .collect()
    }

    /// The columns that the plan reads, dense: one row per record.
    fn project(&self, batch: &Batch) -> RecordBatch {
        let columns = self.input.iter().map(|column| dense(batch, *column)).collect();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.len()));
        RecordBatch::try_new_with_options(Arc::clone(self.schema_of_input().arrow()), columns, &options)
            .expect("the input has the columns that the plan was bound to")
    }

    /// Columns of the reservoir's layout for a batch.
    fn layout_columns(
        &mut self,
        batch: &Batch,
        evaluated: &Evaluated,
        verdicts: &Verdicts,
        groups: &[ScalarBuffer<u32>],
    ) -> Arc<[ArrayRef]> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.layout.len()];
        columns[stream::TIME] = Some(Arc::new(Int64Array::new(verdicts.times.clone(), None)));
        if let Some(seq) = self.seq {
            columns[seq] = Some(Arc::new(UInt64Array::from(self.records.arrivals(batch))));
        }
        for (grouping, numbers) in self.groupings.iter().zip(groups) {
            let Some(grouping) = grouping else { continue };
            columns[grouping.layout] = Some(Arc::new(UInt32Array::new(numbers.clone(), None)));
        }
        for (layout, bits) in &evaluated.filters {
            columns[*layout] = Some(Arc::new(BooleanArray::new(bits.clone(), None)));
        }
        for (layout, column) in &evaluated.columns {
            columns[*layout] = Some(Arc::clone(column));
        }
        columns
            .into_iter()
            .enumerate()
            .map(|(index, column)| {
                // A dropped query's column stays in the layout, empty: until another takes its place, or while records
                // that have it are in windows of others.
                column.unwrap_or_else(|| arrow_array::new_null_array(&self.layout[index].1, batch.len()))
            })
            .collect()
    }

    /// Columns of every leaf, by leaf and call.
    fn run_leaves(
        &mut self,
        streams: &Streams,
        verdicts: &Verdicts,
        groups: &[ScalarBuffer<u32>],
        count: usize,
    ) -> Vec<Vec<crate::agg::Column>> {
        let mut selections: HashMap<(StreamId, usize), Selection> = HashMap::new();
        let one_group = ScalarBuffer::from(vec![0_u32; count]);
        let mut values = Vec::with_capacity(self.leaves.len());
        for node in &mut self.leaves {
            let Some(node) = node else {
                values.push(Vec::new());
                continue;
            };
            let window = self.windows[node.window].as_ref().expect("a leaf's window is in the plan");
            let entering = window.head.map_or(StreamId::Batch, StreamId::Cursor);
            let leaving = window.tail.map(StreamId::Cursor);
            let filter = node.filter.and_then(|place| Some((place, self.filters[place].as_ref()?.layout)));
            if let Some((place, layout)) = filter {
                for id in [Some(entering), leaving].into_iter().flatten() {
                    selections
                        .entry((id, place))
                        .or_insert_with(|| Selection::filtered(streams.get(id), layout));
                }
            }
            let selected = |id| match filter {
                Some((place, _)) => &selections[&(id, place)],
                None => &Selection::ALL,
            };
            let grouping = node.grouping.and_then(|grouping| self.groupings[grouping].as_ref());
            node.leaf.grow(Face::Groups, grouping.map_or(1, |grouping| grouping.table.slots()));
            let mut layouts: SmallVec<[usize; 1]> = SmallVec::new();
            for (number, place) in node.values.iter().enumerate() {
                let Some(values) = &self.groupings[*place] else { continue };
                node.leaf.grow(Face::Values(number), values.table.slots());
                layouts.push(values.layout);
            }
            let turn = Turn {
                task_times: &verdicts.task_times,
                delay: window.delay,
                groups: node.grouping.map_or(&one_group, |grouping| &groups[grouping]),
                entering: streams.get(entering),
                entered: selected(entering),
                leaving: leaving.map(|id| (streams.get(id), selected(id))),
            };
            let group = grouping.map(|grouping| grouping.layout);
            let columns = Columns { group, seq: self.seq, has_times: false, values: &layouts };
            values.push(node.leaf.run(&turn, columns));
        }
        values
    }

    fn assemble(
        &self,
        values: &[Vec<crate::agg::Column>],
        evaluated: &Evaluated,
        verdicts: &Verdicts,
        count: usize,
    ) -> Result<Answers, Error> {
        let mut misfits = Vec::new();
        let mut failed = self.failed_queries(evaluated);
        let mut answered = Vec::with_capacity(self.queries.len());
        for (index, query) in self.queries.iter().enumerate() {
            let calls: SmallVec<[_; 4]> =
                query.calls.iter().map(|call| &values[call.leaf][call.call]).collect();
            let mut columns: SmallVec<[ArrayRef; 4]> =
                calls.iter().map(|column| Arc::clone(&column.values)).collect();
            query.clamp(&mut columns, &verdicts.task_times);
            let mut outputs: Vec<ArrayRef> = Vec::with_capacity(query.fields.len());
            for (place, output) in query.outputs.iter().enumerate() {
                let made = guard::naming(
                    || vec![query.name.clone()],
                    || {
                        output
                            .values(&columns, count, query.is_guarded)
                            .map_err(|error| guard::failed(&error))
                    },
                )?;
                let errors = calls[output.calls.clone()].iter().flat_map(|column| &column.errors);
                let all = errors.chain(&made.misfits).map(|row| (*row, index as u32, place as u32));
                misfits.extend(all);
                failed.extend(made.failure.map(|error| (query.name.clone(), error.to_string())));
                outputs.push(made.array);
            }
            outputs.extend(self.since_columns(query, &verdicts.task_times));
            let object = StructArray::try_new_with_length(query.fields.clone(), outputs, None, count)
                .expect("columns have the query's types");
            answered.push(Arc::new(object) as ArrayRef);
        }
        self.name_misfits(evaluated, verdicts, &mut misfits);
        misfits.sort_unstable();
        misfits.dedup();
        Ok(Answers {
            values: answered,
            late: verdicts.late.clone(),
            closed: verdicts.closed.clone(),
            late_refused: self.records.late == LatePolicy::Reject,
            task_times: verdicts.over_batch(),
            duplicate: verdicts.duplicate.clone(),
            misfits,
            failed,
        })
    }
}

/// One column of a batch, one row per record.
fn dense(batch: &Batch, column: usize) -> ArrayRef {
    let column = batch.column(column);
    match batch.selection() {
        None if batch.is_empty() => column.slice(0, 0),
        None => column.slice(batch.row(0) as usize, batch.len()),
        Some(rows) => {
            let rows = UInt32Array::from(rows.to_vec());
            take(column, &rows, None).expect("selected rows are in the columns")
        }
    }
}
