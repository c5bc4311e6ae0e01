//! What a checkpoint says of a stage as a whole: the plan that its groups' states are of, task time, and which chunks,
//! frames and groups there are.
//!
//! It is written whole at every marker: it grows with the queries and with the cycles whose rows are still open, not
//! with the stream.
//!
//! Layout: magic 8, then a sealed value (`crate::image`) of the fields in the order of [`Manifest`]; lists after their
//! lengths, texts after theirs, numbers as varints, places in lists of the manifest itself. Version 1 ends with the
//! queries, version 2 with the bound of late records, version 3 with the key of tags, version 4 with
//! `begins`, version 5 with the newest record, version 6 with the values of leaves, version 7 with their pieces.
//!
//! Not here: how a plan is built again from it (`restore`).

use std::ops::Range;

use thalweg_storage::ChunkId;
use thalweg_types::{Error, HashKey, Micros, Origin, RecordPlace};

use super::nodes::name_of_key;
use super::plan::Plan;
use super::queries::{QueryState, Since};
use super::records::{FrozenRecords, Records};
use crate::agg::Function;
use crate::image::{self, Malformed, Reader, put, put_bytes, put_signed};
use crate::key::Key;
use crate::query::Window as WindowKind;

/// First bytes of a manifest, and the key that its checksum covers. Persisted.
const MAGIC: [u8; 8] = *b"\xf7ThWins\n";

/// Version of the layout. Persisted.
const VERSION: u8 = 8;

