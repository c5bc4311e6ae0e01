//! Values of some fields of a record as bytes: keys of elements, and the values of records that elements keep.
//!
//! Persisted: per field a byte, 0 for null, 1 for a value, and then the value. Little-endian, of fixed width but for
//! texts and bytes, which have their length before them (4). Decimals take 32 bytes at their field's scale,
//! addresses 16. Which types follow each other is not written; the reader has to know the fields.

use std::fmt;

use arrow_buffer::i256;
use thalweg_types::{DataType, Error, Field, Schema, Value};

use super::column::{Column, Values};
use super::{NewRecord, Row, Set};

/// Packs values of some fields.
#[derive(Clone, Debug)]
pub struct Packer {
    places: Vec<usize>,
    fields: Vec<Field>,
}

impl Packer {
    /// Of these fields, by their places.
    ///
    /// # Errors
    /// For a list or a struct.
    pub fn new(schema: &Schema, places: &[usize]) -> Result<Self, Error> {
        let fields: Vec<Field> = places.iter().map(|place| schema.fields()[*place].clone()).collect();
        let nested = |field: &&Field| matches!(field.data_type, DataType::List(_) | DataType::Struct(_));
        match fields.iter().find(nested) {
            Some(field) => Err(Error::user(format!(
                "field {:?} is of type {}, which is not kept",
                field.name, field.data_type
            ))
            .with_hint("take what is needed of it into fields of its own with a `map` before")),
            None => Ok(Self { places: places.to_vec(), fields }),
        }
    }

    /// Of all fields.
    ///
    /// # Errors
    /// As [`Packer::new`].
    pub fn all(schema: &Schema) -> Result<Self, Error> {
        Self::new(schema, &(0..schema.fields().len()).collect::<Vec<_>>())
    }

    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Appends a record's values, bit by bit.
    pub fn pack(&self, record: Row<'_>, into: &mut Vec<u8>) {
        for place in &self.places {
            pack(&record.columns[*place], record.physical as usize, into, false);
        }
    }

    /// Appends them so that values which are equal as keys are equal in bytes: −0 is 0, and every NaN the same.
    pub fn pack_as_key(&self, record: Row<'_>, into: &mut Vec<u8>) {
        self.pack_key(record.columns, record.physical, into);
    }

