//! What a frame says before its body: what it is, who sent it, and where its rows belong.
//!
//! Layout (little-endian): magic 3, version 1, checksum 4, kind 1, encoding 1, flags 1, fields by kind.
//! * Magic, version and checksum are here in every version, so that a reader can tell a newer one from damage.
//! * The checksum covers all other bytes of the frame, those before it too.
//!
//! Fields of rows and of a tick: spec number, origin (the incarnation of a door 8, or stage and partition), lineage 8
//! if flagged, `after` (offset, row, rows made), arrival 8, and task time if flagged, as arrival less task time.
//! Numbers without a width are varints. Times differ by little, and rows of a frame are close to each other, so each
//! is written as the difference from what is before it.

use thalweg_types::Micros;

use super::cursor::Cursor;
use super::{FrameError, Part, varint};
use crate::positions::{Mark, Origin, Position};

/// First bytes of a frame. Persisted.
const MAGIC: [u8; 3] = *b"\xf7TK";
/// The newest version, which this build writes.
const VERSION: u8 = 1;
const CHECKSUM_AT: usize = 4;
/// Bytes before the fields.
const FIXED: usize = 11;

/// What a frame is for. Persisted, do not renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rows = 1,
    Tick = 2,
    Spec = 3,
}

/// What the body is. Persisted, do not renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// There is no body.
    Nothing = 0,
    /// Places and columns.
    Packed = 1,
    /// UTF-8.
    Text = 2,
}

/// Flags. Persisted.
pub(super) const DOOR: u8 = 1;
pub(super) const LINEAGE: u8 = 2;
pub(super) const TASK_TIME: u8 = 4;
/// The body is a length and an LZ4 block.
pub(super) const LZ4: u8 = 8;
/// The rows are of several inputs.
pub(super) const RUNS: u8 = 16;
/// The rows arrived at different times.
pub(super) const ARRIVALS: u8 = 32;
/// Somebody waits for answers to some rows.
pub(super) const REPLIES: u8 = 64;

const OF_SENDER: u8 = DOOR | LINEAGE | TASK_TIME;

impl Kind {
    fn encoding(self) -> Encoding {
        match self {
            Kind::Rows => Encoding::Packed,
            Kind::Tick => Encoding::Nothing,
            Kind::Spec => Encoding::Text,
        }
    }

    fn flags(self) -> u8 {
        match self {
            Kind::Rows => OF_SENDER | LZ4 | RUNS | ARRIVALS | REPLIES,
            Kind::Tick => OF_SENDER,
            Kind::Spec => LZ4,
        }
    }
}

/// The sender of a frame, and where in its output the frame is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the spec by which the sender works. It gives the schema of each input.
    pub spec: u64,
    pub origin: Origin,
    /// Which opening of the unit's state for writing sent this; a door has none.
    pub lineage: Option<u64>,
    /// The mark before the first row.
    pub after: Mark,
    /// When the first row arrived at the door that took it in; of a tick, when it was made.
    pub arrival: Micros,
    /// The origin's task time; `None` before its first record.
    pub task_time: Option<Micros>,
}

/// The checksum as it is written.
pub(super) fn written_checksum(bytes: &[u8]) -> Option<u32> {
    let written = bytes.get(CHECKSUM_AT..CHECKSUM_AT + 4)?;
    written.try_into().ok().map(u32::from_le_bytes)
}

/// A frame without its fields.
pub(super) fn begin(kind: Kind, flags: u8) -> Vec<u8> {
    debug_assert_eq!(flags & !kind.flags(), 0, "flags of another kind");
    let mut frame = Vec::with_capacity(128);
    frame.extend_from_slice(&MAGIC);
    frame.push(VERSION);
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&[kind as u8, kind.encoding() as u8, flags]);
    frame
}

/// Puts the checksum in.
pub(super) fn seal(frame: &mut [u8]) {
    let checksum = checksum(frame);
    frame[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[..CHECKSUM_AT]);
    hasher.update(&frame[CHECKSUM_AT + 4..]);
    hasher.finalize()
}

