//! Brings a unit's folder back from the store, where there is none, or one that is too old for what the log still has.
//!
//! Files are fetched into a folder for snapshots and hashed on the way; then the folder takes the place of the unit's. The unit
//! goes on from its commit as after any start, with the same checks. A snapshot that is damaged is passed over for the next
//! older one.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_kafka::{Bounds, Bus, TopicId, TopicPartition};
use thalweg_storage::Fs;
use thalweg_types::Error;

use super::Snapshots;
use super::manifest::{Area, Hashing, Manifest, ManifestFile, position_of};
use crate::cluster::place::Place;
use crate::data_dir::JobDir;
use crate::durable;

/// A unit that may have to be restored.
#[derive(Clone)]
pub(super) struct Restore {
    pub(super) shared: Arc<Snapshots>,
    pub(super) bus: Arc<dyn Bus>,
    pub(super) fs: Arc<dyn Fs>,
    pub(super) of: TopicPartition,
    /// JOB/STAGE/PARTITION, as the commit log has it.
    pub(super) unit: String,
    pub(super) folder: PathBuf,
    /// Where files are fetched to.
    pub(super) restoring: PathBuf,
    /// Where the folder goes that is too old.
    pub(super) aside: PathBuf,
    pub(super) is_over: Arc<AtomicBool>,
}

/// Why a unit cannot go on from its own folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// Where its own last commit is.
    own: Option<u64>,
    /// The first offset that the log has.
    start: u64,
    topic: Option<TopicId>,
}

/// Bytes of a restore that are left; they are none of the node's when this goes.
struct Left<'a>(&'a Snapshots, u64);

impl Left<'_> {
    fn took(&mut self, bytes: u64) {
        let bytes = bytes.min(self.1);
        self.1 -= bytes;
        self.0.counts.restore_left.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.took(self.1);
    }
}

impl Restore {
    /// Where the last commit of the unit's own folder is; `None` where it has none that says more than that it begins.
    ///
    /// # Errors
    /// Damage, and the disk's errors.
    pub(super) fn own_position(&self) -> Result<Option<u64>, Error> {
        let record = durable::look(&*self.fs, &self.unit, &JobDir::at(&self.folder))?;
        let Some(source) = record.as_ref().and_then(|record| record.sources.first()) else { return Ok(None) };
        if source.place.0.is_empty() {
            return Ok(None);
        }
        let place = Place::decode(&source.place.0)?;
        Ok(Some(place.position.offset).filter(|offset| *offset > 0))
    }

    /// What the unit needs before it can start; `None`: nothing.
    ///
    /// # Errors
    /// Damage, the disk's errors, those of brokers.
    pub(super) fn need(&self) -> Result<Option<Need>, Error> {
        let own = self.own_position()?;
        let Bounds { start, .. } = self.bus.bounds(&self.of)?;
        let start = u64::try_from(start).unwrap_or(0);
        if own.is_some_and(|own| own >= start) {
            return Ok(None);
        }
        let topics = self.bus.topics(Some(&[Arc::clone(&self.of.topic)]))?;
        Ok(Some(Need { own, start, topic: topics.first().and_then(|topic| topic.id) }))
    }

