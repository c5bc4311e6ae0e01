//! The n-th call to the disk fails, for every n: errors come out, and nothing synced is lost.

use super::*;
use crate::{Fault, FaultKind, FaultyFs, OpenMode};

/// A fixed life of a log; the number of records that a sync has promised, the oldest record that may be gone, and
/// the first error.
fn workload(fs: &FaultyFs) -> (u64, u64, Option<LogError>) {
    let (mut synced, mut floor) = (0, 0);
    let outcome = (|| {
        for life in 0..3 {
            let promised = LogPosition(synced);
            let options = LogOptions { promised, ..options() };
            let mut log = Log::open(Arc::new(fs.clone()), DIR, options)?.log;
            for round in 0..6 {
                for _ in 0..6 {
                    log.append(&[&record(log.next().0)])?;
                }
                if round % 2 == 1 {
                    synced = log.sync()?.0;
                }
                let mut reader = log.read_from(log.first())?;
                while let Some((position, bytes)) = reader.next_record()? {
                    assert_eq!(bytes, record(position.0));
                }
            }
            // Set before: a call that fails may have done its work.
            floor = (synced / 2).max(floor);
            log.truncate_before(LogPosition(floor))?;
            if life == 1 {
                synced -= 4;
                log.truncate_behind(LogPosition(synced))?;
            }
            synced = log.sync()?.0;
            log.close()?;
        }
        Ok(())
    })();
    (synced, floor, outcome.err())
}

#[test]
fn every_failing_call_is_an_error_and_loses_nothing_synced() {
    let clean = FaultyFs::new(Arc::new(MemFs::new()), None);
    let (synced, _, error) = workload(&clean);
    assert!(synced == 104 && error.is_none(), "{synced}, {error:?}");
    let calls = clean.calls();
    assert!(calls > 150, "{calls} calls");
    let (mut hits, mut failures, mut full) = (0, 0, 0);
    for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite, FaultKind::BitFlip] {
        for stays in [false, true] {
            // Reads that always flip a bit leave no log to look at.
            if stays && kind == FaultKind::BitFlip {
                continue;
            }
            for call in 1..=calls {
                for torn in [None, Some(call)] {
                    let disk = MemFs::new();
                    let faulty = FaultyFs::new(Arc::new(disk.clone()), Some(Fault { call, kind, stays }));
                    let (synced, floor, error) = workload(&faulty);
                    hits += u64::from(faulty.hits() > 0);
                    failures += u64::from(error.is_some());
                    full += u64::from(matches!(error, Some(LogError::Full { .. })));
                    if stays && matches!(kind, FaultKind::Eio | FaultKind::Enospc) {
                        assert!(error.is_some(), "{kind:?} from call {call} on went unseen");
                    }
                    match torn {
                        Some(seed) => disk.crash_torn(seed),
                        None => disk.crash(),
                    }
                    let options = LogOptions { promised: LogPosition(synced), ..options() };
                    let log = Log::open(Arc::new(disk), DIR, options)
                        .unwrap_or_else(|left| panic!("{kind:?} at call {call}: {error:?}, then {left}"))
                        .log;
                    assert!(log.first().0 <= floor);
                    assert_holds(&log, log.first().0, log.next().0);
                }
            }
        }
    }
    assert!(hits > calls * 6 && failures > calls * 5, "{hits} hits, {failures} failures of {calls} calls");
    assert!(full > 50, "{full} times full");
}

/// Calls until a log is open.
fn calls_to_open(disk: &MemFs) -> u64 {
    let counted = FaultyFs::new(Arc::new(disk.clone()), None);
    drop(Log::open(Arc::new(counted.clone()), DIR, options()).unwrap());
    counted.calls()
}

fn open_with(disk: &MemFs, call: u64, kind: FaultKind) -> (Log, FaultyFs) {
    let faulty = FaultyFs::new(Arc::new(disk.clone()), Some(Fault { call, kind, stays: false }));
    (Log::open(Arc::new(faulty.clone()), DIR, options()).unwrap().log, faulty)
}

#[test]
fn a_full_disk_says_so_keeps_what_waits_and_goes_on_when_there_is_room() {
    for kind in [FaultKind::Enospc, FaultKind::Edquot] {
        full_disk(kind);
    }
}

fn full_disk(kind: FaultKind) {
    let disk = MemFs::new();
    open(&disk).unwrap().log.close().unwrap();
    let (mut log, faulty) = open_with(&disk, calls_to_open(&disk) + 1, kind);
    append(&mut log, 5);
    let error = log.flush().unwrap_err();
    assert_eq!(faulty.hits(), 1);
    let path = &segments(&disk)[0];
    let wanted: u64 = 36 + (0..5).map(|number| 4 + record(number).len() as u64).sum::<u64>();
    assert_eq!(error.to_string(), format!("disk full at {path:?}: {wanted} bytes more are needed"));
    assert!(error.hint().contains("free space"));
    assert_eq!((log.written(), log.next()), (LogPosition(0), LogPosition(5)));
    assert!(log.read_from(LogPosition(0)).unwrap().next_record().unwrap().is_none(), "nothing half-visible");
    append(&mut log, 2);
    log.sync().unwrap();
    assert_holds(&log, 0, 7);
    disk.crash();
    assert_holds(&open(&disk).unwrap().log, 0, 7);
}

