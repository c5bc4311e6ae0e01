//! A frame: one message of the log with rows of one sender for one destination, a tick, or a new spec.
//!
//! A destination is a partition of a stage. All of its inputs are in one partition of the log, so a frame may have rows
//! of several inputs, in the order of the sender's positions. Small frames are for low latency, large ones for high
//! rates: a frame of one row takes little more than its values and 40 bytes.
//!
//! * [`Builder`] takes rows and cuts frames; [`tick`] and [`Spec::encode`] make the other kinds.
//! * [`Frame::parse`] reads all three. [`RowFrame::decode`] then reads the rows, if the receiver counts some of them
//!   ([`Through`](crate::positions::Through)).
//!
//! Layout: head (`head`), for rows their number, the position of the first one, the length of the body and the body.
//! The body of rows is their places (`place`), then for each input its rows, column by column (`packed`); LZ4 is over all
//! of it where that pays (`squeeze`). The whole is in `docs/formats/frame.md`.
//!
//! Invariants
//! * The mark before a frame is a function of the sender's input, and not of how its rows are cut into frames.
//! * Every changed bit is found by the checksum.
//! * Reading any bytes ends with a frame or an error, never a panic. A frame of n bytes allocates at most 16 n + 1 MiB at
//!   once.
//!
//! Not here: when a frame is sent, and how much a sender may have in flight.

mod builder;
mod cursor;
mod error;
mod head;
mod packed;
mod place;
mod rows;
mod spec;
mod squeeze;
pub(crate) mod varint;

pub use builder::{Builder, Refused, Row, Sender};
pub use error::{FrameError, Part};
pub use head::Head;
pub use place::{Door, Places, Reply, Run};
pub use rows::{InputRows, RowFrame};
pub use spec::Spec;

use head::Kind;

/// Rows that a frame has at most, and items that all lists of one of its columns have.
///
/// A forged number of rows costs a reader a megabyte for each column.
pub const MAX_ROWS: usize = 1 << 15;

/// Bytes that a row may have in a frame by itself, without its place.
pub const MAX_ROW_BYTES: usize = 1 << 20;

/// Bytes up to which a frame grows: with at least 16 for a row and for an item of a list, there are fewer of either than
/// [`MAX_ROWS`].
pub const MAX_GROWTH: usize = (MAX_ROWS - 1) * 16;

/// How frames are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Bytes of rows up to which a frame grows, before compression; at most [`MAX_GROWTH`]. A larger row has a frame of
    /// its own.
    pub grow_to: usize,
    /// Bits per byte of entropy below which bodies of 1 KiB and more are compressed; 0 is never, 9 is always.
    pub compress_below: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { grow_to: MAX_GROWTH, compress_below: 6.3 }
    }
}

/// A message that was read.
#[derive(Clone, Debug)]
pub enum Frame {
    Rows(RowFrame),
    /// The origin's task time, and by `after` whether rows before it are missing.
    Tick(Head),
    Spec(Spec),
}

impl Frame {
    /// Reads a message, except for the rows themselves.
    ///
    /// # Errors
    /// [`FrameError::Damaged`] with the first mistake, [`FrameError::NewerVersion`].
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        let (kind, flags, mut cursor) = head::open(bytes)?;
        match kind {
            Kind::Rows => RowFrame::read(flags, cursor).map(Frame::Rows),
            Kind::Tick => {
                let head = Head::read(flags, &mut cursor)?;
                cursor.end()?;
                Ok(Frame::Tick(head))
            }
            Kind::Spec => Spec::read(flags, cursor).map(Frame::Spec),
        }
    }
}

/// The checksum that a message carries; `None` if it is too short to be a frame.
pub fn checksum(bytes: &[u8]) -> Option<u32> {
    head::written_checksum(bytes)
}

/// A frame without rows.
pub fn tick(head: &Head) -> Vec<u8> {
    let mut frame = head::begin(Kind::Tick, head.flags());
    head.put(&mut frame);
    head::seal(&mut frame);
    frame
}

/// A frame with a body.
fn with_body(
    kind: Kind,
    flags: u8,
    put_fields: impl FnOnce(&mut Vec<u8>),
    body: &[u8],
    below: f32,
) -> Vec<u8> {
    let (stored, lz4) = squeeze::pack(body, below);
    let mut frame = head::begin(kind, flags | lz4);
    put_fields(&mut frame);
    varint::put(stored.len() as u64, &mut frame);
    frame.extend_from_slice(&stored);
    head::seal(&mut frame);
    frame
}

#[cfg(test)]
mod tests;
