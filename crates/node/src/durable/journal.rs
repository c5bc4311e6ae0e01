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
    /// Offset of the next record.
    next: Offset,
    /// Record of the journal behind the last block that was given.
    place: LogPosition,
    /// The block just polled comes from the journal: nobody waits for its answers.
    is_again: bool,
    /// A block that found the journal's buffer full.
    held: Option<RawBlock>,
    head: Vec<u8>,
}

/// How soon a block is tried again that found the journal's buffer full: about the time of a sync.
const TRY_AGAIN: Duration = Duration::from_millis(1);

impl Journalled {
    pub(crate) fn new(inner: Box<dyn Source>, codec: BlockCodec, log: LogHandle) -> Self {
        Self {
            inner,
            codec,
            log,
            earlier: None,
            next: 0,
            place: LogPosition(0),
            is_again: false,
            held: None,
            head: Vec::new(),
        }
    }

    /// What an earlier run has left behind `position`; the place where this one goes on.
    pub(crate) fn resume(&mut self, next: Offset, place: LogPosition) -> Result<(), Error> {
        self.next = next;
        self.place = place;
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
        let (block, arrival) = self.codec.decode(&Bytes::copy_from_slice(record)).map_err(|error| {
            error.context(format!("{position} of the journal in {}", self.log.dir().display()))
        })?;
        if block.first != self.next {
            return Err(Error::corrupt(format!(
                "the journal goes on with offset {}, expected {}",
                block.first, self.next
            )));
        }
        self.place = LogPosition(position.0 + 1);
        self.next += u64::from(block.count);
        self.is_again = true;
        Ok(Some(LeftBlock { block, arrival }))
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
        let data = self.codec.encode(&block, now, &mut self.head)?;
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
        if !self.is_again {
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
