//! The one place where a job's order is decided: polls the sources, numbers what they give, and mixes in
//! ticks, cycle markers, commands and the end.
//!
//! Sources are asked in turn, each as long as the decoder whose turn it is has room; one that has nothing is
//! asked again when it wakes the sequencer or when its time has come, and holds nothing up. A block goes to
//! one decoder; the others learn that its numbers are not for them from the next item that they get, or, where
//! a task further down waits for several inputs, at the end of the run.
//!
//! A tick comes first, so that operators know the time before the first record. Before the end comes a last
//! cycle marker, so that everything belongs to a cycle.
//!
//! A job that goes on after a crash first follows the order log: the same records with the same numbers, ticks and
//! markers. Nothing of that is written down again. Then come the blocks that a source gives and the log does not name,
//! with the numbers that answers to them may have told. Then it goes on as ever.
//!
//! A job that is told its order ([`JobOptions::is_told`]) has one source, which says all that comes but markers and
//! commands that only read. Then the sequencer only numbers, and looks at no clock for it (`told`).
//!
//! Not here: the content of blocks (decoders), the order log's files.

mod by_time;
mod replay;
mod told;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thalweg_types::{Error, Micros, Offset, Seq, SeqRange, format_duration};
use tracing::warn;

use crate::job::JobCore;
use crate::job_clock::{JobClock, Notice};
use crate::order::Place;
use crate::ring::{Control, Data, Item, Sender, Sequenced};
use crate::stats::{ClockStats, Counter, SourceCounters};
use crate::worker::Verdict;
pub(crate) use by_time::Scouts;
use replay::Replay;

use crate::{
    Clock, Command, CycleStart, DatagramView, FindReceived, Followed, JobOptions, LastCommit, NoOrderLog,
    OrderEntry, OrderEvent, OrderLog, PartitionView, Poll, RawBlock, ReplayRun, Source, SourceProgress,
    Wanted,
};

/// As for tasks: others of the worker have their turn after this long.
const TURN: Duration = Duration::from_micros(300);

/// How soon a marker is tried again that could not be numbered.
const MARK_AGAIN: Duration = Duration::from_millis(5);

pub(crate) struct Sequencer {
    core: Arc<JobCore>,
    clock: JobClock,
    /// The clock moves by hand, and ticks with it.
    by_hand: bool,
    options: JobOptions,
    log: Box<dyn OrderLog>,
    /// What is still to be followed.
    replay: Option<Replay>,
    feeds: Vec<Feed>,
    /// Which source is asked first.
    turn: usize,
    /// The source that is being asked, for naming a failure.
    asking: Option<usize>,
    /// The next number.
    next: Seq,
    tick: Pace,
    cycle: Pace,
    cycle_number: u64,
    cycle_bytes: u64,
    cycle_records: u64,
    /// The first tick of this run has been numbered.
    has_begun: bool,
    /// Something was told since the last marker.
    has_news: bool,
    draining: bool,
    ended: bool,
    /// Sources wait for a marker.
    is_held: bool,
    figures: Arc<Figures>,
}

/// What statistics show of the sequencer.
#[derive(Default)]
pub(crate) struct Figures {
    pub tick: Counter,
    pub cycles: Counter,
    /// As of the last tick, how far the job's clock was ahead of the wall and of the steady clock. Each is read by itself.
    pub ahead_of_wall: AtomicI64,
    pub ahead_of_steady: AtomicI64,
    /// How often the wall was set.
    pub jumps: Counter,
}

