//! Output, wakes, expiry and cycles, as settings ask for them.

use thalweg_state::memory::{Memory, MemoryDisk};
use thalweg_types::SeqRange;

use super::driver::Driver;
use super::tally::elements;
use super::{Record, one, state, whats};
use crate::Operator;
use crate::element::{CheckpointPace, ElementSettings, ElementState, Expiry, OnExpiry, OutputPolicy};

#[test]
fn output_by_records_by_time_and_wakes_have_their_places() {
    let by_records = ElementSettings { output: OutputPolicy::Records(2), ..ElementSettings::default() };
    let mut driver = Driver::new(elements(1, by_records, ElementState::in_memory()));
    driver.records(0, &[&one(1, 1, 0), &one(2, 1, 0), &one(1, 1, 0), &one(1, 1, 0), &one(1, 1, 0)]).unwrap();
    assert_eq!(
        whats(&driver.told),
        [
            "k1 record 1",
            "k2 record 1",
            "k1 record 2",
            "k1 output 2",
            "k1 record 3",
            "k1 record 4",
            "k1 output 4"
        ]
    );

    let by_time = ElementSettings { output: OutputPolicy::Every(10), ..ElementSettings::default() };
    let mut driver = Driver::new(elements(1, by_time, ElementState::in_memory()));
    let tick = |driver: &mut Driver, now| {
        driver.told.clear();
        driver.call(SeqRange::new(9, 10), |elements, out| elements.tick(now, out)).unwrap();
        whats(&driver.told).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(tick(&mut driver, 95).is_empty());
    driver.records(0, &[&one(2, 1, 0), &one(1, 1, 0), &one(2, 1, 0)]).unwrap();
    assert!(tick(&mut driver, 99).is_empty());
    assert_eq!(tick(&mut driver, 100), ["k2 output 2", "k1 output 1"], "by first touch");
    assert!(tick(&mut driver, 110).is_empty(), "nothing was touched since");

    let mut driver = Driver::new(elements(1, ElementSettings::default(), ElementState::in_memory()));
    driver.records(0, &[&one(1, 4, 20), &one(2, 8, 20), &one(3, 1, 31), &one(3, 1, 32)]).unwrap();
    assert_eq!(
        whats(&driver.told),
        ["k1 record 1", "k2 record 1", "k1 wake 21 1", "k2 wake 21 1", "k3 record 1", "k3 record 2"],
        "16 is past, so they are woken as soon as time moves"
    );
}

#[test]
fn what_waits_is_told_at_the_end_where_nothing_goes_on_from_there() {
    let by_time = ElementSettings { output: OutputPolicy::Every(10), ..ElementSettings::default() };
    for (state, expected) in [
        (ElementState::in_memory(), &["k1 wake 128 1", "k1 output 101"][..]),
        (ElementState::unkept(), &[]),
        (state(&MemoryDisk::new(), 0, None, 1000), &[]),
    ] {
        let mut driver = Driver::new(elements(1, by_time, state));
        driver.records(0, &[&one(1, 32, 100)]).unwrap();
        driver.told.clear();
        driver.call(SeqRange::new(1, 2), |elements, out| elements.finish(out)).unwrap();
        assert_eq!(whats(&driver.told), expected);
    }
}

#[test]
fn the_forgotten_leave_the_state_and_the_unloaded_only_memory() {
    for (on, left) in [(OnExpiry::Forget, 1), (OnExpiry::Unload, 101)] {
        let settings =
            ElementSettings { expiry: Some(Expiry { after: 100, on }), ..ElementSettings::default() };
        let disk = MemoryDisk::new();
        let mut driver = Driver::new(elements(1, settings, state(&disk, 0, None, usize::MAX)));
        let records: Vec<Record> = (0..100).map(|key| one(key, 1, i64::from(key) / 4)).collect();
        driver.records(0, &records.iter().collect::<Vec<_>>()).unwrap();
        let commit = |driver: &mut Driver, cycle: u64| {
            let at = SeqRange::new(1000 + cycle, 1001 + cycle);
            driver.call(at, |elements, out| elements.cycle(cycle, out)).unwrap();
            let (number, mut part) = driver.parts.0.lock().unwrap().pop_front().unwrap();
            assert_eq!(number, cycle);
            part.prepare().unwrap();
            part.committed().unwrap();
        };
        commit(&mut driver, 1);
        driver.records(100, &[&one(200, 1, 500)]).unwrap();
        for tick in 0..10 {
            let at = SeqRange::new(1010 + tick, 1011 + tick);
            driver.call(at, |elements, out| elements.tick(tick as i64, out)).unwrap();
        }
        let in_memory = |driver: &Driver| driver.elements.core.cache.stats().keys;
        if on == OnExpiry::Unload {
            assert_eq!(in_memory(&driver), 1);
        }
        commit(&mut driver, 2);
        let keys = Memory::open(&disk, Some(&thalweg_state::Version::from_bytes(2_u64.to_le_bytes())))
            .map(|backend| thalweg_state::Backend::stats(&backend).keys)
            .unwrap();
        let lists = u64::from(on == OnExpiry::Forget);
        assert_eq!(keys, left + lists, "{on:?}: the new one is listed");
    }
}

#[test]
fn sources_are_held_when_changed_elements_fill_the_memory() {
    let mut driver =
        Driver::new(elements(1, ElementSettings::default(), state(&MemoryDisk::new(), 0, None, 20_000)));
    let held: Vec<bool> = (0..250)
        .map(|key| {
            driver.records(u64::from(key), &[&one(key, 1, 0)]).unwrap();
            driver.core.is_held()
        })
        .collect();
    let first = held.iter().position(|held| *held).unwrap();
    assert!(
        driver.core.is_hastened() && !held[first / 2],
        "a quarter asks for a cycle, and holds nothing: {first}"
    );
    driver.core.cycle_begins();
    driver.call(SeqRange::new(250, 251), |elements, out| elements.cycle(1, out)).unwrap();
    driver.records(251, &[&one(0, 1, 0)]).unwrap();
    assert!(!driver.core.is_held(), "the next cycle has changed little");
}

#[test]
fn cycles_are_asked_for_by_records_by_time_and_when_much_has_changed() {
    let run = |checkpoint, memory| {
        let settings = ElementSettings { checkpoint, ..ElementSettings::default() };
        let state = state(&MemoryDisk::new(), 0, None, memory);
        let mut driver = Driver::new(elements(1, settings, state));
        let asked: Vec<bool> = (0..6)
            .map(|at| {
                let tick = SeqRange::new(2 * at, 2 * at + 1);
                driver.call(tick, |elements, out| elements.tick(at as i64, out)).unwrap();
                driver.records(2 * at + 1, &[&one(at as u8, 1, 0)]).unwrap();
                let asked = driver.core.is_hastened();
                if asked {
                    driver.core.cycle_begins();
                    driver.call(tick, |elements, out| elements.cycle(at + 1, out)).unwrap();
                }
                asked
            })
            .collect();
        asked.iter().map(|asked| if *asked { 'x' } else { '.' }).collect::<String>()
    };
    assert_eq!(run(CheckpointPace::Cycle, usize::MAX), "......");
    assert_eq!(run(CheckpointPace::Records(3), usize::MAX), "..x..x");
    assert_eq!(run(CheckpointPace::Every(2), usize::MAX), "..x.x.");
    let much = run(CheckpointPace::Cycle, 2_000);
    assert!(
        much.starts_with('.') && much.contains('x'),
        "a quarter of the memory is more than one of six: {much}"
    );
}
