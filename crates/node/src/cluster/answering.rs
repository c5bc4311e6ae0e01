//! Answers of a unit, back to the doors that wait for them.
//!
//! The source notes the rows that somebody waits for ([`Arrived`]); the sink at the end of the unit makes a line of each
//! answer, and posts the lines by door ([`Post`]). Answers are sent and forgotten: the log has the records, and a client
//! that hears nothing asks again with the same id.
//!
//! Those for a door of this node go to it at once, the others by the reply topic of the door's node.
//!
//! Refusals go by the topic: the active unit of a partition tells a door that it takes no rows of an incarnation any more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use thalweg_cluster::answers::{Answers, AnswersBuilder};
use thalweg_cluster::frame::{self, Reply};
use thalweg_connect::format::ndjson::RecordLines;
use thalweg_flow::{Clock, InputId, Operator, Output};
use thalweg_kafka::{Bus, Outgoing, Producer, ProducerOptions, Sent};
use thalweg_types::{Batch, Error, Micros, Seq, SeqRange};

use super::arrived::{Arrived, Asker};
use super::door::Door;
use super::inbox::TakenFrame;

/// Nobody waits for the answer to a row that the broker appended so long ago: a unit that reads its log again does not send
/// what it has sent before.
const PATIENCE: Micros = 60_000_000;

/// Bytes of answers that wait in the client; more are dropped, and counted.
const QUEUE: usize = 16 << 20;

/// Bytes of a message of answers, above which the next one begins.
const MESSAGE: usize = 512 << 10;

/// Whether anybody may wait at the time `now` for answers to rows of a block that the broker appended at `appended`.
pub(super) fn is_waited_for(frames: &[TakenFrame], appended: Micros, now: Micros) -> bool {
    frames.iter().any(|taken| !taken.frame.places.replies.is_empty()) && is_recent(appended, now)
}

/// Whether whoever sent a message that the broker appended at `appended` may still wait for something at the time `now`.
pub(super) fn is_recent(appended: Micros, now: Micros) -> bool {
    now.saturating_sub(appended) < PATIENCE
}

/// What a node has done with answers. Relaxed throughout: figures, nothing hangs on them.
#[derive(Debug, Default)]
pub struct PostCounts {
    pub sent: AtomicU64,
    /// Answers for which there was no room, or no broker.
    pub dropped: AtomicU64,
    /// Refusals of rows, of which a door may hear several times.
    pub refusals: AtomicU64,
}

/// Sends answers to doors.
pub struct Post {
    bus: Arc<dyn Bus>,
    prefix: String,
    clock: Arc<dyn Clock>,
    /// `None` before the first answer, and after a failure.
    producer: Mutex<Option<Box<dyn Producer>>>,
    /// Nodes with doors, as the control log has them.
    nodes: Mutex<Vec<Box<str>>>,
    /// The doors of this node; those that have ended are gone.
    doors: Mutex<Vec<Weak<Door>>>,
    pub counts: PostCounts,
}

/// The topic to which answers for the doors of a node go.
pub fn reply_topic(prefix: &str, node: &str) -> String {
    format!("{prefix}.reply.{node}")
}

impl Post {
    pub fn new(bus: Arc<dyn Bus>, prefix: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        let (producer, nodes, doors, counts) = Default::default();
        Self { bus, prefix: prefix.into(), clock, producer, nodes, doors, counts }
    }

    /// Brings answers for a door of this node to it at once.
    pub(super) fn attend(&self, door: &Arc<Door>) {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.retain(|door| door.strong_count() > 0);
        doors.push(Arc::downgrade(door));
    }

    /// What time it is, in microseconds since 1970.
    pub(super) fn now(&self) -> Micros {
        self.clock.read().wall
    }

