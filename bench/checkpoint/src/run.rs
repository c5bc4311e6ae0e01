//! One configuration: all keys are loaded, then operations follow for a time, each read held against what was written.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use hdrhistogram::Histogram;

use crate::{Kind, Operation, Place, Store, Workload, process};

/// Changes of a cycle, as checkpoints bring them.
pub const PER_CYCLE: u64 = 10_000;

/// One configuration.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The store
    #[arg(long)]
    pub store: String,
    /// A folder on the disk that is to be measured; what lies in it goes
    #[arg(long)]
    pub dir: PathBuf,
    /// Where the store's server listens, if it has one
    #[arg(long)]
    pub url: Option<String>,
    #[arg(long, default_value_t = 10_000)]
    pub keys: u64,
    #[arg(long, default_value_t = 1024)]
    pub value_bytes: usize,
    /// Writes that are synced at once: 1, each by itself; 100, as of so many writers that each wait for the disk; 10,000,
    /// a cycle's; of several, one after the other on what was loaded once
    #[arg(long, value_delimiter = ',', default_values_t = [PER_CYCLE],
          value_parser = clap::value_parser!(u64).range(1..))]
    pub at_once: Vec<u64>,
    /// Writers beside each other, each with its share of the keys in a store of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub writers: u64,
    /// Seconds of operations, for each of --at-once; a cycle that has begun is finished
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// A writer ends after so many writes, too
    #[arg(long, default_value_t = u64::MAX)]
    pub writes: u64,
    /// Gives up where loading all keys takes longer
    #[arg(long, default_value_t = 300.0)]
    pub load_seconds: f64,
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Runs it and prints `store=… keys=… at_once=… rate=…`, a line for each `at_once`, or `store=… keys=… loaded=…` where
/// loading takes too long.
///
/// # Errors
/// Where there is no such store, several writers would have one server, it fails, or a read gives another value than the
/// newest.
pub fn run(options: &Options, kinds: &[Kind]) -> Result<()> {
    let names = || kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    let kind = kinds
        .iter()
        .find(|kind| kind.name == options.store)
        .with_context(|| format!("there is no store {:?}; there are {}", options.store, names()))?;
    ensure!(
        options.writers == 1 || options.url.is_none(),
        "--writers is {} and there is a --url: each writer has a store of its own, and a server would be one",
        options.writers
    );
    empty(&options.dir)?;
    let mut runs =
        (0..options.writers).map(|number| Run::open(options, kind, number)).collect::<Result<Vec<_>>>()?;
    let within = Duration::from_secs_f64(options.load_seconds);
    let in_time = beside_each_other(&mut runs, |run| run.load(within))?;
    if in_time.contains(&false) {
        let (keys, loaded) = (keys(&runs), written(&runs));
        println!("store={} keys={keys} loaded={loaded}", kind.name);
        return Ok(());
    }
    options.at_once.iter().try_for_each(|at_once| operate(options, kind, &mut runs, *at_once))
}

fn keys(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.workload.keys()).sum()
}

fn written(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.written).sum()
}

/// Operations on what was loaded, and their line.
fn operate(options: &Options, kind: &Kind, runs: &mut [Run], at_once: u64) -> Result<()> {
    let (keys, before) = (keys(runs), written(runs));
    let (started, cpu) = (Instant::now(), process::cpu_seconds());
    let reads: u64 = beside_each_other(runs, |run| run.operate(options, at_once))?.iter().sum();
    let seconds = started.elapsed().as_secs_f64();
    let cpu = process::cpu_seconds() - cpu;
    let writes = written(runs) - before;
    let disk = runs.iter().map(Run::disk_bytes).sum::<Result<u64>>()?;
    let most_disk: u64 = runs.iter().map(|run| run.most_disk).sum();
    let live: u64 = runs.iter().map(|run| run.workload.live_bytes()).sum();
    let index = runs.iter().map(|run| run.store.index_bytes()).sum::<Option<u64>>();
    let times = |of: fn(&Run) -> &Histogram<u64>, at: f64| {
        let mut all = histogram();
        runs.iter().try_for_each(|run| all.add(of(run))).map(|()| all.value_at_quantile(at) as f64 / 1e3)
    };
    println!(
        "store={} keys={keys} at_once={at_once} operations={} seconds={seconds:.3} rate={:.0} writes={writes} reads={reads} \
         sync_p50_us={:.1} sync_p99_us={:.1} read_p50_us={:.2} read_p99_us={:.2} disk_bytes={disk} \
         most_disk_bytes={} live_bytes={live} index_bytes={} cpu_seconds={cpu:.2}",
        kind.name,
        writes + reads,
        (writes + reads) as f64 / seconds,
        times(|run| &run.syncs, 0.5)?,
        times(|run| &run.syncs, 0.99)?,
        times(|run| &run.gets, 0.5)?,
        times(|run| &run.gets, 0.99)?,
        most_disk.max(disk),
        index.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
    );
    Ok(())
}

