//! Where reading goes on in each partition: the contents of [`thalweg_flow::SourcePosition::place`].
//!
//! The partitions are in the order of their numbers, by which the order log names them. A partition is read only once a
//! commit record has it, so that its number means the same after a crash.

use bytes::Buf as _;
use thalweg_kafka::{Message, TopicId, TopicPartition};

/// Version of the bytes. Persisted.
const VERSION: u8 = 1;

/// The place in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset of the message that is read next, or is being read.
    pub offset: i64,
    /// How many of its records were taken.
    pub row: u32,
    /// Offset and digest of the last message that was taken whole.
    pub last: Option<(i64, u32)>,
}

impl Place {
    pub fn at(offset: i64) -> Self {
        Self { offset, row: 0, last: None }
    }
}

/// A partition that the job has, or has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) of: TopicPartition,
    /// `None` where the broker has no ids.
    pub(super) id: Option<TopicId>,
    pub(super) place: Place,
}

/// Version 1; then for each partition length 2 and text of the topic, number 4, whether there is an id 1, id 16, offset 8,
/// records taken 4, whether there is a last message 1, its offset 8, its digest 4; little-endian.
pub(super) fn to_bytes<'a>(
    known: impl Iterator<Item = (&'a TopicPartition, Option<TopicId>, Place)>,
) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    for (of, id, Place { offset, row, last }) in known {
        // Kafka takes 249 bytes at most.
        bytes.extend_from_slice(&(of.topic.len() as u16).to_le_bytes());
        bytes.extend_from_slice(of.topic.as_bytes());
        bytes.extend_from_slice(&of.partition.to_le_bytes());
        bytes.push(u8::from(id.is_some()));
        bytes.extend_from_slice(&id.map_or([0; 16], |id| id.0));
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&row.to_le_bytes());
        let (at, digest) = last.unwrap_or_default();
        bytes.push(u8::from(last.is_some()));
        bytes.extend_from_slice(&at.to_le_bytes());
        bytes.extend_from_slice(&digest.to_le_bytes());
    }
    bytes
}

/// `None` if the bytes are no such place.
pub(super) fn of_bytes(bytes: &[u8]) -> Option<Vec<Known>> {
    let (&VERSION, mut rest) = bytes.split_first()? else { return None };
    let mut all = Vec::new();
    while rest.has_remaining() {
        let len = usize::from(rest.try_get_u16_le().ok()?);
        let topic = std::str::from_utf8(rest.get(..len)?).ok()?.to_owned();
        rest.advance(len);
        let partition = rest.try_get_i32_le().ok()?;
        let has_id = flag(&mut rest)?;
        let mut id = [0; 16];
        rest.try_copy_to_slice(&mut id).ok()?;
        let (offset, row) = (rest.try_get_i64_le().ok()?, rest.try_get_u32_le().ok()?);
        let has_last = flag(&mut rest)?;
        let last = (rest.try_get_i64_le().ok()?, rest.try_get_u32_le().ok()?);
        if partition < 0 || offset < 0 {
            return None;
        }
        let place = Place { offset, row, last: has_last.then_some(last) };
        let of = TopicPartition::new(topic, partition);
        all.push(Known { of, id: has_id.then_some(TopicId(id)), place });
    }
    Some(all)
}

fn flag(bytes: &mut &[u8]) -> Option<bool> {
    match bytes.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// What a message is recognized by when a job goes on: key, value and whether each is there.
pub(super) fn digest(message: &Message<'_>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in [message.key, message.value] {
        let len = part.map_or(u64::MAX, |part| part.len() as u64);
        hasher.update(&len.to_le_bytes());
        hasher.update(part.unwrap_or_default());
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_and_other_bytes_are_none() {
        let known = [
            Known {
                of: TopicPartition::new("payments", 3),
                id: Some(TopicId([7; 16])),
                place: Place { offset: 7, row: 3, last: Some((6, 0xdead_beef)) },
            },
            Known { of: TopicPartition::new("other", 0), id: None, place: Place::at(i64::MAX) },
        ];
        let bytes = to_bytes(known.iter().map(|known| (&known.of, known.id, known.place)));
        assert_eq!(of_bytes(&bytes).unwrap(), known);
        for end in 0..bytes.len() {
            assert!(of_bytes(&bytes[..end]).is_none_or(|found| found.len() < 2), "{end}");
        }
        assert_eq!(of_bytes(&[]), None);
        assert_eq!(of_bytes(&[9]), None);
        let wrong = Known { of: TopicPartition::new("t", 0), id: None, place: Place::at(-1) };
        assert_eq!(of_bytes(&to_bytes(std::iter::once((&wrong.of, wrong.id, wrong.place)))), None);
    }

    #[test]
    fn a_digest_tells_null_from_empty_and_key_from_value() {
        let message = |key: Option<&'static [u8]>, value: Option<&'static [u8]>| {
            digest(&Message { offset: 0, timestamp: None, key, value, headers: &|_| {} })
        };
        let all = [
            message(None, Some(b"a")),
            message(Some(b"a"), None),
            message(Some(b""), Some(b"a")),
            message(None, None),
            message(None, Some(b"")),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
    }
}
