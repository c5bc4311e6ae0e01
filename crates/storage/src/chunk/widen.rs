//! Reading a column as a wider type than it was stored as, after a field's type was changed.
//!
//! | stored | read as | |
//! |---|---|---|
//! | int64 | float64 | the nearest float, as SQL casts; beyond 2^53 not every integer has its own |
//! | int64, uint64, uint32 | decimal(p, s) with p − s ≥ 19, 20, 10 | exact |
//! | uint32 | uint64, int64, float64 | exact |
//! | decimal(p, s) | decimal(p2, s2) with s2 ≥ s, p2 − s2 ≥ p − s | exact |
//! | timestamp | a finer unit | exact; an error where a time does not fit 64 bits |
//! | string | bytes | exact |

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, PrimitiveArray};
use arrow_buffer::i256;
use arrow_schema::{DataType, TimeUnit};

use super::CodecError;

/// Precision and scale of a decimal type, and of the integers that decimals can hold.
fn digits(data_type: &DataType) -> Option<(i32, i32)> {
    match data_type {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            Some((i32::from(*precision), i32::from(*scale)))
        }
        DataType::Int64 => Some((19, 0)),
        DataType::UInt64 => Some((20, 0)),
        DataType::UInt32 => Some((10, 0)),
        _ => None,
    }
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(..) | DataType::Decimal256(..))
}

fn ticks_per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Whether a column stored as `stored` can be read as `wanted`.
pub fn can_widen(stored: &DataType, wanted: &DataType) -> bool {
    if stored == wanted {
        return true;
    }
    match (stored, wanted) {
        (DataType::Int64 | DataType::UInt32, DataType::Float64)
        | (DataType::UInt32, DataType::UInt64 | DataType::Int64)
        | (DataType::Utf8View, DataType::BinaryView) => true,
        (DataType::Timestamp(from, None), DataType::Timestamp(to, None)) => {
            ticks_per_second(*from) < ticks_per_second(*to)
        }
        (_, wanted) if is_decimal(wanted) => digits(stored).zip(digits(wanted)).is_some_and(
            |((precision, scale), (wanted_precision, wanted_scale))| {
                wanted_scale >= scale && wanted_precision - wanted_scale >= precision - scale
            },
        ),
        _ => false,
    }
}

