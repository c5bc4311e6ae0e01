//! Reading: columns of exactly the announced rows, from bytes that nobody vouches for.

use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array, FixedSizeBinaryArray,
    Float64Array, Int64Array, ListArray, StringViewArray, StructArray, UInt64Array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, i256};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields};
use thalweg_types::Micros;

use super::super::cursor::Cursor;
use super::super::{FrameError, MAX_ROWS};
use super::{IPV4, NULLS, SCALED, WIDE, has_differences, is_float, scale};

/// Longest text that is in its view; longer ones are in the body.
const INLINE: usize = 12;

/// What the columns of a section have in common.
#[derive(Clone, Copy)]
struct Section<'a> {
    rows: usize,
    base: Micros,
    body: &'a Buffer,
}

/// Reads a section of `rows` rows. `cursor` is at its first byte; its bytes are those of `body`, from which long texts
/// and bits are not copied.
///
/// # Errors
/// [`FrameError::Damaged`], and [`FrameError::Unsupported`] for a type that is no field's.
pub(crate) fn read(
    fields: &Fields,
    rows: usize,
    base: Micros,
    body: &Buffer,
    cursor: &mut Cursor<'_>,
) -> Result<Vec<ArrayRef>, FrameError> {
    let section = Section { rows, base, body };
    let pos = cursor.pos();
    let flags = cursor.u8("flags of a section")?;
    if flags & !(NULLS | WIDE | SCALED) != 0 {
        return Err(cursor.damaged(pos, "flags of a section", "0 to 7", flags));
    }
    let count = |is_counted: fn(&DataType) -> bool| {
        fields.iter().filter(|field| is_counted(field.data_type())).count()
    };
    let bools = count(|data_type| *data_type == DataType::Boolean);
    let mut bits = Bits { section, at: cursor.pos() as usize * 8 };
    let has_nulls = bits.flags(flags & NULLS != 0, fields.len(), cursor)?;
    let is_wide = bits.flags(flags & WIDE != 0, count(has_differences), cursor)?;
    let is_scaled = bits.flags(flags & SCALED != 0, count(is_float), cursor)?;
    let nullable = has_nulls.iter().filter(|has| **has).count();
    // All bits are there before any of them is used.
    let end = bits.at + (nullable + bools) * rows;
    cursor.skip_to((end as u64).div_ceil(8), "bits of a section")?;

    let nulls: Vec<Option<NullBuffer>> =
        has_nulls.into_iter().map(|has| has.then(|| NullBuffer::new(bits.rows()))).collect();
    let bools: Vec<BooleanBuffer> = (0..bools).map(|_| bits.rows()).collect();
    let (mut bools, mut is_wide, mut is_scaled) =
        (bools.into_iter(), is_wide.into_iter(), is_scaled.into_iter());
    let columns = fields.iter().zip(nulls).map(|(field, nulls)| {
        let data_type = field.data_type();
        match data_type {
            DataType::Boolean => {
                let values = bools.next().expect("as many as there are columns of bools");
                Ok(Arc::new(BooleanArray::new(values, nulls)) as ArrayRef)
            }
            _ => {
                let has_other_form = match data_type {
                    data_type if has_differences(data_type) => is_wide.next(),
                    data_type if is_float(data_type) => is_scaled.next(),
                    _ => None,
                };
                section.column(data_type, nulls, has_other_form.unwrap_or(false), cursor)
            }
        }
    });
    columns.collect()
}

/// The bits of a section.
struct Bits<'a> {
    section: Section<'a>,
    /// The next bit of the body.
    at: usize,
}

impl Bits<'_> {
    /// A bit for each of `count` columns; all clear where they are not flagged.
    fn flags(
        &mut self,
        is_flagged: bool,
        count: usize,
        cursor: &mut Cursor<'_>,
    ) -> Result<Vec<bool>, FrameError> {
        if !is_flagged {
            return Ok(vec![false; count]);
        }
        let start = self.at;
        self.at += count;
        cursor.skip_to((self.at as u64).div_ceil(8), "bits of a section")?;
        Ok(BooleanBuffer::new(self.section.body.clone(), start, count).iter().collect())
    }

    /// A bit for each row.
    fn rows(&mut self) -> BooleanBuffer {
        let start = self.at;
        self.at += self.section.rows;
        BooleanBuffer::new(self.section.body.clone(), start, self.section.rows)
    }
}

