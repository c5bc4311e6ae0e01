//! The thread that hands rows to the client and hears what has become of them.
//!
//! With `positions` each row is written once unless the process is killed or a write is given up; then rows are sent
//! again, in the same order, each with the position that it had: a reader drops a message whose position is not above
//! the last one of its partition.
//!
//! With `transactions` rows are visible when their transaction is committed, which it is after `visible`, and before each
//! commit record of the job. The position of the last row is committed with them, as the offset of a group. Rows up to it
//! are there: a producer that goes on after a crash, or after a commit whose outcome nobody knows, skips them. In a unit of a
//! cluster each transaction says it itself, too ([`Kept`]), and that counts where the group has less.
//!
//! In a unit of a cluster a copy that follows delivers nothing: it is given what is written, and asks how far that is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_kafka::{
    Bus, BusError, GroupOffset, Header, Outgoing, Problem, Producer, ProducerOptions, Sent, TopicPartition,
};
use thalweg_types::{Error, format_duration};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::super::delivery::Item;
use super::super::outbox::Outbox;
use super::super::retry::{Retry, Trouble};
use super::figures::SinkFigures;
use super::kept::Kept;
use super::parcel::{RowPosition, Rows};
use super::unit::{Committed, PAUSE, Progress, REFRESH};

/// How rows are delivered, as the job file says.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) sink: Arc<str>,
    /// The topic of rows that name none.
    pub(super) topic: Option<Arc<str>>,
    pub(super) header_names: Arc<[String]>,
    /// `JOB/SINK`, in a header of each row; with transactions there is none.
    pub(super) origin: Arc<str>,
    /// `thalweg.JOB.SINK`: the transactional id, and the group that has the position.
    pub(super) id: String,
    pub(super) visible: Duration,
    /// How long brokers leave a transaction open. Then they abort it, and refuse its producer as if another one had taken
    /// over.
    pub(super) transaction_timeout: Duration,
    pub(super) retry_for: Option<Duration>,
    pub(super) options: ProducerOptions,
}

/// Names of the headers by which a row that was sent twice is recognized.
pub(super) const ORIGIN: &str = "thalweg-sink";
pub(super) const POSITION: &str = "thalweg-position";

/// Bytes of a transaction at which it is committed early.
const TRANSACTION: usize = 8 << 20;

/// How often it is asked how far rows are written, until the answer is twice the same.
const LOOKS: u32 = 8;

/// How soon the thread looks again that has nothing to do.
const IDLE: Duration = Duration::from_millis(500);

/// How soon a copy of a unit that follows looks whether it does so still.
const LOOK: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 200 });

/// Rows of one key-less run that go to one partition, so that they leave together.
const RUN: u64 = 512;

/// How long it is remembered that a topic that a row names does not exist.
const ABSENT_FOR: Duration = Duration::from_secs(10);

/// Work that the thread has been asked to end.
#[derive(Clone, Default)]
pub(super) struct Stop {
    is_set: Arc<AtomicBool>,
    pub(super) news: Arc<Notify>,
}

impl Stop {
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

/// Asks for the end when it is dropped.
pub(super) struct StopGuard(pub(super) Stop);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.is_set.store(true, Ordering::Release);
        self.0.news.notify_one();
    }
}

/// The turn of a sink: held by the thread that delivers for it, so that one which is ended with its job sends nothing
/// after the first row of the next life of the job in this process.
pub(super) fn turn_of(id: &str) -> Arc<Mutex<()>> {
    static TURNS: Mutex<BTreeMap<String, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    turns.retain(|_, turn| Arc::strong_count(turn) > 1);
    Arc::clone(turns.entry(id.to_owned()).or_default())
}

/// An item that was taken and is not delivered.
struct Pending {
    /// Of the producer's messages.
    tag: u64,
    text: Option<Bytes>,
    records: u64,
    bytes: usize,
    at: Instant,
    /// In a unit: how far rows are once it is delivered.
    last: Option<RowPosition>,
}

/// Where a topic's rows go that have no key.
struct KnownTopic {
    name: Arc<str>,
    /// `None`: it does not exist.
    partitions: Option<i32>,
    asked: Instant,
}

