//! Sinks of a unit that write to other systems.
//!
//! The active copy of a unit writes, and remembers at the other system how far it is. One that follows reads no further than
//! that ([`Limit`]), so nothing that it holds or commits is ahead of what is written, and it can write on from where it is at
//! any moment. What a sink remembers are positions in the unit's log: order numbers are a process's own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_cluster::positions::Position;
use thalweg_connect::{SinkUnit, UnitRows};
use thalweg_flow::Waker;
use thalweg_types::{Batch, Error, Offset, Seq};

use super::arrived::{Arrived, Asker};

/// How far a copy of a unit may read.
pub(super) struct Limit {
    is_active: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By sink: rows of all messages below are written, as far as is known.
    written: Vec<Offset>,
    /// Of the source.
    waker: Option<Waker>,
}

impl Limit {
    pub(super) fn new(is_active: Arc<AtomicBool>, sinks: usize) -> Self {
        Self { is_active, state: Mutex::new(State { written: vec![0; sinks], waker: None }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Messages below may be read; `None`: all.
    pub(super) fn below(&self) -> Option<Offset> {
        if self.is_active.load(Ordering::Acquire) {
            return None;
        }
        self.lock().written.iter().min().copied()
    }

    /// Has the source woken when more may be read.
    pub(super) fn wake_by(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }

    /// More may be read.
    pub(super) fn wake(&self) {
        if let Some(waker) = &self.lock().waker {
            waker.wake();
        }
    }

    fn reach(&self, sink: usize, offset: Offset) {
        let mut state = self.lock();
        let Some(written) = state.written.get_mut(sink) else { return };
        let is_more = offset > *written;
        *written = offset.max(*written);
        drop(state);
        if is_more {
            self.wake();
        }
    }
}

/// What the sinks of a unit that write to other systems share.
pub(super) struct Outside {
    /// The topic of the unit's log, its partition there, and how many it has.
    pub(super) log: (Arc<str>, u32, u32),
    pub(super) job: Arc<str>,
    pub(super) arrived: Arc<Arrived>,
    pub(super) limit: Arc<Limit>,
}

impl Outside {
    /// The unit as the `number`th of these sinks, of this name, knows it.
    pub(super) fn of_sink(&self, number: usize, sink: &str) -> SinkUnit {
        let Self { log: (topic, partition, partitions), job, arrived, limit } = self;
        let rows = Rows { arrived: Arc::clone(arrived), limit: Arc::clone(limit), number };
        SinkUnit {
            sink: format!("{topic}.{sink}").into(),
            partition: *partition,
            partitions: *partitions,
            name: format!("{job}/{sink}/{partition}").into(),
            rows: Arc::new(rows),
        }
    }
}

/// Where the rows of such a sink stand.
struct Rows {
    arrived: Arc<Arrived>,
    limit: Arc<Limit>,
    number: usize,
}

impl UnitRows for Rows {
    fn positions(&self, batch: &Batch) -> Result<Vec<u64>, Error> {
        let mut walk = self.arrived.walk();
        let position = |row| {
            let seq = batch.seq(row);
            let from = walk.at(seq);
            let from =
                from.ok_or_else(|| Error::internal(format!("row {seq} of a unit came from nowhere")))?;
            Ok(from.position.number())
        };
        batch.row_numbers().map(position).collect()
    }

    fn passed(&self, end: Seq) -> Option<u64> {
        let last = self.arrived.last_below(end);
        self.arrived.forget(Asker::Sink(self.number), end);
        last.map(Position::number)
    }

    fn is_active(&self) -> bool {
        self.limit.is_active.load(Ordering::Acquire)
    }

    fn reached(&self, position: u64) {
        self.limit.reach(self.number, Position::of_number(position).offset);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn one_that_follows_reads_no_further_than_its_slowest_sink() {
        let is_active = Arc::new(AtomicBool::new(false));
        let limit = Limit::new(Arc::clone(&is_active), 2);
        let woken = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&woken);
        limit.wake_by(Waker::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(limit.below(), Some(0));
        limit.reach(0, 7);
        assert_eq!(limit.below(), Some(0));
        limit.reach(1, 5);
        // An older one, as a copy that writes on without having heard of the plan may say.
        limit.reach(1, 3);
        assert_eq!((limit.below(), woken.load(Ordering::Relaxed)), (Some(5), 2));
        is_active.store(true, Ordering::Release);
        assert_eq!(limit.below(), None);
    }
}
