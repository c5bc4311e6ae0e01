//! The last n records of each group: what a `ROWS n` window holds.
//!
//! Records are ordered by (event time, arrival); a late one goes between others, and the oldest leaves. Values are in a
//! slab of columns, so that a group costs one small queue of slot numbers.
//!
//! Not here: rows that windows of time hold, which all groups share (`crate::reservoir`).

use std::collections::VecDeque;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use thalweg_types::Micros;

use super::stream::Gathered;
use crate::columns::Column;
use crate::image::{Malformed, Reader, put, put_signed};
use crate::slots::{cut, grow};

pub(super) struct RowsRing {
    limit: usize,
    rings: Vec<VecDeque<Entry>>,
    slab: Vec<Column>,
    free: Vec<u32>,
    slots: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    time: Micros,
    seq: u64,
    slot: u32,
}

impl RowsRing {
    pub(super) fn new(limit: u64, args: &[DataType]) -> Self {
        Self {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            rings: Vec::new(),
            slab: args.iter().map(Column::new).collect(),
            free: Vec::new(),
            slots: 0,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.rings.iter().map(|ring| ring.capacity() * size_of::<Entry>()).sum::<usize>()
            + self.rings.capacity() * size_of::<VecDeque<Entry>>()
            + self.slab.iter().map(Column::bytes).sum::<usize>()
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
                let slot = self.store(&added.values, element);
                let entry = Entry { time: added.times()[element], seq: added.seqs()[element], slot };
                let ring = &mut self.rings[group as usize];
                let at = ring.partition_point(|other| (other.time, other.seq) < (entry.time, entry.seq));
                ring.insert(at, entry);
                if ring.len() > self.limit
                    && let Some(oldest) = ring.pop_front()
                {
                    groups.push(group);
                    times.push(oldest.time);
                    seqs.push(oldest.seq);
                    left.push(oldest.slot);
                }
                element += 1;
            }
            removes.push((left.len() - before) as u32);
        }
        let values = self.slab.iter().map(|column| (!left.is_empty()).then(|| column.pick(&left))).collect();
        // Slots are free again only now: until here their values were still to be read.
        self.free.extend_from_slice(&left);
        (Gathered::of(groups, times, seqs, values), removes)
    }

    /// Appends the records of a group to its image, the oldest first.
    pub(super) fn save(&self, group: u32, out: &mut Vec<u8>) {
        let ring = &self.rings[group as usize];
        put(out, ring.len() as u64);
        for entry in ring {
            put_signed(out, entry.time);
            put(out, entry.seq);
            for column in &self.slab {
                column.save(entry.slot as usize, out);
            }
        }
    }

    /// Forgets the records of a group.
    pub(super) fn forget(&mut self, group: u32) {
        let ring = std::mem::take(&mut self.rings[group as usize]);
        self.free.extend(ring.iter().map(|entry| entry.slot));
    }

    /// Takes over what [`RowsRing::save`] wrote, into a group without records.
    pub(super) fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let count = image.count("records of a group")?;
        if count > self.limit {
            return Err(image.malformed("records of a group", format_args!("at most {}", self.limit), count));
        }
        let (mut before, mut keys) = (None, Vec::with_capacity(count));
        let mut columns: Vec<Column> = self.slab.iter().map(Column::alike).collect();
        for _ in 0..count {
            let (time, seq) = (image.signed("time of a record")?, image.number("arrival of a record")?);
            // Equal ones are of builds before stages numbered arrivals.
            if before.is_some_and(|before| before > (time, seq)) {
                return Err(image.malformed("order of records", "ascending", "another"));
            }
            before = Some((time, seq));
            for column in &mut columns {
                column.load(image)?;
            }
            keys.push((time, seq));
        }
        let values: Vec<Option<ArrayRef>> = columns.into_iter().map(|column| Some(column.finish())).collect();
        for (record, (time, seq)) in keys.into_iter().enumerate() {
            let slot = self.store(&values, record);
            self.rings[group as usize].push_back(Entry { time, seq, slot });
        }
        Ok(())
    }

    fn store(&mut self, values: &[Option<ArrayRef>], element: usize) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        for (column, values) in self.slab.iter_mut().zip(values) {
            let values = values.as_ref().expect("there are elements");
            column.set(slot as usize, values, element);
        }
        slot
    }
}
