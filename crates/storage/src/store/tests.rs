//! The store as a whole: against a model, with crashes, failing I/O, damage, and under its budget.

mod damage;
mod faults;
mod memory;
mod model;
mod survey;

use std::path::Path;
use std::sync::Arc;

use arrow_array::*;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::*;
use crate::{FaultyFs, MemFs, make_dir};

const DIR: &str = "/data/tasks/card/0";

/// Files of a few chunks, so that small tests roll them.
const FILE_BYTES: u64 = 1_400;

fn disk() -> MemFs {
    let fs = MemFs::new();
    make_dir(&fs, Path::new("/data/tasks/card")).unwrap();
    fs.sync_dir(Path::new("/data/tasks/card")).unwrap();
    fs
}

fn options(committed: Option<Range<ChunkId>>) -> ChunkStoreOptions {
    ChunkStoreOptions { file_bytes: FILE_BYTES, committed, ..ChunkStoreOptions::new(7) }
}

fn open(fs: &MemFs, pool: &Arc<IoPool>, committed: Option<Range<ChunkId>>) -> Result<ChunkStore, ChunkError> {
    let budget = ChunkBudget::new(1 << 20);
    ChunkStore::open(Arc::new(fs.clone()), DIR, Arc::clone(pool), budget, options(committed))
}

fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

/// The schema of even chunks; odd ones have it with an older type and without the text.
fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("time", time_type(), true),
        Field::new("amount", DataType::Float64, true),
        Field::new("card", DataType::Utf8View, true),
    ]))
}

fn old_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("amount", DataType::Int64, true),
        Field::new("time", time_type(), true),
    ]))
}

/// Chunk `number` as it is sealed: a function of its number.
fn sealed(number: u64) -> (Seal, RecordBatch) {
    let rows = 20 + (number * 37 % 60) as i64;
    let first_time = number as i64 * 1_000;
    let times: Vec<i64> = (0..rows).map(|row| first_time + row * 7).collect();
    let amounts = (0..rows).map(|row| row * 13 % 50 + number as i64);
    let last_time = *times.last().unwrap();
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(times));
    let batch = if number.is_multiple_of(2) {
        let amounts: ArrayRef = Arc::new(Float64Array::from_iter(amounts.map(|amount| Some(amount as f64))));
        let cards =
            (0..rows).map(|row| (row % 5 != 0).then(|| format!("card number {}", row * number as i64)));
        let cards: ArrayRef = Arc::new(StringViewArray::from_iter(cards));
        RecordBatch::try_new(schema(), vec![times, amounts, cards])
    } else {
        RecordBatch::try_new(old_schema(), vec![Arc::new(Int64Array::from_iter(amounts.map(Some))), times])
    };
    (Seal { first_time, last_time, keep: false }, batch.unwrap())
}

/// What reading chunk `number` gives.
fn expected(number: u64, projection: &Projection) -> RecordBatch {
    let (_, batch) = sealed(number);
    let columns = projection
        .schema()
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) if column.data_type() == field.data_type() => Arc::clone(column),
            Some(column) => {
                use arrow_array::cast::AsArray;
                let ints = column.as_primitive::<types::Int64Type>();
                Arc::new(Float64Array::from_iter(ints.iter().map(|value| value.map(|value| value as f64))))
            }
            None => new_null_array(field.data_type(), batch.num_rows()),
        })
        .collect();
    RecordBatch::try_new(Arc::clone(projection.schema()), columns).unwrap()
}

fn projections() -> [Projection; 2] {
    let amounts = Schema::new(vec![Field::new("amount", DataType::Float64, true)]);
    [Projection::new(schema()), Projection::new(Arc::new(amounts))]
}

fn seal(store: &mut ChunkStore, count: u64) {
    for _ in 0..count {
        let (seal, batch) = sealed(store.next().0);
        store.seal(seal, batch).unwrap();
    }
}

/// Every chunk of the store reads as it was sealed.
fn assert_whole(store: &mut ChunkStore) {
    let index = store.index().to_vec();
    for meta in index {
        let (seal, batch) = sealed(meta.id.0);
        assert_eq!((meta.first_time, meta.last_time), (seal.first_time, seal.last_time));
        assert_eq!(meta.rows as usize, batch.num_rows());
        for projection in projections() {
            assert_eq!(
                *store.read(meta.id, &projection).unwrap(),
                expected(meta.id.0, &projection),
                "{}",
                meta.id
            );
        }
    }
}

