//! Sources that are read by event time: of several partitions, the one whose own time is least is numbered next.
//!
//! The own time of a partition is the greatest event time that it has given, as it is for a task. So records of one partition
//! keep their order, and none is later after the merge than it was in its partition, whatever its disorder: when a
//! record is numbered, no partition that is read so has gone further than this record's own had. Of equal times the
//! source that the job names first is first, then the partition with the lowest number.
//!
//! To know times before there are numbers, each partition has a *scout*: a reader of its own ([`Source::scouts`]) whose
//! records are decoded a block ahead. The source itself gives the records then, as many as are to be numbered, and is
//! never after any other: so what a commit says of its place holds here as elsewhere. Nothing of a scout is kept but times of
//! one block; where there are many, one that has not begun is closed again once the time of its first record is known.
//!
//! After a restart the own time begins with the first record that is read then: the order of records that are not
//! numbered yet may be another one than without the restart, if records are out of order there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use thalweg_types::{Error, Micros, PartitionId, Seq, SeqRange};

use super::{FeedState, Sequencer};
use crate::{Decoded, Decoder, Poll, RawBlock, ScoutReader, Source, Wanted};

/// Scouts of a source that stay open before their turn has come.
const MOST_KEPT: usize = 64;

/// Scouts of a source that may be open: each of its partitions has two open files then.
const MOST_OPEN: usize = 1_000;

/// Runs of records of one partition that a block is made of at most.
const MOST_RUNS: usize = 1_024;

/// What looks ahead in the partitions of a source.
pub(crate) struct Scouts {
    decoder: Box<dyn Decoder>,
    /// Those that have not come to their end; `None` before the first new record is requested.
    left: Option<Vec<Scout>>,
    /// How many of them are open.
    open: usize,
}

struct Scout {
    reader: ScoutReader,
    source: Option<Box<dyn Source>>,
    head: Head,
    /// The greatest event time so far.
    newest: Micros,
}

/// What is known of the next records of a partition.
enum Head {
    Unknown,
    /// The time of the first one; the scout is closed.
    First(Micros),
    Times(Times),
    Ended,
}

struct Times {
    /// The partition's own time at each.
    own: Vec<Micros>,
    /// How many of them the source has given.
    given: usize,
    /// Up to where the source is to be asked next.
    planned: usize,
}

/// The record that is numbered first has the least of these: own time, place of the source, partition.
type Rank = (Micros, usize, PartitionId);

impl Scouts {
    pub(crate) fn new(decoder: Box<dyn Decoder>) -> Self {
        Self { decoder, left: None, open: 0 }
    }
}

impl Scout {
    fn new(reader: ScoutReader) -> Self {
        Self { reader, source: None, head: Head::Unknown, newest: Micros::MIN }
    }

    /// Of the first record that is not planned yet.
    fn time(&self) -> Option<Micros> {
        match &self.head {
            Head::First(time) => Some(*time),
            Head::Times(times) => times.own.get(times.planned).copied(),
            Head::Unknown | Head::Ended => None,
        }
    }

    /// Plans the records whose times are known and before another partition, and one at least; how many these are.
    fn plan(&mut self, other: Option<Rank>, source: usize) -> u64 {
        let Head::Times(times) = &mut self.head else { return 0 };
        let before =
            |time: &&Micros| other.is_none_or(|other| (**time, source, self.reader.partition) < other);
        let rest = &times.own[times.planned..];
        // Mostly few: partitions take turns.
        let count = rest.iter().skip(1).take_while(before).count() + 1;
        times.planned += count;
        count as u64
    }

    /// The source has given records, and nothing is planned any more.
    fn give(&mut self, count: usize) {
        if let Head::Times(times) = &mut self.head {
            times.given += count;
            times.planned = times.given;
            if times.given == times.own.len() {
                self.head = Head::Unknown;
            }
        }
    }

    /// Reads until it has records ahead, or has come to its end; what the source said where it has neither. With `is_brief` it
    /// is closed again. `open` counts the scouts that are open.
    fn look(
        &mut self,
        open: &mut usize,
        decoder: &mut dyn Decoder,
        is_brief: bool,
        block_bytes: usize,
        now: Micros,
    ) -> Result<Option<Poll>, Error> {
        let mut source = match self.source.take() {
            Some(source) => {
                *open -= 1;
                source
            }
            None => (self.reader.open)()?,
        };
        let times = loop {
            match source.poll(block_bytes, now)? {
                Poll::Block(block) if block.count > 0 => break self.read(decoder, &block, now),
                Poll::Block(_) => {}
                Poll::End => {
                    self.head = Head::Ended;
                    return Ok(None);
                }
                said => {
                    *open += 1;
                    self.source = Some(source);
                    return Ok(Some(said));
                }
            }
        };
        if is_brief {
            (self.head, self.newest) = (Head::First(times[0]), Micros::MIN);
        } else {
            *open += 1;
            let times = Times { own: times, given: 0, planned: 0 };
            (self.head, self.source) = (Head::Times(times), Some(source));
        }
        Ok(None)
    }

    fn read(&mut self, decoder: &mut dyn Decoder, block: &RawBlock, now: Micros) -> Vec<Micros> {
        let range = SeqRange::new(0, Seq::from(block.count));
        let mut times = vec![Micros::MIN; block.count as usize];
        // What cannot be decoded fails where the source's own decoder comes to it, which names the record.
        let decoded = catch_unwind(AssertUnwindSafe(|| decoder.decode(block, range, now)));
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
        times
    }
}

