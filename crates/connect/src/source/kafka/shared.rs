//! Partitions of a topic that units of a cluster read, each by itself: what the source and whoever reads for a unit share.
//!
//! A unit goes on by the place in its own commit, and where it has none by what was committed to a group: below that all
//! records have gone on to where they count. So there are no scouts, no watch and no numbers of partitions here.

use std::sync::Arc;
use std::time::Duration;

use thalweg_flow::{Decoder, Payload, TaskFactory};
use thalweg_kafka::{Bounds, Bus, Isolation, Message, TopicPartition};
use thalweg_types::Error;
use tracing::warn;

use super::cutting::{Gathering, PartitionReader, Reading};
use super::messages::{Messages, Origin};
use super::place::{Place, digest};
use super::source::{Missing, bounds, cut_short, deleted, made_anew};
use super::{From, beginnings, formats, isolation, missing, queue, reading, refresh};
use crate::format::RecordFormat;
use crate::kafka::{MakeBus, settings};
use crate::source::decoders_of;
use crate::{Options, SourceContext};

/// The topic of a source.
pub struct SharedTopic {
    pub bus: Arc<dyn Bus>,
    pub topic: Arc<str>,
    pub isolation: Isolation,
    /// Bytes that a client keeps of all partitions together.
    pub queue: usize,
    /// How often to look for new partitions.
    pub refresh: Duration,
    source: Arc<str>,
    format: Arc<dyn RecordFormat>,
    reading: Reading,
    missing: Missing,
    from: From,
}

/// The topic that units may read for a source with these options.
///
/// # Errors
/// Of class user: says which option is in the way.
pub(super) fn topic(options: &Options) -> Result<Arc<str>, Error> {
    if options.text("until").is_some() {
        return Err(Error::user("has `until`, and a job of a cluster has no end")
            .with_hint("leave `until` out, or run the job on one node, without --cluster"));
    }
    match options.list("topics") {
        Some([one]) => Ok(one.as_str().into()),
        _ => Err(Error::user("reads several topics, or those of a pattern, and one so far on a cluster")
            .with_hint("name one topic in `topics`, and give each of the others a job of its own")),
    }
}

pub(super) fn open(make_bus: &MakeBus, context: &SourceContext) -> Result<SharedTopic, Error> {
    let options = &context.options;
    let topic = topic(options)?;
    let format = Arc::new(formats(context)?);
    Ok(SharedTopic {
        bus: make_bus(settings(options, format_args!("thalweg.{}.{}", context.job, context.name))?)?,
        topic,
        isolation: isolation(options),
        queue: queue(options),
        refresh: refresh(options),
        source: Arc::clone(&context.name),
        reading: reading(context, &format),
        format,
        missing: missing(options),
        from: From::of(options)?,
    })
}

impl SharedTopic {
    /// How many partitions the topic has.
    ///
    /// # Errors
    /// If it does not exist, or no broker says.
    pub fn partitions(&self) -> Result<u32, Error> {
        let topics = self.bus.topics(Some(&[Arc::clone(&self.topic)]))?;
        let count = topics.first().and_then(|topic| u32::try_from(topic.partitions).ok());
        count.filter(|count| *count > 0).ok_or_else(|| {
            Error::user(format!("topic {:?} has no partitions", self.topic)).with_hint("make the topic first")
        })
    }

    /// Where a job begins in a partition of which it has read nothing, as its file says.
    ///
    /// # Errors
    /// If no broker says.
    pub fn beginning(&self, of: &TopicPartition) -> Result<i64, Error> {
        let topics = self.bus.topics(Some(&[Arc::clone(&of.topic)]))?;
        let known = beginnings(&*self.bus, &topics, self.from)?;
        let own = known.into_iter().find(|known| known.of == *of);
        own.map(|known| known.place.offset).ok_or_else(|| {
            Error::user(format!("there is no partition {of}")).with_hint("bring the topic back as it was")
        })
    }

    /// Compares a place with what the partition has, and says from which offset it is read: that of the message before,
    /// where there is one to compare. Where messages were deleted before they were read, `skip` has the place go on after them.
    ///
    /// # Errors
    /// Of class corrupt where the place is not in the partition, or messages are missing and may not be.
    pub fn go_on(&self, of: &TopicPartition, place: &mut Place) -> Result<i64, Error> {
        let bounds = bounds(&*self.bus, of)?;
        if place.offset > bounds.end {
            return Err(cut_short(of, place.offset, bounds));
        }
        if place.offset < bounds.start {
            self.skip(of, place, bounds)?;
        }
        place.last = place.last.filter(|(offset, _)| *offset >= bounds.start);
        Ok(place.last.map_or(place.offset, |(offset, _)| offset))
    }

