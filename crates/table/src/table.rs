//! A table while its job runs: the state that its writer, its keeper and its readers share.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use thalweg_connect::SinkReport;
use thalweg_flow::{Clock, SystemClock, Waker};
use thalweg_storage::Fs;
use thalweg_types::{Class, Error, Micros, Seq};

use crate::columns::Columns;
use crate::manifest::{Contents, Description, Entry};
use crate::nulls::{Nulls, united};
use crate::position::Extent;
use crate::rollup::RollupPlan;
use crate::spec::Spec;
use crate::{Catalog, Rollup, Snapshot, StoredFile, TableName, folder};

/// Tables of running jobs, by name.
pub struct Tables {
    running: Mutex<BTreeMap<TableName, Arc<Table>>>,
    /// By which rows grow old.
    clock: Arc<dyn Clock>,
}

impl Default for Tables {
    fn default() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }
}

impl Tables {
    /// Tables whose rows grow old by another clock than the machine's.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { running: Mutex::default(), clock }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TableName, Arc<Table>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, table: &Arc<Table>) {
        self.lock().insert(table.name.clone(), Arc::clone(table));
    }

    /// All rows with order numbers below this have passed the table, in this life of its job; `None`: there is no such table.
    pub fn reached(&self, name: &TableName) -> Option<Seq> {
        Some(self.lock().get(name)?.reached.load(Ordering::Acquire))
    }

    /// Takes a table out, if it is still this one.
    pub(crate) fn remove(&self, table: &Arc<Table>) {
        let mut tables = self.lock();
        if tables.get(&table.name).is_some_and(|known| Arc::ptr_eq(known, table)) {
            tables.remove(&table.name);
        }
    }
}

impl Catalog for Tables {
    fn tables(&self) -> Result<Vec<TableName>, Error> {
        Ok(self.lock().keys().cloned().collect())
    }

    fn snapshot(&self, name: &TableName) -> Result<Option<Snapshot>, Error> {
        let table = self.lock().get(name).cloned();
        table.map(|table| table.snapshot()).transpose()
    }
}

/// One table.
pub(crate) struct Table {
    pub name: TableName,
    pub dir: PathBuf,
    pub fs: Arc<dyn Fs>,
    pub spec: Spec,
    pub columns: Columns,
    /// Finer ones first.
    pub plans: Vec<RollupPlan>,
    pub clock: Arc<dyn Clock>,
    pub report: SinkReport,
    /// All rows with order numbers below this are in `shared`, if they are rows of the table.
    pub reached: AtomicU64,
    shared: Mutex<Shared>,
}

/// Where a table is, and what it works with there.
pub(crate) struct Place {
    pub name: TableName,
    pub dir: PathBuf,
    pub fs: Arc<dyn Fs>,
    pub clock: Arc<dyn Clock>,
    pub report: SinkReport,
}

#[derive(Default)]
pub(crate) struct Shared {
    /// By number.
    files: BTreeMap<u64, (String, Arc<StoredFile>)>,
    built: Vec<String>,
    complete_from: BTreeMap<String, Micros>,
    /// Full files of frames that wait for their turn to become Parquet, oldest first.
    pub frozen: VecDeque<Frozen>,
    /// Rows of the file of frames that is being written.
    pub open: Vec<RecordBatch>,
    /// Rows that are in no file.
    pub pending: Vec<RecordBatch>,
    /// The file that was still written at the last commit, as far as that names it.
    pub committed: Option<Extent>,
    /// Why the keeper has given up: class, message, hint.
    pub failed: Option<(Class, String, Option<String>)>,
    /// The writer's task, where it waits for the keeper.
    pub writer: Option<Waker>,
}

/// A full file of frames.
pub(crate) struct Frozen {
    pub extent: Extent,
    pub batches: Vec<RecordBatch>,
    /// A commit record names all of it.
    pub is_committed: bool,
}

impl Table {
    pub(crate) fn new(place: Place, spec: Spec, columns: Columns, plans: Vec<RollupPlan>) -> Self {
        let Place { name, dir, fs, clock, report } = place;
        let (reached, shared) = Default::default();
        Self { name, dir, fs, spec, columns, plans, clock, report, reached, shared }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name of the time column.
    pub(crate) fn time(&self) -> &str {
        &self.columns.schema().fields()[self.columns.time()].name
    }

    pub(crate) fn description(&self) -> Description {
        Description::new(self.columns.schema(), self.columns.time(), &self.spec.rollups)
    }

    /// A commit record names these files whole, and `last` so far; what it names whole may become Parquet from now
    /// on.
    pub(crate) fn commit(&self, numbers: &[u64], last: Option<Extent>) {
        let mut shared = self.lock();
        shared.committed = last;
        for frozen in &mut shared.frozen {
            frozen.is_committed |= numbers.contains(&frozen.extent.number) || last == Some(frozen.extent);
        }
    }

    /// What the keeper said when it gave up.
    pub(crate) fn failure(&self) -> Option<Error> {
        let shared = self.lock();
        let (class, message, hint) = shared.failed.as_ref()?;
        let error = Error::new(*class, format!("table {}: {message}", self.name));
        Some(match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        })
    }

