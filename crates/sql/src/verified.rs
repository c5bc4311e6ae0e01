//! Stored files whose bytes are checked against their checksums whenever they are read.
//!
//! Requested bytes of a file are read in whole blocks, which are checked before anything in them is used; so a bit that
//! changed is an error with file and bytes and never an answer. Nothing is remembered of bytes but the sums: bytes that
//! are read again are checked again. The footer, which has the sums, is checked against the manifest's, and parsed
//! once.
//!
//! A file of an older build has one checksum of the whole: it is read once from end to end, and the sums of its blocks
//! are kept, as many as [`MOST`] files have.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use datafusion::common::DataFusionError;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::object_store::ObjectMeta;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use thalweg_table::StoredFile;
use thalweg_table::sums::{BLOCK, BlockSums, KEY, SumUp, check_tail};
use thalweg_types::Error;

/// Files of older builds whose sums are kept: some 2 KiB each.
const MOST: usize = 4096;
/// Such a file is read in pieces of this many bytes.
const PIECE: u64 = 16 * BLOCK;
/// The end of such a file that is read first: most footers fit.
const FOOTER: u64 = 4 * BLOCK;

/// Makes readers that check the reads of others.
#[derive(Debug)]
pub(crate) struct VerifiedReads<F> {
    pub(crate) reads: F,
    pub(crate) metadata: Arc<FileMetadataCache>,
}

impl<F: ParquetFileReaderFactory> ParquetFileReaderFactory for VerifiedReads<F> {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> std::result::Result<Box<dyn AsyncFileReader + Send>, DataFusionError> {
        let Some(stored) = file.extension::<Arc<StoredFile>>().cloned() else {
            return Err(crate::fault::ours(Error::internal("a file of no table is read as one")));
        };
        let object = file.object_meta.clone();
        let rest = self.reads.create_reader(partition, file, metadata_size_hint, metrics)?;
        Ok(Box::new(Reader { stored, object, rest, metadata: Arc::clone(&self.metadata), sums: None }))
    }
}

struct Reader {
    stored: Arc<StoredFile>,
    object: ObjectMeta,
    rest: Box<dyn AsyncFileReader + Send>,
    /// Footers that were parsed, of all queries.
    metadata: Arc<FileMetadataCache>,
    sums: Option<Arc<BlockSums>>,
}

impl Reader {
    /// The footer, as it was parsed before.
    fn known(&self) -> Option<Arc<ParquetMetaData>> {
        let known =
            self.metadata.get(&self.object.location).filter(|known| known.is_valid_for(&self.object))?;
        let known = known.file_metadata.as_any().downcast_ref::<CachedParquetMetaData>()?;
        Some(Arc::clone(known.parquet_metadata()))
    }

    /// The footer and the sums, which are there afterwards.
    async fn begin(&mut self) -> Result<Arc<ParquetMetaData>> {
        let known = self.known();
        let metadata = match (self.stored.sum.tail, known) {
            (Some(tail), Some(known)) => {
                self.sums_in(tail, &known)?;
                return Ok(known);
            }
            (Some(tail), None) => {
                let bytes = self.rest.get_bytes(tail.at..self.stored.bytes).await?;
                check_tail(&self.stored.path, tail, &bytes).map_err(fault)?;
                let metadata = self.parse(&bytes)?.map_err(|_| self.short())?;
                self.sums_in(tail, &metadata)?;
                metadata
            }
            (None, known) => {
                self.sum_up().await?;
                match known {
                    Some(known) => return Ok(known),
                    None => self.footer().await?,
                }
            }
        };
        let entry = CachedFileMetadataEntry::new(
            self.object.clone(),
            Arc::new(CachedParquetMetaData::new(Arc::clone(&metadata))),
        );
        self.metadata.put(&self.object.location, entry);
        Ok(metadata)
    }

    fn sums_in(&mut self, tail: thalweg_table::sums::TailSum, metadata: &ParquetMetaData) -> Result<()> {
        if self.sums.is_none() {
            let known = metadata.file_metadata().key_value_metadata();
            let text = known.and_then(|known| known.iter().find(|known| known.key == KEY)?.value.as_deref());
            let sums = BlockSums::read(&self.stored.path, self.stored.bytes, tail, text).map_err(fault)?;
            self.sums = Some(Arc::new(sums));
        }
        Ok(())
    }

