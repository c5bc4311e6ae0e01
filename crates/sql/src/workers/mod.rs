//! Queries in processes of their own, so that no text of SQL can hurt the node.
//!
//! A query may overflow a stack, ask for all memory there is, or compute for hours in one call of a function: no list of
//! allowed calls is ever complete. So [`Workers`] has it done by a process ([`crate::worker`]) that is killed when it
//! passes its time, and ends by itself when it passes its memory. The node parses nothing, plans nothing and holds no
//! row: pieces of an encoded reply go through a short queue.
//!
//! * `desk`: queries that run, queries that wait, and the short try of those that find all places taken;
//! * `pool`: processes that wait for a query, and their number;
//! * `process`: one of them, from start to death; `ending`: what it died of, in words;
//! * `call`: one query by one worker; `lend`: the node's answers to it about tables; `outlet`: where its reply goes.
//!
//! Invariants
//! * A client gets the error that time or memory is up after the process has gone.
//! * There are at most [`Limits::queries`] ordinary workers, and [`EXPRESS`] for short tries.
//! * Every process that was started is killed and waited for, when the workers are dropped at the latest. One whose node
//!   was killed is killed by the system, and sees its socket close.
//! * All that blocks here blocks the threads of this module alone.

mod call;
mod counts;
mod desk;
mod ending;
mod lend;
mod outlet;
mod pool;
mod process;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg_table::Catalog;
use thalweg_types::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use self::desk::Desk;
use self::pool::{Kind, Pool};
use crate::limits::Limits;
use crate::output::{Chunks, Format};
use crate::reply::torn;
use crate::statement;

pub use counts::{Counts, Stopped};

/// Workers for short tries: one that tries, one that stops or is killed after its try, and one that takes its place.
const EXPRESS: usize = 3;

/// Threads for snapshots and for the end of processes.
const BLOCKING: usize = 4;

/// How long the processes may take to go when all of it is dropped.
const GONE: Duration = Duration::from_secs(2);

/// What is started for a query.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    /// What makes it call [`crate::worker::run`].
    pub args: Vec<OsString>,
}

impl Program {
    /// The program that runs, also where its file has been replaced since.
    #[must_use]
    pub fn this(args: &[&str]) -> Self {
        Self { path: "/proc/self/exe".into(), args: args.iter().map(Into::into).collect() }
    }
}

/// How a node has its queries run.
#[derive(Clone, Debug)]
pub struct Setup {
    pub program: Program,
    pub limits: Limits,
    /// Queries are going to come, several at once: workers wait for them, and those that find all places taken get a short
    /// try. Else one is started for each.
    pub is_node: bool,
}

/// Runs queries over the tables of a catalog, each in a process.
pub struct Workers {
    desk: Arc<Desk>,
    limits: Limits,
    /// `None` only while it is being dropped.
    control: Option<Runtime>,
}

impl Workers {
    /// Starts the thread that looks after workers, and has the first ones started.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(catalog: Arc<dyn Catalog>, setup: Setup) -> Result<Self, Error> {
        // One thread, which lives as long as the runtime: a process is killed when the thread that started it ends.
        let control = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(BLOCKING)
            .thread_name("sql-control")
            .enable_all()
            .build()
            .map_err(|error| Error::external("start the threads for SQL").with_source(error))?;
        let Setup { program, limits, is_node } = setup;
        let pool = Arc::new(Pool::new(program, &limits, is_node, control.handle().clone()));
        let desk = Arc::new(Desk::new(catalog, limits.clone(), is_node, Arc::clone(&pool)));
        if is_node {
            control.spawn(async move {
                pool.stock(Kind::Ordinary);
                pool.stock(Kind::Express);
            });
        }
        Ok(Self { desk, limits, control: Some(control) })
    }

    /// Runs one statement that only reads; returns with the first bytes of the reply.
    ///
    /// # Errors
    /// As of [`crate::Engine::query`]; and external, if no process can be started.
    pub async fn ask(&self, sql: &str, format: Format) -> Result<Chunks, Error> {
        self.ask_over(None, sql, format).await
    }

    /// As [`Workers::ask`], over the tables of another catalog where one is given.
    ///
    /// # Errors
    /// As [`Workers::ask`].
    pub async fn ask_over(
        &self,
        catalog: Option<Arc<dyn Catalog>>,
        sql: &str,
        format: Format,
    ) -> Result<Chunks, Error> {
        self.begin(catalog, sql, format)?.await.map_err(|_| torn())?
    }

    /// As [`Workers::ask`], for a thread that may block.
    ///
    /// # Errors
    /// As [`Workers::ask`].
    pub fn ask_blocking(&self, sql: &str, format: Format) -> Result<Chunks, Error> {
        self.begin(None, sql, format)?.blocking_recv().map_err(|_| torn())?
    }

    /// What has become of queries and workers so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.desk.counts()
    }

    /// The limits that it was started with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    fn begin(
        &self,
        catalog: Option<Arc<dyn Catalog>>,
        sql: &str,
        format: Format,
    ) -> Result<oneshot::Receiver<Result<Chunks, Error>>, Error> {
        statement::check_length(sql)?;
        let control = self.control.as_ref().ok_or_else(torn)?;
        let (sender, ready) = oneshot::channel();
        control.spawn(Arc::clone(&self.desk).serve(catalog, sql.to_owned(), format, sender));
        Ok(ready)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let Some(control) = self.control.take() else { return };
        // Tasks hold the processes, which are killed as these are dropped. A drop may happen where a runtime must not be
        // waited for, so that another thread does it.
        let waiter = std::thread::Builder::new().name("sql-end".to_owned());
        match waiter.spawn(move || control.shutdown_timeout(GONE)) {
            Ok(waiter) => drop(waiter.join()),
            Err(error) => tracing::warn!(%error, "workers for SQL are left to end by themselves"),
        }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("limits", &self.limits).finish_non_exhaustive()
    }
}
