//! Many appenders and one thread: records that were reported durable are there after a crash, whatever the timing.

use std::io;
use std::sync::mpsc;
use std::sync::{Barrier, Mutex};
use std::thread;

use super::*;
use crate::{Fault, FaultKind, FaultyFs, Fs, Layer, Layered};

fn registered(
    group: &GroupCommit,
    fs: Arc<dyn Fs>,
    dir: &str,
    registration: Registration,
) -> Result<LogHandle, LogError> {
    let log = Log::open(fs, dir, LogOptions { segment_bytes: 20_000, ..options() })?.log;
    group.register(log, registration)
}

/// Appends until the disk is gone; the records whose durability was reported.
fn appender(handle: &LogHandle, thread: u64, reports: &mpsc::Sender<()>) -> Vec<(u64, Vec<u8>)> {
    let mut reported = Vec::new();
    for number in 0_u64.. {
        let bytes = [thread.to_le_bytes(), number.to_le_bytes()].concat();
        let Ok(ticket) = handle.append(&[&bytes]) else { break };
        if handle.wait(ticket).is_err() {
            break;
        }
        reported.push((ticket.position.0, bytes));
        let _ = reports.send(());
    }
    reported
}

#[test]
fn every_ticket_that_was_reported_durable_survives_a_crash() {
    for torn in [None, Some(1), Some(2), Some(3)] {
        let fs = MemFs::new();
        let group = GroupCommit::start(Duration::ZERO).unwrap();
        let handle =
            registered(&group, Arc::new(fs.clone()), DIR, Registration::new(Durability::Synced)).unwrap();
        let (sender, reports) = mpsc::channel();
        let reported: Vec<(u64, Vec<u8>)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let (handle, sender) = (handle.clone(), sender.clone());
                    scope.spawn(move || appender(&handle, thread, &sender))
                })
                .collect();
            for _ in 0..300 {
                reports.recv().unwrap();
            }
            match torn {
                Some(seed) => fs.crash_torn(seed),
                None => fs.crash(),
            }
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(reported.len() >= 300);
        assert!(group.close().is_err(), "the failure is reported at the end, too");
        let log = open(&fs).unwrap().log;
        let mut there = std::collections::BTreeMap::new();
        let mut reader = log.read_from(log.first()).unwrap();
        while let Some((position, bytes)) = reader.next_record().unwrap() {
            there.insert(position.0, bytes.to_vec());
        }
        for (position, bytes) in reported {
            assert_eq!(there.get(&position), Some(&bytes), "torn {torn:?}");
        }
    }
}

#[test]
fn a_log_never_names_what_an_earlier_one_does_not_hold() {
    const ORDER: &str = "/jobs/payments/order";
    for seed in 0..12 {
        let fs = MemFs::new();
        let group = GroupCommit::start(Duration::ZERO).unwrap();
        let synced = || Registration::new(Durability::Synced);
        let journal = registered(&group, Arc::new(fs.clone()), DIR, synced()).unwrap();
        let order = registered(&group, Arc::new(fs.clone()), ORDER, synced()).unwrap();
        let (sender, reports) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..2 {
                let (journal, order, sender) = (journal.clone(), order.clone(), sender.clone());
                scope.spawn(move || {
                    while let Ok(ticket) = journal.append(&[&[7; 100]]) {
                        let Ok(named) = order.append(&[&ticket.position.0.to_le_bytes()]) else { break };
                        if named.position.0 % 16 == 0 {
                            if order.wait(named).is_err() {
                                break;
                            }
                            assert!(journal.is_durable(ticket));
                            let _ = sender.send(());
                        }
                    }
                });
            }
            for _ in 0..20 {
                reports.recv().unwrap();
            }
            fs.crash_torn(seed);
        });
        drop(group);
        let journal = open(&fs).unwrap().log.next().0;
        let order = Log::open(Arc::new(fs.clone()), ORDER, options()).unwrap().log;
        let mut reader = order.read_from(LogPosition(0)).unwrap();
        while let Some((_, bytes)) = reader.next_record().unwrap() {
            let named = u64::from_le_bytes(bytes.try_into().unwrap());
            assert!(named < journal, "the order log names {named}, the journal ends at {journal}");
        }
        assert!(reader.position().0 >= 20);
    }
}

