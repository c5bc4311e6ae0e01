//! What a stage makes of records, with and without cycles: `sum, count(*)` of 100,000 cards over a sliding hour.
//!
//! `cargo run --release -p thalweg-window --example stage_speed [GROUPS [RECORDS]]`
//!
//! Prints records per second; with cycles also how long markers take, how long the longest slice between two batches
//! does, and how much is handed over. Chunks go to memory, so that no disk has a part in it. Runs alternate, and the
//! faster half of each kind counts: a busy machine disturbs those least.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringViewArray};
use thalweg_storage::{ChunkBudget, ChunkStore, ChunkStoreOptions, IoPool, MemFs};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs};
use thalweg_window::query::Query;
use thalweg_window::stage::{Stage, StageOptions};

const BATCH: usize = 4096;
/// Batches from one marker to the next: at 4 M records/s, one second.
const BATCHES_PER_CYCLE: usize = 1000;
/// Groups written after each batch.
const BUDGET: usize = 512;

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn schema() -> Schema {
    Schema::new(vec![Field::new("card", DataType::String), Field::new("amount", DataType::Float64)])
}

fn batches(groups: usize, records: usize) -> Vec<Batch> {
    let mut state = 1;
    let mut now: Micros = 0;
    (0..records)
        .step_by(BATCH)
        .map(|first| {
            let count = BATCH.min(records - first);
            let cards = StringViewArray::from_iter_values(
                (0..count).map(|_| format!("c{}", random(&mut state) as usize % groups)),
            );
            let amounts: Float64Array =
                (0..count).map(|_| Some((random(&mut state) % 100_000) as f64 / 100.0)).collect();
            let times: Vec<Micros> = (0..count)
                .map(|_| {
                    now += (random(&mut state) % 7_200) as Micros;
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

#[derive(Default)]
struct Run {
    seconds: f64,
    markers: Vec<Duration>,
    slices: Vec<Duration>,
    entries: usize,
    bytes: usize,
}

fn run(batches: &[Batch], with_cycles: bool) -> Result<Run, Error> {
    let store = ChunkStore::open(
        Arc::new(MemFs::new()),
        "chunks",
        IoPool::new(1),
        ChunkBudget::new(256 << 20),
        ChunkStoreOptions::new(1),
    )?;
    let mut stage = Stage::new(&schema(), StageOptions::default(), store);
    let text = "SELECT sum(amount) AS s, count(*) AS n FROM s GROUP BY card OVER SLIDING 1 HOUR";
    let query = Query::parse(text).map_err(|error| Error::user(error.render(text)))?;
    let planned = stage.plan("q", &query).map_err(|error| Error::user(error.to_string()))?;
    stage.add_queries(&[planned])?;
    let mut run = Run::default();
    let start = Instant::now();
    for (number, batch) in batches.iter().enumerate() {
        std::hint::black_box(stage.answer(batch)?);
        if !with_cycles {
            continue;
        }
        let now = Instant::now();
        if number % BATCHES_PER_CYCLE == BATCHES_PER_CYCLE - 1 {
            let cycle = (number / BATCHES_PER_CYCLE) as u64 + 1;
            let unfinished = stage.finish_cycle()?;
            assert!(unfinished.is_none(), "the budget suffices");
            let now = Instant::now();
            stage.begin_cycle(cycle)?;
            run.markers.push(now.elapsed());
        } else if let Some(handover) = stage.hand_over_some(BUDGET)? {
            run.entries += handover.changes.len();
            run.bytes += handover.changes.byte_len();
            stage.committed(handover.cycle);
            run.slices.push(now.elapsed());
        } else {
            run.slices.push(now.elapsed());
        }
    }
    run.seconds = start.elapsed().as_secs_f64();
    Ok(run)
}

/// Mean of the faster half.
fn typical(runs: &[Run]) -> f64 {
    let mut seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let half = &seconds[..seconds.len().div_ceil(2)];
    half.iter().sum::<f64>() / half.len() as f64
}

fn main() -> Result<(), Error> {
    let number = |place: usize, default: usize| {
        std::env::args().nth(place).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (groups, records) = (number(1, 100_000), number(2, 8_000_000));
    let batches = batches(groups, records);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        without.push(run(&batches, false)?);
        with.push(run(&batches, true)?);
    }
    let rate = |runs: &[Run]| records as f64 / typical(runs) / 1e6;
    println!("without cycles  {:.2} M records/s", rate(&without));
    println!("with cycles     {:.2} M records/s", rate(&with));
    let times = |what: &str, of: fn(&Run) -> &Vec<Duration>| {
        let mut all: Vec<Duration> = with.iter().flat_map(|run| of(run).iter().copied()).collect();
        all.sort_unstable();
        if let (Some(median), Some(longest)) = (all.get(all.len() / 2), all.last()) {
            println!("{what:<15} median {median:?}, longest {longest:?}");
        }
    };
    times("markers", |run| &run.markers);
    times("slices", |run| &run.slices);
    println!("handed over     {} entries, {} bytes a run", with[0].entries, with[0].bytes);
    Ok(())
}
