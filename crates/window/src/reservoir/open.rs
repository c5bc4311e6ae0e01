//! An open chunk: rows in order, in growable columns that take late rows in the middle.

use arrow_array::ArrayRef;
use arrow_schema::{DataType, SchemaRef};
use thalweg_types::Micros;

use crate::columns::Column;

pub(super) struct OpenChunk {
    /// The first is the time.
    columns: Vec<Column>,
}

impl OpenChunk {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        Self { columns: schema.fields().iter().map(|field| Column::new(field.data_type())).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.columns[0].len()
    }

    pub(super) fn times(&self) -> &[Micros] {
        self.columns[0].i64s()
    }

    /// Time of the first row; the largest time there is where the chunk is empty.
    pub(super) fn first_time(&self) -> Micros {
        self.times().first().copied().unwrap_or(Micros::MAX)
    }

    pub(super) fn last_time(&self) -> Micros {
        self.times().last().copied().unwrap_or(Micros::MIN)
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.iter().map(Column::bytes).sum()
    }

    /// Puts a column of nulls at a place, or behind the last one.
    pub(super) fn set_column(&mut self, place: usize, data_type: &DataType) {
        let mut column = Column::new(data_type);
        column.extend_nulls(self.len());
        if place < self.columns.len() {
            self.columns[place] = column;
        } else {
            self.columns.push(column);
        }
    }

    pub(super) fn extend(&mut self, columns: &[ArrayRef], rows: std::ops::Range<usize>) {
        for (column, array) in self.columns.iter_mut().zip(columns) {
            column.extend(array, rows.clone());
        }
    }

    pub(super) fn insert(&mut self, at: usize, columns: &[ArrayRef], row: usize) {
        for (column, array) in self.columns.iter_mut().zip(columns) {
            column.insert(at, array, row);
        }
    }

    pub(super) fn split_off(&mut self, at: usize) -> OpenChunk {
        Self { columns: self.columns.iter_mut().map(|column| column.split_off(at)).collect() }
    }

    /// A copy of some rows.
    pub(super) fn slice(&self, rows: std::ops::Range<usize>) -> Vec<ArrayRef> {
        self.columns.iter().map(|column| column.slice(rows.clone())).collect()
    }

    pub(super) fn finish(self) -> Vec<ArrayRef> {
        self.columns.into_iter().map(Column::finish).collect()
    }
}
