//! Rows as messages, from the operator to the thread that hands them to the client: one after the other in one buffer.
//!
//! Layout of a message: flags 1; partition 4 (-1: none), order number 8, number among the rows of it 4; lengths of topic 2,
//! key 4, value 4; then for each header its length 4 (all ones: null), after their count 1; then topic, key, value and the
//! headers' values. The names of headers are those of the sink. Both ends are in one process.

use std::fmt;

use thalweg_types::Seq;

const HAS_TOPIC: u8 = 1;
const HAS_KEY: u8 = 2;

/// Length of a header that is null.
const NULL: u32 = u32::MAX;

/// Where a row stands in what the sink takes: the order number of its record, and its number among the rows of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowPosition {
    pub(super) seq: Seq,
    pub(super) index: u32,
}

impl RowPosition {
    /// As a header has it: `SEQ`, or `SEQ.INDEX` for rows of a record after its first.
    pub(super) fn text(self) -> PositionText {
        let mut text = PositionText { bytes: [0; 32], len: 0 };
        text.push(itoa::Buffer::new().format(self.seq));
        if self.index > 0 {
            text.push(".");
            text.push(itoa::Buffer::new().format(self.index));
        }
        text
    }
}

impl fmt::Display for RowPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.text().as_bytes()))
    }
}

/// A position in decimal figures.
pub(super) struct PositionText {
    bytes: [u8; 32],
    len: usize,
}

impl PositionText {
    /// The longest has 20 + 1 + 10 bytes.
    fn push(&mut self, text: &str) {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text.as_bytes());
        self.len += text.len();
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A row on its way to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    pub(super) position: RowPosition,
    /// `None`: the topic of the sink.
    pub(super) topic: Option<&'a str>,
    pub(super) partition: Option<i32>,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: &'a [u8],
}

/// Appends a row with the values of its headers.
pub(super) fn write(row: &Row<'_>, headers: &[Option<&[u8]>], out: &mut Vec<u8>) {
    let flags =
        (if row.topic.is_some() { HAS_TOPIC } else { 0 }) | (if row.key.is_some() { HAS_KEY } else { 0 });
    let (topic, key) = (row.topic.unwrap_or_default(), row.key.unwrap_or_default());
    out.push(flags);
    out.extend_from_slice(&row.partition.unwrap_or(-1).to_le_bytes());
    out.extend_from_slice(&row.position.seq.to_le_bytes());
    out.extend_from_slice(&row.position.index.to_le_bytes());
    out.extend_from_slice(&(topic.len() as u16).to_le_bytes());
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&(row.value.len() as u32).to_le_bytes());
    out.push(headers.len() as u8);
    for value in headers {
        out.extend_from_slice(&value.map_or(NULL, |value| value.len() as u32).to_le_bytes());
    }
    out.extend_from_slice(topic.as_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(row.value);
    headers.iter().flatten().for_each(|value| out.extend_from_slice(value));
}

/// The rows of a buffer, in order.
pub(super) struct Rows<'a> {
    rest: &'a [u8],
    /// The values of the headers of the row that was given last.
    pub(super) headers: Vec<Option<&'a [u8]>>,
}

impl<'a> Rows<'a> {
    pub(super) fn of(buffer: &'a [u8]) -> Self {
        Self { rest: buffer, headers: Vec::new() }
    }

    /// `None` after the last one.
    pub(super) fn next(&mut self) -> Option<Row<'a>> {
        let flags = self.take(1)?[0];
        let partition = i32::from_le_bytes(self.fixed()?);
        let position =
            RowPosition { seq: u64::from_le_bytes(self.fixed()?), index: u32::from_le_bytes(self.fixed()?) };
        let topic = usize::from(u16::from_le_bytes(self.fixed()?));
        let key = u32::from_le_bytes(self.fixed()?) as usize;
        let value = u32::from_le_bytes(self.fixed()?) as usize;
        let count = self.take(1)?[0];
        let lengths: Vec<u32> =
            (0..count).map(|_| self.fixed().map(u32::from_le_bytes)).collect::<Option<_>>()?;
        let topic = std::str::from_utf8(self.take(topic)?).ok()?;
        let (key, value) = (self.take(key)?, self.take(value)?);
        self.headers.clear();
        for length in lengths {
            let value = if length == NULL { None } else { Some(self.take(length as usize)?) };
            self.headers.push(value);
        }
        Some(Row {
            position,
            topic: (flags & HAS_TOPIC != 0).then_some(topic),
            partition: (partition >= 0).then_some(partition),
            key: (flags & HAS_KEY != 0).then_some(key),
            value,
        })
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_position_has_a_text() {
        let text =
            |seq, index| String::from_utf8(RowPosition { seq, index }.text().as_bytes().to_vec()).unwrap();
        assert_eq!((text(7, 0), text(0, 2)), ("7".to_owned(), "0.2".to_owned()));
        assert_eq!(text(Seq::MAX, u32::MAX), "18446744073709551615.4294967295");
    }

    #[test]
    fn rows_come_back_with_their_headers() {
        let position = |seq, index| RowPosition { seq, index };
        let rows = [
            Row { position: position(7, 0), topic: None, partition: None, key: None, value: b"a" },
            Row {
                position: position(7, 1),
                topic: Some("t"),
                partition: Some(3),
                key: Some(b""),
                value: b"",
            },
        ];
        let headers: [&[Option<&[u8]>]; 2] = [&[], &[Some(b"x"), None, Some(b"")]];
        let mut buffer = Vec::new();
        for (row, headers) in rows.iter().zip(headers) {
            write(row, headers, &mut buffer);
        }
        let mut read = Rows::of(&buffer);
        for (row, headers) in rows.iter().zip(headers) {
            assert_eq!(read.next().as_ref(), Some(row));
            assert_eq!(read.headers, headers);
        }
        assert_eq!(read.next(), None);
    }
}
