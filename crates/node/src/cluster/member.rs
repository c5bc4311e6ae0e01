//! A node as a member of its cluster: reads the control log, beats, plans when it is its turn, and tells others what follows.
//!
//! All that is decided is in the fold ([`thalweg_cluster::fold`]); here are the log, the clock and the actor. A beat is
//! appended only once the one before has been read back, so a node whose beats wait in its client says nothing in the name
//! of the past.
//!
//! The log of a cluster is one partition, `PREFIX.control`. Where it cannot be reached plans stand still, and work goes on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_cluster::assign::{Settings, propose};
use thalweg_cluster::control::{
    self, Beat, Gap, Incarnation, Join, Leave, NEWEST, Name, Process, Record, Report, StateRecord, Text, Unit,
};
use thalweg_cluster::fold::{self, Fold, Membership as _, Standing, State};
use thalweg_flow::Clock;
use thalweg_kafka::{
    Bounds, Bus, BusError, Compression, Consumer, ConsumerOptions, Isolation, Message, NewTopic, Outgoing,
    Problem, Producer, ProducerOptions, Sent, Topic, TopicPartition,
};
use thalweg_types::{Class, Error, Micros, Offset, SEMANTICS};

use super::actor::{Actor, Bell, Next, Outside, since};
use super::told::tell;
use super::view::Heard;

/// How often a node beats.
const BEAT: Duration = Duration::from_millis(250);

/// How often a node looks whether there is something to read, and to say.
const LOOK: Duration = Duration::from_millis(25);

/// Records that are read in one step.
const RECORDS: usize = 1_000;

/// How long a record may be on its way until it is appended again.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a node without brokers waits until it tries again.
const AGAIN: Duration = Duration::from_millis(500);

/// Who a node says that it is.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// Names of its topics begin with this.
    pub prefix: String,
    pub name: Name,
    /// The machine: copies of a unit are on different ones.
    pub host: Text,
    /// How much work it takes, compared with others.
    pub capacity: u32,
    /// Where other nodes reach its HTTP interface.
    pub address: Text,
    /// Copies that the brokers keep of each partition.
    pub replication: i32,
}

/// What a node does with what the log says.
pub trait Work: Send {
    /// The log says something else than before: who has which unit, which jobs run.
    fn follow(&mut self, state: &Arc<State>);

    /// How the units on this node are.
    fn reports(&mut self) -> Vec<Report>;

    /// Rows that units here wait for, of units that have sent later ones; at most as many as a beat holds.
    fn gaps(&mut self) -> Vec<Gap>;

    /// Units that cannot be worked on here.
    fn trouble(&mut self) -> BTreeSet<Unit>;

    /// The node has left or was ended; else it has to stop: another process has its name (class user), or its log is another
    /// one (class corrupt).
    fn over(&mut self, outcome: Result<(), Error>);
}

/// The topic of the control log.
pub fn control_topic(prefix: &str) -> String {
    format!("{prefix}.control")
}

/// Looks up a topic that is there. A broker hears of one that another node has just made a moment later.
fn look_up(bus: &dyn Bus, name: &Arc<str>) -> Result<Vec<Topic>, BusError> {
    let mut tries = 0;
    loop {
        match bus.topics(Some(std::slice::from_ref(name))) {
            Err(error) if error.problem == Problem::NoTopic && tries < 50 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
            found => return found,
        }
    }
}

