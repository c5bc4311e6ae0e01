//! A job that is told its order: what its tasks see is what was told, wherever markers and batches are cut.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use thalweg_flow::{
    Command, CycleSettings, CycleStart, Cycles, Job, JobOptions, JobState, LastCommit, NoOrderLog,
    Partitioning, Payload, Poll, RawBlock, Source, SourcePosition, Told, Waker,
};
use thalweg_types::{Error, Micros};

use crate::harness::*;

/// One thing that is told.
#[derive(Clone, Debug)]
enum Say {
    Records(u32),
    Tick,
    Command(String),
}

/// Tells a script, from some place of it on, and then waits for more of it.
struct Script {
    /// With the time of each.
    says: Arc<Mutex<Vec<(Micros, Say)>>>,
    next: usize,
    /// Records that were told.
    records: u64,
    is_draining: bool,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Script {
    fn new(says: &[(Micros, Say)]) -> Self {
        let says = Arc::new(Mutex::new(says.to_vec()));
        Self { says, next: 0, records: 0, is_draining: false, waker: Arc::default() }
    }
}

impl Source for Script {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        *self.waker.lock().unwrap() = Some(waker);
        Ok(())
    }

    fn poll(&mut self, _max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        let Some((now, say)) = self.says.lock().unwrap().get(self.next).cloned() else {
            return Ok(if self.is_draining { Poll::End } else { Poll::Pending });
        };
        self.next += 1;
        let event = match say {
            Say::Records(count) => {
                let block = RawBlock { partition: 0, first: self.records, count, payload: Payload::Offsets };
                self.records += u64::from(count);
                Told::Block(block)
            }
            Say::Tick => Told::Tick,
            Say::Command(text) => {
                Told::Command(Command { operator: "seen".into(), body: Arc::new(text), record: None })
            }
        };
        Ok(Poll::Told { now, event })
    }

    fn position(&self) -> SourcePosition {
        SourcePosition { next: self.records, place: vec![self.next as u8] }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        (self.records, self.next) = (position.next, usize::from(position.place[0]));
        Ok(())
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }
}

#[derive(Clone, Default)]
struct Markers(Arc<Mutex<Vec<CycleStart>>>);

impl Cycles for Markers {
    fn expect(&self, _tasks: Vec<(Arc<str>, u32)>) {}

    fn may_begin(&self) -> bool {
        true
    }

    fn begin(&self, start: CycleStart) {
        self.0.lock().unwrap().push(start);
    }

    fn part(&self, _: &Arc<str>, _: u32, _: u64, _: Box<dyn thalweg_flow::CyclePart>) {}

    fn end(&self) {}

    fn stop(&self) {}
}

struct Run {
    job: Job,
    seen: Records,
    markers: Markers,
    _runtime: thalweg_flow::Runtime,
}

impl Run {
    fn begin(script: Script, workers: usize, options: JobOptions, from: Option<&CycleStart>) -> Self {
        let mut build = Build::new("told");
        let mut script = script;
        let last = from.map(|from| {
            script.restore(&from.sources[0]).unwrap();
            LastCommit { next: from.next, cycle: from.cycle, now: from.now }
        });
        let source = build.source("script", script, 2, |_| Box::new(DecodeNumbers));
        let keyed =
            build.each("each", vec![build.input(source, Partitioning::Shuffle)], 2, |_, row| Some(row));
        let seen = build.record("seen", vec![build.input(keyed, Partitioning::Global)], 1);
        let (runtime, _clock) = runtime(workers);
        let markers = Markers::default();
        let mut durability = Lasting::of_log(NoOrderLog).in_cycles(markers.clone());
        durability.with.last = last;
        let options = JobOptions { is_told: true, ..options };
        let job = durability.start(&runtime, build.graph, options);
        Self { job, seen, markers, _runtime: runtime }
    }

    /// What was seen of what was told, once all of it has been.
    fn end(self) -> Vec<Event> {
        self.job.drain();
        assert_eq!(finish(&self.job), JobState::Done);
        told(&self.seen.of_task(0))
    }
}

/// Events without order numbers, cuts and markers.
fn told(events: &[Event]) -> Vec<Event> {
    let plain = |event: &Event| match event.clone() {
        Event::Row(input, row) => Some(Event::Row(input, Row { seq: 0, ..row })),
        Event::Tick(_, now) => Some(Event::Tick(0, now)),
        Event::Command(_, text) => Some(Event::Command(0, text)),
        Event::Batch(_) | Event::Cycle(..) | Event::Finish(_) => None,
    };
    events.iter().filter_map(plain).collect()
}

fn marks_every(records: Option<u64>) -> JobOptions {
    JobOptions { cycle: CycleSettings { every: None, bytes: None, records }, ..JobOptions::default() }
}