/// A checkpoint's manifest, read from the bytes that a [`StageHandover`](super::StageHandover) gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    pub(super) cycle: u64,
    pub(super) chunks: Range<u64>,
    pub(super) records: u64,
    pub(super) task_time: Option<Micros>,
    pub(super) next_id: u32,
    pub(super) rows: u64,
    /// Number and open rows of each frame of open rows, ascending.
    pub(super) frames: Vec<(u64, u64)>,
    pub(super) next_frame: u64,
    pub(super) ids: Option<SavedIds>,
    /// Columns of the reservoir's layout, used or not.
    pub(super) columns: usize,
    pub(super) seq: Option<usize>,
    /// Whether there is an entry for the one group of queries without GROUP BY.
    pub(super) has_whole: bool,
    pub(super) groupings: Vec<SavedGrouping>,
    pub(super) filters: Vec<SavedFilter>,
    pub(super) args: Vec<SavedArg>,
    pub(super) leaves: Vec<SavedLeaf>,
    pub(super) queries: Vec<SavedQuery>,
    /// Above the arrival numbers of all records. 0 in version 1, and where an earlier build kept none: order numbers of
    /// records after a marker are above those before it.
    pub(super) next_arrival: u64,
    /// Records below it are late for good, whatever `lateness` becomes. Not in version 1.
    pub(super) bound: Option<Micros>,
    /// The key that the tags of groups are hashed with. `None` in versions 1 and 2, whose tags anybody can make: they
    /// are distinguished by nothing but their count, and made anew.
    pub(super) tag_key: Option<HashKey>,
    /// The time from which records count where some were missed. Not in versions 1 to 3.
    pub(super) begins: Option<Micros>,
    /// The record that moved task time to where it is. Not in versions 1 to 4.
    pub(super) newest: Option<RecordPlace>,
    /// The last record of each sender, of which more rows may come, and the ids that were taken from it. Not in versions 1
    /// to 7.
    pub(super) taken: Vec<(Origin, Vec<Key>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SavedIds {
    /// The column that ids are in: name and type.
    pub(super) column: (String, String),
    pub(super) frames: Range<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SavedGrouping {
    pub(super) id: u32,
    /// Names and types of the keys ([`name_of_key`]), in the order in which they are put together.
    pub(super) keys: Vec<(String, String)>,
    pub(super) layout: usize,
    /// Numbers are below it.
    pub(super) slots: usize,
    /// Groups that have a number.
    pub(super) live: usize,
    /// What edges passed up to this task time is in the images of all groups; later passes are in those that were
    /// written since. Not in versions 1 to 5, whose images have all.
    pub(super) passed_since: Option<Micros>,
    /// For values of `count(distinct)`: places of the GROUP BY, of the argument and of the filter. Not in versions 1 to 5,
    /// where a group has its values in itself.
    pub(super) values_of: Option<(Option<usize>, usize, Option<usize>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SavedFilter {
    pub(super) fingerprint: String,
    /// That of its condition, where there is one.
    pub(super) condition: Option<String>,
    pub(super) layout: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SavedArg {
    pub(super) fingerprint: String,
    pub(super) data_type: String,
    pub(super) layout: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SavedLeaf {
    pub(super) id: u32,
    pub(super) kind: WindowKind,
    pub(super) delay: Micros,
    /// Places in the manifest's lists.
    pub(super) filter: Option<usize>,
    pub(super) grouping: Option<usize>,
    /// In the order of the leaf's own list.
    pub(super) args: Vec<usize>,
    /// Function, and place in `args`.
    pub(super) calls: Vec<(Function, Option<usize>)>,
    /// Places of the groupings that have the values of `count(distinct)`; none where groups have them in themselves.
    pub(super) values: Vec<usize>,
    /// Numbers of its pieces are below it. 0 in versions 1 to 6, which have none.
    pub(super) next_piece: u32,
}

/// The outputs of a query that are in one leaf and began at one time; a query with several of these has an entry of
/// its name for each.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SavedQuery {
    pub(super) name: String,
    pub(super) fingerprint: String,
    /// Place in the manifest's list.
    pub(super) leaf: usize,
    /// Calls of the leaf.
    pub(super) outputs: Vec<usize>,
    pub(super) since: Option<Since>,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// [`Class::Corrupt`](thalweg_types::Class) where the bytes are not those of one.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let Some(sealed) = bytes.strip_prefix(&MAGIC) else {
            let got = &bytes[..bytes.len().min(MAGIC.len())];
            return Err(Error::corrupt(format!(
                "damage in a stage's manifest: expected it to begin with {MAGIC:02x?}, got {got:02x?}"
            )));
        };
        let (version, mut reader) = image::open_to(VERSION, &MAGIC, sealed).map_err(Error::from)?;
        let manifest = Self::read(version, &mut reader)?;
        reader.finish("manifest")?;
        Ok(manifest)
    }

    /// The cycle that it is of.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// The chunks that it names: open the chunk store with them as `ChunkStoreOptions::committed`.
    pub fn chunks(&self) -> Range<ChunkId> {
        ChunkId(self.chunks.start)..ChunkId(self.chunks.end)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_of_version(VERSION)
    }

    /// Earlier builds wrote earlier ones; tests make them.
    pub(super) fn to_bytes_of_version(&self, version: u8) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        image::seal(version, &MAGIC, &mut out, |out| {
            self.write_first(out);
            if version > 1 {
                put(out, self.next_arrival);
                put_option(out, self.bound.as_ref(), |out, bound| put_signed(out, *bound));
            }
            if version > 2 {
                put_option(out, self.tag_key.as_ref(), |out, key| out.extend_from_slice(&key.to_bytes()));
            }
            if version == 4 {
                self.begins.iter().for_each(|begins| put_signed(out, *begins));
            }
            if version > 4 {
                put_option(out, self.begins.as_ref(), |out, begins| put_signed(out, *begins));
            }
            let put_newest = |out: &mut Vec<u8>, newest: &RecordPlace| {
                put_bytes(out, newest.source.as_bytes());
                put(out, newest.offset);
            };
            match version {
                0..=4 => {}
                5 => self.newest.iter().for_each(|newest| put_newest(out, newest)),
                _ => put_option(out, self.newest.as_ref(), put_newest),
            }
            if version > 5 {
                for grouping in &self.groupings {
                    put_option(out, grouping.passed_since.as_ref(), |out, time| put_signed(out, *time));
                    put_option(out, grouping.values_of.as_ref(), |out, (grouping, arg, filter)| {
                        put_option(out, grouping.as_ref(), put_place);
                        put_place(out, arg);
                        put_option(out, filter.as_ref(), put_place);
                    });
                }
                self.leaves.iter().for_each(|leaf| put_list(out, &leaf.values, put_place));
            }
            if version > 6 {
                self.leaves.iter().for_each(|leaf| put(out, u64::from(leaf.next_piece)));
            }
            if version > 7 {
                put_list(out, &self.taken, |out, (Origin { sender, position: (offset, place) }, ids)| {
                    [*sender, *offset, u64::from(*place)].into_iter().for_each(|number| put(out, number));
                    put_list(out, ids, |out, id| id.save(out));
                });
            }
        });
        out
    }

    /// What is in every version.
    fn write_first(&self, out: &mut Vec<u8>) {
        for number in [self.cycle, self.chunks.start, self.chunks.end, self.records] {
            put(out, number);
        }
        put_option(out, self.task_time.as_ref(), |out, time| put_signed(out, *time));
        put(out, u64::from(self.next_id));
        put(out, self.rows);
        put_list(out, &self.frames, |out, (number, rows)| {
            put(out, *number);
            put(out, *rows);
        });
        put(out, self.next_frame);
        put_option(out, self.ids.as_ref(), |out, ids| {
            put_pair(out, &ids.column);
            put(out, ids.frames.start);
            put(out, ids.frames.end);
        });
        put(out, self.columns as u64);
        put_option(out, self.seq.as_ref(), put_place);
        out.push(u8::from(self.has_whole));
        put_list(out, &self.groupings, |out, grouping| {
            put(out, u64::from(grouping.id));
            put_list(out, &grouping.keys, put_pair);
            for number in [grouping.layout, grouping.slots, grouping.live] {
                put_place(out, &number);
            }
        });
        put_list(out, &self.filters, |out, filter| {
            put_bytes(out, filter.fingerprint.as_bytes());
            put_option(out, filter.condition.as_ref(), |out, text| put_bytes(out, text.as_bytes()));
            put_place(out, &filter.layout);
        });
        put_list(out, &self.args, |out, arg| {
            put_bytes(out, arg.fingerprint.as_bytes());
            put_bytes(out, arg.data_type.as_bytes());
            put_place(out, &arg.layout);
        });
        put_list(out, &self.leaves, |out, leaf| {
            put(out, u64::from(leaf.id));
            put_window(out, leaf.kind);
            put_signed(out, leaf.delay);
            put_option(out, leaf.filter.as_ref(), put_place);
            put_option(out, leaf.grouping.as_ref(), put_place);
            put_list(out, &leaf.args, put_place);
            put_list(out, &leaf.calls, |out, (function, arg)| {
                put_function(out, *function);
                put_option(out, arg.as_ref(), put_place);
            });
        });
        put_list(out, &self.queries, |out, query| {
            put_bytes(out, query.name.as_bytes());
            put_bytes(out, query.fingerprint.as_bytes());
            put_place(out, &query.leaf);
            put_list(out, &query.outputs, put_place);
            put_option(out, query.since.as_ref(), |out, (since, fill)| {
                put_signed(out, *since);
                put_option(out, fill.as_ref(), |out, fill| put_signed(out, *fill));
            });
        });
    }

    fn read(version: u8, from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let cycle = from.number("cycle")?;
        let chunks = range(from, "chunks")?;
        let records = from.number("records")?;
        let task_time = option(from, |from| from.signed("task time"))?;
        let next_id = from.word("next id")?;
        let rows = from.number("rows")?;
        let frames = list(from, |from| Ok((from.number("frame")?, from.number("open rows")?)))?;
        let next_frame = from.number("next frame")?;
        let ids =
            option(from, |from| Ok(SavedIds { column: pair(from)?, frames: range(from, "frames of ids")? }))?;
        // A layout has a name and a type for each column in use; the bound keeps a forged length small.
        let columns = from.place(1 << 20, "columns of the layout")?;
        let seq = option(from, |from| from.place(columns, "column of arrivals"))?;
        let has_whole = from.flag("presence of the group of all records")?;
        let mut groupings = list(from, |from| {
            Ok(SavedGrouping {
                id: from.word("id of a GROUP BY")?,
                keys: list(from, pair)?,
                layout: from.place(columns, "column of a GROUP BY")?,
                slots: from.word("numbers of groups")? as usize,
                live: from.word("groups")? as usize,
                passed_since: None,
                values_of: None,
            })
        })?;
        let filters = list(from, |from| {
            Ok(SavedFilter {
                fingerprint: from.text("filter")?.to_owned(),
                condition: option(from, |from| Ok(from.text("condition")?.to_owned()))?,
                layout: from.place(columns, "column of a filter")?,
            })
        })?;
        let args = list(from, |from| {
            Ok(SavedArg {
                fingerprint: from.text("argument")?.to_owned(),
                data_type: from.text("type of an argument")?.to_owned(),
                layout: from.place(columns, "column of an argument")?,
            })
        })?;
        let mut leaves = list(from, |from| {
            let id = from.word("id of a leaf")?;
            let kind = window(from)?;
            let delay = from.signed("delay")?;
            let filter = option(from, |from| from.place(filters.len(), "filter of a leaf"))?;
            let grouping = option(from, |from| from.place(groupings.len(), "GROUP BY of a leaf"))?;
            let args = list(from, |from| from.place(args.len(), "argument of a leaf"))?;
            let calls = list(from, |from| {
                Ok((function(from)?, option(from, |from| from.place(args.len(), "argument of a call"))?))
            })?;
            let values = Vec::new();
            Ok(SavedLeaf { id, kind, delay, filter, grouping, args, calls, values, next_piece: 0 })
        })?;
        let queries = list(from, |from| {
            let name = from.text("name of a query")?.to_owned();
            let fingerprint = from.text("fingerprint of a query")?.to_owned();
            let leaf = from.place(leaves.len(), "leaf of a query")?;
            let outputs = list(from, |from| from.place(leaves[leaf].calls.len(), "output of a query"))?;
            let since = option(from, |from| {
                Ok((from.signed("since")?, option(from, |from| from.signed("time to fill"))?))
            })?;
            Ok(SavedQuery { name, fingerprint, leaf, outputs, since })
        })?;
        let (mut next_arrival, mut bound) = (0, None);
        if version > 1 {
            next_arrival = from.number("next arrival")?;
            bound = option(from, |from| from.signed("bound of late records"))?;
        }
        let mut tag_key = None;
        if version > 2 {
            tag_key = option(from, |from| Ok(HashKey::from_bytes(from.array("key of the tags")?)))?;
        }
        let begins = |from: &mut Reader<'_>| from.signed("time from which records count");
        let begins = match version {
            0..=3 => None,
            4 => Some(begins(from)?),
            _ => option(from, begins)?,
        };
        let newest = |from: &mut Reader<'_>| {
            let source = from.text("source of the newest record")?.into();
            Ok(RecordPlace { source, offset: from.number("offset of the newest record")? })
        };
        let newest = match version {
            0..=4 => None,
            5 => Some(newest(from)?),
            _ => option(from, newest)?,
        };
        let places = groupings.len();
        for grouping in groupings.iter_mut().filter(|_| version > 5) {
            grouping.passed_since = option(from, |from| from.signed("time since which edges have passed"))?;
            grouping.values_of = option(from, |from| {
                let grouping = option(from, |from| from.place(places, "GROUP BY of values"))?;
                let arg = from.place(args.len(), "argument of values")?;
                Ok((grouping, arg, option(from, |from| from.place(filters.len(), "filter of values"))?))
            })?;
        }
        for leaf in leaves.iter_mut().filter(|_| version > 5) {
            leaf.values = list(from, |from| from.place(places, "values of a leaf"))?;
        }
        for leaf in leaves.iter_mut().filter(|_| version > 6) {
            leaf.next_piece = from.word("numbers of pieces")?;
        }
        let taken = |from: &mut Reader<'_>| {
            let (sender, offset) = (from.number("sender of ids")?, from.number("offset of ids")?);
            let origin = Origin { sender, position: (offset, from.word("place of ids")?) };
            Ok((origin, list(from, Key::load)?))
        };
        let taken = if version > 7 { list(from, taken)? } else { Vec::new() };
        Ok(Self {
            cycle,
            chunks,
            records,
            task_time,
            next_id,
            rows,
            frames,
            next_frame,
            ids,
            columns,
            seq,
            has_whole,
            groupings,
            filters,
            args,
            leaves,
            queries,
            next_arrival,
            bound,
            tag_key,
            begins,
            newest,
            taken,
        })
    }
}

