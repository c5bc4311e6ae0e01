//! The last n records of each group: what a `ROWS n` window holds.
//!
//! Records are ordered by (event time, arrival); a late one goes between others, and the oldest leaves. Values are in a
//! slab of columns, so that a group costs one small queue of slot numbers.
//!
//! Where there are checkpoints, the ring of a *long* group is only its newest end: its oldest records are at its front,
//! and what is between is in pieces ([`crate::long`]). A record that is older than the ring has pieces taken back until
//! it has a place.
//!
//! Not here: rows that windows of time hold, which all groups share (`crate::reservoir`).

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use super::stream::Gathered;
use crate::columns::Column;
use crate::image::{Malformed, Reader};
use crate::long::{Key, LongLists, put_key, read_key};
use crate::pieces::{End, PieceSink, Pieced, Shelf};
use crate::slots::{cut, grow};

pub(super) struct RowsRing {
    limit: usize,
    rings: Vec<VecDeque<Entry>>,
    /// What is older than the rings of long groups.
    long: LongLists<Entry>,
    slab: Slab,
}

#[derive(Clone, Copy)]
struct Entry {
    key: Key,
    slot: u32,
}

/// Values of records.
struct Slab {
    columns: Vec<Column>,
    free: Vec<u32>,
    slots: u32,
}

impl RowsRing {
    pub(super) fn new(limit: u64, args: &[DataType], shelf: Arc<Shelf>) -> Self {
        Self {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            rings: Vec::new(),
            long: LongLists::new(Some(shelf)),
            slab: Slab { columns: args.iter().map(Column::new).collect(), free: Vec::new(), slots: 0 },
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.rings.iter().map(|ring| ring.capacity() * size_of::<Entry>()).sum::<usize>()
            + self.rings.capacity() * size_of::<VecDeque<Entry>>()
            + self.long.bytes()
            + self.slab.columns.iter().map(Column::bytes).sum::<usize>()
    }

    pub(super) fn grow(&mut self, groups: usize) {
        grow(&mut self.rings, groups, VecDeque::new);
    }

    pub(super) fn cut(&mut self, groups: usize) {
        cut(&mut self.rings, groups);
    }

    /// Takes the records that enter, `adds[i]` at step i, and gives those that leave, with how many at each step.
    pub(super) fn push(&mut self, added: &Gathered, adds: &[u32]) -> (Gathered, Vec<u32>) {
        let mut removes = Vec::with_capacity(adds.len());
        let (mut groups, mut times, mut seqs, mut left) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut element = 0;
        for count in adds {
            let before = left.len();
            for _ in 0..*count {
                let group = added.groups()[element];
                let slot = self.slab.store(&added.values, element);
                let entry = Entry { key: (added.times()[element], added.seqs()[element]), slot };
                if self.rings[group as usize].len() >= self.long.most() {
                    self.cut_ring(group);
                }
                if let Some(oldest) = self.enter(group, entry) {
                    groups.push(group);
                    times.push(oldest.key.0);
                    seqs.push(oldest.key.1);
                    left.push(oldest.slot);
                }
                element += 1;
            }
            removes.push((left.len() - before) as u32);
        }
        let pick = |column: &Column| (!left.is_empty()).then(|| column.pick(&left));
        let values = self.slab.columns.iter().map(pick).collect();
        // Slots are free again only now: until here their values were still to be read.
        self.slab.free.extend_from_slice(&left);
        (Gathered::of(groups, times, seqs, values), removes)
    }

    /// Puts a record into a group; the oldest one if there are too many.
    fn enter(&mut self, group: u32, entry: Entry) -> Option<Entry> {
        let Self { limit, rings, long: lists, slab } = self;
        let ring = &mut rings[group as usize];
        let Some(long) = lists.get(group) else {
            place(ring, entry);
            return if ring.len() > *limit { ring.pop_front() } else { None };
        };
        let is_before = |ring: &VecDeque<Entry>| ring.front().is_none_or(|oldest| entry.key < oldest.key);
        while is_before(ring)
            && let Some(mut records) =
                long.pieces.take(End::Newest, long.shelf, |image, count| slab.load(image, count))
        {
            records.append(ring);
            *ring = records;
        }
        place(if is_before(ring) { long.front } else { ring }, entry);
        if long.front.len() + long.pieces.values() + ring.len() <= *limit {
            return None;
        }
        lists.pop_oldest(group, |image, count| slab.load(image, count)).0
    }

    /// Cuts the oldest records of a ring that is too long.
    fn cut_ring(&mut self, group: u32) {
        let Self { rings, long, slab, .. } = self;
        let ring = &mut rings[group as usize];
        while let Some(size) = long.cuts(ring.len()) {
            let records = ring.drain(..size).collect();
            if let Some(records) = long.cut(group, records, |records, out| slab.save(records, out)) {
                slab.forget(records);
            }
        }
    }

    /// Appends the records of a group to its image, the oldest first: of a long one the front, the numbers of its pieces and
    /// the ring.
    pub(super) fn save(&self, group: u32, out: &mut Vec<u8>) {
        let ring = &self.rings[group as usize];
        self.long.save(group, ring.len(), out, |front, out| self.slab.save(front, out));
        self.slab.save(ring, out);
    }

    /// Forgets the records of a group that is out of memory from now on, or no more.
    pub(super) fn forget(&mut self, group: u32) {
        let ring = std::mem::take(&mut self.rings[group as usize]);
        self.slab.forget(ring);
        self.slab.forget(self.long.forget(group).unwrap_or_default());
    }

    /// Takes over what [`RowsRing::save`] wrote, into a group without records.
    pub(super) fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let count = self.long.load(group, image, |image, count| self.slab.load(image, count))?;
        let older = self.long.get(group).map_or(0, |long| long.front.len() + long.pieces.values());
        let all = older.saturating_add(count);
        if all > self.limit {
            return Err(image.malformed("records of a group", format_args!("at most {}", self.limit), all));
        }
        self.rings[group as usize] = self.slab.load(image, count)?;
        Ok(())
    }
}

