//! Consumers: one that fetches, and one that is only asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::bindings as native;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::{ClientConfig, Offset};
use tracing::debug;

use super::bootstrap::Bootstrap;
use super::client::{Context, configured, trouble};
use super::queue::PartitionQueue;
use crate::{
    Bounds, BusError, Consumer, ConsumerOptions, Isolation, Message, Problem, Settings, Taken,
    TopicPartition, Wake,
};

/// How soon a client that is to end hears of it.
const SERVE: Duration = Duration::from_millis(100);

/// Bytes that the client keeps of a message that waits, on top of its own.
const OVERHEAD: usize = 512;

/// A client with the thread that hears what it reports.
///
/// That thread ends the client, too, and nobody waits for it: a consumer leaves its group when it ends, and asks for the
/// coordinator of that until brokers answer (librdkafka's issue 3740).
pub(super) struct Served {
    consumer: Arc<BaseConsumer<Context>>,
    is_over: Arc<AtomicBool>,
}

impl Served {
    /// # Errors
    /// If a setting is wrong, or there is no thread.
    pub(super) fn start(config: &ClientConfig, settings: Arc<Settings>) -> Result<Self, BusError> {
        let action = "make a consumer";
        let mut bootstrap = Bootstrap::new(Arc::clone(&settings));
        let made: Result<BaseConsumer<Context>, KafkaError> =
            config.create_with_context(Context::new(settings));
        let consumer = Arc::new(made.map_err(|error| trouble(action, &error))?);
        let is_over = Arc::new(AtomicBool::new(false));
        let (served, over) = (Arc::clone(&consumer), Arc::clone(&is_over));
        let serve = move || {
            // Relaxed: it orders nothing.
            while !over.load(Ordering::Relaxed) {
                // Messages come by queues of their own.
                if let Some(Err(error)) = served.poll(SERVE) {
                    debug!(%error, "kafka consumer");
                }
                bootstrap.look(served.client());
            }
            // Whoever has it last ends it.
            while Arc::strong_count(&served) > 1 {
                std::thread::sleep(SERVE);
            }
            bootstrap.look_at_last(served.client());
        };
        std::thread::Builder::new()
            .name("kafka:serve".to_owned())
            .spawn(serve)
            .map_err(|error| BusError::new(Problem::Other, action, error.to_string()))?;
        Ok(Self { consumer, is_over })
    }

    pub(super) fn consumer(&self) -> &Arc<BaseConsumer<Context>> {
        &self.consumer
    }

    /// As [`Context::explained`].
    pub(super) fn explained(&self, error: BusError) -> BusError {
        self.consumer.context().explained(error)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Fetches partitions.
pub(super) struct KafkaConsumer {
    // Queues go before the client.
    queues: Vec<Option<PartitionQueue>>,
    partitions: Vec<(TopicPartition, Wake)>,
    options: ConsumerOptions,
    served: Served,
}

impl KafkaConsumer {
    pub(super) fn new(settings: &Arc<Settings>, options: ConsumerOptions) -> Result<Self, BusError> {
        let mut config = configured(settings)?;
        let kib = (options.queue / 1024).max(1);
        let user = |name: &str| settings.properties.iter().any(|(given, _)| given == name);
        for (name, value) in [
            ("group.id", options.group.as_str()),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "error"),
            ("check.crcs", "true"),
            ("enable.partition.eof", "true"),
            // Nobody is in the group: no poll is overdue.
            ("max.poll.interval.ms", "86400000"),
            (
                "isolation.level",
                match options.isolation {
                    Isolation::Committed => "read_committed",
                    Isolation::Uncommitted => "read_uncommitted",
                },
            ),
        ] {
            config.set(name, value);
        }
        // Both bounds of the queue of a partition: bytes are counted without what the client keeps of each message.
        let messages = (options.queue / OVERHEAD).max(1_000);
        for (name, value) in [
            ("queued.max.messages.kbytes", kib.to_string()),
            ("queued.min.messages", messages.to_string()),
            // A full queue is looked at again soon, and an empty partition too.
            ("fetch.queue.backoff.ms", "5".to_owned()),
            ("fetch.error.backoff.ms", "100".to_owned()),
            ("fetch.wait.max.ms", "100".to_owned()),
        ] {
            if !user(name) {
                config.set(name, value);
            }
        }
        let served = Served::start(&config, Arc::clone(settings))?;
        Ok(Self { queues: Vec::new(), partitions: Vec::new(), options, served })
    }

    /// Has the client fetch a partition, into a queue of its own.
    fn fetched(&self, of: &TopicPartition, offset: i64, wake: &Wake) -> Result<PartitionQueue, BusError> {
        let action = || format!("read {of} from offset {offset}");
        let queue = PartitionQueue::of(self.served.consumer(), of, wake)?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&of.topic, of.partition, Offset::Offset(offset))
            .map_err(|error| trouble(action(), &error))?;
        self.served.consumer().incremental_assign(&list).map_err(|error| trouble(action(), &error))?;
        Ok(queue)
    }

