//! Columns of an operator's output, appended to value by value.
//!
//! A value that turns out to be one too many is taken back with [`Builder::truncate`]: of a record that was begun and
//! not sent, or of a field that was set twice.

use std::net::IpAddr;
use std::sync::Arc;

use arrow_array::builder::make_view;
use arrow_array::types::{Decimal128Type, Decimal256Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, Float64Array, Int64Array,
    PrimitiveArray, StringViewArray, UInt64Array, new_null_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, ScalarBuffer, i256};
use arrow_select::interleave::interleave;
use thalweg_types::{DataType, Error, Field, TimeUnit, validity};

use super::column::{Column, Values};
use super::{Decimal, Timestamp};

/// Bytes of one text or blob; a view has 32 bits for its length and its place.
const LONGEST: usize = 1 << 30;
/// Bytes that a view holds itself.
const INLINE: usize = 12;

pub struct Builder {
    field: Field,
    cells: Cells,
    /// Rows that are null, ascending.
    nulls: Vec<u32>,
}

enum Cells {
    Bool(Vec<bool>),
    Int64(Vec<i64>),
    UInt64(Vec<u64>),
    Float64(Vec<f64>),
    Decimal128(Vec<i128>, Fixed),
    Decimal256(Vec<i256>, Fixed),
    String(Views),
    Bytes(Views),
    Time(Vec<i64>, TimeUnit),
    Ip(Vec<u8>),
    /// Copies of lists and structs; `None` is null.
    Nested(Vec<Option<(ArrayRef, u32)>>),
}

/// Of a decimal field.
#[derive(Clone, Copy)]
struct Fixed {
    precision: u8,
    scale: i8,
}

#[derive(Default)]
struct Views {
    views: Vec<u128>,
    full: Vec<Buffer>,
    /// The buffer that long texts go to now.
    open: Vec<u8>,
    /// Address and length of the text that was copied last, and the view of the copy. Texts that are copied are in
    /// batches which live until the column is finished, so an address is one text's until then.
    copied: Option<((usize, usize), u128)>,
}

impl Views {
    fn push(&mut self, text: &[u8]) {
        if text.len() <= INLINE {
            self.views.push(make_view(text, 0, 0));
            return;
        }
        if self.open.len() + text.len() > LONGEST {
            self.full.push(std::mem::take(&mut self.open).into());
        }
        let (buffer, start) = (self.full.len() as u32, self.open.len() as u32);
        self.open.extend_from_slice(text);
        self.views.push(make_view(text, buffer, start));
    }

    /// The same for a text of a record that is copied: many records that are made of one share the bytes of its texts.
    fn push_copy(&mut self, text: &[u8]) {
        let stands = (text.as_ptr() as usize, text.len());
        match self.copied {
            Some((same, view)) if same == stands => self.views.push(view),
            _ => {
                self.push(text);
                self.copied = self.views.last().map(|view| (stands, *view));
            }
        }
    }

    fn take(&mut self) -> (ScalarBuffer<u128>, Vec<Buffer>) {
        self.copied = None;
        let mut buffers = std::mem::take(&mut self.full);
        if !self.open.is_empty() {
            buffers.push(taken(&mut self.open).into());
        }
        (taken(&mut self.views).into(), buffers)
    }
}

/// The elements, and room for as many where they were: the next batch is about as large.
fn taken<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(values.len());
    std::mem::replace(values, room)
}

/// The elements of a vector, whatever their type.
macro_rules! each_cells {
    ($cells:expr, $values:ident => $do:expr, $octets:ident => $for_octets:expr) => {
        match $cells {
            Cells::Bool($values) => $do,
            Cells::Int64($values) | Cells::Time($values, _) => $do,
            Cells::UInt64($values) => $do,
            Cells::Float64($values) => $do,
            Cells::Decimal128($values, _) => $do,
            Cells::Decimal256($values, _) => $do,
            Cells::String(Views { views: $values, .. }) | Cells::Bytes(Views { views: $values, .. }) => $do,
            Cells::Nested($values) => $do,
            Cells::Ip($octets) => $for_octets,
        }
    };
}

