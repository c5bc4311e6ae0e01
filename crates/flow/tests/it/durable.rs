//! A job that outlives its process: publishing tasks wait for the log, parts of cycles are handed over, and a log that
//! is followed again gives the same again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use thalweg_flow::{
    CyclePart, CycleSettings, CycleStart, Cycles, Durability, DurableOrder, InputId, Job, JobOptions,
    JobState, LastCommit, LeftBlock, NoOrderLog, Operator, OrderEntry, OrderEvent, OrderLog, Output,
    Partitioning, Payload, RawBlock, Runtime, Source, SystemClock, Waker,
};
use thalweg_types::{Batch, Error, Seq, SeqRange};

use crate::harness::*;

#[derive(Clone, Default)]
struct KeptLog(Arc<Mutex<Vec<OrderEntry>>>);

impl OrderLog for KeptLog {
    fn append(&mut self, entry: OrderEntry) -> Result<(), Error> {
        self.0.lock().unwrap().push(entry);
        Ok(())
    }
}

/// Collects cycles; says no to new ones while `is_shut`.
#[derive(Clone, Default)]
struct KeptCycles(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    expected: Vec<(Arc<str>, u32)>,
    started: Vec<CycleStart>,
    parts: Vec<(String, u32, u64, Vec<u8>)>,
    is_shut: bool,
    /// How often a cycle was asked for.
    asked: u64,
    has_ended: bool,
    is_stopped: bool,
}

impl Cycles for KeptCycles {
    fn expect(&self, tasks: Vec<(Arc<str>, u32)>) {
        self.0.lock().unwrap().expected = tasks;
    }

    fn may_begin(&self) -> bool {
        let mut kept = self.0.lock().unwrap();
        kept.asked += 1;
        !kept.is_shut
    }

    fn begin(&self, start: CycleStart) {
        self.0.lock().unwrap().started.push(start);
    }

    fn part(&self, operator: &Arc<str>, task: u32, cycle: u64, mut part: Box<dyn CyclePart>) {
        let position = part.prepare().unwrap();
        self.0.lock().unwrap().parts.push((operator.to_string(), task, cycle, position));
    }

    fn end(&self) {
        self.0.lock().unwrap().has_ended = true;
    }

    fn stop(&self) {
        self.0.lock().unwrap().is_stopped = true;
    }
}

/// Counts its rows, and hands the count over.
struct Counter {
    rows: u8,
}

impl Operator for Counter {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        self.rows = self.rows.wrapping_add(batch.len() as u8);
        out.emit(0, batch);
        Ok(())
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        out.hand_over(cycle, Box::new(vec![self.rows]));
        Ok(())
    }

    fn takes_part(&self) -> bool {
        true
    }
}

fn cycles_by_records(records: u64) -> JobOptions {
    JobOptions {
        cycle: CycleSettings { every: None, bytes: None, records: Some(records) },
        ..JobOptions::default()
    }
}

#[test]
fn what_publishes_is_given_nothing_that_is_not_durable() {
    let mut build = Build::new("held back");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers, 2);
    let input = build.input(source, Partitioning::Shuffle);
    let plain = build.each("plain", vec![input], 2, |_, row| Some(row));
    let input = build.input(plain, Partitioning::Global);
    let inner = build.each("inner", vec![input], 1, |_, row| Some(row));
    let seen = build.record("seen", vec![build.input(inner, Partitioning::Global)], 1);
    let forward = build.input(inner, Partitioning::Forward);
    let published = build.record("published", vec![forward], 1);
    build.graph.operators.last_mut().unwrap().publishes = true;
    let (runtime, _clock) = runtime(2);
    let order = Arc::new(DurableOrder::default());
    let durability = Lasting::of_log(KeptLog::default()).in_order(&order);
    let job = durability.start(&runtime, build.graph, quiet());
    let rows = |events: &[Event]| events.iter().filter(|event| matches!(event, Event::Row(..))).count();

    tap.allow(99);
    seen.wait_until("a task that does not publish goes on", |tasks| rows(&tasks[0]) == 99);
    assert_eq!(published.of_task(0), [], "not even the tick before the records");
    order.advance(1);
    published.wait_until("the tick", |tasks| !tasks[0].is_empty());
    assert_eq!(rows(&published.of_task(0)), 0);
    order.advance(100);
    published.wait_until("the first records", |tasks| rows(&tasks[0]) == 99);
    tap.allow(150);
    seen.wait_until("the next ones", |tasks| rows(&tasks[0]) == 149);
    assert_eq!(rows(&published.of_task(0)), 99);
    order.advance(Seq::MAX);
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
    assert_eq!(rows(&published.of_task(0)), 149, "one of them is a reject");
}

