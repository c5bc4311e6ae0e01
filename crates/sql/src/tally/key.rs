//! Columns that tell groups apart, as words.

use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, Int32Array, Int64Array, UInt32Array, UInt64Array};
use arrow_cast::cast;
use arrow_schema::DataType;
use datafusion::common::{DataFusionError, internal_err};

use super::groups::{Group, MAX_COLUMN_WORDS, each};
use super::texts::{NumberedTexts, Numbers, Seen, SharedTexts};

/// Bytes of an address.
const ADDRESS: i32 = 16;

/// A column of a key.
pub(super) struct KeyColumn {
    data_type: DataType,
    kind: Kind,
    /// Its number among the columns.
    column: usize,
    place: Place,
}

/// Where a column stands in a key: the first of its words, or half of that word.
#[derive(Clone, Copy)]
struct Place {
    word: usize,
    half: Half,
}

/// One of the halves of a word, each of which stays what it is while the other is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Half {
    Lower,
    Upper,
}

impl Half {
    fn shift(self) -> u32 {
        match self {
            Half::Lower => 0,
            Half::Upper => u32::BITS,
        }
    }

    pub(super) fn write(self, word: &mut u64, number: u32) {
        let others = u64::from(u32::MAX) << (u32::BITS - self.shift());
        *word = (*word & others) | (u64::from(number) << self.shift());
    }

    fn read(self, word: u64) -> u32 {
        (word >> self.shift()) as u32
    }
}

enum Kind {
    /// Half a word: a number of so many bits or fewer, with a sign or without.
    Signed32,
    Unsigned32,
    /// A word.
    Signed64,
    Unsigned64,
    /// Two words.
    Address,
    /// Half a word: the text's number.
    Text(Box<Seen>),
}

impl Kind {
    fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Int8 | DataType::Int16 | DataType::Int32 => Kind::Signed32,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => Kind::Unsigned32,
            DataType::Int64 | DataType::Timestamp(_, None) => Kind::Signed64,
            DataType::UInt64 => Kind::Unsigned64,
            DataType::FixedSizeBinary(ADDRESS) => Kind::Address,
            DataType::Utf8View | DataType::Utf8 => Kind::Text(Box::default()),
            _ => return None,
        })
    }

    /// Whole words; 0: half of one.
    fn words(&self) -> usize {
        match self {
            Kind::Signed32 | Kind::Unsigned32 | Kind::Text(_) => 0,
            Kind::Signed64 | Kind::Unsigned64 => 1,
            Kind::Address => MAX_COLUMN_WORDS,
        }
    }
}

impl KeyColumn {
    /// The columns of these types, and how many words they have; `None`: there is a type among them that they do not know.
    pub(super) fn all<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Option<(Vec<Self>, usize)> {
        let mut words = 0;
        // The word whose upper half is free.
        let mut begun = None;
        let columns = types.into_iter().enumerate().map(|(column, data_type)| {
            let kind = Kind::of(data_type)?;
            let place = match (kind.words(), begun.take()) {
                (0, Some(word)) => Place { word, half: Half::Upper },
                (whole, before) => {
                    let word = words;
                    words += whole.max(1);
                    begun = if whole == 0 { Some(word) } else { before };
                    Place { word, half: Half::Lower }
                }
            };
            Some(Self { data_type: data_type.clone(), kind, column, place })
        });
        let columns = columns.collect::<Option<Vec<_>>>()?;
        Some((columns, words))
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

    /// Writes its words, or its half of one, into keys that come every `stride` words, zeros where it is null, and sets its
    /// bit there. Bits were 0.
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
        let Place { word, half } = self.place;
        match &mut self.kind {
            Kind::Signed32 => {
                let wide = cast(values, &DataType::Int32)?;
                let wide = wide.as_primitive::<Int32Type>();
                each(wide.nulls(), wide.values().iter(), keys, stride, |key, number| {
                    half.write(&mut key[word], number.map_or(0, |number| number.cast_unsigned()));
                });
            }
            Kind::Unsigned32 => {
                let wide = cast(values, &DataType::UInt32)?;
                let wide = wide.as_primitive::<UInt32Type>();
                each(wide.nulls(), wide.values().iter(), keys, stride, |key, number| {
                    half.write(&mut key[word], number.map_or(0, |number| *number));
                });
            }
            Kind::Signed64 => {
                let wide = cast(values, &DataType::Int64)?;
                let wide = wide.as_primitive::<Int64Type>();
                each(wide.nulls(), wide.values().iter(), keys, stride, |key, number| {
                    key[word] = number.map_or(0, |number| number.cast_unsigned());
                });
            }
            Kind::Unsigned64 => {
                let values = values.as_primitive::<UInt64Type>();
                each(values.nulls(), values.values().iter(), keys, stride, |key, number| {
                    key[word] = number.map_or(0, |number| *number);
                });
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
                seen.number(
                    texts,
                    views.as_string_view(),
                    Numbers { words: &mut keys[word..], stride, half },
                )?;
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
        let Place { word, half } = self.place;
        let words = groups.iter().map(|group| (!group.is_null(self.column)).then(|| &group.key[word..]));
        let halves = words.clone().map(|words| words.map(|words| half.read(words[0])));
        let array: ArrayRef = match &self.kind {
            Kind::Signed32 => {
                Arc::new(halves.map(|number| number.map(u32::cast_signed)).collect::<Int32Array>())
            }
            Kind::Unsigned32 => Arc::new(halves.collect::<UInt32Array>()),
            Kind::Signed64 => {
                Arc::new(words.map(|words| words.map(|words| words[0].cast_signed())).collect::<Int64Array>())
            }
            Kind::Unsigned64 => {
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
            Kind::Text(_) => Arc::new(texts.of(halves)),
        };
        Ok(cast(&array, &self.data_type)?)
    }
}
