//! The codec as a whole: round trips, damage, foreign bytes.

use std::sync::Arc;

use arrow_array::*;
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::{Field, Schema, TimeUnit};
use fastrand::Rng;
use proptest::prelude::*;

use super::*;

const INFO: ChunkInfo =
    ChunkInfo { task: 1, number: 2, previous: 3, schema_id: 4, first_time: -5, last_time: 6 };

/// One column for each stored type.
fn types() -> Vec<DataType> {
    vec![
        DataType::Boolean,
        DataType::Int64,
        DataType::UInt64,
        DataType::UInt32,
        DataType::Float64,
        DataType::Decimal128(38, 3),
        DataType::Decimal256(76, 0),
        DataType::Timestamp(TimeUnit::Second, None),
        DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Utf8View,
        DataType::BinaryView,
        DataType::FixedSizeBinary(16),
    ]
}

/// A column of a type, its values drawn from 64-bit seeds.
fn column(data_type: &DataType, seeds: &[Option<i64>]) -> ArrayRef {
    let some = |row: usize| seeds[row].unwrap_or_default();
    let rows = 0..seeds.len();
    let nulls = Some(NullBuffer::from_iter(seeds.iter().map(Option::is_some)));
    let times = || rows.clone().map(some).collect::<Vec<_>>().into();
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::new(rows.map(|row| some(row) & 1 == 1).collect(), nulls)),
        DataType::Int64 => Arc::new(Int64Array::new(rows.map(some).collect(), nulls)),
        DataType::UInt64 => Arc::new(UInt64Array::new(rows.map(|row| some(row) as u64).collect(), nulls)),
        DataType::UInt32 => Arc::new(UInt32Array::new(rows.map(|row| some(row) as u32).collect(), nulls)),
        DataType::Float64 => {
            // Every fourth is an arbitrary pattern of bits (NaN payloads among them) where seeds are wild.
            let float = |seed: i64| match seed {
                -1_000_000..=1_000_000 => seed as f64 / 100.0,
                _ => f64::from_bits(seed as u64),
            };
            Arc::new(Float64Array::new(rows.map(|row| float(some(row))).collect(), nulls))
        }
        DataType::Decimal128(precision, scale) => {
            let wide = |seed: i64| if seed % 3 == 0 { i128::from(seed) << 60 } else { i128::from(seed) };
            let array = Decimal128Array::new(rows.map(|row| wide(some(row))).collect(), nulls);
            Arc::new(array.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Decimal256(precision, scale) => {
            let wide = |seed: i64| match seed % 5 {
                0 => i256::from_parts(seed as u128, i128::from(seed)),
                _ => i256::from_i128(seed.into()),
            };
            let array = Decimal256Array::new(rows.map(|row| wide(some(row))).collect(), nulls);
            Arc::new(array.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Timestamp(TimeUnit::Second, None) => Arc::new(TimestampSecondArray::new(times(), nulls)),
        DataType::Timestamp(TimeUnit::Millisecond, None) => {
            Arc::new(TimestampMillisecondArray::new(times(), nulls))
        }
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            Arc::new(TimestampMicrosecondArray::new(times(), nulls))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, None) => {
            Arc::new(TimestampNanosecondArray::new(times(), nulls))
        }
        DataType::Utf8View => {
            let text = |seed: i64| "ä€x".repeat((seed as u64 % 9) as usize) + &(seed % 1000).to_string();
            Arc::new(StringViewArray::from_iter(seeds.iter().map(|seed| seed.map(text))))
        }
        DataType::BinaryView => {
            let bytes = |seed: i64| vec![seed as u8; (seed as u64 % 40) as usize];
            Arc::new(BinaryViewArray::from_iter(seeds.iter().map(|seed| seed.map(bytes))))
        }
        DataType::FixedSizeBinary(16) => {
            let mapped = seeds.iter().flatten().all(|seed| seed % 2 == 0);
            let address = |seed: i64| {
                let mut bytes = [0; 16];
                bytes[8..].copy_from_slice(&seed.to_le_bytes());
                if mapped {
                    bytes[..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255]);
                }
                bytes
            };
            let values = seeds.iter().map(|seed| seed.map(address));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 16).unwrap())
        }
        other => panic!("no test values of {other}"),
    }
}

