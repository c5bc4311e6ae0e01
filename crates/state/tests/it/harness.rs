//! Every back end on a disk that can be killed and cut off.

use std::path::Path;
use std::sync::Arc;

use thalweg_state::files::Files;
use thalweg_state::indexed::{Indexed, IndexedOptions};
use thalweg_state::memory::{Memory, MemoryDisk};
use thalweg_state::testing::Ground;
pub(crate) use thalweg_state::testing::{State, apply, assert_state, commit, numbered, scanned};
use thalweg_state::{Backend, StateError, Version};
use thalweg_storage::{Fs, MemFs};

pub(crate) const DIR: &str = "/job/tasks/op/0/state";
pub(crate) const IDENTITY: u64 = 0x1234;

/// Small enough for seals, compactions and index files after a few writes, and now and then a list.
pub(crate) fn small(segment_bytes: u64) -> IndexedOptions {
    IndexedOptions { segment_bytes, open_segments: 3, named_segments: 4 }
}

/// [`small`], with a list as soon as a segment is sealed.
pub(crate) fn listed(segment_bytes: u64) -> IndexedOptions {
    IndexedOptions { named_segments: 0, ..small(segment_bytes) }
}

/// The storage of a back end.
#[derive(Debug)]
pub(crate) enum Disk {
    Indexed { fs: MemFs, options: IndexedOptions },
    Files { fs: MemFs },
    Memory { disk: MemoryDisk },
}

impl Disk {
    pub(crate) fn indexed(options: IndexedOptions) -> Self {
        Disk::Indexed { fs: MemFs::new(), options }
    }

    pub(crate) fn open(&self, version: Option<&Version>) -> Result<Box<dyn Backend>, StateError> {
        match self {
            Disk::Indexed { fs, .. } | Disk::Files { fs } => self.open_on(Arc::new(fs.clone()), version),
            Disk::Memory { disk } => Ok(Box::new(Memory::open(disk, version)?)),
        }
    }

    /// Opens on a file system that is in front of the disk's.
    pub(crate) fn open_on(
        &self,
        fs: Arc<dyn Fs>,
        version: Option<&Version>,
    ) -> Result<Box<dyn Backend>, StateError> {
        let dir = Path::new(DIR);
        Ok(match self {
            Disk::Indexed { options, .. } => Box::new(Indexed::open(fs, dir, IDENTITY, *options, version)?),
            Disk::Files { .. } => Box::new(Files::open(fs, dir, IDENTITY, version)?),
            Disk::Memory { .. } => panic!("memory has no file system"),
        })
    }

    pub(crate) fn fs(&self) -> &MemFs {
        match self {
            Disk::Indexed { fs, .. } | Disk::Files { fs } => fs,
            Disk::Memory { .. } => panic!("memory has no file system"),
        }
    }

    /// Power goes; with a seed some unsynced bytes had arrived.
    pub(crate) fn power_cut(&self, torn: Option<u64>) {
        match (self, torn) {
            (Disk::Memory { .. }, _) => {}
            (disk, None) => disk.fs().crash(),
            (disk, Some(seed)) => disk.fs().crash_torn(seed),
        }
    }
}

impl Ground for Disk {
    fn open(&self, version: Option<&Version>) -> Result<Box<dyn Backend>, StateError> {
        Disk::open(self, version)
    }

    fn power_cut(&self, torn: Option<u64>) {
        Disk::power_cut(self, torn);
    }
}
