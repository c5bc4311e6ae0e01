//! Values picked among others: CASE, COALESCE, NULLIF, GREATEST, LEAST.

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_select::nullif::nullif;
use arrow_select::zip::zip;

use super::column::{Column, arc};
use super::{compare, evaluate, internal, true_rows};
use crate::SqlError;
use crate::ast::CompareOp;
use crate::bound::Typed;

/// The first branch whose condition is true.
pub(crate) fn case(
    branches: &[(Typed, Typed)],
    otherwise: &Typed,
    records: &RecordBatch,
) -> Result<Column, SqlError> {
    let mut result = evaluate(otherwise, records)?;
    for (condition, then) in branches.iter().rev() {
        let condition = evaluate(condition, records)?;
        let then = evaluate(then, records)?;
        result = pick(&condition, &then, &result, records.num_rows())?;
    }
    Ok(result)
}

/// `then` where the condition is true, `otherwise` where it is false or null.
fn pick(condition: &Column, then: &Column, otherwise: &Column, rows: usize) -> Result<Column, SqlError> {
    if let Column::Scalar(condition) = condition {
        let is_true = condition.is_valid(0) && condition.as_boolean().value(0);
        return Ok(if is_true { then.clone() } else { otherwise.clone() });
    }
    let mask = BooleanArray::new(true_rows(&condition.clone().booleans(rows)?), None);
    Ok(Column::Array(zip(&mask, then, otherwise).map_err(internal)?))
}

pub(crate) fn coalesce(args: &[Column], rows: usize) -> Result<Column, SqlError> {
    let (last, first) = args.split_last().expect("COALESCE takes an argument");
    first.iter().rev().try_fold(last.clone(), |result, arg| pick(&valid(arg), arg, &result, rows))
}

fn valid(column: &Column) -> Column {
    let array = column.array();
    let bits =
        array.nulls().map_or_else(|| BooleanBuffer::new_set(array.len()), |nulls| nulls.inner().clone());
    column.same_shape(arc(BooleanArray::new(bits, None)))
}

/// The largest (`Greater`) or smallest (`Less`) of the arguments that are not null.
pub(crate) fn extreme(args: &[Column], wanted: CompareOp, rows: usize) -> Result<Column, SqlError> {
    let (first, rest) = args.split_first().expect("GREATEST and LEAST take an argument");
    rest.iter().try_fold(first.clone(), |best, next| {
        // Where one side is null the comparison is too: then `next` stays behind `best` unless `best` is the null.
        let better = compare::compare(wanted, next, &best)?;
        let best_or_next = pick(&better, next, &best, rows)?;
        pick(&valid(&best), &best_or_next, next, rows)
    })
}

/// `a`, or null where `equal` is true.
pub(crate) fn null_if(a: &Column, equal: &Column, rows: usize) -> Result<Column, SqlError> {
    let mask = BooleanArray::new(true_rows(&equal.clone().booleans(rows)?), None);
    let array = a.clone().into_array(rows)?;
    Ok(Column::Array(nullif(&array, &mask).map_err(internal)?))
}
