//! The messages. Rows and pieces of replies are plain bytes after them.

use std::io;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use thalweg_table::{Rollup, RollupSpec, Share, Snapshot, StoredFile, TableName};
use thalweg_types::Micros;

use super::error::Told;
use crate::output::Format;

/// From the node to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// Comes first, and once.
    Configure(Configure),
    Query(Query),
    /// The answer to an [`FromWorker::Ask`]: a [`Shot`], none where there is no such table.
    Snapshot(Result<Option<Shot<StoredFile>>, Told>),
    /// Nobody waits for the query any more.
    Cancel,
}

/// The same as [`ToWorker::Snapshot`], of files that another process has.
#[derive(Debug, Serialize)]
pub(crate) enum Lent<'a> {
    _Configure,
    _Query,
    Snapshot(Result<Option<Shot<&'a StoredFile>>, Told>),
}

/// From a worker to its node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    Ready,
    /// What does this table hold?
    Ask(TableName),
    /// The reply is whole.
    End,
    Failed(Told),
    /// The query has stopped. `is_spent`: this worker should take no other.
    Idle {
        is_spent: bool,
    },
}

/// What a worker is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Configure {
    pub(crate) memory: u64,
    pub(crate) metadata: u64,
    pub(crate) threads: usize,
    pub(crate) use_rollups: bool,
    pub(crate) nice: i32,
    /// Queries are going to follow one another: it pays to be warm for them.
    pub(crate) is_kept: bool,
}

/// A query to run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Query {
    pub(crate) sql: String,
    pub(crate) format: Format,
    /// Names that there are; so that no query has to ask for them.
    pub(crate) tables: Result<Vec<TableName>, Told>,
    /// The batches that may be named again, where that are not all.
    pub(crate) keep: Option<Vec<u64>>,
}

/// A snapshot of a table.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Shot<F> {
    name: TableName,
    /// An empty stream of Arrow IPC.
    schema: Vec<u8>,
    time: usize,
    files: Vec<F>,
    complete_from: Option<Micros>,
    pub(crate) fresh: Vec<Rows>,
    rollups: Vec<Rolled<F>>,
    elsewhere: Vec<Share>,
}

/// A batch of rows by its number. Those of new ones follow the message, in order, each as a stream of Arrow IPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rows {
    pub(crate) number: u64,
    pub(crate) is_new: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Rolled<F> {
    spec: RollupSpec,
    schema: Vec<u8>,
    files: Vec<F>,
    complete_from: Option<Micros>,
}

impl<'a> Shot<&'a StoredFile> {
    /// The part of a snapshot that is sent, whose fresh rows have these numbers.
    ///
    /// # Errors
    /// If a schema has no form in Arrow IPC.
    pub(crate) fn of(snapshot: &'a Snapshot, fresh: Vec<Rows>) -> Result<Self, ArrowError> {
        fn lent(files: &[Arc<StoredFile>]) -> Vec<&StoredFile> {
            files.iter().map(AsRef::as_ref).collect()
        }
        // Every field by name: one that comes to a snapshot has to come here too.
        let Snapshot { name, schema, time, files, complete_from, fresh: _, rollups, elsewhere } = snapshot;
        let rollups = rollups.iter().map(|Rollup { spec, schema, files, complete_from }| {
            let (spec, complete_from) = (spec.clone(), *complete_from);
            Ok(Rolled { spec, schema: schema_bytes(schema)?, files: lent(files), complete_from })
        });
        Ok(Self {
            name: name.clone(),
            schema: schema_bytes(schema)?,
            time: *time,
            files: lent(files),
            complete_from: *complete_from,
            fresh,
            rollups: rollups.collect::<Result<_, ArrowError>>()?,
            elsewhere: elsewhere.clone(),
        })
    }
}

impl Shot<StoredFile> {
    /// The snapshot, with these rows.
    ///
    /// # Errors
    /// If the bytes are not a schema.
    pub(crate) fn open(self, fresh: Vec<RecordBatch>) -> Result<Snapshot, ArrowError> {
        let held = |files: Vec<StoredFile>| files.into_iter().map(Arc::new).collect();
        let rollups = self.rollups.into_iter().map(|Rolled { spec, schema, files, complete_from }| {
            Ok(Rollup { spec, schema: schema_of(&schema)?, files: held(files), complete_from })
        });
        Ok(Snapshot {
            name: self.name,
            schema: schema_of(&self.schema)?,
            time: self.time,
            files: held(self.files),
            complete_from: self.complete_from,
            fresh,
            rollups: rollups.collect::<Result<_, ArrowError>>()?,
            elsewhere: self.elsewhere,
        })
    }
}

fn schema_bytes(schema: &Schema) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    writer.finish()?;
    writer.into_inner()
}

fn schema_of(bytes: &[u8]) -> Result<SchemaRef, ArrowError> {
    Ok(StreamReader::try_new(io::Cursor::new(bytes), None)?.schema())
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field, TimeUnit};
    use thalweg_table::sums::{FileSum, TailSum};

    use super::*;
    use crate::wire::{packed, unpacked};

    #[test]
    fn a_snapshot_comes_as_it_was() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, None), false),
            Field::new("price", DataType::Decimal128(12, 2), true),
            Field::new("who", DataType::FixedSizeBinary(16), true)
                .with_metadata([("is".into(), "ip".into())].into()),
        ]));
        // By way of text, so that fields of others' making are compared too.
        let file = |name: &str| {
            let sum = FileSum { whole: 7, tail: Some(TailSum { at: 90, crc: 8 }) };
            Arc::new(StoredFile { path: name.into(), rows: 3, bytes: 99, first: -5, last: 1 << 50, sum })
        };
        let spec = RollupSpec {
            name: "hour".to_owned(),
            every: 3_600_000_000,
            by: vec!["who".to_owned()],
            sum: vec![],
            retention: Some(7),
        };
        let rollup =
            Rollup { spec, schema: Arc::clone(&schema), files: vec![file("b")], complete_from: Some(5) };
        let snapshot = Snapshot {
            name: TableName { job: "net".to_owned(), table: "Flöws".to_owned() },
            schema: Arc::clone(&schema),
            time: 0,
            files: vec![file("a"), file("ä/b")],
            complete_from: None,
            fresh: vec![RecordBatch::new_empty(schema)],
            rollups: vec![rollup],
            elsewhere: vec![Share {
                node: "b".to_owned(),
                address: "127.0.0.1:8080".to_owned(),
                plan: 9,
                stage: "flows".to_owned(),
                partitions: vec![1, 5],
            }],
        };
        let rows = vec![Rows { number: 7, is_new: true }];
        let message = Lent::Snapshot(Ok(Some(Shot::of(&snapshot, rows.clone()).unwrap())));
        let bytes = packed(&message).unwrap();
        let ToWorker::Snapshot(Ok(Some(came))) = unpacked(&bytes[5..]).unwrap() else {
            panic!("another message")
        };
        assert_eq!(came.fresh, rows);
        let came = came.open(snapshot.fresh.clone()).unwrap();
        assert_eq!(format!("{came:?}"), format!("{snapshot:?}"));
    }
}
