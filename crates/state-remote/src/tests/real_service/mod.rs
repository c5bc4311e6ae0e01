//! The back ends over real servers: `cargo xtask test --only services` starts them and says where they are.
//!
//! Ignored elsewhere. Tests share a server and go side by side, each in spaces of its own; a test that stops a server
//! or changes its settings starts one for itself.
//!
//! How long they take is all round trips: the suite has fewer cases here than over files (`cases` of each service).

mod hbase;
mod proxy;
mod redis;

use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_state::testing::{State, apply, assert_values, commit, run, steps};
use thalweg_state::{Backend, Changes, Interrupt, StateError, StoreFault};

use super::ground::Remotes;
use crate::{Remote, Settings};

/// What xtask says about a service.
fn told(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `cargo xtask test --only services`"))
}

/// Waits until something that another process does has come true.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ground(settings: &Settings) -> Remotes {
    Remotes::of_its_own(Remote::connect(settings, Interrupt::default()).unwrap())
}

/// The suite of all back ends, with random steps.
fn is_a_map(settings: &Settings, cases: u32) {
    let remote = Remote::connect(settings, Interrupt::default()).unwrap();
    let config = thalweg_state::testing::cases(cases);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&steps(), |steps| {
        run(&Remotes::of_its_own(remote.clone()), &steps);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// Key by number.
fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// Some thousand changes of a cycle, more than a request takes; a fifth of the keys go and come.
fn changes(cycle: u64, keys: u64) -> Changes {
    let mut changes = Changes::new();
    for number in 0..keys {
        if (number + cycle).is_multiple_of(5) {
            changes.remove(&key(number));
        } else {
            changes.push(&key(number), &vec![cycle as u8; (number % 700) as usize]);
        }
    }
    changes
}

fn keys(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(key).collect()
}

/// Many keys in many requests, three cycles, and another start.
fn cycles_larger_than_a_request_are_whole(settings: &Settings, count: u64) {
    let ground = ground(settings);
    let mut state = State::new();
    let backend = ground.open(None).unwrap();
    for cycle in 1..3 {
        apply(&mut state, &changes(cycle, count));
        commit(backend.as_ref(), cycle, &changes(cycle, count));
    }
    assert_values(backend.as_ref(), &state, &keys(count));
    // Named by a commit record, and not folded when the process dies.
    backend.write(3, &changes(3, count)).unwrap();
    let version = backend.prepare(3).unwrap();
    apply(&mut state, &changes(3, count));
    assert_values(backend.as_ref(), &state, &keys(count));
    // And one that no record names.
    backend.write(4, &changes(4, count)).unwrap();
    drop(backend);
    let backend = ground.open(Some(&version)).unwrap();
    assert_values(backend.as_ref(), &state, &keys(count));
    commit(backend.as_ref(), 4, &changes(4, count));
    apply(&mut state, &changes(4, count));
    assert_values(backend.as_ref(), &state, &keys(count));
}

/// A folder that is lost, with a store of which the job knows nothing any more.
fn state_of_a_lost_folder_is_refused_until_it_may_go(settings: &Settings) {
    let lost = ground(settings);
    let version = commit(lost.open(None).unwrap().as_ref(), 1, &changes(1, 50));
    let begin = |anew: bool| {
        let mut new = Remotes {
            remote: lost.remote.clone().begin_anew(anew),
            task: lost.task.clone(),
            ..ground(settings)
        };
        new.place.identity = lost.place.identity;
        new
    };
    let refused = |error: StateError, said: &str| {
        assert!(matches!(error, StateError::Store { fault: StoreFault::Refused, .. }), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    };
    refused(begin(false).open(None).unwrap_err(), "belongs to the folder");
    let mut state = State::new();
    apply(&mut state, &changes(1, 50));
    assert_values(lost.open(Some(&version)).unwrap().as_ref(), &state, &keys(50));
    let new = begin(true);
    assert_values(new.open(None).unwrap().as_ref(), &State::new(), &keys(50));
    refused(lost.open(Some(&version)).unwrap_err(), "begun anew");
}

/// A server that goes away at any time and comes back: calls take longer, and nothing else.
fn an_outage_is_waited_for(mut settings: Settings, proxy: &proxy::Proxy) {
    settings.url.set_port(Some(proxy.address.port())).unwrap();
    let ground = ground(&settings);
    let backend: Arc<dyn Backend> = ground.open(None).unwrap().into();
    let mut state = State::new();
    commit(backend.as_ref(), 1, &changes(1, 300));
    apply(&mut state, &changes(1, 300));
    // Away before a write, before a commit is reported, and before a read.
    let calls: [Box<dyn FnOnce() + Send>; 3] = [
        Box::new({
            let backend = Arc::clone(&backend);
            move || {
                backend.write(2, &changes(2, 300)).unwrap();
                backend.prepare(2).unwrap();
            }
        }),
        Box::new({
            let backend = Arc::clone(&backend);
            move || backend.committed(2).unwrap()
        }),
        Box::new({
            let backend = Arc::clone(&backend);
            move || assert!(backend.get(&key(4)).unwrap().is_some())
        }),
    ];
    for call in calls {
        proxy.go_down();
        let before = proxy.refused();
        let calling = std::thread::spawn(call);
        eventually("several tries", || (proxy.refused() >= before + 3).then_some(()));
        assert!(!calling.is_finished());
        proxy.come_back();
        calling.join().unwrap();
    }
    apply(&mut state, &changes(2, 300));
    assert_values(backend.as_ref(), &state, &keys(300));
    // Connections that break in the middle of requests, again and again.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                proxy.break_connections();
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        for cycle in 3..6 {
            commit(backend.as_ref(), cycle, &changes(cycle, 300));
            apply(&mut state, &changes(cycle, 300));
        }
    });
    assert!(proxy.broken() > 0, "nothing was disturbed");
    assert_values(backend.as_ref(), &state, &keys(300));
}

/// Nobody is there when a job starts, and when it ends.
fn a_start_fails_at_once_and_an_end_ends_the_wait(mut settings: Settings, proxy: &proxy::Proxy) {
    settings.url.set_port(Some(proxy.address.port())).unwrap();
    let interrupt = Interrupt::default();
    let remote = Remote::connect(&settings, interrupt.clone()).unwrap();
    let ground = Remotes::of_its_own(remote);
    let backend: Arc<dyn Backend> = ground.open(None).unwrap().into();
    proxy.go_down();
    let down = |error: StateError| {
        assert!(matches!(error, StateError::Store { fault: StoreFault::Down, .. }), "{error}");
        assert!(error.to_string().contains("expected an answer, got none"), "{error}");
        assert!(error.hint().unwrap().contains("look whether the server runs"), "{error}");
    };
    down(Remote::connect(&settings, Interrupt::default()).unwrap_err());
    down(ground.open(None).unwrap_err());
    let before = proxy.refused();
    let writing = std::thread::spawn(move || backend.write(1, &changes(1, 3)));
    eventually("several tries", || (proxy.refused() >= before + 2).then_some(()));
    interrupt.raise();
    let error = writing.join().unwrap().unwrap_err();
    assert!(matches!(error, StateError::Store { fault: StoreFault::Ended, .. }), "{error}");
    proxy.come_back();
}

/// The error of a store that will not do.
fn refusal(settings: &Settings) -> StateError {
    let error = Remote::connect(settings, Interrupt::default()).unwrap_err();
    assert!(matches!(error, StateError::Store { fault: StoreFault::Refused, .. }), "{error}");
    assert_eq!(error.class(), thalweg_types::Class::User);
    error
}
