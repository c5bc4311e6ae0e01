//! A frame: the length-prefixed, chained, checksummed unit of append-only files.
//!
//! Layout (little-endian): magic 4, payload length 4, previous checksum 4, checksum 4, payload.
//! * The magic comes first so that a reader can look for the next frame after damage.
//! * The previous frame's checksum is stored, not only mixed in, so that a frame found after damage can be
//!   judged by itself; comparing it with the chain then finds lost, doubled and swapped frames.
//! * The checksum covers identity (not stored), length, previous checksum and payload, so an old frame in a
//!   recycled or misplaced file is not taken for one of this file's.
//!
//! Invariants
//! * The chain starts at the checksum of the identity alone: the first frame is chained too.
//! * Nothing is allocated for what a length says; payloads are slices of the bytes at hand.
//!
//! Not here: files. A caller reads bytes and keeps the [`Chain`] of its writer.

use memchr::memmem;

/// First bytes of a frame: none of them is ASCII text or a small integer's zero. Persisted.
pub(crate) const MAGIC: [u8; 4] = [0xf7, b'T', b'h', 0xf1];

/// Bytes of a frame before its payload.
pub const FRAME_HEADER: usize = 16;

/// Bytes that a payload may have: what a reader is ready to hold in memory at once.
pub const MAX_PAYLOAD: usize = 1 << 30;

/// The writer's and the reader's place in a file's chain of checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    identity: u64,
    previous: u32,
}

impl Chain {
    /// The chain of a file without frames; `identity` distinguishes files (task, partition, base offset, kind).
    pub fn new(identity: u64) -> Self {
        Self { identity, previous: crc32fast::hash(&identity.to_le_bytes()) }
    }

    /// The chain of a file after a frame whose checksum is known: a writer or reader goes on in its middle.
    pub fn resume(identity: u64, previous: u32) -> Self {
        Self { identity, previous }
    }

    /// Checksum of the last frame.
    pub fn previous(&self) -> u32 {
        self.previous
    }

    /// Appends a frame with `payload` to `out`.
    ///
    /// # Panics
    /// If the payload is longer than [`MAX_PAYLOAD`].
    pub fn push(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        out.reserve(FRAME_HEADER + payload.len());
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEADER]);
        out.extend_from_slice(payload);
        self.seal(&mut out[start..]);
    }

    /// Makes `frame` a frame in place: [`FRAME_HEADER`] bytes that are overwritten, then the payload.
    ///
    /// # Panics
    /// If there is no room for the header, or the payload is longer than [`MAX_PAYLOAD`].
    pub fn seal(&mut self, frame: &mut [u8]) {
        let (header, payload) = frame.split_at_mut(FRAME_HEADER);
        assert!(payload.len() <= MAX_PAYLOAD, "a frame's payload has at most {MAX_PAYLOAD} bytes");
        let crc = self.checksum(payload);
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[8..12].copy_from_slice(&self.previous.to_le_bytes());
        header[12..].copy_from_slice(&crc.to_le_bytes());
        self.previous = crc;
    }

    /// The chain in which a frame that begins with `header` is by its own word, to judge a frame that was
    /// found after damage.
    pub(crate) fn at(identity: u64, header: &[u8]) -> Option<Self> {
        Some(Self { identity, previous: word(header, 8)? })
    }

    fn checksum(&self, payload: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.identity.to_le_bytes());
        hasher.update(&(payload.len() as u32).to_le_bytes());
        hasher.update(&self.previous.to_le_bytes());
        hasher.update(payload);
        hasher.finalize()
    }
}

/// A whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Byte at which the frame begins.
    pub pos: u64,
    pub payload: &'a [u8],
}

/// Why reading stopped before the end of the bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No whole frame follows: what a crash leaves of the last write. Cut the file at `pos`.
    #[error("torn frame at byte {pos}: {bytes} bytes that are no whole frame")]
    Torn {
        pos: u64,
        bytes: u64,
        /// Only zeros follow: in a preallocated file the end, elsewhere a write that did not arrive.
        zeros: bool,
    },
    /// A whole frame of this file is at or after the place: bytes changed after they were written.
    #[error("damaged frame at byte {pos}: {what}: expected {expected:#010x}, got {got:#010x}")]
    Damaged { pos: u64, what: &'static str, expected: u32, got: u32 },
}

