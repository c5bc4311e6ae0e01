//! A failure stops its job, says where, and touches nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_flow::{
    Decoded, Decoder, Emit, FailureError, Get, Input, InputId, JobFailure, JobState, Operator, Output,
    Partitioning, PerRecord, Poll, RawBlock, RecordOperator, Source,
};
use thalweg_types::{Batch, Class, Error, Micros, Retry, SeqRange};

use crate::harness::*;

fn failure(state: JobState) -> JobFailure {
    match state {
        JobState::Failed(failure) => failure,
        other => panic!("expected a failure, got {other:?}"),
    }
}

/// Runs numbers through an operator of three keyed tasks that does `call` with each row.
fn fail_in_operator(call: impl Fn(Row) -> Option<Row> + Clone + Send + Sync + 'static) -> JobFailure {
    let mut build = Build::new("fails");
    let source = build.numbers("numbers", Numbers::endless(), 2);
    let input = build.input(source, Partitioning::Key(vec![1]));
    let bad = build.each("bad", vec![input], 3, move |_, row| call(row));
    let input = build.input(bad, Partitioning::Global);
    build.record("sink", vec![input], 1);

    let mut other = Build::new("other");
    let (numbers, tap) = Numbers::tapped();
    let source = other.numbers("numbers", numbers, 2);
    let input = other.input(source, Partitioning::Key(vec![1]));
    let records = other.record("sink", vec![input], 3);

    let (runtime, _clock) = runtime(2);
    let other = runtime.start(other.graph, quiet()).unwrap();
    tap.allow(1_000);
    let job = runtime.start(build.graph, quiet()).unwrap();
    let failure = failure(finish(&job));
    assert_eq!(other.state(), JobState::Running);
    tap.allow(2_000);
    eventually("the other job's records", || records.all_rows().len() == 1_980);
    other.drain();
    assert_eq!(finish(&other), JobState::Done);
    failure
}

#[test]
fn a_panic_names_operator_task_and_record() {
    let failure = fail_in_operator(|row| {
        assert!(row.n != 777, "cannot stand 777");
        Some(row)
    });
    assert_eq!(&*failure.operator, "bad");
    assert!(failure.task < 3);
    assert_eq!(failure.record.as_deref(), Some("numbers@777"));
    assert_eq!(failure.message, "cannot stand 777");
    assert!(failure.panic);
    assert_eq!(failure.error, None);
    assert_eq!(
        failure.to_string(),
        format!("operator \"bad\" task {} at record numbers@777 panicked: cannot stand 777", failure.task)
    );
}

#[test]
fn an_operator_over_records_names_the_record_without_being_asked() {
    struct Each(Get<i64>);
    impl RecordOperator for Each {
        fn process(&mut self, record: thalweg_flow::Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
            assert!(record.get(self.0) != 777, "cannot stand 777");
            out.forward(0, record)
        }
    }
    // Once as they come, once brought in order with those of another input.
    for input_count in [1, 2] {
        let mut build = Build::new("fails");
        let sources = [
            build.numbers("numbers", Numbers::endless(), 2),
            build.numbers("others", Numbers::up_to(500), 2),
        ];
        let from = &sources[..input_count];
        let inputs = from.iter().map(|from| build.input(*from, Partitioning::Key(vec![1]))).collect();
        let each = build.operator("bad", inputs, 3, move |_| {
            let read = Get::of(&schema(), "n").unwrap();
            PerRecord::new(Each(read), vec![schema(); input_count], [schema()])
        });
        for unread in &sources[input_count..] {
            build.record("unread", vec![build.input(*unread, Partitioning::Global)], 1);
        }
        build.record("sink", vec![build.input(each, Partitioning::Global)], 1);
        let (runtime, _clock) = runtime(2);
        let job = runtime.start(build.graph, quiet()).unwrap();
        let failure = failure(finish(&job));
        assert_eq!((&*failure.operator, failure.record.as_deref()), ("bad", Some("numbers@777")));
        assert_eq!((failure.panic, failure.message.as_str()), (true, "cannot stand 777"));
    }
}

#[test]
fn an_error_names_its_class_and_hint() {
    struct Refuse;
    impl Operator for Refuse {
        fn process(&mut self, _input: InputId, batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
            match rows(&batch).iter().any(|row| row.n == 230) {
                true => Err(Error::external("disk is full").with_hint("make room")),
                false => Ok(()),
            }
        }
    }
    let mut build = Build::new("fails");
    let source = build.numbers("numbers", Numbers::endless(), 1);
    build.operator("refuse", vec![Input::new(source, 0, Partitioning::Forward)], 1, |_| Refuse);
    let (runtime, _clock) = runtime(1);
    let job = runtime.start(build.graph, quiet()).unwrap();
    let failure = failure(finish(&job));
    let error = FailureError {
        class: Class::External,
        retry: Retry::WithBackoff,
        hint: Some("make room".to_owned()),
    };
    assert_eq!(failure.error, Some(error));
    assert_eq!(failure.message, "disk is full");
    assert_eq!(failure.record.as_deref(), Some("numbers@200"), "the first record of the batch");
    assert!(!failure.panic);
}

