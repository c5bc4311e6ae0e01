//! The baseline: one file per key and version, each synced by itself, as S4 did it.
//!
//! Layout of a file (little-endian): magic 8, format 2, zero 2, identity 8, cycle 8, key length 4, value length 4,
//! checksum of all but itself 4, key, value. Its name is the key and the cycle ([`name`]); a tombstone has a name of
//! its own and no value. A file of a newer cycle is kept next to the committed one, which goes when the
//! newer is committed. The version is the cycle, with number and digest of the names that count: a file that is
//! missing is found on opening.
//!
//! Names are kept in memory, values are not. Damage in a file is found when it is read. Files with names of earlier
//! builds, which do not distinguish their keys from others, are read on opening for their keys.

mod name;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_storage::{Fs, OpenMode, make_dir};

use self::name::Stem;
use crate::cycles::Cycles;
use crate::wire::{self, Fields};
use crate::{Backend, BackendStats, Change, Changes, StateError, Version, Visit};

const MAGIC: [u8; 8] = *b"\xf7ThStFi\n";
const FORMAT: u16 = 1;
/// Format 1 was the same, and named long keys by another hash.
const VERSION_FORMAT: u16 = 2;
const HEADER: usize = 40;
/// The place of the checksum.
const CHECKSUM: usize = 36;

/// One file per key.
#[derive(Debug)]
pub struct Files {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    identity: u64,
    /// Held for the length of a call: a baseline, not a place of contention.
    state: Mutex<State>,
}

/// A version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    cycle: u64,
    is_tombstone: bool,
    /// Its name is one of those in [`State::early`].
    is_early: bool,
    /// Bytes of the file.
    len: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Versions of each key, oldest first.
    keys: BTreeMap<Stem, Vec<Item>>,
    /// What earlier builds named keys by.
    early: BTreeMap<Stem, Stem>,
    /// Of the newest versions.
    census: Census,
    /// Files that are not synced.
    dirty: BTreeSet<PathBuf>,
    /// Keys with more than one version, or a tombstone.
    changed: BTreeSet<Stem>,
    /// Tombstones whose older versions are gone: until the next sync of the folder, and from then on durably so.
    hiding: Vec<PathBuf>,
    needless: Vec<PathBuf>,
    cycles: Cycles,
    poison: Option<String>,
    reads: u64,
    writes: u64,
}

/// The contents of a version in addition to the cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Census {
    count: u64,
    digest: u64,
}

impl Census {
    /// Takes a key's newest version in, by the name of its file; a tombstone does not count.
    fn add(&mut self, name: &str, item: Item) {
        if !item.is_tombstone {
            self.count += 1;
            self.digest ^= digest(name);
        }
    }

    /// Removes an item that was added.
    fn remove(&mut self, name: &str, item: Item) {
        if !item.is_tombstone {
            self.count -= 1;
            self.digest ^= digest(name);
        }
    }
}

/// Finds files that are missing, and represents no key.
fn digest(name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_bytes())
}

impl State {
    /// The name of the file of a version of a key.
    fn name_of(&self, stem: &Stem, item: Item) -> String {
        let stem = if item.is_early { self.early.get(stem).unwrap_or(stem) } else { stem };
        stem.file_name(item.cycle, item.is_tombstone)
    }
}

