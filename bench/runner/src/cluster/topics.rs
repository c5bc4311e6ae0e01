//! From a topic to a topic: one node and two nodes on the same cores, beside Kafka Streams with as many instances.
//!
//! Payments are written while all processes are there and have their shares, so neither the start of a process nor a
//! rebalance is measured, and in one transaction, so that nobody reads any before all are written: the time goes from
//! the commit until all are answered.

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use serde_json::{Value, json};

use super::Options;
use super::nodes::{JOB, Nodes, PARTITIONS};
use crate::counters::Counters;
use crate::kafka::cluster::{self, Cluster, streams};
use crate::kafka::job::{live_source, topic_sink};
use crate::report::{Report, Table, count, cpu_per_record, times};
use crate::windows::Ours;
use crate::{median, spread, usage};
use thalweg_harness::project;

/// Payments of the beginning, whose answers say that everybody works.
const WARM_UP: u64 = 1_000;

/// Instances of Kafka Streams have shared the partitions by then.
const SHARING: Duration = Duration::from_secs(15);

/// An answer comes at least this often.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nothing more comes after so long.
const QUIET: Duration = Duration::from_secs(2);

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// So many nodes.
    Ours(usize),
    /// So many instances, and two threads in all.
    Streams(usize),
}

impl System {
    const ALL: [Self; 4] = [Self::Ours(1), Self::Ours(2), Self::Streams(1), Self::Streams(2)];

    fn title(self) -> &'static str {
        match self {
            Self::Ours(1) => "one node",
            Self::Ours(_) => "two nodes",
            Self::Streams(1) => "Kafka Streams, sliding windows, one instance",
            Self::Streams(_) => "Kafka Streams, sliding windows, two instances",
        }
    }
}

/// The processes of a system.
enum Running {
    Ours(Nodes),
    Streams(Vec<Child>),
}

impl Running {
    fn start(system: System, work: &Work<'_>, name: &str) -> Result<Self> {
        let (cluster, answers) = (work.cluster, answers(name));
        let running = match system {
            System::Ours(count) => {
                let job = job(&cluster.address(), &payments(name), &answers);
                let names = &["a", "b"][..count];
                Self::Ours(Nodes::start(work.binary, cluster.broker(), name, &job, names)?)
            }
            System::Streams(count) => {
                let threads = (2 / count).to_string();
                let mut running = Self::Streams(Vec::new());
                for _ in 0..count {
                    let mut command = streams("windows");
                    // 0: until it is ended.
                    command.args(["--count", "0", "--threads", &threads, "--how", "sliding"]);
                    command.args(["--application", name, "--bootstrap", &cluster.address()]);
                    command.args(["--topic", &payments(name), "--answers", &answers]);
                    command.args(["--isolation", "read_committed"]);
                    command.env("STREAMS_HEAP", "3g").stdin(Stdio::null());
                    let child = command.stdout(Stdio::null()).spawn().context("start Kafka Streams")?;
                    if let Self::Streams(children) = &mut running {
                        children.push(child);
                    }
                }
                std::thread::sleep(SHARING);
                running
            }
        };
        Ok(running)
    }

    fn used(&self) -> Result<Counters> {
        match self {
            Self::Ours(nodes) => nodes.used(),
            Self::Streams(children) => children.iter().try_fold(Counters::default(), |sum, child| {
                let used = Counters::of(child.id())?;
                Ok(Counters { cpu: sum.cpu + used.cpu, written: sum.written + used.written })
            }),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Streams(children) = self {
            for child in children {
                usage::terminate(child);
                let _ = child.wait();
            }
        }
    }
}

fn payments(name: &str) -> String {
    format!("payments-{name}")
}

fn answers(name: &str) -> String {
    format!("answers-{name}")
}

fn job(brokers: &str, topic: &str, answers: &str) -> Value {
    let mut source = live_source(brokers, topic);
    source["from"] = json!("earliest");
    // Partitions are read side by side.
    source["lateness"] = json!("1d");
    json!({
        "name": JOB,
        "sources": {"payments": source},
        "operators": {"features": {
            "type": "metrics",
            "input": "payments",
            "partition_by": ["card"],
            "partitions": PARTITIONS,
            "queries": {"card_1h": crate::kafka::job::QUERY},
        }},
        "sinks": {"answers": topic_sink(brokers, answers, "positions")},
    })
}

/// Files of payments for all systems.
pub(super) struct Work<'a> {
    binary: &'a Path,
    cluster: &'a Cluster,
    /// The first of them, and the others.
    warm_up: PathBuf,
    others: PathBuf,
    records: u64,
}

