//! One record, as an operator gets it.

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_types::{Batch, Error, Micros, Schema, Seq};

use super::column::Column;
use super::{FieldType, Get};

/// A record of a batch. Copying it copies no values.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    port: usize,
    pub(super) columns: &'a [Column<'a>],
    /// Place in the columns.
    pub(super) physical: u32,
    seq: Seq,
    time: Micros,
}

impl<'a> Row<'a> {
    pub(super) fn new(port: usize, batch: &Batch, columns: &'a [Column<'a>], physical: u32) -> Self {
        Self { port, columns, physical, seq: batch.seq(physical), time: batch.times()[physical as usize] }
    }

    /// The value of a field. Texts and bytes are borrowed from the record.
    ///
    /// # Panics
    /// If the place was found in the schema of another stream, or if null is in a field that its schema calls
    /// not nullable.
    #[inline]
    pub fn get<T: FieldType>(&self, field: Get<T>) -> T::Value<'a> {
        let column = &self.columns[field.place()];
        T::read(column, self.physical as usize)
    }

    /// The record alone, as columns of its schema.
    ///
    /// # Errors
    /// If it is of another schema.
    pub fn alone(&self, schema: &Schema) -> Result<RecordBatch, Error> {
        let columns =
            self.columns.iter().map(|column| column.array.slice(self.physical as usize, 1)).collect();
        RecordBatch::try_new(Arc::clone(schema.arrow()), columns)
            .map_err(|error| Error::internal("take a record out of its batch").with_source(error))
    }

    /// Number of the input that it came by, in the order in which the job file lists them.
    pub fn port(&self) -> usize {
        self.port
    }

    /// The record as if it had another event time.
    pub(crate) fn at(self, time: Micros) -> Self {
        Self { time, ..self }
    }

    /// Its event time.
    pub fn time(&self) -> Micros {
        self.time
    }

    /// Its place in the order.
    pub fn seq(&self) -> Seq {
        self.seq
    }
}