impl Files {
    /// Opens what `version` names in `dir`, which is made if it is not there, and removes newer files.
    ///
    /// # Errors
    /// `Corrupt` where files are missing, `Version`, `NewerFormat`, `Io`.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        identity: u64,
        version: Option<&Version>,
    ) -> Result<Self, StateError> {
        make_dir(fs.as_ref(), dir).map_err(StateError::io("create", dir))?;
        let named = version.map(|version| decode_version(version, dir)).transpose()?;
        let mut state = State { cycles: Cycles::at(named.map(|named| named.0)), ..State::default() };
        for file_name in fs.list(dir).map_err(StateError::io("list", dir))? {
            let Some((stem, cycle, is_tombstone)) = Stem::parse(&file_name) else { continue };
            let path = dir.join(&file_name);
            if Some(cycle) > named.map(|named| named.0) {
                fs.remove(&path).map_err(StateError::io("remove", &path))?;
                continue;
            }
            let file = fs.open(&path, OpenMode::Read).map_err(StateError::io("open", &path))?;
            let len = file.len().map_err(StateError::io("measure", &path))?;
            let items = state.keys.entry(stem.clone()).or_default();
            items.push(Item { cycle, is_tombstone, is_early: stem.is_early(), len });
        }
        let files = Self { fs, dir: dir.to_owned(), identity, state: Mutex::default() };
        files.know_early(&mut state)?;
        let mut found = Census::default();
        for (stem, items) in &mut state.keys {
            items.sort_by_key(|item| item.cycle);
            if items.len() > 1 || items.iter().any(|item| item.is_tombstone) {
                state.changed.insert(stem.clone());
            }
        }
        for (stem, items) in &state.keys {
            if let Some(newest) = items.last() {
                found.add(&state.name_of(stem, *newest), *newest);
            }
        }
        state.census = found;
        if let Some((_, census)) = named
            && census != found
        {
            let text = |census: Census| format!("{} with digest {:016x}", census.count, census.digest);
            return Err(StateError::corrupt(dir, 0, "files of live keys", text(census), text(found)));
        }
        Ok(Self { state: Mutex::new(state), ..files })
    }

    /// Puts files with names of earlier builds to their keys, which they hold.
    fn know_early(&self, state: &mut State) -> Result<(), StateError> {
        let early: Vec<Stem> = state.keys.keys().filter(|stem| stem.is_early()).cloned().collect();
        for stem in early {
            let Some(items) = state.keys.remove(&stem) else { continue };
            // Two keys that an earlier build took for one are one here: the newest.
            let Some(newest) = items.iter().max_by_key(|item| item.cycle).copied() else { continue };
            let path = self.dir.join(stem.file_name(newest.cycle, newest.is_tombstone));
            let now = Stem::of(&self.read_file(&path, newest.cycle)?.0);
            state.keys.entry(now.clone()).or_default().extend(items);
            state.early.insert(now, stem);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn well(&self) -> Result<MutexGuard<'_, State>, StateError> {
        let state = self.lock();
        match &state.poison {
            Some(reason) => Err(StateError::Poisoned { dir: self.dir.clone(), reason: reason.clone() }),
            None => Ok(state),
        }
    }

    /// Remembers a failure after which the state of the disk is unknown, or which left a slice half applied.
    fn note<T>(state: &mut State, result: Result<T, StateError>) -> Result<T, StateError> {
        if let Err(error @ StateError::Io(_)) = &result {
            state.poison = Some(error.to_string());
        }
        result
    }

    fn write_file(&self, state: &mut State, cycle: u64, change: Change<'_>) -> Result<(), StateError> {
        let stem = Stem::of(change.key);
        let is_tombstone = change.value.is_none();
        let bytes = encode(self.identity, cycle, change);
        let item = Item { cycle, is_tombstone, is_early: false, len: bytes.len() as u64 };
        let name = state.name_of(&stem, item);
        let path = self.dir.join(&name);
        let other = self.dir.join(stem.file_name(cycle, !is_tombstone));
        let file = self.fs.open(&path, OpenMode::Create).map_err(StateError::io("create", &path))?;
        file.write_all_at(&bytes, 0).map_err(StateError::io("write", &path))?;
        if let Some(before) = state.keys.get(&stem).and_then(|items| items.last()).copied() {
            let name = state.name_of(&stem, before);
            state.census.remove(&name, before);
        }
        let items = state.keys.entry(stem.clone()).or_default();
        if let Some(before) = items.pop_if(|item| item.cycle == cycle)
            && before.is_tombstone != is_tombstone
        {
            self.fs.remove(&other).map_err(StateError::io("remove", &other))?;
            state.dirty.remove(&other);
        }
        items.push(item);
        state.census.add(&name, item);
        state.dirty.insert(path);
        state.changed.insert(stem);
        Ok(())
    }

    fn sync(&self, state: &mut State) -> Result<(), StateError> {
        for path in &state.dirty {
            let file = self.fs.open(path, OpenMode::Write).map_err(StateError::io("open", path))?;
            file.sync_data().map_err(StateError::io("sync", path))?;
        }
        if !state.dirty.is_empty() || !state.hiding.is_empty() {
            self.fs.sync_dir(&self.dir).map_err(StateError::io("sync", &self.dir))?;
            state.needless.append(&mut state.hiding);
        }
        state.dirty.clear();
        Ok(())
    }

    /// Removes files that are older than the version of each key that counts at `cycle`. A tombstone goes after a sync
    /// of the folder later than its older versions, so that none of them comes back without it.
    fn tidy(&self, state: &mut State, cycle: u64) -> Result<(), StateError> {
        let remove = |path: &Path| self.fs.remove(path).map_err(StateError::io("remove", path));
        for path in std::mem::take(&mut state.needless) {
            remove(&path)?;
        }
        let mut waiting = BTreeSet::new();
        for stem in std::mem::take(&mut state.changed) {
            let Some(items) = state.keys.get_mut(&stem) else { continue };
            let newest = items.iter().rposition(|item| item.cycle <= cycle).unwrap_or(0);
            let older: Vec<Item> = items.drain(..newest).collect();
            let (first, count) = (items[0], items.len());
            for item in older {
                remove(&self.dir.join(state.name_of(&stem, item)))?;
            }
            if count > 1 || first.cycle > cycle {
                waiting.insert(stem);
                continue;
            }
            if first.is_tombstone {
                state.hiding.push(self.dir.join(state.name_of(&stem, first)));
                state.keys.remove(&stem);
            }
            if first.is_tombstone || !first.is_early {
                state.early.remove(&stem);
            }
        }
        state.changed = waiting;
        Ok(())
    }

    /// Key and value of a version of a key, which is the one that the name represents.
    fn read(&self, state: &State, stem: &Stem, item: Item) -> Result<(Vec<u8>, Vec<u8>), StateError> {
        let path = self.dir.join(state.name_of(stem, item));
        let (found, value) = self.read_file(&path, item.cycle)?;
        if Stem::of(&found) != *stem {
            let what = "key of the file";
            return Err(StateError::corrupt(&path, HEADER as u64, what, stem, Stem::of(&found)));
        }
        Ok((found, value))
    }

    /// Key and value of a file.
    fn read_file(&self, path: &Path, cycle: u64) -> Result<(Vec<u8>, Vec<u8>), StateError> {
        let file = self.fs.open(path, OpenMode::Read).map_err(StateError::io("open", path))?;
        let len = file.len().map_err(StateError::io("measure", path))?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0).map_err(StateError::io("read", path))?;
        let key_len = check(path, &bytes, self.identity, cycle)?;
        let value = bytes.split_off(HEADER + key_len);
        let key = bytes.split_off(HEADER);
        Ok((key, value))
    }
}

