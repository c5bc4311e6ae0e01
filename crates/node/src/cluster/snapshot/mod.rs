//! Snapshots of units: copies of their folders in a store that outlives nodes, so that a unit whose folder is lost does not
//! read its log from the beginning, and the beginning of the log may be deleted.
//!
//! ```text
//! commit thread: [`taking`]  after a commit, where one is due: the folder's files get second names
//! one thread:    [`upload`]  puts what the store lacks, then the manifest
//!                [`collect`] deletes what no kept snapshot needs, in the store and in the log
//! a start:       [`restore`] fetches the newest one into a folder that is empty, or too old for the log
//! ```
//!
//! Invariants
//! * All files of a manifest are those of one commit of one lineage. They are named on the thread that commits, before the
//!   next commit can begin: until then no file that this one needs is removed, and files only grow.
//! * A manifest is put after all of its files.
//! * What is deleted in the store and in the log hangs on manifests that are there with all their files, and on nothing
//!   that a node believes: two nodes that both take themselves for the active one do no harm.
//!
//! Not here: who is active (`host`), where a unit may go on (`inbox`). Files of units are read through the system's calls and
//! not through [`thalweg_storage::Fs`], which has no second names.

mod collect;
mod lineage;
mod manifest;
mod restore;
mod stage;
mod store;
mod taking;
mod upload;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_types::Error;

pub(super) use stage::{OfStage, StageSnapshots};
pub use store::{FolderStore, Kept, Store, StoreAddress};
pub(super) use taking::UnitSnapshots;
use upload::Upload;

/// When snapshots are taken, and how long what they leave is kept.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotOptions {
    /// A unit's next one is due after so long.
    pub every: Duration,
    /// Or once the unit has read so many bytes of its log.
    pub bytes: u64,
    /// Files of the store that are younger than this are not deleted: somebody may be about to name them.
    pub age: Duration,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self { every: Duration::from_secs(300), bytes: 1 << 30, age: Duration::from_secs(3_600) }
    }
}

/// What snapshots on this node have come to. Relaxed throughout: figures, nothing hangs on them.
#[derive(Debug, Default)]
pub struct SnapshotCounts {
    /// Snapshots that are in the store.
    pub taken: AtomicU64,
    /// Snapshots that failed.
    pub failed: AtomicU64,
    /// Snapshots that were due while another one was on its way.
    pub skipped: AtomicU64,
    /// Files that were copied to the store, and files that were there.
    pub put: AtomicU64,
    pub reused: AtomicU64,
    /// Files and manifests that were deleted in the store.
    pub deleted: AtomicU64,
    /// Units that were restored.
    pub restored: AtomicU64,
    /// Bytes that restores have still to fetch.
    pub restore_left: AtomicU64,
}

/// The snapshots of all units on a node: one is on its way to the store at a time.
pub struct Snapshots {
    store: Arc<dyn Store>,
    options: SnapshotOptions,
    pub counts: Arc<SnapshotCounts>,
    /// One is on its way.
    is_busy: Arc<AtomicBool>,
    /// The node ends: what is on its way is given up.
    is_over: Arc<AtomicBool>,
    to: Mutex<Option<SyncSender<Box<Upload>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Snapshots {
    /// # Errors
    /// A lack of threads.
    pub fn start(store: Arc<dyn Store>, options: SnapshotOptions) -> Result<Arc<Self>, Error> {
        let (to, from) = sync_channel(1);
        let (is_busy, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let counts = Arc::<SnapshotCounts>::default();
        let uploader = Uploader {
            store: Arc::clone(&store),
            options,
            counts: Arc::clone(&counts),
            is_busy: Arc::clone(&is_busy),
            is_over: Arc::clone(&is_over),
        };
        let spawned =
            std::thread::Builder::new().name("snapshots".to_owned()).spawn(move || uploader.run(&from));
        let thread =
            spawned.map_err(|error| Error::external("start a thread for snapshots").with_source(error))?;
        let (to, thread) = (Mutex::new(Some(to)), Mutex::new(Some(thread)));
        Ok(Arc::new(Self { store, options, counts, is_busy, is_over, to, thread }))
    }

    /// Whether nothing is on its way to the store.
    pub fn is_idle(&self) -> bool {
        !self.is_busy.load(Ordering::Acquire)
    }

    /// Takes the turn, if it is free; [`Snapshots::hand`] or [`Snapshots::release`] follows.
    fn take_turn(&self) -> bool {
        let is_free = self.is_busy.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !is_free {
            self.counts.skipped.fetch_add(1, Ordering::Relaxed);
        }
        is_free
    }

    fn release(&self) {
        self.is_busy.store(false, Ordering::Release);
    }

    /// Hands a snapshot over to the thread; only who has the turn does.
    fn hand(&self, upload: Upload) {
        let sent = locked(&self.to).as_ref().map(|to| to.try_send(Box::new(upload)).is_ok());
        if sent != Some(true) {
            self.release();
        }
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        locked(&self.to).take();
        if let Some(thread) = locked(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread has.
struct Uploader {
    store: Arc<dyn Store>,
    options: SnapshotOptions,
    counts: Arc<SnapshotCounts>,
    is_busy: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Uploader {
    /// The life of the thread.
    fn run(&self, from: &Receiver<Box<Upload>>) {
        while let Ok(upload) = from.recv() {
            if !self.is_over.load(Ordering::Relaxed) {
                self.one(*upload);
            }
            self.is_busy.store(false, Ordering::Release);
        }
    }

    fn one(&self, upload: Upload) {
        let unit = upload.unit.clone();
        let done = upload.run(self).and_then(|()| {
            self.counts.taken.fetch_add(1, Ordering::Relaxed);
            if upload.is_active() { collect::collect(self, &upload) } else { Ok(()) }
        });
        upload.clear();
        if let Err(error) = done
            && !self.is_over.load(Ordering::Relaxed)
        {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                unit,
                error = error.chain(),
                "a snapshot fails: the ones before it are as they were"
            );
        }
    }
}
