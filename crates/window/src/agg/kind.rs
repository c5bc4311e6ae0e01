//! How values of each field type are read from a column, kept, compared and written.
//!
//! For aggregates that keep single values (`min`, `first`, `count(distinct)`, …). Numbers that are summed don't
//! come here.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, BooleanBuilder, FixedSizeBinaryBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array, FixedSizeBinaryArray,
    Float64Array, Int64Array, PrimitiveArray, StringViewArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, NullBufferBuilder, i256};
use arrow_schema as arrow;
use thalweg_types::{DataType, TimeUnit};

use super::Stream;

/// A value that is kept; the default one owns nothing.
pub(super) trait Item: Clone + Default + Send + 'static {
    /// Heap bytes that it owns.
    #[inline(always)]
    fn heap(&self) -> usize {
        0
    }
}

impl Item for i64 {}
impl Item for u64 {}
impl Item for f64 {}
impl Item for i128 {}
impl Item for i256 {}
impl Item for bool {}
impl Item for [u8; 16] {}

/// A field type, or several that are kept alike.
pub(super) trait Kind: Send + 'static {
    /// A value that is kept.
    type Item: Item;
    /// A value that is looked at.
    type Ref<'a>: Copy;
    type Reader<'a>: Copy;
    type Builder;

    fn reader(values: &ArrayRef) -> Self::Reader<'_>;
    fn get<'a>(reader: Self::Reader<'a>, row: usize) -> Self::Ref<'a>;
    /// One of all values that are equal (−0 is 0, one NaN).
    fn canonical(value: Self::Ref<'_>) -> Self::Ref<'_> {
        value
    }
    /// Order of canonical values.
    fn compare(a: Self::Ref<'_>, b: Self::Ref<'_>) -> Ordering;
    fn hash(state: &impl BuildHasher, group: u32, value: Self::Ref<'_>) -> u64;
    fn own(value: Self::Ref<'_>) -> Self::Item;
    fn view(item: &Self::Item) -> Self::Ref<'_>;
    fn builder(rows: usize) -> Self::Builder;
    fn push(builder: &mut Self::Builder, value: Option<Self::Ref<'_>>);
    fn finish(builder: Self::Builder, data_type: &DataType) -> ArrayRef;
}

/// Calls `$body` with `$kind` being the [`Kind`] of a type.
macro_rules! with_kind {
    ($data_type:expr, $kind:ident => $body:expr) => {{
        use thalweg_types::DataType as Type;
        use $crate::agg::kind as kinds;
        match $data_type {
            Type::Bool => {
                type $kind = kinds::Bool;
                $body
            }
            Type::Int64 | Type::Timestamp(_) => {
                type $kind = kinds::Int;
                $body
            }
            Type::UInt64 => {
                type $kind = kinds::UInt;
                $body
            }
            Type::Float64 => {
                type $kind = kinds::Float;
                $body
            }
            Type::Decimal { precision: ..=38, .. } => {
                type $kind = kinds::Narrow;
                $body
            }
            Type::Decimal { .. } => {
                type $kind = kinds::Wide;
                $body
            }
            Type::String => {
                type $kind = kinds::Text;
                $body
            }
            Type::Bytes => {
                type $kind = kinds::Binary;
                $body
            }
            Type::Ip => {
                type $kind = kinds::Ip;
                $body
            }
            Type::List(_) | Type::Struct(_) => {
                unreachable!("lists and structs are refused by output_type")
            }
        }
    }};
}
pub(super) use with_kind;

/// Numbers of fixed width.
macro_rules! plain {
    ($name:ident, $native:ty, $slice:expr, $canonical:expr, $compare:expr, $bits:expr, $array:expr) => {
        pub(super) struct $name;

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

plain!(Int, i64, int_slice, same, i64::cmp, same, int_array);
plain!(
    UInt,
    u64,
    |values| AsArray::as_primitive::<UInt64Type>(values).values(),
    same,
    u64::cmp,
    same,
    |values: Vec<u64>, nulls, _: &DataType| Arc::new(UInt64Array::new(values.into(), nulls)) as ArrayRef
);
plain!(
    Float,
    f64,
    |values| AsArray::as_primitive::<Float64Type>(values).values(),
    canonical_float,
    // NaN is above everything: the one canonical NaN has its sign bit clear.
    f64::total_cmp,
    f64::to_bits,
    |values: Vec<f64>, nulls, _: &DataType| Arc::new(Float64Array::new(values.into(), nulls)) as ArrayRef
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
    }
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
    }
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
        DataType::Timestamp(TimeUnit::Second) => {
            Arc::new(PrimitiveArray::<TimestampSecondType>::new(values, nulls))
        }
        DataType::Timestamp(TimeUnit::Milli) => {
            Arc::new(PrimitiveArray::<TimestampMillisecondType>::new(values, nulls))
        }
        DataType::Timestamp(TimeUnit::Micro) => {
            Arc::new(PrimitiveArray::<TimestampMicrosecondType>::new(values, nulls))
        }
        DataType::Timestamp(TimeUnit::Nano) => {
            Arc::new(PrimitiveArray::<TimestampNanosecondType>::new(values, nulls))
        }
        other => unreachable!("{other} is no integer"),
    }
}

pub(super) struct Bool;

impl Kind for Bool {
    type Item = bool;
    type Ref<'a> = bool;
    type Reader<'a> = &'a BooleanArray;
    type Builder = BooleanBuilder;

    fn reader(values: &ArrayRef) -> &BooleanArray {
        values.as_boolean()
    }

    fn get<'a>(reader: Self::Reader<'a>, row: usize) -> Self::Ref<'a> {
        reader.value(row)
    }

    fn compare(a: bool, b: bool) -> Ordering {
        a.cmp(&b)
    }

    fn hash(state: &impl BuildHasher, group: u32, value: bool) -> u64 {
        state.hash_one((group, value))
    }

    fn own(value: bool) -> bool {
        value
    }

    fn view(item: &bool) -> bool {
        *item
    }

    fn builder(rows: usize) -> BooleanBuilder {
        BooleanBuilder::with_capacity(rows)
    }

    fn push(builder: &mut BooleanBuilder, value: Option<bool>) {
        builder.append_option(value);
    }

    fn finish(mut builder: BooleanBuilder, _: &DataType) -> ArrayRef {
        Arc::new(builder.finish())
    }
}

