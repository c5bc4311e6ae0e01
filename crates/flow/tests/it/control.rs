//! Ticks, cycle markers, commands and the end: once each, at one number, for every task.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg_flow::{
    Command, CycleSettings, InputId, Job, JobOptions, JobState, LastCommit, Operator, OrderEntry, OrderEvent,
    OrderLog, Output, Partitioning, Runtime, SystemClock,
};
use thalweg_types::{Batch, Error, Micros, SeqRange};

use crate::harness::*;

fn command(operator: &str, text: &str) -> Command {
    Command { operator: operator.into(), body: Arc::new(text.to_owned()), record: None }
}

/// What is not a row.
fn controls(records: &Records, task: usize) -> Vec<Event> {
    let control = |event: &Event| !matches!(event, Event::Row(..) | Event::Batch(_));
    records.of_task(task).into_iter().filter(control).collect()
}

#[derive(Clone, Default)]
struct KeptLog(Arc<Mutex<Vec<OrderEntry>>>);

impl OrderLog for KeptLog {
    fn append(&mut self, entry: OrderEntry) -> Result<(), Error> {
        self.0.lock().unwrap().push(entry);
        Ok(())
    }
}

#[test]
fn every_task_sees_the_same_controls_at_the_same_numbers() {
    let mut build = Build::new("controls");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers, 3);
    let input = build.input(source, Partitioning::Key(vec![1]));
    let counts = build.each("keyed", vec![input], 4, |_, row| Some(row));
    let inputs =
        vec![build.input(counts, Partitioning::Shuffle), build.input(source, Partitioning::Broadcast)];
    let records = build.record("sink", inputs, 2);
    let input = build.input(counts, Partitioning::Forward);
    let chained = build.record("chained", vec![input], 4);
    let (runtime, clock) = runtime(2);
    let options = JobOptions {
        cycle: CycleSettings { every: Some(Duration::from_secs(1)), bytes: None, records: Some(500) },
        ..JobOptions::default()
    };
    let log = KeptLog::default();
    let job = Lasting::of_log(log.clone()).start(&runtime, build.graph, options);
    tap.allow(250);
    records
        .wait_until("the first tick", |tasks| tasks[0].iter().any(|event| matches!(event, Event::Tick(..))));
    clock.advance(100_000);
    let ticks =
        |tasks: &[Vec<Event>]| tasks[0].iter().filter(|event| matches!(event, Event::Tick(..))).count();
    records.wait_until("the second tick", |tasks| ticks(tasks) == 2);
    job.command(command("sink", "look here")).unwrap();
    tap.allow(1_100);
    eventually("all records", || job.stats().records == 1_100);
    clock.advance(1_900_000);
    records.wait_until("the third tick", |tasks| ticks(tasks) == 3);
    job.drain();
    // It may have ended by now.
    assert!(matches!(job.state(), JobState::Draining | JobState::Done));
    assert_eq!(finish(&job), JobState::Done);

    let seen = controls(&records, 0);
    assert_eq!(controls(&records, 1), seen);
    let without_command: Vec<Event> =
        seen.iter().filter(|event| !matches!(event, Event::Command(..))).cloned().collect();
    for task in 0..4 {
        assert_eq!(controls(&chained, task), without_command, "task {task}");
    }
    let logged: Vec<Event> = log
        .0
        .lock()
        .unwrap()
        .iter()
        .filter_map(|entry| {
            let at = entry.range.start;
            match entry.event {
                OrderEvent::Run { .. } => None,
                OrderEvent::Tick { now } => Some(Event::Tick(at, now)),
                OrderEvent::Cycle { number } => Some(Event::Cycle(at, number)),
                OrderEvent::Command { .. } => Some(Event::Command(at, "look here".to_owned())),
                OrderEvent::End => Some(Event::Finish(at)),
            }
        })
        .collect();
    assert_eq!(seen, logged, "and the order log says the same");

    let ticks: Vec<Micros> =
        seen.iter().filter_map(|e| if let Event::Tick(_, now) = e { Some(*now) } else { None }).collect();
    assert_eq!(ticks, [1_000_000, 1_100_000, 3_000_000], "and time never goes back");
    let cycles: Vec<u64> = seen
        .iter()
        .filter_map(|e| if let Event::Cycle(_, number) = e { Some(*number) } else { None })
        .collect();
    assert_eq!(cycles, (1..=cycles.len() as u64).collect::<Vec<_>>());
    assert!(cycles.len() >= 4, "two by records, one by time, one at the end: {cycles:?}");
    assert_eq!(seen.iter().filter(|event| matches!(event, Event::Command(..))).count(), 1);
    assert!(matches!(seen[0], Event::Tick(0, _)), "a tick comes first");
    assert!(matches!(seen[seen.len() - 2..], [Event::Cycle(..), Event::Finish(_)]), "a cycle comes last");
    assert_eq!((job.stats().cycles, job.stats().tick), (cycles.len() as u64, 3_000_000));
    let task = &job.stats().operators[0].tasks[0];
    for times in [&task.markers, &task.marker_cpu] {
        assert_eq!(times.records(), cycles.len() as u64 - 1, "each marker is timed once, but for the last");
    }

    let ranges: Vec<SeqRange> = log.0.lock().unwrap().iter().map(|entry| entry.range).collect();
    assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "numbers are dense");
}

