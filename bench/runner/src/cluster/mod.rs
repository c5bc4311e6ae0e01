//! One job on several nodes that meet at a broker: records a second, latency of a stage more, and what clients see of
//! nodes that die, join, leave, or have lost their data, and of a broker that hangs.
//!
//! There is one broker, which the benchmark starts; it, the nodes and the clients share the cores of the machine. So a
//! second node adds no processor: what it costs is measured, and not what it would bring on a machine of its own.
//!
//! * [`nodes`]: processes, and what the cluster says of itself.
//! * [`client`]: payments with ids, which are sent again until they are answered; their recount.
//! * [`topics`]: from a topic to a topic, beside Kafka Streams.
//! * [`throughput`], [`latency`], [`faults`], [`restore`]: the parts.

mod client;
mod faults;
mod latency;
mod nodes;
mod restore;
mod smoke;
mod throughput;
mod topics;

use anyhow::Result;

use super::report::Report;
use thalweg_harness::project::{self, Profile};
use thalweg_harness::service::kafka::{Broker, Release};

pub(crate) use smoke::smoke;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Few records and seconds: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = ["topics", "throughput", "latency", "faults", "restore"])]
    only: Vec<String>,
    /// Payments of which records a second are measured
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Payments that Kafka Streams gets
    #[arg(long, default_value_t = 200_000)]
    peer_records: u64,
    /// Runs of each configuration of the throughput, in turns; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Records per second of which latencies are measured, one figure after the other
    #[arg(long, value_delimiter = ',', default_values_t = [500, 2_000])]
    rates: Vec<u32>,
    /// Seconds that are measured of each rate
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Records per second while nodes die, join and leave, and while the broker hangs
    #[arg(long, default_value_t = 2_000)]
    load: u32,
    /// Payments that a node without data reads, one figure after the other
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000])]
    histories: Vec<u64>,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    /// Fewer where it is quick.
    fn fewer(&self, records: u64) -> u64 {
        if self.quick { (records / 100).max(100) } else { records }
    }

    fn repeat(&self) -> usize {
        if self.quick { 1 } else { self.repeat.max(1) }
    }

    fn seconds(&self) -> u32 {
        if self.quick { 2 } else { self.seconds }
    }

    fn rates(&self) -> Vec<u32> {
        let slower = |rate: &u32| if self.quick { (rate / 10).max(1) } else { *rate };
        self.rates.iter().map(slower).collect()
    }

    fn load(&self) -> u32 {
        if self.quick { (self.load / 10).max(1) } else { self.load }
    }
}

/// Of the broker.
const RELEASE: Release = Release::Newest;

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = project::thalweg(Profile::Release)?;
    let mut report = Report::new("cluster", "One job on several nodes").of_parts(&options.only);
    report.say("One broker of Kafka with one copy of everything; it, all nodes and the clients share the cores of the machine. Stages have 8 partitions; nodes have data directories and commit every 10 s.");
    if options.wants("topics") {
        topics::table(options, &binary, &mut report)?;
    }
    let broker = Broker::start(RELEASE, &project::scratch("bench-cluster")?)?;
    if options.wants("throughput") {
        throughput::table(options, &binary, &broker, &mut report)?;
    }
    if options.wants("latency") {
        latency::table(options, &binary, &broker, &mut report)?;
    }
    if options.wants("faults") {
        faults::table(options, &binary, &broker, &mut report)?;
    }
    if options.wants("restore") {
        restore::table(options, &binary, &broker, &mut report)?;
    }
    report.finish(options.quick)
}
