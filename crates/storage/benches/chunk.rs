//! Speed and size of the chunk codec on the shapes that windows store.
//!
//! `cargo bench -p thalweg-storage --bench chunk`
//!
//! One item is a value, checksum included. The table of sizes that [`check`] holds has the stored bytes.

use std::fmt;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMicrosecondArray, UInt32Array,
};
use arrow_schema::DataType;
use divan::Bencher;
use divan::counter::ItemsCount;
use expect_test::expect;
use fastrand::Rng;
use thalweg_storage::chunk::{ChunkInfo, ChunkReader, encode};

const ROWS: usize = 65_536;
const INFO: ChunkInfo =
    ChunkInfo { task: 0, number: 0, previous: 0, schema_id: 0, first_time: 0, last_time: 0 };

/// A column, and how its values are made.
struct Case {
    name: &'static str,
    make: fn(&mut Rng) -> ArrayRef,
}

const CASES: [Case; 10] = [
    Case { name: "sorted times (us)", make: times },
    Case {
        name: "u32 groups < 100k",
        make: |random| Arc::new((0..ROWS).map(|_| Some(random.u32(..100_000))).collect::<UInt32Array>()),
    },
    Case {
        name: "f64 amounts, 2 decimals",
        make: |random| {
            Arc::new(
                (0..ROWS).map(|_| Some(random.u32(..1_000_000) as f64 / 100.0)).collect::<Float64Array>(),
            )
        },
    },
    Case {
        name: "f64 noise (raw)",
        make: |random| {
            Arc::new((0..ROWS).map(|_| Some(random.u64(..) as f64 / 3.0)).collect::<Float64Array>())
        },
    },
    Case {
        name: "i64 full range",
        make: |random| Arc::new((0..ROWS).map(|_| Some(random.i64(..))).collect::<Int64Array>()),
    },
    Case {
        name: "i64, a tenth null",
        make: |random| {
            let mut value = || (random.u8(..10) > 0).then(|| random.i64(0..4_096));
            Arc::new((0..ROWS).map(|_| value()).collect::<Int64Array>())
        },
    },
    Case {
        name: "decimal(38,10), small",
        make: |random| {
            Arc::new((0..ROWS).map(|_| Some(random.i128(0..1_000_000))).collect::<Decimal128Array>())
        },
    },
    Case { name: "strings, 100k cards", make: |random| texts(random, "card-", 12, 100_000) },
    Case { name: "strings, 3k merchants", make: |random| texts(random, "merchant-", 0, 3_000) },
    Case {
        name: "bools, a tenth true",
        make: |random| Arc::new((0..ROWS).map(|_| Some(random.u8(..10) == 0)).collect::<BooleanArray>()),
    },
];

fn times(random: &mut Rng) -> ArrayRef {
    let mut time = 1_700_000_000_000_000;
    let mut next = || {
        time += random.i64(0..1_800);
        time
    };
    Arc::new(TimestampMicrosecondArray::from_iter_values((0..ROWS).map(|_| next())))
}

fn texts(random: &mut Rng, name: &str, digits: usize, count: u32) -> ArrayRef {
    let texts = (0..ROWS).map(|_| format!("{name}{:0digits$}", random.u32(..count)));
    Arc::new(StringViewArray::from_iter_values(texts))
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Case {
    fn batch(&self) -> (RecordBatch, DataType) {
        let column = (self.make)(&mut Rng::with_seed(1));
        let data_type = column.data_type().clone();
        (RecordBatch::try_from_iter([(self.name, column)]).expect("one column"), data_type)
    }
}

#[divan::bench(args = &CASES)]
fn encoding(bencher: Bencher<'_, '_>, case: &Case) {
    let (batch, _) = case.batch();
    bencher
        .counter(ItemsCount::new(ROWS))
        .bench_local(|| encode(&INFO, divan::black_box(&batch)).expect("a stored type"));
}

#[divan::bench(args = &CASES)]
fn decoding(bencher: Bencher<'_, '_>, case: &Case) {
    let (batch, data_type) = case.batch();
    let bytes = encode(&INFO, &batch).expect("a stored type");
    bencher.counter(ItemsCount::new(ROWS)).bench_local(|| {
        let reader = ChunkReader::open(divan::black_box(&bytes)).expect("what was just written");
        let column = reader.column(0, &data_type).expect("what was just written");
        assert_eq!(column.len(), ROWS);
        column
    });
}

/// Every column reads back as it was, in this many bytes with this checksum.
fn check() {
    let mut table = String::new();
    for case in &CASES {
        let (batch, data_type) = case.batch();
        let bytes = encode(&INFO, &batch).expect("a stored type");
        let reader = ChunkReader::open(&bytes).expect("what was just written");
        let column = reader.column(0, &data_type).expect("what was just written");
        assert_eq!(&column, batch.column(0), "{case}");
        let (rows, length) = (column.len(), bytes.len());
        table +=
            &format!("{:<24} {rows} rows, {length} bytes, crc {:08x}\n", case.name, crc32fast::hash(&bytes));
    }
    expect![[r#"
        sorted times (us)        65536 rows, 91275 bytes, crc b19f0c1c
        u32 groups < 100k        65536 rows, 139915 bytes, crc caea4235
        f64 amounts, 2 decimals  65536 rows, 164496 bytes, crc da5b5489
        f64 noise (raw)          65536 rows, 524363 bytes, crc 7cb086d7
        i64 full range           65536 rows, 524939 bytes, crc 111db6da
        i64, a tenth null        65536 rows, 107147 bytes, crc d37fad59
        decimal(38,10), small    65536 rows, 164491 bytes, crc a537626d
        strings, 100k cards      65536 rows, 328348 bytes, crc bea6c624
        strings, 3k merchants    65536 rows, 110128 bytes, crc f3b4d927
        bools, a tenth true      65536 rows, 8267 bytes, crc 512cba3e
    "#]]
    .assert_eq(&table);
}

fn main() {
    check();
    divan::main();
}
