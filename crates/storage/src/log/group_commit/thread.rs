//! The rounds of the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::channel::{Channel, Committed, Taken};
use super::{End, Shared, Wake, lock};
use crate::log::LogError;

/// A round of less than this many bytes was hardly worth its system calls.
const SMALL_ROUND: usize = 64 << 10;

/// A round of at least this number of records has them because they come fast, not because a few senders came together.
const FAST_RECORDS: u64 = 8;

/// How long a round waits for more where small rounds follow each other closely. Timers of the kernel may add as much
/// again.
const PAUSE: Duration = Duration::from_micros(50);

/// A log and the buffer that travels between it and its queue.
struct Lane {
    channel: Arc<Channel>,
    taken: Taken,
}

/// Works until it is asked to end or until something fails.
pub(super) fn run(shared: &Shared, gather: Duration) {
    let outcome = catch_unwind(AssertUnwindSafe(|| work(shared, gather)));
    let failure = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error),
        Err(_) => Some(LogError::Poisoned {
            dir: PathBuf::new(),
            reason: "the thread that writes logs panicked".to_owned(),
        }),
    };
    if let Some(failure) = failure {
        let _ = shared.failure.set(failure);
    }
    // Taken out: channels know the thread's side, and would keep it, and their files open, for good.
    let channels = std::mem::take(&mut *shared.channels());
    for channel in channels {
        // Whatever a callback does, the others must hear of the end.
        if catch_unwind(AssertUnwindSafe(|| channel.end())).is_err() {
            tracing::error!("a callback of a log panicked");
        }
    }
}

fn work(shared: &Shared, gather: Duration) -> Result<(), LogError> {
    let mut lanes: Vec<Lane> = Vec::new();
    let mut pause = Duration::ZERO;
    loop {
        let wake = sleep(shared, gather, pause);
        if wake.end == Some(End::Abandon) {
            return Ok(());
        }
        for channel in shared.channels().iter().skip(lanes.len()) {
            lanes.push(Lane { channel: Arc::clone(channel), taken: Taken::default() });
        }
        pause = pause_after(round(&mut lanes)?);
        if wake.end == Some(End::Close) {
            return lanes.iter().try_for_each(|lane| lane.channel.close());
        }
    }
}

/// How long the next round waits for more if it finds work at once: not at all where a log syncs each round, which
/// gathers by itself, or if a thread waited for the last one.
fn pause_after(last: Committed) -> Duration {
    let is_small = last.bytes < SMALL_ROUND && last.records >= FAST_RECORDS;
    if is_small && !last.may_sync && !last.is_awaited { PAUSE } else { Duration::ZERO }
}

/// Waits until there is work, then `gather` for more of it, or at least `pause` if there was work from the start; what it
/// was woken for is taken back.
fn sleep(shared: &Shared, gather: Duration, pause: Duration) -> Wake {
    let mut wake = lock(&shared.wake);
    wake.is_awaited = true;
    let gather = if wake.dirty { gather.max(pause) } else { gather };
    while !wake.dirty && !wake.hurry && wake.end.is_none() {
        wake = shared.woken.wait(wake).unwrap_or_else(PoisonError::into_inner);
    }
    let until = Instant::now() + gather;
    while !wake.hurry && wake.end.is_none() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        (wake, _) = shared.woken.wait_timeout(wake, left).unwrap_or_else(PoisonError::into_inner);
    }
    std::mem::take(&mut wake)
}

