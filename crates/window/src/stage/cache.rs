//! Groups as a bounded cache over the back end that has their checkpoints.
//!
//! Groups that a batch needs and memory does not have are *misses*: those of its records are read before anything
//! changes, those of rows that leave windows before any leaf runs, each with one call for all. Groups that the back
//! end has as they are (*clean* ones) may be evicted, those first that were not used lately. A group that has changed
//! is not clean before [`Stage::written`] names the cycle of the change.
//!
//! Memory is counted in what the groups in slots take; slots that are free again are used again first, and given back
//! where all that is held, free slots included, is above the bound. It is looked at once per sixteenth of the slots in
//! records, so that looking costs a record next to nothing; between looks groups are counted.
//!
//! The bound and what it does when it is reached: after each batch clean groups go until a sixteenth of it is free, at
//! most some times as many as the batch had records, so that no batch waits long. Where too few are clean the stage
//! goes on above it, counts that in [`CacheStats::overruns`], and [`Stage::wants_cycle`] says that the cycle should end,
//! [`Stage::is_over_memory`] that nothing more should come before. Both say nothing where few groups have changed, of which
//! one may be larger than memory: it would be written again and again, and never leave.
//!
//! Not here: which groups are in slots (`crate::groups`), what a cycle writes (`checkpoint`), ids (`ids`), how dead
//! groups are found (`sweep`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, UInt32Array};
use arrow_buffer::ScalarBuffer;
use thalweg_types::{Error, Micros};

use super::changes::Key;
use super::checkpoint::Checkpoint;
use super::dirty::Dirty;
use super::nodes::Face;
use super::pieces::ReadPieces;
use super::plan::Plan;
use super::records::Records;
use super::stream::{StreamId, Streams};
use super::{Grouping, LeafNode, Stage, group, sweep};
use crate::groups::{Cached, Groups, NO_GROUP};
use crate::ids::Ids;
use crate::image::Malformed;

/// Groups that are asked for in one call.
pub(super) const FETCH: usize = 4096;

/// Of the memory, what an eviction leaves free.
const FREE_SHARE: usize = 16;

/// Of the memory, how far above its bound nothing more should come: less would have sources wait where cycles follow each
/// other as they should.
const OVER_SHARE: usize = 2;

/// Groups that may leave after a batch: per record of it, so that more go than come, and beyond.
const EVICTIONS_PER_RECORD: usize = 4;
const EVICTIONS: usize = 256;

/// Of the slots, how many must be free for it to be worth giving them back.
const SLOTS_SHARE: usize = 64;

/// Groups that a scan may bring in before it is known what a group takes.
const FILL_BLIND: usize = 64;

/// Of the memory, what may have changed before the cycle should end, and what a marker may leave of it to those that follow.
const CYCLE_SHARE: usize = 4;
const PASSED_SHARE: usize = 8;

/// Changed groups below which the end of a cycle helps little: they change again before they could leave memory. One of
/// them may be larger than memory.
const FEW: usize = 64;

/// Below this number of slots memory is looked at after each batch.
const LOOK_ALWAYS: usize = 1024;

/// Reads back the groups that cycles have handed over.
pub trait GroupReader: Send + Sync {
    /// The newest values of keys of [`Changes`](thalweg_state::Changes), written or committed, in the order of the keys.
    ///
    /// # Errors
    /// What the back end says; the stage cannot go on.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error>;
}

/// What a bounded stage has in memory and has read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Groups in memory.
    pub resident: u64,
    /// Groups that only the back end has.
    pub cold: u64,
    /// Ids in memory.
    pub ids: u64,
    /// Ids of which only the back end knows more than a hash.
    pub cold_ids: u64,
    /// Looks at groups that were in memory, since groups left it for the first time.
    pub hits: u64,
    /// Groups that were read back, and frames of ids.
    pub misses: u64,
    /// Groups that a scan of the back end has brought in.
    pub filled: u64,
    /// Groups and ids that left memory.
    pub evictions: u64,
    /// Times at which memory was above the bound and too few groups were clean.
    pub overruns: u64,
    /// Bytes that every live group takes in memory, cold or not, for all of them, and what cold ids take; 0 before the
    /// first has left.
    pub key_bytes: u64,
}

