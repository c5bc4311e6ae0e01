//! The rows that ranges point at: equal ones occur once, each value in its column.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringViewBuilder, UInt64Builder};
use thalweg_types::{DataType, Schema};

use super::cell::Cell;

/// Rows while they are loaded.
pub(super) struct Rows {
    columns: Vec<Column>,
    numbers: HashMap<Box<[u8]>, u32>,
    key: Vec<u8>,
    memory_bytes: u64,
}

/// What a row takes in addition to its values: its place in the map, and its views.
const ROW_BYTES: u64 = 64;

impl Rows {
    pub(super) fn new(schema: &Schema) -> Self {
        Self {
            columns: schema.fields().iter().map(|field| Column::new(&field.data_type)).collect(),
            numbers: HashMap::new(),
            key: Vec::new(),
            memory_bytes: 0,
        }
    }

    /// The number of the row with these values, one for each column; `None` where there are too many rows.
    pub(super) fn number(&mut self, cells: &[Cell<'_>]) -> Option<u32> {
        self.key.clear();
        for cell in cells {
            cell.write_key(&mut self.key);
        }
        if let Some(number) = self.numbers.get(&*self.key) {
            return Some(*number);
        }
        // The last number is spoken for: it means that there is no row.
        let number = u32::try_from(self.numbers.len()).ok().filter(|number| *number != u32::MAX)?;
        self.numbers.insert(self.key.as_slice().into(), number);
        // Once in the key and once in the column.
        self.memory_bytes += 2 * self.key.len() as u64 + ROW_BYTES;
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(*cell);
        }
        Some(number)
    }

    /// What these rows take, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The number of rows and their columns.
    pub(super) fn finish(self) -> (u32, Vec<ArrayRef>) {
        (self.numbers.len() as u32, self.columns.into_iter().map(Column::finish).collect())
    }
}

enum Column {
    Bool(BooleanBuilder),
    Int64(Int64Builder),
    UInt64(UInt64Builder),
    Float64(Float64Builder),
    Text(StringViewBuilder),
}

impl Column {
    /// Types that tables do not keep have been refused by `RangeOptions::check`.
    fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::Bool => Column::Bool(BooleanBuilder::new()),
            DataType::Int64 => Column::Int64(Int64Builder::new()),
            DataType::UInt64 => Column::UInt64(UInt64Builder::new()),
            DataType::Float64 => Column::Float64(Float64Builder::new()),
            // A name that is in many rows is kept once.
            _ => Column::Text(StringViewBuilder::new().with_deduplicate_strings()),
        }
    }

    fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Column::Bool(builder), Cell::Bool(value)) => builder.append_value(value),
            (Column::Int64(builder), Cell::Int64(value)) => builder.append_value(value),
            (Column::UInt64(builder), Cell::UInt64(value)) => builder.append_value(value),
            (Column::Float64(builder), Cell::Float64(value)) => builder.append_value(value),
            (Column::Text(builder), Cell::Text(value)) => builder.append_value(value),
            (Column::Bool(builder), _) => builder.append_null(),
            (Column::Int64(builder), _) => builder.append_null(),
            (Column::UInt64(builder), _) => builder.append_null(),
            (Column::Float64(builder), _) => builder.append_null(),
            (Column::Text(builder), _) => builder.append_null(),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Column::Bool(mut builder) => Arc::new(builder.finish()),
            Column::Int64(mut builder) => Arc::new(builder.finish()),
            Column::UInt64(mut builder) => Arc::new(builder.finish()),
            Column::Float64(mut builder) => Arc::new(builder.finish()),
            Column::Text(mut builder) => Arc::new(builder.finish()),
        }
    }
}
