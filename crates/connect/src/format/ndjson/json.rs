//! JSON tokens, checked as RFC 8259 says, without making anything of them.

use super::super::scan::{controls, load8, matches, splat};

/// Deepest nesting accepted, so that no input can exhaust the stack.
pub(super) const MAX_DEPTH: usize = 128;

/// A syntax error: what was expected, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JsonError {
    pub(super) at: usize,
    pub(super) expected: &'static str,
}

pub(super) type Place = Result<usize, JsonError>;

#[inline(always)]
pub(super) fn skip_blanks(line: &[u8], at: usize) -> usize {
    let mut at = at;
    while let Some(b' ' | b'\t' | b'\r' | b'\n') = line.get(at) {
        at += 1;
    }
    at
}

/// The place after the closing quote of the string whose inside begins at `at`, and whether it has escapes.
pub(super) fn string_end(line: &[u8], at: usize) -> Result<(usize, bool), JsonError> {
    let mut at = at;
    let mut is_escaped = false;
    loop {
        let word = load8(line, at);
        let found = matches(word, splat(b'"')) | matches(word, splat(b'\\')) | controls(word);
        if found == 0 {
            at += 8;
            continue;
        }
        at += (found.trailing_zeros() / 8) as usize;
        match line.get(at) {
            Some(b'"') => return Ok((at + 1, is_escaped)),
            Some(b'\\') => {
                is_escaped = true;
                at = escape_end(line, at + 1)?;
            }
            Some(_) => return Err(JsonError { at, expected: "no control character in a string" }),
            None => return Err(JsonError { at: line.len(), expected: "the end of a string" }),
        }
    }
}

fn escape_end(line: &[u8], at: usize) -> Place {
    match line.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') if line.get(at + 1..at + 5).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) => {
            Ok(at + 5)
        }
        _ => Err(JsonError { at, expected: "an escape" }),
    }
}

/// Appends the inside of a string without its escapes. `None` where a surrogate has no partner.
pub(super) fn unescape(inside: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = inside;
    while let Some(found) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..found]);
        let escape = *rest.get(found + 1)?;
        rest = &rest[found + 2..];
        let plain = match escape {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = hex4(rest)?;
                rest = &rest[4..];
                if (0xD800..0xDC00).contains(&code) {
                    let low = hex4(rest.strip_prefix(b"\\u")?)?;
                    if !(0xDC00..0xE000).contains(&low) {
                        return None;
                    }
                    code = 0x1_0000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                    rest = &rest[6..];
                }
                let character = char::from_u32(code)?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            other => other,
        };
        out.push(plain);
    }
    out.extend_from_slice(rest);
    Some(())
}

fn hex4(text: &[u8]) -> Option<u32> {
    text.get(..4)?.iter().try_fold(0, |code, byte| Some(code * 16 + char::from(*byte).to_digit(16)?))
}

/// The place after the number at `at`.
pub(super) fn number_end(line: &[u8], at: usize) -> Place {
    let digits = |from: usize| {
        let mut at = from;
        while line.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at > from { Ok(at) } else { Err(JsonError { at, expected: "a digit" }) }
    };
    let start = at + usize::from(line.get(at) == Some(&b'-'));
    let mut at = digits(start)?;
    if line[start] == b'0' && at > start + 1 {
        return Err(JsonError { at: start, expected: "a number without leading zeros" });
    }
    if line.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = line.get(at) {
        at += 1;
        at = digits(at + usize::from(matches!(line.get(at), Some(b'+' | b'-'))))?;
    }
    Ok(at)
}

/// The place after the literal at `at`.
#[inline]
pub(super) fn literal_end(line: &[u8], at: usize, literal: &'static str) -> Place {
    if line[at..].starts_with(literal.as_bytes()) {
        Ok(at + literal.len())
    } else {
        Err(JsonError { at, expected: "a JSON value" })
    }
}

/// The place after the value at `at`, whatever it is.
pub(super) fn value_end(line: &[u8], at: usize, depth: usize) -> Place {
    if depth > MAX_DEPTH {
        return Err(JsonError { at, expected: "at most 128 levels of nesting" });
    }
    match line.get(at) {
        Some(b'"') => string_end(line, at + 1).map(|(end, _)| end),
        Some(b'-' | b'0'..=b'9') => number_end(line, at),
        Some(b't') => literal_end(line, at, "true"),
        Some(b'f') => literal_end(line, at, "false"),
        Some(b'n') => literal_end(line, at, "null"),
        Some(b'{') => members_end(line, at, b'}', depth, |line, at| {
            let at = expect(line, at, b'"', "a key")?;
            let at = skip_blanks(line, string_end(line, at)?.0);
            Ok(skip_blanks(line, expect(line, at, b':', "a colon after a key")?))
        }),
        Some(b'[') => members_end(line, at, b']', depth, |_, at| Ok(at)),
        _ => Err(JsonError { at, expected: "a JSON value" }),
    }
}

fn members_end(
    line: &[u8],
    at: usize,
    close: u8,
    depth: usize,
    before_value: impl Fn(&[u8], usize) -> Place,
) -> Place {
    let mut at = skip_blanks(line, at + 1);
    if line.get(at) == Some(&close) {
        return Ok(at + 1);
    }
    loop {
        at = before_value(line, at)?;
        at = skip_blanks(line, value_end(line, at, depth + 1)?);
        match line.get(at) {
            Some(b',') => at = skip_blanks(line, at + 1),
            Some(byte) if *byte == close => return Ok(at + 1),
            _ => return Err(JsonError { at, expected: "a comma or the end of an object or array" }),
        }
    }
}

pub(super) fn expect(line: &[u8], at: usize, byte: u8, expected: &'static str) -> Place {
    if line.get(at) == Some(&byte) { Ok(at + 1) } else { Err(JsonError { at, expected }) }
}

/// Calls with the end of each of the objects in `text`, if it is nothing but objects with blanks between them; they may
/// take several lines each. `false` where it is not, after some calls.
pub(crate) fn for_each_object(text: &[u8], mut call: impl FnMut(usize)) -> bool {
    let mut at = skip_blanks(text, 0);
    while at < text.len() {
        if text[at] != b'{' {
            return false;
        }
        let Ok(end) = value_end(text, at, 0) else { return false };
        call(end);
        at = skip_blanks(text, end);
    }
    true
}
