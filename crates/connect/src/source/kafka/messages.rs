//! What a block knows about its messages: where each record is from, and the parts of a message that are fields on wish.
//!
//! Messages are kept in runs, one per message; where each is one record and offsets follow one another, which is nearly
//! always, one number says it all.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use thalweg_kafka::Message;

use super::super::cut::RecordPlaces;
use super::fields::MetaField;

/// The messages of a block, in order.
#[derive(Debug)]
pub(crate) struct Messages {
    /// Topic and partition, as `topic[3]`.
    pub(super) label: Arc<str>,
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    places: Places,
    /// One for each message, where fields need them.
    pub(super) parts: Vec<Parts>,
    /// The bytes of all keys and headers.
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
enum Places {
    /// Each record is a message, and their offsets follow one another.
    Dense { first: i64, count: u32 },
    /// For each message the number of records up to its end, its offset, and how many of its records came before.
    Each(Vec<(u32, i64, u32)>),
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
    pub(super) fn new(label: &Arc<str>, topic: &Arc<str>, partition: i32) -> Self {
        Self {
            label: Arc::clone(label),
            topic: Arc::clone(topic),
            partition,
            places: Places::Dense { first: 0, count: 0 },
            parts: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Adds a message of which the block has `records` records, after `before` that an earlier block has.
    pub(super) fn push(&mut self, message: &Message<'_>, records: u32, before: u32, fields: &[MetaField]) {
        self.place(message.offset, records, before);
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

    fn place(&mut self, offset: i64, records: u32, before: u32) {
        match &mut self.places {
            Places::Dense { first, count }
                if records == 1 && before == 0 && (*count == 0 || *first + i64::from(*count) == offset) =>
            {
                if *count == 0 {
                    *first = offset;
                }
                *count += 1;
            }
            Places::Dense { first, count } => {
                let mut each: Vec<_> = (0..*count).map(|n| (n + 1, *first + i64::from(n), 0)).collect();
                each.push((*count + records, offset, before));
                self.places = Places::Each(each);
            }
            Places::Each(each) => {
                let end = each.last().map_or(0, |(end, ..)| *end);
                each.push((end + records, offset, before));
            }
        }
    }

    /// Message of a record, by its number in the block: its number and offset, and which record of the message it is.
    pub(super) fn of(&self, index: u32) -> (usize, i64, u32) {
        match &self.places {
            Places::Dense { first, .. } => (index as usize, first + i64::from(index), 0),
            Places::Each(each) => {
                let at = each.partition_point(|(end, ..)| *end <= index).min(each.len().saturating_sub(1));
                let begin = if at == 0 { 0 } else { each[at - 1].0 };
                let (_, offset, before) = each[at];
                (at, offset, before + index.saturating_sub(begin))
            }
        }
    }
}

impl RecordPlaces for Messages {
    /// `topic[3]@1234`, with `+N` for the records of a message after its first.
    fn place_of(&self, index: u32) -> String {
        let (_, offset, row) = self.of(index);
        let mut text = format!("{}@{offset}", self.label);
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
        let mut messages = Messages::new(&"t[2]".into(), &"t".into(), 2);
        for offset in [7, 8] {
            messages.push(&message(offset), 1, 0, &[]);
        }
        assert_eq!((0..2).map(|n| messages.of(n)).collect::<Vec<_>>(), [(0, 7, 0), (1, 8, 0)]);
        assert!(matches!(messages.places, Places::Dense { .. }));
        // A gap, a message of three records, the rest of one that began before.
        messages.push(&message(10), 3, 0, &[]);
        messages.push(&message(11), 1, 4, &[]);
        let places: Vec<String> = (0..6).map(|n| messages.place_of(n)).collect();
        assert_eq!(places, ["t[2]@7", "t[2]@8", "t[2]@10", "t[2]@10+1", "t[2]@10+2", "t[2]@11+4"]);
    }
}
