//! Reading records in order, with one group in memory at a time, while the writer goes on.
//!
//! A reader knows the segments as they were when it was made, and opens one at a time. Everything it gives out has
//! been checked on the way: checksums, chains within and between segments, numbers.
//!
//! It goes over its first segment from the start: there is no index, and a segment takes a fraction of a second.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::scan::{Step, Walk};
use super::segment::Header;
use super::survey::check_header;
use super::window::Window;
use super::{LogError, LogPosition, SegmentSummary, group};
use crate::{Fs, OpenMode};

/// Streams the records of a range.
#[derive(Debug)]
pub struct Reader {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    identity: u64,
    /// Segments that have not been opened yet.
    segments: VecDeque<SegmentSummary>,
    walk: Option<(Walk, PathBuf)>,
    /// Place of the next record in the payload at hand.
    at: usize,
    /// Number of the record at `at`.
    here: LogPosition,
    /// Number after the payload's last record.
    group_end: LogPosition,
    next: LogPosition,
    end: LogPosition,
}

impl Reader {
    pub(super) fn new(
        fs: Arc<dyn Fs>,
        dir: &Path,
        identity: u64,
        mut segments: VecDeque<SegmentSummary>,
        range: std::ops::Range<LogPosition>,
    ) -> Self {
        // An active segment without records has no end beyond its start: it is the one for the next record.
        segments.retain(|segment| segment.next > range.start && segment.first < range.end);
        Self {
            fs,
            dir: dir.to_owned(),
            identity,
            segments,
            walk: None,
            at: 0,
            here: LogPosition(0),
            group_end: LogPosition(0),
            next: range.start,
            end: range.end,
        }
    }

    /// Number of the record that comes next.
    pub fn position(&self) -> LogPosition {
        self.next
    }

    /// Number after the last record that it gives out.
    pub fn end(&self) -> LogPosition {
        self.end
    }

    /// The next record and its number; `None` at the end.
    ///
    /// # Errors
    /// [`LogError::Missing`] where its segment has been deleted since, [`LogError::Damaged`] with file and byte, or
    /// the disk's errors.
    pub fn next_record(&mut self) -> Result<Option<(LogPosition, &[u8])>, LogError> {
        if self.next >= self.end {
            return Ok(None);
        }
        while self.group_end <= self.next {
            self.next_group()?;
        }
        let Some((walk, _)) = &self.walk else { return Err(self.missing()) };
        loop {
            // The walk has checked that records fill the payload.
            let Some((record, at)) = group::record(walk.payload(), self.at) else {
                return Err(self.missing());
            };
            let here = self.here;
            self.at = at;
            self.here = LogPosition(here.0 + 1);
            if here == self.next {
                self.next = self.here;
                return Ok(Some((here, record)));
            }
        }
    }

    fn next_group(&mut self) -> Result<(), LogError> {
        if self.walk.is_none() {
            self.open_next(None)?;
        }
        let Some((walk, path)) = &mut self.walk else { return Err(self.missing()) };
        match walk.step()? {
            Step::Group(head) => {
                self.at = group::FIRST_RECORD;
                self.here = head.first;
                self.group_end = walk.next();
                Ok(())
            }
            Step::Stop(stop) => Err(stop.into_damage(path)),
            Step::End => {
                let link = walk.chain().previous();
                self.open_next(Some(link))
            }
        }
    }

    fn open_next(&mut self, link: Option<u32>) -> Result<(), LogError> {
        let Some(segment) = self.segments.pop_front() else { return Err(self.missing()) };
        let path = segment.path;
        let file = match self.fs.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.missing()),
            opened => opened.map_err(LogError::io("open", &path))?,
        };
        let header = Header::read(file.as_ref(), &path, segment.bytes)?.map_err(|fault| fault.at(&path))?;
        check_header(&path, header, segment.first, Some(self.identity), link)?;
        self.walk = Some((Walk::new(Window::new(file, &path, segment.bytes), header), path));
        Ok(())
    }

    /// The record that comes next is not there any more.
    fn missing(&self) -> LogError {
        let first = self.segments.front().map_or(self.end, |segment| segment.first);
        LogError::Missing { dir: self.dir.clone(), wanted: self.next, first, next: self.end }
    }
}
