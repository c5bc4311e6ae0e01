//! A producer, with its acknowledgements put in order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header as NativeHeader, Message as _, OwnedHeaders};
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig,
};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::{ClientContext, Offset};

use super::bootstrap::Bootstrap;
use super::client::{Context, SOCKET_TIMEOUT, configured, given_up_in, problem_of, trouble};
use super::consumer::Served;
use super::steps::Steps;
use crate::{
    Acknowledged, BusError, GroupOffset, Outgoing, Problem, Producer, ProducerOptions, Sent, Settings,
    TopicPartition, Wake,
};

/// How soon a producer that is to end hears of it.
const SERVE: Duration = Duration::from_millis(100);

/// Bytes that the client keeps of a message on top of its own.
const OVERHEAD: usize = 128;

/// How often the outcome of a transaction is asked for before it counts as unknown.
const ATTEMPTS: usize = 3;

/// The messages with one tag.
#[derive(Default)]
struct Tag {
    tag: u64,
    sent: AtomicU64,
    /// Release where a message is written, acquire where the count is read.
    written: AtomicU64,
}

/// State that the producer shares with the thread that hears of deliveries.
struct Shared {
    context: Context,
    wake: Wake,
    in_flight: AtomicUsize,
    failure: OnceLock<BusError>,
    /// Somebody waits for news.
    is_awaited: AtomicBool,
    news: Mutex<()>,
    told: Condvar,
}

impl Shared {
    fn fail(&self, error: BusError) {
        let _ = self.failure.set(error);
        self.tell();
    }

    fn tell(&self) {
        (self.wake)();
        if self.is_awaited.swap(false, Ordering::AcqRel) {
            drop(self.news.lock().unwrap_or_else(PoisonError::into_inner));
            self.told.notify_all();
        }
    }
}

struct Deliveries(Arc<Shared>);

impl ClientContext for Deliveries {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.0.context.log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(RDKafkaErrorCode::Fatal) = error.rdkafka_error_code() {
            self.0.fail(BusError::new(Problem::NotWritten, "write", reason));
        }
        self.0.context.error(error, reason);
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.0.context.generate_oauth_token(config)
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Arc<Tag>;

    fn delivery(&self, result: &DeliveryResult<'_>, tag: Arc<Tag>) {
        let shared = &self.0;
        match result {
            Ok(message) => {
                shared.in_flight.fetch_sub(size(message.key(), message.payload()), Ordering::Relaxed);
                // One that follows a failure is a failure.
                if shared.failure.get().is_none() {
                    tag.written.fetch_add(1, Ordering::Release);
                }
                shared.tell();
            }
            Err((error, message)) => {
                shared.in_flight.fetch_sub(size(message.key(), message.payload()), Ordering::Relaxed);
                let action = format!("write to {}[{}]", message.topic(), message.partition());
                let mut error = trouble(action, error);
                if !matches!(
                    error.problem,
                    Problem::TooLarge | Problem::Unauthorized | Problem::NoTopic | Problem::Fenced
                ) {
                    error.problem = Problem::NotWritten;
                }
                shared.fail(error);
            }
        }
    }
}

/// The bytes of a message as they are counted, without its headers, which are not known to the report of its delivery.
fn size(key: Option<&[u8]>, value: Option<&[u8]>) -> usize {
    OVERHEAD + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len)
}

pub(super) struct KafkaProducer {
    producer: Arc<BaseProducer<Deliveries>>,
    shared: Arc<Shared>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Tags whose messages are not all known to be written, in order; the last one may get more.
    tags: VecDeque<Arc<Tag>>,
    below: u64,
    timeout: Duration,
    /// Of one with a transactional id.
    transactions: Option<Transactions>,
}

/// What it takes to commit.
struct Transactions {
    group: Arc<ConsumerGroupMetadata>,
    steps: Steps,
}

