//! Shortening a log: old segments at its front, records that do not count at its back.
//!
//! Segments go one by one, each removal synced before the next, so that a crash leaves no gap: oldest first at the
//! front, newest first at the back. The active segment is never removed at the front: it keeps the next number.
//!
//! At the front a segment first leaves the log, and then its file is removed: a large one may take the disk as long as
//! many syncs, and no append or sync through a [`LogHandle`](super::LogHandle) waits for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg_types::Micros;

use super::group::{self, GroupBuffer};
use super::scan::{self, Step, Walk};
use super::segment::HEADER;
use super::writer::Active;
use super::{Log, LogError, LogPosition};
use crate::frame::Chain;
use crate::{Fs, OpenMode};

/// How long records are kept, at least; what either bound allows to go may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Segments whose youngest record is older may go.
    pub max_age: Option<Duration>,
    /// The oldest segments may go while the log has more bytes.
    pub max_bytes: Option<u64>,
}

/// A segment that has left its log, and whose file is still there.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    path: PathBuf,
}

impl Leaving {
    /// Removes the file, for good.
    ///
    /// # Errors
    /// The disk's errors; the call may be tried again.
    pub(super) fn remove(&self) -> Result<(), LogError> {
        match self.fs.remove(&self.path) {
            // An earlier removal whose sync failed, or another process's.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            outcome => outcome.map_err(LogError::io("remove", &self.path))?,
        }
        self.fs.sync_dir(&self.dir).map_err(LogError::io("sync", &self.dir))
    }
}

impl Log {
    /// Removes segments that only hold records before `position`, and says how many records went.
    ///
    /// # Errors
    /// The disk's errors; they do not poison the log. Records have left it all the same, and a later call counts them
    /// no more. A file that could not be removed is tried again by the next call, before any other; its records are
    /// back where the log is opened before that.
    pub fn truncate_before(&mut self, position: LogPosition) -> Result<u64, LogError> {
        let records = self.leave_before(position)?;
        self.remove_leaving()?;
        Ok(records)
    }

    /// Removes what `policy` lets go at wall clock `now`, but no segment with a record at `floor` or after it, and
    /// says how many records went.
    ///
    /// # Errors
    /// As for [`Log::truncate_before`].
    pub fn retain(
        &mut self,
        policy: RetentionPolicy,
        floor: LogPosition,
        now: Micros,
    ) -> Result<u64, LogError> {
        let records = self.leave_retained(policy, floor, now)?;
        self.remove_leaving()?;
        Ok(records)
    }

    fn remove_leaving(&mut self) -> Result<(), LogError> {
        while let Some(leaving) = self.leaving() {
            leaving.remove()?;
            self.has_left(&leaving);
        }
        Ok(())
    }

    /// [`Log::truncate_before`], but that files stay until they are [removed](Leaving::remove).
    pub(super) fn leave_before(&mut self, position: LogPosition) -> Result<u64, LogError> {
        self.check()?;
        let before = self.first();
        while self.sealed.first().is_some_and(|segment| segment.next <= position) {
            self.leave_oldest();
        }
        Ok(self.first().0 - before.0)
    }

    /// [`Log::retain`], but that files stay until they are [removed](Leaving::remove).
    pub(super) fn leave_retained(
        &mut self,
        policy: RetentionPolicy,
        floor: LogPosition,
        now: Micros,
    ) -> Result<u64, LogError> {
        self.check()?;
        let before = self.first();
        let age = policy.max_age.map(|age| Micros::try_from(age.as_micros()).unwrap_or(Micros::MAX));
        while let Some(oldest) = self.sealed.first()
            && oldest.next <= floor
        {
            // All its records are older than its successor.
            let closed = self.sealed.get(1).map_or(self.active.header.created, |next| next.created);
            let too_old = age.is_some_and(|age| now.saturating_sub(closed) > age);
            let too_many = policy.max_bytes.is_some_and(|max| self.bytes() > max);
            if !too_old && !too_many {
                break;
            }
            self.leave_oldest();
        }
        Ok(self.first().0 - before.0)
    }

    fn leave_oldest(&mut self) {
        let path = self.sealed.remove(0).path;
        self.leaving.push_back(path);
    }

    /// The oldest segment that has left and whose file is to be removed next.
    pub(super) fn leaving(&self) -> Option<Leaving> {
        let path = self.leaving.front()?.clone();
        Some(Leaving { fs: Arc::clone(&self.fs), dir: self.dir.clone(), path })
    }

    /// The file of a segment is removed.
    pub(super) fn has_left(&mut self, segment: &Leaving) {
        self.leaving.pop_front_if(|path| *path == segment.path);
    }