/// Checks all bytes of a frame. Its kind, its flags, and a cursor at its fields.
pub(super) fn open(frame: &[u8]) -> Result<(Kind, u8, Cursor<'_>), FrameError> {
    let mut cursor = Cursor::new(frame, Part::Frame, 0);
    let magic = cursor.take(MAGIC.len(), "magic")?;
    if magic != MAGIC {
        return Err(cursor.damaged(0, "magic", format_args!("{MAGIC:02x?}"), format_args!("{magic:02x?}")));
    }
    let version = cursor.u8("version")?;
    let expected = cursor.u32("checksum")?;
    let actual = checksum(frame);
    if actual != expected {
        let got = format_args!("{actual:#010x}");
        return Err(cursor.damaged(CHECKSUM_AT as u64, "checksum", format_args!("{expected:#010x}"), got));
    }
    if version > VERSION {
        return Err(FrameError::NewerVersion { found: version, newest: VERSION });
    }
    if version != VERSION {
        return Err(cursor.damaged(3, "version", VERSION, version));
    }
    let kind = match cursor.u8("kind")? {
        1 => Kind::Rows,
        2 => Kind::Tick,
        3 => Kind::Spec,
        other => return Err(cursor.damaged(8, "kind", "1 to 3", other)),
    };
    let encoding = cursor.u8("encoding")?;
    if encoding != kind.encoding() as u8 {
        return Err(cursor.damaged(9, "encoding", kind.encoding() as u8, encoding));
    }
    let flags = cursor.u8("flags")?;
    if flags & !kind.flags() != 0 {
        let expected = format_args!("some of {:#04x}", kind.flags());
        return Err(cursor.damaged(10, "flags", expected, format_args!("{flags:#04x}")));
    }
    debug_assert_eq!(cursor.pos(), FIXED as u64);
    Ok((kind, flags, cursor))
}

impl Head {
    /// Flags that say which fields there are.
    pub(super) fn flags(&self) -> u8 {
        let door = if matches!(self.origin, Origin::Door { .. }) { DOOR } else { 0 };
        let lineage = if self.lineage.is_some() { LINEAGE } else { 0 };
        let task_time = if self.task_time.is_some() { TASK_TIME } else { 0 };
        door | lineage | task_time
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        varint::put(self.spec, out);
        match self.origin {
            Origin::Door { incarnation } => out.extend_from_slice(&incarnation.to_le_bytes()),
            Origin::Unit { stage, partition } => {
                varint::put(stage.into(), out);
                varint::put(partition.into(), out);
            }
        }
        if let Some(lineage) = self.lineage {
            out.extend_from_slice(&lineage.to_le_bytes());
        }
        varint::put(self.after.position.offset, out);
        varint::put(self.after.position.row.into(), out);
        varint::put(self.after.made.into(), out);
        out.extend_from_slice(&self.arrival.to_le_bytes());
        if let Some(task_time) = self.task_time {
            varint::put_signed(self.arrival.wrapping_sub(task_time), out);
        }
    }

    pub(super) fn read(flags: u8, cursor: &mut Cursor<'_>) -> Result<Self, FrameError> {
        let spec = cursor.varint("spec number")?;
        let origin = if flags & DOOR == 0 {
            Origin::Unit { stage: cursor.short("stage")?, partition: cursor.short("partition")? }
        } else {
            Origin::Door { incarnation: cursor.u64("incarnation")? }
        };
        let lineage = if flags & LINEAGE == 0 { None } else { Some(cursor.u64("lineage")?) };
        let position = Position { offset: cursor.varint("offset")?, row: cursor.short("row")? };
        let after = Mark { position, made: cursor.short("rows made")? };
        let arrival = cursor.u64("arrival")? as Micros;
        let task_time = if flags & TASK_TIME == 0 {
            None
        } else {
            Some(arrival.wrapping_sub(cursor.signed("task time")?))
        };
        Ok(Self { spec, origin, lineage, after, arrival, task_time })
    }
}
