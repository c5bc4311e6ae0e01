//! One request under way: the part of its reply that is there, its waiting client, and how much of it may be there at
//! once.
//!
//! A body is cut into pieces. The sink finishes them in order ([`Request::finish`]); the server takes the lines as they
//! come ([`Replies`]). Lines that wait to be taken, and a guess for those that are to come, count against the source's
//! [`Share`]; a piece is held back while its request has more than its part of it ([`Request::may_take`]).
//!
//! Invariants
//! * There is one line per record, in order, whatever is held back.
//! * No second piece is taken before the first has come back: by then it is known whether any record was accepted.
//!   Where none of the first piece was, the rest is not taken ([`Request::is_refused`]), so that what has to be kept
//!   before the status of the reply is known has a bound.
//! * A request whose client takes nothing can be cut off ([`Request::cut_off`]); its records count all the same.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::line::write_error;

/// Assumed bytes of a record's line before it is there.
const GUESS: usize = 128;

/// The replies to all requests of a queue may take 1/`ALL` of its bytes, those to one request 1/`ONE`.
const ALL: usize = 2;
const ONE: usize = 4;

/// Bytes of replies of all requests of a source.
#[derive(Debug)]
pub(super) struct Share {
    bound: usize,
    used: AtomicUsize,
}

impl Share {
    pub(super) fn new(queue: usize) -> Self {
        Self { bound: queue / ALL, used: AtomicUsize::new(0) }
    }

    // Relaxed everywhere: the count affects when a line is read, and never its contents.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Nobody answers any more. Whether the records count is not known, unless it is said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The client left its reply alone while others waited for room.
    #[error("the reply was not read, and was cut off")]
    CutOff,
    #[error("the job stopped before it answered")]
    Stopped,
    /// Answers that were to come from elsewhere did not come in time; it says from where.
    #[error("{0}")]
    Overdue(Arc<str>),
    /// The records went nowhere: none of them counts.
    #[error("{0}")]
    Unsent(Arc<str>),
}

/// The outcome that is known when the first lines are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// A record was accepted; where none was, the reply is whole.
    pub is_any_accepted: bool,
    /// The length of the whole reply, where it is all there.
    pub whole: Option<usize>,
}

pub(super) struct Request {
    share: Arc<Share>,
    state: Mutex<State>,
}

struct State {
    /// Whole lines, in pieces of some KiB.
    ready: VecDeque<Bytes>,
    /// Bytes of `ready`.
    unread: usize,
    /// Guessed bytes of the pieces that are in work.
    guessed: usize,
    pieces_left: usize,
    records: u64,
    /// Records of which the lines were made.
    told: u64,
    accepted: u64,
    /// The first piece has come back.
    is_begun: bool,
    /// A reader takes the lines.
    wants: bool,
    is_refused: bool,
    failure: Option<Unanswered>,
    /// When lines were taken last, or began to wait.
    moved: Instant,
    waker: Option<Waker>,
}

