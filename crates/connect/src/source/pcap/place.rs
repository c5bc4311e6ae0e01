//! Where reading of captures goes on: the contents of [`thalweg_flow::SourcePosition::place`].
//!
//! Layout (little-endian): mark 8, version 1, captures 4, then for each: length of the path 4, path, datagrams given 8,
//! length and hash of the beginning 8 + 8, bytes at its end + 1, or 0 where it was not read to its end, 8, packets and
//! datagrams given at that end 8 + 8. Persisted. Version 1, of builds that did not put IP fragments together, has no
//! packets and datagrams at the end. Before that there was one capture: datagrams, length and hash, without a mark.

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use bytes::{Buf as _, BufMut as _};

/// In place of a number of datagrams.
const SEVERAL: u64 = u64::MAX;

const VERSION: u8 = 2;

/// Its datagrams are counted without those that were put together.
const WITHOUT_FRAGMENTS: u8 = 1;

/// A capture that an earlier run has read from, or was to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// `None` where an earlier build did not say it.
    pub(super) path: Option<PathBuf>,
    /// Datagrams that were given.
    pub(super) done: u64,
    /// Length and hash of its beginning.
    pub(super) begin: [u64; 2],
    /// Where it was read to its end, the last time.
    pub(super) end: Option<End>,
    /// Datagrams in IP fragments were put together.
    pub(super) joins_fragments: bool,
}

/// Where a capture ended when it was read to its end. Datagrams that waited for fragments were given there, and wait no
/// longer when the capture has grown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    /// Of the file.
    pub(super) bytes: u64,
    pub(super) packets: u64,
    /// Datagrams that were given by then.
    pub(super) done: u64,
}

pub(super) fn to_bytes(captures: impl ExactSizeIterator<Item = Known>) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64_le(SEVERAL);
    bytes.put_u8(VERSION);
    bytes.put_u32_le(captures.len() as u32);
    for Known { path, done, begin, end, joins_fragments: _ } in captures {
        let path = path.unwrap_or_default();
        let path = path.as_os_str().as_bytes();
        bytes.put_u32_le(path.len() as u32);
        bytes.put_slice(path);
        let ended_at = end.map_or(0, |end| end.bytes.saturating_add(1));
        let End { packets, done: done_at_end, .. } = end.unwrap_or_default();
        for word in [done, begin[0], begin[1], ended_at, packets, done_at_end] {
            bytes.put_u64_le(word);
        }
    }
    bytes
}

/// `None` if the bytes hold no places.
pub(super) fn of_bytes(mut bytes: &[u8]) -> Option<Vec<Known>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let first = bytes.try_get_u64_le().ok()?;
    if first != SEVERAL {
        let begin = [bytes.try_get_u64_le().ok()?, bytes.try_get_u64_le().ok()?];
        let only = Known { path: None, done: first, begin, end: None, joins_fragments: false };
        return bytes.is_empty().then(|| vec![only]);
    }
    let joins_fragments = match bytes.try_get_u8().ok()? {
        VERSION => true,
        WITHOUT_FRAGMENTS => false,
        _ => return None,
    };
    let mut captures = Vec::new();
    for _ in 0..bytes.try_get_u32_le().ok()? {
        let length = bytes.try_get_u32_le().ok()? as usize;
        let path = bytes.split_off(..length)?.to_vec();
        let mut word = || bytes.try_get_u64_le().ok();
        let (done, begin, ended) = (word()?, [word()?, word()?], word()?);
        let (packets, done_at_end) = if joins_fragments { (word()?, word()?) } else { (0, 0) };
        let end = ended.checked_sub(1).map(|bytes| End { bytes, packets, done: done_at_end });
        let path = Some(PathBuf::from(std::ffi::OsString::from_vec(path)));
        captures.push(Known { path, done, begin, end, joins_fragments });
    }
    bytes.is_empty().then_some(captures)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_come_back_and_parts_of_them_are_none(
            captures in proptest::collection::vec(
                ("[a-z/]{0,9}", any::<u64>(), any::<[u64; 2]>(), proptest::option::of((0..u64::MAX - 1, any::<[u64; 2]>()))),
                0..4,
            ),
        ) {
            let known: Vec<Known> = captures
                .into_iter()
                .map(|(path, done, begin, end)| Known {
                    path: Some(path.into()),
                    done,
                    begin,
                    end: end.map(|(bytes, [packets, done])| End { bytes, packets, done }),
                    joins_fragments: true,
                })
                .collect();
            let bytes = to_bytes(known.clone().into_iter());
            prop_assert_eq!(of_bytes(&bytes), Some(known));
            for length in 1..bytes.len() {
                prop_assert_eq!(of_bytes(&bytes[..length]), None);
            }
        }
    }

    #[test]
    fn places_of_earlier_builds_are_read() {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let only = Known { path: None, done: 7, begin: [4_096, 99], end: None, joins_fragments: false };
        assert_eq!(of_bytes(&words(&[7, 4_096, 99])), Some(vec![only.clone()]));
        let head = [&u64::MAX.to_le_bytes()[..], &[1, 1, 0, 0, 0, 2, 0, 0, 0], b"/a"].concat();
        let bytes = [head, words(&[7, 4_096, 99, 501])].concat();
        let end = Some(End { bytes: 500, packets: 0, done: 0 });
        assert_eq!(of_bytes(&bytes), Some(vec![Known { path: Some("/a".into()), end, ..only }]));
        let newer = [&u64::MAX.to_le_bytes()[..], &[3, 0, 0, 0, 0]].concat();
        assert_eq!(of_bytes(&newer), None);
    }
}
