//! What statistics say of time: how long records took, how new they are, and what time moved to.

use std::time::Duration;

use thalweg_flow::{InputId, JobState, LatencyCounts, Operator, OperatorStats, Output, Partitioning};
use thalweg_types::{Batch, Error, Micros};

use crate::harness::*;

fn latency(operator: &OperatorStats) -> LatencyCounts {
    operator.tasks.iter().map(|task| &task.latency).sum()
}

fn records_in(operator: &OperatorStats) -> u64 {
    operator.tasks.iter().map(|task| task.records_in).sum()
}

#[test]
fn latency_counts_from_the_numbering_through_every_buffer() {
    const FLUSH: Duration = Duration::from_millis(20);
    let mut build = Build::new("waits");
    build.flush = FLUSH;
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers, 1);
    let input = build.input(source, Partitioning::Key(vec![1]));
    let first = build.each("first", vec![input], 2, |_, row| Some(row));
    let input = build.input(first, Partitioning::Forward);
    let chained = build.each("chained", vec![input], 2, |_, row| Some(row));
    let input = build.input(chained, Partitioning::Global);
    let records = build.record("second", vec![input], 1);
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    // One block, and no tick that would push it on before its time.
    tap.allow(50);
    eventually("all rows", || records.rows(0).len() == 50);
    eventually("the last call is counted", || latency(&job.stats().operators[2]).records() == 50);

    let stats = job.stats();
    for operator in &stats.operators {
        assert_eq!(latency(operator).records(), records_in(operator), "{}", operator.name);
    }
    let least = |operator: usize| latency(&stats.operators[operator]).quantile(0.0).unwrap();
    assert!(least(0) >= FLUSH, "{:?} after one buffer", least(0));
    assert!(least(1) >= least(0), "{:?} in the same task, but later than {:?}", least(1), least(0));
    assert!(least(2) >= 2 * FLUSH, "{:?} after two buffers", least(2));
    assert!(stats.sources[0].tasks[0].latency.records() == 50, "decoders count too");
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
}

#[test]
fn every_record_is_counted_once_where_tasks_have_several_inputs() {
    let mut build = Build::new("diamond");
    let source = build.numbers("numbers", Numbers::up_to(5_000).in_blocks_of(37), 3);
    let input = build.input(source, Partitioning::Key(vec![1]));
    let keyed = build.each("keyed", vec![input], 4, |_, row| Some(row));
    let inputs =
        vec![build.input(keyed, Partitioning::Shuffle), build.input(source, Partitioning::Broadcast)];
    build.record("sink", inputs, 2);
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    let stats = job.stats();
    assert_eq!(records_in(&stats.operators[1]), 3 * 4_950);
    for operator in &stats.operators {
        assert_eq!(latency(operator).records(), records_in(operator), "{}", operator.name);
    }
}

/// Time moves to a multiple of a thousand.
struct Coarse(Option<Micros>);

impl Operator for Coarse {
    fn process(&mut self, _input: InputId, batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
        self.0 = rows(&batch).iter().map(|row| row.n / 1_000 * 1_000).max().max(self.0);
        Ok(())
    }

    fn task_time(&self) -> Option<Micros> {
        self.0
    }
}

#[test]
fn event_times_and_task_time_are_shown_beside_the_clock() {
    let mut build = Build::new("times");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers, 1);
    let input = build.input(source, Partitioning::Global);
    build.operator("coarse", vec![input], 1, |_| Coarse(None));
    let input = build.input(source, Partitioning::Global);
    let records = build.record("sink", vec![input], 1);
    let (runtime, clock) = runtime(1);
    let job = runtime.start(build.graph, quiet()).unwrap();
    let times = |operator: usize| {
        let task = &job.stats().operators[operator].tasks[0];
        (task.newest, task.task_time)
    };
    assert_eq!((times(0), times(1)), ((None, None), (None, None)), "before the first record");

    tap.allow(2_051);
    eventually("the last record", || times(0).0 == Some(2_050) && times(1).0 == Some(2_050));
    assert_eq!(records.rows(0).len(), 2_031, "all but the rejects");
    eventually("task time", || times(0).1 == Some(2_000));
    assert_eq!(times(1).1, None, "an operator that has none");
    assert_eq!(job.stats().sources[0].tasks[0].newest, Some(2_050));
    assert_eq!(job.stats().now, 1_000_000);
    clock.advance(250);
    assert_eq!(job.stats().now, 1_000_250);
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
}
