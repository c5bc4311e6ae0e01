//! Eight bytes at a time: digits, and the next byte of interest.
//!
//! All of it works on `u64` words loaded little-endian, so the first byte of the text is the lowest. The usual
//! tricks are exact for the *first* match only, because a borrow or carry runs towards later bytes.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight bytes at `at`; past the end they read as 0, which is neither a digit nor part of any text.
#[inline(always)]
pub(crate) fn load8(data: &[u8], at: usize) -> u64 {
    match data.get(at..at + 8) {
        Some(chunk) => u64::from_le_bytes(chunk.try_into().expect("a slice of eight bytes")),
        None => load_tail(data, at),
    }
}

#[cold]
#[inline(never)]
fn load_tail(data: &[u8], at: usize) -> u64 {
    let tail = data.get(at..).unwrap_or_default();
    let mut word = [0_u8; 8];
    let len = tail.len().min(8);
    word[..len].copy_from_slice(&tail[..len]);
    u64::from_le_bytes(word)
}

/// A word with eight times the same byte.
#[inline(always)]
pub(crate) const fn splat(byte: u8) -> u64 {
    byte as u64 * ONES
}

/// High bits set where a byte of `word` equals the splat byte; exact up to the first.
#[inline(always)]
pub(crate) fn matches(word: u64, splat: u64) -> u64 {
    let x = word ^ splat;
    x.wrapping_sub(ONES) & !x & HIGHS
}

/// High bits set where a byte of `word` is below 0x20; exact up to the first.
#[inline(always)]
pub(crate) fn controls(word: u64) -> u64 {
    word.wrapping_sub(splat(0x20)) & !word & HIGHS
}

/// Value and number of the digits at the front of a word.
#[inline(always)]
pub(crate) fn digits8(word: u64) -> (u64, usize) {
    let digits = word ^ ZEROS;
    let others = (digits.wrapping_add(splat(0x76)) | digits) & HIGHS;
    let count = others.trailing_zeros() / 8;
    // The digits move to the top, so that leading zeros fill the rest. A shift by 64 leaves nothing.
    let mut value = digits.unbounded_shl(64 - 8 * count);
    value = value.wrapping_mul(10).wrapping_add(value >> 8);
    let low = (value & 0x0000_00FF_0000_00FF).wrapping_mul(0x000F_4240_0000_0064);
    let high = ((value >> 16) & 0x0000_00FF_0000_00FF).wrapping_mul(0x0000_2710_0000_0001);
    (low.wrapping_add(high) >> 32, count as usize)
}

/// Powers of ten that `f64` and `u64` hold exactly.
pub(crate) const TENS: [u64; 20] = {
    let mut tens = [1_u64; 20];
    let mut index = 1;
    while index < 20 {
        tens[index] = tens[index - 1] * 10;
        index += 1;
    }
    tens
};

/// Up to 15 digits at `at`: their value and where they end. No digit, or more of them, is `None`.
#[inline(always)]
pub(crate) fn digits15(data: &[u8], at: usize) -> Option<(u64, usize)> {
    let (value, count) = digits8(load8(data, at));
    if count < 8 {
        return (count > 0).then_some((value, at + count));
    }
    let (more, extra) = digits8(load8(data, at + 8));
    (extra < 8).then(|| (value * TENS[extra] + more, at + 8 + extra))
}

const FLOAT_TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// A plain decimal number at `at` (`12`, `-12.25`): its value, exactly rounded, and where it ends. `point` is the
/// decimal sign.
///
/// Clinger's fast path: digits below 2^53 and a power of ten up to 10^22 are both exact, so one division rounds
/// once. Everything else is `None` and goes through the standard parser.
#[inline(always)]
pub(crate) fn float(data: &[u8], at: usize, point: u8) -> Option<(f64, usize)> {
    let negative = data.get(at) == Some(&b'-');
    let (whole, mut end) = digits15(data, at + usize::from(negative))?;
    let mut value = whole as f64;
    if data.get(end) == Some(&point) {
        let (fraction, count) = digits8(load8(data, end + 1));
        if count == 0 || count == 8 {
            return None;
        }
        end += 1 + count;
        let digits = whole.checked_mul(TENS[count])? + fraction;
        if digits >= 1 << 53 {
            return None;
        }
        value = digits as f64 / FLOAT_TENS[count];
    }
    Some((if negative { -value } else { value }, end))
}