pub(super) struct Deliverer {
    plan: Plan,
    bus: Arc<dyn Bus>,
    outbox: Arc<Outbox<Item>>,
    retry: Retry,
    figures: Arc<SinkFigures>,
    stop: Stop,
    producer: Option<Box<dyn Producer>>,
    pending: VecDeque<Pending>,
    next_tag: u64,
    topics: Vec<KnownTopic>,
    /// It was said that brokers do not answer.
    is_outage_told: bool,
    /// In a unit.
    pub(super) progress: Option<Progress>,
    /// In a unit, with transactions.
    pub(super) kept: Option<Kept>,
    /// With positions: rows up to there are written.
    above: Option<RowPosition>,
}

impl Deliverer {
    pub(super) fn new(
        plan: Plan,
        bus: Arc<dyn Bus>,
        outbox: Arc<Outbox<Item>>,
        retry: Retry,
        figures: Arc<SinkFigures>,
        stop: Stop,
    ) -> Self {
        Self {
            plan,
            bus,
            outbox,
            retry,
            figures,
            stop,
            producer: None,
            pending: VecDeque::new(),
            next_tag: 1,
            topics: Vec::new(),
            is_outage_told: false,
            progress: None,
            kept: None,
            above: None,
        }
    }

    /// The topic of rows that name none.
    pub(super) fn topic(&self) -> Arc<str> {
        self.plan.topic.clone().unwrap_or_default()
    }

    /// Delivers by positions until the outbox is closed and all is written.
    ///
    /// # Errors
    /// If the trouble will not pass.
    pub(super) fn by_position(
        mut self,
        start: &Start,
        shared: &SharedPosition,
        runtime: &Handle,
    ) -> Result<(), Error> {
        self.go_on_in_unit(start, runtime)?;
        let mut is_closed = false;
        while !(self.stop.is_set() || is_closed && self.pending.is_empty()) {
            let mut is_busy = false;
            while !self.stop.is_set()
                && let Some((item, bytes)) = self.outbox.next_within(usize::MAX)
            {
                is_busy = true;
                self.take(item, bytes, runtime)?;
                self.settle(runtime)?;
            }
            self.settle(runtime)?;
            self.tell(start, shared, false);
            if !is_busy {
                is_closed = self.outbox.is_over();
                self.await_news(runtime, IDLE);
            }
        }
        // One that was ended with its job says nothing: another copy may have said more by now.
        if self.has_nothing_left() {
            self.tell(start, shared, true);
        }
        Ok(())
    }

    /// In a unit: follows while it has to, and then finds out how far rows are written.
    fn go_on_in_unit(&mut self, start: &Start, runtime: &Handle) -> Result<(), Error> {
        let writes = self.follow(runtime);
        while writes
            && !self.stop.is_set()
            && let Some(progress) = &mut self.progress
        {
            match progress.look(&*self.bus) {
                Ok(_) => {
                    self.above = progress.written.max(start.position);
                    // What came while it followed, and was not passed.
                    return match self.send_pending() {
                        Ok(()) => Ok(()),
                        Err(error) => self.recover(error, runtime),
                    };
                }
                Err(error) if error.problem == Problem::Setting => return Err(self.named(error)),
                Err(error) => {
                    let trouble = Trouble::Passing { error: error.into(), unknown: false, wait: None };
                    runtime.block_on(self.retry.wait(trouble, 0))?;
                }
            }
        }
        Ok(())
    }

    /// Passes what it is given while another copy of the unit writes; `false` where nothing is left for this one to write.
    fn follow(&mut self, runtime: &Handle) -> bool {
        if self.progress.as_ref().is_none_or(Progress::is_active) {
            return true;
        }
        while !self.stop.is_set()
            && let Some(progress) = self.progress.as_mut().filter(|progress| !progress.is_active())
        {
            progress.follow(&*self.bus);
            self.pass();
            if self.has_nothing_left() {
                return false;
            }
            self.await_news(runtime, LOOK);
        }
        let since = Instant::now();
        while let Some(left) = PAUSE.checked_sub(since.elapsed())
            && !self.stop.is_set()
            && !self.outbox.is_over()
        {
            self.await_news(runtime, left);
        }
        !(self.stop.is_set() || self.has_nothing_left())
    }

