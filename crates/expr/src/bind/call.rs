//! Signatures of the scalar functions.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, Float64Array, Int64Array};
use thalweg_types::DataType;

use super::coerce::{Draft, Literal};
use super::{compare, fold, same_type, types};
use crate::SqlError;
use crate::ast::CompareOp;
use crate::bound::{Op, Take, Typed};
use crate::eval::regexp::Regexp;
use crate::function::{Function, Part};
use crate::mistakes::{SqlErrors, all};

/// How many arguments a function takes, and how it is written.
pub(crate) fn signature(function: Function) -> (usize, usize, &'static str) {
    match function {
        Function::Abs => (1, 1, "ABS(number)"),
        Function::Acos => (1, 1, "ACOS(number)"),
        Function::Asin => (1, 1, "ASIN(number)"),
        Function::Atan => (1, 1, "ATAN(number)"),
        Function::Atan2 => (2, 2, "ATAN2(y, x)"),
        Function::Ceil => (1, 1, "CEIL(number)"),
        Function::Coalesce => (1, usize::MAX, "COALESCE(x, y, …)"),
        Function::Concat => (1, usize::MAX, "CONCAT(x, y, …)"),
        Function::Contains => (2, 2, "CONTAINS(text, wanted)"),
        Function::Cos => (1, 1, "COS(radians)"),
        Function::DateTrunc => (2, 2, "DATE_TRUNC('hour', timestamp)"),
        Function::Degrees => (1, 1, "DEGREES(radians)"),
        Function::EndsWith => (2, 2, "ENDS_WITH(text, end)"),
        Function::Epoch => (1, 1, "EPOCH(timestamp)"),
        Function::EpochMs => (1, 1, "EPOCH_MS(timestamp)"),
        Function::EpochNs => (1, 1, "EPOCH_NS(timestamp)"),
        Function::EpochUs => (1, 1, "EPOCH_US(timestamp)"),
        Function::Exp => (1, 1, "EXP(number)"),
        Function::Floor => (1, 1, "FLOOR(number)"),
        Function::Greatest => (1, usize::MAX, "GREATEST(x, y, …)"),
        Function::Haversine => (4, 4, "HAVERSINE(lat1, lon1, lat2, lon2)"),
        Function::If => (3, 3, "IF(condition, then, else)"),
        Function::IsFinite => (1, 1, "ISFINITE(number)"),
        Function::IsInf => (1, 1, "ISINF(number)"),
        Function::IsNan => (1, 1, "ISNAN(number)"),
        Function::Least => (1, usize::MAX, "LEAST(x, y, …)"),
        Function::Left => (2, 2, "LEFT(text, count)"),
        Function::Length => (1, 1, "LENGTH(text)"),
        Function::Ln => (1, 1, "LN(number)"),
        Function::Log10 => (1, 1, "LOG10(number)"),
        Function::Lower => (1, 1, "LOWER(text)"),
        Function::LeftTrim => (1, 2, "LTRIM(text[, characters])"),
        Function::NullIf => (2, 2, "NULLIF(x, y)"),
        Function::Pi => (0, 0, "PI()"),
        Function::Power => (2, 2, "POWER(number, exponent)"),
        Function::Radians => (1, 1, "RADIANS(degrees)"),
        Function::RegexpExtract => (2, 3, "REGEXP_EXTRACT(text, 'pattern'[, group])"),
        Function::RegexpLike => (2, 2, "REGEXP_LIKE(text, 'pattern')"),
        Function::Remainder => (2, 2, "MOD(number, divisor)"),
        Function::Replace => (3, 3, "REPLACE(text, from, to)"),
        Function::Right => (2, 2, "RIGHT(text, count)"),
        Function::Round => (1, 2, "ROUND(number[, digits])"),
        Function::RightTrim => (1, 2, "RTRIM(text[, characters])"),
        Function::Sign => (1, 1, "SIGN(number)"),
        Function::Sin => (1, 1, "SIN(radians)"),
        Function::SplitPart => (3, 3, "SPLIT_PART(text, delimiter, number)"),
        Function::Sqrt => (1, 1, "SQRT(number)"),
        Function::StartsWith => (2, 2, "STARTS_WITH(text, start)"),
        Function::StrPos => (2, 2, "STRPOS(text, wanted)"),
        Function::Substring => (2, 3, "SUBSTR(text, from[, count])"),
        Function::Tan => (1, 1, "TAN(radians)"),
        Function::Trim => (1, 2, "TRIM(text[, characters])"),
        Function::Upper => (1, 1, "UPPER(text)"),
    }
}

