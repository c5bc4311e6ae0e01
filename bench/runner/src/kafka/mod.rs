//! Exact windows from a topic of Apache Kafka to another: records a second compared with our own file source, Kafka
//! Streams and Flink, and the latency of one record in, its answer out.
//!
//! There is one broker, which the benchmark starts, on the same two cores as everything else. The topic of payments has
//! eight partitions and the card as its key, so each partition is in the order of event time. Every run has a topic of its
//! own for its answers, from which their digest is read.
//!
//! * [`cluster`]: the broker, topics and their contents.
//! * [`job`]: job files of ours.
//! * [`throughput`], [`peers`]: from the first record to the last.
//! * [`latency`], [`client`]: records on a fixed schedule.

mod client;
pub(crate) mod cluster;
pub(crate) mod job;
mod latency;
mod peers;
mod smoke;
mod throughput;

use anyhow::Result;

use self::cluster::Cluster;
use super::report::Report;
use thalweg_harness::project::{self, Profile};

pub(crate) use smoke::smoke;

/// Cores of every run, the broker and the clients included, and as many workers.
const CORES: &str = "0,1";

/// Partitions of every topic.
const PARTITIONS: u32 = 8;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A hundredth of the records and a few seconds of load, no peers: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = ["throughput", "latency"])]
    only: Vec<String>,
    /// Payments that ours gets
    #[arg(long, default_value_t = 4_000_000)]
    records: u64,
    /// Payments of these, from the first, that other systems get
    #[arg(long, default_value_t = 400_000)]
    peer_records: u64,
    /// Runs of each configuration of ours, in turns; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Records per second, one figure after the other
    #[arg(long, value_delimiter = ',', default_values_t = [500, 5_000])]
    rates: Vec<u32>,
    /// Seconds that are measured of each rate
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Leave the other systems out
    #[arg(long)]
    no_peers: bool,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    fn records(&self) -> u64 {
        if self.quick { self.records / 100 } else { self.records }
    }

    fn peer_records(&self) -> u64 {
        self.peer_records.min(self.records())
    }

    fn repeat(&self) -> usize {
        if self.quick { 1 } else { self.repeat.max(1) }
    }

    fn seconds(&self) -> u32 {
        if self.quick { 2 } else { self.seconds }
    }

    fn has_peers(&self) -> bool {
        !self.no_peers && !self.quick
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = project::thalweg(Profile::Release)?;
    let cluster = Cluster::start(&project::scratch("bench-kafka")?)?;
    let mut report = Report::new("kafka", "From topic to topic").of_parts(&options.only);
    report.say(&format!(
        "One broker of Kafka {} with one copy of everything; it, its clients and what is measured share two cores. Topics have {PARTITIONS} partitions. Ours has a data directory and commits every second.",
        cluster::RELEASE.version()
    ));
    if options.wants("throughput") {
        throughput::table(options, &binary, &cluster, &mut report)?;
    }
    if options.wants("latency") {
        latency::table(options, &binary, &cluster, &mut report)?;
    }
    report.finish(options.quick)
}
