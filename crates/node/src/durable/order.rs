//! The order log of a job: the decisions of the sequencer, as records of a log, and their replay.
//!
//! Where a job has one source, and that has a journal which is synced, the journal says the order of its blocks: a start
//! numbers those that the log does not name as they were numbered, for nothing else may have come between them. So a run
//! is not waited for then, and costs no sync; the next tick, marker or command takes it along.
//!
//! A record is one entry: kind 1, first number 8, then for a run of either kind: count 4, place of the source in the commit
//! record's list 2, partition 4, offset 8, arrival 8; for a tick its time 8; for a cycle its number 8; for a command its record
//! to the end, with 1 before it if there is one. All numbers are little-endian.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use thalweg_flow::{DurableOrder, OrderEntry, OrderEvent, OrderLog};
use thalweg_storage::log::{GroupCommit, LogHandle, LogPosition, Reader};
use thalweg_types::{Error, Seq, SeqRange};

use super::SourceNumbers;
use super::committer::CommittedOrder;
use crate::drop_query::DropQuery;
use crate::queries::QueryChange;

/// Kinds of entries. Persisted.
const RUN: u8 = 1;
const TICK: u8 = 2;
const CYCLE: u8 = 3;
const COMMAND: u8 = 4;
const END: u8 = 5;
/// A run whose block was synced in its journal before this entry was written: a journal that lacks it is damaged. Written
/// where the job's logs are synced; elsewhere a power cut may take more of the journal than of this log.
const SYNCED_RUN: u8 = 6;

/// How an order log is distinguished from other logs.
pub(crate) fn identity() -> u64 {
    thalweg_types::hash_bytes(b"order")
}

/// Where the block of a run was when the run was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// In a journal, which had been synced.
    Synced,
    /// In a journal that is not synced, or with the source.
    Elsewhere,
}

/// Writes an entry; `block` says for a run where its block is.
///
/// # Errors
/// A run of more than 2^32 - 1 records, or of a source beyond the 65,536th: cut to the width of its field it would be
/// read as another one.
pub(crate) fn encode(entry: &OrderEntry, block: Block, out: &mut Vec<u8>) -> Result<(), Error> {
    out.clear();
    let (kind, start) = (
        match entry.event {
            OrderEvent::Run { .. } if block == Block::Synced => SYNCED_RUN,
            OrderEvent::Run { .. } => RUN,
            OrderEvent::Tick { .. } => TICK,
            OrderEvent::Cycle { .. } => CYCLE,
            OrderEvent::Command { .. } => COMMAND,
            OrderEvent::End => END,
        },
        entry.range.start,
    );
    out.push(kind);
    out.extend_from_slice(&start.to_le_bytes());
    match &entry.event {
        OrderEvent::Run { source, partition, offset, arrival } => {
            let too_large = |what: &str, got: u64, most: u64| {
                Error::internal(format!("the order log takes at most {most} as {what} of a run, got {got}"))
            };
            let records = entry.range.len();
            let count = u32::try_from(records)
                .map_err(|_| too_large("the number of records", records, u64::from(u32::MAX)))?;
            let number = u16::try_from(*source)
                .map_err(|_| too_large("the source", *source as u64, u64::from(u16::MAX)))?;
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&partition.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&arrival.to_le_bytes());
        }
        OrderEvent::Tick { now } => out.extend_from_slice(&now.to_le_bytes()),
        OrderEvent::Cycle { number } => out.extend_from_slice(&number.to_le_bytes()),
        OrderEvent::Command { record: Some(record) } => {
            out.push(1);
            out.extend_from_slice(record);
        }
        OrderEvent::Command { record: None } => out.push(0),
        OrderEvent::End => {}
    }
    Ok(())
}

/// Reads an entry back.
///
/// # Errors
/// Where the bytes are no entry.
pub(crate) fn decode(record: &[u8]) -> Result<OrderEntry, Error> {
    read(record).ok_or_else(|| {
        Error::corrupt(format!(
            "a record of the order log is no entry: {} bytes of kind {:?}",
            record.len(),
            record.first()
        ))
    })
}

/// Where the block of a run in this record was.
pub(crate) fn block_of(record: &[u8]) -> Block {
    match record.first() {
        Some(&SYNCED_RUN) => Block::Synced,
        _ => Block::Elsewhere,
    }
}

