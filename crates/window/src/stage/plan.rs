//! The plan of a stage: its queries and what they have in common, each part with the state that it has of the stream.
//!
//! Groups are in the tables of their GROUP BY, with marks of which have changed; what aggregates make of them is in
//! leaves.
//!
//! Not here: how queries come and go (`queries`), what the plan does with a batch (`guard`, `run`), what it answers
//! between batches (`read`, `explain`), the records (`records`), which groups are in a checkpoint or in memory
//! (`checkpoint`, `cache`).

use thalweg_types::{HashKey, Micros, Schema};

use super::input::Input;
use super::layout::LayoutColumns;
use super::leaves::Leaves;
use super::nodes::{Arg, Filter, Grouping};
use super::queries::QueryState;

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
    pub(super) tag_key: HashKey,
}

impl Plan {
    /// Without queries; `tag_key` hashes keys of groups for checkpoints.
    pub(super) fn new(schema: &Schema, tag_key: HashKey) -> Self {
        Self {
            input: Input::new(schema),
            layout: LayoutColumns::new(),
            groupings: Vec::new(),
            filters: Vec::new(),
            args: Vec::new(),
            leaves: Leaves::default(),
            queries: Vec::new(),
            next_id: 1,
            tag_key,
        }
    }

    pub(super) fn query(&self, name: &str) -> Option<&QueryState> {
        self.queries.iter().find(|query| query.name == name)
    }

    /// Heap bytes of groups and aggregates.
    pub(super) fn bytes(&self) -> usize {
        let groups: usize = self.groupings.iter().flatten().map(Grouping::bytes).sum();
        self.leaves.bytes() + groups
    }

    /// Live groups over all GROUP BYs, in memory or not.
    pub(super) fn groups(&self) -> usize {
        let own = self.groupings.iter().flatten().filter(|grouping| grouping.values_of.is_none());
        own.map(|grouping| grouping.table.live()).sum()
    }

    /// The task time from which edges have passed rows that images may lack; the present one where they lack none.
    pub(super) fn replays_from(&self, now: Option<Micros>) -> Option<Micros> {
        let since = self.groupings.iter().flatten().filter_map(|grouping| grouping.dirty.passed_since());
        since.chain(now).min()
    }
}
