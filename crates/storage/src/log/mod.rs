//! An append-only log of records in segments: the base of the journal and the order log.
//!
//! A folder holds one log: files `NAME-<first record>.thl` ([`mod@segment`]) of frames, each a group of records
//! ([`group`]); the format is described in `docs/formats/log.md`. One writer owns a [`Log`]; [`GroupCommit`] is the
//! thread that owns logs for many writers at once and makes them durable together. [`Reader`]s read records that were
//! written before they were made, while writing goes on.
//!
//! Life of a record: *buffered* (has its number) -> *written* (in the kernel, readable) -> *synced* (survives a power
//! cut) -> deleted with its whole segment.
//!
//! Invariants
//! * Records are numbered from 0 without gaps; a number is used again only if [`Log::truncate_behind`] cut it.
//! * `synced <= written <= next`.
//! * After a crash the log is a prefix of the appended records, with all that were synced.
//! * A segment is synced before its successor is made: only the last one can be torn.
//! * After a failed sync nothing is written any more; the log is to be opened again.
//!
//! Not here: what records mean, commits, how long records are kept, and the lock that keeps a second process out.

mod error;
mod group;
mod group_commit;
mod open;
mod reader;
mod retain;
mod scan;
mod segment;
mod survey;
mod window;
mod writer;

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use thalweg_types::Micros;

use crate::{Fs, Writeback};
use group::GroupBuffer;
use writer::Active;

pub use error::LogError;
pub use group_commit::{Durability, GroupCommit, LogHandle, Progress, Registration, Ticket};
pub use open::{Opened, Surveyed};
pub use reader::Reader;
pub use retain::RetentionPolicy;
pub use survey::{LogSummary, SegmentSummary, TornTail, inspect, name_in, verify};

/// Bytes of the longest record: a reader holds one in memory. Twice the 16 MiB that a source lets through by default, as
/// the beginning of its stream comes with each block, and 1 MiB for a journal's data about a block.
pub const MAX_RECORD: usize = 33 << 20;

/// Number of a record in its log: dense, from 0. As a bound it means "every record before it".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(pub u64);

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}", self.0)
    }
}

/// Where a log gets the wall clock from: once per segment.
#[derive(Clone)]
pub struct LogClock(pub Arc<dyn Fn() -> Micros + Send + Sync>);

impl LogClock {
    /// The operating system's.
    pub fn system() -> Self {
        Self(Arc::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX)
        }))
    }
}

impl fmt::Debug for LogClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogClock")
    }
}

/// How a log is opened.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// First part of the file names: a to z, 0 to 9, `-` and `_`.
    pub name: String,
    /// Identity of the log (job, source, kind), written into every segment: another log's file is refused.
    pub identity: u64,
    /// A segment takes no further group that would make it longer than this.
    pub segment_bytes: u64,
    /// Bytes that are gathered before they are written. When as many wait, `append` writes them itself.
    pub buffer_bytes: usize,
    /// At most this number of bytes of zeros are laid out at once ahead of syncs of little data, so that later syncs
    /// change no length and no extent; 0 for none. See `docs/decisions/2026-11-20-journal-writes.md`.
    pub ahead_bytes: u64,
    /// After this number of unsynced bytes the disk is asked to write them in the background, so that the sync
    /// at the end of a segment finds little left; 0 for never.
    pub writeback_bytes: u64,
    /// What a commit names: every record before it must be there, or have been there.
    pub promised: LogPosition,
    /// Where a commit goes on: retention has kept the records from there on.
    pub kept: Option<LogPosition>,
    pub clock: LogClock,
}

impl LogOptions {
    pub fn new(name: impl Into<String>, identity: u64) -> Self {
        Self {
            name: name.into(),
            identity,
            segment_bytes: 64 << 20,
            buffer_bytes: 1 << 20,
            ahead_bytes: 4 << 20,
            writeback_bytes: 8 << 20,
            promised: LogPosition(0),
            kept: None,
            clock: LogClock::system(),
        }
    }

    /// For a log with which a commit goes on at `place`.
    #[must_use]
    pub fn going_on_at(self, place: LogPosition) -> Self {
        Self { promised: place, kept: Some(place), ..self }
    }
}

/// A log and its only writer; see the module's header.
///
/// Dropping it drops buffered records and syncs nothing: end with [`Log::close`].
#[derive(Debug)]
#[must_use]
pub struct Log {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    options: LogOptions,
    /// Segments before the active one, oldest first.
    sealed: Vec<SegmentSummary>,
    /// Files of segments that are no part of the log any more, oldest first; none of them goes before an older one.
    leaving: VecDeque<PathBuf>,
    active: Active,
    buffer: GroupBuffer,
    written: LogPosition,
    synced: LogPosition,
    /// The sync of the active segment that is under way in the background.
    writeback: Writeback,
    /// What made the log unusable.
    failed: Option<String>,
}

