//! A stage as of a checkpoint: its plan from the manifest, then groups, open rows and ids from a back end.
//!
//! Outputs of the job's queries that the checkpoint has too keep their state, whatever the queries are called now
//! (`matching`). Others are added once all is read, as they would be to a running stage, and what only outputs had that are
//! gone is dropped likewise: their groups are reported as gone in the next cycle.
//!
//! Cursors are not kept: every row at or below `task time − offset` has been passed, no other, so that they are found
//! again. Group numbers are, since rows name them.
//!
//! Groups come all at once, as many as memory takes, or one by one on their first use (*lazily*): then only the tags of
//! their keys are read. Tags of an earlier build's checkpoint are of a hash that anybody can make: then all groups are
//! read once, and the next cycle has their tags anew.
//!
//! Not here: the writing (`checkpoint`), the bytes of a back end for the manifest's cycle.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType as ArrowType;
use thalweg_expr::Bound;
use thalweg_storage::ChunkStore;
use thalweg_types::{DataType, Error, Micros, Schema};

use super::cache::{self, FETCH, GroupReader, missing};
use super::changes::Key;
use super::checkpoint::Checkpoint;
use super::dirty::Dirty;
use super::group::{self, Head, States};
use super::ids::{ComingIds, FRAMES};
use super::layout::LayoutPlaces;
use super::leaf::Leaf;
use super::manifest::{Manifest, SavedGrouping, SavedLeaf};
use super::matching::find_calls;
use super::nodes::{ValuesOf, name_of_key};
use super::plan::Plan;
use super::queries::{CallState, filter_column};
use super::replay::ImageTimes;
use super::{Arg, Filter, Grouping, LeafNode, Stage, StageOptions, Window};
use crate::agg::Call;
use crate::groups::{Groups, TAG_BLOCK, read_tags};
use crate::image::{self, Malformed, Reader};
use crate::pieces::Shelf;
use crate::plan::{PlannedCall, PlannedQuery};
use crate::query::Query;

/// A stage that is being restored: give it every entry that the back end has ([`Restoring::load`]), in any order, then
/// [`Restoring::finish`].
#[must_use]
pub struct Restoring {
    stage: Stage,
    manifest: Manifest,
    /// Place of each of the manifest's groupings in the stage; `None` where no query has it any more.
    groupings: Vec<Option<usize>>,
    /// In the order of the answers' columns.
    queries: Vec<PlannedQuery>,
    /// By query and aggregate, the state that goes on.
    kept: Vec<Vec<Option<CallState>>>,
    has_whole: bool,
    rows: BTreeMap<u64, Vec<ArrayRef>>,
    ids: ComingIds,
    /// Groups that blocks of tags list, by the id of their GROUP BY.
    tagged: BTreeMap<u32, usize>,
    /// The same groups, by id and number, where their tags are of no use.
    numbers: Vec<(u32, u32)>,
    /// Whether groups stay where they are, and only their tags are taken over.
    is_lazy: bool,
    /// Groups that came since memory was last looked at.
    unchecked: usize,
    images: ImageTimes,
}

