//! Names of files: `k` and the key in hexadecimal, or for long keys `h` and their SHA-256; then the cycle, then `gone`
//! for a tombstone. A key from outside never becomes a part of a path as it is.
//!
//! A name represents its key, so it is a hash for which nobody can find two keys, and which needs no secret that could
//! be lost. Earlier builds took XXH3, for which anybody can: 32 digits instead of 64. Such names are read, and never
//! given.

use std::fmt;

use sha2::{Digest, Sha256};

/// Bytes of a key that are in a name: 200 digits of the 255 bytes that file systems take.
const MAX_PLAIN: usize = 100;

/// Length of a long key's stem: 128 bits of XXH3, and SHA-256.
const EARLY_LEN: usize = 33;
const LONG_LEN: usize = 65;

/// What names a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stem(Box<str>);

impl Stem {
    pub(super) fn of(key: &[u8]) -> Self {
        let hash;
        let (kind, bytes) = if key.len() <= MAX_PLAIN {
            ('k', key)
        } else {
            hash = Sha256::digest(key);
            ('h', hash.as_slice())
        };
        let mut text = String::with_capacity(1 + 2 * bytes.len());
        text.push(kind);
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        Self(text.into())
    }

    /// Whether an earlier build gave the name: it does not distinguish the key from others.
    pub(super) fn is_early(&self) -> bool {
        self.0.len() == EARLY_LEN && self.0.starts_with('h')
    }

    pub(super) fn file_name(&self, cycle: u64, is_tombstone: bool) -> String {
        format!("{}.{cycle:020}{}", self.0, if is_tombstone { ".gone" } else { "" })
    }

    /// Stem, cycle and whether it is a tombstone; `None` for files that are not ours.
    pub(super) fn parse(name: &str) -> Option<(Self, u64, bool)> {
        let (rest, is_tombstone) = match name.strip_suffix(".gone") {
            Some(rest) => (rest, true),
            None => (name, false),
        };
        let (stem, digits) = rest.split_once('.')?;
        let hex = stem.strip_prefix(['k', 'h'])?;
        let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_hash = !stem.starts_with('h') || [EARLY_LEN, LONG_LEN].contains(&stem.len());
        if !plain || !is_hash || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        Some((Self(stem.into()), digits.parse().ok()?, is_tombstone))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Stem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_fit_any_file_system() {
        for key in [b"".to_vec(), b"../x".to_vec(), vec![0xff; 100], vec![7; 101], vec![9; 5000]] {
            for (cycle, is_tombstone) in [(0, false), (u64::MAX, true)] {
                let stem = Stem::of(&key);
                let name = stem.file_name(cycle, is_tombstone);
                assert!(
                    name.len() <= 255
                        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
                );
                assert_eq!(Stem::parse(&name), Some((stem, cycle, is_tombstone)));
            }
        }
        let early = "h0123456789abcdef0123456789abcdef.00000000000000000012";
        assert!(Stem::parse(early).is_some_and(|(stem, ..)| stem.is_early()));
        assert!(!Stem::of(&[7; 101]).is_early());
        for name in [
            "k6a",
            "h6a.00000000000000000012",
            "k6a.12",
            "x6a.00000000000000000012",
            "k6g.00000000000000000012",
            "k.tmp",
        ] {
            assert_eq!(Stem::parse(name), None, "{name}");
        }
    }
}
