//! One column as bytes: nulls, the encoding that suits the values, and LZ4 over both where it pays.
//!
//! Layout, inside what [`super::squeeze`] stores: nulls 1 (0 none, 1 bitmap follows, 2 all null and nothing
//! follows), bitmap of valid rows (bit r of byte r / 8), encoding 1, then its bytes. Nulls come first because they
//! decide whether anything follows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, BinaryType, BinaryViewType, Decimal128Type, Decimal256Type, Float64Type, Int64Type,
    StringViewType, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt32Type, UInt64Type, Utf8Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Decimal256Array, FixedSizeBinaryArray, Float64Array,
    PrimitiveArray, UInt32Array, new_null_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, i256};
use arrow_schema::{DataType, TimeUnit};

use super::cursor::Cursor;
use super::squeeze::{self, Gain};
use super::{CodecError, damaged, float, pack, text};

const NO_NULLS: u8 = 0;
const SOME_NULLS: u8 = 1;
const ALL_NULL: u8 = 2;

/// How a column's values are stored. Persisted, do not renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Encoding {
    /// The bytes of one value that all rows have.
    Constant = 0,
    /// The values one after the other; a bitmap for booleans.
    Raw = 1,
    /// [`pack`].
    Packed = 2,
    /// [`float`].
    Scaled = 3,
    /// [`text`], without and with a dictionary.
    Plain = 4,
    Dictionary = 5,
    /// IPv4 addresses, packed.
    Ipv4 = 6,
}

impl Encoding {
    fn from_tag(tag: u8) -> Option<Self> {
        use Encoding::{Constant, Dictionary, Ipv4, Packed, Plain, Raw, Scaled};
        [Constant, Raw, Packed, Scaled, Plain, Dictionary, Ipv4].into_iter().find(|each| *each as u8 == tag)
    }
}

/// First bytes of an IPv4 address in 16 (`::ffff:a.b.c.d`).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Appends a column's bytes.
pub(super) fn encode(array: &ArrayRef, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let rows = array.len();
    let mut raw = Vec::with_capacity(rows * 4 + 64);
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    match nulls {
        None => raw.push(NO_NULLS),
        Some(nulls) if nulls.null_count() == rows => {
            if super::head::type_tag(array.data_type()).is_none() {
                return Err(CodecError::Unsupported { data_type: array.data_type().clone() });
            }
            raw.push(ALL_NULL);
            squeeze::put(&raw, Gain::Packed, out);
            return Ok(());
        }
        Some(nulls) => {
            raw.push(SOME_NULLS);
            put_bits(nulls.inner(), &mut raw);
        }
    }
    let gain = encode_values(array, nulls, &mut raw)?;
    squeeze::put(&raw, gain, out);
    Ok(())
}

fn encode_values(
    array: &ArrayRef,
    nulls: Option<&NullBuffer>,
    out: &mut Vec<u8>,
) -> Result<Gain, CodecError> {
    match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean();
            let bits = match nulls {
                Some(nulls) => values.values() & nulls.inner(),
                None => values.values().clone(),
            };
            out.push(Encoding::Raw as u8);
            put_bits(&bits, out);
            Ok(Gain::Packed)
        }
        DataType::Int64 => Ok(put_i64s(array.as_primitive::<Int64Type>().values(), nulls, out)),
        DataType::Timestamp(unit, None) => {
            let values = match unit {
                TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values(),
                TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().values(),
                TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values(),
                TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values(),
            };
            Ok(put_i64s(values, nulls, out))
        }
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>().values();
            let order = pack::Order::Unsigned;
            Ok(put_packed(Encoding::Packed, values.len(), order, nulls, |row| values[row] as i64, out))
        }
        DataType::UInt32 => {
            let values = array.as_primitive::<UInt32Type>().values();
            let order = pack::Order::Signed;
            Ok(put_packed(Encoding::Packed, values.len(), order, nulls, |row| i64::from(values[row]), out))
        }
        DataType::Float64 => Ok(put_floats(array.as_primitive::<Float64Type>().values(), nulls, out)),
        DataType::Decimal128(..) => {
            let values = array.as_primitive::<Decimal128Type>().values();
            let fits = |value: i128| i64::try_from(value).is_ok();
            if valid_rows(values.len(), nulls).all(|row| fits(values[row])) {
                let order = pack::Order::Signed;
                return Ok(put_packed(
                    Encoding::Packed,
                    values.len(),
                    order,
                    nulls,
                    |row| values[row] as i64,
                    out,
                ));
            }
            out.push(Encoding::Raw as u8);
            put_valid(values.len(), nulls, |row| values[row].to_le_bytes(), out);
            Ok(Gain::Text)
        }
        DataType::Decimal256(..) => {
            let values = array.as_primitive::<Decimal256Type>().values();
            let narrow = |value: i256| value.to_i128().and_then(|value| i64::try_from(value).ok());
            if valid_rows(values.len(), nulls).all(|row| narrow(values[row]).is_some()) {
                let (order, value) = (pack::Order::Signed, |row: usize| narrow(values[row]).unwrap_or(0));
                return Ok(put_packed(Encoding::Packed, values.len(), order, nulls, value, out));
            }
            out.push(Encoding::Raw as u8);
            put_valid(values.len(), nulls, |row| values[row].to_le_bytes(), out);
            Ok(Gain::Text)
        }
        DataType::Utf8View => put_texts(array.as_byte_view::<StringViewType>(), out),
        DataType::BinaryView => put_texts(array.as_byte_view::<BinaryViewType>(), out),
        DataType::FixedSizeBinary(16) => Ok(put_addresses(array.as_fixed_size_binary(), nulls, out)),
        other => Err(CodecError::Unsupported { data_type: other.clone() }),
    }
}