impl Stage {
    /// Begins to restore a stage from a checkpoint, with the queries that the job has now.
    ///
    /// `store` was opened with [`Manifest::chunks`] as the committed ones. `options` may differ from those of the run
    /// before; ids that were looked for in another column are forgotten.
    ///
    /// # Errors
    /// Where a query does not fit the schema, or the manifest makes no sense with the store or by itself.
    pub fn restore(
        schema: &Schema,
        options: StageOptions,
        store: ChunkStore,
        manifest: Manifest,
        queries: &[(&str, &Query)],
    ) -> Result<Restoring, Error> {
        let (next, expected) = (store.next(), manifest.chunks().end);
        if next != expected {
            return Err(Error::internal(format!(
                "restore a stage: expected a store that goes on at {expected}, as the manifest does, got {next}"
            ))
            .with_hint("open the chunk store with the manifest's chunks as the committed ones"));
        }
        let tag_key = manifest.tag_key.unwrap_or(options.tag_key);
        let mut stage = Stage::new(schema, StageOptions { tag_key, ..options }, store);
        let mut planned = Vec::new();
        for (place, (name, query)) in queries.iter().enumerate() {
            if queries[..place].iter().any(|(other, _)| other == name) {
                return Err(Error::user(format!("query {name:?} exists already")));
            }
            let query = stage.plan(name, query);
            planned.push(query.map_err(|error| Error::user(format!("plan query {name:?}: {error}")))?);
        }
        let field = |column: usize| stage.plan.input.field(column);
        let kept: Vec<_> = planned.iter().map(|query| find_calls(&manifest, query, field)).collect();
        stage.records.restore(&manifest);
        let groupings = stage.plan.restore(&manifest, &planned, &kept)?;
        stage.records.reservoir.set_layout(stage.plan.layout.of_reservoir());
        let (rows, ids, tagged) = (BTreeMap::new(), ComingIds::default(), BTreeMap::new());
        let images = ImageTimes::new(&stage.plan.groupings);
        Ok(Restoring {
            stage,
            manifest,
            groupings,
            queries: planned,
            kept,
            has_whole: false,
            rows,
            ids,
            tagged,
            numbers: Vec::new(),
            is_lazy: false,
            unchecked: 0,
            images,
        })
    }
}

impl Plan {
    /// Builds the parts of the saved plan that outputs that go on need, without cursors; places of the saved groupings.
    fn restore(
        &mut self,
        manifest: &Manifest,
        planned: &[PlannedQuery],
        kept: &[Vec<Option<CallState>>],
    ) -> Result<Vec<Option<usize>>, Error> {
        self.next_id = manifest.next_id;
        let calls: Vec<(&PlannedQuery, &PlannedCall, CallState)> = planned
            .iter()
            .zip(kept)
            .flat_map(|(query, kept)| {
                let calls = query.calls.iter().zip(kept);
                calls.filter_map(move |(call, kept)| Some((query, call, (*kept)?)))
            })
            .collect();
        let is_read = |place: usize| calls.iter().any(|(_, _, kept)| kept.leaf == place);
        let leaves: Vec<&SavedLeaf> = (0..manifest.leaves.len())
            .filter(|place| is_read(*place))
            .map(|place| &manifest.leaves[place])
            .collect();

        let mut layout = LayoutPlaces::new(manifest.columns)?;
        let mut filters = Vec::new();
        for (place, saved) in manifest.filters.iter().enumerate() {
            let is_used = leaves.iter().any(|leaf| leaf.filter == Some(place));
            let conditions = calls.iter().filter_map(|(query, ..)| query.filter.as_ref());
            let condition = saved
                .condition
                .as_ref()
                .and_then(|text| conditions.into_iter().find(|bound| bound.fingerprint() == text).cloned());
            filters.push(if is_used {
                layout.take(saved.layout, filter_column(&saved.fingerprint), ArrowType::Boolean)?;
                let fingerprint = saved.fingerprint.clone();
                Some(Filter { fingerprint, condition, is_guarded: false, layout: saved.layout })
            } else {
                None
            });
        }
        let mut groupings = Vec::new();
        let mut places = Vec::new();
        for (place, saved) in manifest.groupings.iter().enumerate() {
            let is_used =
                leaves.iter().any(|leaf| leaf.grouping == Some(place) || leaf.values.contains(&place));
            places.push(is_used.then_some(place));
            groupings.push(if is_used && saved.values_of.is_none() {
                Some(self.restore_grouping(saved, manifest.task_time, planned, &mut layout)?)
            } else {
                None
            });
        }
        for (place, saved) in manifest.args.iter().enumerate() {
            if !leaves.iter().any(|leaf| leaf.args.contains(&place)) {
                continue;
            }
            let data_type = DataType::parse(&saved.data_type).map_err(|error| contradiction(&error))?;
            layout.take(saved.layout, saved.fingerprint.clone(), data_type.to_arrow())?;
            let mut bounds = calls.iter().filter_map(|(_, call, _)| call.arg.as_ref());
            let value = bounds.find(|bound| bound.fingerprint() == saved.fingerprint).cloned();
            let fingerprint = saved.fingerprint.clone();
            self.args.push(Arg { fingerprint, data_type, value, is_guarded: false, layout: saved.layout });
        }
        (self.filters, self.groupings) = (filters, groupings);
        for place in places.iter().flatten() {
            let saved = &manifest.groupings[*place];
            let Some((grouping, arg, filter)) = saved.values_of else { continue };
            let values = ValuesOf { grouping, arg: manifest.args[arg].layout, filter };
            let name = self.values_column(values, &manifest.args[arg].fingerprint);
            layout.take(saved.layout, name, ArrowType::UInt32)?;
            let restored = Grouping::new(saved.id, Vec::new(), saved.layout, self.tag_key);
            let dirty = Dirty::restored(saved.passed_since.or(manifest.task_time));
            self.groupings[*place] = Some(Grouping { dirty, values_of: Some(values), ..restored });
        }
        for (place, saved) in manifest.leaves.iter().enumerate() {
            let node = if is_read(place) { Some(self.restore_leaf(manifest, saved)?) } else { None };
            self.leaves.nodes.push(node);
        }
        if self.leaves.iter().any(|node| node.leaf.is_ordered) {
            let seq = manifest.seq.ok_or_else(|| contradiction(&"no column of arrivals"))?;
            layout.take_seq(seq)?;
        }
        self.layout = layout.finish();
        Ok(places)
    }

