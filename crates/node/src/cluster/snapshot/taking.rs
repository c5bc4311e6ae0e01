//! Takes the files of a unit at a commit: on the thread that commits, so it is quick. Each file of the unit's folder gets a
//! second name in a folder for snapshots; nothing is read or copied.
//!
//! What a file has beyond the bytes that the commit names does no harm: a start cuts it, as it does after a crash. So
//! the length at this moment is taken, and no byte after it is read: bytes that the commit names do not change, and a file
//! that is written whole under its name is another file under the second one.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use thalweg_flow::{CommitView, SourcePosition};
use thalweg_kafka::{Bus, TopicPartition};
use thalweg_types::Error;

use super::lineage::Lineage;
use super::manifest::Hash;
use super::upload::{Upload, state_of};
use super::{Snapshots, locked};
use crate::cluster::inbox::InboxCounts;
use crate::cluster::place::Place;

/// A unit whose snapshots are taken.
pub(in crate::cluster) struct UnitSnapshots {
    pub(super) shared: Arc<Snapshots>,
    pub(super) bus: Arc<dyn Bus>,
    pub(super) of: TopicPartition,
    pub(super) job: Arc<str>,
    pub(super) stage: Arc<str>,
    pub(super) partition: u32,
    pub(super) spec: u64,
    pub(super) lineage: Lineage,
    /// The unit's folder.
    pub(super) folder: PathBuf,
    /// Where its files get their second names.
    pub(super) taking: PathBuf,
    pub(super) counts: Arc<InboxCounts>,
    /// The plan in force gives the unit to this node.
    pub(super) is_planned: Arc<AtomicBool>,
    pub(super) last: Mutex<Last>,
    pub(super) known: Arc<Mutex<Known>>,
    pub(super) newest: Arc<Mutex<Option<Newest>>>,
}

/// Hashes of files as they were, by name in the unit's folder.
pub(super) type Known = HashMap<String, (FileState, Hash)>;

/// By what a file is known to be as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) inode: u64,
    pub(super) bytes: u64,
    /// Seconds and nanoseconds.
    pub(super) modified: (i64, i64),
}

/// The last snapshot that was begun.
pub(super) struct Last {
    pub(super) at: Instant,
    /// What the unit had read by then.
    pub(super) bytes: u64,
    pub(super) position: u64,
}

/// The newest snapshot of this process that is in the store.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Newest {
    pub(in crate::cluster) position: u64,
    pub(in crate::cluster) at: Instant,
}

/// A file that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TakenFile {
    /// In the unit's folder.
    pub(super) name: String,
    pub(super) bytes: u64,
}

impl UnitSnapshots {
    /// What hears of the unit's commits.
    pub(in crate::cluster) fn on_commit(self: &Arc<Self>) -> CommitView {
        let unit = Arc::clone(self);
        Arc::new(move |position| {
            if let Err(error) = unit.committed(position) {
                tracing::warn!(
                    unit = unit.name(),
                    error = error.chain(),
                    "no snapshot of a unit: the ones before it are as they were"
                );
            }
        })
    }

    pub(in crate::cluster) fn newest(&self) -> Option<Newest> {
        *locked(&self.newest)
    }

    pub(super) fn name(&self) -> String {
        format!("{}/{}/{}", self.job, self.stage, self.partition)
    }

    /// A commit of the unit is on the disk.
    fn committed(&self, position: &SourcePosition) -> Result<(), Error> {
        if !self.is_planned.load(Ordering::Relaxed) {
            return Ok(());
        }
        let place = Place::decode(&position.place)?;
        let at = place.position.offset;
        let read = self.counts.bytes.load(Ordering::Relaxed);
        let options = &self.shared.options;
        let mut last = locked(&self.last);
        let is_due = last.at.elapsed() >= options.every || read.saturating_sub(last.bytes) >= options.bytes;
        // A position inside a frame is never committed; were it, the log could not be read from there.
        if !is_due || at == last.position || place.position.row != 0 || !self.shared.take_turn() {
            return Ok(());
        }
        *last = Last { at: Instant::now(), bytes: read, position: at };
        drop(last);
        match take(&self.folder, &self.taking) {
            Ok(files) => {
                self.shared.hand(Upload {
                    unit: self.name(),
                    job: Arc::clone(&self.job),
                    stage: Arc::clone(&self.stage),
                    partition: self.partition,
                    spec: self.spec,
                    bus: Arc::clone(&self.bus),
                    of: self.of.clone(),
                    topic: place.topic,
                    position: at,
                    lineage: self.lineage,
                    folder: self.taking.clone(),
                    files,
                    is_planned: Arc::clone(&self.is_planned),
                    known: Arc::clone(&self.known),
                    newest: Arc::clone(&self.newest),
                });
                Ok(())
            }
            Err(error) => {
                self.shared.release();
                self.shared.counts.failed.fetch_add(1, Ordering::Relaxed);
                let _ = fs::remove_dir_all(&self.taking);
                Err(Error::disk(format!("name the files of {:?} in {:?}", self.folder, self.taking), error))
            }
        }
    }
}

/// How often all is named anew as tables change meanwhile, which takes them minutes.
const ATTEMPTS: usize = 5;

