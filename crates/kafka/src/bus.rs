//! The trait of the bus, and what goes over it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::BusError;

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.partition)
    }
}

/// What a broker gave a topic when it was made: a topic of the same name that is made later has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopicId(pub [u8; 16]);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A topic that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub name: Arc<str>,
    /// `None` where the broker knows no ids.
    pub id: Option<TopicId>,
    /// Partitions are numbered from 0.
    pub partitions: i32,
    /// How many copies there are of the first partition, on as many brokers.
    pub copies: i32,
}

/// The offsets of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Of the oldest message that is there.
    pub start: i64,
    /// After the newest one.
    pub end: i64,
}

/// Which messages a consumer gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Those of transactions only once they are committed.
    #[default]
    Committed,
    /// All, of aborted transactions too.
    Uncommitted,
}

/// Called from any thread when there may be something new.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

#[derive(Clone)]
pub struct ConsumerOptions {
    /// The group to which [`Consumer::commit_group`] commits; the consumer is no member of it.
    pub group: String,
    pub isolation: Isolation,
    /// Bytes of messages that wait in the client, per partition.
    pub queue: usize,
    pub wake: Wake,
}

/// A header of a message. Its value may be any bytes, or null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub name: &'a str,
    pub value: Option<&'a [u8]>,
}

/// A message as it is read.
#[derive(Clone, Copy)]
#[expect(clippy::type_complexity, reason = "a callback that takes a callback")]
pub struct Message<'a> {
    pub offset: i64,
    /// Milliseconds since 1970: when it was made, or, as the topic says, appended. `None` in old formats.
    pub timestamp: Option<i64>,
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Calls back for each header, in order.
    pub headers: &'a dyn Fn(&mut dyn FnMut(Header<'_>)),
}

/// A message to write.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    pub topic: &'a str,
    /// `None`: by the hash of the key that Kafka's own clients use (murmur2), at random where there is no key.
    pub partition: Option<i32>,
    pub key: Option<&'a [u8]>,
    pub value: &'a [u8],
    pub headers: &'a [Header<'a>],
}

/// Whether a producer has taken a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Taken,
    /// Its queue is full; there is room again when [`Producer::wait`] returns.
    Full,
}

/// What has become of the messages that a producer has taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// All messages with tags below this are written.
    pub below: u64,
    /// Bytes of messages that are taken and not written.
    pub in_flight: usize,
    /// Why nothing more counts as written.
    pub failure: Option<BusError>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    pub const NAMES: &'static [&'static str] = &["none", "gzip", "snappy", "lz4", "zstd"];

    /// As job files, brokers and clients call it.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];
        all.into_iter().find(|one| one.name() == name)
    }
}

#[derive(Clone)]
pub struct ProducerOptions {
    pub compression: Compression,
    /// How long a message may wait for others that leave with it.
    pub linger: Duration,
    /// Largest message, with key and headers, in bytes.
    pub max_message: usize,
    /// Bytes of messages that wait in the client.
    pub queue: usize,
    /// Requests that are on their way to a broker at a time: what is sent meanwhile leaves with the next one.
    ///
    /// `None`: five, for whoever has one message at a time on its way to each partition. Where there are more, a broker that
    /// leads a partition only just now (the topic is new, or the leader has changed) may refuse the first request of this
    /// producer and take the second, as it knows no number of it that would be skipped, in a transaction too. librdkafka
    /// reports both as written then, and the first one is lost (confluent-kafka-go#921, seen with librdkafka 2.12.1 and
    /// Kafka 4.2.1). With one, what is refused goes before what is sent later.
    pub requests: Option<u32>,
    /// Begins transactions under this id: an older producer of the same id is fenced off.
    pub transactional_id: Option<String>,
    /// Called when something was written, or will not be.
    pub wake: Wake,
}

impl ProducerOptions {
    /// Messages leave at once, as they are and outside transactions, and nobody hears of it; the queue is in bytes.
    pub fn new(max_message: usize, queue: usize) -> Self {
        Self {
            compression: Compression::None,
            linger: Duration::ZERO,
            max_message,
            queue,
            requests: None,
            transactional_id: None,
            wake: Arc::new(|| {}),
        }
    }
}

/// An offset that a group has committed, with a text of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupOffset {
    pub offset: i64,
    pub metadata: String,
}

