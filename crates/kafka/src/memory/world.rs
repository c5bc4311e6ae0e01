//! The brokers: topics, groups, transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use super::{Cut, Faults, HeldBack, Stored};
use crate::{Bounds, BusError, GroupOffset, Isolation, Problem, TopicPartition, Wake};

/// A transaction, by its number.
type Transaction = u64;

struct Entry {
    /// `None`: a marker, which no reader gets.
    message: Option<Stored>,
    offset: i64,
    transaction: Option<Transaction>,
}

#[derive(Default)]
pub(super) struct Log {
    start: i64,
    end: i64,
    entries: Vec<Entry>,
}

pub(super) struct TopicState {
    pub(super) id: [u8; 16],
    pub(super) partitions: Vec<Log>,
}

pub(super) struct World {
    random: fastrand::Rng,
    pub(super) faults: Faults,
    /// How often some of them have happened.
    pub(super) happened: Faults,
    pub(super) topics: BTreeMap<String, TopicState>,
    pub(super) groups: BTreeMap<(String, TopicPartition), GroupOffset>,
    /// What they were given first.
    first_offsets: BTreeMap<(String, TopicPartition), GroupOffset>,
    /// Those whose coordinator has loaded a part of its log, and those to which something was written since it was asked.
    loaded_in_part: BTreeSet<String>,
    written: BTreeSet<String>,
    /// The present epoch of each transactional id, and its open transaction.
    ids: BTreeMap<String, (u64, Option<Transaction>)>,
    open: BTreeSet<Transaction>,
    aborted: BTreeSet<Transaction>,
    next_transaction: Transaction,
    next_id: u64,
    pub(super) clock: i64,
    /// How many of the next messages of clients are acknowledged and not kept.
    pub(super) losing: BTreeMap<TopicPartition, u32>,
    /// Readers that wait for something new, in the order in which they began.
    readers: Vec<Reader>,
    next_reader: u64,
    /// Readers get what they are given, and no more.
    pub(super) is_gated: bool,
    pub(super) cuts: BTreeMap<Arc<str>, Cut>,
    /// Topics that no broker leads.
    pub(super) away: BTreeSet<String>,
}

