//! One configuration: all keys are loaded, then operations follow for a time, each read held against what was written.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;

use crate::{Kind, Operation, Place, Store, Workload, process};

/// Changes of a cycle, as checkpoints bring them.
pub const PER_CYCLE: u64 = 10_000;

/// When writes are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Every write by itself.
    Write,
    /// 100 writes at once, as a group commit makes of so many writers that each wait for the disk.
    Group,
    /// 10,000 writes at once.
    Cycle,
}

impl Durability {
    /// Writes that are synced at once.
    fn writes(self) -> u64 {
        match self {
            Durability::Write => 1,
            Durability::Group => 100,
            Durability::Cycle => PER_CYCLE,
        }
    }
}

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
    #[arg(long, value_enum, default_value = "cycle")]
    pub sync: Durability,
    /// Seconds of operations; a cycle that has begun is finished
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Ends after so many writes, too
    #[arg(long, default_value_t = u64::MAX)]
    pub writes: u64,
    /// Gives up where loading all keys takes longer
    #[arg(long, default_value_t = 300.0)]
    pub load_seconds: f64,
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Runs it and prints `store=… keys=… rate=…`, or `store=… keys=… loaded=…` where loading takes too long.
///
/// # Errors
/// Where there is no such store, it fails, or a read gives another value than the newest.
pub fn run(options: &Options, kinds: &[Kind]) -> Result<()> {
    let names = || kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    let kind = kinds
        .iter()
        .find(|kind| kind.name == options.store)
        .with_context(|| format!("there is no store {:?}; there are {}", options.store, names()))?;
    empty(&options.dir)?;
    let store = (kind.open)(&Place { dir: options.dir.clone(), url: options.url.clone() })?;
    let mut run = Run {
        store,
        workload: Workload::new(options.seed, options.keys, options.value_bytes),
        newest: Vec::new(),
        put: Vec::new(),
        written: 0,
        value: Vec::new(),
        syncs: histogram(),
        gets: histogram(),
    };
    if !run.load(Duration::from_secs_f64(options.load_seconds))? {
        println!("store={} keys={} loaded={}", kind.name, options.keys, run.written);
        return Ok(());
    }
    let (started, cpu) = (Instant::now(), process::cpu_seconds());
    let (loaded, mut most_disk) = (run.written, 0);
    let reads = run.operate(options, &mut most_disk)?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu = process::cpu_seconds() - cpu;
    let writes = run.written - loaded;
    let disk = run.disk_bytes(&options.dir)?;
    let microseconds = |times: &Histogram<u64>, at: f64| times.value_at_quantile(at) as f64 / 1e3;
    println!(
        "store={} keys={} operations={} seconds={seconds:.3} rate={:.0} writes={writes} reads={reads} \
         sync_p50_us={:.1} sync_p99_us={:.1} read_p50_us={:.2} read_p99_us={:.2} disk_bytes={disk} \
         most_disk_bytes={} live_bytes={} index_bytes={} cpu_seconds={cpu:.2}",
        kind.name,
        options.keys,
        writes + reads,
        (writes + reads) as f64 / seconds,
        microseconds(&run.syncs, 0.5),
        microseconds(&run.syncs, 0.99),
        microseconds(&run.gets, 0.5),
        microseconds(&run.gets, 0.99),
        most_disk.max(disk),
        run.workload.live_bytes(),
        run.store.index_bytes().map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
    );
    Ok(())
}

struct Run {
    store: Box<dyn Store>,
    workload: Workload,
    /// By key, the number of the write that readers see.
    newest: Vec<u64>,
    /// What was put and not synced: key and number of the write.
    put: Vec<(u64, u64)>,
    written: u64,
    value: Vec<u8>,
    /// Nanoseconds of a write with its sync, or of the sync of a cycle.
    syncs: Histogram<u64>,
    gets: Histogram<u64>,
}

impl Run {
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
        self.syncs.reset();
        Ok(true)
    }

    /// Operations until the time is over; how many of them were reads.
    fn operate(&mut self, options: &Options, most_disk: &mut u64) -> Result<u64> {
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
                    if (self.put.len() as u64) < options.sync.writes() {
                        continue;
                    }
                    // Puts of several are counted with the run, not with their sync.
                    let started = if options.sync == Durability::Write { started } else { Instant::now() };
                    self.sync()?;
                    self.syncs.saturating_record(started.elapsed().as_nanos() as u64);
                    writes_to_look = writes_to_look.saturating_sub(PER_CYCLE);
                    if options.sync == Durability::Cycle && writes_to_look == 0 {
                        *most_disk = (*most_disk).max(self.disk_bytes(&options.dir)?);
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

    fn disk_bytes(&self, dir: &Path) -> Result<u64> {
        match self.store.bytes_elsewhere() {
            Some(bytes) => Ok(bytes),
            None => process::disk_bytes(dir).context("measure the folder"),
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
