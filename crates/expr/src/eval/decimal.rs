//! Decimal arithmetic, row by row in 256 bits, or 128 where every operand and result has at most 38 digits.
//!
//! Arrow's kernels give up a whole batch for one overflow; here that row is null.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Decimal128Type, Decimal256Type};
use arrow_array::{Array as _, ArrayRef, Decimal128Array, Decimal256Array};
use arrow_buffer::i256;
use arrow_schema::DataType as Arrow;

use super::column::{Column, Operand, arc, either_null, from_options, result_of, rows_of};
use super::internal;
use crate::SqlError;
use crate::ast::ArithmeticOp;

/// `10^power`, up to the 76 digits that fit.
pub(crate) fn power_of_ten(power: u32) -> Option<i256> {
    i256::from_i128(10).checked_pow(power)
}

pub(crate) fn scale_of(data_type: &Arrow) -> i8 {
    match data_type {
        Arrow::Decimal128(_, scale) | Arrow::Decimal256(_, scale) => *scale,
        other => unreachable!("{other} is no decimal"),
    }
}

/// The unscaled digits of every row.
pub(crate) fn digits(array: &ArrayRef) -> Vec<Option<i256>> {
    match array.data_type() {
        Arrow::Decimal128(..) => {
            array.as_primitive::<Decimal128Type>().iter().map(|value| value.map(i256::from_i128)).collect()
        }
        Arrow::Decimal256(..) => array.as_primitive::<Decimal256Type>().iter().collect(),
        other => unreachable!("{other} is no decimal"),
    }
}

/// A decimal column; digits that exceed the precision are null.
pub(crate) fn build(
    values: impl Iterator<Item = Option<i256>>,
    precision: u8,
    scale: i8,
) -> Result<ArrayRef, SqlError> {
    let limit = power_of_ten(u32::from(precision)).unwrap_or(i256::MAX);
    let fits = |value: i256| (value < limit && value > limit.wrapping_neg()).then_some(value);
    if precision <= 38 {
        let array: Decimal128Array =
            from_options::<Decimal128Type>(values.map(|value| value.and_then(fits).and_then(i256::to_i128)));
        Ok(arc(array.with_precision_and_scale(precision, scale).map_err(internal)?))
    } else {
        let array: Decimal256Array = from_options::<Decimal256Type>(values.map(|value| value.and_then(fits)));
        Ok(arc(array.with_precision_and_scale(precision, scale).map_err(internal)?))
    }
}

pub(crate) fn binary(
    op: ArithmeticOp,
    a: &Column,
    b: &Column,
    precision: u8,
    scale: i8,
) -> Result<Column, SqlError> {
    let (scale_a, scale_b) = (scale_of(a.data_type()), scale_of(b.data_type()));
    if let Some(array) = narrow(op, a, b, precision, scale) {
        return Ok(result_of(a, b, array.map_err(internal)?));
    }
    let (left, right) = (digits(a.array()), digits(b.array()));
    let pick = |column: &Column, values: &[Option<i256>], row: usize| {
        values[if column.is_scalar() { 0 } else { row }]
    };
    let rows = rows_of(a, b);
    let values = (0..rows).map(|row| {
        let (a, b) = (pick(a, &left, row)?, pick(b, &right, row)?);
        apply(op, (a, scale_a), (b, scale_b), scale)
    });
    Ok(result_of(a, b, build(values, precision, scale)?))
}

fn apply(op: ArithmeticOp, (a, scale_a): (i256, i8), (b, scale_b): (i256, i8), scale: i8) -> Option<i256> {
    let aligned = |value: i256, from: i8| value.checked_mul(power_of_ten(u32::try_from(scale - from).ok()?)?);
    match op {
        ArithmeticOp::Add => aligned(a, scale_a)?.checked_add(aligned(b, scale_b)?),
        ArithmeticOp::Subtract => aligned(a, scale_a)?.checked_sub(aligned(b, scale_b)?),
        ArithmeticOp::Multiply => a.checked_mul(b),
        ArithmeticOp::Divide => {
            let shift = u32::try_from(i32::from(scale) + i32::from(scale_b) - i32::from(scale_a)).ok()?;
            divide_rounded(a.checked_mul(power_of_ten(shift)?)?, b)
        }
        ArithmeticOp::Remainder => aligned(a, scale_a)?.checked_rem(aligned(b, scale_b)?),
    }
}

/// `a / b`, half away from zero; `None` for division by zero.
pub(crate) fn divide_rounded(a: i256, b: i256) -> Option<i256> {
    let quotient = a.checked_div(b)?;
    let remainder = a.checked_rem(b)?;
    // |remainder| >= |b| - |remainder| says "at least half" without doubling.
    let (remainder, divisor) = (remainder.wrapping_abs(), b.wrapping_abs());
    if remainder != i256::ZERO && remainder >= divisor.wrapping_sub(remainder) {
        let one = i256::ONE;
        if (a < i256::ZERO) == (b < i256::ZERO) {
            quotient.checked_add(one)
        } else {
            quotient.checked_sub(one)
        }
    } else {
        Some(quotient)
    }
}

/// `+ - *` of narrow decimals in 128 bits. A result of at most 38 digits fits, and so do its aligned operands.
fn narrow(
    op: ArithmeticOp,
    a: &Column,
    b: &Column,
    precision: u8,
    scale: i8,
) -> Option<Result<ArrayRef, arrow_schema::ArrowError>> {
    let (Arrow::Decimal128(_, scale_a), Arrow::Decimal128(_, scale_b)) = (a.data_type(), b.data_type())
    else {
        return None;
    };
    if precision > 38 || matches!(op, ArithmeticOp::Divide | ArithmeticOp::Remainder) {
        return None;
    }
    let factor = |from: i8| 10_i128.checked_pow(u32::try_from(scale - from).ok()?);
    let (left, right) = (Operand::of::<Decimal128Type>(a), Operand::of::<Decimal128Type>(b));
    let values: Vec<i128> = match op {
        ArithmeticOp::Multiply => super::column::zip_rows(&left, &right, i128::wrapping_mul),
        _ => {
            let (up_a, up_b) = (factor(*scale_a)?, factor(*scale_b)?);
            let subtract = op == ArithmeticOp::Subtract;
            super::column::zip_rows(&left, &right, move |a, b| {
                let (a, b) = (a.wrapping_mul(up_a), b.wrapping_mul(up_b));
                if subtract { a.wrapping_sub(b) } else { a.wrapping_add(b) }
            })
        }
    };
    let array = Decimal128Array::new(values.into(), either_null(a, b));
    Some(array.with_precision_and_scale(precision, scale).map(arc))
}