/// A topic that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    pub name: String,
    pub partitions: i32,
    pub replication: i32,
    /// Settings of the topic, such as `retention.ms`.
    pub settings: Vec<(String, String)>,
}

/// What a look into a partition has given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub messages: usize,
    /// The client has seen the end of what may be read, at this offset, after these messages.
    pub end: Option<i64>,
}

/// A cluster of brokers, as one client sees it.
pub trait Bus: Send + Sync {
    /// The topics that exist. With `names` those of them alone, in that order, else all that this client may see.
    ///
    /// # Errors
    /// [`Problem::NoTopic`](crate::Problem::NoTopic) where one of the names is none.
    fn topics(&self, names: Option<&[Arc<str>]>) -> Result<Vec<Topic>, BusError>;

    /// The offsets of a partition; with [`Isolation::Committed`] the end is that of what such a consumer may read.
    ///
    /// # Errors
    /// If no broker says.
    fn bounds(&self, of: &TopicPartition) -> Result<Bounds, BusError>;

    /// The offset of the first message of each partition whose time is not below `time` (milliseconds since 1970); of
    /// one that has none, its end.
    ///
    /// # Errors
    /// If no broker says.
    fn offsets_at(&self, of: &[TopicPartition], time: i64) -> Result<Vec<i64>, BusError>;

    /// A consumer without partitions.
    ///
    /// # Errors
    /// If a setting is wrong.
    fn consumer(&self, options: ConsumerOptions) -> Result<Box<dyn Consumer>, BusError>;

    /// A producer. With a transactional id it has fenced off the older ones when this returns.
    ///
    /// # Errors
    /// If a setting is wrong, or, with a transactional id, no broker says.
    fn producer(&self, options: ProducerOptions) -> Result<Box<dyn Producer>, BusError>;

    /// The offsets of a group, for whoever asks for them again and again.
    ///
    /// # Errors
    /// If a setting is wrong.
    fn group(&self, group: &str) -> Result<Box<dyn Group>, BusError>;

    /// As [`Group::offsets`], asked once.
    ///
    /// # Errors
    /// As there.
    fn group_offsets(
        &self,
        group: &str,
        of: &[TopicPartition],
    ) -> Result<Vec<Option<GroupOffset>>, BusError> {
        self.group(group)?.offsets(of)
    }

    /// Makes a topic; `false` if it is there.
    ///
    /// # Errors
    /// If the broker does not.
    fn create_topic(&self, topic: &NewTopic) -> Result<bool, BusError>;

    /// Deletes the messages of a partition below an offset.
    ///
    /// # Errors
    /// If the broker does not.
    fn delete_records(&self, of: &TopicPartition, below: i64) -> Result<(), BusError>;
}

/// Offsets that are committed under the name of a group that has no members.
pub trait Group: Send {
    /// What was committed for these partitions, once no transaction that would change it is open.
    ///
    /// # Errors
    /// If no broker says.
    fn offsets(&mut self, of: &[TopicPartition]) -> Result<Vec<Option<GroupOffset>>, BusError>;

    /// Commits offsets outside of transactions, and waits for the outcome, up to 45 s where no broker answers.
    ///
    /// # Errors
    /// If no broker says, or one refuses; they may be committed all the same.
    fn commit(&mut self, offsets: &[(TopicPartition, GroupOffset)]) -> Result<(), BusError>;
}

/// Reads partitions that it was told to. Their messages come in order of their offsets, which have gaps.
pub trait Consumer: Send {
    /// Begins to read a partition at an offset, and returns its number, from 0 up.
    ///
    /// # Errors
    /// If the client refuses.
    fn assign(&mut self, partition: &TopicPartition, offset: i64) -> Result<usize, BusError>;

    /// As [`Consumer::assign`], with a call of its own for when there is something new in this partition, in place of
    /// [`ConsumerOptions::wake`].
    ///
    /// # Errors
    /// As there.
    fn assign_waking(
        &mut self,
        partition: &TopicPartition,
        offset: i64,
        wake: Wake,
    ) -> Result<usize, BusError>;

    /// Reads a partition no more. Its number stays taken, and its call to wake is made no more once this returns.
    ///
    /// # Errors
    /// If the client refuses, or the partition was not assigned.
    fn unassign(&mut self, partition: usize) -> Result<(), BusError>;

