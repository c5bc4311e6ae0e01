//! Opening a log after a stop or a crash: what [`super::survey`] found is repaired, or refused.
//!
//! Each repair is synced before the next, so that a crash in between leaves a folder that opens the same way.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::group::GroupBuffer;
use super::segment::{self, Header};
use super::survey::Survey;
use super::writer::{self, Active};
use super::{Log, LogError, LogOptions, LogPosition, LogSummary, TornTail};
use crate::fs::write_again;
use crate::{Fs, OpenMode, Writeback, make_dir};

/// A log that was opened.
#[derive(Debug)]
pub struct Opened {
    pub log: Log,
    /// What a crash had left of the last write, and opening has cut: to be reported once, as a warning.
    pub torn: Option<TornTail>,
}

/// A log that was looked over for writing, and is still as it was found.
#[derive(Debug)]
#[must_use]
pub struct Surveyed {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    options: LogOptions,
    survey: Survey,
}

impl Log {
    /// Opens the log in `dir`, or makes it. Every segment is read from end to end.
    ///
    /// # Errors
    /// As for [`Log::survey`] and [`Surveyed::open`].
    pub fn open(fs: Arc<dyn Fs>, dir: impl Into<PathBuf>, options: LogOptions) -> Result<Opened, LogError> {
        Self::survey(fs, dir, options)?.open()
    }

    /// Looks over the log in `dir`, for which a folder is made: every segment is read from end to end, and left as it is.
    ///
    /// # Errors
    /// [`LogError::Damaged`] where bytes are not as they were written, a segment is missing or foreign, or records
    /// are missing that `promised` or `kept` says a commit names; [`LogError::NewerFormat`]; the disk's errors.
    pub fn survey(
        fs: Arc<dyn Fs>,
        dir: impl Into<PathBuf>,
        options: LogOptions,
    ) -> Result<Surveyed, LogError> {
        let dir = dir.into();
        if !segment::is_name(&options.name) {
            return Err(LogError::Name { name: options.name });
        }
        make_dir(fs.as_ref(), &dir).map_err(LogError::io("create", &dir))?;
        let survey = look(fs.as_ref(), &dir, &options)?;
        if survey.summary.torn.is_some() {
            // Cutting is for good, so it must not be for a bit that flipped on the way.
            let again = look(fs.as_ref(), &dir, &options)?;
            if (&again.summary.segments, &again.summary.torn, &again.begun)
                != (&survey.summary.segments, &survey.summary.torn, &survey.begun)
            {
                return Err(LogError::Damaged {
                    path: dir,
                    pos: 0,
                    what: "two readings of the log",
                    expected: format!("{:?}", survey.summary.torn),
                    got: format!("{:?}", again.summary.torn),
                });
            }
        }
        if survey.summary.next() < options.promised {
            let end = survey.summary.segments.last();
            return Err(LogError::Damaged {
                path: end.map_or(dir, |segment| segment.path.clone()),
                pos: end.map_or(0, |segment| segment.bytes),
                what: "records that a commit names",
                expected: format!("all before {}", options.promised),
                got: format!("all before {}", survey.summary.next()),
            });
        }
        if let (Some(kept), Some(first)) = (options.kept, survey.summary.segments.first())
            && first.first > kept
        {
            return Err(LogError::Damaged {
                path: first.path.clone(),
                pos: 0,
                what: "records with which a commit goes on",
                expected: format!("all from {kept} on"),
                got: format!("all from {} on: the segments before it are missing", first.first),
            });
        }
        Ok(Surveyed { fs, dir, options, survey })
    }
}

impl Surveyed {
    /// What was found, and what opening will cut.
    pub fn summary(&self) -> &LogSummary {
        &self.survey.summary
    }

    /// Takes the log for writing: cuts what a crash has left of the last write.
    ///
    /// # Errors
    /// The disk's errors.
    pub fn open(self) -> Result<Opened, LogError> {
        let Self { fs, dir, options, mut survey } = self;
        remove_leftovers(fs.as_ref(), &dir, &options.name)?;
        if let Some(begun) = survey.begun.take() {
            fs.remove(&begun).map_err(LogError::io("remove", &begun))?;
            fs.sync_dir(&dir).map_err(LogError::io("sync", &dir))?;
        }
        let torn = survey.summary.torn.take();
        let written = survey.summary.next();
        let active = match reopen(fs.as_ref(), &mut survey)? {
            Some(active) => {
                // The name may be one that a killed process did not sync.
                fs.sync_dir(&dir).map_err(LogError::io("sync", &dir))?;
                active
            }
            None => {
                let (base, created) = (LogPosition(0), (options.clock.0)());
                let header = Header { identity: options.identity, base, link: 0, created };
                let path = segment::path(&dir, &options.name, base);
                writer::create(fs.as_ref(), &dir, path.clone(), header)
                    .map_err(|(action, error)| LogError::io(action, &path)(error))?
            }
        };
        let log = Log {
            fs,
            dir,
            options,
            sealed: survey.summary.segments,
            leaving: VecDeque::new(),
            active,
            buffer: GroupBuffer::default(),
            written,
            synced: written,
            writeback: Writeback::default(),
            failed: None,
        };
        Ok(Opened { log, torn })
    }
}

/// # Errors
/// Damage, too.
fn look(fs: &dyn Fs, dir: &Path, options: &LogOptions) -> Result<Survey, LogError> {
    let mut survey = Survey::of(fs, dir, &options.name, Some(options.identity))?;
    survey.summary.damage.take().map_or(Ok(survey), Err)
}

/// Takes the last segment for writing: cut after its last frame, and synced, as a killed process may have written
/// what it did not sync.
fn reopen(fs: &dyn Fs, survey: &mut Survey) -> Result<Option<Active>, LogError> {
    let Some((summary, last)) = survey.summary.segments.pop().zip(survey.last.take()) else {
        return Ok(None);
    };
    let path = summary.path;
    let file = fs.open(&path, OpenMode::Write).map_err(LogError::io("open", &path))?;
    if summary.file_bytes > summary.bytes {
        file.truncate(summary.bytes).map_err(LogError::io("cut", &path))?;
    }
    let unsynced = last.synced.min(summary.bytes)..summary.bytes;
    write_again(file.as_ref(), unsynced).map_err(LogError::io("write again", &path))?;
    file.sync_data().map_err(LogError::io("sync", &path))?;
    Ok(Some(Active {
        file,
        header: last.header,
        chain: last.chain,
        end: summary.bytes,
        laid: summary.bytes,
        synced: summary.bytes,
        ends_with_mark: last.ends_with_mark,
        path,
    }))
}

/// Removes what an interrupted [`Log::truncate_behind`] left.
fn remove_leftovers(fs: &dyn Fs, dir: &Path, name: &str) -> Result<(), LogError> {
    for file_name in fs.list(dir).map_err(LogError::io("list", dir))? {
        let base = file_name.strip_suffix(".tmp").and_then(segment::split_name);
        if base.is_some_and(|(found, _)| found == name) {
            let path = dir.join(file_name);
            fs.remove(&path).map_err(LogError::io("remove", &path))?;
        }
    }
    Ok(())
}
