//! Where points and their parts begin and end; values are not read here.

use std::ops::Range;

use super::super::quotes::After;

/// What is found at a place between records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A record without its line end and the blanks before it, and the place after its line end.
    Record { place: Range<usize>, next: usize },
    /// A record that begins here, and a quote in it is open where the data ends.
    Open { start: usize },
    /// No record follows. The last line may be a comment that goes on after the data.
    End { in_comment: bool },
}

/// The next record at or after `at`, where a line begins. A record may lack its line end; the caller knows whether the
/// data ends there.
pub(super) fn next_record(data: &[u8], at: usize) -> Next {
    let at = match next_start(data, at) {
        Start::Record(at) => at,
        Start::End { in_comment } => return Next::End { in_comment },
    };
    let Some(end) = record_end(data, at) else { return Next::Open { start: at } };
    let text = &data[at..end];
    let place = at..end - usize::from(text.ends_with(b"\r"));
    Next::Record { place, next: (end + 1).min(data.len()) }
}

/// Where records may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Record(usize),
    /// As [`Next::End`].
    End {
        in_comment: bool,
    },
}

/// The place at or after `at`, where a line begins, at which the next record begins: after blanks and comments.
pub(super) fn next_start(data: &[u8], at: usize) -> Start {
    let mut at = at;
    loop {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = data.get(at) {
            at += 1;
        }
        match data.get(at) {
            None => return Start::End { in_comment: false },
            Some(b'#') => match memchr::memchr(b'\n', &data[at..]) {
                Some(end) => at += end + 1,
                None => return Start::End { in_comment: true },
            },
            Some(_) => return Start::Record(at),
        }
    }
}

/// The place of the line end of the record at `at`, or the data's end; `None` where a quote is open there.
///
/// Splitter and decoder find records by it and so agree; the splitter a line at a time ([`after`]).
fn record_end(data: &[u8], at: usize) -> Option<usize> {
    let (mut start, mut is_open) = (at, false);
    loop {
        let end = memchr::memchr(b'\n', &data[start..]).map_or(data.len(), |end| start + end);
        match after(&data[start..end], is_open) {
            // A broken line is not a record, and the splitter has taken it apart.
            After::Ends | After::Broken => return Some(end),
            After::Open if end == data.len() => return None,
            After::Open => (start, is_open) = (end + 1, true),
        }
    }
}

/// The state after a line.
pub(super) fn after(line: &[u8], is_open: bool) -> After {
    let mut at = 0;
    if memchr::memchr(b'"', line).is_none() {
        return if is_open { After::Open } else { After::Ends };
    }
    if is_open {
        let Some(end) = closing_end(line, 0) else { return After::Open };
        if !matches!(&line[end..], [] | [b'\r'] | [b',' | b' ' | b'\n', ..] | [b'\r', b'\n', ..]) {
            return After::Broken;
        }
        at = end;
    } else {
        // Quotes have a meaning only after the equals sign of a field.
        at = until(line, at, |byte| matches!(byte, b' ' | b'\n'));
    }
    loop {
        at = until(line, at, |byte| matches!(byte, b'=' | b'\n'));
        if line.get(at) != Some(&b'=') {
            return After::Ends;
        }
        at += 1;
        if line.get(at) == Some(&b'"') {
            match string_end(line, at) {
                Some(end) => at = end,
                None => return After::Open,
            }
        }
    }
}

/// Whether a line is a whole record, or a part of one that looks like it.
pub(super) fn is_alone(line: &[u8]) -> bool {
    matches!(next_record(line, 0), Next::Record { next, .. } if next == line.len())
}

/// The first place from `at` on whose byte stops and is not escaped.
fn until(data: &[u8], at: usize, stops: impl Fn(u8) -> bool) -> usize {
    let mut at = at;
    while let Some(byte) = data.get(at) {
        if *byte == b'\\' && matches!(data.get(at + 1), Some(b',' | b'=' | b' ')) {
            at += 2;
        } else if stops(*byte) {
            break;
        } else {
            at += 1;
        }
    }
    at
}

/// The place after the closing quote of the string whose opening quote is at `at`.
fn string_end(data: &[u8], at: usize) -> Option<usize> {
    closing_end(data, at + 1)
}

/// The place after the quote that closes the string which `at` is within.
fn closing_end(data: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    loop {
        at += memchr::memchr2(b'"', b'\\', data.get(at..)?)?;
        match data[at] {
            b'"' => return Some(at + 1),
            _ if matches!(data.get(at + 1), Some(b'"' | b'\\')) => at += 2,
            _ => at += 1,
        }
    }
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// `1i`, `1u`: the digits.
    Whole(Range<usize>),
    Number(Range<usize>),
    Bool(bool),
    /// The inside of the quotes.
    Text(Range<usize>),
}

/// A point taken apart: the places of its pieces, as written.
#[derive(Debug, Default)]
pub(super) struct Point {
    pub(super) measurement: Range<usize>,
    pub(super) tags: Vec<(Range<usize>, Range<usize>)>,
    /// Name, value, and the value with everything that marks its type.
    pub(super) fields: Vec<(Range<usize>, Value, Range<usize>)>,
    pub(super) time: Option<Range<usize>>,
}

/// A syntax error: what was expected, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) at: usize,
    pub(super) expected: &'static str,
}

