//! Scouts: they look at the messages of a partition that the client of their source holds, a block ahead of it, for the
//! times of their records. The messages stay there for the source, and are fetched once.

use std::sync::Arc;
use std::time::Instant;

use thalweg_flow::{Poll, RawBlock, Source};
use thalweg_kafka::{Bus, Problem, TopicPartition};
use thalweg_types::{Error, Micros, PartitionId};
use tracing::warn;

use super::cutting::{Gathering, PartitionReader};
use super::figures::PartitionFigures;
use super::messages::{Messages, Origin};
use super::place::Place;
use super::source::{Client, PAUSE, Plan, bounds, cut_short, overtaken};

/// Where a scout begins, and what it shares with its source.
#[derive(Clone)]
pub(super) struct Begin {
    /// Number of the partition in the source.
    pub(super) at: usize,
    /// The same in the client.
    pub(super) number: usize,
    pub(super) of: TopicPartition,
    pub(super) place: Place,
    /// Where a bounded source ends: both have to end at the same message.
    pub(super) end: Option<i64>,
    pub(super) plan: Plan,
    pub(super) bus: Arc<dyn Bus>,
    pub(super) client: Client,
    pub(super) origins: Arc<[Origin]>,
    pub(super) figures: Arc<PartitionFigures>,
}

/// Looks ahead in one partition.
pub(super) struct Ahead {
    begin: Begin,
    reader: PartitionReader,
    /// All up to the end were looked at.
    is_at_end: bool,
}

impl Ahead {
    pub(super) fn new(begin: Begin) -> Self {
        begin.client.lock().peek_again(begin.number);
        let reader = PartitionReader::new(begin.at, &*begin.plan.reading.format, begin.place);
        Self { begin, reader, is_at_end: false }
    }

    /// The client's place is not there: before the first message, or after the last.
    fn out_of_range(&mut self, error: Error) -> Result<(), Error> {
        let Begin { number, of, plan, bus, client, figures, .. } = &self.begin;
        let (bounds, place) = (bounds(&**bus, of)?, self.reader.place.offset);
        if place > bounds.end {
            return Err(cut_short(of, place, bounds));
        }
        let mut from = place;
        if place < bounds.start {
            overtaken(plan, of, figures, place, bounds)?;
            from = bounds.start;
            self.reader = PartitionReader::new(self.begin.at, &*plan.reading.format, Place::at(from));
        } else if self.begin.place.last.is_none() {
            return Err(error);
        }
        // Else the message before the place has gone, which is no loss. All that was looked at before was taken: the
        // source asks for more than that only then.
        client.lock().seek(*number, from)?;
        Ok(())
    }
}

impl Source for Ahead {
    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        let Begin { at, number, of, end, plan, client, origins, .. } = &self.begin;
        let messages = Messages::new(origins);
        let mut block = Gathering::new(messages, max_bytes, plan.reading.format.block_records());
        self.reader.go_on(&plan.reading, &mut block)?;
        let mut passes = Ok(());
        if !block.is_full() && !self.reader.is_waiting() {
            let (reader, is_at_end, mut failure) = (&mut self.reader, &mut self.is_at_end, None);
            let peeked = client.lock().peek(*number, &mut |message| match reader.add_up_to(
                *end,
                is_at_end,
                message,
                &plan.reading,
                &mut block,
            ) {
                Ok(more) => more,
                Err(error) => {
                    failure = Some(error);
                    false
                }
            });
            if let Some(failure) = failure {
                return Err(failure.context(format!("read {of}")));
            }
            match peeked {
                Ok(peeked) => {
                    let seen = peeked.end.is_some_and(|seen| end.is_some_and(|end| seen >= end));
                    self.is_at_end |= seen;
                }
                Err(error) if error.is_passing() => {
                    warn!(source = &*plan.source, %error, "waiting for a broker");
                }
                Err(error) if error.problem == Problem::OutOfRange => passes = Err(error.into()),
                Err(error) => return Err(error.into()),
            }
        }
        let (at, count) = (*at as PartitionId, block.count());
        if let Some(cut) = block.finish(!plan.reading.parts.is_empty()) {
            return Ok(Poll::Block(RawBlock { partition: at, first: 0, count, payload: cut.into_payload() }));
        }
        if let Err(error) = passes {
            self.out_of_range(error)?;
        } else if self.is_at_end && !self.reader.is_waiting() {
            return Ok(Poll::End);
        }
        Ok(Poll::PendingUntil(Instant::now() + PAUSE))
    }

    fn drain(&mut self) {}
}
