//! Strings and bytes: a dictionary where few are distinct, else lengths and all the bytes.
//!
//! Layout of a plain form (little-endian): prefix length 1, the prefix that all texts begin with (at most 16 bytes),
//! byte count 4, the bytes after the prefixes, packed lengths of those. Keys mostly share a prefix (`card-0000…`),
//! and cutting it off is many times faster than letting LZ4 find it.
//! Layout of a dictionary: entry count 4, the entries in plain form in order of first use, packed codes.
//! Null rows have no prefix and length 0, or code 0.
//!
//! Reading makes views: short texts are in them, longer ones share one buffer that is checked as a whole, and a
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

/// The longest prefix that is cut off: with it a reader allocates at most 16 bytes for each row in addition to the
/// bytes that it is given, as much as for the row's view.
const MAX_PREFIX: usize = 16;

/// The texts of a column.
fn texts<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> impl Iterator<Item = Option<&[u8]>>
where
    T::Native: AsRef<[u8]>,
{
    (0..array.len()).map(|row| array.is_valid(row).then(|| array.value(row).as_ref()))
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
    let mut entries: Vec<Option<&[u8]>> = Vec::new();
    let mut codes: Vec<u32> = Vec::with_capacity(array.len());
    for (row, text) in texts(array).enumerate() {
        let code = text.map_or(0, |text| {
            *numbers.entry(text).or_insert_with(|| {
                entries.push(Some(text));
                entries.len() as u32 - 1
            })
        });
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

fn encode_plain(texts: &[Option<&[u8]>], out: &mut Vec<u8>) -> Result<(), CodecError> {
    let bytes: usize = texts.iter().flatten().map(|text| text.len()).sum();
    if bytes > i32::MAX as usize {
        return Err(CodecError::TooLarge { bytes });
    }
    let prefix = common_prefix(texts);
    out.reserve(32 + bytes);
    out.push(prefix.len() as u8);
    out.extend_from_slice(prefix);
    let len_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut lengths: Vec<u32> = Vec::with_capacity(texts.len());
    for text in texts {
        let rest = text.map_or(&[][..], |text| &text[prefix.len()..]);
        out.extend_from_slice(rest);
        lengths.push(rest.len() as u32);
    }
    let len = (out.len() - len_at - 4) as u32;
    out[len_at..len_at + 4].copy_from_slice(&len.to_le_bytes());
    pack_u32(&lengths, out);
    Ok(())
}

/// What all texts begin with, at most [`MAX_PREFIX`] bytes.
fn common_prefix<'a>(texts: &[Option<&'a [u8]>]) -> &'a [u8] {
    let mut texts = texts.iter().flatten();
    let Some(first) = texts.next() else { return &[] };
    let mut prefix = &first[..first.len().min(MAX_PREFIX)];
    for text in texts {
        if !text.starts_with(prefix) {
            let common = prefix.iter().zip(*text).take_while(|(a, b)| a == b).count();
            prefix = &prefix[..common];
        }
        if prefix.is_empty() {
            break;
        }
    }
    prefix
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
    let prefix_pos = cursor.pos();
    let prefix_len = usize::from(cursor.u8("prefix length")?);
    if prefix_len > MAX_PREFIX {
        return Err(damaged(prefix_pos, "prefix length", format_args!("at most {MAX_PREFIX}"), prefix_len));
    }
    let prefix = cursor.take(prefix_len, "prefix")?;
    let pos = cursor.pos();
    let len = cursor.u32("text bytes")? as usize;
    let bytes = cursor.take(len, "text bytes")?;
    let lengths_pos = cursor.pos();
    let lengths = unpack_u32(cursor, rows)?;
    let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    if total != len as u64 {
        return Err(damaged(lengths_pos, "sum of text lengths", len, total));
    }
    // A null row has no prefix: alone it may end within a character.
    let prefix_of =
        |row: usize| if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) { prefix } else { &[] };
    let null_count = nulls.as_ref().map_or(0, NullBuffer::null_count);
    let whole = len + (rows - null_count) * prefix_len;
    if i32::try_from(whole).is_err() {
        return Err(damaged(pos, "text bytes with prefixes", format_args!("at most {}", i32::MAX), whole));
    }
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0_i32);
    let mut end = 0;
    for (row, length) in lengths.iter().enumerate() {
        end += prefix_of(row).len() as i32 + *length as i32;
        offsets.push(end);
    }
    let bytes = if prefix_len == 0 {
        Buffer::from(bytes)
    } else {
        let mut texts = Vec::with_capacity(whole);
        let mut rest = bytes;
        for (row, length) in lengths.into_iter().enumerate() {
            let (text, behind) = rest.split_at(length as usize);
            texts.extend_from_slice(prefix_of(row));
            texts.extend_from_slice(text);
            rest = behind;
        }
        Buffer::from(texts)
    };
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let array = GenericByteArray::<T>::try_new(offsets, bytes, nulls)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(texts: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_plain(&texts.iter().map(|text| Some(text.as_bytes())).collect::<Vec<_>>(), &mut bytes)
            .unwrap();
        bytes
    }

    fn read(bytes: &[u8], rows: usize) -> Result<Vec<String>, CodecError> {
        use arrow_array::cast::AsArray;
        let array = decode_plain::<Utf8Type>(&mut Cursor::new(bytes, 0), rows, None)?;
        Ok(array.as_string_view().iter().map(|text| text.unwrap().to_owned()).collect())
    }

    #[test]
    fn a_common_prefix_is_stored_once() {
        for (texts, prefix) in [
            (vec!["card-0017", "card-0042", "card-0000000000000"], "card-00"),
            (vec!["aaaaaaaaaaaaaaaaaaaaaaaaaaaa1", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa2"], "aaaaaaaaaaaaaaaa"),
            (vec!["same", "same"], "same"),
            (vec!["", "x"], ""),
            (vec!["one"], "one"),
        ] {
            let bytes = plain(&texts);
            assert_eq!(&bytes[1..=usize::from(bytes[0])], prefix.as_bytes());
            assert_eq!(read(&bytes, texts.len()).unwrap(), texts);
        }
        // A prefix may end within a character: only the whole is text.
        assert_eq!(read(&plain(&["ä", "ö"]), 2).unwrap(), ["ä", "ö"]);
        let mut broken = plain(&["ä", "ö"]);
        broken[1] = 0x41;
        assert!(matches!(read(&broken, 2), Err(CodecError::Damaged { .. })));
    }

    #[test]
    fn codes_without_an_entry_are_refused() {
        for (codes, is_whole) in [([0, 1], true), ([0, 2], false), ([u32::MAX, 0], false)] {
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            bytes.extend_from_slice(&plain(&["x", "y"]));
            pack_u32(&codes, &mut bytes);
            let read = decode_dictionary::<Utf8Type>(&mut Cursor::new(&bytes, 0), 2, None);
            assert_eq!(read.is_ok(), is_whole, "{codes:?}");
        }
    }
}
