//! How data comes in: raw blocks of records from a source, numbered by the sequencer, then decoded in parallel.
//!
//! A source only finds where records begin and end; a decoder, running in any number of tasks, makes them
//! records or rejects. So order is decided before anything is understood.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_types::{Batch, Error, Micros, Offset, PartitionId, Seq, SeqRange};

use crate::{Command, FindReceived, SourcePosition};

/// Some records of one partition, as received; of several, where they were taken in the order of time
/// ([`Source::take`]).
#[derive(Clone, Debug)]
pub struct RawBlock {
    /// Of the first record.
    pub partition: PartitionId,
    /// Offset of the first record; the block holds `count` with consecutive offsets.
    pub first: Offset,
    pub count: u32,
    pub payload: Payload,
}

/// What a block carries; source and decoder agree on it.
#[derive(Clone)]
pub enum Payload {
    /// Whole records one after the other. `context` is whatever the source knows that the decoder needs
    /// (the CSV header, the first line's number).
    Bytes { data: bytes::Bytes, context: Option<Arc<dyn Any + Send + Sync>> },
    /// Nothing but offsets: the decoder makes the records.
    Offsets,
    /// Something else that both know.
    Other { data: Arc<dyn Any + Send + Sync>, bytes: usize },
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl Payload {
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes { data, .. } => data.len(),
            Payload::Offsets => 0,
            Payload::Other { bytes, .. } => *bytes,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a source has to say when asked.
pub enum Poll {
    Block(RawBlock),
    /// Nothing now; the source wakes the sequencer when there is.
    Pending,
    /// Nothing now; ask again at this time, or when woken.
    PendingUntil(Instant),
    /// What comes next in the job's order, by the clock of whoever made the order: of the source of a job that is told
    /// its order ([`crate::JobOptions::is_told`]), and of no other.
    Told {
        now: Micros,
        event: Told,
    },
    /// Nothing ever again.
    End,
}

/// What a source says that tells the whole order of its job.
pub enum Told {
    Block(RawBlock),
    /// Only the time.
    Tick,
    /// A command that changes something. It has no [`Command::record`]: the source gives it again.
    Command(Command),
}

/// Wakes the sequencer of a job from any thread. Cheap to clone and to call.
#[derive(Clone)]
pub struct Waker(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl Waker {
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    pub fn wake(&self) {
        (self.0)();
    }
}

/// Records that a source has to give again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRun {
    pub partition: PartitionId,
    pub first: Offset,
    pub count: u64,
}

/// Records of a partition that are wanted, from the position of their source there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub partition: PartitionId,
    pub count: u64,
}

/// A block that an earlier run took in, to which answers may have been given, and whose number the order log lacks.
#[derive(Debug)]
pub struct LeftBlock {
    pub block: RawBlock,
    /// The job's clock when it came.
    pub arrival: Micros,
}

/// How far a source with a known size has come, in bytes (or records, for a generator).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceProgress {
    pub done: u64,
    pub total: Option<u64>,
}

crate::figures! {
    /// Counts of datagrams, since the start of their source.
    pub struct DatagramCounts as "DatagramCounts" {
        /// Datagrams received, lost ones included.
        datagrams as "received": u64, sum, Counter, Count, "thalweg_source_datagrams_total", "";
        /// Records taken.
        records as "": u64, sum, Counter, Count, "", "";
        /// Datagrams received and not taken; `reason` is `queue_full` or `not_allowed`.
        dropped_datagrams as "dropped": u64, sum, Counter, Count,
        "thalweg_source_lost_datagrams_total{reason=\"queue_full\"}",
        "`queue_full`: the job is too slow. `not_allowed`: `allow` does not name the sender; the live graph does";
        /// Datagrams of a sender that is not allowed.
        refused_datagrams as "refused": u64, sum, Counter, Count,
        "thalweg_source_lost_datagrams_total{reason=\"not_allowed\"}", "";
        /// Records in datagrams that found the queue full.
        dropped_records: u64, sum, Counter, Count, "thalweg_source_lost_records_total", "As above";
    }
}

