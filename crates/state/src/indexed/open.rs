//! Opening: what the version names is checked, everything else goes, and the index is there again.
//!
//! The index comes from the newest index file that reaches no further than the version, and from the frames after
//! it; without such a file from all frames, one thread reading and checking them and one filling the index. Every segment
//! is measured and its header checked, the frames that are read are checked wholly, others when they are read.

use std::path::Path;
use std::sync::{Arc, mpsc};

use thalweg_storage::{OpenMode, make_dir};
use thalweg_types::HashKey;

use super::Shared;
use super::dump;
use super::entry::entries;
use super::index::{Address, Index};
use super::list::{self, Named};
use super::location::Location;
use super::place::Places;
use super::segment::{self, Extent, Walk};
use super::writer::{Active, Writer, remove};
use crate::{StateError, Version};

/// Bytes of frames from which on a thread that reads them ahead is worth its start.
const MUCH_BYTES: u64 = 4 << 20;

/// Frames that are read ahead of the index, 256 KiB each; the reader waits when so many are.
const AHEAD: usize = 8;

/// What a frame says of the index.
type Placed = Vec<(Address, Location)>;

pub(super) fn open(shared: &Shared, version: Option<&Version>) -> Result<Writer, StateError> {
    let (fs, dir) = (shared.fs.as_ref(), shared.dir.as_path());
    make_dir(fs, dir).map_err(StateError::io("create", dir))?;
    let named = version.map(|version| Named::decode(version, dir)).transpose()?;
    let mut writer = Writer::new(named.as_ref().map(|named| named.cycle));
    if let Some(named) = named {
        let sealed = named.sealed.read(fs, dir, shared.identity)?;
        writer.sealed = sealed.into_iter().map(|extent| (extent.number, extent)).collect();
        writer.list = named.sealed.list();
        writer.next_list = writer.list.map_or(1, |list| list.number + 1);
        if let Some(active) = named.active {
            open_active(shared, &mut writer, active)?;
        } else if !writer.sealed.is_empty() {
            let (expected, got) = ("an active segment".to_owned(), "none".to_owned());
            return Err(StateError::Version { dir: dir.to_owned(), what: "segments", expected, got });
        }
        for extent in writer.sealed.values() {
            let path = segment::path(dir, extent.number);
            let file = fs.open(&path, OpenMode::Read).map_err(StateError::io_of_named("open", &path))?;
            segment::check(file.as_ref(), &path, shared.identity, *extent)?;
            shared.places_mut().add_segment(extent.number, extent.len)?;
        }
    }
    clear(shared, &mut writer)?;
    build_index(shared, &mut writer)?;
    writer.count_dumps(shared);
    Ok(writer)
}

/// Opens the active segment and cuts what the version does not name.
fn open_active(shared: &Shared, writer: &mut Writer, extent: Extent) -> Result<(), StateError> {
    let path = segment::path(&shared.dir, extent.number);
    let file = shared.fs.open(&path, OpenMode::Write).map_err(StateError::io_of_named("open", &path))?;
    segment::check(file.as_ref(), &path, shared.identity, extent)?;
    if file.len().map_err(StateError::io("measure", &path))? > extent.len {
        file.truncate(extent.len).map_err(StateError::io("cut", &path))?;
    }
    let slot = shared.places_mut().add_segment(extent.number, extent.len)?;
    let seed = segment::seed(shared.identity, extent.number);
    writer.next_segment = extent.number + 1;
    let (synced, laid) = (extent.len, extent.len);
    writer.active = Some(Active {
        file: Arc::clone(&file),
        slot,
        seed,
        extent,
        is_dirty: true,
        synced,
        begun: synced,
        laid,
    });
    Ok(())
}

/// Removes what the version does not name, and learns which index files there are.
fn clear(shared: &Shared, writer: &mut Writer) -> Result<(), StateError> {
    let (fs, dir) = (shared.fs.as_ref(), shared.dir.as_path());
    let mut is_changed = false;
    let reach = writer.active.as_ref().map_or((0, 0), |active| (active.extent.number, active.extent.len));
    for name in fs.list(dir).map_err(StateError::io("list", dir))? {
        let keep = if let Some(number) = segment::number_of(&name) {
            writer.sealed.contains_key(&number) || number == reach.0
        } else if let Some(number) = list::number_of(&name) {
            let keep = writer.list.is_some_and(|list| list.number == number);
            if keep {
                writer.lists.insert(number);
            }
            keep
        } else if let Some(dumped) = dump::reach_of(&name) {
            if dumped <= reach {
                writer.dumps.insert(dumped, 0);
            }
            dumped <= reach
        } else {
            // Half a publication; other files are not ours.
            let ours =
                [segment::PREFIX, list::PREFIX, dump::PREFIX].iter().any(|prefix| name.starts_with(prefix));
            !(ours && name.ends_with(".tmp"))
        };
        if !keep {
            remove(shared, &dir.join(&name))?;
            is_changed = true;
        }
    }
    if is_changed {
        // An index file of uncommitted entries must not come back when its place is written anew.
        fs.sync_dir(dir).map_err(StateError::io("sync", dir))?;
    }
    Ok(())
}

