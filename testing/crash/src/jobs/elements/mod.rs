//! Keyed elements over growing files: counts by number and by time, intervals, pairs, changes, each with a sink of its own.
//!
//! Files are mixed, and the clock ticks, as the order log says; so both are part of the input of the recount. Where keys
//! are split over several tasks each has a time of its own; such rounds have one file, whose times ascend, so that all
//! tasks agree about each record. The records that they emit when time moves on are in no order among them there, and a
//! last record of each key has all of them come to the end of time.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use super::payments::{self, Input, Record};
use super::{Job, Setting, rejects};
use crate::decide::Tuning;
use crate::disk::Found;
use crate::ledger::{Ledger, Step};
use model::{DEDUP, EVERY, HOT, INTERVAL, Interval, LATENESS, Model, Pulse, TTL, WITHIN};
use thalweg_harness::random::Random;

/// Operators; each has a sink.
const OPERATORS: [&str; 5] = ["triples", "pulse", "sums", "pairs", "moves"];

/// Behind all other times.
const END: i64 = 10_000_000;

struct Elements {
    inputs: Vec<Input>,
    sinks: Vec<(String, PathBuf)>,
    rejects: PathBuf,
    partitions: u64,
    pulse: Pulse,
    random: Random,
}

pub(super) fn kept(setting: &Setting<'_>) -> Result<Box<dyn Job>> {
    let mut random = setting.random.clone();
    let is_split = random.percent(40);
    let inputs = payments::inputs(setting, &mut random, is_split, records)?;
    let sink = |name: &str| (sink_of(name), setting.disk.join(format!("{name}.ndjson")));
    Ok(Box::new(Elements {
        inputs,
        sinks: OPERATORS.iter().map(|name| sink(name)).collect(),
        rejects: setting.disk.join("data/jobs/crash/rejects"),
        partitions: if is_split { random.between(2, 4) } else { 1 },
        // A tick finds tasks at different times.
        pulse: Pulse { every: random.pick(&[40, 150]), forgets: !is_split && random.percent(50) },
        random,
    }))
}

/// Sinks have names of their own among all of a job's operators.
fn sink_of(operator: &str) -> String {
    format!("{operator}_out")
}

fn records(random: &mut Random, name: &str, is_ascending: bool) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut now = 0;
    for number in 0..random.between(2_000, 5_000) {
        now += random.between(0, 10) as i64;
        let behind = match random.between(0, 99) {
            _ if is_ascending => 0,
            0..80 => 0,
            80..98 => random.between(0, 1_200) as i64,
            _ => random.between(0, 6_000) as i64,
        };
        // Few that come often, and many that come once in a while.
        let card = if random.percent(70) { random.between(0, 30) } else { random.between(31, 400) };
        let mut record = Record {
            ts: now - behind,
            id: format!("{name}{number}"),
            card: format!("c{card}"),
            shop: format!("s{}", random.between(0, 2)),
            quarters: random.between(0, 2 * HOT as u64) as i64,
        };
        // An id is repeated soon, or after the span is over.
        if random.percent(5) && !records.is_empty() {
            let back = random.pick(&[1, 20, 300, 1_000]).min(records.len());
            let earlier = &records[records.len() - back];
            record = Record { ts: record.ts, ..earlier.clone() };
        }
        records.push(record);
    }
    if is_ascending {
        let cards: BTreeSet<String> = records.iter().map(|record| record.card.clone()).collect();
        records.extend((0..).zip(cards).map(|(number, card)| Record {
            ts: END + number,
            id: format!("{name}-{card}"),
            card,
            shop: "s0".to_owned(),
            quarters: 0,
        }));
    }
    records
}

