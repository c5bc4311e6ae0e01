//! What an operator is: one trait over batches, for processors and sinks, ours and users' alike.
//!
//! Not here: how tasks are scheduled, how batches are merged and partitioned (the runtime does both).

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_types::{Batch, Error, Micros, Offset, Seq, SeqRange};

use crate::job::JobCore;
use crate::received::Received;
use crate::{CyclePart, Waker};

/// Which task of which operator this is.
#[derive(Clone, Debug)]
pub struct TaskInfo {
    pub job: Arc<str>,
    pub operator: Arc<str>,
    /// Number of this task, from 0; for a keyed operator the partition that it owns.
    pub index: u32,
    /// How many tasks the operator has.
    pub tasks: u32,
    /// How many tasks each of its inputs comes from, in the order of the inputs; none for a decoder.
    pub upstream: Vec<u32>,
}

impl TaskInfo {
    /// The only task of an operator without inputs.
    pub fn alone(job: &str, operator: &str) -> Self {
        Self { job: job.into(), operator: operator.into(), index: 0, tasks: 1, upstream: Vec::new() }
    }
}

/// Where a batch came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputId {
    /// Place in the operator's list of inputs.
    pub port: usize,
    /// Task of the upstream operator; always 0 under [`InputOrder::Merged`].
    pub task: u32,
}

/// How the batches of one range are given to [`Operator::process`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputOrder {
    /// One batch per port with rows in order, whatever the number of upstream tasks: the runtime merges them
    /// by order number, and equal numbers by upstream task. Rows of different ports come port by port.
    #[default]
    Merged,
    /// Each upstream task's batch as it is; the operator puts rows back in order itself where it matters.
    Grouped,
}

/// Something the control plane asks of an operator, numbered like a record so that every task takes it at the
/// same place of the order.
#[derive(Clone)]
pub struct Command {
    /// Operator whose tasks take it.
    pub operator: Arc<str>,
    /// What is asked; the operator knows the type. Replies go through a channel inside it.
    pub body: Arc<dyn Any + Send + Sync>,
    /// For the order log: the bytes that are needed to give the command again in a replay. `None` for one that changes
    /// nothing.
    pub record: Option<Bytes>,
}

/// The body of a command for tasks that judge records: they judge by this time where it is less than their own, as other
/// units that send to them are no further ([`thalweg_types::Lateness::hold`]).
#[derive(Clone, Copy, Debug)]
pub struct Held(pub Micros);

impl Command {
    /// Asks nothing of anybody: it takes the place of a command in a replay.
    pub fn nothing() -> Self {
        Self { operator: "".into(), body: Arc::new(()), record: None }
    }
}

/// An operator instance: one task of it. Batches in, batches out; all state is its own.
///
/// Calls come in the order of the stream. For every range, `process` is called for each non-empty batch (in
/// port order), then `complete` once; each range begins where the one before ended.
/// `tick`, `cycle`, `command` and `finish` come after the `complete` of a range of which they are the last
/// number. Records that an operator upstream emitted on the same tick have been given by then.
/// The first number of a job is a tick, and the last before the end is a cycle marker.
/// Time is only what `tick` says. An `Err` or a panic stops the job and names operator, task and record.
pub trait Operator: Send {
    fn process(&mut self, input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error>;

    /// Everything up to `range.end` has been given on every input; records emitted from here still belong
    /// to `range`.
    fn complete(&mut self, range: SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        let _ = (range, out);
        Ok(())
    }

    /// Wall-clock time as the order saw it, microseconds since the epoch.
    fn tick(&mut self, now: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        let _ = (now, out);
        Ok(())
    }

    /// The end of a cycle: hand over the changes, without waiting ([`Output::hand_over`]). Work that takes longer than
    /// a moment is prepared in later calls, as of this one, and handed over then.
    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        let _ = (cycle, out);
        Ok(())
    }

    fn command(&mut self, command: &Command, out: &mut Output<'_>) -> Result<(), Error> {
        let _ = (command, out);
        Ok(())
    }

    /// No more input. Called once, last; a sink flushes and syncs here. Data that it only hands over is waited for
    /// after it ([`Operator::is_drained`]).
    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// Whether every task of it hands over one part per cycle.
    fn takes_part(&self) -> bool {
        false
    }

    /// Whether it can take more now; asked before every range. One that cannot wakes its task when it can: that is how
    /// an operator which hands over to the I/O runtime waits without holding its worker.
    fn is_ready(&mut self, waker: &Waker) -> bool {
        let _ = waker;
        true
    }

    /// How many records of a batch, from its first, it takes at once; at least one. For operators that emit much more
    /// than they are given: the next ones come when what it emitted has gone on. Asked before every range, so it has to
    /// be cheap; it is not asked where the operator is chained into the task of another.
    fn rows_at_once(&mut self, batch: &Batch) -> usize {
        batch.len()
    }

