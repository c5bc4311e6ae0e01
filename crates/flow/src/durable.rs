//! How a job outlives its process: the order is written down, cycles are committed, and after a crash the order is
//! followed again from the last commit on.
//!
//! Here are the seams; the node, above this crate, writes logs and commit records. What the runtime does itself:
//! * tasks whose operators *publish* ([`crate::OperatorNode::publishes`]) are given nothing that comes after
//!   [`DurableOrder`], so nothing leaves the job whose order could come out otherwise after a crash;
//! * the sequencer first follows [`Followed::entries`], then goes on by itself;
//! * at a marker operators hand [`CyclePart`]s over; where they become durable, no worker waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_types::{Error, Micros, Offset, Seq};

use crate::{Command, OrderEntry, Waker};

/// What a job is wired with that outlives its process. The rest comes when it is run: [`crate::WiredJob::run`].
#[derive(Default)]
pub struct Durability {
    /// `None`: nobody waits for the log, publishing tasks publish at once.
    pub order: Option<Arc<DurableOrder>>,
    /// `None`: markers are numbered and nobody collects the parts that are handed over.
    pub cycles: Option<Arc<dyn Cycles>>,
    /// `None`: the job begins anew.
    pub last: Option<LastCommit>,
    /// Dropped when the last task of the job is, before the job counts as ended: it keeps others from its files.
    pub keep: Option<Arc<dyn Send + Sync>>,
}

/// Up to where the order is durable, by the order log or by a source's own: every number below it comes out the same after
/// a crash.
#[derive(Default)]
pub struct DurableOrder {
    /// Release where it rises, acquire where it is read: a task that sees the number may publish.
    end: AtomicU64,
    /// Tasks that wait for it to rise. Held for moments.
    waiting: Mutex<Vec<Waker>>,
}

impl DurableOrder {
    pub fn end(&self) -> Seq {
        self.end.load(Ordering::Acquire)
    }

    /// Raises it and wakes the waiting tasks; a smaller number changes nothing.
    pub fn advance(&self, end: Seq) {
        if self.end.fetch_max(end, Ordering::AcqRel) >= end {
            return;
        }
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().for_each(Waker::wake);
    }

    /// Wakes a task each time that it rises.
    pub(crate) fn subscribe(&self, waker: Waker) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }
}

impl std::fmt::Debug for DurableOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DurableOrder").field("end", &self.end()).finish_non_exhaustive()
    }
}

/// The position of a source: what it gives next, and whatever it needs to find that place again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePosition {
    /// Offset of the next record.
    pub next: Offset,
    /// The source's own words.
    pub place: Vec<u8>,
}

/// A cycle marker as the sequencer numbers it.
#[derive(Clone, Debug)]
pub struct CycleStart {
    pub cycle: u64,
    /// The number after the marker: where the order goes on.
    pub next: Seq,
    /// The job's clock.
    pub now: Micros,
    /// By place in [`crate::Graph::sources`].
    pub sources: Vec<SourcePosition>,
}

/// Collects what a cycle makes durable. Called by workers: it takes notes and does not wait.
pub trait Cycles: Send + Sync {
    /// Before the job starts: tasks (operator, index) that hand over one part per cycle.
    fn expect(&self, tasks: Vec<(Arc<str>, u32)>);

    /// Whether a marker may be numbered now. While this says no the present cycle grows longer; the sequencer asks
    /// again.
    fn may_begin(&self) -> bool;

    /// A marker was numbered. Cycles begin in order; in a replay they come with their old numbers.
    fn begin(&self, start: CycleStart);

    /// A task hands over its part of a cycle, with the marker or with any call after it; parts of one task come in
    /// the order of their cycles.
    fn part(&self, operator: &Arc<str>, task: u32, cycle: u64, part: Box<dyn CyclePart>);

    /// The last marker has been numbered and the end follows it.
    fn end(&self);

    /// The job failed or was ended at once: parts that are missing will not come.
    fn stop(&self);

    /// Nothing more is committed, but the job stays to be read, its state included. [`Cycles::stop`] comes at its end.
    fn give_up(&self) {}
}

/// What one task changed in one cycle, on its way to the disk. Used by a thread that may wait.
pub trait CyclePart: Send {
    /// Makes it durable and says what the commit record has to name: all that the task needs to go on from here.
    ///
    /// # Errors
    /// What failed; the job stops, and nothing of this cycle counts.
    fn prepare(&mut self) -> Result<Vec<u8>, Error>;

    /// The commit record that names it is durable: what only older commits need may go.
    ///
    /// # Errors
    /// What failed; the job stops. The cycle counts all the same.
    fn committed(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

/// A part with nothing but a position, for tasks whose state is durable already.
impl CyclePart for Vec<u8> {
    fn prepare(&mut self) -> Result<Vec<u8>, Error> {
        Ok(std::mem::take(self))
    }
}

/// Where a job goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCommit {
    /// The first number after the commit.
    pub next: Seq,
    /// The cycle that was committed.
    pub cycle: u64,
    /// The job's clock then.
    pub now: Micros,
}

/// What the order log says after the last commit, to be followed before anything new.
pub struct Followed {
    pub entries: Box<dyn Iterator<Item = Result<OrderEntry, Error>> + Send>,
    /// Makes a command again of the bytes of [`Command::record`].
    pub commands: CommandMaker,
}

/// Makes a command of its record in the order log.
pub type CommandMaker = Box<dyn Fn(&[u8]) -> Result<Command, Error> + Send>;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn the_durable_end_only_rises_and_wakes_who_waits() {
        let order = DurableOrder::default();
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        order.subscribe(Waker::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        order.advance(7);
        order.advance(7);
        order.advance(3);
        assert_eq!((order.end(), woken.load(Ordering::Relaxed)), (7, 1));
        order.advance(8);
        assert_eq!((order.end(), woken.load(Ordering::Relaxed)), (8, 2));
    }
}
