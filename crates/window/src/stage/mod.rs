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
//! A stage has four parts. Each has methods for what hangs on it, and is given another part where it cannot do without:
//! * the *plan* (`plan`): queries, what they have in common, groups and aggregates;
//! * *records* (`records`): the judge, ids, arrival numbers, rows in the reservoir and cursors;
//! * the *checkpoint* (`checkpoint`), from the first marker on: the open cycle, and what older ones need;
//! * the *cache* (`cache`), where memory is bounded: the way back for groups, and which of them leave.
//!
//! [`Stage`] has the public methods, and says in which order the parts take their turns.
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
mod input;
mod layout;
mod leaf;
mod leaves;
mod manifest;
mod matching;
mod nodes;
mod numbers;
mod outputs;
mod passed;
mod pieces;
mod plan;
mod queries;
mod read;
mod records;
mod replay;
mod restore;
mod rows;
mod run;
mod stream;
mod sweep;
mod tags;

use arrow_array::ArrayRef;
use thalweg_expr::SqlError;
use thalweg_storage::{ChunkStats, ChunkStore};
use thalweg_types::{Batch, DataType, Error, HashKey, LatePolicy, Micros, Origin, RecordPlace, Schema};

use crate::pieces::PIECE;
use crate::plan::PlannedQuery;
use crate::query::Query;
use crate::reservoir::CHUNK_ROWS;
use cache::Cache;
use checkpoint::Checkpoint;
use nodes::{Arg, Filter, Grouping, LeafNode, Window};
use plan::Plan;
use queries::Unread;
use records::Records;
use stream::{Elements, Streams};

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
    /// Values of a piece, in which a checkpoint has the middle of a list that is long (`min`, `max`, `first` of sliding
    /// windows, `ROWS`). Changes no answer.
    pub piece: usize,
    /// Keep records in the reservoir for at least this long, though no cursor needs them.
    pub retention: Option<Micros>,
    /// Hashes keys of groups for checkpoints; changes no answer. A stage that is restored goes on with the key of its
    /// checkpoint.
    pub tag_key: HashKey,
    /// What the stage has not been given. A stage that is restored goes on with that of its checkpoint.
    pub missed: Missed,
    /// Records are judged by a time that others hold ([`Stage::hold`]): until they have said it, also after a restart, nothing
    /// is closed that was not before.
    pub is_held: bool,
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
            piece: PIECE,
            retention: None,
            tag_key: HashKey::draw(),
            missed: Missed::Nothing,
            is_held: false,
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
    plan: Plan,
    records: Records,
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
        let plan = Plan::new(schema, &options);
        Self {
            records: Records::new(schema, &options, plan.layout.of_reservoir(), store),
            plan,
            checkpoint: None,
            cache: None,
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

    /// Judges records by `time` where that is less than task time ([`thalweg_types::Lateness::hold`]). No checkpoint has it.
    pub fn hold(&mut self, time: Micros) {
        self.records.judge.hold(time);
    }

    /// How far an event time may be below task time.
    pub fn lateness(&self) -> Micros {
        self.records.lateness
    }

    /// Heap bytes of groups, aggregates, ids and open chunks, and of pending hand-overs.
    pub fn state_bytes(&self) -> usize {
        let handed_over = self.checkpoint.as_ref().map_or(0, Checkpoint::bytes);
        self.plan.bytes() + self.records.bytes() + handed_over
    }

    pub fn chunk_stats(&self) -> ChunkStats {
        self.records.reservoir.store().stats()
    }

    /// Live groups over all GROUP BYs, in memory or not.
    pub fn groups(&self) -> usize {
        self.plan.groups()
    }

    /// Binds a query to the columns that this stage reads, and makes it read those that the query needs too.
    ///
    /// # Errors
    /// Where a field does not exist or has a type that its use does not take; the place is in the query's text.
    pub fn plan(&mut self, name: &str, query: &Query) -> Result<PlannedQuery, SqlError> {
        self.plan.input.bind(name, query)
    }

    /// Names and types of the queries, in the order of the answers' columns.
    pub fn queries(&self) -> impl Iterator<Item = (&str, &DataType)> {
        self.plan.queries.iter().map(|query| (query.name.as_str(), &query.data_type))
    }

    /// Adds queries that are bound by [`Stage::plan`]. Before the first record they see all of them; later, only
    /// those that come from now on, and their answers carry `since` until their window has filled.
    ///
    /// Queries that are given together share their aggregates.
    ///
    /// # Errors
    /// Where an aggregate does not take its argument.
    pub fn add_queries(&mut self, queries: &[PlannedQuery]) -> Result<(), Error> {
        let new: Vec<_> = queries.iter().map(|query| (query, vec![None; query.calls.len()])).collect();
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.save_frozen_groups(&mut self.plan);
        }
        self.plan.add_outputs(&new, &mut self.records)
    }

    /// Takes a query out of the plan, with whatever only it used. Returns whether there was one.
    pub fn drop_query(&mut self, name: &str) -> bool {
        if self.plan.query(name).is_none() {
            return false;
        }
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.save_frozen_groups(&mut self.plan);
        }
        let dropped = self.plan.drop_query(name, &mut self.records);
        if let Some(checkpoint) = &mut self.checkpoint {
            let Unread { groupings, leaves } = dropped;
            groupings
                .iter()
                .for_each(|grouping| checkpoint.drop_groups(grouping.id, grouping.table.numbers()));
            leaves.iter().for_each(|node| checkpoint.drop_pieces(node.id, node.leaf.shelf.next()));
            checkpoint.note_whole(&self.plan.leaves);
        }
        true
    }

    /// Guards a query: values that its expressions cannot compute because of a mistake of ours are null and named, and
    /// the query is in [`Answers::failed`]. Without this it ends the stage.
    pub fn guard_query(&mut self, name: &str) {
        self.plan.guard_query(name);
    }

    /// How many records of a batch, from its first, are to be answered at once: so that long texts that are made, or that
    /// answers have, do not pile up, and no call takes long for texts that are read and made. All of them where no
    /// expression has a text.
    pub fn rows_at_once(&self, batch: &Batch) -> usize {
        self.plan.rows_at_once(batch)
    }

    /// Explains the plan. Works before the first record as well as later.
    pub fn explain(&self) -> Explanation {
        self.plan.explain(&self.records)
    }

    /// The present values of a query for the group of the record that has these `fields`: one-row columns, in the order
    /// of [`Stage::group_fields`]. `None` where there is no such query.
    ///
    /// # Errors
    /// Where the group is not in memory and cannot be read back.
    pub fn read(&mut self, query: &str, fields: &[ArrayRef]) -> Result<Option<Present>, Error> {
        let (grouping, key) = self.plan.key_of(query, fields);
        if let (Some(cache), Some(grouping)) = (&mut self.cache, grouping) {
            cache.bring_in_keys(&mut self.plan, grouping, &key, 1)?;
        }
        Ok(self.plan.present(query, &key, self.task_time()))
    }

    /// Input columns that the GROUP BY of a query reads, in the order in which [`Stage::read`] takes them; empty for a query
    /// without GROUP BY, `None` where there is no such query.
    pub fn group_fields(&self, query: &str) -> Option<Vec<usize>> {
        self.plan.group_fields(query)
    }

    /// Answers every record of a batch, in order.
    ///
    /// # Errors
    /// Where the reservoir cannot be written or read back, a group cannot be read back, or an expression fails as a
    /// whole.
    ///
    /// Records that were made of one record share an order number, follow each other, and are not torn apart by a marker.
    pub fn answer(&mut self, batch: &Batch) -> Result<Answers, Error> {
        self.answer_from(batch, None)
    }

    /// The same where the records that were made of one record have the same origin, one of `origins` for each record. They
    /// may come in several batches, with those of other senders and markers between them.
    ///
    /// # Errors
    /// As there, and where there is not one origin for each record.
    pub fn answer_of(&mut self, batch: &Batch, origins: &[Origin]) -> Result<Answers, Error> {
        if origins.len() != batch.len() {
            let (records, origins) = (batch.len(), origins.len());
            return Err(Error::internal(format!("{records} records were given with {origins} origins")));
        }
        self.answer_from(batch, Some(origins))
    }

    fn answer_from(&mut self, batch: &Batch, origins: Option<&[Origin]>) -> Result<Answers, Error> {
        let count = batch.len();
        let input = self.plan.input.project(batch);
        let evaluated = self.plan.evaluate(&input)?;
        let ids = self.records.ids_of(batch);
        if let (Some(cache), Some(ids)) = (&mut self.cache, &ids) {
            cache.recall_ids(&mut self.records.judge, ids)?;
        }
        let verdicts = self.records.judge(batch, ids.as_deref(), origins);
        let accepted = verdicts.accepted.as_deref();
        if let Some(begins) = self.records.tell_begin(&verdicts) {
            self.plan.tell_begin(begins);
        }

        let groups =
            self.plan.number_groups(&evaluated, &verdicts, self.cache.as_mut(), self.checkpoint.as_mut())?;
        let arrivals = self.records.arrivals(batch);
        let arrivals = self.plan.layout.seq().map(|_| arrivals.collect());
        let columns = self.plan.layout_columns(&evaluated, &verdicts, &groups, arrivals);

        let passed = self.records.store(&columns, &verdicts)?;
        let width = columns.len();
        let mut streams = Streams::new(Elements::of_batch(&columns, count, accepted), passed, width);

        if let Some(cache) = &mut self.cache {
            cache.bring_in_passed(&mut self.plan, &streams, |_, _, _| {})?;
        }
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.note_changes(&mut self.plan, &streams, &groups, count);
        }
        let slots = match &mut self.cache {
            Some(cache) => cache.translate(&mut self.plan, &mut streams, groups),
            None => groups,
        };
        let values = self.plan.run_leaves(&streams, &verdicts, &slots, count);
        self.plan.pieces.check()?;
        let answers = self.plan.assemble(&values, &evaluated, &verdicts, self.records.late)?;
        if let Some(now) = self.records.task_time() {
            self.plan.sweep(count, now, self.checkpoint.as_mut());
            if let Some(cache) = &mut self.cache {
                cache.visit_cold(&mut self.plan, count, now)?;
            }
        }
        self.keep_within_memory(count);
        Ok(answers)
    }

    /// Lets groups and ids leave memory where they take more than they may.
    fn keep_within_memory(&mut self, records: usize) {
        let is_due = self.cache.as_mut().is_some_and(|cache| cache.is_due(&self.plan, records));
        let held = is_due.then(|| self.state_bytes());
        if let Some(cache) = &mut self.cache {
            let may_leave = self.checkpoint.is_some();
            cache.keep_within(&mut self.plan, self.records.judge.ids(), held, records, may_leave);
        }
    }

    /// Whether groups take what they may before memory is full.
    fn is_full(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.is_filled(&self.plan, self.state_bytes()))
    }
}