/// What a source of datagrams shows: it cannot make its senders wait, so it counts what it loses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatagramStats {
    pub total: DatagramCounts,
    /// How many senders are counted apart.
    pub senders: usize,
    /// The senders with most lost datagrams (dropped or refused), then those that sent most; a few.
    pub worst: Vec<(IpAddr, DatagramCounts)>,
    /// Datagrams that the kernel dropped before anyone read them, of all senders; where it says so.
    pub kernel_drops: Option<u64>,
    /// For sources of packet samples.
    pub agents: Option<AgentStats>,
    /// What this run had at hand and could not use, by kind.
    pub left_out: BTreeMap<&'static str, u64>,
}

impl DatagramStats {
    /// All that is missing from the records and is no reject, by kind; nothing that is zero.
    pub fn all_left_out(&self) -> BTreeMap<&'static str, u64> {
        let mut missing = self.left_out.clone();
        let agents = self.agents.as_ref();
        let total = agents.map(|agents| agents.total).unwrap_or_default();
        let counts = [
            ("dropped", self.total.dropped_datagrams),
            ("kernel_drops", self.kernel_drops.unwrap_or(0)),
            ("lost", total.lost),
            ("missing", agents.map_or(0, |agents| agents.missing)),
            ("malformed", total.malformed),
            ("unknown", total.unknown),
        ];
        missing.extend(counts.into_iter().filter(|(_, count)| *count > 0));
        missing
    }
}

crate::figures! {
    /// Counts of one agent that samples packets, since the start of its source.
    pub struct AgentCounts as "AgentCounts" {
        /// Datagrams of an sFlow agent that were received.
        datagrams as "received": u64, sum, Counter, Count, "thalweg_agent_datagrams_total", "";
        /// Samples in them.
        samples: u64, sum, Counter, Count, "thalweg_agent_samples_total", "";
        /// Datagrams that the agent numbered and that never came.
        lost: u64, sum, Counter, Count, "thalweg_agent_lost_datagrams_total",
        "Look at the network, and at `thalweg_source_kernel_drops_total`";
        /// Datagrams, samples and records that end too early or are invalid; their good parts are taken.
        malformed: u64, sum, Counter, Count, "thalweg_agent_malformed_total", "Look at the agent's software";
        /// Samples and records of kinds that are not known.
        unknown: u64, sum, Counter, Count, "thalweg_agent_unknown_total", "";
        /// Datagrams of NetFlow or IPFIX, which are not sFlow.
        netflow: u64, sum, Counter, Count, "thalweg_agent_netflow_total", "Have the agent send sFlow";
    }
}

/// What a source of packet samples shows of the agents that send them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentStats {
    pub total: AgentCounts,
    /// How many agents are counted apart.
    pub agents: usize,
    /// Samples that datagrams announce and do not hold: they were cut.
    pub missing: u64,
    /// The agents with most lost or malformed datagrams, then those that sent most; a few.
    pub worst: Vec<(IpAddr, AgentCounts)>,
}

