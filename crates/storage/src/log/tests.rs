//! Logs as their owner sees them. Faults and damage are in the modules.

mod damage;
mod faults;
mod group_commit;
mod model;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::*;
use crate::MemFs;

const DIR: &str = "/jobs/payments/journal";
const IDENTITY: u64 = 0x1234;

/// Small segments and buffers, so that short tests see many of them.
fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 700,
        buffer_bytes: 400,
        ahead_bytes: 1024,
        clock: LogClock(Arc::new(|| 5)),
        ..LogOptions::new("journal", IDENTITY)
    }
}

fn open(fs: &MemFs) -> Result<Opened, LogError> {
    Log::open(Arc::new(fs.clone()), DIR, options())
}

/// What record `number` holds: up to 60 bytes that no other record has.
fn record(number: u64) -> Vec<u8> {
    let len = 8 + (number * 37 % 52) as usize;
    number.to_le_bytes().into_iter().chain((8..len).map(|at| (number + at as u64) as u8)).collect()
}

fn append(log: &mut Log, count: u64) {
    for _ in 0..count {
        let number = log.next().0;
        let bytes = record(number);
        let (front, back) = bytes.split_at(bytes.len() / 3);
        assert_eq!(log.append(&[front, back]).unwrap(), LogPosition(number));
    }
}

/// All records from `from` to `until` read as they were appended.
fn assert_holds(log: &Log, from: u64, until: u64) {
    let mut reader = log.read_range(LogPosition(from)..LogPosition(until)).unwrap();
    for number in from..until {
        let (position, bytes) = reader.next_record().unwrap().unwrap();
        assert_eq!((position.0, bytes), (number, record(number).as_slice()));
    }
    assert!(reader.next_record().unwrap().is_none());
}

fn segments(fs: &MemFs) -> Vec<PathBuf> {
    let names = fs.list(Path::new(DIR)).unwrap();
    names.iter().filter(|name| name.ends_with(".thl")).map(|name| Path::new(DIR).join(name)).collect()
}

#[test]
fn records_read_back_over_segments_and_after_a_reopening() {
    let fs = MemFs::new();
    let mut log = open(&fs).unwrap().log;
    append(&mut log, 100);
    assert!(log.written() < log.next() && log.synced() < log.written());
    assert_holds(&log, 0, log.written().0);
    assert_eq!(log.sync().unwrap(), LogPosition(100));
    assert_holds(&log, 37, 100);
    assert!(segments(&fs).len() > 4, "segments are rotated");
    log.close().unwrap();

    let opened = open(&fs).unwrap();
    assert_eq!(opened.torn, None);
    let mut log = opened.log;
    assert_eq!((log.first(), log.next()), (LogPosition(0), LogPosition(100)));
    append(&mut log, 1);
    log.sync().unwrap();
    assert_holds(&log, 0, 101);
    let bytes = log.bytes();
    log.close().unwrap();
    let summary = verify(&fs, Path::new(DIR)).unwrap();
    assert_eq!((summary.name.as_str(), summary.identity), ("journal", IDENTITY));
    assert_eq!((summary.first(), summary.next()), (LogPosition(0), LogPosition(101)));
    assert!(summary.bytes() > bytes && summary.segments.len() == segments(&fs).len());
    let before = fs.bytes(segments(&fs).last().unwrap()).unwrap();
    drop(open(&fs).unwrap().log.close());
    assert_eq!(fs.bytes(segments(&fs).last().unwrap()).unwrap(), before, "marks do not pile up");
}

#[test]
fn a_reader_sees_what_was_written_when_it_was_made() {
    let fs = MemFs::new();
    let mut log = open(&fs).unwrap().log;
    append(&mut log, 5);
    log.flush().unwrap();
    let mut early = log.read_from(LogPosition(2)).unwrap();
    append(&mut log, 50);
    log.sync().unwrap();
    for number in 2..5 {
        assert_eq!(early.next_record().unwrap().unwrap().0.0, number);
    }
    assert!(early.next_record().unwrap().is_none());
    let missing = log.read_from(LogPosition(56)).unwrap_err();
    assert_eq!(
        missing.to_string(),
        format!("record 56 is not in log \"{DIR}\", which holds record 0 up to before record 55")
    );
    let mut late = log.read_from(LogPosition(0)).unwrap();
    log.truncate_before(LogPosition(40)).unwrap();
    assert!(matches!(late.next_record(), Err(LogError::Missing { .. })), "it was deleted before it was read");
}

