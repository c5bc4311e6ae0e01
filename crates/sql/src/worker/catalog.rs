//! Tables as a worker sees them: its node knows.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use thalweg_table::{Catalog, Snapshot, StoredFile, TableName};
use thalweg_types::Error;

use super::{lost, say};
use crate::wire::error::Told;
use crate::wire::message::{FromWorker, Shot};
use crate::wire::rows::Kept;

/// What the node answered.
pub(super) type Answer = Result<Option<Shot<StoredFile>>, Told>;

/// The tables of the query at work.
pub(super) struct Remote {
    to: Arc<Mutex<UnixStream>>,
    /// Names, as they came with the query.
    pub(super) tables: Mutex<Result<Vec<TableName>, Told>>,
    /// Rows that came so far.
    pub(super) kept: Mutex<Kept>,
    answers: Mutex<Receiver<Answer>>,
}

impl Remote {
    /// Together with where answers have to go, once the rows of each have come.
    pub(super) fn new(to: Arc<Mutex<UnixStream>>) -> (Self, Sender<Answer>) {
        let (sender, answers) = channel();
        let remote =
            Self { to, tables: Mutex::new(Ok(vec![])), kept: Mutex::default(), answers: Mutex::new(answers) };
        (remote, sender)
    }
}

impl Catalog for Remote {
    fn tables(&self) -> Result<Vec<TableName>, Error> {
        lock(&self.tables).clone().map_err(Error::from)
    }

    fn snapshot(&self, name: &TableName) -> Result<Option<Snapshot>, Error> {
        // Held over question and answer, so that no caller gets another's.
        let answers = lock(&self.answers);
        say(&self.to, &FromWorker::Ask(name.clone()))?;
        let Some(shot) = answers.recv().map_err(|_| lost())?? else { return Ok(None) };
        let kept = lock(&self.kept);
        let rows = shot.fresh.iter().map(|rows| kept.get(rows.number));
        let rows: Option<Vec<RecordBatch>> = rows.collect();
        let rows = rows.ok_or_else(|| Error::internal(format!("rows of table {name} did not come")))?;
        drop(kept);
        shot.open(rows).map(Some).map_err(|error: ArrowError| {
            Error::internal(format!("read the columns of table {name}")).with_source(error)
        })
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
