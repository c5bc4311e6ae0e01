//! Tables that the groups of all workers come together in, and records on their way there.
//!
//! A record's hash says which part it belongs to. There are enough parts that the table of each stays in the
//! processor's caches while records are added to it, by the thousand, and that workers seldom wait for each other.
//! (Partitioned grouping, as in Leis et al., *Morsel-Driven Parallelism*, SIGMOD 2014, section 4.4.)

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;

use super::groups::{Groups, Layout, by_stride, part_of};
use super::work::lock;

/// A table and its lock for each part.
pub(super) struct Parts(Vec<Mutex<(Groups, MemoryReservation)>>);

impl Parts {
    pub(super) fn new(tables: impl Iterator<Item = (Groups, MemoryReservation)>) -> Self {
        Self(tables.map(Mutex::new).collect())
    }

    pub(super) fn into_tables(self) -> impl Iterator<Item = (Groups, MemoryReservation)> {
        self.0.into_iter().map(|table| table.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// # Errors
    /// No memory for them.
    fn add(&self, part: usize, records: &[u64], layout: &Layout) -> Result<(), DataFusionError> {
        let (table, memory) = &mut *lock(&self.0[part]);
        memory.try_resize(table.bytes_with(records.len() / layout.stride()))?;
        table.add(records);
        Ok(())
    }
}

/// Records of a worker by parts, until there are enough of a part's.
pub(super) struct Scattered {
    layout: Arc<Layout>,
    buffers: Vec<Vec<u64>>,
    /// Words of a buffer that is full.
    full: usize,
}

impl Scattered {
    /// For `parts` parts.
    pub(super) fn new(parts: usize, layout: Arc<Layout>, full: usize) -> Self {
        Self { layout, buffers: vec![Vec::new(); parts], full }
    }

    pub(super) fn bytes(&self) -> usize {
        self.buffers.iter().map(Vec::capacity).sum::<usize>() * size_of::<u64>()
    }

    /// Records that have not been brought.
    pub(super) fn len(&self) -> usize {
        self.buffers.iter().map(Vec::len).sum::<usize>() / self.layout.stride()
    }

    /// Takes records; zeros are no record.
    ///
    /// # Errors
    /// No memory for the tables.
    pub(super) fn add(&mut self, records: &[u64], parts: &Parts) -> Result<(), DataFusionError> {
        by_stride!(self.layout.stride(), self.add_all(records, parts))
    }

    fn add_all<const STRIDE: usize>(
        &mut self,
        records: &[[u64; STRIDE]],
        parts: &Parts,
    ) -> Result<(), DataFusionError> {
        for record in records.iter().filter(|record| record[0] != 0) {
            let part = part_of(record[0], self.buffers.len());
            let buffer = &mut self.buffers[part];
            buffer.extend_from_slice(record);
            if buffer.len() >= self.full {
                parts.add(part, buffer, &self.layout)?;
                buffer.clear();
            }
        }
        Ok(())
    }

    /// Brings all records, the parts from the one with this number on first, and frees their memory. Takes a millisecond or two:
    /// giving way between parts took as long as the work.
    pub(super) fn bring(&mut self, first: usize, parts: &Parts) -> Result<(), DataFusionError> {
        let count = self.buffers.len();
        for part in (0..count).map(|part| (part + first) % count) {
            let buffer = std::mem::take(&mut self.buffers[part]);
            if !buffer.is_empty() {
                parts.add(part, &buffer, &self.layout)?;
            }
        }
        Ok(())
    }
}
