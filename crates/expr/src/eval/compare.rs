//! Comparisons. Floats have loops of their own: NaN equals NaN and is above every number, −0 equals 0, which is not
//! the total order of Arrow's kernels.

use arrow_array::types::Float64Type;
use arrow_array::{Array as _, BooleanArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_ord::cmp;
use arrow_schema::DataType as Arrow;

use super::column::{Column, Operand, arc, either_null, result_of, rows_of, zip_bits};
use super::{internal, logic};
use crate::SqlError;
use crate::ast::CompareOp;

pub(crate) fn compare(op: CompareOp, a: &Column, b: &Column) -> Result<Column, SqlError> {
    let is_null_aware = matches!(op, CompareOp::Distinct | CompareOp::NotDistinct);
    if !is_null_aware && (a.is_null_scalar() || b.is_null_scalar()) {
        return Ok(Column::null_scalar(&Arrow::Boolean));
    }
    let array = if a.data_type() == &Arrow::Float64 {
        if is_null_aware { distinct_floats(op, a, b) } else { floats(op, a, b) }
    } else {
        match op {
            CompareOp::Equal => cmp::eq(a, b),
            CompareOp::NotEqual => cmp::neq(a, b),
            CompareOp::Less => cmp::lt(a, b),
            CompareOp::LessOrEqual => cmp::lt_eq(a, b),
            CompareOp::Greater => cmp::gt(a, b),
            CompareOp::GreaterOrEqual => cmp::gt_eq(a, b),
            CompareOp::Distinct => cmp::distinct(a, b),
            CompareOp::NotDistinct => cmp::not_distinct(a, b),
        }
        .map_err(internal)?
    };
    Ok(result_of(a, b, arc(array)))
}

#[inline]
fn equal(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

#[inline]
fn less(a: f64, b: f64) -> bool {
    a < b || (b.is_nan() && !a.is_nan())
}

fn floats(op: CompareOp, a: &Column, b: &Column) -> BooleanArray {
    let (left, right) = (Operand::of::<Float64Type>(a), Operand::of::<Float64Type>(b));
    let bits = match op {
        CompareOp::Equal | CompareOp::NotDistinct => zip_bits(&left, &right, equal),
        CompareOp::NotEqual | CompareOp::Distinct => zip_bits(&left, &right, |a, b| !equal(a, b)),
        CompareOp::Less => zip_bits(&left, &right, less),
        CompareOp::LessOrEqual => zip_bits(&left, &right, |a, b| !less(b, a)),
        CompareOp::Greater => zip_bits(&left, &right, |a, b| less(b, a)),
        CompareOp::GreaterOrEqual => zip_bits(&left, &right, |a, b| !less(a, b)),
    };
    BooleanArray::new(bits, either_null(a, b))
}

/// Null is equal to null and distinct from everything else.
fn distinct_floats(op: CompareOp, a: &Column, b: &Column) -> BooleanArray {
    let rows = rows_of(a, b);
    let is_null = |column: &Column| match column {
        Column::Scalar(array) if array.is_null(0) => BooleanBuffer::new_set(rows),
        Column::Scalar(_) => BooleanBuffer::new_unset(rows),
        Column::Array(array) => {
            array.nulls().map_or_else(|| BooleanBuffer::new_unset(rows), |nulls| !nulls.inner())
        }
    };
    let (null_a, null_b) = (is_null(a), is_null(b));
    let values = floats(CompareOp::Equal, a, b);
    let both = &null_a & &null_b;
    let either = &null_a | &null_b;
    let same = &both | &(&!&either & values.values());
    BooleanArray::new(if op == CompareOp::NotDistinct { same } else { !&same }, None::<NullBuffer>)
}

/// `low <= x AND x <= high`, three-valued.
pub(crate) fn between(x: &Column, low: &Column, high: &Column, negated: bool) -> Result<Column, SqlError> {
    let above = compare(CompareOp::GreaterOrEqual, x, low)?;
    let below = compare(CompareOp::LessOrEqual, x, high)?;
    let inside = logic::both(&above, &below)?;
    if negated { logic::not(&inside) } else { Ok(inside) }
}