impl Sequencer {
    /// Numbers records of those partitions whose time is least, of those that are read by time; whether there were any.
    pub(super) fn take_by_time(&mut self) -> Result<bool, Error> {
        let mut are_known = true;
        for index in 0..self.feeds.len() {
            if self.feeds[index].scouts.is_none() || self.feeds[index].state == FeedState::Ended {
                continue;
            }
            self.asking = Some(index);
            are_known &= self.look_ahead(index)?;
            self.asking = None;
        }
        // Nothing can be numbered before the time of all is known.
        if !are_known {
            return Ok(false);
        }
        // By rank, and the place among the scouts of their source.
        let mut next: BinaryHeap<Reverse<(Rank, usize)>> = BinaryHeap::new();
        for (index, feed) in self.feeds.iter().enumerate() {
            let scouts = feed.scouts.iter().flat_map(|scouts| scouts.left.iter().flatten()).enumerate();
            next.extend(scouts.filter_map(|(place, scout)| {
                Some(Reverse(((scout.time()?, index, scout.reader.partition), place)))
            }));
        }
        let Some(&Reverse(((_, index, _), _))) = next.peek() else { return Ok(false) };
        let feed = &mut self.feeds[index];
        if !feed.has_room() {
            return Ok(false);
        }
        self.asking = Some(index);
        let (block_bytes, now) = (self.options.block_bytes, self.clock.now());
        let most = if feed.source.mixes_partitions() { MOST_RUNS } else { 1 };
        let Some(scouts) = &mut feed.scouts else { return Ok(false) };
        let left = scouts.left.get_or_insert_default();
        let (mut wanted, mut places) = (Vec::new(), Vec::new());
        while let Some(Reverse(((_, source, partition), place))) = next.pop() {
            if source != index || wanted.len() == most {
                break;
            }
            let scout = &mut left[place];
            if matches!(scout.head, Head::First(_)) {
                if !wanted.is_empty() {
                    break;
                }
                if scouts.open >= MOST_OPEN {
                    return Err(Error::user(format!(
                        "source {:?} has more than {MOST_OPEN} files whose times overlap, and cannot read them by time",
                        feed.name
                    ))
                    .with_hint("put them together, or read them one after the other: `order: arrival`"));
                }
                scout.look(&mut scouts.open, &mut *scouts.decoder, false, block_bytes, now)?;
                match scout.head {
                    Head::Times(_) => {}
                    // The record that was there is gone, which the source can name.
                    Head::Ended => {
                        wanted.push(Wanted { partition, count: 1 });
                        places.push(place);
                        break;
                    }
                    // It has to be fetched again, and wakes the source then.
                    Head::Unknown | Head::First(_) => {
                        self.asking = None;
                        return Ok(false);
                    }
                }
            }
            let other = next.peek().map(|Reverse((rank, _))| *rank);
            wanted.push(Wanted { partition, count: scout.plan(other, index) });
            places.push(place);
            match scout.time() {
                Some(time) => next.push(Reverse(((time, index, partition), place))),
                // What comes after it is not known.
                None => break,
            }
        }
        let block = feed.source.take(&wanted, block_bytes)?;
        let mut rest = u64::from(block.count);
        let most: u64 = wanted.iter().map(|wanted| wanted.count).sum();
        if rest == 0 || rest > most || block.partition != wanted[0].partition {
            return Err(Error::internal(format!(
                "source {:?} was to give {most} records, the first of partition {}, and gave {rest}, the first of {}",
                feed.name, wanted[0].partition, block.partition
            )));
        }
        for (wanted, place) in wanted.iter_mut().zip(places) {
            wanted.count = wanted.count.min(rest);
            rest -= wanted.count;
            left[place].give(wanted.count as usize);
        }
        wanted.retain(|wanted| wanted.count > 0);
        self.give_ranges(index, block, &wanted, false)?;
        self.look_at_size()?;
        self.asking = None;
        Ok(true)
    }

    /// Finds out the next time of each partition of a source; `false` where one has nothing yet.
    fn look_ahead(&mut self, index: usize) -> Result<bool, Error> {
        let (block_bytes, now) = (self.options.block_bytes, self.clock.now());
        let feed = &mut self.feeds[index];
        let Some(scouts) = &mut feed.scouts else { return Ok(true) };
        let is_known = |scout: &Scout| !matches!(scout.head, Head::Unknown);
        if scouts.left.as_ref().is_some_and(|left| left.iter().all(is_known)) {
            return Ok(true);
        }
        let left = match &mut scouts.left {
            Some(left) => left,
            none => {
                let readers = feed.source.scouts()?.into_iter();
                none.insert(readers.map(Scout::new).collect())
            }
        };
        feed.woken.store(false, Ordering::Release);
        let (mut has_ended, mut waits) = (false, None);
        // All are asked, so that those that have nothing yet fetch it at the same time.
        for scout in left.iter_mut().filter(|scout| !is_known(scout)) {
            let is_brief = scout.source.is_none() && scouts.open >= MOST_KEPT;
            let decoder = &mut *scouts.decoder;
            if let Some(said) = scout.look(&mut scouts.open, decoder, is_brief, block_bytes, now)? {
                let until = match said {
                    Poll::PendingUntil(until) => Some(until),
                    _ => None,
                };
                let sooner = |other: Option<Instant>| match (until, other) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
                waits = Some(waits.map_or(until, sooner));
            } else if matches!(scout.head, Head::Ended) {
                feed.source.finished(scout.reader.partition);
                has_ended = true;
            }
        }
        if has_ended {
            left.retain(|scout| !matches!(scout.head, Head::Ended));
        }
        if let Some(until) = waits {
            feed.state = FeedState::Waiting(until);
            return Ok(false);
        }
        feed.state = FeedState::Ready;
        if left.is_empty() {
            feed.end();
        }
        Ok(true)
    }
}
