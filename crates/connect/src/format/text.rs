//! How a value of each type is written as text; the same in every text format.
//!
//! | type | read | written |
//! |---|---|---|
//! | `bool` | `true`, `false` in any case, `1`, `0` | `true`, `false` |
//! | `int64`, `uint64` | digits with a sign; `5.0` and `1e3` too, being whole | digits |
//! | `float64` | decimal or exponent; `NaN`, `Infinity`, `-Infinity`, `inf` | shortest that reads back; the same names |
//! | `decimal(p,s)` | decimal or exponent, exactly: digits that do not fit are an error, never rounded | all `s` places |
//! | `string` | as it is | as it is |
//! | `bytes` | base64, padding optional | base64 with padding |
//! | `timestamp(u)` | a number, or a date with an optional time and zone, as `times.rs` says; finer digits round down | number of the unit |
//! | `ip` | IPv4 or IPv6 | IPv4 where it is one, else IPv6 |
//! | `ip` declared as `ipv4_int` | a whole number from 0 to 4294967295, an IPv4 address | as any `ip` |
//!
//! A number too large for its type is an error, not infinity and not the nearest one that fits.

use std::net::{Ipv4Addr, Ipv6Addr};

use arrow_buffer::i256;

/// Why a text is no value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// It is something else.
    Expected,
    /// It is one, but too large or too small.
    Range,
    /// It has digits that the type cannot keep.
    Inexact,
    /// Nothing is there, and the field is not nullable.
    Missing,
    /// It is a local time that no clock of the zone shows.
    Gap,
    /// It is a text that means null, and the field is not nullable.
    Null,
}

pub(crate) fn parse_bool(text: &[u8]) -> Result<bool, Problem> {
    match text {
        b"true" | b"1" => Ok(true),
        b"false" | b"0" => Ok(false),
        _ if text.eq_ignore_ascii_case(b"true") => Ok(true),
        _ if text.eq_ignore_ascii_case(b"false") => Ok(false),
        _ => Err(Problem::Expected),
    }
}

pub(crate) fn parse_i64(text: &[u8]) -> Result<i64, Problem> {
    let plain = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    plain.map_or_else(|| i64::try_from(whole_number(text)?).map_err(|_| Problem::Range), Ok)
}

pub(crate) fn parse_u64(text: &[u8]) -> Result<u64, Problem> {
    let plain = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    plain.map_or_else(|| u64::try_from(whole_number(text)?).map_err(|_| Problem::Range), Ok)
}

/// A whole number, however it is written.
pub(super) fn whole_number(text: &[u8]) -> Result<i128, Problem> {
    let whole = parse_decimal(text, 38, 0).map_err(|problem| match problem {
        Problem::Inexact => Problem::Expected,
        other => other,
    })?;
    whole.to_i128().ok_or(Problem::Range)
}

pub(crate) fn parse_f64(text: &[u8]) -> Result<f64, Problem> {
    let text = std::str::from_utf8(text).map_err(|_| Problem::Expected)?;
    let value: f64 = text.parse().map_err(|_| Problem::Expected)?;
    if value.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit()) {
        return Err(Problem::Range);
    }
    Ok(value)
}

/// The digits of a decimal number, exactly: `value * 10^-scale` is the number.
pub(crate) fn parse_decimal(text: &[u8], precision: u8, scale: i8) -> Result<i256, Problem> {
    let (negative, number) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (mantissa, exponent) = match number.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&number[..at], parse_exponent(&number[at + 1..])?),
        None => (number, 0),
    };
    let (whole, fraction) = match mantissa.iter().position(|byte| *byte == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &mantissa[mantissa.len()..]),
    };
    let all_digits = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit);
    if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
        return Err(Problem::Expected);
    }
    // The number is 0.d1d2d3… × 10^point, from its first digit that is not 0.
    let digits = || whole.iter().chain(fraction).map(|byte| byte - b'0');
    let Some(first) = digits().position(|digit| digit != 0) else { return Ok(i256::ZERO) };
    let last = whole.len() + fraction.len() - digits().rev().position(|digit| digit != 0).unwrap_or(0);
    let significant = (last - first) as i64;
    let point = whole.len() as i64 - first as i64 + exponent;
    let zeros = point + i64::from(scale) - significant;
    if point > i64::from(precision) - i64::from(scale) {
        return Err(Problem::Range);
    }
    if zeros < 0 {
        return Err(Problem::Inexact);
    }
    let ten = i256::from_i128(10);
    let digit_values = digits().skip(first).take(last - first);
    let value = if significant + zeros <= 38 {
        let value = digit_values.fold(0_i128, |sum, digit| sum * 10 + i128::from(digit));
        i256::from_i128(value * 10_i128.pow(zeros as u32))
    } else {
        let value = digit_values.fold(i256::ZERO, |sum, digit| {
            sum.wrapping_mul(ten).wrapping_add(i256::from_i128(i128::from(digit)))
        });
        (0..zeros).fold(value, |value, _| value.wrapping_mul(ten))
    };
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// An exponent; one of more than six digits is far outside every type and is held at a million.
fn parse_exponent(text: &[u8]) -> Result<i64, Problem> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Problem::Expected);
    }
    let value = digits.iter().fold(0_i64, |sum, byte| (sum * 10 + i64::from(byte - b'0')).min(1_000_000));
    Ok(if negative { -value } else { value })
}