    /// Whether nothing more comes, and all that came was delivered.
    fn has_nothing_left(&self) -> bool {
        self.outbox.is_over() && self.pending.is_empty()
    }

    /// Takes what is written; the first that is not stays, with all after it.
    fn pass(&mut self) {
        while self.pending.is_empty()
            && let Some((item, bytes)) = self.outbox.next_within(usize::MAX)
        {
            let pending = self.pending(item, bytes);
            let written = self.progress.as_ref().and_then(|progress| progress.written);
            if pending.text.is_none() || pending.last <= written {
                self.outbox.release(1, bytes);
                self.outbox.deliver(1);
            } else {
                self.pending.push_back(pending);
            }
        }
    }

    /// An item that was taken, with a tag of its own.
    fn pending(&mut self, item: Item, bytes: usize) -> Pending {
        let tag = self.next_tag;
        self.next_tag += 1;
        let (text, records, last) = match item {
            Item::Text { text, records } => {
                let last = self.progress.as_ref().and_then(|_| last_position(&text));
                (Some(text), records, last)
            }
            Item::Marker(cycle) => (None, 0, self.progress.as_ref().and_then(|of| of.before(cycle))),
        };
        Pending { tag, text, records, bytes, at: Instant::now(), last }
    }

    /// In a unit: says how far rows are written, to the commit record of the job and, once in a while, to others.
    fn tell(&mut self, start: &Start, shared: &SharedPosition, is_over: bool) {
        let Some(progress) = &mut self.progress else { return };
        if let Some(written) = progress.written {
            shared.set(written);
        }
        progress.tell(&*self.bus, start.cycle, JOB, is_over);
    }

    /// Waits until something comes or was delivered.
    fn await_news(&self, runtime: &Handle, at_most: Duration) {
        runtime.block_on(async {
            tokio::select! {
                () = self.outbox.arrived() => {}
                () = self.stop.news.notified() => {}
                () = tokio::time::sleep(at_most) => {}
            }
        });
    }

    fn take(&mut self, item: Item, bytes: usize, runtime: &Handle) -> Result<(), Error> {
        let pending = self.pending(item, bytes);
        let (tag, text) = (pending.tag, pending.text.clone());
        self.pending.push_back(pending);
        let Some(text) = text else { return Ok(()) };
        match self.send_all(&text, tag, self.above) {
            Ok(sent) => {
                self.note_empty(tag, sent);
                Ok(())
            }
            Err(error) => self.recover(error, runtime),
        }
    }

    /// Notes what was written.
    fn settle(&mut self, runtime: &Handle) -> Result<(), Error> {
        let Some(producer) = &mut self.producer else {
            if !self.stop.is_set() {
                // Nothing of what waits has a row to send.
                self.release(u64::MAX);
            }
            return Ok(());
        };
        let told = producer.acknowledged();
        self.figures.in_flight.store(told.in_flight as u64, Ordering::Relaxed);
        self.release(told.below);
        if let Some(failure) = told.failure {
            return self.recover(failure, runtime);
        }
        let waits = self.pending.front().map(|first| first.at.elapsed()).unwrap_or_default();
        if let Some(limit) = self.plan.retry_for.filter(|limit| waits > *limit) {
            let limit = format_duration(i64::try_from(limit.as_micros()).unwrap_or(i64::MAX));
            return Err(Error::external(format!(
                "sink {:?} has waited for {limit} (retry_for) for its rows to be written",
                self.plan.sink
            )));
        }
        if waits > WORTH_SAYING && !self.is_outage_told {
            self.is_outage_told = true;
            warn!(sink = &*self.plan.sink, "waiting for a broker to take rows; nothing is lost meanwhile");
        }
        Ok(())
    }

    /// Items whose tags are below this are delivered, and markers behind them.
    fn release(&mut self, below: u64) {
        while let Some(first) = self.pending.front() {
            if first.text.is_some() && first.tag >= below {
                return;
            }
            let Some(first) = self.pending.pop_front() else { return };
            if self.is_outage_told && first.text.is_some() {
                self.is_outage_told = false;
                info!(sink = &*self.plan.sink, "rows are written again");
            }
            if let (Some(progress), Some(last)) = (&mut self.progress, first.last) {
                progress.reached(last);
            }
            self.figures.acknowledged.fetch_add(first.records, Ordering::Relaxed);
            self.retry.report().add_bytes(first.bytes as u64);
            self.outbox.release(1, first.bytes);
            self.outbox.deliver(1);
        }
    }

