//! Casts. A value without a counterpart is null.
//!
//! Floats and decimals become integers by cutting the fraction off; a decimal with a smaller scale is rounded half
//! away from zero. Timestamps become coarser by rounding down, and integers as counts of their own unit.

use std::net::Ipv6Addr;

use arrow_array::builder::{BinaryViewBuilder, FixedSizeBinaryBuilder, StringViewBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, BooleanArray, Int64Array};
use arrow_buffer::i256;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType as Arrow;
use thalweg_types::{DataType, TimeUnit, format_timestamp, parse_timestamp};

use super::column::{Column, arc, from_options};
use super::decimal::{build, digits, divide_rounded, power_of_ten, scale_of};
use super::time::{as_timestamps, map_counts, per_second, rescale};
use super::{Evaluation, internal};
use crate::SqlError;
use crate::bind::types;

pub(crate) fn cast(
    a: &Column,
    from: &DataType,
    to: &DataType,
    within: &Evaluation<'_>,
) -> Result<Column, SqlError> {
    let array = a.array();
    // The others are numbers, times and addresses, whose texts are short.
    if matches!((from, to), (DataType::String, DataType::Bytes) | (DataType::Bytes, DataType::String)) {
        within.take(view_bytes(array))?;
    }
    let result = match (from, to) {
        (DataType::String, to) => from_text(array, to)?,
        (from, DataType::String) => to_text(array, from)?,
        (DataType::Timestamp(_), DataType::Timestamp(unit)) => {
            let (from, to_count) = (per_second(array), types::per_second(*unit));
            as_timestamps(map_counts(array, |count| rescale(count, from, to_count)), &to.to_arrow())
        }
        (DataType::Timestamp(_), DataType::Int64) => arc(map_counts(array, Some)),
        (DataType::Int64, DataType::Timestamp(_)) => {
            as_timestamps(array.as_primitive::<Int64Type>().clone(), &to.to_arrow())
        }
        (DataType::Decimal { .. }, _) => from_decimal(array, to)?,
        (DataType::Int64, DataType::Decimal { precision, scale }) => {
            let values = array.as_primitive::<Int64Type>().iter();
            let shift = power_of_ten(u32::try_from(*scale).unwrap_or(0));
            build(
                values.map(|value| i256::from_i128(i128::from(value?)).checked_mul(shift?)),
                *precision,
                *scale,
            )?
        }
        (DataType::UInt64, DataType::Decimal { precision, scale }) => {
            let values = array.as_primitive::<UInt64Type>().iter();
            let shift = power_of_ten(u32::try_from(*scale).unwrap_or(0));
            build(
                values.map(|value| i256::from_i128(i128::from(value?)).checked_mul(shift?)),
                *precision,
                *scale,
            )?
        }
        _ => arrow(array, &to.to_arrow())?,
    };
    Ok(a.same_shape(result))
}

/// Bytes of the texts or blobs of a column.
pub(super) fn view_bytes(array: &ArrayRef) -> usize {
    let bytes_of = |views: &[u128]| views.iter().map(|view| *view as u32 as usize).sum();
    match array.data_type() {
        Arrow::Utf8View => bytes_of(array.as_string_view().views()),
        Arrow::BinaryView => bytes_of(array.as_binary_view().views()),
        _ => 0,
    }
}

fn arrow(array: &ArrayRef, to: &Arrow) -> Result<ArrayRef, SqlError> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    cast_with_options(array, to, &options).map_err(internal)
}

