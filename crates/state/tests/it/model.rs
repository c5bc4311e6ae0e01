//! Random steps, crashes among them, of every back end against a map.

use std::sync::Arc;

use proptest::prelude::*;
use thalweg_state::indexed::IndexedOptions;
use thalweg_state::memory::MemoryDisk;
use thalweg_state::testing::{cases, changes_of, key, run, steps, value};
use thalweg_state::{Changes, registry};
use thalweg_storage::{Fs, MemFs};

use crate::harness::{DIR, Disk, commit, small};

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn indexed_is_a_map(
        steps in steps(),
        segment_bytes in prop_oneof![Just(1_u64), 100_u64..3000, Just(1 << 20)],
        named_segments in 0_u16..8,
    ) {
        run(&Disk::indexed(IndexedOptions { named_segments, ..small(segment_bytes) }), &steps);
    }

    #[test]
    fn files_are_a_map(steps in steps()) {
        run(&Disk::Files { fs: MemFs::new() }, &steps);
    }

    #[test]
    fn memory_is_a_map(steps in steps()) {
        run(&Disk::Memory { disk: MemoryDisk::new() }, &steps);
    }
}

/// Each back end alike.
fn all() -> [Disk; 3] {
    [Disk::indexed(small(300)), Disk::Files { fs: MemFs::new() }, Disk::Memory { disk: MemoryDisk::new() }]
}

#[test]
fn cycles_out_of_order_are_refused() {
    for disk in all() {
        let backend = disk.open(None).unwrap();
        let some = changes_of(&[(4, Some(7))]);
        backend.write(3, &some).unwrap();
        assert!(
            backend.write(2, &some).is_err() && backend.prepare(2).is_err() && backend.committed(3).is_err()
        );
        let version = backend.prepare(3).unwrap();
        assert!(backend.write(3, &some).is_err() && backend.prepare(3).is_err());
        backend.committed(3).unwrap();
        drop(backend);
        let backend = disk.open(Some(&version)).unwrap();
        assert!(backend.write(3, &some).is_err());
        backend.write(4, &some).unwrap();
    }
}

#[test]
fn a_scan_stops_when_told() {
    for disk in all() {
        let backend = disk.open(None).unwrap();
        backend.write(1, &changes_of(&(0..20).map(|number| (number, Some(9))).collect::<Vec<_>>())).unwrap();
        let mut seen = 0;
        let visit = &mut |_: &[u8], _: &[u8]| {
            seen += 1;
            if seen == 5 { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
        };
        backend.scan(visit).unwrap();
        assert_eq!(seen, 5);
    }
}

#[test]
fn the_version_of_another_back_end_is_refused() {
    let versions: Vec<_> = all()
        .iter()
        .map(|disk| {
            let backend = disk.open(None).unwrap();
            backend.write(1, &changes_of(&[(5, Some(1))])).unwrap();
            backend.prepare(1).unwrap()
        })
        .collect();
    for (own, disk) in all().iter().enumerate() {
        for (other, version) in versions.iter().enumerate() {
            assert!(own == other || disk.open(Some(version)).is_err(), "{other} by {own}");
        }
    }
}

#[test]
fn a_scan_hands_over_what_rests_while_others_are_written() {
    let disk = Disk::indexed(small(600));
    let backend = disk.open(None).unwrap();
    let name = |kind: &str, number: u64| format!("{kind}-{number}").into_bytes();
    for cycle in 1..60 {
        let mut changes = Changes::new();
        changes.push(&name("resting", cycle), b"as it was");
        changes.push(&name("fading", cycle), &[7; 200]);
        commit(backend.as_ref(), cycle, &changes);
    }
    let hot = || changes_of(&(4..12).map(|number| (number, Some(7))).collect::<Vec<_>>());
    let before = backend.stats().compactions;
    let (mut seen, mut cycle) = (Vec::new(), 60);
    let visit = &mut |key: &[u8], _: &[u8]| {
        if key.starts_with(b"resting") {
            seen.push(key.to_vec());
        }
        // Four fifths of all segments die, and enough is written to compact them all.
        if cycle == 60 {
            let mut changes = Changes::new();
            (1..60).for_each(|number| changes.remove(&name("fading", number)));
            commit(backend.as_ref(), cycle, &changes);
            for cycle in 61..120 {
                commit(backend.as_ref(), cycle, &hot());
            }
            cycle = 120;
        }
        std::ops::ControlFlow::Continue(())
    };
    backend.scan(visit).unwrap();
    seen.sort();
    let mut expected: Vec<_> = (1..60).map(|number| name("resting", number)).collect();
    expected.sort();
    assert_eq!(seen, expected);
    assert_eq!(backend.stats().compactions, before, "nothing moves under a scan");
    for cycle in 120..160 {
        commit(backend.as_ref(), cycle, &hot());
    }
    assert!(backend.stats().compactions > before + 10, "and afterwards it goes on");
}

#[test]
fn back_ends_open_by_name() {
    for kind in registry::KINDS {
        let fs: Arc<dyn Fs> = Arc::new(MemFs::new());
        let place = registry::Place { fs, dir: DIR.into(), identity: 7 };
        let backend = registry::open(kind.name, place.clone(), None).unwrap();
        let version = commit(backend.as_ref(), 1, &changes_of(&[(5, Some(3))]));
        drop(backend);
        let backend = registry::open(kind.name, place, Some(&version)).unwrap();
        assert_eq!(backend.get(&key(5)).unwrap().unwrap(), value(3));
    }
    let place = registry::Place { fs: Arc::new(MemFs::new()), dir: DIR.into(), identity: 7 };
    let error = registry::open("redis", place, None).unwrap_err();
    assert_eq!(error.to_string(), "there is no back end \"redis\"; there are indexed, files");
}