/// The same values as `wanted`; the array itself where it has that type.
///
/// # Errors
/// [`CodecError::Type`] where [`can_widen`] says no, [`CodecError::Overflow`] for a time out of range.
pub fn widen(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, CodecError> {
    let stored = array.data_type();
    if stored == wanted {
        return Ok(Arc::clone(array));
    }
    if !can_widen(stored, wanted) {
        return Err(CodecError::Type { stored: stored.clone(), wanted: wanted.clone() });
    }
    let refuse = || CodecError::Type { stored: stored.clone(), wanted: wanted.clone() };
    Ok(match (stored, wanted) {
        (DataType::Int64, DataType::Float64) => {
            Arc::new(array.as_primitive::<Int64Type>().unary::<_, Float64Type>(|value| value as f64))
        }
        (DataType::UInt32, DataType::Float64) => {
            Arc::new(array.as_primitive::<UInt32Type>().unary::<_, Float64Type>(f64::from))
        }
        (DataType::UInt32, DataType::UInt64) => {
            Arc::new(array.as_primitive::<UInt32Type>().unary::<_, UInt64Type>(u64::from))
        }
        (DataType::UInt32, DataType::Int64) => {
            Arc::new(array.as_primitive::<UInt32Type>().unary::<_, Int64Type>(i64::from))
        }
        (DataType::Utf8View, DataType::BinaryView) => {
            Arc::new(array.as_string_view().clone().to_binary_view())
        }
        (DataType::Timestamp(from, None), DataType::Timestamp(to, None)) => {
            let factor = ticks_per_second(*to) / ticks_per_second(*from);
            match (from, to) {
                (TimeUnit::Second, _) => finer::<TimestampSecondType>(array, *to, factor, wanted)?,
                (TimeUnit::Millisecond, _) => finer::<TimestampMillisecondType>(array, *to, factor, wanted)?,
                _ => finer::<TimestampMicrosecondType>(array, *to, factor, wanted)?,
            }
        }
        (stored, DataType::Decimal128(precision, scale)) => {
            let up = 10_i128.pow_wrapping(u32::try_from(scale_step(stored, wanted)).map_err(|_| refuse())?);
            let widened = match stored {
                DataType::Int64 => {
                    array.as_primitive::<Int64Type>().unary(|value| i128::from(value).wrapping_mul(up))
                }
                DataType::UInt64 => {
                    array.as_primitive::<UInt64Type>().unary(|value| i128::from(value).wrapping_mul(up))
                }
                DataType::UInt32 => {
                    array.as_primitive::<UInt32Type>().unary(|value| i128::from(value).wrapping_mul(up))
                }
                DataType::Decimal128(..) => array
                    .as_primitive::<Decimal128Type>()
                    .unary::<_, Decimal128Type>(|value| value.wrapping_mul(up)),
                // A type of 256 bits whose digits fit 128.
                _ => array
                    .as_primitive::<Decimal256Type>()
                    .unary::<_, Decimal128Type>(|value| value.as_i128().wrapping_mul(up)),
            };
            let widened: PrimitiveArray<Decimal128Type> = widened;
            Arc::new(widened.with_precision_and_scale(*precision, *scale).map_err(|_| refuse())?)
        }
        (stored, DataType::Decimal256(precision, scale)) => {
            let step = u32::try_from(scale_step(stored, wanted)).map_err(|_| refuse())?;
            let up = i256::from_i128(10).pow_wrapping(step);
            let wide = |value: i128| i256::from_i128(value).wrapping_mul(up);
            let widened: PrimitiveArray<Decimal256Type> = match stored {
                DataType::Int64 => array.as_primitive::<Int64Type>().unary(|value| wide(value.into())),
                DataType::UInt64 => array.as_primitive::<UInt64Type>().unary(|value| wide(value.into())),
                DataType::UInt32 => array.as_primitive::<UInt32Type>().unary(|value| wide(value.into())),
                DataType::Decimal128(..) => array.as_primitive::<Decimal128Type>().unary(wide),
                _ => array.as_primitive::<Decimal256Type>().unary(|value| value.wrapping_mul(up)),
            };
            Arc::new(widened.with_precision_and_scale(*precision, *scale).map_err(|_| refuse())?)
        }
        _ => return Err(refuse()),
    })
}

/// Digits that a stored value gains after the point.
fn scale_step(stored: &DataType, wanted: &DataType) -> i32 {
    digits(wanted).map_or(0, |wanted| wanted.1) - digits(stored).map_or(0, |stored| stored.1)
}

fn finer<T: ArrowPrimitiveType<Native = i64>>(
    array: &ArrayRef,
    to: TimeUnit,
    factor: i64,
    wanted: &DataType,
) -> Result<ArrayRef, CodecError> {
    let times = array.as_primitive::<T>();
    let overflow = times.iter().position(|time| time.is_some_and(|time| time.checked_mul(factor).is_none()));
    if let Some(row) = overflow {
        let (value, stored) = (times.value(row), array.data_type().clone());
        return Err(CodecError::Overflow { row, value, stored, wanted: wanted.clone() });
    }
    let scaled = |time: i64| time.wrapping_mul(factor);
    Ok(match to {
        TimeUnit::Second | TimeUnit::Millisecond => {
            Arc::new(times.unary::<_, TimestampMillisecondType>(scaled))
        }
        TimeUnit::Microsecond => Arc::new(times.unary::<_, TimestampMicrosecondType>(scaled)),
        TimeUnit::Nanosecond => Arc::new(times.unary::<_, TimestampNanosecondType>(scaled)),
    })
}

#[cfg(test)]
mod tests {
    use arrow_array::{Decimal128Array, Int64Array, TimestampSecondArray, UInt64Array};

    use super::*;

    fn values(array: &ArrayRef, wanted: &DataType) -> String {
        match widen(array, wanted) {
            Ok(array) => {
                assert_eq!(array.data_type(), wanted);
                let row = |row| thalweg_types::Value::at(&array, row);
                format!("{:?}", (0..array.len()).map(row).collect::<Vec<_>>())
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn wider_types_keep_values_and_narrower_ones_are_refused() {
        let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(-7), None, Some(i64::MAX)]));
        let unsigned: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
        let cents: ArrayRef =
            Arc::new(Decimal128Array::from(vec![-125]).with_precision_and_scale(10, 2).unwrap());
        let late: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1, i64::MAX / 1000]));
        let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
        for (array, wanted, expected) in [
            (&ints, DataType::Float64, "[Float64(-7.0), Null, Float64(9.223372036854776e18)]"),
            (&ints, DataType::Decimal128(20, 1), "[Decimal(-70, 1), Null, Decimal(92233720368547758070, 1)]"),
            (
                &ints,
                DataType::Decimal128(19, 1),
                "column is stored as Int64 and cannot be read as Decimal128(19, 1)",
            ),
            (&ints, DataType::UInt64, "column is stored as Int64 and cannot be read as UInt64"),
            (&unsigned, DataType::Decimal256(20, 0), "[Decimal(18446744073709551615, 0)]"),
            (&unsigned, DataType::Int64, "column is stored as UInt64 and cannot be read as Int64"),
            (&cents, DataType::Decimal128(12, 3), "[Decimal(-1250, 3)]"),
            (&cents, DataType::Decimal256(40, 2), "[Decimal(-125, 2)]"),
            (
                &cents,
                DataType::Decimal128(10, 3),
                "column is stored as Decimal128(10, 2) and cannot be read as Decimal128(10, 3)",
            ),
            (&late, millis, "[Timestamp(1000, Milli), Timestamp(9223372036854775000, Milli)]"),
            (
                &late,
                DataType::Timestamp(TimeUnit::Microsecond, None),
                "value 9223372036854775 at row 1, stored as Timestamp(s), does not fit Timestamp(µs)",
            ),
        ] {
            assert_eq!(values(array, &wanted), expected);
        }
    }
}
