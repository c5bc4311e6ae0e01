//! Processes that wait for a query.
//!
//! One is always ready, as long as there may be one more: when it is taken the next is started in the background. The one
//! that worked last is taken first, as its caches are warm; processes that were idle for a while end, but for one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_types::Error;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use super::counts::Tallies;
use super::process::{Counted, Worker};
use super::{EXPRESS, Program};
use crate::engine::NICE;
use crate::limits::Limits;
use crate::wire::message::Configure;

/// A worker without work goes after so long.
const IDLE: Duration = Duration::from_secs(60);

/// The same of short tries: queries with quick answers come before those that compute for long.
const EXPRESS_NICE: i32 = 5;

/// What of the limits on memory and caches a short try has.
const EXPRESS_SHARE: u64 = 4;

/// What a worker is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ordinary,
    /// For short tries.
    Express,
}

/// The workers of a node.
pub(super) struct Pool {
    program: Program,
    ordinary: Shelf,
    express: Shelf,
    is_stocked: bool,
    pub(super) tallies: Arc<Tallies>,
    control: Handle,
    numbers: AtomicUsize,
}

/// The workers of a kind.
struct Shelf {
    configure: Configure,
    most: usize,
    /// Those that are, are started or are not gone yet.
    count: Arc<AtomicUsize>,
    /// The one that came last is at the end.
    idle: Mutex<Vec<Idle>>,
    /// One more is idle, or one fewer is.
    changed: Arc<Notify>,
}

/// A worker that waits with a task of its own, which hands it out.
struct Idle {
    number: usize,
    taken: oneshot::Sender<oneshot::Sender<Worker>>,
}

/// The other end of an [`Idle`].
struct Offer {
    number: usize,
    taken: oneshot::Receiver<oneshot::Sender<Worker>>,
}

impl Shelf {
    fn new(configure: Configure, most: usize) -> Self {
        Self { configure, most, count: Arc::default(), idle: Mutex::default(), changed: Arc::default() }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_out(&self, number: usize) {
        self.idle().retain(|idle| idle.number != number);
    }
}

impl Pool {
    pub(super) fn new(program: Program, limits: &Limits, is_node: bool, control: Handle) -> Self {
        let ordinary = Configure {
            memory: limits.memory,
            metadata: limits.metadata,
            threads: limits.threads.max(1),
            use_rollups: limits.use_rollups,
            nice: NICE,
            is_kept: is_node,
        };
        let express = Configure {
            memory: limits.memory / EXPRESS_SHARE,
            metadata: limits.metadata / EXPRESS_SHARE,
            nice: EXPRESS_NICE,
            ..ordinary.clone()
        };
        Self {
            program,
            ordinary: Shelf::new(ordinary, limits.queries.max(1)),
            express: Shelf::new(express, EXPRESS),
            is_stocked: is_node,
            tallies: Arc::default(),
            control,
            numbers: AtomicUsize::new(0),
        }
    }

    fn shelf(&self, kind: Kind) -> &Shelf {
        match kind {
            Kind::Ordinary => &self.ordinary,
            Kind::Express => &self.express,
        }
    }

    /// The limit on memory of a query of this kind.
    pub(super) fn memory(&self, kind: Kind) -> u64 {
        self.shelf(kind).configure.memory
    }

    /// A worker: one that waits, or a new one.
    ///
    /// # Errors
    /// External, if none can be started.
    pub(super) async fn hire(self: &Arc<Self>, kind: Kind) -> Result<Worker, Error> {
        let shelf = self.shelf(kind);
        loop {
            let changed = shelf.changed.notified();
            let idle = shelf.idle().pop();
            if let Some(Idle { taken, .. }) = idle {
                let (sender, worker) = oneshot::channel();
                if taken.send(sender).is_ok()
                    && let Ok(worker) = worker.await
                {
                    self.stock(kind);
                    return Ok(worker);
                }
                // It died, or went, at this moment.
                continue;
            }
            if let Some(counted) = self.count_one(kind) {
                let worker = self.start(kind, counted).await?;
                self.stock(kind);
                return Ok(worker);
            }
            changed.await;
        }
    }

    /// Has one started if none waits, in the background.
    pub(super) fn stock(self: &Arc<Self>, kind: Kind) {
        if !self.is_stocked || !self.shelf(kind).idle().is_empty() {
            return;
        }
        let Some(counted) = self.count_one(kind) else { return };
        let pool = Arc::clone(self);
        self.control.spawn(async move {
            match pool.start(kind, counted).await {
                Ok(worker) => pool.shelve(worker),
                // A query that needs one gets an error when it does not start.
                Err(error) => tracing::warn!(error = %error.chain(), "no worker for SQL is ready"),
            }
        });
    }

    /// Has a worker wait for its next query: it is there for the next one that asks.
    pub(super) fn shelve(self: &Arc<Self>, worker: Worker) {
        let offer = self.offer(worker.kind);
        self.control.spawn(Arc::clone(self).wait(worker, offer));
    }

    fn offer(&self, kind: Kind) -> Offer {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, taken) = oneshot::channel();
        let shelf = self.shelf(kind);
        shelf.idle().push(Idle { number, taken: sender });
        shelf.changed.notify_one();
        Offer { number, taken }
    }

    /// A place for one more worker, if there is one.
    fn count_one(&self, kind: Kind) -> Option<Counted> {
        let shelf = self.shelf(kind);
        let more = |count: usize| (count < shelf.most).then_some(count + 1);
        shelf.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        self.tallies.workers.fetch_add(1, Ordering::Relaxed);
        let (count, changed) = (Arc::clone(&shelf.count), Arc::clone(&shelf.changed));
        Some(Counted(
            Arc::clone(&self.tallies),
            Box::new(move || {
                count.fetch_sub(1, Ordering::AcqRel);
                changed.notify_one();
            }),
        ))
    }

    async fn start(&self, kind: Kind, counted: Counted) -> Result<Worker, Error> {
        let configure = self.shelf(kind).configure.clone();
        let worker = Worker::start(&self.program, kind, configure, counted).await?;
        self.tallies.started.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(pid = worker.pid(), ?kind, "a worker for SQL is ready");
        Ok(worker)
    }

    async fn wait(self: Arc<Self>, mut worker: Worker, mut offer: Offer) {
        let kind = worker.kind;
        let shelf = self.shelf(kind);
        loop {
            let Offer { number, taken } = offer;
            tokio::select! {
                asked = taken => {
                    let Ok(to) = asked else { return };
                    match to.send(worker) {
                        Ok(()) => return,
                        // Who asked has gone.
                        Err(back) => worker = back,
                    }
                    offer = self.offer(kind);
                }
                // Nobody asked it anything: it has gone.
                _ = worker.hear() => {
                    shelf.take_out(number);
                    let pid = worker.pid();
                    let ending = worker.end().await;
                    let status = ending.status.map(|status| status.to_string()).unwrap_or_default();
                    tracing::warn!(pid, status, "a worker for SQL has ended while it had nothing to do");
                    self.stock(kind);
                    return;
                }
                () = sleep(IDLE) => {
                    shelf.take_out(number);
                    if shelf.idle().is_empty() {
                        offer = self.offer(kind);
                        continue;
                    }
                    worker.end().await;
                    return;
                }
            }
        }
    }
}
