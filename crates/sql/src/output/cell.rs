//! One value as text, or as JSON.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType, TimeUnit};
use thalweg_types::{Error, civil_from_days};

/// Bytes of an address.
pub(super) const ADDRESS: i32 = 16;

/// Whether numbers of a type are lined up to the right.
pub(super) fn is_number(kind: &DataType) -> bool {
    kind.is_numeric()
}

/// Writes a value as text; nothing for null. Lists and structures are written as JSON.
pub(super) fn text(array: &dyn Array, row: usize, out: &mut String) -> Result<(), Error> {
    if array.is_null(row) {
        return Ok(());
    }
    match array.data_type() {
        kind if kind.is_nested() => json(array, row, out),
        _ => scalar(array, row, out),
    }
}

/// Writes a value as JSON.
pub(super) fn json(array: &dyn Array, row: usize, out: &mut String) -> Result<(), Error> {
    if array.is_null(row) {
        out.push_str("null");
        return Ok(());
    }
    match array.data_type() {
        DataType::Null => out.push_str("null"),
        DataType::Boolean => scalar(array, row, out)?,
        kind if kind.is_integer() => scalar(array, row, out)?,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let from = out.len();
            scalar(array, row, out)?;
            if !out[from..].ends_with(|last: char| last.is_ascii_digit()) {
                let word = out.split_off(from);
                quote(&word, out);
            }
        }
        DataType::List(_) => list(&array.as_list::<i32>().value(row), out)?,
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row), out)?,
        DataType::ListView(_) => list(&array.as_list_view::<i32>().value(row), out)?,
        DataType::LargeListView(_) => list(&array.as_list_view::<i64>().value(row), out)?,
        DataType::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row), out)?,
        DataType::Struct(fields) => {
            out.push('{');
            for (place, (field, column)) in fields.iter().zip(array.as_struct().columns()).enumerate() {
                if place > 0 {
                    out.push(',');
                }
                quote(field.name(), out);
                out.push(':');
                json(column, row, out)?;
            }
            out.push('}');
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            out.push('[');
            for entry in 0..entries.len() {
                out.push_str(if entry > 0 { ",[" } else { "[" });
                json(entries.column(0), entry, out)?;
                out.push(',');
                json(entries.column(1), entry, out)?;
                out.push(']');
            }
            out.push(']');
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            match dictionary.normalized_keys().get(row) {
                Some(key) => json(dictionary.values(), *key, out)?,
                None => out.push_str("null"),
            }
        }
        _ => {
            let mut word = String::new();
            scalar(array, row, &mut word)?;
            quote(&word, out);
        }
    }
    Ok(())
}

fn list(values: &ArrayRef, out: &mut String) -> Result<(), Error> {
    out.push('[');
    for row in 0..values.len() {
        if row > 0 {
            out.push(',');
        }
        json(values, row, out)?;
    }
    out.push(']');
    Ok(())
}

