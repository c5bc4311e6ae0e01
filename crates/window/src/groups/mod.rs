//! Groups of one GROUP BY: each value of its fields has a dense *number*, and is held in a *slot* while in memory.
//!
//! Rows of the reservoir and keys of a checkpoint have the number; it stays with the group while a window holds
//! a record of it. The slot is where aggregates have the group's state. [`Dense`] holds every group, and number and
//! slot are the same; that is how a stage begins, and the hot path knows nothing else. [`Cached`] holds some: it comes
//! with the first eviction, or with a restart that reads no groups, and never goes back.
//!
//! A group is *dead* when its newest record is outside every window that reads this GROUP BY. Dead groups are found by
//! a sweep that moves on by a few slots per record, so that no record pays for all.
//!
//! For a checkpoint every group has a *tag*, a hash of its key, kept in blocks by number: with these alone a stage
//! finds a group in its back end by key, so that a restart reads four bytes a group and no group. Groups of one tag are
//! all read where one of them may be meant. So that there are next to never two, whatever keys are sent, the hash has a
//! key of its own, which the manifest keeps. The table in memory has a seed for the same reason.
//!
//! Invariants
//! * A live group keeps its number; numbers are reused only after a sweep has freed them, between batches.
//! * Which number or slot a group has changes no answer.

mod cached;
mod dense;
#[cfg(test)]
mod hostile;

use arrow_array::ArrayRef;
use arrow_buffer::ScalarBuffer;
use thalweg_types::{HashKey, Micros};

use crate::image::{Malformed, Reader, put_signed};
use crate::key::{Key, KeyRef};
pub(crate) use cached::{Cached, read_tags, save_tags};
pub(crate) use dense::Dense;

/// The number that represents "no such group".
pub(crate) const NO_GROUP: u32 = u32::MAX;

/// The newest time that marks a slot in which no group is.
const FREE: Micros = Micros::MAX;

/// Numbers of a block of tags. Persisted: the key of a block is its first number divided by this.
pub(crate) const TAG_BLOCK: u32 = 1024;

/// A live group's key and newest time, or nothing for a number that is free.
pub(crate) type Entry<'a> = Option<(&'a Key, Micros)>;

/// All groups of a GROUP BY.
pub(crate) enum Groups {
    Dense(Dense),
    Cached(Box<Cached>),
}

/// The hash of a key that checkpoints keep, under the stage's own key. Persisted: do not change.
pub(crate) fn stable_tag(hash_key: &HashKey, key: KeyRef<'_>) -> u32 {
    let hash = match key {
        KeyRef::Null => hash_key.hash64(&[]),
        KeyRef::Short(word) => hash_key.hash64(&word.to_le_bytes()),
        KeyRef::Long(bytes) => hash_key.hash64(bytes),
    };
    hash as u32
}