/// The bound and the way back.
pub(super) struct Cache {
    pub(super) memory: usize,
    reader: Arc<dyn GroupReader>,
    pub(super) stats: CacheStats,
    /// What each GROUP BY may have in memory, as of the last look.
    quotas: Vec<Quota>,
    /// Records since memory was last looked at.
    unchecked: usize,
    /// Records' worth of visits to cold groups that are due.
    pub(super) due: usize,
    wants_cycle: bool,
    /// Memory was far above the bound for want of clean groups, in this cycle.
    is_over: bool,
    /// Memory was full when it was last looked at, so ids beyond their share leave it.
    is_full: bool,
    /// Groups that a scan may bring in before memory is looked at.
    room: usize,
}

/// What a GROUP BY may have in memory.
struct Quota {
    groups: usize,
    /// Bytes of a group.
    each: usize,
}

impl Cache {
    pub(super) fn new(memory: usize, reader: Arc<dyn GroupReader>) -> Self {
        let stats = CacheStats::default();
        Self {
            memory,
            reader,
            stats,
            quotas: Vec::new(),
            unchecked: 0,
            due: 0,
            wants_cycle: false,
            is_over: false,
            is_full: false,
            room: 0,
        }
    }

    /// What groups may take for the cache to be filled no more.
    fn full_at(&self) -> usize {
        self.memory - self.memory / FREE_SHARE
    }

    pub(super) fn began_cycle(&mut self) {
        self.wants_cycle = false;
        self.is_over = false;
    }

    /// Groups got numbers.
    pub(super) fn came(&mut self, groups: usize) {
        self.due += sweep::due_to(groups);
    }

    pub(super) fn reader(&self) -> Arc<dyn GroupReader> {
        Arc::clone(&self.reader)
    }

