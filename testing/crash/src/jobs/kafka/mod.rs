//! From a topic through windows into a topic, with a broker that goes away now and then; a job for each `delivery`.
//!
//! The input is written while the job runs, some of it in transactions, of which some are aborted. What is compared:
//! * Each record of the input topic has one answer in the output topic, as a `read_committed` consumer sees it; with
//!   `positions` after the reader's rule (`rule`). No other answer is there, and no transaction is left open.
//! * Every value of each answer is that of the recount. It depends on the order in which the engine has taken the records
//!   of several partitions. That order is in the order log, which says of each record its partition and its number there;
//!   the answer itself says partition and offset of its record, so that both are held against the input topic.
//! * In each partition of the output answers are in that order, and all of one key in one partition. Nothing is expected
//!   of the order between partitions.
//! * With `positions` each header has the order number of its record. A message that is dropped has the bytes of the
//!   one that stays, and is by another process, or by one that has said that a write was given up.
//! * What a consumer has seen while the job runs is what is there at the end.
//! * Late records are in rejects once.
//!
//! Where keys are split over several tasks each has a time of its own; such rounds have one partition of input, whose
//! times ascend and whose ids are new, so that all tasks agree.

mod input;
mod reader;
mod recount;
mod rule;
mod topics;

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use self::input::Input;
use self::reader::{Reader, Row};
use self::recount::{Expected, Start};
use self::topics::Topics;
use super::windows::model::{DEDUP, LATENESS};
use super::{Job, Make, Setting, payments, rejects, windows};
use crate::broker::{MortalBroker, Outage};
use crate::counts::Outages;
use crate::decide::Tuning;
use crate::disk::Found;
use crate::engine::Engine;
use crate::ledger::Ledger;
use thalweg_harness::random::Random;

/// How the sink delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Positions,
    Transactions,
}

impl Delivery {
    fn name(self) -> &'static str {
        match self {
            Self::Positions => "positions",
            Self::Transactions => "transactions",
        }
    }
}

const SOURCE: &str = "payments";

/// The sink's `transaction.timeout.ms`, in milliseconds: a broker that is paused for longer gives transactions up.
const TRANSACTION: u64 = 2_000;

/// Records of a round, of all partitions.
const RECORDS: usize = 5_000;

/// After this time without an answer, with all records written and a broker that runs, none is missing or it is lost.
const SILENCE: Duration = Duration::from_secs(20);

struct Round {
    delivery: Delivery,
    broker: Rc<RefCell<MortalBroker>>,
    topics: Topics,
    names: Names,
    input: Input,
    /// Of the output, while the job runs.
    reader: Reader,
    /// Places of records that have an answer.
    answered: HashSet<(u64, u64)>,
    /// When an answer came last, or the broker was away.
    heard: Instant,
    next_piece: Instant,
    /// The next outage, once this number of records is written.
    next_outage: Option<(u64, Outage)>,
    /// What was written when the broker was last started or went on: more shows that it is back.
    written_before: u64,
    outages: Outages,
    /// The broker was away during this start, or may have been.
    was_away: bool,
    starts: Vec<Start>,
    stderr: PathBuf,
    rejects: PathBuf,
    /// How many partitions the keys are split into.
    splits: u64,
    /// The source ends at the end of its topic.
    is_bounded: bool,
    repeats: u64,
    random: Random,
}

struct Names {
    input: String,
    output: String,
}

pub(super) fn by_positions() -> Result<Result<Make, String>> {
    open(Delivery::Positions)
}

pub(super) fn by_transactions() -> Result<Result<Make, String>> {
    open(Delivery::Transactions)
}

/// One broker for all rounds of both.
fn open(delivery: Delivery) -> Result<Result<Make, String>> {
    let broker = match MortalBroker::shared()? {
        Ok(broker) => broker,
        Err(reason) => return Ok(Err(reason)),
    };
    Ok(Ok(Box::new(move |setting| Ok(Box::new(Round::new(setting, delivery, Rc::clone(&broker))?)))))
}

impl Round {
    fn new(setting: &Setting<'_>, delivery: Delivery, broker: Rc<RefCell<MortalBroker>>) -> Result<Self> {
        let mut random = setting.random.clone();
        broker.borrow_mut().bring_up()?;
        let address = broker.borrow().address();
        let topics = Topics::new(&address)?;
        let name = |what: &str| format!("{}-{}-{what}", delivery.name(), setting.round);
        let names = Names { input: name("in"), output: name("out") };
        let is_split = random.percent(40);
        let partitions = if is_split { 1 } else { random.between(1, 4) as usize };
        let exist = random.between(1, partitions as u64) as usize;
        topics.create(&names.input, exist)?;
        topics.create(&names.output, random.between(1, 3) as usize)?;
        let records = (0..partitions).map(|partition| {
            let mut records = windows::records(&mut random, &format!("p{partition}-"), is_split);
            records.truncate(RECORDS / partitions);
            records
        });
        let input = Input::new(&address, &names.input, records.collect(), exist)?;
        let mut reader = Reader::new(&address, &names.output)?;
        reader.begin()?;
        // Of each kind in turn, and one at least, so that no round passes without.
        let kinds = [Outage::Kill, Outage::Pause, Outage::Stop];
        let kind = kinds[(setting.round as usize + delivery as usize) % kinds.len()];
        let next_outage = Some((random.between(0, input.count() / 2), kind));
        let now = Instant::now();
        Ok(Self {
            delivery,
            broker,
            topics,
            names,
            input,
            reader,
            answered: HashSet::new(),
            heard: now,
            next_piece: now,
            next_outage,
            written_before: 0,
            outages: Outages::default(),
            was_away: false,
            starts: Vec::new(),
            stderr: setting.folder.join("stderr"),
            rejects: setting.disk.join("data/jobs/crash/rejects"),
            splits: if is_split { random.between(2, 4) } else { 1 },
            is_bounded: false,
            repeats: 0,
            random,
        })
    }