/// Makes a topic of the cluster where it is missing: its messages have the time at which brokers append them, and none is
/// deleted for its age, unless `settings` say so.
///
/// # Errors
/// If no broker does it.
pub fn make_topic(
    bus: &dyn Bus,
    name: &str,
    partitions: i32,
    replication: i32,
    settings: &[(&str, &str)],
) -> Result<(), Error> {
    let mut all = vec![
        ("message.timestamp.type", "LogAppendTime"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("cleanup.policy", "delete"),
    ];
    if replication > 1 {
        all.push(("min.insync.replicas", "2"));
    }
    all.retain(|(known, _)| !settings.iter().any(|(name, _)| name == known));
    all.extend_from_slice(settings);
    let settings = all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let topic = NewTopic { name: name.to_owned(), partitions, replication, settings };
    let made = bus.create_topic(&topic).map_err(|error| {
        let lacks_brokers = error.to_string().contains("InvalidReplicationFactor");
        let error = Error::from(error);
        match lacks_brokers {
            true => error.with_hint(format!(
                "the address of the cluster asks for {replication} copies (`replication`), and that many brokers are not there; \
                 for a trial with one broker say replication=1"
            )),
            false => error,
        }
    });
    if made? {
        tracing::info!(topic = name, partitions, replication, "made a topic");
        return Ok(());
    }
    let name: Arc<str> = name.into();
    let found = look_up(bus, &name)?;
    match found.first() {
        Some(topic) if topic.partitions == partitions => Ok(()),
        Some(topic) => Err(Error::user(format!(
            "topic {name:?} has {} partitions, expected {partitions}",
            topic.partitions
        ))
        .with_hint("take another prefix, or the number of partitions that the cluster began with")),
        None => Err(Error::external(format!("topic {name:?} was made, and is not there"))),
    }
}

/// A node as its cluster sees it.
pub struct Member {
    options: MemberOptions,
    process: Process,
    bus: Arc<dyn Bus>,
    outside: Outside,
    bell: Arc<Bell>,
    inner: Mutex<Inner>,
}

struct Inner {
    /// The state as of what was read last.
    state: Arc<State>,
    heard: Heard,
    /// The state has all that was in the log at this time, and maybe more.
    as_of: Option<Micros>,
    /// Records that somebody wants in the log.
    wanted: Vec<Record>,
    /// It is to leave once it has nothing left.
    is_leaving: bool,
    is_over: bool,
}

impl Member {
    pub fn new(bus: Arc<dyn Bus>, options: MemberOptions, outside: Outside) -> Arc<Self> {
        let incarnation = Incarnation((outside.ids)());
        let process = Process { name: options.name.clone(), incarnation };
        let inner = Inner {
            state: Arc::new(State::new()),
            heard: Heard::default(),
            as_of: None,
            wanted: Vec::new(),
            is_leaving: false,
            is_over: false,
        };
        Arc::new(Self { options, process, bus, outside, bell: Arc::default(), inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The state of the cluster, as far as this node has read.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.lock().state)
    }

    /// Whether the state was that of the whole log less than `within` ago. After a pause of the process, or while brokers are away, the log may
    /// say something else by now.
    pub(super) fn is_recent(&self, now: Micros, within: Duration) -> bool {
        self.lock().as_of.is_some_and(|as_of| since(as_of, now) < within)
    }

    /// Whether the node has read a beat of its own: the state has all that was in the log when it began.
    pub(super) fn has_read(&self) -> bool {
        self.lock().as_of.is_some()
    }

    pub fn options(&self) -> &MemberOptions {
        &self.options
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.outside.clock
    }

    /// What rings when there is something to read or to say.
    pub(super) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Asks what was heard apart from the state.
    pub(super) fn with_heard<T>(&self, ask: impl FnOnce(&Heard) -> T) -> T {
        ask(&self.lock().heard)
    }

    /// Has a record appended, such as a new spec. Whether it counts, the state says later.
    pub fn append(&self, record: Record) {
        self.lock().wanted.push(record);
        self.bell.ring();
    }

    /// Hands over what the node has, and then leaves.
    pub fn leave(&self) {
        let mut inner = self.lock();
        if !std::mem::replace(&mut inner.is_leaving, true) {
            let drain = control::Drain { name: self.options.name.clone(), on: true };
            inner.wanted.push(Record::Drain(drain));
        }
        drop(inner);
        self.bell.ring();
    }

    /// Ends its [`Life`] as a crash would.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.bell.ring();
    }

    /// Whether it has been ended.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Opens the log, to find where it is to be read from.
    fn open(&self) -> Result<Finding, Error> {
        let of = TopicPartition::new(control_topic(&self.options.prefix), 0);
        let bounds = self.bus.bounds(&of)?;
        let mut consumer = self.bus.consumer(ConsumerOptions {
            group: format!("thalweg.control.{}", self.options.name),
            isolation: Isolation::Uncommitted,
            queue: 8 << 20,
            wake: self.bell.wake(),
        })?;
        consumer.assign(&of, bounds.start)?;
        Ok(Finding { consumer: Some(consumer), bounds, at: bounds.start, states: Vec::new() })
    }
}

/// The life of a node as a member: until it has left, or [`Member::end`].
pub struct Life<W> {
    member: Arc<Member>,
    work: W,
    phase: Phase,
}

enum Phase {
    /// The log is not open.
    Away,
    Finding(Finding),
    Reading(Box<Run>),
}

impl<W: Work> Life<W> {
    pub fn new(member: Arc<Member>, work: W) -> Self {
        Self { member, work, phase: Phase::Away }
    }

    fn go_on(&mut self, now: Micros) -> Result<Next, Error> {
        let Self { member, work, phase } = self;
        let (is_over, is_leaving) = {
            let inner = member.lock();
            (inner.is_over, inner.is_leaving)
        };
        if is_over {
            return Ok(Next::Over);
        }
        let opened = match phase {
            Phase::Reading(run) => {
                let count = run.read(member, now)?;
                if count > 0 {
                    let state = Arc::new(run.fold.state().clone());
                    member.lock().state = Arc::clone(&state);
                    work.follow(&state);
                }
                if is_leaving && run.has_left(member) {
                    return Ok(Next::Over);
                }
                run.act(member, work, now)?;
                return Ok(Next::Within(if count < RECORDS { LOOK } else { Duration::ZERO }));
            }
            Phase::Away => member.open().map(|finding| Some(Phase::Finding(finding))),
            Phase::Finding(finding) => finding.read(member, now),
        };
        match opened {
            Ok(Some(next)) => {
                *phase = next;
                Ok(Next::Within(Duration::ZERO))
            }
            Ok(None) => Ok(Next::Within(LOOK)),
            Err(error) if error.class() == Class::External => {
                let of = control_topic(&member.options.prefix);
                tracing::warn!(of, %error, "the control log cannot be read yet");
                *phase = Phase::Away;
                Ok(Next::Within(AGAIN))
            }
            Err(error) => Err(error),
        }
    }
}

impl<W: Work> Actor for Life<W> {
    fn step(&mut self, now: Micros) -> Next {
        let outcome = match self.go_on(now) {
            Ok(Next::Over) => Ok(()),
            Ok(next) => return next,
            Err(error) => Err(error),
        };
        self.work.over(outcome);
        Next::Over
    }
}

/// Looks for State records on the way to the end that the log had when the process began.
struct Finding {
    /// Goes to the next phase.
    consumer: Option<Box<dyn Consumer>>,
    bounds: Bounds,
    at: i64,
    states: Vec<StateRecord>,
}

impl Finding {
    /// Reads what there is; the next phase, once it knows where to begin.
    fn read(&mut self, member: &Member, now: Micros) -> Result<Option<Phase>, Error> {
        let Self { consumer: kept, bounds, at, states } = self;
        let Some(consumer) = kept else { return Ok(None) };
        let Bounds { start, end } = *bounds;
        if *at < end {
            let taken = consumer.take(0, Duration::ZERO, &mut |message| {
                *at = message.offset + 1;
                if let Ok(control::Decoded::Record(record)) =
                    control::decode(message.value.unwrap_or_default())
                {
                    let (offset, appended) = (message.offset.unsigned_abs(), appended_of(message));
                    member.lock().heard.note(offset, appended, now, &record);
                    if let Record::State(state) = record {
                        states.push(*state);
                    }
                }
                *at < end
            })?;
            *at = taken.end.unwrap_or(*at).max(*at);
            if *at < end {
                return Ok(None);
            }
        }
        let fold = fold::begin(Offset::try_from(start).unwrap_or(0), std::mem::take(states))?;
        consumer.seek(0, i64::try_from(fold.state().next()).unwrap_or(start))?;
        let Some(consumer) = kept.take() else { return Ok(None) };
        let end = Offset::try_from(end).unwrap_or(0);
        Ok(Some(Phase::Reading(Box::new(Run {
            fold,
            consumer,
            producer: None,
            began: end,
            end,
            beat: Pending::default(),
            beats: Beats::default(),
            join: Pending::default(),
            plan: Pending::default(),
            recorded: Pending::default(),
            beaten: now,
            has_left: false,
            dropped: BTreeSet::new(),
        }))))
    }
}

/// When the broker appended a message.
fn appended_of(message: &Message<'_>) -> Micros {
    message.timestamp.unwrap_or(0).saturating_mul(1_000)
}

/// A record of ours that may be on its way.
#[derive(Default)]
struct Pending {
    since: Option<Micros>,
}

impl Pending {
    /// Whether nothing is on its way, or for so long that it will not come.
    fn is_free(&self, now: Micros) -> bool {
        self.since.is_none_or(|then| since(then, now) > PATIENCE)
    }

    fn sent(&mut self, now: Micros) {
        self.since = Some(now);
    }

    fn came(&mut self) {
        self.since = None;
    }
}

/// Beats of ours that may be on their way, by how far the log had been read, and when they left.
#[derive(Default)]
struct Beats(VecDeque<(Offset, Micros)>);

impl Beats {
    /// More than these do not wait: each takes some seconds until the next one leaves.
    const MOST: usize = 8;

    fn sent(&mut self, read: Offset, now: Micros) {
        if self.0.len() < Self::MOST {
            self.0.push_back((read, now));
        }
    }

    /// One has come back that had read so far; when it left, at the latest. Of two that had read as far it may be either.
    fn came(&mut self, read: Offset) -> Option<Micros> {
        while self.0.pop_front_if(|(before, _)| *before < read).is_some() {}
        self.0.pop_front_if(|(of, _)| *of == read).map(|(_, sent)| sent)
    }
}

/// What a member has that reads its log.
struct Run {
    fold: Fold,
    consumer: Box<dyn Consumer>,
    producer: Option<Box<dyn Producer>>,
    /// The end of the log when the process began.
    began: Offset,
    /// What has to be read before anything is said.
    end: Offset,
    beat: Pending,
    beats: Beats,
    join: Pending,
    plan: Pending,
    recorded: Pending,
    beaten: Micros,
    has_left: bool,
    dropped: BTreeSet<Unit>,
}

impl Run {
    /// Reads what there is; how many records that were.
    fn read(&mut self, member: &Member, now: Micros) -> Result<usize, Error> {
        let (mut stopped, mut count) = (None, 0);
        let Self { fold, consumer, beat, beats, join, plan, recorded, has_left, began, .. } = self;
        let me = &member.process;
        let taken = consumer.take(0, Duration::ZERO, &mut |message| {
            let offset = Offset::try_from(message.offset).unwrap_or(0);
            let value = message.value.unwrap_or_default();
            let appended = appended_of(message);
            let decoded = control::decode(value);
            if let Ok(control::Decoded::Record(record)) = &decoded {
                member.lock().heard.note(offset, appended, now, record);
                match record {
                    Record::Beat(it) if it.process == *me => {
                        beat.came();
                        let as_of = beats.came(it.read);
                        let mut inner = member.lock();
                        inner.as_of = inner.as_of.max(as_of);
                    }
                    Record::Join(it) if it.process == *me => join.came(),
                    Record::Plan(it) if it.process == *me => plan.came(),
                    Record::State(it) if it.process == *me => recorded.came(),
                    Record::Leave(it) if it.process == *me => *has_left = true,
                    _ => {}
                }
            }
            match fold.take(offset, appended, value) {
                Ok((applied, None)) => {
                    // What was before this process is no news.
                    if let (true, Ok(control::Decoded::Record(record))) = (offset >= *began, &decoded) {
                        tell(offset, record, &applied);
                    }
                }
                Ok((_, Some(error))) => {
                    tracing::warn!(offset, %error, "a message of the control log does not count")
                }
                Err(stop) => {
                    stopped = Some(stop);
                    return false;
                }
            }
            count += 1;
            count < RECORDS
        });
        match (stopped, taken) {
            (Some(stop), _) => Err(Error::from(stop)),
            (None, Ok(_)) => Ok(count),
            (None, Err(error)) if error.problem == thalweg_kafka::Problem::OutOfRange => {
                Err(Error::corrupt(format!("the control log has lost what this node was to read: {error}")))
            }
            (None, Err(error)) => {
                tracing::debug!(%error, "the control log cannot be read");
                Ok(count)
            }
        }
    }

    /// It has left, or has nothing left and says so.
    fn has_left(&mut self, member: &Member) -> bool {
        let state = self.fold.state();
        let name = &member.options.name;
        let drains = state.member(name).is_none_or(|me| me.drains);
        // Nobody is there to hand anything over to.
        let is_last = state.members().all(|(other, member)| other == name || member.drains);
        // Those that are bound to it nobody else may have.
        let has_others = || state.active_units(name).iter().any(|unit| state.bound_to(unit).is_none());
        if drains && (is_last || !has_others()) && !self.has_left {
            let leave = Record::Leave(Leave { process: member.process.clone() });
            self.append(member, &leave);
        }
        self.has_left
    }

    /// Says what there is to say.
    fn act(&mut self, member: &Member, work: &mut dyn Work, now: Micros) -> Result<(), Error> {
        let state = self.fold.state();
        if state.next() < self.end {
            return Ok(());
        }
        let me = &member.process;
        match state.standing(me, self.began) {
            Standing::Ended { by } => {
                return Err(Error::user(format!(
                    "name taken: another process is node {:?} now (incarnation {by})",
                    me.name.as_str()
                ))
                .with_hint("give each process a name of its own: --node NAME"));
            }
            Standing::Outside => {
                if self.join.is_free(now) && !self.has_left {
                    let join = self.join_record(member);
                    self.append(member, &join);
                    self.join.sent(now);
                }
                return Ok(());
            }
            Standing::Member => {}
        }
        if since(self.beaten, now) >= BEAT && self.beat.is_free(now) {
            let beat = Beat {
                process: me.clone(),
                read: state.next(),
                trouble: work.trouble(),
                reports: work.reports(),
                dropped: std::mem::take(&mut self.dropped),
                gaps: work.gaps(),
            };
            self.beats.sent(beat.read, now);
            self.append(member, &Record::Beat(beat));
            self.beat.sent(now);
            self.beaten = now;
        }
        let state = self.fold.state();
        if state.may_plan(me) && self.plan.is_free(now) {
            let plan = propose(state, me, &Settings::default());
            self.append(member, &Record::Plan(plan));
            self.plan.sent(now);
        }
        let state = self.fold.state();
        if state.may_record(me)
            && self.recorded.is_free(now)
            && let Some(cut) = self.fold.cut()
        {
            let record = StateRecord { process: me.clone(), state: cut.clone() };
            self.append(member, &Record::State(Box::new(record)));
            self.recorded.sent(now);
        }
        let wanted = std::mem::take(&mut member.lock().wanted);
        for record in wanted {
            if !self.append(member, &record) {
                member.lock().wanted.push(record);
            }
        }
        Ok(())
    }

    fn join_record(&self, member: &Member) -> Record {
        let MemberOptions { host, capacity, address, .. } = &member.options;
        Record::Join(Join {
            process: member.process.clone(),
            read: self.fold.state().next(),
            host: host.clone(),
            capacity: *capacity,
            address: address.clone(),
            semantics: BTreeSet::from([SEMANTICS]),
            newest: NEWEST,
        })
    }

    /// Hands a record to the client; whether that took it.
    fn append(&mut self, member: &Member, record: &Record) -> bool {
        let bytes = match control::encode(record) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::error!(%error, kind = record.kind(), "a record of this node is not appended");
                return true;
            }
        };
        if self.producer.as_mut().is_some_and(|producer| producer.acknowledged().failure.is_some()) {
            self.producer = None;
        }
        if self.producer.is_none() {
            let made = member.bus.producer(ProducerOptions {
                compression: Compression::Lz4,
                // Records of one step may be several, and the first ones.
                requests: Some(1),
                ..ProducerOptions::new(control::MAX_RECORD_BYTES, 2 * control::MAX_RECORD_BYTES)
            });
            match made {
                Ok(producer) => self.producer = Some(producer),
                Err(error) => {
                    tracing::debug!(%error, "the control log cannot be written");
                    return false;
                }
            }
        }
        let topic = control_topic(&member.options.prefix);
        let message = Outgoing { topic: &topic, partition: Some(0), key: None, value: &bytes, headers: &[] };
        let producer = self.producer.as_mut();
        let sent = producer.is_some_and(|producer| matches!(producer.send(&message, 0), Ok(Sent::Taken)));
        if let Some(producer) = &mut self.producer {
            // What the client hears of it shows itself in the log.
            let _ = producer.acknowledged();
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_that_comes_late_is_not_taken_for_a_younger_one() {
        let mut beats = Beats::default();
        // The process stood still after the first, and reads nothing before it sends the second.
        beats.sent(7, 1_000);
        beats.sent(7, 9_000);
        assert_eq!(beats.came(7), Some(1_000));
        assert_eq!(beats.came(7), Some(9_000));
        assert_eq!(beats.came(7), None);
    }

    #[test]
    fn after_a_beat_that_was_lost_the_next_one_counts() {
        let mut beats = Beats::default();
        beats.sent(7, 1_000);
        beats.sent(9, 2_000);
        assert_eq!(beats.came(9), Some(2_000));
        // It was not lost.
        assert_eq!(beats.came(7), None);
        // One of another process with this name, or of those that are not remembered.
        assert_eq!(beats.came(11), None);
    }
}
