//! Payments to a topic on a fixed schedule, and their answers from another.
//!
//! A payment's event time is its number, in milliseconds after [`BASE`], so an answer of any system says which payment it
//! is of. Its latency counts from the time at which the payment was *meant* to leave: a system that stalls is charged for
//! everything that comes meanwhile (coordinated omission), and so is a client that is late.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};

use super::PARTITIONS;
use crate::load::{WARM_UP, mixed};
use crate::usage;

/// Event time of the first payment after the history.
const BASE: i64 = 1_767_225_600_000;

/// How long a payment may wait for others that leave with it, in milliseconds. Without, the broker has a request for each
/// of them, and takes most of the cores.
pub(super) const LINGER_MS: &str = "1";

const HOUR_MS: u64 = 3_600_000;
const CARDS: u64 = 100_000;

/// A system has to start, and to work off the history, within this time.
const SETTLING: Duration = Duration::from_secs(300);

/// The last answer has to come this soon after it was due.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Records a second.
    pub(super) rate: u32,
    /// Measured seconds.
    pub(super) seconds: u32,
    /// Payments of the hour before, besides those where the tail of the window passes.
    pub(super) history: u64,
}

impl Load {
    /// Records on the schedule, those of the warm-up too.
    fn scheduled(&self) -> u64 {
        u64::from(self.rate) * u64::from(self.seconds + WARM_UP)
    }

    /// Times of the history, relative to [`BASE`]: as dense as the load where the tail passes, so that as much leaves
    /// as enters.
    fn history(&self) -> impl Iterator<Item = i64> {
        let dense = self.scheduled() + u64::from(PARTITIONS);
        let step = (HOUR_MS.saturating_sub(dense)) as f64 / self.history.max(1) as f64;
        let spread = (0..self.history).map(move |index| dense + (index as f64 * step) as u64);
        let start = -(HOUR_MS as i64);
        (0..dense).chain(spread).map(move |millis| start + millis as i64)
    }
}

/// Sends payments to one topic and reads answers from another.
pub(super) struct Client {
    producer: ThreadedProducer<DefaultProducerContext>,
    consumer: BaseConsumer,
    topic: String,
}

