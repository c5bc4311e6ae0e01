//! One segment: its name and header, and how its frames are walked.
//!
//! Layout (little-endian): magic 8, format 2, zero 2, identity 8, number 8, checksum 4, then frames
//! ([`thalweg_storage::frame`]) of entries ([`super::entry`]). The number is in the header and in the name, so a
//! misplaced file is found on opening. Task and number are the identity of the chain of frames.
//!
//! A segment is appended to and then left alone; its version or list says how many of its bytes count.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_storage::File;
use thalweg_storage::frame::{Chain, FRAME_HEADER, FrameError, FrameReader};

use super::Kind;
use super::entry::{EntryFault, EntrySeed};
use crate::StateError;
use crate::wire::{self, Fields};

const MAGIC: [u8; 8] = *b"\xf7ThStSg\n";
const FORMAT: u16 = 1;
pub(super) const HEADER: u64 = 32;

pub(super) const PREFIX: &str = "segment-";
const SUFFIX: &str = ".ths";

/// How much of a segment counts, and the checksum of the last frame in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extent {
    pub(super) number: u64,
    pub(super) len: u64,
    pub(super) chain: u32,
}

pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{number:020}{SUFFIX}"))
}

/// The number in a segment's name; `None` for other files.
pub(super) fn number_of(name: &str) -> Option<u64> {
    super::parse_name(name, PREFIX, SUFFIX)
}

/// What the checksums of a segment's frames and entries begin with.
fn chain_identity(identity: u64, number: u64) -> u64 {
    // The number is spread over all bits, so that neighbours of one task do not look like those of another.
    identity ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(super) fn seed(identity: u64, number: u64) -> EntrySeed {
    EntrySeed::new(chain_identity(identity, number))
}

/// An empty segment.
pub(super) fn empty(identity: u64, number: u64) -> Extent {
    Extent { number, len: HEADER, chain: Chain::new(chain_identity(identity, number)).previous() }
}

/// The chain after the last frame of an extent.
pub(super) fn chain(identity: u64, extent: Extent) -> Chain {
    Chain::resume(chain_identity(identity, extent.number), extent.chain)
}

pub(super) fn header(identity: u64, number: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&identity.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    wire::seal(&mut bytes);
    bytes
}

/// Checks that a file is the segment that it should be, with at least the bytes that count.
pub(super) fn check(file: &dyn File, path: &Path, identity: u64, extent: Extent) -> Result<(), StateError> {
    let len = file.len().map_err(StateError::io("measure", path))?;
    if len < extent.len {
        return Err(StateError::corrupt(path, len, "length of the segment", extent.len, len));
    }
    let mut bytes = [0; HEADER as usize];
    file.read_exact_at(&mut bytes, 0).map_err(StateError::io("read", path))?;
    let checksum = "checksum of the header";
    let kind = Kind { magic: MAGIC, what: "a segment", checksum, oldest: FORMAT, newest: FORMAT };
    super::check_head(path, &bytes, kind)?;
    let mut fields = Fields::new(&bytes[12..]);
    let found = (fields.u64(), fields.u64());
    if found != (Some(identity), Some(extent.number)) {
        let text = |pair: (Option<u64>, Option<u64>)| {
            format!("task {:016x}, segment {}", pair.0.unwrap_or_default(), pair.1.unwrap_or_default())
        };
        let expected = text((Some(identity), Some(extent.number)));
        return Err(StateError::corrupt(path, 12, "identity of the segment", expected, text(found)));
    }
    Ok(())
}

/// Bytes that a walk reads at once, unless a frame is longer.
const WINDOW: u64 = 1 << 20;

/// Walks the frames of a segment between two places that someone named: bytes between them that are not frames are
/// damage.
#[derive(Debug)]
pub(super) struct Walk {
    file: Arc<dyn File>,
    path: PathBuf,
    /// Where the next frame begins, and the chain there.
    at: u64,
    chain: Chain,
    end: Extent,
    /// Bytes of the file from `base` on.
    window: Vec<u8>,
    base: u64,
}

/// A frame's payload: where it is in the file, and in the window of its walk.
#[derive(Clone, Debug)]
pub(super) struct Payload {
    pub(super) pos: u64,
    range: Range<usize>,
}

impl Payload {
    /// Bytes of the frame.
    pub(super) fn frame_len(&self) -> u64 {
        (FRAME_HEADER + self.range.len()) as u64
    }
}

/// Where a walk is, to go back there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    at: u64,
    chain: Chain,
}

impl Walk {
    /// From the end of one extent to that of a longer one of the same segment.
    pub(super) fn new(file: Arc<dyn File>, path: PathBuf, identity: u64, from: Extent, end: Extent) -> Self {
        let chain = chain(identity, from);
        Self { file, path, at: from.len, chain, end, window: Vec::new(), base: from.len }
    }

    /// The next frame's payload; `None` at the end, where the chain has to be the one that was named.
    pub(super) fn next(&mut self) -> Result<Option<Payload>, StateError> {
        if self.at == self.end.len {
            return if self.chain.previous() == self.end.chain {
                Ok(None)
            } else {
                let text = |crc| format!("{crc:#010x}");
                let (expected, got) = (text(self.end.chain), text(self.chain.previous()));
                Err(StateError::corrupt(&self.path, self.at, "checksum of the last frame", expected, got))
            };
        }
        let mut wanted = WINDOW;
        loop {
            let skip = (self.at - self.base) as usize;
            let mut reader = FrameReader::new(&self.window[skip..], 0, self.chain);
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    let pos = self.at + FRAME_HEADER as u64;
                    let start = skip + FRAME_HEADER;
                    let range = start..start + frame.payload.len();
                    self.chain = reader.chain();
                    self.at = self.base + range.end as u64;
                    return Ok(Some(Payload { pos, range }));
                }
                Err(error) if self.base + self.window.len() as u64 == self.end.len => {
                    return Err(self.damage(&error));
                }
                // The window ends within the frame.
                Ok(None) | Err(_) => self.read(wanted)?,
            }
            wanted *= 2;
        }
    }

    pub(super) fn bytes(&self, payload: &Payload) -> &[u8] {
        &self.window[payload.range.clone()]
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { at: self.at, chain: self.chain }
    }

    pub(super) fn back_to(&mut self, mark: Mark) {
        (self.at, self.chain) = (mark.at, mark.chain);
        self.window.clear();
        self.base = mark.at;
    }

    /// What is wrong at byte `offset` of a payload.
    pub(super) fn entry_damage(&self, payload: &Payload, offset: usize, fault: EntryFault) -> StateError {
        let EntryFault { what, expected, got } = fault;
        StateError::corrupt(&self.path, payload.pos + offset as u64, what, expected, got)
    }

    fn read(&mut self, wanted: u64) -> Result<(), StateError> {
        let count = wanted.min(self.end.len - self.at);
        self.window.resize(count as usize, 0);
        self.base = self.at;
        self.file.read_exact_at(&mut self.window, self.at).map_err(StateError::io("read", &self.path))
    }

    fn damage(&self, error: &FrameError) -> StateError {
        match error {
            FrameError::Damaged { what, expected, got, .. } => {
                let (expected, got) = (format!("{expected:#010x}"), format!("{got:#010x}"));
                StateError::corrupt(&self.path, self.at, what, expected, got)
            }
            FrameError::Torn { bytes, .. } => {
                let got = format!("{bytes} bytes that are not one");
                StateError::corrupt(&self.path, self.at, "frame", "a whole frame", got)
            }
        }
    }
}
