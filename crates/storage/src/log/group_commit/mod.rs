//! One thread that makes logs durable for many waiters at once.
//!
//! Logs are registered in the order in which they depend on each other: the journal before the order log that names
//! its records. Anyone appends through a [`LogHandle`]: a short lock and a copy. The thread works in *rounds*, and a
//! round begins at once when something is there and none is under way: at low load it has one record, at high load
//! everything that gathered during the sync before. Where no log syncs each round, rounds are short, and would stay small
//! however fast records come: one that follows a small one of several records closely pauses first.
//!
//! A round takes the buffers in reverse order of registration, then writes and syncs log after log in order. So a
//! record that names another one, appended before it, is never taken without it and never written before the other
//! is durable.
//!
//! A log is synced in the rounds that bring it a record which asks for that. [`LogHandle::append_unsynced`] is for one
//! that could be made again from what the logs before it hold: on a disk a sync costs about as much as the whole rest
//! of a small round.
//!
//! Buffers are bounded in bytes: an appender waits for room, or is refused. A log has at most two
//! buffers in memory, the one that fills and the one that is being written.
//!
//! The first failure is kept and returned to every later call, every waiter and every callback, of all logs: the end of
//! the durable records is unknown from then on, and the process has to stop.
//!
//! Not here: the replies that wait for durability.

mod channel;
mod thread;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Log, LogError, LogPosition};
use channel::Channel;

pub use channel::{LogHandle, Ticket};

/// How far a record must have come before its ticket counts as reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nowhere: it is written in the background.
    None,
    /// Into the kernel: it survives the death of the process.
    Written,
    /// Onto the disk: it survives a power cut.
    Synced,
}

/// Called by the thread, with no lock held, when more has become durable (the position before which everything is)
/// and there is room again, or once with the failure that ended it all. It must not wait for the thread.
pub type Progress = Arc<dyn Fn(Result<LogPosition, LogError>) + Send + Sync>;

/// How a log is registered.
#[derive(Clone)]
pub struct Registration {
    pub durability: Durability,
    /// Bytes that may wait to be written before appenders wait. One record alone may be longer.
    pub max_bytes: usize,
    pub on_progress: Option<Progress>,
}

impl Registration {
    pub fn new(durability: Durability) -> Self {
        Self { durability, max_bytes: 4 << 20, on_progress: None }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("durability", &self.durability)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

/// The thread and its logs; see the module's header.
///
/// Dropping it ends the thread after the round under way and drops waiting records: end with [`GroupCommit::close`].
#[derive(Debug)]
#[must_use]
pub struct GroupCommit {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread shares with handles.
#[derive(Debug, Default)]
struct Shared {
    wake: Mutex<Wake>,
    woken: Condvar,
    /// In order of registration. Locked for a moment at registration and at the start of a round.
    channels: Mutex<Vec<Arc<Channel>>>,
    /// The first failure, kept for good.
    failure: OnceLock<LogError>,
}

/// Why the thread should work, and whether it waits for a notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wake {
    /// The thread waits. Else it looks at the rest before it does, and notifying it would be a system call for nothing.
    is_awaited: bool,
    /// Something was appended.
    dirty: bool,
    /// Somebody waits for room: no more gathering.
    hurry: bool,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Write, sync and close everything first.
    Close,
    /// At once.
    Abandon,
}

impl GroupCommit {
    /// Starts the thread. With `gather` above zero a round waits that long for more, unless a buffer is full; with zero it may
    /// pause, as the module's header says.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(gather: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("thalweg-log".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || thread::run(&shared, gather)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Takes over a log, after those that were registered before. Its records are made as durable as later ones.
    ///
    /// # Errors
    /// The failure of an earlier round, or the log's.
    pub fn register(&self, mut log: Log, registration: Registration) -> Result<LogHandle, LogError> {
        self.shared.check()?;
        let durable = match registration.durability {
            Durability::None | Durability::Written => log.flush()?,
            Durability::Synced => log.sync()?,
        };
        let channel = Arc::new(Channel::new(Arc::clone(&self.shared), log, registration, durable));
        self.shared.channels().push(Arc::clone(&channel));
        Ok(LogHandle::new(channel))
    }

    /// Writes and syncs everything, closes the logs and ends the thread. Handles then say that the log is closed.
    ///
    /// # Errors
    /// The first failure.
    pub fn close(mut self) -> Result<(), LogError> {
        // Before the thread is notified: its last round finds all records.
        for channel in self.shared.channels().iter() {
            channel.refuse();
        }
        self.end(End::Close);
        self.shared.check()
    }

    fn end(&mut self, end: End) {
        self.shared.wake(|wake| wake.end = Some(end));
        if let Some(thread) = self.thread.take() {
            // It catches its panics and keeps them as the failure.
            let _ = thread.join();
        }
    }
}

impl Drop for GroupCommit {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end(End::Abandon);
        }
    }
}

impl Shared {
    /// # Errors
    /// The first failure.
    fn check(&self) -> Result<(), LogError> {
        self.failure.get().cloned().map_or(Ok(()), Err)
    }

    /// Tells the thread what it does not know yet: one that gathers is not woken by each record, one that works by none.
    fn wake(&self, change: impl FnOnce(&mut Wake)) {
        let mut wake = lock(&self.wake);
        let known = *wake;
        change(&mut wake);
        let is_news = *wake != known && wake.is_awaited;
        drop(wake);
        if is_news {
            self.woken.notify_one();
        }
    }

    fn channels(&self) -> MutexGuard<'_, Vec<Arc<Channel>>> {
        lock(&self.channels)
    }
}

/// The data of these locks is whole at every step, so a panic elsewhere takes nothing from it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