    /// Whether all that it has handed over has arrived; asked after [`Operator::finish`], and the task ends once it
    /// says yes. One that says no wakes its task when that may have changed: so a sink waits for another system at the
    /// end without holding its worker.
    ///
    /// # Errors
    /// Why something will not arrive; the job has failed then.
    fn is_drained(&mut self, waker: &Waker) -> Result<bool, Error> {
        let _ = waker;
        Ok(true)
    }

    /// How inputs with several upstream tasks are given.
    fn input_order(&self) -> InputOrder {
        InputOrder::Merged
    }

    /// Whether it will emit at a later tick, should no more records come. Asked after every range that had records, and after
    /// ticks. A job that is told its order gets ticks by this alone.
    fn waits_for_tick(&self) -> bool {
        false
    }

    /// The largest event time that has moved the task, for the live graph; `None` where time moves nothing in it,
    /// or nothing has come. Asked after every range that had records, so it has to be cheap. Never goes back.
    fn task_time(&self) -> Option<Micros> {
        None
    }

    /// Heap bytes that the task's state holds, for the live graph.
    fn state_bytes(&self) -> usize {
        0
    }

    /// How the task's state is kept in memory, where not all of it has to be; for the live graph.
    fn cache_counts(&self) -> Option<CacheCounts> {
        None
    }

    /// What the task found among its records, where it judges them; for the live graph.
    fn judged_counts(&self) -> Option<JudgedCounts> {
        None
    }

    /// What the task has asked of a table, for the live graph.
    fn table_counts(&self) -> Option<TableCounts> {
        None
    }
}

crate::figures! {
    /// The lookups of a join and the age of its table.
    pub struct TableCounts as "Table" {
        /// Keys that a join asked its table for.
        lookups: u64, sum, Counter, Count, "thalweg_operator_table_lookups_total", "";
        /// Keys that the table does not have.
        misses: u64, sum, Counter, Count, "thalweg_operator_table_misses_total",
        "The table is old or not that of these records";
        /// Seconds since the table was put in place; none for one that is never loaded again.
        age_seconds: Option<u64>, least, Gauge, Seconds, "thalweg_operator_table_age_seconds",
        "Nobody writes the table any more";
        /// Tables that were loaded again.
        reloads: u64, most, Counter, Count, "thalweg_operator_table_reloads_total", "";
        /// Files that could not be loaded; the old table stays.
        failed_reloads: u64, most, Counter, Count, "thalweg_operator_table_failed_reloads_total",
        "The log says which file and why";
    }
}

crate::figures! {
    /// Records that an operator set apart.
    pub struct JudgedCounts as "Judged" {
        /// Late records, refused or counted at the bound of `lateness`.
        late: u64, sum, Counter, Count, "thalweg_operator_late_total",
        "Raise `lateness`, or look for a sender with a wrong clock";
        /// Records whose id had come before.
        duplicates: u64, sum, Counter, Count, "thalweg_operator_duplicates_total",
        "A client repeats: look for 504 in `thalweg_http_requests_total`";
    }
}

crate::figures! {
    /// State as a cache over a back end.
    pub struct CacheCounts as "Cache" {
        /// Keys (groups or elements) whose state is in memory.
        keys: u64, sum, Gauge, Count, "thalweg_operator_cache_keys", "";
        /// Keys that have state, in memory or not.
        stored: u64, sum, Gauge, Count, "thalweg_operator_cache_stored_keys", "";
        /// Bytes of memory of the index over all of them, wherever their state is.
        key_bytes: u64, sum, Gauge, Bytes, "thalweg_operator_cache_key_bytes",
        "More keys: see `thalweg explain`";
        /// Lookups of keys that were in memory.
        hits: u64, sum, Counter, Count, "thalweg_operator_cache_hits_total", "";
        /// Keys that a record had read back.
        misses: u64, sum, Counter, Count, "thalweg_operator_cache_misses_total",
        "As fast as records come: give `state.memory` more";
        /// Keys that the scan after a restart has read back.
        filled: u64, sum, Counter, Count, "thalweg_operator_cache_filled_total", "";
        /// Keys that left memory.
        evictions: u64, sum, Counter, Count, "thalweg_operator_cache_evictions_total",
        "Together with misses: give `state.memory` more";
    }
}

/// Which record a failure would be about, as far as the operator says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum At {
    /// Nothing: the first record of the batch represents all of them.
    #[default]
    Unsaid,
    Record(Seq),
    NoRecord,
}

