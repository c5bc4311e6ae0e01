//! The topics of a round: made, given more partitions, deleted.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures_executor::block_on;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

/// A broker that is up answers within this time.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Settings of every client of the harness.
pub(super) fn client(address: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address);
    // It is noticed at once when a broker is back.
    config.set("reconnect.backoff.ms", "20").set("reconnect.backoff.max.ms", "200");
    config.set("socket.nagle.disable", "true").set("allow.auto.create.topics", "false");
    // That a broker goes away is meant.
    config.set("log_level", "0").set("log.connection.close", "false");
    config
}

/// Makes and deletes topics.
pub(super) struct Topics(AdminClient<DefaultClientContext>);

impl Topics {
    pub(super) fn new(address: &str) -> Result<Self> {
        Ok(Self(client(address).create().context("make a client for topics")?))
    }

    /// Makes a topic.
    pub(super) fn create(&self, name: &str, partitions: usize) -> Result<()> {
        let topic = NewTopic::new(name, partitions as i32, TopicReplication::Fixed(1));
        let made = block_on(self.0.create_topics([&topic], &options())).context("make a topic")?;
        each(made).with_context(|| format!("make topic {name}"))
    }

    /// Gives a topic more partitions, so that it has this many.
    pub(super) fn grow(&self, name: &str, partitions: usize) -> Result<()> {
        let more = NewPartitions::new(name, partitions);
        let made = block_on(self.0.create_partitions([&more], &options())).context("make a partition")?;
        each(made).with_context(|| format!("give topic {name} partitions"))
    }

    pub(super) fn delete(&self, names: &[&str]) -> Result<()> {
        let gone = block_on(self.0.delete_topics(names, &options())).context("delete topics")?;
        each(gone).context("delete topics")
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

fn each(results: Vec<rdkafka::admin::TopicResult>) -> Result<()> {
    results.into_iter().try_for_each(|result| {
        result.map(drop).map_err(|(topic, code)| anyhow!("the broker says of {topic}: {code}"))
    })
}