/// The type of the function's value, where its arguments do not decide it.
pub(super) fn fixed_type(function: Function) -> Option<DataType> {
    Some(match function {
        Function::Concat
        | Function::Left
        | Function::LeftTrim
        | Function::Lower
        | Function::RegexpExtract
        | Function::Replace
        | Function::Right
        | Function::RightTrim
        | Function::SplitPart
        | Function::Substring
        | Function::Trim
        | Function::Upper => DataType::String,
        Function::Contains
        | Function::EndsWith
        | Function::IsFinite
        | Function::IsInf
        | Function::IsNan
        | Function::RegexpLike
        | Function::StartsWith => DataType::Bool,
        Function::Epoch
        | Function::EpochMs
        | Function::EpochNs
        | Function::EpochUs
        | Function::Length
        | Function::StrPos => DataType::Int64,
        Function::Acos
        | Function::Asin
        | Function::Atan
        | Function::Atan2
        | Function::Cos
        | Function::Degrees
        | Function::Exp
        | Function::Haversine
        | Function::Ln
        | Function::Log10
        | Function::Pi
        | Function::Power
        | Function::Radians
        | Function::Sin
        | Function::Sqrt
        | Function::Tan => DataType::Float64,
        Function::Abs
        | Function::Ceil
        | Function::Coalesce
        | Function::DateTrunc
        | Function::Floor
        | Function::Greatest
        | Function::If
        | Function::Least
        | Function::NullIf
        | Function::Remainder
        | Function::Round
        | Function::Sign => return None,
    })
}

