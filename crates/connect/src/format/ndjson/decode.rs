//! Lines of JSON into typed columns, without a tree in between.
//!
//! Each line is read twice: once over its tokens, which notes where the value of each field is, then field
//! by field into the columns. So keys may come in any order, twice or not at all, and a bad line touches no
//! column before it is known to be one. Keys are guessed from the line before: the key after `card` is looked
//! up in a table only where it is not the one that follows `card` in the schema.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_types::{Error, Schema, hash_bytes};

use super::super::column::{Column, Values, shorten};
use super::super::scan::{digits15, float};
use super::super::text::Problem;
use super::super::times::Times;
use super::super::{BadRecord, Columns, Preamble, RecordDecoder, too_long};
use super::is_blank;
use super::json::{
    JsonError, MAX_DEPTH, Place, expect, literal_end, number_end, skip_blanks, string_end, unescape,
    value_end,
};

pub(super) struct NdjsonDecoder {
    columns: Vec<Column>,
    max_record: usize,
    keys: Keys,
    slots: Vec<Slot>,
    scratch: Vec<u8>,
}

/// What is found where the value of a field should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Absent,
    Null,
    True,
    False,
    Number,
    String,
    EscapedString,
    /// An object or an array.
    Nested,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    token: Token,
    /// How deep the key is that filled it: a literal `user.id` counts before a nested one.
    depth: u32,
    start: usize,
    end: usize,
}

const ABSENT: Slot = Slot { token: Token::Absent, depth: u32::MAX, start: 0, end: 0 };

/// The keys that matter, as a tree of objects.
struct Keys {
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    /// The field that a value under this key fills.
    field: Option<usize>,
    /// Keys inside, if the value is an object, in the order of the schema.
    children: Vec<(Box<[u8]>, usize)>,
    places: HashMap<Box<[u8]>, usize, BuildHasherDefault<KeyHasher>>,
}

/// Schema keys are looked up, never inserted from data: a hash without a secret is enough.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.rotate_left(5) ^ hash_bytes(bytes);
    }
}

impl Keys {
    fn new(schema: &Schema) -> Self {
        let mut keys = Self { nodes: vec![Node::default()] };
        for (field, name) in schema.names().enumerate() {
            keys.insert(0, name, field);
        }
        keys
    }

    /// Enters `a.b.c` as the key `a.b.c` here, and `b.c` likewise under the key `a`.
    fn insert(&mut self, node: usize, path: &str, field: usize) {
        let literal = self.child(node, path);
        self.nodes[literal].field.get_or_insert(field);
        if let Some((head, rest)) = path.split_once('.') {
            let inner = self.child(node, head);
            self.insert(inner, rest, field);
        }
    }

    fn child(&mut self, node: usize, key: &str) -> usize {
        if let Some(place) = self.nodes[node].places.get(key.as_bytes()) {
            return self.nodes[node].children[*place].1;
        }
        let new = self.nodes.len();
        self.nodes.push(Node::default());
        let parent = &mut self.nodes[node];
        parent.places.insert(key.as_bytes().into(), parent.children.len());
        parent.children.push((key.as_bytes().into(), new));
        new
    }
}

impl NdjsonDecoder {
    pub(super) fn new(schema: &Schema, times: &Arc<Times>, max_record: usize) -> Result<Self, Error> {
        let columns = schema.fields().iter().map(|field| Column::reading(field, times));
        Ok(Self {
            max_record,
            columns: columns.collect::<Result<_, _>>()?,
            keys: Keys::new(schema),
            slots: vec![ABSENT; schema.fields().len()],
            scratch: Vec::new(),
        })
    }

    /// Appends the object on the line at `start..end` of the block.
    fn decode_line(&mut self, data: &[u8], start: usize, end: usize) -> Result<(), Cow<'static, str>> {
        self.slots.fill(ABSENT);
        let line = &data[start..end];
        let at = skip_blanks(line, 0);
        let read = || -> Place {
            let open = expect(line, at, b'{', "a JSON object")?;
            let mut reader =
                LineReader { line, keys: &self.keys, slots: &mut self.slots, scratch: &mut self.scratch };
            let end = skip_blanks(line, reader.object(open, 0, 0)?);
            if end < line.len() {
                return Err(JsonError { at: end, expected: "the end of the line" });
            }
            Ok(end)
        };
        let mut read = read;
        read().map_err(|error| describe_json(error, line))?;
        for (column, slot) in self.columns.iter_mut().zip(&self.slots) {
            push_slot(column, *slot, data, start, &mut self.scratch)?;
        }
        Ok(())
    }
}

