//! Present values: what a query would answer now for one group.
//!
//! Not here: bringing the group into memory (`cache`).

use std::sync::Arc;

use arrow_array::{ArrayRef, StructArray};
use thalweg_types::Micros;

use super::LeafNode;
use super::nodes::Face;
use super::plan::Plan;
use super::queries::QueryState;
use crate::agg::NO_GROUP;

/// The values of one query for one group, as of a task time.
#[derive(Clone, Debug)]
pub struct Present {
    /// The query's object: a struct column of one row.
    pub values: ArrayRef,
    /// Task time; `None` where no record has come.
    pub as_of: Option<Micros>,
}

impl Plan {
    /// The place of a query's GROUP BY, and the key of the record that has these `fields`; none for a query without GROUP BY,
    /// and where there is no such query.
    pub(super) fn key_of(&self, query: &str, fields: &[ArrayRef]) -> (Option<usize>, Vec<ArrayRef>) {
        let node = self.query(query).and_then(|query| self.first_leaf(query));
        let grouping = node.and_then(|node| node.grouping);
        let key = match grouping.and_then(|place| self.groupings[place].as_ref()) {
            Some(grouping) => self.input.key_of(grouping, fields),
            None => Vec::new(),
        };
        (grouping, key)
    }

    /// The present values of a query for a key whose group is in memory, if there is such a query.
    pub(super) fn present(&self, query: &str, key: &[ArrayRef], as_of: Option<Micros>) -> Option<Present> {
        let query = self.query(query)?;
        let node = self.first_leaf(query)?;
        let window = self.leaves.windows[node.window].as_ref()?;
        let group = match node.grouping {
            None => 0,
            Some(grouping) => {
                let table = &self.groupings[grouping].as_ref()?.table;
                table.find(key).and_then(|number| table.slot(number)).unwrap_or(NO_GROUP)
            }
        };
        let head = as_of.unwrap_or(Micros::MIN).saturating_sub(window.delay);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(query.fields.len());
        let mut calls = Vec::with_capacity(query.calls.len());
        for call in &query.calls {
            let leaf = &self.leaves.get(call.leaf)?.leaf;
            let values = leaf.read(if leaf.knows(Face::Groups, group) { group } else { NO_GROUP }, head);
            calls.push(Arc::clone(&values[call.call].values));
        }
        query.clamp(&mut calls, &[as_of.unwrap_or(Micros::MIN)]);
        for output in &query.outputs {
            // A value that cannot be computed is null here; answers name it.
            let is_guarded = true;
            columns.push(output.values(&calls, 1, is_guarded).ok()?.array);
        }
        columns.extend(query.since_columns(&[as_of.unwrap_or(Micros::MIN)]));
        let object = StructArray::try_new_with_length(query.fields.clone(), columns, None, 1)
            .expect("columns have the query's types");
        Some(Present { values: Arc::new(object), as_of })
    }

    /// A leaf of a query; all that it has are of the same window and GROUP BY.
    fn first_leaf(&self, query: &QueryState) -> Option<&LeafNode> {
        self.leaves.get(query.calls.first()?.leaf)
    }

    /// As [`super::Stage::group_fields`].
    pub(super) fn group_fields(&self, query: &str) -> Option<Vec<usize>> {
        let query = self.query(query)?;
        let node = self.first_leaf(query)?;
        Some(match node.grouping {
            None => Vec::new(),
            Some(grouping) => self.groupings[grouping]
                .as_ref()?
                .columns()
                .iter()
                .map(|column| self.input.columns[*column])
                .collect(),
        })
    }
}