impl KafkaProducer {
    pub(super) fn new(
        settings: &Arc<Settings>,
        options: ProducerOptions,
        group: Option<Served>,
    ) -> Result<Self, BusError> {
        let mut config = configured(settings)?;
        for (name, value) in [
            ("enable.idempotence", "true".to_owned()),
            ("acks", "all".to_owned()),
            ("partitioner", "murmur2_random".to_owned()),
            ("compression.type", options.compression.name().to_owned()),
            ("message.max.bytes", options.max_message.to_string()),
            ("linger.ms", (options.linger.as_secs_f64() * 1_000.0).to_string()),
            ("queue.buffering.max.messages", "0".to_owned()),
            ("queue.buffering.max.kbytes", (2 * options.queue / 1_024).max(1_024).to_string()),
        ] {
            config.set(name, value);
        }
        if let Some(requests) = options.requests {
            config.set("max.in.flight", requests.to_string());
        }
        match &options.transactional_id {
            None => {
                // A queued message is never given up, and none is written after one that was not.
                config.set("message.timeout.ms", "0").set("enable.gapless.guarantee", "true");
            }
            Some(id) => {
                config.set("transactional.id", id);
                if let Some(millis) = given_up_in(&settings.properties) {
                    config.set(SOCKET_TIMEOUT, millis.to_string());
                }
            }
        }
        let shared = Arc::new(Shared {
            context: Context::new(Arc::clone(settings)),
            wake: options.wake,
            in_flight: AtomicUsize::new(0),
            failure: OnceLock::new(),
            is_awaited: AtomicBool::new(false),
            news: Mutex::new(()),
            told: Condvar::new(),
        });
        let action = "make a producer";
        let made: Result<BaseProducer<Deliveries>, KafkaError> =
            config.create_with_context(Deliveries(Arc::clone(&shared)));
        let producer = Arc::new(made.map_err(|error| trouble(action, &error))?);
        let is_over = Arc::new(AtomicBool::new(false));
        let (served, over) = (Arc::clone(&producer), Arc::clone(&is_over));
        let mut bootstrap = Bootstrap::new(Arc::clone(settings));
        let serve = move || {
            // Relaxed: it orders nothing.
            while !over.load(Ordering::Relaxed) {
                served.poll(SERVE);
                bootstrap.look(served.client());
            }
        };
        let thread = std::thread::Builder::new()
            .name("kafka:deliver".to_owned())
            .spawn(serve)
            .map_err(|error| BusError::new(Problem::Other, action, error.to_string()))?;
        let timeout = settings.request_timeout;
        let group = group.and_then(|served| served.consumer().group_metadata());
        let transactions = group.map(|group| {
            let steps = Steps::start(timeout)?;
            Ok(Transactions { group: Arc::new(group), steps })
        });
        let (transactions, tags) = (transactions.transpose()?, VecDeque::new());
        let made =
            Self { producer, shared, is_over, thread: Some(thread), tags, below: 0, timeout, transactions };
        if let Some(id) = &options.transactional_id {
            let action = format!("begin transactions as {id:?}");
            let begun = made.step(&action, move |producer| producer.init_transactions(timeout))?;
            begun.map_err(|error| made.shared.context.explained(transaction_trouble(&action, &error)))?;
        }
        Ok(made)
    }