/// In one order, whatever the hasher of their set.
fn sorted(ids: Vec<&Key>) -> Vec<Key> {
    let mut ids: Vec<Key> = ids.into_iter().cloned().collect();
    ids.sort_by_cached_key(|id| {
        let mut bytes = Vec::new();
        id.save(&mut bytes);
        bytes
    });
    ids
}

fn put_place(out: &mut Vec<u8>, place: &usize) {
    put(out, *place as u64);
}

fn put_pair(out: &mut Vec<u8>, (name, data_type): &(String, String)) {
    put_bytes(out, name.as_bytes());
    put_bytes(out, data_type.as_bytes());
}

fn pair(from: &mut Reader<'_>) -> Result<(String, String), Malformed> {
    Ok((from.text("name of a field")?.to_owned(), from.text("type of a field")?.to_owned()))
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    put(out, list.len() as u64);
    list.iter().for_each(|item| write(out, item));
}

fn list<'a, T>(
    from: &mut Reader<'a>,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    (0..from.count("length of a list")?).map(|_| read(from)).collect()
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<&T>, write: impl Fn(&mut Vec<u8>, &T)) {
    out.push(u8::from(value.is_some()));
    value.into_iter().for_each(|value| write(out, value));
}

fn option<'a, T>(
    from: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    from.flag("presence of a value")?.then(|| read(from)).transpose()
}