#[test]
fn what_is_durable_names_only_what_is_durable() {
    let fs = MemFs::new();
    let group = GroupCommit::start(Duration::ZERO).unwrap();
    let written = || Registration::new(Durability::Written);
    let journal = registered(&group, Arc::new(fs.clone()), DIR, written()).unwrap();
    // They are between the two, so that appenders run while a round takes its buffers.
    for other in 0..300 {
        registered(&group, Arc::new(fs.clone()), &format!("/others/{other}"), written()).unwrap();
    }
    let order = registered(&group, Arc::new(fs.clone()), "/order", written()).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let ticket = journal.append(&[b"raw"]).unwrap();
                    let named = order.append(&[&ticket.position.0.to_le_bytes()]).unwrap();
                    order.wait(named).unwrap();
                    assert!(journal.is_durable(ticket), "{named:?} is durable, {ticket:?} is not");
                }
            });
        }
    });
    group.close().unwrap();
}

/// A callback that keeps its arguments, and stops the thread at the first progress until it is let go.
fn gate() -> (Progress, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (stopped, is_stopped) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(Some(gate));
    let progress: Progress = Arc::new(move |_| {
        if let Some(gate) = gate.lock().unwrap().take() {
            let _ = stopped.send(());
            let _ = gate.recv();
        }
    });
    (progress, is_stopped, go)
}

/// A log with room for 1,000 bytes and one record in it, whose thread has stopped until it is allowed to go on.
fn stopped(fs: &MemFs, durability: Durability) -> (GroupCommit, LogHandle, mpsc::Sender<()>) {
    let group = GroupCommit::start(Duration::ZERO).unwrap();
    let (progress, is_stopped, go) = gate();
    let registration =
        Registration { max_bytes: 1000, on_progress: Some(progress), ..Registration::new(durability) };
    let handle = registered(&group, Arc::new(fs.clone()), DIR, registration).unwrap();
    let first = handle.append(&[b"first"]).unwrap();
    handle.wait(first).unwrap();
    is_stopped.recv().unwrap();
    (group, handle, go)
}

#[test]
fn a_full_buffer_refuses_or_makes_wait_and_goes_on_after_the_round() {
    let fs = MemFs::new();
    let (group, handle, go) = stopped(&fs, Durability::Synced);
    let mut taken = 0;
    while handle.try_append(&[&[1; 50]]).unwrap().is_some() {
        taken += 1;
    }
    assert_eq!(taken, 17, "a thousand bytes, less one group's header");
    assert!(handle.try_append(&[&[1; 50]]).unwrap().is_none());
    let (both, waiter) = (Barrier::new(2), handle.clone());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            both.wait();
            let ticket = waiter.append(&[&[2; 50]]).unwrap();
            waiter.wait(ticket).unwrap();
            ticket
        });
        both.wait();
        go.send(()).unwrap();
        assert_eq!(waiting.join().unwrap().position, LogPosition(18));
    });
    let large = handle.append(&[&[3; 5000]]).unwrap();
    handle.wait(large).unwrap();
    group.close().unwrap();
    assert_eq!(open(&fs).unwrap().log.next(), LogPosition(20));
}