#[test]
fn a_record_may_be_empty_or_longer_than_a_segment_but_not_longer_than_memory() {
    let fs = MemFs::new();
    let mut log = open(&fs).unwrap().log;
    log.append(&[]).unwrap();
    log.append(&[&[7; 5000]]).unwrap();
    log.append(&[b"x"]).unwrap();
    let large = vec![0; MAX_RECORD];
    let error = log.append(&[&large, b"more"]).unwrap_err();
    assert_eq!(error.to_string(), "a record of a log has at most 34603008 bytes, got 34603012");
    log.append(&[&large]).unwrap();
    log.sync().unwrap();
    let mut reader = log.read_from(LogPosition(0)).unwrap();
    let mut lens = Vec::new();
    while let Some((_, bytes)) = reader.next_record().unwrap() {
        lens.push(bytes.len());
    }
    assert_eq!(lens, [0, 5000, 1, MAX_RECORD]);
}

#[test]
fn zeros_are_laid_out_ahead_of_small_syncs_and_cut_when_a_segment_is_sealed() {
    let fs = MemFs::new();
    let mut log = open(&fs).unwrap().log;
    append(&mut log, 1);
    log.sync().unwrap();
    let first = segments(&fs)[0].clone();
    let laid = fs.bytes(&first).unwrap().len() as u64;
    assert_eq!(laid, (log.bytes() + 1024).min(700));
    append(&mut log, 1);
    log.sync().unwrap();
    assert_eq!(fs.bytes(&first).unwrap().len() as u64, laid, "the second sync found them");
    drop(log);
    let opened = open(&fs).unwrap();
    assert_eq!((opened.torn, opened.log.next()), (None, LogPosition(2)));
    let mut log = opened.log;
    while log.sealed.is_empty() {
        append(&mut log, 1);
        log.sync().unwrap();
    }
    assert_eq!(fs.bytes(&first).unwrap().len() as u64, log.sealed[0].bytes);
}

#[test]
fn as_many_zeros_are_laid_ahead_as_some_dozens_of_syncs_like_the_present_one_take() {
    const MOST: u64 = 1 << 20;
    let laid_by = |bytes: usize| {
        let fs = MemFs::new();
        let options =
            LogOptions { segment_bytes: 4 * MOST, buffer_bytes: 1 << 20, ahead_bytes: MOST, ..options() };
        let mut log = Log::open(Arc::new(fs.clone()), DIR, options).unwrap().log;
        let empty = log.bytes();
        log.append(&[&vec![7; bytes]]).unwrap();
        log.sync().unwrap();
        let written = log.bytes() - empty;
        (written, fs.bytes(&segments(&fs)[0]).unwrap().len() as u64 - log.bytes())
    };
    assert_eq!(laid_by(100).1, MOST / 16, "never fewer");
    let (written, zeros) = laid_by(3_000);
    assert_eq!(zeros, written * 64);
    assert_eq!(laid_by(60_000).1, MOST, "never more");
    assert_eq!(laid_by(70_000).1, 0, "much at once is better appended");
}

#[test]
fn front_segments_go_whole_and_never_the_active_one() {
    let fs = MemFs::new();
    let mut log = open(&fs).unwrap().log;
    append(&mut log, 100);
    log.sync().unwrap();
    let count = segments(&fs).len();
    let gone = log.truncate_before(LogPosition(50)).unwrap();
    assert!(gone > 30 && gone <= 50 && log.first() == LogPosition(gone), "{gone}");
    assert!(segments(&fs).len() < count);
    assert_holds(&log, gone, 100);
    log.truncate_before(LogPosition(1000)).unwrap();
    assert_eq!(segments(&fs).len(), 1);
    drop(log);
    fs.crash();
    let log = open(&fs).unwrap().log;
    assert_eq!(log.next(), LogPosition(100));
    assert_holds(&log, log.first().0, 100);
}