    /// The broker has written something since it was started, or went on.
    fn is_broker_back(&self) -> bool {
        self.broker.borrow().runs() && self.input.written() > self.written_before
    }

    fn disturb(&mut self) {
        let is_due = self.next_outage.is_some_and(|(at, _)| self.input.written() >= at);
        if !is_due || !self.is_broker_back() {
            return;
        }
        let Some((_, outage)) = self.next_outage.take() else { return };
        let away = match outage {
            // Longer than transactions live, and than it takes the broker to look for those that have lived too long.
            Outage::Pause => Duration::from_millis(TRANSACTION) + self.random.time(Duration::from_secs(2)),
            Outage::Kill | Outage::Stop => self.random.time(Duration::from_millis(500)),
        };
        self.broker.borrow_mut().go_away(outage, away);
        self.written_before = self.input.written();
        self.was_away = true;
        let count = match outage {
            Outage::Kill => &mut self.outages.kills,
            Outage::Pause => &mut self.outages.pauses,
            Outage::Stop => &mut self.outages.stops,
        };
        *count += 1;
        let (written, count) = (self.input.written(), self.input.count());
        if self.random.percent(30) && written < count {
            let kind = self.random.pick(&[Outage::Kill, Outage::Pause, Outage::Stop]);
            self.next_outage = Some((self.random.between(written, count - 1), kind));
        }
    }

    /// Gives the topic one more partition, where records are left for one.
    fn grow(&mut self) -> Result<()> {
        if self.input.exist < self.input.partitions.len() {
            self.topics.grow(&self.names.input, self.input.exist + 1)?;
            self.input.grown()?;
        }
        Ok(())
    }

    fn listen(&mut self) -> Result<()> {
        let mut seen: Vec<usize> = self.reader.rows.iter().map(Vec::len).collect();
        let news = self.reader.look()?;
        if !news.is_empty() || !self.broker.borrow().runs() {
            self.heard = Instant::now();
        }
        for partition in news {
            let Row { value, .. } = &self.reader.rows[partition][seen[partition]];
            seen[partition] += 1;
            let answer: Value = serde_json::from_str(value).with_context(|| value.clone())?;
            let place = answer["_partition"].as_u64().zip(answer["_offset"].as_u64());
            self.answered.insert(place.with_context(|| format!("an answer without a place: {answer}"))?);
        }
        Ok(())
    }

    /// All records of the input topic.
    fn read_input(&self) -> Result<Vec<Vec<(i64, payments::Record)>>> {
        let rows = self.read(&self.names.input)?;
        let records = |rows: &Vec<Row>| rows.iter().map(recount::record).collect::<Result<Vec<_>>>();
        let input = rows.iter().map(records).collect::<Result<Vec<_>>>()?;
        for (partition, found) in self.input.partitions.iter().zip(&input) {
            let found: Vec<_> = found.iter().map(|(_, record)| record.clone()).collect();
            partition.check(&found)?;
        }
        Ok(input)
    }

    fn read(&self, topic: &str) -> Result<Vec<Vec<Row>>> {
        let mut reader = Reader::new(&self.broker.borrow().address(), topic)?;
        reader.begin()?;
        reader.finish()?;
        Ok(reader.rows)
    }
}

