//! The state of a stage, handed over at cycle markers without a stop.
//!
//! A marker ([`Stage::begin_cycle`]) *freezes* the changes since the last one: it swaps sets of marks, numbers open
//! rows and ids that came, and writes the [`Manifest`](super::Manifest). Groups are written afterwards, a few after each
//! batch ([`Stage::hand_over_some`]); one that a batch is about to change is written first, so that every image is that
//! of the marker. A hand-over counts once a commit names it ([`Stage::committed`]).
//!
//! | state | key | value |
//! |---|---|---|
//! | group | id of its GROUP BY, number | key, newest and task time, the state of each leaf (`group`) |
//! | piece of a long list | id of its leaf, number | some hundred values of one group (`crate::pieces`) |
//! | tags of groups | id of their GROUP BY, number of the block | which numbers of the block have groups, and their tags |
//! | open rows | number of the frame | rows that came since the marker before (`reservoir::frames`) |
//! | ids | number of the frame | ids that came since the marker before (`ids`) |
//! | all else | the manifest | plan, task time, which chunks and frames there are |
//!
//! Invariants
//! * A group's value is complete as of a task time: it can be read without any other, but for the middle of lists that are
//!   long, whose pieces are of the same cycle or of one before. What edges have done to the group
//!   since may be missing, if they began at or after the time that the manifest says (`passed`); the reservoir has the
//!   rows (`replay`).
//! * Ids of groupings and leaves are never used again, so what a dropped query has left means nothing to others.
//! * Queries come and go between markers only: frozen groups are written before.
//! * Chunks that a commit may still need are kept until a newer one is there.
//!
//! Not here: which groups have changed (`dirty`, in the plan), the bytes (`agg`, `leaf`, `manifest`), reading them
//! (`restore`), back ends and commits.

use std::collections::VecDeque;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_buffer::ScalarBuffer;
use smallvec::SmallVec;
use thalweg_state::Changes;
use thalweg_storage::{ChunkId, SyncTicket};
use thalweg_types::{Error, Micros};

use super::changes::{Key, Sealed};
use super::dirty::Dirty;
use super::leaves::Leaves;
use super::nodes::Face;
use super::pieces::PieceChanges;
use super::plan::Plan;
use super::records::Records;
use super::stream::{StreamId, Streams};
use super::{Grouping, Manifest, Stage, group};
use crate::groups::{Groups, TAG_BLOCK};
use crate::key;

/// Everything of one cycle.
///
/// To commit it: begin `sync` and wait for it, apply `changes` to a back end and sync that, name `manifest` in a commit record, then
/// tell the stage by [`Stage::committed`].
#[derive(Debug)]
#[must_use]
pub struct StageHandover {
    pub cycle: u64,
    /// Relative to the cycle before.
    pub changes: Changes,
    pub manifest: Vec<u8>,
    /// Chunks that the manifest names.
    pub chunks: Range<ChunkId>,
    /// Of the chunks that were sealed before the marker.
    pub sync: SyncTicket,
}

/// A cycle's marker, as groups need to know of it.
pub(super) struct Marker {
    pub(super) cycle: u64,
    /// Task time.
    pub(super) as_of: Micros,
    /// There was none before.
    pub(super) is_first: bool,
    /// Groups may leave memory.
    pub(super) is_bounded: bool,
    /// Groups that only edges have changed are all written, and not in turn.
    pub(super) is_round: bool,
}

/// Groups whose states are read ahead together: those of 120 windows are in the second cache then.
const AHEAD: usize = 32;

/// Keys of what a part of the plan had that is no more.
struct Dropped {
    key: fn(u32, u32) -> Key,
    /// Id of the part.
    id: u32,
    numbers: Range<u32>,
}

/// What a stage remembers of checkpoints.
#[derive(Default)]
pub(super) struct Checkpoint {
    /// The cycle that is being handed over.
    open: Option<StageHandover>,
    /// Cycles that a recovery may begin with, and the first chunk that each needs; the first is the last committed.
    held: VecDeque<(u64, ChunkId)>,
    /// Groups of dropped GROUP BYs and pieces of dropped leaves, and those of them that the open cycle says are gone.
    dropped: Vec<Dropped>,
    dropping: Vec<Dropped>,
    /// Keys that the next marker says are gone.
    gone: Vec<Key>,
    /// Whether the one group of queries without GROUP BY is in a checkpoint.
    has_whole: bool,
    /// Whether that group has changed.
    whole: Dirty,
    /// Memory for the changes of the next cycle.
    spare: Changes,
    /// Task time at the marker of the open cycle.
    as_of: Micros,
    scratch: group::Scratch,
}