    /// Names the nodes that may have doors.
    pub fn set_nodes<'a>(&self, nodes: impl Iterator<Item = &'a str>) {
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes.map(Box::from).collect();
    }

    /// Tells a door that rows of an incarnation do not count any more in some partition. A frame names its door's node
    /// only where somebody waits for answers; without that all nodes hear of it.
    pub(super) fn refuse(&self, node: Option<&str>, incarnation: u64) {
        let nodes = match node {
            Some(node) => vec![Box::from(node)],
            None => self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        for node in nodes {
            let refusal = AnswersBuilder::new().finish(incarnation);
            if self.try_send((&reply_topic(&self.prefix, &node), 0), &refusal) {
                self.counts.refusals.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Appends a message to a partition of another topic, if there is room for it.
    pub(super) fn append(&self, topic: &str, partition: u32, value: &[u8]) {
        let Ok(partition) = i32::try_from(partition) else { return };
        self.try_send((topic, partition), value);
    }

    fn send(&self, door: &frame::Door, answers: AnswersBuilder, count: u64) {
        let message = answers.finish(door.incarnation);
        let sent = match (self.here(door.incarnation), Answers::parse(&message)) {
            (Some(here), Ok(answers)) => {
                here.bring(&answers);
                true
            }
            _ => self.try_send((&reply_topic(&self.prefix, &door.node), 0), &message),
        };
        let counter = if sent { &self.counts.sent } else { &self.counts.dropped };
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// The door of this node that goes by an incarnation, or did.
    fn here(&self, incarnation: u64) -> Option<Arc<Door>> {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.iter().filter_map(Weak::upgrade).find(|door| door.goes_by(incarnation))
    }

    /// Lets the client go on, and forgets one that has failed.
    pub(super) fn look(&self) {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..64 {
            let acknowledged = producer.as_mut().map(|producer| producer.acknowledged());
            match acknowledged {
                Some(acknowledged) if acknowledged.failure.is_some() => *producer = None,
                Some(acknowledged) if acknowledged.in_flight > 0 => {}
                _ => return,
            }
        }
    }

    /// Whether the client has taken a message.
    fn try_send(&self, (topic, partition): (&str, i32), value: &[u8]) -> bool {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if producer.as_mut().is_some_and(|producer| producer.acknowledged().failure.is_some()) {
            *producer = None;
        }
        if producer.is_none() {
            let options = ProducerOptions {
                // Answers to many rows leave together: the topic of a node has one partition.
                requests: Some(1),
                ..ProducerOptions::new(MESSAGE + (1 << 20), QUEUE)
            };
            match self.bus.producer(options) {
                Ok(made) => *producer = Some(made),
                Err(error) => {
                    tracing::debug!(%error, "answers cannot be sent");
                    return false;
                }
            }
        }
        let message = Outgoing { topic, partition: Some(partition), key: None, value, headers: &[] };
        producer.as_mut().is_some_and(|producer| {
            let is_taken = matches!(producer.send(&message, 0), Ok(Sent::Taken));
            // Nobody asks what becomes of it, unless that is a failure.
            is_taken && producer.acknowledged().failure.is_none()
        })
    }
}

/// Answers for a door, and how many they are.
type Open = (Arc<frame::Door>, AnswersBuilder, u64);

/// What brings lines to doors, and whether the unit is active: one that follows another sends none.
pub(super) type Lines = (Arc<Post>, Arc<AtomicBool>);

/// Lines for doors, about records that a unit has been told.
pub(super) struct Letters {
    arrived: Arc<Arrived>,
    post: Arc<Post>,
    is_active: Arc<AtomicBool>,
    /// By node and incarnation of the door.
    open: BTreeMap<(Box<str>, u64), Open>,
}

impl Letters {
    pub(super) fn new(arrived: Arc<Arrived>, (post, is_active): Lines) -> Self {
        Self { arrived, post, is_active, open: BTreeMap::new() }
    }

    /// Whether a client may wait for answers to some of these rows, and hears from here.
    fn is_waited_for(&self, range: SeqRange) -> bool {
        // Relaxed: that an answer is sent twice or never does no harm.
        self.is_active.load(Ordering::Relaxed) && self.arrived.is_waited_for(range)
    }

    fn add(&mut self, reply: &Reply, line: &[u8]) {
        let key = (reply.door.node.clone(), reply.door.incarnation);
        let new = || (Arc::clone(&reply.door), AnswersBuilder::new(), 0);
        let (_, answers, count) = self.open.entry(key.clone()).or_insert_with(new);
        answers.push(reply.request, line);
        *count += 1;
        if answers.len() > MESSAGE
            && let Some((door, answers, count)) = self.open.remove(&key)
        {
            self.post.send(&door, answers, count);
        }
    }

    /// Says of the records in `range` that none but `heard` has an answer: what was made of the others ends here.
    pub(super) fn decline_others(&mut self, range: SeqRange, heard: &mut Vec<Seq>) {
        if self.is_waited_for(range) {
            heard.sort_unstable();
            for (seq, reply) in self.arrived.replies_in(range) {
                if heard.binary_search(&seq).is_err() {
                    self.add(&reply, b"");
                }
            }
        }
        heard.clear();
    }

    pub(super) fn send(&mut self) {
        for (door, answers, count) in std::mem::take(&mut self.open).into_values() {
            self.post.send(&door, answers, count);
        }
    }
}

/// The sink at the end of a unit.
pub(super) struct AnsweringSink {
    letters: Letters,
    lines: RecordLines,
    /// Records of the present range that have an answer.
    answered: Vec<Seq>,
}

impl AnsweringSink {
    pub(super) fn new(letters: Letters) -> Self {
        Self { letters, lines: RecordLines::default(), answered: Vec::new() }
    }
}

impl Operator for AnsweringSink {
    fn process(&mut self, input: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        // Its input 1 are rejects of the source, which has none.
        if input.port == 0 && self.letters.is_waited_for(batch.range()) {
            let mut walk = self.letters.arrived.walk();
            let wanted = batch.row_numbers();
            let wanted = wanted.filter_map(|row| Some((row, walk.at(batch.seq(row))?.reply?)));
            let wanted: Vec<(u32, Reply)> = wanted.collect();
            drop(walk);
            self.answered.extend(wanted.iter().map(|(row, _)| batch.seq(*row)));
            let (mut replies, letters) = (wanted.iter(), &mut self.letters);
            self.lines.for_each(batch.records(), wanted.iter().map(|(row, _)| *row), |_, line| {
                if let Some((_, reply)) = replies.next() {
                    letters.add(reply, line);
                }
            });
        }
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, _: &mut Output<'_>) -> Result<(), Error> {
        self.letters.decline_others(range, &mut self.answered);
        self.letters.send();
        self.letters.arrived.forget(Asker::Answers, range.end);
        Ok(())
    }
}
