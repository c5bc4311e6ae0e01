//! The parts of a message that are fields of its records on wish, and a format that adds them to the fields of its
//! value.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, StringViewBuilder};
use arrow_array::{ArrayRef, Int64Array, UInt32Array};
use arrow_buffer::NullBuffer;
use arrow_select::take::take;
use bytes::Bytes;
use thalweg_types::{DataType, Error, Field, Micros, Schema, TimeUnit};

use super::messages::Messages;
use crate::Mistake;
use crate::format::{BadRecord, Columns, Preamble, RecordDecoder, RecordFormat, Splitter};

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MetaField {
    Key,
    Topic,
    Partition,
    Offset,
    Timestamp,
    Header(String),
}

/// Before the name of a header.
const HEADERS: &str = "_headers.";

impl MetaField {
    /// The part that a field of this name is; `None`: it is a field of the value.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "_key" => Self::Key,
            "_topic" => Self::Topic,
            "_partition" => Self::Partition,
            "_offset" => Self::Offset,
            "_timestamp" => Self::Timestamp,
            _ => Self::Header(name.strip_prefix(HEADERS).filter(|name| !name.is_empty())?.to_owned()),
        })
    }

    /// Whether a field of this type can hold it; if not, the types that can.
    fn refused(&self, data_type: &DataType) -> Option<&'static str> {
        let (fits, expected) = match self {
            Self::Key | Self::Header(_) => {
                (matches!(data_type, DataType::String | DataType::Bytes), "string or bytes")
            }
            Self::Topic => (*data_type == DataType::String, "string"),
            Self::Partition | Self::Offset => (*data_type == DataType::Int64, "int64"),
            Self::Timestamp => (matches!(data_type, DataType::Timestamp(_)), "timestamp(s|ms|us|ns)"),
        };
        (!fits).then_some(expected)
    }
}

/// The fields of the value alone.
pub(super) fn value_schema(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().filter(|field| MetaField::named(&field.name).is_none());
    Schema::new(fields.cloned().collect::<Vec<Field>>())
}

/// Mistakes in fields that are parts of messages.
pub(super) fn check_fields(schema: &Schema) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for field in schema.fields() {
        if let Some(expected) = MetaField::named(&field.name).and_then(|part| part.refused(&field.data_type))
        {
            let error = Error::user(format!(
                "field {:?} is a part of the message: expected type {expected}, got {}",
                field.name, field.data_type
            ));
            mistakes.push(Mistake::new("schema", error));
        }
    }
    if value_schema(schema).fields().is_empty() {
        let error = Error::user("expected one field of the message's value at least, got none");
        mistakes.push(Mistake::new("schema", error.with_hint("such as line: string, with format: lines")));
    }
    mistakes
}

/// Where each field of a record comes from.
#[derive(Clone)]
enum Slot {
    /// The value, by its place among the fields of the format.
    Value(usize),
    Meta {
        part: MetaField,
        field: Field,
        text: usize,
    },
}

/// A format for the values of messages, with the parts of messages as fields.
pub(super) struct MessageFormat {
    inner: Arc<dyn RecordFormat>,
    slots: Arc<[Slot]>,
}

impl MessageFormat {
    /// `inner` is bound to [`value_schema`].
    pub(super) fn new(inner: Arc<dyn RecordFormat>, schema: &Schema) -> Self {
        let (mut value, mut texts) = (0, 0);
        let slot = |field: &Field| match MetaField::named(&field.name) {
            None => {
                value += 1;
                Slot::Value(value - 1)
            }
            Some(part) => {
                let text = texts;
                texts += usize::from(matches!(part, MetaField::Key | MetaField::Header(_)));
                Slot::Meta { part, field: field.clone(), text }
            }
        };
        let slots: Vec<Slot> = schema.fields().iter().map(slot).collect();
        Self { inner, slots: slots.into() }
    }

    /// The parts of messages that are fields, in the order of the fields.
    pub(super) fn parts(&self) -> Vec<MetaField> {
        let part = |slot: &Slot| match slot {
            Slot::Value(_) => None,
            Slot::Meta { part, .. } => Some(part.clone()),
        };
        self.slots.iter().filter_map(part).collect()
    }
}

impl RecordFormat for MessageFormat {
    fn splitter(&self) -> Box<dyn Splitter> {
        self.inner.splitter()
    }

    fn decoder(&self) -> Box<dyn RecordDecoder> {
        Box::new(MessageDecoder { inner: self.inner.decoder(), slots: Arc::clone(&self.slots) })
    }

    fn max_record(&self) -> usize {
        self.inner.max_record()
    }

    fn block_records(&self) -> u32 {
        self.inner.block_records()
    }
}

struct MessageDecoder {
    inner: Box<dyn RecordDecoder>,
    slots: Arc<[Slot]>,
}

impl RecordDecoder for MessageDecoder {
    fn arrived(&mut self, arrival: Micros) {
        self.inner.arrived(arrival);
    }

