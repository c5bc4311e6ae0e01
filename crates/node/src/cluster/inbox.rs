//! The source of a unit: reads its partition of the log, and tells the job what comes and when that was.
//!
//! Which rows count is decided here, frame by frame, before they have a number ([`Through`]): rows that were there before are
//! dropped, and so is a whole frame that begins after a gap. What time it is, the log says: the time at which the broker
//! appended a message.
//!
//! Resuming (cluster rules, 10): the topic has the id that the commit record names, the position is within the bounds of
//! the partition, and the last frame that was read has the checksum that it had. It may be gone only where everything
//! before the position is. Anything else stops the unit: its log is another one.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_buffer::ScalarBuffer;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use thalweg_cluster::frame::{Frame, FrameError, RowFrame, checksum};
use thalweg_cluster::positions::{Mark, Position, Verdict};
use thalweg_connect::{BuiltSource, OptionSpec, Options, Replay, SourceContext, SourcePlugin};
use thalweg_flow::{Decoded, Decoder, Payload, Poll, RawBlock, Source, SourcePosition, Told, Waker};
use thalweg_kafka::{Bounds, Bus, Consumer, ConsumerOptions, Isolation, Problem, TopicId, TopicPartition};
use thalweg_types::{Batch, Error, Micros, Offset, Schema, SeqRange, Seqs};

use super::answering::{AnsweringSink, Arrived, Post};
use super::place::{LastFrame, Place};
use super::wire::{from_wire, wire_schema};

/// How soon a broker is asked again that did not answer.
const AGAIN: Duration = Duration::from_millis(200);

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

    fn lock(&self) -> MutexGuard<'_, Box<dyn Consumer>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a unit has found in its partition, since its start. Relaxed throughout: figures, nothing hangs on them.
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
    /// The offset after the newest message, as a broker last said; `is_known` once one has.
    pub end: AtomicU64,
    pub is_known: AtomicBool,
    /// When the broker appended the message that was read last, in microseconds since 1970; 0 before the first.
    pub appended: AtomicI64,
}

/// What a unit reads.
pub(super) struct Input {
    pub(super) reader: Reader,
    pub(super) of: TopicPartition,
    /// The streams of the stage, by the number that frames give their inputs.
    pub(super) streams: Arc<[Schema]>,
    pub(super) counts: Arc<InboxCounts>,
    /// Where answers go; `None` where no door waits for any.
    pub(super) post: Option<Arc<Post>>,
    /// Whether answers are sent: not by a unit that follows another.
    pub(super) is_active: Arc<AtomicBool>,
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
        let Input { reader, of, streams, counts, post, is_active } = &self.0;
        let is_active = Arc::clone(is_active);
        let arrived = post.as_ref().map(|_| Arc::<Arrived>::default());
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
            arrived: arrived.clone(),
            told: None,
        };
        let wire: Arc<[SchemaRef]> =
            streams.iter().map(|stream| Arc::clone(wire_schema(stream).arrow())).collect();
        let streams: Arc<[SchemaRef]> = streams.iter().map(|stream| Arc::clone(stream.arrow())).collect();
        let decoder = Box::new(move |_: &thalweg_flow::TaskInfo| {
            let decoder = FrameDecoder { wire: Arc::clone(&wire), streams: Arc::clone(&streams) };
            Ok(Box::new(decoder) as Box<dyn Decoder>)
        });
        let replies = post.clone().zip(arrived).map(|(post, arrived)| {
            let factory: thalweg_flow::TaskFactory<dyn thalweg_flow::Operator> = Box::new(move |_| {
                let (arrived, post) = (Arc::clone(&arrived), Arc::clone(&post));
                Ok(Box::new(AnsweringSink::new(arrived, post, Arc::clone(&is_active))))
            });
            factory
        });
        let built = BuiltSource::new(Box::new(source), decoder, context.schema, Replay::Told);
        Ok(BuiltSource { replies, ..built })
    }

    fn outputs(&self, _: &Options) -> Vec<thalweg_connect::SourceOutput> {
        let stream = |schema: &Schema| thalweg_connect::SourceOutput { name: "rows", schema: schema.clone() };
        self.0.streams.iter().map(stream).collect()
    }
}

