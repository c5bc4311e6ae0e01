//! What a stage makes of records, with and without cycles: `sum, count(*)` of 100,000 cards over a sliding hour.
//!
//! `cargo bench -p thalweg-window --bench stage`
//!
//! One item is a record. Chunks go to memory, so that no disk has a part in it.
//!
//! `one_by_one`: `sum, avg, count(*)` over windows that share no edge, at 500 records a second of event time, each record a
//! batch of its own, after as much history as the longest window has. The argument is the number of windows.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringViewArray};
use divan::Bencher;
use divan::counter::ItemsCount;
use expect_test::expect;
use fastrand::Rng;
use thalweg_storage::{ChunkBudget, ChunkStore, ChunkStoreOptions, IoPool, MemFs};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs, hash_column};
use thalweg_window::query::Query;
use thalweg_window::stage::{Answers, Stage, StageOptions};

const BATCH: usize = 4096;
/// Groups written after each batch.
const BUDGET: usize = 512;

#[derive(Clone, Copy)]
struct Size {
    groups: usize,
    records: usize,
    /// Batches from one marker to the next.
    cycle: usize,
}

/// At 4 M records a second a cycle takes one.
const MEASURED: Size = Size { groups: 100_000, records: 8_000_000, cycle: 1_000 };
const SMALL: Size = Size { groups: 1_000, records: 100_000, cycle: 10 };

fn schema() -> Schema {
    Schema::new(vec![Field::new("card", DataType::String), Field::new("amount", DataType::Float64)])
}

fn batches(size: Size) -> Vec<Batch> {
    let mut random = Rng::with_seed(1);
    let mut now: Micros = 0;
    (0..size.records)
        .step_by(BATCH)
        .map(|first| {
            let count = BATCH.min(size.records - first);
            let cards = StringViewArray::from_iter_values(
                (0..count).map(|_| format!("c{}", random.usize(..size.groups))),
            );
            let amounts: Float64Array =
                (0..count).map(|_| Some(random.u32(..100_000) as f64 / 100.0)).collect();
            let times: Vec<Micros> = (0..count)
                .map(|_| {
                    now += random.i64(0..7_200);
                    now
                })
                .collect();
            let columns: Vec<ArrayRef> = vec![Arc::new(cards), Arc::new(amounts)];
            let batch = RecordBatch::try_new(Arc::clone(schema().arrow()), columns).expect("columns fit");
            let range = SeqRange::new(first as u64, (first + count) as u64);
            Batch::new(range, batch, times.into(), Seqs::Dense(first as u64))
        })
        .collect()
}

fn empty() -> Result<Stage, Error> {
    let store = ChunkStore::open(
        Arc::new(MemFs::new()),
        "chunks",
        IoPool::new(1),
        ChunkBudget::new(256 << 20),
        ChunkStoreOptions::new(1),
    )?;
    Ok(Stage::new(&schema(), StageOptions::default(), store))
}

fn stage() -> Result<Stage, Error> {
    let mut stage = empty()?;
    let text = "SELECT sum(amount) AS s, count(*) AS n FROM s GROUP BY card OVER SLIDING 1 HOUR";
    let query = Query::parse(text).map_err(|error| Error::user(error.render(text)))?;
    let planned = stage.plan("q", &query).map_err(|error| Error::user(error.to_string()))?;
    stage.add_queries(&[planned])?;
    Ok(stage)
}

/// Entries that cycles handed over.
type Entries = usize;

/// Answers all batches and hands the answers to `see`; with `cycle`, a marker after each `cycle` batches.
fn run(
    stage: &mut Stage,
    batches: &[Batch],
    cycle: Option<usize>,
    mut see: impl FnMut(Answers),
) -> Result<Entries, Error> {
    let mut entries = 0;
    for (number, batch) in batches.iter().enumerate() {
        see(stage.answer(batch)?);
        let Some(cycle) = cycle else { continue };
        if number % cycle == cycle - 1 {
            assert!(stage.finish_cycle()?.is_none(), "the budget suffices");
            stage.begin_cycle((number / cycle) as u64 + 1)?;
        } else if let Some(handover) = stage.hand_over_some(BUDGET)? {
            entries += handover.changes.len();
            stage.committed(handover.cycle);
        }
    }
    Ok(entries)
}

static INPUT: LazyLock<(Size, Vec<Batch>)> = LazyLock::new(|| {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let size = if is_measured { MEASURED } else { SMALL };
    (size, batches(size))
});

#[divan::bench(sample_count = 6, sample_size = 1)]
fn without_cycles(bencher: Bencher<'_, '_>) {
    measure(bencher, false);
}

