//! State as it is read back from a store: values, parts of the log, heads.
//!
//! The first byte says which of them, and whether its checksum is made right first: without that no code after its
//! check would ever be reached.

use thalweg_state_remote::testing;

use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "stored_state", run, seeds, words: &[], allowance: nothing_more };

const KEY: &[u8] = b"key";
const TASK: &str = "job/op/3";
/// Bytes of a checksum.
const CHECKSUM: usize = 4;

pub fn run(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind {
        0 => testing::stored_value(KEY, bytes),
        1 => testing::stored_value(KEY, &testing::store_value(KEY, bytes)),
        2 => testing::stored_part(bytes),
        3 => testing::stored_part(&sealed(bytes)),
        4 => testing::stored_head(bytes, TASK),
        _ => testing::stored_head(&sealed(bytes), TASK),
    };
}

/// With the right checksum at the end, instead of the one there.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes[..bytes.len().saturating_sub(CHECKSUM)].to_vec();
    sealed.extend_from_slice(&crc32fast::hash(&sealed).to_le_bytes());
    sealed
}

/// A part: format 2, then key length 4, value length 4 plus one, key, value.
fn part(changes: &[(&[u8], Option<&[u8]>)]) -> Vec<u8> {
    let mut bytes = 1_u16.to_le_bytes().to_vec();
    for (key, value) in changes {
        bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&value.map_or(0, |value| value.len() as u32 + 1).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
    }
    sealed(&[bytes.as_slice(), &[0; CHECKSUM]].concat())
}

/// A head: format 2, owner 8, 1 if there is a cycle, cycle 8, name of the task.
fn head(cycle: Option<u64>) -> Vec<u8> {
    let mut bytes = 1_u16.to_le_bytes().to_vec();
    bytes.extend_from_slice(&7_u64.to_le_bytes());
    bytes.push(u8::from(cycle.is_some()));
    bytes.extend_from_slice(&cycle.unwrap_or_default().to_le_bytes());
    bytes.extend_from_slice(TASK.as_bytes());
    sealed(&[bytes.as_slice(), &[0; CHECKSUM]].concat())
}

fn seeds() -> Vec<Vec<u8>> {
    let of = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    let parts = [part(&[]), part(&[(b"", Some(b"")), (b"gone", None), (b"k", Some(&[7; 300]))])];
    let heads = [head(None), head(Some(9))];
    let values = [testing::store_value(KEY, b""), testing::store_value(KEY, b"value")];
    let mut seeds = vec![of(0, b""), of(3, b""), of(5, b"")];
    seeds.extend(values.iter().flat_map(|bytes| [of(0, bytes), of(1, bytes)]));
    seeds.extend(parts.iter().flat_map(|bytes| [of(2, bytes), of(3, bytes)]));
    seeds.extend(heads.iter().flat_map(|bytes| [of(4, bytes), of(5, bytes)]));
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_state() {
        assert!(testing::stored_part(&part(&[(b"k", Some(b"v")), (b"gone", None)])));
        assert!(testing::stored_head(&head(Some(3)), TASK) && testing::stored_head(&head(None), TASK));
        assert!(testing::stored_value(KEY, &testing::store_value(KEY, b"value")));
    }
}
