//! After a crash: the order log is followed, entry by entry, before anything new is numbered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use thalweg_types::{Error, SeqRange};

use super::{Pace, Sequencer, TURN};
use crate::ring::Control;
use crate::worker::Verdict;
use crate::{Command, CommandMaker, OrderEntry, OrderEvent, ReplayRun};

/// The entries of a log, one after the other.
type Entries = Box<dyn Iterator<Item = Result<OrderEntry, Error>> + Send>;

/// What the order log says behind the last commit.
pub(super) struct Replay {
    entries: Entries,
    commands: CommandMaker,
    /// An entry that is not done with.
    present: Option<OrderEntry>,
}

impl Replay {
    pub(super) fn new(entries: Entries, commands: CommandMaker) -> Self {
        Self { entries, commands, present: None }
    }
}

impl Sequencer {
    /// Follows the order log for a while.
    pub(super) fn follow(&mut self, now: Instant) -> Result<Verdict, Error> {
        let until = now + TURN;
        let mut time = now;
        while time < until && !self.is_stuck() {
            let Some(replay) = &mut self.replay else { break };
            let entry = match replay.present.take() {
                Some(entry) => entry,
                None => match replay.entries.next() {
                    Some(entry) => entry?,
                    None => {
                        self.replay = None;
                        self.tick = Pace { at: time, clock: self.now };
                        self.cycle = self.tick;
                        return Ok(Verdict::Again);
                    }
                },
            };
            if !self.repeat(entry, time)? {
                self.tell_ranges();
                return Ok(Verdict::Idle(None));
            }
            time = Instant::now();
        }
        self.tell_ranges();
        Ok(if self.is_stuck() && !self.unstick() { Verdict::Idle(None) } else { Verdict::Again })
    }

    /// Does again what an entry says; `false` if a ring has no room for it yet.
    fn repeat(&mut self, entry: OrderEntry, time: Instant) -> Result<bool, Error> {
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
                let turn = feed.turn;
                let open = feed.rings[turn].sender.is_open();
                feed.counters.blocked.store(!open, Ordering::Relaxed);
                if !open {
                    self.keep(entry);
                    return Ok(false);
                }
                self.now = self.now.max(arrival);
                self.asking = Some(source);
                let run = ReplayRun { partition, first: offset, count: entry.range.len() };
                let block = feed.source.replay(run, self.options.block_bytes)?;
                let count = u64::from(block.count);
                if block.first != offset || count == 0 || count > run.count {
                    return Err(Error::internal(format!(
                        "source {:?} was to give {} records from offset {offset} again and gave {count} from {}",
                        feed.name, run.count, block.first
                    )));
                }
                self.asking = None;
                let range = SeqRange::new(self.next, self.next + count);
                let bytes = self.send(source, block, range);
                self.cycle_bytes += bytes;
                self.cycle_records += count;
                if range.end < entry.range.end {
                    let event = OrderEvent::Run { source, partition, offset: offset + count, arrival };
                    self.keep(OrderEntry { range: SeqRange::new(range.end, entry.range.end), event });
                }
            }
            OrderEvent::Tick { now } => {
                self.now = self.now.max(now);
                self.send_tick(time);
            }
            OrderEvent::Cycle { number } => {
                if number != self.cycle_number + 1 {
                    return Err(Error::corrupt(format!(
                        "the order log goes on with cycle {number}, expected {}",
                        self.cycle_number + 1
                    )));
                }
                self.send_cycle(time, false);
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
        Ok(true)
    }

    fn keep(&mut self, entry: OrderEntry) {
        if let Some(replay) = &mut self.replay {
            replay.present = Some(entry);
        }
    }
}