/// Whoever reads a partition.
struct Reader {
    number: u64,
    client: Arc<str>,
    of: TopicPartition,
    wake: Weak<Wake>,
    /// The end of what it may have.
    gate: Arc<AtomicI64>,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            faults,
            happened: Faults::default(),
            topics: BTreeMap::new(),
            groups: BTreeMap::new(),
            first_offsets: BTreeMap::new(),
            loaded_in_part: BTreeSet::new(),
            written: BTreeSet::new(),
            ids: BTreeMap::new(),
            open: BTreeSet::new(),
            aborted: BTreeSet::new(),
            next_transaction: 1,
            next_id: 1,
            clock: 1_700_000_000_000,
            losing: BTreeMap::new(),
            readers: Vec::new(),
            next_reader: 0,
            is_gated: false,
            cuts: BTreeMap::new(),
            away: BTreeSet::new(),
        }
    }

    /// Calls `wake` when there is something new in a partition, as long as its owner keeps it. The end of what the reader may
    /// have, who begins at `offset`.
    pub(super) fn wake_for(
        &mut self,
        client: &Arc<str>,
        of: &TopicPartition,
        offset: i64,
        wake: &Arc<Wake>,
    ) -> Arc<AtomicI64> {
        self.readers.retain(|reader| reader.wake.strong_count() > 0);
        let gate = Arc::new(AtomicI64::new(if self.is_gated { offset } else { i64::MAX }));
        self.readers.push(Reader {
            number: self.next_reader,
            client: Arc::clone(client),
            of: of.clone(),
            wake: Arc::downgrade(wake),
            gate: Arc::clone(&gate),
        });
        self.next_reader += 1;
        gate
    }

    fn wake(&self, is_news: impl Fn(&TopicPartition) -> bool) {
        if self.is_gated {
            return;
        }
        for reader in self.readers.iter().filter(|reader| is_news(&reader.of)) {
            if let Some(wake) = reader.wake.upgrade() {
                wake();
            }
        }
    }

    pub(super) fn readers(&self) -> Vec<HeldBack> {
        let readers = self.readers.iter().filter(|reader| reader.wake.strong_count() > 0);
        let held = readers.filter_map(|reader| {
            let Reader { number, client, of, gate, .. } = reader;
            let messages = self.log(of).ok()?.end - gate.load(Ordering::Relaxed);
            let (client, of) = (Arc::clone(client), of.clone());
            Some(HeldBack { reader: *number, client, of, messages })
        });
        held.collect()
    }

    /// What wakes the readers of some clients and partitions.
    pub(super) fn wakes_where(&self, which: impl Fn(&str, &TopicPartition) -> bool) -> Vec<Arc<Wake>> {
        let readers = self.readers.iter().filter(|reader| which(&reader.client, &reader.of));
        readers.filter_map(|reader| reader.wake.upgrade()).collect()
    }

    /// Lets a reader have so many messages more; what wakes it.
    pub(super) fn deliver(&self, reader: u64, messages: i64) -> Option<Arc<Wake>> {
        let reader = self.readers.iter().find(|known| known.number == reader)?;
        let end = self.log(&reader.of).ok()?.end;
        let gate = reader.gate.load(Ordering::Relaxed);
        reader.gate.store(gate.saturating_add(messages).min(end), Ordering::Relaxed);
        reader.wake.upgrade()
    }

    pub(super) fn is_away(&self, topic: &str) -> bool {
        self.away.contains(topic)
    }

    /// How a client is cut off.
    pub(super) fn cut_of(&self, client: &str) -> Cut {
        self.cuts.get(client).copied().unwrap_or_default()
    }

    /// Whether something happens now that happens so often of 1,000 times.
    pub(super) fn happens(&mut self, of_thousand: u32) -> bool {
        of_thousand > 0 && self.random.u32(0..1_000) < of_thousand
    }

    /// Whether the coordinator of a group has now loaded a part of its log. Not right after a write: brokers take longer to
    /// load than a client to ask.
    pub(super) fn may_load_in_part(&mut self, group: &str) {
        let is_new = !self.written.remove(group);
        if is_new && self.happens(self.faults.partial_loads) && self.loaded_in_part.insert(group.to_owned()) {
            self.happened.partial_loads += 1;
        }
    }

    /// Whether the coordinator of a group takes now a part of its log for the whole.
    pub(super) fn may_lose_offsets(&mut self, group: &str) {
        if self.happens(self.faults.lost_offsets) {
            let firsts = self.first_offsets.iter().filter(|((of, _), _)| of == group);
            self.groups.extend(firsts.map(|(key, first)| (key.clone(), first.clone())));
            self.happened.lost_offsets += 1;
        }
    }

    pub(super) fn load_whole(&mut self, group: &str) {
        self.loaded_in_part.remove(group);
        self.written.insert(group.to_owned());
    }

    /// What a group says that it has.
    pub(super) fn told_offset(&self, group: &str, of: &TopicPartition) -> Option<GroupOffset> {
        let is_whole = !self.loaded_in_part.contains(group);
        let offsets = if is_whole { &self.groups } else { &self.first_offsets };
        offsets.get(&(group.to_owned(), of.clone())).cloned()
    }

    pub(super) fn write_offset(&mut self, group: &str, of: &TopicPartition, offset: GroupOffset) {
        self.load_whole(group);
        let key = (group.to_owned(), of.clone());
        self.first_offsets.entry(key.clone()).or_insert_with(|| offset.clone());
        self.groups.insert(key, offset);
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.random.usize(0..end.max(1))
    }

    pub(super) fn make_topic(&mut self, name: &str, partitions: i32) {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.next_id.to_be_bytes());
        self.next_id += 1;
        let partitions = (0..partitions).map(|_| Log::default()).collect();
        self.topics.insert(name.to_owned(), TopicState { id, partitions });
    }

    pub(super) fn widen_topic(&mut self, name: &str, partitions: i32) {
        if let Some(topic) = self.topics.get_mut(name) {
            topic.partitions.resize_with(partitions as usize, Log::default);
        }
    }

    /// Whether a message of a client is to be lost.
    pub(super) fn loses(&mut self, to: &TopicPartition) -> bool {
        match self.losing.get_mut(to) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    fn log(&self, of: &TopicPartition) -> Result<&Log, BusError> {
        let found = self.topics.get(&*of.topic).and_then(|topic| topic.partitions.get(of.partition as usize));
        found.ok_or_else(|| no_partition(of))
    }

    fn log_mut(&mut self, of: &TopicPartition) -> Result<&mut Log, BusError> {
        let topic = self.topics.get_mut(&*of.topic);
        let found = topic.and_then(|topic| topic.partitions.get_mut(of.partition as usize));
        found.ok_or_else(|| no_partition(of))
    }

    pub(super) fn bounds(&self, of: &TopicPartition) -> Result<Bounds, BusError> {
        let log = self.log(of)?;
        Ok(Bounds { start: log.start, end: log.end })
    }

    pub(super) fn offset_at(&self, of: &TopicPartition, time: i64) -> Result<i64, BusError> {
        let log = self.log(of)?;
        let at = log.entries.iter().find(|entry| entry.message.as_ref().is_some_and(|m| m.timestamp >= time));
        Ok(at.map_or(log.end, |entry| entry.offset))
    }

    pub(super) fn append(&mut self, to: &TopicPartition, message: Stored) -> Result<i64, BusError> {
        self.write(to, message, None)
    }

    pub(super) fn write(
        &mut self,
        to: &TopicPartition,
        mut message: Stored,
        transaction: Option<Transaction>,
    ) -> Result<i64, BusError> {
        self.clock += 1;
        if message.timestamp == 0 {
            message.timestamp = self.clock;
        }
        let log = self.log_mut(to)?;
        let offset = log.end;
        message.offset = offset;
        log.entries.push(Entry { message: Some(message), offset, transaction });
        log.end += 1;
        self.wake(|of| of == to);
        Ok(offset)
    }

    pub(super) fn retain_from(&mut self, of: &TopicPartition, offset: i64) {
        if let Ok(log) = self.log_mut(of) {
            log.start = log.start.max(offset.min(log.end));
            let start = log.start;
            log.entries.retain(|entry| entry.offset >= start);
        }
    }

    pub(super) fn cut_from(&mut self, of: &TopicPartition, offset: i64) {
        if let Ok(log) = self.log_mut(of) {
            log.entries.retain(|entry| entry.offset < offset);
            log.end = offset.max(log.start);
        }
    }

    /// The end of what a reader may read.
    pub(super) fn end_for(&self, of: &TopicPartition, isolation: Isolation) -> Result<i64, BusError> {
        let log = self.log(of)?;
        let is_open = |entry: &&Entry| entry.transaction.is_some_and(|number| self.open.contains(&number));
        Ok(match isolation {
            Isolation::Uncommitted => log.end,
            Isolation::Committed => log.entries.iter().find(is_open).map_or(log.end, |entry| entry.offset),
        })
    }

    /// The first message at or after an offset that a reader may read.
    pub(super) fn next(
        &self,
        of: &TopicPartition,
        from: i64,
        isolation: Isolation,
    ) -> Result<Option<&Stored>, BusError> {
        let end = self.end_for(of, isolation)?;
        let log = self.log(of)?;
        let first = log.entries.partition_point(|entry| entry.offset < from);
        let may = |entry: &Entry| {
            let is_aborted = entry.transaction.is_some_and(|number| self.aborted.contains(&number));
            isolation == Isolation::Uncommitted || !is_aborted
        };
        let rest = log.entries[first..].iter().take_while(|entry| entry.offset < end);
        Ok(rest.filter(|entry| may(entry)).find_map(|entry| entry.message.as_ref()))
    }

    pub(super) fn committed(&self, of: &TopicPartition) -> Vec<Stored> {
        let (mut all, mut from) = (Vec::new(), 0);
        while let Ok(Some(message)) = self.next(of, from, Isolation::Committed) {
            from = message.offset + 1;
            all.push(message.clone());
        }
        all
    }

    /// A producer begins: older ones of its id are fenced off, and what they left open is aborted.
    pub(super) fn begin_epoch(&mut self, id: &str) -> u64 {
        let (epoch, open) = self.ids.entry(id.to_owned()).or_default();
        *epoch += 1;
        let (epoch, open) = (*epoch, open.take());
        if let Some(open) = open {
            self.end_transaction(open, false);
        }
        epoch
    }

    /// Whether the producer of this epoch is the present one of its id.
    pub(super) fn check_epoch(&self, id: &str, epoch: u64) -> Result<(), BusError> {
        match self.ids.get(id) {
            Some((present, _)) if *present == epoch => Ok(()),
            _ => Err(BusError::new(
                Problem::Fenced,
                format!("write as {id:?}"),
                "another producer has taken over",
            )),
        }
    }

    pub(super) fn begin_transaction(&mut self, id: &str) -> Transaction {
        let number = self.next_transaction;
        self.next_transaction += 1;
        self.open.insert(number);
        self.ids.entry(id.to_owned()).or_default().1 = Some(number);
        number
    }

    pub(super) fn end_transaction(&mut self, number: Transaction, is_committed: bool) {
        self.open.remove(&number);
        if !is_committed {
            self.aborted.insert(number);
        }
        for (_, open) in self.ids.values_mut() {
            open.take_if(|open| *open == number);
        }
        // A marker in each partition that it wrote to: offsets have gaps.
        for log in self.topics.values_mut().flat_map(|topic| &mut topic.partitions) {
            if log.entries.iter().any(|entry| entry.transaction == Some(number) && entry.message.is_some()) {
                let offset = log.end;
                log.entries.push(Entry { message: None, offset, transaction: None });
                log.end += 1;
            }
        }
        self.wake(|_| true);
    }
}

fn no_partition(of: &TopicPartition) -> BusError {
    BusError::new(Problem::NoTopic, format!("use {of}"), "it does not exist")
}
