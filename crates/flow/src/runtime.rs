//! The workers, and the jobs that run on them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use thalweg_types::Error;

use crate::build::{Site, Wired, wire};
use crate::job::{JobCore, panic_message};
use crate::worker::{Mailbox, run_worker};
use crate::{Clock, Durability, Followed, Graph, Job, JobOptions, NoOrderLog, OrderLog};

/// A fixed set of worker threads that run the tasks of many jobs. Dropping it aborts them.
pub struct Runtime {
    clock: Arc<dyn Clock>,
    workers: Vec<Arc<Mailbox>>,
    /// The worker that the next job begins at.
    turn: AtomicUsize,
    /// Locked when a job starts and at the end.
    running: Arc<Mutex<Running>>,
}

/// A job that has its tasks and its open sources, and does not run yet: there is a handle to report failures to. Dropping
/// it aborts the job.
pub struct WiredJob {
    /// `None` once it runs.
    wired: Option<Wired>,
    running: Arc<Mutex<Running>>,
}

impl WiredJob {
    pub fn job(&self) -> Job {
        let wired = self.wired.as_ref().expect("a job that runs has no wired one");
        wired.job.clone()
    }

    /// Lets the job run: it first follows what an order log says, then it writes `log`.
    ///
    /// # Errors
    /// If the runtime has been shut down.
    pub fn run(mut self, log: impl OrderLog + 'static, followed: Option<Followed>) -> Result<Job, Error> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.closed {
            drop(running);
            return Err(Error::internal("the runtime has been shut down"));
        }
        running.jobs.retain(|job| job.strong_count() > 0);
        let wired = self.wired.take().expect("a job is run once");
        let job = wired.run(Box::new(log), followed);
        running.jobs.push(Arc::downgrade(&job.core));
        drop(running);
        Ok(job)
    }
}

impl Drop for WiredJob {
    fn drop(&mut self) {
        if let Some(wired) = self.wired.take() {
            wired.abort();
        }
    }
}

struct Running {
    threads: Vec<JoinHandle<()>>,
    jobs: Vec<Weak<JobCore>>,
    closed: bool,
}

impl Runtime {
    /// Starts `workers` threads (at least one), named `flow-worker-0` and so on.
    ///
    /// # Panics
    /// If the operating system gives no thread.
    pub fn new(workers: usize, clock: Arc<dyn Clock>) -> Self {
        let workers: Vec<Arc<Mailbox>> = (0..workers.max(1)).map(|_| Arc::default()).collect();
        let threads = workers
            .iter()
            .enumerate()
            .map(|(index, mailbox)| {
                let mailbox = Arc::clone(mailbox);
                std::thread::Builder::new()
                    .name(format!("flow-worker-{index}"))
                    .spawn(move || run_worker(&mailbox))
                    .expect("the operating system gives a thread to each worker")
            })
            .collect();
        let running = Arc::new(Mutex::new(Running { threads, jobs: Vec::new(), closed: false }));
        Self { clock, workers, turn: AtomicUsize::new(0), running }
    }

    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// How often each worker has begun to sleep, while all of them sleep: if two calls give the same, none has worked in
    /// between.
    pub fn naps(&self) -> Option<Vec<u64>> {
        self.workers.iter().map(|mailbox| mailbox.nap()).collect()
    }

    /// Starts a job that does not outlive its process.
    ///
    /// # Errors
    /// As [`Runtime::wire`].
    pub fn start(&self, graph: Graph, options: JobOptions) -> Result<Job, Error> {
        self.wire(graph, options, Durability::default())?.run(NoOrderLog, None)
    }

    /// Makes the tasks of a job and their links, and starts its sources; nothing is read or computed until
    /// [`WiredJob::run`]. Takes as long as operators take to read their state, and holds up no other job.
    ///
    /// # Errors
    /// If the graph is not well formed, or what an operator's factory or a source's start says.
    pub fn wire(&self, graph: Graph, options: JobOptions, durability: Durability) -> Result<WiredJob, Error> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        let site = Site { workers: &self.workers, first, clock: &self.clock };
        let name = Arc::clone(&graph.job);
        let wired = catch_unwind(AssertUnwindSafe(|| wire(graph, options, durability, &site)));
        let wired = wired.unwrap_or_else(|payload| {
            let message = panic_message(payload.as_ref());
            Err(Error::internal(format!("job {name:?} panicked while it started: {message}")))
        })?;
        Ok(WiredJob { wired: Some(wired), running: Arc::clone(&self.running) })
    }

    /// Aborts all jobs and ends the threads. A second call does nothing.
    pub fn shutdown(&self) {
        let (threads, jobs) = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.closed = true;
            (std::mem::take(&mut running.threads), std::mem::take(&mut running.jobs))
        };
        for core in jobs.iter().filter_map(Weak::upgrade) {
            let job = Job { core };
            job.abort();
            job.wait();
        }
        for mailbox in &self.workers {
            mailbox.stop();
        }
        for thread in threads {
            // A worker's thread catches panics of its tasks; its own panic has been printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shutdown();
    }
}
