//! Looking over a folder without changing it, while another process may write there.
//!
//! With the version of a commit record, what it names is read: every frame, every entry, every checksum and chain, and
//! nothing else counts. Without one, the newest list, if there is any, says how long the segments in it are; every other
//! is read up to its last whole frame, after which all but the newest may have zeros alone.
//!
//! Index files are derived, and opening leaves a damaged one out; here it is named, as its bytes have changed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_storage::frame::{FrameError, FrameReader};
use thalweg_storage::{File, Fs, OpenMode};

use super::dump;
use super::entry::{Entry, entries};
use super::index::Address;
use super::list::{self, ListId, Named, Sealed};
use super::location::Location;
use super::place::Places;
use super::segment::{self, Extent, HEADER, Walk};
use crate::wire::{self, Fields};
use crate::{StateError, Version};

/// A segment as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    pub path: PathBuf,
    pub number: u64,
    /// Full, and never changed: not the newest.
    pub is_sealed: bool,
    /// Bytes that count: those that were named, or up to the last whole frame.
    pub bytes: u64,
    pub file_bytes: u64,
    /// Changes in it, superseded ones too.
    pub entries: u64,
    /// Of these, the newest of their keys, tombstones among them.
    pub live_entries: u64,
}

/// Bytes after those that count: remains of a crash, or writes since the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTail {
    pub path: PathBuf,
    pub pos: u64,
    pub bytes: u64,
}

/// What a folder of the `indexed` back end holds.
#[derive(Clone, Debug, Default)]
pub struct StateSummary {
    /// Identity of the task; `None` if there is no segment that has it.
    pub identity: Option<u64>,
    /// Cycle of the version that was given.
    pub cycle: Option<u64>,
    /// Cycles of the oldest and the newest entry that counts.
    pub cycles: Option<(u64, u64)>,
    /// Keys with a value.
    pub keys: u64,
    /// Bytes of their entries, within two percent.
    pub live_bytes: u64,
    /// Bytes of all files.
    pub disk_bytes: u64,
    pub segments: Vec<SegmentSummary>,
    /// Index files.
    pub index_files: Vec<PathBuf>,
    /// What opening would remove: nothing names it.
    pub leftovers: Vec<PathBuf>,
    pub torn: Vec<StateTail>,
    pub damage: Vec<StateError>,
}

/// Whether the folder holds files of this back end.
///
/// # Errors
/// The disk's errors.
pub fn is_state_folder(fs: &dyn Fs, dir: &Path) -> std::io::Result<bool> {
    let names = fs.list(dir)?;
    let ours = |name: &String| segment::number_of(name).is_some() || dump::reach_of(name).is_some();
    Ok(names.iter().any(ours))
}

/// The version that a part of a commit record holds, wherever in it: a version has a checksum to be found by.
pub fn version_in(part: &[u8]) -> Option<Version> {
    (0..part.len()).find_map(|start| Named::at_start(&part[start..])).map(Version::from_bytes)
}

/// Whether a version names no file, as before the first change.
pub fn is_empty(version: &Version) -> bool {
    Named::decode(version, Path::new("")).is_ok_and(|named| named.active.is_none())
}

/// A version in words; `None` if the bytes are not a version.
pub fn describe(version: &Version) -> Option<String> {
    let named = Named::decode(version, Path::new("")).ok()?;
    let active = named.active.map(|active| format!(", segment {} up to byte {}", active.number, active.len));
    let sealed = match &named.sealed {
        Sealed::Here(sealed) if sealed.is_empty() => String::new(),
        Sealed::Here(sealed) => format!(", {} sealed", sealed.len()),
        Sealed::Listed(list) => format!(", list {}", list.number),
    };
    Some(format!("state of cycle {}{}{sealed}", named.cycle, active.unwrap_or_default()))
}

