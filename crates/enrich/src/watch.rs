//! A table that is loaded again when its files change.
//!
//! Whoever uses the table also polls it, about as often as it likes; [`Watched::poll`] neither reads files nor
//! waits.
//! A thread of each table's own looks at the files at most once a second, loads them where they have changed,
//! and hands over the new table, which the next poll puts in place.
//! Where the files are wrong, the old table stays, and one warning says why; it is tried again when they change.
//!
//! A table that was loaded from files that changed meanwhile is thrown away, and loaded again.
//! That does not find every file that is written in place; put files in place by renaming.

use std::fs::{self, Metadata};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::SystemTime;

use thalweg_types::{Error, Micros};

/// Least time between two looks at the files.
const CHECK_EVERY: Micros = 1_000_000;

/// The properties that distinguish one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// `None` where the file system keeps no such time.
    pub modified: Option<SystemTime>,
    pub size: u64,
    /// 0 where there are no inodes.
    pub inode: u64,
}

impl FileIdentity {
    pub fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(metadata);
        #[cfg(not(unix))]
        let inode = 0;
        Self { modified: metadata.modified().ok(), size: metadata.len(), inode }
    }

    /// `None` where there is no file, or none that may be looked at.
    fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

/// A table, and the thread that loads it again; the thread ends when this is dropped.
pub struct Watched<T> {
    /// Held for a few instructions at a time, so that [`Watched::current`] does not wait.
    state: Mutex<State<T>>,
    /// Room for one: a check that is asked for while another goes on is not needed.
    checks: SyncSender<()>,
}

struct State<T> {
    current: Arc<T>,
    loaded_at: Micros,
    checked_at: Micros,
    is_checking: bool,
    reload_count: u64,
    failed_reload_count: u64,
    replies: Receiver<Reply<T>>,
}

/// What a look at the files came to.
enum Reply<T> {
    Unchanged,
    Loaded(Arc<T>),
    Failed,
}

/// How a watched table fares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchMetrics {
    /// Since the table in use was put in place.
    pub age_seconds: f64,
    pub reload_count: u64,
    pub failed_reload_count: u64,
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Loads the table and begins to watch its files; `name` is the table's in the log.
    ///
    /// # Errors
    /// What `load` gives, and where there can be no thread.
    pub fn open(
        name: impl Into<String>,
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<T, Error> + Send + 'static,
        now: Micros,
    ) -> Result<Self, Error> {
        // Looked at before, so that a change meanwhile is seen at the first check.
        let seen = identities(&files);
        let current = Arc::new(load()?);
        let (checks, wanted) = sync_channel(1);
        let (replying, replies) = channel();
        let watcher = Watcher { name: name.into(), files, seen, load };
        thread::Builder::new()
            .name(format!("watch:{}", watcher.name.replace('\0', "")))
            .spawn(move || watcher.run(&wanted, &replying))
            .map_err(|error| Error::external("start a thread that watches a table").with_source(error))?;
        let state = State {
            current,
            loaded_at: now,
            checked_at: now,
            is_checking: false,
            reload_count: 0,
            failed_reload_count: 0,
            replies,
        };
        Ok(Self { state: Mutex::new(state), checks })
    }

    /// The table in use.
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.lock().current)
    }

    /// Puts a table that was loaded meanwhile in place, and asks for a look at the files where one is due.
    ///
    /// Returns at once, and says whether there is another table now.
    pub fn poll(&self, now: Micros) -> bool {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread polls.
            Err(TryLockError::WouldBlock) => return false,
        };
        let old = state.replies.try_recv().ok().and_then(|reply| state.take(reply, now));
        // A clock that was put back must not keep the files from being looked at.
        let is_due = now < state.checked_at || now - state.checked_at >= CHECK_EVERY;
        if is_due && !state.is_checking {
            state.is_checking = self.checks.try_send(()).is_ok();
            state.checked_at = now;
        }
        // To free a large table takes a while, so it waits until others can get at the new one.
        drop(state);
        old.is_some()
    }

    pub fn metrics(&self, now: Micros) -> WatchMetrics {
        let state = self.lock();
        WatchMetrics {
            age_seconds: (now - state.loaded_at).max(0) as f64 / 1e6,
            reload_count: state.reload_count,
            failed_reload_count: state.failed_reload_count,
        }
    }

    /// No code that may panic runs under the lock, so that what it guards is whole all the same.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    /// Gives back the table that is out of use.
    fn take(&mut self, reply: Reply<T>, now: Micros) -> Option<Arc<T>> {
        self.is_checking = false;
        match reply {
            Reply::Unchanged => None,
            Reply::Failed => {
                self.failed_reload_count += 1;
                None
            }
            Reply::Loaded(table) => {
                self.reload_count += 1;
                self.loaded_at = now;
                Some(std::mem::replace(&mut self.current, table))
            }
        }
    }
}

/// What the thread of a table owns.
struct Watcher<F> {
    name: String,
    files: Vec<PathBuf>,
    /// The files as they were when they were last loaded, or found to be wrong.
    seen: Vec<Option<FileIdentity>>,
    load: F,
}

impl<F> Watcher<F> {
    fn run<T>(mut self, wanted: &Receiver<()>, replies: &Sender<Reply<T>>)
    where
        F: Fn() -> Result<T, Error>,
    {
        while wanted.recv().is_ok() {
            let reply = self.check();
            if replies.send(reply).is_err() {
                return;
            }
        }
    }

    fn check<T>(&mut self) -> Reply<T>
    where
        F: Fn() -> Result<T, Error>,
    {
        let before = identities(&self.files);
        if before == self.seen {
            return Reply::Unchanged;
        }
        let loaded = catch_unwind(AssertUnwindSafe(&self.load))
            .unwrap_or_else(|_| Err(Error::internal("loading the table panicked")));
        if identities(&self.files) != before {
            return Reply::Unchanged;
        }
        self.seen = before;
        match loaded {
            Ok(table) => {
                tracing::info!(table = self.name, "loaded a table again");
                Reply::Loaded(Arc::new(table))
            }
            Err(error) => {
                let hint = error.hint().unwrap_or_default();
                tracing::warn!(table = self.name, error = error.chain(), hint, "kept the old table");
                Reply::Failed
            }
        }
    }
}

fn identities(files: &[PathBuf]) -> Vec<Option<FileIdentity>> {
    files.iter().map(|path| FileIdentity::at(path)).collect()
}

#[cfg(test)]
mod tests;