impl Job for Elements {
    fn job_file(&self, tuning: &Tuning) -> Value {
        let dedup = [("id", json!("id")), ("dedup", json!(format!("{DEDUP}ms")))];
        let sources = payments::sources(&self.inputs, tuning, LATENESS, &dedup);
        let inputs: Vec<Value> = self.inputs.iter().map(|input| tuning.input(input.name)).collect();
        let element = |kind: &str, more: Value| {
            let mut element = json!({ "type": kind, "input": tuning.input("both"), "key": "card", "partitions": self.partitions });
            if let Some(every) = tuning.checkpoint {
                element["checkpoint"] = json!({ "every": every });
            }
            for (key, value) in more.as_object().into_iter().flatten() {
                element[key] = value.clone();
            }
            element
        };
        let ttl = format!("{TTL}ms");
        let on_ttl = if self.pulse.forgets { "forget" } else { "unload" };
        let sinks: Map<String, Value> = OPERATORS
            .iter()
            .zip(&self.sinks)
            .map(|(name, (sink, path))| {
                let written =
                    json!({ "type": "file", "input": tuning.input(name), "path": path, "format": "ndjson" });
                (sink.clone(), written)
            })
            .collect();
        json!({
            "name": "crash",
            "cycle": tuning.cycle,
            "state": tuning.state(),
            "sources": sources,
            "operators": {
                "both": { "type": "union", "input": inputs },
                "hot": { "type": "filter", "input": tuning.input("both"), "where": format!("amount > {}", HOT / 4) },
                "triples": element("count", json!({
                    "emit": { "every": format!("{EVERY} records") }, "ttl": ttl, "on_ttl": "forget",
                })),
                "pulse": element("count", json!({
                    "emit": { "every": format!("{}ms", self.pulse.every) }, "ttl": ttl, "on_ttl": on_ttl,
                })),
                "sums": element("aggregate", json!({ "fields": "amount", "every": format!("{INTERVAL}ms") })),
                "pairs": element("join", json!({
                    "input": [tuning.input("hot"), tuning.input("hot.rest")],
                    "within": format!("{WITHIN}ms"),
                    "left": true,
                })),
                "moves": element("changes", json!({ "value": "shop", "ttl": ttl, "on_ttl": "forget" })),
            },
            "sinks": sinks,
        })
    }

    fn sinks(&self) -> &[(String, PathBuf)] {
        &self.sinks
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn feed(&mut self) -> Result<()> {
        // Slowly, so that the clock ticks between records.
        if !self.random.percent(25) {
            return Ok(());
        }
        let last = self.inputs.len() as u64 - 1;
        let input = &mut self.inputs[self.random.between(0, last) as usize];
        input.file.grow(&mut self.random)
    }

    fn is_fed(&self) -> bool {
        self.inputs.iter().all(|input| input.file.is_whole())
    }

    fn recount(&mut self, found: &Found, ledger: &Ledger) -> Result<u64> {
        let commit = found.commit.as_ref().context("there is no commit record at the end")?;
        let mut model = Model::new(self.pulse);
        let (mut late, mut count) = (BTreeSet::new(), 0);
        for step in ledger.steps()? {
            let run = match step {
                Step::Run(run) => run,
                Step::Tick(now) => {
                    model.tick(now);
                    continue;
                }
            };
            let (name, _) = commit.sources.get(run.source).context("a source that no commit names")?;
            let input = self.inputs.iter().find(|input| input.name == name).context("an unknown source")?;
            for offset in run.first..run.first + run.count {
                let record = input.records.get(offset as usize).context("an offset after the file's end")?;
                if model.record(record) {
                    late.insert((name.clone(), offset));
                }
                count += 1;
            }
        }
        let all: u64 = self.inputs.iter().map(|input| input.records.len() as u64).sum();
        ensure!(count == all, "the order names {count} of {all} records");
        let shows = [&model.tripled.len(), &model.sums().len(), &model.pairs.len(), &model.moves.len()];
        ensure!(shows.iter().all(|count| **count > 0), "the input shows nothing");
        ensure!(model.duplicates > 0, "no record came twice");
        // Each operator judges for itself.
        rejects::check(&self.rejects, &late, OPERATORS.len())?;

        let lines = |name: &str| {
            let text =
                std::str::from_utf8(&found.sinks[&sink_of(name)]).with_context(|| format!("sink {name}"))?;
            anyhow::Ok(text.lines().collect::<Vec<_>>())
        };
        let tripled: Vec<String> = model.tripled.iter().map(count_line).collect();
        same("triples", lines("triples")?, tripled)?;
        let moves = model.moves.iter().map(|(record, shop)| move_line(record, shop.as_deref())).collect();
        same("moves", lines("moves")?, moves)?;
        self.check_pulses(&model, lines("pulse")?)?;
        self.check_sums(&model, lines("sums")?)?;
        self.check_pairs(&model, lines("pairs")?)?;
        Ok(all)
    }
}

impl Elements {
    fn is_split(&self) -> bool {
        self.partitions > 1
    }

