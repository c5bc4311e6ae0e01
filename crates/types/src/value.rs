//! One value, for places where columns would be too much: tests, keys of a request, literals.

use std::cmp::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::i256;
use arrow_schema::{DataType, TimeUnit as ArrowUnit};

use crate::TimeUnit;

/// One value of any field type. Ordered as SQL sorts here: null first, NaN above every number, −0 equal to 0.
#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int64(i64),
    UInt64(u64),
    Float64(f64),
    /// Unscaled digits and the scale.
    Decimal(i256, i8),
    String(String),
    Bytes(Vec<u8>),
    Timestamp(i64, TimeUnit),
    Ip([u8; 16]),
    List(Vec<Value>),
    Struct(Vec<(String, Value)>),
}

impl Value {
    /// The element of a column at `row`.
    ///
    /// # Panics
    /// If `row` is past the column's end, or on an Arrow type that no field type maps to.
    pub fn at(column: &ArrayRef, row: usize) -> Value {
        if column.is_null(row) {
            return Value::Null;
        }
        match column.data_type() {
            DataType::Null => Value::Null,
            DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
            DataType::Int64 => Value::Int64(column.as_primitive::<Int64Type>().value(row)),
            DataType::UInt64 => Value::UInt64(column.as_primitive::<UInt64Type>().value(row)),
            DataType::Float64 => Value::Float64(column.as_primitive::<Float64Type>().value(row)),
            DataType::Decimal128(_, scale) => {
                Value::Decimal(i256::from_i128(column.as_primitive::<Decimal128Type>().value(row)), *scale)
            }
            DataType::Decimal256(_, scale) => {
                Value::Decimal(column.as_primitive::<Decimal256Type>().value(row), *scale)
            }
            DataType::Utf8View => Value::String(column.as_string_view().value(row).to_owned()),
            DataType::BinaryView => Value::Bytes(column.as_binary_view().value(row).to_owned()),
            DataType::Timestamp(unit, _) => match unit {
                ArrowUnit::Second => Value::Timestamp(
                    column.as_primitive::<TimestampSecondType>().value(row),
                    TimeUnit::Second,
                ),
                ArrowUnit::Millisecond => Value::Timestamp(
                    column.as_primitive::<TimestampMillisecondType>().value(row),
                    TimeUnit::Milli,
                ),
                ArrowUnit::Microsecond => Value::Timestamp(
                    column.as_primitive::<TimestampMicrosecondType>().value(row),
                    TimeUnit::Micro,
                ),
                ArrowUnit::Nanosecond => Value::Timestamp(
                    column.as_primitive::<TimestampNanosecondType>().value(row),
                    TimeUnit::Nano,
                ),
            },
            DataType::FixedSizeBinary(16) => {
                let mut ip = [0; 16];
                ip.copy_from_slice(column.as_fixed_size_binary().value(row));
                Value::Ip(ip)
            }
            DataType::List(_) => {
                let items = column.as_list::<i32>().value(row);
                Value::List((0..items.len()).map(|index| Value::at(&items, index)).collect())
            }
            DataType::Struct(fields) => {
                let columns = column.as_struct();
                Value::Struct(
                    fields
                        .iter()
                        .zip(columns.columns())
                        .map(|(field, column)| (field.name().clone(), Value::at(column, row)))
                        .collect(),
                )
            }
            other => panic!("no value of Arrow type {other}"),
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    fn rank(&self) -> u8 {
        match self {
            Value::Null => 0,
            Value::Bool(_) => 1,
            Value::Int64(_) => 2,
            Value::UInt64(_) => 3,
            Value::Float64(_) => 4,
            Value::Decimal(..) => 5,
            Value::String(_) => 6,
            Value::Bytes(_) => 7,
            Value::Timestamp(..) => 8,
            Value::Ip(_) => 9,
            Value::List(_) => 10,
            Value::Struct(_) => 11,
        }
    }
}

/// NaN above everything, −0 equal to 0.
fn compare_floats(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => (a + 0.0).total_cmp(&(b + 0.0)),
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int64(a), Value::Int64(b)) => a.cmp(b),
            (Value::UInt64(a), Value::UInt64(b)) => a.cmp(b),
            (Value::Float64(a), Value::Float64(b)) => compare_floats(*a, *b),
            (Value::Decimal(a, scale_a), Value::Decimal(b, scale_b)) => scale_a.cmp(scale_b).then(a.cmp(b)),
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            (Value::Timestamp(a, unit_a), Value::Timestamp(b, unit_b)) if unit_a == unit_b => a.cmp(b),
            (Value::Timestamp(a, unit_a), Value::Timestamp(b, unit_b)) => {
                let nanos = |count: i64, unit: &TimeUnit| {
                    i128::from(count)
                        * match unit {
                            TimeUnit::Second => 1_000_000_000,
                            TimeUnit::Milli => 1_000_000,
                            TimeUnit::Micro => 1_000,
                            TimeUnit::Nano => 1,
                        }
                };
                nanos(*a, unit_a).cmp(&nanos(*b, unit_b))
            }
            (Value::Ip(a), Value::Ip(b)) => a.cmp(b),
            (Value::List(a), Value::List(b)) => a.cmp(b),
            (Value::Struct(a), Value::Struct(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_sorts_above_everything_and_zeros_are_equal() {
        assert!(Value::Float64(f64::NAN) > Value::Float64(f64::INFINITY));
        assert_eq!(Value::Float64(-f64::NAN), Value::Float64(f64::NAN));
        assert_eq!(Value::Float64(-0.0), Value::Float64(0.0));
        assert!(Value::Null < Value::Int64(i64::MIN));
    }
}
