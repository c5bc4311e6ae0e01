//! The one hash that decides placement: which partition a key belongs to.
//!
//! Persisted, do not change: a partition's state is found again only while this function stays the same.
//! Short byte strings (up to 12 bytes, the inline part of an Arrow view) are one 128-bit word: two multiplies.
//! Longer ones go through XXH3.
//!
//! It is public, so a sender of keys can make many with one hash: that only puts them into one partition. Nothing is
//! looked up by it, and no table uses it for keys from outside (`hash_key`).

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use arrow_schema::{DataType, TimeUnit};

const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xd1b5_4a32_d192_ed03;
const NULL: u64 = 0x6e75_6c6c_6b65_7921;
const INLINE: usize = 12;

/// Folds a 64 × 64 bit product: the high half carries what the low half loses.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[inline(always)]
fn hash_word(word: u64) -> u64 {
    fold(word ^ K0, K1)
}

#[inline(always)]
fn hash_inline_view(view: u128) -> u64 {
    fold((view as u64) ^ K0, ((view >> 64) as u64) ^ K1)
}

/// Hashes a byte string. Equal to hashing it as an element of a string column.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    if bytes.len() <= INLINE {
        let mut view = [0_u8; 16];
        view[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        view[4..4 + bytes.len()].copy_from_slice(bytes);
        hash_inline_view(u128::from_le_bytes(view))
    } else {
        xxhash_rust::xxh3::xxh3_64(bytes)
    }
}

/// Which of `partitions` (at least 1) a hash belongs to: the high half of the product, so that all bits count.
#[inline(always)]
pub fn partition_of(hash: u64, partitions: u32) -> u32 {
    ((u128::from(hash) * u128::from(partitions)) >> 64) as u32
}

/// What a table in memory takes for the hash of a tag, part of a key's hash: tables take buckets from the low bits and
/// marks from the high ones, so both must vary. Kept nowhere.
#[inline(always)]
pub fn spread_tag(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn primitive<T: ArrowPrimitiveType>(array: &dyn Array, out: &mut [u64], word: impl Fn(T::Native) -> u64) {
    let array: &PrimitiveArray<T> = array.as_primitive();
    for (hash, value) in out.iter_mut().zip(array.values()) {
        *hash = hash_word(word(*value));
    }
}

fn views(views: &[u128], out: &mut [u64], long: impl Fn(usize) -> u64) {
    for (index, (hash, view)) in out.iter_mut().zip(views).enumerate() {
        *hash = if (*view as u32) as usize <= INLINE { hash_inline_view(*view) } else { long(index) };
    }
}

/// Hashes every element of a column; all nulls hash alike, −0 as 0 and every NaN as one.
///
/// # Panics
/// On an Arrow type that no field type maps to: schemas are checked before a job starts.
pub fn hash_column(column: &ArrayRef) -> Vec<u64> {
    let mut out = vec![0_u64; column.len()];
    let hashes = out.as_mut_slice();
    match column.data_type() {
        DataType::Boolean => {
            let array = column.as_boolean();
            for (index, hash) in hashes.iter_mut().enumerate() {
                *hash = hash_word(u64::from(array.value(index)));
            }
        }
        DataType::Int64 => primitive::<Int64Type>(column, hashes, |v| v as u64),
        DataType::UInt64 => primitive::<UInt64Type>(column, hashes, |v| v),
        DataType::Float64 => primitive::<Float64Type>(column, hashes, |v| {
            if v.is_nan() { f64::NAN.to_bits() } else { (v + 0.0).to_bits() }
        }),
        DataType::Decimal128(..) => {
            primitive::<Decimal128Type>(column, hashes, |v| hash_inline_view(v as u128));
        }
        DataType::Decimal256(..) => {
            primitive::<Decimal256Type>(column, hashes, |v| {
                let (low, high) = v.to_parts();
                hash_inline_view(low) ^ hash_inline_view(high as u128).rotate_left(32)
            });
        }
        DataType::Timestamp(TimeUnit::Second, _) => {
            primitive::<TimestampSecondType>(column, hashes, |v| v as u64)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            primitive::<TimestampMillisecondType>(column, hashes, |v| v as u64);
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            primitive::<TimestampMicrosecondType>(column, hashes, |v| v as u64);
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            primitive::<TimestampNanosecondType>(column, hashes, |v| v as u64);
        }
        DataType::Utf8View => {
            let array = column.as_string_view();
            views(array.views(), hashes, |index| hash_bytes(array.value(index).as_bytes()));
        }
        DataType::BinaryView => {
            let array = column.as_binary_view();
            views(array.views(), hashes, |index| hash_bytes(array.value(index)));
        }
        DataType::FixedSizeBinary(_) => {
            let array = column.as_fixed_size_binary();
            for (index, hash) in hashes.iter_mut().enumerate() {
                *hash = hash_bytes(array.value(index));
            }
        }
        other => panic!("no placement hash for {other}"),
    }
    if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
        for (hash, valid) in out.iter_mut().zip(nulls.iter()) {
            if !valid {
                *hash = NULL;
            }
        }
    }
    out
}

/// Hashes rows over several columns, in order; one column alone hashes as [`hash_column`] says, none as 0.
pub fn hash_columns(columns: &[ArrayRef], rows: usize) -> Vec<u64> {
    let Some((first, rest)) = columns.split_first() else { return vec![0; rows] };
    let mut out = hash_column(first);
    for column in rest {
        for (hash, next) in out.iter_mut().zip(hash_column(column)) {
            *hash = fold(hash.rotate_left(23) ^ next, K0);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, StringViewArray};

    use super::*;

    #[test]
    fn a_column_hashes_as_its_bytes_do_short_or_long() {
        let texts = ["", "c1", "exactly12byt", "more than twelve bytes long"];
        let column: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let expected: Vec<u64> = texts.iter().map(|text| hash_bytes(text.as_bytes())).collect();
        assert_eq!(hash_column(&column), expected);
    }

    #[test]
    fn nulls_zeros_and_nans_are_one_key_each() {
        let column: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(0.0),
            Some(-0.0),
            Some(f64::NAN),
            Some(-f64::NAN),
            None,
            None,
        ]));
        let hashes = hash_column(&column);
        assert_eq!(hashes[0], hashes[1]);
        assert_eq!(hashes[2], hashes[3]);
        assert_eq!(hashes[4], hashes[5]);
        assert_ne!(hashes[0], hashes[4]);
    }

    #[test]
    fn placement_never_changes() {
        let ints: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, -1]));
        let words: ArrayRef =
            Arc::new(StringViewArray::from_iter_values(["a", "b", "a string of 24 letters.."]));
        let hashes = [hash_column(&ints), hash_column(&words), hash_columns(&[ints, words], 3)];
        assert_eq!(hashes, GOLDEN, "the placement hash is on disk: do not change it");
    }

    const GOLDEN: [[u64; 3]; 3] = [
        [15477614707873327427, 288448936178070599, 9718806869820083515],
        [7493165828548309150, 15745810842347101959, 591755943018363979],
        [1555369310614206174, 15254281506269896845, 4689717503342622616],
    ];

    #[test]
    fn partitions_are_even() {
        let mut counts = [0_u32; 7];
        for key in 0..70_000_u64 {
            counts[partition_of(hash_bytes(format!("c{key:07}").as_bytes()), 7) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
