//! More groups than memory, a kill under load, and the time to the first answer after it.
//!
//! Every group comes once; then records of uniform keys, as fast as they are taken; then the kill, with records coming
//! at a steady rate up to it, and a start in the same data directory. The first answer counts from the start of the
//! process to the reply to one record, which comes after the replay of uncommitted records.

use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use super::report::{Report, Table, count, cpu_per_record, mebibytes};
use super::server::Server;
use thalweg_harness::http::Connection;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Few groups and seconds: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Groups
    #[arg(long, default_value_t = 3_000_000)]
    groups: u64,
    /// `state.memory` of the job, in MiB
    #[arg(long, default_value_t = 96)]
    memory: u64,
    /// Records a second while groups come, and of uniform keys
    #[arg(long, default_value_t = 200_000)]
    load: u64,
    /// Records a second before the kill
    #[arg(long, default_value_t = 50_000)]
    rate: u64,
    /// Seconds of uniform keys, and of the steady rate
    #[arg(long, default_value_t = 8)]
    seconds: u64,
}

const JOB: &str = "recovery";

/// Of chunks of reservoirs, in MiB: the windows' tails pass nothing here.
const CHUNK_MEMORY: u64 = 64;

/// Records in one request.
const BATCH: u64 = 2_000;

/// Requests on their way at once.
const SENDERS: usize = 16;

/// Groups whose state a restart should have brought back within this time.
const FILL_PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = project::thalweg(Profile::Release)?;
    let groups = if options.quick { 50_000 } else { options.groups };
    let memory = if options.quick { 4 } else { options.memory };
    let seconds = Duration::from_secs(if options.quick { 1 } else { options.seconds });
    let mut report = Report::new("recovery", "More groups than memory, and restarts");
    report.say(&format!(
        "{} groups with a sum and a count over a day in the `indexed` back end, `state: {{ memory: {memory}MiB, \
         chunk_memory: {CHUNK_MEMORY}MiB }}`; records come by HTTP in requests of {BATCH} without a reply, {SENDERS} at once, `ack: synced`; server and load generator share the machine.",
        count(groups as f64)
    ));
    let mut server = Server::start(&binary, &job(Some((memory, "lazy"))))?;
    measure_load(&mut report, &server, (groups, options.load), seconds)?;

    report.heading("Restarts");
    report.say(&format!(
        "Killed while {} records a second of uniform keys came; each row is a kill and a start of its own.",
        count(options.rate as f64)
    ));
    report.say(
        "The first answer counts from the start of the process, and has the replay of the last cycle in it.",
    );
    let mut table = Table::new([
        "restart",
        "first answer",
        "records done again",
        "groups in memory then",
        "memory then",
        "all back after",
        "groups then",
    ]);
    let mut modes = vec![
        // What the load at full speed has left to be committed is done again, too.
        ("lazy, soon after the load", Some((memory, "lazy")), false),
        ("lazy", Some((memory, "lazy")), false),
        ("eager", Some((memory, "eager")), false),
        ("all in memory", None, false),
    ];
    if drop_page_cache().is_ok() {
        modes.insert(2, ("lazy, page cache dropped", Some((memory, "lazy")), true));
    }
    for (name, state, is_cold) in modes {
        steady(&server, groups, options.rate, seconds / 2)?;
        server.kill()?;
        if is_cold {
            drop_page_cache()?;
        }
        let began = Instant::now();
        server.start_again(&job(state))?;
        first_answer(&mut server)?;
        let first = began.elapsed();
        let (then, resident) = (look(&server)?, server.resident_bytes());
        let filled = if state.is_some_and(|(_, recovery)| recovery == "eager") {
            Some((wait_until_filled(&server)?, began.elapsed()))
        } else {
            None
        };
        let shown =
            |cache: &Option<Cache>| cache.as_ref().map_or("all".to_owned(), |cache| count(cache.keys));
        table.row([
            name.to_owned(),
            seconds_of(first),
            count(then.records - 1.0),
            shown(&then.cache),
            mebibytes(resident),
            filled.as_ref().map_or("–".to_owned(), |(_, took)| seconds_of(*took)),
            filled.as_ref().map_or("–".to_owned(), |(cache, _)| shown(&Some(cache.clone()))),
        ]);
    }
    report.table(&table);
    server.stop()?;
    report.finish(options.quick)
}

