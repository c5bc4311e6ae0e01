//! The bounded queue between the I/O runtime and a source: where the two kinds of threads meet.
//!
//! Bounded in bytes. The caller that puts something in chooses what happens when it is full: wait (TCP, stdin), be
//! refused (HTTP), or drop and count (UDP). Small pieces that need no context of their own leave together as one block.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::BytesMut;
use thalweg_flow::{Poll, RawBlock, Waker};
use thalweg_types::{Error, Offset};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use super::cut::Cut;

/// Bytes that a piece takes in the queue on top of its data, so that empty ones are bounded too.
pub(crate) const OVERHEAD: usize = 64;

/// Default bound of a queue.
pub(crate) const DEFAULT_QUEUE: usize = 16 << 20;

/// The runtime of all sockets of this process: one thread, because it only moves bytes.
///
/// # Errors
/// Where the thread cannot be started.
pub(crate) fn io_runtime() -> Result<&'static Runtime, Error> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("connect:io")
                .enable_all()
                .build()
        })
        .as_ref()
        .map_err(|error| Error::external(format!("start the I/O runtime: {error}")))
}

/// Waits until the source is drained or gone.
pub(crate) async fn drained(drain: &mut watch::Receiver<bool>) {
    let _ = drain.wait_for(|drain| *drain).await;
}

/// A queue of pieces, each with a tag that the source gets back.
pub(crate) struct Handover<T> {
    joint: Joint,
    /// Held for moments only, never across an await.
    queue: Mutex<Queue<T>>,
    room: Semaphore,
    bound: usize,
    /// Records of a block at most.
    most_records: u32,
    waker: OnceLock<Waker>,
}

struct Queue<T> {
    pieces: VecDeque<Piece<T>>,
    /// Nobody puts anything in any more.
    is_closed: bool,
    failure: Option<Error>,
}

struct Piece<T> {
    cut: Cut,
    tag: T,
    /// Room to give back when it is taken.
    cost: u32,
}

/// The separator of pieces that leave as one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joint {
    /// A line end, unless there is one: each record is on lines of its own.
    LineEnd,
    Nothing,
}

/// The result of a look into the queue.
pub(crate) enum Taken<T> {
    /// One block, and per piece in it how many records it holds and its tag.
    Block(Cut, Vec<(u32, T)>),
    Nothing,
    Closed,
}

/// Reserved room in a queue, given back when it is dropped.
pub(crate) struct Room<'a> {
    room: &'a Semaphore,
    bytes: usize,
}

impl<'a> Room<'a> {
    pub(crate) fn none<T>(handover: &'a Handover<T>) -> Self {
        Self { room: &handover.room, bytes: 0 }
    }

    pub(crate) fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// The same with at most `bytes` bytes; the rest is given back.
    pub(crate) fn shrunk_to(mut self, bytes: usize) -> Self {
        let rest = self.bytes.saturating_sub(bytes);
        self.bytes -= rest;
        self.room.add_permits(rest);
        self
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.room.add_permits(self.bytes);
    }
}

/// Why pieces were not put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no room for them now.
    Full,
    /// Nothing is taken any more.
    Closed,
}

impl<T> Handover<T> {
    pub(crate) fn new(bound: usize) -> Self {
        let bound = bound.clamp(1 << 10, 1 << 30);
        Self {
            joint: Joint::LineEnd,
            queue: Mutex::new(Queue { pieces: VecDeque::new(), is_closed: false, failure: None }),
            room: Semaphore::new(bound),
            bound,
            most_records: u32::MAX,
            waker: OnceLock::new(),
        }
    }

    /// Makes blocks of at most `records` records, but for pieces that have more.
    #[must_use]
    pub(crate) fn of_records(self, most_records: u32) -> Self {
        Self { most_records, ..self }
    }

    #[must_use]
    pub(crate) fn joined_by(self, joint: Joint) -> Self {
        Self { joint, ..self }
    }

    pub(crate) fn bound(&self) -> usize {
        self.bound
    }