    /// After rows were not written: another producer sends again all that is not known to be, in the same order.
    fn recover(&mut self, error: BusError, runtime: &Handle) -> Result<(), Error> {
        let mut error = error;
        loop {
            self.producer = None;
            let records = self.pending.iter().map(|pending| pending.records).sum();
            match error.problem {
                Problem::NotWritten | Problem::Unreachable | Problem::Fenced | Problem::Other => {}
                _ => return Err(self.named(error)),
            }
            let trouble = Trouble::Passing { error: error.into(), unknown: true, wait: None };
            runtime.block_on(self.retry.wait(trouble, records))?;
            if self.stop.is_set() {
                return Ok(());
            }
            self.figures.retried.fetch_add(records, Ordering::Relaxed);
            match self.send_pending() {
                Ok(()) => {
                    self.retry.succeeded(tokio::time::Instant::now());
                    return Ok(());
                }
                Err(again) => error = again,
            }
        }
    }

    /// All that was taken and is not known to be written, with its tags.
    fn pending_texts(&self) -> Vec<(u64, Bytes)> {
        self.pending.iter().filter_map(|pending| Some((pending.tag, pending.text.clone()?))).collect()
    }

    /// Sends all that was taken and is not known to be written.
    fn send_pending(&mut self) -> Result<(), BusError> {
        self.pending_texts().iter().try_for_each(|(tag, text)| {
            let sent = self.send_all(text, *tag, self.above)?;
            self.note_empty(*tag, sent);
            Ok(())
        })
    }

    /// A text of which nothing was sent has nothing to be acknowledged.
    fn note_empty(&mut self, tag: u64, sent: u64) {
        if sent == 0
            && let Some(pending) = self.pending.iter_mut().rev().find(|pending| pending.tag == tag)
        {
            pending.text = None;
        }
    }

    fn named(&self, error: BusError) -> Error {
        Error::from(error).context(format!("sink {:?}", self.plan.sink))
    }

    fn producer(&mut self) -> Result<&mut Box<dyn Producer>, BusError> {
        match &mut self.producer {
            Some(producer) => Ok(producer),
            none => Ok(none.insert(self.bus.producer(self.plan.options.clone())?)),
        }
    }