fn valid_rows(rows: usize, nulls: Option<&NullBuffer>) -> impl Iterator<Item = usize> {
    (0..rows).filter(move |row| nulls.is_none_or(|nulls| nulls.is_valid(*row)))
}

fn put_bits(bits: &BooleanBuffer, out: &mut Vec<u8>) {
    let start = out.len();
    let len = bits.len().div_ceil(8);
    // `sliced` moves the bits to the front of their first byte but may leave others' bits after the last.
    out.extend_from_slice(&bits.sliced().as_slice()[..len]);
    if !bits.len().is_multiple_of(8) {
        out[start + len - 1] &= (1 << (bits.len() % 8)) - 1;
    }
}

/// Appends each row's bytes, zeros for nulls.
fn put_valid<const N: usize>(
    rows: usize,
    nulls: Option<&NullBuffer>,
    bytes: impl Fn(usize) -> [u8; N],
    out: &mut Vec<u8>,
) {
    out.reserve(rows * N);
    for row in 0..rows {
        let valid = nulls.is_none_or(|nulls| nulls.is_valid(row));
        out.extend_from_slice(&if valid { bytes(row) } else { [0; N] });
    }
}

/// Packs integers; a null row repeats its predecessor, so that it widens no block.
fn put_packed(
    encoding: Encoding,
    rows: usize,
    order: pack::Order,
    nulls: Option<&NullBuffer>,
    value: impl Fn(usize) -> i64,
    out: &mut Vec<u8>,
) -> Gain {
    let mut last = valid_rows(rows, nulls).next().map_or(0, &value);
    let fill = |start: usize, block: &mut [i64]| match nulls {
        None => {
            for (offset, place) in block.iter_mut().enumerate() {
                *place = value(start + offset);
            }
        }
        Some(nulls) => {
            for (offset, place) in block.iter_mut().enumerate() {
                if nulls.is_valid(start + offset) {
                    last = value(start + offset);
                }
                *place = last;
            }
        }
    };
    put_blocks(encoding, rows, order, fill, out)
}

fn put_i64s(values: &[i64], nulls: Option<&NullBuffer>, out: &mut Vec<u8>) -> Gain {
    if nulls.is_some() {
        return put_packed(
            Encoding::Packed,
            values.len(),
            pack::Order::Signed,
            nulls,
            |row| values[row],
            out,
        );
    }
    let fill = |start: usize, block: &mut [i64]| block.copy_from_slice(&values[start..start + block.len()]);
    put_blocks(Encoding::Packed, values.len(), pack::Order::Signed, fill, out)
}

fn put_blocks(
    encoding: Encoding,
    rows: usize,
    order: pack::Order,
    fill: impl FnMut(usize, &mut [i64]),
    out: &mut Vec<u8>,
) -> Gain {
    let start = out.len();
    out.push(encoding as u8);
    if let Some(constant) = pack::encode(rows, order, fill, out)
        && encoding == Encoding::Packed
    {
        out.truncate(start);
        out.push(Encoding::Constant as u8);
        out.extend_from_slice(&constant.to_le_bytes());
    }
    Gain::Packed
}

fn put_floats(values: &[f64], nulls: Option<&NullBuffer>, out: &mut Vec<u8>) -> Gain {
    let start = out.len();
    let mut rows = valid_rows(values.len(), nulls);
    let first = rows.next().map_or(0, |row| values[row].to_bits());
    if rows.all(|row| values[row].to_bits() == first) {
        out.push(Encoding::Constant as u8);
        out.extend_from_slice(&first.to_le_bytes());
        return Gain::Packed;
    }
    out.push(Encoding::Scaled as u8);
    if float::encode(values, nulls, out) {
        return Gain::Packed;
    }
    out.truncate(start);
    out.push(Encoding::Raw as u8);
    put_valid(values.len(), nulls, |row| values[row].to_bits().to_le_bytes(), out);
    Gain::Text
}