fn range(from: &mut Reader<'_>, what: &'static str) -> Result<Range<u64>, Malformed> {
    let (start, end) = (from.number(what)?, from.number(what)?);
    if start > end {
        return Err(from.malformed(what, format_args!("at least {start}"), end));
    }
    Ok(start..end)
}

/// Tags of windows are persisted: do not renumber.
fn put_window(out: &mut Vec<u8>, window: WindowKind) {
    let (tag, size) = match window {
        WindowKind::Sliding(span) => (1, span as u64),
        WindowKind::Tumbling(span) => (2, span as u64),
        WindowKind::Infinite => (3, 0),
        WindowKind::Rows(count) => (4, count),
    };
    out.push(tag);
    put(out, size);
}

fn window(from: &mut Reader<'_>) -> Result<WindowKind, Malformed> {
    let tag = from.byte("kind of a window")?;
    let size = from.number("size of a window")?;
    match (tag, i64::try_from(size).ok().filter(|span| *span > 0)) {
        (1, Some(span)) => Ok(WindowKind::Sliding(span)),
        (2, Some(span)) => Ok(WindowKind::Tumbling(span)),
        (3, _) => Ok(WindowKind::Infinite),
        (4, _) if size > 0 => Ok(WindowKind::Rows(size)),
        _ => Err(from.malformed("window", "kind 1 to 4 and a size", format_args!("{tag} and {size}"))),
    }
}