/// Makes the gathered records durable. The module's header explains the order.
fn round(lanes: &mut [Lane]) -> Result<Committed, LogError> {
    for lane in lanes.iter_mut().rev() {
        lane.channel.take(&mut lane.taken);
    }
    let mut all = Committed::default();
    for lane in lanes {
        all += lane.channel.commit(&mut lane.taken)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::{Durability, GroupCommit, LogHandle, Registration};
    use super::*;
    use crate::MemFs;
    use crate::log::{Log, LogOptions};

    const SMALL: Committed =
        Committed { bytes: SMALL_ROUND - 1, records: FAST_RECORDS, may_sync: false, is_awaited: false };

    #[test]
    fn a_log_is_let_go_with_its_thread_and_its_handles() {
        let fs = std::sync::Arc::new(MemFs::new());
        let group = GroupCommit::start(Duration::ZERO).unwrap();
        let log = Log::open(fs, "log", LogOptions::new("log", 1)).unwrap().log;
        let handle = group.register(log, Registration::new(Durability::Written)).unwrap();
        let shared = std::sync::Arc::downgrade(&group.shared);
        drop(group);
        assert!(shared.upgrade().is_some(), "the handle has it");
        drop(handle);
        assert!(shared.upgrade().is_none());
    }

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn only_small_rounds_of_many_records_that_nobody_waits_for_are_followed_by_a_pause() {
        assert_eq!(pause_after(SMALL), PAUSE);
        let others = [
            Committed { bytes: SMALL_ROUND, ..SMALL },
            Committed { records: FAST_RECORDS - 1, ..SMALL },
            Committed { may_sync: true, ..SMALL },
            Committed { is_awaited: true, ..SMALL },
        ];
        for other in others {
            assert_eq!(pause_after(other), Duration::ZERO, "{other:?}");
        }
    }

    fn lane(group: &GroupCommit, name: &str, durability: Durability) -> (LogHandle, Lane) {
        let log = Log::open(Arc::new(MemFs::new()), "/log", LogOptions::new(name, 1)).unwrap().log;
        let handle = group.register(log, Registration::new(durability)).unwrap();
        let channel = Arc::clone(group.shared.channels().last().unwrap());
        (handle, Lane { channel, taken: Taken::default() })
    }

    #[test]
    fn a_round_tells_what_it_did_for_all_logs() {
        // Its own thread gathers until the test is over.
        let group = GroupCommit::start(LONG).unwrap();
        let (first, one) = lane(&group, "first", Durability::Written);
        let (second, other) = lane(&group, "second", Durability::None);
        let mut lanes = vec![one, other];
        for _ in 0..5 {
            first.append(&[&[1; 100]]).unwrap();
        }
        second.append(&[&[1; 200]]).unwrap();
        let done = round(&mut lanes).unwrap();
        assert_eq!((done.records, done.may_sync, done.is_awaited), (6, false, false));
        assert!((700..1000).contains(&done.bytes), "{}", done.bytes);
        assert_eq!(round(&mut lanes).unwrap(), Committed::default());

        let (_, synced) = lane(&group, "third", Durability::Synced);
        lanes.push(synced);
        assert!(round(&mut lanes).unwrap().may_sync, "also where it had nothing");
    }

    #[test]
    fn a_round_moves_what_counts_as_durable_only_where_an_acknowledgement_waits_for_the_disk() {
        let group = GroupCommit::start(LONG).unwrap();
        for (durability, before, after) in
            [(Durability::None, 3, 3), (Durability::Written, 0, 2), (Durability::Synced, 0, 2)]
        {
            let (handle, mut lane) = lane(&group, "log", durability);
            handle.append(&[b"taken"]).unwrap();
            handle.append(&[b"taken"]).unwrap();
            lane.channel.take(&mut lane.taken);
            handle.append(&[b"behind the round"]).unwrap();
            assert_eq!(handle.durable().0, before, "{durability:?}");
            lane.channel.commit(&mut lane.taken).unwrap();
            assert_eq!(handle.durable().0, after, "{durability:?}");
        }
    }

    /// What counts as durable in a log that is synced, and what a power cut leaves of it, after some rounds.
    fn outcome(act: impl FnOnce(&LogHandle, &mut dyn FnMut() -> bool)) -> (u64, u64) {
        let group = GroupCommit::start(LONG).unwrap();
        let disk = MemFs::new();
        let open = || Log::open(Arc::new(disk.clone()), "/log", LogOptions::new("log", 1)).unwrap().log;
        let handle = group.register(open(), Registration::new(Durability::Synced)).unwrap();
        let channel = Arc::clone(group.shared.channels().last().unwrap());
        let mut lanes = [Lane { channel, taken: Taken::default() }];
        act(&handle, &mut || round(&mut lanes).unwrap().may_sync);
        let durable = handle.durable().0;
        disk.crash();
        (durable, open().next().0)
    }

    #[test]
    fn a_round_syncs_a_log_only_for_records_that_ask_for_it_and_takes_along_those_that_do_not() {
        let once = outcome(|log, round| {
            log.append_unsynced(&[b"0"]).unwrap();
            assert!(!round());
        });
        assert_eq!(once, (1, 0), "it counts, and a power cut takes it");
        let along = outcome(|log, round| {
            log.append_unsynced(&[b"0"]).unwrap();
            assert!(!round());
            log.append(&[b"1"]).unwrap();
            log.append_unsynced(&[b"2"]).unwrap();
            assert!(round());
        });
        assert_eq!(along, (3, 3));
        let behind = outcome(|log, round| {
            log.append(&[b"0"]).unwrap();
            assert!(round());
            log.append_unsynced(&[b"1"]).unwrap();
            assert!(!round(), "the wish was granted");
        });
        assert_eq!(behind, (2, 1));
    }

    #[test]
    fn a_record_that_comes_while_its_log_is_written_asks_for_the_next_round() {
        let group = GroupCommit::start(LONG).unwrap();
        let (handle, mut lane) = lane(&group, "log", Durability::Synced);
        handle.append_unsynced(&[b"0"]).unwrap();
        lane.channel.take(&mut lane.taken);
        handle.append(&[b"1"]).unwrap();
        assert!(!lane.channel.commit(&mut lane.taken).unwrap().may_sync);
        lane.channel.take(&mut lane.taken);
        assert!(lane.channel.commit(&mut lane.taken).unwrap().may_sync);
        assert_eq!(handle.durable().0, 2);
    }

    /// A thread that sleeps with nothing to gather for but the pause, where `Wake` is as it finds it.
    fn start(found: Wake, pause: Duration) -> (Arc<Shared>, std::thread::JoinHandle<(Wake, Duration)>) {
        let shared = Arc::new(Shared::default());
        *lock(&shared.wake) = found;
        let sleeper = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let began = Instant::now();
                let wake = sleep(&shared, Duration::ZERO, pause);
                (wake, began.elapsed())
            }
        });
        while !lock(&shared.wake).is_awaited && !sleeper.is_finished() {
            std::thread::yield_now();
        }
        (shared, sleeper)
    }

    #[test]
    fn a_round_that_had_to_be_woken_does_not_pause() {
        let (shared, sleeper) = start(Wake::default(), LONG);
        shared.wake(|wake| wake.dirty = true);
        let (_, slept) = sleeper.join().unwrap();
        assert!(slept < LONG);
    }

    #[test]
    fn a_round_that_finds_work_pauses_unless_somebody_is_in_a_hurry() {
        let found = Wake { dirty: true, ..Wake::default() };
        let (shared, sleeper) = start(found, LONG);
        shared.wake(|wake| wake.hurry = true);
        let (wake, slept) = sleeper.join().unwrap();
        assert!(wake.hurry && slept < LONG);
        let brief = Duration::from_millis(1);
        let (_, slept) = start(found, brief).1.join().unwrap();
        assert!(slept >= brief);
    }
}