/// Reads the frames of a file's bytes in order.
#[derive(Clone, Debug)]
pub struct FrameReader<'a> {
    bytes: &'a [u8],
    at: usize,
    chain: Chain,
}

impl<'a> FrameReader<'a> {
    /// Reads `bytes` from `start` on, where the frames begin; positions count from the start of `bytes`.
    pub fn new(bytes: &'a [u8], start: usize, chain: Chain) -> Self {
        Self { bytes, at: start.min(bytes.len()), chain }
    }

    /// Byte after the last whole frame: where a writer goes on.
    pub fn position(&self) -> u64 {
        self.at as u64
    }

    /// The chain after the last whole frame: what a writer goes on with.
    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// The next frame; `None` where the bytes end with the last one.
    ///
    /// # Errors
    /// [`FrameError`], on each call: the reader does not move past bytes that are not a frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'a>>, FrameError> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        match parse(rest, self.chain) {
            Ok((payload, next)) => {
                let pos = self.at as u64;
                self.at += FRAME_HEADER + payload.len();
                self.chain = next;
                Ok(Some(Frame { pos, payload }))
            }
            Err(fault) => {
                let pos = self.at as u64;
                Err(if whole_frame_follows(rest, self.chain.identity) {
                    FrameError::Damaged { pos, what: fault.what, expected: fault.expected, got: fault.got }
                } else {
                    let zeros = rest.iter().all(|byte| *byte == 0);
                    FrameError::Torn { pos, bytes: rest.len() as u64, zeros }
                })
            }
        }
    }
}

/// What is wrong with bytes that should begin with a frame.
pub(crate) struct Fault {
    pub(crate) what: &'static str,
    pub(crate) expected: u32,
    pub(crate) got: u32,
}