fn put_texts<T: arrow_array::types::ByteViewType + ?Sized>(
    array: &arrow_array::GenericByteViewArray<T>,
    out: &mut Vec<u8>,
) -> Result<Gain, CodecError>
where
    T::Native: AsRef<[u8]>,
{
    let start = out.len();
    out.push(Encoding::Dictionary as u8);
    if !text::encode_dictionary(array, out) {
        out.truncate(start);
        out.push(Encoding::Plain as u8);
        text::encode_column(array, out)?;
    }
    Ok(Gain::Text)
}

fn put_addresses(array: &FixedSizeBinaryArray, nulls: Option<&NullBuffer>, out: &mut Vec<u8>) -> Gain {
    let rows = array.len();
    if valid_rows(rows, nulls).all(|row| array.value(row).starts_with(&MAPPED)) {
        let value = |row: usize| match array.value(row)[12..] {
            [a, b, c, d] => i64::from(u32::from_be_bytes([a, b, c, d])),
            _ => 0,
        };
        return put_packed(Encoding::Ipv4, rows, pack::Order::Signed, nulls, value, out);
    }
    out.push(Encoding::Raw as u8);
    let bytes = |row: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(array.value(row));
        bytes
    };
    put_valid(rows, nulls, bytes, out);
    Gain::Text
}

/// Reads a column of `rows` values from its stored bytes, which begin at `pos` of the chunk.
pub(super) fn decode(
    data_type: &DataType,
    rows: usize,
    stored: &[u8],
    pos: u64,
) -> Result<ArrayRef, CodecError> {
    let raw = squeeze::get(stored, pos)?;
    // Positions inside LZ4 bytes have no place in the file: they name the column's first byte.
    let mut cursor = Cursor::new(&raw, pos + 1);
    let nulls = match cursor.u8("null mark")? {
        NO_NULLS => None,
        SOME_NULLS => {
            let bits = cursor.take(rows.div_ceil(8), "null bitmap")?;
            Some(NullBuffer::new(BooleanBuffer::new(Buffer::from(bits), 0, rows)))
        }
        ALL_NULL => return finish(&cursor, new_null_array(data_type, rows)),
        other => return Err(damaged(pos + 1, "null mark", "0, 1 or 2", other)),
    };
    let tag_pos = cursor.pos();
    let tag = cursor.u8("encoding")?;
    let encoding = Encoding::from_tag(tag);
    let refuse = || damaged(tag_pos, "encoding", format_args!("one of {data_type}"), tag);
    let encoding = encoding.ok_or_else(refuse)?;
    let array = decode_values(data_type, encoding, rows, nulls, &mut cursor)?.ok_or_else(refuse)?;
    finish(&cursor, array)
}

fn finish(cursor: &Cursor<'_>, array: ArrayRef) -> Result<ArrayRef, CodecError> {
    if cursor.is_empty() {
        Ok(array)
    } else {
        Err(damaged(cursor.pos(), "end of column", "no more bytes", "some"))
    }
}

