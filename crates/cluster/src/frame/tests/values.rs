//! Values read back with the same bits, however rows are picked.

use arrow_array::cast::AsArray;
use arrow_array::{
    BinaryArray, Decimal128Array, Decimal256Array, FixedSizeBinaryArray, Float64Array, Int64Array,
    StringArray, UInt32Array, UInt64Array,
};
use arrow_buffer::i256;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::DataType;
use arrow_select::take::take_record_batch;
use proptest::prelude::*;

use super::*;

fn seeds(most: usize) -> impl Strategy<Value = Vec<Option<i64>>> {
    let small = -300_i64..300;
    let seed = prop_oneof![Just(None), small.prop_map(Some), any::<i64>().prop_map(Some)];
    // Without nulls, and with small values alone, other forms are chosen.
    let plain = proptest::collection::vec((0..1_000_i64).prop_map(Some), 1..most);
    prop_oneof![proptest::collection::vec(seed, 1..most), plain]
}

proptest! {
    #[test]
    fn values_of_every_type_read_back_with_the_same_bits(seeds in seeds(60), below in 0_u8..10) {
        let records = made::batch(&schema(), &seeds);
        let settings = Settings { compress_below: f32::from(below), ..Settings::default() };
        let frames = frames_of(&records, settings);
        assert_eq!(frames.len(), 1);
        assert_same(&decode(&parse_rows(&frames[0]), &[schema()])[0].records, &records);
    }

    #[test]
    fn rows_that_are_picked_from_several_batches_read_back(
        batches in proptest::collection::vec((seeds(20), any::<u32>(), 0_usize..20), 1..5),
    ) {
        let mut builder = Builder::new(sender(), Mark::START, Settings::default());
        let mut expected = Vec::new();
        for (seeds, picks, from) in batches {
            let records = made::batch(&schema(), &seeds);
            // Some rows of a slice.
            let records = records.slice(from.min(seeds.len() - 1), seeds.len() - from.min(seeds.len() - 1));
            let picked: Vec<u32> =
                (0..records.num_rows() as u32).filter(|row| picks >> (row % 32) & 1 == 1).collect();
            builder.push(0, &records, picked.iter().map(|number| row(*number, at(0, 0)))).unwrap();
            expected.push(take_record_batch(&records, &UInt32Array::from(picked)).unwrap());
        }
        let expected = arrow_select::concat::concat_batches(&schema(), &expected).unwrap();
        match builder.cut(None) {
            None => prop_assert_eq!(expected.num_rows(), 0),
            Some(frame) => assert_same(&decode(&parse_rows(&frame), &[schema()])[0].records, &expected),
        }
    }
}

proptest! {
    #[test]
    fn a_row_takes_no_more_than_it_weighs(seeds in seeds(10)) {
        let records = made::batch(&schema(), &seeds);
        let columns = records.columns();
        let weights = packed::Weights::new(records.schema_ref().fields()).unwrap();
        for row in 0..seeds.len() {
            let mut written = Vec::new();
            let piece = packed::Piece { columns, rows: packed::Rows::Run(row..row + 1) };
            packed::write(&[piece], ARRIVAL, &mut written).unwrap();
            let weight = weights.of(columns).check(row, ARRIVAL).unwrap();
            prop_assert!(written.len() <= weight, "{} bytes, weight {weight}", written.len());
        }
    }
}

/// Bytes that a column takes in a frame by itself, with the flags of its section.
fn bytes(values: ArrayRef) -> usize {
    let records = column(values);
    let frames = frames_of(&records, Settings { compress_below: 0.0, ..Settings::default() });
    let frame = parse_rows(&frames[0]);
    assert_same(&decode(&frame, &[records.schema()])[0].records, &records);
    // The input, and for each row but the first a byte of its position and one of its arrival.
    let places = 1 + 2 * (records.num_rows() - 1);
    frame.body.len() - places
}

