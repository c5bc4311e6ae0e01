//! One query from its text to its last row, as a task on the engine's runtime.
//!
//! Rows go through a queue of [`QUEUE`] batches. When it is full the query waits for its reader, up to the time that it
//! may take itself; when the reader goes away the query ends at its next step.
//!
//! A file that a snapshot names may be merged or expire before it is opened. As long as no row was given out, the
//! query begins again with new snapshots, [`ATTEMPTS`] times in all.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use futures_util::StreamExt;
use thalweg_table::Catalog;
use thalweg_types::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::admission::Admission;
use crate::fault::{self, Fault};
use crate::limits::{Exceeded, Limits};
use crate::{session, statement};

/// Batches that wait for a reader.
const QUEUE: usize = 2;

/// Times that a query is begun where files vanish under it.
const ATTEMPTS: usize = 3;

/// What all queries of an engine share.
pub(crate) struct Shared {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) limits: Limits,
    pub(crate) template: SessionState,
    pub(crate) admission: Admission,
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

/// The time that a query may still compute. Waiting for a reader does not count.
struct Budget {
    limit: Duration,
    left: Duration,
}

impl Budget {
    async fn spend<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Error> {
        let from = Instant::now();
        let done = timeout(self.left, work).await;
        self.left = self.left.saturating_sub(from.elapsed());
        done.map_err(|_| Exceeded::Time { limit: self.limit }.into_error())
    }
}

/// Runs a query; ends early when nobody waits for it any more.
pub(crate) async fn run(shared: Arc<Shared>, sql: String, mut ready: oneshot::Sender<Result<Head, Error>>) {
    let begun = tokio::select! {
        begun = begin(&shared, &sql) => begun,
        () = ready.closed() => return,
    };
    let Begun { schema, first, mut stream, mut budget, _place } = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let (sender, items) = mpsc::channel(QUEUE);
    if ready.send(Ok(Head { schema, items })).is_err() {
        return;
    }
    let mut next = first;
    let last = loop {
        match next {
            Some(batch) => {
                if let Err(last) = give(&sender, Item::Batch(batch), budget.limit).await {
                    break last;
                }
            }
            None => break Some(Item::End),
        }
        let step = tokio::select! {
            step = budget.spend(step(&mut stream)) => step,
            () = sender.closed() => break None,
        };
        next = match step.and_then(|step| step) {
            Ok(next) => next,
            Err(error) => break Some(Item::Failed(fault::with_memory_limit(error, shared.limits.memory))),
        };
    };
    // Memory and files are given back before the reader is told.
    drop(stream);
    if let Some(last) = last {
        let _ = give(&sender, last, budget.limit).await;
    }
}

/// Puts an item in the queue. The error is what has to be the last item, if anybody is there to read it.
async fn give(sender: &mpsc::Sender<Item>, item: Item, patience: Duration) -> Result<(), Option<Item>> {
    match timeout(patience, sender.send(item)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(None),
        Err(_) => Err(Some(Item::Failed(Exceeded::Reader { limit: patience }.into_error()))),
    }
}

/// A query that has its first rows.
struct Begun {
    schema: SchemaRef,
    first: Option<RecordBatch>,
    stream: SendableRecordBatchStream,
    budget: Budget,
    _place: tokio::sync::OwnedSemaphorePermit,
}

async fn begin(shared: &Shared, sql: &str) -> Result<Begun, Error> {
    let statement = statement::parse(sql)?;
    let place = shared.admission.enter().await?;
    let limit = shared.limits.time;
    let mut budget = Budget { limit, left: limit };
    let mut attempt = 1;
    loop {
        match budget.spend(first(shared, statement.clone())).await? {
            Ok((stream, first)) => {
                let schema = stream.schema();
                return Ok(Begun { schema, first, stream, budget, _place: place });
            }
            Err(fault) if fault.vanished && attempt < ATTEMPTS => {
                tracing::debug!(error = %fault.error.chain(), attempt, "a file vanished under a query");
                attempt += 1;
            }
            Err(fault) => return Err(fault::with_memory_limit(fault.error, shared.limits.memory)),
        }
    }
}

async fn first(
    shared: &Shared,
    statement: Statement,
) -> Result<(SendableRecordBatchStream, Option<RecordBatch>), Fault> {
    let mut stream = session::start(&shared.template, &shared.catalog, &shared.limits, statement).await?;
    let first = match stream.next().await.transpose() {
        Ok(Some(batch)) if batch.num_rows() == 0 => step_fault(&mut stream).await?,
        Ok(first) => first,
        Err(error) => return Err(fault::of(error)),
    };
    Ok((stream, first))
}

/// The next rows; `None` after the last.
async fn step(stream: &mut SendableRecordBatchStream) -> Result<Option<RecordBatch>, Error> {
    step_fault(stream).await.map_err(|fault| fault.error)
}

async fn step_fault(stream: &mut SendableRecordBatchStream) -> Result<Option<RecordBatch>, Fault> {
    loop {
        match stream.next().await.transpose() {
            Ok(Some(batch)) if batch.num_rows() == 0 => {}
            Ok(next) => return Ok(next),
            Err(error) => return Err(fault::of(error)),
        }
    }
}
