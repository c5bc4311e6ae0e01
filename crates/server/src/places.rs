//! The open connections, and which of them are closed when all places are taken.
//!
//! A connection that waits for a request makes room for a new one, once it has waited for [`WAITED`], or for as many
//! times that as it has had requests, up to [`PATIENCE`]: a client that is served a hundred times a second may pause
//! for a moment. Those that never had one go first, of them the one that has waited longest; a head that comes byte by
//! byte is such a wait. If all are in the middle of requests, a few more ([`RESERVE`]) are let in: they get the
//! endpoints for monitors, and others only if a place has become free. Of those the oldest is closed after
//! [`WAITED_IN_RESERVE`], so that no crowd keeps a monitor out for long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Connections beyond the limit.
pub(crate) const RESERVE: usize = 32;

const WAITED: Duration = Duration::from_secs(1);
/// Requests of a connection that count for its patience, at most.
const PATIENCE: u32 = 10;
const WAITED_IN_RESERVE: Duration = Duration::from_millis(10);

/// How often one without a place looks for one.
const LOOK: Duration = Duration::from_millis(5);

/// How long a connection that was asked to close may take before the reserve is used.
const GOING: Duration = Duration::from_millis(200);

pub(crate) struct Places {
    most: usize,
    books: Mutex<Books>,
    /// A connection has closed.
    left: Notify,
}

#[derive(Default)]
struct Books {
    next: u64,
    open: BTreeMap<u64, Entry>,
    /// Those that are not in the reserve.
    regular: usize,
    evicted: u64,
}

struct Entry {
    is_regular: bool,
    /// Requests in work, with their replies.
    busy: u32,
    /// How many it had before.
    asked: u32,
    /// Since when it waits for a request.
    waits: Instant,
    is_going: bool,
    told: Arc<Notify>,
}

/// The place of one connection, for as long as it is kept.
pub(crate) struct Seat {
    places: Arc<Places>,
    number: u64,
    told: Arc<Notify>,
}

/// A request in work. Its connection is not closed meanwhile.
pub(crate) struct Busy(Arc<Seat>);

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), books: Mutex::default(), left: Notify::new() })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that were closed to make room, so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.books().evicted
    }

    /// A place for a new connection, for which another one may be closed.
    pub(crate) async fn enter(self: &Arc<Self>) -> Arc<Seat> {
        let since = Instant::now();
        loop {
            let left = self.left.notified();
            {
                let mut books = self.books();
                if books.regular < self.most {
                    return self.seat(&mut books, true);
                }
                let goes = books.tell(true, WAITED);
                let has_waited = !goes || since.elapsed() > GOING;
                if has_waited && books.open.len() - books.regular < RESERVE {
                    return self.seat(&mut books, false);
                }
                if has_waited {
                    books.tell(false, WAITED_IN_RESERVE);
                }
            }
            let _ = timeout(LOOK, left).await;
        }
    }

    fn seat(self: &Arc<Self>, books: &mut Books, is_regular: bool) -> Arc<Seat> {
        let number = books.next;
        books.next += 1;
        books.regular += usize::from(is_regular);
        let told = Arc::new(Notify::new());
        let entry = Entry {
            is_regular,
            busy: 0,
            asked: 0,
            waits: Instant::now(),
            is_going: false,
            told: Arc::clone(&told),
        };
        books.open.insert(number, entry);
        Arc::new(Seat { places: Arc::clone(self), number, told })
    }

    /// Waits until all connections have closed, `limit` at most; returns how many have not.
    pub(crate) async fn wait_until_empty(&self, limit: Duration) -> usize {
        let end = Instant::now() + limit;
        loop {
            let left = self.left.notified();
            let open = self.books().open.len();
            if open == 0 || Instant::now() >= end {
                return open;
            }
            tokio::select! {
                () = left => {}
                () = sleep(LOOK) => {}
            }
        }
    }
}

impl Books {
    /// Asks the connection that has waited longest to close, in the reserve or outside of it; returns whether one is
    /// closing.
    fn tell(&mut self, is_regular: bool, least: Duration) -> bool {
        if self.open.values().any(|entry| entry.is_regular == is_regular && entry.is_going) {
            return true;
        }
        let waiting = self.open.values_mut().filter(|entry| {
            let least = least * entry.asked.clamp(1, PATIENCE);
            entry.is_regular == is_regular && entry.busy == 0 && entry.waits.elapsed() >= least
        });
        let longest = waiting.min_by_key(|entry| (entry.asked > 0, entry.waits));
        let Some(longest) = longest else { return false };
        longest.is_going = true;
        longest.told.notify_one();
        true
    }
}

impl Seat {
    fn with<T>(&self, look: impl FnOnce(&mut Books, u64) -> T) -> T {
        look(&mut self.places.books(), self.number)
    }

    /// Waits until it has to close.
    pub(crate) async fn told(&self) {
        loop {
            self.told.notified().await;
            let goes = self.with(|books, number| {
                let goes = books.open.get(&number).is_some_and(|entry| entry.is_going && entry.busy == 0);
                books.evicted += u64::from(goes);
                goes
            });
            if goes {
                return;
            }
        }
    }

    pub(crate) fn is_in_reserve(&self) -> bool {
        self.with(|books, number| books.open.get(&number).is_none_or(|entry| !entry.is_regular))
    }

    /// A request has come.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.with(|books, number| {
            if let Some(entry) = books.open.get_mut(&number) {
                entry.busy += 1;
                entry.asked = entry.asked.saturating_add(1);
                // It was asked too late.
                entry.is_going = false;
            }
        });
        Busy(Arc::clone(self))
    }

    /// Whether it has a place that is not of the reserve; it takes one where there is one by now.
    pub(crate) fn take_regular(&self) -> bool {
        let most = self.places.most;
        self.with(|books, number| {
            let is_free = books.regular < most;
            let Some(entry) = books.open.get_mut(&number) else { return false };
            if !entry.is_regular && is_free {
                entry.is_regular = true;
                books.regular += 1;
                return true;
            }
            entry.is_regular
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.with(|books, number| {
            if let Some(entry) = books.open.get_mut(&number) {
                entry.busy -= 1;
                entry.waits = Instant::now();
            }
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.with(|books, number| {
            if books.open.remove(&number).is_some_and(|entry| entry.is_regular) {
                books.regular -= 1;
            }
        });
        self.places.left.notify_one();
    }
}
