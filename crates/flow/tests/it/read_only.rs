//! A job that has failed because a disk is full stays to be read, where it is asked to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use thalweg_flow::{
    Command, CyclePart, CycleStart, Cycles, DurableOrder, Job, JobHold, JobOptions, JobState, OrderEntry,
    OrderEvent, OrderLog, Partitioning, Runtime,
};
use thalweg_types::{Error, Seq};

use crate::harness::*;

fn full() -> Error {
    Error::external("write \"d/segment\"").with_source(io::Error::from(io::ErrorKind::StorageFull))
}

/// A log that finds no room once a test says so.
#[derive(Clone, Default)]
struct Log(Arc<AtomicBool>);

impl OrderLog for Log {
    fn append(&mut self, entry: OrderEntry) -> Result<(), Error> {
        match entry.event {
            OrderEvent::Run { .. } if self.0.load(Ordering::Acquire) => Err(full()),
            _ => Ok(()),
        }
    }
}

/// Cycles that differ only in how they end.
#[derive(Default)]
struct Ends {
    gave_up: AtomicBool,
    stopped: AtomicBool,
}

impl Cycles for Ends {
    fn expect(&self, _: Vec<(Arc<str>, u32)>) {}

    fn may_begin(&self) -> bool {
        true
    }

    fn begin(&self, _: CycleStart) {}

    fn part(&self, _: &Arc<str>, _: u32, _: u64, _: Box<dyn CyclePart>) {}

    fn end(&self) {}

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    fn give_up(&self) {
        self.gave_up.store(true, Ordering::Release);
    }
}

struct Site {
    job: Job,
    tap: Tap,
    log: Log,
    ends: Arc<Ends>,
    order: Arc<DurableOrder>,
    hold: Option<JobHold>,
    /// What is read; it is after the operator that may fail.
    read: Records,
    published: Records,
    risky_asked: Arc<AtomicUsize>,
    _runtime: Runtime,
}

/// Numbers through `risky`, of three tasks, to one that is read and one that publishes.
fn site(stays: bool) -> Site {
    let mut build = Build::new("reads");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers, 2);
    let input = build.input(source, Partitioning::Key(vec![1]));
    let risky_asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&risky_asked);
    let risky = build.operator("risky", vec![input], 3, move |_| Risky(Arc::clone(&counted)));
    let input = build.input(risky, Partitioning::Global);
    let read = build.record("read", vec![input], 1);
    let input = build.input(risky, Partitioning::Global);
    let published = build.record("published", vec![input], 1);
    build.graph.operators.last_mut().unwrap().publishes = true;
    let (runtime, _clock) = runtime(2);
    let (log, ends, order) = (Log::default(), Arc::new(Ends::default()), Arc::new(DurableOrder::default()));
    let mut durability = Lasting::of_log(log.clone()).in_order(&order);
    durability.with.cycles = Some(Arc::clone(&ends) as _);
    let options = JobOptions { read_only_when_full: stays, ring_bytes: 4 << 10, ..quiet() };
    let (job, hold) = durability.start_held(&runtime, build.graph, options);
    let hold = Some(hold);
    Site { job, tap, log, ends, order, hold, read, published, risky_asked, _runtime: runtime }
}

/// Finds no room for one number, and counts how often its tasks were asked.
struct Risky(Arc<AtomicUsize>);

impl thalweg_flow::Operator for Risky {
    fn process(
        &mut self,
        _: thalweg_flow::InputId,
        batch: thalweg_types::Batch,
        out: &mut thalweg_flow::Output<'_>,
    ) -> Result<(), Error> {
        for row in rows(&batch) {
            out.working_on(row.seq);
            if row.n == 777_777 {
                return Err(full());
            }
        }
        out.emit(0, batch);
        Ok(())
    }

    fn command(&mut self, _: &Command, _: &mut thalweg_flow::Output<'_>) -> Result<(), Error> {
        self.0.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

fn asked(text: &str, record: Option<Bytes>) -> Command {
    Command { operator: "read".into(), body: Arc::new(text.to_owned()), record }
}

fn row_count(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Row(..))).count()
}

impl Site {
    /// The job has failed with this, and is read until it is ended.
    fn stays_to_be_read(mut self, operator: &str, record: Option<&str>) {
        eventually("the failure", || self.job.is_read_only());
        let JobState::Failed(failure) = self.job.state() else { panic!("{:?}", self.job.state()) };
        assert_eq!((&*failure.operator, failure.record.as_deref()), (operator, record), "{failure}");
        assert!(failure.message.starts_with("write \"d/segment\": "), "{failure}");
        for text in ["one", "two"] {
            self.job.command(asked(text, None)).unwrap();
            self.read.wait_until(text, |tasks| {
                tasks[0].iter().any(|event| matches!(event, Event::Command(_, said) if said == text))
            });
        }
        self.job.command(Command { operator: "risky".into(), ..asked("all", None) }).unwrap();
        eventually("also the task that failed answers", || self.risky_asked.load(Ordering::Acquire) == 3);
        let error = self.job.command(asked("three", Some(Bytes::new()))).unwrap_err();
        assert!(error.message().contains("takes no commands"), "{error}");
        eventually("a waiting request hears of it", || self.tap.is_dropped());
        // A cycle that is on its way may still say what went wrong with it.
        self.job.fail("commit", full());
        assert!(self.job.is_read_only() && self.ends.gave_up.load(Ordering::Acquire));
        assert!(!self.ends.stopped.load(Ordering::Acquire), "state is still read");
        self.hold = None;
        assert_eq!(self.job.wait_timeout(std::time::Duration::from_millis(20)), None);

        self.job.drain();
        assert_eq!(finish(&self.job), JobState::Failed(failure), "the first failure is kept");
        assert!(!self.job.is_read_only() && self.ends.stopped.load(Ordering::Acquire));
        assert!(self.job.command(asked("four", None)).is_err());
        let last = self.read.of_task(0).into_iter().next_back();
        assert!(matches!(last, Some(Event::Command(_, text)) if text == "two"), "nothing came after it");
    }
}

