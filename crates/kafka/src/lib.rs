//! The bus: topics of Apache Kafka as the engine sees them. Produce with acknowledgements in order, fetch of assigned
//! partitions, ends, topics, transactions.
//!
//! [`Bus`] is a trait with two implementations: `librdkafka`, a client of real brokers, and `memory`, a simulation for
//! tests that does, from a seed, what clients and brokers do at their worst. Whatever is correct on the one is to be
//! correct on the other.
//!
//! Invariants
//! * Acknowledgements are told in the order of the sends. One that follows a failure is a failure: nobody learns of a
//!   message as written that stands behind one which is not.
//! * A partition is read from the offset that the caller names, or not at all: no client ever chooses another one.
//! * No call waits longer than [`Settings::request_timeout`], unless it says so.
//!
//! Not here: what is in a message, who reads which partition, when a position is committed.

mod bus;
mod error;
#[cfg(feature = "librdkafka")]
mod librdkafka;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
#[cfg(all(test, feature = "librdkafka"))]
mod real_service;
mod settings;

pub use bus::{
    Acknowledged, Bounds, Bus, Compression, Consumer, ConsumerOptions, Group, GroupOffset, Header, Isolation,
    Message, NewTopic, Outgoing, Producer, ProducerOptions, Sent, Taken, Topic, TopicId, TopicPartition,
    Wake,
};
pub use error::{BusError, Problem};
#[cfg(feature = "librdkafka")]
pub use librdkafka::{KafkaBus, library_version};
pub use settings::{Mechanism, Sasl, Settings, Tls, Token, refused_property};
