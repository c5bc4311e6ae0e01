//! A 64-bit digest of rows that does not depend on their order or on how they were batched.
//!
//! Each row has a hash over its values in the order of the columns; the digest is the wrapping sum of the rows'
//! hashes. Equal values hash alike however the columns hold them (a string inside its view or in a buffer, a
//! selection or a copy), all NaNs are one, −0 and 0 are two. Null is a value of its own, and a null struct is not
//! a struct of nulls. Not kept across versions: compare digests of one build.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};
use thalweg_types::{Batch, hash_bytes};

const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xd1b5_4a32_d192_ed03;
const NULL: u64 = 0x6e75_6c6c_6b65_7921;

/// Rows hashed at a time, so that their hashes stay in the first cache.
const BLOCK: usize = 1024;

/// The digest of a batch's records; digests of batches add up, wrapping.
pub fn digest(batch: &Batch) -> u64 {
    let columns = batch.records().columns();
    let mut sum = 0_u64;
    let mut hashes = [0_u64; BLOCK];
    for start in (0..batch.len()).step_by(BLOCK) {
        let count = BLOCK.min(batch.len() - start);
        let hashes = &mut hashes[..count];
        hashes.fill(K0);
        let rows = match batch.selection() {
            Some(selection) => Rows::Picked(&selection[start..start + count]),
            None => Rows::Run(batch.row(start) as usize),
        };
        for column in columns {
            add_column(column, rows, hashes);
        }
        sum = hashes.iter().fold(sum, |sum, hash| sum.wrapping_add(fold(*hash, K1)));
    }
    sum
}

/// The rows of a column that belong to the hashes.
#[derive(Clone, Copy)]
enum Rows<'a> {
    Run(usize),
    Picked(&'a [u32]),
}

/// Folds a 64 × 64 bit product: the high half carries what the low half loses.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Takes a value into a row's hash; a chain of these depends on the order of the values.
#[inline(always)]
fn add(hash: &mut u64, value: u64) {
    *hash = fold(*hash ^ value, K0).wrapping_add(K1);
}

fn add_column(column: &ArrayRef, rows: Rows<'_>, hashes: &mut [u64]) {
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    let row = |index: usize| match rows {
        Rows::Run(start) => start + index,
        Rows::Picked(rows) => rows[index] as usize,
    };
    if let Some(nulls) = nulls {
        // Whether it is null goes first; the value of a null is whatever the buffer holds, so it is left out.
        for (index, hash) in hashes.iter_mut().enumerate() {
            add(hash, if nulls.is_null(row(index)) { NULL } else { K1 });
        }
        for (index, hash) in hashes.iter_mut().enumerate() {
            if !nulls.is_null(row(index)) {
                let mut one = [*hash];
                add_values(column, Rows::Run(row(index)), &mut one);
                *hash = one[0];
            }
        }
        return;
    }
    for hash in hashes.iter_mut() {
        add(hash, K1);
    }
    add_values(column, rows, hashes);
}

fn add_values(column: &ArrayRef, rows: Rows<'_>, hashes: &mut [u64]) {
    match column.data_type() {
        DataType::Null => {}
        DataType::Boolean => {
            let column = column.as_boolean();
            by_row(rows, hashes, |row, hash| add(hash, u64::from(column.value(row))));
        }
        DataType::Int64 => words(column.as_primitive::<Int64Type>().values(), rows, hashes, |v| v as u64),
        DataType::UInt64 => words(column.as_primitive::<UInt64Type>().values(), rows, hashes, |v| v),
        DataType::Float64 => words(column.as_primitive::<Float64Type>().values(), rows, hashes, |v| {
            if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() }
        }),
        DataType::Timestamp(unit, _) => {
            let values: &[i64] = match unit {
                TimeUnit::Second => column.as_primitive::<TimestampSecondType>().values(),
                TimeUnit::Millisecond => column.as_primitive::<TimestampMillisecondType>().values(),
                TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().values(),
                TimeUnit::Nanosecond => column.as_primitive::<TimestampNanosecondType>().values(),
            };
            words(values, rows, hashes, |v| v as u64);
        }
        DataType::Decimal128(..) => {
            let values = column.as_primitive::<Decimal128Type>().values();
            by_row(rows, hashes, |row, hash| {
                add(hash, values[row] as u64);
                add(hash, (values[row] >> 64) as u64);
            });
        }
        DataType::Decimal256(..) => {
            let values = column.as_primitive::<Decimal256Type>().values();
            by_row(rows, hashes, |row, hash| {
                let (low, high) = values[row].to_parts();
                for word in [low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64] {
                    add(hash, word);
                }
            });
        }
        DataType::Utf8View => {
            let column = column.as_string_view();
            add_views(column.views(), rows, hashes, |row| hash_bytes(column.value(row).as_bytes()));
        }
        DataType::BinaryView => {
            let column = column.as_binary_view();
            add_views(column.views(), rows, hashes, |row| hash_bytes(column.value(row)));
        }
        DataType::FixedSizeBinary(_) => {
            let column = column.as_fixed_size_binary();
            by_row(rows, hashes, |row, hash| add(hash, hash_bytes(column.value(row))));
        }
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let offsets = list.value_offsets();
            by_row(rows, hashes, |row, hash| {
                let items = offsets[row] as usize..offsets[row + 1] as usize;
                add(hash, items.len() as u64);
                for item in items {
                    let mut one = [*hash];
                    add_column(list.values(), Rows::Run(item), &mut one);
                    *hash = one[0];
                }
            });
        }
        DataType::Struct(_) => {
            for inner in column.as_struct().columns() {
                add_column(inner, rows, hashes);
            }
        }
        other => panic!("no digest of Arrow type {other}"),
    }
}

#[inline(always)]
fn by_row(rows: Rows<'_>, hashes: &mut [u64], mut add: impl FnMut(usize, &mut u64)) {
    match rows {
        Rows::Run(start) => hashes.iter_mut().enumerate().for_each(|(index, hash)| add(start + index, hash)),
        Rows::Picked(rows) => hashes.iter_mut().zip(rows).for_each(|(hash, row)| add(*row as usize, hash)),
    }
}

#[inline(always)]
fn words<T: Copy>(values: &[T], rows: Rows<'_>, hashes: &mut [u64], word: impl Fn(T) -> u64) {
    match rows {
        Rows::Run(start) => {
            let values = &values[start..start + hashes.len()];
            hashes.iter_mut().zip(values).for_each(|(hash, value)| add(hash, word(*value)));
        }
        Rows::Picked(rows) => {
            hashes.iter_mut().zip(rows).for_each(|(hash, row)| add(hash, word(values[*row as usize])));
        }
    }
}

#[inline(always)]
fn add_views(views: &[u128], rows: Rows<'_>, hashes: &mut [u64], long: impl Fn(usize) -> u64) {
    by_row(rows, hashes, |row, hash| {
        let view = views[row];
        if view as u32 <= 12 {
            add(hash, view as u64);
            add(hash, (view >> 64) as u64);
        } else {
            add(hash, long(row));
        }
    });
}