    /// Goes on in a partition from another offset. What waits of it in the client is dropped.
    ///
    /// # Errors
    /// If the client refuses.
    fn seek(&mut self, partition: usize, offset: i64) -> Result<(), BusError>;

    /// Gives messages of a partition to `each` while it returns `true`, in order. Waits for the first one at
    /// most this long. If it returns less than `each` would have taken, [`ConsumerOptions::wake`] is called when there is
    /// more.
    ///
    /// # Errors
    /// What has happened to the partition, such as an offset that is not there any more.
    fn take(
        &mut self,
        partition: usize,
        wait: Duration,
        each: &mut dyn FnMut(&Message<'_>) -> bool,
    ) -> Result<Taken, BusError>;

    /// As [`Consumer::take`], and the messages stay to be taken. Each call goes on after the one before; what `each` is
    /// shown and nobody takes waits in the client beside its queue. Ends and errors are told once: by this call, or by
    /// that one.
    ///
    /// # Errors
    /// As there.
    fn peek(
        &mut self,
        partition: usize,
        each: &mut dyn FnMut(&Message<'_>) -> bool,
    ) -> Result<Taken, BusError>;

    /// Has [`Consumer::peek`] begin again, with the first message that was not taken.
    fn peek_again(&mut self, partition: usize);

    /// The offsets of a partition as the last answers of its broker had them; `None` before the first.
    fn bounds(&self, partition: usize) -> Option<Bounds>;

    /// Has offsets of partitions committed to the group of this consumer, for the tools that show its lag. Does not wait
    /// for the outcome, on which nothing stands.
    ///
    /// # Errors
    /// If the client refuses.
    fn commit_group(&mut self, offsets: &[(usize, i64)]) -> Result<(), BusError>;
}

/// Writes messages.
pub trait Producer: Send {
    /// Hands over a message. Tags never go down; many messages may have the same one.
    ///
    /// # Errors
    /// Why it is not taken, now or ever.
    fn send(&mut self, message: &Outgoing<'_>, tag: u64) -> Result<Sent, BusError>;

    /// What has become of the messages so far. Never waits.
    fn acknowledged(&mut self) -> Acknowledged;

    /// Waits until something has happened to a message, at most this long.
    fn wait(&mut self, at_most: Duration);

    /// How many partitions a topic has, as far as this client knows.
    ///
    /// # Errors
    /// If the topic does not exist, or no broker says.
    fn partitions(&mut self, topic: &str) -> Result<i32, BusError>;

    /// Begins a transaction.
    ///
    /// # Errors
    /// If another producer has taken over, or this one has no transactional id.
    fn begin(&mut self) -> Result<(), BusError>;

    /// Commits the transaction, with all messages since its begin and these offsets of a group.
    ///
    /// # Errors
    /// [`Problem::Aborted`](crate::Problem::Aborted): nothing counts, and the transaction was aborted.
    /// [`Problem::OutcomeUnknown`](crate::Problem::OutcomeUnknown): a new producer finds out by
    /// [`Bus::group_offsets`]. [`Problem::Fenced`](crate::Problem::Fenced).
    fn commit(&mut self, group: &str, offsets: &[(TopicPartition, GroupOffset)]) -> Result<(), BusError>;

    /// Has the coordinator of a group write to the log of its offsets, in a transaction that is given up, so that nothing
    /// changes. `of` is any partition of which the group may have an offset. None is to be open, and none is afterwards.
    ///
    /// A coordinator that has loaded a part of its log notices it as soon as it writes, and begins anew. Until then it
    /// answers all the same, with older offsets or none: where the leader of the log changes twice while it is loaded, the
    /// end of the first load counts for the second (`CoordinatorRuntime.CoordinatorContext.load` of Kafka 4.2.1 and 4.4.0;
    /// its log says *out of sync with the underlying log* then). Offsets that differ before and after this call are from a
    /// part of the log. That they are the same shows less: where the first that such a coordinator writes is the marker of
    /// another transaction, it takes the part for the whole until it loads again.
    ///
    /// # Errors
    /// As [`Producer::commit`].
    fn probe(&mut self, group: &str, of: &TopicPartition) -> Result<(), BusError>;
}
