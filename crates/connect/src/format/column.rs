//! Columns under construction: typed values appended row by row, and taken back when the row turns out bad.
//!
//! Strings become views: up to 12 bytes inside the view, longer ones as a place in the block they were read
//! from, which the column then shares. Texts that had to be unescaped live in a second buffer of their own.
//! Values are built in memory that comes back when the last reader of a batch is done with it.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::types::{Decimal128Type, Decimal256Type};
use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, Float64Array, Int64Array, PrimitiveArray,
    StringViewArray, UInt64Array,
};
use arrow_buffer::{BooleanBuffer, Buffer, ScalarBuffer, i256};
use bytes::Bytes;
use thalweg_flow::PooledVec;
use thalweg_types::{DataType, Error, Field, Reading, TimeUnit, validity};

use super::base64;
use super::text::{self, Problem};
use super::times::{Times, plain};

/// Bytes that a view holds itself.
pub(crate) const INLINE: usize = 12;

/// Views of texts: buffer 0 is the block, buffer 1 has the texts that had to be copied.
#[derive(Default)]
pub(crate) struct Views {
    pub(crate) views: PooledVec<u128>,
    copied: Vec<u8>,
    has_long: bool,
}

impl Views {
    /// Appends the text at `start..start + len` of the block.
    #[inline]
    pub(crate) fn push_block(&mut self, block: &[u8], start: usize, len: usize) {
        let text = &block[start..start + len];
        let view = if len <= INLINE { inline_view(text) } else { self.long_view(text, 0, start) };
        self.views.push(view);
    }

    /// Appends a text that is not in the block as it is.
    pub(crate) fn push_copy(&mut self, text: &[u8]) {
        let view = if text.len() <= INLINE {
            inline_view(text)
        } else {
            let offset = self.copied.len();
            self.copied.extend_from_slice(text);
            self.long_view(text, 1, offset)
        };
        self.views.push(view);
    }

    fn long_view(&mut self, text: &[u8], buffer: u128, offset: usize) -> u128 {
        self.has_long = true;
        let prefix = u32::from_le_bytes([text[0], text[1], text[2], text[3]]);
        let offset = u32::try_from(offset).expect("blocks stay far below 4 GiB");
        text.len() as u128 | u128::from(prefix) << 32 | buffer << 64 | u128::from(offset) << 96
    }

    fn buffers(&mut self, block: &Bytes) -> Vec<Buffer> {
        if !std::mem::take(&mut self.has_long) {
            self.copied.clear();
            return Vec::new();
        }
        vec![Buffer::from(block.clone()), Buffer::from(std::mem::take(&mut self.copied))]
    }
}

#[inline]
fn inline_view(text: &[u8]) -> u128 {
    let mut view = [0_u8; 16];
    view[0] = text.len() as u8;
    view[4..4 + text.len()].copy_from_slice(text);
    u128::from_le_bytes(view)
}

pub(crate) enum Values {
    Bool(Vec<bool>),
    Int64(PooledVec<i64>),
    UInt64(PooledVec<u64>),
    Float64(PooledVec<f64>),
    Decimal128 {
        values: PooledVec<i128>,
        precision: u8,
        scale: i8,
    },
    Decimal256 {
        values: PooledVec<i256>,
        precision: u8,
        scale: i8,
    },
    String(Views),
    Bytes(Views),
    Time {
        values: PooledVec<i64>,
        unit: TimeUnit,
    },
    /// Times that are not written as whole numbers of their unit.
    TimeText {
        values: PooledVec<i64>,
        unit: TimeUnit,
    },
    Ip(PooledVec<u8>),
    /// Addresses that are read from numbers.
    Ipv4Int(PooledVec<u8>),
}

pub(crate) struct Column {
    pub(crate) values: Values,
    pub(crate) nullable: bool,
    name: String,
    /// The expected form of a text, for messages.
    expected: String,
    /// How its texts are read, where they are times.
    times: Arc<Times>,
    /// Rows that are null, ascending: rare enough that the other rows should pay nothing for them.
    nulls: Vec<u32>,
    scratch: Vec<u8>,
}

impl Column {
    /// # Errors
    /// Where the field has a type that only answers have.
    pub(crate) fn new(field: &Field) -> Result<Self, Error> {
        Self::reading(field, &plain())
    }

