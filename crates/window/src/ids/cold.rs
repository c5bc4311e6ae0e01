//! What stays in memory of ids that have left it: 64 bits of hash and the number of a frame, 15 to 30 bytes an id.
//!
//! Frames go oldest first, so entries of a frame before the first one have no meaning any more. They are swept out when
//! a part of the table is full, before that grows, and not one by one.

use hashbrown::HashTable;

/// Parts that grow one at a time, each in well under a millisecond up to some ten million ids.
const PARTS: usize = 256;

/// Twelve bytes, not sixteen.
#[derive(Clone, Copy, Debug)]
struct Tag {
    hash: [u32; 2],
    frame: u32,
}

impl Tag {
    fn new(hash: u64, frame: u32) -> Self {
        Self { hash: [hash as u32, (hash >> 32) as u32], frame }
    }

    fn hash(&self) -> u64 {
        u64::from(self.hash[0]) | u64::from(self.hash[1]) << 32
    }
}

#[derive(Debug)]
pub(super) struct Cold {
    parts: Vec<HashTable<Tag>>,
    /// Frames before it are gone.
    first: u32,
    /// The newest frame that a tag has.
    last: u32,
    len: usize,
}

/// Bits that are used neither for places nor for tags within a part.
fn part_of(hash: u64) -> usize {
    (hash >> 40) as usize % PARTS
}

impl Cold {
    pub(super) fn new() -> Self {
        Self { parts: Vec::new(), first: 0, last: 0, len: 0 }
    }

    /// Tags, those of frames that are gone and not swept out yet among them.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(HashTable::allocation_size).sum()
    }

    pub(super) fn insert(&mut self, hash: u64, frame: u32) {
        if self.parts.is_empty() {
            self.parts.resize_with(PARTS, HashTable::new);
        }
        let part = &mut self.parts[part_of(hash)];
        if part.len() == part.capacity() {
            let before = part.len();
            part.retain(|tag| tag.frame >= self.first);
            self.len -= before - part.len();
        }
        self.last = self.last.max(frame);
        part.insert_unique(hash, Tag::new(hash, frame), Tag::hash);
        self.len += 1;
    }

    /// Frames that may hold an id with this hash.
    pub(super) fn frames_of(&self, hash: u64) -> impl Iterator<Item = u64> {
        let part = self.parts.get(part_of(hash));
        let alike = part.into_iter().flat_map(move |part| part.iter_hash(hash));
        alike.filter(move |tag| tag.hash() == hash && tag.frame >= self.first).map(|tag| u64::from(tag.frame))
    }

    /// Frames before this one are gone.
    pub(super) fn forget_before(&mut self, frame: u64) {
        self.first = u32::try_from(frame).unwrap_or(u32::MAX);
        if self.last < self.first {
            (self.parts, self.len) = (Vec::new(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn tags_are_found_with_all_their_frames_until_these_are_gone() {
        let mut cold = Cold::new();
        assert_eq!(cold.frames_of(5).count(), 0);
        for (hash, frame) in [(5, 1), (5, 3), (6, 2)] {
            cold.insert(hash, frame);
        }
        let mut frames: Vec<u64> = cold.frames_of(5).collect();
        frames.sort_unstable();
        assert_eq!(frames, [1, 3]);
        cold.forget_before(2);
        assert_eq!(cold.frames_of(5).collect::<Vec<_>>(), [3]);
        assert_eq!(cold.frames_of(7).count(), 0);
        cold.forget_before(4);
        assert_eq!((cold.len(), cold.bytes(), cold.frames_of(6).count()), (0, 0, 0));
    }

    #[test]
    fn a_span_that_moves_on_takes_no_more_memory() {
        let (mut cold, mut most) = (Cold::new(), 0);
        for frame in 0..200_u64 {
            for id in 0..1_000 {
                cold.insert(hash_of(frame * 1_000 + id), frame as u32);
            }
            cold.forget_before(frame.saturating_sub(50));
            if frame == 120 {
                most = cold.bytes();
            }
        }
        assert_eq!(cold.bytes(), most);
        assert!(most <= 50_000 * 60, "{most} bytes for some 50,000 ids");
        assert_eq!(cold.frames_of(hash_of(199_999)).collect::<Vec<_>>(), [199]);
        assert_eq!(cold.frames_of(hash_of(10)).count(), 0);
    }
}
