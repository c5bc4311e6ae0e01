//! How far the rows of a sink with transactions are, in a topic of its own: the last message of a partition to which nobody
//! else writes, with one message in each transaction.
//!
//! The offset of a group says the same, and is committed by the same transactions. But a coordinator of groups may say less
//! than it was told ([`thalweg_kafka::Producer::probe`]), and rows would be written twice; it has no part in this.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_kafka::{
    Bounds, Bus, BusError, ConsumerOptions, GroupOffset, Isolation, NewTopic, Problem, TopicPartition,
};

use super::unit::Committed;

/// How many offsets before the end a look begins. Each is that of a message, or of the end of a transaction.
const WINDOW: i64 = 64;

/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked for the topic after it was made, which brokers hear of a moment later.
const LOOKS: u32 = 50;

/// Only the last message is of use, and that one stays: no segment goes in which messages are written.
const SETTINGS: [(&str, &str); 4] = [
    ("cleanup.policy", "delete"),
    ("retention.ms", "-1"),
    ("retention.bytes", "1048576"),
    ("segment.bytes", "1048576"),
];

pub(super) struct Kept {
    of: TopicPartition,
    partitions: i32,
    /// A topic that has as many copies as this one is to have.
    like: Arc<str>,
    /// Of the client that reads; nothing is committed to it.
    group: String,
    is_there: bool,
}

impl Kept {
    /// In `TOPIC.written`, a partition of as many as units have the sink, with as many copies as the topic of its rows.
    pub(super) fn new(topic: &str, partition: i32, partitions: i32, like: Arc<str>) -> Self {
        let name = format!("{topic}.written");
        let of = TopicPartition::new(name.as_str(), partition);
        Self { of, partitions, like, group: name, is_there: false }
    }

    pub(super) fn of(&self) -> &TopicPartition {
        &self.of
    }

    /// A message, as text: what the group gets, in one line.
    pub(super) fn text(offset: &GroupOffset) -> String {
        format!("{} {}", offset.offset, offset.metadata)
    }

    /// What the last committed transaction has said; `None` if there was none. Makes the topic where it is missing.
    ///
    /// # Errors
    /// If no broker says, or the topic is another one.
    pub(super) fn last(&mut self, bus: &dyn Bus) -> Result<Option<Committed>, BusError> {
        self.make(bus)?;
        self.find(bus).map_err(|error| match error.problem {
            // It was there before: a client or a broker that has just begun may not know it yet.
            Problem::NoTopic => {
                self.is_there = false;
                BusError { problem: Problem::Unreachable, ..error }
            }
            _ => error,
        })
    }

    fn find(&self, bus: &dyn Bus) -> Result<Option<Committed>, BusError> {
        let Bounds { start, end } = bus.bounds(&self.of)?;
        let mut window = WINDOW;
        loop {
            let from = start.max(end.saturating_sub(window));
            if let Some(found) = self.newest(bus, from, end)? {
                return self.read(&found).map(Some);
            }
            if from == start {
                return Ok(None);
            }
            window = window.saturating_mul(8);
        }
    }

