//! The n-th call to the disk fails, for every n: nothing committed is lost, nothing wrong is read.

use std::sync::Arc;

use thalweg_state::{Backend, Changes, StateError, Version};
use thalweg_storage::{Fault, FaultKind, FaultyFs, Fs, MemFs};
use thalweg_types::Class;

use crate::harness::{Disk, State, apply, assert_state, listed, numbered, scanned, small};

const CYCLES: u64 = 9;

/// Overwrites, new keys and tombstones; with small segments enough for seals, compaction and index files.
fn changes_of(cycle: u64) -> Changes {
    let mut changes = Changes::new();
    for number in 0..8_u64 {
        let key = key((cycle * 3 + number) % 13);
        if (cycle + number).is_multiple_of(5) {
            changes.remove(&key);
        } else {
            changes.push(&key, &vec![cycle as u8; 20 + number as usize * 7]);
        }
    }
    changes
}

fn state_at(cycle: u64) -> State {
    let mut state = State::new();
    (1..=cycle).for_each(|cycle| apply(&mut state, &changes_of(cycle)));
    state
}

fn keys() -> Vec<Vec<u8>> {
    (0..14).map(key).collect()
}

fn key(number: u64) -> Vec<u8> {
    if number.is_multiple_of(2) { numbered(1, number as u32) } else { format!("key-{number}").into_bytes() }
}

/// A life in two parts. The last commit record, and how it ended.
fn workload(disk: &Disk, fs: &FaultyFs) -> (u64, Option<Version>, Result<(), StateError>) {
    let (mut recorded, mut version) = (0, None);
    let outcome = (|| {
        for end in [CYCLES / 2, CYCLES] {
            let backend = disk.open_on(Arc::new(fs.clone()), version.as_ref())?;
            for cycle in recorded + 1..=end {
                let changes = changes_of(cycle);
                write(backend.as_ref(), cycle, &changes)?;
                let now = state_at(cycle);
                for key in keys() {
                    let got = backend.get(&key)?;
                    assert_eq!(got.as_ref(), now.get(&key), "a wrong value in cycle {cycle}");
                }
                version = Some(backend.prepare(cycle)?);
                recorded = cycle;
                backend.committed(cycle)?;
            }
            assert_eq!(scanned(backend.as_ref())?, state_at(end));
            backend.close()?;
        }
        Ok(())
    })();
    (recorded, version, outcome)
}

/// Where the disk is full and the instance goes on, the same write works a second time, unless it is still full.
fn write(backend: &dyn Backend, cycle: u64, changes: &Changes) -> Result<(), StateError> {
    match backend.write(cycle, changes) {
        Err(StateError::Io(disk)) if disk.is_full() => {
            let before = state_at(cycle - 1);
            for key in keys() {
                match backend.get(&key) {
                    Ok(got) => assert_eq!(got.as_ref(), before.get(&key), "half applied"),
                    Err(StateError::Poisoned { .. } | StateError::Io(_)) => {}
                    Err(other) => return Err(other),
                }
            }
            backend.write(cycle, changes)
        }
        other => other,
    }
}

fn sweep(disk: impl Fn() -> Disk) {
    let whole = disk();
    let clean = FaultyFs::new(Arc::new(whole.fs().clone()), None);
    let (recorded, _, outcome) = workload(&whole, &clean);
    assert!(recorded == CYCLES && outcome.is_ok(), "{outcome:?}");
    let calls = clean.calls();
    let (mut hits, mut failures) = (0, 0);
    for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite, FaultKind::BitFlip] {
        for stays in [false, true] {
            // Reads that always flip a bit leave nothing to look at.
            if stays && kind == FaultKind::BitFlip {
                continue;
            }
            for call in 1..=calls {
                let disk = disk();
                let fault = Fault { call, kind, stays };
                let faulty = FaultyFs::new(Arc::new(disk.fs().clone()), Some(fault));
                let (recorded, version, outcome) = workload(&disk, &faulty);
                hits += u64::from(faulty.hits() > 0);
                failures += u64::from(outcome.is_err());
                disk.power_cut((call % 2 == 0).then_some(call));
                let backend = disk
                    .open(version.as_ref())
                    .unwrap_or_else(|left| panic!("{fault:?}: {outcome:?} in cycle {recorded}, then {left}"));
                assert_state(backend.as_ref(), &state_at(recorded), &keys());
                // And it goes on.
                for cycle in recorded + 1..=CYCLES {
                    backend.write(cycle, &changes_of(cycle)).unwrap();
                    backend.prepare(cycle).unwrap();
                    backend.committed(cycle).unwrap();
                }
                assert_state(backend.as_ref(), &state_at(CYCLES), &keys());
            }
        }
    }
    assert!(
        calls > 80 && hits > calls * 4 && failures > calls * 3,
        "{calls} calls, {hits} hits, {failures} failures"
    );
}

#[test]
fn every_failing_call_of_indexed_loses_nothing_committed() {
    sweep(|| Disk::indexed(small(300)));
    sweep(|| Disk::indexed(listed(300)));
}

#[test]
fn every_failing_call_of_files_loses_nothing_committed() {
    sweep(|| Disk::Files { fs: MemFs::new() });
}

