//! More groups than memory: `sum, count(*)` of uniform keys over all time, groups in the `indexed` back end.
//!
//! `cargo run --release -p thalweg-window --example cache_speed DIR [GROUPS [RECORDS [MEMORY_MIB]]]`
//!
//! Every group comes once, then records of random keys. `DIR` gets the files of the back end (some 150 bytes a group,
//! twice that while it is compacted) and must be empty. Prints, for both, records per second, and for the second hits,
//! misses, the bytes that a key costs in memory though its group is not there (in the stage and in the index of the
//! back end), and the process's memory. Then the stage is thrown away and begun again: lazily and eagerly, with the
//! time to the first answer. Such windows keep no rows, so that the
//! reservoir has no part in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, StringViewArray};
use fastrand::Rng;
use thalweg_state::indexed::{Indexed, IndexedOptions};
use thalweg_state::{Backend, Version};
use thalweg_storage::{ChunkBudget, ChunkStore, ChunkStoreOptions, Fs, IoPool, MemFs, RealFs};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs};
use thalweg_window::query::Query;
use thalweg_window::stage::{GroupReader, Manifest, Stage, StageHandover, StageOptions};

const BATCH: usize = 4096;
const BATCHES_PER_CYCLE: usize = 10;

struct Groups(Arc<Indexed>);

impl GroupReader for Groups {
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        Ok(self.0.get_many(keys)?)
    }
}

fn schema() -> Schema {
    Schema::new(vec![Field::new("card", DataType::String), Field::new("amount", DataType::Float64)])
}

fn batch(first: u64, cards: impl Iterator<Item = u64>) -> Result<Batch, Error> {
    let cards = StringViewArray::from_iter_values(cards.map(|card| format!("c{card}")));
    let count = cards.len() as u64;
    let amounts: Float64Array = (0..count).map(|row| Some((first + row) as f64 / 100.0)).collect();
    let times: Vec<Micros> = (0..count).map(|row| (first + row) as Micros).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(cards), Arc::new(amounts)];
    let records = RecordBatch::try_new(Arc::clone(schema().arrow()), columns)
        .map_err(|error| Error::internal(error.to_string()))?;
    Ok(Batch::new(SeqRange::new(first, first + count), records, times.into(), Seqs::Dense(first)))
}

fn query() -> Result<Query, Error> {
    let text = "SELECT sum(amount) AS s, count(*) AS n FROM s GROUP BY card OVER INFINITE";
    Query::parse(text).map_err(|error| Error::user(error.render(text)))
}

fn store(manifest: Option<&Manifest>) -> Result<ChunkStore, Error> {
    let mut options = ChunkStoreOptions::new(1);
    options.committed = manifest.map(Manifest::chunks);
    Ok(ChunkStore::open(
        Arc::new(MemFs::new()),
        "chunks",
        IoPool::new(1),
        ChunkBudget::new(16 << 20),
        options,
    )?)
}

/// A line of `/proc/self/status`, in MiB.
fn status(what: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(what));
    let number =
        line.and_then(|line| line.trim_matches([':', ' ', '\t']).split(' ').next()?.parse::<u64>().ok());
    number.unwrap_or(0) / 1024
}

struct Job {
    stage: Stage,
    backend: Arc<Indexed>,
    cycle: u64,
    records: u64,
    committed: Option<(Version, Vec<u8>)>,
}

impl Job {
    fn answer(&mut self, cards: impl Iterator<Item = u64>) -> Result<(), Error> {
        let batch = batch(self.records, cards)?;
        self.records += batch.len() as u64;
        std::hint::black_box(self.stage.answer(&batch)?);
        let number = self.records as usize / BATCH;
        if number.is_multiple_of(BATCHES_PER_CYCLE) || self.stage.wants_cycle() {
            self.cycle += 1;
            self.stage.begin_cycle(self.cycle)?;
            if let Some(handover) = self.stage.finish_cycle()? {
                self.commit(handover)?;
            }
        }
        Ok(())
    }

    fn commit(&mut self, handover: StageHandover) -> Result<(), Error> {
        self.backend.write(handover.cycle, &handover.changes)?;
        let version = self.backend.prepare(handover.cycle)?;
        self.backend.committed(handover.cycle)?;
        self.stage.committed(handover.cycle);
        self.committed = Some((version, handover.manifest));
        Ok(())
    }
}

