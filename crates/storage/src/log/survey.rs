//! Looking over all segments of a folder without changing any: what opening and [`inspect`] have in common.
//!
//! A segment is synced, and cut to its last frame, before its successor is made. So only the last one may end with
//! what a crash left, and everything else that is not as it was written is damage.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_types::Micros;

use super::scan::{self, Behind, Step, Walk};
use super::segment::{self, Header, HeaderFault};
use super::{LogError, LogPosition, Reader};
use crate::frame::Chain;
use crate::{File, Fs, OpenMode};

/// A segment as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    pub path: PathBuf,
    /// Number of its first record.
    pub first: LogPosition,
    /// Number after its last record.
    pub next: LogPosition,
    /// Bytes up to the end of its last whole frame.
    pub bytes: u64,
    /// Bytes of the file, zeros that were laid out ahead included.
    pub file_bytes: u64,
    /// Wall clock at which it was made.
    pub created: Micros,
}

/// What a crash left of the last write: bytes that are no whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    pub path: PathBuf,
    /// Byte at which it begins; 0 for a segment that had only been begun.
    pub pos: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// What a folder holds.
#[derive(Clone, Debug)]
pub struct LogSummary {
    /// The part of the file names before the number.
    pub name: String,
    /// Identity of the log; 0 where there is no segment.
    pub identity: u64,
    /// Segments in order, up to the damage.
    pub segments: Vec<SegmentSummary>,
    /// What opening would cut.
    pub torn: Option<TornTail>,
    /// What opening would refuse.
    pub damage: Option<LogError>,
}

impl LogSummary {
    /// Number of the oldest record.
    pub fn first(&self) -> LogPosition {
        self.segments.first().map_or(LogPosition(0), |segment| segment.first)
    }

    /// Number after the newest record.
    pub fn next(&self) -> LogPosition {
        self.segments.last().map_or(LogPosition(0), |segment| segment.next)
    }

    /// Bytes that count.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Reads the records of `range` that the summary knows, while another process may write the log.
    ///
    /// # Errors
    /// [`LogError::Missing`] for a range that is not all in the summary.
    pub fn read(&self, fs: Arc<dyn Fs>, dir: &Path, range: Range<LogPosition>) -> Result<Reader, LogError> {
        let (first, next) = (self.first(), self.next());
        for wanted in [range.start, range.end] {
            if wanted < first || wanted > next {
                return Err(LogError::Missing { dir: dir.to_owned(), wanted, first, next });
            }
        }
        Ok(Reader::new(fs, dir, self.identity, self.segments.iter().cloned().collect(), range))
    }
}

/// The name of the log in a folder: the part of its files' names before the number. `None` if there is no log.
///
/// # Errors
/// The disk's errors.
pub fn name_in(fs: &dyn Fs, dir: &Path) -> std::io::Result<Option<String>> {
    let names = fs.list(dir)?;
    Ok(names.iter().find_map(|name| Some(segment::split_name(name)?.0.to_owned())))
}

/// The log in a folder, whatever its identity, read from end to end; nothing is changed.
///
/// # Errors
/// The disk's errors, and files of several logs in one folder. Damage is part of the summary.
pub fn inspect(fs: &dyn Fs, dir: &Path) -> Result<LogSummary, LogError> {
    let name = name_in(fs, dir).map_err(LogError::io("list", dir))?;
    let survey = Survey::of(fs, dir, name.as_deref().unwrap_or_default(), None)?;
    Ok(survey.summary)
}

/// [`inspect`] that fails where the log is damaged.
///
/// # Errors
/// The disk's errors, and [`LogError::Damaged`] or [`LogError::NewerFormat`].
pub fn verify(fs: &dyn Fs, dir: &Path) -> Result<LogSummary, LogError> {
    let mut summary = inspect(fs, dir)?;
    summary.damage.take().map_or(Ok(summary), Err)
}

/// A folder looked over, with what a writer needs to go on.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) summary: LogSummary,
    pub(super) last: Option<LastSegment>,
    /// The last file holds no whole header: it had only been begun, and holds no record.
    pub(super) begun: Option<PathBuf>,
}

/// The end of the last segment.
#[derive(Debug)]
pub(super) struct LastSegment {
    pub(super) header: Header,
    pub(super) chain: Chain,
    /// The last group is a mark.
    pub(super) ends_with_mark: bool,
    /// Byte up to which everything had been synced when the last group was written.
    pub(super) synced: u64,
}

impl Survey {
    /// Looks over the log `name` in `dir`; `identity` is checked where it is given.
    pub(super) fn of(fs: &dyn Fs, dir: &Path, name: &str, identity: Option<u64>) -> Result<Self, LogError> {
        let names = fs.list(dir).map_err(LogError::io("list", dir))?;
        let summary = LogSummary {
            name: name.to_owned(),
            identity: identity.unwrap_or(0),
            segments: Vec::new(),
            torn: None,
            damage: None,
        };
        let mut survey = Self { summary, last: None, begun: None };
        let mut bases = Vec::new();
        for file_name in names.iter().filter(|name| name.ends_with(".thl")) {
            match segment::split_name(file_name) {
                Some((found, base)) if found == name => bases.push(base),
                _ => {
                    survey.summary.damage = Some(LogError::Damaged {
                        path: dir.join(file_name),
                        pos: 0,
                        what: "name of a segment",
                        expected: format!("{name}-<20 digits>.thl"),
                        got: file_name.clone(),
                    });
                    return Ok(survey);
                }
            }
        }
        bases.sort_unstable();
        for (place, base) in bases.iter().enumerate() {
            let path = segment::path(dir, name, *base);
            if let Err(damage) = survey.add(fs, &path, *base, identity, place + 1 == bases.len())? {
                survey.summary.damage = Some(damage);
                break;
            }
        }
        Ok(survey)
    }