#[test]
fn retention_goes_by_age_and_size_and_never_past_the_floor() {
    let fs = MemFs::new();
    let now = Arc::new(AtomicI64::new(0));
    let clock = Arc::clone(&now);
    let clocked =
        LogOptions { clock: LogClock(Arc::new(move || clock.load(Ordering::Relaxed))), ..options() };
    let mut log = Log::open(Arc::new(fs.clone()), DIR, clocked).unwrap().log;
    for second in 0..10 {
        now.store(second * 1_000_000, Ordering::Relaxed);
        append(&mut log, 20);
        log.sync().unwrap();
    }
    let (now, all, end) = (9_000_000, log.bytes(), LogPosition(200));
    let old = RetentionPolicy { max_age: Some(Duration::from_secs(5)), max_bytes: None };
    assert_eq!(log.retain(old, LogPosition(0), now).unwrap(), 0, "the floor holds everything");
    assert_eq!(log.retain(RetentionPolicy::default(), end, now).unwrap(), 0, "no bound, no end");
    let gone = log.retain(old, end, now).unwrap();
    assert!((61..=100).contains(&gone), "records of second 4 are 5 s old, those of second 3 more: {gone}");
    let small = RetentionPolicy { max_age: None, max_bytes: Some(all / 4) };
    log.retain(small, LogPosition(gone + 1), now).unwrap();
    assert!(log.bytes() > all / 4 && log.first() <= LogPosition(gone + 1));
    log.retain(small, end, now).unwrap();
    assert!(log.bytes() <= all / 4 && log.bytes() > all / 8);
    assert_holds(&log, log.first().0, 200);
}

#[test]
fn the_back_is_cut_anywhere_and_the_chain_goes_on() {
    for position in (0..=100).rev() {
        let fs = MemFs::new();
        let mut log = open(&fs).unwrap().log;
        append(&mut log, 100);
        log.truncate_behind(LogPosition(position)).unwrap();
        assert_eq!(log.next(), LogPosition(position));
        fs.crash();
        if position < 100 {
            let log = open(&fs).unwrap().log;
            assert_eq!(log.next(), LogPosition(position), "a cut is synced");
        }
        let mut log = open(&fs).unwrap().log;
        append(&mut log, 30);
        log.close().unwrap();
        let log = open(&fs).unwrap().log;
        assert_holds(&log, 0, log.next().0);
    }
    let fs = MemFs::new();
    let mut log = open(&fs).unwrap().log;
    append(&mut log, 100);
    log.sync().unwrap();
    log.truncate_before(LogPosition(50)).unwrap();
    assert!(matches!(log.truncate_behind(LogPosition(3)), Err(LogError::Missing { .. })));
    assert_holds(&log, log.first().0, 100);
}

#[test]
fn names_that_are_no_file_names_are_refused() {
    let named = |name: &str| Log::open(Arc::new(MemFs::new()), DIR, LogOptions::new(name, 1)).unwrap_err();
    assert_eq!(
        named("../x").to_string(),
        "a log's name is made of a to z, 0 to 9, '-' and '_', got \"../x\""
    );
    assert!(matches!(named(""), LogError::Name { .. }));
}

#[test]
fn a_summary_reads_the_records_that_it_knows_beside_the_writer() {
    let fs = MemFs::new();
    let mut log = open(&fs).unwrap().log;
    append(&mut log, 60);
    log.sync().unwrap();
    let summary = verify(&fs, Path::new(DIR)).unwrap();
    assert_eq!(
        (summary.first(), summary.next(), summary.identity),
        (LogPosition(0), LogPosition(60), IDENTITY)
    );
    append(&mut log, 5);
    let read = |range| summary.read(Arc::new(fs.clone()), Path::new(DIR), range);
    let mut reader = read(LogPosition(17)..LogPosition(60)).unwrap();
    for number in 17..60 {
        let (position, bytes) = reader.next_record().unwrap().unwrap();
        assert_eq!((position.0, bytes), (number, record(number).as_slice()));
    }
    assert!(reader.next_record().unwrap().is_none());
    assert!(matches!(read(LogPosition(0)..LogPosition(61)), Err(LogError::Missing { .. })));
}
