//! Evaluation by columns: every node turns its operands' columns into one column of all physical rows.
//!
//! Constants stay one row long ([`Column::Scalar`]) until the end. Nothing here fails for a value: a value that cannot
//! be computed is null, and so is one beyond the bounds of an [`Evaluation`], which names its row. Every branch of
//! `CASE` and every operand of `AND` may therefore be evaluated for all rows.

pub(crate) mod arithmetic;
pub(crate) mod cast;
pub(crate) mod choose;
pub(crate) mod column;
pub(crate) mod compare;
pub(crate) mod decimal;
pub(crate) mod evaluation;
mod fold;
pub(crate) mod in_list;
pub(crate) mod like;
pub(crate) mod logic;
pub(crate) mod math;
pub(crate) mod pieces;
pub(crate) mod regexp;
pub(crate) mod size;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod tuple;

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{ArrowError, Schema};
use arrow_select::nullif::nullif;

use crate::SqlError;
use crate::ast::{CompareOp, quote_name};
use crate::bound::{Op, Typed};
use crate::function::Function;
pub(crate) use column::Column;
pub(crate) use evaluation::Evaluation;

pub(crate) fn evaluate(node: &Typed, within: &Evaluation<'_>) -> Result<Column, SqlError> {
    let eval = |node: &Typed| evaluate(node, within);
    let all = |nodes: &[Typed]| nodes.iter().map(eval).collect::<Result<Vec<_>, _>>();
    if !matches!(node.op, Op::Column { .. } | Op::Constant(_)) {
        within.take_column(&node.data_type)?;
    }
    match &node.op {
        Op::Column { index, path, name } => field(node, within.records, *index, path, name),
        Op::Constant(array) => Ok(Column::Scalar(Arc::clone(array))),
        Op::Negate(a) => arithmetic::negate(&eval(a)?),
        Op::Not(a) => logic::not(&eval(a)?),
        Op::And(items) => logic::chain(items, within, logic::Chain::And),
        Op::Or(items) => logic::chain(items, within, logic::Chain::Or),
        Op::Arithmetic(op, a, b) => arithmetic::binary(*op, &eval(a)?, &eval(b)?, &node.data_type),
        Op::Compare(op, a, b) => compare::compare(*op, &eval(a)?, &eval(b)?),
        Op::Is { what, negated, expr } => logic::is(*what, *negated, &eval(expr)?),
        Op::Between { expr, low, high, negated } => {
            compare::between(&eval(expr)?, &eval(low)?, &eval(high)?, *negated)
        }
        Op::InList { expr, list, members, negated } => match members {
            Some(members) => members.contains(&eval(expr)?, *negated),
            None => in_list::any_equal(&eval(expr)?, &all(list)?, *negated),
        },
        Op::Like { expr, pattern, read, fold_case, negated } => {
            let pattern = match read {
                Some(read) => text::Patterns::Read(read),
                None => text::Patterns::Each(eval(pattern)?, *fold_case),
            };
            text::like(&eval(expr)?, &pattern, *negated, within)
        }
        Op::Match { expr, read, take, .. } => match read {
            Some(read) => text::matches(&eval(expr)?, read, *take, within),
            None => Ok(Column::null_scalar(&node.data_type.to_arrow())),
        },
        Op::Case { branches, otherwise } => choose::case(branches, otherwise, within),
        Op::Cast(a) => cast::cast(&eval(a)?, &a.data_type, &node.data_type, within),
        Op::Concat(items) => text::concat(&all(items)?, text::Nulls::Propagate, within),
        Op::Tuple(items) => tuple::tuple(&all(items)?, within),
        Op::Extract(part, a) => time::extract(*part, &eval(a)?),
        Op::Truncate(part, a) => time::truncate(*part, &eval(a)?),
        Op::Call(function, args) => match function {
            Function::Coalesce => choose::coalesce(args, within),
            Function::Greatest => choose::extreme(&all(args)?, CompareOp::Greater, within.rows()),
            Function::Least => choose::extreme(&all(args)?, CompareOp::Less, within.rows()),
            Function::NullIf => choose::null_if(&eval(&args[0])?, &eval(&args[1])?, within.rows()),
            Function::Concat => text::concat(&all(args)?, text::Nulls::Skip, within),
            Function::Lower
            | Function::Upper
            | Function::Trim
            | Function::LeftTrim
            | Function::RightTrim
            | Function::Replace
            | Function::Left
            | Function::Length
            | Function::Right
            | Function::SplitPart
            | Function::Substring
            | Function::StartsWith
            | Function::EndsWith
            | Function::Contains
            | Function::StrPos => text::call(*function, &all(args)?, within),
            Function::Epoch | Function::EpochMs | Function::EpochUs | Function::EpochNs => {
                time::epoch(*function, &eval(&args[0])?)
            }
            _ => math::call(*function, &all(args)?, &node.data_type),
        },
    }
}

/// The value of a node whose operands are all constant, as one row.
///
/// # Errors
/// Where it goes beyond the bounds of a constant.
pub(crate) fn evaluate_constant(node: &Typed) -> Result<ArrayRef, SqlError> {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let nothing = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)
        .map_err(internal)?;
    let within = Evaluation::constant(&nothing);
    let array = evaluate(node, &within)?.into_array(1)?;
    if within.into_misfits().is_empty() {
        return Ok(array);
    }
    Err(SqlError::new("this constant is a text that is too long, or a pattern that takes too long")
        .expected(format!("at most {} KiB in a constant", evaluation::MAX_CONSTANT >> 10)))
}

/// Rows that are true and not null.
pub(crate) fn true_rows(array: &BooleanArray) -> BooleanBuffer {
    match array.nulls() {
        Some(nulls) if nulls.null_count() > 0 => array.values() & nulls.inner(),
        _ => array.values().clone(),
    }
}

fn field(
    node: &Typed,
    records: &RecordBatch,
    index: usize,
    path: &[usize],
    name: &str,
) -> Result<Column, SqlError> {
    let absent = || SqlError::new(format!("the records have no column {} as bound", quote_name(name)));
    let mut array: ArrayRef = records.columns().get(index).map(Arc::clone).ok_or_else(absent)?;
    for member in path {
        let parent = array.as_struct_opt().ok_or_else(absent)?;
        let child = Arc::clone(parent.columns().get(*member).ok_or_else(absent)?);
        array = match parent.nulls() {
            Some(nulls) if nulls.null_count() > 0 => {
                let is_null = BooleanArray::new(!nulls.inner(), None);
                nullif(&child, &is_null).map_err(internal)?
            }
            _ => child,
        };
    }
    let expected = node.data_type.to_arrow();
    if !array.data_type().equals_datatype(&expected) {
        return Err(SqlError::new(format!(
            "column {} is {} where {expected} was bound",
            quote_name(name),
            array.data_type()
        )));
    }
    Ok(Column::Array(array))
}

/// A kernel refused its operands: the binder let something through that it should not have.
pub(crate) fn internal(error: ArrowError) -> SqlError {
    SqlError::new(format!("evaluation failed: {error}"))
}