#[test]
fn what_is_emitted_on_a_tick_comes_before_it_downstream() {
    /// Emits a row with a number that makes no sense on every tick, cycle and at the end.
    struct OnTick(i64);
    impl OnTick {
        fn emit(&mut self, out: &mut Output<'_>) {
            self.0 += 1;
            let row = |v| Row { seq: 77, n: self.0, k: 0, v };
            out.emit(0, batch_of(&[row(1), row(2)], SeqRange::default()));
        }
    }
    impl Operator for OnTick {
        fn process(&mut self, _input: InputId, _batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
            Ok(())
        }
        fn tick(&mut self, _now: Micros, out: &mut Output<'_>) -> Result<(), Error> {
            self.emit(out);
            Ok(())
        }
        fn cycle(&mut self, _cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
            self.emit(out);
            Ok(())
        }
        fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
            self.emit(out);
            Ok(())
        }
    }
    for partitioning in [Partitioning::Forward, Partitioning::Key(vec![0]), Partitioning::Shuffle] {
        let mut build = Build::new("on tick");
        let source = build.numbers("numbers", Numbers::up_to(10), 1);
        let input = build.input(source, Partitioning::Global);
        let ticker = build.operator("ticker", vec![input], 1, |_| OnTick(0));
        let input = build.input(ticker, partitioning);
        let records = build.record("sink", vec![input], 1);
        let (runtime, _clock) = runtime(1);
        let job = runtime.start(build.graph, quiet()).unwrap();
        assert_eq!(finish(&job), JobState::Done);
        let events: Vec<String> = records
            .of_task(0)
            .into_iter()
            .filter_map(|event| match event {
                Event::Row(_, row) => Some(format!("row {}.{}@{}", row.n, row.v, row.seq)),
                Event::Tick(seq, _) => Some(format!("tick@{seq}")),
                Event::Cycle(seq, number) => Some(format!("cycle {number}@{seq}")),
                Event::Finish(seq) => Some(format!("finish@{seq}")),
                _ => None,
            })
            .collect();
        assert_eq!(
            events,
            [
                "row 1.1@0",
                "row 1.2@0",
                "tick@0",
                "row 2.1@11",
                "row 2.2@11",
                "cycle 1@11",
                "row 3.1@12",
                "row 3.2@12",
                "finish@12",
            ]
        );
    }
}

