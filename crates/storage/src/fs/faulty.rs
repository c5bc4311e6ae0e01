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

use fastrand::Rng;

use super::{File, Fs, Layer, Layered};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Input/output error.
    Eio,
    /// No space left on device; a write leaves its first half.
    Enospc,
    /// As `Enospc`, of a share of the disk.
    Edquot,
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

/// A file system that fails as set; clones share the count.
pub type FaultyFs = Layered<Faults>;

/// What [`FaultyFs`] lays over a file system.
#[derive(Debug)]
pub struct Faults {
    inner: Arc<dyn Fs>,
    fault: Option<Fault>,
    /// Relaxed everywhere: a count, not a hand-over.
    calls: AtomicU64,
    hits: AtomicU64,
    /// Files whose sync failed once.
    lost: Mutex<BTreeSet<PathBuf>>,
}

impl FaultyFs {
    /// Counts calls and, where there is a fault, lets it happen.
    pub fn new(inner: Arc<dyn Fs>, fault: Option<Fault>) -> Self {
        let (calls, hits) = (AtomicU64::new(0), AtomicU64::new(0));
        Self::over(Faults { inner, fault, calls, hits, lost: Mutex::default() })
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.layer().calls.load(Ordering::Relaxed)
    }

    /// Faults that happened: a sweep in which this stays 0 has shown nothing.
    pub fn hits(&self) -> u64 {
        self.layer().hits.load(Ordering::Relaxed)
    }
}

impl Faults {
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
}

impl FaultKind {
    fn error(self) -> io::Error {
        match self {
            FaultKind::Enospc => io::ErrorKind::StorageFull.into(),
            FaultKind::Edquot => io::ErrorKind::QuotaExceeded.into(),
            _ => io::Error::from_raw_os_error(5),
        }
    }
}

impl Layer for Faults {
    fn inner(&self) -> &dyn Fs {
        &*self.inner
    }

    /// These calls either work or do not.
    fn before(&self) -> io::Result<()> {
        match self.strike(|kind| matches!(kind, FaultKind::Eio | FaultKind::Enospc | FaultKind::Edquot)) {
            Some(kind) => Err(kind.error()),
            None => Ok(()),
        }
    }

    fn read_at(&self, _path: &Path, file: &dyn File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        match self.strike(|kind| kind != FaultKind::ShortWrite) {
            Some(FaultKind::BitFlip) => {
                let count = file.read_at(buffer, position)?;
                if count > 0 {
                    let bit = Rng::with_seed(position ^ self.calls.load(Ordering::Relaxed)).u64(..);
                    let place = usize::try_from(bit >> 3).unwrap_or(0) % count;
                    buffer[place] ^= 1 << (bit & 7);
                }
                Ok(count)
            }
            Some(kind) => Err(kind.error()),
            None => file.read_at(buffer, position),
        }
    }

    fn write_at(&self, _path: &Path, file: &dyn File, bytes: &[u8], position: u64) -> io::Result<usize> {
        match self.strike(|kind| kind != FaultKind::BitFlip) {
            Some(FaultKind::ShortWrite) => file.write_at(&bytes[..bytes.len().div_ceil(2)], position),
            Some(kind @ (FaultKind::Enospc | FaultKind::Edquot)) => {
                file.write_all_at(&bytes[..bytes.len() / 2], position)?;
                Err(kind.error())
            }
            Some(kind) => Err(kind.error()),
            None => file.write_at(bytes, position),
        }
    }

    fn sync_data(&self, path: &Path, file: &dyn File) -> io::Result<()> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.before() {
            lost.insert(path.to_owned());
            return Err(error);
        }
        if lost.contains(path) { Ok(()) } else { file.sync_data() }
    }
}
