//! Event time and the ways users write it.
//!
//! Event time is `i64` microseconds since 1970-01-01T00:00:00Z; a day is 86,400 s, leap seconds do not exist.

/// Microseconds since the epoch, or a span of microseconds.
pub type Micros = i64;

const SECOND: i64 = 1_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Parses a span such as `5s`, `10m`, `1h`, `7d`, `500ms`, `20us` into microseconds.
///
/// # Errors
/// A sentence that names the text and the accepted forms.
pub fn parse_duration(text: &str) -> Result<Micros, String> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let factor = match trimmed[digits..].trim() {
        "us" => 1,
        "ms" => 1_000,
        "s" => SECOND,
        "m" | "min" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        "d" => DAY_SECONDS * SECOND,
        "w" => 7 * DAY_SECONDS * SECOND,
        _ => return Err(duration_error(text)),
    };
    scale_decimal(&trimmed[..digits], factor).ok_or_else(|| duration_error(text))
}

/// `number` (digits with at most one point) times `factor`, exactly; `None` where that is no whole number.
fn scale_decimal(number: &str, factor: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let mut total = whole.checked_mul(factor)?;
    if !fraction.is_empty() {
        let digits: i64 = fraction.parse().ok()?;
        let scale = 10_i64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let part = digits.checked_mul(factor)?;
        if part % scale != 0 {
            return None;
        }
        total = total.checked_add(part / scale)?;
    }
    Some(total)
}

/// Writes a span with the largest unit that divides it, e.g. `90s`, `1h`.
pub fn format_duration(micros: Micros) -> String {
    for (unit, size) in
        [("d", DAY_SECONDS * SECOND), ("h", 3_600 * SECOND), ("m", 60 * SECOND), ("s", SECOND), ("ms", 1_000)]
    {
        if micros != 0 && micros % size == 0 {
            return format!("{}{unit}", micros / size);
        }
    }
    if micros == 0 { "0s".to_owned() } else { format!("{micros}us") }
}

/// Writes a span to be read by people, all units of it: `1d 2h`, `2m 3.25s`, `15ms`.
pub fn format_span(micros: Micros) -> String {
    let (sign, mut left) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
    let second = SECOND.unsigned_abs();
    if left < second {
        return format_duration(micros);
    }
    let mut parts: Vec<String> = Vec::new();
    for (unit, size) in
        [("d", DAY_SECONDS.unsigned_abs() * second), ("h", 3_600 * second), ("m", 60 * second)]
    {
        if left >= size {
            parts.push(format!("{}{unit}", left / size));
        }
        left %= size;
    }
    if left > 0 {
        let mut seconds = (left / second).to_string();
        if left % second != 0 {
            seconds.push_str(format!(".{:06}", left % second).trim_end_matches('0'));
        }
        parts.push(format!("{seconds}s"));
    }
    format!("{sign}{}", parts.join(" "))
}

fn duration_error(text: &str) -> String {
    format!("expected a duration such as 500ms, 5s, 10m, 1h or 7d, got {text:?}")
}

/// Days since the epoch of a date in the proleptic Gregorian calendar.
///
/// Counts from 1 March, so that the leap day is the last of its year (H. Hinnant, "chrono-compatible low-level
/// date algorithms").
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since the epoch; the inverse of [`days_from_civil`].
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = ((month_from_march + 2) % 12 + 1) as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Parses `2012-02-22T16:46:28.9670320+00:00` and its shorter forms into nanoseconds since the epoch.
///
/// Date and time are split by `T` or a blank; the time, its fraction (any number of digits; those past the
/// ninth are dropped) and the zone (`Z`, `+hh:mm`, `-hhmm`) may be left out. Without a zone the text is UTC.
/// `None` where it is no such text or is outside what 128 bits of nanoseconds and four-digit years hold.
pub fn parse_timestamp(text: &str) -> Option<i128> {
    let bytes = text.as_bytes();
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = bytes.get(range)?;
        digits
            .iter()
            .try_fold(0_i64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
    };
    let expect = |at: usize, wanted: u8| (bytes.get(at) == Some(&wanted)).then_some(());
    let (year, month, day) = (number(0..4)?, number(5..7)? as u32, number(8..10)? as u32);
    expect(4, b'-')?;
    expect(7, b'-')?;
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    let mut seconds = days_from_civil(year, month, day) * DAY_SECONDS;
    let mut nanos = 0_i64;
    let mut at = 10;
    if let Some(separator) = bytes.get(at) {
        if !matches!(separator, b'T' | b't' | b' ') {
            return None;
        }
        let (hour, minute) = (number(11..13)?, number(14..16)?);
        expect(13, b':')?;
        at = 16;
        let mut second = 0;
        if bytes.get(at) == Some(&b':') {
            second = number(17..19)?;
            at = 19;
            if matches!(bytes.get(at), Some(b'.' | b',')) {
                at += 1;
                let start = at;
                let mut unit = 100_000_000;
                while let Some(digit) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
                    nanos += i64::from(digit - b'0') * unit;
                    unit /= 10;
                    at += 1;
                }
                if at == start {
                    return None;
                }
            }
        }
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        seconds += hour * 3_600 + minute * 60 + second;
        if at < bytes.len() {
            seconds -= parse_offset(&bytes[at..])?;
        }
    }
    Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
}