/// The same for each writer, on a thread of its own; in the order of the writers.
fn beside_each_other<T: Send>(
    runs: &mut [Run],
    act: impl Fn(&mut Run) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = runs.iter_mut().map(|run| scope.spawn(move || act(run))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer does not panic")).collect()
    })
}

/// One writer and its store.
struct Run {
    store: Box<dyn Store>,
    dir: PathBuf,
    workload: Workload,
    /// By key, the number of the write that readers see.
    newest: Vec<u64>,
    /// What was put and not synced: key and number of the write.
    put: Vec<(u64, u64)>,
    written: u64,
    value: Vec<u8>,
    /// Nanoseconds of a write with its sync, or of the sync of several.
    syncs: Histogram<u64>,
    gets: Histogram<u64>,
    most_disk: u64,
}

impl Run {
    /// The writer with a number, which tells its operations from those of others.
    fn open(options: &Options, kind: &Kind, number: u64) -> Result<Self> {
        let dir = match options.writers {
            1 => options.dir.clone(),
            _ => options.dir.join(number.to_string()),
        };
        empty(&dir)?;
        let keys = options.keys.div_ceil(options.writers);
        Ok(Self {
            store: (kind.open)(&Place { dir: dir.clone(), url: options.url.clone() })?,
            dir,
            workload: Workload::new(options.seed + number, keys, options.value_bytes),
            newest: Vec::new(),
            put: Vec::new(),
            written: 0,
            value: Vec::new(),
            syncs: histogram(),
            gets: histogram(),
            most_disk: 0,
        })
    }

    /// Gives every key a value; whether that was done in time.
    fn load(&mut self, within: Duration) -> Result<bool> {
        let started = Instant::now();
        self.newest = vec![0; self.workload.keys() as usize];
        for key in 0..self.workload.keys() {
            self.put(key)?;
            if self.put.len() as u64 == PER_CYCLE {
                self.sync()?;
                if started.elapsed() > within {
                    return Ok(false);
                }
            }
        }
        self.sync()?;
        Ok(true)
    }

    /// Operations until the time is over; how many of them were reads.
    fn operate(&mut self, options: &Options, at_once: u64) -> Result<u64> {
        self.syncs.reset();
        self.gets.reset();
        self.most_disk = 0;
        let until = Instant::now() + Duration::from_secs_f64(options.seconds);
        let last = self.written.saturating_add(options.writes);
        let (mut reads, mut writes_to_look) = (0, PER_CYCLE * 10);
        loop {
            match self.workload.operation() {
                Operation::Read(key) => {
                    self.get(key)?;
                    reads += 1;
                }
                Operation::Write(key) => {
                    let started = Instant::now();
                    self.put(key)?;
                    if (self.put.len() as u64) < at_once {
                        continue;
                    }
                    // Puts of several are counted with the run, not with their sync.
                    let started = if at_once == 1 { started } else { Instant::now() };
                    self.sync()?;
                    self.syncs.saturating_record(started.elapsed().as_nanos() as u64);
                    writes_to_look = writes_to_look.saturating_sub(PER_CYCLE);
                    if at_once == PER_CYCLE && writes_to_look == 0 {
                        self.most_disk = self.most_disk.max(self.disk_bytes()?);
                        writes_to_look = PER_CYCLE * 10;
                    }
                    if Instant::now() >= until || self.written >= last {
                        return Ok(reads);
                    }
                }
            }
        }
    }

    fn put(&mut self, key: u64) -> Result<()> {
        self.written += 1;
        self.workload.value(self.written, &mut self.value);
        self.store.put(&Workload::key(key), &self.value)?;
        self.put.push((key, self.written));
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if !self.put.is_empty() {
            self.store.sync()?;
        }
        for (key, write) in self.put.drain(..) {
            self.newest[key as usize] = write;
        }
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<()> {
        let started = Instant::now();
        let is_there = self.store.get(&Workload::key(key), &mut self.value)?;
        self.gets.saturating_record(started.elapsed().as_nanos() as u64);
        ensure!(is_there, "key {key} is missing");
        let head = self.value.first_chunk().map(|head| u64::from_le_bytes(*head));
        let newest = self.newest[key as usize];
        ensure!(head == Some(newest), "key {key} has the value of write {head:?}, expected that of {newest}");
        Ok(())
    }

    fn disk_bytes(&self) -> Result<u64> {
        match self.store.bytes_elsewhere() {
            Some(bytes) => Ok(bytes),
            None => process::disk_bytes(&self.dir).context("measure the folder"),
        }
    }
}

/// Makes a folder, without what was in it.
fn empty(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| format!("empty {}", dir.display()))?;
    }
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))
}

/// Of nanoseconds up to a minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .expect("a minute in nanoseconds to three digits is within what a histogram holds")
}
