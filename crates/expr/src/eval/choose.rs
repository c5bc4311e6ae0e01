//! Values picked among others: CASE, COALESCE, NULLIF, GREATEST, LEAST.

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, BooleanArray};
use arrow_buffer::BooleanBuffer;
use arrow_select::nullif::nullif;
use arrow_select::zip::zip;

use super::column::{Column, arc};
use super::{Evaluation, compare, evaluate, internal, true_rows};
use crate::SqlError;
use crate::ast::CompareOp;
use crate::bound::Typed;

/// The first branch whose condition is true.
pub(crate) fn case(
    branches: &[(Typed, Typed)],
    otherwise: &Typed,
    within: &Evaluation<'_>,
) -> Result<Column, SqlError> {
    // Misfits of ELSE, then of each branch from the last to the first: of its condition and of its result.
    let mark = within.mark();
    let mut result = evaluate(otherwise, within)?;
    let of_otherwise = within.take_since(mark);
    let mut conditions = Vec::with_capacity(branches.len());
    let mut misfits = Vec::with_capacity(branches.len());
    for (condition, then) in branches.iter().rev() {
        let condition = evaluate(condition, within)?;
        let of_condition = within.take_since(mark);
        let then = evaluate(then, within)?;
        misfits.push((of_condition, within.take_since(mark)));
        result = pick(&condition, &then, &result, within.rows())?;
        conditions.push(condition);
    }
    conditions.reverse();
    misfits.reverse();
    let is_true = |branch: &Column, row: u32| {
        let row = if branch.is_scalar() { 0 } else { row as usize };
        branch.array().is_valid(row) && branch.array().as_boolean().value(row)
    };
    let first = |row: u32| conditions.iter().position(|condition| is_true(condition, row));
    for (branch, (of_condition, of_then)) in misfits.into_iter().enumerate() {
        within
            .put_back(of_condition.into_iter().filter(|row| first(*row).is_none_or(|first| first >= branch)));
        within.put_back(of_then.into_iter().filter(|row| first(*row) == Some(branch)));
    }
    within.put_back(of_otherwise.into_iter().filter(|row| first(*row).is_none()));
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

/// The first argument that is not null; those after one that no row lacks are not looked at.
pub(crate) fn coalesce(args: &[Typed], within: &Evaluation<'_>) -> Result<Column, SqlError> {
    let (first, rest) = args.split_first().expect("COALESCE takes an argument");
    let mut result = evaluate(first, within)?;
    for arg in rest {
        if result.array().null_count() == 0 {
            break;
        }
        let mark = within.mark();
        let next = evaluate(arg, within)?;
        within.keep(mark, |row| result.array().is_null(if result.is_scalar() { 0 } else { row }));
        result = pick(&valid(&result), &result, &next, within.rows())?;
    }
    Ok(result)
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
        // Where one side is null the comparison is too: then `next` comes after `best` unless `best` is the null.
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