pub(crate) fn parse_ip(text: &[u8]) -> Result<[u8; 16], Problem> {
    let text = std::str::from_utf8(text).map_err(|_| Problem::Expected)?;
    thalweg_types::parse_ip(text).ok_or(Problem::Expected)
}

/// An IPv4 address from its number.
pub(crate) fn parse_ipv4_int(text: &[u8]) -> Result<[u8; 16], Problem> {
    let number = u32::try_from(parse_u64(text)?).map_err(|_| Problem::Range)?;
    Ok(ipv4_octets(number))
}

/// An IPv4 address as columns hold it.
pub(crate) fn ipv4_octets(number: u32) -> [u8; 16] {
    Ipv4Addr::from_bits(number).to_ipv6_mapped().octets()
}

pub(crate) fn write_f64(value: f64, out: &mut Vec<u8>) {
    if value.is_finite() {
        out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes());
    } else if value.is_nan() {
        out.extend_from_slice(b"NaN");
    } else {
        out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
}

/// Writes a decimal from the digits of its unscaled value.
pub(crate) fn write_decimal(unscaled: &str, scale: i8, out: &mut Vec<u8>) {
    let (sign, digits) = unscaled.strip_prefix('-').map_or(("", unscaled), |digits| ("-", digits));
    out.extend_from_slice(sign.as_bytes());
    let places = usize::try_from(scale).unwrap_or(0);
    if places == 0 {
        out.extend_from_slice(digits.as_bytes());
        out.extend(std::iter::repeat_n(b'0', usize::from(scale.unsigned_abs())));
        return;
    }
    let zeros = (places + 1).saturating_sub(digits.len());
    let mut padded = Vec::with_capacity(digits.len() + zeros);
    padded.extend(std::iter::repeat_n(b'0', zeros));
    padded.extend_from_slice(digits.as_bytes());
    let (whole, fraction) = padded.split_at(padded.len() - places);
    out.extend_from_slice(whole);
    out.push(b'.');
    out.extend_from_slice(fraction);
}

pub(crate) fn write_ip(octets: [u8; 16], out: &mut Vec<u8>) {
    use std::io::Write as _;
    let v6 = Ipv6Addr::from(octets);
    let written = match v6.to_ipv4_mapped() {
        Some(v4) => write!(out, "{v4}"),
        None => write!(out, "{v6}"),
    };
    written.expect("a vector takes every byte");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_or_refused() {
        for (text, precision, scale, expected) in [
            ("12.34", 10, 2, Ok(1234)),
            ("-12.3", 10, 2, Ok(-1230)),
            ("12.340", 10, 2, Ok(1234)),
            ("12.345", 10, 2, Err(Problem::Inexact)),
            ("1e2", 10, 2, Ok(10_000)),
            ("123e-2", 10, 2, Ok(123)),
            ("1e-999999999999", 10, 2, Err(Problem::Inexact)),
            ("0e999999999999", 10, 2, Ok(0)),
            ("99999999.99", 10, 2, Ok(9_999_999_999)),
            ("100000000", 10, 2, Err(Problem::Range)),
            (".5", 3, 1, Ok(5)),
            ("5.", 3, 1, Ok(50)),
            ("+7", 3, 0, Ok(7)),
            ("000000000000000000000000000000000000000000000000001", 3, 0, Ok(1)),
            ("", 3, 0, Err(Problem::Expected)),
            (".", 3, 0, Err(Problem::Expected)),
            ("1e", 3, 0, Err(Problem::Expected)),
            ("NaN", 3, 0, Err(Problem::Expected)),
            ("1_0", 3, 0, Err(Problem::Expected)),
        ] {
            let value = parse_decimal(text.as_bytes(), precision, scale);
            assert_eq!(value, expected.map(i256::from_i128), "{text} as decimal({precision},{scale})");
        }
        let long = "9".repeat(76);
        assert_eq!(parse_decimal(long.as_bytes(), 76, 0).unwrap().to_string(), long);
    }

    #[test]
    fn decimals_are_written_with_all_places() {
        for (unscaled, scale, expected) in [
            ("1234", 2, "12.34"),
            ("-5", 2, "-0.05"),
            ("0", 2, "0.00"),
            ("12", 0, "12"),
            ("-100", 2, "-1.00"),
        ] {
            let mut out = Vec::new();
            write_decimal(unscaled, scale, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn whole_numbers_may_be_written_as_others_are() {
        assert_eq!(parse_i64(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_i64(b"9223372036854775808"), Err(Problem::Range));
        assert_eq!(parse_i64(b"5.0"), Ok(5));
        assert_eq!(parse_i64(b"1e3"), Ok(1000));
        assert_eq!(parse_i64(b"5.5"), Err(Problem::Expected));
        assert_eq!(parse_i64(b"1e99"), Err(Problem::Range));
        assert_eq!(parse_u64(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_u64(b"-1"), Err(Problem::Range));
        assert_eq!(parse_u64(b"-0"), Ok(0));
        assert_eq!(parse_f64(b"1e999"), Err(Problem::Range));
        assert_eq!(parse_f64(b"-Infinity"), Ok(f64::NEG_INFINITY));
    }
}
