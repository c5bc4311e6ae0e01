//! A reject as a line of JSON: `{"source":…,"offset":…,"line":…,"code":…,"reason":…,"raw":…}`.
//!
//! Raw bytes that are not UTF-8 are in `raw_base64` instead of `raw`. Of long ones the first [`KEPT`] are there, and
//! `raw_bytes` says how many there were.

use thalweg_types::Reject;

use crate::format::cells::write_json_string;

/// Raw bytes that are kept of a record.
pub(super) const KEPT: usize = 64 << 10;

/// Bytes of a reason.
const LONGEST_REASON: usize = 4 << 10;

/// The beginning of a text, at most `most` bytes.
fn shortened(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Place and reason.
pub(super) fn describe(reject: &Reject<'_>) -> String {
    match reject.line {
        Some(line) => format!("line {line}: {}", reject.reason),
        None => format!("record {}: {}", reject.offset, reject.reason),
    }
}

pub(super) fn write(reject: &Reject<'_>, out: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    out.extend_from_slice(b"{\"source\":");
    write_json_string(reject.source, out);
    out.extend_from_slice(b",\"offset\":");
    out.extend_from_slice(number.format(reject.offset).as_bytes());
    out.extend_from_slice(b",\"line\":");
    match reject.line {
        None => out.extend_from_slice(b"null"),
        Some(line) => out.extend_from_slice(number.format(line).as_bytes()),
    }
    out.extend_from_slice(b",\"code\":");
    write_json_string(reject.code, out);
    out.extend_from_slice(b",\"reason\":");
    write_json_string(shortened(reject.reason, LONGEST_REASON), out);
    let raw = reject.raw;
    match std::str::from_utf8(raw) {
        Ok(text) => {
            out.extend_from_slice(b",\"raw\":");
            write_json_string(shortened(text, KEPT), out);
        }
        Err(_) => {
            out.extend_from_slice(b",\"raw_base64\":\"");
            crate::format::base64::encode(&raw[..raw.len().min(KEPT)], out);
            out.push(b'"');
        }
    }
    if raw.len() > KEPT {
        out.extend_from_slice(b",\"raw_bytes\":");
        out.extend_from_slice(number.format(raw.len()).as_bytes());
    }
    out.extend_from_slice(b"}\n");
}
