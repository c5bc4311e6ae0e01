//! What arrives does not depend on how the job is run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use thalweg_flow::{
    Input, InputId, InputOrder, JobState, Operator, Output, Partitioner, Partitioning, Schedule,
};
use thalweg_types::{Batch, Error};

use crate::harness::*;

/// Counts per key, in order: the output shows the order of records.
#[derive(Default)]
struct CountPerKey(HashMap<i64, i64>);

impl Operator for CountPerKey {
    fn process(&mut self, _input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let mut made = rows(&batch);
        for row in &mut made {
            let count = self.0.entry(row.k).or_default();
            *count += 1;
            row.v = *count;
        }
        out.emit(0, batch_of(&made, batch.range()));
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Settings {
    workers: usize,
    ring_bytes: usize,
    buffer: usize,
    flush: Duration,
    block: u32,
    decoders: u32,
    keyed: u32,
    shuffled: u32,
    broadcast: u32,
    cycle_records: Option<u64>,
    scheduled: bool,
    records: u64,
}

fn settings() -> impl Strategy<Value = Settings> {
    let sizes = (
        prop::sample::select(vec![1_usize, 300, 5_000, 2 << 20]),
        prop::sample::select(vec![1_usize, 400, 1 << 20]),
        prop::sample::select(vec![Duration::ZERO, Duration::from_micros(300)]),
        prop::sample::select(vec![1_u32, 7, 100, 3000]),
    );
    let tasks = (1_u32..4, 1_u32..6, 1_u32..4, 1_u32..4);
    let rest = (1_usize..4, prop::option::of(1_u64..500), any::<bool>(), 0_u64..3_000);
    (sizes, tasks, rest).prop_map(
        |(
            (ring_bytes, buffer, flush, block),
            (decoders, keyed, shuffled, broadcast),
            (workers, cycle_records, scheduled, records),
        )| Settings {
            workers,
            ring_bytes,
            buffer,
            flush,
            block,
            decoders,
            keyed,
            shuffled,
            broadcast,
            cycle_records,
            scheduled,
            // Blocks of one record are slow in debug builds.
            records: if block == 1 { records / 10 } else { records },
        },
    )
}

/// (n, k, v) of the rows that a sink saw.
type Rows = Vec<(i64, i64, i64)>;

/// Source to counts per key, to a filter after a shuffle and to copies after a broadcast; those and the source itself
/// meet in a union, which a sink and a counting stage read.
fn run(settings: &Settings) -> (Rows, Rows) {
    let mut build = Build::new("all shapes");
    (build.buffer, build.flush) = (settings.buffer, settings.flush);
    let numbers = Numbers::up_to(settings.records).in_blocks_of(settings.block);
    let source = build.numbers("numbers", numbers, settings.decoders);
    let input = build.input(source, Partitioning::Key(vec![1]));
    let counts = build.operator("counts", vec![input], settings.keyed, |_| CountPerKey::default());
    let input = build.input(source, Partitioning::Shuffle);
    let odd = build.each("odd", vec![input], settings.shuffled, |_, row| {
        (row.n % 2 == 1).then_some(Row { v: -1, ..row })
    });
    let input = build.input(source, Partitioning::Broadcast);
    let copies = build.each("copies", vec![input], settings.broadcast, |info, row| {
        Some(Row { v: 1_000_000 + i64::from(info.index), ..row })
    });
    let inputs = [source, counts, odd, copies].map(|from| build.input(from, Partitioning::Global));
    let union = build.operator("union", inputs.to_vec(), 1, |_| Pass);
    let input = build.input(union, Partitioning::Forward);
    let all = build.record("all", vec![input], 1);
    if settings.scheduled {
        let node = build.graph.operators.last_mut().unwrap();
        node.schedule = Schedule { every: Some(Duration::from_millis(2)), records: Some(500) };
    }
    let input = build.input(union, Partitioning::Key(vec![1]));
    let again = build.operator("again", vec![input], settings.keyed, |_| CountPerKey::default());
    let input = build.input(again, Partitioning::Global);
    let recounted = build.record("recounted", vec![input], 1);

    let (runtime, _clock) = runtime(settings.workers);
    let mut options = quiet();
    options.ring_bytes = settings.ring_bytes;
    options.cycle.records = settings.cycle_records;
    let job = runtime.start(build.graph, options).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    assert_eq!(job.stats().records, settings.records);
    (all.rows(0), recounted.rows(0))
}

/// The same by plain loops.
fn expected(settings: &Settings) -> (Rows, Rows) {
    let mut counts: HashMap<i64, i64> = HashMap::new();
    let mut all = Vec::new();
    for n in (0..settings.records as i64).filter(|n| is_good(*n)) {
        let k = key_of(n);
        let count = counts.entry(k).or_default();
        *count += 1;
        all.push((n, k, 0));
        all.push((n, k, *count));
        if n % 2 == 1 {
            all.push((n, k, -1));
        }
        all.extend((0..settings.broadcast).map(|task| (n, k, 1_000_000 + i64::from(task))));
    }
    let mut counts: HashMap<i64, i64> = HashMap::new();
    let recount = |(n, k, _): &(i64, i64, i64)| {
        let count = counts.entry(*k).or_default();
        *count += 1;
        (*n, *k, *count)
    };
    let again = all.iter().map(recount).collect();
    (all, again)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn output_depends_on_the_order_alone(settings in settings()) {
        prop_assert_eq!(run(&settings), expected(&settings));
    }
}

/// Rings that hold next to nothing, on branches of different length one of which drops everything for long.
#[test]
fn diamonds_do_not_deadlock() {
    for (ring_bytes, block) in [(1, 1), (1, 50), (200, 10), (3000, 100)] {
        let mut build = Build::new("diamond");
        (build.buffer, build.flush) = (1 << 20, Duration::from_secs(3600));
        let numbers = Numbers::up_to(if block == 1 { 300 } else { 5_000 }).in_blocks_of(block);
        let source = build.numbers("numbers", numbers, 2);
        let mut branch = source;
        for hop in 0..3 {
            let input = build.input(branch, Partitioning::Key(vec![1]));
            branch =
                build.each(&format!("hop {hop}"), vec![input], 3, |_, row| (row.n % 250 == 3).then_some(row));
        }
        let short = Input { flush: Duration::ZERO, ..build.input(source, Partitioning::Global) };
        let long = build.input(branch, Partitioning::Global);
        let union = build.operator("union", vec![long, short], 1, |_| Pass);
        let input = build.input(union, Partitioning::Global);
        let records = build.record("all", vec![input], 1);
        let (runtime, _clock) = runtime(2);
        let mut options = quiet();
        options.ring_bytes = ring_bytes;
        let job = runtime.start(build.graph, options).unwrap();
        assert_eq!(finish(&job), JobState::Done, "ring of {ring_bytes} bytes");
        let rows = records.rows(0);
        let total = if block == 1 { 300 } else { 5_000 };
        let expected: Vec<i64> = (0..total)
            .filter(|n| is_good(*n))
            .flat_map(|n| std::iter::repeat_n(n, if n % 250 == 3 { 2 } else { 1 }))
            .collect();
        assert_eq!(rows.iter().map(|(n, ..)| *n).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn grouped_input_names_the_upstream_task() {
    let mut build = Build::new("grouped");
    let source = build.numbers("numbers", Numbers::up_to(2_000), 1);
    let input = build.input(source, Partitioning::Key(vec![1]));
    let tagged = build.each("tag", vec![input], 3, |info, row| Some(Row { v: i64::from(info.index), ..row }));
    let input = build.input(tagged, Partitioning::Global);
    let records = Records::default();
    let shared = records.clone();
    build.operator("sink", vec![input], 1, move |info| {
        let mut recorder = Recorder::new(info, &shared);
        recorder.order = InputOrder::Grouped;
        recorder
    });
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    let mut counts = [0; 3];
    for event in records.of_task(0) {
        if let Event::Row(input, row) = event {
            assert_eq!(i64::from(input.task), row.v);
            counts[input.task as usize] += 1;
        }
    }
    assert_eq!(counts.iter().sum::<i32>(), 1_980);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn rejects_leave_on_output_1_in_order() {
    struct Count(Arc<std::sync::Mutex<Vec<u64>>>);
    impl Operator for Count {
        fn process(&mut self, _input: InputId, batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
            use arrow_array::{cast::AsArray, types::UInt64Type};
            let offsets = batch.column(1).as_primitive::<UInt64Type>();
            let mut all = self.0.lock().unwrap();
            all.extend(batch.row_numbers().map(|row| offsets.value(row as usize)));
            Ok(())
        }
    }
    let seen = Arc::default();
    let mut build = Build::new("rejects");
    let source = build.numbers("numbers", Numbers::up_to(1_000).in_blocks_of(30), 3);
    let shared = Arc::clone(&seen);
    build.operator("rejects", vec![Input::new(source, 1, Partitioning::Global)], 1, move |_| {
        Count(Arc::clone(&shared))
    });
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    assert_eq!(*seen.lock().unwrap(), (0..10).map(|hundred| hundred * 100 + 99).collect::<Vec<u64>>());
    assert_eq!(job.stats().rejects, 10);
}

#[test]
fn a_custom_partitioner_decides() {
    struct ByLastDigit;
    impl Partitioner for ByLastDigit {
        fn partition(&self, batch: &Batch, tasks: &mut [Vec<u32>]) {
            for (row, at) in rows(batch).iter().zip(batch.row_numbers()) {
                tasks[(row.n % 10) as usize % tasks.len()].push(at);
            }
        }
    }
    let mut build = Build::new("custom");
    let source = build.numbers("numbers", Numbers::up_to(1_000), 2);
    let input = build.input(source, Partitioning::Custom(Arc::new(ByLastDigit)));
    let records = build.record("sink", vec![input], 3);
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    for task in 0..3 {
        let got: Vec<i64> = records.rows(task).iter().map(|(n, ..)| *n).collect();
        let all = (0..1_000).filter(|n| is_good(*n) && n % 10 % 3 == task as i64);
        assert_eq!(got, all.collect::<Vec<i64>>());
    }
}

#[test]
fn a_shuffle_spreads_by_runs_of_order_numbers() {
    let mut build = Build::new("shuffle");
    let source = build.numbers("numbers", Numbers::up_to(20_000).in_blocks_of(5_000), 2);
    let input = build.input(source, Partitioning::Shuffle);
    let records = build.record("sink", vec![input], 3);
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    assert_eq!(records.all_rows().len(), 19_800);
    for task in 0..3 {
        for event in records.of_task(task) {
            if let Event::Row(_, row) = event {
                assert_eq!((row.seq / 4096 % 3) as usize, task, "{row:?}");
            }
        }
    }
}

#[test]
fn sources_keep_their_own_order_and_none_starves() {
    let mut build = Build::new("two sources");
    let (idle, _tap) = Numbers::tapped();
    let busy = build.numbers("busy", Numbers::endless(), 1);
    let short = build.numbers("short", Numbers::up_to(2_000).in_blocks_of(10), 1);
    let idle = build.numbers("idle", idle, 1);
    let tag = |build: &mut Build, name: &str, from, v| {
        let input = build.input(from, Partitioning::Forward);
        build.each(name, vec![input], 1, move |_, row| Some(Row { v, ..row }))
    };
    let busy = tag(&mut build, "tag busy", busy, 1);
    let short = tag(&mut build, "tag short", short, 2);
    let inputs = [busy, short, idle].map(|from| build.input(from, Partitioning::Global));
    let records = build.record("sink", inputs.to_vec(), 1);
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    eventually("the short source's end", || job.stats().sources[1].ended);
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
    let rows = records.rows(0);
    let of = |v: i64| rows.iter().filter(|row| row.2 == v).map(|row| row.0).collect::<Vec<i64>>();
    assert_eq!(of(2), (0..2_000).filter(|n| is_good(*n)).collect::<Vec<i64>>());
    let busy = of(1);
    assert_eq!(
        busy,
        (0..job.stats().sources[0].records as i64).filter(|n| is_good(*n)).collect::<Vec<i64>>()
    );
    assert_eq!(job.stats().sources[2].records, 0);
}
