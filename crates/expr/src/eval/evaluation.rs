//! One evaluation over one batch: what it may take, and which rows went beyond it.
//!
//! Texts are what an expression can blow up: `replace` of a `replace` multiplies. Three bounds hold, each looked at
//! before memory is taken:
//! * a text that is made has at most [`MAX_MADE`] bytes, or as many as the longest one that it is made of;
//! * an evaluation takes at most [`BUDGET`] bytes in all, for texts and columns. A batch that needs more is evaluated in
//!   pieces of fewer rows, down to single ones, so that no value depends on the other rows of its batch;
//! * a pattern and its search are bounded (`like`).
//!
//! Beyond them a value is null, and its row a *misfit*. A row is one only where the value was needed for it: not after
//! an operand that decides AND or OR, nor in a branch of CASE or COALESCE that another comes before.

use std::cell::{Cell, RefCell};

use arrow_array::RecordBatch;
use thalweg_types::DataType;

use crate::SqlError;

/// Bytes of a text that an expression makes of shorter ones. Each record may be so much work, so it is not much.
pub(crate) const MAX_MADE: usize = 64 << 10;
/// Bytes that one evaluation takes for what it makes, though much of it is given back meanwhile.
pub(crate) const BUDGET: usize = 64 << 20;
/// Bytes of a constant text that an expression makes of shorter ones: it stays, and is in the fingerprint.
pub(crate) const MAX_CONSTANT: usize = 64 << 10;

pub(crate) struct Evaluation<'a> {
    pub(crate) records: &'a RecordBatch,
    longest: usize,
    left: Cell<usize>,
    is_exhausted: Cell<bool>,
    misfits: RefCell<Vec<u32>>,
}

/// A place in the list of misfits: those that come later are of the operand that is evaluated now.
#[derive(Clone, Copy)]
pub(crate) struct Mark(usize);

impl<'a> Evaluation<'a> {
    pub(crate) fn new(records: &'a RecordBatch) -> Self {
        Self {
            records,
            longest: MAX_MADE,
            left: Cell::new(BUDGET),
            is_exhausted: Cell::default(),
            misfits: RefCell::default(),
        }
    }

    /// Of a constant, while an expression is bound.
    pub(crate) fn constant(records: &'a RecordBatch) -> Self {
        Self { longest: MAX_CONSTANT, ..Self::new(records) }
    }

    pub(crate) fn rows(&self) -> usize {
        self.records.num_rows()
    }

    /// Whether a text of this length may be made of others the longest of which has `of` bytes.
    pub(crate) fn may_make(&self, bytes: usize, of: usize) -> bool {
        bytes <= self.longest.max(of)
    }

    /// Takes memory.
    ///
    /// # Errors
    /// Where all rows together need too much; [`Evaluation::is_exhausted`] holds then.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), SqlError> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.is_exhausted.set(true);
                Err(SqlError::new(format!("the evaluation takes more than {BUDGET} bytes")))
            }
        }
    }

    /// Takes the memory of a column of values that are not texts, or of the views of texts.
    ///
    /// # Errors
    /// As [`Evaluation::take`].
    pub(crate) fn take_column(&self, data_type: &DataType) -> Result<(), SqlError> {
        let width = match data_type {
            DataType::Bool => 1,
            // With its digits, while it is computed.
            DataType::Decimal { .. } => 64,
            _ => 16,
        };
        self.take(self.rows().saturating_mul(width))
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    /// Notes that a row has no value because it went beyond a bound; of a scalar, every row.
    ///
    /// # Errors
    /// As [`Evaluation::take`]: the list is memory, too.
    pub(crate) fn misfit(&self, row: usize, is_scalar: bool) -> Result<(), SqlError> {
        // Batches have fewer rows than 2^32.
        let rows = if is_scalar { 0..self.rows() as u32 } else { row as u32..row as u32 + 1 };
        self.take(rows.len() * size_of::<u32>())?;
        self.misfits.borrow_mut().extend(rows);
        Ok(())
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark(self.misfits.borrow().len())
    }

    /// Keeps those of the misfits since `mark` for whose row the value was needed.
    pub(crate) fn keep(&self, mark: Mark, is_needed: impl Fn(usize) -> bool) {
        let mut misfits = self.misfits.borrow_mut();
        if misfits.len() > mark.0 {
            let since = misfits.split_off(mark.0);
            misfits.extend(since.into_iter().filter(|row| is_needed(*row as usize)));
        }
    }

    /// Takes the misfits since `mark` away.
    pub(crate) fn take_since(&self, mark: Mark) -> Vec<u32> {
        self.misfits.borrow_mut().split_off(mark.0)
    }

    pub(crate) fn put_back(&self, rows: impl IntoIterator<Item = u32>) {
        self.misfits.borrow_mut().extend(rows);
    }

    /// All rows that went beyond a bound, ascending.
    pub(crate) fn into_misfits(self) -> Vec<u32> {
        let mut misfits = self.misfits.into_inner();
        misfits.sort_unstable();
        misfits.dedup();
        misfits
    }
}