#[divan::bench(sample_count = 6, sample_size = 1)]
fn with_cycles(bencher: Bencher<'_, '_>) {
    measure(bencher, true);
}

fn measure(bencher: Bencher<'_, '_>, has_cycles: bool) {
    let (size, batches) = &*INPUT;
    bencher
        .counter(ItemsCount::new(size.records))
        .with_inputs(|| stage().expect("a stage in memory"))
        .bench_local_refs(|stage| {
            let mut rows = 0;
            let cycle = has_cycles.then_some(size.cycle);
            let entries =
                run(stage, batches, cycle, |answers| rows += divan::black_box(answers).values[0].len());
            assert_eq!(rows, size.records);
            assert_eq!(entries.expect("a store in memory") > 0, has_cycles);
        });
}

/// Records a second of event time.
const RATE: usize = 500;
/// Records that are answered one by one.
const SINGLE: usize = 2_000;

fn windows(count: usize) -> Result<Stage, Error> {
    let mut stage = empty()?;
    let mut planned = Vec::new();
    for number in 0..count {
        let text = format!(
            "SELECT sum(amount) AS s, avg(amount) AS a, count(*) AS n FROM s GROUP BY card \
             OVER SLIDING {} SECONDS DELAYED BY {} SECONDS",
            3_600 - 17 * number,
            3 + 7 * number
        );
        let query = Query::parse(&text).map_err(|error| Error::user(error.render(&text)))?;
        let name = format!("w{number}");
        planned.push(stage.plan(&name, &query).map_err(|error| Error::user(error.to_string()))?);
    }
    stage.add_queries(&planned)?;
    Ok(stage)
}

/// A batch of `count` records, the first of which has the number `first`.
fn at_rate(random: &mut Rng, groups: usize, first: usize, count: usize) -> Batch {
    let cards = StringViewArray::from_iter_values((0..count).map(|_| format!("c{}", random.usize(..groups))));
    let amounts: Float64Array = (0..count).map(|_| random.u32(1..100_000) as f64 / 100.0).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(cards), Arc::new(amounts)];
    let batch = RecordBatch::try_new(Arc::clone(schema().arrow()), columns).expect("columns of the schema");
    let time = |row: usize| ((first + row) * 1_000_000 / RATE) as Micros;
    let times: Vec<Micros> = (0..count).map(time).collect();
    let range = SeqRange::new(first as u64, (first + count) as u64);
    Batch::new(range, batch, times.into(), Seqs::Dense(first as u64))
}

#[divan::bench(args = [10, 120], sample_count = 3, sample_size = 1)]
fn one_by_one(bencher: Bencher<'_, '_>, count: usize) {
    let (size, _) = &*INPUT;
    let history = if size.records == SMALL.records { 20 * RATE } else { 3_700 * RATE };
    bencher
        .counter(ItemsCount::new(SINGLE))
        .with_inputs(|| {
            let (mut stage, mut random) = (windows(count).expect("a stage in memory"), Rng::with_seed(2));
            for first in (0..history).step_by(BATCH) {
                let batch = at_rate(&mut random, size.groups, first, BATCH.min(history - first));
                stage.answer(&batch).expect("answers");
            }
            let single = |row| at_rate(&mut random, size.groups, history + row, 1);
            let singles: Vec<Batch> = (0..SINGLE).map(single).collect();
            (stage, singles)
        })
        .bench_local_refs(|(stage, singles)| {
            for batch in singles {
                let answers = divan::black_box(stage.answer(batch).expect("answers"));
                assert_eq!(answers.values.len(), count);
            }
        });
}

/// Answers, their digest, and hand-overs: cycles must change no answer.
fn check() {
    let batches = batches(SMALL);
    let mut table = String::new();
    for cycle in [None, Some(SMALL.cycle)] {
        let (mut rows, mut digest) = (0, 0_u64);
        let entries = run(&mut stage().expect("a stage in memory"), &batches, cycle, |answers| {
            for query in &answers.values {
                rows += query.len();
                for hash in query.as_struct().columns().iter().flat_map(hash_column) {
                    digest = digest.rotate_left(1) ^ hash;
                }
            }
        });
        let entries = entries.expect("a store in memory");
        table += &format!("cycle {cycle:?}: {rows} answers, digest {digest:016x}, {entries} entries\n");
    }
    expect![[r#"
        cycle None: 100000 answers, digest 308dd7fc94c1f4c1, 0 entries
        cycle Some(10): 100000 answers, digest 308dd7fc94c1f4c1, 2004 entries
    "#]]
    .assert_eq(&table);
}

fn main() {
    check();
    divan::main();
}
