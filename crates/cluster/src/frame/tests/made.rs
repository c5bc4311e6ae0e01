//! Columns of all types, and their bits.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array, FixedSizeBinaryArray,
    Float64Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions, StringViewArray, StructArray,
    UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_schema as arrow;
use thalweg_types::{DataType, Field, Schema, TimeUnit, Value};

/// Every type of a field.
pub(super) fn types() -> Vec<DataType> {
    let text = || Field::new("text", DataType::String).nullable();
    let query = DataType::Struct(vec![
        Field::new("n", DataType::Int64).nullable(),
        Field::new("is_new", DataType::Bool).nullable(),
        text(),
        Field::new("inner", DataType::Struct(vec![Field::new("at", DataType::Timestamp(TimeUnit::Nano))])),
    ]);
    vec![
        DataType::Bool,
        DataType::Int64,
        DataType::UInt64,
        DataType::Float64,
        DataType::Decimal { precision: 38, scale: 3 },
        DataType::Decimal { precision: 76, scale: 0 },
        DataType::String,
        DataType::Bytes,
        DataType::Timestamp(TimeUnit::Second),
        DataType::Timestamp(TimeUnit::Milli),
        DataType::Timestamp(TimeUnit::Micro),
        DataType::Timestamp(TimeUnit::Nano),
        DataType::Ip,
        DataType::List(Box::new(DataType::String)),
        DataType::List(Box::new(DataType::Decimal { precision: 40, scale: 2 })),
        DataType::List(Box::new(DataType::List(Box::new(DataType::Bool)))),
        DataType::List(Box::new(DataType::Struct(vec![text()]))),
        query,
        DataType::Struct(vec![]),
        DataType::Bool,
    ]
}

/// A field of each type.
pub(super) fn schema() -> arrow::SchemaRef {
    let field = |(index, data_type): (usize, DataType)| Field::new(format!("c{index}"), data_type).nullable();
    let fields: Vec<Field> = types().into_iter().enumerate().map(field).collect();
    Arc::clone(Schema::new(fields).arrow())
}

/// Rows whose values come from seeds, null where there is none.
pub(super) fn batch(schema: &arrow::SchemaRef, seeds: &[Option<i64>]) -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(seeds.len()));
    let columns = schema.fields().iter().map(|field| column(field.data_type(), seeds)).collect();
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).unwrap()
}