impl<'a> Work<'a> {
    pub(super) fn make(binary: &'a Path, cluster: &'a Cluster, records: u64) -> Result<Self> {
        let folder = cluster.folder();
        let all = Ours::new(binary.to_owned(), folder.to_owned()).payments(WARM_UP + records, &[])?;
        let (warm_up, others) =
            (folder.join(format!("first-of-{records}.csv")), folder.join(format!("rest-of-{records}.csv")));
        let open = |path: &Path| -> Result<BufWriter<std::fs::File>> {
            let file = std::fs::File::create(path).with_context(|| format!("create {}", path.display()))?;
            Ok(BufWriter::new(file))
        };
        let (mut first, mut rest) = (open(&warm_up)?, open(&others)?);
        let lines = BufReader::new(std::fs::File::open(&all)?).lines();
        for (number, line) in (0..).zip(lines) {
            let line = line?;
            // The header is that of both.
            if number <= WARM_UP {
                writeln!(first, "{line}")?;
            }
            if number == 0 || number > WARM_UP {
                writeln!(rest, "{line}")?;
            }
        }
        first.flush()?;
        rest.flush()?;
        Ok(Self { binary, cluster, warm_up, others, records })
    }

    /// Runs a system with topics of its own.
    pub(super) fn measure(&self, system: System, name: &str) -> Result<Speed> {
        let (topic, answers) = (payments(name), answers(name));
        self.cluster.make(&topic)?;
        self.cluster.make(&answers)?;
        let answered = Answered::of(&self.cluster.address(), &answers)?;
        let running = Running::start(system, self, name)?;
        let load = |file: &Path| self.cluster.load_at_once(&topic, file, std::slice::from_ref(&answers));
        load(&self.warm_up)?;
        answered.wait_for(WARM_UP)?;
        load(&self.others)?;
        let (all, left) = (WARM_UP + self.records, |done: u64| (WARM_UP + self.records).saturating_sub(done));
        let (before, used, broker_used) = (answered.count()?, running.used()?, self.cluster.used()?);
        let begun = Instant::now();
        answered.wait_for(all)?;
        let seconds = begun.elapsed().as_secs_f64();
        let (cpu, broker_cpu) =
            (running.used()?.since(&used).cpu, self.cluster.used()?.since(&broker_used).cpu);
        std::thread::sleep(QUIET);
        let count = answered.count()?;
        ensure!(count == all, "{}: {count} answers to {all} payments", system.title());
        let records = left(before) as f64;
        Ok(Speed { records, rate: records / seconds, cpu, broker_cpu })
    }
}

/// What a system came to.
pub(super) struct Speed {
    /// Those that were measured, of all.
    pub(super) records: f64,
    pub(super) rate: f64,
    cpu: Duration,
    broker_cpu: Duration,
}

/// Counts the answers in a topic.
struct Answered {
    consumer: BaseConsumer,
    topic: String,
}

impl Answered {
    fn of(brokers: &str, topic: &str) -> Result<Self> {
        let consumer =
            ClientConfig::new().set("bootstrap.servers", brokers).set("group.id", "bench").create();
        Ok(Self { consumer: consumer.context("make a consumer")?, topic: topic.to_owned() })
    }