#[test]
fn an_operator_that_is_not_ready_holds_its_task_and_is_asked_again_when_it_wakes_it() {
    #[derive(Default)]
    struct Door {
        open: bool,
        waker: Option<Waker>,
    }
    struct Slow {
        door: Arc<Mutex<Door>>,
        taken: Arc<Mutex<usize>>,
    }
    impl Operator for Slow {
        fn process(&mut self, _: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
            assert!(self.door.lock().unwrap().open, "nothing comes while it is not ready");
            *self.taken.lock().unwrap() += batch.len();
            Ok(())
        }
        fn is_ready(&mut self, waker: &Waker) -> bool {
            let mut door = self.door.lock().unwrap();
            door.waker = Some(waker.clone());
            door.open
        }
    }
    let (door, taken) = (Arc::new(Mutex::new(Door::default())), Arc::new(Mutex::new(0)));
    let mut build = Build::new("slow sink");
    let source = build.numbers("numbers", Numbers::up_to(99), 1);
    let input = build.input(source, Partitioning::Global);
    let (door_of_task, taken_by_task) = (Arc::clone(&door), Arc::clone(&taken));
    build.operator("slow", vec![input], 1, move |_| Slow {
        door: Arc::clone(&door_of_task),
        taken: Arc::clone(&taken_by_task),
    });
    let (runtime, _clock) = runtime(1);
    let job = runtime.start(build.graph, quiet()).unwrap();
    eventually("it is asked", || door.lock().unwrap().waker.is_some());
    assert_eq!(*taken.lock().unwrap(), 0);
    let waker = {
        let mut door = door.lock().unwrap();
        door.open = true;
        door.waker.take().unwrap()
    };
    waker.wake();
    assert_eq!(finish(&job), JobState::Done);
    assert_eq!(*taken.lock().unwrap(), 99);
}

#[test]
fn every_task_that_takes_part_hands_over_once_per_cycle() {
    let mut build = Build::new("parts");
    let source = build.numbers("numbers", Numbers::up_to(1_000), 2);
    let input = build.input(source, Partitioning::Key(vec![1]));
    let counted = build.operator("counted", vec![input], 3, |_| Counter { rows: 0 });
    build.record("sink", vec![build.input(counted, Partitioning::Global)], 1);
    let (runtime, _clock) = runtime(2);
    let cycles = KeptCycles::default();
    let log = KeptLog::default();
    let durability = Lasting::of_log(log.clone()).in_cycles(cycles.clone());
    let job = durability.start(&runtime, build.graph, cycles_by_records(300));
    assert_eq!(finish(&job), JobState::Done);

    let kept = cycles.0.lock().unwrap();
    assert!(kept.has_ended && !kept.is_stopped);
    assert_eq!(kept.expected, (0..3).map(|task| ("counted".into(), task)).collect::<Vec<_>>());
    let numbers: Vec<u64> = kept.started.iter().map(|start| start.cycle).collect();
    assert_eq!(numbers, [1, 2, 3, 4], "three by records, one at the end");
    for start in &kept.started {
        let marker = start.next - 1;
        let log = log.0.lock().unwrap();
        let entry = log.iter().find(|entry| entry.range.start == marker).unwrap();
        assert_eq!(entry.event, OrderEvent::Cycle { number: start.cycle });
        let before = log.iter().filter(|entry| entry.range.end <= marker);
        let records: u64 = before
            .filter(|entry| matches!(entry.event, OrderEvent::Run { .. }))
            .map(|entry| entry.range.len())
            .sum();
        assert_eq!(start.sources[0].next, records, "the source is after the numbered records");
    }
    for task in 0..3 {
        let mine: Vec<u64> = kept
            .parts
            .iter()
            .filter(|(_, other, ..)| *other == task)
            .map(|(_, _, cycle, _)| *cycle)
            .collect();
        assert_eq!(mine, numbers, "task {task}");
    }
    let last: u32 =
        kept.parts.iter().filter(|part| part.2 == 4).map(|part| u32::from(part.3[0])).sum::<u32>() % 256;
    assert_eq!(last, 990 % 256, "the last parts hold everything");
}