    /// Hands the rows of a text over that are above a position; how many were taken.
    fn send_all(&mut self, text: &Bytes, tag: u64, above: Option<RowPosition>) -> Result<u64, BusError> {
        let plan = self.plan.clone();
        let is_transactional = plan.options.transactional_id.is_some();
        let (mut rows, mut sent) = (Rows::of(text), 0);
        while let Some(row) = rows.next() {
            if above.is_some_and(|above| row.position <= above) {
                continue;
            }
            let Some(topic) = row.topic.or(plan.topic.as_deref()) else { continue };
            let mut partition = row.partition;
            if row.topic.is_some() || row.key.is_none() {
                let Some(partitions) = self.partitions(topic, row.topic.is_some())? else {
                    self.figures.unaddressed.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                if row.key.is_none() && partition.is_none() {
                    // The same one when it is sent again.
                    let run = row.position.seq / RUN;
                    // Positions of a unit are far from each other, and often by a multiple of a power of two.
                    let run = match self.progress {
                        Some(_) => thalweg_types::hash_bytes(&run.to_le_bytes()),
                        None => run,
                    };
                    partition = Some((run % partitions as u64) as i32);
                }
                if partition.is_some_and(|partition| partition >= partitions) {
                    self.figures.unaddressed.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            }
            let position = row.position.text();
            let own = [
                Header { name: ORIGIN, value: Some(plan.origin.as_bytes()) },
                Header { name: POSITION, value: Some(position.as_bytes()) },
            ];
            let own = if is_transactional { &[] } else { &own[..] };
            let given = plan.header_names.iter().zip(&rows.headers);
            let all: Vec<Header<'_>>;
            let headers = if plan.header_names.is_empty() {
                own
            } else {
                let given = given.map(|(name, value)| Header { name, value: *value });
                all = own.iter().copied().chain(given).collect();
                &all
            };
            let message = Outgoing { topic, partition, key: row.key, value: row.value, headers };
            if !self.hand_over(&message, tag)? {
                return Ok(sent);
            }
            sent += 1;
        }
        Ok(sent)
    }

    /// Hands a message to the producer, and waits where its queue is full; `false` if it is to end and has not.
    fn hand_over(&mut self, message: &Outgoing<'_>, tag: u64) -> Result<bool, BusError> {
        while self.producer()?.send(message, tag)? == Sent::Full {
            if self.stop.is_set() {
                return Ok(false);
            }
            self.producer()?.wait(Duration::from_millis(10));
        }
        Ok(true)
    }

    /// How many partitions a topic has; `None`: it does not exist. One that a row names may be anything.
    fn partitions(&mut self, topic: &str, is_named_by_row: bool) -> Result<Option<i32>, BusError> {
        let known = self.topics.iter().position(|known| *known.name == *topic);
        if let Some(at) = known {
            let known = &self.topics[at];
            if known.partitions.is_some() || known.asked.elapsed() < ABSENT_FOR {
                return Ok(known.partitions);
            }
            self.topics.swap_remove(at);
        }
        let partitions = match self.producer()?.partitions(topic) {
            Ok(partitions) => Some(partitions),
            Err(error) if error.problem == Problem::NoTopic && is_named_by_row => {
                warn!(
                    sink = &*self.plan.sink,
                    topic, "a row names a topic that does not exist: such rows are left out"
                );
                None
            }
            Err(error) => return Err(error),
        };
        if self.topics.len() >= MOST_TOPICS {
            self.topics.swap_remove(0);
        }
        self.topics.push(KnownTopic { name: topic.into(), partitions, asked: Instant::now() });
        Ok(partitions)
    }
}

/// Topics that are remembered; others are asked for again.
const MOST_TOPICS: usize = 1_000;

/// Whose numbers the positions of a job have that goes on after this process.
const JOB: &str = "job";

/// How long rows may wait before it is said.
const WORTH_SAYING: Duration = Duration::from_secs(5);

/// Where a sink with transactions goes on.
pub(super) struct Start {
    /// The last cycle that the job has committed.
    pub(super) cycle: u64,
    /// The position of its commit record.
    pub(super) position: Option<RowPosition>,
    /// The job has never run in its data directory, or has not had the sink before.
    pub(super) is_new: bool,
    /// The job goes on after this process: else it has no positions that could be compared.
    pub(super) is_durable: bool,
    /// Another number in each process.
    pub(super) random: u64,
}

/// Delivers by transactions.
pub(super) struct Transactions {
    inner: Deliverer,
    /// Rows up to here are committed; `None`: none is.
    committed: Option<RowPosition>,
    /// The cycle in which they were, as Kafka has said last.
    committed_in: u64,
    /// The last cycle that was ended.
    cycle: u64,
    /// Texts of the open transaction, in `inner.pending`; whether one is open.
    is_open: bool,
    begun: Instant,
    bytes: usize,
    /// The position of the last row that was sent.
    last: Option<RowPosition>,
    /// When the position was committed last.
    refreshed: Instant,
    /// For the commit records of the job.
    shared: Arc<SharedPosition>,
    /// Whose numbers the positions have: those of the job, or of this process alone.
    life: String,
}

/// The last position that is committed in Kafka, for commit records; `None`: nothing is committed. Sequence and index go
/// together: one of one row with the other of another would be a position that Kafka never had.
#[derive(Default)]
pub(super) struct SharedPosition(Mutex<Option<RowPosition>>);

impl SharedPosition {
    fn set(&self, position: RowPosition) {
        *self.lock() = Some(position);
    }

    pub(super) fn get(&self) -> Option<RowPosition> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<RowPosition>> {
        // Every change of it is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transactions {
    pub(super) fn new(inner: Deliverer, start: &Start, shared: Arc<SharedPosition>) -> Self {
        Self {
            inner,
            committed: None,
            committed_in: 0,
            cycle: start.cycle,
            is_open: false,
            begun: Instant::now(),
            bytes: 0,
            last: None,
            refreshed: Instant::now(),
            shared,
            life: if start.is_durable { JOB.to_owned() } else { start.random.to_string() },
        }
    }

    /// Delivers until the outbox is closed and all is committed.
    ///
    /// # Errors
    /// If the trouble will not pass, or what Kafka has does not fit the job.
    pub(super) fn run(mut self, start: &Start, runtime: &Handle) -> Result<(), Error> {
        if !self.inner.follow(runtime) {
            // A producer that it made would fence off that of the copy that writes.
            return Ok(());
        }
        while let Err(error) = self.begin_anew() {
            self.wait(error, runtime)?;
            if self.inner.stop.is_set() {
                return Ok(());
            }
        }
        self.check(start)?;
        if let Err(error) = self.send_pending() {
            self.recover(error, runtime)?;
        }
        let mut is_closed = false;
        while !(self.inner.stop.is_set() || is_closed && self.inner.pending.is_empty()) {
            let mut is_busy = false;
            while !self.inner.stop.is_set()
                && let Some((item, bytes)) = self.inner.outbox.next_within(usize::MAX)
            {
                is_busy = true;
                self.take(item, bytes, runtime)?;
                if self.is_due() {
                    break;
                }
            }
            if self.is_due() || (is_closed && self.is_open) {
                self.commit(runtime)?;
            }
            if !self.is_open && self.committed.is_some() && self.refreshed.elapsed() >= REFRESH {
                self.refresh(runtime)?;
            }
            if !is_busy {
                is_closed = self.inner.outbox.is_over();
                let left = self.inner.plan.visible.saturating_sub(self.begun.elapsed());
                let at_most = if self.is_open { left } else { IDLE };
                if !is_closed {
                    self.inner.await_news(runtime, at_most.max(Duration::from_millis(1)));
                }
            }
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.is_open && (self.begun.elapsed() >= self.inner.plan.visible || self.bytes >= TRANSACTION)
    }

    fn place(&self) -> TopicPartition {
        TopicPartition::new(self.inner.topic(), 0)
    }

    /// Makes a producer, which fences off the one before, and reads how far rows are committed.
    fn begin_anew(&mut self) -> Result<(), BusError> {
        self.inner.producer = None;
        self.is_open = false;
        self.inner.producer()?;
        let found = self.look()?;
        self.committed = None;
        if let Some(Committed { position, cycle, life }) = found {
            // A job that begins anew every time has numbered the rows of its other lives otherwise.
            if life == self.life {
                (self.committed_in, self.committed) = (cycle, Some(position));
                self.shared.set(position);
            }
        }
        Ok(())
    }

    /// How far rows are committed: in a unit, as is kept with them. A version that kept nothing has told the group alone.
    fn look(&mut self) -> Result<Option<Committed>, BusError> {
        if self.inner.kept.is_none() {
            return self.look_at_group();
        }
        let told = self.look_once()?;
        let Deliverer { bus, plan, kept: Some(kept), .. } = &mut self.inner else { return Ok(told) };
        let found = kept.last(&**bus)?;
        let Some(here) = &found else { return Ok(told) };
        match told {
            Some(told) if told.life == here.life && told.position >= here.position => Ok(Some(told)),
            told => {
                warn!(
                    group = plan.id,
                    has = told.map(|told| told.position.seq),
                    expected = here.position.seq,
                    "a group has less than was committed: its coordinator may have loaded a part of its log; rows go on \
                     from what was committed with them"
                );
                Ok(found)
            }
        }
    }

    /// As the group has it: what it says before and after its coordinator has written something, as one that has loaded a part
    /// of its log says less, and rows would be written twice. [`Producer::probe`] says which of these it does not find.
    fn look_at_group(&mut self) -> Result<Option<Committed>, BusError> {
        let place = self.place();
        let mut found = self.look_once()?;
        for _ in 0..LOOKS {
            let id = self.inner.plan.id.clone();
            self.inner.producer()?.probe(&id, &place)?;
            let before = std::mem::replace(&mut found, self.look_once()?);
            if found == before {
                return Ok(found);
            }
            warn!(
                group = id,
                before = before.map(|before| before.position.seq),
                after = found.as_ref().map(|after| after.position.seq),
                "a coordinator of groups has said two things of how far rows are written, and is asked again"
            );
        }
        let action = format!("look up the position of group {:?}", self.inner.plan.id);
        Err(BusError::new(Problem::Other, action, format!("its coordinator has said {LOOKS} things")))
    }

    fn look_once(&mut self) -> Result<Option<Committed>, BusError> {
        let (place, Deliverer { plan, bus, progress, .. }) = (self.place(), &mut self.inner);
        if let Some(progress) = progress {
            return progress.look(&**bus);
        }
        let found = bus.group_offsets(&plan.id, &[place])?.into_iter().next().flatten();
        found.map(|found| Committed::read(&found, &plan.id)).transpose()
    }

    /// Compares what Kafka has with what the job has.
    fn check(&mut self, start: &Start) -> Result<(), Error> {
        if !start.is_durable {
            return Ok(());
        }
        let plan = &self.inner.plan;
        let differs = |what: String, hint: &str| {
            let message = format!("sink {:?}: group {:?} {what}", plan.sink, plan.id);
            Err(Error::corrupt(message).with_hint(hint))
        };
        if start.is_new && self.committed.is_some() {
            return differs(
                "has a position, and the job has never run in its data directory".to_owned(),
                "its rows are of another data directory: name the job or its sink otherwise, or delete the group's \
                 offsets (kafka-consumer-groups --delete) to add to the rows that are there",
            );
        }
        if let Some(known) = start.position
            && self.committed.is_none_or(|committed| committed < known)
        {
            let said =
                self.committed.map_or("no position".to_owned(), |committed| format!("position {committed}"));
            return differs(
                format!("has {said}, expected at least {known}, that of the job's last commit"),
                "the group's offsets were deleted, have expired or are of an older state of the cluster, or its \
                 coordinator has loaded a part of them (restart that broker): rows would be written twice; start the \
                 job in a new data directory, under another name",
            );
        }
        // Each copy of a unit has cycles of its own, and goes on from any older commit.
        let is_alone = self.inner.progress.is_none();
        if is_alone && self.committed.is_some() && self.committed_in > start.cycle + OPEN_CYCLES {
            return differs(
                format!(
                    "has rows of cycle {}, and the job has come to cycle {} only",
                    self.committed_in, start.cycle
                ),
                "the data directory is an older copy: put the newest one back",
            );
        }
        Ok(())
    }

    fn take(&mut self, item: Item, bytes: usize, runtime: &Handle) -> Result<(), Error> {
        let marker = match &item {
            Item::Marker(cycle) => Some(*cycle),
            Item::Text { .. } => None,
        };
        let pending = self.inner.pending(item, bytes);
        if let Some(cycle) = marker {
            if let Some(last) = pending.last.filter(|last| self.committed < Some(*last)) {
                self.pass_to(last, runtime)?;
            }
            if self.is_open {
                self.commit(runtime)?;
            }
            self.cycle = cycle;
        }
        let (tag, text) = (pending.tag, pending.text.clone());
        self.inner.pending.push_back(pending);
        let Some(text) = text else {
            if !self.is_open {
                self.inner.release(u64::MAX);
            }
            return Ok(());
        };
        if let Err(error) = self.send(&text, tag) {
            self.recover(error, runtime)?;
        }
        Ok(())
    }

    /// All records up to there have been dealt with, of which some had no rows: what is committed next says so.
    fn pass_to(&mut self, last: RowPosition, runtime: &Handle) -> Result<(), Error> {
        if !self.is_open {
            match self.inner.producer().and_then(|producer| producer.begin()) {
                Ok(()) => (self.is_open, self.begun, self.bytes) = (true, Instant::now(), 0),
                Err(error) => return self.recover(error, runtime),
            }
        }
        self.last = Some(last);
        Ok(())
    }

    fn send(&mut self, text: &Bytes, tag: u64) -> Result<(), BusError> {
        let Some(last) = last_position(text) else { return Ok(()) };
        self.last = Some(last);
        if self.committed.is_some_and(|committed| last <= committed) {
            // All of it is there, and all before it.
            if !self.is_open {
                self.inner.release(tag + 1);
            }
            return Ok(());
        }
        if !self.is_open {
            self.inner.producer()?.begin()?;
            (self.is_open, self.begun, self.bytes) = (true, Instant::now(), 0);
        }
        self.bytes += text.len();
        self.inner.send_all(text, tag, self.committed).map(drop)
    }

    /// Commits the position again, in a transaction without rows: brokers forget one that stays as it is for days.
    fn refresh(&mut self, runtime: &Handle) -> Result<(), Error> {
        match self.inner.producer().and_then(|producer| producer.begin()) {
            Ok(()) => (self.is_open, self.begun, self.bytes) = (true, Instant::now(), 0),
            Err(error) => return self.recover(error, runtime),
        }
        self.last = self.committed;
        self.commit(runtime)
    }

    fn commit(&mut self, runtime: &Handle) -> Result<(), Error> {
        while self.is_open && !self.inner.stop.is_set() {
            let begun = Instant::now();
            let Some(last) = self.last else { return Ok(()) };
            let offset = Committed { position: last, cycle: self.cycle + 1, life: self.life.clone() }.write();
            let (place, id) = (self.place(), self.inner.plan.id.clone());
            let outcome = match self.send_kept(&offset) {
                Ok(()) => self.inner.producer().and_then(|producer| producer.commit(&id, &[(place, offset)])),
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => {
                    (self.is_open, self.refreshed) = (false, Instant::now());
                    self.committed = Some(last);
                    self.shared.set(last);
                    self.inner.figures.note_transaction(begun.elapsed());
                    self.inner.release(u64::MAX);
                    self.inner.retry.succeeded(tokio::time::Instant::now());
                }
                Err(error) => self.recover(error, runtime)?,
            }
        }
        Ok(())
    }

    /// Has the transaction say itself how far rows are with it.
    fn send_kept(&mut self, offset: &GroupOffset) -> Result<(), BusError> {
        let Some(kept) = &self.inner.kept else { return Ok(()) };
        let (of, text) = (kept.of().clone(), Kept::text(offset));
        let (partition, value) = (Some(of.partition), text.as_bytes());
        let message = Outgoing { topic: &of.topic, partition, key: None, value, headers: &[] };
        let tag = self.inner.next_tag;
        match self.inner.hand_over(&message, tag)? {
            true => Ok(()),
            false => Err(BusError::new(Problem::Other, format!("write to {of}"), "the sink is to end")),
        }
    }

    /// The transaction is gone, or may be there: all of its rows are sent again that are not.
    fn recover(&mut self, error: BusError, runtime: &Handle) -> Result<(), Error> {
        let mut error = error;
        if error.problem == Problem::Fenced
            && self.is_open
            && self.begun.elapsed() >= self.inner.plan.transaction_timeout
        {
            // The brokers have given it up: nobody else need be there. If somebody is, that one is refused now.
            error.problem = Problem::Aborted;
        }
        loop {
            self.is_open = false;
            self.wait(error, runtime)?;
            if self.inner.stop.is_set() {
                return Ok(());
            }
            match self.again() {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
    }

    fn again(&mut self) -> Result<(), BusError> {
        self.begin_anew()?;
        let records = self.inner.pending.iter().map(|pending| pending.records).sum();
        self.inner.figures.retried.fetch_add(records, Ordering::Relaxed);
        self.send_pending()
    }

    fn send_pending(&mut self) -> Result<(), BusError> {
        for (tag, text) in self.inner.pending_texts() {
            self.send(&text, tag)?;
        }
        if !self.is_open {
            self.inner.release(u64::MAX);
        }
        Ok(())
    }

    fn wait(&mut self, error: BusError, runtime: &Handle) -> Result<(), Error> {
        match error.problem {
            Problem::Unreachable
            | Problem::Aborted
            | Problem::OutcomeUnknown
            | Problem::NotWritten
            | Problem::Other => {
                let trouble = Trouble::Passing { error: error.into(), unknown: false, wait: None };
                runtime.block_on(self.inner.retry.wait(trouble, 0))
            }
            _ => Err(self.inner.named(error)),
        }
    }
}

/// Cycles that may be open after the one that is committed.
const OPEN_CYCLES: u64 = 2;

/// The position of the last row of a text.
fn last_position(text: &Bytes) -> Option<RowPosition> {
    let (mut rows, mut last) = (Rows::of(text), None);
    while let Some(row) = rows.next() {
        last = Some(row.position);
    }
    last
}
