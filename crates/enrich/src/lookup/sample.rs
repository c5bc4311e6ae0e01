//! A sample of the rows of a source, whole blocks of them, from which a table learns how its names look.
//!
//! A /24 (of others, rows that share eight bytes) is in the sample or not by its hash, so the sample does not
//! depend on the order of the rows; when it is full, every other block leaves it.

use thalweg_types::hash_bytes;

use super::block::ROWS_MAX;
use super::names::{NameEncoder, is_v4};
use super::plan::Row;
use super::rows::RowBuffer;

/// Bytes of a sample: some 300,000 rows.
const BYTES: usize = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct Sample {
    rows: RowBuffer,
    /// A block is in it if this number of low bits of its hash are zero.
    bits: u32,
}

/// What rows of one block have in common.
fn front(key: &[u8; 16]) -> &[u8] {
    if is_v4(key) { &key[..15] } else { &key[..8] }
}

fn is_in(key: &[u8; 16], bits: u32) -> bool {
    hash_bytes(front(key)).trailing_zeros() >= bits
}

impl Sample {
    pub(crate) fn offer(&mut self, key: [u8; 16], name: &[u8]) {
        if !is_in(&key, self.bits) {
            return;
        }
        self.rows.push(key, name);
        while self.rows.bytes() > BYTES && self.bits < 32 {
            self.bits += 1;
            let bits = self.bits;
            self.rows.retain(|key| is_in(&key, bits));
        }
    }

    pub(crate) fn learn(mut self) -> NameEncoder {
        self.rows.sort();
        let rows: Vec<Row<'_>> = self.rows.iter().map(|(key, name)| Row { key, name }).collect();
        let blocks = rows.chunk_by(|a, b| front(&a.key) == front(&b.key));
        NameEncoder::learn(blocks.flat_map(|block| block.chunks(ROWS_MAX)).map(<[Row<'_>]>::to_vec))
    }
}
