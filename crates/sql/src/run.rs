//! One query from its text to its last row.
//!
//! A query is led by a task on the control thread and computed by tasks on the engine's others, one after the other: so the
//! clock is looked at and the reader is told also while these are busy. A step that is given up ends when it next gives way
//! (`interrupt`); its place is free then and not before.
//!
//! Rows go through a queue of [`QUEUE`] batches. When it is full the query waits for its reader, up to the time that it
//! may take itself; when the reader goes away the query ends at its next step.
//!
//! A file that a snapshot names may be merged or expire before it is opened. As long as no row was given out, the
//! query begins again with new snapshots, [`ATTEMPTS`] times in all; so it does where another node of a cluster does not give
//! the rows that it had when the snapshot was taken.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use thalweg_table::Catalog;
use thalweg_types::{Class, Error, Retry};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, timeout};

use crate::admission::Admission;
use crate::fault::{self, Fault};
use crate::interrupt::{Flag, Stop};
use crate::limits::{Exceeded, Limits};
use crate::session::{self, Held, Query};
use crate::statement;

/// Batches that wait for a reader.
const QUEUE: usize = 2;

/// Times that a query is begun where files vanish under it, or rows go from one node to another.
const ATTEMPTS: usize = 3;

/// How long it waits until rows have come to another node.
const PAUSE: Duration = Duration::from_millis(200);

/// What all queries of an engine share.
pub(crate) struct Shared {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) limits: Limits,
    pub(crate) template: SessionState,
    pub(crate) admission: Admission,
    /// Where queries compute.
    pub(crate) compute: Handle,
}

/// What a query gives out as soon as it has its first row, or none.
pub(crate) struct Head {
    pub(crate) schema: SchemaRef,
    pub(crate) items: mpsc::Receiver<Item>,
}

/// What comes through the queue. A queue that ends without [`Item::End`] was torn.
pub(crate) enum Item {
    Batch(RecordBatch),
    Failed(Error),
    End,
}

/// A query.
pub(crate) struct Asked {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) sql: String,
}

/// Runs a query; ends early when no client waits for it any more.
pub(crate) async fn run(shared: Arc<Shared>, asked: Asked, mut ready: oneshot::Sender<Result<Head, Error>>) {
    let stop = Stop(Flag::default());
    let begun = tokio::select! {
        begun = begin(&shared, &asked, &stop.0) => begun,
        () = ready.closed() => return,
    };
    let (query, first, mut budget) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let (sender, items) = mpsc::channel(QUEUE);
    if ready.send(Ok(Head { schema: query.schema(), items })).is_err() {
        return;
    }
    if let Some(last) = pass_on(&shared, query, first, &mut budget, &sender).await {
        let _ = give(&sender, last, budget.limit).await;
    }
}

/// Gives out all rows; returns the last item, unless the reader has gone.
async fn pass_on(
    shared: &Shared,
    mut query: Query,
    first: Option<RecordBatch>,
    budget: &mut Budget,
    sender: &mpsc::Sender<Item>,
) -> Option<Item> {
    let mut next = first;
    while let Some(batch) = next {
        if let Err(last) = give(sender, Item::Batch(batch), budget.limit).await {
            return last;
        }
        let step = budget.spend(Computed::of(shared, async move {
            let next = query.step().await;
            (next, query)
        }));
        let step = tokio::select! {
            step = step => step,
            () = sender.closed() => return None,
        };
        (next, query) = match step {
            Ok((Ok(next), query)) => (next, query),
            Ok((Err(fault), _)) => return Some(Item::Failed(fault.error)),
            Err(error) => return Some(Item::Failed(error)),
        };
    }
    Some(Item::End)
}

/// Puts an item in the queue. The error is the last item, if anybody is there to read it.
async fn give(sender: &mpsc::Sender<Item>, item: Item, patience: Duration) -> Result<(), Option<Item>> {
    match timeout(patience, sender.send(item)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(None),
        Err(_) => Err(Some(Item::Failed(Exceeded::Reader { limit: patience }.into_error()))),
    }
}

/// Starts a query, and waits for its first rows.
async fn begin(
    shared: &Arc<Shared>,
    asked: &Asked,
    flag: &Flag,
) -> Result<(Query, Option<RecordBatch>, Budget), Error> {
    let statement = statement::parse(&asked.sql)?;
    let held = Held { place: Arc::new(shared.admission.enter().await?), flag: flag.clone() };
    let limit = shared.limits.time;
    let mut budget = Budget { limit, left: limit };
    let mut attempt = 1;
    let mut missed = None;
    loop {
        let first = first(Arc::clone(shared), Arc::clone(&asked.catalog), statement.clone(), held.clone());
        match budget.spend(Computed::of(shared, first)).await? {
            Ok((query, first)) => return Ok((query, first, budget)),
            Err(Fault { error, vanished: Some(path) }) if attempt < ATTEMPTS => {
                tracing::debug!(%error, attempt, "a file vanished under a query");
                attempt += 1;
                missed = Some(path);
            }
            Err(Fault { error, vanished: None })
                if error.retry() == Retry::WithBackoff
                    && error.class() == Class::External
                    && attempt < ATTEMPTS =>
            {
                tracing::debug!(%error, attempt, "rows of a query are on their way to other nodes");
                attempt += 1;
                sleep(PAUSE).await;
            }
            // Files stay for a while after the last snapshot that names them.
            Err(Fault { vanished: Some(path), .. }) if missed.as_ref() == Some(&path) => {
                let message = format!("the manifest of a table names {path:?}, and there is no such file");
                return Err(Error::corrupt(message).with_hint("bring it back from a copy"));
            }
            Err(fault) => return Err(fault.error),
        }
    }
}

async fn first(
    shared: Arc<Shared>,
    catalog: Arc<dyn Catalog>,
    statement: Statement,
    held: Held,
) -> Result<(Query, Option<RecordBatch>), Fault> {
    let mut query = session::start(&shared.template, catalog, &shared.limits, statement, held).await?;
    let first = query.step().await?;
    Ok((query, first))
}

/// The time that a query may still compute. Waiting for a reader does not count.
struct Budget {
    limit: Duration,
    left: Duration,
}

impl Budget {
    async fn spend<T>(&mut self, work: Computed<T>) -> Result<T, Error> {
        let from = Instant::now();
        let done = timeout(self.left, work).await;
        self.left = self.left.saturating_sub(from.elapsed());
        done.unwrap_or_else(|_| Err(Exceeded::Time { limit: self.limit }.into_error()))
    }
}

/// Work on the threads for it. Dropping it gives it up.
struct Computed<T> {
    work: JoinHandle<T>,
    /// The limit on memory.
    memory: u64,
}

impl<T: Send + 'static> Computed<T> {
    fn of(shared: &Shared, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: shared.compute.spawn(work), memory: shared.limits.memory }
    }
}

impl<T> Future for Computed<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let memory = self.memory;
        Pin::new(&mut self.work).poll(context).map(|done| done.map_err(|error| panicked(&error, memory)))
    }
}

/// A step that panicked. A panic over more memory than a machine can have is a query that takes too much.
fn panicked(error: &JoinError, memory: u64) -> Error {
    match fault::wants_too_much(&error.to_string(), memory) {
        Some(too_much) => too_much,
        None => Error::internal("the query panicked").with_hint("the log has the message"),
    }
}

impl<T> Drop for Computed<T> {
    fn drop(&mut self) {
        self.work.abort();
    }
}
