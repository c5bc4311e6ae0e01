//! One log among those of a thread, and the handle through which everybody else meets it.
//!
//! Locks: `queue` (for a copy) and `log` (for a round) are never held together by a handle; the thread takes `queue`
//! with no other lock held.

use std::fmt;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use thalweg_types::Micros;

use super::{Durability, Registration, Shared, lock};
use crate::log::group::GroupBuffer;
use crate::log::{Log, LogError, LogPosition, Reader, RetentionPolicy, record_len};

pub(super) struct Channel {
    shared: Arc<Shared>,
    dir: PathBuf,
    registration: Registration,
    queue: Mutex<Queue>,
    /// The queue was taken, or the end has come. Waited for by [`Channel::await_room`].
    room: Condvar,
    /// More is durable, or the end has come. Waited for by [`Channel::await_progress`].
    reached: Condvar,
    /// Released when everything before is as durable as asked; acquired by readers that rely on it.
    durable: AtomicU64,
    /// Held for the length of a round. `None` once closed.
    log: Mutex<Option<Log>>,
}

#[derive(Debug)]
struct Queue {
    buffer: GroupBuffer,
    /// Number of the next record.
    next: LogPosition,
    /// Every record before it is on the disk.
    synced: LogPosition,
    /// A record in the buffer asks for all that the log's durability promises.
    is_sync_due: bool,
    /// The next round is to sync, whatever it is given.
    is_sync_wanted: bool,
    /// The round under way does.
    is_syncing: bool,
    /// Takes nothing any more.
    refuses: bool,
    /// The thread has ended: nothing more will become durable.
    ended: bool,
    /// How many threads wait for room. Without one no notice is sent, which would be a system call all the same.
    room_waiter_count: usize,
    /// How many wait until more is durable.
    progress_waiter_count: usize,
}

/// What a round has taken from a log's queue; it travels between the two.
#[derive(Debug, Default)]
pub(super) struct Taken {
    buffer: GroupBuffer,
    is_sync_due: bool,
}

/// What a round did for a log, or for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) bytes: usize,
    pub(super) records: u64,
    /// It synced, or would have if there had been anything.
    pub(super) may_sync: bool,
    /// Somebody waited for it in [`LogHandle::wait`] or [`LogHandle::sync`]; waiters with a callback are not known
    /// here.
    pub(super) is_awaited: bool,
}

impl AddAssign for Committed {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.records += other.records;
        self.may_sync |= other.may_sync;
        self.is_awaited |= other.is_awaited;
    }
}

impl Channel {
    pub(super) fn new(
        shared: Arc<Shared>,
        log: Log,
        registration: Registration,
        durable: LogPosition,
    ) -> Self {
        let queue = Queue {
            buffer: GroupBuffer::default(),
            next: log.next(),
            synced: log.synced(),
            is_sync_due: false,
            is_sync_wanted: false,
            is_syncing: false,
            refuses: false,
            ended: false,
            room_waiter_count: 0,
            progress_waiter_count: 0,
        };
        Self {
            shared,
            dir: log.dir().to_owned(),
            registration,
            queue: Mutex::new(queue),
            room: Condvar::new(),
            reached: Condvar::new(),
            durable: AtomicU64::new(durable.0),
            log: Mutex::new(Some(log)),
        }
    }

    /// Swaps the gathered records with an empty buffer.
    pub(super) fn take(&self, empty: &mut Taken) {
        let is_awaited = {
            let mut queue = lock(&self.queue);
            std::mem::swap(&mut queue.buffer, &mut empty.buffer);
            empty.is_sync_due = std::mem::take(&mut queue.is_sync_due);
            queue.room_waiter_count > 0
        };
        if is_awaited {
            self.room.notify_all();
        }
    }

