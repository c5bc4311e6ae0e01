//! Columns that tell groups apart, as words.

use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, Int64Array, UInt64Array};
use arrow_cast::cast;
use arrow_schema::DataType;
use datafusion::common::{DataFusionError, internal_err};

use super::groups::{Group, MAX_COLUMN_WORDS, each};
use super::texts::{NumberedTexts, Seen, SharedTexts};

/// Bytes of an address.
const ADDRESS: i32 = 16;

/// A column of a key.
pub(super) struct KeyColumn {
    data_type: DataType,
    kind: Kind,
    /// Its number among the columns, and its first word.
    column: usize,
    word: usize,
}

enum Kind {
    /// One word: the number as a wider one, with a sign or without.
    Signed,
    Unsigned,
    /// Two words.
    Address,
    /// One word: the text's number.
    Text(Box<Seen>),
}

impl Kind {
    fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Kind::Signed,
            DataType::Timestamp(_, None) => Kind::Signed,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => Kind::Unsigned,
            DataType::FixedSizeBinary(ADDRESS) => Kind::Address,
            DataType::Utf8View | DataType::Utf8 => Kind::Text(Box::default()),
            _ => return None,
        })
    }

    fn words(&self) -> usize {
        if matches!(self, Kind::Address) { MAX_COLUMN_WORDS } else { 1 }
    }
}

impl KeyColumn {
    /// The columns of these types, and how many words they have; `None`: there is a type among them that they do not know.
    pub(super) fn all<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Option<(Vec<Self>, usize)> {
        let mut word = 0;
        let columns = types.into_iter().enumerate().map(|(column, data_type)| {
            let kind = Kind::of(data_type)?;
            let first = word;
            word += kind.words();
            Some(Self { data_type: data_type.clone(), kind, column, word: first })
        });
        let columns = columns.collect::<Option<Vec<_>>>()?;
        Some((columns, word))
    }

    pub(super) fn bytes(&self) -> usize {
        if let Kind::Text(seen) = &self.kind { seen.bytes() } else { 0 }
    }

    /// Forgets what texts it has seen.
    pub(super) fn clear(&mut self) {
        if let Kind::Text(seen) = &mut self.kind {
            **seen = Seen::default();
        }
    }

    /// Writes the words of a column into keys that come every `stride` words, zeros where it is null, and sets its bit
    /// there. Bits were 0.
    pub(super) fn write(
        &mut self,
        values: &ArrayRef,
        texts: &SharedTexts,
        keys: &mut [u64],
        stride: usize,
        nulls: &mut [u8],
    ) -> Result<(), DataFusionError> {
        if values.data_type() != &self.data_type {
            return internal_err!("a key of type {} came as {}", self.data_type, values.data_type());
        }
        let word = self.word;
        match &mut self.kind {
            Kind::Signed => {
                let wide = cast(values, &DataType::Int64)?;
                let wide = wide.as_primitive::<Int64Type>();
                let numbers = wide.values().iter();
                each(wide.nulls(), numbers, keys, stride, |key, number| {
                    key[word] = number.map_or(0, |number| number.cast_unsigned());
                });
            }
            Kind::Unsigned => {
                let wide = cast(values, &DataType::UInt64)?;
                let wide = wide.as_primitive::<UInt64Type>();
                let numbers = wide.values().iter();
                each(wide.nulls(), numbers, keys, stride, |key, number| key[word] = number.map_or(0, |n| *n));
            }
            Kind::Address => {
                let values = values.as_fixed_size_binary();
                let rows = (0..values.len()).map(|row| values.value(row));
                each(values.nulls(), rows, keys, stride, |key, address| {
                    let words = address.unwrap_or(&[0; ADDRESS as usize]).as_chunks().0;
                    for (word, bytes) in key[word..].iter_mut().zip(words) {
                        *word = u64::from_be_bytes(*bytes);
                    }
                });
            }
            Kind::Text(seen) => {
                let views = cast(values, &DataType::Utf8View)?;
                seen.number(texts, views.as_string_view(), &mut keys[word..], stride)?;
            }
        }
        if let Some(present) = values.logical_nulls().filter(|present| present.null_count() > 0) {
            for (nulls, is_present) in nulls.iter_mut().zip(&present) {
                *nulls |= u8::from(!is_present) << self.column;
            }
        }
        Ok(())
    }

    /// The column of these groups; `texts` are those of the numbers.
    pub(super) fn read(
        &self,
        groups: &[Group<'_>],
        texts: &NumberedTexts,
    ) -> Result<ArrayRef, DataFusionError> {
        let words = groups.iter().map(|group| (!group.is_null(self.column)).then(|| &group.key[self.word..]));
        let array: ArrayRef = match &self.kind {
            Kind::Signed => {
                Arc::new(words.map(|words| words.map(|words| words[0].cast_signed())).collect::<Int64Array>())
            }
            Kind::Unsigned => {
                Arc::new(words.map(|words| words.map(|words| words[0])).collect::<UInt64Array>())
            }
            Kind::Address => {
                let mut addresses = FixedSizeBinaryBuilder::with_capacity(groups.len(), ADDRESS);
                for words in words {
                    match words {
                        Some(words) => {
                            let address = (u128::from(words[0]) << 64) | u128::from(words[1]);
                            addresses.append_value(address.to_be_bytes())?;
                        }
                        None => addresses.append_null(),
                    }
                }
                Arc::new(addresses.finish())
            }
            Kind::Text(_) => Arc::new(texts.of(words.map(|words| words.map(|words| words[0] as u32)))),
        };
        Ok(cast(&array, &self.data_type)?)
    }
}