    /// Parses the end of the file; where it takes more of it, says how much.
    fn parse(&self, end: &Bytes) -> Result<std::result::Result<Arc<ParquetMetaData>, u64>> {
        let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
        match reader.try_parse_sized(end, self.stored.bytes) {
            Ok(()) => Ok(Ok(Arc::new(reader.finish()?))),
            Err(ParquetError::NeedMoreData(needed)) => Ok(Err(needed as u64)),
            Err(error) => Err(error),
        }
    }

    fn short(&self) -> ParquetError {
        fault(Error::corrupt(format!("{:?} has no whole footer", self.stored.path)))
    }

    /// The footer of a file whose sums are known otherwise.
    async fn footer(&mut self) -> Result<Arc<ParquetMetaData>> {
        let mut len = FOOTER.min(self.stored.bytes);
        loop {
            let last = self.stored.bytes - len..self.stored.bytes;
            let end = self.checked(vec![last]).await?;
            match self.parse(&end[0])? {
                Ok(metadata) => return Ok(metadata),
                Err(needed) if needed > len && needed <= self.stored.bytes => len = needed,
                Err(_) => return Err(self.short()),
            }
        }
    }

    /// Makes the sums of a file that has only one.
    async fn sum_up(&mut self) -> Result<()> {
        if self.sums.is_some() {
            return Ok(());
        }
        let key: Key = (self.stored.path.clone(), self.stored.bytes, self.stored.sum.whole);
        let known = summed_up().get(&key).cloned();
        if let Some(known) = known {
            self.sums = Some(known);
            return Ok(());
        }
        let mut sums = SumUp::new();
        for start in (0..self.stored.bytes).step_by(PIECE as usize) {
            let end = (start + PIECE).min(self.stored.bytes);
            sums.add(&self.rest.get_bytes(start..end).await?);
        }
        let sums = Arc::new(sums.finish(&self.stored.path, self.stored.sum.whole).map_err(fault)?);
        let mut all = summed_up();
        if all.len() >= MOST {
            // They are made again as they are needed.
            all.clear();
        }
        all.insert(key, Arc::clone(&sums));
        drop(all);
        self.sums = Some(sums);
        Ok(())
    }

    /// Ranges of bytes, checked to be those that were written.
    async fn checked(&mut self, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
        let sums = match &self.sums {
            Some(sums) => Arc::clone(sums),
            None => return Err(fault(Error::internal("a file is read before its sums"))),
        };
        let runs = together(ranges.iter().map(|range| sums.around(range)).collect());
        let read = self.rest.get_byte_ranges(runs.clone()).await?;
        for (run, bytes) in runs.iter().zip(&read) {
            if bytes.len() as u64 != run.end - run.start {
                return Err(fault(Error::corrupt(format!(
                    "{:?} ends before byte {}",
                    self.stored.path, run.end
                ))));
            }
            sums.check(&self.stored.path, run.start, bytes).map_err(fault)?;
        }
        let of = |range: &Range<u64>| {
            let at = runs.partition_point(|run| run.end < range.end);
            let (run, bytes) = (&runs[at], &read[at]);
            let start = (range.start - run.start) as usize;
            bytes.slice(start..start + (range.end - range.start) as usize)
        };
        Ok(ranges.iter().map(|range| if range.is_empty() { Bytes::new() } else { of(range) }).collect())
    }
}

/// Ranges, with those made one that have bytes in common: neighbours share a block, which is read once.
fn together(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut().filter(|last| range.start < last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => out.push(range),
        }
    }
    out
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move { Ok(self.get_byte_ranges(vec![range]).await?.pop().unwrap_or_default()) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move {
            if self.sums.is_none() {
                self.begin().await?;
            }
            self.checked(ranges).await
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move { self.begin().await }.boxed()
    }
}

/// Path, length and checksum of a file.
type Key = (PathBuf, u64, u32);

/// Sums of files of older builds.
fn summed_up() -> std::sync::MutexGuard<'static, HashMap<Key, Arc<BlockSums>>> {
    static SUMMED_UP: LazyLock<Mutex<HashMap<Key, Arc<BlockSums>>>> = LazyLock::new(Mutex::default);
    SUMMED_UP.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fault(error: Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_with_common_bytes_are_read_once() {
        let made = together(vec![10..20, 0..5, 15..30, 30..31, 7..7, 16..17]);
        assert_eq!(made, [0..5, 10..30, 30..31]);
    }
}
