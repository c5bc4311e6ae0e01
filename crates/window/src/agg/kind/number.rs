//! Numbers and timestamps: kept as they are in the column.

use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{ArrayRef, Decimal128Array, Decimal256Array, Float64Array, Int64Array, UInt64Array};
use arrow_buffer::{NullBuffer, NullBufferBuilder, i256};
use arrow_schema as arrow;
use thalweg_types::DataType;

use super::{Item, Kind};
use crate::image::{Malformed, Reader, put, put_signed, put_wide};

/// Numbers of fixed width.
macro_rules! plain {
    ($name:ident, $native:ty, $slice:expr, $canonical:expr, $compare:expr, $bits:expr, $array:expr,
        $save:expr, $load:expr) => {
        pub(in crate::agg) struct $name;

        impl Item for $native {}

        impl Kind for $name {
            type Item = $native;
            type Ref<'a> = $native;
            type Reader<'a> = &'a [$native];
            type Builder = (Vec<$native>, NullBufferBuilder);

            fn reader(values: &ArrayRef) -> &[$native] {
                $slice(values)
            }

            #[inline(always)]
            fn get<'a>(reader: Self::Reader<'a>, row: usize) -> Self::Ref<'a> {
                reader[row]
            }

            #[inline(always)]
            fn canonical(value: Self::Ref<'_>) -> Self::Ref<'_> {
                $canonical(value)
            }

            #[inline(always)]
            fn compare(a: $native, b: $native) -> Ordering {
                $compare(&a, &b)
            }

            #[inline(always)]
            fn hash(state: &impl BuildHasher, group: u32, value: $native) -> u64 {
                state.hash_one((group, $bits(value)))
            }

            #[inline(always)]
            fn own(value: $native) -> $native {
                value
            }

            #[inline(always)]
            fn view(item: &$native) -> $native {
                *item
            }

            fn save(item: &$native, out: &mut Vec<u8>) {
                $save(out, *item);
            }

            fn load(image: &mut Reader<'_>) -> Result<$native, Malformed> {
                $load(image)
            }

            fn builder(rows: usize) -> Self::Builder {
                (Vec::with_capacity(rows), NullBufferBuilder::new(rows))
            }

            #[inline(always)]
            fn push((values, nulls): &mut Self::Builder, value: Option<$native>) {
                values.push(value.unwrap_or_default());
                nulls.append(value.is_some());
            }

            fn finish((values, mut nulls): Self::Builder, data_type: &DataType) -> ArrayRef {
                $array(values, nulls.finish(), data_type)
            }
        }
    };
}

fn same<T>(value: T) -> T {
    value
}

fn canonical_float(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

plain!(Int, i64, int_slice, same, i64::cmp, same, int_array, put_signed, |image: &mut Reader<'_>| image
    .signed("value"));
plain!(
    UInt,
    u64,
    |values| AsArray::as_primitive::<UInt64Type>(values).values(),
    same,
    u64::cmp,
    same,
    |values: Vec<u64>, nulls, _: &DataType| Arc::new(UInt64Array::new(values.into(), nulls)) as ArrayRef,
    put,
    |image: &mut Reader<'_>| image.number("value")
);
plain!(
    Float,
    f64,
    |values| AsArray::as_primitive::<Float64Type>(values).values(),
    canonical_float,
    // NaN is above everything: the one canonical NaN has its sign bit clear.
    f64::total_cmp,
    f64::to_bits,
    |values: Vec<f64>, nulls, _: &DataType| Arc::new(Float64Array::new(values.into(), nulls)) as ArrayRef,
    |out: &mut Vec<u8>, value: f64| out.extend_from_slice(&value.to_bits().to_le_bytes()),
    |image: &mut Reader<'_>| image.array("value").map(|bytes| f64::from_bits(u64::from_le_bytes(bytes)))
);
plain!(
    Narrow,
    i128,
    |values| AsArray::as_primitive::<Decimal128Type>(values).values(),
    same,
    i128::cmp,
    same,
    |values: Vec<i128>, nulls, data_type: &DataType| {
        let DataType::Decimal { precision, scale } = data_type else { unreachable!("this kind is decimal") };
        let array = Decimal128Array::new(values.into(), nulls);
        Arc::new(array.with_precision_and_scale(*precision, *scale).expect("the type is in range"))
            as ArrayRef
    },
    |out: &mut Vec<u8>, value: i128| put_wide(out, &value.to_le_bytes()),
    |image: &mut Reader<'_>| image.wide("value").map(i128::from_le_bytes)
);
plain!(
    Wide,
    i256,
    |values| AsArray::as_primitive::<Decimal256Type>(values).values(),
    same,
    i256::cmp,
    i256::to_parts,
    |values: Vec<i256>, nulls, data_type: &DataType| {
        let DataType::Decimal { precision, scale } = data_type else { unreachable!("this kind is decimal") };
        let array = Decimal256Array::new(values.into(), nulls);
        Arc::new(array.with_precision_and_scale(*precision, *scale).expect("the type is in range"))
            as ArrayRef
    },
    |out: &mut Vec<u8>, value: i256| put_wide(out, &value.to_le_bytes()),
    |image: &mut Reader<'_>| image.wide("value").map(i256::from_le_bytes)
);

/// Integers and counts of any unit of time.
fn int_slice(values: &ArrayRef) -> &[i64] {
    match values.data_type() {
        arrow::DataType::Int64 => values.as_primitive::<Int64Type>().values(),
        arrow::DataType::Timestamp(arrow::TimeUnit::Second, _) => {
            values.as_primitive::<TimestampSecondType>().values()
        }
        arrow::DataType::Timestamp(arrow::TimeUnit::Millisecond, _) => {
            values.as_primitive::<TimestampMillisecondType>().values()
        }
        arrow::DataType::Timestamp(arrow::TimeUnit::Microsecond, _) => {
            values.as_primitive::<TimestampMicrosecondType>().values()
        }
        arrow::DataType::Timestamp(arrow::TimeUnit::Nanosecond, _) => {
            values.as_primitive::<TimestampNanosecondType>().values()
        }
        other => panic!("expected a column of int64 or timestamp, got {other}"),
    }
}

fn int_array(values: Vec<i64>, nulls: Option<NullBuffer>, data_type: &DataType) -> ArrayRef {
    let values = values.into();
    match data_type {
        DataType::Int64 => Arc::new(Int64Array::new(values, nulls)),
        DataType::Timestamp(unit) => unit.column(values, nulls),
        other => unreachable!("{other} is no integer"),
    }
}
