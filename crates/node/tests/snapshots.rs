//! Snapshots of units over the bus in memory: what a unit answers that was restored is what an undisturbed one answers, to
//! the bit, whatever is lost, damaged or deleted.
#![cfg(feature = "cluster")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use thalweg_cluster::control::{Name, Text};
use thalweg_cluster::frame::{Sender, Settings, Spec};
use thalweg_cluster::positions::{self, Mark, Position};
use thalweg_flow::{CycleSettings, JobState};
use thalweg_kafka::memory::{Faults, MemoryBus, Stored};
use thalweg_kafka::{Bus as _, TopicPartition};
use thalweg_node::cluster::{
    CarrierOptions, Cluster, ClusterOptions, DoorOptions, FolderStore, Kept, MemberOptions, Origin, Scatter,
    SnapshotOptions, Snapshots, StageCut, Store, Unit, UnitOptions, Units, UnitsFolder, cut, stage_topic,
};
use thalweg_node::{CheckedJob, JobFile, Node, NodeOptions};
use thalweg_types::{Batch, SEMANTICS};

#[path = "support/collect.rs"]
mod collect;
#[path = "support/waiting.rs"]
mod waiting;

use collect::{Collected, texts};
use waiting::eventually;

const TOPIC: &str = "thalweg.j.features";
const PARTITIONS: u32 = 4;

const JOB: &str = "
name: j
sources:
  records:
    type: file
    path: DIR/records.csv
    format: csv
    time: t
    lateness: 5s
    schema: { n: int64, t: timestamp(ms), card: string, amount: float64 }
state: { backend: BACKEND }
operators:
  features:
    type: metrics
    input: records
    partition_by: [card]
    partitions: 4
    queries:
      sliding: SELECT sum(amount) AS s, count(*) AS c, avg(amount) AS a FROM records GROUP BY card OVER SLIDING 30 SECONDS
      rows: SELECT first(amount) AS f, prev(amount) AS p FROM records GROUP BY card OVER ROWS 3
      all: SELECT count(DISTINCT n) AS d, quantile(amount, 0.5) AS q FROM records GROUP BY card OVER INFINITE
sinks:
  out: { type: collect, input: features }
";

struct Record {
    n: i64,
    t: i64,
    card: String,
    amount: f64,
}

fn records(rng: &mut Rng, count: i64) -> Vec<Record> {
    let mut time = 1_700_000_000_000_i64;
    (0..count)
        .map(|n| {
            time += rng.i64(0..2_000);
            let back = if rng.u8(..) < 20 { rng.i64(0..40_000) } else { rng.i64(0..3_000) };
            let card = format!("card {}", rng.u8(0..9));
            Record { n, t: time - back, card, amount: f64::from(rng.i32(-1_000_000..1_000_000)) / 7.0 }
        })
        .collect()
}

struct World {
    job: String,
    folder: tempfile::TempDir,
    bus: MemoryBus,
    answers: Collected,
    store: Arc<dyn Store>,
}

impl World {
    fn new(seed: u64, backend: &str) -> Self {
        let bus = MemoryBus::new(seed, Faults::default());
        bus.make_topic(TOPIC, PARTITIONS as i32);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        std::fs::create_dir(&root).unwrap();
        let store = Arc::new(FolderStore::open(&root).unwrap());
        let job = JOB.replace("BACKEND", backend);
        Self { job, folder, bus, answers: Collected::default(), store }
    }

    fn node(&self, data: &str, into: &Collected) -> Arc<Node> {
        Arc::new(self.options(data, into).open().unwrap())
    }

    fn options(&self, data: &str, into: &Collected) -> NodeOptions {
        let options = NodeOptions::default().data_dir(self.folder.path().join(data)).workers(2);
        options.sink(into.clone())
    }

