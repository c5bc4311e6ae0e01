//! A bounded window over a file that is read from front to back: no segment is ever in memory as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogError;
use crate::File;

/// Bytes that are read at once: a quarter of the size that the disk needs for its best rate comes at nearly that rate,
/// and many readers may be open.
const READ_BYTES: usize = 256 << 10;

/// Part of a file in memory: [`READ_BYTES`], or as much as is asked for at once.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn File>,
    path: PathBuf,
    /// Nothing is read from here on.
    limit: u64,
    /// Place of the first byte of `buffer`.
    start: u64,
    buffer: Vec<u8>,
}

impl Window {
    pub(super) fn new(file: Arc<dyn File>, path: &Path, limit: u64) -> Self {
        Self { file, path: path.to_owned(), limit, start: 0, buffer: Vec::new() }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// The `len` bytes at `pos`; `None` where the limit comes first.
    ///
    /// # Errors
    /// The disk's errors.
    pub(super) fn view(&mut self, pos: u64, len: usize) -> Result<Option<&[u8]>, LogError> {
        let rest = self.limit.saturating_sub(pos);
        if len as u64 > rest {
            return Ok(None);
        }
        if self.loaded(pos, len).is_none() {
            self.load(pos, len.max(usize::try_from(rest).unwrap_or(usize::MAX).min(READ_BYTES)))?;
        }
        Ok(self.loaded(pos, len))
    }

    /// The `len` bytes at `pos`, if they are in memory.
    pub(super) fn loaded(&self, pos: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(pos.checked_sub(self.start)?).ok()?;
        self.buffer.get(at..at.checked_add(len)?)
    }

    /// Moves the window to `pos`; bytes that are there already stay.
    fn load(&mut self, pos: u64, len: usize) -> Result<(), LogError> {
        let behind = pos.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let kept = match behind {
            Some(at) if at < self.buffer.len() => {
                self.buffer.drain(..at);
                self.buffer.len()
            }
            _ => 0,
        };
        self.start = pos;
        self.buffer.resize(len.max(kept), 0);
        let outcome = self.file.read_exact_at(&mut self.buffer[kept..], pos + kept as u64);
        outcome.map_err(|error| {
            self.buffer.clear();
            LogError::io("read", &self.path)(error)
        })
    }
}
