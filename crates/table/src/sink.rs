//! The `table` sink: rows of its input into a table.
//!
//! Exactly-once: rows gather in memory, go into a file of frames when enough are there and at each cycle marker, and the
//! commit record names how much of which files counts; rows after that are dropped when the job goes on, and are
//! written again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_connect::{Mistake, OptionKind, OptionSpec, Options, SinkContext, SinkPlugin, SinkReport};
use thalweg_flow::{CyclePart, InputId, Operator, Output, TaskFactory, Waker};
use thalweg_storage::{File, RealFs};
use thalweg_types::{Batch, Error, Micros, Schema, SeqRange};

use crate::columns::Columns;
use crate::frames::FrameFile;
use crate::keeper::{Handle, MOST_FROZEN};
use crate::nulls::united;
use crate::open::{Opened, open};
use crate::position::{Extent, Position};
use crate::rollup::RollupPlan;
use crate::spec::Spec;
use crate::table::{Frozen, Place, Table, rollup_of};
use crate::{Snapshot, TableName, Tables, failed, folder};

/// Rows and bytes that gather in memory before they are written; a cycle marker finds no more than that.
const PENDING_ROWS: usize = 16 << 10;
const PENDING_BYTES: usize = 4 << 20;

/// The plug-in. Tables that it opens can be read through `tables` while their jobs run.
pub struct TablePlugin {
    pub tables: Arc<Tables>,
}

const ROLLUP: &[OptionSpec] = &[
    OptionSpec {
        key: "every",
        kind: OptionKind::Duration,
        required: true,
        default: None,
        doc: "length of the rollup's intervals: whole seconds that divide a day",
    },
    OptionSpec {
        key: "by",
        kind: OptionKind::TextList,
        required: true,
        default: None,
        doc: "columns to group by",
    },
    OptionSpec {
        key: "sum",
        kind: OptionKind::TextList,
        required: false,
        default: None,
        doc: "integer columns to sum; rows are always counted",
    },
    OptionSpec {
        key: "retention",
        kind: OptionKind::Duration,
        required: false,
        default: None,
        doc: "how long the rollup's rows are kept; for ever, if absent",
    },
];

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "time",
        kind: OptionKind::Text,
        required: false,
        default: None,
        doc: "timestamp column with the event time. If absent: the only timestamp, or that named `time` or `ts`",
    },
    OptionSpec {
        key: "columns",
        kind: OptionKind::TextList,
        required: false,
        default: None,
        doc: "columns to keep; all, if absent",
    },
    OptionSpec {
        key: "drop",
        kind: OptionKind::TextList,
        required: false,
        default: None,
        doc: "columns to leave out",
    },
    OptionSpec {
        key: "truncate",
        kind: OptionKind::TextList,
        required: false,
        default: None,
        doc: "address columns to shorten to a prefix: `src_addr`, `src_addr/24` or `src_addr/24/48` (bits of IPv4 and IPv6)",
    },
    OptionSpec {
        key: "partition",
        kind: OptionKind::Choice(&["day", "hour"]),
        required: false,
        default: Some("day"),
        doc: "event time that one folder holds",
    },
    OptionSpec {
        key: "retention",
        kind: OptionKind::Duration,
        required: false,
        default: None,
        doc: "how long rows are kept, counted back from the newest row that the clock confirms; for ever, if absent",
    },
    OptionSpec {
        key: "compression",
        kind: OptionKind::Choice(&["zstd", "lz4", "snappy", "none"]),
        required: false,
        default: Some("zstd"),
        doc: "compression of Parquet pages",
    },
    OptionSpec {
        key: "seal_rows",
        kind: OptionKind::Integer { min: 1, max: 100_000_000 },
        required: false,
        default: Some("1000000"),
        doc: "rows in a Parquet file",
    },
    OptionSpec {
        key: "seal_every",
        kind: OptionKind::Duration,
        required: false,
        default: Some("5m"),
        doc: "a Parquet file is written after this time, also with fewer rows",
    },
    OptionSpec {
        key: "rollups",
        kind: OptionKind::Sections(ROLLUP),
        required: false,
        default: None,
        doc: "tables of sums over intervals, by name",
    },
];

