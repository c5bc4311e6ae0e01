//! Where reading of captures goes on: what [`thalweg_flow::SourcePosition::place`] holds.
//!
//! Layout (little-endian): mark 8, version 1, captures 4, then for each: length of the path 4, path, datagrams given 8, length
//! and hash of the beginning 8 + 8, bytes at its end + 1, or 0 where it was not read to its end, 8. Persisted. Earlier builds
//! had one capture: datagrams, length and hash, without a mark.

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use bytes::{Buf as _, BufMut as _};

/// In place of a number of datagrams.
const SEVERAL: u64 = u64::MAX;

const VERSION: u8 = 1;

/// A capture that an earlier run has read from, or was to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// `None` where an earlier build did not say it.
    pub(super) path: Option<PathBuf>,
    /// Datagrams that were given.
    pub(super) done: u64,
    /// Length and hash of its beginning.
    pub(super) begin: [u64; 2],
    /// Bytes that the file had when it was read to its end.
    pub(super) ended_at: Option<u64>,
}

pub(super) fn to_bytes(captures: impl ExactSizeIterator<Item = Known>) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64_le(SEVERAL);
    bytes.put_u8(VERSION);
    bytes.put_u32_le(captures.len() as u32);
    for Known { path, done, begin, ended_at } in captures {
        let path = path.unwrap_or_default();
        let path = path.as_os_str().as_bytes();
        bytes.put_u32_le(path.len() as u32);
        bytes.put_slice(path);
        for word in [done, begin[0], begin[1], ended_at.map_or(0, |bytes| bytes.saturating_add(1))] {
            bytes.put_u64_le(word);
        }
    }
    bytes
}

/// `None` for what holds no places.
pub(super) fn of_bytes(mut bytes: &[u8]) -> Option<Vec<Known>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let first = bytes.try_get_u64_le().ok()?;
    if first != SEVERAL {
        let begin = [bytes.try_get_u64_le().ok()?, bytes.try_get_u64_le().ok()?];
        let only = Known { path: None, done: first, begin, ended_at: None };
        return bytes.is_empty().then(|| vec![only]);
    }
    if bytes.try_get_u8().ok()? != VERSION {
        return None;
    }
    let mut captures = Vec::new();
    for _ in 0..bytes.try_get_u32_le().ok()? {
        let length = bytes.try_get_u32_le().ok()? as usize;
        let path = bytes.split_off(..length)?.to_vec();
        let mut word = || bytes.try_get_u64_le().ok();
        let (done, begin, ended) = (word()?, [word()?, word()?], word()?);
        let path = Some(PathBuf::from(std::ffi::OsString::from_vec(path)));
        captures.push(Known { path, done, begin, ended_at: ended.checked_sub(1) });
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
                ("[a-z/]{0,9}", any::<u64>(), any::<[u64; 2]>(), proptest::option::of(0..u64::MAX - 1)),
                0..4,
            ),
        ) {
            let known: Vec<Known> = captures
                .into_iter()
                .map(|(path, done, begin, ended_at)| Known { path: Some(path.into()), done, begin, ended_at })
                .collect();
            let bytes = to_bytes(known.clone().into_iter());
            prop_assert_eq!(of_bytes(&bytes), Some(known));
            for length in 1..bytes.len() {
                prop_assert_eq!(of_bytes(&bytes[..length]), None);
            }
        }
    }

    #[test]
    fn a_place_of_an_earlier_build_is_read() {
        let bytes: Vec<u8> = [7_u64, 4_096, 99].iter().flat_map(|word| word.to_le_bytes()).collect();
        let only = Known { path: None, done: 7, begin: [4_096, 99], ended_at: None };
        assert_eq!(of_bytes(&bytes), Some(vec![only]));
    }
}