fn batch(seeds: &[Option<i64>]) -> RecordBatch {
    let columns: Vec<ArrayRef> = types().iter().map(|data_type| column(data_type, seeds)).collect();
    let field = |(index, data_type): (usize, DataType)| Field::new(format!("c{index}"), data_type, true);
    let schema = Schema::new(types().into_iter().enumerate().map(field).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

/// Equal bit for bit: Arrow's own comparison takes no position on NaN payloads.
fn assert_same(read: &ArrayRef, written: &ArrayRef) {
    assert_eq!(read.data_type(), written.data_type());
    match written.data_type() {
        DataType::Float64 => {
            let bits = |array: &ArrayRef| -> Vec<Option<u64>> {
                use arrow_array::cast::AsArray;
                array
                    .as_primitive::<types::Float64Type>()
                    .iter()
                    .map(|value| value.map(f64::to_bits))
                    .collect()
            };
            assert_eq!(bits(read), bits(written));
        }
        _ => assert_eq!(read, written),
    }
}

fn round_trip(batch: &RecordBatch) -> Vec<u8> {
    let bytes = encode(&INFO, batch).unwrap();
    assert_eq!(encode(&INFO, batch).unwrap(), bytes, "equal batches give equal bytes");
    let reader = ChunkReader::open(&bytes).unwrap();
    assert_eq!(reader.head().info, INFO);
    assert_eq!(reader.head().total_len(), bytes.len() as u64);
    for (index, written) in batch.columns().iter().enumerate() {
        assert_same(&reader.column(index, written.data_type()).unwrap(), written);
    }
    bytes
}

/// Seeds as streams have them: all the same, small, sorted, wild, or with extremes.
fn seeds() -> impl Strategy<Value = Vec<Option<i64>>> {
    let extreme = prop_oneof![
        Just(i64::MIN),
        Just(i64::MAX),
        Just(0),
        Just(-1),
        Just((-0.0_f64).to_bits() as i64),
        Just(f64::NAN.to_bits() as i64 | 0x77),
        any::<i64>(),
    ];
    let kind = prop_oneof![
        any::<i64>().prop_flat_map(|value| proptest::collection::vec(Just(value), 1..40)),
        proptest::collection::vec(0_i64..50, 1..2500),
        proptest::collection::vec(-500_000_i64..500_000, 1..1200),
        proptest::collection::vec((-50_i64..50).prop_map(|value| value * 2), 1..300),
        (any::<i64>(), proptest::collection::vec(0_i64..1000, 1..1500)).prop_map(|(start, steps)| {
            steps
                .into_iter()
                .scan(start, |time, step| {
                    *time = time.wrapping_add(step);
                    Some(*time)
                })
                .collect()
        }),
        proptest::collection::vec(extreme, 1..1100),
    ];
    (kind, any::<u64>(), 0_u64..4).prop_map(|(values, seed, null_share)| {
        let mut random = Rng::with_seed(seed);
        let mut valid = move || null_share == 0 || random.u64(..8) >= (null_share * null_share).min(8);
        values.into_iter().map(|value| valid().then_some(value)).collect()
    })
}

proptest! {
    #[test]
    fn every_type_reads_back_bit_for_bit(seeds in seeds()) {
        round_trip(&batch(&seeds));
    }

    #[test]
    fn slices_read_back_as_their_rows(seeds in seeds(), start in 0_usize..20) {
        let whole = batch(&seeds);
        let start = start.min(whole.num_rows() - 1);
        round_trip(&whole.slice(start, whole.num_rows() - start));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), rows in 1_usize..3000) {
        let _ = ChunkReader::open(&bytes);
        for data_type in types() {
            let _ = column::decode(&data_type, rows, &bytes, 0);
        }
    }

    /// Past the checksum: what a forger or a collision would reach.
    #[test]
    fn changed_column_bytes_never_panic(
        seeds in seeds(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        rows in prop_oneof![Just(None), (1_usize..3000).prop_map(Some)],
    ) {
        let batch = batch(&seeds);
        for array in batch.columns() {
            let mut bytes = Vec::new();
            column::encode(array, &mut bytes).unwrap();
            for (number, (place, byte)) in changes.iter().enumerate() {
                // Headers are at the front; every other change goes there.
                let place = place.index(if number % 2 == 0 { bytes.len().min(40) } else { bytes.len() });
                bytes[place] = *byte;
            }
            let _ = column::decode(array.data_type(), rows.unwrap_or(batch.num_rows()), &bytes, 0);
        }
    }
}

fn sample() -> RecordBatch {
    let seeds: Vec<Option<i64>> = (0..60).map(|row| (row % 7 != 0).then_some(row * row * 31)).collect();
    batch(&seeds)
}

fn read_all(bytes: &[u8]) -> Result<(), CodecError> {
    let reader = ChunkReader::open(bytes)?;
    for index in 0..reader.head().columns.len() {
        let data_type = reader.head().columns[index].data_type.clone();
        reader.column(index, &data_type)?;
    }
    Ok(())
}

#[test]
fn truncation_at_every_byte_is_detected() {
    let bytes = round_trip(&sample());
    for len in 0..bytes.len() {
        assert!(matches!(read_all(&bytes[..len]), Err(CodecError::Damaged { .. })), "cut at {len}");
    }
}

#[test]
fn every_flipped_bit_is_detected() {
    let mut bytes = round_trip(&sample());
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(read_all(&bytes), Err(CodecError::Damaged { .. })), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn what_has_no_stored_form_is_refused_by_name() {
    let array: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter([("n", array)]).unwrap();
    assert_eq!(encode(&INFO, &batch), Err(CodecError::Unsupported { data_type: DataType::Int32 }));
    assert_eq!(encode(&INFO, &batch.slice(0, 0)), Err(CodecError::RowCount { rows: 0 }));
}

#[test]
fn a_null_beside_texts_that_share_half_a_character_reads_back() {
    let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("ä1"), None, Some("ö2"), Some("ü3")]));
    round_trip(&RecordBatch::try_from_iter_with_nullable([("text", texts, true)]).unwrap());
}

