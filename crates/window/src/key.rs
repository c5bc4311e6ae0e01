//! Keys of rows over one or several columns, in one word where they are short.
//!
//! A key of one column that fits 16 bytes (numbers, times, addresses, texts up to 12 bytes) is a `u128` and is compared
//! as one. Longer texts and keys of several columns are bytes. Equal keys are equal as SQL groups them: nulls are one
//! key, every NaN is one key, −0 is 0.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};

use crate::image::{Malformed, Reader, put_bytes, put_wide};

/// One row's key.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Null,
    /// Low half first: a `u128` would be aligned to 16 bytes and make every key as long as 32.
    Short([u64; 2]),
    Long(Box<[u8]>),
}

impl Clone for Key {
    fn clone(&self) -> Self {
        match self {
            Self::Null => Self::Null,
            Self::Short(word) => Self::Short(*word),
            Self::Long(bytes) => Self::Long(bytes.clone()),
        }
    }

    /// Ids of a stream are often of one length: one takes the place of the other.
    fn clone_from(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Long(own), Self::Long(other)) => own.clone_from(other),
            _ => *self = other.clone(),
        }
    }
}

impl Key {
    pub(crate) fn heap_bytes(&self) -> usize {
        if let Key::Long(bytes) = self { bytes.len() } else { 0 }
    }

    /// Appends the key to an image. The tags are persisted: do not renumber.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        match self.as_ref() {
            KeyRef::Null => out.push(0),
            KeyRef::Short(word) => {
                out.push(1);
                put_wide(out, &word.to_le_bytes());
            }
            KeyRef::Long(bytes) => {
                out.push(2);
                put_bytes(out, bytes);
            }
        }
    }

    pub(crate) fn load(image: &mut Reader<'_>) -> Result<Self, Malformed> {
        match image.byte("kind of a key")? {
            0 => Ok(Key::Null),
            1 => Ok(KeyRef::Short(u128::from_le_bytes(image.wide("key")?)).to_key()),
            2 => Ok(Key::Long(image.bytes("key")?.into())),
            other => Err(image.malformed("kind of a key", "0 to 2", other)),
        }
    }
}

const INLINE: usize = 12;

fn canonical(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() }
}

/// Keys that [`for_each_block`] gives at once.
pub(crate) const BLOCK: usize = 64;

/// Calls `visit` with the keys of up to [`BLOCK`] rows at a time, in order, and the number of the first row.
///
/// # Panics
/// On an Arrow type that no field type maps to.
pub(crate) fn for_each_block(columns: &[ArrayRef], rows: usize, mut visit: impl FnMut(usize, &[KeyRef<'_>])) {
    let mut keys = [KeyRef::Null; BLOCK];
    if let [column] = columns
        && is_borrowed(column.data_type())
    {
        for first in (0..rows).step_by(BLOCK) {
            let block = &mut keys[..BLOCK.min(rows - first)];
            borrow(column, first, block);
            visit(first, block);
        }
        return;
    }
    let mut bytes = Vec::new();
    for first in (0..rows).step_by(BLOCK) {
        let count = BLOCK.min(rows - first);
        let mut ends = [0; BLOCK];
        bytes.clear();
        for (end, row) in ends.iter_mut().zip(first..first + count) {
            for column in columns {
                append_part(column, row, &mut bytes);
            }
            *end = bytes.len();
        }
        let mut keys = [KeyRef::Null; BLOCK];
        let mut start = 0;
        for (key, end) in keys.iter_mut().zip(&ends[..count]) {
            *key = KeyRef::Long(&bytes[start..*end]);
            start = *end;
        }
        visit(first, &keys[..count]);
    }
}

/// Calls `visit` with each row's key, in order.
///
/// # Panics
/// As [`for_each_block`].
pub(crate) fn for_each_key(columns: &[ArrayRef], rows: usize, mut visit: impl FnMut(usize, KeyRef<'_>)) {
    for_each_block(columns, rows, |first, keys| {
        for (index, key) in keys.iter().enumerate() {
            visit(first + index, *key);
        }
    });
}

/// A key that borrows from its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRef<'a> {
    Null,
    Short(u128),
    Long(&'a [u8]),
}

impl KeyRef<'_> {
    pub(crate) fn to_key(self) -> Key {
        match self {
            KeyRef::Null => Key::Null,
            KeyRef::Short(word) => Key::Short([word as u64, (word >> 64) as u64]),
            KeyRef::Long(bytes) => Key::Long(bytes.into()),
        }
    }
}

impl Key {
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Key::Null => KeyRef::Null,
            Key::Short([low, high]) => KeyRef::Short(u128::from(*low) | u128::from(*high) << 64),
            Key::Long(bytes) => KeyRef::Long(bytes),
        }
    }

    /// Something at the place where a comparison looks first.
    pub(crate) fn first_word(&self) -> u64 {
        match self {
            Key::Null => 0,
            Key::Short([low, _]) => *low,
            Key::Long(bytes) => bytes.first().map_or(0, |byte| u64::from(*byte)),
        }
    }
}

/// Whether keys of one column of this type need no bytes put together.
fn is_borrowed(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Boolean | DataType::Decimal256(..) | DataType::FixedSizeBinary(_))
}

