//! The rows of a query, as they come.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use thalweg_types::Error;
use tokio::runtime::Handle;

use crate::run::{Head, Item};

/// The answer to a query: its columns, and a stream of batches of rows that are never empty. Dropping it ends the query.
///
/// Batches are read with [`Reply::next_batch`], or by iteration on a thread that may block.
#[must_use]
pub struct Reply {
    head: Head,
    done: bool,
    pub(crate) runtime: Handle,
}

impl Reply {
    pub(crate) fn new(head: Head, runtime: Handle) -> Self {
        Self { head, done: false, runtime }
    }

    /// Names and types of the columns.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.head.schema
    }

    /// The next rows; `None` after the last, and after an error.
    pub async fn next_batch(&mut self) -> Option<Result<RecordBatch, Error>> {
        if self.done {
            return None;
        }
        let item = self.head.items.recv().await;
        self.take(item)
    }

    fn take(&mut self, item: Option<Item>) -> Option<Result<RecordBatch, Error>> {
        let item = item.unwrap_or_else(|| Item::Failed(torn()));
        self.done = !matches!(item, Item::Batch(_));
        match item {
            Item::Batch(batch) => Some(Ok(batch)),
            Item::Failed(error) => Some(Err(error)),
            Item::End => None,
        }
    }
}

/// Blocks until the next rows are there; not to be used on a thread of an async runtime.
impl Iterator for Reply {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = self.head.items.blocking_recv();
        self.take(item)
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("schema", &self.head.schema).finish_non_exhaustive()
    }
}

/// The task of a query is gone without a word: it panicked, or the engine was dropped.
pub(crate) fn torn() -> Error {
    Error::internal("the query ended before its answer did")
        .with_hint("the engine was shut down, or it panicked: then the log has the message")
}