fn say() -> impl Strategy<Value = Say> {
    prop_oneof![
        4 => (0_u32..150).prop_map(Say::Records),
        1 => Just(Say::Tick),
        1 => "[a-z]{1,3}".prop_map(Say::Command),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn tasks_see_what_was_told_wherever_cycles_end_and_a_job_goes_on_from_each(
        says in proptest::collection::vec((0_i64..1_000, say()), 0..20),
        records in 1_u64..300,
        workers in 1_usize..4,
    ) {
        let whole = Run::begin(Script::new(&says), 1, marks_every(None), None).end();
        let run = Run::begin(Script::new(&says), workers, marks_every(Some(records)), None);
        let markers = run.markers.clone();
        prop_assert_eq!(&run.end(), &whole);
        for from in markers.0.lock().unwrap().iter() {
            let rest = Run::begin(Script::new(&says), workers, marks_every(None), Some(from)).end();
            prop_assert!(whole.ends_with(&rest), "{:?} after {:?}", rest, from);
            let records = rest.iter().filter(|event| matches!(event, Event::Row(..))).count() as u64;
            let all: u64 = says.iter().map(|(_, say)| if let Say::Records(n) = say { u64::from(*n) } else { 0 }).sum();
            let good = (from.sources[0].next..all).filter(|n| is_good(*n as i64)).count() as u64;
            prop_assert_eq!(records, good);
        }
    }
}

#[test]
fn the_time_is_what_is_told_and_never_goes_back() {
    let says = [(50, Say::Records(1)), (40, Say::Tick), (70, Say::Records(1)), (70, Say::Tick)];
    let seen = Run::begin(Script::new(&says), 1, marks_every(None), None).end();
    let ticks =
        seen.iter().filter_map(|event| if let Event::Tick(_, now) = event { Some(*now) } else { None });
    assert_eq!(
        ticks.collect::<Vec<_>>(),
        [50, 50, 70],
        "one before the first record, then those that were told"
    );
}

#[test]
fn a_job_that_is_told_nothing_has_no_cycles_and_one_that_is_told_the_time_has_longer_ones() {
    let every = std::time::Duration::from_micros(10);
    let options = JobOptions {
        cycle: CycleSettings { every: Some(every), ..CycleSettings::default() },
        ..JobOptions::default()
    };
    let script = Script::new(&[]);
    let (says, waker) = (Arc::clone(&script.says), Arc::clone(&script.waker));
    let mut build = Build::new("idle");
    let source = build.source("script", script, 1, |_| Box::new(DecodeNumbers));
    let seen = build.record("seen", vec![build.input(source, Partitioning::Global)], 1);
    let (runtime, clock) = runtime(1);
    let markers = Markers::default();
    let durability = Lasting::of_log(NoOrderLog).in_cycles(markers.clone());
    let job = durability.start(&runtime, build.graph, JobOptions { is_told: true, ..options });
    let count = || markers.0.lock().unwrap().len();
    let say = |say: Say| {
        let told = |tasks: &[Vec<Event>]| tasks.first().map_or(0, |events| told(events).len());
        let mut before = 0;
        seen.wait_until("anything", |tasks| {
            before = told(tasks);
            true
        });
        says.lock().unwrap().push((5, say));
        waker.lock().unwrap().as_ref().unwrap().wake();
        seen.wait_until("what was told", |tasks| told(tasks) > before);
    };
    clock.advance(1_000);
    assert_eq!(count(), 0, "nothing was told");
    say(Say::Tick);
    clock.advance(20);
    waker.lock().unwrap().as_ref().unwrap().wake();
    say(Say::Tick);
    assert_eq!(count(), 0, "the time alone waits for six cycles");
    clock.advance(40);
    eventually("a marker", || count() == 1);
    say(Say::Records(3));
    assert_eq!(count(), 1, "a cycle begins with what is told first");
    clock.advance(10);
    eventually("a marker", || count() == 2);
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
    assert_eq!(count(), 3, "the last one");
}

#[test]
fn what_does_not_fit_an_order_that_is_told_is_refused() {
    let run = Run::begin(Script::new(&[]), 1, marks_every(None), None);
    let change = Command { operator: "seen".into(), body: Arc::new(String::new()), record: Some("x".into()) };
    let error = run.job.command(change).unwrap_err();
    assert!(error.chain().contains("is told its order"), "{}", error.chain());
    run.end();

    let fails = |options: JobOptions, build: Build| {
        let (runtime, _clock) = runtime(1);
        let job = runtime.start(build.graph, options).unwrap();
        match finish(&job) {
            JobState::Failed(failure) => failure.message,
            state => panic!("{state:?}"),
        }
    };
    let mut build = Build::new("tells unasked");
    build.source("script", Script::new(&[(1, Say::Tick)]), 1, |_| Box::new(DecodeNumbers));
    assert!(fails(quiet(), build).contains("tells an order in a job that makes its own"));
    let mut build = Build::new("does not tell");
    build.numbers("numbers", Numbers::up_to(5), 1);
    let told = JobOptions { is_told: true, ..quiet() };
    assert!(fails(told.clone(), build).contains("gives a block without its time"));
    let mut build = Build::new("two");
    build.numbers("one", Numbers::up_to(5), 1);
    build.numbers("other", Numbers::up_to(5), 1);
    let (runtime, _clock) = runtime(1);
    let error = runtime.start(build.graph, told).unwrap_err();
    assert!(error.chain().contains("has one source"), "{}", error.chain());
}