#[cfg(test)]
thread_local! {
    /// Entries that look-ups have looked at, as tests count them.
    static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A look-up looks at an entry.
#[inline(always)]
fn note_look() {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
}

impl Groups {
    /// Bytes that a group in memory takes here, a short key included.
    pub(crate) const BYTES_PER_GROUP: usize = Dense::BYTES_PER_GROUP;

    /// None yet; `hash_key` is that of the tags.
    pub(crate) fn new(hash_key: HashKey) -> Self {
        Self::Dense(Dense::new(hash_key))
    }

    /// What tags are hashed with.
    pub(crate) fn hash_key(&self) -> HashKey {
        match self {
            Self::Dense(table) => table.hash_key(),
            Self::Cached(table) => table.hash_key(),
        }
    }

    /// One past the largest number ever given.
    pub(crate) fn numbers(&self) -> usize {
        match self {
            Self::Dense(table) => table.slots(),
            Self::Cached(table) => table.numbers(),
        }
    }

    /// One past the largest slot ever used.
    pub(crate) fn slots(&self) -> usize {
        match self {
            Self::Dense(table) => table.slots(),
            Self::Cached(table) => table.slots(),
        }
    }

    /// Slots in which a group is.
    pub(crate) fn resident(&self) -> usize {
        match self {
            Self::Dense(table) => table.live(),
            Self::Cached(table) => table.resident(),
        }
    }

    /// Groups that have a number now.
    pub(crate) fn live(&self) -> usize {
        match self {
            Self::Dense(table) => table.live(),
            Self::Cached(table) => table.live(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Dense(table) => table.bytes(),
            Self::Cached(table) => table.key_bytes() + table.slot_bytes(),
        }
    }

    /// The part of [`Groups::bytes`] that depends on slots and not on numbers.
    pub(crate) fn slot_bytes(&self) -> usize {
        match self {
            Self::Dense(table) => table.bytes(),
            Self::Cached(table) => table.slot_bytes(),
        }
    }

    /// Group number of every row: rows with `accepted` get one where they have none, the others [`NO_GROUP`] then.
    /// Groups that rows may be of are in slots: see [`Cached::wanted`].
    ///
    /// `times` are the times at which accepted rows count.
    ///
    /// `before` is called before a group's entry changes, with its number and its newest time; `None` where the number
    /// was free.
    pub(crate) fn number(
        &mut self,
        columns: &[ArrayRef],
        times: &[Micros],
        accepted: Option<&[bool]>,
        before: impl FnMut(u32, Option<Micros>),
    ) -> ScalarBuffer<u32> {
        match self {
            Self::Dense(table) => table.number(columns, times, accepted, before),
            Self::Cached(table) => table.number(columns, times, accepted, before),
        }
    }

    /// The number of one key, if it has one; a group that it may be of is in a slot.
    pub(crate) fn find(&self, columns: &[ArrayRef]) -> Option<u32> {
        match self {
            Self::Dense(table) => table.find(columns),
            Self::Cached(table) => table.find(columns),
        }
    }

    /// The slot of a group in memory.
    #[inline]
    pub(crate) fn slot(&self, number: u32) -> Option<u32> {
        match self {
            Self::Dense(_) => Some(number),
            Self::Cached(table) => table.slot(number),
        }
    }

    /// What a number of a group in memory represents, with its slot.
    pub(crate) fn entry(&self, number: u32) -> Option<(u32, &Key, Micros)> {
        let ((key, newest), slot) = match self {
            Self::Dense(table) => (table.entry(number)?, number),
            Self::Cached(table) => (table.entry(number)?, table.slot(number)?),
        };
        Some((slot, key, newest))
    }

    /// The tag of a live group.
    pub(crate) fn tag(&self, number: u32) -> Option<u32> {
        match self {
            Self::Dense(table) => {
                table.entry(number).map(|(key, _)| stable_tag(&table.hash_key(), key.as_ref()))
            }
            Self::Cached(table) => table.tag(number),
        }
    }

    /// Appends a live group's key and newest time to its image.
    pub(crate) fn save((key, newest): (&Key, Micros), out: &mut Vec<u8>) {
        key.save(out);
        put_signed(out, newest);
    }

    /// Reads what [`Groups::save`] wrote.
    pub(crate) fn read(image: &mut Reader<'_>) -> Result<(Key, Micros), Malformed> {
        let key = Key::load(image)?;
        let newest = image.signed("newest time of a group")?;
        if newest == FREE {
            return Err(image.malformed("newest time of a group", "one that a record has", newest));
        }
        Ok((key, newest))
    }

    /// All groups are loaded: the remaining numbers are free.
    pub(crate) fn loaded(&mut self) {
        match self {
            Self::Dense(table) => table.loaded(),
            Self::Cached(table) => table.loaded(),
        }
    }

    /// Whether slots are to be given back.
    pub(crate) fn is_retreating(&self) -> bool {
        matches!(self, Self::Cached(table) if table.is_retreating())
    }

    /// From now on some groups may be out of memory.
    pub(crate) fn make_cached(&mut self) -> &mut Cached {
        if let Self::Dense(table) = self {
            let table = std::mem::replace(table, Dense::new(table.hash_key()));
            *self = Self::Cached(Box::new(Cached::of_dense(table)));
        }
        match self {
            Self::Cached(table) => table,
            Self::Dense(_) => unreachable!("it was replaced above"),
        }
    }

    /// Looks at up to `slots` groups in memory and frees those whose newest record is at or below `bound`; calls
    /// `freed` with number, slot and entry of each before its number may be given again.
    pub(crate) fn sweep(
        &mut self,
        slots: usize,
        bound: Micros,
        mut freed: impl FnMut(u32, u32, (&Key, Micros)),
    ) {
        match self {
            Self::Dense(table) => table.sweep(slots, bound, |number, entry| freed(number, number, entry)),
            Self::Cached(table) => table.sweep(slots, bound, freed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_never_change() {
        let keys = [KeyRef::Null, KeyRef::Short(7), KeyRef::Long(b"a key longer than twelve bytes")];
        let hash_key = HashKey::from_bytes(*b"sixteen bytes ..");
        assert_eq!(keys.map(|key| stable_tag(&hash_key, key)), GOLDEN, "they are on disk");
    }

    const GOLDEN: [u32; 3] = [3_998_252_301, 3_548_963_850, 2_982_980_602];
}
