//! A disk in memory that loses unsynced writes on a crash.
//!
//! Each name points to a node, each node holds its bytes. Of both there are two versions: what a reader sees
//! now, and what a crash leaves. `sync_data` makes a node's bytes the latter, `sync_dir` a directory's names.
//! A directory's own name is one of those in the directory above it: a crash takes one that was not synced, with all that
//! is in it. The root and the working directory are there.
//!
//! Invariant: handles from before a crash fail afterwards, as those of a dead process do.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;

use super::{File, Fs, OpenMode};

/// A file system in memory; clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemFs(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    /// Crashes so far; handles of an earlier one are dead.
    generation: u64,
    next_node: u64,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    dirs: BTreeSet<PathBuf>,
    durable_dirs: BTreeSet<PathBuf>,
    nodes: BTreeMap<u64, Node>,
}

#[derive(Debug, Default)]
struct Node {
    bytes: Vec<u8>,
    /// What was there before each unsynced change, oldest first: undone in reverse by a crash.
    undo: Vec<Undo>,
    /// The bytes on the disk, if a failed sync left it older than readers see: syncs bring it only bytes written
    /// since.
    behind: Option<Vec<u8>>,
}

/// A change of `bytes[position..]`: the length before it, the bytes that it overwrote or cut, and where what it wrote
/// ends (`None`: it cut).
#[derive(Debug)]
struct Undo {
    len: usize,
    position: usize,
    old: Vec<u8>,
    end: Option<usize>,
}

impl Node {
    fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// The bytes without the unsynced changes.
    fn synced(&self) -> Vec<u8> {
        let mut synced = self.bytes.clone();
        for undo in self.undo.iter().rev() {
            synced.truncate(undo.len);
            synced.resize(undo.len, 0);
            synced[undo.position..undo.position + undo.old.len()].copy_from_slice(&undo.old);
        }
        synced
    }

    fn sync(&mut self) {
        let Self { bytes, undo, behind } = self;
        for change in undo.drain(..) {
            let Some(image) = behind else { continue };
            match change.end {
                None => image.truncate(change.position),
                Some(end) => {
                    let range = change.position.min(bytes.len())..end.min(bytes.len());
                    image.resize(image.len().max(range.end), 0);
                    image[range.clone()].copy_from_slice(&bytes[range]);
                }
            }
        }
    }
}

#[derive(Debug)]
struct MemFile {
    disk: Arc<Mutex<Disk>>,
    generation: u64,
    node: u64,
    writable: bool,
}

impl MemFs {
    pub fn new() -> Self {
        Self::default()
    }

    /// Power cut: everything that was not synced is gone, names as well as bytes.
    pub fn crash(&self) {
        self.lock().crash(|_| false);
    }

    /// Power cut in which parts of the unsynced bytes arrived: each 512-byte sector and each name on its own,
    /// as `seed` decides.
    pub fn crash_torn(&self, seed: u64) {
        let mut random = Rng::with_seed(seed);
        self.lock().crash(|_| random.bool());
    }

