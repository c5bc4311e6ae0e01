//! Rows of one sender on their way to the partitions of a stage, one lane for each.
//!
//! A frame leaves at once when none is on its way to its partition and few are to others ([`MOST_FRAMES`]), and grows until
//! one is acknowledged otherwise: few rows each when records are few, many when they are many, without a setting.
//!
//! The text of the job by which the rows are made goes before the first of them into each partition (`texts`), and alone: of two
//! messages a broker that leads the partition only just now may refuse the first and take the second
//! ([`ProducerOptions::requests`]).
//!
//! Not here: who sends the frames, and what becomes of them when one is not written for good.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use thalweg_cluster::frame::{Refused, Sender, Settings, Spec};
use thalweg_cluster::positions::{self, Mark, Position};
use thalweg_kafka::{Bus, Outgoing, Producer, ProducerOptions, Sent};
use thalweg_types::{Batch, Error, Micros, Seq};

use super::actor::Bell;
use super::cut::StageCut;
use super::overdue::Come;
use super::scatter::{Origin, Scatter};

/// How often whoever sends looks while something is on its way, and otherwise.
pub(super) const GLANCE: Duration = Duration::from_millis(5);
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Frames of one sender that are on their way at a time, to whatever partitions. Each is a request that costs brokers and
/// nodes as much as many rows: where they take long, rows wait for company.
const MOST_FRAMES: usize = 4;

/// A frame that is on its way for longer holds up none to other partitions: their brokers may be there.
const SLOW: Micros = 100_000;

/// How long whoever sends waits until it tries again, where there is no broker.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// Bytes that a client has beyond what is given to it.
pub(super) const SPARE: usize = 4 << 20;

/// A client that sends frames, and rings when something has happened to one. `queue` bounds the bytes that it holds.
///
/// # Errors
/// If a setting is wrong, or no broker answers.
pub(super) fn producer(bus: &dyn Bus, queue: usize, bell: &Arc<Bell>) -> Result<Box<dyn Producer>, Error> {
    Ok(bus.producer(ProducerOptions { wake: bell.wake(), ..ProducerOptions::new(2 << 20, queue) })?)
}

/// Hands a message to a client; [`Sent::Full`] where that has no room for it.
///
/// # Errors
/// As [`Producer::send`].
pub(super) fn send(
    producer: &mut dyn Producer,
    topic: &str,
    partition: u32,
    cut: &Cut,
    tag: u64,
) -> Result<Sent, Error> {
    let partition = i32::try_from(partition).ok();
    let message = Outgoing { topic, partition, key: None, value: cut.message(), headers: &[] };
    Ok(producer.send(&message, tag)?)
}

/// A row: its order number here, and where it is in the sender's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) seq: Seq,
    pub(super) position: Position,
    /// The greatest event time of all rows up to it.
    time: Micros,
}

/// Rows of one partition that are not written yet.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<At>,
    sent: Option<OnItsWay>,
    /// The mark of the last row that is written, or was before.
    written: Mark,
    /// The text has gone before.
    has_text: bool,
}

/// A message that is on its way.
struct OnItsWay {
    tag: u64,
    /// The first row that is not written.
    first: At,
    bytes: usize,
    /// The mark of the last row that is written with it.
    last: Mark,
}

/// A message for a partition.
pub(super) enum Cut {
    Text(Arc<[u8]>),
    Frame(Vec<u8>),
}

impl Cut {
    fn message(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Frame(frame) => frame,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.message().len()
    }
}

/// The frames that leave by one client, over all lanes that it serves.
#[derive(Default)]
pub(super) struct Frames {
    next_tag: u64,
    /// Tags of those that are on their way, and when they left. Acknowledgements say when one is not, and nothing else:
    /// a sender that ends leaves its frames to the client.
    on_their_way: VecDeque<(u64, Micros)>,
}

impl Frames {
    /// How many may leave at the time `now`, where all with a tag below are written.
    pub(super) fn room(&mut self, below: u64, now: Micros) -> usize {
        while self.on_their_way.pop_front_if(|(tag, _)| *tag < below).is_some() {}
        let slow = self.on_their_way.partition_point(|(_, since)| now.saturating_sub(*since) >= SLOW);
        MOST_FRAMES.saturating_sub(self.on_their_way.len() - slow)
    }

    /// The tag of the next one.
    pub(super) fn tag(&self) -> u64 {
        self.next_tag
    }

    /// The next one leaves at the time `now`.
    pub(super) fn leaves(&mut self, now: Micros) {
        self.on_their_way.push_back((self.next_tag, now));
        self.next_tag += 1;
    }

    /// There is another client, which never says what became of those of the last one. Their tags do not come again.
    pub(super) fn begin_again(&mut self) {
        self.on_their_way.clear();
    }
}

