//! Writes the sections of IPv4 rows: names and which addresses have one.
//!
//! Names go to the table's file as they come, presence to a file next to it that is appended at the end: the
//! two grow together, and each has to be in one piece.

use super::chunk::ChunkWriter;
use super::error::LookupError;
use super::names::NameEncoder;
use super::output::Output;
use super::presence::GroupWriter;
use super::rows::RowBuffer;

/// Bytes of an entry of the section of groups: /16 (2), zero (2), first chunk (4), offset in the section of
/// presence (8), length there (4).
pub(crate) const GROUP_ENTRY: usize = 20;

#[derive(Debug)]
pub(crate) struct V4Writer {
    chunks: ChunkWriter,
    presence: Output,
    groups: Vec<u8>,
    group: GroupWriter,
    /// Rows of the /24 that is not yet written, and its number.
    rows: RowBuffer,
    net: u32,
    block: Vec<u8>,
    row_count: u64,
}

/// What is left to be written when all rows are in.
#[derive(Debug)]
pub(crate) struct V4Sections {
    pub(crate) groups: Vec<u8>,
    pub(crate) chunks: Vec<u8>,
    pub(crate) presence: Output,
    pub(crate) row_count: u64,
}

impl V4Writer {
    pub(crate) fn new(output: &Output, presence: Output) -> Self {
        Self {
            chunks: ChunkWriter::new(output),
            presence,
            groups: Vec::new(),
            group: GroupWriter::default(),
            rows: RowBuffer::default(),
            net: 0,
            block: Vec::new(),
            row_count: 0,
        }
    }

    /// Takes rows in order of their addresses.
    pub(crate) fn push(
        &mut self,
        key: [u8; 16],
        name: &[u8],
        names: &mut NameEncoder,
        output: &mut Output,
    ) -> Result<(), LookupError> {
        let net = u32::from_be_bytes([0, key[12], key[13], key[14]]);
        if !self.rows.is_empty() && net != self.net {
            self.end_net(names, output)?;
            if net >> 8 != self.net >> 8 {
                self.end_group(output)?;
            }
        }
        self.net = net;
        self.rows.push(key, name);
        self.row_count += 1;
        Ok(())
    }

    fn end_net(&mut self, names: &mut NameEncoder, output: &mut Output) -> Result<(), LookupError> {
        let hosts: Vec<u8> = self.rows.iter().map(|(key, _)| key[15]).collect();
        self.group.push(self.net as u8, &hosts);
        self.block.clear();
        names.encode(&self.rows, &mut self.block)?;
        self.rows.clear();
        let is_first = self
            .groups
            .chunks_exact(GROUP_ENTRY)
            .next_back()
            .is_none_or(|entry| u32::from(u16::from_le_bytes([entry[0], entry[1]])) != self.net >> 8);
        if is_first {
            self.groups.extend_from_slice(&(self.net >> 8).to_le_bytes());
            self.groups.extend_from_slice(&self.chunks.count().to_le_bytes());
            self.groups.extend_from_slice(&self.presence.position().to_le_bytes());
            self.groups.extend_from_slice(&[0; 4]);
        }
        self.chunks.push(self.net, &self.block, output)
    }

    fn end_group(&mut self, output: &mut Output) -> Result<(), LookupError> {
        self.chunks.end_chunk(output)?;
        let group = self.group.finish();
        let length_at = self.groups.len() - 4;
        self.groups[length_at..].copy_from_slice(&(group.len() as u32).to_le_bytes());
        self.presence.write(&group)
    }

    pub(crate) fn finish(
        mut self,
        names: &mut NameEncoder,
        output: &mut Output,
    ) -> Result<V4Sections, LookupError> {
        if !self.rows.is_empty() {
            self.end_net(names, output)?;
            self.end_group(output)?;
        }
        let (groups, presence, row_count) = (self.groups, self.presence, self.row_count);
        Ok(V4Sections { groups, chunks: self.chunks.into_entries(), presence, row_count })
    }
}
