//! Windows by card and by shop over two growing files, with late records and repeated ids.
//!
//! How both files are mixed decides which records are late and which a window holds, so the order log is part of the
//! input of the recount. Where the keys of a stage are split over several tasks each has a time of its own; such rounds
//! have one file, whose times ascend and whose ids are new, so that all tasks agree.

pub(super) mod model;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::payments::{self, Input, Record};
use super::{Job, Setting, rejects};
use crate::decide::Tuning;
use crate::disk::Found;
use crate::ledger::Ledger;
use model::{DEDUP, LATENESS, Model, QUERIES, Verdict};
use thalweg_harness::random::Random;

struct Windows {
    inputs: Vec<Input>,
    sinks: [(String, PathBuf); 1],
    rejects: PathBuf,
    partitions: u64,
    random: Random,
}

pub(super) fn asked(setting: &Setting<'_>) -> Result<Box<dyn Job>> {
    let mut random = setting.random.clone();
    let is_split = random.percent(40);
    let inputs = payments::inputs(setting, &mut random, is_split, records)?;
    Ok(Box::new(Windows {
        inputs,
        sinks: [("out".to_owned(), setting.disk.join("out.ndjson"))],
        rejects: setting.disk.join("data/jobs/crash/rejects"),
        partitions: if is_split { random.between(2, 4) } else { 1 },
        random,
    }))
}

/// Records of one input, by event time and late, with ids that are repeated now and then.
pub(super) fn records(random: &mut Random, name: &str, is_ascending: bool) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut now = 0;
    for number in 0..random.between(2_000, 6_000) {
        now += random.between(0, 1) as i64 * 10;
        let behind = match random.between(0, 99) {
            _ if is_ascending => 0,
            0..80 => 0,
            80..97 => 10 * random.between(0, 150) as i64,
            _ => 10 * random.between(0, 600) as i64,
        };
        let mut record = Record {
            ts: now - behind,
            id: format!("{name}{number}"),
            card: format!("c{}", random.between(0, 40)),
            // One has most of them, and long lists.
            shop: format!("s{}", if random.percent(60) { 0 } else { random.between(1, 30) }),
            quarters: random.between(0, 400) as i64,
        };
        // An id is repeated soon, or after the span is over. It moves no time, so with several tasks these would
        // differ.
        if !is_ascending && random.percent(5) && !records.is_empty() {
            let back = random.pick(&[1, 20, 300, 2_000]).min(records.len());
            let earlier = &records[records.len() - back];
            record = Record { ts: record.ts, ..earlier.clone() };
        }
        records.push(record);
    }
    records
}

/// The operator that the model recounts.
pub(super) fn features(input: &Value, partitions: impl Into<Value>) -> Value {
    let queries: Map<String, Value> =
        QUERIES.iter().map(|(name, query)| ((*name).to_owned(), json!(query))).collect();
    json!({
        "type": "metrics",
        "input": input,
        "partitions": partitions.into(),
        "partition_by": ["card", "shop"],
        "queries": queries,
    })
}

impl Job for Windows {
    fn job_file(&self, tuning: &Tuning) -> Value {
        let dedup = [("id", json!("id")), ("dedup", json!(format!("{DEDUP}ms")))];
        let sources = payments::sources(&self.inputs, tuning, LATENESS, &dedup);
        let inputs: Vec<Value> = self.inputs.iter().map(|input| tuning.input(input.name)).collect();
        json!({
            "name": "crash",
            "cycle": tuning.cycle,
            "state": tuning.state(),
            "sources": sources,
            "operators": {
                "payments": { "type": "union", "input": inputs },
                "features": features(&tuning.input("payments"), self.partitions),
            },
            "sinks": { "out": {
                "type": "file",
                "input": tuning.input("features"),
                "path": self.sinks[0].1,
                "format": "ndjson",
            }},
        })
    }

    fn sinks(&self) -> &[(String, PathBuf)] {
        &self.sinks
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn feed(&mut self) -> Result<()> {
        let last = self.inputs.len() as u64 - 1;
        let input = &mut self.inputs[self.random.between(0, last) as usize];
        input.file.grow(&mut self.random)
    }

    fn is_fed(&self) -> bool {
        self.inputs.iter().all(|input| input.file.is_whole())
    }

    fn recount(&mut self, found: &Found, ledger: &Ledger) -> Result<u64> {
        let commit = found.commit.as_ref().context("there is no commit record at the end")?;
        let text = std::str::from_utf8(&found.sinks["out"]).context("the output is no text")?;
        let mut lines = text.lines().enumerate();
        let mut model = Model::default();
        let mut late = BTreeSet::new();
        let mut count = 0;
        for run in ledger.runs()? {
            let (name, _) = commit.sources.get(run.source).context("a source that no commit names")?;
            let input = self.inputs.iter().find(|input| input.name == name).context("an unknown source")?;
            for offset in run.first..run.first + run.count {
                let record = input.records.get(offset as usize).context("an offset after the file's end")?;
                let (verdict, expected) = model.next(record);
                if verdict == Verdict::Late {
                    late.insert((name.clone(), offset));
                }
                let (number, line) =
                    lines.next().with_context(|| format!("{name}@{offset} has no answer"))?;
                let answer: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
                ensure!(
                    model::is_same(&answer, &expected),
                    "line {} answers {name}@{offset} with {answer}, expected {expected}",
                    number + 1
                );
                count += 1;
            }
        }
        ensure!(lines.next().is_none(), "more came out than the order names");
        let all: u64 = self.inputs.iter().map(|input| input.records.len() as u64).sum();
        ensure!(count == all, "{count} of {all} records were answered");
        rejects::check(&self.rejects, &late, 1)?;
        Ok(all)
    }
}
