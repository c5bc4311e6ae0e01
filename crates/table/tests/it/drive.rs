//! Drives a table's sink as its job would, and counts what it was given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{
    Array, ArrayRef, FixedSizeBinaryArray, Int64Array, RecordBatch, StringViewArray,
    TimestampMillisecondArray,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use thalweg_connect::{OptionValue, Options, SinkContext, SinkPlugin, SinkReport, SinkResume};
use thalweg_flow::{
    Clock, CyclePart, InputId, Operator, SystemClock, TaskInfo, Waker, collect, collect_with_parts,
};
use thalweg_table::{Catalog, Rollup, Snapshot, TableName, TablePlugin, Tables, read_committed};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs, TimeUnit};

const INPUT: InputId = InputId { port: 0, task: 0 };

/// One row: time in milliseconds, a key, an address that only some have, a number that only some have.
pub(crate) type Row = (i64, String, Option<[u8; 4]>, Option<i64>);

pub(crate) fn schema() -> Schema {
    Schema::new(vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Milli)),
        Field::new("key", DataType::String),
        Field::new("addr", DataType::Ip).nullable(),
        Field::new("bytes", DataType::Int64).nullable(),
        // Never has a value.
        Field::new("rare", DataType::UInt64).nullable(),
    ])
}

pub(crate) fn name() -> TableName {
    TableName { job: "job".to_owned(), table: "rows".to_owned() }
}

pub(crate) fn options(entries: &[(&str, OptionValue)]) -> Options {
    Options(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

pub(crate) fn list(texts: &[&str]) -> OptionValue {
    OptionValue::List(texts.iter().map(|text| (*text).to_owned()).collect())
}

/// `rollups:` with one by the minute and one by the hour.
pub(crate) fn rollups() -> OptionValue {
    let rollup = |every: Micros, by: &[&str]| {
        options(&[("every", OptionValue::Duration(every)), ("by", list(by)), ("sum", list(&["bytes"]))])
    };
    OptionValue::Sections(vec![
        ("hour".to_owned(), rollup(3_600_000_000, &["key"])),
        ("minute".to_owned(), rollup(60_000_000, &["key", "addr"])),
    ])
}

pub(crate) fn mapped(addr: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(addr).to_ipv6_mapped().octets()
}

pub(crate) fn batch_of(rows: &[Row], first: u64) -> Batch {
    let times: Vec<i64> = rows.iter().map(|row| row.0).collect();
    let addrs = rows.iter().map(|row| row.2.map(mapped));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(times.clone())),
        Arc::new(rows.iter().map(|row| Some(row.1.as_str())).collect::<StringViewArray>()),
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(addrs, 16).unwrap()),
        Arc::new(rows.iter().map(|row| row.3).collect::<Int64Array>()),
        arrow_array::new_null_array(&arrow_schema::DataType::UInt64, rows.len()),
    ];
    let records = RecordBatch::try_new(Arc::clone(schema().arrow()), columns).unwrap();
    let micros: Vec<Micros> = times.iter().map(|time| time * 1_000).collect();
    Batch::new(SeqRange::new(first, first + rows.len() as u64), records, micros.into(), Seqs::Dense(first))
}

/// A table under test. Its folder is that of a job: `DIR/tables/rows`.
pub(crate) struct Driven {
    pub(crate) tables: Arc<Tables>,
    pub(crate) report: SinkReport,
    sink: Box<dyn Operator>,
    next: u64,
}

pub(crate) fn context(dir: &Path, options: &Options, resume: Option<SinkResume>) -> SinkContext {
    SinkContext {
        job: "job".into(),
        name: "rows".into(),
        schema: schema(),
        format: None,
        follows: false,
        options: options.clone(),
        report: SinkReport::default(),
        data_dir: dir.to_owned(),
        durable: resume,
        unit: None,
    }
}

impl Driven {
    pub(crate) fn open(dir: &Path, options: &Options, resume: Option<SinkResume>) -> Result<Self, Error> {
        Self::open_by(Arc::new(SystemClock), dir, options, resume)
    }

    /// The same where rows grow old by some clock.
    pub(crate) fn open_by(
        clock: Arc<dyn Clock>,
        dir: &Path,
        options: &Options,
        resume: Option<SinkResume>,
    ) -> Result<Self, Error> {
        let tables = Arc::new(Tables::with_clock(clock));
        let plugin = TablePlugin { tables: Arc::clone(&tables) };
        let context = context(dir, options, resume);
        let report = context.report.clone();
        let factory = plugin.build(context)?;
        let info = TaskInfo::alone("job", "rows");
        Ok(Self { tables, report, sink: factory(&info)?, next: 0 })
    }

    pub(crate) fn give(&mut self, rows: &[Row]) {
        let batch = batch_of(rows, self.next);
        self.next += rows.len() as u64;
        self.give_batch(batch);
    }

    pub(crate) fn give_batch(&mut self, batch: Batch) {
        let (wake, woken) = std::sync::mpsc::channel();
        let wake = std::sync::Mutex::new(wake);
        let waker = Waker::new(move || _ = wake.lock().unwrap().send(()));
        while !self.sink.is_ready(&waker) {
            woken.recv_timeout(std::time::Duration::from_secs(60)).expect("the keeper makes room");
        }
        collect(|out| self.sink.process(INPUT, batch, out)).unwrap();
    }

    pub(crate) fn tick(&mut self, now: Micros) {
        collect(|out| self.sink.tick(now, out)).unwrap();
    }

