//! Three-valued logic: AND, OR, NOT, IS.

use arrow_arith::boolean::{and_kleene, not as not_kernel, or_kleene};
use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, BooleanArray};
use arrow_buffer::BooleanBuffer;

use super::column::{Column, arc, result_of, rows_of};
use super::{Evaluation, evaluate, internal, true_rows};
use crate::SqlError;
use crate::ast::Is;
use crate::bound::Typed;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chain {
    And,
    Or,
}

/// `a AND b AND …`; stops as soon as no row can change.
pub(crate) fn chain(items: &[Typed], within: &Evaluation<'_>, kind: Chain) -> Result<Column, SqlError> {
    let mut so_far = Column::Scalar(arc(BooleanArray::from(vec![kind == Chain::And])));
    for item in items {
        let mark = within.mark();
        let next = evaluate(item, within)?;
        // A row that is decided needs no more, whether or not others of its batch do.
        within.keep(mark, |row| !decides(&so_far, row, kind));
        so_far = match kind {
            Chain::And => both(&so_far, &next)?,
            Chain::Or => either(&so_far, &next)?,
        };
        let decided = so_far.array().as_boolean();
        let settled = if kind == Chain::And { 0 } else { decided.len() };
        if decided.null_count() == 0 && decided.values().count_set_bits() == settled {
            break;
        }
    }
    Ok(so_far)
}

/// Whether nothing that follows in a chain changes a row.
fn decides(so_far: &Column, row: usize, kind: Chain) -> bool {
    let row = if so_far.is_scalar() { 0 } else { row };
    let values = so_far.array().as_boolean();
    values.is_valid(row) && values.value(row) == (kind == Chain::Or)
}

pub(crate) fn both(a: &Column, b: &Column) -> Result<Column, SqlError> {
    // A constant TRUE changes nothing; the first of a chain always is one.
    if is_constant(a, true) {
        return Ok(b.clone());
    }
    let rows = rows_of(a, b);
    let array = and_kleene(&a.clone().booleans(rows)?, &b.clone().booleans(rows)?).map_err(internal)?;
    Ok(result_of(a, b, arc(array)))
}

pub(crate) fn either(a: &Column, b: &Column) -> Result<Column, SqlError> {
    if is_constant(a, false) {
        return Ok(b.clone());
    }
    let rows = rows_of(a, b);
    let array = or_kleene(&a.clone().booleans(rows)?, &b.clone().booleans(rows)?).map_err(internal)?;
    Ok(result_of(a, b, arc(array)))
}

fn is_constant(column: &Column, value: bool) -> bool {
    column.is_scalar() && column.array().is_valid(0) && column.array().as_boolean().value(0) == value
}

pub(crate) fn not(a: &Column) -> Result<Column, SqlError> {
    Ok(a.same_shape(arc(not_kernel(a.array().as_boolean()).map_err(internal)?)))
}

/// `IS [NOT] NULL | TRUE | FALSE`, never null itself.
pub(crate) fn is(what: Is, negated: bool, a: &Column) -> Result<Column, SqlError> {
    let array = a.array();
    let rows = array.len();
    let bits = match what {
        Is::Null => {
            array.logical_nulls().map_or_else(|| BooleanBuffer::new_unset(rows), |nulls| !nulls.inner())
        }
        Is::True => true_rows(array.as_boolean()),
        Is::False => true_rows(&not_kernel(array.as_boolean()).map_err(internal)?),
    };
    Ok(a.same_shape(arc(BooleanArray::new(if negated { !&bits } else { bits }, None))))
}
