//! The back end over a server in memory: the suite of all back ends, requests that fail, requests that come late, and
//! servers that lose things. Against real servers: `real_service`.

mod gateway;
mod ground;
mod real_service;

use std::sync::Arc;

use proptest::prelude::*;
use thalweg_state::testing::{cases, commit, key, run, steps, value};
use thalweg_state::{Backend, Interrupt, StateError, StoreFault, Version};

use crate::Remote;
use crate::memory::{Image, MemoryServer};
use crate::store::{Server, Space};
use crate::wait::Patience;
use ground::{Remotes, changes};

fn remote(server: &MemoryServer) -> Remote {
    let patience = Arc::new(Patience::new("memory".into(), Interrupt::default()).hasty());
    Remote { server: Arc::new(server.clone()), patience, begins_anew: false }
}

fn ground(server: &MemoryServer) -> Remotes {
    Remotes::new(remote(server))
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn a_store_is_a_map(steps in steps()) {
        let server = MemoryServer::default();
        run(&ground(&server), &steps);
        // One space, whatever became of the others.
        prop_assert_eq!(server.spaces().len(), 1);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    /// Requests without an answer are made again, and change nothing the second time. Without the steps that open,
    /// which do not wait.
    #[test]
    fn requests_that_fail_change_nothing(steps in steps(), seed in 1_u64..) {
        let server = MemoryServer::default();
        let steps: Vec<_> = steps.into_iter().filter(|step| !ground::opens(step)).take(25).collect();
        let ground = ground(&server);
        let failing = ground::Failing { ground, server, seed };
        run(&failing, &steps);
    }
}

#[test]
fn what_a_dead_process_has_on_its_way_changes_nothing() {
    let server = MemoryServer::default();
    let ground = ground(&server);
    let backend = ground.open(None).unwrap();
    let first = commit(backend.as_ref(), 1, &changes(&[(4, Some(7)), (5, Some(7))]));
    backend.write(2, &changes(&[(4, Some(8))])).unwrap();
    drop(backend);
    let spaces = server.spaces();
    let (number, image) = spaces.iter().next().unwrap();
    let late = server.space(Space { task: "j/o/0".into(), identity: 0, number: *number });
    let head = image.head.clone().unwrap();

    let backend = ground.open(Some(&first)).unwrap();
    assert!(
        !late.apply(&head, 2, &[(&key(4), Some(vec![1, 2, 3, 4, 5]))]).unwrap(),
        "rows change under their head only"
    );
    assert!(!late.set_head(Some(&head), b"mine").unwrap());
    let part = image.parts.iter().next().map(|(name, bytes)| (*name, bytes.clone())).unwrap();
    late.put_part(part.0, &part.1).unwrap();
    assert_eq!(backend.get(&key(4)).unwrap().unwrap(), value(7));
    // The cycle is repeated with other content, as after a record that is skipped.
    let second = commit(backend.as_ref(), 2, &changes(&[(5, None)]));
    drop(backend);
    let backend = ground.open(Some(&second)).unwrap();
    assert_eq!(backend.get(&key(4)).unwrap().unwrap(), value(7));
    assert_eq!(backend.get(&key(5)).unwrap(), None);
    assert!(server.spaces()[number].parts.is_empty(), "a part that nothing names goes at the next start");
}

fn refused(outcome: Result<Box<dyn Backend>, StateError>, words: &str) {
    let error = outcome.map(|_| ()).unwrap_err();
    assert!(matches!(error, StateError::Store { fault: StoreFault::Refused, .. }), "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("data directory")), "{error}");
}

#[test]
fn state_of_a_lost_folder_is_refused_until_it_may_go() {
    let server = MemoryServer::default();
    let lost = ground(&server);
    let version = commit(lost.open(None).unwrap().as_ref(), 1, &changes(&[(4, Some(7))]));
    let before = server.spaces();

    let new = ground(&server);
    refused(new.open(None), "/job/tasks/op/3/state");
    refused(new.open(None), "/job/tasks/op/3/state");
    assert_eq!(server.spaces(), before, "nothing was touched");
    assert_eq!(lost.open(Some(&version)).unwrap().get(&key(4)).unwrap().unwrap(), value(7));

    let asked = Remotes { remote: remote(&server).begin_anew(true), ..new };
    let backend = asked.open(None).unwrap();
    assert_eq!(backend.get(&key(4)).unwrap(), None);
    assert!(server.spaces().keys().all(|number| !before.contains_key(number)), "the state of before is gone");
    let second = commit(backend.as_ref(), 1, &changes(&[(5, Some(1))]));
    refused(lost.open(Some(&version)), "begun anew");
    // From now on it goes on by itself, and to be asked deletes nothing of its own.
    drop(asked.open(Some(&second)).unwrap());
    let new = Remotes { remote: remote(&server), ..asked };
    assert_eq!(new.open(Some(&second)).unwrap().get(&key(5)).unwrap().unwrap(), value(1));
}

#[test]
fn a_folder_without_a_commit_leaves_nothing_to_refuse() {
    let server = MemoryServer::default();
    drop(ground(&server).open(None).unwrap());
    let new = ground(&server);
    commit(new.open(None).unwrap().as_ref(), 1, &changes(&[(4, Some(7))]));
    assert_eq!(server.spaces().len(), 1);
    // Its own folder begins anew as often as it likes: a commit record that never came names nothing.
    assert_eq!(new.open(None).unwrap().get(&key(4)).unwrap(), None);
}

#[test]
fn a_store_without_a_claim_gets_one_at_the_next_start() {
    let server = MemoryServer::default();
    let old = ground(&server);
    let version = commit(old.open(None).unwrap().as_ref(), 1, &changes(&[(4, Some(7))]));
    server.forget_claims();
    drop(old.open(Some(&version)).unwrap());
    refused(ground(&server).open(None), "belongs to the folder");
}

/// Whichever request of a start is the last that arrives, the next start goes on or is refused again.
#[test]
fn a_start_that_is_cut_off_can_be_repeated() {
    for last in 0.. {
        let server = MemoryServer::default();
        commit(ground(&server).open(None).unwrap().as_ref(), 1, &changes(&[(4, Some(7))]));
        let new = ground(&server);
        let asked = Remotes { remote: remote(&server).begin_anew(true), ..new };
        server.stop_after(Some(last));
        let is_done = asked.open(None).is_ok();
        server.stop_after(None);
        let backend = asked.open(None).unwrap();
        assert_eq!(backend.get(&key(4)).unwrap(), None, "after {last} requests");
        assert_eq!(
            server.spaces().values().filter(|image| **image != Image::default()).count(),
            1,
            "after {last} requests"
        );
        if is_done {
            assert!(last > 3, "{last} requests");
            break;
        }
    }
}

#[test]
fn two_processes_on_one_state_stop_the_older() {
    let server = MemoryServer::default();
    let ground = ground(&server);
    let older = ground.open(None).unwrap();
    let version = commit(older.as_ref(), 1, &changes(&[(4, Some(7))]));
    let newer = ground.open(Some(&version)).unwrap();
    let taken = |error: StateError| {
        assert!(matches!(error, StateError::Store { fault: StoreFault::TakenOver, .. }), "{error}");
        assert!(error.to_string().contains("another process has opened it"), "{error}");
    };
    taken(older.get(&key(4)).unwrap_err());
    older.write(2, &changes(&[(4, Some(9))])).unwrap();
    taken(older.prepare(2).unwrap_err());
    let error = older.write(2, &changes(&[])).unwrap_err();
    assert!(matches!(error, StateError::Poisoned { .. }), "{error}");
    commit(newer.as_ref(), 2, &changes(&[(4, Some(8))]));
    assert_eq!(newer.get(&key(4)).unwrap().unwrap(), value(8));
}

/// What a change of the stored bytes does to a start and to a read.
fn after(meddle: impl Fn(&mut crate::memory::Image)) -> (Result<(), StateError>, Result<(), StateError>) {
    let server = MemoryServer::default();
    let ground = ground(&server);
    let backend = ground.open(None).unwrap();
    commit(backend.as_ref(), 1, &changes(&[(4, Some(7)), (6, Some(9))]));
    backend.write(2, &changes(&[(5, Some(8))])).unwrap();
    let version = backend.prepare(2).unwrap();
    server.meddle(|spaces| spaces.values_mut().for_each(&meddle));
    let read = backend.get_many(&[&key(4), &key(6)]).map(|_| ());
    (ground.open(Some(&version)).map(|_| ()), read)
}

#[test]
fn a_server_that_lost_something_is_found_out() {
    let is_damaged = |result: &Result<(), StateError>, said: &str| {
        let error = result.as_ref().unwrap_err();
        assert!(matches!(error, StateError::Store { fault: StoreFault::Damaged, .. }), "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.class(), thalweg_types::Class::Corrupt);
        assert!(error.hint().is_some_and(|hint| hint.contains("docs/operations.md")));
    };
    let (start, read) = after(|image| *image = Default::default());
    is_damaged(&start, "head of task job/op/3: expected one, got none");
    is_damaged(&read, "head");
    let (start, read) = after(|image| image.parts.clear());
    is_damaged(&start, "part 0 of cycle 2 of task job/op/3: expected it in the log, got none");
    assert!(read.is_ok());
    let (start, _) = after(|image| image.parts.values_mut().for_each(|part| part[7] ^= 1));
    is_damaged(&start, "part 0 of cycle 2 of task job/op/3: expected its checksum");
    let (_, read) = after(|image| image.rows.values_mut().for_each(|row| row[0] ^= 1));
    is_damaged(&read, "expected its checksum");
    // A server that came back without its last second.
    let (start, read) = after(|image| {
        let head = crate::head::Head::of_bytes(image.head.as_deref().unwrap(), "job/op/3").unwrap();
        image.head = Some(crate::head::Head { folded: None, ..head }.to_bytes("job/op/3"));
    });
    is_damaged(&start, "rows of task job/op/3: expected cycle 1, got none");
    is_damaged(&read, "rows of task job/op/3: expected cycle 1, got none");
    let (start, read) = after(|_| {});
    assert!(start.is_ok() && read.is_ok());
}

#[test]
fn a_data_directory_that_is_older_than_the_store_is_refused() {
    let server = MemoryServer::default();
    let ground = ground(&server);
    let backend = ground.open(None).unwrap();
    let older = commit(backend.as_ref(), 1, &changes(&[(4, Some(7))]));
    commit(backend.as_ref(), 2, &changes(&[(4, Some(8))]));
    let error = ground.open(Some(&older)).unwrap_err();
    let said = "rows of task job/op/3: expected cycle 1 at most, as the commit record says, got cycle 2";
    assert!(error.to_string().ends_with(said), "{error}");
    assert!(error.hint().unwrap().contains("older than the state in the store"));
}

#[test]
fn a_start_without_a_version_removes_what_an_earlier_one_left() {
    let server = MemoryServer::default();
    let ground = ground(&server);
    let backend = ground.open(None).unwrap();
    commit(backend.as_ref(), 1, &changes(&[(4, Some(7))]));
    let before = server.spaces();
    // Another job with state of its own.
    let mut other = self::ground(&server);
    other.place.identity += 1;
    let others = other.open(None).unwrap();
    commit(others.as_ref(), 1, &changes(&[(4, Some(9))]));
    let again = ground.open(None).unwrap();
    assert_eq!(again.get(&key(4)).unwrap(), None);
    assert_eq!(others.get(&key(4)).unwrap().unwrap(), value(9));
    let now = server.spaces();
    assert!(now.len() == 2 && before.keys().all(|number| !now.contains_key(number)));
}

#[test]
fn sizes_and_requests_are_bounded() {
    let server = MemoryServer::default();
    let backend = ground(&server).open(None).unwrap();
    let too_large = |key: usize, value: usize| {
        let mut changes = thalweg_state::Changes::new();
        changes.push(&vec![1; key], &vec![2; value]);
        backend.write(1, &changes).unwrap_err().to_string()
    };
    assert_eq!(too_large(2_001, 0), "a key takes 2001 bytes, and at most 2000 fit");
    assert_eq!(too_large(10, 100_000), "a value with its key takes 100010 bytes, and at most 100000 fit");
    let before = server.requests();
    let mut many = thalweg_state::Changes::new();
    (0..100_u64).for_each(|number| many.push(&number.to_le_bytes(), &[7; 92]));
    backend.write(1, &many).unwrap();
    // 1,000 bytes a part: nine changes of 108.
    assert_eq!(server.requests() - before, 12);
    let before = server.requests();
    let keys: Vec<_> = (0..100_u64).map(u64::to_le_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
    assert!(backend.get_many(&keys).unwrap().iter().all(Option::is_some));
    assert_eq!(server.requests(), before, "pending changes are in memory");
    backend.prepare(1).unwrap();
    backend.committed(1).unwrap();
    let before = server.requests();
    assert!(backend.get_many(&keys).unwrap().iter().all(Option::is_some));
    assert_eq!(server.requests() - before, 25, "four keys a request");
}

#[test]
fn versions_of_other_back_ends_are_refused() {
    let server = MemoryServer::default();
    for version in [Version::from_bytes([1; 8]), Version::from_bytes([])] {
        let error = ground(&server).open(Some(&version)).unwrap_err();
        assert!(error.to_string().contains("expected a version of state in a store"), "{error}");
    }
}