    /// Each tick reports the elements that were touched since the one before; tasks among each other in no order.
    fn check_pulses(&self, model: &Model, mut lines: Vec<&str>) -> Result<()> {
        let mut expected = Vec::new();
        for told in &model.pulsed {
            let mut told: Vec<String> = told.iter().map(count_line).collect();
            if self.is_split() {
                told.sort_unstable();
                let range = expected.len()..lines.len().min(expected.len() + told.len());
                lines[range].sort_unstable();
            }
            expected.append(&mut told);
        }
        same("pulse", lines, expected)
    }

    fn check_sums(&self, model: &Model, mut lines: Vec<&str>) -> Result<()> {
        let mut sums = model.sums();
        if self.is_split() {
            let card = |line: &&str| field(line, "card").map(str::to_owned);
            let start = |line: &&str| field(line, "start").and_then(|start| start.parse::<i64>().ok());
            lines.sort_by_key(|line| (start(line), card(line)));
            sums.sort_by_key(|sum| (sum.start, format!("{:?}", sum.card)));
        }
        for (number, (line, sum)) in lines.iter().zip(&sums).enumerate() {
            ensure!(is_interval(line, sum), "sums: line {} is {line}, expected {sum:?}", number + 1);
        }
        ensure!(lines.len() == sums.len(), "sums: {} lines, expected {}", lines.len(), sums.len());
        Ok(())
    }