/// `None` where the type has no such encoding.
fn decode_values(
    data_type: &DataType,
    encoding: Encoding,
    rows: usize,
    nulls: Option<NullBuffer>,
    cursor: &mut Cursor<'_>,
) -> Result<Option<ArrayRef>, CodecError> {
    use Encoding::{Constant, Dictionary, Ipv4, Packed, Plain, Raw, Scaled};
    Ok(Some(match (data_type, encoding) {
        (DataType::Boolean, Raw) => {
            let bits = cursor.take(rows.div_ceil(8), "booleans")?;
            Arc::new(BooleanArray::new(BooleanBuffer::new(Buffer::from(bits), 0, rows), nulls))
        }
        (DataType::Int64, Packed | Constant) => {
            primitive::<Int64Type>(get_i64s(cursor, encoding, rows)?, nulls)
        }
        (DataType::Timestamp(unit, None), Packed | Constant) => {
            let values = get_i64s(cursor, encoding, rows)?;
            match unit {
                TimeUnit::Second => primitive::<TimestampSecondType>(values, nulls),
                TimeUnit::Millisecond => primitive::<TimestampMillisecondType>(values, nulls),
                TimeUnit::Microsecond => primitive::<TimestampMicrosecondType>(values, nulls),
                TimeUnit::Nanosecond => primitive::<TimestampNanosecondType>(values, nulls),
            }
        }
        (DataType::UInt64, Packed | Constant) => {
            let values = get_i64s(cursor, encoding, rows)?;
            primitive::<UInt64Type>(values.into_iter().map(|value| value as u64).collect(), nulls)
        }
        (DataType::UInt32, Constant) => {
            let value = cursor.i64("constant")? as u32;
            Arc::new(UInt32Array::new(vec![value; rows].into(), nulls))
        }
        (DataType::UInt32, Packed) => {
            let mut values = vec![0; rows];
            for block in values.chunks_mut(pack::BLOCK) {
                pack::decode_block_u32(cursor, block)?;
            }
            Arc::new(UInt32Array::new(values.into(), nulls))
        }
        (DataType::Float64, Constant) => {
            let value = f64::from_bits(cursor.u64("constant")?);
            Arc::new(Float64Array::new(vec![value; rows].into(), nulls))
        }
        (DataType::Float64, Scaled) => {
            Arc::new(Float64Array::new(float::decode(cursor, rows)?.into(), nulls))
        }
        (DataType::Float64, Raw) => {
            let bits = cursor.take(rows * 8, "floats")?.as_chunks::<8>().0;
            let values: Vec<f64> =
                bits.iter().map(|bits| f64::from_bits(u64::from_le_bytes(*bits))).collect();
            Arc::new(Float64Array::new(values.into(), nulls))
        }
        (DataType::Decimal128(precision, scale), Packed | Constant | Raw) => {
            let values: Vec<i128> = if encoding == Raw {
                let words = cursor.take(rows * 16, "decimals")?.as_chunks::<16>().0;
                words.iter().map(|word| i128::from_le_bytes(*word)).collect()
            } else {
                get_i64s(cursor, encoding, rows)?.into_iter().map(i128::from).collect()
            };
            let array = Decimal128Array::new(values.into(), nulls);
            Arc::new(array.with_precision_and_scale(*precision, *scale).map_err(|error| {
                damaged(cursor.pos(), "decimal type", "a precision and scale of Arrow", error)
            })?)
        }
        (DataType::Decimal256(precision, scale), Packed | Constant | Raw) => {
            let values: Vec<i256> = if encoding == Raw {
                let words = cursor.take(rows * 32, "decimals")?.as_chunks::<32>().0;
                words.iter().map(|word| i256::from_le_bytes(*word)).collect()
            } else {
                let narrow = get_i64s(cursor, encoding, rows)?;
                narrow.into_iter().map(|value| i256::from_i128(i128::from(value))).collect()
            };
            let array = Decimal256Array::new(values.into(), nulls);
            Arc::new(array.with_precision_and_scale(*precision, *scale).map_err(|error| {
                damaged(cursor.pos(), "decimal type", "a precision and scale of Arrow", error)
            })?)
        }
        (DataType::Utf8View, Plain) => text::decode_plain::<Utf8Type>(cursor, rows, nulls)?,
        (DataType::Utf8View, Dictionary) => text::decode_dictionary::<Utf8Type>(cursor, rows, nulls)?,
        (DataType::BinaryView, Plain) => text::decode_plain::<BinaryType>(cursor, rows, nulls)?,
        (DataType::BinaryView, Dictionary) => text::decode_dictionary::<BinaryType>(cursor, rows, nulls)?,
        (DataType::FixedSizeBinary(16), Raw | Ipv4) => {
            let bytes = if encoding == Raw {
                cursor.take(rows * 16, "addresses")?.to_vec()
            } else {
                let mut bytes = Vec::with_capacity(rows * 16);
                let mut block = [0_u32; pack::BLOCK];
                for start in (0..rows).step_by(pack::BLOCK) {
                    let block = &mut block[..pack::BLOCK.min(rows - start)];
                    pack::decode_block_u32(cursor, block)?;
                    for address in block {
                        bytes.extend_from_slice(&MAPPED);
                        bytes.extend_from_slice(&address.to_be_bytes());
                    }
                }
                bytes
            };
            let array = FixedSizeBinaryArray::try_new(16, Buffer::from(bytes), nulls)
                .map_err(|error| damaged(cursor.pos(), "addresses", "16 bytes for each row", error))?;
            Arc::new(array)
        }
        _ => return Ok(None),
    }))
}

fn get_i64s(cursor: &mut Cursor<'_>, encoding: Encoding, rows: usize) -> Result<Vec<i64>, CodecError> {
    if encoding == Encoding::Constant {
        return Ok(vec![cursor.i64("constant")?; rows]);
    }
    let mut values = vec![0; rows];
    for block in values.chunks_mut(pack::BLOCK) {
        pack::decode_block(cursor, block)?;
    }
    Ok(values)
}

fn primitive<T: ArrowPrimitiveType<Native: 'static>>(
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
}
