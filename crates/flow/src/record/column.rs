//! A batch's columns under their own types, found once per batch.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, StringViewArray};
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::{DataType, TimeUnit as ArrowUnit};
use thalweg_types::{Batch, TimeUnit};

#[derive(Clone, Copy)]
pub struct Column<'a> {
    pub(super) array: &'a ArrayRef,
    nulls: Option<&'a NullBuffer>,
    pub(super) values: Values<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Values<'a> {
    Bool(&'a BooleanArray),
    Int64(&'a [i64]),
    UInt64(&'a [u64]),
    Float64(&'a [f64]),
    Decimal128(&'a [i128], i8),
    Decimal256(&'a [i256], i8),
    String(&'a StringViewArray),
    Bytes(&'a BinaryViewArray),
    Time(&'a [i64], TimeUnit),
    Ip(&'a FixedSizeBinaryArray),
    /// Lists and structs, which answers have.
    Nested,
}

impl<'a> Column<'a> {
    pub(super) fn all(batch: &'a Batch) -> Vec<Self> {
        batch.records().columns().iter().map(Self::of).collect()
    }

    fn of(array: &'a ArrayRef) -> Self {
        let values = match array.data_type() {
            DataType::Boolean => Values::Bool(array.as_boolean()),
            DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>().values()),
            DataType::UInt64 => Values::UInt64(array.as_primitive::<UInt64Type>().values()),
            DataType::Float64 => Values::Float64(array.as_primitive::<Float64Type>().values()),
            DataType::Decimal128(_, scale) => {
                Values::Decimal128(array.as_primitive::<Decimal128Type>().values(), *scale)
            }
            DataType::Decimal256(_, scale) => {
                Values::Decimal256(array.as_primitive::<Decimal256Type>().values(), *scale)
            }
            DataType::Utf8View => Values::String(array.as_string_view()),
            DataType::BinaryView => Values::Bytes(array.as_binary_view()),
            DataType::Timestamp(unit, _) => match unit {
                ArrowUnit::Second => {
                    Values::Time(array.as_primitive::<TimestampSecondType>().values(), TimeUnit::Second)
                }
                ArrowUnit::Millisecond => {
                    Values::Time(array.as_primitive::<TimestampMillisecondType>().values(), TimeUnit::Milli)
                }
                ArrowUnit::Microsecond => {
                    Values::Time(array.as_primitive::<TimestampMicrosecondType>().values(), TimeUnit::Micro)
                }
                ArrowUnit::Nanosecond => {
                    Values::Time(array.as_primitive::<TimestampNanosecondType>().values(), TimeUnit::Nano)
                }
            },
            DataType::FixedSizeBinary(16) => Values::Ip(array.as_fixed_size_binary()),
            _ => Values::Nested,
        };
        Self { array, nulls: array.nulls().filter(|nulls| nulls.null_count() > 0), values }
    }

    #[inline]
    pub(super) fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }
}