pub(super) fn bind(
    function: Function,
    mut args: Vec<Draft>,
    span: &Range<usize>,
) -> Result<Typed, SqlErrors> {
    let (least, most, shape) = signature(function);
    if args.len() < least || args.len() > most {
        let error = SqlError::new(format!("{} does not take {}", function.name(), counted(args.len())));
        return Err(error.at(span.clone()).expected(shape).into());
    }
    let name = function.name();
    match function {
        Function::Abs | Function::Ceil | Function::Floor | Function::Sign => {
            Ok(number(function, args.remove(0), shape)?)
        }
        Function::Round => Ok(round(args, shape)?),
        Function::Pi => Ok(Typed {
            op: Op::Constant(Arc::new(Float64Array::from(vec![std::f64::consts::PI]))),
            data_type: DataType::Float64,
            nullable: false,
        }),
        Function::Acos
        | Function::Asin
        | Function::Atan
        | Function::Atan2
        | Function::Cos
        | Function::Degrees
        | Function::Exp
        | Function::Haversine
        | Function::Ln
        | Function::Log10
        | Function::Power
        | Function::Radians
        | Function::Sin
        | Function::Sqrt
        | Function::Tan => {
            let args = floats(args, shape)?;
            Ok(call(function, args, DataType::Float64))
        }
        Function::IsNan | Function::IsInf | Function::IsFinite => {
            let args = floats(args, shape)?;
            Ok(call(function, args, DataType::Bool))
        }
        Function::Lower | Function::Upper | Function::Trim | Function::LeftTrim | Function::RightTrim => {
            Ok(call(function, texts(args, name)?, DataType::String))
        }
        // It may be too long.
        Function::Replace => {
            Ok(Typed { nullable: true, ..call(function, texts(args, name)?, DataType::String) })
        }
        Function::StartsWith | Function::EndsWith | Function::Contains => {
            Ok(call(function, texts(args, name)?, DataType::Bool))
        }
        Function::StrPos => Ok(call(function, texts(args, name)?, DataType::Int64)),
        Function::Length if *args[0].data_type() == DataType::Bytes => {
            Ok(call(function, vec![args.remove(0).settle()?], DataType::Int64))
        }
        Function::Length => Ok(call(function, texts(args, name)?, DataType::Int64)),
        Function::Substring | Function::Left | Function::Right => {
            let text = args.remove(0).expect_text(name);
            let places = args.into_iter().map(|place| expect_place(place, name, shape));
            Ok(call(function, all(std::iter::once(text).chain(places))?, DataType::String))
        }
        Function::SplitPart => {
            let number = expect_place(args.remove(2), name, shape);
            let texts = args.into_iter().map(|arg| arg.expect_text(name));
            let typed = call(function, all(texts.chain([number]))?, DataType::String);
            // There is no part 0.
            Ok(Typed { nullable: true, ..typed })
        }
        Function::RegexpExtract => Ok(regexp_extract(args, shape)?),
        Function::RegexpLike => {
            Err(SqlError::new("REGEXP_LIKE takes two arguments").at(span.clone()).expected(shape).into())
        }
        Function::Concat => {
            let args = all(args.into_iter().map(Draft::into_text))?;
            // It may be too long.
            Ok(Typed { op: Op::Call(function, args), data_type: DataType::String, nullable: true })
        }
        Function::DateTrunc => Ok(truncate(args, shape)?),
        Function::Epoch | Function::EpochMs | Function::EpochUs | Function::EpochNs => {
            let arg = args.remove(0).expect_timestamp(name)?;
            let typed = call(function, vec![arg], DataType::Int64);
            Ok(Typed { nullable: typed.nullable || function != Function::Epoch, ..typed })
        }
        Function::Coalesce => {
            let args = same_type(args, name, span)?;
            let nullable = args.iter().all(|arg| arg.nullable);
            Ok(Typed { nullable, ..call_of_first(function, args) })
        }
        Function::Greatest | Function::Least => {
            let args = same_type(args, name, span)?;
            if matches!(args[0].data_type, DataType::List(_) | DataType::Struct(_)) {
                let error = SqlError::new(format!("{name} cannot compare {}", args[0].data_type));
                return Err(error.at(span.clone()).into());
            }
            let nullable = args.iter().all(|arg| arg.nullable);
            Ok(Typed { nullable, ..call_of_first(function, args) })
        }
        Function::NullIf => {
            let b = args.pop().expect("two arguments");
            let a = args.pop().expect("two arguments");
            let equal = fold(compare(CompareOp::Equal, a.clone(), b, span)?)?;
            let typed = call_of_first(function, vec![a.settle()?, equal]);
            Ok(Typed { nullable: true, ..typed })
        }
        Function::If => {
            let condition = args.remove(0).expect_bool(name).map(|condition| vec![condition]);
            let parts = all([condition.map_err(SqlErrors::from), same_type(args, name, span)])?;
            let [condition, mut results]: [Vec<Typed>; 2] = parts.try_into().expect("two parts");
            let condition = condition.into_iter().next().expect("one condition");
            let otherwise = results.pop().expect("two results");
            let then = results.pop().expect("two results");
            let nullable = then.nullable || otherwise.nullable;
            let data_type = then.data_type.clone();
            Ok(Typed {
                op: Op::Case { branches: vec![(condition, then)], otherwise: Box::new(otherwise) },
                data_type,
                nullable,
            })
        }
        Function::Remainder => {
            Err(SqlError::new("MOD takes two arguments").at(span.clone()).expected(shape).into())
        }
    }
}

fn counted(arguments: usize) -> String {
    format!("{arguments} argument{}", if arguments == 1 { "" } else { "s" })
}

