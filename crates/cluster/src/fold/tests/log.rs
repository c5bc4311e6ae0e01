//! Beginnings, State records, versions, bytes that are no record.

use expect_test::expect;
use thalweg_types::{Class, Error};

use super::kit::*;
use crate::control::{self, Record, StateRecord};
use crate::fold::{Change, RECORDS_PER_STATE, STATE_EVERY, Stop, Void, begin};
use crate::rules::set_records_per_state;

/// A log with everything in it, and a State record in its middle.
fn full() -> (Log, StateRecord) {
    set_records_per_state(40);
    let mut log = Log::with(&["alpha", "beta", "gamma"]);
    log.counts(Record::Spec(spec(1, 4, 1)));
    let first = log.counts(Record::Plan(plan(
        "alpha",
        None,
        log.end(),
        &[to("alpha", "gamma"), placed("beta"), placed("beta"), placed("alpha")],
    )));
    let mut troubled = beat("beta", log.end());
    troubled.trouble.insert(unit(1));
    troubled.reports.push(report(2, 900, true));
    log.counts(Record::Beat(troubled));
    log.counts(Record::Plan(plan("alpha", Some(first), log.end(), &[placed("gamma"), placed("alpha")])));
    log.counts(handed("alpha", 0, log.end() - 1, 55));
    log.counts(drain("gamma", true));
    while log.fold.cut().is_none() {
        log.beats("alpha", 1);
        log.beats("beta", 1);
        log.beats("gamma", 1);
    }
    let cut = log.fold.cut().unwrap().clone();
    assert!(log.state().may_record(&process("alpha")) && !log.state().may_record(&process("beta")));
    // Others append before the State record does.
    log.beats("beta", 1);
    let record = state("alpha", &cut);
    let applied = log.add(record.clone());
    assert_eq!(applied.changes, [Change::Recorded { at: cut.next() }]);
    assert!(!log.state().may_record(&process("alpha")));
    assert_eq!(log.add(record.clone()).void, Some(Void::NotTheCut));
    log.beats("gamma", 1);
    log.counts(leave("beta"));
    let Record::State(record) = record else { unreachable!("it was made as one") };
    (log, *record)
}

#[test]
fn a_state_and_the_records_after_it_are_the_whole_log() {
    let (log, record) = full();
    let bytes = control::encode(&Record::State(Box::new(record.clone()))).unwrap();
    let read = control::decode(&bytes);
    assert_eq!(read, Ok(control::Decoded::Record(Record::State(Box::new(record.clone())))));
    let at = record.state.next();
    let mut later = begin(at, [record]).unwrap();
    for (offset, (appended, record)) in (0..).zip(&log.records).skip(at as usize) {
        let _ = later.apply(offset, *appended, record).unwrap();
    }
    assert_eq!(later, log.fold);
    assert_eq!(log.again(), log.fold);
}