    pub(crate) fn set_waker(&self, waker: Waker) {
        let _ = self.waker.set(waker);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // A panic elsewhere leaves the queue whole: every change of it is one call.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room that a piece takes; one larger than the queue takes all of it.
    fn cost(&self, bytes: usize) -> u32 {
        (bytes + OVERHEAD).min(self.bound) as u32
    }

    /// Puts a piece in, waiting for room.
    pub(crate) async fn send(&self, cut: Cut, tag: T) {
        let cost = self.cost(cut.data.len());
        let permit = self.room.acquire_many(cost).await;
        permit.expect("the semaphore is never closed").forget();
        self.lock().pieces.push_back(Piece { cut, tag, cost });
        self.wake();
    }

    /// Waits for room; more than the queue has counts as all of it.
    pub(crate) async fn room(&self, bytes: usize) -> Room<'_> {
        let bytes = bytes.min(self.bound);
        let permit = self.room.acquire_many(bytes as u32).await;
        permit.expect("the semaphore is never closed").forget();
        Room { room: &self.room, bytes }
    }

    /// Puts a piece in, with room that was taken for it before: its bytes, and the overhead of a piece as far as there
    /// is some.
    pub(crate) fn send_in(&self, cut: Cut, tag: T, held: &mut Room<'_>) {
        let cost = (cut.data.len() + OVERHEAD).min(held.bytes);
        held.bytes -= cost;
        self.lock().pieces.push_back(Piece { cut, tag, cost: cost as u32 });
        self.wake();
    }

    /// Puts pieces in that stay next to each other, or none of them.
    pub(crate) fn try_send(&self, pieces: Vec<(Cut, T)>) -> Result<(), Refused> {
        let bytes = pieces.iter().map(|(cut, _)| cut.data.len() + OVERHEAD).sum::<usize>();
        let cost = self.cost(bytes.saturating_sub(OVERHEAD));
        match self.room.try_acquire_many(cost) {
            Ok(permit) => permit.forget(),
            Err(_) => return Err(Refused::Full),
        }
        let mut queue = self.lock();
        if queue.is_closed {
            drop(queue);
            self.room.add_permits(cost as usize);
            return Err(Refused::Closed);
        }
        // The first one carries the cost of all: they come together, and the rest follows at once.
        let costs = std::iter::once(cost).chain(std::iter::repeat(0));
        queue.pieces.extend(pieces.into_iter().zip(costs).map(|((cut, tag), cost)| Piece { cut, tag, cost }));
        drop(queue);
        self.wake();
        Ok(())
    }

    /// No more pieces come.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.wake();
    }

    /// No more pieces come, and this is why.
    pub(crate) fn fail(&self, error: Error) {
        let mut queue = self.lock();
        queue.is_closed = true;
        queue.failure.get_or_insert(error);
        drop(queue);
        self.wake();
    }

    /// Takes pieces that are there, about `max_bytes` of them.
    ///
    /// # Errors
    /// The one given to [`Handover::fail`], once everything before it is taken.
    pub(crate) fn take(&self, max_bytes: usize) -> Result<Taken<T>, Error> {
        let mut queue = self.lock();
        let Some(Piece { cut: first, tag, cost }) = queue.pieces.pop_front() else {
            return match queue.failure.take() {
                Some(error) => Err(error),
                None if queue.is_closed => Ok(Taken::Closed),
                None => Ok(Taken::Nothing),
            };
        };
        let mut freed = cost as usize;
        let mut tags = vec![(first.count, tag)];
        let (mut bytes, mut records) = (first.data.len(), first.count);
        let mut more = Vec::new();
        while let Some(next) = queue.pieces.pop_front_if(|next| {
            let fits = bytes + next.cut.data.len() < max_bytes && tags.len() < 1 << 16;
            let is_few = records.saturating_add(next.cut.count) <= self.most_records;
            fits && is_few && first.context.is_none() && next.cut.context.is_none()
        }) {
            freed += next.cost as usize;
            bytes += next.cut.data.len() + 1;
            records += next.cut.count;
            tags.push((next.cut.count, next.tag));
            more.push(next.cut);
        }
        drop(queue);
        self.room.add_permits(freed);
        Ok(Taken::Block(join(first, more, self.joint), tags))
    }
}

/// The source's end of a handover: numbers the records that it takes.
pub(crate) struct Intake<T> {
    handover: Arc<Handover<T>>,
    next: Offset,
}

impl<T> Intake<T> {
    pub(crate) fn new(handover: Arc<Handover<T>>) -> Self {
        Self { handover, next: 0 }
    }

    pub(crate) fn handover(&self) -> &Arc<Handover<T>> {
        &self.handover
    }

