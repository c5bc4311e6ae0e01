//! The open connections: how long each has been silent, and how many bytes its unfinished record takes.
//!
//! A connection that has to close is notified ([`Peers::make_room`], [`Peers::note`]) and closes itself, as only its
//! own task has the bytes that it sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_types::{Error, format_size};
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::super::connections::ConnectionCounts;
use super::super::handover::{Handover, OVERHEAD};
use crate::format::RecordFormat;

/// Bytes read from a connection at a time at most.
const READ: usize = 64 << 10;

/// How long a connection has to be silent before it may have to make room, if it has never said anything.
const MUTE: Duration = Duration::from_millis(100);

/// The same between two records.
const SILENT: Duration = Duration::from_secs(1);

/// The same in the middle of a record.
const SILENT_IN_RECORD: Duration = Duration::from_secs(10);

/// How long a connection may pause in the middle of a record.
const UNFINISHED: Duration = Duration::from_secs(60);

/// Seconds between two warnings of the same kind.
const SELDOM: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Connections at a time.
    pub connections: usize,
    /// How long one may be silent.
    pub idle: Duration,
}

/// Why a connection is closed from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Ending {
    /// It was silent for too long.
    Idle = 1,
    /// New connections wait for a place.
    Room,
    /// Its unfinished record is the largest, and all of them together are too large.
    Crowded,
}

impl Ending {
    fn of(number: u8) -> Option<Self> {
        [Ending::Idle, Ending::Room, Ending::Crowded].into_iter().find(|ending| *ending as u8 == number)
    }
}

pub(super) struct Peers {
    pub(super) format: Arc<dyn RecordFormat>,
    pub(super) handover: Arc<Handover<()>>,
    settings: Settings,
    pub(super) counts: Arc<ConnectionCounts>,
    /// Held for moments, never across an await.
    books: Mutex<Books>,
    numbers: AtomicU64,
}

#[derive(Default)]
struct Books {
    open: BTreeMap<u64, Entry>,
    /// Bytes of unfinished records, but for connections that are closing.
    unfinished: usize,
    warned: Option<Instant>,
}

struct Entry {
    told: Arc<Told>,
    /// When it said something last.
    heard: Instant,
    unfinished: usize,
    has_spoken: bool,
    is_going: bool,
}

impl Entry {
    /// How long it may be silent while others wait for a place.
    fn patience(&self) -> Duration {
        match (self.has_spoken, self.unfinished) {
            (false, _) => MUTE,
            (true, 0) => SILENT,
            (true, _) => SILENT_IN_RECORD,
        }
    }
}

/// How a connection learns that it has to go.
#[derive(Default)]
struct Told {
    ending: AtomicU8,
    notify: Notify,
}

/// One connection.
pub(super) struct Peer {
    number: u64,
    address: SocketAddr,
    told: Arc<Told>,
}

impl Peer {
    /// Waits until it has to go.
    pub(super) async fn told(&self) -> Ending {
        loop {
            // Relaxed: nothing but itself is published with it.
            if let Some(ending) = Ending::of(self.told.ending.load(Ordering::Relaxed)) {
                return ending;
            }
            self.told.notify.notified().await;
        }
    }
}

impl Peers {
    pub(super) fn new(
        format: Arc<dyn RecordFormat>,
        handover: Arc<Handover<()>>,
        settings: Settings,
        counts: Arc<ConnectionCounts>,
    ) -> Self {
        Self { format, handover, settings, counts, books: Mutex::default(), numbers: AtomicU64::new(0) }
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings
    }

    /// Bytes to read at a time: small queues are filled in small steps.
    pub(super) fn read_bytes(&self) -> usize {
        READ.min(self.handover.bound() / 8)
    }

