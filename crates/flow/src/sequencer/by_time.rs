//! Sources that are read by event time: of several, the one whose own time is least is numbered next.
//!
//! The own time of a source is the greatest event time that it has given, as it is for a task. So records of one source keep
//! their order, and none is later behind the merge than it was in its source, whatever its disorder: when a record is
//! numbered, no source that is read so has gone further than this record's own had. Of equal times the source that the
//! job names first is first.
//!
//! To know times before there are numbers, each of these sources has a *scout*: the same source opened once more, which is read
//! and decoded a block ahead. The source itself gives the records then, as many as are to be numbered, and never stands behind
//! any other: so what a commit says of its place holds here as elsewhere. Nothing of a scout is kept but times of one block.
//!
//! After a restart the own time begins with the first record that is read then: the order of what is not numbered yet may be
//! another one than without the restart, if records are out of order there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use thalweg_types::{Error, Micros, Offset, PartitionId, Seq, SeqRange};

use super::{FeedState, Sequencer};
use crate::{Decoded, Decoder, Poll, RawBlock, ReplayRun, Source};

/// What looks ahead in a source.
pub(crate) struct Scout {
    source: Box<dyn Source>,
    decoder: Box<dyn Decoder>,
    /// It has gone to where its source stood when the first new record was wanted.
    is_placed: bool,
    ahead: Option<Ahead>,
    /// The greatest event time so far.
    newest: Micros,
}

/// A block that the scout has read and the source has not given yet, or not all of it.
struct Ahead {
    partition: PartitionId,
    first: Offset,
    /// The source's own time at each record.
    times: Vec<Micros>,
    /// Records that the source has given.
    given: usize,
}

impl Ahead {
    fn time(&self) -> Micros {
        self.times[self.given]
    }

    /// How many of the records from here on are before another source, at most `u32::MAX`.
    fn count_before(&self, other: Option<(Micros, usize)>, own: usize) -> u64 {
        let rest = &self.times[self.given..];
        match other {
            None => rest.len() as u64,
            Some(other) => rest.partition_point(|time| (*time, own) < other) as u64,
        }
    }
}

impl Scout {
    pub(crate) fn new(source: Box<dyn Source>, decoder: Box<dyn Decoder>) -> Self {
        Self { source, decoder, is_placed: false, ahead: None, newest: Micros::MIN }
    }

    /// Reads until it has a record ahead; what the source said where it has none.
    fn look(&mut self, behind: &dyn Source, block_bytes: usize, now: Micros) -> Result<Option<Poll>, Error> {
        if !std::mem::replace(&mut self.is_placed, true) {
            let position = behind.position();
            if position.next > 0 {
                self.source.restore(&position)?;
            }
        }
        while self.ahead.is_none() {
            match self.source.poll(block_bytes, now)? {
                Poll::Block(block) if block.count > 0 => self.ahead = Some(self.read(&block, now)),
                Poll::Block(_) => {}
                said => return Ok(Some(said)),
            }
        }
        Ok(None)
    }

    fn read(&mut self, block: &RawBlock, now: Micros) -> Ahead {
        let range = SeqRange::new(0, Seq::from(block.count));
        let mut times = vec![Micros::MIN; block.count as usize];
        // What cannot be decoded fails where the source's own decoder comes to it, which names the record.
        let decoded = catch_unwind(AssertUnwindSafe(|| self.decoder.decode(block, range, now)));
        if let Ok(Ok(Decoded { records, .. })) = decoded {
            for row in records.row_numbers() {
                times[records.seq(row) as usize] = records.times()[row as usize];
            }
        }
        // What is no record has no time, and comes with the one before it.
        for time in &mut times {
            self.newest = self.newest.max(*time);
            *time = self.newest;
        }
        Ahead { partition: block.partition, first: block.first, times, given: 0 }
    }
}

impl Sequencer {
    /// Numbers records of that source whose time is least, of those that are read by time; whether there were any.
    pub(super) fn take_by_time(&mut self) -> Result<bool, Error> {
        let (block_bytes, now) = (self.options.block_bytes, self.clock.now());
        // Least and second least time, with the place of their source.
        let (mut least, mut second) = (None, None);
        for (index, feed) in self.feeds.iter_mut().enumerate() {
            let Some(scout) = feed.scout.as_mut().filter(|_| feed.state != FeedState::Ended) else {
                continue;
            };
            if scout.ahead.is_none() {
                feed.woken.store(false, Ordering::Release);
                self.asking = Some(index);
                match scout.look(feed.source.as_ref(), block_bytes, now)? {
                    None => feed.state = FeedState::Ready,
                    Some(Poll::End) => {
                        feed.end();
                        self.asking = None;
                        continue;
                    }
                    // Nothing can be numbered before its time is known.
                    Some(said) => {
                        feed.state = FeedState::Waiting(match said {
                            Poll::PendingUntil(until) => Some(until),
                            _ => None,
                        });
                        self.asking = None;
                        return Ok(false);
                    }
                }
                self.asking = None;
            }
            let head = scout.ahead.as_ref().map(|ahead| (ahead.time(), index));
            second = [second, head].into_iter().flatten().min();
            if least.is_none_or(|least| head < Some(least)) {
                (least, second) = (head, least);
            }
        }
        let Some((_, index)) = least else { return Ok(false) };
        let feed = &mut self.feeds[index];
        if !feed.has_room() {
            return Ok(false);
        }
        let Some(ahead) = feed.scout.as_mut().and_then(|scout| scout.ahead.as_mut()) else {
            return Ok(false);
        };
        let run = ReplayRun {
            partition: ahead.partition,
            first: ahead.first + ahead.given as Offset,
            count: ahead.count_before(second, index).max(1),
        };
        self.asking = Some(index);
        let block = feed.give_again(run, block_bytes)?;
        if let Some(scout) = &mut feed.scout
            && let Some(ahead) = &mut scout.ahead
        {
            ahead.given += block.count as usize;
            if ahead.given == ahead.times.len() {
                scout.ahead = None;
            }
        }
        self.number(index, block)?;
        self.asking = None;
        Ok(true)
    }
}
