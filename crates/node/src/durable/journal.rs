//! Sources that cannot give again what they gave: their blocks go through a journal on the way to the sequencer.
//!
//! A block is appended, raw, when it is polled; so it stands in the journal before its number stands in the order log,
//! and the journal is synced before the order log is. After a crash blocks come from the journal: first those that the
//! order log names, then those that it does not, with the arrival that they had, then new ones.
//!
//! Offsets are the journal's own: dense over all runs of the job, whatever the source counts.

use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_connect::source::BlockCodec;
use thalweg_flow::{
    DatagramView, LeftBlock, Poll, RawBlock, ReplayRun, Source, SourcePosition, SourceProgress, Waker,
};
use thalweg_storage::log::{LogHandle, LogPosition, MAX_RECORD, Reader};
use thalweg_types::{Error, Micros, Offset, SeqRange};

const _: () = assert!(BlockCodec::MAX_BYTES <= MAX_RECORD, "the log takes every block");

pub(crate) struct Journalled {
    inner: Box<dyn Source>,
    codec: BlockCodec,
    log: LogHandle,
    /// Blocks of an earlier run, from where this one goes on; `None` once they have all been given.
    earlier: Option<Reader>,
    /// Offset of the next record that has no number.
    next: Offset,
    /// Record of the journal behind the last block that has one.
    place: LogPosition,
    /// The same behind the last block that was read from an earlier run; the sequencer may hold it a while.
    read: (Offset, LogPosition),
    /// The block just polled comes from the journal: nobody waits for its answers.
    is_again: bool,
    /// The order of the blocks here is the order of the job, and answers wait for no more ([`super::order`]).
    tells_order: bool,
    /// A block that found the journal's buffer full.
    held: Option<RawBlock>,
    head: Vec<u8>,
}

/// How soon a block is tried again that found the journal's buffer full: about the time of a sync.
const TRY_AGAIN: Duration = Duration::from_millis(1);

impl Journalled {
    pub(crate) fn new(inner: Box<dyn Source>, codec: BlockCodec, log: LogHandle, tells_order: bool) -> Self {
        Self {
            inner,
            codec,
            log,
            earlier: None,
            next: 0,
            place: LogPosition(0),
            read: (0, LogPosition(0)),
            is_again: false,
            tells_order,
            held: None,
            head: Vec::new(),
        }
    }

    /// What an earlier run has left behind `position`; the place where this one goes on.
    pub(crate) fn resume(&mut self, next: Offset, place: LogPosition) -> Result<(), Error> {
        self.next = next;
        self.place = place;
        self.read = (next, place);
        self.earlier = Some(self.log.read_from(place)?);
        Ok(())
    }

    /// The next block that is in the journal from an earlier run, and when it came.
    fn again(&mut self) -> Result<Option<LeftBlock>, Error> {
        let Some(reader) = &mut self.earlier else { return Ok(None) };
        let Some((position, record)) = reader.next_record()? else {
            self.earlier = None;
            self.is_again = false;
            return Ok(None);
        };
        let left = self.codec.decode(&Bytes::copy_from_slice(record)).map_err(|error| {
            error.context(format!("{position} of the journal in {}", self.log.dir().display()))
        })?;
        let block = &left.block;
        let (next, _) = self.read;
        if block.first != next {
            return Err(Error::corrupt(format!(
                "the journal goes on with offset {}, expected {next}",
                block.first
            )));
        }
        self.read = (next + u64::from(block.count), LogPosition(position.0 + 1));
        self.is_again = true;
        Ok(Some(left))
    }
}