impl SinkPlugin for TablePlugin {
    fn name(&self) -> &'static str {
        "table"
    }

    fn doc(&self) -> &'static str {
        "rows of a table for SQL: Parquet files by time, with rollups"
    }

    fn page(&self) -> &'static str {
        include_str!("sink.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn guarantee(&self) -> &'static str {
        "exactly-once"
    }

    /// Its rows are kept with the unit, and go where it goes.
    fn writes_for_units(&self, _: &Options) -> Result<bool, Error> {
        Ok(false)
    }

    /// SQL on a running node sees rows before they are committed, and knows it.
    fn publishes(&self) -> bool {
        false
    }

    fn expires(&self, options: &Options) -> bool {
        Spec::read(options).is_ok_and(|spec| spec.shortest_retention().is_some())
    }

    fn check(&self, schema: &Schema, options: &Options) -> Vec<Mistake> {
        match Spec::read(options) {
            Err(mistakes) => mistakes,
            Ok(spec) => match plan(schema, &spec) {
                Ok(_) => Vec::new(),
                Err((key, error)) => vec![Mistake::new(key, error)],
            },
        }
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let (spec, columns, plans) = planned(&context.schema, &context.options)?;
        let name = TableName { job: context.job.to_string(), table: context.name.to_string() };
        let dir = context.data_dir.join("tables").join(&name.table);
        let (clock, report) = (Arc::clone(self.tables.clock()), context.report.clone());
        let place = Place { name, dir, fs: Arc::new(RealFs), clock, report };
        let table = Arc::new(Table::new(place, spec, columns, plans));
        let durable = context.durable.as_ref();
        let position = durable.and_then(|resume| resume.position.as_deref());
        let opened = open(&table, durable.map(|resume| resume.cycle), position)?;
        let opened = Mutex::new(Some(opened));
        let tables = Arc::clone(&self.tables);
        Ok(Box::new(move |info| {
            thalweg_connect::sink::only_task(&context, info)?;
            let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(Opened { keeper, next }) = opened else {
                return Err(Error::internal("a table has one task, once"));
            };
            let guard = Listed::new(&tables, &table);
            Ok(Box::new(TableSink {
                table: Arc::clone(&table),
                keeper: Some(keeper),
                is_durable: context.durable.is_some(),
                next,
                open: None,
                opened: 0,
                pending_rows: 0,
                pending_bytes: 0,
                unsynced: Vec::new(),
                is_folder_new: true,
                freezing: Vec::new(),
                report: context.report.clone(),
                _guard: guard,
            }))
        }))
    }
}

/// What a table holds that has no row, by the options of its sink and the schema of the sink's input.
///
/// # Errors
/// Of class user, where they make no table.
pub fn empty(name: TableName, schema: &Schema, options: &Options) -> Result<Snapshot, Error> {
    let (_, columns, plans) = planned(schema, options)?;
    let rollup = |plan: &RollupPlan| rollup_of(plan, &BTreeMap::new(), &BTreeMap::new());
    Ok(Snapshot {
        name,
        schema: Arc::clone(columns.schema().arrow()),
        time: columns.time(),
        files: Vec::new(),
        complete_from: None,
        fresh: Vec::new(),
        rollups: plans.iter().map(rollup).collect(),
        elsewhere: Vec::new(),
    })
}

/// A table by the options of its sink.
fn planned(schema: &Schema, options: &Options) -> Result<(Spec, Columns, Vec<RollupPlan>), Error> {
    let spec = Spec::read(options).map_err(|mistakes| {
        mistakes.into_iter().next().map_or(Error::internal("no mistake"), |one| one.error)
    })?;
    let (columns, plans) = plan(schema, &spec).map_err(|(_, error)| error)?;
    Ok((spec, columns, plans))
}

fn plan(schema: &Schema, spec: &Spec) -> Result<(Columns, Vec<RollupPlan>), (&'static str, Error)> {
    let columns = Columns::new(schema, spec)?;
    let plans = spec.rollups.iter().map(|rollup| RollupPlan::new(rollup, columns.schema(), columns.time()));
    let plans = plans.collect::<Result<Vec<_>, Error>>().map_err(|error| ("rollups", error))?;
    Ok((columns, plans))
}

/// A table that SQL finds as long as this lives.
struct Listed {
    tables: Arc<Tables>,
    table: Arc<Table>,
}

impl Listed {
    fn new(tables: &Arc<Tables>, table: &Arc<Table>) -> Self {
        tables.add(table);
        Self { tables: Arc::clone(tables), table: Arc::clone(table) }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.tables.remove(&self.table);
    }
}

struct TableSink {
    table: Arc<Table>,
    /// Until the end of the stream.
    keeper: Option<Handle>,
    is_durable: bool,
    /// Number of the next file of frames.
    next: u64,
    open: Option<FrameFile>,
    /// When the open file was begun, by the table's clock.
    opened: Micros,
    pending_rows: usize,
    pending_bytes: usize,
    /// Files that were written since the last cycle.
    unsynced: Vec<(PathBuf, Arc<dyn File>)>,
    /// Whether a name was made since the last cycle.
    is_folder_new: bool,
    /// Files that became full since the last cycle.
    freezing: Vec<u64>,
    report: SinkReport,
    _guard: Listed,
}

