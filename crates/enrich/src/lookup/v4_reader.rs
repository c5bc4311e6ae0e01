//! Finds IPv4 rows: their places are on the heap, the filter and the names are mapped.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::chunk::{self, ENTRY, is_sound};
use super::error::LookupError;
use super::layout::{Head, SectionKind, le_u32, le_u64};
use super::map::Map;
use super::residency::{Bits, Residency};
use super::table::{Counters, damaged, section, small_section};
use super::v4_writer::GROUP_ENTRY;

/// A /16: where its group is in the file, and its first chunk.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    offset: u64,
    length: u32,
    first_chunk: u32,
}

#[derive(Debug)]
pub(super) struct V4Reader {
    /// By /16, and one after them.
    groups: Box<[Group]>,
    /// Groups whose checksum was compared.
    checked: Bits,
    /// The first /24 of each chunk, its length, and where it is in the file.
    nets: Box<[u32]>,
    lengths: Box<[u32]>,
    offsets: Box<[u64]>,
    pub(super) residency: Residency,
}

/// Where a name is: the chunk, and its row of how many in the block of its /24.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct V4Place {
    pub(super) chunk: u32,
    pub(super) row: u16,
    pub(super) rows: u16,
}

impl V4Reader {
    pub(super) fn new(map: &Map, head: &Head, resident: u64) -> Result<Self, LookupError> {
        let (names, _) = section(map, head, SectionKind::V4Names)?;
        let (presence, _) = section(map, head, SectionKind::V4Presence)?;
        let (section, bytes) = small_section(map, head, SectionKind::V4Chunks)?;
        let count = bytes.len() / ENTRY;
        let (mut nets, mut lengths, mut offsets) =
            (Vec::with_capacity(count), Vec::with_capacity(count), Vec::with_capacity(count));
        for (number, entry) in bytes.chunks_exact(ENTRY).enumerate() {
            let (length, offset) = (le_u32(&entry[4..]), le_u64(&entry[8..]));
            if offset.checked_add(u64::from(length)).is_none_or(|end| end > names.length) {
                let pos = section.offset + (number * ENTRY) as u64;
                return Err(damaged(map, pos, "place of a chunk", "one in the section of names", "another"));
            }
            nets.push(le_u32(entry));
            lengths.push(length);
            offsets.push(names.offset + offset);
        }
        let groups = groups(map, head, (presence.offset, presence.length), count as u32)?;
        map.prefetch(presence.offset..presence.offset + presence.length);
        Ok(Self {
            groups,
            checked: Bits::new(1 << 16),
            nets: nets.into(),
            lengths: lengths.into(),
            offsets: offsets.into(),
            residency: Residency::new(count, resident),
        })
    }

    /// The group of a /16; `None` where no address of it has a row.
    #[inline]
    pub(super) fn group<'a>(&self, map: &'a Map, number: u16) -> Result<Option<&'a [u8]>, LookupError> {
        let group = self.groups[usize::from(number)];
        if group.length == 0 {
            return Ok(None);
        }
        let bytes = &map.bytes()[group.offset as usize..][..group.length as usize];
        if !self.checked.get(usize::from(number)) {
            if !is_sound(bytes) {
                let what = "checksum of a group";
                return Err(damaged(map, group.offset, what, "that of its bytes", "another"));
            }
            self.checked.set(usize::from(number));
        }
        Ok(Some(bytes))
    }

    /// The chunk that has a /24, if one has it.
    #[inline]
    pub(super) fn chunk_of(&self, net: u32) -> u32 {
        let group = (net >> 8) as usize;
        let (first, end) = (self.groups[group].first_chunk, self.groups[group + 1].first_chunk);
        let nets = &self.nets[first as usize..end as usize];
        first + (nets.partition_point(|first| *first <= net) as u32).saturating_sub(1)
    }

    pub(super) fn chunk_range(&self, number: usize) -> Range<u64> {
        self.offsets[number]..self.offsets[number] + u64::from(self.lengths[number])
    }

    #[inline]
    pub(super) fn chunk<'a>(
        &self,
        map: &'a Map,
        number: usize,
        counters: &Counters,
    ) -> Result<&'a [u8], LookupError> {
        let (Some(&offset), Some(&length)) = (self.offsets.get(number), self.lengths.get(number)) else {
            return Err(damaged(map, 0, "chunks", "one for each /16", "none"));
        };
        let chunk = &map.bytes()[offset as usize..][..length as usize];
        if self.residency.is_touched(number) {
            self.residency.mark_used(number);
            return Ok(chunk);
        }
        if !is_sound(chunk) {
            return Err(damaged(map, offset, "checksum of a chunk", "that of its bytes", "another"));
        }
        counters.blocks_read.fetch_add(1, Ordering::Relaxed);
        if self.residency.touch(number, u64::from(length)) {
            let freed = self.residency.sweep(map, |number| self.chunk_range(number));
            counters.bytes_given_back.fetch_add(freed, Ordering::Relaxed);
        }
        Ok(chunk)
    }

    pub(super) fn chunk_count(&self) -> usize {
        self.nets.len()
    }

    /// All /24s of a chunk that have a block.
    pub(super) fn nets_of(&self, number: usize, chunk: &[u8]) -> Vec<u32> {
        let base = self.nets[number] & !0xff;
        (0..=255_u8)
            .filter(|net| chunk::block(chunk, *net).is_some())
            .map(|net| base | u32::from(net))
            .collect()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.groups)
            + self.checked.heap_bytes()
            + self.nets.len() * ENTRY
            + self.residency.heap_bytes()
    }
}

/// The groups by /16. A /16 without rows has the first chunk of the next that has some, so that the chunks of
/// each end where those of the next begin.
fn groups(
    map: &Map,
    head: &Head,
    presence: (u64, u64),
    chunk_count: u32,
) -> Result<Box<[Group]>, LookupError> {
    let (section, bytes) = small_section(map, head, SectionKind::V4Groups)?;
    let mut groups = vec![Group::default(); (1 << 16) + 1];
    let mut filled = 0;
    let mut last_chunk = 0;
    for (number, entry) in bytes.chunks_exact(GROUP_ENTRY).enumerate() {
        let (block, first_chunk) = (le_u32(entry) as usize, le_u32(&entry[4..]));
        let (offset, length) = (le_u64(&entry[8..]), le_u32(&entry[16..]));
        let is_inside = offset.checked_add(u64::from(length)).is_some_and(|end| end <= presence.1);
        if block >= 1 << 16
            || block < filled
            || first_chunk < last_chunk
            || first_chunk >= chunk_count
            || !is_inside
        {
            let pos = section.offset + (number * GROUP_ENTRY) as u64;
            return Err(damaged(map, pos, "entry of a group", "the next /16", "another"));
        }
        groups[filled..=block].iter_mut().for_each(|group| group.first_chunk = first_chunk);
        groups[block].offset = presence.0 + offset;
        groups[block].length = length;
        (filled, last_chunk) = (block + 1, first_chunk);
    }
    groups[filled..].iter_mut().for_each(|group| group.first_chunk = chunk_count);
    Ok(groups.into())
}
