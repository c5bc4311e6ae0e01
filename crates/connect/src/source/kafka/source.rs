//! Reads partitions of topics.
//!
//! Partitions are numbered in the order in which the job has met them; offsets of the source count the records of all. The
//! order log says of each run which partition it is of, so a replay gives the same again whatever has come meanwhile. A
//! partition that is found while the job runs waits until a commit record has it: before that its number is nobody's.
//!
//! Nothing of a partition waits here but the rest of one message: the client's own queue is the buffer, and it fetches
//! no more while that is full. By event time a block has records of several partitions; scouts ([`super::ahead`]) look at
//! the messages that the client holds, and leave them there.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_flow::{
    CommitView, PartitionView, Poll, RawBlock, ReplayRun, ScoutReader, Source, SourcePosition, Waker, Wanted,
};
use thalweg_kafka::{
    Bounds, Bus, BusError, Consumer, ConsumerOptions, Isolation, Problem, Topic, TopicId, TopicPartition,
    Wake,
};
use thalweg_types::{Error, Micros, Offset, PartitionId};
use tracing::{info, warn};

use super::ahead::{Ahead, Begin};
use super::cutting::{Gathering, PartitionReader, Reading};
use super::figures::{Figures, PartitionFigures};
use super::messages::{Messages, Origin};
use super::place::{self, Known, Place, digest};
use super::watch::{Watch, topic_made_anew};
use crate::source::BlockContext;
use crate::source::cut::Cut;

/// What becomes of records that the topic does not have any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Refuse,
    Skip,
}

/// How a source reads, as its job file says.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) source: Arc<str>,
    /// The group to which positions are committed for tools.
    pub(super) group: String,
    pub(super) reading: Reading,
    pub(super) isolation: Isolation,
    pub(super) missing: Missing,
    /// The source ends at the ends that the partitions have at its start.
    pub(super) is_bounded: bool,
    /// Bytes that the client keeps of all partitions.
    pub(super) queue: usize,
}

/// How long a replay waits for a record that the topic has before it says that it does.
const PATIENCE: Duration = Duration::from_secs(10);

/// How soon a broker is asked again that does not know its partitions yet.
const AGAIN: Duration = Duration::from_millis(100);

struct Partition {
    of: TopicPartition,
    id: Option<TopicId>,
    reader: PartitionReader,
    /// Its number in the client, once it is assigned.
    number: Option<usize>,
    /// Where a bounded source ends.
    end: Option<i64>,
    /// The end of the partition that the client has seen last.
    seen_end: i64,
    /// Nothing more is read of it.
    is_over: bool,
    /// No commit record has it yet.
    is_new: bool,
    /// Records that the order log names are not there any more.
    is_lost: bool,
    /// The message before the place has still to be compared.
    to_compare: Option<(i64, u32)>,
    /// The block under construction has asked it.
    is_asked: bool,
    figures: Arc<PartitionFigures>,
}

/// State that the source shares with the thread that watches its topics and with views.
pub(super) struct Shared {
    pub(super) waker: OnceLock<Waker>,
    /// Held for moments.
    pub(super) news: Mutex<News>,
    pub(super) figures: Figures,
}

#[derive(Default)]
pub(super) struct News {
    /// Partitions that have been found since.
    pub(super) found: Vec<Known>,
    /// Why the source cannot go on.
    pub(super) failure: Option<Error>,
    /// The last commit that the source has not looked at: an offset for each partition.
    committed: Option<Vec<i64>>,
}

