//! Units over the bus in memory: what they answer is what one node answers that reads the records itself, to the bit, wherever
//! frames are cut, doubled or lost, and wherever a unit is stopped or killed.
#![cfg(feature = "cluster")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastrand::Rng;
use thalweg_cluster::frame::{Head, Sender, Settings, Spec, tick};
use thalweg_cluster::positions::{self, Mark, Position};
use thalweg_flow::{CycleSettings, JobState, SystemClock};
use thalweg_kafka::memory::{Faults, MemoryBus, Stored};
use thalweg_kafka::{Bus as _, TopicPartition};
use thalweg_node::cluster::{
    Carrier, CarrierOptions, Carrying, NamedGap, OpenGap, Origin, Scatter, Unit, UnitOptions, Units,
    UnitsFolder, cut, drive,
};
use thalweg_node::{CheckedJob, JobFile, Node, NodeOptions};
use thalweg_types::{Batch, Error, SEMANTICS};

#[path = "support/collect.rs"]
mod collect;
#[path = "support/waiting.rs"]
mod waiting;

use collect::{Collected, texts};
use waiting::eventually;

const TOPIC: &str = "thalweg.j.features";
/// Of the second stage of a chain.
const NEXT: &str = "thalweg.j.features-2";
const PARTITIONS: u32 = 4;

const JOB: &str = "
name: j
sources:
  records:
    type: file
    path: DIR/records.csv
    format: csv
    time: t
    id: id
    dedup: 1h
    lateness: 5s
    schema: { n: int64, t: timestamp(ms), id: int64, card: string, amount: float64 }
operators:
  features:
    type: metrics
    input: records
    partition_by: [card]
    partitions: 4
    queries:
      sliding: SELECT sum(amount) AS s, count(*) AS c, avg(amount) AS a FROM records GROUP BY card OVER SLIDING 30 SECONDS
      rows: SELECT first(amount) AS f, prev(amount) AS p FROM records GROUP BY card OVER ROWS 3
      shops: SELECT count(DISTINCT n) AS d, quantile(amount, 0.5) AS q FROM records GROUP BY card OVER SLIDING 1 MINUTE
sinks:
  out: { type: collect, input: features }
";

struct World {
    job: String,
    folder: tempfile::TempDir,
    bus: MemoryBus,
    units: Collected,
}

struct Record {
    n: i64,
    t: i64,
    id: i64,
    card: String,
    amount: f64,
}

/// Records of a few cards: in order but for some seconds, some late, some twice.
fn records(rng: &mut Rng, count: i64) -> Vec<Record> {
    let mut time = 1_700_000_000_000_i64;
    (0..count)
        .map(|n| {
            time += rng.i64(0..2_000);
            let back = if rng.u8(..) < 20 { rng.i64(0..40_000) } else { rng.i64(0..3_000) };
            let id = if n > 0 && rng.u8(..) < 20 { rng.i64(0..n) } else { n };
            let card = format!("card {}", rng.u8(0..9));
            Record { n, t: time - back, id, card, amount: f64::from(rng.i32(-1_000_000..1_000_000)) / 7.0 }
        })
        .collect()
}

impl World {
    fn new(seed: u64) -> Self {
        Self::of(JOB, seed)
    }

    fn of(job: &str, seed: u64) -> Self {
        let bus = MemoryBus::new(seed, Faults::default());
        bus.make_topic(TOPIC, PARTITIONS as i32);
        bus.make_topic(NEXT, PARTITIONS as i32);
        let folder = tempfile::tempdir().unwrap();
        let world = Self { job: job.to_owned(), folder, bus, units: Collected::default() };
        world.name_text(&world.spec(1, job));
        world
    }

    /// A text of the job.
    fn spec(&self, number: u64, job: &str) -> Arc<Spec> {
        let job = job.replace("DIR", &self.folder.path().display().to_string());
        Arc::new(Spec { number, semantics: SEMANTICS, job })
    }

    /// Has the log go on with a text.
    fn name_text(&self, spec: &Spec) {
        let frame = spec.encode(&Settings::default()).unwrap();
        (0..PARTITIONS).for_each(|partition| self.append(partition, &frame));
    }

    fn node(&self, data: &str, workers: usize, into: &Collected) -> Arc<Node> {
        let options = NodeOptions::default().data_dir(self.folder.path().join(data)).workers(workers);
        Arc::new(options.sink(into.clone()).open().unwrap())
    }