    /// Cuts everything from `position` on, so that the next record gets this number: what recovery does with records
    /// that no commit names. Buffered records are written first, so that one rule holds for all.
    ///
    /// A crash in between leaves more records than asked for, never fewer.
    ///
    /// # Errors
    /// [`LogError::Missing`] where `position` is older than the oldest record. After others the log is poisoned.
    pub fn truncate_behind(&mut self, position: LogPosition) -> Result<(), LogError> {
        self.flush()?;
        if position >= self.written {
            return Ok(());
        }
        if position < self.first() {
            return Err(self.missing(position));
        }
        self.settle()?;
        self.cut(position).map_err(|error| self.poison(error))
    }

    fn cut(&mut self, position: LogPosition) -> Result<(), LogError> {
        while self.active.first() > position {
            let path = self.active.path.clone();
            let Some(last) = self.sealed.last().cloned() else { return Err(self.missing(position)) };
            let last_file =
                self.fs.open(&last.path, OpenMode::Write).map_err(LogError::io("open", &last.path))?;
            let header = super::segment::Header::read(last_file.as_ref(), &last.path, last.bytes)?
                .map_err(|fault| fault.at(&last.path))?;
            self.fs.remove(&path).map_err(LogError::io("remove", &path))?;
            self.fs.sync_dir(&self.dir).map_err(LogError::io("sync", &self.dir))?;
            self.sealed.pop();
            self.active = Active {
                file: last_file,
                path: last.path,
                header,
                // Set when the place of the cut has been found.
                chain: header.chain(),
                end: last.bytes,
                laid: last.bytes,
                synced: last.bytes,
                ends_with_mark: false,
            };
            self.written = last.next;
        }
        let place = self.place_of(position)?;
        let active = &mut self.active;
        match place.kept {
            None => {
                active.file.truncate(place.pos).map_err(LogError::io("cut", &active.path))?;
                active.file.sync_data().map_err(LogError::io("sync", &active.path))?;
                (active.chain, active.end) = (place.chain, place.pos);
            }
            // The cut goes through a group: a copy with a shorter one takes the place of the segment.
            Some(mut kept) => {
                let mut chain = place.chain;
                kept.seal(0, &mut chain, place.first, place.pos);
                let mut temporary = active.path.clone().into_os_string();
                temporary.push(".tmp");
                let temporary = PathBuf::from(temporary);
                let copy =
                    self.fs.open(&temporary, OpenMode::Create).map_err(LogError::io("create", &temporary))?;
                let mut window = scan::window(&active.file, &active.path)?;
                let mut at = 0;
                while at < place.pos {
                    let count = usize::try_from(place.pos - at).unwrap_or(usize::MAX).min(COPY_BYTES);
                    let Some(bytes) = window.view(at, count)? else { break };
                    copy.write_all_at(bytes, at).map_err(LogError::io("write", &temporary))?;
                    at += count as u64;
                }
                copy.write_all_at(kept.frames(0..1), at).map_err(LogError::io("write", &temporary))?;
                copy.sync_data().map_err(LogError::io("sync", &temporary))?;
                self.fs.rename(&temporary, &active.path).map_err(LogError::io("rename", &temporary))?;
                self.fs.sync_dir(&self.dir).map_err(LogError::io("sync", &self.dir))?;
                let end = place.pos + kept.frame_len(0);
                (active.file, active.chain, active.end) = (copy, chain, end);
            }
        }
        active.laid = active.end;
        active.synced = active.end;
        active.ends_with_mark = false;
        self.written = position;
        self.synced = position;
        Ok(())
    }

    /// Where `position` is in the active segment.
    fn place_of(&self, position: LogPosition) -> Result<Place, LogError> {
        let active = &self.active;
        let window =
            super::window::Window::new(std::sync::Arc::clone(&active.file), &active.path, active.end);
        let mut walk = Walk::new(window, active.header);
        let mut place = Place { pos: HEADER, chain: walk.chain(), first: walk.next(), kept: None };
        while place.first < position {
            match walk.step()? {
                Step::Group(head) if walk.next() > position => {
                    let mut kept = GroupBuffer::default();
                    let mut at = group::FIRST_RECORD;
                    for _ in head.first.0..position.0 {
                        let Some((record, next)) = group::record(walk.payload(), at) else { break };
                        kept.push_into_one(record);
                        at = next;
                    }
                    place.kept = Some(kept);
                    return Ok(place);
                }
                Step::Group(_) => {
                    place = Place { pos: walk.pos(), chain: walk.chain(), first: walk.next(), kept: None };
                }
                Step::Stop(stop) => return Err(stop.into_damage(&active.path)),
                Step::End => return Err(self.missing(position)),
            }
        }
        Ok(place)
    }
}

/// Bytes that are copied at once.
const COPY_BYTES: usize = 256 << 10;

/// A place for a cut: after the last group before it.
struct Place {
    pos: u64,
    chain: Chain,
    first: LogPosition,
    /// Records of the group that the cut goes through which stay.
    kept: Option<GroupBuffer>,
}