fn from_decimal(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, SqlError> {
    let scale = scale_of(array.data_type());
    let unit = power_of_ten(u32::try_from(scale).unwrap_or(0)).unwrap_or(i256::ONE);
    let whole = || digits(array).into_iter().map(move |value| value?.checked_div(unit)?.to_i128());
    match to {
        DataType::Int64 => {
            Ok(arc(from_options::<Int64Type>(whole().map(|value| i64::try_from(value?).ok()))))
        }
        DataType::UInt64 => {
            Ok(arc(from_options::<UInt64Type>(whole().map(|value| u64::try_from(value?).ok()))))
        }
        DataType::Decimal { precision, scale: to_scale } => {
            let shift = i32::from(*to_scale) - i32::from(scale);
            let factor = power_of_ten(shift.unsigned_abs());
            let values = digits(array).into_iter().map(|value| {
                let (value, factor) = (value?, factor?);
                if shift >= 0 { value.checked_mul(factor) } else { divide_rounded(value, factor) }
            });
            build(values, *precision, *to_scale)
        }
        // The nearest float of the written number; a quotient of floats would round twice.
        DataType::Float64 => {
            let values = digits(array)
                .into_iter()
                .map(|value| Some(format!("{}e-{scale}", value?).parse().expect("digits and an exponent")));
            Ok(arc(from_options::<Float64Type>(values)))
        }
        other => arrow(array, &other.to_arrow()),
    }
}

fn from_text(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, SqlError> {
    let texts = array.as_string_view();
    let trimmed = || texts.iter().map(|text| text.map(str::trim));
    Ok(match to {
        DataType::String => array.clone(),
        DataType::Bool => arc(trimmed()
            // Longer ones are not among these.
            .map(|text| match text.filter(|text| text.len() <= 8)?.to_ascii_lowercase().as_str() {
                "true" | "t" | "yes" | "on" | "1" => Some(true),
                "false" | "f" | "no" | "off" | "0" => Some(false),
                _ => None,
            })
            .collect::<BooleanArray>()),
        DataType::Int64 => arc(from_options::<Int64Type>(trimmed().map(|text| text?.parse().ok()))),
        DataType::UInt64 => arc(from_options::<UInt64Type>(trimmed().map(|text| text?.parse().ok()))),
        DataType::Float64 => arc(from_options::<Float64Type>(trimmed().map(|text| text?.parse().ok()))),
        DataType::Decimal { precision, scale } => {
            build(trimmed().map(|text| parse_decimal(text?, *scale)), *precision, *scale)?
        }
        DataType::Timestamp(unit) => {
            let size = i128::from(1_000_000_000 / types::per_second(*unit));
            let counts: Int64Array = from_options::<Int64Type>(
                trimmed().map(|text| i64::try_from(parse_timestamp(text?)?.div_euclid(size)).ok()),
            );
            as_timestamps(counts, &to.to_arrow())
        }
        DataType::Ip => {
            let mut builder = FixedSizeBinaryBuilder::with_capacity(texts.len(), 16);
            for text in trimmed() {
                match text.and_then(thalweg_types::parse_ip) {
                    Some(ip) => builder.append_value(ip).map_err(internal)?,
                    None => builder.append_null(),
                }
            }
            arc(builder.finish())
        }
        DataType::Bytes => {
            let mut builder = BinaryViewBuilder::with_capacity(texts.len());
            for text in texts {
                builder.append_option(text.map(str::as_bytes));
            }
            arc(builder.finish())
        }
        DataType::List(_) | DataType::Struct(_) => unreachable!("the binder reads no {to} from a text"),
    })
}

/// `-12.345` with `scale` digits after the point; more are rounded half away from zero.
fn parse_decimal(text: &str, scale: i8) -> Option<i256> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    if (whole.is_empty() && fraction.is_empty()) || !unsigned.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    {
        return None;
    }
    if fraction.contains('.') {
        return None;
    }
    let scale = usize::try_from(scale).ok()?;
    let kept = &fraction[..fraction.len().min(scale)];
    let digits = format!("{whole}{kept:0<scale$}");
    let significant = digits.trim_start_matches('0');
    if significant.len() > 76 {
        return None;
    }
    let mut value = if significant.is_empty() { i256::ZERO } else { i256::from_string(significant)? };
    if fraction.as_bytes().get(scale).is_some_and(|digit| *digit >= b'5') {
        value = value.checked_add(i256::ONE)?;
    }
    if text.starts_with('-') { value.checked_neg() } else { Some(value) }
}

fn to_text(array: &ArrayRef, from: &DataType) -> Result<ArrayRef, SqlError> {
    let rows = array.len();
    let mut builder = StringViewBuilder::with_capacity(rows);
    match from {
        DataType::Timestamp(unit) => {
            let counts = super::in_list::integers_of(array);
            for (row, count) in counts.iter().enumerate() {
                if array.is_null(row) {
                    builder.append_null()
                } else {
                    builder.append_option(write_time(*count, *unit))
                }
            }
        }
        DataType::Ip => {
            for ip in array.as_fixed_size_binary() {
                builder.append_option(ip.map(|ip| {
                    let octets: [u8; 16] = ip.try_into().expect("an ip has 16 bytes");
                    write_ip(octets)
                }));
            }
        }
        DataType::Bytes => {
            for bytes in array.as_binary_view() {
                builder.append_option(bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()));
            }
        }
        DataType::Float64 => {
            for value in array.as_primitive::<Float64Type>() {
                builder.append_option(value.map(write_float));
            }
        }
        _ => return arrow(array, &Arrow::Utf8View),
    }
    Ok(arc(builder.finish()))
}

fn write_float(value: f64) -> String {
    if value.is_nan() { "NaN".to_owned() } else { format!("{value:?}") }
}

fn write_ip(octets: [u8; 16]) -> String {
    let ip = Ipv6Addr::from(octets);
    ip.to_ipv4_mapped().map_or_else(|| ip.to_string(), |v4| v4.to_string())
}

/// ISO 8601 in UTC; `None` where the time is outside the range of microseconds.
fn write_time(count: i64, unit: TimeUnit) -> Option<String> {
    let text = format_timestamp(unit.to_micros(count)?);
    let below = count.rem_euclid(1_000);
    if unit != TimeUnit::Nano || below == 0 {
        return Some(text);
    }
    let seconds = text.trim_end_matches('Z').split('.').next().unwrap_or_default();
    Some(format!("{seconds}.{:09}Z", count.rem_euclid(1_000_000_000)))
}

/// One timestamp as a column of one row.
pub(crate) fn timestamp_array(unit: TimeUnit, count: i64) -> ArrayRef {
    as_timestamps(Int64Array::from(vec![count]), &DataType::Timestamp(unit).to_arrow())
}