fn build_index(shared: &Shared, writer: &mut Writer) -> Result<(), StateError> {
    let (fs, dir, identity) = (shared.fs.as_ref(), shared.dir.as_path(), shared.identity);
    let mut places = shared.places_mut();
    let mut known = None;
    for reach in writer.dumps.keys().rev().copied().collect::<Vec<_>>() {
        known = dump::read(fs, dir, identity, reach, &places)?;
        if known.is_some() {
            break;
        }
        remove(shared, &dump::path(dir, reach))?;
        writer.dumps.remove(&reach);
    }
    for (reach, bytes) in &mut writer.dumps {
        *bytes = measure(shared, &dump::path(dir, *reach))?;
    }
    let (from, mut index) = match known {
        Some((place, index)) => (Some(place), index),
        None => (None, Index::new()),
    };
    let tail = tail(shared.identity, &writer.extents(), from);
    let bytes: u64 = tail.iter().map(|(start, end)| end.len - start.len).sum();
    writer.tail_bytes += bytes;
    put_tail(shared, &places, &mut index, &tail, bytes)?;
    places.set_index(index);
    Ok(())
}

/// Adds the entries after an index to it, in order; if that is much, another thread reads it meanwhile.
fn put_tail(
    shared: &Shared,
    places: &Places,
    index: &mut Index,
    tail: &[(Extent, Extent)],
    bytes: u64,
) -> Result<(), StateError> {
    let hash_key = index.hash_key();
    let read = |take: &mut dyn FnMut(Placed)| {
        tail.iter().try_for_each(|range| replay(shared, places, &hash_key, *range, take))
    };
    std::thread::scope(|scope| {
        let (send, frames) = mpsc::sync_channel(AHEAD);
        // The taker of the frames is gone only after a panic, and nobody asks for them then.
        let reader = move || read(&mut |placed| drop(send.send(placed)));
        let name = std::thread::Builder::new().name("thalweg-index".to_owned());
        match (bytes >= MUCH_BYTES).then(|| name.spawn_scoped(scope, reader)) {
            Some(Ok(reader)) => {
                let mut frames = frames.iter().peekable();
                let expected = frames.peek().map_or(0, |first| fingerprints_in(bytes, first));
                if index.len() == 0 && expected > 0 {
                    index.reserve(expected);
                }
                frames.for_each(|placed| index.put_all(&placed, |_, _| {}));
                index.fit();
                reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            // Little, or the system gives no thread.
            _ => read(&mut |placed| index.put_all(&placed, |_, _| {})),
        }
    })
}

fn measure(shared: &Shared, path: &Path) -> Result<u64, StateError> {
    let file = shared.fs.open(path, OpenMode::Read).map_err(StateError::io("open", path))?;
    file.len().map_err(StateError::io("measure", path))
}

/// The bytes after a place, segment by segment: from where to where.
fn tail(identity: u64, extents: &[Extent], from: Option<Extent>) -> Vec<(Extent, Extent)> {
    let known = from.map_or(0, |from| from.number);
    let behind = extents.iter().filter(|extent| extent.number >= known);
    let start = |extent: &Extent| from.filter(|from| from.number == extent.number);
    behind.map(|extent| (start(extent).unwrap_or(segment::empty(identity, extent.number)), *extent)).collect()
}

/// About how many keys that are not numbered are in `bytes` bytes, if all frames are like the first; no more than make
/// an index of a quarter of the bytes, at 22 bytes each.
fn fingerprints_in(bytes: u64, first: &[(Address, Location)]) -> usize {
    let in_first: u64 = first.iter().map(|(_, location)| location.len()).sum();
    let fingerprints = first.iter().filter(|(address, _)| matches!(address, Address::Fingerprint(_))).count();
    // What compaction leaves is live by five eighths.
    let live = bytes * 5 / 8;
    (live * fingerprints as u64 / in_first.max(1)).min(bytes / 4 / 22) as usize
}

/// Hands over where the entries between two places of a segment are, frame by frame.
fn replay(
    shared: &Shared,
    places: &Places,
    hash_key: &HashKey,
    (start, end): (Extent, Extent),
    take: &mut dyn FnMut(Placed),
) -> Result<(), StateError> {
    let Some(slot) = places.slot_of(end.number) else { return Ok(()) };
    let path = segment::path(&shared.dir, end.number);
    let file = shared.handles.get(end.number)?;
    let mut walk = Walk::new(file, path, shared.identity, start, end);
    while let Some(payload) = walk.next()? {
        let mut placed = Vec::new();
        for entry in entries(walk.bytes(&payload)) {
            let (at, entry) = entry.map_err(|(at, fault)| walk.entry_damage(&payload, at, fault))?;
            let start = payload.pos + at as u64;
            let location = Location::new(slot, start, entry.stored_len(), entry.value.is_none());
            placed.push((Address::of(hash_key, entry.key), location));
        }
        take(placed);
    }
    Ok(())
}