/// The instance of a disk whose `call`-th call from here on fails.
fn failing(disk: &Disk, version: &Version, kind: FaultKind, call: u64) -> Box<dyn Backend> {
    // The first opening cuts the bytes after the version, the next ones find nothing to do.
    drop(disk.open(Some(version)).unwrap());
    let counted = FaultyFs::new(Arc::new(disk.fs().clone()), None);
    drop(disk.open_on(Arc::new(counted.clone()), Some(version)).unwrap());
    let fault = Fault { call: counted.calls() + call, kind, stays: false };
    disk.open_on(Arc::new(FaultyFs::new(Arc::new(disk.fs().clone()), Some(fault))), Some(version)).unwrap()
}

fn started(disk: &Disk) -> Version {
    let backend = disk.open(None).unwrap();
    crate::harness::commit(backend.as_ref(), 1, &changes_of(1))
}

#[test]
fn after_a_failed_sync_every_call_fails() {
    for disk in [Disk::indexed(small(1 << 20)), Disk::Files { fs: MemFs::new() }] {
        for kind in [FaultKind::Eio, FaultKind::Enospc] {
            let version = started(&disk);
            let mut changes = Changes::new();
            changes.push(b"one", b"value");
            // One key: `indexed` writes, lays zeros ahead and syncs; of `files` the second to last call is the sync.
            let calls = if matches!(disk, Disk::Files { .. }) { 4 } else { 3 };
            let backend = failing(&disk, &version, kind, calls);
            backend.write(2, &changes).unwrap();
            let failed = backend.prepare(2).unwrap_err();
            assert!(matches!(&failed, StateError::Io(disk) if disk.action == "sync"), "{failed}");
            let poisoned = |error: StateError| matches!(error, StateError::Poisoned { .. });
            assert!(
                poisoned(backend.prepare(2).unwrap_err())
                    && poisoned(backend.write(2, &changes).unwrap_err())
            );
            assert!(
                poisoned(backend.get(b"one").unwrap_err()) && poisoned(backend.committed(1).unwrap_err())
            );
            assert!(poisoned(scanned(backend.as_ref()).unwrap_err()));
        }
    }
}

#[test]
fn a_full_disk_says_what_to_do_and_the_same_write_works_later() {
    let disk = Disk::indexed(small(1 << 20));
    let version = started(&disk);
    let backend = failing(&disk, &version, FaultKind::Enospc, 1);
    let error = backend.write(2, &changes_of(2)).unwrap_err();
    assert!(matches!(&error, StateError::Io(disk) if disk.is_full() && disk.action == "write"), "{error}");
    assert!(error.class() == Class::External && error.hint().unwrap().contains("make room"));
    assert_state(backend.as_ref(), &state_at(1), &keys());
    backend.write(2, &changes_of(2)).unwrap();
    let version = backend.prepare(2).unwrap();
    disk.power_cut(None);
    assert_state(disk.open(Some(&version)).unwrap().as_ref(), &state_at(2), &keys());
}

#[test]
fn reading_goes_on_when_a_list_finds_no_space() {
    // Each write seals a segment, so each version has a new list.
    let disk = Disk::indexed(listed(1));
    let version = started(&disk);
    let fs: Arc<dyn Fs> = Arc::new(disk.fs().clone());
    let mut seen = false;
    for call in 1..30 {
        let fault = Fault { call, kind: FaultKind::Enospc, stays: true };
        let faulty = FaultyFs::new(Arc::clone(&fs), Some(fault));
        let Ok(backend) = disk.open_on(Arc::new(faulty), Some(&version)) else { continue };
        if backend.write(2, &changes_of(2)).is_ok()
            && let Err(StateError::Io(disk)) = backend.prepare(2)
            && disk.is_full()
            && disk.action == "publish"
        {
            seen = true;
            assert!(matches!(backend.write(2, &changes_of(2)), Err(StateError::Poisoned { .. })));
            // Nothing is refused; that this disk fails reads as well is another thing.
            assert!(!matches!(backend.get(b"key-4"), Err(StateError::Poisoned { .. })));
        }
    }
    assert!(seen, "no list found the disk full");
}

#[test]
fn an_index_file_of_what_was_never_committed_does_not_come_back() {
    let disk = Disk::indexed(small(4000));
    let backend = disk.open(None).unwrap();
    backend.write(1, &changes_of(1)).unwrap();
    let version = backend.prepare(1).unwrap();
    let mut changes = Changes::new();
    (0..30_u8).for_each(|number| changes.push(&[number], &[number; 60]));
    backend.write(2, &changes).unwrap();
    // So much was appended that an index file is due, and it reaches into cycle 2.
    backend.committed(1).unwrap();
    let index_files = || {
        let names = disk.fs().list(std::path::Path::new(crate::harness::DIR)).unwrap();
        names.iter().filter(|name| name.starts_with("index-")).count()
    };
    assert_eq!(index_files(), 1);
    drop(backend);
    let backend = disk.open(Some(&version)).unwrap();
    assert_eq!(index_files(), 0);
    // The same cycle in other slices: other frames where the index file knew its own.
    for change in &changes {
        let mut slice = Changes::new();
        slice.push(change.key, change.value.unwrap());
        backend.write(2, &slice).unwrap();
    }
    let version = backend.prepare(2).unwrap();
    drop(backend);
    disk.power_cut(None);
    let backend = disk.open(Some(&version)).unwrap();
    let mut expected = state_at(1);
    apply(&mut expected, &changes);
    assert_state(backend.as_ref(), &expected, &keys());
}
