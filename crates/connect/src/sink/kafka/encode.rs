//! Batches as rows for topics: value by the format, key, headers, topic and partition by fields.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use regex::Regex;
use thalweg_types::{Batch, DataType, Error, Schema, Seq};

use super::parcel::{Row, RowPosition, write};
use crate::format::cells::{Cell, Key};
use crate::format::{Encoder, Unwritable};
use crate::{Mistake, Options};

/// Bytes that a message takes in Kafka on top of its key, value and headers.
const OVERHEAD: usize = 128;

/// The fields from which a message gets what is not its value, by name: queries that come and go move the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    pub(super) key: Option<String>,
    pub(super) topic: Option<String>,
    pub(super) partition: Option<String>,
    /// Names of headers and fields.
    pub(super) headers: Vec<(String, String)>,
    /// Topics that a field may name.
    pub(super) allowed: Option<Regex>,
}

impl Fields {
    pub(super) fn of(options: &Options) -> Result<Self, Error> {
        let text = |key: &str| options.text(key).map(str::to_owned);
        let headers = options.lists("headers").unwrap_or_default();
        let headers =
            headers.iter().filter_map(|(name, fields)| Some((name.clone(), fields.first()?.clone())));
        let allowed = options.text("topic_pattern").map(|pattern| {
            Regex::new(&format!("^(?:{pattern})$"))
                .map_err(|error| Error::user(format!("{pattern:?} is no pattern")).with_source(error))
        });
        Ok(Self {
            key: text("key"),
            topic: text("topic_field"),
            partition: text("partition_field"),
            headers: headers.collect(),
            allowed: allowed.transpose()?,
        })
    }

    /// Mistakes in the names of fields.
    pub(super) fn check(options: &Options, schema: &Schema) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let mut look = |key: &str, name: &str, is_number: bool| {
            let Some((_, field)) = schema.field(name) else {
                let names = schema.names().collect::<Vec<_>>().join(", ");
                let error = Error::user(format!("expected a field of the input, got {name:?}"));
                mistakes.push(Mistake::new(key, error.with_hint(format!("its fields are {names}"))));
                return;
            };
            let fits = match &field.data_type {
                DataType::List(_) | DataType::Struct(_) => false,
                DataType::Int64 | DataType::UInt64 | DataType::String => true,
                _ => !is_number,
            };
            if !fits {
                let expected = if is_number { "int64, uint64 or string" } else { "one value" };
                let error =
                    Error::user(format!("field {name:?}: expected {expected}, got {}", field.data_type));
                mistakes.push(Mistake::new(key, error));
            }
        };
        for (key, is_number) in [("key", false), ("topic_field", false), ("partition_field", true)] {
            if let Some(name) = options.text(key) {
                look(key, name, is_number);
            }
        }
        for (_, fields) in options.lists("headers").unwrap_or_default() {
            fields.iter().for_each(|name| look("headers", name, false));
        }
        if let Err(error) = Self::of(options) {
            mistakes.push(Mistake::new("topic_pattern", error));
        }
        mistakes
    }
}

/// Makes rows of batches.
pub(super) struct RowWriter {
    encoder: Box<dyn Encoder>,
    fields: Fields,
    /// Rows without a topic of their own have one.
    has_topic: bool,
    max_message: usize,
    /// The schema of the last batch, and where the fields are in it.
    places: Option<(SchemaRef, Places)>,
    last: RowPosition,
    values: Vec<u8>,
    ends: Vec<usize>,
    /// Rows that had no topic.
    pub(super) without_topic: u64,
}

#[derive(Clone, Default)]
struct Places {
    key: Option<usize>,
    topic: Option<usize>,
    partition: Option<usize>,
    headers: Vec<Option<usize>>,
}

impl RowWriter {
    pub(super) fn new(
        encoder: Box<dyn Encoder>,
        fields: Fields,
        has_topic: bool,
        max_message: usize,
    ) -> Self {
        Self {
            encoder,
            fields,
            has_topic,
            max_message,
            places: None,
            // Before any row.
            last: RowPosition { seq: Seq::MAX, index: 0 },
            values: Vec::new(),
            ends: Vec::new(),
            without_topic: 0,
        }
    }