    /// A partition that is read, and its call to wake.
    fn partition(&self, partition: usize) -> Result<&(TopicPartition, Wake), BusError> {
        self.queues.get(partition).and_then(Option::as_ref).ok_or_else(|| unassigned(partition))?;
        Ok(&self.partitions[partition])
    }

    fn end(&mut self, partition: usize, of: &TopicPartition) -> Result<(), BusError> {
        self.queues[partition] = None;
        let mut list = TopicPartitionList::new();
        list.add_partition(&of.topic, of.partition);
        let ended = self.served.consumer().incremental_unassign(&list);
        ended.map_err(|error| trouble(format!("end reading {of}"), &error))
    }

    fn queue(&mut self, partition: usize) -> Result<&mut PartitionQueue, BusError> {
        let queue = self.queues.get_mut(partition).and_then(Option::as_mut);
        queue.ok_or_else(|| unassigned(partition))
    }
}

fn unassigned(partition: usize) -> BusError {
    BusError::new(Problem::Other, format!("read partition {partition}"), "it was not assigned")
}

impl Consumer for KafkaConsumer {
    fn assign(&mut self, partition: &TopicPartition, offset: i64) -> Result<usize, BusError> {
        let wake = Arc::clone(&self.options.wake);
        self.assign_waking(partition, offset, wake)
    }

    fn assign_waking(
        &mut self,
        partition: &TopicPartition,
        offset: i64,
        wake: Wake,
    ) -> Result<usize, BusError> {
        let queue = self.fetched(partition, offset, &wake)?;
        self.queues.push(Some(queue));
        self.partitions.push((partition.clone(), wake));
        Ok(self.queues.len() - 1)
    }

    fn unassign(&mut self, partition: usize) -> Result<(), BusError> {
        let (of, _) = self.partition(partition)?.clone();
        self.end(partition, &of)
    }

    fn seek(&mut self, partition: usize, offset: i64) -> Result<(), BusError> {
        let (of, wake) = self.partition(partition)?.clone();
        // Before there is another for the same partition, whose callback it would take away.
        self.end(partition, &of)?;
        self.queues[partition] = Some(self.fetched(&of, offset, &wake)?);
        Ok(())
    }

    fn take(
        &mut self,
        partition: usize,
        wait: Duration,
        each: &mut dyn FnMut(&Message<'_>) -> bool,
    ) -> Result<Taken, BusError> {
        self.queue(partition)?.take(wait, each)
    }

    fn peek(
        &mut self,
        partition: usize,
        each: &mut dyn FnMut(&Message<'_>) -> bool,
    ) -> Result<Taken, BusError> {
        self.queue(partition)?.peek(each)
    }

    fn peek_again(&mut self, partition: usize) {
        if let Some(Some(queue)) = self.queues.get_mut(partition) {
            queue.peek_again();
        }
    }

    fn bounds(&self, partition: usize) -> Option<Bounds> {
        let (of, _) = self.partitions.get(partition)?;
        let topic = std::ffi::CString::new(&*of.topic).ok()?;
        let (mut start, mut end) = (-1, -1);
        let client = self.served.consumer().client().native_ptr();
        #[expect(
            unsafe_code,
            reason = "the binding has no call for the offsets that the client knows already"
        )]
        // SAFETY: client, name and both places are alive.
        let error = unsafe {
            native::rd_kafka_get_watermark_offsets(
                client,
                topic.as_ptr(),
                of.partition,
                &raw mut start,
                &raw mut end,
            )
        };
        let is_known = error == native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR && end >= 0;
        is_known.then_some(Bounds { start: start.max(0), end })
    }

    fn commit_group(&mut self, offsets: &[(usize, i64)]) -> Result<(), BusError> {
        let action = || format!("commit offsets of group {:?}", self.options.group);
        let mut list = TopicPartitionList::new();
        for (partition, offset) in offsets {
            let (of, _) = self.partition(*partition)?;
            list.add_partition_offset(&of.topic, of.partition, Offset::Offset(*offset))
                .map_err(|error| trouble(action(), &error))?;
        }
        let committed = self.served.consumer().commit(&list, CommitMode::Async);
        committed.map_err(|error| trouble(action(), &error))
    }
}