    fn job(&self, node: &Node) -> CheckedJob {
        let text = self.job.replace("DIR", &self.folder.path().display().to_string());
        let job = JobFile::parse("j.yaml", &text, &[]).and_then(|file| file.check(node.check_options()));
        job.unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    fn stage(&self, node: &Node) -> StageCut {
        let cut = cut(&self.job(node)).unwrap_or_else(|refusals| panic!("{refusals:?}"));
        cut.stages.into_iter().next().unwrap()
    }

    /// What one node answers that reads the records itself.
    fn embedded(&self, records: &[Record]) -> BTreeMap<i64, String> {
        let mut text = "n,t,card,amount\n".to_owned();
        for Record { n, t, card, amount } in records {
            text += &format!("{n},{t},{card},{amount}\n");
        }
        std::fs::write(self.folder.path().join("records.csv"), text).unwrap();
        let all = Collected::default();
        let node = self.node("embedded", &all);
        let job = node.start(self.job(&node), &[]).unwrap();
        assert_eq!(job.wait().state, JobState::Done);
        let all = all.0.lock().unwrap();
        all.clone()
    }

    fn snapshots(&self, age: Duration) -> Arc<Snapshots> {
        let options = SnapshotOptions { every: Duration::ZERO, bytes: u64::MAX, age };
        Snapshots::start(Arc::clone(&self.store), options).unwrap()
    }

    /// Units on a node that is new each time, over the folder `data`.
    fn units(&self, data: &str, snapshots: &Arc<Snapshots>) -> Units {
        self.units_of(self.node(data, &self.answers), snapshots)
    }

    fn units_of(&self, node: Arc<Node>, snapshots: &Arc<Snapshots>) -> Units {
        let texts = texts(&node);
        let cycle = CycleSettings { every: Some(Duration::from_millis(2)), bytes: None, records: Some(100) };
        let snapshots = Some(Arc::clone(snapshots));
        let options = UnitOptions { cycle, snapshots, ..UnitOptions::default() };
        let folder = UnitsFolder::open(node, "j", texts, self.spec()).unwrap();
        Units::open(folder, 0, Arc::new(self.bus.clone()), TOPIC, None, options).unwrap()
    }

    /// The text of the job.
    fn spec(&self) -> Arc<Spec> {
        let job = self.job.replace("DIR", &self.folder.path().display().to_string());
        Arc::new(Spec { number: 5, semantics: SEMANTICS, job })
    }

    fn append(&self, partition: u32, frame: Vec<u8>) {
        let (key, value, headers) = (None, Some(frame), Vec::new());
        self.bus.append(&of(partition), Stored { offset: 0, timestamp: 0, key, value, headers });
    }

    /// Writes records as one door, in frames of a few.
    fn send(&self, rng: &mut Rng, records: &[Record], incarnation: u64) {
        let node = self.node("door", &Collected::default());
        let stage = self.stage(&node);
        let origin = positions::Origin::Door { incarnation };
        let spec = self.spec();
        let text = spec.encode(&Settings::default()).unwrap();
        (0..PARTITIONS).for_each(|partition| self.append(partition, text.clone()));
        let sender = Sender { spec: spec.number, origin, lineage: None };
        let mut scatter = Scatter::new(&stage, sender, Settings::default(), |_| Mark::START);
        let schema = stage.streams[0].arrow();
        let mut rest = records;
        while !rest.is_empty() {
            let (some, left) = rest.split_at(rng.usize(1..=rest.len().min(40)));
            rest = left;
            let cards: arrow_array::ArrayRef =
                Arc::new(some.iter().map(|r| Some(r.card.as_str())).collect::<arrow_array::StringArray>());
            let columns: Vec<arrow_array::ArrayRef> = vec![
                Arc::new(some.iter().map(|r| r.n).collect::<arrow_array::Int64Array>()),
                Arc::new(
                    some.iter()
                        .map(|r| Some(r.t))
                        .collect::<arrow_array::TimestampMillisecondArray>()
                        .with_data_type(schema.field(1).data_type().clone()),
                ),
                arrow_cast::cast(&cards, schema.field(2).data_type()).unwrap(),
                Arc::new(some.iter().map(|r| r.amount).collect::<arrow_array::Float64Array>()),
            ];
            let rows = arrow_array::RecordBatch::try_new(schema.clone(), columns).unwrap();
            let times: Vec<i64> = some.iter().map(|r| r.t * 1_000).collect();
            let first = some[0].n as u64;
            let range = thalweg_types::SeqRange::new(first, first + some.len() as u64);
            let batch = Batch::new(range, rows, times.into(), thalweg_types::Seqs::Dense(first));
            let origin =
                |seq, _| Origin { position: Position { offset: seq, row: 0 }, arrival: 0, reply: None };
            assert!(scatter.push(0, &batch, origin).unwrap().is_empty());
            for partition in 0..PARTITIONS {
                while let Some(frame) = scatter.cut(partition, None) {
                    self.append(partition, frame);
                }
            }
        }
    }

    fn end(&self, partition: u32) -> u64 {
        self.bus.bounds(&of(partition)).unwrap().end as u64
    }

    fn start(&self, partition: u32) -> u64 {
        self.bus.bounds(&of(partition)).unwrap().start as u64
    }

    /// Runs each unit to the end of its log, and stops it. One at a time, so that each has a turn for a snapshot.
    fn run(&self, data: &str, snapshots: &Arc<Snapshots>) {
        let units = self.units(data, snapshots);
        let is_idle = || eventually("no snapshot on its way", || snapshots.is_idle());
        for partition in 0..PARTITIONS {
            let unit = units.start(partition, true).unwrap();
            eventually("the end of the log", || position(&unit) == self.end(partition));
            assert_eq!(units.stop(partition).unwrap().unwrap().state, JobState::Done);
            is_idle();
        }
    }

    fn unit_folder(&self, data: &str, partition: u32) -> PathBuf {
        self.folder.path().join(data).join(format!("jobs/j/units/features/{partition}"))
    }

    fn lose(&self, data: &str) {
        std::fs::remove_dir_all(self.folder.path().join(data).join("jobs/j/units")).unwrap();
    }

    /// The folder of a unit's snapshots in the store.
    fn area(&self, partition: u32) -> PathBuf {
        let above = self.folder.path().join(format!("store/{TOPIC}/{partition}"));
        let ids: Vec<_> = std::fs::read_dir(&above).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
        ids[0].clone()
    }

    /// Manifests of a unit by position, and what each is.
    fn manifests(&self, partition: u32) -> Vec<(u64, PathBuf, serde_json::Value)> {
        let mut all: Vec<_> = files(&self.area(partition).join("manifests"))
            .into_iter()
            .map(|path| {
                let text = std::fs::read_to_string(&path).unwrap();
                let json: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
                (json["position"].as_u64().unwrap(), path, json)
            })
            .collect();
        all.sort_by_key(|(position, ..)| *position);
        all
    }

    /// Files of the store that a manifest names.
    fn named(&self, partition: u32, manifest: &serde_json::Value) -> BTreeSet<PathBuf> {
        let files = self.area(partition).join("files");
        let all = manifest["files"].as_array().unwrap().iter();
        all.map(|file| files.join(file["hash"].as_str().unwrap())).collect()
    }

    fn check(&self, records: &[Record]) {
        let expected = self.embedded(records);
        assert!(expected.values().any(|line| line.contains("late")), "no record was late");
        let answers = self.answers.0.lock().unwrap();
        assert_eq!(answers.len(), expected.len());
        for (n, answer) in &expected {
            assert_eq!(answers.get(n), Some(answer), "record {n}");
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn of(partition: u32) -> TopicPartition {
    TopicPartition::new(TOPIC, partition as i32)
}

fn position(unit: &Unit) -> u64 {
    if let JobState::Failed(failure) = unit.job.state() {
        panic!("{failure}");
    }
    unit.counts.position.load(Ordering::Relaxed)
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// Flips a byte in the middle of a file.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_unit_whose_folder_is_lost_goes_on_from_its_newest_snapshot() {
    for (seed, backend, count) in [(1, "indexed", 4_000), (2, "files", 300)] {
        let mut rng = Rng::with_seed(seed);
        let world = World::new(seed, backend);
        let records = records(&mut rng, count);
        let snapshots = world.snapshots(Duration::from_secs(3_600));
        // A new folder each time, or one that has lost its units.
        for (turn, some) in (0..).zip(records.chunks(count as usize / 4)) {
            world.send(&mut rng, some, turn);
            let before = read(&snapshots.counts.restored);
            world.run("a", &snapshots);
            let restored = read(&snapshots.counts.restored) - before;
            let expected = if turn == 0 { 0 } else { u64::from(PARTITIONS) };
            assert_eq!(restored, expected, "turn {turn}");
            // One snapshot at least of each: those of the last commits may have found no turn.
            for partition in 0..PARTITIONS {
                assert!(!world.manifests(partition).is_empty());
            }
            let manifest = &world.manifests(1)[0].2;
            let said = [&manifest["job"], &manifest["stage"], &manifest["partition"], &manifest["spec"]];
            assert_eq!(said.map(ToString::to_string).join(" "), "\"j\" \"features\" 1 5");
            world.lose("a");
        }
        assert_eq!(read(&snapshots.counts.failed), 0);
        // A file for each key, of which some do not change.
        assert!(backend == "indexed" || read(&snapshots.counts.reused) > 0, "no file was there already");
        world.check(&records);
    }
}

#[test]
fn records_go_that_no_kept_snapshot_needs_and_units_go_on_from_each_of_the_three() {
    let mut rng = Rng::with_seed(3);
    let world = World::new(3, "indexed");
    let records = records(&mut rng, 4_000);
    let snapshots = world.snapshots(Duration::ZERO);
    for (turn, some) in (0..).zip(records[..3_000].chunks(300)) {
        world.send(&mut rng, some, turn);
        world.run("a", &snapshots);
    }
    drop(snapshots);
    for partition in 0..PARTITIONS {
        let manifests = world.manifests(partition);
        let oldest = manifests[manifests.len() - 3].0;
        assert!(oldest > 0);
        assert_eq!(world.start(partition), oldest, "the oldest of three is where the log begins");
        // No more manifests than those, and no more files than they name.
        let named = manifests.iter().flat_map(|(.., manifest)| world.named(partition, manifest)).collect();
        assert_eq!(files(&world.area(partition).join("files")).into_iter().collect::<BTreeSet<_>>(), named);
        assert!(manifests.len() <= 4, "{}", manifests.len());
    }
    // The newest is damaged in a file that the others do not have, of the next one a file is missing, and the last is restored:
    // its position is the start of the log, and the message before it is gone.
    let snapshots = world.snapshots(Duration::from_secs(3_600));
    for partition in 0..PARTITIONS {
        let manifests = world.manifests(partition);
        let [third, second, newest] = &manifests[manifests.len() - 3..] else { unreachable!() };
        let of = |manifest: &serde_json::Value| world.named(partition, manifest);
        let (third, second, newest) = (of(&third.2), of(&second.2), of(&newest.2));
        let own = |set: &BTreeSet<PathBuf>, others: [&BTreeSet<PathBuf>; 2]| {
            set.iter().find(|path| !others.iter().any(|other| other.contains(*path))).unwrap().clone()
        };
        damage(&own(&newest, [&second, &third]));
        std::fs::remove_file(own(&second, [&newest, &third])).unwrap();
    }
    world.lose("a");
    let units = world.units("a", &snapshots);
    for partition in 0..PARTITIONS {
        let unit = units.start(partition, false).unwrap();
        eventually("the end of the log", || position(&unit) == world.end(partition));
    }
    drop(units);
    assert_eq!(read(&snapshots.counts.restored), u64::from(PARTITIONS));
    // The rest, by units that go on from their own folders.
    world.send(&mut rng, &records[3_000..], 99);
    world.run("a", &snapshots);
    assert_eq!(read(&snapshots.counts.restored), u64::from(PARTITIONS));
    world.check(&records);

    // Nothing can be used, and the log has lost its beginning.
    for partition in 0..PARTITIONS {
        files(&world.area(partition).join("manifests")).iter().for_each(|path| damage(path));
    }
    world.lose("a");
    let units = world.units("a", &snapshots);
    let error = units.start(2, true).map(drop).unwrap_err().chain();
    let place = format!("unit j/features/2 cannot go on: {TOPIC}[2] begins at offset {}", world.start(2));
    assert!(error.contains(&place) && error.contains("no data of it"), "{error}");
    assert!(error.contains("manifest"), "it says what is wrong with each: {error}");
}

#[test]
fn a_unit_that_was_away_while_records_were_deleted_takes_a_snapshot() {
    let mut rng = Rng::with_seed(4);
    let world = World::new(4, "indexed");
    let records = records(&mut rng, 3_000);
    let snapshots = world.snapshots(Duration::ZERO);
    world.send(&mut rng, &records[..300], 1);
    world.run("away", &snapshots);
    for (turn, some) in (2..).zip(records[300..2_700].chunks(300)) {
        world.send(&mut rng, some, turn);
        world.run("a", &snapshots);
    }
    let before = read(&snapshots.counts.restored);
    world.send(&mut rng, &records[2_700..], 77);
    world.run("away", &snapshots);
    assert_eq!(read(&snapshots.counts.restored) - before, u64::from(PARTITIONS));
    world.check(&records);
    let left = files(&world.folder.path().join("away/jobs/j/snapshots/features"));
    let left: Vec<_> = left.iter().flat_map(|partition| files(partition)).collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "what was on the way is gone");
}

#[test]
fn of_two_lineages_the_newest_by_position_is_restored() {
    let mut rng = Rng::with_seed(5);
    let world = World::new(5, "indexed");
    let records = records(&mut rng, 2_000);
    let (one, other) = (world.snapshots(Duration::ZERO), world.snapshots(Duration::ZERO));
    // Both nodes take themselves for the active one, in turns and at once.
    for (turn, some) in (0..).zip(records[..1_500].chunks(250)) {
        world.send(&mut rng, some, turn);
        std::thread::scope(|scope| {
            scope.spawn(|| world.run("a", &one));
            scope.spawn(|| world.run("b", &other));
        });
    }
    drop((one, other));
    let mut lineages = BTreeSet::new();
    let newest: Vec<String> = (0..PARTITIONS)
        .map(|partition| {
            let manifests = world.manifests(partition);
            let id = |manifest: &serde_json::Value| manifest["lineage"]["id"].as_str().unwrap().to_owned();
            lineages.extend(manifests.iter().map(|(.., manifest)| id(manifest)));
            let greatest = manifests.last().unwrap();
            // Where both have one at that position, either is the newest.
            let same = manifests.iter().filter(|(position, ..)| *position == greatest.0);
            same.map(|(.., manifest)| id(manifest)).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert!(lineages.len() > PARTITIONS as usize, "one node alone has made snapshots: {lineages:?}");
    world.send(&mut rng, &records[1_500..], 88);
    let third = world.snapshots(Duration::ZERO);
    world.run("c", &third);
    assert_eq!(read(&third.counts.restored), u64::from(PARTITIONS));
    for partition in 0..PARTITIONS {
        let text = std::fs::read_to_string(world.unit_folder("c", partition).join("lineage")).unwrap();
        let lineage: serde_json::Value = serde_json::from_str(&text).unwrap();
        let parent = lineage["parent"].as_str().unwrap();
        assert!(newest[partition as usize].contains(parent), "{parent}: {newest:?}");
    }
    world.check(&records);
}

/// A store whose files take no more than some bytes in all, or which takes no manifests.
struct Breaking {
    store: Arc<dyn Store>,
    puts_left: AtomicU64,
    refuses_manifests: bool,
}

impl Store for Breaking {
    fn put(&self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        let is_manifest = name.contains("/manifests/");
        let left = self.puts_left.load(Ordering::Relaxed);
        if (self.refuses_manifests && is_manifest) || left == 0 {
            return Err(io::Error::other("planted"));
        }
        self.puts_left.store(left - 1, Ordering::Relaxed);
        self.store.put(name, content)
    }

    fn get(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.store.get(name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<Kept>> {
        self.store.list(folder)
    }

    fn refresh(&self, name: &str) -> io::Result<bool> {
        self.store.refresh(name)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.store.delete(name)
    }
}

#[test]
fn a_snapshot_that_does_not_reach_the_store_leaves_nothing_wrong() {
    let mut rng = Rng::with_seed(6);
    let mut world = World::new(6, "indexed");
    let records = records(&mut rng, 3_000);
    world.send(&mut rng, &records[..500], 1);
    world.run("a", &world.snapshots(Duration::from_secs(3_600)));
    let whole = Arc::clone(&world.store);
    let kept: Vec<_> = (0..PARTITIONS).map(|partition| world.manifests(partition).len()).collect();
    for (turn, refuses_manifests) in [(2, true), (3, false)] {
        let some = &records[(turn - 1) * 500..turn * 500];
        world.send(&mut rng, some, turn as u64);
        let puts_left = AtomicU64::new(if refuses_manifests { u64::MAX } else { 3 });
        world.store = Arc::new(Breaking { store: Arc::clone(&whole), puts_left, refuses_manifests });
        let snapshots = world.snapshots(Duration::from_secs(3_600));
        world.run("a", &snapshots);
        drop(snapshots);
    }
    world.store = whole;
    let now: Vec<_> = (0..PARTITIONS).map(|partition| world.manifests(partition).len()).collect();
    assert!(now.iter().zip(&kept).all(|(now, kept)| *now <= *kept + 1), "{kept:?}, then {now:?}");
    assert!((0..PARTITIONS).all(|partition| world.start(partition) == 0), "nothing may be deleted for these");
    // What a process has left that was killed in between.
    let work = world.folder.path().join("a/jobs/j/snapshots/features/0/taking");
    std::fs::create_dir_all(&work).unwrap();
    std::fs::write(work.join("commit.log"), "left").unwrap();
    world.lose("a");
    let snapshots = world.snapshots(Duration::from_secs(3_600));
    world.send(&mut rng, &records[1_500..], 9);
    drop(world.units("a", &snapshots));
    assert!(!work.exists());
    world.run("a", &snapshots);
    assert_eq!(read(&snapshots.counts.restored), u64::from(PARTITIONS));
    world.check(&records);
}

#[test]
fn a_follower_takes_no_snapshots_and_a_topic_that_was_made_anew_has_none() {
    let mut rng = Rng::with_seed(7);
    let world = World::new(7, "indexed");
    let records = records(&mut rng, 500);
    let snapshots = world.snapshots(Duration::ZERO);
    world.send(&mut rng, &records, 1);
    let units = world.units("a", &snapshots);
    let unit = units.start(1, false).unwrap();
    eventually("the end of the log", || position(&unit) == world.end(1));
    units.stop(1).unwrap();
    drop(units);
    assert_eq!((read(&snapshots.counts.taken), read(&snapshots.counts.skipped)), (0, 0));
    world.run("b", &snapshots);
    assert!(read(&snapshots.counts.taken) > 0);

    world.bus.make_topic(TOPIC, PARTITIONS as i32);
    world.send(&mut rng, &records, 2);
    world.run("c", &snapshots);
    assert_eq!(read(&snapshots.counts.restored), 0, "those of another log");
    world.check(&records);
}

// Whole nodes.

/// Two keys, each a stage.
const CHAIN: &str = "
name: j
sources:
  records:
    type: http
    time: t
    max_ahead: none
    lateness: 1h
    schema: { n: int64, t: timestamp(ms), card: string, shop: string }
operators:
  features:
    type: metrics
    input: records
    partition_by: [card, shop]
    partitions: 4
    queries:
      by_shop: SELECT count(*) AS c, last(n) AS l FROM records GROUP BY shop OVER SLIDING 1 HOUR
      by_card: SELECT count(*) AS c, sum(n) AS s, count(DISTINCT shop) AS d FROM records GROUP BY card OVER SLIDING 1 HOUR
sinks: { out: { type: 'null', input: features } }
";

struct Peer {
    node: Arc<Node>,
    cluster: Cluster,
    snapshots: Arc<Snapshots>,
    data: PathBuf,
}

impl Peer {
    fn join(folder: &Path, bus: &MemoryBus, name: &str) -> Self {
        let data = folder.join(name);
        let node = Arc::new(NodeOptions::default().data_dir(data.clone()).workers(2).open().unwrap());
        let member = MemberOptions {
            prefix: "t".to_owned(),
            name: Name::new(name).unwrap(),
            host: Text::new(name).unwrap(),
            capacity: 1,
            address: Text::new("127.0.0.1:1").unwrap(),
            replication: 1,
        };
        let store = Arc::new(FolderStore::open(&folder.join("store")).unwrap());
        let (every, bytes, age) = (Duration::ZERO, u64::MAX, Duration::from_secs(2));
        let snapshots = Snapshots::start(store, SnapshotOptions { every, bytes, age }).unwrap();
        let cycle = CycleSettings { every: Some(Duration::from_millis(20)), bytes: None, records: None };
        let options = ClusterOptions {
            member,
            partitions: None,
            units: UnitOptions { cycle, snapshots: Some(Arc::clone(&snapshots)), ..UnitOptions::default() },
            door: DoorOptions { patience: Duration::from_secs(50), ..DoorOptions::default() },
            carrier: CarrierOptions::default(),
        };
        let cluster =
            Cluster::join(Arc::clone(&node), Arc::new(bus.clone()), options, Box::new(|_, _| {})).unwrap();
        Self { node, cluster, snapshots, data }
    }

    /// Dies, and its disk with it.
    fn die(self) {
        let Self { node, cluster, snapshots, data } = self;
        drop((cluster, snapshots));
        drop(node);
        std::fs::remove_dir_all(data).unwrap();
    }

    /// Whether these nodes and no others have the units.
    fn are_spread(&self, units: usize, among: &BTreeSet<Name>) -> bool {
        let state = self.cluster.state();
        let with: Vec<_> = state.units().filter_map(|(unit, _)| state.active(unit)).collect();
        with.len() == units && with.into_iter().cloned().collect::<BTreeSet<_>>() == *among
    }

    fn has_door(&self) -> bool {
        self.node.job("j").is_some_and(|job| job.ingress("records").is_some())
    }

    fn post(&self, body: String) -> Vec<String> {
        let job = self.node.job("j").unwrap();
        let submitted = job.ingress("records").unwrap().submit(body.into(), true).unwrap();
        let mut replies = submitted.replies.unwrap();
        let mut all = std::pin::pin!(replies.all());
        let mut text = None;
        eventually("an answer", || {
            if let Poll::Ready(answer) = all.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                text.get_or_insert(answer.expect("an answer"));
            }
            text.is_some()
        });
        String::from_utf8(text.unwrap()).unwrap().lines().map(str::to_owned).collect()
    }
}

#[test]
fn nothing_is_lost_or_doubled_while_nodes_die_with_their_disks_and_records_are_deleted() {
    const CARDS: i64 = 12;
    for seed in 0..2 {
        let mut rng = Rng::with_seed(seed);
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("store")).unwrap();
        let bus = MemoryBus::new(seed, Faults::default());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        bus.set_time(now.as_millis() as i64);
        let mut peers = vec![Peer::join(folder.path(), &bus, "n0")];
        let job = JobFile::parse("j.yaml", CHAIN, &[]);
        let job = job.and_then(|file| file.check(peers[0].node.check_options()));
        peers[0].cluster.submit(&job.unwrap_or_else(|mistakes| panic!("{mistakes}"))).unwrap();
        peers.push(Peer::join(folder.path(), &bus, "n1"));
        let mut joined = 2;
        let (mut cards, mut shops) = (BTreeMap::new(), BTreeMap::new());
        let (mut round, mut restored) = (0, 0);
        for turn in 0..4 {
            // What a follower of a dead node reads before it is the active is answered by nobody.
            let among = peers.iter().map(|peer| peer.cluster.name().clone()).collect();
            eventually("units on all nodes", || {
                peers.iter().all(|peer| peer.are_spread(8, &among) && peer.has_door())
            });
            for _ in 0..rng.usize(8..16) {
                round += 1;
                let shop_of = |card: i64| (card * 5 + round) % CARDS;
                let lines = (0..CARDS).map(|card| {
                    let (n, shop) = (round * 100 + card, shop_of(card));
                    let time = 1_700_000_000_000_i64 + n;
                    format!("{{\"n\":{n},\"t\":{time},\"card\":\"c{card}\",\"shop\":\"s{shop}\"}}\n")
                });
                let answers = peers[rng.usize(0..peers.len())].post(lines.collect());
                assert_eq!(answers.len() as i64, CARDS, "{answers:?}");
                for (card, line) in (0..).zip(&answers) {
                    let (n, shop) = (round * 100 + card, shop_of(card));
                    let of: &mut (i64, i64, BTreeSet<i64>) = cards.entry(card).or_default();
                    (of.0, of.1) = (of.0 + 1, of.1 + n);
                    of.2.insert(shop);
                    let at = shops.entry(shop).or_insert(0_i64);
                    *at += 1;
                    let answer: serde_json::Value = serde_json::from_str(line).unwrap();
                    let expected = serde_json::json!({ "c": of.0, "s": of.1, "d": of.2.len() });
                    assert_eq!(answer["by_card"], expected, "seed {seed} turn {turn}: {line}");
                    let expected = serde_json::json!({ "c": *at, "l": n });
                    assert_eq!(answer["by_shop"], expected, "seed {seed} turn {turn}: {line}");
                }
            }
            if turn < 3 {
                let dead = peers.swap_remove(rng.usize(0..peers.len()));
                restored += read(&dead.snapshots.counts.restored);
                dead.die();
                peers.push(Peer::join(folder.path(), &bus, &format!("n{joined}")));
                joined += 1;
            }
        }
        restored += peers.iter().map(|peer| read(&peer.snapshots.counts.restored)).sum::<u64>();
        let cut = ["features-1", "features-2"].iter().flat_map(|stage| {
            let (bus, topic) = (&bus, stage_topic("t", "j", stage));
            (0..4).map(move |partition| {
                bus.bounds(&TopicPartition::new(topic.as_str(), partition)).unwrap().start
            })
        });
        let cut = cut.filter(|start| *start > 0).count();
        assert!(restored > 0 && cut > 0, "seed {seed}: {restored} restored, {cut} logs cut");
        for peer in &peers {
            assert_eq!(peer.cluster.failure().map(|error| error.chain()), None);
        }
    }
}

#[cfg(feature = "tables")]
#[test]
fn a_table_is_restored_with_its_unit() {
    use thalweg_table::{Catalog as _, TableName};

    let mut rng = Rng::with_seed(7);
    let mut world = World::new(7, "indexed");
    // Small files, so that there is something to seal and to merge between any two snapshots.
    let table = "  rows: { type: table, input: features, time: t, seal_rows: 20, rollups: { m: { every: 1m, by: [card] } } }\n";
    world.job.push_str(table);
    let records = records(&mut rng, 4_000);
    let snapshots = world.snapshots(Duration::from_secs(3_600));
    let (mut sent, mut turns_with_files) = (0, 0);
    for (turn, some) in (0..).zip(records.chunks(500)) {
        world.send(&mut rng, some, turn);
        sent += some.len();
        let options = world.options("a", &world.answers);
        let tables = Arc::clone(&options.tables);
        let units = world.units_of(Arc::new(options.open().unwrap()), &snapshots);
        let (mut rows, mut sealed) = (0, 0);
        for partition in 0..PARTITIONS {
            let unit = units.start(partition, true).unwrap();
            eventually("the end of the log", || position(&unit) == world.end(partition));
            let name = TableName { job: format!("j/features/{partition}"), table: "rows".to_owned() };
            eventually("all rows are in", || {
                let sequenced = unit.counts.sequenced.load(Ordering::Acquire);
                tables.reached(&name) >= Some(sequenced)
            });
            let snapshot = tables.snapshot(&name).unwrap().expect("the unit has a table");
            rows += snapshot.files.iter().map(|file| file.rows as usize).sum::<usize>();
            rows += snapshot.fresh.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>();
            sealed += snapshot.files.len();
            assert!(snapshot.files.iter().all(|file| file.path.exists()));
            drop(snapshot);
            assert_eq!(units.stop(partition).unwrap().unwrap().state, JobState::Done);
            eventually("no snapshot on its way", || snapshots.is_idle());
        }
        assert_eq!(rows, sent, "turn {turn}");
        // A file is there once a commit after that which sealed it was, which may be later than the snapshot.
        turns_with_files += u32::from(sealed > 0);
        let restored = read(&snapshots.counts.restored);
        assert_eq!(restored, turn * u64::from(PARTITIONS));
        world.lose("a");
    }
    assert!(turns_with_files >= 4, "files are there in {turns_with_files} turns");
    assert_eq!(read(&snapshots.counts.failed), 0);
    world.check(&records);
}
