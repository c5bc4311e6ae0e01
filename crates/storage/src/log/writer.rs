//! The writing end of a log: writes groups, rotates segments, syncs.
//!
//! Order of things
//! * Rotation: cut to the last frame, sync, then make the successor, sync it and its name. So every segment but the
//!   last is whole and synced, and ends with its last frame.
//! * Bytes are visible to readers, and the chain moves on, only when a write has succeeded as a whole. Bytes that a
//!   full disk took of it are after the end, where the next try overwrites it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::group::GroupBuffer;
use super::segment::{self, HEADER, Header};
use super::{Log, LogError, LogPosition, SegmentSummary};
use crate::frame::Chain;
use crate::{File, OpenMode, is_full};

/// Zeros are laid out ahead only of syncs of less than this share of them: larger ones gain less than the zeros cost.
/// No fewer zeros than this share are laid out at once.
const AHEAD_SHARE: u64 = 16;

/// Zeros are laid out for about this number of syncs like the present one: those after it wait until they are on the
/// disk, so a log that is written slowly lays out few at once.
const AHEAD_SYNCS: u64 = 64;

/// The segment that is appended to.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) file: Arc<dyn File>,
    pub(super) path: PathBuf,
    pub(super) header: Header,
    /// The chain after the last frame.
    pub(super) chain: Chain,
    /// After the last frame.
    pub(super) end: u64,
    /// The file may have bytes up to here: `end`, or zeros laid out ahead.
    pub(super) laid: u64,
    /// Everything before is synced.
    pub(super) synced: u64,
    pub(super) ends_with_mark: bool,
}

