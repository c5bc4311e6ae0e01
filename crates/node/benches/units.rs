//! What units of a stage cost that are told nothing but the time, and what it costs that each commits by itself.
//!
//! `cargo bench -p thalweg-node --bench units`
//!
//! * `idle`: 256 units, each told the time once a second, for 30 s: processor time, memory and syncs.
//! * `apart`, `together`: 64 partitions that are given rows at 20,000 a second, with a cycle a second: as units, and as the
//!   partitions of one job that reads a file. Processor time and syncs.
//!
//! The log is in memory: brokers and their client have no part in it. Without `--bench` a small run checks that all of it
//! works.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg_cluster::frame::{Head, Sender, Settings, Spec, tick};
use thalweg_cluster::positions::{self, Mark, Position};
use thalweg_flow::CycleSettings;
use thalweg_kafka::memory::{Faults, MemoryBus, Stored};
use thalweg_kafka::{Bus as _, TopicPartition};
use thalweg_node::cluster::{Origin, Scatter, StageCut, Texts, UnitOptions, Units, UnitsFolder, cut};
use thalweg_node::{CheckedJob, JobFile, Node, NodeOptions};
use thalweg_storage::{File, Fs, Layer, Layered, RealFs};
use thalweg_types::{Batch, SeqRange, Seqs};

const TOPIC: &str = "thalweg.j.features";
const DOOR: positions::Origin = positions::Origin::Door { incarnation: 1 };

/// Counts syncs of files.
#[derive(Debug, Default)]
struct Syncs(AtomicU64);

impl Layer for Syncs {
    fn inner(&self) -> &dyn Fs {
        &RealFs
    }

    fn sync_data(&self, _: &Path, file: &dyn File) -> std::io::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        file.sync_data()
    }
}

struct World {
    folder: tempfile::TempDir,
    partitions: u32,
    syncs: Layered<Syncs>,
    node: Arc<Node>,
}

impl World {
    fn new(partitions: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let syncs = Layered::over(Syncs::default());
        let options = NodeOptions { fs: Arc::new(syncs.clone()), ..NodeOptions::default() };
        let node = options.data_dir(folder.path().join("data")).workers(2).open().expect("a node");
        Self { folder, partitions, syncs, node: Arc::new(node) }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("records.csv")
    }

    fn job(&self, name: &str) -> CheckedJob {
        let text = format!(
            "
name: {name}
cycle: {{ every: 1s }}
sources:
  records: {{ type: file, path: {}, follow: true, poll: 10ms, format: csv, time: t, schema: {{ n: int64, t: int64, card: int64 }} }}
operators:
  features:
    type: metrics
    input: records
    partition_by: [card]
    partitions: {}
    queries: {{ q: 'SELECT sum(n) AS s, count(*) AS c FROM records GROUP BY card OVER SLIDING 1 HOUR' }}
sinks: {{ out: {{ type: 'null', input: features, digest: false }} }}
",
            self.file().display(),
            self.partitions
        )
        .replace("t: int64", "t: timestamp(us)");
        let job = JobFile::parse("j.yaml", &text, &[]).and_then(|file| file.check(self.node.check_options()));
        job.unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    fn look(&self) -> Look {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let clock = |field: usize| fields.get(field).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: u64 = statm.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        Look {
            at: Instant::now(),
            cpu: Duration::from_millis(10 * (clock(11) + clock(12))),
            rss: pages * 4096,
            syncs: self.syncs.layer().0.load(Ordering::Relaxed),
        }
    }
}

/// What the process had used at some moment.
struct Look {
    at: Instant,
    cpu: Duration,
    rss: u64,
    syncs: u64,
}

/// Since an earlier look: part of one core, and syncs a second.
fn since(before: &Look, now: &Look) -> (f64, f64) {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    let cpu = now.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds;
    (100.0 * cpu, (now.syncs - before.syncs) as f64 / seconds)
}

/// The text of the job, which nobody reads.
fn spec() -> Spec {
    Spec { number: 1, semantics: 1, job: String::new() }
}

/// A door with a log in memory.
struct Door {
    bus: MemoryBus,
    scatter: Scatter,
    stage: StageCut,
    sent: u64,
}

impl Door {
    fn new(world: &World) -> Self {
        let bus = MemoryBus::new(1, Faults::default());
        bus.make_topic(TOPIC, world.partitions as i32);
        let cut = cut(&world.job("j")).unwrap_or_else(|refusals| panic!("{refusals:?}"));
        let stage = cut.stages.into_iter().next().expect("a stage");
        let sender = Sender { spec: 1, origin: DOOR, lineage: None };
        let scatter = Scatter::new(&stage, sender, Settings::default(), |_| Mark::START);
        let door = Self { bus, scatter, stage, sent: 0 };
        let text = spec().encode(&Settings::default()).expect("a short text");
        (0..world.partitions).for_each(|partition| door.append(partition, text.clone()));
        door
    }

    fn append(&self, partition: u32, frame: Vec<u8>) {
        let message = Stored { offset: 0, timestamp: 0, key: None, value: Some(frame), headers: Vec::new() };
        self.bus.append(&TopicPartition::new(TOPIC, partition as i32), message);
    }

