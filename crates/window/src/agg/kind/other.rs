//! Booleans, addresses, strings and bytes.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, BooleanBuilder, FixedSizeBinaryBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, StringViewArray};
use compact_str::CompactString;
use thalweg_types::DataType;

use super::{Item, Kind};
use crate::image::{Malformed, Reader, put_bytes};

impl Item for bool {}
impl Item for [u8; 16] {}

/// Up to 24 bytes stand in the item itself.
impl Item for CompactString {
    fn heap(&self) -> usize {
        if self.is_heap_allocated() { self.capacity() } else { 0 }
    }
}

impl Item for Box<[u8]> {
    fn heap(&self) -> usize {
        self.len()
    }
}

pub(in crate::agg) struct Bool;

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

    fn save(item: &bool, out: &mut Vec<u8>) {
        out.push(u8::from(*item));
    }

    fn load(image: &mut Reader<'_>) -> Result<bool, Malformed> {
        image.flag("value")
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

pub(in crate::agg) struct Ip;

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

    fn save(item: &[u8; 16], out: &mut Vec<u8>) {
        out.extend_from_slice(item);
    }

    fn load(image: &mut Reader<'_>) -> Result<[u8; 16], Malformed> {
        image.array("value")
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
    ($name:ident, $unsized:ty, $owned:ty, $array:ty, $cast:ident, $builder:ty, $load:ident) => {
        pub(in crate::agg) struct $name;

        impl Kind for $name {
            type Item = $owned;
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

            fn own(value: &$unsized) -> $owned {
                value.into()
            }

            fn view(item: &$owned) -> &$unsized {
                item
            }

            fn save(item: &$owned, out: &mut Vec<u8>) {
                put_bytes(out, Self::view(item).as_ref());
            }

            fn load(image: &mut Reader<'_>) -> Result<$owned, Malformed> {
                image.$load("value").map(<$owned>::from)
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

long!(Text, str, CompactString, StringViewArray, as_string_view, StringViewBuilder, text);
long!(Binary, [u8], Box<[u8]>, BinaryViewArray, as_binary_view, BinaryViewBuilder, bytes);
