//! The sink `kafka` as part of a unit of a cluster: copies on two nodes, of which one writes, dies, hands over, or does not
//! hear for a while that another one writes. What a reader has in the end is each row once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use thalweg_kafka::TopicPartition;
use thalweg_kafka::memory::{Faults, MemoryBus};
use thalweg_types::{Seq, SeqRange, Seqs};

use super::drive::{Driven, context, numbers};
use super::kafka_sink::{entries, list, number, plugin, read, with_topic, without_doubles};
use super::*;
use crate::{SinkResume, SinkUnit, UnitRows};

/// Positions of neighbours are that far from each other.
const APART: u64 = 1_000;

/// Records of the log.
const RECORDS: u64 = 400;

/// Of five records one has no row.
fn has_row(record: u64) -> bool {
    record % 5 != 4
}

/// Where the rows of a copy stand.
struct Rows {
    /// The record that has order number 0 in this life of the copy.
    first: u64,
    passed: Mutex<Seq>,
    is_active: AtomicBool,
    /// Records below are written, for one that follows.
    limit: AtomicU64,
}

impl UnitRows for Rows {
    fn positions(&self, batch: &Batch) -> Result<Vec<u64>, Error> {
        Ok(batch.row_numbers().map(|row| (self.first + batch.seq(row)) * APART).collect())
    }

    fn passed(&self, end: Seq) -> Option<u64> {
        let passed = std::mem::replace(&mut *self.passed.lock().unwrap(), end);
        (end > passed).then(|| (self.first + end - 1) * APART)
    }

    fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    fn reached(&self, position: u64) {
        assert_eq!(position % APART, 0, "a position is one of a record");
        self.limit.fetch_max(position / APART, Ordering::Relaxed);
    }
}

/// A copy of the unit on a node.
struct Copy {
    bus: MemoryBus,
    /// The lives of a copy take turns in a process, which is known by this; it leads nowhere.
    address: String,
    faults: Faults,
    delivery: &'static str,
    /// Its last commit, and the record after it.
    resume: SinkResume,
    committed: u64,
    /// It is given no more than these records.
    most: u64,
    life: Option<Life>,
}

struct Life {
    rows: Arc<Rows>,
    driven: Driven,
    /// The next order number.
    next: Seq,
}

impl Copy {
    fn new(bus: &MemoryBus, delivery: &'static str, faults: Faults) -> Self {
        let resume = SinkResume { is_new: true, ..SinkResume::default() };
        static COPIES: AtomicU64 = AtomicU64::new(1);
        let address = format!("127.0.0.1:{}", COPIES.fetch_add(1, Ordering::Relaxed));
        Self { bus: bus.clone(), address, faults, delivery, resume, committed: 0, most: RECORDS, life: None }
    }

    fn start(&mut self, is_active: bool) {
        let rows = Arc::new(Rows {
            first: self.committed,
            passed: Mutex::new(0),
            is_active: AtomicBool::new(is_active),
            limit: AtomicU64::new(0),
        });
        let (sink, name) = ("thalweg.test.answers".into(), "test/answers".into());
        let mut more = vec![("delivery", text(self.delivery)), ("brokers", list(&[&self.address]))];
        if self.delivery == "transactions" {
            more.push(("visible", OptionValue::Duration(2_000)));
        }
        let mut context = context(&numbers(), &entries(&more), Some(self.resume.clone()));
        context.format = Some(spec("ndjson", &[]));
        context.unit = Some(SinkUnit {
            sink,
            partition: 7,
            partitions: 8,
            name,
            rows: Arc::clone(&rows) as Arc<dyn UnitRows>,
        });
        // It begins only where there is a broker.
        self.bus.set_faults(Faults::default());
        let driven = Driven::of(&plugin(&self.bus), context).expect("a sink that can be opened");
        self.bus.set_faults(self.faults);
        self.resume.is_new = false;
        self.life = Some(Life { rows, driven, next: 0 });
    }

