//! Tasks that run by time or by count.

use std::time::Duration;

use thalweg_flow::{JobState, Partitioning, Schedule};

use crate::harness::*;

fn scheduled(schedule: Schedule) -> (thalweg_flow::Runtime, thalweg_flow::Job, Tap, Records) {
    let mut build = Build::new("scheduled");
    let (numbers, tap) = Numbers::tapped();
    let source = build.numbers("numbers", numbers.in_blocks_of(10), 1);
    let input = build.input(source, Partitioning::Global);
    let records = build.record("sink", vec![input], 1);
    build.graph.operators[0].schedule = schedule;
    let (runtime, _clock) = runtime(1);
    let job = runtime.start(build.graph, quiet()).unwrap();
    (runtime, job, tap, records)
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_task_waits_for_its_count() {
    let (_runtime, job, tap, records) = scheduled(Schedule { every: Some(HOUR), records: Some(200) });
    tap.allow(90);
    eventually("records are queued", || job.stats().sources[0].tasks[0].records_out == 90);
    assert_eq!(records.rows(0).len(), 0);
    tap.allow(250);
    eventually("enough records", || records.rows(0).len() >= 198);
    tap.allow(260);
    eventually("all are queued", || job.stats().records == 260);
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
    assert_eq!(records.rows(0).len(), 258, "the end does not wait");
}

#[test]
fn a_task_runs_when_its_time_comes() {
    let (_runtime, job, tap, records) =
        scheduled(Schedule { every: Some(Duration::from_millis(50)), records: None });
    for round in 1..=3 {
        tap.allow(round * 50);
        records.wait_until("the timer", |tasks| {
            tasks[0].iter().filter(|event| matches!(event, Event::Row(..))).count() >= round as usize * 49
        });
    }
    job.abort();
    assert_eq!(finish(&job), JobState::Aborted);
}

#[test]
fn a_full_ring_does_not_wait_for_the_timer() {
    let mut build = Build::new("scheduled");
    let source = build.numbers("numbers", Numbers::up_to(20_000), 1);
    let input = build.input(source, Partitioning::Global);
    let records = build.record("sink", vec![input], 1);
    build.graph.operators[0].schedule = Schedule { every: Some(HOUR), records: None };
    let (runtime, _clock) = runtime(2);
    let mut options = quiet();
    options.ring_bytes = 10_000;
    let job = runtime.start(build.graph, options).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    assert_eq!(records.rows(0).len(), 19_800);
}
