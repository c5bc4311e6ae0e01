//! The snapshots of a stage's units on one node: where they are on its disk, and which are being restored.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use thalweg_kafka::{Bus, TopicPartition};
use thalweg_storage::Fs;
use thalweg_types::Error;

use super::lineage::Lineage;
use super::restore::{Restore, remove};
use super::taking::{Last, UnitSnapshots};
use super::{Snapshots, locked};
use crate::cluster::inbox::InboxCounts;
use crate::data_dir::{JobDir, folder_name};

/// Units of a stage that are restored at once; the others wait.
const AT_ONCE: usize = 4;

pub(in crate::cluster) struct StageSnapshots {
    shared: Arc<Snapshots>,
    bus: Arc<dyn Bus>,
    fs: Arc<dyn Fs>,
    topic: Arc<str>,
    job: Arc<str>,
    stage: Arc<str>,
    folder: JobDir,
    is_over: Arc<AtomicBool>,
    restoring: Mutex<BTreeMap<u32, JoinHandle<Result<bool, Error>>>>,
}

/// What is known of a stage.
pub(in crate::cluster) struct OfStage {
    pub(in crate::cluster) bus: Arc<dyn Bus>,
    pub(in crate::cluster) fs: Arc<dyn Fs>,
    pub(in crate::cluster) topic: Arc<str>,
    pub(in crate::cluster) job: Arc<str>,
    pub(in crate::cluster) stage: Arc<str>,
    /// The job's.
    pub(in crate::cluster) folder: JobDir,
}

impl StageSnapshots {
    /// Removes what a process that died had on its way.
    ///
    /// # Errors
    /// The disk's.
    pub(in crate::cluster) fn open(shared: Arc<Snapshots>, of: OfStage) -> Result<Self, Error> {
        let OfStage { bus, fs, topic, job, stage, folder } = of;
        let (is_over, restoring) = Default::default();
        let opened = Self { shared, bus, fs, topic, job, stage, folder, is_over, restoring };
        remove(&opened.work())?;
        Ok(opened)
    }

    /// The folder for snapshots of the stage.
    fn work(&self) -> PathBuf {
        self.folder.path().join("snapshots").join(folder_name(&self.stage))
    }

    fn of(&self, partition: u32) -> Result<TopicPartition, Error> {
        let number = i32::try_from(partition).map_err(|_| Error::internal("a partition above 2^31 − 1"))?;
        Ok(TopicPartition::new(Arc::clone(&self.topic), number))
    }

    fn restore(&self, partition: u32) -> Result<Restore, Error> {
        let folder = self.folder.unit(&self.stage, partition)?.path().to_owned();
        let work = self.work().join(partition.to_string());
        Ok(Restore {
            shared: Arc::clone(&self.shared),
            bus: Arc::clone(&self.bus),
            fs: Arc::clone(&self.fs),
            of: self.of(partition)?,
            unit: format!("{}/{}/{partition}", self.job, self.stage),
            folder,
            restoring: work.join("restoring"),
            aside: work.join("aside"),
            is_over: Arc::clone(&self.is_over),
        })
    }

    /// Restores a unit that does not run, where it has to be, and waits for it.
    ///
    /// # Errors
    /// Where it can go on from nothing; damage, the disk's errors, those of brokers and the store.
    pub(in crate::cluster) fn restore_now(&self, partition: u32) -> Result<(), Error> {
        let restore = self.restore(partition)?;
        match restore.need()? {
            Some(need) => restore.run(need).map(drop),
            None => Ok(()),
        }
    }

    /// Whether a unit that does not run can start; while it is restored, on a thread of its own, it cannot.
    ///
    /// # Errors
    /// As [`StageSnapshots::restore_now`].
    pub(in crate::cluster) fn is_ready(&self, partition: u32) -> Result<bool, Error> {
        let mut restoring = locked(&self.restoring);
        if let Some(thread) = restoring.remove(&partition) {
            if !thread.is_finished() {
                restoring.insert(partition, thread);
                return Ok(false);
            }
            let panicked =
                |_| Err(Error::internal("a restore panicked: its message is in the log of the process"));
            return thread.join().unwrap_or_else(panicked).map(|_| true);
        }
        let restore = self.restore(partition)?;
        let Some(need) = restore.need()? else { return Ok(true) };
        if restoring.values().filter(|thread| !thread.is_finished()).count() < AT_ONCE {
            let name = format!("restore:{partition}");
            let spawned = std::thread::Builder::new().name(name).spawn(move || restore.run(need));
            let thread = spawned.map_err(|error| Error::external("start a thread").with_source(error))?;
            restoring.insert(partition, thread);
        }
        Ok(false)
    }

    pub(in crate::cluster) fn is_restoring(&self, partition: u32) -> bool {
        locked(&self.restoring).contains_key(&partition)
    }

    /// Begins a lineage of a unit that is about to start by a text of its job; it has been restored where it had to be.
    ///
    /// # Errors
    /// Damage, and the disk's errors.
    pub(in crate::cluster) fn begin(
        &self,
        partition: u32,
        text: u64,
        counts: &Arc<InboxCounts>,
        is_planned: &Arc<AtomicBool>,
    ) -> Result<Arc<UnitSnapshots>, Error> {
        let restore = self.restore(partition)?;
        let position = restore.own_position()?.unwrap_or(0);
        let lineage = Lineage::begin(&*self.fs, &restore.folder, position)?;
        Ok(Arc::new(UnitSnapshots {
            shared: Arc::clone(&self.shared),
            bus: Arc::clone(&self.bus),
            of: restore.of,
            job: Arc::clone(&self.job),
            stage: Arc::clone(&self.stage),
            partition,
            spec: text,
            lineage,
            folder: restore.folder,
            taking: self.work().join(partition.to_string()).join("taking"),
            counts: Arc::clone(counts),
            is_planned: Arc::clone(is_planned),
            last: Mutex::new(Last { at: Instant::now(), bytes: 0, position }),
            known: Arc::default(),
            newest: Arc::default(),
        }))
    }
}

impl Drop for StageSnapshots {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut *locked(&self.restoring)).into_values() {
            let _ = thread.join();
        }
    }
}