    /// Sends rows of as many cards.
    fn send(&mut self, rows: u64) {
        let (first, last) = (self.sent, self.sent + rows);
        let schema = self.stage.streams[0].arrow();
        let numbers =
            |of: fn(u64) -> i64| Arc::new((first..last).map(of).collect::<Int64Array>()) as ArrayRef;
        let columns = [numbers(|n| n as i64), numbers(time_of), numbers(card_of)];
        let columns = columns.iter().zip(schema.fields()).map(|(column, field)| {
            arrow_cast::cast(column, field.data_type()).expect("numbers are what the schema says")
        });
        let records =
            RecordBatch::try_new(Arc::clone(schema), columns.collect()).expect("columns of the schema");
        let times: Vec<i64> = (first..last).map(time_of).collect();
        let batch = Batch::new(SeqRange::new(first, last), records, times.into(), Seqs::Dense(first));
        let origin = |seq, _| Origin { position: Position { offset: seq, row: 0 }, arrival: 0, reply: None };
        self.scatter.push(0, &batch, origin).expect("rows of the stage");
        for partition in 0..self.scatter.partitions() {
            while let Some(frame) = self.scatter.cut(partition, None) {
                self.append(partition, frame);
            }
        }
        self.sent = last;
    }

    /// Tells each partition the time.
    fn tick(&self) {
        for partition in 0..self.scatter.partitions() {
            let origin = positions::Origin::Door { incarnation: 2 };
            let head =
                Head { spec: 1, origin, lineage: None, after: Mark::START, arrival: 0, task_time: None };
            self.append(partition, tick(&head));
        }
    }
}

fn time_of(n: u64) -> i64 {
    1_700_000_000_000_000 + n as i64 * 50
}

fn card_of(n: u64) -> i64 {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as i64
}

fn start(world: &World, door: &Door, every: Duration) -> Units {
    let cycle = CycleSettings { every: Some(every), bytes: None, records: None };
    let options = UnitOptions { cycle, ..UnitOptions::default() };
    let bus = Arc::new(door.bus.clone());
    let job = world.job("j");
    let texts = Texts::new(move |_| Ok(cut(&job).unwrap_or_else(|refusals| panic!("{refusals:?}"))));
    let folder = UnitsFolder::open(Arc::clone(&world.node), "j", texts, Arc::new(spec()));
    let units = Units::open(folder.expect("the job's folder"), 0, bus, TOPIC, None, options);
    let units = units.expect("units");
    for partition in 0..world.partitions {
        units.start(partition, true).expect("a unit");
    }
    units
}

/// Waits until all units have read all of their logs.
fn caught_up(units: &Units, door: &Door) {
    for unit in units.list() {
        let of = TopicPartition::new(TOPIC, unit.partition as i32);
        let end = door.bus.bounds(&of).expect("bounds").end as u64;
        while unit.counts.position.load(Ordering::Relaxed) < end {
            assert!(!unit.job.state().is_final(), "{:?}", unit.job.state());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn idle(partitions: u32, seconds: u64) {
    let world = World::new(partitions);
    let mut door = Door::new(&world);
    let before = world.look();
    let units = start(&world, &door, Duration::from_secs(10));
    // Each has some state, and has committed it.
    door.send(u64::from(partitions) * 20);
    caught_up(&units, &door);
    let there = world.look();
    let first = world.look();
    for _ in 0..seconds {
        door.tick();
        std::thread::sleep(Duration::from_secs(1).min(Duration::from_secs(seconds)));
    }
    caught_up(&units, &door);
    let last = world.look();
    let (cpu, syncs) = since(&first, &last);
    let memory = there.rss.saturating_sub(before.rss) / u64::from(partitions) / 1024;
    println!(
        "idle: {partitions} units, {seconds} s: {cpu:.2} % of a core, {memory} KiB each, {syncs:.1} syncs/s"
    );
}

fn apart(partitions: u32, seconds: u64, rows: u64) {
    let world = World::new(partitions);
    let mut door = Door::new(&world);
    let units = start(&world, &door, Duration::from_secs(1));
    let first = world.look();
    for _ in 0..seconds * 20 {
        door.send(rows / 20);
        std::thread::sleep(Duration::from_millis(50));
    }
    caught_up(&units, &door);
    let (cpu, syncs) = since(&first, &world.look());
    let told: u64 = units.list().iter().map(|unit| unit.counts.rows.load(Ordering::Relaxed)).sum();
    assert_eq!(told, door.sent);
    println!("apart: {partitions} units, {rows} rows/s: {cpu:.1} % of a core, {syncs:.1} syncs/s");
}

fn together(partitions: u32, seconds: u64, rows: u64) {
    let world = World::new(partitions);
    let mut file = std::fs::File::create(world.file()).expect("a file");
    file.write_all(b"n,t,card\n").expect("a header");
    let job = world.node.start(world.job("together"), &[]).expect("a job");
    let first = world.look();
    let mut sent = 0;
    for _ in 0..seconds * 20 {
        let mut lines = String::new();
        for n in sent..sent + rows / 20 {
            lines += &format!("{n},{},{}\n", time_of(n), card_of(n));
        }
        sent += rows / 20;
        file.write_all(lines.as_bytes()).expect("lines");
        std::thread::sleep(Duration::from_millis(50));
    }
    while job.stats().records < sent {
        assert!(!job.state().is_final(), "{:?}", job.state());
        std::thread::sleep(Duration::from_millis(1));
    }
    let (cpu, syncs) = since(&first, &world.look());
    println!("together: {partitions} partitions, {rows} rows/s: {cpu:.1} % of a core, {syncs:.1} syncs/s");
}

fn main() {
    if std::env::args().any(|argument| argument == "--bench") {
        idle(256, 30);
        apart(64, 15, 20_000);
        together(64, 15, 20_000);
    } else {
        idle(4, 0);
        apart(4, 0, 2_000);
        together(4, 0, 2_000);
    }
}
