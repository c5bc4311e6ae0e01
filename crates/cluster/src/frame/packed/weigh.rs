//! What a row takes at most, without writing it.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Fields};
use thalweg_types::{Micros, TextLengths};

use super::super::{FrameError, MAX_ROW_BYTES, MAX_ROWS, varint};
use super::write::{Piece, Rows, write};

/// What a row counts beyond its values, and an item of a list at least: so a frame of half a megabyte has no more of
/// either than it may.
const LEAST: usize = 16;

/// Weighs rows of a schema: a bound of their bytes.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    /// Bytes of all values that have a fixed bound.
    fixed: usize,
    /// Columns with values of any length.
    varying: Vec<usize>,
}

/// What a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight {
    bytes: usize,
    /// Items of its lists.
    items: usize,
}

impl Weights {
    /// # Errors
    /// [`FrameError::Unsupported`] for a type that is no field's.
    pub(crate) fn new(fields: &Fields) -> Result<Self, FrameError> {
        let widths: Vec<usize> =
            fields.iter().map(|field| fixed(field.data_type())).collect::<Result<_, _>>()?;
        let varying = fields.iter().enumerate().filter(|(_, field)| varies(field.data_type()));
        Ok(Self { fixed: widths.iter().sum(), varying: varying.map(|(index, _)| index).collect() })
    }

    /// Weighs rows of some columns of the schema.
    pub(crate) fn of<'a>(&self, columns: &'a [ArrayRef]) -> Weigher<'a> {
        let mut weigher =
            Weigher { fixed: LEAST + self.fixed, columns, texts: Vec::new(), nested: Vec::new() };
        for column in self.varying.iter().map(|index| &columns[*index]) {
            match TextLengths::of(column) {
                Some(lengths) => weigher.texts.push(lengths),
                None => weigher.nested.push(column),
            }
        }
        weigher
    }
}

/// Weighs the rows of a batch.
#[derive(Debug)]
pub(crate) struct Weigher<'a> {
    fixed: usize,
    columns: &'a [ArrayRef],
    texts: Vec<TextLengths<'a>>,
    /// Columns of lists and structs with values of any length.
    nested: Vec<&'a ArrayRef>,
}

impl Weigher<'_> {
    /// Bytes that a row takes at most.
    ///
    /// # Errors
    /// [`FrameError::TooManyItems`], and [`FrameError::RowTooLarge`] if it really takes more than it may.
    #[inline]
    pub(crate) fn check(&self, row: usize, base: Micros) -> Result<usize, FrameError> {
        let texts: usize = self.texts.iter().map(|lengths| lengths.at(row as u32)).sum();
        let mut weight = Weight { bytes: self.fixed + texts, items: 0 };
        self.nested.iter().for_each(|column| add(column, row, &mut weight));
        if weight.items > MAX_ROWS {
            return Err(FrameError::TooManyItems { items: weight.items, most: MAX_ROWS });
        }
        if weight.bytes > MAX_ROW_BYTES {
            self.measure(row, base)?;
        }
        Ok(weight.bytes)
    }

    #[cold]
    fn measure(&self, row: usize, base: Micros) -> Result<(), FrameError> {
        let mut written = Vec::new();
        write(&[Piece { columns: self.columns, rows: Rows::Run(row..row + 1) }], base, &mut written)?;
        match written.len() {
            bytes if bytes > MAX_ROW_BYTES => Err(FrameError::RowTooLarge { bytes, most: MAX_ROW_BYTES }),
            _ => Ok(()),
        }
    }
}

fn varies(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView | DataType::List(_) => true,
        DataType::Struct(fields) => fields.iter().any(|field| varies(field.data_type())),
        _ => false,
    }
}

/// Bytes of a value, its bits among them, without those that vary.
fn fixed(data_type: &DataType) -> Result<usize, FrameError> {
    Ok(match data_type {
        DataType::Boolean => 1,
        DataType::Float64 => 9,
        // With the bits of a wide column.
        DataType::Int64 | DataType::UInt64 | DataType::Timestamp(_, None) => 1 + varint::MOST,
        DataType::Decimal128(..) | DataType::FixedSizeBinary(16) => 18,
        DataType::Decimal256(..) => 34,
        // The length.
        DataType::Utf8View | DataType::BinaryView => 1 + varint::MOST,
        // With flags and bits of the section of items.
        DataType::List(item) => {
            fixed(item.data_type())?;
            3 + varint::MOST
        }
        DataType::Struct(fields) => {
            let inner: Result<Vec<usize>, _> = fields.iter().map(|field| fixed(field.data_type())).collect();
            3 + inner?.iter().sum::<usize>()
        }
        other => return Err(FrameError::Unsupported { data_type: other.clone() }),
    })
}

/// Adds the bytes that a value has beyond the fixed ones.
fn add(column: &ArrayRef, row: usize, weight: &mut Weight) {
    if let Some(lengths) = TextLengths::of(column) {
        weight.bytes += lengths.at(row as u32);
        return;
    }
    if column.is_null(row) {
        return;
    }
    match column.data_type() {
        DataType::List(item) => {
            let lists = column.as_list::<i32>();
            let offsets = lists.value_offsets();
            let run = offsets[row] as usize..offsets[row + 1] as usize;
            weight.items += run.len();
            let each = fixed(item.data_type()).expect("types were checked with the schema");
            weight.bytes += run.len() * each.max(LEAST);
            if varies(item.data_type()) {
                run.for_each(|item| add(lists.values(), item, weight));
            }
        }
        DataType::Struct(_) => {
            column.as_struct().columns().iter().for_each(|column| {
                if varies(column.data_type()) {
                    add(column, row, weight);
                }
            });
        }
        _ => {}
    }
}
