//! The head of a chunk: what it is, where it belongs, and a directory of its columns.
//!
//! Layout (little-endian):
//!
//! | bytes | field | why here |
//! |---|---|---|
//! | 4 | magic | a scan after damage looks for it |
//! | 2 | format | before anything that may differ between formats |
//! | 2 | column count | gives, with the next, the length of the head |
//! | 4 | head length | lets a reader fetch the head whole before it understands it |
//! | 8 | task | identity: a chunk in another task's file is refused |
//! | 8 | number | identity: a doubled or lost chunk is seen |
//! | 4 | previous checksum | chains the heads of a file |
//! | 4 | rows | |
//! | 4 | schema id | |
//! | 8, 8 | first and last event time | the index is rebuilt from heads |
//! | 12 × columns | type tag 1, precision 1, scale 1, zero 1, length 4, checksum 4 | lengths in order are offsets |
//! | 4 | checksum of all that | last, so that it covers the rest; covers the columns through theirs |
//!
//! Every format has magic, format and head length here and the checksum last, so that a reader can distinguish a newer
//! one from damage.

use arrow_schema::{DataType, TimeUnit};
use thalweg_types::Micros;

use super::cursor::Cursor;
use super::{CodecError, MAX_ROWS, damaged};

/// First bytes of a chunk. Persisted.
pub(crate) const MAGIC: [u8; 4] = [0xf7, b'T', b'c', 0xf2];

const FORMAT: u16 = 1;
/// Where it is.
const FORMAT_AT: u64 = 4;

const FIXED: usize = 4 + 2 + 2 + 4 + 8 + 8 + 4 + 4 + 4 + 8 + 8;
const ENTRY: usize = 12;

/// Bytes that tell how long the head is.
pub(crate) const PREFIX: usize = 12;

/// The place of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    pub task: u64,
    /// Number of the chunk in its store.
    pub number: u64,
    /// Checksum of the head before it in the file, or of the file's header.
    pub previous: u32,
    pub schema_id: u32,
    pub first_time: Micros,
    pub last_time: Micros,
}

/// A column of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnEntry {
    pub data_type: DataType,
    /// First byte, counted from the end of the head.
    pub offset: u64,
    pub len: u32,
    pub crc: u32,
}

/// A parsed head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    pub info: ChunkInfo,
    pub rows: u32,
    pub columns: Vec<ColumnEntry>,
    pub head_len: u32,
    pub crc: u32,
}

/// The head's bytes and its checksum.
pub(super) fn encode(info: &ChunkInfo, rows: u32, columns: &[ColumnEntry]) -> (Vec<u8>, u32) {
    let column_count = u16::try_from(columns.len()).expect("a record has fewer than 65,536 fields");
    let head_len = FIXED + ENTRY * columns.len() + 4;
    let mut out =
        Vec::with_capacity(head_len + columns.iter().map(|entry| entry.len as usize).sum::<usize>());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&column_count.to_le_bytes());
    out.extend_from_slice(&(head_len as u32).to_le_bytes());
    out.extend_from_slice(&info.task.to_le_bytes());
    out.extend_from_slice(&info.number.to_le_bytes());
    out.extend_from_slice(&info.previous.to_le_bytes());
    out.extend_from_slice(&rows.to_le_bytes());
    out.extend_from_slice(&info.schema_id.to_le_bytes());
    out.extend_from_slice(&info.first_time.to_le_bytes());
    out.extend_from_slice(&info.last_time.to_le_bytes());
    for entry in columns {
        out.extend_from_slice(&type_tag(&entry.data_type).expect("encoded columns have stored types"));
        out.extend_from_slice(&entry.len.to_le_bytes());
        out.extend_from_slice(&entry.crc.to_le_bytes());
    }
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    debug_assert_eq!(out.len(), head_len);
    (out, crc)
}

