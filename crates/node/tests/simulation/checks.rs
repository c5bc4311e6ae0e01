//! What has to be true once a run has come to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_schema::SchemaRef;
use thalweg_cluster::fold;
use thalweg_cluster::frame::{Frame, Reply, RowFrame, Spec};
use thalweg_cluster::positions::{Mark, Origin, Through, Verdict};
use thalweg_flow::{CycleSettings, JobState, SystemClock};
use thalweg_kafka::memory::{Faults, MemoryBus};
use thalweg_kafka::{Bus as _, TopicPartition};
use thalweg_node::cluster::{
    Carrier, CarrierOptions, Carrying, Cut, StageCut, Texts, UnitOptions, Units, UnitsFolder, cut, drive,
    wire_schema,
};
use thalweg_node::{JobFile, NodeOptions};
use thalweg_types::{Error, Micros};

use crate::collect::Collected;
use crate::waiting::eventually;
use crate::world::{Enters, World};

/// Partitions of each stage.
const PARTITIONS: i32 = 2;

/// Where the reference sends the rows of its first stage.
const NEXT: &str = "reference";

pub(crate) fn check(world: &mut World) {
    folds(world);
    assert!(world.actives().is_some(), "seed {}: each unit has one node", world.seed());
    let topics = world.topics();
    let reference = Reference::of(world, &topics);
    let counted = counted(&world.bus, topics[0], reference.stage(0), world.seed());
    records(world, &counted);
    answers(world, &counted, &reference);
    if topics.len() == 2 {
        rows(world, topics[1], &reference);
    }
    topics.iter().for_each(|topic| tally(world, topic));
}

/// The state of each node is that of the log, as far as the node has read it.
fn folds(world: &mut World) {
    let control = world.bus.committed(&TopicPartition::new("t.control", 0));
    for live in world.peers.iter().filter_map(|peer| peer.live.as_ref()) {
        let state = live.cluster.state();
        let mut fold = fold::begin(0, []).unwrap();
        for stored in control.iter().take_while(|stored| stored.offset.unsigned_abs() < state.next()) {
            let appended = stored.timestamp * 1_000;
            let (_, unreadable) =
                fold.take(stored.offset.unsigned_abs(), appended, stored.value.as_deref().unwrap()).unwrap();
            assert!(unreadable.is_none());
        }
        assert_eq!(*fold.state(), *state, "seed {}", world.seed());
        world.counts.folds += 1;
    }
}

/// No record counts twice, each that a client has an answer to counts, and none that a client was told does not count.
fn records(world: &mut World, counted: &BTreeSet<i64>) {
    let seed = world.seed();
    for n in world.answers.keys() {
        assert!(counted.contains(n), "seed {seed}: record {n} was answered, and is not in the log");
    }
    if world.enters() != Enters::Doors {
        let enters = world.enters();
        assert!(
            counted.iter().copied().eq(0..world.written()),
            "seed {seed}: each record of the {enters:?} counts"
        );
        let count = if enters == Enters::Topic { &mut world.counts.read } else { &mut world.counts.filed };
        *count += counted.len() as u64;
    }
    for n in &world.unsent {
        assert!(
            !counted.contains(n),
            "seed {seed}: record {n} counts, and its client heard that it does not"
        );
    }
}

/// All that clients have heard is what the engine makes of the log.
fn answers(world: &mut World, counted: &BTreeSet<i64>, reference: &Reference) {
    let seed = world.seed();
    let known = reference.lines.0.lock().unwrap();
    assert!(known.keys().eq(counted), "seed {seed}: each record that counts has an answer");
    for (n, line) in &world.answers {
        assert_eq!(Some(line), known.get(n), "seed {seed}: the answer to record {n}");
    }
    world.counts.compared += world.answers.len() as u64;
}