/// Where an operator puts what it emits. The runtime partitions, buffers and sends it.
pub struct Output<'a> {
    /// Who it is that emits, for what it hands over.
    pub(crate) who: Option<(&'a Arc<str>, u32)>,
    pub(crate) emitted: &'a mut Vec<(usize, Batch)>,
    pub(crate) at: &'a mut At,
    pub(crate) range: SeqRange,
    /// `None` outside a runtime.
    pub(crate) core: Option<&'a JobCore>,
    /// Takes the parts that are handed over, instead of the runtime.
    pub(crate) parts: Option<&'a mut Parts>,
}

/// Parts of cycles, each with its cycle.
pub type Parts = Vec<(u64, Box<dyn CyclePart>)>;

impl Output<'_> {
    /// Emits on a named output, numbered in the order in which the operator declares them.
    ///
    /// Rows carry the order number of the record that they answer or come from; numbers ascend over all
    /// batches emitted on a port within one call sequence, and are in the range being processed. The batch's own
    /// range does not matter.
    pub fn emit(&mut self, port: usize, batch: Batch) {
        if !batch.is_empty() {
            self.emitted.push((port, batch));
        }
    }

    /// Source and offset of a record by its order number; `None` outside a runtime, and for a record that was made at a tick
    /// or the like, which no source has.
    pub fn place_of(&self, seq: Seq) -> Option<(Arc<str>, Offset)> {
        self.core?.place_of(seq)
    }

    /// A record as its source received it, by its order number; `None` outside a runtime, where its source has no bytes of
    /// its records, and where they are not kept ([`crate::JobOptions::keep_received`]).
    pub fn received(&self, seq: Seq) -> Option<Received> {
        self.core?.received.find(seq)
    }

    /// Says that nobody asks any more for blocks that were received before `end`: the operator at which all rejects of
    /// the job end has passed it.
    pub fn forget_received(&self, end: Seq) {
        if let Some(core) = self.core {
            core.forget_received(end);
        }
    }

    /// Hands over the task's part of a cycle that has been marked. Does nothing where nobody collects parts.
    pub fn hand_over(&mut self, cycle: u64, part: Box<dyn CyclePart>) {
        if let Some(parts) = &mut self.parts {
            parts.push((cycle, part));
            return;
        }
        if let Some(cycles) = self.core.and_then(|core| core.cycles.as_ref())
            && let Some((operator, task)) = self.who
        {
            cycles.part(operator, task, cycle, part);
        }
    }

    /// Asks for the end of the cycle before its time, where cycles are committed: the marker comes as soon as earlier
    /// cycles let it. Asking again before it comes changes nothing.
    pub fn hasten_cycle(&self) {
        if let Some(core) = self.core {
            core.hasten_cycle();
        }
    }

    /// As [`Output::hasten_cycle`], and sources wait until the marker has come: the changes of the cycle fill the
    /// task's memory, and room comes only after its end.
    pub fn hold_sources(&self) {
        if let Some(core) = self.core {
            core.hold_sources();
        }
    }

    /// The numbers that are being worked on. Records emitted in `process` and `complete` are in it; those
    /// emitted in `tick`, `cycle`, `command` and `finish` get the one number in it, whatever their rows say.
    pub fn range(&self) -> SeqRange {
        self.range
    }

    /// Says which record is being worked on, so that a failure can name it. Cheap; per record where the
    /// operator goes record by record.
    #[inline]
    pub fn working_on(&mut self, seq: Seq) {
        *self.at = At::Record(seq);
    }

    /// Says that the work from here on is about none of the records at hand, so that a failure names none: a sink
    /// passes on errors that another system reports for records that it was given before.
    #[inline]
    pub fn working_on_no_record(&mut self) {
        *self.at = At::NoRecord;
    }
}

/// Runs an operator by hand, without a runtime: for tests and for use as a library.
///
/// Returns the emitted batches, in order, with the port.
///
/// # Errors
/// What `call` returns.
pub fn collect<T>(
    call: impl FnOnce(&mut Output<'_>) -> Result<T, Error>,
) -> Result<Vec<(usize, Batch)>, Error> {
    run_by_hand(call, None)
}

fn run_by_hand<T>(
    call: impl FnOnce(&mut Output<'_>) -> Result<T, Error>,
    parts: Option<&mut Parts>,
) -> Result<Vec<(usize, Batch)>, Error> {
    let mut emitted = Vec::new();
    let mut at = At::Unsaid;
    let range = SeqRange::new(0, Seq::MAX);
    call(&mut Output { who: None, emitted: &mut emitted, at: &mut at, range, core: None, parts })?;
    Ok(emitted)
}

/// As [`collect`], with the parts of cycles that were handed over.
///
/// # Errors
/// What `call` returns.
pub fn collect_with_parts<T>(
    call: impl FnOnce(&mut Output<'_>) -> Result<T, Error>,
) -> Result<(Vec<(usize, Batch)>, Parts), Error> {
    let mut parts = Parts::new();
    let emitted = run_by_hand(call, Some(&mut parts))?;
    Ok((emitted, parts))
}
