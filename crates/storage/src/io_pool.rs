//! A few named threads for work that must not delay an event: encoding, writing, reading, decoding.
//!
//! One pool serves all stores of a process. There are two lanes, reads before writes: a read is what a window
//! may soon wait for, a write only frees memory. Neither lane can grow without bound:
//! * reads are refused when `READS_PER_THREAD` of them wait for each thread (the caller reads by itself, when
//!   it must);
//! * a store has at most one job in the write lane and bounds the jobs that wait after it by blocking its owner.
//!
//! With no threads (`IoPool::inline`) a job runs at once in the caller, so that a test sees the same sequence of
//! I/O every time.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Waiting reads for each thread before further ones are refused: enough to keep a thread busy over a scheduling
/// delay, few enough that a read-ahead is not stale when its turn comes.
const READS_PER_THREAD: usize = 16;

pub(crate) type Job = Box<dyn FnOnce(&Lanes) + Send>;

/// Shared background threads. Dropping the last handle finishes waiting jobs and joins the threads.
pub struct IoPool {
    lanes: Arc<Lanes>,
    threads: Vec<JoinHandle<()>>,
}

/// The queues; jobs get them to put their own continuation after the others.
pub(crate) struct Lanes {
    queues: Mutex<Queues>,
    arrived: Condvar,
    inline: bool,
    max_reads: usize,
}

#[derive(Default)]
struct Queues {
    reads: VecDeque<Job>,
    writes: VecDeque<Job>,
    closing: bool,
}

impl IoPool {
    /// Starts `threads` threads named `thalweg-io-0` and so on; none means [`IoPool::inline`].
    ///
    /// # Panics
    /// If the operating system refuses a thread.
    pub fn new(threads: usize) -> Arc<Self> {
        let lanes = Arc::new(Lanes {
            queues: Mutex::default(),
            arrived: Condvar::new(),
            inline: threads == 0,
            max_reads: threads * READS_PER_THREAD,
        });
        let threads = (0..threads)
            .map(|number| {
                let lanes = Arc::clone(&lanes);
                std::thread::Builder::new()
                    .name(format!("thalweg-io-{number}"))
                    .spawn(move || lanes.work())
                    .expect("the operating system gives the few threads that a process starts with")
            })
            .collect();
        Arc::new(Self { lanes, threads })
    }

    /// A pool without threads: jobs run in the caller.
    pub fn inline() -> Arc<Self> {
        Self::new(0)
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }
}

impl fmt::Debug for IoPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoPool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Drop for IoPool {
    fn drop(&mut self) {
        self.lanes.lock().closing = true;
        self.lanes.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // The last handle may fall inside a job; a thread cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Lanes {
    /// Queues a read; `false` where too many wait already.
    pub(crate) fn read(&self, job: Job) -> bool {
        if self.inline {
            job(self);
            return true;
        }
        let mut queues = self.lock();
        if queues.reads.len() >= self.max_reads {
            return false;
        }
        queues.reads.push_back(job);
        drop(queues);
        self.arrived.notify_one();
        true
    }

    /// Queues a write.
    pub(crate) fn write(&self, job: Job) {
        if self.inline {
            return job(self);
        }
        self.lock().writes.push_back(job);
        self.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queues = self.lock();
        loop {
            if let Some(job) = queues.reads.pop_front().or_else(|| queues.writes.pop_front()) {
                drop(queues);
                // Jobs report their own panics to their store; one that gets here must not end the thread.
                if catch_unwind(AssertUnwindSafe(|| job(self))).is_err() {
                    tracing::error!("background task panicked outside its store's guard");
                }
                queues = self.lock();
            } else if queues.closing {
                return;
            } else {
                queues = self.arrived.wait(queues).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_panicking_job_does_not_end_its_thread() {
        let pool = IoPool::new(1);
        pool.lanes().write(Box::new(|_| panic!("planted")));
        let (sender, receiver) = mpsc::channel();
        pool.lanes().write(Box::new(move |_| {
            let _ = sender.send(std::thread::current().name().map(str::to_owned));
        }));
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("thalweg-io-0"));
    }

    #[test]
    fn reads_go_before_writes_and_are_refused_when_too_many_wait() {
        let pool = IoPool::new(1);
        let (go, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        pool.lanes().write(Box::new(move |_| {
            started.send(()).unwrap();
            let _ = gate.recv();
        }));
        running.recv().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |name: &'static str| -> Job {
            let order = Arc::clone(&order);
            Box::new(move |_| order.lock().unwrap().push(name))
        };
        pool.lanes().write(note("write"));
        for _ in 0..READS_PER_THREAD {
            assert!(pool.lanes().read(note("read")));
        }
        assert!(!pool.lanes().read(note("refused")));
        go.send(()).unwrap();
        drop(pool);
        let order = order.lock().unwrap();
        assert_eq!(order.len(), READS_PER_THREAD + 1);
        assert_eq!(order.last(), Some(&"write"));
    }
}
