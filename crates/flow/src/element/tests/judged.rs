//! Effects of a change of the job between two runs on late records, and on ids that have left their span.

use thalweg_state::memory::MemoryDisk;
use thalweg_types::{LatePolicy, Micros, SeqRange};

use super::driver::Driver;
use super::tally::{ID_PLACE, NUMBER_PLACE, judged};
use super::{Record, one, state, whats};
use crate::Operator;
use crate::element::{ElementSettings, ElementState, InputRules};

fn late_after(lateness: Micros, late: LatePolicy) -> InputRules {
    InputRules { lateness, late, ids: None }
}

/// Has a cycle committed; its position.
fn commit(driver: &mut Driver, cycle: u64) -> Vec<u8> {
    driver.call(SeqRange::new(0, 1), |elements, out| elements.cycle(cycle, out)).unwrap();
    driver.call(SeqRange::new(0, 1), |elements, out| elements.finish(out)).unwrap();
    let (_, mut part) = driver.parts.0.lock().unwrap().pop_front().unwrap();
    let position = part.prepare().unwrap();
    part.committed().unwrap();
    position
}

#[test]
fn what_a_smaller_lateness_left_behind_stays_late_when_it_is_raised() {
    for (late, told) in [
        (LatePolicy::Reject, ["null late 0", "null closed 0", "k1 record 2", "k1 record 3"]),
        (LatePolicy::Clamp, ["k1 record 2", "k1 record 3", "k1 record 4", "k1 record 5"]),
    ] {
        let disk = MemoryDisk::new();
        let state_at = |cycle, position| state(&disk, cycle, position, usize::MAX);
        let settings = ElementSettings::default();
        let mut driver = Driver::new(judged(&[late_after(5, late)], settings, state_at(0, None)));
        driver.records(0, &[&one(1, 1, 100)]).unwrap();
        let position = commit(&mut driver, 1);

        let mut driver = Driver::new(judged(&[late_after(50, late)], settings, state_at(1, Some(&position))));
        let records = [one(1, 1, 40), one(1, 1, 94), one(1, 1, 95), one(1, 1, 96)];
        driver.records(1, &records.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(whats(&driver.told), told);
        let times: Vec<Micros> = driver.told.iter().map(|told| told.1).collect();
        match late {
            LatePolicy::Reject => assert_eq!(times, [40, 94, 95, 96]),
            LatePolicy::Clamp => assert_eq!(times, [95, 95, 95, 96]),
        }
    }
}

#[test]
fn ids_are_let_go_of_once_their_span_has_passed() {
    let rules = InputRules { ids: Some((ID_PLACE, 1_000)), ..InputRules::ALL };
    let mut driver = Driver::new(judged(&[rules], ElementSettings::default(), ElementState::in_memory()));
    let mut most = 0;
    for round in 0..1_000_u64 {
        let records: Vec<Record> = (0..250)
            .map(|id| Record { id: Some(id), ..one(1, 1, round as Micros * 1_000 + Micros::from(id)) })
            .collect();
        driver.records(round * 251, &records.iter().collect::<Vec<_>>()).unwrap();
        let range = SeqRange::new(round * 251 + 250, round * 251 + 251);
        driver.call(range, |elements, out| elements.tick(round as Micros, out)).unwrap();
        most = most.max(driver.elements.core.cache.stats().keys);
    }
    let last = whats(&driver.told).last().unwrap().to_string();
    assert_eq!(last, "k1 record 250000", "after its span an id is new");
    assert!(most < 270, "{most} keys for 250 ids, an element, and lists of about twice as many ids");
}

#[test]
fn a_second_record_with_an_id_is_counted_and_not_taken() {
    let rules = InputRules { ids: Some((ID_PLACE, 100)), ..late_after(10, LatePolicy::Reject) };
    let mut driver = Driver::new(judged(&[rules], ElementSettings::default(), ElementState::in_memory()));
    let with = |id, time| Record { id, ..one(1, 1, time) };
    let records = [
        with(Some(7), 0),
        with(Some(7), 50),
        with(None, 50),
        with(Some(7), 60),
        with(Some(7), 3),
        with(Some(8), 3),
    ];
    driver.records(0, &records.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(whats(&driver.told), ["k1 record 1", "k1 record 2", "null late 0"]);
    let counts = driver.elements.judged_counts().unwrap();
    assert_eq!((counts.duplicates, counts.late), (3, 1), "a duplicate is one however late it is");
}

#[test]
fn records_that_were_made_of_one_are_no_duplicates_of_each_other() {
    let rules = InputRules { ids: Some((ID_PLACE, 100)), ..InputRules::ALL };
    let mut driver = Driver::new(judged(&[rules], ElementSettings::default(), ElementState::in_memory()));
    let with = |key, id| Record { id: Some(id), ..one(key, 1, 0) };
    driver.records_at(&[(0, &with(1, 7)), (0, &with(1, 8)), (0, &with(2, 7))]);
    driver.records_at(&[
        (0, &with(2, 8)),
        (1, &with(1, 7)),
        (1, &with(1, 9)),
        (1, &with(1, 8)),
        (1, &with(2, 9)),
    ]);
    let told = ["k1 record 1", "k1 record 2", "k2 record 1", "k2 record 2", "k1 record 3", "k2 record 3"];
    assert_eq!(whats(&driver.told), told);
    assert_eq!(driver.elements.judged_counts().unwrap().duplicates, 2);
}

#[test]
fn ids_of_another_field_are_others() {
    let disk = MemoryDisk::new();
    let rules = |place| InputRules { ids: Some((place, 1_000)), ..InputRules::ALL };
    let settings = ElementSettings::default();
    let run = |place, cycle: u64, position: Option<&[u8]>| {
        let state = state(&disk, cycle, position, usize::MAX);
        let mut driver = Driver::new(judged(&[rules(place)], settings, state));
        let record = Record { id: Some(7), ..one(1, 7, 10) };
        driver.records(cycle, &[&record]).unwrap();
        driver.call(SeqRange::new(0, 1), |elements, out| elements.tick(1, out)).unwrap();
        let position = commit(&mut driver, cycle + 1);
        (whats(&driver.told).len(), driver.elements.core.cache.backend_stats().unwrap().keys, position)
    };
    let (taken, keys, position) = run(ID_PLACE, 0, None);
    assert_eq!((taken, keys), (1, 3), "an element, an id, and the list of ids");
    let (taken, keys, position) = run(ID_PLACE, 1, Some(&position));
    assert_eq!((taken, keys), (0, 3), "the same id");
    let (taken, keys, position) = run(NUMBER_PLACE, 2, Some(&position));
    assert_eq!(
        (taken, keys),
        (1, 3),
        "the same number in another field; those of the first field are dropped"
    );
    let (taken, keys, _) = run(NUMBER_PLACE, 3, Some(&position));
    assert_eq!((taken, keys), (0, 3));
}
