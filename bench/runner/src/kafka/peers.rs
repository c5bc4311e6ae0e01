//! The same work in Kafka Streams and Flink (`bench/peers`).

use anyhow::Result;

use super::CORES;
use super::cluster::{Digest, streams};
use super::throughput::{Payments, Speed};
use crate::{flink, process};

/// A system and how it is run.
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// The topic for its answers.
    pub(super) answers: &'static str,
    /// How much faster we have to be.
    pub(super) asked: &'static str,
    system: System,
}

enum System {
    /// `--how` of Kafka Streams.
    Streams(&'static str),
    Flink,
}

pub(super) const PEERS: [Peer; 3] = [
    Peer {
        name: "Kafka Streams, sliding windows",
        answers: "answers-of-sliding",
        asked: "≥ 10 ×",
        system: System::Streams("sliding"),
    },
    Peer {
        name: "Kafka Streams, rows by hand",
        answers: "answers-of-rows",
        asked: "–",
        system: System::Streams("rows"),
    },
    Peer { name: "Flink SQL on the heap", answers: "answers-of-flink", asked: "–", system: System::Flink },
];

impl Peer {
    /// Runs it from the topic to one of its own.
    pub(super) fn run(&self, payments: &Payments<'_>) -> Result<Speed> {
        let cluster = payments.cluster;
        let mut command = match self.system {
            System::Streams(how) => {
                let mut command = streams("windows");
                command.args(["--count", &payments.records.to_string(), "--threads", "2", "--how", how]);
                command
            }
            System::Flink => {
                let mut command = flink::script(CORES)?;
                command.args(["kafka", "--backend", "heap", "--parallelism", "2"]);
                command
            }
        };
        command.args([
            "--bootstrap",
            &cluster.address(),
            "--topic",
            payments.topic,
            "--answers",
            self.answers,
        ]);
        let before = cluster.used()?;
        let finished = process::run(command)?;
        let broker_cpu = cluster.used()?.since(&before).cpu;
        let figures = finished.figures("peer")?;
        Ok(Speed {
            records: figures.number("records")? as u64,
            seconds: figures.number("seconds")?,
            rate: figures.number("rate")?,
            cpu: finished.usage.cpu,
            broker_cpu,
            peak_bytes: finished.usage.peak_bytes,
            digest: cluster.digest(self.answers)?,
        })
    }

    /// Whether its answers are ours.
    pub(super) fn verdict(&self, ours: &Digest, theirs: &Digest) -> String {
        let Digest { answers, digest } = theirs;
        if ours == theirs {
            return format!("{} gives the same answers as ours: digest `{digest}`.", self.name);
        }
        format!(
            "{} answers otherwise: {answers} answers with digest `{digest}`, ours {} with `{}`.",
            self.name, ours.answers, ours.digest
        )
    }
}