/// The length of the head that begins with `prefix`, where it begins with one.
pub(crate) fn head_len(prefix: &[u8]) -> Result<usize, CodecError> {
    let mut cursor = Cursor::new(prefix, 0);
    let magic = cursor.take(4, "chunk magic")?;
    if magic != MAGIC {
        return Err(damaged(0, "chunk magic", format_args!("{MAGIC:02x?}"), format_args!("{magic:02x?}")));
    }
    let format = cursor.u16("chunk format")?;
    let expected = FIXED + ENTRY * usize::from(cursor.u16("column count")?) + 4;
    let len = cursor.u32("head length")?;
    // How long its head is, a newer format says by itself; whether it is one is shown by the checksum at its end.
    if format > FORMAT && len as usize >= PREFIX + 4 {
        return Ok(len as usize);
    }
    if format != FORMAT {
        return Err(damaged(FORMAT_AT, "chunk format", FORMAT, format));
    }
    if len as usize != expected {
        return Err(damaged(8, "head length", expected, len));
    }
    Ok(expected)
}

impl ChunkHead {
    /// Parses the head at the start of `bytes`.
    ///
    /// # Errors
    /// [`CodecError::Damaged`] with the first mistake, [`CodecError::NewerFormat`].
    pub fn parse(bytes: &[u8]) -> Result<Self, CodecError> {
        let head_len = head_len(bytes)?;
        let mut cursor = Cursor::new(bytes, 0);
        let covered = cursor.take(head_len - 4, "chunk head")?;
        let crc = cursor.u32("head checksum")?;
        let actual = crc32fast::hash(covered);
        if actual != crc {
            return Err(damaged(
                (head_len - 4) as u64,
                "head checksum",
                format_args!("{crc:#010x}"),
                format_args!("{actual:#010x}"),
            ));
        }
        let mut cursor = Cursor::new(&covered[FORMAT_AT as usize..], FORMAT_AT);
        let format = cursor.u16("chunk format")?;
        if format != FORMAT {
            return Err(CodecError::NewerFormat { pos: FORMAT_AT, found: format, newest: FORMAT });
        }
        let mut cursor = Cursor::new(&covered[PREFIX..], PREFIX as u64);
        let (task, number) = (cursor.u64("task")?, cursor.u64("chunk number")?);
        let previous = cursor.u32("previous checksum")?;
        let rows = cursor.u32("row count")?;
        if rows == 0 || rows as usize > MAX_ROWS {
            return Err(damaged(32, "row count", format_args!("1 to {MAX_ROWS}"), rows));
        }
        let schema_id = cursor.u32("schema id")?;
        let (first_time, last_time) = (cursor.i64("first time")?, cursor.i64("last time")?);
        let mut offset = 0;
        let mut columns = Vec::with_capacity((head_len - FIXED - 4) / ENTRY);
        while !cursor.is_empty() {
            let pos = cursor.pos();
            let tag = cursor.take(4, "column type")?;
            let data_type = tagged_type([tag[0], tag[1], tag[2], tag[3]]).ok_or_else(|| {
                damaged(pos, "column type", "a tag of this format", format_args!("{tag:02x?}"))
            })?;
            let (len, crc) = (cursor.u32("column length")?, cursor.u32("column checksum")?);
            columns.push(ColumnEntry { data_type, offset, len, crc });
            offset += u64::from(len);
        }
        let info = ChunkInfo { task, number, previous, schema_id, first_time, last_time };
        Ok(Self { info, rows, columns, head_len: head_len as u32, crc })
    }

    /// Bytes of all columns.
    pub fn body_len(&self) -> u64 {
        self.columns.last().map_or(0, |entry| entry.offset + u64::from(entry.len))
    }

    /// Bytes of the chunk.
    pub fn total_len(&self) -> u64 {
        u64::from(self.head_len) + self.body_len()
    }
}