impl Shared {
    pub(super) fn news(&self) -> std::sync::MutexGuard<'_, News> {
        // Every change of it is one call.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

/// The consumer of a source. Only the sequencer's thread locks it: the source, and its scouts.
#[derive(Clone)]
pub(super) struct Client(Arc<Mutex<Box<dyn Consumer>>>);

impl Client {
    pub(super) fn lock(&self) -> MutexGuard<'_, Box<dyn Consumer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct KafkaSource {
    plan: Plan,
    bus: Arc<dyn Bus>,
    client: Client,
    partitions: Vec<Partition>,
    /// Of these partitions, in their order; made when it is needed.
    origins: Arc<[Origin]>,
    /// Those that the block under construction has asked.
    asked: Vec<usize>,
    /// What the topics had when the source was made.
    topics: Vec<Topic>,
    /// The job has commit records.
    goes_on: bool,
    /// Started with the source.
    watch: Option<Watch>,
    shared: Arc<Shared>,
    next: Offset,
    turn: usize,
    is_draining: bool,
}

impl KafkaSource {
    /// Reads `known`, unless [`Source::restore`] has another place.
    ///
    /// # Errors
    /// If there is no client.
    pub(super) fn new(
        plan: Plan,
        bus: Arc<dyn Bus>,
        topics: Vec<Topic>,
        known: Vec<Known>,
        goes_on: bool,
        watch: Watch,
    ) -> Result<Self, Error> {
        let shared =
            Arc::new(Shared { waker: OnceLock::new(), news: Mutex::default(), figures: Figures::default() });
        let client = Client(Arc::new(Mutex::new(consumer(&plan, &bus, &shared, known.len())?)));
        let mut source = Self {
            plan,
            bus,
            client,
            partitions: Vec::new(),
            origins: Arc::new([]),
            asked: Vec::new(),
            topics,
            goes_on,
            watch: Some(watch),
            shared,
            next: 0,
            turn: 0,
            is_draining: false,
        };
        for known in known {
            source.add(known)?;
        }
        Ok(source)
    }

    fn add(&mut self, known: Known) -> Result<&mut Partition, Error> {
        let Known { of, id, place } = known;
        let end = match self.plan.is_bounded {
            true => Some(bounds(&*self.bus, &of)?.end),
            false => None,
        };
        self.partitions.push(Partition {
            figures: self.shared.figures.add(&of, place.offset),
            reader: PartitionReader::new(self.partitions.len(), &*self.plan.reading.format, place),
            is_over: end.is_some_and(|end| place.offset >= end),
            of,
            id,
            number: None,
            end,
            seen_end: 0,
            is_new: false,
            is_lost: false,
            to_compare: place.last,
            is_asked: false,
        });
        let added = self.partitions.last_mut();
        added.ok_or_else(|| Error::internal("a partition was added and is not there"))
    }

    /// Compares places of an earlier run with what the topics have.
    fn check(&mut self) -> Result<(), Error> {
        for at in 0..self.partitions.len() {
            let partition = &self.partitions[at];
            let of = partition.of.clone();
            let bounds = bounds(&*self.bus, &of)?;
            let place = partition.reader.place;
            if place.offset > bounds.end {
                return Err(cut_short(&of, place.offset, bounds));
            }
            if place.offset < bounds.start {
                self.overtaken(at, bounds)?;
            }
            let partition = &mut self.partitions[at];
            // One that was read and is gone is no loss.
            partition.to_compare.take_if(|(offset, _)| *offset < bounds.start);
            partition.is_over = partition.end.is_some_and(|end| partition.reader.place.offset >= end);
        }
        Ok(())
    }

    /// The place is before the first message that is there.
    fn overtaken(&mut self, at: usize, bounds: Bounds) -> Result<(), Error> {
        let partition = &mut self.partitions[at];
        overtaken(&self.plan, &partition.of, &partition.figures, partition.reader.place.offset, bounds)?;
        partition.is_lost = true;
        self.go_to(at, Place::at(bounds.start))
    }

    /// Reads on from another place.
    fn go_to(&mut self, at: usize, place: Place) -> Result<(), Error> {
        let partition = &mut self.partitions[at];
        partition.reader = PartitionReader::new(at, &*self.plan.reading.format, place);
        partition.to_compare = None;
        if let Some(number) = partition.number {
            self.client.lock().seek(number, place.offset)?;
        }
        Ok(())
    }

    /// Has the client fetch a partition.
    fn assigned(&mut self, at: usize) -> Result<usize, Error> {
        let partition = &mut self.partitions[at];
        if let Some(number) = partition.number {
            return Ok(number);
        }
        // From the message before, to see that it is still the one that was read.
        let from = partition.to_compare.map_or(partition.reader.place.offset, |(offset, _)| offset);
        let number = self.client.lock().assign(&partition.of, from)?;
        partition.number = Some(number);
        Ok(number)
    }

    fn origins(&mut self) -> &Arc<[Origin]> {
        if self.origins.len() != self.partitions.len() {
            self.origins = self.partitions.iter().map(|partition| Origin::new(&partition.of)).collect();
        }
        &self.origins
    }

    /// A block without records.
    fn new_block(&mut self, max_bytes: usize) -> Gathering {
        let messages = Messages::new(self.origins());
        let most = self.plan.reading.format.block_records();
        Gathering::new(messages, max_bytes, most)
    }