pub(super) struct Ip;

impl Kind for Ip {
    type Item = [u8; 16];
    type Ref<'a> = [u8; 16];
    type Reader<'a> = &'a FixedSizeBinaryArray;
    type Builder = FixedSizeBinaryBuilder;

    fn reader(values: &ArrayRef) -> &FixedSizeBinaryArray {
        values.as_fixed_size_binary()
    }

    fn get<'a>(reader: Self::Reader<'a>, row: usize) -> Self::Ref<'a> {
        reader.value(row).try_into().expect("an address has 16 bytes")
    }

    fn compare(a: [u8; 16], b: [u8; 16]) -> Ordering {
        a.cmp(&b)
    }

    fn hash(state: &impl BuildHasher, group: u32, value: [u8; 16]) -> u64 {
        state.hash_one((group, u128::from_le_bytes(value)))
    }

    fn own(value: [u8; 16]) -> [u8; 16] {
        value
    }

    fn view(item: &[u8; 16]) -> [u8; 16] {
        *item
    }

    fn builder(rows: usize) -> FixedSizeBinaryBuilder {
        FixedSizeBinaryBuilder::with_capacity(rows, 16)
    }

    fn push(builder: &mut FixedSizeBinaryBuilder, value: Option<[u8; 16]>) {
        match value {
            Some(value) => builder.append_value(value).expect("an address has 16 bytes"),
            None => builder.append_null(),
        }
    }

    fn finish(mut builder: FixedSizeBinaryBuilder, _: &DataType) -> ArrayRef {
        Arc::new(builder.finish())
    }
}

/// Values of any length.
macro_rules! long {
    ($name:ident, $unsized:ty, $array:ty, $cast:ident, $builder:ty) => {
        pub(super) struct $name;

        impl Item for Box<$unsized> {
            fn heap(&self) -> usize {
                self.len()
            }
        }

        impl Kind for $name {
            type Item = Box<$unsized>;
            type Ref<'a> = &'a $unsized;
            type Reader<'a> = &'a $array;
            type Builder = $builder;

            fn reader(values: &ArrayRef) -> &$array {
                values.$cast()
            }

            fn get<'a>(reader: Self::Reader<'a>, row: usize) -> Self::Ref<'a> {
                reader.value(row)
            }

            fn compare(a: &$unsized, b: &$unsized) -> Ordering {
                a.cmp(b)
            }

            fn hash(state: &impl BuildHasher, group: u32, value: &$unsized) -> u64 {
                let mut hasher = state.build_hasher();
                group.hash(&mut hasher);
                value.hash(&mut hasher);
                std::hash::Hasher::finish(&hasher)
            }

            fn own(value: &$unsized) -> Box<$unsized> {
                value.into()
            }

            fn view(item: &Box<$unsized>) -> &$unsized {
                item
            }

            fn builder(rows: usize) -> $builder {
                <$builder>::with_capacity(rows)
            }

            fn push(builder: &mut $builder, value: Option<&$unsized>) {
                builder.append_option(value);
            }

            fn finish(mut builder: $builder, _: &DataType) -> ArrayRef {
                Arc::new(builder.finish())
            }
        }
    };
}

long!(Text, str, StringViewArray, as_string_view, StringViewBuilder);
long!(Binary, [u8], BinaryViewArray, as_binary_view, BinaryViewBuilder);

/// One column's values of a stream, nulls apart.
pub(super) struct Values<'a, K: Kind> {
    /// `None` for a stream without elements.
    reader: Option<K::Reader<'a>>,
    nulls: Option<&'a NullBuffer>,
}

impl<'a, K: Kind> Values<'a, K> {
    pub(super) fn of(stream: &Stream<'a>) -> Self {
        let values = stream.argument();
        Self { reader: values.map(K::reader), nulls: stream.argument_nulls() }
    }

    #[inline(always)]
    pub(super) fn is_null(&self, element: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(element))
    }

    /// The element's value; `None` where it is null.
    #[inline(always)]
    pub(super) fn get(&self, element: usize) -> Option<K::Ref<'a>> {
        if self.is_null(element) {
            return None;
        }
        let reader = self.reader.expect("a stream with elements carries its argument");
        Some(K::get(reader, element))
    }
}