    pub(crate) fn pack_key(&self, columns: &[Column<'_>], row: u32, into: &mut Vec<u8>) {
        for place in &self.places {
            pack(&columns[*place], row as usize, into, true);
        }
    }

    /// What was packed.
    pub fn unpack<'a>(&'a self, bytes: &'a [u8]) -> Packed<'a> {
        Packed { fields: &self.fields, bytes }
    }
}

fn pack(column: &Column<'_>, row: usize, into: &mut Vec<u8>, is_key: bool) {
    if column.is_null(row) {
        into.push(0);
        return;
    }
    into.push(1);
    match column.values {
        Values::Bool(values) => into.push(u8::from(values.value(row))),
        Values::Int64(values) | Values::Time(values, _) => into.extend_from_slice(&values[row].to_le_bytes()),
        Values::UInt64(values) => into.extend_from_slice(&values[row].to_le_bytes()),
        Values::Float64(values) => {
            let value = match values[row] {
                value if !is_key => value,
                value if value.is_nan() => f64::NAN,
                value => value + 0.0,
            };
            into.extend_from_slice(&value.to_le_bytes());
        }
        Values::Decimal128(values, _) => {
            into.extend_from_slice(&i256::from_i128(values[row]).to_le_bytes());
        }
        Values::Decimal256(values, _) => into.extend_from_slice(&values[row].to_le_bytes()),
        Values::String(values) => pack_bytes(values.value(row).as_bytes(), into),
        Values::Bytes(values) => pack_bytes(values.value(row), into),
        Values::Ip(values) => into.extend_from_slice(values.value(row)),
        // `new` refuses them.
        Values::Nested => {}
    }
}

fn pack_bytes(bytes: &[u8], into: &mut Vec<u8>) {
    // A column's views have 32 bits for a length.
    into.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    into.extend_from_slice(bytes);
}

/// Packed values with their fields. Copying it copies no values.
#[derive(Clone, Copy)]
pub struct Packed<'a> {
    fields: &'a [Field],
    bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn fields(&self) -> &'a [Field] {
        self.fields
    }

    /// The values, in the order of the fields.
    ///
    /// # Errors
    /// If the bytes are not of these fields: the fields were others when they were packed.
    pub fn values(&self) -> Result<Vec<Value>, Error> {
        let mut rest = self.bytes;
        let values: Option<Vec<Value>> =
            self.fields.iter().map(|field| unpack(&field.data_type, &mut rest)).collect();
        values.filter(|_| rest.is_empty()).ok_or_else(|| self.damaged())
    }

    /// Sets fields of a record to the values, in the order of the fields; other values than these are not set.
    ///
    /// # Errors
    /// As [`Packed::values`].
    pub(crate) fn set<'r>(
        &self,
        mut record: NewRecord<'r>,
        fields: &[Set<Value>],
    ) -> Result<NewRecord<'r>, Error> {
        let (mut rest, mut fields) = (self.bytes, fields.iter());
        for own in self.fields {
            let field = fields.next();
            record = match (&own.data_type, rest.split_first()) {
                // Texts are most keys: these are not copied on their way.
                (DataType::String, Some((1, text))) => {
                    rest = text;
                    let text = take_bytes(&mut rest).and_then(|text| std::str::from_utf8(text).ok());
                    let text = text.ok_or_else(|| self.damaged())?;
                    set(record, field, |record, field| record.set(field.text(), text))
                }
                _ => {
                    let value = unpack(&own.data_type, &mut rest).ok_or_else(|| self.damaged())?;
                    set(record, field, |record, field| record.set(field, value))
                }
            };
        }
        if rest.is_empty() { Ok(record) } else { Err(self.damaged()) }
    }

    fn damaged(&self) -> Error {
        let names: Vec<&str> = self.fields.iter().map(|field| field.name.as_str()).collect();
        let count = self.bytes.len();
        Error::corrupt(format!("{count} bytes of state are not values of the fields {}", names.join(", ")))
            .with_hint("they were packed by a job with other fields, or damaged")
    }
}

fn set<'r>(
    record: NewRecord<'r>,
    field: Option<&Set<Value>>,
    set: impl FnOnce(NewRecord<'r>, Set<Value>) -> NewRecord<'r>,
) -> NewRecord<'r> {
    match field {
        Some(field) => set(record, *field),
        None => record,
    }
}

impl fmt::Debug for Packed<'_> {
    /// `word="foo", day=3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values().unwrap_or_default();
        for (place, (field, value)) in self.fields.iter().zip(values).enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{}=", field.name)?;
            match value {
                Value::Null => f.write_str("null")?,
                Value::Bool(value) => write!(f, "{value}")?,
                Value::Int64(value) | Value::Timestamp(value, _) => write!(f, "{value}")?,
                Value::UInt64(value) => write!(f, "{value}")?,
                Value::Float64(value) => write!(f, "{value}")?,
                Value::String(text) => write!(f, "{text:?}")?,
                other => write!(f, "{other:?}")?,
            }
        }
        Ok(())
    }
}

fn unpack(data_type: &DataType, rest: &mut &[u8]) -> Option<Value> {
    match take::<1>(rest)? {
        [0] => return Some(Value::Null),
        [1] => {}
        _ => return None,
    }
    Some(match data_type {
        DataType::Bool => Value::Bool(match take::<1>(rest)? {
            [0] => false,
            [1] => true,
            _ => return None,
        }),
        DataType::Int64 => Value::Int64(i64::from_le_bytes(take(rest)?)),
        DataType::UInt64 => Value::UInt64(u64::from_le_bytes(take(rest)?)),
        DataType::Float64 => Value::Float64(f64::from_le_bytes(take(rest)?)),
        DataType::Decimal { scale, .. } => Value::Decimal(i256::from_le_bytes(take(rest)?), *scale),
        DataType::String => Value::String(String::from_utf8(take_bytes(rest)?.to_vec()).ok()?),
        DataType::Bytes => Value::Bytes(take_bytes(rest)?.to_vec()),
        DataType::Timestamp(unit) => Value::Timestamp(i64::from_le_bytes(take(rest)?), *unit),
        DataType::Ip => Value::Ip(take(rest)?),
        DataType::List(_) | DataType::Struct(_) => return None,
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(*taken)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}
