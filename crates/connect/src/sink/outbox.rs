//! The bounded queue between a sink's operator and its task on the I/O runtime: the operator hands over and goes on,
//! the task delivers.
//!
//! Bounded in bytes. When it is full the operator says that it is not ready, its task waits, and that reaches the
//! source; the items of one step of the task are taken in any case, so memory is bounded by the queue and one step.
//! Bytes count until they are released.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use thalweg_flow::Waker;
use thalweg_types::{Class, Error, Retry};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::source::handover::io_runtime;
use crate::{OptionKind, OptionSpec, Options};

pub(crate) const QUEUE: OptionSpec = OptionSpec {
    key: "queue",
    kind: OptionKind::Size,
    required: false,
    default: Some("16MiB"),
    doc: "size of the queue of rows to send; when it is full, the job waits",
};

const DEFAULT_QUEUE: usize = 16 << 20;

/// Bytes that an item takes on top of its data, so that empty ones are bounded too.
const OVERHEAD: usize = 64;

pub(crate) fn queue_bytes(options: &Options) -> usize {
    size(options, QUEUE.key, DEFAULT_QUEUE)
}

/// The value of a size, held within sensible bounds.
pub(crate) fn size(options: &Options, key: &str, default: usize) -> usize {
    let bytes = options.size(key).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    bytes.unwrap_or(default).clamp(1 << 10, 1 << 40)
}

pub(crate) struct Outbox<T> {
    /// Held for moments only, never across an await.
    state: Mutex<State<T>>,
    /// For the task: something came, or nothing comes any more.
    arrived: Notify,
    /// For threads that may wait: something was delivered, or will not be.
    settled: Condvar,
    bound: usize,
}

struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    /// How many items were ever put in, and how many of them have been delivered: in order, so the first ones.
    pushed: u64,
    delivered: u64,
    is_closed: bool,
    failure: Option<Failure>,
    /// Of the operator's task, which waits for room or for the end.
    waker: Option<Waker>,
}

/// Every caller gets the same error, as the job reports the first one that arrives when it ends.
struct Failure {
    /// For the first caller.
    error: Option<Error>,
    class: Class,
    retry: Retry,
    /// With all causes.
    message: String,
    /// The same with private parts, if there are any.
    full: Option<String>,
    hint: Option<String>,
}

impl Failure {
    fn of(error: Error) -> Self {
        let hint = error.hint().map(str::to_owned);
        let (class, retry, message) = (error.class(), error.retry(), error.public_chain());
        let full = error.has_private().then(|| error.chain());
        Self { error: Some(error), class, retry, message, full, hint }
    }

    fn tell(&mut self) -> Error {
        self.error.take().unwrap_or_else(|| {
            let mut error = Error::new(self.class, self.message.clone()).with_retry(self.retry);
            if let Some(full) = &self.full {
                error = error.with_private(format!(" (in full: {full})"));
            }
            match &self.hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        })
    }
}

impl<T> State<T> {
    fn check(&mut self) -> Result<(), Error> {
        self.failure.as_mut().map_or(Ok(()), |failure| Err(failure.tell()))
    }

    fn has_failed(&self) -> bool {
        self.failure.is_some()
    }
}

impl<T> Outbox<T> {
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            state: Mutex::new(State {
                items: VecDeque::new(),
                bytes: 0,
                pushed: 0,
                delivered: 0,
                is_closed: false,
                failure: None,
                waker: None,
            }),
            arrived: Notify::new(),
            settled: Condvar::new(),
            bound,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panic elsewhere leaves the state whole: every change of it is one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over an item of `bytes` bytes, and returns its number, from 1.
    ///
    /// # Errors
    /// Why nothing is delivered any more.
    pub(crate) fn push(&self, item: T, bytes: usize) -> Result<u64, Error> {
        let mut state = self.lock();
        state.check()?;
        state.items.push_back((item, bytes));
        state.bytes += bytes + OVERHEAD;
        state.pushed += 1;
        let number = state.pushed;
        drop(state);
        self.arrived.notify_one();
        Ok(number)
    }

    /// Whether the operator may go on; if not, `waker` is called once it may.
    pub(crate) fn has_room(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        // A caller that goes on after a failure gets its error.
        let has_room = state.bytes < self.bound || state.has_failed();
        if !has_room {
            state.waker = Some(waker.clone());
        }
        has_room
    }