/// The rows of one sender that are not written yet.
pub(super) struct Lanes {
    scatter: Scatter,
    lanes: Vec<Lane>,
    in_flight: usize,
    /// The greatest event time of all rows.
    task_time: Option<Micros>,
    /// The frame with the text.
    text: Arc<[u8]>,
}

impl Lanes {
    /// Lanes to the partitions of `stage`, whose rows `from` makes by the text `spec`.
    ///
    /// `after` gives the mark of the last row that the sender has made for each partition before, `task_time` the greatest event
    /// time of all of these.
    ///
    /// # Errors
    /// Where the text is longer than a frame holds.
    pub(super) fn new(
        stage: &StageCut,
        (from, spec): (positions::Origin, &Spec),
        settings: Settings,
        after: impl Fn(u32) -> Mark,
        task_time: Option<Micros>,
    ) -> Result<Self, Error> {
        let text = spec.encode(&settings);
        let text = text.map_err(|error| Error::user(format!("the text of the job: {error}")))?.into();
        let sender = Sender { spec: spec.number, origin: from, lineage: None };
        let lane = |partition| Lane { written: after(partition), ..Lane::default() };
        let lanes = (0..stage.partitions).map(lane).collect();
        let scatter = Scatter::new(stage, sender, settings, after);
        Ok(Self { scatter, lanes, in_flight: 0, task_time, text })
    }

    pub(super) fn partitions(&self) -> u32 {
        self.scatter.partitions()
    }

    /// Bytes that are not written yet, at most.
    pub(super) fn waiting(&self) -> usize {
        self.in_flight
            + (0..self.partitions()).map(|partition| self.scatter.waiting(partition)).sum::<usize>()
    }

    /// Bytes of frames that are on their way.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Partitions to which a frame may leave, the one first whose row has waited longest; `most` of them at most.
    pub(super) fn ready(&self, most: usize) -> Vec<u32> {
        if most == 0 {
            return Vec::new();
        }
        let lanes = (0..).zip(&self.lanes).filter(|(_, lane)| lane.sent.is_none());
        let mut ready: Vec<(At, u32)> =
            lanes.filter_map(|(partition, lane)| Some((*lane.waiting.front()?, partition))).collect();
        ready.sort_unstable();
        ready.into_iter().take(most).map(|(_, partition)| partition).collect()
    }

    /// The oldest row that is not written; `None` where all are.
    pub(super) fn first(&self) -> Option<At> {
        let first = |lane: &Lane| {
            let sent = lane.sent.as_ref().map(|sent| sent.first);
            sent.or_else(|| lane.waiting.front().copied())
        };
        self.lanes.iter().filter_map(first).min()
    }

    pub(super) fn task_time(&self) -> Option<Micros> {
        self.task_time
    }

    /// The mark after the last row of each partition.
    pub(super) fn marks(&self) -> Vec<Mark> {
        (0..self.partitions()).map(|partition| self.scatter.last(partition)).collect()
    }

    /// The mark of the last row of a partition that is written.
    pub(super) fn written(&self, partition: u32) -> Mark {
        self.lanes.get(partition as usize).map_or(Mark::START, |lane| lane.written)
    }

    /// Takes the rows of a batch, as [`Scatter::push`] does; those that no frame can hold come back.
    ///
    /// # Errors
    /// As [`Scatter::push`].
    pub(super) fn push(
        &mut self,
        input: u32,
        batch: &Batch,
        mut origin: impl FnMut(Seq, u32) -> Origin,
    ) -> Result<Vec<Refused>, Error> {
        let mut placed = Vec::with_capacity(batch.len());
        // It asks for rows in this order.
        let mut times = batch.row_numbers().map(|row| batch.times()[row as usize]);
        let mut task_time = self.task_time;
        let refused = self.scatter.push(input, batch, |seq, partition| {
            let origin = origin(seq, partition);
            task_time = task_time.max(times.next());
            let time = task_time.unwrap_or(Micros::MIN);
            placed.push((At { seq, position: origin.position, time }, partition));
            origin
        })?;
        self.task_time = task_time;
        let too_large: Vec<Seq> = refused.iter().map(|refused| batch.seq(refused.row)).collect();
        for (at, partition) in placed.into_iter().filter(|(at, _)| !too_large.contains(&at.seq)) {
            self.lanes[partition as usize].waiting.push_back(at);
        }
        Ok(refused)
    }

    /// How far a row has come that was put in the lane of a partition.
    pub(super) fn come(&self, row: Seq, partition: u32) -> Come {
        let Some(lane) = self.lanes.get(partition as usize) else { return Come::Written };
        let is_from = |first: At| first.seq <= row;
        match &lane.sent {
            _ if lane.waiting.front().copied().is_some_and(is_from) => Come::Waiting,
            Some(sent) if is_from(sent.first) => Come::Sent,
            _ => Come::Written,
        }
    }

    /// All frames with a tag below are written.
    pub(super) fn acknowledged(&mut self, below: u64) {
        for lane in &mut self.lanes {
            if let Some(sent) = lane.sent.take_if(|sent| sent.tag < below) {
                self.in_flight -= sent.bytes;
                lane.written = sent.last;
            }
        }
    }