/// Names all files of `folder` in `into`, which is made anew.
///
/// The keeper of a table seals, merges and drops files on a thread of its own, and says so in the table's manifest before it
/// removes any: what was named while all manifests stayed as they were belongs together.
pub(super) fn take(folder: &Path, into: &Path) -> io::Result<Vec<TakenFile>> {
    let mut manifests = manifests_of(folder)?;
    for _ in 0..ATTEMPTS {
        match fs::remove_dir_all(into) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut files = Vec::new();
        take_folder(folder, into, "", &mut files)?;
        let now = manifests_of(folder)?;
        if now == manifests {
            files.sort_by(|one, other| one.name.cmp(&other.name));
            return Ok(files);
        }
        manifests = now;
    }
    Err(io::Error::other(format!(
        "tables in {folder:?} changed while their files were named, {ATTEMPTS} times"
    )))
}

/// How the manifests of all tables are.
fn manifests_of(folder: &Path) -> io::Result<BTreeMap<PathBuf, FileState>> {
    let tables = match fs::read_dir(folder.join("tables")) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        tables => tables?,
    };
    let mut manifests = BTreeMap::new();
    for table in tables {
        let path = table?.path().join("manifest");
        match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            about => {
                let state = state_of(&path, about?.len())?;
                manifests.insert(path, state);
            }
        }
    }
    Ok(manifests)
}

fn take_folder(folder: &Path, into: &Path, above: &str, files: &mut Vec<TakenFile>) -> io::Result<()> {
    fs::create_dir_all(into)?;
    // All names first: of two files, one of which is made when the other is full, the second is there only if the first is
    // whole, whose length is looked at later.
    let names: Vec<_> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<_, _>>()?;
    for name in names {
        let (from, to) = (folder.join(&name), into.join(&name));
        let text = name.to_str().ok_or_else(|| io::Error::other(format!("{from:?} is no text")))?;
        let text = if above.is_empty() { text.to_owned() } else { format!("{above}/{text}") };
        let about = match fs::metadata(&from) {
            // What this commit needs does not go: it was of a cycle that is open, or half a publication.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            about => about?,
        };
        if about.is_dir() {
            take_folder(&from, &to, &text, files)?;
            continue;
        }
        if !about.is_file() || text.ends_with(".tmp") {
            continue;
        }
        let named = match fs::hard_link(&from, &to) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            // Another file system, or one without second names.
            Err(_) => fs::copy(&from, &to).map(drop),
            named => named,
        };
        match named {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            named => named?,
        }
        files.push(TakenFile { name: text, bytes: fs::metadata(&to)?.len() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn files_are_kept_as_they_were_whatever_is_appended_replaced_or_removed() {
        let root = tempfile::tempdir().unwrap();
        let (unit, taking) = (root.path().join("unit"), root.path().join("taking"));
        fs::create_dir_all(unit.join("tasks/0")).unwrap();
        for (name, content) in
            [("commit.log", "first"), ("tasks/0/a", "one"), ("tasks/0/b.tmp", "half"), ("c", "x")]
        {
            fs::write(unit.join(name), content).unwrap();
        }
        fs::create_dir_all(&taking).unwrap();
        fs::write(taking.join("left by a crash"), "").unwrap();
        let files = take(&unit, &taking).unwrap();
        let named: Vec<(&str, u64)> = files.iter().map(|file| (file.name.as_str(), file.bytes)).collect();
        assert_eq!(named, [("c", 1), ("commit.log", 5), ("tasks/0/a", 3)]);
        assert!(!taking.join("left by a crash").exists());

        let mut log = fs::File::options().append(true).open(unit.join("commit.log")).unwrap();
        log.write_all(b" and more").unwrap();
        fs::write(unit.join("new"), "another").unwrap();
        fs::rename(unit.join("new"), unit.join("tasks/0/a")).unwrap();
        fs::remove_file(unit.join("c")).unwrap();
        let content = |name: &str| fs::read_to_string(taking.join(name)).unwrap();
        assert_eq!(&content("commit.log")[..5], "first", "up to the length that it had");
        assert_eq!((content("tasks/0/a"), content("c")), ("one".to_owned(), "x".to_owned()));
    }

    #[test]
    fn what_is_taken_of_a_table_is_what_its_manifest_names() {
        let root = tempfile::tempdir().unwrap();
        let (unit, taking) = (root.path().join("unit"), root.path().join("taking"));
        let table = unit.join("tables/rows");
        let rows = table.join("rows/2026-11-29");
        fs::create_dir_all(&rows).unwrap();
        let file = |number: u32| rows.join(format!("{number:08}.parquet"));
        fs::write(file(0), "rows").unwrap();
        fs::write(table.join("manifest"), "0").unwrap();
        let is_over = AtomicBool::new(false);
        let (mut taken, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // As a keeper merges: the new file, the manifest, and then the old one goes.
                let mut manifest = fs::File::options().append(true).open(table.join("manifest")).unwrap();
                for number in 0.. {
                    fs::write(file(number + 1), "rows").unwrap();
                    manifest.write_all(format!(" {}", number + 1).as_bytes()).unwrap();
                    fs::remove_file(file(number)).unwrap();
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
            });
            while taken < 200 {
                let Ok(files) = take(&unit, &taking) else {
                    refused += 1;
                    continue;
                };
                taken += 1;
                let length = |name: &str| files.iter().find(|file| file.name == name).map(|file| file.bytes);
                let bytes = length("tables/rows/manifest").unwrap() as usize;
                let manifest = fs::read(taking.join("tables/rows/manifest")).unwrap();
                let named = String::from_utf8(manifest[..bytes].to_vec()).unwrap();
                let newest: u32 = named.rsplit(' ').next().unwrap().parse().unwrap();
                let name = format!("tables/rows/rows/2026-11-29/{newest:08}.parquet");
                assert!(length(&name).is_some(), "{name} is not among {files:?} (after {refused} refusals)");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
