//! The source of a unit that reads a partition of a topic which others write: what is above the first key is computed there,
//! and its rows go on to the units of that key.
//!
//! A row is where its record is in the partition, offset and number in the message, so whoever reads it, and however often, a
//! row counts once in the next stage. What time it is, messages say: the highest timestamp so far, in whole seconds, so
//! that a record is judged by the same wherever blocks are cut. A block ends where that goes on. It is exact where records
//! have no other time than that.
//!
//! A unit goes on where its own commit is, or where the group's offset is if that is further: another node may have had it
//! meanwhile. All records below either have been written to the next stage's log, as a commit waits for that. A unit that
//! finds neither begins where the job file says, and tells the group first, so that this is decided once.
//!
//! The log names no text of the job here. The unit ends where the control log has another one, and is opened again by that;
//! texts that would make other rows are refused (`texts`).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use thalweg_cluster::positions::Position;
use thalweg_connect::source::kafka::{Place as TopicPlace, SharedTopic, TopicPlaces, TopicReader};
use thalweg_connect::{BuiltSource, OptionSpec, Options, Replay, SourceContext, SourcePlugin, SourceTime};
use thalweg_flow::{
    CommitView, Decoded, Decoder, Poll, RawBlock, Source, SourcePosition, TaskInfo, Told, Waker,
};
use thalweg_kafka::{GroupOffset, Problem, TopicPartition};
use thalweg_types::{Error, Micros, Offset, SeqRange};

use super::arrived::Arrived;
use super::inbox::{AGAIN, InboxCounts, Reader};
use super::place::{LastFrame, OtherTopic, Place};

/// Steps of the time by which records are judged.
const STEP: Micros = 1_000_000;

/// What the source of a unit hears from others.
pub(super) struct News {
    /// The number of the text by which it is to work.
    text: AtomicU64,
    /// The offset of its last commit; -1 before the first.
    committed: AtomicI64,
    waker: OnceLock<Waker>,
}

impl News {
    pub(super) fn new(text: u64) -> Self {
        Self { text: AtomicU64::new(text), committed: AtomicI64::new(-1), waker: OnceLock::new() }
    }

    pub(super) fn set_text(&self, number: u64) {
        if self.text.swap(number, Ordering::AcqRel) != number {
            self.wake();
        }
    }

    fn wake(&self) {
        self.waker.get().into_iter().for_each(Waker::wake);
    }
}

/// The plug-in of one unit's source: no job file names it.
pub(super) struct TopicPlugin {
    pub(super) shared: Arc<SharedTopic>,
    /// To which offsets are committed.
    pub(super) group: Arc<str>,
    pub(super) reader: Reader,
    pub(super) of: TopicPartition,
    /// The number of the text by which the unit was opened.
    pub(super) text: u64,
    pub(super) counts: Arc<InboxCounts>,
    /// Where rows came from.
    pub(super) arrived: Arc<Arrived>,
    pub(super) news: Arc<News>,
}

impl SourcePlugin for TopicPlugin {
    fn name(&self) -> &'static str {
        "topic"
    }

    fn doc(&self) -> &'static str {
        "records of a partition of a topic"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn is_live(&self, _: &Options) -> bool {
        true
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let decoder = self.shared.decoder(&context);
        let source = Topic {
            shared: Arc::clone(&self.shared),
            group: Arc::clone(&self.group),
            reader: self.reader.clone(),
            of: self.of.clone(),
            source: Arc::clone(&context.name),
            text: self.text,
            step: if matches!(context.time, SourceTime::Arrival) { 1 } else { STEP },
            counts: Arc::clone(&self.counts),
            arrived: Arc::clone(&self.arrived),
            news: Arc::clone(&self.news),
            number: None,
            restored: None,
            cutter: self.shared.reader(&self.of, TopicPlace::at(0)),
            to_compare: None,
            place: Place::default(),
            now: 0,
            records: 0,
            told: None,
            told_group: -1,
            is_draining: false,
        };
        Ok(BuiltSource::new(Box::new(source), decoder, context.schema, Replay::Told))
    }
}