/// Reads everything in a folder that counts; see the module's header.
///
/// # Errors
/// The disk's errors. Damage is part of the summary.
pub fn inspect(fs: &dyn Fs, dir: &Path, version: Option<&Version>) -> Result<StateSummary, StateError> {
    let mut look = Look::new(fs, dir)?;
    match look.all(version) {
        Ok(()) => {}
        Err(damage) if is_damage(&damage) => look.summary.damage.push(damage),
        Err(error) => return Err(error),
    }
    Ok(look.finish())
}

fn is_damage(error: &StateError) -> bool {
    matches!(error, StateError::Corrupt { .. } | StateError::Version { .. } | StateError::NewerFormat { .. })
}

struct Look<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
    /// Files of the folder by name, with their lengths.
    files: BTreeMap<String, u64>,
    places: Places,
    summary: StateSummary,
}

/// How far a segment is to be read.
#[derive(Clone, Copy)]
enum Until {
    /// Someone named its length and its last frame.
    Named(Extent),
    /// Nobody did: to the last whole frame. Only the last segment may end with anything else but zeros.
    End { is_last: bool },
}

impl<'a> Look<'a> {
    fn new(fs: &'a dyn Fs, dir: &'a Path) -> Result<Self, StateError> {
        let mut files = BTreeMap::new();
        for name in fs.list(dir).map_err(StateError::io("list", dir))? {
            let path = dir.join(&name);
            let file = fs.open(&path, OpenMode::Read).map_err(StateError::io("open", &path))?;
            let len = file.len().map_err(StateError::io("measure", &path))?;
            files.insert(name, len);
        }
        let summary = StateSummary { disk_bytes: files.values().sum(), ..StateSummary::default() };
        Ok(Self { fs, dir, files, places: Places::new(), summary })
    }

    fn numbers(&self) -> Vec<u64> {
        self.files.keys().filter_map(|name| segment::number_of(name)).collect()
    }

