//! Requests that are answered from windows, and repeated until they are.
//!
//! The answer that a client got must come out in the end, to the letter, though the engine has recomputed it since: a
//! count over records of two sources depends on the order of both, and one over a short time on when each record came. A
//! job with one source answers before its order is synced. A batch whose outcome is unknown is posted again, with the same
//! ids, and counts once.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

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

/// Milliseconds: so that some of a shop's records leave between requests, and not all.
const NEAR: u64 = 20;

struct Answers {
    sinks: [(String, PathBuf); 1],
    clients: Clients<Client>,
    sources: &'static [&'static str],
    partitions: u64,
}

struct Client {
    number: usize,
    source: &'static str,
    posts_left: u64,
    posted: u64,
    random: Random,
    /// What has to be posted until it is answered.
    batch: Option<String>,
    /// Answers as they came, a line each.
    answers: Vec<String>,
}

pub(super) fn repeated(setting: &Setting<'_>) -> Result<Box<dyn Job>> {
    let mut random = setting.random.clone();
    let sources = if setting.random.of("sources", 0).percent(50) { &SOURCES[..1] } else { &SOURCES[..] };
    let client = |number: usize| Client {
        number,
        source: sources[number % sources.len()],
        posts_left: random.between(50, 300),
        posted: 0,
        random: setting.random.of("client", number as u64),
        batch: None,
        answers: Vec::new(),
    };
    let clients = Clients::new((0..CLIENTS).map(client));
    Ok(Box::new(Answers {
        clients,
        sources,
        sinks: [("out".to_owned(), setting.disk.join("out.ndjson"))],
        partitions: random.between(1, 4),
    }))
}

impl Job for Answers {
    fn job_file(&self, tuning: &Tuning) -> Value {
        let source = json!({
            "type": "http",
            "format": "ndjson",
            "schema": { "id": "string", "shop": "string", "amount": "float64" },
            "id": "id",
            "dedup": "1h",
            "ack": "synced",
            "reply": "features",
        });
        let sources: Map<String, Value> =
            self.sources.iter().map(|name| ((*name).to_owned(), source.clone())).collect();
        let inputs: Vec<Value> = self.sources.iter().map(|name| tuning.input(name)).collect();
        json!({
            "name": "crash",
            "cycle": tuning.cycle,
            "state": tuning.state(),
            "sources": sources,
            "operators": {
                "both": { "type": "union", "input": inputs },
                "features": {
                    "type": "metrics",
                    "input": tuning.input("both"),
                    "partitions": self.partitions,
                    "partition_by": ["shop"],
                    "queries": {
                        "all": "SELECT count(*) AS n, sum(amount) AS s FROM both GROUP BY shop OVER INFINITE",
                        "near": format!("SELECT count(*) AS n FROM both GROUP BY shop OVER SLIDING {NEAR} MILLISECONDS"),
                    },
                },
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

    fn journals(&self) -> &'static [&'static str] {
        self.sources
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

    fn recount(&mut self, found: &Found, _: &Ledger) -> Result<u64> {
        let text = std::str::from_utf8(&found.sinks["out"]).context("the output is no text")?;
        let mut lines: HashMap<&str, u64> = HashMap::new();
        let mut ids: HashSet<String> = HashSet::new();
        let mut shops: HashMap<String, (u64, u64)> = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            *lines.entry(line).or_default() += 1;
            let answer: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            let id = answer["id"].as_str().context("an answer without id")?.to_owned();
            let (shop, quarters) = record_of(&id).with_context(|| format!("{id} was never posted"))?;
            let mut expected = json!({ "id": id, "shop": shop, "amount": quarters as f64 / 4.0 });
            let (count, sum) = shops.entry(shop).or_default();
            let is_new = ids.insert(id);
            if is_new {
                *count += 1;
                *sum += quarters;
            } else {
                expected["duplicate"] = json!(["shop"]);
            }
            expected["all"] = json!({ "n": count, "s": *sum as f64 / 4.0 });
            // The count depends on when they came: it has to be the one that a client got.
            let near = answer["near"]["n"].as_u64().with_context(|| format!("{answer} has no near"))?;
            ensure!(
                (u64::from(is_new)..=*count).contains(&near),
                "{answer}: {near} of {count} within {NEAR} ms"
            );
            expected["near"] = json!({ "n": near });
            ensure!(answer == expected, "line {} is {answer}, expected {expected}", number + 1);
        }
        for client in self.clients.all() {
            for answer in &client.answers {
                let left = lines.get_mut(answer.as_str()).filter(|left| **left > 0);
                let left = left.with_context(|| format!("a client got {answer}, which did not come out"))?;
                *left -= 1;
            }
        }
        Ok(ids.len() as u64)
    }
}

/// Shop and amount, in quarters, of the record with this id: `CLIENT-NUMBER-SHOP-QUARTERS`.
fn record_of(id: &str) -> Option<(String, u64)> {
    let mut parts = id.split('-').skip(2);
    Some((format!("s{}", parts.next()?), parts.next()?.parse().ok()?))
}

impl clients::Client for Client {
    fn posts_left(&self) -> u64 {
        self.posts_left
    }

    fn post(&mut self, mut connection: Connection) -> Result<()> {
        let path = format!("/v1/jobs/crash/sources/{}", self.source);
        while self.posts_left > 0 {
            let batch = match self.batch.take() {
                Some(batch) => batch,
                None => self.next_batch(),
            };
            let outcome = connection.post(&path, &[batch.as_bytes()]);
            match outcome {
                Ok((200, answer)) => {
                    let answer = std::str::from_utf8(answer).context("an answer is no text")?;
                    let lines = answer.lines().count();
                    ensure!(lines == batch.lines().count(), "{batch} was answered with {answer}");
                    self.answers.extend(answer.lines().map(str::to_owned));
                    self.posts_left -= 1;
                }
                Ok((400 | 429 | 503 | 507, _)) => {
                    self.batch = Some(batch);
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(_) | Err(_) => {
                    self.batch = Some(batch);
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Client {
    fn next_batch(&mut self) -> String {
        let mut batch = String::new();
        for _ in 0..self.random.between(1, 10) {
            let (who, number) = (self.number, self.posted);
            let (shop, quarters) = (self.random.between(0, 9), self.random.between(0, 400));
            let amount = format!("{}.{:02}", quarters / 4, quarters % 4 * 25);
            batch.push_str(&format!(
                "{{\"id\":\"{who}-{number}-{shop}-{quarters}\",\"shop\":\"s{shop}\",\"amount\":{amount}}}\n"
            ));
            self.posted += 1;
        }
        batch
    }
}