/// Functions by their tags, which are persisted: do not renumber. `quantile` is 15.
const FUNCTIONS: [(u8, Function); 14] = [
    (1, Function::CountAll),
    (2, Function::Count),
    (3, Function::Sum),
    (4, Function::Avg),
    (5, Function::StdDev),
    (6, Function::StdDevPop),
    (7, Function::Var),
    (8, Function::VarPop),
    (9, Function::Min),
    (10, Function::Max),
    (11, Function::First),
    (12, Function::Last),
    (13, Function::Prev),
    (14, Function::CountDistinct),
];
const QUANTILE: u8 = 15;

fn put_function(out: &mut Vec<u8>, function: Function) {
    let tag = FUNCTIONS.iter().find(|(_, other)| *other == function);
    out.push(tag.map_or(QUANTILE, |(tag, _)| *tag));
    if let Function::Quantile(rank) = function {
        out.extend_from_slice(&rank.to_bits().to_le_bytes());
    }
}

fn function(from: &mut Reader<'_>) -> Result<Function, Malformed> {
    let tag = from.byte("function")?;
    if tag == QUANTILE {
        return Ok(Function::Quantile(f64::from_bits(u64::from_le_bytes(from.array("rank")?))));
    }
    let function = FUNCTIONS.iter().find(|(other, _)| *other == tag);
    function.map(|(_, function)| *function).ok_or_else(|| from.malformed("function", "1 to 15", tag))
}