    /// Adds records of a partition, as many as the block allows; waits for the first one of a block.
    fn gather(&mut self, at: usize, block: &mut Gathering, wait: Duration) -> Result<(), Error> {
        let number = self.assigned(at)?;
        let plan = &self.plan;
        let partition = &mut self.partitions[at];
        if !std::mem::replace(&mut partition.is_asked, true) {
            self.asked.push(at);
        }
        let before = block.count();
        let reader = &mut partition.reader;
        reader.go_on(&plan.reading, block)?;
        if block.is_full() || reader.is_waiting() {
            partition.took(block.count() - before);
            return Ok(());
        }
        let wait = if block.is_empty() { wait } else { Duration::ZERO };
        let (compare, end) = (&mut partition.to_compare, partition.end);
        let (mut failure, mut newest, mut is_at_end) = (None, None, false);
        let taken = self.client.lock().take(number, wait, &mut |message| {
            if let Some((offset, expected)) = *compare
                && message.offset <= offset
            {
                if message.offset == offset && digest(message) != expected {
                    failure = Some(Differs(offset));
                    return false;
                }
                return true;
            }
            *compare = None;
            newest = message.timestamp;
            match reader.add_up_to(end, &mut is_at_end, message, &plan.reading, block) {
                Ok(more) => more,
                Err(error) => {
                    failure = Some(Fails(error));
                    false
                }
            }
        });
        match failure {
            Some(Differs(offset)) => return Err(made_anew(&partition.of, offset)),
            Some(Fails(error)) => return Err(error.context(format!("read {}", partition.of))),
            None => {}
        }
        if let Some(newest) = newest {
            partition.figures.newest.store(newest, Ordering::Relaxed);
        }
        let count = block.count() - before;
        partition.took(count);
        match taken {
            Ok(taken) => {
                let seen_end = if is_at_end { i64::MAX } else { taken.end.unwrap_or(0) };
                partition.seen_end = partition.seen_end.max(seen_end);
                let is_at_end = end.is_some_and(|end| partition.seen_end >= end);
                partition.is_over = is_at_end && !partition.reader.is_waiting() && count == 0;
            }
            Err(error) if error.is_passing() => {
                warn!(source = &*self.plan.source, %error, "waiting for a broker");
            }
            Err(error) if error.problem == Problem::OutOfRange => {
                self.out_of_range(at, error)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn out_of_range(&mut self, at: usize, error: BusError) -> Result<(), Error> {
        let partition = &self.partitions[at];
        let of = partition.of.clone();
        let bounds = bounds(&*self.bus, &of)?;
        let place = partition.reader.place.offset;
        if place < bounds.start {
            return self.overtaken(at, bounds);
        }
        if place > bounds.end {
            return Err(cut_short(&of, place, bounds));
        }
        if partition.to_compare.is_none() {
            return Err(error.into());
        }
        // The message to compare with has gone meanwhile.
        let place = partition.reader.place;
        self.go_to(at, place)
    }

    /// Ends a block; `None` if no record came.
    fn finish(&mut self, block: Gathering) -> Option<Cut> {
        for at in self.asked.drain(..) {
            let partition = &mut self.partitions[at];
            partition.is_asked = false;
            let figures = &partition.figures;
            figures.position.store(partition.reader.place.offset, Ordering::Relaxed);
            if let Some(bounds) = partition.number.and_then(|number| self.client.lock().bounds(number)) {
                figures.end.fetch_max(bounds.end, Ordering::Relaxed);
            }
            figures.tombstones.store(partition.reader.tombstones, Ordering::Relaxed);
            figures.empty.store(partition.reader.empty, Ordering::Relaxed);
        }
        block.finish(!self.plan.reading.parts.is_empty())
    }

    fn block(&mut self, partition: PartitionId, cut: Cut) -> RawBlock {
        let (first, count) = (self.next, cut.count);
        self.next += u64::from(count);
        RawBlock { partition, first, count, payload: cut.into_payload() }
    }

    /// Takes in what was found out meanwhile.
    fn look_at_news(&mut self) -> Result<(), Error> {
        let news = std::mem::take(&mut *self.shared.news());
        if let Some(failure) = news.failure {
            return Err(failure);
        }
        if !news.found.is_empty() {
            let is_new = |found: &Known| self.partitions.iter().all(|had| had.of != found.of);
            let found: Vec<Known> = news.found.into_iter().filter(is_new).collect();
            let waits = self.goes_on;
            for known in found {
                info!(source = &*self.plan.source, partition = %known.of, "found a new partition");
                self.add(known)?.is_new = waits;
            }
        }
        if let Some(committed) = news.committed {
            let mut offsets = Vec::new();
            for (partition, offset) in self.partitions.iter_mut().zip(committed) {
                partition.is_new = false;
                partition.figures.committed.store(offset, Ordering::Relaxed);
                offsets.extend(partition.number.map(|number| (number, offset)));
            }
            if !offsets.is_empty()
                && let Err(error) = self.client.lock().commit_group(&offsets)
            {
                tracing::debug!(source = &*self.plan.source, %error, "the group's offsets are not committed");
            }
        }
        Ok(())
    }

    /// Adds records of a partition that are known to be there, or, where the order log names them, to have been there:
    /// one at least. `false` where they are lost.
    fn wait_for(&mut self, at: usize, block: &mut Gathering, is_replay: bool) -> Result<bool, Error> {
        let begun = Instant::now();
        loop {
            if is_replay && self.partitions[at].is_lost {
                return Ok(false);
            }
            self.gather(at, block, PAUSE)?;
            if !block.is_empty() {
                return Ok(true);
            }
            if begun.elapsed() > PATIENCE {
                let partition = &self.partitions[at];
                let (of, place) = (&partition.of, partition.reader.place.offset);
                match self.bus.bounds(of) {
                    Ok(bounds) if bounds.end <= place => return Err(cut_short(of, place + 1, bounds)),
                    Err(error) if !may_pass(&error) => return Err(error.into()),
                    _ => {}
                }
                warn!(source = &*self.plan.source, partition = %of, offset = place, "waiting for a broker to give again what was read");
                // A while longer, by a broker that may be coming up.
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn partition(&self, partition: PartitionId) -> Result<usize, Error> {
        let at = partition as usize;
        if at < self.partitions.len() {
            return Ok(at);
        }
        Err(Error::corrupt(format!(
            "the order log names partition {at} of the source, and the commit record has {}",
            self.partitions.len()
        )))
    }
}

impl Partition {
    fn took(&self, records: u32) {
        self.figures.records.fetch_add(u64::from(records), Ordering::Relaxed);
    }
}

/// Why a message was not added.
enum Failure {
    /// It is another one than was read at this offset.
    Differs(i64),
    Fails(Error),
}
use Failure::{Differs, Fails};

fn consumer(
    plan: &Plan,
    bus: &Arc<dyn Bus>,
    shared: &Arc<Shared>,
    partitions: usize,
) -> Result<Box<dyn Consumer>, Error> {
    let waking = Arc::clone(shared);
    let wake: Wake = Arc::new(move || waking.wake());
    let queue = (plan.queue / partitions.max(1)).max(64 << 10);
    let options = ConsumerOptions { group: plan.group.clone(), isolation: plan.isolation, queue, wake };
    Ok(bus.consumer(options)?)
}

/// What the topic has of a partition that exists. A broker that has just been started may not know yet that the
/// partition is its own, or that it exists: it is asked again for a while.
pub(super) fn bounds(bus: &dyn Bus, of: &TopicPartition) -> Result<Bounds, BusError> {
    let begun = Instant::now();
    loop {
        match bus.bounds(of) {
            Err(error) if may_pass(&error) && begun.elapsed() < PATIENCE => std::thread::sleep(AGAIN),
            outcome => return outcome,
        }
    }
}

fn may_pass(error: &BusError) -> bool {
    error.is_passing() || error.problem == Problem::NoTopic
}

/// The first message that a partition has is after the place where reading was to go on: refused, or left out.
///
/// # Errors
/// Where nothing may be left out.
pub(super) fn overtaken(
    plan: &Plan,
    of: &TopicPartition,
    figures: &PartitionFigures,
    place: i64,
    bounds: Bounds,
) -> Result<(), Error> {
    let missing = bounds.start - place;
    if plan.missing == Missing::Refuse {
        return Err(deleted(&plan.source, of, place, bounds));
    }
    warn!(source = &*plan.source, partition = %of, missing, "messages were deleted before they were read: going on without them");
    figures.missing.fetch_add(missing.unsigned_abs(), Ordering::Relaxed);
    Ok(())
}

/// Messages from `place` on were deleted before they were read.
pub(super) fn deleted(source: &str, of: &TopicPartition, place: i64, bounds: Bounds) -> Error {
    Error::corrupt(format!(
        "{of} begins at offset {}, expected offset {place}: {} messages were deleted before they were read",
        bounds.start,
        bounds.start - place
    ))
    .with_hint(format!(
        "put them back if you can; to go on without them: --set sources.{source}.missing=skip"
    ))
}

pub(super) fn cut_short(of: &TopicPartition, offset: i64, bounds: Bounds) -> Error {
    Error::corrupt(format!(
        "{of} ends at offset {}, expected offset {offset} at least: messages that were read are not there any more",
        bounds.end
    ))
    .with_hint(
        "the topic was deleted and made anew, or a broker has lost its end: begin anew with another job name or --data-dir",
    )
}

pub(super) fn made_anew(of: &TopicPartition, offset: i64) -> Error {
    Error::corrupt(format!("{of} has another message at offset {offset} than the one that was read there")).with_hint(
        "the topic was deleted and made anew, or a broker has lost its end: begin anew with another job name or --data-dir",
    )
}

/// Each partition of topics.
pub(super) fn places_of(topics: &[Topic]) -> impl Iterator<Item = TopicPartition> {
    topics.iter().flat_map(|topic| {
        (0..topic.partitions).map(|partition| TopicPartition::new(Arc::clone(&topic.name), partition))
    })
}

/// Compares the topics of an earlier run with those that there are now.
fn check_topics(known: &[Known], topics: &[Topic]) -> Result<(), Error> {
    for had in known {
        let name = &had.of.topic;
        let Some(topic) = topics.iter().find(|topic| topic.name == *name) else {
            return Err(Error::user(format!(
                "the source has read topic {name:?}, which it does not name any more, or which does not exist any more"
            ))
            .with_hint("name it again, or begin anew with another job name or --data-dir"));
        };
        let is_another = had.id.is_some() && topic.id.is_some() && had.id != topic.id;
        if is_another || had.of.partition >= topic.partitions {
            return Err(topic_made_anew(name));
        }
    }
    Ok(())
}

impl Source for KafkaSource {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        let _ = self.shared.waker.set(waker);
        if let Some(watch) = &mut self.watch {
            let known = self.partitions.iter().map(|partition| (partition.of.clone(), partition.id));
            watch.start(Arc::clone(&self.shared), known)?;
        }
        Ok(())
    }

    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        self.look_at_news()?;
        if self.is_draining {
            return Ok(Poll::End);
        }
        for _ in 0..self.partitions.len() {
            let at = self.turn % self.partitions.len();
            self.turn = self.turn.wrapping_add(1);
            if self.partitions[at].is_over || self.partitions[at].is_new {
                continue;
            }
            let mut block = self.new_block(max_bytes);
            self.gather(at, &mut block, Duration::ZERO)?;
            if let Some(cut) = self.finish(block) {
                return Ok(Poll::Block(self.block(at as PartitionId, cut)));
            }
        }
        if self.plan.is_bounded && self.partitions.iter().all(|partition| partition.is_over) {
            return Ok(Poll::End);
        }
        Ok(Poll::PendingUntil(Instant::now() + PAUSE))
    }

    fn position(&self) -> SourcePosition {
        let places =
            self.partitions.iter().map(|partition| (&partition.of, partition.id, partition.reader.place));
        SourcePosition { next: self.next, place: place::to_bytes(places) }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        self.next = position.next;
        let known = place::of_bytes(&position.place)
            .ok_or_else(|| Error::corrupt("the commit record holds no places in partitions"))?;
        check_topics(&known, &self.topics)?;
        let new: Vec<TopicPartition> =
            places_of(&self.topics).filter(|of| known.iter().all(|had| had.of != *of)).collect();
        self.partitions.clear();
        self.shared.figures.clear();
        for known in known {
            self.add(known)?;
        }
        self.check()?;
        for of in new {
            // From its beginning, whatever `from` says: it had none of its records before.
            let place = Place::at(bounds(&*self.bus, &of)?.start);
            let id = self.topics.iter().find(|topic| topic.name == of.topic).and_then(|topic| topic.id);
            self.add(Known { of, id, place })?.is_new = true;
        }
        Ok(())
    }

    fn replay(&mut self, run: ReplayRun, max_bytes: usize) -> Result<RawBlock, Error> {
        if run.first != self.next {
            return Err(Error::corrupt(format!(
                "the order log goes on with record {} of the topics, expected {}",
                run.first, self.next
            )));
        }
        let at = self.partition(run.partition)?;
        let mut block = self.new_block(max_bytes);
        block.allow(run.count);
        let cut = match self.wait_for(at, &mut block, true)? {
            true => self.finish(block),
            false => {
                self.partitions[at].took(1);
                Some(lost(&self.partitions[at].of))
            }
        };
        let cut = cut.ok_or_else(|| Error::internal("a block has a record and is empty"))?;
        Ok(self.block(run.partition, cut))
    }

    fn is_parted(&self) -> bool {
        self.partitions.len() > 1
    }

    fn scouts(&mut self) -> Result<Vec<ScoutReader>, Error> {
        let ids: Vec<usize> = (0..self.partitions.len()).filter(|at| !self.partitions[*at].is_over).collect();
        // All at once: each client asks a broker for all of its partitions together.
        for at in &ids {
            self.assigned(*at)?;
            if self.partitions[*at].reader.is_waiting() {
                // The rest of a message has to be seen by both.
                let place = self.partitions[*at].reader.place;
                self.go_to(*at, place)?;
            }
        }
        let origins = Arc::clone(self.origins());
        let mut scouts = Vec::new();
        for at in ids {
            let partition = &self.partitions[at];
            let Some(number) = partition.number else { continue };
            let begin = Begin {
                at,
                number,
                of: partition.of.clone(),
                place: partition.reader.place,
                end: partition.end,
                plan: self.plan.clone(),
                bus: Arc::clone(&self.bus),
                client: self.client.clone(),
                origins: Arc::clone(&origins),
                figures: Arc::clone(&partition.figures),
            };
            let open = move || Ok(Box::new(Ahead::new(begin.clone())) as Box<dyn Source>);
            scouts.push(ScoutReader { partition: at as PartitionId, open: Box::new(open) });
        }
        Ok(scouts)
    }

    fn take(&mut self, wanted: &[Wanted], max_bytes: usize) -> Result<RawBlock, Error> {
        self.look_at_news()?;
        let Some(first) = wanted.first() else { return Err(Error::internal("no records are wanted")) };
        let mut block = self.new_block(max_bytes);
        for Wanted { partition, count } in wanted {
            let at = self.partition(*partition)?;
            let all = u64::from(block.count()) + count;
            block.allow(*count);
            if block.is_empty() {
                self.wait_for(at, &mut block, false)?;
            } else {
                self.gather(at, &mut block, Duration::ZERO)?;
            }
            // Records of the next partition are after all of these.
            if u64::from(block.count()) < all {
                break;
            }
        }
        let cut = self.finish(block).ok_or_else(|| Error::internal("a block has a record and is empty"))?;
        Ok(self.block(first.partition, cut))
    }

    fn mixes_partitions(&self) -> bool {
        true
    }

    fn finished(&mut self, partition: PartitionId) {
        if let Some(partition) = self.partitions.get_mut(partition as usize) {
            partition.is_over = true;
        }
    }

    fn drain(&mut self) {
        // The topics keep what is not read.
        self.is_draining = true;
    }

    fn on_commit(&self) -> Option<CommitView> {
        let shared = Arc::clone(&self.shared);
        Some(Arc::new(move |position: &SourcePosition| {
            let Some(known) = place::of_bytes(&position.place) else { return };
            shared.news().committed = Some(known.iter().map(|known| known.place.offset).collect());
            shared.wake();
        }))
    }

    fn partitions(&self) -> Option<PartitionView> {
        let shared = Arc::clone(&self.shared);
        Some(Arc::new(move || shared.figures.stats()))
    }
}

/// How soon a source without records looks again, beside being woken.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// Records that an order log names and no topic has any more.
fn lost(of: &TopicPartition) -> Cut {
    let reason = format!(
        "this record of {of} was deleted before it was read again after a restart, and is left out by `missing: skip`"
    );
    let context =
        BlockContext { refused: Some(("missing".into(), reason.into())), ..BlockContext::default() };
    // A block that is refused is one record.
    Cut { data: Bytes::new(), count: 1, context: Some(Arc::new(context)) }
}
