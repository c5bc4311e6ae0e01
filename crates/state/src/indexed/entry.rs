//! One change in a segment, readable by itself.
//!
//! Layout (little-endian): checksum 4, key length 4, value length 4 (all ones: tombstone), cycle 8, key, value.
//! * Lengths come before what they measure, so that entries of a frame are walked without an index.
//! * The checksum begins with segment and byte, which are not stored: an entry somewhere else is invalid.
//! * The cycle is the one that wrote the value; compaction copies it.
//!
//! A payload of a frame is nothing but entries.

use crate::wire::Fields;

/// Bytes of an entry before its key.
pub(super) const ENTRY_HEADER: usize = 20;

/// Bytes that an entry may have.
pub(super) const MAX_ENTRY: u64 = 1 << 28;

const TOMBSTONE: u32 = u32::MAX;

/// One key's value, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) cycle: u64,
    pub(super) key: &'a [u8],
    pub(super) value: Option<&'a [u8]>,
}

/// Bytes that are no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryFault {
    pub(super) what: &'static str,
    pub(super) expected: u64,
    pub(super) got: u64,
}

/// With what the checksums of a segment's entries begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntrySeed(u32);

impl EntrySeed {
    pub(super) fn new(segment_identity: u64) -> Self {
        Self(crc32fast::hash(&segment_identity.to_le_bytes()))
    }

    fn checksum(self, start: u64, body: &[u8]) -> u32 {
        // Entries begin below 2^30.
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0 ^ (start as u32));
        hasher.update(body);
        hasher.finalize()
    }
}

impl<'a> Entry<'a> {
    /// Bytes on disk.
    #[inline]
    pub(super) fn stored_len(&self) -> u64 {
        (ENTRY_HEADER + self.key.len() + self.value.map_or(0, <[u8]>::len)) as u64
    }

    /// Appends the entry, which will be at byte `start` of its segment. At most [`MAX_ENTRY`] bytes.
    #[inline]
    pub(super) fn encode(&self, seed: EntrySeed, start: u64, out: &mut Vec<u8>) {
        let at = out.len();
        let mut header = [0; ENTRY_HEADER];
        header[4..8].copy_from_slice(&(self.key.len() as u32).to_le_bytes());
        let value_len = self.value.map_or(TOMBSTONE, |value| value.len() as u32);
        header[8..12].copy_from_slice(&value_len.to_le_bytes());
        header[12..].copy_from_slice(&self.cycle.to_le_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value.unwrap_or_default());
        let crc = seed.checksum(start, &out[at + 4..]);
        out[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// The entry at the beginning of `bytes`, checked.
    pub(super) fn decode(bytes: &'a [u8], seed: EntrySeed, start: u64) -> Result<Self, EntryFault> {
        let (entry, stored) = parse(bytes)?;
        let len = entry.stored_len() as usize;
        let actual = seed.checksum(start, &bytes[4..len]);
        if actual != stored {
            let (expected, got) = (u64::from(stored), u64::from(actual));
            return Err(EntryFault { what: "checksum of the entry", expected, got });
        }
        Ok(entry)
    }
}

fn parse(bytes: &[u8]) -> Result<(Entry<'_>, u32), EntryFault> {
    let short = |expected: u64| EntryFault { what: "bytes of the entry", expected, got: bytes.len() as u64 };
    let mut fields = Fields::new(bytes);
    let mut header = || Some((fields.u32()?, fields.u32()?, fields.u32()?, fields.u64()?));
    let (crc, key_len, value_len, cycle) = header().ok_or(short(ENTRY_HEADER as u64))?;
    let value_bytes = if value_len == TOMBSTONE { 0 } else { value_len };
    let total = ENTRY_HEADER as u64 + u64::from(key_len) + u64::from(value_bytes);
    let key = fields.bytes(key_len as usize).ok_or(short(total))?;
    let value = fields.bytes(value_bytes as usize).ok_or(short(total))?;
    Ok((Entry { cycle, key, value: (value_len != TOMBSTONE).then_some(value) }, crc))
}

/// The entries of a frame's payload, which the frame's checksum has vouched for, with the byte of the payload at
/// which each begins.
pub(super) fn entries(
    payload: &[u8],
) -> impl Iterator<Item = Result<(usize, Entry<'_>), (usize, EntryFault)>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == payload.len() {
            return None;
        }
        Some(match parse(&payload[at..]) {
            Ok((entry, _)) => {
                let start = at;
                at += entry.stored_len() as usize;
                Ok((start, entry))
            }
            Err(fault) => {
                let start = std::mem::replace(&mut at, payload.len());
                Err((start, fault))
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_come_back_and_every_flipped_bit_is_found(
            key in proptest::collection::vec(any::<u8>(), 0..40),
            value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..60)),
            cycle in any::<u64>(),
            start in 0_u64..1 << 30,
            bit in any::<usize>(),
        ) {
            let seed = EntrySeed::new(5);
            let entry = Entry { cycle, key: &key, value: value.as_deref() };
            let mut bytes = Vec::new();
            entry.encode(seed, start, &mut bytes);
            prop_assert_eq!(bytes.len() as u64, entry.stored_len());
            prop_assert_eq!(Entry::decode(&bytes, seed, start), Ok(entry));
            prop_assert!(Entry::decode(&bytes, seed, start ^ 1).is_err(), "elsewhere");
            prop_assert!(Entry::decode(&bytes, EntrySeed::new(6), start).is_err(), "in another segment");
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Entry::decode(&bytes, seed, start).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Entry::decode(&bytes, EntrySeed::new(5), 0);
            let _ = entries(&bytes).count();
        }
    }
}
