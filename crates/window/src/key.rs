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

/// One row's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Null,
    Short(u128),
    Long(Box<[u8]>),
}

impl Key {
    pub(crate) fn heap_bytes(&self) -> usize {
        if let Key::Long(bytes) = self { bytes.len() } else { 0 }
    }
}

const INLINE: usize = 12;

fn canonical(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() }
}

/// Calls `visit` with each row's key, in order.
///
/// # Panics
/// On an Arrow type that no field type maps to.
pub(crate) fn for_each_key(columns: &[ArrayRef], rows: usize, mut visit: impl FnMut(usize, KeyRef<'_>)) {
    if let [column] = columns {
        single(column, &mut visit);
    } else {
        let mut bytes = Vec::new();
        for row in 0..rows {
            bytes.clear();
            for column in columns {
                append_part(column, row, &mut bytes);
            }
            visit(row, KeyRef::Long(&bytes));
        }
    }
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
            KeyRef::Short(word) => Key::Short(word),
            KeyRef::Long(bytes) => Key::Long(bytes.into()),
        }
    }
}

impl Key {
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Key::Null => KeyRef::Null,
            Key::Short(word) => KeyRef::Short(*word),
            Key::Long(bytes) => KeyRef::Long(bytes),
        }
    }
}

fn single(column: &ArrayRef, visit: &mut impl FnMut(usize, KeyRef<'_>)) {
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    let mut give = |row: usize, key: KeyRef<'_>| {
        visit(row, if nulls.is_some_and(|nulls| nulls.is_null(row)) { KeyRef::Null } else { key });
    };
    macro_rules! words {
        ($values:expr, $value:ident => $word:expr) => {
            for (row, $value) in $values.iter().enumerate() {
                give(row, KeyRef::Short($word));
            }
        };
    }
    match column.data_type() {
        DataType::Int64 => words!(column.as_primitive::<Int64Type>().values(), v => *v as u64 as u128),
        DataType::UInt64 => words!(column.as_primitive::<UInt64Type>().values(), v => u128::from(*v)),
        DataType::Float64 => {
            words!(column.as_primitive::<Float64Type>().values(), v => u128::from(canonical(*v)))
        }
        DataType::Decimal128(..) => words!(column.as_primitive::<Decimal128Type>().values(), v => *v as u128),
        DataType::Timestamp(TimeUnit::Second, _) => {
            words!(column.as_primitive::<TimestampSecondType>().values(), v => *v as u64 as u128)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            words!(column.as_primitive::<TimestampMillisecondType>().values(), v => *v as u64 as u128)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            words!(column.as_primitive::<TimestampMicrosecondType>().values(), v => *v as u64 as u128)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            words!(column.as_primitive::<TimestampNanosecondType>().values(), v => *v as u64 as u128)
        }
        DataType::Utf8View => {
            let array = column.as_string_view();
            for (row, view) in array.views().iter().enumerate() {
                if (*view as u32) as usize <= INLINE {
                    give(row, KeyRef::Short(*view));
                } else {
                    give(row, KeyRef::Long(array.value(row).as_bytes()));
                }
            }
        }
        DataType::BinaryView => {
            let array = column.as_binary_view();
            for (row, view) in array.views().iter().enumerate() {
                if (*view as u32) as usize <= INLINE {
                    give(row, KeyRef::Short(*view));
                } else {
                    give(row, KeyRef::Long(array.value(row)));
                }
            }
        }
        _ => {
            let mut bytes = Vec::new();
            for row in 0..column.len() {
                bytes.clear();
                append_part(column, row, &mut bytes);
                give(row, KeyRef::Long(&bytes));
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
