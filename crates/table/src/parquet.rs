//! Rows as Parquet files, one per time partition.
//!
//! A column that has no value in a whole file is not in it; readers take it for null.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::Schema as ArrowSchema;
use arrow_select::take::take_record_batch;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use thalweg_storage::{Fs, make_dir, publish};
use thalweg_types::{Error, Micros};

use crate::manifest::Entry;
use crate::nulls::{Nulls, columns_with_values};
use crate::rollup::micros;
use crate::spec::{Codec, Partition};
use crate::sums::{self, TailSum};
use crate::{failed, folder};

/// Rows of a row group: what a reader skips, or reads on another core.
pub const ROW_GROUP: usize = 128 << 10;

const BRING_BACK: &str = "put the file back from a copy";

/// Where and how files of one table are written.
pub(crate) struct Writer<'a> {
    pub fs: &'a dyn Fs,
    pub table: &'a Path,
    pub codec: Codec,
    pub partition: Partition,
}

impl Writer<'_> {
    /// Writes batches of one schema, durably, and says which files that made; their numbers begin with `number`. No file counts
    /// before the manifest names it. `time` is the name of the time column.
    ///
    /// # Errors
    /// The disk's errors.
    pub(crate) fn write(
        &self,
        part: &str,
        time: &str,
        batches: &[RecordBatch],
        mut number: u64,
    ) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for (partition, batches) in self.divide(time, batches)? {
            let partition = self.partition.folder(partition);
            entries.push(self.write_one(part, time, &partition, &batches, number)?);
            number += 1;
        }
        Ok(entries)
    }

    /// Rows by partition; batches within one are taken as they are.
    fn divide(&self, time: &str, batches: &[RecordBatch]) -> Result<BTreeMap<i64, Vec<RecordBatch>>, Error> {
        let mut divided: BTreeMap<i64, Vec<RecordBatch>> = BTreeMap::new();
        for rows in batches.iter().filter(|rows| rows.num_rows() > 0) {
            let mut places: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
            let (first, last) = span(time, rows)?;
            let (first, last) = (self.partition.of(first), self.partition.of(last));
            if first == last {
                divided.entry(first).or_default().push(rows.clone());
                continue;
            }
            for (row, time) in times(time, rows)?.enumerate() {
                places.entry(self.partition.of(time)).or_default().push(row as u32);
            }
            for (partition, places) in places {
                let taken = take_record_batch(rows, &UInt32Array::from(places));
                let taken =
                    taken.map_err(|error| Error::internal("divide rows by time").with_source(error))?;
                divided.entry(partition).or_default().push(taken);
            }
        }
        Ok(divided)
    }

    fn write_one(
        &self,
        part: &str,
        time: &str,
        partition: &str,
        batches: &[RecordBatch],
        number: u64,
    ) -> Result<Entry, Error> {
        let (bytes, tail) = self.encode(batches)?;
        let path = folder::parquet(self.table, part, partition, number);
        let folder = path.parent().unwrap_or(self.table);
        make_dir(self.fs, folder).map_err(|error| failed("create", folder, error))?;
        publish(self.fs, &path, &bytes).map_err(|error| failed("write", &path, error))?;
        let spans = batches.iter().map(|rows| span(time, rows)).collect::<Result<Vec<_>, Error>>()?;
        Ok(Entry {
            number,
            part: part.to_owned(),
            partition: partition.to_owned(),
            rows: batches.iter().map(|rows| rows.num_rows() as u64).sum(),
            bytes: bytes.len() as u64,
            first: spans.iter().map(|(first, _)| *first).min().unwrap_or_default(),
            last: spans.iter().map(|(_, last)| *last).max().unwrap_or_default(),
            crc: crc32fast::hash(&bytes),
            tail: Some(tail),
        })
    }

    /// The bytes of a file, with the checksums of its rows, and the one of the rest.
    fn encode(&self, batches: &[RecordBatch]) -> Result<(Vec<u8>, TailSum), Error> {
        let encoding = |error| Error::internal("write rows as Parquet").with_source(error);
        let schema = schema_with_values(batches);
        let properties = WriterProperties::builder()
            .set_compression(match self.codec {
                Codec::Zstd => Compression::ZSTD(ZstdLevel::default()),
                Codec::Lz4 => Compression::LZ4_RAW,
                Codec::Snappy => Compression::SNAPPY,
                Codec::None => Compression::UNCOMPRESSED,
            })
            .set_max_row_group_row_count(Some(ROW_GROUP))
            .set_created_by(concat!("thalweg ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let mut writer =
            ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties)).map_err(encoding)?;
        let mut nulls = Nulls::default();
        for rows in batches {
            writer.write(&nulls.widen(rows, &schema)).map_err(encoding)?;
        }
        // All rows are written, and nothing but page index and footer is left.
        writer.flush().map_err(encoding)?;
        writer.sync().map_err(|error| Error::internal("write rows as Parquet").with_source(error))?;
        let rows = writer.inner();
        let (at, text) = (rows.len(), sums::text_of(rows));
        writer.append_key_value_metadata(KeyValue::new(sums::KEY.to_owned(), text));
        let bytes = writer.into_inner().map_err(encoding)?;
        let tail = TailSum { at: at as u64, crc: crc32fast::hash(&bytes[at..]) };
        Ok((bytes, tail))
    }
}