    fn job(&self, node: &Node) -> CheckedJob {
        let text = self.job.replace("DIR", &self.folder.path().display().to_string());
        let job = JobFile::parse("j.yaml", &text, &[]).and_then(|file| file.check(node.check_options()));
        job.unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    /// What one node answers that reads the records itself.
    fn embedded(&self, records: &[Record]) -> BTreeMap<i64, String> {
        let mut text = "n,t,id,card,amount\n".to_owned();
        for Record { n, t, id, card, amount } in records {
            text += &format!("{n},{t},{id},{card},{amount}\n");
        }
        std::fs::write(self.folder.path().join("records.csv"), text).unwrap();
        let all = Collected::default();
        let node = self.node("embedded", 2, &all);
        let job = node.start(self.job(&node), &[]).unwrap();
        assert_eq!(job.wait().state, JobState::Done);
        let all = all.0.lock().unwrap();
        all.clone()
    }

    /// Units of all partitions, on a node that is new each time, over the same folder.
    fn units(&self, workers: usize, every: Duration) -> Units {
        let node = self.node("units", workers, &self.units);
        let (texts, spec) = (texts(&node), self.spec(1, &self.job));
        let cycle = CycleSettings { every: Some(every), bytes: None, records: Some(500) };
        let options = UnitOptions { cycle, ..UnitOptions::default() };
        let folder = UnitsFolder::open(node, "j", texts, spec).unwrap();
        Units::open(folder, 0, Arc::new(self.bus.clone()), TOPIC, None, options).unwrap()
    }

    /// Writes the records as one door, frames cut anywhere. Some frames are written twice, and some late: what comes
    /// between is lost, until it is sent again.
    fn send(&self, rng: &mut Rng, records: &[Record]) {
        self.send_from(rng, records, 7);
    }

    /// The same by another door.
    fn send_from(&self, rng: &mut Rng, records: &[Record], incarnation: u64) {
        self.send_by(&self.spec(1, &self.job), rng, records, incarnation);
    }

    /// The same by a text of the job.
    fn send_by(&self, spec: &Arc<Spec>, rng: &mut Rng, records: &[Record], incarnation: u64) {
        let node = self.node("door", 1, &Collected::default());
        let stage = texts(&node).cut(spec).unwrap().stages[0].clone();
        let origin = positions::Origin::Door { incarnation };
        let sender = Sender { spec: spec.number, origin, lineage: None };
        let mut scatter = Scatter::new(&stage, sender, Settings::default(), |_| Mark::START);
        let mut frames: Vec<Vec<Vec<u8>>> = vec![Vec::new(); PARTITIONS as usize];
        let schema = stage.streams[0].arrow();
        let mut rest = records;
        while !rest.is_empty() {
            let (some, left) = rest.split_at(rng.usize(1..=rest.len().min(300)));
            rest = left;
            let mut columns: Vec<arrow_array::ArrayRef> = vec![
                Arc::new(some.iter().map(|r| r.n).collect::<arrow_array::Int64Array>()),
                Arc::new(
                    some.iter()
                        .map(|r| Some(r.t))
                        .collect::<arrow_array::TimestampMillisecondArray>()
                        .with_data_type(schema.field(1).data_type().clone()),
                ),
                Arc::new(some.iter().map(|r| r.id).collect::<arrow_array::Int64Array>()),
                arrow_cast::cast(
                    &(Arc::new(
                        some.iter().map(|r| Some(r.card.as_str())).collect::<arrow_array::StringArray>(),
                    ) as arrow_array::ArrayRef),
                    schema.field(3).data_type(),
                )
                .unwrap(),
                Arc::new(some.iter().map(|r| r.amount).collect::<arrow_array::Float64Array>()),
            ];
            if schema.fields().len() > columns.len() {
                columns.push(Arc::new(some.iter().map(|r| r.n).collect::<arrow_array::Int64Array>()));
            }
            let rows = arrow_array::RecordBatch::try_new(schema.clone(), columns).unwrap();
            let times: Vec<i64> = some.iter().map(|r| r.t * 1_000).collect();
            let first = some[0].n as u64;
            let range = thalweg_types::SeqRange::new(first, first + some.len() as u64);
            let batch = Batch::new(range, rows, times.into(), thalweg_types::Seqs::Dense(first));
            let origin =
                |seq, _| Origin { position: Position { offset: seq, row: 0 }, arrival: 0, reply: None };
            assert!(scatter.push(0, &batch, origin).unwrap().is_empty());
            for (partition, frames) in (0..).zip(&mut frames) {
                if rng.bool() {
                    frames.extend(std::iter::from_fn(|| scatter.cut(partition, None)));
                }
            }
        }
        for (partition, mut frames) in (0..).zip(frames) {
            frames.extend(std::iter::from_fn(|| scatter.cut(partition, None)));
            let mut at = 0;
            while at < frames.len() {
                self.append(partition, &frames[at]);
                match rng.u8(0..10) {
                    // The same again, and a few before it.
                    0 => at = at.saturating_sub(rng.usize(0..4)),
                    // Lost: those after it do not count until it comes.
                    1 => {
                        (at + 2..frames.len().min(at + 4))
                            .for_each(|later| self.append(partition, &frames[later]));
                        at += 1;
                    }
                    _ => at += 1,
                }
            }
        }
    }

    fn append(&self, partition: u32, frame: &[u8]) {
        let message =
            Stored { offset: 0, timestamp: 0, key: None, value: Some(frame.to_vec()), headers: Vec::new() };
        self.bus.append(&TopicPartition::new(TOPIC, partition as i32), message);
    }

    fn end_of(&self, partition: u32) -> u64 {
        self.end(TOPIC, partition)
    }

    fn end(&self, topic: &str, partition: u32) -> u64 {
        self.bus.bounds(&TopicPartition::new(topic, partition as i32)).unwrap().end as u64
    }
}

/// A job with these operators and sinks.
macro_rules! of_records {
    ($below:literal) => {
        concat!(
            "
name: j
sources:
  records:
    type: file
    path: DIR/records.csv
    format: csv
    time: t
    lateness: 5s
    schema: { n: int64, t: timestamp(ms), id: int64, card: string, amount: float64 }
operators:
",
            $below
        )
    };
}

/// Two keys. Times of records are a tenth of a second apart, so that one of the first units is late by far more than
/// `lateness` where it was away.
const CHAIN: &str = of_records!(
    "  features:
    type: metrics
    input: records
    partition_by: [card, id]
    partitions: 4
    queries:
      shops: SELECT count(*) AS c, sum(n) AS s FROM records GROUP BY id OVER INFINITE
      sliding: SELECT sum(amount) AS s, count(*) AS c, avg(amount) AS a FROM records GROUP BY card OVER SLIDING 30 SECONDS
      rows: SELECT first(amount) AS f, prev(amount) AS p FROM records GROUP BY card OVER ROWS 3
sinks:
  out: { type: collect, input: features }
"
);

/// The same queries in two operators, of which the second reads what a filter leaves of the first: all.
const LINE: &str = of_records!(
    "  features:
    type: metrics
    input: records
    partition_by: [card]
    partitions: 4
    queries:
      sliding: SELECT sum(amount) AS s, count(*) AS c, avg(amount) AS a FROM records GROUP BY card OVER SLIDING 30 SECONDS
      rows: SELECT first(amount) AS f, prev(amount) AS p FROM records GROUP BY card OVER ROWS 3
  counted: { type: filter, input: features, where: sliding.c > 0 }
  more:
    type: metrics
    input: counted
    partition_by: [id]
    partitions: 4
    queries:
      shops: SELECT count(*) AS c, sum(n) AS s FROM counted GROUP BY id OVER INFINITE
sinks:
  out: { type: collect, input: more }
"
);

/// A join of two inputs, which are made of what the first operator says.
const PAIRS: &str = of_records!(
    "  features:
    type: metrics
    input: records
    partition_by: [card]
    partitions: 4
    queries: { sliding: SELECT count(*) AS c FROM records GROUP BY card OVER SLIDING 30 SECONDS }
  large: { type: filter, input: features, where: amount > 0 }
  left: { type: map, input: large, keep: [id], select: { a: n } }
  right: { type: map, input: large.rest, keep: [id], select: { b: n } }
  pairs: { type: join, input: [left, right], key: id, within: 2s, partitions: 4 }
  numbered: { type: map, input: pairs, select: { n: a * 100000 + b } }
sinks:
  out: { type: collect, input: numbered }
"
);

/// Counts that are said by the clock, and a second stage that counts what was said.
const TICKING: &str = of_records!(
    "  totals: { type: count, input: records, key: id, partitions: 4, emit: { every: 10s } }
  numbered: { type: map, input: totals, select: { n: count * 100 + id, shop: id } }
  more:
    type: metrics
    input: numbered
    partition_by: [shop]
    partitions: 4
    queries: { said: SELECT count(*) AS c FROM numbered GROUP BY shop OVER INFINITE }
sinks:
  out: { type: collect, input: more }
"
);

/// All stages of a job on a node, which is new each time over the same folder: one, or the two of a chain.
struct Chain {
    stages: Vec<Units>,
    carrier: Arc<Carrier>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Chain {
    fn new(world: &World, data: &str, into: &Collected, rng: &mut Rng) -> Self {
        let node = world.node(data, 1 + rng.usize(0..3), into);
        let (texts, spec) = (texts(&node), world.spec(1, &world.job));
        let bus = Arc::new(world.bus.clone());
        // Some rows each, so that there are many.
        let frames = Settings { grow_to: 500, ..Settings::default() };
        let options = CarrierOptions { frames, ..CarrierOptions::default() };
        let carrier = Carrier::new(Arc::clone(&bus) as _, NEXT, options);
        let every = Duration::from_millis(rng.u64(1..20));
        let cycle = CycleSettings { every: Some(every), bytes: None, records: Some(500) };
        let options = UnitOptions { cycle, ..UnitOptions::default() };
        let folder = UnitsFolder::open(node, "j", texts, spec).unwrap();
        let open = |place, topic: &str, carrier| {
            let (folder, bus) = (Arc::clone(&folder), Arc::clone(&bus) as _);
            Units::open(folder, place, bus, topic, carrier, options.clone()).unwrap()
        };
        let stages = match [CHAIN, LINE, PAIRS, TICKING].contains(&&*world.job) {
            true => vec![open(0, TOPIC, Some(Arc::clone(&carrier))), open(1, NEXT, None)],
            false => vec![open(0, TOPIC, None)],
        };
        let running = Arc::clone(&carrier);
        let thread = std::thread::spawn(move || {
            drive(&SystemClock, &running.bell(), &mut Carrying::new(Arc::clone(&running)));
        });
        let thread = Some(thread);
        Self { stages, carrier, thread }
    }

    fn start(&self, stage: usize, partition: u32) -> Arc<Unit> {
        self.stages[stage].start(partition, true).unwrap()
    }
}

/// Gaps as a node knows them from the last beat that it has read, and the number of that.
#[derive(Default)]
struct Beats {
    last: u64,
    named: Vec<NamedGap>,
}

impl Chain {
    /// Has the first stage hear what the second one waits for, as it is or was.
    fn mend(&self, rng: &mut Rng, beats: &mut Beats) {
        beats.last += 1;
        if rng.bool() {
            let gaps = self.stages[1].list().into_iter().flat_map(|unit| {
                let gaps = unit.counts.open.list().into_iter();
                gaps.map(move |gap| (unit.partition, gap))
            });
            let named = |(to, gap): (u32, OpenGap)| NamedGap {
                from: gap.partition,
                to,
                through: gap.through,
                read: gap.read,
                beat: beats.last,
            };
            beats.named = gaps.map(named).collect();
        }
        assert!(self.stages[0].mend(&beats.named).is_empty());
    }
}

impl Drop for Chain {
    /// As a kill: units end wherever they are, then what carries their rows.
    fn drop(&mut self) {
        self.carrier.end();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn number(line: &str, query: &str, output: &str) -> i64 {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    line[query][output].as_i64().unwrap_or_else(|| panic!("no {query}.{output} in {line}"))
}

#[test]
fn rows_of_a_chain_count_once_in_each_stage_whichever_unit_is_killed_or_away() {
    let (mut duplicates, mut failures) = (0, 0);
    // Producers that wait, give up a message and write the next one, or write one of which they hear that it was not.
    let faults =
        Faults { delays: 600, lost_acknowledgements: 4, given_up: 4, doubles: 40, ..Faults::default() };
    for (seed, job) in (0..8).zip([CHAIN, LINE].into_iter().cycle()) {
        let mut rng = Rng::with_seed(seed);
        let world = World::of(job, seed);
        let mut time = 1_700_000_000_000_i64;
        let records: Vec<Record> = (0..3_000)
            .map(|n| {
                time += rng.i64(0..200);
                let (t, id, card) =
                    (time - rng.i64(0..3_000), rng.i64(0..7), format!("card {}", rng.u8(0..9)));
                Record { n, t, id, card, amount: f64::from(rng.i32(-1_000_000..1_000_000)) / 7.0 }
            })
            .collect();
        let expected = world.embedded(&records);
        let whole = |chain: &Chain, units: &[Arc<Unit>]| {
            eventually("the end of the first stage's log", || {
                units[..4].iter().all(|unit| position(unit) == world.end_of(unit.partition))
            });
            (0..PARTITIONS).for_each(|partition| {
                assert_eq!(chain.stages[0].stop(partition).unwrap().unwrap().state, JobState::Done);
            });
            eventually("the end of the second stage's log", || {
                units[4..].iter().all(|unit| position(unit) == world.end(NEXT, unit.partition))
            });
            (0..PARTITIONS).for_each(|partition| {
                assert_eq!(chain.stages[1].stop(partition).unwrap().unwrap().state, JobState::Done);
            });
        };
        let all = |chain: &Chain| -> Vec<Arc<Unit>> {
            (0..2)
                .flat_map(|stage| (0..PARTITIONS).map(move |partition| (stage, partition)))
                .map(|(stage, partition)| chain.start(stage, partition))
                .collect()
        };
        // Each unit of the first stage is known to those of the second one.
        world.send(&mut rng, &records[..100]);
        let chain = Chain::new(&world, "units", &world.units, &mut rng);
        whole(&chain, &all(&chain));
        drop(chain);

        for (incarnation, some) in (8..).zip(records[100..].chunks(363)) {
            world.send_from(&mut rng, some, incarnation);
            let chain = Chain::new(&world, "units", &world.units, &mut rng);
            let absent = rng.u32(0..PARTITIONS);
            let first: Vec<_> = (0..PARTITIONS)
                .filter(|partition| *partition != absent)
                .map(|partition| chain.start(0, partition))
                .collect();
            let second: Vec<_> = (0..PARTITIONS).map(|partition| chain.start(1, partition)).collect();
            let until = rng.u64(0..20);
            world.bus.set_faults(faults);
            eventually("some progress", || {
                first.iter().all(|unit| {
                    let position = unit.counts.position.load(Ordering::Relaxed);
                    unit.job.state().is_final() || position >= until.min(world.end_of(unit.partition))
                })
            });
            // Or all are sent that there are.
            let (until, counts, start) = (rng.u64(0..60), &chain.carrier.counts, Instant::now());
            eventually("some frames for the second stage", || {
                counts.frames.load(Ordering::Relaxed) >= until || start.elapsed() > Duration::from_millis(100)
            });
            if rng.bool() {
                let stopped = rng.usize(0..first.len());
                chain.stages[0].stop(first[stopped].partition).unwrap();
            }
            for unit in first.iter().filter(|unit| unit.job.state().is_final()) {
                let JobState::Failed(failure) = unit.job.state() else { continue };
                assert!(failure.message.contains("were not written"), "{failure}");
            }
            failures += chain.carrier.counts.failures.load(Ordering::Relaxed);
            world.bus.set_faults(Faults::default());
            duplicates +=
                second.iter().map(|unit| unit.counts.duplicates.load(Ordering::Relaxed)).sum::<u64>();
        }
        let chain = Chain::new(&world, "units", &world.units, &mut rng);
        whole(&chain, &all(&chain));
        drop(chain);

        let answers = world.units.0.lock().unwrap().clone();
        assert_eq!(answers.len(), expected.len(), "seed {seed}");
        let mut counts: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (n, answer) in &answers {
            assert!(!answer.contains("late"), "seed {seed}: {answer}");
            // What the first stage said is what one node says, to the bit.
            let of_cards = |line: &str| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                [line["sliding"].to_string(), line["rows"].to_string()]
            };
            assert_eq!(of_cards(answer), of_cards(&expected[n]), "seed {seed}: record {n}");
            counts.entry(records[*n as usize].id).or_default().push(number(answer, "shops", "c"));
        }
        for (shop, mut counts) in counts {
            counts.sort_unstable();
            let expected: Vec<i64> = (1..=counts.len() as i64).collect();
            assert_eq!(counts, expected, "seed {seed}: shop {shop} has counted something twice, or not");
        }
        // The log of the second stage, read again by units that nobody disturbs, has the same answers.
        let again = Collected::default();
        let chain = Chain::new(&world, "again", &again, &mut rng);
        let second: Vec<_> = (0..PARTITIONS).map(|partition| chain.start(1, partition)).collect();
        eventually("all again", || {
            second.iter().all(|unit| position(unit) == world.end(NEXT, unit.partition))
        });
        (0..PARTITIONS).for_each(|partition| {
            chain.stages[1].stop(partition).unwrap();
        });
        assert_eq!(*again.0.lock().unwrap(), answers, "seed {seed}");
    }
    assert!(
        duplicates > 0 && failures > 0,
        "nothing was disturbed: {duplicates} duplicates, {failures} failures"
    );
}

#[test]
fn rows_of_two_inputs_of_a_later_stage_meet_once_whichever_unit_is_killed() {
    for seed in 0..4 {
        let mut rng = Rng::with_seed(seed);
        let world = World::of(PAIRS, seed);
        let mut time = 1_700_000_000_000_i64;
        let records: Vec<Record> = (0..2_000)
            .map(|n| {
                time += rng.i64(0..400);
                let (t, id) = (time - rng.i64(0..3_000), rng.i64(0..7));
                let card = format!("card {}", rng.u8(0..9));
                Record { n, t, id, card, amount: f64::from(rng.i32(-1_000_000..1_000_000)) }
            })
            .collect();
        let expected = world.embedded(&records);
        assert!(expected.len() > 1_000, "{} pairs", expected.len());
        world.send(&mut rng, &records);
        let start = |chain: &Chain, stages: &[usize]| {
            for stage in stages {
                (0..PARTITIONS).for_each(|partition| drop(chain.start(*stage, partition)));
            }
        };
        let is_read = |chain: &Chain, stage: usize, topic: &str| {
            let units = chain.stages[stage].list();
            units.iter().all(|unit| position(unit) == world.end(topic, unit.partition))
        };
        let stop = |chain: &Chain, stage: usize| {
            for partition in 0..PARTITIONS {
                assert_eq!(chain.stages[stage].stop(partition).unwrap().unwrap().state, JobState::Done);
            }
        };
        for _ in 0..4 {
            let chain = Chain::new(&world, "units", &world.units, &mut rng);
            start(&chain, &[0, 1]);
            let (until, begun) = (rng.u64(1..60), Instant::now());
            eventually("some rows for the join", || {
                let frames = chain.carrier.counts.frames.load(Ordering::Relaxed);
                frames >= until || begun.elapsed() > Duration::from_millis(100)
            });
        }
        let chain = Chain::new(&world, "units", &world.units, &mut rng);
        start(&chain, &[0, 1]);
        eventually("the end of the first stage's log", || is_read(&chain, 0, TOPIC));
        stop(&chain, 0);
        eventually("the end of the second stage's log", || is_read(&chain, 1, NEXT));
        stop(&chain, 1);
        drop(chain);
        let pairs = world.units.0.lock().unwrap().clone();
        assert_eq!(pairs, expected, "seed {seed}");
        // The log of the join, read again by units that nobody disturbs.
        let again = Collected::default();
        let chain = Chain::new(&world, "again", &again, &mut rng);
        start(&chain, &[1]);
        eventually("all again", || is_read(&chain, 1, NEXT));
        stop(&chain, 1);
        assert_eq!(*again.0.lock().unwrap(), pairs, "seed {seed}");
    }
}

#[test]
fn what_is_said_by_the_clock_is_said_once_by_the_time_of_the_log_whichever_unit_is_killed() {
    for seed in 0..6 {
        let mut rng = Rng::with_seed(seed);
        let world = World::of(TICKING, seed);
        let (mut time, mut sent, mut now) = (1_700_000_000_000_i64, 0, 2_000_000_000_000_i64);
        // By id, how many have come, and whether that was said.
        let mut counts: BTreeMap<i64, (i64, bool)> = BTreeMap::new();
        let mut expected: BTreeMap<i64, String> = BTreeMap::new();
        let mut said: BTreeMap<i64, i64> = BTreeMap::new();
        for round in 0..12 {
            // Times at which no element speaks, and some at which it does.
            let before = now;
            now += rng.i64(100..9_000);
            world.bus.set_time(now);
            for partition in 0..PARTITIONS {
                let origin = positions::Origin::Unit { stage: 0, partition };
                let head = Head {
                    spec: 1,
                    origin,
                    lineage: None,
                    after: Mark::START,
                    arrival: now * 1_000,
                    task_time: None,
                };
                // As several nodes write them that take a unit for theirs.
                (0..rng.u8(1..3)).for_each(|_| world.append(partition, &tick(&head)));
            }
            if now.div_euclid(10_000) > before.div_euclid(10_000) {
                for (id, (count, is_said)) in counts.iter_mut().filter(|(_, (_, is_said))| !is_said) {
                    let times = said.entry(*id).or_default();
                    (*times, *is_said) = (*times + 1, true);
                    let n = *count * 100 + id;
                    expected.insert(n, format!("{{\"n\":{n},\"shop\":{id},\"said\":{{\"c\":{times}}}}}"));
                }
            }
            let records: Vec<Record> = (sent..sent + rng.i64(1..60))
                .map(|n| {
                    time += rng.i64(0..400);
                    let (id, card) = (rng.i64(0..20), String::new());
                    Record { n, t: time, id, card, amount: 1.0 }
                })
                .collect();
            sent += records.len() as i64;
            world.send_from(&mut rng, &records, round);
            for record in &records {
                let (count, is_said) = counts.entry(record.id).or_insert((0, true));
                (*count, *is_said) = (*count + 1, false);
            }
            let chain = Chain::new(&world, "units", &world.units, &mut rng);
            for stage in [0, 1] {
                (0..PARTITIONS).for_each(|partition| drop(chain.start(stage, partition)));
            }
            // And is killed wherever it is.
            let (until, begun) = (rng.u64(1..20), Instant::now());
            eventually("some rows for the second stage", || {
                let frames = chain.carrier.counts.frames.load(Ordering::Relaxed);
                frames >= until || begun.elapsed() > Duration::from_millis(50)
            });
        }
        assert!(expected.len() > 40, "{} were said", expected.len());
        let chain = Chain::new(&world, "units", &world.units, &mut rng);
        for (stage, topic) in [TOPIC, NEXT].into_iter().enumerate() {
            let units: Vec<_> = (0..PARTITIONS).map(|partition| chain.start(stage, partition)).collect();
            eventually("the end of a stage's log", || {
                units.iter().all(|unit| position(unit) == world.end(topic, unit.partition))
            });
            (0..PARTITIONS).for_each(|partition| {
                assert_eq!(chain.stages[stage].stop(partition).unwrap().unwrap().state, JobState::Done);
            });
        }
        drop(chain);
        assert_eq!(*world.units.0.lock().unwrap(), expected, "seed {seed}");
    }
}

/// A chain under producers that fail, and then under none that do: gaps that units of the second stage saw, and units of the
/// first one that failed. No unit is stopped for a gap, or goes back.
fn disturbed(seed: u64) -> (u64, u64) {
    let faults =
        Faults { delays: 500, lost_acknowledgements: 30, given_up: 30, doubles: 40, ..Faults::default() };
    let (mut gaps, mut failures) = (0, 0);
    let mut rng = Rng::with_seed(seed);
    let world = World::of(CHAIN, seed);
    let records = records(&mut rng, 200);
    world.send(&mut rng, &records);
    let mut beats = Beats::default();
    for is_whole in [false, true] {
        world.bus.set_faults(if is_whole { Faults::default() } else { faults });
        let chain = Chain::new(&world, "units", &world.units, &mut rng);
        let all = (0..2).flat_map(|stage| (0..PARTITIONS).map(move |partition| (stage, partition)));
        all.for_each(|(stage, partition)| drop(chain.start(stage, partition)));
        let (until, start) = (rng.u64(10..60), Instant::now());
        eventually("what there is to read", || {
            chain.mend(&mut rng, &mut beats);
            for unit in chain.stages[0].list().iter().filter(|unit| unit.job.state().is_final()) {
                let JobState::Failed(failure) = unit.job.state() else { panic!("it ended") };
                assert!(failure.message.contains("were not written"), "seed {seed}: {failure}");
                failures += 1;
                chain.stages[0].stop(unit.partition).unwrap();
                chain.start(0, unit.partition);
            }
            let is_read = |stage: usize, topic: &str| {
                chain.stages[stage].list().iter().all(|unit| {
                    let at = unit.counts.position.load(Ordering::Relaxed);
                    at == world.end(topic, unit.partition)
                })
            };
            let has_all = || world.units.0.lock().unwrap().len() == records.len();
            let frames = chain.carrier.counts.frames.load(Ordering::Relaxed);
            match is_whole {
                true => is_read(0, TOPIC) && is_read(1, NEXT) && has_all(),
                false => frames >= until || start.elapsed() > Duration::from_millis(300),
            }
        });
        let seen = chain.stages[1].list();
        gaps += seen.iter().map(|unit| unit.counts.gaps.load(Ordering::Relaxed)).sum::<u64>();
        let returns = chain.carrier.counts.returns.load(Ordering::Relaxed);
        assert_eq!(returns, 0, "seed {seed}: a unit has gone back");
        let is_stopped = |partition| chain.stages[0].is_stopped(partition);
        assert!(!(0..PARTITIONS).any(is_stopped), "seed {seed}: a unit was stopped");
    }
    (gaps, failures)
}

#[test]
fn ordinary_disturbance_stops_no_unit_and_has_none_go_back() {
    // Side by side, as they wait for the disk most of the time.
    let threads: Vec<_> = (0..5_u64)
        .map(|first| std::thread::spawn(move || (first..50).step_by(5).map(disturbed).collect::<Vec<_>>()))
        .collect();
    let seen: Vec<(u64, u64)> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let (gaps, failures) = seen.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert_eq!(seen.len(), 50);
    // Gaps come and go with the machine's load: `mend_tests` has schedules with many.
    assert!(failures > 0, "nothing was disturbed: {gaps} gaps, {failures} failures");
}

fn position(unit: &Unit) -> u64 {
    let failure = match unit.job.state() {
        JobState::Failed(failure) => Some(failure),
        _ => None,
    };
    assert_eq!(failure, None);
    unit.counts.position.load(Ordering::Relaxed)
}

#[test]
fn units_answer_as_one_node_does_wherever_they_are_stopped_or_killed() {
    for seed in 0..6 {
        let mut rng = Rng::with_seed(seed);
        let world = World::new(seed);
        let records = records(&mut rng, 3_000);
        let expected = world.embedded(&records);
        world.send(&mut rng, &records);

        let (mut duplicates, mut gaps) = (0, 0);
        for _ in 0..4 {
            let units = world.units(1 + rng.usize(0..3), Duration::from_millis(rng.u64(1..20)));
            let started: Vec<_> =
                (0..PARTITIONS).map(|partition| units.start(partition, true).unwrap()).collect();
            let until = rng.u64(0..40);
            eventually("some progress", || {
                started.iter().all(|unit| position(unit) >= until.min(world.end_of(unit.partition)))
            });
            for unit in &started {
                duplicates += unit.counts.duplicates.load(Ordering::Relaxed);
                gaps += unit.counts.gaps.load(Ordering::Relaxed);
            }
            if rng.bool() {
                let end = units.stop(rng.u32(0..PARTITIONS)).unwrap().unwrap();
                assert_eq!(end.state, JobState::Done);
            }
            // The others are killed.
            drop(units);
        }
        let units = world.units(2, Duration::from_millis(5));
        let started: Vec<_> =
            (0..PARTITIONS).map(|partition| units.start(partition, true).unwrap()).collect();
        eventually("the end of the log", || {
            started.iter().all(|unit| position(unit) == world.end_of(unit.partition))
        });
        for partition in 0..PARTITIONS {
            assert_eq!(units.stop(partition).unwrap().unwrap().state, JobState::Done);
        }
        let answers = world.units.0.lock().unwrap().clone();
        assert_eq!(answers.len(), expected.len(), "seed {seed}");
        for (n, answer) in &expected {
            assert_eq!(answers.get(n), Some(answer), "seed {seed}: record {n}");
        }
        assert!(duplicates > 0 && gaps > 0, "nothing was disturbed: {duplicates} duplicates, {gaps} gaps");
        assert!(expected.values().any(|line| line.contains("late")), "no record was late");
    }
}

/// A column more, which is the number of the record, and a query of it.
fn with_weight(job: &str) -> String {
    let more = "queries:\n      weight: SELECT count(w) AS c, sum(w) AS s FROM records GROUP BY card OVER INFINITE\n";
    job.replace("amount: float64 }", "amount: float64, w: int64 }").replace("queries:\n", more)
}

#[test]
fn units_change_to_another_text_of_the_job_at_one_place_of_their_logs_alone() {
    for (seed, job) in (0..6).zip([JOB, CHAIN].into_iter().cycle()) {
        let mut rng = Rng::with_seed(seed);
        let world = World::of(job, seed);
        let records = records(&mut rng, 2_000);
        let (before, after) = (world.spec(1, job), world.spec(2, &with_weight(job)));
        // Doors of both texts, the old one for as long as it does not know better.
        world.send_by(&before, &mut rng, &records[..600], 7);
        world.name_text(&after);
        for (some, incarnation) in records[600..].chunks(200).zip(8..) {
            let spec = if rng.bool() { &before } else { &after };
            world.name_text(spec);
            world.send_by(spec, &mut rng, some, incarnation);
        }
        let is_chain = job == CHAIN;
        let stages = if is_chain { 2 } else { 1 };
        let mut switched = 0;
        // Reads all of the logs, or some of them.
        let mut run = |rng: &mut Rng, data: &str, into: &Collected, is_whole: bool| {
            let chain = Chain::new(&world, data, into, rng);
            // One that ends before it has read anything holds what it held before.
            let start = |stage, partition| {
                drop(chain.start(stage, partition));
                chain.stages[stage].stop(partition).unwrap();
                chain.start(stage, partition)
            };
            let units: Vec<_> = (0..stages)
                .flat_map(|stage| (0..PARTITIONS).map(move |partition| (stage, partition)))
                .map(|(stage, partition)| (stage, start(stage, partition)))
                .collect();
            let (until, start) = (rng.u64(1..30), Instant::now());
            let topic = |stage| if stage == 0 { TOPIC } else { NEXT };
            let position = |stage: usize, partition: u32| {
                let unit = chain.stages[stage].list().into_iter().find(|unit| unit.partition == partition);
                unit.map_or(0, |unit| position(&unit))
            };
            eventually("what there is to read", || {
                for stage in &chain.stages {
                    assert!(stage.go_on().is_empty());
                }
                units.iter().all(|(stage, unit)| {
                    let end = world.end(topic(*stage), unit.partition);
                    let is_all = position(*stage, unit.partition) == end;
                    // Those of the second stage have all once those of the first have sent it.
                    is_all || (!is_whole && position(*stage, unit.partition) >= until.min(end))
                }) && (is_whole || start.elapsed() > Duration::from_millis(until))
            });
            if is_whole {
                for (stage, partition) in units.iter().map(|(stage, unit)| (*stage, unit.partition)) {
                    chain.stages[stage].go_on();
                    let end = chain.stages[stage].stop(partition).unwrap().unwrap();
                    assert_eq!(end.state, JobState::Done);
                    if stage == 0 && partition + 1 == PARTITIONS && is_chain {
                        eventually("the end of the second stage's log", || {
                            assert!(chain.stages[1].go_on().is_empty());
                            (0..PARTITIONS)
                                .all(|partition| position(1, partition) == world.end(NEXT, partition))
                        });
                    }
                }
            }
            let has_met = |(_, unit): &&(usize, Arc<Unit>)| unit.counts.has_met.load(Ordering::Relaxed);
            switched += units.iter().filter(has_met).count();
        };
        for _ in 0..4 {
            run(&mut rng, "units", &world.units, false);
        }
        run(&mut rng, "units", &world.units, true);
        let answers = world.units.0.lock().unwrap().clone();
        assert_eq!(answers.len(), records.len(), "seed {seed}");
        // Units that begin anew and that nobody disturbs have the same answers; so has, of a chain, the log of the last.
        let again = Collected::default();
        if is_chain {
            let chain = Chain::new(&world, "again", &again, &mut rng);
            (0..PARTITIONS).for_each(|partition| drop(chain.start(1, partition)));
            eventually("all again", || {
                assert!(chain.stages[1].go_on().is_empty());
                let units = chain.stages[1].list();
                units.iter().all(|unit| position(unit) == world.end(NEXT, unit.partition))
            });
            (0..PARTITIONS).for_each(|partition| drop(chain.stages[1].stop(partition).unwrap()));
        } else {
            run(&mut rng, "again", &again, true);
        }
        assert_eq!(*again.0.lock().unwrap(), answers, "seed {seed}");
        // The old text has no weights, which a later stage of the new one says; the new one has those of its own records.
        let weights = |answer: &str| {
            let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
            answer["weight"]["c"].as_i64()
        };
        let first: Vec<_> = answers.range(..600).map(|(_, answer)| weights(answer)).collect();
        assert!(first.iter().all(Option::is_none), "seed {seed}: {first:?}");
        let later: Vec<_> = answers.range(600..).map(|(_, answer)| weights(answer)).collect();
        assert!(later.iter().all(Option::is_some) && later.contains(&Some(7)), "seed {seed}: {later:?}");
        // Queries that both texts have go on.
        if !is_chain {
            for (n, expected) in world.embedded(&records) {
                let of = |line: &str| line[line.find("\"sliding\"").unwrap()..].to_owned();
                assert_eq!(of(&answers[&n]), of(&expected), "seed {seed}: record {n}");
            }
        }
        assert!(switched > 0, "seed {seed}: no unit has changed");
    }
}

#[test]
fn rows_by_a_text_that_the_log_has_not_named_do_not_count() {
    let mut rng = Rng::with_seed(4);
    let world = World::new(4);
    let records = records(&mut rng, 300);
    let after = world.spec(2, &with_weight(JOB));
    // What names the text was lost.
    world.send_by(&after, &mut rng, &records[..100], 8);
    world.send_from(&mut rng, &records[100..], 7);
    let units = world.units(1, Duration::from_millis(1));
    let started: Vec<_> = (0..PARTITIONS).map(|partition| units.start(partition, true).unwrap()).collect();
    eventually("all", || started.iter().all(|unit| position(unit) == world.end_of(unit.partition)));
    (0..PARTITIONS).for_each(|partition| drop(units.stop(partition).unwrap()));
    assert!(started.iter().any(|unit| unit.counts.gaps.load(Ordering::Relaxed) > 0));
    let answers = world.units.0.lock().unwrap().clone();
    assert!(answers.keys().copied().eq(100..300), "{:?}", answers.keys());
}

#[test]
fn a_text_of_which_this_program_knows_nothing_stops_the_unit() {
    let world = World::new(1);
    let spec = Spec { semantics: SEMANTICS + 1, ..(*world.spec(2, JOB)).clone() };
    world.name_text(&spec);
    let units = world.units(1, Duration::from_millis(1));
    let unit = units.start(0, true).unwrap();
    let JobState::Failed(failure) = unit.job.wait().state else { panic!("it goes on") };
    assert!(failure.message.contains("message 1 of thalweg.j.features[0]"), "{failure}");
    assert!(failure.message.contains("text 2 of the job is of version"), "{failure}");
}

#[test]
fn a_unit_goes_on_in_its_own_log_alone() {
    let of = TopicPartition::new(TOPIC, 0);
    /// A world whose unit 0 has read all of its log, and the end of that.
    fn read(of: &TopicPartition) -> (World, i64) {
        let mut rng = Rng::with_seed(1);
        let world = World::new(1);
        let records = records(&mut rng, 500);
        world.send(&mut rng, &records);
        read_all(&world).unwrap();
        let end = world.bus.bounds(of).unwrap().end;
        (world, end)
    }
    fn read_all(world: &World) -> Result<(), Error> {
        let units = world.units(1, Duration::from_millis(1));
        let unit = units.start(0, true)?;
        eventually("the end of the log", || position(&unit) == world.end_of(0));
        units.stop(0).map(|end| assert_eq!(end.unwrap().state, JobState::Done))
    }
    let refused = |world: &World| {
        let error = read_all(world).unwrap_err();
        assert_eq!(error.class(), thalweg_types::Class::Corrupt, "{}", error.chain());
        error.chain()
    };
    let (world, end) = read(&of);
    read_all(&world).unwrap();
    // All that was read may be gone.
    world.bus.retain_from(&of, end);
    read_all(&world).unwrap();

    let (world, end) = read(&of);
    world.bus.cut_from(&of, end - 1);
    let said = refused(&world);
    assert!(said.contains(&format!("expected offset {end}, got offsets from 0 to {}", end - 1)), "{said}");
    // Another message in the place of the last.
    let other = world.bus.committed(&of)[0].value.clone().unwrap();
    world.append(0, &other);
    let units = world.units(1, Duration::from_millis(1));
    let unit = units.start(0, true).unwrap();
    let JobState::Failed(failure) = unit.job.wait().state else { panic!("it goes on in another log") };
    assert!(failure.message.contains(&format!("expected message {} with checksum", end - 1)), "{failure}");
    drop(units);

    world.bus.make_topic(TOPIC, PARTITIONS as i32);
    let said = refused(&world);
    assert!(said.contains("topic id") && said.contains("made anew"), "{said}");
}

#[test]
fn what_is_no_frame_stops_the_unit_after_all_that_came_before_it() {
    let mut rng = Rng::with_seed(2);
    let world = World::new(2);
    let records = records(&mut rng, 200);
    let expected = world.embedded(&records);
    world.send(&mut rng, &records);
    (0..PARTITIONS).for_each(|partition| world.append(partition, b"somebody else's"));
    let units = world.units(2, Duration::from_millis(1));
    for partition in 0..PARTITIONS {
        let unit = units.start(partition, true).unwrap();
        let JobState::Failed(failure) = unit.job.wait().state else { panic!("it takes anything") };
        let place = format!("message {} of {TOPIC}[{partition}]", world.end_of(partition) - 1);
        assert!(failure.message.contains(&place), "{failure}");
        assert_eq!(failure.error.unwrap().class, thalweg_types::Class::Corrupt);
    }
    assert!(world.units.0.lock().unwrap().len() <= expected.len());
}

#[test]
fn a_job_is_refused_that_cannot_be_cut() {
    let world = World::new(1);
    let node = world.node("any", 1, &Collected::default());
    let why = |text: &str| {
        let text = text.replace("DIR", "x");
        let job = JobFile::parse("j.yaml", &text, &[]).and_then(|file| file.check(node.check_options()));
        let refusals = cut(&job.unwrap_or_else(|mistakes| panic!("{mistakes}"))).map(drop).unwrap_err();
        refusals.into_iter().map(|refusal| refusal.what).collect::<Vec<_>>().join("; ")
    };
    // Two operators side by side read the same rows; of rows that are made apart one could be lost.
    let two = JOB.replace(
        "sinks:\n",
        "  few: { type: filter, input: records, where: amount > 1.0 }\n  more:\n    type: metrics\n    input: few\n    partition_by: [id]\n    queries: { k: SELECT count(*) AS k FROM few GROUP BY id OVER INFINITE }\nsinks:\n",
    );
    assert_eq!(
        why(&two),
        "operator \"features\" reads \"records\", and operator \"more\" reads \"few\", which are made of the same \
         records above any key: a record could count for one of them alone"
    );
    let both = PAIRS.replace(
        "sinks:\n",
        "  later: { type: map, input: numbered, select: { id: n, a: n } }\n  both: { type: filter, input: [left, later], where: a > 0 }\nsinks:\n",
    );
    assert!(
        why(&both).contains(
            "operator \"both\" has no key, and reads \"left\", which is above the key of \"pairs\""
        )
    );
    let several = |name: &str, input: &str| {
        format!(
            "  {name}:\n    type: metrics\n    input: {input}\n    partition_by: [id, card]\n    queries:\n      \
             i: SELECT count(*) AS k FROM {input} GROUP BY id OVER INFINITE\n      \
             c: SELECT count(*) AS k FROM {input} GROUP BY card OVER INFINITE\n"
        )
    };
    let chains =
        JOB.replace("sinks:\n", &(several("one", "records") + &several("two", "features") + "sinks:\n"));
    assert_eq!(
        why(&chains),
        "operator \"one\" has several keys, and rows for operator \"two\" would have to pass through its stages"
    );
    let above = JOB.replace("sinks:\n", "sinks:\n  raw: { type: collect, input: records }\n");
    assert_eq!(why(&above), "sink \"raw\" reads \"records\", which is above the key of \"features\"");
    let none = JOB[..JOB.find("operators:").unwrap()].to_owned()
        + "sinks: { out: { type: collect, input: records } }\n";
    assert!(why(&none).contains("no operator with a key"));
    let forgets = TICKING.replace("emit: { every: 10s }", "checkpoint: none");
    assert!(why(&forgets).starts_with("operator \"totals\" has `checkpoint: none`"), "{}", why(&forgets));
    let csv = world.folder.path().join("names.csv");
    std::fs::write(&csv, "192.0.2.7,www.example.com\n").unwrap();
    let join =
        "  named: { type: lookup_join, input: features, table: CSV.thl, csv: CSV, on: { client: client } }\n";
    let join = join.replace("CSV", &csv.display().to_string());
    let joins = JOB
        .replace("amount: float64 }", "amount: float64, client: ip }")
        .replace("sinks:\n", &(join + "sinks:\n"));
    assert!(
        why(&joins).starts_with("operator \"named\" joins a table that is loaded from files"),
        "{}",
        why(&joins)
    );
}
