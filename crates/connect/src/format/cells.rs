//! Columns of a batch seen as cells to be written: the type is looked at once per batch, not per value.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, ListArray, RecordBatch,
    StringViewArray,
};
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::{DataType, SchemaRef, TimeUnit};

use thalweg_types::{self as types, Field};

use super::scan::{controls, load8, matches, splat};
use super::{base64, text};
use crate::schema::schema_of;

pub(crate) enum Cell<'a> {
    /// A column in which nothing is but nulls.
    Null,
    Bool(&'a BooleanArray),
    /// Also timestamps.
    Int64(&'a [i64], Option<&'a NullBuffer>),
    UInt64(&'a [u64], Option<&'a NullBuffer>),
    Float64(&'a [f64], Option<&'a NullBuffer>),
    Decimal128(&'a [i128], i8, Option<&'a NullBuffer>),
    Decimal256(&'a [i256], i8, Option<&'a NullBuffer>),
    String(&'a StringViewArray),
    Bytes(&'a BinaryViewArray),
    Ip(&'a FixedSizeBinaryArray),
    List {
        list: &'a ListArray,
        items: Box<Cell<'a>>,
    },
    Struct {
        nulls: Option<&'a NullBuffer>,
        fields: Vec<StructCell<'a>>,
    },
}

/// One field of a struct or of a record, with its key as it is written.
pub(crate) struct StructCell<'a> {
    key: &'a Key,
    cell: Cell<'a>,
}

/// A field's name as JSON writes it, and those of the fields inside it.
pub(crate) struct Key {
    /// `"name":`
    text: Vec<u8>,
    omit_null: bool,
    inner: Vec<Key>,
}

impl Key {
    pub(crate) fn of(fields: &[Field]) -> Vec<Key> {
        fields
            .iter()
            .map(|field| {
                let mut text = Vec::with_capacity(field.name.len() + 3);
                write_json_string(&field.name, &mut text);
                text.push(b':');
                Key { text, omit_null: field.omit_null, inner: Key::inside(&field.data_type) }
            })
            .collect()
    }

    fn inside(data_type: &types::DataType) -> Vec<Key> {
        match data_type {
            types::DataType::Struct(fields) => Key::of(fields),
            types::DataType::List(item) => Key::inside(item),
            _ => Vec::new(),
        }
    }
}

/// Keys of the batches of a stream whose fields may change, made again when they do.
#[derive(Default)]
pub(crate) struct KeysOfBatch(Option<(SchemaRef, Vec<Key>)>);

impl KeysOfBatch {
    pub(crate) fn of(&mut self, records: &RecordBatch) -> &[Key] {
        let schema = records.schema_ref();
        if self.0.as_ref().is_none_or(|(known, _)| !Arc::ptr_eq(known, schema) && known != schema) {
            self.0 = Some((Arc::clone(schema), Key::of(schema_of(schema).fields())));
        }
        self.0.as_ref().map_or(&[], |(_, keys)| keys)
    }
}

/// The fields of a batch's records.
///
/// # Panics
/// As [`Cell::new`], or if the batch has fewer columns than there are keys.
pub(crate) fn record_cells<'a>(records: &'a RecordBatch, keys: &'a [Key]) -> Vec<StructCell<'a>> {
    assert_eq!(records.num_columns(), keys.len(), "one key per column");
    keys.iter()
        .zip(records.columns())
        .map(|(key, column)| StructCell { key, cell: Cell::new(column, &key.inner) })
        .collect()
}

impl<'a> Cell<'a> {
    /// # Panics
    /// On an Arrow type that no field type maps to: schemas are checked before a job starts.
    pub(crate) fn new(column: &'a ArrayRef, inner: &'a [Key]) -> Self {
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        match column.data_type() {
            DataType::Null => Cell::Null,
            DataType::Boolean => Cell::Bool(column.as_boolean()),
            DataType::Int64 => Cell::Int64(column.as_primitive::<Int64Type>().values(), nulls),
            DataType::UInt64 => Cell::UInt64(column.as_primitive::<UInt64Type>().values(), nulls),
            DataType::Float64 => Cell::Float64(column.as_primitive::<Float64Type>().values(), nulls),
            DataType::Decimal128(_, scale) => {
                Cell::Decimal128(column.as_primitive::<Decimal128Type>().values(), *scale, nulls)
            }
            DataType::Decimal256(_, scale) => {
                Cell::Decimal256(column.as_primitive::<Decimal256Type>().values(), *scale, nulls)
            }
            DataType::Utf8View => Cell::String(column.as_string_view()),
            DataType::BinaryView => Cell::Bytes(column.as_binary_view()),
            DataType::FixedSizeBinary(16) => Cell::Ip(column.as_fixed_size_binary()),
            DataType::Timestamp(unit, _) => {
                let values: &[i64] = match unit {
                    TimeUnit::Second => column.as_primitive::<TimestampSecondType>().values(),
                    TimeUnit::Millisecond => column.as_primitive::<TimestampMillisecondType>().values(),
                    TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().values(),
                    TimeUnit::Nanosecond => column.as_primitive::<TimestampNanosecondType>().values(),
                };
                Cell::Int64(values, nulls)
            }
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                Cell::List { list, items: Box::new(Cell::new(list.values(), inner)) }
            }
            DataType::Struct(_) => Cell::Struct {
                nulls,
                fields: inner
                    .iter()
                    .zip(column.as_struct().columns())
                    .map(|(key, column)| StructCell { key, cell: Cell::new(column, &key.inner) })
                    .collect(),
            },
            other => panic!("no text of Arrow type {other}"),
        }
    }

    /// The cells on a path of places in a record: the structs on the way, outermost first, and the value.
    pub(crate) fn descend<'c>(record: &'c [StructCell<'a>], path: &[usize]) -> Vec<&'c Cell<'a>> {
        let (first, rest) = path.split_first().expect("a path has at least one place");
        let mut cells = vec![&record[*first].cell];
        for place in rest {
            match cells[cells.len() - 1] {
                Cell::Struct { fields, .. } => cells.push(&fields[*place].cell),
                _ => unreachable!("a path goes through structs only"),
            }
        }
        cells
    }

    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        let nulls = match self {
            Cell::Null => return true,
            Cell::Bool(column) => column.nulls(),
            Cell::String(column) => column.nulls(),
            Cell::Bytes(column) => column.nulls(),
            Cell::Ip(column) => column.nulls(),
            Cell::List { list, .. } => list.nulls(),
            Cell::Int64(_, nulls)
            | Cell::UInt64(_, nulls)
            | Cell::Float64(_, nulls)
            | Cell::Decimal128(_, _, nulls)
            | Cell::Decimal256(_, _, nulls)
            | Cell::Struct { nulls, .. } => *nulls,
        };
        nulls.is_some_and(|nulls| nulls.is_null(row))
    }

    /// Writes a value that is not null and no list or struct, without quotes.
    pub(crate) fn write_plain(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            Cell::Null | Cell::List { .. } | Cell::Struct { .. } => {}
            Cell::Bool(column) => out.extend_from_slice(if column.value(row) { b"true" } else { b"false" }),
            Cell::Int64(values, _) => {
                out.extend_from_slice(itoa::Buffer::new().format(values[row]).as_bytes());
            }
            Cell::UInt64(values, _) => {
                out.extend_from_slice(itoa::Buffer::new().format(values[row]).as_bytes());
            }
            Cell::Float64(values, _) => text::write_f64(values[row], out),
            Cell::Decimal128(values, scale, _) => {
                text::write_decimal(itoa::Buffer::new().format(values[row]), *scale, out);
            }
            Cell::Decimal256(values, scale, _) => {
                text::write_decimal(&values[row].to_string(), *scale, out);
            }
            Cell::String(column) => out.extend_from_slice(column.value(row).as_bytes()),
            Cell::Bytes(column) => base64::encode(column.value(row), out),
            Cell::Ip(column) => {
                text::write_ip(column.value(row).try_into().expect("an address has 16 bytes"), out);
            }
        }
    }
}