    /// The next block, as [`thalweg_flow::Source::poll`] gives it, and the tags of its pieces.
    ///
    /// # Errors
    /// As [`Handover::take`].
    pub(crate) fn poll(&mut self, max_bytes: usize) -> Result<(Poll, Vec<(u32, T)>), Error> {
        Ok(match self.handover.take(max_bytes)? {
            Taken::Block(cut, tags) => {
                let (first, count) = (self.next, cut.count);
                self.next += u64::from(count);
                let payload = cut.into_payload();
                (Poll::Block(RawBlock { partition: 0, first, count, payload }), tags)
            }
            Taken::Nothing => (Poll::Pending, Vec::new()),
            Taken::Closed => (Poll::End, Vec::new()),
        })
    }
}

impl Intake<()> {
    /// [`Intake::poll`] where pieces have no tags.
    ///
    /// # Errors
    /// As [`Handover::take`].
    pub(crate) fn poll_blocks(&mut self, max_bytes: usize) -> Result<Poll, Error> {
        self.poll(max_bytes).map(|(poll, _)| poll)
    }
}

/// The task on the I/O runtime that fills a handover, from the source's side: asked to drain, it takes what has already
/// arrived and closes the handover; it does not outlive the source.
pub(crate) struct Filler {
    drain: watch::Sender<bool>,
    task: Option<AbortHandle>,
}

impl Filler {
    pub(crate) fn new() -> Self {
        Self { drain: watch::channel(false).0, task: None }
    }

    /// Starts it with the signal that asks it to drain.
    pub(crate) fn start<F>(&mut self, runtime: &Runtime, fill: impl FnOnce(watch::Receiver<bool>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.task = Some(runtime.spawn(fill(self.drain.subscribe())).abort_handle());
    }

    /// Asks for the end. Where nothing was started there is nothing to wait for.
    pub(crate) fn drain<T>(&self, handover: &Handover<T>) {
        self.drain.send_replace(true);
        if self.task.is_none() {
            handover.close();
        }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Pieces as one.
pub(crate) fn join(first: Cut, more: Vec<Cut>, joint: Joint) -> Cut {
    if more.is_empty() {
        return first;
    }
    let bytes = first.data.len() + more.iter().map(|cut| cut.data.len() + 1).sum::<usize>();
    let mut data = BytesMut::with_capacity(bytes + 1);
    let mut count = first.count;
    data.extend_from_slice(&first.data);
    for cut in more {
        if joint == Joint::LineEnd && data.last() != Some(&b'\n') {
            data.extend_from_slice(b"\n");
        }
        data.extend_from_slice(&cut.data);
        count += cut.count;
    }
    Cut { data: data.freeze(), count, context: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intake_numbers_what_it_takes_and_gives_the_tags_back() {
        let handover = Arc::new(Handover::new(1 << 16));
        let mut intake = Intake::new(Arc::clone(&handover));
        let cut = |count: u32| Cut { data: vec![b'x'; 10].into(), count, context: None };
        let mut poll = || match intake.poll(1 << 10) {
            Ok((Poll::Block(block), tags)) => Ok(Some((block.first, block.count, tags))),
            Ok((Poll::Pending | Poll::PendingUntil(_), _)) => Ok(None),
            Ok((Poll::End | Poll::Told { .. }, _)) => Err("end".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        assert!(handover.try_send(vec![(cut(3), 'a'), (cut(2), 'b')]).is_ok());
        assert_eq!(poll(), Ok(Some((0, 5, vec![(3, 'a'), (2, 'b')]))));
        assert_eq!(poll(), Ok(None));
        assert!(handover.try_send(vec![(cut(1), 'c')]).is_ok());
        handover.fail(Error::external("connection lost"));
        assert_eq!(poll(), Ok(Some((5, 1, vec![(1, 'c')]))), "what came before is taken first");
        assert_eq!(poll(), Err("connection lost".to_owned()));
        assert_eq!(poll(), Err("end".to_owned()));
    }

    #[test]
    fn a_closed_handover_refuses_what_nobody_would_take() {
        let cut = || Cut { data: vec![b'x'; 1000 - OVERHEAD].into(), count: 1, context: None };
        let handover = Handover::new(2000);
        assert!(handover.try_send(vec![(cut(), 'a')]).is_ok());
        handover.close();
        assert_eq!(handover.try_send(vec![(cut(), 'b')]), Err(Refused::Closed));
        assert!(matches!(handover.take(1 << 10), Ok(Taken::Block(_, tags)) if tags == [(1, 'a')]));
        assert!(matches!(handover.take(1 << 10), Ok(Taken::Closed)));
        assert_eq!(handover.room.available_permits(), 2000, "what was refused gives its room back");
    }
}
