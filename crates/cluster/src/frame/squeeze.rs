//! LZ4 over a body, where a sample of its bytes says that it pays.
//!
//! LZ4 takes longer over bytes without a pattern than it takes them to cross a network, and does not make them
//! shorter. So the entropy of a sample decides (Buddhika and Pallickara, "NEPTUNE: Real Time Stream Processing for
//! Internet of Things and Sensing Environments", 2016, section III-B5).
//!
//! Layout, after the length of all of it as a varint: the length of the body as a varint and an LZ4 block or, where LZ4
//! is not flagged, the body.
//!
//! Invariant: a reader of n stored bytes allocates at most 16 n + 1 MiB, and never more than [`MOST`], for a body. A
//! body that LZ4 makes shorter than that allows is stored as it is.

use std::borrow::Cow;
use std::sync::LazyLock;

use arrow_buffer::Buffer;

use super::cursor::Cursor;
use super::head::LZ4;
use super::{FrameError, varint};

/// Bytes that a body may have. A builder fills a frame up to half a megabyte, or with one row of a megabyte.
pub(super) const MOST: usize = 4 << 20;
/// Bytes below which no body is compressed.
pub(super) const LEAST: usize = 1 << 10;

/// Allocation that needs no bytes to justify it.
const FREE: usize = 1 << 20;
/// Bytes that one stored byte may become.
const RATIO: usize = 16;

/// Bytes of a sample: enough to tell 7.5 bits from 8, and counted in a microsecond or two.
const SAMPLE: usize = 2048;
/// A sample is pieces of this many bytes, so that each has all bytes of a number.
const PIECE: usize = 16;

/// The stored form of a body, compressed where its sampled entropy is below `below` bits per byte; and the flag that says
/// so.
pub(super) fn pack(body: &[u8], below: f32) -> (Cow<'_, [u8]>, u8) {
    if body.len() >= LEAST && entropy(body) < below {
        let mut stored = Vec::new();
        varint::put(body.len() as u64, &mut stored);
        let start = stored.len();
        stored.resize(start + lz4_flex::block::get_maximum_output_size(body.len()), 0);
        if let Ok(len) = lz4_flex::block::compress_into(body, &mut stored[start..])
            && start + len < body.len()
            && body.len() <= limit(len)
        {
            stored.truncate(start + len);
            return (Cow::Owned(stored), LZ4);
        }
    }
    (Cow::Borrowed(body), 0)
}

/// The body that the rest of a frame has, after its length.
pub(super) fn unpack(flags: u8, mut cursor: Cursor<'_>) -> Result<Buffer, FrameError> {
    let pos = cursor.pos();
    let len = cursor.varint("length of the body")?;
    if len != cursor.left() as u64 {
        return Err(cursor.damaged(pos, "length of the body", cursor.left(), len));
    }
    if flags & LZ4 == 0 {
        let len = cursor.left();
        if len > MOST {
            return Err(cursor.damaged(pos, "length of the body", format_args!("at most {MOST}"), len));
        }
        return Ok(Buffer::from(cursor.take(len, "body")?));
    }
    let pos = cursor.pos();
    let len = cursor.count("uncompressed length", 0, limit(cursor.left()))?;
    let block = cursor.take(cursor.left(), "LZ4 block")?;
    let mut body = vec![0; len];
    match lz4_flex::block::decompress_into(block, &mut body) {
        Ok(got) if got == len => Ok(Buffer::from_vec(body)),
        Ok(got) => Err(cursor.damaged(pos, "LZ4 block", format_args!("{len} bytes"), got)),
        Err(error) => Err(cursor.damaged(pos, "LZ4 block", format_args!("{len} bytes"), error)),
    }
}

/// Bytes that a body may have of which `stored` bytes are stored.
fn limit(stored: usize) -> usize {
    (stored.saturating_mul(RATIO) + FREE).min(MOST)
}