    fn restore_grouping(
        &self,
        saved: &SavedGrouping,
        task_time: Option<Micros>,
        planned: &[PlannedQuery],
        layout: &mut LayoutPlaces,
    ) -> Result<Grouping, Error> {
        let named = |name: &(String, String)| {
            let mut keys = planned.iter().flat_map(|query| &query.group_by);
            keys.find(|key| name_of_key(key, |column| self.input.field(column)) == *name).cloned()
        };
        let keys = saved
            .keys
            .iter()
            .map(named)
            .collect::<Option<Vec<Bound>>>()
            .ok_or_else(|| contradiction(&"a GROUP BY of which queries know not all fields"))?;
        layout.take(saved.layout, self.input.group_column(&keys), ArrowType::UInt32)?;
        let grouping = Grouping::new(saved.id, keys, saved.layout, self.tag_key);
        Ok(Grouping { dirty: Dirty::restored(saved.passed_since.or(task_time)), ..grouping })
    }

    fn restore_leaf(&mut self, manifest: &Manifest, saved: &SavedLeaf) -> Result<LeafNode, Error> {
        let types = saved
            .args
            .iter()
            .map(|arg| DataType::parse(&manifest.args[*arg].data_type))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| contradiction(&error))?;
        let calls = saved
            .calls
            .iter()
            .map(|(function, arg)| Call {
                function: *function,
                arg: arg.map(|arg| types[arg].clone()),
                arg_index: *arg,
            })
            .collect();
        let args = saved.args.iter().map(|arg| manifest.args[*arg].layout).collect();
        let arrow: Vec<ArrowType> = types.iter().map(DataType::to_arrow).collect();
        let are_values_groups = !saved.values.is_empty();
        let shelf = Shelf::new(saved.id, saved.next_piece, Arc::clone(&self.pieces));
        let leaf = Leaf::new(saved.kind, calls, args, &arrow, are_values_groups, shelf)
            .map_err(|error| contradiction(&error))?;
        if leaf.valued().len() != saved.values.len() {
            return Err(contradiction(&"a count of distinct values without them"));
        }
        let (kind, delay) = (saved.kind, saved.delay);
        let is_same = |window: &Option<Window>| {
            window.as_ref().is_some_and(|window| (window.kind, window.delay) == (kind, delay))
        };
        let window = self.leaves.windows.iter().position(is_same).unwrap_or_else(|| {
            self.leaves.windows.push(Some(Window { kind, delay, head: None, tail: None }));
            self.leaves.windows.len() - 1
        });
        let values = saved.values.iter().copied().collect();
        Ok(LeafNode { id: saved.id, window, filter: saved.filter, grouping: saved.grouping, values, leaf })
    }
}