fn read(mut rest: &[u8]) -> Option<OrderEntry> {
    let (kind, start) = (rest.try_get_u8().ok()?, rest.try_get_u64_le().ok()?);
    let mut count = 1;
    let event = match kind {
        RUN | SYNCED_RUN => {
            count = u64::from(rest.try_get_u32_le().ok()?);
            OrderEvent::Run {
                source: usize::from(rest.try_get_u16_le().ok()?),
                partition: rest.try_get_u32_le().ok()?,
                offset: rest.try_get_u64_le().ok()?,
                arrival: rest.try_get_i64_le().ok()?,
            }
        }
        TICK => OrderEvent::Tick { now: rest.try_get_i64_le().ok()? },
        CYCLE => OrderEvent::Cycle { number: rest.try_get_u64_le().ok()? },
        COMMAND => {
            let record = match rest.try_get_u8().ok()? {
                0 => None,
                1 => Some(Bytes::copy_from_slice(std::mem::take(&mut rest))),
                _ => return None,
            };
            OrderEvent::Command { record }
        }
        END => OrderEvent::End,
        _ => return None,
    };
    let range = SeqRange::new(start, start.checked_add(count)?);
    (rest.is_empty() && count > 0).then_some(OrderEntry { range, event })
}

/// Where a job is in its order log, as several threads see it.
#[derive(Debug, Default)]
pub(crate) struct OrderPlace {
    /// Number of the record after the last entry that was appended or followed. Written by the sequencer alone.
    next: AtomicU64,
    /// Entries on their way: their record, and the number after them. Bounded by the log's buffer.
    waiting: Mutex<VecDeque<(LogPosition, Seq)>>,
    /// Queries that were added and dropped up to there, the last change of each.
    queries: Mutex<Vec<QueryChange>>,
    /// Queries that this start leaves out: their changes in the followed order do not count.
    dropped: Vec<DropQuery>,
}

impl OrderPlace {
    pub(crate) fn new(next: LogPosition, queries: Vec<QueryChange>, dropped: Vec<DropQuery>) -> Self {
        let (next, queries) = (AtomicU64::new(next.0), Mutex::new(queries));
        Self { next, waiting: Mutex::default(), queries, dropped }
    }

    pub(crate) fn queries(&self) -> Vec<QueryChange> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes an entry that is followed.
    fn note_again(&self, event: &OrderEvent) -> Result<(), Error> {
        if let OrderEvent::Command { record: Some(record) } = event
            && !self.dropped.is_empty()
        {
            if let Some(change) = QueryChange::of_record(record)?.without(&self.dropped) {
                self.note_change(change);
            }
            return Ok(());
        }
        self.note(event)
    }

    fn note(&self, event: &OrderEvent) -> Result<(), Error> {
        if let OrderEvent::Command { record: Some(record) } = event {
            self.note_change(QueryChange::of_record(record)?);
        }
        Ok(())
    }

    fn note_change(&self, mut change: QueryChange) {
        let mut queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |other: &QueryChange| (&other.operator, &other.query) == (&change.operator, &change.query);
        if let Some(before) = queries.iter().position(is_same).map(|place| queries.remove(place)) {
            if before.dropped.is_none() && before.text.is_some() && change.text.is_none() {
                // The job file has never had it.
                return;
            }
            // The first that was dropped is the one of the job file.
            change.dropped = before.dropped.or(change.dropped);
        }
        queries.push(change);
    }

    pub(crate) fn next(&self) -> LogPosition {
        // Relaxed: read by the thread that wrote it, or where it is a figure.
        LogPosition(self.next.load(Ordering::Relaxed))
    }

    fn set_next(&self, next: LogPosition) {
        self.next.store(next.0, Ordering::Relaxed);
    }

    /// Everything before `durable` is durable: notifies the waiting threads.
    pub(crate) fn progress(&self, durable: LogPosition, order: &DurableOrder) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut end = None;
        while waiting.front().is_some_and(|(record, _)| *record < durable) {
            end = waiting.pop_front().map(|(_, end)| end);
        }
        drop(waiting);
        if let Some(end) = end {
            order.advance(end);
        }
    }
}

/// Appends to a job's order log.
pub(crate) struct JobOrderLog {
    pub(crate) log: LogHandle,
    pub(crate) place: Arc<OrderPlace>,
    /// Learns what has become durable, in case that happened before it was known whose record it was.
    pub(crate) order: Arc<DurableOrder>,
    pub(crate) record: Vec<u8>,
    /// Keeps the log's thread.
    pub(crate) group: Arc<GroupCommit>,
    pub(crate) numbers: SourceNumbers,
    /// By place of the source in the job, where its blocks are before their runs are written.
    pub(crate) blocks: Vec<Block>,
}

impl JobOrderLog {
    /// The log as commits use it.
    pub(crate) fn committed(&self) -> CommittedOrder {
        CommittedOrder { log: self.log.clone(), _group: Arc::clone(&self.group) }
    }