    /// Goes on after messages that were deleted before they were read, where the job may.
    ///
    /// # Errors
    /// Where it may not.
    pub fn skip(&self, of: &TopicPartition, place: &mut Place, bounds: Bounds) -> Result<(), Error> {
        if self.missing == Missing::Refuse {
            return Err(deleted(&self.source, of, place.offset, bounds));
        }
        let missing = bounds.start - place.offset;
        warn!(source = &*self.source, partition = %of, missing, "messages were deleted before they were read: going on without them");
        *place = Place::at(bounds.start);
        Ok(())
    }

    /// The error for another message than the one that was read at an offset.
    pub fn made_anew(&self, of: &TopicPartition, offset: i64) -> Error {
        made_anew(of, offset)
    }

    /// Reads a partition from a place.
    pub fn reader(&self, of: &TopicPartition, place: Place) -> TopicReader {
        TopicReader {
            reader: PartitionReader::new(0, &*self.format, place),
            reading: self.reading.clone(),
            origins: [Origin::new(of)].into(),
        }
    }

    /// Decode tasks for its blocks. `context` is that of the source.
    pub fn decoder(&self, context: &SourceContext) -> TaskFactory<dyn Decoder> {
        decoders_of(context, Arc::clone(&self.format))
    }
}

/// Cuts the messages of one partition into records.
pub struct TopicReader {
    reader: PartitionReader,
    reading: Reading,
    origins: Arc<[Origin]>,
}

/// A block under construction.
pub struct TopicBlock(Gathering);

/// Records of a partition, in order.
pub struct TopicRecords {
    pub count: u32,
    pub payload: Payload,
    pub places: TopicPlaces,
}

/// Where each record of a block is in its partition.
#[derive(Clone)]
pub struct TopicPlaces(Arc<Messages>);

impl TopicPlaces {
    /// Offset of the message of a record, by its number in the block, and which record of that message it is.
    pub fn at(&self, index: u32) -> (i64, u32) {
        let found = self.0.of(index);
        (found.offset, found.row)
    }
}

impl std::fmt::Debug for TopicPlaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicPlaces").finish_non_exhaustive()
    }
}

impl TopicBlock {
    /// Has it take nothing more: a message that is added waits for the next one.
    pub fn close(&mut self) {
        self.0.close();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TopicReader {
    /// A block with what waits of messages that were added before, as far as it fits; whether it may have more.
    ///
    /// # Errors
    /// If format and cutter disagree.
    pub fn begin(&mut self, max_bytes: usize) -> Result<(TopicBlock, bool), Error> {
        let most = self.reading.format.block_records();
        let mut block = Gathering::new(Messages::new(&self.origins), max_bytes, most);
        self.reader.go_on(&self.reading, &mut block)?;
        let has_room = !block.is_full() && !self.reader.is_waiting();
        Ok((TopicBlock(block), has_room))
    }

    /// Adds a message, unless it is below the place. Whether to go on.
    ///
    /// # Errors
    /// As [`TopicReader::begin`].
    pub fn add(&mut self, message: &Message<'_>, block: &mut TopicBlock) -> Result<bool, Error> {
        self.reader.add_up_to(None, &mut false, message, &self.reading, &mut block.0)
    }

    /// The records of a block; `None` where there are none.
    pub fn finish(&self, block: TopicBlock) -> Option<TopicRecords> {
        let (cut, messages) = block.0.finish_with_places(!self.reading.parts.is_empty())?;
        Some(TopicRecords { count: cut.count, payload: cut.into_payload(), places: TopicPlaces(messages) })
    }

    /// Where reading goes on.
    pub fn place(&self) -> Place {
        self.reader.place
    }

    /// Whether messages that were added have records that are in no block yet.
    pub fn is_waiting(&self) -> bool {
        self.reader.is_waiting()
    }

    /// What a message is recognized by.
    pub fn digest(message: &Message<'_>) -> u32 {
        digest(message)
    }
}