impl Request {
    pub(super) fn new(share: Arc<Share>, pieces: usize, records: u64, wants: bool) -> Self {
        let state = State {
            ready: VecDeque::new(),
            unread: 0,
            guessed: 0,
            pieces_left: pieces,
            records,
            told: 0,
            accepted: 0,
            is_begun: false,
            wants,
            is_refused: false,
            failure: None,
            moved: Instant::now(),
            waker: None,
        };
        Self { share, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its lines are to be made.
    pub(super) fn wants(&self) -> bool {
        self.lock().wants
    }

    /// Whether the next piece, of `records` records, may go to the job; if so, room for its lines is reserved.
    pub(super) fn may_take(&self, records: u32) -> bool {
        let mut state = self.lock();
        if !state.wants {
            return true;
        }
        let (bound, used) = (self.share.bound, self.share.used());
        let guess = records as usize * GUESS;
        let own = state.guessed + state.unread;
        let waits_for_first = !state.is_begun && state.guessed > 0;
        let is_over = |have: usize, bound: usize| have > 0 && have + guess > bound;
        if waits_for_first || is_over(own, bound * ALL / ONE) || is_over(used, bound) {
            return false;
        }
        state.guessed += guess;
        self.share.add(guess);
        true
    }

    /// Whether the rest of it is not to be taken.
    pub(super) fn is_refused(&self) -> bool {
        self.lock().is_refused
    }

    /// Everything about a piece has been said: its lines, and how many of its records were accepted.
    pub(super) fn finish(&self, records: u32, lines: Vec<Bytes>, accepted: u64) {
        let mut state = self.lock();
        self.forget_guess(&mut state, records);
        state.pieces_left = state.pieces_left.saturating_sub(1);
        state.told += u64::from(records);
        state.accepted += accepted;
        let is_first = !std::mem::replace(&mut state.is_begun, true);
        if state.wants {
            if state.ready.is_empty() {
                state.moved = Instant::now();
            }
            lines.into_iter().for_each(|lines| self.push(&mut state, lines));
            if is_first && accepted == 0 && state.pieces_left > 0 {
                self.refuse_rest(&mut state);
            }
        }
        wake(state);
    }

    fn push(&self, state: &mut State, lines: Bytes) {
        self.share.add(lines.len());
        state.unread += lines.len();
        state.ready.push_back(lines);
    }

    /// None of the first records was good; the others are not looked at.
    fn refuse_rest(&self, state: &mut State) {
        state.is_refused = true;
        state.pieces_left = 0;
        let (first, rest) = (state.told, state.records - state.told);
        let mut line = Vec::new();
        let message =
            format!("none of the first {first} records was accepted, and the other {rest} were not taken");
        let hint = "mend the records, or send them in smaller bodies";
        write_error("none_accepted", &message, Some(hint), &mut line);
        self.push(state, line.into());
    }

    fn forget_guess(&self, state: &mut State, records: u32) {
        let guess = (records as usize * GUESS).min(state.guessed);
        state.guessed -= guess;
        self.share.sub(guess);
    }

    /// All lines, if they are all there.
    #[cfg(test)]
    pub(super) fn whole(&self) -> Option<Vec<Bytes>> {
        let state = self.lock();
        (state.pieces_left == 0).then(|| state.ready.iter().cloned().collect())
    }

    #[cfg(test)]
    pub(super) fn failed(&self) -> Option<Unanswered> {
        self.lock().failure.clone()
    }

    /// Nothing more will be said of it.
    #[cfg(test)]
    pub(super) fn is_over(&self) -> bool {
        let state = self.lock();
        state.pieces_left == 0 || state.failure.is_some()
    }

    /// A piece will not be finished.
    pub(super) fn fail(&self, failure: Unanswered) {
        let mut state = self.lock();
        if !state.is_refused {
            state.failure.get_or_insert(failure);
        }
        wake(state);
    }

    /// Whether one piece is all of it, and has not come back: what becomes of the piece becomes of the request.
    pub(super) fn is_one_piece(&self) -> bool {
        let state = self.lock();
        state.pieces_left == 1 && state.told == 0
    }

    /// Gives up on a client that has lines waiting and has taken none for so long; whether it has.
    pub(super) fn cut_off(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        if !state.wants || state.unread == 0 || state.moved.elapsed() < patience {
            return false;
        }
        self.drop_lines(&mut state);
        state.failure = Some(Unanswered::CutOff);
        wake(state);
        true
    }

    /// Nobody takes lines any more.
    fn drop_lines(&self, state: &mut State) {
        state.wants = false;
        self.share.sub(state.unread + state.guessed);
        (state.unread, state.guessed) = (0, 0);
        state.ready.clear();
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The lines of a reply, as they come: one per record, in order. Dropped, nobody misses the rest.
pub struct Replies {
    request: Arc<Request>,
    /// The source may wait for room.
    on_room: Box<dyn Fn() + Send + Sync>,
}

impl Replies {
    pub(super) fn new(request: Arc<Request>, on_room: impl Fn() + Send + Sync + 'static) -> Self {
        Self { request, on_room: Box::new(on_room) }
    }

    /// How many records there are.
    pub fn records(&self) -> u64 {
        self.request.lock().records
    }

    /// Waits until it is known whether any record was accepted; without lines, until the job is through with the
    /// records.
    ///
    /// # Errors
    /// If nobody will answer.
    pub fn poll_begin(&mut self, context: &mut Context<'_>) -> Poll<Result<Begun, Unanswered>> {
        let mut state = self.request.lock();
        let is_whole = state.pieces_left == 0;
        if is_whole || (state.wants && state.is_begun) {
            let whole = is_whole.then_some(state.unread);
            return Poll::Ready(Ok(Begun { is_any_accepted: state.accepted > 0, whole }));
        }
        match state.failure.clone() {
            Some(failure) => Poll::Ready(Err(failure)),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The next lines, each with its end; `None` after the last.
    ///
    /// # Errors
    /// If nobody answers the rest: then how many lines are missing is known ([`Replies::missing`]).
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Unanswered>> {
        let mut state = self.request.lock();
        if let Some(lines) = state.ready.pop_front() {
            state.unread -= lines.len();
            state.moved = Instant::now();
            self.request.share.sub(lines.len());
            drop(state);
            (self.on_room)();
            return Poll::Ready(Ok(Some(lines)));
        }
        match state.failure.clone() {
            failure if state.pieces_left == 0 && failure != Some(Unanswered::CutOff) => Poll::Ready(Ok(None)),
            Some(failure) => Poll::Ready(Err(failure)),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Records of which no line has been given, once [`Replies::poll_next`] has failed or is given up.
    pub fn missing(&self) -> u64 {
        let state = self.request.lock();
        state.records - state.told
    }

    /// As [`Replies::poll_begin`].
    ///
    /// # Errors
    /// As there.
    pub async fn begin(&mut self) -> Result<Begun, Unanswered> {
        std::future::poll_fn(|context| self.poll_begin(context)).await
    }

    /// The whole reply, of a request that is known to be bounded.
    ///
    /// # Errors
    /// If nobody answers all of it.
    pub async fn all(&mut self) -> Result<Vec<u8>, Unanswered> {
        let mut text = Vec::with_capacity(self.request.lock().unread);
        while let Some(lines) = std::future::poll_fn(|context| self.poll_next(context)).await? {
            text.extend_from_slice(&lines);
        }
        Ok(text)
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        let mut state = self.request.lock();
        self.request.drop_lines(&mut state);
        drop(state);
        (self.on_room)();
    }
}

/// The other end of [`Replies`], for answers without a source, as in tests.
pub struct Answering(Arc<Request>);

impl Answering {
    /// A reply to `records` records.
    pub fn new(records: u64) -> (Self, Replies) {
        let request = Arc::new(Request::new(Arc::new(Share::new(usize::MAX)), 1, records, true));
        (Self(Arc::clone(&request)), Replies::new(request, || {}))
    }

    /// Gives all lines at once.
    pub fn answer(self, lines: Vec<u8>, accepted: u64) {
        let records = u32::try_from(self.0.lock().records).unwrap_or(u32::MAX);
        self.0.finish(records, vec![lines.into()], accepted);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if self.0.lock().pieces_left > 0 {
            self.0.fail(Unanswered::Stopped);
        }
    }
}
