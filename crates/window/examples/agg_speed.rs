//! What an element costs an aggregate: 100,000 random groups, a window of ten elements per group.
//!
//! `cargo run --release -p thalweg-window --example agg_speed [PART OF A NAME [GROUPS]]`
//!
//! Prints nanoseconds per element that enters or leaves (each step adds one, takes about one away, reads one) at the
//! batch that is faster than nine tenths, which a busy machine disturbs least, and a digest of the answers, so that a change of meaning shows
//! beside a change of speed.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{Array, ArrayRef, Float64Array};
use thalweg_types::{DataType, hash_column};
use thalweg_window::agg::{Call, Function, Steps, Stream, plan};

const RECORDS: usize = 4_000_000;
const WINDOW: i64 = 1_000_000;
const BATCH: usize = 4096;

/// A batch's schedule: elements `first..first + groups.len()` enter, `left..` leave.
struct Batch {
    removes: Vec<u32>,
    removed: std::ops::Range<usize>,
    added: std::ops::Range<usize>,
}

struct Data {
    groups: Vec<u32>,
    times: Vec<i64>,
    seqs: Vec<u64>,
    batches: Vec<Batch>,
    group_count: usize,
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn data(group_count: usize) -> Data {
    let mut state = 1;
    let groups: Vec<u32> = (0..RECORDS).map(|_| (random(&mut state) % group_count as u64) as u32).collect();
    let mut now = 0;
    let times: Vec<i64> = (0..RECORDS)
        .map(|_| {
            // 0, 1 or 2 apart: as uneven as real records, so that the number that leaves is not foreseeable.
            now += (random(&mut state) % 3) as i64;
            now
        })
        .collect();
    let seqs: Vec<u64> = (0..RECORDS as u64).collect();
    let mut batches = Vec::new();
    let mut left = 0;
    for start in (0..RECORDS).step_by(BATCH) {
        let added = start..RECORDS.min(start + BATCH);
        let first = left;
        let removes = added
            .clone()
            .map(|record| {
                let before = left;
                while times[left] <= times[record] - WINDOW {
                    left += 1;
                }
                (left - before) as u32
            })
            .collect();
        batches.push(Batch { removes, removed: first..left, added });
    }
    Data { groups, times, seqs, batches, group_count }
}

fn measure(name: &str, functions: &[Function], values: &ArrayRef, data: &Data) {
    let calls: Vec<Call> = functions
        .iter()
        .map(|function| match function {
            Function::CountAll => Call { function: *function, arg: None, arg_index: None },
            _ => Call { function: *function, arg: Some(DataType::Float64), arg_index: Some(0) },
        })
        .collect();
    let mut states = plan(&calls).expect("the calls take float64");
    for state in &mut states {
        state.grow(data.group_count);
    }
    let adds = vec![1; BATCH];
    let (mut digest, mut costs) = (0_u64, Vec::new());
    for (number, batch) in data.batches.iter().enumerate() {
        let slice = |range: &std::ops::Range<usize>| values.slice(range.start, range.len());
        let (added_values, removed_values) = (slice(&batch.added), slice(&batch.removed));
        let stream = |range: &std::ops::Range<usize>| Stream {
            groups: &data.groups[range.clone()],
            times: &data.times[range.clone()],
            seqs: &data.seqs[range.clone()],
            values: None,
        };
        let added = Stream { values: Some(&added_values), ..stream(&batch.added) };
        let removed = Stream { values: Some(&removed_values), ..stream(&batch.removed) };
        let steps = Steps {
            adds: &adds[..batch.added.len()],
            removes: &batch.removes,
            groups: added.groups,
            resets: None,
        };
        let start = Instant::now();
        let columns: Vec<_> =
            states.iter_mut().flat_map(|state| state.run(&steps, &added, &removed)).collect();
        // The first half fills the window and warms up.
        if number >= data.batches.len() / 2 {
            let elements = batch.added.len() + batch.removed.len();
            costs.push(start.elapsed().as_nanos() as f64 / elements as f64);
        }
        for column in columns {
            for hash in hash_column(&column.values) {
                digest = digest.rotate_left(1) ^ hash;
            }
        }
    }
    let bytes: usize = states.iter().map(|state| state.bytes()).sum();
    costs.sort_by(f64::total_cmp);
    println!(
        "{name:<34} {:>7.2} ns/element {:>8.1} MiB   digest {digest:016x}",
        costs[costs.len() / 10],
        bytes as f64 / f64::from(1 << 20),
    );
}

fn main() {
    let mut args = std::env::args().skip(1);
    let wanted = args.next().unwrap_or_default();
    let groups = args.next().map_or(100_000, |text| text.parse().expect("a number of groups"));
    let data = data(groups);
    let mut state = 2;
    let mut column = |value: &dyn Fn(u64) -> f64| -> ArrayRef {
        Arc::new((0..RECORDS).map(|_| Some(value(random(&mut state)))).collect::<Float64Array>())
    };
    let amounts = column(&|bits| (bits % 100_000) as f64 / 100.0);
    let tiny = column(&|bits| (bits % 100_000) as f64 * 1e-15);
    let spread = column(&|bits| 10_f64.powf((bits % 60) as f64 - 30.0));
    let nulls: ArrayRef =
        Arc::new((0..RECORDS).map(|row| (row % 10 != 0).then_some(row as f64)).collect::<Float64Array>());
    assert_eq!(nulls.null_count(), RECORDS / 10);
    let measure = |name: &str, functions: &[Function], values: &ArrayRef, data: &Data| {
        if name.contains(&wanted) {
            measure(name, functions, values, data);
        }
    };
    use Function::*;
    measure("count(*)", &[CountAll], &amounts, &data);
    measure("sum, count(*)", &[Sum, CountAll], &amounts, &data);
    measure("sum, count(*), a tenth null", &[Sum, CountAll], &nulls, &data);
    measure("sum, values near 1e-11", &[Sum], &tiny, &data);
    measure("sum, values from 1e-30 to 1e30", &[Sum], &spread, &data);
    measure("avg", &[Avg], &amounts, &data);
    measure("stddev", &[StdDev], &amounts, &data);
    measure("min", &[Min], &amounts, &data);
    measure("max, min", &[Max, Min], &amounts, &data);
    measure("first", &[First], &amounts, &data);
    measure("last, prev", &[Last, Prev], &amounts, &data);
    measure("count(distinct)", &[CountDistinct], &amounts, &data);
    measure("quantile 0.5, 0.99", &[Quantile(0.5), Quantile(0.99)], &amounts, &data);
}