impl TableSink {
    /// Writes the gathered rows.
    fn flush(&mut self) -> Result<(), Error> {
        let pending = self.table.lock().pending.clone();
        if pending.is_empty() {
            return Ok(());
        }
        let rows = united(self.table.columns.schema().arrow(), &pending)
            .map_err(|error| Error::internal("unite rows").with_source(error))?;
        drop(pending);
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let path = folder::frames(&self.table.dir, self.next);
                let open = FrameFile::create(self.table.fs.as_ref(), path, self.next)?;
                self.next += 1;
                self.opened = self.table.clock.read().steady;
                self.is_folder_new = true;
                none.insert(open)
            }
        };
        let before = open.bytes;
        let mapped = open.append(&rows)?;
        self.report.add_bytes(open.bytes - before);
        if self.is_durable && !self.unsynced.iter().any(|(path, _)| path == open.path()) {
            self.unsynced.push((open.path().to_owned(), Arc::clone(open.file())));
        }
        let is_full = open.rows >= self.table.spec.seal_rows;
        let mut shared = self.table.lock();
        shared.pending.clear();
        shared.open.push(mapped);
        drop(shared);
        (self.pending_rows, self.pending_bytes) = (0, 0);
        if is_full {
            self.freeze();
        }
        Ok(())
    }

    /// Puts the open file into the keeper's queue, in which it waits for its commit.
    fn freeze(&mut self) {
        let Some(open) = self.open.take() else { return };
        let mut shared = self.table.lock();
        let batches = std::mem::take(&mut shared.open);
        let extent = open.extent();
        let is_committed = !self.is_durable || shared.committed == Some(extent);
        shared.frozen.push_back(Frozen { extent, batches, is_committed });
        drop(shared);
        if self.is_durable {
            self.freezing.push(extent.number);
        }
        if is_committed && let Some(keeper) = &self.keeper {
            keeper.wake();
        }
    }

    fn freeze_old(&mut self) {
        // Units of a cluster have no ticks, so the clock is asked.
        let age = || self.table.clock.read().steady - self.opened;
        if self.open.is_some() && age() >= self.table.spec.seal_every {
            self.freeze();
        }
    }

    fn position(&self) -> Result<Vec<u8>, Error> {
        let mut frames: Vec<Extent> = self.table.lock().frozen.iter().map(|frozen| frozen.extent).collect();
        frames.extend(self.open.as_ref().map(FrameFile::extent));
        Position::new(self.next, frames).encode()
    }
}

impl Operator for TableSink {
    fn process(&mut self, _: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        if let Some(error) = self.table.failure() {
            return Err(error);
        }
        let rows = self.table.columns.store(&batch);
        self.pending_rows += batch.len();
        self.pending_bytes += batch.bytes();
        self.report.add_records(batch.len() as u64);
        self.table.lock().pending.push(rows);
        if self.pending_rows >= PENDING_ROWS || self.pending_bytes >= PENDING_BYTES {
            return self.flush();
        }
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, _: &mut Output<'_>) -> Result<(), Error> {
        self.table.reached.store(range.end, Ordering::Release);
        Ok(())
    }

    fn tick(&mut self, _: Micros, _: &mut Output<'_>) -> Result<(), Error> {
        if !self.is_durable {
            self.freeze_old();
        }
        Ok(())
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        if !self.is_durable {
            return Ok(());
        }
        if let Some(error) = self.table.failure() {
            return Err(error);
        }
        self.flush()?;
        self.freeze_old();
        let part = TablePart {
            table: Arc::clone(&self.table),
            keeper: self.keeper.clone(),
            files: std::mem::take(&mut self.unsynced),
            is_folder_new: std::mem::take(&mut self.is_folder_new),
            frozen: std::mem::take(&mut self.freezing),
            last: self.open.as_ref().map(FrameFile::extent),
            position: self.position()?,
        };
        out.hand_over(cycle, Box::new(part));
        Ok(())
    }

    fn takes_part(&self) -> bool {
        self.is_durable
    }

    fn is_ready(&mut self, waker: &Waker) -> bool {
        let mut shared = self.table.lock();
        // Only committed files count: the keeper makes room for that by itself, whatever else happens.
        let waiting = shared.frozen.iter().filter(|frozen| frozen.is_committed).count();
        let is_ready = waiting < MOST_FROZEN || shared.failed.is_some();
        shared.writer = (!is_ready).then(|| waker.clone());
        is_ready
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        self.flush()?;
        // The last cycle names all of it, or has done so: its rows need not wait for the next start.
        self.freeze();
        // The keeper ends with its last holder, which is this one or the last cycle's part; that one reports the
        // failure.
        self.keeper = None;
        self.table.failure().map_or(Ok(()), Err)
    }

    fn state_bytes(&self) -> usize {
        self.pending_bytes
    }
}

/// A table's part of a cycle: written bytes are synced, then named.
struct TablePart {
    table: Arc<Table>,
    keeper: Option<Handle>,
    files: Vec<(PathBuf, Arc<dyn File>)>,
    is_folder_new: bool,
    frozen: Vec<u64>,
    /// The file that is still written.
    last: Option<Extent>,
    position: Vec<u8>,
}

impl CyclePart for TablePart {
    fn prepare(&mut self) -> Result<Vec<u8>, Error> {
        for (path, file) in &self.files {
            file.sync_data().map_err(|error| failed("sync", path, error))?;
        }
        if self.is_folder_new {
            let folder = folder::fresh(&self.table.dir);
            self.table.fs.sync_dir(&folder).map_err(|error| failed("sync", &folder, error))?;
        }
        Ok(std::mem::take(&mut self.position))
    }

    fn committed(mut self: Box<Self>) -> Result<(), Error> {
        self.table.commit(&self.frozen, self.last);
        if let Some(keeper) = self.keeper.take() {
            keeper.wake();
        }
        self.table.failure().map_or(Ok(()), Err)
    }
}