impl Manifest {
    /// That of a stage with this plan and these records, as of the marker of a cycle.
    pub(super) fn new(
        (cycle, chunks): (u64, Range<ChunkId>),
        plan: &Plan,
        records: &Records,
        FrozenRecords { rows, ids, .. }: &FrozenRecords,
        has_whole: bool,
    ) -> Self {
        // Places of items in use, among themselves.
        fn dense<T>(slots: &[Option<T>], place: usize) -> usize {
            slots[..place].iter().flatten().count()
        }
        let leaf = |node: &super::LeafNode| {
            let window = plan.leaves.window(node);
            let place = |layout: &usize| {
                let place = plan.args.iter().position(|arg| arg.layout == *layout);
                place.expect("a leaf's arguments are in the plan")
            };
            SavedLeaf {
                id: node.id,
                kind: window.kind,
                delay: window.delay,
                filter: node.filter.map(|filter| dense(&plan.filters, filter)),
                grouping: node.grouping.map(|grouping| dense(&plan.groupings, grouping)),
                args: node.leaf.args.iter().map(place).collect(),
                calls: node.leaf.calls.iter().map(|call| (call.function, call.arg_index)).collect(),
                values: node.values.iter().map(|values| dense(&plan.groupings, *values)).collect(),
                next_piece: node.leaf.next_piece(),
            }
        };
        let queries = |query: &QueryState| {
            let mut entries: Vec<SavedQuery> = Vec::new();
            for call in &query.calls {
                let (leaf, since) = (dense(&plan.leaves.nodes, call.leaf), call.since);
                match entries.iter_mut().find(|entry| (entry.leaf, entry.since) == (leaf, since)) {
                    Some(entry) => entry.outputs.push(call.call),
                    None => entries.push(SavedQuery {
                        name: query.name.clone(),
                        fingerprint: query.fingerprint.clone(),
                        leaf,
                        outputs: vec![call.call],
                        since,
                    }),
                }
            }
            entries
        };
        Self {
            cycle,
            chunks: chunks.start.0..chunks.end.0,
            records: records.count,
            task_time: records.task_time(),
            next_id: plan.next_id,
            rows: records.reservoir.rows(),
            frames: rows.frames.clone(),
            next_frame: rows.next,
            ids: records
                .id_column
                .as_ref()
                .zip(ids.clone())
                .map(|(column, frames)| SavedIds { column: column.field.clone(), frames }),
            columns: plan.layout.len(),
            seq: plan.layout.seq(),
            has_whole,
            groupings: plan
                .groupings
                .iter()
                .flatten()
                .map(|grouping| SavedGrouping {
                    id: grouping.id,
                    keys: grouping
                        .keys
                        .iter()
                        .map(|key| name_of_key(key, |column| plan.input.field(column)))
                        .collect(),
                    layout: grouping.layout,
                    slots: grouping.table.numbers(),
                    live: grouping.table.live(),
                    passed_since: grouping.dirty.passed_since(),
                    values_of: grouping.values_of.map(|values| {
                        let arg = plan.args.iter().position(|arg| arg.layout == values.arg);
                        let grouping = values.grouping.map(|place| dense(&plan.groupings, place));
                        let filter = values.filter.map(|place| dense(&plan.filters, place));
                        (grouping, arg.expect("an argument of the plan"), filter)
                    }),
                })
                .collect(),
            filters: plan
                .filters
                .iter()
                .flatten()
                .map(|filter| SavedFilter {
                    fingerprint: filter.fingerprint.clone(),
                    condition: filter.condition.as_ref().map(|bound| bound.fingerprint().to_owned()),
                    layout: filter.layout,
                })
                .collect(),
            args: plan
                .args
                .iter()
                .map(|arg| SavedArg {
                    fingerprint: arg.fingerprint.clone(),
                    data_type: arg.data_type.to_string(),
                    layout: arg.layout,
                })
                .collect(),
            leaves: plan.leaves.iter().map(leaf).collect(),
            queries: plan.queries.iter().flat_map(queries).collect(),
            next_arrival: records.next_arrival.unwrap_or(0),
            bound: records.judge.bound(),
            tag_key: Some(plan.tag_key),
            begins: records.begins,
            newest: records.newest.clone(),
            taken: records.judge.taken().map(|(origin, ids)| (origin, sorted(ids))).collect(),
        }
    }
}
