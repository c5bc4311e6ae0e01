//! Writes the input while the job runs: by an idempotent producer, and some of it in transactions, of which some are
//! aborted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use serde_json::json;

use super::super::payments::Record;
use super::topics::{PATIENCE, client};
use thalweg_harness::random::Random;

/// Records of one partition.
pub(super) struct Partition {
    records: Vec<Record>,
    /// How many of them were handed to a producer that will write them.
    sent: usize,
}

/// What has become of messages.
#[derive(Clone, Default)]
struct Deliveries {
    written: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let count = if result.is_ok() { &self.written } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The input topic, as far as it was written.
pub(super) struct Input {
    address: String,
    topic: String,
    pub(super) partitions: Vec<Partition>,
    /// How many of the partitions the topic has by now.
    pub(super) exist: usize,
    producer: BaseProducer<Deliveries>,
    deliveries: Deliveries,
    /// Messages that the producer was given.
    given: u64,
    /// Records that were written in transactions.
    in_transactions: u64,
    pub(super) aborted: u64,
}

impl Input {
    /// `exist`: how many of the partitions the topic has.
    pub(super) fn new(address: &str, topic: &str, records: Vec<Vec<Record>>, exist: usize) -> Result<Self> {
        let deliveries = Deliveries::default();
        let mut config = client(address);
        config.set("enable.idempotence", "true").set("linger.ms", "1").set("message.timeout.ms", "0");
        // A partition that was made just now may refuse a producer's first request and take its second, as brokers hold no
        // sequence of it against that.
        config.set("max.in.flight", "1");
        let producer = config.create_with_context(deliveries.clone()).context("make a producer")?;
        let partitions = records.into_iter().map(|records| Partition { records, sent: 0 }).collect();
        let (address, topic) = (address.to_owned(), topic.to_owned());
        Ok(Self {
            address,
            topic,
            partitions,
            exist,
            producer,
            deliveries,
            given: 0,
            in_transactions: 0,
            aborted: 0,
        })
    }

    /// Sends some of the next records of a partition, and does not wait.
    pub(super) fn send(&mut self, random: &mut Random, most: u64) -> Result<()> {
        let Some(at) = self.pick(random) else { return Ok(()) };
        let partition = &mut self.partitions[at];
        for _ in 0..random.between(0, most) {
            let Some(record) = partition.records.get(partition.sent) else { break };
            let value = value(record);
            let message = BaseRecord::to(&self.topic).partition(at as i32).key(&record.card).payload(&value);
            match self.producer.send(message) {
                Ok(()) => {}
                // A partition that was made just now is not known yet.
                Err((error, _)) if is_passing(&error) => break,
                Err((error, _)) => return Err(error).context("write the input"),
            }
            partition.sent += 1;
            self.given += 1;
        }
        Ok(())
    }

    /// Has records written in a transaction, and sees that it ends: as an abort, after which they are still to be written,
    /// or a commit. The broker has to be up.
    pub(super) fn transact(&mut self, random: &mut Random) -> Result<()> {
        // Records of one partition stay in order.
        self.producer.flush(PATIENCE).context("write the input")?;
        let Some(at) = self.pick(random) else { return Ok(()) };
        let mut config = client(&self.address);
        config.set("transactional.id", format!("{}-feeder", self.topic)).set("linger.ms", "1");
        let deliveries = Deliveries::default();
        let producer: BaseProducer<Deliveries> =
            config.create_with_context(deliveries.clone()).context("make a transactional producer")?;
        producer.init_transactions(PATIENCE).context("begin transactions of the input")?;
        for _ in 0..random.between(1, 3) {
            producer.begin_transaction().context("begin a transaction of the input")?;
            let partition = &mut self.partitions[at];
            let count = (random.between(1, 60) as usize).min(partition.records.len() - partition.sent);
            for record in &partition.records[partition.sent..partition.sent + count] {
                let value = value(record);
                let message =
                    BaseRecord::to(&self.topic).partition(at as i32).key(&record.card).payload(&value);
                if let Err((error, _)) = producer.send(message) {
                    return Err(error).context("write the input in a transaction");
                }
            }
            // Also what is aborted has been written before.
            producer.flush(PATIENCE).context("write the input in a transaction")?;
            if random.percent(50) {
                producer.abort_transaction(PATIENCE).context("abort a transaction of the input")?;
                self.aborted += count as u64;
            } else {
                producer.commit_transaction(PATIENCE).context("commit a transaction of the input")?;
                partition.sent += count;
                self.in_transactions += count as u64;
            }
        }
        Ok(())
    }

    /// The topic has one partition more.
    pub(super) fn grown(&mut self) -> Result<()> {
        self.exist += 1;
        // So that the producer hears of it.
        let client: &Client<Deliveries> = self.producer.client();
        client.fetch_metadata(Some(&self.topic), PATIENCE).context("look up the input topic")?;
        Ok(())
    }

    /// Hears of deliveries.
    ///
    /// # Errors
    /// If a record was not written: a broker that comes back takes all of them.
    pub(super) fn look(&self) -> Result<()> {
        self.producer.poll(std::time::Duration::ZERO);
        let failed = self.deliveries.failed.load(Ordering::Relaxed);
        ensure!(failed == 0, "{failed} records of the input were not written");
        Ok(())
    }

    /// How many records are written.
    pub(super) fn written(&self) -> u64 {
        self.deliveries.written.load(Ordering::Relaxed) + self.in_transactions
    }

    /// How many there are, of all partitions.
    pub(super) fn count(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.records.len() as u64).sum()
    }

    /// All records of the partitions that exist were given to the producer.
    pub(super) fn is_all_sent(&self) -> bool {
        self.partitions[..self.exist].iter().all(|partition| partition.sent == partition.records.len())
    }

    pub(super) fn is_written(&self) -> bool {
        self.written() == self.count()
    }

    /// A partition of the topic that has records left.
    fn pick(&self, random: &mut Random) -> Option<usize> {
        let has_more = |at: &usize| self.partitions[*at].sent < self.partitions[*at].records.len();
        let left: Vec<usize> = (0..self.exist).filter(has_more).collect();
        (!left.is_empty()).then(|| random.pick(&left))
    }
}

impl Partition {
    /// Compares with what is in the topic.
    pub(super) fn check(&self, found: &[Record]) -> Result<()> {
        let same = self.records.iter().zip(found).take_while(|(one, other)| one == other).count();
        if same < self.records.len() || same < found.len() {
            bail!(
                "record {same} of the input topic is {:?}, sent was {:?}",
                found.get(same),
                self.records.get(same)
            );
        }
        Ok(())
    }
}

fn is_passing(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(RDKafkaErrorCode::UnknownPartition | RDKafkaErrorCode::QueueFull)
    )
}

/// A message.
fn value(record: &Record) -> String {
    let Record { ts, id, card, shop, quarters } = record;
    json!({ "ts": ts, "id": id, "card": card, "shop": shop, "amount": *quarters as f64 / 4.0 }).to_string()
}
