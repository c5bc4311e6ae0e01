//! The rounds of the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::{End, Shared, Wake, lock};
use crate::log::LogError;
use crate::log::group::GroupBuffer;

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
    loop {
        let wake = sleep(shared, gather);
        if wake.end == Some(End::Abandon) {
            return Ok(());
        }
        for channel in shared.channels().iter().skip(lanes.len()) {
            lanes.push(Lane { channel: Arc::clone(channel), taken: GroupBuffer::default() });
        }
        round(&mut lanes)?;
        if wake.end == Some(End::Close) {
            return lanes.iter().try_for_each(|lane| lane.channel.close());
        }
    }
}

/// Waits until there is work, then for more of it; what it was woken for is taken back.
fn sleep(shared: &Shared, gather: Duration) -> Wake {
    let mut wake = lock(&shared.wake);
    wake.is_awaited = true;
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
fn round(lanes: &mut [Lane]) -> Result<(), LogError> {
    for lane in lanes.iter_mut().rev() {
        lane.channel.take(&mut lane.taken);
    }
    lanes.iter_mut().try_for_each(|lane| lane.channel.commit(&mut lane.taken))
}
