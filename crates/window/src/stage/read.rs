//! Present values: what a query would answer now for one group.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, new_null_array};
use arrow_schema::{Field as ArrowField, Schema as ArrowSchema};
use thalweg_types::{Error, Micros};

use super::nodes::Face;
use super::queries::QueryState;
use super::{Grouping, LeafNode, Stage};
use crate::agg::NO_GROUP;

/// The values of one query for one group, as of a task time.
#[derive(Clone, Debug)]
pub struct Present {
    /// The query's object: a struct column of one row.
    pub values: ArrayRef,
    /// Task time; `None` where no record has come.
    pub as_of: Option<Micros>,
}

impl Stage {
    /// The present values of a query for the group of the record that has these `fields`: one-row columns, in the order
    /// of [`Stage::group_fields`]. `None` where there is no such query.
    ///
    /// # Errors
    /// Where the group is not in memory and cannot be read back.
    pub fn read(&mut self, query: &str, fields: &[ArrayRef]) -> Result<Option<Present>, Error> {
        let found = self.queries.iter().find(|other| other.name == query);
        let node = found.and_then(|query| self.first_leaf(query));
        let grouping = node.and_then(|node| node.grouping);
        let key = match grouping.and_then(|place| self.groupings[place].as_ref()) {
            Some(grouping) => self.key_of(grouping, fields),
            None => Vec::new(),
        };
        if let Some(grouping) = grouping {
            self.bring_in_keys(grouping, &key, 1)?;
        }
        Ok(self.present(query, &key))
    }

    fn present(&self, query: &str, key: &[ArrayRef]) -> Option<Present> {
        let query = self.queries.iter().find(|other| other.name == query)?;
        let node = self.first_leaf(query)?;
        let window = self.windows[node.window].as_ref()?;
        let as_of = self.task_time();
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
            let leaf = &self.leaves[call.leaf].as_ref()?.leaf;
            let values = leaf.read(if leaf.knows(Face::Groups, group) { group } else { NO_GROUP }, head);
            calls.push(Arc::clone(&values[call.call].values));
        }
        query.clamp(&mut calls, &[as_of.unwrap_or(Micros::MIN)]);
        for output in &query.outputs {
            // A value that cannot be computed is null here; answers name it.
            let is_guarded = true;
            columns.push(output.values(&calls, 1, is_guarded).ok()?.array);
        }
        columns.extend(self.since_columns(query, &[as_of.unwrap_or(Micros::MIN)]));
        let object = StructArray::try_new_with_length(query.fields.clone(), columns, None, 1)
            .expect("columns have the query's types");
        Some(Present { values: Arc::new(object), as_of })
    }

    /// The key of a record, given by the columns that the keys read.
    fn key_of(&self, grouping: &Grouping, fields: &[ArrayRef]) -> Vec<ArrayRef> {
        let given = grouping.columns();
        let column = |place: usize| match given.iter().position(|column| *column == place) {
            Some(found) => Arc::clone(&fields[found]),
            None => new_null_array(&self.schema.fields()[self.input[place]].data_type.to_arrow(), 1),
        };
        let columns: Vec<ArrayRef> = (0..self.input.len()).map(column).collect();
        // Fields that the keys do not read are null here, whether they can be or not.
        let field = |(place, column): (usize, &ArrayRef)| {
            ArrowField::new(place.to_string(), column.data_type().clone(), true)
        };
        let schema = ArrowSchema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>());
        let record = RecordBatch::try_new(Arc::new(schema), columns).expect("each column has one row");
        // As of records, a key that cannot be computed is null.
        grouping.keys.iter().map(|key| key.values_or_nulls(&record).array).collect()
    }

    /// A leaf of a query; all that it has are of the same window and GROUP BY.
    fn first_leaf(&self, query: &QueryState) -> Option<&LeafNode> {
        self.leaves[query.calls.first()?.leaf].as_ref()
    }

    /// Input columns that the GROUP BY of a query reads, in the order in which [`Stage::read`] takes them; empty for a query
    /// without GROUP BY, `None` where there is no such query.
    pub fn group_fields(&self, query: &str) -> Option<Vec<usize>> {
        let query = self.queries.iter().find(|other| other.name == query)?;
        let node = self.first_leaf(query)?;
        Some(match node.grouping {
            None => Vec::new(),
            Some(grouping) => self.groupings[grouping]
                .as_ref()?
                .columns()
                .iter()
                .map(|column| self.input[*column])
                .collect(),
        })
    }
}