    /// Ends a cycle, up to where it is synced.
    pub(crate) fn prepare(&mut self, cycle: u64) -> (Box<dyn CyclePart>, SinkResume) {
        let (_, mut parts) = collect_with_parts(|out| self.sink.cycle(cycle, out)).unwrap();
        let mut part = parts.remove(0).1;
        let position = part.prepare().unwrap();
        (part, SinkResume { cycle, position: Some(position), ..SinkResume::default() })
    }

    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        collect(|out| self.sink.finish(out)).map(drop)
    }

    /// Why the sink ends the job at a cycle, if it does.
    pub(crate) fn failure(&mut self, cycle: u64) -> Option<Error> {
        collect_with_parts(|out| self.sink.cycle(cycle, out)).err()
    }

    pub(crate) fn commit(&mut self, cycle: u64) -> SinkResume {
        let (part, resume) = self.prepare(cycle);
        part.committed().unwrap();
        resume
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.tables.snapshot(&name()).unwrap().expect("a table that runs")
    }

    /// Waits until the keeper has come to rest at a state that `is` describes.
    pub(crate) fn wait_until(&self, what: &str, is: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let snapshot = self.snapshot();
            if is(&snapshot) {
                return snapshot;
            }
            assert!(std::time::Instant::now() < deadline, "no {what}: {} files", snapshot.files.len());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

pub(crate) fn folder(dir: &Path) -> PathBuf {
    dir.join("tables").join("rows")
}

pub(crate) fn committed(dir: &Path, resume: Option<&SinkResume>) -> Snapshot {
    let position = || Ok(resume.and_then(|resume| resume.position.clone()));
    read_committed(&name(), &folder(dir), position).unwrap().expect("a table")
}

pub(crate) fn parquet_rows(path: &Path) -> Vec<RecordBatch> {
    let file = std::fs::File::open(path).unwrap();
    ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect()
}

/// All rows of a snapshot, sorted.
pub(crate) fn rows_of(snapshot: &Snapshot) -> Vec<Row> {
    let stored = snapshot.files.iter().flat_map(|file| {
        let batches = parquet_rows(&file.path);
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>() as u64, file.rows);
        assert_eq!(std::fs::metadata(&file.path).unwrap().len(), file.bytes);
        for batch in &batches {
            let times = batch.column_by_name("ts").unwrap().as_primitive::<TimestampMillisecondType>();
            assert!(times.values().iter().all(|time| (file.first..=file.last).contains(&(time * 1_000))));
        }
        batches
    });
    let fresh =
        snapshot.fresh.iter().inspect(|rows| assert_eq!(rows.schema_ref(), &snapshot.schema)).cloned();
    let mut rows: Vec<Row> = stored.chain(fresh).flat_map(|batch| rows_in(&batch)).collect();
    rows.sort();
    rows
}

fn rows_in(batch: &RecordBatch) -> Vec<Row> {
    let times = batch.column_by_name("ts").unwrap().as_primitive::<TimestampMillisecondType>();
    let keys = batch.column_by_name("key").unwrap().as_string_view();
    let addrs = batch.column_by_name("addr").map(|column| column.as_fixed_size_binary());
    let bytes = batch.column_by_name("bytes").map(|column| column.as_primitive::<Int64Type>());
    let row = |row: usize| {
        let addr = addrs.filter(|addrs| addrs.is_valid(row)).map(|addrs| {
            let word: [u8; 16] = addrs.value(row).try_into().unwrap();
            assert_eq!(word[..12], mapped([0; 4])[..12]);
            [word[12], word[13], word[14], word[15]]
        });
        let bytes = bytes.filter(|bytes| bytes.is_valid(row)).map(|bytes| bytes.value(row));
        (times.value(row), keys.value(row).to_owned(), addr, bytes)
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Interval, key: sum and count.
pub(crate) type Sums = BTreeMap<(i64, String), (Option<i64>, i64)>;

/// What a rollup's rows sum up to.
pub(crate) fn sums_in(rollup: &Rollup) -> Sums {
    let mut sums = Sums::new();
    for batch in rollup.files.iter().flat_map(|file| parquet_rows(&file.path)) {
        let times = batch.column_by_name("ts").unwrap().as_primitive::<TimestampMillisecondType>();
        let keys = batch.column_by_name("key").unwrap().as_string_view();
        let bytes = batch.column_by_name("bytes").map(|column| column.as_primitive::<Int64Type>());
        let counts = batch.column_by_name(Rollup::COUNT).unwrap().as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let bytes = bytes.filter(|bytes| bytes.is_valid(row)).map(|bytes| bytes.value(row));
            add(&mut sums, (times.value(row), keys.value(row).to_owned()), bytes, counts.value(row));
        }
    }
    sums
}

/// The same, recounted from rows.
pub(crate) fn sums_of(rows: &[Row], every_ms: i64) -> Sums {
    let mut sums = Sums::new();
    for (time, key, _, bytes) in rows {
        add(&mut sums, (time.div_euclid(every_ms) * every_ms, key.clone()), *bytes, 1);
    }
    sums
}

fn add(sums: &mut Sums, key: (i64, String), bytes: Option<i64>, count: i64) {
    let (sum, rows) = sums.entry(key).or_default();
    if let Some(bytes) = bytes {
        *sum = Some(sum.unwrap_or(0).wrapping_add(bytes));
    }
    *rows += count;
}
