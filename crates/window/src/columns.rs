//! Growable typed columns that take rows anywhere: what open chunks and row rings are made of.
//!
//! Arrow builders only append; an open chunk takes late records in the middle. A column is a plain `Vec` of
//! native values and an optional validity vector, and becomes an Arrow array by moving the `Vec`s.
//!
//! Strings and bytes are Arrow views: up to 12 bytes inline, longer ones in a heap of the column's own, so that a
//! column never keeps the buffers of the batches it was filled from alive.

mod image;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryViewType, ByteViewType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, StringViewType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeBinaryArray, GenericByteViewArray,
    PrimitiveArray,
};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, TimeUnit};

const INLINE: usize = 12;

#[derive(Clone, Debug)]
enum Values {
    I64(Vec<i64>),
    U64(Vec<u64>),
    U32(Vec<u32>),
    F64(Vec<f64>),
    I128(Vec<i128>),
    I256(Vec<i256>),
    Bool(Vec<bool>),
    Views { views: Vec<u128>, heap: Vec<u8> },
    Fixed16(Vec<[u8; 16]>),
}

/// A growable column of one Arrow type.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    data_type: DataType,
    values: Values,
    /// Absent while every value is valid.
    valid: Option<Vec<bool>>,
}

/// Runs `$body` with `$vec` bound to the vector of native values, whatever its type.
macro_rules! each {
    ($values:expr, $vec:ident => $body:expr) => {
        match $values {
            Values::I64($vec) => $body,
            Values::U64($vec) => $body,
            Values::U32($vec) => $body,
            Values::F64($vec) => $body,
            Values::I128($vec) => $body,
            Values::I256($vec) => $body,
            Values::Bool($vec) => $body,
            Values::Views { views: $vec, .. } => $body,
            Values::Fixed16($vec) => $body,
        }
    };
}

fn i64_values(array: &dyn Array) -> &[i64] {
    match array.data_type() {
        DataType::Int64 => array.as_primitive::<Int64Type>().values(),
        DataType::Timestamp(TimeUnit::Second, _) => array.as_primitive::<TimestampSecondType>().values(),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            array.as_primitive::<TimestampMillisecondType>().values()
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            array.as_primitive::<TimestampMicrosecondType>().values()
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            array.as_primitive::<TimestampNanosecondType>().values()
        }
        other => panic!("no 64-bit integers in {other}"),
    }
}

/// The native i64 values of a time column.
pub(crate) fn times_of(array: &ArrayRef) -> &ScalarBuffer<i64> {
    array.as_primitive::<Int64Type>().values()
}

fn fixed16(bytes: &[u8]) -> [u8; 16] {
    bytes.try_into().expect("an ip column holds 16 bytes a value")
}

fn view_bytes<T: ByteViewType>(array: &GenericByteViewArray<T>, row: usize) -> &[u8] {
    AsRef::<[u8]>::as_ref(array.value(row))
}

/// The view of `bytes`, which go to `heap` where they are too long to be inline.
fn make_view(bytes: &[u8], heap: &mut Vec<u8>) -> u128 {
    let length = u32::try_from(bytes.len()).expect("a value is shorter than 4 GiB");
    let mut view = [0_u8; 16];
    view[..4].copy_from_slice(&length.to_le_bytes());
    if bytes.len() <= INLINE {
        view[4..4 + bytes.len()].copy_from_slice(bytes);
    } else {
        let offset = u32::try_from(heap.len()).expect("a chunk holds less than 4 GiB of text");
        view[4..8].copy_from_slice(&bytes[..4]);
        view[12..].copy_from_slice(&offset.to_le_bytes());
        heap.extend_from_slice(bytes);
    }
    u128::from_le_bytes(view)
}

fn push_views<T: ByteViewType>(
    array: &GenericByteViewArray<T>,
    rows: std::ops::Range<usize>,
    views: &mut Vec<u128>,
    heap: &mut Vec<u8>,
) {
    let source = array.views();
    views.reserve(rows.len());
    for row in rows {
        let view = source[row];
        let inline = (view as u32) as usize <= INLINE;
        views.push(if inline { view } else { make_view(view_bytes(array, row), heap) });
    }
}

