//! The keys under which a back end keeps what a cycle changed, and how values are put under them.
//!
//! Not here: which keys a cycle has (`checkpoint`), what values say (`group`, `tags`, `crate::reservoir`, `crate::ids`).

use std::fmt;

use thalweg_state::Changes;

use super::group;
use crate::image::{self, Malformed, Reader};

/// Changes under keys of a stage, values sealed.
pub(super) trait Sealed {
    /// A key and its value: what `body` appends, sealed.
    fn put<E>(&mut self, key: Key, body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E>;

    fn drop_key(&mut self, key: Key);
}

impl Sealed for Changes {
    fn put<E>(&mut self, key: Key, body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let version = if let Key::Group { .. } = key { group::VERSION } else { image::VERSION };
        let key = key.to_bytes();
        self.push_with(&key, |out| {
            let mut outcome = Ok(());
            image::seal(version, &key, out, |out| outcome = body(out));
            outcome
        })
    }

    fn drop_key(&mut self, key: Key) {
        self.remove(&key.to_bytes());
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
    /// Kind 5: a piece of a list, by the id of its leaf and its number.
    Piece { leaf: u32, number: u32 },
}

/// Whether a key that a stage has handed over is one of a group.
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
            Key::Piece { leaf, number } => write!(f, "piece {number} of the values of leaf {leaf}"),
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
            Key::Piece { leaf, number } => (5, u64::from(leaf) << 32 | u64::from(number)),
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
            5 => Ok(Key::Piece { leaf: (number >> 32) as u32, number: number as u32 }),
            other => Err(reader.malformed("kind of a key", "1 to 5", other)),
        }
    }
}