    fn all(&mut self, version: Option<&Version>) -> Result<(), StateError> {
        let named = version.map(|version| Named::decode(version, self.dir)).transpose()?;
        self.summary.cycle = named.as_ref().map(|named| named.cycle);
        let identity = self.identity()?;
        self.summary.identity = identity;
        let (sealed, list) = match &named {
            Some(named) => {
                let sealed = named.sealed.read(self.fs, self.dir, identity.unwrap_or_default())?;
                (sealed, named.sealed.list().map(|list| list.number))
            }
            None => self.newest_list(identity)?,
        };
        let mut wanted: Vec<(u64, Until, bool)> =
            sealed.iter().map(|extent| (extent.number, Until::Named(*extent), true)).collect();
        match named {
            Some(named) => {
                wanted.extend(named.active.map(|active| (active.number, Until::Named(active), false)));
            }
            None => {
                let last_sealed = sealed.last().map_or(0, |extent| extent.number);
                let open: Vec<u64> =
                    self.numbers().into_iter().filter(|number| *number > last_sealed).collect();
                for number in &open {
                    let is_last = Some(number) == open.last();
                    wanted.push((*number, Until::End { is_last }, !is_last));
                }
            }
        }
        let counts: Vec<u64> = wanted.iter().map(|(number, ..)| *number).collect();
        for name in self.files.keys() {
            let is_left = match (segment::number_of(name), list::number_of(name), dump::reach_of(name)) {
                (Some(number), ..) => !counts.contains(&number),
                (_, Some(number), _) => Some(number) != list,
                (_, _, Some(_)) => {
                    self.summary.index_files.push(self.dir.join(name));
                    false
                }
                _ => name.ends_with(".tmp"),
            };
            if is_left {
                self.summary.leftovers.push(self.dir.join(name));
            }
        }
        for (number, until, is_sealed) in wanted {
            let outcome = self.segment(number, until, is_sealed, identity);
            match outcome {
                Err(damage) if is_damage(&damage) => self.summary.damage.push(damage),
                outcome => outcome?,
            }
        }
        for path in self.summary.index_files.clone() {
            let outcome = dump::check(self.fs, &path, identity.unwrap_or_default());
            match outcome {
                Err(damage) if is_damage(&damage) => self.summary.damage.push(damage),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// The identity in the first segment with a whole header, or in another file whose checksum holds.
    fn identity(&self) -> Result<Option<u64>, StateError> {
        for number in self.numbers() {
            let path = segment::path(self.dir, number);
            let file = self.fs.open(&path, OpenMode::Read).map_err(StateError::io("open", &path))?;
            let len = file.len().map_err(StateError::io("measure", &path))?;
            let mut head = vec![0; HEADER.min(len) as usize];
            file.read_exact_at(&mut head, 0).map_err(StateError::io("read", &path))?;
            let named = head.get(12..20).and_then(|bytes| Fields::new(bytes).u64());
            if let Some(identity) = named.filter(|identity| segment::header(*identity, number) == head) {
                return Ok(Some(identity));
            }
        }
        for name in self.files.keys() {
            if list::number_of(name).is_none() && dump::reach_of(name).is_none() {
                continue;
            }
            let path = self.dir.join(name);
            let file = self.fs.open(&path, OpenMode::Read).map_err(StateError::io("open", &path))?;
            let bytes = super::read_all(file.as_ref(), &path)?;
            // Both kinds begin with magic, format and identity.
            if let Some(rest) = wire::checked(&bytes).ok().and_then(|content| content.get(12..20)) {
                return Ok(Fields::new(rest).u64());
            }
        }
        Ok(None)
    }

    /// The list with the highest number. Without a version it is unknown whether a commit names it.
    fn newest_list(&self, identity: Option<u64>) -> Result<(Vec<Extent>, Option<u64>), StateError> {
        let newest = self.files.keys().filter_map(|name| list::number_of(name)).max();
        let (Some(number), Some(identity)) = (newest, identity) else { return Ok((Vec::new(), newest)) };
        let path = list::path(self.dir, number);
        let file = self.fs.open(&path, OpenMode::Read).map_err(StateError::io("open", &path))?;
        let bytes = super::read_all(file.as_ref(), &path)?;
        // What the version would say of it, were there one.
        let crc = bytes.len().checked_sub(4).map_or(0, |end| crc32fast::hash(&bytes[..end]));
        let sealed = list::read(self.fs, self.dir, identity, ListId { number, crc })?;
        Ok((sealed, newest))
    }

    fn segment(
        &mut self,
        number: u64,
        until: Until,
        is_sealed: bool,
        identity: Option<u64>,
    ) -> Result<(), StateError> {
        let path = segment::path(self.dir, number);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(file_bytes) = self.files.get(&name).copied() else {
            return Err(StateError::corrupt(
                &path,
                0,
                "segment that a list or a commit names",
                "a file",
                "none",
            ));
        };
        let file = self.fs.open(&path, OpenMode::Read).map_err(StateError::io("open", &path))?;
        let identity = identity.unwrap_or_default();
        let mut found = SegmentSummary {
            path: path.clone(),
            number,
            is_sealed,
            bytes: 0,
            file_bytes,
            entries: 0,
            live_entries: 0,
        };
        let extent = match until {
            Until::Named(extent) => {
                segment::check(file.as_ref(), &path, identity, extent)?;
                extent
            }
            Until::End { is_last } => match self.end_of(&file, &path, number, identity)? {
                (_, Some(damage)) if !is_last => return Err(damage),
                (extent, _) => extent,
            },
        };
        found.bytes = extent.len;
        if file_bytes > extent.len {
            let (pos, bytes) = (extent.len, file_bytes - extent.len);
            // Room that was reserved and not written yet is no tail of a crash.
            if !is_reserved(file.as_ref(), pos..file_bytes).map_err(StateError::io("read", &path))? {
                self.summary.torn.push(StateTail { path: path.clone(), pos, bytes });
            }
        }
        if extent.len < HEADER {
            self.summary.segments.push(found);
            return Ok(());
        }
        let slot = self.places.add_segment(number, extent.len)?;
        let hash_key = self.places.index.hash_key();
        let seed = segment::seed(identity, number);
        let start = segment::empty(identity, number);
        let mut walk = Walk::new(file, path, identity, start, extent);
        while let Some(payload) = walk.next()? {
            let bytes = walk.bytes(&payload);
            for entry in entries(bytes) {
                let (at, entry) = entry.map_err(|(at, fault)| walk.entry_damage(&payload, at, fault))?;
                let start = payload.pos + at as u64;
                Entry::decode(&bytes[at..], seed, start)
                    .map_err(|fault| walk.entry_damage(&payload, at, fault))?;
                found.entries += 1;
                let (first, last) = self.summary.cycles.unwrap_or((entry.cycle, entry.cycle));
                self.summary.cycles = Some((first.min(entry.cycle), last.max(entry.cycle)));
                let location = Location::new(slot, start, entry.stored_len(), entry.value.is_none());
                self.places.put(Address::of(&hash_key, entry.key), location);
            }
        }
        self.summary.segments.push(found);
        Ok(())
    }

    /// Where a segment's last whole frame ends, and the damage of the bytes after it.
    fn end_of(
        &self,
        file: &Arc<dyn File>,
        path: &Path,
        number: u64,
        identity: u64,
    ) -> Result<(Extent, Option<StateError>), StateError> {
        let empty = segment::empty(identity, number);
        // One segment at a time, and none is longer than an entry beyond the size at which it is sealed.
        let bytes = super::read_all(file.as_ref(), path)?;
        let head = &bytes[..bytes.len().min(HEADER as usize)];
        if head.len() < HEADER as usize || head.iter().all(|byte| *byte == 0) {
            let got = format!("{} bytes", head.iter().filter(|byte| **byte != 0).count());
            let short = StateError::corrupt(path, 0, "header of the segment", format!("{HEADER} bytes"), got);
            return Ok((Extent { len: 0, ..empty }, Some(short)));
        }
        segment::check(file.as_ref(), path, identity, empty)?;
        let mut reader = FrameReader::new(&bytes, HEADER as usize, segment::chain(identity, empty));
        loop {
            let extent = |reader: &FrameReader<'_>| Extent {
                number,
                len: reader.position(),
                chain: reader.chain().previous(),
            };
            match reader.next_frame() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok((extent(&reader), None)),
                Err(FrameError::Damaged { pos, what, expected, got }) => {
                    let (expected, got) = (format!("{expected:#010x}"), format!("{got:#010x}"));
                    return Err(StateError::corrupt(path, pos, what, expected, got));
                }
                // Zeros that were laid ahead of a small sync.
                Err(FrameError::Torn { zeros: true, .. }) => return Ok((extent(&reader), None)),
                Err(FrameError::Torn { pos, bytes, .. }) => {
                    let got = format!("{bytes} bytes that are not one");
                    let damage = StateError::corrupt(path, pos, "frame", "a whole frame", got);
                    return Ok((extent(&reader), Some(damage)));
                }
            }
        }
    }

    fn finish(mut self) -> StateSummary {
        for segment in &mut self.summary.segments {
            segment.live_entries = self.places.live_count(segment.number);
        }
        self.summary.keys = self.places.keys();
        self.summary.live_bytes = self.places.live_bytes();
        self.summary
    }
}

/// Whether a range of a file holds zeros alone, as a file does where room was reserved in it.
fn is_reserved(file: &dyn File, range: Range<u64>) -> std::io::Result<bool> {
    let mut block = vec![0; 64 << 10];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(block.len() as u64) as usize;
        file.read_exact_at(&mut block[..len], at)?;
        if block[..len].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}