    pub(super) fn read(
        &self,
        keys: &[Key],
        visit: impl FnMut(Key, &[u8], Option<&[u8]>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        read(self.reader.as_ref(), keys, visit)
    }

    /// Brings in those of the groups that are cold; calls `loaded` with the number of each, and the task time that its
    /// image is of.
    fn bring_in(
        &mut self,
        grouping: u32,
        place: usize,
        table: &mut Cached,
        leaves: &mut [Option<LeafNode>],
        mut numbers: Vec<u32>,
        mut loaded: impl FnMut(u32, Option<Micros>),
    ) -> Result<(), Error> {
        numbers.sort_unstable();
        numbers.dedup();
        self.stats.misses += numbers.len() as u64;
        let keys: Vec<Key> = numbers.into_iter().map(|group| Key::Group { grouping, group }).collect();
        self.read(&keys, |key, bytes, value| {
            let Key::Group { group, .. } = key else { return Ok(()) };
            let value = value.ok_or_else(|| missing(key))?;
            loaded(group, load_cold(table, leaves, (place, group), bytes, value)?);
            Ok(())
        })
    }

    /// Brings in the groups that the keys of a batch may be of.
    pub(super) fn bring_in_keys(
        &mut self,
        plan: &mut Plan,
        place: usize,
        keys: &[ArrayRef],
        rows: usize,
    ) -> Result<(), Error> {
        let Some(Grouping { id, table: Groups::Cached(table), .. }) = &mut plan.groupings[place] else {
            return Ok(());
        };
        let mut wanted = Vec::new();
        table.wanted(keys, rows, &mut wanted);
        self.bring_in(*id, place, table, &mut plan.leaves.nodes, wanted, |_, _| {})
    }

    /// Brings in the groups of rows that cursors have passed; calls `loaded` with the place of the GROUP BY and the
    /// number of each, and the task time that its image is of.
    pub(super) fn bring_in_passed(
        &mut self,
        plan: &mut Plan,
        streams: &Streams,
        mut loaded: impl FnMut(usize, u32, Option<Micros>),
    ) -> Result<(), Error> {
        for (place, grouping) in plan.groupings.iter_mut().enumerate() {
            let Some(Grouping { id, layout, table: Groups::Cached(table), .. }) = grouping else { continue };
            let mut wanted = Vec::new();
            for cursor in plan.leaves.cursors_of(place) {
                let elements = streams.get(StreamId::Cursor(cursor));
                if !elements.is_empty() {
                    let numbers = elements.column(*layout).as_primitive::<UInt32Type>().values();
                    wanted.extend(numbers.iter().filter(|number| table.is_cold(**number)));
                }
            }
            self.bring_in(*id, place, table, &mut plan.leaves.nodes, wanted, |group, as_of| {
                loaded(place, group, as_of);
            })?;
        }
        Ok(())
    }

    /// Turns numbers of groups into slots, in the streams and by record.
    pub(super) fn translate(
        &mut self,
        plan: &mut Plan,
        streams: &mut Streams,
        mut groups: Vec<ScalarBuffer<u32>>,
    ) -> Vec<ScalarBuffer<u32>> {
        for (place, grouping) in plan.groupings.iter_mut().enumerate() {
            let Some(Grouping { layout, table: Groups::Cached(table), .. }) = grouping else { continue };
            let mut slots_of = |numbers: &[u32]| -> ScalarBuffer<u32> {
                self.stats.hits += numbers.len() as u64;
                let slot = |number: &u32| {
                    // A row that came before its GROUP BY has a number that means nothing, and no leaf looks at it.
                    let slot = table.slot(*number).unwrap_or(NO_GROUP);
                    if slot != NO_GROUP {
                        table.touch(slot);
                    }
                    slot
                };
                numbers.iter().map(slot).collect()
            };
            groups[place] = slots_of(&groups[place]);
            let cursors = plan.leaves.cursors_of(place).into_iter().map(StreamId::Cursor);
            for stream in cursors.chain([StreamId::Batch]) {
                let elements = streams.get_mut(stream);
                if elements.is_empty() {
                    continue;
                }
                let slots = slots_of(elements.column(*layout).as_primitive::<UInt32Type>().values());
                elements.set_column(*layout, Arc::new(UInt32Array::new(slots, None)));
            }
        }
        groups
    }

    /// Counts the records of a batch; whether memory is to be looked at after them.
    pub(super) fn is_due(&mut self, plan: &Plan, records: usize) -> bool {
        let slots: usize = plan.groupings.iter().flatten().map(|grouping| grouping.table.slots()).sum();
        self.unchecked += records;
        slots < LOOK_ALWAYS || self.unchecked >= slots / FREE_SHARE
    }

    /// Evicts clean groups and ids where there are more than memory takes, and gives back slots that it does not need.
    ///
    /// `held` is what the stage takes, where memory is to be looked at; `may_leave`: there was a marker.
    pub(super) fn keep_within(
        &mut self,
        plan: &mut Plan,
        ids: Option<&mut Ids>,
        held: Option<usize>,
        records: usize,
        may_leave: bool,
    ) {
        let mut excess = held.map_or(0, |held| self.look(plan, held, may_leave));
        let most = EVICTIONS_PER_RECORD * records + EVICTIONS;
        if let Some(ids) = ids.filter(|_| self.is_full && may_leave) {
            self.wants_cycle |= self.evict_ids(ids, most);
        }
        let mut is_short = !may_leave;
        for (place, quota) in self.quotas.iter().enumerate().filter(|_| may_leave) {
            let Some(Grouping { table, dirty, .. }) = &mut plan.groupings[place] else { continue };
            let count = table.resident().saturating_sub(quota.groups).min(most);
            if count == 0 && !table.is_retreating() {
                continue;
            }
            let mut leaves: Vec<(&mut LeafNode, Face)> = plan.leaves.readers_mut(Some(place)).collect();
            let mut forget = |slot| leaves.iter_mut().for_each(|(node, face)| node.leaf.forget(*face, slot));
            if count > 0 {
                let is_clean = |number| dirty.is_clean(number);
                let evicted = table.make_cached().evict(count, is_clean, &mut forget);
                self.stats.evictions += evicted as u64;
                excess = excess.saturating_sub(evicted * quota.each);
                is_short |= evicted < count;
            }
            let Groups::Cached(table) = table else { continue };
            let resident = table.resident();
            let left = table.retreat(most, |number| dirty.is_clean(number), &mut forget);
            self.stats.evictions += (resident - table.resident()) as u64;
            if let Some(slots) = left {
                leaves.iter_mut().for_each(|(node, face)| node.leaf.cut(*face, slots));
            }
        }
        let is_over = held.is_some() && excess > 0 && is_short;
        let can_help = is_over && can_cycle_help(plan, may_leave);
        self.stats.overruns += u64::from(is_over);
        self.wants_cycle |= can_help;
        self.is_over |= can_help && excess > self.memory / OVER_SHARE;
    }

    /// Sets how many groups of each GROUP BY may be in memory, and which slots are to be given back. By how many bytes
    /// memory is above its bound.
    fn look(&mut self, plan: &mut Plan, held: usize, may_leave: bool) -> usize {
        let sizes = Sizes::of(plan);
        let used = held.saturating_sub(sizes.free());
        let much = self.memory / CYCLE_SHARE;
        let is_hastened = may_leave
            && sizes.changed(plan, Dirty::changed_at_most) > much
            && sizes.changed(plan, Dirty::changed) > much
            && can_cycle_help(plan, may_leave);
        self.unchecked = 0;
        let full_at = self.full_at();
        self.is_full = used > full_at;
        let groupings = || {
            let all = plan.groupings.iter().zip(&sizes.0);
            all.filter_map(|(grouping, size)| Some((grouping.as_ref()?, size)))
        };
        let in_slots: usize = groupings().map(|(_, size)| size.used()).sum();
        self.wants_cycle |= is_hastened;
        let groupings = groupings().count().max(1);
        self.quotas.clear();
        for size in &sizes.0 {
            let each = size.each();
            let groups = if used > full_at {
                // Each GROUP BY gives its share.
                let share = (used - full_at) as u128 * size.used() as u128;
                let share = share.div_ceil(in_slots.max(1) as u128) as usize;
                size.resident.saturating_sub(share.div_ceil(each))
            } else {
                size.resident + (full_at - used) / groupings / each
            };
            self.quotas.push(Quota { groups, each });
        }
        if held > self.memory && used <= self.memory {
            for (grouping, size) in plan.groupings.iter_mut().zip(&sizes.0) {
                let Some(Grouping { table: Groups::Cached(table), .. }) = grouping else { continue };
                let free = size.slots - size.resident;
                let slots = ((held - full_at) / groupings / size.each()).min(free);
                if slots > size.slots / SLOTS_SHARE {
                    table.begin_retreat(size.slots - slots);
                }
            }
        }
        used.saturating_sub(self.memory)
    }

    /// Whether so many groups have changed that few could leave memory if those that only edges have changed stayed as
    /// they are.
    pub(super) fn is_much_passed(&self, plan: &Plan) -> bool {
        Sizes::of(plan).changed(plan, Dirty::changed) > self.memory / PASSED_SHARE
    }

    /// Whether groups take what they may before memory is full; `held` is what the stage takes.
    pub(super) fn is_filled(&self, plan: &Plan, held: usize) -> bool {
        held.saturating_sub(Sizes::of(plan).free()) >= self.full_at()
    }

    /// As [`Stage::fill`]; `others` is what the stage takes without its plan.
    fn fill<'a>(
        &mut self,
        plan: &mut Plan,
        others: usize,
        entries: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<bool, Error> {
        for (key, value) in entries {
            let Key::Group { grouping, group } = Key::parse(key)? else { continue };
            let is_it = |other: &Option<Grouping>| other.as_ref().is_some_and(|other| other.id == grouping);
            let Some(place) = plan.groupings.iter().position(is_it) else { continue };
            if self.room == 0 && !self.make_room(plan, others, place) {
                return Ok(false);
            }
            let Some(Grouping { table: Groups::Cached(table), .. }) = &mut plan.groupings[place] else {
                continue;
            };
            if !table.may_fill(group) {
                continue;
            }
            load_cold(table, &mut plan.leaves.nodes, (place, group), key, value)?;
            self.room = self.room.saturating_sub(1);
            self.stats.filled += 1;
        }
        Ok(plan.groupings.iter().flatten().any(|grouping| grouping.table.resident() < grouping.table.live()))
    }

    /// Looks for how many groups there is room; whether there is any.
    fn make_room(&mut self, plan: &Plan, others: usize, place: usize) -> bool {
        let sizes = Sizes::of(plan);
        let used = (plan.bytes() + others).saturating_sub(sizes.free());
        let size = sizes.0[place];
        // Half of it, as groups differ, and not many more than there are, which say what one takes: then it is looked at
        // again.
        let room = self.full_at().saturating_sub(used) / size.each() / 2;
        self.room = room.min((size.resident / 4).max(FILL_BLIND));
        self.room > 0
    }

    fn stats_of(&self, plan: &Plan, records: &Records) -> CacheStats {
        let mut stats = self.stats;
        for grouping in plan.groupings.iter().flatten() {
            stats.resident += grouping.table.resident() as u64;
            stats.cold += (grouping.table.live() - grouping.table.resident()) as u64;
            if let Groups::Cached(table) = &grouping.table {
                stats.key_bytes += (table.key_bytes() + grouping.dirty.bytes()) as u64;
            }
        }
        if let Some(ids) = records.judge.known_ids() {
            (stats.ids, stats.cold_ids) = (ids.len() as u64, ids.cold_len() as u64);
            stats.key_bytes += ids.cold_bytes() as u64;
        }
        stats
    }
}

/// Values of keys, a slice at a time.
pub(super) fn read(
    reader: &dyn GroupReader,
    keys: &[Key],
    mut visit: impl FnMut(Key, &[u8], Option<&[u8]>) -> Result<(), Error>,
) -> Result<(), Error> {
    for keys in keys.chunks(FETCH) {
        let bytes: Vec<[u8; 9]> = keys.iter().map(|key| key.to_bytes()).collect();
        let slices: Vec<&[u8]> = bytes.iter().map(|key| &key[..]).collect();
        let values = reader.get_many(&slices)?;
        for ((key, bytes), value) in keys.iter().zip(slices).zip(values) {
            visit(*key, bytes, value.as_deref())
                .map_err(|error| error.context(format_args!("read {key}")))?;
        }
    }
    Ok(())
}

/// A group that was handed over and is not there.
pub(super) fn missing(key: Key) -> Error {
    Error::corrupt(format!("expected {key} in the back end, got nothing"))
        .with_hint("restore the data directory from a copy, or start the job anew in an empty one")
}

/// Puts a cold group of a GROUP BY at `place` into a slot, as the back end has it; the task time that it is of.
fn load_cold(
    table: &mut Cached,
    leaves: &mut [Option<LeafNode>],
    (place, number): (usize, u32),
    key: &[u8],
    value: &[u8],
) -> Result<Option<Micros>, Malformed> {
    let (head, states) = group::open(key, value)?;
    let slot = table.load(number, head.key, head.newest);
    states.load(leaves, Some(place), slot)?;
    Ok(head.as_of)
}

/// Whether there are enough changed groups for the end of the cycle to let some leave memory.
fn can_cycle_help(plan: &Plan, may_leave: bool) -> bool {
    !may_leave
        || plan.groupings.iter().flatten().map(|grouping| grouping.dirty.changed()).sum::<usize>() >= FEW
}

/// What the slots of each GROUP BY take.
struct Sizes(Vec<Size>);

impl Sizes {
    fn of(plan: &Plan) -> Self {
        let size = |(place, grouping): (usize, &Option<Grouping>)| {
            let Some(grouping) = grouping else { return Size::default() };
            let parts = plan.leaves.readers(Some(place));
            let leaves: usize = parts.map(|(node, face)| node.leaf.bytes_of(face)).sum();
            let table = &grouping.table;
            Size { bytes: leaves + table.slot_bytes(), slots: table.slots(), resident: table.resident() }
        };
        Self(plan.groupings.iter().enumerate().map(size).collect())
    }