#[test]
fn a_cycle_grows_while_earlier_ones_are_on_their_way() {
    let mut build = Build::new("cadence");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers.in_blocks_of(10), 1);
    build.record("sink", vec![build.input(source, Partitioning::Global)], 1);
    let (runtime, _clock) = runtime(1);
    let cycles = KeptCycles::default();
    let durability = Lasting::of_log(KeptLog::default()).in_cycles(cycles.clone());
    let job = durability.start(&runtime, build.graph, cycles_by_records(10));
    let started = || cycles.0.lock().unwrap().started.len();
    tap.allow(20);
    eventually("two cycles", || started() == 2);
    cycles.0.lock().unwrap().is_shut = true;
    tap.allow(100);
    eventually("all records", || job.stats().records == 100);
    assert_eq!(started(), 2, "nothing is marked while the collector is busy");
    cycles.0.lock().unwrap().is_shut = false;
    tap.allow(110);
    eventually("the next block ends the long cycle", || started() == 3);
    for (allowed, cycles) in [(120, 4), (130, 5)] {
        tap.allow(allowed);
        eventually("a cycle as short as before", || started() == cycles);
    }
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
    let ends: Vec<u64> = cycles.0.lock().unwrap().started.iter().map(|start| start.sources[0].next).collect();
    assert_eq!(ends[..5], [10, 20, 110, 120, 130]);
}