/// More state than memory: what it costs in records a second, and in bytes a key.
fn measure_load(
    report: &mut Report,
    server: &Server,
    (groups, load): (u64, u64),
    seconds: Duration,
) -> Result<()> {
    let mut table =
        Table::new(["records", "records/s", "CPU a record", "read back", "evicted", "memory", "at most"]);
    let mut spent = server.counters()?;
    let mut row = |name: &str, records: u64, took: Duration, before: &Cache| -> Result<Cache> {
        let now = cache(server)?.context("the job bounds its state")?;
        let counters = server.counters()?;
        let used = counters.since(&spent).cpu;
        spent = counters;
        table.row([
            name.to_owned(),
            count(records as f64 / took.as_secs_f64()),
            cpu_per_record(used, records as f64),
            count(now.misses - before.misses),
            count(now.evictions - before.evictions),
            mebibytes(server.resident_bytes()),
            mebibytes(server.peak_bytes()),
        ]);
        Ok(now)
    };
    let began = Instant::now();
    posting(server, |post| {
        for first in (0..groups).step_by(BATCH as usize) {
            wait_for_turn(began, first, load);
            post(body_of(first..groups.min(first + BATCH)))?;
        }
        Ok(())
    })?;
    settle(server)?;
    let loaded = row("each group once", groups, began.elapsed(), &Cache::default())?;
    let mut random = 1;
    let mut uniform = |name: &str, rate: u64, before: &Cache| -> Result<Cache> {
        let (mut records, began) = (0, Instant::now());
        posting(server, |post| {
            while began.elapsed() < seconds {
                wait_for_turn(began, records, rate);
                post(body_of((0..BATCH).map(|_| next(&mut random) % groups)))?;
                records += BATCH;
            }
            Ok(())
        })?;
        settle(server)?;
        row(name, records, began.elapsed(), before)
    };
    let paced = uniform("uniform keys", load, &loaded)?;
    let now = uniform("uniform keys, as fast as they are taken", u64::MAX, &paced)?;
    report.heading("More state than memory");
    report.table(&table);
    report.say(&format!(
        "{} of {} groups are in memory; finding all of them takes {:.1} bytes a group, index of the back end included.",
        count(now.keys),
        count(now.stored),
        now.key_bytes / now.stored
    ));
    Ok(())
}

fn job(state: Option<(u64, &str)>) -> Value {
    let mut job = json!({
        "name": JOB,
        "sources": {"payments": {
            "type": "http",
            "format": "ndjson",
            "schema": {"card": "int64", "amount": "float64"},
            "ack": "synced",
        }},
        "operators": {"features": {
            "type": "metrics",
            "input": "payments",
            "partition_by": ["card"],
            "queries": {
                "day": "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 DAY",
            },
        }},
        "sinks": {"answers": {"type": "null", "input": "features"}},
    });
    if let Some((memory, recovery)) = state {
        job["state"] = json!({
            "memory": format!("{memory}MiB"),
            "chunk_memory": format!("{CHUNK_MEMORY}MiB"),
            "recovery": recovery,
        });
    }
    job
}

fn door(reply: &str) -> String {
    format!("/v1/jobs/{JOB}/sources/payments{reply}")
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A record of each card.
fn body_of(cards: impl Iterator<Item = u64>) -> String {
    cards.map(|card| format!("{{\"card\":{card},\"amount\":{}.25}}\n", card % 500)).collect()
}

/// Lets `feed` hand over bodies that [`SENDERS`] connections post in turns: each waits until its records are synced.
fn posting(
    server: &Server,
    feed: impl FnOnce(&mut dyn FnMut(String) -> Result<()>) -> Result<()>,
) -> Result<()> {
    thread::scope(|scope| {
        let (senders, threads): (Vec<_>, Vec<_>) = (0..SENDERS)
            .map(|_| {
                let (sender, bodies) = sync_channel::<String>(0);
                let thread = scope.spawn(move || -> Result<()> {
                    let mut connection = Connection::open(server.address())?;
                    bodies.iter().try_for_each(|body| post(&mut connection, &body))
                });
                (sender, thread)
            })
            .unzip();
        // In turns, so that none of them is closed because nothing came.
        let mut turns = senders.iter().cycle();
        let outcome = feed(&mut |body| {
            let sender = turns.next().context("there are senders")?;
            sender.send(body).context("a connection posts no more")
        });
        drop(senders);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread that posts panicked"))??;
        }
        outcome
    })
}