    /// What free slots take.
    fn free(&self) -> usize {
        self.0.iter().map(|size| size.bytes - size.used()).sum()
    }

    /// What the groups take that have changed, as `changed` counts them.
    fn changed(&self, plan: &Plan, changed: fn(&Dirty) -> usize) -> usize {
        let groupings = plan.groupings.iter().zip(&self.0);
        let changed =
            groupings.filter_map(|(grouping, size)| Some(changed(&grouping.as_ref()?.dirty) * size.each()));
        changed.sum()
    }
}

/// What the slots of a GROUP BY take.
#[derive(Clone, Copy, Default)]
struct Size {
    bytes: usize,
    slots: usize,
    resident: usize,
}

impl Size {
    /// Bytes of a slot, on average.
    fn each(self) -> usize {
        (self.bytes / self.slots.max(1)).max(1)
    }

    /// Bytes of slots in which groups are.
    fn used(self) -> usize {
        (self.bytes as u128 * self.resident as u128 / self.slots.max(1) as u128) as usize
    }
}

impl Stage {
    /// Bounds the memory of groups, and says where those that leave it come back from: the back end that gets what
    /// this stage hands over. Before that, and before the first marker, all groups stay in memory.
    ///
    /// Whoever bounds a stage calls [`Stage::written`] when a cycle's changes can be read back.
    pub fn bound(&mut self, memory: usize, reader: Arc<dyn GroupReader>) {
        self.plan.pieces.read_by(Arc::new(ReadPieces(Arc::clone(&reader))));
        self.cache = Some(Cache::new(memory, reader));
    }