/// The rows in the log of the second stage are those that the engine makes of the log of the first one, however often.
fn rows(world: &mut World, topic: &str, reference: &Reference) {
    let (seed, stage) = (world.seed(), reference.stage(1));
    let sent = placed(&world.bus, topic, stage, seed);
    let expected = placed(&reference.bus, NEXT, stage, seed);
    assert_eq!(sent.len(), expected.len(), "seed {seed}: rows of the second stage");
    for (place, row) in &expected {
        let found = sent.get(place).unwrap_or_else(|| panic!("seed {seed}: no row from {place:?}"));
        assert_eq!(found, row, "seed {seed}: the row from {place:?}");
    }
    world.counts.rows += expected.len() as u64;
}

/// The frames of rows in a partition.
fn frames(bus: &MemoryBus, topic: &str, partition: i32) -> Vec<RowFrame> {
    let stored = bus.committed(&TopicPartition::new(topic, partition));
    let parsed = stored.iter().map(|stored| Frame::parse(stored.value.as_deref().unwrap()).unwrap());
    parsed
        .filter_map(|frame| match frame {
            Frame::Rows(frame) => Some(frame),
            Frame::Tick(_) | Frame::Spec(_) => None,
        })
        .collect()
}

fn decode(frame: &RowFrame, stage: &StageCut) -> RecordBatch {
    let wires: Vec<SchemaRef> =
        stage.streams.iter().map(|stream| Arc::clone(wire_schema(stream).arrow())).collect();
    let mut inputs = frame.decode(|input| wires.get(input as usize).cloned()).unwrap();
    assert_eq!(inputs.len(), 1, "a stage of this job has one input");
    inputs.remove(0).records
}

/// Where a row comes from: the partition in which it is, its sender, and its mark there.
type Place = (i32, Origin, Mark);

/// All rows of a topic; those that are there several times have to be the same.
fn placed(
    bus: &MemoryBus,
    topic: &str,
    stage: &StageCut,
    seed: u64,
) -> BTreeMap<Place, (RecordBatch, Micros, Option<Reply>)> {
    let mut placed = BTreeMap::new();
    for partition in 0..PARTITIONS {
        for frame in frames(bus, topic, partition) {
            let records = decode(&frame, stage);
            for (row, mark) in frame.places.marks.iter().enumerate() {
                let place = (partition, frame.head.origin, *mark);
                let reply = frame.places.replies.get(row).cloned().flatten();
                let is = (records.slice(row, 1), frame.places.arrivals[row], reply);
                let first = placed.entry(place).or_insert_with(|| is.clone());
                assert_eq!(*first, is, "seed {seed}: rows from {place:?}");
            }
        }
    }
    placed
}

/// The records that count in the first stage, by a recount of its log.
fn counted(bus: &MemoryBus, topic: &str, stage: &StageCut, seed: u64) -> BTreeSet<i64> {
    let mut counted = BTreeSet::new();
    for partition in 0..PARTITIONS {
        let mut through = Through::default();
        for frame in frames(bus, topic, partition) {
            let Verdict::From(first) = through.take(frame.head.origin, frame.head.after, &frame.places.marks)
            else {
                continue;
            };
            let records = decode(&frame, stage);
            for n in &records.column(0).as_primitive::<Int64Type>().values()[first..] {
                assert!(counted.insert(*n), "seed {seed}: record {n} counts twice");
            }
        }
    }
    counted
}

/// Counts what was dropped.
fn tally(world: &mut World, topic: &str) {
    for partition in 0..PARTITIONS {
        let mut through = Through::default();
        for frame in frames(&world.bus, topic, partition) {
            match through.take(frame.head.origin, frame.head.after, &frame.places.marks) {
                Verdict::From(first) => world.counts.duplicates += first as u64,
                Verdict::Gap(_) => world.counts.gaps += 1,
            }
        }
    }
}

