//! `by_kind`: a partitioning of its own. Records whose device names begin alike go to the same task.
//!
//! Devices of one kind stay together, and so does each device, which is what `deadband` needs.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use thalweg_flow::Partitioner;
use thalweg_types::{Batch, hash_bytes, partition_of};

/// Places a record by what stands before the first `separator` in one of its fields.
pub(crate) struct ByPrefix {
    field: &'static str,
    separator: char,
}

impl ByPrefix {
    pub(crate) fn of(field: &'static str, separator: char) -> Self {
        Self { field, separator }
    }
}

impl Partitioner for ByPrefix {
    fn partition(&self, batch: &Batch, tasks: &mut [Vec<u32>]) {
        let column =
            batch.records().column_by_name(self.field).and_then(|column| column.as_string_view_opt());
        for row in batch.row_numbers() {
            // Records without the field all go to one task: slow, but never apart.
            let name = column
                .filter(|names| names.is_valid(row as usize))
                .map_or("", |names| names.value(row as usize));
            let prefix = name.split(self.separator).next().unwrap_or_default();
            let task = partition_of(hash_bytes(prefix.as_bytes()), tasks.len() as u32);
            tasks[task as usize].push(row);
        }
    }
}
