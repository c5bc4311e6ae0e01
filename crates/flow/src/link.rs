//! The sending end of a link: spreads batches over the downstream tasks, buffers them, and sends each task
//! items that cover the order without a gap.
//!
//! A buffer leaves when it holds enough bytes, when its oldest record is old enough, before a tick, cycle
//! marker, command or the end, and when the task has to stop because one of its rings is full (see `task` for
//! why). A batch that is ready to leave but meets a full ring waits in `queue`, and its task is then *stuck*.
//!
//! A buffer also leaves at once where a task with several inputs stops for want of it while another of
//! its rings is full (it *hurries* this one, see `task`).
//!
//! Where nothing downstream waits for several inputs, an item that would say no more than "nothing here" is
//! kept back until there is something to say (`prompt` is false).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, UInt32Array};
use arrow_select::take::take;
use thalweg_types::{Batch, Error, Rows, Seq, SeqRange, hash_columns, partition_of};

use crate::Partitioning;
use crate::merge::{append, bounds};
use crate::ring::{Control, Data, Item, Sender, older};

/// Order numbers that a shuffle gives to one task before it goes on to the next.
const SHUFFLE_RUN: u64 = 4096;
/// Batches of fewer rows are copied together while they wait; a larger one is worth an item of its own.
const SMALL: usize = 512;

pub(crate) struct Link {
    partitioning: Partitioning,
    outlets: Vec<Outlet>,
    buffer: usize,
    flush: Duration,
    prompt: bool,
    /// An outlet holds `buffer` bytes.
    full: bool,
    /// An outlet's queue is not empty.
    stuck: bool,
    /// Row numbers per downstream task, kept between batches.
    rows: Vec<Vec<u32>>,
}

/// When a stage emits, and since when it has had what it emits from.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub now: Instant,
    /// When the oldest record that is worked on, or the tick or its like, was numbered.
    pub born: Option<Instant>,
}

/// The way to one downstream task.
struct Outlet {
    sender: Sender,
    pending: Vec<Batch>,
    bytes: usize,
    /// When the oldest pending record (or, if prompt, range) came.
    since: Option<Instant>,
    /// When the oldest pending record was numbered.
    born: Option<Instant>,
    /// Up to where items were made.
    made: Seq,
    /// Items that wait for room.
    queue: VecDeque<Item>,
}

impl Link {
    /// `start` is the number at which the order begins.
    pub(crate) fn new(
        partitioning: Partitioning,
        senders: Vec<Sender>,
        buffer: usize,
        flush: Duration,
        prompt: bool,
        start: Seq,
    ) -> Self {
        let outlet = |sender| Outlet {
            sender,
            pending: Vec::new(),
            bytes: 0,
            since: None,
            born: None,
            made: start,
            queue: VecDeque::new(),
        };
        let rows = senders.iter().map(|_| Vec::new()).collect();
        let outlets = senders.into_iter().map(outlet).collect();
        Self { partitioning, outlets, buffer, flush, prompt, full: false, stuck: false, rows }
    }

    /// Takes a batch in; its rows follow those of the batches before it.
    pub(crate) fn add(&mut self, batch: Batch, at: Moment) -> Result<(), Error> {
        let tasks = self.outlets.len();
        if tasks == 1 {
            self.put(0, batch, at);
            return Ok(());
        }
        match &self.partitioning {
            Partitioning::Forward | Partitioning::Global => self.put(0, batch, at),
            Partitioning::Broadcast => {
                for task in 0..tasks {
                    self.put(task, batch.clone(), at);
                }
            }
            Partitioning::Shuffle => self.shuffle(batch, at),
            Partitioning::Key(columns) => {
                if batch.len() == 1 {
                    let hash = hash_selected(&batch, columns)?[0];
                    self.put(partition_of(hash, tasks as u32) as usize, batch, at);
                } else {
                    spread_by_key(&batch, columns, &mut self.rows)?;
                    self.put_rows(&batch, at);
                }
            }
            Partitioning::Custom(partitioner) => {
                let partitioner = Arc::clone(partitioner);
                partitioner.partition(&batch, &mut self.rows);
                self.put_rows(&batch, at);
            }
        }
        Ok(())
    }

