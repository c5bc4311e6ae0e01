//! LZ4 over a column's bytes, where a sample says that it pays.
//!
//! Layout (little-endian): kind 1 (persisted: 0 plain, 1 LZ4), then the plain bytes, or raw length 4, LZ4 length 4,
//! LZ4 bytes, zeros up to a sixteenth of the raw length less 1 MiB. The zeros keep a promise to readers: a reader of n
//! bytes allocates at most 16 n + 1 MiB, so a forged length is refused before it costs anything. They only appear
//! after bytes that shrink to less than a sixteenth.

use std::borrow::Cow;

use super::{CodecError, damaged};

const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// Allocation that needs no bytes to justify it.
const FREE: usize = 1 << 20;
/// Raw bytes that one stored byte may become.
const RATIO: usize = 16;

/// What a sample must shrink to before the whole is tried, in percent.
///
/// Texts and raw words are read back at memory speed otherwise: a third saved on disk and in the page cache is worth
/// LZ4's time. Packed bits hold little that repeats, and LZ4 costs more than unpacking them: they must halve.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gain {
    Text = 67,
    Packed = 50,
}

/// Samples are pieces of this many bytes: LZ4 finds most repeats within a few KiB.
const PIECE: usize = 4096;
const PIECES: usize = 4;

/// Appends `raw` in its stored form.
pub(super) fn put(raw: &[u8], gain: Gain, out: &mut Vec<u8>) {
    if pays(raw, gain)
        && let Ok(raw_len) = u32::try_from(raw.len())
    {
        let start = out.len();
        out.push(LZ4);
        out.extend_from_slice(&raw_len.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let body = out.len();
        out.resize(body + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
        if let Ok(len) = lz4_flex::block::compress_into(raw, &mut out[body..])
            && len * 100 <= raw.len() * gain as usize
        {
            out[body - 4..body].copy_from_slice(&(len as u32).to_le_bytes());
            out.truncate(body + len);
            out.resize(out.len().max(body + raw.len().saturating_sub(FREE).div_ceil(RATIO)), 0);
            return;
        }
        out.truncate(start);
    }
    out.push(PLAIN);
    out.extend_from_slice(raw);
}

/// Whether a few pieces shrink enough.
fn pays(raw: &[u8], gain: Gain) -> bool {
    if raw.len() < 256 {
        return false;
    }
    let mut packed = vec![0; lz4_flex::block::get_maximum_output_size(PIECE)];
    let (mut before, mut after) = (0, 0);
    let stride = (raw.len() / PIECES).max(PIECE);
    for piece in raw.chunks(stride).map(|part| &part[..part.len().min(PIECE)]).take(PIECES) {
        before += piece.len();
        after += lz4_flex::block::compress_into(piece, &mut packed).unwrap_or(piece.len());
    }
    after * 100 <= before * gain as usize
}

/// The raw bytes of a stored form that begins at `pos`.
pub(super) fn get(stored: &[u8], pos: u64) -> Result<Cow<'_, [u8]>, CodecError> {
    match stored {
        [PLAIN, raw @ ..] => Ok(Cow::Borrowed(raw)),
        [LZ4, a, b, c, d, e, f, g, h, rest @ ..] => {
            let raw_len = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            let len = u32::from_le_bytes([*e, *f, *g, *h]) as usize;
            let limit = rest.len() * RATIO + FREE;
            if raw_len > limit {
                return Err(damaged(pos + 1, "raw length", format_args!("at most {limit}"), raw_len));
            }
            let packed = rest.get(..len).ok_or_else(|| damaged(pos + 5, "LZ4 length", rest.len(), len))?;
            let mut raw = vec![0; raw_len];
            match lz4_flex::block::decompress_into(packed, &mut raw) {
                Ok(got) if got == raw_len => Ok(Cow::Owned(raw)),
                Ok(got) => Err(damaged(pos + 9, "LZ4 block", raw_len, got)),
                Err(error) => Err(damaged(pos + 9, "LZ4 block", raw_len, error)),
            }
        }
        [kind, ..] => Err(damaged(pos, "kind of stored bytes", "0 or a whole 1", kind)),
        [] => Err(damaged(pos, "kind of stored bytes", "1 byte", "none")),
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn what_repeats_shrinks_and_what_does_not_stays_plain() {
        let mut random = Rng::with_seed(1);
        let noise: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
        let words: Vec<u8> = b"river bed water line ".iter().copied().cycle().take(100_000).collect();
        let zeros = vec![0; 40_000_000];
        for (raw, kind, most) in
            [(&noise, PLAIN, 100_001), (&words, LZ4, 10_000), (&zeros, LZ4, 40_000_000 / 16)]
        {
            let mut stored = Vec::new();
            put(raw, Gain::Text, &mut stored);
            assert_eq!((stored[0], stored.len() <= most), (kind, true), "{} bytes", stored.len());
            assert_eq!(get(&stored, 0).unwrap().as_ref(), raw);
        }
    }

    #[test]
    fn a_forged_length_is_refused_before_it_is_allocated() {
        let mut stored = vec![LZ4];
        stored.extend_from_slice(&u32::MAX.to_le_bytes());
        stored.extend_from_slice(&[4, 0, 0, 0, 1, 2, 3, 4]);
        assert!(matches!(get(&stored, 0), Err(CodecError::Damaged { what: "raw length", .. })));
    }
}
