//! Rows of units on their way to the next stage.
//!
//! The sink at the end of a unit ([`OutletSink`]) takes the rows that the next keyed operator reads, or puts records and what
//! links of a chain have said of them together, and spreads them over the partitions of the next topic. One actor for all units of a stage on the node ([`Carrying`]) sends them.
//!
//! A row is where its record is in the unit's own partition, so every node that works on the unit sends the same rows, in
//! whatever frames; the next stage drops those that it has. A commit of the unit waits until all rows before it are
//! written, and names the mark of the last one for each partition: a unit that goes on from it sends the rest again.
//!
//! When something is not written for good, no later acknowledgement counts (cluster rules, 3): the client is ended with all
//! that it holds, and each unit fails and goes on from its commit.
//!
//! Invariants
//! * Rows of a unit for one partition leave in the order of their positions, in frames of which one is on its way at a time.
//! * What waits to be sent is bounded for each unit by [`CarrierOptions::queue`], above which its sink takes no more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use bytes::{Buf as _, BufMut as _};
use thalweg_cluster::frame::{Settings, Spec};
use thalweg_cluster::positions::{Mark, Origin as Sent, Position};
use thalweg_connect::{OptionSpec, SinkContext, SinkPlugin};
use thalweg_flow::{CyclePart, InputId, InputOrder, Operator, Output, TaskFactory, Waker, merge_batches};
use thalweg_kafka::{Bus, Producer, Sent as Taken, TopicPartition};
use thalweg_types::{Batch, Error, Micros, Offset, Seq, SeqRange, Seqs};

use super::actor::{Actor, Bell, Next};
use super::answering::{Letters, Lines};
use super::arrived::{Arrived, Asker};
use super::cut::StageCut;
use super::lanes::{AGAIN, Frames, GLANCE, LOOK, Lanes, SPARE, producer, send};
use super::scatter::Origin;
use crate::durable::Doings;

/// How long a commit waits for the rows before it. The unit goes on from the commit before it then.
const PATIENCE: Duration = Duration::from_secs(60);

/// Version of the position of the sink. Persisted.
const VERSION: u8 = 1;

/// How rows are carried on.
#[derive(Clone, Debug)]
pub struct CarrierOptions {
    /// Bytes of rows and frames of one unit that are not written yet, for all partitions together.
    pub queue: usize,
    /// Bytes of frames of all units that are on their way.
    pub in_flight: usize,
    pub frames: Settings,
}

impl Default for CarrierOptions {
    fn default() -> Self {
        Self { queue: 16 << 20, in_flight: 64 << 20, frames: Settings::default() }
    }
}

/// What a carrier has done since its start. Relaxed throughout: figures, nothing hangs on them.
#[derive(Debug, Default)]
pub struct CarrierCounts {
    pub rows: AtomicU64,
    pub frames: AtomicU64,
    /// How often something was not written for good.
    pub failures: AtomicU64,
    /// How often a unit went back to its last commit, as the next stage had not got its rows.
    pub returns: AtomicU64,
}

/// Sends the rows of all units of a stage on this node to the next one.
pub struct Carrier {
    topic: Arc<str>,
    bus: Arc<dyn Bus>,
    options: CarrierOptions,
    outlets: Mutex<Vec<Weak<Outlet>>>,
    bell: Arc<Bell>,
    is_over: AtomicBool,
    pub counts: CarrierCounts,
}