impl Figures {
    /// The job's clock now; before its first tick the wall.
    pub(crate) fn now(&self, clock: &dyn Clock) -> Micros {
        let read = clock.read();
        match self.tick.get() {
            0 => read.wall,
            _ => read.steady.saturating_add(self.ahead_of_steady.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn clock(&self) -> ClockStats {
        ClockStats { ahead: self.ahead_of_wall.load(Ordering::Relaxed), jumps: self.jumps.get() }
    }
}

/// When something regular was done last, by the steady clock: that is never set.
#[derive(Clone, Copy)]
struct Pace(Micros);

impl Pace {
    /// How long ago that was.
    fn passed(self, now: Micros) -> Duration {
        Duration::from_micros(u64::try_from(now.saturating_sub(self.0)).unwrap_or(0))
    }
}

/// A source and the rings to its decoders.
pub(crate) struct Feed {
    pub name: Arc<str>,
    pub source: Box<dyn Source>,
    /// Set by the source's waker.
    pub woken: Arc<AtomicBool>,
    pub rings: Vec<FeedRing>,
    /// Ranges without a block are announced at the end of every run.
    pub prompt: bool,
    pub counters: Arc<SourceCounters>,
    /// Written at most once per run.
    pub progress: Arc<Mutex<Option<SourceProgress>>>,
    pub datagrams: Option<DatagramView>,
    pub partitions: Option<PartitionView>,
    /// It is read by event time, with the others that have one.
    pub scouts: Option<Scouts>,
    /// Where blocks are kept as they were received.
    received: Option<Arc<dyn FindReceived>>,
    turn: usize,
    state: FeedState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FeedState {
    Ready,
    Waiting(Option<Instant>),
    Ended,
}

pub(crate) struct FeedRing {
    sender: Sender,
    /// Up to where items were made.
    made: Seq,
    /// Items that found no slot.
    queue: VecDeque<Item>,
}

impl Feed {
    pub(crate) fn new(
        name: Arc<str>,
        source: Box<dyn Source>,
        woken: Arc<AtomicBool>,
        senders: Vec<Sender>,
        prompt: bool,
        start: Seq,
    ) -> Self {
        let (datagrams, partitions) = (source.datagrams(), source.partitions());
        let rings = senders
            .into_iter()
            .map(|sender| FeedRing { sender, made: start, queue: VecDeque::new() })
            .collect();
        Self {
            name,
            source,
            woken,
            rings,
            prompt,
            counters: Arc::default(),
            progress: Arc::default(),
            datagrams,
            partitions,
            scouts: None,
            received: None,
            turn: 0,
            state: FeedState::Ready,
        }
    }

    /// Nothing more comes from the source.
    fn end(&mut self) {
        self.state = FeedState::Ended;
        self.scouts = None;
        self.counters.ended.store(true, Ordering::Relaxed);
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = self.source.progress();
    }

    /// Records from the position of the source on: all that `run` names, or the first of them.
    fn give_again(&mut self, run: ReplayRun, block_bytes: usize) -> Result<RawBlock, Error> {
        let block = self.source.replay(run, block_bytes)?;
        let count = u64::from(block.count);
        if block.first != run.first || count == 0 || count > run.count {
            return Err(Error::internal(format!(
                "source {:?} was to give {} records from offset {} again and gave {count} from {}",
                self.name, run.count, run.first, block.first
            )));
        }
        Ok(block)
    }

    /// Has its blocks kept as they were received.
    pub(crate) fn keep_received(&mut self, find: Option<Arc<dyn FindReceived>>) {
        self.received = find;
    }

    /// Whether the source was held up and need not be any more.
    fn may_go_on(&mut self) -> bool {
        self.state != FeedState::Ended
            && self.counters.blocked.load(Ordering::Relaxed)
            && self.rings[self.turn].sender.is_open()
    }

    /// Whether the decoder whose turn it is can take a block; shown as blocked where not.
    fn has_room(&mut self) -> bool {
        let is_open = self.rings[self.turn].sender.is_open();
        self.counters.blocked.store(!is_open, Ordering::Relaxed);
        is_open
    }

    /// Whether it makes sense to ask the source now.
    fn is_ready(&self, now: Instant) -> bool {
        match self.state {
            FeedState::Ready => true,
            FeedState::Ended => false,
            FeedState::Waiting(until) => {
                self.woken.load(Ordering::Acquire) || until.is_some_and(|until| until <= now)
            }
        }
    }
}

impl FeedRing {
    /// Sends, or puts into the queue what there is no slot for.
    fn send(&mut self, item: Item) {
        self.made = item.end;
        if self.queue.is_empty() && self.sender.has_slot() {
            self.sender.push(item);
            self.sender.wake();
        } else {
            self.queue.push_back(item);
        }
    }

    /// Sends the items that wait in the queue; `false` if some have to wait on.
    fn unstick(&mut self) -> bool {
        while !self.queue.is_empty() && self.sender.is_open() {
            if let Some(item) = self.queue.pop_front() {
                self.sender.push(item);
                self.sender.wake();
            }
        }
        self.queue.is_empty()
    }
}

impl Sequencer {
    pub(crate) fn new(
        core: Arc<JobCore>,
        clock: Arc<dyn Clock>,
        by_hand: bool,
        options: JobOptions,
        last: Option<LastCommit>,
        feeds: Vec<Feed>,
    ) -> Self {
        let (next, cycle_number) = last.map_or((0, 0), |last| (last.next, last.cycle));
        let resumed_at = last.map(|last| last.now);
        // What is told brings its time with it.
        let beginning = options.is_told.then_some(0);
        let clock = JobClock::new(clock, resumed_at.or(beginning));
        let pace = Pace(clock.steady());
        Self {
            core,
            clock,
            by_hand,
            options,
            log: Box::new(NoOrderLog),
            replay: None,
            feeds,
            turn: 0,
            asking: None,
            next,
            tick: pace,
            cycle: pace,
            cycle_number,
            cycle_bytes: 0,
            cycle_records: 0,
            has_begun: false,
            has_news: false,
            draining: false,
            ended: false,
            is_held: false,
            figures: Arc::default(),
        }
    }

    /// Comes before the first run.
    pub(crate) fn begin(&mut self, log: Box<dyn OrderLog>, followed: Option<Followed>) {
        self.log = log;
        self.replay = followed.map(|Followed { entries, commands }| Replay::new(entries, commands));
    }

    pub(crate) fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    pub(crate) fn feeds(&self) -> &[Feed] {
        &self.feeds
    }

    /// The source that a failure is to be blamed on.
    pub(crate) fn asking(&self) -> Option<&Arc<str>> {
        self.asking.map(|feed| &self.feeds[feed].name)
    }

    pub(crate) fn run(&mut self, now: Instant) -> Result<Verdict, Error> {
        if !self.unstick() {
            return Ok(Verdict::Idle(None));
        }
        if self.ended {
            return Ok(Verdict::Finished);
        }
        if self.replay.is_some() {
            return self.follow(now);
        }
        // Not `is_read_only`, which is taken back as the job ends: nothing may be numbered then either.
        if self.core.leaves_out() {
            return Ok(self.serve_reads());
        }
        self.look_at_clock();
        if !self.has_begun && !self.options.is_told {
            self.has_begun = true;
            self.make_tick()?;
        }
        self.take_requests()?;
        let until = now + TURN;
        let mut time = now;
        let mut more = true;
        while more && time < until && !self.is_stuck() {
            if !self.options.is_told && self.is_due(self.tick, Some(self.options.tick)) {
                self.make_tick()?;
            }
            let is_due = self.is_due(self.cycle, self.cycle_time()) || self.core.is_hastened();
            if is_due && self.may_mark() {
                self.make_cycle(false)?;
            }
            self.hold(self.core.is_held() || self.core.received.is_full());
            more = !self.is_held && self.ask_once(time)?;
            time = Instant::now();
            self.look_at_clock();
        }
        for feed in &mut self.feeds {
            if feed.state != FeedState::Ended {
                *feed.progress.lock().unwrap_or_else(PoisonError::into_inner) = feed.source.progress();
            }
        }
        if self.feeds.iter().all(|feed| feed.state == FeedState::Ended) && !self.is_stuck() {
            if self.core.seal() {
                self.make_cycle(true)?;
                if let Some(cycles) = &self.core.cycles {
                    cycles.end();
                }
                self.write_down(OrderEvent::End)?;
                self.control(&Control::End);
                self.ended = true;
            } else {
                more = true;
            }
        }
        self.tell_ranges();
        more |= !self.is_held && self.has_missed_room();
        if self.is_stuck() {
            return Ok(if self.unstick() { Verdict::Again } else { Verdict::Idle(None) });
        }
        Ok(match (self.ended, more) {
            (true, _) => Verdict::Finished,
            (_, true) => Verdict::Again,
            _ => Verdict::Idle(self.next_timer()),
        })
    }

    /// Whether a ring that was full when its source was to be asked has room now: only `tell_ranges` may have been
    /// notified.
    fn has_missed_room(&mut self) -> bool {
        self.feeds.iter_mut().any(Feed::may_go_on)
    }

    fn look_at_clock(&mut self) {
        if self.options.is_told {
            return;
        }
        let Some(notice) = self.clock.look() else { return };
        let job = &self.core.name;
        match notice {
            Notice::Jumped { by } if by > 0 => warn!(
                %job,
                forward = shown(by),
                "the machine's clock was set: the job's clock goes on at its own pace, and follows in a minute if it stays so"
            ),
            Notice::Jumped { by } => warn!(
                %job,
                back = shown(by.saturating_abs()),
                ahead = shown(self.clock.ahead().0.max(0)),
                "the machine's clock was set back: the job's clock goes on at its own pace, and is so far ahead of it"
            ),
            Notice::Followed { by } => warn!(
                %job,
                forward = shown(by),
                "the machine's clock has stayed where it was set: the job's clock follows it"
            ),
            Notice::StartsAhead { by } => warn!(
                %job,
                ahead = shown(by),
                "the job's clock goes on from the last tick of its order log, which is ahead of the machine's clock: set the \
                 machine's clock if it is wrong; else arrival times are so far ahead, and only a job that begins anew (another \
                 name or --data-dir) has them right"
            ),
        }
    }

    fn take_requests(&mut self) -> Result<(), Error> {
        let requests = self.core.requests();
        for command in requests.commands {
            self.make_command(command)?;
        }
        if requests.drain && !self.draining {
            self.draining = true;
            for (index, feed) in self.feeds.iter_mut().enumerate() {
                if feed.scouts.is_some() {
                    // It is left where it is, as it would be without the others.
                    feed.end();
                } else if feed.state != FeedState::Ended {
                    self.asking = Some(index);
                    feed.source.drain();
                    feed.state = FeedState::Ready;
                }
            }
            self.asking = None;
        }
        Ok(())
    }

    /// Nothing is followed or numbered any more but what only reads: the job has failed here and stays to be read.
    pub(crate) fn only_read(&mut self) {
        self.replay = None;
    }

    /// Numbers commands that only read, and writes nothing down: no number that follows will ever be durable. Sources
    /// are closed, so that a reader that waits after them hears of it.
    fn serve_reads(&mut self) -> Verdict {
        for feed in self.feeds.iter_mut().filter(|feed| feed.state != FeedState::Ended) {
            feed.source = Box::new(Closed);
            feed.state = FeedState::Ended;
            feed.counters.ended.store(true, Ordering::Relaxed);
        }
        for command in self.core.requests().commands {
            self.control(&Control::Command(command));
        }
        Verdict::Idle(None)
    }

    /// Has all sources wait for a marker that may not come yet, or lets them go on.
    fn hold(&mut self, is_held: bool) {
        if is_held != self.is_held {
            self.is_held = is_held;
            for feed in self.feeds.iter().filter(|feed| feed.state != FeedState::Ended) {
                feed.counters.blocked.store(is_held, Ordering::Relaxed);
            }
        }
    }

    /// Asks every source once that may have something; whether any had.
    fn ask_once(&mut self, now: Instant) -> Result<bool, Error> {
        let count = self.feeds.len();
        let mut more = false;
        for step in 0..count {
            let index = (self.turn + step) % count;
            let feed = &mut self.feeds[index];
            if feed.scouts.is_some() || !feed.is_ready(now) {
                continue;
            }
            if !feed.has_room() {
                continue;
            }
            // Before the source looks: a wake that comes while it looks is not lost.
            feed.woken.store(false, Ordering::Release);
            self.asking = Some(index);
            match feed.source.poll(self.options.block_bytes, self.clock.now())? {
                Poll::Told { now, event } => {
                    feed.state = FeedState::Ready;
                    more = true;
                    self.take_told(index, now, event)?;
                }
                Poll::Block(_) if self.options.is_told => return Err(told::not_told(&feed.name)),
                Poll::Block(block) => {
                    feed.state = FeedState::Ready;
                    more = true;
                    if block.count > 0 {
                        self.number(index, block)?;
                    }
                }
                Poll::Pending => feed.state = FeedState::Waiting(None),
                Poll::PendingUntil(until) => feed.state = FeedState::Waiting(Some(until)),
                Poll::End => feed.end(),
            }
            self.asking = None;
        }
        more |= self.take_by_time()?;
        self.turn = (self.turn + 1) % count.max(1);
        Ok(more)
    }

    /// Gives a block its range and sends it to the decoder whose turn it is.
    fn number(&mut self, index: usize, block: RawBlock) -> Result<(), Error> {
        let is_told = self.feeds[index].source.tells_order();
        self.give_range(index, block, is_told)?;
        self.look_at_size()
    }

    /// Makes a marker where the cycle has become as large as it may.
    fn look_at_size(&mut self) -> Result<(), Error> {
        let settings = &self.options.cycle;
        let is_full = settings.bytes.is_some_and(|limit| self.cycle_bytes >= limit)
            || settings.records.is_some_and(|limit| self.cycle_records >= limit);
        if is_full && self.may_mark() {
            self.make_cycle(false)?;
        }
        Ok(())
    }

    fn give_range(&mut self, index: usize, block: RawBlock, is_told: bool) -> Result<(), Error> {
        let whole = Wanted { partition: block.partition, count: u64::from(block.count) };
        self.give_ranges(index, block, &[whole], is_told)
    }

    /// The same for a block that holds records of several partitions: `runs` has all of them, in order.
    fn give_ranges(
        &mut self,
        index: usize,
        block: RawBlock,
        runs: &[Wanted],
        is_told: bool,
    ) -> Result<(), Error> {
        let (mut next, mut offset, arrival) = (self.next, block.first, self.clock.now());
        for Wanted { partition, count } in runs {
            let event = OrderEvent::Run { source: index, partition: *partition, offset, arrival };
            let entry = OrderEntry { range: SeqRange::new(next, next + count), event };
            if is_told {
                self.log.append_told(entry)?;
            } else {
                self.log.append(entry)?;
            }
            (next, offset) = (next + count, offset + count);
        }
        self.send(index, block, runs);
        Ok(())
    }

    /// Sends a numbered block on, which has the records of these runs.
    fn send(&mut self, index: usize, block: RawBlock, runs: &[Wanted]) {
        let range = SeqRange::new(self.next, self.next + u64::from(block.count));
        self.note_places(index, block.first, runs);
        self.next = range.end;
        let feed = &mut self.feeds[index];
        if let Some(find) = &feed.received {
            self.core.received.push(range, &block, find);
        }
        feed.source.sequenced(&block, range);
        let bytes = block.payload.len() as u64;
        feed.counters.records.add(range.len());
        feed.counters.bytes.add(bytes);
        self.cycle_bytes += bytes;
        self.cycle_records += range.len();
        let data = Data::Block(Box::new(Sequenced { block, range, arrival: self.clock.now() }));
        // Not the time of the run: the source may have taken its time over the block.
        let born = Some(Instant::now());
        feed.rings[feed.turn].send(Item { end: range.end, data, control: None, born });
        feed.turn = (feed.turn + 1) % feed.rings.len();
    }

    /// Keeps the places of records that are numbered next, for a failure that has to name one of them.
    fn note_places(&self, source: usize, mut offset: Offset, runs: &[Wanted]) {
        let mut recent = self.core.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = self.next;
        for Wanted { partition, count } in runs {
            let place = Place { source, partition: *partition, offset };
            recent.push(SeqRange::new(next, next + count), place, || self.core.passed());
            (next, offset) = (next + count, offset + count);
        }
    }

    /// Whether a marker may follow: not while earlier cycles are on their way to the disk. The cycle grows then.
    fn may_mark(&self) -> bool {
        self.core.cycles.as_ref().is_none_or(|cycles| cycles.may_begin())
    }

    fn make_tick(&mut self) -> Result<(), Error> {
        self.write_down(OrderEvent::Tick { now: self.clock.now() })?;
        self.send_tick();
        Ok(())
    }

    fn send_tick(&mut self) {
        let now = self.clock.now();
        self.tick = Pace(self.clock.steady());
        self.figures.tick.set(now as u64);
        let (wall, steady) = self.clock.ahead();
        self.figures.ahead_of_wall.store(wall, Ordering::Relaxed);
        self.figures.ahead_of_steady.store(steady, Ordering::Relaxed);
        self.figures.jumps.set(self.clock.jumps());
        self.control(&Control::Tick(now));
    }

    fn make_cycle(&mut self, is_last: bool) -> Result<(), Error> {
        self.write_down(OrderEvent::Cycle { number: self.cycle_number + 1 })?;
        self.send_cycle(is_last);
        Ok(())
    }

    fn send_cycle(&mut self, is_last: bool) {
        self.core.cycle_begins();
        self.cycle = Pace(self.clock.steady());
        (self.cycle_bytes, self.cycle_records, self.has_news) = (0, 0, false);
        self.cycle_number += 1;
        self.figures.cycles.set(self.cycle_number);
        if let Some(cycles) = &self.core.cycles {
            cycles.begin(CycleStart {
                cycle: self.cycle_number,
                next: self.next + 1,
                now: self.clock.now(),
                sources: self.feeds.iter().map(|feed| feed.source.position()).collect(),
            });
        }
        self.control(&Control::Cycle { number: self.cycle_number, is_last });
    }

    fn make_command(&mut self, command: Arc<Command>) -> Result<(), Error> {
        self.write_down(OrderEvent::Command { record: command.record.clone() })?;
        self.control(&Control::Command(command));
        Ok(())
    }

    /// Writes down an event that takes one number, the next.
    fn write_down(&mut self, event: OrderEvent) -> Result<(), Error> {
        self.log.append(OrderEntry { range: SeqRange::new(self.next, self.next + 1), event })
    }

    /// Gives a tick or its like its number and sends it everywhere, full rings or not.
    fn control(&mut self, control: &Control) {
        self.next += 1;
        let end = self.next;
        let born = Some(Instant::now());
        for ring in self.feeds.iter_mut().flat_map(|feed| &mut feed.rings) {
            ring.send(Item { end, data: Data::Nothing, control: Some(control.clone()), born });
        }
    }

    /// Tells decoders about numbers that were not for them.
    fn tell_ranges(&mut self) {
        let end = self.next;
        for feed in self.feeds.iter_mut().filter(|feed| feed.prompt) {
            for ring in &mut feed.rings {
                if ring.made < end && ring.queue.is_empty() && ring.sender.is_open() {
                    ring.send(Item { end, data: Data::Nothing, control: None, born: None });
                }
            }
        }
    }

    fn is_stuck(&self) -> bool {
        self.feeds.iter().flat_map(|feed| &feed.rings).any(|ring| !ring.queue.is_empty())
    }

    fn unstick(&mut self) -> bool {
        // Every ring gets its try.
        self.feeds
            .iter_mut()
            .flat_map(|feed| &mut feed.rings)
            .map(FeedRing::unstick)
            .filter(|free| !free)
            .count()
            == 0
    }

    fn is_due(&self, pace: Pace, every: Option<Duration>) -> bool {
        let passed = pace.passed(self.clock.steady());
        every.is_some_and(|every| passed >= every && !passed.is_zero())
    }

    fn next_timer(&self) -> Option<Instant> {
        let sources = self.feeds.iter().filter_map(|feed| match feed.state {
            // Held up by a full ring, which wakes, or by a task, which has asked for a marker.
            FeedState::Waiting(until) if !feed.counters.blocked.load(Ordering::Relaxed) => until,
            _ => None,
        });
        // What a task asked for while earlier ones were on their way.
        let asked = self.core.is_hastened().then(|| Instant::now() + MARK_AGAIN);
        let regular = if self.by_hand {
            None
        } else {
            let (now, steady) = (Instant::now(), self.clock.steady());
            let left = |pace: Pace, every: Duration| every.saturating_sub(pace.passed(steady));
            let tick = (!self.options.is_told).then(|| left(self.tick, self.options.tick));
            let cycle = self.cycle_time().map(|every| left(self.cycle, every));
            // Overdue, as earlier ones are on their way: looked at again soon, and not in a spin.
            let cycle = cycle.map(|left| if left.is_zero() { MARK_AGAIN } else { left });
            tick.into_iter().chain(cycle).min().map(|left| now + left)
        };
        sources.chain(regular).chain(asked).min()
    }
}

/// To the second: nobody sets a clock more exactly, and fractions hide that it was an hour or a day.
fn shown(time: Micros) -> String {
    const SECOND: Micros = 1_000_000;
    format_duration(time.saturating_add(SECOND / 2) / SECOND * SECOND)
}

/// The replacement of a source whose job is read-only.
struct Closed;

impl Source for Closed {
    fn poll(&mut self, _: usize, _: Micros) -> Result<Poll, Error> {
        Ok(Poll::End)
    }

    fn drain(&mut self) {}
}
