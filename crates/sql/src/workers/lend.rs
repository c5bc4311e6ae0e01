//! What a worker learns of tables.
//!
//! The node keeps a query's snapshots until its end: so long the files that they name stay.

use std::io;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use thalweg_table::{Catalog, Snapshot, TableName};
use thalweg_types::Error;

use super::process::Worker;
use crate::wire::error::Told;
use crate::wire::message::{Lent, Shot};
use crate::wire::packed;
use crate::wire::rows::encode;

/// The tables of one query.
pub(super) struct Loan {
    catalog: Arc<dyn Catalog>,
    held: Vec<Arc<Snapshot>>,
}

/// What came of a look at a table.
type Looked = Result<Option<Arc<Snapshot>>, Error>;

impl Loan {
    pub(super) fn new(catalog: Arc<dyn Catalog>) -> Self {
        Self { catalog, held: Vec::new() }
    }

    /// Calls the catalog where it may block.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Catalog) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let catalog = Arc::clone(&self.catalog);
        let called = tokio::task::spawn_blocking(move || work(&*catalog)).await;
        called.unwrap_or_else(|_| Err(Error::internal("a look at the tables panicked")))
    }

    /// The names of all tables.
    pub(super) async fn tables(&self) -> Result<Vec<TableName>, Told> {
        self.call(|catalog| catalog.tables()).await.map_err(|error| Told::of(&error))
    }

    /// Answers a worker that asks for a table.
    ///
    /// # Errors
    /// What the socket says; then the worker is of no use any more.
    pub(super) async fn answer(&mut self, worker: &mut Worker, name: TableName) -> io::Result<()> {
        let looked: Looked = self.call(move |catalog| Ok(catalog.snapshot(&name)?.map(Arc::new))).await;
        let snapshot = match looked {
            Ok(Some(snapshot)) => snapshot,
            Ok(None) => return worker.say(&Lent::Snapshot(Ok(None))).await,
            Err(error) => return worker.say(&Lent::Snapshot(Err(Told::of(&error)))).await,
        };
        self.held.push(Arc::clone(&snapshot));
        let fresh: Vec<_> = snapshot.fresh.iter().map(|batch| worker.sent.number(batch)).collect();
        let pairs = fresh.iter().zip(&snapshot.fresh).filter(|(rows, _)| rows.is_new);
        let new: Vec<RecordBatch> = pairs.map(|(_, batch)| batch.clone()).collect();
        let unwritten = |error: ArrowError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let message = Shot::of(&snapshot, fresh).map_err(unwritten);
        match message.and_then(|shot| packed(&Lent::Snapshot(Ok(Some(shot))))) {
            Ok(message) => worker.send(&message).await?,
            Err(error) => {
                worker.sent.clear();
                let error = Error::external(format!("tell a process of table {}", snapshot.name))
                    .with_source(error)
                    .with_hint("paths of files have to be UTF-8");
                return worker.say(&Lent::Snapshot(Err(Told::of(&error)))).await;
            }
        }
        for batch in new {
            let bytes = tokio::task::spawn_blocking(move || encode(&batch)).await;
            let bytes = bytes.map_err(io::Error::other)?.map_err(unwritten)?;
            worker.say_bytes(&bytes).await?;
        }
        Ok(())
    }
}