    /// Brings the newest snapshot that can be used; `false` if there is none, and the unit can read its log from the beginning.
    ///
    /// # Errors
    /// Where it cannot, those of the store, the disk's errors.
    pub(super) fn run(&self, need: Need) -> Result<bool, Error> {
        let area = Area::new(&self.of, need.topic);
        let store = &*self.shared.store;
        let listed = store.list(&area.manifests());
        let mut names: Vec<(u64, String)> = match listed {
            Ok(listed) => {
                let named = listed.into_iter().filter_map(|kept| Some((position_of(&kept.name)?, kept.name)));
                named.collect()
            }
            Err(error) if need.start == 0 && need.own.is_none() => {
                tracing::warn!(unit = self.unit, %error, "the store of snapshots does not answer: the unit reads its log from the beginning");
                return Ok(false);
            }
            Err(error) => {
                let what = format!("list {:?} in the store of snapshots", area.manifests());
                return Err(Error::external(what).with_source(error));
            }
        };
        names.sort();
        let mut why = Vec::new();
        for (position, name) in names.iter().rev() {
            if *position < need.start {
                why.push(format!("{name} is older than the log"));
                break;
            }
            match self.one(&area, name) {
                Ok(bytes) => {
                    let own = need.own;
                    tracing::info!(unit = self.unit, position, bytes, own, "restored a unit from a snapshot");
                    self.shared.counts.restored.fetch_add(1, Ordering::Relaxed);
                    return Ok(true);
                }
                Err(error) if self.is_over.load(Ordering::Relaxed) => return Err(error),
                // A disk that is full is none of the snapshot's faults.
                Err(error) if error.is_disk_full() => return Err(error),
                Err(error) => {
                    let error = error.chain();
                    tracing::warn!(
                        unit = self.unit,
                        name,
                        error,
                        "a snapshot cannot be used: the one before it is tried"
                    );
                    why.push(format!("{name}: {error}"));
                }
            }
        }
        if need.start == 0 && need.own.is_none() {
            return Ok(false);
        }
        let has = need.own.map_or("no data of it".to_owned(), |own| format!("its data up to offset {own}"));
        let found = if why.is_empty() { "none is there".to_owned() } else { why.join("; ") };
        Err(Error::corrupt(format!(
            "unit {} cannot go on: {} begins at offset {}, this node has {has}, and no snapshot of it can be used: {found}",
            self.unit, self.of, need.start
        ))
        .with_hint(
            "bring the unit's folder back from a node that has it, or its files in the store of snapshots from a copy",
        ))
    }

    /// Fetches one snapshot, and puts it in the place of the unit's folder; its bytes.
    fn one(&self, area: &Area, name: &str) -> Result<u64, Error> {
        let store = &*self.shared.store;
        let get = |name: &str| {
            store.get(name).map_err(|error| {
                Error::external(format!("get {name:?} from the store of snapshots")).with_source(error)
            })
        };
        let manifest = Manifest::read(&mut *get(&area.manifest(name))?)
            .map_err(|error| Error::corrupt("the manifest cannot be read").with_source(error))?;
        let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
        self.shared.counts.restore_left.fetch_add(bytes, Ordering::Relaxed);
        let mut left = Left(&self.shared, bytes);
        remove(&self.restoring)?;
        for file in &manifest.files {
            let content = get(&area.file(&file.hash.0))?;
            self.fetch(file, content).map_err(|error| {
                let full = thalweg_types::is_disk_full(&error);
                let what = format!("fetch {:?} (file {} of the store of snapshots)", file.name, file.hash.0);
                if full { Error::disk(what, error) } else { Error::external(what).with_source(error) }
            })?;
            left.took(file.bytes);
        }
        let failed = |error: io::Error| Error::disk(format!("put {:?} in its place", self.folder), error);
        sync_folders(&self.restoring).map_err(failed)?;
        let at = Self { folder: self.restoring.clone(), ..self.clone() }.own_position()?;
        if at != Some(manifest.position) {
            return Err(Error::corrupt(format!(
                "expected files of the commit at offset {}, got {at:?}",
                manifest.position
            )));
        }
        remove(&self.aside)?;
        match fs::rename(&self.folder, &self.aside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        fs::rename(&self.restoring, &self.folder).map_err(failed)?;
        for path in [&self.folder, &self.restoring] {
            let above = path.parent().unwrap_or(path);
            File::open(above).and_then(|above| above.sync_all()).map_err(failed)?;
        }
        remove(&self.aside)?;
        Ok(bytes)
    }

    fn fetch(&self, file: &ManifestFile, content: Box<dyn io::Read + Send>) -> io::Result<()> {
        let path = self.restoring.join(&file.name);
        fs::create_dir_all(path.parent().unwrap_or(&self.restoring))?;
        let is_over = Arc::clone(&self.is_over);
        let stop = move || is_over.load(Ordering::Relaxed);
        let mut content = Hashing::new(content, file.bytes, stop).expecting(file.hash.clone());
        let mut to = File::create_new(&path)?;
        io::copy(&mut content, &mut to)?;
        to.sync_all()
    }
}

/// Removes a folder, if it is there.
pub(super) fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::disk(format!("remove {folder:?}"), error))
        }
        _ => Ok(()),
    }
}

fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}