    fn shuffle(&mut self, mut rest: Batch, at: Moment) {
        let tasks = self.outlets.len() as u64;
        while let Some((first, last)) = bounds(&rest) {
            let run = first / SHUFFLE_RUN;
            let task = (run % tasks) as usize;
            let end = (run + 1) * SHUFFLE_RUN;
            if last < end {
                self.put(task, rest, at);
                return;
            }
            // The split point is between two rows, so within any range that covers them.
            let covering = SeqRange::new(first, last + 1);
            let (run, after) = rest.with_range(covering).split(end);
            self.put(task, run, at);
            rest = after;
        }
    }

    /// Gives every task the rows that are in its list, and empties the lists.
    fn put_rows(&mut self, batch: &Batch, at: Moment) {
        let mut lists = std::mem::take(&mut self.rows);
        for (task, rows) in lists.iter_mut().enumerate() {
            if rows.len() == batch.len() {
                self.put(task, batch.clone(), at);
            } else if !rows.is_empty() {
                self.put(task, batch.with_rows(rows.as_slice().into()), at);
            }
            rows.clear();
        }
        self.rows = lists;
    }

    fn put(&mut self, task: usize, batch: Batch, at: Moment) {
        let outlet = &mut self.outlets[task];
        outlet.bytes += batch.bytes();
        outlet.pending.push(batch);
        outlet.since.get_or_insert(at.now);
        outlet.born = older(outlet.born, at.born);
        self.full |= outlet.bytes >= self.buffer;
    }

    /// All up to `end` is in: buffers that are full leave.
    #[inline]
    pub(crate) fn settle(&mut self, end: Seq) -> Result<(), Error> {
        if std::mem::take(&mut self.full) {
            for outlet in &mut self.outlets {
                if outlet.bytes >= self.buffer {
                    self.stuck |= !outlet.leave(end, None)?;
                }
            }
        }
        Ok(())
    }

    /// Everything leaves, with `control` as number `end - 1` after it.
    pub(crate) fn control(
        &mut self,
        end: Seq,
        control: &Control,
        born: Option<Instant>,
    ) -> Result<(), Error> {
        self.full = false;
        for outlet in &mut self.outlets {
            outlet.born = older(outlet.born, born);
            self.stuck |= !outlet.leave(end, Some(control.clone()))?;
        }
        Ok(())
    }