    fn snapshot(&self) -> Result<Snapshot, Error> {
        let schema = self.columns.schema().arrow();
        let (mut snapshot, pending) = {
            let shared = self.lock();
            let fresh = shared.frozen.iter().flat_map(|frozen| &frozen.batches).chain(&shared.open);
            let plans = self.plans.iter().filter(|plan| shared.built.contains(&plan.spec.name));
            let snapshot = Snapshot {
                name: self.name.clone(),
                schema: Arc::clone(schema),
                time: self.columns.time(),
                files: files_of(&shared.files, folder::ROWS),
                complete_from: shared.complete_from.get(folder::ROWS).copied(),
                fresh: fresh.cloned().collect(),
                rollups: plans.map(|plan| rollup_of(plan, &shared.files, &shared.complete_from)).collect(),
                elsewhere: Vec::new(),
            };
            (snapshot, shared.pending.clone())
        };
        if !pending.is_empty() {
            let united = united(schema, &pending);
            snapshot.fresh.push(united.map_err(|error| Error::internal("unite rows").with_source(error))?);
        }
        widen_all(&mut snapshot);
        Ok(snapshot)
    }
}

impl Shared {
    /// Takes over what the manifest says now, and gives back the files that are no more part of it.
    pub(crate) fn take_over(&mut self, table: &Table, contents: &Contents) -> Vec<Arc<StoredFile>> {
        let mut old = std::mem::take(&mut self.files);
        self.files = contents
            .files
            .iter()
            .map(|(number, entry)| match old.remove(number) {
                Some(known) => (*number, known),
                None => (*number, (entry.part.clone(), Arc::new(stored(&table.dir, entry)))),
            })
            .collect();
        self.built = contents.built.iter().cloned().collect();
        self.complete_from.clone_from(&contents.complete_from);
        while self.frozen.front().is_some_and(|frozen| frozen.extent.number < contents.sealed) {
            self.frozen.pop_front();
        }
        old.into_values().map(|(_, file)| file).collect()
    }
}

fn stored(table: &std::path::Path, entry: &Entry) -> StoredFile {
    StoredFile {
        path: folder::parquet(table, &entry.part, &entry.partition, entry.number),
        rows: entry.rows,
        bytes: entry.bytes,
        first: entry.first,
        last: entry.last,
        sum: entry.sum(),
    }
}

type Files = BTreeMap<u64, (String, Arc<StoredFile>)>;

fn files_of(files: &Files, part: &str) -> Vec<Arc<StoredFile>> {
    let files = files.values().filter(|(of, _)| of == part);
    let mut files: Vec<Arc<StoredFile>> = files.map(|(_, file)| Arc::clone(file)).collect();
    files.sort_by_key(|file| file.first);
    files
}

pub(crate) fn rollup_of(
    plan: &RollupPlan,
    files: &Files,
    complete_from: &BTreeMap<String, Micros>,
) -> Rollup {
    Rollup {
        spec: plan.spec.clone(),
        schema: Arc::clone(&plan.schema),
        files: files_of(files, &plan.spec.name),
        complete_from: complete_from.get(&plan.spec.name).copied(),
    }
}

/// The rows of a table whose job may run elsewhere or not at all: its manifest, and the rows of `fresh`.
///
/// # Errors
/// Where the manifest's types are not known.
pub(crate) fn snapshot_of(
    name: &TableName,
    dir: &std::path::Path,
    contents: &Contents,
    description: &Description,
    fresh: Vec<RecordBatch>,
) -> Result<Snapshot, Error> {
    let schema = description.schema()?;
    let time = schema.field(&description.time).map(|(place, _)| place);
    let time =
        time.ok_or_else(|| Error::corrupt(format!("the manifest of table {name} has no time column")))?;
    let files: Files = contents
        .files
        .iter()
        .map(|(number, entry)| (*number, (entry.part.clone(), Arc::new(stored(dir, entry)))))
        .collect();
    let mut rollups = Vec::new();
    for spec in description.rollups().filter(|spec| contents.built.contains(&spec.name)) {
        rollups.push(rollup_of(&RollupPlan::new(&spec, &schema, time)?, &files, &contents.complete_from));
    }
    let mut snapshot = Snapshot {
        name: name.clone(),
        schema: Arc::clone(schema.arrow()),
        time,
        files: files_of(&files, folder::ROWS),
        complete_from: contents.complete_from.get(folder::ROWS).copied(),
        fresh,
        rollups,
        elsewhere: Vec::new(),
    };
    widen_all(&mut snapshot);
    Ok(snapshot)
}

/// Fresh rows with all columns of the table.
fn widen_all(snapshot: &mut Snapshot) {
    let mut nulls = Nulls::default();
    for rows in &mut snapshot.fresh {
        *rows = nulls.widen(rows, &snapshot.schema);
    }
}