fn check_size(change: Change<'_>) -> Result<(), StateError> {
    let bytes = (HEADER + change.key.len() + change.value.map_or(0, <[u8]>::len)) as u64;
    let max = u64::from(u32::MAX);
    if bytes > max {
        return Err(StateError::TooLarge { what: "a value with its key", bytes, max });
    }
    Ok(())
}

/// The bytes of a file; lengths were checked.
fn encode(identity: u64, cycle: u64, change: Change<'_>) -> Vec<u8> {
    let value = change.value.unwrap_or_default();
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&identity.to_le_bytes());
    bytes.extend_from_slice(&cycle.to_le_bytes());
    bytes.extend_from_slice(&(change.key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(change.key);
    bytes.extend_from_slice(value);
    let crc = checksum(&bytes);
    bytes[CHECKSUM..HEADER].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..CHECKSUM]);
    hasher.update(&bytes[HEADER..]);
    hasher.finalize()
}

/// Checks a file; the length of its key.
fn check(path: &Path, bytes: &[u8], identity: u64, cycle: u64) -> Result<usize, StateError> {
    let mut fields = Fields::new(bytes);
    let (magic, format) = (fields.bytes(8), fields.u16());
    let mut head =
        || Some((fields.u16()?, fields.u64()?, fields.u64()?, fields.u32()?, fields.u32()?, fields.u32()?));
    let Some((_, found_identity, found_cycle, key_len, value_len, crc)) = head() else {
        return Err(StateError::corrupt(
            path,
            bytes.len() as u64,
            "bytes of the header",
            HEADER,
            bytes.len(),
        ));
    };
    let actual = checksum(bytes);
    if crc != actual {
        let (expected, got) = (format!("{crc:#010x}"), format!("{actual:#010x}"));
        return Err(StateError::corrupt(path, CHECKSUM as u64, "checksum", expected, got));
    }
    // Every version has its checksum there, so that a reader can distinguish a newer one from damage.
    if magic == Some(&MAGIC)
        && let Some(found) = format.filter(|format| *format > FORMAT)
    {
        let what = "a file of one key";
        return Err(StateError::NewerFormat { path: path.to_owned(), what, found, newest: FORMAT });
    }
    let (expected, got) =
        ((MAGIC.as_slice(), identity, cycle), (magic.unwrap_or_default(), found_identity, found_cycle));
    if expected != got {
        let text = |(magic, identity, cycle): (&[u8], u64, u64)| {
            format!("{magic:02x?}, task {identity:016x}, cycle {cycle}")
        };
        return Err(StateError::corrupt(path, 0, "identity of the file", text(expected), text(got)));
    }
    let (expected, got) = (HEADER as u64 + u64::from(key_len) + u64::from(value_len), bytes.len() as u64);
    if expected != got {
        return Err(StateError::corrupt(path, got, "length of the file", expected, got));
    }
    Ok(key_len as usize)
}