    /// The text for a partition where it has not gone there, or a frame, which is sent as `tag`; `None` where there is nothing to
    /// send, or something is on its way. Where it `tells_time`, that is the sender's task time as of its first row: rows that come after it are in time by
    /// it.
    pub(super) fn cut(&mut self, partition: u32, tells_time: bool, tag: u64) -> Option<Cut> {
        let lane = &mut self.lanes[partition as usize];
        if lane.sent.is_some() {
            return None;
        }
        let first = lane.waiting.front().copied()?;
        if !std::mem::replace(&mut lane.has_text, true) {
            let cut = Cut::Text(Arc::clone(&self.text));
            lane.sent = Some(OnItsWay { tag, first, bytes: cut.bytes(), last: lane.written });
            self.in_flight += cut.bytes();
            return Some(cut);
        }
        let before = self.scatter.rows(partition);
        let frame = self.scatter.cut(partition, tells_time.then_some(first.time))?;
        let rows = before - self.scatter.rows(partition);
        lane.waiting.drain(..rows.min(lane.waiting.len()));
        let cut = Cut::Frame(frame);
        let last = self.scatter.left(partition);
        lane.sent = Some(OnItsWay { tag, first, bytes: cut.bytes(), last });
        self.in_flight += cut.bytes();
        Some(cut)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use thalweg_types::{SeqRange, Seqs};

    use super::*;
    use crate::cluster::cut;
    use crate::{JobFile, NodeOptions};

    const JOB: &str = "
name: j
sources: { records: { type: http, schema: { k: int64 } } }
operators:
  counts:
    type: metrics
    input: records
    partition_by: [k]
    partitions: 16
    queries: { n: SELECT count(*) AS n FROM records GROUP BY k OVER INFINITE }
sinks: { out: { type: 'null', input: counts } }
";

    #[test]
    fn the_partition_that_has_waited_longest_goes_first() {
        let node = NodeOptions::default();
        let job = JobFile::parse("j.yaml", JOB, &[]).and_then(|file| file.check(&node.check_options()));
        let job = job.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let stage = cut(&job).unwrap().stages.remove(0);
        let spec = Spec { number: 1, semantics: 1, job: JOB.to_owned() };
        let from = positions::Origin::Door { incarnation: 1 };
        let mut lanes =
            Lanes::new(&stage, (from, &spec), Settings::default(), |_| Mark::START, None).unwrap();
        let push = |lanes: &mut Lanes, range: SeqRange| -> BTreeSet<u32> {
            let keys: ArrayRef =
                Arc::new(Int64Array::from_iter_values((range.start..range.end).map(|n| n as i64)));
            let records = RecordBatch::try_new(Arc::clone(stage.streams[0].arrow()), vec![keys]).unwrap();
            let times = (range.start..range.end).map(|n| n as Micros).collect();
            let batch = Batch::new(range, records, times, Seqs::Dense(range.start));
            let mut reached = BTreeSet::new();
            let origin = |seq, partition| {
                reached.insert(partition);
                Origin { position: Position { offset: seq, row: 0 }, arrival: 0, reply: None }
            };
            assert!(lanes.push(0, &batch, origin).unwrap().is_empty());
            reached
        };
        let reached = push(&mut lanes, SeqRange::new(0, 12));
        let first = lanes.ready(usize::MAX);
        assert_eq!(first.iter().copied().collect::<BTreeSet<u32>>(), reached);
        for (tag, partition) in (0..3).zip(&first) {
            assert!(lanes.cut(*partition, false, tag).is_some());
        }
        // Rows for all partitions come after those that wait.
        push(&mut lanes, SeqRange::new(12, 200));
        let ready = lanes.ready(usize::MAX);
        assert_eq!((ready.len(), &ready[..first.len() - 3]), (13, &first[3..]));
        assert_eq!((lanes.ready(2), lanes.ready(0)), (ready[..2].to_vec(), Vec::new()));
        lanes.acknowledged(2);
        assert_eq!(lanes.ready(usize::MAX).len(), 15);
    }

    #[test]
    fn few_frames_are_on_their_way_unless_they_take_long() {
        let mut frames = Frames::default();
        assert_eq!(frames.room(0, 5), MOST_FRAMES);
        for tag in 0..3 {
            assert_eq!(frames.tag(), tag);
            frames.leaves(5);
        }
        let left = MOST_FRAMES - 3;
        assert_eq!([5, 4 + SLOW, 5 + SLOW].map(|now| frames.room(0, now)), [left, left, MOST_FRAMES]);
        assert_eq!(frames.room(2, 5), MOST_FRAMES - 1);
        frames.begin_again();
        assert_eq!((frames.room(0, 5), frames.tag()), (MOST_FRAMES, 3), "tags do not come again");
    }
}
