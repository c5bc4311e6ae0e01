//! Two CSV files at once, through a filter, into one file; the files are there from the beginning, or grow and
//! are rotated.
//!
//! The order log says how records of both were mixed, and a filter has no memory: so the output is known byte by byte,
//! but for the text of numbers.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::grown::Grown;
use super::{Job, Setting};
use crate::decide::Tuning;
use crate::disk::Found;
use crate::ledger::Ledger;
use thalweg_harness::random::Random;

const HEADER: &[u8] = b"ts,card,amount\n";

/// The filter lets more than this through.
const THRESHOLD_CENTS: u32 = 100;

struct Files {
    inputs: [Input; 2],
    sinks: [(String, PathBuf); 1],
    is_followed: bool,
    random: Random,
}

/// One file that is read.
struct Input {
    name: &'static str,
    file: Grown,
    /// Amounts by offset.
    cents: Vec<u32>,
}

pub(super) fn whole(setting: &Setting<'_>) -> Result<Box<dyn Job>> {
    Ok(Box::new(Files::new(setting, false, (100_000, 400_000))?))
}

pub(super) fn followed(setting: &Setting<'_>) -> Result<Box<dyn Job>> {
    Ok(Box::new(Files::new(setting, true, (5_000, 40_000))?))
}

impl Files {
    fn new(setting: &Setting<'_>, is_followed: bool, records: (u64, u64)) -> Result<Self> {
        let mut random = setting.random.clone();
        let mut input = |name: &'static str| {
            let count = random.between(records.0, records.1);
            let cents: Vec<u32> = (0..count).map(|_| random.between(0, 999) as u32).collect();
            let mut text = HEADER.to_vec();
            for (offset, cents) in cents.iter().enumerate() {
                writeln!(text, "{offset},{name}{},{}.{:02}", offset % 97, cents / 100, cents % 100)?;
            }
            let path = setting.folder.join(format!("{name}.csv"));
            let file = match is_followed {
                true => Grown::begun(path, text)?.rotating(HEADER, &mut random),
                false => Grown::whole(path, &text)?,
            };
            anyhow::Ok(Input { name, file, cents })
        };
        let inputs = [input("a")?, input("b")?];
        let sinks = [("out".to_owned(), setting.disk.join("out.ndjson"))];
        Ok(Self { inputs, sinks, is_followed, random })
    }
}

impl Job for Files {
    fn job_file(&self, tuning: &Tuning) -> Value {
        let source = |input: &Input| {
            let mut source = json!({
                "type": "file",
                "path": input.file.path,
                "format": "csv",
                "schema": { "ts": "timestamp(ms)", "card": "string", "amount": "float64" },
                "time": "ts",
            });
            if self.is_followed {
                source["follow"] = json!(true);
                source["poll"] = json!(tuning.poll);
            }
            source
        };
        let [a, b] = &self.inputs;
        json!({
            "name": "crash",
            "cycle": tuning.cycle,
            "state": tuning.state(),
            "sources": { "a": source(a), "b": source(b) },
            "operators": { "big": {
                "type": "filter",
                "input": [tuning.input("a"), tuning.input("b")],
                "where": "amount > 1",
            }},
            "sinks": { "out": {
                "type": "file",
                "input": tuning.input("big"),
                "path": self.sinks[0].1,
                "format": "ndjson",
            }},
        })
    }

    fn sinks(&self) -> &[(String, PathBuf)] {
        &self.sinks
    }

    fn is_drained(&self) -> bool {
        self.is_followed
    }

    fn feed(&mut self) -> Result<()> {
        let input = &mut self.inputs[self.random.between(0, 1) as usize];
        // A job that has never come to work knows of no file before the present one.
        if std::fs::metadata(&self.sinks[0].1).is_ok_and(|output| output.len() > 0) {
            input.file.rotate_if_due()?;
        }
        input.file.grow(&mut self.random)
    }

    fn is_fed(&self) -> bool {
        self.inputs.iter().all(|input| input.file.is_whole())
    }

    fn recount(&mut self, found: &Found, ledger: &Ledger) -> Result<u64> {
        let commit = found.commit.as_ref().context("there is no commit record at the end")?;
        // Sources by their numbers in the order log.
        let mut sources = Vec::new();
        for (name, next) in &commit.sources {
            let input = self.inputs.iter().find(|input| input.name == name);
            let input = input.with_context(|| format!("the commit record names source {name:?}"))?;
            let count = input.cents.len() as u64;
            ensure!(*next == count, "source {name} ended at offset {next}, its file has {count} records");
            sources.push(input);
        }
        let text = std::str::from_utf8(&found.sinks["out"]).context("the output is no text")?;
        let mut lines = text.lines().enumerate();
        for run in ledger.runs()? {
            let input =
                sources.get(run.source).context("the order log names a source that no commit names")?;
            for offset in run.first..run.first + run.count {
                let cents = *input.cents.get(offset as usize).context("an offset after the file's end")?;
                if cents > THRESHOLD_CENTS {
                    let (number, line) = lines.next().with_context(|| {
                        format!("the output ends before record {offset} of {}", input.name)
                    })?;
                    let card = format!("{}{}", input.name, offset % 97);
                    ensure!(
                        is_record(line, offset, &card, cents),
                        "line {} of the output is {line}, expected record {offset} of {}: {card}, {cents} cents",
                        number + 1,
                        input.name
                    );
                }
            }
        }
        if let Some((number, line)) = lines.next() {
            anyhow::bail!("line {} of the output is {line}, expected the end", number + 1);
        }
        Ok(self.inputs.iter().map(|input| input.cents.len() as u64).sum())
    }
}

/// Whether a line is this record, with the number nearest to its cents.
fn is_record(line: &str, ts: u64, card: &str, cents: u32) -> bool {
    let amount = || {
        let rest = line.strip_prefix(&format!(r#"{{"ts":{ts},"card":"{card}","amount":"#))?;
        rest.strip_suffix('}')?.parse::<f64>().ok()
    };
    amount().is_some_and(|amount| amount.to_bits() == (f64::from(cents) / 100.0).to_bits())
}

#[cfg(test)]
mod tests {
    use super::is_record;

    #[test]
    fn every_value_of_a_line_counts() {
        let line = r#"{"ts":5,"card":"a5","amount":1.3}"#;
        assert!(is_record(line, 5, "a5", 130));
        assert!(!is_record(line, 6, "a5", 130));
        assert!(!is_record(line, 5, "b5", 130));
        assert!(!is_record(line, 5, "a5", 131));
        assert!(!is_record(&line[..line.len() - 1], 5, "a5", 130));
    }
}
