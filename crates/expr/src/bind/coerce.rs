//! Literals that take the type they meet, and casts.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{
    Array as _, ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, Float64Array, Int64Array, StringViewArray, UInt64Array, new_null_array,
};
use arrow_buffer::i256;
use thalweg_types::{DataType, TimeUnit, parse_timestamp};

use super::{fold, types};
use crate::SqlError;
use crate::bound::{Op, Typed};
use crate::eval::cast::timestamp_array;
use crate::parse::timestamp_error;

/// A bound node whose type may still bend because it is a literal.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// What it is if nothing bends it; of a NULL, a placeholder that is never used.
    pub(crate) typed: Typed,
    pub(crate) literal: Option<Literal>,
    pub(crate) span: Range<usize>,
}

#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Null,
    /// Has no type because of a mistake that has been reported: a NULL whose type is not asked for.
    Unknown,
    Integer(i128),
    /// `digits / 10^scale`, and the nearest float.
    Decimal {
        digits: i256,
        scale: i8,
        float: f64,
    },
    Float(f64),
    String(String),
    /// Nanoseconds since the epoch.
    Timestamp(i128),
}

impl Literal {
    /// A number as it was written; one without an exact form that we keep is a float.
    pub(crate) fn number(text: &str) -> Self {
        let float = || Literal::Float(text.parse().unwrap_or(f64::NAN));
        if text.contains('e') {
            return float();
        }
        if !text.contains('.') {
            return text.parse::<i128>().map_or_else(|_| float(), Literal::Integer);
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{whole}{fraction}");
        let significant = digits.trim_start_matches('0').len();
        if significant > usize::from(types::MAX_PRECISION)
            || fraction.len() > usize::from(types::MAX_PRECISION)
        {
            return float();
        }
        let scale = i8::try_from(fraction.len()).expect("at most 76");
        match i256::from_string(if significant == 0 { "0" } else { &digits }) {
            Some(digits) => Literal::Decimal { digits, scale, float: text.parse().unwrap_or(f64::NAN) },
            None => float(),
        }
    }

    pub(crate) fn negated(&self) -> Option<Self> {
        match self {
            Literal::Null => Some(Literal::Null),
            Literal::Unknown => Some(Literal::Unknown),
            Literal::Integer(value) => Some(Literal::Integer(-value)),
            Literal::Decimal { digits, scale, float } => {
                Some(Literal::Decimal { digits: digits.checked_neg()?, scale: *scale, float: -float })
            }
            Literal::Float(value) => Some(Literal::Float(-value)),
            Literal::String(_) | Literal::Timestamp(_) => None,
        }
    }

    /// Its type by itself.
    pub(crate) fn natural_type(&self) -> DataType {
        match self {
            Literal::Null | Literal::Unknown => DataType::Bool,
            Literal::Integer(value) if i64::try_from(*value).is_ok() => DataType::Int64,
            Literal::Integer(value) if u64::try_from(*value).is_ok() => DataType::UInt64,
            Literal::Integer(value) => types::decimal(count_digits(i256::from_i128(*value)), 0),
            Literal::Decimal { .. } | Literal::Float(_) => DataType::Float64,
            Literal::String(_) => DataType::String,
            Literal::Timestamp(nanos) => DataType::Timestamp(types::natural_unit(*nanos)),
        }
    }

    /// Its type with a decimal.
    pub(crate) fn decimal_type(&self) -> Option<DataType> {
        match self {
            Literal::Integer(value) => Some(types::decimal(count_digits(i256::from_i128(*value)), 0)),
            Literal::Decimal { digits, scale, .. } => {
                Some(types::decimal(count_digits(*digits).max(i32::from(*scale)), *scale))
            }
            _ => None,
        }
    }

    /// One row of `to`; `None` where it has no such value.
    fn array(&self, to: &DataType) -> Option<ArrayRef> {
        Some(match (self, to) {
            (Literal::Null | Literal::Unknown, _) => new_null_array(&to.to_arrow(), 1),
            (Literal::Integer(value), DataType::Int64) => {
                Arc::new(Int64Array::from(vec![i64::try_from(*value).ok()?]))
            }
            (Literal::Integer(value), DataType::UInt64) => {
                Arc::new(UInt64Array::from(vec![u64::try_from(*value).ok()?]))
            }
            (Literal::Integer(value), DataType::Float64) => Arc::new(Float64Array::from(vec![*value as f64])),
            (Literal::Decimal { float, .. } | Literal::Float(float), DataType::Float64) => {
                Arc::new(Float64Array::from(vec![*float]))
            }
            (Literal::Integer(value), DataType::Decimal { precision, scale }) => {
                decimal_constant(i256::from_i128(*value), 0, *precision, *scale)?
            }
            (Literal::Decimal { digits, scale: from, .. }, DataType::Decimal { precision, scale }) => {
                decimal_constant(*digits, *from, *precision, *scale)?
            }
            (Literal::String(text), DataType::String) => Arc::new(StringViewArray::from(vec![text.as_str()])),
            (Literal::String(text), DataType::Bytes) => {
                Arc::new(BinaryViewArray::from(vec![text.as_bytes()]))
            }
            (Literal::String(text), DataType::Timestamp(unit)) => {
                timestamp_array(*unit, exact_count(parse_timestamp(text)?, *unit)?)
            }
            (Literal::Timestamp(nanos), DataType::Timestamp(unit)) => {
                timestamp_array(*unit, exact_count(*nanos, *unit)?)
            }
            (Literal::String(text), DataType::Ip) => {
                let ip = thalweg_types::parse_ip(text)?;
                Arc::new(FixedSizeBinaryArray::try_from_iter(std::iter::once(ip)).ok()?)
            }
            _ => return None,
        })
    }
}

/// Nanoseconds as a count of `unit`, where that is exact and fits.
fn exact_count(nanos: i128, unit: TimeUnit) -> Option<i64> {
    let size = i128::from(1_000_000_000 / types::per_second(unit));
    if nanos % size == 0 { i64::try_from(nanos / size).ok() } else { None }
}

fn count_digits(value: i256) -> i32 {
    let text = value.to_string();
    i32::try_from(text.trim_start_matches('-').len()).expect("at most 77 digits")
}

fn decimal_constant(digits: i256, from: i8, precision: u8, scale: i8) -> Option<ArrayRef> {
    let shift = u32::try_from(scale.checked_sub(from)?).ok()?;
    let digits = digits.checked_mul(i256::from_i128(10).checked_pow(shift)?)?;
    if count_digits(digits) > i32::from(precision) {
        return None;
    }
    Some(if precision <= 38 {
        let array = Decimal128Array::from(vec![digits.to_i128()?]);
        Arc::new(array.with_precision_and_scale(precision, scale).ok()?)
    } else {
        let array = Decimal256Array::from(vec![digits]);
        Arc::new(array.with_precision_and_scale(precision, scale).ok()?)
    })
}

pub(crate) fn bool_constant(value: bool) -> Typed {
    let array: ArrayRef = Arc::new(BooleanArray::from(vec![value]));
    Typed { op: Op::Constant(array), data_type: DataType::Bool, nullable: false }
}

pub(crate) fn untyped_null(span: Range<usize>) -> SqlError {
    SqlError::new("this NULL has no type").at(span).hint("write CAST(NULL AS float64), or another type")
}

impl Draft {
    pub(crate) fn literal(literal: Literal, span: Range<usize>) -> Self {
        let data_type = literal.natural_type();
        let array = literal.array(&data_type).unwrap_or_else(|| new_null_array(&data_type.to_arrow(), 1));
        let nullable = array.is_null(0);
        Self { typed: Typed { op: Op::Constant(array), data_type, nullable }, literal: Some(literal), span }
    }

