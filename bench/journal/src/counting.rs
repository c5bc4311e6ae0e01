//! The real file system, with a count of what is written and synced.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_storage::{File, Fs, Layer, RealFs};

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

impl Layer for Counts {
    fn inner(&self) -> &dyn Fs {
        &RealFs
    }

    fn write_at(&self, _path: &Path, file: &dyn File, bytes: &[u8], position: u64) -> io::Result<usize> {
        let written = file.write_at(bytes, position)?;
        Self::add(&self.writes, 1);
        Self::add(&self.bytes, written as u64);
        Ok(written)
    }

    fn sync_data(&self, _path: &Path, file: &dyn File) -> io::Result<()> {
        file.sync_data()?;
        Self::add(&self.syncs, 1);
        Ok(())
    }
}