crate::figures! {
    /// The place of a source in one partition of a log, and what it made of the messages there since its start.
    pub struct PartitionCounts as "PartitionCounts" {
        /// Records taken.
        records: u64, sum, Counter, Count, "thalweg_partition_records_total", "";
        /// Offset of the message that is read next.
        position: u64, most, Gauge, Count, "thalweg_partition_position", "";
        /// Offset after the newest message, as the broker last said.
        end: u64, most, Gauge, Count, "thalweg_partition_end", "";
        /// Offsets between the two.
        lag: u64, sum, Gauge, Count, "thalweg_partition_lag",
        "The job reads more slowly than others write: look at `busy` of its operators, and at `in_flight`";
        /// Age of the newest message that was read, while there are newer ones.
        lag_seconds: Duration, most, Gauge, Seconds, "thalweg_partition_lag_seconds", "As above";
        /// Offsets that were read and that no commit has yet.
        in_flight: u64, sum, Gauge, Count, "thalweg_partition_in_flight",
        "Cycles take long: look at `thalweg_commit_seconds`";
        /// Messages that were deleted before they were read, and that `missing: skip` has left out.
        missing: u64, sum, Counter, Count, "thalweg_partition_missing_total", "Raise `retention.ms` of the topic";
        /// Messages without a value.
        tombstones: u64, sum, Counter, Count, "thalweg_partition_tombstones_total", "";
        /// Messages whose value has no record in it.
        empty: u64, sum, Counter, Count, "thalweg_partition_empty_total", "";
    }
}

/// What a source of partitions shows of each, by name.
pub type PartitionStats = Vec<(Arc<str>, PartitionCounts)>;

/// Looks at the partitions of a source while it runs, and after.
pub type PartitionView = Arc<dyn Fn() -> PartitionStats + Send + Sync>;

/// Hears of each position of a source that is in a commit record, after the record is on the disk. Does not wait.
pub type CommitView = Arc<dyn Fn(&SourcePosition) + Send + Sync>;

/// Looks at the datagrams of a source while it runs, and after.
pub type DatagramView = Arc<dyn Fn() -> DatagramStats + Send + Sync>;

/// Where records come from. Polled by the sequencer on a worker thread, so `poll` never waits for a socket:
/// a source on the network uses the I/O runtime and hands over through a bounded channel.
pub trait Source: Send {
    /// Called once before the first `poll`.
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        let _ = waker;
        Ok(())
    }

    /// The next block of at most about `max_bytes`; `now` is the job's clock.
    fn poll(&mut self, max_bytes: usize, now: Micros) -> Result<Poll, Error>;

    /// Called with the range that the sequencer gave to the block just polled, before it is decoded.
    /// A source that must answer (HTTP) registers here which request waits for which number.
    fn sequenced(&mut self, block: &RawBlock, range: SeqRange) {
        let _ = (block, range);
    }

    /// Called with the number of the tick that it told just now, before anything sees that.
    fn ticked(&mut self, seq: Seq) {
        let _ = seq;
    }

    /// Its position, after the last of its blocks that has a number: for the commit record.
    fn position(&self) -> SourcePosition {
        SourcePosition::default()
    }

    /// Goes to the position of an earlier run; called once, before [`Source::start`], if at all.
    ///
    /// # Errors
    /// If the place is not there any more, such as in a file that has become another.
    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        let _ = position;
        Err(Error::internal("this source cannot go back to its earlier position"))
    }

    /// In a replay: gives again records that it gave before, from offset `run.first` on, which is its position: one
    /// record at least and `run.count` at most, about `max_bytes` of them. May wait for a disk.
    ///
    /// # Errors
    /// If they are not there any more.
    fn replay(&mut self, run: ReplayRun, max_bytes: usize) -> Result<RawBlock, Error> {
        let _ = (run, max_bytes);
        Err(Error::internal("this source cannot give again what it gave"))
    }

    /// Whether the source keeps the block just polled, with its arrival and its place among the job's other blocks, as
    /// durably as an order log would: nobody waits for its entry there. After a crash it comes by [`Source::left`].
    fn tells_order(&self) -> bool {
        false
    }

    /// After a replay, before the first `poll`: the next block of those that [`Source::tells_order`] spoke of and the
    /// order log does not name; `None` when there is no more of them. It has no number before [`Source::sequenced`].
    /// May wait for a disk.
    ///
    /// # Errors
    /// As for [`Source::replay`].
    fn left(&mut self) -> Result<Option<LeftBlock>, Error> {
        Ok(None)
    }

    /// Whether it has several partitions, which are read by time where they have one.
    fn is_parted(&self) -> bool {
        false
    }

    /// What looks ahead of it, a reader for each of its partitions that has an end, in the order of their numbers. Asked
    /// once, after [`Source::restore`] and a replay: each begins at the position of the source.
    ///
    /// # Errors
    /// If the source has no scouts.
    fn scouts(&mut self) -> Result<Vec<ScoutReader>, Error> {
        Err(Error::internal("this source cannot be looked ahead in"))
    }

    /// Gives the first of the records that are wanted, in this order: one at least, about `max_bytes` of them, and
    /// all at most. A source whose blocks cannot hold records of several partitions gives those of the first. Offsets in
    /// the block are consecutive; its partition is the first one. Scouts have seen that the records are there.
    ///
    /// # Errors
    /// If they are not there any more.
    fn take(&mut self, wanted: &[Wanted], max_bytes: usize) -> Result<RawBlock, Error> {
        let _ = (wanted, max_bytes);
        Err(Error::internal("this source cannot be told what to give"))
    }

    /// Whether its blocks can hold records of several partitions, so that it is worth while to want several at once.
    fn mixes_partitions(&self) -> bool {
        false
    }

    /// The scout of a partition has found its end, and all of it was taken.
    fn finished(&mut self, partition: PartitionId) {
        let _ = partition;
    }

    /// Orderly end: accept no new records, give those that are there, then [`Poll::End`].
    fn drain(&mut self);

    fn progress(&self) -> Option<SourceProgress> {
        None
    }

    /// Where its datagrams are counted, for a source that receives such. Asked once, before the start.
    fn datagrams(&self) -> Option<DatagramView> {
        None
    }

    /// Where its partitions are counted, for a source that reads such. Asked once, before the start.
    fn partitions(&self) -> Option<PartitionView> {
        None
    }

    /// What hears of its commits. Asked once, before the start.
    fn on_commit(&self) -> Option<CommitView> {
        None
    }
}