fn open(fs: &Arc<dyn Fs>, dir: &Path, version: Option<&Version>) -> Result<Arc<Indexed>, Error> {
    Ok(Arc::new(Indexed::open(Arc::clone(fs), dir, 1, IndexedOptions::default(), version)?))
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or_else(|| Error::user("expected a folder for the back end, got none"))?;
    let mut number = |default: usize| args.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (groups, records, memory) = (number(10_000_000), number(2_000_000), number(512) << 20);
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let dir = Path::new(&dir);
    let backend = open(&fs, dir, None)?;
    let mut stage = Stage::new(&schema(), StageOptions::default(), store(None)?);
    let planned = stage.plan("q", &query()?).map_err(|error| Error::user(error.to_string()))?;
    stage.add_queries(&[planned])?;
    stage.bound(memory, Arc::new(Groups(Arc::clone(&backend))));
    let mut job = Job { stage, backend, cycle: 0, records: 0, committed: None };

    let start = Instant::now();
    for first in (0..groups).step_by(BATCH) {
        job.answer((first..groups.min(first + BATCH)).map(|card| card as u64))?;
    }
    let rate = |count: usize, start: Instant| count as f64 / start.elapsed().as_secs_f64() / 1e3;
    println!("new groups      {:.0} k records/s", rate(groups, start));
    let before = job.stage.cache_stats().unwrap_or_default();
    let (mut random, start) = (Rng::with_seed(1), Instant::now());
    for _ in (0..records).step_by(BATCH) {
        job.answer((0..BATCH).map(|_| random.u64(..groups as u64)))?;
    }
    println!("random groups   {:.0} k records/s", rate(records, start));
    let stats = job.stage.cache_stats().unwrap_or_default();
    println!("resident, cold  {} and {} groups", stats.resident, stats.cold);
    println!(
        "read back       {} groups, {} evicted, {} overruns",
        stats.misses - before.misses,
        stats.evictions - before.evictions,
        stats.overruns - before.overruns
    );
    let index = job.backend.stats();
    let each = |bytes: u64| bytes as f64 / groups as f64;
    println!(
        "bytes per key   {:.1} in the stage, {:.1} in the index",
        each(stats.key_bytes),
        each(index.index_bytes)
    );
    println!("state           {} MiB of {} MiB", job.stage.state_bytes() >> 20, memory >> 20);
    println!("process         {} MiB now, {} MiB at most", status("VmRSS"), status("VmHWM"));
    println!("back end        {} MiB on disk, {} MiB live", index.disk_bytes >> 20, index.live_bytes >> 20);
    job.backend.close()?;
    let Some((version, manifest)) = job.committed.take() else { return Ok(()) };
    let (cycle, next) = (job.cycle, job.records);
    drop(job);
    for is_lazy in [true, false] {
        again(&fs, dir, (&version, &manifest), memory, is_lazy, next)?;
    }
    println!("cycles          {cycle}");
    Ok(())
}

/// Begins again where the last commit left everything, and answers one batch.
fn again(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    (version, manifest): (&Version, &[u8]),
    memory: usize,
    is_lazy: bool,
    next: u64,
) -> Result<(), Error> {
    let start = Instant::now();
    let backend = open(fs, dir, Some(version))?;
    let index = start.elapsed();
    let manifest = Manifest::parse(manifest)?;
    let store = store(None)?;
    let mut restoring =
        Stage::restore(&schema(), StageOptions::default(), store, manifest, &[("q", &query()?)])?;
    restoring.bound(memory, Arc::new(Groups(Arc::clone(&backend))));
    if is_lazy {
        restoring.load_lazily()?;
    } else {
        let mut outcome = Ok(());
        backend.scan(&mut |key, value| match restoring.load(key, value) {
            Ok(()) => std::ops::ControlFlow::Continue(()),
            Err(error) => {
                outcome = Err(error);
                std::ops::ControlFlow::Break(())
            }
        })?;
        outcome?;
    }
    let mut stage = restoring.finish()?;
    std::hint::black_box(stage.answer(&batch(next, 0..1)?)?);
    let stats = stage.cache_stats().unwrap_or_default();
    println!(
        "{}  first answer after {:?} (index of the back end {index:?}); {} groups in memory, {} MiB",
        if is_lazy { "lazy restart  " } else { "eager restart " },
        start.elapsed(),
        stats.resident,
        status("VmRSS"),
    );
    Ok(())
}