impl Checkpoint {
    /// That of a stage which was restored from a cycle.
    pub(super) fn restored(manifest: &Manifest, gone: Vec<Key>) -> Self {
        let held = VecDeque::from([(manifest.cycle(), manifest.chunks().start)]);
        Self { held, gone, has_whole: manifest.has_whole, ..Self::default() }
    }

    /// Heap bytes of the open cycle.
    pub(super) fn bytes(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |open| open.changes.byte_len() + open.manifest.len());
        open + self.spare.capacity()
    }

    pub(super) fn drop_groups(&mut self, grouping: u32, numbers: usize) {
        if numbers > 0 {
            let key = |grouping, group| Key::Group { grouping, group };
            self.dropped.push(Dropped { key, id: grouping, numbers: 0..numbers as u32 });
            let blocks = 0..(numbers as u32).div_ceil(TAG_BLOCK);
            self.gone.extend(blocks.map(|block| Key::Tags { grouping, block }));
        }
    }

    /// A leaf is gone, whose pieces have or had numbers below `next`.
    pub(super) fn drop_pieces(&mut self, leaf: u32, next: u32) {
        if next > 0 {
            let key = |leaf, number| Key::Piece { leaf, number };
            self.dropped.push(Dropped { key, id: leaf, numbers: 0..next });
        }
    }

    /// A group is gone, but for what the leaves have that read the GROUP BY at `place`: their pieces go with it.
    pub(super) fn bury(&mut self, slot: u32, place: usize, leaves: &mut Leaves) {
        let mut numbers = Vec::new();
        for (node, face) in leaves.readers_mut(Some(place)) {
            if face == Face::Groups && node.leaf.knows(face, slot) {
                node.leaf.pieced_mut().for_each(|pieced| pieced.bury(slot, &mut numbers));
                let leaf = node.id;
                self.gone.extend(numbers.drain(..).map(|number| Key::Piece { leaf, number }));
            }
        }
    }

    /// The changes of the open cycle.
    pub(super) fn changes(&mut self) -> Option<&mut Changes> {
        self.open.as_mut().map(|open| &mut open.changes)
    }

    /// A marker for the one group of queries without GROUP BY; whether it is in a checkpoint from now on. `is_new`: it has
    /// records, and there was no marker before.
    fn freeze_whole(&mut self, is_new: bool, is_whole: bool) -> bool {
        if is_new && is_whole {
            self.whole.mark_all(1);
        }
        self.whole.freeze();
        if self.whole.left() > 0 {
            self.has_whole = is_whole;
        }
        self.has_whole
    }

    /// The cycle is named by a commit.
    fn committed(&mut self, cycle: u64) {
        while self.held.len() > 1 && self.held[0].0 < cycle {
            self.held.pop_front();
        }
    }

    /// Has the reservoir keep the chunks that a recovery may need.
    pub(super) fn hold_chunks(&self, records: &mut Records) {
        // A new query comes after what earlier cycles needed: a later cycle may name earlier chunks.
        if let Some(first) = self.held.iter().map(|(_, first)| *first).min() {
            records.reservoir.hold(first);
        }
    }

    /// As [`Stage::hand_over_some`].
    fn hand_over_some(
        &mut self,
        plan: &mut Plan,
        records: &mut Records,
        budget: usize,
    ) -> Result<Option<StageHandover>, Error> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let mut spent = 0;
        if !records.save_frames((open.cycle, &mut open.changes), &mut spent, budget)? {
            return Ok(None);
        }
        if !self.save_dropped(&mut spent, budget)
            || !self.save_tags(&mut plan.groupings, &mut spent, budget)
            || !self.save_all_groups(plan, &mut spent, budget)
        {
            return Ok(None);
        }
        Ok(self.open.take())
    }

    /// Writes all frozen groups, whatever it costs: the plan is about to change.
    pub(super) fn save_frozen_groups(&mut self, plan: &mut Plan) {
        self.save_tags(&mut plan.groupings, &mut 0, usize::MAX);
        self.save_all_groups(plan, &mut 0, usize::MAX);
    }

    /// Says that groups of dropped GROUP BYs and pieces of dropped leaves are gone; whether all are said.
    fn save_dropped(&mut self, spent: &mut usize, budget: usize) -> bool {
        let Some(open) = &mut self.open else { return true };
        while let Some(Dropped { key, id, numbers }) = self.dropping.last_mut() {
            let Some(number) = numbers.next() else {
                self.dropping.pop();
                continue;
            };
            open.changes.drop_key(key(*id, number));
            *spent += 1;
            if *spent >= budget {
                return false;
            }
        }
        true
    }

    /// Writes frozen groups; whether all are written.
    fn save_all_groups(&mut self, plan: &mut Plan, spent: &mut usize, budget: usize) -> bool {
        for (place, grouping) in plan.groupings.iter_mut().enumerate() {
            let Some(Grouping { id, table, dirty, .. }) = grouping else { continue };
            while dirty.left() > 0 {
                if *spent >= budget {
                    return false;
                }
                let ahead = AHEAD.min(budget - *spent);
                let groups: SmallVec<[u32; AHEAD]> =
                    std::iter::from_fn(|| dirty.claim_next()).take(ahead).collect();
                if groups.is_empty() {
                    break;
                }
                *spent += groups.len();
                self.save_groups(*id, &groups, table, place, &mut plan.leaves);
            }
        }
        self.save_whole(&mut plan.leaves);
        true
    }

    /// Writes a group of (id of its GROUP BY, number) into the open cycle, if there is one; `entry` is its slot, key and
    /// newest time, `None` where its number was free at the marker. Its pieces are handed over.
    pub(super) fn save_group(
        &mut self,
        (grouping, group): (u32, u32),
        entry: Option<(u32, &key::Key, Micros)>,
        place: Option<usize>,
        leaves: &Leaves,
    ) {
        let Self { open: Some(open), as_of, scratch, .. } = self else { return };
        let key = Key::Group { grouping, group };
        let Some((slot, group_key, newest)) = entry else { return open.changes.drop_key(key) };
        let Ok(()) = open.changes.put(key, |out| {
            let parts = leaves.readers(place).filter(|(node, face)| node.leaf.knows(*face, slot));
            group::save((group_key, newest), *as_of, (slot, parts), scratch, out);
            Ok::<(), std::convert::Infallible>(())
        });
    }

    /// Cuts what is long of these slots of a GROUP BY into pieces, and writes those that are new. Before their groups are
    /// saved.
    pub(super) fn hand_over_pieces(&mut self, slots: &[u32], place: Option<usize>, leaves: &mut Leaves) {
        let Some(StageHandover { cycle, changes, .. }) = &mut self.open else { return };
        for (node, face) in leaves.readers_mut(place).filter(|(node, _)| node.leaf.is_pieced()) {
            let to = &mut PieceChanges { leaf: node.id, changes };
            for slot in slots {
                if face == Face::Groups && node.leaf.knows(face, *slot) {
                    node.leaf.pieced_mut().for_each(|pieced| pieced.hand_over(*slot, *cycle, to));
                }
            }
        }
    }

    /// As [`Checkpoint::save_group`], of many groups: what one of them waits for in memory comes with what the others do.
    fn save_groups(
        &mut self,
        grouping: u32,
        groups: &[u32],
        table: &Groups,
        place: usize,
        leaves: &mut Leaves,
    ) {
        for groups in groups.chunks(AHEAD) {
            let slots = groups.iter().filter_map(|group| Some(table.entry(*group)?.0));
            let slots: SmallVec<[u32; AHEAD]> = slots.collect();
            leaves.readers(Some(place)).for_each(|(node, face)| node.leaf.touch(face, &slots));
            self.hand_over_pieces(&slots, Some(place), leaves);
            for group in groups {
                self.save_group((grouping, *group), table.entry(*group), Some(place), leaves);
            }
        }
    }

    /// Writes the one group of queries without GROUP BY, if it is frozen.
    fn save_whole(&mut self, leaves: &mut Leaves) {
        if self.whole.claim(0) {
            self.hand_over_pieces(&[0], None, leaves);
            let entry = leaves.is_whole().then_some((0, &key::Key::Null, 0));
            self.save_group((0, 0), entry, None, leaves);
        }
    }

    /// After queries were dropped: the one group of all records is gone if no query reads it.
    pub(super) fn note_whole(&mut self, leaves: &Leaves) {
        if self.has_whole && !leaves.is_whole() {
            self.whole.mark_all(1);
        }
    }

    /// Notes which groups a batch changes, before leaves run; those that are frozen are written first.
    pub(super) fn note_changes(
        &mut self,
        plan: &mut Plan,
        streams: &Streams,
        groups: &[ScalarBuffer<u32>],
        count: usize,
    ) {
        if count == 0 {
            return;
        }
        // How many values a group has is not to be found out again from images of another time.
        let values = plan.groupings.iter().flatten().filter_map(|grouping| grouping.values_of);
        let counted: SmallVec<[usize; 4]> = values.filter_map(|values| values.grouping).collect();
        for (place, grouping) in plan.groupings.iter_mut().enumerate() {
            let Some(Grouping { id, table, layout, dirty, .. }) = grouping else { continue };
            dirty.grow(table.numbers());
            let cursors = plan.leaves.cursors_of(place);
            let mut save_frozen = |dirty: &mut Dirty, changed: &[u32]| {
                if dirty.left() > 0 {
                    let claimed = changed.iter().copied().filter(|group| dirty.claim(*group));
                    let claimed: SmallVec<[u32; AHEAD]> = claimed.collect();
                    self.save_groups(*id, &claimed, table, place, &mut plan.leaves);
                }
            };
            save_frozen(dirty, &groups[place]);
            dirty.mark(&groups[place]);
            for cursor in cursors {
                let elements = streams.get(StreamId::Cursor(cursor));
                if !elements.is_empty() {
                    let passed = elements.column(*layout).as_primitive::<UInt32Type>().values();
                    save_frozen(dirty, passed);
                    if counted.contains(&place) {
                        dirty.mark(passed);
                    } else {
                        dirty.pass(passed);
                    }
                }
            }
        }
        if plan.leaves.is_whole() {
            self.save_whole(&mut plan.leaves);
            self.whole.mark_all(1);
        }
    }
}