    /// Counts of groups in memory and of reads; `None` if nothing bounds the memory.
    pub fn cache_stats(&self) -> Option<CacheStats> {
        Some(self.cache.as_ref()?.stats_of(&self.plan, &self.records))
    }

    /// Whether the cycle should end soon: more than a quarter of the memory has changed in it, or memory is above its
    /// bound for want of groups that are clean.
    pub fn wants_cycle(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.wants_cycle)
    }

    /// Whether memory is above its bound by half of it, and stays there until the cycle has ended and is written.
    pub fn is_over_memory(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.is_over)
    }

    /// A scan of the back end begins now, whose groups [`Stage::fill`] is to bring in.
    pub fn begin_fill(&mut self) {
        for table in self.plan.cached() {
            table.begin_fill();
        }
    }

    /// Brings in those groups of a scan's entries that are out of memory and have not been in it since the scan began,
    /// while memory has room. Whether more of the scan is of use.
    ///
    /// # Errors
    /// [`Class::Corrupt`](thalweg_types::Class) if this stage has not handed the entry over.
    pub fn fill<'a>(
        &mut self,
        entries: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<bool, Error> {
        let others = self.records.bytes() + self.checkpoint.as_ref().map_or(0, Checkpoint::bytes);
        match &mut self.cache {
            Some(cache) => cache.fill(&mut self.plan, others, entries),
            None => Ok(false),
        }
    }

    /// No more groups of a scan come.
    pub fn end_fill(&mut self) {
        for table in self.plan.cached() {
            table.end_fill();
        }
    }
}
