//! Whole numbers in as many bytes as they need.
//!
//! Seven bits a byte, the lowest first; the highest bit of a byte says that another byte follows (LEB128). Signed
//! numbers are folded first, so that small ones of either sign are short.

/// Bytes that a number of 64 bits takes at most.
pub(super) const MOST: usize = 10;

#[inline]
pub(crate) fn put(value: u64, out: &mut Vec<u8>) {
    let [a, b, c, d] = [value, value >> 7, value >> 14, value >> 21].map(|bits| bits as u8);
    match value {
        0..0x80 => out.push(a),
        0x80..0x4000 => out.extend_from_slice(&[a | 0x80, b]),
        0x4000..0x20_0000 => out.extend_from_slice(&[a | 0x80, b | 0x80, c]),
        0x20_0000..0x1000_0000 => out.extend_from_slice(&[a | 0x80, b | 0x80, c | 0x80, d]),
        _ => put_long(value, out),
    }
}

fn put_long(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number at the start of some bytes, and how many bytes it has; `None` if they end in it, or it has more than 64 bits.
///
/// A branch for each length, rather than one computation for all: the processor guesses the length, and goes on with the
/// next number meanwhile.
#[inline(always)]
pub(super) fn get(bytes: &[u8]) -> Option<(u64, usize)> {
    let low = |byte: u8, place: u32| u64::from(byte & 0x7f) << (7 * place);
    match *bytes {
        [a @ ..0x80, ..] => Some((low(a, 0), 1)),
        [a, b @ ..0x80, ..] => Some((low(a, 0) | low(b, 1), 2)),
        [a, b, c @ ..0x80, ..] => Some((low(a, 0) | low(b, 1) | low(c, 2), 3)),
        [a, b, c, d @ ..0x80, ..] => Some((low(a, 0) | low(b, 1) | low(c, 2) | low(d, 3), 4)),
        _ => get_long(bytes),
    }
}

#[inline(never)]
fn get_long(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (place, byte) in bytes.iter().enumerate().take(MOST) {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            // Of the last byte only one bit is left.
            return (place + 1 < MOST || *byte <= 1).then_some((value, place + 1));
        }
    }
    None
}

#[inline]
pub(crate) fn put_signed(value: i64, out: &mut Vec<u8>) {
    put(fold(value), out);
}

/// 0, −1, 1, −2 … as 0, 1, 2, 3 …
#[inline]
pub(super) fn fold(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
pub(super) fn unfold(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Takes a number from the start of some bytes; `None` as for [`get`].
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (value, length) = get(bytes)?;
    *bytes = bytes.get(length..)?;
    Some(value)
}

pub(crate) fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    take(bytes).map(unfold)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::cursor::Cursor;
    use super::super::{FrameError, Part};
    use super::*;

    #[test]
    fn numbers_take_a_byte_for_seven_bits() {
        for (value, bytes) in
            [(0, &[0][..]), (127, &[0x7f]), (128, &[0x80, 1]), (300, &[0xac, 2]), (1 << 14, &[0x80, 0x80, 1])]
        {
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!(out, bytes, "{value}");
        }
        for bits in 1..=64_usize {
            let mut out = Vec::new();
            put(u64::MAX >> (64 - bits), &mut out);
            assert_eq!(out.len(), bits.div_ceil(7));
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        for last in [0x02, 0x7f, 0x80, 0xff] {
            let bytes = [[0xff; 9].as_slice(), &[last, 0]].concat();
            let read = Cursor::new(&bytes, Part::Frame, 3).varint("number");
            assert!(matches!(read, Err(FrameError::Damaged { pos: 3, what: "number", .. })), "{last:#x}");
        }
    }

    proptest! {
        #[test]
        fn numbers_read_back(values in proptest::collection::vec((any::<u64>(), 0_u32..64), 0..20)) {
            let values: Vec<u64> = values.into_iter().map(|(value, shift)| value >> shift).collect();
            let mut out = Vec::new();
            for value in &values {
                put(*value, &mut out);
                put_signed(*value as i64, &mut out);
            }
            let mut cursor = Cursor::new(&out, Part::Body, 0);
            for value in &values {
                prop_assert_eq!(cursor.varint("number"), Ok(*value));
                prop_assert_eq!(cursor.signed("number"), Ok(*value as i64));
            }
            prop_assert_eq!(cursor.left(), 0);
        }
    }
}
