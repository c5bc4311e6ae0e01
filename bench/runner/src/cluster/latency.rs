//! One payment by HTTP to one of two nodes and its answer back, over one stage and over two.

use std::path::Path;

use anyhow::{Context, Result};

use super::Options;
use super::client::{CONNECTIONS, Outcome, Payments};
use super::nodes::{Nodes, job};
use crate::load::milliseconds;
use crate::report::{Report, Table, count};
use thalweg_harness::service::kafka::Broker;

const CARDS: u64 = 10_000;

const NODES: [&str; 2] = ["a", "b"];

pub(super) fn table(options: &Options, binary: &Path, broker: &Broker, report: &mut Report) -> Result<()> {
    report.heading("Latency");
    report.say(&format!(
        "One payment in a request, to each of two nodes in turns, with its answer as the reply, at a fixed rate over {CONNECTIONS} connections; a latency counts from the time at which the payment was meant to leave (coordinated omission). One stage counts by card; with two, the second counts by shop. The hop is the difference of both at p50."
    ));
    let mut hops = Table::new(["at", "two stages of one, p50", "the hop at p50", "asked for"]);
    let mut table = Table::new(["stages", "records/s", "measured", "p50", "p99", "p99.9", "max", "repeats"]);
    for rate in options.rates() {
        let mut runs = Vec::new();
        for keys in [&["card"][..], &["card", "shop"][..]] {
            let run = measure(binary, broker, keys, rate, options.seconds())
                .with_context(|| format!("{} stages at {rate} a second", keys.len()))?;
            let quantile = |quantile| milliseconds(run.latencies.value_at_quantile(quantile));
            table.row([
                keys.len().to_string(),
                rate.to_string(),
                count(run.latencies.len() as f64),
                quantile(0.5),
                quantile(0.99),
                quantile(0.999),
                quantile(1.0),
                run.repeats.to_string(),
            ]);
            runs.push(run.quantile_ms(0.5));
        }
        let (one, two) = (runs[0], runs[1]);
        hops.row([
            format!("{rate} a second"),
            format!("{:.2} ×", two / one),
            format!("{:.3} ms", two - one),
            "< 1.5 ms".to_owned(),
        ]);
    }
    report.table(&hops);
    report.table(&table);
    report.say("Asked for: p50 below 10 ms and p99.9 below 250 ms over two stages, with three brokers at 5,000 a second.");
    Ok(())
}

pub(super) fn measure(
    binary: &Path,
    broker: &Broker,
    keys: &[&str],
    rate: u32,
    seconds: u32,
) -> Result<Outcome> {
    let prefix = format!("latency-{}-{rate}", keys.len());
    let nodes = Nodes::start(binary, broker, &prefix, &job(keys), &NODES)?;
    let payments = Payments::new(CARDS, nodes.doors());
    payments.all_answer()?;
    let run = payments.at_rate(rate, seconds)?;
    payments.must_be_exact()?;
    Ok(run)
}