    /// Gives some more records, if there are; what fails ends this life.
    fn give(&mut self, count: u64) {
        let Some(Life { rows, driven, next }) = &mut self.life else { return };
        let first = rows.first + *next;
        let end = match rows.is_active() {
            true => self.most,
            false => rows.limit.load(Ordering::Relaxed).min(self.most),
        };
        let count = count.min(end.saturating_sub(first));
        if count == 0 {
            return;
        }
        let records: Vec<u64> = (first..first + count).filter(|record| has_row(*record)).collect();
        let hosts = records.iter().map(|record| format!("host-{}", record % 7));
        let hosts: ArrayRef = Arc::new(StringViewArray::from_iter_values(hosts));
        let values: ArrayRef = Arc::new(records.iter().map(|record| *record as i64).collect::<Int64Array>());
        let columns = crate::source::record_batch(&numbers(), vec![hosts, values], records.len()).unwrap();
        let times: Vec<i64> = records.iter().map(|record| *record as i64).collect();
        let seqs: Vec<Seq> = records.iter().map(|record| record - rows.first).collect();
        let range = SeqRange::new(*next, *next + count);
        *next += count;
        let batch = Batch::new(range, columns, times.into(), Seqs::Each(seqs.into()));
        if driven.give_batch(batch).is_err() {
            self.life = None;
        }
    }

    fn commit(&mut self) {
        let Some(Life { rows, driven, next }) = &mut self.life else { return };
        match driven.commit(self.resume.cycle + 1) {
            Ok(resume) => (self.resume, self.committed) = (resume, rows.first + *next),
            Err(_) => self.life = None,
        }
    }

    fn drain(&mut self) {
        self.commit();
        if let Some(Life { driven, .. }) = &mut self.life {
            let _ = driven.finish();
        }
        self.life = None;
    }

    fn is_active(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.rows.is_active())
    }

    fn activate(&mut self) {
        match &self.life {
            Some(life) => life.rows.is_active.store(true, Ordering::Relaxed),
            None => self.start(true),
        }
    }
}

/// What has happened to the copies.
#[derive(Debug, Default)]
struct Happened {
    kills: u32,
    moves: u32,
    /// Moves to a copy that had followed and passed records.
    followed: u32,
    /// Records that both have been given while both were to write.
    both: u32,
}

fn run(bus: &MemoryBus, delivery: &'static str, seed: u64, faults: Faults) -> Happened {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut copies = [Copy::new(bus, delivery, faults), Copy::new(bus, delivery, faults)];
    let mut happened = Happened::default();
    let mut active = 0;
    // The others come when only one copy is left.
    copies.iter_mut().for_each(|copy| copy.most = RECORDS - 10);
    copies[0].start(true);
    for _ in 0..60 {
        let other = 1 - active;
        match random.u32(0..12) {
            0 => {
                happened.kills += 1;
                copies[active].life = None;
                if random.bool() {
                    active = other;
                }
            }
            1 => {
                happened.moves += 1;
                happened.followed += u32::from(copies[other].life.as_ref().is_some_and(|life| life.next > 0));
                copies[other].activate();
                if random.bool() {
                    // It has not heard of the plan.
                    for _ in 0..random.u32(1..4) {
                        happened.both += u32::from(copies[active].is_active());
                        copies[active].give(random.u64(1..9));
                        copies[other].give(random.u64(1..9));
                        copies[other].commit();
                    }
                }
                match random.bool() {
                    true => copies[active].drain(),
                    false => copies[active].life = None,
                }
                active = other;
            }
            2 => copies[active].commit(),
            3 => copies[other].commit(),
            4 if copies[other].life.is_none() => copies[other].start(false),
            // It asks how far it may go.
            4 | 5 => std::thread::sleep(std::time::Duration::from_millis(20)),
            _ => {
                copies[active].give(random.u64(1..20));
                copies[other].give(random.u64(1..20));
            }
        }
        copies[active].activate();
    }
    copies.iter_mut().for_each(|copy| copy.faults = Faults::default());
    bus.set_faults(Faults::default());
    // What it has asked brokers for before may still happen, until its thread has ended, after which the next life begins.
    let other = &mut copies[1 - active];
    other.life = None;
    other.start(false);
    other.drain();
    copies[active].most = RECORDS;
    // A life that another one has fenced off, whose thread had not ended, ends; the next one goes on.
    while copies[active].committed < RECORDS {
        copies[active].activate();
        copies[active].give(50);
        copies[active].commit();
    }
    copies[active].drain();
    happened
}

