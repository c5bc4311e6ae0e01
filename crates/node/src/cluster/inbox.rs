//! The source of a unit: reads its partition of the log, and tells the job what comes and when that was.
//!
//! Which rows count is decided here, frame by frame, before they have a number ([`Through`]): rows that were there before are
//! dropped, and so is a whole frame that begins after a gap, of which its sender hears (`gaps`). What time it is, the log says: the time at which the broker
//! appended a message. Where the job has operators that emit at ticks, one comes before the first message of each second; the
//! active unit appends a message without rows where nothing else does and one of its tasks waits (`Units::append_tick`).
//!
//! By which text of the job the unit works, the log says, too: the source ends where it names a higher one, and the unit is
//! opened again by that (`texts`).
//!
//! Resuming (cluster rules, 10): the topic has the id that the commit record names, the position is within the bounds of
//! the partition, and the last frame that was read has the checksum that it had. It may be gone only where everything
//! before the position is. Anything else stops the unit: its log is another one.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_buffer::ScalarBuffer;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use thalweg_cluster::frame::{Frame, FrameError, Head, RowFrame, Spec, checksum};
use thalweg_cluster::positions::{Mark, Origin, Position, Verdict};
use thalweg_connect::source::kafka::SharedTopic;
use thalweg_connect::{BuiltSource, OptionSpec, Options, Replay, SourceContext, SourcePlugin};
use thalweg_flow::{
    Command, CommitView, Decoded, Decoder, Held, Payload, Poll, RawBlock, Source, SourcePosition, Told, Waker,
};
use thalweg_kafka::{Bounds, Bus, Consumer, ConsumerOptions, Isolation, Problem, TopicId, TopicPartition};
use thalweg_types::{Batch, Error, Micros, Offset, Schema, Seq, SeqRange, Seqs};

use super::answering::{AnsweringSink, Letters, Lines, Post, is_waited_for};
use super::arrived::Arrived;
use super::cut::StageCut;
use super::gaps::{GapNotes, OpenGaps, Refusals};
use super::outside::Limit;
use super::place::{LastFrame, OtherTopic, Place};
use super::texts::{Kept, Texts, Wires, adapt, wires};
use super::wire::from_wire;

/// How soon a broker is asked again that did not answer.
pub(super) const AGAIN: Duration = Duration::from_millis(200);

/// Bytes that a client keeps of a partition at least.
const LEAST_QUEUE: usize = 64 << 10;

/// Rows of a block at most.
const BLOCK_ROWS: usize = 1 << 18;

/// Reads the partitions of all units of a job on a node: one client of the brokers.
#[derive(Clone)]
pub struct Reader {
    bus: Arc<dyn Bus>,
    client: Arc<Mutex<Box<dyn Consumer>>>,
}

impl Reader {
    /// `group` is the one to which positions are told for the tools of the brokers; `queue` bounds the bytes that wait in
    /// the client for each partition, which stops fetching it then.
    ///
    /// # Errors
    /// If a setting is wrong.
    pub fn new(bus: Arc<dyn Bus>, group: impl Into<String>, queue: usize) -> Result<Self, Error> {
        let options = ConsumerOptions {
            group: group.into(),
            // No frame is part of a transaction: nothing has to wait for the end of one.
            isolation: Isolation::Uncommitted,
            queue,
            wake: Arc::new(|| {}),
        };
        let client = Arc::new(Mutex::new(bus.consumer(options)?));
        Ok(Self { bus, client })
    }

    /// Reads the partitions of a topic of others, `count` of them all together.
    ///
    /// # Errors
    /// If a setting is wrong.
    pub(super) fn of_topic(topic: &SharedTopic, group: &str, count: u32) -> Result<Self, Error> {
        let options = ConsumerOptions {
            group: group.to_owned(),
            isolation: topic.isolation,
            queue: (topic.queue / count.max(1) as usize).max(LEAST_QUEUE),
            wake: Arc::new(|| {}),
        };
        let client = Arc::new(Mutex::new(topic.bus.consumer(options)?));
        Ok(Self { bus: Arc::clone(&topic.bus), client })
    }