    /// The replacement of a node with a mistake in it: of the type that it has in any case, or of none.
    pub(crate) fn mistaken(data_type: Option<DataType>, span: Range<usize>) -> Self {
        let Some(data_type) = data_type else { return Self::literal(Literal::Unknown, span) };
        Self { typed: Typed::placeholder(data_type), literal: None, span }
    }

    /// Whether it goes with every type: NULL, and what a mistake left without one.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.literal, Some(Literal::Null | Literal::Unknown))
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.literal, Some(Literal::Unknown))
    }

    /// Its type as it is.
    pub(crate) fn data_type(&self) -> &DataType {
        &self.typed.data_type
    }

    /// The node as it is.
    pub(crate) fn settle(self) -> Result<Typed, SqlError> {
        match self.literal {
            Some(Literal::Null) => Err(untyped_null(self.span)),
            _ => Ok(self.typed),
        }
    }

    /// The node in another type that it may take without being asked: literals bend, numbers and units widen.
    pub(crate) fn coerce(self, to: &DataType) -> Result<Typed, SqlError> {
        if let Some(literal) = &self.literal {
            if let Some(array) = literal.array(to) {
                let nullable = array.is_null(0);
                return Ok(Typed { op: Op::Constant(array), data_type: to.clone(), nullable });
            }
            return Err(match (literal, to) {
                (Literal::String(text), DataType::Timestamp(_)) if parse_timestamp(text).is_none() => {
                    timestamp_error(text)
                }
                (Literal::String(text), DataType::Ip) => SqlError::new(format!("{text:?} is no address"))
                    .expected("such as '10.0.0.1' or '2001:db8::1'"),
                (Literal::String(_), to) if to.is_numeric() => {
                    SqlError::new(format!("{to} is expected, not a text"))
                        .hint("numbers are written without quotes")
                }
                (Literal::String(_) | Literal::Timestamp(_), DataType::Timestamp(_)) => {
                    SqlError::new(format!("this time does not fit {to}"))
                }
                (literal, to) => SqlError::new(format!("{} cannot be {to}", literal.natural_type())),
            }
            .at(self.span));
        }
        if self.typed.data_type == *to {
            return Ok(self.typed);
        }
        let widens = (self.typed.data_type.is_numeric() && to.is_numeric())
            || matches!((&self.typed.data_type, to), (DataType::Timestamp(_), DataType::Timestamp(_)));
        if !widens {
            return Err(
                SqlError::new(format!("{to} is expected, not {}", self.typed.data_type)).at(self.span)
            );
        }
        cast(self.typed, to)
    }

    /// The node as a decimal with the digits that it has itself.
    pub(crate) fn own_decimal(self) -> Result<Typed, SqlError> {
        let to = match (&self.literal, self.data_type()) {
            (Some(Literal::Null | Literal::Unknown), _) => types::decimal(1, 0),
            (Some(literal), other) => literal.decimal_type().unwrap_or_else(|| other.clone()),
            (None, DataType::Int64) => types::decimal(19, 0),
            (None, DataType::UInt64) => types::decimal(20, 0),
            (None, other) => other.clone(),
        };
        self.coerce(&to)
    }

    pub(crate) fn expect_bool(self, place: &str) -> Result<Typed, SqlError> {
        if self.is_null() || *self.data_type() == DataType::Bool {
            return self.coerce(&DataType::Bool);
        }
        let data_type = self.data_type();
        let error = SqlError::new(format!("{place} takes a condition, not {data_type}"))
            .at(self.span.clone())
            .expected("bool");
        Err(if data_type.is_numeric() { error.hint("compare the number: x <> 0") } else { error })
    }

    pub(crate) fn expect_text(self, place: &str) -> Result<Typed, SqlError> {
        if self.is_null() || *self.data_type() == DataType::String {
            return self.coerce(&DataType::String);
        }
        Err(SqlError::new(format!("{place} takes a string, not {}", self.data_type()))
            .at(self.span)
            .hint("CAST(x AS string) makes it one"))
    }

    pub(crate) fn expect_timestamp(self, place: &str) -> Result<Typed, SqlError> {
        match (&self.literal, self.data_type()) {
            (Some(Literal::Null | Literal::Unknown), _) => self.coerce(&DataType::Timestamp(TimeUnit::Micro)),
            (Some(Literal::String(text)), _) => match parse_timestamp(text) {
                Some(nanos) => Draft::literal(Literal::Timestamp(nanos), self.span).settle(),
                None => Err(timestamp_error(text).at(self.span)),
            },
            (_, DataType::Timestamp(_)) => self.settle(),
            (_, other) => Err(SqlError::new(format!("{place} takes a timestamp, not {other}"))
                .at(self.span.clone())
                .hint("CAST(x AS timestamp(ms)) reads milliseconds since 1970 from an int64, or a text")),
        }
    }

    /// The node as text, by a cast where it is something else.
    pub(crate) fn into_text(self) -> Result<Typed, SqlError> {
        if self.is_null() {
            return self.coerce(&DataType::String);
        }
        explicit_cast(self, &DataType::String)
    }
}

