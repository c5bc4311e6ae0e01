//! A scan of a stage's back end that runs beside the stage and brings it its groups after a lazy start.
//!
//! One thread reads; what it has read and the stage has not taken is at most [`AHEAD`] blocks. It ends with the scan,
//! or when nobody wants more.
//!
//! Not here: which of the groups the stage takes (`thalweg_window::stage`).

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use thalweg_state::{Backend, Changes};
use thalweg_types::Error;
use thalweg_window::stage::is_group;

/// Bytes of a block: some hundred groups, a fraction of a millisecond to take over.
const BLOCK: usize = 64 << 10;
/// Blocks that are read ahead; the scan waits when they are full.
const AHEAD: usize = 8;

type Read = Result<Changes, Error>;

pub(super) struct Filling {
    /// `None` only while it is dropped.
    blocks: Option<mpsc::Receiver<Read>>,
    thread: Option<JoinHandle<()>>,
}

/// What comes next of a scan.
pub(super) enum Block {
    Entries(Changes),
    NotYet,
    Failed(Error),
    End,
}

impl Filling {
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn begin(backend: Arc<dyn Backend>) -> Result<Self, Error> {
        let (send, blocks) = mpsc::sync_channel(AHEAD);
        let thread = std::thread::Builder::new()
            .name("thalweg-fill".to_owned())
            .spawn(move || read(backend.as_ref(), &send))
            .map_err(|error| Error::internal(format!("start a thread that reads groups back: {error}")))?;
        Ok(Self { blocks: Some(blocks), thread: Some(thread) })
    }

    pub(super) fn next(&mut self) -> Block {
        let next =
            self.blocks.as_ref().map_or(Err(mpsc::TryRecvError::Disconnected), mpsc::Receiver::try_recv);
        match next {
            Ok(Ok(entries)) => Block::Entries(entries),
            Ok(Err(error)) => Block::Failed(error),
            Err(mpsc::TryRecvError::Empty) => Block::NotYet,
            Err(mpsc::TryRecvError::Disconnected) => Block::End,
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        // Nobody takes more, so the thread ends at its next block.
        self.blocks = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reads groups back panicked");
        }
    }
}

fn read(backend: &dyn Backend, send: &mpsc::SyncSender<Read>) {
    let mut block = Changes::new();
    let outcome = backend.scan(&mut |key, value| {
        if is_group(key) {
            block.push(key, value);
        }
        if block.byte_len() >= BLOCK && send.send(Ok(std::mem::take(&mut block))).is_err() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    // Where nobody takes it, nobody is left whom it could concern.
    let _ = match outcome {
        Ok(()) => send.send(Ok(block)),
        Err(error) => send.send(Err(error.into())),
    };
}
