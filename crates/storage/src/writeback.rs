//! Syncs in the background: the disk is asked to write bytes before anybody waits for them.
//!
//! A log that seldom syncs would wait at the end of its segment for all of it, and state of which much has changed at
//! the end of the cycle. The bytes are the same, the disk only begins earlier. It promises nothing: bytes that a sync
//! covers are synced when [`Writeback::poll`] says so, and a caller that relies on them waits for the one under way
//! first, as its error is reported once, to the next caller.
//!
//! One sync at a time, on a thread that is started for the first.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use crate::File;

/// The syncs of one writer. Dropping it waits for the one under way, whose outcome is lost.
#[derive(Debug, Default)]
pub struct Writeback {
    worker: Option<Worker>,
    /// What the sync under way covers.
    under_way: Option<u64>,
}

#[derive(Debug)]
struct Worker {
    /// `None` tells the thread to end.
    files: Option<SyncSender<Arc<dyn File>>>,
    outcomes: Receiver<io::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start() -> io::Result<Self> {
        let (files, wanted) = sync_channel::<Arc<dyn File>>(1);
        let (done, outcomes) = sync_channel(1);
        let thread = std::thread::Builder::new().name("thalweg-sync".to_owned()).spawn(move || {
            while let Ok(file) = wanted.recv() {
                if done.send(file.sync_data()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { files: Some(files), outcomes, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.files = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Writeback {
    /// Begins to sync a file that is written up to `end`, unless a sync is under way or the operating system gives no
    /// thread for it; whether it has begun. Where it has not, the sync that is waited for does it all.
    pub fn begin(&mut self, file: &Arc<dyn File>, end: u64) -> bool {
        if self.under_way.is_some() {
            return false;
        }
        let worker = match &mut self.worker {
            Some(worker) => worker,
            none => match Worker::start() {
                Ok(worker) => none.insert(worker),
                Err(error) => {
                    tracing::debug!(%error, "no thread for syncs in the background");
                    return false;
                }
            },
        };
        // There is room: nothing is under way. A thread that is gone is found by `poll`.
        let sent = worker.files.as_ref().is_some_and(|files| files.send(Arc::clone(file)).is_ok());
        self.under_way = sent.then_some(end);
        sent
    }

    /// Whether a sync has ended since the last look: up to where all is synced now.
    ///
    /// # Errors
    /// That of the sync.
    pub fn poll(&mut self) -> io::Result<Option<u64>> {
        if self.under_way.is_none() {
            return Ok(None);
        }
        let outcome = match &self.worker {
            Some(worker) => worker.outcomes.try_recv(),
            None => Err(TryRecvError::Disconnected),
        };
        match outcome {
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => self.end(Err(gone())),
            Ok(outcome) => self.end(outcome),
        }
    }

    /// Waits for the sync under way: up to where all is synced now.
    ///
    /// # Errors
    /// That of the sync.
    pub fn wait(&mut self) -> io::Result<Option<u64>> {
        if self.under_way.is_none() {
            return Ok(None);
        }
        let outcome = self.worker.as_ref().and_then(|worker| worker.outcomes.recv().ok());
        self.end(outcome.unwrap_or_else(|| Err(gone())))
    }

    fn end(&mut self, outcome: io::Result<()>) -> io::Result<Option<u64>> {
        let end = self.under_way.take();
        outcome.map(|()| end)
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that syncs in the background ended")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Fault, FaultKind, FaultyFs, Fs, MemFs, OpenMode};

    fn file(fault: Option<Fault>) -> (MemFs, Arc<dyn File>) {
        let disk = MemFs::new();
        let file =
            FaultyFs::new(Arc::new(disk.clone()), fault).open(Path::new("a"), OpenMode::Create).unwrap();
        (disk, file)
    }

    #[test]
    fn one_sync_at_a_time_says_what_it_covers_once() {
        let (_, file) = file(None);
        let mut writeback = Writeback::default();
        assert_eq!((writeback.poll().unwrap(), writeback.wait().unwrap()), (None, None));
        assert!(writeback.begin(&file, 10));
        assert!(!writeback.begin(&file, 20), "the first is not known to have ended");
        assert_eq!((writeback.wait().unwrap(), writeback.wait().unwrap()), (Some(10), None));
        assert!(writeback.begin(&file, 30));
        let covered = loop {
            if let Some(covered) = writeback.poll().unwrap() {
                break covered;
            }
            std::thread::yield_now();
        };
        assert_eq!(covered, 30);
    }

    #[test]
    fn the_error_of_a_sync_comes_out_once_and_a_thread_that_is_gone_is_one() {
        // Opening is the first call, the sync the second.
        let (_, file) = file(Some(Fault { call: 2, kind: FaultKind::Eio, stays: false }));
        let mut writeback = Writeback::default();
        assert!(writeback.begin(&file, 10));
        assert!(writeback.wait().is_err());
        assert_eq!(writeback.wait().unwrap(), None);

        let (done, outcomes) = sync_channel(1);
        drop(done);
        writeback.worker = Some(Worker { files: None, outcomes, thread: None });
        assert!(!writeback.begin(&file, 10));
        writeback.under_way = Some(10);
        assert!(writeback.poll().unwrap_err().to_string().contains("ended"));
    }
}