    fn count(&self) -> Result<u64> {
        (0..PARTITIONS as i32).try_fold(0, |sum, partition| {
            let (low, high) =
                self.consumer.fetch_watermarks(&self.topic, partition, Duration::from_secs(30))?;
            Ok(sum + (high - low).unsigned_abs())
        })
    }

    fn wait_for(&self, all: u64) -> Result<()> {
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            let now = self.count()?;
            if now >= all {
                return Ok(());
            }
            if now > last {
                (last, moved) = (now, Instant::now());
            }
            ensure!(moved.elapsed() < PATIENCE, "no answer for {PATIENCE:?}, after {last} of {all}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(super) fn table(options: &Options, binary: &Path, report: &mut Report) -> Result<()> {
    report.heading("From a topic to a topic");
    if let Some(reason) = cluster::missing()? {
        report.say(&format!("Skipped: {reason}."));
        return Ok(());
    }
    let cluster = Cluster::start(&project::scratch("bench-cluster")?)?;
    let (records, few) = (options.fewer(options.records), options.fewer(options.peer_records));
    report.say(&format!(
        "{} payments of 100 k cards (zipf 0.5) with the card as key, in a topic of {PARTITIONS} partitions, and the first {} of them for Kafka Streams, whose cards have fewer records in the window then, in its favour; `sum` and `count` per card over 60 minutes, one answer for each payment to a topic. They are written in one transaction while all processes are there, which read only what is committed; the time goes from its end until all are answered, and rates are of those that were answered in it. Ours reads the topic in one stage, computes in a second one behind a topic of its own, and writes with positions; Kafka Streams knows that the key of the topic is its own, and has two threads in all. Turns of ours: {}; medians.",
        count(records as f64),
        count(few as f64),
        options.repeat()
    ));
    let (many, fewer) = (Work::make(binary, &cluster, records)?, Work::make(binary, &cluster, few)?);
    let mut runs: [Vec<Speed>; 4] = Default::default();
    for turn in 0..options.repeat() {
        for (number, (system, runs)) in System::ALL.into_iter().zip(&mut runs).enumerate() {
            let work = match system {
                System::Ours(_) => &many,
                System::Streams(_) if turn == 0 && !options.quick => &fewer,
                System::Streams(_) => continue,
            };
            let run = work.measure(system, &format!("topics-{number}-{turn}"));
            let run = run.with_context(|| system.title())?;
            ensure!(
                options.quick || run.records > work.records as f64 / 10.0,
                "{}: only {} of {} payments were left to answer once the writer had ended: take more with --records",
                system.title(),
                run.records,
                work.records
            );
            runs.push(run);
        }
    }
    let mut table =
        Table::new(["system", "records/s", "from … to", "CPU a record", "the broker's CPU a record"]);
    let mut middle = [0.0; 4];
    for ((system, runs), middle) in System::ALL.into_iter().zip(&runs).zip(&mut middle) {
        if runs.is_empty() {
            continue;
        }
        let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
        *middle = median(rates.clone());
        let cpu = |of: fn(&Speed) -> Duration| {
            let each = runs.iter().map(|run| of(run).as_secs_f64() / run.records);
            cpu_per_record(Duration::from_secs_f64(median(each.collect())), 1.0)
        };
        table.row([
            system.title().to_owned(),
            count(*middle),
            spread(&rates, count),
            cpu(|run| run.cpu),
            cpu(|run| run.broker_cpu),
        ]);
    }
    let mut ratios = Table::new(["ratio", "times", "asked for"]);
    for (name, of, to, asked) in [
        ("two nodes of one, on the same cores", 1, 0, "≥ 0.90 ×"),
        ("one node of one instance of Kafka Streams", 0, 2, "≥ 10 ×"),
        ("two nodes of two instances of Kafka Streams", 1, 3, "≥ 10 ×"),
    ] {
        if middle[to] > 0.0 {
            ratios.row([name.to_owned(), times(middle[of] / middle[to]), asked.to_owned()]);
        }
    }
    report.table(&ratios);
    report.table(&table);
    Ok(())
}