    /// As [`Column::new`], with times as options say.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn reading(field: &Field, times: &Arc<Times>) -> Result<Self, Error> {
        let times = times.of_field(&field.name);
        let values = match &field.data_type {
            DataType::Bool => Values::Bool(Vec::new()),
            DataType::Int64 => Values::Int64(PooledVec::default()),
            DataType::UInt64 => Values::UInt64(PooledVec::default()),
            DataType::Float64 => Values::Float64(PooledVec::default()),
            DataType::Decimal { precision, scale } if *precision <= 38 => {
                Values::Decimal128 { values: PooledVec::default(), precision: *precision, scale: *scale }
            }
            DataType::Decimal { precision, scale } => {
                Values::Decimal256 { values: PooledVec::default(), precision: *precision, scale: *scale }
            }
            DataType::String => Values::String(Views::default()),
            DataType::Bytes => Values::Bytes(Views::default()),
            DataType::Timestamp(unit) if times.takes_counts() => {
                Values::Time { values: PooledVec::default(), unit: *unit }
            }
            DataType::Timestamp(unit) => Values::TimeText { values: PooledVec::default(), unit: *unit },
            DataType::Ip => match field.reading {
                Reading::Plain => Values::Ip(PooledVec::default()),
                Reading::Ipv4Int => Values::Ipv4Int(PooledVec::default()),
            },
            DataType::List(_) | DataType::Struct(_) => {
                return Err(Error::user(format!(
                    "field {:?} has type {}, which a source cannot read",
                    field.name, field.data_type
                )));
            }
        };
        Ok(Self {
            values,
            nullable: field.nullable,
            name: field.name.clone(),
            expected: match (field.reading, &field.data_type, times.forms()) {
                (Reading::Plain, DataType::Timestamp(_), Some(forms)) => {
                    format!("{} as {forms}", field.data_type)
                }
                (Reading::Plain, ..) => field.data_type.to_string(),
                (Reading::Ipv4Int, ..) => format!("{} (0 to {})", Reading::IPV4_INT, u32::MAX),
            },
            times,
            nulls: Vec::new(),
            scratch: Vec::new(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        match &self.values {
            Values::Bool(values) => values.len(),
            Values::Int64(values) | Values::Time { values, .. } | Values::TimeText { values, .. } => {
                values.len()
            }
            Values::UInt64(values) => values.len(),
            Values::Float64(values) => values.len(),
            Values::Decimal128 { values, .. } => values.len(),
            Values::Decimal256 { values, .. } => values.len(),
            Values::String(views) | Values::Bytes(views) => views.views.len(),
            Values::Ip(octets) | Values::Ipv4Int(octets) => octets.len() / 16,
        }
    }

    pub(crate) fn reserve(&mut self, rows: usize) {
        match &mut self.values {
            Values::Bool(values) => values.reserve(rows),
            Values::Int64(values) | Values::Time { values, .. } | Values::TimeText { values, .. } => {
                values.reserve(rows);
            }
            Values::UInt64(values) => values.reserve(rows),
            Values::Float64(values) => values.reserve(rows),
            Values::Decimal128 { values, .. } => values.reserve(rows),
            Values::Decimal256 { values, .. } => values.reserve(rows),
            Values::String(views) | Values::Bytes(views) => views.views.reserve(rows),
            Values::Ip(octets) | Values::Ipv4Int(octets) => octets.reserve(rows * 16),
        }
    }

    /// Takes back rows from `rows` on.
    pub(crate) fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            Values::Bool(values) => values.truncate(rows),
            Values::Int64(values) | Values::Time { values, .. } | Values::TimeText { values, .. } => {
                values.truncate(rows);
            }
            Values::UInt64(values) => values.truncate(rows),
            Values::Float64(values) => values.truncate(rows),
            Values::Decimal128 { values, .. } => values.truncate(rows),
            Values::Decimal256 { values, .. } => values.truncate(rows),
            Values::String(views) | Values::Bytes(views) => views.views.truncate(rows),
            Values::Ip(octets) | Values::Ipv4Int(octets) => octets.truncate(rows * 16),
        }
        while self.nulls.last().is_some_and(|row| *row as usize >= rows) {
            self.nulls.pop();
        }
    }

    pub(crate) fn push_null(&mut self) -> Result<(), Problem> {
        if !self.nullable {
            return Err(Problem::Missing);
        }
        self.nulls.push(self.len() as u32);
        match &mut self.values {
            Values::Bool(values) => values.push(false),
            Values::Int64(values) | Values::Time { values, .. } | Values::TimeText { values, .. } => {
                values.push(0)
            }
            Values::UInt64(values) => values.push(0),
            Values::Float64(values) => values.push(0.0),
            Values::Decimal128 { values, .. } => values.push(0),
            Values::Decimal256 { values, .. } => values.push(i256::ZERO),
            Values::String(views) | Values::Bytes(views) => views.views.push(0),
            Values::Ip(octets) | Values::Ipv4Int(octets) => octets.extend_from_slice(&[0; 16]),
        }
        Ok(())
    }

