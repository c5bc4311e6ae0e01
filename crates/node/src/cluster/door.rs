//! A door: where records of a job enter, on one node.
//!
//! The part of the job above the key runs as a job that keeps nothing. Its sink ([`DoorSink`]) spreads rows over the
//! partitions of the stage's topic; an actor ([`Sender`]) sends them as frames and brings answers back.
//! Acknowledgement by the brokers is the moment at which a record counts, in every part of the job.
//!
//! When something is not written for good, nothing after it is called written: the door goes on as a new *incarnation*, and
//! sends nothing again of what was on its way. Those who wait for it hear that its outcome is unknown; it may count.
//! The same where a unit refuses rows, as others before them never came: an incarnation with a gap counts no more there.
//! Records that are written are still answered, and those that have not come to the door yet go by the new incarnation.
//!
//! Invariants
//! * Rows of one incarnation have ascending positions, and frames of a partition leave in their order.
//! * What waits to be sent is bounded by [`DoorOptions::queue`], above which the sink takes no more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use thalweg_cluster::answers::Answers as AnswersMessage;
use thalweg_cluster::frame::{self, Reply, Settings, Spec};
use thalweg_cluster::positions::{Mark, Origin as Sent, Position};
use thalweg_connect::{Answers, Fate, Late, OptionSpec, SinkContext, SinkPlugin};
use thalweg_flow::{InputId, Operator, Output, TaskFactory, Waker};
use thalweg_kafka::{
    Acknowledged, Bus, Consumer, ConsumerOptions, Isolation, Producer, Sent as Taken, TopicPartition,
};
use thalweg_types::{Batch, Error, Micros, Reject, RejectsBuilder, Seq, SeqRange};

use super::actor::{Actor, Bell, Next, Outside, since};
use super::answering::reply_topic;
use super::cut::StageCut;
use super::lanes::{AGAIN, Frames, GLANCE, LOOK, Lanes, SPARE, producer, send};
use super::overdue::{Because, Come, Routes, fate};
use super::scatter::Origin;

/// Incarnations before the present one whose answers are still taken; what older ones wait for is overdue.
const EARLIER: usize = 16;

/// How a door sends.
#[derive(Clone, Debug)]
pub struct DoorOptions {
    /// Bytes of rows and frames that are not written yet, for all partitions together.
    pub queue: usize,
    /// How long a client waits for its answers: less than the server waits, which knows nothing of partitions.
    pub patience: Duration,
    pub frames: Settings,
}

impl Default for DoorOptions {
    fn default() -> Self {
        Self { queue: 16 << 20, patience: Duration::from_secs(9), frames: Settings::default() }
    }
}

/// What a door has done since its start. Relaxed throughout: figures, nothing hangs on them.
#[derive(Debug, Default)]
pub struct DoorCounts {
    pub rows: AtomicU64,
    pub frames: AtomicU64,
    pub answers: AtomicU64,
    /// Pieces of requests whose outcome is unknown.
    pub unknown: AtomicU64,
    /// How often it went on as a new incarnation, as brokers did not take something for good.
    pub failures: AtomicU64,
    /// How often it did so as a unit had refused its rows.
    pub refusals: AtomicU64,
}

/// Where a door is.
#[derive(Clone, Debug)]
pub struct DoorPlace {
    /// Names of the cluster's topics begin with this.
    pub prefix: String,
    pub node: Arc<str>,
    /// Of the first stage.
    pub topic: Arc<str>,
}

/// What the sink and the actor share.
struct Sending {
    lanes: Lanes,
    incarnation: u64,
    /// The incarnations before it, youngest first: their rows that are written are still answered.
    earlier: VecDeque<u64>,
    door: Arc<frame::Door>,
    /// Rows of this incarnation.
    rows: u64,
    /// The end of what the sink has given.
    passed: Seq,
    /// The end of what has come to the sink.
    reached: Seq,
    frames: Frames,
    /// Where the records are that somebody waits for.
    routes: Routes,
    /// Of the sink's task while it waits for room.
    waker: Option<Waker>,
    is_over: bool,
}

impl Sending {
    /// Everything below is written.
    fn written(&self) -> Seq {
        self.lanes.first().map_or(self.passed, |first| first.seq)
    }