/// A call that is null where an argument is.
fn call(function: Function, args: Vec<Typed>, data_type: DataType) -> Typed {
    let nullable = args.iter().any(|arg| arg.nullable);
    Typed { op: Op::Call(function, args), data_type, nullable }
}

fn call_of_first(function: Function, args: Vec<Typed>) -> Typed {
    let data_type = args[0].data_type.clone();
    call(function, args, data_type)
}

fn texts(args: Vec<Draft>, name: &str) -> Result<Vec<Typed>, SqlErrors> {
    all(args.into_iter().map(|arg| arg.expect_text(name)))
}

fn floats(args: Vec<Draft>, shape: &str) -> Result<Vec<Typed>, SqlErrors> {
    all(args.into_iter().map(|arg| expect_number(arg, shape)?.coerce(&DataType::Float64)))
}

fn expect_place(arg: Draft, name: &str, shape: &str) -> Result<Typed, SqlError> {
    if !arg.is_null() && *arg.data_type() != DataType::Int64 {
        return Err(SqlError::new(format!("{name} counts in int64, not {}", arg.data_type()))
            .at(arg.span)
            .expected(shape));
    }
    arg.coerce(&DataType::Int64)
}

/// The group is constant, so that one that the pattern has not is reported at once.
fn regexp_extract(mut args: Vec<Draft>, shape: &str) -> Result<Typed, SqlErrors> {
    let group = match args.get(2).map(|group| (&group.literal, group.span.clone())) {
        None => (0, 0..0),
        Some((Some(Literal::Integer(group)), span)) => (usize::try_from(*group).unwrap_or(usize::MAX), span),
        Some((Some(Literal::Unknown), span)) => (0, span),
        Some((_, span)) => {
            let error = SqlError::new("the group of REGEXP_EXTRACT is a constant number").at(span);
            return Err(error.expected(shape).into());
        }
    };
    let pattern = args.remove(1);
    let span = pattern.span.clone();
    let texts = all([args.remove(0), pattern].map(|arg| arg.expect_text("REGEXP_EXTRACT")))?;
    let [expr, pattern]: [Typed; 2] = texts.try_into().expect("two texts");
    let read = regexp(&pattern, false, span)?;
    if let Some(read) = &read
        && group.0 >= read.groups()
    {
        let error = SqlError::new(format!("the pattern has no group {}", group.0)).at(group.1);
        return Err(error.expected(format!("0 for all of it{}", read.groups_expected())).into());
    }
    let (expr, pattern) = (Box::new(expr), Box::new(pattern));
    let op = Op::Match { expr, pattern, read, take: Take::Group(group.0) };
    Ok(Typed { op, data_type: DataType::String, nullable: true })
}

/// A regular expression, which is read now; `None` for null.
pub(super) fn regexp(
    pattern: &Typed,
    fold_case: bool,
    span: Range<usize>,
) -> Result<Option<Arc<Regexp>>, SqlError> {
    let Some(constant) = pattern.constant() else {
        return Err(SqlError::new("a regular expression is a constant text")
            .at(span)
            .hint("LIKE and ILIKE take patterns that come with records"));
    };
    if constant.is_null(0) {
        return Ok(None);
    }
    let read = Regexp::new(constant.as_string_view().value(0), fold_case);
    read.map(|read| Some(Arc::new(read))).map_err(|error| error.at(span))
}

fn expect_number(arg: Draft, shape: &str) -> Result<Draft, SqlError> {
    if arg.is_null() || arg.data_type().is_numeric() {
        return Ok(arg);
    }
    Err(SqlError::new(format!("a number is expected, not {}", arg.data_type())).at(arg.span).expected(shape))
}