/// A job of one task, given blocks of ten records, that asks for something after each.
fn asking_after_each_batch(cycles: &KeptCycles, ask: fn(&Output<'_>)) -> (Runtime, Job, Tap) {
    struct Asking(fn(&Output<'_>));
    impl Operator for Asking {
        fn process(&mut self, _: InputId, _: Batch, out: &mut Output<'_>) -> Result<(), Error> {
            (self.0)(out);
            Ok(())
        }
    }
    let mut build = Build::new("asking");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers.in_blocks_of(10), 1);
    let input = build.input(source, Partitioning::Global);
    build.operator("asking", vec![input], 1, move |_| Asking(ask));
    let (runtime, _clock) = runtime(1);
    let durability = Lasting::of_log(KeptLog::default()).in_cycles(cycles.clone());
    let job = durability.start(&runtime, build.graph, quiet());
    (runtime, job, tap)
}

#[test]
fn a_task_can_ask_for_the_end_of_a_cycle_and_gets_it_once_earlier_ones_are_done() {
    let cycles = KeptCycles::default();
    let (_runtime, job, tap) = asking_after_each_batch(&cycles, |out| out.hasten_cycle());
    let started = || cycles.0.lock().unwrap().started.len();
    tap.allow(10);
    eventually("a cycle that nothing else ends", || started() == 1);
    cycles.0.lock().unwrap().is_shut = true;
    tap.allow(20);
    eventually("the block", || job.stats().records == 20);
    cycles.0.lock().unwrap().is_shut = false;
    eventually("the cycle that was asked for meanwhile", || started() == 2);
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
}

#[test]
fn sources_wait_while_a_task_can_take_no_more_before_a_marker() {
    let cycles = KeptCycles::default();
    cycles.0.lock().unwrap().is_shut = true;
    let (_runtime, job, tap) = asking_after_each_batch(&cycles, |out| out.hold_sources());
    let (started, asked) = (|| cycles.0.lock().unwrap().started.len(), || cycles.0.lock().unwrap().asked);
    tap.allow(10);
    eventually("the task is full", || asked() > 0);
    tap.allow(50);
    let before = asked();
    eventually("the sequencer comes round", || asked() > before + 3);
    assert_eq!((job.stats().records, started()), (10, 0));
    assert!(job.stats().sources[0].blocked);
    cycles.0.lock().unwrap().is_shut = false;
    eventually("all records, as markers follow each other", || job.stats().records == 50);
    eventually("the source waits for nobody", || !job.stats().sources[0].blocked);
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
}

#[test]
fn nobody_asks_for_a_cycle_that_is_not_due() {
    let mut build = Build::new("not due");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers, 1);
    build.record("sink", vec![build.input(source, Partitioning::Global)], 1);
    let cycles = KeptCycles::default();
    let durability = Lasting::of_log(KeptLog::default()).in_cycles(cycles.clone());
    let options = JobOptions {
        tick: Duration::from_millis(1),
        cycle: CycleSettings { every: Some(Duration::from_secs(3600)), bytes: None, records: None },
        ..JobOptions::default()
    };
    let runtime = Runtime::new(1, Arc::new(SystemClock));
    let job = durability.start(&runtime, build.graph, options);
    tap.allow(10);
    let first = job.stats().tick;
    eventually("ticks go on", || job.stats().tick > first + 20_000);
    assert_eq!(cycles.0.lock().unwrap().asked, 0, "a collector that says no counts it as held back");
    job.abort();
    assert_eq!(finish(&job), JobState::Aborted);
}

/// Rows and controls, in order; not how rows were batched.
fn story(records: &Records) -> Vec<Event> {
    records.of_task(0).into_iter().filter(|event| !matches!(event, Event::Batch(_))).collect()
}

fn number_of(event: &Event) -> Seq {
    match event {
        Event::Row(_, row) => row.seq,
        Event::Tick(seq, _) | Event::Cycle(seq, _) | Event::Command(seq, _) | Event::Finish(seq) => *seq,
        Event::Batch(_) => unreachable!("batches are left out"),
    }
}

/// Two sources, a keyed operator, a sink that records; blocks of these sizes.
fn two_sources(name: &str, numbers: [Numbers; 2], decoders: u32) -> (Build, Records) {
    let mut build = Build::new(name);
    let [one, two] = numbers;
    let one = build.numbers("one", one, decoders);
    let two = build.numbers("two", two, 1);
    let inputs =
        vec![build.input(one, Partitioning::Key(vec![1])), build.input(two, Partitioning::Key(vec![1]))];
    let keyed = build.each("keyed", inputs, 3, |_, row| Some(row));
    let records = build.record("sink", vec![build.input(keyed, Partitioning::Global)], 1);
    (build, records)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// From any commit on: the same rows with the same numbers, ticks, markers and commands, however the blocks of the
    /// sources are cut this time; then it goes on by itself.
    #[test]
    fn a_log_that_is_followed_gives_the_same_again(
        blocks in prop::array::uniform4(1_u32..120),
        decoders in 1_u32..4,
        from in 0_usize..4,
        cut in 0_u64..600,
        more in 0_u64..300,
    ) {
        let total = [600, 400];
        let numbers = |blocks: [u32; 2]| {
            [Numbers::up_to(total[0]).in_blocks_of(blocks[0]), Numbers::up_to(total[1]).in_blocks_of(blocks[1])]
        };
        let (build, records) = two_sources("first run", numbers([blocks[0], blocks[1]]), 1);
        let (log, cycles) = (KeptLog::default(), KeptCycles::default());
        let (running, clock) = runtime(2);
        let durability =
            Lasting::of_log(log.clone()).in_cycles(cycles.clone());
        let options = cycles_by_records(200);
        let job = durability.start(&running, build.graph, options.clone());
        let _ = job.command(message("look here"));
        clock.advance(200_000);
        prop_assert_eq!(finish(&job), JobState::Done);
        let told = story(&records);

        // A crash: the log ends somewhere, at the earliest after the commit from which the job goes on.
        let starts = cycles.0.lock().unwrap().started.clone();
        let start = starts[from.min(starts.len() - 1)].clone();
        let all = log.0.lock().unwrap().clone();
        let behind: Vec<OrderEntry> = all.into_iter().filter(|entry| entry.range.start >= start.next).collect();
        let kept: Vec<OrderEntry> = behind.iter().take(cut as usize % (behind.len() + 1)).cloned().collect();
        let end = kept.last().map_or(start.next, |entry| entry.range.end);

        let mut again = numbers([blocks[2], blocks[3]]);
        for (numbers, position) in again.iter_mut().zip(&start.sources) {
            numbers.restore(position).unwrap();
            let total = numbers.total.unwrap() + more;
            numbers.total = Some(total);
            numbers.tap.allow(total);
        }
        let (build, records) = two_sources("second run", again, decoders);
        let (log, cycles) = (KeptLog::default(), KeptCycles::default());
        let (running, _clock) = runtime(2);
        let last = LastCommit { next: start.next, cycle: start.cycle, now: start.now };
        let durability = Lasting::of_log(log.clone()).in_cycles(cycles.clone()).after(last, kept.clone());
        let job = durability.start(&running, build.graph, options);
        prop_assert_eq!(finish(&job), JobState::Done);

        let in_log = |events: Vec<Event>| -> Vec<Event> {
            let within = |event: &Event| {
                // The end of a run is not an end for the next one.
                (start.next..end).contains(&number_of(event)) && !matches!(event, Event::Finish(_))
            };
            events.into_iter().filter(within).collect()
        };
        let retold = story(&records);
        prop_assert_eq!(in_log(retold.clone()), in_log(told));
        let fresh = log.0.lock().unwrap().clone();
        prop_assert_eq!(fresh.first().map(|entry| entry.range.start), Some(end), "only new entries are written down");
        let rows = retold.iter().filter(|event| matches!(event, Event::Row(..))).count() as u64;
        let good = |from: u64, to: u64| (from..to).filter(|n| is_good(*n as i64)).count() as u64;
        let expected: u64 =
            (0..2).map(|source| good(start.sources[source].next, total[source] + more)).sum();
        prop_assert_eq!(rows, expected, "every record after the commit, once");
        let first = cycles.0.lock().unwrap().started[0].cycle;
        prop_assert_eq!(first, start.cycle + 1, "cycle numbers go on");
    }
}

/// A crash may take the entries after the last tick, marker or command, where the source has its blocks all the same.
#[test]
fn blocks_that_the_log_does_not_name_get_the_numbers_and_arrivals_that_they_had() {
    let mut build = Build::new("first run");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers.in_blocks_of(50), 1);
    let records = build.record("sink", vec![build.input(source, Partitioning::Global)], 1);
    let log = KeptLog::default();
    let (running, clock) = runtime(2);
    // A marker is due in the middle of the left blocks, and was not numbered there.
    let cycles = KeptCycles::default();
    cycles.0.lock().unwrap().is_shut = true;
    let durability = Lasting::of_log(log.clone()).in_cycles(cycles);
    let job = durability.start(&running, build.graph, cycles_by_records(120));
    let entries = |log: &KeptLog| log.0.lock().unwrap().clone();
    let mut given = 0;
    for _ in 0..5 {
        clock.advance(1_000);
        given += 50;
        tap.allow(given);
        eventually("the block is numbered", || {
            entries(&log).last().is_some_and(|entry| entry.range.end == 1 + given)
        });
    }
    records.wait_until("all of them", |tasks| {
        tasks[0].iter().filter(|event| matches!(event, Event::Row(..))).count() == 248
    });
    let told = story(&records);
    let all = entries(&log);
    assert_eq!(all.len(), 6, "a tick and five runs: {all:?}");
    job.abort();
    finish(&job);

    for kept in 1..=6 {
        let mut again = Numbers::up_to(given + 50).in_blocks_of(50);
        again.left = all[kept..]
            .iter()
            .map(|entry| match entry.event {
                OrderEvent::Run { partition, offset, arrival, .. } => {
                    let count = entry.range.len() as u32;
                    let block = RawBlock { partition, first: offset, count, payload: Payload::Offsets };
                    LeftBlock { block, arrival }
                }
                _ => panic!("only runs come after the tick: {entry:?}"),
            })
            .collect();
        let mut build = Build::new("second run");
        let source = build.numbers("numbers", again, 1);
        let records = build.record("sink", vec![build.input(source, Partitioning::Global)], 1);
        let log = KeptLog::default();
        let (running, clock) = runtime(2);
        // Later than any of them, as it is after a crash.
        clock.advance(60_000_000);
        let last = LastCommit { next: 0, cycle: 0, now: 0 };
        let durability =
            Lasting::of_log(log.clone()).in_cycles(KeptCycles::default()).after(last, all[..kept].to_vec());
        let job = durability.start(&running, build.graph, cycles_by_records(120));
        assert_eq!(finish(&job), JobState::Done);
        let fresh = entries(&log);
        assert_eq!(&fresh[..6 - kept], &all[kept..], "the same entries are written down");
        assert!(matches!(fresh[6 - kept].event, OrderEvent::Tick { .. }), "then the job goes on: {fresh:?}");
        assert_eq!(&story(&records)[..told.len()], &told, "after {kept} entries");
    }
}

