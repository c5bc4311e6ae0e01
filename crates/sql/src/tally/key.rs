//! Columns that distinguish groups, as words.

use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, ArrowPrimitiveType, PrimitiveArray, UInt32Array, UInt64Array};
use arrow_buffer::ScalarBuffer;
use arrow_cast::cast;
use arrow_schema::DataType;
use datafusion::common::{DataFusionError, internal_err};

use super::groups::{Group, MAX_COLUMN_WORDS, absent, by_stride, each};
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

/// Where a column is in a key: the first of its words, or half of that word.
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
    /// Half a word: a number of 32 bits or fewer.
    Number32,
    /// A word: a number of 64 bits.
    Number64,
    /// Two words.
    Address,
    /// Half a word: the text's number.
    Text(Box<Seen>),
}

impl Kind {
    fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Int8 | DataType::Int16 | DataType::Int32 => Kind::Number32,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => Kind::Number32,
            DataType::Int64 | DataType::UInt64 | DataType::Timestamp(_, None) => Kind::Number64,
            DataType::FixedSizeBinary(ADDRESS) => Kind::Address,
            DataType::Utf8View | DataType::Utf8 => Kind::Text(Box::default()),
            _ => return None,
        })
    }

    /// Whole words; 0: half of one.
    fn words(&self) -> usize {
        match self {
            Kind::Number32 | Kind::Text(_) => 0,
            Kind::Number64 => 1,
            Kind::Address => MAX_COLUMN_WORDS,
        }
    }
}

/// Numbers of another type by the bits of these, which are as many.
fn by_bits<A: ArrowPrimitiveType, B: ArrowPrimitiveType>(numbers: &PrimitiveArray<A>) -> PrimitiveArray<B> {
    const { assert!(size_of::<A::Native>() == size_of::<B::Native>()) };
    let bits = ScalarBuffer::new(numbers.values().inner().clone(), 0, numbers.len());
    PrimitiveArray::new(bits, numbers.nulls().cloned())
}

/// Numbers of 64 bits, those with a sign by their bits.
fn wide(values: &ArrayRef) -> Result<UInt64Array, DataFusionError> {
    if values.data_type().is_unsigned_integer() {
        return Ok(cast(values, &DataType::UInt64)?.as_primitive::<UInt64Type>().clone());
    }
    Ok(by_bits(cast(values, &DataType::Int64)?.as_primitive::<Int64Type>()))
}

/// The same of 32 bits.
fn narrow(values: &ArrayRef) -> Result<UInt32Array, DataFusionError> {
    if values.data_type().is_unsigned_integer() {
        return Ok(cast(values, &DataType::UInt32)?.as_primitive::<UInt32Type>().clone());
    }
    Ok(by_bits(cast(values, &DataType::Int32)?.as_primitive::<Int32Type>()))
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

    /// Writes its words, or its half of one, into records of `stride` words, zeros where it is null, and sets its bit
    /// in `nulls` there, which was 0. Other words and halves stay: one that no column has is to be 0, as it is part of
    /// the key.
    pub(super) fn write(
        &mut self,
        values: &ArrayRef,
        texts: &SharedTexts,
        records: &mut [u64],
        stride: usize,
        nulls: &mut [u8],
    ) -> Result<(), DataFusionError> {
        if values.data_type() != &self.data_type {
            return internal_err!("a key of type {} came as {}", self.data_type, values.data_type());
        }
        absent(values.logical_nulls().as_ref(), |row| nulls[row] |= 1 << self.column);
        by_stride!(stride, self.write_all(records.as_chunks_mut(), values, texts))
    }

    fn write_all<const STRIDE: usize>(
        &mut self,
        records: &mut [[u64; STRIDE]],
        values: &ArrayRef,
        texts: &SharedTexts,
    ) -> Result<(), DataFusionError> {
        let Place { word, half } = self.place;
        // After the head.
        let word = 1 + word;
        match &mut self.kind {
            Kind::Number32 => {
                let numbers = narrow(values)?;
                each(numbers.nulls(), numbers.values().iter(), records, |record, number| {
                    half.write(&mut record[word], number.map_or(0, |number| *number));
                });
            }
            Kind::Number64 => {
                let numbers = wide(values)?;
                each(numbers.nulls(), numbers.values().iter(), records, |record, number| {
                    record[word] = number.map_or(0, |number| *number);
                });
            }
            Kind::Address => {
                let values = values.as_fixed_size_binary();
                let rows = (0..values.len()).map(|row| values.value(row));
                each(values.nulls(), rows, records, |record, address| {
                    let words = address.unwrap_or(&[0; ADDRESS as usize]).as_chunks().0;
                    for (word, bytes) in record[word..].iter_mut().zip(words) {
                        *word = u64::from_be_bytes(*bytes);
                    }
                });
            }
            Kind::Text(seen) => {
                let views = cast(values, &DataType::Utf8View)?;
                let words = &mut records.as_flattened_mut()[word..];
                seen.number(texts, views.as_string_view(), Numbers { words, stride: STRIDE, half })?;
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
        let is_unsigned = self.data_type.is_unsigned_integer();
        let array: ArrayRef = match &self.kind {
            Kind::Number32 => {
                let numbers = halves.collect::<UInt32Array>();
                if is_unsigned { Arc::new(numbers) } else { Arc::new(by_bits::<_, Int32Type>(&numbers)) }
            }
            Kind::Number64 => {
                let numbers = words.map(|words| words.map(|words| words[0])).collect::<UInt64Array>();
                if is_unsigned { Arc::new(numbers) } else { Arc::new(by_bits::<_, Int64Type>(&numbers)) }
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
