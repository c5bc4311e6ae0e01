//! A task: takes the batches of its rings in step, runs its chain of stages over them, and sends their output.
//!
//! # In step
//! Per ring the task holds one item, the *head*. All heads cover the order up to at least the least end of
//! them, `m`; so everything up to `m` is there. The task takes the rows below `m` from every head, gives them
//! to its first stage, and goes on with the heads that are used up. Ticks and their like are at the end of
//! an item, with the same number on every ring, so all heads reach them together.
//!
//! An operator that emits much more than it is given says how many records it takes at once; then the step ends before
//! the next ones, so that its output meets the rings, and their bounds, in between.
//!
//! # Why rings that are full cannot hold each other up
//! A task that finds a ring full stops taking input until the ring is at its low watermark. In a diamond one
//! branch may be full while the task where they meet waits for the other. Let `p(T)` be how far a task has
//! come in the order, and look at the tasks from which a task with several rings can be reached (call them
//! `S`; it holds every task upstream of its members). Suppose nothing can go on.
//!
//! * Of the tasks of `S` with the least `p`, take the one furthest upstream, `T`. All that feed it are further
//!   than `p(T)`. None of their rings to `T` is empty: a ring that is empty takes an item, and a task that
//!   stops for a full ring first sends all others what it has, were it only "nothing here" (`flush_all`). So `T` has a
//!   head on every ring that reaches beyond `p(T)`: it could run. So one of its own rings is full, to `V` say.
//! * What is in that ring ends at or below `p(T)` and is not used up by `V`, so `p(V) < p(T)`. Then `V` is
//!   not in `S`: it has one ring, which is not empty, so it could run unless one of its rings is full; and so
//!   on downstream, until a task without outputs, which can run.
//!
//! The sequencer counts as a task here.
//!
//! That leaves waits for a timer: buffers wait for their age, tasks for their schedule. They would end, but a
//! branch that is full would move at the pace of the other's timers. So a task that lacks a head on some ring while
//! the producer of another waits for room *hurries* those that it lacks: their producers send what they have
//! and run although it is not their time, or pass the hurry on to the rings that they lack themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg_types::{Batch, Error, Seq, SeqRange};

use crate::link::Moment;
use crate::merge::{bounds, merge};
use crate::ring::{Control, Cost, Data, Receiver, older};
use crate::stage::Stage;
use crate::worker::Verdict;
use crate::{DurableOrder, InputId, InputOrder, Schedule, Waker};

/// A task gives way to others of its worker after this long; long against the cost of a switch (about a
/// microsecond), short against what a person or a `flush` notices.
const TURN: Duration = Duration::from_micros(300);
/// Scheduled by count only, a task still runs when something has waited this long: its rings may be what a
/// task with several inputs waits for.
const COUNT_ONLY_WAIT: Duration = Duration::from_secs(1);
/// Pieces of at least this many rows are given one after the other instead of being copied together, where
/// they do not overlap.
const LARGE: usize = 256;

pub(crate) struct Inlet {
    pub port: usize,
    pub task: u32,
    pub receiver: Receiver,
    head: Option<Head>,
}

struct Head {
    end: Seq,
    data: Data,
    control: Option<Control>,
    /// When the oldest of its rows was numbered, of those that are gone too.
    born: Option<Instant>,
    cost: Cost,
}

/// What a step works on, in addition to the rows in `pieces`.
struct Taken {
    end: Seq,
    block: Data,
    control: Option<Control>,
    /// When the oldest of it all was numbered.
    born: Option<Instant>,
}

impl Inlet {
    pub(crate) fn new(port: usize, task: u32, receiver: Receiver) -> Self {
        Self { port, task, receiver, head: None }
    }

    /// Has a head, if need be from the ring.
    #[inline]
    fn fill(&mut self) -> bool {
        if self.head.is_none()
            && let Some((item, cost)) = self.receiver.pop()
        {
            let (control, born) = (item.control, item.born);
            self.head = Some(Head { end: item.end, data: item.data, control, born, cost });
        }
        self.head.is_some()
    }
}

