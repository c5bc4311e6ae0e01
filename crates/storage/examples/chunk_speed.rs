//! Speed and size of the chunk codec on the shapes that windows store.
//!
//! `cargo run --release -p thalweg-storage --example chunk_speed`
//!
//! One line for each column: nanoseconds a value for encoding and decoding (best of the rounds, checksum
//! included) and stored bytes a row.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMicrosecondArray, UInt32Array,
};
use thalweg_storage::chunk::{ChunkInfo, ChunkReader, encode};

const ROWS: usize = 65_536;
const ROUNDS: usize = 60;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn main() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut time = 1_700_000_000_000_000_i64;
    let mut times = Vec::new();
    for _ in 0..ROWS {
        time += random.below(1_800) as i64;
        times.push(time);
    }
    let groups: Vec<u32> = (0..ROWS).map(|_| random.below(100_000) as u32).collect();
    let amounts: Vec<f64> = (0..ROWS).map(|_| random.below(1_000_000) as f64 / 100.0).collect();
    let noise: Vec<f64> = (0..ROWS).map(|_| random.next() as f64 / 3.0).collect();
    let wide: Vec<i64> = (0..ROWS).map(|_| random.next() as i64).collect();
    let cents: Vec<i128> = (0..ROWS).map(|_| i128::from(random.below(1_000_000))).collect();
    let cards: Vec<String> = (0..ROWS).map(|_| format!("card-{:012}", random.below(100_000))).collect();
    let shops: Vec<String> = (0..ROWS).map(|_| format!("merchant-{}", random.below(3_000))).collect();
    let flags: Vec<bool> = (0..ROWS).map(|_| random.below(10) == 0).collect();
    let holes: Vec<Option<i64>> =
        (0..ROWS).map(|_| (random.below(10) > 0).then(|| random.below(4_096) as i64)).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("sorted times (us)", Arc::new(TimestampMicrosecondArray::from(times))),
        ("u32 groups < 100k", Arc::new(UInt32Array::from(groups))),
        ("f64 amounts, 2 decimals", Arc::new(Float64Array::from(amounts))),
        ("f64 noise (raw)", Arc::new(Float64Array::from(noise))),
        ("i64 full range", Arc::new(Int64Array::from(wide))),
        ("i64, a tenth null", Arc::new(Int64Array::from(holes))),
        ("decimal(38,10), small", Arc::new(Decimal128Array::from(cents))),
        ("strings, 100k cards", Arc::new(StringViewArray::from_iter_values(cards))),
        ("strings, 3k merchants", Arc::new(StringViewArray::from_iter_values(shops))),
        ("bools, a tenth true", Arc::new(BooleanArray::from(flags))),
    ];
    let info = ChunkInfo { task: 0, number: 0, previous: 0, schema_id: 0, first_time: 0, last_time: 0 };
    println!("{ROWS} rows, best of {ROUNDS}");
    println!("{:<26} {:>12} {:>12} {:>10}", "column", "encode ns", "decode ns", "bytes");
    for (name, column) in columns {
        let data_type = column.data_type().clone();
        let batch = RecordBatch::try_from_iter([(name, column)]).expect("one column");
        let bytes = encode(&info, &batch).expect("a stored type");
        let encode_ns = best(|| {
            std::hint::black_box(encode(&info, &batch).expect("a stored type"));
        });
        let decode_ns = best(|| {
            let reader = ChunkReader::open(&bytes).expect("what was just written");
            std::hint::black_box(reader.column(0, &data_type).expect("what was just written"));
        });
        let bytes_per_row = bytes.len() as f64 / ROWS as f64;
        println!("{name:<26} {encode_ns:>12.2} {decode_ns:>12.2} {bytes_per_row:>10.2}");
    }
}

/// Nanoseconds a value of the fastest round: the others were disturbed.
fn best(mut run: impl FnMut()) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_nanos() as f64 / ROWS as f64
        })
        .fold(f64::INFINITY, f64::min)
}