impl Active {
    pub(super) fn first(&self) -> LogPosition {
        self.header.base
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

impl Log {
    /// Writes the groups of a buffer and empties it; on an error those stay in it that were not written.
    ///
    /// # Errors
    /// [`LogError::Full`], after which the same buffer can be written again; else the log is poisoned.
    pub(super) fn write(&mut self, buffer: &mut GroupBuffer) -> Result<(), LogError> {
        self.check()?;
        let mut done = 0;
        while done < buffer.groups() {
            let outcome = match self.write_run(buffer, done) {
                Ok(Some(count)) => {
                    done += count;
                    self.write_back()
                }
                Ok(None) => self.rotate(),
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                buffer.drop_front(done);
                return Err(error);
            }
        }
        buffer.clear(self.options.buffer_bytes);
        Ok(())
    }

    /// Writes the groups from `from` on that go into the active segment, at once, and says how many; `None` where
    /// the first of them does not go in.
    fn write_run(&mut self, buffer: &mut GroupBuffer, from: usize) -> Result<Option<usize>, LogError> {
        let active = &mut self.active;
        let (mut chain, mut next, mut end, mut to) = (active.chain, self.written, active.end, from);
        while to < buffer.groups() {
            let len = buffer.frame_len(to);
            // A segment that holds no record yet takes whatever comes first.
            if end + len > self.options.segment_bytes && next > active.header.base {
                break;
            }
            next = buffer.seal(to, &mut chain, next, active.synced);
            end += len;
            to += 1;
        }
        if to == from {
            return Ok(None);
        }
        if let Err(error) = active.file.write_all_at(buffer.frames(from..to), active.end) {
            active.laid = active.laid.max(end);
            let wanted = end - active.end;
            return Err(self.failed_write("write", error, wanted));
        }
        active.ends_with_mark = next == self.written;
        active.chain = chain;
        active.end = end;
        active.laid = active.laid.max(end);
        self.written = next;
        Ok(Some(to - from))
    }

    /// Leaves a mark after the synced bytes, unless there is one, and no zeros after that.
    pub(super) fn mark(&mut self) -> Result<(), LogError> {
        if self.active.ends_with_mark || self.active.end == HEADER {
            return Ok(());
        }
        let mut buffer = GroupBuffer::default();
        buffer.push_mark();
        match self.write_run(&mut buffer, 0) {
            // Without a mark the log is as good as after a crash: it would not be worth a segment or an error.
            Ok(_) | Err(LogError::Full { .. }) => {}
            Err(error) => return Err(error),
        }
        self.trim()?;
        self.sync_file()
    }

    /// Syncs the written bytes.
    ///
    /// # Errors
    /// Poisons the log.
    pub(super) fn sync_written(&mut self) -> Result<(), LogError> {
        self.check()?;
        if self.active.synced == self.active.end {
            self.synced = self.written;
            return Ok(());
        }
        self.lay_ahead()?;
        self.sync_file()
    }

    fn sync_file(&mut self) -> Result<(), LogError> {
        self.settle()?;
        if let Err(error) = self.active.file.sync_data() {
            return Err(self.failed_sync(error));
        }
        self.active.synced = self.active.end;
        self.synced = self.written;
        Ok(())
    }

    /// Has the disk take what many writes have gathered, in the background.
    fn write_back(&mut self) -> Result<(), LogError> {
        let outcome = self.writeback.poll();
        self.note_synced(outcome)?;
        let wanted = self.options.writeback_bytes;
        if wanted > 0 && self.active.end - self.active.synced >= wanted {
            self.writeback.begin(&self.active.file, self.active.end);
        }
        Ok(())
    }

    /// Waits for a sync that is under way in the background: what it says is said once.
    pub(super) fn settle(&mut self) -> Result<(), LogError> {
        let outcome = self.writeback.wait();
        self.note_synced(outcome)
    }

    fn note_synced(&mut self, outcome: io::Result<Option<u64>>) -> Result<(), LogError> {
        match outcome {
            Ok(Some(end)) => self.active.synced = end,
            Ok(None) => {}
            Err(error) => return Err(self.failed_sync(error)),
        }
        Ok(())
    }

    fn failed_sync(&mut self, error: io::Error) -> LogError {
        let error = LogError::io("sync", &self.active.path)(error);
        self.poison(error)
    }

    /// Cuts zeros that were laid out ahead.
    fn trim(&mut self) -> Result<(), LogError> {
        if self.active.laid > self.active.end {
            if let Err(error) = self.active.file.truncate(self.active.end) {
                let error = LogError::io("cut", &self.active.path)(error);
                return Err(self.poison(error));
            }
            self.active.laid = self.active.end;
        }
        Ok(())
    }

    /// Extends the file with zeros where many small syncs seem to follow each other: bytes that are there already
    /// cost a sync half of what new ones do. Large writes would gain nothing and pay for the zeros.
    fn lay_ahead(&mut self) -> Result<(), LogError> {
        let most = self.options.ahead_bytes;
        let active = &mut self.active;
        let bytes = active.end - active.synced;
        if active.end < active.laid || bytes > most / AHEAD_SHARE {
            return Ok(());
        }
        let ahead = (bytes * AHEAD_SYNCS).clamp(most / AHEAD_SHARE, most);
        let until = (active.end + ahead).min(self.options.segment_bytes);
        if until <= active.end {
            return Ok(());
        }
        active.laid = until;
        match active.file.preallocate(until) {
            // The written bytes fit, and no more was asked for.
            Err(error) if is_full(&error) => Ok(()),
            outcome => {
                let outcome = outcome.map_err(LogError::io("extend", &active.path));
                outcome.map_err(|error| self.poison(error))
            }
        }
    }

    /// Seals the active segment and begins the next.
    fn rotate(&mut self) -> Result<(), LogError> {
        self.trim()?;
        // Also where all bytes are synced: the length may have changed.
        self.sync_file()?;
        let header = Header {
            identity: self.options.identity,
            base: self.written,
            link: self.active.chain.previous(),
            created: (self.options.clock.0)(),
        };
        let next = self.create(header)?;
        let sealed = std::mem::replace(&mut self.active, next);
        self.sealed.push(summary(&sealed, self.written));
        Ok(())
    }

    /// Makes a segment, durable with its name.
    ///
    /// # Errors
    /// [`LogError::Full`] leaves the log as it was; else it is poisoned.
    pub(super) fn create(&mut self, header: Header) -> Result<Active, LogError> {
        let path = segment::path(&self.dir, &self.options.name, header.base);
        match create(self.fs.as_ref(), &self.dir, path.clone(), header) {
            Ok(active) => Ok(active),
            Err((action, error)) => {
                if is_full(&error) {
                    // Its bytes are free again; opening would do the same.
                    let _ = self.fs.remove(&path);
                    return Err(LogError::Full { path, wanted: HEADER });
                }
                Err(self.poison(LogError::io(action, &path)(error)))
            }
        }
    }

    fn failed_write(&mut self, action: &'static str, error: io::Error, wanted: u64) -> LogError {
        let path = self.active.path.clone();
        if is_full(&error) {
            // Gives back what the disk took. Where that fails, too, the bytes are after the end and count for
            // nothing.
            if self.active.file.truncate(self.active.end).is_ok() {
                self.active.laid = self.active.end;
            }
            return LogError::Full { path, wanted };
        }
        self.poison(LogError::io(action, &path)(error))
    }

    /// The active segment as readers may see it.
    pub(super) fn active_summary(&self) -> SegmentSummary {
        summary(&self.active, self.written)
    }
}

fn summary(active: &Active, next: LogPosition) -> SegmentSummary {
    SegmentSummary {
        path: active.path.clone(),
        first: active.header.base,
        next,
        bytes: active.end,
        file_bytes: active.laid,
        created: active.header.created,
    }
}

/// Makes a segment, durable with its name. A file of that name is one that a failure or crash left half made: it
/// holds no record, or opening would have found it.
pub(super) fn create(
    fs: &dyn crate::Fs,
    dir: &std::path::Path,
    path: PathBuf,
    header: Header,
) -> Result<Active, (&'static str, io::Error)> {
    let file = fs.open(&path, OpenMode::Create).map_err(|error| ("create", error))?;
    file.write_all_at(&header.encode(), 0).map_err(|error| ("write", error))?;
    file.sync_data().map_err(|error| ("sync", error))?;
    fs.sync_dir(dir).map_err(|error| ("sync the folder of", error))?;
    Ok(Active {
        file,
        path,
        header,
        chain: header.chain(),
        end: HEADER,
        laid: HEADER,
        synced: HEADER,
        ends_with_mark: false,
    })
}
