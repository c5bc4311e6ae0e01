//! Parts of timestamps, cuts, and counts since the epoch. UTC, a day is 86,400 seconds, weeks are ISO's.

use arrow_array::types::{
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array as _, ArrayRef, Int64Array, PrimitiveArray};
use arrow_schema::{DataType as Arrow, TimeUnit as ArrowUnit};
use thalweg_types::{civil_from_days, days_from_civil};

use super::column::{Column, arc, from_options};
use super::in_list::integers_of;
use crate::SqlError;
use crate::function::{Function, Part};

const DAY: i64 = 86_400;

/// Counts per second of a timestamp column.
pub(crate) fn per_second(array: &ArrayRef) -> i64 {
    match array.data_type() {
        Arrow::Timestamp(ArrowUnit::Second, _) => 1,
        Arrow::Timestamp(ArrowUnit::Millisecond, _) => 1_000,
        Arrow::Timestamp(ArrowUnit::Microsecond, _) => 1_000_000,
        Arrow::Timestamp(ArrowUnit::Nanosecond, _) => 1_000_000_000,
        other => unreachable!("{other} is no timestamp"),
    }
}

/// Maps the counts of the rows that are not null.
pub(crate) fn map_counts(array: &ArrayRef, f: impl Fn(i64) -> Option<i64>) -> Int64Array {
    let counts = integers_of(array);
    from_options::<Int64Type>(
        (0..counts.len()).map(|row| if array.is_null(row) { None } else { f(counts[row]) }),
    )
}

/// The same counts as a timestamp column of the type of `like`.
pub(crate) fn as_timestamps(counts: Int64Array, data_type: &Arrow) -> ArrayRef {
    fn retype<P: arrow_array::ArrowPrimitiveType<Native = i64>>(counts: Int64Array) -> ArrayRef {
        let (_, values, nulls) = counts.into_parts();
        arc(PrimitiveArray::<P>::new(values, nulls))
    }
    match data_type {
        Arrow::Timestamp(ArrowUnit::Second, _) => retype::<TimestampSecondType>(counts),
        Arrow::Timestamp(ArrowUnit::Millisecond, _) => retype::<TimestampMillisecondType>(counts),
        Arrow::Timestamp(ArrowUnit::Microsecond, _) => retype::<TimestampMicrosecondType>(counts),
        Arrow::Timestamp(ArrowUnit::Nanosecond, _) => retype::<TimestampNanosecondType>(counts),
        other => unreachable!("{other} is no timestamp"),
    }
}

pub(crate) fn extract(part: Part, a: &Column) -> Result<Column, SqlError> {
    let per_second = per_second(a.array());
    Ok(a.same_shape(arc(map_counts(a.array(), |count| Some(part_of(part, count, per_second))))))
}

fn part_of(part: Part, count: i64, per_second: i64) -> i64 {
    let seconds = count.div_euclid(per_second);
    let nanos_of_second = count.rem_euclid(per_second) * (1_000_000_000 / per_second);
    let days = seconds.div_euclid(DAY);
    let second_of_day = seconds.rem_euclid(DAY);
    // As in PostgreSQL, the small parts are counted from the start of the minute.
    let nanos_of_minute = second_of_day % 60 * 1_000_000_000 + nanos_of_second;
    let iso_day = (days + 3).rem_euclid(7) + 1;
    match part {
        Part::Nanosecond => nanos_of_minute,
        Part::Microsecond => nanos_of_minute / 1_000,
        Part::Millisecond => nanos_of_minute / 1_000_000,
        Part::Second => second_of_day % 60,
        Part::Minute => second_of_day / 60 % 60,
        Part::Hour => second_of_day / 3_600,
        Part::Epoch => seconds,
        Part::IsoDayOfWeek => iso_day,
        Part::DayOfWeek => iso_day % 7,
        Part::Day => i64::from(civil_from_days(days).2),
        Part::Month => i64::from(civil_from_days(days).1),
        Part::Quarter => i64::from(civil_from_days(days).1.div_ceil(3)),
        Part::Year => civil_from_days(days).0,
        Part::DayOfYear => days - days_from_civil(civil_from_days(days).0, 1, 1) + 1,
        Part::Week | Part::IsoYear => {
            // The week belongs to the year of its Thursday.
            let thursday = days - iso_day + 4;
            let year = civil_from_days(thursday).0;
            if part == Part::IsoYear { year } else { (thursday - days_from_civil(year, 1, 1)) / 7 + 1 }
        }
    }
}

pub(crate) fn truncate(part: Part, a: &Column) -> Result<Column, SqlError> {
    let array = a.array();
    let per_second = per_second(array);
    let counts = map_counts(array, |count| cut(part, count, per_second));
    Ok(a.same_shape(as_timestamps(counts, array.data_type())))
}

/// The largest start of a `part` at or before `count`; `None` where it does not fit.
fn cut(part: Part, count: i64, per_second: i64) -> Option<i64> {
    let multiple = |of: i64| count.checked_sub(count.rem_euclid(of));
    let from_days = |days: i64| days.checked_mul(DAY)?.checked_mul(per_second);
    let days = count.div_euclid(per_second).div_euclid(DAY);
    match part {
        Part::Nanosecond => Some(count),
        Part::Microsecond => multiple((per_second / 1_000_000).max(1)),
        Part::Millisecond => multiple((per_second / 1_000).max(1)),
        Part::Second => multiple(per_second),
        Part::Minute => multiple(60 * per_second),
        Part::Hour => multiple(3_600 * per_second),
        Part::Day => multiple(DAY * per_second),
        Part::Week => from_days(days - (days + 3).rem_euclid(7)),
        Part::Month => {
            let (year, month, _) = civil_from_days(days);
            from_days(days_from_civil(year, month, 1))
        }
        Part::Quarter => {
            let (year, month, _) = civil_from_days(days);
            from_days(days_from_civil(year, (month - 1) / 3 * 3 + 1, 1))
        }
        Part::Year => from_days(days_from_civil(civil_from_days(days).0, 1, 1)),
        Part::DayOfWeek | Part::IsoDayOfWeek | Part::DayOfYear | Part::IsoYear | Part::Epoch => {
            unreachable!("the binder cuts at no {}", part.name())
        }
    }
}

/// Counts since 1970 in the function's unit, rounded down; null where they do not fit.
pub(crate) fn epoch(function: Function, a: &Column) -> Result<Column, SqlError> {
    let from = per_second(a.array());
    let to: i64 = match function {
        Function::EpochMs => 1_000,
        Function::EpochUs => 1_000_000,
        Function::EpochNs => 1_000_000_000,
        _ => 1,
    };
    Ok(a.same_shape(arc(map_counts(a.array(), |count| rescale(count, from, to)))))
}

/// A count of one unit as a count of another; coarser ones round down.
pub(crate) fn rescale(count: i64, from: i64, to: i64) -> Option<i64> {
    if to >= from { count.checked_mul(to / from) } else { Some(count.div_euclid(from / to)) }
}
