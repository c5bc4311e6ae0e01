//! A scan of a task's back end that runs while the task works, and reads its state back after a lazy start.
//!
//! One thread reads; at most [`AHEAD`] blocks are read and not taken by the task. It ends with the scan,
//! or when no more is needed.
//!
//! Not here: which of it the task takes: [`Keyed::fill`](crate::Keyed::fill), or the stages of windows.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use thalweg_types::Error;

use crate::{Backend, Changes};

/// Bytes of a block: some hundred keys, a fraction of a millisecond to take over.
const BLOCK: usize = 64 << 10;
/// Blocks that are read ahead; the scan waits when they are full.
const AHEAD: usize = 8;

type Read = Result<Changes, Error>;

/// See the module.
#[derive(Debug)]
pub struct Filling {
    /// `None` only while it is dropped.
    blocks: Option<mpsc::Receiver<Read>>,
    thread: Option<JoinHandle<()>>,
}

/// What comes next of a scan.
#[derive(Debug)]
pub enum Block {
    Entries(Changes),
    NotYet,
    Failed(Error),
    End,
}

impl Filling {
    /// Reads the keys that `is_wanted`.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn begin(backend: Arc<dyn Backend>, is_wanted: fn(&[u8]) -> bool) -> Result<Self, Error> {
        let (send, blocks) = mpsc::sync_channel(AHEAD);
        let thread = std::thread::Builder::new()
            .name("thalweg-fill".to_owned())
            .spawn(move || read(backend.as_ref(), is_wanted, &send))
            .map_err(|error| Error::internal(format!("start a thread that reads state back: {error}")))?;
        Ok(Self { blocks: Some(blocks), thread: Some(thread) })
    }

    /// What has been read by now.
    pub fn poll(&mut self) -> Block {
        let next =
            self.blocks.as_ref().map_or(Err(mpsc::TryRecvError::Disconnected), mpsc::Receiver::try_recv);
        match next {
            Ok(Ok(entries)) => Block::Entries(entries),
            Ok(Err(error)) => Block::Failed(error),
            Err(mpsc::TryRecvError::Empty) => Block::NotYet,
            // The thread has ended: as it should, or by a panic, after which entries would be missing.
            Err(mpsc::TryRecvError::Disconnected) => match self.thread.take().map(JoinHandle::join) {
                Some(Err(_)) => Block::Failed(Error::internal("the thread that reads state back panicked")),
                _ => Block::End,
            },
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
            tracing::error!("the thread that reads state back panicked");
        }
    }
}

fn read(backend: &dyn Backend, is_wanted: fn(&[u8]) -> bool, send: &mpsc::SyncSender<Read>) {
    let mut block = Changes::new();
    let outcome = backend.scan(&mut |key, value| {
        if is_wanted(key) {
            block.push(key, value);
        }
        if block.byte_len() >= BLOCK && send.send(Ok(std::mem::take(&mut block))).is_err() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    // Without a receiver there is no task that it could concern.
    let _ = match outcome {
        Ok(()) => send.send(Ok(block)),
        Err(error) => send.send(Err(error.into())),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, MemoryDisk};

    /// Everything that comes out of a scan of one key.
    fn all(is_wanted: fn(&[u8]) -> bool) -> Vec<Block> {
        let backend = Memory::open(&MemoryDisk::new(), None).unwrap();
        let mut changes = Changes::new();
        changes.push(b"key", b"value");
        backend.write(1, &changes).unwrap();
        let mut filling = Filling::begin(Arc::new(backend), is_wanted).unwrap();
        let mut blocks = Vec::new();
        loop {
            match filling.poll() {
                Block::NotYet => std::thread::yield_now(),
                last @ (Block::End | Block::Failed(_)) => {
                    blocks.push(last);
                    return blocks;
                }
                entries => blocks.push(entries),
            }
        }
    }

    #[test]
    fn a_scan_ends_with_its_last_block_and_a_panic_in_it_is_a_failure() {
        let blocks = all(|_| true);
        assert!(
            matches!(blocks.as_slice(), [Block::Entries(entries), Block::End] if entries.len() == 1),
            "{blocks:?}"
        );
        let blocks = all(|_| panic!("of the test"));
        assert!(
            matches!(blocks.as_slice(), [Block::Failed(error)] if error.to_string().contains("panicked")),
            "{blocks:?}"
        );
    }
}
