//! The real file system, with a count of what is written and synced.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_storage::{File, Fs, OpenMode, RealFs};

// `Relaxed`: figures for a report; nothing is ordered by them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    writes: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Calls that wrote.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Bytes that they wrote; zeros laid out ahead are not among them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Files that were synced.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct CountingFs(pub(crate) Arc<Counts>);

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn File>,
    counts: Arc<Counts>,
}

impl Fs for CountingFs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = RealFs.open(path, mode)?;
        Ok(Arc::new(CountingFile { file, counts: Arc::clone(&self.0) }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        RealFs.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list(dir)
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list_dirs(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealFs.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealFs.sync_dir(dir)
    }
}

impl File for CountingFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let written = self.file.write_at(bytes, position)?;
        Counts::add(&self.counts.writes, 1);
        Counts::add(&self.counts.bytes, written as u64);
        Ok(written)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.file.preallocate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        Counts::add(&self.counts.syncs, 1);
        Ok(())
    }
}
