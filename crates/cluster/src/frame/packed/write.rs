//! Writing: rows are picked from the columns of several batches.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer};
use arrow_schema::{DataType, TimeUnit};
use thalweg_types::Micros;

use super::super::{FrameError, varint};
use super::scale::{self, Scale};
use super::{IPV4, NULLS, SCALED, WIDE};

/// Rows of a batch, in order.
#[derive(Clone, Debug)]
pub(crate) enum Rows<'a> {
    Run(Range<usize>),
    Some(&'a [u32]),
}

/// Columns, and the rows of them to write.
#[derive(Clone, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) columns: &'a [ArrayRef],
    pub(crate) rows: Rows<'a>,
}

impl<'a> Rows<'a> {
    /// A run where the rows follow each other, which is faster.
    pub(crate) fn of(rows: &'a [u32]) -> Self {
        match rows {
            [first, ..] if rows.windows(2).all(|pair| pair[0] + 1 == pair[1]) => {
                Rows::Run(*first as usize..*first as usize + rows.len())
            }
            _ => Rows::Some(rows),
        }
    }

    fn len(&self) -> usize {
        match self {
            Rows::Run(run) => run.len(),
            Rows::Some(rows) => rows.len(),
        }
    }

    #[inline]
    fn each(&self, see: impl FnMut(usize)) {
        match self {
            Rows::Run(run) => run.clone().for_each(see),
            Rows::Some(rows) => rows.iter().map(|row| *row as usize).for_each(see),
        }
    }

    /// Rows that have a value.
    #[inline]
    fn each_valid(&self, nulls: Option<&NullBuffer>, mut see: impl FnMut(usize)) {
        match nulls {
            None => self.each(see),
            Some(nulls) => self.each(|row| {
                if nulls.is_valid(row) {
                    see(row);
                }
            }),
        }
    }
}

/// The nulls of a column that has some.
fn nulls(column: &ArrayRef) -> Option<&NullBuffer> {
    column.nulls().filter(|nulls| nulls.null_count() > 0)
}