#[test]
fn what_a_marker_waits_for_is_no_processor_time() {
    const WAIT: Duration = Duration::from_millis(20);
    struct Waits;
    impl Operator for Waits {
        fn process(&mut self, _input: InputId, _batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
            Ok(())
        }
        fn cycle(&mut self, _cycle: u64, _out: &mut Output<'_>) -> Result<(), Error> {
            std::thread::sleep(WAIT);
            Ok(())
        }
    }
    let mut build = Build::new("waits");
    let source = build.numbers("numbers", Numbers::up_to(1_000), 1);
    let input = build.input(source, Partitioning::Global);
    build.operator("waits", vec![input], 1, |_| Waits);
    let (runtime, _clock) = runtime(1);
    let options = JobOptions {
        cycle: CycleSettings { every: None, bytes: None, records: Some(500) },
        ..JobOptions::default()
    };
    let job = runtime.start(build.graph, options).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    let task = &job.stats().operators[0].tasks[0];
    let count = u32::try_from(task.markers.records()).unwrap();
    assert!(count > 0);
    assert!(task.markers.sum() >= WAIT * count, "{:?}", task.markers.sum());
    assert!(task.marker_cpu.sum() + WAIT * count <= task.markers.sum(), "{:?}", task.marker_cpu.sum());
}

#[test]
fn an_idle_job_ticks_and_ends_cycles() {
    let mut build = Build::new("idle");
    let (numbers, _tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers, 1);
    let input = build.input(source, Partitioning::Global);
    build.record("sink", vec![input], 1);
    let runtime = Runtime::new(1, Arc::new(SystemClock));
    let options = JobOptions {
        tick: Duration::from_millis(2),
        cycle: CycleSettings { every: Some(Duration::from_millis(5)), ..CycleSettings::default() },
        ..JobOptions::default()
    };
    let job = runtime.start(build.graph, options).unwrap();
    eventually("the first tick", || job.stats().tick > 0);
    let first = job.stats().tick;
    eventually("time goes on", || job.stats().tick > first && job.stats().cycles > 3);
    job.abort();
    assert_eq!(finish(&job), JobState::Aborted);
}

#[test]
fn drain_delivers_everything() {
    let mut build = Build::new("drain");
    let source = build.numbers("numbers", Numbers::endless(), 2);
    let input = build.input(source, Partitioning::Key(vec![1]));
    let keyed = build.each("keyed", vec![input], 3, |_, row| Some(row));
    let input = build.input(keyed, Partitioning::Shuffle);
    let records = build.record("sink", vec![input], 2);
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    eventually("some records", || job.stats().records > 1_000);
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
    let mut rows: Vec<i64> = records.all_rows().into_iter().map(|(n, ..)| n).collect();
    rows.sort_unstable();
    assert_eq!(rows, (0..job.stats().records as i64).filter(|n| is_good(*n)).collect::<Vec<_>>());
    for task in 0..2 {
        let finishes = controls(&records, task).iter().filter(|e| matches!(e, Event::Finish(_))).count();
        assert_eq!(finishes, 1);
    }
}