#[test]
fn a_segment_that_could_not_be_removed_goes_before_any_other() {
    // The first calls after opening are the removal and the sync of the folder.
    for (call, action) in [(1, "remove"), (2, "sync")] {
        let disk = MemFs::new();
        let mut log = open(&disk).unwrap().log;
        append(&mut log, 100);
        log.close().unwrap();
        let (mut log, _) = open_with(&disk, calls_to_open(&disk) + call, FaultKind::Eio);
        let error = log.truncate_before(LogPosition(30)).unwrap_err();
        assert!(matches!(&error, LogError::Io(disk) if disk.action == action), "{error}");
        let left = log.first();
        assert!(left > LogPosition(0));
        assert_eq!(log.truncate_before(LogPosition(60)).unwrap(), log.first().0 - left.0);
        assert!(log.first() > left);
        let first = log.first();
        drop(log);
        disk.crash();
        let log = open(&disk).unwrap().log;
        assert_eq!(log.first(), first, "no file is left in front of a gap");
        assert_holds(&log, first.0, 100);
    }
}

#[test]
fn a_failed_sync_is_final() {
    let disk = MemFs::new();
    let mut log = open(&disk).unwrap().log;
    append(&mut log, 1);
    log.close().unwrap();
    // The first call is the write, the second the sync.
    let opened = calls_to_open(&disk);
    let (mut log, _) = open_with(&disk, opened + 2, FaultKind::Eio);
    append(&mut log, 1);
    let error = log.sync().unwrap_err();
    assert!(matches!(&error, LogError::Io(disk) if disk.action == "sync"), "{error}");
    let again = log.sync().unwrap_err();
    assert!(matches!(&again, LogError::Poisoned { reason, .. } if reason.starts_with("sync")), "{again}");
    assert!(again.hint().contains("restart"));
    for outcome in [
        log.append(&[b"x"]).map(drop),
        log.flush().map(drop),
        log.truncate_before(LogPosition(1)).map(drop),
        log.truncate_behind(LogPosition(0)),
    ] {
        assert!(matches!(outcome, Err(LogError::Poisoned { .. })));
    }
    assert_holds(&log, 0, 2);
    disk.crash();
    assert_holds(&open(&disk).unwrap().log, 0, 1);
}

#[test]
fn a_sync_beside_the_work_covers_what_it_found_and_its_failure_is_as_final() {
    let disk = MemFs::new();
    let beside = LogOptions { writeback_bytes: 100, ..options() };
    let mut log = Log::open(Arc::new(disk.clone()), DIR, beside.clone()).unwrap().log;
    append(&mut log, 5);
    log.flush().unwrap();
    assert_eq!(log.synced(), LogPosition(0), "nothing is promised");
    log.settle().unwrap();
    disk.crash();
    assert_holds(&open(&disk).unwrap().log, 0, 5);

    // The first call is the write, the second the sync next to it.
    let fault = Fault { call: calls_to_open(&disk) + 2, kind: FaultKind::Eio, stays: false };
    let faulty = FaultyFs::new(Arc::new(disk.clone()), Some(fault));
    let mut log = Log::open(Arc::new(faulty.clone()), DIR, beside).unwrap().log;
    append(&mut log, 5);
    log.flush().unwrap();
    // The next sync would succeed: it must not be believed.
    let error = log.sync().unwrap_err();
    assert!(matches!(&error, LogError::Io(disk) if disk.action == "sync"), "{error}");
    assert_eq!((faulty.hits(), log.synced()), (1, LogPosition(5)));
    assert!(matches!(log.sync().unwrap_err(), LogError::Poisoned { .. }));
    assert!(matches!(log.append(&[b"x"]), Err(LogError::Poisoned { .. })));
    disk.crash();
    assert_holds(&open(&disk).unwrap().log, 0, 5);
}

#[test]
fn what_a_failed_sync_lost_is_written_again_before_anything_stands_on_it() {
    let disk = MemFs::new();
    let mut log = open(&disk).unwrap().log;
    append(&mut log, 5);
    log.sync().unwrap();
    append(&mut log, 5);
    log.flush().unwrap();
    drop(log);
    disk.lose_unsynced(segments(&disk).last().unwrap()).unwrap();
    let mut log = open(&disk).unwrap().log;
    assert_holds(&log, 0, 10);
    append(&mut log, 5);
    log.sync().unwrap();
    disk.crash();
    assert_holds(&open(&disk).unwrap().log, 0, 15);
}

#[test]
fn opening_and_inspecting_change_nothing_where_nothing_is_wrong() {
    let disk = MemFs::new();
    let mut log = open(&disk).unwrap().log;
    append(&mut log, 30);
    log.close().unwrap();
    let images = || segments(&disk).iter().map(|path| disk.bytes(path).unwrap()).collect::<Vec<_>>();
    let before = images();
    inspect(&disk, Path::new(DIR)).unwrap();
    drop(open(&disk).unwrap());
    assert_eq!(images(), before);
    // A segment that had only been begun: seen, not removed, then removed.
    let begun = Path::new(DIR).join("journal-00000000000000000030.thl");
    disk.open(&begun, OpenMode::CreateNew).unwrap().write_all_at(&[0; 9], 0).unwrap();
    let summary = verify(&disk, Path::new(DIR)).unwrap();
    assert_eq!(summary.torn, Some(TornTail { path: begun.clone(), pos: 0, bytes: 9 }));
    assert!(disk.bytes(&begun).is_ok());
    assert_eq!(open(&disk).unwrap().log.next(), LogPosition(30));
    assert!(disk.bytes(&begun).is_err());
}
