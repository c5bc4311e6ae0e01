//! Which records a task of elements takes, and at what time, before an element sees them (design section 3).
//!
//! Each input is judged by what its own stream says, against the one task time of all. Duplicates are judged before
//! lateness: a record that is sent again is a duplicate however late it has become. Neither moves time.
//!
//! Ids that were seen are entries of the cache, as elements are: they may leave memory, and a cycle writes those that
//! came in it. When one was seen is part of its entry, and alone decides; lists by time say when to look for those that
//! can go.

use thalweg_types::{Batch, Error, LatePolicy, Micros, Schema};

use super::Element;
use super::entry::{Cache, Entry, ID};
use super::lists::{self, Lists};
use crate::record::Column;
use crate::{Emit, JudgedCounts, Packer, Row};

/// Lists of ids within one span.
const ID_LISTS: Micros = 32;
/// Ids that a tick looks at, at least; more where many wait.
const LOOKS: usize = 512;

/// What the stream of an input says of order and duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputRules {
    /// How far an event time may be below task time, microseconds.
    pub lateness: Micros,
    pub late: LatePolicy,
    /// The place of the field with a record's id, and for how long in task time, microseconds, a second one is a
    /// duplicate. Null is no id.
    pub ids: Option<(usize, Micros)>,
}

impl InputRules {
    /// Every record is taken at its own time.
    pub const ALL: Self = Self { lateness: Micros::MAX, late: LatePolicy::Reject, ids: None };
}

/// Where late records go that are not taken.
pub trait LateRecords: Send {
    /// `is_closed`: the record is within `lateness`, and behind what a smaller one, before a restart, has closed.
    ///
    /// # Errors
    /// Stops the job.
    fn refuse(&mut self, record: Row<'_>, is_closed: bool, emit: &mut Emit<'_>) -> Result<(), Error>;
}

/// Drops them.
pub(super) struct Nowhere;

impl LateRecords for Nowhere {
    fn refuse(&mut self, _: Row<'_>, _: bool, _: &mut Emit<'_>) -> Result<(), Error> {
        Ok(())
    }
}

struct Input {
    rules: InputRules,
    /// What is below it is late whatever `lateness` is: time moved on while that was smaller.
    floor: Micros,
    id: Option<Packer>,
}

impl Input {
    fn bound(&self, now: Micros) -> Micros {
        now.saturating_sub(self.rules.lateness).max(self.floor)
    }
}

pub(super) struct Judge {
    inputs: Vec<Input>,
    refused: Box<dyn LateRecords>,
    counts: JudgedCounts,
    /// The id of the record at hand.
    key: Vec<u8>,
}

impl Judge {
    /// By input. `bounds` are those of the last commit, below which all was late.
    pub(super) fn new(
        schemas: &[Schema],
        rules: &[InputRules],
        bounds: &[Micros],
        refused: Box<dyn LateRecords>,
    ) -> Result<Self, Error> {
        let input = |(number, (schema, rules)): (usize, (&Schema, &InputRules))| {
            let id = rules.ids.map(|(place, _)| Packer::new(schema, &[place])).transpose()?;
            Ok(Input { rules: *rules, floor: bounds.get(number).copied().unwrap_or(Micros::MIN), id })
        };
        let inputs = schemas.iter().zip(rules).enumerate().map(input).collect::<Result<_, Error>>()?;
        Ok(Self { inputs, refused, counts: JudgedCounts::default(), key: Vec::new() })
    }

    /// By input, what is late whatever `lateness` a later run has.
    pub(super) fn bounds(&self, time: Option<Micros>) -> Vec<Micros> {
        self.inputs.iter().map(|input| time.map_or(Micros::MIN, |time| input.bound(time))).collect()
    }

    /// By input, what was late when the last cycle was committed.
    pub(super) fn floors(&self) -> Vec<Micros> {
        self.inputs.iter().map(|input| input.floor).collect()
    }

    pub(super) fn counts(&self) -> JudgedCounts {
        self.counts
    }