/// How a task begins.
pub(crate) struct Beginning {
    pub now: Instant,
    /// The number at which the order begins.
    pub start: Seq,
    /// What it waits for if a stage publishes.
    pub durable: Option<Arc<DurableOrder>>,
    pub waker: Waker,
    /// Learns up to where everything has been worked on.
    pub passed: Arc<AtomicU64>,
}

pub(crate) struct Task {
    /// By port, then by upstream task.
    inlets: Vec<Inlet>,
    order: InputOrder,
    /// Every stage comes after the one that feeds it.
    stages: Vec<Stage>,
    gate: Option<Gate>,
    /// Up to where everything has been worked on.
    position: Seq,
    /// The same, for others.
    passed: Arc<AtomicU64>,
    /// A stage publishes: it is given nothing that comes after this.
    durable: Option<Arc<DurableOrder>>,
    waker: Waker,
    /// The stage that works right now.
    working: usize,
    ended: bool,
    stuck: bool,
    pieces: Vec<(InputId, Batch)>,
    handed: Vec<(usize, Batch)>,
    /// Heads that are used up in the present step, and what they hold.
    used: Vec<(usize, Cost)>,
}

impl Task {
    pub(crate) fn new(
        inlets: Vec<Inlet>,
        order: InputOrder,
        stages: Vec<Stage>,
        schedule: Schedule,
        beginning: Beginning,
    ) -> Self {
        let Beginning { now, start, durable, waker, passed } = beginning;
        passed.store(start, Ordering::Relaxed);
        let gate =
            (schedule != Schedule::default()).then_some(Gate { schedule, base: now, due: None, open: false });
        Self {
            inlets,
            order,
            stages,
            gate,
            position: start,
            passed,
            durable,
            waker,
            working: 0,
            ended: false,
            stuck: false,
            pieces: Vec::new(),
            handed: Vec::new(),
            used: Vec::new(),
        }
    }

    /// The stage that works, for naming a failure.
    pub(crate) fn working(&self) -> &Stage {
        &self.stages[self.working]
    }

    pub(crate) fn run(&mut self, now: Instant, stopped: impl Fn() -> bool) -> Result<Verdict, Error> {
        if self.stuck && !self.unstick() {
            return Ok(Verdict::Idle(None));
        }
        if self.ended {
            return self.wait_for_drained();
        }
        let hurried = links(&mut self.stages).any(|link| link.is_hurried());
        if let Some(gate) = &mut self.gate
            && !hurried
            && let Some(wait) = gate.wait(&self.inlets, now)
        {
            return self.rest(now, wait);
        }
        let until = now + TURN;
        let mut more = true;
        let mut time = now;
        while more && !self.stuck && !self.ended && time < until {
            more = self.inlets.iter_mut().map(Inlet::fill).filter(|filled| !filled).count() == 0;
            if more {
                if stopped() {
                    return Ok(Verdict::Finished);
                }
                if !self.may_step() {
                    return self.rest(time, None);
                }
                time = self.step(time)?;
            }
        }
        if !more {
            if let Some(gate) = &mut self.gate {
                gate.open = false;
            }
            if hurried || self.inlets.iter().any(|inlet| inlet.receiver.producer_waits()) {
                for inlet in self.inlets.iter().filter(|inlet| inlet.head.is_none()) {
                    inlet.receiver.hurry();
                }
            }
        }
        match self.rest(time, None)? {
            Verdict::Idle(_) if more && !self.stuck && !self.ended => Ok(Verdict::Again),
            verdict => Ok(verdict),
        }
    }

    /// Whether operators take more, and the records that they publish are durable; one that refuses wakes the task
    /// later.
    ///
    /// Of a job that stays to be read, a task drops records that are not durable when they come, and those that a task
    /// before it has left out: each looks at its own time, and none may take a range for whole if another has dropped a
    /// part of it.
    fn may_step(&mut self) -> bool {
        let left_out = |inlet: &Inlet| inlet.receiver.incomplete_from();
        let lost_from = self.stages[0]
            .lost_from()
            .map(|durable| self.inlets.iter().map(left_out).fold(durable, Seq::min));
        if self.durable.is_some() || lost_from.is_some() {
            let end = self.inlets.iter().filter_map(|inlet| Some(inlet.head.as_ref()?.end)).min();
            let reaches = |durable: Seq| end.is_some_and(|end| end > durable);
            if lost_from.is_some_and(reaches) {
                let leave = if self.durable.is_some() { Stage::leave } else { Stage::only_answer };
                let from = self.position;
                self.stages.iter_mut().for_each(|stage| leave(stage, from));
            } else if self.durable.as_ref().is_some_and(|durable| reaches(durable.end())) {
                return false;
            }
        }
        let waker = &self.waker;
        self.stages.iter_mut().all(|stage| stage.is_ready(waker))
    }