impl Carrier {
    /// A carrier of rows to the stage that reads `topic`.
    pub fn new(bus: Arc<dyn Bus>, topic: impl Into<Arc<str>>, options: CarrierOptions) -> Arc<Self> {
        Arc::new(Self {
            topic: topic.into(),
            bus,
            options,
            outlets: Mutex::default(),
            bell: Arc::default(),
            is_over: AtomicBool::new(false),
            counts: CarrierCounts::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Outlet>>> {
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sink of a unit, whose rows `arrived` knows, and which sends them to `to`, both by the text `spec`. Where a later stage
    /// answers, `lines` are for doors whose rows do not go on. `doings` are those of the thread that commits the unit; `shown`
    /// shows the sink once it is there.
    pub(super) fn outlet(
        self: &Arc<Self>,
        unit: Sent,
        (to, spec): (StageCut, Arc<Spec>),
        (arrived, lines): (Arc<Arrived>, Option<Lines>),
        doings: Arc<Doings>,
        shown: Arc<Shown>,
    ) -> Arc<dyn SinkPlugin> {
        Arc::new(OutletPlugin { carrier: Arc::clone(self), unit, to, spec, arrived, lines, doings, shown })
    }

    /// Where the rows for a partition of the next stage go.
    pub(super) fn partition(&self, number: u32) -> TopicPartition {
        TopicPartition::new(Arc::clone(&self.topic), i32::try_from(number).unwrap_or(i32::MAX))
    }

    /// The offset after the newest message of such a partition; `None` if no broker says.
    pub(super) fn end_of(&self, number: u32) -> Option<Offset> {
        let bounds = self.bus.bounds(&self.partition(number)).ok()?;
        u64::try_from(bounds.end).ok()
    }

    /// What rings when there may be something to send.
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Ends what sends the rows.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Those that are there, by unit.
    fn outlets(&self) -> Vec<Arc<Outlet>> {
        let mut outlets = self.lock();
        outlets.retain(|outlet| outlet.strong_count() > 0);
        let mut outlets: Vec<Arc<Outlet>> = outlets.iter().filter_map(Weak::upgrade).collect();
        outlets.sort_by_key(|outlet| outlet.unit);
        outlets
    }

    /// Takes note of what is written, and sends what may go.
    fn send(
        &self,
        producer: &mut dyn Producer,
        below: u64,
        outlets: &[Arc<Outlet>],
        turn: &mut Turn,
        now: Micros,
    ) -> Result<(), Error> {
        let mut in_flight: usize =
            outlets.iter().map(|outlet| outlet.written(below, self.options.queue)).sum();
        let mut room = turn.frames.room(below, now);
        let (before, first) =
            outlets.split_at(outlets.partition_point(|outlet| Some(outlet.unit) <= turn.last));
        for outlet in first.iter().chain(before) {
            let mut sending = outlet.lock();
            // One that failed with an earlier client has rows of which nobody knows.
            if sending.failure.is_some() {
                continue;
            }
            for partition in sending.lanes.ready(room) {
                if in_flight >= self.options.in_flight {
                    return Ok(());
                }
                let tag = turn.frames.tag();
                let Some(cut) = sending.lanes.cut(partition, true, tag) else { continue };
                in_flight += cut.bytes();
                room -= 1;
                let sent = send(producer, &self.topic, partition, &cut, tag)?;
                turn.frames.leaves(now);
                turn.last = Some(outlet.unit);
                self.counts.frames.fetch_add(1, Ordering::Relaxed);
                if sent == Taken::Full {
                    return Err(Error::internal(
                        "a client of the brokers has no room for what it was made for",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Sends what outlets have, until [`Carrier::end`].
pub struct Carrying {
    carrier: Arc<Carrier>,
    client: Option<Box<dyn Producer>>,
    turn: Turn,
}

/// How many frames may leave next, and whose comes first: that of the unit after the one of the last frame.
#[derive(Default)]
struct Turn {
    frames: Frames,
    last: Option<Sent>,
}

impl Carrying {
    pub fn new(carrier: Arc<Carrier>) -> Self {
        Self { carrier, client: None, turn: Turn::default() }
    }
}

impl Actor for Carrying {
    fn step(&mut self, now: Micros) -> Next {
        let Self { carrier, client, turn } = self;
        let outlets = carrier.outlets();
        if carrier.is_over.load(Ordering::Acquire) {
            outlets.iter().for_each(|outlet| outlet.fail("the node ends the work on this job"));
            return Next::Over;
        }
        let connected = match &mut *client {
            Some(client) => client,
            none => match producer(&*carrier.bus, carrier.options.in_flight + SPARE, &carrier.bell) {
                Ok(made) => none.insert(made),
                Err(error) => {
                    tracing::warn!(topic = %carrier.topic, %error, "rows cannot be sent on: no broker");
                    return Next::Within(AGAIN);
                }
            },
        };
        let acknowledged = connected.acknowledged();
        let failure = match acknowledged.failure {
            Some(failure) => Some(Error::from(failure)),
            None => carrier.send(&mut **connected, acknowledged.below, &outlets, turn, now).err(),
        };
        if let Some(error) = failure {
            tracing::warn!(topic = %carrier.topic, %error, "rows were not written: units go on from their last commits");
            carrier.counts.failures.fetch_add(1, Ordering::Relaxed);
            *client = None;
            turn.frames.begin_again();
            let why = format!("rows for the next stage were not written: {error}");
            outlets.iter().for_each(|outlet| outlet.fail(&why));
            return Next::Within(Duration::ZERO);
        }
        let is_busy = outlets.iter().any(|outlet| outlet.lock().lanes.waiting() > 0);
        Next::Within(if is_busy { GLANCE } else { LOOK })
    }
}

/// Shows how far a unit has sent its rows.
#[derive(Default)]
pub(super) struct Shown(OnceLock<Weak<Outlet>>);

/// How far that is, of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentTo {
    /// The mark that the commit has from which the unit goes on: it makes no earlier rows.
    pub(super) opened: Mark,
    /// That of the last row that is written; not below `opened`.
    pub(super) written: Mark,
}

impl Shown {
    /// `None` where it does not send, or not any more.
    pub(super) fn sent_to(&self, partition: u32) -> Option<SentTo> {
        let outlet = self.0.get()?.upgrade()?;
        let opened = outlet.opened.get(partition as usize).copied()?;
        let sending = outlet.lock();
        let sent = SentTo { opened, written: sending.lanes.written(partition) };
        sending.failure.is_none().then_some(sent)
    }
}

/// The rows of one unit that are not written yet.
struct Outlet {
    unit: Sent,
    /// The mark of each partition as of the commit from which the unit goes on.
    opened: Vec<Mark>,
    sending: Mutex<Sending>,
    /// Something was written, or never will be.
    changed: Condvar,
    /// Of the thread that commits the unit.
    doings: Arc<Doings>,
}

struct Sending {
    lanes: Lanes,
    /// Order numbers below this have been taken.
    passed: Seq,
    /// Of the sink's task while it waits for room, or for the end.
    waker: Option<Waker>,
    /// Why nothing more is written.
    failure: Option<String>,
    /// The end of the rows that a commit waits for, which is not busy meanwhile.
    awaited: Option<Seq>,
}

impl Sending {
    /// Everything below is written.
    fn written(&self) -> Seq {
        self.lanes.first().map_or(self.passed, |first| first.seq)
    }

    fn check(&self) -> Result<(), Error> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(Error::external(failure.clone())))
    }
}

impl Outlet {
    fn lock(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frames with tags below are written; bytes that are on their way.
    fn written(&self, below: u64, queue: usize) -> usize {
        let mut sending = self.lock();
        sending.lanes.acknowledged(below);
        self.go_on(&mut sending);
        let has_room = sending.lanes.waiting() < queue;
        let waker = if has_room { sending.waker.take() } else { None };
        let in_flight = sending.lanes.in_flight();
        drop(sending);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
        in_flight
    }

    /// A commit that has waited for long enough is busy again, before it knows.
    fn go_on(&self, sending: &mut Sending) {
        let (written, has_failed) = (sending.written(), sending.failure.is_some());
        if sending.awaited.take_if(|end| has_failed || written >= *end).is_some() {
            self.doings.go_on();
        }
    }

    fn fail(&self, why: &str) {
        let mut sending = self.lock();
        sending.failure.get_or_insert_with(|| why.to_owned());
        self.go_on(&mut sending);
        let waker = sending.waker.take();
        drop(sending);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The sink of a unit that sends: no job file names it.
struct OutletPlugin {
    carrier: Arc<Carrier>,
    unit: Sent,
    to: StageCut,
    spec: Arc<Spec>,
    arrived: Arc<Arrived>,
    lines: Option<Lines>,
    doings: Arc<Doings>,
    shown: Arc<Shown>,
}

impl SinkPlugin for OutletPlugin {
    fn name(&self) -> &'static str {
        "outlet"
    }

    fn doc(&self) -> &'static str {
        "rows for the partitions of the next stage, on whatever nodes they are"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn guarantee(&self) -> &'static str {
        "exactly-once within the cluster"
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let Self { carrier, unit, to, spec, arrived, lines, doings, shown } = self;
        let position = context.durable.and_then(|durable| durable.position);
        let (task_time, marks) = match position {
            Some(position) => read_position(&position, to.partitions)?,
            None => (None, vec![Mark::START; to.partitions as usize]),
        };
        let after = |partition: u32| marks[partition as usize];
        let sending = Sending {
            lanes: Lanes::new(to, (*unit, spec), carrier.options.frames, after, task_time)?,
            passed: 0,
            waker: None,
            failure: None,
            awaited: None,
        };
        let doings = Arc::clone(doings);
        let sending = Mutex::new(sending);
        let outlet =
            Arc::new(Outlet { unit: *unit, opened: marks, sending, changed: Condvar::new(), doings });
        let _ = shown.0.set(Arc::downgrade(&outlet));
        carrier.lock().push(Arc::downgrade(&outlet));
        let (carrier, arrived) = (Arc::clone(carrier), Arc::clone(arrived));
        let schema = Arc::clone(to.streams[0].arrow());
        let unanswered = Arc::clone(&to.unanswered);
        let gathers = if to.said.is_empty() { Gathers::Rows } else { Gathers::Said };
        // A link of a chain sends all rows on.
        let lines = lines.clone().filter(|_| gathers == Gathers::Rows);
        Ok(Box::new(move |_| {
            Ok(Box::new(OutletSink {
                carrier: Arc::clone(&carrier),
                outlet: Arc::clone(&outlet),
                arrived: Arc::clone(&arrived),
                schema: Arc::clone(&schema),
                gathers,
                unanswered: Arc::clone(&unanswered),
                letters: lines.clone().map(|lines| Letters::new(Arc::clone(&arrived), lines)),
                went_on: Vec::new(),
                records: Vec::new(),
                said: BTreeMap::new(),
            }))
        }))
    }
}

/// Layout (little-endian): version 1; task time: 0, or 1 and the time 8; number of partitions 4; of each the mark of its last
/// row: offset 8, row 4, made 4.
fn write_position(task_time: Option<Micros>, marks: &[Mark]) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.put_u8(task_time.is_some().into());
    if let Some(time) = task_time {
        out.put_i64_le(time);
    }
    out.put_u32_le(u32::try_from(marks.len()).expect("fewer than 2^32 partitions"));
    for Mark { position: Position { offset, row }, made } in marks {
        out.put_u64_le(*offset);
        out.put_u32_le(*row);
        out.put_u32_le(*made);
    }
    out
}

fn read_position(mut bytes: &[u8], partitions: u32) -> Result<(Option<Micros>, Vec<Mark>), Error> {
    let damaged = || Error::corrupt("the commit record does not hold how far a unit has sent its rows");
    let mut read = || {
        if bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        let task_time = match bytes.try_get_u8().ok()? {
            0 => None,
            1 => Some(bytes.try_get_i64_le().ok()?),
            _ => return None,
        };
        if bytes.try_get_u32_le().ok()? != partitions {
            return None;
        }
        let marks = (0..partitions).map(|_| {
            let position =
                Position { offset: bytes.try_get_u64_le().ok()?, row: bytes.try_get_u32_le().ok()? };
            Some(Mark { position, made: bytes.try_get_u32_le().ok()? })
        });
        let marks = marks.collect::<Option<Vec<Mark>>>()?;
        bytes.is_empty().then_some((task_time, marks))
    };
    read().ok_or_else(damaged)
}

/// What the inputs of the sink are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathers {
    /// Those of the next keyed operator.
    Rows,
    /// Records, and what links of a chain say of them.
    Said,
}

struct OutletSink {
    gathers: Gathers,
    /// Inputs of whose rows no door hears.
    unanswered: Arc<[u32]>,
    /// For doors of rows that do not go on to where they would be answered.
    letters: Option<Letters>,
    /// Rows of the present range that do.
    went_on: Vec<Seq>,
    carrier: Arc<Carrier>,
    outlet: Arc<Outlet>,
    arrived: Arc<Arrived>,
    /// Of the rows of the next stage's first input.
    schema: SchemaRef,
    /// Of the present range, with the input.
    records: Vec<(u32, Batch)>,
    /// By input, what was said of them.
    said: BTreeMap<usize, Vec<RecordBatch>>,
}

impl OutletSink {
    /// The rows of the next stage, by input, in runs of ascending order.
    fn rows(&mut self, range: SeqRange) -> Result<Vec<(u32, Batch)>, Error> {
        match self.gathers {
            Gathers::Rows => in_order(std::mem::take(&mut self.records), range),
            Gathers::Said => Ok(self.with_said(range)?.map(|rows| (0, rows)).into_iter().collect()),
        }
    }

    /// Records, and in a column each what links of a chain said of them.
    fn with_said(&mut self, range: SeqRange) -> Result<Option<Batch>, Error> {
        let records: Vec<Batch> = self.records.drain(..).map(|(_, batch)| batch).collect();
        let said = std::mem::take(&mut self.said);
        let records = match records.as_slice() {
            [] => return Ok(None),
            [one] => one.compact(),
            many => merge_batches(many, range)?,
        };
        let mut columns: Vec<ArrayRef> = records.records().columns().to_vec();
        for parts in said.values() {
            let strange = |error| Error::internal("put together what was said of records").with_source(error);
            let all = match parts.as_slice() {
                [one] => one.clone(),
                many => concat_batches(many[0].schema_ref(), many).map_err(strange)?,
            };
            let wanted = self.schema.fields().get(columns.len());
            let wanted = wanted
                .ok_or_else(|| Error::internal("more was said of records than the next stage reads"))?;
            if all.num_rows() != records.len() {
                return Err(Error::internal(format!(
                    "{} records, and something was said of {}",
                    records.len(),
                    all.num_rows()
                )));
            }
            columns.push(conform(&(Arc::new(StructArray::from(all)) as ArrayRef), wanted.data_type()));
        }
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        let rows =
            rows.map_err(|error| Error::internal("rows for the next stage of a chain").with_source(error))?;
        Ok(Some(records.with_records(rows)))
    }
}

/// Batches by input, as runs in the order of their numbers: those of several inputs are cut where rows of another one come
/// between.
fn in_order(batches: Vec<(u32, Batch)>, range: SeqRange) -> Result<Vec<(u32, Batch)>, Error> {
    let mut inputs: BTreeMap<u32, Vec<Batch>> = BTreeMap::new();
    for (input, batch) in batches {
        inputs.entry(input).or_default().push(batch);
    }
    let mut whole = Vec::with_capacity(inputs.len());
    for (input, batches) in inputs {
        let rows = match batches.as_slice() {
            [one] => one.compact(),
            many => merge_batches(many, range)?,
        };
        whole.push((input, rows));
    }
    if whole.len() < 2 {
        return Ok(whole);
    }
    let mut order: Vec<(Seq, usize, usize)> = Vec::new();
    for (at, (_, rows)) in whole.iter().enumerate() {
        order.extend(rows.row_numbers().map(|row| (rows.seq(row), at, row as usize)));
    }
    // Rows of one number and input stay in their order.
    order.sort_unstable();
    let runs = order.chunk_by(|(_, at, row), (_, next, after)| at == next && row + 1 == *after);
    let runs = runs.map(|run| {
        let (_, at, first) = run[0];
        let (input, rows) = &whole[at];
        let records = rows.records().slice(first, run.len());
        let seqs = run.iter().map(|(seq, ..)| *seq).collect();
        (*input, Batch::new(range, records, rows.times().slice(first, run.len()), Seqs::Each(seqs)))
    });
    Ok(runs.collect())
}

/// A column as it is declared: a query that is newer than its records has a field more, which says since when.
fn conform(column: &ArrayRef, wanted: &DataType) -> ArrayRef {
    let (DataType::Struct(fields), Some(values)) = (wanted, column.as_struct_opt()) else {
        return Arc::clone(column);
    };
    if column.data_type() == wanted || values.num_columns() < fields.len() {
        return Arc::clone(column);
    }
    let columns = fields.iter().zip(values.columns());
    let columns = columns.map(|(field, column)| conform(column, field.data_type())).collect();
    Arc::new(StructArray::new(fields.clone(), columns, values.nulls().cloned()))
}

impl Operator for OutletSink {
    fn process(&mut self, input: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        match (self.gathers, input.port) {
            (Gathers::Said, 1..) => {
                self.said.entry(input.port).or_default().push(batch.compact().records().clone());
            }
            (_, port) if !batch.is_empty() => self.records.push((port as u32, batch)),
            _ => {}
        }
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, _: &mut Output<'_>) -> Result<(), Error> {
        let rows = self.rows(range)?;
        let mut sending = self.outlet.lock();
        sending.check()?;
        let mut walk = self.arrived.walk();
        for (input, rows) in &rows {
            let mut missing = None;
            // Asked for row by row.
            let mut times = rows.times().iter().copied();
            let refused = sending.lanes.push(*input, rows, |seq, _| {
                let time = times.next().unwrap_or_default();
                let from = walk.at(seq).unwrap_or_else(|| {
                    missing.get_or_insert(seq);
                    super::arrived::From { position: Position::default(), arrival: None, reply: None }
                });
                let reply = from.reply.filter(|_| !self.unanswered.contains(input));
                Origin { position: from.position, arrival: from.arrival.unwrap_or(time), reply }
            })?;
            if let Some(seq) = missing {
                return Err(Error::internal(format!("row {seq} of a unit came from nowhere")));
            }
            if let Some(refused) = refused.first() {
                let what = format!("a row for the next stage is too large for a message: {}", refused.error);
                return Err(Error::user(what).with_hint("let operators keep less of each record"));
            }
            self.carrier.counts.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
        drop(walk);
        sending.passed = range.end;
        drop(sending);
        if let Some(letters) = &mut self.letters {
            let answered = rows.iter().filter(|(input, _)| !self.unanswered.contains(input));
            let seqs = answered.flat_map(|(_, rows)| rows.row_numbers().map(|row| rows.seq(row)));
            self.went_on.extend(seqs);
            letters.decline_others(range, &mut self.went_on);
            letters.send();
        }
        self.arrived.forget(Asker::Outlet, range.end);
        if !rows.is_empty() {
            self.carrier.bell.ring();
        }
        Ok(())
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        let sending = self.outlet.lock();
        let part = OutletPart {
            outlet: Arc::clone(&self.outlet),
            end: sending.passed,
            position: write_position(sending.lanes.task_time(), &sending.lanes.marks()),
        };
        drop(sending);
        out.hand_over(cycle, Box::new(part));
        Ok(())
    }

    fn takes_part(&self) -> bool {
        true
    }

    fn is_ready(&mut self, waker: &Waker) -> bool {
        let mut sending = self.outlet.lock();
        if sending.lanes.waiting() < self.carrier.options.queue || sending.failure.is_some() {
            return true;
        }
        sending.waker = Some(waker.clone());
        false
    }

    fn is_drained(&mut self, waker: &Waker) -> Result<bool, Error> {
        let mut sending = self.outlet.lock();
        sending.check()?;
        if sending.lanes.first().is_none() {
            return Ok(true);
        }
        sending.waker = Some(waker.clone());
        Ok(false)
    }

    fn input_order(&self) -> InputOrder {
        InputOrder::Grouped
    }
}

impl Drop for OutletSink {
    /// Whoever waits for rows of a unit that has ended hears that none will be written any more.
    fn drop(&mut self) {
        let mut sending = self.outlet.lock();
        if sending.lanes.first().is_some() {
            sending
                .failure
                .get_or_insert_with(|| "the unit has ended before its rows were written".to_owned());
        }
        self.outlet.go_on(&mut sending);
        drop(sending);
        self.outlet.changed.notify_all();
    }
}

/// A commit of a unit that sends.
struct OutletPart {
    outlet: Arc<Outlet>,
    /// Rows below have to be written first.
    end: Seq,
    position: Vec<u8>,
}

impl CyclePart for OutletPart {
    fn prepare(&mut self) -> Result<Vec<u8>, Error> {
        let start = Instant::now();
        let mut sending = self.outlet.lock();
        loop {
            sending.check()?;
            if sending.written() >= self.end {
                return Ok(std::mem::take(&mut self.position));
            }
            let left = PATIENCE.checked_sub(start.elapsed());
            let left = left.ok_or_else(|| {
                Error::external(format!("rows for the next stage were not written for {PATIENCE:?}"))
                    .with_hint("look whether a broker of its topic is away")
            })?;
            sending.awaited = Some(self.end);
            self.outlet.doings.wait();
            let waited = self.outlet.changed.wait_timeout(sending, left);
            sending = waited.unwrap_or_else(PoisonError::into_inner).0;
            if sending.awaited.take().is_some() {
                self.outlet.doings.go_on();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use arrow_array::types::Int64Type;

    use super::*;

    /// Rows with these numbers, which hold them too.
    fn batch(seqs: &[Seq]) -> Batch {
        let values = Int64Array::from_iter_values(seqs.iter().map(|seq| *seq as i64));
        let records = RecordBatch::try_from_iter([("n", Arc::new(values) as ArrayRef)]).unwrap();
        let times = seqs.iter().map(|seq| *seq as Micros).collect();
        Batch::new(SeqRange::new(0, 10), records, times, Seqs::Each(seqs.into()))
    }

    #[test]
    fn rows_of_several_inputs_leave_in_the_order_of_their_records() {
        let range = SeqRange::new(0, 10);
        let runs = |batches| -> Vec<(u32, Vec<i64>)> {
            let runs = in_order(batches, range).unwrap().into_iter();
            let runs = runs.map(|(input, rows)| {
                let values = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
                let seqs: Vec<i64> = rows.row_numbers().map(|row| rows.seq(row) as i64).collect();
                assert_eq!((&seqs, rows.times().to_vec()), (&values, values.clone()));
                (input, values)
            });
            runs.collect()
        };
        let [first, second] = [vec![1, 2, 2, 5, 9], vec![2, 3, 6, 7]];
        assert_eq!(runs(vec![(1, batch(&first))]), [(1, vec![1, 2, 2, 5, 9])]);
        let expected = [(0, vec![1, 2, 2]), (1, vec![2, 3]), (0, vec![5]), (1, vec![6, 7]), (0, vec![9])];
        assert_eq!(runs(vec![(1, batch(&second)), (0, batch(&first))]), expected);
        assert_eq!(runs(Vec::new()), []);
    }

    #[test]
    fn marks_come_back_and_others_are_damage() {
        let marks: Vec<Mark> = (0..3)
            .map(|number| Mark { position: Position { offset: number << 40, row: 7 }, made: 2 })
            .collect();
        for time in [None, Some(-3)] {
            let bytes = write_position(time, &marks);
            assert_eq!(read_position(&bytes, 3).unwrap(), (time, marks.clone()));
            for len in 0..bytes.len() {
                assert!(read_position(&bytes[..len], 3).is_err(), "cut to {len}");
            }
            assert!(read_position(&bytes, 4).is_err(), "of another number of partitions");
        }
    }
}