#[test]
fn streams_shrink() {
    let rows = 65_536_i64;
    let times = (0..rows).map(|row| 1_700_000_000_000_000 + row * 250 + row * row % 97).collect::<Vec<_>>();
    let groups = (0..rows as u32).map(|row| row.wrapping_mul(2_654_435_761) % 100_000).collect::<Vec<_>>();
    let amounts = (0..rows).map(|row| (row * 7919 % 50_000) as f64 / 100.0).collect::<Vec<_>>();
    let countries =
        (0..rows).map(|row| ["Portugal", "Deutschland", "Österreich und andere"][row as usize % 3]);
    let columns: [(&str, ArrayRef, f64); 4] = [
        ("time", Arc::new(TimestampMicrosecondArray::from(times)), 1.3),
        ("group", Arc::new(UInt32Array::from(groups)), 2.2),
        ("amount", Arc::new(Float64Array::from(amounts)), 2.1),
        ("country", Arc::new(StringViewArray::from_iter_values(countries)), 0.3),
    ];
    for (name, array, most) in columns {
        let batch = RecordBatch::try_from_iter([(name, array)]).unwrap();
        let bytes_per_row = round_trip(&batch).len() as f64 / rows as f64;
        assert!(bytes_per_row < most, "{name}: {bytes_per_row} bytes a row");
    }
}
