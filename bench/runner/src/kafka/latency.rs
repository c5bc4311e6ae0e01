//! One record to a topic, its answer from another one, at fixed rates.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;

use super::client::{Client, LINGER_MS, Load};
use super::cluster::{Cluster, streams};
use super::{Options, job};
use crate::counters::Counters;
use crate::load::{WARM_UP, milliseconds};
use crate::report::{Report, Table, count, cpu_per_record};
use crate::server::Server;
use crate::stalls::{Meter, Stalls};
use thalweg_harness::process;

/// A system, and how it answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum System {
    /// None: the client reads the payments themselves.
    None,
    /// `delivery` of our sink.
    Ours(&'static str),
    /// `--how` of Kafka Streams.
    Streams(&'static str),
}

const SYSTEMS: [System; 5] = [
    System::None,
    System::Ours("positions"),
    System::Ours("transactions"),
    System::Streams("sliding"),
    System::Streams("rows"),
];

impl System {
    fn title(self) -> String {
        match self {
            Self::None => "no system: the payments themselves are read".to_owned(),
            Self::Ours(delivery) => format!("Thalweg, `{delivery}`"),
            Self::Streams(how) => format!("Kafka Streams, {how}"),
        }
    }

    fn is_peer(self) -> bool {
        matches!(self, Self::Streams(_))
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "alone",
            Self::Ours(name) | Self::Streams(name) => name,
        }
    }
}

/// What one rate came to.
pub(super) struct Run {
    pub(super) latencies: Histogram<u64>,
    /// Of the system and of the broker, for all records on the schedule.
    cpu: Duration,
    broker_cpu: Duration,
    /// `None` where the machine did not let them be measured.
    stalls: Option<Stalls>,
}

pub(super) fn table(options: &Options, binary: &Path, cluster: &Cluster, report: &mut Report) -> Result<()> {
    report.heading("Latency");
    let history = if options.quick { 1_000 } else { 100_000 };
    report.say(&format!(
        "One payment to a topic, its answer from another one, at a fixed rate; a latency counts from the time at which the payment was meant to leave (coordinated omission). {} payments of the last hour are in the window, and as many leave it as enter; 100 k cards. The client (librdkafka) sends with `linger.ms={LINGER_MS}` and reads what is committed.",
        count(history as f64)
    ));
    report.say("Kafka Streams answers without a cache (`--cache 0`), since with one its answers wait for a commit, a second. Its producers wait 100 ms for more records, as they come. Flink is not measured: its peer reads to the end that the topic has when it starts.");
    let mut table = Table::new([
        "system",
        "records/s",
        "measured",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "CPU a record",
        "the broker's CPU a record",
        "a core stood still, at most",
    ]);
    let mut targets = Table::new(["`positions`", "measured", "asked for"]);
    let mut notes = Vec::new();
    for rate in &options.rates {
        let load = Load { rate: *rate, seconds: options.seconds(), history };
        for system in SYSTEMS.into_iter().filter(|system| options.has_peers() || !system.is_peer()) {
            let run = match measure(binary, cluster, system, &load) {
                Err(reason) if system.is_peer() => {
                    notes.push(format!("Skipped: {} at {rate} a second: {reason:#}.", system.title()));
                    continue;
                }
                run => run.with_context(|| format!("{} at {rate} a second", system.title()))?,
            };
            let quantile = |quantile| milliseconds(run.latencies.value_at_quantile(quantile));
            let records = f64::from(*rate) * f64::from(load.seconds + WARM_UP);
            table.row([
                system.title(),
                rate.to_string(),
                count(run.latencies.len() as f64),
                quantile(0.5),
                quantile(0.9),
                quantile(0.99),
                quantile(0.999),
                quantile(1.0),
                cpu_per_record(run.cpu, records),
                cpu_per_record(run.broker_cpu, records),
                run.stalls.map_or("–".to_owned(), |stalls| milliseconds(stalls.longest.as_nanos() as u64)),
            ]);
            if let System::Ours("positions") = system {
                targets.row([format!("p50 at {rate} a second"), quantile(0.5), "< 10 ms".to_owned()]);
                targets.row([format!("p99.9 at {rate} a second"), quantile(0.999), "< 250 ms".to_owned()]);
            }
        }
    }
    report.table(&table);
    report.table(&targets);
    notes.iter().for_each(|note| report.say(note));
    Ok(())
}

/// Runs a system between two topics of its own under load.
pub(super) fn measure(binary: &Path, cluster: &Cluster, system: System, load: &Load) -> Result<Run> {
    let name = format!("latency-{}-{}", system.name(), load.rate);
    let (topic, answers) = (format!("{name}-in"), format!("{name}-out"));
    cluster.make(&topic)?;
    cluster.make(&answers)?;
    let address = cluster.address();
    let is_alone = matches!(system, System::None);
    let client = Client::new(&address, &topic, if is_alone { &topic } else { &answers })?;
    client.fill(load)?;
    match system {
        System::None => {
            client.settle(|| Ok(()))?;
            under_load(cluster, &client, load, || Ok(Counters::default()))
        }
        System::Ours(delivery) => {
            let mut source = job::live_source(&address, &topic);
            // Its partitions are worked off one before the other, and each begins an hour back.
            source["lateness"] = "2h".into();
            let sink = job::topic_sink(&address, &answers, delivery);
            let mut server = Server::start_in(cluster.folder(), binary, &job::job(&name, &source, &sink))?;
            client.settle(|| server.check_running())?;
            let run = under_load(cluster, &client, load, || server.counters())?;
            server.stop()?;
            Ok(run)
        }
        System::Streams(how) => {
            let mut command = streams("windows");
            command.args(["--bootstrap", &address, "--topic", &topic, "--answers", &answers, "--how", how]);
            // It is stopped before.
            command.args(["--count", "1000000000000", "--threads", "2", "--cache", "0"]);
            let mut peer = Peer::start(command)?;
            client.settle(|| peer.check_running())?;
            under_load(cluster, &client, load, || Counters::of(peer.0.id()))
        }
    }
}

fn under_load(
    cluster: &Cluster,
    client: &Client,
    load: &Load,
    used: impl Fn() -> Result<Counters>,
) -> Result<Run> {
    let (before, broker) = (used()?, cluster.used()?);
    let meter = Meter::start();
    let latencies = client.run(load);
    let stalls = meter.stop();
    Ok(Run {
        latencies: latencies?,
        cpu: used()?.since(&before).cpu,
        broker_cpu: cluster.used()?.since(&broker).cpu,
        stalls,
    })
}

/// A process that is killed when this is dropped.
struct Peer(Child);

impl Peer {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        process::tie(&mut command);
        Ok(Self(command.spawn().context("start Kafka Streams")?))
    }

    fn check_running(&mut self) -> Result<()> {
        match self.0.try_wait()? {
            Some(status) => bail!("it ended with {status}"),
            None => Ok(()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        process::kill(&self.0);
        let _ = self.0.wait();
    }
}