    /// Bytes that unfinished records may take together. The rest of the queue is for whole records.
    fn most_unfinished(&self) -> usize {
        self.handover.bound() - 2 * (self.read_bytes() + OVERHEAD)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter(&self, address: SocketAddr) -> Peer {
        // Relaxed: each number is given once, whatever the order.
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let told = Arc::new(Told::default());
        let entry = Entry {
            told: Arc::clone(&told),
            heard: Instant::now(),
            unfinished: 0,
            has_spoken: false,
            is_going: false,
        };
        let mut books = self.books();
        books.open.insert(number, entry);
        self.counts.set_open(books.open.len());
        self.counts.add_accepted();
        Peer { number, address, told }
    }

    pub(super) fn leave(&self, peer: &Peer) {
        let mut books = self.books();
        if let Some(entry) = books.open.remove(&peer.number)
            && !entry.is_going
        {
            books.unfinished -= entry.unfinished;
        }
        self.counts.set_open(books.open.len());
        self.counts.set_unfinished(books.unfinished);
    }

    /// How long it may be silent from now on.
    pub(super) fn patience(&self, has_unfinished: bool) -> Duration {
        if has_unfinished { self.settings.idle.min(UNFINISHED) } else { self.settings.idle }
    }

    /// The connection has sent something, and its unfinished record takes `unfinished` bytes. If all together take too
    /// much, the largest is closed.
    pub(super) fn note(&self, peer: &Peer, unfinished: usize) {
        let mut books = self.books();
        let Some(entry) = books.open.get_mut(&peer.number) else { return };
        entry.heard = Instant::now();
        entry.has_spoken = true;
        let before = std::mem::replace(&mut entry.unfinished, unfinished);
        if entry.is_going {
            return;
        }
        books.unfinished = books.unfinished - before + unfinished;
        while books.unfinished > self.most_unfinished() {
            let going = books.open.iter_mut().filter(|(_, entry)| !entry.is_going);
            let Some((_, largest)) = going.max_by_key(|(_, entry)| entry.unfinished) else { break };
            let freed = largest.unfinished;
            tell(largest, Ending::Crowded);
            books.unfinished -= freed;
        }
        self.counts.set_unfinished(books.unfinished);
    }

    /// Closes one for a new connection, if one has been silent for long enough.
    pub(super) fn make_room(&self) {
        let mut books = self.books();
        if books.open.values().any(|entry| entry.is_going) {
            return;
        }
        let silent = books.open.iter().filter(|(_, entry)| entry.heard.elapsed() >= entry.patience());
        // Those that lose least by it first, of them the one that has been silent longest.
        let found =
            silent.min_by_key(|(_, entry)| (entry.patience(), entry.heard)).map(|(number, _)| *number);
        if let Some(entry) = found.and_then(|number| books.open.get_mut(&number)) {
            let freed = entry.unfinished;
            tell(entry, Ending::Room);
            books.unfinished -= freed;
        }
    }

    /// Counts a connection that the source closes, and returns the reason for its unfinished record's reject.
    pub(super) fn ends(&self, peer: &Peer, ending: Ending, unfinished: usize) -> String {
        self.counts.add_closed(ending as usize - 1);
        let limit = format_size(self.most_unfinished() as u64);
        let reason = match ending {
            Ending::Idle => "the connection was silent for too long".to_owned(),
            Ending::Room => "the connection was silent, and others waited for a place".to_owned(),
            Ending::Crowded => {
                format!("all unfinished records together passed {limit}, and this was the largest")
            }
        };
        if self.may_warn() {
            warn!(peer = %peer.address, unfinished, "closed a connection: {reason}");
        } else {
            debug!(peer = %peer.address, unfinished, "closed a connection: {reason}");
        }
        format!("expected the rest of the record, got none: {reason} ({unfinished} bytes)")
    }

    /// A connection ended with an error.
    pub(super) fn broke_off(&self, peer: &Peer, error: &Error) {
        if self.may_warn() {
            warn!(peer = %peer.address, error = error.chain(), "connection closed early");
        } else {
            debug!(peer = %peer.address, error = error.chain(), "connection closed early");
        }
    }

    /// Thousands of connections must not fill a log.
    fn may_warn(&self) -> bool {
        let mut books = self.books();
        let may = books.warned.is_none_or(|warned| warned.elapsed() > SELDOM);
        if may {
            books.warned = Some(Instant::now());
        }
        may
    }
}

fn tell(entry: &mut Entry, ending: Ending) {
    entry.is_going = true;
    entry.told.ending.store(ending as u8, Ordering::Relaxed);
    entry.told.notify.notify_one();
}
