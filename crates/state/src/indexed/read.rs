//! The reading end: by key, by many keys, and everything in the order of the segments.

use super::entry::{Entry, entries};
use super::index::Address;
use super::location::Location;
use super::segment::{self, Extent, HEADER, Walk};
use super::{Counters, Shared};
use crate::{StateError, Visit};

/// Where a key's newest entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    number: u64,
    location: Location,
}

impl Shared {
    fn find(&self, address: Address) -> Option<Found> {
        let places = self.places();
        let location = places.index.get(address).filter(|location| !location.is_tombstone())?;
        Some(Found { number: places.segment(location.slot())?.number, location })
    }
}

pub(super) fn get(shared: &Shared, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
    Counters::add(&shared.counters.reads, 1);
    let address = Address::of(&shared.hash_key, key);
    let Some(mut found) = shared.find(address) else { return Ok(None) };
    loop {
        let error = match read(shared, key, found) {
            Err(error) if error.is_missing_file() => error,
            result => return result.map(Some),
        };
        // Moved by compaction and unlinked since it was looked up: it is somewhere else now.
        match shared.find(address) {
            Some(again) if again == found => return Err(error),
            Some(again) => found = again,
            None => return Ok(None),
        }
    }
}

pub(super) fn get_many(shared: &Shared, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StateError> {
    let mut order: Vec<(Found, usize)> = {
        let find = |(at, key): (usize, &&[u8])| Some((shared.find(Address::of(&shared.hash_key, key))?, at));
        keys.iter().enumerate().filter_map(find).collect()
    };
    order.sort_unstable_by_key(|(found, _)| (found.number, found.location.start()));
    let mut values = vec![None; keys.len()];
    for (_, at) in order {
        values[at] = get(shared, keys[at])?;
    }
    Ok(values)
}

fn read(shared: &Shared, key: &[u8], found: Found) -> Result<Vec<u8>, StateError> {
    let file = shared.handles.get(found.number)?;
    let path = || segment::path(&shared.dir, found.number);
    // The length is rounded up, so the file may end before.
    let mut bytes = vec![0; found.location.len() as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], found.location.start() + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(StateError::io("read", &path())(error)),
        }
    }
    bytes.truncate(filled);
    let (pos, seed) = (found.location.start(), segment::seed(shared.identity, found.number));
    let entry = Entry::decode(&bytes, seed, pos)
        .map_err(|fault| StateError::corrupt(&path(), pos, fault.what, fault.expected, fault.got))?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if entry.key != key {
        return Err(StateError::corrupt(&path(), pos, "key of the entry", hex(key), hex(entry.key)));
    }
    let Some(value) = entry.value else {
        return Err(StateError::corrupt(&path(), pos, "kind of the entry", "a value", "a tombstone"));
    };
    let (end, start) = (entry.stored_len() as usize, entry.stored_len() as usize - value.len());
    bytes.truncate(end);
    bytes.drain(..start);
    Ok(bytes)
}

/// Everything that is live below `extents`; nothing is compacted meanwhile, so no entry moves.
pub(super) fn scan(shared: &Shared, extents: &[Extent], visit: &mut Visit<'_>) -> Result<(), StateError> {
    for extent in extents {
        let slot = {
            let places = shared.places();
            if places.live_count(extent.number) == 0 {
                continue;
            }
            places.slot_of(extent.number)
        };
        let Some(slot) = slot else { continue };
        let file = match shared.handles.get(extent.number) {
            // Everything in it was written again since.
            Err(error) if error.is_missing_file() && shared.places().live_count(extent.number) == 0 => {
                continue;
            }
            file => file?,
        };
        let path = segment::path(&shared.dir, extent.number);
        let start = segment::empty(shared.identity, extent.number);
        debug_assert_eq!(start.len, HEADER);
        let mut walk = Walk::new(file, path, shared.identity, start, *extent);
        while let Some(payload) = walk.next()? {
            let mut live = Vec::new();
            {
                let places = shared.places();
                // The slot may be another segment's by now.
                if places.slot_of(extent.number) != Some(slot) {
                    break;
                }
                for entry in entries(walk.bytes(&payload)) {
                    let (at, entry) = entry.map_err(|(at, fault)| walk.entry_damage(&payload, at, fault))?;
                    let Some(value) = entry.value else { continue };
                    let start = payload.pos + at as u64;
                    let here = Location::new(slot, start, entry.stored_len(), false);
                    if places.index.get(Address::of(&shared.hash_key, entry.key)) == Some(here) {
                        live.push((entry.key, value));
                    }
                }
            }
            for (key, value) in live {
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