/// Shannon's entropy of a sample, in bits per byte.
///
/// A sample of few bytes has seen fewer values than there are: 1 KiB of noise looks like 7.8 bits.
///
/// It decides whether a body is compressed, not what it holds: two machines may differ.
#[expect(clippy::disallowed_methods, reason = "readers take both forms of a body")]
fn entropy(bytes: &[u8]) -> f32 {
    let mut counts = [0_u16; 256];
    let pieces = SAMPLE / PIECE;
    // Odd, so that it does not keep step with what has a period of its own.
    let stride = (bytes.len() / pieces).max(PIECE) | 1;
    let mut total = 0;
    for piece in bytes.chunks(stride).take(pieces) {
        let piece = &piece[..piece.len().min(PIECE)];
        for byte in piece {
            counts[usize::from(*byte)] += 1;
        }
        total += piece.len();
    }
    let sum: f32 = counts.iter().map(|count| WEIGHTS[usize::from(*count)]).sum();
    (total as f32).log2() - sum / total as f32
}

/// n log₂ n. A logarithm for each value of a byte would take as long as LZ4 takes for a kilobyte.
#[expect(clippy::disallowed_methods, reason = "see `entropy`")]
static WEIGHTS: LazyLock<Vec<f32>> = LazyLock::new(|| {
    let weight = |count: usize| if count == 0 { 0.0 } else { count as f32 * (count as f32).log2() };
    (0..=SAMPLE).map(weight).collect()
});

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::super::Part;
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut random = Rng::with_seed(1);
        (0..len).map(|_| random.u8(..)).collect()
    }

    fn stored(body: &[u8], below: f32) -> (bool, usize) {
        let (stored, lz4) = pack(body, below);
        let mut rest = Vec::new();
        varint::put(stored.len() as u64, &mut rest);
        rest.extend_from_slice(&stored);
        assert_eq!(unpack(lz4, Cursor::new(&rest, Part::Frame, 0)).unwrap().as_slice(), body);
        (lz4 != 0, stored.len())
    }

    #[test]
    fn entropy_is_that_of_the_bytes() {
        let words: Vec<u8> = b"river bed".iter().copied().cycle().take(100_000).collect();
        for (bytes, low, high) in [
            (vec![3; 5_000], 0.0, 0.001),
            (words, 2.70, 2.95),
            (noise(1 << 20), 7.88, 8.0),
            (noise(1 << 10), 7.7, 7.9),
        ] {
            let bits = entropy(&bytes);
            assert!((low..high).contains(&bits), "{bits} bits, expected {low} to {high}");
        }
    }

    #[test]
    fn what_repeats_is_compressed_and_noise_and_short_bodies_are_not() {
        let words: Vec<u8> = b"river bed".iter().copied().cycle().take(100_000).collect();
        assert!(stored(&words, 7.0).1 < 1_000);
        assert!(!stored(&words, 0.0).0, "never");
        assert!(!stored(&words[..LEAST - 1], 7.0).0);
        assert!(stored(&words[..LEAST], 7.0).0);
        assert!(!stored(&noise(100_000), 7.5).0);
        assert_eq!(stored(&noise(100_000), 9.0), (false, 100_000), "always, but no longer than the body");
        assert!(!stored(&[], 9.0).0);
    }

    #[test]
    fn a_body_that_shrinks_too_much_is_stored_as_it_is() {
        assert!(stored(&vec![0; FREE], 9.0).0);
        assert!(!stored(&vec![0; 2 * FREE], 9.0).0);
    }

    #[test]
    fn a_forged_length_is_refused_before_it_is_allocated() {
        for len in [u64::from(u32::MAX), u64::MAX, (FREE + 8 * RATIO) as u64] {
            let mut bytes = Vec::new();
            varint::put(len, &mut bytes);
            bytes.extend_from_slice(&[1, 2, 3, 4]);
            bytes.insert(0, bytes.len() as u8);
            let read = unpack(LZ4, Cursor::new(&bytes, Part::Frame, 0));
            assert!(matches!(read, Err(FrameError::Damaged { what: "uncompressed length", .. })), "{len}");
        }
        let mut long = Vec::new();
        varint::put(MOST as u64 + 1, &mut long);
        long.resize(long.len() + MOST + 1, 0);
        for rest in [&long[..], &long[..100], &[5, 0, 0][..]] {
            let read = unpack(0, Cursor::new(rest, Part::Frame, 0));
            assert!(matches!(read, Err(FrameError::Damaged { what: "length of the body", .. })));
        }
    }
}
