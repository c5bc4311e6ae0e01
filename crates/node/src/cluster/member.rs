//! A node as a member of its cluster: reads the control log, beats, plans when it is its turn, and tells others what follows.
//!
//! All that is decided is in the fold ([`thalweg_cluster::fold`]); here are the log, the clock and the thread. A beat is
//! appended only once the one before has been read back, so a node whose beats wait in its client says nothing in the name
//! of the past.
//!
//! The log of a cluster is one partition, `PREFIX.control`. Where it cannot be reached plans stand still, and work goes on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_cluster::assign::{Settings, propose};
use thalweg_cluster::control::{
    self, Beat, Gap, Incarnation, Join, Leave, NEWEST, Name, Process, Record, Report, StateRecord, Text, Unit,
};
use thalweg_cluster::fold::{self, Fold, Membership as _, Standing, State};
use thalweg_kafka::{
    Bus, Compression, Consumer, ConsumerOptions, Isolation, Message, NewTopic, Outgoing, Producer,
    ProducerOptions, Sent, TopicPartition,
};
use thalweg_types::{Error, Micros, Offset, SEMANTICS};

use super::view::Heard;
use crate::durable::new_run;

/// How often a node beats.
const BEAT: Duration = Duration::from_millis(250);

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
}

/// The topic of the control log.
pub fn control_topic(prefix: &str) -> String {
    format!("{prefix}.control")
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
    if bus.create_topic(&topic)? {
        tracing::info!(topic = name, partitions, replication, "made a topic");
        return Ok(());
    }
    let name: Arc<str> = name.into();
    let found = bus.topics(Some(&[Arc::clone(&name)]))?;
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
    inner: Mutex<Inner>,
}

struct Inner {
    /// The state as of what was read last.
    state: Arc<State>,
    heard: Heard,
    /// Records that somebody wants in the log.
    wanted: Vec<Record>,
    /// It is to leave once it has nothing left.
    is_leaving: bool,
    is_over: bool,
}

impl Member {
    pub fn new(bus: Arc<dyn Bus>, options: MemberOptions) -> Arc<Self> {
        let incarnation = Incarnation(new_run());
        let process = Process { name: options.name.clone(), incarnation };
        let inner = Inner {
            state: Arc::new(State::new()),
            heard: Heard::default(),
            wanted: Vec::new(),
            is_leaving: false,
            is_over: false,
        };
        Arc::new(Self { options, process, bus, inner: Mutex::new(inner) })
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

    pub fn options(&self) -> &MemberOptions {
        &self.options
    }

    /// Asks what was heard apart from the state.
    pub(super) fn with_heard<T>(&self, ask: impl FnOnce(&Heard) -> T) -> T {
        ask(&self.lock().heard)
    }

    /// Has a record appended, such as a new spec. Whether it counts, the state says later.
    pub fn append(&self, record: Record) {
        self.lock().wanted.push(record);
    }

    /// Hands over what the node has, and then leaves.
    pub fn leave(&self) {
        let mut inner = self.lock();
        if !std::mem::replace(&mut inner.is_leaving, true) {
            let drain = control::Drain { name: self.options.name.clone(), on: true };
            inner.wanted.push(Record::Drain(drain));
        }
    }

    /// Ends [`Member::run`] as a crash would.
    pub fn end(&self) {
        self.lock().is_over = true;
    }

    /// The life of the member's thread.
    ///
    /// # Errors
    /// The node has to stop: another process has its name (class user), or its log is another one (class corrupt).
    pub fn run(&self, work: &mut dyn Work) -> Result<(), Error> {
        let of = TopicPartition::new(control_topic(&self.options.prefix), 0);
        let mut run = loop {
            if self.lock().is_over {
                return Ok(());
            }
            match self.begin(&of) {
                Ok(run) => break run,
                Err(error) if error.class() == thalweg_types::Class::External => {
                    tracing::warn!(%of, %error, "the control log cannot be read yet");
                    std::thread::sleep(AGAIN);
                }
                Err(error) => return Err(error),
            }
        };
        loop {
            let (is_over, is_leaving) = {
                let inner = self.lock();
                (inner.is_over, inner.is_leaving)
            };
            if is_over {
                return Ok(());
            }
            let has_news = run.read(self)?;
            if has_news {
                let state = Arc::new(run.fold.state().clone());
                self.lock().state = Arc::clone(&state);
                work.follow(&state);
            }
            if is_leaving && run.has_left(self) {
                return Ok(());
            }
            run.act(self, work)?;
        }
    }

    /// Finds where the log is to be read from.
    fn begin(&self, of: &TopicPartition) -> Result<Run, Error> {
        let bounds = self.bus.bounds(of)?;
        let mut consumer = self.bus.consumer(ConsumerOptions {
            group: format!("thalweg.control.{}", self.options.name),
            isolation: Isolation::Uncommitted,
            queue: 8 << 20,
            wake: Arc::new(|| {}),
        })?;
        consumer.assign(of, bounds.start)?;
        // State records on the way to the present end.
        let (mut states, mut at) = (Vec::new(), bounds.start);
        while at < bounds.end {
            let taken = consumer.take(0, AGAIN, &mut |message| {
                at = message.offset + 1;
                if let Ok(control::Decoded::Record(record)) =
                    control::decode(message.value.unwrap_or_default())
                {
                    self.lock().heard.note(message.offset.unsigned_abs(), appended_of(message), &record);
                    if let Record::State(state) = record {
                        states.push(*state);
                    }
                }
                at < bounds.end
            })?;
            if taken.messages == 0 && self.lock().is_over {
                break;
            }
            at = at.max(taken.end.unwrap_or(at));
        }
        let fold = fold::begin(Offset::try_from(bounds.start).unwrap_or(0), states)?;
        let next = i64::try_from(fold.state().next()).unwrap_or(bounds.start);
        consumer.seek(0, next)?;
        Ok(Run {
            fold,
            consumer,
            producer: None,
            began: Offset::try_from(bounds.end).unwrap_or(0),
            end: Offset::try_from(bounds.end).unwrap_or(0),
            beat: Pending::default(),
            join: Pending::default(),
            plan: Pending::default(),
            recorded: Pending::default(),
            beaten: Instant::now(),
            has_left: false,
            dropped: BTreeSet::new(),
        })
    }
}

/// When the broker appended a message.
fn appended_of(message: &Message<'_>) -> Micros {
    message.timestamp.unwrap_or(0).saturating_mul(1_000)
}

/// A record of ours that may be on its way.
#[derive(Default)]
struct Pending {
    since: Option<Instant>,
}

impl Pending {
    /// Whether nothing is on its way, or for so long that it will not come.
    fn is_free(&self) -> bool {
        self.since.is_none_or(|since| since.elapsed() > PATIENCE)
    }

