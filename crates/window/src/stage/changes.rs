//! What a cycle changed, as keys and values for a back end, and the keys under which it keeps them.

use std::fmt;

use crate::image::{self, Malformed, Reader};

/// Changes of a cycle, each key at most once: its new value, or that it is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    start: usize,
    key_end: usize,
    /// `None`: the key is gone.
    value_end: Option<usize>,
}

impl Changes {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Keys with their new values, `None` for those that are gone; in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.entries.iter().map(|entry| {
            let key = &self.bytes[entry.start..entry.key_end];
            (key, entry.value_end.map(|end| &self.bytes[entry.key_end..end]))
        })
    }

    /// A key and its value: what `body` appends, sealed.
    pub(super) fn put<E>(
        &mut self,
        key: Key,
        body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        let key = key.to_bytes();
        self.bytes.extend_from_slice(&key);
        let key_end = self.bytes.len();
        let mut outcome = Ok(());
        image::seal(&key, &mut self.bytes, |out| outcome = body(out));
        if outcome.is_ok() {
            self.entries.push(Entry { start, key_end, value_end: Some(self.bytes.len()) });
        }
        outcome
    }

    pub(super) fn remove(&mut self, key: Key) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&key.to_bytes());
        self.entries.push(Entry { start, key_end: self.bytes.len(), value_end: None });
    }
}

/// Where a value is kept. As bytes: kind 1, then numbers, big-endian, so that keys are in order where a back end keeps
/// them so. The kinds are persisted: do not renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Kind 1: a group, by the id of its GROUP BY (0: none) and its number.
    Group { grouping: u32, group: u32 },
    /// Kind 2: a frame of open rows.
    Rows(u64),
    /// Kind 3: a frame of ids.
    Ids(u64),
    /// Kind 4: tags of groups, by the id of their GROUP BY and the number of their block.
    Tags { grouping: u32, block: u32 },
}

/// Whether a key of [`Changes`] is one of a group.
pub fn is_group(key: &[u8]) -> bool {
    key.first() == Some(&1)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Group { grouping: 0, .. } => write!(f, "the group of all records"),
            Key::Group { grouping, group } => write!(f, "group {group} of GROUP BY {grouping}"),
            Key::Rows(frame) => write!(f, "frame {frame} of open rows"),
            Key::Ids(frame) => write!(f, "frame {frame} of ids"),
            Key::Tags { grouping, block } => write!(f, "block {block} of tags of GROUP BY {grouping}"),
        }
    }
}

impl Key {
    pub(super) fn to_bytes(self) -> [u8; 9] {
        let (kind, number) = match self {
            Key::Group { grouping, group } => (1, u64::from(grouping) << 32 | u64::from(group)),
            Key::Rows(frame) => (2, frame),
            Key::Ids(frame) => (3, frame),
            Key::Tags { grouping, block } => (4, u64::from(grouping) << 32 | u64::from(block)),
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = reader.byte("kind of a key")?;
        let number = u64::from_be_bytes(reader.array("number of a key")?);
        reader.finish("key")?;
        match kind {
            1 => Ok(Key::Group { grouping: (number >> 32) as u32, group: number as u32 }),
            2 => Ok(Key::Rows(number)),
            3 => Ok(Key::Ids(number)),
            4 => Ok(Key::Tags { grouping: (number >> 32) as u32, block: number as u32 }),
            other => Err(reader.malformed("kind of a key", "1 to 4", other)),
        }
    }
}