/// Runs numbers to their end after an order log that ends before number `next`, with one block of 50 left.
fn go_on_with_a_block_left(mut numbers: Numbers, next: Seq, log: impl OrderLog + 'static) {
    let block = RawBlock { partition: 0, first: 0, count: 50, payload: Payload::Offsets };
    numbers.left.push_back(LeftBlock { block, arrival: 10 });
    let mut build = Build::new("left");
    build.numbers("numbers", numbers.in_blocks_of(50), 1);
    let (running, _clock) = runtime(2);
    let last = LastCommit { next, cycle: 0, now: 0 };
    let durability = Lasting::of_log(log).after(last, Vec::new());
    let job = durability.start(&running, build.graph, quiet());
    assert_eq!(finish(&job), JobState::Done);
}

#[test]
fn what_is_left_of_a_job_that_had_numbered_nothing_comes_behind_a_tick() {
    let log = KeptLog::default();
    go_on_with_a_block_left(Numbers::up_to(50), 0, log.clone());
    let entries = log.0.lock().unwrap().clone();
    assert!(matches!(entries[0].event, OrderEvent::Tick { .. }), "{entries:?}");
    assert!(matches!(entries[1].event, OrderEvent::Run { offset: 0, .. }), "{entries:?}");
}

/// Keeps which entries need not be waited for.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(SeqRange, bool)>>>);