/// All columns that have a value somewhere, in the order in which they are met.
fn schema_with_values(batches: &[RecordBatch]) -> Arc<ArrowSchema> {
    let mut fields: Vec<arrow_schema::FieldRef> = Vec::new();
    for rows in batches {
        let schema = rows.schema_ref();
        for place in columns_with_values(schema, std::slice::from_ref(rows)) {
            let field = &schema.fields()[place];
            if !fields.iter().any(|known| known.name() == field.name()) {
                fields.push(Arc::clone(field));
            }
        }
    }
    Arc::new(ArrowSchema::new(fields))
}

/// Rows of a Parquet file that this crate wrote.
///
/// # Errors
/// The disk's errors; of class corrupt if bytes have changed.
pub(crate) fn read(fs: &dyn Fs, path: &Path, entry: &Entry) -> Result<Vec<RecordBatch>, Error> {
    let file = fs.open(path, thalweg_storage::OpenMode::Read).map_err(|error| failed("open", path, error))?;
    let length = usize::try_from(entry.bytes).unwrap_or(usize::MAX);
    let found = file.len().map_err(|error| failed("measure", path, error))?;
    if found != entry.bytes {
        let message = format!("{path:?} is damaged: it has {found} bytes, and {} were written", entry.bytes);
        return Err(Error::corrupt(message).with_hint(BRING_BACK));
    }
    let bytes = file.map(0, length).map_err(|error| failed("read", path, error))?;
    entry.sum().check_whole(path, &bytes, sums_in)?;
    let damaged = |error: String| Error::corrupt(format!("{path:?} cannot be read: {error}"));
    let reader =
        ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|error| damaged(error.to_string()))?;
    let reader = reader.with_batch_size(64 << 10).build().map_err(|error| damaged(error.to_string()))?;
    reader.map(|rows| rows.map_err(|error| damaged(error.to_string()))).collect()
}

/// The sums in the footer of a file that ends with `tail`.
fn sums_in(tail: &[u8]) -> Option<String> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::copy_from_slice(tail)).ok()?;
    let known = metadata.file_metadata().key_value_metadata()?;
    known.iter().find(|known| known.key == sums::KEY)?.value.clone()
}

/// Event times of rows.
pub(crate) fn times(time: &str, rows: &RecordBatch) -> Result<impl Iterator<Item = Micros>, Error> {
    let column = rows.column_by_name(time).and_then(micros);
    column.ok_or_else(|| Error::internal(format!("rows of a table have no time column {time:?}")))
}

/// First and last event time.
pub(crate) fn span(time: &str, rows: &RecordBatch) -> Result<(Micros, Micros), Error> {
    let span = times(time, rows)?
        .fold((i64::MAX, i64::MIN), |(first, last), time| (first.min(time), last.max(time)));
    Ok(span)
}
