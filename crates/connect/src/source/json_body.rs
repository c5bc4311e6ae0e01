//! Bodies of JSON, which is not always an object a line: arrays, and objects that take several lines or share one.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::cut::{BlockContext, Cut, MAX_BLOCK, cut_into};
use crate::format::RecordFormat;
use crate::format::ndjson::{self, Array, Element};

/// Bytes of a piece, unless a record has more.
const PIECE: usize = 256 << 10;

/// How a body is cut.
pub(super) struct Cutting<'a> {
    pub(super) format: &'a dyn RecordFormat,
    /// Records of a piece at most.
    pub(super) records: u32,
}

impl Cutting<'_> {
    /// The records of a body of JSON: of an array its elements, else each object, however many lines it takes.
    pub(super) fn json(&self, body: &Bytes) -> Vec<Cut> {
        match self.array(body) {
            Some(cuts) => cuts,
            None => self.lines(&one_line_each(body)),
        }
    }

    /// The records of a body as its format has them.
    pub(super) fn lines(&self, body: &Bytes) -> Vec<Cut> {
        match cut_into(self.format, body, PIECE, self.records) {
            Ok(cuts) => cuts,
            // A header that does not fit: the whole body is one thing that cannot be read.
            Err(error) => vec![refused(body, Cow::Owned(error.chain()))],
        }
    }

    /// The elements of a body that is one JSON array. `None` if it is not an array: bytes after an array make it
    /// lines, each of which is a record.
    fn array(&self, body: &Bytes) -> Option<Vec<Cut>> {
        let start = body.len() - without_mark(body).len();
        let body = body.slice(start..);
        let mut array = Array::begin(&body)?;
        // An element takes no more as a line: where its comma was, the line ends.
        let (mut cuts, mut lines) = (Vec::new(), BytesMut::with_capacity(body.len()));
        let mut broken = 0;
        while let Some(element) = array.next() {
            let (place, reason) = match element {
                Element::Value(place) => {
                    push_line(&body[place], &mut lines);
                    continue;
                }
                // As a line it is found out again.
                Element::Broken(place, _) if !array.is_cut() && is_line(&body[place.clone()]) => {
                    push_line(&body[place], &mut lines);
                    continue;
                }
                Element::Broken(place, reason) => (place, reason),
            };
            cuts.extend(self.lines(&lines.split().freeze()));
            broken += 1;
            if broken <= BROKEN {
                cuts.push(refused(&body.slice(place), reason));
                continue;
            }
            let number = array.number();
            // Bytes after the array are not looked for any more.
            let reason = format!(
                "elements {number} and later of the array: expected at most {BROKEN} that are no JSON, got more"
            );
            cuts.push(refused(&body.slice(place.start..), Cow::Owned(reason)));
            return Some(cuts);
        }
        if array.is_followed() {
            return None;
        }
        cuts.extend(self.lines(&lines.freeze()));
        Some(cuts)
    }
}

/// Elements of an array that are each refused by themselves: they take more memory than lines do.
const BROKEN: u64 = 100;

/// Something that cannot be read, as one record. The part that is kept fits into a journal.
fn refused(text: &Bytes, reason: Cow<'static, str>) -> Cut {
    let context = BlockContext { refused: Some((Cow::Borrowed("parse"), reason)), ..BlockContext::default() };
    // By itself: a slice would hold the whole body, of which the queue knows nothing.
    let data = Bytes::copy_from_slice(&text[..text.len().min(MAX_BLOCK)]);
    Cut { data, count: 1, context: Some(Arc::new(context)) }
}

/// Whether a text can be a line of its own as it is.
fn is_line(text: &[u8]) -> bool {
    !text.is_empty() && memchr::memchr2(b'\n', b'\r', text).is_none()
}

/// Appends a JSON value as a line. Line ends are between its tokens only: within a string they would not have been
/// JSON.
fn push_line(value: &[u8], lines: &mut BytesMut) {
    let from = lines.len();
    lines.extend_from_slice(value);
    lines[from..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    lines.extend_from_slice(b"\n");
}

fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body)
}

/// Objects that take several lines, or share one, as one object a line. Anything else stays as it is.
fn one_line_each(body: &Bytes) -> Bytes {
    let text = without_mark(body);
    let (mut start, mut count, mut is_lines) = (0, 0, true);
    let is_objects = ndjson::for_each_object(text, |end| {
        let object = &text[start..end];
        let is_alone = text[end..]
            .iter()
            .find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'))
            .is_none_or(|byte| *byte == b'\n');
        is_lines = is_lines && is_alone && memchr::memchr(b'\n', object.trim_ascii_start()).is_none();
        (start, count) = (end, count + 1);
    });
    if !is_objects || is_lines {
        return body.clone();
    }
    let mut lines = BytesMut::with_capacity(text.len() + count);
    let mut start = 0;
    ndjson::for_each_object(text, |end| {
        push_line(text[start..end].trim_ascii_start(), &mut lines);
        start = end;
    });
    lines.freeze()
}