/// Posts a body, again as long as the server is full.
fn post(connection: &mut Connection, body: &str) -> Result<()> {
    loop {
        match connection.post(&door("?reply=none"), &[body.as_bytes()])? {
            (202, _) => return Ok(()),
            (429, _) => thread::sleep(Duration::from_millis(2)),
            (status, body) => bail!("records were answered {status}: {}", String::from_utf8_lossy(body)),
        }
    }
}

/// One record with a reply: it comes after all that was posted before.
fn settle(server: &Server) -> Result<()> {
    match Connection::open(server.address())?.post(&door(""), &[b"{\"card\":0,\"amount\":1.5}"])? {
        (200, _) => Ok(()),
        (status, body) => bail!("a record was answered {status}: {}", String::from_utf8_lossy(body)),
    }
}

/// Waits until a record is due that comes after `before` others at a rate.
fn wait_for_turn(began: Instant, before: u64, rate: u64) {
    let due = began + Duration::from_secs_f64(before as f64 / rate as f64);
    thread::sleep(due.saturating_duration_since(Instant::now()));
}

/// Posts records of uniform keys on a schedule.
fn steady(server: &Server, groups: u64, rate: u64, time: Duration) -> Result<()> {
    let (mut random, began) = (7, Instant::now());
    let total = (time.as_secs_f64() * rate as f64) as u64;
    posting(server, |post| {
        for sent in (0..total).step_by(BATCH as usize) {
            wait_for_turn(began, sent, rate);
            post(body_of((0..BATCH).map(|_| next(&mut random) % groups)))?;
        }
        Ok(())
    })
}

/// Asks until there is an answer.
fn first_answer(server: &mut Server) -> Result<()> {
    loop {
        let answer = settle(server);
        if answer.is_ok() {
            return Ok(());
        }
        server.check_running()?;
        thread::sleep(Duration::from_millis(5));
    }
}

/// What the live graph says of the groups in memory.
#[derive(Clone, Default)]
struct Cache {
    keys: f64,
    stored: f64,
    key_bytes: f64,
    misses: f64,
    evictions: f64,
}

/// What the live graph says of the job.
struct Look {
    /// Taken by this process, those done again after a start among them.
    records: f64,
    /// `None` where nothing bounds the state.
    cache: Option<Cache>,
}

fn cache(server: &Server) -> Result<Option<Cache>> {
    Ok(look(server)?.cache)
}

fn look(server: &Server) -> Result<Look> {
    // Counts are as of the last tick.
    thread::sleep(Duration::from_millis(300));
    let mut connection = Connection::open(server.address())?;
    let (status, body) = connection.get(&format!("/v1/jobs/{JOB}"))?;
    if status != 200 {
        bail!("the job was answered {status}: {}", String::from_utf8_lossy(body));
    }
    let job: Value = serde_json::from_slice(body).context("read the live graph")?;
    let operators = job["operators"].as_array().context("operators of the live graph")?;
    let records = job["records"].as_f64().context("records of the live graph")?;
    let found = operators.iter().map(|operator| &operator["cache"]).find(|cache| !cache.is_null());
    let Some(cache) = found else { return Ok(Look { records, cache: None }) };
    let number = |name: &str| cache[name].as_f64().with_context(|| format!("{name} of the live graph"));
    let cache = Cache {
        keys: number("keys")?,
        stored: number("stored")?,
        key_bytes: number("key_bytes")?,
        misses: number("misses")?,
        evictions: number("evictions")?,
    };
    Ok(Look { records, cache: Some(cache) })
}

/// Waits until no more groups come in.
fn wait_until_filled(server: &Server) -> Result<Cache> {
    let (began, mut before) = (Instant::now(), -1.0);
    while began.elapsed() < FILL_PATIENCE {
        let now = cache(server)?.context("the job bounds its state")?;
        if now.keys == before {
            return Ok(now);
        }
        before = now.keys;
    }
    bail!("groups still came in after {FILL_PATIENCE:?}")
}

/// Lets the kernel forget what it has of files; for root alone.
fn drop_page_cache() -> Result<()> {
    std::fs::write(Path::new("/proc/sys/vm/drop_caches"), "1").context("drop the page cache")
}

fn seconds_of(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
