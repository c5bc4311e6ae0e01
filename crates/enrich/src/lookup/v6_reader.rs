//! Finds IPv6 rows: first keys are on the heap, filters and blocks are mapped.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::chunk::is_sound;
use super::error::LookupError;
use super::layout::{Head, SectionKind};
use super::map::Map;
use super::residency::{Bits, Residency};
use super::table::{Counters, damaged, section, small_section};
use super::v6::{ENTRY, FILTER_BYTES, KeyedBlock, entry, may_have};

#[derive(Debug)]
pub(super) struct V6Reader {
    /// The first key of each block, its length, and where it is in the file.
    keys: Box<[[u8; 16]]>,
    places: Box<[(u64, u32)]>,
    filter_at: u64,
    /// Filters whose checksum was compared.
    checked: Bits,
    pub(super) residency: Residency,
}

impl V6Reader {
    pub(super) fn new(map: &Map, head: &Head, resident: u64) -> Result<Self, LookupError> {
        let (names, _) = section(map, head, SectionKind::V6Names)?;
        let (filter, _) = section(map, head, SectionKind::V6Filter)?;
        let (section, bytes) = small_section(map, head, SectionKind::V6Blocks)?;
        let count = bytes.len() / ENTRY;
        if filter.length != (count * FILTER_BYTES) as u64 {
            let (expected, got) = ((count * FILTER_BYTES).to_string(), filter.length.to_string());
            return Err(damaged(map, filter.offset, "length of the filter", &expected, &got));
        }
        let (mut keys, mut places) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (number, bytes) in bytes.chunks_exact(ENTRY).enumerate() {
            let (key, length, offset) = entry(bytes);
            if offset.checked_add(u64::from(length)).is_none_or(|end| end > names.length) {
                let pos = section.offset + (number * ENTRY) as u64;
                return Err(damaged(map, pos, "place of a block", "one in the section of names", "another"));
            }
            keys.push(key);
            places.push((names.offset + offset, length));
        }
        map.prefetch(filter.offset..filter.offset + filter.length);
        Ok(Self {
            keys: keys.into(),
            places: places.into(),
            filter_at: filter.offset,
            checked: Bits::new(count),
            residency: Residency::new(count, resident),
        })
    }

    /// The block that may have a key.
    pub(super) fn piece_of(&self, map: &Map, key: &[u8; 16]) -> Result<Option<u32>, LookupError> {
        let Some(piece) = self.keys.partition_point(|first| first <= key).checked_sub(1) else {
            return Ok(None);
        };
        let offset = self.filter_at + (piece * FILTER_BYTES) as u64;
        let filter = &map.bytes()[offset as usize..][..FILTER_BYTES];
        if !self.checked.get(piece) {
            if !is_sound(filter) {
                let what = "checksum of a filter";
                return Err(damaged(map, offset, what, "that of its bytes", "another"));
            }
            self.checked.set(piece);
        }
        Ok(may_have(filter, key).then_some(piece as u32))
    }

    pub(super) fn range(&self, piece: usize) -> Range<u64> {
        let (offset, length) = self.places[piece];
        offset..offset + u64::from(length)
    }

    pub(super) fn block<'a>(
        &self,
        map: &'a Map,
        piece: usize,
        counters: &Counters,
    ) -> Result<KeyedBlock<'a>, LookupError> {
        let (offset, length) = self.places[piece];
        let bytes = &map.bytes()[offset as usize..][..length as usize];
        if self.residency.is_touched(piece) {
            self.residency.mark_used(piece);
        } else {
            if !is_sound(bytes) {
                return Err(damaged(map, offset, "checksum of a block", "that of its bytes", "another"));
            }
            counters.blocks_read.fetch_add(1, Ordering::Relaxed);
            if self.residency.touch(piece, u64::from(length)) {
                let freed = self.residency.sweep(map, |piece| self.range(piece));
                counters.bytes_given_back.fetch_add(freed, Ordering::Relaxed);
            }
        }
        KeyedBlock::new(bytes)
            .ok_or_else(|| damaged(map, offset, "block of keys", "keys and names", "something else"))
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.keys)
            + size_of_val(&*self.places)
            + self.checked.heap_bytes()
            + self.residency.heap_bytes()
    }
}