/// Reads one partition of a source ahead of it ([`Source::scouts`]). Its records are read for their times alone: its
/// offsets mean nothing.
pub struct ScoutReader {
    pub partition: PartitionId,
    /// Opens it, from the position of the source; may be called again.
    pub open: Box<dyn Fn() -> Result<Box<dyn Source>, Error> + Send>,
}

/// What a block became.
pub struct Decoded {
    /// The records (output 0 of the source). Row i of the block has order number `range.start + i`; rows that
    /// were rejected are absent.
    pub records: Batch,
    /// The rejects (output 1), with the schema of [`thalweg_types::rejects_schema`]; `None` if there are no rejects.
    pub rejects: Option<Batch>,
    /// Records of other kinds, for the source's outputs 2 and on ([`crate::SourceNode::others`]): as many batches as there
    /// are such outputs, or none at all where nothing of the block is for them.
    pub others: Vec<Batch>,
}

impl Decoded {
    /// Records of a source that has one kind of them, all of them good.
    pub fn new(records: Batch) -> Self {
        Self { records, rejects: None, others: Vec::new() }
    }

    #[must_use]
    pub fn with_rejects(self, rejects: Option<Batch>) -> Self {
        Self { rejects, ..self }
    }
}

/// Makes records of a block. One instance per task; keeps no state that changes results.
pub trait Decoder: Send {
    /// `arrival` is the tick at which the block was numbered, microseconds since the epoch.
    fn decode(&mut self, block: &RawBlock, range: SeqRange, arrival: Micros) -> Result<Decoded, Error>;

    /// The record at which [`Decoder::decode`] has just failed or panicked, where it knows; else the first one of the
    /// block is named.
    fn working_on(&self) -> Option<Seq> {
        None
    }

    /// Finds records as they were received; `None` where the source has no bytes of its records.
    fn find_received(&self) -> Option<Arc<dyn FindReceived>> {
        None
    }
}
