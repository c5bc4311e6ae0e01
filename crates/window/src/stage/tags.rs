//! Tags of groups in a checkpoint: with them a restart finds groups by key and reads none (`crate::groups`).
//!
//! They are kept in blocks of 1,024 numbers, and a block is written again when a group of it came or went. Groups come
//! and go before the turn of a frozen block: what such numbers had at the marker is kept aside until all are written.
//!
//! Not here: the bytes of a block, and what tags are for in memory (`crate::groups`).

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::Grouping;
use super::changes::{Key, Sealed};
use super::checkpoint::Checkpoint;
use super::dirty::Dirty;
use crate::groups::{Groups, TAG_BLOCK, save_tags};

/// A block costs as much to write as this number of groups.
const GROUPS_PER_BLOCK: usize = 64;

/// Which blocks of a GROUP BY are to be written.
#[derive(Default)]
pub(super) struct Tags {
    blocks: Dirty,
    /// Tags that numbers had at the marker, of those that came or went since; only while blocks of it are left.
    before: HashMap<u32, Option<u32>, RandomState>,
}

impl Tags {
    pub(super) fn bytes(&self) -> usize {
        self.blocks.bytes() + self.before.capacity() * size_of::<(u32, Option<u32>)>()
    }

    /// Numbers were given to groups.
    pub(super) fn came(&mut self, numbers: &[u32]) {
        for number in numbers {
            self.change(*number, None);
        }
    }

    /// A number, whose group had this tag, is free.
    pub(super) fn went(&mut self, number: u32, tag: u32) {
        self.change(number, Some(tag));
    }

    fn change(&mut self, number: u32, before: Option<u32>) {
        if self.blocks.left() > 0 {
            self.before.entry(number).or_insert(before);
        }
        let block = number / TAG_BLOCK;
        self.blocks.grow(block as usize + 1);
        self.blocks.mark(&[block]);
    }

    /// A marker; at the first one all blocks are to be written.
    pub(super) fn freeze(&mut self, numbers: usize, is_first: bool) {
        if is_first {
            self.blocks.mark_all(numbers.div_ceil(TAG_BLOCK as usize));
        }
        self.before.clear();
        self.blocks.freeze();
    }

    /// All blocks are to be written with the next marker: what a checkpoint has of them is of another hash.
    pub(super) fn are_anew(&mut self, numbers: usize) {
        self.blocks.mark_all(numbers.div_ceil(TAG_BLOCK as usize));
    }

    fn tag(&self, groups: &Groups, number: u32) -> Option<u32> {
        self.before.get(&number).copied().unwrap_or_else(|| groups.tag(number))
    }
}

impl Checkpoint {
    /// Writes frozen blocks; whether all are written.
    pub(super) fn save_tags(
        &mut self,
        groupings: &mut [Option<Grouping>],
        spent: &mut usize,
        budget: usize,
    ) -> bool {
        let Some(changes) = self.changes() else { return true };
        let mut image = Vec::new();
        for Grouping { id, table, tags, .. } in groupings.iter_mut().flatten() {
            while tags.blocks.left() > 0 {
                if *spent >= budget {
                    return false;
                }
                *spent += GROUPS_PER_BLOCK;
                let Some(block) = tags.blocks.claim_next() else { break };
                let key = Key::Tags { grouping: *id, block };
                image.clear();
                if !save_tags(block, |number| tags.tag(table, number), &mut image) {
                    changes.drop_key(key);
                    continue;
                }
                let Ok(()) = changes.put(key, |out| {
                    out.extend_from_slice(&image);
                    Ok::<(), std::convert::Infallible>(())
                });
            }
            tags.before.clear();
        }
        true
    }
}
