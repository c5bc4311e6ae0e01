//! The writing end of a store: appends chunks, rolls files, syncs, unlinks. Runs on the pool, one job at a time.
//!
//! Order of things
//! * A file is synced, and its name with it, before its successor is made: only the last one can be torn.
//! * Files are unlinked oldest first, each unlink synced before the next: the remaining files are always without gaps.
//! * Before that the active file is synced: were it lost after its predecessors, numbers would begin at 0 again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::file::{self, HEADER, Place};
use crate::chunk::{self, ChunkInfo};
use crate::schemas::SchemaFile;
use crate::{ChunkError, ChunkId, File, Fs, OpenMode};

/// The file that is appended to.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) file: Arc<dyn File>,
    pub(super) first: ChunkId,
    pub(super) len: u64,
    /// Checksum of the last head.
    pub(super) chain: u32,
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) dir: PathBuf,
    pub(super) file_bytes: u64,
    pub(super) schemas: SchemaFile,
    pub(super) active: Option<Active>,
    /// Bytes of the active file that no sync has covered.
    pub(super) is_dirty: bool,
    /// The active file's name is not synced.
    pub(super) is_name_dirty: bool,
}

impl Writer {
    pub(super) fn append(&mut self, mut info: ChunkInfo, batch: &RecordBatch) -> Result<Place, ChunkError> {
        let id = ChunkId(info.number);
        let columns =
            chunk::encode_columns(batch).map_err(|error| ChunkError::codec(error, &self.dir, 0, id, ""))?;
        if self.active.as_ref().is_some_and(|active| active.len >= self.file_bytes) {
            self.sync()?;
            self.active = None;
        }
        if self.active.is_none() {
            self.create(info.task, id)?;
        }
        let active = self.active.as_mut().expect("a file was made where there was none");
        info.previous = active.chain;
        let (bytes, chain) = columns.finish(&info);
        self.is_dirty = true;
        let path = || file::path(&self.dir, active.first);
        active
            .file
            .write_all_at(&bytes, active.len)
            .map_err(|error| ChunkError::io("write", path())(error))?;
        let head_len =
            chunk::head::head_len(&bytes).map_err(|error| ChunkError::codec(error, &path(), 0, id, ""))?;
        let place =
            Place { file: active.first, pos: active.len, head_len: head_len as u32, len: bytes.len() as u64 };
        active.len += bytes.len() as u64;
        active.chain = chain;
        Ok(place)
    }

    /// Makes the file that begins with chunk `first`.
    pub(super) fn create(&mut self, task: u64, first: ChunkId) -> Result<(), ChunkError> {
        let path = file::path(&self.dir, first);
        let file = self.fs.open(&path, OpenMode::CreateNew).map_err(ChunkError::io("create", &path))?;
        self.is_name_dirty = true;
        self.is_dirty = true;
        let (header, chain) = file::header(task, first);
        file.write_all_at(&header, 0).map_err(ChunkError::io("write", &path))?;
        self.active = Some(Active { file, first, len: HEADER, chain });
        Ok(())
    }

    pub(super) fn add_schema(&mut self, payload: &[u8]) -> Result<(), ChunkError> {
        self.schemas.append(self.fs.as_ref(), payload)
    }

    pub(super) fn sync(&mut self) -> Result<(), ChunkError> {
        if let Some(active) = &self.active
            && self.is_dirty
        {
            let path = file::path(&self.dir, active.first);
            active.file.sync_data().map_err(ChunkError::io("sync", path))?;
            self.is_dirty = false;
        }
        if self.is_name_dirty {
            self.fs.sync_dir(&self.dir).map_err(ChunkError::io("sync", &self.dir))?;
            self.is_name_dirty = false;
        }
        Ok(())
    }

    pub(super) fn unlink(&mut self, files: &[ChunkId]) -> Result<(), ChunkError> {
        self.sync()?;
        unlink(self.fs.as_ref(), &self.dir, files)
    }
}

/// Unlinks files in the given order, so that a crash leaves no gap.
pub(super) fn unlink(fs: &dyn Fs, dir: &Path, files: &[ChunkId]) -> Result<(), ChunkError> {
    for first in files {
        let path = file::path(dir, *first);
        fs.remove(&path).map_err(ChunkError::io("remove", path))?;
        fs.sync_dir(dir).map_err(ChunkError::io("sync", dir))?;
    }
    Ok(())
}