struct Topic {
    shared: Arc<SharedTopic>,
    group: Arc<str>,
    reader: Reader,
    of: TopicPartition,
    source: Arc<str>,
    text: u64,
    /// Steps of the time that is told.
    step: Micros,
    counts: Arc<InboxCounts>,
    arrived: Arc<Arrived>,
    news: Arc<News>,
    /// Of the partition in the client, once it reads.
    number: Option<usize>,
    /// Where its last commit is.
    restored: Option<TopicPlace>,
    cutter: TopicReader,
    /// Offset and digest of the message that has to come first.
    to_compare: Option<(i64, u32)>,
    /// The topic, and the highest time of a message; the rest of it is in the cutter.
    place: Place,
    /// The time of the block under construction.
    now: Micros,
    /// Records since the beginning.
    records: Offset,
    /// Of the block that was just told.
    told: Option<TopicPlaces>,
    /// The offset that the group was told last.
    told_group: i64,
    is_draining: bool,
}

/// Why reading stopped.
enum Found {
    /// Another message than the one that the unit had read.
    Other(i64),
    Fails(Error),
}

impl Topic {
    /// Where reading goes on; the topic is the one in which the unit was.
    fn resume(&mut self) -> Result<TopicPlace, Error> {
        let topics = self.reader.bus().topics(Some(&[Arc::clone(&self.of.topic)]))?;
        let topic = topics.first();
        let id = topic.and_then(|topic| topic.id);
        self.place.meet(id).map_err(|OtherTopic { known, now }| {
            Error::corrupt(format!(
                "topic {:?} was made anew: the unit has read the one with id {known}, and its id is {now}",
                self.of.topic
            ))
            .with_hint("give the job another name: it reads the topic from its beginning")
        })?;
        let of = std::slice::from_ref(&self.of);
        let told = self.reader.bus().group_offsets(&self.group, of)?;
        let told = told.into_iter().next().flatten().map(|told| told.offset);
        Ok(match (self.restored, told) {
            (Some(own), Some(told)) if told > own.offset => {
                tracing::info!(of = %self.of, own = own.offset, told, "another node has read on: the unit goes on after that");
                TopicPlace::at(told)
            }
            (Some(own), _) => own,
            (None, Some(told)) => TopicPlace::at(told),
            (None, None) => {
                let first = self.shared.beginning(&self.of)?;
                let first = GroupOffset { offset: first, metadata: String::new() };
                let place = TopicPlace::at(first.offset);
                self.reader.bus().group(&self.group)?.commit(&[(self.of.clone(), first)])?;
                place
            }
        })
    }

    /// Reads on from a place, once the topic was compared with it; the offset from which messages come.
    fn go_to(&mut self, mut place: TopicPlace) -> Result<i64, Error> {
        let from = self.shared.go_on(&self.of, &mut place)?;
        self.to_compare = place.last;
        self.cutter = self.shared.reader(&self.of, place);
        self.counts.position.store(self.offset(), Ordering::Relaxed);
        self.counts.told.store(self.offset(), Ordering::Release);
        Ok(from)
    }

    /// Of the message that is read next, or is being read.
    fn offset(&self) -> u64 {
        u64::try_from(self.cutter.place().offset).unwrap_or(0)
    }

    /// Tells the group of the last commit.
    fn tell_group(&mut self) {
        let committed = self.news.committed.load(Ordering::Acquire);
        let Some(number) = self.number.filter(|_| committed != self.told_group) else { return };
        self.told_group = committed;
        if let Err(error) = self.reader.lock().commit_group(&[(number, committed)]) {
            tracing::debug!(of = %self.of, %error, "the group's offset is not committed");
        }
    }