impl Restoring {
    /// The cycle that the stage goes on from.
    pub fn cycle(&self) -> u64 {
        self.manifest.cycle
    }

    /// Bounds the memory of groups, as [`Stage::bound`] does; before anything is loaded.
    pub fn bound(&mut self, memory: usize, reader: Arc<dyn GroupReader>) {
        self.stage.bound(memory, reader);
    }

    /// Takes over what the stage cannot do without and the tags of its groups, and no group: each comes on its first
    /// use. Instead of [`Restoring::load`].
    ///
    /// # Errors
    /// As [`Restoring::load`]; what the back end says; [`Class::Internal`](thalweg_types::Class) where nothing bounds
    /// the stage.
    pub fn load_lazily(&mut self) -> Result<(), Error> {
        let Some(cache) = &self.stage.cache else {
            return Err(Error::internal("restore a stage lazily: expected a reader of its groups, got none"));
        };
        let reader = cache.reader();
        self.is_lazy = self.manifest.tag_key.is_some();
        let manifest = &self.manifest;
        let mut keys: Vec<Key> = manifest.frames.iter().map(|(number, _)| Key::Rows(*number)).collect();
        keys.extend(manifest.has_whole.then_some(Key::Group { grouping: 0, group: 0 }));
        for saved in &manifest.groupings {
            let blocks = 0..(saved.slots as u32).div_ceil(TAG_BLOCK);
            keys.extend(blocks.map(|block| Key::Tags { grouping: saved.id, block }));
        }
        for place in self.groupings.iter().flatten().filter(|_| self.is_lazy) {
            if let Some(grouping) = self.stage.plan.groupings[*place].as_mut() {
                grouping.table.make_cached();
            }
        }
        // One that is not there is missed when all are together.
        let frames: Vec<Key> = manifest.ids.iter().flat_map(|ids| ids.frames.clone()).map(Key::Ids).collect();
        for keys in std::iter::once(&keys[..]).chain(frames.chunks(FRAMES)) {
            cache::read(reader.as_ref(), keys, |_, key, value| {
                value.map_or(Ok(()), |value| self.load(key, value))
            })?;
        }
        if !self.is_lazy { self.load_tagged(reader.as_ref()) } else { Ok(()) }
    }

    /// Takes over the groups that blocks of tags have listed, whose tags are of no use.
    fn load_tagged(&mut self, reader: &dyn GroupReader) -> Result<(), Error> {
        let numbers = std::mem::take(&mut self.numbers);
        tracing::info!(groups = numbers.len(), "reads groups once, as an earlier build hashed their keys");
        for numbers in numbers.chunks(FETCH) {
            let keys: Vec<Key> = numbers
                .iter()
                .map(|(grouping, group)| Key::Group { grouping: *grouping, group: *group })
                .collect();
            cache::read(reader, &keys, |place, key, value| {
                self.load(key, value.ok_or_else(|| missing(place))?)
            })?;
        }
        Ok(())
    }

