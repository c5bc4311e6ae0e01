//! What an element costs an aggregate: random groups, a window of ten elements for each.
//!
//! `cargo bench -p thalweg-window --bench agg`
//!
//! One item is an element that enters or leaves: each step adds one, takes about one away, and reads one answer. The first
//! half of the records fills the window and is not measured.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arrow_array::{ArrayRef, Float64Array};
use divan::Bencher;
use divan::counter::ItemsCount;
use expect_test::expect;
use fastrand::Rng;
use thalweg_types::{DataType, hash_column};
use thalweg_window::agg::Function::*;
use thalweg_window::agg::{Aggregate, Call, Function, Steps, Stream, plan};

const BATCH: usize = 4096;

/// The aggregates of a benchmark, and their values.
struct Case {
    name: &'static str,
    functions: &'static [Function],
    values: fn(&mut Rng, usize) -> Option<f64>,
}

/// Two decimals, as amounts have.
fn amounts(random: &mut Rng, _row: usize) -> Option<f64> {
    Some(random.u32(..100_000) as f64 / 100.0)
}

fn tenth_null(_random: &mut Rng, row: usize) -> Option<f64> {
    (!row.is_multiple_of(10)).then_some(row as f64)
}

fn tiny(random: &mut Rng, _row: usize) -> Option<f64> {
    Some(random.u32(..100_000) as f64 * 1e-15)
}

/// Sixty orders of magnitude, which exact sums notice.
fn spread(random: &mut Rng, _row: usize) -> Option<f64> {
    Some(format!("1e{}", random.i32(-30..30)).parse().expect("a number"))
}

const CASES: [Case; 13] = [
    Case { name: "count(*)", functions: &[CountAll], values: amounts },
    Case { name: "sum, count(*)", functions: &[Sum, CountAll], values: amounts },
    Case { name: "sum, count(*), a tenth null", functions: &[Sum, CountAll], values: tenth_null },
    Case { name: "sum, values near 1e-11", functions: &[Sum], values: tiny },
    Case { name: "sum, values from 1e-30 to 1e30", functions: &[Sum], values: spread },
    Case { name: "avg", functions: &[Avg], values: amounts },
    Case { name: "stddev", functions: &[StdDev], values: amounts },
    Case { name: "min", functions: &[Min], values: amounts },
    Case { name: "max, min", functions: &[Max, Min], values: amounts },
    Case { name: "first", functions: &[First], values: amounts },
    Case { name: "last, prev", functions: &[Last, Prev], values: amounts },
    Case { name: "count(distinct)", functions: &[CountDistinct], values: amounts },
    Case { name: "quantile 0.5, 0.99", functions: &[Quantile(0.5), Quantile(0.99)], values: amounts },
];

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A batch's schedule: the elements `added` enter, `removed` leave.
struct Batch {
    removes: Vec<u32>,
    removed: Range<usize>,
    added: Range<usize>,
}

impl Batch {
    fn elements(&self) -> usize {
        self.added.len() + self.removed.len()
    }
}

struct Data {
    groups: Vec<u32>,
    times: Vec<i64>,
    seqs: Vec<u64>,
    batches: Vec<Batch>,
    group_count: usize,
}

impl Data {
    /// The window is ten times as many microseconds as there are groups, and records are one apart on average.
    fn new(group_count: usize) -> Self {
        let (records, window) = (group_count * 40, group_count as i64 * 10);
        let mut random = Rng::with_seed(1);
        let groups = (0..records).map(|_| random.u32(..group_count as u32)).collect();
        let mut now = 0;
        let times: Vec<i64> = (0..records)
            .map(|_| {
                // 0, 1 or 2 apart: as uneven as real records, so that the number that leaves is not foreseeable.
                now += random.i64(0..3);
                now
            })
            .collect();
        let (mut batches, mut left) = (Vec::new(), 0);
        for start in (0..records).step_by(BATCH) {
            let added = start..records.min(start + BATCH);
            let first = left;
            let mut leave = |record: usize| {
                let before = left;
                while times[left] <= times[record] - window {
                    left += 1;
                }
                (left - before) as u32
            };
            let removes = added.clone().map(&mut leave).collect();
            batches.push(Batch { removes, removed: first..left, added });
        }
        Self { groups, times, seqs: (0..records as u64).collect(), batches, group_count }
    }

    fn values(&self, case: &Case) -> ArrayRef {
        let mut random = Rng::with_seed(2);
        Arc::new((0..self.groups.len()).map(|row| (case.values)(&mut random, row)).collect::<Float64Array>())
    }

