//! The last n records of each group: what a `ROWS n` window holds.
//!
//! Records are ordered by (event time, arrival); a late one goes between others, and the oldest leaves. Values are in a
//! slab of columns, so that a group costs one small queue of slot numbers.
//!
//! Where there are checkpoints, the ring of a *long* group is only its newest end: its oldest records are at its front,
//! and what is between is in pieces ([`crate::pieces`]). A record that is older than the ring has pieces taken back until
//! it has a place.
//!
//! Not here: rows that windows of time hold, which all groups share (`crate::reservoir`).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use foldhash::fast::RandomState;
use thalweg_types::Micros;

use super::stream::Gathered;
use crate::columns::Column;
use crate::image::{Malformed, Reader, put, put_signed};
use crate::pieces::{EARLY, PieceSink, Pieced, Pieces, Shelf};
use crate::slots::{cut, grow};

/// Version of the layout of groups from which on a ring may be in pieces.
const IN_PIECES: u8 = 3;

pub(super) struct RowsRing {
    limit: usize,
    rings: Vec<VecDeque<Entry>>,
    long: HashMap<u32, Long, RandomState>,
    slab: Slab,
    shelf: Arc<Shelf>,
    /// Cycle, group and number of pieces that may not be readable yet, in the order of cycles.
    unwritten: VecDeque<(u64, u32, u32)>,
}

#[derive(Clone, Copy)]
struct Entry {
    time: Micros,
    seq: u64,
    slot: u32,
}

/// What is older than the ring of a long group.
#[derive(Default)]
struct Long {
    front: VecDeque<Entry>,
    pieces: Pieces,
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
            long: HashMap::default(),
            slab: Slab { columns: args.iter().map(Column::new).collect(), free: Vec::new(), slots: 0 },
            shelf,
            unwritten: VecDeque::new(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let entries = |ring: &VecDeque<Entry>| ring.capacity() * size_of::<Entry>();
        self.rings.iter().map(entries).sum::<usize>()
            + self.rings.capacity() * size_of::<VecDeque<Entry>>()
            + self.long.values().map(|long| entries(&long.front) + long.pieces.bytes()).sum::<usize>()
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
                let entry = Entry { time: added.times()[element], seq: added.seqs()[element], slot };
                if self.rings[group as usize].len() >= EARLY * self.shelf.size() {
                    self.cut_ring(group);
                }
                if let Some(oldest) = self.enter(group, entry) {
                    groups.push(group);
                    times.push(oldest.time);
                    seqs.push(oldest.seq);
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
        let Self { limit, rings, long, slab, shelf, .. } = self;
        let ring = &mut rings[group as usize];
        let long = if long.is_empty() { None } else { long.get_mut(&group) };
        let Some(Long { front, pieces }) = long.filter(|long| !long.front.is_empty()) else {
            place(ring, entry);
            return if ring.len() > *limit { ring.pop_front() } else { None };
        };
        let is_before = |ring: &VecDeque<Entry>| {
            ring.front().is_none_or(|oldest| (entry.time, entry.seq) < (oldest.time, oldest.seq))
        };
        while is_before(ring)
            && let Some(mut records) = pieces.take_newest(shelf, |image, count| slab.load(image, count))
        {
            records.append(ring);
            *ring = records;
        }
        place(if is_before(ring) { front } else { ring }, entry);
        if front.len() + pieces.values() + ring.len() <= *limit {
            return None;
        }
        let oldest = front.pop_front();
        if front.is_empty() {
            let next = pieces.take_oldest(shelf, |image, count| slab.load(image, count));
            *front = next.unwrap_or_default();
        }
        oldest
    }

    /// Cuts the oldest records of a ring that is more than two pieces long: the first of all become the front, others a
    /// piece each time.
    fn cut_ring(&mut self, group: u32) {
        let Self { rings, long, slab, shelf, .. } = self;
        let ring = &mut rings[group as usize];
        let size = shelf.size();
        while ring.len() > 2 * size {
            let long = long.entry(group).or_default();
            if long.front.is_empty() {
                long.front = ring.drain(..size).collect();
                continue;
            }
            if !long.pieces.cut(size, shelf, |out| slab.save(ring.range(..size), out)) {
                break;
            }
            slab.forget(ring.drain(..size));
        }
    }

    /// Appends the records of a group to its image, the oldest first: of a long one the front, the numbers of its pieces and
    /// the ring.
    pub(super) fn save(&self, group: u32, out: &mut Vec<u8>) {
        let ring = &self.rings[group as usize];
        let long = if self.long.is_empty() { None } else { self.long.get(&group) };
        let long = long.filter(|long| !long.front.is_empty());
        put(out, (ring.len() as u64) << 1 | u64::from(long.is_some()));
        if let Some(Long { front, pieces }) = long {
            put(out, front.len() as u64);
            self.slab.save(front, out);
            pieces.save(out);
        }
        self.slab.save(ring, out);
    }

    /// Forgets the records of a group that is out of memory from now on, or no more.
    pub(super) fn forget(&mut self, group: u32) {
        let ring = std::mem::take(&mut self.rings[group as usize]);
        self.slab.forget(ring);
        if let Some(long) = self.long.remove(&group) {
            self.slab.forget(long.front);
        }
    }

    /// Takes over what [`RowsRing::save`] wrote, into a group without records.
    pub(super) fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let mut count = image.number("records of a group")?;
        let mut older = 0;
        if image.version() >= IN_PIECES {
            let is_long = count & 1 == 1;
            count >>= 1;
            if is_long {
                let count = image.count("records of a front")?;
                let front = self.slab.load(image, count)?;
                let pieces = Pieces::load(image, &self.shelf)?;
                older = front.len() + pieces.values();
                self.long.insert(group, Long { front, pieces });
            }
        }
        let count = image.fits(count, "records of a group")?;
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
        if !self.long.is_empty()
            && let Some(long) = self.long.get_mut(&group)
        {
            let unwritten = &mut self.unwritten;
            long.pieces.hand_over(&self.shelf, to, |number| unwritten.push_back((cycle, group, number)));
            if long.front.is_empty() {
                self.long.remove(&group);
            }
        }
    }

