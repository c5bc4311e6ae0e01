//! Where the rows of a unit came from: the source notes it, the sinks at the unit's end ask for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_cluster::frame::Reply;
use thalweg_cluster::positions::Position;
use thalweg_types::{Micros, Seq, SeqRange};

use super::inbox::TakenFrame;

/// Rows of a block that was told, and the frames that they are in.
type Block = (SeqRange, Arc<Vec<TakenFrame>>);

/// The rows of a unit that its sinks have not had. What is noted is bounded by what is in flight in the job.
#[derive(Debug, Default)]
pub(super) struct Arrived(Mutex<VecDeque<Block>>);

/// Where a row came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct From {
    pub(super) position: Position,
    pub(super) arrival: Micros,
    pub(super) reply: Option<Reply>,
}

impl Arrived {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Block>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, range: SeqRange, frames: &Arc<Vec<TakenFrame>>) {
        self.lock().push_back((range, Arc::clone(frames)));
    }

    pub(super) fn is_any_in(&self, range: SeqRange) -> bool {
        let held = self.lock();
        held.front().is_some_and(|(first, _)| first.start < range.end)
            && held.back().is_some_and(|(last, _)| last.end > range.start)
    }

    /// Where rows came from, asked for in ascending order; it holds what it looks at.
    pub(super) fn walk(&self) -> Walk<'_> {
        Walk { held: self.lock(), block: 0, frame: 0, passed: 0 }
    }

    /// Rows below `end` are asked for no more.
    pub(super) fn forget(&self, end: Seq) {
        let mut held = self.lock();
        while held.front().is_some_and(|(range, _)| range.end <= end) {
            held.pop_front();
        }
    }
}

pub(super) struct Walk<'a> {
    held: MutexGuard<'a, VecDeque<Block>>,
    block: usize,
    frame: usize,
    /// Rows of the block before the frame.
    passed: usize,
}

impl Walk<'_> {
    /// Where a row came from that is not below the one that was asked for before; `None` where nothing was noted.
    pub(super) fn at(&mut self, row: Seq) -> Option<From> {
        while self.held.get(self.block).is_some_and(|(range, _)| range.end <= row) {
            (self.block, self.frame, self.passed) = (self.block + 1, 0, 0);
        }
        let (range, frames) = self.held.get(self.block).filter(|(range, _)| range.contains(row))?;
        let row = usize::try_from(row - range.start).ok()?;
        loop {
            let TakenFrame { offset, frame, skipped, .. } = frames.get(self.frame)?;
            let rows = frame.len() - skipped;
            if row < self.passed + rows {
                let at = skipped + row - self.passed;
                let places = &frame.places;
                return Some(From {
                    position: Position { offset: *offset, row: u32::try_from(at).ok()? },
                    arrival: *places.arrivals.get(at)?,
                    reply: places.replies.get(at).cloned().flatten(),
                });
            }
            (self.frame, self.passed) = (self.frame + 1, self.passed + rows);
        }
    }
}