impl OrderLog for Told {
    fn append(&mut self, entry: OrderEntry) -> Result<(), Error> {
        self.0.lock().unwrap().push((entry.range, false));
        Ok(())
    }

    fn append_told(&mut self, entry: OrderEntry) -> Result<(), Error> {
        self.0.lock().unwrap().push((entry.range, true));
        Ok(())
    }
}

#[test]
fn only_new_runs_of_a_source_that_tells_them_are_not_waited_for() {
    let mut numbers = Numbers::up_to(100);
    numbers.tells_order = true;
    let log = Told::default();
    go_on_with_a_block_left(numbers, 9, log.clone());
    let entries = log.0.lock().unwrap().clone();
    let (left, tick, new) = (SeqRange::new(9, 59), SeqRange::new(59, 60), SeqRange::new(60, 110));
    assert_eq!(entries[..3], [(left, false), (tick, false), (new, true)]);
    assert!(entries[3..].iter().all(|(_, is_told)| !is_told), "{entries:?}");
}

#[test]
fn a_log_with_a_gap_stops_the_job() {
    let mut build = Build::new("gap");
    let source = build.numbers("numbers", Numbers::up_to(10), 1);
    build.record("sink", vec![build.input(source, Partitioning::Global)], 1);
    let (runtime, _clock) = runtime(1);
    let entries =
        vec![OrderEntry { range: thalweg_types::SeqRange::new(8, 9), event: OrderEvent::Tick { now: 1 } }];
    let last = LastCommit { next: 7, cycle: 1, now: 0 };
    let durability = Lasting::of_log(KeptLog::default()).after(last, entries);
    let job = durability.start(&runtime, build.graph, quiet());
    let JobState::Failed(failure) = finish(&job) else { panic!("it failed") };
    assert_eq!(failure.message, "the order log goes on with number 8, expected 7");
    assert_eq!(failure.error.unwrap().class, thalweg_types::Class::Corrupt);
}

