//! From the first record that is there to the answer of the last: ours between topics, from a file to a topic and between
//! files, and the same in other systems.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cluster::{Cluster, Digest};
use super::{Options, job, peers};
use crate::report::{Report, Table, count, cpu_per_record, mebibytes, times};
use crate::windows::{self, Ours};
use crate::{job as jobs, median, spread};

/// What ours reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Positions,
    /// A topic as its partitions come, not by event time.
    Arrival,
    Transactions,
    FileToTopic,
    FileToFile,
}

impl Way {
    pub(super) const ALL: [Self; 5] =
        [Self::Positions, Self::Transactions, Self::Arrival, Self::FileToTopic, Self::FileToFile];

    fn title(self) -> &'static str {
        match self {
            Self::Positions => "Thalweg, topic to topic, `positions`",
            Self::Transactions => "Thalweg, topic to topic, `transactions`",
            Self::Arrival => "Thalweg, topic to topic, `positions`, `order: arrival`",
            Self::FileToTopic => "Thalweg, file to topic, `positions`",
            Self::FileToFile => "Thalweg, file to file",
        }
    }

    /// For names of topics and jobs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Positions => "positions",
            Self::Transactions => "transactions",
            Self::Arrival => "arrival",
            Self::FileToTopic => "from-file",
            Self::FileToFile => "files",
        }
    }

    /// Whether records come in the order of event time, so that answers are the same each time.
    pub(super) fn is_by_time(self) -> bool {
        self != Self::Arrival
    }
}

/// What a system came to.
pub(super) struct Speed {
    pub(super) records: u64,
    pub(super) seconds: f64,
    pub(super) rate: f64,
    pub(super) cpu: Duration,
    /// What the broker used meanwhile.
    pub(super) broker_cpu: Duration,
    pub(super) peak_bytes: u64,
    pub(super) digest: Digest,
}

impl Speed {
    /// The digest is that of the first.
    ///
    /// # Errors
    /// If there are no runs.
    fn median(runs: &[Self]) -> Result<Self> {
        let first = runs.first().context("at least one run")?;
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(figure).collect());
        let time = |figure: fn(&Self) -> f64| Duration::from_secs_f64(of(figure));
        Ok(Self {
            records: first.records,
            seconds: of(|run| run.seconds),
            rate: of(|run| run.rate),
            cpu: time(|run| run.cpu.as_secs_f64()),
            broker_cpu: time(|run| run.broker_cpu.as_secs_f64()),
            peak_bytes: of(|run| run.peak_bytes as f64) as u64,
            digest: first.digest.clone(),
        })
    }
}

/// A file of payments, and a topic with the same ones.
pub(super) struct Payments<'a> {
    pub(super) binary: &'a Path,
    pub(super) cluster: &'a Cluster,
    pub(super) file: PathBuf,
    pub(super) topic: &'static str,
    pub(super) records: u64,
}

impl<'a> Payments<'a> {
    /// Makes both, and a topic for answers for each of the names.
    pub(super) fn make(
        binary: &'a Path,
        cluster: &'a Cluster,
        topic: &'static str,
        records: u64,
        more: &[&str],
        answers: &[String],
    ) -> Result<Self> {
        let file = Ours::new(binary.to_owned(), cluster.folder().to_owned()).payments(records, more)?;
        cluster.load(topic, &file, answers)?;
        Ok(Self { binary, cluster, file, topic, records })
    }

    /// Runs ours, and looks at what it has written.
    pub(super) fn run(&self, way: Way, answers: &str) -> Result<Speed> {
        let address = self.cluster.address();
        let output = self.cluster.folder().join(format!("{answers}.csv"));
        let source = match way {
            Way::Positions | Way::Transactions => job::bounded_source(&address, self.topic),
            Way::Arrival => job::arriving_source(&address, self.topic),
            Way::FileToTopic | Way::FileToFile => job::file_source(&self.file),
        };
        let sink = match way {
            Way::Positions | Way::Arrival | Way::FileToTopic => {
                job::topic_sink(&address, answers, "positions")
            }
            Way::Transactions => job::topic_sink(&address, answers, "transactions"),
            Way::FileToFile => job::file_sink(&output),
        };
        let before = self.cluster.used()?;
        let job = job::job(answers, &source, &sink);
        let run = jobs::run(self.binary, &job, self.cluster.folder(), true)
            .with_context(|| format!("run {}", way.title()))?;
        let broker_cpu = self.cluster.used()?.since(&before).cpu;
        ensure!(run.rejects == 0.0, "{} records were rejected", run.rejects);
        let digest = if way == Way::FileToFile {
            let digest = format!("{:016x}", windows::digest(&output)?);
            std::fs::remove_file(&output)?;
            Digest { answers: run.answers as u64, digest }
        } else {
            self.cluster.digest(answers)?
        };
        ensure!(
            digest.answers == self.records,
            "{}: {} answers to {} records",
            way.title(),
            digest.answers,
            self.records
        );
        Ok(Speed {
            records: self.records,
            seconds: run.seconds,
            rate: run.rate,
            cpu: run.cpu,
            broker_cpu,
            peak_bytes: run.peak_bytes,
            digest,
        })
    }
}

