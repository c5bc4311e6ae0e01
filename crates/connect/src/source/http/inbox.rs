//! The queue of an HTTP source: bodies, cut into pieces, on their way to the sequencer.
//!
//! Bounded in bytes, together with the replies that were not read yet: a body that does not fit is refused with an
//! error. Small pieces of several requests leave as one block. A request whose reply takes too much room waits in its
//! place while others pass it, and those of a large body take turns with them. A body that nobody waits for was accepted
//! when it came: no later one passes it.
//!
//! When room for replies is short, a client that has left its own alone for [`IMPATIENCE`] is cut off; without that,
//! after [`PATIENCE`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use thalweg_flow::Waker;

use super::super::cut::Cut;
use super::super::handover::{Joint, OVERHEAD, join};
use super::request::{Request, Share, Unanswered};

/// How long a client may leave a reply alone.
const PATIENCE: Duration = Duration::from_secs(30);

/// The same while others wait for room, or the job for its end.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// How often waiting requests are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Some consecutive records of a request, on their way through the job. Dropped before it is finished, it will never
/// be.
pub(super) struct Ticket {
    pub(super) request: Arc<Request>,
    is_finished: AtomicBool,
}

impl Ticket {
    pub(super) fn new(request: Arc<Request>) -> Self {
        Self { request, is_finished: AtomicBool::new(false) }
    }

    /// The caller has reported the outcome.
    pub(super) fn set_finished(&self) {
        // Relaxed: dropping it orders the two.
        self.is_finished.store(true, Ordering::Relaxed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_finished.load(Ordering::Relaxed) {
            self.request.fail(Unanswered::Stopped);
        }
    }
}

/// The result of a look into the queue.
pub(super) enum Taken {
    /// One block, and per piece in it how many records it holds and which request waits.
    Block(Cut, Vec<(u32, Option<Arc<Ticket>>)>),
    Nothing,
    /// Nothing now; requests wait for their clients.
    Later(Instant),
    Closed,
}

pub(super) enum Refused {
    Full,
    Closed,
}

pub(super) struct Inbox {
    bound: usize,
    /// Records of a block at most.
    most_records: u32,
    share: Arc<Share>,
    /// Held for moments only.
    queue: Mutex<Queue>,
    waker: OnceLock<Waker>,
    /// The source waits for room for replies.
    is_waiting: AtomicBool,
    cut_off: AtomicU64,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
    is_closed: bool,
    /// Requests whose replies are read bit by bit.
    streaming: Vec<Weak<Request>>,
}

/// The rest of a body.
struct Entry {
    pieces: VecDeque<Cut>,
    request: Option<Arc<Request>>,
    /// Room that the rest takes.
    cost: usize,
}

fn cost(cut: &Cut) -> usize {
    cut.data.len() + OVERHEAD
}

impl Inbox {
    pub(super) fn new(bound: usize, most_records: u32) -> Self {
        let bound = bound.clamp(1 << 10, 1 << 30);
        Self {
            bound,
            most_records,
            share: Arc::new(Share::new(bound)),
            queue: Mutex::default(),
            waker: OnceLock::new(),
            is_waiting: AtomicBool::new(false),
            cut_off: AtomicU64::new(0),
        }
    }

    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    pub(super) fn share(&self) -> &Arc<Share> {
        &self.share
    }