impl Job for Round {
    fn job_file(&self, tuning: &Tuning) -> Value {
        let address = self.broker.borrow().address();
        let mut random = self.random.clone();
        let mut source = json!({
            "type": "kafka",
            "brokers": [address],
            "topics": [self.names.input],
            "format": "ndjson",
            "schema": payments::schema(),
            "time": "ts",
            "lateness": format!("{LATENESS}ms"),
            "id": "id",
            "dedup": format!("{DEDUP}ms"),
            // Of a partition that is read ahead of another, most may be late there.
            "reject_limit": RECORDS,
            "refresh": "100ms",
            "queue": random.pick(&["64KiB", "1MiB", "64MiB"]),
        });
        for part in ["_partition", "_offset"] {
            source["schema"][part] = json!("int64");
        }
        if self.is_bounded {
            source["until"] = json!("latest");
        }
        let mut sink = json!({
            "type": "kafka",
            "input": tuning.input("features"),
            "brokers": [address],
            "topic": self.names.output,
            "format": "ndjson",
            "delivery": self.delivery.name(),
            "key": "card",
            "linger": random.pick(&["0ms", "2ms", "20ms"]),
            "queue": random.pick(&["16KiB", "16MiB"]),
            "compression": random.pick(&["none", "lz4", "zstd"]),
            "retry_wait": "300ms",
        });
        if self.delivery == Delivery::Transactions {
            sink["visible"] = json!(random.pick(&["5ms", "100ms", "1s"]));
            sink["properties"] = json!({ "transaction.timeout.ms": TRANSACTION.to_string() });
        }
        json!({
            "name": "crash",
            "cycle": tuning.cycle,
            "state": tuning.state(),
            "sources": { SOURCE: source },
            "operators": { "features": windows::features(&tuning.input(SOURCE), self.splits) },
            "sinks": { "out": sink },
        })
    }

    fn sinks(&self) -> &[(String, PathBuf)] {
        &[]
    }

    fn disturbed_starts(&self) -> u64 {
        8
    }

    fn commits_elsewhere(&self) -> bool {
        true
    }

    fn is_drained(&self) -> bool {
        !self.is_bounded
    }

    fn starting(&mut self) -> Result<()> {
        // Now and then it starts while the broker does.
        self.was_away = !(self.starts.is_empty() || self.random.percent(70));
        if !self.was_away {
            self.broker.borrow_mut().bring_up()?;
            if self.random.percent(30) {
                self.input.transact(&mut self.random)?;
            }
            if self.random.percent(40) {
                self.grow()?;
            }
            self.is_bounded =
                self.input.is_written() && self.next_outage.is_none() && self.random.percent(50);
        }
        self.starts.push(Start { from: now()?, has_repeated: false });
        Ok(())
    }

    fn started(&mut self, _: &Engine) -> Result<()> {
        self.heard = Instant::now();
        Ok(())
    }

    fn feed(&mut self) -> Result<()> {
        self.broker.borrow_mut().look()?;
        self.input.look()?;
        self.listen()?;
        self.disturb();
        if Instant::now() >= self.next_piece {
            self.input.send(&mut self.random, 40)?;
            self.next_piece = Instant::now() + self.random.time(Duration::from_millis(30));
            if self.input.is_all_sent() && self.is_broker_back() {
                self.grow()?;
            }
        }
        Ok(())
    }

    fn is_fed(&self) -> bool {
        let is_written = self.input.is_written() && self.next_outage.is_none() && self.broker.borrow().runs();
        let is_answered = self.answered.len() as u64 >= self.input.count();
        is_written && (is_answered || self.heard.elapsed() > SILENCE)
    }

    fn stopped(&mut self) -> Result<()> {
        let said = std::fs::read_to_string(&self.stderr).unwrap_or_default();
        // The next start begins its file anew.
        let kept = self.stderr.with_file_name(format!("stderr-{}", self.starts.len()));
        std::fs::write(kept, &said)?;
        if let Some(start) = self.starts.last_mut() {
            start.has_repeated = said.contains("waiting for the sink's target");
        }
        Ok(())
    }

    fn outages(&self) -> Outages {
        self.outages
    }

    fn may_refuse(&self, said: &str) -> bool {
        // What it asks before it reads or writes.
        let asks =
            ["error: job \"crash\": open ", "error: job \"crash\": source \"payments\": kafka: look up "];
        self.was_away && asks.iter().any(|start| said.contains(start))
    }

    fn repeats(&self) -> u64 {
        self.repeats
    }

    fn recount(&mut self, found: &Found, ledger: &Ledger) -> Result<u64> {
        let commit = found.commit.as_ref().context("there is no commit record at the end")?;
        self.broker.borrow_mut().bring_up()?;
        let (input, output) = (self.read_input()?, self.read(&self.names.output)?);
        let expected = Expected::of(&input, ledger.runs()?)?;
        self.repeats = expected.check(&output, self.delivery, &self.starts)?;
        for (partition, (seen, rows)) in self.reader.rows.iter().zip(&output).enumerate() {
            let same = seen.iter().zip(rows).take_while(|(one, other)| one == other).count();
            ensure!(
                same == seen.len(),
                "message {same} of partition {partition} of the output was {:?}, now it is {:?}",
                seen[same],
                rows.get(same)
            );
        }
        let late = expected.late.iter().map(|number| (SOURCE.to_owned(), *number)).collect();
        rejects::check(&self.rejects, &late, 1)?;
        let count = self.input.count();
        ensure!(
            commit.sources == [(SOURCE.to_owned(), count)],
            "the job has ended at {:?}, the topic has {count} records",
            commit.sources
        );
        self.topics.delete(&[&self.names.input, &self.names.output])?;
        Ok(count)
    }
}

/// Milliseconds since 1970.
fn now() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64)
}
