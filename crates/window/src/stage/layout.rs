//! Columns of the reservoir: what is at which place of a row that is kept, for a running plan and for one that is put
//! back into the places that a manifest gives.
//!
//! Not here: the rows (`crate::reservoir`), values for a batch's records (`run`).

use std::sync::Arc;

use arrow_array::{ArrayRef, new_null_array};
use arrow_schema::DataType as ArrowType;
use thalweg_types::Error;

use super::restore::contradiction;
use crate::reservoir::Layout;

/// Names and types of columns; those that no query reads are free for others.
pub(super) struct LayoutColumns {
    columns: Vec<(String, ArrowType)>,
    unused: Vec<usize>,
    /// Place of the arrival number, once an aggregate depends on the order of elements.
    seq: Option<usize>,
}

impl LayoutColumns {
    /// Of a plan without queries.
    pub(super) fn new() -> Self {
        Self { columns: vec![time_column()], unused: Vec::new(), seq: None }
    }

    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    pub(super) fn name(&self, place: usize) -> &str {
        &self.columns[place].0
    }

    pub(super) fn data_type(&self, place: usize) -> &ArrowType {
        &self.columns[place].1
    }

    pub(super) fn seq(&self) -> Option<usize> {
        self.seq
    }

    /// Types of the columns in use.
    pub(super) fn used(&self) -> impl Iterator<Item = &ArrowType> {
        let columns = self.columns.iter().enumerate().filter(|(place, _)| !self.unused.contains(place));
        columns.map(|(_, (_, data_type))| data_type)
    }

    pub(super) fn of_reservoir(&self) -> Layout {
        Layout::new(&self.columns)
    }

    pub(super) fn add(&mut self, name: String, data_type: ArrowType) -> usize {
        match self.unused.pop() {
            Some(place) => {
                self.columns[place] = (name, data_type);
                place
            }
            None => {
                self.columns.push((name, data_type));
                self.columns.len() - 1
            }
        }
    }

    /// From now on there are arrival numbers; rows that are there get nulls.
    pub(super) fn add_seq(&mut self) {
        if self.seq.is_none() {
            self.seq = Some(self.add("seq".to_owned(), ArrowType::UInt64));
        }
    }

    pub(super) fn free(&mut self, place: usize) {
        self.columns[place] = unused_column(place);
        self.unused.push(place);
    }

    pub(super) fn free_seq(&mut self) {
        if let Some(place) = self.seq.take() {
            self.free(place);
        }
    }

    /// Rows of all columns, with nulls in those that are not given.
    pub(super) fn filled(&self, columns: Vec<Option<ArrayRef>>, rows: usize) -> Arc<[ArrayRef]> {
        columns
            .into_iter()
            .enumerate()
            .map(|(place, column)| {
                // A dropped query's column stays in the layout, empty: until another takes its place, or while records
                // that have it are in windows of others.
                column.unwrap_or_else(|| new_null_array(&self.columns[place].1, rows))
            })
            .collect()
    }
}

/// Columns of a layout on the way.
pub(super) struct LayoutPlaces {
    places: Vec<Option<(String, ArrowType)>>,
    seq: Option<usize>,
}

impl LayoutPlaces {
    pub(super) fn new(columns: usize) -> Result<Self, Error> {
        let mut places = vec![None; columns];
        let first = places.first_mut().ok_or_else(|| contradiction(&"a layout without columns"))?;
        *first = Some(time_column());
        Ok(Self { places, seq: None })
    }

    pub(super) fn take(&mut self, place: usize, name: String, data_type: ArrowType) -> Result<(), Error> {
        match self.places.get_mut(place) {
            Some(column @ None) => {
                *column = Some((name, data_type));
                Ok(())
            }
            _ => Err(contradiction(&format_args!("column {place} of the layout is taken twice"))),
        }
    }

    pub(super) fn take_seq(&mut self, place: usize) -> Result<(), Error> {
        self.seq = Some(place);
        self.take(place, "seq".to_owned(), ArrowType::UInt64)
    }

    pub(super) fn finish(self) -> LayoutColumns {
        let unused = (0..self.places.len()).filter(|place| self.places[*place].is_none()).collect();
        let columns = self.places.into_iter().enumerate();
        let columns = columns.map(|(place, column)| column.unwrap_or_else(|| unused_column(place))).collect();
        LayoutColumns { columns, unused, seq: self.seq }
    }
}

fn time_column() -> (String, ArrowType) {
    ("time".to_owned(), ArrowType::Int64)
}

/// A place of the reservoir's layout that is free for another column.
fn unused_column(place: usize) -> (String, ArrowType) {
    (format!("unused {place}"), ArrowType::Boolean)
}
