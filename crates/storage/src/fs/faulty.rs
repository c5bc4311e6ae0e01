//! Errors laid over another file system, at a call or by a seed.
//!
//! Calls are counted over the whole file system, so a sweep of `n = 1..` over a fixed workload visits every
//! place that does I/O. After a failed sync the file pretends that later ones succeed and passes none of them
//! on: that is what a kernel does which has called the pages clean.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::mem::Random;
use super::{File, Fs, OpenMode};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Input/output error.
    Eio,
    /// No space left on device; a write leaves its first half behind.
    Enospc,
    /// A write takes only its first half and says so; other calls work.
    ShortWrite,
    /// A read returns one flipped bit; other calls work.
    BitFlip,
}

/// What goes wrong, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call that fails, counted from 1.
    pub call: u64,
    pub kind: FaultKind,
    /// Whether every call after it fails too, as on a full disk.
    pub stays: bool,
}

/// A file system that fails as told; clones share the count.
#[derive(Clone, Debug)]
pub struct FaultyFs(Arc<State>);

#[derive(Debug)]
struct State {
    inner: Arc<dyn Fs>,
    fault: Option<Fault>,
    /// Relaxed everywhere: a count, not a hand-over.
    calls: AtomicU64,
    hits: AtomicU64,
    /// Files whose sync failed once.
    lost: Mutex<BTreeSet<PathBuf>>,
}

#[derive(Debug)]
struct FaultyFile {
    state: Arc<State>,
    path: PathBuf,
    inner: Arc<dyn File>,
}

impl FaultyFs {
    /// Counts calls and, where there is a fault, lets it happen.
    pub fn new(inner: Arc<dyn Fs>, fault: Option<Fault>) -> Self {
        Self(Arc::new(State {
            inner,
            fault,
            calls: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            lost: Mutex::default(),
        }))
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// Faults that happened: a sweep in which this stays 0 has shown nothing.
    pub fn hits(&self) -> u64 {
        self.0.hits.load(Ordering::Relaxed)
    }
}

impl State {
    /// Counts a call and says whether it is one that goes wrong. `applies`: whether the call is one on which
    /// this kind of fault shows.
    fn strike(&self, applies: impl FnOnce(FaultKind) -> bool) -> Option<FaultKind> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = self.fault.filter(|fault| call == fault.call || (fault.stays && call > fault.call))?;
        applies(fault.kind).then(|| {
            self.hits.fetch_add(1, Ordering::Relaxed);
            fault.kind
        })
    }

    /// For calls that either work or do not.
    fn plain(&self) -> io::Result<()> {
        match self.strike(|kind| matches!(kind, FaultKind::Eio | FaultKind::Enospc)) {
            Some(kind) => Err(kind.error()),
            None => Ok(()),
        }
    }
}

impl FaultKind {
    fn error(self) -> io::Error {
        match self {
            FaultKind::Enospc => io::ErrorKind::StorageFull.into(),
            _ => io::Error::from_raw_os_error(5),
        }
    }
}

impl Fs for FaultyFs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.0.plain()?;
        let inner = self.0.inner.open(path, mode)?;
        Ok(Arc::new(FaultyFile { state: Arc::clone(&self.0), path: path.to_owned(), inner }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.plain()?;
        self.0.inner.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.plain()?;
        self.0.inner.list(dir)
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.plain()?;
        self.0.inner.list_dirs(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.plain()?;
        self.0.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.plain()?;
        self.0.inner.remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.plain()?;
        self.0.inner.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.plain()?;
        self.0.inner.sync_dir(dir)
    }
}

impl File for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        match self.state.strike(|kind| kind != FaultKind::ShortWrite) {
            Some(FaultKind::BitFlip) => {
                let count = self.inner.read_at(buffer, position)?;
                if count > 0 {
                    let bit = Random(position ^ self.state.calls.load(Ordering::Relaxed)).next();
                    let place = usize::try_from(bit >> 3).unwrap_or(0) % count;
                    buffer[place] ^= 1 << (bit & 7);
                }
                Ok(count)
            }
            Some(kind) => Err(kind.error()),
            None => self.inner.read_at(buffer, position),
        }
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        match self.state.strike(|kind| kind != FaultKind::BitFlip) {
            Some(FaultKind::ShortWrite) => self.inner.write_at(&bytes[..bytes.len().div_ceil(2)], position),
            Some(FaultKind::Enospc) => {
                self.inner.write_all_at(&bytes[..bytes.len() / 2], position)?;
                Err(FaultKind::Enospc.error())
            }
            Some(kind) => Err(kind.error()),
            None => self.inner.write_at(bytes, position),
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.state.plain()?;
        self.inner.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.state.plain()?;
        self.inner.truncate(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.state.plain()?;
        self.inner.preallocate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut lost = self.state.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.state.plain() {
            lost.insert(self.path.clone());
            return Err(error);
        }
        if lost.contains(&self.path) { Ok(()) } else { self.inner.sync_data() }
    }
}
