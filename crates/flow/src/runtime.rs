//! The workers, and the jobs that run on them.

use std::sync::Arc;

use thalweg_types::Error;

use crate::{Clock, Graph, Job, JobOptions, NoOrderLog, OrderLog};

/// A fixed set of worker threads that run the tasks of many jobs.
pub struct Runtime {
    clock: Arc<dyn Clock>,
}

impl Runtime {
    /// Starts `workers` threads (at least one), named `flow-worker-0` and so on.
    ///
    /// # Panics
    /// If the operating system gives no thread.
    pub fn new(workers: usize, clock: Arc<dyn Clock>) -> Self {
        let _ = workers;
        Self { clock }
    }

    /// Starts a job.
    ///
    /// # Errors
    /// If the graph is not well formed, or what an operator's factory or a source's start says.
    pub fn start(&self, graph: Graph, options: JobOptions) -> Result<Job, Error> {
        self.start_with_log(graph, options, Box::new(NoOrderLog))
    }

    /// Starts a job whose order is written down in `log`.
    ///
    /// # Errors
    /// As [`Runtime::start`].
    pub fn start_with_log(
        &self,
        graph: Graph,
        options: JobOptions,
        log: Box<dyn OrderLog>,
    ) -> Result<Job, Error> {
        let _ = (graph, options, log, &self.clock);
        Err(Error::internal("jobs cannot be started yet"))
    }

    /// Aborts all jobs and ends the threads. A second call does nothing.
    pub fn shutdown(&self) {}
}
