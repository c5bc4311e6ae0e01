//! The plan of a stage: its queries and what they have in common, each part with the state that it has of the stream.
//!
//! Groups are in the tables of their GROUP BY, with marks of which have changed; what aggregates make of them is in
//! leaves.
//!
//! Not here: how queries come and go (`queries`), what the plan does with a batch (`guard`, `run`), what it answers
//! between batches (`read`, `explain`), the records (`records`), which groups are in a checkpoint or in memory
//! (`checkpoint`, `cache`).

use std::sync::Arc;

use thalweg_types::{HashKey, Micros, Schema};

use super::StageOptions;
use super::checkpoint::Marker;
use super::input::Input;
use super::layout::LayoutColumns;
use super::leaves::Leaves;
use super::nodes::{Arg, Filter, Grouping};
use super::queries::QueryState;
use crate::groups::{Cached, Groups};
use crate::pieces::PieceStore;

pub(super) struct Plan {
    pub(super) input: Input,
    pub(super) layout: LayoutColumns,
    /// Groupings and filters keep their places; those of dropped queries are free for others.
    pub(super) groupings: Vec<Option<Grouping>>,
    pub(super) filters: Vec<Option<Filter>>,
    pub(super) args: Vec<Arg>,
    pub(super) leaves: Leaves,
    pub(super) queries: Vec<QueryState>,
    /// The id that the next grouping or leaf gets: ids are in checkpoints and are never used again.
    pub(super) next_id: u32,
    /// [`StageOptions::tag_key`].
    pub(super) tag_key: HashKey,
    /// [`StageOptions::turn`].
    turn: usize,
    /// Pieces of lists that are long.
    pub(super) pieces: Arc<PieceStore>,
}

impl Plan {
    /// Without queries.
    pub(super) fn new(schema: &Schema, options: &StageOptions) -> Self {
        Self {
            input: Input::new(schema),
            layout: LayoutColumns::new(),
            groupings: Vec::new(),
            filters: Vec::new(),
            args: Vec::new(),
            leaves: Leaves::default(),
            queries: Vec::new(),
            next_id: 1,
            tag_key: options.tag_key,
            turn: options.turn,
            pieces: Arc::new(PieceStore::new(options.piece)),
        }
    }

    pub(super) fn query(&self, name: &str) -> Option<&QueryState> {
        self.queries.iter().find(|query| query.name == name)
    }

    /// Heap bytes of groups and aggregates.
    pub(super) fn bytes(&self) -> usize {
        let groups: usize = self.groupings.iter().flatten().map(Grouping::bytes).sum();
        self.leaves.bytes() + groups + self.pieces.bytes()
    }

    /// Live groups over all GROUP BYs, in memory or not.
    pub(super) fn groups(&self) -> usize {
        let own = self.groupings.iter().flatten().filter(|grouping| grouping.values_of.is_none());
        own.map(|grouping| grouping.table.live()).sum()
    }

    /// Tables of which groups may be out of memory.
    pub(super) fn cached(&mut self) -> impl Iterator<Item = &mut Cached> {
        self.groupings.iter_mut().flatten().filter_map(|grouping| match &mut grouping.table {
            Groups::Cached(table) => Some(&mut **table),
            Groups::Dense(_) => None,
        })
    }

    /// A marker: groups that have changed since the last one are to be written.
    pub(super) fn freeze(&mut self, marker: &Marker) {
        let Marker { cycle, as_of, is_first, is_bounded, is_round } = *marker;
        let turn = (!is_round).then_some(self.turn);
        for grouping in self.groupings.iter_mut().flatten() {
            let numbers = grouping.table.numbers();
            grouping.dirty.grow(numbers);
            if is_first {
                grouping.dirty.mark_all(numbers);
            }
            grouping.dirty.freeze_groups(cycle, as_of, turn, is_bounded);
            grouping.tags.freeze(numbers, is_first);
        }
    }

    /// The cycle's changes can be read back.
    pub(super) fn written(&mut self, cycle: u64) {
        for grouping in self.groupings.iter_mut().flatten() {
            grouping.dirty.written(cycle);
        }
        for node in self.leaves.nodes.iter_mut().flatten() {
            node.leaf.pieced_mut().for_each(|pieced| pieced.written(cycle));
        }
    }

    /// The task time from which edges have passed rows that images may lack; the present one where they lack none.
    pub(super) fn replays_from(&self, now: Option<Micros>) -> Option<Micros> {
        let since = self.groupings.iter().flatten().filter_map(|grouping| grouping.dirty.passed_since());
        since.chain(now).min()
    }
}