    /// The records that come next; whether the brokers have answered, and whether messages came.
    fn fetch(&mut self, max_bytes: usize) -> Result<(Option<Poll>, bool, bool), Error> {
        let number = self.number.ok_or_else(|| Error::internal("a unit reads before it was started"))?;
        if self.cutter.is_waiting() {
            self.now = step_of(self.place.time, self.step);
        }
        let (mut block, has_room) = self.cutter.begin(max_bytes)?;
        let (mut failure, mut count, mut bytes) = (None, 0, 0);
        let mut is_answered = true;
        if has_room {
            let Self { cutter, place, now, to_compare, step, .. } = self;
            let mut client = self.reader.lock();
            let taken = client.take(number, std::time::Duration::ZERO, &mut |message| {
                if let Some((offset, expected)) = *to_compare
                    && message.offset <= offset
                {
                    if message.offset == offset && TopicReader::digest(message) != expected {
                        failure = Some(Found::Other(offset));
                        return false;
                    }
                    return true;
                }
                *to_compare = None;
                count += 1;
                bytes += message.value.map_or(0, <[u8]>::len) as u64;
                place.pass_time(message.timestamp.unwrap_or(0).saturating_mul(1_000));
                let time = step_of(place.time, *step);
                if block.is_empty() {
                    *now = time;
                } else if time != *now {
                    // This one waits for the next block.
                    block.close();
                }
                cutter.add(message, &mut block).unwrap_or_else(|error| {
                    failure = Some(Found::Fails(error));
                    false
                })
            });
            self.counts.show_end(client.bounds(number));
            drop(client);
            match (failure, taken) {
                (Some(Found::Other(offset)), _) => return Err(self.shared.made_anew(&self.of, offset)),
                (Some(Found::Fails(error)), _) => return Err(error.context(format!("read {}", self.of))),
                (None, Ok(taken)) => {
                    // Markers of transactions have offsets, too.
                    let end = taken.end.and_then(|end| u64::try_from(end).ok());
                    if let Some(end) = end.filter(|_| block.is_empty() && !self.cutter.is_waiting()) {
                        self.counts.position.fetch_max(end, Ordering::Relaxed);
                    }
                }
                (None, Err(error)) if error.is_passing() => {
                    is_answered = false;
                }
                (None, Err(error)) if error.problem == Problem::OutOfRange => {
                    let from = self.go_to(self.cutter.place())?;
                    self.reader.lock().seek(number, from)?;
                    count += 1;
                }
                // It is told once; what was read before it comes again after the last commit.
                (None, Err(error)) => return Err(error.into()),
            }
        }
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counts.appended.fetch_max(self.place.time.unwrap_or(0), Ordering::Relaxed);
        self.counts.position.fetch_max(self.offset(), Ordering::Relaxed);
        let Some(records) = self.cutter.finish(block) else { return Ok((None, is_answered, count > 0)) };
        self.counts.rows.fetch_add(u64::from(records.count), Ordering::Relaxed);
        let first = self.records;
        self.records += u64::from(records.count);
        self.told = Some(records.places);
        let partition = self.of.partition.unsigned_abs();
        let block = RawBlock { partition, first, count: records.count, payload: records.payload };
        Ok((Some(Poll::Told { now: self.now, event: Told::Block(block) }), is_answered, true))
    }
}

/// The step in which a time is.
fn step_of(time: Option<Micros>, step: Micros) -> Micros {
    time.unwrap_or(0).div_euclid(step).saturating_mul(step)
}

