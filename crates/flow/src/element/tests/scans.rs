//! Scans that bring in elements after a restart.

use thalweg_state::memory::MemoryDisk;
use thalweg_types::SeqRange;

use super::driver::Driver;
use super::late::eager;
use super::tally::elements;
use super::{Record, one, state, whats};
use crate::Operator;
use crate::element::{ElementSettings, Expiry, OnExpiry};

/// The state of a hundred elements that were touched at 0 to 24 and one that was at 500, committed as cycle 1. Where there
/// `is_tick`, it comes before them.
fn committed(settings: ElementSettings, is_tick: bool) -> (MemoryDisk, Vec<u8>) {
    let disk = MemoryDisk::new();
    let mut driver = Driver::new(elements(1, settings, state(&disk, 0, None, usize::MAX)));
    if is_tick {
        driver.call(SeqRange::new(0, 1), |elements, out| elements.tick(0, out)).unwrap();
    }
    let records: Vec<Record> = (0..100).map(|key| one(key, 1, i64::from(key) / 4)).collect();
    driver.records(1, &records.iter().collect::<Vec<_>>()).unwrap();
    driver.records(101, &[&one(200, 1, 500)]).unwrap();
    driver.call(SeqRange::new(102, 103), |elements, out| elements.cycle(1, out)).unwrap();
    let (_, mut part) = driver.parts.0.lock().unwrap().pop_front().unwrap();
    let position = part.prepare().unwrap();
    part.committed().unwrap();
    (disk, position)
}

#[test]
fn a_scan_brings_in_elements_but_those_that_would_be_unloaded_again() {
    let expiry = |on| Some(Expiry { after: 100, on });
    // Where no tick comes, the cycle forgets those whose time has passed.
    let forgets = expiry(OnExpiry::Forget);
    let cases =
        [(None, true, 101), (forgets, true, 101), (forgets, false, 1), (expiry(OnExpiry::Unload), true, 1)];
    for (expiry, is_tick, filled) in cases {
        let settings = ElementSettings { expiry, ..ElementSettings::default() };
        let (disk, position) = committed(settings, is_tick);
        let (gate, state) = eager(&disk, 1, Some(&position), usize::MAX, false);
        let mut driver = Driver::new(elements(1, settings, state));
        gate.send(()).unwrap();
        driver.fill().unwrap();
        let counts = driver.elements.cache_counts().unwrap();
        assert_eq!((counts.filled, counts.keys, counts.hits, counts.misses), (filled, filled, 0, 0));
        driver.records(103, &[&one(200, 1, 500)]).unwrap();
        assert_eq!(whats(&driver.told), ["k200 record 2"]);
        assert_eq!(driver.elements.cache_counts().unwrap().misses, 0);
    }
}

#[test]
fn a_scan_that_fails_stops_the_task() {
    let (disk, position) = committed(ElementSettings::default(), true);
    let (gate, state) = eager(&disk, 1, Some(&position), usize::MAX, true);
    let mut driver = Driver::new(elements(1, ElementSettings::default(), state));
    gate.send(()).unwrap();
    let error = loop {
        let tick = driver.call(SeqRange::new(103, 104), |elements, out| elements.tick(1, out));
        if let Err(error) = tick {
            break error;
        }
        assert!(driver.elements.filling.is_some(), "the scan has ended well");
        std::thread::yield_now();
    };
    assert!(error.chain().contains("a test"), "{}", error.chain());
}