    fn write(&mut self, mut entry: OrderEntry, is_waited_for: bool) -> Result<(), Error> {
        let mut block = Block::Elsewhere;
        if let OrderEvent::Run { source, .. } = &mut entry.event {
            block = self.blocks.get(*source).copied().unwrap_or(block);
            *source = self.numbers.of_place(*source);
        }
        self.place.note(&entry.event)?;
        encode(&entry, block, &mut self.record)?;
        let parts = [self.record.as_slice()];
        let ticket =
            if is_waited_for { self.log.append(&parts)? } else { self.log.append_unsynced(&parts)? };
        self.place.set_next(LogPosition(ticket.position.0 + 1));
        let mut waiting = self.place.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back((ticket.position, entry.range.end));
        drop(waiting);
        // The thread may have been quicker.
        if self.log.is_durable(ticket) {
            self.place.progress(self.log.durable(), &self.order);
        }
        Ok(())
    }
}

impl OrderLog for JobOrderLog {
    fn append(&mut self, entry: OrderEntry) -> Result<(), Error> {
        self.write(entry, true)
    }

    fn append_told(&mut self, entry: OrderEntry) -> Result<(), Error> {
        self.write(entry, false)
    }
}

/// The entries of a log from a place on.
pub(crate) struct Entries {
    reader: Reader,
    /// Follows the entries that were read.
    place: Arc<OrderPlace>,
    numbers: SourceNumbers,
}

impl Entries {
    pub(crate) fn new(reader: Reader, place: Arc<OrderPlace>, numbers: SourceNumbers) -> Self {
        Self { reader, place, numbers }
    }

    fn entry(&self, record: &[u8]) -> Result<OrderEntry, Error> {
        let mut entry = decode(record)?;
        if let OrderEvent::Run { source, .. } = &mut entry.event {
            *source = self.numbers.place_of(*source).ok_or_else(|| {
                Error::corrupt(format!("the order log names source {source}, which no commit record names"))
            })?;
        }
        self.place.note_again(&entry.event)?;
        Ok(entry)
    }
}

impl Iterator for Entries {
    type Item = Result<OrderEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.next_record() {
            Ok(Some((position, record))) => {
                let record = record.to_vec();
                self.place.set_next(LogPosition(position.0 + 1));
                Some(self.entry(&record))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_types::Class;

    use super::*;

    fn entries() -> Vec<OrderEntry> {
        let events = [
            OrderEvent::Tick { now: -5 },
            OrderEvent::Run { source: 3, partition: 2, offset: 1 << 40, arrival: 17 },
            OrderEvent::Cycle { number: u64::MAX },
            OrderEvent::Command { record: None },
            OrderEvent::Command { record: Some(Bytes::new()) },
            OrderEvent::Command { record: Some(Bytes::from_static(b"{}")) },
            OrderEvent::End,
        ];
        let mut next = 9;
        events
            .into_iter()
            .map(|event| {
                let start = next;
                next += if matches!(event, OrderEvent::Run { .. }) { 1000 } else { 1 };
                OrderEntry { range: SeqRange::new(start, next), event }
            })
            .collect()
    }

    #[test]
    fn entries_come_back_and_what_is_cut_or_longer_is_none() {
        let mut record = Vec::new();
        for (entry, block) in entries()
            .into_iter()
            .flat_map(|entry| [Block::Elsewhere, Block::Synced].map(|block| (entry.clone(), block)))
        {
            encode(&entry, block, &mut record).unwrap();
            assert_eq!(decode(&record).unwrap(), entry);
            let is_run = matches!(entry.event, OrderEvent::Run { .. });
            assert_eq!(block_of(&record) == Block::Synced, is_run && block == Block::Synced);
            let is_open_ended = matches!(entry.event, OrderEvent::Command { record: Some(_) });
            for len in 0..record.len() {
                assert!(
                    decode(&record[..len]).is_err() || (is_open_ended && len > 9),
                    "{entry:?} cut to {len}"
                );
            }
            record.push(0);
            assert!(decode(&record).is_err() || is_open_ended, "{entry:?} with a byte more");
        }
        assert!(decode(&[9; 40]).is_err());
    }

    #[test]
    fn a_run_that_does_not_fit_its_fields_is_refused_and_not_cut() {
        let encoded = |source: usize, count: u64| {
            let event = OrderEvent::Run { source, partition: 0, offset: 0, arrival: 0 };
            let entry = OrderEntry { range: SeqRange::new(5, 5 + count), event };
            let mut record = Vec::new();
            encode(&entry, Block::Elsewhere, &mut record).map(|()| decode(&record).unwrap() == entry)
        };
        assert!(encoded(65_535, (1 << 32) - 1).unwrap());
        for (source, count) in [(0, 1 << 32), (0, (1 << 32) + 1), (65_536, 1)] {
            assert_eq!(encoded(source, count).unwrap_err().class(), Class::Internal);
        }
    }
}