/// Bytes that the frame has which begins with `header`, if it is one; nothing else about it is checked.
pub(crate) fn announced_len(header: &[u8]) -> Option<usize> {
    let length = word(header, 4).filter(|_| header.starts_with(&MAGIC))? as usize;
    (length <= MAX_PAYLOAD).then_some(FRAME_HEADER + length)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The frame at the start of `bytes`: its payload and the chain after it.
pub(crate) fn parse(bytes: &[u8], chain: Chain) -> Result<(&[u8], Chain), Fault> {
    let fault = |what, expected, got| Fault { what, expected, got };
    let header = |at| word(bytes, at).ok_or(fault("frame header", FRAME_HEADER as u32, bytes.len() as u32));
    let (magic, length, previous, crc) = (header(0)?, header(4)?, header(8)?, header(12)?);
    let expected = u32::from_le_bytes(MAGIC);
    if magic != expected {
        return Err(fault("frame magic", expected, magic));
    }
    let room = bytes.len() - FRAME_HEADER;
    if length as usize > room.min(MAX_PAYLOAD) {
        return Err(fault("payload length at most", room.min(MAX_PAYLOAD) as u32, length));
    }
    if previous != chain.previous {
        return Err(fault("checksum of the previous frame", chain.previous, previous));
    }
    let payload = &bytes[FRAME_HEADER..FRAME_HEADER + length as usize];
    let actual = chain.checksum(payload);
    if actual != crc {
        return Err(fault("checksum", crc, actual));
    }
    Ok((payload, Chain { previous: crc, ..chain }))
}

/// Whether a frame of this file, whole by itself, is anywhere in `bytes`.
///
/// The work is bounded: bytes made of magics with long lengths would cost their square. Who runs out of the
/// bound takes the careful answer, that something follows.
fn whole_frame_follows(bytes: &[u8], identity: u64) -> bool {
    let mut budget = bytes.len().saturating_mul(8) + (1 << 20);
    for at in memmem::find_iter(bytes, &MAGIC) {
        let candidate = &bytes[at..];
        let Some((length, previous)) = word(candidate, 4).zip(word(candidate, 8)) else { return false };
        if candidate.len() < FRAME_HEADER || length as usize > candidate.len() - FRAME_HEADER {
            continue;
        }
        if budget < length as usize {
            return true;
        }
        budget -= length as usize;
        if parse(candidate, Chain { identity, previous }).is_ok() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IDENTITY: u64 = 77;

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let (mut chain, mut bytes) = (Chain::new(IDENTITY), Vec::new());
        for payload in payloads {
            chain.push(payload, &mut bytes);
        }
        bytes
    }

    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Option<FrameError>) {
        let mut reader = FrameReader::new(bytes, 0, Chain::new(IDENTITY));
        let mut payloads = Vec::new();
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => payloads.push(frame.payload.to_vec()),
                Ok(None) => return (payloads, None),
                Err(error) => return (payloads, Some(error)),
            }
        }
    }

    const SAMPLE: [&[u8]; 3] = [b"first", b"", b"the third"];
    /// Where the frames of the sample begin, and its end.
    const BOUNDS: [usize; 4] = [0, 21, 37, 62];

    #[test]
    fn truncation_at_every_byte_leaves_whole_frames_and_names_the_torn_one() {
        let bytes = file(&SAMPLE);
        for len in 0..=bytes.len() {
            let (payloads, error) = read(&bytes[..len]);
            let whole = BOUNDS.iter().filter(|bound| **bound > 0 && **bound <= len).count();
            assert_eq!(payloads, SAMPLE[..whole], "cut at {len}");
            let torn = len - BOUNDS[whole];
            let expected = (torn > 0).then(|| FrameError::Torn {
                pos: BOUNDS[whole] as u64,
                bytes: torn as u64,
                zeros: false,
            });
            assert_eq!(error, expected, "cut at {len}");
        }
    }

    #[test]
    fn every_flipped_bit_is_damage_in_the_middle_or_a_torn_tail() {
        let bytes = file(&SAMPLE);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let frame = BOUNDS.iter().rposition(|bound| *bound <= bit / 8).unwrap();
            let (payloads, error) = read(&flipped);
            assert_eq!(payloads, SAMPLE[..frame], "bit {bit}");
            match error {
                Some(FrameError::Damaged { pos, .. }) => {
                    assert_eq!((pos, frame < 2), (BOUNDS[frame] as u64, true))
                }
                Some(FrameError::Torn { pos, .. }) => assert_eq!((pos, frame), (BOUNDS[2] as u64, 2)),
                None => panic!("bit {bit} was not detected"),
            }
        }
    }

    #[test]
    fn a_resumed_chain_goes_on_as_the_one_that_was_left() {
        let bytes = file(&SAMPLE);
        let mut first = FrameReader::new(&bytes[..BOUNDS[1]], 0, Chain::new(IDENTITY));
        first.next_frame().unwrap();
        let resumed = Chain::resume(IDENTITY, first.chain().previous());
        let mut rest = FrameReader::new(&bytes, BOUNDS[1], resumed);
        assert_eq!(rest.next_frame().unwrap().unwrap().payload, SAMPLE[1]);
        let stranger = Chain::resume(IDENTITY, first.chain().previous() ^ 1);
        assert!(FrameReader::new(&bytes, BOUNDS[1], stranger).next_frame().is_err());
    }

    #[test]
    fn doubled_dropped_and_foreign_frames_are_told_apart() {
        let bytes = file(&SAMPLE);
        let mut doubled = bytes.clone();
        doubled.extend_from_slice(&bytes[37..]);
        assert!(matches!(read(&doubled).1, Some(FrameError::Damaged { pos: 62, .. })));
        let mut dropped = bytes[..21].to_vec();
        dropped.extend_from_slice(&bytes[37..]);
        assert!(matches!(read(&dropped).1, Some(FrameError::Damaged { pos: 21, .. })));
        // What a recycled file still holds after its end is not this file's.
        let mut recycled = bytes.clone();
        Chain::new(IDENTITY + 1).push(b"of another file", &mut recycled);
        assert!(
            matches!(read(&recycled), (payloads, Some(FrameError::Torn { pos: 62, .. })) if payloads.len() == 3)
        );
        let mut zeros = bytes;
        zeros.resize(100, 0);
        assert_eq!(read(&zeros).1, Some(FrameError::Torn { pos: 62, bytes: 38, zeros: true }));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0_usize..80) {
            let _ = read(&bytes);
            let mut patched = file(&SAMPLE);
            for (place, byte) in patched.iter_mut().skip(at).zip(&bytes) {
                *place = *byte;
            }
            let _ = read(&patched);
        }
    }
}
