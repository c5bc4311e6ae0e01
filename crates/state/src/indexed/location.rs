//! Where an entry is, in 56 bits: segment slot 14, byte 30, length class 11, tombstone 1.
//!
//! * A *slot* is the place of a segment in the table of segments at hand. Numbers of segments grow for ever, slots
//!   are used again.
//! * The length is kept to 1.6 %, rounded up: enough to read an entry with one call and to account for it. The
//!   entry itself has the exact one.

/// Segments at once; the last slot represents no place at all.
pub(super) const MAX_SEGMENTS: usize = (1 << 14) - 1;

/// Bytes below which an entry begins.
pub(super) const MAX_START: u64 = 1 << 30;

pub(super) const LOCATION_BITS: u32 = 56;

const TOMBSTONE: u64 = 1;
const CLASS: u64 = (1 << 11) - 1;
const START: u64 = MAX_START - 1;

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location(u64);

impl Location {
    /// `slot` is below [`MAX_SEGMENTS`], `start` below [`MAX_START`], `len` at most [`super::entry::MAX_ENTRY`].
    #[inline]
    pub(super) fn new(slot: u16, start: u64, len: u64, is_tombstone: bool) -> Self {
        debug_assert!(usize::from(slot) < MAX_SEGMENTS && start < MAX_START);
        Self((u64::from(slot) << 42) | (start << 12) | (class_of(len) << 1) | u64::from(is_tombstone))
    }

    #[inline]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << LOCATION_BITS) - 1))
    }

    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) fn slot(self) -> u16 {
        (self.0 >> 42) as u16
    }

    #[inline]
    pub(super) fn start(self) -> u64 {
        (self.0 >> 12) & START
    }

    /// Bytes that the entry takes, rounded up.
    #[inline]
    pub(super) fn len(self) -> u64 {
        len_of((self.0 >> 1) & CLASS)
    }

    #[inline]
    pub(super) fn is_tombstone(self) -> bool {
        self.0 & TOMBSTONE != 0
    }

    /// The same place in another table of segments.
    pub(super) fn with_slot(self, slot: u16) -> Self {
        Self((self.0 & ((1 << 42) - 1)) | (u64::from(slot) << 42))
    }
}

/// Lengths up to 127 are their own class; above, seven leading bits are kept.
#[inline]
fn class_of(len: u64) -> u64 {
    if len < 128 {
        return len;
    }
    let shift = u64::from(57 - len.leading_zeros());
    // Rounding up may reach 128, which is the first class of the next shift.
    let leading = (len + (1 << shift) - 1) >> shift;
    (shift + 1) * 64 + leading - 64
}

#[inline]
fn len_of(class: u64) -> u64 {
    if class < 128 { class } else { (64 + class % 64) << (class / 64 - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_round_up_by_less_than_two_percent() {
        let near = (0..30).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for len in (0..70_000).chain(near) {
            let class = class_of(len);
            assert!(class <= CLASS, "{len}");
            let rounded = len_of(class);
            assert!(rounded >= len && (rounded - len) * 64 <= len, "{len} became {rounded}");
        }
    }

    #[test]
    fn all_parts_come_back() {
        let slots = [0, 1, MAX_SEGMENTS as u16 - 1];
        for (slot, start) in
            slots.into_iter().flat_map(|slot| [0, 5, MAX_START - 1].map(|start| (slot, start)))
        {
            for is_tombstone in [false, true] {
                let location = Location::new(slot, start, 77, is_tombstone);
                let back = Location::from_bits(location.bits());
                assert_eq!((back.slot(), back.start(), back.len()), (slot, start, 77));
                assert_eq!(back.is_tombstone(), is_tombstone);
                assert_eq!(back.with_slot(9), Location::new(9, start, 77, is_tombstone));
                assert!(location.bits() < 1 << LOCATION_BITS);
            }
        }
    }
}
