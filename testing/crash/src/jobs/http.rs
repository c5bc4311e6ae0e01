//! Records that several clients post to two sources at once.
//!
//! Records that were answered 200 come out exactly once, refused ones never, those without an answer (the connection
//! broke) at most once. Two sinks take the same stream, one of them after a filter. Records of one client keep their
//! order, offsets of a source are dense, and both sources are mixed as the order log says.

use std::collections::HashMap;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::clients::{self, Clients};
use super::{Job, Setting};
use crate::decide::Tuning;
use crate::disk::Found;
use crate::engine::Engine;
use crate::ledger::Ledger;
use thalweg_harness::http::Connection;
use thalweg_harness::random::Random;

const CLIENTS: usize = 4;
const SOURCES: [&str; 2] = ["a", "b"];
/// The filter of one sink lets more than this through.
const THRESHOLD_CENTS: u64 = 100;

struct Posted {
    sinks: [(String, PathBuf); 2],
    clients: Clients<Client>,
    /// Of source `b`.
    ack: &'static str,
}

/// One connection that posts records with running numbers, to one source.
struct Client {
    number: usize,
    posts_left: u64,
    random: Random,
    /// Cents and outcome of each record, by its running number.
    records: Vec<(u64, Outcome)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Acknowledged,
    Refused,
    /// The connection broke before the answer.
    Unknown,
}

pub(super) fn posted(setting: &Setting<'_>) -> Result<Box<dyn Job>> {
    let mut random = setting.random.clone();
    let client = |number| Client {
        number,
        posts_left: random.between(50, 400),
        random: setting.random.of("client", number as u64),
        records: Vec::new(),
    };
    let sink = |name: &str| (name.to_owned(), setting.disk.join(format!("{name}.ndjson")));
    Ok(Box::new(Posted {
        clients: Clients::new((0..CLIENTS).map(client)),
        sinks: [sink("all"), sink("big")],
        // What was only written survives a kill, but no power cut.
        ack: if setting.power { "synced" } else { "written" },
    }))
}

impl Job for Posted {
    fn job_file(&self, tuning: &Tuning) -> Value {
        let source = |ack: &str| {
            json!({
                "type": "http",
                "format": "ndjson",
                "schema": { "client": "int64", "n": "int64", "amount": "float64" },
                "ack": ack,
            })
        };
        let sink = |index: usize, input: Value| json!({ "type": "file", "input": input, "path": self.sinks[index].1, "format": "ndjson" });
        json!({
            "name": "crash",
            "cycle": tuning.cycle,
            "state": tuning.state(),
            "sources": { "a": source("synced"), "b": source(self.ack) },
            "operators": { "more": {
                "type": "filter",
                "input": [tuning.input("a"), tuning.input("b")],
                "where": "amount > 1",
            }},
            "sinks": {
                "all": sink(0, json!([tuning.input("a"), tuning.input("b")])),
                "big": sink(1, tuning.input("more")),
            },
        })
    }

    fn sinks(&self) -> &[(String, PathBuf)] {
        &self.sinks
    }

    fn journals(&self) -> &'static [&'static str] {
        &SOURCES
    }

    fn is_served(&self) -> bool {
        true
    }

    fn started(&mut self, engine: &Engine) -> Result<()> {
        self.clients.start(engine)
    }

    fn is_fed(&self) -> bool {
        self.clients.are_done()
    }

    fn stopped(&mut self) -> Result<()> {
        self.clients.stop()
    }

    fn recount(&mut self, found: &Found, ledger: &Ledger) -> Result<u64> {
        let all = records(&found.sinks["all"]).context("sink all")?;
        let big = records(&found.sinks["big"]).context("sink big")?;
        let mut filtered = all.iter().filter(|record| record.cents > THRESHOLD_CENTS);
        for (index, record) in big.iter().enumerate() {
            let expected = filtered.next();
            ensure!(
                expected == Some(record),
                "line {} of big is {record:?}, expected {expected:?}",
                index + 1
            );
        }
        let more = filtered.next();
        ensure!(more.is_none(), "big lacks {more:?} and the records after it");

        let mut counts: HashMap<(usize, usize), u64> = HashMap::new();
        let mut last: HashMap<usize, usize> = HashMap::new();
        for record in &all {
            let client = self.clients.all().get(record.client);
            let sent = client.and_then(|client| client.records.get(record.number));
            let (cents, outcome) = sent.with_context(|| format!("{record:?} was never posted"))?;
            ensure!(*cents == record.cents, "{record:?} was posted with {cents} cents");
            ensure!(*outcome != Outcome::Refused, "{record:?} came out though it was refused");
            *counts.entry((record.client, record.number)).or_default() += 1;
            if let Some(before) = last.insert(record.client, record.number) {
                ensure!(before < record.number, "{record:?} came after record {before} of its client");
            }
        }
        for client in self.clients.all() {
            for (number, (_, outcome)) in client.records.iter().enumerate() {
                let count = counts.get(&(client.number, number)).copied().unwrap_or(0);
                let is_right = match outcome {
                    Outcome::Acknowledged => count == 1,
                    Outcome::Unknown => count <= 1,
                    Outcome::Refused => count == 0,
                };
                let who = client.number;
                ensure!(is_right, "record {number} of client {who}, {outcome:?}, came out {count} times");
            }
        }
        self.check_order(found, ledger, &all)?;
        Ok(all.len() as u64)
    }
}

