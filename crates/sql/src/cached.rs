//! Bytes of files that the page cache has, without another thread.
//!
//! DataFusion hands each read to a thread for files. If that wakes up after a busy thread of the query it waits
//! milliseconds for its turn, for a copy of some hundred microseconds. So bytes in memory are copied at once
//! (`preadv2` with `RWF_NOWAIT`, which never waits for a disk), and only the rest goes to such a thread.

use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::DataFusionError;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{ParquetFileMetrics, ParquetFileReaderFactory};
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::Result;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use rustix::io::{ReadWriteFlags, preadv2};
use thalweg_table::StoredFile;

/// Makes readers of stored files.
#[derive(Debug)]
pub(crate) struct CachedReads(pub(crate) CachedParquetFileReaderFactory);

impl ParquetFileReaderFactory for CachedReads {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> std::result::Result<Box<dyn AsyncFileReader + Send>, DataFusionError> {
        let counts = ParquetFileMetrics::new(partition, file.object_meta.location.as_ref(), metrics);
        counts.scan_efficiency_ratio.set_total(usize::try_from(file.object_meta.size).unwrap_or(usize::MAX));
        // The read that waits for the disk reports a file that cannot be opened.
        let open = file.extension::<Arc<StoredFile>>().and_then(|file| File::open(&file.path).ok());
        // What it counts is counted here.
        let rest =
            self.0.create_reader(partition, file, metadata_size_hint, &ExecutionPlanMetricsSet::new())?;
        Ok(Box::new(Reader { open, rest, counts }))
    }
}

struct Reader {
    open: Option<File>,
    /// What is not in memory is read by it.
    rest: Box<dyn AsyncFileReader + Send>,
    counts: ParquetFileMetrics,
}

impl Reader {
    fn count<'a>(&self, ranges: impl IntoIterator<Item = &'a Range<u64>>) {
        let bytes = ranges.into_iter().map(|range| (range.end - range.start) as usize).sum();
        self.counts.bytes_scanned.add(bytes);
        self.counts.scan_efficiency_ratio.add_part(bytes);
    }

    /// A range that is all in memory.
    fn cached(&self, range: &Range<u64>) -> Option<Bytes> {
        let file = self.open.as_ref()?;
        let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
        let mut done = 0;
        while done < bytes.len() {
            let at = range.start + done as u64;
            let read = preadv2(file, &mut [IoSliceMut::new(&mut bytes[done..])], at, ReadWriteFlags::NOWAIT);
            done += read.ok().filter(|read| *read > 0)?;
        }
        Some(bytes.into())
    }
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.count([&range]);
        match self.cached(&range) {
            Some(bytes) => ready(Ok(bytes)).boxed(),
            None => self.rest.get_bytes(range),
        }
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        self.count(&ranges);
        let cached: Vec<Option<Bytes>> = ranges.iter().map(|range| self.cached(range)).collect();
        let missing: Vec<_> = ranges
            .into_iter()
            .zip(&cached)
            .filter(|(_, bytes)| bytes.is_none())
            .map(|(range, _)| range)
            .collect();
        async move {
            // An empty read, too, would go to another thread.
            let read = if missing.is_empty() { vec![] } else { self.rest.get_byte_ranges(missing).await? };
            let mut read = read.into_iter();
            Ok(cached.into_iter().filter_map(|bytes| bytes.or_else(|| read.next())).collect())
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        self.rest.get_metadata(options)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Mutex;

    use datafusion::datasource::object_store::ObjectStoreUrl;
    use datafusion::execution::runtime_env::RuntimeEnv;
    use datafusion::parquet::errors::ParquetError;

    use super::*;

    /// Gives the requested ranges as text, and remembers them.
    struct Asked(Arc<Mutex<Vec<(u64, u64)>>>);

    impl AsyncFileReader for Asked {
        fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
            self.0.lock().unwrap().push((range.start, range.end));
            ready(Ok(format!("{range:?}").into())).boxed()
        }

        fn get_metadata<'a>(
            &'a mut self,
            _: Option<&'a ArrowReaderOptions>,
        ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
            ready(Err(ParquetError::NYI("metadata".to_owned()))).boxed()
        }
    }

    /// A file whose bytes are in memory, and whether its file system knows reads that do not wait; one in memory may not.
    fn written(bytes: &[u8]) -> (tempfile::NamedTempFile, bool) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut one = [0];
        let read = preadv2(&file, &mut [IoSliceMut::new(&mut one)], 0, ReadWriteFlags::NOWAIT);
        (file, read == Ok(1))
    }

    #[test]
    fn what_is_in_memory_is_read_and_the_rest_is_asked_for() {
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let (file, at_once) = written(&bytes);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let metrics = ExecutionPlanMetricsSet::new();
        let counts = ParquetFileMetrics::new(0, "file", &metrics);
        let open = Some(file.reopen().unwrap());
        let mut reader = Reader { open, rest: Box::new(Asked(Arc::clone(&asked))), counts };
        // The second one ends beyond the file.
        let ranges = vec![10..20, 99_990..100_010, 70_000..99_999, 5..5];
        let got = reader.get_byte_ranges(ranges).now_or_never().expect("no wait").unwrap();
        if at_once {
            assert_eq!(got, [&bytes[10..20], b"99990..100010", &bytes[70_000..99_999], b""]);
            assert_eq!(*asked.lock().unwrap(), [(99_990, 100_010)]);
        } else {
            assert_eq!(got, ["10..20", "99990..100010", "70000..99999", ""]);
        }
        assert_eq!(reader.counts.bytes_scanned.value(), 10 + 20 + 29_999);

        reader.open = None;
        let one = reader.get_bytes(0..3).now_or_never();
        assert_eq!(one.expect("no wait").unwrap(), "0..3");
    }

    /// Without a runtime there is no thread that could.
    #[test]
    fn a_stored_file_is_read_by_its_path() {
        let (file, at_once) = written(b"0123456789");
        let runtime = RuntimeEnv::default();
        let store = runtime.object_store(ObjectStoreUrl::local_filesystem()).unwrap();
        let cache = runtime.cache_manager.get_file_metadata_cache();
        let factory = CachedReads(CachedParquetFileReaderFactory::new(store, cache));
        let path = file.path().to_owned();
        let sum = thalweg_table::sums::FileSum::of_whole(b"0123456789");
        let stored = Arc::new(StoredFile { path, rows: 0, bytes: 10, first: 0, last: 0, sum });
        let elsewhere = PartitionedFile::new("not there", 10).with_extension(stored);
        let metrics = ExecutionPlanMetricsSet::new();
        let mut reader = factory.create_reader(0, elsewhere, None, &metrics).unwrap();
        let got = reader.get_bytes(3..5).now_or_never().expect("no wait");
        assert_eq!(got.ok().as_deref(), at_once.then_some(b"34".as_slice()));
        let scanned = metrics.clone_inner().sum_by_name("bytes_scanned");
        assert_eq!(scanned.map(|scanned| scanned.as_usize()), Some(2));
    }
}
