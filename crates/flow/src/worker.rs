//! Worker threads: each runs the tasks that were placed on it, one after the other, and sleeps in between.
//!
//! A worker has a ready queue of its own, which only its thread touches, and an inbox behind a lock for wakes
//! from other threads. A task that wakes one of the same worker, the usual thing in a pipeline at low load,
//! takes no lock and no system call. An idle worker waits on a condition variable until there is mail or a
//! timer: it never spins. Wakes are not lost: an inbox is only looked at, and `asleep` only set, under its
//! lock; and a task is queued at most once (see `ready`).

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::ready::Ready;

/// What a worker runs.
pub(crate) trait Work: Send {
    /// Works for a moment. Does not unwind.
    fn run(&mut self, now: Instant) -> Verdict;

    /// What is to be called when the work has been dropped.
    fn gone(&self) -> Box<dyn FnOnce() + Send>;
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing to do until woken, or until this time.
    Idle(Option<Instant>),
    /// There is more, but others have their turn first.
    Again,
    /// Nothing ever again: to be dropped.
    Finished,
}

/// A task as its worker and its wakers know it.
pub(crate) struct TaskCell {
    ready: Ready,
    worker: Arc<Mailbox>,
    /// Locked by the worker while it runs the task, and once at the start to put the work in.
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    work: Option<Box<dyn Work>>,
    /// The earliest timer that is in the worker's heap.
    timer: Option<Instant>,
}

impl TaskCell {
    pub(crate) fn new(worker: &Arc<Mailbox>) -> Arc<Self> {
        Arc::new(Self { ready: Ready::new(), worker: Arc::clone(worker), slot: Mutex::default() })
    }

    pub(crate) fn fill(&self, work: Box<dyn Work>) {
        self.slot().work = Some(work);
    }

    #[inline]
    pub(crate) fn wake(self: &Arc<Self>) {
        if self.ready.wake() {
            self.worker.enqueue(self);
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where other threads leave tasks for a worker.
#[derive(Default)]
pub(crate) struct Mailbox {
    inbox: Mutex<Inbox>,
    bell: Condvar,
    /// There may be something in the inbox: saves the lock where there is not. Only a hint; the lock decides
    /// before the worker sleeps.
    mail: AtomicBool,
}

#[derive(Default)]
struct Inbox {
    tasks: VecDeque<Arc<TaskCell>>,
    asleep: bool,
    /// How often it has begun to sleep.
    naps: u64,
    stop: bool,
}

/// The ready queue of the worker whose thread this is.
struct Local {
    mailbox: Arc<Mailbox>,
    tasks: VecDeque<Arc<TaskCell>>,
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue(self: &Arc<Self>, cell: &Arc<TaskCell>) {
        let here = LOCAL.with_borrow_mut(|local| match local {
            Some(local) if Arc::ptr_eq(&local.mailbox, self) => {
                local.tasks.push_back(Arc::clone(cell));
                true
            }
            _ => false,
        });
        if here {
            return;
        }
        let asleep = {
            let mut inbox = self.lock();
            inbox.tasks.push_back(Arc::clone(cell));
            self.mail.store(true, Ordering::Release);
            std::mem::take(&mut inbox.asleep)
        };
        if asleep {
            self.bell.notify_one();
        }
    }

    /// Ends the worker's thread once it has nothing ready.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.bell.notify_one();
    }

    /// How often the worker has begun to sleep, while it sleeps and nothing waits for it.
    pub(crate) fn nap(&self) -> Option<u64> {
        let inbox = self.lock();
        (inbox.asleep && inbox.tasks.is_empty()).then_some(inbox.naps)
    }

    fn take_mail(&self) {
        if !self.mail.load(Ordering::Acquire) {
            return;
        }
        let mut inbox = self.lock();
        self.mail.store(false, Ordering::Relaxed);
        LOCAL.with_borrow_mut(|local| {
            if let Some(local) = local {
                local.tasks.append(&mut inbox.tasks);
            }
        });
    }

    /// Sleeps until there is mail or the time has come; `false` when the worker is to end.
    fn sleep(&self, until: Option<Instant>) -> bool {
        let mut inbox = self.lock();
        inbox.naps += 1;
        loop {
            if !inbox.tasks.is_empty() {
                inbox.asleep = false;
                return true;
            }
            if inbox.stop {
                return false;
            }
            inbox.asleep = true;
            inbox = match until {
                None => self.bell.wait(inbox).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        inbox.asleep = false;
                        return true;
                    }
                    self.bell.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// A timer in a worker's heap, the earliest on top.
struct Timer {
    at: Instant,
    cell: Arc<TaskCell>,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

/// The life of a worker's thread.
pub(crate) fn run_worker(mailbox: &Arc<Mailbox>) {
    LOCAL.set(Some(Local { mailbox: Arc::clone(mailbox), tasks: VecDeque::new() }));
    let mut timers: BinaryHeap<Timer> = BinaryHeap::new();
    loop {
        mailbox.take_mail();
        let now = Instant::now();
        while timers.peek().is_some_and(|timer| timer.at <= now) {
            if let Some(timer) = timers.pop() {
                timer.cell.wake();
            }
        }
        let next = LOCAL.with_borrow_mut(|local| local.as_mut().and_then(|local| local.tasks.pop_front()));
        match next {
            Some(cell) => run_task(&cell, now, &mut timers),
            None => {
                if !mailbox.sleep(timers.peek().map(|timer| timer.at)) {
                    break;
                }
            }
        }
    }
    LOCAL.set(None);
}

fn run_task(cell: &Arc<TaskCell>, now: Instant, timers: &mut BinaryHeap<Timer>) {
    cell.ready.begin();
    let again = {
        let mut slot = cell.slot();
        if slot.timer.is_some_and(|timer| timer <= now) {
            slot.timer = None;
        }
        // No work: not there yet, or finished; then a wake finds nothing to do.
        let verdict = slot.work.as_mut().map_or(Verdict::Idle(None), |work| work.run(now));
        match verdict {
            Verdict::Idle(None) => false,
            Verdict::Idle(Some(at)) => {
                if slot.timer.is_none_or(|timer| timer > at) {
                    slot.timer = Some(at);
                    timers.push(Timer { at, cell: Arc::clone(cell) });
                }
                false
            }
            Verdict::Again => true,
            Verdict::Finished => {
                if let Some(work) = slot.work.take() {
                    bury(work);
                }
                false
            }
        }
    };
    if cell.ready.end(again) {
        cell.worker.enqueue(cell);
    }
}

/// Drops finished work; an operator whose drop panics harms nobody else.
fn bury(work: Box<dyn Work>) {
    let gone = work.gone();
    let dropped: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(|| drop(work)));
    if dropped.is_err() {
        tracing::warn!("a task panicked while it was dropped");
    }
    gone();
}
