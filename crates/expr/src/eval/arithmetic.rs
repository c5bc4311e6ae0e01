//! `+ - * / %` and unary minus. Integer overflow and division by zero are null; floats follow IEEE.

use arrow_array::ArrowPrimitiveType;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type};
use arrow_schema::DataType as Arrow;
use thalweg_types::DataType;

use super::column::{Column, Operand, arc, either_null, one_nan, result_of, rows_of, without_rows, zip_rows};
use super::decimal;
use crate::SqlError;
use crate::ast::ArithmeticOp;

pub(crate) fn binary(op: ArithmeticOp, a: &Column, b: &Column, to: &DataType) -> Result<Column, SqlError> {
    if a.is_null_scalar() || b.is_null_scalar() {
        return Ok(Column::null_scalar(&to.to_arrow()));
    }
    match to {
        DataType::Float64 => Ok(floats(op, a, b)),
        DataType::Int64 => Ok(integers::<Int64Type>(a, b, int64_op(op))),
        DataType::UInt64 => Ok(integers::<UInt64Type>(a, b, uint64_op(op))),
        DataType::Decimal { precision, scale } => decimal::binary(op, a, b, *precision, *scale),
        other => unreachable!("the binder lets no {other} into arithmetic"),
    }
}

fn floats(op: ArithmeticOp, a: &Column, b: &Column) -> Column {
    let (left, right) = (Operand::of::<Float64Type>(a), Operand::of::<Float64Type>(b));
    let values = match op {
        ArithmeticOp::Add => zip_rows(&left, &right, |a, b| one_nan(a + b)),
        ArithmeticOp::Subtract => zip_rows(&left, &right, |a, b| one_nan(a - b)),
        ArithmeticOp::Multiply => zip_rows(&left, &right, |a, b| one_nan(a * b)),
        ArithmeticOp::Divide => zip_rows(&left, &right, |a, b| one_nan(a / b)),
        ArithmeticOp::Remainder => zip_rows(&left, &right, |a, b| one_nan(a % b)),
    };
    result_of(a, b, arc(without_rows::<Float64Type>(values, either_null(a, b), &[])))
}

fn integers<P: ArrowPrimitiveType<Native: Default>>(
    a: &Column,
    b: &Column,
    op: fn(P::Native, P::Native) -> Option<P::Native>,
) -> Column {
    let (left, right) = (Operand::of::<P>(a), Operand::of::<P>(b));
    let rows = rows_of(a, b);
    let mut values = Vec::with_capacity(rows);
    let mut bad = Vec::new();
    for row in 0..rows {
        match op(left.at(row), right.at(row)) {
            Some(value) => values.push(value),
            None => {
                values.push(P::Native::default());
                bad.push(row);
            }
        }
    }
    result_of(a, b, arc(without_rows::<P>(values, either_null(a, b), &bad)))
}

fn int64_op(op: ArithmeticOp) -> fn(i64, i64) -> Option<i64> {
    match op {
        ArithmeticOp::Add => i64::checked_add,
        ArithmeticOp::Subtract => i64::checked_sub,
        ArithmeticOp::Multiply => i64::checked_mul,
        ArithmeticOp::Divide => i64::checked_div,
        // The smallest number modulo −1 is 0, though its quotient does not fit.
        ArithmeticOp::Remainder => |a, b| (b != 0).then(|| a.wrapping_rem(b)),
    }
}

fn uint64_op(op: ArithmeticOp) -> fn(u64, u64) -> Option<u64> {
    match op {
        ArithmeticOp::Add => u64::checked_add,
        ArithmeticOp::Subtract => u64::checked_sub,
        ArithmeticOp::Multiply => u64::checked_mul,
        ArithmeticOp::Divide => u64::checked_div,
        ArithmeticOp::Remainder => u64::checked_rem,
    }
}

pub(crate) fn negate(a: &Column) -> Result<Column, SqlError> {
    let array = a.array();
    let negated = match array.data_type() {
        Arrow::Int64 => arc(array.as_primitive::<Int64Type>().unary_opt::<_, Int64Type>(i64::checked_neg)),
        Arrow::Float64 => {
            arc(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|value| one_nan(-value)))
        }
        Arrow::Decimal128(precision, scale) => arc(array
            .as_primitive::<Decimal128Type>()
            .unary::<_, Decimal128Type>(i128::wrapping_neg)
            .with_precision_and_scale(*precision, *scale)
            .map_err(super::internal)?),
        Arrow::Decimal256(precision, scale) => arc(array
            .as_primitive::<Decimal256Type>()
            .unary::<_, Decimal256Type>(arrow_buffer::i256::wrapping_neg)
            .with_precision_and_scale(*precision, *scale)
            .map_err(super::internal)?),
        other => unreachable!("the binder negates no {other}"),
    };
    Ok(a.same_shape(negated))
}
