//! A disk that gets full under a job that clients read.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::disk::{Disk, fill_but};
use super::job::{Bench, Place};
use crate::engine::Engine;
use thalweg_harness::http::Connection;

const JOB: &str = "/v1/jobs/reads";
const CARDS: usize = 7;
/// Records of a request, which are of one card and take a kilobyte each.
const RECORDS: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(60);

fn job() -> Value {
    let schema = json!({ "ts": "timestamp(ms)", "card": "string", "pad": "string" });
    let query = "SELECT count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR";
    json!({
        "name": "reads",
        "cycle": { "every": "100ms" },
        "sources": { "payments": { "type": "http", "time": "ts", "schema": schema } },
        "operators": {
            "features": { "type": "metrics", "input": "payments", "partition_by": "card", "queries": { "all": query } },
        },
        "sinks": { "rows": { "type": "table", "input": "payments" } },
    })
}

/// What a sender knows of one card.
#[derive(Clone, Copy, Default)]
struct Sent {
    acknowledged: u64,
    /// Whether it counts is not known.
    open: u64,
}

impl Sent {
    fn allows(&self, count: u64) -> bool {
        (self.acknowledged..=self.acknowledged + self.open).contains(&count)
    }
}

struct Client {
    connection: Connection,
    cards: [Sent; CARDS],
    requests: usize,
}

impl Client {
    fn new(engine: &Engine, data: &Path) -> Result<Self> {
        Ok(Self { connection: connection(engine, data)?, cards: Default::default(), requests: 0 })
    }

    /// The connection to another process; the sent records stay known.
    fn over(self, engine: &Engine, data: &Path) -> Result<Self> {
        Ok(Self { connection: connection(engine, data)?, ..self })
    }

    /// Sends records of the next card; the status, and the error where there is one.
    fn post(&mut self) -> Result<(u16, Value)> {
        let card = self.requests % CARDS;
        self.requests += 1;
        let line = format!("{{\"ts\":{},\"card\":\"c{card}\",\"pad\":\"{:x<990}\"}}\n", self.requests, "");
        let body = line.repeat(usize::try_from(RECORDS)?);
        let (status, reply) = self.connection.post(&format!("{JOB}/sources/payments"), &[body.as_bytes()])?;
        let sent = &mut self.cards[card];
        match status {
            200 => {
                sent.acknowledged += RECORDS;
                return Ok((status, Value::Null));
            }
            504 => sent.open += RECORDS,
            _ => {}
        }
        Ok((status, serde_json::from_slice::<Value>(reply)?["error"].take()))
    }

    fn get(&mut self, path: &str) -> Result<Value> {
        let (status, reply) = self.connection.get(path)?;
        let reply = String::from_utf8_lossy(reply).into_owned();
        ensure!(status == 200, "GET {path}: {status} {reply}");
        serde_json::from_str(&reply).with_context(|| reply)
    }

    /// Present values of all cards, which fit the sent records.
    fn read(&mut self) -> Result<Vec<u64>> {
        let mut counts = Vec::new();
        for card in 0..CARDS {
            let value = self.get(&format!("{JOB}/operators/features/queries/all?card=c{card}"))?;
            let count = value["values"]["n"].as_u64().with_context(|| format!("no count in {value}"))?;
            let Sent { acknowledged, open } = self.cards[card];
            ensure!(
                self.cards[card].allows(count),
                "c{card} counts {count}, acknowledged were {acknowledged} and of {open} it is not known"
            );
            counts.push(count);
        }
        Ok(counts)
    }

    fn sql(&mut self) -> Result<Value> {
        let text = b"SELECT count(*) AS n FROM rows";
        let (status, reply) = self.connection.post("/v1/sql?format=json", &[text])?;
        ensure!(status == 200, "SQL: {status} {}", String::from_utf8_lossy(reply));
        Ok(serde_json::from_slice(reply)?)
    }
}