#[cold]
pub(super) fn describe_json(error: JsonError, line: &[u8]) -> Cow<'static, str> {
    let got = match line.get(error.at..).unwrap_or_default() {
        [] => "the end".to_owned(),
        rest => format!("{:?}", shorten(rest)),
    };
    Cow::Owned(format!("expected {} at byte {}, got {got}", error.expected, error.at + 1))
}

/// Reads the tokens of one line into the slots of the fields.
struct LineReader<'a> {
    line: &'a [u8],
    keys: &'a Keys,
    slots: &'a mut [Slot],
    scratch: &'a mut Vec<u8>,
}

impl LineReader<'_> {
    /// The place after the object whose inside begins at `at`.
    fn object(&mut self, at: usize, node: usize, depth: usize) -> Place {
        let line = self.line;
        if depth > MAX_DEPTH {
            return Err(JsonError { at, expected: "at most 128 levels of nesting" });
        }
        let mut at = skip_blanks(line, at);
        if line.get(at) == Some(&b'}') {
            return Ok(at + 1);
        }
        let mut guess = 0;
        loop {
            let inside = expect(line, at, b'"', "a key")?;
            let (child, after_key) = self.key(inside, node, &mut guess)?;
            at = skip_blanks(line, after_key);
            at = skip_blanks(line, expect(line, at, b':', "a colon after a key")?);
            at = match child {
                Some(child) => self.value(at, child, depth)?,
                None => value_end(line, at, depth)?,
            };
            at = skip_blanks(line, at);
            match line.get(at) {
                Some(b',') => at = skip_blanks(line, at + 1),
                Some(b'}') => return Ok(at + 1),
                _ => return Err(JsonError { at, expected: "a comma or the end of the object" }),
            }
        }
    }

    /// The node of the key whose inside begins at `at`, and the place after its closing quote.
    #[inline]
    fn key(
        &mut self,
        at: usize,
        node: usize,
        guess: &mut usize,
    ) -> Result<(Option<usize>, usize), JsonError> {
        let node = &self.keys.nodes[node];
        if let Some((key, child)) = node.children.get(*guess)
            && self.line[at..].starts_with(key)
            && self.line.get(at + key.len()) == Some(&b'"')
            && !key.iter().any(|byte| *byte == b'\\' || *byte < 0x20)
        {
            *guess += 1;
            return Ok((Some(*child), at + key.len() + 1));
        }
        let (end, is_escaped) = string_end(self.line, at)?;
        let mut key = &self.line[at..end - 1];
        if is_escaped {
            self.scratch.clear();
            unescape(key, self.scratch)
                .ok_or(JsonError { at, expected: "a key without half a surrogate pair" })?;
            key = self.scratch.as_slice();
        }
        let place = node.places.get(key).copied();
        if let Some(place) = place {
            *guess = place + 1;
        }
        Ok((place.map(|place| node.children[place].1), end))
    }

    fn value(&mut self, at: usize, node: usize, depth: usize) -> Place {
        let line = self.line;
        let here = &self.keys.nodes[node];
        let (token, end) = match line.get(at) {
            Some(b'"') => match string_end(line, at + 1)? {
                (end, false) => (Token::String, end),
                (end, true) => (Token::EscapedString, end),
            },
            Some(b'-' | b'0'..=b'9') => (Token::Number, number_end(line, at)?),
            Some(b'{') if !here.children.is_empty() => (Token::Nested, self.object(at + 1, node, depth + 1)?),
            Some(b't') => (Token::True, literal_end(line, at, "true")?),
            Some(b'f') => (Token::False, literal_end(line, at, "false")?),
            Some(b'n') => (Token::Null, literal_end(line, at, "null")?),
            _ => (Token::Nested, value_end(line, at, depth)?),
        };
        if let Some(field) = here.field {
            let slot = &mut self.slots[field];
            if depth as u32 <= slot.depth {
                *slot = Slot { token, depth: depth as u32, start: at, end };
            }
        }
        Ok(end)
    }
}

