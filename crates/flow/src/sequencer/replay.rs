//! After a crash: the order log is followed, entry by entry, before anything new is numbered.
//!
//! After the last entry come blocks that no entry names and to which answers may have been given all the same, where a
//! source keeps the order and nobody waited for the entry ([`crate::Source::tells_order`]): [`Sequencer::take_left`].
//! No tick, marker or command comes before or between them, and each has the arrival that it had.

use std::sync::Arc;
use std::time::Instant;

use thalweg_types::{Error, SeqRange};

use super::{Pace, Sequencer, TURN};
use crate::ring::Control;
use crate::worker::Verdict;
use crate::{Command, CommandMaker, LeftBlock, OrderEntry, OrderEvent, ReplayRun, Wanted};

/// The entries of a log, one after the other.
type Entries = Box<dyn Iterator<Item = Result<OrderEntry, Error>> + Send>;

/// What is there after the last commit.
pub(super) struct Replay {
    /// What the order log says; `None` after its last entry.
    entries: Option<Entries>,
    commands: CommandMaker,
    /// An entry that is not done with.
    present: Option<OrderEntry>,
    /// The source that is asked for blocks that no entry names.
    left: usize,
}

impl Replay {
    pub(super) fn new(entries: Entries, commands: CommandMaker) -> Self {
        Self { entries: Some(entries), commands, present: None, left: 0 }
    }

    /// The next entry; `None` after the last, for good: records that are numbered from then on are in the same log.
    fn next(&mut self) -> Result<Option<OrderEntry>, Error> {
        if let Some(entry) = self.present.take() {
            return Ok(Some(entry));
        }
        let entry = self.entries.as_mut().and_then(Iterator::next).transpose()?;
        if entry.is_none() {
            self.entries = None;
        }
        Ok(entry)
    }
}

/// How a step of a replay went.
enum Step {
    Done,
    /// A ring has no room.
    Full,
    /// There is nothing left to follow.
    End,
}

impl Sequencer {
    /// Follows the order log for a while.
    pub(super) fn follow(&mut self, now: Instant) -> Result<Verdict, Error> {
        let until = now + TURN;
        let mut time = now;
        while time < until && !self.is_stuck() {
            let Some(replay) = &mut self.replay else { break };
            let step = match replay.next()? {
                Some(entry) => self.repeat(entry)?,
                None => self.take_left()?,
            };
            match step {
                Step::Done => {}
                Step::Full => {
                    self.tell_ranges();
                    return Ok(if self.has_missed_room() { Verdict::Again } else { Verdict::Idle(None) });
                }
                Step::End => {
                    self.replay = None;
                    self.tick = Pace(self.clock.steady());
                    self.cycle = self.tick;
                    return Ok(Verdict::Again);
                }
            }
            time = Instant::now();
        }
        self.tell_ranges();
        Ok(if self.is_stuck() && !self.unstick() { Verdict::Idle(None) } else { Verdict::Again })
    }

    /// Numbers the next block that a source gives and no entry names.
    fn take_left(&mut self) -> Result<Step, Error> {
        let Some(replay) = &mut self.replay else { return Ok(Step::End) };
        let source = replay.left;
        // What stays to be read numbers nothing any more.
        let feed = self.feeds.get_mut(source).filter(|_| !self.core.leaves_out());
        let Some(feed) = feed else { return Ok(Step::End) };
        if !feed.has_room() || self.core.received.is_full() {
            return Ok(Step::Full);
        }
        self.asking = Some(source);
        match feed.source.left()? {
            None => replay.left += 1,
            Some(LeftBlock { block, arrival }) => {
                if self.next == 0 {
                    // Nothing was durable, and nothing answered: operators know the time before the first record.
                    self.look_at_clock();
                    self.make_tick()?;
                }
                self.clock.follow(arrival);
                self.give_range(source, block, false)?;
            }
        }
        self.asking = None;
        Ok(Step::Done)
    }

    /// Does again what an entry says.
    fn repeat(&mut self, entry: OrderEntry) -> Result<Step, Error> {
        if entry.range.start != self.next {
            return Err(Error::corrupt(format!(
                "the order log goes on with number {}, expected {}",
                entry.range.start, self.next
            )));
        }
        match entry.event {
            OrderEvent::Run { source, partition, offset, arrival } => {
                let Some(feed) = self.feeds.get_mut(source) else {
                    return Err(Error::corrupt(format!(
                        "the order log names source {source} of {}",
                        self.feeds.len()
                    )));
                };
                if !feed.has_room() || self.core.received.is_full() {
                    self.keep(entry);
                    return Ok(Step::Full);
                }
                self.clock.follow(arrival);
                self.asking = Some(source);
                let run = ReplayRun { partition, first: offset, count: entry.range.len() };
                let block = feed.give_again(run, self.options.block_bytes)?;
                let count = u64::from(block.count);
                self.asking = None;
                self.send(source, block, &[Wanted { partition, count }]);
                if self.next < entry.range.end {
                    let event = OrderEvent::Run { source, partition, offset: offset + count, arrival };
                    self.keep(OrderEntry { range: SeqRange::new(self.next, entry.range.end), event });
                }
            }
            OrderEvent::Tick { now } => {
                self.clock.follow(now);
                self.send_tick();
            }
            OrderEvent::Cycle { number } => {
                if number != self.cycle_number + 1 {
                    return Err(Error::corrupt(format!(
                        "the order log goes on with cycle {number}, expected {}",
                        self.cycle_number + 1
                    )));
                }
                self.send_cycle(false);
            }
            OrderEvent::Command { record } => {
                let command = match (&record, &self.replay) {
                    (Some(record), Some(replay)) => (replay.commands)(record)?,
                    _ => Command::nothing(),
                };
                self.control(&Control::Command(Arc::new(command)));
            }
            // The run that wrote it ended in order; this one goes on where it stopped.
            OrderEvent::End => self.control(&Control::Command(Arc::new(Command::nothing()))),
        }
        Ok(Step::Done)
    }

    fn keep(&mut self, entry: OrderEntry) {
        if let Some(replay) = &mut self.replay {
            replay.present = Some(entry);
        }
    }
}