fn capacity_bytes<T>(vec: &Vec<T>) -> usize {
    vec.capacity() * size_of::<T>()
}

/// The bytes of a view of this column.
fn heap_bytes(view: u128, heap: &[u8]) -> &[u8] {
    let length = (view as u32) as usize;
    let offset = (view >> 96) as usize;
    &heap[offset..offset + length]
}

fn copy_views(source: &[u128], heap: &[u8]) -> (Vec<u128>, Vec<u8>) {
    let mut copied = Vec::new();
    let views = source
        .iter()
        .map(|view| {
            if (*view as u32) as usize <= INLINE {
                *view
            } else {
                make_view(heap_bytes(*view, heap), &mut copied)
            }
        })
        .collect();
    (views, copied)
}

impl Column {
    /// An empty column.
    ///
    /// # Panics
    /// On an Arrow type that no field type maps to: plans are checked before they get here.
    pub(crate) fn new(data_type: &DataType) -> Self {
        let values = match data_type {
            DataType::Int64 | DataType::Timestamp(..) => Values::I64(Vec::new()),
            DataType::UInt64 => Values::U64(Vec::new()),
            DataType::UInt32 => Values::U32(Vec::new()),
            DataType::Float64 => Values::F64(Vec::new()),
            DataType::Decimal128(..) => Values::I128(Vec::new()),
            DataType::Decimal256(..) => Values::I256(Vec::new()),
            DataType::Boolean => Values::Bool(Vec::new()),
            DataType::Utf8View | DataType::BinaryView => {
                Values::Views { views: Vec::new(), heap: Vec::new() }
            }
            DataType::FixedSizeBinary(16) => Values::Fixed16(Vec::new()),
            other => panic!("no window column of Arrow type {other}"),
        };
        Self { data_type: data_type.clone(), values, valid: None }
    }

    /// An empty column of the same type.
    pub(crate) fn alike(&self) -> Self {
        Self::new(&self.data_type)
    }

    pub(crate) fn len(&self) -> usize {
        each!(&self.values, vec => vec.len())
    }

    /// The values of an Int64 or timestamp column.
    pub(crate) fn i64s(&self) -> &[i64] {
        match &self.values {
            Values::I64(values) => values,
            _ => panic!("column of {} is no time column", self.data_type),
        }
    }

