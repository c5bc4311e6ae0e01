//! `by_kind`: a partitioning of its own. Records whose device names begin alike go to the same task.
//!
//! Devices of one kind stay together, and so does each device, which is what `deadband` needs.

use thalweg_prelude::arrow_array::Array;
use thalweg_prelude::arrow_array::cast::AsArray;
use thalweg_prelude::*;

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
    fn check(&self, schema: &Schema) -> Result<(), Error> {
        Get::<Option<String>>::of(schema, self.field).map(drop)
    }

    fn keeps_together(&self, schema: &Schema, fields: &[usize]) -> bool {
        // Who agrees in the whole name agrees in its beginning.
        fields.iter().any(|place| schema.fields()[*place].name == self.field)
    }

    fn partition(&self, batch: &Batch, tasks: &mut [Vec<u32>]) {
        let names = batch.records().column_by_name(self.field).map(|column| column.as_string_view());
        for row in batch.row_numbers() {
            let name = names.filter(|names| names.is_valid(row as usize));
            let name = name.map_or("", |names| names.value(row as usize));
            let prefix = name.split(self.separator).next().unwrap_or_default();
            let task = partition_of(hash_bytes(prefix.as_bytes()), tasks.len() as u32);
            tasks[task as usize].push(row);
        }
    }
}