    /// Does a step of a transaction, which may not return.
    fn step<T: Send + 'static>(
        &self,
        action: &str,
        step: impl FnOnce(&BaseProducer<Deliveries>) -> T + Send + 'static,
    ) -> Result<T, BusError> {
        let Some(Transactions { steps, .. }) = &self.transactions else {
            return Err(BusError::new(Problem::Other, action, "the producer has no transactional id"));
        };
        let producer = Arc::clone(&self.producer);
        steps.call(action, move || step(&producer))
    }

    fn tag(&mut self, tag: u64) -> Arc<Tag> {
        if self.tags.back().is_none_or(|last| last.tag != tag) {
            self.tags.push_back(Arc::new(Tag { tag, ..Tag::default() }));
        }
        let last = self.tags.back().expect("one was just put there");
        Arc::clone(last)
    }

    /// Gives up the open transaction.
    fn abort(&self) -> Result<(), BusError> {
        let (action, timeout) = ("abort a transaction", self.timeout);
        let aborted = self.step(action, move |producer| producer.abort_transaction(timeout))?;
        aborted.map_err(|error| transaction_trouble(action, &error))
    }

    /// Ends a step of a transaction that has failed: aborted if it can be, else by name.
    fn ended(&self, action: &str, error: &KafkaError) -> BusError {
        let trouble = transaction_trouble(action, error);
        let KafkaError::Transaction(inner) = error else { return trouble };
        if trouble.problem == Problem::Fenced {
            return trouble;
        }
        if inner.txn_requires_abort() && self.abort().is_ok() {
            return BusError { problem: Problem::Aborted, ..trouble };
        }
        BusError { problem: Problem::OutcomeUnknown, ..trouble }
    }

    /// Offsets of the group of this producer, which are committed with the open transaction.
    fn send_offsets(&self, action: &str, offsets: &[(TopicPartition, GroupOffset)]) -> Result<(), BusError> {
        let mut list = TopicPartitionList::new();
        for (of, offset) in offsets {
            list.add_partition_offset(&of.topic, of.partition, Offset::Offset(offset.offset))
                .map_err(|error| trouble(action.to_owned(), &error))?;
            if let Some(mut element) = list.find_partition(&of.topic, of.partition) {
                element.set_metadata(&offset.metadata);
            }
        }
        let Some(Transactions { group, .. }) = &self.transactions else {
            return Err(BusError::new(Problem::Other, action, "the producer has no transactional id"));
        };
        let (list, group, timeout) = (Arc::new(list), Arc::clone(group), self.timeout);
        self.repeated(action, move |producer| producer.send_offsets_to_transaction(&list, &group, timeout))
    }

    /// Repeats a step of a transaction while that makes sense.
    fn repeated(
        &self,
        action: &str,
        step: impl Fn(&BaseProducer<Deliveries>) -> Result<(), KafkaError> + Clone + Send + 'static,
    ) -> Result<(), BusError> {
        let mut attempts = 0;
        loop {
            let Err(error) = self.step(action, step.clone())? else { return Ok(()) };
            attempts += 1;
            let is_retriable = matches!(&error, KafkaError::Transaction(inner) if inner.is_retriable());
            if !is_retriable || attempts == ATTEMPTS {
                return Err(self.ended(action, &error));
            }
        }
    }
}

fn transaction_trouble(action: &str, error: &KafkaError) -> BusError {
    match error {
        KafkaError::Transaction(inner) => BusError::new(problem_of(inner.code()), action, inner.string()),
        other => trouble(action, other),
    }
}

impl Producer for KafkaProducer {
    fn send(&mut self, message: &Outgoing<'_>, tag: u64) -> Result<Sent, BusError> {
        if let Some(failure) = self.shared.failure.get() {
            return Err(failure.clone());
        }
        let tag = self.tag(tag);
        let mut record = BaseRecord::<[u8], [u8], Arc<Tag>>::with_opaque_to(message.topic, Arc::clone(&tag));
        record = record.payload(message.value);
        if let Some(key) = message.key {
            record = record.key(key);
        }
        if let Some(partition) = message.partition {
            record = record.partition(partition);
        }
        if !message.headers.is_empty() {
            let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
            for header in message.headers {
                headers = headers.insert(NativeHeader { key: header.name, value: header.value });
            }
            record = record.headers(headers);
        }
        let bytes = size(message.key, Some(message.value));
        tag.sent.fetch_add(1, Ordering::Relaxed);
        self.shared.in_flight.fetch_add(bytes, Ordering::Relaxed);
        let Err((error, _)) = self.producer.send(record) else { return Ok(Sent::Taken) };
        tag.sent.fetch_sub(1, Ordering::Relaxed);
        self.shared.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => Ok(Sent::Full),
            _ => Err(trouble(format!("write to {:?}", message.topic), &error)),
        }
    }

    fn acknowledged(&mut self) -> Acknowledged {
        let failure = self.shared.failure.get().cloned();
        if failure.is_none() {
            while let Some(first) = self.tags.front() {
                if first.written.load(Ordering::Acquire) < first.sent.load(Ordering::Relaxed) {
                    break;
                }
                self.below = first.tag + 1;
                self.tags.pop_front();
            }
        }
        Acknowledged { below: self.below, in_flight: self.shared.in_flight.load(Ordering::Relaxed), failure }
    }

    fn wait(&mut self, at_most: Duration) {
        let news = self.shared.news.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.is_awaited.store(true, Ordering::Release);
        drop(self.shared.told.wait_timeout(news, at_most));
    }

    fn partitions(&mut self, topic: &str) -> Result<i32, BusError> {
        let action = format!("look up topic {topic:?}");
        let metadata = self
            .producer
            .client()
            .fetch_metadata(Some(topic), self.timeout)
            .map_err(|error| self.shared.context.explained(trouble(action.clone(), &error)))?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        if let Some(error) = found.and_then(rdkafka::metadata::MetadataTopic::error) {
            let code = RDKafkaErrorCode::from(error);
            return Err(BusError::new(problem_of(code), action, code.to_string()));
        }
        match found.map_or(0, |found| found.partitions().len()) {
            0 => Err(BusError::new(Problem::NoTopic, action, "it does not exist")),
            count => Ok(count as i32),
        }
    }

    fn begin(&mut self) -> Result<(), BusError> {
        let begun = self.producer.begin_transaction();
        begun.map_err(|error| transaction_trouble("begin a transaction", &error))
    }

    fn commit(&mut self, group: &str, offsets: &[(TopicPartition, GroupOffset)]) -> Result<(), BusError> {
        let action = format!("commit a transaction of {group:?}");
        self.send_offsets(&action, offsets)?;
        let timeout = self.timeout;
        self.repeated(&action, move |producer| producer.commit_transaction(timeout))?;
        match self.shared.failure.get() {
            // Cannot be: a transaction with a message that was not written is aborted.
            Some(failure) => Err(BusError { problem: Problem::OutcomeUnknown, ..failure.clone() }),
            None => Ok(()),
        }
    }

    fn probe(&mut self, group: &str, of: &TopicPartition) -> Result<(), BusError> {
        self.begin()?;
        let action = format!("try the coordinator of group {group:?}");
        self.send_offsets(&action, &[(of.clone(), GroupOffset::default())])?;
        self.abort()
    }
}

