//! The bus over librdkafka: clients of real brokers.
//!
//! A client is served by a thread of its own, which hears what the library reports: errors, log lines, deliveries,
//! requests for a new token. The library has threads of its own, too: one per broker and one per client.

mod bootstrap;
mod client;
mod consumer;
mod describe;
mod group;
mod producer;
mod queue;
mod steps;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic as NativeTopic, TopicReplication};
use rdkafka::consumer::Consumer as _;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset};

use self::client::{Context, configured, give_token, problem_of, trouble};
use self::consumer::{KafkaConsumer, Served};
use self::group::KafkaGroup;
use self::producer::KafkaProducer;
use crate::{
    Bounds, Bus, BusError, Consumer, ConsumerOptions, Group, NewTopic, Problem, Producer, ProducerOptions,
    Settings, Topic, TopicPartition,
};

/// The library's version, such as `2.12.1`.
pub fn library_version() -> String {
    rdkafka::util::get_rdkafka_version().1
}

/// A cluster of brokers.
pub struct KafkaBus {
    settings: Arc<Settings>,
    /// Asks about topics and offsets; made with the first question.
    asking: OnceLock<Served>,
    /// Held while it is made.
    making: Mutex<()>,
}

impl KafkaBus {
    /// Nothing is connected to yet.
    ///
    /// # Errors
    /// If a setting is wrong.
    pub fn new(settings: Settings) -> Result<Self, BusError> {
        let bus = Self { settings: Arc::new(settings), asking: OnceLock::new(), making: Mutex::new(()) };
        // The library checks names and values when it makes a client.
        configured(&bus.settings)?;
        Ok(bus)
    }

    fn asking(&self) -> Result<&Served, BusError> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asking) = self.asking.get() {
            return Ok(asking);
        }
        let mut config = configured(&self.settings)?;
        // A consumer needs a group, which nothing is ever committed to.
        config.set("group.id", format!("{}.asks", self.settings.client_id));
        config.set("isolation.level", "read_committed");
        let served = Served::start(&config, Arc::clone(&self.settings))?;
        Ok(self.asking.get_or_init(|| served))
    }

    /// A client that is asked for what a group has committed.
    fn of_group(&self, group: &str) -> Result<Served, BusError> {
        let mut config = configured(&self.settings)?;
        config.set("group.id", group).set("isolation.level", "read_committed");
        config.set("enable.auto.commit", "false");
        Served::start(&config, Arc::clone(&self.settings))
    }
}

impl Bus for KafkaBus {
    fn topics(&self, names: Option<&[Arc<str>]>) -> Result<Vec<Topic>, BusError> {
        let asking = self.asking()?;
        let (consumer, timeout) = (asking.consumer(), self.settings.request_timeout);
        let found: Vec<Arc<str>> = match names {
            Some(names) => names.to_vec(),
            None => {
                let action = "list the topics";
                let metadata = consumer
                    .fetch_metadata(None, timeout)
                    .map_err(|error| asking.explained(trouble(action, &error)))?;
                metadata.topics().iter().map(|topic| topic.name().into()).collect()
            }
        };
        let mut topics = Vec::new();
        for name in found {
            let action = format!("look up topic {name:?}");
            let metadata = consumer
                .fetch_metadata(Some(&name), timeout)
                .map_err(|error| asking.explained(trouble(action.clone(), &error)))?;
            let topic = metadata.topics().iter().find(|topic| topic.name() == &*name);
            let error = topic.and_then(rdkafka::metadata::MetadataTopic::error);
            if let Some(error) = error {
                let code = RDKafkaErrorCode::from(error);
                return Err(BusError::new(problem_of(code), action, code.to_string()));
            }
            let partitions = topic.map_or(0, |topic| topic.partitions().len());
            if partitions == 0 {
                return Err(BusError::new(Problem::NoTopic, action, "it does not exist"));
            }
            let first = topic.and_then(|topic| topic.partitions().first());
            let copies = first.map_or(0, |first| first.replicas().len()) as i32;
            topics.push(Topic { name, id: None, partitions: partitions as i32, copies });
        }
        describe::add_ids(consumer.client(), &mut topics, timeout);
        Ok(topics)
    }