    /// The last message of those from `from` to `end`.
    fn newest(&self, bus: &dyn Bus, from: i64, end: i64) -> Result<Option<Vec<u8>>, BusError> {
        let mut newest = None;
        if from >= end {
            return Ok(newest);
        }
        let mut consumer = bus.consumer(ConsumerOptions {
            group: self.group.clone(),
            isolation: Isolation::Committed,
            queue: 1 << 20,
            wake: Arc::new(|| {}),
        })?;
        let number = consumer.assign(&self.of, from)?;
        let begun = Instant::now();
        loop {
            let taken = consumer.take(number, Duration::from_millis(100), &mut |message| {
                newest = message.value.map(<[u8]>::to_vec).or(newest.take());
                true
            });
            match taken {
                Ok(taken) if taken.end.is_some_and(|seen| seen >= end) => return Ok(newest),
                Ok(_) if begun.elapsed() < PATIENCE => {}
                Ok(_) => {
                    let said = format!("no broker has given what is before offset {end} within {PATIENCE:?}");
                    return Err(BusError::new(Problem::Unreachable, format!("read {}", self.of), said));
                }
                // Retention was quicker.
                Err(error) if error.problem == Problem::OutOfRange => {
                    return Err(BusError { problem: Problem::Other, ..error });
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&self, value: &[u8]) -> Result<Committed, BusError> {
        let text = String::from_utf8_lossy(value);
        let (offset, metadata) = text.split_once(' ').unwrap_or((&text, ""));
        let found = GroupOffset { offset: offset.parse().unwrap_or(-1), metadata: metadata.to_owned() };
        Committed::read(&found, &self.group)
    }

    fn make(&mut self, bus: &dyn Bus) -> Result<(), BusError> {
        let name = Arc::clone(&self.of.topic);
        let action = || format!("look up topic {name:?}");
        let mut is_made = false;
        for _ in 0..LOOKS {
            if self.is_there {
                return Ok(());
            }
            match bus.topics(Some(std::slice::from_ref(&name))) {
                Ok(found) => {
                    let count = found.first().map_or(0, |topic| topic.partitions);
                    if count != self.partitions {
                        let said = format!(
                            "it has {count} partitions, expected {}: one for each unit",
                            self.partitions
                        );
                        return Err(BusError::new(Problem::Setting, action(), said));
                    }
                    self.is_there = true;
                }
                Err(error) if error.problem == Problem::NoTopic && !is_made => {
                    let like = bus.topics(Some(std::slice::from_ref(&self.like)))?;
                    let settings = SETTINGS.map(|(key, value)| (key.to_owned(), value.to_owned()));
                    bus.create_topic(&NewTopic {
                        name: name.to_string(),
                        partitions: self.partitions,
                        replication: like.first().map_or(1, |like| like.copies),
                        settings: settings.to_vec(),
                    })?;
                    is_made = true;
                }
                Err(error) if error.problem == Problem::NoTopic => thread::sleep(Duration::from_millis(100)),
                Err(error) => return Err(error),
            }
        }
        Err(BusError::new(Problem::Other, action(), "it was made, and is not there yet"))
    }
}

#[cfg(test)]
mod tests {
    use thalweg_kafka::memory::{Faults, MemoryBus};
    use thalweg_kafka::{Outgoing, Producer, ProducerOptions};

    use super::super::parcel::RowPosition;
    use super::*;

    fn write(producer: &mut dyn Producer, kept: &Kept, seq: u64, is_committed: bool) {
        let position = RowPosition { seq, index: u32::MAX };
        let text = Kept::text(&Committed { position, cycle: 3, life: "job".to_owned() }.write());
        let of = kept.of();
        producer.begin().unwrap();
        let (partition, value) = (Some(of.partition), text.as_bytes());
        let message = Outgoing { topic: &of.topic, partition, key: None, value, headers: &[] };
        producer.send(&message, seq).unwrap();
        if is_committed {
            producer.commit("g", &[]).unwrap();
        }
    }

    #[test]
    fn the_last_committed_message_counts_however_many_were_given_up_after_it() {
        let bus = MemoryBus::new(1, Faults::default());
        bus.make_topic("t", 3);
        let new = |partition| Kept::new("log.sink", partition, 4, "t".into());
        let mut kept = new(2);
        assert_eq!(kept.last(&bus), Ok(None));
        assert_eq!(bus.topics(Some(&["log.sink.written".into()])).unwrap()[0].partitions, 4);
        let seq = |kept: &mut Kept| kept.last(&bus).unwrap().map(|found| found.position.seq);
        let producer = || {
            let transactional_id = Some("id".to_owned());
            bus.producer(ProducerOptions { transactional_id, ..ProducerOptions::new(1_000, 1 << 20) })
                .unwrap()
        };
        for round in 0..40 {
            write(&mut *producer(), &kept, round, true);
            assert_eq!(seq(&mut kept), Some(round));
        }
        for given_up in 100..400 {
            let mut producer = producer();
            write(&mut *producer, &kept, given_up, false);
            producer.wait(Duration::ZERO);
        }
        // What the last one has left open ends.
        drop(producer());
        assert_eq!(seq(&mut kept), Some(39));
        assert_eq!(new(3).last(&bus), Ok(None));
    }

    #[test]
    fn whoever_does_not_know_the_topic_any_more_is_asked_again() {
        let bus = MemoryBus::new(1, Faults::default());
        bus.make_topic("t", 3);
        let mut kept = Kept::new("log.sink", 2, 4, "t".into());
        kept.is_there = true;
        assert_eq!(kept.last(&bus).unwrap_err().problem, Problem::Unreachable);
        assert_eq!(kept.last(&bus), Ok(None));
    }

    #[test]
    fn a_topic_with_other_partitions_is_named() {
        let bus = MemoryBus::new(1, Faults::default());
        bus.make_topic("log.sink.written", 3);
        let error = Kept::new("log.sink", 2, 4, "t".into()).last(&bus).unwrap_err();
        assert_eq!(error.problem, Problem::Setting);
        assert!(error.said.contains("it has 3 partitions, expected 4"), "{error}");
    }
}