fn encode_version(cycle: u64, census: Census) -> Version {
    let mut bytes = VERSION_FORMAT.to_le_bytes().to_vec();
    for field in [cycle, census.count, census.digest] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    wire::seal(&mut bytes);
    Version::from_bytes(bytes)
}

fn decode_version(version: &Version, dir: &Path) -> Result<(u64, Census), StateError> {
    let bytes = version.as_bytes();
    let found = Fields::new(bytes).u16().unwrap_or_default();
    if found > VERSION_FORMAT {
        let (path, what) = (dir.to_owned(), "a version of keyed state");
        return Err(StateError::NewerFormat { path, what, found, newest: VERSION_FORMAT });
    }
    let decoded = wire::checked(bytes).ok().and_then(|content| {
        let mut fields = Fields::new(content);
        fields.u16().filter(|format| (1..=VERSION_FORMAT).contains(format))?;
        let named = (fields.u64()?, Census { count: fields.u64()?, digest: fields.u64()? });
        fields.rest().is_empty().then_some(named)
    });
    decoded.ok_or_else(|| StateError::Version {
        dir: dir.to_owned(),
        what: "layout",
        expected: "a version of one file per key".to_owned(),
        got: format!("{version:?}"),
    })
}

impl Backend for Files {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        let mut state = self.well()?;
        state.reads += 1;
        let stem = Stem::of(key);
        match state.keys.get(&stem).and_then(|items| items.last()).copied() {
            Some(item) if !item.is_tombstone => Ok(Some(self.read(&state, &stem, item)?.1)),
            _ => Ok(None),
        }
    }

    fn write(&self, cycle: u64, changes: &Changes) -> Result<(), StateError> {
        let mut state = self.well()?;
        state.cycles.check_write(cycle)?;
        for change in changes {
            check_size(change)?;
        }
        for change in changes {
            let result = self.write_file(&mut state, cycle, change);
            Self::note(&mut state, result)?;
        }
        state.cycles.wrote(cycle);
        state.writes += changes.len() as u64;
        Ok(())
    }

    fn prepare(&self, cycle: u64) -> Result<Version, StateError> {
        let mut state = self.well()?;
        state.cycles.check_prepare(cycle)?;
        let result = self.sync(&mut state);
        Self::note(&mut state, result)?;
        state.cycles.did_prepare(cycle);
        Ok(encode_version(cycle, state.census))
    }

    fn committed(&self, cycle: u64) -> Result<(), StateError> {
        let mut state = self.well()?;
        state.cycles.check_committed(cycle)?;
        let result = self.tidy(&mut state, cycle);
        Self::note(&mut state, result)?;
        state.cycles.did_commit(cycle);
        Ok(())
    }

    fn scan(&self, visit: &mut Visit<'_>) -> Result<(), StateError> {
        let stems: Vec<Stem> = self.well()?.keys.keys().cloned().collect();
        for stem in stems {
            let read = {
                let state = self.well()?;
                match state.keys.get(&stem).and_then(|items| items.last()).copied() {
                    Some(item) if !item.is_tombstone => self.read(&state, &stem, item)?,
                    _ => continue,
                }
            };
            if visit(&read.0, &read.1).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn stats(&self) -> BackendStats {
        let state = self.lock();
        let mut stats = BackendStats { reads: state.reads, writes: state.writes, ..BackendStats::default() };
        for (stem, items) in &state.keys {
            stats.index_bytes += (stem.len() + items.capacity() * size_of::<Item>()) as u64;
            stats.segments += items.len() as u64;
            stats.disk_bytes += items.iter().map(|item| item.len).sum::<u64>();
            if let Some(item) = items.last().filter(|item| !item.is_tombstone) {
                stats.keys += 1;
                stats.live_bytes += item.len;
            }
        }
        stats
    }
}