    /// Takes over one entry of the back end, as a [`Changes`](thalweg_state::Changes) gave it.
    ///
    /// # Errors
    /// [`Class::Corrupt`](thalweg_types::Class) if it was not written under this key, or the manifest does
    /// not know it.
    pub fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let place = Key::parse(key).map_err(Error::from)?;
        self.load_entry(place, key, value)
            .map_err(|error| Error::from(error).context(format_args!("read {place}")))
    }

    fn load_entry(&mut self, place: Key, key: &[u8], value: &[u8]) -> Result<(), Malformed> {
        let plain = || image::open(key, value);
        match place {
            Key::Group { grouping, group: number } => {
                let (head, states) = group::open(key, value)?;
                self.load_group(grouping, number, head, states)
            }
            Key::Tags { grouping, block } => self.load_tags(grouping, block, &mut plain()?),
            Key::Piece { leaf, number } => self.load_piece(leaf, number, &mut plain()?),
            Key::Rows(frame) => {
                let mut image = plain()?;
                if !self.manifest.frames.iter().any(|(number, _)| *number == frame) {
                    return Err(image.malformed("frame of open rows", "one that the manifest names", frame));
                }
                let rows = self.stage.records.reservoir.load_frame(&mut image)?;
                self.rows.insert(frame, rows);
                Ok(())
            }
            Key::Ids(frame) => {
                let Stage { records, cache, .. } = &mut self.stage;
                self.ids.load(&self.manifest, records, cache.as_mut(), frame, &mut plain()?)
            }
        }
    }

    /// Restores one group; states of leaves that are gone are passed over.
    fn load_group(
        &mut self,
        grouping: u32,
        group: u32,
        head: Head,
        states: States<'_>,
    ) -> Result<(), Malformed> {
        if grouping == 0 {
            if group != 0 || std::mem::replace(&mut self.has_whole, true) {
                return Err(states.reader.malformed("group without GROUP BY", "one", "another"));
            }
            return states.load(&mut self.stage.plan.leaves.nodes, None, group);
        }
        let image = &states.reader;
        let Some(known) = self.manifest.groupings.iter().position(|saved| saved.id == grouping) else {
            return Err(image.malformed("id of a GROUP BY", "one that the manifest names", grouping));
        };
        let slots = self.manifest.groupings[known].slots;
        if group as usize >= slots {
            return Err(image.malformed("number of a group", format_args!("below {slots}"), group));
        }
        let is_full = self.is_full();
        let Some(place) = self.groupings[known] else { return Ok(()) };
        let Some(grouping) = self.stage.plan.groupings[place].as_mut() else { return Ok(()) };
        let mut slot = group;
        match &mut grouping.table {
            Groups::Dense(table) => table.load(group, (head.key, head.newest), image)?,
            Groups::Cached(table) => {
                if table.is_live(group) {
                    return Err(image.malformed("number of a group", "one that is free", group));
                }
                table.add(group, table.tag_of(head.key.as_ref()));
                if is_full {
                    return Ok(());
                }
                slot = table.load(group, head.key, head.newest);
            }
        }
        self.images.note(place, group, head.as_of);
        states.load(&mut self.stage.plan.leaves.nodes, Some(place), slot)
    }

    /// Whether memory has no room for another group; from then on groups are cold.
    fn is_full(&mut self) -> bool {
        let tables = || self.stage.plan.groupings.iter().flatten().map(|grouping| &grouping.table);
        self.unchecked += 1;
        if self.unchecked < tables().map(Groups::resident).sum::<usize>() / 64 {
            return false;
        }
        let is_full = self.stage.is_full();
        if is_full {
            for grouping in self.stage.plan.groupings.iter_mut().flatten() {
                grouping.table.make_cached();
            }
        } else {
            self.unchecked = 0;
        }
        is_full
    }

    /// Keeps a piece for the list that it is of; that of a leaf that is gone is passed over.
    fn load_piece(&mut self, leaf: u32, number: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let Some(saved) = self.manifest.leaves.iter().find(|saved| saved.id == leaf) else {
            return Err(image.malformed("id of a leaf", "one that the manifest names", leaf));
        };
        if number >= saved.next_piece {
            let expected = format!("below {}", saved.next_piece);
            return Err(image.malformed("number of a piece", expected, number));
        }
        // A bounded stage reads them when it needs them.
        if self.stage.cache.is_none() && self.stage.plan.leaves.iter().any(|node| node.id == leaf) {
            self.stage.plan.pieces.came(leaf, number, image.rest());
        }
        Ok(())
    }

    /// Takes over a block of tags, or counts its groups where they come themselves.
    fn load_tags(&mut self, grouping: u32, block: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let known = self.manifest.groupings.iter().position(|saved| saved.id == grouping);
        let Some(known) = known else {
            return Err(image.malformed("id of a GROUP BY", "one that the manifest names", grouping));
        };
        let tags = read_tags(block, self.manifest.groupings[known].slots, image)?;
        *self.tagged.entry(grouping).or_default() += tags.len();
        let place = self.groupings[known];
        if place.is_some() && self.manifest.tag_key.is_none() {
            self.numbers.extend(tags.iter().map(|(number, _)| (grouping, *number)));
        }
        let place = place.filter(|_| self.is_lazy);
        if let Some(Grouping { table: Groups::Cached(table), .. }) =
            place.and_then(|place| self.stage.plan.groupings[place].as_mut())
        {
            table.add_unindexed(&tags);
        }
        Ok(())
    }

    /// Puts everything in its place; the stage goes on after the checkpoint's marker.
    ///
    /// # Errors
    /// [`Class::Corrupt`](thalweg_types::Class) where entries are missing or contradict each other; where a chunk
    /// cannot be read.
    pub fn finish(self) -> Result<Stage, Error> {
        let Self {
            mut stage, manifest, queries, kept, has_whole, rows, ids, tagged, is_lazy, images, ..
        } = self;
        let mut gone = Vec::new();
        ids.finish(&manifest, &mut stage.records, &mut gone)?;
        let rows: Vec<(u64, Vec<ArrayRef>)> = rows.into_iter().collect();
        stage.records.load_rows(&rows, &manifest)?;
        let from = stage.plan.replays_from(stage.task_time());
        for place in 0..stage.plan.leaves.windows.len() {
            if let Some(Window { kind, delay, .. }) = stage.plan.leaves.windows[place] {
                stage.plan.leaves.windows[place] = Some(stage.records.with_cursors(kind, delay, from)?);
            }
        }
        if has_whole != manifest.has_whole {
            let (expected, got) = (manifest.has_whole, has_whole);
            return Err(contradiction(&format_args!(
                "expected a group of all records: {expected}, got one: {got}"
            )));
        }
        let mut checkpoint = Checkpoint::restored(&manifest, gone);
        for saved in &manifest.groupings {
            let tagged = tagged.get(&saved.id).copied().unwrap_or(0);
            if tagged != saved.live {
                return Err(contradiction(&format_args!(
                    "expected tags of {} groups of GROUP BY {}, got {tagged}",
                    saved.live, saved.id
                )));
            }
            let grouping = stage.plan.groupings.iter_mut().flatten().find(|grouping| grouping.id == saved.id);
            let Some(grouping) = grouping else {
                checkpoint.drop_groups(saved.id, saved.slots);
                continue;
            };
            if let Groups::Cached(table) = &mut grouping.table
                && is_lazy
            {
                table.index_cold();
            }
            let live = grouping.table.live();
            if live != saved.live {
                return Err(contradiction(&format_args!(
                    "expected {} groups of GROUP BY {}, got {live}",
                    saved.live, saved.id
                )));
            }
            grouping.table.loaded();
            if manifest.tag_key.is_none() {
                grouping.tags.are_anew(saved.slots);
            }
        }
        for saved in &manifest.leaves {
            let node = stage.plan.leaves.iter().find(|node| node.id == saved.id);
            match node {
                None => checkpoint.drop_pieces(saved.id, saved.next_piece),
                Some(node) if stage.cache.is_none() && !node.leaf.has_all_pieces() => {
                    return Err(contradiction(&format_args!("pieces of leaf {} are missing", saved.id)));
                }
                Some(_) => {}
            }
        }
        if let Some(from) = from {
            stage.plan.replay(from, images, &mut stage.records, stage.cache.as_mut())?;
        }
        checkpoint.hold_chunks(&mut stage.records);
        checkpoint.note_whole(&stage.plan.leaves);
        stage.checkpoint = Some(checkpoint);
        let queries: Vec<_> = queries.iter().zip(kept).collect();
        stage.plan.add_outputs(&queries, &mut stage.records)?;
        Ok(stage)
    }
}

/// A manifest or its entries, each whole by itself, that cannot be of one stage.
pub(super) fn contradiction(what: &dyn std::fmt::Display) -> Error {
    Error::corrupt(format!("a checkpoint contradicts itself: {what}"))
}
