//! The broker, its topics and what is in them. Topics are filled and digested by programs of the peers
//! (`bench/peers/kafka-streams`), so that all systems have the same messages and the same digest.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{CORES, PARTITIONS};
use crate::counters::Counters;
use crate::{pinned, process};
use thalweg_harness::project;
use thalweg_harness::service::Found;
use thalweg_harness::service::kafka::{self, Broker, Release};

pub(crate) const RELEASE: Release = Release::Newest;

/// A broker, and a folder for all that runs with it.
pub(crate) struct Cluster {
    broker: Broker,
    folder: PathBuf,
}

/// What a topic of answers comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) answers: u64,
    pub(crate) digest: String,
}

/// Why there is no broker to be had here, if so.
///
/// # Errors
/// Where what is there cannot be used.
pub(crate) fn missing() -> Result<Option<String>> {
    if !project::has("java") {
        return Ok(Some("no java on the path".to_owned()));
    }
    if !project::has("mvn") {
        return Ok(Some("no mvn on the path to build bench/peers/kafka-streams with".to_owned()));
    }
    Ok(match kafka::find(RELEASE)? {
        Found::At(_) => None,
        Found::Missing(reason) => Some(reason),
    })
}

/// A program of the peer Kafka Streams, on the cores of all.
pub(crate) fn streams(program: &str) -> Command {
    let mut command = pinned(Some(CORES), &project::root().join("bench/peers/kafka-streams/run.sh"));
    command.arg(program);
    command
}

impl Cluster {
    /// Starts a broker whose files are below `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        if let Some(reason) = missing()? {
            bail!("no Kafka: {reason}");
        }
        Ok(Self { broker: Broker::start(RELEASE, folder)?, folder: folder.to_owned() })
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    pub(crate) fn address(&self) -> String {
        self.broker.address()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the broker has used so far.
    pub(crate) fn used(&self) -> Result<Counters> {
        Counters::of(self.broker.id().context("the broker runs")?)
    }

    /// Makes a topic with the payments of a file, the card as its key, and empty topics for answers.
    pub(crate) fn load(&self, topic: &str, input: &Path, answers: &[String]) -> Result<()> {
        self.write(topic, input, answers, "off")
    }

    /// As [`load`](Self::load), in one transaction: who reads what is committed sees none, and then all.
    pub(crate) fn load_at_once(&self, topic: &str, input: &Path, answers: &[String]) -> Result<()> {
        self.write(topic, input, answers, "on")
    }

    fn write(&self, topic: &str, input: &Path, answers: &[String], transaction: &str) -> Result<()> {
        let mut command = streams("load");
        command.args(["--transaction", transaction]);
        command.args(["--bootstrap", &self.address(), "--topic", topic, "--input"]).arg(input);
        command.args(["--answers", &answers.join(","), "--partitions", &PARTITIONS.to_string()]);
        process::run(command).with_context(|| format!("fill topic {topic:?}")).map(|_| ())
    }

    /// Makes a topic that keeps everything.
    pub(crate) fn make(&self, topic: &str) -> Result<()> {
        self.broker.create_topic(topic, PARTITIONS, &["retention.ms=-1"])
    }

    /// Reads all answers of a topic.
    pub(crate) fn digest(&self, topic: &str) -> Result<Digest> {
        let mut command = streams("digest");
        command.args(["--bootstrap", &self.address(), "--topic", topic]);
        let figures = process::run(command)?.figures("digest")?;
        let digest =
            Digest { answers: figures.number("answers")? as u64, digest: figures.text("digest")?.to_owned() };
        ensure!(digest.answers > 0, "topic {topic:?} has no answers");
        Ok(digest)
    }
}