    pub(super) fn bus(&self) -> &dyn Bus {
        &*self.bus
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Box<dyn Consumer>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a unit has found in its partition, since its start. Figures, read and written in any order, but for `told` and
/// `sequenced`.
#[derive(Debug, Default)]
pub struct InboxCounts {
    /// Rows that counted.
    pub rows: AtomicU64,
    /// Rows that were there before.
    pub duplicates: AtomicU64,
    /// Frames that began after rows which never came.
    pub gaps: AtomicU64,
    /// The offset of the message that is read next.
    pub position: AtomicU64,
    /// Rows of all messages below this offset have their order numbers, which are below `sequenced`.
    pub told: AtomicU64,
    pub sequenced: AtomicU64,
    /// The offset after the newest message, as a broker last said; `is_known` once one has.
    pub end: AtomicU64,
    pub is_known: AtomicBool,
    /// When the broker appended the message that was read last, in microseconds since 1970; 0 before the first.
    pub appended: AtomicI64,
    /// The log goes on with another text of the job, by which the unit has to be opened.
    pub has_met: AtomicBool,
    /// Bytes of the messages that were read.
    pub bytes: AtomicU64,
    /// Units of which rows are missing now.
    pub open: Arc<OpenGaps>,
}

impl InboxCounts {
    /// Where the partition ends, as its broker last said.
    pub(super) fn show_end(&self, bounds: Option<Bounds>) {
        let Some(bounds) = bounds else { return };
        self.end.store(u64::try_from(bounds.end).unwrap_or(0), Ordering::Relaxed);
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Whether all messages were read that are known of; with `below` those below that.
    pub(super) fn has_read_to(&self, below: Option<Offset>) -> bool {
        let end = self.end.load(Ordering::Relaxed).min(below.unwrap_or(Offset::MAX));
        self.is_known.load(Ordering::Relaxed) && self.position.load(Ordering::Relaxed) >= end
    }
}

/// What a unit reads.
pub(super) struct Input {
    pub(super) reader: Reader,
    pub(super) of: TopicPartition,
    pub(super) stage: StageCut,
    /// The number of the text by which the unit was opened.
    pub(super) text: u64,
    pub(super) texts: Arc<Texts>,
    pub(super) kept: Kept,
    pub(super) counts: Arc<InboxCounts>,
    pub(super) goes: Goes,
    /// What tells doors that their rows do not count, and whether this unit does so: one that follows another does not.
    pub(super) refuses: (Option<Arc<Post>>, Arc<AtomicBool>),
    /// Where rows came from that somebody asks for.
    pub(super) arrived: Arc<Arrived>,
    /// What hears of the unit's commits.
    pub(super) on_commit: Option<CommitView>,
    /// How far it may read.
    pub(super) limit: Option<Arc<Limit>>,
}

/// What leaves a unit of what it makes of its rows.
#[derive(Clone)]
pub(super) struct Goes {
    pub(super) lines: Option<Lines>,
    /// These are answers; else it is a later stage that has them, and doors hear of rows that do not get there.
    pub(super) answers: bool,
    /// Somebody asks of every row where it came from: the next stage, or a sink that writes to another system.
    pub(super) asks: bool,
}

/// The plug-in of one unit's source: no job file names it.
pub(super) struct InboxPlugin(pub(super) Input);

impl SourcePlugin for InboxPlugin {
    fn name(&self) -> &'static str {
        "log"
    }

    fn doc(&self) -> &'static str {
        "rows that other parts of the job have sent to a partition of its log"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn is_live(&self, _: &Options) -> bool {
        true
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let Input { reader, of, stage, text, texts, kept, counts, goes, refuses, arrived, .. } = &self.0;
        let source = Inbox {
            reader: reader.clone(),
            of: of.clone(),
            source: Arc::clone(&context.name),
            number: None,
            place: Place::default(),
            records: 0,
            expected: None,
            held: VecDeque::new(),
            counts: Arc::clone(counts),
            is_draining: false,
            place_in_chain: stage.place as usize,
            inputs: stage.streams.len(),
            text: *text,
            texts: Arc::clone(texts),
            kept: kept.clone(),
            wires: BTreeMap::new(),
            has_met: false,
            has_ticks: stage.has_ticks(),
            judge: stage.judge(),
            senders: stage.senders,
            told_time: None,
            gaps: GapNotes::new(Arc::clone(&counts.open)),
            refusals: Refusals::new(refuses.0.clone(), Arc::clone(&refuses.1)),
            goes: goes.clone(),
            arrived: Arc::clone(arrived),
            told: None,
            told_tick: None,
            on_commit: self.0.on_commit.clone(),
            limit: self.0.limit.clone(),
        };
        let arrow = |streams: &[Schema]| streams.iter().map(|stream| Arc::clone(stream.arrow())).collect();
        let decoding = Arc::new(Decoding {
            wire: wires(stage),
            inputs: arrow(&stage.streams),
            streams: arrow(&stage.outputs()),
            said: stage.said.len(),
        });
        let decoder = Box::new(move |_: &thalweg_flow::TaskInfo| {
            Ok(Box::new(FrameDecoder(Arc::clone(&decoding))) as Box<dyn Decoder>)
        });
        let replies = goes.lines.clone().filter(|_| goes.answers).map(|lines| {
            let arrived = Arc::clone(arrived);
            let factory: thalweg_flow::TaskFactory<dyn thalweg_flow::Operator> = Box::new(move |_| {
                Ok(Box::new(AnsweringSink::new(Letters::new(Arc::clone(&arrived), lines.clone()))))
            });
            factory
        });
        let built = BuiltSource::new(Box::new(source), decoder, context.schema, Replay::Told);
        Ok(BuiltSource { replies, ..built })
    }

    fn outputs(&self, _: &Options) -> Vec<thalweg_connect::SourceOutput> {
        let stream = |schema: Schema| thalweg_connect::SourceOutput { name: "rows", schema };
        self.0.stage.outputs().into_iter().map(stream).collect()
    }
}

/// A message that was read and does not count yet.
struct HeldMessage {
    offset: Offset,
    checksum: u32,
    bytes: usize,
    /// When the broker appended it.
    appended: Micros,
    frame: Frame,
}

/// A frame of which some rows count.
#[derive(Debug)]
pub(super) struct TakenFrame {
    pub(super) offset: Offset,
    pub(super) frame: RowFrame,
    /// How many of its rows, from the first, do not.
    pub(super) skipped: usize,
    /// The columns of its rows.
    pub(super) wires: Wires,
}

/// The source.
struct Inbox {
    reader: Reader,
    of: TopicPartition,
    source: Arc<str>,
    /// Of the partition in the client, once it reads.
    number: Option<usize>,
    place: Place,
    /// Rows that have counted since the beginning of the log.
    records: Offset,
    /// The frame that has to come first.
    expected: Option<LastFrame>,
    held: VecDeque<HeldMessage>,
    counts: Arc<InboxCounts>,
    is_draining: bool,
    place_in_chain: usize,
    inputs: usize,
    /// The number of the text by which the unit was opened.
    text: u64,
    texts: Arc<Texts>,
    kept: Kept,
    /// Columns of rows, by the number of the text of their sender: of all that the log has named.
    wires: BTreeMap<u64, Wires>,
    /// The log has named another text, and nothing after that is read.
    has_met: bool,
    /// Operators of the job emit at ticks.
    has_ticks: bool,
    /// The operator that judges rows by the time that their senders hold; none where only doors send.
    judge: Option<Arc<str>>,
    /// The units that send.
    senders: u32,
    /// That time, as the job was last told it since its start.
    told_time: Option<Micros>,
    gaps: GapNotes,
    refusals: Refusals,
    goes: Goes,
    arrived: Arc<Arrived>,
    /// Frames of the block that was just told, if somebody asks for them, and whether a client may.
    told: Option<(Arc<Vec<TakenFrame>>, bool)>,
    /// Where the rows are that the tick makes that was just told, and when it was.
    told_tick: Option<(Position, Micros)>,
    on_commit: Option<CommitView>,
    limit: Option<Arc<Limit>>,
}

impl Inbox {
    /// Compares the log with where the unit was, and says from which offset it is read.
    fn resume(&mut self) -> Result<Offset, Error> {
        let topics = self.reader.bus.topics(Some(&[Arc::clone(&self.of.topic)]))?;
        let topic: Option<TopicId> = topics.first().and_then(|topic| topic.id);
        let position = self.place.position.offset;
        if let Err(OtherTopic { known, now }) = self.place.meet(topic) {
            return Err(
                self.other_log(format!("topic id {known}"), format!("{now}: the topic was made anew"))
            );
        }
        let Bounds { start, end } = self.reader.bus.bounds(&self.of)?;
        let (start, end) = (Offset::try_from(start).unwrap_or(0), Offset::try_from(end).unwrap_or(0));
        if !(start..=end).contains(&position) {
            return Err(
                self.other_log(format!("offset {position}"), format!("offsets from {start} to {end}"))
            );
        }
        match self.place.last {
            Some(last) if last.offset >= start => {
                self.expected = Some(last);
                Ok(last.offset)
            }
            // The brokers have deleted all that the unit has read, and nothing else.
            _ if start == position => Ok(position),
            Some(last) => Err(self.other_log(
                format!("message {} or all before {position} deleted", last.offset),
                format!("offsets from {start}"),
            )),
            None => Ok(position),
        }
    }

    /// The error for a log in which the unit has not been.
    fn other_log(&self, expected: String, got: String) -> Error {
        Error::corrupt(format!(
            "{} is not the log in which this unit was: expected {expected}, got {got}",
            self.of
        ))
        .with_hint(
            "bring the topic back as it was; or remove the unit's folder, and it reads the log from its beginning",
        )
    }

    /// Reads messages into `held`, about `max_bytes` of them; whether the brokers have answered.
    fn fetch(&mut self, max_bytes: usize) -> Result<bool, Error> {
        let Some(number) = self.number else {
            return Err(Error::internal("a unit reads before it was started"));
        };
        let mut bytes = 0;
        let mut failure = None;
        let (held, of, expected) = (&mut self.held, &self.of, &mut self.expected);
        let mut client = self.reader.lock();
        let taken = client.take(number, Duration::ZERO, &mut |message| {
            let offset = Offset::try_from(message.offset).unwrap_or(0);
            let value = message.value.unwrap_or_default();
            let found = checksum(value);
            if let Some(last) = expected.take() {
                if (offset, found) == (last.offset, Some(last.checksum)) {
                    return true;
                }
                failure = Some(Found::Other { offset, checksum: found, last });
                return false;
            }
            match Frame::parse(value) {
                Ok(frame) => {
                    let checksum = found.unwrap_or(0);
                    let appended = message.timestamp.unwrap_or(0).saturating_mul(1_000);
                    bytes += value.len();
                    held.push_back(HeldMessage { offset, checksum, bytes: value.len(), appended, frame });
                    bytes < max_bytes
                }
                Err(error) => {
                    failure = Some(Found::Bad { offset, error });
                    false
                }
            }
        });
        self.counts.show_end(client.bounds(number));
        drop(client);
        match (failure, taken) {
            (Some(Found::Other { offset, checksum, last }), _) => {
                let checksum =
                    checksum.map_or("no frame".to_owned(), |found| format!("checksum {found:#010x}"));
                Err(self.other_log(
                    format!("message {} with checksum {:#010x}", last.offset, last.checksum),
                    format!("message {offset} with {checksum}"),
                ))
            }
            // What was read before it counts first.
            (Some(Found::Bad { offset, error }), _) if self.held.is_empty() => {
                Err(strange_frame(of, offset, &error))
            }
            (Some(Found::Bad { offset, .. }), _) => {
                self.reader.lock().seek(number, i64::try_from(offset).unwrap_or(i64::MAX))?;
                Ok(true)
            }
            (None, Ok(_)) => Ok(true),
            (None, Err(error)) if error.problem == Problem::Unreachable => Ok(false),
            (None, Err(error)) if error.problem == Problem::OutOfRange => {
                let message = format!("the unit's place in {of} is gone: {error}");
                Err(Error::corrupt(message)
                    .with_hint(
                        "nobody but the nodes may delete from the topic of a stage, and they do so below kept snapshots alone: set its \
                         `retention.ms` and `retention.bytes` to -1, and give all nodes the same --snapshots",
                    ))
            }
            (None, Err(error)) => Err(error.into()),
        }
    }

    /// Takes a message that is held for read.
    fn consume(&mut self, held: &HeldMessage) {
        self.place.position = Position { offset: held.offset + 1, row: 0 };
        self.place.last = Some(LastFrame { offset: held.offset, checksum: held.checksum });
        self.place.pass_time(held.appended);
        self.counts.position.store(held.offset + 1, Ordering::Relaxed);
        self.counts.appended.store(held.appended, Ordering::Relaxed);
        self.counts.bytes.fetch_add(held.bytes as u64, Ordering::Relaxed);
    }

    /// What judges the rows of a message, and by which time, where the job has not been told it. Until it has been told one,
    /// what judges closes nothing (`StageOptions::is_held`).
    fn held_before(&self, held: &HeldMessage) -> Option<(Arc<str>, Micros)> {
        let Frame::Rows(RowFrame { head, .. }) = &held.frame else { return None };
        let operator = self.judge.clone()?;
        if !self.wires.contains_key(&head.spec) || head.after > self.place.through.of(head.origin) {
            return None;
        }
        let time = self.place.times.after(self.senders, head.origin, head.task_time, held.appended);
        time.filter(|_| time != self.told_time).map(|time| (operator, time))
    }

    /// How many rows of a frame, from the first, do not count; `None` where none does.
    fn judge(&mut self, frame: &RowFrame, appended: Micros) -> Option<usize> {
        let (head, marks) = (&frame.head, &frame.places.marks);
        match self.place.through.take(head.origin, head.after, marks) {
            Verdict::From(first) => {
                self.gaps.came(head.origin, self.place.through.of(head.origin));
                self.place.times.take(self.senders, head.origin, head.task_time, appended);
                self.counts.duplicates.fetch_add(first as u64, Ordering::Relaxed);
                (first < marks.len()).then_some(first)
            }
            Verdict::Gap(through) => {
                self.gap(head, Some(frame), through, appended);
                None
            }
        }
    }

    /// A frame does not count; `frame` are its rows, if it has some.
    fn gap(&mut self, head: &Head, frame: Option<&RowFrame>, through: Mark, appended: Micros) {
        self.counts.gaps.fetch_add(1, Ordering::Relaxed);
        let (origin, after) = (head.origin, head.after);
        let last = frame.and_then(|frame| frame.places.marks.last()).copied().unwrap_or(after);
        tracing::debug!(of = %self.of, %origin, %after, %through, "rows before a frame have not come: it does not count");
        match origin {
            Origin::Unit { .. } => self.gaps.missing(origin, through, last),
            Origin::Door { incarnation } if last > through => {
                self.refusals.refuse(incarnation, frame, appended);
            }
            Origin::Door { .. } => {}
        }
    }

    /// Takes note of a text that the log names.
    fn name_text(&mut self, spec: Spec) -> Result<(), Error> {
        let (number, spec) = (spec.number, Arc::new(spec));
        if self.wires.contains_key(&number) {
            return Ok(());
        }
        let stage = self.texts.stage(&spec, self.place_in_chain)?;
        if stage.streams.len() != self.inputs {
            return Err(Error::user(format!(
                "text {number} of the job gives stage {} {} inputs, expected {}",
                stage.name,
                stage.streams.len(),
                self.inputs
            ))
            .with_hint("give the job with other inputs another name"));
        }
        // Before a commit names it.
        self.kept.write(&spec)?;
        self.wires.insert(number, wires(&stage));
        if let Some(oldest) = self.place.name_text(number) {
            self.wires.remove(&oldest);
        }
        self.has_met = self.place.texts.last().is_some_and(|highest| *highest != self.text);
        Ok(())
    }

    /// Whether the next message may not be read yet.
    fn is_held_back(&self) -> bool {
        let below = self.limit.as_ref().and_then(|limit| limit.below());
        below.is_some_and(|below| self.held.front().is_some_and(|held| held.offset >= below))
    }

    /// The next that counts of what is held.
    fn next(&mut self, max_bytes: usize) -> Result<Option<Poll>, Error> {
        let mut frames: Vec<TakenFrame> = Vec::new();
        let (mut bytes, mut rows, mut now) = (0, 0, 0);
        loop {
            // All that was taken is judged.
            self.gaps.judged(self.place.position.offset);
            if self.is_held_back() {
                break;
            }
            let Some(held) = self.held.front() else { break };
            let is_rows = matches!(held.frame, Frame::Rows(_));
            if !frames.is_empty() && (!is_rows || bytes >= max_bytes || rows >= BLOCK_ROWS) {
                break;
            }
            if self.has_ticks && self.place.begins_second(held.appended) {
                if !frames.is_empty() {
                    break;
                }
                let (offset, now) = (held.offset, held.appended);
                self.place.pass_time(now);
                self.told_tick = Some((Position::before(offset), now));
                return Ok(Some(Poll::Told { now, event: Told::Tick }));
            }
            if let Some((operator, time)) = self.held_before(held) {
                // A block ends where the time does by which its rows are judged: wherever frames are put together, a row is
                // judged by the same.
                if !frames.is_empty() {
                    break;
                }
                self.told_time = Some(time);
                let event = Told::Command(Command { operator, body: Arc::new(Held(time)), record: None });
                return Ok(Some(Poll::Told { now: held.appended, event }));
            }
            let Some(held) = self.held.pop_front() else { break };
            self.consume(&held);
            match held.frame {
                Frame::Rows(frame) => {
                    // Whoever writes rows by a text has written that before them: it was lost, and what follows is, too.
                    let Some(wires) = self.wires.get(&frame.head.spec).cloned() else {
                        let head = &frame.head;
                        self.gap(head, Some(&frame), self.place.through.of(head.origin), held.appended);
                        continue;
                    };
                    let Some(skipped) = self.judge(&frame, held.appended) else { continue };
                    if frames.is_empty() {
                        now = held.appended;
                    }
                    bytes += held.bytes;
                    rows += frame.len() - skipped;
                    frames.push(TakenFrame { offset: held.offset, frame, skipped, wires });
                }
                Frame::Tick(head) => match self.place.through.take(head.origin, head.after, &[]) {
                    Verdict::From(_) => {
                        self.gaps.came(head.origin, self.place.through.of(head.origin));
                    }
                    Verdict::Gap(through) => self.gap(&head, None, through, held.appended),
                },
                Frame::Spec(spec) => {
                    let number = spec.number;
                    let named = self.name_text(spec);
                    let offset = held.offset;
                    named.map_err(|error| error.context(format!("message {offset} of {}", self.of)))?;
                    if self.has_met {
                        tracing::info!(of = %self.of, offset, text = number, "the log goes on with another text of the job");
                        self.counts.has_met.store(true, Ordering::Relaxed);
                        return Ok(Some(Poll::End));
                    }
                }
            }
        }
        if frames.is_empty() {
            return Ok(None);
        }
        let count = u32::try_from(rows).expect("a block holds fewer rows than a few frames");
        self.counts.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let first = self.records;
        self.records += rows as u64;
        let frames = Arc::new(frames);
        let lines = self.goes.lines.as_ref();
        let is_waited_for = lines.is_some_and(|(post, _)| is_waited_for(&frames, now, post.now()));
        self.told = (self.goes.asks || is_waited_for).then(|| (Arc::clone(&frames), is_waited_for));
        let payload = Payload::Other { data: frames as Arc<dyn Any + Send + Sync>, bytes };
        let block = RawBlock { partition: self.of.partition.unsigned_abs(), first, count, payload };
        Ok(Some(Poll::Told { now, event: Told::Block(block) }))
    }
}

/// Why reading stopped.
enum Found {
    /// Another message than the one that the unit had read.
    Other {
        offset: Offset,
        checksum: Option<u32>,
        last: LastFrame,
    },
    Bad {
        offset: Offset,
        error: FrameError,
    },
}

fn strange_frame(of: &TopicPartition, offset: Offset, error: &FrameError) -> Error {
    let message = format!("message {offset} of {of}: {error}");
    match error {
        FrameError::NewerVersion { .. } => {
            Error::user(message).with_hint("a node of a newer version wrote it: run that version here, too")
        }
        _ => Error::corrupt(message).with_hint(
            "somebody else writes to the topic, or it was damaged: nobody but the nodes of this cluster may write there",
        ),
    }
}

impl Source for Inbox {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        let from = self.resume().map_err(|error| error.context(format!("source {:?}", self.source)))?;
        let from = i64::try_from(from).map_err(|_| Error::corrupt("an offset above 2^63 − 1"))?;
        if let Some(limit) = &self.limit {
            limit.wake_by(waker.clone());
        }
        let number = self.reader.lock().assign_waking(&self.of, from, Arc::new(move || waker.wake()))?;
        self.number = Some(number);
        Ok(())
    }

    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        // What the poll before gave was sequenced.
        self.counts.told.store(self.place.position.offset, Ordering::Release);
        loop {
            if self.has_met {
                return Ok(Poll::End);
            }
            if self.held.is_empty() {
                if self.is_draining {
                    return Ok(Poll::End);
                }
                let is_answered = self.fetch(max_bytes)?;
                if self.held.is_empty() {
                    return Ok(match is_answered {
                        true => Poll::Pending,
                        false => Poll::PendingUntil(Instant::now() + AGAIN),
                    });
                }
            }
            if let Some(poll) = self.next(max_bytes)? {
                return Ok(poll);
            }
            // None of what was read counts.
            self.counts.told.store(self.place.position.offset, Ordering::Release);
            if self.is_held_back() {
                return Ok(if self.is_draining { Poll::End } else { Poll::Pending });
            }
        }
    }