    /// Appends the value that `text` represents (see [`text`]). `at` is its place in the block, if it has one.
    pub(crate) fn push_text(&mut self, text: &[u8], at: Option<usize>) -> Result<(), Problem> {
        match &mut self.values {
            Values::Bool(values) => values.push(text::parse_bool(text)?),
            Values::Int64(values) => values.push(text::parse_i64(text)?),
            Values::UInt64(values) => values.push(text::parse_u64(text)?),
            Values::Float64(values) => values.push(text::parse_f64(text)?),
            Values::Decimal128 { values, precision, scale } => {
                let value = text::parse_decimal(text, *precision, *scale)?;
                values.push(value.to_i128().ok_or(Problem::Range)?);
            }
            Values::Decimal256 { values, precision, scale } => {
                values.push(text::parse_decimal(text, *precision, *scale)?);
            }
            Values::String(views) => match at {
                Some(start) if text.len() > INLINE => {
                    let view = views.long_view(text, 0, start);
                    views.views.push(view);
                }
                _ => views.push_copy(text),
            },
            Values::Bytes(views) => {
                self.scratch.clear();
                base64::decode(text, &mut self.scratch).ok_or(Problem::Expected)?;
                views.push_copy(&self.scratch);
            }
            Values::Time { values, unit } | Values::TimeText { values, unit } => {
                values.push(self.times.parse(text, *unit)?);
            }
            Values::Ip(octets) => octets.extend_from_slice(&text::parse_ip(text)?),
            Values::Ipv4Int(octets) => octets.extend_from_slice(&text::parse_ipv4_int(text)?),
        }
        Ok(())
    }

    /// Whether it holds numbers, which may have a decimal sign.
    pub(crate) fn is_number(&self) -> bool {
        matches!(
            self.values,
            Values::Int64(_)
                | Values::UInt64(_)
                | Values::Float64(_)
                | Values::Decimal128 { .. }
                | Values::Decimal256 { .. }
        )
    }

    /// As [`Column::push_text`], for a number whose decimal sign is a comma.
    pub(crate) fn push_comma_number(&mut self, text: &[u8]) -> Result<(), Problem> {
        if text.contains(&b'.') {
            return Err(Problem::Expected);
        }
        let mut written = std::mem::take(&mut self.scratch);
        written.clear();
        written.extend(text.iter().map(|byte| if *byte == b',' { b'.' } else { *byte }));
        let pushed = self.push_text(&written, None);
        self.scratch = written;
        pushed
    }

    /// The finished column; the builder is empty afterwards.
    pub(crate) fn finish(&mut self, block: &Bytes) -> ArrayRef {
        let rows = self.len();
        let nulls = validity(rows, &self.nulls);
        self.nulls.clear();
        match &mut self.values {
            Values::Bool(values) => {
                Arc::new(BooleanArray::new(BooleanBuffer::from(std::mem::take(values)), nulls))
            }
            Values::Int64(values) => Arc::new(Int64Array::new(values.lend().into(), nulls)),
            Values::UInt64(values) => Arc::new(UInt64Array::new(values.lend().into(), nulls)),
            Values::Float64(values) => Arc::new(Float64Array::new(values.lend().into(), nulls)),
            Values::Decimal128 { values, precision, scale } => Arc::new(
                PrimitiveArray::<Decimal128Type>::new(values.lend().into(), nulls)
                    .with_data_type(arrow_schema::DataType::Decimal128(*precision, *scale)),
            ),
            Values::Decimal256 { values, precision, scale } => Arc::new(
                PrimitiveArray::<Decimal256Type>::new(values.lend().into(), nulls)
                    .with_data_type(arrow_schema::DataType::Decimal256(*precision, *scale)),
            ),
            Values::String(views) => {
                let buffers = views.buffers(block);
                let views = ScalarBuffer::from(views.views.lend());
                Arc::new(
                    StringViewArray::try_new(views, buffers, nulls)
                        .expect("texts were checked for UTF-8 and their views made from them"),
                )
            }
            Values::Bytes(views) => {
                let buffers = views.buffers(block);
                let views = ScalarBuffer::from(views.views.lend());
                Arc::new(BinaryViewArray::try_new(views, buffers, nulls).expect("views made from the bytes"))
            }
            Values::Time { values, unit } | Values::TimeText { values, unit } => {
                unit.column(ScalarBuffer::from(values.lend()), nulls)
            }
            Values::Ip(octets) | Values::Ipv4Int(octets) => {
                Arc::new(FixedSizeBinaryArray::new(16, octets.lend(), nulls))
            }
        }
    }