impl Builder {
    pub(super) fn new(field: &Field) -> Self {
        let cells = match &field.data_type {
            DataType::Bool => Cells::Bool(Vec::new()),
            DataType::Int64 => Cells::Int64(Vec::new()),
            DataType::UInt64 => Cells::UInt64(Vec::new()),
            DataType::Float64 => Cells::Float64(Vec::new()),
            DataType::Decimal { precision, scale } => {
                let fixed = Fixed { precision: *precision, scale: *scale };
                match *precision {
                    ..=38 => Cells::Decimal128(Vec::new(), fixed),
                    _ => Cells::Decimal256(Vec::new(), fixed),
                }
            }
            DataType::String => Cells::String(Views::default()),
            DataType::Bytes => Cells::Bytes(Views::default()),
            DataType::Timestamp(unit) => Cells::Time(Vec::new(), *unit),
            DataType::Ip => Cells::Ip(Vec::new()),
            DataType::List(_) | DataType::Struct(_) => Cells::Nested(Vec::new()),
        };
        Self { field: field.clone(), cells, nulls: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        each_cells!(&self.cells, values => values.len(), octets => octets.len() / 16)
    }

    /// Removes the values that were appended after `rows` rows.
    pub(super) fn truncate(&mut self, rows: usize) {
        if self.len() > rows
            && let Cells::String(views) | Cells::Bytes(views) = &mut self.cells
        {
            // It may be of a batch that is gone.
            views.copied = None;
        }
        each_cells!(&mut self.cells, values => values.truncate(rows), octets => octets.truncate(rows * 16));
        while self.nulls.last().is_some_and(|row| *row as usize >= rows) {
            self.nulls.pop();
        }
    }

    pub(super) fn refuse(&self, got: &str) -> Result<(), Error> {
        let Field { name, data_type, .. } = &self.field;
        Err(Error::user(format!("field {name:?}: expected {data_type}, got {got}")))
    }

    pub(super) fn push_null(&mut self) -> Result<(), Error> {
        if !self.field.nullable {
            let Field { name, data_type, .. } = &self.field;
            return Err(Error::user(format!("field {name:?}: expected {data_type}, got null"))
                .with_hint("set it, or make it nullable in the schema of the output"));
        }
        self.nulls.push(self.len() as u32);
        match &mut self.cells {
            Cells::Bool(values) => values.push(false),
            Cells::Int64(values) | Cells::Time(values, _) => values.push(0),
            Cells::UInt64(values) => values.push(0),
            Cells::Float64(values) => values.push(0.0),
            Cells::Decimal128(values, _) => values.push(0),
            Cells::Decimal256(values, _) => values.push(i256::ZERO),
            Cells::String(views) | Cells::Bytes(views) => views.views.push(0),
            Cells::Ip(octets) => octets.extend_from_slice(&[0; 16]),
            Cells::Nested(values) => values.push(None),
        }
        Ok(())
    }

    #[inline]
    pub(super) fn push_bool(&mut self, value: bool) -> Result<(), Error> {
        let Cells::Bool(values) = &mut self.cells else { return self.refuse("a bool") };
        values.push(value);
        Ok(())
    }

    #[inline]
    pub(super) fn push_i64(&mut self, value: i64) -> Result<(), Error> {
        let Cells::Int64(values) = &mut self.cells else { return self.refuse("an int64") };
        values.push(value);
        Ok(())
    }

    #[inline]
    pub(super) fn push_u64(&mut self, value: u64) -> Result<(), Error> {
        let Cells::UInt64(values) = &mut self.cells else { return self.refuse("a uint64") };
        values.push(value);
        Ok(())
    }

    #[inline]
    pub(super) fn push_f64(&mut self, value: f64) -> Result<(), Error> {
        let Cells::Float64(values) = &mut self.cells else { return self.refuse("a float64") };
        values.push(value);
        Ok(())
    }

    pub(super) fn push_str(&mut self, text: &str) -> Result<(), Error> {
        match &mut self.cells {
            Cells::String(views) if text.len() <= LONGEST => views.push(text.as_bytes()),
            _ => return self.refuse(&format!("a text of {} bytes", text.len())),
        }
        Ok(())
    }

    pub(super) fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.cells {
            Cells::Bytes(views) if bytes.len() <= LONGEST => views.push(bytes),
            _ => return self.refuse(&format!("{} bytes", bytes.len())),
        }
        Ok(())
    }

    /// At the scale of the field; digits that it does not keep are refused, not rounded.
    pub(super) fn push_decimal(&mut self, value: Decimal) -> Result<(), Error> {
        let Decimal { unscaled, scale } = value;
        let got = || format!("{unscaled} with {scale} places");
        let fitting = |fixed: Fixed| {
            let ten = i256::from_i128(10);
            let factor = ten.checked_pow(u32::from(fixed.scale.abs_diff(scale)))?;
            let scaled = match fixed.scale < scale {
                false => unscaled.checked_mul(factor)?,
                true if unscaled.checked_rem(factor)? == i256::ZERO => unscaled.checked_div(factor)?,
                true => return None,
            };
            let limit = ten.checked_pow(u32::from(fixed.precision))?;
            (scaled < limit && scaled > i256::ZERO.checked_sub(limit)?).then_some(scaled)
        };
        match &mut self.cells {
            Cells::Decimal128(values, fixed) => match fitting(*fixed).and_then(i256::to_i128) {
                Some(value) => values.push(value),
                None => return self.refuse(&got()),
            },
            Cells::Decimal256(values, fixed) => match fitting(*fixed) {
                Some(value) => values.push(value),
                None => return self.refuse(&got()),
            },
            _ => return self.refuse("a decimal"),
        }
        Ok(())
    }

