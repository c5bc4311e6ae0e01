//! Rows of IPv6 addresses: sorted blocks, the first key of each, and a filter for each.
//!
//! A *keyed block* has up to [`BLOCK_ROWS`] rows:
//!
//! | field | bytes | |
//! |---|---|---|
//! | checksum | 4 | CRC-32 of all bytes after it |
//! | rows | 1 | less one |
//! | shared | 1 | bytes that all keys begin with |
//! | front | shared | those bytes |
//! | keys | rows × (16 − shared) | the rest of each, ascending |
//! | names | | a block |
//!
//! Keyed blocks are packed into pages as chunks are. A block that is not the last is full, so the filter of
//! each is at its number × [`FILTER_BYTES`]: checksum (4) and three lines of 64 bytes; a key sets five bits
//! of one. One key in two hundred that is not there passes.

use thalweg_types::hash_bytes;

use super::error::LookupError;
use super::layout::{PAGE, le_u32};
use super::names::NameEncoder;
use super::output::Output;
use super::rows::RowBuffer;

pub(crate) const BLOCK_ROWS: usize = 128;
const LINES: usize = 3;
pub(crate) const FILTER_BYTES: usize = 4 + 64 * LINES;
const PROBES: u32 = 5;
/// Bytes of an entry of the section of blocks: first key (16), length (4), offset in the section of names
/// (8).
pub(crate) const ENTRY: usize = 28;
const HEAD: usize = 6;

/// Writes names and filters to files next to the table, as IPv4 rows come between the smallest and the others.
#[derive(Debug)]
pub(crate) struct V6Writer {
    names: Output,
    filter: Output,
    entries: Vec<u8>,
    rows: RowBuffer,
    row_count: u64,
}

/// What is left to be written when all rows are in.
#[derive(Debug)]
pub(crate) struct V6Sections {
    pub(crate) names: Output,
    pub(crate) filter: Output,
    pub(crate) blocks: Vec<u8>,
    pub(crate) row_count: u64,
}

impl V6Writer {
    pub(crate) fn new(names: Output, filter: Output) -> Self {
        Self { names, filter, entries: Vec::new(), rows: RowBuffer::default(), row_count: 0 }
    }

    /// Takes rows in order of their keys.
    pub(crate) fn push(
        &mut self,
        key: [u8; 16],
        name: &[u8],
        names: &mut NameEncoder,
    ) -> Result<(), LookupError> {
        self.rows.push(key, name);
        self.row_count += 1;
        if self.rows.len() == BLOCK_ROWS { self.end_block(names) } else { Ok(()) }
    }

    fn end_block(&mut self, names: &mut NameEncoder) -> Result<(), LookupError> {
        let keys: Vec<[u8; 16]> = self.rows.iter().map(|(key, _)| key).collect();
        let (first, last) = (keys[0], keys[keys.len() - 1]);
        let shared = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
        let mut block = vec![0; 4];
        block.extend_from_slice(&[(keys.len() - 1) as u8, shared as u8]);
        block.extend_from_slice(&first[..shared]);
        keys.iter().for_each(|key| block.extend_from_slice(&key[shared..]));
        names.encode(&self.rows, &mut block)?;
        seal(&mut block);
        if block.len() as u64 > PAGE - self.names.position() % PAGE {
            self.names.pad_to_page()?;
        }
        self.entries.extend_from_slice(&first);
        self.entries.extend_from_slice(&(block.len() as u32).to_le_bytes());
        self.entries.extend_from_slice(&self.names.position().to_le_bytes());
        self.names.write(&block)?;

        let mut filter = vec![0; FILTER_BYTES];
        for key in &keys {
            let (line, bits) = probes(key);
            for bit in bits {
                filter[4 + line * 64 + bit / 8] |= 1 << (bit % 8);
            }
        }
        seal(&mut filter);
        self.filter.write(&filter)?;
        self.rows.clear();
        Ok(())
    }

    pub(crate) fn finish(mut self, names: &mut NameEncoder) -> Result<V6Sections, LookupError> {
        if !self.rows.is_empty() {
            self.end_block(names)?;
        }
        let V6Writer { names, filter, entries, row_count, .. } = self;
        Ok(V6Sections { names, filter, blocks: entries, row_count })
    }
}

fn seal(piece: &mut [u8]) {
    let checksum = crc32fast::hash(&piece[4..]);
    piece[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// The line of a key and its bits there.
fn probes(key: &[u8; 16]) -> (usize, impl Iterator<Item = usize>) {
    let hash = hash_bytes(key);
    let line = (((hash >> 48) * LINES as u64) >> 16) as usize;
    (line, (0..PROBES).map(move |probe| (hash >> (9 * probe)) as usize & 511))
}

/// Whether a key may be in the block of this filter.
pub(crate) fn may_have(filter: &[u8], key: &[u8; 16]) -> bool {
    let (line, mut bits) = probes(key);
    bits.all(|bit| filter.get(4 + line * 64 + bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1))
}

/// The keys of a block and its names.
pub(crate) struct KeyedBlock<'a> {
    front: &'a [u8],
    keys: &'a [u8],
    pub(crate) rows: usize,
    pub(crate) names: &'a [u8],
}

impl<'a> KeyedBlock<'a> {
    /// `None` where the bytes are no block.
    pub(crate) fn new(block: &'a [u8]) -> Option<Self> {
        let (rows, shared) = (usize::from(*block.get(4)?) + 1, usize::from(*block.get(5)?));
        let (front, rest) = block.get(HEAD..)?.split_at_checked(shared)?;
        let (keys, names) = rest.split_at_checked(rows * 16_usize.checked_sub(shared)?)?;
        Some(Self { front, keys, rows, names })
    }

    /// The row of a key.
    pub(crate) fn find(&self, key: &[u8; 16]) -> Option<usize> {
        let rest = key.strip_prefix(self.front)?;
        if rest.is_empty() {
            return Some(0);
        }
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = (low + high) / 2;
            match self.keys[middle * rest.len()..][..rest.len()].cmp(rest) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    pub(crate) fn key(&self, row: usize) -> [u8; 16] {
        let width = 16 - self.front.len();
        let mut key = [0; 16];
        key[..self.front.len()].copy_from_slice(self.front);
        key[self.front.len()..].copy_from_slice(&self.keys[row * width..][..width]);
        key
    }
}

/// The parts of an entry of the section of blocks.
pub(crate) fn entry(bytes: &[u8]) -> ([u8; 16], u32, u64) {
    let mut key = [0; 16];
    key.copy_from_slice(&bytes[..16]);
    (key, le_u32(&bytes[16..]), super::layout::le_u64(&bytes[20..]))
}