    pub(super) fn set_waker(&self, waker: Waker) {
        let _ = self.waker.set(waker);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// There may be room for replies now.
    pub(super) fn on_room(&self) {
        // AcqRel: the thread that set it has looked at the room before, and looks again.
        if self.is_waiting.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the pieces of a body in, all of them or none.
    pub(super) fn try_send(&self, pieces: Vec<Cut>, request: Option<Arc<Request>>) -> Result<(), Refused> {
        let needed: usize = pieces.iter().map(cost).sum();
        let mut queue = self.lock();
        if queue.is_closed {
            return Err(Refused::Closed);
        }
        if queue.bytes + self.share.used() + needed > self.bound.max(needed)
            && !(self.cut_off_idle(&mut queue, IMPATIENCE)
                && queue.bytes + self.share.used() + needed <= self.bound)
        {
            return Err(Refused::Full);
        }
        if pieces.len() > 1
            && let Some(request) = &request
        {
            queue.streaming.retain(|known| known.strong_count() > 0);
            queue.streaming.push(Arc::downgrade(request));
        }
        queue.bytes += needed;
        queue.entries.push_back(Entry { pieces: pieces.into(), request, cost: needed });
        drop(queue);
        self.wake();
        Ok(())
    }

    /// Takes pieces that are there and may go, about `max_bytes` of them.
    pub(super) fn take(&self, max_bytes: usize) -> Taken {
        let mut queue = self.lock();
        // Before the room is looked at: a reader that makes room after that wakes us.
        self.is_waiting.store(true, Ordering::Release);
        let (mut block, mut is_blocked): (Option<Block>, bool) = (None, false);
        let (mut place, mut looks) = (0, queue.entries.len());
        while looks > 0 {
            looks -= 1;
            let Some(mut entry) = queue.entries.remove(place) else { break };
            if entry.request.as_ref().is_some_and(|request| request.is_refused()) {
                queue.bytes -= entry.cost;
                continue;
            }
            let Some(piece) = entry.pieces.front() else { continue };
            let fits = block.as_ref().is_none_or(|block| block.fits(piece, max_bytes, self.most_records));
            let goes = fits && entry.request.as_ref().is_none_or(|request| request.may_take(piece.count));
            if !goes {
                is_blocked |= fits;
                queue.entries.insert(place, entry);
                place += 1;
                if !fits {
                    break;
                }
                continue;
            }
            let Some(piece) = entry.pieces.pop_front() else { continue };
            let freed = if entry.pieces.is_empty() { entry.cost } else { cost(&piece).min(entry.cost) };
            entry.cost -= freed;
            queue.bytes -= freed;
            let ticket = entry.request.as_ref().map(|request| Arc::new(Ticket::new(Arc::clone(request))));
            block.get_or_insert_default().push(piece, ticket);
            if !entry.pieces.is_empty() {
                match entry.request {
                    Some(_) => queue.entries.push_back(entry),
                    None => queue.entries.insert(place, entry),
                }
            }
        }
        if let Some(block) = block {
            if !is_blocked {
                self.is_waiting.store(false, Ordering::Release);
            }
            return block.taken();
        }
        if is_blocked {
            let patience = if queue.is_closed || self.is_short() { IMPATIENCE } else { PATIENCE };
            self.cut_off_idle(&mut queue, patience);
            return Taken::Later(Instant::now() + LOOK);
        }
        self.is_waiting.store(false, Ordering::Release);
        if queue.is_closed { Taken::Closed } else { Taken::Nothing }
    }

    /// Half of the room for replies is taken.
    fn is_short(&self) -> bool {
        self.share.used() > self.bound / 4
    }

    /// Gives up on clients that have left their replies alone for so long; whether there were any.
    fn cut_off_idle(&self, queue: &mut Queue, patience: Duration) -> bool {
        let mut count = 0;
        queue.streaming.retain(|known| {
            let Some(request) = known.upgrade() else { return false };
            let is_cut = request.cut_off(patience);
            count += u64::from(is_cut);
            !is_cut
        });
        if count > 0 {
            self.cut_off.fetch_add(count, Ordering::Relaxed);
            tracing::warn!(replies = count, "cut off replies that nobody reads, as others wait for room");
        }
        count > 0
    }

    /// No more bodies come.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.wake();
    }

    /// Drops the queued pieces; no more bodies come.
    pub(super) fn discard(&self) {
        let mut queue = self.lock();
        queue.is_closed = true;
        queue.bytes = 0;
        let entries = std::mem::take(&mut queue.entries);
        drop(queue);
        entries
            .iter()
            .filter_map(|entry| entry.request.as_ref())
            .for_each(|request| request.fail(Unanswered::Stopped));
    }
}

/// Pieces that leave together.
#[derive(Default)]
struct Block {
    pieces: Vec<Cut>,
    tickets: Vec<(u32, Option<Arc<Ticket>>)>,
    bytes: usize,
    records: u32,
}

impl Block {
    fn fits(&self, piece: &Cut, max_bytes: usize, most_records: u32) -> bool {
        // Where the first has a context of its own, nothing joins it.
        self.pieces.first().is_none_or(|first| first.context.is_none())
            && piece.context.is_none()
            && self.bytes + piece.data.len() < max_bytes
            && self.records + piece.count <= most_records
    }

    fn push(&mut self, piece: Cut, ticket: Option<Arc<Ticket>>) {
        self.bytes += piece.data.len() + 1;
        self.records += piece.count;
        self.tickets.push((piece.count, ticket));
        self.pieces.push(piece);
    }

    fn taken(self) -> Taken {
        let mut pieces = self.pieces.into_iter();
        match pieces.next() {
            Some(first) => Taken::Block(join(first, pieces.collect(), Joint::LineEnd), self.tickets),
            None => Taken::Nothing,
        }
    }
}