    /// The sentence for a reject: the expected form, and the text that was there.
    #[cold]
    pub(crate) fn describe(&self, problem: Problem, got: &[u8]) -> Cow<'static, str> {
        let (name, expected) = (&self.name, &self.expected);
        let got = shorten(got);
        Cow::Owned(match problem {
            Problem::Missing if got.is_empty() => format!("field {name:?}: expected {expected}, got nothing"),
            Problem::Missing => format!("field {name:?}: expected {expected}, got {got}"),
            Problem::Null => format!("field {name:?}: expected {expected}, got null, written {got:?}"),
            Problem::Expected => format!("field {name:?}: expected {expected}, got {got:?}"),
            Problem::Range => format!("field {name:?}: {got:?} is out of range for {expected}"),
            Problem::Gap => format!(
                "field {name:?}: expected {expected}, got {got:?}, which no clock in {} shows: clocks were set forward over it",
                self.times.zone()
            ),
            Problem::Inexact => format!("field {name:?}: {got:?} has more places than {expected} keeps"),
        })
    }
}

/// What a sender can do about the reason of a reject, by the form of its sentence: reasons of fields are made in
/// [`Column::describe`], those of a whole record by its format.
pub(crate) fn parse_hint(reason: &str) -> &'static str {
    const OF_RECORDS: [(&str, &str); 4] = [
        ("expected a JSON object", "send JSON objects: one a line, or over HTTP one array of them"),
        ("expected UTF-8", "send text in UTF-8, and not compressed"),
        (
            "the CSV header",
            "begin with a line that names the fields of the source's `schema`, or set `header: false` where they come in its \
             order",
        ),
        ("expected the rest of the record", "end the last record before the connection ends"),
    ];
    let of_record = OF_RECORDS.iter().find(|(begin, _)| reason.starts_with(begin));
    if let Some(hint) = of_record.map(|(_, hint)| *hint) {
        return hint;
    }
    if reason.starts_with("time \"") {
        return "give the fields that the source's `time` reads values of which it makes a time";
    }
    if !reason.starts_with("field \"") {
        return "mend the record, so that it is as the source's `format` says";
    }
    if reason.ends_with(", got nothing")
        || reason.ends_with(", got null")
        || reason.contains(", got null, written \"")
    {
        return "give the field a value; where it may have none, a trailing `?` in the source's `schema` makes it nullable";
    }
    match reason {
        _ if reason.contains(", which no clock in ") => {
            "send the time with its offset, or in a zone whose clocks are not set forward, such as UTC"
        }
        _ if reason.contains(": expected timestamp(") && reason.contains(") as \"") => {
            "send times as the source's `time_format` says, or list their form there as well"
        }
        _ if reason.contains(" is out of range for ") => {
            "send a number that fits, or choose another type for the field in the source's `schema`"
        }
        _ if reason.contains(" has more places than ") => {
            "send fewer decimal places, or give the field more in the source's `schema`"
        }
        _ => "send a value of the field's type, or change the type in the source's `schema`",
    }
}

/// At most 60 characters of a text, for messages.
pub(crate) fn shorten(text: &[u8]) -> String {
    let head = String::from_utf8_lossy(&text[..text.len().min(240)]);
    let mut short: String = head.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_fits_its_mistake() {
        let column = Column::new(&Field::declared("n", "decimal(12,2)").unwrap()).unwrap();
        for (problem, got, expected) in [
            (Problem::Missing, "", "makes it nullable"),
            (Problem::Missing, "null", "makes it nullable"),
            (Problem::Null, "NA", "makes it nullable"),
            (Problem::Expected, "\"ten\"", "of the field's type"),
            (Problem::Expected, "got nothing", "of the field's type"),
            (Problem::Range, "1e99", "that fits"),
            (Problem::Gap, "2024-03-31T02:30", "with its offset"),
            (Problem::Inexact, "1.005", "fewer decimal places"),
        ] {
            let reason = column.describe(problem, got.as_bytes());
            assert!(parse_hint(&reason).contains(expected), "{reason}: {}", parse_hint(&reason));
        }
        for (reason, expected) in [
            ("expected a JSON object at byte 1, got \"garbage\"", "one a line"),
            ("expected a comma or the end of the object at byte 7, got the end", "mend the record"),
            ("expected UTF-8, got other bytes", "not compressed"),
            ("time \"CAST(a AS TIMESTAMP)\": expected the event time, got null", "makes a time"),
            ("the CSV header lacks field \"card\"", "header: false"),
        ] {
            assert!(parse_hint(reason).contains(expected), "{reason}: {}", parse_hint(reason));
        }
    }
}