    fn bounds(&self, of: &TopicPartition) -> Result<Bounds, BusError> {
        let asking = self.asking()?;
        let timeout = self.settings.request_timeout;
        let (start, end) = asking
            .consumer()
            .fetch_watermarks(&of.topic, of.partition, timeout)
            .map_err(|error| asking.explained(trouble(format!("look up the offsets of {of}"), &error)))?;
        Ok(Bounds { start, end })
    }

    fn offsets_at(&self, of: &[TopicPartition], time: i64) -> Result<Vec<i64>, BusError> {
        let asking = self.asking()?;
        let action = "look up offsets by time";
        let mut list = TopicPartitionList::new();
        for of in of {
            list.add_partition_offset(&of.topic, of.partition, Offset::Offset(time.max(0)))
                .map_err(|error| trouble(action, &error))?;
        }
        let found = asking
            .consumer()
            .offsets_for_times(list, self.settings.request_timeout)
            .map_err(|error| asking.explained(trouble(action, &error)))?;
        let mut offsets = Vec::new();
        for of in of {
            let element = found.find_partition(&of.topic, of.partition);
            let offset = element.map(|element| element.error().map(|()| element.offset()));
            offsets.push(match offset {
                Some(Ok(Offset::Offset(offset))) => offset,
                Some(Ok(_)) => self.bounds(of)?.end,
                Some(Err(error)) => return Err(trouble(format!("look up the time {time} in {of}"), &error)),
                None => {
                    return Err(BusError::new(Problem::Other, action, format!("nothing is said of {of}")));
                }
            });
        }
        Ok(offsets)
    }

    fn consumer(&self, options: ConsumerOptions) -> Result<Box<dyn Consumer>, BusError> {
        Ok(Box::new(KafkaConsumer::new(&self.settings, options)?))
    }

    fn producer(&self, options: ProducerOptions) -> Result<Box<dyn Producer>, BusError> {
        let group = options.transactional_id.as_deref().map(|id| self.of_group(id)).transpose()?;
        Ok(Box::new(KafkaProducer::new(&self.settings, options, group)?))
    }

    fn group(&self, group: &str) -> Result<Box<dyn Group>, BusError> {
        Ok(Box::new(KafkaGroup {
            name: group.to_owned(),
            served: self.of_group(group)?,
            timeout: self.settings.request_timeout,
        }))
    }

    fn create_topic(&self, topic: &NewTopic) -> Result<bool, BusError> {
        let action = format!("make topic {:?}", topic.name);
        let admin = self.admin(&action)?;
        let mut new =
            NativeTopic::new(&topic.name, topic.partitions, TopicReplication::Fixed(topic.replication));
        for (name, value) in &topic.settings {
            new = new.set(name, value);
        }
        let asked = admin.create_topics([&new], &self.admin_options());
        let made = futures_executor::block_on(asked).map_err(|error| trouble(action.clone(), &error))?;
        match made.into_iter().next() {
            Some(Ok(_)) => Ok(true),
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(false),
            Some(Err((_, code))) => Err(BusError::new(problem_of(code), action, code.to_string())),
            None => Err(BusError::new(Problem::Other, action, "the broker says nothing of it")),
        }
    }

    fn delete_records(&self, of: &TopicPartition, below: i64) -> Result<(), BusError> {
        let action = format!("delete records of {of} below {below}");
        let admin = self.admin(&action)?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&of.topic, of.partition, Offset::Offset(below))
            .map_err(|error| trouble(action.clone(), &error))?;
        let asked = admin.delete_records(&list, &self.admin_options());
        let done = futures_executor::block_on(asked).map_err(|error| trouble(action.clone(), &error))?;
        match done.find_partition(&of.topic, of.partition) {
            Some(element) => element.error().map_err(|error| trouble(action, &error)),
            None => Err(BusError::new(Problem::Other, action, "the broker says nothing of it")),
        }
    }
}

impl KafkaBus {
    fn admin(&self, action: &str) -> Result<AdminClient<Context>, BusError> {
        let config: ClientConfig = configured(&self.settings)?;
        let context = Context::new(Arc::clone(&self.settings));
        let admin: AdminClient<Context> =
            config.create_with_context(context).map_err(|error| trouble(action, &error))?;
        give_token(admin.inner())?;
        Ok(admin)
    }

    fn admin_options(&self) -> AdminOptions {
        let timeout = Some(self.settings.request_timeout);
        AdminOptions::new().request_timeout(timeout).operation_timeout(timeout)
    }
}
