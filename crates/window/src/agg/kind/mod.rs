//! How values of each field type are read from a column, kept, compared and written.
//!
//! For aggregates that keep single values (`min`, `first`, `count(distinct)`, …). Numbers that are summed don't
//! come here.

mod number;
mod other;

use std::cmp::Ordering;
use std::hash::BuildHasher;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use thalweg_types::DataType;

pub(super) use number::{Float, Int, Narrow, UInt, Wide};
pub(super) use other::{Binary, Bool, Ip, Text};

use super::Stream;
use crate::image::{Malformed, Reader};

/// A value that is kept; the default one owns nothing.
pub(super) trait Item: Clone + Default + Send + 'static {
    /// Heap bytes that it owns.
    #[inline(always)]
    fn heap(&self) -> usize {
        0
    }
}

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
    /// Appends a value to an image.
    fn save(item: &Self::Item, out: &mut Vec<u8>);
    fn load(image: &mut Reader<'_>) -> Result<Self::Item, Malformed>;
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
