//! A node whose data directory is gone, until it answers for all its keys: it reads its log from the beginning.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Options;
use super::client::Payments;
use super::nodes::{Nodes, job};
use crate::plot::{Chart, Series};
use crate::report::{Report, Table, count, times};
use thalweg_harness::service::kafka::Broker;

const CARDS: u64 = 100_000;

const MIB: f64 = 1_048_576.0;

/// What a restart came to.
pub(super) struct Restore {
    pub(super) bytes: u64,
    with_data: Duration,
    pub(super) without_data: Duration,
}

pub(super) fn table(options: &Options, binary: &Path, broker: &Broker, report: &mut Report) -> Result<()> {
    report.heading("A node without its data");
    report.say(&format!(
        "A cluster of one node with two stages is killed and started again, first with its data directory, then without. The time goes from the start of the process until a payment of each of {} cards and shops is answered; all payments count once then.",
        super::client::PROBED
    ));
    let mut table = Table::new([
        "payments",
        "data directory",
        "without data of with it",
        "with its data",
        "without",
        "payments read in a second",
    ]);
    let [mut by_data, mut by_log] = [Vec::new(), Vec::new()];
    for history in &options.histories {
        let history = options.fewer(*history);
        let found = measure(binary, broker, history).with_context(|| format!("{history} payments"))?;
        let (with, without) = (found.with_data.as_secs_f64(), found.without_data.as_secs_f64());
        by_data.push((found.bytes as f64 / MIB, with));
        by_log.push((found.bytes as f64 / MIB, without));
        table.row([
            count(history as f64),
            format!("{} B", count(found.bytes as f64)),
            times(without / with),
            format!("{with:.2} s"),
            format!("{without:.2} s"),
            count(history as f64 / without),
        ]);
    }
    report.table(&table);
    let chart = Chart {
        title: "Time until a node answers for all its keys".to_owned(),
        x: "data directory, MiB".to_owned(),
        y: "seconds".to_owned(),
        log_x: true,
        series: vec![
            Series { name: "with its data".to_owned(), points: by_data },
            Series { name: "without, from its log".to_owned(), points: by_log },
        ],
    };
    report.picture("cluster-restore.svg", &chart.title, &chart.svg())
}

pub(super) fn measure(binary: &Path, broker: &Broker, history: u64) -> Result<Restore> {
    let prefix = format!("restore-{history}");
    let mut nodes = Nodes::start(binary, broker, &prefix, &job(&["card", "shop"]), &["a"])?;
    let payments = Payments::new(CARDS, nodes.doors());
    payments.all_answer()?;
    payments.at_once(history)?;
    payments.all_answer()?;
    let mut restart = |is_lost: bool| -> Result<(u64, Duration)> {
        nodes.kill("a")?;
        let data = nodes.data("a");
        let bytes = size(&data)?;
        ensure!(bytes > 0, "{} is empty", data.display());
        if is_lost {
            std::fs::remove_dir_all(&data).with_context(|| format!("remove {}", data.display()))?;
        }
        let begun = Instant::now();
        nodes.launch("a")?;
        payments.set_doors(nodes.doors());
        payments.all_answer()?;
        let took = begun.elapsed();
        payments.must_be_exact()?;
        Ok((bytes, took))
    };
    let (_, with_data) = restart(false)?;
    let (bytes, without_data) = restart(true)?;
    Ok(Restore { bytes, with_data, without_data })
}

/// Bytes of all files below a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { size(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}