/// Bytes of interest in lines: how many line ends there are, and how many end a line whose last byte (before an
/// optional `\r`) is `last`. Written so that the compiler makes vector code of it.
pub(crate) fn count_line_ends(data: &[u8], last: u8) -> (usize, usize) {
    let (mut lines, mut found) = (0, 0);
    let mut start = 0;
    while start < data.len() {
        let end = (start + 192).min(data.len());
        if start < 2 {
            // The first two bytes have no two bytes before them.
            let until = end.min(2);
            for at in start..until {
                let before = if at > 0 { data[at - 1] } else { b'\n' };
                lines += usize::from(data[at] == b'\n');
                found +=
                    usize::from(data[at] == b'\n' && (before == last || (before == b'\r' && last == b'\n')));
            }
            start = until;
            continue;
        }
        let (mut lines_here, mut found_here) = (0_u8, 0_u8);
        let bytes = data[start..end].iter().zip(&data[start - 1..end - 1]).zip(&data[start - 2..end - 2]);
        for ((byte, before), before_that) in bytes {
            let is_end = u8::from(*byte == b'\n');
            let is_last =
                u8::from(*before == last) | (u8::from(*before == b'\r') & u8::from(*before_that == last));
            lines_here += is_end;
            found_here += is_end & is_last;
        }
        lines += usize::from(lines_here);
        found += usize::from(found_here);
        start = end;
    }
    (lines, found)
}

/// Line ends in `data`.
pub(crate) fn lines(data: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', data).count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn digits_are_read_up_to_the_first_other_byte() {
        for (text, expected) in [
            ("", (0, 0)),
            ("x1234567", (0, 0)),
            ("7,123456", (7, 1)),
            ("12345678", (12_345_678, 8)),
            ("00120\n99", (120, 5)),
            ("1\u{e9}1", (1, 1)),
        ] {
            assert_eq!(digits8(load8(text.as_bytes(), 0)), expected, "{text}");
        }
        assert_eq!(digits15(b"1767225600000,", 0), Some((1_767_225_600_000, 13)));
        assert_eq!(digits15(b"123456789012345", 0), Some((123_456_789_012_345, 15)));
        assert_eq!(digits15(b"1234567890123456", 0), None);
    }

    proptest! {
        #[test]
        fn a_float_is_what_the_standard_parser_makes_of_it(text in "-?[0-9]{1,17}(\\.[0-9]{1,9})?") {
            if let Some((value, end)) = float(text.as_bytes(), 0, b'.') {
                prop_assert_eq!(end, text.len());
                prop_assert_eq!(value.to_bits(), text.parse::<f64>().unwrap().to_bits());
            }
        }

        #[test]
        fn the_first_match_is_exact(bytes in proptest::array::uniform8(any::<u8>()), wanted in any::<u8>()) {
            let word = u64::from_le_bytes(bytes);
            let first = |found: u64| (found != 0).then(|| (found.trailing_zeros() / 8) as usize);
            prop_assert_eq!(first(matches(word, splat(wanted))), bytes.iter().position(|b| *b == wanted));
            prop_assert_eq!(first(controls(word)), bytes.iter().position(|b| *b < 0x20));
            let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
            let value = bytes[..digits].iter().fold(0, |sum, b| sum * 10 + u64::from(b - b'0'));
            prop_assert_eq!(digits8(word), (value, digits));
        }

        #[test]
        fn line_ends_are_counted_with_what_stands_before(text in "[a}\r\n]{0,400}") {
            let data = text.as_bytes();
            let (lines, closed) = count_line_ends(data, b'}');
            let ends: Vec<usize> = (0..data.len()).filter(|at| data[*at] == b'\n').collect();
            let before = |at: usize| data[..at].strip_suffix(b"\r").unwrap_or(&data[..at]).last().copied();
            prop_assert_eq!(lines, ends.len());
            prop_assert_eq!(closed, ends.iter().filter(|at| before(**at) == Some(b'}')).count());
            let blank = ends.iter().filter(|at| matches!(before(**at), None | Some(b'\n'))).count();
            prop_assert_eq!(count_line_ends(data, b'\n').1, blank);
        }
    }
}
