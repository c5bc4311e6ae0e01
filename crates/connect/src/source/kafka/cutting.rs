//! Cutting messages into records: a message is one record or many, and no record goes over two.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_kafka::{Header, Message};
use thalweg_types::Error;

use super::super::cut::{BlockContext, Cut, Cutter, cut_all};
use super::super::json_body::Cutting;
use super::fields::MetaField;
use super::messages::Messages;
use super::place::{Place, digest};
use crate::format::{RecordFormat, Splitter, ndjson};

/// What becomes of a message without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tombstones {
    Reject,
    Ignore,
}

/// How messages are read.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) format: Arc<dyn RecordFormat>,
    /// Parts of messages that are fields.
    pub(super) parts: Arc<[MetaField]>,
    pub(super) tombstones: Tombstones,
    /// Values of the Confluent wire format are no records.
    pub(super) refuses_wire_format: bool,
    /// A value may be an array of records, or take several lines.
    pub(super) is_json: bool,
}

/// A message of the Confluent wire format begins so; the number of its schema follows in 4 bytes.
const MAGIC: u8 = 0;
const WIRE_HEADER: usize = 5;

/// Some records of a message that is not all in a block yet.
struct Piece {
    cut: Cut,
    message: Arc<Kept>,
    /// Records of the message before these.
    before: u32,
    /// The message ends with these.
    is_last: bool,
}

/// A message that outlives the call which gave it.
struct Kept {
    offset: i64,
    timestamp: Option<i64>,
    key: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    digest: u32,
}

impl Kept {
    fn of(message: &Message<'_>, parts: &[MetaField]) -> Self {
        let mut headers = Vec::new();
        if parts.iter().any(|part| matches!(part, MetaField::Header(_))) {
            (message.headers)(&mut |header| {
                headers.push((header.name.to_owned(), header.value.map(<[u8]>::to_vec)));
            });
        }
        let key = if parts.contains(&MetaField::Key) { message.key.map(<[u8]>::to_vec) } else { None };
        let Message { offset, timestamp, .. } = *message;
        Self { offset, timestamp, key, headers, digest: digest(message) }
    }

    fn push_to(&self, messages: &mut Messages, origin: u32, records: u32, before: u32, parts: &[MetaField]) {
        let headers = |each: &mut dyn FnMut(Header<'_>)| {
            for (name, value) in &self.headers {
                each(Header { name, value: value.as_deref() });
            }
        };
        let Self { offset, timestamp, .. } = *self;
        let key = self.key.as_deref();
        let message = Message { offset, timestamp, key, value: None, headers: &headers };
        messages.push(origin, &message, records, before, parts);
    }
}

/// Reads the messages of one partition.
pub(super) struct PartitionReader {
    /// The number of the partition in the source.
    origin: u32,
    splitter: Box<dyn Splitter>,
    /// Bytes that the splitter has been given.
    given: u64,
    pub(super) place: Place,
    /// Of a message that was taken from the client, in order.
    waiting: VecDeque<Piece>,
    /// Messages that had no record in them.
    pub(super) tombstones: u64,
    pub(super) empty: u64,
    pub(super) of_wire_format: u64,
}

/// A block under construction.
pub(super) struct Gathering {
    data: Vec<u8>,
    count: u32,
    messages: Messages,
    refused: Option<(Cow<'static, str>, Cow<'static, str>)>,
    most_bytes: usize,
    /// Records of all partitions.
    most_in_all: u32,
    /// Records up to which it may grow now.
    most_records: u32,
    is_full: bool,
}

impl Gathering {
    /// `most_records` is what it may have of all partitions together.
    pub(super) fn new(messages: Messages, most_bytes: usize, most_records: u32) -> Self {
        let (most_in_all, most_records) = (most_records.max(1), most_records.max(1));
        let (data, count, refused, is_full) = (Vec::new(), 0, None, false);
        Self { data, count, messages, refused, most_bytes, most_in_all, most_records, is_full }
    }

    /// Has it take so many records more at most, and never more than it may have in all.
    pub(super) fn allow(&mut self, more: u64) {
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.most_records = self.count.saturating_add(more).min(self.most_in_all);
    }