#[test]
fn a_value_takes_about_what_it_has() {
    let ip = |octets: [u8; 16]| FixedSizeBinaryArray::try_from_iter([octets].into_iter()).unwrap();
    let mut v4 = [0; 16];
    v4[10..12].fill(0xff);
    for (what, values, expected) in [
        ("a small number", Arc::new(Int64Array::from(vec![-64])) as ArrayRef, 1),
        ("a larger one", Arc::new(Int64Array::from(vec![64])), 2),
        ("null", Arc::new(Int64Array::from(vec![None])), 1),
        ("nulls", Arc::new(Int64Array::from(vec![None; 7])), 1),
        ("more nulls", Arc::new(Int64Array::from(vec![None; 8])), 2),
        ("neighbours", Arc::new(Int64Array::from(vec![1 << 40, (1 << 40) + 1, 1 << 40])), 8),
        ("far apart", Arc::new(Int64Array::from(vec![i64::MAX, 0, i64::MIN])), 3 * 8 + 1),
        ("a large number", Arc::new(UInt64Array::from(vec![1 << 63])), 9),
        ("large numbers", Arc::new(UInt64Array::from(vec![1 << 63, 1 << 62])), 2 * 8 + 1),
        ("a float", Arc::new(Float64Array::from(vec![f64::NAN])), 8),
        ("a price", Arc::new(Float64Array::from(vec![19.99])), 1 + 1 + 2),
        ("prices", Arc::new(Float64Array::from(vec![19.99, 20.5, 19.0])), 1 + 1 + 5),
        ("not all are prices", Arc::new(Float64Array::from(vec![19.99, -0.0])), 2 * 8),
        ("bools", Arc::new(arrow_array::BooleanArray::from(vec![true; 9])), 2),
        ("a decimal", Arc::new(Decimal128Array::from(vec![1_999])), 3),
        ("the least", Arc::new(Decimal128Array::from(vec![i128::MIN])), 17),
        ("zero", Arc::new(Decimal256Array::from(vec![i256::ZERO])), 1),
        ("less than zero", Arc::new(Decimal256Array::from(vec![i256::MINUS_ONE])), 2),
        ("IPv4", Arc::new(ip(v4)), 5),
        ("IPv6", Arc::new(ip([7; 16])), 17),
    ] {
        assert_eq!(bytes(values), 1 + expected, "{what}");
    }
}

#[test]
fn times_near_the_arrival_are_short() {
    let time = |later: i64| {
        let times = arrow_array::TimestampMillisecondArray::from(vec![ARRIVAL / 1_000 + later]);
        bytes(Arc::new(times))
    };
    assert_eq!((time(-20), time(-1_000), time(-ARRIVAL / 1_000)), (2, 3, 7));
}

/// A record batch message of Arrow IPC, with texts in their shorter form.
fn ipc(records: &RecordBatch) -> usize {
    let columns = records.columns().iter().map(|column| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8View => Arc::new(StringArray::from_iter(column.as_string_view().iter())),
            DataType::BinaryView => Arc::new(BinaryArray::from_iter(column.as_binary_view().iter())),
            _ => Arc::clone(column),
        }
    });
    let fields = records.schema();
    let names = fields.fields().iter().map(|field| field.name());
    let records = RecordBatch::try_from_iter(names.zip(columns)).unwrap();
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).unwrap();
    let mut dictionaries = DictionaryTracker::new(true);
    let encoded = IpcDataGenerator::default()
        .encode(&records, &mut dictionaries, &options, &mut Default::default())
        .unwrap();
    encoded.1.ipc_message.len() + encoded.1.arrow_data.len()
}

#[test]
fn no_type_takes_more_than_in_arrow_ipc() {
    let mut random = fastrand::Rng::with_seed(1);
    for field in schema().fields().iter().filter(|field| !field.data_type().is_nested()) {
        for (rows, one_null_in, shift) in [(1, 0, 0), (7, 0, 0), (500, 0, 0), (500, 3, 0), (500, 0, 50)] {
            let mut seed =
                |_| (one_null_in == 0 || random.u8(..one_null_in) > 0).then(|| random.i64(..) >> shift);
            let seeds: Vec<Option<i64>> = (0..rows).map(&mut seed).collect();
            let only = Arc::new(arrow_schema::Schema::new(vec![Arc::clone(field)]));
            let records = made::batch(&only, &seeds);
            let mut written = Vec::new();
            let piece = packed::Piece { columns: records.columns(), rows: packed::Rows::Run(0..rows) };
            packed::write(&[piece], ARRIVAL, &mut written).unwrap();
            let (ours, theirs) = (written.len(), ipc(&records));
            assert!(ours * 10 <= theirs * 11, "{field}, {rows} rows: {ours} bytes, {theirs} in Arrow IPC");
        }
    }
}