/// Writes a value as JSON: decimals, NaN and the infinities as strings.
pub(crate) fn write_json(cell: &Cell<'_>, row: usize, out: &mut Vec<u8>) {
    if cell.is_null(row) {
        out.extend_from_slice(b"null");
        return;
    }
    match cell {
        Cell::Bool(_) | Cell::Int64(..) | Cell::UInt64(..) => cell.write_plain(row, out),
        Cell::Float64(values, _) if values[row].is_finite() => text::write_f64(values[row], out),
        Cell::String(column) => write_json_string(column.value(row), out),
        Cell::List { list, items } => {
            let offsets = list.value_offsets();
            out.push(b'[');
            for item in offsets[row]..offsets[row + 1] {
                if item > offsets[row] {
                    out.push(b',');
                }
                write_json(items, item as usize, out);
            }
            out.push(b']');
        }
        Cell::Struct { fields, .. } => write_record(fields, row, out),
        // Base64, numbers and addresses hold nothing that JSON would have to escape.
        other => {
            out.push(b'"');
            other.write_plain(row, out);
            out.push(b'"');
        }
    }
}

/// Writes fields as one object.
pub(crate) fn write_record(fields: &[StructCell<'_>], row: usize, out: &mut Vec<u8>) {
    out.push(b'{');
    let mut is_first = true;
    for field in fields {
        if field.key.omit_null && field.cell.is_null(row) {
            continue;
        }
        if !is_first {
            out.push(b',');
        }
        is_first = false;
        out.extend_from_slice(&field.key.text);
        write_json(&field.cell, row, out);
    }
    out.push(b'}');
}

/// Writes a text as a JSON string.
pub(crate) fn write_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let (mut written, mut at) = (0, 0);
    while at < bytes.len() {
        let word = load8(bytes, at);
        let special = matches(word, splat(b'"')) | matches(word, splat(b'\\')) | controls(word);
        if special == 0 {
            at += 8;
            continue;
        }
        at += (special.trailing_zeros() / 8) as usize;
        let Some(byte) = bytes.get(at) else { break };
        out.extend_from_slice(&bytes[written..at]);
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                out.extend_from_slice(b"\\u00");
                for digit in [control >> 4, control & 15] {
                    out.push(b"0123456789abcdef"[usize::from(digit)]);
                }
            }
        }
        at += 1;
        written = at;
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}