pub(super) fn table(options: &Options, binary: &Path, cluster: &Cluster, report: &mut Report) -> Result<()> {
    report.heading("Throughput");
    let (records, few) = (options.records(), options.peer_records());
    let turn = |way: Way, turn: usize| format!("{}-{turn}", way.name());
    let topics: Vec<String> = (0..options.repeat())
        .flat_map(|number| Way::ALL.map(|way| turn(way, number)))
        .filter(|name| !name.starts_with(Way::FileToFile.name()))
        .collect();
    let payments = Payments::make(binary, cluster, "payments", records, &[], &topics)?;
    report.say(&format!(
        "{} payments of 100 k cards (zipf 0.5), 4 ms apart, with the card as key; `sum` and `count` per card over 60 minutes, one answer for each payment to a topic. From a topic ours has `order: time`, which reads it in the order of the file. Turns: {}; medians.",
        count(records as f64),
        options.repeat()
    ));
    let mut runs = Way::ALL.map(|_| Vec::new());
    for number in 0..options.repeat() {
        for (way, runs) in Way::ALL.into_iter().zip(&mut runs) {
            runs.push(payments.run(way, &turn(way, number))?);
        }
    }
    let ratio = |of: usize, to: usize| -> Vec<f64> {
        runs[of].iter().zip(&runs[to]).map(|(of, to)| of.rate / to.rate).collect()
    };
    let (from_file, arrival, transactions) = (ratio(0, 3), ratio(2, 3), ratio(1, 0));
    let speeds = runs.iter().map(|runs| Speed::median(runs)).collect::<Result<Vec<_>>>()?;
    let expected = &speeds[0].digest;
    for (way, runs) in Way::ALL.into_iter().zip(&runs).filter(|(way, _)| way.is_by_time()) {
        let same = runs.iter().all(|run| run.digest == *expected);
        ensure!(same, "{} answers otherwise than {}", way.title(), Way::Positions.title());
    }

    let mut table = Table::new([
        "system",
        "records",
        "seconds",
        "records/s",
        "CPU",
        "CPU a record",
        "the broker's CPU a record",
        "peak memory",
        "ours, times",
    ]);
    let base = speeds[0].rate;
    let mut row = |name: &str, speed: &Speed| {
        let records = speed.records as f64;
        table.row([
            name.to_owned(),
            count(records),
            format!("{:.2}", speed.seconds),
            count(speed.rate),
            format!("{:.1} s", speed.cpu.as_secs_f64()),
            cpu_per_record(speed.cpu, records),
            cpu_per_record(speed.broker_cpu, records),
            mebibytes(speed.peak_bytes),
            times(base / speed.rate),
        ]);
    };
    for (way, speed) in Way::ALL.into_iter().zip(&speeds) {
        row(way.title(), speed);
    }
    let mut notes = vec![
        format!("All ways of ours by event time give the same answers: digest `{}`.", expected.digest),
        format!(
            "With `order: arrival` and `lateness: 1d` a partition may be ahead of another one, and a record is answered as of the newest event time that its task has taken: {}.",
            if speeds[2].digest == *expected { "the same answers here" } else { "other answers" }
        ),
    ];
    let mut ratios = Table::new(["ours", "times", "from … to", "asked for"]);
    ratios.row(share("`positions` of our file source to a topic", &from_file, "≥ 0.60 ×"));
    ratios.row(share("the same with `order: arrival`", &arrival, "–"));
    ratios.row(share("`transactions` of `positions`", &transactions, "≥ 0.80 ×"));
    if options.has_peers() {
        let names: Vec<String> =
            peers::PEERS.iter().map(|peer| peer.answers.to_owned()).chain([FEW.to_owned()]).collect();
        let fewer = Payments::make(binary, cluster, "payments-few", few, &[], &names)?;
        let same = fewer.run(Way::Positions, FEW)?;
        row("Thalweg, `positions`, as many as the others", &same);
        for peer in &peers::PEERS {
            match peer.run(&fewer) {
                Ok(speed) => {
                    row(peer.name, &speed);
                    let ratio = times(base / speed.rate);
                    ratios.row([
                        format!("`positions` beside {}", peer.name),
                        ratio,
                        "–".to_owned(),
                        peer.asked.to_owned(),
                    ]);
                    notes.push(peer.verdict(&same.digest, &speed.digest));
                }
                Err(reason) => notes.push(format!("Skipped: {}: {reason:#}.", peer.name)),
            }
        }
        notes.push(format!(
            "Other systems get the first {} of these payments, whose window never fills: their cards have fewer records in it, in their favour. Rates are compared.",
            count(few as f64)
        ));
    }
    report.table(&table);
    report.table(&ratios);
    notes.iter().for_each(|note| report.say(note));
    report.say("`bench/peers/README.md` says what is set in the peers, and what a record costs them.");
    Ok(())
}

/// The topic for answers to as many records as other systems get.
const FEW: &str = "positions-few";

fn share(name: &str, ratios: &[f64], asked: &str) -> [String; 4] {
    [name.to_owned(), times(median(ratios.to_vec())), spread(ratios, times), asked.to_owned()]
}