impl Stage {
    /// A cycle's marker: freezes the changes since the last one, to be handed over bit by bit.
    ///
    /// `cycle` is above that of every marker before. Takes time for each open chunk with new rows and each word of 64
    /// groups, but none for each group or row.
    ///
    /// # Errors
    /// [`Class::Internal`](thalweg_types::Class) while another cycle is being handed over; what the chunk store says of
    /// an earlier write.
    pub fn begin_cycle(&mut self, cycle: u64) -> Result<(), Error> {
        if let Some(open) = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.open.as_ref()) {
            return Err(Error::internal(format!(
                "cycle {cycle} begins while cycle {} is being handed over: expected finish_cycle first",
                open.cycle
            )));
        }
        let sync = self.records.draw_sync()?;
        let is_first = self.checkpoint.is_none();
        let now = self.records.task_time();
        let as_of = now.unwrap_or(Micros::MIN);
        let marker = Marker {
            cycle,
            as_of,
            is_first,
            is_bounded: self.cache.is_some(),
            is_round: self.cache.as_ref().is_some_and(|cache| cache.is_much_passed(&self.plan)),
        };
        self.plan.freeze(&marker);
        let is_whole = self.plan.leaves.is_whole();
        let checkpoint = self.checkpoint.get_or_insert_default();
        let has_whole = checkpoint.freeze_whole(is_first && self.records.count > 0, is_whole);

