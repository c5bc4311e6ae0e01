//! Which records a task of elements takes, and at what time, before an element sees them.
//!
//! Each input is judged by the rules of its own stream, against the one task time of all. Duplicates are judged before
//! lateness: a record that is sent again is a duplicate however late it has become. Neither moves time. Records that were
//! made of one record share its order number, and are no duplicates of each other.
//!
//! Ids that were seen are entries of the cache, as elements are: they may leave memory, and a cycle writes those that
//! came in it. When one was seen last is part of its entry, and alone decides. A list of each time that one was taken, in
//! the order of these times, says which can go.

use std::sync::Arc;

use thalweg_types::{
    Batch, Error, Identity, LatePolicy, Lateness, Micros, Offset, RecordPlace, Schema, Seq, TakenIds,
    Timeliness, hash_bytes,
};

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

/// Against what a record is late.
#[derive(Clone, Copy, Debug)]
pub struct LateAt<'a> {
    /// Task time.
    pub now: Micros,
    /// The record that moved task time there; `None` where no source has it, or a build before this one read it.
    pub newest: Option<&'a RecordPlace>,
    /// The record is within `lateness`, and below what a smaller one, before a restart, has closed.
    pub is_closed: bool,
}

/// Where late records go that are not taken.
pub trait LateRecords: Send {
    /// # Errors
    /// Stops the job.
    fn refuse(&mut self, record: Row<'_>, late: LateAt<'_>, emit: &mut Emit<'_>) -> Result<(), Error>;
}

/// Drops them.
pub(super) struct Nowhere;

impl LateRecords for Nowhere {
    fn refuse(&mut self, _: Row<'_>, _: LateAt<'_>, _: &mut Emit<'_>) -> Result<(), Error> {
        Ok(())
    }
}

struct Input {
    lateness: Lateness,
    ids: Option<Ids>,
}

/// How ids of an input are distinguished.
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

/// The record that moved task time to where it is.
enum Newest {
    /// Its order number, which is looked up before it can be forgotten.
    Seq(Seq),
    Place(Option<RecordPlace>),
}

pub(super) struct Judge {
    inputs: Vec<Input>,
    refused: Box<dyn LateRecords>,
    counts: JudgedCounts,
    /// The id of the record at hand.
    key: Vec<u8>,
    taken: TakenIds<Vec<u8>>,
    newest: Newest,
}

impl Judge {
    /// By input. `bounds` are those of the last commit, below which all was late, and `newest` is its newest record.
    pub(super) fn new(
        schemas: &[Schema],
        rules: &[InputRules],
        (bounds, newest): (&[Micros], Option<RecordPlace>),
        refused: Box<dyn LateRecords>,
    ) -> Result<Self, Error> {
        if schemas.len() != rules.len() {
            return Err(Error::internal(format!("{} inputs have rules for {}", schemas.len(), rules.len())));
        }
        let input = |(port, (schema, rules)): (usize, (&Schema, &InputRules))| {
            let ids = rules.ids.map(|(place, span)| Ids::new(port, schema, place, span)).transpose()?;
            let floor = bounds.get(port).copied().unwrap_or(Micros::MIN);
            Ok(Input { lateness: Lateness::new(rules.lateness, rules.late).with_floor(floor), ids })
        };
        let inputs = schemas.iter().zip(rules).enumerate().map(input).collect::<Result<_, Error>>()?;
        Ok(Self {
            inputs,
            refused,
            counts: JudgedCounts::default(),
            key: Vec::new(),
            taken: TakenIds::default(),
            newest: Newest::Place(newest),
        })
    }

    /// See [`Lateness::hold`].
    pub(super) fn hold(&mut self, time: Micros) {
        self.inputs.iter_mut().for_each(|input| input.lateness.hold(time));
    }

    /// See [`Lateness::reached`]: the same for all inputs.
    pub(super) fn reached(&self, now: Micros) -> Micros {
        self.inputs.first().map_or(now, |input| input.lateness.reached(now))
    }

    /// By input, the time below which records are late whatever `lateness` a later run has.
    pub(super) fn bounds(&self, time: Option<Micros>) -> Vec<Micros> {
        self.inputs.iter().map(|input| time.map_or(Micros::MIN, |time| input.lateness.bound(time))).collect()
    }

    /// By input, the time below which records were late at the last committed cycle, and its newest record.
    pub(super) fn committed(&self) -> (Vec<Micros>, Option<RecordPlace>) {
        (self.inputs.iter().map(|input| input.lateness.floor()).collect(), self.newest())
    }

    /// The record that moved task time to where it is, once it has been looked up.
    pub(super) fn newest(&self) -> Option<RecordPlace> {
        if let Newest::Place(place) = &self.newest { place.clone() } else { None }
    }

    /// This record has moved task time.
    pub(super) fn moved_by(&mut self, record: Row<'_>) {
        self.newest = Newest::Seq(record.seq());
    }

    /// Looks the newest record up, at the end of each batch at the latest.
    pub(super) fn find_newest(&mut self, place_of: impl FnOnce(Seq) -> Option<(Arc<str>, Offset)>) {
        if let Newest::Seq(seq) = self.newest {
            self.newest = Newest::Place(place_of(seq).map(RecordPlace::from));
        }
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
        let identity = Identity::Number(record.seq());
        let id = self.key_of(record).filter(|_| !self.taken.has(identity, &self.key));
        let input = &self.inputs[record.port()];
        let now = time.map_or(record.time(), |time| time.max(record.time()));
        if let Some((_, span)) = id
            && let Some(Entry::Id(seen)) = cache.get(&self.key)?
            && *seen > now.saturating_sub(span)
        {
            self.counts.duplicates += 1;
            return Ok(None);
        }
        let mut taken = record;
        if let Timeliness::Late { taken_at, is_closed } = input.lateness.judge(record.time(), now) {
            self.counts.late += 1;
            let Some(bound) = taken_at else {
                self.find_newest(|seq| emit.place_of(seq));
                let Newest::Place(newest) = &self.newest else { return Ok(None) };
                self.refused.refuse(record, LateAt { now, newest: newest.as_ref(), is_closed }, emit)?;
                return Ok(None);
            };
            taken = record.at(bound);
            emit.set_time(bound);
        }
        if let Some((mark, _)) = id {
            cache.change(&self.key, |entry| *entry = Some(Entry::Id(now)))?;
            lists.id(cache, mark, now, &self.key)?;
            self.taken.add(identity, &self.key);
        }
        Ok(Some(taken))
    }

    /// Puts together the key of the record's id; returns the number of its kind and for how long it is known. `None`
    /// if it has no id.
    #[inline]
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
                    // One that was repeated since is in the list once more.
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
