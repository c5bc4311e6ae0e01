//! Which type two types meet in.
//!
//! | | int64 | uint64 | float64 | decimal(p,s) |
//! |---|---|---|---|---|
//! | **int64** | int64 | int64, compared as decimal(20,0) | float64 | as decimal(19,0) |
//! | **uint64** | | uint64 | float64 | as decimal(20,0) |
//! | **float64** | | | float64 | float64 |
//!
//! Decimals: `+ -` keep every digit and add one before the point, `*` adds precisions and scales, `/` keeps four
//! more digits than the longer scale and rounds half away from zero, `%` has the longer scale. Precision stops
//! at 76 digits; a value that needs more is null.

use thalweg_types::{DataType, TimeUnit};

use super::coerce::{Draft, Literal};
use crate::SqlError;
use crate::ast::ArithmeticOp;

/// Most digits of a decimal.
pub(crate) const MAX_PRECISION: u8 = 76;

/// What int64 and uint64 meet in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mixed {
    /// int64, where values that do not fit are null: arithmetic and results.
    Int64,
    /// A decimal that holds both: comparisons.
    Exact,
}

/// The type that all drafts can take, literals bending first; `None` if there is none or all are NULL.
pub(crate) fn common(drafts: &[&Draft], mixed: Mixed) -> Option<DataType> {
    let mut common: Option<DataType> = None;
    for draft in drafts.iter().filter(|draft| draft.literal.is_none()) {
        common = Some(match common {
            None => draft.typed.data_type.clone(),
            Some(so_far) => meet(&so_far, &draft.typed.data_type, mixed)?,
        });
    }
    for literal in drafts.iter().filter_map(|draft| draft.literal.as_ref()) {
        common = match (literal, common) {
            (Literal::Null | Literal::Unknown, so_far) => so_far,
            (literal, None) => Some(literal.natural_type()),
            (literal, Some(so_far)) => Some(bend(literal, so_far, mixed)?),
        };
    }
    common
}

/// The type in which a literal goes with values of type `with`.
fn bend(literal: &Literal, with: DataType, mixed: Mixed) -> Option<DataType> {
    match (literal, &with) {
        (Literal::Integer(value), DataType::UInt64) if u64::try_from(*value).is_ok() => Some(with),
        (Literal::Integer(_) | Literal::Decimal { .. }, DataType::Decimal { .. }) => {
            meet(&with, &literal.decimal_type()?, mixed)
        }
        (Literal::String(_), DataType::Ip | DataType::Bytes) => Some(with),
        (Literal::String(text), DataType::Timestamp(unit)) => {
            // A text that is no timestamp keeps the unit; coercion names the place.
            let finer =
                thalweg_types::parse_timestamp(text).map_or(*unit, |nanos| finer(*unit, natural_unit(nanos)));
            Some(DataType::Timestamp(finer))
        }
        _ => meet(&with, &literal.natural_type(), mixed),
    }
}

fn meet(a: &DataType, b: &DataType, mixed: Mixed) -> Option<DataType> {
    use DataType::{Decimal, Float64, Int64, Timestamp, UInt64};
    match (a, b) {
        (a, b) if a == b => Some(a.clone()),
        (Int64, UInt64) | (UInt64, Int64) => Some(match mixed {
            Mixed::Int64 => Int64,
            Mixed::Exact => Decimal { precision: 20, scale: 0 },
        }),
        (Float64, other) | (other, Float64) if other.is_numeric() => Some(Float64),
        (Decimal { .. }, other) | (other, Decimal { .. }) if other.is_numeric() => {
            Some(common_decimal(as_decimal(a)?, as_decimal(b)?))
        }
        (Timestamp(a), Timestamp(b)) => Some(Timestamp(finer(*a, *b))),
        _ => None,
    }
}

/// Precision and scale of a decimal or an integer.
fn as_decimal(data_type: &DataType) -> Option<(u8, i8)> {
    match data_type {
        DataType::Decimal { precision, scale } => Some((*precision, *scale)),
        DataType::Int64 => Some((19, 0)),
        DataType::UInt64 => Some((20, 0)),
        _ => None,
    }
}

pub(crate) fn decimal(precision: i32, scale: i8) -> DataType {
    let precision = u8::try_from(precision.clamp(1, i32::from(MAX_PRECISION))).expect("clamped");
    DataType::Decimal { precision, scale }
}

fn common_decimal((p1, s1): (u8, i8), (p2, s2): (u8, i8)) -> DataType {
    let scale = s1.max(s2);
    let whole = (i32::from(p1) - i32::from(s1)).max(i32::from(p2) - i32::from(s2));
    decimal(whole + i32::from(scale), scale)
}

/// The type of `a op b` for decimals; `None` where the scale leaves no room.
pub(crate) fn decimal_result(op: ArithmeticOp, a: &DataType, b: &DataType) -> Option<DataType> {
    let ((p1, s1), (p2, s2)) = (as_decimal(a)?, as_decimal(b)?);
    let (whole1, whole2) = (i32::from(p1) - i32::from(s1), i32::from(p2) - i32::from(s2));
    let longer = s1.max(s2);
    let (whole, scale) = match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract => (whole1.max(whole2) + 1, longer),
        ArithmeticOp::Multiply => (whole1 + whole2, s1.checked_add(s2)?),
        ArithmeticOp::Divide => (whole1 + i32::from(s2), longer.checked_add(4)?),
        ArithmeticOp::Remainder => (whole1.min(whole2), longer),
    };
    let max = i8::try_from(MAX_PRECISION).expect("76 fits");
    (scale <= max).then(|| decimal(whole.max(0) + i32::from(scale), scale))
}

pub(crate) fn too_wide(op: ArithmeticOp, a: &DataType, b: &DataType) -> SqlError {
    SqlError::new(format!("{a} {} {b} has more than {MAX_PRECISION} digits after the point", op.symbol()))
        .hint("CAST one side to a decimal with a smaller scale")
}

pub(crate) fn finer(a: TimeUnit, b: TimeUnit) -> TimeUnit {
    if per_second(a) >= per_second(b) { a } else { b }
}

/// Counts of the unit in a second.
pub(crate) fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Milli => 1_000,
        TimeUnit::Micro => 1_000_000,
        TimeUnit::Nano => 1_000_000_000,
    }
}

/// The coarsest unit that holds the time exactly.
pub(crate) fn natural_unit(nanos: i128) -> TimeUnit {
    [TimeUnit::Second, TimeUnit::Milli, TimeUnit::Micro]
        .into_iter()
        .find(|unit| nanos % i128::from(1_000_000_000 / per_second(*unit)) == 0)
        .unwrap_or(TimeUnit::Nano)
}
