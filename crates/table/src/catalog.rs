//! Tables as readers see them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use thalweg_types::{Error, Micros};

use crate::sums::FileSum;

/// A table: the sink that fills it, and that sink's job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableName {
    pub job: String,
    pub table: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.table)
    }
}

/// Where tables are found: those of a running node, or what a data directory has committed.
pub trait Catalog: Send + Sync {
    /// All tables, in order.
    ///
    /// # Errors
    /// The disk's errors.
    fn tables(&self) -> Result<Vec<TableName>, Error>;

    /// What a table holds at this moment; it stays readable as long as the snapshot is held, as far as this process can see
    /// to it. `None`: there is no such table.
    ///
    /// # Errors
    /// The disk's errors; of class corrupt if bytes have changed.
    fn snapshot(&self, name: &TableName) -> Result<Option<Snapshot>, Error>;
}

/// What a table holds at one moment: every row is in one of `files` or in `fresh`, and in one only.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub name: TableName,
    /// Columns as they are stored. `ip` fields are FixedSizeBinary(16), IPv4 as `::ffff:a.b.c.d`.
    pub schema: SchemaRef,
    /// Place of the column with the event time: a timestamp without zone, in UTC, never null.
    pub time: usize,
    /// Parquet, by their first event time.
    pub files: Vec<Arc<StoredFile>>,
    /// Rows before this may be missing, as they were dropped for their age; `None`: nothing was ever dropped.
    pub complete_from: Option<Micros>,
    /// Rows that are in no Parquet file yet, in columns of `schema`.
    pub fresh: Vec<RecordBatch>,
    /// Finer ones first. The rows of a rollup are made of the rows of `files`, and of files before them that are no
    /// more kept: nothing of `fresh`.
    pub rollups: Vec<Rollup>,
}

/// A Parquet file with the columns of its table or rollup, which do not change.
///
/// It goes to the processes that answer SQL, with every field.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredFile {
    pub path: PathBuf,
    pub rows: u64,
    pub bytes: u64,
    /// Event time of its first and its last row, microseconds since 1970; for a rollup the first and last start of an interval.
    pub first: Micros,
    pub last: Micros,
    /// The sums that readers compare its bytes with.
    pub sum: FileSum,
}

/// What is asked of a rollup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollupSpec {
    pub name: String,
    /// Length of its intervals, which begin at multiples of it since 1970.
    pub every: Micros,
    /// Columns that distinguish its rows.
    pub by: Vec<String>,
    /// Columns of integers that are summed up.
    pub sum: Vec<String>,
    /// Intervals older than this are dropped; `None`: kept.
    pub retention: Option<Micros>,
}

/// A rollup at one moment.
///
/// Its columns: the table's time column (start of the interval, rounded down to the column's unit), `by`, `sum` (integers of
/// the table's type, null where all were null), and [`Rollup::COUNT`], the number of rows (int64). Several rows may have the
/// same keys and add up: a sum that its type does not hold is stored in parts.
#[derive(Clone, Debug)]
pub struct Rollup {
    pub spec: RollupSpec,
    pub schema: SchemaRef,
    pub files: Vec<Arc<StoredFile>>,
    /// Intervals that begin before this may lack rows that were dropped for their age; `None`: nothing was ever dropped.
    pub complete_from: Option<Micros>,
}

impl Rollup {
    /// Name of the column with the number of rows.
    pub const COUNT: &'static str = "_rows";
}