#[test]
fn who_finds_no_room_or_asks_for_a_sync_ends_the_gathering() {
    let fs = MemFs::new();
    // Long enough that nothing else ends it.
    let group = GroupCommit::start(Duration::from_secs(3600)).unwrap();
    let registration = Registration { max_bytes: 1000, ..Registration::new(Durability::Written) };
    let handle = registered(&group, Arc::new(fs.clone()), DIR, registration).unwrap();
    // Time for the thread to begin its gathering; where it takes longer, less is tested.
    let gathers = || thread::sleep(Duration::from_millis(20));
    for number in 0..100 {
        handle.append(&[&[1; 50]]).unwrap();
        if number % 17 == 0 {
            gathers();
        }
    }
    while handle.try_append(&[&[2; 50]]).unwrap().is_some() {}
    let refused = handle.next();
    while handle.durable() < refused {
        thread::yield_now();
    }
    handle.append(&[&[3; 50]]).unwrap();
    gathers();
    handle.sync().unwrap();
    fs.crash();
    drop(group);
    assert_eq!(open(&fs).unwrap().log.next().0, refused.0 + 1);
}

#[test]
fn all_who_wait_for_room_get_it_or_hear_of_the_end() {
    enum End {
        None,
        Close,
        Drop,
    }
    for end in [End::None, End::Close, End::Drop] {
        let fs = MemFs::new();
        let (group, handle, go) = stopped(&fs, Durability::Written);
        // No two of these have room at once.
        handle.append(&[&[0; 900]]).unwrap();
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| handle.append(&[&[1; 900]]))).collect();
            while handle.room_waiter_count() < 4 {
                thread::yield_now();
            }
            let outcomes = || waiting.into_iter().map(|waiting| waiting.join().unwrap());
            match end {
                End::None => {
                    go.send(()).unwrap();
                    let mut taken: Vec<u64> = outcomes().map(|ticket| ticket.unwrap().position.0).collect();
                    taken.sort_unstable();
                    assert_eq!(taken, [2, 3, 4, 5]);
                    group.close().unwrap();
                }
                End::Close => {
                    let closing = scope.spawn(|| group.close());
                    assert!(outcomes().all(|outcome| matches!(outcome, Err(LogError::Closed { .. }))));
                    go.send(()).unwrap();
                    closing.join().unwrap().unwrap();
                }
                End::Drop => {
                    scope.spawn(|| drop(group));
                    go.send(()).unwrap();
                    // Some may get room before.
                    assert!(
                        outcomes().all(|outcome| matches!(outcome, Ok(_) | Err(LogError::Closed { .. })))
                    );
                }
            }
        });
        assert_eq!(handle.room_waiter_count(), 0);
    }
}

#[test]
fn the_first_failure_is_told_to_everybody_for_good() {
    let disk = MemFs::new();
    let opened = {
        Log::open(Arc::new(disk.clone()), "/other", options()).unwrap().log.close().unwrap();
        let counted = FaultyFs::new(Arc::new(disk.clone()), None);
        drop(Log::open(Arc::new(counted.clone()), "/other", options()).unwrap());
        counted.calls()
    };
    let fault = Fault { call: opened + 3, kind: FaultKind::Eio, stays: false };
    let faulty = FaultyFs::new(Arc::new(disk.clone()), Some(fault));
    let group = GroupCommit::start(Duration::ZERO).unwrap();
    let (sender, told) = mpsc::channel();
    let listen = |name: &'static str| {
        let sender = sender.clone();
        let on_progress: Progress = Arc::new(move |progress| sender.send((name, progress)).unwrap());
        Registration { on_progress: Some(on_progress), ..Registration::new(Durability::Synced) }
    };
    let healthy = registered(&group, Arc::new(disk.clone()), DIR, listen("healthy")).unwrap();
    let broken = registered(&group, Arc::new(faulty.clone()), "/other", listen("broken")).unwrap();
    let ticket = healthy.append(&[b"a"]).unwrap();
    healthy.wait(ticket).unwrap();
    let mut failure = None;
    for _ in 0..4 {
        let outcome = broken.append(&[b"b"]).and_then(|ticket| broken.wait(ticket));
        failure = failure.or(outcome.err());
    }
    let failure = failure.unwrap().to_string();
    assert_eq!(faulty.hits(), 1);
    for error in [
        broken.append(&[b"c"]).unwrap_err(),
        healthy.append(&[b"c"]).unwrap_err(),
        healthy.try_append(&[b"c"]).unwrap_err(),
        healthy.read_from(LogPosition(0)).unwrap_err(),
        group.close().unwrap_err(),
    ] {
        assert_eq!(error.to_string(), failure);
    }
    healthy.wait(ticket).unwrap();
    let failures: Vec<_> =
        told.try_iter().filter_map(|(name, progress)| Some((name, progress.err()?))).collect();
    assert_eq!(failures.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["healthy", "broken"]);
    assert!(failures.iter().all(|(_, error)| error.to_string() == failure));
}