impl Client {
    pub(super) fn new(brokers: &str, topic: &str, answers: &str) -> Result<Self> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers);
        let producer = config.clone().set("linger.ms", LINGER_MS).create().context("make a producer")?;
        config.set("group.id", "bench").set("enable.auto.commit", "false");
        config.set("isolation.level", "read_committed");
        let consumer: BaseConsumer = config.create().context("make a consumer")?;
        let mut partitions = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            partitions.add_partition_offset(answers, partition as i32, Offset::Beginning)?;
        }
        consumer.assign(&partitions)?;
        Ok(Self { producer, consumer, topic: topic.to_owned() })
    }

    /// Sends the history, and a payment to each partition that comes after it.
    pub(super) fn fill(&self, load: &Load) -> Result<()> {
        for (index, time) in load.history().enumerate() {
            self.send(time, mixed(index as u64), None)?;
        }
        for partition in 0..PARTITIONS {
            self.send(i64::from(partition), u64::from(partition), Some(partition as i32))?;
        }
        self.producer.flush(SETTLING).context("send the history")
    }

    /// Waits for the answers to the last payment of each partition: all of the history is in the windows then.
    pub(super) fn settle(&self, mut check_running: impl FnMut() -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        let mut open = PARTITIONS;
        while open > 0 {
            if self.answer()?.is_some_and(|number| number >= 0) {
                open -= 1;
            }
            check_running()?;
            ensure!(begun.elapsed() < SETTLING, "the history is not answered within {SETTLING:?}");
        }
        Ok(())
    }

    /// Sends payments on the schedule and takes their answers, in nanoseconds from when they were due.
    pub(super) fn run(&self, load: &Load) -> Result<Histogram<u64>> {
        let first = i64::from(PARTITIONS);
        let (total, warm_up) = (load.scheduled(), u64::from(load.rate) * u64::from(WARM_UP));
        let interval = Duration::from_secs(1).as_nanos() as u64 / u64::from(load.rate.max(1));
        let start = Instant::now() + Duration::from_millis(200);
        let due = |number: u64| start + Duration::from_nanos(interval * number);
        let has_failed = AtomicBool::new(false);
        let send_all = || -> Result<()> {
            usage::wake_up_promptly();
            for number in 0..total {
                thread::sleep(due(number).saturating_duration_since(Instant::now()));
                if let Err(error) = self.send(first + number as i64, mixed(number), None) {
                    has_failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            Ok(())
        };
        let receive_all = || -> Result<Histogram<u64>> {
            let mut latencies = Histogram::new_with_bounds(1, 600_000_000_000, 3)?;
            let mut is_answered = vec![false; usize::try_from(total)?];
            let (mut answered, end) = (0, due(total) + PATIENCE);
            while answered < total {
                let Some(number) = self.answer()?.and_then(|number| u64::try_from(number - first).ok())
                else {
                    let is_over = Instant::now() > end || has_failed.load(Ordering::Relaxed);
                    ensure!(!is_over, "{answered} of {total} payments are answered in time");
                    continue;
                };
                let now = Instant::now();
                let known = is_answered.get_mut(number as usize).context("an answer to no payment")?;
                ensure!(!std::mem::replace(known, true), "payment {number} is answered twice");
                answered += 1;
                if number >= warm_up {
                    let took = now.saturating_duration_since(due(number));
                    latencies.saturating_record(took.as_nanos() as u64);
                }
            }
            Ok(latencies)
        };
        thread::scope(|scope| {
            let sending = scope.spawn(send_all);
            let received = receive_all();
            sending.join().expect("sending does not panic")?;
            received
        })
    }

    /// A payment of the card that `noise` says, at a time after [`BASE`].
    fn send(&self, time: i64, noise: u64, partition: Option<i32>) -> Result<()> {
        let card = format!("c{:07}", noise % CARDS);
        let (merchant, cents) = (noise / 7 % 10_000, noise / 11 % 10_000);
        let line = format!("{},{card},m{merchant:05},{}.{:02}", BASE + time, cents / 100, cents % 100);
        loop {
            let mut record = BaseRecord::to(&self.topic).key(&card).payload(&line);
            record.partition = partition;
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err((error, _)) => return Err(error).context("send a payment"),
            }
        }
    }

    /// The number of the payment that the next answer is of, if one comes soon.
    fn answer(&self) -> Result<Option<i64>> {
        match self.consumer.poll(Duration::from_millis(100)) {
            None => Ok(None),
            Some(Ok(message)) => number_of(message.payload().unwrap_or_default()).map(Some),
            Some(Err(error)) => bail!("read answers: {error}"),
        }
    }
}

/// An answer begins with the event time of its payment.
fn number_of(answer: &[u8]) -> Result<i64> {
    let text = String::from_utf8_lossy(answer);
    let time = text.split(',').next().and_then(|time| time.parse::<i64>().ok());
    Ok(time.with_context(|| format!("no answer: {text:?}"))? - BASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_which_payment_they_are_of() {
        assert_eq!(number_of(format!("{},c0000001,3.25,1", BASE + 17).as_bytes()).unwrap(), 17);
        assert!(number_of(b"ts,card").is_err());
    }

    #[test]
    fn the_history_is_in_order_and_as_dense_as_the_load_at_its_beginning() {
        let load = Load { rate: 10, seconds: 1, history: 100 };
        let times: Vec<i64> = load.history().collect();
        assert_eq!(times.len(), 48 + 100);
        assert_eq!(times[..3], [-3_600_000, -3_599_999, -3_599_998]);
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(times.last().is_some_and(|last| *last < 0));
    }
}
