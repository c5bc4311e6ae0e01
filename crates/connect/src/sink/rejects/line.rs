//! A reject as a line of JSON: `{"source":…,"offset":…,"line":…,"code":…,"reason":…,"raw":…}`.
//!
//! Raw bytes that are no UTF-8 stand in `raw_base64` instead of `raw`. Of long ones the first [`KEPT`] are there, and
//! `raw_bytes` says how many there were.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, BinaryViewArray, StringViewArray};
use thalweg_types::Batch;

use crate::format::cells::write_json_string;

/// Raw bytes that are kept of a record.
pub(super) const KEPT: usize = 64 << 10;

/// Bytes of a reason.
const LONGEST_REASON: usize = 4 << 10;

/// The beginning of a text, at most so many bytes.
fn shortened(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The columns of `thalweg_types::rejects_schema`.
pub(super) struct Columns<'a> {
    batch: &'a Batch,
    pub(super) source: &'a StringViewArray,
    pub(super) code: &'a StringViewArray,
    pub(super) reason: &'a StringViewArray,
    raw: &'a BinaryViewArray,
}

impl<'a> Columns<'a> {
    pub(super) fn new(batch: &'a Batch) -> Self {
        Self {
            batch,
            source: batch.column(0).as_string_view(),
            code: batch.column(3).as_string_view(),
            reason: batch.column(4).as_string_view(),
            raw: batch.column(5).as_binary_view(),
        }
    }

    fn offset(&self, row: usize) -> u64 {
        self.batch.column(1).as_primitive::<UInt64Type>().value(row)
    }

    fn line(&self, row: usize) -> Option<u64> {
        let lines = self.batch.column(2).as_primitive::<UInt64Type>();
        lines.is_valid(row).then(|| lines.value(row))
    }

    /// Place and reason.
    pub(super) fn describe(&self, row: usize) -> String {
        let reason = self.reason.value(row);
        match self.line(row) {
            Some(line) => format!("line {line}: {reason}"),
            None => format!("record {}: {reason}", self.offset(row)),
        }
    }

    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"{\"source\":");
        write_json_string(self.source.value(row), out);
        out.extend_from_slice(b",\"offset\":");
        out.extend_from_slice(number.format(self.offset(row)).as_bytes());
        out.extend_from_slice(b",\"line\":");
        match self.line(row) {
            None => out.extend_from_slice(b"null"),
            Some(line) => out.extend_from_slice(number.format(line).as_bytes()),
        }
        out.extend_from_slice(b",\"code\":");
        write_json_string(self.code.value(row), out);
        out.extend_from_slice(b",\"reason\":");
        write_json_string(shortened(self.reason.value(row), LONGEST_REASON), out);
        let raw = self.raw.value(row);
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
}