    /// Appends the keys under which ids of these rows are looked up, and where each ends.
    pub(super) fn ahead(
        &self,
        port: usize,
        batch: &Batch,
        columns: &[Column<'_>],
        keys: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) {
        let Some(id) = &self.inputs[port].id else { return };
        for row in batch.row_numbers() {
            begin_id(port, keys);
            id.pack_key(columns, row, keys);
            ends.push(keys.len());
        }
    }

    /// The record as it is taken, at the time at which it counts; `None` where it is not. `time` is task time before it.
    pub(super) fn judge<'r, E: Element>(
        &mut self,
        record: Row<'r>,
        time: Option<Micros>,
        cache: &mut Cache<E>,
        lists: &mut Lists,
        emit: &mut Emit<'_>,
    ) -> Result<Option<Row<'r>>, Error> {
        let span = self.key_of(record);
        let input = &self.inputs[record.port()];
        let now = time.map_or(record.time(), |time| time.max(record.time()));
        if let Some(span) = span
            && let Some(Entry::Id(seen)) = cache.get(&self.key)?
            && *seen > now.saturating_sub(span)
        {
            self.counts.duplicates += 1;
            return Ok(None);
        }
        let (bound, lateness, late) = (input.bound(now), input.rules.lateness, input.rules.late);
        let mut taken = record;
        if record.time() < bound {
            self.counts.late += 1;
            if late == LatePolicy::Reject {
                let is_closed = record.time() >= now.saturating_sub(lateness);
                self.refused.refuse(record, is_closed, emit)?;
                return Ok(None);
            }
            taken = record.at(bound);
            emit.set_time(bound);
        }
        if let Some(span) = span {
            cache.change(&self.key, |entry| *entry = Some(Entry::Id(now)))?;
            lists.id(cache, due(span, now), &self.key)?;
        }
        Ok(Some(taken))
    }

    /// Puts together the key of the record's id; for how long that is known. `None` where it has none.
    fn key_of(&mut self, record: Row<'_>) -> Option<Micros> {
        let Input { rules, id, .. } = &self.inputs[record.port()];
        let (id, (_, span)) = id.as_ref().zip(rules.ids)?;
        self.key.clear();
        begin_id(record.port(), &mut self.key);
        let start = self.key.len();
        id.pack_as_key(record, &mut self.key);
        (self.key[start] != 0).then_some(span)
    }

    /// Drops ids that have left their span: some of them, at a tick.
    pub(super) fn drop_ids<E: Element>(
        &self,
        time: Option<Micros>,
        cache: &mut Cache<E>,
        lists: &mut Lists,
    ) -> Result<(), Error> {
        let Some(time) = time else { return Ok(()) };
        let mut left = lists::looks(&lists.ids, time, LOOKS);
        while left > 0
            && let Some((_, piece)) = lists::take_due(&mut lists.ids, time, cache)?
        {
            cache.prefetch(lists::keys(&piece))?;
            for key in lists::keys(&piece) {
                left = left.saturating_sub(1);
                let Some(span) = self.span_of(key) else { continue };
                let Some(Entry::Id(seen)) = cache.get(key)? else { continue };
                let seen = *seen;
                if seen <= time.saturating_sub(span) {
                    cache.change(key, |entry| *entry = None)?;
                } else {
                    // It came again since, or the span was shorter when it came.
                    lists.id(cache, due(span, seen), key)?;
                }
            }
        }
        Ok(())
    }

    /// How long ids of the input that a key names are known; nothing where the input has none any more.
    fn span_of(&self, key: &[u8]) -> Option<Micros> {
        let port = u32::from_be_bytes(*key.get(1..)?.first_chunk()?);
        let span = self.inputs.get(port as usize).and_then(|input| input.rules.ids).map(|(_, span)| span);
        Some(span.unwrap_or(0))
    }
}

fn begin_id(port: usize, key: &mut Vec<u8>) {
    key.push(ID);
    // Inputs are written one by one into a job file.
    key.extend_from_slice(&(port as u32).to_be_bytes());
}

/// The list of ids for one that was seen then.
fn due(span: Micros, seen: Micros) -> Micros {
    lists::round_up(seen.saturating_add(span), (span / ID_LISTS).max(1))
}
