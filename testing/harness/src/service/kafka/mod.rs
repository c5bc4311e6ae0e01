//! Apache Kafka, from Maven's jars (54 MB): one broker that is its own controller, or some of them.
//!
//! * [`Broker`]: a broker whose process comes and goes, for harnesses; the service of the tests is built on it.
//! * `settings`: its `server.properties`; `certificates`: what its TLS needs; `metadata`: the request that tells
//!   whether it is up.

mod broker;
mod certificates;
mod metadata;
mod settings;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

pub use self::broker::Broker;
use super::maven::{self, Artifact};
use super::{Found, Running};
use crate::project;

/// A release of Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The newest, for a broker that stays, or has others beside it.
    Newest,
    /// The last whose coordinator of transactions waits for a partition that has no leader for a moment, for one that is
    /// alone and comes and goes. From 4.3.0 on `KRaftMetadataCache.getPartitionLeaderEndpoint` has nothing to say of one, as of a
    /// partition that was deleted, and the coordinator ends its transactions without a word to it: what it has
    /// acknowledged is never read, what it has aborted is, or the partition stays open.
    Steady,
}

impl Release {
    pub fn version(self) -> &'static str {
        match self {
            Self::Newest => "4.4.0",
            Self::Steady => "4.2.1",
        }
    }
}

/// What the logs go through, of the version whose interface Kafka is built with.
const LOGGER: &str = "1.7.36";

/// The folder of its jars.
///
/// # Errors
/// Where they cannot be moved to their place.
pub fn find(release: Release) -> Result<Found> {
    let version = release.version();
    if !project::has_or_gets("openssl", "openssl") {
        return Ok(Found::Missing("no openssl on the path to make certificates with".to_owned()));
    }
    let artifact = |group, name, version| Artifact { group, name, version, without: &[] };
    maven::jars(
        &format!("kafka-{version}"),
        &[
            artifact("org.apache.kafka", "kafka_2.13", version),
            artifact("org.apache.kafka", "kafka-tools", version),
            artifact("org.slf4j", "slf4j-simple", LOGGER),
        ],
    )
}

pub(super) fn start(found: &Found, folder: &Path) -> Result<Running> {
    let Found::At(jars) = found else { anyhow::bail!("it is not there") };
    let broker = Broker::start_with(jars, folder)?;
    let path = |name| broker.certificate(name).display().to_string();
    let environment = vec![
        ("THALWEG_KAFKA", broker.address()),
        ("THALWEG_KAFKA_SASL", broker.sasl_address()),
        ("THALWEG_KAFKA_SSL", broker.ssl_address()),
        ("THALWEG_KAFKA_SASL_SSL", broker.sasl_ssl_address()),
        ("THALWEG_KAFKA_CA", path(certificates::CA)),
        ("THALWEG_KAFKA_CERTIFICATE", path(certificates::CLIENT)),
        ("THALWEG_KAFKA_KEY", path(certificates::CLIENT_KEY)),
        ("THALWEG_KAFKA_USER", settings::USER.to_owned()),
        ("THALWEG_KAFKA_GUEST", settings::GUEST.to_owned()),
        // Both users have it.
        ("THALWEG_KAFKA_PASSWORD", broker.password().to_owned()),
        ("THALWEG_KAFKA_TOOL", maven::script(&tool(jars), &folder.join("tool")).context("write a tool")?),
    ];
    Ok(Running { hosts: vec![Box::new(broker)], environment })
}

/// Runs a class of Kafka's, which comes next with its arguments. It says on its standard output only what it is for.
fn tool(jars: &Path) -> Command {
    let mut tool = Command::new("java");
    // Most of its time is spent on starting.
    tool.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    tool.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"]).arg(format!("{}/*", jars.display()));
    tool
}