    /// Has it take nothing more: a message that is added waits.
    pub(super) fn close(&mut self) {
        (self.is_full, self.most_records) = (true, self.count);
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full || self.data.len() >= self.most_bytes || self.count >= self.most_records
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The block; `None` if no record came.
    pub(super) fn finish(self, has_parts: bool) -> Option<Cut> {
        self.finish_with_places(has_parts).map(|(cut, _)| cut)
    }

    /// The same, and where its records are from.
    pub(super) fn finish_with_places(self, has_parts: bool) -> Option<(Cut, Arc<Messages>)> {
        if self.count == 0 {
            return None;
        }
        let messages = Arc::new(self.messages);
        let context = BlockContext {
            preamble: has_parts.then(|| Arc::clone(&messages) as _),
            places: Some(Arc::clone(&messages) as _),
            refused: self.refused,
            ..BlockContext::default()
        };
        let cut = Cut { data: Bytes::from(self.data), count: self.count, context: Some(Arc::new(context)) };
        Some((cut, messages))
    }

    fn room(&self) -> u32 {
        self.most_records - self.count
    }

    fn append(&mut self, text: &[u8], records: u32) {
        self.data.extend_from_slice(text);
        if self.data.last() != Some(&b'\n') {
            self.data.push(b'\n');
        }
        self.count += records;
    }
}

impl PartitionReader {
    /// `origin` is the number of the partition in the source.
    pub(super) fn new(origin: usize, format: &dyn RecordFormat, place: Place) -> Self {
        let (origin, splitter, waiting) = (origin as u32, format.splitter(), VecDeque::new());
        Self { origin, splitter, given: 0, place, waiting, tombstones: 0, empty: 0, of_wire_format: 0 }
    }

    /// Whether a message that was taken has records that are in no block yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds what waits of a message that was taken before.
    ///
    /// # Errors
    /// If format and cutter disagree.
    pub(super) fn go_on(&mut self, reading: &Reading, block: &mut Gathering) -> Result<(), Error> {
        while let Some(piece) = self.waiting.front_mut() {
            if piece.cut.context.is_some() && !block.is_empty() {
                block.is_full = true;
                return Ok(());
            }
            if block.is_full() {
                return Ok(());
            }
            if piece.cut.count > block.room() {
                piece.split(&*reading.format, block.room())?.add_to(
                    self.origin,
                    &mut self.place,
                    reading,
                    block,
                );
                return Ok(());
            }
            let Some(piece) = self.waiting.pop_front() else { return Ok(()) };
            piece.add_to(self.origin, &mut self.place, reading, block);
        }
        Ok(())
    }

    /// Adds a message that a client has given, unless it is below the place, or not below the end: that sets `is_at_end`.
    /// Whether to go on.
    ///
    /// # Errors
    /// As [`PartitionReader::go_on`].
    pub(super) fn add_up_to(
        &mut self,
        end: Option<i64>,
        is_at_end: &mut bool,
        message: &Message<'_>,
        reading: &Reading,
        block: &mut Gathering,
    ) -> Result<bool, Error> {
        if message.offset < self.place.offset {
            return Ok(true);
        }
        if end.is_some_and(|end| message.offset >= end) {
            *is_at_end = true;
            return Ok(false);
        }
        self.add(message, reading, block)
    }

    /// Adds a message, which is not below the place; what does not fit waits. Whether there is room for another.
    fn add(
        &mut self,
        message: &Message<'_>,
        reading: &Reading,
        block: &mut Gathering,
    ) -> Result<bool, Error> {
        let skip = if message.offset == self.place.offset { self.place.row } else { 0 };
        let Some(value) = message.value else {
            match reading.tombstones {
                Tombstones::Ignore => self.pass(message),
                Tombstones::Reject if skip > 0 => self.pass(message),
                Tombstones::Reject => {
                    let reason = "expected a value, and the message has none (a tombstone; its key is the raw bytes): \
                                  `tombstones: ignore` leaves such messages out";
                    let raw = Bytes::copy_from_slice(message.key.unwrap_or_default());
                    self.refuse(message, reading, raw, "tombstone", reason.into());
                }
            }
            self.tombstones += 1;
            self.go_on(reading, block)?;
            return Ok(!block.is_full() && self.waiting.is_empty());
        };
        if reading.refuses_wire_format && value.len() >= WIRE_HEADER && value[0] == MAGIC {
            let schema = u32::from_be_bytes([value[1], value[2], value[3], value[4]]);
            let reason = format!(
                "expected a record of the source's format, got a message of Confluent's wire format (schema {schema}): \
                 Avro, Protobuf and JSON with a schema registry are not read; have the producer, or a connector, write \
                 plain JSON or CSV"
            );
            if skip == 0 {
                self.refuse(message, reading, Bytes::copy_from_slice(value), "wire_format", reason.into());
            } else {
                self.pass(message);
            }
            self.of_wire_format += 1;
            self.go_on(reading, block)?;
            return Ok(!block.is_full() && self.waiting.is_empty());
        }
        let place = self.given;
        self.given += value.len() as u64;
        let is_laid_out = reading.is_json && is_laid_out(value);
        // Nearly every message is whole records that fit.
        if skip == 0
            && !is_laid_out
            && let Ok(split) = self.splitter.split(place, value, true)
            && split.records > 0
            && split.records <= block.room()
            && split.skip + split.bytes == value.len()
        {
            block.append(&value[split.skip..], split.records);
            block.messages.push(self.origin, message, split.records, 0, &reading.parts);
            self.pass(message);
            return Ok(!block.is_full());
        }
        let cuts = match is_laid_out {
            true => {
                let cutting = Cutting { format: &*reading.format, records: u32::MAX };
                cutting.json(&Bytes::copy_from_slice(value))
            }
            false => cut_all(&*reading.format, value)?,
        };
        self.wait(message, cuts, skip, reading)?;
        self.go_on(reading, block)?;
        Ok(!block.is_full() && self.waiting.is_empty())
    }

