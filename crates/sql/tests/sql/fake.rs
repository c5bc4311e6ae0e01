//! A catalog of tables made of rows that tests give, in Parquet files and in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::builder::{FixedSizeBinaryBuilder, StringBuilder};
use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;
use thalweg_sql::{Engine, Format, Limits, Reply};
use thalweg_table::sums::FileSum;
use thalweg_table::{Catalog, ROW_GROUP, Rollup, Snapshot, StoredFile, TableName};
use thalweg_types::Error;

pub(crate) const SECOND: i64 = 1_000_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// 2026-01-05T00:00:00Z, a Monday.
pub(crate) const START: i64 = 1_767_571_200 * SECOND;

/// A row of the tables `flows`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) time: i64,
    pub(crate) src_addr: Option<&'static str>,
    pub(crate) src_as: Option<u64>,
    pub(crate) dst_as: Option<u64>,
    pub(crate) src_name: Option<&'static str>,
    pub(crate) bytes: Option<u64>,
    pub(crate) packets: Option<i64>,
    pub(crate) load: Option<f64>,
}

pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, None), false),
        Field::new("src_addr", DataType::FixedSizeBinary(16), true),
        Field::new("src_as", DataType::UInt64, true),
        Field::new("dst_as", DataType::UInt64, true),
        Field::new("src_name", DataType::Utf8, true),
        Field::new("bytes", DataType::UInt64, true),
        Field::new("packets", DataType::Int64, true),
        Field::new("load", DataType::Float64, true),
    ]))
}

pub(crate) fn address(text: &str) -> [u8; 16] {
    match text.parse().expect("an address") {
        IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
        IpAddr::V6(six) => six.octets(),
    }
}

pub(crate) fn batch(rows: &[Flow]) -> RecordBatch {
    let mut addresses = FixedSizeBinaryBuilder::new(16);
    let mut names = StringBuilder::new();
    for row in rows {
        match row.src_addr {
            Some(text) => addresses.append_value(address(text)).expect("16 bytes"),
            None => addresses.append_null(),
        }
        names.append_option(row.src_name);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.time))),
        Arc::new(addresses.finish()),
        Arc::new(UInt64Array::from_iter(rows.iter().map(|row| row.src_as))),
        Arc::new(UInt64Array::from_iter(rows.iter().map(|row| row.dst_as))),
        Arc::new(names.finish()),
        Arc::new(UInt64Array::from_iter(rows.iter().map(|row| row.bytes))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.packets))),
        Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.load))),
    ];
    RecordBatch::try_new(schema(), columns).expect("columns of the schema")
}

/// Writes a file; its times are those of the column `time`.
pub(crate) fn file(path: &Path, batch: &RecordBatch) -> Arc<StoredFile> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROW_GROUP)).build();
    let file = File::create(path).expect("a file");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
    writer.write(batch).expect("written");
    writer.close().expect("closed");
    let times = batch.column_by_name("time").expect("time");
    let times = times.as_any().downcast_ref::<TimestampMicrosecondArray>().expect("times");
    Arc::new(StoredFile {
        path: path.to_owned(),
        rows: batch.num_rows() as u64,
        bytes: path.metadata().expect("a size").len(),
        first: times.values().iter().copied().min().expect("rows"),
        last: times.values().iter().copied().max().expect("rows"),
        sum: FileSum::of_whole(&std::fs::read(path).expect("what was written")),
    })
}

/// What tests look at and change.
#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) tables: Mutex<BTreeMap<TableName, Snapshot>>,
    /// Snapshots that were taken.
    pub(crate) taken: AtomicUsize,
    /// The tables after a number of snapshots.
    pub(crate) later: Mutex<Vec<(usize, BTreeMap<TableName, Snapshot>)>>,
}

impl Catalog for Fake {
    fn tables(&self) -> Result<Vec<TableName>, Error> {
        Ok(self.tables.lock().unwrap().keys().cloned().collect())
    }

    fn snapshot(&self, name: &TableName) -> Result<Option<Snapshot>, Error> {
        let taken = self.taken.fetch_add(1, Ordering::SeqCst);
        let mut tables = self.tables.lock().unwrap();
        self.later.lock().unwrap().retain(|(after, later)| {
            if taken >= *after {
                tables.clone_from(later);
            }
            taken < *after
        });
        Ok(tables.get(name).cloned())
    }
}

/// A folder with tables, and an engine over them.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) fake: Arc<Fake>,
    pub(crate) engine: Engine,
}

pub(crate) fn name(job: &str, table: &str) -> TableName {
    TableName { job: job.to_owned(), table: table.to_owned() }
}

pub(crate) fn world(limits: Limits) -> World {
    let fake = Arc::new(Fake::default());
    let catalog: Arc<dyn Catalog> = fake.clone();
    let engine = Engine::new(catalog, limits).expect("an engine");
    World { folder: tempfile::tempdir().expect("a folder"), fake, engine }
}

impl World {
    /// Adds a table of some files and some rows that are in none.
    pub(crate) fn add(&self, job: &str, table: &str, files: &[&[Flow]], fresh: &[Flow]) {
        let files = files.iter().enumerate().map(|(place, rows)| {
            file(&self.folder.path().join(format!("{job} {table}#{place}.parquet")), &batch(rows))
        });
        let snapshot = Snapshot {
            name: name(job, table),
            schema: schema(),
            time: 0,
            files: files.collect(),
            complete_from: None,
            fresh: if fresh.is_empty() { vec![] } else { vec![batch(fresh)] },
            rollups: vec![],
            elsewhere: vec![],
        };
        self.put(snapshot);
    }

    pub(crate) fn put(&self, snapshot: Snapshot) {
        self.fake.tables.lock().unwrap().insert(snapshot.name.clone(), snapshot);
    }

    pub(crate) fn rollups(&self, job: &str, table: &str, rollups: Vec<Rollup>) {
        self.fake.tables.lock().unwrap().get_mut(&name(job, table)).expect("a table").rollups = rollups;
    }

    pub(crate) fn reply(&self, sql: &str) -> Result<Reply, Error> {
        self.engine.query_blocking(sql)
    }

    /// The answer in a format.
    pub(crate) fn in_format(&self, sql: &str, format: Format) -> String {
        let reply =
            self.reply(sql).unwrap_or_else(|error| panic!("{sql}: {} {:?}", error.chain(), error.hint()));
        let mut out = Vec::new();
        thalweg_sql::write(reply, format, &mut out)
            .unwrap_or_else(|error| panic!("{sql}: {} {:?}", error.chain(), error.hint()));
        String::from_utf8(out).expect("text")
    }

    /// The rows as CSV, without the head.
    pub(crate) fn rows(&self, sql: &str) -> Vec<String> {
        self.in_format(sql, Format::Csv).lines().skip(1).map(str::to_owned).collect()
    }

    pub(crate) fn error(&self, sql: &str) -> Error {
        match self.reply(sql) {
            Err(error) => error,
            Ok(reply) => {
                let end = reply.filter_map(Result::err).next();
                end.unwrap_or_else(|| panic!("{sql}: expected an error"))
            }
        }
    }
}