#[test]
fn a_job_that_somebody_holds_has_not_ended() {
    let mut build = Build::new("held");
    let source = build.numbers("numbers", Numbers::up_to(10), 1);
    build.record("sink", vec![build.input(source, Partitioning::Global)], 1);
    let (runtime, _clock) = runtime(1);
    let cycles = KeptCycles::default();
    let durability = Lasting::of_log(KeptLog::default()).in_cycles(cycles.clone());
    let (job, hold) = durability.start_held(&runtime, build.graph, quiet());
    eventually("all is worked off", || job.stats().sources[0].ended);
    assert_eq!(job.wait_timeout(Duration::from_millis(20)), None);
    hold.job().fail("commit", Error::external("the disk is gone"));
    drop(hold);
    let JobState::Failed(failure) = finish(&job) else { panic!("it failed") };
    assert!(cycles.0.lock().unwrap().is_stopped, "nobody is to wait for parts that will not come");
    assert_eq!((&*failure.operator, failure.message.as_str()), ("commit", "the disk is gone"));
}

#[test]
fn a_job_that_is_wired_and_does_not_run_has_a_handle_reads_nothing_and_ends_when_it_is_dropped() {
    let (runtime, _clock) = runtime(1);
    let wired = |with: Durability| {
        let mut build = Build::new("wired");
        let source = build.numbers("numbers", Numbers::up_to(10), 1);
        let records = build.record("sink", vec![build.input(source, Partitioning::Global)], 1);
        (runtime.wire(build.graph, quiet(), with).unwrap(), records)
    };
    let cycles = KeptCycles::default();
    let keep: Arc<dyn Send + Sync> = Arc::new(());
    let lock = Arc::downgrade(&keep);
    let with =
        Durability { cycles: Some(Arc::new(cycles.clone())), keep: Some(keep), ..Durability::default() };
    let (job, records) = wired(with);
    let handle = job.job();
    assert_eq!((handle.state(), handle.stats().records), (JobState::Running, 0));
    drop(job);
    assert_eq!(finish(&handle), JobState::Aborted);
    assert!(cycles.0.lock().unwrap().is_stopped && lock.upgrade().is_none(), "its files are free");
    assert_eq!(records.of_task(0), []);

    // A failure that is reported before it runs, as by the thread of its log.
    let (job, records) = wired(Durability::default());
    job.job().fail("order log", Error::external("the disk is gone"));
    let handle = job.run(NoOrderLog, None).unwrap();
    assert!(matches!(finish(&handle), JobState::Failed(_)));
    assert_eq!(records.of_task(0), []);

    let (job, _) = wired(Durability::default());
    let handle = job.job();
    runtime.shutdown();
    assert!(job.run(NoOrderLog, None).unwrap_err().chain().contains("shut down"));
    assert_eq!(finish(&handle), JobState::Aborted);
}
