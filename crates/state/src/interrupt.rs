//! The end of a job, as its waits for a store learn of it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Ends the waits of a job; clones share it.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Signal>);

#[derive(Default)]
struct Signal {
    is_raised: Mutex<bool>,
    raised: Condvar,
}

impl Interrupt {
    /// Ends the waits that are under way, and every later one at once.
    pub fn raise(&self) {
        *lock(&self.0.is_raised) = true;
        self.0.raised.notify_all();
    }

    /// Waits for at most `limit`; returns whether it was raised by then.
    pub fn wait(&self, limit: Duration) -> bool {
        let guard = lock(&self.0.is_raised);
        let waited = self.0.raised.wait_timeout_while(guard, limit, |is_raised| !*is_raised);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupt").field(&*lock(&self.0.is_raised)).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