    fn sent(&mut self) {
        self.since = Some(Instant::now());
    }

    fn came(&mut self) {
        self.since = None;
    }
}

/// What the thread has.
struct Run {
    fold: Fold,
    consumer: Box<dyn Consumer>,
    producer: Option<Box<dyn Producer>>,
    /// The end of the log when the process began.
    began: Offset,
    /// What has to be read before anything is said.
    end: Offset,
    beat: Pending,
    join: Pending,
    plan: Pending,
    recorded: Pending,
    beaten: Instant,
    has_left: bool,
    dropped: BTreeSet<Unit>,
}

impl Run {
    /// Reads what there is, for about a beat at most; whether there was something.
    fn read(&mut self, member: &Member) -> Result<bool, Error> {
        let (mut stopped, mut count) = (None, 0);
        let Self { fold, consumer, beat, join, plan, recorded, has_left, .. } = self;
        let me = &member.process;
        let taken = consumer.take(0, BEAT / 10, &mut |message| {
            let offset = Offset::try_from(message.offset).unwrap_or(0);
            let value = message.value.unwrap_or_default();
            let appended = appended_of(message);
            if let Ok(control::Decoded::Record(record)) = control::decode(value) {
                member.lock().heard.note(offset, appended, &record);
                match &record {
                    Record::Beat(it) if it.process == *me => beat.came(),
                    Record::Join(it) if it.process == *me => join.came(),
                    Record::Plan(it) if it.process == *me => plan.came(),
                    Record::State(it) if it.process == *me => recorded.came(),
                    Record::Leave(it) if it.process == *me => *has_left = true,
                    _ => {}
                }
            }
            match fold.take(offset, appended, value) {
                Ok((_, None)) => {}
                Ok((_, Some(error))) => {
                    tracing::warn!(offset, %error, "a message of the control log does not count")
                }
                Err(stop) => {
                    stopped = Some(stop);
                    return false;
                }
            }
            count += 1;
            count < 1_000
        });
        match (stopped, taken) {
            (Some(stop), _) => Err(Error::from(stop)),
            (None, Ok(_)) => Ok(count > 0),
            (None, Err(error)) if error.problem == thalweg_kafka::Problem::OutOfRange => {
                Err(Error::corrupt(format!("the control log has lost what this node was to read: {error}")))
            }
            (None, Err(error)) => {
                tracing::debug!(%error, "the control log cannot be read");
                std::thread::sleep(BEAT / 10);
                Ok(false)
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
        if drains && (is_last || state.active_units(name).is_empty()) && !self.has_left {
            let leave = Record::Leave(Leave { process: member.process.clone() });
            self.append(member, &leave);
        }
        self.has_left
    }

    /// Says what there is to say.
    fn act(&mut self, member: &Member, work: &mut dyn Work) -> Result<(), Error> {
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
                if self.join.is_free() && !self.has_left {
                    let join = self.join_record(member);
                    self.append(member, &join);
                    self.join.sent();
                }
                return Ok(());
            }
            Standing::Member => {}
        }
        if self.beaten.elapsed() >= BEAT && self.beat.is_free() {
            let beat = Beat {
                process: me.clone(),
                read: state.next(),
                trouble: work.trouble(),
                reports: work.reports(),
                dropped: std::mem::take(&mut self.dropped),
                gaps: work.gaps(),
            };
            self.append(member, &Record::Beat(beat));
            self.beat.sent();
            self.beaten = Instant::now();
        }
        let state = self.fold.state();
        if state.may_plan(me) && self.plan.is_free() {
            let plan = propose(state, me, &Settings::default());
            self.append(member, &Record::Plan(plan));
            self.plan.sent();
        }
        let state = self.fold.state();
        if state.may_record(me)
            && self.recorded.is_free()
            && let Some(cut) = self.fold.cut()
        {
            let record = StateRecord { process: me.clone(), state: cut.clone() };
            self.append(member, &Record::State(Box::new(record)));
            self.recorded.sent();
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
                linger: Duration::ZERO,
                max_message: control::MAX_RECORD_BYTES,
                queue: 2 * control::MAX_RECORD_BYTES,
                transactional_id: None,
                wake: Arc::new(|| {}),
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
