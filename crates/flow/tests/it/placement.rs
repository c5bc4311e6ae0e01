//! Many tasks and jobs on few workers.

use thalweg_flow::{JobState, Partitioning};

use crate::harness::*;

#[test]
fn many_jobs_share_two_workers() {
    let (runtime, _clock) = runtime(2);
    let jobs: Vec<_> = (0..64)
        .map(|number| {
            let mut build = Build::new(&format!("job {number}"));
            let source = build.numbers("numbers", Numbers::up_to(2_000), 2);
            let input = build.input(source, Partitioning::Key(vec![1]));
            let keyed = build.each("keyed", vec![input], 2, |_, row| Some(row));
            let input = build.input(keyed, Partitioning::Global);
            let records = build.record("sink", vec![input], 1);
            (runtime.start(build.graph, quiet()).unwrap(), records)
        })
        .collect();
    for (job, records) in &jobs {
        assert_eq!(finish(job), JobState::Done);
        let expected: Vec<i64> = (0..2_000).filter(|n| is_good(*n)).collect();
        assert_eq!(records.rows(0).iter().map(|(n, ..)| *n).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn endless_jobs_leave_room_for_others() {
    let (runtime, _clock) = runtime(1);
    let endless: Vec<_> = (0..4)
        .map(|number| {
            let mut build = Build::new(&format!("endless {number}"));
            let source = build.numbers("numbers", Numbers::endless(), 1);
            let input = build.input(source, Partitioning::Global);
            build.each("drop", vec![input], 1, |_, _| None);
            runtime.start(build.graph, quiet()).unwrap()
        })
        .collect();
    let mut build = Build::new("short");
    let source = build.numbers("numbers", Numbers::up_to(5_000), 1);
    let input = build.input(source, Partitioning::Global);
    build.record("sink", vec![input], 1);
    let short = runtime.start(build.graph, quiet()).unwrap();
    assert_eq!(finish(&short), JobState::Done);
    for job in endless {
        assert_eq!(job.state(), JobState::Running);
        job.abort();
        job.wait();
    }
}

#[test]
fn keyed_tasks_spread_over_no_more_workers_than_allowed() {
    let mut build = Build::new("spread");
    let source = build.numbers("numbers", Numbers::up_to(10), 1);
    let input = build.input(source, Partitioning::Key(vec![1]));
    build.each("keyed", vec![input.clone()], 8, |_, row| Some(row));
    build.graph.operators[0].parallelism = Some(2);
    build.each("wide", vec![input], 8, |_, row| Some(row));
    let (runtime, _clock) = runtime(4);
    let job = runtime.start(build.graph, quiet()).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    let workers = |operator: usize| {
        let mut workers: Vec<usize> =
            job.stats().operators[operator].tasks.iter().map(|task| task.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        workers.len()
    };
    assert_eq!((workers(0), workers(1)), (2, 4));
}

#[test]
fn forward_chains_show_each_operator() {
    let mut build = Build::new("chain");
    let source = build.numbers("numbers", Numbers::up_to(1_000), 2);
    let input = build.input(source, Partitioning::Forward);
    let even = build.each("even", vec![input], 2, |_, row| (row.n % 2 == 0).then_some(row));
    let input = build.input(even, Partitioning::Forward);
    let records = build.record("sink", vec![input], 2);
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    assert_eq!(records.all_rows().len(), 500);
    let stats = job.stats();
    assert!(stats.links.iter().all(|link| link.chained && link.bytes > 0), "{:?}", stats.links);
    let sum = |operator: usize| {
        let tasks = &stats.operators[operator].tasks;
        (
            tasks.iter().map(|task| task.records_in).sum::<u64>(),
            tasks.iter().map(|task| task.records_out).sum::<u64>(),
        )
    };
    assert_eq!((sum(0), sum(1)), ((990, 500), (500, 0)));
    assert_eq!(stats.rejects, 10);
}
