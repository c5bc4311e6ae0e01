//! The workers, and the jobs that run on them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use thalweg_types::Error;

use crate::build::{Site, start};
use crate::job::{JobCore, panic_message};
use crate::worker::{Mailbox, run_worker};
use crate::{Clock, Durability, Graph, Job, JobHold, JobOptions, NoOrderLog};

/// A fixed set of worker threads that run the tasks of many jobs. Dropping it aborts them.
pub struct Runtime {
    clock: Arc<dyn Clock>,
    workers: Vec<Arc<Mailbox>>,
    /// The worker that the next job begins at.
    turn: AtomicUsize,
    /// Locked when a job starts and at the end.
    running: Mutex<Running>,
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
        let running = Mutex::new(Running { threads, jobs: Vec::new(), closed: false });
        Self { clock, workers, turn: AtomicUsize::new(0), running }
    }

    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Starts a job.
    ///
    /// # Errors
    /// If the graph is not well formed, or what an operator's factory or a source's start says.
    pub fn start(&self, graph: Graph, options: JobOptions) -> Result<Job, Error> {
        self.start_durable(graph, options, Durability::of_log(NoOrderLog), drop)
    }

    /// Starts a job that outlives its process. `begin` is given a hold on it before its first task runs.
    ///
    /// # Errors
    /// As [`Runtime::start`].
    pub fn start_durable(
        &self,
        graph: Graph,
        options: JobOptions,
        durability: Durability,
        begin: impl FnOnce(JobHold),
    ) -> Result<Job, Error> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        let site = Site { workers: &self.workers, first, clock: &self.clock };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.closed {
            return Err(Error::internal("the runtime has been shut down"));
        }
        let name = Arc::clone(&graph.job);
        let started = catch_unwind(AssertUnwindSafe(|| start(graph, options, durability, &site, begin)));
        let job = started.unwrap_or_else(|payload| {
            let message = panic_message(payload.as_ref());
            Err(Error::internal(format!("job {name:?} panicked while it started: {message}")))
        })?;
        running.jobs.retain(|job| job.strong_count() > 0);
        running.jobs.push(Arc::downgrade(&job.core));
        Ok(job)
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
