//! Groups that no window holds any more lose their numbers.
//!
//! Those in memory are looked at in turn, a few per record.
//!
//! Cold groups that die: the row that leaves the last sliding window brings its group in, and the sweep frees it.
//! Where windows end without a row (`TUMBLING`, queries that are dropped), cold groups are visited in turn: one per
//! sixteen records, and two per new group, so that there are never many more dead ones than live ones.
//!
//! Not here: tables of groups (`crate::groups`).

use thalweg_types::{Error, Micros};

use super::cache::{Cache, FETCH, missing};
use super::changes::Key;
use super::checkpoint::Checkpoint;
use super::plan::Plan;
use super::{Grouping, group};
use crate::groups::{Groups, stable_tag};

/// Slots of group tables looked at per record when dead groups are swept: more than one, so that the hand overtakes new
/// groups; a constant, so that no record pays for many.
const SWEEP_PER_RECORD: usize = 2;

/// Records per cold group that is visited, and cold groups that are visited at once.
const RECORDS_PER_VISIT: usize = 16;
const VISITS: usize = 64;

/// Records' worth of visits that new groups bring.
pub(super) fn due_to(groups: usize) -> usize {
    2 * RECORDS_PER_VISIT * groups
}

impl Plan {
    /// Frees the numbers of some groups that no window holds any more.
    pub(super) fn sweep(&mut self, records: usize, now: Micros, mut checkpoint: Option<&mut Checkpoint>) {
        for index in 0..self.groupings.len() {
            let bound = self.leaves.dead_bound(index, now);
            let Some(grouping) = self.groupings[index].as_mut().filter(|_| bound != Micros::MIN) else {
                continue;
            };
            let leaves = &mut self.leaves;
            let Grouping { id, table, dirty, tags, .. } = grouping;
            dirty.grow(table.numbers());
            let hash_key = table.hash_key();
            table.sweep(records * SWEEP_PER_RECORD, bound, |group, slot, (key, newest)| {
                if let Some(checkpoint) = &mut checkpoint {
                    if dirty.claim(group) {
                        let entry = Some((slot, key, newest));
                        checkpoint.hand_over_pieces(&[slot], Some(index), leaves);
                        checkpoint.save_group((*id, group), entry, Some(index), leaves);
                    }
                    dirty.mark(&[group]);
                    tags.went(group, stable_tag(&hash_key, key.as_ref()));
                    checkpoint.bury(slot, index, leaves);
                }
                for (node, face) in leaves.readers_mut(Some(index)) {
                    node.leaf.forget(face, slot);
                }
            });
        }
    }
}

impl Cache {
    /// Reads cold groups back that no row would ever bring in, and frees those that are dead.
    pub(super) fn visit_cold(&mut self, plan: &mut Plan, records: usize, now: Micros) -> Result<(), Error> {
        self.due += records;
        let cold = |grouping: &Grouping| grouping.table.live() - grouping.table.resident();
        let most = plan.groupings.iter().flatten().map(cold).max().unwrap_or(0);
        let count = self.due / RECORDS_PER_VISIT;
        if count < VISITS.min(most).max(1) {
            return Ok(());
        }
        self.due = 0;
        for place in 0..plan.groupings.len() {
            let bound = plan.leaves.dead_bound(place, now);
            let Some(Grouping { id, table: Groups::Cached(table), dirty, tags, .. }) =
                &mut plan.groupings[place]
            else {
                continue;
            };
            if bound == Micros::MIN {
                continue;
            }
            let grouping = *id;
            let numbers = table.next_cold(count.min(FETCH));
            let keys: Vec<Key> = numbers.into_iter().map(|group| Key::Group { grouping, group }).collect();
            self.read(&keys, |key, bytes, value| {
                let Key::Group { group, .. } = key else { return Ok(()) };
                let (head, _) = group::open(bytes, value.ok_or_else(|| missing(key))?)?;
                if head.newest <= bound
                    && let Some(tag) = table.tag(group)
                {
                    table.free_number(group);
                    dirty.mark(&[group]);
                    tags.went(group, tag);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