/// Keys of the rows from `first` on of a column whose type [`is_borrowed`].
fn borrow<'a>(column: &'a ArrayRef, first: usize, keys: &mut [KeyRef<'a>]) {
    let rows = first..first + keys.len();
    macro_rules! words {
        ($type:ty, $value:ident => $word:expr) => {
            for (key, $value) in keys.iter_mut().zip(&column.as_primitive::<$type>().values()[rows]) {
                *key = KeyRef::Short($word);
            }
        };
    }
    macro_rules! views {
        ($array:expr, $row:ident => $bytes:expr) => {
            for ((key, view), $row) in keys.iter_mut().zip(&$array.views()[rows.clone()]).zip(rows) {
                let is_inline = (*view as u32) as usize <= INLINE;
                *key = if is_inline { KeyRef::Short(*view) } else { KeyRef::Long($bytes) };
            }
        };
    }
    match column.data_type() {
        DataType::Int64 => words!(Int64Type, v => *v as u64 as u128),
        DataType::UInt64 => words!(UInt64Type, v => u128::from(*v)),
        DataType::Float64 => words!(Float64Type, v => u128::from(canonical(*v))),
        DataType::Decimal128(..) => words!(Decimal128Type, v => *v as u128),
        DataType::Timestamp(TimeUnit::Second, _) => words!(TimestampSecondType, v => *v as u64 as u128),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            words!(TimestampMillisecondType, v => *v as u64 as u128);
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            words!(TimestampMicrosecondType, v => *v as u64 as u128);
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            words!(TimestampNanosecondType, v => *v as u64 as u128);
        }
        DataType::Utf8View => {
            let array = column.as_string_view();
            views!(array, row => array.value(row).as_bytes());
        }
        DataType::BinaryView => {
            let array = column.as_binary_view();
            views!(array, row => array.value(row));
        }
        other => panic!("no key of Arrow type {other}"),
    }
    if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
        for (index, key) in keys.iter_mut().enumerate() {
            if nulls.is_null(first + index) {
                *key = KeyRef::Null;
            }
        }
    }
}

/// Appends one column's part of a key: a tag (0 null, 1 fixed width, 2 with length), then the value.
fn append_part(column: &ArrayRef, row: usize, out: &mut Vec<u8>) {
    if column.is_null(row) {
        out.push(0);
        return;
    }
    let mut fixed = |bytes: &[u8]| {
        out.push(1);
        out.extend_from_slice(bytes);
    };
    match column.data_type() {
        DataType::Boolean => fixed(&[u8::from(column.as_boolean().value(row))]),
        DataType::Int64 => fixed(&column.as_primitive::<Int64Type>().value(row).to_le_bytes()),
        DataType::UInt64 => fixed(&column.as_primitive::<UInt64Type>().value(row).to_le_bytes()),
        DataType::Float64 => fixed(&canonical(column.as_primitive::<Float64Type>().value(row)).to_le_bytes()),
        DataType::Decimal128(..) => fixed(&column.as_primitive::<Decimal128Type>().value(row).to_le_bytes()),
        DataType::Decimal256(..) => fixed(&column.as_primitive::<Decimal256Type>().value(row).to_le_bytes()),
        DataType::Timestamp(TimeUnit::Second, _) => {
            fixed(&column.as_primitive::<TimestampSecondType>().value(row).to_le_bytes());
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            fixed(&column.as_primitive::<TimestampMillisecondType>().value(row).to_le_bytes());
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            fixed(&column.as_primitive::<TimestampMicrosecondType>().value(row).to_le_bytes());
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            fixed(&column.as_primitive::<TimestampNanosecondType>().value(row).to_le_bytes());
        }
        DataType::FixedSizeBinary(_) => fixed(column.as_fixed_size_binary().value(row)),
        DataType::Utf8View | DataType::BinaryView => {
            let bytes = match column.data_type() {
                DataType::Utf8View => column.as_string_view().value(row).as_bytes(),
                _ => column.as_binary_view().value(row),
            };
            out.push(2);
            out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        other => panic!("no key of Arrow type {other}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, StringViewArray};

    use super::*;

    fn keys(columns: &[ArrayRef]) -> Vec<Key> {
        let mut keys = Vec::new();
        for_each_key(columns, columns[0].len(), |_, key| keys.push(key.to_key()));
        keys
    }

    #[test]
    fn nulls_nans_and_zeros_are_one_key_each() {
        let column: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(0.0),
            Some(-0.0),
            Some(f64::NAN),
            Some(-f64::NAN),
            None,
            None,
        ]));
        let keys = keys(&[column]);
        assert_eq!(keys[0], keys[1]);
        assert_eq!(keys[2], keys[3]);
        assert_eq!(keys[4], keys[5]);
        assert_ne!(keys[0], keys[4]);
    }

    #[test]
    fn keys_of_several_columns_do_not_run_into_each_other() {
        let text = |texts: [Option<&str>; 3]| -> ArrayRef { Arc::new(StringViewArray::from(texts.to_vec())) };
        let keys = keys(&[text([Some("ab"), Some("a"), None]), text([Some("c"), Some("bc"), Some("abc")])]);
        assert_ne!(keys[0], keys[1]);
        assert_ne!(keys[1], keys[2]);
    }
}
