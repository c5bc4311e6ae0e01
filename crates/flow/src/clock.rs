//! The clock that a runtime is given: only sequencers look at it, and what they saw becomes ticks. Beside it, processor
//! time, which is for figures alone.
//!
//! Not here: operators' time. They know only what [`crate::Operator::tick`] says.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use thalweg_types::Micros;

use crate::Waker;

/// Wall-clock time. May go back; a job's own clock does not.
pub trait Clock: Send + Sync {
    /// Microseconds since the epoch, UTC.
    fn now(&self) -> Micros;

    /// Whether time moves only by hand; then `waker` is called each time that it does, and a job's ticks and
    /// timed cycles follow it alone. A clock that goes by itself ignores the waker.
    fn by_hand(&self, waker: Waker) -> bool {
        let _ = waker;
        false
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX)
    }
}

/// Time that this thread has spent on a processor: it stands still while the thread waits.
pub(crate) fn processor_time() -> Duration {
    // Only a time below zero is no duration, and there is none.
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// A clock for tests: it stands still until it is moved.
#[derive(Default)]
pub struct ManualClock {
    now: AtomicI64,
    /// Sequencers that follow this clock; short sections, no other lock is taken inside.
    wakers: Mutex<Vec<Waker>>,
}

impl ManualClock {
    pub fn new(now: Micros) -> Self {
        Self { now: AtomicI64::new(now), wakers: Mutex::default() }
    }

    /// Moves time on and wakes the jobs that follow it.
    pub fn advance(&self, by: Micros) {
        self.now.fetch_add(by, Ordering::AcqRel);
        self.wake();
    }

    /// Sets the time, forwards or back.
    pub fn set(&self, now: Micros) {
        self.now.store(now, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        for waker in self.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            waker.wake();
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        self.now.load(Ordering::Acquire)
    }

    fn by_hand(&self, waker: Waker) -> bool {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
        true
    }
}