/// Appends the value that a slot points to; `line` is the place of the line in the block.
#[inline]
fn push_slot(
    column: &mut Column,
    slot: Slot,
    data: &[u8],
    line: usize,
    scratch: &mut Vec<u8>,
) -> Result<(), Cow<'static, str>> {
    let (start, end) = (line + slot.start, line + slot.end);
    let result = match (slot.token, &mut column.values) {
        (Token::Absent | Token::Null, _) => column.push_null(),
        (Token::String, Values::String(views)) => {
            views.push_block(data, start + 1, end - start - 2);
            Ok(())
        }
        (Token::Number, Values::Float64(values)) => match float(data, start, b'.') {
            Some((value, stop)) if stop == end => {
                values.push(value);
                Ok(())
            }
            _ => column.push_text(&data[start..end], None),
        },
        (Token::Number, Values::Int64(values) | Values::Time { values, .. }) => {
            let negative = data[start] == b'-';
            match digits15(data, start + usize::from(negative)) {
                Some((digits, stop)) if stop == end => {
                    values.push(if negative { -(digits as i64) } else { digits as i64 });
                    Ok(())
                }
                _ => column.push_text(&data[start..end], None),
            }
        }
        (
            Token::Number,
            Values::UInt64(_)
            | Values::Ipv4Int(_)
            | Values::Decimal128 { .. }
            | Values::Decimal256 { .. }
            | Values::TimeText { .. },
        ) => column.push_text(&data[start..end], None),
        (Token::True, Values::Bool(values)) => {
            values.push(true);
            Ok(())
        }
        (Token::False, Values::Bool(values)) => {
            values.push(false);
            Ok(())
        }
        // Ids that a program writes as numbers: the digits as they are.
        (Token::Number, Values::String(views)) => {
            views.push_block(data, start, end - start);
            Ok(())
        }
        // Every type can be written as a string, as exchanges do with amounts and browsers with ids above 2^53.
        (Token::String | Token::EscapedString, _) => {
            scratch.clear();
            match unescape(&data[start + 1..end - 1], scratch) {
                None => Err(Problem::Expected),
                Some(()) => column.push_text(scratch, None),
            }
        }
        _ => Err(Problem::Expected),
    };
    result.map_err(|problem| column.describe(problem, &data[start..end]))
}

impl RecordDecoder for NdjsonDecoder {
    fn decode(&mut self, data: &Bytes, count: usize, _: Option<&Preamble>) -> Result<Columns, Error> {
        let is_text = simdutf8::basic::from_utf8(data).is_ok();
        for column in &mut self.columns {
            column.reserve(count);
        }
        let mut bad = Vec::new();
        let (mut rows, mut index, mut at) = (0, 0_u32, 0);
        while at < data.len() {
            let end = memchr::memchr(b'\n', &data[at..]).map_or(data.len(), |found| at + found);
            let next = end + 1;
            if is_blank(&data[at..end]) {
                at = next;
                continue;
            }
            let len = end - at - usize::from(data[at..end].ends_with(b"\r"));
            let result = if len > self.max_record {
                Err(Cow::Borrowed(""))
            } else if is_text || std::str::from_utf8(&data[at..end]).is_ok() {
                self.decode_line(data, at, end)
            } else {
                Err(Cow::Borrowed("expected UTF-8, got other bytes"))
            };
            match result {
                Ok(()) => rows += 1,
                Err(reason) => {
                    for column in &mut self.columns {
                        column.truncate(rows);
                    }
                    let (code, keep, reason) = if len > self.max_record {
                        too_long(self.max_record)
                    } else {
                        ("parse", len, reason)
                    };
                    bad.push(BadRecord { index, raw: at..at + len.min(keep), code, reason });
                }
            }
            index += 1;
            at = next;
        }
        if index as usize != count {
            return Err(Error::internal(format!(
                "an NDJSON block of {count} records has {index}: splitter and decoder disagree"
            )));
        }
        let columns = self.columns.iter_mut().map(|column| column.finish(data)).collect();
        Ok(Columns { columns, rows, bad })
    }

    fn locate(&self, data: &[u8], indexes: &[u32]) -> Vec<Range<usize>> {
        let mut start = 0;
        let mut lines = data.split_inclusive(|byte| *byte == b'\n').map(|line| {
            let place = start..start + line.len();
            start = place.end;
            place
        });
        let mut next = 0;
        let mut places = Vec::with_capacity(indexes.len());
        for wanted in indexes {
            for place in lines.by_ref().filter(|place| !is_blank(&data[place.clone()])) {
                next += 1;
                if next > *wanted {
                    let line = &data[place.clone()];
                    let line = line.strip_suffix(b"\n").unwrap_or(line);
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    places.push(place.start..place.start + line.len());
                    break;
                }
            }
        }
        places
    }
}