    /// Heap bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let heap = if let Values::Views { heap, .. } = &self.values { heap.capacity() } else { 0 };
        let values = each!(&self.values, vec => capacity_bytes(vec));
        values + heap + self.valid.as_ref().map_or(0, Vec::capacity)
    }

    fn note_validity(&mut self, array: &dyn Array, rows: std::ops::Range<usize>, at: usize) {
        let added = rows.len();
        let has_nulls = array.nulls().is_some_and(|nulls| nulls.null_count() > 0);
        if self.valid.is_none() && has_nulls {
            self.valid = Some(vec![true; self.len() - added]);
        }
        if let Some(valid) = &mut self.valid {
            let from = rows.map(|row| array.is_valid(row));
            if at == valid.len() {
                valid.extend(from);
            } else {
                valid.splice(at..at, from);
            }
        }
    }

    /// Appends rows of an array of the column's type.
    pub(crate) fn extend(&mut self, array: &ArrayRef, rows: std::ops::Range<usize>) {
        let at = self.len();
        match &mut self.values {
            Values::I64(vec) => vec.extend_from_slice(&i64_values(array)[rows.clone()]),
            Values::U64(vec) => {
                vec.extend_from_slice(&array.as_primitive::<UInt64Type>().values()[rows.clone()])
            }
            Values::U32(vec) => {
                vec.extend_from_slice(&array.as_primitive::<UInt32Type>().values()[rows.clone()])
            }
            Values::F64(vec) => {
                vec.extend_from_slice(&array.as_primitive::<Float64Type>().values()[rows.clone()])
            }
            Values::I128(vec) => {
                vec.extend_from_slice(&array.as_primitive::<Decimal128Type>().values()[rows.clone()]);
            }
            Values::I256(vec) => {
                vec.extend_from_slice(&array.as_primitive::<Decimal256Type>().values()[rows.clone()]);
            }
            Values::Bool(vec) => {
                let bits = array.as_boolean();
                vec.extend(rows.clone().map(|row| bits.value(row)));
            }
            Values::Views { views, heap } => match array.data_type() {
                DataType::Utf8View => push_views(array.as_string_view(), rows.clone(), views, heap),
                _ => push_views(array.as_binary_view(), rows.clone(), views, heap),
            },
            Values::Fixed16(vec) => {
                let source = array.as_fixed_size_binary();
                vec.extend(rows.clone().map(|row| fixed16(source.value(row))));
            }
        }
        self.note_validity(array, rows, at);
    }

    /// Puts one row of an array before position `at`.
    pub(crate) fn insert(&mut self, at: usize, array: &ArrayRef, row: usize) {
        let mut one = Column::new(&self.data_type);
        one.extend(array, row..row + 1);
        match (&mut self.values, one.values) {
            (Values::I64(vec), Values::I64(new)) => vec.insert(at, new[0]),
            (Values::U64(vec), Values::U64(new)) => vec.insert(at, new[0]),
            (Values::U32(vec), Values::U32(new)) => vec.insert(at, new[0]),
            (Values::F64(vec), Values::F64(new)) => vec.insert(at, new[0]),
            (Values::I128(vec), Values::I128(new)) => vec.insert(at, new[0]),
            (Values::I256(vec), Values::I256(new)) => vec.insert(at, new[0]),
            (Values::Bool(vec), Values::Bool(new)) => vec.insert(at, new[0]),
            (Values::Fixed16(vec), Values::Fixed16(new)) => vec.insert(at, new[0]),
            (Values::Views { views, heap }, Values::Views { views: new, heap: new_heap }) => {
                let inline = (new[0] as u32) as usize <= INLINE;
                let view = if inline { new[0] } else { make_view(heap_bytes(new[0], &new_heap), heap) };
                views.insert(at, view);
            }
            _ => unreachable!("both columns are of one type"),
        }
        self.note_validity(array, row..row + 1, at);
    }

    /// Appends nulls.
    pub(crate) fn extend_nulls(&mut self, count: usize) {
        let before = self.len();
        match &mut self.values {
            Values::I64(vec) => vec.resize(before + count, 0),
            Values::U64(vec) => vec.resize(before + count, 0),
            Values::U32(vec) => vec.resize(before + count, 0),
            Values::F64(vec) => vec.resize(before + count, 0.0),
            Values::I128(vec) => vec.resize(before + count, 0),
            Values::I256(vec) => vec.resize(before + count, i256::ZERO),
            Values::Bool(vec) => vec.resize(before + count, false),
            Values::Views { views, .. } => views.resize(before + count, 0),
            Values::Fixed16(vec) => vec.resize(before + count, [0; 16]),
        }
        self.valid.get_or_insert_with(|| vec![true; before]).resize(before + count, false);
    }

    /// Overwrites the value at `at` by one row of an array; `at` may be the length, which appends.
    pub(crate) fn set(&mut self, at: usize, array: &ArrayRef, row: usize) {
        if at == self.len() {
            return self.extend(array, row..row + 1);
        }
        match &mut self.values {
            Values::I64(vec) => vec[at] = i64_values(array)[row],
            Values::U64(vec) => vec[at] = array.as_primitive::<UInt64Type>().value(row),
            Values::U32(vec) => vec[at] = array.as_primitive::<UInt32Type>().value(row),
            Values::F64(vec) => vec[at] = array.as_primitive::<Float64Type>().value(row),
            Values::I128(vec) => vec[at] = array.as_primitive::<Decimal128Type>().value(row),
            Values::I256(vec) => vec[at] = array.as_primitive::<Decimal256Type>().value(row),
            Values::Bool(vec) => vec[at] = array.as_boolean().value(row),
            Values::Fixed16(vec) => vec[at] = fixed16(array.as_fixed_size_binary().value(row)),
            Values::Views { views, heap } => {
                let mut one = Vec::with_capacity(1);
                match array.data_type() {
                    DataType::Utf8View => push_views(array.as_string_view(), row..row + 1, &mut one, heap),
                    _ => push_views(array.as_binary_view(), row..row + 1, &mut one, heap),
                }
                views[at] = one[0];
                // What was overwritten stays in the heap until that has doubled, so that copying is rare.
                if heap.len() == heap.capacity() {
                    (*views, *heap) = copy_views(views, heap);
                    heap.reserve(heap.len() + (4 << 10));
                }
            }
        }
        let is_valid = array.is_valid(row);
        match &mut self.valid {
            Some(valid) => valid[at] = is_valid,
            None if !is_valid => {
                let mut valid = vec![true; self.len()];
                valid[at] = false;
                self.valid = Some(valid);
            }
            None => {}
        }
    }

    /// Splits off everything from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Column {
        let values = match &mut self.values {
            Values::I64(vec) => Values::I64(vec.split_off(at)),
            Values::U64(vec) => Values::U64(vec.split_off(at)),
            Values::U32(vec) => Values::U32(vec.split_off(at)),
            Values::F64(vec) => Values::F64(vec.split_off(at)),
            Values::I128(vec) => Values::I128(vec.split_off(at)),
            Values::I256(vec) => Values::I256(vec.split_off(at)),
            Values::Bool(vec) => Values::Bool(vec.split_off(at)),
            Values::Views { views, heap } => {
                let (views, heap) = copy_views(&views.split_off(at), heap);
                Values::Views { views, heap }
            }
            Values::Fixed16(vec) => Values::Fixed16(vec.split_off(at)),
        };
        let valid = self.valid.as_mut().map(|valid| valid.split_off(at));
        Column { data_type: self.data_type.clone(), values, valid }
    }

    /// A copy of some rows as an array.
    pub(crate) fn slice(&self, rows: std::ops::Range<usize>) -> ArrayRef {
        let values = match &self.values {
            Values::I64(vec) => Values::I64(vec[rows.clone()].to_vec()),
            Values::U64(vec) => Values::U64(vec[rows.clone()].to_vec()),
            Values::U32(vec) => Values::U32(vec[rows.clone()].to_vec()),
            Values::F64(vec) => Values::F64(vec[rows.clone()].to_vec()),
            Values::I128(vec) => Values::I128(vec[rows.clone()].to_vec()),
            Values::I256(vec) => Values::I256(vec[rows.clone()].to_vec()),
            Values::Bool(vec) => Values::Bool(vec[rows.clone()].to_vec()),
            Values::Views { views, heap } => {
                let (views, heap) = copy_views(&views[rows.clone()], heap);
                Values::Views { views, heap }
            }
            Values::Fixed16(vec) => Values::Fixed16(vec[rows.clone()].to_vec()),
        };
        let valid = self.valid.as_ref().map(|valid| valid[rows].to_vec());
        Column { data_type: self.data_type.clone(), values, valid }.finish()
    }

    /// A copy of the rows named by `slots`, in that order.
    pub(crate) fn pick(&self, slots: &[u32]) -> ArrayRef {
        let values = match &self.values {
            Values::I64(vec) => Values::I64(slots.iter().map(|slot| vec[*slot as usize]).collect()),
            Values::U64(vec) => Values::U64(slots.iter().map(|slot| vec[*slot as usize]).collect()),
            Values::U32(vec) => Values::U32(slots.iter().map(|slot| vec[*slot as usize]).collect()),
            Values::F64(vec) => Values::F64(slots.iter().map(|slot| vec[*slot as usize]).collect()),
            Values::I128(vec) => Values::I128(slots.iter().map(|slot| vec[*slot as usize]).collect()),
            Values::I256(vec) => Values::I256(slots.iter().map(|slot| vec[*slot as usize]).collect()),
            Values::Bool(vec) => Values::Bool(slots.iter().map(|slot| vec[*slot as usize]).collect()),
            Values::Views { views, heap } => {
                let picked: Vec<u128> = slots.iter().map(|slot| views[*slot as usize]).collect();
                let (views, heap) = copy_views(&picked, heap);
                Values::Views { views, heap }
            }
            Values::Fixed16(vec) => Values::Fixed16(slots.iter().map(|slot| vec[*slot as usize]).collect()),
        };
        let valid = self.valid.as_ref().map(|valid| slots.iter().map(|slot| valid[*slot as usize]).collect());
        Column { data_type: self.data_type.clone(), values, valid }.finish()
    }

    /// The column as an Arrow array, without copying values.
    pub(crate) fn finish(self) -> ArrayRef {
        let nulls = self.valid.filter(|valid| valid.contains(&false)).map(NullBuffer::from);
        fn primitive<T: ArrowPrimitiveType>(
            values: Vec<T::Native>,
            nulls: Option<NullBuffer>,
            data_type: &DataType,
        ) -> ArrayRef {
            let array = PrimitiveArray::<T>::new(values.into(), nulls);
            Arc::new(array.with_data_type(data_type.clone()))
        }
        let data_type = &self.data_type;
        match self.values {
            Values::I64(vec) => match data_type {
                DataType::Timestamp(TimeUnit::Second, _) => {
                    primitive::<TimestampSecondType>(vec, nulls, data_type)
                }
                DataType::Timestamp(TimeUnit::Millisecond, _) => {
                    primitive::<TimestampMillisecondType>(vec, nulls, data_type)
                }
                DataType::Timestamp(TimeUnit::Microsecond, _) => {
                    primitive::<TimestampMicrosecondType>(vec, nulls, data_type)
                }
                DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                    primitive::<TimestampNanosecondType>(vec, nulls, data_type)
                }
                _ => primitive::<Int64Type>(vec, nulls, data_type),
            },
            Values::U64(vec) => primitive::<UInt64Type>(vec, nulls, data_type),
            Values::U32(vec) => primitive::<UInt32Type>(vec, nulls, data_type),
            Values::F64(vec) => primitive::<Float64Type>(vec, nulls, data_type),
            Values::I128(vec) => primitive::<Decimal128Type>(vec, nulls, data_type),
            Values::I256(vec) => primitive::<Decimal256Type>(vec, nulls, data_type),
            Values::Bool(vec) => Arc::new(BooleanArray::new(vec.into(), nulls)),
            Values::Views { views, heap } => {
                let buffers = if heap.is_empty() { Vec::new() } else { vec![Buffer::from_vec(heap)] };
                match data_type {
                    DataType::Utf8View => {
                        Arc::new(GenericByteViewArray::<StringViewType>::new(views.into(), buffers, nulls))
                    }
                    _ => Arc::new(GenericByteViewArray::<BinaryViewType>::new(views.into(), buffers, nulls)),
                }
            }
            Values::Fixed16(vec) => {
                Arc::new(FixedSizeBinaryArray::new(16, Buffer::from_vec(vec.into_flattened()), nulls))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::StringViewArray;
    use thalweg_types::Value;

    use super::*;

    fn values(array: &ArrayRef) -> Vec<Value> {
        (0..array.len()).map(|row| Value::at(array, row)).collect()
    }

    #[test]
    fn texts_short_long_and_null_survive_every_operation() {
        let source: ArrayRef = Arc::new(StringViewArray::from(vec![
            Some("a"),
            None,
            Some("longer than twelve bytes"),
            Some("b"),
            Some("another long one, of 33 letters.."),
        ]));
        let mut column = Column::new(&DataType::Utf8View);
        column.extend(&source, 2..4);
        column.extend(&source, 0..2);
        column.insert(1, &source, 4);
        let text = |row: usize| Value::at(&source, row);
        let expected = vec![text(2), text(4), text(3), text(0), text(1)];
        assert_eq!(values(&column.slice(0..5)), expected);
        assert_eq!(values(&column.pick(&[4, 1])), [text(1), text(4)]);
        let mut set = column.clone();
        set.set(0, &source, 1);
        assert_eq!(values(&set.slice(0..2)), [text(1), text(4)]);
        let tail = column.split_off(1);
        assert_eq!(values(&column.finish()), [text(2)]);
        assert_eq!(values(&tail.finish()), expected[1..]);
    }
}
