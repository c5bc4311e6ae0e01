//! Every back end on a disk that can be killed and cut off.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use thalweg_state::files::Files;
use thalweg_state::indexed::{Indexed, IndexedOptions};
use thalweg_state::memory::{Memory, MemoryDisk};
use thalweg_state::{Backend, Changes, StateError, Version};
use thalweg_storage::{Fs, MemFs};

pub(crate) const DIR: &str = "/job/tasks/op/0/state";
pub(crate) const IDENTITY: u64 = 0x1234;

/// Small enough for seals, compactions and index files after a few writes.
pub(crate) fn small(segment_bytes: u64) -> IndexedOptions {
    IndexedOptions { segment_bytes, open_segments: 3 }
}

/// What a back end stands on.
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

    /// Opens on a file system that stands before the disk's.
    pub(crate) fn open_on(
        &self,
        fs: Arc<dyn Fs>,
        version: Option<&Version>,
    ) -> Result<Box<dyn Backend>, StateError> {
        let dir = Path::new(DIR);
        Ok(match self {
            Disk::Indexed { options, .. } => Box::new(Indexed::open(fs, dir, IDENTITY, *options, version)?),
            Disk::Files { .. } => Box::new(Files::open(fs, dir, IDENTITY, version)?),
            Disk::Memory { .. } => panic!("memory stands on no file system"),
        })
    }

    pub(crate) fn fs(&self) -> &MemFs {
        match self {
            Disk::Indexed { fs, .. } | Disk::Files { fs } => fs,
            Disk::Memory { .. } => panic!("memory stands on no file system"),
        }
    }

    /// Power goes; with a seed some of what was not synced had arrived.
    pub(crate) fn power_cut(&self, torn: Option<u64>) {
        match (self, torn) {
            (Disk::Memory { .. }, _) => {}
            (disk, None) => disk.fs().crash(),
            (disk, Some(seed)) => disk.fs().crash_torn(seed),
        }
    }
}

pub(crate) type State = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn apply(state: &mut State, changes: &Changes) {
    for change in changes {
        match change.value {
            Some(value) => drop(state.insert(change.key.to_vec(), value.to_vec())),
            None => drop(state.remove(change.key)),
        }
    }
}

/// Everything that a scan hands over; each key once.
pub(crate) fn scanned(backend: &dyn Backend) -> Result<State, StateError> {
    let mut state = State::new();
    backend.scan(&mut |key, value| {
        assert!(state.insert(key.to_vec(), value.to_vec()).is_none(), "key {key:02x?} came twice");
        ControlFlow::Continue(())
    })?;
    Ok(state)
}

/// A key that back ends may find by its number.
pub(crate) fn numbered(space: u32, number: u32) -> Vec<u8> {
    [&[1][..], &space.to_be_bytes(), &number.to_be_bytes()].concat()
}

/// Holds a back end against what it should hold, by scan and by key.
pub(crate) fn assert_state(backend: &dyn Backend, expected: &State, keys: &[Vec<u8>]) {
    assert_eq!(&scanned(backend).unwrap(), expected);
    for key in keys {
        assert_eq!(backend.get(key).unwrap().as_ref(), expected.get(key), "key {key:02x?}");
    }
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let got = backend.get_many(&asked).unwrap();
    assert!(got.iter().zip(keys).all(|(got, key)| got.as_ref() == expected.get(key)));
    assert_eq!(backend.stats().keys, expected.len() as u64);
}

/// Writes, prepares and commits one cycle.
pub(crate) fn commit(backend: &dyn Backend, cycle: u64, changes: &Changes) -> Version {
    backend.write(cycle, changes).unwrap();
    let version = backend.prepare(cycle).unwrap();
    backend.committed(cycle).unwrap();
    version
}
