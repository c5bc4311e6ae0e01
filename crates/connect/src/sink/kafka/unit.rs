//! A sink that is part of a unit of a cluster. How far its rows are written is committed to a group, so that another copy of
//! the unit goes on from there, and one that follows knows how far it may go.
//!
//! With `transactions` the position is committed with the rows; with `positions` every second, after they were acknowledged.
//! Any older position does no harm: rows are written again then, with the positions that they had.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_kafka::{Bus, BusError, Group, GroupOffset, Problem, TopicPartition};
use tracing::debug;

use super::parcel::RowPosition;
use crate::UnitRows;

/// How often a copy that writes commits how far it is, and one that follows asks. Tests have no time for it.
pub(super) const EVERY: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 1_000 });

/// How long a copy that has followed waits before it writes: whoever has written before it has heard of the same plan, and
/// ends what it has begun.
pub(super) const PAUSE: Duration = EVERY;

/// How long a position may stay without being committed again: brokers forget a group that is silent for days.
pub(super) const REFRESH: Duration = Duration::from_secs(12 * 3_600);

/// How far rows are, as a group has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) position: RowPosition,
    /// The cycle of the job in which they were.
    pub(super) cycle: u64,
    /// Whose numbers the positions have.
    pub(super) life: String,
}

impl Committed {
    /// The order number as the offset, and `CYCLE:INDEX:LIFE`.
    pub(super) fn write(&self) -> GroupOffset {
        let Self { position, cycle, life } = self;
        let metadata = format!("{cycle}:{}:{life}", position.index);
        GroupOffset { offset: i64::try_from(position.seq).unwrap_or(i64::MAX), metadata }
    }

    /// # Errors
    /// If this sink has not written it.
    pub(super) fn read(found: &GroupOffset, group: &str) -> Result<Self, BusError> {
        let GroupOffset { offset, metadata } = found;
        let unreadable = || {
            let action = format!("look up the position of group {group:?}");
            let said = format!("expected CYCLE:INDEX:LIFE with offset {offset}, got {metadata:?}");
            BusError::new(Problem::Setting, action, said)
        };
        let mut parts = metadata.splitn(3, ':');
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (cycle, index) = number().zip(number()).ok_or_else(unreadable)?;
        let seq = u64::try_from(*offset).map_err(|_| unreadable())?;
        let index = u32::try_from(index).map_err(|_| unreadable())?;
        let life = parts.next().unwrap_or_default().to_owned();
        Ok(Self { position: RowPosition { seq, index }, cycle, life })
    }
}

/// Positions of the last records before markers, which the operator notes and the thread that delivers takes.
#[derive(Default)]
pub(super) struct Markers(Mutex<VecDeque<(u64, RowPosition)>>);

impl Markers {
    pub(super) fn note(&self, cycle: u64, position: RowPosition) {
        self.lock().push_back((cycle, position));
    }

    /// That before the marker of a cycle; those before it are taken, too.
    pub(super) fn take(&self, cycle: u64) -> Option<RowPosition> {
        let mut held = self.lock();
        let mut found = None;
        while let Some((_, position)) = held.pop_front_if(|(of, _)| *of <= cycle) {
            found = Some(position);
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, RowPosition)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far the rows of a unit are written.
pub(super) struct Progress {
    rows: Arc<dyn UnitRows>,
    markers: Arc<Markers>,
    id: String,
    place: TopicPartition,
    client: Option<Box<dyn Group>>,
    /// By this copy, or as the group has it.
    pub(super) written: Option<RowPosition>,
    /// What the group has, as far as this copy knows, and when that was found.
    told: Option<RowPosition>,
    at: Option<Instant>,
}

impl Progress {
    pub(super) fn new(
        rows: Arc<dyn UnitRows>,
        markers: Arc<Markers>,
        id: String,
        place: TopicPartition,
    ) -> Self {
        Self { rows, markers, id, place, client: None, written: None, told: None, at: None }
    }

    pub(super) fn is_active(&self) -> bool {
        self.rows.is_active()
    }

    /// How far all rows are that came before a marker.
    pub(super) fn before(&self, cycle: u64) -> Option<RowPosition> {
        self.markers.take(cycle)
    }

    /// Rows up to there are written.
    pub(super) fn reached(&mut self, position: RowPosition) {
        self.written = self.written.max(Some(position));
    }

    /// Asks how far whoever writes is, once in a while, and says so to the unit.
    pub(super) fn follow(&mut self, bus: &dyn Bus) {
        if self.at.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        match self.look(bus) {
            Ok(_) => {
                if let Some(written) = self.written {
                    self.rows.reached(written.seq);
                }
            }
            Err(error) => {
                self.at = Some(Instant::now());
                debug!(group = self.id, %error, "it is not known how far rows are written");
            }
        }
    }

    /// Reads how far rows are written, as the group has it.
    ///
    /// # Errors
    /// If no broker says, or this sink has not written it.
    pub(super) fn look(&mut self, bus: &dyn Bus) -> Result<Option<Committed>, BusError> {
        let place = self.place.clone();
        let found = self.client(bus)?.offsets(&[place])?.into_iter().next().flatten();
        let found = found.map(|found| Committed::read(&found, &self.id)).transpose()?;
        self.at = Some(Instant::now());
        self.told = found.as_ref().map(|found| found.position);
        self.written = self.written.max(self.told);
        Ok(found)
    }

    fn client(&mut self, bus: &dyn Bus) -> Result<&mut Box<dyn Group>, BusError> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => Ok(none.insert(bus.group(&self.id)?)),
        }
    }

    /// Commits how far rows are, if that is due. A failure does no harm: the next commit says more.
    pub(super) fn tell(&mut self, bus: &dyn Bus, cycle: u64, life: &str, is_over: bool) {
        let Some(position) = self.written else { return };
        let waits = self.at.map(|at| at.elapsed());
        let is_due = match self.told {
            Some(told) if told >= position => waits.is_none_or(|waits| waits >= REFRESH),
            _ => is_over || waits.is_none_or(|waits| waits >= EVERY),
        };
        if !is_due {
            return;
        }
        let offset = Committed { position, cycle, life: life.to_owned() }.write();
        let place = self.place.clone();
        self.at = Some(Instant::now());
        match self.client(bus).and_then(|client| client.commit(&[(place, offset)])) {
            Ok(()) => self.told = Some(position),
            Err(error) => debug!(group = self.id, %error, "how far rows are written was not committed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_group_has_comes_back_and_other_texts_are_named() {
        let position = RowPosition { seq: 1 << 40, index: u32::MAX };
        let committed = Committed { position, cycle: 7, life: "a:b".to_owned() };
        assert_eq!(Committed::read(&committed.write(), "g"), Ok(committed));
        for (offset, metadata) in
            [(1, ""), (1, "7"), (1, "7:x:job"), (1, "7:4294967296:job"), (-1, "7:0:job")]
        {
            let found = GroupOffset { offset, metadata: metadata.to_owned() };
            let error = Committed::read(&found, "g").unwrap_err().to_string();
            assert!(error.contains("\"g\"") && error.contains(&format!("{metadata:?}")), "{error}");
        }
    }

    #[test]
    fn a_marker_takes_those_before_it() {
        let markers = Markers::default();
        let position = |seq| RowPosition { seq, index: u32::MAX };
        (1..5).for_each(|cycle| markers.note(cycle, position(cycle * 10)));
        assert_eq!(markers.take(2), Some(position(20)));
        assert_eq!(markers.take(2), None);
        assert_eq!(markers.take(9), Some(position(40)));
    }
}
