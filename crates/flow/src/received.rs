//! Records as their sources received them, for an operator that refuses one further down.
//!
//! A block is kept from the moment it is numbered until the operator at which all rejects end has passed its numbers
//! ([`crate::Output::forget_received`]): up to then any task may find one of its records late. So what a task finds depends
//! on the order alone, and not on how far others are.
//!
//! Invariants
//! * Blocks are in the order of their numbers.
//! * Sources are held while blocks of more than [`MOST_BYTES`] are kept. Numbered blocks go on meanwhile, and are
//!   passed. A task that waits for a time or a number of records would not go on: such a job keeps no blocks
//!   ([`crate::JobOptions::keep_received`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use thalweg_types::{Seq, SeqRange};

use crate::{Payload, RawBlock};

/// Bytes of blocks that may be kept: more than are on their way through the rings of a job of usual size.
const MOST_BYTES: usize = 64 << 20;

/// What a block takes in addition to its bytes.
const BLOCK: usize = 256;

/// A record as its source received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub bytes: Bytes,
    /// Line in the file, from 1, where the source has lines.
    pub line: Option<u64>,
    /// The file, where the source has several.
    pub file: Option<Arc<str>>,
}

/// The place of a record in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedPlace {
    pub start: usize,
    pub end: usize,
    /// Line ends before it in the block.
    pub lines: u64,
}

/// Finds the records of a source in its blocks.
pub trait FindReceived: Send + Sync {
    /// The place of each record in a block of bytes, in order.
    fn places(&self, block: &RawBlock) -> Vec<ReceivedPlace>;

    /// Number of the block's first line in its file, from 1; `None` where lines have no place.
    fn first_line(&self, block: &RawBlock) -> Option<u64>;

    /// The file, or the like, that a record of a block is from, by its number there; `None` where its source has one
    /// file, or none.
    fn file(&self, block: &RawBlock, index: u32) -> Option<Arc<str>> {
        let _ = (block, index);
        None
    }
}

struct Kept {
    range: SeqRange,
    block: RawBlock,
    find: Arc<dyn FindReceived>,
    /// Found out with the first record that is asked for.
    places: OnceLock<Vec<ReceivedPlace>>,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.block.payload.len() + BLOCK
    }

    fn record(&self, seq: Seq) -> Option<Received> {
        let Payload::Bytes { data, .. } = &self.block.payload else { return None };
        let places = self.places.get_or_init(|| self.find.places(&self.block));
        let index = u32::try_from(seq - self.range.start).ok()?;
        let place = places.get(index as usize)?;
        let line = self.find.first_line(&self.block).map(|first| first + place.lines);
        let bytes = data.slice(place.start..place.end);
        Some(Received { bytes, line, file: self.find.file(&self.block, index) })
    }
}

#[derive(Default)]
struct Blocks {
    kept: VecDeque<Arc<Kept>>,
    bytes: usize,
    /// No record is late any more.
    is_closed: bool,
}

/// The blocks of a job that are kept.
#[derive(Default)]
pub(crate) struct ReceivedBlocks {
    /// Held for moments.
    blocks: Mutex<Blocks>,
    /// Relaxed: it orders nothing, and the sequencer is woken after it is taken back.
    is_full: AtomicBool,
}

