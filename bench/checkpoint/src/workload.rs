//! The operations, as functions of a seed: every store gets the same ones in the same order.

use fastrand::Rng;

/// Writes among ten operations.
const WRITES_OF_TEN: u64 = 9;
/// Values are pieces of noise, which nothing compresses; as long as no two of a short time begin at the same place.
const NOISE_BYTES: usize = 1 << 20;
/// Bytes of a key: `pe-` and the number, as many as S4's word count has on average.
const KEY: usize = 16;

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The key with this number gets its next value.
    Write(u64),
    /// The key with this number is read.
    Read(u64),
}

/// Keys that are hit uniformly.
#[derive(Clone, Debug)]
pub struct Workload {
    random: Rng,
    keys: u64,
    value_bytes: usize,
    noise: Vec<u8>,
}

impl Workload {
    /// `value_bytes` is at least 8.
    pub fn new(seed: u64, keys: u64, value_bytes: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let noise = (0..(NOISE_BYTES + value_bytes) / 8 + 1).flat_map(|_| random.u64(..).to_le_bytes());
        Self { noise: noise.collect(), random, keys: keys.max(1), value_bytes: value_bytes.max(8) }
    }

    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Bytes of all keys with one value each.
    pub fn live_bytes(&self) -> u64 {
        self.keys * (KEY + self.value_bytes) as u64
    }

    /// The next operation.
    pub fn operation(&mut self) -> Operation {
        let is_write = self.random.u64(..10) < WRITES_OF_TEN;
        let key = self.random.u64(..self.keys);
        if is_write { Operation::Write(key) } else { Operation::Read(key) }
    }

    /// The key with a number.
    pub fn key(number: u64) -> [u8; KEY] {
        let mut key = *b"pe-0000000000000";
        let mut rest = number;
        for digit in key[3..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        key
    }

    /// The value that a key gets by the write with this number; it begins with the number.
    pub fn value(&self, write: u64, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&write.to_le_bytes());
        let at = (write.wrapping_mul(0x9e37_79b9) % NOISE_BYTES as u64) as usize;
        value.extend_from_slice(&self.noise[at..at + self.value_bytes - 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_of_ten_operations_write_and_every_key_is_hit() {
        let mut workload = Workload::new(1, 10, 100);
        let (mut writes, mut hits) = (0, [0_u32; 10]);
        for _ in 0..10_000 {
            let (Operation::Write(key) | Operation::Read(key)) = match workload.operation() {
                write @ Operation::Write(_) => {
                    writes += 1;
                    write
                }
                read => read,
            };
            hits[key as usize] += 1;
        }
        assert!((8_800..9_200).contains(&writes), "{writes}");
        assert!(hits.iter().all(|hits| (800..1_200).contains(hits)), "{hits:?}");
    }

    #[test]
    fn values_are_functions_of_seed_and_number() {
        let (one, other) = (Workload::new(1, 10, 100), Workload::new(2, 10, 100));
        let value = |workload: &Workload, number| {
            let mut value = Vec::new();
            workload.value(number, &mut value);
            value
        };
        assert_eq!(value(&one, 7), value(&one.clone(), 7));
        assert_eq!(value(&one, 7).len(), 100);
        assert_ne!(value(&one, 7), value(&one, 8));
        assert_ne!(value(&one, 7), value(&other, 7));
        assert_eq!(&Workload::key(42), b"pe-0000000000042");
    }
}
