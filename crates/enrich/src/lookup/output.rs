//! A file that is written from front to back and is removed unless it is published.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_storage::{File, Fs, OpenMode};

use super::error::LookupError;
use super::layout::PAGE;

const BUFFER: usize = 1 << 20;

/// A temporary file. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Output {
    fs: Arc<dyn Fs>,
    file: Arc<dyn File>,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Bytes that are in the file already.
    written: u64,
    published: bool,
}

impl Output {
    pub(crate) fn create(fs: &Arc<dyn Fs>, path: PathBuf) -> Result<Self, LookupError> {
        let file = fs.open(&path, OpenMode::Create).map_err(LookupError::io("create", &path))?;
        Ok(Self { fs: Arc::clone(fs), file, path, buffer: Vec::new(), written: 0, published: false })
    }

    /// Where the next byte goes.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), LookupError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Zeros up to the next page.
    pub(crate) fn pad_to_page(&mut self) -> Result<(), LookupError> {
        let zeros = self.position().next_multiple_of(PAGE) - self.position();
        self.write(&vec![0; zeros as usize])
    }

    pub(crate) fn flush(&mut self) -> Result<(), LookupError> {
        let written = self.file.write_all_at(&self.buffer, self.written);
        written.map_err(LookupError::io("write", &self.path))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the buffered bytes and frees the buffer: there may be hundreds of files that are only read from then
    /// on.
    pub(crate) fn end(&mut self) -> Result<(), LookupError> {
        self.flush()?;
        self.buffer = Vec::new();
        Ok(())
    }

    /// Fills `buffer` from the flushed bytes.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> Result<(), LookupError> {
        self.file.read_exact_at(buffer, position).map_err(LookupError::io("read", &self.path))
    }

    /// Appends all of another file, and removes that.
    pub(crate) fn append(&mut self, mut other: Output) -> Result<(), LookupError> {
        other.flush()?;
        let mut position = 0;
        let mut piece = vec![0; BUFFER];
        while position < other.written {
            let length = (other.written - position).min(BUFFER as u64);
            let piece = &mut piece[..length as usize];
            other.read_exact_at(piece, position)?;
            self.write(piece)?;
            position += length;
        }
        Ok(())
    }

    /// Writes `head` over the first bytes, syncs, and renames the file to `path`, over one that is there.
    pub(crate) fn publish(mut self, head: &[u8], path: &Path) -> Result<(), LookupError> {
        self.flush()?;
        self.file.write_all_at(head, 0).map_err(LookupError::io("write", &self.path))?;
        self.file.sync_data().map_err(LookupError::io("sync", &self.path))?;
        self.fs.rename(&self.path, path).map_err(LookupError::io("rename", &self.path))?;
        self.published = true;
        let folder = path.parent().unwrap_or(Path::new("."));
        self.fs.sync_dir(folder).map_err(LookupError::io("sync", folder))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.published
            && let Err(error) = self.fs.remove(&self.path)
        {
            tracing::warn!(path = ?self.path, %error, "left a temporary file");
        }
    }
}
