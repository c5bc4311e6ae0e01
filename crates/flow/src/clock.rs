//! The clock that a runtime is given: only sequencers look at it, and what they saw becomes ticks. Next to it, processor
//! time, which is for figures alone.
//!
//! A clock has two faces. The *wall* says what time it is and may be set, forwards or back, by the administrator of the
//! machine. The *steady* face counts from some moment on, is never set, and goes on while the machine sleeps. A job's
//! own clock is made of the two (`job_clock`).
//!
//! Not here: operators' time. They know only what [`crate::Operator::tick`] says.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use thalweg_types::Micros;

use crate::Waker;

/// What both faces of a clock said at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Microseconds since the epoch, UTC. May jump.
    pub wall: Micros,
    /// Microseconds since a moment that is the same for all readings of this process. Never goes back.
    pub steady: Micros,
}

pub trait Clock: Send + Sync {
    fn read(&self) -> Reading;

    /// Whether time moves only by hand; then `waker` is called each time that it does, and a job's ticks and
    /// timed cycles follow it alone. A clock that advances by itself ignores the waker.
    fn by_hand(&self, waker: Waker) -> bool {
        let _ = waker;
        false
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// Between the readings of the two faces less than this has passed, or they are read again.
const AT_ONCE: Micros = 200;
/// On a machine that is too busy for that the last readings count.
const TRIES: usize = 4;

impl SystemClock {
    /// The wall alone.
    pub fn now() -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX)
    }

    /// The steady face alone.
    pub fn steady() -> Micros {
        // Not the monotonic clock, which stops while the machine sleeps: the sleep would look like a jump of the wall.
        let time = clock_gettime(ClockId::Boottime);
        time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000)
    }
}

impl Clock for SystemClock {
    fn read(&self) -> Reading {
        let mut before = Self::steady();
        for _ in 1..TRIES {
            let (wall, after) = (Self::now(), Self::steady());
            // A thread that had to wait in between would see a jump where there is none.
            if after - before < AT_ONCE {
                return Reading { wall, steady: after };
            }
            before = after;
        }
        Reading { wall: Self::now(), steady: Self::steady() }
    }
}

/// Time that this thread has spent on a processor: it stops while the thread waits.
pub(crate) fn processor_time() -> Duration {
    // Only a time below zero is not a duration, and there is no such time.
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// A clock for tests: it does not advance by itself, tests move it, and its wall can be moved alone.
pub struct ManualClock {
    now: Mutex<Reading>,
    /// Sequencers that follow this clock; short sections, no other lock is taken inside.
    wakers: Mutex<Vec<Waker>>,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new(0)
    }
}

impl ManualClock {
    pub fn new(wall: Micros) -> Self {
        Self { now: Mutex::new(Reading { wall, steady: 0 }), wakers: Mutex::default() }
    }

    /// Lets time pass, and wakes the jobs that follow it.
    pub fn advance(&self, by: Micros) {
        {
            let mut now = self.lock();
            now.wall += by;
            now.steady += by;
        }
        self.wake();
    }

    /// Sets the wall while no time passes, forwards or back.
    pub fn set_wall(&self, wall: Micros) {
        self.lock().wall = wall;
        self.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        for waker in self.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            waker.wake();
        }
    }
}

impl Clock for ManualClock {
    fn read(&self) -> Reading {
        *self.lock()
    }

    fn by_hand(&self, waker: Waker) -> bool {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
        true
    }
}