/// `CAST`: a value without a counterpart in `to` becomes null.
pub(crate) fn explicit_cast(draft: Draft, to: &DataType) -> Result<Typed, SqlError> {
    let span = draft.span.clone();
    let typed = match (&draft.literal, to) {
        (Some(Literal::Null | Literal::Unknown), _) => return draft.coerce(to),
        (Some(Literal::Decimal { .. }), DataType::Decimal { .. } | DataType::String) => {
            draft.own_decimal()?
        }
        _ => draft.settle()?,
    };
    if !castable(&typed.data_type, to) {
        return Err(SqlError::new(format!("{} cannot be cast to {to}", typed.data_type)).at(span));
    }
    cast(typed, to)
}

fn cast(typed: Typed, to: &DataType) -> Result<Typed, SqlError> {
    if typed.data_type == *to {
        return Ok(typed);
    }
    // A timestamp outside the range of microseconds has no text; text and bytes may hold anything.
    let never_fails = match (&typed.data_type, to) {
        (DataType::String, to) => *to == DataType::Bytes,
        (DataType::Bytes | DataType::Timestamp(TimeUnit::Second | TimeUnit::Milli), _) => false,
        (_, to) => matches!(to, DataType::String | DataType::Float64),
    };
    let nullable = typed.nullable || !never_fails;
    fold(Typed { op: Op::Cast(Box::new(typed)), data_type: to.clone(), nullable })
}