    fn sequenced(&mut self, _: &RawBlock, range: SeqRange) {
        self.counts.sequenced.store(range.end, Ordering::Release);
        if let Some((frames, is_waited_for)) = self.told.take() {
            self.arrived.note(range, &frames, is_waited_for);
        }
    }

    fn ticked(&mut self, seq: Seq) {
        if let Some((position, now)) = self.told_tick.take()
            && self.goes.asks
        {
            self.arrived.note_tick(seq, position, now);
        }
    }

    fn position(&self) -> SourcePosition {
        SourcePosition { next: self.records, place: self.place.encode() }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        self.place = Place::decode(&position.place)?;
        for number in &self.place.texts {
            let stage = self.texts.stage(&self.kept.read(*number)?, self.place_in_chain)?;
            self.wires.insert(*number, wires(&stage));
        }
        self.records = position.next;
        self.counts.position.store(self.place.position.offset, Ordering::Relaxed);
        self.counts.told.store(self.place.position.offset, Ordering::Release);
        Ok(())
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }

    fn on_commit(&self) -> Option<CommitView> {
        self.on_commit.clone()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if let Some(number) = self.number.take()
            && let Err(error) = self.reader.lock().unassign(number)
        {
            tracing::debug!(of = %self.of, %error, "end reading");
        }
    }
}