    /// Whether nothing waits or is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().bytes == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// # Errors
    /// Why nothing is delivered any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.lock().check()
    }

    /// Whether everything has been delivered; if not, `waker` is called when more has.
    ///
    /// # Errors
    /// Why something will not be.
    pub(crate) fn is_drained(&self, waker: &Waker) -> Result<bool, Error> {
        let mut state = self.lock();
        state.check()?;
        let is_drained = state.delivered == state.pushed;
        if !is_drained {
            state.waker = Some(waker.clone());
        }
        Ok(is_drained)
    }

    /// Waits until the items up to `number` have been delivered; for threads that may wait.
    ///
    /// # Errors
    /// Why they will not be.
    pub(crate) fn wait_for(&self, number: u64) -> Result<(), Error> {
        let mut state = self.lock();
        while state.delivered < number {
            state.check()?;
            state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Nothing more is handed over.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_one();
    }

    /// Nothing is delivered any more; the first reason counts.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.failure.get_or_insert_with(|| Failure::of(error));
        self.tell(state);
    }

    /// The next item and its bytes, which still count; `None` once nothing more comes.
    pub(crate) async fn next(&self) -> Option<(T, usize)> {
        loop {
            // A notice that nobody waits for is kept, so an item that comes in between is not missed.
            {
                let mut state = self.lock();
                if let Some(item) = state.items.pop_front() {
                    return Some(item);
                }
                if state.is_closed {
                    return None;
                }
            }
            self.arrived.notified().await;
        }
    }

    /// Waits until something comes, or nothing comes any more; may return earlier.
    #[cfg(feature = "kafka")]
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Whether nothing more comes, and all that came was taken.
    #[cfg(feature = "kafka")]
    pub(crate) fn is_over(&self) -> bool {
        let state = self.lock();
        state.is_closed && state.items.is_empty()
    }

    /// The next item if it is there and has at most `bytes` bytes.
    pub(crate) fn next_within(&self, bytes: usize) -> Option<(T, usize)> {
        self.lock().items.pop_front_if(|(_, cost)| *cost <= bytes)
    }

    /// These items, with these bytes in all, no longer count.
    pub(crate) fn release(&self, items: u64, bytes: usize) {
        let mut state = self.lock();
        state.bytes -= bytes + OVERHEAD * items as usize;
        self.tell(state);
    }

    /// Notes how many items have been delivered.
    pub(crate) fn deliver(&self, items: u64) {
        let mut state = self.lock();
        state.delivered += items;
        self.tell(state);
    }

    fn tell(&self, mut state: MutexGuard<'_, State<T>>) {
        let waker = state.waker.take();
        drop(state);
        self.settled.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The task that delivers the items of an outbox. It ends when this is dropped.
pub(crate) struct Courier {
    task: AbortHandle,
}

impl Courier {
    /// Starts `deliver` on the I/O runtime; where it ends with an error or a panic the outbox has failed.
    ///
    /// # Errors
    /// Where the runtime cannot be started.
    pub(crate) fn start<T: Send + 'static>(
        outbox: &Arc<Outbox<T>>,
        deliver: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<Self, Error> {
        let runtime = io_runtime()?;
        let work = runtime.spawn(deliver);
        let task = work.abort_handle();
        let outbox = Arc::clone(outbox);
        runtime.spawn(async move {
            match work.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => outbox.fail(error),
                Err(ended) if ended.is_panic() => {
                    outbox.fail(Error::internal("the task that delivers panicked"));
                }
                Err(_) => outbox.fail(stopped()),
            }
        });
        Ok(Self { task })
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why nothing is delivered once the job is gone.
pub(crate) fn stopped() -> Error {
    Error::external("the job was stopped before everything was delivered")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counting() -> (Waker, Arc<AtomicUsize>) {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let waker = Waker::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        (waker, woken)
    }

    #[test]
    fn a_full_queue_holds_the_operator_until_there_is_room() {
        let outbox = Outbox::new(1_000);
        let (waker, woken) = counting();
        assert!(outbox.has_room(&waker));
        outbox.push('a', 2_000).unwrap();
        assert!(!outbox.has_room(&waker));
        assert_eq!(outbox.next_within(1_999), None);
        assert_eq!(outbox.next_within(2_000), Some(('a', 2_000)));
        assert!(!outbox.has_room(&waker), "an item under way counts");
        assert_eq!(woken.load(Ordering::Relaxed), 0);
        outbox.release(1, 2_000);
        assert_eq!((woken.load(Ordering::Relaxed), outbox.bytes()), (1, 0));
        assert!(outbox.has_room(&waker) && outbox.is_idle());
        assert!(!outbox.is_drained(&waker).unwrap());
        outbox.deliver(1);
        assert_eq!(woken.load(Ordering::Relaxed), 2);
        assert!(outbox.is_drained(&waker).unwrap());
    }

    #[test]
    fn a_failure_is_told_to_everybody_who_waits() {
        let outbox = Arc::new(Outbox::new(10));
        let number = outbox.push('a', 100).unwrap();
        let waiting = Arc::clone(&outbox);
        let thread = std::thread::spawn(move || waiting.wait_for(number));
        let (waker, woken) = counting();
        assert!(!outbox.has_room(&waker));
        let cause = std::io::Error::other("no such table");
        outbox.fail(Error::user("refused").with_hint("make it").with_source(cause));
        outbox.fail(Error::external("later"));
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert!(outbox.has_room(&waker), "after a failure the operator may go on");
        let told =
            [thread.join().unwrap(), outbox.push('b', 1).map(|_| ()), outbox.is_drained(&waker).map(|_| ())];
        for told in told.map(Result::unwrap_err) {
            let said = (told.class(), told.chain(), told.hint());
            assert_eq!(said, (Class::User, "refused: no such table".to_owned(), Some("make it")));
        }
    }

    #[test]
    fn a_courier_that_panics_fails_its_outbox() {
        let outbox = Arc::new(Outbox::new(10));
        let number = outbox.push((), 1).unwrap();
        let _courier = Courier::start(&outbox, async { panic!("no") }).unwrap();
        assert_eq!(outbox.wait_for(number).unwrap_err().message(), "the task that delivers panicked");
    }
}
