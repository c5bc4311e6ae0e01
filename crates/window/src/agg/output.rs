//! Columns under construction: values, which of them are there, which did not fit.

use std::sync::Arc;

use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use smallvec::{SmallVec, smallvec};

use super::Column;

/// One bit per row, set without branches.
pub(super) struct Bits {
    bytes: SmallVec<[u8; 8]>,
    rows: usize,
}

impl Bits {
    pub(super) fn new(rows: usize) -> Self {
        Self { bytes: smallvec![0; rows.div_ceil(8)], rows }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, row: usize, value: bool) {
        self.bytes[row >> 3] |= u8::from(value) << (row & 7);
    }

    /// `None` where every row is valid.
    pub(super) fn into_nulls(self) -> Option<NullBuffer> {
        let valid: usize = self.bytes.iter().map(|byte| byte.count_ones() as usize).sum();
        let bits = || BooleanBuffer::new(Buffer::from_vec(self.bytes.into_vec()), 0, self.rows);
        (valid < self.rows).then(|| NullBuffer::new(bits()))
    }
}

/// A column of plain values, one per step.
pub(super) struct Writer<T> {
    pub(super) values: Vec<T>,
    pub(super) valid: Bits,
    /// Steps whose value did not fit the output type, ascending.
    pub(super) errors: Vec<u32>,
}

impl<T: Copy + Default> Writer<T> {
    pub(super) fn new(rows: usize) -> Self {
        Self { values: vec![T::default(); rows], valid: Bits::new(rows), errors: Vec::new() }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, row: usize, value: T, valid: bool) {
        self.values[row] = value;
        self.valid.set(row, valid);
    }
}

impl Writer<i64> {
    pub(super) fn into_int64(self) -> Column {
        column::<Int64Type>(self)
    }
}

impl Writer<f64> {
    pub(super) fn into_float64(self) -> Column {
        column::<Float64Type>(self)
    }
}

fn column<P: ArrowPrimitiveType>(out: Writer<P::Native>) -> Column {
    let values: ArrayRef = Arc::new(PrimitiveArray::<P>::new(out.values.into(), out.valid.into_nulls()));
    Column { values, errors: out.errors }
}

/// The same column once per output.
pub(super) fn repeat(column: &Column, outputs: usize) -> Vec<Column> {
    vec![column.clone(); outputs]
}
