//! Scans that bring in elements after a restart.

use thalweg_state::memory::MemoryDisk;
use thalweg_types::SeqRange;

use super::driver::Driver;
use super::late::eager;
use super::tally::elements;
use super::{Record, one, state, whats};
use crate::Operator;
use crate::element::{ElementSettings, Expiry, OnExpiry};

/// The state of a hundred elements that were touched at 0 to 24 and one that was at 500, committed as cycle 1.
fn committed(settings: ElementSettings) -> (MemoryDisk, Vec<u8>) {
    let disk = MemoryDisk::new();
    let mut driver = Driver::new(elements(1, settings, state(&disk, 0, None, usize::MAX)));
    let records: Vec<Record> = (0..100).map(|key| one(key, 1, i64::from(key) / 4)).collect();
    driver.records(0, &records.iter().collect::<Vec<_>>()).unwrap();
    driver.records(100, &[&one(200, 1, 500)]).unwrap();
    driver.call(SeqRange::new(101, 102), |elements, out| elements.cycle(1, out)).unwrap();
    let (_, mut part) = driver.parts.0.lock().unwrap().pop_front().unwrap();
    let position = part.prepare().unwrap();
    part.committed().unwrap();
    (disk, position)
}

#[test]
fn a_scan_brings_in_elements_but_those_that_would_be_unloaded_again() {
    let expiry = |on| Some(Expiry { after: 100, on });
    for (expiry, filled) in [(None, 101), (expiry(OnExpiry::Forget), 101), (expiry(OnExpiry::Unload), 1)] {
        let settings = ElementSettings { expiry, ..ElementSettings::default() };
        let (disk, position) = committed(settings);
        let (gate, state) = eager(&disk, 1, Some(&position), usize::MAX, false);
        let mut driver = Driver::new(elements(1, settings, state));
        gate.send(()).unwrap();
        driver.fill().unwrap();
        let counts = driver.elements.cache_counts().unwrap();
        assert_eq!((counts.filled, counts.keys, counts.hits, counts.misses), (filled, filled, 0, 0));
        driver.records(102, &[&one(200, 1, 500)]).unwrap();
        assert_eq!(whats(&driver.told), ["k200 record 2"]);
        assert_eq!(driver.elements.cache_counts().unwrap().misses, 0);
    }
}

#[test]
fn a_scan_that_fails_stops_the_task() {
    let (disk, position) = committed(ElementSettings::default());
    let (gate, state) = eager(&disk, 1, Some(&position), usize::MAX, true);
    let mut driver = Driver::new(elements(1, ElementSettings::default(), state));
    gate.send(()).unwrap();
    let error = loop {
        let tick = driver.call(SeqRange::new(102, 103), |elements, out| elements.tick(1, out));
        if let Err(error) = tick {
            break error;
        }
        assert!(driver.elements.filling.is_some(), "the scan has ended well");
        std::thread::yield_now();
    };
    assert!(error.chain().contains("a test"), "{}", error.chain());
}