impl Section<'_> {
    fn column(
        self,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
        has_other_form: bool,
        cursor: &mut Cursor<'_>,
    ) -> Result<ArrayRef, FrameError> {
        let valid = nulls.as_ref();
        let (pos, error) = (cursor.pos(), cursor.clone());
        let damaged = |found: ArrowError| error.damaged(pos, "column", data_type, found);
        Ok(match data_type {
            DataType::Int64 => {
                Arc::new(Int64Array::new(self.words(valid, 0, has_other_form, cursor)?.into(), nulls))
            }
            DataType::UInt64 => {
                let words = self.words(valid, 0, has_other_form, cursor)?;
                let values: Vec<u64> = words.into_iter().map(|word| word as u64).collect();
                Arc::new(UInt64Array::new(values.into(), nulls))
            }
            DataType::Timestamp(unit, None) => {
                let unit = thalweg_types::TimeUnit::of_arrow(*unit);
                let base = unit.from_micros(self.base).unwrap_or(0);
                unit.column(self.words(valid, base, has_other_form, cursor)?.into(), nulls)
            }
            DataType::Float64 => {
                Arc::new(Float64Array::new(self.floats(valid, has_other_form, cursor)?.into(), nulls))
            }
            DataType::Decimal128(precision, scale) => {
                let values = self.each(valid, || Ok(i128::from_le_bytes(short(cursor)?)))?;
                let column = Decimal128Array::new(values.into(), nulls);
                Arc::new(column.with_precision_and_scale(*precision, *scale).map_err(damaged)?)
            }
            DataType::Decimal256(precision, scale) => {
                let values = self.each(valid, || Ok(i256::from_le_bytes(short(cursor)?)))?;
                let column = Decimal256Array::new(values.into(), nulls);
                Arc::new(column.with_precision_and_scale(*precision, *scale).map_err(damaged)?)
            }
            DataType::Utf8View => {
                let (views, buffers) = self.views(valid, cursor)?;
                Arc::new(StringViewArray::try_new(views.into(), buffers, nulls).map_err(damaged)?)
            }
            DataType::BinaryView => {
                let (views, buffers) = self.views(valid, cursor)?;
                Arc::new(BinaryViewArray::try_new(views.into(), buffers, nulls).map_err(damaged)?)
            }
            DataType::FixedSizeBinary(16) => {
                let octets = Buffer::from_vec(self.each(valid, || address(cursor))?.into_flattened());
                Arc::new(FixedSizeBinaryArray::try_new(16, octets, nulls).map_err(damaged)?)
            }
            DataType::List(item) => self.lists(item, nulls, cursor)?,
            DataType::Struct(fields) => self.structs(fields, nulls, cursor)?,
            other => return Err(FrameError::Unsupported { data_type: other.clone() }),
        })
    }

    /// Rows that have a value.
    fn present(self, nulls: Option<&NullBuffer>) -> usize {
        self.rows - nulls.map_or(0, NullBuffer::null_count)
    }

    /// A value for each row, the default where it is null, of the values of all other rows.
    fn spread<T: Clone + Default>(self, nulls: Option<&NullBuffer>, values: Vec<T>) -> Vec<T> {
        let Some(nulls) = nulls else { return values };
        let mut values = values.into_iter();
        let mut next = |is_valid: bool| if is_valid { values.next() } else { None };
        nulls.iter().map(|is_valid| next(is_valid).unwrap_or_default()).collect()
    }

    /// Values that are read one by one.
    fn each<T: Clone + Default>(
        self,
        nulls: Option<&NullBuffer>,
        mut read: impl FnMut() -> Result<T, FrameError>,
    ) -> Result<Vec<T>, FrameError> {
        let count = self.present(nulls);
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(read()?);
        }
        Ok(self.spread(nulls, values))
    }

    fn words(
        self,
        nulls: Option<&NullBuffer>,
        base: i64,
        is_wide: bool,
        cursor: &mut Cursor<'_>,
    ) -> Result<Vec<i64>, FrameError> {
        let count = self.present(nulls);
        let mut values = Vec::with_capacity(count);
        if is_wide {
            let (words, _) = cursor.take(8 * count, "integers")?.as_chunks();
            values.extend(words.iter().map(|word| i64::from_le_bytes(*word)));
        } else {
            let mut last = base;
            cursor.each_signed(count, "integer", |more| {
                last = last.wrapping_add(more);
                values.push(last);
            })?;
        }
        Ok(self.spread(nulls, values))
    }

    fn floats(
        self,
        nulls: Option<&NullBuffer>,
        is_scaled: bool,
        cursor: &mut Cursor<'_>,
    ) -> Result<Vec<f64>, FrameError> {
        let count = self.present(nulls);
        let mut values = Vec::with_capacity(count);
        if is_scaled {
            let power = cursor.count("power of ten", 0, scale::MOST)?;
            let mut last = 0_i64;
            cursor.each_signed(count, "float64", |more| {
                last = last.wrapping_add(more);
                values.push(scale::to_float(last, power));
            })?;
        } else {
            let (words, _) = cursor.take(8 * count, "floats")?.as_chunks();
            values.extend(words.iter().map(|word| f64::from_le_bytes(*word)));
        }
        Ok(self.spread(nulls, values))
    }

    /// Views of texts, and the buffer that long ones are in.
    fn views(
        self,
        nulls: Option<&NullBuffer>,
        cursor: &mut Cursor<'_>,
    ) -> Result<(Vec<u128>, Vec<Buffer>), FrameError> {
        let count = self.present(nulls);
        let mut views = Vec::with_capacity(count);
        let mut is_long = false;
        cursor.each_text(count, "length of a text", |text, at| {
            is_long |= text.len() > INLINE;
            views.push(make_view(text, 0, at as u32));
        })?;
        let buffers = if is_long { vec![self.body.clone()] } else { Vec::new() };
        Ok((self.spread(nulls, views), buffers))
    }

    fn lists(
        self,
        item: &FieldRef,
        nulls: Option<NullBuffer>,
        cursor: &mut Cursor<'_>,
    ) -> Result<ArrayRef, FrameError> {
        let pos = cursor.pos();
        let mut left = MAX_ROWS;
        let counts = self.each(nulls.as_ref(), || {
            let count = cursor.count("items of a list", 0, left)?;
            left -= count;
            Ok(count)
        })?;
        let fields = Fields::from(vec![Arc::clone(item)]);
        let items = read(&fields, MAX_ROWS - left, self.base, self.body, cursor)?.remove(0);
        let lists = ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(counts), items, nulls);
        Ok(Arc::new(lists.map_err(|found| cursor.damaged(pos, "column", "lists", found))?))
    }

    fn structs(
        self,
        fields: &Fields,
        nulls: Option<NullBuffer>,
        cursor: &mut Cursor<'_>,
    ) -> Result<ArrayRef, FrameError> {
        let pos = cursor.pos();
        let Some(valid) = &nulls else {
            let columns = read(fields, self.rows, self.base, self.body, cursor)?;
            return self.joined(fields, columns, None, pos, cursor);
        };
        let columns = read(fields, self.present(Some(valid)), self.base, self.body, cursor)?;
        // Row r of the struct is the next one that is present, or null.
        let mut next = 0_u32;
        let places = valid.iter().map(|is_valid| {
            is_valid.then(|| {
                next += 1;
                next - 1
            })
        });
        let places = arrow_array::UInt32Array::from_iter(places);
        let spread = |column: &ArrayRef| arrow_select::take::take(column, &places, None);
        let spread: Result<Vec<ArrayRef>, ArrowError> = columns.iter().map(spread).collect();
        let columns = spread.map_err(|found| cursor.damaged(pos, "column", "a struct", found))?;
        self.joined(fields, columns, nulls, pos, cursor)
    }

    fn joined(
        self,
        fields: &Fields,
        columns: Vec<ArrayRef>,
        nulls: Option<NullBuffer>,
        pos: u64,
        cursor: &Cursor<'_>,
    ) -> Result<ArrayRef, FrameError> {
        let joined = StructArray::try_new_with_length(fields.clone(), columns, nulls, self.rows);
        Ok(Arc::new(joined.map_err(|found| cursor.damaged(pos, "column", "a struct", found))?))
    }
}

/// A number in two's complement without its upper bytes.
fn short<const N: usize>(cursor: &mut Cursor<'_>) -> Result<[u8; N], FrameError> {
    let len = cursor.count("length of a decimal", 0, N)?;
    let bytes = cursor.take(len, "decimal")?;
    let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut number = [if is_negative { 0xff } else { 0 }; N];
    number[..len].copy_from_slice(bytes);
    Ok(number)
}

fn address(cursor: &mut Cursor<'_>) -> Result<[u8; 16], FrameError> {
    let pos = cursor.pos();
    let mut octets = [0; 16];
    match cursor.u8("length of an address")? {
        4 => {
            octets[..12].copy_from_slice(&IPV4);
            octets[12..].copy_from_slice(cursor.take(4, "address")?);
        }
        16 => octets.copy_from_slice(cursor.take(16, "address")?),
        len => return Err(cursor.damaged(pos, "length of an address", "4 or 16", len)),
    }
    Ok(octets)
}
