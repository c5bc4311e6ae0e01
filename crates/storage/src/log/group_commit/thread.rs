//! The rounds of the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::channel::{Channel, Committed};
use super::{End, Shared, Wake, lock};
use crate::log::LogError;
use crate::log::group::GroupBuffer;

/// A round that took less than this many bytes was hardly worth its system calls.
const SMALL_ROUND: usize = 64 << 10;

/// How long a round waits for more where records come faster than small rounds take them and nobody waits for one.
/// Timers of the kernel may add as much again.
const PAUSE: Duration = Duration::from_micros(50);

/// A log and the buffer that travels between it and its queue.
struct Lane {
    channel: Arc<Channel>,
    taken: GroupBuffer,
}

/// Works until told to end or until something fails.
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
    let channels = shared.channels().clone();
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
            lanes.push(Lane { channel: Arc::clone(channel), taken: GroupBuffer::default() });
        }
        pause = pause_after(round(&mut lanes)?);
        if wake.end == Some(End::Close) {
            return lanes.iter().try_for_each(|lane| lane.channel.close());
        }
    }
}

/// What a round that finds work at once waits for more.
fn pause_after(last: Committed) -> Duration {
    let is_in_vain = last.is_synced || last.is_awaited || last.bytes >= SMALL_ROUND;
    if is_in_vain { Duration::ZERO } else { PAUSE }
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

/// Makes durable what has gathered. Why the orders are these, the module's header says.
fn round(lanes: &mut [Lane]) -> Result<Committed, LogError> {
    for lane in lanes.iter_mut().rev() {
        lane.channel.take(&mut lane.taken);
    }
    let mut all = Committed::default();
    for lane in lanes {
        let one = lane.channel.commit(&mut lane.taken)?;
        all.bytes += one.bytes;
        all.is_synced |= one.is_synced;
        all.is_awaited |= one.is_awaited;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Committed = Committed { bytes: SMALL_ROUND - 1, is_synced: false, is_awaited: false };

    /// Long enough that nothing else ends it.
    const AN_HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn only_small_rounds_that_nobody_waits_for_are_followed_by_a_pause() {
        assert_eq!(pause_after(SMALL), PAUSE);
        let others = [
            Committed { bytes: SMALL_ROUND, ..SMALL },
            Committed { is_synced: true, ..SMALL },
            Committed { is_awaited: true, ..SMALL },
        ];
        for other in others {
            assert_eq!(pause_after(other), Duration::ZERO, "{other:?}");
        }
    }

    /// A thread that sleeps with nothing to gather for but the pause, where `Wake` is as it finds it.
    fn start(found: Wake, pause: Duration) -> (Arc<Shared>, std::thread::JoinHandle<Wake>) {
        let shared = Arc::new(Shared::default());
        *lock(&shared.wake) = found;
        let sleeper = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || sleep(&shared, Duration::ZERO, pause)
        });
        while !lock(&shared.wake).is_awaited && !sleeper.is_finished() {
            std::thread::yield_now();
        }
        (shared, sleeper)
    }

    #[test]
    fn a_round_that_had_to_be_woken_does_not_pause() {
        let (shared, sleeper) = start(Wake::default(), AN_HOUR);
        shared.wake(|wake| wake.dirty = true);
        assert!(sleeper.join().unwrap().dirty);
    }

    #[test]
    fn a_round_that_finds_work_pauses_until_somebody_is_in_a_hurry() {
        let (shared, sleeper) = start(Wake { dirty: true, ..Wake::default() }, AN_HOUR);
        shared.wake(|wake| wake.hurry = true);
        assert!(sleeper.join().unwrap().hurry, "it had gone on before");
        let (_, woken) = start(Wake { dirty: true, ..Wake::default() }, Duration::from_millis(1));
        assert!(!woken.join().unwrap().hurry);
    }
}
