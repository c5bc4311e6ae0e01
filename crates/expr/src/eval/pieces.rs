//! A whole batch: in one piece where that fits the bounds of an evaluation, else in pieces of fewer rows.
//!
//! Values do not depend on the pieces: a row that goes beyond the bounds by itself alone is null, and a misfit. Where
//! panics are caught, the row that makes one is found in the same way.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_select::concat::concat;

use super::{Evaluation, evaluate, internal};
use crate::SqlError;
use crate::bound::{Typed, Values};

/// Whether a value that cannot be computed because of a mistake of ours ends the evaluation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failures {
    End,
    /// It is null, and the first one is reported.
    AreNull,
}

enum Piece {
    Values(ArrayRef, Vec<u32>),
    TooLarge,
    Failed(SqlError),
}

/// # Errors
/// What an evaluation says that fails as a whole, where failures end it.
pub(crate) fn evaluate_all(
    node: &Typed,
    records: &RecordBatch,
    failures: Failures,
) -> Result<Values, SqlError> {
    let rows = records.num_rows();
    let (mut start, mut size) = (0, rows);
    let mut parts: Vec<ArrayRef> = Vec::new();
    let (mut misfits, mut failure) = (Vec::new(), None);
    loop {
        let count = size.min(rows - start);
        let piece = if count == rows {
            evaluate_piece(node, records, failures)
        } else {
            evaluate_piece(node, &records.slice(start, count), failures)
        };
        let part = match piece {
            Piece::Failed(error) if failures == Failures::End => return Err(error),
            Piece::TooLarge | Piece::Failed(_) if count > 1 => {
                size = count / 2;
                continue;
            }
            Piece::Values(array, of_piece) => {
                misfits.extend(of_piece.into_iter().map(|row| row + start as u32));
                array
            }
            Piece::TooLarge => {
                misfits.push(start as u32);
                new_null_array(&node.data_type.to_arrow(), count)
            }
            Piece::Failed(error) => {
                misfits.extend(start as u32..(start + count) as u32);
                failure.get_or_insert(error);
                new_null_array(&node.data_type.to_arrow(), count)
            }
        };
        start += count;
        // What was in the way may have been passed.
        size = size.saturating_mul(2);
        if start == rows && parts.is_empty() {
            return Ok(Values { array: part, misfits, failure });
        }
        parts.push(part);
        if start == rows {
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            return Ok(Values { array: concat(&parts).map_err(internal)?, misfits, failure });
        }
    }
}

fn evaluate_piece(node: &Typed, records: &RecordBatch, failures: Failures) -> Piece {
    let within = Evaluation::new(records);
    let run = || evaluate(node, &within).and_then(|column| column.into_array(records.num_rows()));
    let outcome = match failures {
        Failures::End => run(),
        // What an evaluation has made it drops; columns and expression stay as they are.
        Failures::AreNull => {
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| Err(panicked(payload.as_ref())))
        }
    };
    match outcome {
        Ok(array) => Piece::Values(array, within.into_misfits()),
        Err(_) if within.is_exhausted() => Piece::TooLarge,
        Err(error) => Piece::Failed(error),
    }
}

fn panicked(payload: &(dyn Any + Send)) -> SqlError {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    SqlError::new(format!("it panicked: {}", text.as_deref().unwrap_or("a panic without a message")))
}