    /// Reads one more segment: the outer error is the disk's, the inner one the damage of the bytes.
    fn add(
        &mut self,
        fs: &dyn Fs,
        path: &Path,
        base: LogPosition,
        identity: Option<u64>,
        is_last: bool,
    ) -> Result<Result<(), LogError>, LogError> {
        let file = fs.open(path, OpenMode::Read).map_err(LogError::io("open", path))?;
        let mut window = scan::window(&file, path)?;
        let file_bytes = window.limit();
        let expected_link = match &self.last {
            Some(last) => Some(last.chain.previous()),
            None => (base == LogPosition(0)).then_some(0),
        };
        let identity = identity.or(self.last.as_ref().map(|last| last.header.identity));
        let header = match Header::read(file.as_ref(), path, file_bytes)? {
            Ok(header) => header,
            Err(fault @ HeaderFault::Damaged { .. }) if is_last => {
                let wanted = identity.zip(expected_link);
                let begun = match wanted {
                    Some((identity, link)) => {
                        let wanted = Header { identity, base, link, created: 0 };
                        scan::judge(&mut window, 0, wanted.frame_identity(), |_| true)? != Behind::Synced
                            && self.summary.next() == base
                    }
                    // Without a log to belong to, bytes that were never written are all that can be found.
                    None => {
                        base == LogPosition(0) && scan::judge(&mut window, 0, 0, |_| false)? == Behind::Zeros
                    }
                };
                if !begun {
                    return Ok(Err(fault.at(path)));
                }
                if file_bytes > 0 {
                    self.summary.torn = Some(TornTail { path: path.to_owned(), pos: 0, bytes: file_bytes });
                }
                self.begun = Some(path.to_owned());
                return Ok(Ok(()));
            }
            Err(fault) => return Ok(Err(fault.at(path))),
        };
        if self.last.is_some() && base != self.summary.next() {
            return Ok(Err(LogError::Damaged {
                path: path.to_owned(),
                pos: 24,
                what: "first record of the segment (one is missing before it)",
                expected: self.summary.next().to_string(),
                got: base.to_string(),
            }));
        }
        if let Err(damage) = check_header(path, header, base, identity, expected_link) {
            return Ok(Err(damage));
        }
        self.summary.identity = header.identity;
        self.walk(Walk::new(window, header), header, &file, path, is_last)
    }

    fn walk(
        &mut self,
        mut walk: Walk,
        header: Header,
        file: &Arc<dyn File>,
        path: &Path,
        is_last: bool,
    ) -> Result<Result<(), LogError>, LogError> {
        let (mut ends_with_mark, mut synced) = (false, segment::HEADER);
        let stop = loop {
            match walk.step()? {
                Step::Group(head) => (ends_with_mark, synced) = (head.records == 0, head.synced),
                Step::End => break None,
                Step::Stop(stop) => break Some(stop),
            }
        };
        let file_bytes = file.len().map_err(LogError::io("read", path))?;
        let mut damage = None;
        if let Some(stop) = stop {
            match if is_last { walk.judge(&stop)? } else { Behind::Synced } {
                Behind::Zeros => {}
                Behind::Torn => {
                    let (pos, bytes) = (stop.pos, file_bytes.saturating_sub(stop.pos));
                    self.summary.torn = Some(TornTail { path: path.to_owned(), pos, bytes });
                }
                Behind::Synced => damage = Some(stop.into_damage(path)),
            }
        }
        self.summary.segments.push(SegmentSummary {
            path: path.to_owned(),
            first: header.base,
            next: walk.next(),
            bytes: walk.pos(),
            file_bytes,
            created: header.created,
        });
        self.last = Some(LastSegment { header, chain: walk.chain(), ends_with_mark, synced });
        Ok(damage.map_or(Ok(()), Err))
    }
}

/// Checks a header against its name and its neighbours.
pub(super) fn check_header(
    path: &Path,
    header: Header,
    base: LogPosition,
    identity: Option<u64>,
    link: Option<u32>,
) -> Result<(), LogError> {
    let damaged = |pos, what, expected: String, got: String| {
        Err(LogError::Damaged { path: path.to_owned(), pos, what, expected, got })
    };
    if header.base != base {
        let (expected, got) = (base.to_string(), header.base.to_string());
        return damaged(24, "first record that the file's name promises", expected, got);
    }
    if let Some(identity) = identity
        && header.identity != identity
    {
        let (expected, got) = (format!("{identity:#018x}"), format!("{:#018x}", header.identity));
        return damaged(16, "identity of the log", expected, got);
    }
    if let Some(link) = link
        && header.link != link
    {
        let (expected, got) = (format!("{link:#010x}"), format!("{:#010x}", header.link));
        return damaged(32, "checksum of the last frame of the segment before", expected, got);
    }
    Ok(())
}