    /// Pairs come with their second record; records that found no other some time after their wait.
    fn check_pairs(&self, model: &Model, lines: Vec<&str>) -> Result<()> {
        let (alone, pairs): (Vec<&str>, Vec<&str>) =
            lines.into_iter().partition(|line| field(line, "hot_rest_id") == Some("null"));
        let expected = model.pairs.iter().map(|(one, other)| pair_line(one, Some(other))).collect();
        same("pairs", pairs, expected)?;
        let mut expected: BTreeMap<String, (&Record, bool)> = model
            .alone()
            .into_values()
            .map(|(record, must)| (pair_line(record, None), (record, must)))
            .collect();
        for line in alone {
            ensure!(
                expected.remove(line).is_some(),
                "pairs: {line} is no record without another, or there twice"
            );
        }
        match expected.values().find(|(_, must)| *must) {
            Some((record, _)) => bail!("pairs: {record:?} found no other, and was not emitted"),
            None => Ok(()),
        }
    }
}

/// Holds the lines of a sink against those that it should have.
fn same(sink: &str, lines: Vec<&str>, expected: Vec<String>) -> Result<()> {
    for (number, (line, expected)) in lines.iter().zip(&expected).enumerate() {
        ensure!(line == expected, "{sink}: line {} is {line}, expected {expected}", number + 1);
    }
    ensure!(lines.len() == expected.len(), "{sink}: {} lines, expected {}", lines.len(), expected.len());
    Ok(())
}

fn count_line((card, count): &(String, u64)) -> String {
    format!(r#"{{"card":"{card}","count":{count}}}"#)
}

fn move_line(record: &Record, previous: Option<&str>) -> String {
    let Record { ts, id, card, shop, .. } = record;
    let (amount, previous) = (amount(record), previous.map_or("null".to_owned(), |shop| format!("{shop:?}")));
    format!(
        r#"{{"ts":{ts},"id":"{id}","card":"{card}","shop":"{shop}","amount":{amount},"previous":{previous}}}"#
    )
}

fn pair_line(one: &Record, other: Option<&Record>) -> String {
    let text = |value: Option<&str>| value.map_or("null".to_owned(), |value| format!("{value:?}"));
    let Record { ts, id, card, shop, .. } = one;
    format!(
        r#"{{"hot_ts":{ts},"hot_id":"{id}","card":"{card}","hot_shop":"{shop}","hot_amount":{},"hot_rest_ts":{},"hot_rest_id":{},"hot_rest_shop":{},"hot_rest_amount":{}}}"#,
        amount(one),
        other.map_or("null".to_owned(), |other| other.ts.to_string()),
        text(other.map(|other| other.id.as_str())),
        text(other.map(|other| other.shop.as_str())),
        other.map_or("null".to_owned(), amount),
    )
}

/// Quarters have few digits, which every writer of numbers finds.
fn amount(record: &Record) -> String {
    format!("{:?}", record.quarters as f64 / 4.0)
}

/// Whether a line is this interval, to the last bit.
fn is_interval(line: &str, sum: &Interval) -> bool {
    let number = |name: &str| field(line, name)?.parse::<f64>().ok().map(f64::to_bits);
    let whole = |name: &str| field(line, name)?.parse::<i64>().ok();
    let figures = [("min", sum.min), ("max", sum.max), ("mean", sum.mean), ("variance", sum.variance())];
    field(line, "card") == Some(&format!("{:?}", sum.card))
        && whole("start") == Some(sum.start * 1_000)
        && whole("amount_count") == i64::try_from(sum.count).ok()
        && figures.iter().all(|(name, value)| number(&format!("amount_{name}")) == Some(value.to_bits()))
}

/// The text of a field in a line whose values hold no commas.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let inner = line.strip_prefix('{')?.strip_suffix('}')?;
    inner.split(',').find_map(|part| {
        let (key, value) = part.split_once(':')?;
        (key.strip_prefix('"')?.strip_suffix('"')? == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(quarters: i64) -> Record {
        Record { ts: 5, id: "a1".to_owned(), card: "c".to_owned(), shop: "s".to_owned(), quarters }
    }

    #[test]
    fn fields_of_a_line_are_found_by_their_whole_names() {
        let line = pair_line(&record(10), None);
        assert_eq!(field(&line, "hot_amount"), Some("2.5"));
        assert_eq!(field(&line, "hot_rest_id"), Some("null"));
        assert_eq!(field(&line, "amount"), None);
    }

    #[test]
    fn every_value_of_an_interval_counts() {
        let mut model = Model::new(Pulse { every: 40, forgets: false });
        let other = |id: &str, record| Record { id: id.to_owned(), ..record };
        for record in [record(10), other("a2", record(12)), other("a3", Record { ts: 9_000, ..record(0) })] {
            model.record(&record);
        }
        let sum = model.sums()[0];
        let line = r#"{"card":"c","start":0,"amount_count":2,"amount_min":2.5,"amount_max":3.0,"amount_mean":2.75,"amount_variance":0.0625}"#;
        assert!(is_interval(line, sum));
        for (from, to) in
            [(":2,", ":3,"), ("2.75", "2.7500000000000004"), ("0.0625", "0.06"), ("\"c\"", "\"d\"")]
        {
            assert!(!is_interval(&line.replace(from, to), sum), "{to}");
        }
    }

    #[test]
    fn a_line_that_is_missing_or_too_many_is_found() {
        assert!(same("x", vec!["a"], vec!["a".to_owned()]).is_ok());
        assert!(same("x", vec!["a"], vec!["b".to_owned()]).is_err());
        assert!(same("x", vec![], vec!["a".to_owned()]).is_err());
        assert!(same("x", vec!["a", "a"], vec!["a".to_owned()]).is_err());
    }
}