/// Tag, precision, scale and a zero of a type. Persisted, do not renumber.
pub(crate) fn type_tag(data_type: &DataType) -> Option<[u8; 4]> {
    Some(match data_type {
        DataType::Boolean => [1, 0, 0, 0],
        DataType::Int64 => [2, 0, 0, 0],
        DataType::UInt64 => [3, 0, 0, 0],
        DataType::UInt32 => [4, 0, 0, 0],
        DataType::Float64 => [5, 0, 0, 0],
        DataType::Decimal128(precision, scale) => [6, *precision, *scale as u8, 0],
        DataType::Decimal256(precision, scale) => [7, *precision, *scale as u8, 0],
        DataType::Timestamp(TimeUnit::Second, None) => [8, 0, 0, 0],
        DataType::Timestamp(TimeUnit::Millisecond, None) => [9, 0, 0, 0],
        DataType::Timestamp(TimeUnit::Microsecond, None) => [10, 0, 0, 0],
        DataType::Timestamp(TimeUnit::Nanosecond, None) => [11, 0, 0, 0],
        DataType::Utf8View => [12, 0, 0, 0],
        DataType::BinaryView => [13, 0, 0, 0],
        DataType::FixedSizeBinary(16) => [14, 0, 0, 0],
        _ => return None,
    })
}

/// The type of a tag.
pub(crate) fn tagged_type(tag: [u8; 4]) -> Option<DataType> {
    let data_type = match tag {
        [1, ..] => DataType::Boolean,
        [2, ..] => DataType::Int64,
        [3, ..] => DataType::UInt64,
        [4, ..] => DataType::UInt32,
        [5, ..] => DataType::Float64,
        [6, precision @ 1..=38, scale, _] => DataType::Decimal128(precision, scale as i8),
        [7, precision @ 1..=76, scale, _] => DataType::Decimal256(precision, scale as i8),
        [8, ..] => DataType::Timestamp(TimeUnit::Second, None),
        [9, ..] => DataType::Timestamp(TimeUnit::Millisecond, None),
        [10, ..] => DataType::Timestamp(TimeUnit::Microsecond, None),
        [11, ..] => DataType::Timestamp(TimeUnit::Nanosecond, None),
        [12, ..] => DataType::Utf8View,
        [13, ..] => DataType::BinaryView,
        [14, ..] => DataType::FixedSizeBinary(16),
        _ => return None,
    };
    // Bytes that the tag does not use are zero, and a scale is within its precision.
    let scale_fits = match data_type {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            scale.unsigned_abs() <= precision
        }
        _ => true,
    };
    (scale_fits && type_tag(&data_type) == Some(tag)).then_some(data_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_reads_back_and_others_are_refused() {
        let mut known = 0;
        for tag in 0..=u8::MAX {
            for precision in [0, 1, 38, 39, 76, 77] {
                for scale in [0, 1, 200] {
                    if let Some(data_type) = tagged_type([tag, precision, scale, 0]) {
                        assert_eq!(type_tag(&data_type), Some([tag, precision, scale, 0]));
                        known += 1;
                    }
                }
            }
        }
        // Of scales 0, 1 and −56 the last needs 76 digits.
        assert_eq!(
            known,
            12 + 2 * 2 + (3 * 2 + 3),
            "plain types, decimals of 1 and 38 digits, and of 1 to 76"
        );
    }

    #[test]
    fn head_reads_back() {
        let info =
            ChunkInfo { task: 1, number: 2, previous: 3, schema_id: 4, first_time: -5, last_time: i64::MAX };
        let entry = |data_type, offset, len| ColumnEntry { data_type, offset, len, crc: 9 };
        let columns = vec![entry(DataType::Int64, 0, 10), entry(DataType::Decimal128(10, 2), 10, 0)];
        let (bytes, crc) = encode(&info, 77, &columns);
        let head = ChunkHead::parse(&bytes).unwrap();
        assert_eq!(head, ChunkHead { info, rows: 77, columns, head_len: bytes.len() as u32, crc });
        assert_eq!(head.total_len(), bytes.len() as u64 + 10);
    }
}
