//! Rows of one input as bytes, column by column, each value in about as many bytes as it has.
//!
//! The same form serves one row and thousands. One row takes what its values take, since there are no offsets, lengths
//! of buffers or alignment; many rows are read in one loop for each column, and LZ4 finds what repeats in a column.
//!
//! Layout of a section of rows: flags 1 (persisted: 1 nulls, 2 wide, 4 scaled), bits up to a whole byte, values.
//! * The bits are, the lowest of a byte first: if nulls are flagged, for each column whether some rows are null; if wide
//!   is flagged, for each column of integers or timestamps whether it is wide; if scaled is flagged, for each column of
//!   floats whether it is scaled; for each column with nulls and each row whether it has a value; for each column of
//!   bools and each row the value. The columns are in their order each time.
//! * The values are those of each column in its order, without rows that are null.
//!
//! | type | value |
//! |---|---|
//! | int64, uint64, timestamp | the difference from the row before that has a value, folded, as a varint; of a wide column the 8 bytes |
//! | float64 | its 8 bytes; of a scaled column first a power of ten 1, then the value times that, as an int64 that is not wide |
//! | decimal | the number of its bytes 1, and its lower bytes, the sign in the last of them |
//! | string, bytes | length as a varint, bytes |
//! | ip | length 1 and bytes: 4 of IPv4, else 16 |
//! | list | number of items of each row as a varint; then a section of all items, of one column |
//! | struct | a section of its fields, with one row for each row that has a value |
//!
//! Differences begin at 0, those of timestamps at the arrival of the frame in their unit, and wrap around in 64 bits. A
//! column is wide where that is shorter: then an integer takes at most 8 bytes, and a bit in a frame with such a column. A
//! column is scaled where all of its values are short decimal numbers (`scale`) and that is shorter.
//!
//! Invariants
//! * Values read back with the same bits, NaN payloads and −0 included. Values of null rows are free.
//! * Readers allocate at most 32 bytes for a row of a column or for an item of a list, of which there are at most
//!   [`MAX_ROWS`](super::MAX_ROWS) each.

mod read;
mod scale;
mod weigh;
mod write;

pub(super) use read::read;
pub(super) use weigh::Weights;
pub(super) use write::{Piece, Rows, write};

use arrow_schema::DataType;

/// Flags of a section. Persisted.
const NULLS: u8 = 1;
const WIDE: u8 = 2;
const SCALED: u8 = 4;

/// What the addresses of version 4 begin with.
const IPV4: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Whether values of a type are written as differences.
fn has_differences(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int64 | DataType::UInt64 | DataType::Timestamp(..))
}

fn is_float(data_type: &DataType) -> bool {
    *data_type == DataType::Float64
}