#[test]
fn a_state_beyond_its_bounds_is_no_record() {
    let (_, record) = full();
    let text = String::from_utf8(control::encode(&Record::State(Box::new(record))).unwrap()).unwrap();
    let age = text.split("\"age\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    for (is, becomes, expected) in [
        (
            format!("\"age\":{age}"),
            format!("\"age\":{}", i64::MAX),
            "age: expected 0 to 1152921504606846976, got",
        ),
        (format!("\"age\":{age}"), "\"age\":-1".to_owned(), "age: expected 0 to 1152921504606846976, got -1"),
        ("\"records\":0".to_owned(), "\"records\":4294967295".to_owned(), "records: expected at most 10000"),
        ("\"partitions\":4".to_owned(), "\"partitions\":5".to_owned(), "load: expected 5 pairs"),
    ] {
        assert!(text.contains(&is), "{is}");
        let error = control::decode(text.replace(&is, &becomes).as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_log_that_begins_later_without_a_state_is_refused() {
    let (_, record) = full();
    let at = record.state.next();
    assert!(begin(0, []).is_ok());
    for stop in [begin(1, []).unwrap_err(), begin(at + 1, [record]).unwrap_err()] {
        assert!(matches!(stop, Stop::NoBeginning { .. }));
        assert_eq!(stop.class(), Class::Corrupt);
        assert!(stop.hint().is_some());
    }
    expect!["control log begins at offset 1 and has no state that could be gone on from, expected offset 0"]
        .assert_eq(&begin(1, []).unwrap_err().to_string());
}

#[test]
fn a_node_whose_own_state_differs_stops_and_names_the_difference() {
    let (log, mut record) = full();
    let at = record.state.next() as usize;
    record.state.members.get_mut(&name("beta")).unwrap().capacity += 1;
    let mut fold = begin(0, []).unwrap();
    for (offset, (appended, record)) in (0..).zip(&log.records).take(at + 1) {
        let _ = fold.apply(offset, *appended, record).unwrap();
    }
    let offset = fold.state().next();
    let stop = fold.apply(offset, log.now, &Record::State(Box::new(record))).unwrap_err();
    let error = Error::from(stop);
    assert_eq!(error.class(), Class::Corrupt);
    let expected = format!(
        "state as of offset {at} differs from the one recorded at offset {offset} by alpha (0000000000000001), first in \
         member beta"
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn the_state_is_recorded_by_records_or_by_time() {
    set_records_per_state(RECORDS_PER_STATE);
    let mut log = Log::with(&["alpha"]);
    for _ in 0..STATE_EVERY / 10_000_000 {
        assert_eq!(log.fold.cut(), None);
        log.now += 10_000_000;
        log.beats("alpha", 1);
    }
    assert!(log.fold.cut().is_some());
    let mut log = Log::with(&["alpha"]);
    log.beats("alpha", RECORDS_PER_STATE as usize - 3);
    assert_eq!(log.fold.cut(), None);
    log.beats("alpha", 1);
    assert_eq!(log.fold.cut().map(|cut| cut.next()), Some(RECORDS_PER_STATE.into()));
}

#[test]
fn when_the_leader_does_not_record_the_state_the_next_oldest_may() {
    set_records_per_state(20);
    let mut log = Log::with(&["alpha", "beta"]);
    for _ in 0..30 {
        log.beats("alpha", 1);
        log.beats("beta", 1);
        if log.fold.cut().is_some() && log.state().may_record(&process("beta")) {
            let cut = log.fold.cut().unwrap().clone();
            assert!(log.state().keep_from() <= cut.next());
            log.counts(state("beta", &cut));
            return;
        }
    }
    panic!("the next oldest may not record the state");
}

#[test]
fn bytes_that_are_no_record_are_void_and_named() {
    let mut log = Log::with(&["alpha"]);
    let before = log.state().clone();
    let (applied, error) = log.fold.take(2, log.now, b"hello").unwrap();
    assert_eq!(applied.void, Some(Void::Unreadable));
    assert!(error.is_some());
    let (applied, error) = log.fold.take(3, log.now, br#"{"v":2,"kind":"moon"}"#).unwrap();
    assert_eq!((applied.void, error), (Some(Void::Newer { version: 2 }), None));
    assert_eq!((log.state().members.clone(), log.state().next()), (before.members, 4));
    assert_eq!(log.fold.take(3, log.now, b"hello"), Err(Stop::OutOfOrder { next: 4, got: 3 }));
}

#[test]
fn a_version_is_raised_once_all_members_know_it_and_older_builds_stop_there() {
    let mut log = Log::new();
    let mut newer = join("alpha", 0);
    newer.newest = 2;
    log.counts(Record::Join(newer));
    log.counts(Record::Join(join("beta", log.end())));
    assert_eq!(log.add(version("alpha", 2)).void, Some(Void::NotAllKnow));
    log.counts(leave("beta"));
    let end = log.end();
    let stop = log.fold.apply(end, log.now, &version("alpha", 2)).unwrap_err();
    assert_eq!(stop, Stop::TooNew { version: 2, offset: end, newest: 1 });
    // A build that knows it goes on, and lets nobody join that does not.
    let mut state = log.state().clone();
    assert_eq!(state.version(), 2);
    let join = Record::Join(join("beta", end + 1));
    assert_eq!(state.apply(end + 1, log.now, &join).void, Some(Void::TooOld { version: 2 }));
}