fn address(engine: &Engine) -> Result<SocketAddr> {
    let from = Instant::now();
    while from.elapsed() < PATIENCE {
        if let Some(address) = engine.address() {
            return Ok(address);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    anyhow::bail!("it does not listen: {}", engine.said())
}

/// With the admin token, which is on the disk that only the engine has mounted.
fn connection(engine: &Engine, data: &Path) -> Result<Connection> {
    let seen = format!("/proc/{}/root{}", engine.id(), data.display());
    Connection::open(address(engine)?)?.with_token_of(Path::new(&seen))
}

pub(super) fn full(bench: &Bench) -> Result<()> {
    let mut place = bench.place("full-is-read")?;
    let disk = Disk::make(&place, 64 << 20)?;
    place.data = disk.mount.join("data");
    let mut engine = start(bench, &place, &disk.with("loop", &fill_but(16 << 10)))?;
    let mut client = Client::new(&engine, &place.data)?;
    until_it_is_full(&mut client, &disk.mount)?;
    let values = is_read(&mut client)?;

    // Room again: the job is started again in the process that has it.
    std::fs::remove_file(format!("/proc/{}/root{}", engine.id(), disk.mount.join("filler").display()))?;
    let text = serde_json::to_vec(&job())?;
    let (status, reply) = client.connection.post(JOB, &[&text])?;
    ensure!(status == 201, "started again: {status} {}", String::from_utf8_lossy(reply));
    let again = client.read().with_context(|| format!("started again: {}", engine.said()))?;
    ensure!(again.iter().zip(&values).all(|(now, before)| now <= before), "{again:?} after {values:?}");
    for _ in 0..CARDS {
        let (status, error) = client.post()?;
        ensure!(status == 200, "started again: {status} {error}");
    }
    let values = client.read()?;
    ends(&mut engine, &disk.mount)?;

    // And in another one, which finds the same.
    let mut engine = start(bench, &place, &disk.with("loop", "true"))?;
    client = client.over(&engine, &place.data)?;
    let again = client.read().context("in another process")?;
    ensure!(again == values, "{again:?}, and {values:?} before");
    engine.drain();
    let status = engine.wait(PATIENCE)?;
    ensure!(status.code() == Some(0), "{status}: {}", engine.said());

    // Full to the end of the process.
    let mut engine = start(bench, &place, &disk.with("loop", &fill_but(8 << 10)))?;
    client = client.over(&engine, &place.data)?;
    until_it_is_full(&mut client, &disk.mount)?;
    is_read(&mut client)?;
    ends(&mut engine, &disk.mount)
}

fn start(bench: &Bench, place: &Place, under: &[String]) -> Result<Engine> {
    let path = place.folder.join("job.json");
    std::fs::write(&path, job().to_string())?;
    let mut words = under.to_vec();
    let [binary, path, data] = [&bench.binary, &path, &place.data].map(|path| path.display().to_string());
    words.extend([binary, "run".to_owned(), path, "--data-dir".to_owned(), data]);
    words.extend(["--workers", "2", "--listen", "127.0.0.1:0"].map(str::to_owned));
    Engine::start_under(&words, &place.folder)
}

/// Sends until no room is left: the request that finds none has an open outcome, those after it are refused.
fn until_it_is_full(client: &mut Client, mount: &Path) -> Result<()> {
    let mut sent = 0;
    let error = loop {
        sent += 1;
        ensure!(sent < 10_000, "the disk is never full");
        let (status, error) = client.post()?;
        match status {
            200 => {}
            504 => break error,
            // The job had failed before: a cycle found no room.
            507 => break error,
            other => anyhow::bail!("{other} {error}"),
        }
    };
    ensure!(sent > 1, "nothing was taken at all: {error}");
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("disk full") || message.contains("No space left on device"),
        "no reason in {error}"
    );
    ensure!(message.contains(&mount.display().to_string()), "no file in {error}");
    Ok(())
}

/// The job takes nothing, and says why; values and tables are read, and do not change.
fn is_read(client: &mut Client) -> Result<Vec<u64>> {
    let values = client.read()?;
    let rows = client.sql()?;
    for _ in 0..3 {
        let (status, error) = client.post()?;
        ensure!(status == 507 && error["code"] == "disk_full", "{status} {error}");
        ensure!(
            error["hint"].as_str().is_some_and(|hint| hint.contains("room") || hint.contains("free space")),
            "{error}"
        );
        let add = b"SELECT max(ts) AS last FROM payments GROUP BY card OVER INFINITE";
        let path = format!("{JOB}/operators/features/queries/more");
        let (status, reply) = client.connection.post(&path, &[add])?;
        ensure!(status == 507, "{status} {}", String::from_utf8_lossy(reply));
        std::thread::sleep(Duration::from_millis(200));
        ensure!(client.read()? == values && client.sql()? == rows, "values or rows changed");
    }
    let shown = client.get(JOB)?;
    ensure!(shown["state"] == "failed" && shown["failure"]["hint"].is_string(), "{shown}");
    Ok(values)
}

fn ends(engine: &mut Engine, mount: &Path) -> Result<()> {
    engine.drain();
    let (status, said) = (engine.wait(PATIENCE)?, engine.said());
    ensure!(status.code() == Some(1), "{status}: {said}");
    for part in ["job \"reads\": ", " = hint: ", "is only read", &mount.display().to_string()] {
        ensure!(said.contains(part), "{part:?} is missing in {said}");
    }
    ensure!(!said.contains("panicked"), "a panic: {said}");
    Ok(())
}