    /// Sends the batches that are due before the task stops for now. `wait` is when it has to run again in any case.
    fn rest(&mut self, now: Instant, wait: Option<Instant>) -> Result<Verdict, Error> {
        let end = self.position;
        let mut next = wait;
        for link in links(&mut self.stages) {
            if let Some(due) = link.flush(end, now)? {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        if self.look_for_stuck() {
            for link in links(&mut self.stages) {
                link.flush_all(end)?;
            }
            // If that found room after all, nobody is going to wake this task.
            return Ok(if self.look_for_stuck() { Verdict::Idle(None) } else { Verdict::Again });
        }
        if self.ended { self.wait_for_drained() } else { Ok(Verdict::Idle(next)) }
    }

    /// After the end: the task stays until the data that its operators handed over has arrived.
    fn wait_for_drained(&mut self) -> Result<Verdict, Error> {
        for number in 0..self.stages.len() {
            self.working = number;
            if !self.stages[number].is_drained(&self.waker)? {
                return Ok(Verdict::Idle(None));
            }
        }
        Ok(Verdict::Finished)
    }

    fn look_for_stuck(&mut self) -> bool {
        let stuck = links(&mut self.stages).any(|link| link.is_stuck());
        self.mark_stuck(stuck);
        stuck
    }

    fn unstick(&mut self) -> bool {
        // Every link gets its try.
        let free = links(&mut self.stages).map(|link| link.unstick()).filter(|free| !free).count() == 0;
        self.mark_stuck(!free);
        free
    }

    fn mark_stuck(&mut self, stuck: bool) {
        if stuck != self.stuck {
            self.stuck = stuck;
            for stage in &self.stages {
                stage.counters.blocked.store(stuck, Ordering::Relaxed);
            }
        }
    }

    /// Works on everything up to the least end of the heads; there is one on every inlet.
    fn step(&mut self, now: Instant) -> Result<Instant, Error> {
        self.working = 0;
        let cut = self.cut();
        let Taken { end, block, control, born } =
            if self.inlets.len() == 1 { self.take_one(cut) } else { self.take_in_step(cut)? };
        let range = SeqRange::new(self.position, end);
        let mut time = now;
        for number in 0..self.stages.len() {
            self.working = number;
            let before = self.stages[number].counters.records_in.get();
            let at = Moment { now: time, born };
            // The time of a call includes handing its output on: partitioning is part of an operator's cost.
            if let Err(error) = self.work(number, &block, control.as_ref(), range, at) {
                self.stages[number].fail(error, range.start)?;
                // Every stage after it has less to work on.
                self.stages[number + 1..].iter().for_each(|stage| stage.leave_out(range.start));
            }
            let stage = &mut self.stages[number];
            for link in stage.ports.iter_mut().flat_map(|port| &mut port.links) {
                match &control {
                    Some(control) => link.control(end, control, born)?,
                    None => link.settle(end)?,
                }
            }
            for (to, batch) in self.handed.drain(..) {
                self.stages[to].inbox.push(batch);
            }
            let done = Instant::now();
            let nanos = done.saturating_duration_since(time).as_nanos() as u64;
            let counters = &self.stages[number].counters;
            counters.busy_nanos.add(nanos);
            let records = counters.records_in.get() - before;
            if records > 0
                && let Some(born) = born
            {
                counters.latency.add(done.saturating_duration_since(born), records);
            }
            time = done;
        }
        self.position = end;
        self.passed.store(end, Ordering::Relaxed);
        for (inlet, cost) in self.used.drain(..) {
            self.inlets[inlet].receiver.release(cost);
        }
        if matches!(control, Some(Control::End)) {
            self.ended = true;
        }
        self.look_for_stuck();
        Ok(time)
    }

    /// Gives a stage what it is to work on, and hands on what it emits.
    fn work(
        &mut self,
        number: usize,
        block: &Data,
        control: Option<&Control>,
        range: SeqRange,
        at: Moment,
    ) -> Result<(), Error> {
        let stage = &mut self.stages[number];
        match block {
            Data::Block(sequenced) if number == 0 => {
                stage.decode(sequenced)?;
                stage.hand_on(range, at, &mut self.handed)?;
            }
            _ if number == 0 => {
                stage.process(self.pieces.drain(..), range)?;
                stage.hand_on(range, at, &mut self.handed)?;
            }
            _ => stage.process_inbox(range, at, &mut self.handed)?,
        }
        if let Some(control) = control {
            // Rows that came with the tick's own number are before it, here as on every ring.
            stage.control(control, range.end - 1)?;
            stage.hand_on(range, at, &mut self.handed)?;
        }
        Ok(())
    }

    /// The number after the records that the operator takes at once, if those are fewer than are there.
    fn cut(&mut self) -> Seq {
        let mut cut = Seq::MAX;
        let operator = &mut self.stages[0];
        for inlet in &self.inlets {
            let Some(Head { data: Data::Batch(batch), .. }) = &inlet.head else { continue };
            let rows = operator.rows_at_once(batch);
            if rows < batch.len() {
                let (first, next) = (batch.seq(batch.row(0)), batch.seq(batch.row(rows)));
                // Records of one number stay together.
                cut = cut.min(if next > first { next } else { next + 1 });
            }
        }
        cut
    }

    /// One ring: its head, as it is or up to `cut`.
    fn take_one(&mut self, cut: Seq) -> Taken {
        let inlet = &mut self.inlets[0];
        if let Some(Head { end, data: Data::Batch(batch), born, .. }) = &mut inlet.head
            && cut < *end
        {
            let (before, after) = batch.split(cut);
            *batch = after;
            let task = if self.order == InputOrder::Grouped { inlet.task } else { 0 };
            let range = SeqRange::new(self.position, cut);
            self.pieces.push((InputId { port: inlet.port, task }, before.with_range(range)));
            return Taken { end: cut, block: Data::Nothing, control: None, born: *born };
        }
        let head = inlet.head.take().expect("a step begins when every inlet has a head");
        self.used.push((0, head.cost));
        let Head { end, data, control, born, .. } = head;
        let block = match data {
            Data::Batch(batch) => {
                let task = if self.order == InputOrder::Grouped { inlet.task } else { 0 };
                if !batch.is_empty() {
                    self.pieces.push((InputId { port: inlet.port, task }, batch));
                }
                Data::Nothing
            }
            other => other,
        };
        Taken { end, block, control, born }
    }

    /// Several rings: rows below the least end of the heads, port by port.
    fn take_in_step(&mut self, cut: Seq) -> Result<Taken, Error> {
        let mut end = cut;
        for inlet in &self.inlets {
            end = end.min(inlet.head.as_ref().map_or(Seq::MAX, |head| head.end));
        }
        if self.order == InputOrder::Merged {
            end = self.before_overlap(end);
        }
        let range = SeqRange::new(self.position, end);
        let (mut control, mut born) = (None, None);
        for (number, inlet) in self.inlets.iter_mut().enumerate() {
            let Some(head) = &mut inlet.head else { continue };
            let whole = head.end == end;
            let pieces = self.pieces.len();
            if let Data::Batch(batch) = &mut head.data
                && let Some((first, last)) = bounds(batch)
            {
                let id = InputId { port: inlet.port, task: inlet.task };
                if last < end {
                    if let Data::Batch(batch) = std::mem::replace(&mut head.data, Data::Nothing) {
                        self.pieces.push((id, batch.with_range(range)));
                    }
                } else if first < end {
                    let (before, after) = batch.split(end);
                    *batch = after;
                    self.pieces.push((id, before.with_range(range)));
                }
            }
            if self.pieces.len() > pieces || (whole && head.control.is_some()) {
                born = older(born, head.born);
            }
            if whole && let Some(head) = inlet.head.take() {
                control = control.or(head.control);
                self.used.push((number, head.cost));
            }
        }
        if control.is_some() && self.inlets.iter().any(|inlet| inlet.head.is_some()) {
            return Err(Error::internal(format!(
                "number {} is a tick or its like on one link and something else on another",
                end - 1
            )));
        }
        if self.order == InputOrder::Merged {
            self.merge_pieces(range)?;
        }
        Ok(Taken { end, block: Data::Nothing, control, born })
    }

    /// Where large pieces of one port follow each other without overlapping (blocks that several decoders
    /// took in turn), they are given one after the other: this is the end of the first.
    fn before_overlap(&self, end: Seq) -> Seq {
        let mut cut = end;
        let mut first_of_port: Option<(usize, Seq, Seq, usize)> = None;
        for inlet in &self.inlets {
            let Some(Head { data: Data::Batch(batch), .. }) = &inlet.head else { continue };
            let Some((first, last)) = bounds(batch).filter(|(first, _)| *first < cut) else { continue };
            match first_of_port {
                Some((port, other_first, other_last, rows)) if port == inlet.port => {
                    if other_last < first && rows >= LARGE {
                        cut = first;
                    } else if last < other_first && batch.len() >= LARGE {
                        cut = other_first;
                        first_of_port = Some((port, first, last, batch.len()));
                    } else if first < other_first {
                        first_of_port = Some((port, first, last, batch.len()));
                    }
                }
                _ => first_of_port = Some((inlet.port, first, last, batch.len())),
            }
        }
        cut
    }

    /// One batch per port, merged by order number and upstream task.
    fn merge_pieces(&mut self, range: SeqRange) -> Result<(), Error> {
        let mut from = 0;
        while from < self.pieces.len() {
            let port = self.pieces[from].0.port;
            let same = self.pieces[from..].iter().take_while(|(id, _)| id.port == port).count();
            if same > 1 {
                let batches: Vec<Batch> =
                    self.pieces[from..from + same].iter().map(|(_, batch)| batch.clone()).collect();
                self.pieces[from].1 = merge(&batches, range)?;
                self.pieces.drain(from + 1..from + same);
            }
            self.pieces[from].0.task = 0;
            from += 1;
        }
        Ok(())
    }
}

fn links(stages: &mut [Stage]) -> impl Iterator<Item = &mut crate::link::Link> {
    stages.iter_mut().flat_map(|stage| &mut stage.ports).flat_map(|port| &mut port.links)
}

/// Keeps a scheduled task from running before its time.
struct Gate {
    schedule: Schedule,
    /// Timers fire at whole multiples of the interval from here.
    base: Instant,
    /// When the task runs although not enough records wait.
    due: Option<Instant>,
    /// It runs until nothing waits any more.
    open: bool,
}

impl Gate {
    /// `None` if the task may run, else when it has to be asked again (or only when woken).
    fn wait(&mut self, inlets: &[Inlet], now: Instant) -> Option<Option<Instant>> {
        if self.open {
            return None;
        }
        let waiting = inlets.iter().any(|inlet| inlet.head.is_some() || !inlet.receiver.is_empty());
        if !waiting {
            self.due = None;
            return Some(None);
        }
        let enough = self.schedule.records.is_some_and(|wanted| {
            inlets.iter().map(|inlet| inlet.receiver.waiting_records()).sum::<u64>() >= wanted
        });
        let due = *self.due.get_or_insert_with(|| match self.schedule.every {
            None => now + COUNT_ONLY_WAIT,
            Some(every) => {
                let every = every.max(Duration::from_micros(1));
                let passed = now.saturating_duration_since(self.base).as_nanos() / every.as_nanos() + 1;
                self.base + Duration::from_nanos(u64::try_from(passed * every.as_nanos()).unwrap_or(u64::MAX))
            }
        });
        if enough || due <= now || inlets.iter().any(|inlet| inlet.receiver.is_urgent()) {
            self.open = true;
            self.due = None;
            return None;
        }
        Some(Some(due))
    }
}