impl Pieced for RowsRing {
    fn hand_over(&mut self, group: u32, cycle: u64, to: &mut dyn PieceSink) {
        self.cut_ring(group);
        self.long.hand_over(group, cycle, to);
    }

    fn written(&mut self, cycle: u64) {
        self.long.written(cycle);
    }

    fn bury(&mut self, group: u32, numbers: &mut Vec<u32>) {
        self.slab.forget(self.long.bury(group, numbers).unwrap_or_default());
    }

    fn most_numbers(&self) -> usize {
        self.long.most_numbers(self.slab.slots as usize - self.slab.free.len())
    }

    fn has_all(&self) -> bool {
        self.long.has_all()
    }
}

/// Puts a record in its place among others.
fn place(ring: &mut VecDeque<Entry>, entry: Entry) {
    let at = ring.partition_point(|other| other.key < entry.key);
    ring.insert(at, entry);
}

impl Slab {
    fn store(&mut self, values: &[Option<ArrayRef>], element: usize) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        for (column, values) in self.columns.iter_mut().zip(values) {
            let values = values.as_ref().expect("there are elements");
            column.set(slot as usize, values, element);
        }
        slot
    }

    fn forget(&mut self, records: impl IntoIterator<Item = Entry>) {
        self.free.extend(records.into_iter().map(|entry| entry.slot));
    }

    /// Appends records, each with its time and arrival less those of the one before.
    fn save<'a>(&self, records: impl IntoIterator<Item = &'a Entry>, out: &mut Vec<u8>) {
        let mut before = (0, 0);
        for Entry { key, slot } in records {
            put_key(out, *key, before);
            for column in &self.columns {
                column.save(*slot as usize, out);
            }
            before = *key;
        }
    }

    /// Reads as many records.
    fn load(&mut self, image: &mut Reader<'_>, count: usize) -> Result<VecDeque<Entry>, Malformed> {
        let mut keys: Vec<Key> = Vec::new();
        let mut columns: Vec<Column> = self.columns.iter().map(Column::alike).collect();
        for _ in 0..count {
            let key = read_key(image, keys.last().copied())?;
            for column in &mut columns {
                column.load(image)?;
            }
            keys.push(key);
        }
        let values: Vec<Option<ArrayRef>> = columns.into_iter().map(|column| Some(column.finish())).collect();
        let entry = |(record, key)| Entry { key, slot: self.store(&values, record) };
        Ok(keys.into_iter().enumerate().map(entry).collect())
    }
}
