//! Reads a topic as a `read_committed` consumer does, from its beginning.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use super::topics::{PATIENCE, client};

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) offset: i64,
    /// When its producer made it, in milliseconds since 1970.
    pub(super) made: i64,
    /// The headers `thalweg-sink` and `thalweg-position`, where it has them.
    pub(super) sink: Option<String>,
    pub(super) position: Option<String>,
    pub(super) value: String,
}

pub(super) struct Reader {
    topic: String,
    consumer: BaseConsumer,
    uncommitted: BaseConsumer,
    /// What was read of each partition.
    pub(super) rows: Vec<Vec<Row>>,
    /// Whether the end was seen after the last of them.
    is_at_end: Vec<bool>,
}

impl Reader {
    pub(super) fn new(address: &str, topic: &str) -> Result<Self> {
        let consumer = |isolation: &str| -> Result<BaseConsumer> {
            let mut config = client(address);
            config.set("group.id", format!("{topic}-reader")).set("isolation.level", isolation);
            config.set("enable.auto.commit", "false").set("auto.offset.reset", "error");
            config.set("enable.partition.eof", "true").set("check.crcs", "true");
            config.set("fetch.wait.max.ms", "20").set("fetch.error.backoff.ms", "50");
            config.create().context("make a consumer")
        };
        let (consumer, uncommitted) = (consumer("read_committed")?, consumer("read_uncommitted")?);
        Ok(Self { topic: topic.to_owned(), consumer, uncommitted, rows: Vec::new(), is_at_end: Vec::new() })
    }

    /// Begins to read; the broker has to be up.
    pub(super) fn begin(&mut self) -> Result<()> {
        let begun = Instant::now();
        let count = loop {
            let metadata = self.consumer.fetch_metadata(Some(&self.topic), PATIENCE);
            let metadata = metadata.with_context(|| format!("look up topic {}", self.topic))?;
            match metadata.topics().first().map_or(0, |topic| topic.partitions().len()) {
                // The broker may know it a little later than its controller.
                0 => thread::sleep(Duration::from_millis(10)),
                count => break count,
            }
            ensure!(begun.elapsed() < PATIENCE, "topic {} has no partitions", self.topic);
        };
        let mut list = TopicPartitionList::new();
        for partition in 0..count {
            list.add_partition_offset(&self.topic, partition as i32, Offset::Beginning)?;
        }
        self.consumer.assign(&list).context("read a topic")?;
        self.rows = vec![Vec::new(); count];
        self.is_at_end = vec![false; count];
        Ok(())
    }

    /// Takes what has come, and does not wait for more; the partitions of the new rows.
    pub(super) fn look(&mut self) -> Result<Vec<usize>> {
        let mut news = Vec::new();
        // A step of the harness's loop.
        for _ in 0..200 {
            match self.poll(Duration::ZERO)? {
                Polled::Row(partition) => news.push(partition),
                Polled::End => {}
                Polled::Nothing => break,
            }
        }
        Ok(news)
    }

    /// Reads up to the ends, where no transaction may be open.
    pub(super) fn finish(&mut self) -> Result<()> {
        let begun = Instant::now();
        while !self.is_at_end.iter().all(|is_at_end| *is_at_end) {
            self.poll(Duration::from_millis(50))?;
            ensure!(begun.elapsed() < PATIENCE, "topic {} is not read within {PATIENCE:?}", self.topic);
        }
        for partition in 0..self.rows.len() {
            let end = |consumer: &BaseConsumer| -> Result<i64> {
                Ok(consumer.fetch_watermarks(&self.topic, partition as i32, PATIENCE)?.1)
            };
            let (stable, last) = (end(&self.consumer)?, end(&self.uncommitted)?);
            ensure!(
                stable == last,
                "{}[{partition}] ends at {last}, and a transaction that was left open at {stable}",
                self.topic
            );
        }
        Ok(())
    }

    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        match self.consumer.poll(wait) {
            None => Ok(Polled::Nothing),
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                self.is_at_end[partition as usize] = true;
                Ok(Polled::End)
            }
            Some(Err(error)) => {
                let code = error.rdkafka_error_code();
                // It may be meant that the broker is away.
                let is_lasting =
                    matches!(code, Some(rdkafka::error::RDKafkaErrorCode::AutoOffsetReset)) || code.is_none();
                ensure!(!is_lasting, "reading {}: {error}", self.topic);
                Ok(Polled::End)
            }
            Some(Ok(message)) => {
                let partition = message.partition() as usize;
                let row = row(&message)?;
                self.rows[partition].push(row);
                self.is_at_end[partition] = false;
                Ok(Polled::Row(partition))
            }
        }
    }
}

enum Polled {
    Nothing,
    /// An end, or an error that passes.
    End,
    Row(usize),
}

fn row(message: &BorrowedMessage<'_>) -> Result<Row> {
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec());
    let header = |name: &str| -> Result<Option<String>> {
        let mut headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        let found = headers.find(|header| header.key == name);
        found.map(|header| text(header.value)).transpose().with_context(|| format!("header {name}"))
    };
    Ok(Row {
        offset: message.offset(),
        made: message.timestamp().to_millis().unwrap_or_default(),
        sink: header("thalweg-sink")?,
        position: header("thalweg-position")?,
        value: text(message.payload()).context("a message is no text")?,
    })
}
