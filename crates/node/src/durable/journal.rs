//! Sources that cannot give their records again: their blocks go through a journal on the way to the sequencer.
//!
//! A block is appended, raw, when it is polled; so it is in the journal before its number is in the order log,
//! and the journal is synced before the order log is. After a crash blocks come from the journal: first those that the
//! order log names, then those that it does not, and then new ones. Where the journal tells the order of the job
//! ([`Source::tells_order`]) it marks its blocks, and those that the order log does not name come with the number and the
//! arrival that they had; others as if they were new.
//!
//! Offsets are the journal's own: dense over all runs of the job, whatever the source counts.

use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_connect::source::{BlockCodec, JournalBlock};
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
    /// Blocks of an earlier run, from where this one goes on; `None` once they have all been read.
    earlier: Option<Reader>,
    /// One of them that was read to look at it.
    peeked: Option<RawBlock>,
    /// Offset of the next record that has no number.
    next: Offset,
    /// Record of the journal after the last block that has one.
    place: LogPosition,
    /// The same after the last block that was read from an earlier run.
    read: (Offset, LogPosition),
    /// The block just polled comes from the journal: nobody waits for its answers.
    is_again: bool,
    /// The order of the blocks here is the order of the job.
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
            peeked: None,
            next: 0,
            place: LogPosition(0),
            read: (0, LogPosition(0)),
            is_again: false,
            tells_order,
            held: None,
            head: Vec::new(),
        }
    }

    /// The records of an earlier run after `position`; the place where this run goes on.
    pub(crate) fn resume(&mut self, next: Offset, place: LogPosition) -> Result<(), Error> {
        self.next = next;
        self.place = place;
        self.read = (next, place);
        self.earlier = Some(self.log.read_from(place)?);
        Ok(())
    }

    /// The next block that is in the journal from an earlier run.
    fn again(&mut self) -> Result<Option<JournalBlock>, Error> {
        let Some(reader) = &mut self.earlier else { return Ok(None) };
        let Some((position, record)) = reader.next_record()? else {
            self.earlier = None;
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
        Ok(Some(left))
    }
}

impl Source for Journalled {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        self.inner.start(waker)
    }

    fn poll(&mut self, max_bytes: usize, now: Micros) -> Result<Poll, Error> {
        let earlier = match self.peeked.take() {
            Some(block) => Some(block),
            None => self.again()?.map(|left| left.block),
        };
        self.is_again = earlier.is_some();
        if let Some(block) = earlier {
            return Ok(Poll::Block(block));
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
        self.is_again = true;
        match self.again()? {
            Some(left) => Ok(left.block),
            None => Err(Error::corrupt(format!(
                "the order log names {} records from offset {} on that are not in the journal",
                run.count, run.first
            ))),
        }
    }

    fn tells_order(&self) -> bool {
        self.tells_order && !self.is_again
    }

    fn left(&mut self) -> Result<Option<LeftBlock>, Error> {
        if self.peeked.is_some() {
            return Ok(None);
        }
        self.is_again = true;
        match self.again()? {
            Some(JournalBlock { block, arrival: Some(arrival), is_told: true }) => {
                Ok(Some(LeftBlock { block, arrival }))
            }
            // No later record was answered either: its answer would have waited for this one.
            Some(other) => {
                self.peeked = Some(other.block);
                Ok(None)
            }
            None => Ok(None),
        }
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

/// Where the records of a journal end: the offset after the last block that `reader` gives, or `next` without one.
pub(crate) fn end_of(mut reader: Reader, next: Offset) -> Result<Offset, Error> {
    let mut end = next;
    while let Some((_, record)) = reader.next_record()? {
        let (first, count) = BlockCodec::range(record)?;
        end = first + u64::from(count);
    }
    Ok(end)
}

/// How the journal of a source is named on disk, and distinguished from those of others.
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

    fn source_of(group: &GroupCommit, told: &[bool]) -> Journalled {
        let log = Log::open(Arc::new(MemFs::new()), "/log", LogOptions::new("journal", 1)).unwrap().log;
        let handle = group.register(log, Registration::new(Durability::Written)).unwrap();
        let codec = BlockCodec::new(None);
        for (place, is_told) in (0..).zip(told) {
            let payload = Payload::Bytes { data: Bytes::from_static(b"x"), context: None };
            let block = RawBlock { partition: 0, first: 10 * place, count: 10, payload };
            let mut head = Vec::new();
            let data = codec.encode(&block, 7, *is_told, &mut head).unwrap();
            let ticket = handle.append(&[&head, data]).unwrap();
            handle.wait(ticket).unwrap();
        }
        let mut source = Journalled::new(Box::new(Quiet), codec, handle, true);
        source.resume(0, LogPosition(0)).unwrap();
        source
    }

    /// Gives a block its number, after which it counts for the commit, and not before.
    fn number(source: &mut Journalled, block: &RawBlock) {
        let place = |source: &Journalled| (source.next, source.place.0);
        assert_eq!(place(source), (block.first, block.first / 10));
        assert!(!source.tells_order(), "its entry is waited for");
        source.sequenced(block, SeqRange::new(100 + block.first, 110 + block.first));
        assert_eq!(place(source), (block.first + 10, block.first / 10 + 1));
    }

    #[test]
    fn blocks_of_an_earlier_run_come_by_whether_answers_may_have_been_given() {
        for (told, left_count) in
            [(&[true, true, true][..], 3), (&[true, false, true], 1), (&[false, true], 0), (&[], 0)]
        {
            let group = GroupCommit::start(Duration::ZERO).unwrap();
            let mut source = source_of(&group, told);
            let mut firsts = Vec::new();
            while let Some(left) = source.left().unwrap() {
                assert_eq!(left.arrival, 7);
                number(&mut source, &left.block);
                firsts.push(left.block.first);
            }
            assert_eq!(firsts.len(), left_count, "{told:?}");
            assert!(source.left().unwrap().is_none(), "the end of them stays the end");
            while let Poll::Block(block) = source.poll(1, 0).unwrap() {
                number(&mut source, &block);
                firsts.push(block.first);
            }
            let all: Vec<u64> = (0..told.len() as u64).map(|place| 10 * place).collect();
            assert_eq!(firsts, all, "{told:?}");
            assert!(source.tells_order(), "what is new is told by the journal");
            group.close().unwrap();
        }
    }
}