#[test]
fn closing_makes_everything_durable_and_handles_say_closed() {
    for durability in [Durability::None, Durability::Written, Durability::Synced] {
        let fs = MemFs::new();
        // Long enough that nothing but closing ends the gathering.
        let group = GroupCommit::start(Duration::from_secs(3600)).unwrap();
        let handle = registered(&group, Arc::new(fs.clone()), DIR, Registration::new(durability)).unwrap();
        let tickets: Vec<_> = (0..100).map(|number| handle.append(&[&record(number)]).unwrap()).collect();
        assert_eq!(handle.is_durable(tickets[0]), durability == Durability::None);
        group.close().unwrap();
        assert!(tickets.iter().all(|ticket| handle.is_durable(*ticket) && handle.wait(*ticket).is_ok()));
        assert!(matches!(handle.append(&[b"x"]), Err(LogError::Closed { .. })));
        assert!(matches!(handle.first(), Err(LogError::Closed { .. })));
        fs.crash();
        assert_holds(&open(&fs).unwrap().log, 0, 100);
    }
}

#[test]
fn giving_up_wakes_who_waits() {
    let group = GroupCommit::start(Duration::from_secs(3600)).unwrap();
    let handle =
        registered(&group, Arc::new(MemFs::new()), DIR, Registration::new(Durability::Written)).unwrap();
    let ticket = handle.append(&[b"x"]).unwrap();
    drop(group);
    assert!(matches!(handle.wait(ticket), Err(LogError::Closed { .. })));
}

#[test]
fn a_panic_in_a_callback_is_a_failure_and_nobody_waits_for_ever() {
    let group = GroupCommit::start(Duration::ZERO).unwrap();
    let on_progress: Progress = Arc::new(|_| panic!("planted"));
    let registration =
        Registration { on_progress: Some(on_progress), ..Registration::new(Durability::Written) };
    let handle = registered(&group, Arc::new(MemFs::new()), DIR, registration).unwrap();
    let other =
        registered(&group, Arc::new(MemFs::new()), DIR, Registration::new(Durability::Written)).unwrap();
    handle.append(&[b"x"]).unwrap();
    let error = loop {
        if let Err(error) = other.append(&[b"y"]).and_then(|ticket| other.wait(ticket)) {
            break error;
        }
    };
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(group.close().is_err());
}

#[test]
fn readers_and_retention_work_beside_appenders() {
    let fs = MemFs::new();
    let group = GroupCommit::start(Duration::ZERO).unwrap();
    let log = open(&fs).unwrap().log;
    let handle = group.register(log, Registration::new(Durability::Written)).unwrap();
    thread::scope(|scope| {
        let writer = handle.clone();
        let writing = scope.spawn(move || {
            // A round is in one segment, however large it is: it must not be all of them.
            for number in 0..2000 {
                let ticket = writer.append(&[&record(number)]).unwrap();
                if number % 100 == 99 {
                    writer.wait(ticket).unwrap();
                }
            }
        });
        let mut seen = 0;
        while seen < 1000 {
            let mut reader = handle.read_from(LogPosition(seen)).unwrap();
            while let Some((position, bytes)) = reader.next_record().unwrap() {
                assert_eq!((position.0, bytes), (seen, record(seen).as_slice()));
                seen += 1;
            }
            handle.truncate_before(LogPosition(seen)).unwrap();
        }
        writing.join().unwrap();
    });
    assert!(handle.first().unwrap() > LogPosition(500));
    group.close().unwrap();
    let log = open(&fs).unwrap().log;
    assert_holds(&log, log.first().0, 2000);
}