/// What units without any faults make of the same logs.
struct Reference {
    cut: Arc<Cut>,
    /// The place of the first stage that reads a log.
    first: usize,
    /// The answers of the last stage, by record.
    lines: Collected,
    /// With the rows of the first of two stages in [`NEXT`].
    bus: MemoryBus,
}

impl Reference {
    fn of(world: &World, topics: &[&str]) -> Self {
        let live = world.peers.iter().find_map(|peer| peer.live.as_ref()).expect("a node that lives");
        let (_, job) =
            live.cluster.state().jobs().next().map(|(name, job)| (name.clone(), job.clone())).unwrap();
        let spec = Arc::new(Spec { number: job.number, semantics: job.semantics, job: job.text });
        let bus = MemoryBus::new(0, Faults::default());
        for topic in topics {
            bus.make_topic(topic, PARTITIONS);
            for of in (0..PARTITIONS).map(|partition| TopicPartition::new(*topic, partition)) {
                world.bus.committed(&of).into_iter().for_each(|stored| {
                    bus.append(&of, stored);
                });
            }
        }
        bus.make_topic(NEXT, PARTITIONS);
        let lines = Collected::default();
        let folder = tempfile::tempdir_in(world.folder()).unwrap();
        let mut options = NodeOptions::default().data_dir(folder.path()).workers(1).sink(lines.clone());
        options.io_threads = 0;
        let node = Arc::new(options.open().unwrap());
        let check = node.check_options().clone();
        let texts = Texts::new(move |text| {
            // The answers go into a map here, and to doors there.
            let text = text.replace("\"type\":\"null\"", "\"type\":\"collect\"");
            let job = JobFile::parse("j.yaml", &text, &[]).and_then(|file| file.check(&check));
            let job = job.map_err(|mistakes| Error::user(mistakes.to_string()))?;
            cut(&job).map_err(|refusals| Error::user(format!("{refusals:?}")))
        });
        let cut = texts.cut(&spec).unwrap();
        let units = UnitsFolder::open(Arc::clone(&node), "j", texts, spec).unwrap();
        let shared = Arc::new(bus.clone());
        let carrier = (topics.len() == 2)
            .then(|| Carrier::new(Arc::clone(&shared) as _, NEXT, CarrierOptions::default()));
        let thread = carrier.clone().map(|carrier| {
            std::thread::spawn(move || {
                drive(&SystemClock, &carrier.bell(), &mut Carrying::new(Arc::clone(&carrier)))
            })
        });
        let cycle = CycleSettings { every: Some(Duration::from_secs(3_600)), bytes: None, records: None };
        let options = UnitOptions { cycle, ..UnitOptions::default() };
        let first = usize::from(world.enters() != Enters::Doors);
        for (place, topic) in topics.iter().enumerate() {
            let carrier = carrier.clone().filter(|_| place == 0);
            let bus = Arc::clone(&shared) as _;
            let place = first + place;
            let stage =
                Units::open(Arc::clone(&units), place, bus, *topic, carrier, options.clone()).unwrap();
            for partition in 0..PARTITIONS {
                let unit = stage.start(partition.unsigned_abs(), true).unwrap();
                let end = shared.bounds(&TopicPartition::new(*topic, partition)).unwrap().end.unsigned_abs();
                eventually("the end of a log", || {
                    assert!(!matches!(unit.job.state(), JobState::Failed(_)), "{:?}", unit.job.state());
                    unit.counts.position.load(Ordering::Relaxed) == end
                });
                let ended = stage.stop(partition.unsigned_abs()).unwrap().unwrap();
                assert_eq!(ended.state, JobState::Done, "seed {}", world.seed());
            }
        }
        if let (Some(carrier), Some(thread)) = (carrier, thread) {
            carrier.end();
            thread.join().unwrap();
        }
        Self { cut, first, lines, bus }
    }

    /// A stage that reads a log.
    fn stage(&self, place: usize) -> &StageCut {
        &self.cut.stages[self.first + place]
    }
}