impl Log {
    /// Appends one record, whose bytes are `parts` one after the other, and gives it its number.
    ///
    /// It is buffered. Where the buffer is full, that is written first.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], or why the buffer could not be written; the record then has no number.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<LogPosition, LogError> {
        self.check()?;
        let len = record_len(parts)?;
        if self.buffer.len() > 0 && self.buffer.len() + GroupBuffer::cost(len) > self.options.buffer_bytes {
            self.flush()?;
        }
        let position = self.next();
        self.buffer.push(parts);
        Ok(position)
    }

    /// Writes the buffer; returns the position before which everything is written.
    ///
    /// # Errors
    /// [`LogError::Full`] keeps what could not be written, and flushing again goes on with it. After any other error
    /// the log is to be opened again.
    pub fn flush(&mut self) -> Result<LogPosition, LogError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = self.write(&mut buffer);
        self.buffer = buffer;
        outcome.map(|()| self.written)
    }

    /// Writes and syncs; returns the position before which everything survives a power cut.
    ///
    /// # Errors
    /// As for [`Log::flush`]. After a failed sync the log is to be opened again: repeating it would prove nothing.
    pub fn sync(&mut self) -> Result<LogPosition, LogError> {
        self.flush()?;
        self.sync_written()?;
        Ok(self.synced)
    }

    /// Writes and syncs all, and leaves a mark which says so: later damage is distinguished from a torn tail
    /// everywhere.
    ///
    /// # Errors
    /// As for [`Log::sync`].
    pub fn close(mut self) -> Result<(), LogError> {
        self.sync()?;
        self.mark()
    }

    /// Number of the oldest record that is kept.
    pub fn first(&self) -> LogPosition {
        self.sealed.first().map_or(self.active.first(), |segment| segment.first)
    }

    /// Number that the next record gets.
    pub fn next(&self) -> LogPosition {
        LogPosition(self.written.0 + self.buffer.records())
    }

    /// Every record before it is written and can be read.
    pub fn written(&self) -> LogPosition {
        self.written
    }

    /// Every record before it survives a power cut.
    pub fn synced(&self) -> LogPosition {
        self.synced
    }

    /// Bytes of all segments up to the end of the written bytes.
    pub fn bytes(&self) -> u64 {
        self.sealed.iter().map(|segment| segment.bytes).sum::<u64>() + self.active.end()
    }

    /// Where it ends: the file that is appended to, and the byte after its last frame.
    pub fn end(&self) -> (PathBuf, u64) {
        (self.active.path.clone(), self.active.end())
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads from `position` up to the end of the written records.
    ///
    /// # Errors
    /// [`LogError::Missing`] where `position` is older than the oldest record or newer than the newest.
    pub fn read_from(&self, position: LogPosition) -> Result<Reader, LogError> {
        self.read_range(position..self.written)
    }

    /// Reads the records of `range`, all of which must be written.
    ///
    /// # Errors
    /// [`LogError::Missing`].
    pub fn read_range(&self, range: std::ops::Range<LogPosition>) -> Result<Reader, LogError> {
        for wanted in [range.start, range.end] {
            if wanted < self.first() || wanted > self.written {
                return Err(self.missing(wanted));
            }
        }
        let segments = self.sealed.iter().cloned().chain([self.active_summary()]).collect();
        Ok(Reader::new(Arc::clone(&self.fs), &self.dir, self.options.identity, segments, range))
    }

    fn missing(&self, wanted: LogPosition) -> LogError {
        LogError::Missing { dir: self.dir.clone(), wanted, first: self.first(), next: self.next() }
    }

    /// # Errors
    /// [`LogError::Poisoned`].
    fn check(&self) -> Result<(), LogError> {
        match &self.failed {
            Some(reason) => Err(LogError::Poisoned { dir: self.dir.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Remembers that the log is unusable.
    fn poison(&mut self, error: LogError) -> LogError {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        self.failed.get_or_insert_with(|| format!("{error}{}", cause.unwrap_or_default()));
        error
    }
}

/// Bytes of a record.
///
/// # Errors
/// [`LogError::TooLarge`].
fn record_len(parts: &[&[u8]]) -> Result<usize, LogError> {
    let bytes = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
    if bytes > MAX_RECORD { Err(LogError::TooLarge { bytes }) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