/// A disk on which removing a file takes until it is allowed to go on.
#[derive(Debug)]
struct SlowRemoval {
    disk: MemFs,
    begun: mpsc::SyncSender<()>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl Layer for SlowRemoval {
    fn inner(&self) -> &dyn Fs {
        &self.disk
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.begun.send(()).map_err(io::Error::other)?;
        let go = self.go.lock().unwrap().recv_timeout(Duration::from_secs(20));
        go.map_err(|_| io::Error::other("nothing went on while a file was removed"))?;
        self.disk.remove(path)
    }
}

#[test]
fn records_become_durable_while_an_old_segment_is_removed() {
    let ((begun, has_begun), (go_on, go)) = (mpsc::sync_channel(0), mpsc::channel());
    let fs = Layered::over(SlowRemoval { disk: MemFs::new(), begun, go: Mutex::new(go) });
    let group = GroupCommit::start(Duration::ZERO).unwrap();
    let handle =
        registered(&group, Arc::new(fs.clone()), DIR, Registration::new(Durability::Synced)).unwrap();
    let append = |number: u64| {
        let ticket = handle.append(&[&number.to_le_bytes(), &[7; 1000]]).unwrap();
        handle.wait(ticket).unwrap();
    };
    (0..50).for_each(append);
    let files = || fs.list(Path::new(DIR)).unwrap();
    let before = files();
    thread::scope(|scope| {
        let removing = scope.spawn(|| handle.truncate_before(LogPosition(40)));
        has_begun.recv().unwrap();
        assert!(handle.first().unwrap() > LogPosition(0), "it has left the log before its file goes");
        append(50);
        assert!(!removing.is_finished() && files() == before, "the file is still being removed");
        go_on.send(()).unwrap();
        // The second removal fails, as if the disk did.
        has_begun.recv().unwrap();
        drop(go_on);
        let error = removing.join().unwrap().unwrap_err();
        assert!(matches!(&error, LogError::Io(disk) if disk.path.ends_with(&before[1])), "{error}");
    });
    assert_eq!(files(), before[1..]);
    group.close().unwrap();
    assert_eq!(open(&fs.layer().disk).unwrap().log.next(), LogPosition(51));
}

/// Logs that ask for less can be synced when it matters, while another thread appends all the time.
#[test]
fn what_was_synced_on_demand_survives_a_crash_whatever_the_durability() {
    for durability in [Durability::None, Durability::Written, Durability::Synced] {
        let fs = MemFs::new();
        let group = GroupCommit::start(Duration::ZERO).unwrap();
        let handle = registered(&group, Arc::new(fs.clone()), DIR, Registration::new(durability)).unwrap();
        let (stop, mut synced) = (std::sync::atomic::AtomicBool::new(false), 0);
        thread::scope(|scope| {
            let (beside, stop) = (handle.clone(), &stop);
            scope.spawn(move || {
                // Bounded: the disk in memory copies a file to sync it.
                for _ in 0..20_000 {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) || beside.append(&[b"more"]).is_err() {
                        break;
                    }
                    thread::yield_now();
                }
            });
            for _ in 0..50 {
                let mine = handle.append(&[b"mine"]).unwrap();
                handle.sync().unwrap();
                synced = mine.position.0 + 1;
            }
            handle.sync().unwrap();
            fs.crash();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let _ = group.close();
        let log = open(&fs).unwrap().log;
        assert!(log.next().0 >= synced, "{durability:?}: {} of {synced}", log.next());
    }
}