impl Source for Topic {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        let _ = self.news.waker.set(waker.clone());
        let from = self.resume().and_then(|place| self.go_to(place));
        let from = from.map_err(|error| error.context(format!("source {:?}", self.source)))?;
        let number = self.reader.lock().assign_waking(&self.of, from, Arc::new(move || waker.wake()))?;
        self.number = Some(number);
        Ok(())
    }

    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        // What the poll before gave was sequenced.
        self.counts.told.store(self.offset(), Ordering::Release);
        self.tell_group();
        if self.is_draining {
            return Ok(Poll::End);
        }
        if self.news.text.load(Ordering::Acquire) != self.text {
            self.counts.has_met.store(true, Ordering::Relaxed);
            return Ok(Poll::End);
        }
        loop {
            return Ok(match self.fetch(max_bytes)? {
                (Some(poll), ..) => poll,
                // None of them had a record in it.
                (None, true, true) => continue,
                (None, true, false) => Poll::Pending,
                (None, false, _) => Poll::PendingUntil(Instant::now() + AGAIN),
            });
        }
    }

    fn sequenced(&mut self, _: &RawBlock, range: SeqRange) {
        self.counts.sequenced.store(range.end, Ordering::Release);
        if let Some(places) = self.told.take() {
            self.arrived.note_messages(range, places, self.now);
        }
    }

    fn position(&self) -> SourcePosition {
        let TopicPlace { offset, row, last } = self.cutter.place();
        let whole = |offset: i64| u64::try_from(offset).unwrap_or(0);
        let last = last.map(|(at, checksum)| LastFrame { offset: whole(at), checksum });
        let position = Position { offset: whole(offset), row };
        let place = Place { position, last, ..self.place.clone() };
        SourcePosition { next: self.records, place: place.encode() }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        self.place = Place::decode(&position.place)?;
        self.records = position.next;
        let whole = |offset: u64| {
            i64::try_from(offset).map_err(|_| Error::corrupt("a commit record with an offset above 2^63 − 1"))
        };
        let last = match self.place.last {
            Some(LastFrame { offset, checksum }) => Some((whole(offset)?, checksum)),
            None => None,
        };
        let Position { offset, row } = self.place.position;
        self.restored = Some(TopicPlace { offset: whole(offset)?, row, last });
        Ok(())
    }

    fn drain(&mut self) {
        // The topic keeps what is not read.
        self.is_draining = true;
    }

    fn on_commit(&self) -> Option<CommitView> {
        let news = Arc::clone(&self.news);
        Some(Arc::new(move |position: &SourcePosition| {
            let Ok(place) = Place::decode(&position.place) else { return };
            let offset = i64::try_from(place.position.offset).unwrap_or(i64::MAX);
            if news.committed.swap(offset, Ordering::AcqRel) != offset {
                news.wake();
            }
        }))
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        self.tell_group();
        if let Some(number) = self.number.take()
            && let Err(error) = self.reader.lock().unassign(number)
        {
            tracing::debug!(of = %self.of, %error, "end reading");
        }
    }
}

/// A source that units read: where the doors of its job are it gives nothing.
pub(super) struct Elsewhere(pub(super) Arc<dyn SourcePlugin>);

impl SourcePlugin for Elsewhere {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn doc(&self) -> &'static str {
        self.0.doc()
    }

    fn options(&self) -> &'static [OptionSpec] {
        self.0.options()
    }

    fn is_live(&self, options: &Options) -> bool {
        self.0.is_live(options)
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let decoder = Box::new(|_: &TaskInfo| Ok(Box::new(NoRecords) as Box<dyn Decoder>));
        Ok(BuiltSource::new(
            Box::new(Nothing { is_draining: false }),
            decoder,
            context.schema,
            Replay::Itself,
        ))
    }
}

struct NoRecords;

impl Decoder for NoRecords {
    fn decode(&mut self, _: &RawBlock, _: SeqRange, _: Micros) -> Result<Decoded, Error> {
        Err(Error::internal("a block of a source that gives nothing"))
    }
}

/// Gives nothing until it ends.
struct Nothing {
    is_draining: bool,
}

impl Source for Nothing {
    fn poll(&mut self, _: usize, _: Micros) -> Result<Poll, Error> {
        Ok(if self.is_draining { Poll::End } else { Poll::Pending })
    }

    fn position(&self) -> SourcePosition {
        SourcePosition::default()
    }

    fn restore(&mut self, _: &SourcePosition) -> Result<(), Error> {
        Ok(())
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }
}