    /// Whether a piece loses nothing where all that is not written is thrown away: its records are written, or have not come
    /// to the sink yet.
    fn spares(&self, piece: &Late) -> bool {
        let Late { range, wants_lines, .. } = piece;
        if range.start >= self.reached {
            return true;
        }
        // Of these nobody knows yet where they went.
        if self.passed < self.reached && range.end > self.passed {
            return false;
        }
        if !wants_lines {
            return self.written() >= range.end.min(self.reached);
        }
        let mut routes = self.routes.of(*range);
        routes.all(|(seq, partition)| self.lanes.come(seq, partition) == Come::Written)
    }
}

/// How a step of a door's thread has ended.
enum Step {
    Done,
    /// Something is not written for good.
    Failed,
    /// [`Door::end`] was called.
    Over,
}

/// A door of a job on this node.
pub struct Door {
    place: DoorPlace,
    outside: Outside,
    stage: StageCut,
    /// The job's text.
    spec: Arc<Spec>,
    bus: Arc<dyn Bus>,
    options: DoorOptions,
    sending: Mutex<Sending>,
    bell: Arc<Bell>,
    /// Of the job's sources that somebody waits at, once it runs.
    answers: OnceLock<Vec<Arc<dyn Answers>>>,
    /// Says where the unit of a partition is, as in `which is at node "b"`.
    locator: OnceLock<Locator>,
    pub counts: DoorCounts,
}

type Locator = Box<dyn Fn(u32) -> String + Send + Sync>;

impl Door {
    /// A door that sends by a text of the job.
    ///
    /// # Errors
    /// Where the text is longer than a message holds.
    pub fn new(
        bus: Arc<dyn Bus>,
        place: DoorPlace,
        stage: StageCut,
        spec: Arc<Spec>,
        options: DoorOptions,
        outside: Outside,
    ) -> Result<Arc<Self>, Error> {
        let sending = Mutex::new(begin(&stage, &spec, &place.node, &options, (outside.ids)())?);
        Ok(Arc::new(Self {
            place,
            outside,
            stage,
            spec,
            bus,
            options,
            sending,
            bell: Arc::default(),
            answers: OnceLock::new(),
            locator: OnceLock::new(),
            counts: DoorCounts::default(),
        }))
    }

    /// What brings answers to the clients of the job, which runs by now.
    pub fn attend(&self, answers: Vec<Arc<dyn Answers>>) {
        let _ = self.answers.set(answers);
    }

    /// What says where the unit of a partition is.
    pub(super) fn locate_by(&self, locator: impl Fn(u32) -> String + Send + Sync + 'static) {
        let _ = self.locator.set(Box::new(locator));
    }

    fn locate(&self, partition: u32) -> String {
        match self.locator.get() {
            Some(locate) => locate(partition),
            None => "wherever that is".to_owned(),
        }
    }

    fn answers(&self) -> &[Arc<dyn Answers>] {
        self.answers.get().map_or(&[], Vec::as_slice)
    }

    fn lock(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its incarnation now.
    pub fn incarnation(&self) -> u64 {
        self.lock().incarnation
    }

    /// How long a client waits for its answers.
    pub(super) fn patience(&self) -> Duration {
        self.options.patience
    }

    /// Whether rows wait to be written, or a client for answers that may still come.
    pub(super) fn is_waited_for(&self) -> bool {
        self.lock().lanes.first().is_some()
            || self.answers().iter().any(|answers| !answers.waiting_in(SeqRange::new(0, Seq::MAX)).is_empty())
    }

    /// Ends its [`Sender`], which sends nothing more.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.bell.ring();
    }

    /// What rings when there is something to send, an acknowledgement or an answer.
    pub(super) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Gives up what has waited for too long.
    fn look(&self, now: Micros) {
        let patience = self.options.patience;
        self.give_up(now, patience, &|late| {
            let stage = &self.stage.name;
            let sending = self.lock();
            let come = |record, partition| sending.lanes.come(record, partition);
            let fate =
                fate(late, Because::TooLate(patience), stage, &sending.routes, come, |of| self.locate(of));
            Some(fate)
        });
        // Those that are noted after this are kept.
        let end = self.lock().routes.end();
        let waiting = self.answers().iter().flat_map(|answers| answers.waiting_in(SeqRange::new(0, end)));
        let first = waiting.map(|range| range.start).min().unwrap_or(end);
        self.lock().routes.forget_below(first);
    }

