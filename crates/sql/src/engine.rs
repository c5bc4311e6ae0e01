//! The engine: threads of its own, on which queries run.
//!
//! The threads have low priority (Linux), so that queries take what ingest leaves; there are few of them, so that they
//! never take all cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_table::Catalog;
use thalweg_types::Error;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use crate::admission::Admission;
use crate::limits::Limits;
use crate::reply::{Reply, torn};
use crate::run::{Asked, Shared, run};
use crate::session;

/// Nice value of the threads: above 0 gives way to others.
pub(crate) const NICE: i32 = 10;

/// Stack of each thread. Parser and planner recurse over what a query nests; memory is taken as it is used.
pub(crate) const STACK: usize = 16 << 20;

/// Threads that may wait for files, by threads that compute.
pub(crate) fn threads_for_files(threads: usize) -> usize {
    (threads / 4).max(2)
}

/// Runs queries over the tables of a catalog.
pub struct Engine {
    shared: Arc<Shared>,
    /// `None` only while it is being dropped.
    runtimes: Option<Runtimes>,
}

/// Threads that compute, and one that looks after queries and never computes.
struct Runtimes {
    compute: Runtime,
    control: Runtime,
}

impl Engine {
    /// Starts the threads of an engine.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn new(catalog: Arc<dyn Catalog>, limits: Limits) -> Result<Self, Error> {
        Self::of_priority(catalog, limits, NICE)
    }

    /// As [`Engine::new`], with another nice value.
    pub(crate) fn of_priority(catalog: Arc<dyn Catalog>, limits: Limits, nice: i32) -> Result<Self, Error> {
        let names = AtomicUsize::new(0);
        let threads = limits.threads.max(1);
        let not_started = |error| Error::external("start the threads of the SQL engine").with_source(error);
        let compute = Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(threads_for_files(threads))
            .thread_stack_size(STACK)
            .thread_name_fn(move || format!("sql-{}", names.fetch_add(1, Ordering::Relaxed)))
            .on_thread_start(move || give_way(nice))
            // Sockets to other nodes.
            .enable_io()
            .enable_time()
            .build()
            .map_err(not_started)?;
        let control = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .thread_name("sql-control")
            .thread_stack_size(STACK)
            .enable_time()
            .build()
            .map_err(not_started)?;
        let template = session::template(&limits)?;
        let admission = Admission::new(&limits);
        let handle = compute.handle().clone();
        let shared = Arc::new(Shared { catalog, limits, template, admission, compute: handle });
        Ok(Self { shared, runtimes: Some(Runtimes { compute, control }) })
    }

    /// Runs one statement that only reads; returns when its first rows are there, or when it has none.
    ///
    /// # Errors
    /// Of class user if the text is not SQL, names something missing, writes, or takes more memory or time than it
    /// may; external if too many queries wait or a file cannot be read; [`crate::Exceeded::of`] tells which limit
    /// it was. A later failure is returned in place of the next rows.
    pub async fn query(&self, sql: &str) -> Result<Reply, Error> {
        self.query_over(None, sql).await
    }

    /// As [`Engine::query`], over the tables of another catalog where one is given.
    ///
    /// # Errors
    /// As [`Engine::query`].
    pub async fn query_over(&self, catalog: Option<Arc<dyn Catalog>>, sql: &str) -> Result<Reply, Error> {
        let (runtime, ready) = self.spawn(catalog, sql)?;
        Ok(Reply::new(ready.await.map_err(|_| torn())??, runtime))
    }

    /// As [`Engine::query`], for a thread that may block; not to be called on a thread of an async runtime.
    ///
    /// # Errors
    /// As [`Engine::query`].
    pub fn query_blocking(&self, sql: &str) -> Result<Reply, Error> {
        let (runtime, ready) = self.spawn(None, sql)?;
        Ok(Reply::new(ready.blocking_recv().map_err(|_| torn())??, runtime))
    }

    /// The limits that it was started with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Where queries compute.
    #[cfg(target_os = "linux")]
    pub(crate) fn compute(&self) -> &Handle {
        &self.shared.compute
    }

    fn spawn(
        &self,
        catalog: Option<Arc<dyn Catalog>>,
        sql: &str,
    ) -> Result<(Handle, oneshot::Receiver<Ready>), Error> {
        let runtimes = self.runtimes.as_ref().ok_or_else(torn)?;
        let (sender, ready) = oneshot::channel();
        let asked = Asked {
            catalog: catalog.unwrap_or_else(|| Arc::clone(&self.shared.catalog)),
            sql: sql.to_owned(),
        };
        runtimes.control.spawn(run(Arc::clone(&self.shared), asked, sender));
        Ok((self.shared.compute.clone(), ready))
    }
}

type Ready = Result<crate::run::Head, Error>;

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(Runtimes { compute, control }) = self.runtimes.take() {
            // A drop may happen anywhere, also where blocking is not allowed.
            control.shutdown_background();
            compute.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

#[cfg(target_os = "linux")]
fn give_way(nice: i32) {
    // On Linux this is the calling thread alone. Where it is forbidden, queries compete.
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::debug!(%error, "a thread for queries keeps its priority");
    }
}

#[cfg(not(target_os = "linux"))]
fn give_way(_: i32) {}
