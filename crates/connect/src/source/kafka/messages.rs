//! What a block knows about its messages: where each record is from, and the parts of a message that are fields on wish.
//!
//! Messages are kept one by one; where each is one record and offsets follow one another, which is nearly always so in
//! blocks of one partition, one number says it all.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use thalweg_kafka::{Message, TopicPartition};

use super::super::cut::RecordPlaces;
use super::fields::MetaField;

/// A partition that messages are from.
#[derive(Debug)]
pub(super) struct Origin {
    /// Topic and partition, as `topic[3]`.
    pub(super) label: Arc<str>,
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
}

impl Origin {
    pub(super) fn new(of: &TopicPartition) -> Self {
        Self { label: of.to_string().into(), topic: Arc::clone(&of.topic), partition: of.partition }
    }
}

/// The messages of a block, in order.
#[derive(Debug)]
pub(crate) struct Messages {
    /// By the numbers that their source gave them.
    origins: Arc<[Origin]>,
    places: Places,
    /// One for each message, where fields need them.
    pub(super) parts: Vec<Parts>,
    /// The bytes of all keys and headers.
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
enum Places {
    /// Each record is a message of one partition, and their offsets follow one another.
    Dense {
        origin: u32,
        first: i64,
        count: u32,
    },
    Each(Vec<OneMessage>),
}

#[derive(Clone, Copy, Debug)]
struct OneMessage {
    /// Records of the block up to its end.
    end: u32,
    origin: u32,
    offset: i64,
    /// How many of its records came before.
    before: u32,
}

/// The message of a record.
pub(super) struct Found<'a> {
    /// Its number in the block.
    pub(super) message: usize,
    pub(super) origin: &'a Origin,
    pub(super) offset: i64,
    /// Which record of the message it is.
    pub(super) row: u32,
}

/// The parts of a message beside its value.
#[derive(Debug)]
pub(super) struct Parts {
    /// Milliseconds since 1970.
    pub(super) timestamp: Option<i64>,
    /// One per field that asks for key or header, in the order of the fields: its place in the bytes; `None` where the
    /// message has none, or a null.
    pub(super) texts: Vec<Option<Range<u32>>>,
}

impl Messages {
    pub(super) fn new(origins: &Arc<[Origin]>) -> Self {
        Self {
            origins: Arc::clone(origins),
            places: Places::Dense { origin: 0, first: 0, count: 0 },
            parts: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Adds a message of a partition of which the block has `records` records, after `before` that an earlier block has.
    pub(super) fn push(
        &mut self,
        origin: u32,
        message: &Message<'_>,
        records: u32,
        before: u32,
        fields: &[MetaField],
    ) {
        self.place(origin, message.offset, records, before);
        if fields.is_empty() {
            return;
        }
        let mut texts = Vec::new();
        for field in fields {
            match field {
                MetaField::Key => texts.push(message.key.map(|key| keep(&mut self.bytes, key))),
                MetaField::Header(name) => {
                    let mut found = None;
                    // Of several by one name the last one counts, as for Kafka's own clients.
                    (message.headers)(&mut |header| {
                        if header.name == name {
                            found = header.value.map(|value| keep(&mut self.bytes, value));
                        }
                    });
                    texts.push(found);
                }
                MetaField::Topic | MetaField::Partition | MetaField::Offset | MetaField::Timestamp => {}
            }
        }
        self.parts.push(Parts { timestamp: message.timestamp, texts });
    }

    fn place(&mut self, origin: u32, offset: i64, records: u32, before: u32) {
        match &mut self.places {
            Places::Dense { count: 0, .. } if records == 1 && before == 0 => {
                self.places = Places::Dense { origin, first: offset, count: 1 };
            }
            Places::Dense { origin: one, first, count }
                if records == 1 && before == 0 && *one == origin && *first + i64::from(*count) == offset =>
            {
                *count += 1;
            }
            Places::Dense { origin: one, first, count } => {
                let (one, first, count) = (*one, *first, *count);
                let each = (0..count).map(|n| OneMessage {
                    end: n + 1,
                    origin: one,
                    offset: first + i64::from(n),
                    before: 0,
                });
                let last = OneMessage { end: count + records, origin, offset, before };
                self.places = Places::Each(each.chain([last]).collect());
            }
            Places::Each(each) => {
                let end = each.last().map_or(0, |last| last.end) + records;
                each.push(OneMessage { end, origin, offset, before });
            }
        }
    }

    /// Message of a record, by its number in the block.
    pub(super) fn of(&self, index: u32) -> Found<'_> {
        let (message, origin, offset, row) = match &self.places {
            Places::Dense { origin, first, .. } => (index as usize, *origin, first + i64::from(index), 0),
            Places::Each(each) => {
                let at = each.partition_point(|one| one.end <= index).min(each.len().saturating_sub(1));
                let begin = if at == 0 { 0 } else { each[at - 1].end };
                let OneMessage { origin, offset, before, .. } = each[at];
                (at, origin, offset, before + index.saturating_sub(begin))
            }
        };
        Found { message, origin: &self.origins[origin as usize], offset, row }
    }
}

impl RecordPlaces for Messages {
    /// `topic[3]@1234`, with `+N` for the records of a message after its first.
    fn place_of(&self, index: u32) -> String {
        let Found { origin, offset, row, .. } = self.of(index);
        let mut text = format!("{}@{offset}", origin.label);
        if row > 0 {
            let _ = write!(text, "+{row}");
        }
        text
    }
}

fn keep(bytes: &mut Vec<u8>, text: &[u8]) -> Range<u32> {
    let start = bytes.len() as u32;
    bytes.extend_from_slice(text);
    start..bytes.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(offset: i64) -> Message<'static> {
        Message { offset, timestamp: None, key: None, value: Some(b"x"), headers: &|_| {} }
    }

    #[test]
    fn each_record_knows_its_message() {
        let origins = [2, 5].map(|partition| Origin::new(&TopicPartition::new("t", partition)));
        let mut messages = Messages::new(&origins.into());
        for offset in [7, 8] {
            messages.push(0, &message(offset), 1, 0, &[]);
        }
        assert!(matches!(messages.places, Places::Dense { .. }));
        let place = |messages: &Messages, index| {
            let Found { message, offset, row, .. } = messages.of(index);
            (message, offset, row)
        };
        assert_eq!([0, 1].map(|n| place(&messages, n)), [(0, 7, 0), (1, 8, 0)]);
        // A gap, a message of three records, the rest of one that began before, and one of another partition.
        messages.push(0, &message(10), 3, 0, &[]);
        messages.push(0, &message(11), 1, 4, &[]);
        messages.push(1, &message(12), 1, 0, &[]);
        let places: Vec<String> = (0..7).map(|n| messages.place_of(n)).collect();
        assert_eq!(places, ["t[2]@7", "t[2]@8", "t[2]@10", "t[2]@10+1", "t[2]@10+2", "t[2]@11+4", "t[5]@12"]);
        assert_eq!(place(&messages, 4), (2, 10, 2));
    }

    #[test]
    fn offsets_that_go_on_in_another_partition_are_not_of_the_first() {
        let origins = [0, 1].map(|partition| Origin::new(&TopicPartition::new("t", partition)));
        let mut messages = Messages::new(&origins.into());
        for (origin, offset) in [(1, 7), (0, 8), (1, 8)] {
            messages.push(origin, &message(offset), 1, 0, &[]);
        }
        assert_eq!([0, 1, 2].map(|n| messages.place_of(n)), ["t[1]@7", "t[0]@8", "t[1]@8"]);
    }
}