fn castable(from: &DataType, to: &DataType) -> bool {
    use DataType::{Bool, Bytes, Int64, Ip, List, String, Struct, Timestamp, UInt64};
    match (from, to) {
        (List(_) | Struct(_), _) | (_, List(_) | Struct(_)) => from == to,
        (from, to) if from == to => true,
        (String, _) | (_, String) => true,
        (Bytes, _) | (_, Bytes) | (Ip, _) | (_, Ip) => false,
        (Bool, Int64 | UInt64) | (Int64 | UInt64, Bool) => true,
        (Bool, _) | (_, Bool) => false,
        (Timestamp(_), Timestamp(_) | Int64) | (Int64, Timestamp(_)) => true,
        (Timestamp(_), _) | (_, Timestamp(_)) => false,
        _ => true,
    }
}

/// A LIKE pattern with its own escape character, written with the backslash that kernels know.
pub(crate) fn unescape_pattern(pattern: &Typed, escape: char) -> Option<Typed> {
    let constant = pattern.constant()?;
    if constant.is_null(0) || escape == '\\' {
        return Some(pattern.clone());
    }
    let mut out = String::new();
    let text = constant.as_string_view().value(0);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == escape {
            if let Some(next) = chars.next() {
                out.push('\\');
                out.push(next);
            } else {
                out.push(escape);
            }
        } else if c == '\\' {
            out.push_str("\\\\");
        } else {
            out.push(c);
        }
    }
    let array: ArrayRef = Arc::new(StringViewArray::from(vec![out.as_str()]));
    Some(Typed { op: Op::Constant(array), data_type: DataType::String, nullable: false })
}