    /// The half that fills the window, and the half that is measured.
    fn halves(&self) -> (&[Batch], &[Batch]) {
        self.batches.split_at(self.batches.len() / 2)
    }

    fn states(&self, case: &Case) -> Vec<Box<dyn Aggregate>> {
        let call = |function: &Function| match function {
            CountAll => Call { function: *function, arg: None, arg_index: None },
            _ => Call { function: *function, arg: Some(DataType::Float64), arg_index: Some(0) },
        };
        let calls: Vec<Call> = case.functions.iter().map(call).collect();
        let mut states = plan(&calls).expect("the calls take float64");
        states.iter_mut().for_each(|state| state.grow(self.group_count));
        states
    }

    /// Runs batches and hands their answers to `see`; how many elements entered or left.
    fn run(
        &self,
        states: &mut [Box<dyn Aggregate>],
        values: &ArrayRef,
        batches: &[Batch],
        mut see: impl FnMut(ArrayRef),
    ) -> usize {
        let adds = vec![1; BATCH];
        for batch in batches {
            let slice = |range: &Range<usize>| values.slice(range.start, range.len());
            let (added_values, removed_values) = (slice(&batch.added), slice(&batch.removed));
            let stream = |range: &Range<usize>| Stream {
                slots: &[],
                groups: &self.groups[range.clone()],
                times: &self.times[range.clone()],
                seqs: &self.seqs[range.clone()],
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
            for state in states.iter_mut() {
                for column in state.run(&steps, &added, &removed) {
                    see(column.values);
                }
            }
        }
        batches.iter().map(Batch::elements).sum()
    }
}

/// Groups of a measured run; a run that only checks has few.
static DATA: LazyLock<Data> = LazyLock::new(|| {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    Data::new(if is_measured { 100_000 } else { 1_000 })
});

#[divan::bench(args = &CASES, sample_count = 10, sample_size = 1)]
fn agg(bencher: Bencher<'_, '_>, case: &Case) {
    let data = &*DATA;
    let values = data.values(case);
    let (filling, measured) = data.halves();
    let elements: usize = measured.iter().map(Batch::elements).sum();
    bencher
        .counter(ItemsCount::new(elements))
        .with_inputs(|| {
            let mut states = data.states(case);
            data.run(&mut states, &values, filling, drop);
            states
        })
        .bench_local_refs(|states| {
            let mut answers = 0;
            let seen =
                data.run(states, &values, measured, |column| answers += divan::black_box(column).len());
            assert_eq!(seen, elements);
            assert!(answers > 0);
        });
}

/// Elements, answers and a digest of the answers of each case, over few groups.
fn check() {
    let data = Data::new(1_000);
    let mut table = String::new();
    for case in &CASES {
        let (mut states, values) = (data.states(case), data.values(case));
        let (mut answers, mut digest) = (0, 0_u64);
        let elements = data.run(&mut states, &values, &data.batches, |column| {
            answers += column.len();
            for hash in hash_column(&column) {
                digest = digest.rotate_left(1) ^ hash;
            }
        });
        table += &format!("{:<31} {elements} elements, {answers} answers, digest {digest:016x}\n", case.name);
    }
    expect![[r#"
        count(*)                        70023 elements, 40000 answers, digest 9e2aedeabf27e6c8
        sum, count(*)                   70023 elements, 80000 answers, digest 932991d31df7acf2
        sum, count(*), a tenth null     70023 elements, 80000 answers, digest 167d1ed53e81c2dc
        sum, values near 1e-11          70023 elements, 40000 answers, digest 68cd2b38db70ab59
        sum, values from 1e-30 to 1e30  70023 elements, 40000 answers, digest dfc0d83f0fb44dc6
        avg                             70023 elements, 40000 answers, digest 73f50b2f66c3195d
        stddev                          70023 elements, 40000 answers, digest 6ba02eb7558a3077
        min                             70023 elements, 40000 answers, digest b50fd1688fe17724
        max, min                        70023 elements, 80000 answers, digest 4c57a03f78a4b52f
        first                           70023 elements, 40000 answers, digest 808f970b918d7396
        last, prev                      70023 elements, 80000 answers, digest 115cf1c79423ca46
        count(distinct)                 70023 elements, 40000 answers, digest 1d6c812b7d156405
        quantile 0.5, 0.99              70023 elements, 80000 answers, digest a21e80ab9f2f162e
    "#]]
    .assert_eq(&table);
}

fn main() {
    check();
    divan::main();
}
