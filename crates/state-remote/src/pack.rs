//! Bytes of values and of the log's parts as they are stored.
//!
//! * A value: its bytes, then the checksum of key and value, so that it is never empty and never that of another key.
//! * A part (little-endian): format 2, then per change: key length 4, value length 4 plus one (0: taken away), key, value;
//!   checksum 4.

use thalweg_state::wire::{self, Fields};
use thalweg_state::{Change, Changes};

const FORMAT: u16 = 1;
const CHECKSUM: usize = 4;
/// Bytes of a change in addition to its key and value.
pub(crate) const CHANGE: usize = 8;

fn checksum(key: &[u8], value: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(value);
    hasher.finalize().to_le_bytes()
}

pub(crate) fn stored(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len() + CHECKSUM);
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(&checksum(key, value));
    bytes
}

/// The value; `None` where it is damaged or another key's.
pub(crate) fn value_of(key: &[u8], mut stored: Vec<u8>) -> Option<Vec<u8>> {
    let at = stored.len().checked_sub(CHECKSUM)?;
    (checksum(key, &stored[..at]) == stored[at..]).then(|| {
        stored.truncate(at);
        stored
    })
}

/// Gathers changes into a part.
#[derive(Debug)]
pub(crate) struct Packer(Vec<u8>);

impl Packer {
    pub(crate) fn new() -> Self {
        Self(FORMAT.to_le_bytes().to_vec())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == size_of::<u16>()
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Lengths were checked against the store's limits.
    pub(crate) fn push(&mut self, change: Change<'_>) {
        self.0.extend_from_slice(&(change.key.len() as u32).to_le_bytes());
        let value = change.value.map_or(0, |value| value.len() as u32 + 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self.0.extend_from_slice(change.key);
        self.0.extend_from_slice(change.value.unwrap_or_default());
    }

    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::replace(self, Self::new()).0;
        wire::seal(&mut bytes);
        bytes
    }
}

/// The changes in a part; `None` where it is damaged.
pub(crate) fn unpack(part: &[u8]) -> Option<Changes> {
    let mut fields = Fields::new(wire::checked(part).ok()?);
    fields.u16().filter(|format| *format == FORMAT)?;
    let mut changes = Changes::new();
    while !fields.rest().is_empty() {
        let (key, value) = (fields.u32()?, fields.u32()?);
        let key = fields.bytes(key as usize)?;
        match value.checked_sub(1) {
            Some(len) => changes.push(key, fields.bytes(len as usize)?),
            None => changes.remove(key),
        }
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_comes_back_and_damage_is_seen() {
        let mut changes = Changes::new();
        changes.push(b"", b"empty key");
        changes.push(b"k", b"");
        changes.remove(b"gone");
        let mut packer = Packer::new();
        assert!(packer.is_empty());
        changes.iter().for_each(|change| packer.push(change));
        let part = packer.finish();
        assert!(packer.is_empty());
        assert_eq!(unpack(&part), Some(changes));
        for at in 0..part.len() {
            let mut damaged = part.clone();
            damaged[at] ^= 0x10;
            assert_eq!(unpack(&damaged), None);
            assert_eq!(unpack(&part[..at]), None);
        }
    }

    #[test]
    fn a_value_is_its_keys_own() {
        let bytes = stored(b"key", b"value");
        assert_eq!(value_of(b"key", bytes.clone()).unwrap(), b"value");
        assert_eq!(value_of(b"kez", bytes.clone()), None);
        assert_eq!(value_of(b"ke", stored(b"key", b"")), None);
        assert_eq!(value_of(b"key", bytes[..3].to_vec()), None);
        assert_eq!(value_of(b"key", stored(b"key", b"")).unwrap(), b"");
    }
}