fn column(data_type: &arrow::DataType, seeds: &[Option<i64>]) -> ArrayRef {
    use arrow::DataType as Arrow;
    let some = |seed: &Option<i64>| seed.unwrap_or_default();
    let nulls = || Some(NullBuffer::from_iter(seeds.iter().map(Option::is_some)));
    // Seeds for what is inside of rows that have a value.
    let inner = |row: usize, count: usize| {
        let seed = seeds[row].unwrap_or_default();
        (0..count as i64).map(move |item| (seed % 3 != item).then(|| seed.wrapping_mul(item + 7)))
    };
    match data_type {
        Arrow::Boolean => {
            Arc::new(BooleanArray::new(seeds.iter().map(|seed| some(seed) & 1 == 1).collect(), nulls()))
        }
        Arrow::Int64 => Arc::new(Int64Array::new(seeds.iter().map(some).collect(), nulls())),
        Arrow::UInt64 => {
            Arc::new(UInt64Array::new(seeds.iter().map(|seed| some(seed) as u64).collect(), nulls()))
        }
        Arrow::Float64 => {
            let float = |seed| match some(seed) {
                0 => -0.0,
                seed @ -1_000_000..=1_000_000 => seed as f64 / 100.0,
                // Any pattern of bits, payloads of NaN among them.
                seed => f64::from_bits(seed as u64 | 0x7ff0_0000_0000_0000),
            };
            Arc::new(Float64Array::new(seeds.iter().map(float).collect(), nulls()))
        }
        Arrow::Decimal128(precision, scale) => {
            let wide =
                |seed| if some(seed) % 3 == 0 { i128::from(some(seed)) << 60 } else { some(seed).into() };
            let column = Decimal128Array::new(seeds.iter().map(wide).collect(), nulls());
            Arc::new(column.with_precision_and_scale(*precision, *scale).unwrap())
        }
        Arrow::Decimal256(precision, scale) => {
            let wide = |seed| match some(seed) % 5 {
                0 => i256::from_parts(some(seed) as u128, some(seed).into()),
                _ => i256::from_i128(some(seed).into()),
            };
            let column = Decimal256Array::new(seeds.iter().map(wide).collect(), nulls());
            Arc::new(column.with_precision_and_scale(*precision, *scale).unwrap())
        }
        Arrow::Utf8View => {
            let text = |seed: i64| "ä€x".repeat((seed as u64 % 9) as usize) + &(seed % 1_000).to_string();
            Arc::new(StringViewArray::from_iter(seeds.iter().map(|seed| seed.map(text))))
        }
        Arrow::BinaryView => {
            let bytes = |seed: i64| vec![seed as u8; (seed as u64 % 200) as usize];
            Arc::new(BinaryViewArray::from_iter(seeds.iter().map(|seed| seed.map(bytes))))
        }
        Arrow::Timestamp(unit, None) => {
            let values: Vec<i64> = seeds.iter().map(some).collect();
            TimeUnit::of_arrow(*unit).column(values.into(), nulls())
        }
        Arrow::FixedSizeBinary(16) => {
            let address = |seed: i64| {
                let mut octets = [if seed % 2 == 0 { 0 } else { 0x20 }; 16];
                octets[10..12].fill(0xff);
                octets[12..].copy_from_slice(&seed.to_le_bytes()[..4]);
                octets
            };
            let addresses = seeds.iter().map(|seed| seed.map(address));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(addresses, 16).unwrap())
        }
        Arrow::List(item) => {
            let counts: Vec<usize> = seeds.iter().map(|seed| (some(seed) as u64 % 4) as usize).collect();
            let items: Vec<Option<i64>> =
                counts.iter().enumerate().flat_map(|(row, count)| inner(row, *count)).collect();
            let offsets = OffsetBuffer::from_lengths(counts);
            Arc::new(ListArray::new(Arc::clone(item), offsets, column(item.data_type(), &items), nulls()))
        }
        Arrow::Struct(fields) => {
            let column = |(place, field): (usize, &arrow::FieldRef)| {
                let seeds: Vec<Option<i64>> =
                    (0..seeds.len()).map(|row| inner(row, place + 1).next_back().flatten()).collect();
                column(field.data_type(), &seeds)
            };
            let columns = fields.iter().enumerate().map(column).collect();
            let made = StructArray::try_new_with_length(fields.clone(), columns, nulls(), seeds.len());
            Arc::new(made.unwrap())
        }
        other => panic!("no values of {other}"),
    }
}

/// The bits of each value: Arrow's own comparison takes no position on NaN payloads. Equal texts of bits are equal values.
pub(super) fn bits(column: &ArrayRef) -> Vec<String> {
    (0..column.len()).map(|row| bits_at(column, row)).collect()
}

fn bits_at(column: &ArrayRef, row: usize) -> String {
    use arrow::DataType as Arrow;
    if column.is_null(row) {
        return "null".to_owned();
    }
    match column.data_type() {
        Arrow::Int64 => format!("{}", column.as_primitive::<Int64Type>().value(row)),
        Arrow::UInt64 => format!("{}", column.as_primitive::<UInt64Type>().value(row)),
        Arrow::Float64 => format!("{:#x}", column.as_primitive::<Float64Type>().value(row).to_bits()),
        Arrow::Decimal128(..) => format!("{}", column.as_primitive::<Decimal128Type>().value(row)),
        Arrow::Decimal256(..) => format!("{}", column.as_primitive::<Decimal256Type>().value(row)),
        Arrow::List(_) => format!("{:?}", bits(&column.as_list::<i32>().value(row))),
        Arrow::Struct(_) => {
            let fields = column.as_struct().columns().iter();
            format!("{:?}", fields.map(|field| bits_at(field, row)).collect::<Vec<_>>())
        }
        _ => format!("{:?}", Value::at(column, row)),
    }
}
