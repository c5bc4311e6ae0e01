//! From the first payment that is sent until all are counted: one node, two nodes on the same cores, and the same job on
//! one node without a cluster.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::client::Payments;
use super::nodes::{Nodes, job};
use super::{Options, nodes};
use crate::counters::Counters;
use crate::report::{Report, Table, count, cpu_per_record, times};
use crate::server::Server;
use crate::{median, spread};
use thalweg_harness::project;
use thalweg_harness::service::kafka::Broker;

const CARDS: u64 = 100_000;

/// Where the job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    One,
    Two,
    Embedded,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::One, Self::Two, Self::Embedded];

    fn title(self) -> &'static str {
        match self {
            Self::One => "one node of a cluster",
            Self::Two => "two nodes of a cluster",
            Self::Embedded => "one node without a cluster",
        }
    }

    fn names(self) -> &'static [&'static str] {
        if self == Self::Two { &["a", "b"] } else { &["a"] }
    }
}

/// What a way came to.
struct Speed {
    rate: f64,
    cpu: Duration,
    broker_cpu: Duration,
}

pub(super) fn table(options: &Options, binary: &Path, broker: &Broker, report: &mut Report) -> Result<()> {
    let records = options.fewer(options.records);
    report.heading("Throughput");
    report.say(&format!(
        "{} payments of {} cards by HTTP, {} in a request without a reply; `sum` and `count` per card over a day, with ids. The time ends when a payment of each of {} cards is answered that was sent after all others; each is counted once. Turns: {}; medians.",
        count(records as f64),
        count(CARDS as f64),
        super::client::BATCH,
        super::client::PROBED,
        options.repeat()
    ));
    let mut runs = Way::ALL.map(|_| Vec::new());
    for turn in 0..options.repeat() {
        for (way, runs) in Way::ALL.into_iter().zip(&mut runs) {
            let run = measure(way, binary, broker, records, turn);
            runs.push(run.with_context(|| way.title())?);
        }
    }
    let ratio = |of: usize, to: usize| -> Vec<f64> {
        runs[of].iter().zip(&runs[to]).map(|(of, to)| of.rate / to.rate).collect()
    };
    let mut ratios = Table::new(["ratio", "times", "from … to", "asked for"]);
    for (name, ratio, asked) in [
        ("two nodes of one, on the same cores", ratio(1, 0), "≥ 0.90 ×"),
        ("one node of the same without a cluster", ratio(0, 2), "–"),
    ] {
        ratios.row([name.to_owned(), times(median(ratio.clone())), spread(&ratio, times), asked.to_owned()]);
    }
    report.table(&ratios);
    let mut table =
        Table::new(["where", "records/s", "from … to", "CPU a record", "the broker's CPU a record"]);
    for (way, runs) in Way::ALL.into_iter().zip(&runs) {
        let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
        let cpu = |of: fn(&Speed) -> Duration| {
            let middle = median(runs.iter().map(|run| of(run).as_secs_f64()).collect());
            cpu_per_record(Duration::from_secs_f64(middle), records as f64)
        };
        table.row([
            way.title().to_owned(),
            count(median(rates.clone())),
            spread(&rates, count),
            cpu(|run| run.cpu),
            if way == Way::Embedded { "–".to_owned() } else { cpu(|run| run.broker_cpu) },
        ]);
    }
    report.table(&table);
    report.say("Kafka Streams has no door by HTTP: it is measured from topic to topic.");
    Ok(())
}

fn measure(way: Way, binary: &Path, broker: &Broker, records: u64, turn: usize) -> Result<Speed> {
    let job = job(&["card"]);
    let broker_used = || Counters::of(broker.id().context("the broker runs")?);
    let run = |payments: &Payments, used: &dyn Fn() -> Result<Counters>| -> Result<Speed> {
        payments.all_answer()?;
        let (before, broker_before, begun) = (used()?, broker_used()?, Instant::now());
        payments.at_once(records)?;
        payments.all_answer()?;
        let seconds = begun.elapsed().as_secs_f64();
        let speed = Speed {
            rate: records as f64 / seconds,
            cpu: used()?.since(&before).cpu,
            broker_cpu: broker_used()?.since(&broker_before).cpu,
        };
        payments.must_be_exact()?;
        Ok(speed)
    };
    if way == Way::Embedded {
        let server = Server::start_in(&project::scratch("bench-cluster")?, binary, &job)?;
        let speed = run(&Payments::new(CARDS, vec![server.address()]), &|| server.counters())?;
        server.stop()?;
        return Ok(speed);
    }
    let prefix = format!("throughput-{}-{turn}", way.names().len());
    let nodes: nodes::Nodes = Nodes::start(binary, broker, &prefix, &job, way.names())?;
    run(&Payments::new(CARDS, nodes.doors()), &|| nodes.used())
}
