//! Readers during writes: whatever the timing, values only go forward and none is missing.

use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_state::Changes;

use crate::harness::{Disk, commit, scanned, small};

const KEYS: u64 = 40;

/// Each key changes in some cycles only, so that old segments hold some that live.
fn changes_of(cycle: u64) -> Changes {
    let mut changes = Changes::new();
    for number in 0..KEYS {
        if cycle == 1 || (cycle + number).is_multiple_of(2 + number % 5) {
            changes.push(&number.to_le_bytes(), &cycle.to_le_bytes());
        }
    }
    changes
}

fn cycle_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

#[test]
fn readers_see_values_go_forward_while_segments_come_and_go() {
    let disk = Disk::indexed(small(500));
    let backend = disk.open(None).unwrap();
    commit(backend.as_ref(), 1, &changes_of(1));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = |many: bool| {
            let mut newest = vec![1; KEYS as usize];
            loop {
                let is_last = ended.load(Ordering::Acquire);
                let keys: Vec<_> = (0..KEYS).map(u64::to_le_bytes).collect();
                let asked: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
                let values = if many {
                    backend.get_many(&asked).unwrap()
                } else {
                    asked.iter().map(|key| backend.get(key).unwrap()).collect()
                };
                for (newest, value) in newest.iter_mut().zip(values) {
                    let cycle = cycle_of(&value.expect("no key is ever taken away"));
                    assert!(cycle >= *newest, "{cycle} after {newest}");
                    *newest = cycle;
                }
                if is_last {
                    break;
                }
            }
        };
        let readers = [scope.spawn(move || read(false)), scope.spawn(move || read(true))];
        let scanner = scope.spawn(|| {
            for _ in 0..20 {
                // Keys that are written meanwhile may be left out; none comes twice.
                for (key, value) in scanned(backend.as_ref()).unwrap() {
                    assert!(key.len() == 8 && (1..1500).contains(&cycle_of(&value)));
                }
            }
        });
        for cycle in 2..1500 {
            commit(backend.as_ref(), cycle, &changes_of(cycle));
        }
        ended.store(true, Ordering::Release);
        for reader in readers {
            reader.join().unwrap();
        }
        scanner.join().unwrap();
    });
    assert_eq!(scanned(backend.as_ref()).unwrap().len() as u64, KEYS);
}