#[test]
fn chunks_read_back_before_and_after_they_are_written_and_after_a_reopening() {
    for pool in [IoPool::inline(), IoPool::new(2)] {
        let fs = disk();
        let mut store = open(&fs, &pool, None).unwrap();
        seal(&mut store, 40);
        assert_whole(&mut store);
        assert_eq!(store.sync().unwrap(), ChunkId(40));
        assert!(store.index().iter().all(|meta| meta.bytes > 0));
        assert!(fs.list(Path::new(DIR)).unwrap().len() > 5, "files are rolled");
        let index = store.index().to_vec();
        store.close().unwrap();

        let mut store = open(&fs, &pool, None).unwrap();
        assert_eq!(store.index(), index);
        assert_eq!(store.schemas().len(), 2);
        assert_whole(&mut store);
        seal(&mut store, 3);
        assert_whole(&mut store);
    }
}

#[test]
fn time_finds_the_first_chunk_that_may_hold_it() {
    let mut store = open(&disk(), &IoPool::inline(), None).unwrap();
    assert_eq!(store.find(0), None);
    for (first_time, last_time) in [(0, 10), (5, 8), (11, 20), (20, 20)] {
        store.seal(Seal { first_time, last_time, keep: false }, sealed(0).1).unwrap();
    }
    for (time, found) in [(-5, Some(0)), (10, Some(0)), (11, Some(2)), (20, Some(2)), (21, None)] {
        assert_eq!(store.find(time), found.map(ChunkId), "at {time}");
    }
}

#[test]
fn deleting_takes_whole_files_and_never_the_last() {
    let fs = disk();
    let pool = IoPool::inline();
    let mut store = open(&fs, &pool, None).unwrap();
    seal(&mut store, 30);
    let files = || fs.list(Path::new(DIR)).unwrap();
    let before = files().len();
    let count = store.delete_before(ChunkId(12)).unwrap();
    assert!(count > 5 && count <= 12, "{count}");
    assert_eq!(store.first(), ChunkId(count));
    assert!(files().len() < before);
    let gone = store.read(ChunkId(0), &projections()[0]).unwrap_err();
    assert_eq!(
        gone.to_string(),
        format!("chunk 0 is not in chunk store \"{DIR}\", which holds chunk {count} up to before chunk 30")
    );
    store.delete_before(ChunkId(1000)).unwrap();
    assert_eq!(files().iter().filter(|name| name.ends_with(".thc")).count(), 1);
    store.close().unwrap();
    let mut store = open(&fs, &pool, None).unwrap();
    assert_eq!(store.next(), ChunkId(30));
    assert_whole(&mut store);
    drop(store);
    ChunkStore::discard(&fs, Path::new(DIR)).unwrap();
    ChunkStore::discard(&fs, Path::new(DIR)).unwrap();
    assert_eq!(open(&fs, &pool, None).unwrap().next(), ChunkId(0));
}

#[test]
fn a_commit_decides_what_survives() {
    let fs = disk();
    let pool = IoPool::inline();
    let mut store = open(&fs, &pool, None).unwrap();
    seal(&mut store, 30);
    store.close().unwrap();
    let mut store = open(&fs, &pool, Some(ChunkId(0)..ChunkId(13))).unwrap();
    assert_eq!(store.next(), ChunkId(13));
    seal(&mut store, 10);
    assert_whole(&mut store);
    store.close().unwrap();
    let missing = open(&fs, &pool, Some(ChunkId(0)..ChunkId(24))).unwrap_err();
    assert_eq!(
        missing.to_string(),
        format!(
            "damage in \"{DIR}\" at byte 0: chunks that the commit names: \
             expected up to before chunk 24, got up to before chunk 23"
        )
    );
    let store = open(&fs, &pool, Some(ChunkId(5)..ChunkId(5))).unwrap();
    assert_eq!(store.next(), ChunkId(5));
    drop(store);
    let mut store = open(&fs, &pool, Some(ChunkId(0)..ChunkId(0))).unwrap();
    assert_eq!((store.next(), store.index().len()), (ChunkId(0), 0));
    seal(&mut store, 5);
    assert_whole(&mut store);
}

#[test]
fn columns_are_refused_where_they_cannot_be_widened() {
    let mut store = open(&disk(), &IoPool::inline(), None).unwrap();
    seal(&mut store, 2);
    let texts = Projection::new(Arc::new(Schema::new(vec![Field::new("amount", DataType::Utf8View, true)])));
    assert_eq!(
        store.read(ChunkId(1), &texts).unwrap_err().to_string(),
        "column \"amount\" is stored as Int64 and cannot be read as Utf8View"
    );
    let (seal, batch) = sealed(0);
    assert!(matches!(store.seal(seal, batch.slice(0, 0)), Err(ChunkError::RowCount { rows: 0, .. })));
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let ints = RecordBatch::try_from_iter([("n", ints)]).unwrap();
    assert!(matches!(store.seal(seal, ints), Err(ChunkError::Unsupported { .. })));
    assert_eq!(store.next(), ChunkId(2), "a refused batch takes no number");
}