impl ReceivedBlocks {
    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, range: SeqRange, block: &RawBlock, find: &Arc<dyn FindReceived>) {
        let (block, find) = (block.clone(), Arc::clone(find));
        let kept = Kept { range, block, find, places: OnceLock::new() };
        let mut blocks = self.lock();
        if blocks.is_closed {
            return;
        }
        blocks.bytes += kept.bytes();
        blocks.kept.push_back(Arc::new(kept));
        if blocks.bytes > MOST_BYTES {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    /// A record by its order number, if its block is kept.
    pub(crate) fn find(&self, seq: Seq) -> Option<Received> {
        let blocks = self.lock();
        let after = blocks.kept.partition_point(|kept| kept.range.start <= seq);
        let kept = Arc::clone(blocks.kept.get(after.checked_sub(1)?)?);
        drop(blocks);
        if kept.range.contains(seq) { kept.record(seq) } else { None }
    }

    /// Drops the blocks whose numbers are all below `end`; returns whether held sources may go on.
    pub(crate) fn forget(&self, end: Seq) -> bool {
        let mut blocks = self.lock();
        while blocks.kept.front().is_some_and(|kept| kept.range.end <= end) {
            let Some(kept) = blocks.kept.pop_front() else { break };
            blocks.bytes -= kept.bytes();
        }
        blocks.bytes <= MOST_BYTES && self.is_full.swap(false, Ordering::Relaxed)
    }

    /// Drops all blocks and keeps no more: nobody passes them once a job only reads, or has ended. Held sources may go
    /// on.
    pub(crate) fn close(&self) {
        let mut blocks = self.lock();
        *blocks = Blocks { is_closed: true, ..Blocks::default() };
        self.is_full.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of three bytes.
    struct Threes;

    impl FindReceived for Threes {
        fn places(&self, block: &RawBlock) -> Vec<ReceivedPlace> {
            let place = |at: usize| ReceivedPlace { start: 3 * at, end: 3 * at + 3, lines: at as u64 };
            (0..block.count as usize).map(place).collect()
        }

        fn first_line(&self, block: &RawBlock) -> Option<u64> {
            Some(block.first + 1)
        }

        fn file(&self, _: &RawBlock, _: u32) -> Option<Arc<str>> {
            Some("three".into())
        }
    }

    fn push(blocks: &ReceivedBlocks, first: Seq, text: &[u8]) {
        let count = (text.len() / 3) as u32;
        let payload = Payload::Bytes { data: Bytes::copy_from_slice(text), context: None };
        let block = RawBlock { partition: 0, first: 10, count, payload };
        let find: Arc<dyn FindReceived> = Arc::new(Threes);
        blocks.push(SeqRange::new(first, first + u64::from(count)), &block, &find);
    }

    #[test]
    fn a_record_is_found_until_its_block_is_passed() {
        let blocks = ReceivedBlocks::default();
        push(&blocks, 5, b"aaabbb");
        push(&blocks, 9, b"ccc");
        let file: Arc<str> = "three".into();
        let record = |text: &'static [u8], line| {
            Some(Received { bytes: text.into(), line: Some(line), file: Some(Arc::clone(&file)) })
        };
        assert_eq!(blocks.find(4), None);
        assert_eq!(blocks.find(5), record(b"aaa", 11));
        assert_eq!(blocks.find(6), record(b"bbb", 12));
        assert_eq!(blocks.find(7), None, "a tick is no record");
        assert_eq!(blocks.find(9), record(b"ccc", 11));
        assert!(!blocks.forget(6), "nobody was held");
        assert_eq!(blocks.find(5), record(b"aaa", 11));
        blocks.forget(7);
        assert_eq!(blocks.find(6), None);
        assert_eq!(blocks.find(9), record(b"ccc", 11));
    }

    #[test]
    fn blocks_are_kept_up_to_a_bound() {
        let blocks = ReceivedBlocks::default();
        let large = vec![b'x'; 30 << 20];
        push(&blocks, 0, &large);
        push(&blocks, 20 << 20, &large);
        assert!(!blocks.is_full());
        push(&blocks, 40 << 20, &large);
        assert!(blocks.is_full());
        assert!(blocks.forget(20 << 20), "whoever was held may go on");
        assert!(!blocks.is_full());
        assert!(!blocks.forget(60 << 20));
        for at in 4..7 {
            push(&blocks, at * (20 << 20), &large);
        }
        assert!(blocks.is_full());
        blocks.close();
        assert!(!blocks.is_full(), "nobody passes kept blocks");
        for at in 7..10 {
            push(&blocks, at * (20 << 20), &large);
        }
        assert!(!blocks.is_full());
        assert_eq!(blocks.find(7 * (20 << 20)), None);
    }
}