/// Writes a value that is not null and no list or structure.
fn scalar(array: &dyn Array, row: usize, out: &mut String) -> Result<(), Error> {
    match array.data_type() {
        DataType::Boolean => out.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
        DataType::Int8 => integer(value::<Int8Type>(array, row), out),
        DataType::Int16 => integer(value::<Int16Type>(array, row), out),
        DataType::Int32 => integer(value::<Int32Type>(array, row), out),
        DataType::Int64 => integer(value::<Int64Type>(array, row), out),
        DataType::UInt8 => integer(value::<UInt8Type>(array, row), out),
        DataType::UInt16 => integer(value::<UInt16Type>(array, row), out),
        DataType::UInt32 => integer(value::<UInt32Type>(array, row), out),
        DataType::UInt64 => integer(value::<UInt64Type>(array, row), out),
        DataType::Float16 => {
            out.push_str(ryu::Buffer::new().format(value::<Float16Type>(array, row).to_f32()))
        }
        DataType::Float32 => out.push_str(ryu::Buffer::new().format(value::<Float32Type>(array, row))),
        DataType::Float64 => out.push_str(ryu::Buffer::new().format(value::<Float64Type>(array, row))),
        DataType::Decimal32(..) => out.push_str(&array.as_primitive::<Decimal32Type>().value_as_string(row)),
        DataType::Decimal64(..) => out.push_str(&array.as_primitive::<Decimal64Type>().value_as_string(row)),
        DataType::Decimal128(..) => {
            out.push_str(&array.as_primitive::<Decimal128Type>().value_as_string(row))
        }
        DataType::Decimal256(..) => {
            out.push_str(&array.as_primitive::<Decimal256Type>().value_as_string(row))
        }
        DataType::Utf8 => out.push_str(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => out.push_str(array.as_string::<i64>().value(row)),
        DataType::Utf8View => out.push_str(array.as_string_view().value(row)),
        DataType::Binary => hex(array.as_binary::<i32>().value(row), out),
        DataType::LargeBinary => hex(array.as_binary::<i64>().value(row), out),
        DataType::BinaryView => hex(array.as_binary_view().value(row), out),
        DataType::FixedSizeBinary(ADDRESS) => address(array.as_fixed_size_binary().value(row), out),
        DataType::FixedSizeBinary(_) => hex(array.as_fixed_size_binary().value(row), out),
        DataType::Timestamp(unit, _) => {
            let (value, per_second, digits) = match unit {
                TimeUnit::Second => (value::<TimestampSecondType>(array, row), 1, 0),
                TimeUnit::Millisecond => (value::<TimestampMillisecondType>(array, row), 1_000, 3),
                TimeUnit::Microsecond => (value::<TimestampMicrosecondType>(array, row), 1_000_000, 6),
                TimeUnit::Nanosecond => (value::<TimestampNanosecondType>(array, row), 1_000_000_000, 9),
            };
            time(value.div_euclid(per_second), value.rem_euclid(per_second), digits, out);
        }
        DataType::Date32 => date(i64::from(value::<Date32Type>(array, row)), out),
        DataType::Date64 => date(value::<Date64Type>(array, row).div_euclid(86_400_000), out),
        _ => {
            let text = array_value_to_string(array, row).map_err(|error| {
                Error::internal(format!("print a value of {}: {error}", array.data_type()))
            })?;
            out.push_str(&text);
        }
    }
    Ok(())
}

fn value<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

fn integer(value: impl itoa::Integer, out: &mut String) {
    out.push_str(itoa::Buffer::new().format(value));
}

fn hex(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)].into());
        out.push(DIGITS[usize::from(byte & 15)].into());
    }
}

/// Writes an address, those of version 4 with dots.
pub(crate) fn address(bytes: &[u8], out: &mut String) {
    let Ok(octets) = <[u8; 16]>::try_from(bytes) else { return hex(bytes, out) };
    let six = Ipv6Addr::from(octets);
    let _ = match six.to_ipv4_mapped() {
        Some(four) => write!(out, "{four}"),
        None => write!(out, "{six}"),
    };
}

fn date(days: i64, out: &mut String) {
    let (year, month, day) = civil_from_days(days);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
}

fn time(seconds: i64, fraction: i64, digits: usize, out: &mut String) {
    date(seconds.div_euclid(86_400), out);
    let of_day = seconds.rem_euclid(86_400);
    let _ = write!(out, "T{:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60);
    if fraction != 0 {
        let _ = write!(out, ".{fraction:0digits$}");
        out.truncate(out.trim_end_matches('0').len());
    }
    out.push('Z');
}

/// Writes a text as a JSON string.
pub(super) fn quote(text: &str, out: &mut String) {
    out.push('"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[from..at]);
        match escape {
            "" => drop(write!(out, "\\u{byte:04x}")),
            escape => out.push_str(escape),
        }
        from = at + 1;
    }
    out.push_str(&text[from..]);
    out.push('"');
}