    /// In the unit of the field, rounded down where that is coarser.
    pub(super) fn push_timestamp(&mut self, value: Timestamp) -> Result<(), Error> {
        let Cells::Time(values, unit) = &mut self.cells else { return self.refuse("a timestamp") };
        let count = match *unit == value.unit {
            true => Some(value.count),
            false => {
                let nanos = i128::from(value.count) * nanos_of(value.unit);
                i64::try_from(nanos.div_euclid(nanos_of(*unit))).ok()
            }
        };
        match count {
            Some(count) => values.push(count),
            None => return self.refuse(&format!("{} {}, out of its range", value.count, value.unit.name())),
        }
        Ok(())
    }

    pub(super) fn push_ip(&mut self, ip: IpAddr) -> Result<(), Error> {
        let Cells::Ip(octets) = &mut self.cells else { return self.refuse("an ip") };
        let v6 = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        octets.extend_from_slice(&v6.octets());
        Ok(())
    }

    /// Appends the values of a column of the same type, bit by bit.
    pub(super) fn push_copy(&mut self, column: &Column<'_>, row: usize) -> Result<(), Error> {
        if column.is_null(row) {
            return self.push_null();
        }
        match (&mut self.cells, column.values) {
            (Cells::Bool(values), Values::Bool(from)) => values.push(from.value(row)),
            (Cells::Int64(values), Values::Int64(from)) => values.push(from[row]),
            (Cells::UInt64(values), Values::UInt64(from)) => values.push(from[row]),
            (Cells::Float64(values), Values::Float64(from)) => values.push(from[row]),
            (Cells::Decimal128(values, _), Values::Decimal128(from, _)) => values.push(from[row]),
            (Cells::Decimal256(values, _), Values::Decimal256(from, _)) => values.push(from[row]),
            (Cells::String(views), Values::String(from)) => views.push_copy(from.value(row).as_bytes()),
            (Cells::Bytes(views), Values::Bytes(from)) => views.push_copy(from.value(row)),
            (Cells::Time(values, _), Values::Time(from, _)) => values.push(from[row]),
            (Cells::Ip(octets), Values::Ip(from)) => octets.extend_from_slice(from.value(row)),
            (Cells::Nested(values), Values::Nested) => {
                values.push(Some((Arc::clone(column.array), row as u32)));
            }
            _ => return self.refuse(&format!("a column of Arrow type {}", column.array.data_type())),
        }
        Ok(())
    }

    /// The finished column; the builder is empty afterwards.
    pub(super) fn finish(&mut self) -> Result<ArrayRef, Error> {
        let rows = self.len();
        let nulls = validity(rows, &self.nulls);
        self.nulls.clear();
        let column: ArrayRef = match &mut self.cells {
            Cells::Bool(values) => Arc::new(BooleanArray::new(BooleanBuffer::from(&values[..]), nulls)),
            Cells::Int64(values) => Arc::new(Int64Array::new(taken(values).into(), nulls)),
            Cells::UInt64(values) => Arc::new(UInt64Array::new(taken(values).into(), nulls)),
            Cells::Float64(values) => Arc::new(Float64Array::new(taken(values).into(), nulls)),
            Cells::Decimal128(values, _) => Arc::new(
                PrimitiveArray::<Decimal128Type>::new(taken(values).into(), nulls)
                    .with_data_type(self.field.data_type.to_arrow()),
            ),
            Cells::Decimal256(values, _) => Arc::new(
                PrimitiveArray::<Decimal256Type>::new(taken(values).into(), nulls)
                    .with_data_type(self.field.data_type.to_arrow()),
            ),
            Cells::String(views) => {
                let (views, buffers) = views.take();
                Arc::new(StringViewArray::try_new(views, buffers, nulls).map_err(broken)?)
            }
            Cells::Bytes(views) => {
                let (views, buffers) = views.take();
                Arc::new(BinaryViewArray::try_new(views, buffers, nulls).map_err(broken)?)
            }
            Cells::Time(values, unit) => unit.column(ScalarBuffer::from(taken(values)), nulls),
            Cells::Ip(octets) => Arc::new(FixedSizeBinaryArray::new(16, Buffer::from(taken(octets)), nulls)),
            Cells::Nested(values) => {
                // Array 0 is one null; copies of one batch are together and share their array.
                let mut arrays = vec![new_null_array(&self.field.data_type.to_arrow(), 1)];
                let mut picks = Vec::with_capacity(rows);
                for value in values.drain(..) {
                    picks.push(match value {
                        None => (0, 0),
                        Some((array, row)) => {
                            if arrays.len() == 1 || !Arc::ptr_eq(&arrays[arrays.len() - 1], &array) {
                                arrays.push(array);
                            }
                            (arrays.len() - 1, row as usize)
                        }
                    });
                }
                let arrays: Vec<&dyn Array> = arrays.iter().map(|array| &**array).collect();
                interleave(&arrays, &picks).map_err(broken)?
            }
        };
        self.truncate(0);
        Ok(column)
    }
}

fn nanos_of(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Milli => 1_000_000,
        TimeUnit::Micro => 1_000,
        TimeUnit::Nano => 1,
    }
}

fn broken(error: arrow_schema::ArrowError) -> Error {
    Error::internal("make a column of emitted records").with_source(error)
}
