//! Tables as readers see them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use thalweg_types::{Error, Micros, Retry};

use crate::nulls::Nulls;
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
    /// More rows, which other nodes have: each share has rows that are nowhere else here.
    pub elsewhere: Vec<Share>,
}

/// Rows of a table that another node of a cluster has, in all columns of the table. It is asked for them over HTTP by SQL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Its name.
    pub node: String,
    /// Where it serves HTTP.
    pub address: String,
    /// The plan by which it has these rows.
    pub plan: u64,
    /// The stage that fills the table, and partitions of it.
    pub stage: String,
    pub partitions: Vec<u32>,
}

impl Snapshot {
    /// Takes up what other tables hold that are parts of this one: none has a row of another one.
    ///
    /// Its columns and rollups stay: a column that a part lacks is null in its rows, and a rollup that a part lacks is left out.
    /// What may be missing of a part may be missing of the whole.
    ///
    /// # Errors
    /// Of class external where a part has a column of another type, or another time column, as when its job is being changed.
    pub fn unite(&mut self, parts: impl IntoIterator<Item = Self>) -> Result<(), Error> {
        parts.into_iter().try_for_each(|part| self.take_up(part))?;
        self.files.sort_by_key(|file| file.first);
        let mut nulls = Nulls::default();
        for rows in &mut self.fresh {
            *rows = nulls.widen(rows, &self.schema);
        }
        for rollup in &mut self.rollups {
            rollup.files.sort_by_key(|file| file.first);
        }
        Ok(())
    }

    fn take_up(&mut self, part: Self) -> Result<(), Error> {
        let Self { name: _, schema, time, files, complete_from, fresh, rollups, elsewhere } = part;
        let changes = |what: String| {
            Err(Error::external(format!("table {} {what}: its job is being changed", self.name))
                .with_retry(Retry::WithBackoff)
                .with_hint("ask again in a moment"))
        };
        if schema.field(time).name() != self.schema.field(self.time).name() {
            return changes("has several columns with the event time".to_owned());
        }
        for field in schema.fields() {
            let own = self.schema.field_with_name(field.name());
            if let Some(own) = own.ok().filter(|own| own.data_type() != field.data_type()) {
                let (name, own, other) = (field.name(), own.data_type(), field.data_type());
                return changes(format!("has a column {name:?} of type {own}, and of type {other}"));
            }
        }
        self.files.extend(files);
        self.fresh.extend(fresh);
        self.elsewhere.extend(elsewhere);
        self.complete_from = self.complete_from.max(complete_from);
        self.rollups.retain_mut(|own| {
            let same = |other: &&Rollup| own.spec.is_like(&other.spec) && own.schema == other.schema;
            let Some(other) = rollups.iter().find(same) else { return false };
            own.files.extend(other.files.iter().cloned());
            own.complete_from = own.complete_from.max(other.complete_from);
            true
        });
        Ok(())
    }
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

impl RollupSpec {
    /// Whether rows of both add up.
    fn is_like(&self, other: &Self) -> bool {
        let Self { name, every, by, sum, retention: _ } = self;
        (name, every, by, sum) == (&other.name, &other.every, &other.by, &other.sum)
    }
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
