//! A chunk: one sealed, compressed, columnar piece of a task's records, as bytes.
//!
//! Layout: head (`head`), then the columns' bytes in the order of the directory (`column`). The head comes
//! first and knows each column's length and checksum, so the index of a store is rebuilt from heads alone and a
//! projection reads only its columns.
//!
//! | type | stored as |
//! |---|---|
//! | integers, timestamps, u32 | one value, or blocks of base + packed bits, of values or of their deltas (`pack`) |
//! | float64 | one value, whole numbers over a power of ten packed as integers (`float`), or raw |
//! | decimals | packed integers where all fit 64 bits, else raw words |
//! | string, bytes | dictionary and packed codes where few are distinct, else packed lengths and all bytes (`text`) |
//! | bool | bitmap |
//! | 16-byte addresses | IPv4 as packed integers, else raw |
//!
//! over which LZ4 goes where a sample says that it pays (`squeeze`). Speed goes before ratio: a chunk is decoded
//! once for each window edge that passes it, and the disk is read ahead.
//!
//! Invariants
//! * What is read has the bits that were written, NaN payloads and −0 included; values under nulls are free.
//! * Decoding any bytes ends with arrays or an error, never a panic; what it allocates is bounded by the row count
//!   times the width of the type, or by 16 times the bytes at hand and 1 MiB.
//! * Equal batches give equal bytes.
//!
//! Not here: files and their chain (`crate::store`), what the columns are called (`crate::schemas`).

mod column;
mod cursor;
mod float;
pub(crate) mod head;
mod pack;
mod squeeze;
mod text;
mod widen;

use std::fmt;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::DataType;

pub use head::{ChunkHead, ChunkInfo, ColumnEntry};
pub use widen::{can_widen, widen};

/// Rows that a chunk may have: with at most 32 bytes for a value a forged row count costs 32 MiB for a column,
/// and 20 bits are four times what a window store seals.
pub const MAX_ROWS: usize = 1 << 20;

/// An error of encoding or decoding, with positions counted from the chunk's first byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    #[error("damaged chunk at byte {pos}: {what}: expected {expected}, got {got}")]
    Damaged { pos: u64, what: &'static str, expected: String, got: String },
    #[error("column is stored as {stored} and cannot be read as {wanted}")]
    Type { stored: DataType, wanted: DataType },
    #[error("value {value} at row {row}, stored as {stored}, does not fit {wanted}")]
    Overflow { row: usize, value: i64, stored: DataType, wanted: DataType },
    #[error("type {data_type} has no stored form")]
    Unsupported { data_type: DataType },
    #[error("format {found} of a chunk at byte {pos}, and this build reads up to {newest}")]
    NewerFormat { pos: u64, found: u16, newest: u16 },
    #[error("a chunk holds 1 to {MAX_ROWS} rows, got {rows}")]
    RowCount { rows: usize },
    #[error("a column of a chunk holds at most 2 GiB, got {bytes} bytes")]
    TooLarge { bytes: usize },
}

fn damaged(pos: u64, what: &'static str, expected: impl fmt::Display, got: impl fmt::Display) -> CodecError {
    CodecError::Damaged { pos, what, expected: expected.to_string(), got: got.to_string() }
}

/// The bytes of a batch's columns, before it is known where they go.
#[derive(Clone, Debug)]
pub struct EncodedColumns {
    rows: u32,
    columns: Vec<ColumnEntry>,
    body: Vec<u8>,
}

/// Encodes a batch's columns.
///
/// # Errors
/// [`CodecError::RowCount`], [`CodecError::Unsupported`] and [`CodecError::TooLarge`].
pub fn encode_columns(batch: &RecordBatch) -> Result<EncodedColumns, CodecError> {
    let rows = batch.num_rows();
    if rows == 0 || rows > MAX_ROWS {
        return Err(CodecError::RowCount { rows });
    }
    let mut body = Vec::with_capacity(batch.num_columns() * rows * 4);
    let mut columns = Vec::with_capacity(batch.num_columns());
    for array in batch.columns() {
        let start = body.len();
        column::encode(array, &mut body)?;
        let len = body.len() - start;
        if len > i32::MAX as usize {
            return Err(CodecError::TooLarge { bytes: len });
        }
        columns.push(ColumnEntry {
            data_type: array.data_type().clone(),
            offset: start as u64,
            len: len as u32,
            crc: crc32fast::hash(&body[start..]),
        });
    }
    Ok(EncodedColumns { rows: rows as u32, columns, body })
}

impl EncodedColumns {
    /// The whole chunk, at the place that `info` gives it, and the checksum of its head.
    pub fn finish(self, info: &ChunkInfo) -> (Vec<u8>, u32) {
        let (mut bytes, crc) = head::encode(info, self.rows, &self.columns);
        bytes.extend_from_slice(&self.body);
        (bytes, crc)
    }
}

/// Encodes a batch as a whole chunk.
///
/// # Errors
/// As [`encode_columns`].
pub fn encode(info: &ChunkInfo, batch: &RecordBatch) -> Result<Vec<u8>, CodecError> {
    Ok(encode_columns(batch)?.finish(info).0)
}

/// Reads columns of a whole chunk at hand.
#[derive(Clone, Debug)]
pub struct ChunkReader<'a> {
    head: ChunkHead,
    body: &'a [u8],
}

impl<'a> ChunkReader<'a> {
    /// Parses the head of a chunk and finds its columns; `bytes` may go on after it.
    ///
    /// # Errors
    /// [`CodecError::Damaged`] where the head is not whole or the body is cut.
    pub fn open(bytes: &'a [u8]) -> Result<Self, CodecError> {
        let head = ChunkHead::parse(bytes)?;
        let rest = bytes.get(head.head_len as usize..).unwrap_or_default();
        let body = usize::try_from(head.body_len())
            .ok()
            .and_then(|len| rest.get(..len))
            .ok_or_else(|| damaged(u64::from(head.head_len), "chunk body", head.body_len(), rest.len()))?;
        Ok(Self { head, body })
    }

    pub fn head(&self) -> &ChunkHead {
        &self.head
    }

    /// Decodes one column as `wanted`: its stored type or one that it widens to ([`widen()`]).
    ///
    /// # Errors
    /// [`CodecError`].
    ///
    /// # Panics
    /// If there is no column `index`.
    pub fn column(&self, index: usize, wanted: &DataType) -> Result<ArrayRef, CodecError> {
        let entry = &self.head.columns[index];
        let start = entry.offset as usize;
        self.head.decode_column(index, &self.body[start..start + entry.len as usize], wanted)
    }
}

impl ChunkHead {
    /// Decodes a column from its own bytes, for readers that fetch only those.
    ///
    /// # Errors
    /// [`CodecError`].
    ///
    /// # Panics
    /// If there is no column `index`.
    pub fn decode_column(
        &self,
        index: usize,
        bytes: &[u8],
        wanted: &DataType,
    ) -> Result<ArrayRef, CodecError> {
        let entry = &self.columns[index];
        if !can_widen(&entry.data_type, wanted) {
            return Err(CodecError::Type { stored: entry.data_type.clone(), wanted: wanted.clone() });
        }
        let pos = u64::from(self.head_len) + entry.offset;
        let crc = crc32fast::hash(bytes);
        if crc != entry.crc {
            return Err(damaged(
                pos,
                "column checksum",
                format_args!("{:#010x}", entry.crc),
                format_args!("{crc:#010x}"),
            ));
        }
        let array = column::decode(&entry.data_type, self.rows as usize, bytes, pos)?;
        widen(&array, wanted)
    }
}

#[cfg(test)]
mod tests;