#[test]
fn decoders_and_sources_fail_their_job_alone() {
    struct BadDecoder;
    impl Decoder for BadDecoder {
        fn decode(&mut self, block: &RawBlock, range: SeqRange, now: Micros) -> Result<Decoded, Error> {
            assert!(block.first != 300, "decoder gives up");
            DecodeNumbers.decode(block, range, now)
        }
    }
    let mut build = Build::new("bad decoder");
    let source = build.source("numbers", Numbers::endless(), 2, |_| Box::new(BadDecoder));
    build.record("sink", vec![Input::new(source, 0, Partitioning::Global)], 1);
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    let first = failure(finish(&job));
    assert_eq!((&*first.operator, first.record.as_deref()), ("numbers", Some("numbers@300")));
    assert_eq!((first.panic, first.message.as_str()), (true, "decoder gives up"));

    struct BadSource;
    impl Source for BadSource {
        fn poll(&mut self, _max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
            Err(Error::external("connection lost"))
        }
        fn drain(&mut self) {}
    }
    let mut build = Build::new("bad source");
    let source = build.source("wire", BadSource, 1, |_| Box::new(DecodeNumbers));
    build.record("sink", vec![Input::new(source, 0, Partitioning::Global)], 1);
    let job = runtime.start(build.graph, quiet()).unwrap();
    let second = failure(finish(&job));
    assert_eq!((&*second.operator, second.message.as_str()), ("wire", "connection lost"));
}

#[test]
fn numbers_out_of_order_stop_the_job() {
    let failure =
        fail_in_operator(|row| Some(Row { seq: row.seq + u64::from(row.n == 555) * 1_000_000, ..row }));
    assert_eq!(&*failure.operator, "bad");
    assert!(failure.message.contains("while it worked on"), "{}", failure.message);
}

#[test]
fn operators_are_dropped_before_the_wait_is_over() {
    struct Counted(Arc<AtomicUsize>);
    impl Operator for Counted {
        fn process(&mut self, _input: InputId, _batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
            Ok(())
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::<AtomicUsize>::default();
    let (runtime, _clock) = runtime(2);
    let start = || {
        let mut build = Build::new("abort");
        let source = build.numbers("numbers", Numbers::endless(), 2);
        let shared = Arc::clone(&dropped);
        let input = build.input(source, Partitioning::Shuffle);
        build.operator("counted", vec![input], 5, move |_| Counted(Arc::clone(&shared)));
        runtime.start(build.graph, quiet()).unwrap()
    };
    let job = start();
    job.abort();
    assert_eq!(job.wait(), JobState::Aborted);
    assert_eq!(dropped.load(Ordering::Relaxed), 5);
    let left = start();
    runtime.shutdown();
    assert_eq!(left.state(), JobState::Aborted);
    assert_eq!(dropped.load(Ordering::Relaxed), 10);
}

#[test]
fn graphs_that_cannot_run_are_refused() {
    let (runtime, _clock) = runtime(1);
    let check = |change: &dyn Fn(&mut Build), expected: &str| {
        let mut build = Build::new("refused");
        let source = build.numbers("numbers", Numbers::up_to(1), 2);
        build.record("sink", vec![Input::new(source, 0, Partitioning::Global)], 1);
        change(&mut build);
        let error = runtime.start(build.graph, quiet()).unwrap_err();
        assert_eq!(error.message(), expected);
    };
    let input =
        |build: &mut Build, change: &dyn Fn(&mut Input)| change(&mut build.graph.operators[0].inputs[0]);
    check(
        &|build| input(build, &|input| input.partitioning = Partitioning::Forward),
        r#"forward link from "numbers" with 2 tasks to "sink" with 1"#,
    );
    check(
        &|build| input(build, &|input| input.output = 2),
        r#"operator "sink" reads output 2 of "numbers", which has 2"#,
    );
    check(
        &|build| input(build, &|input| input.from = thalweg_flow::NodeId::Operator(0)),
        r#"operator "sink" reads a node that does not come before it"#,
    );
    check(&|build| build.graph.operators[0].inputs.clear(), r#"operator "sink" has no input"#);
    check(&|build| build.graph.operators[0].tasks = 0, r#""sink" has no tasks; expected at least 1"#);
    check(
        &|build| {
            build.graph.operators[0].factory = Box::new(|_| Err(Error::user("no such file \"x\"")));
        },
        r#"start operator "sink": no such file "x""#,
    );
}

#[test]
fn a_failure_that_is_no_records_fault_names_none() {
    /// Learns of a failure of something that it was given earlier.
    struct PassesOn;
    impl Operator for PassesOn {
        fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
            out.working_on(batch.seq(0));
            out.working_on_no_record();
            Err(Error::external("refused"))
        }
    }
    let mut build = Build::new("passes on");
    let source = build.numbers("numbers", Numbers::endless(), 1);
    let input = build.input(source, Partitioning::Global);
    build.operator("sink", vec![input], 1, |_| PassesOn);
    let (runtime, _clock) = runtime(1);
    let job = runtime.start(build.graph, quiet()).unwrap();
    let failure = failure(finish(&job));
    assert_eq!((&*failure.operator, failure.record, &*failure.message), ("sink", None, "refused"));
}