/// Appends a section with the rows of all pieces, in order: one piece at least, all of the same types.
///
/// # Errors
/// [`FrameError::Unsupported`] for a type that is no field's.
pub(crate) fn write(pieces: &[Piece<'_>], base: Micros, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let columns = pieces[0].columns;
    let mut values = Vec::new();
    let (mut wide, mut scaled) = (Vec::new(), Vec::new());
    for (index, column) in columns.iter().enumerate() {
        match put_values(column.data_type(), pieces, index, base, &mut values)? {
            Form::Only => {}
            Form::Integers { is_wide } => wide.push(is_wide),
            Form::Floats { is_scaled } => scaled.push(is_scaled),
        }
    }
    let has_nulls: Vec<bool> = (0..columns.len()).map(|index| any_null(pieces, index)).collect();
    let flag = |is_set: &[bool], flag: u8| if is_set.contains(&true) { flag } else { 0 };
    let flags = flag(&has_nulls, NULLS) | flag(&wide, WIDE) | flag(&scaled, SCALED);
    out.push(flags);

    let mut bits = BooleanBufferBuilder::new(0);
    for (flag, of_columns) in [(NULLS, &has_nulls), (WIDE, &wide), (SCALED, &scaled)] {
        if flags & flag != 0 {
            bits.append_slice(of_columns);
        }
    }
    for index in (0..columns.len()).filter(|index| has_nulls[*index]) {
        for piece in pieces {
            match piece.columns[index].nulls() {
                Some(nulls) => append_bits(&piece.rows, nulls.inner(), &mut bits),
                None => bits.append_n(piece.rows.len(), true),
            }
        }
    }
    for index in (0..columns.len()).filter(|index| columns[*index].as_boolean_opt().is_some()) {
        for piece in pieces {
            append_bits(&piece.rows, piece.columns[index].as_boolean().values(), &mut bits);
        }
    }
    out.extend_from_slice(bits.as_slice());
    out.extend_from_slice(&values);
    Ok(())
}

fn any_null(pieces: &[Piece<'_>], index: usize) -> bool {
    pieces.iter().any(|piece| {
        nulls(&piece.columns[index]).is_some_and(|nulls| match &piece.rows {
            Rows::Run(run) => nulls.slice(run.start, run.len()).null_count() > 0,
            Rows::Some(rows) => rows.iter().any(|row| nulls.is_null(*row as usize)),
        })
    })
}

fn append_bits(rows: &Rows<'_>, values: &BooleanBuffer, bits: &mut BooleanBufferBuilder) {
    match rows {
        Rows::Run(run) => bits.append_buffer(&values.slice(run.start, run.len())),
        Rows::Some(rows) => rows.iter().for_each(|row| bits.append(values.value(*row as usize))),
    }
}

/// How the values of a column are written, if there is a choice.
enum Form {
    Only,
    Integers { is_wide: bool },
    Floats { is_scaled: bool },
}

/// Appends the values of a column.
fn put_values(
    data_type: &DataType,
    pieces: &[Piece<'_>],
    index: usize,
    base: Micros,
    out: &mut Vec<u8>,
) -> Result<Form, FrameError> {
    match data_type {
        DataType::Boolean => {}
        DataType::Int64 => return Ok(put_words::<Int64Type>(pieces, index, 0, out)),
        DataType::UInt64 => return Ok(put_words::<UInt64Type>(pieces, index, 0, out)),
        DataType::Timestamp(unit, None) => {
            let base = thalweg_types::TimeUnit::of_arrow(*unit).from_micros(base).unwrap_or(0);
            return Ok(match unit {
                TimeUnit::Second => put_words::<TimestampSecondType>(pieces, index, base, out),
                TimeUnit::Millisecond => put_words::<TimestampMillisecondType>(pieces, index, base, out),
                TimeUnit::Microsecond => put_words::<TimestampMicrosecondType>(pieces, index, base, out),
                TimeUnit::Nanosecond => put_words::<TimestampNanosecondType>(pieces, index, base, out),
            });
        }
        DataType::Float64 => return Ok(put_floats(pieces, index, out)),
        DataType::Decimal128(..) => {
            put_each::<Decimal128Type>(pieces, index, |value| put_short(&value.to_le_bytes(), out));
        }
        DataType::Decimal256(..) => {
            put_each::<Decimal256Type>(pieces, index, |value| put_short(&value.to_le_bytes(), out));
        }
        DataType::Utf8View => {
            for piece in pieces {
                let texts = piece.columns[index].as_string_view();
                piece.rows.each_valid(nulls(&piece.columns[index]), |row| {
                    put_bytes(texts.value(row).as_bytes(), out);
                });
            }
        }
        DataType::BinaryView => {
            for piece in pieces {
                let blobs = piece.columns[index].as_binary_view();
                piece.rows.each_valid(nulls(&piece.columns[index]), |row| put_bytes(blobs.value(row), out));
            }
        }
        DataType::FixedSizeBinary(16) => {
            for piece in pieces {
                let addresses = piece.columns[index].as_fixed_size_binary();
                piece.rows.each_valid(nulls(&piece.columns[index]), |row| {
                    let octets = addresses.value(row);
                    put_bytes(octets.strip_prefix(&IPV4).unwrap_or(octets), out);
                });
            }
        }
        DataType::List(_) => put_lists(pieces, index, base, out)?,
        DataType::Struct(_) => put_structs(pieces, index, base, out)?,
        other => return Err(FrameError::Unsupported { data_type: other.clone() }),
    }
    Ok(Form::Only)
}

/// Values of a primitive column that are not null.
#[inline]
fn put_each<T: ArrowPrimitiveType>(pieces: &[Piece<'_>], index: usize, mut put: impl FnMut(T::Native)) {
    for piece in pieces {
        let column = &piece.columns[index];
        let values = column.as_primitive::<T>().values();
        match (&piece.rows, nulls(column)) {
            (Rows::Run(run), None) => values[run.clone()].iter().for_each(|value| put(*value)),
            (rows, nulls) => rows.each_valid(nulls, |row| put(values[row])),
        }
    }
}

/// A value of 64 bits.
trait Word: Copy {
    fn word(self) -> i64;
}

impl Word for i64 {
    fn word(self) -> i64 {
        self
    }
}

impl Word for u64 {
    fn word(self) -> i64 {
        self as i64
    }
}

/// Appends integers as differences or, where that is shorter, as 8 bytes each.
fn put_words<T: ArrowPrimitiveType>(pieces: &[Piece<'_>], index: usize, base: i64, out: &mut Vec<u8>) -> Form
where
    T::Native: Word,
{
    let (start, mut last, mut count) = (out.len(), base, 0);
    put_each::<T>(pieces, index, |value| {
        let value = value.word();
        varint::put_signed(value.wrapping_sub(last), out);
        last = value;
        count += 1;
    });
    // One more, as the flag may cost the bits of all columns.
    let is_wide = out.len() - start > 8 * count + 1;
    if is_wide {
        out.truncate(start);
        put_each::<T>(pieces, index, |value| out.extend_from_slice(&value.word().to_le_bytes()));
    }
    Form::Integers { is_wide }
}

/// Appends floats, scaled to integers where that is shorter.
fn put_floats(pieces: &[Piece<'_>], index: usize, out: &mut Vec<u8>) -> Form {
    let (start, mut count, mut scale) = (out.len(), 0, Scale::new());
    put_each::<Float64Type>(pieces, index, |value| {
        scale.see(value);
        count += 1;
    });
    if let Some(power) = scale.power() {
        out.push(power as u8);
        let mut last = 0;
        put_each::<Float64Type>(pieces, index, |value| {
            let integer = scale::to_integer(value, power);
            varint::put_signed(integer.wrapping_sub(last), out);
            last = integer;
        });
        // One more, as the flag may cost the bits of all columns.
        if out.len() - start + 1 < 8 * count {
            return Form::Floats { is_scaled: true };
        }
        out.truncate(start);
    }
    put_each::<Float64Type>(pieces, index, |value| out.extend_from_slice(&value.to_bits().to_le_bytes()));
    Form::Floats { is_scaled: false }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint::put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// A number in two's complement, without the upper bytes that only repeat its sign.
fn put_short(bytes: &[u8], out: &mut Vec<u8>) {
    let is_negative = bytes[bytes.len() - 1] & 0x80 != 0;
    let filler = if is_negative { 0xff } else { 0 };
    let is_needed = |place: &usize| {
        let below = if *place == 0 { 0 } else { bytes[place - 1] };
        bytes[*place] != filler || (below & 0x80 != 0) != is_negative
    };
    let len = (0..bytes.len()).rev().find(is_needed).map_or(0, |place| place + 1);
    out.push(len as u8);
    out.extend_from_slice(&bytes[..len]);
}

fn put_lists(pieces: &[Piece<'_>], index: usize, base: Micros, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let mut items: Vec<(&ArrayRef, Vec<u32>)> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let lists = piece.columns[index].as_list::<i32>();
        let offsets = lists.value_offsets();
        let mut rows = Vec::new();
        piece.rows.each_valid(nulls(&piece.columns[index]), |row| {
            let run = offsets[row] as u32..offsets[row + 1] as u32;
            varint::put(run.len() as u64, out);
            rows.extend(run);
        });
        items.push((lists.values(), rows));
    }
    let inner: Vec<Piece<'_>> = items
        .iter()
        .map(|(values, rows)| Piece { columns: std::slice::from_ref(*values), rows: Rows::of(rows) })
        .collect();
    write(&inner, base, out)
}

fn put_structs(
    pieces: &[Piece<'_>],
    index: usize,
    base: Micros,
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let mut rows: Vec<Vec<u32>> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let mut picked = Vec::with_capacity(piece.rows.len());
        piece.rows.each_valid(nulls(&piece.columns[index]), |row| picked.push(row as u32));
        rows.push(picked);
    }
    let inner: Vec<Piece<'_>> = pieces
        .iter()
        .zip(&rows)
        .map(|(piece, rows)| Piece {
            columns: piece.columns[index].as_struct().columns(),
            rows: Rows::of(rows),
        })
        .collect();
    write(&inner, base, out)
}
