//! A task stays after its end until its operator has delivered, and holds no worker meanwhile.

use std::sync::{Arc, Condvar, Mutex};

use thalweg_flow::{InputId, Job, JobState, Operator, Output, Partitioning, Runtime, Waker};
use thalweg_types::{Batch, Error};

use crate::harness::*;

/// What a test and its operator share.
#[derive(Clone, Default)]
struct Delivery(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    finished: bool,
    asked: u32,
    waker: Option<Waker>,
    outcome: Option<Result<(), &'static str>>,
}

impl Delivery {
    fn wait_until_asked(&self) {
        let guard = self.0.0.lock().unwrap();
        let (_guard, timeout) = self.0.1.wait_timeout_while(guard, LIMIT, |state| state.asked == 0).unwrap();
        assert!(!timeout.timed_out(), "nobody asks whether it is drained");
    }

    fn end(&self, outcome: Result<(), &'static str>) {
        let mut state = self.0.0.lock().unwrap();
        state.outcome = Some(outcome);
        let waker = state.waker.clone().expect("it was asked with a waker");
        drop(state);
        waker.wake();
    }
}

struct Delivers(Delivery);

impl Operator for Delivers {
    fn process(&mut self, _: InputId, _: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        self.0.0.0.lock().unwrap().finished = true;
        Ok(())
    }

    fn is_drained(&mut self, waker: &Waker) -> Result<bool, Error> {
        let mut state = self.0.0.0.lock().unwrap();
        assert!(state.finished, "asked before the end");
        state.asked += 1;
        state.waker = Some(waker.clone());
        self.0.0.1.notify_all();
        match state.outcome {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(why)) => Err(Error::external(why)),
        }
    }
}

fn start(runtime: &Runtime) -> (Job, Delivery) {
    let delivery = Delivery::default();
    let mut build = Build::new("delivers");
    let source = build.numbers("numbers", Numbers::up_to(500), 1);
    let input = build.input(source, Partitioning::Global);
    let shared = delivery.clone();
    build.operator("sink", vec![input], 1, move |_| Delivers(shared.clone()));
    (runtime.start(build.graph, quiet()).unwrap(), delivery)
}

#[test]
fn a_job_is_done_when_its_sink_has_delivered() {
    let (runtime, _clock) = runtime(1);
    let (job, delivery) = start(&runtime);
    delivery.wait_until_asked();

    // Its only worker has time for others.
    let mut other = Build::new("other");
    let source = other.numbers("numbers", Numbers::up_to(500), 1);
    let input = other.input(source, Partitioning::Global);
    other.record("sink", vec![input], 1);
    assert_eq!(finish(&runtime.start(other.graph, quiet()).unwrap()), JobState::Done);

    assert!(!job.state().is_final());
    assert!(delivery.0.0.lock().unwrap().asked < 100, "it is not asked over and over");
    delivery.end(Ok(()));
    assert_eq!(finish(&job), JobState::Done);
}

#[test]
fn what_cannot_be_delivered_fails_the_job_and_names_the_sink() {
    let (runtime, _clock) = runtime(1);
    let (job, delivery) = start(&runtime);
    delivery.wait_until_asked();
    delivery.end(Err("the other side is gone"));
    match finish(&job) {
        JobState::Failed(failure) => {
            assert_eq!((&*failure.operator, failure.message.as_str()), ("sink", "the other side is gone"));
        }
        other => panic!("expected a failure, got {other:?}"),
    }
}

#[test]
fn a_job_that_is_stopped_waits_for_nothing() {
    let (runtime, _clock) = runtime(1);
    let (job, delivery) = start(&runtime);
    delivery.wait_until_asked();
    job.abort();
    assert_ne!(finish(&job), JobState::Done);
}