/// How frames become batches.
struct Decoding {
    /// The columns of each input with the event times, and without.
    wire: Wires,
    inputs: Vec<SchemaRef>,
    /// The streams of the unit: one for each input, or records and what earlier stages said of them.
    streams: Vec<SchemaRef>,
    /// How many columns of the input hold what was said.
    said: usize,
}

/// Makes batches of frames, one for each stream of the unit.
struct FrameDecoder(Arc<Decoding>);

/// Rows of one input.
#[derive(Default)]
struct Rows {
    records: Vec<RecordBatch>,
    times: Vec<Micros>,
    seqs: Vec<u64>,
}

impl FrameDecoder {
    fn rows(&self, frames: &[TakenFrame], range: SeqRange) -> Result<Vec<Rows>, Error> {
        let Decoding { wire: wanted, inputs: streams, .. } = &*self.0;
        let mut all: Vec<Rows> = streams.iter().map(|_| Rows::default()).collect();
        let mut seq = range.start;
        for TakenFrame { frame, skipped, wires, .. } in frames {
            let schema = |input: u32| wires.get(input as usize).cloned();
            let inputs = frame.decode(schema).map_err(|error| Error::corrupt(format!("a frame: {error}")))?;
            // By input, how many of its rows do not count.
            let mut left_out = vec![0; streams.len()];
            let mut row = 0;
            for run in &frame.places.runs {
                let input = run.input as usize;
                for _ in 0..run.rows {
                    if row < *skipped {
                        left_out[input] += 1;
                    } else {
                        all[input].seqs.push(seq);
                        seq += 1;
                    }
                    row += 1;
                }
            }
            for rows in inputs {
                let input = rows.input as usize;
                let (records, times) = from_wire(&adapt(&rows.records, &wanted[input])?, &streams[input])?;
                let first = left_out[input];
                all[input].records.push(records.slice(first, records.num_rows() - first));
                all[input].times.extend_from_slice(&times[first..]);
            }
        }
        Ok(all)
    }
}