    /// At the end of a run that has covered all up to `end`: buffers that are old enough leave. Returns when the next
    /// will be.
    pub(crate) fn flush(&mut self, end: Seq, now: Instant) -> Result<Option<Instant>, Error> {
        let mut next: Option<Instant> = None;
        for outlet in &mut self.outlets {
            if !outlet.has_news(end, self.prompt) {
                continue;
            }
            let due = *outlet.since.get_or_insert(now) + self.flush;
            if due <= now || outlet.sender.is_hurried() {
                self.stuck |= !outlet.leave(end, None)?;
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        Ok(next)
    }

    /// From number `from` on records may be missing in batches that leave after this.
    pub(crate) fn leave_out(&self, from: Seq) {
        self.outlets.iter().for_each(|outlet| outlet.sender.leave_out(from));
    }

    /// A task further down stops until something comes over this link.
    pub(crate) fn is_hurried(&self) -> bool {
        self.prompt && self.outlets.iter().any(|outlet| outlet.sender.is_hurried())
    }

    /// Everything that has something to say leaves, whatever its age.
    pub(crate) fn flush_all(&mut self, end: Seq) -> Result<(), Error> {
        for outlet in &mut self.outlets {
            if outlet.has_news(end, self.prompt) {
                self.stuck |= !outlet.leave(end, None)?;
            }
        }
        Ok(())
    }

    /// Tries to send batches that wait for room; `false` if some still wait, and the task is woken when it may
    /// try again.
    pub(crate) fn unstick(&mut self) -> bool {
        if self.stuck {
            self.stuck = false;
            for outlet in &mut self.outlets {
                self.stuck |= !outlet.send();
            }
        }
        !self.stuck
    }

    /// Whether something still waits for room; then the last try to send it has asked to be woken.
    pub(crate) fn is_stuck(&mut self) -> bool {
        // A later try may have found room.
        self.stuck = self.stuck && self.outlets.iter().any(|outlet| !outlet.queue.is_empty());
        self.stuck
    }
}

impl Outlet {
    fn has_news(&self, end: Seq, prompt: bool) -> bool {
        !self.pending.is_empty() || (prompt && end > self.made)
    }

    /// Makes items of all that is pending, covering up to `end`, and sends what there is room for;
    /// `false` if something is left.
    fn leave(&mut self, end: Seq, control: Option<Control>) -> Result<bool, Error> {
        self.since = None;
        self.bytes = 0;
        let born = self.born.take();
        let start = std::mem::replace(&mut self.made, end);
        match self.pending.len() {
            0 if end == start => return Ok(self.queue.is_empty()),
            0 => self.queue.push_back(Item { end, data: Data::Nothing, control, born }),
            1 => {
                let batch = self.pending.remove(0).with_range(SeqRange::new(start, end));
                self.queue.push_back(Item { end, data: Data::Batch(batch), control, born });
            }
            _ => self.pack(SeqRange::new(start, end), control, born)?,
        }
        Ok(self.send())
    }

    /// Packs several batches into few items. Where an item ends and the next begins, order numbers differ; batches of
    /// other columns never share one.
    fn pack(
        &mut self,
        range: SeqRange,
        control: Option<Control>,
        born: Option<Instant>,
    ) -> Result<(), Error> {
        let mut from = range.start;
        let mut group = 0;
        let mut rows = 0;
        for index in 0..self.pending.len() {
            rows += self.pending[index].len();
            let next = self.pending.get(index + 1);
            let cut = match (bounds(&self.pending[index]), next.and_then(bounds)) {
                (Some((_, last)), Some((first, _))) => {
                    let small = rows < SMALL || next.is_some_and(|next| next.len() < SMALL / 4);
                    // Answers of a query that was added say `since` or not, by the partition that they come from.
                    let alike = next.is_none_or(|next| are_alike(&self.pending[index], next));
                    (last < first && !(small && alike)).then_some(first)
                }
                _ => None,
            };
            if next.is_some() && cut.is_none() {
                continue;
            }
            let to = cut.unwrap_or(range.end);
            let batch = append(&self.pending[group..=index], SeqRange::new(from, to))?;
            let control = if next.is_none() { control.clone() } else { None };
            self.queue.push_back(Item { end: to, data: Data::Batch(batch), control, born });
            (from, group, rows) = (to, index + 1, 0);
        }
        self.pending.clear();
        Ok(())
    }

    /// Sends as long as there is room; `false` if something is left.
    fn send(&mut self) -> bool {
        let mut sent = false;
        while !self.queue.is_empty() && self.sender.is_open() {
            if let Some(item) = self.queue.pop_front() {
                self.sender.push(item);
                sent = true;
            }
        }
        if sent {
            self.sender.wake();
        }
        self.queue.is_empty()
    }
}

/// Hashes of a batch's records, in their order.
fn hash_selected(batch: &Batch, columns: &[usize]) -> Result<Vec<u64>, Error> {
    let count = batch.len();
    let columns: Result<Vec<ArrayRef>, _> = match batch.rows() {
        Rows::Run { start, .. } => {
            Ok(columns.iter().map(|index| batch.column(*index).slice(*start as usize, count)).collect())
        }
        Rows::Some { .. } => {
            let rows = UInt32Array::from(batch.row_numbers().collect::<Vec<u32>>());
            columns.iter().map(|index| take(batch.column(*index), &rows, None)).collect()
        }
    };
    let columns = columns.map_err(|cause| Error::internal("select key columns").with_source(cause))?;
    Ok(hash_columns(&columns, count))
}

fn spread_by_key(batch: &Batch, columns: &[usize], lists: &mut [Vec<u32>]) -> Result<(), Error> {
    let tasks = lists.len() as u32;
    let hashes = hash_selected(batch, columns)?;
    let expected = hashes.len() / lists.len();
    for list in lists.iter_mut() {
        list.reserve(expected + expected / 8);
    }
    match batch.selection() {
        None => {
            let start = batch.row(0);
            for (row, hash) in (start..).zip(hashes) {
                lists[partition_of(hash, tasks) as usize].push(row);
            }
        }
        Some(rows) => {
            for (row, hash) in rows.iter().zip(hashes) {
                lists[partition_of(hash, tasks) as usize].push(*row);
            }
        }
    }
    Ok(())
}

/// Whether two batches have the same columns, so that one can be made of them.
fn are_alike(batch: &Batch, other: &Batch) -> bool {
    let (one, other) = (batch.records().schema_ref(), other.records().schema_ref());
    Arc::ptr_eq(one, other) || one.fields() == other.fields()
}