        let records = self.records.freeze();
        let from = self.plan.replays_from(now).unwrap_or(as_of);
        let chunks = self.records.reservoir.needed(as_of, from);
        let manifest =
            Manifest::new((cycle, chunks.clone()), &self.plan, &self.records, &records, has_whole).to_bytes();

        let mut changes = std::mem::take(&mut checkpoint.spare);
        records.gone.into_iter().chain(checkpoint.gone.drain(..)).for_each(|key| changes.drop_key(key));
        checkpoint.dropping = std::mem::take(&mut checkpoint.dropped);
        checkpoint.held.push_back((cycle, chunks.start));
        checkpoint.as_of = as_of;
        checkpoint.open = Some(StageHandover { cycle, changes, manifest, chunks, sync });
        checkpoint.hold_chunks(&mut self.records);
        if let Some(cache) = &mut self.cache {
            cache.began_cycle();
        }
        Ok(())
    }

    /// Writes frozen groups, up to about `budget` groups (rows and ids of frames count for less), and gives the cycle
    /// once nothing is left. `None` also if no cycle has begun.
    ///
    /// # Errors
    /// Where open rows have no stored form: the cycle cannot be completed.
    pub fn hand_over_some(&mut self, budget: usize) -> Result<Option<StageHandover>, Error> {
        match &mut self.checkpoint {
            Some(checkpoint) => checkpoint.hand_over_some(&mut self.plan, &mut self.records, budget),
            None => Ok(None),
        }
    }

    /// Writes all that is left of the cycle; `None` where no cycle has begun, or it has been given already.
    ///
    /// # Errors
    /// As [`Stage::hand_over_some`].
    pub fn finish_cycle(&mut self) -> Result<Option<StageHandover>, Error> {
        self.hand_over_some(usize::MAX)
    }

    /// Takes back the memory of changes that are no longer needed, for those of a later cycle.
    pub fn reuse(&mut self, mut changes: Changes) {
        if let Some(checkpoint) = &mut self.checkpoint {
            changes.clear();
            checkpoint.spare = changes;
        }
    }

    /// The cycle's changes can be read back: groups that have not changed since may leave memory.
    pub fn written(&mut self, cycle: u64) {
        self.plan.written(cycle);
        self.records.written(cycle);
    }

    /// The cycle is named by a commit, and so was written: chunks that only older ones needed may go.
    pub fn committed(&mut self, cycle: u64) {
        self.written(cycle);
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.committed(cycle);
            checkpoint.hold_chunks(&mut self.records);
        }
    }
}