/// `ABS`, `CEIL`, `FLOOR`, `SIGN`: of every numeric type.
fn number(function: Function, arg: Draft, shape: &str) -> Result<Typed, SqlError> {
    let arg = expect_number(arg, shape)?;
    let arg = if arg.is_null() { arg.coerce(&DataType::Float64)? } else { arg.settle()? };
    let is_integer = matches!(arg.data_type, DataType::Int64 | DataType::UInt64);
    Ok(match (function, arg.data_type.clone()) {
        (Function::Ceil | Function::Floor, _) if is_integer => arg,
        (Function::Abs, DataType::UInt64) => arg,
        (Function::Ceil | Function::Floor, DataType::Decimal { precision, scale }) => {
            let to = types::decimal(i32::from(precision) - i32::from(scale) + 1, 0);
            call(function, vec![arg], to)
        }
        (Function::Sign, DataType::Float64) => call(function, vec![arg], DataType::Float64),
        (Function::Sign, _) => call(function, vec![arg], DataType::Int64),
        (_, data_type) => {
            let may_overflow = data_type == DataType::Int64;
            let typed = call(function, vec![arg], data_type);
            Typed { nullable: typed.nullable || may_overflow, ..typed }
        }
    })
}

/// `ROUND(x[, d])`; `d` is constant because a decimal's type depends on it.
fn round(mut args: Vec<Draft>, shape: &str) -> Result<Typed, SqlError> {
    let digits = match args.get(1) {
        None => 0,
        Some(Draft { literal: Some(Literal::Integer(digits)), .. }) => {
            i64::try_from(*digits).unwrap_or(i64::MAX).clamp(-400, 400)
        }
        Some(other) if other.is_unknown() => 0,
        Some(other) => match other.typed.constant() {
            Some(constant) if other.data_type() == &DataType::Int64 && constant.is_valid(0) => {
                constant.as_primitive::<arrow_array::types::Int64Type>().value(0).clamp(-400, 400)
            }
            _ => {
                return Err(SqlError::new("the digits of ROUND are a constant integer")
                    .at(other.span.clone())
                    .expected(shape));
            }
        },
    };
    let arg = expect_number(args.remove(0), shape)?;
    let arg = if arg.is_null() { arg.coerce(&DataType::Float64)? } else { arg.settle()? };
    let to = match arg.data_type {
        DataType::Int64 | DataType::UInt64 if digits >= 0 => return Ok(arg),
        DataType::Decimal { scale, .. } if digits >= i64::from(scale) => return Ok(arg),
        DataType::Decimal { precision, scale } => {
            let kept = i8::try_from(digits.max(0)).expect("below the scale");
            types::decimal(i32::from(precision) - i32::from(scale) + 1 + i32::from(kept), kept)
        }
        ref other => other.clone(),
    };
    let may_overflow = to != DataType::Float64;
    let nullable = arg.nullable || may_overflow;
    let digits = Typed {
        op: Op::Constant(Arc::new(Int64Array::from(vec![digits]))),
        data_type: DataType::Int64,
        nullable: false,
    };
    Ok(Typed { op: Op::Call(Function::Round, vec![arg, digits]), data_type: to, nullable })
}

fn truncate(mut args: Vec<Draft>, shape: &str) -> Result<Typed, SqlError> {
    let unit = match &args[0].literal {
        Some(Literal::String(unit)) => Part::parse(unit, args[0].span.clone())?,
        Some(Literal::Unknown) => return args.remove(1).expect_timestamp("DATE_TRUNC"),
        _ => {
            return Err(SqlError::new("the unit of DATE_TRUNC is a text in quotes")
                .at(args[0].span.clone())
                .expected(shape));
        }
    };
    if !unit.is_unit() {
        return Err(SqlError::new(format!("a timestamp cannot be cut at {}", unit.name()))
            .at(args[0].span.clone())
            .expected("year, quarter, month, week, day, hour, minute, second, millisecond or microsecond"));
    }
    let arg = args.remove(1).expect_timestamp("DATE_TRUNC")?;
    let data_type = arg.data_type.clone();
    // The start of the first unit that fits is before the first time that does.
    Ok(Typed { op: Op::Truncate(unit, Box::new(arg)), data_type, nullable: true })
}