    fn decode(&mut self, data: &Bytes, count: usize, preamble: Option<&Preamble>) -> Result<Columns, Error> {
        let Columns { columns, rows, mut bad } = self.inner.decode(data, count, None)?;
        if self.slots.iter().all(|slot| matches!(slot, Slot::Value(_))) {
            return Ok(Columns { columns, rows, bad });
        }
        let messages = preamble.and_then(|preamble| preamble.downcast_ref::<Messages>());
        let messages = messages.ok_or_else(|| Error::internal("a block of messages does not say which"))?;
        let mut refused = bad.iter().map(|bad| bad.index).peekable();
        let kept: Vec<u32> = (0..count as u32).filter(|index| refused.next_if_eq(index).is_none()).collect();
        let mut missing: Vec<(usize, Cow<'static, str>)> = Vec::new();
        let mut all: Vec<ArrayRef> = Vec::with_capacity(self.slots.len());
        for slot in &*self.slots {
            all.push(match slot {
                Slot::Value(place) => Arc::clone(&columns[*place]),
                Slot::Meta { part, field, text } => column(messages, &kept, part, field, *text, &mut missing),
            });
        }
        if missing.is_empty() {
            return Ok(Columns { columns: all, rows, bad });
        }
        missing.sort_by_key(|(row, _)| *row);
        missing.dedup_by_key(|(row, _)| *row);
        let indexes: Vec<u32> = missing.iter().map(|(row, _)| kept[*row]).collect();
        let places: Vec<Range<usize>> = self.inner.locate(data, &indexes);
        for (((_, reason), index), raw) in missing.iter().zip(&indexes).zip(places) {
            bad.push(BadRecord { index: *index, raw, code: "field", reason: reason.clone() });
        }
        bad.sort_by_key(|bad| bad.index);
        let mut gone = missing.iter().map(|(row, _)| *row).peekable();
        let rows: UInt32Array =
            (0..rows).filter(|row| gone.next_if_eq(row).is_none()).map(|row| row as u32).collect();
        let taken = all.iter().map(|column| take(column, &rows, None)).collect::<Result<Vec<_>, _>>();
        let columns =
            taken.map_err(|error| Error::internal("take the good records of a block").with_source(error))?;
        Ok(Columns { columns, rows: rows.len(), bad })
    }

    fn locate(&self, data: &[u8], indexes: &[u32]) -> Vec<Range<usize>> {
        self.inner.locate(data, indexes)
    }
}

/// A part of the messages of some records, by their numbers in the block, as a column. Rows that lack what the field
/// needs are noted.
fn column(
    messages: &Messages,
    kept: &[u32],
    part: &MetaField,
    field: &Field,
    text: usize,
    missing: &mut Vec<(usize, Cow<'static, str>)>,
) -> ArrayRef {
    let found = kept.iter().map(|index| messages.of(*index));
    match part {
        MetaField::Topic => {
            let mut topics = StringViewBuilder::with_capacity(kept.len());
            found.for_each(|found| topics.append_value(&*found.origin.topic));
            Arc::new(topics.finish())
        }
        MetaField::Partition => {
            Arc::new(Int64Array::from_iter_values(found.map(|found| i64::from(found.origin.partition))))
        }
        MetaField::Offset => Arc::new(Int64Array::from_iter_values(found.map(|found| found.offset))),
        MetaField::Timestamp => {
            let unit = match field.data_type {
                DataType::Timestamp(unit) => unit,
                _ => TimeUnit::Milli,
            };
            let times: Vec<Option<i64>> = found
                .map(|found| messages.parts[found.message].timestamp.and_then(|millis| in_unit(unit, millis)))
                .collect();
            note_nulls(field, times.iter().map(Option::is_none), missing);
            let nulls: NullBuffer = times.iter().map(Option::is_some).collect();
            unit.column(times.iter().map(|time| time.unwrap_or_default()).collect(), Some(nulls))
        }
        MetaField::Key | MetaField::Header(_) => {
            let texts: Vec<Option<&[u8]>> = found
                .map(|found| {
                    let range = messages.parts[found.message].texts[text].as_ref()?;
                    Some(&messages.bytes[range.start as usize..range.end as usize])
                })
                .collect();
            note_nulls(field, texts.iter().map(Option::is_none), missing);
            if field.data_type == DataType::Bytes {
                return Arc::new(
                    texts
                        .into_iter()
                        .fold(BinaryViewBuilder::with_capacity(kept.len()), |mut built, text| {
                            built.append_option(text);
                            built
                        })
                        .finish(),
                );
            }
            let mut built = StringViewBuilder::with_capacity(kept.len());
            for (row, text) in texts.into_iter().enumerate() {
                match text.map(std::str::from_utf8) {
                    None => built.append_null(),
                    Some(Ok(text)) => built.append_value(text),
                    Some(Err(_)) => {
                        let reason = format!("field {:?}: expected UTF-8, got other bytes", field.name);
                        missing.push((row, reason.into()));
                        built.append_value("");
                    }
                }
            }
            Arc::new(built.finish())
        }
    }
}

/// Milliseconds in another unit; `None` where they do not fit.
fn in_unit(unit: TimeUnit, millis: i64) -> Option<i64> {
    match unit {
        TimeUnit::Second => Some(millis.div_euclid(1_000)),
        TimeUnit::Milli => Some(millis),
        TimeUnit::Micro => millis.checked_mul(1_000),
        TimeUnit::Nano => millis.checked_mul(1_000_000),
    }
}

fn note_nulls(
    field: &Field,
    nulls: impl Iterator<Item = bool>,
    missing: &mut Vec<(usize, Cow<'static, str>)>,
) {
    if field.nullable {
        return;
    }
    for (row, _) in nulls.enumerate().filter(|(_, is_null)| *is_null) {
        let reason = format!("field {:?}: expected a value, and the message has none", field.name);
        missing.push((row, reason.into()));
    }
}
