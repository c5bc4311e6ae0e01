//! Edges pass rows once more that they had passed before a crash, for groups whose images do not have it (`passed`).
//!
//! A group had no record of its own since its image, or it would have been written anew: its rows in the reservoir are those
//! of then. A cursor had passed those of them with a time at or below the image's task time less its offset; so what is
//! missing are the rows from there on, up to the cursor's present bound.
//!
//! How many values a group has (`count(distinct)`) is in its image whatever edges did, as each change has it written; so
//! of values only the occurrences are counted again.
//!
//! The order of what enters and leaves between two reads of a group changes no value, so all that is passed within a
//! step is applied at once.
//!
//! Not here: which rows a cursor passes (`records`), which groups images lack passes of (`passed`).

use std::collections::HashMap;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use foldhash::fast::RandomState;
use thalweg_types::{Error, Micros};

use super::Grouping;
use super::cache::Cache;
use super::leaf::Turn;
use super::nodes::Face;
use super::plan::Plan;
use super::records::Records;
use super::stream::{Columns, Elements, Selection, StreamId, Streams};
use crate::agg::NO_GROUP;
use crate::reservoir::CursorId;

/// Steps in which the time is passed: rows of one are in memory at once.
const STEPS: i64 = 64;

/// Up to which task time edges are in the image of each group.
pub(super) struct ImageTimes {
    /// By the place of the GROUP BY: in all images.
    all: Vec<Micros>,
    /// In those that were written later.
    later: Vec<HashMap<u32, Micros, RandomState>>,
}

impl ImageTimes {
    /// Of the groupings of a stage that is being restored, before any image is read.
    pub(super) fn new(groupings: &[Option<Grouping>]) -> Self {
        let all = groupings.iter().map(|grouping| grouping.as_ref().and_then(|it| it.dirty.passed_since()));
        let all: Vec<Micros> = all.map(|since| since.unwrap_or(Micros::MIN)).collect();
        Self { later: vec![HashMap::default(); all.len()], all }
    }

    /// An image says of which task time it is, if it does.
    pub(super) fn note(&mut self, place: usize, group: u32, as_of: Option<Micros>) {
        if let Some(as_of) = as_of.filter(|as_of| *as_of > self.all[place]) {
            self.later[place].insert(group, as_of);
        }
    }

    fn get(&self, place: usize, group: u32) -> Micros {
        self.later[place].get(&group).copied().unwrap_or(self.all[place])
    }
}

impl Plan {
    /// Lets cursors, which are where they were at task time `from`, move on to the present one.
    ///
    /// # Errors
    /// Where the reservoir or a group cannot be read back.
    pub(super) fn replay(
        &mut self,
        from: Micros,
        mut images: ImageTimes,
        records: &mut Records,
        mut cache: Option<&mut Cache>,
    ) -> Result<(), Error> {
        let Some(now) = records.task_time().filter(|now| from < *now) else { return Ok(()) };
        for grouping in self.groupings.iter_mut().flatten() {
            grouping.dirty.grow(grouping.table.numbers());
        }
        let columns = self.layout.filled(vec![None; self.layout.len()], 1);
        let step = (now.saturating_sub(from) / STEPS).max(1);
        let mut time = from;
        while time < now {
            time = if now.saturating_sub(time) <= step { now } else { time + step };
            let passed = records.advance(time)?;
            let batch = Elements::of_batch(&columns, 1, Some(&[false]));
            let streams = Streams::new(batch, passed, columns.len());
            if let Some(cache) = &mut cache {
                cache.bring_in_passed(self, &streams, |place, group, as_of| {
                    images.note(place, group, as_of);
                })?;
            }
            let offsets = records.reservoir.cursors();
            self.replay_step(time, &images, &offsets, streams, cache.as_deref_mut());
            self.pieces.check()?;
        }
        Ok(())
    }

    /// `offsets` are those of all cursors.
    fn replay_step(
        &mut self,
        time: Micros,
        images: &ImageTimes,
        offsets: &[(CursorId, Micros)],
        mut streams: Streams,
        cache: Option<&mut Cache>,
    ) {
        // What images lack, by stream, GROUP BY and filter; before groups have slots instead of numbers.
        let mut lacking: HashMap<(StreamId, usize, Option<usize>), Selection> = HashMap::new();
        for node in self.leaves.iter() {
            let Some(window) = &self.leaves.windows[node.window] else { continue };
            let filter = node.filter.and_then(|place| self.filters[place].as_ref());
            let reads = || node.reads();
            for (cursor, place) in
                window.cursors().flat_map(|cursor| reads().map(move |place| (cursor, place)))
            {
                let Some(grouping) = &mut self.groupings[place] else { continue };
                let id = StreamId::Cursor(cursor);
                let elements = streams.get(id);
                if elements.is_empty() || lacking.contains_key(&(id, place, node.filter)) {
                    continue;
                }
                let offset =
                    offsets.iter().find(|(other, _)| *other == cursor).map_or(0, |(_, offset)| *offset);
                let numbers = elements.column(grouping.layout).as_primitive::<UInt32Type>();
                let times = elements.times();
                let bits = filter.map(|filter| elements.column(filter.layout).as_boolean());
                let mut passed = Vec::new();
                let selection = Selection::keep(elements, |_, row| {
                    let number = numbers.value(row);
                    let is_lacking = bits.is_none_or(|bits| bits.is_valid(row) && bits.value(row))
                        && grouping.table.entry(number).is_some()
                        && times[row] > images.get(place, number).saturating_sub(offset);
                    passed.extend(is_lacking.then_some(number));
                    is_lacking
                });
                // The image lacks it still.
                grouping.dirty.pass(&passed);
                lacking.insert((id, place, node.filter), selection);
            }
        }
        let times = [time];
        if let Some(cache) = cache {
            let translated = self.groupings.iter().map(|_| vec![NO_GROUP].into()).collect();
            cache.translate(self, &mut streams, translated);
        }
        for node in self.leaves.nodes.iter_mut().flatten() {
            let Some(window) = &self.leaves.windows[node.window] else { continue };
            let entering = window.head.map_or(StreamId::Batch, StreamId::Cursor);
            let leaving = window.tail.map(StreamId::Cursor);
            let turn_of = |place: usize| {
                let lacking = |id| lacking.get(&(id, place, node.filter)).unwrap_or(&Selection::ALL);
                Turn {
                    task_times: &times,
                    delay: window.delay,
                    groups: &[NO_GROUP],
                    entering: streams.get(entering),
                    entered: lacking(entering),
                    leaving: leaving.map(|id| (streams.get(id), lacking(id))),
                }
            };
            let columns = Columns { group: None, seq: self.layout.seq(), has_times: false, values: &[] };
            if let Some(place) = node.grouping
                && let Some(grouping) = &self.groupings[place]
            {
                node.leaf.grow(Face::Groups, grouping.table.slots());
                node.leaf.run(&turn_of(place), Columns { group: Some(grouping.layout), ..columns });
            }
            for (number, place) in node.values.iter().enumerate() {
                let Some(values) = &self.groupings[*place] else { continue };
                node.leaf.grow(Face::Values(number), values.table.slots());
                node.leaf.replay_values(
                    number,
                    &turn_of(*place),
                    Columns { values: &[values.layout], ..columns },
                );
            }
        }
    }
}