    /// Appends the rows of a batch to `out`; how many, and those that cannot be written. `numbers` are the positions of their
    /// records where these are not their order numbers.
    pub(super) fn write(
        &mut self,
        batch: &Batch,
        numbers: Option<&[u64]>,
        out: &mut Vec<u8>,
    ) -> (u64, Vec<Unwritable>) {
        let (mut values, mut ends) = (std::mem::take(&mut self.values), std::mem::take(&mut self.ends));
        values.clear();
        ends.clear();
        self.encoder.encode_each(batch, &mut values, &mut ends);
        let mut refused = self.encoder.take_refused();
        let places = self.places(batch.records().schema_ref());
        let records = batch.records();
        // Fields for key and headers are values without keys of their own.
        let cell = |place: Option<usize>| place.map(|place| Cell::new(records.column(place), NO_KEYS));
        let (key, topic, partition) = (cell(places.key), cell(places.topic), cell(places.partition));
        let headers: Vec<Option<Cell<'_>>> = places.headers.iter().map(|place| cell(*place)).collect();
        let (mut texts, mut spans) = (Vec::new(), Vec::new());
        let (mut start, mut written) = (0, 0);
        let mut is_refused: Vec<u32> = refused.iter().map(|unwritable| unwritable.row).collect();
        is_refused.sort_unstable();
        for (at, (row, end)) in batch.row_numbers().zip(&ends).enumerate() {
            let value = &values[start..*end];
            start = *end;
            let position = self.last.after(numbers.map_or_else(|| batch.seq(row), |numbers| numbers[at]));
            self.last = position;
            if is_refused.binary_search(&row).is_ok() {
                continue;
            }
            texts.clear();
            spans.clear();
            let mut text = |cell: &Option<Cell<'_>>| {
                let cell = cell.as_ref().filter(|cell| !cell.is_null(row as usize));
                let begin = texts.len();
                let is_there = cell.is_some();
                if let Some(cell) = cell {
                    match cell {
                        Cell::Bytes(column) => texts.extend_from_slice(column.value(row as usize)),
                        cell => cell.write_plain(row as usize, &mut texts),
                    }
                }
                spans.push(is_there.then_some(begin..texts.len()));
            };
            text(&key);
            text(&topic);
            text(&partition);
            headers.iter().for_each(&mut text);
            let of = |at: usize| spans[at].clone().map(|span| &texts[span]);
            let mut refuse = |reason: String| refused.push(Unwritable { row, reason });
            let topic = match of(1).map(std::str::from_utf8) {
                Some(Ok(topic)) => Some(topic),
                Some(Err(_)) => {
                    refuse("expected the name of a topic, got bytes that are no UTF-8".to_owned());
                    continue;
                }
                None => None,
            };
            if let Some(topic) = topic {
                if !is_topic(topic) {
                    refuse(format!(
                        "expected the name of a topic (1 to 249 of a-z, A-Z, 0-9, ., _, -), got {:?}",
                        crate::format::shorten(topic.as_bytes())
                    ));
                    continue;
                }
                if self.fields.allowed.as_ref().is_some_and(|allowed| !allowed.is_match(topic)) {
                    refuse(format!("topic {topic:?} does not match `topic_pattern`"));
                    continue;
                }
            } else if !self.has_topic {
                self.without_topic += 1;
                continue;
            }
            let partition = match of(2).map(|text| std::str::from_utf8(text).map(str::parse::<i32>)) {
                None => None,
                Some(Ok(Ok(partition))) if partition >= 0 => Some(partition),
                Some(_) => {
                    refuse("expected the number of a partition, got something else".to_owned());
                    continue;
                }
            };
            let header_values: Vec<Option<&[u8]>> = (3..spans.len()).map(of).collect();
            let key = of(0);
            let bytes = OVERHEAD
                + value.len()
                + key.map_or(0, <[u8]>::len)
                + header_values.iter().flatten().map(|value| value.len()).sum::<usize>();
            if bytes > self.max_message {
                refuse(format!(
                    "expected a message of at most {} (`max_message`), got {bytes} bytes",
                    thalweg_types::format_size(self.max_message as u64)
                ));
                continue;
            }
            write(&Row { position, topic, partition, key, value }, &header_values, out);
            written += 1;
        }
        (self.values, self.ends) = (values, ends);
        (written, refused)
    }

    fn places(&mut self, schema: &SchemaRef) -> Places {
        if let Some((known, places)) = &self.places
            && (Arc::ptr_eq(known, schema) || known == schema)
        {
            return places.clone();
        }
        let place = |name: &Option<String>| name.as_ref().and_then(|name| schema.index_of(name).ok());
        let Fields { key, topic, partition, headers, .. } = &self.fields;
        let places = Places {
            key: place(key),
            topic: place(topic),
            partition: place(partition),
            headers: headers.iter().map(|(_, field)| schema.index_of(field).ok()).collect(),
        };
        self.places = Some((Arc::clone(schema), places.clone()));
        places
    }
}

const NO_KEYS: &[Key] = &[];

impl RowPosition {
    /// The position of the next row, which is of this record.
    fn after(self, seq: Seq) -> Self {
        let index = if self.seq == seq { self.index + 1 } else { 0 };
        Self { seq, index }
    }
}

/// Whether Kafka takes it for the name of a topic.
pub(super) fn is_topic(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= 249 && name.bytes().all(is_letter) && name != "." && name != ".."
}