    /// The bytes of a file as readers see them.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let disk = self.lock();
        Ok(disk.nodes[&disk.find(path)?].bytes.clone())
    }

    /// Replaces a file's bytes on the disk itself, synced: how tests damage a file.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_bytes(&self, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
        let mut disk = self.lock();
        let node = disk.find(path)?;
        disk.nodes.insert(node, Node::of(bytes));
        Ok(())
    }

    /// Imitates a failed sync after which the kernel calls the pages clean: readers go on to see bytes that were not
    /// synced, the disk does not have it, and no later sync brings it there.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn lose_unsynced(&self, path: &Path) -> io::Result<()> {
        let disk = &mut *self.lock();
        let node = disk.find(path)?;
        if let Some(node) = disk.nodes.get_mut(&node) {
            let synced = node.synced();
            node.behind.get_or_insert(synced);
            node.undo.clear();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Directories that are always there.
fn is_root(path: &Path) -> bool {
    path.as_os_str().is_empty() || path.parent().is_none()
}

impl Disk {
    fn has_dir(&self, path: &Path) -> bool {
        is_root(path) || self.dirs.contains(path)
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// `arrived` decides for each unsynced name and sector whether it had reached the disk.
    fn crash(&mut self, mut arrived: impl FnMut(usize) -> bool) {
        self.generation += 1;
        // In order, so that a directory comes before those in it.
        let mut dirs = BTreeSet::new();
        for path in self.dirs.union(&self.durable_dirs) {
            let (is_now, is_durable) = (self.dirs.contains(path), self.durable_dirs.contains(path));
            let survives = if is_now != is_durable && arrived(0) { is_now } else { is_durable };
            if survives && path.parent().is_none_or(|above| is_root(above) || dirs.contains(above)) {
                dirs.insert(path.clone());
            }
        }
        self.dirs.clone_from(&dirs);
        self.durable_dirs = dirs;
        let all: BTreeSet<PathBuf> = self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        let mut left = BTreeMap::new();
        for path in all {
            let (now, durable) = (self.names.get(&path), self.durable_names.get(&path));
            let survivor = if now != durable && arrived(0) { now } else { durable };
            if let Some(node) = survivor
                && path.parent().is_none_or(|above| is_root(above) || self.dirs.contains(above))
            {
                left.insert(path, *node);
            }
        }
        self.nodes.retain(|id, _| left.values().any(|node| node == id));
        for node in self.nodes.values_mut() {
            if let Some(image) = node.behind.take() {
                *node = Node::of(image);
                continue;
            }
            let mut synced = node.synced();
            node.undo.clear();
            let changed = std::mem::take(&mut node.bytes);
            for start in (0..changed.len()).step_by(512) {
                let end = changed.len().min(start + 512);
                let same = synced.get(start..end) == Some(&changed[start..end]);
                if !same && arrived(start) {
                    if synced.len() < end {
                        synced.resize(end, 0);
                    }
                    synced[start..end].copy_from_slice(&changed[start..end]);
                }
            }
            node.bytes = synced;
        }
        self.names.clone_from(&left);
        self.durable_names = left;
    }
}

impl Fs for MemFs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut disk = self.lock();
        let node = match (disk.names.get(path).copied(), mode) {
            (None, OpenMode::Read | OpenMode::Write) => return Err(io::ErrorKind::NotFound.into()),
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(node), OpenMode::Read | OpenMode::Write) => node,
            (_, OpenMode::Create | OpenMode::CreateNew) => {
                if let Some(parent) = path.parent()
                    && !disk.has_dir(parent)
                {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let node = disk.next_node;
                disk.next_node += 1;
                disk.nodes.insert(node, Node::default());
                disk.names.insert(path.to_owned(), node);
                node
            }
        };
        let generation = disk.generation;
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(MemFile { disk: Arc::clone(&self.0), generation, node, writable }))
    }

    fn is_dir(&self, path: &Path) -> io::Result<bool> {
        Ok(self.lock().has_dir(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        if disk.has_dir(path) || disk.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if path.parent().is_some_and(|above| !disk.has_dir(above)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.dirs.insert(path.to_owned());
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let disk = self.lock();
        if !disk.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(disk
            .names
            .keys()
            .filter(|path| path.parent() == Some(dir))
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect())
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        let disk = self.lock();
        if !disk.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let below = disk.dirs.iter().filter(|path| path.parent() == Some(dir));
        Ok(below.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        let node = disk.find(from)?;
        disk.names.remove(from);
        disk.names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        disk.find(path)?;
        disk.names.remove(path);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        if disk.names.keys().any(|name| name.starts_with(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if disk.dirs.remove(path) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let disk = &mut *self.lock();
        if !disk.has_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.durable_names.retain(|path, _| path.parent() != Some(dir));
        for (path, node) in disk.names.iter().filter(|(path, _)| path.parent() == Some(dir)) {
            disk.durable_names.insert(path.clone(), *node);
        }
        disk.durable_dirs.retain(|path| path.parent() != Some(dir));
        disk.durable_dirs.extend(disk.dirs.iter().filter(|path| path.parent() == Some(dir)).cloned());
        Ok(())
    }
}

impl MemFile {
    fn with<T>(&self, act: impl FnOnce(&mut Node) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if disk.generation != self.generation {
            return Err(io::Error::other("file handle from before the crash"));
        }
        act(disk.nodes.get_mut(&self.node).expect("a node lives as long as the generation of its handles"))
    }

    fn change<T>(&self, act: impl FnOnce(&mut Node) -> T) -> io::Result<T> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.with(|node| Ok(act(node)))
    }
}

impl File for MemFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.with(|node| {
            let start = usize::try_from(position).unwrap_or(usize::MAX).min(node.bytes.len());
            let count = buffer.len().min(node.bytes.len() - start);
            buffer[..count].copy_from_slice(&node.bytes[start..start + count]);
            Ok(count)
        })
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        let position = usize::try_from(position).map_err(io::Error::other)?;
        self.change(|node| {
            let len = node.bytes.len();
            let end = position + bytes.len();
            let start = position.min(len);
            node.undo.push(Undo {
                len,
                position: start,
                old: node.bytes[start..end.min(len)].to_vec(),
                end: Some(end),
            });
            if len < end {
                node.bytes.resize(end, 0);
            }
            node.bytes[position..end].copy_from_slice(bytes);
            bytes.len()
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|node| Ok(node.bytes.len() as u64))
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.change(|node| {
            let before = node.bytes.len();
            let start = len.min(before);
            node.undo.push(Undo {
                len: before,
                position: start,
                old: node.bytes[start..].to_vec(),
                end: None,
            });
            node.bytes.resize(len, 0);
        })
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let wanted = usize::try_from(len).map_err(io::Error::other)?;
        self.change(|node| {
            let before = node.bytes.len();
            if before < wanted {
                node.undo.push(Undo { len: before, position: before, old: Vec::new(), end: Some(wanted) });
                node.bytes.resize(wanted, 0);
            }
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|node| {
            node.sync();
            Ok(())
        })
    }
}