impl Posted {
    /// Offsets are dense, and sources are mixed as the order log says.
    fn check_order(&self, found: &Found, ledger: &Ledger, all: &[Record]) -> Result<()> {
        let commit = found.commit.as_ref().context("there is no commit record at the end")?;
        let mut lines = all.iter();
        for run in ledger.runs()? {
            let (name, _) = commit.sources.get(run.source).context("a source that no commit names")?;
            for offset in run.first..run.first + run.count {
                let record = lines.next().with_context(|| format!("{name}@{offset} is missing"))?;
                let source = source_of(record.client);
                ensure!(source == name, "{record:?} of {source} is where {name}@{offset} should be");
            }
        }
        ensure!(lines.next().is_none(), "more came out than the order names");
        for (name, next) in &commit.sources {
            let count = all.iter().filter(|record| source_of(record.client) == name).count() as u64;
            ensure!(*next == count, "source {name} ended at offset {next}, {count} records came out");
        }
        Ok(())
    }
}

fn source_of(client: usize) -> &'static str {
    SOURCES[client % SOURCES.len()]
}

impl clients::Client for Client {
    fn posts_left(&self) -> u64 {
        self.posts_left
    }

    fn post(&mut self, mut connection: Connection) -> Result<()> {
        let path = format!("/v1/jobs/crash/sources/{}", source_of(self.number));
        while self.posts_left > 0 {
            let first = self.records.len();
            let mut body = String::new();
            let cents: Vec<u64> =
                (0..self.random.between(1, 20)).map(|_| self.random.between(0, 999)).collect();
            for (index, cents) in cents.iter().enumerate() {
                let (who, number) = (self.number, first + index);
                let amount = format!("{}.{:02}", cents / 100, cents % 100);
                body.push_str(&format!("{{\"client\":{who},\"n\":{number},\"amount\":{amount}}}\n"));
            }
            let outcome = match connection.post(&path, &[body.as_bytes()]) {
                Ok((200, answer)) => {
                    let said = records(answer).context("an answer")?;
                    let sent: Vec<_> =
                        cents.iter().enumerate().map(|(index, cents)| (first + index, *cents)).collect();
                    let said: Vec<_> = said.iter().map(|record| (record.number, record.cents)).collect();
                    ensure!(said == sent, "records {sent:?} were answered with {said:?}");
                    Outcome::Acknowledged
                }
                Ok((400 | 429 | 503 | 507, _)) => Outcome::Refused,
                // 504 and the like, or a broken connection.
                Ok(_) | Err(_) => Outcome::Unknown,
            };
            self.records.extend(cents.into_iter().map(|cents| (cents, outcome)));
            match outcome {
                Outcome::Acknowledged => self.posts_left -= 1,
                Outcome::Refused => thread::sleep(Duration::from_millis(1)),
                Outcome::Unknown => break,
            }
        }
        Ok(())
    }
}

/// A line of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    client: usize,
    number: usize,
    cents: u64,
}

fn records(text: &[u8]) -> Result<Vec<Record>> {
    let text = std::str::from_utf8(text).context("the output is no text")?;
    text.lines().map(|line| record(line).with_context(|| format!("unexpected line {line}"))).collect()
}

fn record(line: &str) -> Option<Record> {
    let rest = line.strip_prefix(r#"{"client":"#)?;
    let (client, rest) = rest.split_once(r#","n":"#)?;
    let (number, rest) = rest.split_once(r#","amount":"#)?;
    let amount: f64 = rest.strip_suffix('}')?.parse().ok()?;
    let cents = (amount * 100.0).round() as u64;
    let is_exact = (cents as f64 / 100.0).to_bits() == amount.to_bits();
    is_exact.then_some(Record { client: client.parse().ok()?, number: number.parse().ok()?, cents })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let expected = Record { client: 1, number: 20, cents: 107 };
        assert_eq!(record(r#"{"client":1,"n":20,"amount":1.07}"#), Some(expected));
        assert_eq!(record(r#"{"client":1,"n":20,"amount":1.0700001}"#), None);
        assert_eq!(record(r#"{"client":1,"n":20,"amount":1.07"#), None);
    }
}
