//! Where the rows of a unit came from: the source notes it, the sinks at the unit's end ask for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_cluster::frame::Reply;
use thalweg_cluster::positions::Position;
use thalweg_connect::source::kafka::TopicPlaces;
use thalweg_types::{Micros, Seq, SeqRange};

use super::inbox::TakenFrame;

/// Rows of a block that was told, and what they came in.
#[derive(Debug)]
struct Block {
    range: SeqRange,
    came: Came,
}

#[derive(Debug)]
enum Came {
    /// Frames of a log; a client may wait for answers to them, where it `is_waited_for`.
    Frames { frames: Arc<Vec<TakenFrame>>, is_waited_for: bool },
    /// Messages of a topic that others write; when they came.
    Messages(TopicPlaces, Micros),
    /// A tick: where the rows are that it makes, and when it was.
    Tick(Position, Micros),
}

impl Block {
    /// Its frames, if a client may wait for answers to some of their rows.
    fn waited_for(&self) -> Option<&[TakenFrame]> {
        match &self.came {
            Came::Frames { frames, is_waited_for: true } => Some(frames),
            _ => None,
        }
    }
}

/// Who asks where rows came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asker {
    /// Sends rows to the next stage.
    Outlet,
    /// Sends answers to doors.
    Answers,
    /// Writes to another system, by its number among those that do.
    Sink(usize),
}

/// The rows of a unit that its sinks have not had. What is noted is bounded by what is in flight in the job.
#[derive(Debug)]
pub(super) struct Arrived {
    blocks: Mutex<VecDeque<Block>>,
    /// Rows below are asked for no more by an asker. Held for moments, and after `blocks`.
    passed: Mutex<BTreeMap<Asker, Seq>>,
    /// The order of the unit is its own, and is kept: a row is where it is in that, and nothing is noted.
    is_order: bool,
}

/// Where a row came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct From {
    pub(super) position: Position,
    /// `None` where nobody noted it.
    pub(super) arrival: Option<Micros>,
    pub(super) reply: Option<Reply>,
}

impl Arrived {
    /// For those who will ask.
    pub(super) fn new(askers: impl IntoIterator<Item = Asker>) -> Self {
        let passed = askers.into_iter().map(|asker| (asker, 0)).collect();
        Self { blocks: Mutex::default(), passed: Mutex::new(passed), is_order: false }
    }

    /// Of a unit that has sources of the job, and an order log: rows come out with the same numbers after a crash.
    pub(super) fn in_order() -> Self {
        Self { blocks: Mutex::default(), passed: Mutex::default(), is_order: true }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Block>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, range: SeqRange, frames: &Arc<Vec<TakenFrame>>, is_waited_for: bool) {
        let came = Came::Frames { frames: Arc::clone(frames), is_waited_for };
        self.lock().push_back(Block { range, came });
    }

    /// Notes records of a topic that others write, which came at `now`.
    pub(super) fn note_messages(&self, range: SeqRange, places: TopicPlaces, now: Micros) {
        self.lock().push_back(Block { range, came: Came::Messages(places, now) });
    }

    /// Notes the tick with this number, at `now`.
    pub(super) fn note_tick(&self, seq: Seq, position: Position, now: Micros) {
        let came = Came::Tick(position, now);
        self.lock().push_back(Block { range: SeqRange::new(seq, seq + 1), came });
    }

    /// Whether a client may wait for answers to some of these rows.
    pub(super) fn is_waited_for(&self, range: SeqRange) -> bool {
        let held = self.lock();
        let mut inside = held.iter().skip_while(|block| block.range.end <= range.start);
        inside.any(|block| block.waited_for().is_some() && block.range.start < range.end)
    }

    /// The rows in `range` for which a client may wait, in ascending order.
    pub(super) fn replies_in(&self, range: SeqRange) -> Vec<(Seq, Reply)> {
        let held = self.lock();
        let mut found = Vec::new();
        for block in &*held {
            let mut seq = block.range.start;
            for TakenFrame { frame, skipped, .. } in block.waited_for().into_iter().flatten() {
                for at in *skipped..frame.len() {
                    if let Some(reply) = frame.places.replies.get(at).cloned().flatten()
                        && range.contains(seq)
                    {
                        found.push((seq, reply));
                    }
                    seq += 1;
                }
            }
        }
        found
    }

    /// Where rows came from, asked for in ascending order; it holds what it looks at.
    pub(super) fn walk(&self) -> Walk<'_> {
        Walk { held: self.lock(), is_order: self.is_order, block: 0, frame: 0, passed: 0 }
    }

    /// Where the last row below `end` came from, if it is known still.
    pub(super) fn last_below(&self, end: Seq) -> Option<Position> {
        let mut walk = self.walk();
        let block = walk.held.iter().rev().find(|block| block.range.start < end)?;
        let last = end.min(block.range.end) - 1;
        walk.at(last).map(|from| from.position)
    }

    /// Rows below `end` are asked for no more by one of the askers.
    pub(super) fn forget(&self, asker: Asker, end: Seq) {
        let mut held = self.lock();
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(passed) = passed.get_mut(&asker) {
            *passed = end.max(*passed);
        }
        let passed = passed.values().min().copied().unwrap_or(end);
        while held.front().is_some_and(|block| block.range.end <= passed) {
            held.pop_front();
        }
    }
}

pub(super) struct Walk<'a> {
    held: MutexGuard<'a, VecDeque<Block>>,
    is_order: bool,
    block: usize,
    frame: usize,
    /// Rows of the block before the frame.
    passed: usize,
}

impl Walk<'_> {
    /// Where a row came from that is not below the one that was asked for before; `None` where nothing was noted.
    pub(super) fn at(&mut self, row: Seq) -> Option<From> {
        if self.is_order {
            return Some(From { position: Position { offset: row, row: 0 }, arrival: None, reply: None });
        }
        while self.held.get(self.block).is_some_and(|block| block.range.end <= row) {
            (self.block, self.frame, self.passed) = (self.block + 1, 0, 0);
        }
        let Block { range, came } = self.held.get(self.block).filter(|block| block.range.contains(row))?;
        let row = usize::try_from(row - range.start).ok()?;
        let frames = match came {
            Came::Frames { frames, .. } => frames,
            Came::Messages(places, now) => {
                let (offset, row) = places.at(u32::try_from(row).ok()?);
                let position = Position { offset: u64::try_from(offset).ok()?, row };
                return Some(From { position, arrival: Some(*now), reply: None });
            }
            Came::Tick(position, now) => {
                return Some(From { position: *position, arrival: Some(*now), reply: None });
            }
        };
        loop {
            let TakenFrame { offset, frame, skipped, .. } = frames.get(self.frame)?;
            let rows = frame.len() - skipped;
            if row < self.passed + rows {
                let at = skipped + row - self.passed;
                let places = &frame.places;
                return Some(From {
                    position: Position { offset: *offset, row: u32::try_from(at).ok()? },
                    arrival: Some(*places.arrivals.get(at)?),
                    reply: places.replies.get(at).cloned().flatten(),
                });
            }
            (self.frame, self.passed) = (self.frame + 1, self.passed + rows);
        }
    }
}