    fn give_up(&self, now: Micros, patience: Duration, fate: &dyn Fn(&Late) -> Option<Fate>) {
        let count: u64 = self.answers().iter().map(|answers| answers.give_up(now, patience, fate)).sum();
        if count > 0 {
            self.counts.unknown.fetch_add(count, Ordering::Relaxed);
            tracing::warn!(door = %self.place.node, pieces = count, "no answer came in time: whether their records count is unknown");
        }
    }

    /// Begins to read answers at the present end of the reply topic: those before it are for earlier incarnations.
    ///
    /// # Errors
    /// If no broker answers.
    pub fn replies(&self) -> Result<Box<dyn Consumer>, Error> {
        let DoorPlace { prefix, node, .. } = &self.place;
        let of = TopicPartition::new(reply_topic(prefix, node), 0);
        let mut consumer = self.bus.consumer(ConsumerOptions {
            group: format!("thalweg.reply.{node}"),
            isolation: Isolation::Uncommitted,
            queue: 4 << 20,
            wake: self.bell.wake(),
        })?;
        consumer.assign(&of, self.bus.bounds(&of)?.end)?;
        Ok(consumer)
    }

    /// Whether it goes by an incarnation, or did lately.
    pub(super) fn goes_by(&self, incarnation: u64) -> bool {
        let sending = self.lock();
        sending.incarnation == incarnation || sending.earlier.contains(&incarnation)
    }

    /// Brings answers to those who wait for them.
    pub(super) fn bring(&self, message: &AnswersMessage<'_>) {
        self.counts.answers.fetch_add(message.answers.len() as u64, Ordering::Relaxed);
        for (request, line) in &message.answers {
            self.answers().iter().for_each(|answers| match line {
                [] => answers.reject(*request, "no_answer", NO_ANSWER),
                line => answers.answer(*request, line),
            });
        }
    }

    /// Takes answers from the topic of the node; whether a unit has refused rows of this incarnation.
    fn take_answers(&self, replies: &mut dyn Consumer) -> bool {
        let incarnation = self.incarnation();
        let mut is_refused = false;
        let taken = replies.take(0, Duration::ZERO, &mut |message| {
            match AnswersMessage::parse(message.value.unwrap_or_default()) {
                // One of an earlier incarnation has been heeded.
                Ok(message) if message.is_refusal() => is_refused |= message.incarnation == incarnation,
                Ok(message) if self.goes_by(message.incarnation) => self.bring(&message),
                Ok(_) => {}
                Err(error) => tracing::debug!(offset = message.offset, %error, "a message among answers"),
            }
            true
        });
        if let Err(error) = taken {
            tracing::debug!(%error, "answers cannot be read");
        }
        is_refused
    }

    /// Takes note of what is written, and sends what may go.
    fn send(&self, producer: &mut dyn Producer, acknowledged: &Acknowledged, now: Micros) -> Step {
        let mut sending = self.lock();
        if sending.is_over {
            return Step::Over;
        }
        sending.lanes.acknowledged(acknowledged.below);
        let room = sending.frames.room(acknowledged.below, now);
        for partition in sending.lanes.ready(room) {
            let tag = sending.frames.tag();
            let Some(cut) = sending.lanes.cut(partition, false, tag) else { continue };
            sending.frames.leaves(now);
            self.counts.frames.fetch_add(1, Ordering::Relaxed);
            match send(producer, &self.place.topic, partition, &cut, tag) {
                Ok(Taken::Taken) => {}
                // The client holds one frame of each partition at most, and has room for more: it has failed, or will.
                Ok(Taken::Full) | Err(_) => return Step::Failed,
            }
        }
        let written = sending.written();
        let waker = if sending.lanes.waiting() < self.options.queue { sending.waker.take() } else { None };
        drop(sending);
        self.answers().iter().for_each(|answers| answers.written(written));
        if let Some(waker) = waker {
            waker.wake();
        }
        Step::Done
    }

