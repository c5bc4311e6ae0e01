//! Hashes by which bytes from outside are found again: with a key that nobody outside has.
//!
//! The placement hash is public and fixed, so a sender of keys can make many that share one. Where a hash represents
//! a key, as in an index that keeps no keys, it is a keyed one: SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast
//! short-input PRF", 2012). Without its key nobody can choose bytes that collide. A seed for XXH3 would not do: keys
//! that collide under every seed are known.
//!
//! Tables that keep whole keys, live as long as the process and show no hash to anybody take `foldhash`'s
//! `RandomState` instead, which is faster.
//!
//! Whoever stores such hashes stores the key with them: an index file, a checkpoint.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use siphasher::sip::SipHasher13;
use siphasher::sip128;

/// The key of a keyed hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u8; Self::LEN]);

impl HashKey {
    /// Bytes of a key.
    pub const LEN: usize = 16;

    /// A key that nobody can guess.
    pub fn draw() -> Self {
        // Each is SipHash under a key of its own from the system's random source.
        let word = |place: u64| RandomState::new().hash_one(place).to_le_bytes();
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&word(0));
        bytes[8..].copy_from_slice(&word(1));
        Self(bytes)
    }

    /// The key that [`to_bytes`](Self::to_bytes) gave.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The key itself, to be stored with what it hashed and shown to nobody.
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        self.0
    }

    /// 64 bits that represent some bytes. Persisted, do not change.
    #[inline]
    pub fn hash64(&self, bytes: &[u8]) -> u64 {
        SipHasher13::new_with_key(&self.0).hash(bytes)
    }

    /// 128 bits that represent some bytes. Persisted, do not change.
    #[inline]
    pub fn hash128(&self, bytes: &[u8]) -> u128 {
        sip128::SipHasher13::new_with_key(&self.0).hash(bytes).as_u128()
    }
}

/// Not the key: logs are read by others.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_a_key_never_change() {
        let key = HashKey::from_bytes(*b"sixteen bytes ..");
        assert_eq!((key.hash64(b"a key"), key.hash128(b"a key")), GOLDEN, "they are on disk");
        assert_eq!(HashKey::from_bytes(key.to_bytes()), key);
    }

    const GOLDEN: (u64, u128) =
        (11_318_466_522_428_561_104, 272_350_732_771_109_324_005_498_245_839_969_252_530);

    #[test]
    fn keys_that_are_drawn_differ_and_are_shown_to_nobody() {
        let (one, other) = (HashKey::draw(), HashKey::draw());
        assert_ne!(one, other);
        assert_ne!(one.hash128(b"a key"), other.hash128(b"a key"));
        assert_eq!(format!("{one:?}"), "HashKey");
    }
}
