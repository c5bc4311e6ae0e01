//! Chunks: blocks of /24s that follow each other, in one page of the file where they fit into one.
//!
//! | field | bytes | |
//! |---|---|---|
//! | checksum | 4 | CRC-32 of all bytes after it |
//! | first | 1 | the third octet of the first /24 |
//! | span | 1 | /24s from the first to the last, less one |
//! | offsets | 2 × (span + 1) | where the block of each begins in the chunk |
//! | blocks | | |
//!
//! A chunk stays within one /16. It ends where the page ends, so that a cold answer costs one read; a single
//! block that is longer than a page begins one and makes a chunk of its own.
//! A block ends where the next one begins; a /24 without rows has none of its bytes.

use super::error::LookupError;
use super::layout::PAGE;
use super::output::Output;

const HEAD: usize = 6;
/// Bytes of an entry of the section of chunks: first /24 (4), length (4), offset in the section of names (8).
pub(crate) const ENTRY: usize = 16;

/// Packs blocks into chunks and chunks into pages.
#[derive(Debug, Default)]
pub(crate) struct ChunkWriter {
    /// Blocks of the chunk that is not yet written: /24 and where the block ends in `bytes`.
    blocks: Vec<(u32, usize)>,
    bytes: Vec<u8>,
    /// Where in the file the section of names begins.
    start: u64,
    entries: Vec<u8>,
    count: u32,
}

impl ChunkWriter {
    /// Begins at a whole page.
    pub(crate) fn new(output: &Output) -> Self {
        debug_assert_eq!(output.position() % PAGE, 0);
        Self { start: output.position(), ..Self::default() }
    }

    /// Chunks so far, the open one among them.
    pub(crate) fn count(&self) -> u32 {
        self.count + u32::from(!self.blocks.is_empty())
    }

    /// Takes the block of a /24, by its number.
    pub(crate) fn push(&mut self, net: u32, block: &[u8], output: &mut Output) -> Result<(), LookupError> {
        let room = (PAGE - output.position() % PAGE) as usize;
        if !self.blocks.is_empty() && self.size_with(net, block.len()) > room {
            self.end_chunk(output)?;
        }
        if self.blocks.is_empty() {
            let room = (PAGE - output.position() % PAGE) as usize;
            if self.size_with(net, block.len()) > room {
                output.pad_to_page()?;
            }
        }
        self.bytes.extend_from_slice(block);
        self.blocks.push((net, self.bytes.len()));
        Ok(())
    }

    fn size_with(&self, net: u32, length: usize) -> usize {
        let first = self.blocks.first().map_or(net, |(first, _)| *first);
        HEAD + 2 * (net - first + 1) as usize + self.bytes.len() + length
    }

    /// Writes the open chunk. Chunks end where their /16 ends.
    pub(crate) fn end_chunk(&mut self, output: &mut Output) -> Result<(), LookupError> {
        let (Some(&(first, _)), Some(&(last, _))) = (self.blocks.first(), self.blocks.last()) else {
            return Ok(());
        };
        let span = (last - first) as usize;
        let blocks_at = HEAD + 2 * (span + 1);
        let mut chunk = vec![0; 4];
        chunk.extend_from_slice(&[first as u8, span as u8]);
        let mut begin = 0;
        let mut blocks = self.blocks.iter().peekable();
        for net in first..=last {
            // A block begins in the first page of its chunk, so two bytes hold its place.
            chunk.extend_from_slice(&((blocks_at + begin) as u16).to_le_bytes());
            if let Some((_, end)) = blocks.next_if(|(have, _)| *have == net) {
                begin = *end;
            }
        }
        chunk.extend_from_slice(&self.bytes);
        let checksum = crc32fast::hash(&chunk[4..]);
        chunk[..4].copy_from_slice(&checksum.to_le_bytes());
        self.entries.extend_from_slice(&first.to_le_bytes());
        self.entries.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
        self.entries.extend_from_slice(&(output.position() - self.start).to_le_bytes());
        self.count += 1;
        self.blocks.clear();
        self.bytes.clear();
        output.write(&chunk)
    }

    /// The section of chunks.
    pub(crate) fn into_entries(self) -> Vec<u8> {
        self.entries
    }
}

/// The block of a /24, by its third octet; `None` where the chunk has none.
#[inline]
pub(crate) fn block(chunk: &[u8], net: u8) -> Option<&[u8]> {
    let (&first, &span) = (chunk.get(4)?, chunk.get(5)?);
    let place = usize::from(net.checked_sub(first)?);
    if place > usize::from(span) {
        return None;
    }
    let offset = |place: usize| {
        let at = HEAD + 2 * place;
        Some(usize::from(u16::from_le_bytes([*chunk.get(at)?, *chunk.get(at + 1)?])))
    };
    let start = offset(place)?;
    let end = if place == usize::from(span) { chunk.len() } else { offset(place + 1)? };
    chunk.get(start..end).filter(|block| !block.is_empty())
}

/// Whether the bytes are those that were written.
#[inline]
pub(crate) fn is_sound(piece: &[u8]) -> bool {
    piece.len() > 4 && crc32fast::hash(&piece[4..]) == super::layout::le_u32(piece)
}