fn check(delivery: &'static str, faults: Faults) {
    let (mut all, mut lost) = (Happened::default(), 0);
    for seed in 0..30 {
        let bus = with_topic(seed);
        let happened = run(&bus, delivery, seed, faults);
        let there = read(&bus);
        let kept: Vec<Vec<i64>> = match delivery {
            "positions" => there.iter().map(|rows| without_doubles(rows)).collect(),
            _ => there.iter().map(|rows| rows.iter().map(number).collect()).collect(),
        };
        let mut times: BTreeMap<i64, u32> = BTreeMap::new();
        kept.concat().into_iter().for_each(|record| *times.entry(record).or_default() += 1);
        let expected = |record: &u64| u32::from(has_row(*record));
        let times = |record: &u64| times.get(&(*record as i64)).copied().unwrap_or_default();
        let wrong: Vec<(u64, u32)> = (0..RECORDS)
            .filter(|record| times(record) != expected(record))
            .map(|record| (record, times(&record)))
            .collect();
        assert_eq!(wrong, [], "seed {seed}: records, and how often their rows came; {happened:?}");
        // That of the last record, which has no row.
        until("the group has the end", || {
            let offset = bus.group_offset("thalweg.test.answers.7", &TopicPartition::new("t", 0));
            offset.is_some_and(|found| found.offset as u64 == (RECORDS - 1) * APART)
        });
        lost += bus.happened().lost_offsets;
        all.kills += happened.kills;
        all.moves += happened.moves;
        all.followed += happened.followed;
        all.both += happened.both;
    }
    assert!(all.kills > 50 && all.moves > 50 && all.followed > 5 && all.both > 20, "{all:?}");
    assert!(faults.lost_offsets == 0 || lost > 50, "{lost} times a group had what it was given first");
}

#[test]
fn rows_with_positions_come_once_whichever_copy_writes() {
    check("positions", Faults { delays: 50, lost_acknowledgements: 10, outages: 50, ..Faults::default() });
}

#[test]
fn rows_of_transactions_come_once_whichever_copy_writes() {
    check(
        "transactions",
        Faults {
            delays: 50,
            lost_acknowledgements: 5,
            unknown_commits: 50,
            lost_commits: 50,
            aborts: 50,
            partial_loads: 100,
            lost_offsets: 100,
            outages: 50,
            ..Faults::default()
        },
    );
}

/// What is refused of an embedded job is how a unit moves: another node has written, and has come to other cycles.
#[test]
fn a_copy_without_data_goes_on_where_another_one_has_written() {
    for delivery in ["positions", "transactions"] {
        let bus = with_topic(1);
        let mut first = Copy::new(&bus, delivery, Faults::default());
        first.start(true);
        for _ in 0..8 {
            first.give(10);
            first.commit();
        }
        first.drain();
        until("the group has the end", || {
            let offset = bus.group_offset("thalweg.test.answers.7", &TopicPartition::new("t", 0));
            offset.is_some_and(|found| found.offset as u64 == 79 * APART)
        });
        let mut second = Copy::new(&bus, delivery, Faults::default());
        second.start(true);
        second.give(100);
        second.drain();
        let rows: Vec<Vec<i64>> = read(&bus).iter().map(|rows| rows.iter().map(number).collect()).collect();
        let mut rows = rows.concat();
        rows.sort_unstable();
        let expected: Vec<i64> =
            (0..100).filter(|record| has_row(*record)).map(|record| record as i64).collect();
        assert_eq!(rows, expected, "{delivery}: nothing is written twice");
    }
}

/// One that has only followed leaves the copy alone that writes.
#[test]
fn a_copy_that_has_followed_ends_without_a_producer() {
    let bus = with_topic(1);
    let [mut writes, mut follows] = [(); 2].map(|()| Copy::new(&bus, "transactions", Faults::default()));
    writes.start(true);
    for _ in 0..4 {
        writes.give(20);
        writes.commit();
        follows.start(false);
        std::thread::sleep(std::time::Duration::from_millis(50));
        follows.give(RECORDS);
        follows.drain();
    }
    assert!(follows.committed > 0, "it has followed");
    std::thread::sleep(std::time::Duration::from_millis(50));
    writes.give(20);
    writes.commit();
    assert_eq!(writes.committed, 100, "it was not fenced off");
}