#[test]
fn a_log_without_room_leaves_the_job_to_be_read() {
    let site = site(true);
    site.order.advance(51);
    // As many as the rings to the one that publishes hold: it takes nothing more.
    site.tap.allow(200);
    site.read.wait_until("the records", |tasks| row_count(&tasks[0]) == 198);
    site.log.0.store(true, Ordering::Release);
    site.tap.allow(300);
    let published = site.published.clone();
    site.stays_to_be_read("numbers", None);
    assert!(row_count(&published.of_task(0)) <= 50, "records that are not durable are never published");
}

#[test]
fn an_operator_without_room_is_left_out_and_the_others_are_read() {
    let site = site(true);
    site.order.advance(Seq::MAX);
    site.tap.allow(1_000_000);
    site.stays_to_be_read("risky", Some("numbers@777777"));
}

/// Records and what several tasks made of each: counts how often they do not go together.
struct Pairs {
    counts: [usize; 2],
    torn: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl thalweg_flow::Operator for Pairs {
    fn process(
        &mut self,
        input: thalweg_flow::InputId,
        batch: thalweg_types::Batch,
        _: &mut thalweg_flow::Output<'_>,
    ) -> Result<(), Error> {
        self.counts[input.port] += batch.len();
        Ok(())
    }

    fn complete(
        &mut self,
        _: thalweg_types::SeqRange,
        _: &mut thalweg_flow::Output<'_>,
    ) -> Result<(), Error> {
        if std::mem::take(&mut self.counts[0]) != std::mem::take(&mut self.counts[1]) {
            self.torn.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    fn command(&mut self, _: &Command, _: &mut thalweg_flow::Output<'_>) -> Result<(), Error> {
        self.asked.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn input_order(&self) -> thalweg_flow::InputOrder {
        thalweg_flow::InputOrder::Grouped
    }
}

/// A job of [`Pairs`] after `risky`; how often answers were torn when all that was on its way has passed.
fn torn() -> usize {
    let mut build = Build::new("pairs");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers, 2);
    let input = build.input(source, Partitioning::Key(vec![1]));
    let risky = build.operator("risky", vec![input], 3, |_| Risky(Arc::default()));
    let inputs = vec![build.input(source, Partitioning::Global), build.input(risky, Partitioning::Global)];
    let (torn, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, count_asked) = (Arc::clone(&torn), Arc::clone(&asked));
    build.operator("pairs", inputs, 1, move |_| Pairs {
        counts: [0; 2],
        torn: Arc::clone(&count),
        asked: Arc::clone(&count_asked),
    });
    let (runtime, _clock) = runtime(2);
    let order = Arc::new(DurableOrder::default());
    let durability = Lasting::of_log(Log::default()).in_order(&order);
    let options = JobOptions { read_only_when_full: true, ..quiet() };
    let job = durability.start(&runtime, build.graph, options);
    order.advance(Seq::MAX);
    tap.allow(1_000_000);
    eventually("the failure", || job.is_read_only());
    job.command(Command { operator: "pairs".into(), body: Arc::new(()), record: None }).unwrap();
    eventually("all that was on its way has passed", || asked.load(Ordering::Acquire) == 1);
    job.abort();
    finish(&job);
    torn.load(Ordering::Acquire)
}

#[test]
fn nothing_is_made_of_a_part_where_a_task_has_left_out_the_rest() {
    assert_eq!(torn(), 0, "an operator that fails leaves out what it was given");
}

#[test]
fn a_commit_without_room_leaves_the_job_to_be_read_though_its_rings_are_full() {
    let site = site(true);
    // Nothing is durable: publishing tasks take nothing, and all before them stops.
    site.tap.allow(u64::MAX);
    eventually("all that gives records stops", || {
        let stats = site.job.stats();
        stats.sources[0].blocked && stats.operators[0].tasks.iter().any(|task| task.blocked)
    });
    site.hold.as_ref().unwrap().job().fail("commit", full());
    site.stays_to_be_read("commit", None);
}

#[test]
fn another_failure_ends_a_job_that_is_read() {
    let site = site(true);
    site.hold.as_ref().unwrap().job().fail("commit", full());
    assert!(site.job.is_read_only());
    site.job.fail("commit", Error::external("the disk is gone"));
    drop(site.hold);
    let JobState::Failed(failure) = finish(&site.job) else { panic!("it failed") };
    assert!(failure.message.starts_with("write"), "the first failure is kept: {failure}");
}

#[test]
fn a_job_that_is_drained_or_was_not_asked_to_stay_ends() {
    let site = site(false);
    site.tap.allow(1_000_000);
    site.order.advance(Seq::MAX);
    eventually("the failure", || site.job.state().is_final());
    assert!(!site.job.is_read_only());
    drop(site.hold);
    assert!(matches!(finish(&site.job), JobState::Failed(_)));

    let site = self::site(true);
    site.tap.allow(700);
    // Not durable: it does not come to its end by itself.
    eventually("the records", || site.job.stats().records == 700);
    site.job.drain();
    site.hold.as_ref().unwrap().job().fail("commit", full());
    drop(site.hold);
    assert!(matches!(finish(&site.job), JobState::Failed(_)));
}