/// A message that was read and does not count yet.
struct Held {
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
    pub(super) frame: RowFrame,
    /// How many of its rows, from the first, do not.
    pub(super) skipped: usize,
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
    held: VecDeque<Held>,
    counts: Arc<InboxCounts>,
    is_draining: bool,
    arrived: Option<Arc<Arrived>>,
    /// Frames of the block that was just told, and when the broker appended the first.
    told: Option<(Arc<Vec<TakenFrame>>, Micros)>,
}

impl Inbox {
    /// Compares the log with where the unit was, and says from which offset it is read.
    fn resume(&mut self) -> Result<Offset, Error> {
        let topics = self.reader.bus.topics(Some(&[Arc::clone(&self.of.topic)]))?;
        let topic: Option<TopicId> = topics.first().and_then(|topic| topic.id);
        let position = self.place.position.offset;
        if let (Some(known), Some(now)) = (self.place.topic, topic)
            && known != now
        {
            return Err(
                self.other_log(format!("topic id {known}"), format!("{now}: the topic was made anew"))
            );
        }
        self.place.topic = topic.or(self.place.topic);
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
                    held.push_back(Held { offset, checksum, bytes: value.len(), appended, frame });
                    bytes < max_bytes
                }
                Err(error) => {
                    failure = Some(Found::Bad { offset, error });
                    false
                }
            }
        });
        if let Some(bounds) = client.bounds(number) {
            self.counts.end.store(u64::try_from(bounds.end).unwrap_or(0), Ordering::Relaxed);
            self.counts.is_known.store(true, Ordering::Relaxed);
        }
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
                    .with_hint("nothing may be deleted from the topic of a stage: set its `retention.ms` and `retention.bytes` to -1"))
            }
            (None, Err(error)) => Err(error.into()),
        }
    }

    /// Takes a message that is held for read.
    fn consume(&mut self, held: &Held) {
        self.place.position = Position { offset: held.offset + 1, row: 0 };
        self.place.last = Some(LastFrame { offset: held.offset, checksum: held.checksum });
        self.counts.position.store(held.offset + 1, Ordering::Relaxed);
        self.counts.appended.store(held.appended, Ordering::Relaxed);
    }

    /// How many rows of a frame, from the first, do not count; `None` where none does.
    fn judge(&mut self, frame: &RowFrame) -> Option<usize> {
        let (head, marks) = (&frame.head, &frame.places.marks);
        match self.place.through.take(head.origin, head.after, marks) {
            Verdict::From(first) => {
                self.counts.duplicates.fetch_add(first as u64, Ordering::Relaxed);
                (first < marks.len()).then_some(first)
            }
            Verdict::Gap(through) => {
                self.gap(&head.origin, head.after, through);
                None
            }
        }
    }

    fn gap(&self, origin: &dyn std::fmt::Display, after: Mark, through: Mark) {
        self.counts.gaps.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(of = %self.of, %origin, %after, %through, "rows before a frame have not come: it does not count");
    }

    /// The next that counts of what is held.
    fn next(&mut self, max_bytes: usize) -> Option<Poll> {
        let mut frames: Vec<TakenFrame> = Vec::new();
        let (mut bytes, mut rows, mut now) = (0, 0, 0);
        while let Some(held) = self.held.front() {
            let is_rows = matches!(held.frame, Frame::Rows(_));
            if !frames.is_empty() && (!is_rows || bytes >= max_bytes || rows >= BLOCK_ROWS) {
                break;
            }
            let held = self.held.pop_front()?;
            self.consume(&held);
            match held.frame {
                Frame::Rows(frame) => {
                    let Some(skipped) = self.judge(&frame) else { continue };
                    if frames.is_empty() {
                        now = held.appended;
                    }
                    bytes += held.bytes;
                    rows += frame.len() - skipped;
                    frames.push(TakenFrame { frame, skipped });
                }
                Frame::Tick(head) => match self.place.through.take(head.origin, head.after, &[]) {
                    Verdict::From(_) => return Some(Poll::Told { now: held.appended, event: Told::Tick }),
                    Verdict::Gap(through) => self.gap(&head.origin, head.after, through),
                },
                // Which spec a unit works by is not decided here yet.
                Frame::Spec(_) => {}
            }
        }
        if frames.is_empty() {
            return None;
        }
        let count = u32::try_from(rows).expect("a block holds fewer rows than a few frames");
        self.counts.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let first = self.records;
        self.records += rows as u64;
        let frames = Arc::new(frames);
        self.told = self.arrived.as_ref().map(|_| (Arc::clone(&frames), now));
        let payload = Payload::Other { data: frames as Arc<dyn Any + Send + Sync>, bytes };
        let block = RawBlock { partition: self.of.partition.unsigned_abs(), first, count, payload };
        Some(Poll::Told { now, event: Told::Block(block) })
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
        let number = self.reader.lock().assign_waking(&self.of, from, Arc::new(move || waker.wake()))?;
        self.number = Some(number);
        Ok(())
    }

    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        loop {
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
            if let Some(poll) = self.next(max_bytes) {
                return Ok(poll);
            }
        }
    }

    fn sequenced(&mut self, _: &RawBlock, range: SeqRange) {
        if let (Some(arrived), Some((frames, appended))) = (&self.arrived, self.told.take()) {
            arrived.note(range, &frames, appended);
        }
    }

    fn position(&self) -> SourcePosition {
        SourcePosition { next: self.records, place: self.place.encode() }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        self.place = Place::decode(&position.place)?;
        self.records = position.next;
        self.counts.position.store(self.place.position.offset, Ordering::Relaxed);
        Ok(())
    }

    fn drain(&mut self) {
        self.is_draining = true;
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

/// Makes batches of frames, one for each input of the stage.
struct FrameDecoder {
    /// The columns of each input in frames, and in the job.
    wire: Arc<[SchemaRef]>,
    streams: Arc<[SchemaRef]>,
}

/// Rows of one input.
#[derive(Default)]
struct Rows {
    records: Vec<RecordBatch>,
    times: Vec<Micros>,
    seqs: Vec<u64>,
}

impl FrameDecoder {
    fn rows(&self, frames: &[TakenFrame], range: SeqRange) -> Result<Vec<Rows>, Error> {
        let mut all: Vec<Rows> = self.streams.iter().map(|_| Rows::default()).collect();
        let mut seq = range.start;
        for TakenFrame { frame, skipped } in frames {
            let schema = |input: u32| self.wire.get(input as usize).cloned();
            let inputs = frame.decode(schema).map_err(|error| Error::corrupt(format!("a frame: {error}")))?;
            // By input, how many of its rows do not count.
            let mut left_out = vec![0; self.streams.len()];
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
                let (records, times) = from_wire(&rows.records, &self.streams[input])?;
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
        let mut batches = Vec::with_capacity(self.streams.len());
        for (rows, stream) in self.rows(frames, range)?.into_iter().zip(self.streams.iter()) {
            if rows.seqs.is_empty() {
                batches.push(Batch::empty(range, stream));
                continue;
            }
            let records = match rows.records.as_slice() {
                [one] => one.clone(),
                some => concat_batches(stream, some)
                    .map_err(|error| Error::internal("put rows of frames together").with_source(error))?,
            };
            let seqs = if rows.seqs.len() == range.len() as usize {
                Seqs::Dense(range.start)
            } else {
                Seqs::Each(rows.seqs.into())
            };
            batches.push(Batch::new(range, records, ScalarBuffer::from(rows.times), seqs));
        }
        let mut batches = batches.into_iter();
        let first = batches.next().ok_or_else(|| Error::internal("a stage without inputs"))?;
        Ok(Decoded { others: batches.collect(), ..Decoded::new(first) })
    }
}
