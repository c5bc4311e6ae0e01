//! The index file: the whole index as it was at one place of the segments, so that only the entries after that
//! place has to be read again.
//!
//! Layout (little-endian): magic 8, format 2, zero 2, identity 8, place (segment number 8, length 8, checksum of its
//! last frame 4), key of the hash 16, number of segments 4, per segment slot 2 and number 8, then the table
//! ([`super::table`]), the numbered keys ([`super::numbers`]), checksum 4. The name holds the place too, so files sort by
//! it. Formats below 3 had no key, as their fingerprints were hashes that anybody can make.
//!
//! It is derived: one that is torn, damaged, of another format or not there is left out, and the index comes from
//! the segments. Locations of segments that are gone are left out as well: a segment goes only when nothing in it
//! is live.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use thalweg_storage::{Fs, OpenMode, publish};
use thalweg_types::HashKey;

use super::Kind;
use super::index::Index;
use super::list::extent;
use super::location::Location;
use super::place::Places;
use super::segment::Extent;
use crate::StateError;
use crate::wire::{self, Fields};

const MAGIC: [u8; 8] = *b"\xf7ThStIx\n";
const FORMAT: u16 = 3;

pub(super) const PREFIX: &str = "index-";
const SUFFIX: &str = ".thx";

/// Up to where an index file knows the segments: segment number and length. Orders as the segments were written.
pub(super) type Reach = (u64, u64);

pub(super) fn path(dir: &Path, reach: Reach) -> PathBuf {
    dir.join(format!("{PREFIX}{:020}-{:020}{SUFFIX}", reach.0, reach.1))
}

pub(super) fn reach_of(name: &str) -> Option<Reach> {
    let (segment, len) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('-')?;
    Some((super::parse_digits(segment)?, super::parse_digits(len)?))
}

/// Writes the index as it is at the end of `active`; the bytes it takes.
pub(super) fn write(
    fs: &dyn Fs,
    dir: &Path,
    identity: u64,
    places: &Places,
    active: Extent,
) -> Result<u64, StateError> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&identity.to_le_bytes());
    bytes.extend_from_slice(&active.number.to_le_bytes());
    bytes.extend_from_slice(&active.len.to_le_bytes());
    bytes.extend_from_slice(&active.chain.to_le_bytes());
    bytes.extend_from_slice(&places.index.hash_key().to_bytes());
    bytes.extend_from_slice(&(places.segments().count() as u32).to_le_bytes());
    for (slot, segment) in places.segments() {
        bytes.extend_from_slice(&slot.to_le_bytes());
        bytes.extend_from_slice(&segment.number.to_le_bytes());
    }
    places.index.dump(&mut bytes);
    wire::seal(&mut bytes);
    let path = path(dir, (active.number, active.len));
    publish(fs, &path, &bytes).map_err(StateError::io("publish", &path))?;
    Ok(bytes.len() as u64)
}

/// Reads an index file into the segments at hand: the place up to where it knows them, and the index. `Ok(None)`
/// where it is of no use, which has been said in the log.
pub(super) fn read(
    fs: &dyn Fs,
    dir: &Path,
    identity: u64,
    reach: Reach,
    places: &Places,
) -> Result<Option<(Extent, Index)>, StateError> {
    let path = path(dir, reach);
    let file = fs.open(&path, OpenMode::Read).map_err(StateError::io("open", &path))?;
    let bytes = super::read_all(file.as_ref(), &path)?;
    let useless = |reason: &str| {
        tracing::warn!(path = %path.display(), reason, "index file left out, the index comes from the segments");
        Ok(None)
    };
    let content = match wire::checked(&bytes) {
        Ok(content) => content,
        Err((expected, got)) => {
            return useless(&format!("checksum: expected {expected:#010x}, got {got:#010x}"));
        }
    };
    let mut fields = Fields::new(content);
    match (fields.bytes(8) == Some(&MAGIC), fields.u16()) {
        (true, Some(FORMAT)) => {}
        (true, Some(format)) if format < FORMAT => {
            return useless("an earlier format, whose hash has no key");
        }
        _ => return useless("another format"),
    }
    match load(fields, identity, places) {
        Some((extent, index)) if (extent.number, extent.len) == reach => Ok(Some((extent, index))),
        _ => useless("another task, another place, or cut short"),
    }
}

/// Whether an index file has the bytes that were written; the entries at its places are not looked at.
///
/// # Errors
/// `Corrupt`, `NewerFormat`, and the disk's errors.
pub(super) fn check(fs: &dyn Fs, path: &Path, identity: u64) -> Result<(), StateError> {
    let file = fs.open(path, OpenMode::Read).map_err(StateError::io("open", path))?;
    let bytes = super::read_all(file.as_ref(), path)?;
    let kind = Kind { magic: MAGIC, what: "an index file", checksum: "checksum", oldest: 1, newest: FORMAT };
    let content = super::check_head(path, &bytes, kind)?;
    let mut fields = Fields::new(&content[12..]);
    let (task, place) = (fields.u64().unwrap_or_default(), extent(&mut fields));
    let reach = path.file_name().and_then(|name| reach_of(&name.to_string_lossy()));
    if task != identity || place.map(|place| (place.number, place.len)) != reach {
        let expected = format!("task {identity:016x}, reach {reach:?}");
        let got = format!("task {task:016x}, place {place:?}");
        return Err(StateError::corrupt(path, 12, "identity of the index file", expected, got));
    }
    Ok(())
}

fn load(mut fields: Fields<'_>, identity: u64, places: &Places) -> Option<(Extent, Index)> {
    fields.u16()?;
    if fields.u64()? != identity {
        return None;
    }
    let place = extent(&mut fields)?;
    let hash_key = HashKey::from_bytes(fields.bytes(HashKey::LEN)?.try_into().ok()?);
    let mut now = HashMap::new();
    for _ in 0..fields.u32()? {
        let (then, number) = (fields.u16()?, fields.u64()?);
        now.insert(then, places.slot_of(number));
    }
    // Looked up once per entry: an array, not a map.
    let mut slots = vec![None; usize::from(now.keys().max().copied().unwrap_or(0)) + 1];
    for (then, slot) in now {
        slots[usize::from(then)] = slot;
    }
    let find = |slot: u16| slots.get(usize::from(slot)).copied().flatten();
    let place_now = |location: Location| Some(location.with_slot(find(location.slot())?));
    let index = Index::load(hash_key, fields.rest(), place_now)?;
    Some((place, index))
}