    /// Goes on as a new incarnation, without what was on its way.
    fn begin_again(&self, because: Because) {
        let count = if because == Because::Refused { &self.counts.refusals } else { &self.counts.failures };
        count.fetch_add(1, Ordering::Relaxed);
        let mut sending = self.lock();
        let incarnation = (self.outside.ids)();
        let new = begin(&self.stage, &self.spec, &self.place.node, &self.options, incarnation)
            .expect("the text was short enough for the incarnation before");
        let old = std::mem::replace(&mut *sending, new);
        (sending.passed, sending.reached, sending.is_over) = (old.passed, old.reached, old.is_over);
        sending.earlier.push_back(old.incarnation);
        sending.earlier.extend(old.earlier.iter().take(EARLIER - 1));
        // Of those that are spared.
        sending.routes = old.routes.clone();
        drop(sending);
        self.give_up(self.outside.clock.read().steady, Duration::ZERO, &|late| {
            let come = |record, partition| old.lanes.come(record, partition);
            let fate = || fate(late, because, &self.stage.name, &old.routes, come, |of| self.locate(of));
            (!old.spares(late)).then(fate)
        });
        if let Some(waker) = old.waker {
            waker.wake();
        }
    }
}

/// Sends what waits at a door, and brings answers, until [`Door::end`].
pub struct Sender {
    door: Arc<Door>,
    replies: Box<dyn Consumer>,
    client: Option<Box<dyn Producer>>,
    /// When it was last looked what has waited for too long.
    looked: Option<Micros>,
}

impl Sender {
    /// `replies` is what [`Door::replies`] has given, before the first record came.
    pub fn new(door: Arc<Door>, replies: Box<dyn Consumer>) -> Self {
        Self { door, replies, client: None, looked: None }
    }

    fn begin_again(&mut self, because: Because) -> Next {
        self.door.begin_again(because);
        self.client = None;
        Next::Within(Duration::ZERO)
    }

    fn look(&mut self, now: Micros) {
        if self.looked.is_none_or(|looked| since(looked, now) >= LOOK) {
            self.looked = Some(now);
            self.door.look(now);
        }
    }
}

impl Actor for Sender {
    fn step(&mut self, now: Micros) -> Next {
        let door = Arc::clone(&self.door);
        let name = &door.place.node;
        if door.lock().is_over {
            return Next::Over;
        }
        let connected = match &mut self.client {
            Some(client) => client,
            none => match producer(&*door.bus, door.options.queue + SPARE, &door.bell) {
                Ok(made) => none.insert(made),
                Err(error) => {
                    tracing::warn!(door = %name, %error, "records cannot be sent on: no broker");
                    self.look(now);
                    return Next::Within(AGAIN);
                }
            },
        };
        let acknowledged = connected.acknowledged();
        if let Some(failure) = &acknowledged.failure {
            tracing::warn!(door = %name, error = %failure, "records were not written: the door goes on anew");
            // What was written before the failure is spared.
            door.lock().lanes.acknowledged(acknowledged.below);
            return self.begin_again(Because::Failed);
        }
        match door.send(&mut **connected, &acknowledged, now) {
            Step::Done => {}
            Step::Failed => return self.begin_again(Because::Failed),
            Step::Over => return Next::Over,
        }
        if door.take_answers(&mut *self.replies) {
            tracing::warn!(
                door = %name,
                topic = %door.place.topic,
                "a unit refuses rows of this door, as rows before them have not come: the door goes on anew"
            );
            return self.begin_again(Because::Refused);
        }
        self.look(now);
        let is_busy = door.lock().lanes.waiting() > 0;
        Next::Within(if is_busy { GLANCE } else { LOOK })
    }
}

fn begin(
    stage: &StageCut,
    spec: &Spec,
    node: &Arc<str>,
    options: &DoorOptions,
    incarnation: u64,
) -> Result<Sending, Error> {
    let from = (Sent::Door { incarnation }, spec);
    Ok(Sending {
        lanes: Lanes::new(stage, from, options.frames, |_| Mark::START, None)?,
        incarnation,
        earlier: VecDeque::new(),
        door: Arc::new(frame::Door { node: (**node).into(), incarnation }),
        rows: 0,
        passed: 0,
        reached: 0,
        frames: Frames::default(),
        routes: Routes::default(),
        waker: None,
        is_over: false,
    })
}

