//! Brings a snapshot that was taken into the store: the files that it lacks, then the manifest.
//!
//! A file that is in the store is used again, and made young: nobody deletes young files, so it is there until the
//! manifest names it. Where that takes long, all files are made young once more.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use thalweg_kafka::{Bus, TopicId, TopicPartition};
use thalweg_types::Error;

use super::lineage::Lineage;
use super::manifest::{Area, Hash, Hashing, Manifest, ManifestFile, manifest_name};
use super::taking::{FileState, Known, Newest, TakenFile};
use super::{Uploader, locked};

/// How often a file is tried that changes between hashing and copying.
const TRIES: usize = 5;

/// A file that was written within this many seconds before it was hashed is hashed again next time: clocks of file systems
/// are coarse, and it may have been written once more in the same tick.
const SETTLED: i64 = 3;

/// A snapshot on its way.
pub(super) struct Upload {
    /// JOB/STAGE/PARTITION.
    pub(super) unit: String,
    pub(super) job: Arc<str>,
    pub(super) stage: Arc<str>,
    pub(super) partition: u32,
    pub(super) spec: u64,
    pub(super) bus: Arc<dyn Bus>,
    pub(super) of: TopicPartition,
    pub(super) topic: Option<TopicId>,
    pub(super) position: u64,
    pub(super) lineage: Lineage,
    /// Where the files have their second names.
    pub(super) folder: PathBuf,
    pub(super) files: Vec<TakenFile>,
    pub(super) is_planned: Arc<AtomicBool>,
    pub(super) known: Arc<Mutex<Known>>,
    pub(super) newest: Arc<Mutex<Option<Newest>>>,
}

impl Upload {
    pub(super) fn area(&self) -> Area {
        Area::new(&self.of, self.topic)
    }

    pub(super) fn manifest_name(&self) -> String {
        manifest_name(self.position, self.lineage.id)
    }

    /// Whether the plan in force still gives the unit to this node.
    pub(super) fn is_active(&self) -> bool {
        self.is_planned.load(Ordering::Relaxed)
    }

    /// # Errors
    /// Those of the disk and the store; then the store has no manifest of this one.
    pub(super) fn run(&self, uploader: &Uploader) -> Result<(), Error> {
        let began = Instant::now();
        let area = self.area();
        let in_store = |action: &str, name: &str, error: io::Error| {
            Error::external(format!("{action} {name:?} in the store of snapshots")).with_source(error)
        };
        let listed =
            uploader.store.list(&area.files()).map_err(|error| in_store("list", &area.files(), error))?;
        let stored: BTreeMap<String, u64> = listed.into_iter().map(|kept| (kept.name, kept.bytes)).collect();
        let mut files = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let hash = self.put(uploader, &area, &stored, file)?;
            files.push(ManifestFile { name: file.name.clone(), bytes: file.bytes, hash });
        }
        // Names that are not there any more would be kept for nothing.
        locked(&self.known).retain(|name, _| self.files.iter().any(|file| file.name == *name));
        if began.elapsed() >= uploader.options.age / 2 {
            for file in &files {
                let name = area.file(&file.hash.0);
                let is_there =
                    uploader.store.refresh(&name).map_err(|error| in_store("make young", &name, error))?;
                if !is_there {
                    return Err(Error::external(format!(
                        "file {name:?} of the store of snapshots was deleted while a snapshot was made"
                    ))
                    .with_hint("nobody but the nodes of this cluster may delete there"));
                }
            }
        }
        let manifest = Manifest {
            version: Manifest::new_version(),
            job: self.job.to_string(),
            stage: self.stage.to_string(),
            partition: self.partition,
            spec: self.spec,
            topic: self.of.topic.to_string(),
            topic_id: self.topic.map(|id| id.to_string()),
            position: self.position,
            lineage: self.lineage,
            files,
        };
        let name = area.manifest(&self.manifest_name());
        uploader
            .store
            .put(&name, &mut manifest.encode()?.as_slice())
            .map_err(|error| in_store("put", &name, error))?;
        *locked(&self.newest) = Some(Newest { position: self.position, at: Instant::now() });
        tracing::debug!(
            unit = self.unit,
            position = self.position,
            files = self.files.len(),
            "a snapshot is in the store"
        );
        Ok(())
    }

    /// Has the store have a file.
    fn put(
        &self,
        uploader: &Uploader,
        area: &Area,
        stored: &BTreeMap<String, u64>,
        file: &TakenFile,
    ) -> Result<Hash, Error> {
        let path = self.folder.join(&file.name);
        let failed = |action: &str, error: io::Error| Error::disk(format!("{action} {path:?}"), error);
        let open = || {
            let is_over = Arc::clone(&uploader.is_over);
            let content = File::open(&path)?;
            Ok(Hashing::new(content, file.bytes, move || is_over.load(Ordering::Relaxed)))
        };
        let mut tries = 0;
        loop {
            let state = state_of(&path, file.bytes).map_err(|error| failed("look at", error))?;
            // Before it is read: a write that comes later has another time.
            let is_settled = is_settled(state);
            let known = locked(&self.known).get(&file.name).filter(|(known, _)| *known == state).cloned();
            let hash = match known {
                Some((_, hash)) => hash,
                None => open().and_then(Hashing::hash).map_err(|error| failed("read", error))?,
            };
            let name = area.file(&hash.0);
            let failed = |error: io::Error| {
                Error::external(format!("put {name:?} into the store of snapshots")).with_source(error)
            };
            if stored.get(&hash.0) == Some(&file.bytes) && uploader.store.refresh(&name).map_err(failed)? {
                uploader.counts.reused.fetch_add(1, Ordering::Relaxed);
            } else {
                let content = open().map(|content| content.expecting(hash.clone()));
                match content.and_then(|mut content| uploader.store.put(&name, &mut content)) {
                    Ok(()) => {
                        uploader.counts.put.fetch_add(1, Ordering::Relaxed);
                    }
                    // Bytes that the commit does not name were written meanwhile.
                    Err(error) if error.kind() == ErrorKind::InvalidData && tries < TRIES => {
                        tries += 1;
                        locked(&self.known).remove(&file.name);
                        continue;
                    }
                    Err(error) => return Err(failed(error)),
                }
            }
            if is_settled {
                locked(&self.known).insert(file.name.clone(), (state, hash.clone()));
            }
            return Ok(hash);
        }
    }

    /// Removes the second names.
    pub(super) fn clear(&self) {
        if let Err(error) = fs::remove_dir_all(&self.folder)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.folder.display(), %error, "what a snapshot was made from is left: a start removes it");
        }
    }
}

/// What a file is known by, of which `bytes` are taken.
pub(super) fn state_of(path: &std::path::Path, bytes: u64) -> io::Result<FileState> {
    let about = fs::metadata(path)?;
    Ok(FileState { inode: about.ino(), bytes, modified: (about.mtime(), about.mtime_nsec()) })
}

/// Whether a file was last written so long ago that another write would have another time.
fn is_settled(state: FileState) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    i64::try_from(now).is_ok_and(|now| now.saturating_sub(state.modified.0) > SETTLED)
}