impl Drop for KafkaProducer {
    /// What is not written stays so: nobody has counted on it.
    fn drop(&mut self) {
        self.producer.purge(PurgeConfig::default().queue().inflight());
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::*;
    use crate::{Bus as _, ConsumerOptions, Isolation, KafkaBus};

    /// Outside of transactions the library's own brokers compare no numbers, as a real one does not for a producer of which
    /// the partition has nothing: they take a second request after they have refused the first. The library reports both as
    /// written then (confluent-kafka-go#921).
    #[test]
    fn with_one_request_on_its_way_nothing_is_lost_of_a_partition_that_refuses_the_first() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", 1, 1).unwrap();
        // Time for others to leave before the first is answered, if they might.
        cluster.broker_round_trip_time(1, Duration::from_millis(20)).unwrap();
        let mut settings = Settings::new(vec![cluster.bootstrap_servers()]);
        // A request for each message.
        settings.properties.push(("batch.num.messages".to_owned(), "1".to_owned()));
        let bus = KafkaBus::new(settings).unwrap();
        let options = ProducerOptions { requests: Some(1), ..ProducerOptions::new(1_000, 1 << 20) };
        let mut producer = bus.producer(options).unwrap();
        let refusal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION;
        cluster.request_errors(RDKafkaApiKey::Produce, &[refusal]);
        let sent: Vec<u8> = (0..20).collect();
        for value in &sent {
            let value = &[*value];
            let message = Outgoing { topic: "t", partition: Some(0), key: None, value, headers: &[] };
            assert_eq!(producer.send(&message, 0), Ok(Sent::Taken));
        }
        while producer.acknowledged().below == 0 {
            assert_eq!(producer.acknowledged().failure, None);
            producer.wait(Duration::from_millis(10));
        }
        let options = ConsumerOptions {
            group: "g".to_owned(),
            isolation: Isolation::Committed,
            queue: 1 << 20,
            wake: Arc::new(|| {}),
        };
        let mut consumer = bus.consumer(options).unwrap();
        let partition = consumer.assign(&TopicPartition::new("t", 0), 0).unwrap();
        let mut there = Vec::new();
        let mut take = |message: &crate::Message<'_>| {
            there.extend_from_slice(message.value.unwrap());
            true
        };
        while consumer.take(partition, Duration::from_millis(100), &mut take).unwrap().end.is_none() {}
        assert_eq!(there, sent);
    }
}