/// What a client hears of a record that an operator below the key has left out.
const NO_ANSWER: &str = "the job gave no answer for this record";

/// The sink of the part of a job above the key: no job file names it.
pub(super) struct DoorPlugin(pub(super) Arc<Door>);

impl SinkPlugin for DoorPlugin {
    fn name(&self) -> &'static str {
        "door"
    }

    fn doc(&self) -> &'static str {
        "rows for the partitions of a stage, on whatever nodes they are"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn rejects(&self, _: Option<&thalweg_connect::FormatSpec>) -> bool {
        true
    }

    fn guarantee(&self) -> &'static str {
        "exactly-once within the cluster, once it is acknowledged"
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let (door, name) = (Arc::clone(&self.0), context.name);
        Ok(Box::new(move |_| {
            let (door, name) = (Arc::clone(&door), Arc::clone(&name));
            Ok(Box::new(DoorSink { door, name, seen: Vec::new(), routes: Vec::new() }))
        }))
    }
}

struct DoorSink {
    door: Arc<Door>,
    name: Arc<str>,
    /// Order numbers of the rows of the present range.
    seen: Vec<Seq>,
    /// Partitions of those that somebody waits for.
    routes: Vec<(Seq, u32)>,
}

impl Operator for DoorSink {
    fn process(&mut self, input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let door = &self.door;
        let waiting: Vec<SeqRange> =
            door.answers().iter().flat_map(|answers| answers.waiting_in(batch.range())).collect();
        let is_waited_for = |seq: Seq| waiting.iter().any(|range| range.contains(seq));
        let arrival = door.outside.clock.read().wall;
        let mut sending = door.lock();
        sending.reached = sending.reached.max(batch.range().end);
        let Sending { lanes, rows, door: address, .. } = &mut *sending;
        let refused = lanes.push(input.port as u32, &batch, |seq, partition| {
            let position = Position { offset: *rows, row: 0 };
            *rows += 1;
            let reply =
                is_waited_for(seq).then(|| Reply { door: Arc::clone(address), request: seq, line: 0 });
            if reply.is_some() {
                self.routes.push((seq, partition));
            }
            Origin { position, arrival, reply }
        })?;
        let mut rejects = RejectsBuilder::default();
        let too_large: Vec<Seq> = refused.iter().map(|refused| batch.seq(refused.row)).collect();
        self.routes.retain(|(seq, _)| !too_large.contains(seq));
        drop(sending);
        for refused in &refused {
            let seq = batch.seq(refused.row);
            let reason = refused.error.to_string();
            let (source, offset) = out.place_of(seq).unwrap_or_else(|| (Arc::clone(&self.name), seq));
            let reject =
                Reject { source: &source, offset, line: None, code: "too_long", reason: &reason, raw: b"" };
            rejects.push(seq, batch.times()[refused.row as usize], reject);
            door.answers().iter().for_each(|answers| answers.reject(seq, "too_long", &reason));
        }
        if !refused.is_empty() {
            out.emit(0, rejects.finish(batch.range()));
        }
        door.counts.rows.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.seen.extend(batch.row_numbers().map(|row| batch.seq(row)));
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, _: &mut Output<'_>) -> Result<(), Error> {
        let door = &self.door;
        // Before anybody hears that all of the range has been sent on.
        if !self.routes.is_empty() {
            door.lock().routes.note(std::mem::take(&mut self.routes));
        }
        self.seen.sort_unstable();
        let is_left_out = |seq: &Seq| self.seen.binary_search(seq).is_err();
        for answers in door.answers() {
            let waiting = answers.waiting_in(range);
            let waiting = waiting.iter().flat_map(|of| of.start.max(range.start)..of.end.min(range.end));
            answers.passed_by(range, &waiting.filter(is_left_out).collect::<Vec<Seq>>());
        }
        let is_any = !self.seen.is_empty();
        self.seen.clear();
        door.lock().passed = range.end;
        if is_any || !door.answers().is_empty() {
            door.bell.ring();
        }
        Ok(())
    }

    fn is_ready(&mut self, waker: &Waker) -> bool {
        let mut sending = self.door.lock();
        if sending.lanes.waiting() < self.door.options.queue {
            return true;
        }
        sending.waker = Some(waker.clone());
        false
    }
}
