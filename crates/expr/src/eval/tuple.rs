//! Several values of a row as one blob, which is equal to another where all of them are: what `count(DISTINCT a, b)`
//! counts.
//!
//! Layout, one value after the other, each as its column's type has it, little-endian: bool 1 byte, numbers and times 8,
//! decimals 32, addresses 16, texts and blobs their length in 8 bytes and then themselves. A NaN has the bits of one, −0
//! those of 0. Persisted: windows keep what they counted.

use arrow_array::Array as _;
use arrow_array::builder::BinaryViewBuilder;
use thalweg_types::Value;

use super::Evaluation;
use super::column::{Column, arc};
use crate::SqlError;

/// Most bytes of a value that is no text or blob, and of the bytes before one that is.
pub(crate) const MOST_OF_ONE: usize = 32;

/// Null where any value is, and where the blob would be too long.
pub(crate) fn tuple(items: &[Column], within: &Evaluation<'_>) -> Result<Column, SqlError> {
    let is_scalar = items.iter().all(Column::is_scalar);
    let rows = if is_scalar { 1 } else { within.rows() };
    let mut out = BinaryViewBuilder::with_capacity(rows);
    let mut blob = Vec::new();
    for row in 0..rows {
        blob.clear();
        let (mut longest, mut is_null) = (0, false);
        for item in items {
            let row = if item.is_scalar() { 0 } else { row };
            is_null |= item.array().is_null(row);
            if !is_null {
                longest = longest.max(write(&Value::at(item.array(), row), &mut blob));
            }
        }
        if is_null {
            out.append_null();
        } else if within.may_make(blob.len(), longest) {
            within.take(blob.len())?;
            out.append_value(&blob);
        } else {
            out.append_null();
            within.misfit(row, is_scalar)?;
        }
    }
    let array = arc(out.finish());
    Ok(if is_scalar { Column::Scalar(array) } else { Column::Array(array) })
}

/// Appends a value; the bytes of one that is a text or blob.
fn write(value: &Value, out: &mut Vec<u8>) -> usize {
    let mut bytes = |bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(bytes);
        bytes.len()
    };
    match value {
        Value::String(text) => return bytes(text.as_bytes()),
        Value::Bytes(blob) => return bytes(blob),
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Int64(value) | Value::Timestamp(value, _) => out.extend_from_slice(&value.to_le_bytes()),
        Value::UInt64(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Float64(value) => {
            let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Value::Decimal(digits, _) => out.extend_from_slice(&digits.to_le_bytes()),
        Value::Ip(ip) => out.extend_from_slice(ip),
        Value::Null | Value::List(_) | Value::Struct(_) => {
            unreachable!("the binder lets none of these through")
        }
    }
    0
}