/// Seconds east of UTC that an offset says: `Z`, `+01:00`, `+0100`, `+01`. `None` where it is no such text.
pub fn parse_offset(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'Z' | b'z'] => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let digits = match digits {
        [a, b, b':', c, d] | [a, b, c, d] => [*a, *b, *c, *d],
        [a, b] => [*a, *b, b'0', b'0'],
        _ => return None,
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let [a, b, c, d] = digits.map(|digit| i64::from(digit - b'0'));
    let (hours, minutes) = (10 * a + b, 10 * c + d);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Days of a month, from 1 to 12, in the proleptic Gregorian calendar.
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Writes event time as `2012-02-22T16:46:28.967032Z`, the fraction only where there is one.
pub fn format_timestamp(micros: Micros) -> String {
    let seconds = micros.div_euclid(SECOND);
    let fraction = micros.rem_euclid(SECOND);
    let (year, month, day) = civil_from_days(seconds.div_euclid(DAY_SECONDS));
    let of_day = seconds.rem_euclid(DAY_SECONDS);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if fraction != 0 {
        text.push_str(format!(".{fraction:06}").trim_end_matches('0'));
    }
    text.push('Z');
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, micros) in [
            ("5s", 5_000_000),
            ("500ms", 500_000),
            ("20us", 20),
            ("10m", 600_000_000),
            ("1h", 3_600_000_000),
            ("7d", 604_800_000_000),
            ("1.5s", 1_500_000),
            (" 2 s ", 2_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(micros), "{text}");
        }
        for text in ["", "5", "s", "-5s", "1.0000001s", "1.s", ".5s", "5 parsecs", "99999999999d"] {
            assert!(parse_duration(text).is_err(), "{text} should be refused");
        }
    }

    #[test]
    fn spans_are_written_with_all_their_units() {
        for (micros, text) in [
            (0, "0s"),
            (15_000, "15ms"),
            (999_999, "999999us"),
            (1_000_000, "1s"),
            (123_250_000, "2m 3.25s"),
            (3_600_000_000, "1h"),
            (90_061_000_001, "1d 1h 1m 1.000001s"),
            (-61_000_000, "-1m 1s"),
            (Micros::MIN, "-106751991d 4h 54.775808s"),
        ] {
            assert_eq!(format_span(micros), text);
        }
    }

    #[test]
    fn timestamps_take_zones_and_any_fraction() {
        for (text, nanos) in [
            ("1970-01-01", 0),
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31 23:59:59.5", -500_000_000),
            ("2012-02-22T16:46:28.9670320+00:00", 1_329_929_188_967_032_000),
            ("2012-02-22T16:46:28.9670320129", 1_329_929_188_967_032_012),
            ("2000-02-29T01:00+01:00", 951_782_400_000_000_000),
            ("2000-02-29T01:00:00-0130", 951_791_400_000_000_000),
        ] {
            assert_eq!(parse_timestamp(text), Some(nanos), "{text}");
        }
        for text in [
            "",
            "1970",
            "1970-13-01",
            "1970-02-29",
            "1970-01-01T24:00",
            "1970-01-01T00:00:00.",
            "1970-01-01x",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn timestamps_read_back_as_written(micros in -62_135_596_800_000_000_i64..253_402_300_799_999_999) {
            prop_assert_eq!(parse_timestamp(&format_timestamp(micros)), Some(i128::from(micros) * 1000));
        }

        #[test]
        fn durations_read_back_as_written(micros in 0_i64..i64::MAX / 2) {
            prop_assert_eq!(parse_duration(&format_duration(micros)), Ok(micros));
        }
    }
}
