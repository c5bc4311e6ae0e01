//! Strings and bytes: a dictionary where few are distinct, else lengths and all the bytes.
//!
//! Layout of a plain form (little-endian): byte count 4, the bytes, packed lengths.
//! Layout of a dictionary: entry count 4, the entries in plain form in order of first use, packed codes.
//! Null rows have length 0 or code 0.
//!
//! Reading makes views: short texts stand in them, longer ones share one buffer that is checked as a whole, and a
//! dictionary's views are only copied.

use std::sync::Arc;

use arrow_array::types::ByteViewType;
use arrow_array::types::{BinaryType, ByteArrayType, Utf8Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, GenericByteArray, GenericByteViewArray, StringViewArray, UInt32Array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use hashbrown::HashMap;

use super::cursor::Cursor;
use super::{CodecError, damaged, pack};

/// Distinct texts beyond which a dictionary is given up: their views would no longer stay in the cache.
const MAX_ENTRIES: usize = 1 << 16;

/// A dictionary saves only where texts repeat: at most one entry for three rows.
const ROWS_PER_ENTRY: usize = 3;

/// Rows after which a column that hardly repeats is given up early.
const PROBE: usize = 2048;

/// The texts of a column, null ones empty.
fn texts<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> impl Iterator<Item = &[u8]>
where
    T::Native: AsRef<[u8]>,
{
    (0..array.len()).map(|row| if array.is_null(row) { &[][..] } else { array.value(row).as_ref() })
}

/// Appends a dictionary form, or nothing where it does not suit.
pub(super) fn encode_dictionary<T: ByteViewType + ?Sized>(
    array: &GenericByteViewArray<T>,
    out: &mut Vec<u8>,
) -> bool
where
    T::Native: AsRef<[u8]>,
{
    let most = MAX_ENTRIES.min(array.len() / ROWS_PER_ENTRY);
    let mut numbers: HashMap<&[u8], u32> = HashMap::new();
    let mut entries: Vec<&[u8]> = Vec::new();
    let mut codes: Vec<u32> = Vec::with_capacity(array.len());
    for (row, text) in texts(array).enumerate() {
        let code = if array.is_null(row) {
            0
        } else {
            *numbers.entry(text).or_insert_with(|| {
                entries.push(text);
                entries.len() as u32 - 1
            })
        };
        codes.push(code);
        if entries.len() > most || (row == PROBE && entries.len() > PROBE / 10 * 9) {
            return false;
        }
    }
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    if encode_plain(&entries, out).is_err() {
        // Texts of more than 2 GiB: the plain form of the column will say so.
        return false;
    }
    pack_u32(&codes, out);
    true
}

/// Appends the plain form of a column.
pub(super) fn encode_column<T: ByteViewType + ?Sized>(
    array: &GenericByteViewArray<T>,
    out: &mut Vec<u8>,
) -> Result<(), CodecError>
where
    T::Native: AsRef<[u8]>,
{
    encode_plain(&texts(array).collect::<Vec<_>>(), out)
}

fn encode_plain(texts: &[&[u8]], out: &mut Vec<u8>) -> Result<(), CodecError> {
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if bytes > i32::MAX as usize {
        return Err(CodecError::TooLarge { bytes });
    }
    out.reserve(4 + bytes);
    out.extend_from_slice(&(bytes as u32).to_le_bytes());
    for text in texts {
        out.extend_from_slice(text);
    }
    let lengths: Vec<u32> = texts.iter().map(|text| text.len() as u32).collect();
    pack_u32(&lengths, out);
    Ok(())
}

fn pack_u32(values: &[u32], out: &mut Vec<u8>) {
    let fill = |start: usize, block: &mut [i64]| {
        for (place, value) in block.iter_mut().zip(&values[start..]) {
            *place = i64::from(*value);
        }
    };
    pack::encode(values.len(), pack::Order::Signed, fill, out);
}

fn unpack_u32(cursor: &mut Cursor<'_>, rows: usize) -> Result<Vec<u32>, CodecError> {
    let mut values = vec![0; rows];
    for block in values.chunks_mut(pack::BLOCK) {
        pack::decode_block_u32(cursor, block)?;
    }
    Ok(values)
}

/// The two kinds of texts, over one decoder.
pub(super) trait Text: ByteArrayType<Offset = i32> + Sized {
    fn views(array: &GenericByteArray<Self>) -> ArrayRef;
}

impl Text for Utf8Type {
    fn views(array: &GenericByteArray<Self>) -> ArrayRef {
        Arc::new(StringViewArray::from(array))
    }
}

impl Text for BinaryType {
    fn views(array: &GenericByteArray<Self>) -> ArrayRef {
        Arc::new(BinaryViewArray::from(array))
    }
}

/// Reads a plain form of `rows` texts.
pub(super) fn decode_plain<T: Text>(
    cursor: &mut Cursor<'_>,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, CodecError> {
    let pos = cursor.pos();
    let len = cursor.u32("text bytes")? as usize;
    let bytes = cursor.take(len, "text bytes")?;
    let lengths_pos = cursor.pos();
    let lengths = unpack_u32(cursor, rows)?;
    let mut offsets = Vec::with_capacity(rows + 1);
    let mut end = 0_u64;
    offsets.push(0_i32);
    for length in lengths {
        end += u64::from(length);
        // Offsets past the end are refused below; saturating keeps them ascending until then.
        offsets.push(i32::try_from(end).unwrap_or(i32::MAX));
    }
    if end != len as u64 || end > i32::MAX as u64 {
        return Err(damaged(lengths_pos, "sum of text lengths", len, end));
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let array = GenericByteArray::<T>::try_new(offsets, Buffer::from(bytes), nulls)
        .map_err(|error| damaged(pos + 4, "text bytes", "UTF-8", error))?;
    Ok(T::views(&array))
}

/// Reads a dictionary form.
pub(super) fn decode_dictionary<T: Text>(
    cursor: &mut Cursor<'_>,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, CodecError> {
    let pos = cursor.pos();
    let entries = cursor.u32("dictionary size")? as usize;
    if entries == 0 || entries > rows {
        return Err(damaged(pos, "dictionary size", format_args!("1 to {rows}"), entries));
    }
    let dictionary = decode_plain::<T>(cursor, entries, None)?;
    let codes_pos = cursor.pos();
    let codes = unpack_u32(cursor, rows)?;
    if let Some(code) = codes.iter().copied().max().filter(|code| *code as usize >= entries) {
        return Err(damaged(codes_pos, "dictionary code", format_args!("below {entries}"), code));
    }
    let codes = UInt32Array::new(codes.into(), nulls);
    arrow_select::take::take(&dictionary, &codes, None)
        .map_err(|error| damaged(codes_pos, "dictionary codes", "codes of entries", error))
}
