//! An open chunk: rows in order, in growable columns that take late rows in the middle.
//!
//! In addition to its rows it knows which frame of a checkpoint each of them is in, as runs: rows come at the end but
//! for late ones, so there are few.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, SchemaRef};
use thalweg_types::Micros;

use crate::columns::Column;

#[derive(Clone)]
pub(super) struct OpenChunk {
    /// The first is the time.
    columns: Vec<Column>,
    /// Frames of all rows, in order.
    runs: Vec<Run>,
}

/// Consecutive rows that are in one frame, or in none yet.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) rows: usize,
    pub(super) frame: Option<u64>,
}

impl OpenChunk {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        let columns = schema.fields().iter().map(|field| Column::new(field.data_type())).collect();
        Self { columns, runs: Vec::new() }
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
        self.columns.iter().map(Column::bytes).sum::<usize>() + self.runs.capacity() * size_of::<Run>()
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Whether a row is in no frame yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.runs.iter().any(|run| run.frame.is_none())
    }

    /// Puts rows that are in no frame yet into one, the first ones and at most `most`, and returns where they are.
    pub(super) fn freeze(&mut self, frame: u64, most: usize) -> Vec<Range<usize>> {
        let mut frozen = Vec::new();
        let (mut start, mut left, mut place) = (0, most, 0);
        while left > 0 && place < self.runs.len() {
            let run = &mut self.runs[place];
            let end = start + run.rows;
            if run.frame.is_none() {
                let rows = run.rows.min(left);
                let rest = run.rows - rows;
                *run = Run { rows, frame: Some(frame) };
                frozen.push(start..start + rows);
                left -= rows;
                if rest > 0 {
                    self.runs.insert(place + 1, Run { rows: rest, frame: None });
                    break;
                }
            }
            start = end;
            place += 1;
        }
        frozen
    }

    /// Puts a column of nulls at a place, or after the last one.
    pub(super) fn set_column(&mut self, place: usize, data_type: &DataType) {
        let mut column = Column::new(data_type);
        column.extend_nulls(self.len());
        if place < self.columns.len() {
            self.columns[place] = column;
        } else {
            self.columns.push(column);
        }
    }

    /// Appends rows that are in `frame`, or in none yet.
    pub(super) fn extend(&mut self, columns: &[ArrayRef], rows: Range<usize>, frame: Option<u64>) {
        for (column, array) in self.columns.iter_mut().zip(columns) {
            column.extend(array, rows.clone());
        }
        match self.runs.last_mut().filter(|run| run.frame == frame) {
            Some(run) => run.rows += rows.len(),
            None => self.runs.push(Run { rows: rows.len(), frame }),
        }
    }

    pub(super) fn insert(&mut self, at: usize, columns: &[ArrayRef], row: usize) {
        for (column, array) in self.columns.iter_mut().zip(columns) {
            column.insert(at, array, row);
        }
        let mut place = self.split_runs(at);
        // At the border of two runs it joins the one that is in no frame either.
        if place > 0 && self.runs[place - 1].frame.is_none() {
            place -= 1;
        }
        match self.runs.get_mut(place).filter(|run| run.frame.is_none()) {
            Some(run) => run.rows += 1,
            None => self.runs.insert(place, Run { rows: 1, frame: None }),
        }
    }

    pub(super) fn split_off(&mut self, at: usize) -> OpenChunk {
        let place = self.split_runs(at);
        Self {
            columns: self.columns.iter_mut().map(|column| column.split_off(at)).collect(),
            runs: self.runs.split_off(place),
        }
    }

    /// Makes row `at` the first of a run, and returns the place of that run.
    fn split_runs(&mut self, at: usize) -> usize {
        let mut start = 0;
        for (place, run) in self.runs.iter_mut().enumerate() {
            if at <= start {
                return place;
            }
            let end = start + run.rows;
            if at < end {
                let rest = Run { rows: end - at, ..*run };
                run.rows = at - start;
                self.runs.insert(place + 1, rest);
                return place + 1;
            }
            start = end;
        }
        self.runs.len()
    }

    /// A copy of some rows.
    pub(super) fn slice(&self, rows: Range<usize>) -> Vec<ArrayRef> {
        self.columns.iter().map(|column| column.slice(rows.clone())).collect()
    }

    pub(super) fn finish(self) -> Vec<ArrayRef> {
        self.columns.into_iter().map(Column::finish).collect()
    }
}