    fn written(&mut self, cycle: u64) {
        while let Some((_, group, number)) = self.unwritten.pop_front_if(|(other, ..)| *other <= cycle) {
            if let Some(long) = self.long.get_mut(&group) {
                long.pieces.written(number, &self.shelf);
            }
        }
    }

    fn bury(&mut self, group: u32, numbers: &mut Vec<u32>) {
        if let Some(long) = self.long.remove(&group) {
            self.slab.forget(long.front);
            long.pieces.bury(numbers);
        }
    }

    fn most_numbers(&self) -> usize {
        let cut: usize = self.long.values().map(|long| long.pieces.unput()).sum();
        cut + (self.slab.slots as usize - self.slab.free.len()) / self.shelf.size()
    }

    fn has_all(&self) -> bool {
        self.long.values().all(|long| long.pieces.has_all(&self.shelf))
    }
}

/// Puts a record in its place among others.
fn place(ring: &mut VecDeque<Entry>, entry: Entry) {
    let at = ring.partition_point(|other| (other.time, other.seq) < (entry.time, entry.seq));
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
        for Entry { time, seq, slot } in records {
            put_signed(out, time.wrapping_sub(before.0));
            put_signed(out, seq.wrapping_sub(before.1) as i64);
            for column in &self.columns {
                column.save(*slot as usize, out);
            }
            before = (*time, *seq);
        }
    }

    /// Reads as many records.
    fn load(&mut self, image: &mut Reader<'_>, count: usize) -> Result<VecDeque<Entry>, Malformed> {
        let mut keys: Vec<(Micros, u64)> = Vec::new();
        let mut columns: Vec<Column> = self.columns.iter().map(Column::alike).collect();
        for _ in 0..count {
            let before = keys.last().copied();
            let (time, seq) = before.unwrap_or_default();
            let key = if image.version() < IN_PIECES {
                (image.signed("time of a record")?, image.number("arrival of a record")?)
            } else {
                let (more, later) = (image.signed("time of a record")?, image.signed("arrival of a record")?);
                (time.wrapping_add(more), seq.wrapping_add(later as u64))
            };
            // Equal ones are of builds before stages numbered arrivals.
            if before.is_some_and(|before| before > key) {
                return Err(image.malformed("order of records", "ascending", "another"));
            }
            for column in &mut columns {
                column.load(image)?;
            }
            keys.push(key);
        }
        let values: Vec<Option<ArrayRef>> = columns.into_iter().map(|column| Some(column.finish())).collect();
        let entry = |(record, (time, seq))| Entry { time, seq, slot: self.store(&values, record) };
        Ok(keys.into_iter().enumerate().map(entry).collect())
    }
}