impl Source for Journalled {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        self.inner.start(waker)
    }

    fn poll(&mut self, max_bytes: usize, now: Micros) -> Result<Poll, Error> {
        if self.earlier.is_some() {
            return Err(Error::internal(
                "a journal was asked for new blocks before it had given those it holds",
            ));
        }
        let block = match self.held.take() {
            Some(block) => block,
            None => match self.inner.poll(max_bytes, now)? {
                Poll::Block(block) if block.count == 0 => return Ok(Poll::Block(block)),
                Poll::Block(block) => RawBlock { first: self.next, ..block },
                other => return Ok(other),
            },
        };
        let data = self.codec.encode(&block, now, self.tells_order, &mut self.head)?;
        let Some(ticket) = self.log.try_append(&[&self.head, data])? else {
            // The sequencer's worker has other things to do than to wait for a disk; the source waits, and its senders.
            self.held = Some(block);
            return Ok(Poll::PendingUntil(Instant::now() + TRY_AGAIN));
        };
        self.next += u64::from(block.count);
        self.place = LogPosition(ticket.position.0 + 1);
        Ok(Poll::Block(block))
    }

    fn sequenced(&mut self, block: &RawBlock, range: SeqRange) {
        if self.is_again {
            (self.next, self.place) = self.read;
        } else {
            self.inner.sequenced(block, range);
        }
    }

    fn position(&self) -> SourcePosition {
        SourcePosition { next: self.next, place: self.place.0.to_le_bytes().to_vec() }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        let place = position.place.as_slice().try_into().map(u64::from_le_bytes);
        let place = place.map_err(|_| Error::corrupt("the commit record holds no place in the journal"))?;
        self.resume(position.next, LogPosition(place))
    }

    fn replay(&mut self, run: ReplayRun, _: usize) -> Result<RawBlock, Error> {
        match self.again()? {
            Some(LeftBlock { block, .. }) => Ok(block),
            None => Err(Error::corrupt(format!(
                "the order log names {} records from offset {} on that are not in the journal",
                run.count, run.first
            ))),
        }
    }

    fn left(&mut self) -> Result<Option<LeftBlock>, Error> {
        self.again()
    }

    fn drain(&mut self) {
        self.inner.drain();
    }

    fn progress(&self) -> Option<SourceProgress> {
        self.inner.progress()
    }

    fn datagrams(&self) -> Option<DatagramView> {
        self.inner.datagrams()
    }
}

/// Where the records of a journal end: the offset behind the last block that `reader` gives, or `next` without one.
pub(crate) fn end_of(mut reader: Reader, next: Offset) -> Result<Offset, Error> {
    let mut end = next;
    while let Some((_, record)) = reader.next_record()? {
        let (first, count) = BlockCodec::range(record)?;
        end = first + u64::from(count);
    }
    Ok(end)
}

/// How the journal of a source is named on disk, and told from those of others.
pub(crate) fn identity(job: &str, source: &str) -> u64 {
    thalweg_types::hash_bytes(format!("journal/{job}/{source}").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thalweg_flow::Payload;
    use thalweg_storage::MemFs;
    use thalweg_storage::log::{Durability, GroupCommit, Log, LogOptions, Registration};

    use super::*;

    /// Nothing new.
    struct Quiet;

    impl Source for Quiet {
        fn poll(&mut self, _: usize, _: Micros) -> Result<Poll, Error> {
            Ok(Poll::Pending)
        }

        fn drain(&mut self) {}
    }

    #[test]
    fn a_block_that_is_held_before_it_has_a_number_does_not_count_for_the_commit() {
        let group = GroupCommit::start(Duration::ZERO).unwrap();
        let log = Log::open(Arc::new(MemFs::new()), "/log", LogOptions::new("journal", 1)).unwrap().log;
        let handle = group.register(log, Registration::new(Durability::Written)).unwrap();
        let codec = BlockCodec::new(None);
        for first in [0, 10] {
            let payload = Payload::Bytes { data: Bytes::from_static(b"x"), context: None };
            let block = RawBlock { partition: 0, first, count: 10, payload };
            let mut head = Vec::new();
            let data = codec.encode(&block, 7, true, &mut head).unwrap();
            let ticket = handle.append(&[&head, data]).unwrap();
            handle.wait(ticket).unwrap();
        }
        let mut source = Journalled::new(Box::new(Quiet), codec, handle, true);
        source.resume(0, LogPosition(0)).unwrap();
        assert!(source.poll(1, 0).is_err(), "nothing new comes before what is there");
        let place = |source: &Journalled| (source.next, source.place.0);
        for (first, after) in [(0, (10, 1)), (10, (20, 2))] {
            let before = place(&source);
            let left = source.left().unwrap().unwrap();
            assert_eq!((left.block.first, left.arrival, left.is_told), (first, Some(7), true));
            assert_eq!(place(&source), before);
            source.sequenced(&left.block, SeqRange::new(100 + first, 110 + first));
            assert_eq!(place(&source), after);
        }
        assert!(source.left().unwrap().is_none());
        assert_eq!(place(&source), (20, 2));
        assert!(matches!(source.poll(1, 0), Ok(Poll::Pending)));
        group.close().unwrap();
    }
}