#[test]
fn commands_need_an_operator_and_a_running_job() {
    let mut build = Build::new("commands");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers, 1);
    let input = build.input(source, Partitioning::Global);
    let records = build.record("sink", vec![input], 1);
    let (runtime, _clock) = runtime(1);
    let job: Job = runtime.start(build.graph, quiet()).unwrap();
    let error = job.command(command("sinks", "x")).unwrap_err();
    assert_eq!(error.message(), r#"job "commands" has no operator "sinks"; it has "sink""#);
    for number in 0..20 {
        job.command(command("sink", &number.to_string())).unwrap();
    }
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
    let texts = controls(&records, 0)
        .into_iter()
        .filter_map(|event| if let Event::Command(_, text) = event { Some(text) } else { None });
    assert_eq!(texts.collect::<Vec<_>>(), (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(job.command(command("sink", "late")).is_err(), "the job has ended");
    assert!(tap.is_dropped(), "and its source is gone");
}

#[test]
fn a_job_that_is_draining_can_still_be_aborted() {
    let valve = Valve::default();
    let mut build = Build::new("impatient");
    let source = build.numbers("numbers", Numbers::endless(), 1);
    let input = build.input(source, Partitioning::Global);
    let gate = valve.clone();
    build.each("held", vec![input], 1, move |_, row| {
        gate.pass();
        Some(row)
    });
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    eventually("some records", || job.stats().records > 100);
    job.drain();
    assert_eq!(job.state(), JobState::Draining);
    job.abort();
    valve.open(u64::MAX);
    assert_eq!(finish(&job), JobState::Aborted);
    assert!(job.stats().operators[0].tasks[0].records_in < job.stats().records, "the rest is dropped");
}

#[test]
fn ticks_keep_pace_whatever_is_done_to_the_wall() {
    const YEAR: Micros = 365 * 86_400 * 1_000_000;
    let (source, tap) = Numbers::tapped();
    let mut build = Build::new("walls");
    let source = build.numbers("source", source, 1);
    let input = build.input(source, Partitioning::Global);
    let records = build.record("sink", vec![input], 1);
    let (runtime, clock) = runtime(1);
    let job = runtime.start(build.graph, quiet()).unwrap();
    let ticks = || -> Vec<Micros> {
        let seen = records.of_task(0);
        seen.iter()
            .filter_map(|event| if let Event::Tick(_, now) = event { Some(*now) } else { None })
            .collect()
    };
    let (mut expected, mut job_time, mut wall) = (vec![1_000_000], 1_000_000, 1_000_000);
    eventually("the first tick", || ticks() == expected);
    // Ahead for a moment and back, a small step back and forth, and far back, where the clock loses a thousandth.
    for (set_to, off) in [
        (Some(YEAR), 0),
        (None, 0),
        (Some(1_000_000), 50_000),
        (None, -50_000),
        (Some(1_000_000 - YEAR), 100),
    ] {
        clock.set_wall(set_to.unwrap_or(wall));
        clock.advance(100_000);
        (wall, job_time) = (wall + 100_000, job_time + 100_000 - off);
        expected.push(job_time);
        eventually(&format!("the tick at {job_time}"), || ticks() == expected);
    }
    let clock = job.stats().clock;
    assert_eq!((clock.ahead, clock.jumps), (YEAR + job_time - 1_100_000, 3));
    assert_eq!(job.stats().now, job_time);
    tap.allow(1);
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
}

#[test]
fn a_job_goes_on_from_a_tick_that_the_wall_has_not_reached() {
    const YEAR: Micros = 365 * 86_400 * 1_000_000;
    let (source, _tap) = Numbers::tapped();
    let mut build = Build::new("ahead");
    let source = build.numbers("source", source, 1);
    let input = build.input(source, Partitioning::Global);
    let records = build.record("sink", vec![input], 1);
    let (runtime, clock) = runtime(1);
    let entries = [OrderEntry { range: SeqRange::new(5, 6), event: OrderEvent::Tick { now: YEAR + 7 } }];
    let last = LastCommit { next: 5, cycle: 1, now: YEAR };
    let durability = Lasting::of_log(KeptLog::default()).after(last, entries.to_vec());
    let job = durability.start(&runtime, build.graph, quiet());
    let ticks = || -> Vec<Micros> {
        let seen = records.of_task(0);
        seen.iter()
            .filter_map(|event| if let Event::Tick(_, now) = event { Some(*now) } else { None })
            .collect()
    };
    eventually("the first tick of this run", || ticks() == [YEAR + 7, YEAR + 7]);
    clock.advance(10_000_000);
    eventually("a tick at the steady pace", || ticks().last() == Some(&(YEAR + 7 + 9_990_000)));
    assert_eq!(job.stats().clock.jumps, 0);
    job.abort();
    finish(&job);
}
