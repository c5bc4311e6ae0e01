//! Which records a task of elements takes, and at what time, before an element sees them (design section 3).
//!
//! Each input is judged by what its own stream says, against the one task time of all. Duplicates are judged before
//! lateness: a record that is sent again is a duplicate however late it has become. Neither moves time. Records that were
//! made of one record share its order number, and are no duplicates of each other.
//!
//! Ids that were seen are entries of the cache, as elements are: they may leave memory, and a cycle writes those that
//! came in it. When one was seen last is part of its entry, and alone decides. A list of each time that one was taken, in
//! the order of these times, says which can go.

use std::collections::HashSet;

use thalweg_types::{Batch, Error, LatePolicy, Micros, Schema, Seq, hash_bytes};

use super::Element;
use super::entry::{Cache, Entry, ID};
use super::lists::{self, Lists};
use crate::record::Column;
use crate::{Emit, JudgedCounts, Packer, Row};

/// Pieces of lists of ids that a tick looks at, some hundred ids each, at least; more where many wait.
const LOOKS: u32 = 4;

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
    ids: Option<Ids>,
}

/// How ids of an input are told.
struct Ids {
    /// What the field is: ids that another one had before the job was changed are not compared with.
    mark: u64,
    packer: Packer,
    span: Micros,
}

impl Ids {
    fn new(port: usize, schema: &Schema, place: usize, span: Micros) -> Result<Self, Error> {
        let field = &schema.fields()[place];
        let mark = hash_bytes(format!("{port} {} {}", field.name, field.data_type).as_bytes());
        Ok(Self { mark, packer: Packer::new(schema, &[place])?, span })
    }

    fn begin(&self, key: &mut Vec<u8>) {
        key.push(ID);
        key.extend_from_slice(&self.mark.to_be_bytes());
    }
}

impl Input {
    fn bound(&self, now: Micros) -> Micros {
        now.saturating_sub(self.rules.lateness).max(self.floor)
    }
}

/// The ids that were taken under the order number at hand: there are several where one record became several.
#[derive(Default)]
struct Taken {
    seq: Option<Seq>,
    last: Vec<u8>,
    /// Those before the last one, where they differ.
    others: HashSet<Vec<u8>>,
}

impl Taken {
    fn has(&self, seq: Seq, key: &[u8]) -> bool {
        self.seq == Some(seq) && (self.last == key || self.others.contains(key))
    }

    fn add(&mut self, seq: Seq, key: &[u8]) {
        if self.seq == Some(seq) {
            self.others.insert(std::mem::take(&mut self.last));
        } else if !self.others.is_empty() {
            self.others.clear();
        }
        self.seq = Some(seq);
        self.last.clear();
        self.last.extend_from_slice(key);
    }
}

pub(super) struct Judge {
    inputs: Vec<Input>,
    refused: Box<dyn LateRecords>,
    counts: JudgedCounts,
    /// The id of the record at hand.
    key: Vec<u8>,
    taken: Taken,
}

impl Judge {
    /// By input. `bounds` are those of the last commit, below which all was late.
    pub(super) fn new(
        schemas: &[Schema],
        rules: &[InputRules],
        bounds: &[Micros],
        refused: Box<dyn LateRecords>,
    ) -> Result<Self, Error> {
        if schemas.len() != rules.len() {
            return Err(Error::internal(format!("{} inputs have rules for {}", schemas.len(), rules.len())));
        }
        let input = |(port, (schema, rules)): (usize, (&Schema, &InputRules))| {
            let ids = rules.ids.map(|(place, span)| Ids::new(port, schema, place, span)).transpose()?;
            Ok(Input { rules: *rules, floor: bounds.get(port).copied().unwrap_or(Micros::MIN), ids })
        };
        let inputs = schemas.iter().zip(rules).enumerate().map(input).collect::<Result<_, Error>>()?;
        Ok(Self {
            inputs,
            refused,
            counts: JudgedCounts::default(),
            key: Vec::new(),
            taken: Taken::default(),
        })
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
        let Some(ids) = &self.inputs[port].ids else { return };
        for row in batch.row_numbers() {
            ids.begin(keys);
            ids.packer.pack_key(columns, row, keys);
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
        let id = self.key_of(record).filter(|_| !self.taken.has(record.seq(), &self.key));
        let input = &self.inputs[record.port()];
        let now = time.map_or(record.time(), |time| time.max(record.time()));
        if let Some((_, span)) = id
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
        if let Some((mark, _)) = id {
            cache.change(&self.key, |entry| *entry = Some(Entry::Id(now)))?;
            lists.id(cache, mark, now, &self.key)?;
            self.taken.add(record.seq(), &self.key);
        }
        Ok(Some(taken))
    }

    /// Puts together the key of the record's id; what the id is and for how long it is known. `None` where there is none.
    fn key_of(&mut self, record: Row<'_>) -> Option<(u64, Micros)> {
        let ids = self.inputs[record.port()].ids.as_ref()?;
        self.key.clear();
        ids.begin(&mut self.key);
        let start = self.key.len();
        ids.packer.pack_as_key(record, &mut self.key);
        (self.key[start] != 0).then_some((ids.mark, ids.span))
    }

    /// Drops ids that have left their span: some of them, at a tick.
    pub(super) fn drop_ids<E: Element>(
        &self,
        time: Option<Micros>,
        cache: &mut Cache<E>,
        lists: &mut Lists,
    ) -> Result<(), Error> {
        let Some(time) = time else { return Ok(()) };
        let marks: Vec<u64> = lists.ids.keys().copied().collect();
        for mark in marks {
            // Those of a field that is no id any more go at once.
            let span = self.inputs.iter().filter_map(|input| input.ids.as_ref()).find(|ids| ids.mark == mark);
            let until = time.saturating_sub(span.map_or(0, |ids| ids.span));
            let pieces = lists.ids.get(&mark).map_or(0, |list| list.pieces());
            for _ in 0..LOOKS.max(pieces / 16) {
                let Some(piece) = lists.take_ids(cache, mark, until)? else { break };
                cache.prefetch(lists::ids(&piece).map(|(_, key)| key))?;
                for (_, key) in lists::ids(&piece) {
                    // One that came again since is in the list once more.
                    let has_left = |entry: &Entry<E>| matches!(entry, Entry::Id(seen) if *seen <= until);
                    if cache.get(key)?.is_some_and(has_left) {
                        cache.change(key, |entry| *entry = None)?;
                    }
                }
            }
        }
        Ok(())
    }
}