    /// Waits until the queue was taken or the end has come. It may return before that: look again.
    fn await_room<'a>(&self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        queue.room_waiter_count += 1;
        let mut queue = self.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        queue.room_waiter_count -= 1;
        queue
    }

    /// Waits until more is durable or the end has come. It may return before that: look again.
    fn await_progress<'a>(&self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        queue.progress_waiter_count += 1;
        let mut queue = self.reached.wait(queue).unwrap_or_else(PoisonError::into_inner);
        queue.progress_waiter_count -= 1;
        queue
    }

    /// Writes the taken records, makes them as durable as registered, and reports it.
    pub(super) fn commit(&self, taken: &mut Taken) -> Result<Committed, LogError> {
        let is_sync_wanted = {
            let mut queue = lock(&self.queue);
            queue.is_syncing = queue.is_sync_wanted;
            std::mem::take(&mut queue.is_sync_wanted)
        };
        let buffer = &mut taken.buffer;
        let is_empty = buffer.groups() == 0;
        let is_synced = self.registration.durability == Durability::Synced;
        let mut done = Committed {
            bytes: buffer.len(),
            records: buffer.records(),
            may_sync: is_sync_wanted || is_synced && (is_empty || taken.is_sync_due),
            is_awaited: false,
        };
        if is_empty && !is_sync_wanted {
            return Ok(done);
        }
        let durable = {
            let mut log = lock(&self.log);
            let log = log.as_mut().ok_or_else(|| self.closed())?;
            log.write(buffer)?;
            if done.may_sync {
                log.sync_written()?;
            }
            log.written()
        };
        // Without an acknowledgement it is ahead of the disk, and moves with each append.
        if self.registration.durability != Durability::None {
            self.durable.store(durable.0, Ordering::Release);
        }
        // Under the lock, so that no thread is between looking and waiting.
        let mut queue = lock(&self.queue);
        queue.is_syncing = false;
        if done.may_sync {
            queue.synced = durable;
        }
        done.is_awaited = queue.progress_waiter_count > 0;
        drop(queue);
        if done.is_awaited {
            self.reached.notify_all();
        }
        self.tell(Ok(durable));
        Ok(done)
    }

    /// Closes the log: everything taken is synced.
    pub(super) fn close(&self) -> Result<(), LogError> {
        lock(&self.log).take().map_or(Ok(()), Log::close)
    }

    /// Takes nothing from now on.
    pub(super) fn refuse(&self) {
        lock(&self.queue).refuses = true;
        self.room.notify_all();
    }

    /// The thread has ended: wakes all that wait for it.
    pub(super) fn end(&self) {
        {
            let mut queue = lock(&self.queue);
            queue.refuses = true;
            queue.ended = true;
        }
        self.room.notify_all();
        self.reached.notify_all();
        if let Some(failure) = self.shared.failure.get() {
            self.tell(Err(failure.clone()));
        }
    }

    fn tell(&self, progress: Result<LogPosition, LogError>) {
        if let Some(callback) = &self.registration.on_progress {
            callback(progress);
        }
    }

    fn closed(&self) -> LogError {
        LogError::Closed { dir: self.dir.clone() }
    }

    fn with_log<T>(&self, act: impl FnOnce(&mut Log) -> Result<T, LogError>) -> Result<T, LogError> {
        self.shared.check()?;
        act(lock(&self.log).as_mut().ok_or_else(|| self.closed())?)
    }

    /// Removes files of segments that have left the log, with no lock held.
    fn remove_leaving(&self) -> Result<(), LogError> {
        while let Some(leaving) = self.with_log(|log| Ok(log.leaving()))? {
            leaving.remove()?;
            self.with_log(|log| {
                log.has_left(&leaving);
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("dir", &self.dir)
            .field("registration", &self.registration)
            .finish_non_exhaustive()
    }
}

/// A record on its way to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// Number of the record.
    pub position: LogPosition,
}

/// One log of a [`super::GroupCommit`], for any number of threads.
#[derive(Clone, Debug)]
pub struct LogHandle(Arc<Channel>);

impl LogHandle {
    pub(super) fn new(channel: Arc<Channel>) -> Self {
        Self(channel)
    }

    /// Appends one record, whose bytes are `parts` one after the other. Waits while the buffer is full.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], [`LogError::Closed`], or the failure that ended the thread.
    pub fn append(&self, parts: &[&[u8]]) -> Result<Ticket, LogError> {
        self.append_as(parts, true)
    }

    /// As [`LogHandle::append`], for a record that need not be on the disk before its ticket is reached: where the log's
    /// durability is [`Durability::Synced`] it counts as durable once it is written and everything before it is as
    /// durable as was asked. The next record that asks for a sync takes it along.
    ///
    /// # Errors
    /// As there.
    pub fn append_unsynced(&self, parts: &[&[u8]]) -> Result<Ticket, LogError> {
        self.append_as(parts, false)
    }

    fn append_as(&self, parts: &[&[u8]], is_sync_due: bool) -> Result<Ticket, LogError> {
        let len = record_len(parts)?;
        let channel = &*self.0;
        let mut queue = self.usable()?;
        while !self.has_room(&queue, len) {
            // The thread may be gathering. It is notified with no lock held, so look again before waiting.
            drop(queue);
            channel.shared.wake(|wake| wake.hurry = true);
            queue = self.usable()?;
            if !self.has_room(&queue, len) {
                drop(channel.await_room(queue));
                queue = self.usable()?;
            }
        }
        Ok(self.push(queue, parts, is_sync_due))
    }

    /// Appends one record; `None` where the buffer is full. Progress is the time to try again.
    ///
    /// # Errors
    /// As for [`LogHandle::append`].
    pub fn try_append(&self, parts: &[&[u8]]) -> Result<Option<Ticket>, LogError> {
        let len = record_len(parts)?;
        let queue = self.usable()?;
        if !self.has_room(&queue, len) {
            drop(queue);
            self.0.shared.wake(|wake| wake.hurry = true);
            return Ok(None);
        }
        Ok(Some(self.push(queue, parts, true)))
    }

    /// Every record before it is as durable as was asked when it was appended. Lock-free.
    pub fn durable(&self) -> LogPosition {
        LogPosition(self.0.durable.load(Ordering::Acquire))
    }

    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.durable() > ticket.position
    }

    /// Waits until the ticket is reached.
    ///
    /// # Errors
    /// The failure that ended the thread, or [`LogError::Closed`]: whether the record is on the disk is then open.
    pub fn wait(&self, ticket: Ticket) -> Result<(), LogError> {
        let mut queue = lock(&self.0.queue);
        loop {
            if self.is_durable(ticket) {
                return Ok(());
            }
            self.0.shared.check()?;
            if queue.ended {
                return Err(self.0.closed());
            }
            queue = self.0.await_progress(queue);
        }
    }

    /// Waits until every record that was appended so far is on the disk, whatever the log's [`Durability`].
    ///
    /// # Errors
    /// As for [`LogHandle::wait`].
    pub fn sync(&self) -> Result<(), LogError> {
        let channel = &*self.0;
        let wanted = self.next();
        loop {
            let mut queue = lock(&channel.queue);
            if queue.synced >= wanted {
                return Ok(());
            }
            channel.shared.check()?;
            if queue.ended {
                return Err(channel.closed());
            }
            queue.is_sync_wanted = true;
            drop(queue);
            channel.shared.wake(|wake| (wake.dirty, wake.hurry) = (true, true));
            // A round that had taken its records before takes the wish and leaves ours for the next one.
            let mut queue = lock(&channel.queue);
            while queue.is_sync_wanted && !queue.ended {
                queue = channel.await_progress(queue);
            }
            while queue.synced < wanted && queue.is_syncing && !queue.ended {
                queue = channel.await_progress(queue);
            }
        }
    }

    /// The log's folder.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Number that the next record gets, unless another thread appends first.
    pub fn next(&self) -> LogPosition {
        lock(&self.0.queue).next
    }

    /// Where the log ends: the file that is appended to, and the byte after its last frame. Waits for the round under
    /// way.
    ///
    /// # Errors
    /// The failure that ended the thread, or [`LogError::Closed`].
    pub fn end(&self) -> Result<(PathBuf, u64), LogError> {
        self.0.with_log(|log| Ok(log.end()))
    }

    /// Number of the oldest record that is kept. Waits for the round under way.
    ///
    /// # Errors
    /// The failure that ended the thread, or [`LogError::Closed`].
    pub fn first(&self) -> Result<LogPosition, LogError> {
        self.0.with_log(|log| Ok(log.first()))
    }

    /// [`Log::read_from`]. Waits for the round under way.
    ///
    /// # Errors
    /// As there, and as for [`LogHandle::first`].
    pub fn read_from(&self, position: LogPosition) -> Result<Reader, LogError> {
        self.0.with_log(|log| log.read_from(position))
    }

    /// [`Log::truncate_before`]. Waits for the round under way; no round waits for files to be removed, nor does
    /// [`GroupCommit::close`](super::GroupCommit::close): a caller that opens the log again in this process waits for
    /// this first.
    ///
    /// # Errors
    /// As there, and as for [`LogHandle::first`].
    pub fn truncate_before(&self, position: LogPosition) -> Result<u64, LogError> {
        let records = self.0.with_log(|log| log.leave_before(position))?;
        self.0.remove_leaving()?;
        Ok(records)
    }

    /// [`Log::retain`]. Waits as [`LogHandle::truncate_before`] does.
    ///
    /// # Errors
    /// As there, and as for [`LogHandle::first`].
    pub fn retain(&self, policy: RetentionPolicy, floor: LogPosition, now: Micros) -> Result<u64, LogError> {
        let records = self.0.with_log(|log| log.leave_retained(policy, floor, now))?;
        self.0.remove_leaving()?;
        Ok(records)
    }

    #[cfg(test)]
    pub(in crate::log) fn room_waiter_count(&self) -> usize {
        lock(&self.0.queue).room_waiter_count
    }

    fn usable(&self) -> Result<MutexGuard<'_, Queue>, LogError> {
        let queue = lock(&self.0.queue);
        self.0.shared.check()?;
        if queue.refuses { Err(self.0.closed()) } else { Ok(queue) }
    }

    fn has_room(&self, queue: &Queue, len: usize) -> bool {
        let waiting = queue.buffer.len();
        waiting == 0 || waiting + GroupBuffer::cost(len) <= self.0.registration.max_bytes
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, parts: &[&[u8]], is_sync_due: bool) -> Ticket {
        let was_empty = queue.buffer.groups() == 0;
        queue.buffer.push(parts);
        queue.is_sync_due |= is_sync_due;
        let position = queue.next;
        queue.next = LogPosition(position.0 + 1);
        if self.0.registration.durability == Durability::None {
            // Written under this lock alone: a plain store, for one that compares cost each record up to 100 ns.
            self.0.durable.store(queue.next.0, Ordering::Release);
        }
        drop(queue);
        // The thread that found it empty wakes the writer for all that follow until it is taken.
        if was_empty {
            self.0.shared.wake(|wake| wake.dirty = true);
        }
        Ticket { position }
    }
}