    /// The message is done with.
    fn pass(&mut self, message: &Message<'_>) {
        self.place =
            Place { offset: message.offset + 1, row: 0, last: Some((message.offset, digest(message))) };
    }

    fn refuse(
        &mut self,
        message: &Message<'_>,
        reading: &Reading,
        raw: Bytes,
        code: &'static str,
        reason: Cow<'static, str>,
    ) {
        let context = BlockContext { refused: Some((code.into(), reason)), ..BlockContext::default() };
        let cut = Cut { data: raw, count: 1, context: Some(Arc::new(context)) };
        let message = Arc::new(Kept::of(message, &reading.parts));
        self.waiting.push_back(Piece { cut, message, before: 0, is_last: true });
    }

    /// Has the pieces of a message wait, without its first `skip` records.
    fn wait(
        &mut self,
        message: &Message<'_>,
        cuts: Vec<Cut>,
        skip: u32,
        reading: &Reading,
    ) -> Result<(), Error> {
        let kept = Arc::new(Kept::of(message, &reading.parts));
        let (begun, mut before) = (self.waiting.len(), 0);
        for cut in cuts {
            let mut piece = Piece { cut, message: Arc::clone(&kept), before, is_last: false };
            before += piece.cut.count;
            if before <= skip {
                continue;
            }
            while piece.before < skip {
                let missing = skip - piece.before;
                piece.split(&*reading.format, missing)?;
            }
            self.waiting.push_back(piece);
        }
        match self.waiting.range_mut(begun..).last() {
            Some(last) => last.is_last = true,
            None => {
                self.empty += u64::from(skip == 0);
                self.pass(message);
            }
        }
        Ok(())
    }
}

/// Whether a value of JSON begins with something else than an object that has its line to itself.
fn is_laid_out(value: &[u8]) -> bool {
    let text = value.trim_ascii();
    let shares_its_line = |end: usize| {
        let mut objects = 0;
        !ndjson::for_each_object(&text[..end], |_| objects += 1) || objects > 1
    };
    text.first() == Some(&b'[') || memchr::memchr(b'\n', text).is_some_and(shares_its_line)
}

impl Piece {
    /// Takes the first `count` records off.
    fn split(&mut self, format: &dyn RecordFormat, count: u32) -> Result<Self, Error> {
        let mut cutter = Cutter::without_lines(format);
        cutter.push(&self.cut.data);
        let first = cutter.next_within(true, count)?;
        let first = first.ok_or_else(|| Error::internal("a piece of a message has no record"))?;
        let message = Arc::clone(&self.message);
        let split = Self { before: self.before, is_last: false, message, cut: first };
        self.before += split.cut.count;
        self.cut.count -= split.cut.count;
        let rest = cutter.buffer().split().freeze();
        self.cut.data = rest;
        Ok(split)
    }

    fn add_to(self, origin: u32, place: &mut Place, reading: &Reading, block: &mut Gathering) {
        let Self { cut, message, before, is_last } = self;
        match cut.context.as_ref().and_then(|context| context.refused.clone()) {
            None => block.append(&cut.data, cut.count),
            refused => {
                // One by itself.
                block.data.extend_from_slice(&cut.data);
                block.count += cut.count;
                (block.refused, block.is_full) = (refused, true);
            }
        }
        message.push_to(&mut block.messages, origin, cut.count, before, &reading.parts);
        *place = match is_last {
            true => {
                Place { offset: message.offset + 1, row: 0, last: Some((message.offset, message.digest)) }
            }
            false => Place { offset: message.offset, row: before + cut.count, last: place.last },
        };
    }
}
