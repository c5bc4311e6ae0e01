//! A node's value: one element per row, or one for all of them.

use std::sync::Arc;

use arrow_array::builder::PrimitiveBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, Datum, PrimitiveArray, UInt32Array, new_null_array,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer};
use arrow_schema::DataType;
use arrow_select::take::take;

use super::internal;
use crate::SqlError;

#[derive(Clone, Debug)]
pub(crate) enum Column {
    Array(ArrayRef),
    /// One row that represents every row.
    Scalar(ArrayRef),
}

impl Column {
    pub(crate) fn array(&self) -> &ArrayRef {
        match self {
            Column::Array(array) | Column::Scalar(array) => array,
        }
    }

    pub(crate) fn is_scalar(&self) -> bool {
        matches!(self, Column::Scalar(_))
    }

    pub(crate) fn is_null_scalar(&self) -> bool {
        matches!(self, Column::Scalar(array) if array.is_null(0))
    }

    pub(crate) fn data_type(&self) -> &DataType {
        self.array().data_type()
    }

    pub(crate) fn null_scalar(data_type: &DataType) -> Self {
        Column::Scalar(new_null_array(data_type, 1))
    }

    /// One element per row.
    pub(crate) fn into_array(self, rows: usize) -> Result<ArrayRef, SqlError> {
        match self {
            Column::Array(array) => Ok(array),
            Column::Scalar(array) if rows == 1 => Ok(array),
            Column::Scalar(array) if array.is_null(0) => Ok(new_null_array(array.data_type(), rows)),
            Column::Scalar(array) => take(&array, &UInt32Array::from(vec![0; rows]), None).map_err(internal),
        }
    }

    /// The same shape as `self` with other elements.
    pub(crate) fn same_shape(&self, array: ArrayRef) -> Self {
        match self {
            Column::Array(_) => Column::Array(array),
            Column::Scalar(_) => Column::Scalar(array),
        }
    }

    /// A column of booleans, expanded.
    pub(crate) fn booleans(self, rows: usize) -> Result<BooleanArray, SqlError> {
        Ok(self.into_array(rows)?.as_boolean().clone())
    }
}

impl Datum for Column {
    fn get(&self) -> (&dyn Array, bool) {
        (self.array().as_ref(), self.is_scalar())
    }
}

/// What one side of a binary kernel reads.
pub(crate) enum Operand<'a, T> {
    Each(&'a [T]),
    One(T),
}

impl<'a, T: ArrowNativeType> Operand<'a, T> {
    pub(crate) fn of<P: ArrowPrimitiveType<Native = T>>(column: &'a Column) -> Self {
        let array = column.array().as_primitive::<P>();
        if column.is_scalar() { Operand::One(array.value(0)) } else { Operand::Each(array.values()) }
    }

    #[inline]
    pub(crate) fn at(&self, row: usize) -> T {
        match self {
            Operand::Each(values) => values[row],
            Operand::One(value) => *value,
        }
    }
}

/// Where either side is null; scalars that are null are the caller's business.
pub(crate) fn either_null(a: &Column, b: &Column) -> Option<NullBuffer> {
    let nulls = |column: &Column| match column {
        Column::Array(array) => array.nulls().cloned(),
        Column::Scalar(_) => None,
    };
    NullBuffer::union(nulls(a).as_ref(), nulls(b).as_ref())
}

/// Rows of a result of both: one where both are scalars.
pub(crate) fn rows_of(a: &Column, b: &Column) -> usize {
    match (a, b) {
        (Column::Array(array), _) | (_, Column::Array(array)) => array.len(),
        _ => 1,
    }
}

/// The result of a binary kernel: a scalar where both operands are.
pub(crate) fn result_of(a: &Column, b: &Column, array: ArrayRef) -> Column {
    if a.is_scalar() && b.is_scalar() { Column::Scalar(array) } else { Column::Array(array) }
}

/// `f` of every pair, in a loop that the compiler sees for each shape.
#[inline]
pub(crate) fn zip_rows<A: Copy, B: Copy, R>(
    a: &Operand<'_, A>,
    b: &Operand<'_, B>,
    f: impl Fn(A, B) -> R,
) -> Vec<R> {
    match (a, b) {
        (Operand::Each(a), Operand::Each(b)) => a.iter().zip(*b).map(|(a, b)| f(*a, *b)).collect(),
        (Operand::Each(a), Operand::One(b)) => a.iter().map(|a| f(*a, *b)).collect(),
        (Operand::One(a), Operand::Each(b)) => b.iter().map(|b| f(*a, *b)).collect(),
        (Operand::One(a), Operand::One(b)) => vec![f(*a, *b)],
    }
}

/// `f` of every pair as bits.
#[inline]
pub(crate) fn zip_bits<A: Copy, B: Copy>(
    a: &Operand<'_, A>,
    b: &Operand<'_, B>,
    f: impl Fn(A, B) -> bool,
) -> BooleanBuffer {
    match (a, b) {
        (Operand::Each(a), Operand::Each(b)) => BooleanBuffer::collect_bool(a.len(), |row| f(a[row], b[row])),
        (Operand::Each(a), Operand::One(b)) => BooleanBuffer::collect_bool(a.len(), |row| f(a[row], *b)),
        (Operand::One(a), Operand::Each(b)) => BooleanBuffer::collect_bool(b.len(), |row| f(*a, b[row])),
        (Operand::One(a), Operand::One(b)) => BooleanBuffer::collect_bool(1, |_| f(*a, *b)),
    }
}

/// The same number; every NaN is the one of CSV and `CAST`.
///
/// Which bits a NaN has that is computed depends on the processor, on the order in which a compiler takes two operands,
/// and on whether it computed a constant by itself.
#[inline]
pub(crate) fn one_nan(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// A column of values with nulls in the rows in `bad`.
pub(crate) fn without_rows<P: ArrowPrimitiveType>(
    values: Vec<P::Native>,
    nulls: Option<NullBuffer>,
    bad: &[usize],
) -> PrimitiveArray<P> {
    if bad.is_empty() {
        return PrimitiveArray::new(values.into(), nulls);
    }
    let mut next = bad.iter().copied().peekable();
    let good = BooleanBuffer::collect_bool(values.len(), |row| next.next_if_eq(&row).is_none());
    let nulls = NullBuffer::union(nulls.as_ref(), Some(&NullBuffer::new(good)));
    PrimitiveArray::new(values.into(), nulls)
}

/// A column made row by row; `None` is null.
pub(crate) fn from_options<P: ArrowPrimitiveType>(
    values: impl Iterator<Item = Option<P::Native>>,
) -> PrimitiveArray<P> {
    let mut builder = PrimitiveBuilder::with_capacity(values.size_hint().0);
    values.for_each(|value| builder.append_option(value));
    builder.finish()
}

pub(crate) fn arc(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}