impl Point {
    /// Takes the record at `place` apart.
    pub(super) fn read(&mut self, data: &[u8], place: Range<usize>) -> Result<(), Flaw> {
        self.tags.clear();
        self.fields.clear();
        self.time = None;
        let data = &data[..place.end];
        let is = |at: usize, byte: u8| data.get(at) == Some(&byte);
        let piece = |start: usize, end: usize, expected: &'static str| {
            if end > start { Ok(start..end) } else { Err(Flaw { at: start, expected }) }
        };

        let mut at = until(data, place.start, |byte| matches!(byte, b',' | b' '));
        self.measurement = piece(place.start, at, "a measurement")?;
        while is(at, b',') {
            let end = until(data, at + 1, |byte| matches!(byte, b'=' | b',' | b' '));
            let key = piece(at + 1, end, "the name of a tag")?;
            if !is(end, b'=') {
                return Err(Flaw { at: end, expected: "an equals sign after the name of a tag" });
            }
            at = until(data, end + 1, |byte| matches!(byte, b'=' | b',' | b' '));
            self.tags.push((key, piece(end + 1, at, "the value of a tag")?));
            if is(at, b'=') {
                return Err(Flaw { at, expected: "a comma or a blank after a tag" });
            }
        }
        at = blanks_end(data, at);
        loop {
            let end = until(data, at, |byte| matches!(byte, b'=' | b',' | b' '));
            let key = piece(at, end, "the name of a field")?;
            if !is(end, b'=') {
                return Err(Flaw { at: end, expected: "an equals sign after the name of a field" });
            }
            let (value, whole) = value(data, end + 1)?;
            at = whole.end;
            self.fields.push((key, value, whole));
            match data.get(at) {
                Some(b',') => at += 1,
                Some(b' ') | None => break,
                Some(_) => return Err(Flaw { at, expected: "a comma or a blank after a field" }),
            }
        }
        at = blanks_end(data, at);
        if at < data.len() {
            let end = at + data[at..].iter().position(|byte| *byte == b' ').unwrap_or(data.len() - at);
            if !is_whole(&data[at..end]) {
                return Err(Flaw { at, expected: "a time stamp, a whole number" });
            }
            self.time = Some(at..end);
            let rest = blanks_end(data, end);
            if rest < data.len() {
                return Err(Flaw { at: rest, expected: "the end of the line after the time stamp" });
            }
        }
        Ok(())
    }
}

fn blanks_end(data: &[u8], at: usize) -> usize {
    at + data[at..].iter().take_while(|byte| **byte == b' ').count()
}

/// A field's value at `at`, and all of its text.
fn value(data: &[u8], at: usize) -> Result<(Value, Range<usize>), Flaw> {
    if data.get(at) == Some(&b'"') {
        let end = string_end(data, at).ok_or(Flaw { at, expected: "a closing quote" })?;
        return Ok((Value::Text(at + 1..end - 1), at..end));
    }
    let end = at + memchr::memchr2(b',', b' ', &data[at..]).unwrap_or(data.len() - at);
    let value = match &data[at..end] {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => Value::Bool(true),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => Value::Bool(false),
        [digits @ .., b'i'] if is_whole(digits) => Value::Whole(at..end - 1),
        [digits @ .., b'u'] if is_whole(digits) && digits[0] != b'-' => Value::Whole(at..end - 1),
        text if is_number(text) => Value::Number(at..end),
        _ => return Err(Flaw { at, expected: "a number, a boolean or a text in quotes" }),
    };
    Ok((value, at..end))
}

fn unsigned(text: &[u8]) -> &[u8] {
    match text {
        [b'-' | b'+', rest @ ..] => rest,
        rest => rest,
    }
}

fn is_whole(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Digits with a point and an exponent, or the name of a value that is not a number.
fn is_number(text: &[u8]) -> bool {
    if matches!(text, b"NaN" | b"Infinity" | b"-Infinity") {
        return true;
    }
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], unsigned(&text[at + 1..])),
        None => (text, b"0".as_slice()),
    };
    let mut points = 0;
    let mut digits = 0;
    for byte in unsigned(mantissa) {
        match byte {
            b'.' => points += 1,
            b'0'..=b'9' => digits += 1,
            _ => return false,
        }
    }
    points <= 1 && digits > 0 && !exponent.is_empty() && exponent.iter().all(u8::is_ascii_digit)
}

/// Appends a name, a tag's value or a measurement without its escapes.
pub(super) fn unescape(text: &[u8], out: &mut Vec<u8>) {
    take_out(text, out, |byte| matches!(byte, b',' | b'=' | b' '));
}

/// Appends the inside of quotes without its escapes.
pub(super) fn unescape_text(text: &[u8], out: &mut Vec<u8>) {
    take_out(text, out, |byte| matches!(byte, b'"' | b'\\'));
}

fn take_out(text: &[u8], out: &mut Vec<u8>, is_escaped: impl Fn(u8) -> bool) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        match rest.get(at + 1) {
            Some(byte) if is_escaped(*byte) => {
                out.push(*byte);
                rest = &rest[at + 2..];
            }
            _ => {
                out.push(b'\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out.extend_from_slice(rest);
}

/// Appends a name, a tag's value or a measurement as it is written.
pub(super) fn escape(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        if matches!(byte, b',' | b'=' | b' ') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
}

/// Appends a text in quotes.
pub(super) fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

/// Whether a name, a tag's value or a measurement can be written so that it reads back.
pub(super) fn can_be_written(text: &[u8]) -> bool {
    !text.is_empty() && text.last() != Some(&b'\\') && memchr::memchr(b'\n', text).is_none()
}
