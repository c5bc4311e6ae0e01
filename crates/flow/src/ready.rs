//! Whether a task is in a ready queue: the flag that makes sure that no wake-up is lost and none is doubled.
//!
//! Anyone may wake; one worker runs. Two bits, changed by read-modify-write only, so all changes are in one
//! order and each sees what came before it:
//!
//! * `ACTIVE`: the task is in its worker's queue or runs; the thread that sets it puts the task into the queue.
//! * `NOTIFIED`: woken since the last run began; such a task is queued again at the end of its run.
//!
//! Why no wake-up is lost: the waker has written its news (an item in a ring, say) before. If its `fetch_or`
//! comes before the run's `begin`, the run sees the news, as `begin` acquires what `wake` released. If it
//! comes after, `end` sees `NOTIFIED`, or finds the task inactive and queues it. `tests/it/loom.rs` explores
//! the interleavings.

use super::sync::{AtomicU8, Ordering};

const ACTIVE: u8 = 1;
const NOTIFIED: u8 = 2;

pub(crate) struct Ready(AtomicU8);

impl Ready {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Asks for a run; `true` means that the caller has to queue the task.
    #[inline]
    #[must_use]
    pub(crate) fn wake(&self) -> bool {
        self.0.fetch_or(ACTIVE | NOTIFIED, Ordering::AcqRel) & ACTIVE == 0
    }

    /// A run begins: wakes until now are answered by it.
    pub(crate) fn begin(&self) {
        self.0.fetch_and(!NOTIFIED, Ordering::AcqRel);
    }

    /// A run has ended; `true` means that the task goes into the queue again, because it wants to or because
    /// it was woken meanwhile.
    #[must_use]
    pub(crate) fn end(&self, again: bool) -> bool {
        again || self.0.compare_exchange(ACTIVE, 0, Ordering::AcqRel, Ordering::Acquire).is_err()
    }
}