impl Decoder for FrameDecoder {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, _: Micros) -> Result<Decoded, Error> {
        let Payload::Other { data, .. } = &block.payload else {
            return Err(Error::internal("a block of a log that holds no frames"));
        };
        let frames = data.downcast_ref::<Vec<TakenFrame>>();
        let frames = frames.ok_or_else(|| Error::internal("a block of a log that holds no frames"))?;
        let Decoding { inputs, streams, said, .. } = &*self.0;
        let mut batches = Vec::with_capacity(streams.len());
        for (rows, input) in self.rows(frames, range)?.into_iter().zip(inputs) {
            if rows.seqs.is_empty() {
                batches.push(Batch::empty(range, input));
                continue;
            }
            let records = match rows.records.as_slice() {
                [one] => one.clone(),
                some => concat_batches(input, some)
                    .map_err(|error| Error::internal("put rows of frames together").with_source(error))?,
            };
            let seqs = if rows.seqs.len() == range.len() as usize {
                Seqs::Dense(range.start)
            } else {
                Seqs::Each(rows.seqs.into())
            };
            batches.push(Batch::new(range, records, ScalarBuffer::from(rows.times), seqs));
        }
        if *said > 0 {
            batches = apart(&batches[0], streams)?;
        }
        let mut batches = batches.into_iter();
        let first = batches.next().ok_or_else(|| Error::internal("a stage without inputs"))?;
        Ok(Decoded { others: batches.collect(), ..Decoded::new(first) })
    }
}

/// Records, and what earlier stages said of them: the last columns of `both`.
fn apart(both: &Batch, streams: &[SchemaRef]) -> Result<Vec<Batch>, Error> {
    let strange = || Error::internal("rows of a chain without what was said of them");
    let (records, said) = streams.split_first().ok_or_else(strange)?;
    let columns = both.records().columns();
    let own = columns.len().checked_sub(said.len()).ok_or_else(strange)?;
    let batch = |schema: &SchemaRef, columns: Vec<ArrayRef>| {
        let options = RecordBatchOptions::new().with_row_count(Some(both.records().num_rows()));
        let records = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
        records.map(|records| both.with_records(records)).map_err(|error| strange().with_source(error))
    };
    let mut batches = vec![batch(records, columns[..own].to_vec())?];
    for (schema, column) in said.iter().zip(&columns[own..]) {
        let column = column.as_struct_opt().ok_or_else(strange)?;
        batches.push(batch(schema, column.columns().to_vec())?);
    }
    Ok(batches)
}
