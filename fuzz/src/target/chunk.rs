//! Chunks: the first byte says whether checksums are made right first, the rest is the chunk.
//!
//! Without that no code after a checksum check would ever be reached.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int64Array, RecordBatch,
    StringViewArray, TimestampMicrosecondArray, UInt32Array,
};
use thalweg_storage::chunk::{ChunkInfo, ChunkReader, encode};

use crate::Target;

pub const TARGET: Target = Target { name: "chunk", run, seeds, words: &[], allowance };

/// A chunk's rows are bounded, and so is what a forged count of them costs: the widest type has 32 bytes.
fn allowance(data: &[u8]) -> usize {
    let bytes = input(data);
    ChunkReader::open(&bytes).map_or(0, |reader| 32 * reader.head().rows as usize)
}

pub fn run(data: &[u8]) {
    let bytes = input(data);
    let Ok(reader) = ChunkReader::open(&bytes) else { return };
    for (index, column) in reader.head().columns.iter().enumerate() {
        if let Ok(array) = reader.column(index, &column.data_type) {
            assert_eq!(array.len(), reader.head().rows as usize, "a column of another length");
            assert_eq!(array.data_type(), &column.data_type);
        }
    }
}

fn input(data: &[u8]) -> Vec<u8> {
    match data {
        [0, chunk @ ..] => chunk.to_vec(),
        [_, chunk @ ..] => repaired(chunk.to_vec()),
        [] => Vec::new(),
    }
}

/// Bytes of the head before the directory, and of one entry of it (`storage/src/chunk/head.rs`).
const FIXED: usize = 56;
const ENTRY: usize = 12;

/// Makes the head's length and all checksums fit the bytes.
fn repaired(mut chunk: Vec<u8>) -> Vec<u8> {
    let Some(count) = chunk.get(6..8).map(|count| usize::from(u16::from_le_bytes([count[0], count[1]])))
    else {
        return chunk;
    };
    let head_len = FIXED + ENTRY * count + 4;
    if chunk.len() < head_len {
        return chunk;
    }
    chunk[8..12].copy_from_slice(&(head_len as u32).to_le_bytes());
    let mut start = head_len;
    for entry in (0..count).map(|number| FIXED + ENTRY * number) {
        let len = u32::from_le_bytes(chunk[entry + 4..entry + 8].try_into().expect("four bytes")) as usize;
        let Some(column) = start.checked_add(len).and_then(|end| chunk.get(start..end)) else { break };
        let crc = crc32fast::hash(column);
        chunk[entry + 8..entry + 12].copy_from_slice(&crc.to_le_bytes());
        start += len;
    }
    let crc = crc32fast::hash(&chunk[..head_len - 4]);
    chunk[head_len - 4..head_len].copy_from_slice(&crc.to_le_bytes());
    chunk
}

fn seeds() -> Vec<Vec<u8>> {
    let info = ChunkInfo { task: 1, number: 2, previous: 3, schema_id: 4, first_time: 5, last_time: 60 };
    let addresses = |v4: bool| -> ArrayRef {
        let address = move |row: i64| {
            let mut bytes = [if v4 { 0 } else { 7 }; 16];
            bytes[10..12].fill(0xff);
            bytes[15] = row as u8;
            bytes
        };
        Arc::new(FixedSizeBinaryArray::try_from_iter((0..ROWS).map(address)).expect("16 bytes each"))
    };
    let text = |distinct: i64| -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values(
            (0..ROWS).map(|row| format!("merchant-number-{}", row % distinct)),
        ))
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from_iter_values(
            (0..ROWS).map(|row| 1_700_000_000_000_000 + row * row),
        )),
        Arc::new(UInt32Array::from_iter_values((0..ROWS).map(|row| (row * 7 % 13) as u32))),
        Arc::new(Int64Array::from_iter((0..ROWS).map(|row| (row % 5 > 0).then_some(row)))),
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(|_| 42))),
        Arc::new(Float64Array::from_iter_values((0..ROWS).map(|row| row as f64 / 100.0))),
        Arc::new(Float64Array::from_iter_values((0..ROWS).map(|row| (row as f64).sqrt()))),
        Arc::new(Decimal128Array::from_iter_values((0..ROWS).map(|row| i128::from(row) << 70))),
        Arc::new(BooleanArray::from_iter((0..ROWS).map(|row| (row % 3 > 0).then_some(row % 2 == 0)))),
        text(3),
        text(ROWS),
        addresses(true),
        addresses(false),
    ];
    let mut seeds = Vec::new();
    for column in columns {
        let records = RecordBatch::try_from_iter([("field", column)]).expect("one column");
        let chunk = encode(&info, &records).expect("every stored type");
        seeds.push([&[0], chunk.as_slice()].concat());
        seeds.push([&[1], chunk.as_slice()].concat());
    }
    seeds
}

const ROWS: i64 = 60;
